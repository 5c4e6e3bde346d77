// llm42_trace.h: writes the events of a run to a file, as TSV or for the trace viewers of Chrome and Perfetto.
//
//     #define LLM42_TRACE_IMPLEMENTATION   // in one C file, before its first include of llm42.h
//     #include "llm42_trace.h"             // it includes llm42.h
#if defined(LLM42_TRACE_IMPLEMENTATION) && defined(__cplusplus)
#error "llm42_trace.h: the implementation is C11: define LLM42_TRACE_IMPLEMENTATION in a .c file"
#undef LLM42_TRACE_IMPLEMENTATION
#elif defined(LLM42_TRACE_IMPLEMENTATION) && !defined(LLM42_BASE)
#define LLM42_BASE  // memory, files and messages of llm42.h
#endif
#include "llm42.h"

#ifndef LLM42_TRACE_H
#define LLM42_TRACE_H

// A file *.json becomes a trace for viewers, any other a TSV, whose last line is `# end`. Give it every event of one
// engine, from the first one on. It takes no more memory however long the run is. The TSV has a column for each field
// of llm42_event; LLM42_EVENTS says what n means. The trace for viewers has
// - a lane for each schedule, with a slice for each pass,
// - a lane for each request, "request 7 (deterministic)". One slice spans the request. It holds the slices "waiting",
//   "prefill" and "decode". (A request waits before it is admitted and after it was preempted.) "decode" holds a slice
//   "verify" for each window. Every event of the request is also there as an instant.
// - an arrow (flow event) from each replay pass to each of its windows.
// Its times are microseconds from the first event, rounded to 125 ns. Slices of a lane follow each other or lie one
// inside the other. If a request has not finished when the trace is closed, its slices have no end; viewers draw them
// to the end of the trace.
typedef struct llm42_trace llm42_trace;
LLM42_API llm42_result llm42_trace_open(llm42_trace **trace, const char *path, llm42_error *error);
LLM42_API void llm42_trace_event(llm42_trace *trace, const llm42_event *event);
// Finishes the file, which has its name from now on (see llm42_file.h). It fails if this or any earlier write failed.
LLM42_API llm42_result llm42_trace_close(llm42_trace *trace, llm42_error *error);

#endif  // LLM42_TRACE_H

#if defined(LLM42_TRACE_IMPLEMENTATION) && !defined(LLM42_TRACE_IMPLEMENTED)
#define LLM42_TRACE_IMPLEMENTED
#include "llm42_file.h"

// Times count from the first event. In the Chrome trace they are whole ticks of an eighth of a microsecond, each
// rounded on its own, and a duration is a difference of two of them. So a slice ends exactly where the next one begins.
// A double holds a tick exactly, in microseconds and in nanoseconds, so no viewer rounds it again.
enum { LLM42__TRACE_PASSES = 1, LLM42__TRACE_REQUESTS };

struct llm42_trace {
    FILE *file;
    bool json, first;
    double begin;      // time of the first event, seconds
    int lane;          // of the last pass: its schedule
    int64_t from, to;  // its begin and end, ticks
    int64_t flows;     // so far
    char path[256];
};

// Names a lane. Viewers show the lanes of a group in the order of their numbers.
static void llm42__trace_lane(llm42_trace *t, int group, int64_t lane, const char *name) {
    fprintf(
        t->file,
        ",\n{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": %d, \"tid\": %lld, \"args\": {\"name\": \"%s\"}}"
        ",\n{\"ph\": \"M\", \"name\": \"thread_sort_index\", \"pid\": %d, \"tid\": %lld, \"args\": {\"sort_index\": "
        "%lld}}",
        group, (long long)lane, name, group, (long long)lane, (long long)lane);
}

static void llm42__trace_open_json(llm42_trace *t) {
    fprintf(t->file,
            "{\"displayTimeUnit\": \"ms\", \"otherData\": {\"version\": \"llm42 " LLM42_VERSION
            "\"}, \"traceEvents\": [\n"
            "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": %d, \"args\": {\"name\": \"passes\"}},\n"
            "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": %d, \"args\": {\"name\": \"requests\"}}",
            LLM42__TRACE_PASSES, LLM42__TRACE_REQUESTS);
    for (int s = LLM42_SCHEDULE_FAST; s <= LLM42_SCHEDULE_INVARIANT; s++)
        llm42__trace_lane(t, LLM42__TRACE_PASSES, s, llm42_schedule_name((llm42_schedule)s));
}

