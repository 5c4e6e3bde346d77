// Drafts change no token and no log-probability bit, whoever proposes them, and what is counted of them is right. Then
// the three drafters of llm42_draft.h, each against something simpler, and when they propose how much.
#define TEST_ALL
#include "test.h"
#include "make_model.h"

#define LLM42_CALIBRATION_IMPLEMENTATION
#define LLM42_DRAFT_IMPLEMENTATION
#include "examples/util/llm42_calibration.h"
#include "examples/util/llm42_draft.h"

#include "examples/planners.h"
#include "examples/lib/scoring.h"

enum {
    CONFIGS = 60,
    REQUESTS = TEST_SLOW ? 40 : 200,
    LONGEST = 24,  // prompt tokens
    NEW = 24,      // new tokens, at most
    CONTEXT = 64,
    VOCAB = 64,
};
#include "random_drafter.h"

static llm42_error error;
static llm42_model *model, *other, *shape;  // a tiny model, a smaller one with its vocabulary, and a shape to simulate
static int32_t prompts[REQUESTS][LONGEST];

// >>requests -----------------------------------------------------------------------------------------------------
// Half of the prompts repeat themselves, and many begin alike, for the prefix cache.
static void make_prompts(void) {
    for (int i = 0; i < REQUESTS; i++)
        for (int t = 0; t < LONGEST; t++)
            prompts[i][t] = i % 2 ? (t % (2 + i % 5) + i) % VOCAB : (t < 8 ? 7 * t + 3 : 11 * t + 5 * i) % VOCAB;
}

static llm42_request_desc request(int i) {
    static const int32_t stop[] = {5, 17, 40};
    llm42_request_desc r = TEST_LIST(.prompt = prompts[i], .prompt_count = 1 + i * 7 % LONGEST,
                                     .max_new_tokens = i % 3 ? NEW : 1 + i % NEW, .deterministic = i % 4 != 3,
                                     .stop = stop, .stop_count = 3, .ignore_stop = i % 3 == 1);
    if (i % 5 > 2) r.sampling = (llm42_sampling){.temperature = i % 2 ? 0.7f : 1.2f, .top_k = 9, .seed = 1 + i};
    return r;
}

// >>events -------------------------------------------------------------------------------------------------------
// What the events told about a request.
typedef struct told {
    int committed, pending;               // pending: drafts that were proposed and not judged so far
    int64_t drafted, most, accepted;      // proposed; judged, at most; accepted
    int64_t rollbacks, recomputed;        // candidates alone
    int32_t candidate[NEW], tokens[NEW];  // by position
    int accepted_at, accepted_count;      // of the newest event ACCEPTED
    int32_t accepted_tokens[NEW];
} told;

typedef struct observer {
    told request[REQUESTS];
    int draft_limit;
    int64_t wrong;  // events that say what cannot be
    int line;       // the check that found the first of them
} observer;

static void wrong(observer *o, bool is, int line) {
    if (is && !o->wrong++) o->line = line;
}
#define WRONG(o, condition) wrong(o, condition, __LINE__)

static void observe_tokens(observer *o, told *t, const llm42_event *e) {
    const size_t bytes = sizeof *e->tokens * (size_t)e->n;
    switch (e->type) {
    case LLM42_EVENT_CANDIDATE: t->candidate[e->position] = e->tokens[0]; break;
    case LLM42_EVENT_ROLLED_BACK:  // nothing but candidates, each of which was told
        t->rollbacks++, t->recomputed += e->n - 1;
        WRONG(o, memcmp(e->tokens, t->candidate + e->position, bytes) != 0);
        break;
    case LLM42_EVENT_COMMITTED:
        WRONG(o, e->position != t->committed);
        memcpy(t->tokens + e->position, e->tokens, bytes);
        t->committed += e->n;
        if (t->accepted_count) {  // a pass's own token follows what it accepts, if it had a row left
            const int own = t->committed - t->accepted_at - t->accepted_count;
            WRONG(o, own < 0 || own > 1);
            WRONG(o, memcmp(t->tokens + t->accepted_at, t->accepted_tokens,
                            sizeof *t->tokens * (size_t)t->accepted_count) != 0);
        }
        t->accepted_count = 0;
        break;
    case LLM42_EVENT_DRAFTED:
        WRONG(o, e->n < 1 || e->n > o->draft_limit || e->n != e->info->drafts);
        WRONG(o, e->position != e->info->committed + e->info->candidates);
        WRONG(o, e->position + e->n >= e->info->max_new_tokens);
        WRONG(o, memcmp(e->tokens, e->info->tokens + e->position, bytes) != 0);
        for (int i = 0; i < e->n; i++)
            for (int k = 0; k < e->info->stop_count; k++) WRONG(o, e->tokens[i] == e->info->stop[k]);
        t->drafted += e->n, t->pending = e->n;
        break;
    case LLM42_EVENT_ACCEPTED:
        WRONG(o, e->n > t->pending || e->info->drafts);
        t->accepted += e->n, t->most += t->pending, t->pending = 0;
        t->accepted_at = e->position, t->accepted_count = e->n;
        memcpy(t->accepted_tokens, e->tokens, bytes);
        break;
    default: break;
    }
}

static void observe(void *user, const llm42_event *e) {
    observer *o = user;
    if (e->type == LLM42_EVENT_PASS) return;
    told *t = &o->request[e->request - 1];
    observe_tokens(o, t, e);
    if (e->type != LLM42_EVENT_FINISHED) return;
    WRONG(o, e->info->accepted != t->accepted || e->info->drafted > t->most || e->info->drafted < t->accepted);
    WRONG(o, e->info->rollbacks != t->rollbacks || e->info->recomputed != t->recomputed);
    WRONG(o, e->info->drafts || e->info->candidates);
}

// Serves all requests and compares the counts with the events.
static llm42_stats serve(llm42_engine_desc desc, answer *out) {
    static observer o;
    o = (observer){.draft_limit = desc.draft_limit ? desc.draft_limit : 7};
    desc.on_event = observe, desc.event_user = &o;
    llm42_engine *engine = test_open(&desc);
    for (int i = 0; i < REQUESTS; i++) test_submit(engine, request(i));
    CHECK_MSG(!llm42_engine_run(engine, &error), "%s", error.text);
    llm42_stats s = llm42_engine_stats(engine);
    for (int i = 0; i < REQUESTS; i++) {
        const llm42_request *r = llm42_engine_request(engine, i + 1);
        const told *t = &o.request[i];
        out[i] = take(engine, r->id);
        WRONG(&o,
              t->committed != r->committed || memcmp(t->tokens, r->tokens, sizeof *r->tokens * (size_t)r->committed));
        s.drafted -= r->drafted, s.accepted -= t->accepted, s.rollbacks -= t->rollbacks, s.recomputed -= t->recomputed;
    }
    CHECK_MSG(!o.wrong, "%d events are wrong, the first by line %d", (int)o.wrong, o.line);
    CHECK(!s.drafted && !s.accepted && !s.rollbacks && !s.recomputed);
    CHECK_INT(s.pages_free, llm42_engine_config(engine)->kv.pages);
    s = llm42_engine_stats(engine);
    llm42_engine_close(engine);
    return s;
}

