// tap.c: the log-probabilities that the engine does not return: those of alternatives to a token, and those of a
// prompt's tokens. A backend of its own, around the real one, asks for the logits of the rows in question and keeps
// what they say. A token is committed by the last pass that has computed it, so that what is kept has the bits of that
// pass: for a deterministic request, the canonical ones. All of this runs on the engine's thread.
#define _POSIX_C_SOURCE 200809L
#include "serve.h"

static struct {
    llm42_backend backend;  // what the engine gets
    const llm42_backend *inner;
    serve_sample **wanted;  // samples that want more
    serve_sample **of;      // of the rows of a pass; NULL: nobody
    llm42_row *row;
    llm42_output *out;
    float *logits;
} tap;

// The place in a sample's answer of the token that follows `position`; negative: it has none.
static int tap_place(const serve_sample *s, int position) { return position + 1 - s->ask.prompt_count + s->echo; }

// Keeps what the logits after `position` say about the token that follows.
static void tap_keep(serve_sample *s, int position, const float *logits) {
    const int vocab = serve.model->config.vocab, top = s->call->top, at = tap_place(s, position);
    int32_t best[SERVE_TOP + 1] = {0};
    int count = 0;
    if (at < s->echo) s->token[at].logprob = llm42_logprob(logits, vocab, s->token[at].id);
    if (!top) return;
    for (int32_t id = 0; id < vocab; id++) {  // the largest first, and of equal ones the lowest id
        int place = count;
        while (place > 0 && logits[id] > logits[best[place - 1]]) place--;
        if (place == top) continue;
        if (count < top) count++;
        memmove(best + place + 1, best + place, sizeof *best * (size_t)(count - 1 - place));
        best[place] = id;
    }
    const float first = llm42_logprob(logits, vocab, best[0]);  // the others' have the same sum below them
    for (int i = 0; i < top; i++)
        s->top[(size_t)at * (size_t)top + (size_t)i] = i < count
                                                           ? (serve_top){best[i],
                                                                         (logits[best[i]] - logits[best[0]]) + first}
                                                           : (serve_top){-1, 0};
}

// Does the answer lack the token that follows? What is below .have is final.
static bool tap_wants(const serve_sample *s, const llm42_row *row) {
    const int at = tap_place(s, row->position);
    const bool drawn = row->flags & LLM42_ROW_SAMPLE || at < s->echo;
    return drawn && at >= s->have && at >= 0 && at < s->echo + s->limit;
}

// The sample of a request of the engine that wants more; NULL: it wants no more.
static serve_sample *tap_of(int64_t id) {
    for (int i = 0; i < (int)arrlen(tap.wanted); i++)
        if (tap.wanted[i]->id == id) return tap.wanted[i];
    return NULL;
}

void tap_add(serve_sample *s) { arrput(tap.wanted, s); }

void tap_end(int64_t id) {
    for (int i = 0; i < (int)arrlen(tap.wanted); i++)
        if (tap.wanted[i]->id == id) arrdelswap(tap.wanted, i);
}

static llm42_result tap_run(void *state, const llm42_pass *pass, llm42_error *error) {
    llm42_pass with = *pass;
    bool any = false;
    if (!arrlen(tap.wanted)) return tap.inner->run(state, pass, error);
    arrsetlen(tap.of, pass->rows);
    arrsetlen(tap.row, pass->rows);
    arrsetlen(tap.out, pass->rows);
    for (int i = 0; i < pass->rows; i++) {
        tap.row[i] = pass->row[i];
        tap.of[i] = tap_of(pass->seq[pass->row[i].seq].request);
        if (tap.of[i] && !tap_wants(tap.of[i], &pass->row[i])) tap.of[i] = NULL;
        if (tap.of[i]) tap.row[i].flags |= LLM42_ROW_SAMPLE, any = true;
    }
    if (!any) return tap.inner->run(state, pass, error);
    arrsetlen(tap.logits, (size_t)pass->rows * (size_t)serve.model->config.vocab);
    with.row = tap.row, with.out = tap.out, with.logits = tap.logits;
    const llm42_result result = tap.inner->run(state, &with, error);
    for (int i = 0; i < pass->rows && !result; i++) {
        if (pass->row[i].flags & LLM42_ROW_SAMPLE) pass->out[i] = tap.out[i];
        if (tap.of[i])
            tap_keep(tap.of[i], pass->row[i].position, tap.logits + (size_t)i * (size_t)serve.model->config.vocab);
    }
    return result;
}

const llm42_backend *tap_open(const llm42_backend *inner) {
    tap.inner = inner, tap.backend = *inner;
    tap.backend.run = tap_run;
    return &tap.backend;
}

void tap_close(void) {
    arrfree(tap.wanted);
    arrfree(tap.of);
    arrfree(tap.row);
    arrfree(tap.out);
    arrfree(tap.logits);
}
