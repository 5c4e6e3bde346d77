// planners.h: two planners of one's own, for 06_planner.c and build/sweep. A planner says who shares the next pass
// (section api-planner of llm42.h). So it decides how long each request waits, but no token and no log-probability bit
// of a deterministic request depends on it. (Answers to ordinary requests may change with their batches.)
//
// - every: verifies in every k-th pass. k is such that each deterministic request has a turn about once in W passes.
// - deadline: a request should end by its target, which is its arrival + target_seconds x the tokens that it asks for.
//   The one whose target is nearest is admitted and verified first; the one with the latest gives up its pages first.
//
// Both work with every mode and prefill; in mode HYBRID they always verify, as in DVR.
#ifndef PLANNERS_H
#define PLANNERS_H

#include "llm42.h"

#include <string.h>

// Planners of one's own decide when to verify, and whom: the windows that come first in `order`. The rest of a plan is
// made of the built-in planner's parts. Deterministic prompts and ordinary work take turns.
static inline llm42_result planner_pass(const llm42_view *view, llm42_plan *plan, bool verify, llm42_order_fn *order) {
    llm42_engine_desc desc = *view->desc;
    llm42_view own = *view, *v = &own;
    own.desc = &desc;
    desc.policy.verify = LLM42_VERIFY_WAIT;  // a request goes on decoding while its ready window waits for its turn
    const bool chunked = desc.policy.chunked_prefill == LLM42_CHUNKED_ON;  // else prompts go before all decoding
    const bool prompts_had_turn = chunked && v->last.schedule == v->replay && v->last.prompts;
    const bool windows_had_turn = v->last.windows && v->window_ready == 0;  // W = 1: a window is always ready
    // A request with drafts does not decode before they are verified.
    for (int i = 0; i < v->running_count; i++) verify |= v->running[i]->verified && v->running[i]->drafts;
    if (verify && !windows_had_turn) llm42_plan_windows(v, plan, order);
    if (plan->count || !prompts_had_turn) llm42_plan_prompts(v, plan);
    if (!plan->count) llm42_plan_ordinary(v, plan);
    if (!plan->count) llm42_plan_windows(v, plan, order);
    if (!plan->count) llm42_plan_prompts(v, plan);
    return LLM42_OK;
}

// >>every --------------------------------------------------------------------------------------------------------
// Windows come in the order in which they became ready, or will at the earliest.
static inline double every_order(const llm42_view *v, const llm42_request *r) {
    return (double)(r->ready_since >= 0 ? r->ready_since : v->passes + v->window_ready - r->candidates);
}

// A replay pass holds G windows. With N requests to verify, each has a turn once in W passes if k = W x G / N, or W
// where N is less than G.
static inline llm42_result every_plan(void *user, const llm42_view *v, llm42_plan *plan, llm42_error *error) {
    int requests = 0;
    for (int i = 0; i < v->running_count; i++) requests += v->running[i]->verified;
    const int group = v->desc->policy.group, k = v->desc->policy.window * group / (requests > group ? requests : group);
    (void)user, (void)error;
    return planner_pass(v, plan, v->passes % (k > 2 ? k : 2) == 0, every_order);
}

// >>deadline -----------------------------------------------------------------------------------------------------
static const double target_seconds = 0.03;  // for each token asked for

static inline double target_of(const llm42_request *r) { return r->arrival + target_seconds * r->max_new_tokens; }

// Windows that are ready come first, by target. The others fill the pass, those with most candidates first.
static inline double deadline_order(const llm42_view *v, const llm42_request *r) {
    (void)v;
    return r->ready_since >= 0 ? target_of(r) : 1e12 - r->candidates;
}

// Verifies as soon as a window is ready.
static inline llm42_result deadline_plan(void *user, const llm42_view *v, llm42_plan *plan, llm42_error *error) {
    bool ready = false;
    for (int i = 0; i < v->running_count; i++) ready = ready || v->running[i]->ready_since >= 0;
    (void)user, (void)error;
    return planner_pass(v, plan, ready, deadline_order);
}

static inline int64_t deadline_admit(void *user, const llm42_view *v) {
    const llm42_request *nearest = v->waiting;
    (void)user;
    if (v->running_count == v->desc->max_running) return 0;  // spares a look at the whole queue
    for (const llm42_request *r = nearest; r && r->arrival <= v->now; r = llm42_next_waiting(v, r))
        if (target_of(r) < target_of(nearest)) nearest = r;
    return nearest->id;
}

static inline int64_t deadline_preempt(void *user, const llm42_view *v) {
    const llm42_request *latest = NULL;
    (void)user;
    for (int i = 0; i < v->running_count; i++)
        if (!latest || target_of(v->running[i]) > target_of(latest)) latest = v->running[i];
    return latest ? latest->id : 0;
}

// >>find ---------------------------------------------------------------------------------------------------------
static const char *const planner_names[] = {"default", "every", "deadline", NULL};

// The planner of this name; NULL: there is none.
static inline const llm42_planner *planner_find(const char *name) {
    static const llm42_planner every = {.name = "every", .plan = every_plan};
    static const llm42_planner deadline = {
        .name = "deadline", .plan = deadline_plan, .preempt = deadline_preempt, .admit = deadline_admit};
    if (!strcmp(name, "every")) return &every;
    if (!strcmp(name, "deadline")) return &deadline;
    return strcmp(name, "default") ? NULL : llm42_planner_default();
}

#endif  // PLANNERS_H
