// scoring.h: the log-probabilities of the tokens of a finished text, from passes of a backend, without an engine.
//
// They are those that generation returned, to the last bit, if the passes take their sums as those passes did that gave
// generation its result. For the presets dvr, best and invariant these are INVARIANT passes of any number of rows. For
// the preset paper these are FIXED passes: one for the prompt alone, at its own shape, and then passes of M rows.
#ifndef SCORING_H
#define SCORING_H

#include "examples/lib/args.h"

// The caller sets the first four fields. desc.max_rows is at least `rows`, and under FIXED at least every prompt.
typedef struct scoring {
    const llm42_backend *backend;
    llm42_backend_desc desc;
    llm42_schedule schedule;
    int rows;          // most rows of a pass; under FIXED also M, the shape that passes are padded to
    bool keep_logits;  // .logits then has those of the last pass; without it only what is needed is copied
    float *logits;     // [max_rows, V]
    // NULL, or called for each row of scoring_text that has an output, in order; with keep_logits it has logits, too.
    void (*each)(void *user, const float *logits, const llm42_output *out);
    void *user;
    void *state;
    llm42_row *row;     // [max_rows]
    llm42_output *out;  // [max_rows]
    int32_t *pages;     // [max_context / page_size, rounded up]
} scoring;

void *scoring_get(size_t count, size_t size);
// How an engine of this desc would run passes of at most `rows` rows, which under FIXED are M.
scoring scoring_of(const llm42_engine_desc *engine, llm42_schedule schedule, int rows);
void scoring_open(scoring *s);
void scoring_close(scoring *s);
// The log-probability of ids[i] in logprob[i], for each token behind the first and behind the prompt, whose length may
// be 0. Under FIXED the prompt runs alone, as prefill ISOLATED runs it: in one pass of as many rows as it has tokens.
// Returns the number of rows of the last pass.
//
// A greedy pass gives the log-probability of the likeliest token: 0 - log(sum), where the sum is over exp(logit -
// largest logit). That of another token is (logit - largest logit) - log(sum). So it has the bits that the backend
// itself would give, and the sum is not taken again. Logits are fetched only if a pass has such a token.
int scoring_text(const scoring *s, const int32_t *ids, int count, int prompt, float *logprob);

// What scoring makes of generated tokens.
typedef struct scored {
    int tokens, other;    // those whose log-probability has other bits
    double sum, largest;  // differences of probability
} scored;

// Scores a prompt and the `count` tokens that were generated behind it with `logprobs`, and adds to *sum.
void scoring_compare(const scoring *s, const int32_t *prompt, int prompt_count, const int32_t *tokens,
                     const float *logprobs, int count, scored *sum);

#endif  // SCORING_H
