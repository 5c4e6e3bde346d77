// fleet.c: one run of a workload on a fleet (see fleet.h).
#define _POSIX_C_SOURCE 200809L
#include "fleet.h"

const char *const fleet_routers[] = {"round_robin", "least_tokens", "deterministic_apart", NULL};

// >>least --------------------------------------------------------------------------------------------------------
int least_first(const least *l) { return l->smaller[1]; }

void least_set(least *l, int index, double key) {
    l->key[index] = key;
    for (int node = (l->leaves + index) / 2; node; node /= 2) {
        int left = l->smaller[2 * node], right = l->smaller[2 * node + 1];
        l->smaller[node] = l->key[right] < l->key[left] ? right : left;
    }
}

bool least_open(least *l, int count) {
    for (l->leaves = 2; l->leaves < count;) l->leaves *= 2;
    l->key = malloc((size_t)l->leaves * sizeof *l->key);
    l->smaller = malloc(2 * (size_t)l->leaves * sizeof *l->smaller);
    if (!l->key || !l->smaller) return false;
    for (int i = 0; i < l->leaves; i++) l->key[i] = (double)INFINITY, l->smaller[l->leaves + i] = i;
    for (int node = l->leaves - 1; node; node--) l->smaller[node] = l->smaller[2 * node];
    return true;
}

void least_close(least *l) {
    free(l->key);
    free(l->smaller);
}

// >>fleet --------------------------------------------------------------------------------------------------------
int fleet_apart(fleet_router router, int replicas, int asked, double ratio) {
    if (router != DETERMINISTIC_APART || replicas < 2 || ratio <= 0 || ratio >= 1) return 0;
    int share = asked ? asked : (int)floor(ratio * replicas + 0.5);
    return share < 1 ? 1 : share > replicas - 1 ? replicas - 1 : share;
}

bool fleet_splits(const fleet *f) { return f->desc.apart > 0 && f->desc.apart < f->desc.replicas; }

// Gives the engine requests that wait at the replica. As many more wait in the engine as in `serve`, for the reason
// that stands there; the rest takes no memory for its tokens yet.
static llm42_result replica_submit(replica *r, llm42_error *error) {
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

static void replica_event(void *user, const llm42_event *event) {
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

static least *fleet_tokens(fleet *f, const replica *r) {
    return &f->tokens[fleet_splits(f) && r->index >= f->desc.apart];
}

// Runs a replica up to the router's time. Its clock is at that time or behind it.
static llm42_result replica_run(replica *r, llm42_error *error) {
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
static replica *fleet_route(fleet *f, const workload_request *w) {
    bool deterministic = workload_is_deterministic(w->index, f->v.ratio);
    if (f->desc.router == ROUND_ROBIN) {
        replica *r = &f->replica[f->turn];
        f->turn = (f->turn + 1) % f->desc.replicas;
        return r;
    }
    return &f->replica[least_first(&f->tokens[fleet_splits(f) && !deterministic])];
}

static llm42_result fleet_send(fleet *f, const workload_request *w, llm42_error *error) {
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

llm42_result fleet_serve(fleet *f, llm42_error *error) {
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
static llm42_result replica_open(fleet *f, int index, llm42_error *error) {
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

llm42_result fleet_open(fleet *f, const fleet_desc *desc, const char *qps, uint64_t seed, llm42_error *error) {
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

void fleet_close(fleet *f) {
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
llm42_result fleet_figures(fleet *f, metrics *m, llm42_error *error) {
    llm42_stats all = {0};
    double area = 0;
    for (int i = 0; i < f->desc.replicas; i++) {
        const llm42_stats s = llm42_engine_stats(f->replica[i].engine);
        stats_add(&all, &s, 1);
        area += f->replica[i].running.area;
    }
    f->v.collected.running.area = area;
    if (collect_figures(&f->v.collected, &all, m)) return LLM42_OK;
    return llm42_fail(error, LLM42_MEMORY, "out of memory for the figures of a run");
}
