// fleet.h: one run of a workload on a fleet: several engines (replicas) behind a router. Simulated engines only,
// because each replica needs a clock of its own.
//
// A request is routed at its arrival, once and for all. The router sees what a router of real servers sees at that
// time: for each replica, the requests that it has sent there and that are not finished, the tokens of their prompts,
// and the tokens that these requests have returned. A pass that is still running has returned nothing. The router never
// sees how long an output will be, nor anything of a replica's batch or KV cache.
//
// How it runs: llm42_engine_run_until runs a replica up to a time. It is called only when the router needs to know what
// the replica has returned. Before a request is routed, every replica whose clock is behind the arrival is run up to
// the arrival. A pass that begins before the arrival may end after it. What such a pass returns is kept apart until the
// router's time has reached the end of the pass (replica.later). A tree finds the replicas that have something to do
// before the arrival, so that not all replicas are looked at. The work for an arrival depends on what has happened
// since the arrival before. round_robin needs to know nothing of replicas. There a replica runs each time it has got
// FLEET_STRIDE requests. Replicas do not know of each other, so the result depends neither on the order in which they
// run nor on how far they run at a time.
#ifndef FLEET_H
#define FLEET_H

#include "sweep/lib/planner.h"
#include "sweep/lib/draft.h"
#include "sweep/lib/serve.h"

typedef enum fleet_router { ROUND_ROBIN, LEAST_TOKENS, DETERMINISTIC_APART } fleet_router;
static const char *const fleet_routers[] = {"round_robin", "least_tokens", "deterministic_apart", NULL};

// FLEET_STRIDE: requests that a replica gets under round_robin before it runs on.
enum { FLEET_MOST = 4096, FLEET_STRIDE = 16 };

// >>least --------------------------------------------------------------------------------------------------------
// Finds the smallest of some numbers, and of equal ones the first. It is a tree whose nodes hold the smaller of their
// two children. Numbers change one at a time.
typedef struct least {
    int leaves;    // a power of two
    double *key;   // [leaves]; INFINITY: takes no part
    int *smaller;  // [2 leaves]: an index of key; node i has the children 2 i and 2 i + 1, the root is 1
} least;

static inline int least_first(const least *l) { return l->smaller[1]; }

static inline void least_set(least *l, int index, double key) {
    l->key[index] = key;
    for (int node = (l->leaves + index) / 2; node; node /= 2) {
        int left = l->smaller[2 * node], right = l->smaller[2 * node + 1];
        l->smaller[node] = l->key[right] < l->key[left] ? right : left;
    }
}

// False: out of memory. All numbers are infinite at first.
static inline bool least_open(least *l, int count) {
    for (l->leaves = 2; l->leaves < count;) l->leaves *= 2;
    l->key = malloc((size_t)l->leaves * sizeof *l->key);
    l->smaller = malloc(2 * (size_t)l->leaves * sizeof *l->smaller);
    if (!l->key || !l->smaller) return false;
    for (int i = 0; i < l->leaves; i++) l->key[i] = (double)INFINITY, l->smaller[l->leaves + i] = i;
    for (int node = l->leaves - 1; node; node--) l->smaller[node] = l->smaller[2 * node];
    return true;
}

static inline void least_close(least *l) {
    free(l->key);
    free(l->smaller);
}

// >>fleet --------------------------------------------------------------------------------------------------------
typedef struct fleet fleet;

typedef struct replica {
    fleet *f;
    int index;
    llm42_engine *engine;
    own_planner own;
    sim_drafter drafter;
    collect_running running;
    int64_t tokens;           // outstanding at the router's time: prompts and returned tokens of unfinished requests
    int64_t later;            // what a pass that ends after the router's time will add to .tokens then
    workload_request *queue;  // stb_ds array: requests routed here that the engine has not got yet, from `next` on
    int64_t next;
    int64_t waiting;  // requests that the engine has got and never admitted
    int stride;       // round_robin: requests since it ran last
} replica;

typedef struct fleet_desc {
    int replicas;
    fleet_router router;
    int apart;     // deterministic_apart: the first so many replicas serve the deterministic requests, the others the
                   // rest. 0, or all of them: every replica serves every request. See fleet_apart.
    double ratio;  // share of requests that are deterministic
    llm42_engine_desc engine, set_apart;  // of a replica, and of one of those set apart. If .on_event is set, it gets
                                          // all events, with the request's index in the workload as .user
    const char *planner;       // its text in --planner, for planners of your own; NULL: as the engines' descs say
    llm42_oracle_desc oracle;  // of each replica's drafter; .truth is NULL: there is none
} fleet_desc;

