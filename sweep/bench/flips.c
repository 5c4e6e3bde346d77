// flips.c: serves requests to count flips (candidates that a replay pass changes). It counts them by two numbers: the
// rows of the FAST pass that made the candidate, and the rows of the replay pass, M. For INVARIANT replay passes, whose
// order of sums does not depend on their rows, M is 0. Each M has an engine of its own, which serves the same requests
// at several loads. A new request is submitted when one ends, so that no more run at a time than the load says.
//
// The engine's passes go through a watch, which stands in front of the backend. In one of the runs the watch measures
// the host's work. On a GPU it compares the time from the end of one pass to the end of the next with the time that the
// simulator has for the same pass. The difference counts as the host's work. It also holds everything else by which
// passes take longer while requests are served than alone. On a CPU the host's work is the time between two passes.
// (There the passes themselves may take longer than in the tables, because the processor may be slower.)
#include "sweep/bench/bench.h"
#include "sweep/lib/serve.h"

enum { FLIP_SEED = 42 };  // of lengths and prompts, as build/sweep has it by default
// The CPU backend's order of sums changes at these numbers of rows (llm42_cpu_splits). A GPU takes algorithms by the
// number of rows: here it is cut at powers of two.
static const int cpu_edges[] = {1, 2, 9, 65}, cuda_edges[] = {1, 2, 3, 5, 9, 17, 33, 65, 129};
static const int cpu_replays[] = {0, 8, 64, 256}, cuda_replays[] = {0, 32, 64, 128, 256, 512, 1024};

// A load. running: how many sequences run at a time (0: as many as --max-running allows). share: the share of the
// requests that are served at this load. ratio: the share of them that are deterministic. Ordinary requests fill up
// FAST passes while the deterministic ones wait for small replay passes. On a GPU few sequences at once take long, and
// so do all.
typedef struct flip_load {
    int running;
    double share, ratio;
} flip_load;
enum { LOADS = 4 };
static const flip_load cpu_loads[LOADS] = {{1, 1, 1}, {8, 1, 1}, {128, 1, 0.5}, {64, 1, 1}};
static const flip_load cuda_loads[LOADS] = {{16, 0.25, 1}, {0, 1, 0.5}, {0, 1, 1}};

// >>watch --------------------------------------------------------------------------------------------------------
// What the watch needs and finds. One engine at a time is watched.
static struct {
    const llm42_backend *inner;
    llm42_calibration *cost;  // NULL: times are not wanted
    void *sim;                // prices passes
    llm42_output *out;        // [rows] of the simulator, which gives tokens too
    double end;               // of the pass before; 0: there was none
    double inside, outside;   // seconds in the backend and between its passes
    double normal[LLM42_KIND_COUNT][LLM42_KIND_COUNT], right[LLM42_KIND_COUNT];  // equations for the host's work
    int64_t passes, left_out;
    bool between;      // the host's work is the time between passes
    margins *margins;  // NULL: they are not wanted
} watch;

// Seconds that the simulator has for the pass.
static double watch_price(const llm42_pass *pass) {
    const llm42_backend *sim = llm42_backend_sim();
    llm42_error error = {0};
    llm42_pass copy = *pass;
    copy.out = watch.out, copy.logits = NULL;
    double before = sim->now(watch.sim);
    args_check(sim->run(watch.sim, &copy, &error), &error);
    return sim->now(watch.sim) - before;
}

// Adds one equation: the pass took `over` seconds more than its price, and that is the host's work for each kind, times
// how often the simulator counts it. That is a whole number: the difference of two prices is not exactly one, and what
// is left of a count of 0 must not count.
static void watch_equation(const llm42_pass *pass, double price, double over) {
    double count[LLM42_KIND_COUNT];
    for (int k = 0; k < LLM42_KIND_COUNT; k++) {
        watch.cost->host_ms[k] = 1000;
        count[k] = round(watch_price(pass) - price);  // 1000 ms for each
        watch.cost->host_ms[k] = 0;
    }
    for (int k = 0; k < LLM42_KIND_COUNT; k++) {
        for (int j = 0; j < LLM42_KIND_COUNT; j++) watch.normal[k][j] += count[k] * count[j];
        watch.right[k] += count[k] * over;
    }
    watch.passes++;
}

