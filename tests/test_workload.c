// sweep/lib/workload.h: fitted lengths against the published figures, files read as written, arrivals, prompts, marks,
// and one clear line for everything a spec or a trace can have wrong.
#define TEST_ALL
#include "test.h"

#include "sweep/lib/workload.h"

enum { SAMPLES = 200000 };

static llm42_error error;
static workload w;          // the one that open_ok has opened
static workload_request r;  // its last request

static bool open_ok(const char *spec, const char *qps, uint64_t seed) {
    error = (llm42_error){0};
    workload_close(&w);
    return CHECK_MSG(workload_open(&w, spec, qps, seed, &error) == LLM42_OK, "%s, %s: %s", spec, qps, error.text);
}

static void next(void) { workload_next(&w, &r); }

// A file in the test_scratch(), as the spec "kind:PATH".
static const char *file_spec(const char *kind, const char *text) {
    static char spec[200];
    snprintf(spec, sizeof spec, "%s:%s/trace", kind, test_scratch());
    test_write_text(spec + strlen(kind) + 1, text);
    return spec;
}

// >>moments ------------------------------------------------------------------------------------------------------
static int ascending(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

typedef struct figures {
    double mean, median, std, p75, p90, p95, p99, p999, max;
} figures;

static int rank(const int *sorted, double share) { return sorted[(int)ceil(share * SAMPLES) - 1]; }

static figures figures_of(const int *values) {
    static int sorted[SAMPLES];
    figures f = {0};
    memcpy(sorted, values, sizeof sorted);
    qsort(sorted, SAMPLES, sizeof *sorted, ascending);
    for (int i = 0; i < SAMPLES; i++) f.mean += sorted[i] / (double)SAMPLES;
    for (int i = 0; i < SAMPLES; i++) f.std += (sorted[i] - f.mean) * (sorted[i] - f.mean) / SAMPLES;
    return (figures)TEST_LIST(f.mean, rank(sorted, 0.5), sqrt(f.std), rank(sorted, 0.75), rank(sorted, 0.9),
                              rank(sorted, 0.95), rank(sorted, 0.99), rank(sorted, 0.999), sorted[SAMPLES - 1]);
}

// Mean, median and standard deviation as in Table 3; the tail as in the served pairs, whose own percentiles vary by
// some per cent (4,096 of them) and differ from Table 3's dataset besides.
static void check_figures(const char *what, const int *values, figures want, double tail) {
    figures got = figures_of(values);
    const double pairs[][3] = {{got.mean, want.mean, 0.05}, {got.median, want.median, 0.05}, {got.std, want.std, 0.05},
                               {got.p75, want.p75, tail},   {got.p90, want.p90, tail},       {got.p95, want.p95, tail},
                               {got.p99, want.p99, tail},   {got.p999, want.p999, 2 * tail}};
    static const char *const name[] = {"mean", "median", "std", "p75", "p90", "p95", "p99", "p99.9"};
    for (int i = 0; i < 8; i++)
        CHECK_MSG(fabs(pairs[i][0] / pairs[i][1] - 1) <= pairs[i][2], "%s: %s is %g, expected %g within %g%%", what,
                  name[i], pairs[i][0], pairs[i][1], 100 * pairs[i][2]);
    CHECK_MSG(got.max <= want.max, "%s: the largest is %g, expected at most %g", what, got.max, want.max);
}

// Spearman's correlation, ties in order of appearance: there are thousands of values to either.
static double rank_correlation(const int *x, const int *y) {
    static int seen[2][20000];
    double sum = 0, half = SAMPLES / 2.0;
    const int *values[2] = {x, y};
    memset(seen, 0, sizeof seen);
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < SAMPLES; i++) seen[s][values[s][i]]++;
    for (int s = 0; s < 2; s++)
        for (int v = 0, below = 0; v < 20000; v++) {
            int here = seen[s][v];
            seen[s][v] = 2 * below + here;  // twice the mean rank
            below += here;
        }
    for (int i = 0; i < SAMPLES; i++) sum += (seen[0][x[i]] / 2.0 - half) * (seen[1][y[i]] / 2.0 - half);
    return sum / SAMPLES / (half * half / 3);
}

