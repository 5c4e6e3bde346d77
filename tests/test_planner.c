// Random planners choose requests, sizes, windows, preemptions and admissions by chance, and let requests starve for a
// while. More than half of them have a random drafter beside them. They change no token and no log-probability bit of a
// deterministic request, and every engine ends. A planner that breaks a rule is refused by its name without a change.
#define TEST_ALL
#include "test.h"
#include "make_model.h"

#include "examples/planners.h"

#include <inttypes.h>

enum {
    PLANNERS = TEST_SLOW ? 600 : 10000,  // random ones, on each backend
    REQUESTS = 6,
    LONGEST = 24,   // prompt tokens
    NEW = 14,       // new tokens, at most
    M = 16,         // rows of a replay pass
    STEPS = 20000,  // an engine takes at most
    STARVED = 40,   // plans that leave a request out on purpose, at most
};
#include "random_drafter.h"

static llm42_error error;
static llm42_model *model, *shape;
static int32_t stops[2];  // of requests with drafts
static int32_t prompts[REQUESTS][LONGEST];

// >>requests -----------------------------------------------------------------------------------------------------
static llm42_request_desc request(int i) {
    static const llm42_sampling sampling[] = {
        {0}, {.temperature = 0.8f, .top_p = 0.9f, .seed = 5}, {.temperature = 1.2f, .top_k = 9}};
    static const int length[REQUESTS] = {1, 5, 17, LONGEST, 8, 16}, tokens[REQUESTS] = {NEW, 1, 9, NEW, 3, 12};
    return (llm42_request_desc)TEST_LIST(.prompt = prompts[i], .prompt_count = length[i], .max_new_tokens = tokens[i],
                                         .deterministic = true, .ignore_stop = true, .sampling = sampling[i % 3]);
}

static void make_prompts(void) {
    for (int i = 0; i < REQUESTS; i++)
        for (int t = 0; t < LONGEST; t++) prompts[i][t] = (t < 8 ? 7 * t + 3 : 11 * t + 5 * i) % model->config.vocab;
}

static void submit_all(llm42_engine *engine, const bool *marked, bool stop) {
    for (int i = 0; i < REQUESTS; i++) {
        llm42_request_desc r = request(i);
        r.deterministic = marked[i];
        if (stop) r.ignore_stop = false, r.stop = stops, r.stop_count = 2;
        test_submit(engine, r);
    }
}

// >>random planner -----------------------------------------------------------------------------------------------
typedef struct random_planner {
    int64_t starved[REQUESTS + 1];  // by id: plans that will leave it out
    int skip;                       // one request in so many is chosen
} random_planner;

// Adds what a request may have in a pass of this schedule, in part or whole. Returns the rows.
static int choose_any(const llm42_view *v, llm42_plan *plan, const llm42_request *r, int room) {
    for (int kind = LLM42_KIND_DECODE; kind <= LLM42_KIND_WINDOW; kind++) {
        int most = llm42_choice_rows(v, r, (llm42_kind)kind, plan->schedule), rows = most;
        bool isolated = plan->schedule == LLM42_SCHEDULE_FIXED && v->desc->policy.prefill == LLM42_PREFILL_ISOLATED &&
                        r->verified && kind == LLM42_KIND_PROMPT && r->kv < r->prompt_count;
        if (!most || (isolated && plan->count) || (once_in(3) && kind != LLM42_KIND_PROMPT)) continue;
        if (!isolated && once_in(2)) rows = any(1, most);
        if (!isolated && rows > room) rows = room;
        if (rows < 1) continue;
        llm42_choose(plan, r, (llm42_kind)kind, rows == most && once_in(2) ? 0 : rows);
        return isolated ? 1 << 20 : rows;  // alone
    }
    return 0;
}

static llm42_result plan_any(void *user, const llm42_view *v, llm42_plan *plan, llm42_error *unused) {
    random_planner *p = user;
    const llm42_schedule of_dvr[] = {LLM42_SCHEDULE_FAST, v->replay, LLM42_SCHEDULE_INVARIANT};
    int kinds = v->desc->policy.prefill == LLM42_PREFILL_INVARIANT && v->replay == LLM42_SCHEDULE_FIXED ? 3 : 2;
    int most = v->replay == LLM42_SCHEDULE_INVARIANT && M > v->desc->token_budget ? M : v->desc->token_budget;
    (void)unused;
    for (int i = 0; i < v->running_count; i++)
        if (!p->starved[v->running[i]->id] && once_in(30)) p->starved[v->running[i]->id] = any(1, STARVED);
    for (int attempt = 0; !plan->count; attempt++) {
        plan->schedule = v->desc->policy.mode == LLM42_MODE_BATCH_INVARIANT ? LLM42_SCHEDULE_INVARIANT
                                                                            : of_dvr[any(0, kinds - 1)];
        bool replay = plan->schedule == v->replay;
        int room = plan->schedule == LLM42_SCHEDULE_FIXED ? M : replay ? most : v->desc->token_budget;
        for (int i = 0, at = any(0, v->running_count - 1); i < v->running_count && room > 0; i++, at++) {
            const llm42_request *r = v->running[at % v->running_count];
            bool left_out = p->starved[r->id] > 0 && attempt < 5;
            if (left_out || any(1, p->skip) > 1) continue;
            room -= choose_any(v, plan, r, room);
        }
    }
    for (int i = 0; i < v->running_count; i++) p->starved[v->running[i]->id] -= p->starved[v->running[i]->id] > 0;
    if (plan->schedule != LLM42_SCHEDULE_FIXED && plan->count && once_in(4))
        plan->shape = plan->schedule == v->replay ? most : v->desc->token_budget;
    return LLM42_OK;
}

static int64_t preempt_any(void *user, const llm42_view *v) {
    (void)user;
    return v->running[any(0, v->running_count - 1)]->id;
}

static int64_t admit_any(void *user, const llm42_view *v) {
    (void)user;
    if (v->running_count && once_in(3)) return 0;
    const llm42_request *r = v->waiting;
    for (const llm42_request *next; (next = llm42_next_waiting(v, r)) && next->arrival <= v->now && once_in(2);)
        r = next;
    return r->id;
}

// >>engines ------------------------------------------------------------------------------------------------------
static double pass_ms[2] = {1, 1.5}, pass_rows[2] = {1, 17}, pass_contexts[1] = {0};
static llm42_calibration calibration = {
    .name = "test", .devices = 1, .flips = {1, 1, (double[]){1}, (double[]){1}, (double[]){0.2}}, .flip_shape = 1};

static const llm42_sim_desc simulated = {.calibration = &calibration};
static const bool all[REQUESTS] = {true, true, true, true, true, true}, none[REQUESTS] = {false},
                  some[REQUESTS] = {true, false, true, true, false, true};

// What most engines here have in common: a model in fp32 on the CPU, or its shape on the simulator.
static llm42_engine_desc desc_of(bool sim, const llm42_planner *planner) {
    return (llm42_engine_desc)TEST_LIST(.model = sim ? shape : model, .planner = planner,
                                        .backend = sim ? llm42_backend_sim() : llm42_backend_cpu(),
                                        .backend_desc = sim ? (const void *)&simulated : TEST_THREADS(1),
                                        .numerics.compute = LLM42_DTYPE_FP32, .max_context = 64,
                                        .max_running = REQUESTS);
}

static llm42_policy modes_of(int mode, int verifier, int prefill) {
    return (llm42_policy)TEST_LIST(.mode = (llm42_mode)mode, .verifier = (llm42_verifier)verifier,
                                   .prefill = (llm42_prefill)prefill, .window = 4, .group = 4);
}

static struct {
    int64_t engines, compared, plans, rollbacks, preemptions, hits, windows;
    int64_t drafters, drafted, accepted, dropped, failures, stopped;
} seen;

// The reference: each request alone under the default planner, with the same prefill and, where it counts, budget. With
// the INVARIANT verifier it is the result of mode BATCH_INVARIANT.
typedef struct reference {
    bool sim;
    llm42_mode mode;
    llm42_prefill prefill;
    int budget;
    answer alone[REQUESTS];
} reference;

