// arithmetic.c: a CPU answers with a Hopper GPU's bits. The same rows run in INVARIANT passes of the tested backend and
// of the CPU backend in the arithmetic sm90, on small models of every kind. Each value of each operator, each logit,
// token and log-probability must have the same bits. The first value that differs is named.
//
// The control: against the CPU's own arithmetic, fp32, the same comparison must find a difference.
#include "rig.h"
#include "../make_model.h"

// How a model is run. Where a model cannot be cut into so many leaves or ranks, into as many as it can.
typedef struct variant {
    const char *name;
    bool fp32;  // logits and router logits
    int leaves, ranks;
} variant;
static const variant variants[] = {{"bf16 logits", false, 1, 1},       {"fp32 logits", true, 1, 1},
                                   {"2 leaves", false, 2, 1},          {"8 leaves", true, 8, 1},
                                   {"8 leaves, 2 ranks", false, 8, 2}, {"2 ranks", false, 1, 2}};
enum { VARIANTS = sizeof variants / sizeof *variants };

// All NaN count as one value: a GPU writes another one than a CPU.
static bool same_bits(float a, float b) { return float_bits(a) == float_bits(b) || (a != a && b != b); }

// The first value of an operator that differs. False: there is none.
static bool check_shot(const char *what, const shot *want, const shot *got) {
    const size_t width = (size_t)want->width;
    size_t first = 0, values = 0, rows = 0;
    for (int r = 0; r < want->rows; r++) {
        const size_t before = values;
        for (size_t i = (size_t)r * width; i < (size_t)(r + 1) * width; i++) {
            if (same_bits(want->values[i], got->values[i])) continue;
            if (!values++) first = i;
        }
        rows += values > before;
    }
    if (!values) return false;
    const float a = got->values[first], b = want->values[first];
    CHECK_MSG(false,
              "%s: layer %d, %s, row %zu, column %zu: %.9g (0x%08x), on the CPU %.9g (0x%08x): the first of %zu of %zu "
              "values that differ, in %zu of %d rows",
              what, want->layer, want->name, first / width, first % width, (double)a, float_bits(a), (double)b,
              float_bits(b), values, (size_t)want->rows * width, rows, want->rows);
    return true;
}

// Compares two films up to the first operator that differs. Returns the number of equal ones, or -1.
static int compare_films(const char *what, const film *want, const film *got) {
    for (int i = 0; i < (int)arrlen(want->shots); i++) {
        const shot *a = &want->shots[i], *b = i < (int)arrlen(got->shots) ? &got->shots[i] : NULL;
        if (!CHECK_MSG(b && same_shape(a, b),
                       "%s: operator %d is %s [%d, %d] of layer %d, on the CPU %s [%d, %d] of layer %d", what, i,
                       b ? b->name : "missing", b ? b->rows : 0, b ? b->width : 0, b ? b->layer : 0, a->name, a->rows,
                       a->width, a->layer))
            return -1;
        if (check_shot(what, a, b)) return -1;
    }
    return (int)arrlen(want->shots);
}