static void check_fit(const char *spec, figures in, figures out, double tail, double correlation) {
    static int input[SAMPLES], output[SAMPLES];
    char what[40];
    if (!open_ok(spec, "12", 42)) return;
    for (int i = 0; i < SAMPLES; i++) {
        next();
        input[i] = r.input_tokens;
        output[i] = r.output_tokens;
        if (i == 0 || input[i] < 1 || output[i] < 1 || input[i] + output[i] > workload_max_tokens(&w))
            CHECK(input[i] >= 1 && output[i] >= 1 && input[i] + output[i] <= workload_max_tokens(&w));
    }
    snprintf(what, sizeof what, "%s in", spec);
    check_figures(what, input, in, tail);
    snprintf(what, sizeof what, "%s out", spec);
    check_figures(what, output, out, tail);
    CHECK_NEAR(rank_correlation(input, output), correlation, 0.03);
}

TEST(sharegpt_has_the_published_figures) {
    check_fit("sharegpt", (figures){304, 136, 491, 427, 766, 967, 2362, 3598, 7815},
              (figures){192, 118, 212, 316, 506, 656, 773, 1547, 1835}, 0.1, -0.324);
}

// As the served pairs were: mean, median and standard deviation closer than Table 3's.
TEST(sharegpt_served_has_the_served_figures) {
    check_fit("sharegpt-served", (figures){307, 132, 461, 427, 766, 967, 2362, 3598, 5766},
              (figures){202.7, 132, 218.5, 316, 506, 656, 773, 1547, 1835}, 0.06, -0.324);
}

// numpy.random.seed(42); randint(1, 1025, size=8), then randint(0, 513, size=8).
TEST(sglang_lengths_are_numpys) {
    static const int input[8] = {103, 436, 861, 271, 107, 72, 701, 21},
                     output[8] = {121, 466, 214, 330, 458, 87, 372, 99};
    if (!open_ok("sglang:1024x512x8", "offline", 42)) return;
    for (int i = 0; i < 16; i++) {
        next();
        CHECK_INT(r.input_tokens, input[i % 8]);
        CHECK_INT(r.output_tokens, output[i % 8]);
    }
    if (!open_ok("sglang:1024x512x8", "offline", 43)) return;
    next();
    CHECK(r.input_tokens != 103);
}

TEST(arxiv_has_the_published_figures) {
    check_fit("arxiv", (figures){7017, 6435, 3479, 9349, 12160, 13736, 15470, 16096, 16137},
              (figures){198, 191, 74, 250, 304, 329, 376, 440, 595}, 0.02, 0.236);
}

TEST(uniform_lengths_are_uniform) {
    double sum[2] = {0};
    int outside = 0, seen[2][2] = {{0}};  // shortest and longest
    if (!open_ok("uniform:1024x512", "offline", 42)) return;
    CHECK_INT(workload_max_tokens(&w), 1536);
    for (int i = 0; i < SAMPLES; i++) {
        next();
        const int tokens[2] = {r.input_tokens, r.output_tokens}, longest[2] = {1024, 512};
        for (int s = 0; s < 2; s++) {
            sum[s] += tokens[s];
            outside += tokens[s] < 1 || tokens[s] > longest[s];
            seen[s][0] += tokens[s] == 1;
            seen[s][1] += tokens[s] == longest[s];
        }
    }
    CHECK_INT(outside, 0);
    CHECK_NEAR(sum[0] / SAMPLES, 512.5, 3);
    CHECK_NEAR(sum[1] / SAMPLES, 256.5, 2);
    CHECK(seen[0][0] > 100 && seen[0][1] > 100 && seen[1][0] > 200 && seen[1][1] > 200);
}

