// The traces of a run: a Chrome trace is read as a viewer reads it, and must hold what the engine did. Slices of a lane
// are nested and never overlap, arrows have both ends, and lanes have names. The TSV has every token. Then transcripts.
#define TEST_ALL
#include "test.h"
#define LLM42_CALIBRATION_IMPLEMENTATION
#define LLM42_IMPLEMENTATION
#include "examples/util/llm42_synthetic.h"
#include "examples/util/llm42_calibration.h"
#define LLM42_TRACE_IMPLEMENTATION
#include "examples/util/llm42_trace.h"
#define LLM42_TRANSCRIPT_IMPLEMENTATION
#include "examples/util/llm42_transcript.h"
#define LLM42_DRAFT_IMPLEMENTATION
#include "examples/util/llm42_draft.h"
#include "make_model.h"

enum { REQUESTS = 40, PROMPT = 20, LANES = 64, DEEPEST = 8 };

// >>reading ------------------------------------------------------------------------------------------------------
// One event of a Chrome trace; times in nanoseconds.
typedef struct entry {
    char kind, name[48];
    int64_t group, lane, from, duration, flow, windows;
    int at;  // place in the file
} entry;

// A lane while its events are read in the order of their times: the slices that are open.
typedef struct lane {
    int64_t group, number;
    char name[48];
    int depth;
    entry open[DEEPEST];
    int64_t left;  // where the last phase of a request ended
} lane;

typedef struct reading {
    entry *entries;
    int count, lanes;
    lane lane[LANES];
    int64_t passes, waiting, prefill, decode, verify, requests, open, arrows, instants;
    int64_t drafted, accepted;  // instants of these names, and their numbers
} reading;

static reading seen;
static char problem[600];  // the first one; empty: none

#define WRONG(...) (problem[0] ? 0 : snprintf(problem, sizeof problem, __VA_ARGS__))

// A time in microseconds as nanoseconds, exact in a double and times 1,000: viewers do that, and some cut the result.
static int64_t nanoseconds(const llm42__json *json, int object, const char *key) {
    double us = -1;
    if (!llm42__json_number(json, llm42__json_get(json, object, key), &us) || us < 0 || us > 1e12)
        return WRONG("an event's %s is not a time", key), 0;
    int64_t ns = (int64_t)(us * 1000);
    if ((double)ns != us * 1000) WRONG("%s: %.9g us is no whole number of nanoseconds", key, us);
    return ns;
}

static int64_t whole(const llm42__json *json, int object, const char *key, int64_t otherwise) {
    double x;
    return llm42__json_number(json, llm42__json_get(json, object, key), &x) ? (int64_t)x : otherwise;
}

static void text_of(const llm42__json *json, int i, char *to, size_t room) {
    to[0] = 0;
    if (i >= 0 && json->token[i].type == JSMN_STRING)
        snprintf(to, room, "%.*s", json->token[i].end - json->token[i].start, json->text + json->token[i].start);
}

static lane *lane_of(int64_t group, int64_t number) {
    for (int i = 0; i < seen.lanes; i++)
        if (seen.lane[i].group == group && seen.lane[i].number == number) return &seen.lane[i];
    return NULL;
}

static void read_metadata(const llm42__json *json, int object, const entry *e) {
    int args = llm42__json_get(json, object, "args");
    if (strcmp(e->name, "thread_name") != 0) return;
    if (lane_of(e->group, e->lane))
        WRONG("lane %lld of group %lld is named twice", (long long)e->lane, (long long)e->group);
    if (seen.lanes == LANES) {
        WRONG("too many lanes");
        return;
    }
    lane *l = &seen.lane[seen.lanes++];
    *l = (lane){.group = e->group, .number = e->lane};
    text_of(json, llm42__json_get(json, args, "name"), l->name, sizeof l->name);
    if (!l->name[0]) WRONG("a lane without a name");
}

