// serve.h: one run of a workload on an engine, from its first request to its figures. The cells of build/sweep are such
// runs, and so are the workloads that build/bench serves on a GPU.
#ifndef SWEEP_SERVE_H
#define SWEEP_SERVE_H

#include <float.h>

#include "sweep/lib/collect.h"
#include "sweep/lib/common.h"
#include "sweep/lib/workload.h"

// Prompts made before the clock starts: those of one seed, one behind the other.
typedef struct prompt_set {
    uint64_t seed;
    int32_t *tokens;
    int64_t *start;  // [requests + 1]
} prompt_set;

typedef struct serve_plan {  // what the runs of a program have in common
    const llm42_model *model;
    const char *workload;
    int64_t requests, warm_up;  // warm_up: requests served before the clock starts
    int64_t leave_out;          // the first of `requests`, which are served, but are in no percentile
    int max_context, max_running;
    double outside_s;     // time of each request outside the engine (a calibration's host_request_ms), in seconds
    bool clipped;         // requests of the workload may be longer than the context
    bool timed;           // the workload has arrivals of its own
    int64_t empty;        // lines of its file that have 0 tokens of input or output, each of which counts as 1
    bool random_prompts;  // token ids of prompts matter, and are the workload's own
    double temperature;   // of the requests; 0: greedy
} serve_plan;

typedef struct serving serving;

struct serving {
    const serve_plan *s;
    const prompt_set *prompts;  // NULL: none were made
    bool submit_late;           // a request is submitted when it may soon be admitted; else all are at once
    void (*progress)(serving *v);
    void *user;  // of progress
    llm42_engine *engine;
    workload load;
    collector collected;
    int32_t *prompt;      // [max_context]
    double ratio, start;  // share of deterministic requests; when the first request may arrive
    double trace_speed;   // arrivals of a trace come so many times as fast; 0: at their own times
    int64_t submitted;    // requests
    llm42_stats before;   // what the warm-up has left
};

// KV pages of a device's pool: kv_gb GiB, or less where max_running whole contexts take less, but at least one context.
int64_t serve_pages(const serve_plan *s, int64_t page_size, double kv_gb);
// Sets .max_context and .clipped by the longest request of .workload, .model's context and `most` (0: no limit).
llm42_result serve_context(serve_plan *s, const char *qps, int64_t most, llm42_error *error);
// What an engine gets of a request of the workload. The prompt is valid until the next call.
llm42_request_desc serving_request(serving *v, const workload_request *r);
llm42_result submit_next(serving *v, llm42_error *error);
// Opens the workload and the collector of its figures.
llm42_result serving_begin(serving *v, const char *qps, uint64_t seed, llm42_error *error);
// desc says how to serve; its events go to the collector. ratio: share of requests that are deterministic, in modes
// where requests differ in that.
llm42_result serving_open(serving *v, llm42_engine_desc desc, const char *qps, uint64_t seed, double ratio,
                          llm42_error *error);
// Requests that are submitted late take no memory before, so that there may be millions. Under the default planner the
// result is that of submitting all at once: it admits from the head of the queue, which is sorted by arrival; one step
// admits no more than max_running requests that were never admitted before, since those that it preempts on the way
// stand in front of them; and as long as any are to come the queue holds more than that. Other planners may look at the
// whole queue.
llm42_result serve(serving *v, llm42_error *error);
llm42_result serving_figures(serving *v, metrics *m, llm42_error *error);
void serving_close(serving *v);
// Makes the prompts of p->seed. desc says on what engine; its mode and sizes are set here.
llm42_result prompts_make(prompt_set *p, const serve_plan *s, llm42_engine_desc desc, llm42_error *error);

#endif  // SWEEP_SERVE_H