// >>loads --------------------------------------------------------------------------------------------------------
static const char *const kinds[] = {"none", "lookup", "model", "oracle", "random"};
enum { NONE, LOOKUP, MODEL, ORACLE, RANDOM, KINDS };

typedef struct reference {
    int preset, window, group, leaves, ranks;  // preset paper alone has windows and ranks that matter
    answer of[REQUESTS];
} reference;

static llm42_engine_desc plain(int preset, int leaves, int ranks) {
    return (llm42_engine_desc)TEST_LIST(.model = model, .backend_desc = TEST_THREADS(1), .preset = (llm42_preset)preset,
                                        .numerics = {.compute = LLM42_DTYPE_FP32, .leaves = leaves},
                                        .tensor_parallel = ranks, .max_context = CONTEXT);
}

// The log-probabilities are those of one INVARIANT pass over the finished text.
static void score(const reference *r) {
    scoring s = TEST_LIST(.backend = llm42_backend_cpu(),
                          .desc = TEST_LIST(.model = model,
                                            .numerics = {.compute = LLM42_DTYPE_FP32, .leaves = r->leaves},
                                            .tensor_parallel = r->ranks, .backend_desc = TEST_THREADS(1),
                                            .max_rows = CONTEXT, .max_context = CONTEXT, .pages = CONTEXT / 16,
                                            .page_size = 16),
                          .schedule = LLM42_SCHEDULE_INVARIANT, .rows = CONTEXT);
    scored sum = {0};
    scoring_open(&s);
    for (int i = 0; i < REQUESTS; i++) {
        const llm42_request_desc d = request(i);
        scoring_compare(&s, d.prompt, d.prompt_count, r->of[i].tokens, r->of[i].logprobs, r->of[i].count, &sum);
    }
    scoring_close(&s);
    CHECK_MSG(sum.tokens > 10 * REQUESTS && !sum.other, "scoring: %d of %d log-probabilities differ", sum.other,
              sum.tokens);
}

// The answers without drafts: of preset invariant, or of preset paper with the same windows.
static const reference *reference_for(const llm42_engine_desc *d) {
    static reference all[64];
    static int count;
    const bool paper = d->preset == LLM42_PRESET_PAPER;
    const int preset = paper ? LLM42_PRESET_PAPER : LLM42_PRESET_INVARIANT, w = paper ? d->policy.window : 0;
    for (int i = 0; i < count; i++)
        if (all[i].preset == preset && all[i].window == w && all[i].group == (paper ? d->policy.group : 0) &&
            all[i].leaves == d->numerics.leaves && all[i].ranks == d->tensor_parallel)
            return &all[i];
    reference *r = &all[count++];
    assert(count < 64);
    *r = (reference){preset, w, paper ? d->policy.group : 0, d->numerics.leaves, d->tensor_parallel, {{0}}};
    llm42_engine_desc desc = plain(preset, r->leaves, r->ranks);
    desc.policy.window = r->window, desc.policy.group = r->group;
    serve(desc, r->of);
    if (!paper) score(r);
    return r;
}

static int32_t truth_at(void *user, const llm42_request *r, int at) {
    const answer *a = (const answer *)user + r->id - 1;
    return at < a->count ? a->tokens[at] : -1;
}

// Opens the drafter of a kind. A wrong answer is as good as a right one for the oracle: it may guess what it likes.
static void open_drafter(llm42_drafter *d, int kind, const answer *truth, random_drafter *random, bool always) {
    void *user = (void *)(uintptr_t)truth;
    *random = (random_drafter){.truth = truth, .right = 1 << any(0, 5)};
    const llm42_oracle_desc oracle = {
        .truth = truth_at, .user = user, .always = always, .rate = 0.8, .spread = once_in(2), .vocab = VOCAB};
    const llm42_draft_model_desc small = TEST_LIST(.model = once_in(2) ? model : other, .backend_desc = TEST_THREADS(1),
                                                   .compute = once_in(2) ? LLM42_DTYPE_FP32 : LLM42_DTYPE_BF16,
                                                   .vocab = VOCAB, .max_running = any(1, 16),
                                                   .max_context = once_in(2) ? 40 : 0, .always = always);
    const llm42_lookup_desc lookup = {.min_match = any(0, 3), .always = always};
    llm42_result result = LLM42_OK;
    if (kind == LOOKUP) result = llm42_lookup_open(d, &lookup, &error);
    if (kind == MODEL) result = llm42_draft_model_open(d, &small, &error);
    if (kind == ORACLE) result = llm42_oracle_open(d, &oracle, &error);
    if (kind == RANDOM) *d = random_drafter_of(random);
    CHECK_MSG(result == LLM42_OK, "%s: %s", kinds[kind], error.text);
}

static llm42_engine_desc random_load(int preset, const char *planner) {
    static const int windows[][2] = {{16, 1}, {8, 2}, {4, 4}, {16, 4}, {2, 8}}, limits[] = {1, 3, 7, 15};
    llm42_engine_desc d = plain(preset, once_in(2) ? 1 : 2, any(1, 2));
    const int *w = windows[any(0, 4)];
    d.policy.window = w[0], d.policy.group = w[1];
    d.planner = planner_find(planner);
    d.max_running = any(4, 16);
    d.kv.page_size = 4, d.kv.pages = 16 * any(1, 6);
    d.kv.prefix_cache = once_in(2);
    d.draft_limit = limits[any(0, 3)];
    d.draft_ordinary = once_in(2);
    d.experiment.inject_rate = once_in(2) ? 0.1 : 0;
    if (once_in(3)) d.policy.chunked_prefill = LLM42_CHUNKED_OFF;
    return d;
}

