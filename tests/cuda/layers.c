// layers.c: the same pass on the CPU backend and on the tested one, compared operator by operator, so that a wrong
// kernel is named and not guessed. The controls change one weight and must be told where.
//
// Tolerance: for each row of each operator's output, the root mean square of the difference is at most 5% of the root
// mean square of the CPU's row. Both compute in bf16 with fp32 sums: a value that lies on the border between two bf16
// numbers goes up here and down there (0.4%), and later operators mix these.
#include "rig.h"
#include "../make_model.h"
#include "../tied_experts.h"

static const double LAYER_TOLERANCE = 0.05;

// Where two films part: the first operator and row beyond the tolerance; its error. at < 0: nowhere.
typedef struct parting {
    int at, row;
    double error, largest;
} parting;

// A row's router logits from its ffn_norm output, in bf16, and the smallest chosen one less the largest of the others.
static double router_gap(const llm42_model *model, int layer, const float *h, float *logits) {
    const llm42_matrix *w = &model->layer[layer].router;
    int used = model->config.experts_used;
    for (int e = 0; e < w->n; e++) {
        double sum = 0;
        for (int i = 0; i < w->k; i++)
            sum += (double)h[i] *
                   (w->type == LLM42_DTYPE_BF16
                        ? (double)tied_bf16(((const uint16_t *)w->data)[(size_t)e * (size_t)w->k + (size_t)i])
                        : (double)((const float *)w->data)[(size_t)e * (size_t)w->k + (size_t)i]);
        logits[e] = finite_bits((float)sum) ? tied_rounded(sum) : (float)sum;
    }
    double least = INFINITY, most = -INFINITY;
    for (int e = 0; e < w->n; e++) {
        int before = 0;
        for (int o = 0; o < w->n; o++) before += logits[o] > logits[e] || (logits[o] == logits[e] && o < e);
        if (before < used) least = fmin(least, logits[e]);
        else most = fmax(most, logits[e]);
    }
    return least - most;
}

// In a mixture a row may go to another expert here than there, and be far off from its "down" on, but only if its
// router all but ties: their gap is at most what the two backends' own inputs move a logit by, and a rounding.
static bool router_ties(const llm42_model *model, int layer, const float *want, const float *got) {
    enum { MOST = 1024 };
    float there[MOST], here[MOST];
    if (model->config.experts > MOST) return false;
    double gap = router_gap(model, layer, want, there), moved = 0, size = 0;
    router_gap(model, layer, got, here);
    for (int e = 0; e < model->config.experts; e++) {
        moved = fmax(moved, fabs((double)there[e] - (double)here[e]));
        size = fmax(size, fabs((double)there[e]));
    }
    printf("  layer %d: a row's router has a gap of %.4f, its logits are moved by up to %.4f\n", layer, gap, moved);
    return gap <= 2 * moved + size / 128;
}

// strays: NULL, or the mixture of whose rows some may leave as router_ties says; they are not looked at any more.
static parting film_compare(const film *want, const film *got, const llm42_model *strays) {
    parting p = {.at = -1};
    bool stray[128] = {false};
    for (int i = 0; i < (int)arrlen(want->shots); i++) {
        const shot *a = &want->shots[i], *b = i < (int)arrlen(got->shots) ? &got->shots[i] : NULL;
        bool same = b && same_shape(a, b);
        for (int r = 0; r < a->rows && p.at < 0; r++) {
            size_t at = (size_t)r * (size_t)a->width;
            double e = same ? compare_row(b->values + at, a->values + at, a->width) : INFINITY;
            if (r < 128 && stray[r]) continue;
            if (e > LAYER_TOLERANCE && same && strays && r < 128 && i && !strcmp(a->name, "down") &&
                !strcmp(a[-1].name, "ffn_norm") &&
                router_ties(strays, a->layer, a[-1].values + at, b[-1].values + at)) {
                stray[r] = true;
            } else if (e <= LAYER_TOLERANCE) p.largest = fmax(p.largest, e);
            else p = (parting){.at = i, .row = r, .error = e, .largest = p.largest};
        }
    }
    return p;
}

// Two probed passes: prompts of two sequences, one behind the other, then a decode row of each.
static bool film_shoot(const llm42_backend *backend, const llm42_model *model, llm42_schedule schedule,
                       bool router_fp32, const int32_t *ids, film films[2]) {
    enum { A = 70, B = 26 };
    rig g = {0};
    llm42_row row[A + B];
    llm42_output out[A + B];
    llm42_backend_desc desc = {
        .model = model, .numerics.router_fp32 = router_fp32, .max_rows = 128, .max_context = 128, .max_running = 2};
    bool ok = rig_open(&g, backend, desc);
    for (int i = 0; i < A; i++) row[i] = (llm42_row){0, i, ids[i], LLM42_ROW_SAMPLE};
    for (int i = 0; i < B; i++) row[A + i] = (llm42_row){1, i, ids[A + i], LLM42_ROW_SAMPLE};
    llm42_pass pass = rig_pass(&g, schedule, row, A + B, out, NULL);
    pass.probe = film_take;
    pass.probe_user = &films[0];
    ok = ok && rig_run(&g, &pass);
    row[0] = (llm42_row){0, A, ids[A + B], LLM42_ROW_SAMPLE};
    row[1] = (llm42_row){1, B, ids[A + B + 1], LLM42_ROW_SAMPLE};
    pass = rig_pass(&g, schedule, row, 2, out, NULL);
    pass.probe = film_take;
    pass.probe_user = &films[1];
    ok = ok && rig_run(&g, &pass);
    rig_close(&g);
    return ok && CHECK_MSG(arrlen(films[0].shots) > 0 && arrlen(films[1].shots) > 0, "%s: no operator was probed",
                           backend->name);
}

