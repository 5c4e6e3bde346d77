// A fleet: a run cut into pieces by llm42_engine_run_until is the uncut run to the bit; each replica does what an
// engine does that gets the same requests at once; the router's choices are those of a search through all events; and a
// request's tokens do not depend on the replica.
#define TEST_ALL
#include "test.h"
#define LLM42_CALIBRATION_IMPLEMENTATION
#define LLM42_DRAFT_IMPLEMENTATION
#include "examples/util/llm42_calibration.h"

#define LLM42_TRACE_IMPLEMENTATION
#include "examples/planners.h"
#include "examples/util/llm42_trace.h"
#include "sweep/lib/fleet.h"

enum { REQUESTS = 120, LONGEST_OUT = 60, FLEETS = TEST_SLOW ? 20 : 80, CUT_RUNS = TEST_SLOW ? 40 : 300 };

static llm42_model *model;
static llm42_calibration *calibration;
static llm42_error error;
static uint64_t chance;

static int any(int from, int to) { return test_random_int(&chance, from, to); }
static bool once_in(int n) { return any(1, n) == 1; }

// >>settings -----------------------------------------------------------------------------------------------------
// An engine with policies taken by chance, small enough that requests wait and are preempted.
static llm42_engine_desc any_desc(const llm42_sim_desc *sim) {
    static const char *const planners[] = {"default", "default", "every", "deadline"};
    llm42_engine_desc d = TEST_LIST(.model = model, .backend = llm42_backend_sim(), .backend_desc = sim,
                                    .planner = planner_find(planners[any(0, 3)]),
                                    .policy.mode = once_in(6) ? LLM42_MODE_BATCH_INVARIANT : LLM42_MODE_DVR,
                                    .max_context = 400, .max_running = once_in(2) ? 4 : 16, .token_budget = 512,
                                    .policy.window = 1 << any(0, 5), .policy.group = any(1, 6),
                                    .policy.verifier = (llm42_verifier)any(1, 2),
                                    .policy.verify = (llm42_verify)any(1, 2),
                                    .policy.prefill = (llm42_prefill)any(1, 3),
                                    .experiment.bonus = (llm42_bonus)any(1, 2),
                                    .policy.chunked_prefill = (llm42_chunked)any(1, 2), .kv.prefix_cache = once_in(3));
    if (d.policy.mode == LLM42_MODE_DVR && d.policy.verifier == LLM42_VERIFIER_INVARIANT && once_in(2))
        d.policy.mode = LLM42_MODE_HYBRID;
    d.kv.pages = once_in(2) ? 60 : 600;
    return d;
}

// >>run until ----------------------------------------------------------------------------------------------------
// What a run has done: a hash of its events with their times, and when its passes began.
typedef struct heard {
    uint64_t hash;
    int64_t events, passes;
    double latest_begin;
} heard;

static void hear(void *user, const llm42_event *e) {
    heard *h = user;
    uint64_t bits[2];
    memcpy(&bits[0], &e->time, 8);
    memcpy(&bits[1], &e->begin, 8);
    if (e->type == LLM42_EVENT_SUBMITTED) return;
    for (int i = 0; i < 2; i++) h->hash = llm42_hash(h->hash ^ bits[i]);
    h->hash = llm42_hash(h->hash ^ ((uint64_t)e->type << 56 | (uint64_t)e->request << 32 | (uint64_t)(uint32_t)e->n));
    for (int i = 0; e->tokens && i < e->n; i++) h->hash = llm42_hash(h->hash ^ (uint64_t)e->tokens[i]);
    if (e->type == LLM42_EVENT_PASS) h->passes++, h->latest_begin = fmax(h->latest_begin, e->begin);
    h->events++;
}

typedef struct timed {
    llm42_request_desc desc;
    double arrival;
} timed;

// Requests of many shapes; they arrive in order, or all at once.
static void any_requests(timed *requests, int count) {
    static int32_t prompt[400];
    double at = 0, gap = once_in(4) ? 0 : 1e-3 * any(1, 300);
    for (int i = 0; i < 400; i++) prompt[i] = i / 32;
    for (int i = 0; i < count; i++) {
        at += once_in(5) ? 0 : gap * any(0, 100) / 50;
        requests[i] = (timed)TEST_LIST(.desc = TEST_LIST(.prompt = prompt + 32 * any(0, 2), .prompt_count = any(1, 300),
                                                         .max_new_tokens = any(1, LONGEST_OUT), .ignore_stop = true,
                                                         .deterministic = once_in(2)),
                                       .arrival = fmax(at, DBL_MIN));
        requests[i].desc.arrival = requests[i].arrival;
    }
}