// The rows of six passes, all sampled: two prompts; the rest of one beside a single row; single rows alone; windows;
// and rows of a sequence of which one sees what another one writes, with a row of another sequence between them.
// Attention copies strips of 32 keys, and position 31 ends one. Where the context is long, sequence 0 begins with LEAD
// tokens, so that its rows see two and three units of keys.
enum { MOST_ROWS = 192, SEQUENCES = 4, PASSES = 6, LEAD = 832, CONTEXT = LEAD + 320 };
static int lead_of(int context) { return context < CONTEXT ? 0 : LEAD; }
// With recurrent layers rows of a sequence stand together.
static int passes_of(const llm42_model *model) { return PASSES - (model->config.recurrent_layers > 0); }
static int make_rows(int pass, int context, const int32_t *ids, llm42_row *row) {
    const int lead = lead_of(context), half = lead + (context < 300 ? context / 2 - 4 : 160),
              most = lead + (context < 300 ? context - 4 : 310);
    const struct {
        int seq, from, count;
    } runs[PASSES][SEQUENCES] = {{{0, lead, half - lead}, {1, 0, 19}},
                                 {{0, half, most - half}, {1, 19, 1}, {2, 0, 1}},
                                 {{0, most, 1}, {1, 20, 1}, {2, 1, 1}, {3, 0, 1}},
                                 {{0, most, 2}, {1, 20, 5}, {3, 1, 3}},
                                 {{0, most + 2, 1}, {3, 4, 1}},
                                 {{1, 25, 7}, {0, most + 3, 1}, {1, 32, 1}}};
    int rows = 0;
    for (int s = 0; s < SEQUENCES; s++)
        for (int i = 0; i < runs[pass][s].count; i++) {
            const int seq = runs[pass][s].seq, position = runs[pass][s].from + i;
            assert(rows < MOST_ROWS && position < context);
            row[rows++] = (llm42_row){seq, position, ids[(101 * seq + position) % LEAD], LLM42_ROW_SAMPLE};
        }
    return rows;
}

typedef struct answer {
    film films[PASSES];
    llm42_output out[2][PASSES][MOST_ROWS];  // [1]: of the same passes again, unprobed
    float *logits[PASSES];
} answer;

static void answer_free(answer *a) {
    for (int p = 0; p < PASSES; p++) {
        film_free(&a->films[p]);
        free(a->logits[p]);
    }
    free(a);
}

static void run_passes(rig *g, int context, const int32_t *ids, answer *a) {
    static const llm42_sampling sampling[SEQUENCES] = {{0},
                                                       {.temperature = 0.9f, .top_k = 20, .top_p = 0.9f, .seed = 5},
                                                       {.temperature = 1.1f, .min_p = 0.05f, .seed = 6},
                                                       {.temperature = 1.0f, .top_p = 0.7f, .seed = 7}};
    for (int s = 0; s < SEQUENCES; s++) g->seq[s].sampling = sampling[s];
    for (int again = 0; again < 2; again++) {
        if (again) rig_shuffle(g);  // the pages hold other KV than what will be written
        if (lead_of(context)) rig_prefill(g, LLM42_SCHEDULE_INVARIANT, 0, ids, LEAD, MOST_ROWS, NULL);
        for (int p = 0; p < passes_of(g->model); p++) {
            llm42_row row[MOST_ROWS];
            const int rows = make_rows(p, context, ids, row);
            if (!again) a->logits[p] = new_floats((size_t)rows * (size_t)g->vocab);
            llm42_pass pass = rig_pass(g, LLM42_SCHEDULE_INVARIANT, row, rows, a->out[again][p],
                                       again ? NULL : a->logits[p]);
            if (!again) pass.probe = film_take, pass.probe_user = &a->films[p];
            if (!rig_run(g, &pass)) return;
        }
    }
}

// NULL: the backend has refused.
static answer *ask(const llm42_backend *backend, llm42_arithmetic arithmetic, const llm42_model *model,
                   const variant *v, int context, const int32_t *ids) {
    const rig_options asked = options;
    const llm42_cuda_desc own = cuda_desc;
    rig g = {0};
    answer *a = calloc(1, sizeof *a);
    assert(a);
    options.leaves = v->leaves, options.ranks = v->ranks;
    llm42_backend_desc desc = TEST_LIST(.model = model, .numerics.arithmetic = arithmetic,
                                        .numerics.logits_fp32 = v->fp32, .numerics.router_fp32 = v->fp32,
                                        .numerics.leaves = leaves_for(model), .tensor_parallel = ranks_for(model),
                                        .schedules = 1u << LLM42_SCHEDULE_FAST | 1u << LLM42_SCHEDULE_INVARIANT,
                                        .max_rows = MOST_ROWS, .page_size = v->fp32 ? 4 : 16, .max_context = context,
                                        .max_running = SEQUENCES);
    // Ranks share a device, unless --devices says otherwise.
    cuda_desc.devices = desc.tensor_parallel > 1 ? asked.devices ? (int)asked.devices : 1 : 0;
    const llm42_result result = rig_try(&g, backend, desc);
    if (result == LLM42_OK) run_passes(&g, context, ids, a);
    else CHECK_MSG(false, "%s: %s", model->name, rig_error.text);
    rig_close(&g);
    options = asked, cuda_desc = own;
    if (result) answer_free(a), a = NULL;
    return a;
}

