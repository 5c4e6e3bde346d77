// explain.c: the sum behind the first value that differs (see explain.h).
#include "explain.h"

enum { EXPLAIN_LARGEST = 5 };

static float explain_bf16(float x) {  // rounds to nearest, ties to even
    uint32_t bits = float_bits(x);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// Products j0 to j1 - 1 in the one order.
static float explain_part(const float *x, const float *w, int j0, int j1) {
    float partial[16] = {0};
    for (int j = j0; j < j1; j++) partial[(j - j0) % 16] = fmaf(x[j], w[j], partial[(j - j0) % 16]);
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++) partial[i] += partial[i + half];
    return partial[0];
}

// The matrix behind an operator, and the operator that its products take their other factor from; NULL: it is none that
// is known here.
static const llm42_matrix *explain_matrix(const llm42_model *m, const shot *s, const char **input) {
    const llm42_layer *layer = s->layer >= 0 ? &m->layer[s->layer] : NULL;
    if (!layer) *input = "final_norm";
    if (!layer) return strcmp(s->name, "logits") ? NULL : &m->head;
    if (!strcmp(s->name, "down")) return *input = "gate", layer->down.data ? &layer->down : NULL;
    if (!strcmp(s->name, "o")) return *input = "attention", &layer->o;
    if (!strcmp(s->name, "v")) return *input = "attention_norm", layer->v_bias ? NULL : &layer->v;
    return NULL;
}

static const float *explain_input(const film *f, int at, const char *name, int row, int k) {
    for (int i = at - 1; i >= 0; i--)
        if (!strcmp(f->shots[i].name, name))
            return f->shots[i].width == k ? f->shots[i].values + (size_t)row * (size_t)k : NULL;
    return NULL;
}

// One side's sum, which is what its film has after rounding. Returns the sum before that.
static float explain_sum(const explain_side *side, const float *x, const float *w, const llm42_matrix *m, float value) {
    const int parts = llm42_cpu_splits(side->schedule, side->shape, m->n, m->k);
    const int step = ((m->k + parts - 1) / parts + 15) & ~15;
    float sum = 0;
    printf("\n%s adds them in %d part%s, because its pass is %s with %d row%s:\n", side->option, parts,
           parts == 1 ? "" : "s", llm42_schedule_name(side->schedule), side->shape, side->shape == 1 ? "" : "s");
    for (int j = 0, part = 1; j < m->k; j += step, part++) {
        const int end = j + step < m->k ? j + step : m->k;
        const float of = explain_part(x, w, j, end);
        sum = j ? sum + of : of;
        if (parts > 1) printf("  products %4d to %4d  %18.10g\n", j + 1, end, (double)of);
    }
    printf("  sum                    %18.10g  in bf16 %.9g\n", (double)sum, (double)explain_bf16(sum));
    if (float_bits(explain_bf16(sum)) != float_bits(value))
        printf("  (The pass gave %.9g: this is not how it adds.)\n", (double)value);
    return sum;
}

static void explain_largest(const float *x, const float *w, int k) {
    int shown[EXPLAIN_LARGEST] = {0};
    for (int n = 0; n < EXPLAIN_LARGEST && n < k; n++) {
        int best = -1;
        for (int j = 0; j < k; j++) {
            bool taken = false;
            for (int i = 0; i < n; i++) taken |= shown[i] == j;
            if (!taken && (best < 0 || fabsf(x[j] * w[j]) > fabsf(x[best] * w[best]))) best = j;
        }
        shown[n] = best;
        printf("  product %4d  %13.9g x %13.9g = %14.9g\n", best + 1, (double)x[best], (double)w[best],
               (double)x[best] * (double)w[best]);
    }
}

// Three neighbours among the products that fp32 adds to different sums, depending on the brackets.
static void explain_brackets(const float *x, const float *w, int k) {
    for (int j = 0; j + 2 < k; j++) {
        const float p = x[j] * w[j], q = x[j + 1] * w[j + 1], r = x[j + 2] * w[j + 2];
        const float left = (p + q) + r, right = p + (q + r);
        if (left == right) continue;
        printf("\nThree of the products show that fp32 sums depend on the brackets. p, q, r are products %d to %d:\n"
               "  (p + q) + r = %.10g\n  p + (q + r) = %.10g\n",
               j + 1, j + 3, (double)left, (double)right);
        return;
    }
}

const char *explain(const llm42_model *model, const film *const f[2], int at, int row, int column,
                    const explain_side side[2]) {
    const shot *s = &f[0]->shots[at];
    const char *input = NULL;
    const llm42_matrix *m = explain_matrix(model, s, &input);
    if (!m) return "only v (without a bias), o, down of a dense layer and the logits are sums that it can take again";
    const float *x = explain_input(f[0], at, input, row, m->k);
    if (!x || m->type != LLM42_DTYPE_BF16) return "its weights must be bf16";
    float *w = malloc(sizeof *w * (size_t)m->k), sum[2];
    if (!w) return "out of memory";
    double exact = 0;
    for (int j = 0; j < m->k; j++) {
        const uint32_t bits = (uint32_t)((const uint16_t *)m->data)[(size_t)column * (size_t)m->k + (size_t)j] << 16;
        memcpy(&w[j], &bits, sizeof bits);
        exact += (double)x[j] * (double)w[j];
    }
    printf("\nThe sum behind it: %d products of an input (%s) and a weight. The largest are\n", m->k, input);
    explain_largest(x, w, m->k);
    for (int i = 0; i < 2; i++) {
        const size_t place = (size_t)row * (size_t)s->width + (size_t)column;
        sum[i] = explain_sum(&side[i], x, w, m, f[i]->shots[at].values[place]);
    }
    const double a = explain_bf16(sum[0]), b = explain_bf16(sum[1]);
    printf("\nexact                    %18.10g  (the products are exact, and added in fp64)\n", exact);
    printf("halfway                  %18.10g  between the two bf16 numbers, which are %.3g apart\n", (a + b) / 2,
           fabs(a - b));
    if (sum[0] != (a + b) / 2 && sum[1] != (a + b) / 2)
        printf("The two sums lie on two sides of halfway, so bf16 rounds them to two numbers: a difference of %.2g\n"
               "becomes one of %.2g.\n",
               fabs((double)sum[0] - (double)sum[1]), fabs(a - b));
    else
        printf(
            "The sum of %s lies exactly halfway, where bf16 takes the number whose last bit is 0. The other sum does\n"
            "not, and goes to the other number: a difference of %.2g becomes one of %.2g.\n",
            side[sum[1] == (a + b) / 2].option, fabs((double)sum[0] - (double)sum[1]), fabs(a - b));
    explain_brackets(x, w, m->k);
    free(w);
    return NULL;
}