struct fleet {
    serving v;  // the workload and the figures; v.engine is NULL
    fleet_desc desc;
    replica *replica;
    double now;           // the router's clock: the arrival of the request that is routed, INFINITY after the last one
    least clock;          // of replicas: when they have something to do next, INFINITY if nothing
    least tokens[2];      // of replicas: outstanding tokens; of those set apart (or all), and of the others
    int turn;             // round_robin: the next one
    int64_t runs;         // calls of llm42_engine_run_until, for the progress line
    llm42_result result;  // the first error inside an event
    llm42_error error;
};

// How many replicas deterministic_apart sets apart. asked: so many; 0: the share of requests that are deterministic, at
// least one and not all. If all requests are of one kind, or there is one replica, none is set apart.
static inline int fleet_apart(fleet_router router, int replicas, int asked, double ratio) {
    if (router != DETERMINISTIC_APART || replicas < 2 || ratio <= 0 || ratio >= 1) return 0;
    int share = asked ? asked : (int)floor(ratio * replicas + 0.5);
    return share < 1 ? 1 : share > replicas - 1 ? replicas - 1 : share;
}

static inline bool fleet_splits(const fleet *f) { return f->desc.apart > 0 && f->desc.apart < f->desc.replicas; }

// Gives the engine requests that wait at the replica. As many more wait in the engine as in `serve`, for the reason
// that stands there; the rest takes no memory for its tokens yet.
static inline llm42_result replica_submit(replica *r, llm42_error *error) {
    fleet *f = r->f;
    while (r->next < arrlen(r->queue) && (!f->v.submit_late || r->waiting <= f->v.s->max_running)) {
        const workload_request *w = &r->queue[r->next++];
        llm42_request_desc desc = serving_request(&f->v, w);
        desc.key = w->index + 1;  // so that its flips do not depend on where it was sent
        desc.user = (void *)(intptr_t)w->index;
        r->waiting++;
        TRY(llm42_engine_submit(r->engine, &desc, NULL, error));
    }
    if (r->next == arrlen(r->queue)) {
        arrsetlen(r->queue, 0);
        r->next = 0;
    }
    return LLM42_OK;
}

static inline void replica_event(void *user, const llm42_event *event) {
    replica *r = user;
    fleet *f = r->f;
    if (f->desc.engine.on_event) f->desc.engine.on_event(f->desc.engine.event_user, event);
    if (!event->info) return;
    int64_t index = (intptr_t)event->info->user, change = 0;
    collect_request(&f->v.collected, &r->running, index, event);
    if (event->type == LLM42_EVENT_COMMITTED) change = event->n;
    if (event->type == LLM42_EVENT_FINISHED) {
        change = -(int64_t)event->info->prompt_count - event->info->committed;
        f->v.collected.served[index].replica = r->index;
    }
    *(event->time <= f->now ? &r->tokens : &r->later) += change;
    if (event->type != LLM42_EVENT_ADMITTED || event->info->preemptions) return;
    r->waiting--;
    llm42_error error = {0};
    llm42_result result = replica_submit(r, &error);
    if (result && !f->result) f->result = result, f->error = error;
}

static inline least *fleet_tokens(fleet *f, const replica *r) {
    return &f->tokens[fleet_splits(f) && r->index >= f->desc.apart];
}

// Runs a replica up to the router's time. Its clock is at that time or behind it.
static inline llm42_result replica_run(replica *r, llm42_error *error) {
    fleet *f = r->f;
    r->tokens += r->later;  // of the pass that ended at its clock
    r->later = 0;
    llm42_result result = llm42_engine_run_until(r->engine, f->now, error);
    if (f->result) {
        if (error) *error = f->error;
        return f->result;
    }
    if (result < 0) return result;
    double clock = llm42_engine_now(r->engine);
    // A replica that has got just as far goes on at the next time.
    if (clock <= f->now) clock = result == LLM42_IDLE ? (double)INFINITY : nextafter(f->now, (double)INFINITY);
    least_set(&f->clock, r->index, clock);
    least_set(fleet_tokens(f, r), r->index, (double)r->tokens);
    if (f->v.progress && (++f->runs % 1024 == 0 || isinf(f->now))) f->v.progress(&f->v);
    return LLM42_OK;
}

// >>route --------------------------------------------------------------------------------------------------------
// Ties go to the replica with the lowest index.
static inline replica *fleet_route(fleet *f, const workload_request *w) {
    bool deterministic = workload_is_deterministic(w->index, f->v.ratio);
    if (f->desc.router == ROUND_ROBIN) {
        replica *r = &f->replica[f->turn];
        f->turn = (f->turn + 1) % f->desc.replicas;
        return r;
    }
    return &f->replica[least_first(&f->tokens[fleet_splits(f) && !deterministic])];
}

