// models.c: the backend against goldens. Every model folder's logits, in bf16, against those that HF transformers
// computed in fp32; a model of llama2.c against the fp32 CPU backend.
#include "rig.h"

// Of the root mean square error of all golden rows of a model, as a share of the golden logits' standard deviation; of
// one row by itself (rounding to bf16 alone gives 2.6% in one of them on the CPU); and the gap between the two largest
// golden logits from which on the largest must be the same.
static const double LOGIT_TOLERANCE = 0.02, ROW_TOLERANCE = 0.05, CLEAR_GAP = 0.25;

// The next list of numbers under a key, behind *at in a JSON text, as an stb_ds array; *at goes behind it. NULL: none.
static float *golden_list(const char **at, const char *key) {
    float *list = NULL;
    const char *p = strstr(*at, key);
    if (!p || !(p = strchr(p, '['))) return NULL;
    do {
        char *end;
        arrput(list, strtof(p + 1, &end));
        p = end + strspn(end, " \n\r\t");
    } while (*p == ',');
    *at = p;
    return list;
}

typedef struct agreement {
    double squares, worst;
    int rows, clear, wrong;
} agreement;

static double overall(const agreement *a) { return a->rows ? sqrt(a->squares / a->rows) : INFINITY; }

static void check_logits(const char *what, const float *got, const float *want, int vocab, agreement *a) {
    double e = logit_error(got, want, vocab);
    bool clear = gap_of(want, vocab) > CLEAR_GAP;
    int top = top_of(got, vocab), golden = top_of(want, vocab);
    CHECK_MSG(e <= ROW_TOLERANCE, "%s: logits are off by %.2f%% of their deviation, more than %.0f%%", what, 100 * e,
              100 * ROW_TOLERANCE);
    CHECK_MSG(!clear || top == golden, "%s: token %d leads, expected %d by a gap of %g", what, top, golden,
              gap_of(want, vocab));
    a->worst = fmax(a->worst, e);
    a->squares += e * e;
    a->rows++;
    a->clear += clear;
    a->wrong += top != golden;
}

static void agreement_end(const char *path, const agreement *a) {
    CHECK_MSG(overall(a) <= LOGIT_TOLERANCE,
              "%s: logits are off by %.2f%% of their deviation in the mean square, more than %.0f%%", path,
              100 * overall(a), 100 * LOGIT_TOLERANCE);
    printf("  %-40s logits off by %.2f%% of their deviation (worst row %.2f%%), %d of %d rows clear, top token differs "
           "in %d\n",
           path, 100 * overall(a), 100 * a->worst, a->clear, a->rows, a->wrong);
    note(path, "logit_error_share", overall(a));
    note(path, "logit_error_worst_row", a->worst);
}

// The golden file's prompts: the logits after the last and the middle token, and after each token of the greedy text,
// whose next token must lead where the model is sure.
static void check_prompt(rig *g, const char *what, const char **at, agreement *a) {
    float *ids = golden_list(at, "\"ids\""), *greedy = NULL, *last, *mid;
    const char *back = *at;
    last = golden_list(at, "\"logits_last\"");
    const char *from = back;
    mid = golden_list(&from, "\"logits_mid\"");
    if (from > *at) *at = from;
    from = back;
    greedy = golden_list(&from, "\"greedy\"");
    if (from > *at) *at = from;
    int count = (int)arrlen(ids), more = (int)arrlen(greedy), vocab = g->vocab;
    int32_t all[512];
    if (!CHECK(ids && last && mid && greedy && count + more <= 512 && arrlen(last) == vocab && arrlen(mid) == vocab))
        return;
    for (int i = 0; i < count + more; i++) all[i] = (int32_t)(i < count ? ids[i] : greedy[i - count]);
    static const llm42_schedule schedules[] = {LLM42_SCHEDULE_FAST, LLM42_SCHEDULE_FIXED, LLM42_SCHEDULE_INVARIANT};
    float *logits = new_floats((size_t)(count + more) * (size_t)vocab);
    for (int s = 0; s < 3; s++) {
        char name[640];
        snprintf(name, sizeof name, "%s, %d tokens, %s", what, count, llm42_schedule_name(schedules[s]));
        int chunk = s == 0 ? count : 64;  // FAST: the prompt at once, then token by token, as text is made
        rig_prefill(g, schedules[s], 0, all, s ? count + more : count, chunk, logits);
        for (int i = count; s == 0 && i < count + more; i++)
            rig_feed(g, schedules[s], 0, all, i, 1, NULL, logits + (size_t)i * (size_t)vocab);
        check_logits(name, logits + (size_t)(count - 1) * (size_t)vocab, last, vocab, a);
        check_logits(name, logits + (size_t)(count / 2) * (size_t)vocab, mid, vocab, a);
        for (int i = count; i < count + more; i++) {
            const float *row = logits + (size_t)(i - 1) * (size_t)vocab;
            double lead = row[top_of(row, vocab)] - row[all[i]];
            CHECK_MSG(lead <= CLEAR_GAP, "%s: golden token %d of the text is %g behind", name, i - count, lead);
        }
    }
    free(logits);
    arrfree(ids);
    arrfree(last);
    arrfree(mid);
    arrfree(greedy);
}

