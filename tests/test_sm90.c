// The arithmetics of GPUs on a CPU: one step of the tensor cores against its description in doubles and against
// measured steps of seven GPUs, the vector versions against the plain one, the values that need care, and the other
// sums against the lanes and threads of kernels.cu, one by one. Then whole passes: the same bits whatever the batch,
// the threads and the ranks. Whether a GPU gives these bits is for test_cuda --part arithmetic.
//
// Two hidden functions of other sections are tested here too, as few tests are compiled with the whole header.
#define TEST_ALL
#include "test.h"
#define LLM42_IMPLEMENTATION
#include "examples/util/llm42_sm90.h"

static uint64_t state = 42;

// A bf16 number whose exponent is at most `most` and up to `spread` less.
static float random_bf16(int most, int spread) {
    const int drawn = most + 127 - test_random_int(&state, 0, spread), e = drawn < 0 ? 0 : drawn > 254 ? 254 : drawn;
    return llm42__float((uint32_t)test_random(&state) % 2 << 31 | (uint32_t)e << 23 |
                        (uint32_t)test_random_int(&state, 0, 127) << 16);
}

static double cut(double x, int places) { return trunc(ldexp(x, places)); }

// The description, step by step, in doubles, which hold all its numbers exactly.
static float described_step(llm42__tensor_core core, float sum, const float *a, const float *b) {
    double total = 0;
    int e = -133, exponent;
    for (int i = 0; i < core.terms; i++) {
        int ea, eb;
        if (a[i] == 0 || b[i] == 0) continue;
        frexp(a[i], &ea), frexp(b[i], &eb);  // in [0.5, 1)
        e = LLM42__MAX(e, LLM42__MAX(ea - 1, -126) + LLM42__MAX(eb - 1, -126));
    }
    frexp(sum, &exponent);
    if (sum != 0) e = LLM42__MAX(e, LLM42__MAX(exponent - 1, -126));
    for (int i = 0; i < core.terms; i++) total += cut((double)a[i] * b[i], core.places - e);
    total += cut(sum, core.places - e);
    if (total == 0) return 0;
    frexp(total, &exponent);  // the result's first bit is worth 2^(exponent - 1 + e - core.places)
    const int places = LLM42__MIN(24 - exponent, 149 - core.places + e);
    const double kept = ldexp(cut(total, places), e - core.places - places);
    if (kept == 0) return 0;
    return fabs(kept) >= ldexp(1, 128) ? (float)copysign(INFINITY, kept) : (float)kept;
}

static void power_of(const float *x, int n, float *power) {
    for (int i = 0; i < n; i++) power[i] = llm42__float(llm42__bits(x[i]) & 0x7f800000u);
}

enum { STEPS = 6 };
static int64_t steps_taken, wrong;

// Random factors; every version against the description.
static void check_steps(llm42__tensor_core core, int most, int spread, int zeros) {
    const int terms = core.terms;
    float x[16 * STEPS], x_power[16 * STEPS], w[256 * STEPS], w_power[256 * STEPS], sum[16], want[16], b[16];
    for (int i = 0; i < 16 * STEPS; i++)
        x[i] = test_random_int(&state, 1, 100) <= zeros ? 0 : random_bf16(most, spread);
    for (int i = 0; i < 256 * STEPS; i++)
        w[i] = test_random_int(&state, 1, 100) <= zeros ? 0 : random_bf16(most, spread);
    power_of(x, 16 * STEPS, x_power), power_of(w, 256 * STEPS, w_power);
    for (int o = 0; o < 16; o++) {
        sum[o] = want[o] = test_random_int(&state, 0, 3) ? 0 : random_bf16(2 * most, spread);
        for (int s = 0; s < STEPS; s++) {
            for (int i = 0; i < terms; i++) b[i] = w[16 * (terms * s + i) + o];
            const float plain = llm42__core_step(core, want[o], x + terms * s, w + 16 * terms * s + o, 16);
            want[o] = described_step(core, want[o], x + terms * s, b);
            steps_taken++;
            wrong += llm42__bits(plain) != llm42__bits(want[o]);
            if (want[o] - want[o] != 0) want[o] = 0;  // an infinite sum only stays one
        }
    }
    for (int s = 0; s < STEPS; s++) {
        float next[16];
        memcpy(next, sum, sizeof next);
        const int at = terms * s;
        llm42__core_steps(core, false, x + at, x_power + at, w + 16 * at, w_power + 16 * at, 1, sum);
        for (int o = 0; o < 16; o++) {
            const float plain = llm42__core_step(core, next[o], x + at, w + 16 * at + o, 16);
            wrong += llm42__bits(plain) != llm42__bits(sum[o]);
            if (sum[o] - sum[o] != 0) sum[o] = 0;
        }
    }
}