// >>engines with drafters ----------------------------------------------------------------------------------------
static void count_dropped(void *user, const llm42_event *e) {
    (void)user;
    seen.dropped += e->type == LLM42_EVENT_DRAFTED ? e->n : 0;  // what was proposed; report takes off what was judged
}

static void serve(const llm42_engine_desc *desc, const bool *marked, answer *out) {
    llm42_engine *engine = test_open(desc);
    submit_all(engine, marked, desc->draft_limit > 0);
    llm42_result result = LLM42_OK;
    int steps = 0;
    for (; result == LLM42_OK && steps < STEPS; steps++) result = llm42_engine_step(engine, &error);
    CHECK_MSG(result == LLM42_IDLE, "planner %d: %s", (int)seen.engines,
              result < 0 ? error.text : "the engine does not end");
    for (int i = 0; i < REQUESTS; i++) out[i] = take(engine, i + 1);
    llm42_stats s = llm42_engine_stats(engine);
    seen.plans += steps, seen.rollbacks += s.rollbacks, seen.preemptions += s.preemptions, seen.hits += s.prefix_hits;
    seen.windows += s.verifications;
    seen.drafted += s.drafted, seen.accepted += s.accepted, seen.failures += s.draft_failures;
    CHECK_INT(s.pages_free, desc->kv.pages);
    llm42_engine_close(engine);
}

// The beginning of an answer up to its first stop token.
static answer stopped(const answer *whole) {
    answer a = *whole;
    for (a.count = 0; a.count < whole->count;) {
        const int32_t token = whole->tokens[a.count++];
        if (token == stops[0] || token == stops[1]) break;
    }
    seen.stopped += a.count < whole->count;
    return a;
}

static const reference *reference_for(const llm42_engine_desc *d, bool sim) {
    static reference found[64];
    static int count;
    const bool one = d->policy.mode == LLM42_MODE_BATCH_INVARIANT || d->policy.verifier != LLM42_VERIFIER_FIXED;
    const llm42_mode mode = one ? LLM42_MODE_BATCH_INVARIANT : d->policy.mode;
    const llm42_prefill prefill = one ? LLM42_PREFILL_PACKED : d->policy.prefill;
    const int budget = prefill == LLM42_PREFILL_ISOLATED ? d->token_budget : 0;
    for (int i = 0; i < count; i++)
        if (found[i].sim == sim && found[i].mode == mode && found[i].prefill == prefill && found[i].budget == budget)
            return &found[i];
    reference *r = &found[count++];
    assert(count < 64);
    *r = (reference){.sim = sim, .mode = mode, .prefill = prefill, .budget = budget};
    const llm42_sim_desc truth = {.calibration = &calibration, .no_flips = true};
    llm42_engine_desc desc = desc_of(sim, NULL);
    desc.model = d->model, desc.backend = d->backend, desc.kv.pages = 8;
    if (sim) desc.backend_desc = &truth;
    desc.policy.mode = mode, desc.policy.window = M, desc.policy.group = 1, desc.policy.prefill = prefill;
    desc.policy.verifier = one ? LLM42_VERIFIER_INVARIANT : LLM42_VERIFIER_FIXED;
    desc.max_running = 1, desc.token_budget = d->token_budget;
    serve(&desc, all, r->alone);
    return r;
}

static random_drafter guess(const reference *want, int right, int fails) {
    stops[0] = want->alone[0].tokens[5], stops[1] = want->alone[3].tokens[9];
    return (random_drafter){.truth = want->alone, .right = right, .fails = fails};
}

static void random_engine(bool sim) {
    static const int windows[][2] = {{16, 1}, {8, 2}, {4, 4}, {2, 8}, {1, 16}};
    static const llm42_prefill prefills[] = {LLM42_PREFILL_PACKED, LLM42_PREFILL_INVARIANT, LLM42_PREFILL_ISOLATED};
    random_planner state = {.skip = any(1, 6)};
    const llm42_planner planner = TEST_LIST(.name = "random", .user = &state, .plan = plan_any, .preempt = preempt_any,
                                            .admit = once_in(2) ? admit_any : NULL);
    const int *w = windows[any(0, 4)];
    int page = 1 << any(0, 4);
    llm42_engine_desc desc = TEST_LIST(.model = sim ? shape : model,
                                       .backend = sim ? llm42_backend_sim() : llm42_backend_cpu(),
                                       .numerics.compute = LLM42_DTYPE_FP32,
                                       .policy.mode = once_in(8) ? LLM42_MODE_BATCH_INVARIANT : LLM42_MODE_DVR,
                                       .draft_ordinary = once_in(2), .max_context = 64, .max_running = any(1, REQUESTS),
                                       .kv.page_size = page, .policy.window = w[0], .policy.group = w[1],
                                       .policy.prefill = prefills[any(0, 2)],
                                       .policy.verifier = once_in(2) ? LLM42_VERIFIER_INVARIANT : LLM42_VERIFIER_FIXED,
                                       .experiment.bonus = once_in(2) ? LLM42_BONUS_OFF : LLM42_BONUS_ON,
                                       .token_budget = 6 + 8 * any(0, 3), .kv.prefix_cache = once_in(2),
                                       .experiment.inject_rate = once_in(2) ? 0.1 : 0, .planner = &planner,
                                       .backend_desc = sim ? (const void *)&simulated : TEST_THREADS(1));
    desc.kv.pages = (48 + page - 1) / page * any(1, 4);
    bool marked[REQUESTS];
    answer got[REQUESTS];
    for (int i = 0; i < REQUESTS; i++) marked[i] = !once_in(4);
    if (desc.policy.verifier == LLM42_VERIFIER_INVARIANT && desc.policy.mode == LLM42_MODE_DVR && once_in(3))
        desc.policy.mode = LLM42_MODE_HYBRID;
    const reference *want = reference_for(&desc, sim);
    random_drafter guesses = guess(want, 1 << any(0, 5), 1000);
    const llm42_drafter drafter = random_drafter_of(&guesses);
    if (any(1, 20) <= 11) desc.drafter = &drafter, desc.draft_limit = any(1, 15), desc.on_event = count_dropped;
    seen.engines++, seen.drafters += desc.drafter != NULL;
    serve(&desc, marked, got);
    int differ = 0;
    for (int i = 0; i < REQUESTS; i++) {
        if (!marked[i] && desc.policy.mode != LLM42_MODE_BATCH_INVARIANT) continue;
        const answer alone = desc.drafter ? stopped(&want->alone[i]) : want->alone[i];
        differ += !same(&alone, &got[i]);
        seen.compared++;
    }
    CHECK_MSG(!differ, "planner %d: %d requests differ", (int)seen.engines, differ);
    CHECK_INT(guesses.refused, 0);
}

static void report(const char *backend) {
    printf("  %s: %" PRId64 " random planners, %" PRId64 " steps, %" PRId64 " windows, %" PRId64 " rollbacks, %" PRId64
           " preemptions, %" PRId64 " cached tokens; %" PRId64 " requests compared\n",
           backend, seen.engines, seen.plans, seen.windows, seen.rollbacks, seen.preemptions, seen.hits, seen.compared);
    printf("  %s: %" PRId64 " random drafters, %" PRId64 " failed, %" PRId64 " drafts judged, %" PRId64
           " accepted, %" PRId64 " dropped, %" PRId64 " answers stopped\n",
           backend, seen.drafters, seen.failures, seen.drafted, seen.accepted, seen.dropped - seen.drafted,
           seen.stopped);
    CHECK(seen.drafters > seen.engines / 3 && seen.failures > 0 && seen.accepted > 0 && seen.stopped > 0);
    CHECK(seen.accepted < seen.drafted && seen.drafted < seen.dropped);
    CHECK(seen.rollbacks > 0 && seen.preemptions > 0 && seen.hits > 0 && seen.compared > 3 * seen.engines);
    memset(&seen, 0, sizeof seen);
}

