// cuda_steps: how a GPU's tensor cores add. It runs many random steps, each sum + a[0] b[0] + ... + a[15] b[15] of bf16
// numbers in fp32 (llm42__mma), and computes the same steps on the host by every hypothesis of a list, in integers:
//
// - bits: an addend keeps 23 to 27 binary places below 2^e. e is the largest exponent among those of the addends
// - least: e is at least -133; or, where 16 products are added at once and their sum is cut, -132, -134, or anything
// - addends: what is behind these places is cut off, or rounded to nearest
// - products: the exponent of a product is that of its factors, added; or its own, as that of a normalised number
// - at a time: 4, 8 or 16 products are added at once, in ascending order. Their sum in fp32 is an addend of the next
// - result: the sum of a group is cut to fp32 toward zero, or rounded to nearest
//
// To nearest: a tie goes to the even neighbour. All hypotheses have in common: subnormal numbers count in full, with
// the exponent of the smallest normal one. Zeros and sums too small are +0, too large ones infinite, NaN 0x7fffffff.
//
// The program prints how many steps of each kind of input have the bits of each hypothesis, and names the one that
// holds for all. On sm_90 it has to be llm42__core_step with Hopper's row of the table; other devices are only
// measured. A chain of steps has to be llm42__k_matmul over k = 4096. Each form of the products of warpgroups
// (llm42__wgmma, sm_90a) has to be the same step, four that run at once four steps with k ascending, and those of e4m3
// llm42__hopper_e4m3.
//
// To give llm42.h the arithmetic of another GPU, add the hypothesis that holds there to the table in section
// tensor-cores, let llm42__sm90_multiply take it, and add a line to llm42__emulated in section sm90 and a value to
// llm42_arithmetic; other sums may be those of sm90. llm42__find_devices and llm42__cuda_arithmetic have to know it.
// Then test_cuda --part arithmetic compares whole passes.
//
//   build/tests/cuda_steps [--steps N] [--brief]       --brief leaves the table out
//
// Built by `make test-cuda`. The last line is "N passed, N failed"; without a device both are 0. The Makefile also
// builds it for emulated tensor cores (cuda_steps_emulated), where --bits N and --least N change the tensor cores and
// --major N the compute capability, as controls.
#ifdef LLM42_EMULATED
#include "emulated_runtime.h"
#endif
#define LLM42_BASE
#include "llm42.h"

#include "kernels.cu"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#define COUNTS_OF "cuda_steps"
#include "counts.h"

extern "C" float steps_sm90(float sum, const float *a, const float *b);  // steps/library.c: llm42__core_step
extern "C" float steps_e4m3(float sum, const float *a, const float *b);  // llm42__core_step, of llm42__hopper_e4m3

enum { ROWS = 16, COLUMNS = 8, TERMS = 16, STEPS_OF_TILE = ROWS * COLUMNS };  // of one llm42__mma
enum { GROUP_ROWS = 64, GROUP_TERMS = 64, GROUP_STEPS = GROUP_TERMS / TERMS, GROUP_THREADS = 128 };  // of a warpgroup

static bool check(bool ok, const char *what) { return count_check(ok, what, "bits"); }

// Not counted: it says nothing about bits.
static bool works(cudaError_t status, const char *what) {
    return status == cudaSuccess || check(false, (std::string(what) + ": " + cudaGetErrorString(status)).c_str());
}

// >>hypotheses ---------------------------------------------------------------------------------------------------
enum { NO_LEAST = -1000 };
struct hypothesis {
    int bits, least;
    bool near_addends, normalised;
    int group;
    bool near_result;
    std::string words() const {
        return std::to_string(bits) + " bits" +
               (least == NO_LEAST ? "" : " below 2^" + std::to_string(least) + " or more") + ", addends " +
               (near_addends ? "rounded to nearest" : "cut") + ", products " +
               (normalised ? "normalised" : "as they are") + ", " + std::to_string(group) + " at a time, result " +
               (near_result ? "rounded to nearest" : "cut");
    }
    bool is_sm90() const {
        return bits == 25 && least == -133 && !near_addends && !normalised && group == 16 && !near_result;
    }
};

static std::vector<hypothesis> all_hypotheses() {
    std::vector<hypothesis> all;
    for (int bits = 23; bits <= 27; bits++)
        for (int least : {-132, -133, -134, (int)NO_LEAST})
            for (int near_addends = 0; near_addends < 2; near_addends++)
                for (int normalised = 0; normalised < 2; normalised++)
                    for (int group = 4; group <= 16; group *= 2)
                        for (int near_result = 0; near_result < 2; near_result++)
                            if (least == -133 || (group == 16 && !near_result))
                                all.push_back(
                                    {bits, least, near_addends != 0, normalised != 0, group, near_result != 0});
    return all;
}

static int top_bit(uint64_t x) { return 63 - __builtin_clzll(x); }  // of x > 0

// size x 2^shift, without what is behind the point.
static uint64_t shifted(uint64_t size, int shift, bool nearest) {
    if (shift >= 0) return size << shift;
    if (shift < -62) return 0;
    const uint64_t kept = size >> -shift, rest = size & ((1ull << -shift) - 1), half = 1ull << (-shift - 1);
    return kept + (nearest && (rest > half || (rest == half && (kept & 1))));
}

// The fp32 number (its bits) for total x 2^unit.
static uint32_t to_fp32(int64_t total, int unit, bool nearest) {
    if (!total) return 0;
    const uint32_t sign = total < 0 ? 0x80000000u : 0;
    const uint64_t size = (uint64_t)(total < 0 ? -total : total);
    const int exponent = top_bit(size) + unit, last = LLM42__MAX(exponent - 23, -149);  // 2^last: the last place
    if (exponent > 127) return sign | 0x7f800000u;
    // The leading bit of a normal number adds one to the exponent's field.
    const uint32_t bits = (uint32_t)shifted(size, unit - last, nearest) + ((uint32_t)(last + 149) << 23);
    return bits ? sign | LLM42__MIN(bits, 0x7f800000u) : 0;
}

// +-size x 2^unit, with the exponent that counts when the largest is looked for.
struct addend {
    uint64_t size;  // 0: zero
    int unit, exponent;
    bool negative;
};

enum { NOT_A_NUMBER = 1, PLUS_INFINITE = 2, MINUS_INFINITE = 4 };

