// The simulator: calibrations and what is refused in them, the virtual clock against sums done by hand, the flip model,
// and the engine's policies on it: whatever the policy, deterministic tokens are the true ones.
#define TEST_ALL
#include "test.h"
#define LLM42_CALIBRATION_IMPLEMENTATION
#include "examples/util/llm42_calibration.h"

#include "sweep/bench/flips.h"
#include "sweep/bench/steady.h"

enum { REQUESTS = 60, LONGEST = 96 };

static llm42_model *model;
static llm42_calibration *calibration;
static llm42_error error;

// >>calibrations -------------------------------------------------------------------------------------------------
static const char head[] =
    "# llm42 calibration 2\n# source: a test\n# device: none\n# devices: 1\n# model: tiny\n# time_unit: ms\n"
    "# kv_tokens: 4096\n# padding: computed\n# host_window_ms: 0\n# flip_shape: 2\n# overlap_fast: 2\n# "
    "overlap_replay: 3\n"  // keys of versions before 0.3.0, which are comments now
    "# any other line with a mark is a comment\n"
    "schedule\tkind\trows\tcontext_tokens\tms\n";

// A table with ms = base + rows x (row + context x key), at rows 1, 8, 64 and contexts 0 and 100.
static int table(char *text, size_t size, const char *name, double base, double row, double key) {
    int length = snprintf(text, size, "# table: %.*s %s 6\n", (int)strcspn(name, "\t"), name, strchr(name, '\t') + 1);
    for (int r = 1; r <= 64; r *= 8)
        for (int c = 0; c <= 100; c += 100)
            length += snprintf(text + length, size - (size_t)length, "%s\t%d\t%d\t%.9g\n", name, r, c,
                               base + r * (row + c * key));
    return length;
}

static const char flips[] = "# table: flips 4\nfast_rows\treplay_rows\tflip_rate\n1\t1\t0.02\n1\t64\t0.01\n8\t1\t0.03\n"
                            "8\t64\t0\n";

// All tables but one, until the next call.
static char *without(const char *left_out) {
    static char text[4096];
    static const struct {
        const char *name;
        double base, row, key;
    } tables[] = {{"fast\tdecode", 4, 0.1, 0.001},      {"fast\tprompt", 6, 0.2, 0.002},
                  {"fixed\twindow", 10, 0.2, 0.001},    {"fixed\tprompt", 7, 0.3, 0.002},
                  {"invariant\tdecode", 8, 0.2, 0.001}, {"invariant\tprompt", 9, 0.4, 0.002}};
    int length = 0;
    for (int t = 0; t < 6; t++)
        if (strcmp(tables[t].name, left_out))
            length += table(text + length, sizeof text - (size_t)length, tables[t].name, tables[t].base, tables[t].row,
                            tables[t].key);
    snprintf(text + length, sizeof text - (size_t)length, "%s# end\n", strcmp(left_out, "flips") ? flips : "");
    return text;
}

static char text[4096];  // all tables

static const char *write_text(const char *first, const char *second) {
    char whole[16384];
    const char *path = test_file("calibration.tsv");
    test_write(path, whole, (size_t)snprintf(whole, sizeof whole, "%s%s", first, second));
    return path;
}

// The calibration of this text, which must be a good one. The caller frees it.
static llm42_calibration *load(const char *first, const char *second) {
    llm42_calibration *c = NULL;
    CHECK_MSG(llm42_calibration_load(&c, write_text(first, second), &error) == LLM42_OK, "%s", error.text);
    return c;
}

static void refused(const char *first, const char *second, const char *what) {
    llm42_calibration *c = NULL;
    llm42_error e = {0};
    CHECK_INT(llm42_calibration_load(&c, write_text(first, second), &e), LLM42_FORMAT);
    CHECK(c == NULL);
    CHECK_MSG(strstr(e.text, what) && strstr(e.text, "calibration.tsv"), "error is \"%s\", without \"%s\"", e.text,
              what);
    llm42_calibration_free(c);
}

// A copy of `text` with the first `old` replaced.
static const char *with(const char *text, const char *old, const char *by) {
    static char copy[2][8192];
    static int next;
    char *to = copy[next++ % 2];
    const char *at = strstr(text, old);
    CHECK_MSG(at != NULL, "the test's text has no \"%s\"", old);
    if (!at) return text;
    snprintf(to, sizeof copy[0], "%.*s%s%s", (int)(at - text), text, by, at + strlen(old));
    return to;
}

// These cases of tests/cases/sim.tsv, in the head or behind it.
static void refused_changes(bool in_head, const char *cases) {
    for (char **c; (c = test_case("sim", cases)) != NULL;)
        refused(in_head ? with(head, c[0], c[1]) : head, in_head ? text : with(text, c[0], c[1]), c[2]);
}

static double decode_ms(const llm42_calibration *c, double rows, double context) {
    return llm42_calibration_ms(c, LLM42_SCHEDULE_FAST, LLM42_KIND_DECODE, rows, context);
}

static void a_calibration_is_read_and_interpolated(void) {
    calibration = load(head, text);
    if (!calibration) return;
    CHECK_STR(calibration->name, "calibration");
    CHECK_STR(calibration->source, "a test");
    CHECK_STR(calibration->forced, "");
    CHECK_STR(calibration->model, "tiny");
    CHECK_INT(calibration->devices, 1);
    CHECK_INT(calibration->kv_tokens, 4096);
    CHECK(!calibration->padding_free && llm42_calibration_flip_rate(calibration, 1, 1) == 0.02);
    const llm42_calibration *c = calibration;
    CHECK_NEAR(decode_ms(c, 8, 100), 4 + 8 * 0.2, 1e-9);      // a point
    CHECK_NEAR(decode_ms(c, 30, 50), 4 + 30 * 0.15, 1e-9);    // between
    CHECK_NEAR(decode_ms(c, 640, 300), 4 + 640 * 0.4, 1e-9);  // beyond
    CHECK_NEAR(decode_ms(c, 0.5, 0), 4.1, 1e-9);              // before
    CHECK(isnan(llm42_calibration_ms(c, (llm42_schedule)99, LLM42_KIND_DECODE, 8, 100)));
    CHECK(isnan(llm42_calibration_ms(c, LLM42_SCHEDULE_FAST, (llm42_kind)-1, 8, 100)));
    CHECK(isnan(decode_ms(c, (double)INFINITY, 100)));
    CHECK(isnan(decode_ms(c, 8, (double)NAN)));
}

// Beyond the last context the lines of two numbers of rows can cross, and beyond the last rows those of two contexts.
TEST(times_do_not_fall_beyond_the_grid) {
    char first[2048];
    snprintf(first, sizeof first, "%s%s", head,
             "# table: fast decode 6\nfast\tdecode\t1\t0\t4\nfast\tdecode\t1\t100\t8\nfast\tdecode\t2\t0\t5\n"
             "fast\tdecode\t2\t100\t6.2\nfast\tdecode\t3\t0\t7\nfast\tdecode\t3\t100\t8\n");
    llm42_calibration *c = load(first, without("fast\tdecode"));
    if (!c) return;
    for (double context = 0; context <= 1600; context += 25) {
        double ms[41];
        for (int rows = 1; rows < 41; rows++) {
            ms[rows] = decode_ms(c, rows, context);
            CHECK(ms[rows] >= 4 && (rows < 2 || ms[rows] >= (rows == 2 ? 0.75 : 1) * ms[rows - 1]));
            CHECK(ms[rows] >= decode_ms(c, rows, fmax(context - 25, 0)));
        }
    }
    CHECK_NEAR(decode_ms(c, 1, 1100), 48, 1e-9);  // linear
    CHECK_NEAR(decode_ms(c, 2, 1100), 36, 1e-9);  // a quarter less, not 18.2
    CHECK_NEAR(decode_ms(c, 9, 1100), 36 + 6 * 2, 1e-9);
    CHECK_NEAR(decode_ms(c, 40, 0), 7 + 37 * 2, 1e-9);
    CHECK_NEAR(decode_ms(c, 40, 100), 8 + 37 * 2, 1e-9);  // not 8 + 37 * 1.8
    llm42_calibration_free(c);
}

// What build/bench does with the times that it has measured, and the mark that the reader knows.
// What build/bench would say of these; "": they are steady.
static const char *doubt(const steadiness *s) {
    static char why[256];
    CHECK(steady_enough(s, why, sizeof why) == !*why);
    return why;
}

