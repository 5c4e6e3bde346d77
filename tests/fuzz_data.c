// Fuzz target of the files that experiments and audits read: calibrations, workloads and transcripts. Broken ones are
// refused with an error of one line, or work. An input is one byte for the kind of file (see kinds), one for the
// conditions, then the file; or for SPEC the two words of a workload, with a line end between them. What loads is used:
// a calibration gives pass times and serves requests, a workload gives requests and prompts.
#include "fuzz.h"

#define LLM42_CALIBRATION_IMPLEMENTATION
#define LLM42_IMPLEMENTATION
#include "llm42.h"
#include "examples/util/llm42_calibration.h"
#define LLM42_TRANSCRIPT_IMPLEMENTATION
#include "examples/util/llm42_transcript.h"
#include "sweep/lib/workload.h"

enum { CALIBRATION, LENGTHS, AZURE, MOONCAKE, SPEC, TRANSCRIPT, DATA_KINDS };
enum { TAKEN = 64, PROMPT_ROOM = 8192 };

static const char *const fuzz_words[] = TEST_LIST(
    "\n", "\t", ",", "\r\n", "#", "# ", "nan", "inf", "1e308", "-0", "0x1p3", "\"", "{}", "[]", "# time_unit: ms\n",
    "# devices: 1\n", "# kv_tokens: 0\n", "# padding_free: true\n", "# host_prompt_ms: 1\n", "# flip_shape: 0.001\n",
    "# window_rows: 32\n", "fast\tdecode\t", "fixed\twindow\t", "fixed\tprompt\t", "invariant\tdecode\t",
    "# table: invariant window 1\n", "invariant\twindow\t", "# table: flips 1\n", "fast_rows\treplay_rows\tflip_rate\n",
    "schedule\tkind\trows\tcontext_tokens\tms\n", "input_len\toutput_len\n",
    "TIMESTAMP,ContextTokens,GeneratedTokens\n", "2023-11-16 18:17:03.9799600", "2024-02-29 23:59:60",
    "\"timestamp\": ", "\"hash_ids\": [1, 2]", "\"input_length\": 1024", "sharegpt", "sharegpt-served", "arxiv",
    "fixed:8x8", "uniform:1x9", "sglang:100x50x20", "lengths:", "offline", "trace", "1e-6", "1e9", "request: 2\n",
    "requests: 1\n", "tokens: 1,2\n", "logprobs: bf800000\n", "# end\n", NULL);

static llm42_model *model;
static struct { int64_t calibrations, workloads, requests, transcripts; } seen;

static void set_up(void) {
    llm42_error error = {0};
    if (model) return;
    FUZZ_CHECK(llm42_model_load(&model, &(llm42_model_desc){.path = "shape:tiny"}, &error) == LLM42_OK, "%s",
               error.text);
}

// Times are finite and positive. More rows take at most a quarter less, and as many more positions never less.
static void check_times(const llm42_calibration *c) {
    static const struct {
        llm42_schedule schedule;
        llm42_kind kind;
    } tables[] = {{LLM42_SCHEDULE_FAST, LLM42_KIND_DECODE},      {LLM42_SCHEDULE_FAST, LLM42_KIND_PROMPT},
                  {LLM42_SCHEDULE_FIXED, LLM42_KIND_WINDOW},     {LLM42_SCHEDULE_FIXED, LLM42_KIND_PROMPT},
                  {LLM42_SCHEDULE_INVARIANT, LLM42_KIND_DECODE}, {LLM42_SCHEDULE_INVARIANT, LLM42_KIND_WINDOW}};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        double before = 0, shorter = 0;
        if (i == 5 && !c->cost[tables[i].schedule][tables[i].kind].xs) continue;  // a file may lack the last one
        for (double context = 0; context < 1e7; context = 5 * context + 1) {
            double ms = llm42_calibration_ms(c, tables[i].schedule, tables[i].kind, 100, context);
            FUZZ_CHECK(ms >= shorter * (1 - 1e-9), "%g ms at %g positions, %g at fewer", ms, context, shorter);
            shorter = ms;
        }
        for (double rows = 0.5; rows < 1e7; rows *= 7) {
            double ms = llm42_calibration_ms(c, tables[i].schedule, tables[i].kind, rows, rows * 3);
            FUZZ_CHECK(ms >= 0, "%g ms for %g rows", ms, rows);
            FUZZ_CHECK(ms >= 0.75 * before * (1 - 1e-9), "%g ms for %g rows, %g for fewer", ms, rows, before);
            before = ms;
        }
    }
    for (double fast = 0; fast < 1e7; fast = fast * 7 + 1)
        for (double replay = 0; replay < 1e7; replay = replay * 9 + 1) {
            double rate = llm42_calibration_flip_rate(c, fast, replay);
            FUZZ_CHECK(rate >= 0 && rate <= 1, "flip rate %g for %g and %g rows", rate, fast, replay);
        }
    FUZZ_CHECK(c->devices >= 1 && c->kv_tokens >= 0 && c->flip_shape > 0, "%d devices, %lld tokens, shape %g",
               c->devices, (long long)c->kv_tokens, c->flip_shape);
}

