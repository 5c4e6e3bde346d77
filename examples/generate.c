// generate: prints text (or token ids) from a model as it is committed. Several samples of one prompt run together in
// one batch and are printed one after the other.
// make build/generate && build/generate --prompt "It was a dark night" --deterministic
#define _POSIX_C_SOURCE 200809L
#define LLM42_IMPLEMENTATION
#include "llm42.h"
#include "args.h"
#include "planners.h"
#include "texts.h"
#define LLM42_TRACE_IMPLEMENTATION
#include "util/llm42_trace.h"
#define LLM42_TRANSCRIPT_IMPLEMENTATION
#include "util/llm42_transcript.h"

static const char *model_path = "examples/tiny42", *tokenizer, *prompt, *prompt_file, *ids_text, *backend = "cpu",
                  *dtype = "bf16", *arithmetic;
static const char *trace_path, *record_path, *planner = "default", *preset = "dvr", *verifier;
static int64_t n, top_k, seed, samples = 1, window, group, threads, tensor_parallel = 1, leaves = 1, devices;
static float temperature, top_p, min_p;
static bool deterministic, ignore_eos, ids_out, logprobs, no_mmap, stats;

static const args_option options[] = {
    ARGS_IN("model DIR", &model_path, "model folder, llama2.c file or synthetic:NAME"),
    ARGS_IN("tokenizer FILE", &tokenizer, "its tokenizer (default: the one in or beside the model)"),
    ARGS_ONCE("prompt TEXT", &prompt, "prompt (default: It was)"),
    ARGS_IN("prompt-file FILE", &prompt_file, "the prompt is what this file says; -: standard input"),
    ARGS_TEXT("ids LIST", &ids_text, "prompt as token ids, as in 0,5,7; no BOS is added to it"),
    ARGS_INT("n N", &n, 0, INT32_MAX, "new tokens; 0: 128, or what the context leaves"),
    ARGS_FLAG("deterministic", &deterministic, "verify and roll back: the same text under any load"),
    ARGS_FLOAT("temperature T", &temperature, 0, 1000, "0: greedy"),
    ARGS_INT("top-k K", &top_k, 0, INT32_MAX, "draw from the K most likely tokens; 0: all"),
    ARGS_FLOAT("top-p P", &top_p, 0, 1, "draw from the smallest set with this share; 0: all"),
    ARGS_FLOAT("min-p P", &min_p, 0, 1, "draw from tokens with this share of the likeliest; 0: all"),
    ARGS_INT("seed S", &seed, 0, INT64_MAX - 4096, "sample i, from 0, draws with seed S + i; 0: 42"),
    ARGS_INT("samples N", &samples, 1, 4096, "texts from one prompt"),
    ARGS_FLAG("ignore-eos", &ignore_eos, "do not end at an end-of-sequence token"),
    ARGS_FLAG("ids-out", &ids_out, "print the new tokens' ids, one line a sample"),
    ARGS_FLAG("logprobs", &logprobs, "print a table: sample position token logprob text; with --ids-out no text"),
    ARGS_TEXT("backend NAME", &backend, "cpu or cuda"),
    ARGS_TEXT("dtype TYPE", &dtype, "compute type: bf16 or fp32"),
    ARGS_ARITHMETIC(&arithmetic),
    ARGS_TEXT("preset NAME", &preset, "policies of the engine: dvr, best, invariant or paper"),
    ARGS_TEXT("verifier NAME", &verifier, "order of sums of replay passes: fixed or invariant (default: the preset's)"),
    ARGS_INT("window W", &window, 0, 4096, "tokens of one request in a verification; 0: the preset's"),
    ARGS_INT("group G", &group, 0, 4096, "requests verified together; 0: the preset's"),
    ARGS_TEXT("planner NAME", &planner, "who shares a pass: default, or one of planners.h"),
    ARGS_RANKS(&tensor_parallel, &leaves, &devices),
    ARGS_INT("threads N", &threads, 0, 1024, "0: as many as OpenMP offers"),
    ARGS_OUT("trace FILE", &trace_path, "write events: *.json for Perfetto, else TSV"),
    ARGS_OUT("record FILE", &record_path, "write a transcript: build/audit computes it again"),
    ARGS_FLAG("no-mmap", &no_mmap, "read the weights into memory; without it files are mapped, and must not shrink"),
    ARGS_FLAG("stats", &stats, "print counts and times on stderr at the end"),
    ARGS_END,
};

typedef struct sample {
    tok_stream stream;
    char *out;  // not yet printed
    bool finished;
} sample;

#define LOGPROBS "sample\tposition\ttoken\tlogprob"  // columns of --logprobs; then the text

static sample *sample_list;
static int64_t printing;  // the sample that is on stdout
static llm42_trace *trace;
static llm42_recorder *recorder;
static args_manifest manifest;

