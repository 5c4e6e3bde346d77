// collect.c: what is reported of one run of a workload (see collect.h).
#define _POSIX_C_SOURCE 200809L
#include "collect.h"

// Bucket of a time: its exponent and the first 7 bits of its fraction, from 2^-40 s (1 ps) to 2^24 s (half a year).
enum { BUCKET_BITS = 7, BUCKET_LOW = -40, BUCKETS = 64 << BUCKET_BITS };

void stats_add(llm42_stats *to, const llm42_stats *s, int sign) {
    to->returned_tokens += sign * s->returned_tokens, to->deterministic_tokens += sign * s->deterministic_tokens;
    to->candidates += sign * s->candidates, to->verifications += sign * s->verifications;
    to->rollbacks += sign * s->rollbacks, to->recomputed += sign * s->recomputed;
    to->drafted += sign * s->drafted, to->accepted += sign * s->accepted, to->preemptions += sign * s->preemptions;
    to->replay_passes += sign * s->replay_passes, to->replay_busy += sign * s->replay_busy;
    for (int i = 0; i < LLM42_SCHEDULE_COUNT; i++)
        to->passes[i] += sign * s->passes[i], to->busy[i] += sign * s->busy[i];
}

bool collect_open(collector *c, int64_t requests) {
    *c = (collector){.requests = requests, .begin = INFINITY};
    c->served = calloc((size_t)requests, sizeof *c->served);
    c->itl[0] = calloc(2 * BUCKETS, sizeof *c->itl[0]);
    c->itl[1] = c->itl[0] ? c->itl[0] + BUCKETS : NULL;
    return c->served && c->itl[0];
}

void collect_close(collector *c) {
    free(c->served);
    free(c->itl[0]);
}

// A double's top bits are the logarithm that is wanted: no call of log for each token.
static int collect_bucket(double seconds) {
    uint64_t bits;
    memcpy(&bits, &seconds, sizeof bits);
    int64_t bucket = (int64_t)(bits >> (52 - BUCKET_BITS)) - ((int64_t)(1023 + BUCKET_LOW) << BUCKET_BITS);
    return seconds <= 0 || bucket < 0 ? 0 : bucket >= BUCKETS ? BUCKETS - 1 : (int)bucket;
}

// The middle of a bucket.
static double collect_bucket_time(int bucket) {
    int fraction = bucket & ((1 << BUCKET_BITS) - 1);
    return ldexp(1 + (fraction + 0.5) / (1 << BUCKET_BITS), (bucket >> BUCKET_BITS) + BUCKET_LOW);
}

static void collect_runs(collect_running *running, double time, int change) {
    running->area += running->count * (time - running->since);
    running->since = time;
    running->count += change;
}

static void collect_finished(collector *c, int64_t index, const llm42_event *event) {
    const llm42_request *r = event->info;
    if (index >= c->requests) return;
    c->served[index] = (served){.arrival = r->arrival,
                                .ttft = r->first_token - r->arrival + c->outside_s,
                                .e2e = r->last_token - r->arrival + c->outside_s,
                                .input = r->prompt_count,
                                .output = r->committed,
                                .verifications = (int32_t)r->verifications,
                                .rollbacks = (int32_t)r->rollbacks,
                                .recomputed = (int32_t)r->recomputed,
                                .deterministic = r->deterministic};
    c->input_tokens += r->prompt_count;
    c->begin = r->arrival < c->begin ? r->arrival : c->begin;
    c->end = r->last_token > c->end ? r->last_token : c->end;
    c->finished++;
}

void collect_request(collector *c, collect_running *running, int64_t index, const llm42_event *event) {
    switch (event->type) {
    case LLM42_EVENT_COMMITTED:
        if (event->info->first_token >= 0 && index >= c->leave_out)
            c->itl[event->info->deterministic][collect_bucket(event->time - event->info->last_token)]++;
        break;
    case LLM42_EVENT_ADMITTED: collect_runs(running, event->time, 1); break;
    case LLM42_EVENT_PREEMPTED: collect_runs(running, event->time, -1); break;
    case LLM42_EVENT_FINISHED:
        collect_runs(running, event->time, -1);
        collect_finished(c, index, event);
        break;
    default: break;
    }
}

void collect_event(void *user, const llm42_event *event) {
    collector *c = user;
    if (event->request && event->request <= c->skip) return;
    collect_request(c, &c->running, event->request - c->skip - 1, event);
    if (c->trace) llm42_trace_event(c->trace, event);
}

// >>figures ------------------------------------------------------------------------------------------------------
// percentile over the buckets of one or both classes.
static double collect_itl(const collector *c, bool deterministic, bool other, double p) {
    int64_t total = 0, seen = 0;
    for (int i = 0; i < BUCKETS; i++) total += (deterministic ? c->itl[1][i] : 0) + (other ? c->itl[0][i] : 0);
    int64_t rank = (int64_t)ceil(p * (double)total / 100.0);
    for (int i = 0; i < BUCKETS && total; i++) {
        seen += (deterministic ? c->itl[1][i] : 0) + (other ? c->itl[0][i] : 0);
        if (seen >= rank) return collect_bucket_time(i);
    }
    return (double)NAN;
}

// Sorts the time to first token (which < 0) or the end-to-end time of all requests (2) or a class (0, 1) into times,
// without the first ones, if percentiles leave these out.
static int64_t collect_sorted(const collector *c, int which, double *times) {
    int64_t count = 0;
    for (int64_t i = c->leave_out; i < c->requests; i++) {
        const served *s = &c->served[i];
        if (which < 0 || which == 2 || which == s->deterministic) times[count++] = which < 0 ? s->ttft : s->e2e;
    }
    sort_numbers(times, count);
    return count;
}

