// budget.h: a planner of one's own for build/sweep, with state and a parameter. Copy it and change it:
//
//     make sweep PLANNER=sweep/budget.h
//     build/sweep --calibration sweep/calibration/h100-pcie-paper.tsv --planner default,budget:0.1,budget:0.3
//
// It verifies as soon as a window is ready, but replay passes may take at most a share of all time in passes (the
// parameter, by default 0.2). So candidates wait while replay passes are over their budget, and latencies of ordinary
// requests have a bound to how much verification delays them. A pass of nothing but waiting windows is allowed always.
//
// A planner decides how long requests wait, but it cannot change a bit of a deterministic request.
#include "examples/planners.h"

#include <stdlib.h>

typedef struct budget {
    double share;                    // of time that replay passes may take
    double replay_seconds, seconds;  // in passes so far
} budget;

static llm42_result budget_plan(void *user, const llm42_view *view, llm42_plan *plan, llm42_error *error) {
    const budget *b = user;
    bool ready = false;
    (void)error;
    for (int i = 0; i < view->running_count; i++) ready = ready || view->running[i]->ready_since >= 0;
    return planner_pass(view, plan, ready && b->replay_seconds <= b->share * b->seconds, every_order);
}

// The seconds are virtual under --backend sim. On a real device they are measured, so that runs do not repeat exactly.
static void budget_postprocess(void *user, const llm42_view *view, const llm42_plan *plan, double seconds) {
    budget *b = user;
    bool replay = false;
    (void)view;
    for (int i = 0; i < plan->count; i++) replay = replay || plan->choice[i].kind == LLM42_KIND_WINDOW;
    b->seconds += seconds;
    if (replay) b->replay_seconds += seconds;
}

static llm42_result budget_open(llm42_planner *planner, const char *parameter, llm42_error *error) {
    char *end = NULL;
    double share = parameter ? strtod(parameter, &end) : 0.2;
    if (parameter && (!parameter[0] || *end || !(share >= 0 && share <= 1)))
        return llm42_fail(error, LLM42_INVALID, "--planner budget:%s: must be a share of time from 0 to 1", parameter);
    budget *b = calloc(1, sizeof *b);
    if (!b) return llm42_fail(error, LLM42_MEMORY, "out of memory for a planner");
    b->share = share;
    planner->user = b;
    planner->plan = budget_plan;
    planner->postprocess = budget_postprocess;
    return LLM42_OK;
}

static void budget_close(llm42_planner *planner) { free(planner->user); }

#define OWN_PLANNERS \
    { .name = "budget", .open = budget_open, .close = budget_close }
