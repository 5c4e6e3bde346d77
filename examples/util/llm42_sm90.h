// llm42_sm90.h: the arithmetic of a Hopper GPU (H100, H200), computed by a CPU to the bit, and those of other GPUs.
//
//     #define LLM42_IMPLEMENTATION
//     #include "examples/util/llm42_sm90.h"   // instead of llm42.h, which it includes
//
// It is a part of the implementation: without it the CPU backend refuses .numerics.arithmetic LLM42_ARITHMETIC_SM90,
// with which it audits what a GPU said, and its siblings. The library that make builds, the shared libraries and
// llm42_synthetic.h have it. The CPU backend takes all sums by a table of functions (llm42__arithmetic). Here are those
// of GPUs, which differ in a step of the tensor cores alone: order and 2^x are those of our kernels on Hopper.
#ifndef LLM42_SM90_H
#define LLM42_SM90_H

#if defined(LLM42_IMPLEMENTATION) && !defined(LLM42_IMPLEMENTED)
#define LLM42__EMULATION  // the CPU backend then has llm42__emulated, which is below
#endif
#include "llm42.h"

#if defined(LLM42__EMULATION) && defined(LLM42_IMPLEMENTED)

// >>tensor-cores -------------------------------------------------------------------------------------------------
// Owns: a step of a tensor core, and matrix products of bf16 numbers, summed in fp32 as tensor cores sum them. Most of
// the section consists of versions in AVX-512, AVX2 and plain C, which give the same bits.
// Calls: vectors.
// Invariant: a matrix product takes its terms in ascending order, in steps of core.terms terms (llm42__core_step).

// How a tensor core takes a step of a sum of products.
typedef struct llm42__tensor_core {
    int terms;   // products that it adds at once
    int places;  // binary places behind the largest exponent that addends keep
    int bits;    // of the result's significand, behind its leading 1
    int least;   // the exponent of the smallest normal number of the products' factors
} llm42__tensor_core;
// Ampere's row is that of A100, A2, Ada and L40S, Hopper's that of H100, H200 and B200, but for e4m3 Ampere has no
// tensor cores, and no steps of a B200 are at hand. Hopper's were compared on a device in all cases, the others with
// 400 steps of each GPU, of factors near 1: their subnormal numbers, infinity and NaN are taken from Hopper. V100 has
// no bf16. Of CDNA3 (MI300) no steps are at hand.
static const llm42__tensor_core llm42__ampere_bf16 = {8, 24, 23, -126}, llm42__hopper_bf16 = {16, 25, 23, -126},
                                llm42__ada_e4m3 = {16, 13, 13, -6}, llm42__hopper_e4m3 = {32, 13, 13, -6};

// The exponent of a finite number other than 0. Subnormal numbers have that of the smallest normal number, `least`.
LLM42__INLINE int llm42__core_exponent(float x, int least) {
    const int e = (int)(llm42__bits(x) >> 23 & 255) - 127;
    return LLM42__MAX(e, least);
}

// The significand of a number of this exponent, as an integer: x is +-(this) x 2^(exponent - 23).
LLM42__INLINE int64_t llm42__core_significand(float x, int exponent) {
    const uint32_t bits = llm42__bits(x);
    const int64_t significand = (bits & 0x7fffff) | (bits >> 23 & 255 ? 0x800000 : 0);
    return significand >> (exponent - llm42__core_exponent(x, -126));
}

// sum x 2^unit, cut toward zero to fp32 (24 significant bits, or, if it is subnormal, a multiple of 2^-149), and then
// to so many bits behind the leading one.
static float llm42__core_cut(int64_t sum, int unit, int bits) {
    const uint64_t size = sum < 0 ? (uint64_t)-sum : (uint64_t)sum;
    const uint32_t sign = sum < 0 ? 0x80000000u : 0;
    int top = 0;
    if (!size) return 0.0f;
    while (size >> top > 1) top++;
    const int exponent = top + unit, drop = exponent < -126 ? -149 - unit : top - 23;
    if (exponent > 127) return llm42__float(sign | 0x7f800000u);
    const uint32_t whole = (uint32_t)(drop > 63 ? 0 : drop > 0 ? size >> drop : size << -drop);
    const uint32_t kept = whole & ~0u << (23 - bits);
    if (!kept) return 0.0f;
    return llm42__float(sign | (exponent < -126 ? kept : (uint32_t)(exponent + 126) * 0x800000u + kept));
}

