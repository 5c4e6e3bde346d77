// llm42_metrics.h: what papers report about a run, collected from its events.
//
//     #define LLM42_METRICS_IMPLEMENTATION   // in one C file, before its first include of llm42.h
//     #include "llm42_metrics.h"             // it includes llm42.h
#if defined(LLM42_METRICS_IMPLEMENTATION) && !defined(LLM42_BASE)
#define LLM42_BASE  // memory of llm42.h
#endif
#include "llm42.h"

#ifndef LLM42_METRICS_H
#define LLM42_METRICS_H

// Values that grow in number as events come.
typedef struct llm42_series {
    double *value;  // [count]
    int64_t count, room;
} llm42_series;

// Recompute % = 100 x recomputed / returned tokens. The rollback rate of a request = its rollbacks / its verifications.
// TTFT (time to first token) runs from arrival to the first release of tokens, ITL (inter-token latency) from one
// release to the next, end-to-end latency from arrival to the last token. Zero it to begin.
typedef struct llm42_metrics {
    int64_t requests, input_tokens, output_tokens, recomputed, verifications, rollbacks;
    double begin, end;           // first arrival, last release; seconds
    llm42_series ttft, latency;  // seconds; one value for each request
    llm42_series itl;            // seconds; one value for each release of tokens except a request's first
    llm42_series rollback_rate;  // one value for each deterministic request that was verified
} llm42_metrics;

// Errors: MEMORY; that event is then counted only in part.
LLM42_API llm42_result llm42_metrics_event(llm42_metrics *metrics, const llm42_event *event);
LLM42_API void llm42_metrics_free(llm42_metrics *metrics);
// The smallest value of a series with at least p percent of the values at or below it (nearest rank); NAN if the series
// is empty. Sorts the series.
LLM42_API double llm42_metrics_percentile(llm42_series *series, double p);

// *first: how many tokens are equal before the first difference from the reference. *second: how many are equal between
// the first difference and the second.
LLM42_API void llm42_consistent_spans(const int32_t *reference, int reference_count, const int32_t *tokens, int count,
                                      int *first, int *second);
#endif  // LLM42_METRICS_H

#if defined(LLM42_METRICS_IMPLEMENTATION) && !defined(LLM42_METRICS_IMPLEMENTED)
#define LLM42_METRICS_IMPLEMENTED

static bool llm42__series_add(llm42_series *s, double value) {
    if (s->count == s->room) {
        const int64_t room = LLM42__MAX(16, 2 * s->room);
        double *more = (double *)llm42__alloc((size_t)room, sizeof *more);
        if (!more) return false;
        if (s->count) memcpy(more, s->value, (size_t)s->count * sizeof *more);
        llm42__free(s->value);
        s->value = more, s->room = room;
    }
    s->value[s->count++] = value;
    return true;
}

// Every COMMITTED event has tokens. A release is counted at once; a request is counted when it has finished.
llm42_result llm42_metrics_event(llm42_metrics *m, const llm42_event *ev) {
    const llm42_request *r = ev->info;
    bool kept = true;
    if (ev->type == LLM42_EVENT_COMMITTED) {
        assert(ev->n > 0);
        if (r->first_token < 0) kept = llm42__series_add(&m->ttft, ev->time - r->arrival);
        else kept = llm42__series_add(&m->itl, ev->time - r->last_token);
        m->end = ev->time > m->end ? ev->time : m->end;
        m->output_tokens += ev->n;
    } else if (ev->type == LLM42_EVENT_FINISHED) {
        m->begin = m->requests == 0 || r->arrival < m->begin ? r->arrival : m->begin;
        m->requests++;
        m->input_tokens += r->prompt_count;
        m->recomputed += r->recomputed;
        m->verifications += r->verifications;
        m->rollbacks += r->rollbacks;
        if (r->committed) kept = llm42__series_add(&m->latency, r->last_token - r->arrival);
        if (r->verifications)
            kept &= llm42__series_add(&m->rollback_rate, (double)r->rollbacks / (double)r->verifications);
    }
    return kept ? LLM42_OK : LLM42_MEMORY;
}

void llm42_metrics_free(llm42_metrics *m) {
    llm42__free(m->ttft.value);
    llm42__free(m->itl.value);
    llm42__free(m->latency.value);
    llm42__free(m->rollback_rate.value);
    memset(m, 0, sizeof *m);
}

static int llm42__double_order(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double llm42_metrics_percentile(llm42_series *s, double p) {
    if (!s->count) return (double)NAN;
    qsort(s->value, (size_t)s->count, sizeof *s->value, llm42__double_order);
    const int64_t rank = p > 0 ? (int64_t)ceil(p * (double)s->count / 100.0) : 1;
    return s->value[LLM42__MAX(1, LLM42__MIN(rank, s->count)) - 1];
}

void llm42_consistent_spans(const int32_t *reference, int reference_count, const int32_t *tokens, int count, int *first,
                            int *second) {
    int n = LLM42__MIN(reference_count, count), i = 0;
    while (i < n && reference[i] == tokens[i]) i++;
    *first = i++;
    const int start = i;
    while (i < n && reference[i] == tokens[i]) i++;
    *second = i > start ? i - start : 0;
}

#endif  // LLM42_METRICS_IMPLEMENTATION