TEST(steps_are_as_described) {
    static const struct {
        int most, spread, zeros;
    } kinds[] = {{0, 0, 0},   {0, 3, 0},     {0, 12, 0},   {6, 30, 25},  {0, 120, 10}, {-60, 60, 5}, {-50, 0, 0},
                 {127, 1, 0}, {100, 227, 0}, {-127, 0, 0}, {-63, 1, 50}, {63, 3, 0},   {50, 100, 90}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        steps_taken = wrong = 0;
        for (int t = 0; t < (TEST_SLOW ? 40 : 400); t++)
            check_steps(t % 2 ? llm42__hopper_bf16 : llm42__ampere_bf16, kinds[i].most, kinds[i].spread,
                        kinds[i].zeros);
        CHECK_MSG(!wrong, "exponents %d to %d, %d%% zeros: %lld of %lld steps differ", kinds[i].most - kinds[i].spread,
                  kinds[i].most, kinds[i].zeros, (long long)wrong, (long long)steps_taken);
    }
}

// A step of sixteen equal products of largest significands, on top of a sum.
static void check_equal_products(float sign, float before) {
    float x[16], x_power[16], w[256], w_power[256], sum[16];
    for (int i = 0; i < 16; i++) x[i] = 1.9921875f, sum[i] = before;
    for (int i = 0; i < 256; i++) w[i] = sign * 1.9921875f;
    power_of(x, 16, x_power), power_of(w, 256, w_power);
    llm42__core_steps(llm42__hopper_bf16, false, x, x_power, w, w_power, 1, sum);
    for (int o = 0; o < 16; o++)
        CHECK_INT(llm42__bits(sum[o]), llm42__bits(described_step(llm42__hopper_bf16, before, x, w)));
}

TEST(sums_of_many_large_addends) {  // 32 bits do not hold them
    for (int sign = -1; sign <= 1; sign += 2) check_equal_products((float)sign, (float)sign * 3.99f);
}

// A sum of addends between 2^31 - 2^7 and 2^31 in units of the last place: it must be cut, not rounded.
TEST(sums_just_below_the_largest_integer) {
    for (int last = 0; last < 256; last++)  // the products are 2^31 - 16744448 units
        check_equal_products(1, ldexpf((float)(16744448 - last), -25));
}