// A pass that took three times its price met something rare: a CUDA graph was made, or another program ran.
static void watch_time(const llm42_pass *pass, double begin, double end) {
    double price = watch_price(pass), took = end - watch.end;
    if (watch.end > 0) {
        watch.inside += end - begin, watch.outside += begin - watch.end;
        if (took > 3 * price + 1e-3) watch.left_out++;
        else watch_equation(pass, price, watch.between ? begin - watch.end : took - price);
    }
    watch.end = wall_seconds();
}

static llm42_result watch_run(void *state, const llm42_pass *pass, llm42_error *error) {
    llm42_pass copy = *pass;
    bool margins = watch.margins && !pass->check && pass->schedule == LLM42_SCHEDULE_FIXED &&
                   pass->rows <= watch.margins->rows;
    if (margins) copy.logits = watch.margins->logits;
    double begin = wall_seconds();
    llm42_result result = watch.inner->run(state, &copy, error);
    double end = wall_seconds();
    if (result == LLM42_OK && watch.cost && !pass->check) watch_time(pass, begin, end);
    if (result == LLM42_OK && margins) margins_pass(watch.margins, &copy);
    return result;
}

static const llm42_backend *watch_backend(const bench *b) {
    static llm42_backend backend;
    backend = *b->engine.backend;
    backend.run = watch_run;
    watch.inner = b->engine.backend;
    return &backend;
}

// The host's work in milliseconds: least squares, none of them negative.
static void watch_solve(double host_ms[LLM42_KIND_COUNT]) {
    for (int k = 0; k < LLM42_KIND_COUNT; k++) host_ms[k] = 0;
    for (int turn = 0; turn < 1000; turn++)
        for (int k = 0; k < LLM42_KIND_COUNT; k++) {
            double left = watch.right[k];
            for (int j = 0; j < LLM42_KIND_COUNT; j++) left -= j == k ? 0 : watch.normal[k][j] * 1e-3 * host_ms[j];
            host_ms[k] = watch.normal[k][k] > 0 ? 1e3 * fmax(0, left / watch.normal[k][k]) : 0;
        }
}

static void watch_open(const bench *b, const serve_plan *plan, llm42_calibration *cost, int M) {
    const int running = plan->max_running;
    llm42_error error = {0};
    const llm42_sim_desc sim = {.calibration = cost, .no_flips = true};
    const llm42_backend_desc desc = {
        .model = b->model, .max_running = running, .fixed_rows = M, .backend_desc = &sim, .page_size = PAGE_SIZE};
    watch.cost = cost, watch.between = !b->cuda;
    watch.out = allocate((size_t)(b->set.token_budget + M + running + plan->max_context) * sizeof *watch.out);
    args_check(llm42_backend_sim()->open(&watch.sim, &desc, &error), &error);
}

static void watch_close(void) {
    if (!watch.cost) return;
    llm42_backend_sim()->close(watch.sim);
    free(watch.out);
    watch.cost = NULL;
}

// >>serve --------------------------------------------------------------------------------------------------------
// One run: the requests of the plan, served with replay passes of M rows, `load` of them at a time.
typedef struct flip_run {
    int M, load;
    double ratio;  // share of requests that are deterministic
    double until;  // wall clock behind which no further request begins; 0: no limit
    flip_counter counter;
} flip_run;

static bool run_late(const flip_run *run) { return run->until > 0 && wall_seconds() > run->until; }

// Gets the events of an engine. user: points to the pointer to the run that is being served.
static void on_event(void *user, const llm42_event *e) {
    flip_run *run = *(flip_run **)user;
    flip_event(&run->counter, e);
    if (watch.margins) margins_event(watch.margins, &run->counter, e);
}

