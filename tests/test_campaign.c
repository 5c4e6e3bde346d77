// The promise under many loads. A load shape is drawn from a seed: options of the engine (M and how it splits,
// policies, planner, pages, limits, caches) and its requests (lengths, shared prompts, sampling, arrivals,
// cancellations). Each deterministic request is served under that load, and once more alone by an engine that shares
// with the first only what the promise names. Tokens and log-probability bits must be equal. The control serves
// requests of the same load without verification: some of those must differ.
//
// Without options this is a short test. `make campaign` runs it at length and writes its table, the same in each run.
#include "test.h"
#define LLM42_CALIBRATION_IMPLEMENTATION
#include "examples/util/llm42_policies.h"
#include "examples/util/llm42_calibration.h"
#include "examples/lib/args.h"
#include "examples/planners.h"

enum { LONGEST_PROMPT = 256, CALIBRATIONS = 4, FAMILIES = 8 };

static const char *const calibration_names[CALIBRATIONS] = {"cpu-tiny42", "h100-pcie-paper", "h200-base42",
                                                            "h200-llama-3.1-8b"};
static llm42_calibration *calibrations[CALIBRATIONS];
static llm42_model *tiny42, *shape_only;
static llm42_error error;

// >>shapes -------------------------------------------------------------------------------------------------------
typedef enum arrivals { OFFLINE, BURSTS, POISSON } arrivals;
static const char *const arrival_names[] = {"offline", "bursts", "poisson"};

typedef struct shape {
    int number, threads;
    bool simulated;
    uint64_t seed;
    llm42_engine_desc desc;
    llm42_sim_desc sim;
    int calibration, longest_prompt, longest_output, deterministic_pct, families, prefix;
    arrivals arrivals;
    int burst, burst_every;  // requests, and steps from one burst to the next
    double rate;             // Poisson: requests a second of virtual time
    int cancel_every;        // steps; 0: no cancellations
    int stop_pct;            // requests that stop at a token of the model's
} shape;

static int drawn(uint64_t *random, const int *values, int count) { return values[test_random(random) % (size_t)count]; }
#define DRAW(...) drawn(&random, (const int[]){__VA_ARGS__}, sizeof(int[]){__VA_ARGS__} / sizeof(int))

static void draw_engine(shape *s, uint64_t random) {
    llm42_engine_desc *d = &s->desc;
    *d = (llm42_engine_desc)TEST_LIST(.policy.window = DRAW(1, 2, 4, 7, 8, 16, 32, 64),
                                      .policy.group = DRAW(1, 1, 2, 3, 4, 8), .kv.page_size = DRAW(1, 2, 4, 8, 16, 32),
                                      .max_running = s->simulated ? DRAW(1, 2, 8, 32, 64, 200)
                                                                  : DRAW(1, 2, 4, 8, 16, 32),
                                      .policy.deadline = DRAW(0, 0, 1, 3, 10),
                                      .kv.admission_reserve = 0.1 * DRAW(0, 0, 1, 5, 10), .kv.prefix_cache = DRAW(0, 1),
                                      .numerics.logits_fp32 = DRAW(0, 0, 1),
                                      .experiment.inject_rate = 0.01 * DRAW(0, 0, 0, 3, 20), .auto_release = true);
    s->threads = s->simulated ? 1 : DRAW(1, 1, 1, 2);
    for (const llm42_policy_words *p = llm42_policies(); p->name; p++) {
        int words = 0;
        while (p->word[words]) words++;
        llm42_policy_set(d, p->name, p->word[test_random(&random) % (size_t)words], NULL);
    }
    if (d->policy.mode == LLM42_MODE_NONDETERMINISTIC || DRAW(0, 1)) d->policy.mode = LLM42_MODE_DVR;  // most are DVR
    if (d->policy.mode == LLM42_MODE_HYBRID) d->policy.verifier = LLM42_VERIFIER_INVARIANT;
    // On the CPU mode HYBRID goes by measured times: the counts in the table would change from run to run.
    if (d->policy.mode == LLM42_MODE_HYBRID && !s->simulated) d->policy.mode = LLM42_MODE_DVR;
    d->numerics.compute = DRAW(0, 0, 0, 1) && !s->simulated ? LLM42_DTYPE_FP32 : LLM42_DTYPE_BF16;
    // Planner `deadline` looks at the clock: on the CPU the counts in the table would change from run to run.
    d->planner = planner_find(planner_names[DRAW(0, 0, 1, s->simulated ? 2 : 0)]);
    d->max_context = s->longest_prompt + s->longest_output + DRAW(0, 1, 40);
    bool whole = d->policy.chunked_prefill == LLM42_CHUNKED_OFF;
    d->token_budget = (whole ? LLM42__MAX(d->max_context, d->max_running) : d->max_running) + DRAW(0, 7, 64, 256);
    int context = (d->max_context + d->kv.page_size - 1) / d->kv.page_size;  // pages of one full context
    d->kv.pages = context + context * DRAW(0, 1, 1, 2, 4, 16) / 2;
    d->experiment.inject_seed = test_random(&random);
}

