// compare.c: where two computations begin to differ (see compare.h).
#define _POSIX_C_SOURCE 200809L
#include "compare.h"

#include <assert.h>

uint32_t float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

bool finite_bits(float x) { return (float_bits(x) & 0x7f800000u) != 0x7f800000u; }

double compare_ulps(float a, float b, llm42_dtype type) {
    const uint32_t bits[2] = {float_bits(a), float_bits(b)};
    int64_t place[2];
    if (bits[0] == bits[1]) return 0;
    if (!finite_bits(a) || !finite_bits(b)) return (double)INFINITY;
    for (int i = 0; i < 2; i++) place[i] = bits[i] >> 31 ? -(int64_t)(bits[i] & 0x7fffffffu) : (int64_t)bits[i];
    return fabs((double)(place[0] - place[1])) / (type == LLM42_DTYPE_BF16 ? 65536.0 : 1.0);
}

double compare_row(const float *got, const float *want, int n) {
    double sum = 0, size = 0;
    for (int i = 0; i < n; i++) {
        if (!finite_bits(got[i]) || !finite_bits(want[i])) return (double)INFINITY;
        sum += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        size += (double)want[i] * want[i];
    }
    return size > 0 ? sqrt(sum / size) : sqrt(sum / n);
}

const char *ulps_text(double ulps, llm42_dtype type, char text[48]) {
    snprintf(text, 48, "%.6g %s of %s", ulps, ulps == 1 ? "ulp" : "ulps", type == LLM42_DTYPE_BF16 ? "bf16" : "fp32");
    return text;
}

void film_take(void *user, int layer, const char *name, int rows, int width, const float *values) {
    film *f = user;
    if (f->rows && f->rows < rows) rows = f->rows;
    const size_t n = (size_t)rows * (size_t)width;
    shot s = {.layer = layer, .rows = rows, .width = width, .values = malloc((n ? n : 1) * sizeof *values)};
    if (!s.values) {
        f->failed = true;
        return;
    }
    snprintf(s.name, sizeof s.name, "%s", name);
    memcpy(s.values, values, n * sizeof *values);
    arrput(f->shots, s);
}

void film_free(film *f) {
    for (int i = 0; i < (int)arrlen(f->shots); i++) free(f->shots[i].values);
    arrfree(f->shots);
}

bool same_shape(const shot *a, const shot *b) {
    return a->layer == b->layer && a->rows == b->rows && a->width == b->width && !strcmp(a->name, b->name);
}

comparison compare_shots(const shot *a, const shot *b, llm42_dtype type) {
    comparison c = {.values = (int64_t)a->rows * a->width, .row = -1, .column = -1};
    assert(same_shape(a, b));
    for (int r = 0; r < a->rows; r++) {
        const float *x = a->values + (size_t)r * (size_t)a->width, *y = b->values + (size_t)r * (size_t)a->width;
        if (!memcmp(x, y, sizeof *x * (size_t)a->width)) continue;
        for (int i = 0; i < a->width; i++) {
            if (float_bits(x[i]) == float_bits(y[i])) continue;
            if (!c.differing++) c.row = r, c.column = i;
            c.ulps = fmax(c.ulps, compare_ulps(x[i], y[i], type));
        }
        c.relative = fmax(c.relative, compare_row(y, x, a->width));
    }
    return c;
}

int film_first_difference(const film *a, const film *b, llm42_dtype type, comparison *c) {
    const int count[2] = {(int)arrlen(a->shots), (int)arrlen(b->shots)};
    for (int i = 0; i < count[0] || i < count[1]; i++) {
        *c = (comparison){.row = -1, .column = -1};
        if (i >= count[0] || i >= count[1] || !same_shape(&a->shots[i], &b->shots[i])) return i;
        *c = compare_shots(&a->shots[i], &b->shots[i], type);
        if (c->differing) return i;
    }
    return -1;
}

const char *film_first_text(const film *a, const film *b, llm42_dtype type, char text[240]) {
    comparison c;
    const int i = film_first_difference(a, b, type, &c);
    if (i < 0) return "no operator before the logits";
    if (c.row < 0) {
        snprintf(text, 240, "operator %d of the pass is another one, or missing", i);
        return text;
    }
    const shot *s = &a->shots[i];
    const size_t at = (size_t)c.row * (size_t)s->width + (size_t)c.column;
    const float x = s->values[at], y = b->shots[i].values[at];
    char distance[48];
    snprintf(text, 240, "layer %d, %s, row %d, column %d: %.9g and %.9g, %s apart", s->layer, s->name, c.row, c.column,
             (double)x, (double)y, ulps_text(compare_ulps(x, y, type), type, distance));
    return text;
}