static llm42_engine_desc flips_engine(bench *b, const serve_plan *plan, int M) {
    const settings *s = &b->set;
    int window = M && s->window > M ? M : (int)s->window;
    llm42_engine_desc desc = b->engine;
    desc.backend = watch_backend(b);
    desc.max_context = plan->max_context;
    desc.max_running = plan->max_running;
    desc.token_budget = (int)s->token_budget;
    desc.kv.pages = b->cuda ? (int)serve_pages(plan, PAGE_SIZE, s->kv_gb) : 0;
    desc.policy.window = window;
    desc.policy.group = M ? M / window : (int)s->group;
    desc.policy.verifier = M ? LLM42_VERIFIER_FIXED : LLM42_VERIFIER_INVARIANT;
    desc.policy.verify = LLM42_VERIFY_EAGER;
    desc.policy.prefill = LLM42_PREFILL_PACKED;
    desc.auto_release = true;
    desc.on_event = on_event;
    args_policy(&desc, "verify", s->verify);
    args_policy(&desc, "prefill", s->prefill);
    args_policy(&desc, "chunked", s->chunked);
    if (desc.policy.chunked_prefill == LLM42_CHUNKED_OFF && desc.token_budget < plan->max_context)
        desc.token_budget = plan->max_context;
    return desc;
}

// Serves the plan's first `requests` requests on an engine that is open, `load` of them at a time. Where the time is
// up, only those that have begun, but the first `load` in any case.
static void flips_serve(llm42_engine *engine, const serve_plan *plan, const prompt_set *prompts, int64_t requests,
                        flip_run *run) {
    llm42_error error = {0};
    serving v = {
        .s = plan, .prompts = prompts, .engine = engine, .ratio = run->ratio, .start = llm42_engine_now(engine)};
    args_check(workload_open(&v.load, plan->workload, "offline", FLIP_SEED, &error), &error);
    if (plan->clipped) args_check(workload_clip(&v.load, plan->max_context, &error), &error);
    v.prompt = allocate((size_t)plan->max_context * sizeof *v.prompt);
    int64_t before = llm42_engine_stats(engine).finished, done = 0;
    run->counter.first = before + 1;
    for (int64_t step = 0; done < requests; step++) {
        if (run_late(run) && v.submitted >= run->load) requests = v.submitted;
        for (; v.submitted < requests && v.submitted < done + run->load;) args_check(submit_next(&v, &error), &error);
        args_check(llm42_engine_step(engine, &error), &error);
        done = llm42_engine_stats(engine).finished - before;
        if (step % 64 == 0)
            progress("calibrate: flips, M = %d, up to %d at a time, %.0f%%", run->M, run->load,
                     100.0 * (double)done / (double)requests);
    }
    progress(NULL);
    args_check(args_requests(engine, &error), &error);
    workload_close(&v.load);
    free(v.prompt);
}

static void counter_open(flip_counter *c, const bench *b, const serve_plan *plan, int64_t requests) {
    *c = (flip_counter){.bins = b->cuda ? (int)(sizeof cuda_edges / sizeof *cuda_edges)
                                        : (int)(sizeof cpu_edges / sizeof *cpu_edges),
                        .edge = b->cuda ? cuda_edges : cpu_edges,
                        .requests = requests,
                        .longest = plan->max_context};
    size_t places = (size_t)(requests * c->longest), cells = (size_t)(requests * c->bins) * sizeof *c->cell;
    c->bin = allocate(places);
    c->cell = allocate(cells);
    memset(c->bin, 0, places);
    memset(c->cell, 0, cells);
}

static void counter_close(flip_counter *c) {
    free(c->bin);
    free(c->cell);
}