static llm42_engine *open_heard(llm42_engine_desc desc, heard *h) {
    *h = (heard){0};
    desc.on_event = hear;
    desc.event_user = h;
    return test_open(&desc);
}

static void run_uncut(const llm42_engine_desc *desc, const timed *requests, int count, heard *h) {
    llm42_engine *engine = open_heard(*desc, h);
    for (int i = 0; i < count; i++) test_submit(engine, requests[i].desc);
    test_finish(engine);
}

// Cut at times taken by chance, and at arrivals. late: requests are submitted only when their time has come.
static void run_cut(const llm42_engine_desc *desc, const timed *requests, int count, bool late, heard *h) {
    llm42_engine *engine = open_heard(*desc, h);
    llm42_result result = LLM42_OK;
    double until = 0;
    for (int i = 0; i < count && !late; i++) test_submit(engine, requests[i].desc);
    for (int i = 0; result >= 0 && (i < count || result != LLM42_IDLE);) {
        bool next = i < count && (once_in(3) || until >= requests[i].arrival);
        until = next ? fmax(until, requests[i].arrival) : until + 1e-3 * any(0, 40);
        if (i < count && until > requests[i].arrival) until = requests[i].arrival;
        h->latest_begin = 0;
        result = llm42_engine_run_until(engine, until, &error);
        if (!CHECK_MSG(result >= 0, "%s", error.text)) break;
        CHECK(h->latest_begin < until || h->latest_begin == 0);
        CHECK(llm42_engine_now(engine) >= until);
        for (; i < count && requests[i].arrival <= until; i++)
            if (late) test_submit(engine, requests[i].desc), result = LLM42_OK;
        const llm42_stats s = llm42_engine_stats(engine);
        if (!late) CHECK((result == LLM42_IDLE) == (s.finished == count));
    }
    llm42_engine_close(engine);
}

TEST(a_run_in_pieces_is_the_uncut_run) {
    int64_t events = 0, other_seed = 0;
    chance = 11;
    for (int i = 0; i < CUT_RUNS; i++) {
        llm42_sim_desc sim = {.calibration = calibration, .seed = 1 + (uint64_t)i, .flip_scale = 5};
        llm42_engine_desc desc = any_desc(&sim);
        timed requests[30];
        heard uncut, cut, late, other;
        any_requests(requests, 30);
        run_uncut(&desc, requests, 30, &uncut);
        run_cut(&desc, requests, 30, false, &cut);
        run_cut(&desc, requests, 30, true, &late);
        CHECK_MSG(uncut.hash == cut.hash, "run %d: %lld events, cut %lld", i, (long long)uncut.events,
                  (long long)cut.events);
        CHECK_MSG(uncut.hash == late.hash, "run %d: %lld events, submitted late %lld", i, (long long)uncut.events,
                  (long long)late.events);
        sim.seed += 1000;  // the control: the hash sees what differs
        run_uncut(&desc, requests, 30, &other);
        other_seed += uncut.hash != other.hash;
        events += uncut.events;
    }
    CHECK_INT(other_seed, CUT_RUNS);
    CHECK(events > 1000 * CUT_RUNS);
}

static llm42_engine *inside;
static llm42_result inside_result;
static void run_inside(void *user, const llm42_event *e) {
    (void)user;
    if (e->type == LLM42_EVENT_PASS) inside_result = llm42_engine_run_until(inside, 1, NULL);
}