static void check_layers(const char *path, bool router_fp32) {
    static const llm42_schedule schedules[] = {LLM42_SCHEDULE_FAST, LLM42_SCHEDULE_FIXED, LLM42_SCHEDULE_INVARIANT};
    llm42_model *model = load_model(path, false);
    if (!model) return;
    if (!model->embed.data || model->config.vocab < 200) {
        // Small families lose more to rounding than a tolerance can tell from a fault: part arithmetic has their bits.
        if (!model->embed.data) SKIP("the model's weights are on the device alone: nothing to compare with");
        llm42_model_free(model);
        return;
    }
    int32_t *ids = random_ids(128, model->config.vocab, 11);
    film want[2] = {{0}, {0}};
    double largest = 0;
    bool ok = film_shoot(llm42_backend_cpu(), model, LLM42_SCHEDULE_INVARIANT, router_fp32, ids, want);
    for (int s = 0; ok && s < 3; s++) {
        film got[2] = {{0}, {0}};
        ok = film_shoot(tested, model, schedules[s], router_fp32, ids, got);
        for (int i = 0; ok && i < 2; i++) {
            parting p = film_compare(&want[i], &got[i], model->config.experts ? model : NULL);
            const shot *at = p.at < 0 ? NULL : &want[i].shots[p.at];
            CHECK_MSG(!at,
                      "%s, %s, %s: layer %d, %s, row %d: off by %.3g%% of the row's size (first place beyond %.0f%%)",
                      path, llm42_schedule_name(schedules[s]), i ? "decode" : "prompts", at ? at->layer : 0,
                      at ? at->name : "", p.row, 100 * p.error, 100 * LAYER_TOLERANCE);
            largest = fmax(largest, p.largest);
        }
        for (int i = 0; i < 2; i++) film_free(&got[i]);
    }
    printf("  %-40s %3d operators of a pass, rows off by at most %.2f%%\n", path, (int)arrlen(want[0].shots),
           100 * largest);
    note(path, "layer_error_share", largest);
    for (int i = 0; i < 2; i++) film_free(&want[i]);
    free(ids);
    llm42_model_free(model);
}

// A copy of the model in which one weight of a layer's matrix is far too large must be told by layer and operator.
static void check_layer_controls(void) {
    static const struct {
        size_t offset;
        const char *name;
    } matrices[] = {{offsetof(llm42_layer, q), "q"},       {offsetof(llm42_layer, k), "k"},
                    {offsetof(llm42_layer, v), "v"},       {offsetof(llm42_layer, o), "o"},
                    {offsetof(llm42_layer, gate), "gate"}, {offsetof(llm42_layer, down), "down"}};
    llm42_model *model = load_model("synthetic:small", false);
    if (!model) return;
    int32_t *ids = random_ids(128, model->config.vocab, 11);
    film want[2] = {{0}, {0}};
    bool ok = film_shoot(llm42_backend_cpu(), model, LLM42_SCHEDULE_INVARIANT, false, ids, want);
    for (int m = 0; ok && m < 6; m++) {
        llm42_model copy = *model;
        llm42_layer layers[16];
        int at = 1 + m % 3;
        assert(model->config.layers <= 16);
        memcpy(layers, model->layer, sizeof *layers * (size_t)model->config.layers);
        llm42_matrix *matrix = (llm42_matrix *)(void *)((char *)&layers[at] + matrices[m].offset);
        size_t size = 2 * (size_t)matrix->n * (size_t)matrix->k;
        uint16_t *data = malloc(size);
        assert(data);
        memcpy(data, matrix->data, size);
        data[(size_t)(matrix->n / 2) * (size_t)matrix->k + 5] = 0x4200;  // 32, where others are about 0.06
        matrix->data = data;
        copy.layer = layers;
        film got[2] = {{0}, {0}};
        if (film_shoot(tested, &copy, LLM42_SCHEDULE_FIXED, false, ids, got)) {
            parting p = film_compare(&want[0], &got[0], NULL);
            const shot *found = p.at < 0 ? NULL : &want[0].shots[p.at];
            CHECK_MSG(found && found->layer == at && !strcmp(found->name, matrices[m].name),
                      "a changed weight in layer %d, %s, was found in layer %d, %s", at, matrices[m].name,
                      found ? found->layer : -1, found ? found->name : "no operator");
        }
        for (int i = 0; i < 2; i++) film_free(&got[i]);
        free(data);
    }
    for (int i = 0; i < 2; i++) film_free(&want[i]);
    free(ids);
    llm42_model_free(model);
}

// Mixtures with router logits in bf16 and in fp32.
static void check_routers(void) {
    static const char experts[] = "\"moe_intermediate_size\": 64, \"num_experts\": 16, "
                                  "\"num_experts_per_tok\": 4, \"norm_topk_prob\": true, ";
    static const test_shape shape = {"qwen3_moe", 96, 128, 2, 4, 2, 32, 64, 16, false, "BF16", experts, 256};
    static tied_models tied;
    for (int fp32 = 0; fp32 < 2; fp32++) {
        const char *path = test_file(fp32 ? "router_fp32" : "router_bf16");
        test_model_folder(path, &shape);
        check_layers(path, fp32);
    }
    tied_load(&tied);
    tied_check(&tied, tested, &cuda_desc, LLM42_SCHEDULE_FIXED);
    tied_check(&tied, tested, &cuda_desc, LLM42_SCHEDULE_INVARIANT);
    llm42_model_free(tied.loaded);
}

static void check_layers_in_bf16(const char *path) { check_layers(path, false); }
void part_layers(void) {
    check_layer_controls();
    check_routers();
    check_layers("synthetic:tiny", false);
    check_layers(main_model(), false);
    each_arch(check_layers_in_bf16);
}