TEST(random_planners_on_the_cpu) {
    chance = 1;
    for (int i = 0; i < PLANNERS; i++) random_engine(false);
    report("cpu");
}

TEST(random_planners_on_the_simulator) {
    chance = 2;
    for (int i = 0; i < PLANNERS; i++) random_engine(true);
    report("sim");
}

// The control: in mode BATCH_INVARIANT only drafts are compared with rows. All of them are called right here.
TEST(control_drafts_are_believed) {
    const llm42_backend backend = believing_backend();
    chance = 4;
    for (int wrong = 0; wrong < 2; wrong++) {
        llm42_engine_desc desc = desc_of(false, NULL);
        desc.policy.mode = LLM42_MODE_BATCH_INVARIANT, desc.draft_limit = 4, desc.kv.pages = 32;
        const reference *want = reference_for(&desc, false);
        random_drafter guesses = guess(want, wrong ? 1 : INT32_MAX, 0);
        const llm42_drafter drafter = random_drafter_of(&guesses);
        answer got[REQUESTS];
        int differ = 0;
        desc.backend = &backend, desc.drafter = &drafter;
        serve(&desc, all, got);
        for (int i = 0; i < REQUESTS; i++) {
            const answer alone = stopped(&want->alone[i]);
            differ += !same(&alone, &got[i]);
        }
        CHECK_MSG(wrong ? differ > 0 : !differ, "%s drafts, all believed: %d differ", wrong ? "wrong" : "right",
                  differ);
        if (wrong) printf("  where every draft is believed %d of %d requests differ, as they must\n", differ, REQUESTS);
    }
    memset(&seen, 0, sizeof seen);
}

// >>wait ---------------------------------------------------------------------------------------------------------
static void most_candidates(void *user, const llm42_event *e) {
    int *most = user;
    if (e->type == LLM42_EVENT_CANDIDATE) *most = LLM42__MAX(*most, e->info->candidates);
}

// WAIT waits for G windows, but not for windows that cannot come: one request alone is verified when it is ready.
TEST(wait_does_not_wait_for_windows_that_cannot_come) {
    int most = 0;
    llm42_engine_desc desc = desc_of(true, NULL);
    desc.policy = (llm42_policy){.verify = LLM42_VERIFY_WAIT, .window = 8, .group = 4};
    desc.on_event = most_candidates, desc.event_user = &most;
    llm42_engine *engine = test_open(&desc);
    test_submit(engine, (llm42_request_desc)TEST_LIST(.prompt = &(int32_t){1}, .prompt_count = 1, .max_new_tokens = 60,
                                                      .deterministic = true, .ignore_stop = true));
    test_finish(engine);
    CHECK_INT(most, 7);  // W - 1, and the bonus token makes a window
}

// >>hybrid -------------------------------------------------------------------------------------------------------
// Counts passes before which the ways were compared.
static void count_compared(void *user, const llm42_event *e) { *(int *)user += e->invariant_seconds > 0; }

// Serves all requests in mode HYBRID on the simulator; the backend estimates times, or they are measured. The result is
// always the true one. Returns the share of INVARIANT passes.
static double hybrid_share(bool estimates, double slowdown, const bool *marked) {
    const llm42_sim_desc slowed = {.calibration = &calibration, .invariant_slowdown = slowdown};
    llm42_backend backend = *llm42_backend_sim();
    int compared = 0;
    if (!estimates) backend.estimate = NULL;
    llm42_engine_desc desc = desc_of(true, NULL);
    desc.backend = &backend, desc.backend_desc = &slowed, desc.on_event = count_compared, desc.event_user = &compared;
    desc.policy = (llm42_policy){.mode = LLM42_MODE_HYBRID, .window = 8, .group = 2}, desc.kv.pages = 64;
    const reference *want = reference_for(
        &(llm42_engine_desc){.policy.mode = LLM42_MODE_BATCH_INVARIANT, .model = shape, .backend = llm42_backend_sim()},
        true);
    llm42_engine *engine = test_open(&desc);
    CHECK(llm42_engine_config(engine)->policy.verifier == LLM42_VERIFIER_INVARIANT);
    for (int round = 0; round < (estimates ? 1 : 16); round++) {  // times must be measured first
        int64_t id[REQUESTS];
        for (int i = 0; i < REQUESTS; i++) {
            llm42_request_desc r = request(i);
            r.deterministic = marked[i], r.key = i + 1;
            id[i] = test_submit(engine, r);
        }
        CHECK_INT(llm42_engine_run(engine, &error), LLM42_OK);
        for (int i = 0; i < REQUESTS; i++) {
            answer got = take(engine, id[i]);
            CHECK(!marked[i] || same(&want->alone[i], &got));
        }
    }
    llm42_stats s = llm42_engine_stats(engine);
    llm42_engine_close(engine);
    CHECK(s.passes[LLM42_SCHEDULE_FIXED] == 0 && compared > 0);
    return (double)s.passes[LLM42_SCHEDULE_INVARIANT] /
           (double)(s.passes[LLM42_SCHEDULE_FAST] + s.passes[LLM42_SCHEDULE_INVARIANT]);
}

// Where both schedules take the same time and every request is verified, few FAST passes run: those that are measured.
// The first INVARIANT passes have prompts; they say little about passes that only decode.
TEST(hybrid_learns_from_passes_of_the_same_kind) {
    enum { MANY = 16, PROMPT = 300 };
    llm42_backend backend = *llm42_backend_sim();
    backend.estimate = NULL;
    llm42_engine_desc desc = desc_of(true, NULL);
    desc.backend = &backend, desc.preset = LLM42_PRESET_BEST, desc.numerics.compute = LLM42_DTYPE_DEFAULT;
    desc.max_context = 512, desc.max_running = MANY, desc.token_budget = 1024;
    static int32_t prompt[PROMPT];
    llm42_engine *engine = test_open(&desc);
    llm42_request_desc r = {.prompt = prompt, .prompt_count = PROMPT, .max_new_tokens = 100};
    r.deterministic = r.ignore_stop = true;
    for (int i = 0; i < MANY; i++) test_submit(engine, r);
    llm42_stats s = test_finish(engine);
    CHECK_MSG(s.passes[LLM42_SCHEDULE_FAST] <= 3 && s.passes[LLM42_SCHEDULE_INVARIANT] >= 100,
              "%d FAST passes, %d INVARIANT ones", (int)s.passes[LLM42_SCHEDULE_FAST],
              (int)s.passes[LLM42_SCHEDULE_INVARIANT]);
}

TEST(hybrid_takes_the_cheaper_way) {
    static const bool one[REQUESTS] = {true};
    for (int estimates = 0; estimates < 2; estimates++) {
        CHECK(hybrid_share(estimates, 1, all) > 0.8);
        CHECK(hybrid_share(estimates, 1, one) > 0.5);
        CHECK(hybrid_share(estimates, 20, one) < 0.5);
        double some = hybrid_share(estimates, 1.3, all);
        printf("  HYBRID, INVARIANT passes 1.3 times as long, %s: %.0f%% of the passes are INVARIANT\n",
               estimates ? "estimated" : "measured", 100 * some);
    }
    test_refused(&(llm42_engine_desc)TEST_LIST(.model = model, .policy.mode = LLM42_MODE_HYBRID,
                                               .policy.verifier = LLM42_VERIFIER_FIXED),
                 LLM42_INVALID, "llm42_engine_desc.policy.verifier: FIXED: mode HYBRID needs INVARIANT");
}