// Compares logits and outputs of a pass.
static bool compare_outputs(const char *what, int pass, const answer *want, const answer *got, int vocab, int rows) {
    for (size_t i = 0; i < (size_t)rows * (size_t)vocab; i++)
        if (!same_bits(want->logits[pass][i], got->logits[pass][i]))
            return CHECK_MSG(false, "%s: logits, row %zu, token %zu: %.9g, on the CPU %.9g", what, i / (size_t)vocab,
                             i % (size_t)vocab, (double)got->logits[pass][i], (double)want->logits[pass][i]);
    for (int again = 0; again < 2; again++)
        for (int r = 0; r < rows; r++) {
            const llm42_output a = got->out[again][pass][r], b = want->out[again][pass][r];
            if (a.token != b.token || !same_bits(a.logprob, b.logprob))
                return CHECK_MSG(false, "%s%s: row %d: token %d, %.9g (0x%08x), on the CPU %d, %.9g (0x%08x)", what,
                                 again ? " without a probe" : "", r, (int)a.token, (double)a.logprob,
                                 float_bits(a.logprob), (int)b.token, (double)b.logprob, float_bits(b.logprob));
        }
    return true;
}

static void compare_answers(const char *what, const llm42_model *model, const answer *want, const answer *got,
                            int context, const int32_t *ids, int overflow) {
    static const char *const names[PASSES] = {"prompts", "a prompt and single rows", "single rows",
                                              "windows", "two single rows",          "rows of a sequence apart"};
    llm42_row row[MOST_ROWS];
    int operators = 0, rows = 0;
    for (int p = 0; p < passes_of(model); p++) {
        char name[700];
        const int count = make_rows(p, context, ids, row);
        snprintf(name, sizeof name, "%s, %s", what, names[p]);
        const int equal = compare_films(name, &want->films[p], &got->films[p]);
        if (equal < 0) return;  // what comes behind differs because of that
        if (!CHECK_MSG(equal > 0, "%s: no operator was probed", name)) return;
        if (!compare_outputs(name, p, want, got, model->config.vocab, count)) return;
        for (int r = 0; r < count; r++)  // what overflows spoils the rows that see it, and no others
            CHECK((got->out[0][p][r].token < 0) == (row[r].seq == 0 && row[r].position >= overflow));
        operators += equal, rows += count;
    }
    CHECK(true);
    printf("  %-60s %4d operators, %d rows: all bits equal\n", what, operators, rows);
}

// True if any value of the first pass differs: counts nothing as a failure.
static bool films_differ(const film *a, const film *b) {
    for (int i = 0; i < (int)arrlen(a->shots) && i < (int)arrlen(b->shots); i++)
        if (memcmp(a->shots[i].values, b->shots[i].values,
                   sizeof(float) * (size_t)a->shots[i].rows * (size_t)a->shots[i].width))
            return true;
    return false;
}

