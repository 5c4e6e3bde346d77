// llm42_synthetic.h: random weights for named shapes, "synthetic:NAME[,seed=N][,margin=X]", for tests and benchmarks.
// N is below 10^19, default: 42. X is 0 or from 1e-30 to 1000, default: 3.
//
//     #define LLM42_IMPLEMENTATION
//     #include "examples/util/llm42_synthetic.h"   // instead of llm42.h, which it includes
//
// It is a part of the implementation: without it llm42_model_load refuses such names. The library that make builds and
// the shared libraries have it.
//
// Weights are bf16. Their standard deviation is 1 in the embedding and 1/sqrt(k) in other matrices. Output and down
// projections are also divided by sqrt(2L), so that the residual stream keeps its size. Every token t has a successor,
// (5 t + 1) mod V, to whose row in the LM head margin/D times the embedding of t is added. The larger the margin, the
// more often the successor leads by far. At 0 the head is noise.
//
// NAME-fp8 has the same weights, but those of projections (but for beta and alpha) and experts are quantised: each
// block of 128 x 128 of them has the scale llm42__e4m3_scale(largest magnitude), and an element is
// llm42__to_e4m3(weight / scale).
//
// An element depends only on the seed, its tensor, its place and the margin, so that a backend that makes a matrix
// (llm42_model_desc.on_device) gets the same bits. No token has two predecessors, because 5 does not divide V.
#ifndef LLM42_SYNTHETIC_H
#define LLM42_SYNTHETIC_H

#if defined(LLM42_IMPLEMENTATION) && !defined(LLM42_IMPLEMENTED)
#define LLM42__SYNTHESIS  // llm42_model_load then calls llm42__synthetic, which is below
#endif
#include "llm42_sm90.h"

#if defined(LLM42__SYNTHESIS) && defined(LLM42_IMPLEMENTED)

typedef struct llm42__synthesis {
    llm42_model *model;
    uint64_t seed, next;  // next: tensors made so far
    double margin;
    bool on_device;  // recipes only
} llm42__synthesis;

static float llm42__noise_weight(const llm42_matrix *m, int64_t i) {
    return llm42__round_bf16(m->recipe.scale * llm42__synthetic_noise(m->recipe.key, (uint64_t)i));
}

// Block b of a matrix in e4m3: its bytes and its scale.
static void llm42__noise_block(const llm42_matrix *m, int b, uint8_t *data, float *scale) {
    const int across = (m->k + LLM42__BLOCK - 1) / LLM42__BLOCK, row = b / across * LLM42__BLOCK,
              column = b % across * LLM42__BLOCK, rows = LLM42__MIN(LLM42__BLOCK, m->n - row),
              columns = LLM42__MIN(LLM42__BLOCK, m->k - column);
    float weight[LLM42__BLOCK * LLM42__BLOCK], largest = 0;
    for (int i = 0; i < rows * columns; i++) {
        weight[i] = llm42__noise_weight(m, (int64_t)(row + i / columns) * m->k + column + i % columns);
        largest = fmaxf(largest, fabsf(weight[i]));
    }
    scale[b] = llm42__e4m3_scale(largest);
    for (int i = 0; i < rows * columns; i++)
        data[(int64_t)(row + i / columns) * m->k + column + i % columns] = llm42__to_e4m3(weight[i] / scale[b]);
}

static llm42_result llm42__noise_matrix_e4m3(llm42__synthesis *s, llm42_matrix *out, llm42_error *error) {
    const int blocks = (out->n + LLM42__BLOCK - 1) / LLM42__BLOCK * ((out->k + LLM42__BLOCK - 1) / LLM42__BLOCK);
    out->type = LLM42_DTYPE_E4M3, out->scaling = LLM42_SCALING_BLOCK;
    if (s->on_device) return LLM42_OK;
    uint8_t *data = llm42__model_block(s->model, (size_t)out->n * (size_t)out->k, 1);
    float *scale = llm42__model_block(s->model, (size_t)blocks, sizeof *scale);
    if (!data || !scale) LLM42__FAIL(MEMORY, "%s: out of memory for a %d x %d matrix", s->model->name, out->n, out->k);
#ifdef _OPENMP
#pragma omp parallel for schedule(static) if (!llm42__team_lost())
#endif
    for (int b = 0; b < blocks; b++) llm42__noise_block(out, b, data, scale);
    out->data = data, out->scale = scale;
    return LLM42_OK;
}

