// exchange.c: part `exchange` of test_cuda. Two ranks each compute a part of a sum. On two devices they exchange these
// parts, by mail or after a meeting, and on one device they find them in its memory: the bits must be the same. The
// numbers of rows include those at which the ways change. Every pass runs twice, with another one behind it. If an
// exchange left something behind, the next one would find it.
#include "rig.h"

enum { MOST = 200, BEHIND = 16, TIMES = 2, PASSES = 8 };

// The last is FIXED, with as many rows as fixed_rows.
static const int rows_of[PASSES] = {1, 40, 64, 65, 128, 129, MOST, 0};

typedef struct answers {
    llm42_output out[PASSES][TIMES][MOST], behind[PASSES][TIMES][BEHIND];
} answers;

static bool run_passes(rig *g, answers *to) {
    static llm42_row row[MOST], behind[BEHIND];
    bool good = true;
    memset(to, 0, sizeof *to);
    for (int p = 0; p < PASSES && good; p++) {
        if (options.quick && (p == 1 || p == 6)) continue;  // no way changes there
        const llm42_schedule schedule = rows_of[p] ? LLM42_SCHEDULE_INVARIANT : LLM42_SCHEDULE_FIXED;
        const int rows = rows_of[p] ? rows_of[p] : g->desc.fixed_rows;
        for (int i = 0; i < rows; i++)
            row[i] = (llm42_row){0, i, (i * i * 7 + 31 * i + p) % g->vocab, i % 3 ? 0 : LLM42_ROW_SAMPLE};
        for (int i = 0; i < BEHIND; i++) behind[i] = (llm42_row){1, i, (5 * i + p) % g->vocab, LLM42_ROW_SAMPLE};
        for (int t = 0; t < TIMES && good; t++) {
            const llm42_pass pass = rig_pass(g, schedule, row, rows, to->out[p][t], NULL),
                             other = rig_pass(g, LLM42_SCHEDULE_INVARIANT, behind, BEHIND, to->behind[p][t], NULL);
            good = rig_run(g, &pass) && rig_run(g, &other);
        }
    }
    return good;
}

// Why two devices cannot be tested here; NULL: they can.
static const char *absent(llm42_result result) {
    if (result == LLM42_OK) return NULL;
    if (strstr(rig_error.text, "this machine has devices 0 to 0")) return "it needs two devices";
    return strstr(rig_error.text, "cannot read the memory") ? "the devices cannot read each other's memory" : NULL;
}

// false: there are no such devices, or a failure that has been counted.
static bool answer(const llm42_model *model, int devices, int leaves, int fixed_rows, answers *to) {
    rig g = {0};
    llm42_cuda_desc own = cuda_desc;
    own.devices = devices;
    const llm42_backend_desc desc = TEST_LIST(.model = model, .backend_desc = &own, .max_rows = MOST,
                                              .fixed_rows = fixed_rows, .max_context = MOST, .max_running = 2,
                                              .tensor_parallel = 2, .numerics.leaves = leaves);
    const llm42_result result = rig_try(&g, tested, desc);
    const char *why = absent(result);
    const bool good = !why && CHECK_MSG(result == LLM42_OK, "%d devices: %s", devices, rig_error.text) &&
                      run_passes(&g, to);
    if (why) printf("  %d devices: skipped: %s\n", devices, why);
    rig_close(&g);
    return good;
}

void part_exchange(void) {
    static answers want[2], got;
    bool two = false;
    const char *path = options.model ? options.model : "synthetic:base";
    llm42_model *model = load_model(path, false);
    if (!model || !is_cuda()) {
        test_skip("it needs two CUDA devices");
        llm42_model_free(model);
        return;
    }
    for (int l = 0; l < (options.quick ? 1 : 2); l++)
        for (int devices = 1; devices <= 2; devices++) {
            answers *to = devices > 1 ? &got : &want[l];
            if (!answer(model, devices, l ? 4 : 1, l ? MOST : 64, to)) break;
            two = devices > 1;
            for (int p = 0; p < PASSES; p++)
                for (int t = 0; t < TIMES; t++)
                    CHECK_MSG(!memcmp(to->out[p][t], want[l].out[p][0], sizeof to->out[p][t]) &&
                                  !memcmp(to->behind[p][t], want[l].behind[p][0], sizeof to->behind[p][t]),
                              "%d devices, %d leaves, pass %d, time %d: other bits", devices, l ? 4 : 1, p, t);
        }
    if (!two) test_skip("it needs two CUDA devices");
    if (two && !options.quick) {
        const bool same = !memcmp(&want[0], &want[1], sizeof want[0]);
        printf("  control: 1 and 4 leaves have %s bits\n", same ? "the same" : "other");
        CHECK_MSG(options.model || !same, "control: 1 and 4 leaves have the same bits");
    }
    llm42_model_free(model);
}
