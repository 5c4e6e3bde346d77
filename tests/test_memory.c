// Memory that runs short. Every allocation of the library comes through LLM42_MALLOC and LLM42_REALLOC. The n-th one
// fails, for every n until the call succeeds: each failure must be LLM42_MEMORY in one line, and leave nothing behind.
#define TEST_OWN_MALLOC
#include "test.h"

static int64_t taken, live, fail_at = -1;  // allocations asked for; blocks not yet freed; the one that fails, -1: none

void *test_lib_realloc(void *old, size_t size) {
    if (taken++ == fail_at) return NULL;
    void *p = realloc(old, size);
    live += p && !old;
    return p;
}

void *test_lib_malloc(size_t size) { return test_lib_realloc(NULL, size); }

void test_lib_free(void *p) {
    live -= p != NULL;
    free(p);
}

#define LLM42_CALIBRATION_IMPLEMENTATION
#include "examples/util/llm42_synthetic.h"
#include "examples/util/llm42_calibration.h"
#define LLM42_METRICS_IMPLEMENTATION
#include "examples/util/llm42_metrics.h"
#define LLM42_TRACE_IMPLEMENTATION
#include "examples/util/llm42_trace.h"
#define LLM42_TRANSCRIPT_IMPLEMENTATION
#include "examples/util/llm42_transcript.h"

#include "make_model.h"

static llm42_error error;
static llm42_model *model, *shape;
static const char calibration_path[] = "sweep/calibration/cpu-tiny42.tsv";
static llm42_calibration *calibration;

// Calls `tried` with the first allocation failing, then the second, and so on until it succeeds; `undo` takes back what
// the success has made. Both leave as many blocks as there were. Returns how many failures there were.
typedef llm42_result tried_fn(void);
static int fail_each(const char *what, tried_fn *tried, void (*undo)(void)) {
    int64_t before = live;
    for (int n = 0; n < 100000; n++) {
        taken = 0, fail_at = n;
        error = (llm42_error){0};
        llm42_result result = tried();
        fail_at = -1;
        if (result == LLM42_OK) {
            if (undo) undo();
            CHECK_MSG(live == before, "%s: %d blocks are left", what, (int)(live - before));
            CHECK_MSG(n > 0, "%s: nothing was allocated", what);
            return n;
        }
        if (!CHECK_MSG(result == LLM42_MEMORY && strstr(error.text, "out of memory") && !strchr(error.text, '\n'),
                       "%s: allocation %d: %s: %s", what, n, llm42_result_name(result), error.text))
            return n;
        if (!CHECK_MSG(live == before, "%s: allocation %d: %d blocks are left", what, n, (int)(live - before)))
            return n;
    }
    CHECK_MSG(false, "%s: never succeeds", what);
    return 0;
}

static llm42_model *loaded;
static const char *path;
static llm42_result load(void) { return llm42_model_load(&loaded, &(llm42_model_desc){.path = path}, &error); }
static void unload(void) { llm42_model_free(loaded); }

TEST(models) {
    static const char *const names[] = {"single", "shards", "fp16", "mixture"};
    static const int of[] = {0, 1, 2, 5};  // of test_shapes
    for (int i = 0; i < 4; i++) {
        path = test_file(names[i]);
        (i == 1 ? test_shards : test_model_folder)(path, &test_shapes[of[i]]);
        printf("  %-12s %3d allocations\n", names[i], fail_each(names[i], load, unload));
    }
    path = "synthetic:tiny";
    printf("  %-12s %3d allocations\n", "synthetic", fail_each(path, load, unload));
}

static llm42_calibration *read_calibration;
static llm42_result load_calibration(void) {
    return llm42_calibration_load(&read_calibration, calibration_path, &error);
}
static void free_calibration(void) { llm42_calibration_free(read_calibration); }
TEST(calibrations) {
    printf("  %-12s %3d allocations\n", "calibration", fail_each("calibration", load_calibration, free_calibration));
}

static llm42_engine *engine;
static llm42_engine_desc desc;
static llm42_result open_engine(void) { return llm42_engine_open(&engine, &desc, &error); }
static void close_engine(void) { llm42_engine_close(engine); }