static void simulate(const llm42_calibration *c, unsigned conditions) {
    llm42_engine *engine = NULL;
    llm42_error error = {0};
    llm42_sim_desc sim = {.calibration = c};
    llm42_engine_desc desc = TEST_LIST(.model = model, .backend = llm42_backend_sim(), .backend_desc = &sim,
                                       .max_context = 64, .max_running = 4, .policy.window = 4, .policy.group = 2,
                                       .policy.mode = (conditions & 6) == 2 ? LLM42_MODE_HYBRID : LLM42_MODE_DVR,
                                       .policy.verifier = conditions & 4 ? LLM42_VERIFIER_FIXED
                                                                         : LLM42_VERIFIER_INVARIANT,
                                       .policy.prefill = conditions & 2 ? LLM42_PREFILL_INVARIANT
                                                                        : LLM42_PREFILL_PACKED);
    llm42_result result = llm42_engine_open(&engine, &desc, &error);
    if (result != LLM42_OK && fuzz_one_line(result, &error)) return;
    for (int i = 0; i < 6; i++) {
        const int32_t prompt[] = {1, 2, 3, 4, 5};
        FUZZ_CHECK(!llm42_engine_submit(
                       engine,
                       &(llm42_request_desc)TEST_LIST(.prompt = prompt, .prompt_count = 5, .max_new_tokens = 20,
                                                      .deterministic = i % 2 == 0, .ignore_stop = true),
                       NULL, &error),
                   "%s", error.text);
    }
    FUZZ_CHECK(llm42_engine_run(engine, &error) == LLM42_OK, "%s", error.text);
    double now = llm42_engine_now(engine);
    FUZZ_CHECK(now >= 0 && isfinite(now), "the clock shows %g", now);
    FUZZ_CHECK(llm42_engine_stats(engine).returned_tokens == 6 * 20, "tokens are missing");
    llm42_engine_close(engine);
}

static void load_calibration(const char *path, unsigned conditions) {
    llm42_calibration *c = NULL;
    llm42_error error = {0};
    fuzz_starve(conditions >> 3);  // for most inputs no allocation fails
    const llm42_result result = llm42_calibration_load(&c, path, &error);
    if (!fuzz_is_loaded(result, c, &error)) return;
    seen.calibrations++;
    check_times(c);
    simulate(c, conditions);
    llm42_calibration_free(c);
}

static void load_transcript(const char *path, unsigned conditions) {
    llm42_transcript *t = NULL;
    llm42_error error = {0};
    fuzz_starve(conditions >> 3);  // for most inputs no allocation fails
    const llm42_result result = llm42_transcript_load(&t, path, &error);
    if (!fuzz_is_loaded(result, t, &error)) return;
    seen.transcripts++;
    for (int i = 0; i < t->count; i++) {
        const llm42_answer *a = &t->answer[i];
        int64_t sum = 0;
        for (int k = 0; k < a->prompt_count; k++) sum |= a->prompt[k];
        for (int k = 0; k < a->count; k++) sum |= a->tokens[k] | (isnan(a->logprobs[k]) ? 1 : 0);
        FUZZ_CHECK(sum >= 0 && a->prompt_count > 0 && a->sampling.seed, "request %lld", (long long)a->request);
    }
    llm42_transcript_free(t);
}

static void use_workload(workload *w) {
    static int32_t prompt[PROMPT_ROOM];
    workload_request first = {0}, r;
    double before = 0;
    int most = workload_max_tokens(w);
    for (int i = 0; i < TAKEN; i++) {
        workload_next(w, &r);
        if (i == 0) first = r;
        FUZZ_CHECK(r.index == i && r.input_tokens >= 1 && r.output_tokens >= 1, "request %d: %d and %d tokens", i,
                   r.input_tokens, r.output_tokens);
        FUZZ_CHECK(r.input_tokens <= WORKLOAD_LONGEST && r.output_tokens <= WORKLOAD_LONGEST, "%d and %d tokens",
                   r.input_tokens, r.output_tokens);
        FUZZ_CHECK(r.input_tokens + r.output_tokens <= most, "%d tokens, at most %d", r.input_tokens + r.output_tokens,
                   most);
        FUZZ_CHECK(isfinite(r.arrival_s) && r.arrival_s >= before, "arrival %g after %g", r.arrival_s, before);
        before = r.arrival_s;
        seen.requests++;
        if (r.input_tokens > PROMPT_ROOM) continue;
        workload_prompt(w, &r, 97, prompt);
        for (int k = 0; k < r.input_tokens; k++)
            FUZZ_CHECK(prompt[k] >= 0 && prompt[k] < 97, "token %d", (int)prompt[k]);
    }
    workload_rewind(w);
    workload_next(w, &r);
    FUZZ_CHECK(r.input_tokens == first.input_tokens && r.arrival_s == first.arrival_s,
               "another request after a rewind");
}