static addend of_fp32(uint32_t bits) {
    const int field = (int)(bits >> 23 & 255), exponent = LLM42__MAX(field, 1) - 127;
    return {(bits & 0x7fffffu) | (field ? 0x800000u : 0), exponent - 23, exponent, (bits >> 31) != 0};
}

// One step: its accumulator and its products, whatever the hypothesis.
struct step {
    uint32_t sum;
    addend product[TERMS];
    unsigned special = 0;  // what is infinite or not a number

    step(const uint16_t *a, const uint16_t *b, uint32_t c) : sum(c) {
        note(c);
        for (int i = 0; i < TERMS; i++) {
            const uint32_t x = (uint32_t)a[i] << 16, y = (uint32_t)b[i] << 16;
            const addend p = of_fp32(x), q = of_fp32(y);
            const bool minus = p.negative != q.negative;
            product[i] = {(p.size >> 16) * (q.size >> 16), p.exponent + q.exponent - 14, p.exponent + q.exponent,
                          minus};
            if (!finite(x) || !finite(y)) {
                const bool number = !nan(x) && !nan(y) && p.size && q.size;  // infinity times zero is none
                special |= !number ? NOT_A_NUMBER : minus ? MINUS_INFINITE : PLUS_INFINITE;
            }
        }
    }
    static bool finite(uint32_t bits) { return (bits & 0x7f800000u) != 0x7f800000u; }
    static bool nan(uint32_t bits) { return (bits & 0x7fffffffu) > 0x7f800000u; }
    void note(uint32_t bits) {
        if (!finite(bits)) special |= nan(bits) ? NOT_A_NUMBER : bits >> 31 ? MINUS_INFINITE : PLUS_INFINITE;
    }

    uint32_t by(const hypothesis &h) const {
        if (special == PLUS_INFINITE) return 0x7f800000u;
        if (special == MINUS_INFINITE) return 0xff800000u;
        if (special) return 0x7fffffffu;
        uint32_t result = sum;
        for (int from = 0; from < TERMS && finite(result); from += h.group) result = group(h, from, result);
        return result;
    }
    uint32_t group(const hypothesis &h, int from, uint32_t accumulator) const {
        addend all[TERMS + 1];
        int largest = h.least;
        for (int i = 0; i <= h.group; i++) {
            all[i] = i < h.group ? product[from + i] : of_fp32(accumulator);
            if (!all[i].size) continue;
            if (h.normalised && i < h.group) all[i].exponent = top_bit(all[i].size) + all[i].unit;
            largest = LLM42__MAX(largest, all[i].exponent);
        }
        int64_t total = 0;
        for (int i = 0; i <= h.group; i++) {
            if (!all[i].size) continue;
            const int64_t kept = (int64_t)shifted(all[i].size, all[i].unit - largest + h.bits, h.near_addends);
            total += all[i].negative ? -kept : kept;
        }
        return to_fp32(total, largest - h.bits, h.near_result);
    }
};