TEST(engines) {
    const llm42_sim_desc sim = {.calibration = calibration};
    desc = (llm42_engine_desc){
        .model = model, .backend_desc = TEST_THREADS(2), .max_context = 64, .kv.prefix_cache = true};
    printf("  %-12s %3d allocations\n", "cpu", fail_each("cpu engine", open_engine, close_engine));
    desc = (llm42_engine_desc){.model = shape, .backend = llm42_backend_sim(), .backend_desc = &sim, .max_context = 64};
    printf("  %-12s %3d allocations\n", "sim", fail_each("sim engine", open_engine, close_engine));
}

// A request that finds no memory is refused, and those that are there go on.
static int64_t id;
static llm42_result submit(void) {
    static const int32_t prompt[] = {1, 2, 3};
    return llm42_engine_submit(engine, &(llm42_request_desc){.prompt = prompt, .prompt_count = 3, .max_new_tokens = 4},
                               &id, &error);
}
static void take_back(void) {
    CHECK_INT(llm42_engine_cancel(engine, id, &error), LLM42_OK);
    CHECK_INT(llm42_engine_release(engine, id, &error), LLM42_OK);
}

TEST(requests) {
    desc = (llm42_engine_desc){.model = model, .backend_desc = TEST_THREADS(1), .max_context = 64, .max_running = 4};
    CHECK_INT(open_engine(), LLM42_OK);
    for (int i = 0; i < 70; i++) {  // the table of requests grows on the way
        taken = 0;
        int64_t first = id;
        for (fail_at = 0; submit() != LLM42_OK; fail_at++) {
            CHECK_INT(error.result, LLM42_MEMORY);
            CHECK_INT(id, 0);
            taken = 0;
        }
        fail_at = -1;
        CHECK(first <= id);
    }
    CHECK_INT(llm42_engine_run(engine, &error), LLM42_OK);
    CHECK_INT(llm42_engine_stats(engine).finished, 70);
    for (int i = 1; i <= 70; i++) CHECK_INT(llm42_engine_request(engine, i)->committed, 4);
    fail_each("request", submit, take_back);
    close_engine();
}

static llm42_metrics metrics;
static llm42_result hear(void) {
    llm42_request r = {.first_token = -1, .committed = 1, .verifications = 1};
    llm42_event event = {.type = LLM42_EVENT_COMMITTED, .info = &r, .n = 1, .time = 1};
    for (int i = 0; i < 40; i++) {
        llm42_result result = llm42_metrics_event(&metrics, &event);
        event.type = event.type == LLM42_EVENT_COMMITTED ? LLM42_EVENT_FINISHED : LLM42_EVENT_COMMITTED;
        r.first_token = i % 3 - 1;
        if (result == LLM42_OK) continue;
        llm42_metrics_free(&metrics);
        return llm42_fail(&error, result, "out of memory");
    }
    return LLM42_OK;
}
static void free_metrics(void) { llm42_metrics_free(&metrics); }

static llm42_trace *trace;
static llm42_result open_trace(void) { return llm42_trace_open(&trace, test_file("trace.tsv"), &error); }
static void close_trace(void) { llm42_trace_close(trace, NULL); }

TEST(observers) {
    printf("  %-12s %3d allocations\n", "metrics", fail_each("metrics", hear, free_metrics));
    printf("  %-12s %3d allocations\n", "trace", fail_each("trace", open_trace, close_trace));
}

// The control: an allocation that fails and is not noticed would end in a crash, and one that is not freed is counted.
TEST(the_count_counts) {
    void *p = LLM42_MALLOC(8);
    CHECK_INT(live, 1);
    LLM42_FREE(p);
    CHECK_INT(live, 0);
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    RUN(the_count_counts);
    model = test_load("synthetic:tiny"), shape = test_load("shape:tiny");
    test_need(CHECK_MSG(!llm42_calibration_load(&calibration, calibration_path, &error), "%s", error.text));
    RUN(models, calibrations, engines, requests, observers);
    llm42_calibration_free(calibration);
    llm42_model_free(model);
    llm42_model_free(shape);
    CHECK_INT(live, 0);
    return test_end("test_memory");
}