// >>streams ------------------------------------------------------------------------------------------------------
static uint64_t digest(const char *spec, const char *qps, uint64_t seed, int count) {
    uint64_t h = 0;
    int32_t tokens[700];
    if (!open_ok(spec, qps, seed)) return 0;
    workload_clip(&w, 700, NULL);
    for (int i = 0; i < count; i++) {
        uint64_t bits;
        next();
        memcpy(&bits, &r.arrival_s, sizeof bits);
        h = llm42_hash(h ^ bits);
        h = llm42_hash(h ^ ((uint64_t)r.input_tokens << 32 | (uint64_t)r.output_tokens));
        workload_prompt(&w, &r, 1000, tokens);
        for (int t = 0; t < r.input_tokens; t++) h = llm42_hash(h ^ (uint64_t)tokens[t]);
    }
    return h;
}

// The constants hold on every machine and with every compiler.
TEST(the_seed_decides_everything) {
    CHECK(digest("sharegpt", "12", 42, 1000) == 0xa21142da09c70539u);
    CHECK(digest("arxiv", "12", 42, 1000) == 0x9defc8f3f008d34bu);
    CHECK(digest("sharegpt", "12", 43, 1000) != digest("sharegpt", "12", 42, 1000));
    CHECK(digest("fixed:5x7", "3", 1, 50) == digest("fixed:5x7", "3", 1, 50));
    CHECK(digest("fixed:5x7", "3", 1, 50) != digest("fixed:5x7", "3", 2, 50));
}

TEST(rewinding_begins_again) {
    workload_request first[100];
    if (!open_ok("sharegpt", "7", 5)) return;
    for (int i = 0; i < 100; i++) workload_next(&w, &first[i]);
    workload_rewind(&w);
    for (int i = 0; i < 100; i++) {
        next();
        CHECK(r.index == i && r.input_tokens == first[i].input_tokens && r.output_tokens == first[i].output_tokens &&
              r.arrival_s == first[i].arrival_s);
    }
    workload_close(&w);  // twice is fine: the next open_ok does it again
}

TEST(a_million_requests_take_no_memory) {
    int64_t before = test_allocations();
    if (!open_ok("sharegpt", "100", 1)) return;
    for (int i = 0; i < 1000000; i++) next();
    CHECK_INT(r.index, 999999);
    CHECK_INT(test_allocations() - before, 0);
}

TEST(poisson_gaps_are_exponential) {
    workload fast;
    workload_request s;
    double last = 0, squares = 0, long_gaps = 0;
    if (!open_ok("arxiv", "12.5", 42)) return;
    if (!CHECK_INT(workload_open(&fast, "fixed:3x4", "25", 42, &error), LLM42_OK)) return;
    for (int i = 0; i <= SAMPLES; i++) {
        next();
        workload_next(&fast, &s);
        double gap = r.arrival_s - last;
        if (gap < 0 || fabs(s.arrival_s * 2 - r.arrival_s) > 1e-6) CHECK_MSG(false, "request %d at %g", i, r.arrival_s);
        if (i == 0) CHECK(r.arrival_s == 0);
        squares += gap * gap;
        long_gaps += gap > 3 / 12.5;
        last = r.arrival_s;
    }
    CHECK_NEAR(last * 12.5 / SAMPLES, 1, 0.01);
    CHECK_NEAR(squares * 12.5 * 12.5 / SAMPLES, 2, 0.05);
    CHECK_NEAR(long_gaps / SAMPLES, exp(-3), 0.003);
    workload_close(&fast);
}

TEST(offline_arrives_at_once) {
    const char *trace = file_spec("azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-01-01 00:00:00,1,2\n"
                                           "2023-01-01 00:00:09,3,4\n");
    for (int i = 0; i < 2; i++) {
        if (!open_ok(i ? trace : "fixed:10x20", "offline", 42)) continue;
        for (int k = 0; k < 5; k++) next();
        CHECK(r.arrival_s == 0 && r.index == 4);
    }
}

TEST(marks_are_exact_and_even) {
    const double ratios[] = {0, 0.02, 0.05, 0.1, 0.2, 1.0 / 3, 0.5, 0.77, 1};
    for (int k = 0; k < 9; k++) {
        int marked = 0, wrong = 0;
        for (int n = 1; n <= 5000; n++) {
            marked += workload_is_deterministic(n - 1, ratios[k]);
            wrong += marked != (int)floor(ratios[k] * n + 0.5);
        }
        CHECK_MSG(wrong == 0, "ratio %g: %d counts differ", ratios[k], wrong);
    }
    CHECK(!workload_is_deterministic(7, NAN));
}