// The comparison can fail: without the KV overwrite some request's bits hang on its planner.
TEST(control_without_kv_overwrite) {
    for (int verifier = LLM42_VERIFIER_FIXED; verifier <= LLM42_VERIFIER_INVARIANT; verifier++) {
        chance = 3;
        int differ = 0;
        for (int k = 0; k < 40; k++) {
            random_planner state = {.skip = 2};
            const llm42_planner planner = {.name = "random", .user = &state, .plan = plan_any, .preempt = preempt_any};
            llm42_engine_desc desc = desc_of(false, &planner);
            desc.policy.mode = LLM42_MODE_DVR, desc.policy.verifier = (llm42_verifier)verifier;
            desc.policy.prefill = LLM42_PREFILL_PACKED, desc.policy.window = 8, desc.policy.group = 2;
            desc.token_budget = 256;  // FAST passes may be padded to this
            desc.kv.pages = 24, desc.experiment.keep_fast_kv = true;
            answer got[REQUESTS];
            const reference *want = reference_for(&desc, false);
            serve(&desc, all, got);
            for (int i = 0; i < REQUESTS; i++) differ += !same(&want->alone[i], &got[i]);
        }
        CHECK_MSG(differ > 0, "leaving out the KV overwrite changed nothing");
        printf("  without the KV overwrite %d of %d requests differ, as they must\n", differ, 40 * REQUESTS);
    }
    memset(&seen, 0, sizeof seen);
}

// >>cheats -------------------------------------------------------------------------------------------------------
// A planner that is the default one but for one rule that it breaks, where it can, as long as `armed`.
typedef struct cheat {
    const char *rule;
    bool armed;
    int64_t request;
    int broke;
} cheat;

static bool breaks(const cheat *c, const char *rule) { return c->armed && !strcmp(c->rule, rule); }

static const llm42_request *first_of(const llm42_view *v, llm42_state state, bool verify) {
    for (int i = 0; i < v->running_count; i++)
        if (v->running[i]->state == state && v->running[i]->verified == verify) return v->running[i];
    return NULL;
}

// Breaks one rule in a plan that is otherwise right. Sets the request that the message must name.
static void plan_cheat(cheat *c, const llm42_view *v, llm42_plan *plan) {
    const llm42_request *verified = first_of(v, LLM42_STATE_DECODE, true),
                        *ordinary = first_of(v, LLM42_STATE_DECODE, false);
    const llm42_request *prompt = first_of(v, LLM42_STATE_PREFILL, true);
    bool fast = plan->schedule == LLM42_SCHEDULE_FAST && plan->count;
    int count = plan->count;
    c->request = 0;
    if (breaks(c, "SCHEDULE"))
        plan->schedule = v->replay == LLM42_SCHEDULE_FIXED ? LLM42_SCHEDULE_INVARIANT : LLM42_SCHEDULE_FIXED;
    else if (breaks(c, "RUNNING") && v->waiting && fast)
        llm42_choose(plan, v->waiting, LLM42_KIND_PROMPT, 0), c->request = v->waiting->id;
    else if (breaks(c, "ONCE") && fast)
        c->request = plan->choice[0].request, plan->choice[plan->count++] = plan->choice[0];
    else if (breaks(c, "DECODE") && prompt && fast)
        llm42_choose(plan, prompt, LLM42_KIND_DECODE, 1), c->request = prompt->id;
    else if (breaks(c, "KIND") && fast) plan->choice[0].kind = (llm42_kind)7, c->request = plan->choice[0].request;
    else if (breaks(c, "PROMPT") && ordinary && fast)
        plan->choice[0] = (llm42_choice){ordinary->id, LLM42_KIND_PROMPT, 1}, plan->count = 1,
        c->request = ordinary->id;
    else if (breaks(c, "PREFILL") && prompt && fast)
        llm42_choose(plan, prompt, LLM42_KIND_PROMPT, 0), c->request = prompt->id;
    else if (breaks(c, "ISOLATED") && prompt && ordinary && plan->schedule == LLM42_SCHEDULE_FIXED && plan->count == 1)
        llm42_choose(plan, ordinary, LLM42_KIND_DECODE, 1), c->request = plan->choice[0].request;
    else if (breaks(c, "WINDOW") && verified && !verified->candidates)
        plan->schedule = v->replay, plan->count = 0, llm42_choose(plan, verified, LLM42_KIND_WINDOW, 0),
        c->request = verified->id;
    else if (breaks(c, "REPLAY") && verified && verified->candidates)
        plan->schedule = LLM42_SCHEDULE_FAST, plan->count = 0, llm42_choose(plan, verified, LLM42_KIND_WINDOW, 0),
        c->request = verified->id;
    else if (breaks(c, "ROWS") && fast) plan->choice[0].rows = 2, c->request = plan->choice[0].request;
    else if (breaks(c, "SHAPE") && plan->schedule == LLM42_SCHEDULE_FIXED)
        plan->shape = v->desc->policy.window * v->desc->policy.group - 1;
    else if (breaks(c, "WORK")) plan->count = 0, c->request = v->running[0]->id;
    else return;
    c->broke += c->armed && (count || plan->count || breaks(c, "WORK"));
}

static llm42_result plan_and_cheat(void *user, const llm42_view *v, llm42_plan *plan, llm42_error *e) {
    llm42_result result = llm42_planner_default()->plan(NULL, v, plan, e);
    plan_cheat(user, v, plan);
    return result;
}

static int64_t preempt_and_cheat(void *user, const llm42_view *v) {
    cheat *c = user;
    if (!breaks(c, "PREEMPT")) return llm42_planner_default()->preempt(NULL, v);
    c->broke++;
    return c->request = 4242;
}

static int64_t admit_and_cheat(void *user, const llm42_view *v) {
    cheat *c = user;
    if (breaks(c, "ADMIT") && !v->running_count) return c->broke++, c->request = v->waiting->id, 0;
    if (!breaks(c, "ARRIVED")) return v->waiting->id;
    c->broke++;
    return c->request = 4242;
}

// What a refused plan must leave as it is.
typedef struct snapshot {
    llm42_stats stats;
    llm42_request request[REQUESTS];
} snapshot;

static snapshot look(const llm42_engine *engine) {
    snapshot s;
    memset(&s, 0, sizeof s);
    s.stats = llm42_engine_stats(engine);
    for (int i = 0; i < REQUESTS; i++) s.request[i] = *llm42_engine_request(engine, i + 1);
    return s;
}

static void refuse(const char *rule, llm42_engine_desc given) {
    cheat c = {.rule = rule, .armed = true};
    const llm42_planner planner = {
        .name = "cheat", .user = &c, .plan = plan_and_cheat, .preempt = preempt_and_cheat, .admit = admit_and_cheat};
    static const bool marked[REQUESTS] = {false, true, true, true, true, true};
    llm42_engine_desc desc = desc_of(false, &planner);
    desc.policy = given.policy, desc.policy.window = 8, desc.policy.group = 2;
    desc.max_running = 4, desc.token_budget = 20, desc.kv = given.kv;
    if (!desc.kv.pages) desc.kv.pages = 64;
    llm42_engine *engine = test_open(&desc);
    submit_all(engine, marked, false);
    char name[64], about[32] = "";
    snprintf(name, sizeof name, "breaks rule %s (", rule);
    int refused = 0;
    llm42_result result = LLM42_OK;
    for (int steps = 0; steps < STEPS && result != LLM42_IDLE; steps++) {
        error = (llm42_error){0};
        int free_before = llm42_engine_stats(engine).pages_free;
        result = llm42_engine_step(engine, &error);
        if (result >= 0) continue;
        CHECK_INT(result, LLM42_PLAN);
        CHECK_CONTAINS(error.text, "planner cheat");
        CHECK_CONTAINS(error.text, name);
        if (c.request) snprintf(about, sizeof about, "): request %" PRId64, c.request);
        CHECK_CONTAINS(error.text, about);
        if (!strcmp(rule, "SCHEDULE"))
            CHECK_CONTAINS(error.text, desc.policy.verifier == LLM42_VERIFIER_FIXED
                                           ? ": plan.schedule is invariant (3): set it to fast (1) or fixed (2)"
                                           : ": plan.schedule is fixed (2): set it to fast (1) or invariant (3)");
        if (!refused) printf("  %s\n", error.text);
        snapshot before = look(engine);
        CHECK_INT(llm42_engine_step(engine, &error), LLM42_PLAN);  // again, from the same state
        snapshot after = look(engine);
        CHECK_MSG(memcmp(&before, &after, sizeof before) == 0, "%s: a refused plan changed something", rule);
        if (!strcmp(rule, "PREEMPT")) CHECK_INT(before.stats.pages_free, free_before);
        refused++;
        c.armed = false;
    }
    CHECK_MSG(refused == 1 && c.broke == 2, "%s: refused %d times, broken %d times", rule, refused, c.broke);
    CHECK_INT(result, LLM42_IDLE);  // and the engine goes on to its end
    desc.policy.mode = LLM42_MODE_DVR;
    const reference *want = reference_for(&desc, false);
    for (int i = 1; i < REQUESTS; i++) {
        answer got = take(engine, i + 1);
        CHECK_MSG(same(&want->alone[i], &got), "%s: request %d differs", rule, i + 1);
    }
    llm42_engine_close(engine);
}

