// The sums of one layer as PyTorch takes them on a Hopper GPU, for sweep/science/layer.py, which compiles this file and
// says what the layer is. Matrix products are steps of the tensor cores (examples/util/llm42_sm90.h). Attention is the
// forward pass of FlashAttention 2, whose order was read in its source, and special functions are those of
// examples/util/llm42_sfu.h. `control` asks for something that a GPU does not do, and must be seen in the results.
#define LLM42_IMPLEMENTATION
#include "examples/util/llm42_sm90.h"

#include "examples/util/llm42_sfu.h"

enum { CONTROL_AMPERE = 1, CONTROL_PLAIN = 2, CONTROL_ASCENDING = 4, CONTROL_EXACT = 8, CONTROL_FUSED = 16 };

static const llm42__tensor_core *core_of(int control) {
    return control & CONTROL_AMPERE ? &llm42__ampere_bf16 : &llm42__hopper_bf16;
}

// One output of a product after the other, in fp32: a control.
static void plain(const float *x, int rows, int64_t stride, const void *const w[16], int terms, float *sums) {
    for (int i = 0; i < 16 * rows; i++) {
        sums[i] = 0;
        for (int k = 0; k < terms; k++)
            sums[i] = fmaf(x[i / 16 * stride + k], llm42__from_bf16(((const uint16_t *)w[i % 16])[k]), sums[i]);
    }
}

// x [M, K], w [N, K] in bf16 -> sums [M, N] of the terms from k0 to k1, in ascending steps of sixteen.
void layer_product(int control, int64_t M, int64_t K, int64_t N, int64_t k0, int64_t k1, const uint16_t *x,
                   const uint16_t *w, float *sums) {
    float *wide = malloc((size_t)(M * K) * sizeof *wide);
    for (int64_t i = 0; i < M * K; i++) wide[i] = llm42__from_bf16(x[i]);
#pragma omp parallel for schedule(dynamic)
    for (int64_t n = 0; n < N; n += 16)
        for (int64_t m = 0; m < M; m += LLM42__SM90_ROWS) {
            const int rows = (int)LLM42__MIN(LLM42__SM90_ROWS, M - m), terms = (int)(k1 - k0);
            const void *from[16];
            float block[LLM42__SM90_ROWS * 16];
            for (int o = 0; o < 16; o++) from[o] = w + LLM42__MIN(n + o, N - 1) * K + k0;
            if (control & CONTROL_PLAIN) plain(wide + m * K + k0, rows, K, from, terms, block);
            else llm42__sm90_rows(core_of(control), wide + m * K + k0, (size_t)K, rows, from, true, terms, block);
            for (int i = 0; i < 16 * rows; i++)
                if (n + i % 16 < N) sums[(m + i / 16) * N + n + i % 16] = block[i];
        }
    free(wide);
}

// expf and logf of CUDA's library, without fast-math, of numbers that are neither subnormal nor NaN.
static float cuda_exp(float x) {
    const float place = fmaf(x, llm42__float(0x3bbb989d), 0.5f), in = place > 1 ? 1 : place > 0 ? place : 0;
    const float turns = (float)(floor((double)in * 252) + 12582913);
    const float rest = fmaf(x, llm42__float(0x32a57060), fmaf(x, llm42__float(0x3fb8aa3b), -(turns - 12583039.0f)));
    return llm42_sfu_ex2(rest) * llm42__float(llm42__bits(turns) << 23);
}

static float cuda_log(float x) {
    static const uint32_t of[9] = {0xbe055027, 0x3e1039f6, 0xbdf8cdcc, 0x3e0f2955, 0xbe2ad8b9,
                                   0x3e4ced0b, 0xbe7fff22, 0x3eaaaa78, 0xbf000000};
    const uint32_t power = (llm42__bits(x) - 0x3f2aaaabu) & 0xff800000u;
    const float rest = llm42__float(llm42__bits(x) - power) - 1, exponent = (float)(int32_t)power * 0x1p-23f;
    float sum = llm42__float(of[0]);
    for (int i = 1; i < 9; i++) sum = fmaf(sum, rest, llm42__float(of[i]));
    return fmaf(exponent, llm42__float(0x3f317218), fmaf(rest * sum, rest, rest));
}