// Marked requests are like the others.
TEST(marks_know_nothing_of_lengths) {
    double sum[2] = {0}, count[2] = {0};
    if (!open_ok("sharegpt", "12", 42)) return;
    for (int i = 0; i < SAMPLES; i++) {
        next();
        bool marked = workload_is_deterministic(r.index, 0.3);
        sum[marked] += r.output_tokens;
        count[marked]++;
    }
    CHECK_NEAR(sum[1] / count[1] / (sum[0] / count[0]), 1, 0.02);
}

TEST(clipping_fits_the_context) {
    if (!open_ok("fixed:100x50", "offline", 42)) return;
    const int wanted[][3] = {{2, 1, 1}, {30, 1, 29}, {51, 1, 50}, {60, 10, 50}, {150, 100, 50}, {1000, 100, 50}};
    CHECK_INT(workload_max_tokens(&w), 150);
    for (int i = 0; i < 6; i++) {
        workload_rewind(&w);
        CHECK_INT(workload_clip(&w, wanted[i][0], &error), LLM42_OK);
        next();
        CHECK_INT(r.input_tokens, wanted[i][1]);
        CHECK_INT(r.output_tokens, wanted[i][2]);
        CHECK_INT(workload_max_tokens(&w), wanted[i][1] + wanted[i][2]);
    }
    CHECK_INT(workload_clip(&w, 1, &error), LLM42_INVALID);
    CHECK_STR(error.text, "max_context: 1: must be at least 2");
}

// >>files --------------------------------------------------------------------------------------------------------
static void check_next(int input, int output, double arrival) {
    next();
    CHECK_INT(r.input_tokens, input);
    CHECK_INT(r.output_tokens, output);
    CHECK_NEAR(r.arrival_s, arrival, 1e-12);
}

TEST(lengths_come_in_the_order_of_the_file) {
    const char *text = "# two columns among others\r\nid\tinput_len\toutput_len\tend\r\n\r\n1\t10\t20\tx\r\n"
                       "# more\n2\t0\t0\n3\t 30 \t10000000";
    if (!open_ok(file_spec("lengths", text), "offline", 42)) return;
    CHECK_INT(workload_max_tokens(&w), 10000030);
    CHECK(w.empty == 1 && !w.timed);
    for (int cycle = 0; cycle < 3; cycle++) {
        check_next(10, 20, 0);
        check_next(1, 1, 0);  // no tokens count as one
        check_next(30, 10000000, 0);
    }
}

// A byte order mark at the beginning, as Excel writes it, is none of the first column's name.
TEST(lengths_may_bring_their_arrivals) {
    const char *text = "\xef\xbb\xbfinput_len\tarrival_s\toutput_len\n1\t100.25\t2\n3\t100.25\t4\n5\t1.045e2\t6\n";
    if (!open_ok(file_spec("lengths", text), "trace", 42)) return;
    CHECK(w.timed && !w.empty);
    for (int cycle = 0; cycle < 2; cycle++) {
        check_next(1, 2, cycle * 4.25);
        check_next(3, 4, cycle * 4.25);
        check_next(5, 6, cycle * 4.25 + 4.25);
    }
}

TEST(azure_brings_its_arrivals) {
    const char *text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 23:59:59.9799600,4808,10\n"
                       "2023-11-17 00:00:00.0000001,0,8\n2023-11-17 00:00:00.0000001,5,0\n"
                       "2024-02-28T23:59:59.97996Z,7,9\n"
                       "2024-03-01 23:59:59.979960000+00:00,7,9\n";
    if (!open_ok(file_spec("azure", text), "trace", 42)) return;
    const double day = 86400, span = 106 * day;  // 16 November to 1 March of a leap year
    CHECK_INT(workload_max_tokens(&w), 4818);
    CHECK_INT(w.empty, 2);
    for (int cycle = 0; cycle < 2; cycle++) {
        check_next(4808, 10, cycle * span);
        check_next(1, 8, cycle * span + 0.0200401);
        check_next(5, 1, cycle * span + 0.0200401);
        check_next(7, 9, cycle * span + 104 * day);
        check_next(7, 9, cycle * span + span);
    }
    if (!open_ok(file_spec("azure", text), "1000", 42)) return;  // its lengths at another rate
    check_next(4808, 10, 0);
    next();
    CHECK(r.arrival_s > 0 && r.arrival_s < 1);
}