// One step: sum + a[0] b[0] + ... for core.terms products. a and b hold numbers of at most eight significant bits
// (bf16, e4m3); b's are `stride` apart.
//
// The products are exact. The exponent of a product is the sum of the exponents of its two factors. (So a product of
// normal numbers lies in [1, 4) x 2^exponent.) Let e be the largest of the exponents of `sum` and of the products, and
// at least -133. `sum` and each product are cut toward zero to core.places binary places below 2^e, and then added
// exactly. The result is cut toward zero to core.bits bits. Zero is then +0, what is too large for fp32 is infinite,
// and a NaN is 0x7fffffff.
LLM42__INLINE float llm42__core_step(llm42__tensor_core core, float sum, const float *a, const float *b, int stride) {
    int e = -133;
    int64_t total = 0;
    float infinite = 0.0f;  // the sum of what is infinite or not a number
    for (int i = 0; i < core.terms; i++) {
        const float x = a[i], y = b[i * stride];
        if (x - x != 0.0f || y - y != 0.0f) infinite += x * y;
        else if (x != 0.0f && y != 0.0f)
            e = LLM42__MAX(e, llm42__core_exponent(x, core.least) + llm42__core_exponent(y, core.least));
    }
    if (sum - sum != 0.0f) infinite += sum;
    if (infinite != 0.0f) return infinite != infinite ? llm42__float(0x7fffffffu) : infinite;
    if (sum != 0.0f) e = LLM42__MAX(e, llm42__core_exponent(sum, -126));
    for (int i = 0; i < core.terms; i++) {
        const float x = a[i], y = b[i * stride];
        if (x == 0.0f || y == 0.0f) continue;
        const int of_x = llm42__core_exponent(x, core.least), of_y = llm42__core_exponent(y, core.least);
        const int behind = e - of_x - of_y + 25 - core.places;
        // Both significands have 16 zeros after their 8 bits: the product of the two bytes is in units of 2^-14.
        const int64_t product = (llm42__core_significand(x, of_x) >> 16) * (llm42__core_significand(y, of_y) >> 16);
        const int64_t cut = behind > 62 ? 0 : product << 11 >> behind;
        total += (x < 0) != (y < 0) ? -cut : cut;
    }
    const int of_sum = llm42__core_exponent(sum, -126), behind = e - of_sum + 25 - core.places;
    const int64_t cut = sum == 0.0f || behind > 62 ? 0 : llm42__core_significand(sum, of_sum) << 2 >> behind;
    return llm42__core_cut(total + (sum < 0 ? -cut : cut), e - core.places, core.bits);
}

// Steps of bf16 numbers, one output after the other. x [terms of a step x steps], w [the same][16 outputs] -> sum.
static void llm42__core_plain_steps(llm42__tensor_core core, const float *x, const float *w, int steps, float *sum,
                                    int outputs) {
    for (int s = 0; s < steps; s++)
        for (int o = 0; o < outputs; o++)
            sum[o] = llm42__core_step(core, sum[o], x + core.terms * s, w + 16 * core.terms * s + o, 16);
}

