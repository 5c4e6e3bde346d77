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

// Panels and chains ---------------------------------------------------------------------------------------------------
// Bytes of one kind. 0: all but NaN; 1: those of normal random numbers, which have scales; 2: many zeros and
// subnormals; 3: a few NaN.
static uint8_t random_byte(int kind) {
    const uint64_t draw = test_random(&state);
    const uint8_t any = (uint8_t)(draw % 127 | (draw >> 32 & 128));
    if (kind == 1) return llm42__to_e4m3(120 * llm42__synthetic_noise(draw, 1));
    if (kind == 2) return draw >> 40 & 1 ? (uint8_t)(any & 0x87) : draw >> 41 & 1 ? any & 128 : any;
    return kind == 3 && draw >> 40 & 0xff ? any : kind == 3 ? (uint8_t)(any | 127) : any;
}

// The vector version against the plain step: sums from 0 and others, until there are a million steps.
TEST(vectors_take_plain_steps) {
    static uint8_t w[16][LLM42__BLOCK];
    int64_t steps = 0, wrong[4] = {0}, rounded = 0;
    for (int t = 0; steps < (TEST_SLOW ? 100000 : 1000000); t++) {
        const int kind = t % 4, terms = t % 3 ? LLM42__BLOCK : 32 * test_random_int(&state, 1, 4);
        float x[LLM42__BLOCK], column[LLM42__BLOCK], sum[16], want;
        int8_t exponent[LLM42__BLOCK];
        const uint8_t *rows[16];
        llm42__e4m3_panel panel;
        for (int i = 0; i < LLM42__BLOCK; i++) {
            const uint8_t byte = random_byte(kind);
            x[i] = llm42__from_e4m3(byte), exponent[i] = llm42__e4m3_exponent(byte);
        }
        for (int o = 0; o < 16; o++) {
            rows[o] = w[o];
            for (int i = 0; i < LLM42__BLOCK; i++) w[o][i] = random_byte(kind);
            // cancels: what the first half of the chain gives, the second takes
            for (int i = 64; t % 5 == 0 && i < LLM42__BLOCK; i++) w[o][i] = w[o][i - 64] ^ 128;
            sum[o] = t % 2 ? 0
                           : ldexpf(llm42__synthetic_noise(test_random(&state), 2), test_random_int(&state, -30, 30));
        }
        for (int i = 64; t % 5 == 0 && i < LLM42__BLOCK; i++) x[i] = x[i - 64], exponent[i] = exponent[i - 64];
        llm42__sm90_e4m3_fill(rows, terms, &panel);
        float before[16];
        memcpy(before, sum, sizeof sum);
        llm42__e4m3_steps(x, exponent, 0, 1, &panel, terms / 32, sum);
        for (int o = 0; o < 16; o++, steps += terms / 32) {
            for (int i = 0; i < LLM42__BLOCK; i++) column[i] = i < terms ? llm42__from_e4m3(w[o][i]) : 0;
            want = before[o];
            for (int i = 0; i < terms; i += 32) want = llm42__core_step(llm42__hopper_e4m3, want, x + i, column + i, 1);
            wrong[kind] += llm42__bits(sum[o]) != llm42__bits(want);
            float plain = before[o];
            for (int i = 0; i < terms; i++) plain += x[i] * column[i];
            rounded += llm42__bits(plain) != llm42__bits(want);
        }
    }
    for (int kind = 0; kind < 4; kind++)
        CHECK_MSG(!wrong[kind], "kind %d: %lld of %lld steps differ", kind, (long long)wrong[kind], (long long)steps);
    CHECK_MSG(rounded > steps / 8, "the control: sums in fp32 differ in %lld chains only", (long long)rounded);
}

// Products ------------------------------------------------------------------------------------------------------------
enum { N = 40, K = 300, R = 70 };  // neither is a multiple of 16 or 128

