// draft.h: the drafter of a simulated engine (--draft). It knows the simulator's true tokens, and a draft is one of
// these with a given probability. Included behind llm42.h.
#ifndef SWEEP_DRAFT_H
#define SWEEP_DRAFT_H

#include "examples/util/llm42_draft.h"
#include "sweep/lib/common.h"

// What the true tokens depend on, and the drafter that proposes them.
typedef struct sim_drafter {
    uint64_t seed;
    int vocab;
    llm42_drafter drafter;
} sim_drafter;

static inline int32_t sim_drafter_truth(void *user, const llm42_request *r, int at) {
    const sim_drafter *d = user;
    return llm42_sim_token(d->seed, d->vocab, r->key, r->prompt_count + at - 1);
}

// Sets the drafter of a desc, whose backend is the simulator, if `oracle` has a rate and so on.
static inline llm42_result sim_drafter_open(sim_drafter *d, llm42_engine_desc *desc, const llm42_oracle_desc *oracle,
                                            llm42_error *error) {
    const llm42_sim_desc *sim = desc->backend_desc;
    llm42_oracle_desc own = *oracle;
    if (!oracle->truth) return LLM42_OK;
    *d = (sim_drafter){.seed = sim->seed, .vocab = desc->model->config.vocab};
    own.user = d, own.seed = sim->seed, own.vocab = d->vocab, own.token_us = 1e3 * sim->calibration->draft_ms;
    desc->drafter = &d->drafter;
    return llm42_oracle_open(&d->drafter, &own, error);
}

#endif  // SWEEP_DRAFT_H
