// Tensor parallelism and leaves on the CPU: what a result depends on, and in which order the sums of o and down are
// taken. There are three models: examples/tiny42 with 4 heads, a dense model with 8 heads, and a mixture with 8 heads.
// The leaves of the dense model's feed-forward width are no multiples of 16. base42 is tested too where it is present.
#define TEST_ALL
#include "test.h"
#include "examples/util/llm42_synthetic.h"
#include "make_model.h"

enum { TEXT = TEST_SLOW ? 66 : 80, PAGE = 16, PAGES = TEXT / PAGE + 1, MODELS = 3 };

static const struct {
    const char *path;
    int most;  // ranks and leaves
} sources[MODELS] = {{"examples/tiny42", 4}, {"synthetic:small", 8}, {NULL, 8}};
static llm42_model *models[MODELS];
static llm42_error error;

// >>rows ---------------------------------------------------------------------------------------------------------
// How a text is run.
typedef struct setting {
    llm42_schedule schedule;
    int ranks, leaves, each, shape, threads;  // each: rows of a pass; shape: of FIXED passes
    llm42_dtype compute;
    llm42_probe_fn *probe;
} setting;

typedef struct outputs {
    llm42_output out[TEXT];
} outputs;

static int32_t token_at(const llm42_model *model, int i) { return (i * i * 7 + 31 * i + 3) % model->config.vocab; }

static bool run(const llm42_model *model, setting s, outputs *to) {
    const llm42_backend_desc desc = TEST_LIST(.model = model,
                                              .numerics.compute = s.compute ? s.compute : LLM42_DTYPE_BF16,
                                              .backend_desc = TEST_THREADS(s.threads ? s.threads : 1),
                                              .tensor_parallel = s.ranks, .numerics.leaves = s.leaves);
    const llm42_pass pass = TEST_LIST(.schedule = s.schedule, .shape = s.schedule == LLM42_SCHEDULE_FIXED ? s.shape : 0,
                                      .out = to->out, .probe = s.probe, .probe_user = &s);
    int32_t ids[TEXT];
    memset(to, 0, sizeof *to);
    for (int i = 0; i < TEXT; i++) ids[i] = token_at(model, i);
    return test_passes(llm42_backend_cpu(), desc, pass, ids, TEXT, s.each);
}

static bool equal(const outputs *a, const outputs *b) { return !memcmp(a, b, sizeof *a); }

// >>what a result depends on ---------------------------------------------------------------------------------------
// In fp32 no rounding of outputs hides another order of sums.
static setting plain(llm42_schedule schedule, int ranks, int leaves, int each) {
    return (setting)TEST_LIST(.schedule = schedule, .ranks = ranks, .leaves = leaves, .each = each, .shape = each,
                              .threads = 1, .compute = LLM42_DTYPE_FP32);
}

// INVARIANT: on the larger of leaves and ranks.
static void check_invariant(int m, llm42_dtype compute) {
    static outputs of[4], got;  // of 1, 2, 4, 8 leaves by one rank
    const int most = sources[m].most, each[] = {1, 17, TEXT};
    for (int i = 0; 1 << i <= most; i++) {
        setting s = plain(LLM42_SCHEDULE_INVARIANT, 1, 1 << i, TEXT);
        s.compute = compute;
        run(models[m], s, &of[i]);
        for (int j = 0; j < i && compute == LLM42_DTYPE_FP32; j++)
            CHECK_MSG(!equal(&of[i], &of[j]), "%s: %d and %d leaves: the same bits", models[m]->name, 1 << i, 1 << j);
    }
    for (int r = 0; 1 << r <= most; r++)
        for (int l = 0; 1 << l <= most; l++) {
            const int parts = l > r ? l : r;
            setting s = plain(LLM42_SCHEDULE_INVARIANT, 1 << r, 1 << l, each[(r + 2 * l) % 3]);
            s.compute = compute, s.threads = 1 + (r + l) % 3;
            run(models[m], s, &got);
            CHECK_MSG(equal(&got, &of[parts]), "%s: %d ranks, %d leaves, %d rows a pass: not the bits of %d leaves",
                      models[m]->name, s.ranks, s.leaves, s.each, 1 << parts);
        }
}