// made: the same model for the tested backend, which may make its weights itself. overflow: the position of sequence 0
// that has the last token of the vocabulary, of which a value overflows; NONE: there is none.
enum { NONE = 1 << 30 };
static void check_model(const char *path, llm42_model *model, const llm42_model *made, int overflow) {
    int32_t *ids = random_ids(LEAD, model->config.vocab - (overflow < NONE), 13);
    const int context = model->config.context < CONTEXT ? model->config.context : CONTEXT;
    if (overflow < NONE) ids[overflow] = model->config.vocab - 1;
    if (!model->embed.data) SKIP("the model's weights are on the device alone: nothing to compare with");
    const variant asked = {"as asked for", false, options.leaves, options.ranks};
    const bool one = options.quick || options.leaves > 1 || options.ranks > 1;
    for (int i = 0; i < VARIANTS && model->embed.data; i++) {
        char what[600];
        const variant *v = one ? &asked : &variants[i];
        snprintf(what, sizeof what, "%.400s, %s", path, v->name);
        answer *want = ask(llm42_backend_cpu(), LLM42_ARITHMETIC_SM90, model, v, context, ids),
               *got = ask(tested, LLM42_ARITHMETIC_SM90, made, v, context, ids);
        if (want && got) compare_answers(what, model, want, got, context, ids, overflow);
        if (want && !i) {
            answer *other = ask(llm42_backend_cpu(), LLM42_ARITHMETIC_FP32, model, v, context, ids);
            CHECK_MSG(other && films_differ(&want->films[0], &other->films[0]),
                      "%s: the control: the arithmetics fp32 and sm90 gave the same bits", path);
            if (other) answer_free(other);
        }
        if (want) answer_free(want);
        if (got) answer_free(got);
        if (one) break;
    }
    free(ids);
}

static void check_arithmetic(const char *path) {
    llm42_model *model = load_model(path, false);
    llm42_model *made = is_cuda() && !strncmp(path, "synthetic:", 10) ? load_model(path, true) : NULL;
    if (model) check_model(path, model, made ? made : model, NONE);
    llm42_model_free(model);
    llm42_model_free(made);
}

#define MIXTURE(width, experts, used, renorm)                                                               \
    "\"moe_intermediate_size\": " #width ", \"num_experts\": " #experts ", \"num_experts_per_tok\": " #used \
    ", \"norm_topk_prob\": " #renorm ", "
// Widths that are no multiples of 64 or 16, every size of head, biases, head norms, windows, mixtures, fp32 weights.
static const test_shape shapes[] = {
    {"mistral", 300, 96, 2, 12, 1, 80, 176, 0, false, "BF16", "\"sliding_window\": 700, ", 2048},
    {"mistral", 256, 96, 2, 4, 2, 64, 176, 0, false, "BF16", "\"sliding_window\": 150, ", 512},
    {"llama", 512, 200, 2, 8, 2, 128, 328, 0, true, "F32", "\"rope_theta\": 10000.0, ", 2048},
    {"qwen2", 256, 1000, 1, 8, 8, 48, 1000, 0, true, "BF16", "\"use_sliding_window\": false, ", 2048},
    {"qwen3", 256, 64, 2, 8, 4, 128, 136, 0, true, "BF16", "\"rope_parameters\": {\"rope_theta\": 1000000.0}, ", 512},
    {"qwen3", 256, 2112, 1, 2, 1, 16, 72, 0, true, "BF16", "\"rope_parameters\": {\"rope_theta\": 1000000.0}, ", 512},
    {"llama", 256, 64, 1, 2, 1, 256, 72, 0, true, "BF16", "\"rope_theta\": 10000.0, ", 2048},
    {"qwen3_moe", 256, 96, 2, 4, 2, 32, 176, 40, false, "BF16", MIXTURE(176, 40, 5, true), 512},
    {"qwen3_moe", 256, 64, 1, 4, 2, 64, 64, 4, false, "BF16", MIXTURE(64, 4, 2, false), 512},
    // A lane of k_route has more than four experts, and more ranks than one.
    {"qwen3_moe", 256, 64, 1, 4, 2, 32, 64, 130, false, "BF16", MIXTURE(64, 130, 34, true), 96},
};