static void draw_shape(shape *s, int number, bool simulated, uint64_t seed) {
    uint64_t random = seed;
    *s = (shape)TEST_LIST(.number = number, .simulated = simulated, .seed = test_random(&random),
                          .calibration = DRAW(0, 1, 2, 3),
                          .longest_prompt = simulated ? DRAW(4, 32, 128, LONGEST_PROMPT) : DRAW(4, 24, 60, 120),
                          .longest_output = simulated ? DRAW(8, 24, 48, 100) : DRAW(8, 24, 48, 64),
                          .deterministic_pct = DRAW(30, 60, 90, 100), .families = DRAW(0, 0, 1, 3, FAMILIES),
                          .prefix = DRAW(16, 33, 100), .arrivals = DRAW(OFFLINE, BURSTS, simulated ? POISSON : BURSTS),
                          .burst = DRAW(1, 3, 10), .burst_every = DRAW(1, 2, 9), .rate = DRAW(3, 30, 300, 3000),
                          .cancel_every = DRAW(0, 0, 10, 100), .stop_pct = simulated ? 0 : DRAW(0, 0, 30));
    s->sim = (llm42_sim_desc){
        .calibration = calibrations[s->calibration], .seed = test_random(&random), .flip_scale = DRAW(1, 1, 5, 30)};
    draw_engine(s, test_random(&random));
}

// >>requests -----------------------------------------------------------------------------------------------------
typedef struct request {
    llm42_request_desc desc;
    int32_t prompt[LONGEST_PROMPT], stop;
} request;

// From 1 to `most`, short ones more often.
static int length(uint64_t *random, int most) {
    return 1 + (int)((double)most * pow(llm42_uniform(test_random(random)), 1.5) * 0.999999);
}

// Request number `id` of a shape, which counts from 1. Prompts of one family share their first tokens.
static void make_request(const shape *s, int64_t id, request *r) {
    uint64_t random = s->seed ^ llm42_hash((uint64_t)id), family = 0;
    int vocab = s->simulated ? shape_only->config.vocab : tiny42->config.vocab, shared = 0;
    int count = length(&random, s->longest_prompt);
    if (s->families && DRAW(0, 1, 1)) {
        family = s->seed + 1 + test_random(&random) % (uint64_t)s->families;
        count = LLM42__MIN(count + s->prefix, s->longest_prompt);
        shared = LLM42__MIN(s->prefix, count);
    }
    for (int i = 0; i < count; i++) r->prompt[i] = test_random_int(i < shared ? &family : &random, 0, vocab - 1);
    r->desc = (llm42_request_desc)TEST_LIST(.prompt = r->prompt, .prompt_count = count,
                                            .max_new_tokens = length(&random, s->longest_output),
                                            .deterministic = (int)(test_random(&random) % 100) < s->deterministic_pct,
                                            .ignore_stop = true);
    if (DRAW(0, 1))
        r->desc.sampling = (llm42_sampling)TEST_LIST(.temperature = 0.1f * (float)DRAW(3, 7, 10, 15),
                                                     .top_k = DRAW(0, 0, 5, 40), .top_p = DRAW(0, 1) ? 0.9f : 0,
                                                     .min_p = DRAW(0, 0, 1) ? 0.02f : 0, .seed = test_random(&random));
    r->stop = test_random_int(&random, 0, 99);  // among the most frequent tokens
    if ((int)(test_random(&random) % 100) >= s->stop_pct) return;
    r->desc.ignore_stop = false;
    r->desc.stop = &r->stop;
    r->desc.stop_count = 1;
}