TEST(cheating_planners_are_refused_by_rule) {
    static const char *const every[] = {"SCHEDULE", "RUNNING", "ONCE",  "WINDOW", "REPLAY",
                                        "ROWS",     "WORK",    "ADMIT", "KIND",   "ARRIVED"};
    static const char *const of_fixed[] = {"DECODE", "PROMPT", "PREFILL", "SHAPE"};
    const llm42_engine_desc fixed = {.policy.verifier = LLM42_VERIFIER_FIXED,
                                     .policy.verify = LLM42_VERIFY_EAGER,
                                     .policy.prefill = LLM42_PREFILL_PACKED};
    llm42_engine_desc desc = fixed;
    for (size_t i = 0; i < sizeof every / sizeof *every; i++) {
        refuse(every[i], fixed);
        refuse(every[i], (llm42_engine_desc){0});
    }
    for (size_t i = 0; i < sizeof of_fixed / sizeof *of_fixed; i++) refuse(of_fixed[i], fixed);
    desc.policy.prefill = LLM42_PREFILL_ISOLATED;
    refuse("ISOLATED", desc);
    for (int which = 0; which < 2; which++) {
        desc = which ? fixed : (llm42_engine_desc){0};
        desc.kv.page_size = 1, desc.kv.pages = 60;
        refuse("PREEMPT", desc);
    }
}

// A rule for a whole plan: one row too many, though each choice may have its own.
static llm42_result plan_too_many(void *user, const llm42_view *v, llm42_plan *plan, llm42_error *unused) {
    (void)user, (void)unused;
    plan->schedule = v->replay;
    for (int i = 0; i < v->running_count; i++) llm42_choose(plan, v->running[i], LLM42_KIND_PROMPT, 0);
    return LLM42_OK;
}

static llm42_result plan_fails(void *user, const llm42_view *v, llm42_plan *plan, llm42_error *e) {
    (void)user, (void)v, (void)plan;
    *e = (llm42_error){LLM42_MEMORY, "the planner is out of memory"};
    return LLM42_MEMORY;
}

// What a function of the user's own must not do: each gives one error, and the engine goes on.
enum { RETURNS, WITHOUT_TEXT, TOO_MANY, LESS_THAN_NONE, MOVES_CHOICES, CHANGES_ROOM, ODDITIES };
typedef struct odd {
    int kind;
    llm42_result returned;
} odd;

static llm42_result plan_oddly(void *user, const llm42_view *v, llm42_plan *plan, llm42_error *e) {
    static llm42_choice own[64];
    const odd *o = user;
    llm42_result result = llm42_planner_default()->plan(NULL, v, plan, e);
    if (o->kind == RETURNS || o->kind == WITHOUT_TEXT) return o->returned;
    if (o->kind == TOO_MANY)
        for (int i = 0; i < 100; i++) llm42_choose(plan, v->running[0], LLM42_KIND_PROMPT, 1);
    if (o->kind == LESS_THAN_NONE) plan->count = -3;
    if (o->kind == MOVES_CHOICES) plan->choice = own;
    if (o->kind == CHANGES_ROOM) plan->room = 64;
    return result;
}

TEST(what_a_planner_returns_is_checked) {
    static const struct {
        odd planner;
        llm42_result result;
        const char *text;
    } cases[] = {
        {{RETURNS, LLM42_IDLE}, LLM42_PLAN, "planner odd: plan returned 1, which is neither LLM42_OK nor an error"},
        {{RETURNS, (llm42_result)7}, LLM42_PLAN, "planner odd: plan returned 7"},
        {{WITHOUT_TEXT, LLM42_MEMORY}, LLM42_MEMORY, "planner odd: plan returned LLM42_MEMORY and no text"},
        {{TOO_MANY, LLM42_OK}, LLM42_PLAN, "odd breaks rule ONCE (a request is in a plan at most once): request 1"},
        {{LESS_THAN_NONE, LLM42_OK}, LLM42_PLAN, "planner odd breaks rule WORK"},
        {{MOVES_CHOICES, LLM42_OK}, LLM42_PLAN, "planner odd: plan has moved .choice"},
        {{CHANGES_ROOM, LLM42_OK}, LLM42_PLAN, "planner odd: plan has moved .choice or changed .room"}};
    odd chosen;
    llm42_planner planner = {.name = "odd", .user = &chosen};
    const llm42_engine_desc desc = desc_of(false, &planner);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        chosen = cases[i].planner;
        planner.plan = plan_oddly;
        llm42_engine *engine = test_open(&desc);
        test_submit(engine, request(1));
        CHECK_ERROR(llm42_engine_step(engine, &error), cases[i].result, cases[i].text);
        CHECK_INT(error.result, cases[i].result);
        CHECK_INT(llm42_engine_run(engine, NULL), cases[i].result);  // without a place for the text
        CHECK_INT(llm42_engine_stats(engine).returned_tokens, 0);
        planner.plan = llm42_planner_default()->plan;
        CHECK_INT(test_finish(engine).finished, 1);
    }
}

// After a failed replay pass all KV of its window is undefined. A planner that verifies less of it is refused.
static int failures;
static llm42_result fail_once(void *state, const llm42_pass *pass, llm42_error *e) {
    bool window = !pass->check && pass->schedule != LLM42_SCHEDULE_FAST && pass->rows > 2 && pass->row[0].flags;
    if (window && !failures++) return llm42_fail(e, LLM42_BACKEND, "failed");
    return llm42_backend_cpu()->run(state, pass, e);
}

static llm42_result plan_a_part(void *user, const llm42_view *v, llm42_plan *plan, llm42_error *e) {
    const llm42_request *r = v->running[0];
    const bool *part = user;
    if (!r->must_verify || !*part) return llm42_planner_default()->plan(NULL, v, plan, e);
    plan->schedule = v->replay;
    llm42_choose(plan, r, LLM42_KIND_WINDOW, 1);
    return LLM42_OK;
}

static void a_window_fails(llm42_verifier verifier) {
    bool part = true;
    llm42_backend backend = *llm42_backend_cpu();
    const llm42_planner planner = {.name = "part", .user = &part, .plan = plan_a_part};
    llm42_engine_desc desc = desc_of(false, &planner);
    desc.backend = &backend, desc.policy = (llm42_policy){.verifier = verifier, .window = 4, .group = 1};
    backend.run = fail_once, failures = 0;
    llm42_engine *engine = test_open(&desc);
    test_submit(engine, request(3));
    CHECK_INT(llm42_engine_run(engine, &error), LLM42_BACKEND);
    CHECK_ERROR(llm42_engine_run(engine, &error), LLM42_PLAN, "planner part breaks rule FAILED");
    CHECK_CONTAINS(error.text, ": request 1");
    part = false;
    CHECK_INT(test_finish(engine).finished, 1);
}

TEST(a_failed_window_is_verified_whole) {
    a_window_fails(LLM42_VERIFIER_FIXED);
    a_window_fails(LLM42_VERIFIER_INVARIANT);
}