static float fp32(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static uint32_t by_library(const uint16_t *a, const uint16_t *b, uint32_t c) {
    float x[TERMS], y[TERMS];
    for (int i = 0; i < TERMS; i++) x[i] = fp32((uint32_t)a[i] << 16), y[i] = fp32((uint32_t)b[i] << 16);
    return bits_of(steps_sm90(fp32(c), x, y));
}

// >>inputs -------------------------------------------------------------------------------------------------------
enum { NORMAL, SPREAD, FROM_ZERO, CANCELLING, SUBNORMAL, TINY, TINIEST, BEYOND, ZEROS, INFINITE, NANS, KINDS };
static const char *const kind_names[KINDS] = {"normal",
                                              "spread",
                                              "zero accumulator",
                                              "cancelling",
                                              "subnormal inputs",
                                              "subnormal results",
                                              "smallest results",
                                              "beyond the largest",
                                              "zeros",
                                              "infinities",
                                              "NaN"};

struct source {
    uint64_t key, at = 0;
    uint64_t next() { return llm42__hash(key + at++); }
    int between(int low, int high) { return low + (int)(next() % (uint64_t)(high - low + 1)); }
    bool one_in(int n) { return between(1, n) == 1; }
    uint32_t sign() { return (uint32_t)(next() & 1) << 31; }
    // A number of fp32 with an exponent in [low, high]. Below -126 it is subnormal.
    uint32_t number(int low, int high) {
        const int exponent = LLM42__MIN(between(low, high), 127);
        const uint32_t fraction = (uint32_t)(next() & 0x7fffff);
        if (exponent >= -126) return sign() | (uint32_t)(exponent + 127) << 23 | fraction;
        return sign() | (0x800000u | fraction) >> LLM42__MIN(-126 - exponent, 31);
    }
    uint16_t bf16(int low, int high) { return (uint16_t)(number(low, high) >> 16); }
};

// What a tile multiplies: rows of a by columns of b.
struct shape {
    size_t rows, columns, terms;
};
// The sums of a kind: tile t multiplies a[t], [rows][terms], by b[t], [columns][terms], and adds c[t], [rows][columns].
struct inputs {
    int tiles;
    shape of;
    std::vector<uint16_t> a, b;
    std::vector<uint32_t> c;
    inputs(int tiles, shape of)
        : tiles(tiles), of(of), a((size_t)tiles * of.rows * of.terms), b((size_t)tiles * of.columns * of.terms),
          c((size_t)tiles * of.rows * of.columns) {}
    size_t sums() const { return c.size(); }
    const uint16_t *a_of(size_t i) const { return &a[i / of.columns * of.terms]; }
    const uint16_t *b_of(size_t i) const {
        return &b[(i / of.columns / of.rows * of.columns + i % of.columns) * of.terms];
    }
};

// Terms that cancel in pairs, most up to the last place.
static void pair_up(source *s, uint16_t *x, bool negate) {
    for (int i = 0; i < TERMS; i += 2)
        if (!s->one_in(6)) x[i + 1] = (uint16_t)((x[i] ^ (negate ? 0x8000 : 0)) ^ (s->one_in(3) ? 1 : 0));
}

// Powers of two, so that products of TINIEST are whole multiples of 2^-150 by turns with ones of 2^-154 to 2^-164. Half
// of the former and three of four of the latter are zero.
static void part_sizes(source *s, uint16_t *x) {
    for (int i = 0; i < TERMS; i++)
        if (!s->one_in(i % 2 ? 4 : 2)) x[i] = 0;
        else if (i % 2 == 0) x[i] = (uint16_t)((x[i] & 0x8000) | (127 - s->between(73, 75)) << 7);
}

// What accumulators of CANCELLING begin from: minus the sum of the products, nearly.
static uint32_t minus_sum(const uint16_t *a, const uint16_t *b) {
    double sum = 0;
    for (int i = 0; i < TERMS; i++) sum -= (double)fp32((uint32_t)a[i] << 16) * fp32((uint32_t)b[i] << 16);
    return bits_of((float)sum);
}

static uint16_t factor(source *s, int kind, int base, bool of_a) {
    static const uint16_t nans[] = {0x7fff, 0xffff, 0x7fc0, 0xffc0, 0x7f81, 0xff81};
    switch (kind) {
    case NORMAL: return s->bf16(-4, 0);
    case SPREAD: return s->bf16(-12, 12);
    case FROM_ZERO: return base % 2 ? s->bf16(-12, 12) : s->bf16(-3, 0);
    case CANCELLING: return s->bf16(-6, 6);
    case SUBNORMAL:
        if (of_a) return s->one_in(2) ? s->bf16(-133, -127) : s->bf16(-126, -120);
        return s->bf16(base % 3 * 55 - 3, base % 3 * 55 + 8);
    case TINY: return s->bf16(-74, -61);
    case TINIEST: return (uint16_t)(s->number(-82, -77) >> 16 & 0xff80);
    case BEYOND: return (uint16_t)(s->bf16(56, base % 2 ? 63 : 61) & (s->one_in(4) ? 0xffff : 0x7fff));
    case ZEROS: return s->one_in(base % 4 ? 8 : 100000) ? s->bf16(-3, 3) : (uint16_t)(s->sign() >> 16);
    case INFINITE:
        if (s->one_in(60)) return (uint16_t)(0x7f80 | s->sign() >> 16);
        return s->one_in(60) ? (uint16_t)(s->sign() >> 16) : s->bf16(-140, 127);
    default: return s->one_in(60) ? nans[s->next() % 6] : s->bf16(-12, 12);
    }
}

static uint32_t accumulator(source *s, int kind, int base, const uint16_t *a, const uint16_t *b) {
    switch (kind) {
    case NORMAL: return s->number(-4, 4);
    case SPREAD: return s->number(-24, 24);
    case FROM_ZERO: return 0;
    case CANCELLING: return s->one_in(4) ? s->number(-12, 12) : minus_sum(a, b) ^ (uint32_t)(s->next() & 7);
    case SUBNORMAL: return s->number(base % 3 * 55 - 140, base % 3 * 55 - 112);
    case TINY: return s->one_in(3) ? s->number(-149, -122) : s->sign();
    case TINIEST: return s->one_in(3) ? s->number(-149, -134) : s->sign();
    case BEYOND: return s->one_in(3) ? s->number(120, 127) : s->number(127, 127) & (s->one_in(4) ? ~0u : 0x7fffffffu);
    case ZEROS: return s->one_in(3) ? s->number(-150, 3) : s->one_in(2) ? minus_sum(a, b) : s->sign();
    case INFINITE: return s->one_in(16) ? 0x7f800000u | s->sign() : s->number(-12, 127);
    default: return s->one_in(16) ? 0x7f800001u | s->sign() | (uint32_t)(s->next() & 0x7fffff) : s->number(-24, 24);
    }
}

static inputs make_inputs(int kind, int tiles, shape of) {
    inputs in(tiles, of);
    source s = {llm42__hash(42 + (uint64_t)kind)};
    const size_t a_size = of.rows * of.terms, b_size = of.columns * of.terms, c_size = of.rows * of.columns;
    for (int t = 0; t < tiles; t++) {
        uint16_t *a = &in.a[(size_t)t * a_size], *b = &in.b[(size_t)t * b_size];
        for (size_t i = 0; i < a_size; i++) a[i] = factor(&s, kind, t, true);
        for (size_t i = 0; i < b_size; i++) b[i] = factor(&s, kind, t, false);
        for (size_t i = 0; kind == TINIEST && i < a_size; i += TERMS) part_sizes(&s, a + i);
        for (size_t i = 0; kind == TINIEST && i < b_size; i += TERMS) part_sizes(&s, b + i);
        const bool pairs = kind == CANCELLING || ((kind == TINY || kind == BEYOND || kind == ZEROS) && t % 4 == 3);
        for (size_t i = 0; pairs && i < a_size; i += TERMS) pair_up(&s, a + i, true);
        for (size_t i = 0; pairs && i < b_size; i += TERMS) pair_up(&s, b + i, false);
        for (size_t i = (size_t)t * c_size; i < (size_t)(t + 1) * c_size; i++)
            in.c[i] = accumulator(&s, kind, t, in.a_of(i), in.b_of(i));
    }
    return in;
}

// >>device -------------------------------------------------------------------------------------------------------
// Takes one step: c -> sum, each [tiles][16 rows][8 columns]. Tile t has rows of a from a + t a_tile on, columns of b
// from b + t b_tile on. Rows and columns are `stride` apart.
// Work: a block of one warp takes a tile, in the layout of the PTX manual for mma.m16n8k16. Order: that of llm42__mma.
struct operands {
    const uint16_t *a, *b;
    size_t a_tile, b_tile, stride;
};
__global__ void k_step(operands from, const float *c, float *sum) {
    const int g = threadIdx.x / 4, pair = threadIdx.x % 4 * 2;
    const uint16_t *a = from.a + blockIdx.x * from.a_tile + g * from.stride + pair;
    const uint16_t *b = from.b + blockIdx.x * from.b_tile + g * from.stride + pair;
    const size_t at = (size_t)blockIdx.x * STEPS_OF_TILE + g * COLUMNS + pair, below = at + 8 * COLUMNS;
    llm42__wait_for_previous();
    float value[4] = {c[at], c[at + 1], c[below], c[below + 1]};
    const uint32_t rows[4] = {*(const uint32_t *)a, *(const uint32_t *)(a + 8 * from.stride),
                              *(const uint32_t *)(a + 8), *(const uint32_t *)(a + 8 * from.stride + 8)};
    llm42__mma(value, rows, *(const uint32_t *)b, *(const uint32_t *)(b + 8));
    sum[at] = value[0], sum[at + 1] = value[1], sum[below] = value[2], sum[below + 1] = value[3];
}

template <typename T> static T *on_device(const std::vector<T> &from) {
    void *to = nullptr;
    works(cudaMalloc(&to, from.size() * sizeof(T)), "memory");
    works(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice), "a copy");
    return (T *)to;
}
static bool fetch(std::vector<uint32_t> *to, const void *from) {
    return works(cudaDeviceSynchronize(), "a kernel") &&
           works(cudaMemcpy(to->data(), from, to->size() * 4, cudaMemcpyDeviceToHost), "a copy");
}