// >>serving ------------------------------------------------------------------------------------------------------
typedef struct answer {
    int32_t *tokens;  // [count], and behind them the log-probabilities
    int count;
    bool deterministic, cancelled;
} answer;

// The answers of one engine. Request id i has answer[i].
typedef struct served {
    answer *answer;  // [count + 1]
    int64_t count;
    llm42_stats stats;
} served;

static void free_served(served *s) {
    for (int64_t i = 1; i <= s->count; i++) free(s->answer[i].tokens);
    free(s->answer);
}

static served new_served(int64_t count) {
    served s = {.answer = calloc((size_t)count + 1, sizeof *s.answer), .count = count};
    if (!s.answer) abort();
    return s;
}

static void hear(void *user, const llm42_event *e) {
    if (e->type != LLM42_EVENT_FINISHED) return;
    answer *a = &((served *)user)->answer[e->request];
    size_t size = (size_t)e->n * sizeof *a->tokens;
    a->count = e->n;
    a->cancelled = e->finish == LLM42_FINISH_CANCELLED;
    if (!e->n) return;
    a->tokens = malloc(2 * size);
    if (!a->tokens) abort();
    memcpy(a->tokens, e->info->tokens, size);
    memcpy(a->tokens + e->n, e->info->logprobs, size);
}

static llm42_engine *open_engine(const shape *s, llm42_engine_desc desc, served *to) {
    llm42_engine *engine = NULL;
    desc.model = s->simulated ? shape_only : tiny42;
    desc.backend = s->simulated ? llm42_backend_sim() : llm42_backend_cpu();
    desc.backend_desc = s->simulated ? (const void *)&s->sim : TEST_THREADS(s->threads);
    desc.on_event = hear;
    desc.event_user = to;
    llm42_engine_open(&engine, &desc, &error);
    return engine;
}

static void must(llm42_result result, const shape *s) {
    if (result >= LLM42_OK) return;
    fprintf(stderr, "test_campaign: shape %d: %s\n", s->number, error.text);
    abort();
}

static void cancel_one(llm42_engine *engine, uint64_t *random, int64_t submitted, const shape *s) {
    int64_t id = 1 + (int64_t)(test_random(random) % (uint64_t)submitted);
    if (llm42_engine_request(engine, id)) must(llm42_engine_cancel(engine, id, &error), s);
}

// Serves the first `count` requests of a shape under its load. control: without verification, all of them ordinary.
static void serve(const shape *s, llm42_engine *engine, served *to, bool control) {
    uint64_t random = s->seed;
    double arrival = 0;
    request r;
    int64_t next = 1;
    for (int64_t step = 0;; step++) {
        int64_t until = s->arrivals == BURSTS ? LLM42__MIN(to->count, next - 1 + s->burst) : to->count;
        bool now = s->arrivals != BURSTS || step % s->burst_every == 0;
        for (; now && next <= until; next++) {
            make_request(s, next, &r);
            to->answer[next].deterministic = r.desc.deterministic;
            r.desc.deterministic &= !control;
            arrival -= llm42_log64(1 - llm42_uniform(test_random(&random))) / s->rate;
            if (s->arrivals == POISSON) r.desc.arrival = arrival;
            must(llm42_engine_submit(engine, &r.desc, NULL, &error), s);
        }
        llm42_result result = llm42_engine_step(engine, &error);
        must(result, s);
        if (result == LLM42_IDLE && next > to->count) break;
        if (s->cancel_every && step % s->cancel_every == 1) cancel_one(engine, &random, next - 1, s);
    }
    to->stats = llm42_engine_stats(engine);
    llm42_engine_close(engine);
}

// >>comparing ----------------------------------------------------------------------------------------------------
typedef struct score {
    int64_t requests, compared, tokens, differing, control, control_differing, shapes;
    int64_t rollbacks, preemptions, prefix_hits, cancelled;
} score;