TEST(doubtful_measurements_are_told) {
    static const double good[] = {1, 1.1, 9, 9, 9}, lonely[] = {0.15, 7.99, 8, 8.1, 8.2},
                        many[] = {1, 1, 1.6, 2, 2, 2, 2, 2};
    const steadiness fresh = {.share = 1, .spread = 1};
    steadiness s = fresh;
    CHECK_STR(doubt(&s), "");
    steady_share(&s, 0.9);
    steady_repeats(&s, good, 5, "good");
    steady_repeats(&s, lonely, 1, "a single one");
    CHECK(!*doubt(&s) && s.share == 0.9);
    steady_share(&s, 0.899);
    steady_share(&s, 0.95);
    CHECK_STR(doubt(&s), "this program got 89% of the processor's time");
    s = fresh;
    steady_repeats(&s, lonely, 5, "fast decode, 3 rows");
    steady_repeats(&s, good, 5, "good");
    CHECK_STR(doubt(&s), "repeats disagree (fast decode, 3 rows: 0.15 and 7.99 ms)");
    steadiness all = {.share = 0.5, .spread = 1};
    steady_add(&all, &s);
    CHECK_STR(doubt(&all), "this program got 50% of the processor's time; repeats disagree (fast decode, 3 rows: 0.15 "
                           "and 7.99 ms)");
    CHECK_INT(steady_taken(5), 1);
    CHECK_INT(steady_taken(8), 2);
    s = fresh;
    steady_repeats(&s, many, 8, "the quartile is compared");
    CHECK(*doubt(&s));
    s = fresh;
    steady_repeats(&s, many, 7, "the second is");
    CHECK_STR(doubt(&s), "");
    steady_share(&s, (double)NAN);
    CHECK(*doubt(&s));
    llm42_calibration *c = load(with(head, "# any other", "# forced: half a processor\n# any other"), text);
    if (c) CHECK_STR(c->forced, "half a processor");
    llm42_calibration_free(c);
}

TEST(bad_calibrations_are_refused) {
    llm42_calibration *c = NULL;
    CHECK_INT(llm42_calibration_load(&c, "/nonexistent/file.tsv", &error), LLM42_IO);
    CHECK_INT(llm42_calibration_load(&c, NULL, &error), LLM42_INVALID);
    refused("", "", "is empty");
    refused("schedule\n", "", "first line must be");
    refused("# llm42 calibration 2", "", "cut short behind line 0: table 'fast decode' is missing, and the last line");
    refused(head, "",
            "cut short behind line 14: table 'fast decode' is missing, and the last line, '# end', is missing");
    refused(head, "# end\n", "table 'fast decode' is missing");
    refused(head, without("fixed\twindow"), "table 'fixed window' is missing");
    refused(head, without("invariant\tprompt"), "table 'invariant prompt' is missing");
    refused_changes(true, "head");
    refused_changes(false, "rows");
    c = load(head, with(text, "decode\t8\t0\t4.8", "decode\t8\t0\t3.08"));
    CHECK(c && decode_ms(c, 8, 0) == 3.08);
    llm42_calibration_free(c);
    refused(head, with(with(text, "fast\tdecode\t8\t100\t5.6\n", ""), "fast decode 6", "fast decode 5"),
            "is no full grid");
    refused(head, with(with(text, "fast\tdecode\t64\t100\t16.8\n", ""), "fast decode 6", "fast decode 5"),
            "is no full grid: its last rows lack");
}

// The message for `# WORD: 1` in line 14, where there are comments.
static const char *message_for(const char *word) {
    char line[80];
    llm42_calibration *c = NULL;
    snprintf(line, sizeof line, "# %s: 1\nschedule", word);
    error.text[0] = 0;
    llm42_calibration_load(&c, write_text(with(head, "schedule", line), text), &error);
    llm42_calibration_free(c);
    return error.text;
}

// A word that is like a key. If it is a key too, as `device` and `devices` are, the key is there twice. The guess is
// compared by its first letters, since some words are like both of these.
static void misspelt(const char *word, const char *key) {
    static const char *const both[] = {"device", "devices"};
    char what[160];
    snprintf(what, sizeof what, "calibration.tsv:14: %s: no key has this name: did you mean %.6s", word, key);
    for (int i = 0; i < 2; i++)
        if (!strcmp(word, both[i])) snprintf(what, sizeof what, "calibration.tsv:14: %s is there twice", word);
    const char *message = message_for(word);
    CHECK_MSG(strstr(message, what), "%s: error is \"%s\", without \"%s\"", word, message, what);
}

TEST(misspelt_keys_are_refused) {
    static const char *const keys[] = {"source",         "device",         "model",          "time_unit",
                                       "padding",        "forced",         "pass_rows",      "devices",
                                       "leaves",         "kv_tokens",      "undivided_ms",   "flip_shape",
                                       "host_decode_ms", "host_prompt_ms", "host_window_ms", "host_request_ms"};
    static const char *const without_unit[][2] = TEST_LIST(
        {"undivided", "undivided_ms"}, {"host_decode", "host_decode_ms"}, {"host_prompt", "host_prompt_ms"},
        {"host_window", "host_window_ms"}, {"host_request", "host_request_ms"}, {"kv", "kv_tokens"},
        {"pass", "pass_rows"}, {"leafs", "leaves"});
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        const char *key = keys[k];
        const int length = (int)strlen(key);
        for (int i = 0; i <= length; i++) {
            char word[32];
            snprintf(word, sizeof word, "%.*sx%s", i, key, key + i);
            misspelt(word, key);
            if (i == length) continue;
            snprintf(word, sizeof word, "%.*s%s", i, key, key + i + 1);
            misspelt(word, key);
            snprintf(word, sizeof word, "%.*sX%s", i, key, key + i + 1);
            misspelt(word, key);
            if (key[i] == key[i + 1] || i + 1 == length) continue;
            snprintf(word, sizeof word, "%.*s%c%c%s", i, key, key[i + 1], key[i], key + i + 2);
            misspelt(word, key);
        }
    }
    for (size_t i = 0; i < sizeof without_unit / sizeof *without_unit; i++)
        misspelt(without_unit[i][0], without_unit[i][1]);
    static const char *const comments[] = TEST_LIST("note", "overlap_fast", "host", "flips", "tables", "exchange",
                                                    "parameters", "windows", "ms", "rows", "time", "measured with",
                                                    "KV", "cuda leaves", "padding is free", "advice", "x", "");
    for (size_t i = 0; i < sizeof comments / sizeof *comments; i++)
        CHECK_MSG(!*message_for(comments[i]), "%s: %s", comments[i], error.text);
}

TEST(bad_flip_tables_are_refused) {
    refused(head, without("flips"), "table 'flips' is missing");
    refused_changes(false, "flips");
}

// Fields that count something.
TEST(calibrations_with_bad_whole_numbers_are_refused) {
    // What stands in the file, what replaces it, the error (%s: the value), and values that are refused.
    static const struct {
        const char *old, *by, *why, *values[11];
    } fields[] = {
        {"devices: 1", "devices: %s", ":4: devices: '%s': must be a whole number from 1 to 1048576",
         TEST_LIST("1.5", "0", "-1", "1048577", "inf", "nan", "2.0", "1e400", "", "2 2")},
        {"kv_tokens: 4096", "kv_tokens: %s", ":7: kv_tokens: '%s': must be a whole number from 0 to 1e+12",
         TEST_LIST("0.5", "-1", "1e12.", "1000000000001", "inf", "nan", "1e-400", "0x10")},
        {"decode\t8\t100\t5.6", "decode\t%s\t100\t5.6", ":19: rows: '%s': must be a whole number from 1 to 1073741824",
         TEST_LIST("8.5", "0", "-8", "1e10", "inf", "nan")},
        {"fast\tdecode\t8\t100", "fast\tdecode\t8\t%s", ":19: context_tokens: '%s': must be a whole number from 0",
         TEST_LIST("99.5", "-1", "1e10", "inf", "nan")}};
    char line[80], what[120];
    for (int f = 0; f < 4; f++)
        for (int i = 0; fields[f].values[i]; i++) {
            snprintf(line, sizeof line, fields[f].by, fields[f].values[i]);
            snprintf(what, sizeof what, fields[f].why, fields[f].values[i]);
            if (f < 2) refused(with(head, fields[f].old, line), text, what);
            else refused(head, with(text, fields[f].old, line), what);
        }
}

// What a table announces, and the end mark.
TEST(calibrations_with_bad_tables_are_refused) {
    char own[512], first[2048], *others = without("fast\tdecode");
    refused_changes(false, "tables");
    table(own, sizeof own, "fast\tdecode", 4, 0.1, 0.001);
    snprintf(first, sizeof first, "%s%s", head, own);
    refused(first, text, ":22: table 'fast decode' is there twice");
    *strstr(others, "# end\n") = 0;  // tables may stand in any order, lines may end as elsewhere
    snprintf(first, sizeof first, "%s# end\r\n", own);
    char all[8192];
    snprintf(all, sizeof all, "%s%s", others, first);
    llm42_calibration_free(load(head, all));
}

// The text of a calibration with a seventh table, of INVARIANT windows, in which `old` (if not NULL) is replaced.
static const char *with_windows(const char *tables, const char *old, const char *by) {
    char more[512], last[600];
    table(more, sizeof more, "invariant\twindow", 5, 0.5, 0.003);
    snprintf(last, sizeof last, "%s# end", old ? with(more, old, by) : more);
    return with(tables, "# end", last);
}