TEST(mooncake_shares_the_prefixes_of_its_blocks) {
    const char *text = "{\"timestamp\": 27482, \"input_length\": 1500, \"output_length\": 52, "
                       "\"hash_ids\": [46, 47, 9]}\n\n"
                       "{\"hash_ids\": [46, 47, 10], \"x\": [{}], \"timestamp\": 30535, \"input_length\": 1100, "
                       "\"output_length\": 0}\n"
                       "{\"timestamp\":30535.5,\"input_length\":0,\"output_length\":3,\"hash_ids\":[]}\n";
    static int32_t tokens[6][2048];
    workload_request q[6];
    if (!open_ok(file_spec("mooncake", text), "trace", 42)) return;
    CHECK_INT(workload_max_tokens(&w), 1552);
    CHECK_INT(w.empty, 2);
    for (int i = 0; i < 6; i++) {
        workload_next(&w, &q[i]);
        CHECK_INT(q[i].input_tokens, ((const int[]){1500, 1100, 1})[i % 3]);
        CHECK_INT(q[i].output_tokens, ((const int[]){52, 1, 3})[i % 3]);
        CHECK_NEAR(q[i].arrival_s, ((const double[]){0, 3.053, 3.0535})[i % 3] + (i / 3) * 3.0535, 1e-12);
        CHECK_INT(q[i].cycle, i / 3);
        CHECK_INT(q[i].block_count, ((const int[]){3, 3, 0})[i % 3]);
        workload_prompt(&w, &q[i], 128256, tokens[i]);
        for (int t = 0; t < q[i].input_tokens; t++)
            if (tokens[i][t] < 0 || tokens[i][t] >= 128256) CHECK_INT(tokens[i][t], -1);
    }
    CHECK_INT(q[1].block[2], 10);
    CHECK(!memcmp(tokens[0], tokens[1], 1024 * sizeof **tokens));
    int equal = 0, equal_blocks = 0, equal_cycles = 0;
    for (int t = 0; t < 76; t++) equal += tokens[0][1024 + t] == tokens[1][1024 + t];
    for (int t = 0; t < 512; t++) equal_blocks += tokens[0][t] == tokens[0][512 + t];
    for (int t = 0; t < 1500; t++) equal_cycles += tokens[0][t] == tokens[3][t];
    CHECK(equal < 3 && equal_blocks < 3 && equal_cycles < 3);
}

TEST(prompts_without_blocks_differ) {
    int32_t tokens[2][1000];
    int equal = 0, largest = 0;
    if (!open_ok("fixed:1000x1", "offline", 42)) return;
    for (int i = 0; i < 2; i++) next(), workload_prompt(&w, &r, 1000, tokens[i]);
    for (int t = 0; t < 1000; t++) {
        equal += tokens[0][t] == tokens[1][t];
        largest = tokens[0][t] > largest ? tokens[0][t] : largest;
        if (tokens[0][t] < 0) CHECK_INT(tokens[0][t], 0);
    }
    CHECK(equal < 10);
    CHECK(largest > 980 && largest < 1000);
}