// Puts a matrix in bf16 (or fp32, where a file has it misaligned) into e4m3, as a checkpoint would have it.
static void quantise(llm42_matrix *m, llm42_scaling scaling, float input_scale, void ***kept) {
    const bool block = scaling == LLM42_SCALING_BLOCK;
    const size_t n = (size_t)m->n, k = (size_t)m->k, high = block ? 128 : 1, wide = block ? 128 : k,
                 across = (k + wide - 1) / wide, scales = (n + high - 1) / high * across;
    uint8_t *byte = malloc(n * k);
    float *scale = calloc(scales, sizeof *scale);
    assert(byte && scale && m->data);
    for (int turn = 0; turn < 2; turn++)
        for (size_t i = 0; i < n * k; i++) {
            const float w = m->type == LLM42_DTYPE_BF16 ? llm42__from_bf16(((const uint16_t *)m->data)[i])
                                                        : ((const float *)m->data)[i];
            float *s = &scale[i / k / high * across + i % k / wide];
            if (turn) byte[i] = llm42__to_e4m3(w / *s);
            else if (llm42__e4m3_scale(fabsf(w)) > *s) *s = llm42__e4m3_scale(fabsf(w));
        }
    arrput(*kept, byte), arrput(*kept, (void *)scale);
    *m = (llm42_matrix){byte, LLM42_DTYPE_E4M3, m->n, m->k, {0}, scaling, scale, input_scale};
}

// FP8 models: widths that are and are not multiples of 128, parts of KV heads that begin within a block, biases, layers
// in bf16, mixtures, hybrids. mixed: o (and a hybrid's qkv and z) of the first layer, down and q, k, v of the last one.
enum { BLOCK = LLM42_SCALING_BLOCK, CHANNEL = LLM42_SCALING_CHANNEL };
#define THETA "\"rope_theta\": 10000.0, "
#define EXPERTS MIXTURE(256, 6, 2, true)
#define RECURRENT(keys, values, size)                                                                        \
    THETA "\"partial_rotary_factor\": 0.5, \"full_attention_interval\": 2, \"linear_num_key_heads\": " #keys \
          ", \"linear_num_value_heads\": " #values ", \"linear_key_head_dim\": " #size                       \
          ", \"linear_value_head_dim\": " #size ", \"linear_conv_kernel_dim\": 4, "
static const struct {
    int scaling;
    float input_scale;
    bool mixed;
    test_shape shape;
} eights[] = {
    {BLOCK, 0, false, {"llama", 256, 200, 2, 8, 4, 32, 256, 0, true, "BF16", THETA, 512}},
    {CHANNEL, 0.05f, true, {"qwen2", 256, 264, 2, 8, 4, 32, 256, 0, false, "BF16", THETA, 512}},
    {CHANNEL, 0.05f, false, {"qwen3_moe", 256, 160, 1, 8, 4, 32, 256, 6, false, "BF16", EXPERTS, 512}},
    {BLOCK, 0, true, {"qwen3_moe", 256, 160, 2, 8, 4, 32, 256, 6, false, "BF16", EXPERTS, 512}},
    {BLOCK, 0, false, {"qwen3_5_text", 256, 160, 2, 2, 2, 128, 256, 0, true, "BF16", RECURRENT(2, 2, 128), 512}},
    {CHANNEL, 0.05f, true, {"qwen3_5_text", 256, 96, 4, 6, 3, 32, 200, 0, true, "BF16", RECURRENT(3, 6, 32), 512}},
    {CHANNEL, 0, false, {"llama", 256, 96, 1, 5, 1, 48, 200, 0, true, "BF16", THETA, 512}},
    {BLOCK, 0, true, {"qwen3", 300, 640, 2, 8, 2, 128, 1024, 0, true, "BF16", THETA, 2048}},
    {BLOCK, 0, false, {"llama", 512, 1100, 1, 16, 8, 64, 1024, 0, false, "BF16", THETA, 2048}}};