// FIXED: on the ranks and M. FAST: on the ranks and the rows of a pass. Neither on leaves.
static void check_others(int m, llm42_schedule schedule) {
    static outputs of[4][2], got;
    const int most = sources[m].most, size[2] = {TEXT, 8};
    const char *name = models[m]->name, *how = llm42_schedule_name(schedule);
    for (int r = 0; 1 << r <= most; r++)
        for (int i = 0; i < 2; i++) {
            setting s = plain(schedule, 1 << r, 1, size[i]);
            run(models[m], s, &of[r][i]);
            for (int j = 0; j < r; j++)
                CHECK_MSG(!equal(&of[r][i], &of[j][i]), "%s, %s: %d and %d ranks: the same bits", name, how, 1 << r,
                          1 << j);
            s.leaves = most, s.threads = 2;
            if (schedule == LLM42_SCHEDULE_FIXED && !i) s.each = 5;
            run(models[m], s, &got);
            CHECK_MSG(equal(&got, &of[r][i]), "%s, %s, %d ranks: leaves or rows change it", name, how, s.ranks);
        }
    CHECK_MSG(!equal(&of[1][0], &of[1][1]), "%s, %s: passes of %d and %d rows: the same bits", name, how, size[0],
              size[1]);
}

TEST(results_depend_on_what_is_documented) {
    for (int m = TEST_SLOW ? 2 : 0; m < MODELS; m++) {
        check_invariant(m, LLM42_DTYPE_FP32);
        if (!TEST_SLOW) check_invariant(m, LLM42_DTYPE_BF16);
        check_others(m, LLM42_SCHEDULE_FIXED);
        check_others(m, LLM42_SCHEDULE_FAST);
    }
}

// >>order ----------------------------------------------------------------------------------------------------------
// The sum of x[i] w[i], by sixteen partial sums and their tree.
static float plain_sum(const float *x, const float *w, int n) {
    float partial[16] = {0};
    for (int i = 0; i < n; i++) partial[i % 16] = fmaf(x[i], w[i], partial[i % 16]);
    for (int half = 8; half; half /= 2)
        for (int j = 0; j < half; j++) partial[j] += partial[j + half];
    return partial[0];
}

// Leaves first .. first + count of `all` by the tree of neighbours.
static float plain_leaves(const float *x, const float *w, int k, int first, int count, int all) {
    if (count == 1) return plain_sum(x + first * (k / all), w + first * (k / all), k / all);
    return plain_leaves(x, w, k, first, count / 2, all) + plain_leaves(x, w, k, first + count / 2, count / 2, all);
}

// One output of o or down as the header's section cpu describes it.
static float plain_product(const setting *s, int shape, const float *x, const float *w, int n, int k) {
    const bool bf16 = s->compute == LLM42_DTYPE_BF16;
    if (s->schedule == LLM42_SCHEDULE_INVARIANT) {
        const int leaves = s->leaves > s->ranks ? s->leaves : s->ranks;
        const float sum = plain_leaves(x, w, k, 0, leaves, leaves);
        return bf16 ? llm42__round_bf16(sum) : sum;
    }
    float sum = 0;
    const int own = k / s->ranks, parts = llm42_cpu_splits(s->schedule, shape, n, own);
    const int step = ((own + parts - 1) / parts + 15) / 16 * 16;
    for (int r = 0; r < s->ranks; r++) {
        float rank = 0;
        for (int from = 0; from < own; from += step) {
            const float part = plain_sum(x + r * own + from, w + r * own + from, own - from < step ? own - from : step);
            rank = from ? rank + part : part;
        }
        if (bf16) rank = llm42__round_bf16(rank);
        sum = r ? sum + rank : rank;
    }
    return bf16 ? llm42__round_bf16(sum) : sum;
}

