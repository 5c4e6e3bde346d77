// scoring.h: the log-probabilities of the tokens of a finished text, from passes of a backend, without an engine.
//
// They are those that generation returned, to the last bit, if the passes take their sums as those passes did that gave
// generation its result. For the presets dvr, best and invariant these are INVARIANT passes of any number of rows. For
// the preset paper these are FIXED passes: one for the prompt alone, at its own shape, and then passes of M rows.
#ifndef SCORING_H
#define SCORING_H

#include "args.h"

// The caller sets the first four fields. desc.max_rows is at least `rows`, and under FIXED at least every prompt.
typedef struct scoring {
    const llm42_backend *backend;
    llm42_backend_desc desc;
    llm42_schedule schedule;
    int rows;          // most rows of a pass; under FIXED also M, the shape that passes are padded to
    bool keep_logits;  // .logits then has those of the last pass; without it only what is needed is copied
    float *logits;     // [max_rows, V]
    void *state;
    llm42_row *row;     // [max_rows]
    llm42_output *out;  // [max_rows]
    int32_t *pages;     // [max_context / page_size, rounded up]
} scoring;

static inline void *scoring_get(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory) args_fail(args_went_wrong, "out of memory");
    return memory;
}

static inline void scoring_open(scoring *s) {
    llm42_error error = {0};
    const size_t rows = (size_t)s->desc.max_rows, vocab = (size_t)s->desc.model->config.vocab;
    const int pages = (s->desc.max_context + s->desc.page_size - 1) / s->desc.page_size;
    args_check(s->backend->open(&s->state, &s->desc, &error), &error);
    s->logits = scoring_get(rows * vocab, sizeof *s->logits);
    s->row = scoring_get(rows, sizeof *s->row);
    s->out = scoring_get(rows, sizeof *s->out);
    s->pages = scoring_get((size_t)pages, sizeof *s->pages);
    for (int i = 0; i < pages; i++) s->pages[i] = i;
}

static inline void scoring_close(scoring *s) {
    if (s->state) s->backend->close(s->state);
    free(s->logits);
    free(s->row);
    free(s->out);
    free(s->pages);
    *s = (scoring){0};
}

// Runs a pass. True if the likeliest token after each row is the one that follows in the text.
static inline bool scoring_run(const scoring *s, const llm42_pass *pass, const int32_t *ids, int count) {
    llm42_error error = {0};
    bool likeliest = true;
    args_check(s->backend->run(s->state, pass, &error), &error);
    for (int i = 0; i < pass->rows; i++) {
        const int at = pass->row[i].position;
        if (!(pass->row[i].flags & LLM42_ROW_SAMPLE)) continue;
        if (pass->out[i].token < 0)
            args_fail(args_went_wrong,
                      "%s: position %d: the logits are not finite: the weights hold NaN or infinity, or overflow",
                      s->desc.model->name, at);
        likeliest &= at + 1 >= count || pass->out[i].token == ids[at + 1];
    }
    return likeliest;
}

// The log-probability of ids[i] in logprob[i], for each token behind the first and behind the prompt, whose length may
// be 0. Under FIXED the prompt runs alone, as prefill ISOLATED runs it: in one pass of as many rows as it has tokens.
// Returns the number of rows of the last pass.
//
// A greedy pass gives the log-probability of the likeliest token: 0 - log(sum), where the sum is over exp(logit -
// largest logit). That of another token is (logit - largest logit) - log(sum). So it has the bits that the backend
// itself would give, and the sum is not taken again. Logits are fetched only if a pass has such a token.
static inline int scoring_text(const scoring *s, const int32_t *ids, int count, int prompt, float *logprob) {
    const size_t vocab = (size_t)s->desc.model->config.vocab;
    const llm42_seq seq = {.request = 1, .pages = s->pages};
    const bool fixed = s->schedule == LLM42_SCHEDULE_FIXED;
    int rows = 0;
    for (int begin = 0; begin < count; begin += rows) {
        const bool alone = fixed && begin < prompt;
        rows = alone ? prompt : s->rows < count - begin ? s->rows : count - begin;
        for (int i = 0; i < rows; i++)
            s->row[i] = (llm42_row){0, begin + i, ids[begin + i], begin + i + 1 < prompt ? 0 : LLM42_ROW_SAMPLE};
        llm42_pass pass = {.schedule = s->schedule,
                           .rows = rows,
                           .shape = fixed && !alone ? s->rows : rows,
                           .row = s->row,
                           .seq = &seq,
                           .out = s->out,
                           .logits = s->keep_logits ? s->logits : NULL};
        if (!scoring_run(s, &pass, ids, count) && !pass.logits) {
            pass.logits = s->logits;
            scoring_run(s, &pass, ids, count);
        }
        for (int i = 0; i < rows && begin + i + 1 < count; i++) {
            const float *logits = pass.logits ? pass.logits + (size_t)i * vocab : NULL;
            if (!(s->row[i].flags & LLM42_ROW_SAMPLE)) continue;
            const float below = logits ? logits[ids[begin + i + 1]] - logits[s->out[i].token] : 0;
            logprob[begin + i + 1] = below + s->out[i].logprob;
        }
    }
    return rows;
}

// What scoring makes of generated tokens.
typedef struct scored {
    int tokens, other;    // those whose log-probability has other bits
    double sum, largest;  // differences of probability
} scored;

// Scores a prompt and the `count` tokens that were generated behind it with `logprobs`, and adds to *sum.
static inline void scoring_compare(const scoring *s, const int32_t *prompt, int prompt_count, const int32_t *tokens,
                                   const float *logprobs, int count, scored *sum) {
    const size_t all = (size_t)prompt_count + (size_t)count;
    int32_t *ids = scoring_get(all, sizeof *ids);
    float *logprob = scoring_get(all, sizeof *logprob);
    memcpy(ids, prompt, sizeof *ids * (size_t)prompt_count);
    memcpy(ids + prompt_count, tokens, sizeof *ids * (size_t)count);
    scoring_text(s, ids, (int)all, prompt_count, logprob);
    for (int i = 0; i < count; i++) {
        const float its = logprob[prompt_count + i];
        const double difference = fabs(llm42_exp64((double)logprobs[i]) - llm42_exp64((double)its));
        sum->tokens++;
        sum->other += memcmp(&logprobs[i], &its, sizeof its) != 0;
        sum->sum += difference;
        if (difference > sum->largest) sum->largest = difference;
    }
    free(ids);
    free(logprob);
}

#endif  // SCORING_H