static void load_workload(const char *spec, const char *qps, unsigned conditions) {
    workload w;
    llm42_error error = {0};
    llm42_result result = workload_open(&w, spec, qps, conditions >> 3, &error);
    if (result != LLM42_OK && fuzz_one_line(result, &error)) return;
    seen.workloads++;
    if (conditions & 4) FUZZ_CHECK(!workload_clip(&w, 2 + (int)(conditions >> 3), &error), "%s", error.text);
    use_workload(&w);
    workload_close(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const prefix[] = {"", "lengths", "azure", "mooncake", "", ""};
    static const char *const arrivals[] = {"offline", "trace", "12", "0.001"};
    if (size < 2) return 0;
    set_up();
    int kind = data[0] % DATA_KINDS;
    unsigned conditions = data[1];
    char spec[256];
    data += 2;
    size -= 2;
    if (kind == SPEC) {
        char words[160] = {0}, *qps;
        memcpy(words, data, size < sizeof words ? size : sizeof words - 1);
        qps = strchr(words, '\n');
        if (qps) *qps++ = 0;
        if (!workload_path(words)) load_workload(words, qps ? qps : "offline", conditions);  // no file of this machine
        return 0;
    }
    const char *path = test_file("data");
    test_write(path, data, size);
    snprintf(spec, sizeof spec, "%s:%s", prefix[kind], path);
    if (kind == CALIBRATION) load_calibration(path, conditions);
    else if (kind == TRANSCRIPT) load_transcript(path, conditions);
    else load_workload(spec, arrivals[conditions & 3], conditions);
    return 0;
}

// Valid inputs: calibrations and transcripts of this repository, and small workloads.
static inline size_t fuzz_seed(int index, uint8_t *out, size_t room) {
    static const struct {
        uint8_t kind, conditions;
        const char *text;  // of calibrations and transcripts: the file's path
    } seeds[] = {
        {CALIBRATION, 0, "sweep/calibration/cpu-tiny42.tsv"},
        {CALIBRATION, 1, "sweep/calibration/h100-pcie-paper.tsv"},
        {CALIBRATION, 2, "sweep/calibration/h200-base42.tsv"},
        {CALIBRATION, 3, "sweep/calibration/h200x2-llama-3.1-8b.tsv"},
        {TRANSCRIPT, 0, "tests/transcripts/format_1.txt"},
        {TRANSCRIPT, 0, "tests/transcripts/format_2.txt"},
        {LENGTHS, 0, "input_len\toutput_len\n10\t20\n3\t4\n"},
        {LENGTHS, 1, "\xef\xbb\xbfinput_len\tarrival_s\toutput_len\n10\t0.5\t20\n3\t2\t0\n"},
        {LENGTHS, 6, "# source: none\noutput_len\tname\tinput_len\n\n0\tx\t7\n300\ty\t100000\n"},
        {AZURE, 1,
         "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n"
         "2023-11-16 18:17:04.0319600,3180,8\n2024-01-01 00:00:00,1,2\n"},
        {AZURE, 2, "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2024-02-29T23:59:59.5Z,5,6\r\n"},
        {MOONCAKE, 1,
         "{\"timestamp\": 0, \"input_length\": 1100, \"output_length\": 5, \"hash_ids\": [0, 1, 2]}\n"
         "{\"timestamp\": 27, \"input_length\": 513, \"output_length\": 7, \"hash_ids\": [0, 9]}\n"},
        {MOONCAKE, 60,
         "{\"hash_ids\": [46], \"x\": {\"y\": [1, {}]}, \"output_length\": 1, \"input_length\": 0, "
         "\"timestamp\": 1e3}\n"},
        {SPEC, 0, "sharegpt\n12"},
        {SPEC, 12, "arxiv\noffline"},
        {SPEC, 4, "sharegpt-served\n1e-6"},
        {SPEC, 0, "fixed:100x20\n0.5"},
        {SPEC, 0, "uniform:100x20\n1000000000"},
        {SPEC, 8, "sglang:1024x256x100\n3"},
    };
    if (index >= (int)(sizeof seeds / sizeof *seeds)) return 0;
    const char *text = seeds[index].text;
    size_t size = strlen(text);
    char *file = seeds[index].kind == CALIBRATION || seeds[index].kind == TRANSCRIPT ? test_read(text, &size) : NULL;
    FUZZ_CHECK(size && size + 2 <= room, "%s: cannot be read", text);
    out[0] = seeds[index].kind, out[1] = seeds[index].conditions;
    memcpy(out + 2, file ? file : text, size);
    free(file);
    return size + 2;
}

static inline void fuzz_report(void) {
    printf(
        "  %lld calibrations, %lld workloads and %lld transcripts loaded, %lld requests taken, %lld loads ran out of "
        "memory\n",
        (long long)seen.calibrations, (long long)seen.workloads, (long long)seen.transcripts, (long long)seen.requests,
        (long long)fuzz_out_of_memory);
}

FUZZ_MAIN("fuzz_data");