// The measured steps of seven GPUs: each GPU's row of the table gives all of them, and another row does not. Those of
// 32 products are two steps of a core that takes sixteen.
TEST(steps_of_seven_gpus) {
    int steps[2] = {0}, right[2] = {0}, controls[2] = {0}, at, k;
    char line[2048], gpu[16], format[16];
    FILE *f = fopen("../shared/vectors/tensor_cores.tsv", "r");
    if (!f) {
        SKIP("no ../shared/vectors");
        return;
    }
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%15s %15s %d %n", gpu, format, &k, &at) != 3 || k > 32) continue;
        const bool eight = !strcmp(format, "e4m3"), hopper = gpu[0] == 'H' || gpu[0] == 'B';  // H100, H200, B200
        const llm42__tensor_core row[2] = {eight ? llm42__ada_e4m3 : llm42__ampere_bf16,
                                           eight ? llm42__hopper_e4m3 : llm42__hopper_bf16};
        llm42__tensor_core other = row[!hopper];
        if (other.terms > k) other = row[hopper], other.places++;
        float x[64], sum[2];
        char *next = line + at;
        for (int i = 0; i < 2 * k; i++, next++) {
            const uint32_t bits = (uint32_t)strtoul(next, &next, 16);
            x[i] = eight ? llm42__from_e4m3((uint8_t)bits) : llm42__float(bits << 16);
        }
        sum[0] = sum[1] = llm42__float((uint32_t)strtoul(next, &next, 16));
        const uint32_t measured = (uint32_t)strtoul(next, NULL, 16);
        for (int i = 0; i < k; i += row[hopper].terms)
            sum[0] = llm42__core_step(row[hopper], sum[0], x + i, x + k + i, 1);
        for (int i = 0; i < k; i += other.terms) sum[1] = llm42__core_step(other, sum[1], x + i, x + k + i, 1);
        steps[eight]++, right[eight] += llm42__bits(sum[0]) == measured,
            controls[eight] += llm42__bits(sum[1]) == measured;
    }
    fclose(f);
    for (int eight = 0; eight < 2; eight++) {
        CHECK_MSG(steps[eight] == (eight ? 1600 : 2800) && right[eight] == steps[eight], "%d of %d steps", right[eight],
                  steps[eight]);
        CHECK_MSG(controls[eight] < 0.9 * steps[eight], "the control: %d steps by another row", controls[eight]);
    }
}

// Whole products: shapes that are no multiples, weights in bf16 and fp32, and values that need care.
TEST(products_are_chains_of_steps) {
    enum { ROWS = 5, MOST = 300 };
    static const int terms[] = {1, 15, 16, 17, 100, 127, 128, 129, 144, 300};
    static float x[ROWS * MOST], w32[16 * MOST], column[16 * MOST], sums[ROWS * 16];
    static uint16_t w16[16 * MOST];
    for (int kind = 0; kind < 4; kind++)
        for (size_t t = 0; t < sizeof terms / sizeof *terms; t++) {
            const int k = terms[t];
            const void *w[16];
            for (int i = 0; i < ROWS * MOST; i++) x[i] = random_bf16(2, 12);
            for (int i = 0; i < 16 * MOST; i++) {
                w32[i] = random_bf16(0, 20) * (kind & 1 ? 1.00390625f : 1.0f);  // fp32: between two bf16 numbers
                w16[i] = llm42__to_bf16(w32[i]);
            }
            if (kind >= 2)
                x[7 % k] = llm42__float(0x00030000u), w16[3 % k] = 0x0005, w32[3 % k] = llm42__float(0x50000u);
            for (int o = 0; o < 16; o++) w[o] = kind & 1 ? (void *)&w32[o * MOST] : (void *)&w16[o * MOST];
            const llm42__tensor_core core = t % 2 ? llm42__ampere_bf16 : llm42__hopper_bf16;
            llm42__sm90_rows(&core, x, MOST, ROWS, w, !(kind & 1), k, sums);
            for (int r = 0; r < ROWS; r++)
                for (int o = 0; o < 16; o++) {
                    float sum = 0, a[16 * 32] = {0};
                    memset(column, 0, sizeof column);
                    memcpy(a, x + r * MOST, sizeof *a * (size_t)k);
                    for (int i = 0; i < k; i++) column[i] = llm42__from_bf16(w16[o * MOST + i]);
                    for (int i = 0; i < k; i += core.terms) sum = llm42__core_step(core, sum, a + i, column + i, 1);
                    CHECK_BITS(sums[16 * r + o], sum);
                }
        }
}

// Every thread of a block, as llm42__block_sum has them: in a butterfly all lanes add.
static float butterfly(float *lane, int lanes) {
    for (int apart = lanes / 2; apart; apart /= 2) {
        float next[32];
        for (int i = 0; i < lanes; i++) next[i] = lane[i] + lane[i ^ apart];
        memcpy(lane, next, sizeof *lane * (size_t)lanes);
    }
    return lane[lanes - 1];
}

