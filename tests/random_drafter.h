// random_drafter.h: a drafter that knows the answers and spoils them by chance, and a backend that calls every draft
// right, for controls. Include "test.h" and "llm42.h" first, and have NEW, as answers.h wants it.
#ifndef LLM42_RANDOM_DRAFTER_H
#define LLM42_RANDOM_DRAFTER_H

#include "answers.h"

static uint64_t chance;  // the state of all that is drawn; a test sets it
static int any(int from, int to) { return test_random_int(&chance, from, to); }
static bool once_in(int n) { return any(1, n) == 1; }

// Its drafts are right, wrong, too few or none, or go on behind a stop token. Once it fails it must not be asked again.
typedef struct random_drafter {
    const answer *truth;  // of requests 1, 2 and so on
    int right;            // one draft in so many is a token by chance
    int fails;            // one call in so many breaks a rule; 0: none
    bool failed;          // set by the drafter
    int64_t refused;      // calls that asked for nothing, or came behind a failure
} random_drafter;

static inline llm42_result random_drafter_break(random_drafter *own, llm42_draft *last, int vocab, llm42_error *e) {
    const int how = any(0, 5);
    own->failed = true;
    if (how == 0) return llm42_fail(e, LLM42_IO, "no drafts");
    if (how == 1) return LLM42_IDLE;
    last->count = how == 2 ? -1 : how == 3 ? last->limit + 1 : 1;
    if (how > 3) last->token[0] = how == 4 ? -1 : vocab;
    return LLM42_OK;
}

static inline llm42_result random_drafter_draft(void *user, const llm42_view *v, llm42_draft *d, int count,
                                                llm42_error *e) {
    random_drafter *own = user;
    const int vocab = v->desc->model->config.vocab;
    own->refused += own->failed || count < 1;
    for (int i = 0; i < count; i++) {
        const llm42_request *r = d[i].request;
        const answer *truth = &own->truth[r->id - 1];
        d[i].count = once_in(4) ? d[i].limit : any(0, d[i].limit);
        for (int k = 0, at = r->committed + r->candidates; k < d[i].count; k++, at++)
            d[i].token[k] = at >= truth->count || once_in(own->right) ? any(0, vocab - 1) : truth->tokens[at];
    }
    if (!own->fails || !once_in(own->fails)) return LLM42_OK;
    return random_drafter_break(own, &d[count - 1], vocab, e);
}

static inline llm42_drafter random_drafter_of(random_drafter *own) {
    return (llm42_drafter){.name = "random", .user = own, .draft = random_drafter_draft};
}

// The CPU backend, but each row returns the token of the row behind it. So every draft and every candidate agrees.
static inline llm42_result believing_run(void *state, const llm42_pass *pass, llm42_error *e) {
    const llm42_result result = llm42_backend_cpu()->run(state, pass, e);
    for (int i = 0; i + 1 < pass->rows && !pass->check; i++)
        if ((pass->row[i].flags & LLM42_ROW_SAMPLE) && pass->row[i + 1].seq == pass->row[i].seq)
            pass->out[i].token = pass->row[i + 1].token;
    return result;
}

static inline llm42_backend believing_backend(void) {
    llm42_backend backend = *llm42_backend_cpu();
    backend.run = believing_run;
    return backend;
}

#endif  // LLM42_RANDOM_DRAFTER_H