static std::vector<uint32_t> run_steps(const inputs &in) {
    std::vector<uint32_t> sum(in.sums());
    uint16_t *a = on_device(in.a), *b = on_device(in.b);
    uint32_t *c = on_device(in.c);
    const operands from = {a, b, ROWS * TERMS, COLUMNS * TERMS, TERMS};
    works(llm42__launch(k_step, dim3((unsigned)in.tiles), dim3(32), 0, 0, from, (const float *)c, (float *)c),
          "a launch");
    fetch(&sum, c);
    cudaFree(a), cudaFree(b), cudaFree(c);
    return sum;
}

// >>chains -------------------------------------------------------------------------------------------------------
// y[R, N] = x[R, k] w[N, k]^T by single steps: from k = 0 upwards, or downwards.
enum { CHAIN = 4096, CHAIN_ROWS = COLUMNS, CHAIN_OUTPUTS = 64 };

static std::vector<uint32_t> run_chain(const uint16_t *w, const uint16_t *x, bool upwards) {
    std::vector<uint32_t> sum(CHAIN_OUTPUTS * CHAIN_ROWS);
    uint32_t *at = on_device(sum);
    for (int i = 0; i < CHAIN / TERMS; i++) {
        const int k = (upwards ? i : CHAIN / TERMS - 1 - i) * TERMS;
        const operands from = {w + k, x + k, (size_t)ROWS * CHAIN, 0, CHAIN};
        const cudaError_t status = llm42__launch(k_step, dim3(CHAIN_OUTPUTS / ROWS), dim3(32), 0, 0, from,
                                                 (const float *)at, (float *)at);
        if (status != cudaSuccess && !works(status, "a launch")) break;
    }
    fetch(&sum, at);
    cudaFree(at);
    return sum;
}

// Sums that nearly cancel: the second half of a row of x is the negative of the first, up to the last place.
static void check_chains(int processors) {
    source s = {llm42__hash(7)};
    std::vector<uint16_t> w(CHAIN_OUTPUTS * CHAIN), x(CHAIN_ROWS * CHAIN);
    for (size_t i = 0; i < w.size(); i++) w[i] = i % CHAIN < CHAIN / 2 ? s.bf16(-8, 0) : w[i - CHAIN / 2];
    for (size_t i = 0; i < x.size(); i++)
        x[i] = i % CHAIN < CHAIN / 2 ? s.bf16(-8, 0) : (uint16_t)(x[i - CHAIN / 2] ^ (s.one_in(9) ? 0x8001 : 0x8000));
    uint16_t *device_w = on_device(w), *device_x = on_device(x);
    const std::vector<uint32_t> want = run_chain(device_w, device_x, true),
                                other = run_chain(device_w, device_x, false);
    std::vector<uint32_t> y(want.size());
    uint32_t *device_y = on_device(y);
    int same = 0;
    for (const llm42__tile_kind &kind : llm42__tile_kinds) {
        works(cudaMemset(device_y, 0xff, y.size() * 4), "cudaMemset");
        works(kind.fp32((const llm42__bf16 *)device_x, (const llm42__bf16 *)device_w, device_y, CHAIN_ROWS,
                        CHAIN_OUTPUTS, CHAIN, llm42__groups{}, llm42__leaves{}, processors, 0),
              "a launch");
        bool all = fetch(&y, device_y);
        for (int n = 0; n < CHAIN_OUTPUTS; n++)
            for (int r = 0; r < CHAIN_ROWS; r++) all &= y[r * CHAIN_OUTPUTS + n] == want[n * CHAIN_ROWS + r];
        same += all;
    }
    cudaFree(device_w), cudaFree(device_x), cudaFree(device_y);
    printf("chains of %d terms: %d of %d builds of llm42__k_matmul have the bits of single steps\n", CHAIN, same,
           (int)LLM42__TILE_KINDS);
    check(same == LLM42__TILE_KINDS, "llm42__k_matmul is a chain of steps");
    check(want != other, "control: a chain downwards has other bits");
}

// >>table --------------------------------------------------------------------------------------------------------
struct table {
    std::vector<hypothesis> hypotheses = all_hypotheses();
    std::vector<std::vector<size_t>> equal;  // [hypothesis][kind]
    std::vector<uint64_t> results;           // a hash of all results of a hypothesis
    size_t of_library[KINDS] = {}, steps = 0;
    bool description_is_library = true;

    table() : equal(hypotheses.size(), std::vector<size_t>(KINDS)), results(hypotheses.size()) {}
    bool holds(size_t h) const {
        for (size_t count : equal[h])
            if (count != steps) return false;
        return true;
    }
    size_t total(size_t h) const {
        size_t sum = 0;
        for (size_t count : equal[h]) sum += count;
        return sum;
    }
    bool all_differ() const {
        for (size_t i = 0; i < results.size(); i++)
            for (size_t j = 0; j < i; j++)
                if (results[i] == results[j]) {
                    printf("not told apart: %s; %s\n", hypotheses[i].words().c_str(), hypotheses[j].words().c_str());
                    return false;
                }
        return true;
    }
    void print() const {
        printf("bits\tleast\taddends\tproducts\tat_a_time\tresult\tkind\tequal\tsteps\n");
        for (size_t i = 0; i < hypotheses.size(); i++)
            for (int kind = 0; kind < KINDS; kind++) {
                const hypothesis &h = hypotheses[i];
                const std::string least = h.least == NO_LEAST ? "none" : std::to_string(h.least);
                printf("%d\t%s\t%s\t%s\t%d\t%s\t%s\t%zu\t%zu\n", h.bits, least.c_str(),
                       h.near_addends ? "nearest" : "cut", h.normalised ? "normalised" : "as_is", h.group,
                       h.near_result ? "nearest" : "cut", kind_names[kind], equal[i][kind], steps);
            }
    }
};

