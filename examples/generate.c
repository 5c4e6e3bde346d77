// generate: prints text (or token ids) from a model as it is committed. Several samples of one prompt run together in
// one batch and are printed one after the other, or line by line as they come. With --batch it answers a file of
// requests (see batch.h).
// make build/generate && build/generate --prompt "It was a dark night" --deterministic
#define _POSIX_C_SOURCE 200809L
#define LLM42_IMPLEMENTATION
#include "examples/util/llm42_synthetic.h"
#define LLM42_DRAFT_IMPLEMENTATION
#include "examples/lib/drafting.h"
#include "examples/lib/engine.h"
#include "examples/lib/texts.h"
#define LLM42_TRACE_IMPLEMENTATION
#include "util/llm42_trace.h"
#define LLM42_TRANSCRIPT_IMPLEMENTATION
#include "util/llm42_transcript.h"
#include "examples/lib/answers.h"
#include "generate/batch.h"
#include "examples/lib/chat.h"

static engine_options how = {ENGINE_DEFAULTS, .preset = "dvr"};
static const char *tokenizer, *prompt, *prompt_file, *ids_text, *trace_path, *record_path;
static const char *batch_in, *batch_out, *stop_text[ANSWER_STOPS + 1];
static int64_t max_running, n, top_k, seed, samples = 1;
static float temperature, top_p, min_p;
static bool deterministic, ignore_eos, ids_out, logprobs, json, stream, chatting, stats;
static drafting drafts;
static chat_options chatted;

static const args_option options[] = {
    ENGINE_MODEL(&how),
    ARGS_IN("tokenizer FILE", &tokenizer, "its tokenizer (default: the one in the model's folder)"),
    ARGS_ONCE("prompt,p TEXT", &prompt, "prompt (default: It was); empty: the begin-of-text token alone"),
    ARGS_IN("prompt-file,f FILE", &prompt_file,
            "the prompt is all of this file, the newline at its end too; -: standard input"),
    ARGS_ONCE("ids LIST", &ids_text, "prompt as token ids, as in 0,5,7; no BOS is added to it"),
    ARGS_FLAG("chat", &chatting,
              "the prompt is a user's turn by the model's chat template; special tokens in it are not escaped"),
    ARGS_ONCE("system TEXT", &chatted.system, "with --chat: what the system says first"),
    CHAT_OPTIONS(&chatted),
    ARGS_IN("batch FILE", &batch_in,
            "answer each line of FILE, objects of JSON with prompt or ids; see examples/lib/request_file.h"),
    ARGS_OUT("out FILE", &batch_out, "with --batch: the answers, a line each; the same command goes on where it ended"),
    ARGS_INT("tokens,n N", &n, 0, INT32_MAX, "new tokens; 0: 128, or what the context leaves"),
    ARGS_FLAG("deterministic", &deterministic, "verify and roll back: the same text under any load"),
    ARGS_FLOAT("temperature T", &temperature, 0, 1000, "0: greedy"),
    ARGS_INT("top-k K", &top_k, 0, INT32_MAX, "draw from the K most likely tokens; 0: all"),
    ARGS_FLOAT("top-p P", &top_p, 0, 1, "draw from the smallest set with this share; 0: all"),
    ARGS_FLOAT("min-p P", &min_p, 0, 1, "draw from tokens with this share of the likeliest; 0: all"),
    ARGS_INT("seed,s S", &seed, 0, INT64_MAX - 4096,
             "sample 0 draws with seed S, and sample i with a hash of S and i; 0: 42"),
    ARGS_INT("samples N", &samples, 1, 4096, "texts from one prompt"),
    ARGS_FLAG("ignore-eos", &ignore_eos, "do not end at an end-of-sequence token"),
    ARGS_MANY("stop TEXT", stop_text, ANSWER_STOPS, "end before TEXT where it comes up; up to 16 times"),
    ARGS_FLAG("json", &json, "print an object of JSON for each sample: text, ids, logprobs, finish, ..."),
    ARGS_FLAG("stream", &stream, "print a line of any sample as soon as it has one, behind [NUMBER]"),
    ARGS_FLAG("ids-out", &ids_out, "print the new tokens' ids, one line a sample"),
    ARGS_FLAG("logprobs", &logprobs, "print a table: sample position token logprob text; with --ids-out no text"),
    ENGINE_COMPUTE(&how),
    ENGINE_POLICIES(&how),
    ARGS_INT("max-running N", &max_running, 0, 4096, "requests that run at once; 0: 32, or as many as there are"),
    ENGINE_KV(&how),
    ENGINE_PLANNER(&how),
    DRAFTING_OPTIONS(&drafts),
    ENGINE_RANKS(&how),
    ENGINE_ALGORITHMS(&how),
    ENGINE_THREADS(&how),
    ARGS_OUT("trace FILE", &trace_path, "write events: *.json for Perfetto, else TSV"),
    ARGS_OUT("record FILE", &record_path, "write a transcript: build/audit computes it again"),
    ENGINE_NO_MMAP(&how),
    ARGS_FLAG("stats", &stats, "print counts and times on stderr at the end"),
    ARGS_END,
};