TEST(drafts_change_no_result) {
    static answer got[REQUESTS];
    int64_t differ = 0, compared = 0, preempted = 0, rolled_back = 0, hits = 0;
    chance = 1;
    for (int kind = 0; kind < KINDS; kind++) {
        llm42_stats sum = {0};
        int64_t passes = 0;
        for (int i = 0; i < CONFIGS / KINDS; i++) {
            llm42_drafter drafter = {0};
            random_drafter random;
            llm42_engine_desc desc = random_load(LLM42_PRESET_DVR + i % 4, planner_names[i / 4]);
            const reference *want = reference_for(&desc);
            open_drafter(&drafter, kind, want->of, &random, i % 3 != 1);
            if (kind) desc.drafter = &drafter;
            const llm42_stats s = serve(desc, got);
            for (int r = 0; r < REQUESTS; r++) {
                if (!request(r).deterministic && desc.preset != LLM42_PRESET_INVARIANT) continue;
                compared++;
                differ += !same(&want->of[r], &got[r]);
            }
            CHECK_MSG(!differ, "%s, preset %d, planner %s: %d differ", kinds[kind], desc.preset, desc.planner->name,
                      (int)differ);
            CHECK_INT(s.draft_failures, 0);
            sum.drafted += s.drafted, sum.accepted += s.accepted, sum.returned_tokens += s.returned_tokens;
            preempted += s.preemptions, rolled_back += s.rollbacks, hits += s.prefix_hits;
            for (int k = 0; k < LLM42_SCHEDULE_COUNT; k++) passes += s.passes[k];
            if (kind != RANDOM) llm42_drafter_close(&drafter);
        }
        printf("  %-7s %6d tokens in %6d passes; %6d drafts judged, %6d right\n", kinds[kind], (int)sum.returned_tokens,
               (int)passes, (int)sum.drafted, (int)sum.accepted);
        CHECK(kind ? sum.accepted > REQUESTS && sum.accepted < sum.drafted : !sum.drafted);
    }
    printf("  %d requests compared, %d preemptions, %d rollbacks, %d cached tokens\n", (int)compared, (int)preempted,
           (int)rolled_back, (int)hits);
    CHECK(preempted > 0 && rolled_back > 0 && hits > 0);
}

// The control: where a backend calls every draft right, wrong ones are returned.
TEST(control_drafts_are_believed) {
    static answer got[REQUESTS];
    const llm42_backend backend = believing_backend();
    chance = 2;
    for (int wrong = 0; wrong < 2; wrong++) {
        llm42_engine_desc desc = plain(LLM42_PRESET_INVARIANT, 1, 1);
        const reference *want = reference_for(&desc);
        random_drafter random = {.truth = want->of, .right = wrong ? 3 : INT32_MAX};
        const llm42_drafter drafter = random_drafter_of(&random);
        int differ = 0;
        desc.backend = &backend, desc.drafter = &drafter;
        serve(desc, got);
        for (int i = 0; i < REQUESTS; i++) differ += !same(&want->of[i], &got[i]);
        CHECK_MSG(wrong ? differ > REQUESTS / 2 : !differ, "%d answers differ", differ);
        if (wrong) printf("  where every draft is believed %d of %d answers differ, as they must\n", differ, REQUESTS);
    }
}

// >>rules --------------------------------------------------------------------------------------------------------
// A drafter that knows the answers, and goes on at random behind their ends. At its n-th call it does what it must not.
enum { FAILS, RETURNS_IDLE, NO_TEXT, NEGATIVE, ONE_MORE, MOST, ID_NEGATIVE, ID_VOCAB, ODDITIES };
typedef struct odd_drafter {
    const answer *truth;
    int kind, at;  // at: the call that goes wrong; 0: none
    int calls, longest, forgotten, lines;
    char line[1024];
    double seconds;  // that given_seconds gives
} odd_drafter;

static llm42_result draft_oddly(void *user, const llm42_view *v, llm42_draft *d, int count, llm42_error *e) {
    odd_drafter *o = user;
    const int vocab = v->desc->model->config.vocab;
    for (int i = 0; i < count; i++) {
        const llm42_request *r = d[i].request;
        const answer *a = &o->truth[r->id - 1];
        o->longest = LLM42__MAX(o->longest, d[i].limit);
        for (int at = r->committed + r->candidates; d[i].count < d[i].limit; at++)
            d[i].token[d[i].count++] = at < a->count ? a->tokens[at] : any(0, vocab - 1);
    }
    if (++o->calls != o->at) return LLM42_OK;
    switch (o->kind) {
    case FAILS: return llm42_fail(e, LLM42_IO, "drafts.txt: cannot be read");
    case RETURNS_IDLE: return LLM42_IDLE;
    case NO_TEXT: return LLM42_MEMORY;
    case NEGATIVE: d[0].count = -1; break;
    case ONE_MORE: d[count - 1].count = d[count - 1].limit + 1; break;
    case MOST: d[0].count = INT32_MAX; break;
    case ID_NEGATIVE: d[0].token[0] = -1; break;
    default: d[count - 1].token[0] = vocab; break;
    }
    return LLM42_OK;
}

static void count_forgotten(void *user, const llm42_request *r) {
    odd_drafter *o = user;
    o->forgotten += r->state == LLM42_STATE_FINISHED;
}

static double given_seconds(void *user, int requests, int tokens) {
    (void)requests, (void)tokens;
    return ((odd_drafter *)user)->seconds;
}

static void hear_line(void *user, const char *line) {
    odd_drafter *o = user;
    if (!o || strncmp(line, "drafter ", 8) != 0) return;
    snprintf(o->line, sizeof o->line, "%s", line);
    o->lines++;
}

static void try_odd_drafter(int preset, int kind, int at) {
    static const char *const texts[ODDITIES] = TEST_LIST(
        "drafter odd: drafts.txt: cannot be read: the engine goes on without drafts",
        "it returned an error and no text", "it returned an error and no text", "got -1 drafts: at most",
        "drafts: at most", "got 2147483647 drafts: at most", "got draft -1: it is outside the vocabulary of 64",
        "got draft 64: it is outside the vocabulary of 64");
    static answer got[REQUESTS];
    llm42_engine_desc desc = plain(preset, 1, 1);
    desc.policy.window = 16, desc.policy.group = 2;
    const reference *want = reference_for(&desc);
    odd_drafter odd = {.truth = want->of, .kind = kind, .at = at};
    const llm42_drafter drafter = {.name = "odd", .user = &odd, .draft = draft_oddly, .forget = count_forgotten};
    desc.drafter = &drafter, desc.log = hear_line, desc.log_user = &odd;
    const llm42_stats s = serve(desc, got);
    int differ = 0;
    for (int i = 0; i < REQUESTS; i++)
        if (request(i).deterministic) differ += !same(&want->of[i], &got[i]);
    CHECK_MSG(!differ, "preset %d, drafter %d fails at call %d: %d differ", preset, kind, at, differ);
    CHECK_INT(s.draft_failures, at > 0);
    CHECK_INT(odd.lines, at > 0);
    CHECK_INT(odd.forgotten, REQUESTS);
    if (!at) return;
    CHECK_INT(odd.calls, at);
    CHECK_CONTAINS(odd.line, texts[kind]);
    if (preset == LLM42_PRESET_DVR && at == 1) printf("  %s\n", odd.line);
}

TEST(a_drafter_that_fails_is_not_asked_again) {
    for (int preset = LLM42_PRESET_DVR; preset <= LLM42_PRESET_PAPER; preset++) {
        try_odd_drafter(preset, 0, 0);
        for (int kind = 0; kind < ODDITIES; kind++)
            for (int at = 1; at <= 3; at += 2) try_odd_drafter(preset, kind, at);
    }
}