llm42_result llm42_trace_open(llm42_trace **trace, const char *path, llm42_error *error) {
    *trace = NULL;
    if (!path) return llm42_fail(error, LLM42_INVALID, "llm42_trace_open: path: required");
    llm42_trace *t = llm42__alloc(1, sizeof *t);
    if (!t) return llm42_fail(error, LLM42_MEMORY, "%s: out of memory", path);
    const size_t n = strlen(path);
    *t = (llm42_trace){.json = n > 5 && strcmp(path + n - 5, ".json") == 0, .first = true};
    snprintf(t->path, sizeof t->path, "%s", path);
    t->file = llm42_file_create(path);
    if (!t->file) {
        llm42__free(t);
        return llm42_fail(error, LLM42_IO, "%s: cannot write: %s", path, strerror(errno));
    }
    if (t->json) llm42__trace_open_json(t);
    else
        fputs("# llm42 " LLM42_VERSION " trace; times in seconds from the first event\n"
              "time_s\tevent\trequest\tn\tposition\ttokens\tschedule\tshape\twindows\tbegin_s\t"
              "fast_s\tinvariant_s\n",
              t->file);
    *trace = t;
    return LLM42_OK;
}

// A time in whole parts of a second, from the first event. A pass that began before it counts from it.
static int64_t llm42__trace_time(const llm42_trace *t, double seconds, double parts) {
    double n = (seconds - t->begin) * parts + 0.5;
    return n > 0 ? (int64_t)n : 0;
}

// A time as text, with a decimal point in every locale.
typedef struct llm42__decimal {
    char text[64];
} llm42__decimal;

static llm42__decimal llm42__trace_seconds(const llm42_trace *t, double seconds) {
    llm42__decimal d;
    int64_t n = llm42__trace_time(t, seconds, 1e9);
    snprintf(d.text, sizeof d.text, "%lld.%09lld", (long long)(n / 1000000000), (long long)(n % 1000000000));
    return d;
}

static int64_t llm42__trace_ticks(const llm42_trace *t, double seconds) { return llm42__trace_time(t, seconds, 8e6); }

// Ticks as microseconds.
static llm42__decimal llm42__trace_us(int64_t ticks) {
    llm42__decimal d;
    snprintf(d.text, sizeof d.text, "%lld.%03d", (long long)(ticks / 8), (int)(ticks % 8) * 125);
    return d;
}

// Writes an event up to its further fields and its closing brace, which the caller adds. name NULL: none.
static void llm42__trace_put(llm42_trace *t, const char *kind, const char *name, int group, int64_t lane, int64_t at) {
    fprintf(t->file, ",\n{\"ph\": \"%s\", \"pid\": %d, \"tid\": %lld, \"ts\": %s", kind, group, (long long)lane,
            llm42__trace_us(at).text);
    if (name) fprintf(t->file, ", \"name\": \"%s\"", name);
}

static void llm42__trace_pass(llm42_trace *t, const llm42_event *ev) {
    char name[48];
    t->from = llm42__trace_ticks(t, ev->begin);
    t->to = llm42__trace_ticks(t, ev->time);
    t->lane = (int)ev->schedule;
    snprintf(name, sizeof name, "%s %d", llm42_schedule_name(ev->schedule), ev->n);
    llm42__trace_put(t, "X", name, LLM42__TRACE_PASSES, t->lane, t->from);
    fprintf(t->file, ", \"dur\": %s, \"args\": {\"rows\": %d, \"shape\": %d, \"windows\": %d}}",
            llm42__trace_us(t->to - t->from).text, ev->n, ev->shape, ev->windows);
}

// A window of the last pass: a slice of its request, and the arrow that leads there.
static void llm42__trace_window(llm42_trace *t, const llm42_event *ev) {
    llm42__trace_put(t, "X", "verify", LLM42__TRACE_REQUESTS, ev->request, t->from);
    fprintf(t->file, ", \"dur\": %s, \"args\": {\"agreed\": %d}}", llm42__trace_us(t->to - t->from).text, ev->n);
    t->flows++;
    llm42__trace_put(t, "s", "window", LLM42__TRACE_PASSES, t->lane, t->from);
    fprintf(t->file, ", \"cat\": \"verify\", \"id\": %lld}", (long long)t->flows);
    llm42__trace_put(t, "f", "window", LLM42__TRACE_REQUESTS, ev->request, t->from);
    fprintf(t->file, ", \"cat\": \"verify\", \"id\": %lld, \"bp\": \"e\"}", (long long)t->flows);
}