TEST(other_sums_are_those_of_threads) {
    static float x[16384];
    static const int widths[] = {8, 64, 96, 200, 1000, 2048, 2112, 4096, 5120, 8192, 16384};
    for (int i = 0; i < 16384; i++) x[i] = random_bf16(1, 6);
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        const int n = widths[w], stride = (n + 63) / 64 * 64, threads = ((stride / 8 + 3) / 4 + 31) / 32 * 32;
        float sum = 0;
        for (int warp = 0; warp < threads / 32; warp++) {
            float lane[32] = {0};
            for (int l = 0; l < 32; l++)
                for (int i = 0; i < 4; i++)
                    for (int j = 0, at = (warp * 32 + l + i * threads) * 8; j < 8; j++)
                        if (at + j < n) lane[l] = fmaf(x[at + j], x[at + j], lane[l]);
            sum += butterfly(lane, 32);
        }
        CHECK_BITS(llm42__sm90_row_squares(x, n), sum);
    }
    for (int d = 2; d <= 128; d += 2) {
        const int lanes = (d <= 16 ? 16 : d <= 32 ? 32 : d <= 64 ? 64 : 128) / 16;
        float lane[32] = {0};
        for (int l = 0; l < lanes; l++)
            for (int i = 0; i < 8; i++) {
                const int first = l * 8 + i, second = first + d / 2;
                if (l * 8 + i >= d / 2) continue;
                lane[l] = fmaf(x[first], x[first], lane[l]);
                lane[l] = fmaf(x[second], x[second], lane[l]);
            }
        CHECK_BITS(llm42__sm90_head_squares(x, d), butterfly(lane, lanes));
    }
}

TEST(elementary_functions) {
    double worst = 0, silu = 0;
    for (int i = -1260000; i <= 1270000; i++) {
        const float at = (float)i * 1e-4f;
        const double want = exp2((double)at), place = ldexp(1, ilogb(want) - 23);
        worst = fmax(worst, fabs((double)llm42__exp2(at) - want) / place);
    }
    CHECK_MSG(worst <= 2.1, "2^x is off by %.3f ulp", worst);
    CHECK_BITS(llm42__exp2(0.0f), 1.0f);
    CHECK_BITS(llm42__exp2(-0.0f), 1.0f);
    CHECK_BITS(llm42__exp2(-INFINITY), 0.0f);
    CHECK_BITS(llm42__exp2(-126.6f), 0.0f);
    CHECK_BITS(llm42__exp2(-1e30f), 0.0f);
    CHECK_BITS(llm42__exp2(128.0f), INFINITY);
    CHECK(isnan(llm42__exp2(NAN)));
    for (int e = -149; e < 127; e++) CHECK(llm42__exp2(ldexpf(-1, e)) <= 1.0f);
    for (int i = -200000; i <= 200000; i++) {
        const double x = (double)((float)i * 4e-4f), want = x / (1 + exp(-x));
        silu = fmax(silu, fabs((double)llm42__silu((float)x) - want) / fmax(fabs(want), 1e-30));
    }
    CHECK_MSG(silu < 1e-5, "silu is off by %.3g", silu);
    CHECK_BITS(llm42__silu(-1e30f), -0.0f);
    CHECK_BITS(llm42__silu(1e30f), 1e30f);
    CHECK(isnan(llm42__silu(NAN)));
}

// 2^x of a Hopper GPU as ../shared/vectors/special_functions_hopper.tsv describes it, with every partial product of the
// square. `floored`: for a control, negative arguments that are not whole are rounded down.
static uint32_t hopper_fraction[1 << 23];

static uint32_t hopper_power(uint32_t x, bool floored) {
    const int exponent = (int)(x >> 23 & 255) - 127;
    const bool negative = x >> 31;
    if (exponent == 128 && x << 9) return 0x7fffffffu;
    if (exponent >= 8) return negative ? 0 : 0x7f800000u;
    if (exponent == -127) return 0x3f800000u;
    const uint64_t significand = (x & 0x7fffffu) | 0x800000u;
    int64_t k = (int64_t)(exponent >= 0 ? significand << exponent : exponent < -24 ? 0 : significand >> -exponent);
    const bool lost = exponent < -24 || (exponent < 0 && significand & ((1u << -exponent) - 1));
    if (negative) k = -k - (floored ? lost : k % 0x800000 != 0);
    const int64_t power = (k >= 0 ? k : k - 0x7fffff) / 0x800000;
    if (power >= 128 || power <= -127) return power > 0 ? 0x7f800000u : 0;
    return (uint32_t)(power + 127) << 23 | hopper_fraction[k - power * 0x800000];
}