// A simulated request beside such a drafter, or (NULL) without one. Returns when the clock ends.
static double simulated_end(odd_drafter *odd, int failures) {
    static const answer none[1];
    const llm42_drafter drafter = {.name = "odd", .user = odd, .draft = draft_oddly, .seconds = given_seconds};
    llm42_calibration *calibration;
    if (!CHECK_INT(llm42_calibration_load(&calibration, "tests/calibration.tsv", &error), LLM42_OK)) return 0;
    const llm42_sim_desc sim = {.calibration = calibration, .no_flips = true};
    const llm42_engine_desc desc = TEST_LIST(.model = shape, .backend = llm42_backend_sim(), .backend_desc = &sim,
                                             .drafter = odd ? &drafter : NULL, .log = hear_line, .log_user = odd);
    if (odd) odd->truth = none;
    llm42_engine *engine = test_open(&desc);
    test_submit(engine, (llm42_request_desc)TEST_LIST(.prompt = prompts[0], .prompt_count = 8, .max_new_tokens = 20,
                                                      .deterministic = true, .key = 1));
    CHECK_INT(llm42_engine_run(engine, &error), LLM42_OK);
    CHECK_INT(llm42_engine_stats(engine).draft_failures, failures);
    const double end = llm42_engine_now(engine);
    llm42_engine_close(engine);
    llm42_calibration_free(calibration);
    return end;
}

// The time of what a broken drafter says that it has done does not pass.
TEST(a_drafter_that_fails_takes_no_time) {
    odd_drafter odd = {.kind = MOST, .at = 1, .seconds = 1};
    CHECK_NEAR(simulated_end(&odd, 1), simulated_end(NULL, 0), 0);
}

// Seconds that no clock can add are a fault like others, and the clock goes on.
TEST(a_time_that_is_none_is_a_fault_of_the_drafter) {
    static const double times[] = {0, 1e-3, -1e-3, (double)NAN, (double)INFINITY, -(double)INFINITY};
    for (int i = 0; i < 6; i++) {
        odd_drafter odd = {.seconds = times[i]};
        const double end = simulated_end(&odd, i > 1);
        CHECK_MSG(end > 0 && end < 10, "%g seconds for drafts: the clock ends at %g", times[i], end);
        CHECK_INT(odd.lines, i > 1);
        if (i > 1) CHECK_INT(odd.calls, 1);
        if (i > 1) CHECK_CONTAINS(odd.line, "drafter odd: seconds: ");
        if (i == 2)
            CHECK_CONTAINS(odd.line, "seconds: -0.001: must be finite and not negative: the engine goes on without");
    }
}