// >>flips --------------------------------------------------------------------------------------------------------
// What is served: how many requests, with which M, at which loads.
typedef struct flip_plan {
    serve_plan serve;
    prompt_set prompts;
    char fixed[64];                    // the workload of a CPU
    int replays, replay[FLIP_REPLAY];  // M
    int timed;                         // index of the M at which passes are timed: the options' own, or the nearest
    int loads;
    flip_load load[LOADS];  // the last one is that at which passes are timed
} flip_plan;

// M is a whole number of windows, so it can come out smaller than the number in the list. --quick takes only 0 and the
// ends of the rest.
static void plan_replays(const bench *b, flip_plan *p) {
    const int *list = b->cuda ? cuda_replays : cpu_replays, window = (int)b->set.window;
    int count = (int)(b->cuda ? sizeof cuda_replays / sizeof *list : sizeof cpu_replays / sizeof *list);
    for (int i = 0; i < count; i++) {
        int W = window < list[i] ? window : list[i], M = W ? list[i] / W * W : 0;
        if (b->set.quick && i > 1 && i + 1 < count) continue;
        if (!p->replays || M > p->replay[p->replays - 1]) p->replay[p->replays++] = M;
    }
    double wanted = (double)(b->set.window * b->set.group);
    p->timed = 1;
    for (int i = 2; i < p->replays; i++)
        if (fabs(log(p->replay[i] / wanted)) < fabs(log(p->replay[p->timed] / wanted))) p->timed = i;
}

// The requests, their prompts and the loads.
static void plan_open(bench *b, flip_plan *p) {
    llm42_error error = {0};
    int running = 0;
    *p = (flip_plan){.prompts = {.seed = FLIP_SEED}};
    snprintf(p->fixed, sizeof p->fixed, "fixed:%dx%d", (int)b->set.input_tokens, (int)b->set.output_tokens);
    const char *spec = b->cuda ? b->set.workload : p->fixed;
    plan_replays(b, p);
    for (int l = 0; l < LOADS; l++) {
        flip_load load = b->cuda ? cuda_loads[l] : cpu_loads[l];
        if (load.share == 0) continue;
        if (!load.running || (b->cuda && load.running > b->set.max_running)) load.running = (int)b->set.max_running;
        if (load.running > running) running = load.running;
        p->load[p->loads++] = load;
    }
    p->serve = (serve_plan){.model = b->model,
                            .workload = spec,
                            .requests = b->set.flip_requests,
                            .max_running = running,
                            .random_prompts = !strcmp(b->set.prompts, "random")};
    args_check(serve_context(&p->serve, "offline", b->set.max_context, &error), &error);
    if (p->serve.random_prompts) return;
    progress("calibrate: making prompts");
    llm42_engine_desc desc = flips_engine(b, &p->serve, p->replay[1]);
    desc.on_event = NULL, desc.auto_release = false;
    args_check(prompts_make(&p->prompts, &p->serve, desc, &error), &error);
    progress(NULL);
}

static void plan_close(flip_plan *p) {
    free(p->prompts.tokens);
    free(p->prompts.start);
}

// One run whose passes are timed. It is served again if other programs used the processor and the time allows it. (What
// flips is the same.)
static void flips_timed(const bench *b, llm42_engine *engine, const flip_plan *p, llm42_calibration *cost,
                        int64_t requests, flip_run *run, steadiness *steady) {
    const prompt_set *prompts = p->serve.random_prompts ? NULL : &p->prompts;
    double share = 0;
    for (int turn = 0; turn < (b->set.force ? 1 : 3) && !(share >= STEADY_SHARE); turn++) {
        if (turn && run_late(run)) break;
        memset(run->counter.cell, 0, (size_t)(requests * run->counter.bins) * sizeof *run->counter.cell);
        watch.end = watch.inside = watch.outside = 0;
        watch.passes = watch.left_out = 0;
        memset(watch.normal, 0, sizeof watch.normal);
        memset(watch.right, 0, sizeof watch.right);
        share = wait_for_processor(b);
        watch_open(b, &p->serve, cost, run->M);
        flips_serve(engine, &p->serve, prompts, requests, run);
        watch_close();
        share = fmin(share, processor_share(b));
    }
    steady_share(steady, share);
}

