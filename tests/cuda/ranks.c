// ranks.c: part ranks. Tensor parallelism: what a row's bits depend on, operator by operator, and that the canonical
// result of requests is one on any number of ranks. Ranks share a device here (virtual ranks), and where there are two
// devices or more they have one each too.
#include "rig.h"
#include "../make_model.h"

enum { TEXT = 150, NUMBERS = 4 };  // NUMBERS: of ranks and leaves: 1, 2, 4, 8

// In the second model a KV head is repeated in several ranks; in the third one leaves are padded.
static const test_shape shapes[] = {
    {"llama", 250, 64, 2, 8, 8, 16, 128, 0, true, "BF16", "\"rope_theta\": 10000.0, ", 256},
    {"qwen2", 333, 64, 2, 8, 2, 32, 96, 0, false, "BF16", "\"use_sliding_window\": false, ", 256},
    {"mistral", 250, 96, 2, 8, 4, 16, 72, 0, true, "BF16", "\"sliding_window\": 48, ", 256},
    {"qwen3_moe", 250, 64, 2, 8, 4, 32, 72, 4, false, "BF16",
     "\"moe_intermediate_size\": 72, \"num_experts\": 4, \"num_experts_per_tok\": 2, \"norm_topk_prob\": true, ", 256},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

// Sums of few terms mostly round to the same bf16 in any order, so controls take this model, where k is 512 and 1,408.
static const char wide[] = "synthetic:base";
static bool is_wide(const llm42_model *model) { return strstr(model->name, "synthetic:base") != NULL; }

// What a text gives: the logits' bits, and each operator's outputs.
typedef struct bits {
    uint64_t logits, tokens, again;  // again: the tokens of the second run
    film operators;
} bits;

static int32_t token_at(const llm42_model *model, int i) { return (i * i * 7 + 31 * i + 3) % model->config.vocab; }

typedef struct setting {
    llm42_schedule schedule;
    int ranks, leaves, devices;
    int each;  // rows of a pass in the second run
} setting;

// Feeds the text in passes of `each` rows. With a probe kernels are launched one by one, else as CUDA graphs.
static bool feed(rig *g, llm42_schedule schedule, int each, bool probe, bits *b, uint64_t *tokens) {
    const size_t vocab = (size_t)g->vocab;
    float *logits = probe ? new_floats(TEXT * vocab) : NULL;
    bool good = true;
    for (int from = 0; good && from < TEXT; from += each) {
        llm42_row row[TEXT];
        llm42_output out[TEXT];
        const int rows = TEXT - from < each ? TEXT - from : each;
        for (int i = 0; i < rows; i++)
            row[i] = (llm42_row){0, from + i, token_at(g->model, from + i), LLM42_ROW_SAMPLE};
        llm42_pass pass = rig_pass(g, schedule, row, rows, out, logits);
        if (probe) pass.probe = film_take, pass.probe_user = &b->operators;
        good = rig_run(g, &pass);
        if (probe) b->logits = hash_bytes(b->logits, logits, sizeof *logits * (size_t)rows * vocab);
        for (int i = 0; i < rows; i++) *tokens = hash_bytes(*tokens, &out[i], sizeof out[i]);
    }
    free(logits);
    return good;
}

// Runs the text in one pass with a probe, and then in passes of s.each rows.
static bool run_text(const llm42_model *model, setting s, bits *b) {
    rig g = {0};
    llm42_cuda_desc own = cuda_desc;
    own.devices = is_cuda() ? s.devices : 0;
    film_free(&b->operators);
    *b = (bits){0};
    const llm42_backend_desc desc = TEST_LIST(.model = model, .backend_desc = &own, .max_rows = TEXT,
                                              .max_context = TEXT, .tensor_parallel = s.ranks,
                                              .numerics.leaves = s.leaves,
                                              .schedules = s.schedule == LLM42_SCHEDULE_FAST
                                                               ? 1u << LLM42_SCHEDULE_FAST
                                                               : 1u << LLM42_SCHEDULE_FAST | 1u << s.schedule,
                                              .numerics.logits_fp32 = true);
    const bool good = rig_open(&g, tested, desc) && feed(&g, s.schedule, TEXT, true, b, &b->tokens) &&
                      feed(&g, s.schedule, s.each, false, b, &b->again);
    rig_close(&g);
    return good;
}

static bool equal(const bits *a, const bits *b) { return a->logits == b->logits && a->tokens == b->tokens; }

// The first value that differs.
static const char *first_difference(const bits *a, const bits *b) {
    static char text[240];
    return film_first_text(&a->operators, &b->operators, LLM42_DTYPE_BF16, text);
}

static int devices_here(void) {
    llm42_cuda_desc own = cuda_desc;
    llm42_model *model = NULL;
    rig g = {0};
    if (!is_cuda() || llm42_model_load(&model, &(llm42_model_desc){.path = "synthetic:tiny"}, &rig_error)) return 1;
    own.devices = 2;
    const llm42_backend_desc desc = {
        .model = model, .backend_desc = &own, .max_rows = 4, .max_context = 16, .tensor_parallel = 2};
    const bool two = rig_try(&g, tested, desc) == LLM42_OK;
    CHECK_MSG(two || strstr(rig_error.text, "this machine has devices 0 to 0") ||
                  strstr(rig_error.text, "cannot read the memory"),
              "%s", rig_error.text);
    rig_close(&g);
    llm42_model_free(model);
    printf("  %s\n", two ? "two devices" : "one device: all ranks share it");
    return 1 + two;
}

// INVARIANT: the larger of ranks and leaves decides. Every operator is compared.
static void check_invariant(const llm42_model *model, int fewest, int devices) {
    static bits of[NUMBERS], got;
    static const int each[] = {1, 17, TEXT};
    for (int i = 0; i < NUMBERS; i++) {
        if (!run_text(model, (setting){LLM42_SCHEDULE_INVARIANT, 1, 1 << i, 1, TEXT}, &of[i])) return;
        for (int j = 0; j < i && is_wide(model); j++)
            CHECK_MSG(!equal(&of[i], &of[j]), "%s: %d and %d leaves: the same bits", model->name, 1 << i, 1 << j);
    }
    for (int d = fewest; d <= devices; d++)
        for (int r = d - 1; r < NUMBERS; r++)
            for (int l = 0; l < NUMBERS; l++) {
                const int parts = l > r ? l : r;
                const setting s = {LLM42_SCHEDULE_INVARIANT, 1 << r, 1 << l, d, each[(r + l) % 3]};
                if (!run_text(model, s, &got)) return;
                CHECK_MSG(equal(&got, &of[parts]),
                          "%s: %d ranks on %d devices, %d leaves: not the bits of %d leaves: %s", model->name, s.ranks,
                          d, s.leaves, 1 << parts, first_difference(&got, &of[parts]));
                CHECK_MSG(got.again == of[parts].tokens,
                          "%s: %d ranks on %d devices, %d leaves, graphs, %d rows a pass: not the bits of %d leaves",
                          model->name, s.ranks, d, s.leaves, s.each, 1 << parts);
            }
}

// FIXED: the ranks and M. FAST: the ranks and the pass.
static void check_others(const llm42_model *model, llm42_schedule schedule, int devices) {
    static bits of[NUMBERS], got;
    const char *how = llm42_schedule_name(schedule);
    for (int r = 0; r < NUMBERS; r++) {
        setting s = {schedule, 1 << r, 1, 1, schedule == LLM42_SCHEDULE_FIXED ? 7 : TEXT};
        if (!run_text(model, s, &of[r])) return;
        for (int j = 0; j < r && is_wide(model); j++)
            CHECK_MSG(!equal(&of[r], &of[j]), "%s, %s: %d and %d ranks: the same bits", model->name, how, 1 << r,
                      1 << j);
        CHECK_MSG(of[r].again == of[r].tokens, "%s, %s, %d ranks: graphs, %d rows a pass give other bits", model->name,
                  how, s.ranks, s.each);
        if (devices < 2 || !r || schedule == LLM42_SCHEDULE_FAST) continue;  // FAST chooses algorithms by time
        s.devices = 2;
        if (!run_text(model, s, &got)) return;
        CHECK_MSG(equal(&got, &of[r]) && got.again == of[r].tokens, "%s, %s, %d ranks: other bits on two devices: %s",
                  model->name, how, s.ranks, first_difference(&got, &of[r]));
    }
}

// Requests ---------------------------------------------------------------------------------------------------------
enum { REQUESTS = 12, NEW = 24 };
typedef struct answer {
    llm42_output out[NEW];
} answer;

static bool serve(const llm42_model *model, llm42_engine_desc desc, int devices, bool one_by_one, answer *to) {
    static int32_t prompt[REQUESTS][80];
    llm42_engine *engine = NULL;
    llm42_cuda_desc own = cuda_desc;
    own.devices = devices;
    desc.model = model, desc.backend = tested, desc.backend_desc = &own, desc.max_context = 160, desc.log = note_line;
    if (!desc.max_running) desc.max_running = 8;
    desc.token_budget = desc.max_context, desc.policy.window = 8, desc.policy.group = 4;
    memset(to, 0, REQUESTS * sizeof *to);
    bool good = CHECK_MSG(!llm42_engine_open(&engine, &desc, &rig_error), "%s", rig_error.text);
    for (int i = 0; good && i < REQUESTS; i++) {
        llm42_request_desc r = TEST_LIST(.prompt = prompt[i], .prompt_count = 1 + 13 * i % 80, .max_new_tokens = NEW,
                                         .ignore_stop = true, .deterministic = true);
        if (i % 2) r.sampling = (llm42_sampling){.temperature = 1, .top_p = 0.9f, .seed = 5 + (uint64_t)i};
        for (int t = 0; t < r.prompt_count; t++) prompt[i][t] = token_at(model, t + 3 * i);
        good = CHECK_MSG(!llm42_engine_submit(engine, &r, NULL, &rig_error), "%s", rig_error.text);
        if (good && one_by_one) good = CHECK_MSG(!llm42_engine_run(engine, &rig_error), "%s", rig_error.text);
    }
    if (good) good = CHECK_MSG(!llm42_engine_run(engine, &rig_error), "%s", rig_error.text);
    for (int i = 0; good && i < REQUESTS; i++) {
        const llm42_request *r = llm42_engine_request(engine, i + 1);
        for (int t = 0; t < r->committed; t++) to[i].out[t] = (llm42_output){r->tokens[t], r->logprobs[t]};
    }
    llm42_engine_close(engine);
    return good;
}

static int differing(const answer *a, const answer *b) {
    int count = 0;
    for (int i = 0; i < REQUESTS; i++) count += memcmp(&a[i], &b[i], sizeof *a) != 0;
    return count;
}

static void check_requests(const llm42_model *model, int devices) {
    static answer want[REQUESTS], got[REQUESTS], other[REQUESTS];
    static const llm42_preset presets[] = {LLM42_PRESET_DVR, LLM42_PRESET_BEST, LLM42_PRESET_INVARIANT};
    const llm42_engine_desc alone = {.preset = LLM42_PRESET_INVARIANT, .numerics.leaves = 8};
    if (!serve(model, alone, 1, true, want)) return;
    for (int p = 0; p < 3; p++)
        for (int ranks = 2; ranks <= 8; ranks *= 2) {
            const llm42_engine_desc desc = TEST_LIST(.preset = presets[p], .numerics.leaves = 8,
                                                     .tensor_parallel = ranks, .max_running = 3 + 2 * p + ranks,
                                                     .kv.page_size = 4 << p);
            const int on = ranks > 2 && (p + ranks / 4) % 2 ? 1 : devices;
            if (!serve(model, desc, on, false, got)) return;
            CHECK_MSG(!differing(want, got), "%s, preset %d, %d ranks on %d devices: %d of %d requests differ",
                      model->name, presets[p], ranks, on, differing(want, got), REQUESTS);
        }
    const llm42_engine_desc one_leaf = {.preset = LLM42_PRESET_DVR};
    llm42_engine_desc two_ranks = one_leaf;
    two_ranks.tensor_parallel = 2;
    if (!serve(model, one_leaf, 1, true, other) || !serve(model, two_ranks, devices, true, got)) return;
    printf("  control: %s: %d of %d requests differ between 1 and 2 ranks without leaves\n", model->name,
           differing(other, got), REQUESTS);
    CHECK_MSG(!is_wide(model) || differing(other, got) > 0, "%s: control: 1 and 2 ranks without leaves: the same bits",
              model->name);
}

static void check_errors(const llm42_model *model) {
    static const struct {
        int ranks, devices;
        const char *why;
    } cases[] = {{8, 0, "llm42_engine_desc.tensor_parallel: 8 ranks"},
                 {4, 3, "llm42_cuda_desc.devices: 3: must divide"},
                 {1, 2, "llm42_cuda_desc.devices: 2: must divide"},
                 {2, -1, "llm42_cuda_desc.devices: -1: must divide"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig g = {0};
        llm42_cuda_desc own = cuda_desc;
        own.devices = cases[i].devices;
        const llm42_backend_desc desc = {
            .model = model, .backend_desc = &own, .max_rows = 4, .max_context = 16, .tensor_parallel = cases[i].ranks};
        const llm42_result result = rig_try(&g, tested, desc);
        CHECK_MSG(result != LLM42_OK && strstr(rig_error.text, cases[i].why), "%s instead of %s: %s",
                  llm42_result_name(result), cases[i].why, rig_error.text);
        rig_close(&g);
    }
}

void part_ranks(void) {
    const int devices = devices_here(),
              fewest = options.devices && options.devices <= devices ? (int)options.devices : 1;
    for (int i = 0; i <= SHAPES; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/ranks_%d", test_scratch(), i);
        if (i < SHAPES) test_model_folder(path, &shapes[i]);
        llm42_model *model = load_model(i < SHAPES ? path : wide, false);
        if (!model) continue;
        check_invariant(model, fewest, devices);
        check_others(model, LLM42_SCHEDULE_FIXED, devices);
        check_others(model, LLM42_SCHEDULE_FAST, devices);
        check_requests(model, devices);
        if (!i && is_cuda()) check_errors(model);
        llm42_model_free(model);
    }
}