// True if the tokens or the bits of the log-probabilities differ. A cancelled request has only some of them.
static bool differs(const answer *a, const answer *alone) {
    int n = a->count;
    if (n > alone->count || (n < alone->count && !a->cancelled)) return true;
    return n && (memcmp(a->tokens, alone->tokens, (size_t)n * sizeof *a->tokens) != 0 ||
                 memcmp(a->tokens + n, alone->tokens + alone->count, (size_t)n * sizeof *a->tokens) != 0);
}

// The engine for a request alone: of the shape's options it has only those that the promise names. With the INVARIANT
// verifier the result is that of mode BATCH_INVARIANT.
static llm42_engine *open_alone(const shape *s, served *to) {
    const llm42_engine_desc *d = &s->desc;
    bool isolated = d->policy.prefill == LLM42_PREFILL_ISOLATED;
    bool verified = d->policy.mode == LLM42_MODE_DVR || d->policy.mode == LLM42_MODE_HYBRID;
    bool one = verified && d->policy.verifier == LLM42_VERIFIER_INVARIANT;
    return open_engine(
        s,
        (llm42_engine_desc)TEST_LIST(.policy.mode = one ? LLM42_MODE_BATCH_INVARIANT : d->policy.mode,
                                     .numerics.compute = d->numerics.compute,
                                     .numerics.logits_fp32 = d->numerics.logits_fp32,
                                     .policy.window = d->policy.window * d->policy.group, .policy.group = 1,
                                     .policy.verifier = d->policy.verifier, .policy.prefill = d->policy.prefill,
                                     .policy.chunked_prefill = isolated ? d->policy.chunked_prefill
                                                                        : LLM42_CHUNKED_DEFAULT,
                                     .token_budget = isolated ? d->token_budget : 0, .max_context = d->max_context,
                                     .max_running = 1, .backend_desc = TEST_THREADS(1), .auto_release = true),
        to);
}

// Serves each deterministic request alone. On the simulator tokens depend on the id, so the others take one, too.
static void compare_alone(const shape *s, const served *loaded, const served *control, score *to) {
    served alone = new_served(loaded->count);
    llm42_engine *engine = open_alone(s, &alone);
    must(engine ? LLM42_OK : error.result, s);
    for (int64_t id = 1; id <= loaded->count; id++) {
        const answer *a = &loaded->answer[id];
        bool wanted = a->deterministic && (a->count || id <= control->count);
        request r;
        if (!wanted && !s->simulated) continue;
        make_request(s, id, &r);
        if (!wanted) r.desc.max_new_tokens = 1;
        int64_t got = 0;
        must(llm42_engine_submit(engine, &r.desc, &got, &error), s);
        must(wanted ? llm42_engine_run(engine, &error) : llm42_engine_cancel(engine, got, &error), s);
        const answer *reference = &alone.answer[got];
        if (wanted && a->count) {
            bool wrong = differs(a, reference);
            to->compared++;
            to->tokens += a->count;
            to->differing += wrong;
            if (wrong) printf("  shape %d: request %lld differs\n", s->number, (long long)id);
        }
        if (wanted && id <= control->count && control->answer[id].count) {
            to->control++;
            to->control_differing += differs(&control->answer[id], reference);
        }
        free(alone.answer[got].tokens);
        alone.answer[got].tokens = NULL;
    }
    llm42_engine_close(engine);
    free_served(&alone);
}

// Serves a shape with so many requests that about `wanted` deterministic ones can be compared. Some will be cancelled
// before their first token. False: no engine has this combination of options.
static bool run_shape(const shape *s, int64_t wanted, score *to) {
    int64_t count = wanted * 104 / s->deterministic_pct + 1;
    served loaded = new_served(count), control = new_served(LLM42__MAX(count / 20, LLM42__MIN(count, 8)));
    llm42_engine_desc ordinary = s->desc;
    ordinary.policy.mode = LLM42_MODE_NONDETERMINISTIC;
    ordinary.experiment.inject_rate = 0;
    llm42_engine *engine = open_engine(s, s->desc, &loaded);
    if (engine) {
        serve(s, engine, &loaded, false);
        engine = open_engine(s, ordinary, &control);
        must(engine ? LLM42_OK : error.result, s);
        serve(s, engine, &control, true);
        compare_alone(s, &loaded, &control, to);
        to->shapes++;
        to->requests += count;
        to->rollbacks += loaded.stats.rollbacks;
        to->preemptions += loaded.stats.preemptions;
        to->prefix_hits += loaded.stats.prefix_hits;
        to->cancelled += loaded.stats.cancelled;
    } else {
        CHECK_MSG(error.result == LLM42_INVALID, "shape %d: %s", s->number, error.text);
    }
    free_served(&loaded);
    free_served(&control);
    return engine != NULL;
}