static void read_entry(const llm42__json *json, int object) {
    char kind[4];
    int args = llm42__json_get(json, object, "args");
    entry e = TEST_LIST(.at = seen.count, .group = whole(json, object, "pid", -1),
                        .lane = whole(json, object, "tid", -1), .flow = whole(json, object, "id", -1),
                        .windows = whole(json, args, "windows", 0));
    text_of(json, llm42__json_get(json, object, "ph"), kind, sizeof kind);
    text_of(json, llm42__json_get(json, object, "name"), e.name, sizeof e.name);
    e.kind = kind[0];
    if (!kind[0] || kind[1] || !strchr("MXBEisf", kind[0])) WRONG("an event of kind '%s'", kind);
    if (e.group < 0 || (e.kind != 'E' && !e.name[0])) WRONG("an event without a name or a group");
    if (e.kind == 'M') {
        read_metadata(json, object, &e);
        return;
    }
    e.from = nanoseconds(json, object, "ts");
    if (e.kind == 'X') e.duration = nanoseconds(json, object, "dur");
    if (!lane_of(e.group, e.lane)) WRONG("%s is in lane %lld, which has no name", e.name, (long long)e.lane);
    seen.entries[seen.count++] = e;
}

static int by_time(const void *a, const void *b) {
    const entry *x = a, *y = b;
    return x->from != y->from ? (x->from > y->from) - (x->from < y->from) : x->at - y->at;
}

// >>what must hold -----------------------------------------------------------------------------------------------
static void phase(lane *l, const entry *e) {
    if (l->depth == 1 && l->left >= 0 && e->from != l->left) WRONG("%s: a gap before %s", l->name, e->name);
    seen.waiting += strcmp(e->name, "waiting") == 0;
    seen.prefill += strcmp(e->name, "prefill") == 0;
    seen.decode += strcmp(e->name, "decode") == 0;
    if (strcmp(e->name, "verify") != 0) return;
    seen.verify++;
    if (l->depth != 2 || strcmp(l->open[1].name, "decode") != 0) WRONG("%s: verify outside decode", l->name);
}

static void opened(lane *l, const entry *e) {
    if (l->depth == DEEPEST) {
        WRONG("%s: slices nested too deep", l->name);
        return;
    }
    if (l->group == LLM42__TRACE_PASSES) {
        seen.passes++;
        if (l->depth)
            WRONG("%s: %s begins at %lld ns, before the end of %s", l->name, e->name, (long long)e->from,
                  l->open[0].name);
    } else if (l->depth) {
        phase(l, e);
    } else {
        seen.requests++;
        l->left = -1;
        if (strcmp(e->name, l->name) != 0) WRONG("%s: its slice is called %s", l->name, e->name);
    }
    const entry *outer = l->depth ? &l->open[l->depth - 1] : NULL;
    if (outer && outer->kind == 'X' && e->from + e->duration > outer->from + outer->duration)
        WRONG("%s: %s ends after %s, in which it began", l->name, e->name, outer->name);
    l->open[l->depth++] = *e;
}

static void closed(lane *l, const entry *e) {
    if (!l->depth || l->open[l->depth - 1].kind != 'B')
        WRONG("%s: an end at %lld ns of nothing", l->name, (long long)e->from);
    else if (--l->depth == 1) l->left = e->from;
}

// An arrow's ends stand inside a pass and inside a window of that pass; both have the same times.
static void arrow(lane *l, const entry *e, entry *from) {
    const entry *in = l->depth ? &l->open[l->depth - 1] : NULL;
    if (!in || in->kind != 'X') {
        WRONG("%s: an arrow outside a slice", l->name);
    } else if (e->kind == 's') {
        if (from->kind) WRONG("arrow %lld begins twice, or has no end", (long long)e->flow);
        if (!in->windows) WRONG("arrow %lld begins in a pass without windows", (long long)e->flow);
        *from = *in;
        from->flow = e->flow;
    } else {
        if (!from->kind || from->flow != e->flow) WRONG("arrow %lld has no beginning", (long long)e->flow);
        if (from->from != in->from || from->duration != in->duration || strcmp(in->name, "verify") != 0)
            WRONG("arrow %lld leads to %s, which is no window of its pass", (long long)e->flow, in->name);
        from->kind = 0;
        seen.arrows++;
    }
}

