// The special functions of llm42_sfu.h: digests of what an H200 gave.
#define LLM42_IMPLEMENTATION
#define TEST_ALL
#include "test.h"

#include "examples/util/llm42_sfu.h"

static float exact_sqrt(float x) { return sqrtf(x); }

// 2^23 floats each: every 512th of all, or all from `first` to 2 x `first`.
TEST(results_have_the_digests_of_a_gpu) {
    const struct {
        const char *name;
        float (*of)(float);
        float first;  // 0: every 512th
        uint64_t digest;
    } functions[] = {
        {"rcp", llm42_sfu_rcp, 0, 0xb2aae5e6f9f0be85},        {"rsqrt", llm42_sfu_rsqrt, 0, 0x152a1b01a39d6eae},
        {"sqrt", llm42_sfu_sqrt, 0, 0x2f07432983b8e20c},      {"lg2", llm42_sfu_lg2, 0, 0xd248d44ec4078e82},
        {"sin", llm42_sfu_sin, 0, 0x82346435c2d5a9cd},        {"cos", llm42_sfu_cos, 0, 0x0b2ca9f1e84914e5},
        {"sqrt", llm42_sfu_sqrt, 1, 0xec162b03dcc39119},      {"sqrt", llm42_sfu_sqrt, 2, 0x30da7c2ce0196274},
        {"lg2", llm42_sfu_lg2, 0.5f, 0xf8884f097b12e53d},     {"lg2", llm42_sfu_lg2, 1, 0x5ca43d6b0d176848},
        {"sin", llm42_sfu_sin, 1, 0xffc89f2c26d596ea},        {"sin", llm42_sfu_sin, 4, 0xdb56c449555a1951},
        {"cos", llm42_sfu_cos, 2, 0x0d925790c47a3f92},        {"tanh", llm42_sfu_tanh, 0, 0x1a9e80a4f1b08315},
        {"tanh", llm42_sfu_tanh, 0.125f, 0x4ada670dafb6c6e5}, {"tanh", llm42_sfu_tanh, 1, 0x84573e3df0ccdcc5},
        {"tanh", llm42_sfu_tanh, 4, 0xeec2f6aa30eb92dd},      {"control", exact_sqrt, 1, 0xec162b03dcc39119},
    };
    const int count = (int)(sizeof functions / sizeof *functions);
    for (int i = 0; i < count; i += TEST_SLOW ? 4 : 1) {
        uint64_t digest = 14695981039346656037u;  // FNV-1a, of words
        const uint32_t first = llm42__bits(functions[i].first), step = first ? 1 : 512;
        for (uint32_t k = 0; k < 1 << 23; k++)
            digest = (digest ^ llm42__bits(functions[i].of(llm42__float(first + k * step)))) * 1099511628211u;
        CHECK_MSG((digest == functions[i].digest) == (i < count - 1), "%s from %g: %016llx", functions[i].name,
                  functions[i].first, (unsigned long long)digest);
    }
}

TEST(values) {
    CHECK(llm42_sfu_rcp(4) == 0.25f && llm42_sfu_rsqrt(16) == 0.25f && llm42_sfu_rsqrt(1) == 1 &&
          llm42_sfu_lg2(8) == 3);
    CHECK(llm42_sfu_lg2(1) == 0 && llm42_sfu_ex2(-3) == 0.125f && isinf(llm42_sfu_rcp(-0.0f)));
    CHECK(llm42__bits(llm42_sfu_lg2(-1)) == 0x7fffffff && llm42__bits(llm42_sfu_rsqrt(-1)) == 0x7fffffff);
    CHECK(llm42_sfu_sqrt(16) == 4 && llm42_sfu_sin(0) == 0 && llm42_sfu_cos(0) == 1 && isnan(llm42_sfu_sin(INFINITY)));
    CHECK(llm42_sfu_tanh(-9) == -1 && llm42_sfu_tanh(1e-40f) == 1e-40f && llm42_sfu_tanh(-0.001f) == -0.001f);
    CHECK(llm42_sfu_rcp(1e-40f) == INFINITY && llm42_sfu_rcp(2e38f) == 0 && llm42_sfu_lg2(1e-40f) == -INFINITY);
}

TEST_MAIN("test_sfu")
