// Eight bits on a CPU: the numbers, one step of a tensor core against measured ones and special values, the vector
// versions against the plain step, and products with both kinds of scales against their description.
#include "test.h"
#define LLM42_IMPLEMENTATION
#include "llm42.h"

static uint64_t state = 42;

// Numbers -----------------------------------------------------------------------------------------------------------

// The value of a byte in doubles, by its definition.
static double value_of(int byte) {
    const int exponent = byte >> 3 & 15, fraction = byte & 7;
    const double size = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
    return (byte & 127) == 127 ? (double)NAN : byte & 128 ? -size : size;
}

TEST(every_byte) {
    for (int byte = 0; byte < 256; byte++) {
        const float value = llm42__from_e4m3((uint8_t)byte);
        if ((byte & 127) == 127) CHECK(value != value);
        else CHECK_BITS(value, (float)value_of(byte));
        CHECK_INT(llm42__to_e4m3(value), byte);
    }
    CHECK_BITS(llm42__from_e4m3(0x7e), 448.0f);
    CHECK_BITS(llm42__from_e4m3(1), 0x1p-9f);
}

// Between two neighbours: halfway the even byte, and one float beside it the nearer one. Above 448: 448.
TEST(halfway_cases) {
    for (int byte = 0; byte < 126; byte++)
        for (int sign = 0; sign < 256; sign += 128) {
            const double low = fabs(value_of(byte)), high = fabs(value_of(byte + 1)), half = (low + high) / 2;
            const float at = (float)(sign ? -half : half);
            CHECK((double)at == (sign ? -half : half));
            CHECK_INT(llm42__to_e4m3(at), sign | (byte + byte % 2));
            CHECK_INT(llm42__to_e4m3(nextafterf(at, 0)), sign | byte);
            CHECK_INT(llm42__to_e4m3(nextafterf(at, sign ? -1e9f : 1e9f)), sign | (byte + 1));
        }
    const float most[] = {448.0f, 448.1f, 463.9f, 464.0f, 465.0f, 480.0f, 1e9f, FLT_MAX, INFINITY};
    for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
        CHECK_INT(llm42__to_e4m3(most[i]), 0x7e);
        CHECK_INT(llm42__to_e4m3(-most[i]), 0xfe);
    }
    CHECK_INT(llm42__to_e4m3(NAN) & 0x7f, 0x7f);
    CHECK_INT(llm42__to_e4m3(llm42__float(1)), 0);
    CHECK_INT(llm42__to_e4m3(-0.0f), 0x80);
}

// Any float: no byte is nearer.
TEST(random_numbers) {
    int wrong = 0;
    for (int i = 0; i < 1000000; i++) {
        const float x = llm42__float((uint32_t)test_random(&state));
        if (!(fabsf(x) < 448)) continue;
        const int byte = llm42__to_e4m3(x), size = byte & 127;
        const double error = fabs(fabs(value_of(size)) - fabsf(x));
        wrong += (x < 0) != (byte >= 128) || (size && fabs(value_of(size - 1) - fabs((double)x)) < error) ||
                 (size < 126 && fabs(value_of(size + 1) - fabs((double)x)) < error);
    }
    CHECK_INT(wrong, 0);
}

// One step ----------------------------------------------------------------------------------------------------------