// Are there enough results that are special in the way of their kind?
static bool are_special(int kind, const std::vector<uint32_t> &results) {
    size_t zeros = 0, subnormal = 0, infinite = 0, nans = 0;
    for (uint32_t result : results) {
        const uint32_t size = result & 0x7fffffffu;
        zeros += size == 0, subnormal += size > 0 && size < 0x800000u;
        infinite += size == 0x7f800000u, nans += size > 0x7f800000u;
    }
    const size_t some = results.size() / 8;
    switch (kind) {
    case TINY: return subnormal > some;
    case TINIEST: return subnormal > some;
    case BEYOND: return infinite > some && infinite < results.size() - some;
    case ZEROS: return zeros > some;
    case INFINITE: return infinite > some;
    case NANS: return nans > some && nans < results.size() - some;
    default: return infinite + nans == 0;
    }
}

// Compares the device's steps of a kind with the library's and with every hypothesis.
static void compare(table *t, int kind, const inputs &in, const std::vector<uint32_t> &device) {
    const size_t count = t->hypotheses.size();
    std::vector<uint32_t> library(in.sums());
    for (size_t i = 0; i < in.sums(); i++) {
        library[i] = by_library(in.a_of(i), in.b_of(i), in.c[i]);
        t->of_library[kind] += library[i] == device[i];
    }
    t->steps = in.sums();
    check(are_special(kind, library), "there are enough special results");
    std::vector<step> all;
    for (size_t i = 0; i < in.sums(); i++) all.emplace_back(in.a_of(i), in.b_of(i), in.c[i]);
        // Each hypothesis is one thread's. Only counts and a hash are kept.
#pragma omp parallel for schedule(dynamic)
    for (size_t h = 0; h < count; h++)
        for (size_t i = 0; i < in.sums(); i++) {
            const uint32_t result = all[i].by(t->hypotheses[h]);
            t->equal[h][kind] += result == device[i];
            t->results[h] = llm42__hash(t->results[h] ^ result);
            if (t->hypotheses[h].is_sm90() && result != library[i]) t->description_is_library = false;
        }
}

// Names the hypothesis that holds. Returns it, or -1.
static int name_winner(const table &t) {
    size_t best = 0;
    int winner = -1, winners = 0;
    for (size_t h = 0; h < t.hypotheses.size(); h++) {
        if (t.holds(h)) winner = (int)h, winners++;
        if (t.total(h) > t.total(best)) best = h;
    }
    if (winners == 1) {
        printf("this hypothesis alone holds for all kinds: %s\n", t.hypotheses[(size_t)winner].words().c_str());
        return winner;
    }
    if (winners) printf("%d hypotheses hold for all kinds: more steps are needed\n", winners);
    else
        printf("no hypothesis holds for all kinds; nearest, with %zu of %zu steps: %s\n", t.total(best),
               t.steps * KINDS, t.hypotheses[best].words().c_str());
    return -1;
}

static void judge(const table &t, const cudaDeviceProp &device) {
    const int winner = name_winner(t);
    const bool as_sm90 = winner >= 0 && t.hypotheses[(size_t)winner].is_sm90();
    if (device.major != 9 || device.minor != 0) {  // as llm42__cuda_arithmetic decides
        printf(
            "the arithmetic of this device, sm_%d%d, is not known to the library%s; the head of this program says how "
            "one is added\n",
            device.major, device.minor, as_sm90 ? ", but its steps are those of sm90" : "");
        return;
    }
    for (int kind = 0; kind < KINDS; kind++) {
        printf("sm90, %s: %zu of %zu steps have the bits of llm42__core_step\n", kind_names[kind], t.of_library[kind],
               t.steps);
        check(t.of_library[kind] == t.steps, kind_names[kind]);
    }
    check(as_sm90, "the hypothesis that holds is that of llm42__core_step");
}

// >>underflow ----------------------------------------------------------------------------------------------------
// Sums that are not zero but too small for fp32, which random inputs hardly ever have: x - x + u x 2^(e - 25), where
// 2^e is the exponent of x and u a small whole number, is below 2^-149. A row has an e from -112 down to -143. A column
// has a u of either sign, and every second tile other sizes. By column the accumulator is +0 or -0.
static int small_e(const inputs &in, size_t tile, size_t row) { return -112 - (int)((tile * in.of.rows + row) % 32); }
static int small_u(size_t tile, size_t column) { return (int)(column / 4 + tile / 2 * 2 + 1) * (column % 2 ? 1 : -1); }
static inputs small_sums(int tiles, shape of) {
    inputs in(tiles, of);
    const auto bf16 = [](float value) { return (uint16_t)(bits_of(value) >> 16); };
    for (size_t t = 0; t < (size_t)tiles; t++) {
        source s = {llm42__hash(t)};
        const size_t first = s.next() % TERMS, second = (first + 1 + s.next() % 7) % TERMS,
                     third = (first + 8 + s.next() % 8) % TERMS;
        for (size_t r = 0; r < of.rows; r++) {
            uint16_t *a = &in.a[(t * of.rows + r) * of.terms];
            a[first] = a[second] = bf16(ldexpf(1.5f, small_e(in, t, r) + 60));
            a[third] = bf16(ldexpf(1, small_e(in, t, r) - 25 + 70));
        }
        for (size_t n = 0; n < of.columns; n++) {
            uint16_t *b = &in.b[(t * of.columns + n) * of.terms];
            b[first] = bf16(ldexpf(1.25f, -60)), b[second] = bf16(ldexpf(-1.25f, -60));
            b[third] = bf16(ldexpf((float)small_u(t, n), -70));
            for (size_t r = 0; r < of.rows; r++) in.c[(t * of.rows + r) * of.columns + n] = n % 4 < 2 ? 0 : 0x80000000u;
        }
    }
    return in;
}

// Prints the sums that a device has otherwise than llm42__core_step, up to a few.
static void check_small(const char *words, const inputs &in, const std::vector<uint32_t> &device) {
    size_t other = 0, too_small = 0;
    for (size_t i = 0; i < in.sums(); i++) {
        const size_t column = i % in.of.columns, row = i / in.of.columns % in.of.rows,
                     tile = i / in.of.columns / in.of.rows;
        const uint32_t want = by_library(in.a_of(i), in.b_of(i), in.c[i]);
        too_small += want == 0;
        if (device[i] == want || ++other > 40) continue;
        const int e = small_e(in, tile, row);
        printf("%s: %d x 2^%d is %08x, by llm42__core_step %08x (e = %d, accumulator %08x)\n", words,
               small_u(tile, column), e - 25, device[i], want, e, in.c[i]);
    }
    printf("%s: of %zu small sums, %zu of which are 0 in fp32, %zu have other bits than llm42__core_step\n", words,
           in.sums(), too_small, other);
    check(too_small > in.sums() / 8, "there are enough sums that are too small for fp32");
    check(!other, "small sums are those of llm42__core_step");
}