// A CPU backend of which one function answers what it must not.
static llm42_result answer_of_run, answer_of_open;
static llm42_result odd_run(void *state, const llm42_pass *pass, llm42_error *e) {
    return answer_of_run && !pass->check ? answer_of_run : llm42_backend_cpu()->run(state, pass, e);
}
static llm42_result odd_open(void **state, const llm42_backend_desc *desc, llm42_error *e) {
    return answer_of_open ? answer_of_open : llm42_backend_cpu()->open(state, desc, e);
}
TEST(what_a_backend_returns_is_checked) {
    llm42_backend backend = *llm42_backend_cpu();
    backend.name = "odd", backend.run = odd_run, backend.open = odd_open;
    llm42_engine_desc desc = desc_of(false, NULL);
    desc.backend = &backend, desc.policy.window = 4, desc.policy.group = 1;
    answer_of_open = LLM42_IDLE;
    test_refused(&desc, LLM42_BACKEND, "backend odd: open returned 1");
    answer_of_open = LLM42_OK;
    llm42_engine *engine = test_open(&desc);
    test_submit(engine, request(3));
    answer_of_run = LLM42_IDLE;
    CHECK_ERROR(llm42_engine_run(engine, &error), LLM42_BACKEND, "backend odd: run returned 1");
    answer_of_run = LLM42_IO;
    CHECK_ERROR(llm42_engine_run(engine, &error), LLM42_IO, "backend odd: run returned LLM42_IO and no text");
    answer_of_run = LLM42_OK;
    CHECK_INT(test_finish(engine).finished, 1);
}

static void a_plan_is_too_large(llm42_verifier verifier, llm42_prefill prefill) {
    llm42_planner planner = {.name = "large", .plan = plan_too_many};
    llm42_engine_desc desc = desc_of(false, &planner);
    desc.max_running = 4, desc.token_budget = 20;
    desc.policy = (llm42_policy){.verifier = verifier, .prefill = prefill, .window = 8, .group = 2};
    llm42_engine *engine = test_open(&desc);
    for (int i = 2; i < 4; i++) test_submit(engine, request(i));
    CHECK_ERROR(llm42_engine_step(engine, &error), LLM42_PLAN, "planner large breaks rule ROWS");
    planner.plan = plan_fails;
    CHECK_INT(llm42_engine_step(engine, &error), LLM42_MEMORY);
    CHECK_STR(error.text, "the planner is out of memory");
    planner.plan = llm42_planner_default()->plan;
    test_finish(engine);
    planner.plan = NULL;
    test_refused(&desc, LLM42_INVALID, "llm42_engine_desc.planner");
    planner = (llm42_planner){.name = "two words", .plan = plan_fails};
    test_refused(&desc, LLM42_INVALID, "one word");
    planner = (llm42_planner){.plan = plan_fails};
    test_refused(&desc, LLM42_INVALID, "name");
}

TEST(plans_that_are_too_large_and_planners_that_fail) {
    a_plan_is_too_large(LLM42_VERIFIER_FIXED, LLM42_PREFILL_PACKED);
    a_plan_is_too_large(LLM42_VERIFIER_INVARIANT, LLM42_PREFILL_INVARIANT);
}

// >>view ---------------------------------------------------------------------------------------------------------
typedef struct told {
    int64_t plans, rows, last_passes;
    double seconds;
    bool agrees;
} told;

static llm42_result plan_and_look(void *user, const llm42_view *v, llm42_plan *plan, llm42_error *e) {
    told *t = user;
    t->agrees &= v->desc->policy.window == 8 && v->window_ready == 7 && plan->count == 0 &&
                 plan->room >= v->running_count;
    int64_t waiting = 0;
    for (const llm42_request *r = v->waiting; r; r = llm42_next_waiting(v, r), waiting++)
        t->agrees &= r->state == LLM42_STATE_WAITING;
    t->agrees &= waiting == v->waiting_count && v->passes == t->plans;
    for (int i = 0; i < v->running_count; i++)
        t->agrees &= v->running[i]->state == LLM42_STATE_PREFILL || v->running[i]->state == LLM42_STATE_DECODE;
    return llm42_planner_default()->plan(NULL, v, plan, e);
}

static void told_of(void *user, const llm42_view *v, const llm42_plan *plan, double seconds) {
    told *t = user;
    t->plans++;
    t->seconds += seconds;
    for (int i = 0; i < plan->count; i++) t->rows += plan->choice[i].rows;
    t->agrees &= v->last.rows > 0 && v->last.schedule == plan->schedule && plan->shape >= v->last.rows;
}

TEST(planners_see_the_engine_as_it_is) {
    told t = {.agrees = true};
    const llm42_planner planner = {.name = "looks", .user = &t, .plan = plan_and_look, .postprocess = told_of};
    llm42_engine_desc desc = desc_of(false, &planner);
    desc.max_running = 3, desc.policy.window = 8, desc.policy.group = 2;
    llm42_engine *engine = test_open(&desc);
    submit_all(engine, all, false);
    llm42_stats s = test_finish(engine);
    CHECK(t.agrees);
    CHECK_INT(t.plans,
              s.passes[LLM42_SCHEDULE_FAST] + s.passes[LLM42_SCHEDULE_FIXED] + s.passes[LLM42_SCHEDULE_INVARIANT]);
    CHECK_INT(t.rows, s.rows[LLM42_SCHEDULE_FAST] + s.rows[LLM42_SCHEDULE_FIXED] + s.rows[LLM42_SCHEDULE_INVARIANT]);
    CHECK_NEAR(t.seconds, s.busy[LLM42_SCHEDULE_FAST] + s.busy[LLM42_SCHEDULE_FIXED] + s.busy[LLM42_SCHEDULE_INVARIANT],
               1e-9);
}

// A planner gives the built-in one a copy of the view, with a desc and requests of its own making: G is 1, or more than
// the engine's. It changes when windows are verified, and no result, in every mode, on each backend.
typedef struct wrapper {
    int group, copied;
} wrapper;

static llm42_result plan_wrapped(void *user, const llm42_view *view, llm42_plan *plan, llm42_error *e) {
    wrapper *w = user;
    llm42_engine_desc *desc = malloc(sizeof *desc);
    llm42_view *copy = malloc(sizeof *copy);
    llm42_request *first = malloc(sizeof *first);  // blocks of their own: a sanitizer sees what is read beside them
    *desc = *view->desc, *copy = *view;
    desc->policy.group = w->group;
    copy->desc = desc;
    if (view->waiting) {
        *first = *view->waiting;
        for (const llm42_request *r = first; r; r = llm42_next_waiting(copy, r)) w->copied++;
    }
    llm42_result result = llm42_planner_default()->plan(NULL, copy, plan, e);
    free(desc), free(copy), free(first);
    return result;
}

TEST(a_wrapped_planner_changes_no_result) {
    int copied = 0;
    for (int sim = 0; sim < 2; sim++)
        for (int mode = LLM42_MODE_DVR; mode <= LLM42_MODE_HYBRID; mode++)
            for (int replay = LLM42_VERIFIER_FIXED; replay <= LLM42_VERIFIER_INVARIANT; replay++) {
                if (mode == LLM42_MODE_HYBRID && replay == LLM42_VERIFIER_FIXED) continue;
                answer want[REQUESTS], got[REQUESTS];
                wrapper w = {.group = replay == LLM42_VERIFIER_FIXED ? 1 : 1 + mode % 2};
                const llm42_planner planner = {.name = "wrapped", .user = &w, .plan = plan_wrapped};
                llm42_engine_desc desc = desc_of(sim, NULL);
                desc.policy = modes_of(mode, replay, LLM42_PREFILL_PACKED);
                desc.numerics.compute = LLM42_DTYPE_DEFAULT, desc.kv.pages = 16, desc.max_running = REQUESTS / 2;
                const bool *which = mode == LLM42_MODE_NONDETERMINISTIC ? none : all;
                serve(&desc, which, want);
                desc.planner = &planner;
                serve(&desc, which, got);
                copied += w.copied;
                for (int i = 0; i < REQUESTS && which == all; i++)
                    CHECK_MSG(same(&want[i], &got[i]), "sim %d, mode %d, replay %d: request %d differs", sim, mode,
                              replay, i);
            }
    CHECK(copied > 100);
}