// A file may lack the table of INVARIANT windows, but one that is there must be whole.
TEST(bad_tables_of_invariant_windows_are_refused) {
    for (char **c; (c = test_case("sim", "windows")) != NULL;) refused(head, with_windows(text, c[0], c[1]), c[2]);
    const char *whole = with_windows(text, NULL, NULL);
    char cut[4096];
    snprintf(cut, sizeof cut, "%.*s", (int)(strstr(whole, "invariant\twindow\t64") - whole), whole);
    refused(head, cut, "table 'invariant window' has 4 of its 6 rows, and the last line, '# end', is missing");
    // It does not stand in for a table that is required.
    refused(head, with_windows(without("invariant\tprompt"), NULL, NULL), "table 'invariant prompt' is missing");
}

// A file that is cut behind any of its first `size` bytes is refused, with what is missing.
static void refused_cut(const char *data, size_t size, int *taken) {
    llm42_calibration *c = NULL;
    const char *path = test_file("calibration.tsv");
    test_write(path, data, size);
    error.text[0] = 0;
    bool good = llm42_calibration_load(&c, path, &error) == LLM42_OK;
    llm42_calibration_free(c);
    bool named = strstr(error.text, path) && strstr(error.text, "is missing") && strstr(error.text, "cut short behind");
    *taken += good || (size && !named);
}

TEST(a_calibration_cut_short_is_refused) {
    static const char *const files[] = {"cpu-tiny42", "h100-pcie-paper", "h200-base42", "h200-llama-3.1-8b",
                                        "h200x2-llama-3.1-8b"};
    for (int f = 0; f < 5; f++) {
        char path[80];
        snprintf(path, sizeof path, "sweep/calibration/%s.tsv", files[f]);
        llm42_calibration *c = NULL;
        size_t size = 0;
        char *data = test_read(path, &size);
        CHECK(data != NULL);
        CHECK_INT(llm42_calibration_load(&c, path, &error), LLM42_OK);
        llm42_calibration_free(c);
        int taken = 0;
        for (size_t i = 0; data && i < size; i++)
            if (i % 61 == 0 || i + 300 > size || (i && data[i - 1] == '\n')) refused_cut(data, i, &taken);
        CHECK_MSG(taken == 0, "%s: %d cuts were taken for whole files or not explained", path, taken);
        free(data);
    }
}

// A line that is gone from a table, or a piece of the file, as copying may lose it.
TEST(a_calibration_with_a_hole_is_refused) {
    size_t size = 0;
    char *data = test_read("sweep/calibration/h100-pcie-paper.tsv", &size);
    CHECK(data != NULL);
    if (!data) return;
    char *hole = malloc(size);
    int taken = 0;
    for (size_t i = (size_t)(strstr(data, "# table:") - data); i < size; i += strcspn(data + i, "\n") + 1) {
        static const size_t lines[] = {0, 100, 1000};  // one line, and some more
        for (int k = 0; k < 3; k++) {
            size_t next = i + lines[k] < size ? i + lines[k] : size - 1;
            next += strcspn(data + next, "\n") + 1;
            memcpy(hole, data, i);
            memcpy(hole + i, data + next, size - next);
            const char *path = test_file("calibration.tsv");
            test_write(path, hole, size - (next - i));
            llm42_calibration *c = NULL;
            taken += llm42_calibration_load(&c, path, &error) == LLM42_OK;
            llm42_calibration_free(c);
        }
    }
    CHECK_INT(taken, 0);
    TEST_FREE(hole, data);
}

// >>spy ----------------------------------------------------------------------------------------------------------
// Stands in front of the simulator, looks at the engine's passes, and lets one fail.
static struct {
    int replays, fail_replay;  // FIXED passes that have run, and the number of the one that fails; 0: none
    bool mixed;                // a FAST pass held prompt rows beside decode rows
    int windows_of[64];        // rows of each sequence in the last FIXED pass, by slot
} spy;

static llm42_result spy_run(void *state, const llm42_pass *pass, llm42_error *e) {
    const bool fixed = pass->schedule == LLM42_SCHEDULE_FIXED && !pass->check;
    int prompts = 0, decodes = 0;
    memset(spy.windows_of, 0, fixed ? sizeof spy.windows_of : 0);
    for (int i = 0; i < pass->rows; i++) {
        int slot = pass->row[i].seq;
        bool alone = (i == 0 || pass->row[i - 1].seq != slot) && (i + 1 == pass->rows || pass->row[i + 1].seq != slot);
        *(alone ? &decodes : &prompts) += 1;
        if (fixed && slot < 64) spy.windows_of[slot]++;
    }
    spy.mixed |= !fixed && prompts && decodes;
    spy.replays += fixed;
    if (fixed && spy.replays == spy.fail_replay) return llm42_fail(e, LLM42_BACKEND, "the device is gone");
    return llm42_backend_sim()->run(state, pass, e);
}

static const llm42_backend *spy_backend(void) {
    static llm42_backend backend;
    backend = *llm42_backend_sim();
    backend.name = "spy";
    backend.run = spy_run;
    memset(&spy, 0, sizeof spy);
    return &backend;
}

// >>runs ---------------------------------------------------------------------------------------------------------
typedef struct result {
    int32_t tokens[REQUESTS][LONGEST];
    double finished[REQUESTS];
    llm42_stats stats;
    double seconds;
} result;

static llm42_engine *open_with(llm42_engine_desc desc, llm42_sim_desc *sim) {
    if (!sim->calibration) sim->calibration = calibration;
    desc.model = model;
    desc.backend = spy_backend();
    desc.backend_desc = sim;
    if (!desc.max_context) desc.max_context = 256;
    if (!desc.policy.window) desc.policy.window = 8, desc.policy.group = 4;
    return test_open(&desc);
}

static int input_of(int i) { return 2 + i * 37 % 90; }
static int output_of(int i) { return 1 + i * 53 % (LONGEST - 1); }

static int64_t submit(llm42_engine *engine, int input, int output, bool deterministic, double arrival) {
    int32_t prompt[128] = {0};
    for (int t = 0; t < input; t++) prompt[t] = (7 * t + input) % 512;
    llm42_request_desc desc = TEST_LIST(.prompt = prompt, .prompt_count = input, .max_new_tokens = output,
                                        .ignore_stop = true, .deterministic = deterministic, .arrival = arrival);
    return test_submit(engine, desc);
}

// Serves REQUESTS requests, every `every`th deterministic, ten milliseconds apart.
static result *serve(llm42_engine_desc desc, llm42_sim_desc sim, int every) {
    result *r = calloc(1, sizeof *r);
    llm42_engine *engine = open_with(desc, &sim);
    for (int i = 0; i < REQUESTS; i++)
        submit(engine, input_of(i), output_of(i), every && i % every == 0, 0.01 * i + 1e-9);
    CHECK_MSG(llm42_engine_run(engine, &error) == LLM42_OK, "%s", error.text);
    for (int i = 0; i < REQUESTS; i++) {
        const llm42_request *q = llm42_engine_request(engine, i + 1);
        CHECK_INT(q->committed, output_of(i));
        memcpy(r->tokens[i], q->tokens, (size_t)q->committed * sizeof *q->tokens);
        r->finished[i] = q->last_token;
    }
    r->stats = llm42_engine_stats(engine);
    r->seconds = llm42_engine_now(engine);
    llm42_engine_close(engine);
    return r;
}

static int differing(const result *a, const result *b, int every) {
    int count = 0;
    for (int i = 0; i < REQUESTS; i++)
        count += i % every == 0 && memcmp(a->tokens[i], b->tokens[i], (size_t)output_of(i) * sizeof(int32_t)) != 0;
    return count;
}

// One request, 5 tokens in, 4 out: a prompt of 5 rows, 3 positions in the mean; decode passes at contexts 6, 7 and 8.
TEST(the_clock_is_the_sum_of_the_passes) {
    llm42_sim_desc sim = {0};
    llm42_engine *engine = open_with((llm42_engine_desc){.policy.mode = LLM42_MODE_NONDETERMINISTIC}, &sim);
    CHECK(llm42_engine_now(engine) == 0);
    int64_t id = submit(engine, 5, 4, false, 0.5);
    CHECK_INT(llm42_engine_run(engine, &error), LLM42_OK);
    double prompt = 6 + 5 * (0.2 + 3 * 0.002), decode = 3 * (4 + 0.1) + (6 + 7 + 8) * 0.001;
    CHECK_NEAR(llm42_engine_now(engine), 0.5 + 1e-3 * (prompt + decode), 1e-12);
    CHECK_NEAR(llm42_engine_request(engine, id)->first_token, 0.5 + 1e-3 * prompt, 1e-12);
    llm42_engine_close(engine);
}

// The simulator without an engine.
static void *open_simulator(const llm42_sim_desc *sim, int max_rows, int ranks) {
    void *state = NULL;
    const llm42_backend_desc desc = TEST_LIST(.model = model, .max_rows = max_rows, .max_context = 256, .pages = 16,
                                              .page_size = 16, .max_running = 4, .tensor_parallel = ranks,
                                              .backend_desc = sim);
    CHECK_INT(llm42_backend_sim()->open(&state, &desc, &error), LLM42_OK);
    return state;
}