static void check_golden(const char *path) {
    llm42_model *model = load_model(path, false);
    char *text = test_read(test_path(path, "golden.json"), NULL);
    agreement a = {0};
    rig g = {0};
    if (!model || !CHECK_MSG(text, "%s: no golden.json", path)) return;
    if (rig_open(&g, tested,
                 (llm42_backend_desc){.model = model, .max_rows = 256, .fixed_rows = 64, .max_context = 512})) {
        for (const char *at = text; strstr(at, "\"ids\"");) check_prompt(&g, path, &at, &a);
        agreement_end(path, &a);
    }
    rig_close(&g);
    llm42_model_free(model);
    free(text);
}

// A model of llama2.c has fp32 weights and head_dim 8. Along the story that the CPU backend tells in fp32, the tested
// backend's logits must agree with those in fp32.
static void check_story(const char *folder) {
    enum { TOKENS = 201 };
    const int32_t prompt[] = {1, 403, 407, 261, 378};  // BOS, Once upon a time
    const char *path = test_scratch();
    char command[1200];
    snprintf(command, sizeof command, "python3 examples/python/llama2c.py '%.1000s/stories260K.bin' %s", folder, path);
    if (system(command)) {
        SKIP("examples/python/llama2c.py, which needs Python, did not convert stories260K");
        return;
    }
    llm42_model *model = load_model(path, false);
    if (!model) return;
    int vocab = model->config.vocab, count = 5;
    float *want = new_floats((size_t)TOKENS * (size_t)vocab), *got = new_floats((size_t)TOKENS * (size_t)vocab);
    int32_t ids[TOKENS + 1];
    memcpy(ids, prompt, sizeof prompt);
    rig cpu = {0}, g = {0};
    llm42_backend_desc desc = {.model = model, .max_rows = 256, .fixed_rows = 64, .max_context = 256};
    bool ok = rig_open(&g, tested, desc);
    desc.numerics.compute = LLM42_DTYPE_FP32;
    desc.numerics.logits_fp32 = true;
    ok = rig_open(&cpu, llm42_backend_cpu(), desc) && ok;
    ok = ok && rig_prefill(&cpu, LLM42_SCHEDULE_FAST, 0, ids, count - 1, 64, want);
    for (; ok && count <= TOKENS; count++) {
        ok = rig_feed(&cpu, LLM42_SCHEDULE_FAST, 0, ids, count - 1, 1, NULL,
                      want + (size_t)(count - 1) * (size_t)vocab);
        ids[count] = top_of(want + (size_t)(count - 1) * (size_t)vocab, vocab);
    }
    ok = ok && rig_prefill(&g, LLM42_SCHEDULE_INVARIANT, 0, ids, TOKENS, 64, got);
    agreement a = {0};
    for (int i = 4; ok && i < TOKENS; i++)
        check_logits(path, got + (size_t)i * (size_t)vocab, want + (size_t)i * (size_t)vocab, vocab, &a);
    agreement_end("stories260K", &a);
    rig_close(&cpu);
    rig_close(&g);
    TEST_FREE(want, got);
    llm42_model_free(model);
}

// Random weights that the device makes itself are those that the loader makes.
static void check_recipe(void) {
    const char *path = "synthetic:base,margin=2";
    int32_t *ids = random_ids(64, 4096, 3);
    float *logits[2] = {new_floats(64 * 4096), new_floats(64 * 4096)};
    for (int i = 0; i < 2; i++) {
        llm42_model *model = load_model(path, i == 1);
        rig g = {0};
        if (model && rig_open(&g, tested, (llm42_backend_desc){.model = model, .max_rows = 64, .max_context = 64}))
            rig_feed(&g, LLM42_SCHEDULE_INVARIANT, 0, ids, 0, 64, NULL, logits[i]);
        rig_close(&g);
        llm42_model_free(model);
    }
    CHECK_MSG(!memcmp(logits[0], logits[1], sizeof(float) * 64 * 4096),
              "%s: weights made on the device are not the loader's", path);
    TEST_FREE(logits[0], logits[1], ids);
}

void part_models(void) {
    char folder[560], path[900];
    if (is_cuda()) check_recipe();
    each_arch(check_golden);
    snprintf(folder, sizeof folder, "%.500s/models", options.shared);
    if (!test_exists(folder)) {
        SKIP("no models in the folder of --shared");
        return;
    }
    static const char *const single[] = {"tiny42", "base42"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, single[i]);
        if (test_exists(path)) check_golden(path);
    }
    snprintf(path, sizeof path, "%s/stories260K", folder);
    if (test_exists(path)) check_story(path);
}