// >>warpgroups ---------------------------------------------------------------------------------------------------
// The forms of a warpgroup's product. Kernels for leaves and scores of attention have BOTH operands in shared memory,
// along k. Sums of weights x values have a in registers, and b in shared memory along its columns (TURNED).
enum { BOTH, TURNED };

// Takes STEPS steps: sum [tiles][64][8 EIGHTS] = c + a b^T, or without c if there are several. a [tiles][64][64 terms],
// b [tiles][8 EIGHTS][64 terms], of which the first STEPS x 16 are used.
// Work: a block of four warps takes a tile. Its operands go to shared memory as kernels have them there, in rows of 128
// bytes whose pieces are permuted. Order: that of llm42__wgmma, with k ascending.
template <int EIGHTS, int FORM, int STEPS>
__global__ void __launch_bounds__(GROUP_THREADS)
    k_group(const uint16_t *a, const uint16_t *b, const float *c, float *sum) {
#if LLM42__WARPGROUPS
    enum { N = EIGHTS * 8, B_AT = GROUP_ROWS * 128, SIXTEEN = 16 * 2, PANEL = GROUP_TERMS * 128 };
    extern __shared__ __align__(1024) unsigned char shared[];
    const int g = threadIdx.x % 32 / 4, pair = threadIdx.x % 4 * 2, row = threadIdx.x / 32 * 16 + g;
    const uint32_t a_at = llm42__shared_address(shared), b_at = a_at + B_AT;
    llm42__wait_for_previous();
    a += blockIdx.x * (GROUP_ROWS * GROUP_TERMS), b += blockIdx.x * (N * GROUP_TERMS);
    c += blockIdx.x * (GROUP_ROWS * N), sum += blockIdx.x * (GROUP_ROWS * N);
    for (int i = threadIdx.x; i < GROUP_ROWS * GROUP_TERMS; i += GROUP_THREADS) {
        const int k = i % GROUP_TERMS;
        *(uint16_t *)(shared + llm42__swizzle(i / GROUP_TERMS, k / 8) + k % 8 * 2) = a[i];
    }
    for (int i = threadIdx.x; i < N * GROUP_TERMS; i += GROUP_THREADS) {
        const int n = i / GROUP_TERMS, k = i % GROUP_TERMS, across = FORM == TURNED ? k : n,
                  along = FORM == TURNED ? n : k;
        *(uint16_t *)(shared + B_AT + along / 64 * PANEL + llm42__swizzle(across, along % 64 / 8) +
                      along % 8 * 2) = b[i];
    }
    uint32_t rows[STEPS][4];
    float value[EIGHTS][4];
#pragma unroll
    for (int s = 0; s < STEPS; s++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            rows[s][i] = *(const uint32_t *)(a + (row + i % 2 * 8) * GROUP_TERMS + s * TERMS + pair + i / 2 * 8);
#pragma unroll
    for (int e = 0; e < EIGHTS; e++)
#pragma unroll
        for (int i = 0; i < 4; i++) value[e][i] = c[(row + i / 2 * 8) * N + e * 8 + pair + i % 2];
    llm42__fence_async();
    __syncthreads();
    llm42__wgmma_fence();
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        const int add = STEPS == 1 || s > 0;
        const uint64_t along = llm42__smem_descriptor(b_at + (uint32_t)(s * SIXTEEN), 16);
        if constexpr (FORM == BOTH)
            llm42__wgmma(value, llm42__smem_descriptor(a_at + (uint32_t)(s * SIXTEEN), 16), along, add);
        else llm42__wgmma(value, rows[s], llm42__smem_descriptor(b_at + (uint32_t)(s * TERMS * 128), PANEL), add);
    }
    llm42__wgmma_commit();
    llm42__wgmma_wait<0>();
    llm42__settle(value);
#pragma unroll
    for (int e = 0; e < EIGHTS; e++)
#pragma unroll
        for (int i = 0; i < 4; i++) sum[(row + i / 2 * 8) * N + e * 8 + pair + i % 2] = value[e][i];
#endif
}

typedef void group_kernel(const uint16_t *a, const uint16_t *b, const float *c, float *sum);
struct group_form {
    int n;
    const char *words;
    group_kernel *one, *several;
};
template <int N, int FORM> static group_form form_of(const char *words) {
    return {N, words, k_group<N / 8, FORM, 1>, k_group<N / 8, FORM, GROUP_STEPS>};
}

static std::vector<uint32_t> run_group(group_kernel *kernel, const inputs &in) {
    const size_t bytes = (GROUP_ROWS + in.of.columns) * 128;
    std::vector<uint32_t> sum(in.sums());
    uint16_t *a = on_device(in.a), *b = on_device(in.b);
    uint32_t *c = on_device(in.c);
    works(llm42__launch(kernel, dim3((unsigned)in.tiles), dim3(GROUP_THREADS), bytes, 0, (const uint16_t *)a,
                        (const uint16_t *)b, (const float *)c, (float *)c),
          "a launch");
    fetch(&sum, c);
    cudaFree(a), cudaFree(b), cudaFree(c);
    return sum;
}

// The same by llm42__core_step: one step from c on, or several from zero on, with k ascending or descending.
static std::vector<uint32_t> group_by_library(const inputs &in, int steps, bool upwards) {
    std::vector<uint32_t> sum(in.sums());
#pragma omp parallel for
    for (size_t i = 0; i < in.sums(); i++) {
        sum[i] = steps == 1 ? in.c[i] : 0;
        for (int s = 0; s < steps; s++) {
            const int k = (upwards ? s : steps - 1 - s) * TERMS;
            sum[i] = by_library(in.a_of(i) + k, in.b_of(i) + k, sum[i]);
        }
    }
    return sum;
}

static size_t equal(const std::vector<uint32_t> &x, const std::vector<uint32_t> &y) {
    size_t count = 0;
    for (size_t i = 0; i < x.size(); i++) count += x[i] == y[i];
    return count;
}

