// web.c: the engine behind the page (make web). It is llm42.h, compiled to WebAssembly as it is, and a few functions
// for JavaScript (engine.js), which asks for one pass after the other and gets what happened as JSON.
//
// Text goes in through web_room: JavaScript writes it there. What comes back is a text that stays valid until the next
// call. An error is {"error": "..."}.
#define _POSIX_C_SOURCE 200809L
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LLM42_IMPLEMENTATION
#include "examples/util/llm42_synthetic.h"
#include "examples/lib/texts.h"
#define LLM42_CALIBRATION_IMPLEMENTATION
#include "examples/util/llm42_calibration.h"
#define LLM42_TRACE_IMPLEMENTATION
#include "examples/util/llm42_trace.h"
#include "examples/util/tokenizer.h"
#include "sweep/lib/serve.h"

#define EXPORT(name) __attribute__((export_name(#name), used))

enum { LANES = 16, RING = 128, TOP = 4, PAGE_CONTEXT = 1024 };

// A lane is a request. The logits of its latest drawn tokens are kept, to show both sides of a rollback.
typedef struct lane {
    int64_t id;
    int32_t *prompt;  // stb_ds array
    float *drawn;     // [RING, vocab]
    float *replayed;  // [RING, vocab]
} lane;

static struct {
    llm42_model *model;
    tok *tok;
    llm42_engine *engine;
    llm42_backend backend;
    float *logits;  // of a pass
    lane lane[LANES];
    int lanes;
    char *text;  // stb_ds array: what the next call returns
    char *room;  // what JavaScript writes
    bool comma;  // an event has been written
} web;

// >>text ---------------------------------------------------------------------------------------------------------
__attribute__((format(printf, 1, 2))) static void put(const char *format, ...) {
    va_list values, again;
    va_start(values, format);
    va_copy(again, values);
    const int size = vsnprintf(NULL, 0, format, values);
    if (arrlen(web.text)) (void)arrpop(web.text);  // the zero
    vsnprintf(arraddnptr(web.text, size + 1), (size_t)size + 1, format, again);
    va_end(again);
    va_end(values);
}

static void put_string(const char *text) {
    put("\"");
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') put("\\%c", *text);
        else if ((unsigned char)*text < ' ') put("\\u%04x", (unsigned)*text);
        else put("%c", *text);
    }
    put("\"");
}

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static const char *begin(void) {
    arrsetlen(web.text, 0);
    web.comma = false;
    return "";
}

static const char *failed(const char *text) {
    begin();
    put("{\"error\":");
    put_string(text);
    put("}");
    return web.text;
}

EXPORT(web_room) char *web_room(int size) { return web.room = realloc(web.room, (size_t)size + 1); }

// >>model --------------------------------------------------------------------------------------------------------
// Loads the model and tokenizer of a folder whose name is in the room. Returns its shape and the bytes of all tokens.
EXPORT(web_model) const char *web_model(void) {
    llm42_error error = {0};
    begin();
    if (llm42_model_load(&web.model, &(llm42_model_desc){.path = web.room}, &error)) return failed(error.text);
    if (tok_open(&web.tok, web.model, web.room, NULL, &error)) return failed(error.text);
    put("{\"vocab\":%d,\"layers\":%d,\"isa\":\"%s\",\"version\":\"%s\",\"bos\":%d,\"tokens\":[",
        web.model->config.vocab, web.model->config.layers, llm42_cpu_isa(), LLM42_VERSION, (int)web.tok->bos);
    for (int i = 0; i < web.model->config.vocab; i++) {
        const bool known = i < web.tok->count && web.tok->piece[i].set && !web.tok->piece[i].special;
        put(i ? ",\"" : "\"");
        for (int k = 0; known && k < web.tok->piece[i].size; k++)
            put("%02x", (unsigned)(unsigned char)web.tok->bytes[web.tok->piece[i].at + (size_t)k]);
        put("\"");
    }
    put("]}");
    return web.text;
}