// The vector versions compute sixteen outputs side by side. A product of two bf16 numbers is exact in fp32. To get an
// addend, they multiply it by 2^(places - e) and convert it to an integer, which cuts toward zero. The power of a
// number is the number with its sign and significand cleared, 2^exponent. The largest product of two powers, or the
// power of the old sum if that is larger, is 2^e. This works if 2^-100 <= 2^e <= 2^100 and no factor is subnormal,
// infinite or NaN. llm42__core_step takes all other steps.
//
// Shapes: x, x_power [terms x steps]; w, w_power [the same][16 outputs] -> sum [16], to which the steps are added.
// llm42__lanes_to_float cuts toward zero, in AVX2 because llm42__rounding_set was called before. Operators work lane by
// lane, and a cast between the two types of lanes keeps the bits.
#if LLM42__ISA == 2
typedef __m512 llm42__lanes;
typedef __m512i llm42__lanes_raw;
typedef uint32_t llm42__lanes_int __attribute__((vector_size(64)));
#define LLM42__L(name) _mm512_##name
LLM42__INLINE llm42__lanes llm42__lanes_to_float(llm42__lanes_int x) {
    return _mm512_cvt_roundepi32_ps((__m512i)x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}
LLM42__INLINE bool llm42__lanes_any_negative(llm42__lanes_int x) { return _mm512_movepi32_mask((__m512i)x) != 0; }
#elif LLM42__ISA == 1
typedef __m256 llm42__lanes;
typedef __m256i llm42__lanes_raw;
typedef uint32_t llm42__lanes_int __attribute__((vector_size(32)));
#define LLM42__L(name) _mm256_##name
LLM42__INLINE llm42__lanes llm42__lanes_to_float(llm42__lanes_int x) { return _mm256_cvtepi32_ps((__m256i)x); }
LLM42__INLINE bool llm42__lanes_any_negative(llm42__lanes_int x) { return _mm256_movemask_ps((__m256)x) != 0; }
#endif

#if LLM42__ISA
// How floats are rounded, from now on. The compiler must read memory and these lanes behind that, and write before it.
LLM42__INLINE void llm42__rounding_set(unsigned mode, llm42__lanes *one, llm42__lanes *other) {
    __asm__ volatile("ldmxcsr %2" : "+x"(*one), "+x"(*other) : "m"(mode) : "memory");
}

enum { LLM42__LANES = sizeof(llm42__lanes) / sizeof(float) };
// One step of so many outputs. False: nothing was added, and llm42__core_step has to take the step.
LLM42__INLINE bool llm42__core_lanes_step(llm42__tensor_core core, const float *x, const float *x_power, const float *w,
                                          const float *w_power, llm42__lanes *sum) {
    const uint32_t places = (uint32_t)core.places;
    llm42__lanes product[16], power[2] = {(llm42__lanes)((llm42__lanes_int)*sum & 0x7f800000u), {0}};
    LLM42__UNROLLED(int k = 0; k < core.terms; k++) {
        product[k] = x[k] * LLM42__L(loadu_ps)(w + 16 * k);
        power[k % 2] = LLM42__L(max_ps)(power[k % 2], x_power[k] * LLM42__L(loadu_ps)(w_power + 16 * k));
    }
    const llm42__lanes_int e = (llm42__lanes_int)LLM42__L(max_ps)(power[0], power[1]);
    const llm42__lanes_int below = e - ((127u - 100) << 23), above = ((127u + 100) << 23) - e;
    const llm42__lanes scale = (llm42__lanes)(((254 + places) << 23) - e), back = (llm42__lanes)(e - (places << 23));
    // Eight addends of less than 2^27 each, and the old sum, fit into 32 bits. The signs show whether all sixteen do.
    llm42__lanes_int total[2] = {(llm42__lanes_int)LLM42__L(cvttps_epi32)(*sum * scale), {0}}, beyond = below | above;
    LLM42__UNROLLED(int k = 0; k < core.terms; k++)
        total[k / 8] += (llm42__lanes_int)LLM42__L(cvttps_epi32)(product[k] * scale);
    const llm42__lanes_int all = total[0] + total[1];
    if (core.terms > 8) beyond |= (total[0] ^ all) & (total[1] ^ all);
    if (llm42__lanes_any_negative(beyond)) return false;
    *sum = llm42__lanes_to_float(all) * back;
    return true;
}

static void llm42__core_plain_lanes(llm42__tensor_core core, const float *x, const float *w, llm42__lanes *sum) {
    float plain[LLM42__LANES];
    memcpy(plain, sum, sizeof plain);
    llm42__core_plain_steps(core, x, w, 1, plain, LLM42__LANES);
    memcpy(sum, plain, sizeof plain);
}
#endif

// odd: only llm42__core_step can take the steps.
LLM42__INLINE void llm42__core_steps(llm42__tensor_core core, bool odd, const float *x, const float *x_power,
                                     const float *w, const float *w_power, int steps, float *sum) {
    if (odd || !LLM42__ISA) {
        (void)x_power, (void)w_power;
        llm42__core_plain_steps(core, x, w, steps, sum, 16);
        return;
    }
#if LLM42__ISA
    enum { LAST = 16 - LLM42__LANES };  // AVX2 has two vectors of sums, which do not wait for each other
    const unsigned before = _mm_getcsr();
    llm42__lanes first = LLM42__L(loadu_ps)(sum), last = LLM42__L(loadu_ps)(sum + LAST);
    if (LAST) llm42__rounding_set(before | 0x6000u, &first, &last);  // toward zero
    for (int k = 0; k < core.terms * steps; k += core.terms) {
        const float *at = w + 16 * k, *at_power = w_power + 16 * k;
        const bool one = llm42__core_lanes_step(core, x + k, x_power + k, at, at_power, &first);
        const bool other = !LAST || llm42__core_lanes_step(core, x + k, x_power + k, at + LAST, at_power + LAST, &last);
        if (one && other) continue;
        if (!one) llm42__core_plain_lanes(core, x + k, at, &first);
        if (!other) llm42__core_plain_lanes(core, x + k, at + LAST, &last);
    }
    if (LAST) llm42__rounding_set(before, &first, &last);
    memcpy(sum + LAST, &last, sizeof last);  // with AVX-512 there is only the first one
    memcpy(sum, &first, sizeof first);
#endif
}

// A panel: weights of sixteen outputs, side by side, and their powers (see above).
enum {
    LLM42__SM90_TERMS = 128,  // in a panel
    LLM42__SM90_ROWS = 64     // that use a panel before the next one is filled
};
typedef struct llm42__sm90_panel {
    _Alignas(64) float value[LLM42__SM90_TERMS * 16];  // no vector of sixteen lies in two lines of the cache
    float power[LLM42__SM90_TERMS * 16];
    bool odd;  // a weight is subnormal, infinite or NaN
} llm42__sm90_panel;

// Gives the powers of n values. True if one of the values is subnormal, infinite or NaN.
LLM42__INLINE bool llm42__sm90_powers(const float *x, int n, float *power) {
    uint32_t odd = 0;
    for (int i = 0; i < n; i++) {
        const uint32_t bits = llm42__bits(x[i]), above = (bits << 1) - 0x01000000u;  // of zero: 0xff000000
        power[i] = llm42__float(bits & 0x7f800000u);
        odd |= (uint32_t)(above >= 0xfe000000u) & (uint32_t)(above != 0xff000000u);
    }
    return odd != 0;
}

// Sixteen rows of `terms` values of `size` bytes (4: fp32, 2: bf16, 1: e4m3) -> turned [whole][16 rows], the bits of
// values, with zeros behind a row's end; fp32 becomes bf16. Interleaving the first half of sixteen rows' values with
// the second takes the bits of a value's index one place round. After four times those of row and column are swapped.
static void llm42__sm90_turn(const void *const w[16], size_t size, int terms, int whole, uint32_t *turned) {
    for (int k = 0; k < whole; k += 16, turned += 256) {
        const int first = LLM42__MIN(k, terms), n = LLM42__MIN(16, terms - first);
        uint16_t copy[16][16];
        const void *row[16];
        for (int o = 0; o < 16; o++) {
            row[o] = (const char *)w[o] + (size_t)first * size;
            if (size < 4 && n == 16) continue;
            memset(copy[o], 0, sizeof copy[o]);
            if (size < 4) memcpy(copy[o], row[o], (size_t)n * size);
            for (int i = 0; size == 4 && i < n; i++) copy[o][i] = llm42__to_bf16(((const float *)row[o])[i]);
            row[o] = copy[o];
        }
#if LLM42__ISA
        __m256i a[16], b[16];
        LLM42__UNROLLED(int o = 0; o < 16; o++)
            a[o] = size > 1 ? _mm256_loadu_si256((const __m256i *)row[o])
                            : _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)row[o]));
        LLM42__UNROLLED(int times = 0; times < 4; times++) {
            LLM42__UNROLLED(int i = 0; i < 8; i++) {
                b[2 * i] = _mm256_unpacklo_epi16(a[i], a[i + 8]);
                b[2 * i + 1] = _mm256_unpackhi_epi16(a[i], a[i + 8]);
            }
            memcpy(a, b, sizeof a);
        }
        LLM42__UNROLLED(int i = 0; i < 16; i++) {  // the lower half has the values 0 to 7 of a row
            const __m256i low = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(a[i])),
                          high = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(a[i], 1));
            memcpy(turned + 8 * i, &low, sizeof low);
            memcpy(turned + 128 + 8 * i, &high, sizeof high);
        }
