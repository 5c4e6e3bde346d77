// The sums of Hopper's tensor cores on a CPU: one step against its description in doubles, the vector versions against
// the plain one, and the values that need care.
#include "test.h"
#define LLM42_IMPLEMENTATION
#include "llm42.h"

static uint64_t state = 42;

// A bf16 number whose exponent is at most `most` and up to `spread` less.
static float random_bf16(int most, int spread) {
    const int drawn = most + 127 - test_random_int(&state, 0, spread), e = drawn < 0 ? 0 : drawn > 254 ? 254 : drawn;
    return llm42__float((uint32_t)test_random(&state) % 2 << 31 | (uint32_t)e << 23 |
                        (uint32_t)test_random_int(&state, 0, 127) << 16);
}

static double cut(double x, int places) { return trunc(ldexp(x, places)); }

// The description, step by step, in doubles, which hold all its numbers exactly.
static float described_step(float sum, const float *a, const float *b) {
    double total = 0;
    int e = -10000, exponent;
    for (int i = 0; i < 16; i++) {
        int ea, eb;
        if (a[i] == 0 || b[i] == 0) continue;
        frexp(a[i], &ea), frexp(b[i], &eb);  // in [0.5, 1)
        e = LLM42__MAX(e, LLM42__MAX(ea - 1, -126) + LLM42__MAX(eb - 1, -126));
    }
    frexp(sum, &exponent);
    if (sum != 0) e = LLM42__MAX(e, LLM42__MAX(exponent - 1, -126));
    if (e == -10000) return 0;
    for (int i = 0; i < 16; i++) total += cut((double)a[i] * b[i], 25 - e);
    total += cut(sum, 25 - e);
    if (total == 0) return 0;
    frexp(total, &exponent);  // the result's first bit is worth 2^(exponent - 1 + e - 25)
    const int places = LLM42__MIN(24 - exponent, 149 - 25 + e);
    const double kept = ldexp(cut(total, places), e - 25 - places);
    return fabs(kept) >= ldexp(1, 128) ? (float)copysign(INFINITY, kept) : (float)kept;
}

static void power_of(const float *x, int n, float *power) {
    for (int i = 0; i < n; i++) power[i] = llm42__float(llm42__bits(x[i]) & 0x7f800000u);
}

enum { STEPS = 6 };
static int64_t steps_taken, wrong;