// Ranks divide the device's part of a pass, but for undivided_ms, and add two exchanges for each layer.
static const char exchange[] =
    "# table: exchange 4\nranks\trows\texchange_us\n2\t1\t10\n2\t101\t20\n4\t1\t30\n4\t101\t30\n";

TEST(ranks_divide_a_pass_and_exchange) {
    char tables[512];
    snprintf(tables, sizeof tables, "%s# end", exchange);
    llm42_calibration *c = load(with(head, "# devices: 1", "# undivided_ms: 1"), with(text, "# end", tables));
    if (!c) return;
    CHECK_INT(c->leaves, 1);
    const int L = 3;
    CHECK_NEAR(llm42_calibration_ranks_ms(c, LLM42_SCHEDULE_FAST, 9, 51, 1, L), 9, 1e-12);
    CHECK_NEAR(llm42_calibration_ranks_ms(c, LLM42_SCHEDULE_FAST, 9, 1, 2, L), 1 + 8.0 / 2 + 2 * L * 0.010, 1e-12);
    CHECK_NEAR(llm42_calibration_ranks_ms(c, LLM42_SCHEDULE_FAST, 9, 51, 2, L), 1 + 8.0 / 2 + 2 * L * 0.015, 1e-12);
    CHECK_NEAR(llm42_calibration_ranks_ms(c, LLM42_SCHEDULE_FAST, 9, 201, 2, L), 1 + 8.0 / 2 + 2 * L * 0.030, 1e-12);
    CHECK_NEAR(llm42_calibration_ranks_ms(c, LLM42_SCHEDULE_FAST, 9, 0.5, 4, L), 1 + 8.0 / 4 + 2 * L * 0.030, 1e-12);
    CHECK_NEAR(llm42_calibration_ranks_ms(c, LLM42_SCHEDULE_FAST, 0.5, 1, 2, L), 0.5 + 2 * L * 0.010, 1e-12);
    CHECK_NEAR(llm42_calibration_ranks_ms(c, LLM42_SCHEDULE_INVARIANT, 9, 1, 2, L), 1 + 8.0 / 2 + 2 * L * 0.010, 1e-12);
    CHECK(isnan(llm42_calibration_ranks_ms(c, LLM42_SCHEDULE_FAST, 9, 1, 8, L)));
    c->devices = 2;  // the times then have the exchanges of two
    CHECK_NEAR(llm42_calibration_ranks_ms(c, LLM42_SCHEDULE_FAST, 9, 51, 2, L), 9, 1e-12);
    CHECK_NEAR(llm42_calibration_ranks_ms(c, LLM42_SCHEDULE_FAST, 9, 1, 1, L), 1 + (8 - 2 * L * 0.010) * 2, 1e-12);
    c->devices = 1;
    for (int ranks = 1; ranks <= 4; ranks *= 2) {  // 20 decode passes of a request, and its prompt
        llm42_sim_desc sim = {.calibration = c, .no_flips = true};
        llm42_engine_desc desc = {.policy.mode = LLM42_MODE_NONDETERMINISTIC, .tensor_parallel = ranks};
        llm42_engine *engine = open_with(desc, &sim);
        submit(engine, 4, 1, false, 0);
        CHECK_INT(llm42_engine_run(engine, &error), LLM42_OK);
        const double ms = llm42_calibration_ms(c, LLM42_SCHEDULE_FAST, LLM42_KIND_PROMPT, 4, 2.5);
        CHECK_NEAR(llm42_engine_now(engine),
                   1e-3 * llm42_calibration_ranks_ms(c, LLM42_SCHEDULE_FAST, ms, 4, ranks, model->config.layers),
                   1e-12);
        llm42_engine_close(engine);
    }
    const llm42_sim_desc sim = {.calibration = c};
    llm42_engine_desc desc = {.model = model, .backend = llm42_backend_sim(), .backend_desc = &sim};
    c->exchange.x[1] = 8;
    desc.tensor_parallel = 4;
    test_refused(&desc, LLM42_UNSUPPORTED,
                 "tensor_parallel: 4: calibration calibration has times of 1 device and no exchanges of 4");
    llm42_calibration_free(c);
    for (char **w; (w = test_case("sim", "exchanges")) != NULL;)
        refused(head, with(text, "# end", with(tables, w[0], w[1])), w[2]);
    refused_changes(true, "ranks");
}

// INVARIANT passes exchange parts in fp32, and the others in bf16: they may have a table of their own.
TEST(invariant_passes_have_exchanges_of_their_own) {
    char tables[512];
    static const char *const more[] = {"2\t1\t12\n2\t101\t32\n", "8\t1\t12\n8\t101\t32\n"};
    for (int i = 0; i < 2; i++) {
        snprintf(tables, sizeof tables, "%s# table: invariant exchange 2\n%s# end", exchange, more[i]);
        llm42_calibration *c = load(head, with(text, "# end", tables));
        if (!c) return;
        CHECK_NEAR(llm42_calibration_ranks_ms(c, LLM42_SCHEDULE_FAST, 9, 51, 2, 3), 9.0 / 2 + 2 * 3 * 0.015, 1e-12);
        // The second table lacks two ranks. Then the first one holds for all passes.
        CHECK_NEAR(llm42_calibration_ranks_ms(c, LLM42_SCHEDULE_INVARIANT, 9, 51, 2, 3),
                   9.0 / 2 + 2 * 3 * (i ? 0.015 : 0.022), 1e-12);
        CHECK(isnan(llm42_calibration_ranks_ms(c, LLM42_SCHEDULE_FAST, 9, 51, 8, 3)));
        // INVARIANT passes that take as long as FAST ones exchange as these do.
        llm42_mix mix = {.rows = {4}, .context = {10}};
        double ms[2][2];
        for (int s = 0; s < 2; s++)
            for (int slowdown = 0; slowdown < 2; slowdown++) {
                llm42_sim_desc sim = {.calibration = c, .invariant_slowdown = slowdown};
                void *state = open_simulator(&sim, 64, 2);
                mix.schedule = s ? LLM42_SCHEDULE_INVARIANT : LLM42_SCHEDULE_FAST;
                ms[s][slowdown] = llm42_backend_sim()->estimate(state, &mix);
                llm42_backend_sim()->close(state);
            }
        CHECK(ms[1][1] == ms[0][0] && ms[1][0] > ms[0][0]);
        llm42_calibration_free(c);
    }
    snprintf(tables, sizeof tables, "%s# table: invariant exchange\n# end", exchange);
    refused(head, with(text, "# end", tables), "table 'invariant exchange': rows: '': must be a whole number from 1");
}

// The device pads a pass to the next of the numbers of rows in pass_rows. Rows of padding attend to nothing.
TEST(passes_are_padded) {
    llm42_calibration *c = load(with(head, "# devices: 1", "# devices: 1\n# pass_rows: 8 16  24 640"), text);
    if (!c) return;
    CHECK_INT(c->pass_sizes, 4);
    // A decode pass of r rows at context c takes 4 + r (0.1 + 0.001 c) ms, a row without context 0.1 ms.
    const llm42_schedule fast = LLM42_SCHEDULE_FAST, fixed = LLM42_SCHEDULE_FIXED, invariant = LLM42_SCHEDULE_INVARIANT;
    CHECK_NEAR(decode_ms(c, 8, 100), 4 + 8 * 0.2, 1e-9);
    CHECK_NEAR(decode_ms(c, 9, 100), 4 + 9 * 0.2 + 7 * 0.1, 1e-9);
    CHECK_NEAR(decode_ms(c, 25, 100), 4 + 25 * 0.2 + 615 * 0.1, 1e-9);
    // Beyond the last the last step, of 616 rows, goes on.
    CHECK_NEAR(decode_ms(c, 641, 100), 4 + 641 * 0.2 + 615 * 0.1, 1e-9);
    CHECK_NEAR(decode_ms(c, 1257, 100), 4 + 1257 * 0.2 + 615 * 0.1, 1e-9);
    double padded = llm42_calibration_ms(c, invariant, LLM42_KIND_PROMPT, 12, 0),
           whole = llm42_calibration_ms(c, fixed, LLM42_KIND_PROMPT, 12, 0);
    CHECK(padded == llm42_calibration_ms(c, invariant, LLM42_KIND_PROMPT, 16, 0));
    // No pass is padded to more rows than the engine's largest pass has.
    for (int most = 25; most <= 640; most += 615) {
        llm42_sim_desc sim = {.calibration = c};
        void *state = open_simulator(&sim, most, 1);
        llm42_mix mix = {.schedule = fast, .rows = {25}, .context = {100}};
        CHECK_NEAR(llm42_backend_sim()->estimate(state, &mix), 1e-3 * (4 + 25 * 0.2 + (most - 25) * 0.1), 1e-12);
        llm42_backend_sim()->close(state);
    }
    // Exchanges take what the padded pass takes.
    c->exchange = (llm42_table){1, 2, (double[]){2}, (double[]){1, 101}, (double[]){10, 20}};
    CHECK_NEAR(llm42_calibration_ranks_ms(c, fast, 9, 17, 2, 3), 9.0 / 2 + 2 * 3 * 0.0123, 1e-12);
    CHECK_NEAR(llm42_calibration_ranks_ms(c, fixed, 9, 17, 2, 3), 9.0 / 2 + 2 * 3 * 0.0116, 1e-12);
    c->exchange = (llm42_table){0};
    c->pass_sizes = 0;
    CHECK(padded > llm42_calibration_ms(c, invariant, LLM42_KIND_PROMPT, 12, 0));
    CHECK(whole == llm42_calibration_ms(c, fixed, LLM42_KIND_PROMPT, 12, 0));  // padded to its shape, not beyond
    llm42_calibration_free(c);
    refused_changes(true, "padding");
}