// Returns the ids of the text in the room, as a JSON array.
EXPORT(web_encode) const char *web_encode(int size) {
    int32_t *ids = NULL;
    llm42_error error = {0};
    if (text_ids(web.tok, web.room, (size_t)size, &ids, NULL, &error)) return failed(error.text);
    begin();
    put("[");
    for (int i = 0; i < (int)arrlen(ids); i++) put(i ? ",%d" : "%d", (int)ids[i]);
    put("]");
    arrfree(ids);
    return web.text;
}

// >>watch --------------------------------------------------------------------------------------------------------
static int lane_of(int64_t id) {
    for (int i = 0; i < web.lanes; i++)
        if (web.lane[i].id == id) return i;
    return -1;
}

// The CPU backend with a look at the logits that pass by.
static llm42_result watch_run(void *state, const llm42_pass *pass, llm42_error *error) {
    const size_t vocab = (size_t)web.model->config.vocab;
    llm42_pass seen = *pass;
    seen.logits = web.logits;
    const llm42_result result = llm42_backend_cpu()->run(state, &seen, error);
    for (int i = 0; i < pass->rows && !result && !pass->check; i++) {
        const int k = pass->row[i].flags & LLM42_ROW_SAMPLE ? lane_of(pass->seq[pass->row[i].seq].request) : -1;
        const llm42_request *r = k < 0 ? NULL : llm42_engine_request(web.engine, web.lane[k].id);
        if (!r) continue;
        const int at = pass->row[i].position + 1 - r->prompt_count;  // among the output tokens
        const bool replay = at < r->committed + r->candidates;
        float *to = replay ? web.lane[k].replayed : web.lane[k].drawn;
        memcpy(to + (size_t)(at % RING) * vocab, web.logits + (size_t)i * vocab, vocab * sizeof *to);
    }
    return result;
}

// The largest logits, and those of two tokens, with their bits: [[token, logit, bits], ...].
static void put_logits(const float *logits, int32_t one, int32_t other) {
    int32_t shown[TOP + 2] = {one, other};
    for (int n = 2; n < TOP; n++) {
        shown[n] = -1;
        for (int i = 0; i < web.model->config.vocab; i++) {
            bool taken = false;
            for (int k = 0; k < n; k++) taken |= shown[k] == i;
            if (!taken && (shown[n] < 0 || logits[i] > logits[shown[n]])) shown[n] = i;
        }
    }
    put("[");
    for (int n = 0; n < TOP; n++)
        put("%s[%d,%.9g,\"%08x\"]", n ? "," : "", (int)shown[n], (double)logits[shown[n]],
            (unsigned)bits_of(logits[shown[n]]));
    put("]");
}

static void on_event(void *user, const llm42_event *e) {
    (void)user;
    const int k = e->request ? lane_of(e->request) : -1;
    const size_t vocab = (size_t)web.model->config.vocab;
    if (e->type == LLM42_EVENT_PASS) {
        put("%s{\"type\":\"pass\",\"schedule\":\"%s\",\"rows\":%d,\"shape\":%d,\"windows\":%d,\"ms\":%.3f}",
            web.comma ? "," : "", llm42_schedule_name(e->schedule), e->n, e->shape, e->windows,
            1e3 * (e->time - e->begin));
        web.comma = true;
        return;
    }
    if (k < 0) return;
    put("%s{\"type\":\"%s\",\"lane\":%d,\"n\":%d,\"position\":%d", web.comma ? "," : "", llm42_event_name(e->type), k,
        e->n, e->position);
    web.comma = true;
    if (e->tokens) {
        put(",\"tokens\":[");
        for (int i = 0; i < e->n; i++) put(i ? ",%d" : "%d", (int)e->tokens[i]);
        put("]");
    }
    if (e->logprobs) {
        put(",\"bits\":[");
        for (int i = 0; i < e->n; i++) put("%s\"%08x\"", i ? "," : "", (unsigned)bits_of(e->logprobs[i]));
        put("]");
    }
    if (e->type == LLM42_EVENT_ROLLED_BACK) {
        const size_t at = (size_t)(e->position % RING) * vocab;
        put(",\"canonical\":%d,\"drawn\":", (int)e->replayed.token);
        put_logits(web.lane[k].drawn + at, e->tokens[0], e->replayed.token);
        put(",\"replayed\":");
        put_logits(web.lane[k].replayed + at, e->tokens[0], e->replayed.token);
    }
    put("}");
}