static const llm42_model *watched;
static float seen[TEXT * 4096];  // inputs of the product that comes next
static int64_t compared, wrong;

static void watch(void *user, int layer, const char *name, int rows, int width, const float *values) {
    const setting *s = user;
    if (!strcmp(name, "attention") || !strcmp(name, "gate")) {
        memcpy(seen, values, sizeof *values * (size_t)(rows * width));
        return;
    }
    if (strcmp(name, "o") && strcmp(name, "down")) return;
    const llm42_matrix *w = name[0] == 'o' ? &watched->layer[layer].o : &watched->layer[layer].down;
    float weight[4096];
    for (int i = 0; i < width; i += 61) {
        for (int j = 0; j < w->k; j++)
            weight[j] = llm42__from_bf16(((const uint16_t *)w->data)[(size_t)i * (size_t)w->k + (size_t)j]);
        for (int r = 0; r < rows; r++) {
            const float want = plain_product(s, s->schedule == LLM42_SCHEDULE_FIXED ? s->shape : rows, seen + r * w->k,
                                             weight, w->n, w->k);
            compared++;
            wrong += llm42__bits(want) != llm42__bits(values[r * width + i]);
        }
    }
}

TEST(sums_have_the_order_that_is_documented) {
    static outputs got;
    for (int m = 0; m < 2; m++)
        for (int i = 0; i < 3 * 4 * 4; i += TEST_SLOW ? 11 : 1) {
            setting s = plain((llm42_schedule)(LLM42_SCHEDULE_FAST + i % 3), 1 << i / 3 % 4, 1 << i / 12,
                              i % 2 ? 7 : 1);
            if (s.ranks > sources[m].most || s.leaves > sources[m].most) continue;
            s.shape = 32, s.compute = i % 5 ? LLM42_DTYPE_BF16 : LLM42_DTYPE_FP32, s.probe = watch;
            watched = models[m], compared = wrong = 0;
            if (!run(models[m], s, &got)) return;
            CHECK_MSG(compared > 100 && !wrong, "%s, %s, %d ranks, %d leaves: %lld of %lld sums differ",
                      models[m]->name, llm42_schedule_name(s.schedule), s.ranks, s.leaves, (long long)wrong,
                      (long long)compared);
        }
}

// >>engine ---------------------------------------------------------------------------------------------------------
enum { REQUESTS = TEST_SLOW ? 6 : 16, NEW = 40 };
#include "answers.h"

// Serves requests, every second one sampled. A desc for each run: ranks, leaves, load. all: ordinary ones count, too.
static void serve(const llm42_model *model, llm42_engine_desc desc, bool one_by_one, bool marked, answer *to) {
    desc.model = model, desc.max_context = 256;
    if (!desc.backend_desc) desc.backend_desc = TEST_THREADS(1);
    llm42_engine *engine = test_open(&desc);
    static int32_t prompt[REQUESTS][60];
    for (int i = 0; i < REQUESTS; i++) {
        llm42_request_desc r = {
            .prompt = prompt[i], .prompt_count = 1 + 7 * i % 60, .max_new_tokens = NEW, .deterministic = marked};
        r.ignore_stop = true;
        if (i % 2) r.sampling = (llm42_sampling){.temperature = 1, .top_p = 0.9f, .seed = 5 + (uint64_t)i};
        for (int t = 0; t < r.prompt_count; t++) prompt[i][t] = token_at(model, t + 3 * i);
        test_submit(engine, r);
        if (one_by_one) CHECK_INT(llm42_engine_run(engine, &error), LLM42_OK);
    }
    CHECK_INT(llm42_engine_run(engine, &error), LLM42_OK);
    for (int i = 0; i < REQUESTS; i++) to[i] = take(engine, i + 1);
    llm42_engine_close(engine);
}

static int differing(const answer *a, const answer *b) {
    int count = 0;
    for (int i = 0; i < REQUESTS; i++) count += !same(&a[i], &b[i]);
    return count;
}