// >>results ------------------------------------------------------------------------------------------------------
static FILE *table;  // NULL: none

static void write_head(const char *command) {
    fprintf(
        table,
        "# llm42 " LLM42_VERSION " campaign: every deterministic request under a load beside the same request alone\n"
        "# command: %s\n"
        "# backends: sim (virtual time, flips as calibrated x flip_scale) with shape:tiny; cpu with examples/tiny42\n"
        "# requests: all that were served; compared: deterministic ones with at least one token\n"
        "# differing: of compared ones, tokens or log-probability bits other than alone\n"
        "# control: requests of the same load without verification; control_differing: of those, other than alone\n"
        "# prefix_hits: prompt tokens found in the prefix cache; rates in requests a second of virtual time\n"
        "shape\tbackend\tcalibration\tflip_scale",
        command);
    for (const llm42_policy_words *p = llm42_policies(); p->name; p++) fprintf(table, "\t%s", p->name);
    fputs("\tplanner\twindow\tgroup\tcompute\tlogits_fp32\tpage_size\tpages\tmax_context\tmax_running\ttoken_budget"
          "\tdeadline\tadmission_reserve\tprefix_cache\tinject_rate\tthreads\tarrivals\trate"
          "\tdeterministic_pct\tcancel_every_steps\trequests\tcompared\ttokens\trollbacks\tpreemptions\tprefix_hits"
          "\tcancelled\tcontrol\tcontrol_differing\tdiffering\n",
          table);
}

static void write_row(const shape *s, const score *c) {
    const llm42_engine_desc *d = &s->desc;
    fprintf(table, "%d\t%s\t%s\t%g", s->number, s->simulated ? "sim" : "cpu",
            s->simulated ? calibration_names[s->calibration] : "", s->simulated ? s->sim.flip_scale : 0);
    for (const llm42_policy_words *p = llm42_policies(); p->name; p++)
        fprintf(table, "\t%s", llm42_policy_word(d, p->name));
    fprintf(table, "\t%s\t%d\t%d\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%g\t%d\t%g\t%d\t%s\t%g\t%d\t%d", d->planner->name,
            d->policy.window, d->policy.group, d->numerics.compute == LLM42_DTYPE_FP32 ? "fp32" : "bf16",
            d->numerics.logits_fp32, d->kv.page_size, d->kv.pages, d->max_context, d->max_running, d->token_budget,
            d->policy.deadline, d->kv.admission_reserve, d->kv.prefix_cache, d->experiment.inject_rate, s->threads,
            arrival_names[s->arrivals], s->arrivals == POISSON ? s->rate : 0, s->deterministic_pct, s->cancel_every);
    const int64_t counts[] = {c->requests,    c->compared,  c->tokens,  c->rollbacks,         c->preemptions,
                              c->prefix_hits, c->cancelled, c->control, c->control_differing, c->differing};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) fprintf(table, "\t%lld", (long long)counts[i]);
    fputc('\n', table);
    fflush(table);
}

static void add(score *sum, const score *c) {
    int64_t *to = (int64_t *)sum;
    for (size_t i = 0; i < sizeof *sum / sizeof *to; i++) to[i] += ((const int64_t *)c)[i];
}