static bool read_hopper_fractions(void) {
    static uint64_t square[1 << 17];
    uint64_t c[64][3] = {{0}};
    char line[256];
    int row, rows = 0;
    unsigned value[3];
    FILE *f = fopen("../shared/vectors/special_functions_hopper.tsv", "r");
    if (!f) return false;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "ex2 %d %u %u %u", &row, &value[0], &value[1], &value[2]) == 4 && row == rows && ++rows <= 64)
            for (int i = 0; i < 3; i++) c[row][i] = value[i];
    fclose(f);
    CHECK_INT(rows, 64);
    for (uint32_t x = 0; x < 1 << 17; x++) {
        for (int i = 0; i < 17; i++)
            for (int j = i; j < 17; j++) {
                const int column = i == j ? 2 * i : i + j + 1;
                if (column >= 19 && x >> i & 1 && x >> j & 1) square[x] += 1ull << column;
            }
        square[x] >>= 19;
    }
    for (uint32_t f23 = 0; f23 < 1 << 23; f23++) {
        const uint64_t *r = c[f23 >> 17], x = f23 & 0x1ffff;
        hopper_fraction[f23] = (uint32_t)(((r[0] << 13) + 6114 + r[1] * x + r[2] * square[x]) >> 15);
    }
    return true;
}

// The digest is that of arguments whose results an H200 gave.
TEST(powers_of_hopper) {
    enum { STRIDE = 251 };  // a prime number: all exponents are met. Behind these, each fraction, in [1,2)
    const bool described = read_hopper_fractions();
    uint64_t digest = 0xcbf29ce484222325u;
    int64_t differ = 0, floored = 0, first = 0;
    for (uint64_t i = 0; i < (1ull << 32) + (1 << 23); i += i < 1ull << 32 ? STRIDE : 1) {
        const uint32_t x = i < 1ull << 32 ? (uint32_t)i : 0x3f800000u | ((uint32_t)i & 0x7fffffu),
                       y = llm42__bits(llm42__ex2(llm42__float(x)));
        digest = (digest ^ y) * 0x100000001b3u;
        if (described && y != hopper_power(x, false) && !differ++) first = x;
        if (described) floored += y != hopper_power(x, true);
    }
    CHECK_MSG(digest == 0xa042f58705d4fe19u, "the digest is %016llx", (unsigned long long)digest);
    CHECK_MSG(!differ, "%lld powers are not as described: the first at %08x", (long long)differ, (unsigned)first);
    if (described)
        CHECK_MSG(floored > 100000, "the control: rounding down gives %lld other powers", (long long)floored);
    static const uint32_t special[][2] = {
        {0x00000000, 0x3f800000}, {0x80000000, 0x3f800000}, {0x00000001, 0x3f800000}, {0x807fffff, 0x3f800000},
        {0x7f800000, 0x7f800000}, {0xff800000, 0x00000000}, {0x7fc00000, 0x7fffffff}, {0xff800001, 0x7fffffff},
        {0x42fe0000, 0x7f000000}, {0x42ffffff, 0x7f7fffa8}, {0x43000000, 0x7f800000}, {0x7f7fffff, 0x7f800000},
        {0xc2fc0000, 0x00800000}, {0xc2fc0001, 0x00000000}, {0xc2fe0000, 0x00000000}, {0xff7fffff, 0x00000000},
        {0xbf800000, 0x3f000000}, {0xbf800001, 0x3efffffe}, {0xbf7fffff, 0x3f000000}, {0x3f7fffff, 0x3fffffff}};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        CHECK_INT(llm42__bits(llm42__ex2(llm42__float(special[i][0]))), special[i][1]);
    if (!described) SKIP("no ../shared/vectors");
}