// projection: it is in e4m3 if the model is.
static llm42_result llm42__noise_matrix(llm42__synthesis *s, bool projection, int n, int k, float scale,
                                        llm42_matrix *out, llm42_error *error) {
    uint64_t key = llm42__hash(s->seed + 0x51ed270b * ++s->next);
    *out = (llm42_matrix){.type = LLM42_DTYPE_BF16, .n = n, .k = k, .recipe = {.key = key, .scale = scale}};
    if (projection && s->model->config.scaling) return llm42__noise_matrix_e4m3(s, out, error);
    if (s->on_device) return LLM42_OK;
    uint16_t *data = llm42__model_block(s->model, (size_t)n * (size_t)k, sizeof *data);
    if (!data) LLM42__FAIL(MEMORY, "%s: out of memory for a %d x %d matrix", s->model->name, n, k);
    const int64_t count = (int64_t)n * k;
#ifdef _OPENMP
#pragma omp parallel for schedule(static) if (!llm42__team_lost())
#endif
    for (int64_t i = 0; i < count; i++) data[i] = llm42__to_bf16(llm42__noise_weight(out, i));
    out->data = data;
    return LLM42_OK;
}

// Adds margin/D x embed[t] to the head's row of t's successor.
static void llm42__synthetic_margin(llm42__synthesis *s) {
    const llm42_config *c = &s->model->config;
    uint16_t *head = (uint16_t *)(uintptr_t)s->model->head.data;
    const uint16_t *embed = s->model->embed.data;
    const float lead = s->model->head.recipe.lead = (float)(s->margin / c->dim);
    assert(c->vocab % 5);
    if (s->on_device || lead == 0) return;
    for (int64_t t = 0; t < c->vocab; t++) {
        uint16_t *to = head + (5 * t + 1) % c->vocab * c->dim;
        const uint16_t *from = embed + t * c->dim;
        for (int i = 0; i < c->dim; i++)
            to[i] = llm42__to_bf16(fmaf(lead, llm42__from_bf16(from[i]), llm42__from_bf16(to[i])));
    }
}

// Reads "NAME[,seed=N][,margin=X]".
static llm42_result llm42__synthetic_spec(llm42__synthesis *s, const char *spec, llm42_error *error) {
    size_t length = strcspn(spec, ",");
    LLM42__TRY(llm42__shape_config(s->model, spec, length, error));
    for (const char *p = spec + length; *p;) {
        const char *end = p + 1 + strcspn(p + 1, ",");
        bool seed = strncmp(p, ",seed=", 6) == 0, margin = strncmp(p, ",margin=", 8) == 0;
        double number;
        bool read = (seed || margin) && llm42_number(p + (seed ? 6 : 8), end, &number);
        if (seed) read = read && strspn(p + 6, "0123456789") == (size_t)(end - p - 6) && end - p - 6 <= 19;
        else read = read && (number == 0 || (number >= 1e-30 && number <= 1000));  // not 0 as fp32 margin/D
        if (!read)
            LLM42__FAIL(INVALID,
                        "%s: '%.*s': expected seed=N or margin=X, N below 10^19, X 0 or from 1e-30 to 1000 (a decimal "
                        "point, no comma)",
                        s->model->name, (int)(end - p - 1), p + 1);
        if (seed) s->seed = strtoull(p + 6, NULL, 10);
        else s->margin = number;
        p = end;
    }
    return LLM42_OK;
}

// Three layers of four are recurrent. Head h decays by -(h + 1) / Hv, and the convolution's taps are noise, too.
static llm42_result llm42__synthetic_recurrent(llm42__synthesis *s, llm42_layer *to, int l, const float *ones,
                                               float residual, llm42_error *error) {
    const llm42_config *c = &s->model->config;
    const int Hv = c->value_heads, V = Hv * c->value_dim, channels = 2 * c->key_heads * c->key_dim + V;
    const float in = 1.0f / sqrtf((float)c->dim);
    float *const own = llm42__model_block(s->model, (size_t)(2 * Hv + channels * LLM42__TAPS), sizeof *own);
    if (!own) LLM42__FAIL(MEMORY, "%s: out of memory", s->model->name);
    for (int h = 0; h < Hv; h++) own[h] = -(float)(h + 1) / (float)Hv, own[Hv + h] = 0;
    const llm42_matrix taps = {
        .n = channels, .k = LLM42__TAPS, .recipe = {llm42_hash(s->seed ^ (uint64_t)(l + 1)), 0.5f, 0}};
    for (int i = 0; i < channels * LLM42__TAPS; i++) own[2 * Hv + i] = llm42__noise_weight(&taps, i);
    to->decay = own, to->alpha_bias = own + Hv, to->taps = own + 2 * Hv, to->head_norm = ones;
    to->recurrent = true, to->cache = l - l / 4;
    LLM42__TRY(llm42__noise_matrix(s, true, channels, c->dim, in, &to->qkv, error));
    LLM42__TRY(llm42__noise_matrix(s, true, V, c->dim, in, &to->z, error));
    LLM42__TRY(llm42__noise_matrix(s, false, Hv, c->dim, in, &to->beta, error));
    LLM42__TRY(llm42__noise_matrix(s, false, Hv, c->dim, in, &to->alpha, error));
    return llm42__noise_matrix(s, true, c->dim, V, residual / sqrtf((float)V), &to->o, error);
}