#else
        for (int i = 0; i < 256; i++)
            turned[i] = size > 1 ? ((const uint16_t *)row[i % 16])[i / 16] : ((const uint8_t *)row[i % 16])[i / 16];
#endif
    }
}

// Fills a panel from sixteen rows: at most LLM42__SM90_TERMS terms, padded with zeros to a multiple of sixteen. Weights
// in fp32 are rounded to bf16 first, as the CUDA backend does when it loads them.
static void llm42__sm90_fill(const void *const w[16], bool bf16, int terms, llm42__sm90_panel *panel) {
    const int whole = (terms + 15) & ~15;
    uint32_t turned[LLM42__SM90_TERMS * 16];
    llm42__sm90_turn(w, bf16 ? 2 : 4, terms, whole, turned);
    for (int i = 0; i < 16 * whole; i++) panel->value[i] = llm42__float(turned[i] << 16);
    panel->odd = llm42__sm90_powers(panel->value, 16 * whole, panel->power);
}

// sum [16] += x [terms] times a panel. terms is a multiple of sixteen. The compiler knows the core of each call below.
static void llm42__sm90_multiply(const llm42__tensor_core *core, const float *x, int terms,
                                 const llm42__sm90_panel *panel, float sum[16]) {
    float power[LLM42__SM90_TERMS];
    const bool odd = llm42__sm90_powers(x, terms, power) || panel->odd;
    if (core->terms == 8)
        llm42__core_steps(llm42__ampere_bf16, odd, x, power, panel->value, panel->power, terms / 8, sum);
    else llm42__core_steps(llm42__hopper_bf16, odd, x, power, panel->value, panel->power, terms / 16, sum);
}

// Shapes: x [rows, stride] of which k terms count, w: sixteen rows of k terms -> sums [rows][16]; at most
// LLM42__SM90_ROWS rows. Order: steps of the core, ascending.
static void llm42__sm90_rows(const llm42__tensor_core *core, const float *x, size_t stride, int rows,
                             const void *const w[16], bool bf16, int k, float *sums) {
    llm42__sm90_panel panel;
    memset(sums, 0, (size_t)rows * 16 * sizeof *sums);
    for (int k0 = 0; k0 < k; k0 += LLM42__SM90_TERMS) {
        const int terms = LLM42__MIN(LLM42__SM90_TERMS, k - k0), whole = (terms + 15) & ~15;
        const void *from[16];
        for (int o = 0; o < 16; o++) from[o] = (const char *)w[o] + (size_t)k0 * (bf16 ? 2 : 4);
        llm42__sm90_fill(from, bf16, terms, &panel);
        for (int r = 0; r < rows; r++) {
            const float *at = x + (size_t)r * stride + k0;
            float padded[LLM42__SM90_TERMS] = {0};
            if (terms < whole) at = memcpy(padded, at, (size_t)terms * sizeof *at);
            llm42__sm90_multiply(core, at, whole, &panel, sums + 16 * r);
        }
    }
}

// >>eight-bits ---------------------------------------------------------------------------------------------------
// Owns: chains of products of e4m3 numbers, summed as tensor cores sum them, in AVX-512, AVX2 and plain C.
// Calls: vectors, tensor-cores.
// Invariant: a chain takes its terms in ascending order, in steps of core.terms (llm42__core_step).
//
// The vector versions compute sixteen outputs side by side, or eight. A step is a sum of integers in units of
// 2^(e - 13), so its addends may come in any order. All of one sign are added by fused multiply-adds that cut toward
// zero, from 2^(e + 10) on: floats are 2^(e - 13) apart there, so that each addition cuts its product as a step does.
// (Sums stay below 2^(e + 8).) The products of the other sign are added likewise, and the difference is exact. This
// works if the old sum is 0 or from 2^-100 to 2^100, which holds in a chain that begins at 0.

