// planners.h: two planners of one's own, for 06_planner.c and build/sweep.
//
// A planner looks at the requests and says who shares the next pass (section api-planner of llm42.h). It cannot change
// a result: no token and no log-probability bit of a deterministic request depends on it. It decides how long each
// request waits.
//
//     every     Verifies in every k-th pass. k is such that each deterministic request has a turn once in W passes.
//     deadline  A request should end by arrival + deadline_allowance x the tokens that it asks for. The nearest
//               deadline is admitted first and verified first. The latest is the first to give up its pages.
//
// Both depend on the view alone: they are const tables without state. They work with every mode, prefill and bonus,
// with overlap and with chunked prefill. Of the policy fields of llm42_engine_desc they use .look_ahead, in every
// pass. They ignore .verify, .fill and .deadline (which is a number of passes, and not the deadline meant here).
#ifndef PLANNERS_H
#define PLANNERS_H

#include "llm42.h"

#include <string.h>

// >>common -------------------------------------------------------------------------------------------------------
// What both planners need: who may be in which kind of pass. Each function adds choices to a plan.

// The window of the lowest rank goes first. Among windows of equal rank, the request that was admitted first does.
typedef double planner_rank_fn(const llm42_request *r);

static inline bool planner_has(const llm42_plan *plan, const llm42_request *r) {
    for (int i = 0; i < plan->count; i++)
        if (plan->choice[i].request == r->id) return true;
    return false;
}

// A replay pass: up to G windows, full or not.
static inline void planner_windows(const llm42_view *v, llm42_plan *plan, planner_rank_fn *rank) {
    plan->schedule = v->replay;
    while (plan->count < v->desc->group) {
        const llm42_request *next = NULL;
        for (int i = 0; i < v->running_count; i++) {
            const llm42_request *r = v->running[i];
            if (!llm42_choice_rows(v, r, LLM42_CHOICE_WINDOW, v->replay) || planner_has(plan, r)) continue;
            if (!next || rank(r) < rank(next)) next = r;
        }
        if (!next) return;
        llm42_choose(plan, next, LLM42_CHOICE_WINDOW, llm42_choice_rows(v, next, LLM42_CHOICE_WINDOW, v->replay));
    }
}

// Rows of a prompt that may ride in ordinary passes.
static inline int planner_riding(const llm42_view *v, const llm42_request *r) {
    bool rides = !r->verify || v->desc->prefill == LLM42_PREFILL_INVARIANT;
    return rides ? llm42_choice_rows(v, r, LLM42_CHOICE_PROMPT, LLM42_INVARIANT) : 0;
}

// Deterministic prompts, in a pass of their own or in rows of a replay pass that would be padding. With prefill PACKED
// ordinary prompts fill what is left of the M rows, if the pass is FIXED. With prefill ISOLATED a deterministic prompt
// is alone.
static inline void planner_prompts(const llm42_view *v, llm42_plan *plan) {
    int room = v->desc->window * v->desc->group;
    for (int i = 0; i < plan->count; i++) room -= plan->choice[i].rows;
    plan->schedule = v->replay;
    for (int i = 0; i < v->running_count && room > 0; i++) {
        const llm42_request *r = v->running[i];
        int rows = llm42_choice_rows(v, r, LLM42_CHOICE_PROMPT, v->replay);
        bool alone = r->verify && v->desc->prefill == LLM42_PREFILL_ISOLATED && r->kv < r->prompt_count;
        if (!rows || (alone && plan->count)) continue;
        bool padding = v->replay == LLM42_FIXED && v->desc->prefill == LLM42_PREFILL_PACKED && plan->count;
        if (!r->verify && !padding) continue;
        llm42_choose(plan, r, LLM42_CHOICE_PROMPT, alone || rows < room ? rows : room);
        room = alone ? 0 : room - rows;
    }
}