TEST(run_until_waits_and_refuses) {
    llm42_sim_desc sim = {.calibration = calibration};
    llm42_engine_desc desc = {.model = model, .backend = llm42_backend_sim(), .backend_desc = &sim, .max_context = 400};
    desc.on_event = run_inside;
    inside = test_open(&desc);
    CHECK_INT(llm42_engine_run_until(inside, 2.5, &error), LLM42_IDLE);  // nothing to do: it waits
    CHECK(llm42_engine_now(inside) == 2.5);
    CHECK_INT(llm42_engine_run_until(inside, 1, &error), LLM42_IDLE);  // a time that is over
    CHECK(llm42_engine_now(inside) == 2.5);
    CHECK_INT(llm42_engine_run_until(inside, (double)INFINITY, &error), LLM42_IDLE);
    CHECK(llm42_engine_now(inside) == 2.5);
    CHECK_ERROR(llm42_engine_run_until(inside, (double)NAN, &error), LLM42_INVALID,
                "llm42_engine_run_until: seconds: must not be NaN");
    const int32_t prompt[8] = {1, 2, 3};
    llm42_request_desc request = {.prompt = prompt, .prompt_count = 8, .max_new_tokens = 5, .arrival = 4};
    test_submit(inside, request);
    CHECK_INT(llm42_engine_run_until(inside, 3, &error), LLM42_OK);  // still to arrive
    CHECK(llm42_engine_now(inside) == 3);
    CHECK_INT(llm42_engine_run_until(inside, 4, &error), LLM42_OK);  // no pass begins at that time
    CHECK(llm42_engine_now(inside) == 4);
    CHECK_INT(llm42_engine_stats(inside).passes[LLM42_SCHEDULE_FAST], 0);
    CHECK_INT(llm42_engine_run_until(inside, nextafter(4, 5), &error), LLM42_OK);  // one pass, to its end
    CHECK_INT(llm42_engine_stats(inside).passes[LLM42_SCHEDULE_FAST], 1);
    CHECK(llm42_engine_now(inside) > 4.001);
    CHECK_INT(inside_result, LLM42_INVALID);
    CHECK_INT(llm42_engine_run_until(inside, (double)INFINITY, &error), LLM42_IDLE);
    CHECK_INT(llm42_engine_stats(inside).returned_tokens, 5);
    llm42_engine_close(inside);
}

// >>least --------------------------------------------------------------------------------------------------------
TEST(the_tree_finds_the_first_of_the_smallest) {
    chance = 5;
    for (int count = 1; count <= 70; count++) {
        least l = {0};
        if (!CHECK(least_open(&l, count))) return;
        for (int change = 0; change < 400; change++) {
            least_set(&l, any(0, count - 1), once_in(4) ? (double)INFINITY : any(0, 9));
            int first = 0;
            for (int i = 1; i < count; i++)
                if (l.key[i] < l.key[first]) first = i;
            if (!isinf(l.key[first]) && !CHECK_INT(least_first(&l), first)) break;
            if (isinf(l.key[first])) CHECK(isinf(l.key[least_first(&l)]));
        }
        least_close(&l);
    }
}

TEST(replicas_set_apart) {
    CHECK_INT(fleet_apart(ROUND_ROBIN, 8, 3, 0.5), 0);
    CHECK_INT(fleet_apart(LEAST_TOKENS, 8, 0, 0.5), 0);
    CHECK_INT(fleet_apart(DETERMINISTIC_APART, 8, 0, 0.5), 4);
    CHECK_INT(fleet_apart(DETERMINISTIC_APART, 8, 3, 0.5), 3);
    CHECK_INT(fleet_apart(DETERMINISTIC_APART, 8, 0, 0.01), 1);
    CHECK_INT(fleet_apart(DETERMINISTIC_APART, 8, 0, 0.99), 7);
    CHECK_INT(fleet_apart(DETERMINISTIC_APART, 8, 0, 0), 0);
    CHECK_INT(fleet_apart(DETERMINISTIC_APART, 8, 3, 1), 0);
    CHECK_INT(fleet_apart(DETERMINISTIC_APART, 1, 0, 0.5), 0);
}

// >>fleets -------------------------------------------------------------------------------------------------------
// What requests have returned, from the events of all replicas.
typedef struct returned {
    int count[REQUESTS];
    double time[REQUESTS][LONGEST_OUT + 1];  // of each event that released tokens
    int tokens[REQUESTS][LONGEST_OUT + 1];   // in it
    double finished[REQUESTS];
    uint64_t hash[REQUESTS];  // of the tokens
} returned;

static void note(void *user, const llm42_event *e) {
    returned *r = user;
    if (!e->info) return;
    int i = (int)(intptr_t)e->info->user;
    if (e->type == LLM42_EVENT_FINISHED) r->finished[i] = e->time;
    if (e->type != LLM42_EVENT_COMMITTED) return;
    r->time[i][r->count[i]] = e->time;
    r->tokens[i][r->count[i]++] = e->n;
    for (int k = 0; k < e->n; k++) r->hash[i] = llm42_hash(r->hash[i] ^ (uint64_t)e->tokens[k]);
}

typedef struct trial {
    serve_plan plan;
    llm42_sim_desc sim;
    fleet_desc desc;
    char qps[32];
    uint64_t seed;
} trial;

