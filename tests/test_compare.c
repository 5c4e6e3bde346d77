// examples/compare.h: distances in ulps, the size of a row's difference, films and the first value that differs.
#define TEST_ALL
#include "test.h"

#include "examples/lib/compare.h"

static float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

TEST(ulps) {
    const float one = 1, next = from_bits(0x3f800001), below = from_bits(0x3f7fffff), least = from_bits(1);
    CHECK(compare_ulps(one, one, LLM42_DTYPE_FP32) == 0);
    CHECK(compare_ulps(one, next, LLM42_DTYPE_FP32) == 1);
    CHECK(compare_ulps(below, next, LLM42_DTYPE_FP32) == 2);
    CHECK(compare_ulps(-next, -one, LLM42_DTYPE_FP32) == 1);
    CHECK(compare_ulps(0.0f, -0.0f, LLM42_DTYPE_FP32) == 0);
    CHECK(compare_ulps(least, -least, LLM42_DTYPE_FP32) == 2);
    CHECK(compare_ulps(1, 2, LLM42_DTYPE_FP32) == 8388608);
    // The bf16 numbers beside 1 are 1 + 1/128 and 1 - 1/256. What lies between two is a fraction.
    CHECK(compare_ulps(1, 1.0078125f, LLM42_DTYPE_BF16) == 1);
    CHECK(compare_ulps(1, 0.99609375f, LLM42_DTYPE_BF16) == 1);
    CHECK(compare_ulps(1, 1.00390625f, LLM42_DTYPE_BF16) == 0.5);
    CHECK(compare_ulps(-1, 1, LLM42_DTYPE_BF16) == 2 * 0x3f80);
    const float nan = from_bits(0x7fc00000), infinite = from_bits(0x7f800000);
    CHECK(compare_ulps(nan, nan, LLM42_DTYPE_BF16) == 0);
    CHECK(compare_ulps(nan, from_bits(0x7fc00001), LLM42_DTYPE_BF16) == INFINITY);
    CHECK(compare_ulps(1, nan, LLM42_DTYPE_FP32) == INFINITY);
    CHECK(compare_ulps(infinite, -infinite, LLM42_DTYPE_FP32) == INFINITY);
}

TEST(rows) {
    const float want[] = {3, 4}, got[] = {3, 4.5f}, zero[] = {0, 0}, nan[] = {3, from_bits(0x7fc00000)};
    CHECK(compare_row(want, want, 2) == 0);
    CHECK(compare_row(got, want, 2) == 0.1);
    CHECK(compare_row(want, zero, 2) == sqrt(12.5));
    CHECK(compare_row(nan, want, 2) == INFINITY && compare_row(want, nan, 2) == INFINITY);
}

// Two operators of three rows; the film keeps two of them.
static void shoot(film *f, float value, int width) {
    float values[12] = {0};
    values[width + 1] = value;
    values[2 * width] = value;
    film_take(f, -1, "embed", 3, width, (const float[12]){0});
    film_take(f, 0, "attention_norm", 3, width, values);
}

TEST(first_difference) {
    film a = {.rows = 2}, b = {.rows = 2}, wide = {.rows = 2}, none = {.rows = 2};
    comparison c;
    char text[240];
    shoot(&a, 1, 4), shoot(&b, 1, 4), shoot(&wide, 1, 3);
    CHECK_INT(arrlen(a.shots), 2);
    CHECK_INT(a.shots[1].rows, 2);
    CHECK_INT(film_first_difference(&a, &b, LLM42_DTYPE_BF16, &c), -1);
    CHECK_STR(film_first_text(&a, &b, LLM42_DTYPE_BF16, text), "no operator before the logits");
    b.shots[1].values[5] = -1, b.shots[1].values[6] = -0.0f;
    CHECK_INT(film_first_difference(&a, &b, LLM42_DTYPE_BF16, &c), 1);
    CHECK(c.values == 8 && c.differing == 2 && c.row == 1 && c.column == 1);
    CHECK(c.ulps == 2 * 0x3f80 && c.relative == 2);
    b.shots[1].values[5] = 1.0078125f;
    CHECK_STR(film_first_text(&a, &b, LLM42_DTYPE_BF16, text),
              "layer 0, attention_norm, row 1, column 1: 1 and 1.0078125, 1 ulp of bf16 apart");
    b.shots[0].values[7] = from_bits(1);
    CHECK_INT(film_first_difference(&a, &b, LLM42_DTYPE_FP32, &c), 0);
    CHECK(c.differing == 1 && c.ulps == 1 && c.row == 1 && c.column == 3);
    // Another shape, and an operator that is missing on either side.
    CHECK_INT(film_first_difference(&a, &wide, LLM42_DTYPE_BF16, &c), 0);
    CHECK_INT(c.row, -1);
    film_take(&none, -1, "embed", 2, 4, a.shots[0].values);
    CHECK_INT(film_first_difference(&a, &none, LLM42_DTYPE_BF16, &c), 1);
    CHECK_INT(film_first_difference(&none, &a, LLM42_DTYPE_BF16, &c), 1);
    CHECK_STR(film_first_text(&a, &none, LLM42_DTYPE_BF16, text), "operator 1 of the pass is another one, or missing");
    film_free(&a), film_free(&b), film_free(&wide), film_free(&none);
    CHECK(!a.shots);
}

TEST_MAIN("test_compare")