static void check_engines(const llm42_model *model, int most) {
    static answer want[REQUESTS], got[REQUESTS];
    static const llm42_preset presets[] = {LLM42_PRESET_DVR, LLM42_PRESET_BEST, LLM42_PRESET_INVARIANT};
    serve(model, (llm42_engine_desc){.preset = LLM42_PRESET_INVARIANT, .numerics.leaves = most}, true, true, want);
    for (int p = 0; p < 3; p++)
        for (int ranks = 1; ranks <= most; ranks *= 2) {
            const llm42_engine_desc desc = TEST_LIST(.preset = presets[p], .numerics.leaves = most,
                                                     .tensor_parallel = ranks, .max_running = 3 + 5 * ranks,
                                                     .kv.page_size = 4 << p, .backend_desc = TEST_THREADS(1 + p % 2),
                                                     .policy.window = ranks > 2 ? 8 : 0, .kv.prefix_cache = ranks == 2);
            serve(model, desc, false, true, got);
            CHECK_MSG(!differing(want, got), "%s, preset %s, %d ranks: %d of %d requests differ", model->name,
                      p == 0   ? "dvr"
                      : p == 1 ? "best"
                               : "invariant",
                      ranks, differing(want, got), (int)REQUESTS);
        }
}

TEST(one_result_on_any_number_of_ranks) {
    for (int m = TEST_SLOW ? 2 : 0; m < MODELS; m++) check_engines(models[m], sources[m].most);
}

TEST(controls_differ) {
    static answer one[REQUESTS], two[REQUESTS];
    const llm42_engine_desc descs[] = {
        {.preset = LLM42_PRESET_DVR},
        {.preset = LLM42_PRESET_BEST},
        {.preset = LLM42_PRESET_PAPER, .numerics.leaves = 4, .policy.window = 8, .policy.group = 4},
        {.policy.mode = LLM42_MODE_NONDETERMINISTIC, .numerics.leaves = 4}};
    for (int i = 0; i < 4; i++) {
        llm42_engine_desc desc = descs[i];
        const bool marked = desc.policy.mode != LLM42_MODE_NONDETERMINISTIC;
        serve(models[0], desc, true, marked, one);
        desc.tensor_parallel = 4;
        serve(models[0], desc, true, marked, two);
        printf("  control %d: %d of %d requests differ between 1 and 4 ranks\n", i, differing(one, two), (int)REQUESTS);
        CHECK_MSG(differing(one, two) > 0, "control %d: 1 and 4 ranks give the same bits", i);
    }
}

// With the verifier FIXED leaves matter to prompts alone, and only where they run in INVARIANT passes.
TEST(fixed_depends_on_leaves_with_prefill_invariant_only) {
    static answer one[REQUESTS], four[REQUESTS];
    for (int prefill = LLM42_PREFILL_PACKED; prefill <= LLM42_PREFILL_INVARIANT; prefill++)
        for (int ranks = 1; ranks <= 4; ranks *= 4) {
            llm42_engine_desc desc = TEST_LIST(.preset = LLM42_PRESET_PAPER, .numerics.compute = LLM42_DTYPE_FP32,
                                               .policy.prefill = (llm42_prefill)prefill, .policy.window = 8,
                                               .policy.group = 4, .token_budget = 256, .tensor_parallel = ranks);
            serve(models[0], desc, true, true, one);
            desc.numerics.leaves = 4, desc.policy.group = 2, desc.policy.window = 16;
            serve(models[0], desc, false, true, four);
            const bool may = prefill == LLM42_PREFILL_INVARIANT && ranks == 1;
            CHECK_MSG((differing(one, four) > 0) == may, "prefill %d, %d ranks: %d of %d requests differ by leaves",
                      prefill, ranks, differing(one, four), (int)REQUESTS);
        }
}

