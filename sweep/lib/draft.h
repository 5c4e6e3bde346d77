// draft.h: the drafter of a simulated engine (--draft). It knows the simulator's true tokens, and a draft is one of
// these with a given probability.
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

int32_t sim_drafter_truth(void *user, const llm42_request *r, int at);
// Sets the drafter of a desc, whose backend is the simulator, if `oracle` has a rate and so on.
llm42_result sim_drafter_open(sim_drafter *d, llm42_engine_desc *desc, const llm42_oracle_desc *oracle,
                              llm42_error *error);

#endif  // SWEEP_DRAFT_H