// Two sequences decode beside a prompt of 10 rows: 12 rows in all, of which 2 cost what decode rows cost and 10 what
// prompt rows do. Padding counts where the calibration says so.
TEST(a_mixed_pass_costs_the_mean_of_its_rows) {
    const llm42_backend *backend = llm42_backend_sim();
    void *state = open_simulator(&(llm42_sim_desc){.calibration = calibration}, 64, 1);
    llm42_row row[64] = {{0, 19, 1, LLM42_ROW_SAMPLE}, {1, 39, 1, LLM42_ROW_SAMPLE}};
    llm42_output out[64];
    llm42_seq seq[4] = {{.request = 1}, {.request = 2}, {.request = 3}};
    for (int i = 0; i < 10; i++) row[2 + i] = (llm42_row){2, i, 1, i == 9 ? LLM42_ROW_SAMPLE : 0};
    llm42_pass pass = {.schedule = LLM42_SCHEDULE_FAST, .rows = 12, .shape = 12, .row = row, .seq = seq, .out = out};
    CHECK_INT(backend->run(state, &pass, &error), LLM42_OK);
    double decode = 4 + 12 * (0.1 + 30 * 0.001), prompt = 6 + 12 * (0.2 + 5.5 * 0.002);
    CHECK_NEAR(backend->now(state), 1e-3 * (2 * decode + 10 * prompt) / 12, 1e-12);
    double before = backend->now(state);
    for (int i = 0; i < 8; i++)
        row[i] = (llm42_row){0, 10 + i, 1, LLM42_ROW_SAMPLE};  // one window of 8 in a pass of 32
    pass = (llm42_pass){.schedule = LLM42_SCHEDULE_FIXED, .rows = 8, .shape = 32, .row = row, .seq = seq, .out = out};
    CHECK_INT(backend->run(state, &pass, &error), LLM42_OK);
    CHECK_NEAR(backend->now(state) - before, 1e-3 * (10 + 32 * 0.2 + 8 * 14.5 * 0.001), 1e-12);
    before = backend->now(state);
    calibration->padding_free = true;
    CHECK_INT(backend->run(state, &pass, &error), LLM42_OK);
    calibration->padding_free = false;
    CHECK_NEAR(backend->now(state) - before, 1e-3 * (10 + 8 * 0.2 + 8 * 14.5 * 0.001), 1e-12);
    pass.logits = (float *)out;
    CHECK_INT(backend->run(state, &pass, &error), LLM42_UNSUPPORTED);
    pass.logits = NULL;
    pass.schedule = LLM42_SCHEDULE_COUNT;
    CHECK_INT(backend->run(state, &pass, &error), LLM42_UNSUPPORTED);
    CHECK(isnan(llm42_calibration_ms(calibration, LLM42_SCHEDULE_FAST, LLM42_KIND_WINDOW, 1, 1)));
    backend->close(state);
}

// Milliseconds of an INVARIANT or FAST pass with windows of 8, 4 and 1 rows (1 is decoding), and a prompt of 3 rows.
static double windows_ms(const llm42_calibration *c, llm42_schedule schedule, double slowdown) {
    const llm42_backend *backend = llm42_backend_sim();
    const llm42_sim_desc sim = {.calibration = c, .invariant_slowdown = slowdown, .no_flips = true};
    llm42_row row[16];
    llm42_output out[16];
    const llm42_seq seq[4] = {{.request = 1}, {.request = 2}, {.request = 3}, {.request = 4}};
    for (int i = 0; i < 8; i++) row[i] = (llm42_row){0, 10 + i, 1, LLM42_ROW_SAMPLE};
    for (int i = 0; i < 4; i++) row[8 + i] = (llm42_row){1, 20 + i, 1, LLM42_ROW_SAMPLE};
    row[12] = (llm42_row){2, 30, 1, LLM42_ROW_SAMPLE};
    for (int i = 0; i < 3; i++) row[13 + i] = (llm42_row){3, i, 1, i == 2 ? LLM42_ROW_SAMPLE : 0};
    const llm42_pass pass = {.schedule = schedule, .rows = 16, .shape = 16, .row = row, .seq = seq, .out = out};
    const llm42_mix mix = {
        .schedule = schedule, .rows = {1, 3, 12}, .context = {31, 2, (8 * 14.5 + 4 * 22.5) / 12}, .windows = 2};
    void *state = open_simulator(&sim, 64, 1);
    CHECK_INT(backend->run(state, &pass, &error), LLM42_OK);
    const double ms = 1e3 * backend->now(state);
    CHECK_NEAR(1e3 * backend->estimate(state, &mix), ms, 1e-9);
    backend->close(state);
    return ms;
}

// Milliseconds of the INVARIANT passes of one request: its prompt of 4 rows, and a replay pass of one window of 8 rows.
static double served_ms(const llm42_calibration *c) {
    llm42_sim_desc sim = {.calibration = c, .no_flips = true};
    const llm42_policy policy = {.verifier = LLM42_VERIFIER_INVARIANT, .window = 8, .group = 1};
    llm42_engine *engine = open_with((llm42_engine_desc){.policy = policy}, &sim);
    submit(engine, 4, 9, true, 0);
    const llm42_stats stats = test_finish(engine);
    CHECK(stats.replay_passes == 1 && stats.passes[LLM42_SCHEDULE_INVARIANT] == 2 && stats.candidates == 7);
    return 1e3 * stats.busy[LLM42_SCHEDULE_INVARIANT];
}

// Windows of INVARIANT replay passes have the times of their own table, or of that of prompts. Where INVARIANT passes
// take so many times as long as FAST ones, the table does not count.
TEST(invariant_windows_may_have_times_of_their_own) {
    const double context = (8 * 14.5 + 4 * 22.5) / 12, decode = 8 + 16 * (0.2 + 31 * 0.001),
                 prompt = 9 + 16 * (0.4 + 2 * 0.002);
    double fast[2], slow[2];
    for (int own = 0; own < 2; own++) {
        const double base = own ? 5 : 9, row = own ? 0.5 : 0.4, key = own ? 0.003 : 0.002;
        llm42_calibration *c = load(head, own ? with_windows(text, NULL, NULL) : text);
        if (!c) return;
        CHECK(isnan(llm42_calibration_ms(c, LLM42_SCHEDULE_INVARIANT, LLM42_KIND_WINDOW, 8, 100)) == !own);
        const double windows = base + 16 * (row + context * key);
        CHECK_NEAR(windows_ms(c, LLM42_SCHEDULE_INVARIANT, 0), (decode + 3 * prompt + 12 * windows) / 16, 1e-9);
        fast[own] = windows_ms(c, LLM42_SCHEDULE_FAST, 0), slow[own] = windows_ms(c, LLM42_SCHEDULE_INVARIANT, 2);
        CHECK_NEAR(served_ms(c), 9 + 4 * (0.4 + 2.5 * 0.002) + base + 8 * (row + 8.5 * key), 1e-9);
        llm42_calibration_free(c);
    }
    CHECK(fast[0] == fast[1] && slow[0] == slow[1]);
    CHECK_NEAR(slow[0], 2 * fast[0], 1e-9);
    CHECK_NEAR(
        fast[0],
        (4 + 16 * (0.1 + 31 * 0.001) + 3 * (6 + 16 * (0.2 + 2 * 0.002)) + 12 * (6 + 16 * (0.2 + context * 0.002))) / 16,
        1e-9);
}