static llm42_result llm42__synthetic_attention(llm42__synthesis *s, llm42_layer *to, float residual,
                                               llm42_error *error) {
    const llm42_config *c = &s->model->config;
    const int q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    const float in = 1.0f / sqrtf((float)c->dim);
    LLM42__TRY(llm42__noise_matrix(s, true, q << c->gated, c->dim, in, &to->q, error));
    for (int i = 0; i < 2; i++) LLM42__TRY(llm42__noise_matrix(s, true, kv, c->dim, in, i ? &to->v : &to->k, error));
    return llm42__noise_matrix(s, true, c->dim, q, residual / sqrtf((float)q), &to->o, error);
}

static llm42_result llm42__load_synthetic(llm42_model *model, const char *spec, bool on_device, llm42_error *error) {
    llm42__synthesis s = {.model = model, .seed = 42, .margin = 3.0, .on_device = on_device};
    LLM42__TRY(llm42__synthetic_spec(&s, spec, error));
    const llm42_config *c = &model->config;
    const int matrices = 3 * (LLM42__MAX(1, c->experts) + (c->shared_ffn > 0));
    const float in = 1.0f / sqrtf((float)c->dim), residual = 1.0f / sqrtf(2.0f * (float)c->layers);
    float *ones = llm42__model_block(model, (size_t)c->dim, sizeof *ones);  // for norms of heads, too: d <= D
    llm42_matrix *ffn = llm42__model_block(model, (size_t)c->layers * (size_t)matrices, sizeof *ffn);
    llm42_layer *layer;
    if (!ones || !ffn) LLM42__FAIL(MEMORY, "%s: out of memory", model->name);
    LLM42__TRY(llm42__model_layers(model, &layer, error));
    for (int i = 0; i < c->dim; i++) ones[i] = 1.0f;
    model->final_norm = ones;
    LLM42__TRY(llm42__noise_matrix(&s, false, c->vocab, c->dim, 1.0f, &model->embed, error));
    LLM42__TRY(llm42__noise_matrix(&s, false, c->vocab, c->dim, in, &model->head, error));
    for (llm42_layer *to = layer; to < layer + c->layers; to++) {
        to->attention_norm = to->ffn_norm = ones;
        const int l = (int)(to - layer);
        to->cache = c->recurrent_layers ? l / 4 : l;
        if (c->recurrent_layers) to->q_norm = to->k_norm = ones;
        LLM42__TRY(c->recurrent_layers && l % 4 != 3 ? llm42__synthetic_recurrent(&s, to, l, ones, residual, error)
                                                     : llm42__synthetic_attention(&s, to, residual, error));
        if (c->shared_ffn) LLM42__TRY(llm42__noise_matrix(&s, false, 1, c->dim, in, &to->shared_gate, error));
        if (c->experts) LLM42__TRY(llm42__noise_matrix(&s, false, c->experts, c->dim, in, &to->router, error));
        if (c->experts) to->q_norm = to->k_norm = ones, to->expert = ffn;
        for (int i = 0; i < matrices; i++, ffn++) {
            const int F = i / 3 && i / 3 == c->experts ? c->shared_ffn : c->ffn;
            const int n = i % 3 < 2 ? F : c->dim, k = i % 3 < 2 ? c->dim : F;
            LLM42__TRY(
                llm42__noise_matrix(&s, true, n, k, (i % 3 < 2 ? 1.0f : residual) / sqrtf((float)k), ffn, error));
        }
        if (!c->experts) to->gate = ffn[-3], to->up = ffn[-2], to->down = ffn[-1];
    }
    llm42__synthetic_margin(&s);
    return LLM42_OK;
}
static llm42__synthetic_fn *const llm42__synthetic = llm42__load_synthetic;

#endif  // LLM42__SYNTHESIS
#endif  // LLM42_SYNTHETIC_H