// All loads with one M, into runs[loads]. begun: when the first M began, for --seconds: each run has a part of the time
// that is left from there on, as its requests are a part of all.
static void flips_replay(bench *b, const flip_plan *p, int r, double begun, llm42_calibration *cost, flip_run *runs,
                         steadiness *steady) {
    llm42_error error = {0};
    llm42_engine *engine = NULL;
    flip_run *now = NULL;
    double all = 0, served = 0;
    for (int l = 0; l < p->loads; l++) {
        all += p->load[l].share;
        int64_t requests = (int64_t)ceil((double)p->serve.requests * p->load[l].share);
        runs[l] = (flip_run){.M = p->replay[r], .load = p->load[l].running, .ratio = p->load[l].ratio};
        counter_open(&runs[l].counter, b, &p->serve, requests);
    }
    llm42_engine_desc desc = flips_engine(b, &p->serve, p->replay[r]);
    desc.event_user = &now;
    args_check(llm42_engine_open(&engine, &desc, &error), &error);
    for (int l = 0; l < p->loads; l++) {
        now = &runs[l];
        int64_t requests = runs[l].counter.requests;
        served += p->load[l].share;
        const double left = b->begun + b->set.seconds - begun, part = (r + served / all) / p->replays;
        if (b->set.seconds > 0) now->until = begun + fmax(0, left) * part;
        if (r == p->timed && l + 1 == p->loads) flips_timed(b, engine, p, cost, requests, now, steady);
        else flips_serve(engine, &p->serve, p->serve.random_prompts ? NULL : &p->prompts, requests, now);
    }
    llm42_engine_close(engine);
    if (b->cuda) printf("calibrate: flips with M = %d; %.0f s gone by\n", p->replay[r], wall_seconds() - b->begun);
    fflush(stdout);
}

void flips_measure(bench *b, llm42_calibration *cost, steadiness *steady, flips *f) {
    flip_plan p;
    plan_open(b, &p);
    flip_run runs[FLIP_REPLAY][LOADS];
    flip_grid *g = &f->grid;
    *f = (flips){.requests = p.serve.requests, .timed_replay = p.replay[p.timed], .loads = p.loads};
    for (int l = 0; l < p.loads; l++) f->load[l] = p.load[l].running;
    const char *slash = strrchr(p.serve.workload, '/');
    snprintf(f->workload, sizeof f->workload, "%.63s", slash ? slash + 1 : p.serve.workload);
    const double begun = wall_seconds();
    for (int r = 0; r < p.replays; r++) flips_replay(b, &p, r, begun, cost, runs[r], steady);
    const flip_counter *first = &runs[0][0].counter;
    g->fasts = first->bins, g->replays = p.replays;
    memcpy(g->fast, first->edge, (size_t)g->fasts * sizeof *g->fast);
    memcpy(g->replay, p.replay, sizeof g->replay);
    for (int r = 0; r < p.replays; r++)
        for (int l = 0; l < p.loads; l++) flip_add(g, r, &runs[r][l].counter);
    f->seen = *g;
    g->replay[1] = 1;  // the smallest M also stands for smaller ones, but not for INVARIANT passes
    flip_moments before = {0}, after = {0};
    for (int r = 0; r < p.replays; r++)
        for (int l = 0; l < p.loads; l++) flip_moments_add(&before, g, p.replay[r], &runs[r][l].counter);
    flip_merge(g, flip_spread(&before));
    for (int r = 0; r < p.replays; r++)
        for (int l = 0; l < p.loads; l++) {
            flip_moments_add(&after, g, p.replay[r], &runs[r][l].counter);
            counter_close(&runs[r][l].counter);
        }
    f->shape = flip_shape(&after);
    watch_solve(f->host_ms);
    f->passes = watch.passes, f->left_out = watch.left_out;
    double count = (double)(watch.passes + watch.left_out);
    f->outside_ms = count > 0 ? 1e3 * watch.outside / count : 0;
    f->inside_ms = count > 0 ? 1e3 * watch.inside / count : 0;
    plan_close(&p);
}

