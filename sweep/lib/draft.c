// draft.c: the drafter of a simulated engine (see draft.h).
#define _POSIX_C_SOURCE 200809L
#include "draft.h"

int32_t sim_drafter_truth(void *user, const llm42_request *r, int at) {
    const sim_drafter *d = user;
    return llm42_sim_token(d->seed, d->vocab, r->key, r->prompt_count + at - 1);
}

llm42_result sim_drafter_open(sim_drafter *d, llm42_engine_desc *desc, const llm42_oracle_desc *oracle,
                              llm42_error *error) {
    const llm42_sim_desc *sim = desc->backend_desc;
    llm42_oracle_desc own = *oracle;
    if (!oracle->truth) return LLM42_OK;
    *d = (sim_drafter){.seed = sim->seed, .vocab = desc->model->config.vocab};
    own.user = d, own.seed = sim->seed, own.vocab = d->vocab, own.token_us = 1e3 * sim->calibration->draft_ms;
    desc->drafter = &d->drafter;
    return llm42_oracle_open(&d->drafter, &own, error);
}