#if LLM42__ISA
static void llm42__sm90_e4m3_fill(const uint8_t *const w[16], int terms, llm42__e4m3_panel *panel) {
    const void *row[16];
    uint32_t turned[LLM42__BLOCK * 16];
    for (int o = 0; o < 16; o++) row[o] = w[o];
    llm42__sm90_turn(row, 1, terms, LLM42__BLOCK, turned);
    for (int k = 0; k < LLM42__BLOCK; k += 4)
        for (int o = 0; o < 16; o += LLM42__LANES) {
            llm42__lanes_int exponents = {0};
            LLM42__UNROLLED(int i = 0; i < 4; i++) {  // llm42__from_e4m3 and llm42__e4m3_exponent
                llm42__lanes_int byte;
                memcpy(&byte, turned + 16 * (k + i) + o, sizeof byte);
                const llm42__lanes_int size = byte & 127u, sign = 0u - (byte >> 7);
                const llm42__lanes_int small = (llm42__lanes_int)(size < 8u), zero = (llm42__lanes_int)(size == 0u),
                                       nan = (llm42__lanes_int)(size == 127u);
                const llm42__lanes value = (llm42__lanes)((size << 20) + 0x3c000000u + (small & 0x00800000u)) -
                                           (llm42__lanes)(small & 0x3c800000u);
                const llm42__lanes_int bits = (llm42__lanes_int)value | (nan & 0x7fc00000u), positive = bits & ~sign,
                                       negative = (bits | 0x80000000u) & sign;
                memcpy(panel->value + 32 * (k + i) + o, &positive, sizeof positive);
                memcpy(panel->value + 32 * (k + i) + 16 + o, &negative, sizeof negative);
                exponents |= (((size >> 3) - (small & ~zero)) | (zero & 0xc0u)) << 8 * i;
            }
            memcpy(panel->exponent + 16 * k + 4 * o, &exponents, sizeof exponents);
        }
}

// 2^(e + 10), where e is the largest exponent of a step's products and of the old sum.
LLM42__INLINE llm42__lanes llm42__e4m3_base(int terms, llm42__lanes sum, const int8_t *x_exponent,
                                            const int8_t *w_exponent) {
    llm42__lanes_raw e = LLM42__L(set1_epi8)(-128), next;
    LLM42__UNROLLED(int k = 0; k < terms / 4; k++) {
        int32_t four;
        memcpy(&four, x_exponent + 4 * k, sizeof four);
        memcpy(&next, w_exponent + 64 * k, sizeof next);
        e = LLM42__L(max_epi8)(e, LLM42__L(add_epi8)(next, LLM42__L(set1_epi32)(four)));
    }
    e = LLM42__L(max_epi8)(e, LLM42__L(srli_epi32)(e, 16));
    e = LLM42__L(max_epi8)(e, LLM42__L(srli_epi32)(e, 8));
    e = LLM42__L(srai_epi32)(LLM42__L(slli_epi32)(e, 24), 24);  // plus 14
    const llm42__lanes_raw of_sum = (llm42__lanes_raw)(((llm42__lanes_int)sum >> 23 & 255u) - 113u);
    return (llm42__lanes)(((llm42__lanes_int)LLM42__L(max_epi32)(e, of_sum) + 123u) << 23);
}

// One step of some rows, at most 4, side by side, because a step waits for the sum of the one before. x and its
// exponents [rows, stride]; w [terms][2][16] and its exponents [terms / 4][16][4], from the first of some outputs on.
LLM42__INLINE void llm42__e4m3_lanes_step(int terms, int rows, llm42__lanes *sum, const float *x,
                                          const int8_t *x_exponent, size_t stride, const float *w,
                                          const int8_t *w_exponent) {
    const int each = 4 / rows;  // sums of one sign of a row
    const llm42__lanes zero = {0}, one = zero + 1.0f;
    llm42__lanes positive[4], negative[4];
    LLM42__UNROLLED(int r = 0; r < rows; r++) {  // NaN comes through
        const llm42__lanes base = llm42__e4m3_base(terms, sum[r], x_exponent + (size_t)r * stride, w_exponent);
        LLM42__UNROLLED(int i = r * each; i < (r + 1) * each; i++) positive[i] = negative[i] = base;
        positive[r * each] = LLM42__L(fmadd_ps)(LLM42__L(max_ps)(zero, sum[r]), one, base);
        negative[r * each] = LLM42__L(fnmadd_ps)(LLM42__L(min_ps)(zero, sum[r]), one, base);
    }
    LLM42__UNROLLED(int k = 0; k < terms; k++)
        LLM42__UNROLLED(int r = 0; r < rows; r++) {
            const float *of_x = x + (size_t)r * stride + k;
            const int i = r * each + k % each;
            int32_t sign;
            memcpy(&sign, of_x, sizeof sign);
            const intptr_t same = 32 * k + (sign >> 31 & 16);  // the weights that have the sign of x
            const llm42__lanes factor = LLM42__L(set1_ps)(*of_x);
            positive[i] = LLM42__L(fmadd_ps)(factor, LLM42__L(loadu_ps)(w + same), positive[i]);
            negative[i] = LLM42__L(fnmadd_ps)(factor, LLM42__L(loadu_ps)(w + (same ^ 16)), negative[i]);
        }
    LLM42__UNROLLED(int r = 0; r < rows; r++) {
        llm42__lanes total = zero;
        LLM42__UNROLLED(int i = r * each; i < (r + 1) * each; i++) total += positive[i] - negative[i];
        sum[r] = (llm42__lanes)((llm42__lanes_int)total & 0xfffffc00u);
    }
}

LLM42__INLINE void llm42__e4m3_rows(int terms, int rows, const float *x, const int8_t *exponent, size_t stride,
                                    const llm42__e4m3_panel *panel, float *sums) {
    for (int o = 0; o < 16; o += LLM42__LANES) {
        llm42__lanes sum[4];
        LLM42__UNROLLED(int r = 0; r < rows; r++) memcpy(&sum[r], sums + 16 * r + o, sizeof *sum);
        for (int k = 0; k < LLM42__BLOCK; k += terms)
            llm42__e4m3_lanes_step(terms, rows, sum, x + k, exponent + k, stride, panel->value + 32 * k + o,
                                   panel->exponent + 16 * k + 4 * o);
        LLM42__UNROLLED(int r = 0; r < rows; r++) {
            const llm42__lanes_int number = (llm42__lanes_int)(sum[r] == sum[r]),
                                   bits = ((llm42__lanes_int)sum[r] & number) | (~number & 0x7fffffffu);
            memcpy(sums + 16 * r + o, &bits, sizeof bits);
        }
    }
}

