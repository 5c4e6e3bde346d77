/* 06_planner: two planners of one's own beside the built-in one, on one simulated workload.

   A planner decides who shares the next pass. planners.h has two. "every" verifies in every k-th pass. "deadline" knows
   when each request should end, and serves the nearest deadline first. A planner changes latencies, never the answer to
   a deterministic request.

   "deadline" meets more deadlines, and its order of admission brings nearly all of this gain. The price is a longer P99
   latency. It gains nothing when the load is light, because all deadlines are met anyway. Nor does it gain when all
   requests ask for the same number of tokens, because the first to arrive then has the nearest deadline.

   New here: .planner, arrivals over time, and util/llm42_metrics.h.

   Compile it in the repository's root, and run it there:

      mkdir -p build && cc -std=c11 -O2 -march=native -ffp-contract=off -fopenmp -I. -I/usr/include/stb \
          examples/06_planner.c -o build/06_planner -lm
      build/06_planner
*/
#define LLM42_CALIBRATION_IMPLEMENTATION
#define LLM42_IMPLEMENTATION
#include "llm42.h"
#include "util/llm42_calibration.h"
#include "planners.h"
#define LLM42_METRICS_IMPLEMENTATION
#include "util/llm42_metrics.h"

enum { REQUESTS = 1000, PROMPT = 128, RUNNING = 48 };
static const double PER_SECOND = 17;

typedef struct tally {
    llm42_metrics metrics;    // of the deterministic requests
    int requests[2], met[2];  // ordinary and deterministic ones: all, and those that met their deadline
    uint64_t answers[2];      // hashes of their tokens
    double end;               // of the last pass, seconds
} tally;

static void check(llm42_result result, const llm42_error *error) {
    if (result >= 0) return;
    fprintf(stderr, "06_planner: %s\n", error->text);
    exit(1);
}

static void on_event(void *user, const llm42_event *e) {
    tally *t = user;
    const llm42_request *r = e->info;
    t->end = e->time;
    if (!r) return;  // a pass
    if (r->deterministic) check(llm42_metrics_event(&t->metrics, e), &(llm42_error){.text = "out of memory"});
    if (e->type != LLM42_EVENT_FINISHED) return;
    t->requests[r->deterministic]++;
    t->met[r->deterministic] += r->last_token <= target_of(r);
    uint64_t answer = (uint64_t)r->id;
    for (int i = 0; i < r->committed; i++) answer = llm42_hash(answer ^ (uint64_t)r->tokens[i]);
    t->answers[r->deterministic] += answer;  // in whatever order they end
}

// Request i draws a number from 0 to 1 for each of its features, by a hash.
static double draw(int i, int feature) { return llm42_uniform(llm42_hash((uint64_t)(3 * i + feature))); }

static llm42_stats serve(const llm42_engine_desc *how) {
    static const int32_t prompt[PROMPT];
    static const int tokens[] = {32, 64, 128, 512};
    llm42_engine *engine = NULL;
    llm42_error error;
    double arrival = 0;
    check(llm42_engine_open(&engine, how, &error), &error);
    for (int i = 0; i < REQUESTS; i++) {
        arrival -= llm42_log64(1 - draw(i, 0)) / PER_SECOND;  // exponential gaps
        llm42_request_desc ask = {.prompt = prompt, .prompt_count = PROMPT, .arrival = arrival, .ignore_stop = true};
        ask.max_new_tokens = tokens[(int)(4 * draw(i, 1))];
        ask.deterministic = draw(i, 2) < 0.5;
        check(llm42_engine_submit(engine, &ask, NULL, &error), &error);
    }
    check(llm42_engine_run(engine, &error), &error);
    llm42_stats stats = llm42_engine_stats(engine);
    llm42_engine_close(engine);
    return stats;
}

int main(void) {
    llm42_model *model = NULL;
    llm42_calibration *calibration = NULL;
    llm42_error error;
    check(llm42_model_load(&model, &(llm42_model_desc){.path = "shape:llama-3.1-8b"}, &error), &error);
    check(llm42_calibration_load(&calibration, "sweep/calibration/h100-pcie-paper.tsv", &error), &error);
    const llm42_sim_desc sim = {.calibration = calibration};

    uint64_t answers[2] = {0};
    bool same[2] = {true, true};
    printf("%d requests, %g a second, half of them deterministic (simulated)\n", REQUESTS, PER_SECOND);
    printf("deadline: arrival + %g ms for each token asked for\n\n", 1000 * target_seconds);
    printf("                     replay     latency, deterministic     deadlines met, %%\n");
    printf("planner    tokens/s  passes        P50 s      P99 s   deterministic  ordinary\n");
    for (int i = 0; planner_names[i]; i++) {
        tally t = {0};
        llm42_engine_desc how = {.model = model, .backend = llm42_backend_sim(), .backend_desc = &sim};
        how.planner = planner_find(planner_names[i]);
        how.max_running = RUNNING;
        how.kv.pages = (int)(calibration->kv_tokens / 16);
        how.on_event = on_event;
        how.event_user = &t;
        llm42_stats s = serve(&how);
        printf("%-10s %8.0f %7d %12.2f %10.2f %15.1f %9.1f\n", planner_names[i], (double)s.returned_tokens / t.end,
               (int)s.replay_passes, llm42_metrics_percentile(&t.metrics.latency, 50),
               llm42_metrics_percentile(&t.metrics.latency, 99), 100.0 * t.met[1] / t.requests[1],
               100.0 * t.met[0] / t.requests[0]);
        for (int d = 0; d < 2; d++) {
            same[d] = same[d] && (i == 0 || t.answers[d] == answers[d]);
            answers[d] = t.answers[d];
        }
        llm42_metrics_free(&t.metrics);
    }
    printf("\nanswers to deterministic requests: %s\n", same[1] ? "the same under every planner" : "THEY DIFFER");
    printf("control, answers to ordinary ones: %s\n",
           same[0] ? "THE SAME, so the line above shows nothing" : "they differ");
    llm42_calibration_free(calibration);
    llm42_model_free(model);
    return same[0] || !same[1];
}