// exp2f: without fast-math the compiler avoids results that are subnormal.
static float cuda_exp2(int control, float x) {
    if (control & CONTROL_EXACT) return exp2f(x);
    if (x >= -126) return llm42_sfu_ex2(x);
    const float root = llm42_sfu_ex2(x * 0.5f);
    return root * root;
}

// which: 'r' rsqrtf, 's' x / (1 + expf(-x)).
void layer_map(int which, int64_t n, const float *x, float *y) {
    for (int64_t i = 0; i < n; i++) y[i] = which == 'r' ? llm42_sfu_rsqrt(x[i]) : x[i] / (1 + cuda_exp(-x[i]));
}

typedef struct attention {
    int heads, kv_heads, d, rows, keys;
    int block;   // keys of a block
    int splits;  // of the blocks; more than one are combined by another kernel
    int control;
    float scale;
    const int32_t *visible;     // [rows]: how many keys a row sees
    const uint16_t *q, *k, *v;  // [rows, heads, d], [keys, kv_heads, d], the same
    uint16_t *out;              // [rows, heads, d]
    float *lse;                 // [heads, rows]: logarithms of the sums of weights
} attention;

// The keys and values of a head, sixteen keys a panel: keys in parts of at most LLM42__SM90_TERMS terms, and values in
// parts of sixteen columns. Values behind the last key are 0.
typedef struct panels {
    int of_keys, of_values;  // panels for sixteen keys
    llm42__sm90_panel *k, *v;
} panels;

static panels fill(const attention *a, int kv) {
    const int sixteens = (a->keys + 15) / 16, d = a->d;
    panels p = {(d + LLM42__SM90_TERMS - 1) / LLM42__SM90_TERMS, d / 16, NULL, NULL};
    p.k = aligned_alloc(64, sizeof *p.k * (size_t)(sixteens * p.of_keys));
    p.v = aligned_alloc(64, sizeof *p.v * (size_t)(sixteens * p.of_values));
    for (int t = 0; t < sixteens; t++) {
        for (int i = 0; i < p.of_keys; i++) {
            const void *from[16];
            for (int j = 0; j < 16; j++)
                from[j] = a->k + ((int64_t)LLM42__MIN(16 * t + j, a->keys - 1) * a->kv_heads + kv) * d +
                          LLM42__SM90_TERMS * i;
            llm42__sm90_fill(from, true, LLM42__MIN(LLM42__SM90_TERMS, d - LLM42__SM90_TERMS * i),
                             &p.k[t * p.of_keys + i]);
        }
        for (int c = 0; c < p.of_values; c++) {
            llm42__sm90_panel *panel = &p.v[t * p.of_values + c];
            for (int i = 0; i < 256; i++) {
                const int key = 16 * t + i / 16;
                panel->value[i] = key < a->keys
                                      ? llm42__from_bf16(a->v[((int64_t)key * a->kv_heads + kv) * d + 16 * c + i % 16])
                                      : 0;
            }
            panel->odd = llm42__sm90_powers(panel->value, 256, panel->power);
        }
    }
    return p;
}

// What a row has of a split: sums of weights (four threads share a row, and each has two columns of eight), of weighted
// values, and the largest score.
typedef struct state {
    float sum[4], out[256], top;
} state;