// Each window reads keys and values for itself: where windows have fewer rows than those of the table, attention takes
// as long as that of as many whole windows. Without a table of windows a schedule takes INVARIANT's, or else FIXED's.
TEST(windows_read_keys_and_values_each_for_itself) {
    const double context = (8 * 14.5 + 4 * 22.5) / 12, whole = 2 * 32 / (12.0 / 16);
    for (int own = 0; own < 2; own++) {
        const char *tables = own ? with_windows(text, NULL, NULL) : text;
        llm42_calibration *c = load(with(head, "# devices: 1", "# devices: 1\n# window_rows: 32"), tables);
        if (!c) return;
        CHECK(c->window_rows == 32);
        const double decode = 8 + 16 * (0.2 + 31 * 0.001), prompt = 9 + 16 * (0.4 + 2 * 0.002),
                     key = own ? 0.003 : 0.001, windows = (own ? 5 + 16 * 0.5 : 10 + 16 * 0.2) + whole * context * key;
        CHECK_NEAR(windows_ms(c, LLM42_SCHEDULE_INVARIANT, 0), (decode + 3 * prompt + 12 * windows) / 16, 1e-9);
        const double fast = 4 + 16 * (0.1 + 31 * 0.001) + 3 * (6 + 16 * (0.2 + 2 * 0.002)) + 12 * windows;
        CHECK_NEAR(windows_ms(c, LLM42_SCHEDULE_FAST, 0), fast / 16, 1e-9);
        CHECK_NEAR(windows_ms(c, LLM42_SCHEDULE_INVARIANT, 2), fast / 8, 1e-9);
        // Windows as long as those of the table, or longer, take its times.
        c->window_rows = 4;
        CHECK_NEAR(windows_ms(c, LLM42_SCHEDULE_FAST, 0), (fast - 12 * (whole - 16) * context * key) / 16, 1e-9);
        llm42_calibration_free(c);
    }
    refused(with(head, "# devices: 1", "# devices: 1\n# window_rows: -1"), text, "window_rows: '-1': must be");
    refused(with(head, "# devices: 1", "# devices: 1\n# window_row: 32"), text, "window_row");
}

// With random tables and numbers of rows to which passes are padded, more context never makes a pass of windows
// shorter, nor do more windows with the same rows. A calibration that is no file may lack the table.
TEST(short_windows_never_take_less) {
    uint64_t random = 7;
    for (int round = 0; round < 300; round++) {
        double rows[4] = {4, 64, 256, 1024}, contexts[3] = {10, 50, 100}, ms[12], sizes[2] = {40, 100};
        for (int i = 0; i < 12; i++) {  // no less than with fewer rows, or with less context
            const double more = test_random_int(&random, 0, 20);
            ms[i] = fmax(i % 3 ? ms[i - 1] + more : test_random_int(&random, 1, 50), i < 3 ? 0 : ms[i - 3]);
        }
        llm42_calibration c = {.devices = 1, .flip_shape = 1, .window_rows = 32};
        if (round % 2) c.pass_sizes = 2, c.pass_rows = sizes;
        const llm42_sim_desc sim = {.calibration = &c};
        void *state = open_simulator(&sim, 200, 1);
        llm42_mix mix = {.schedule = LLM42_SCHEDULE_INVARIANT, .rows[LLM42_KIND_WINDOW] = 60, .windows = 1};
        CHECK(isnan(llm42_backend_sim()->estimate(state, &mix)));
        c.cost[LLM42_SCHEDULE_INVARIANT][LLM42_KIND_WINDOW] = (llm42_table){4, 3, rows, contexts, ms};
        double before[40] = {0};
        for (int context = 0; context < 200; context += 7) {
            mix.context[LLM42_KIND_WINDOW] = context;
            double fewer = 0;
            for (mix.windows = 1; mix.windows < 40; mix.windows++) {
                const double seconds = llm42_backend_sim()->estimate(state, &mix);
                CHECK(seconds >= fewer - 1e-12 && seconds >= before[mix.windows] - 1e-12);
                fewer = before[mix.windows] = seconds;
            }
        }
        llm42_backend_sim()->close(state);
    }
}

// What the host adds to a pass of this schedule, whose rows are all of these: milliseconds.
static double host_ms(llm42_schedule schedule, const llm42_row *row, int rows) {
    const llm42_backend *backend = llm42_backend_sim();
    llm42_output out[64];
    llm42_seq seq[4] = {{.request = 1}, {.request = 2}, {.request = 3}, {.request = 4}};
    llm42_pass pass = {.schedule = schedule, .rows = rows, .shape = rows, .row = row, .seq = seq, .out = out};
    double seconds[2];
    for (int i = 0; i < 2; i++) {
        void *state = open_simulator(&(llm42_sim_desc){.calibration = calibration}, 64, 1);
        for (int k = 0; k < LLM42_KIND_COUNT; k++) calibration->host_ms[k] = i * (k == 0 ? 100 : k == 1 ? 200 : 400);
        calibration->host_request_ms = i * 1000;  // no pass takes it
        CHECK_INT(backend->run(state, &pass, &error), LLM42_OK);
        seconds[i] = backend->now(state);
        backend->close(state);
    }
    memset(calibration->host_ms, 0, sizeof calibration->host_ms);
    calibration->host_request_ms = 0;
    return 1e3 * (seconds[1] - seconds[0]);
}

TEST(the_host_works_for_passes_and_windows) {
    llm42_row row[12] = {{0, 19, 1, LLM42_ROW_SAMPLE}, {1, 39, 1, LLM42_ROW_SAMPLE}};
    CHECK_NEAR(host_ms(LLM42_SCHEDULE_FAST, row, 2), 100, 1e-9);  // two sequences that decode: one pass
    for (int i = 0; i < 5; i++) row[2 + i] = (llm42_row){2, i, 1, i == 4 ? LLM42_ROW_SAMPLE : 0};
    for (int i = 0; i < 5; i++) row[7 + i] = (llm42_row){3, i, 1, 0};
    CHECK_NEAR(host_ms(LLM42_SCHEDULE_FAST, row, 7), 100 + 200, 1e-9);   // and a prompt that ends
    CHECK_NEAR(host_ms(LLM42_SCHEDULE_FAST, row, 12), 100 + 200, 1e-9);  // and the first part of another
    CHECK_NEAR(host_ms(LLM42_SCHEDULE_INVARIANT, row + 7, 5), 200, 1e-9);
    for (int i = 0; i < 12; i++) row[i] = (llm42_row){i / 4, 8 + i, 1, LLM42_ROW_SAMPLE};
    CHECK_NEAR(host_ms(LLM42_SCHEDULE_FIXED, row, 12), 3 * 400, 1e-9);  // three windows
}

// >>policies -----------------------------------------------------------------------------------------------------
TEST(every_policy_returns_the_true_tokens) {
    static result *truth;
    truth = serve((llm42_engine_desc){.policy.mode = LLM42_MODE_BATCH_INVARIANT}, (llm42_sim_desc){0}, 1);
    int runs = 0, rollbacks = 0;
    for (int bits = 0; bits < 128; bits++) {
        bool tight = bits & 8, invariant = bits & 32, fixed = bits & 64;
        llm42_prefill prefill = invariant  ? LLM42_PREFILL_INVARIANT
                                : bits & 2 ? LLM42_PREFILL_ISOLATED
                                           : LLM42_PREFILL_PACKED;
        llm42_engine_desc desc = TEST_LIST(.policy.verifier = fixed ? LLM42_VERIFIER_FIXED : LLM42_VERIFIER_INVARIANT,
                                           .policy.verify = bits & 1 ? LLM42_VERIFY_WAIT : LLM42_VERIFY_EAGER,
                                           .policy.prefill = prefill,
                                           .experiment.bonus = bits & 4 ? LLM42_BONUS_OFF : LLM42_BONUS_ON,
                                           .policy.chunked_prefill = bits & 16 ? LLM42_CHUNKED_OFF : LLM42_CHUNKED_ON,
                                           .kv.pages = tight ? 24 : 0, .kv.prefix_cache = (bits & 17) == 1,
                                           .policy.window = bits & 4 ? 16 : 8, .policy.group = bits & 2 ? 2 : 4);
        result *r = serve(desc, (llm42_sim_desc){0}, 2);
        CHECK_MSG(differing(truth, r, 2) == 0, "policy bits %d: %d deterministic requests differ", bits,
                  differing(truth, r, 2));
        CHECK((invariant || !fixed) == (r->stats.passes[LLM42_SCHEDULE_INVARIANT] > 0));
        CHECK(fixed == (r->stats.passes[LLM42_SCHEDULE_FIXED] > 0));
        if (bits & 16 && fixed) CHECK(!spy.mixed);  // a replay pass of the INVARIANT verifier may have windows of one
        if (tight) CHECK(r->stats.preemptions > 0);
        runs++, rollbacks += (int)r->stats.rollbacks;
        free(r);
    }
    CHECK_INT(runs, 128);
    CHECK(rollbacks > 500);
    // The control: without verification the fast passes' wrong tokens are returned.
    result *r = serve((llm42_engine_desc){.policy.mode = LLM42_MODE_NONDETERMINISTIC}, (llm42_sim_desc){0}, 0);
    CHECK_MSG(differing(truth, r, 1) > REQUESTS / 4, "%d of %d differ", differing(truth, r, 1), REQUESTS);
    free(r);
    r = serve((llm42_engine_desc){.policy.mode = LLM42_MODE_NONDETERMINISTIC}, (llm42_sim_desc){.no_flips = true}, 0);
    CHECK_INT(differing(truth, r, 1), 0);
    TEST_FREE(r, truth);
}

