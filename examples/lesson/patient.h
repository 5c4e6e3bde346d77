// patient.h: the planner of exercise 3 in LESSON.md. It verifies when enough windows are ready to fill the given share
// of a replay pass (the parameter, by default 0.5), or when one of them has been ready for W passes.
//
//     make sweep PLANNER=examples/lesson/patient.h
//     build/sweep --calibration sweep/calibration/h100-pcie-paper.tsv --requests 500 --planner default,patient
#include "examples/planners.h"

#include <stdlib.h>

static llm42_result patient_plan(void *user, const llm42_view *view, llm42_plan *plan, llm42_error *error) {
    const llm42_policy *policy = &view->desc->policy;
    int ready = 0, verified = 0;
    bool overdue = false;
    (void)error;
    for (int i = 0; i < view->running_count; i++) {
        const llm42_request *r = view->running[i];
        verified += r->verified;
        ready += r->ready_since >= 0;
        overdue = overdue || (r->ready_since >= 0 && view->passes - r->ready_since >= policy->window);
    }
    const int places = verified < policy->group ? verified : policy->group;
    return planner_pass(view, plan, overdue || (ready && ready >= *(double *)user * places), every_order);
}

static llm42_result patient_open(llm42_planner *planner, const char *parameter, llm42_error *error) {
    char *end = NULL;
    const double share = parameter ? strtod(parameter, &end) : 0.5;
    if (parameter && (!parameter[0] || *end || !(share >= 0 && share <= 1)))
        return llm42_fail(error, LLM42_INVALID, "--planner patient:%s: must be a share from 0 to 1", parameter);
    if (!(planner->user = malloc(sizeof share))) return llm42_fail(error, LLM42_MEMORY, "out of memory for a planner");
    *(double *)planner->user = share;
    planner->plan = patient_plan;
    return LLM42_OK;
}

static void patient_close(llm42_planner *planner) { free(planner->user); }

#define OWN_PLANNERS \
    { .name = "patient", .open = patient_open, .close = patient_close }