TEST(base42_on_eight_ranks) {
    if (access("../shared/models/base42/config.json", R_OK)) {
        SKIP("../shared/models/base42 is not there");
        return;
    }
    llm42_model *base = test_load("../shared/models/base42");
    static outputs want, got;
    run(base, plain(LLM42_SCHEDULE_INVARIANT, 1, 8, TEXT), &want);
    for (int ranks = 2; ranks <= 8; ranks *= 2) {
        run(base, plain(LLM42_SCHEDULE_INVARIANT, ranks, 8, 7 * ranks), &got);
        CHECK_MSG(equal(&want, &got), "%d ranks: other bits", ranks);
    }
    run(base, plain(LLM42_SCHEDULE_INVARIANT, 8, 1, TEXT), &got);
    CHECK(equal(&want, &got));
    run(base, plain(LLM42_SCHEDULE_INVARIANT, 1, 1, TEXT), &got);
    CHECK(!equal(&want, &got));
    llm42_model_free(base);
}

// >>errors ---------------------------------------------------------------------------------------------------------
static void refused(const llm42_model *model, int ranks, int leaves, const char *why) {
    const llm42_engine_desc desc = {.model = model, .tensor_parallel = ranks, .numerics.leaves = leaves};
    test_refused(&desc, LLM42_INVALID, why);
}

TEST(what_does_not_divide_is_refused) {
    refused(models[0], 3, 0, "llm42_engine_desc.tensor_parallel: 3: must be 1, 2, 4 or 8");
    refused(models[0], -1, 0, "llm42_engine_desc.tensor_parallel: -1: must be 1, 2, 4 or 8");
    refused(models[0], 16, 0, "llm42_engine_desc.tensor_parallel: 16: must be 1, 2, 4 or 8");
    refused(models[0], 8, 0, "llm42_engine_desc.tensor_parallel: 8: must divide the model's 4 heads");
    refused(models[0], 0, 6, "llm42_engine_desc.numerics.leaves: 6: must be 1, 2, 4 or 8");
    refused(models[0], 0, 8, "llm42_engine_desc.numerics.leaves: 8: must divide the model's 4 heads");
    static const test_shape odd[] = {
        {"llama", 32, 24, 1, 12, 6, 8, 24, 0, true, "BF16", "\"rope_theta\": 10000.0, ", 0},
        {"llama", 32, 16, 1, 4, 2, 8, 26, 0, true, "BF16", "\"rope_theta\": 10000.0, ", 0},
    };
    static const char *const why[] = {"tensor_parallel: 4: must divide the model's 6 KV heads or be a multiple",
                                      "tensor_parallel: 4: must divide the model's 4 heads and feed-forward width 26"};
    for (int i = 0; i < 2; i++) {
        llm42_model *model = test_model(&odd[i]);
        refused(model, 4, 0, why[i]);
        llm42_model_free(model);
    }
    void *state = NULL;
    const llm42_backend_desc desc = TEST_LIST(.model = models[0], .numerics.compute = LLM42_DTYPE_BF16,
                                              .backend_desc = TEST_THREADS(1), .numerics.leaves = 5, .max_rows = 1,
                                              .max_context = 1, .pages = 1, .page_size = 1);
    CHECK_ERROR(llm42_backend_cpu()->open(&state, &desc, &error), LLM42_INVALID,
                "llm42_backend_desc.numerics.leaves: 5: must be 1, 2, 4 or 8");
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    static const test_shape mixture = TEST_LIST(
        "qwen3_moe", 64, 64, 2, 8, 4, 16, 48, 4, false, "BF16",
        "\"moe_intermediate_size\": 48, \"num_experts\": 4, \"num_experts_per_tok\": 2, \"norm_topk_prob\": true, ",
        256);
    for (int m = 0; m < MODELS; m++) models[m] = sources[m].path ? test_load(sources[m].path) : test_model(&mixture);
    RUN_ALL();
    for (int m = 0; m < MODELS; m++) llm42_model_free(models[m]);
    return test_end("test_ranks");
}