// sums [rows][16] += x [rows, stride] times the panel. The cores differ in their terms alone.
LLM42__INLINE void llm42__e4m3_steps(llm42__tensor_core core, const float *x, const int8_t *exponent, size_t stride,
                                     int rows, const llm42__e4m3_panel *panel, float *sums) {
    const unsigned before = _mm_getcsr();
    llm42__lanes none = {0}, too = {0};
    llm42__rounding_set(before | 0x6000u, &none, &too);  // toward zero
    for (; rows >= 4; rows -= 4, x += 4 * stride, exponent += 4 * stride, sums += 64)
        llm42__e4m3_rows(core.terms, 4, x, exponent, stride, panel, sums);
    for (; rows > 0; rows--, x += stride, exponent += stride, sums += 16)
        llm42__e4m3_rows(core.terms, 1, x, exponent, stride, panel, sums);
    llm42__rounding_set(before, &none, &too);
}
#else
static void llm42__sm90_e4m3_fill(const uint8_t *const w[16], int terms, llm42__e4m3_panel *panel) {
    for (int i = 0; i < LLM42__BLOCK * 16; i++)
        panel->value[i] = i / 16 < terms ? llm42__from_e4m3(w[i % 16][i / 16]) : 0;
}

LLM42__INLINE void llm42__e4m3_steps(llm42__tensor_core core, const float *x, const int8_t *exponent, size_t stride,
                                     int rows, const llm42__e4m3_panel *panel, float *sums) {
    (void)exponent;
    for (int i = 0; i < 16 * rows; i++)
        for (int k = 0; k < LLM42__BLOCK; k += core.terms)
            sums[i] = llm42__core_step(core, sums[i], x + (size_t)(i / 16) * stride + k, panel->value + 16 * k + i % 16,
                                       16);
}
#endif

static void llm42__sm89_e4m3_chain(const float *x, const int8_t *exponent, size_t stride, int rows,
                                   const llm42__e4m3_panel *panel, float *sums) {
    memset(sums, 0, 16 * (size_t)rows * sizeof *sums);
    llm42__e4m3_steps(llm42__ada_e4m3, x, exponent, stride, rows, panel, sums);
}

static void llm42__sm90_e4m3_chain(const float *x, const int8_t *exponent, size_t stride, int rows,
                                   const llm42__e4m3_panel *panel, float *sums) {
    memset(sums, 0, 16 * (size_t)rows * sizeof *sums);
    llm42__e4m3_steps(llm42__hopper_e4m3, x, exponent, stride, rows, panel, sums);
}

// >>sm90 ---------------------------------------------------------------------------------------------------------
// Owns: the arithmetic sm90, which has the bits of INVARIANT passes of the CUDA backend on a Hopper GPU, and those with
// the steps of other tensor cores, to which tests/cuda/steps.cu says how to add more.
// Calls: tensor-cores, eight-bits, vectors, cpu.
// Invariant: matrix products sum by these steps, and other sums have the order of the threads of kernels.cu.

// Order: that of llm42__sm90_rows.
static void llm42__sm90_block(const llm42__cpu *cpu, const float *x, int rows, const llm42__product *p, int n0,
                              int parts, float *scratch) {
    const int K = p->w->k, count = LLM42__MIN(16, p->w->n - n0);
    const bool bf16 = p->w->type == LLM42_DTYPE_BF16;
    const void *w[16];
    float sums[LLM42__SM90_ROWS * 16];
    assert(parts == 1);
    (void)parts, (void)scratch;
    for (int o = 0; o < 16; o++)  // a missing output repeats the last one
        w[o] = (const char *)p->w->data +
               ((size_t)(n0 + LLM42__MIN(o, count - 1)) * (size_t)K + (size_t)p->k0) * (bf16 ? 2 : 4);
    for (int r0 = 0; r0 < rows; r0 += LLM42__SM90_ROWS) {
        const int r1 = LLM42__MIN(rows, r0 + LLM42__SM90_ROWS);
        llm42__sm90_rows(cpu->arithmetic->core, x + (size_t)r0 * (size_t)K + p->k0, (size_t)K, r1 - r0, w, bf16, p->k,
                         sums);
        llm42__cpu_put(cpu, p, n0, count, r0, r1 - r0, sums);
    }
}

// Adds the values of the threads of a block, as llm42__block_sum of kernels.cu does. `threads` is a multiple of 32. The
// lanes of a warp add by a butterfly, which is the order of llm42__tree.
static float llm42__sm90_block_sum(float *thread, int threads) {
    float sum = 0;
    for (int i = 0; i < threads; i += 32) sum += llm42__tree(thread + i, 32);
    return sum;
}

// The sum of squares of llm42__k_norm: threads take eight values at a time, in turns. n is at most 16,384.
static float llm42__sm90_row_squares(const float *x, int n) {
    const int width = (n + 63) / 64 * 64, threads = ((width / 8 + 3) / 4 + 31) / 32 * 32;
    float sum[512] = {0};
    assert(threads <= 512);
    for (int i = 0; i < n; i++) sum[i / 8 % threads] = fmaf(x[i], x[i], sum[i / 8 % threads]);
    return llm42__sm90_block_sum(sum, threads);
}

