// tied_experts.h: a mixture of two experts whose router logits are often equal once they are rounded to bf16, and a
// test of which expert a backend then takes. Include "test.h", "llm42.h" and "make_model.h" first.
//
// The router's two rows differ in one weight, by its last bit. So the two logits of a token differ by less than bf16
// can tell, as a rule. With rounding the token goes to expert 0, because the lower index wins. With .router_fp32 it
// goes to the expert of the larger sum. Which expert it was is known by comparison with two other models. In each of
// these both experts have the weights of one of the two.
#ifndef LLM42_TIED_EXPERTS_H
#define LLM42_TIED_EXPERTS_H

enum { TIED_ROWS = 96, TIED_D = 128, TIED_V = 64, TIED_AT = 5 };  // TIED_AT: the weight that differs

static const test_shape tied_shape = TEST_LIST(
    "qwen3_moe", TIED_V, TIED_D, 1, 4, 2, 32, 64, 2, false, "BF16",
    "\"moe_intermediate_size\": 64, \"num_experts\": 2, \"num_experts_per_tok\": 1, \"norm_topk_prob\": true, ", 128);

typedef struct tied_models {
    llm42_model *loaded;
    llm42_model model[3];  // the two experts; twice expert 0; twice expert 1
    llm42_layer layer[3];
    llm42_matrix expert[3][6];
    uint16_t router[2 * TIED_D];
} tied_models;

// What a pass gives: the router's inputs, the sum over experts, logits.
typedef struct tied_values {
    float h[TIED_ROWS * TIED_D], down[TIED_ROWS * TIED_D], logits[TIED_ROWS * TIED_V];
    int rows;  // of earlier passes
} tied_values;

static inline void tied_load(tied_models *t) {
    t->loaded = test_model(&tied_shape);
    const llm42_layer *layer = t->loaded->layer;
    uint64_t random = 7;
    for (int i = 0; i < TIED_D; i++)  // 0.25 to 0.5, either sign
        t->router[i] = t->router[TIED_D + i] = (uint16_t)(0x3e80 + test_random_int(&random, 0, 127) +
                                                          test_random_int(&random, 0, 1) * 0x8000);
    t->router[TIED_D + TIED_AT] ^= 1;
    for (int i = 0; i < 3; i++) {
        t->model[i] = *t->loaded;
        t->layer[i] = *layer;
        t->layer[i].router = (llm42_matrix){.data = t->router, .type = LLM42_DTYPE_BF16, .n = 2, .k = TIED_D};
        t->model[i].layer = &t->layer[i];
        for (int m = 0; m < 6; m++) t->expert[i][m] = layer->expert[i ? 3 * (i - 1) + m % 3 : m];
        t->layer[i].expert = t->expert[i];
    }
}

static inline void tied_probe(void *user, int layer, const char *name, int rows, int width, const float *values) {
    tied_values *to = user;
    const bool h = layer == 0 && !strcmp(name, "ffn_norm"), down = layer == 0 && !strcmp(name, "down");
    if (!h && !down) return;
    assert(width == TIED_D && to->rows + rows <= TIED_ROWS);
    memcpy((h ? to->h : to->down) + to->rows * TIED_D, values, sizeof *values * (size_t)(rows * width));
}

// Runs a text in passes of `each` rows.
static inline bool tied_run(const llm42_backend *backend, llm42_backend_desc desc, llm42_schedule schedule, int each,
                            tied_values *to) {
    llm42_error error;
    llm42_row row[TIED_ROWS];
    llm42_output out[TIED_ROWS];
    const int32_t pages[TIED_ROWS / 16] = {3, 1, 5, 0, 4, 2};
    void *state = NULL;
    if (!desc.backend_desc) desc.backend_desc = TEST_THREADS(1);
    desc.max_rows = desc.max_context = desc.fixed_rows = TIED_ROWS;
    desc.page_size = 16;
    desc.pages = TIED_ROWS / 16;
    desc.max_running = 1;
    memset(to, 0, sizeof *to);
    if (!CHECK_MSG(!backend->open(&state, &desc, &error), "%s", error.text)) return false;
    const llm42_seq seq = {.request = 1, .pages = pages};
    bool ok = true;
    for (int i = 0; i < TIED_ROWS; i++) row[i] = (llm42_row){0, i, (i * 37 + 11) % TIED_V, LLM42_ROW_SAMPLE};
    for (; ok && to->rows < TIED_ROWS; to->rows += each) {
        llm42_pass pass = TEST_LIST(.schedule = schedule, .rows = each,
                                    .shape = schedule == LLM42_SCHEDULE_FIXED ? TIED_ROWS : each, .row = row + to->rows,
                                    .seq = &seq, .out = out, .logits = to->logits + to->rows * TIED_V,
                                    .probe = tied_probe, .probe_user = to);
        ok = CHECK_MSG(!backend->run(state, &pass, &error), "%s", error.text);
    }
    backend->close(state);
    return ok;
}