// Gates and the sums of exponentials of draws take these powers, as kernels.cu does: each gate, and 1,024 threads.
TEST(gates_and_draws_take_powers_of_hopper) {
    static float x[9001], thread[1024];
    int differ = 0, polynomial = 0;
    for (uint32_t i = 0; i < 1 << 16; i++) {
        const float gate = llm42__float(i << 16), y = gate * -1.44269504f, silu = llm42__silu(gate);
        differ += isfinite(gate) && llm42__bits(silu) != llm42__bits(gate / (1.0f + llm42__ex2(y)));
        polynomial += fabsf(y) < 126 && llm42__bits(silu) != llm42__bits(gate / (1.0f + llm42__exp2(y)));
    }
    CHECK_MSG(!differ && polynomial > 100, "%d gates differ; the control: by the polynomial %d", differ, polynomial);
    for (int i = 0; i < 9001; i++) {
        x[i] = llm42__round_bf16(4 * llm42__synthetic_noise(78, (uint64_t)i));
        thread[i / 8 % 1024] += llm42__ex2((x[i] - 20.0f) * 1.44269504f);
    }
    float sum = 0;
    for (int warp = 0; warp < 32; warp++) sum += butterfly(thread + 32 * warp, 32);
    CHECK_BITS(llm42__sm90_sum_exp(x, 9001, 20.0f), sum);
}

// The draw is llm42_sample's, and the log-probability that of another order of the sum.
TEST(draws) {
    enum { V = 1500 };
    static float logits[V];
    static const llm42_sampling sampling[] = {{0},
                                              {.temperature = 0.8f, .seed = 3},
                                              {.temperature = 1, .top_k = 9, .seed = 4},
                                              {.temperature = 1.2f, .top_p = 0.6f, .seed = 5},
                                              {.temperature = 1, .top_k = 50, .top_p = 0.8f, .min_p = 0.02f, .seed = 6},
                                              {.temperature = 1, .min_p = 0.1f, .seed = 7}};
    for (int t = 0; t < 60; t++) {
        for (int i = 0; i < V; i++)
            logits[i] = llm42__round_bf16(4 * llm42__synthetic_noise(77, (uint64_t)(t * V + i)));
        for (size_t s = 0; s < sizeof sampling / sizeof *sampling; s++) {
            const llm42_output a = llm42__sample(logits, V, &sampling[s], t, llm42__sm90_sum_exp);
            CHECK_INT(a.token, llm42_sample(logits, V, &sampling[s], t).token);
            CHECK_NEAR(a.logprob, llm42_logprob(logits, V, a.token), 1e-5);
        }
    }
    for (int i = 0; i < V; i += 5) logits[i] = i % 2 ? NAN : INFINITY;  // such a draw is not used, but must be defined
    for (size_t s = 0; s < sizeof sampling / sizeof *sampling; s++)
        CHECK(!isfinite(llm42__sample(logits, V, &sampling[s], 0, llm42__sm90_sum_exp).logprob));
}

// A step whose largest exponent is -135, by an H200. Without a cut 25 places below 2^-133 the last bit would be 0.
TEST(least_exponent) {
    static const uint16_t factors[16][2] = {{0x9d5e, 0x1e38}, {0x1d5f, 0x9ea8}, {0x1f7b, 0x9a8f}, {0x1e2a, 0x9a8f},
                                            {0x9bff, 0x9fd0}, {0x1bff, 0x9cc5}, {0x9c6a, 0x9f26}, {0x9c34, 0x1ddd},
                                            {0x9a95, 0x9be0}, {0x1a95, 0x1a82}, {0x9b2f, 0x1a9f}, {0x9c53, 0x1fe3},
                                            {0x1f43, 0x1c2b}, {0x9f42, 0x1c2a}, {0x9b1f, 0xa01a}, {0x9a99, 0xa01a}};
    float a[16], b[16];
    for (int i = 0; i < 16; i++) {
        a[i] = llm42__float((uint32_t)factors[i][0] << 16);
        b[i] = llm42__float((uint32_t)factors[i][1] << 16);
    }
    CHECK_INT(llm42__bits(llm42__core_step(llm42__hopper_bf16, -0.0f, a, b, 1)), 0x8000b7a9u);
}