// The sum of squares of llm42__k_rope, for one head: a lane has the values of eight pairs. d is at most 256.
static float llm42__sm90_head_squares(const float *x, int d) {
    const int lanes = d <= 16 ? 1 : d <= 32 ? 2 : d <= 64 ? 4 : d <= 128 ? 8 : 16;
    float sum[16] = {0};
    assert(d <= 256);
    for (int pair = 0; pair < d / 2; pair++) {
        sum[pair / 8] = fmaf(x[pair], x[pair], sum[pair / 8]);
        sum[pair / 8] = fmaf(x[pair + d / 2], x[pair + d / 2], sum[pair / 8]);
    }
    return llm42__tree(sum, lanes);
}

// Attention: the one order of attention in kernels.cu. Units of 512 keys begin at multiples of 512 and are summed in
// steps of 128 keys. Scores are sums of llm42__sm90_multiply over d. The base is the unit's largest score so far; where
// it grows, the unit's sums are scaled. Weights 2^(score - base) go to eight totals and, rounded to bf16, multiply
// values, sixteen keys at a time. Units are merged in ascending order. Keys that the row does not see have weight 0.
// A score is an fp32 number: where |score| is beyond about 10^6, its rounding alone changes weights by percents. From
// 2^31 on weights may be infinite or all 0, and the result NaN: the base is rounded, the product in a weight's fma not.
enum { LLM42__SM90_UNIT = 512, LLM42__SM90_STEP = 128, LLM42__SM90_STRIP = 32, LLM42__SM90_HEADS = 8 };
typedef struct llm42__sm90_head {
    float q[256], weight[LLM42__SM90_STEP];  // weight: scores at first
    float sum[256], merged[256];             // of weighted values: of the unit, and of all units before
    float eight[8], base, keep;              // of the unit: totals, base, and the factor for its sums so far
    float merged_base, merged_total;
} llm42__sm90_head;

static void llm42__sm90_scores(const llm42__context *c, llm42__span s, llm42__sm90_head *h, int heads) {
    const int pad = c->cpu->pad;
    llm42__sm90_panel panel;
    const void *at[16];
    float sum[LLM42__SM90_HEADS][16];
    for (int g = 0; g < heads; g++)
        for (int i = 0; i < LLM42__SM90_STEP; i++) h[g].weight[i] = -INFINITY;
    for (int t0 = s.first & ~15; t0 < s.end; t0 += 16) {
        llm42__cpu_addresses(c, c->k, 2, s, t0, at);
        memset(sum, 0, sizeof sum);
        for (int k0 = 0; k0 < pad; k0 += LLM42__SM90_TERMS) {
            const int terms = LLM42__MIN(LLM42__SM90_TERMS, pad - k0);
            llm42__sm90_fill(at, true, terms, &panel);
            for (int g = 0; g < heads; g++)
                llm42__sm90_multiply(c->cpu->arithmetic->core, h[g].q + k0, terms, &panel, sum[g]);
            for (int j = 0; j < 16; j++) at[j] = (const uint16_t *)at[j] + terms;
        }
        for (int g = 0; g < heads; g++)
            for (int j = 0; j < 16; j++)
                if (t0 + j >= s.first && t0 + j < s.end) h[g].weight[t0 - s.begin + j] = sum[g][j];
    }
}

// Scores of a step become weights.
static void llm42__sm90_softmax(llm42__sm90_head *h, float scale) {
    float *weight = h->weight, strip[4][8] = {{0}}, top = -INFINITY, before = h->base;
    for (int i = 0; i < LLM42__SM90_STEP; i++) top = weight[i] > top ? weight[i] : top;
    h->base = top * scale > before ? top * scale : before;
    h->keep = h->base == before ? 1.0f : llm42__ex2(before - h->base);
    const float from = h->base == -INFINITY ? 0.0f : h->base;
    for (int i = 0; i < LLM42__SM90_STEP; i++) weight[i] = llm42__ex2(fmaf(weight[i], scale, -from));
    for (int i = 0; i < LLM42__SM90_STEP; i++) strip[i / LLM42__SM90_STRIP][i % 8] += weight[i];
    for (int i = 0; i < LLM42__SM90_STEP; i++) weight[i] = llm42__round_bf16(weight[i]);
    for (int i = 0; i < 8; i++)
        h->eight[i] = fmaf(h->eight[i], h->keep, (strip[0][i] + strip[1][i]) + (strip[2][i] + strip[3][i]));
}

// Adds a step's weighted values to those of the unit.
static void llm42__sm90_values(const llm42__context *c, llm42__span s, llm42__sm90_head *h, int heads) {
    llm42__sm90_panel panel;
    const void *at[16];
    for (int g = 0; g < heads; g++)
        for (int i = 0; h[g].keep != 1.0f && i < c->cpu->pad; i++) h[g].sum[i] *= h[g].keep;
    for (int c0 = 0; c0 < c->cpu->pad; c0 += 16)
        for (int t0 = s.first & ~15; t0 < s.end; t0 += 16) {
            llm42__cpu_addresses(c, c->v, 2, s, t0, at);
            for (int j = 0; j < 16; j++)
                llm42__v16_store(panel.value + 16 * j, t0 + j < s.first || t0 + j >= s.end
                                                           ? llm42__v16_set(0.0f)
                                                           : llm42__v16_load_bf16((const uint16_t *)at[j] + c0));
            panel.odd = llm42__sm90_powers(panel.value, 256, panel.power);
            for (int g = 0; g < heads; g++)
                llm42__sm90_multiply(c->cpu->arithmetic->core, h[g].weight + t0 - s.begin, 16, &panel, h[g].sum + c0);
        }
}