TEST(what_is_refused_at_open) {
    const struct {
        llm42_drafter drafter;
        int limit;
        const char *text;
    } cases[] = {
        {{.draft = draft_oddly}, 0, "llm42_engine_desc.drafter: its name: required"},
        {{.name = "odd"}, 0, "llm42_engine_desc.drafter: its draft function: required"},
        {{.name = "", .draft = draft_oddly}, 0, "llm42_engine_desc.drafter: its name '': must be one word"},
        {{.name = "two words", .draft = draft_oddly}, 0, "llm42_engine_desc.drafter: its name 'two words': must be"},
        {{.name = "odd", .draft = draft_oddly}, -1, "llm42_engine_desc.draft_limit: -1: must be from 1 to 4096"},
        {{.name = "odd", .draft = draft_oddly}, 4097, "llm42_engine_desc.draft_limit: 4097: must be from 1 to 4096"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        llm42_engine_desc desc = plain(LLM42_PRESET_DVR, 1, 1);
        desc.drafter = &cases[i].drafter, desc.draft_limit = cases[i].limit;
        test_refused(&desc, LLM42_INVALID, cases[i].text);
    }
}

// A request alone, with a drafter that proposes its whole answer, and more tokens behind its end.
static int longest_draft(int preset, int max_new, const int32_t *stop, answer *out, llm42_finish *finish) {
    llm42_engine_desc desc = plain(preset, 1, 1);
    desc.policy.window = 16, desc.policy.group = 1;
    const reference *want = reference_for(&desc);
    odd_drafter odd = {.truth = want->of + 1};  // of a greedy request that goes on through stop tokens
    const llm42_drafter drafter = {.name = "odd", .user = &odd, .draft = draft_oddly};
    llm42_request_desc r = request(1);
    desc.drafter = &drafter, desc.draft_limit = 15;
    llm42_engine *engine = test_open(&desc);
    r.max_new_tokens = max_new, r.deterministic = true, r.ignore_stop = !stop, r.stop = stop, r.stop_count = stop != 0;
    test_submit(engine, r);
    CHECK_INT(llm42_engine_run(engine, &error), LLM42_OK);
    *out = take(engine, 1);
    *finish = llm42_engine_request(engine, 1)->finish;
    CHECK_INT(llm42_engine_stats(engine).returned_tokens, out->count);
    CHECK(!memcmp(out->tokens, want->of[1].tokens, sizeof *out->tokens * (size_t)out->count));
    llm42_engine_close(engine);
    return odd.calls ? odd.longest : 0;
}

TEST(drafts_end_where_a_request_ends) {
    answer a;
    llm42_finish finish;
    for (int preset = LLM42_PRESET_DVR; preset <= LLM42_PRESET_PAPER; preset++) {
        const llm42_engine_desc desc = TEST_LIST(.preset = (llm42_preset)preset, .policy = {.window = 16, .group = 1},
                                                 .numerics.leaves = 1, .tensor_parallel = 1);
        const answer *whole = &reference_for(&desc)->of[1];
        CHECK_INT(whole->count, NEW);
        for (int most = 1; most <= NEW; most++) {
            const int longest = longest_draft(preset, most, NULL, &a, &finish);
            CHECK(a.count == most && finish == LLM42_FINISH_LENGTH);
            CHECK_MSG(longest == LLM42__MAX(0, LLM42__MIN(15, most - 2)),  // the first token is the prompt's
                      "preset %d: %d drafts of %d tokens", preset, longest, most);
        }
        for (int at = 0; at < NEW; at++) {
            int first = 0;
            while (whole->tokens[first] != whole->tokens[at]) first++;
            longest_draft(preset, NEW, &whole->tokens[at], &a, &finish);
            CHECK(a.count == first + 1 && finish == LLM42_FINISH_STOP);
        }
    }
}

// >>cancelling ---------------------------------------------------------------------------------------------------
typedef struct meddler {
    llm42_engine *engine;
    llm42_event_type type;
    int every, heard;
    bool release;
    int64_t behind;  // tokens that a request returned after it was cancelled
    bool cancelled[2 * REQUESTS];
} meddler;

static void meddle(void *user, const llm42_event *e) {
    meddler *m = user;
    if (e->type == LLM42_EVENT_COMMITTED) m->behind += m->cancelled[e->request];
    if (e->type != m->type || ++m->heard % m->every) return;
    CHECK_INT(llm42_engine_cancel(m->engine, e->request, NULL), LLM42_OK);
    m->cancelled[e->request] = true;
    const llm42_request_desc again = request((int)((e->request - 1) % REQUESTS));
    if (m->heard < REQUESTS) CHECK_INT(llm42_engine_submit(m->engine, &again, NULL, NULL), LLM42_OK);
}

static void release_finished(void *user, const llm42_event *e) {
    meddler *m = user;
    meddle(m, e);
    if (m->release && e->type == LLM42_EVENT_FINISHED && m->cancelled[e->request])
        CHECK_INT(llm42_engine_release(m->engine, e->request, NULL), LLM42_OK);
}

static void cancel_in_events(int preset, llm42_event_type type, bool release) {
    llm42_engine_desc desc = plain(preset, 1, 1);
    desc.policy.window = 16, desc.policy.group = 2;
    const reference *want = reference_for(&desc);
    meddler m = {.type = type, .every = 5, .release = release};
    llm42_drafter drafter;
    void *user = (void *)(uintptr_t)want->of;
    const llm42_oracle_desc oracle = {.truth = truth_at, .user = user, .always = true, .rate = 0.8, .vocab = VOCAB};
    if (!CHECK_INT(llm42_oracle_open(&drafter, &oracle, &error), LLM42_OK)) return;
    desc.drafter = &drafter, desc.on_event = release_finished, desc.event_user = &m;
    m.engine = test_open(&desc);
    for (int i = 0; i < REQUESTS / 2; i++) test_submit(m.engine, request(i));
    CHECK_INT(llm42_engine_run(m.engine, &error), LLM42_OK);
    const llm42_stats s = llm42_engine_stats(m.engine);
    CHECK(s.cancelled > REQUESTS / 40 && s.accepted > 0 && s.submitted == s.finished);
    CHECK_INT(m.behind, 0);
    CHECK_INT(s.pages_free, llm42_engine_config(m.engine)->kv.pages);
    for (int i = 0; i < REQUESTS / 2; i++) {
        const llm42_request *r = llm42_engine_request(m.engine, i + 1);
        CHECK(!!r == !(release && m.cancelled[i + 1]));
        if (!r || !r->deterministic) continue;
        answer got = take(m.engine, r->id), whole = want->of[i];
        CHECK(!r->drafts && !r->candidates);
        CHECK(r->finish == LLM42_FINISH_CANCELLED ? m.cancelled[i + 1] : got.count == whole.count);
        whole.count = got.count;
        CHECK_MSG(same(&whole, &got), "preset %d: request %d differs", preset, i + 1);
    }
    llm42_engine_close(m.engine);
    llm42_drafter_close(&drafter);
}

TEST(cancelling_in_events_of_drafts) {
    for (int preset = LLM42_PRESET_DVR; preset <= LLM42_PRESET_PAPER; preset++)
        for (int release = 0; release < 2; release++) {
            cancel_in_events(preset, LLM42_EVENT_DRAFTED, release);
            cancel_in_events(preset, LLM42_EVENT_ACCEPTED, release);
        }
}

// >>without an engine --------------------------------------------------------------------------------------------
// A view of one request, for drafters that propose all that they may.
typedef struct stage {
    llm42_engine_desc desc;
    llm42_view view;
    llm42_request request;
    const llm42_request *running[1];
} stage;

static double not_known(const llm42_view *view, const llm42_mix *mix) {
    (void)view, (void)mix;
    return -1;
}

static void set_stage(stage *s, int64_t id, const int32_t *text, int prompt, int committed, int candidates) {
    s->desc = (llm42_engine_desc){.model = model, .policy.mode = LLM42_MODE_BATCH_INVARIANT, .max_running = 1};
    s->request = (llm42_request)TEST_LIST(.id = id, .key = id, .state = LLM42_STATE_DECODE, .prompt_count = prompt,
                                          .max_new_tokens = 1 << 20, .committed = committed, .candidates = candidates,
                                          .prompt = text, .tokens = text + prompt);
    s->running[0] = &s->request;
    s->view = (llm42_view){.desc = &s->desc, .running_count = 1, .running = s->running, .seconds = not_known};
}

static int draft_alone(const llm42_drafter *d, stage *s, int limit, int32_t *token) {
    llm42_draft draft = {&s->request, limit, 0, token};
    CHECK_MSG(d->draft(d->user, &s->view, &draft, 1, &error) == LLM42_OK, "%s", error.text);
    return draft.count;
}

// >>lookup -------------------------------------------------------------------------------------------------------
enum { LOOKED = 300, LIMIT = 5 };

// The length of the longest end of text[0, end) that also ends at a place before `end` and not behind `final`.
static int longest_match(const int32_t *text, int final, int end) {
    int longest = 0;
    for (int e = 1; e <= final && e < end; e++) {
        int n = 0;
        while (n < e && text[e - 1 - n] == text[end - 1 - n]) n++;
        longest = LLM42__MAX(longest, n);
    }
    return longest;
}

// Did these drafts follow some place where the longest match ended? They may run into themselves.
static bool followed(const int32_t *text, int final, int end, int match, const int32_t *draft, int count) {
    for (int e = match; e <= final && e < end; e++) {
        if (memcmp(text + e - match, text + end - match, sizeof *text * (size_t)match) != 0) continue;
        int n = 0;
        while (n < count && draft[n] == (e + n < end ? text[e + n] : draft[e + n - end])) n++;
        if (n == count) return true;
    }
    return false;
}

static void look_up(int alphabet, int min_match, int64_t *proposed, int64_t *none) {
    static int32_t text[LOOKED + 8], draft[LIMIT];
    llm42_drafter d;
    stage s;
    int wrong = 0;
    if (!CHECK_INT(llm42_lookup_open(&d, &(llm42_lookup_desc){min_match, true}, &error), LLM42_OK)) return;
    for (int prompt = any(1, 40), final = prompt; final < LOOKED; final++) {
        if (final == prompt)
            for (int i = 0; i < prompt; i++) text[i] = any(0, alphabet - 1);
        text[final] = any(0, alphabet - 1);  // a candidate is dropped, or not
        const int candidates = once_in(2) ? 0 : any(1, 4), end = final + candidates;
        for (int i = final; i < end; i++) text[i] = once_in(2) || i < 9 ? any(0, alphabet - 1) : text[i - 7];
        set_stage(&s, 1, text, prompt, final - prompt, candidates);
        const int count = draft_alone(&d, &s, LIMIT, draft), match = longest_match(text, final, end);
        wrong += count != (match < (min_match ? min_match : 2) ? 0 : LIMIT);
        wrong += count && !followed(text, final, end, match, draft, count);
        *proposed += count > 0, *none += !count;
    }
    CHECK_MSG(!wrong, "alphabet of %d, matches of %d: %d proposals are wrong", alphabet, min_match, wrong);
    d.forget(d.user, &s.request);
    CHECK(hmlen(((llm42__lookup *)d.user)->requests) == 0);
    llm42_drafter_close(&d);
    CHECK(!d.draft && !d.user);
}

TEST(lookup_finds_the_longest_match) {
    static const int alphabets[] = {2, 3, 50};
    int64_t proposed = 0, none = 0;
    chance = 5;
    for (int i = 0; i < (TEST_SLOW ? 10 : 60); i++) look_up(alphabets[i % 3], i / 3 % 5, &proposed, &none);
    printf("  %d proposals, %d times none\n", (int)proposed, (int)none);
    CHECK(proposed > 1000 && none > proposed / 10);
    const int32_t text[] = {1, 2, 3, 4, 1, 2, 3};  // the control: one token behind the right place, and a shorter match
    CHECK(longest_match(text, 7, 7) == 3 && followed(text, 7, 7, 3, (int32_t[]){4, 1}, 2));
    CHECK(!followed(text, 7, 7, 3, (int32_t[]){1, 2}, 2));
}

// What it keeps for a text grows with its length, whatever the text is: at most two states and three edges a token.
TEST(lookup_is_linear) {
    enum { LONG = TEST_SLOW ? 20000 : 100000 };
    static int32_t text[LONG], draft[LIMIT];
    for (int kind = 0; kind < 5; kind++) {
        llm42_drafter d;
        stage s;
        if (!CHECK_INT(llm42_lookup_open(&d, &(llm42_lookup_desc){.always = true}, &error), LLM42_OK)) return;
        for (int i = 0; i < LONG; i++)
            text[i] = kind == 0 ? any(0, 1) : kind == 1 ? any(0, 49) : kind == 2 ? 7 : kind == 3 ? i > 0 : i % 1000;
        set_stage(&s, 1, text, 10, LONG - 10, 0);
        draft_alone(&d, &s, LIMIT, draft);
        const llm42__known *k = ((llm42__lookup *)d.user)->requests[0].value;
        CHECK_MSG(k->count == LONG && arrlen(k->state) <= 2 * LONG && arrlen(k->edge) <= 3 * LONG,
                  "text %d: %d tokens, %d states, %d edges", kind, k->count, (int)arrlen(k->state),
                  (int)arrlen(k->edge));
        CHECK_INT(hmlen(k->find), arrlen(k->edge));
        llm42_drafter_close(&d);
    }
}

// >>model --------------------------------------------------------------------------------------------------------
// Stands before a model drafter. What that proposes is what one proposes that gets the whole text at once.
typedef struct twin {
    llm42_drafter tested, fresh;
    int64_t compared, wrong, without;
} twin;

static llm42_result twin_draft(void *user, const llm42_view *v, llm42_draft *d, int count, llm42_error *e) {
    twin *t = user;
    int32_t token[32];
    const llm42_result result = t->tested.draft(t->tested.user, v, d, count, e);
    for (int i = 0; i < count && result == LLM42_OK; i++) {
        llm42_draft own = {.request = d[i].request, .limit = d[i].limit, .token = token};
        CHECK_INT(t->fresh.draft(t->fresh.user, v, &own, 1, e), LLM42_OK);
        t->fresh.forget(t->fresh.user, d[i].request);
        t->without += !d[i].count;
        t->compared += d[i].count;
        t->wrong += d[i].count &&
                    (own.count != d[i].count || memcmp(token, d[i].token, sizeof *token * (size_t)own.count));
    }
    return result;
}

static void twin_forget(void *user, const llm42_request *r) {
    twin *t = user;
    t->tested.forget(t->tested.user, r);
}

TEST(model_drafts_as_one_that_gets_the_whole_text) {
    static answer got[REQUESTS];
    llm42_stats sum = {0};
    chance = 6;
    for (int i = 0; i < 8; i++) {
        twin t = {0};
        llm42_draft_model_desc small = TEST_LIST(.model = i % 2 ? model : other, .backend_desc = TEST_THREADS(1),
                                                 .compute = LLM42_DTYPE_FP32, .max_running = 1 + 3 * (i / 2),
                                                 .always = true);
        const llm42_drafter drafter = {.name = "twin", .user = &t, .draft = twin_draft, .forget = twin_forget};
        llm42_engine_desc desc = plain(i % 3 ? LLM42_PRESET_DVR : LLM42_PRESET_BEST, 1, 1);
        desc.policy.window = 16, desc.policy.group = 2, desc.draft_limit = 4, desc.draft_ordinary = true;
        desc.max_running = 8, desc.kv.page_size = 4, desc.kv.pages = 36, desc.experiment.inject_rate = 0.1;
        desc.drafter = &drafter;
        if (!CHECK_INT(llm42_draft_model_open(&t.tested, &small, &error), LLM42_OK)) return;
        small.max_running = 1;
        if (!CHECK_INT(llm42_draft_model_open(&t.fresh, &small, &error), LLM42_OK)) return;
        const llm42_stats s = serve(desc, got);
        sum.preemptions += s.preemptions, sum.rollbacks += s.rollbacks;
        CHECK_MSG(t.compared > 3 * REQUESTS && !t.wrong, "load %d: %d of %d drafts differ", i, (int)t.wrong,
                  (int)t.compared);
        CHECK(i < 2 ? t.without > 0 : true);  // one slot, eight requests
        const llm42__draft_model *m = t.tested.user;
        for (int k = 0; k < m->desc.max_running; k++) CHECK_INT(m->slot[k].id, 0);
        llm42_drafter_close(&t.tested);
        llm42_drafter_close(&t.fresh);
    }
    CHECK(sum.preemptions > 0 && sum.rollbacks > 0);
}

// The same model as drafter knows what a request will draw, unless it draws with another seed.
TEST(model_draws_with_the_noise_of_the_request) {
    for (int noise = 0; noise < 2; noise++) {
        const llm42_draft_model_desc small = TEST_LIST(.model = model, .backend_desc = TEST_THREADS(1),
                                                       .compute = LLM42_DTYPE_FP32, .always = true,
                                                       .other_noise = noise);
        llm42_engine_desc desc = plain(LLM42_PRESET_INVARIANT, 1, 1);
        llm42_drafter drafter;
        if (!CHECK_INT(llm42_draft_model_open(&drafter, &small, &error), LLM42_OK)) return;
        desc.drafter = &drafter;
        llm42_engine *engine = test_open(&desc);
        for (int i = 0; i < REQUESTS; i++) {
            llm42_request_desc r = request(i);
            r.sampling = (llm42_sampling){.temperature = 1, .seed = i % 2 ? 0 : 77 + i};
            test_submit(engine, r);
        }
        const llm42_stats s = test_finish(engine);
        printf("  temperature 1, %s noise: %d of %d drafts are right\n", noise ? "other" : "its", (int)s.accepted,
               (int)s.drafted);
        CHECK(s.drafted > 5 * REQUESTS);
        CHECK(noise ? s.accepted < s.drafted / 2 : s.accepted == s.drafted);
        llm42_drafter_close(&drafter);
    }
}

TEST(model_that_is_refused) {
    llm42_drafter d = {.name = "old"};
    const llm42_draft_model_desc none = {.backend_desc = TEST_THREADS(1)};
    CHECK_ERROR(llm42_draft_model_open(&d, &none, &error), LLM42_INVALID, "llm42_draft_model_desc.model: required");
    const llm42_draft_model_desc larger = {.model = model, .backend_desc = TEST_THREADS(1), .vocab = VOCAB + 1};
    CHECK_ERROR(llm42_draft_model_open(&d, &larger, &error), LLM42_INVALID,
                "has a vocabulary of 64 tokens, and the model that it drafts for has 65");
    CHECK(!d.name && !d.draft);
    llm42_drafter_close(&d);
}

// >>oracle -------------------------------------------------------------------------------------------------------
enum { ASKED = 400, OUTPUT = 100 };

static int32_t hashed(void *user, const llm42_request *r, int at) {
    (void)user;
    return (int32_t)(llm42_hash((uint64_t)r->key * 1000 + (uint64_t)at) % VOCAB);
}

// Which of the drafts of ASKED requests are right, when at most `limit` of them are asked for at once. Returns the
// share of right ones, and the deviation of the requests' shares in *deviation.
static double ask_oracle(double rate, double spread, uint64_t seed, int limit, uint8_t *right, double *deviation) {
    const llm42_oracle_desc desc = {
        .truth = hashed, .always = true, .rate = rate, .spread = spread, .seed = seed, .vocab = VOCAB};
    static const int32_t text[1] = {0};
    llm42_drafter d;
    stage s;
    double sum = 0, squares = 0;
    if (!CHECK_INT(llm42_oracle_open(&d, &desc, &error), LLM42_OK)) return -1;
    for (int i = 0; i < ASKED; i++) {
        int n = 0;
        for (int at = 0; at < OUTPUT; at += limit) {
            int32_t token[OUTPUT];
            set_stage(&s, i + 1, text, 1, at, 0);
            const int count = draft_alone(&d, &s, LLM42__MIN(limit, OUTPUT - at), token);
            CHECK_INT(count, LLM42__MIN(limit, OUTPUT - at));
            for (int k = 0; k < count; k++) {
                right[i * OUTPUT + at + k] = token[k] == hashed(NULL, &s.request, at + k);
                n += right[i * OUTPUT + at + k];
                CHECK(token[k] >= 0 && token[k] < VOCAB);
            }
        }
        sum += (double)n / OUTPUT, squares += (double)n / OUTPUT * n / OUTPUT;
    }
    llm42_drafter_close(&d);
    *deviation = sqrt(squares / ASKED - sum / ASKED * sum / ASKED);
    return sum / ASKED;
}

TEST(oracle_is_right_as_often_as_it_should_be) {
    static uint8_t a[ASKED * OUTPUT], b[ASKED * OUTPUT];
    double even, uneven, unused;
    CHECK_NEAR(ask_oracle(0, 0, 0, 7, a, &unused), 0, 0);
    CHECK_NEAR(ask_oracle(1, 0, 0, 7, a, &unused), 1, 0);
    CHECK_NEAR(ask_oracle(1, 2, 0, 7, a, &unused), 1, 0);
    CHECK_NEAR(ask_oracle(0, 2, 0, 7, a, &unused), 0, 0);
    CHECK_NEAR(ask_oracle(0.5, 0, 0, 7, a, &even), 0.5, 4 * 0.5 / sqrt(ASKED * OUTPUT));
    CHECK_NEAR(ask_oracle(0.5, 0, 42, 1, b, &unused), 0.5, 4 * 0.5 / sqrt(ASKED * OUTPUT));
    CHECK(!memcmp(a, b, sizeof a));  // the same tosses, whatever is asked for at once
    ask_oracle(0.5, 0, 43, 7, b, &unused);
    CHECK(memcmp(a, b, sizeof a) != 0);
    ask_oracle(0.5, 1, 0, 7, a, &uneven);
    CHECK_MSG(even < 0.06 && uneven > 0.15, "deviations of requests: %g and %g", even, uneven);
    double sum = 0, squares = 0;
    const int draws = 100000;
    for (int i = 0; i < draws; i++) {
        const double power = llm42__oracle_power(llm42_hash((uint64_t)i), 0.5);
        sum += power, squares += power * power;
    }
    CHECK_NEAR(sum / draws, 1, 4 * 0.5 / sqrt(draws));
    CHECK_NEAR(sqrt(squares / draws - sum / draws * sum / draws), 0.5, 0.02);
}

TEST(oracle_that_is_refused) {
    static const struct {
        llm42_oracle_desc desc;
        const char *text;
    } cases[] = {{{.vocab = 2}, "llm42_oracle_desc.truth: required"},
                 {{.truth = hashed, .vocab = 1}, "llm42_oracle_desc.vocab: 1: at least 2"},
                 {{.truth = hashed, .vocab = 2, .rate = 1.5}, "llm42_oracle_desc.rate: 1.5: must be from 0 to 1"},
                 {{.truth = hashed, .vocab = 2, .rate = NAN}, "llm42_oracle_desc.rate: "},
                 {{.truth = hashed, .vocab = 2, .spread = -1}, "llm42_oracle_desc.spread: -1: must be from 0 to 10"},
                 {{.truth = hashed, .vocab = 2, .request_us = -1}, "request_us and token_us must be 0 or more"},
                 {{.truth = hashed, .vocab = 2, .token_us = INFINITY}, "request_us and token_us must be 0 or more"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        llm42_drafter d;
        CHECK_ERROR(llm42_oracle_open(&d, &cases[i].desc, &error), LLM42_INVALID, cases[i].text);
        CHECK(!d.draft);
    }
    llm42_drafter d;
    CHECK_ERROR(llm42_lookup_open(&d, &(llm42_lookup_desc){.min_match = -1}, &error), LLM42_INVALID,
                "llm42_lookup_desc.min_match: -1: must be 0 (default) or more");
}

// >>what pays ----------------------------------------------------------------------------------------------------
static int32_t simulated(void *user, const llm42_request *r, int at) {
    return llm42_sim_token(42, *(int *)user, r->key, r->prompt_count + at - 1);
}

typedef struct pay {
    const char *file;
    int preset, batch;
    double rate;  // negative: no drafts
    bool always;
    int rounds;     // requests, as a multiple of the batch, which is kept full; 0: one, whose answers are longer
    bool ordinary;  // requests, in FAST passes only
    bool learned;   // the engine learns how long passes take, as on a real device; else the simulator tells
    int64_t shorter, drafted;  // drafts fewer than the limit, though there was room; all
} pay;

enum { PAID = 900 };  // tokens of a request

static void watch_limit(void *user, const llm42_event *e) {
    pay *p = user;
    if (e->type != LLM42_EVENT_DRAFTED) return;
    p->drafted += e->n;
    p->shorter += e->n < LLM42__MIN(7, e->info->max_new_tokens - e->position - 1);
}

// Seconds in which a batch of deterministic requests is served without a wrong candidate, so that drafts alone matter.
static double seconds_of(const llm42_calibration *calibration, pay *p) {
    const llm42_sim_desc sim = {.calibration = calibration, .no_flips = true};
    llm42_backend backend = *llm42_backend_sim();
    if (p->learned) backend.estimate = NULL;
    int vocab = shape->config.vocab;
    const llm42_oracle_desc oracle = TEST_LIST(.truth = simulated, .user = &vocab, .always = p->always,
                                               .rate = LLM42__MAX(p->rate, 0), .vocab = vocab, .token_us = 100);
    llm42_engine_desc desc = TEST_LIST(.model = shape, .backend = &backend, .backend_desc = &sim,
                                       .preset = (llm42_preset)p->preset, .max_context = 1024,
                                       .max_running = p->rounds ? p->batch : 256,
                                       .token_budget = p->rounds ? (p->ordinary ? 1500 : 512) : 0,
                                       .policy.mode = p->ordinary ? LLM42_MODE_NONDETERMINISTIC : LLM42_MODE_DEFAULT,
                                       .draft_ordinary = p->ordinary, .on_event = watch_limit, .event_user = p);
    llm42_drafter drafter;
    if (!CHECK_INT(llm42_oracle_open(&drafter, &oracle, &error), LLM42_OK)) return 0;
    if (p->rate >= 0) desc.drafter = &drafter;
    llm42_engine *engine = test_open(&desc);
    llm42_request_desc r = TEST_LIST(.prompt_count = LONGEST, .max_new_tokens = p->rounds ? 128 : PAID,
                                     .deterministic = !p->ordinary, .ignore_stop = true);
    for (int i = 0; i < p->batch * LLM42__MAX(p->rounds, 1); i++)
        r.prompt = prompts[i % REQUESTS], test_submit(engine, r);
    CHECK_INT(llm42_engine_run(engine, &error), LLM42_OK);
    const double seconds = llm42_engine_now(engine);
    llm42_engine_close(engine);
    llm42_drafter_close(&drafter);
    return seconds;
}

static double gain(const llm42_calibration *calibration, pay p) {
    const double with = seconds_of(calibration, &p);
    CHECK_MSG(!p.always || (p.drafted > 0 && !p.shorter), "%s, preset %d, batch %d: %d times fewer drafts than allowed",
              p.file, p.preset, p.batch, (int)p.shorter);
    pay without = p;
    without.rate = -1, without.always = false;
    return seconds_of(calibration, &without) / with;
}

// At rate 0 the few drafts that are tried cost at most 1%. At rate 0.8 they pay at batch 1; where they hardly pay, the
// estimates of what a round takes may be wrong by some percent. The control proposes always, and is slow at rate 0.
static void check_preset(const llm42_calibration *calibration, const char *file, int preset, double *slowest) {
    double least[2] = {2, 2}, control = 2, alone = 0;
    for (int batch = 1; batch <= 256; batch *= 4) {
        for (int right = 0; right < 2; right++) {
            const double its = gain(calibration, (pay){file, preset, batch, .rate = right ? 0.8 : 0});
            CHECK_MSG(its >= (right ? 0.95 : 0.99),
                      "%s, preset %d, batch %d, rate %g: %.3f of the speed without drafts", file, preset, batch,
                      right ? 0.8 : 0, its);
            least[right] = LLM42__MIN(least[right], its);
            if (right && batch == 1) alone = its;
        }
        if (batch <= 4) control = LLM42__MIN(control, gain(calibration, (pay){file, preset, batch, 0, .always = true}));
    }
    printf("  %-40s preset %d: rate 0 at least %.3f, always %.3f; rate 0.8 at least %.3f, batch 1 %.2f\n", file, preset,
           least[0], control, least[1], alone);
    *slowest = LLM42__MIN(*slowest, control);
    // Each window of the paper takes M rows.
    CHECK(alone > (preset == LLM42_PRESET_PAPER ? 0.99 : 1.3));
}

TEST(drafts_pay_or_are_left_out) {
    static const char *const files[] = {"tests/calibration.tsv", "sweep/calibration/h200-llama-3.1-8b.tsv",
                                        "sweep/calibration/h100-pcie-paper.tsv"};
    for (int f = 0; f < (TEST_SLOW ? 1 : 3); f++) {
        llm42_calibration *calibration;
        double slowest = 2;
        if (!CHECK_MSG(!llm42_calibration_load(&calibration, files[f], &error), "%s", error.text)) return;
        for (int preset = LLM42_PRESET_DVR; preset <= LLM42_PRESET_PAPER; preset++)
            check_preset(calibration, files[f], preset, &slowest);
        CHECK(slowest < 0.6);
        llm42_calibration_free(calibration);
    }
}

// In a full batch most passes have a prompt. Drafts must pay there, too, and where the times of passes must be learnt.
TEST(drafts_pay_beside_prompts) {
    static const char file[] = "sweep/calibration/h200-llama-3.1-8b.tsv";
    llm42_calibration *calibration;
    if (!CHECK_MSG(!llm42_calibration_load(&calibration, file, &error), "%s", error.text)) return;
    for (int preset = LLM42_PRESET_DVR; preset <= LLM42_PRESET_INVARIANT; preset++)
        for (int batch = 4; batch <= 64; batch *= 4) {
            double its[2];
            for (int learned = 0; learned < 2; learned++)
                its[learned] = gain(calibration,
                                    (pay){file, preset, batch, .rate = 0.9, .rounds = 16, .learned = learned});
            printf("  preset %d, batch %2d: %.2f where times are known, %.2f where they are learned\n", preset, batch,
                   its[0], its[1]);
            CHECK(its[1] > 0.9 * its[0]);
        }
    // Before a round without prompts has run, nothing tells what a second is worth.
    for (double rate = 0; rate < 0.8; rate += 0.25) {
        const pay p = {file, LLM42_PRESET_DVR, 256, rate, .rounds = 8, .ordinary = true, .learned = true};
        const double its = gain(calibration, p);
        printf("  256 ordinary requests, rate %g: %.3f\n", rate, its);
        CHECK(its > 0.99);
    }
    llm42_calibration_free(calibration);
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    // One layer, wide enough for FAST and FIXED to differ; fp32, so that no rounding hides it.
    static const test_shape shapes[2] = {
        {"llama", VOCAB, 64, 1, 2, 1, 32, 64, 0, true, "BF16", "\"rope_theta\": 10000.0, ", 0},
        {"qwen2", VOCAB, 32, 1, 2, 1, 16, 32, 0, true, "BF16", "\"use_sliding_window\": false, ", 0}};
    shape = test_load("shape:tiny"), model = test_model(&shapes[0]), other = test_model(&shapes[1]);
    make_prompts();
    RUN_ALL();
    llm42_model_free(model);
    llm42_model_free(other);
    llm42_model_free(shape);
    return test_end("test_draft");
}