static inline float tied_bf16(uint16_t bits) {
    const uint32_t word = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &word, sizeof x);
    return x;
}

// To the nearest bf16, to the even one of two.
static inline float tied_rounded(double x) {
    float value = (float)x;
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    return tied_bf16((uint16_t)((word + 0x7fffu + (word >> 16 & 1u)) >> 16));
}

// The expert of a row: by sums, and by sums rounded to bf16. False: one of the sums lies within 2^-15 of where rounding
// or the choice turns, and a backend's own rounding may decide.
static inline bool tied_expert(const tied_models *t, const float *h, int *exact, int *rounded) {
    double sum[2] = {0, 0};
    const double near = 0x1p-15;
    bool clear = true;
    for (int e = 0; e < 2; e++) {
        for (int i = 0; i < TIED_D; i++) sum[e] += (double)h[i] * (double)tied_bf16(t->router[e * TIED_D + i]);
        clear = clear && tied_rounded(sum[e] - near) == tied_rounded(sum[e] + near);
    }
    *exact = sum[1] > sum[0];
    *rounded = tied_rounded(sum[1]) > tied_rounded(sum[0]);
    return clear && fabs(sum[1] - sum[0]) > near;
}

// Each row of a pass goes to the expert that it should go to, to the bit.
static inline void tied_check(const tied_models *t, const llm42_backend *backend, const void *backend_desc,
                              llm42_schedule schedule) {
    static tied_values got[2], want[2];  // by router_fp32; by expert
    int parted = 0;
    bool ok = true;
    for (int i = 0; i < 2; i++) {
        llm42_backend_desc desc = TEST_LIST(.model = &t->model[0], .numerics.compute = LLM42_DTYPE_BF16,
                                            .numerics.router_fp32 = i, .backend_desc = backend_desc);
        ok = tied_run(backend, desc, schedule, TIED_ROWS, &got[i]) && ok;
        desc.model = &t->model[1 + i];
        ok = tied_run(backend, desc, schedule, TIED_ROWS, &want[i]) && ok;
    }
    for (int r = 0; ok && r < TIED_ROWS; r++) {
        const int d = r * TIED_D, v = r * TIED_V;
        int expert[2];
        CHECK_MSG(memcmp(&want[0].down[d], &want[1].down[d], sizeof(float) * TIED_D), "row %d: experts are alike", r);
        if (!tied_expert(t, &got[0].h[d], &expert[1], &expert[0])) continue;
        parted += expert[0] != expert[1];
        for (int i = 0; i < 2; i++)
            CHECK_MSG(!memcmp(&got[i].down[d], &want[expert[i]].down[d], sizeof(float) * TIED_D) &&
                          !memcmp(&got[i].logits[v], &want[expert[i]].logits[v], sizeof(float) * TIED_V),
                      "%s, %s, router logits in %s: row %d is not of expert %d", backend->name,
                      llm42_schedule_name(schedule), i ? "fp32" : "bf16", r, expert[i]);
    }
    CHECK_MSG(parted > TIED_ROWS / 8, "only %d rows go to another expert if router logits are rounded", parted);
    printf("  %s, %s: rounding sends %d of %d rows to another expert\n", backend->name, llm42_schedule_name(schedule),
           parted, TIED_ROWS);
}

#endif  // LLM42_TIED_EXPERTS_H