static void any_trial(trial *t, uint64_t seed) {
    *t = (trial){.seed = seed};
    t->sim = (llm42_sim_desc){.calibration = calibration, .seed = seed, .flip_scale = 5};
    t->desc.replicas = any(1, 7);
    t->desc.router = (fleet_router)any(ROUND_ROBIN, DETERMINISTIC_APART);
    t->desc.ratio = (double[]){0, 0.1, 0.4, 1}[any(0, 3)];
    t->desc.engine = any_desc(&t->sim);
    t->desc.set_apart = t->desc.engine;
    if (t->desc.engine.policy.mode == LLM42_MODE_BATCH_INVARIANT && t->desc.router == DETERMINISTIC_APART &&
        t->desc.ratio < 1 && t->desc.replicas > 1)
        t->desc.engine.policy.mode = LLM42_MODE_NONDETERMINISTIC;
    t->desc.apart = fleet_apart(t->desc.router, t->desc.replicas,
                                t->desc.replicas > 1 ? any(0, t->desc.replicas - 1) : 0, t->desc.ratio);
    t->plan = (serve_plan)TEST_LIST(.model = model, .workload = "uniform:300x60", .requests = REQUESTS,
                                    .max_context = t->desc.engine.max_context,
                                    .max_running = t->desc.engine.max_running,
                                    .random_prompts = t->desc.engine.kv.prefix_cache);
    if (once_in(5)) snprintf(t->qps, sizeof t->qps, "offline");
    else snprintf(t->qps, sizeof t->qps, "%d", any(1, 60) * t->desc.replicas);
}

static bool run_fleet(const trial *t, fleet *f, returned *r) {
    fleet_desc desc = t->desc;
    memset(r, 0, sizeof *r);
    *f = (fleet){.v = {.s = &t->plan, .submit_late = t->desc.engine.planner == llm42_planner_default()}};
    desc.engine.on_event = note;
    desc.engine.event_user = r;
    return CHECK_MSG(fleet_open(f, &desc, t->qps, t->seed, &error) == LLM42_OK && fleet_serve(f, &error) == LLM42_OK,
                     "%s", error.text);
}

// Tokens of unfinished requests before request `next` on a replica, at this time.
static int64_t outstanding(const fleet *f, const returned *r, int replica, int next, double time) {
    int64_t sum = 0;
    for (int i = 0; i < next; i++) {
        const served *s = &f->v.collected.served[i];
        if (s->replica != replica || r->finished[i] <= time) continue;
        sum += s->input;
        for (int k = 0; k < r->count[i]; k++) sum += r->time[i][k] <= time ? r->tokens[i][k] : 0;
    }
    return sum;
}

// The router again, by a search through everything that has happened.
static void check_choices(const trial *t, const fleet *f, const returned *r) {
    bool splits = t->desc.apart > 0 && t->desc.apart < t->desc.replicas;
    for (int i = 0; i < REQUESTS; i++) {
        const served *s = &f->v.collected.served[i];
        int first = 0, end = t->desc.replicas, best = i % t->desc.replicas;
        if (splits && s->deterministic) end = t->desc.apart;
        else if (splits) first = t->desc.apart;
        if (t->desc.router != ROUND_ROBIN) {
            int64_t least_so_far = INT64_MAX;
            for (int k = first; k < end; k++) {
                int64_t tokens = outstanding(f, r, k, i, s->arrival);
                if (tokens < least_so_far) least_so_far = tokens, best = k;
            }
        }
        if (!CHECK_INT(s->replica, best)) return;
    }
}

// An engine that gets the requests of a replica at once, and no others.
static void check_replica(const trial *t, const fleet *f, const returned *r, int replica) {
    llm42_engine_desc desc = replica < t->desc.apart ? t->desc.set_apart : t->desc.engine;
    workload load;
    int64_t ids[REQUESTS] = {0};
    static returned alone;
    memset(&alone, 0, sizeof alone);
    desc.on_event = note;
    desc.event_user = &alone;
    llm42_engine *engine = test_open(&desc);
    CHECK(workload_open(&load, t->plan.workload, t->qps, t->seed, &error) == LLM42_OK);
    for (int i = 0; i < REQUESTS; i++) {
        int32_t prompt[400] = {0};
        workload_request w;
        workload_next(&load, &w);
        if (f->v.collected.served[i].replica != replica) continue;
        if (t->plan.random_prompts) workload_prompt(&load, &w, model->config.vocab, prompt);
        llm42_request_desc request = TEST_LIST(.prompt = prompt, .prompt_count = w.input_tokens,
                                               .max_new_tokens = w.output_tokens, .ignore_stop = true,
                                               .deterministic = f->v.collected.served[i].deterministic,
                                               .arrival = fmax(w.arrival_s, DBL_MIN), .key = i + 1,
                                               .user = (void *)(intptr_t)i);
        ids[i] = test_submit(engine, request);
    }
    CHECK_MSG(llm42_engine_run(engine, &error) == LLM42_OK, "%s", error.text);
    for (int i = 0; i < REQUESTS; i++) {
        if (!ids[i]) continue;
        const llm42_request *q = llm42_engine_request(engine, ids[i]);
        const served *s = &f->v.collected.served[i];
        bool equal = s->ttft == q->first_token - q->arrival && s->e2e == q->last_token - q->arrival &&
                     s->rollbacks == q->rollbacks && s->recomputed == q->recomputed && r->hash[i] == alone.hash[i] &&
                     r->count[i] == alone.count[i];
        if (!CHECK_MSG(equal, "replica %d: request %d: end %.17g, alone %.17g", replica, i, s->e2e,
                       q->last_token - q->arrival))
            break;
    }
    workload_close(&load);
    llm42_engine_close(engine);
}