// An ordinary pass: all who decode, and prompts in what is left of token_budget, in chunks. Without chunked prefill
// prompts run whole, and before decoding.
static inline void planner_ordinary(const llm42_view *v, llm42_plan *plan) {
    bool whole = v->desc->chunked_prefill == LLM42_CHUNKED_OFF, prompts = false;
    int room = v->desc->token_budget, most = v->window_ready + v->desc->look_ahead;  // candidates
    plan->schedule = v->desc->mode == LLM42_BATCH_INVARIANT ? LLM42_INVARIANT : LLM42_FAST;
    for (int i = 0; i < v->running_count; i++)  // a prompt that may be in an INVARIANT pass rides in ordinary ones
        prompts = prompts || planner_riding(v, v->running[i]);
    for (int i = 0; i < v->running_count && !(whole && prompts); i++) {
        const llm42_request *r = v->running[i];
        if (!llm42_choice_rows(v, r, LLM42_CHOICE_DECODE, plan->schedule) || r->candidates >= most) continue;
        llm42_choose(plan, r, LLM42_CHOICE_DECODE, 1);
        room--;
    }
    for (int i = 0; i < v->running_count && room > 0; i++) {
        const llm42_request *r = v->running[i];
        int rows = planner_riding(v, r);
        if (!rows) continue;
        if (whole && rows > room) return;
        llm42_choose(plan, r, LLM42_CHOICE_PROMPT, rows < room ? rows : room);
        room -= rows;
        if (r->verify) plan->schedule = LLM42_INVARIANT;  // prefill INVARIANT
    }
}

// The next pass. If `verify` is set, it is a replay pass of windows. Otherwise deterministic prompts and ordinary work
// take turns. If there is neither, it is a replay pass after all.
static inline llm42_result planner_pass(const llm42_view *v, llm42_plan *plan, bool verify, planner_rank_fn *rank) {
    bool replay = !v->in_flight.rows;  // one replay pass is in flight at most
    bool prompts = replay || v->desc->prefill == LLM42_PREFILL_ISOLATED;
    bool turn = v->last.schedule != v->replay || !v->last.prompts || v->desc->chunked_prefill == LLM42_CHUNKED_OFF;
    if (v->window_ready == 0 && v->last.windows) verify = false;  // W = 1: a window is always ready, so take turns
    if (verify && replay) planner_windows(v, plan, rank);
    if (plan->count || (prompts && turn)) planner_prompts(v, plan);
    if (!plan->count) planner_ordinary(v, plan);
    if (!plan->count && replay) planner_windows(v, plan, rank);
    if (!plan->count && prompts) planner_prompts(v, plan);
    return LLM42_OK;  // an empty plan waits for the pass in flight
}

// >>every --------------------------------------------------------------------------------------------------------
// Windows that are ready go first, in the order in which they became ready. The others follow, those with most
// candidates first.
static inline double every_rank(const llm42_request *r) {
    return r->ready_since >= 0 ? (double)r->ready_since : 1e12 - r->candidates;
}

// A replay pass holds G windows. With N requests to verify, each has a turn once in W passes if k = W x G / N.
static inline llm42_result every_plan(void *user, const llm42_view *v, llm42_plan *plan, llm42_error *error) {
    int requests = 0;
    for (int i = 0; i < v->running_count; i++) requests += v->running[i]->verify;
    int64_t k = v->desc->window * v->desc->group / (requests ? requests : 1);
    (void)user, (void)error;
    return planner_pass(v, plan, v->passes % (k > 2 ? k : 2) == 0, every_rank);
}

// >>deadline -----------------------------------------------------------------------------------------------------
static const double deadline_allowance = 0.03;  // seconds for each token asked for

static inline double deadline_of(const llm42_request *r) { return r->arrival + deadline_allowance * r->max_new_tokens; }

// Windows that are ready come first, by deadline. The others fill the pass, by their number of candidates.
static inline double deadline_rank(const llm42_request *r) {
    return r->ready_since >= 0 ? deadline_of(r) : 1e12 - r->candidates;
}

// Verifies as soon as a window is ready.
static inline llm42_result deadline_plan(void *user, const llm42_view *v, llm42_plan *plan, llm42_error *error) {
    bool ready = false;
    for (int i = 0; i < v->running_count; i++) ready = ready || v->running[i]->ready_since >= 0;
    (void)user, (void)error;
    return planner_pass(v, plan, ready, deadline_rank);
}

static inline int64_t deadline_admit(void *user, const llm42_view *v) {
    const llm42_request *nearest = v->waiting;
    (void)user;
    if (v->running_count == v->desc->max_running) return 0;  // spares a look at the whole queue
    for (const llm42_request *r = nearest; r && r->arrival <= v->now; r = llm42_next_waiting(r))
        if (deadline_of(r) < deadline_of(nearest)) nearest = r;
    return nearest->id;
}

static inline int64_t deadline_preempt(void *user, const llm42_view *v) {
    const llm42_request *latest = NULL;
    (void)user;
    for (int i = 0; i < v->running_count; i++) {
        const llm42_request *r = v->running[i];
        if (!r->in_flight && (!latest || deadline_of(r) > deadline_of(latest))) latest = r;
    }
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