TEST(the_seed_decides_everything) {
    llm42_engine_desc desc = {0};
    result *a = serve(desc, (llm42_sim_desc){0}, 1), *b = serve(desc, (llm42_sim_desc){0}, 1),
           *c = serve(desc, (llm42_sim_desc){.seed = 7}, 1);
    CHECK(memcmp(a->tokens, b->tokens, sizeof a->tokens) == 0 &&
          memcmp(a->finished, b->finished, sizeof a->finished) == 0);
    CHECK(memcmp(&a->stats, &b->stats, sizeof a->stats) == 0);
    CHECK(differing(a, c, 1) == REQUESTS);
    free(a), free(b), free(c);
}

// The desc of an engine that serves many requests, so many at once.
static llm42_engine_desc crowd(int running, int group, llm42_verifier verifier, llm42_verify verify) {
    llm42_engine_desc desc = {.max_running = running, .auto_release = true};
    desc.policy.verifier = verifier, desc.policy.verify = verify, desc.policy.prefill = LLM42_PREFILL_PACKED;
    desc.policy.window = 4, desc.policy.group = group;
    return desc;
}

// The table's four rates: by the rows of the FAST pass, fewer than 8 or not, and by M, less than 64 or not. The
// INVARIANT verifier has no M: its rate is that of the fewest rows.
TEST(flips_have_the_rate_asked_for) {
    static const struct {
        double scale, rate;
        int running, group;
        llm42_verifier verifier;
    } cases[] = {{0, 0.02, 7, 8, LLM42_VERIFIER_FIXED},      {2, 0.04, 7, 8, LLM42_VERIFIER_FIXED},
                 {0, 0.01, 7, 16, LLM42_VERIFIER_FIXED},     {0, 0.03, 64, 8, LLM42_VERIFIER_FIXED},
                 {0, 0.03, 64, 15, LLM42_VERIFIER_FIXED},    {0, 0, 64, 16, LLM42_VERIFIER_FIXED},
                 {0, 0.02, 7, 16, LLM42_VERIFIER_INVARIANT}, {0, 0.03, 64, 16, LLM42_VERIFIER_INVARIANT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        llm42_sim_desc sim = {.flip_scale = cases[i].scale};
        llm42_engine *engine = open_with(crowd(cases[i].running, cases[i].group, cases[i].verifier, LLM42_VERIFY_EAGER),
                                         &sim);
        for (int k = 0; k < 3000; k++) submit(engine, 3, 64, true, 0);
        llm42_stats stats = test_finish(engine);
        // The last few requests run in smaller passes.
        CHECK_NEAR((double)stats.rollbacks / (double)stats.compared, cases[i].rate, 0.0015 + 0.05 * cases[i].rate);
    }
}

// >>counting flips -------------------------------------------------------------------------------------------------
enum { FLIP_REQUESTS = 2000, FLIP_TOKENS = 64, FLIP_BINS = 6 };
static const int flip_edges[FLIP_BINS] = {1, 2, 4, 8, 16, 32};

static void counter_event(void *user, const llm42_event *e) { flip_event(user, e); }

static void counter_open(flip_counter *c, int64_t requests) {
    *c = (flip_counter){
        .bins = FLIP_BINS, .edge = flip_edges, .first = 1, .requests = requests, .longest = FLIP_TOKENS};
    c->bin = calloc((size_t)requests, FLIP_TOKENS);
    c->cell = calloc((size_t)(requests * c->bins), sizeof *c->cell);
}

static void counter_close(flip_counter *c) { free(c->bin), free(c->cell); }

// Serves requests on the simulator at two loads and with two M, and counts flips as build/bench does.
static void count_flips(flip_grid *g, flip_moments *moments) {
    static const int running[2] = {6, 48}, group[2] = {8, 16};
    flip_counter counter[2][2];
    *g = (flip_grid){.fasts = FLIP_BINS, .replays = 2, .replay = {32, 64}};
    memcpy(g->fast, flip_edges, sizeof flip_edges);
    for (int r = 0; r < 2; r++)
        for (int l = 0; l < 2; l++) {
            llm42_sim_desc sim = {0};
            counter_open(&counter[r][l], FLIP_REQUESTS);
            llm42_engine_desc desc = crowd(running[l], group[r], LLM42_VERIFIER_FIXED, LLM42_VERIFY_WAIT);
            desc.on_event = counter_event, desc.event_user = &counter[r][l];
            llm42_engine *engine = open_with(desc, &sim);
            for (int k = 0; k < FLIP_REQUESTS; k++) submit(engine, 3, FLIP_TOKENS, true, 0);
            llm42_stats stats = test_finish(engine);
            double before = 0, changed = 0;
            flip_grid own = {.fasts = FLIP_BINS, .replays = 1};
            flip_add(&own, 0, &counter[r][l]);
            for (int f = 0; f < FLIP_BINS; f++) before += own.cell[f][0].compared, changed += own.cell[f][0].changed;
            CHECK(before == (double)stats.compared && changed == (double)stats.rollbacks);
            flip_add(g, r, &counter[r][l]);
        }
    *moments = (flip_moments){0};
    for (int r = 0; r < 2; r++)
        for (int l = 0; l < 2; l++) flip_moments_add(moments, g, r ? 64 : 32, &counter[r][l]);
    flip_merge(g, flip_spread(moments));
    *moments = (flip_moments){0};
    for (int r = 0; r < 2; r++)
        for (int l = 0; l < 2; l++) {
            flip_moments_add(moments, g, r ? 64 : 32, &counter[r][l]);
            counter_close(&counter[r][l]);
        }
}

// The table that build/bench counts is the one that the simulator was given.
TEST(flips_are_counted_by_rows) {
    flip_grid g;
    flip_moments moments;
    count_flips(&g, &moments);
    CHECK_INT(g.fasts, 2);
    CHECK_INT(g.replays, 2);
    // Passes of 8 to 31 rows are too few to tell on which side they belong.
    CHECK(g.fast[0] == 1 && g.fast[1] >= 8 && g.fast[1] <= 32 && g.replay[0] == 32 && g.replay[1] == 64);
    for (int f = 0; f < 2; f++)
        for (int r = 0; r < 2; r++) {
            double rate = llm42_calibration_flip_rate(calibration, g.fast[f], g.replay[r]);
            double error_of_rate = g.cell[f][r].compared > 0 ? sqrt(2 * rate / g.cell[f][r].compared) : 0;
            CHECK_NEAR(flip_rate_at(&g, f, r), rate, 4 * error_of_rate);
        }
    CHECK(flip_rate(&g, 6, 32) == flip_rate_at(&g, 0, 0) && flip_rate(&g, 300, 1000) == flip_rate_at(&g, 1, 1));
    CHECK_NEAR(flip_shape(&moments), calibration->flip_shape, 0.4);
    // The controls: counts of a table that has one rate become one cell, and equal requests have an even shape.
    llm42_table table = calibration->flips;
    double flat = 0.02, one = 1, shape = calibration->flip_shape;
    calibration->flips = (llm42_table){1, 1, &one, &one, &flat};
    calibration->flip_shape = 1000;
    count_flips(&g, &moments);
    CHECK(g.fasts == 1 && g.replays == 1);
    CHECK_NEAR(flip_rate_at(&g, 0, 0), flat, 0.001);
    CHECK(flip_shape(&moments) > 10);
    calibration->flips = table;
    calibration->flip_shape = shape;
}

// A column for 0 rows is that of INVARIANT replay passes. FIXED passes smaller than every M take the next column.
TEST(invariant_replay_passes_have_a_flip_rate_of_their_own) {
    llm42_table table = calibration->flips;
    double from = 1, replay[2] = {0, 1}, rate[2] = {0, 0.02};
    calibration->flips = (llm42_table){1, 2, &from, replay, rate};
    llm42_engine_desc desc = {.policy.verifier = LLM42_VERIFIER_INVARIANT, .policy.window = 4, .policy.group = 2};
    result *invariant = serve(desc, (llm42_sim_desc){0}, 1);
    desc.policy.verifier = LLM42_VERIFIER_FIXED;
    result *fixed = serve(desc, (llm42_sim_desc){0}, 1);
    calibration->flips = table;
    CHECK(invariant->stats.compared > 0 && invariant->stats.rollbacks == 0 && fixed->stats.rollbacks > 0);
    free(invariant), free(fixed);
}

// What counts as compared: the candidates that agree and the one that differs, each for the pass that made it last.
TEST(candidates_count_for_the_pass_that_made_them) {
    flip_counter c;
    counter_open(&c, 1);
    llm42_request info = {.id = 1};
    const llm42_event fast1 = {.type = LLM42_EVENT_PASS, .schedule = LLM42_SCHEDULE_FAST, .shape = 1},
                      fast9 = {.type = LLM42_EVENT_PASS, .schedule = LLM42_SCHEDULE_FAST, .shape = 9},
                      replay = {.type = LLM42_EVENT_PASS, .schedule = LLM42_SCHEDULE_FIXED, .shape = 32};
    llm42_event candidate = {.type = LLM42_EVENT_CANDIDATE, .request = 1, .info = &info, .n = 1};
    for (int i = 0; i < 5; i++) {  // at places 0 to 4: rows 1, 9, 1, 9, 1
        flip_event(&c, i % 2 ? &fast9 : &fast1);
        candidate.position = i;
        flip_event(&c, &candidate);
    }
    flip_event(&c, &replay);
    flip_event(&c, &(llm42_event){.type = LLM42_EVENT_VERIFIED, .request = 1, .info = &info, .n = 1});
    flip_event(&c, &(llm42_event){.type = LLM42_EVENT_ROLLED_BACK, .request = 1, .info = &info, .n = 4, .position = 1});
    CHECK(c.cell[0].compared == 1 && c.cell[0].changed == 0 && c.cell[3].compared == 1 && c.cell[3].changed == 1);
    info.committed = 2;  // place 2 is decoded again in a larger pass, and one place by a pass that is not FAST
    flip_event(&c, &fast9);
    candidate.position = 2;
    flip_event(&c, &candidate);
    flip_event(&c, &(llm42_event){.type = LLM42_EVENT_PASS, .schedule = LLM42_SCHEDULE_INVARIANT, .shape = 9});
    candidate.position = 3;
    flip_event(&c, &candidate);
    flip_event(&c, &(llm42_event){.type = LLM42_EVENT_VERIFIED, .request = 1, .info = &info, .n = 2});
    CHECK(c.cell[0].compared == 1 && c.cell[3].compared == 2 && c.cell[3].changed == 1);
    candidate.request = 2;  // of no request that is counted
    flip_event(&c, &candidate);
    counter_close(&c);
    // Too few flips to tell: joined. A cell that was never seen takes the nearest in its column.
    flip_grid g = {.fasts = 3, .replays = 2, .fast = {1, 2, 9}, .replay = {8, 64}};
    g.cell[0][0] = (flip_cell){1000, 4}, g.cell[0][1] = (flip_cell){1000, 40};
    g.cell[1][0] = (flip_cell){100, 1}, g.cell[2][1] = (flip_cell){1000, 0};
    flip_merge(&g, 1);
    CHECK(g.fasts == 2 && g.replays == 2 && g.fast[1] == 9 && g.cell[0][0].compared == 1100);
    CHECK(flip_rate(&g, 9, 8) == 5.0 / 1100 && flip_rate(&g, 9, 64) == 0 && flip_rate(&g, 2, 64) == 0.04);
    // The column of INVARIANT passes joins no other, however few flips it has.
    for (int first = 0; first < 2; first++) {
        g = (flip_grid){.fasts = 1, .replays = 3, .fast = {1}, .replay = {first, 32, 64}};
        for (int r = 0; r < 3; r++) g.cell[0][r] = (flip_cell){1000, r};
        flip_merge(&g, 1);
        CHECK(g.replays == 2 - first && g.cell[0][g.replays - 1].changed == 3);
    }
}

TEST(batch_invariant_passes_can_be_slowed) {
    result *own = serve((llm42_engine_desc){.policy.mode = LLM42_MODE_BATCH_INVARIANT}, (llm42_sim_desc){0}, 1);
    result *same = serve((llm42_engine_desc){.policy.mode = LLM42_MODE_BATCH_INVARIANT},
                         (llm42_sim_desc){.invariant_slowdown = 1}, 1);
    result *fast = serve((llm42_engine_desc){.policy.mode = LLM42_MODE_NONDETERMINISTIC}, (llm42_sim_desc){0}, 0);
    CHECK(same->seconds == fast->seconds && own->seconds > same->seconds);
    free(own), free(same), free(fast);
}

// A replay pass that fails is an error of the step; the next steps replay its windows, and the tokens are the true
// ones.
TEST(a_failed_replay_pass_is_repeated) {
    llm42_sim_desc sim = {.no_flips = true};
    int32_t tokens[2][60];
    for (int fail = 0; fail < 2; fail++) {
        llm42_engine *engine = open_with((llm42_engine_desc){.policy.verifier = LLM42_VERIFIER_FIXED}, &sim);
        spy.fail_replay = fail * 3;
        int64_t id = submit(engine, 5, 60, true, 0);
        submit(engine, 5, 60, false, 0);
        int failures = 0;
        llm42_result r;
        while ((r = llm42_engine_step(engine, &error)) != LLM42_IDLE) failures += r < 0;
        CHECK_INT(failures, fail);
        memcpy(tokens[fail], llm42_engine_request(engine, id)->tokens, sizeof tokens[0]);
        llm42_engine_close(engine);
    }
    CHECK(memcmp(tokens[0], tokens[1], sizeof tokens[0]) == 0);
}

// Five requests decode together, G = 2. The first ends with 4 candidates and takes the second along. When the last one
// ends, with 7, the second has 3 and the third 7: the pass is filled with the older of the two.
TEST(partial_windows_by_age) {
    llm42_sim_desc sim = {.no_flips = true};
    llm42_engine *engine = open_with(
        (llm42_engine_desc)TEST_LIST(.policy.verifier = LLM42_VERIFIER_FIXED, .policy.verify = LLM42_VERIFY_EAGER,
                                     .policy.prefill = LLM42_PREFILL_PACKED, .policy.window = 16, .policy.group = 2,
                                     .experiment.bonus = LLM42_BONUS_OFF),
        &sim);
    const int output[5] = {5, 60, 60, 60, 8}, want[5] = {0, 3, 0, 0, 7};
    for (int i = 0; i < 5; i++) submit(engine, 1, output[i], true, 0);
    while (llm42_engine_stats(engine).verifications < 4) CHECK_INT(llm42_engine_step(engine, &error), LLM42_OK);
    for (int i = 0; i < 5; i++) CHECK_INT(spy.windows_of[i], want[i]);
    llm42_engine_close(engine);
}

TEST(a_reserve_avoids_preemption) {
    llm42_engine_desc desc = {.kv.pages = 24};
    result *none = serve(desc, (llm42_sim_desc){0}, 2);
    desc.kv.admission_reserve = 1;
    result *all = serve(desc, (llm42_sim_desc){0}, 2);
    CHECK(none->stats.preemptions > 0);
    CHECK_INT(all->stats.preemptions, 0);
    free(none), free(all);
}

TEST(a_step_allocates_nothing) {
    llm42_sim_desc sim = {0};
    llm42_engine *engine = open_with((llm42_engine_desc){.kv.pages = 40}, &sim);
    for (int i = 0; i < 40; i++) submit(engine, input_of(i), output_of(i), i % 2, 0.01 * i);
    int64_t before = test_state.allocations;
    CHECK_INT(llm42_engine_run(engine, &error), LLM42_OK);
    CHECK_INT(test_state.allocations, before);
    llm42_engine_close(engine);
}

TEST(what_cannot_be_is_refused) {
    llm42_sim_desc sim = {.calibration = calibration}, empty = {0},
                   wrong = {.calibration = calibration, .flip_scale = -1},
                   slow = {.calibration = calibration, .invariant_slowdown = NAN};
    const struct {
        llm42_engine_desc desc;
        const char *text;
    } cases[] = {
        {{.backend = llm42_backend_sim()}, "llm42_engine_desc.backend_desc: backend sim needs"},
        {{.backend = llm42_backend_sim(), .backend_desc = &empty}, "llm42_sim_desc.calibration: required"},
        {{.backend = llm42_backend_sim(), .backend_desc = &wrong}, "llm42_sim_desc.flip_scale: -1"},
        {{.backend = llm42_backend_sim(), .backend_desc = &slow}, "llm42_sim_desc.invariant_slowdown"},
        {{.backend = llm42_backend_cpu()}, "model shape:tiny has no weights"},
        {{.backend = llm42_backend_sim(), .backend_desc = &sim, .kv.admission_reserve = 1.5}, "admission_reserve: 1.5"},
        {{.backend = llm42_backend_sim(), .backend_desc = &sim, .kv.admission_reserve = NAN}, "admission_reserve: nan"},
        {{.backend = llm42_backend_sim(), .backend_desc = &sim, .experiment.bonus = (llm42_bonus)9}, "bonus: 9"},
        {TEST_LIST(.backend = llm42_backend_sim(), .backend_desc = &sim, .policy.chunked_prefill = LLM42_CHUNKED_OFF,
                   .token_budget = 100),
         "token_budget: 100: must be at least max_context, 256, when chunked_prefill is OFF"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        llm42_engine_desc desc = cases[i].desc;
        desc.model = model;
        desc.max_context = 256;
        test_refused(&desc, LLM42_INVALID, cases[i].text);
    }
    llm42_model *none = NULL;
    CHECK_INT(llm42_model_load(&none, &(llm42_model_desc){.path = "shape:huge"}, &error), LLM42_UNSUPPORTED);
    CHECK(strstr(error.text, "shape:huge: unknown shape"));
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    model = test_load("shape:tiny");
    snprintf(text, sizeof text, "%s", without(""));
    RUN_FIRST(a_calibration_is_read_and_interpolated);
    if (!calibration) return 1;
    RUN_ALL();
    llm42_calibration_free(calibration);
    llm42_model_free(model);
    return test_end("test_sim");
}