static void put(sample *s, tok_text text) {
    if (text.size) memcpy(arraddnptr(s->out, text.size), text.data, text.size);
}

static void put_string(sample *s, const char *string) { put(s, (tok_text){string, strlen(string)}); }

// A line of --logprobs. The text of a token may be a part of a character.
static void put_logprob(sample *s, int position, int32_t token, float logprob) {
    char line[96], *text = NULL;
    snprintf(line, sizeof line, "%d\t%d\t%d\t%.9g", (int)(s - sample_list), position, (int)token, (double)logprob);
    put_string(s, line);
    if (!ids_out) {
        put_string(s, "\t");
        tok_decode(s->stream.t, &token, 1, &text);
    }
    for (size_t i = 0, size = arrlenu(text); i < size;) {
        static const char special[] = "\n\t\r\\", letter[] = "ntr\\";
        const char *at = text[i] ? strchr(special, text[i]) : NULL;
        int bytes = tok_utf8(text + i, size - i);
        bool plain = !at && bytes > 0 && (unsigned char)text[i] >= ' ' && text[i] != 0x7f;
        if (at) snprintf(line, sizeof line, "\\%c", letter[at - special]);
        else if (!plain) snprintf(line, sizeof line, "\\x%02X", (unsigned char)text[i]);
        if (plain) put(s, (tok_text){text + i, (size_t)bytes});
        else put_string(s, line);
        i += plain ? (size_t)bytes : 1;
    }
    put_string(s, "\n");
    arrfree(text);
}

static void flush_samples(void) {
    for (; printing < samples; printing++) {
        sample *s = &sample_list[printing];
        if (s->out) fwrite(s->out, 1, arrlenu(s->out), stdout);
        arrsetlen(s->out, 0);
        if (!s->finished) break;
    }
    fflush(stdout);
}

static void on_event(void *user, const llm42_event *event) {
    (void)user;
    if (trace) llm42_trace_event(trace, event);
    llm42_recorder_event(recorder, event);
    if (event->type != LLM42_EVENT_COMMITTED && event->type != LLM42_EVENT_FINISHED) return;
    sample *s = event->info->user;
    for (int i = 0; event->type == LLM42_EVENT_COMMITTED && i < event->n; i++) {
        char id[16];
        snprintf(id, sizeof id, "%s%d", event->position + i ? "," : "", (int)event->tokens[i]);
        if (logprobs)
            put_logprob(s, event->info->prompt_count + event->position + i, event->tokens[i], event->logprobs[i]);
        else if (ids_out) put_string(s, id);
        else put(s, tok_stream_next(&s->stream, event->tokens[i]));
    }
    if (event->type == LLM42_EVENT_FINISHED) {
        if (!ids_out && !logprobs) put(s, tok_stream_end(&s->stream));
        if (!logprobs) put_string(s, "\n");
        s->finished = true;
    }
    flush_samples();
}

// What stands before a sample's new tokens: a line between samples and the prompt, dimmed on a terminal.
static void begin_sample(sample *s, const tok *t, int64_t number, const int32_t *ids) {
    char line[64];
    bool dim = args_use_color(stdout);
    s->stream = (tok_stream){.t = t, .skip_special = true};
    if (logprobs && !number) put_string(s, ids_out ? LOGPROBS "\n" : LOGPROBS "\ttext\n");
    if (ids_out || logprobs) return;
    snprintf(line, sizeof line, "--- sample %" PRId64 "\n", number);
    if (samples > 1) put_string(s, line);
    if (dim) put_string(s, "\033[2m");
    for (int i = 0; i < (int)arrlen(ids); i++) put(s, tok_stream_next(&s->stream, ids[i]));
    if (dim) put_string(s, "\033[0m");
}

static void print_stats(llm42_engine *engine, double seconds) {
    llm42_stats st = llm42_engine_stats(engine);
    double percent = st.returned_tokens ? 100.0 * (double)st.recomputed / (double)st.returned_tokens : 0;
    fprintf(stderr, "%" PRId64 " prompt tokens, %" PRId64 " new tokens in %.3f s (%.1f tokens/s)\n", st.prompt_tokens,
            st.returned_tokens, seconds, seconds > 0 ? (double)st.returned_tokens / seconds : 0);
    fprintf(stderr,
            "passes: %" PRId64 " FAST, %" PRId64 " INVARIANT, %" PRId64 " FIXED; windows verified: %" PRId64
            ", rollbacks: %" PRId64 ", %.2f%% recomputed\n",
            st.passes[LLM42_SCHEDULE_FAST], st.passes[LLM42_SCHEDULE_INVARIANT], st.passes[LLM42_SCHEDULE_FIXED],
            st.verifications, st.rollbacks, percent);
}

