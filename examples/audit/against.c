// against.c: the answers of a transcript beside what their client asked for (see against.h).
#define _POSIX_C_SOURCE 200809L
#include "against.h"

#include <math.h>

enum { WHY = 320 };

static bool is_prompt(const request_line *l, const llm42_answer *q) {
    return arrlen(l->ids) == q->prompt_count && !memcmp(l->ids, q->prompt, (size_t)q->prompt_count * sizeof *q->prompt);
}

// A share of 1 is all, as 0 is.
static double share_of(float x) { return x < 1 ? (double)x : 0; }

// The first parameter that decides which token is drawn and is not the one that was asked for. Greedy answers have one.
static bool samples_otherwise(const request_line *l, const llm42_answer *q, char why[WHY]) {
    const llm42_sampling *asked = &l->ask.sampling, *is = &q->sampling;
    const bool drawn = asked->temperature > 0 || is->temperature > 0;
    const struct {
        const char *name;
        double asked, is;
    } all[] = {{"temperature", (double)asked->temperature, (double)is->temperature},
               {"top_k", asked->top_k, is->top_k},
               {"top_p", share_of(asked->top_p), share_of(is->top_p)},
               {"min_p", (double)asked->min_p, (double)is->min_p}};
    for (size_t i = 0; i < sizeof all / sizeof *all && drawn; i++) {
        if (all[i].asked == all[i].is) continue;
        const int digits = fabs(all[i].is - all[i].asked) > 1e-6 ? 6 : 9;  // of a float; 9 tell any two apart
        snprintf(why, WHY, "has %s %.*g, and %.*g was asked for", all[i].name, digits, all[i].is, digits, all[i].asked);
        return true;
    }
    const uint64_t seed = asked->seed ? asked->seed : 42;
    if (drawn && seed != is->seed)
        snprintf(why, WHY, "has seed %" PRIu64 ", and %" PRIu64 " was asked for", is->seed, seed);
    return drawn && seed != is->seed;
}

static const char *ids_text(char text[96], const int32_t *ids, int count) {
    size_t used = (size_t)snprintf(text, 96, count ? "" : "none");
    for (int i = 0; i < count && used < 96; i++)
        used += (size_t)snprintf(text + used, 96 - used, "%s%d", i ? "," : "", (int)ids[i]);
    return text;
}

static bool stops_otherwise(const request_file *f, const request_line *l, const llm42_answer *q, char why[WHY]) {
    const llm42_config *c = &f->model->config;
    const int32_t *stop = l->ask.stop_count ? l->ask.stop : c->stop;
    const int count = l->ask.ignore_stop ? 0 : l->ask.stop_count ? l->ask.stop_count : c->stop_count;
    char is[96], asked[96];
    if (count == q->stop_count && !memcmp(stop, q->stop, (size_t)count * sizeof *stop)) return false;
    snprintf(why, WHY, "ends at the stop tokens %s, and was asked to end at %s", ids_text(is, q->stop, q->stop_count),
             ids_text(asked, stop, count));
    return true;
}

// A request is cancelled when one of its stop strings has come. Without one, somebody has cut the answer.
static bool is_cut(const request_file *f, const request_line *l, const llm42_answer *q, char why[WHY]) {
    answer a = l->answer;
    if (q->finish != LLM42_FINISH_CANCELLED) return false;
    a.stream = (tok_stream){.t = f->t, .skip_special = true};
    if (f->t) tok_stream_follow(&a.stream, q->prompt, q->prompt_count);
    for (int i = 0; i < q->count && !a.stopped; i++) answer_take(&a, q->tokens[i]);
    const bool stopped = a.stopped;
    answer_free(&a);
    if (!stopped)
        snprintf(why, WHY, "was cancelled after %d of %d tokens%s", q->count, q->max_new_tokens,
                 a.stops ? ", and none of the stop strings is in its text" : "");
    return !stopped;
}

// Is the answer another one than the request asks for? The prompt is the same.
static bool is_other(const request_file *f, const request_line *l, const llm42_answer *q, char why[WHY]) {
    const int room = f->model->config.context - q->prompt_count;
    const int limit = l->ask.max_new_tokens ? l->ask.max_new_tokens : room < 128 ? room : 128;
    if (samples_otherwise(l, q, why)) return true;
    if (q->max_new_tokens != limit)
        snprintf(why, WHY, "has max_new_tokens %d, and %d%s asked for", q->max_new_tokens, limit,
                 l->ask.max_new_tokens ? " were" : ", the default, were");
    else if (l->ask.deterministic && !q->deterministic) snprintf(why, WHY, "is not marked deterministic, as was asked");
    else return stops_otherwise(f, l, q, why) || is_cut(f, l, q, why);
    return true;
}

// How many of what decides an answer are as they were asked for.
static int likeness(const request_line *l, const llm42_answer *q) {
    const uint64_t seed = l->ask.sampling.seed ? l->ask.sampling.seed : 42;
    return (l->ask.sampling.temperature == q->sampling.temperature) + (seed == q->sampling.seed) +
           (l->ask.max_new_tokens == q->max_new_tokens);
}

// The first answer that nobody has taken yet and that is to this request, or, if `any`, the one to its prompt that is
// most like what was asked for; -1: none.
static int find(const request_file *f, const request_line *l, const llm42_transcript *t, const bool *taken, bool any) {
    char why[WHY];
    int best = -1;
    for (int i = 0; i < t->count; i++) {
        const llm42_answer *q = &t->answer[i];
        if (taken[i] || !is_prompt(l, q)) continue;
        if (!any && !is_other(f, l, q, why)) return i;
        if (any && (best < 0 || likeness(l, q) > likeness(l, &t->answer[best]))) best = i;
    }
    return best;
}

int against_compare(const request_file *f, const llm42_transcript *t, int *more) {
    const int lines = (int)arrlen(f->line);
    bool *taken = calloc((size_t)t->count + 1, sizeof *taken), *found = calloc((size_t)lines + 1, sizeof *found);
    int others = 0;
    if (!taken || !found) args_fail(2, "%s: out of memory", f->path);
    *more = t->count;
    // Those that fit come first, so that no answer is taken from the request that it is to.
    for (int any = 0; any < 2; any++)
        for (int i = 0; i < lines; i++) {
            const request_line *l = &f->line[i];
            char why[WHY];
            const int at = found[i] ? -1 : find(f, l, t, taken, any);
            if (at >= 0) found[i] = taken[at] = true, --*more;
            if (at >= 0 && any && is_other(f, l, &t->answer[at], why))
                printf("%s:%d: request %lld %s\n", f->path, l->number, (long long)t->answer[at].request, why);
            else if (any && !found[i])
                printf("%s:%d: no answer to this prompt is left in the transcript\n", f->path, l->number);
            others += any && (at >= 0 || !found[i]);
        }
    free(taken);
    free(found);
    return others;
}