// A trace that comes faster has its own times, divided; Poisson arrivals have a rate of their own.
TEST(a_trace_can_come_faster) {
    test_write_text(test_file("speed.csv"), "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                                            "2023-11-16 18:15:46,3,4\n2023-11-16 18:15:48,5,6\n"
                                            "2023-11-16 18:15:49.5,5,6\n");
    char spec[256];
    snprintf(spec, sizeof spec, "azure:%s", test_file("speed.csv"));
    const double own[] = {0, 2, 3.5, 3.5, 5.5};
    for (int poisson = 0; poisson < 2; poisson++) {
        workload fast;
        const char *qps = poisson ? "2" : "trace";
        if (!open_ok(spec, qps, 42) || !CHECK_INT(workload_open(&fast, spec, qps, 42, &error), LLM42_OK)) return;
        CHECK_INT(workload_speed(&fast, 4, &error), LLM42_OK);
        for (int i = 0; i < 5; i++) {
            workload_request sooner;
            next(), workload_next(&fast, &sooner);
            if (poisson) CHECK(r.arrival_s == sooner.arrival_s);
            else CHECK(r.arrival_s == own[i] && sooner.arrival_s == own[i] / 4);
            CHECK_INT(r.input_tokens, sooner.input_tokens);
        }
        CHECK_ERROR(workload_speed(&fast, 0, &error), LLM42_INVALID, "speed: 0: must be from 1e-6 to 1e6");
        workload_close(&fast);
    }
}

// The real traces: their sizes, and the last arrival.
TEST(the_real_traces_are_read) {
    static const struct {
        const char *spec, *qps;
        int requests, most, input, output;  // the last two are request 1's
        double last;
    } real[] = {{"lengths:../shared/traces/sharegpt_lengths.tsv", "offline", 4096, 6216, 39, 196, 0},
                {"lengths:../shared/traces/arxiv_lengths.tsv", "offline", 4096, 16369, 5803, 211, 0},
                {"azure:../shared/traces/azure2023_code.csv", "trace", 8819, 7841, 3180, 8, 3435.948056},
                {"azure:../shared/traces/azure2023_conv.csv", "trace", 19366, 14089, 396, 109, 3501.721937},
                {"mooncake:../shared/traces/mooncake_conversation.jsonl", "trace", 12031, 126527, 7322, 490, 3536.999},
                {"mooncake:../shared/traces/mooncake_synthetic.jsonl", "trace", 3993, 191386, 36640, 4, 1022.025}};
    for (size_t k = 0; k < sizeof real / sizeof *real; k++) {
        if (!test_exists(strchr(real[k].spec, ':') + 1)) {
            SKIP("../shared/traces is not here");
            continue;
        }
        if (!open_ok(real[k].spec, real[k].qps, 42)) continue;
        CHECK_INT(arrlen(w.line), real[k].requests);
        CHECK_INT(workload_max_tokens(&w), real[k].most);
        for (int i = 0; i < real[k].requests; i++) {
            next();
            if (i == 1) CHECK(r.input_tokens == real[k].input && r.output_tokens == real[k].output);
        }
        CHECK_NEAR(r.arrival_s, real[k].last, 2e-6);
    }
}

// >>errors -------------------------------------------------------------------------------------------------------
static void refused(const char *spec, const char *qps, llm42_result want, const char *part) {
    error = (llm42_error){0};
    workload_close(&w);
    llm42_result got = workload_open(&w, spec, qps, 42, &error);
    CHECK_MSG(got == want, "%s, %s: %s, expected %s: %s", spec, qps, llm42_result_name(got), llm42_result_name(want),
              error.text);
    CHECK_CONTAINS(error.text, part);
    CHECK_INT(error.result, want);
    CHECK(!w.line && !w.block);
    for (const char *p = error.text; *p; p++)
        if ((unsigned char)*p < ' ') CHECK_MSG(false, "not one line: %s", error.text);
    CHECK_INT(workload_open(&w, spec, qps, 42, NULL), want);  // the error is optional
}