// Draws shapes until `shapes` of them have run. An engine refuses some combinations of options: these are drawn again.
static void campaign(bool simulated, int64_t requests, int64_t shapes, uint64_t seed) {
    score sum = {0};
    double start = test_seconds();
    for (uint64_t draw = 0; requests && sum.shapes < shapes && draw < 10 * (uint64_t)shapes; draw++) {
        shape s;
        score one = {0};
        draw_shape(&s, (int)sum.shapes + 1, simulated, llm42_hash(seed + draw) + simulated);
        if (run_shape(&s, (requests + shapes - 1) / shapes, &one) && table) write_row(&s, &one);
        add(&sum, &one);
    }
    if (!requests) return;
    printf("  %-9s %6lld shapes %9lld requests %9lld compared %10lld tokens %9lld rollbacks %8lld preemptions\n"
           "  %9s %6lld differing; control: %lld of %lld differ; %lld cancelled, %lld tokens from the prefix cache, "
           "%.0f s\n",
           simulated ? "simulated" : "CPU", (long long)sum.shapes, (long long)sum.requests, (long long)sum.compared,
           (long long)sum.tokens, (long long)sum.rollbacks, (long long)sum.preemptions, "", (long long)sum.differing,
           (long long)sum.control_differing, (long long)sum.control, (long long)sum.cancelled,
           (long long)sum.prefix_hits, test_seconds() - start);
    CHECK_INT(sum.shapes, shapes);
    CHECK_INT(sum.differing, 0);
    CHECK(sum.control_differing > 0);
    CHECK(sum.rollbacks > 0);
    if (!TEST_SLOW) CHECK(sum.preemptions > 0);
    CHECK_MSG(sum.compared >= requests * 4 / 5, "%lld of %lld compared", (long long)sum.compared, (long long)requests);
}

int main(int argc, char **argv) {
    int64_t sim = TEST_SLOW ? 4000 : 20000, sim_shapes = 100, seed = 42;
    int64_t cpu = TEST_SLOW ? 0 : 150, cpu_shapes = 15;
    const char *out = NULL;
    const args_option options[] = {
        ARGS_INT("sim N", &sim, 0, 1000000000, "deterministic requests on the simulator"),
        ARGS_INT("cpu N", &cpu, 0, 1000000000, "deterministic requests on the CPU"),
        ARGS_INT("sim-shapes N", &sim_shapes, 1, 100000, "load shapes on the simulator"),
        ARGS_INT("cpu-shapes N", &cpu_shapes, 1, 100000, "load shapes on the CPU"),
        ARGS_INT("seed,s N", &seed, 0, 1000000000, "of the shapes"),
        ARGS_OUT("out FILE", &out, "write a table with a row for each shape"),
        ARGS_END,
    };
    args_status_1 = "a bit differs, or something went wrong";
    args_parse(argc, argv, "Compares deterministic requests under many loads with the same requests alone.", options);
    bool ready = !llm42_model_load(&tiny42, &(llm42_model_desc){.path = "examples/tiny42"}, &error) &&
                 !llm42_model_load(&shape_only, &(llm42_model_desc){.path = "shape:tiny"}, &error);
    for (int i = 0; ready && i < CALIBRATIONS; i++) {
        char path[128];
        snprintf(path, sizeof path, "sweep/calibration/%s.tsv", calibration_names[i]);
        ready = !llm42_calibration_load(&calibrations[i], path, &error);
    }
    if (!CHECK_MSG(ready, "%s", error.text)) return test_end("test_campaign");
    if (out && !(table = llm42_file_create(out))) args_fail(1, "--out: %s: cannot write: %s", out, strerror(errno));
    char command[256];
    snprintf(command, sizeof command,
             "build/tests/test_campaign --sim %lld --sim-shapes %lld --cpu %lld --cpu-shapes %lld --seed %lld",
             (long long)sim, (long long)sim_shapes, (long long)cpu, (long long)cpu_shapes, (long long)seed);
    if (table) write_head(command);
    campaign(true, sim, sim_shapes, (uint64_t)seed);
    campaign(false, cpu, cpu_shapes, (uint64_t)seed);
    if (table && !llm42_file_finish(table)) args_fail(1, "--out: %s: cannot write: %s", out, strerror(errno));
    for (int i = 0; i < CALIBRATIONS; i++) llm42_calibration_free(calibrations[i]);
    llm42_model_free(tiny42);
    llm42_model_free(shape_only);
    return test_end("test_campaign");
}