static void check_entries(void) {
    entry from = {0};  // of the arrow that has begun
    int64_t windows = 0;
    qsort(seen.entries, (size_t)seen.count, sizeof *seen.entries, by_time);
    for (int i = 0; i < seen.count && !problem[0]; i++) {
        const entry *e = &seen.entries[i];
        lane *l = lane_of(e->group, e->lane);
        while (l->depth && l->open[l->depth - 1].kind == 'X' &&
               l->open[l->depth - 1].from + l->open[l->depth - 1].duration <= e->from && !strchr("sf", e->kind))
            l->depth--;
        if (strchr("XB", e->kind)) opened(l, e);
        if (e->kind == 'E') closed(l, e);
        if (strchr("sf", e->kind)) arrow(l, e, &from);
        windows += e->windows;
        seen.instants += e->kind == 'i';
        if (e->kind == 'i' && !strncmp(e->name, "drafted ", 8)) seen.drafted++;
        if (e->kind == 'i' && !strncmp(e->name, "accepted ", 9)) seen.accepted += strtol(e->name + 9, NULL, 10);
    }
    if (from.kind) WRONG("arrow %lld has no end", (long long)from.flow);
    if (seen.arrows != windows) WRONG("%lld arrows from %lld windows", (long long)seen.arrows, (long long)windows);
    for (int i = 0; i < seen.lanes; i++)
        for (int k = 0; k < seen.lane[i].depth; k++) seen.open += seen.lane[i].open[k].kind == 'B';
}

// Reads a Chrome trace into `seen`. Its first fault is in `problem`.
static void read_trace(const char *text, size_t size) {
    llm42_error error;
    llm42__json json;
    free(seen.entries);
    seen = (reading){0};
    problem[0] = 0;
    if (llm42__json_parse(&json, "trace", text, size, &error) != LLM42_OK) {
        WRONG("%s", error.text);
        llm42__free(json.token);
        return;
    }
    int events = llm42__json_get(&json, 0, "traceEvents");
    seen.entries = calloc((size_t)LLM42__MAX(json.count, 1), sizeof *seen.entries);
    if (events < 0 || !seen.entries) WRONG("no traceEvents");
    for (int i = events + 1; !problem[0] && i < json.count; i = llm42__json_skip(&json, i)) read_entry(&json, i);
    llm42__free(json.token);
    if (!problem[0]) check_entries();
}

// >>runs ---------------------------------------------------------------------------------------------------------
static llm42_model *model, *shape;
static llm42_calibration *calibration;
static llm42_error error;
#include "transcripts.h"

typedef struct setting {
    const char *name;
    bool simulated, open_end, cancels;
    bool drafts;  // by an oracle
    llm42_engine_desc desc;
} setting;

static struct {
    llm42_trace *json, *tsv;
    int64_t admitted;  // events
    int64_t allocations;
    int64_t drafted;  // events
    bool learns;      // its tokens go into truth
} heard;
static int32_t truth[REQUESTS + 1][PROMPT * 3];  // tokens that requests had in the last run without drafts

static void hear(void *user, const llm42_event *e) {
    (void)user;
    int64_t before = test_allocations();
    llm42_trace_event(heard.json, e);
    llm42_trace_event(heard.tsv, e);
    heard.allocations += test_allocations() - before;
    heard.admitted += e->type == LLM42_EVENT_ADMITTED;
    heard.drafted += e->type == LLM42_EVENT_DRAFTED;
    for (int i = 0; heard.learns && e->type == LLM42_EVENT_COMMITTED && i < e->n; i++)
        truth[e->request][e->position + i] = e->tokens[i];
}

static int32_t truth_of(void *user, const llm42_request *r, int at) {
    (void)user;
    return truth[r->id][at];
}