// >>serve --------------------------------------------------------------------------------------------------------
static void close_engine(void) {
    llm42_engine_close(web.engine);
    web.engine = NULL;
    for (int i = 0; i < web.lanes; i++) {
        arrfree(web.lane[i].prompt);
        free(web.lane[i].drawn);
        free(web.lane[i].replayed);
        web.lane[i] = (lane){0};
    }
    web.lanes = 0;
}

// Opens an engine for the preset whose name is in the room. window, group: 0 for the preset's. wait: ready windows wait
// until G of them are ready.
EXPORT(web_open) const char *web_open(int window, int group, int wait) {
    llm42_error error = {0};
    const size_t rows = (size_t)(window ? window : 32) * (size_t)(group ? group : 32);
    const bool plain = !strcmp(web.room, "nondeterministic");
    llm42_engine_desc desc = {.model = web.model,
                              .policy = {.window = window, .group = group},
                              .max_running = LANES,
                              .max_context = PAGE_CONTEXT,
                              .token_budget = PAGE_CONTEXT,
                              .on_event = on_event};
    close_engine();
    begin();
    if (llm42_policy_set(&desc, "preset", plain ? "dvr" : web.room, &error)) return failed(error.text);
    if (plain) desc.policy.mode = LLM42_MODE_NONDETERMINISTIC;
    if (wait && llm42_policy_set(&desc, "verify", "wait", &error)) return failed(error.text);
    web.backend = *llm42_backend_cpu();
    web.backend.run = watch_run;
    desc.backend = &web.backend;
    free(web.logits);
    web.logits = malloc((rows > PAGE_CONTEXT ? rows : PAGE_CONTEXT) * (size_t)web.model->config.vocab * sizeof(float));
    if (!web.logits) return failed("out of memory");
    if (llm42_engine_open(&web.engine, &desc, &error)) return failed(error.text);
    put("{\"window\":%d,\"group\":%d}", llm42_engine_config(web.engine)->policy.window,
        llm42_engine_config(web.engine)->policy.group);
    return web.text;
}

// Submits the prompt in the room. Returns its lane and ids.
EXPORT(web_submit) const char *web_submit(int size, int tokens, int deterministic, float temperature, int seed) {
    llm42_error error = {0};
    const size_t vocab = (size_t)web.model->config.vocab;
    if (web.lanes == LANES) return failed("as many requests run as the page shows");
    lane *l = &web.lane[web.lanes];
    if (text_ids(web.tok, web.room, (size_t)size, &l->prompt, NULL, &error)) return failed(error.text);
    l->drawn = malloc(RING * vocab * sizeof *l->drawn);
    l->replayed = malloc(RING * vocab * sizeof *l->replayed);
    const llm42_request_desc desc = {.prompt = l->prompt,
                                     .prompt_count = (int)arrlen(l->prompt),
                                     .max_new_tokens = tokens,
                                     .deterministic = deterministic,
                                     .sampling = {.temperature = temperature, .seed = (uint64_t)seed}};
    begin();
    web.lanes++;
    if (!l->drawn || !l->replayed) return failed("out of memory");
    if (llm42_engine_submit(web.engine, &desc, &l->id, &error)) return failed(error.text);
    begin();
    put("{\"lane\":%d,\"prompt\":[", web.lanes - 1);
    for (int i = 0; i < (int)arrlen(l->prompt); i++) put(i ? ",%d" : "%d", (int)l->prompt[i]);
    put("]}");
    return web.text;
}

// Runs a pass. Returns {"idle": false, "events": [...]}.
EXPORT(web_step) const char *web_step(void) {
    llm42_error error = {0};
    begin();
    put("{\"events\":[");
    const llm42_result result = llm42_engine_step(web.engine, &error);
    if (result < 0) return failed(error.text);
    put("],\"idle\":%s}", result == LLM42_IDLE ? "true" : "false");
    return web.text;
}