TEST(specs_that_are_wrong) {
    const char *all = "is unknown: take sharegpt, sharegpt-served, arxiv, fixed:IxO, uniform:IxO, sglang:IxOxN, "
                      "lengths:FILE, azure:FILE or "
                      "mooncake:FILE";
    const char *const unknown[] = {"", "share", "sharegpt2", "fixed", "lengths", "Azure:x", "mooncake", ":"};
    for (int i = 0; i < 8; i++) refused(unknown[i], "1", LLM42_INVALID, all);
    const char *const fixed[] = TEST_LIST("fixed:", "fixed:x", "fixed:5", "fixed:0x5", "fixed:5x0", "fixed:-1x5",
                                          "fixed:5x5x5", "fixed:1.5x5", "fixed:10000001x5", "fixed:5x1e300",
                                          "fixed:nanx5", "fixed: 5x5", "fixed:5x", "fixed:5x99999999999999999999");
    for (int i = 0; i < 14; i++)
        refused(fixed[i], "1", LLM42_INVALID,
                "expected fixed:IxO, I input and O output tokens, each from 1 to 10000000");
    refused("uniform:5", "1", LLM42_INVALID, "workload: 'uniform:5': expected uniform:IxO, I input and O output");
    refused("lengths:", "1", LLM42_INVALID, "workload: 'lengths:' names no file");
    refused("azure:/nowhere/at/all", "1", LLM42_IO, "/nowhere/at/all: cannot open");
    refused("mooncake:/", "1", LLM42_IO, "/: not a regular file");
}

TEST(arrivals_that_are_wrong) {
    const char *const wrong[] = {"",    "0",  "-3",   "nan",     "inf",  "1e400", "1e10",
                                 "12x", " 1", "0x10", "Offline", "1e-7", "."};
    for (int i = 0; i < 13; i++)
        refused("sharegpt", wrong[i], LLM42_INVALID,
                "is neither a number of requests a second from 1e-6 to 1e9 nor offline nor trace");
    refused("sharegpt", "0", LLM42_INVALID, "qps: '0'");
    refused("sharegpt", "trace", LLM42_INVALID,
            "qps: trace: workload sharegpt has no arrivals of its own (azure:FILE and mooncake:FILE have, and "
            "lengths:FILE with a column arrival_s)");
    refused("fixed:5x5", "trace", LLM42_INVALID, "qps: trace: workload fixed:5x5 has no arrivals");
    refused(file_spec("lengths", "input_len\toutput_len\n1\t2\n"), "trace", LLM42_INVALID, "has no arrivals");
}

// Each line of these cases of tests/cases/workload.tsv is refused behind a good one, by file and number.
static void check_lines(const char *cases, const char *kind, const char *good) {
    for (char **c; (c = test_case("workload", cases)) != NULL;) {
        char text[1000], part[200];
        snprintf(text, sizeof text, "%s%s", good, c[0]);
        snprintf(part, sizeof part, "/trace:3: %s", c[1]);
        refused(file_spec(kind, text), "offline", LLM42_FORMAT, part);
    }
}

TEST(tables_that_are_wrong) {
    check_lines("lengths", "lengths", "input_len\toutput_len\n1\t2\n");
    check_lines("arrivals", "lengths", "input_len\toutput_len\tarrival_s\n1\t2\t3\n");
    check_lines("azure", "azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n");
    check_lines("mooncake", "mooncake",
                "\n{\"timestamp\": 8, \"input_length\": 5, \"output_length\": 6, \"hash_ids\": [1]}\n");
    for (char **c; (c = test_case("workload", "file")) != NULL;)
        refused(file_spec(c[0], c[1]), "1", LLM42_FORMAT, c[2]);
}

// Every beginning of a good file is read or refused, and nothing else.
TEST(files_that_end_early) {
    const char *const kind[] = {"lengths", "azure", "mooncake"};
    const char *azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n";
    const char *mooncake = "{\"timestamp\": 9, \"input_length\": 5, \"output_length\": 6, \"hash_ids\": [1]}\n";
    const char *const text[] = {"input_len\toutput_len\n12\t34\n", azure, mooncake};
    for (int k = 0; k < 3; k++)
        for (size_t size = 1; size < strlen(text[k]); size++) {
            char part[200];
            snprintf(part, sizeof part, "%.*s", (int)size, text[k]);
            llm42_result result = workload_open(&w, file_spec(kind[k], part), "offline", 42, &error);
            CHECK_MSG(result == LLM42_OK || result == LLM42_FORMAT, "%s cut at %zu: %s", kind[k], size, error.text);
            workload_close(&w);
        }
}

TEST_MAIN("test_workload")