TEST(special_values) {
    const float inf = INFINITY, least = 0x1p-149f, small = 0x1p-133f, large = 0x1.fep127f;
    const struct {
        float sum, a, b, more;
        uint32_t want;
    } steps[] = {{-0.0f, 0, 0, 0, 0},   // zeros are +0
                 {-0.0f, 1, -1, 1, 0},  // so is what cancels
                 {least, 0, 0, 0, 1},   // subnormal numbers count in full
                 {-least, 0, 0, 0, 0x80000001u},
                 {0, small, 1, 0, 0x00010000u},
                 {0, small, 0.5f, 0, 0x00008000u},
                 {0, small, small, 0, 0},   // too small for fp32: cut to zero
                 {0, small, -small, 0, 0},  // and that is +0 too
                 {0, large, large, 0, 0x7f800000u},
                 {0, large, -large, 0, 0xff800000u},
                 {1, inf, 2, 0, 0x7f800000u},
                 {-inf, inf, 2, 0, 0x7fffffffu},
                 {1, inf, 0, 0, 0x7fffffffu},
                 {1, NAN, 1, 0, 0x7fffffffu}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        const float a[16] = {steps[i].a, steps[i].more}, b[16] = {steps[i].b, steps[i].more};
        CHECK_INT(llm42__bits(llm42__core_step(llm42__hopper_bf16, steps[i].sum, a, b, 1)), steps[i].want);
    }
}

// Log-probabilities of a text on tiny42 -------------------------------------------------------------------------------
enum { TEXT = 170 };
typedef struct text_run {
    llm42_arithmetic arithmetic;
    llm42_schedule schedule;
    int each, threads, leaves, ranks, page_size;  // each: rows of a pass
    bool fp32;
} text_run;

static llm42_model *tiny42;

static bool run_text(const text_run *t, llm42_output *out) {
    const llm42_backend_desc desc = TEST_LIST(.model = tiny42, .numerics.compute = LLM42_DTYPE_BF16,
                                              .numerics.arithmetic = t->arithmetic, .numerics.logits_fp32 = t->fp32,
                                              .numerics.leaves = t->leaves, .tensor_parallel = t->ranks,
                                              .backend_desc = TEST_THREADS(t->threads), .page_size = t->page_size);
    const llm42_seq seq = {.sampling = {.temperature = 0.8f, .top_p = 0.9f, .seed = 5}};
    const llm42_pass pass = {.schedule = t->schedule, .seq = &seq, .out = out};
    return test_passes(llm42_backend_cpu(), desc, pass, NULL, TEXT, t->each);
}

static int same_outputs(const llm42_output *a, const llm42_output *b) {
    int same = 0;
    for (int i = 0; i < TEXT; i++)
        same += a[i].token == b[i].token && llm42__bits(a[i].logprob) == llm42__bits(b[i].logprob);
    return same;
}