typedef struct sample {
    answer answer;
    char *out;                   // not yet printed
    const llm42_request *ended;  // --json: its line is still to be written
    bool finished, fresh;        // fresh: there may be more to print
} sample;

#define LOGPROBS "sample\tposition\ttoken\tlogprob"  // columns of --logprobs; then the text

static llm42_model *model;
static llm42_engine *engine;
static tok *t;
static chat turns;
static sample *sample_list;
static int64_t printing;  // the sample that is on stdout
static double last_end;   // when a sample was finished last
static batch requests;    // of --batch
static llm42_trace *trace;
static llm42_recorder *recorder;

static void put(sample *s, tok_text text) {
    if (text.size) memcpy(arraddnptr(s->out, text.size), text.data, text.size);
}

static void put_string(sample *s, const char *string) { put(s, (tok_text){string, strlen(string)}); }

static bool prints_text(void) { return !ids_out && !logprobs && !json; }

// A line of --logprobs. The text of a token may be a part of a character.
static void put_logprob(sample *s, int position, int32_t token, float logprob) {
    char line[96];
    const char *text = "";
    size_t size = 0;
    snprintf(line, sizeof line, "%d\t%d\t%d\t%.9g", (int)(s - sample_list), position, (int)token, (double)logprob);
    put_string(s, line);
    if (!ids_out) put_string(s, "\t");
    if (!ids_out && token < t->count) text = t->bytes + t->piece[token].at, size = (size_t)t->piece[token].size;
    for (size_t i = 0; i < size;) {
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
}

// How much of a text --stream prints as a line: up to a newline, or, if it is long, up to a space. 0: it waits for
// more.
static size_t line_size(const char *text, size_t size, bool finished) {
    enum { WIDTH = 72 };
    const char *newline = size ? memchr(text, '\n', size) : NULL;
    size_t line = newline ? (size_t)(newline - text) + 1 : finished ? size : 0;
    if ((newline ? line - 1 : size) <= WIDTH) return line;
    for (line = WIDTH; line > 0 && text[line - 1] != ' ';) line--;
    if (line) return line;
    for (line = WIDTH; line > 1 && ((unsigned char)text[line] & 0xC0) == 0x80;) line--;
    return line;
}

static void print_lines(sample *s) {
    for (size_t line; (line = line_size(s->out, arrlenu(s->out), s->finished)); arrdeln(s->out, 0, line)) {
        printf("[%d] ", (int)(s - sample_list));
        fwrite(s->out, 1, line - (s->out[line - 1] == '\n'), stdout);
        putchar('\n');
    }
    fflush(stdout);
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

static void put_tokens(sample *s, const llm42_event *event) {
    const int count = answer_committed(&s->answer, engine, event);
    for (int i = 0; i < count; i++) {
        char id[16];
        snprintf(id, sizeof id, "%s%d", event->position + i ? "," : "", (int)event->tokens[i]);
        if (logprobs)
            put_logprob(s, event->info->prompt_count + event->position + i, event->tokens[i], event->logprobs[i]);
        else if (ids_out) put_string(s, id);
    }
    if (prints_text()) put(s, answer_fresh(&s->answer, false));
}

// The line of JSON of a finished sample.
static void put_json(sample *s) {
    size_t size = 0;
    char *line = answer_json(&s->answer, s->ended, model->name, (int)(s - sample_list), NULL, NULL, &size);
    put(s, (tok_text){line, size});
    free(line);
    s->ended = NULL;
}

// Prints what the last pass has brought, all samples together, so that the engine waits for one system call at most.
static void print_fresh(void) {
    bool any = false;
    for (int64_t i = 0; i < arrlen(sample_list); i++) {
        sample *s = &sample_list[i];
        if (!s->fresh) continue;
        any = true, s->fresh = false;
        if (s->ended) put_json(s);
        if (stream) print_lines(s);
    }
    if (any && !stream) flush_samples();
}

static void put_end(sample *s, const llm42_event *event) {
    answer_finished(&s->answer);
    last_end = llm42_engine_now(engine);
    if (json) s->ended = event->info;
    if (prints_text()) put(s, answer_fresh(&s->answer, true));
    if (!json && !logprobs && !stream) put_string(s, "\n");
    s->finished = true;
}

static void on_event(void *user, const llm42_event *event) {
    (void)user;
    if (trace) llm42_trace_event(trace, event);
    llm42_recorder_event(recorder, event);
    if (event->type != LLM42_EVENT_COMMITTED && event->type != LLM42_EVENT_FINISHED) return;
    if (batch_in) {
        batch_event(&requests, engine, event);
        return;
    }
    sample *s = event->info->user;
    if (event->type == LLM42_EVENT_COMMITTED) put_tokens(s, event);
    else put_end(s, event);
    s->fresh = true;
}

// What answers to the options begin with.
static answer new_answer(void) {
    answer a = {.stream = {.t = t, .skip_special = true}};
    for (; stop_text[a.stops]; a.stops++) a.stop[a.stops] = (tok_text){stop_text[a.stops], strlen(stop_text[a.stops])};
    return a;
}

// What stands before a sample's new tokens: a line between samples and the prompt, dimmed on a terminal. A user's turn
// is not repeated.
static void begin_sample(sample *s, int64_t number, const int32_t *ids) {
    char line[64];
    const bool text = prints_text(), dim = text && args_use_color(stdout) && !stream && !chatting;
    s->answer = new_answer();
    if (logprobs && !number) put_string(s, ids_out ? LOGPROBS "\n" : LOGPROBS "\ttext\n");
    snprintf(line, sizeof line, "--- sample %" PRId64 "\n", number);
    if (text && samples > 1 && !stream) put_string(s, line);
    if (dim) put_string(s, "\033[2m");
    const bool shown = text && !chatting;
    if (t && !shown) tok_stream_follow(&s->answer.stream, ids, (int)arrlen(ids));
    for (int i = 0; t && shown && i < (int)arrlen(ids); i++) put(s, tok_stream_next(&s->answer.stream, ids[i]));
    if (dim) put_string(s, "\033[0m");
}

static void print_stats(double seconds) {
    llm42_stats st = llm42_engine_stats(engine);
    double percent = st.returned_tokens ? 100.0 * (double)st.recomputed / (double)st.returned_tokens : 0;
    fprintf(stderr, "%" PRId64 " prompt tokens, %" PRId64 " new tokens in %.3f s (%.1f tokens/s)\n", st.prompt_tokens,
            st.returned_tokens, seconds, seconds > 0 ? (double)st.returned_tokens / seconds : 0);
    fprintf(stderr,
            "passes: %" PRId64 " FAST, %" PRId64 " INVARIANT, %" PRId64 " FIXED, in %.3f s; windows verified: %" PRId64
            ", rollbacks: %" PRId64 ", %.2f%% recomputed\n",
            st.passes[LLM42_SCHEDULE_FAST], st.passes[LLM42_SCHEDULE_INVARIANT], st.passes[LLM42_SCHEDULE_FIXED],
            st.busy[LLM42_SCHEDULE_FAST] + st.busy[LLM42_SCHEDULE_INVARIANT] + st.busy[LLM42_SCHEDULE_FIXED],
            st.verifications, st.rollbacks, percent);
    if (!drafting_asked(&drafts)) return;
    int64_t passes = 0;
    for (int s = 0; s < LLM42_SCHEDULE_COUNT; s++) passes += st.passes[s];
    fprintf(stderr, "drafts: %" PRId64 " judged, %" PRId64 " accepted (%.1f%%); %.2f new tokens a pass\n", st.drafted,
            st.accepted, st.drafted ? 100.0 * (double)st.accepted / (double)st.drafted : 0,
            passes ? (double)st.returned_tokens / (double)passes : 0);
}

// What is asked of a request, as far as the options say it. --chat also ends an answer where its turn ends.
static llm42_request_desc new_request(void) {
    static int32_t stop[LLM42_MAX_STOP];
    llm42_request_desc ask = {.max_new_tokens = (int)n, .deterministic = deterministic, .ignore_stop = ignore_eos};
    ask.sampling = (llm42_sampling){temperature, (int)top_k, top_p, min_p, (uint64_t)seed};
    if (chatting) ask.stop = stop, ask.stop_count = chat_stop(&turns, &model->config, stop);
    return ask;
}

// The option that says the prompt.
static const char *prompt_option(void) { return ids_text ? "--ids" : prompt_file ? "--prompt-file" : "--prompt"; }

static void submit_samples(const int32_t *ids) {
    llm42_error error = {0};
    answer_check_room(prompt_option(), (int)arrlen(ids), "-n", n, answer_room(llm42_engine_config(engine)));
    for (int64_t i = 0; i < samples; i++) {
        llm42_request_desc ask = new_request();
        ask.prompt = ids, ask.prompt_count = (int)arrlen(ids);
        ask.sampling.seed = answer_seed((uint64_t)seed, i);
        ask.user = &sample_list[i];
        args_check(llm42_engine_submit(engine, &ask, NULL, &error), &error);
    }
    if (samples > 1 && temperature == 0)
        fprintf(stderr, "%s: greedy: all %" PRId64 " samples are alike%s: for others give --temperature\n",
                args_program, samples,
                deterministic || !strcmp(how.preset, "invariant") ? "" : ", but for what batches change");
}

static void run_samples(const int32_t *ids) {
    arrsetlen(sample_list, samples);
    memset(sample_list, 0, (size_t)samples * sizeof *sample_list);
    for (int64_t i = 0; i < samples; i++) begin_sample(&sample_list[i], i, ids);
    args_watches = 1;
    submit_samples(ids);
    if (!stream) flush_samples();
    llm42_error error = {0};
    for (llm42_result result = LLM42_OK; !args_signal && result == LLM42_OK; print_fresh())
        result = args_check(llm42_engine_step(engine, &error), &error);
}

static void free_samples(void) {
    for (int64_t i = 0; i < arrlen(sample_list); i++) {
        answer_free(&sample_list[i].answer);
        arrfree(sample_list[i].out);
    }
    arrfree(sample_list);
}

// Reads IN. What is in `settings` decides about results, beside the lines, the model and its backend.
static void read_batch(void) {
    static char settings[16384];
    snprintf(settings, sizeof settings,
             "%s %s %s %s %s %s %s %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %s %s %.8000s", model->name,
             how.backend, how.dtype, how.arithmetic ? how.arithmetic : "", how.preset, how.verifier ? how.verifier : "",
             how.planner, how.window, how.group, how.tensor_parallel, how.leaves,
             turns.format ? turns.format->name : "", turns.date, chatted.system ? chatted.system : "");
    requests = (batch){.in = {.option = "--batch",
                              .path = batch_in,
                              .model = model,
                              .t = t,
                              .chat = chatting ? &turns : NULL,
                              .ask = new_request(),
                              .answer = new_answer()},
                       .out = batch_out,
                       .settings = settings};
    batch_read(&requests);
}

static void check_options(void) {
    static const char *const names[] = {"--prompt",  "--prompt-file", "--ids",     "--json", "--stream",
                                        "--ids-out", "--logprobs",    "--samples", NULL};
    static const char *const prompt_names[] = {"--prompt", "--prompt-file", "--ids", NULL};
    const bool given[] = {prompt, prompt_file, ids_text, json, stream, ids_out, logprobs, samples > 1};
    char line[256];
    if (args_given(line, prompt_names, given) > 1) args_fail(2, "%s exclude each other: give one", line);
    if (batch_in && !batch_out) args_fail(2, "--batch: needs --out FILE, for the answers");
    if (batch_out && !batch_in) args_fail(2, "--out: needs --batch FILE, whose answers it gets");
    if (batch_in && args_given(line, names, given))
        args_fail(2, "--batch: the file has the prompts and --out gets the answers: leave out %s", line);
    args_given(line, names + 3, given + 3);
    if (json + stream + (ids_out || logprobs) > 1) args_fail(2, "%s exclude each other", line);
    drafting_check(&drafts);
    if (chatted.system && !chatting) args_fail(2, "--system: needs --chat");
    if ((chatted.format || chatted.date) && !chatting)
        args_fail(2, "%s: needs --chat", chatted.format ? "--chat-format" : "--chat-date");
    if (chatting && ids_text) args_fail(2, "--chat: needs a text: --ids says the whole prompt already");
    for (int i = 0; stop_text[i]; i++)
        if (!stop_text[i][0]) args_fail(2, "--stop: the text is empty");
    if (prompt) text_check("--prompt", "--prompt-file", prompt);
}

static void open_chat(void) {
    llm42_error error = {0};
    const llm42_result result = chat_open(&turns, t, how.path, &chatted, &error);
    if (result == LLM42_INVALID) args_fail(2, "%s", error.text);
    if (result)
        args_fail(1, "--chat: %s%s", error.text,
                  result != LLM42_UNSUPPORTED
                      ? ""
                      : ", give --ids, or leave out --chat and write the turns out, special tokens included; "
                        "examples/python/llm42_chat.py spells them by any template");
    if (chatted.system && !turns.format->system)
        args_fail(1, "--system: %s: the chat template has no system's turn", how.path);
}

// Opens the tokenizer, unless the model has none and nothing needs it, and the chat template.
static void open_texts(void) {
    llm42_error error = {0};
    const bool synthetic = !tokenizer && !strncmp(how.path, "synthetic:", 10);
    const bool ids_alone = (ids_text || batch_in) && !stop_text[0] && !chatting;
    if (ids_text && synthetic && !json) ids_out = true;  // it has no text
    if (ids_alone && (synthetic || ids_out)) return;
    if (!tok_open(&t, model, how.path, tokenizer, &error)) {
        text_manifest(&how.manifest);
        if (chatting) open_chat();
        return;
    }
    if (batch_in && ids_alone && !tokenizer && error.result == LLM42_IO) return;  // the file may have ids alone
    const char *option = chatting ? "--chat: " : stop_text[0] ? "--stop: " : "";
    const char *advice = batch_in || *option ? ""
                         : ids_text          ? " (--ids-out does without a tokenizer)"
                                             : " (--ids with --ids-out does without a tokenizer)";
    args_fail(1, "%s%s%s", option, error.text, advice);
}

// The prompt of samples.
static void read_prompt(int32_t **ids) {
    llm42_error error = {0};
    if (ids_text) {
        arrsetlen(*ids, args_list_count(ids_text));
        args_ids("--ids", ids_text, *ids);
        args_ids_check("--ids", *ids, (int)arrlen(*ids), model->config.vocab);
        return;
    }
    if (!prompt) prompt = "It was";
    size_t size = strlen(prompt);
    char *file_text = prompt_file ? text_read("--prompt-file", prompt_file, &size) : NULL;
    const char *text = file_text ? file_text : prompt;
    if (chatting) args_check(chat_encode(&turns, t, text, size, ids, &error), &error);
    else text_encode(t, text, size, ids);
    if (!arrlen(*ids))
        args_fail(2, "%s: no tokens, since the model has no begin-of-text token: write a text", prompt_option());
    free(file_text);
}

int main(int argc, char **argv) {
    args_parse(argc, argv, "Prints text (or ids) from a model as it is committed.", options);
    engine_look_up(&how);
    check_options();

    llm42_error error = {0};
    int32_t *ids = NULL;
    model = engine_model(&how);
    open_texts();
    if (batch_in) read_batch();
    else read_prompt(&ids);
    if (trace_path) args_check(llm42_trace_open(&trace, trace_path, &error), &error);

    const int64_t together = batch_in ? arrlen(requests.line) : samples;
    llm42_engine_desc desc = engine_desc(&how, model);
    desc.max_running = (int)(max_running ? max_running : together < 32 ? together : 32);
    desc.auto_release = batch_in != NULL;
    desc.on_event = on_event;
    drafting_open(&drafts, &desc);
    args_check(llm42_engine_open(&engine, &desc, &error), &error);
    if (record_path) args_check(llm42_recorder_open(&recorder, record_path, engine, how.manifest.text, &error), &error);
    double begin = llm42_engine_now(engine);
    if (batch_in) {
        batch_begin(&requests, engine);
        batch_run(&requests, engine);
    } else {
        run_samples(ids);
    }
    // Of a run that is ended, a transcript has what was committed.
    for (int64_t i = 1; args_signal && i <= llm42_engine_stats(engine).submitted; i++)
        llm42_engine_cancel(engine, i, NULL);
    print_fresh();
    drafting_report(&drafts, engine);
    if (batch_in) batch_stop_if_asked(&requests);
    args_stop_if_asked();
    if (stats) print_stats((batch_in ? llm42_engine_now(engine) : last_end) - begin);
    if (trace) args_check(llm42_trace_close(trace, &error), &error);
    args_check(llm42_recorder_close(recorder, &error), &error);
    if (batch_in) batch_end(&requests);
    args_check_requests(engine);

    llm42_engine_close(engine);
    drafting_close(&drafts);
    llm42_model_free(model);
    free_samples();
    arrfree(ids);
    tok_free(t);
    return args_finish();
}