TEST(fleets_by_brute_force) {
    static returned r;
    int routed[3] = {0}, preempted = 0, split = 0;
    chance = 3;
    for (int i = 0; i < FLEETS; i++) {
        trial t;
        fleet f;
        any_trial(&t, 100 + (uint64_t)i);
        if (run_fleet(&t, &f, &r)) {
            check_choices(&t, &f, &r);
            for (int k = 0; k < t.desc.replicas; k++) check_replica(&t, &f, &r, k);
            for (int k = 0; k < t.desc.replicas; k++)
                preempted += llm42_engine_stats(f.replica[k].engine).preemptions > 0;
        }
        routed[t.desc.router]++;
        split += fleet_splits(&f);
        fleet_close(&f);
    }
    CHECK(routed[0] > FLEETS / 8 && routed[1] > FLEETS / 8 && routed[2] > FLEETS / 8);
    CHECK(preempted > 0);
    CHECK(split > FLEETS / 20);
}

// The tokens of a deterministic request depend on the request alone. Without a key they would depend on its replica.
TEST(tokens_do_not_depend_on_the_replica) {
    static returned r[2];
    chance = 8;
    for (int i = 0; i < FLEETS / 4; i++) {
        trial t;
        fleet f;
        any_trial(&t, 500 + (uint64_t)i);
        t.desc.ratio = 1, t.desc.apart = 0, t.desc.engine.policy.mode = LLM42_MODE_DVR;
        for (int k = 0; k < 2; k++) {
            t.desc.replicas = k ? any(2, 6) : 1;
            run_fleet(&t, &f, &r[k]);
            fleet_close(&f);
        }
        CHECK(!memcmp(r[0].hash, r[1].hash, sizeof r[0].hash));
        t.seed = t.sim.seed = t.seed + 1;  // the control: tokens of another seed
        run_fleet(&t, &f, &r[1]);
        fleet_close(&f);
        CHECK(memcmp(r[0].hash, r[1].hash, sizeof r[0].hash));
    }
}

// The key is all that a simulated request's tokens depend on; by default it is the id.
TEST(a_key_names_a_request) {
    llm42_sim_desc sim = {.calibration = calibration};
    llm42_engine_desc desc = {.model = model, .backend = llm42_backend_sim(), .backend_desc = &sim, .max_context = 400};
    const int32_t prompt[4] = {1, 2, 3, 4};
    const int64_t keys[] = {0, 7, 1, 7};
    const llm42_request *q[4];
    llm42_engine *engine = test_open(&desc);
    llm42_request_desc request = {.prompt = prompt, .prompt_count = 4, .max_new_tokens = 20, .deterministic = true};
    for (int i = 0; i < 4; i++) request.key = keys[i], test_submit(engine, request);
    CHECK_INT(llm42_engine_run(engine, &error), LLM42_OK);
    for (int i = 0; i < 4; i++) q[i] = llm42_engine_request(engine, i + 1);
    CHECK(!memcmp(q[0]->tokens, q[2]->tokens, 80));  // id 1, and key 1
    CHECK(!memcmp(q[1]->tokens, q[3]->tokens, 80));
    CHECK(memcmp(q[0]->tokens, q[1]->tokens, 80));
    llm42_engine_close(engine);
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    model = test_load("shape:llama-3.1-8b");
    test_need(CHECK_MSG(!llm42_calibration_load(&calibration, "tests/calibration.tsv", &error), "%s", error.text));
    RUN_ALL();
    llm42_calibration_free(calibration);
    llm42_model_free(model);
    return test_end("test_fleet");
}