TEST(passes) {
    // Each group has one result; the next group has another one.
    static const struct {
        int group;
        text_run run;
    } runs[] = {{0, {LLM42_ARITHMETIC_SM90, LLM42_SCHEDULE_INVARIANT, TEXT, 1, 1, 1, 16, true}},
                {0, {LLM42_ARITHMETIC_SM90, LLM42_SCHEDULE_INVARIANT, 1, 1, 1, 1, 16, true}},
                {0, {LLM42_ARITHMETIC_SM90, LLM42_SCHEDULE_INVARIANT, 7, 3, 1, 1, 4, true}},
                {0, {LLM42_ARITHMETIC_SM90, LLM42_SCHEDULE_FAST, 50, 2, 1, 1, 64, true}},
                {0, {LLM42_ARITHMETIC_SM90, LLM42_SCHEDULE_FIXED, 64, 2, 0, 0, 16, true}},
                {0, {LLM42_ARITHMETIC_SM100, LLM42_SCHEDULE_INVARIANT, 60, 2, 1, 1, 16, true}},
                {4, {LLM42_ARITHMETIC_SM80, LLM42_SCHEDULE_INVARIANT, TEXT, 1, 1, 1, 16, true}},
                {4, {LLM42_ARITHMETIC_SM80, LLM42_SCHEDULE_FAST, 1, 2, 1, 1, 16, true}},
                {4, {LLM42_ARITHMETIC_SM89, LLM42_SCHEDULE_INVARIANT, 7, 3, 1, 1, 4, true}},
                {1, {LLM42_ARITHMETIC_SM90, LLM42_SCHEDULE_INVARIANT, TEXT, 2, 4, 1, 16, true}},
                {1, {LLM42_ARITHMETIC_SM90, LLM42_SCHEDULE_INVARIANT, 9, 2, 4, 2, 16, true}},
                {1, {LLM42_ARITHMETIC_SM90, LLM42_SCHEDULE_FAST, TEXT, 1, 1, 4, 16, true}},
                {2, {LLM42_ARITHMETIC_SM90, LLM42_SCHEDULE_INVARIANT, TEXT, 2, 2, 2, 16, true}},
                {2, {LLM42_ARITHMETIC_SM90, LLM42_SCHEDULE_INVARIANT, 30, 2, 1, 2, 16, true}},
                {3, {LLM42_ARITHMETIC_FP32, LLM42_SCHEDULE_INVARIANT, TEXT, 2, 1, 1, 16, true}}};
    static llm42_output out[TEXT], first[TEXT];
    int group = -1;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        if (!run_text(&runs[i].run, out)) return;
        const int same = same_outputs(out, first);
        if (runs[i].group == group) CHECK_INT(same, TEXT);
        else CHECK_MSG(same < TEXT / 2, "run %d: %d of %d rows are those of another order", (int)i, same, TEXT);
        if (runs[i].group != group) memcpy(first, out, sizeof first);
        group = runs[i].group;
    }
}

TEST(refusals) {
    llm42_engine_desc desc = {.model = tiny42, .numerics.arithmetic = LLM42_ARITHMETIC_SM90};
    desc.numerics.compute = LLM42_DTYPE_FP32;
    test_refused(&desc, LLM42_UNSUPPORTED, "llm42_engine_desc.numerics.compute: FP32: arithmetic SM90 needs BF16");
    test_refused(&(llm42_engine_desc){.model = tiny42, .numerics.arithmetic = 6}, LLM42_INVALID, "arithmetic");
    llm42_model *eight = test_load("examples/tiny42-fp8");
    desc = (llm42_engine_desc){.model = eight, .numerics.arithmetic = LLM42_ARITHMETIC_SM80};
    test_refused(&desc, LLM42_UNSUPPORTED, "arithmetic: SM80: its tensor cores have no FP8, and model");
    desc.numerics.arithmetic = LLM42_ARITHMETIC_SM100;
    test_refused(&desc, LLM42_UNSUPPORTED, "arithmetic: SM100: its steps in FP8 are not known, and model");
    llm42_model_free(eight);
}

// >>other sections ------------------------------------------------------------------------------------------------
// The simulator's draws for requests: mean 1, variance 1/shape.
TEST(gamma_draws) {
    enum { DRAWS = 100000 };
    const double shape = 2;
    double sum = 0, squares = 0;
    for (int i = 0; i < DRAWS; i++) {
        double x = llm42__sim_gamma(llm42_hash((uint64_t)i), shape);
        sum += x, squares += x * x;
    }
    CHECK_NEAR(sum / DRAWS, 1, 0.01);
    CHECK_NEAR(squares / DRAWS - 1, 1 / shape, 0.02);
    sum = 0;
    for (int i = 0; i < DRAWS; i++) sum += llm42__sim_gamma(llm42_hash((uint64_t)i), 0.25) / DRAWS;
    CHECK_NEAR(sum, 1, 0.03);
}

TEST(sizes_that_overflow) {
    int64_t before = test_allocations();
    CHECK(!llm42__alloc(SIZE_MAX / 2, 3));
    CHECK(!llm42__alloc(SIZE_MAX - 8, 1));
    CHECK_INT(test_allocations() - before, 0);
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    tiny42 = test_load("examples/tiny42");
    RUN_ALL();
    llm42_model_free(tiny42);
    return test_end("test_sm90");
}
