// collect.h: what is reported of one run of a workload, collected from the engine's events.
//
// llm42_metrics keeps every inter-token latency. Here a million requests must fit into memory, so inter-token latencies
// are only counted, in buckets at most 0.8% wide. Everything else is kept for each request.
#ifndef SWEEP_COLLECT_H
#define SWEEP_COLLECT_H

#include "examples/util/llm42_trace.h"
#include "sweep/lib/common.h"
// The columns after the cell's own, each with its format. A new one needs its value in collect_figures, a place in
// stats_add if it comes from llm42_stats, and one among the columns that tests/test_sweep.sh names and counts.
#define METRICS(X)                   \
    X(duration_s, "%.6g")            \
    X(total_tok_per_s, "%.6g")       \
    X(output_tok_per_s, "%.6g")      \
    X(ttft_p50_s, "%.6g")            \
    X(ttft_p75_s, "%.6g")            \
    X(ttft_p90_s, "%.6g")            \
    X(ttft_p99_s, "%.6g")            \
    X(e2e_p50_s, "%.6g")             \
    X(e2e_p75_s, "%.6g")             \
    X(e2e_p90_s, "%.6g")             \
    X(e2e_p99_s, "%.6g")             \
    X(itl_p50_s, "%.4g")             \
    X(itl_p99_s, "%.4g")             \
    X(det_e2e_p50_s, "%.6g")         \
    X(det_e2e_p99_s, "%.6g")         \
    X(nondet_e2e_p50_s, "%.6g")      \
    X(nondet_e2e_p99_s, "%.6g")      \
    X(nondet_itl_p99_s, "%.4g")      \
    X(returned_tokens, "%.0f")       \
    X(det_tokens, "%.0f")            \
    X(candidates, "%.0f")            \
    X(verifications, "%.0f")         \
    X(rollbacks, "%.0f")             \
    X(recomputed_tokens, "%.0f")     \
    X(recompute_pct, "%.6g")         \
    X(rollbacks_per_request, "%.6g") \
    X(preemptions, "%.0f")           \
    X(passes_fast, "%.0f")           \
    X(passes_fixed, "%.0f")          \
    X(passes_invariant, "%.0f")      \
    X(passes_replay, "%.0f")         \
    X(replay_busy_pct, "%.6g")       \
    X(running_mean, "%.6g")          \
    X(offered_per_s, "%.4g")         \
    X(served_per_s, "%.4g")          \
    X(overloaded, "%.0f")

typedef struct metrics {
#define X(name, format) double name;
    METRICS(X)
#undef X
    double drafted, accepted;  // columns of results that have the axis draft
} metrics;

// A request that has finished. Times in seconds, ttft and e2e from its arrival.
typedef struct served {
    double arrival, ttft, e2e;
    int32_t input, output, verifications, rollbacks, recomputed;
    int32_t replica;  // of a fleet, from 0
    bool deterministic;
} served;

// How many requests run in an engine, over time.
typedef struct collect_running {
    int count;
    double since, area;  // of the last change; request-seconds up to then
} collect_running;

typedef struct collector {
    int64_t requests;      // that will be submitted
    int64_t skip;          // requests of a warm-up, which come first and do not count
    int64_t leave_out;     // of `requests`, the first so many are in no percentile
    served *served;        // [requests], by index in the workload; one engine gives these the id index + 1 + skip
    int64_t *itl[2];       // [BUCKETS] inter-token latencies of requests, deterministic ones in [1]
    int64_t input_tokens;  // of those finished
    double begin, end;     // first arrival, last release by the engine
    double outside_s;      // time of each request outside the engine, which counts in ttft, e2e and the duration
    collect_running running;
    int64_t finished;    // requests
    llm42_trace *trace;  // NULL: none
} collector;

// Adds what figures need of `from`; sign -1: takes it off.
void stats_add(llm42_stats *to, const llm42_stats *from, int sign);
bool collect_open(collector *c, int64_t requests);
void collect_close(collector *c);
// An event of request `index` of the workload. running: of the engine in which it runs.
void collect_request(collector *c, collect_running *running, int64_t index, const llm42_event *event);
void collect_event(void *user, const llm42_event *event);
// False: out of memory.
bool collect_figures(collector *c, const llm42_stats *s, metrics *m);
// The columns, each after a tab.
void metrics_print(FILE *file, const metrics *m);

#endif  // SWEEP_COLLECT_H