// Merges a unit with those before it, and makes ready for the next one.
static void llm42__sm90_merge(llm42__sm90_head *h, int pad) {
    const float *e = h->eight, total = ((e[0] + e[1]) + (e[2] + e[3])) + ((e[4] + e[5]) + (e[6] + e[7]));
    const float higher = h->base > h->merged_base ? h->base : h->merged_base, from = higher == -INFINITY ? 0 : higher,
                keep = llm42__ex2(h->merged_base - from), take = llm42__ex2(h->base - from);
    h->merged_base = higher, h->merged_total = fmaf(h->merged_total, keep, total * take);
    for (int i = 0; i < pad; i++) h->merged[i] = fmaf(h->merged[i], keep, h->sum[i] * take);
    memset(h->sum, 0, sizeof h->sum);
    memset(h->eight, 0, sizeof h->eight);
    h->base = -INFINITY;
}

// The heads of a task, LLM42__SM90_HEADS of them at a time.
static void llm42__sm90_attend(const llm42__context *c, int heads, const float *q, float *out, float *scratch) {
    const int d = c->cpu->model->config.head_dim;
    const float scale = llm42__scale_log2(&c->cpu->model->config);
    (void)scratch;
    for (int g0 = 0, count; g0 < heads; g0 += count, q += count * d, out += count * d) {
        llm42__sm90_head h[LLM42__SM90_HEADS] = {{.q = {0}}};
        count = LLM42__MIN(heads - g0, LLM42__SM90_HEADS);
        for (int g = 0; g < count; g++)
            memcpy(h[g].q, q + g * d, sizeof *q * (size_t)d), h[g].base = h[g].merged_base = -INFINITY;
        for (int begin = c->first / LLM42__SM90_STEP * LLM42__SM90_STEP; begin < c->end; begin += LLM42__SM90_STEP) {
            const int stop = begin + LLM42__SM90_STEP;
            const llm42__span step = {LLM42__MAX(c->first, begin), LLM42__MIN(c->end, stop), begin, stop};
            const bool last = stop % LLM42__SM90_UNIT == 0 || stop >= c->end;  // of the unit
            llm42__sm90_scores(c, step, h, count);
            for (int g = 0; g < count; g++) llm42__sm90_softmax(&h[g], scale);
            llm42__sm90_values(c, step, h, count);
            for (int g = 0; last && g < count; g++) llm42__sm90_merge(&h[g], c->cpu->pad);
        }
        for (int g = 0; g < count; g++) {
            const float inverse = 1.0f / h[g].merged_total;
            for (int i = 0; i < d; i++) out[g * d + i] = llm42__round_bf16(h[g].merged[i] * inverse);
        }
    }
}

static void llm42__sm90_gate(float *gate, const float *up, size_t n) {
    for (size_t i = 0; i < n; i++) gate[i] = llm42__silu(gate[i]) * up[i];
}

// The sum of exponentials of llm42__k_route: a lane has every 32nd expert.
static float llm42__sm90_route_total(const float *x, int n, float largest) {
    float sum[32] = {0};
    for (int i = 0; i < n; i++) sum[i % 32] += llm42__exp(x[i] - largest);
    return llm42__tree(sum, 32);
}

// The sum of exponentials of llm42__k_draw: 1,024 threads take eight ids at a time, in turns.
static float llm42__sm90_sum_exp(const float *x, int n, float largest) {
    float sum[1024] = {0};
    for (int base = 0; base < n; base += 128) {  // by 128, so that powers become vector instructions
        const int count = LLM42__MIN(128, n - base);
        float power[128];
        for (int i = 0; i < count; i++) power[i] = llm42__ex2((x[base + i] - largest) * 1.44269504f);
        for (int i = 0; i < count; i++) sum[(base + i) / 8 % 1024] += power[i];
    }
    return llm42__sm90_block_sum(sum, 1024);
}

// clang-format off
#define LLM42__GPU(...) {.invariant = true, .by_kv_head = true, .bias_last = true, .block = llm42__sm90_block, \
    .attend = llm42__sm90_attend, .gate = llm42__sm90_gate, .squares = llm42__sm90_row_squares, \
    .head_squares = llm42__sm90_head_squares, .route_total = llm42__sm90_route_total, \
    .sum_exp = llm42__sm90_sum_exp, .fill = llm42__sm90_e4m3_fill, __VA_ARGS__}
static const llm42__arithmetic llm42__emulated[LLM42_ARITHMETIC_SM100 + 1] = {
    [LLM42_ARITHMETIC_SM80] = LLM42__GPU(.name = "sm80", .core = &llm42__ampere_bf16),
    [LLM42_ARITHMETIC_SM89] = LLM42__GPU(.name = "sm89", .core = &llm42__ampere_bf16, .chain = llm42__sm89_e4m3_chain),
    [LLM42_ARITHMETIC_SM90] = LLM42__GPU(.name = "sm90", .core = &llm42__hopper_bf16, .chain = llm42__sm90_e4m3_chain),
    [LLM42_ARITHMETIC_SM100] = LLM42__GPU(.name = "sm100", .core = &llm42__hopper_bf16)};
// clang-format on

#endif  // LLM42__EMULATION
#endif  // LLM42_SM90_H