static void llm42__trace_begin(llm42_trace *t, const char *name, int64_t request, int64_t at) {
    llm42__trace_put(t, "B", name, LLM42__TRACE_REQUESTS, request, at);
    fputc('}', t->file);
}

static void llm42__trace_end(llm42_trace *t, int64_t request, int64_t at) {
    llm42__trace_put(t, "E", NULL, LLM42__TRACE_REQUESTS, request, at);
    fputc('}', t->file);
}

// A request is always in one of the slices waiting, prefill and decode, so no state of it need be kept here.
static void llm42__trace_json(llm42_trace *t, const llm42_event *ev) {
    char name[64];
    int64_t id = ev->request, at = llm42__trace_ticks(t, ev->time);
    if (ev->type == LLM42_EVENT_SUBMITTED) {
        snprintf(name, sizeof name, "request %lld%s", (long long)id, ev->info->deterministic ? " (deterministic)" : "");
        llm42__trace_lane(t, LLM42__TRACE_REQUESTS, id, name);
        llm42__trace_begin(t, name, id, at);
        llm42__trace_begin(t, "waiting", id, at);
    }
    if (ev->type == LLM42_EVENT_VERIFIED) llm42__trace_window(t, ev);
    snprintf(name, sizeof name, "%s %d", llm42_event_name(ev->type), ev->n);
    llm42__trace_put(t, "i", name, LLM42__TRACE_REQUESTS, id, at);
    fprintf(t->file, ", \"s\": \"t\", \"args\": {\"n\": %d, \"position\": %d}}", ev->n, ev->position);
    const char *next = ev->type == LLM42_EVENT_ADMITTED    ? "prefill"
                       : ev->type == LLM42_EVENT_PREFILLED ? "decode"
                       : ev->type == LLM42_EVENT_PREEMPTED ? "waiting"
                                                           : NULL;
    if (next || ev->type == LLM42_EVENT_FINISHED) llm42__trace_end(t, id, at);
    if (next) llm42__trace_begin(t, next, id, at);
    if (ev->type == LLM42_EVENT_FINISHED) llm42__trace_end(t, id, at);
}

void llm42_trace_event(llm42_trace *t, const llm42_event *ev) {
    bool pass = ev->type == LLM42_EVENT_PASS;
    if (t->first) t->begin = pass ? ev->begin : ev->time;
    if (t->first) llm42_file_keep(t->file, t->json ? "\n], \"unfinished\": true}\n" : "# unfinished\n");
    t->first = false;
    if (t->json) {
        if (pass) llm42__trace_pass(t, ev);
        else llm42__trace_json(t, ev);
        return;
    }
    fprintf(t->file, "%s\t%s\t%lld\t%d\t%d\t", llm42__trace_seconds(t, ev->time).text, llm42_event_name(ev->type),
            (long long)ev->request, ev->n, ev->position);
    for (int i = 0; ev->tokens && i < ev->n; i++) fprintf(t->file, "%s%d", i ? "," : "", ev->tokens[i]);
    if (pass)
        fprintf(t->file, "\t%s\t%d\t%d\t%s\t%.6g\t%.6g\n", llm42_schedule_name(ev->schedule), ev->shape, ev->windows,
                llm42__trace_seconds(t, ev->begin).text, ev->fast_seconds, ev->invariant_seconds);
    else fputs("\t\t\t\t\t\t\n", t->file);
}

llm42_result llm42_trace_close(llm42_trace *t, llm42_error *error) {
    if (!t) return LLM42_OK;
    fputs(t->json ? "\n]}\n" : "# end\n", t->file);
    llm42_result result = LLM42_OK;
    if (!llm42_file_finish(t->file))
        result = llm42_fail(error, LLM42_IO, "%s: writing failed: the disk may be full", t->path);
    llm42__free(t);
    return result;
}

#endif  // LLM42_TRACE_IMPLEMENTATION