static inline llm42_result fleet_send(fleet *f, const workload_request *w, llm42_error *error) {
    replica *r = fleet_route(f, w);
    r->tokens += w->input_tokens;
    arrput(r->queue, *w);
    TRY(replica_submit(r, error));
    if (f->desc.router == ROUND_ROBIN) {
        if (++r->stride < FLEET_STRIDE) return LLM42_OK;
        r->stride = 0;
        return replica_run(r, error);
    }
    least_set(fleet_tokens(f, r), r->index, (double)r->tokens);
    if (isinf(f->clock.key[r->index])) least_set(&f->clock, r->index, nextafter(f->now, (double)INFINITY));
    return LLM42_OK;
}

// Serves the whole workload.
static inline llm42_result fleet_serve(fleet *f, llm42_error *error) {
    workload_request w;
    for (int64_t i = 0; i < f->v.s->requests; i++) {
        if (args_signal) return llm42_fail(error, LLM42_IO, "interrupted");
        workload_next(&f->v.load, &w);
        f->now = fmax(f->v.start + w.arrival_s, DBL_MIN);
        while (f->desc.router != ROUND_ROBIN && f->clock.key[least_first(&f->clock)] <= f->now)
            TRY(replica_run(&f->replica[least_first(&f->clock)], error));
        TRY(fleet_send(f, &w, error));
    }
    f->now = (double)INFINITY;
    for (int i = 0; i < f->desc.replicas; i++) {
        if (args_signal) return llm42_fail(error, LLM42_IO, "interrupted");
        TRY(replica_run(&f->replica[i], error));
        TRY(args_requests(f->replica[i].engine, error));
    }
    return LLM42_OK;
}

// >>open ---------------------------------------------------------------------------------------------------------
static inline llm42_result replica_open(fleet *f, int index, llm42_error *error) {
    replica *r = &f->replica[index];
    llm42_engine_desc desc = index < f->desc.apart ? f->desc.set_apart : f->desc.engine;
    *r = (replica){.f = f, .index = index};
    desc.on_event = replica_event;
    desc.event_user = r;
    desc.auto_release = true;
    least_set(fleet_tokens(f, r), index, 0);
    if (f->desc.planner) TRY(own_planner_open(&r->own, f->desc.planner, &desc, error));
    TRY(sim_drafter_open(&r->drafter, &desc, &f->desc.oracle, error));
    return llm42_engine_open(&r->engine, &desc, error);
}

// Sets f->desc and opens its engines. f->v.s must be set.
static inline llm42_result fleet_open(fleet *f, const fleet_desc *desc, const char *qps, uint64_t seed,
                                      llm42_error *error) {
    f->desc = *desc;
    f->v.ratio = desc->ratio;
    TRY(serving_begin(&f->v, qps, seed, error));
    f->replica = calloc((size_t)desc->replicas, sizeof *f->replica);
    if (!f->replica || !least_open(&f->clock, desc->replicas) || !least_open(&f->tokens[0], desc->replicas) ||
        !least_open(&f->tokens[1], desc->replicas))
        return llm42_fail(error, LLM42_MEMORY, "--replicas: out of memory for %d replicas", desc->replicas);
    for (int i = 0; i < desc->replicas; i++) TRY(replica_open(f, i, error));
    return LLM42_OK;
}

static inline void fleet_close(fleet *f) {
    for (int i = 0; f->replica && i < f->desc.replicas; i++) {
        llm42_engine_close(f->replica[i].engine);
        own_planner_close(&f->replica[i].own);
        llm42_drafter_close(&f->replica[i].drafter.drafter);
        arrfree(f->replica[i].queue);
    }
    free(f->replica);
    least_close(&f->clock);
    least_close(&f->tokens[0]);
    least_close(&f->tokens[1]);
    serving_close(&f->v);
}

// >>figures ------------------------------------------------------------------------------------------------------
// Of all replicas together: counts, passes and times are sums.
static inline llm42_result fleet_figures(fleet *f, metrics *m, llm42_error *error) {
    llm42_stats all = {0};
    double area = 0;
    for (int i = 0; i < f->desc.replicas; i++) {
        const llm42_stats s = llm42_engine_stats(f->replica[i].engine);
        all.returned_tokens += s.returned_tokens, all.deterministic_tokens += s.deterministic_tokens;
        all.candidates += s.candidates, all.verifications += s.verifications, all.rollbacks += s.rollbacks;
        all.recomputed += s.recomputed, all.preemptions += s.preemptions, all.replay_busy += s.replay_busy;
        all.replay_passes += s.replay_passes, all.drafted += s.drafted, all.accepted += s.accepted;
        for (int k = 0; k < LLM42_SCHEDULE_COUNT; k++) all.passes[k] += s.passes[k], all.busy[k] += s.busy[k];
        area += f->replica[i].running.area;
    }
    f->v.collected.running.area = area;
    if (collect_figures(&f->v.collected, &all, m)) return LLM42_OK;
    return llm42_fail(error, LLM42_MEMORY, "out of memory for the figures of a run");
}

#endif  // FLEET_H