static double ratio_of(double part, double whole) { return whole > 0 ? part / whole : (double)NAN; }

// Rates of requests, and whether the run is overloaded, so that its latencies say how long the queue has grown.
//
// In the second half of the time of arrivals a steady load is steady. A run is overloaded if its queue grew then by a
// tenth of what arrived, and by six standard deviations of that number, and if requests that arrived then took longer
// than those before, again by more than chance explains. (Six, because the queue of an engine that is nearly overloaded
// grows for a long time before it is steady, and moves by more than arrivals do.) If the queue grew, but this is not
// shown, as in each run that ends before the load is steady, nothing can be told (NAN), and also where all requests
// arrive at once.
static void collect_rates(const collector *c, metrics *m) {
    double last = c->begin, n[2] = {0}, sum[2] = {0}, squares[2] = {0}, ended = 0;  // of early and late requests
    for (int64_t i = 0; i < c->requests; i++) last = fmax(last, c->served[i].arrival);
    const double span = last - c->begin, middle = c->begin + span / 2;
    for (int64_t i = 0; i < c->requests; i++) {
        const served *s = &c->served[i];
        const double took = s->e2e - c->outside_s, end = s->arrival + took;
        const int late = s->arrival > middle;
        n[late]++, sum[late] += took, squares[late] += took * took;
        ended += end > middle && end <= last;
    }
    double longer = sum[1] / n[1] - sum[0] / n[0], variance = 0;  // variance: of `longer`
    for (int k = 0; k < 2; k++) variance += (squares[k] / n[k] - sum[k] * sum[k] / (n[k] * n[k])) / n[k];
    const double growth = n[1] - ended, chance = sqrt(n[1]);
    const bool grew = growth > fmax(0.1 * n[1], 3 * chance);
    const bool much = grew && growth > 6 * chance && longer > 0 && longer * longer > 9 * variance;
    m->offered_per_s = ratio_of((double)c->requests - 1, span);
    m->served_per_s = ratio_of((double)c->requests, m->duration_s);
    m->overloaded = span > 0 && (much || !grew) ? much : (double)NAN;
}

bool collect_figures(collector *c, const llm42_stats *s, metrics *m) {
    double *times = malloc((size_t)c->requests * sizeof *times), busy = 0;
    if (!times) return false;
    int64_t n = collect_sorted(c, -1, times), marked = 0;
    for (int64_t i = 0; i < c->requests; i++) marked += c->served[i].deterministic;
    m->ttft_p50_s = percentile(times, n, 50), m->ttft_p75_s = percentile(times, n, 75);
    m->ttft_p90_s = percentile(times, n, 90), m->ttft_p99_s = percentile(times, n, 99);
    n = collect_sorted(c, 2, times);
    m->e2e_p50_s = percentile(times, n, 50), m->e2e_p75_s = percentile(times, n, 75);
    m->e2e_p90_s = percentile(times, n, 90), m->e2e_p99_s = percentile(times, n, 99);
    n = collect_sorted(c, 1, times);
    m->det_e2e_p50_s = percentile(times, n, 50), m->det_e2e_p99_s = percentile(times, n, 99);
    n = collect_sorted(c, 0, times);
    m->nondet_e2e_p50_s = percentile(times, n, 50), m->nondet_e2e_p99_s = percentile(times, n, 99);
    free(times);
    m->itl_p50_s = collect_itl(c, true, true, 50), m->itl_p99_s = collect_itl(c, true, true, 99);
    m->nondet_itl_p99_s = collect_itl(c, false, true, 99);
    for (int i = 0; i < LLM42_SCHEDULE_COUNT; i++) busy += s->busy[i];
    m->duration_s = c->end + c->outside_s - c->begin;  // the last token has a way to go to who asked for it, too
    m->output_tok_per_s = ratio_of((double)s->returned_tokens, m->duration_s);
    m->total_tok_per_s = ratio_of((double)(s->returned_tokens + c->input_tokens), m->duration_s);
    m->returned_tokens = (double)s->returned_tokens, m->det_tokens = (double)s->deterministic_tokens;
    m->candidates = (double)s->candidates, m->verifications = (double)s->verifications;
    m->rollbacks = (double)s->rollbacks, m->recomputed_tokens = (double)s->recomputed;
    m->recompute_pct = 100 * ratio_of((double)s->recomputed, (double)s->returned_tokens);
    m->rollbacks_per_request = ratio_of((double)s->rollbacks, (double)marked);
    m->preemptions = (double)s->preemptions;
    m->drafted = (double)s->drafted, m->accepted = (double)s->accepted;
    m->passes_fast = (double)s->passes[LLM42_SCHEDULE_FAST], m->passes_fixed = (double)s->passes[LLM42_SCHEDULE_FIXED];
    m->passes_invariant = (double)s->passes[LLM42_SCHEDULE_INVARIANT], m->passes_replay = (double)s->replay_passes;
    m->replay_busy_pct = 100 * ratio_of(s->replay_busy, busy);
    m->running_mean = ratio_of(c->running.area, m->duration_s);
    collect_rates(c, m);
    return true;
}

void metrics_print(FILE *file, const metrics *m) {
#define X(name, format) isnan(m->name) ? fprintf(file, "\tnan") : fprintf(file, "\t" format, m->name);
    METRICS(X)
#undef X
}