// A third of the requests is ordinary. Prompts and lengths differ; arrivals come at odd times.
static void submit_all(llm42_engine *engine, const setting *s) {
    uint64_t random = 7;
    double arrival = llm42_engine_now(engine);
    int count = s->simulated ? REQUESTS : 8;
    for (int i = 0; i < count; i++) {
        int32_t prompt[PROMPT];
        for (int k = 0; k < PROMPT; k++) prompt[k] = test_random_int(&random, 0, 99);
        llm42_request_desc r = TEST_LIST(.prompt = prompt, .prompt_count = test_random_int(&random, 1, PROMPT),
                                         .max_new_tokens = test_random_int(&random, 1, 60),
                                         .deterministic = i % 3 > 0 &&
                                                          s->desc.policy.mode != LLM42_MODE_NONDETERMINISTIC,
                                         .ignore_stop = true);
        arrival += s->simulated ? 0.0123456789 * (double)test_random_int(&random, 0, 9) : 0;
        r.arrival = s->simulated ? arrival : 0;
        CHECK_MSG(llm42_engine_submit(engine, &r, NULL, &error) == LLM42_OK, "%s", error.text);
    }
}

// Steps until idle, or for an open end until half of the requests have finished.
static void serve(llm42_engine *engine, const setting *s) {
    int64_t last = llm42_engine_stats(engine).submitted;
    for (int64_t step = 0; llm42_engine_step(engine, &error) == LLM42_OK; step++) {
        if (s->cancels && step % 5 == 4) {  // also one that waits
            int64_t id = step / 5 % 3 ? 1 + step % last : last - step % 4;
            CHECK_INT(llm42_engine_cancel(engine, id, &error), LLM42_OK);
        }
        if (s->open_end && llm42_engine_stats(engine).finished >= last / 2) return;
    }
}

static void check_tsv(const char *name, const llm42_stats *stats) {
    char *text = test_read(test_file("trace.tsv"), NULL);
    int64_t lines = 0, committed = 0, wrong = 0, drafted = 0, accepted = 0, short_lists = 0;
    int columns = 0;
    bool ended = false;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        int tabs = 0, n, tokens = 0;
        char event[32], list[256] = "";
        ended = strcmp(line, "# end") == 0;
        if (ended) continue;
        for (char *p = line; *p; p++) tabs += *p == '\t';
        if (lines == 1) columns = tabs;  // their names, behind the comment
        wrong += lines > 1 && tabs != columns;
        if (sscanf(line, "%*s %31s %*s %d %*d %255[0-9,]", event, &n, list) < 2) continue;
        for (const char *p = list; *p; p++) tokens += *p == ',';
        tokens += list[0] != 0;
        if (strcmp(event, "committed") == 0) committed += n;
        if (strcmp(event, "accepted") == 0) accepted += n;
        drafted += strcmp(event, "drafted") == 0;
        if (!strcmp(event, "committed") || !strcmp(event, "drafted") || !strcmp(event, "accepted"))
            short_lists += tokens != n;
    }
    CHECK_INT(committed, stats->returned_tokens);
    CHECK_INT(accepted, stats->accepted);
    CHECK_INT(drafted, heard.drafted);
    CHECK_MSG(ended, "%s: the last line is not # end", name);
    CHECK_MSG(columns > 0 && wrong == 0, "%s: %lld lines do not have %d tabs", name, (long long)wrong, columns);
    CHECK_MSG(short_lists == 0, "%s: %lld lines do not have n tokens", name, (long long)short_lists);
    free(text);
}

static char *traced(const setting *s, size_t *size, llm42_stats *stats) {
    static const llm42_sim_desc sim_base = {.seed = 3, .flip_scale = 10};
    llm42_sim_desc sim = sim_base;
    llm42_engine *engine = NULL;
    llm42_engine_desc desc = s->desc;
    sim.calibration = calibration;
    desc.model = s->simulated ? shape : model;
    desc.backend = s->simulated ? llm42_backend_sim() : llm42_backend_cpu();
    desc.backend_desc = s->simulated ? (const void *)&sim : TEST_THREADS(1);
    desc.max_context = 128;
    desc.on_event = hear;
    if (!desc.policy.window) desc.policy.window = 8, desc.policy.group = 4;
    llm42_drafter drafter = {0};
    const llm42_oracle_desc oracle = {
        .truth = truth_of, .rate = 0.8, .always = true, .vocab = desc.model->config.vocab};
    if (s->drafts && CHECK_INT(llm42_oracle_open(&drafter, &oracle, &error), LLM42_OK)) desc.drafter = &drafter;
    memset(&heard, 0, sizeof heard);
    heard.learns = !s->drafts;
    CHECK_INT(llm42_trace_open(&heard.json, test_file("trace.json"), &error), LLM42_OK);
    CHECK_INT(llm42_trace_open(&heard.tsv, test_file("trace.tsv"), &error), LLM42_OK);
    if (!CHECK_MSG(llm42_engine_open(&engine, &desc, &error) == LLM42_OK, "%s: %s", s->name, error.text)) return NULL;
    submit_all(engine, s);
    serve(engine, s);
    *stats = llm42_engine_stats(engine);
    CHECK_INT(llm42_trace_close(heard.json, &error), LLM42_OK);
    CHECK_INT(llm42_trace_close(heard.tsv, &error), LLM42_OK);
    llm42_engine_close(engine);
    llm42_drafter_close(&drafter);
    return test_read(test_file("trace.json"), size);
}