static void check_eight(int i) {
    char path[900];
    void **kept = NULL;
    snprintf(path, sizeof path, "%s/%s_%s_%d", test_scratch(), eights[i].shape.type,
             eights[i].scaling == BLOCK ? "blocks" : "channels", i);
    test_model_folder(path, &eights[i].shape);
    llm42_model *model = load_model(path, false);
    if (!model) return;
    const llm42_scaling scaling = (llm42_scaling)eights[i].scaling;
    model->config.scaling = scaling;
    const int last = model->config.layers - 1;
    const float given = eights[i].input_scale;
    for (int l = 0; l <= last; l++) {
        llm42_layer *layer = (llm42_layer *)(uintptr_t)&model->layer[l];
        llm42_matrix *const all[] = {&layer->q, &layer->k,    &layer->v,   &layer->gate, &layer->up,
                                     &layer->o, &layer->down, &layer->qkv, &layer->z};
        for (int m = 0; m < 9; m++)
            if (all[m]->data && (!eights[i].mixed || (m < 3 || m == 6 ? l < last : m == 3 || m == 4 || l > 0)))
                quantise(all[m], scaling, given * (m < 3 || m > 6 ? 1.0f : m < 5 ? 2.0f : (float)m), &kept);
        for (int m = 0; m < 3 * model->config.experts; m++)
            quantise((llm42_matrix *)(uintptr_t)&layer->expert[m], scaling,
                     given * (float)(1 + m / 3 + 7 * (m % 3 == 2)), &kept);
    }
    check_model(strrchr(path, '/') + 1, model, model, NONE);
    llm42_model_free(model);
    for (int j = 0; j < (int)arrlen(kept); j++) free(kept[j]);
    arrfree(kept);
}

void part_e4m3(void) {
    static const char *const models[] = {"synthetic:tiny-fp8", "examples/tiny42-fp8", "synthetic:tiny-moe-fp8"};
    for (int i = 0; i < 3 && !options.quick; i++) check_arithmetic(models[i]);
    const int count = options.quick ? 5 : (int)(sizeof eights / sizeof *eights);
    for (int i = 0; i < count; i += options.quick ? 2 : 1) check_eight(i);
}

// The last token alone has a first element in its embedding, and one weight of v takes that beyond the largest number.
static void check_overflow(const char *folder) {
    enum { VOCAB = 96, DIM = 80, KV = 2 * 64 };
    static const test_shape shape = {"qwen2", VOCAB, DIM, 2, 4, 2, 64, 176, 0, false, "BF16", "", 96};
    static uint16_t embed[VOCAB * DIM], weight[KV * DIM];
    test_model_folder(folder, &shape);
    llm42_model *model = load_model(folder, false);
    if (!model) return;
    llm42_matrix *v = (llm42_matrix *)(uintptr_t)&model->layer[0].v;
    assert(model->embed.type == LLM42_DTYPE_BF16 && v->type == LLM42_DTYPE_BF16);
    memcpy(embed, model->embed.data, sizeof embed), memcpy(weight, v->data, sizeof weight);
    for (int i = 0; i < VOCAB; i++) embed[i * DIM] = llm42__to_bf16(i == VOCAB - 1 ? 8 : 0);
    weight[77 * DIM] = llm42__to_bf16(3e38f);
    model->embed.data = embed, v->data = weight;
    check_model("overflow", model, model, 60);
    llm42_model_free(model);
}

void part_arithmetic(void) {
    llm42_model *tiny = load_model("synthetic:tiny", false);
    rig g = {0};
    const llm42_backend_desc desc = {
        .model = tiny, .numerics.arithmetic = LLM42_ARITHMETIC_SM90, .max_rows = 16, .max_context = 16};
    const bool other = is_cuda() && tiny && rig_try(&g, tested, desc) == LLM42_UNSUPPORTED;  // other tensor cores
    rig_close(&g);
    llm42_model_free(tiny);
    if (other) SKIP(rig_error.text);
    if (other) return;
    if (!options.model || !options.quick) check_overflow(test_file("overflow"));
    if (options.model) check_arithmetic(options.model);
    for (size_t i = 0; !options.model && i < sizeof shapes / sizeof *shapes; i++) {
        char path[100];
        snprintf(path, sizeof path, "%s/shape_%d_%s", test_scratch(), (int)i, shapes[i].type);
        test_model_folder(path, &shapes[i]);
        check_arithmetic(path);
    }
    if (options.model) return;
    check_arithmetic("synthetic:tiny");
    check_arithmetic("synthetic:tiny-moe");
    check_arithmetic("examples/tiny42");
    each_arch(check_arithmetic);
    if (!options.quick) check_arithmetic(main_model());
}