// >>cost ---------------------------------------------------------------------------------------------------------
// Puts a figure, or null where there is none.
static void put_figure(const char *name, double value) {
    if (isnan(value)) put(",\"%s\":null", name);
    else put(",\"%s\":%.9g", name, value);
}

// How many times as long as a FAST pass an INVARIANT one takes that decodes a row for each of `rows` requests, by the
// calibration.
static double slower(const llm42_calibration *c, int rows, double context) {
    return llm42_calibration_ms(c, LLM42_SCHEDULE_INVARIANT, LLM42_KIND_DECODE, rows, context) /
           llm42_calibration_ms(c, LLM42_SCHEDULE_FAST, LLM42_KIND_DECODE, rows, context);
}

// Serves requests of 512 tokens in and 128 out as a cell of build/sweep does: `qps` a second (0: all at once), and
// `share` of them are marked deterministic.
static llm42_result simulate(serving *v, llm42_engine_desc desc, double share, double qps, int seed, metrics *m,
                             llm42_error *error) {
    char text[32];
    snprintf(text, sizeof text, "%.9g", qps);
    TRY(serving_open(v, desc, qps > 0 ? text : "offline", (uint64_t)seed, share, error));
    TRY(serve(v, error));
    return serving_figures(v, m, error);
}

// Simulates a load. The room has the preset's name and, behind a space, the path of a calibration. running: requests at
// once, at most. slowdown: as llm42_sim_desc.invariant_slowdown. window, group: 0 for the preset's.
EXPORT(web_simulate)
const char *web_simulate(double share, double qps, int requests, int running, double slowdown, int window, int group,
                         int seed) {
    static llm42_calibration *calibration;
    static char loaded[256];
    static llm42_model *shape;
    enum { PROMPT = 512, TOKENS = 128, BUDGET = 2048 };
    llm42_error error = {0};
    char *path = strchr(web.room, ' ');
    *path++ = 0;
    if (strcmp(loaded, path)) {
        llm42_calibration_free(calibration);
        calibration = NULL, loaded[0] = 0;
        if (llm42_calibration_load(&calibration, path, &error)) return failed(error.text);
        snprintf(loaded, sizeof loaded, "%s", path);
    }
    if (!shape && llm42_model_load(&shape, &(llm42_model_desc){.path = "shape:llama-3.1-8b"}, &error))
        return failed(error.text);
    const llm42_sim_desc sim = {.calibration = calibration, .seed = (uint64_t)seed, .invariant_slowdown = slowdown};
    const bool plain = !strcmp(web.room, "nondeterministic");
    llm42_engine_desc desc = {.model = shape,
                              .backend = llm42_backend_sim(),
                              .backend_desc = &sim,
                              .policy = {.window = window, .group = group},
                              .kv = {.pages = (int)(calibration->kv_tokens / 16), .admission_reserve = 0.7},
                              .max_running = running,
                              .max_context = PROMPT + TOKENS,
                              .token_budget = BUDGET};
    if (llm42_policy_set(&desc, "preset", plain ? "dvr" : web.room, &error)) return failed(error.text);
    if (plain) desc.policy.mode = LLM42_MODE_NONDETERMINISTIC;
    const serve_plan plan = {.model = shape,
                             .workload = "fixed:512x128",
                             .requests = requests,
                             .max_context = PROMPT + TOKENS,
                             .max_running = running,
                             .outside_s = 1e-3 * calibration->host_request_ms};
    serving v = {.s = &plan, .submit_late = true};
    metrics m = {0};
    const llm42_result result = simulate(&v, desc, share, qps, seed, &m, &error);
    begin();
    put("{\"passes\":%.9g", m.passes_fast + m.passes_fixed + m.passes_invariant);
    put_figure("tokens_per_s", m.output_tok_per_s);
    put_figure("p50", m.e2e_p50_s);
    put_figure("p99", m.e2e_p99_s);
    put_figure("rollbacks", m.rollbacks);
    put_figure("recomputed", m.recomputed_tokens);
    put_figure("running", m.running_mean);
    put_figure("slower", slower(calibration, running, PROMPT + TOKENS / 2));
    put("}");
    serving_close(&v);
    return result ? failed(error.text) : web.text;
}