// Whatever a copy of the view says, the built-in planner fills in a plan that the engine runs, or refuses by a rule.
static llm42_result plan_made_up(void *user, const llm42_view *view, llm42_plan *plan, llm42_error *e) {
    llm42_engine_desc desc = *view->desc;
    llm42_view copy = *view;
    copy.desc = &desc;
    switch (*(int *)user) {
    case 0: copy.window_ready = 0; break;
    case 1: copy.window_ready = 3; break;
    case 2: copy.window_ready = 30; break;
    case 3: copy.running_count = 0; break;
    case 4: desc.policy.group = 0; break;
    case 5: desc.policy.window = 0; break;
    case 6: desc.token_budget = 1, desc.policy.chunked_prefill = LLM42_CHUNKED_OFF; break;
    case 7: desc.policy.deadline = INT32_MAX; break;
    case 8:  // more choices than a plan has room for
        for (int i = 0; i < 4; i++) llm42_plan_ordinary(&copy, plan);
        llm42_plan_prompts(&copy, plan);
        return LLM42_OK;
    default: copy.last.schedule = view->replay, copy.last.prompts = 1, copy.passes = INT64_MAX; break;
    }
    return llm42_planner_default()->plan(NULL, &copy, plan, e);
}

TEST(a_made_up_view_ends_in_a_rule_or_in_the_same_result) {
    int refused = 0, served = 0;
    for (int how = 0; how < 10; how++)
        for (int preset = LLM42_PRESET_DVR; preset <= LLM42_PRESET_PAPER; preset++) {
            answer want[REQUESTS];
            const llm42_planner planner = {.name = "made_up", .user = &how, .plan = plan_made_up};
            llm42_engine_desc desc = desc_of(true, NULL);
            desc.policy = (llm42_policy){.window = 4, .group = 4, .deadline = INT32_MAX};
            desc.preset = (llm42_preset)preset, desc.kv.pages = 32;
            serve(&desc, all, want);
            desc.planner = &planner;
            llm42_engine *engine = test_open(&desc);
            submit_all(engine, all, false);
            llm42_result result = LLM42_OK;
            for (int steps = 0; result == LLM42_OK && steps < STEPS; steps++)
                result = llm42_engine_step(engine, &error);
            if (result == LLM42_PLAN) CHECK_CONTAINS(error.text, "planner made_up breaks rule ");
            for (int i = 0; i < REQUESTS && result == LLM42_IDLE; i++) {
                const answer got = take(engine, i + 1);
                CHECK_MSG(same(&want[i], &got), "view %d, preset %d: request %d differs", how, preset, i);
            }
            CHECK(result == LLM42_PLAN || result == LLM42_IDLE);
            refused += result == LLM42_PLAN, served += result == LLM42_IDLE;
            llm42_engine_close(engine);
        }
    CHECK(refused > 0 && served > 0);
}

// >>parts --------------------------------------------------------------------------------------------------------
// A planner that calls the parts of a plan in any order, between choices by chance, some of which break a rule.
typedef struct mixer {
    bool harm;  // some choices break a rule
    int64_t calls, held, added, kept, refused;
} mixer;

// Whether a plan obeys the rules of a plan, as llm42.h states them.
static bool would_run(const llm42_view *v, const llm42_plan *plan) {
    const llm42_policy *p = &v->desc->policy;
    const bool fixed = plan->schedule == LLM42_SCHEDULE_FIXED;
    int all = p->window * p->group, rows = 0;
    if (!plan->count) return true;
    if (!(llm42_policy_schedules(p) >> plan->schedule & 1) || plan->count > v->running_count) return false;
    if (!fixed) all = plan->schedule == v->replay ? LLM42__MAX(all, v->desc->token_budget) : v->desc->token_budget;
    for (int i = 0; i < plan->count; i++) {
        const llm42_choice *c = &plan->choice[i];
        const llm42_request *r = NULL;
        for (int k = 0; k < v->running_count; k++) r = v->running[k]->id == c->request ? v->running[k] : r;
        for (int k = 0; k < i; k++) r = plan->choice[k].request == c->request ? NULL : r;
        if (!r || (unsigned)c->kind >= LLM42_KIND_COUNT) return false;
        const int most = llm42_choice_rows(v, r, c->kind, plan->schedule), own = c->rows ? c->rows : most;
        const bool prompt = r->verified && c->kind == LLM42_KIND_PROMPT && r->kv < r->prompt_count;
        if (own < 1 || own > most || (r->must_verify && own < most)) return false;
        if (fixed && prompt && p->prefill == LLM42_PREFILL_ISOLATED) return plan->count == 1 && own == most;
        rows += own;
    }
    return rows <= all;
}

static double any_order(const llm42_view *v, const llm42_request *r) { return (double)((r->id + v->passes) % 3) - 0.5; }

// A part leaves a plan that runs if it got one, with what it got, and adds nothing to a plan that does not run.
static void add_part(mixer *m, const llm42_view *v, llm42_plan *plan) {
    llm42_engine_desc desc = *v->desc;
    llm42_view copy = *v;
    llm42_choice held[REQUESTS + 1];
    const llm42_plan was = *plan;
    const bool ran = would_run(v, plan);
    const int part = any(0, 2);
    copy.desc = &desc;
    if (once_in(3)) desc.policy.group = any(1, 2 * desc.policy.group);
    if (once_in(3)) desc.policy.verify = LLM42_VERIFY_WAIT;
    memcpy(held, plan->choice, sizeof *held * (size_t)plan->room);
    if (part == 0) llm42_plan_windows(&copy, plan, any_order);
    if (part == 1) llm42_plan_prompts(&copy, plan);
    if (part == 2) llm42_plan_ordinary(&copy, plan);
    const bool runs = would_run(v, plan);
    CHECK_MSG(runs || (!ran && plan->count == was.count), "part %d: %d choices, then %d, which do not run", part,
              was.count, plan->count);
    CHECK_MSG(!was.count || !was.schedule || plan->schedule == was.schedule, "part %d changes the schedule", part);
    CHECK_MSG(ran || !was.schedule || plan->count == was.count, "part %d adds to a plan that does not run", part);
    if (was.count > 0 && was.count <= was.room)
        CHECK_MSG(!memcmp(held, plan->choice, sizeof *held * (size_t)was.count), "part %d changes a choice", part);
    m->calls++, m->held += was.count > 0, m->kept += !ran, m->added += was.count > 0 && plan->count > was.count;
}

static void add_choice(const llm42_view *v, llm42_plan *plan) {
    const llm42_request *r = v->running[any(0, v->running_count - 1)];
    const llm42_kind kind = (llm42_kind)any(LLM42_KIND_DECODE, LLM42_KIND_WINDOW);
    if (!plan->count && once_in(2)) plan->schedule = once_in(2) ? v->replay : (llm42_schedule)any(1, 3);
    const int most = llm42_choice_rows(v, r, kind, plan->schedule ? plan->schedule : v->replay);
    if (!most || plan->count >= plan->room) return;
    for (int i = 0; i < plan->count; i++)
        if (plan->choice[i].request == r->id) return;
    llm42_choose(plan, r, kind, once_in(2) ? 0 : any(1, most));
}

static void do_harm(const llm42_view *v, llm42_plan *plan) {
    const llm42_request unknown = {.id = 4242}, *r = v->running[0];
    const int how = any(0, 6);
    if (how == 0) llm42_choose(plan, &unknown, LLM42_KIND_WINDOW, 0);
    if (how == 1 && v->waiting) llm42_choose(plan, v->waiting, LLM42_KIND_PROMPT, 0);
    if (how == 2) llm42_choose(plan, r, (llm42_kind)7, 0);
    if (how == 3) llm42_choose(plan, r, LLM42_KIND_PROMPT, any(-2, 40));
    if (how == 4) plan->schedule = (llm42_schedule)any(0, 4);
    for (int i = any(0, 3); how == 5 && plan->count < plan->room + i;) llm42_choose(plan, r, LLM42_KIND_DECODE, 1);
    if (how == 6 && plan->count > 0) llm42_choose(plan, r, plan->choice[0].kind, 0);
}