// What GPUs gave, by another project's measurements.
TEST(measured_steps) {
    static const struct {
        const char *gpu, *format;
        llm42__tensor_core core;
    } rows[] = {{"A100", "bf16", {8, 24, 23, -126}},  {"A2", "bf16", {8, 24, 23, -126}},
                {"Ada", "bf16", {8, 24, 23, -126}},   {"L40S", "bf16", {8, 24, 23, -126}},
                {"H100", "bf16", {16, 25, 23, -126}}, {"H200", "bf16", {16, 25, 23, -126}},
                {"B200", "bf16", {16, 25, 23, -126}}, {"Ada", "e4m3", {16, 13, 13, -6}},
                {"L40S", "e4m3", {16, 13, 13, -6}},   {"H100", "e4m3", {32, 13, 13, -6}},
                {"H200", "e4m3", {32, 13, 13, -6}}};
    enum { ROWS = sizeof rows / sizeof *rows };
    int steps[ROWS] = {0}, wrong[ROWS] = {0}, other[ROWS] = {0}, k;
    char line[1024], gpu[16], format[16], hex[2][512];
    unsigned c, d;
    FILE *file = fopen("../shared/vectors/tensor_cores.tsv", "r");
    if (!file) {
        SKIP("no ../shared/vectors");
        return;
    }
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%15s %15s %d %511s %511s %x %x", gpu, format, &k, hex[0], hex[1], &c, &d) != 7) continue;
        float factor[2][32];
        for (int i = 0; i < 2; i++) {
            char *at = hex[i];
            for (int j = 0; j < k && k <= 32; j++, at += *at == ',') {
                const uint32_t bits = (uint32_t)strtoul(at, &at, 16);
                factor[i][j] = format[0] == 'e' ? llm42__from_e4m3((uint8_t)bits) : llm42__float(bits << 16);
            }
        }
        for (int r = 0; r < ROWS; r++) {
            if (strcmp(gpu, rows[r].gpu) || strcmp(format, rows[r].format)) continue;
            float sum = llm42__float(c), wider = sum;
            llm42__tensor_core one_place_more = rows[r].core;
            one_place_more.places++;
            for (int i = 0; i < k; i += rows[r].core.terms) {
                sum = llm42__core_step(rows[r].core, sum, factor[0] + i, factor[1] + i, 1);
                wider = llm42__core_step(one_place_more, wider, factor[0] + i, factor[1] + i, 1);
            }
            steps[r]++, wrong[r] += llm42__bits(sum) != d, other[r] += llm42__bits(wider) != d;
        }
    }
    fclose(file);
    for (int r = 0; r < ROWS; r++)
        CHECK_MSG(steps[r] == 400 && !wrong[r] && other[r] > 20,
                  "%s, %s: %d of %d steps differ; the control, one place more: %d", rows[r].gpu, rows[r].format,
                  wrong[r], steps[r], other[r]);
}

static uint32_t step_bits(float sum, const float *a, const float *b) {
    return llm42__bits(llm42__core_step(llm42__hopper_e4m3, sum, a, b, 1));
}

TEST(special_values) {
    float a[32] = {0}, b[32] = {0};
    CHECK_INT(step_bits(-0.0f, a, b), 0);  // zeros are +0
    a[3] = -0.0f, b[3] = 448;
    CHECK_INT(step_bits(-0.0f, a, b), 0);
    a[0] = 1.5f, b[0] = -3, a[31] = 3, b[31] = 1.5f;
    CHECK_INT(step_bits(-0.0f, a, b), 0);  // so is what cancels
    a[31] = 0;
    CHECK_INT(step_bits(4.5f, a, b), 0);
    a[0] = b[0] = 0x1p-9f;  // a subnormal number has the exponent -6: the product, -12, keeps what is above 2^-25
    CHECK_INT(step_bits(0, a, b), llm42__bits(0x1p-18f));
    CHECK_INT(step_bits(0x1.fffffep-13f, a, b), llm42__bits(0x1p-12f + 0x1p-18f - 0x1p-25f));
    CHECK_INT(step_bits(0x1p-126f, a, b), llm42__bits(0x1p-18f));
    a[0] = 0;
    CHECK_INT(step_bits(llm42__float(0x00000400u), a, b), 0x00000400u);  // a subnormal sum keeps 13 places below 2^-126
    CHECK_INT(step_bits(llm42__float(0x000007ffu), a, b), 0x00000400u);
    CHECK_INT(step_bits(-llm42__float(0x000003ffu), a, b), 0);
    CHECK_INT(step_bits(FLT_MAX, a, b), 0x7f7ffc00u);
    for (int i = 0; i < 32; i++) a[i] = b[i] = 448;
    CHECK_INT(step_bits(0, a, b), llm42__bits(32 * 448.0f * 448.0f));
    a[5] = NAN, b[5] = 0;
    CHECK_INT(step_bits(1, a, b), 0x7fffffffu);
    a[5] = 0;
    CHECK_INT(step_bits(NAN, a, b), 0x7fffffffu);
    CHECK_INT(step_bits(-INFINITY, a, b), 0xff800000u);
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    RUN(every_byte, halfway_cases, random_numbers, measured_steps, special_values);
    return test_end("test_e4m3");
}