static void check_setting(const setting *s) {
    size_t size = 0, again_size = 0;
    llm42_stats stats;
    char *text = traced(s, &size, &stats);
    int64_t passes = 0;
    if (!text) return;
    read_trace(text, size);
    CHECK_MSG(!problem[0], "%s: %s", s->name, problem);
    for (int i = 0; i < LLM42_SCHEDULE_COUNT; i++) passes += stats.passes[i];
    CHECK_INT(heard.allocations, 0);
    CHECK_INT(seen.passes, passes);
    CHECK_INT(seen.verify, stats.verifications);
    CHECK_INT(seen.arrows, stats.verifications);
    CHECK_INT(seen.requests, stats.submitted);
    CHECK_INT(seen.waiting, stats.submitted + stats.preemptions);
    CHECK_INT(seen.prefill, heard.admitted);
    CHECK(seen.decode <= seen.prefill && seen.decode > 0);
    CHECK_INT(seen.open, 2 * (stats.submitted - stats.finished));
    CHECK_MSG((seen.open > 0) == s->open_end, "%s: %lld slices without an end", s->name, (long long)seen.open);
    CHECK_MSG(!s->cancels || stats.cancelled > 2, "%s: %lld cancelled", s->name, (long long)stats.cancelled);
    CHECK_MSG(!s->desc.kv.pages || stats.preemptions > 0, "%s: no preemption", s->name);
    if (!s->simulated && s->desc.policy.mode != LLM42_MODE_NONDETERMINISTIC) CHECK(stats.verifications > 0);
    CHECK_INT(seen.drafted, heard.drafted);
    CHECK_INT(seen.accepted, stats.accepted);
    CHECK_MSG(s->drafts == (stats.accepted > 10), "%s: %lld drafts accepted", s->name, (long long)stats.accepted);
    CHECK_MSG(s->drafts == (stats.drafted > stats.accepted), "%s: no draft dropped", s->name);
    check_tsv(s->name, &stats);
    char *again = s->simulated ? traced(s, &again_size, &stats) : NULL;
    if (s->simulated) CHECK(again && again_size == size && memcmp(text, again, size) == 0);
    TEST_FREE(again, text);
}