static void submit_samples(llm42_engine *engine, const int32_t *ids) {
    llm42_error error = {0};
    const int context = llm42_engine_config(engine)->max_context, prompt_count = (int)arrlen(ids);
    if (prompt_count < context && n > context - prompt_count)
        args_fail(2, "-n: %" PRId64 ": behind a prompt of %d tokens the context of %d has room for %d", n, prompt_count,
                  context, context - prompt_count);
    for (int64_t i = 0, id; i < samples; i++) {
        llm42_request_desc ask = {.prompt = ids,
                                  .prompt_count = (int)arrlen(ids),
                                  .max_new_tokens = (int)n,
                                  .deterministic = deterministic,
                                  .sample_index = (int)i,
                                  .ignore_stop = ignore_eos,
                                  .user = &sample_list[i]};
        ask.sampling = (llm42_sampling){temperature, (int)top_k, top_p, min_p, seed ? (uint64_t)(seed + i) : 0};
        args_check(llm42_engine_submit(engine, &ask, &id, &error), &error);
    }
}

int main(int argc, char **argv) {
    args_parse(argc, argv, "Prints text (or ids) from a model as it is committed.", options);
    const llm42_backend *table = args_backend(backend);
    llm42_dtype compute = args_dtype("--dtype", dtype);
    args_choice("--planner", planner, planner_names);
    char found[4096];
    model_path = args_find(model_path, found);
    if ((prompt != NULL) + (ids_text != NULL) + (prompt_file != NULL) > 1)
        args_fail(2, "--prompt, --prompt-file and --ids exclude each other");
    if (prompt) text_check("--prompt", "--prompt-file", prompt);
    if (!prompt) prompt = "It was";
    size_t prompt_size = strlen(prompt);
    char *file_text = prompt_file ? text_read("--prompt-file", prompt_file, &prompt_size) : NULL;
    if (file_text) prompt = file_text;

    llm42_error error = {0};
    llm42_model *model = NULL;
    llm42_engine *engine = NULL;
    tok *t = NULL;
    int32_t *ids = NULL;
    if (ids_text) {
        arrsetlen(ids, args_list_count(ids_text));
        args_ids("--ids", ids_text, ids);
    }
    llm42_model_desc load = {.path = model_path, .on_device = args_on_device(model_path, table), .no_mmap = no_mmap};
    args_check(llm42_model_load(&model, &load, &error), &error);
    if (ids_text && !tokenizer && !strncmp(model_path, "synthetic:", 10)) ids_out = true;  // it has no text
    if ((!ids_text || !ids_out) && tok_open(&t, model, model_path, tokenizer, &error))
        args_fail(1, "%s (--ids with --ids-out does without a tokenizer)", error.text);
    if (!ids_text) text_encode(t, prompt, prompt_size, &ids);
    free(file_text);
    if (trace_path) args_check(llm42_trace_open(&trace, trace_path, &error), &error);

    llm42_engine_desc desc = {.model = model,
                              .backend = table,
                              .backend_desc = args_backend_desc(table, threads, tensor_parallel, devices),
                              .planner = planner_find(planner),
                              .numerics.compute = compute,
                              .numerics.arithmetic = args_arithmetic(arithmetic),
                              .tensor_parallel = (int)tensor_parallel,
                              .numerics.leaves = (int)leaves,
                              .max_running = samples < 32 ? (int)samples : 32,
                              .policy.window = (int)window,
                              .policy.group = (int)group,
                              .on_event = on_event,
                              .log = args_manifest_log,
                              .log_user = &manifest};
    args_policy(&desc, "preset", preset);
    args_policy(&desc, "verifier", verifier);
    args_check(llm42_engine_open(&engine, &desc, &error), &error);
    if (record_path) args_check(llm42_recorder_open(&recorder, record_path, engine, manifest.text, &error), &error);
    arrsetlen(sample_list, samples);
    memset(sample_list, 0, (size_t)samples * sizeof *sample_list);
    for (int64_t i = 0; i < samples; i++) begin_sample(&sample_list[i], t, i, ids);
    args_watches = 1;
    submit_samples(engine, ids);
    flush_samples();
    double begin = llm42_engine_now(engine);
    args_run_watching(engine);
    // Of a run that is ended, a transcript has what was committed.
    for (int64_t i = 1; args_signal && i <= samples; i++) llm42_engine_cancel(engine, i, NULL);
    args_stop_if_asked();
    if (stats) print_stats(engine, llm42_engine_now(engine) - begin);
    if (trace) args_check(llm42_trace_close(trace, &error), &error);
    args_check(llm42_recorder_close(recorder, &error), &error);
    args_check_requests(engine);

    llm42_engine_close(engine);
    llm42_model_free(model);
    for (int64_t i = 0; i < samples; i++) {
        tok_stream_free(&sample_list[i].stream);
        arrfree(sample_list[i].out);
    }
    arrfree(sample_list);
    arrfree(ids);
    tok_free(t);
    return args_finish();
}