// Random factors; every version against the description.
static void check_steps(int most, int spread, int zeros) {
    float x[16 * STEPS], x_power[16 * STEPS], w[256 * STEPS], w_power[256 * STEPS], sum[16], want[16], b[16];
    for (int i = 0; i < 16 * STEPS; i++)
        x[i] = test_random_int(&state, 1, 100) <= zeros ? 0 : random_bf16(most, spread);
    for (int i = 0; i < 256 * STEPS; i++)
        w[i] = test_random_int(&state, 1, 100) <= zeros ? 0 : random_bf16(most, spread);
    power_of(x, 16 * STEPS, x_power), power_of(w, 256 * STEPS, w_power);
    for (int o = 0; o < 16; o++) {
        sum[o] = want[o] = test_random_int(&state, 0, 3) ? 0 : random_bf16(2 * most, spread);
        for (int s = 0; s < STEPS; s++) {
            for (int i = 0; i < 16; i++) b[i] = w[256 * s + 16 * i + o];
            const float plain = llm42__sm90_step(want[o], x + 16 * s, w + 256 * s + o, 16);
            want[o] = described_step(want[o], x + 16 * s, b);
            steps_taken++;
            wrong += llm42__bits(plain) != llm42__bits(want[o]);
            if (want[o] - want[o] != 0) want[o] = 0;  // an infinite sum only stays one
        }
    }
    for (int s = 0; s < STEPS; s++) {
        float next[16];
        memcpy(next, sum, sizeof next);
        llm42__sm90_steps(x + 16 * s, x_power + 16 * s, w + 256 * s, w_power + 256 * s, 1, sum);
        for (int o = 0; o < 16; o++) {
            const float plain = llm42__sm90_step(next[o], x + 16 * s, w + 256 * s + o, 16);
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
        for (int t = 0; t < (TEST_SLOW ? 40 : 400); t++) check_steps(kinds[i].most, kinds[i].spread, kinds[i].zeros);
        CHECK_MSG(!wrong, "exponents %d to %d, %d%% zeros: %lld of %lld steps differ", kinds[i].most - kinds[i].spread,
                  kinds[i].most, kinds[i].zeros, (long long)wrong, (long long)steps_taken);
    }
}

// Sixteen equal products of largest significands: 32 bits do not hold the sum of the addends.
TEST(sums_of_many_large_addends) {
    float x[16], x_power[16], w[256], w_power[256], sum[16];
    for (int sign = -1; sign <= 1; sign += 2) {
        for (int i = 0; i < 16; i++) x[i] = 1.9921875f;
        for (int i = 0; i < 256; i++) w[i] = (float)sign * 1.9921875f;
        power_of(x, 16, x_power), power_of(w, 256, w_power);
        for (int o = 0; o < 16; o++) sum[o] = (float)sign * 3.99f;
        llm42__sm90_steps(x, x_power, w, w_power, 1, sum);
        for (int o = 0; o < 16; o++)
            CHECK_INT(llm42__bits(sum[o]), llm42__bits(described_step((float)sign * 3.99f, x, w)));
    }
}

TEST(special_values) {
    const float inf = INFINITY, least = llm42__float(1), small = llm42__float(0x00010000u);
    float a[16] = {0}, b[16] = {0};
    CHECK_INT(llm42__bits(llm42__sm90_step(-0.0f, a, b, 1)), 0);  // zeros are +0
    a[0] = 1, b[0] = -1, a[1] = b[1] = 1;
    CHECK_INT(llm42__bits(llm42__sm90_step(-0.0f, a, b, 1)), 0);  // so is what cancels
    a[1] = b[1] = 0, a[0] = b[0] = 0;
    CHECK_INT(llm42__bits(llm42__sm90_step(least, a, b, 1)), 1);  // subnormal numbers count in full
    CHECK_INT(llm42__bits(llm42__sm90_step(-least, a, b, 1)), 0x80000001u);
    a[0] = small, b[0] = 1;
    CHECK_INT(llm42__bits(llm42__sm90_step(0, a, b, 1)), 0x00010000u);
    b[0] = 0.5f;
    CHECK_INT(llm42__bits(llm42__sm90_step(0, a, b, 1)), 0x00008000u);
    a[0] = b[0] = small;
    CHECK_INT(llm42__bits(llm42__sm90_step(0, a, b, 1)), 0);  // too small for fp32: cut to zero
    a[0] = b[0] = llm42__float(0x7f7f0000u);
    CHECK_INT(llm42__bits(llm42__sm90_step(0, a, b, 1)), 0x7f800000u);  // too large
    b[0] = -b[0];
    CHECK_INT(llm42__bits(llm42__sm90_step(0, a, b, 1)), 0xff800000u);
    a[0] = inf, b[0] = 2;
    CHECK_INT(llm42__bits(llm42__sm90_step(1, a, b, 1)), 0x7f800000u);
    CHECK_INT(llm42__bits(llm42__sm90_step(-inf, a, b, 1)), 0x7fffffffu);
    b[0] = 0;
    CHECK_INT(llm42__bits(llm42__sm90_step(1, a, b, 1)), 0x7fffffffu);
    a[0] = NAN, b[0] = 1;
    CHECK_INT(llm42__bits(llm42__sm90_step(1, a, b, 1)), 0x7fffffffu);
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    RUN(steps_are_as_described);
    RUN(sums_of_many_large_addends);
    RUN(special_values);
    return test_end("test_sm90");
}