TEST(chrome_traces_hold_what_the_engine_did) {
    static const setting settings[] = {
        {"simulated", .simulated = true},
        {"FIXED", .simulated = true,
         .desc = TEST_LIST(.policy.verifier = LLM42_VERIFIER_FIXED, .policy.verify = LLM42_VERIFY_EAGER,
                           .policy.prefill = LLM42_PREFILL_PACKED)},
        {"paper", .simulated = true, .desc = {.preset = LLM42_PRESET_PAPER}},
        {"best", .simulated = true, .desc = {.preset = LLM42_PRESET_BEST}},
        {"preemption", .simulated = true, .desc = {.kv.pages = 20, .policy.verify = LLM42_VERIFY_WAIT}},
        {"isolated", .simulated = true, .desc = {.policy.prefill = LLM42_PREFILL_ISOLATED}},
        {"cancels, preemption", .simulated = true, .cancels = true,
         .desc = {.policy.window = 4, .policy.group = 2, .kv.pages = 12}},
        {"open end", .simulated = true, .open_end = true},
        {"invariant prefill", .simulated = true, .desc = {.policy.prefill = LLM42_PREFILL_INVARIANT}},
        {"batch-invariant", .simulated = true, .desc = {.policy.mode = LLM42_MODE_BATCH_INVARIANT}},
        {"drafts", .simulated = true, .drafts = true, .desc = {.draft_ordinary = true}},
        {"drafts, cancels, preemption", .simulated = true, .drafts = true, .cancels = true,
         .desc = {.policy.window = 4, .policy.group = 2, .kv.pages = 9}},
        {"drafts, batch-invariant", .simulated = true, .drafts = true,
         .desc = {.policy.mode = LLM42_MODE_BATCH_INVARIANT}},
        {"CPU, FIXED", .desc = TEST_LIST(.policy.verifier = LLM42_VERIFIER_FIXED, .policy.verify = LLM42_VERIFY_EAGER,
                                         .policy.prefill = LLM42_PREFILL_PACKED)},
        {"CPU, cancels", .cancels = true},
        {"CPU, preemption", .desc = {.kv.pages = 8}},
        {"CPU, open end", .open_end = true, .desc = {.max_running = 4}},
        {"CPU, drafts", .drafts = true, .desc = {.draft_ordinary = true}},
        {"CPU, nothing deterministic", .desc = {.policy.mode = LLM42_MODE_NONDETERMINISTIC}},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) check_setting(&settings[i]);
}

// >>the reader finds faults --------------------------------------------------------------------------------------
// Events of one lane of passes and one request, with `more` in between.
static const char *fault(const char *more) {
    static char text[4096];
    int n = snprintf(
        text, sizeof text,
        "{\"traceEvents\": [\n"
        "{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 1, \"tid\": 2, \"args\": {\"name\": \"FIXED\"}},\n"
        "{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 2, \"tid\": 1, \"args\": {\"name\": \"request 1\"}},\n"
        "{\"ph\": \"B\", \"name\": \"request 1\", \"pid\": 2, \"tid\": 1, \"ts\": 0.000},\n"
        "{\"ph\": \"B\", \"name\": \"decode\", \"pid\": 2, \"tid\": 1, \"ts\": 0.000},\n"
        "{\"ph\": \"X\", \"name\": \"FIXED 1\", \"pid\": 1, \"tid\": 2, \"ts\": 1.125, \"dur\": 2.500}%s\n]}\n",
        more);
    read_trace(text, (size_t)n);
    return problem;
}

TEST(a_faulty_trace_is_found_out) {
    CHECK_STR(fault(""), "");
    CHECK_STR(fault(",{\"ph\":\"X\",\"name\":\"FIXED 2\",\"pid\":1,\"tid\":2,\"ts\":3.625,\"dur\":1}"), "");
    for (char **c; (c = test_case("trace", "fault")) != NULL;) CHECK_CONTAINS(fault(c[0]), c[1]);
}

TEST(a_trace_that_cannot_be_written_says_so) {
    static const char *const names[] = {"/dev/full", "full.json"};
    for (int i = 0; i < 2; i++) {
        llm42_trace *trace = NULL;
        llm42_request r = {.id = 1};
        const char *path = i ? test_file(names[i]) : names[i];
        if (i && symlink("/dev/full", path) != 0) return;
        CHECK_INT(llm42_trace_open(&trace, path, &error), LLM42_OK);
        for (int k = 0; trace && k < 1000; k++)
            llm42_trace_event(trace,
                              &(llm42_event){.type = LLM42_EVENT_SUBMITTED, .request = 1, .info = &r, .time = k});
        CHECK_ERROR(llm42_trace_close(trace, &error), LLM42_IO, path);
    }
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    model = test_load("synthetic:tiny"), shape = test_load("shape:tiny");
    test_need(CHECK_MSG(!llm42_calibration_load(&calibration, "tests/calibration.tsv", &error), "%s", error.text));
    tiny42 = test_load(TINY);
    good = test_read("tests/transcripts/format_1.txt", NULL);
    assert(good);
    RUN_ALL();
    free(good);
    free(seen.entries);
    llm42_calibration_free(calibration);
    llm42_model_free(model);
    llm42_model_free(shape);
    llm42_model_free(tiny42);
    return test_end("test_trace");
}