// The description: x is quantised, chains of 128, scales. As the backend: ordered by bf16 rounding and bias.
static float described(const llm42_matrix *w, const float *x, int o, bool sm90, int k0, int k1) {
    const bool block = w->scaling == LLM42_SCALING_BLOCK;
    const int side = block ? LLM42__BLOCK : K;
    float scale[3], value[384] = {0}, of_w[384] = {0}, acc = 0;
    for (int b = 0; b * side < K; b++) {
        float largest = 0;
        const int end = LLM42__MIN(K, b * side + side);
        for (int i = b * side; i < end; i++) largest = fmaxf(largest, fabsf(x[i]));
        scale[b] = w->input_scale > 0 ? w->input_scale : fmaxf(largest / 448.0f, 1e-10f);
        for (int i = b * side; i < end; i++) value[i] = llm42__from_e4m3(llm42__to_e4m3(x[i] / scale[b]));
    }
    for (int i = 0; i < K; i++) of_w[i] = llm42__from_e4m3(((const uint8_t *)w->data)[o * K + i]);
    for (int k = k0; k < k1; k += LLM42__BLOCK) {
        float chain = 0, lane[16] = {0};
        for (int i = k; i < LLM42__MIN(k + LLM42__BLOCK, k1); i++) lane[i % 16] = fmaf(value[i], of_w[i], lane[i % 16]);
        for (int i = k; i < k + LLM42__BLOCK && sm90; i += 32)
            chain = llm42__core_step(llm42__hopper_e4m3, chain, value + i, of_w + i, 1);
        if (!sm90) chain = llm42__tree(lane);
        const int b = k / LLM42__BLOCK;
        acc = block ? fmaf(chain, scale[b] * w->scale[o / LLM42__BLOCK * 3 + b], acc) : acc + chain;
    }
    return block ? acc : acc * (scale[0] * w->scale[o]);
}

TEST(products_are_as_described) {
    static float x[R * K], y[R * N], scales[N], bias[N], eight[R * 384], eight_scale[R * 3];
    static int8_t exponent[R * 384];
    static uint8_t data[N * K];
    int differ = 0;
    for (int i = 0; i < N * K; i++) data[i] = random_byte(1);
    for (int i = 0; i < N; i++) scales[i] = 0.01f + (float)i / 1000, bias[i] = llm42__synthetic_noise(5, (uint64_t)i);
    for (int i = 0; i < R * K; i++) x[i] = llm42__round_bf16(llm42__synthetic_noise(6, (uint64_t)i) * (float)(i % 7));
    memset(x, 0, K * sizeof *x);  // a row of zeros
    for (int kind = 0; kind < 12; kind++) {
        const bool sm90 = kind & 1, block = kind & 2, parted = kind >= 8;
        const llm42_matrix w = {.data = data,
                                .type = LLM42_DTYPE_E4M3,
                                .n = N,
                                .k = K,
                                .scaling = block ? LLM42_SCALING_BLOCK : LLM42_SCALING_CHANNEL,
                                .scale = scales,
                                .input_scale = kind >= 4 && !block ? 0.02f : 0};
        llm42__cpu cpu = {.arithmetic = sm90 ? &llm42__sm90 : &llm42__fp32,
                          .eight = eight,
                          .eight_scale = eight_scale,
                          .eight_exponent = exponent,
                          .wide = 384};
        cpu.desc.numerics.compute = LLM42_DTYPE_BF16;
        const llm42__product p = {.w = &w,
                                  .bias = bias,
                                  .y = y,
                                  .ranks = 1,
                                  .k0 = parted ? 128 : 0,
                                  .k = parted ? K - 128 : K,
                                  .fp32 = parted};
        const llm42__job job = {.cpu = &cpu, .in = x, .product = &p};
        for (int r = 0; r < R; r++) llm42__quantise_task(&job, r, 0);
        for (int n0 = 0; n0 < N; n0 += 16) llm42__cpu_block_e4m3(&cpu, R, &p, n0, 1);
        for (int i = 0; i < R * N; i++) {
            float want = described(&w, x + i / N * K, i % N, sm90, p.k0, K);
            const float other = described(&w, x + i / N * K, i % N, !sm90, p.k0, K);
            if (!parted && sm90) want = llm42__round_bf16(want);
            want += bias[i % N];
            if (!parted) want = llm42__round_bf16(want);
            CHECK_BITS(y[i], want);
            differ += parted && llm42__bits(other + bias[i % N]) != llm42__bits(want);
        }
    }
    CHECK_MSG(differ > R * N, "the control: the other arithmetic differs in %d products only", differ);
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    RUN(every_byte, halfway_cases, random_numbers, measured_steps, special_values, vectors_take_plain_steps,
        products_are_as_described);
    return test_end("test_e4m3");
}