static llm42_result plan_of_parts(void *user, const llm42_view *v, llm42_plan *plan, llm42_error *e) {
    mixer *m = user;
    for (int n = any(1, 6); n > 0; n--) {
        if (m->harm && once_in(8)) do_harm(v, plan);
        else if (once_in(3)) add_choice(v, plan);
        else add_part(m, v, plan);
    }
    if (would_run(v, plan) && plan->count) return LLM42_OK;
    if (m->harm && plan->count && once_in(4)) return m->refused++, LLM42_OK;
    plan->count = plan->schedule = 0;
    return llm42_planner_default()->plan(NULL, v, plan, e);
}

// Serves with random sequences. Returns how many of the plans were refused, each by a rule.
static int64_t serve_with_parts(mixer *m, llm42_engine_desc desc, const answer *want) {
    const llm42_planner planner = {.name = "parts", .user = m, .plan = plan_of_parts};
    const bool every = desc.policy.mode == LLM42_MODE_BATCH_INVARIANT,
               *which = desc.policy.mode == LLM42_MODE_NONDETERMINISTIC ? none : some;
    llm42_result result = LLM42_OK;
    int64_t refused = 0;
    desc.planner = &planner;
    llm42_engine *engine = test_open(&desc);
    submit_all(engine, which, false);
    for (int steps = 0; result != LLM42_IDLE && steps < STEPS; steps++) {
        result = llm42_engine_step(engine, &error);
        refused += result == LLM42_PLAN;
        if (result < 0) CHECK_CONTAINS(error.text, "planner parts breaks rule ");
    }
    CHECK_INT(result, LLM42_IDLE);
    for (int i = 0; i < REQUESTS; i++) {
        const answer got = take(engine, i + 1);
        CHECK_MSG((!every && !which[i]) || same(&want[i], &got), "request %d differs", i);
    }
    llm42_engine_close(engine);
    return refused;
}

TEST(parts_of_a_plan_compose) {
    const llm42_sim_desc truth = {.calibration = &calibration, .no_flips = true};
    static reference want;
    mixer m = {0};
    int64_t refused = 0;
    llm42_engine_desc desc = desc_of(true, NULL);
    desc.backend_desc = &truth, desc.kv.pages = 16;
    serve(&desc, all, want.alone);
    desc.backend_desc = &simulated;
    chance = 6;
    for (int n = 0; n < (TEST_SLOW ? 2000 : 20000); n++) {
        desc.policy = (llm42_policy)
            TEST_LIST(.mode = (llm42_mode)any(LLM42_MODE_DVR, LLM42_MODE_HYBRID),
                      .verifier = (llm42_verifier)any(LLM42_VERIFIER_FIXED, LLM42_VERIFIER_INVARIANT),
                      .verify = (llm42_verify)any(LLM42_VERIFY_EAGER, LLM42_VERIFY_WAIT),
                      .prefill = (llm42_prefill)any(LLM42_PREFILL_PACKED, LLM42_PREFILL_INVARIANT),
                      .chunked_prefill = (llm42_chunked)any(LLM42_CHUNKED_ON, LLM42_CHUNKED_OFF), .window = any(1, 8),
                      .group = any(1, 4));
        if (desc.policy.mode == LLM42_MODE_HYBRID) desc.policy.verifier = LLM42_VERIFIER_INVARIANT;
        desc.token_budget = desc.policy.chunked_prefill == LLM42_CHUNKED_OFF ? 64 : any(REQUESTS, 40);
        desc.experiment.bonus = once_in(2) ? LLM42_BONUS_OFF : LLM42_BONUS_ON;
        desc.max_running = any(1, REQUESTS);
        m.harm = once_in(2);
        random_drafter guesses = guess(&want, 4, 0);
        const llm42_drafter drafter = random_drafter_of(&guesses);
        desc.drafter = once_in(3) ? &drafter : NULL, desc.draft_limit = 5;
        refused += serve_with_parts(&m, desc, want.alone);
    }
    printf("  %" PRId64 " parts, %" PRId64 " of them on what a plan holds, %" PRId64 " added to it; %" PRId64
           " got a plan that does not run; %" PRId64 " plans refused\n",
           m.calls, m.held, m.added, m.kept, refused);
    CHECK(m.added > m.held / 50 && m.kept > 0);
    CHECK(refused > 0 && refused == m.refused);
    memset(&seen, 0, sizeof seen);
}

// A request that runs is not in the queue: nothing waits behind it, also when what did has gone.
static llm42_result plan_and_ask(void *user, const llm42_view *v, llm42_plan *plan, llm42_error *e) {
    for (int i = 0; i < v->running_count; i++) *(int *)user += llm42_next_waiting(v, v->running[i]) != NULL;
    return llm42_planner_default()->plan(NULL, v, plan, e);
}

TEST(nothing_waits_behind_a_request_that_runs) {
    int found = 0;
    const llm42_planner planner = {.name = "asks", .user = &found, .plan = plan_and_ask};
    llm42_engine_desc desc = desc_of(true, &planner);
    desc.max_running = 1;
    llm42_engine *engine = test_open(&desc);
    for (int i = 0; i < 3; i++) test_submit(engine, request(0));
    CHECK(llm42_engine_step(engine, &error) == LLM42_OK);
    CHECK(llm42_engine_cancel(engine, 2, &error) == LLM42_OK && llm42_engine_release(engine, 2, &error) == LLM42_OK);
    test_finish(engine);
    CHECK_INT(found, 0);
}

// The planners of the examples obey the rules in every mode, replay and prefill, and change no result.
TEST(planners_of_the_examples_in_every_mode) {
    for (int n = 1; planner_names[n]; n++)
        for (int mode = LLM42_MODE_DVR; mode <= LLM42_MODE_HYBRID; mode++)
            for (int replay = LLM42_VERIFIER_FIXED; replay <= LLM42_VERIFIER_INVARIANT; replay++)
                for (int prefill = LLM42_PREFILL_PACKED; prefill <= LLM42_PREFILL_INVARIANT; prefill++) {
                    if (mode == LLM42_MODE_HYBRID && replay == LLM42_VERIFIER_FIXED) continue;
                    answer want[REQUESTS], got[REQUESTS];
                    llm42_engine_desc desc = desc_of(true, NULL);
                    desc.policy = modes_of(mode, replay, prefill), desc.kv.pages = 16;
                    const bool *which = mode == LLM42_MODE_NONDETERMINISTIC ? none : some;
                    serve(&desc, which, want);
                    desc.planner = planner_find(planner_names[n]);
                    serve(&desc, which, got);
                    for (int i = 0; i < REQUESTS; i++)
                        CHECK_MSG(!which[i] || same(&want[i], &got[i]),
                                  "%s: mode %d, replay %d, prefill %d: request %d differs", planner_names[n], mode,
                                  replay, prefill, i);
                }
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    for (int s = LLM42_SCHEDULE_FAST; s <= LLM42_SCHEDULE_INVARIANT; s++)
        for (int k = 0; k < LLM42_KIND_COUNT; k++)
            calibration.cost[s][k] = (llm42_table){2, 1, pass_rows, pass_contexts, pass_ms};
    // One layer, wide enough for FAST and FIXED to differ; fp32, so that no rounding hides it.
    static const test_shape small = {"llama", 64, 64, 1, 2, 1, 32, 64, 0, true, "BF16", "\"rope_theta\": 10000.0, ", 0};
    model = test_model(&small), shape = test_load("shape:tiny");
    make_prompts();
    RUN_ALL();
    llm42_model_free(model);
    llm42_model_free(shape);
    return test_end("test_planner");
}