// A block of keys, of which the row sees those below `end`.
static void block(const attention *a, const panels *p, const float *q, int begin, int end, state *s) {
    const float scale = a->scale * (float)M_LOG2E, before = s->top;
    float weight[256], thread[4];
    for (int t = begin; t < end; t += 16) {
        float *score = memset(weight + t - begin, 0, 16 * sizeof *score);
        for (int i = 0; i < p->of_keys; i++)
            llm42__sm90_multiply(core_of(a->control), q + LLM42__SM90_TERMS * i,
                                 LLM42__MIN(LLM42__SM90_TERMS, a->d - LLM42__SM90_TERMS * i),
                                 &p->k[t / 16 * p->of_keys + i], score);
        for (int j = 0; j < 16; j++) {
            if (t + j >= end) score[j] = -INFINITY;
            s->top = score[j] > s->top ? score[j] : s->top;
        }
    }
    const float base = s->top * scale, keep = cuda_exp2(a->control, (before - s->top) * scale);
    const int n = (end - begin + 15) / 16 * 16;
    for (int i = 0; i < n; i++)
        weight[i] = cuda_exp2(a->control,
                              a->control & CONTROL_FUSED ? fmaf(weight[i], scale, -base) : weight[i] * scale - base);
    for (int i = 0; i < 4; i++) thread[i] = fmaf(s->sum[i], keep, weight[2 * i]);
    for (int i = 1; i < n; i++)
        if (i > 7 || i % 2) thread[i % 8 / 2] += weight[i];
    memcpy(s->sum, thread, sizeof thread);
    for (int i = 0; i < n; i++) weight[i] = llm42__round_bf16(weight[i]);
    for (int i = 0; i < a->d; i++) s->out[i] *= keep;
    for (int t = begin; t < end; t += 16)
        for (int c = 0; c < p->of_values; c++)
            llm42__sm90_multiply(core_of(a->control), weight + t - begin, 16, &p->v[t / 16 * p->of_values + c],
                                 s->out + 16 * c);
}

// A split: its blocks from last to first -> out, whose weights have the sum 1, and the logarithm of their sum.
static float split(const attention *a, const panels *p, const float *q, int first, int last, int visible, float *out) {
    state s = {.top = -INFINITY};
    for (int i = 0; i < last - first; i++) {
        const int b = a->control & CONTROL_ASCENDING ? first + i : last - 1 - i, begin = b * a->block;
        if (begin < visible) block(a, p, q, begin, LLM42__MIN(visible, begin + a->block), &s);
    }
    const float sum = (s.sum[0] + s.sum[2]) + (s.sum[1] + s.sum[3]), inverse = sum == 0 ? 1 : 1 / sum;
    for (int i = 0; i < a->d; i++) out[i] = s.out[i] * inverse;
    return sum == 0 ? -INFINITY : fmaf(s.top, a->scale, llm42_sfu_lg2(sum) * llm42__float(0x3f317218));
}

static void row(const attention *a, const panels *p, int head, int r) {
    const int blocks = (a->keys + a->block - 1) / a->block, each = (blocks + a->splits - 1) / a->splits;
    float q[256], part[128][256], lse[128], weight[128], out[256] = {0}, top = -INFINITY;
    int lanes = 2;
    while (lanes < a->splits) lanes *= 2;
    for (int i = 0; i < a->d; i++) q[i] = llm42__from_bf16(a->q[((int64_t)r * a->heads + head) * a->d + i]);
    for (int s = 0; s < a->splits; s++) {
        lse[s] = split(a, p, q, s * each, LLM42__MIN(blocks, (s + 1) * each), a->visible[r], part[s]);
        top = lse[s] > top ? lse[s] : top;
    }
    for (int s = 0; s < lanes; s++) weight[s] = s < a->splits ? cuda_exp(lse[s] - top) : 0;
    for (int offset = lanes / 2; offset; offset /= 2)
        for (int s = 0; s < offset; s++) weight[s] += weight[s + offset];
    const float all = cuda_log(weight[0]) + top;
    a->lse[(int64_t)head * a->rows + r] = a->splits > 1 ? all : lse[0];
    for (int s = 0; s < a->splits; s++)
        for (int i = 0; i < a->d; i++)
            out[i] = a->splits > 1 ? fmaf(cuda_exp(lse[s] - all), part[s][i], out[i]) : part[0][i];
    for (int i = 0; i < a->d; i++) a->out[((int64_t)r * a->heads + head) * a->d + i] = llm42__to_bf16(out[i]);
}

void layer_attention(const attention *a) {
    for (int kv = 0; kv < a->kv_heads; kv++) {
        const int group = a->heads / a->kv_heads;
        const panels p = fill(a, kv);
#pragma omp parallel for schedule(dynamic)
        for (int i = 0; i < group * a->rows; i++) row(a, &p, kv * group + i % group, i / group);
        free(p.k), free(p.v);
    }
}