// Prints the first few single steps that a device has otherwise, with what they were computed from.
static void show_others(const inputs &in, const std::vector<uint32_t> &device, const std::vector<uint32_t> &library) {
    int shown = 0;
    for (size_t i = 0; i < in.sums() && shown < 3; i++) {
        if (device[i] == library[i]) continue;
        printf("  element %zu: %08x, by llm42__core_step %08x; accumulator %08x, factors", i, device[i], library[i],
               in.c[i]);
        for (int k = 0; k < TERMS; k++) printf(" %04x*%04x", in.a_of(i)[k], in.b_of(i)[k]);
        printf("\n");
        shown++;
    }
}

static void check_group(const group_form &form, int steps) {
    const int tiles = LLM42__MAX(1, steps / (GROUP_ROWS * form.n) / 4) * 4;  // every fourth has inputs of the same sort
    size_t all = 0, one = 0, several = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        const inputs in = make_inputs(kind, tiles, {GROUP_ROWS, (size_t)form.n, GROUP_TERMS});
        const std::vector<uint32_t> step = group_by_library(in, 1, true),
                                    chain = group_by_library(in, GROUP_STEPS, true);
        const std::vector<uint32_t> by_one = run_group(form.one, in);
        const size_t one_here = equal(by_one, step), several_here = equal(run_group(form.several, in), chain);
        check(are_special(kind, step), "there are enough special results of warpgroups");
        if (one_here < in.sums() || several_here < in.sums())
            printf("wgmma m64n%dk16, %s, %s: %zu single steps and %zu sums of %d steps, of %zu\n", form.n, form.words,
                   kind_names[kind], one_here, several_here, GROUP_STEPS, in.sums());
        show_others(in, by_one, step);
        if (kind == CANCELLING)
            check(group_by_library(in, GROUP_STEPS, false) != chain, "control: k descending gives other bits");
        all += in.sums(), one += one_here, several += several_here;
    }
    printf("wgmma m64n%dk16, %s: %zu single steps and %zu sums of %d steps, of %zu, have the bits of "
           "llm42__core_step\n",
           form.n, form.words, one, several, GROUP_STEPS, all);
    check(one == all && several == all, "a warpgroup's products are chains of llm42__core_step");
}

static void check_groups(int steps) {
    static const char both[] = "a and b in shared memory", turned[] = "a in registers, b turned";
    for (const group_form &form :
         {form_of<8, BOTH>(both), form_of<16, BOTH>(both), form_of<32, BOTH>(both), form_of<48, BOTH>(both),
          form_of<64, BOTH>(both), form_of<80, BOTH>(both), form_of<96, BOTH>(both), form_of<112, BOTH>(both),
          form_of<128, BOTH>(both), form_of<160, BOTH>(both), form_of<192, BOTH>(both), form_of<64, TURNED>(turned),
          form_of<128, TURNED>(turned)})
        check_group(form, steps);
}

// >>e4m3 ---------------------------------------------------------------------------------------------------------
enum { EIGHT_TERMS = 32, EIGHT_CHAIN = 128 };

// Takes one step: sum [tiles][64][8 EIGHTS] = c + a b^T, or a chain of four, from zero on. a [tiles][64][128], b
// [tiles][8 EIGHTS][128], in e4m3. Work: see k_group. Order: that of llm42__wgmma_e4m3, with k ascending.
template <int EIGHTS, int STEPS>
__global__ void __launch_bounds__(GROUP_THREADS)
    k_eight(const uint8_t *a, const uint8_t *b, const float *c, float *sum) {
#if LLM42__WARPGROUPS
    enum { N = EIGHTS * 8, B_AT = GROUP_ROWS * 128 };
    extern __shared__ __align__(1024) unsigned char shared[];
    const int pair = threadIdx.x % 4 * 2, row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    const uint32_t a_at = llm42__shared_address(shared);
    llm42__wait_for_previous();
    a += blockIdx.x * (GROUP_ROWS * EIGHT_CHAIN), b += blockIdx.x * (N * EIGHT_CHAIN);
    c += blockIdx.x * (GROUP_ROWS * N), sum += blockIdx.x * (GROUP_ROWS * N);
    for (int i = threadIdx.x; i < (GROUP_ROWS + N) * EIGHT_CHAIN; i += GROUP_THREADS) {  // b's rows are behind a's
        const int r = i / EIGHT_CHAIN, k = i % EIGHT_CHAIN;
        shared[llm42__swizzle(r, k / 16) + k % 16] = r < GROUP_ROWS ? a[i] : b[i - GROUP_ROWS * EIGHT_CHAIN];
    }
    float value[EIGHTS][4];
#pragma unroll
    for (int i = 0; i < EIGHTS * 4; i++) value[i / 4][i % 4] = c[(row + i % 4 / 2 * 8) * N + i / 4 * 8 + pair + i % 2];
    llm42__fence_async();
    __syncthreads();
    llm42__wgmma_fence();
#pragma unroll
    for (int s = 0; s < STEPS; s++)
        llm42__wgmma_e4m3(value, llm42__smem_descriptor(a_at + (uint32_t)(s * EIGHT_TERMS), 16),
                          llm42__smem_descriptor(a_at + B_AT + (uint32_t)(s * EIGHT_TERMS), 16), STEPS == 1 || s > 0);
    llm42__wgmma_commit();
    llm42__wgmma_wait<0>();
    llm42__settle(value);
#pragma unroll
    for (int i = 0; i < EIGHTS * 4; i++)
        sum[(row + i % 4 / 2 * 8) * N + i / 4 * 8 + pair + i % 2] = value[i / 4][i % 4];
#endif
}

// Bytes of a kind: any, of normal size, zeros and subnormal numbers, a few NaN; in every second tile they cancel in
// pairs. Accumulators: of the products' size, of any, subnormal, huge, and nearly minus the sum of the first products.
static uint8_t eight_of(source *s, int kind) {
    const uint8_t any = (uint8_t)((s->next() % 127) | s->sign() >> 24);
    if (kind == 1) return llm42__to_e4m3(fp32(s->number(-3, 5)));
    if (kind == 2) return s->one_in(2) ? any & 0x87 : s->one_in(2) ? any & 0x80 : any;
    return kind == 3 && s->one_in(200) ? 0x7f | any : any;
}
static uint32_t eight_accumulator(source *s, const uint8_t *a, const uint8_t *b) {
    float sum = 0;
    for (int k = 0; k < EIGHT_TERMS; k++) sum -= llm42__from_e4m3(a[k]) * llm42__from_e4m3(b[k]);
    switch (s->between(0, 5)) {
    case 0: return s->number(-6, 10);
    case 1: return s->number(-40, 40);
    case 2: return s->number(-149, -110);
    case 3: return s->number(90, 127);
    case 4: return s->sign();
    default: return bits_of(sum) ^ (uint32_t)(s->next() & 0xfff);
    }
}