// >>margins ------------------------------------------------------------------------------------------------------
// A line for each number of rows and each margin that was seen.
static void margins_print(const bench *b, const flip_plan *p, const margins *m, const flip_counter *c, FILE *file) {
    if (b->cuda) args_manifest_print(&b->set.how.manifest, file);
    fprintf(file,
            "# measured with: llm42 %s, model %s, %s backend\n"
            "# %d requests, %s, up to %d at a time, all deterministic, M = %d; prompts: %s\n"
            "# margin: the largest logit less the next one, in the replay pass; each line goes up to the next margin\n"
            "# fast_rows: rows of the FAST pass that made the candidate, up to the next number in the file\n"
            "fast_rows\tmargin\tcandidates\tflips\n",
            LLM42_VERSION, b->set.how.model, b->engine.backend->name, (int)m->requests, p->serve.workload,
            p->load[p->loads - 1].running, p->replay[p->timed], b->set.prompts);
    for (int f = 0; f < c->bins; f++)
        for (int k = 0; k < MARGIN_BINS; k++)
            if (m->cell[f][k].compared > 0)
                fprintf(file, "%d\t%.6g\t%.0f\t%.0f\n", c->edge[f], margin_edge(k), m->cell[f][k].compared,
                        m->cell[f][k].changed);
}

// The prompts' lengths.
static void margins_inputs(const flip_plan *p, margins *m) {
    workload w;
    llm42_error error = {0};
    m->input = allocate((size_t)m->requests * sizeof *m->input);
    args_check(workload_open(&w, p->serve.workload, "offline", FLIP_SEED, &error), &error);
    if (p->serve.clipped) args_check(workload_clip(&w, p->serve.max_context, &error), &error);
    for (int64_t i = 0; i < m->requests; i++) {
        workload_request r;
        workload_next(&w, &r);
        m->input[i] = r.input_tokens;
    }
    workload_close(&w);
}

void run_margins(const bench *caller) {
    bench *b = allocate(sizeof *b);
    flip_plan plan, *p = &plan;
    *b = *caller;
    FILE *file = out_begin(b->set.margins);
    fputs("# flips by margin\n", file);
    out_flush(file, b->set.margins);  // a full disk is found out before the measurement
    plan_open(b, p);
    llm42_error error = {0};
    llm42_engine *engine = NULL;
    int M = p->replay[p->timed], V = b->model->config.vocab;
    flip_run run = {.M = M, .load = p->load[p->loads - 1].running, .ratio = 1}, *now = &run;
    counter_open(&run.counter, b, &p->serve, p->serve.requests);
    margins *m = allocate(sizeof *m);
    *m = (margins){.first = 1, .requests = p->serve.requests, .longest = p->serve.max_context, .rows = M, .vocab = V};
    margins_inputs(p, m);
    m->logits = allocate((size_t)M * (size_t)V * sizeof *m->logits);
    m->margin = allocate((size_t)m->requests * (size_t)m->longest * sizeof *m->margin);
    llm42_engine_desc desc = flips_engine(b, &p->serve, M);
    desc.event_user = &now;
    args_check(llm42_engine_open(&engine, &desc, &error), &error);
    watch.margins = m;
    flips_serve(engine, &p->serve, p->serve.random_prompts ? NULL : &p->prompts, m->requests, &run);
    watch.margins = NULL;
    llm42_engine_close(engine);
    b->set.how.manifest = caller->set.how.manifest;  // the engine's log goes there
    margins_print(b, p, m, &run.counter, file);
    out_finish(file, b->set.margins);
    free(m->input), free(m->logits), free(m->margin), free(m);
    counter_close(&run.counter);
    plan_close(p);
    free(b);
}