template <int N> static void check_eight(int steps) {
    const size_t tiles = (size_t)LLM42__MAX(4, steps / (GROUP_ROWS * N)) / 4 * 4, sums = tiles * GROUP_ROWS * N;
    std::vector<uint8_t> a(tiles * GROUP_ROWS * EIGHT_CHAIN), b(tiles * N * EIGHT_CHAIN);
    std::vector<uint32_t> c(sums), by_one(sums), by_chain(sums), want(sums), chain(sums), other(sums);
    source s = {llm42__hash(N)};
    for (std::vector<uint8_t> *of : {&a, &b})
        for (size_t i = 0; i < of->size(); i++) {
            const size_t tile = i / (of->size() / tiles);
            (*of)[i] = tile % 8 < 4 && i % 2 && !s.one_in(5) ? (*of)[i - 1] ^ (of == &a ? 0x80 : 0)
                                                             : eight_of(&s, (int)tile % 4);
        }
    auto a_of = [&](size_t i) { return &a[i / N * EIGHT_CHAIN]; };
    auto b_of = [&](size_t i) { return &b[(i / N / GROUP_ROWS * N + i % N) * EIGHT_CHAIN]; };
    for (size_t i = 0; i < sums; i++) c[i] = eight_accumulator(&s, a_of(i), b_of(i));
#pragma omp parallel for
    for (size_t i = 0; i < sums; i++) {
        float x[EIGHT_CHAIN], y[EIGHT_CHAIN], up = 0, down = 0;
        for (int k = 0; k < EIGHT_CHAIN; k++) x[k] = llm42__from_e4m3(a_of(i)[k]), y[k] = llm42__from_e4m3(b_of(i)[k]);
        for (int k = 0; k < EIGHT_CHAIN; k += EIGHT_TERMS) {
            up = steps_e4m3(up, x + k, y + k);
            down = steps_e4m3(down, x + EIGHT_CHAIN - EIGHT_TERMS - k, y + EIGHT_CHAIN - EIGHT_TERMS - k);
        }
        want[i] = bits_of(steps_e4m3(fp32(c[i]), x, y)), chain[i] = bits_of(up), other[i] = bits_of(down);
    }
    uint8_t *device_a = on_device(a), *device_b = on_device(b);
    for (std::vector<uint32_t> *to : {&by_one, &by_chain}) {
        uint32_t *device_c = on_device(c);
        works(llm42__launch(to == &by_one ? k_eight<N / 8, 1> : k_eight<N / 8, 4>, dim3((unsigned)tiles),
                            dim3(GROUP_THREADS), (GROUP_ROWS + N) * 128, 0, device_a, device_b, (const float *)device_c,
                            (float *)device_c),
              "a launch");
        fetch(to, device_c);
        cudaFree(device_c);
    }
    cudaFree(device_a), cudaFree(device_b);
    printf("wgmma m64n%dk32, e4m3: %zu single steps and %zu chains of 4, of %zu, have the bits of llm42__hopper_e4m3\n",
           N, equal(by_one, want), equal(by_chain, chain), sums);
    check(by_one == want && by_chain == chain, "products of e4m3 are chains of llm42__hopper_e4m3");
    check(equal(chain, other) < sums - sums / 8, "control: k descending gives other bits");
}

static int usage(const char *what) {
    fprintf(stderr, "cuda_steps: %s: there are --steps N (from 128 to 16777216) and --brief\n", what);
    return 2;
}

int main(int argc, char **argv) {
    int steps = 65536;
    bool brief = false;
    for (int i = 1; i < argc; i++) {
        const int number = i + 1 < argc ? atoi(argv[i + 1]) : 0;
        if (!strcmp(argv[i], "--brief")) brief = true;
        else if (!strcmp(argv[i], "--steps") && number >= STEPS_OF_TILE && number <= 1 << 24) steps = number, i++;
#ifdef LLM42_EMULATED
        else if (!strcmp(argv[i], "--bits") && number >= 23 && number <= 27) emulator::kept_bits = number, i++;
        else if (!strcmp(argv[i], "--least") && number < -100) emulator::least_exponent = number, i++;
        else if (!strcmp(argv[i], "--major") && number > 0) emulated_major = number, i++;
#endif
        else return usage(argv[i]);
    }
    int count = 0;
    cudaDeviceProp device;
    if (cudaGetDeviceCount(&count) != cudaSuccess || !count) {
        printf("cuda_steps: skipped: no CUDA device\n");
        return end();
    }
    if (!works(cudaGetDeviceProperties(&device, 0), "the device's properties")) return end();
    printf("cuda_steps: %s, sm_%d%d\n", device.name, device.major, device.minor);
    table t;
    for (int kind = 0; kind < KINDS && !failed; kind++) {
        const inputs in = make_inputs(kind, steps / STEPS_OF_TILE, {ROWS, COLUMNS, TERMS});
        compare(&t, kind, in, run_steps(in));
    }
    if (failed) return end();
    if (!brief) t.print();
    check(t.description_is_library, "llm42__core_step is the hypothesis with 25 bits below 2^-133 or more");
    check(t.all_differ(), "these inputs tell all hypotheses apart");
    judge(t, device);
    check_chains(device.multiProcessorCount);
    if (device.major == 9 && device.minor == 0) {
        const inputs few = small_sums(64, {ROWS, COLUMNS, TERMS}), many = small_sums(4, {GROUP_ROWS, 64, GROUP_TERMS});
        check_small("a warp", few, run_steps(few));
        check_small("a warpgroup", many, run_group(k_group<8, BOTH, 1>, many));
        check_groups(steps);
        check_eight<16>(4 * steps), check_eight<32>(4 * steps);
        check_eight<64>(4 * steps), check_eight<128>(4 * steps);
    }
    return end();
}
