// determinism.c: part determinism. Thousands of requests with real lengths, under loads whose shapes are drawn from a
// seed. About half of them are marked deterministic.
// - The reference: all requests, by preset `invariant`, under one fixed load. A sample of the texts is scored by passes
//   without an engine, and must have the same tokens and log-probability bits.
// - Preset `best`: each load serves its share of the requests. The marked ones must have the reference's tokens and
//   bits. So must those that preset `dvr` serves.
// - Preset `paper`, whose results depend on M: two loads with one M serve the same requests, with the same results.
// - The control: all requests unmarked under two loads. Some must differ, or else all with other numerics.
#include "rig.h"

#include "examples/util/llm42_policies.h"

#include "examples/lib/args.h"
#define LLM42_TRANSCRIPT_IMPLEMENTATION
#include "examples/util/llm42_transcript.h"

typedef struct ask {
    int32_t *prompt;
    int count, outputs;
    bool marked, stops;
    llm42_sampling sampling;
    size_t at;  // of its tokens in results
} ask;

typedef struct results {
    int32_t *tokens;  // [room]
    float *logprobs;  // [room]
    int *counts;      // [n]
} results;

typedef struct workload {
    llm42_model *model;
    ask *asks;
    int n, max_context;
    size_t room;         // output tokens of all
    double mean_tokens;  // prompt and output of a request
    double seconds;      // of the reference, for each request
    results canonical, others;
} workload;

// A load. Of the desc, open_load fills in what does not differ from load to load.
typedef struct load {
    char name[32], shape[400];
    llm42_engine_desc desc;
    llm42_cuda_desc cuda;
    bool tight;      // so few pages that requests are preempted
    bool spread;     // requests arrive one after the other, twice as fast as the reference served them
    bool reference;  // by as many ranks as the reference has
    int leaves;      // 0: those of the reference
} load;

typedef struct tally {
    int compared, differing, in_tokens;
} tally;

typedef struct outcome {
    llm42_stats stats;
    double seconds;  // with opening the engine
    tally marked, unmarked;
    llm42_recorder *recorder;
    args_manifest manifest;
} outcome;

static int64_t or_default(int64_t value, int64_t quick_one, int64_t full) {
    return value ? value : options.quick ? quick_one : full;
}

static int least(int a, int b) { return a < b ? a : b; }
static int most(int a, int b) { return a > b ? a : b; }

// >>requests -----------------------------------------------------------------------------------------------------
// Lengths of ShareGPT, in the file's order; without the file lengths of the same means.
static int read_lengths(int lengths[][2], int room) {
    char path[900], line[128];
    snprintf(path, sizeof path, "%.500s/traces/sharegpt_lengths.tsv", options.shared);
    FILE *file = fopen(path, "r");
    int n = 0;
    uint64_t random = 3;
    while (file && n < room && fgets(line, sizeof line, file))
        n += sscanf(line, "%d %d", &lengths[n][0], &lengths[n][1]) == 2;
    if (file) fclose(file);
    if (!n) printf("  no %s: lengths are made up\n", path);
    for (; n == 0 || (n < room && !file); n++)
        lengths[n][0] = test_random_int(&random, 4, 600), lengths[n][1] = test_random_int(&random, 4, 400);
    return n;
}

static void results_make(results *r, const workload *w) {
    r->tokens = calloc(w->room, sizeof *r->tokens);
    r->counts = calloc((size_t)w->n, sizeof *r->counts);
    r->logprobs = new_floats(w->room);
    assert(r->tokens && r->counts);
}

static void results_free(results *r) { TEST_FREE(r->tokens, r->logprobs, r->counts); }

// Prompts of random tokens; one in four begins like others. Some are sampled, some may end at a stop token.
static void workload_make(workload *w, llm42_model *model, int n) {
    enum { LENGTHS = 20000, PREFIXES = 8, PREFIX = 256 };
    static int lengths[LENGTHS][2];
    int known = read_lengths(lengths, LENGTHS), vocab = model->config.vocab;
    int prompt = (int)or_default(options.longest_prompt, 128, 1024),
        output = (int)or_default(options.longest_output, 128, 512);
    if (prompt + output > model->config.context)
        prompt = model->config.context * 2 / 3, output = model->config.context / 3;
    *w = (workload){.model = model, .n = n, .max_context = prompt + output};
    w->asks = calloc((size_t)n, sizeof *w->asks);
    int32_t *prefix = random_ids(PREFIXES * PREFIX, vocab, 77);
    uint64_t random = 42;
    assert(w->asks);
    for (int i = 0; i < n; i++) {
        ask *a = &w->asks[i];
        const int *l = lengths[i % known];
        a->count = least(most(l[0], 1), prompt);
        a->outputs = least(most(l[1], 1), output);
        a->prompt = random_ids(a->count, vocab, 1000 + (uint64_t)i);
        int common = test_random_int(&random, 16, PREFIX);
        if (i % 4 == 0)
            memcpy(a->prompt, prefix + i / 16 % PREFIXES * PREFIX, sizeof(int32_t) * (size_t)least(common, a->count));
        a->marked = test_random_int(&random, 0, 1);
        a->stops = i % 8 == 7;
        if (i % 3)
            a->sampling = (llm42_sampling)TEST_LIST(.temperature = 0.9f, .top_p = i % 3 == 1 ? 0.95f : 0,
                                                    .top_k = i % 6 == 1 ? 50 : 0, .min_p = i % 9 == 1 ? 0.02f : 0,
                                                    .seed = 1 + (uint64_t)i);
        a->at = w->room;
        w->room += (size_t)a->outputs;
        w->mean_tokens += (double)(a->count + a->outputs) / n;
    }
    results_make(&w->canonical, w);
    results_make(&w->others, w);
    free(prefix);
}

static void workload_free(workload *w) {
    for (int i = 0; i < w->n; i++) free(w->asks[i].prompt);
    free(w->asks);
    results_free(&w->canonical);
    results_free(&w->others);
    llm42_model_free(w->model);
}

// >>loads --------------------------------------------------------------------------------------------------------
static int drawn(uint64_t *random, const int *values, int count) { return values[test_random(random) % (size_t)count]; }
#define DRAW(...) drawn(random, (const int[]){__VA_ARGS__}, sizeof(int[]){__VA_ARGS__} / sizeof(int))

// One line: what the load sets.
static void describe(load *l) {
    const llm42_engine_desc *d = &l->desc;
    llm42_engine_desc full = *d;
    char policies[200] = "";
    llm42_preset_apply(&full);
    for (const llm42_policy_words *p = llm42_policies(); p->name; p++) {
        const char *word = llm42_policy_word(d, p->name);
        size_t used = strlen(policies);
        if (strcmp(word, "default") && strcmp(p->name, "preset"))
            snprintf(policies + used, sizeof policies - used, ", %s %s", p->name, word);
    }
    snprintf(l->shape, sizeof l->shape, "%s: %d running, page %d, W %d x G %d, budget %d%s%s%s%s%s%s%s%s%s", l->name,
             d->max_running, d->kv.page_size, full.policy.window, full.policy.group, d->token_budget,
             l->tight ? ", few pages" : "", d->kv.prefix_cache ? ", prefix cache" : "",
             d->planner ? ", ways at random" : "", l->spread ? ", spread arrivals" : "", policies,
             d->experiment.inject_rate > 0 ? ", 5% made wrong" : "", d->policy.deadline ? ", deadline 1" : "",
             l->cuda.no_graphs ? ", no graphs" : "",
             l->cuda.fast == LLM42_CUDA_FAST_OFFERED ? ", offered products" : ", fastest products");
}

// Results by preset `paper` depend on M, on the prefill and, since it is ISOLATED, on the token budget.
static void draw_policies(llm42_engine_desc *d, const workload *w, uint64_t *random) {
    const bool paper = d->preset == LLM42_PRESET_PAPER;
    for (const llm42_policy_words *p = llm42_policies(); p->name; p++) {
        const bool fixed = !strcmp(p->name, "preset") || !strcmp(p->name, "mode") || !strcmp(p->name, "verifier") ||
                           (paper && !strcmp(p->name, "prefill"));
        int words = 0;
        while (p->word[words]) words++;
        int word = (int)(test_random(random) % (size_t)(words + 1));  // the last: the preset's
        if (!fixed && word < words) llm42_policy_set(d, p->name, p->word[word], NULL);
    }
    llm42_engine_desc full = *d;
    llm42_preset_apply(&full);
    const int M = full.policy.window * full.policy.group;
    d->policy.window = paper ? DRAW(16, 32, 64, 128) : DRAW(4, 8, 16, 32);
    d->policy.group = paper ? M / d->policy.window : DRAW(2, 4, 8, 16);
    const bool whole = full.policy.chunked_prefill == LLM42_CHUNKED_OFF;
    d->token_budget = most(d->max_running, whole ? w->max_context : 48) + DRAW(0, 16, 200);
    if (paper) d->token_budget = most(w->max_context, 256);
}

// The number decides what must come up. Of each four loads in a row two have few pages, two the prefix cache,
// and one wrong candidates. By preset `best` two choose between FAST and INVARIANT at random, and two by times.
static load draw_load(const workload *w, llm42_preset preset, int number) {
    uint64_t state = llm42_hash((uint64_t)options.seed) ^ llm42_hash((uint64_t)(100 * number + (int)preset));
    uint64_t *random = &state;
    const int k = number % 4;
    load l = {.tight = k == 1 || k == 2};
    llm42_engine_desc *d = &l.desc;
    l.spread = !l.tight && DRAW(0, 1);
    d->preset = preset;
    d->kv.prefix_cache = k > 1 || DRAW(0, 0, 1);
    d->max_running = l.tight              ? DRAW(32, 64, 128)
                     : d->kv.prefix_cache ? DRAW(8, 16)  // later ones find what earlier ones leave
                                          : DRAW(8, 16, 32, 64, 128, 256);
    d->kv.page_size = l.tight || d->kv.prefix_cache ? DRAW(4, 8, 16) : DRAW(4, 16, 32, 64);
    d->policy.deadline = DRAW(0, 0, 1);
    d->experiment.inject_rate = k == 0 || DRAW(0, 0, 1) ? 0.05 : 0;
    d->planner = preset == LLM42_PRESET_BEST && k < 2 ? &mixed_planner : NULL;
    draw_policies(d, w, random);
    l.cuda = cuda_desc;
    l.cuda.no_graphs = DRAW(0, 0, 0, 1);
    l.cuda.fast = DRAW(LLM42_CUDA_FAST_OFFERED, LLM42_CUDA_FAST_OFFERED, LLM42_CUDA_FAST_FASTEST);
    snprintf(l.name, sizeof l.name, "%s %d", llm42_policy_word(d, "preset"), number);
    describe(&l);
    return l;
}

static load fixed_load(const char *name, llm42_preset preset, llm42_mode mode, int running) {
    load l = {.desc = {.preset = preset, .policy.mode = mode, .max_running = running, .kv.page_size = 16},
              .cuda = cuda_desc};
    l.desc.token_budget = most(running, 256);
    l.cuda.fast = LLM42_CUDA_FAST_OFFERED;
    snprintf(l.name, sizeof l.name, "%s", name);
    describe(&l);
    return l;
}

// KV pages: for all that run, as memory allows; or for so few that they push each other out.
static int pages_for(const workload *w, const load *l) {
    const llm42_config *c = &w->model->config;
    const double token = 4.0 * c->layers * c->kv_heads * c->head_dim, usual = is_cuda() ? 40 : 1,
                 gib = options.kv_gib ? (double)options.kv_gib : usual;
    const int page_size = l->desc.kv.page_size, one = (w->max_context + page_size - 1) / page_size + 1;
    double many = (double)l->desc.max_running * one, room = gib * 0x1p30 / token / page_size;
    if (l->tight) many = (6 + l->desc.max_running / 32) * w->mean_tokens / page_size;
    return (int)fmax(one, fmin(many, room));
}

static void watch(void *user, const llm42_event *event) {
    outcome *o = user;
    if (event->type == LLM42_EVENT_FINISHED) {
        const llm42_request *r = event->info;
        if (r->deterministic && r->id % options.record_every == 0) llm42_recorder_event(o->recorder, event);
    }
}

// What the device says of itself goes into transcripts too. Its algorithms change no result that is recorded.
static void log_line(void *user, const char *line) {
    note_line(NULL, line);
    if (strncmp(line, "cuda algorithm", 14) != 0) args_manifest_log(user, line);
}

static llm42_engine *open_load(const workload *w, const load *l, outcome *o) {
    llm42_engine *engine = NULL;
    llm42_engine_desc desc = l->desc;
    desc.model = w->model;
    if (desc.kv.prefix_cache && w->model->config.recurrent_layers) desc.kv.snapshots = 64;  // of prefixes, too
    desc.backend = tested;
    llm42_cuda_desc own = l->cuda;
    desc.backend_desc = &own;
    desc.numerics.leaves = l->leaves ? l->leaves : leaves_for(w->model);
    desc.tensor_parallel = l->reference ? (int)options.reference_ranks : ranks_for(w->model);
    own.devices = desc.tensor_parallel > 1 ? (int)options.devices : 0;
    desc.max_context = w->max_context;
    desc.kv.pages = pages_for(w, l);
    desc.on_event = watch;
    desc.event_user = o;
    desc.log = log_line;
    desc.log_user = &o->manifest;
    llm42_result result = llm42_engine_open(&engine, &desc, &rig_error);
    CHECK_MSG(result == LLM42_OK && engine, "%s: %s", l->name, rig_error.text);
    return engine;
}

// For build/audit.
static void record(outcome *o, const load *l, const llm42_engine *engine) {
    char path[900], name[sizeof l->name], comments[sizeof l->shape + sizeof o->manifest.text];
    snprintf(name, sizeof name, "%s", l->name);
    for (char *c = name; *c; c++)
        if (*c == ' ') *c = '_';
    snprintf(path, sizeof path, "%.800s/%s.txt", options.record, name);
    snprintf(comments, sizeof comments, "%s\n%s", l->shape, o->manifest.text);
    CHECK_MSG(llm42_recorder_open(&o->recorder, path, engine, comments, &rig_error) == LLM42_OK, "%s", rig_error.text);
}

// >>serve --------------------------------------------------------------------------------------------------------
static void compare(tally *t, bool tokens, bool logprobs) {
    t->compared++;
    t->differing += tokens || logprobs;
    t->in_tokens += tokens;
}

// Keeps the results of request i, or compares them with those that are kept.
static void take_results(const workload *w, int i, const llm42_request *r, results *kept, bool make, outcome *o) {
    const ask *a = &w->asks[i];
    const size_t n = (size_t)r->committed;
    CHECK_MSG(a->stops || r->committed == a->outputs, "request %d returned %d tokens of %d", i, r->committed,
              a->outputs);
    if (make) {
        kept->counts[i] = r->committed;
        memcpy(kept->tokens + a->at, r->tokens, n * sizeof *r->tokens);
        memcpy(kept->logprobs + a->at, r->logprobs, n * sizeof *r->logprobs);
        return;
    }
    bool tokens = r->committed != kept->counts[i] || memcmp(kept->tokens + a->at, r->tokens, n * sizeof *r->tokens);
    bool logprobs = memcmp(kept->logprobs + a->at, r->logprobs, n * sizeof *r->logprobs) != 0;
    compare(r->deterministic ? &o->marked : &o->unmarked, tokens, logprobs);
}

static bool submit_all(const workload *w, llm42_engine *engine, const load *l, int first, int count, int64_t *ids) {
    bool ok = true;
    double now = llm42_engine_now(engine);
    for (int i = 0; ok && i < count; i++) {
        const ask *a = &w->asks[first + i];
        llm42_request_desc desc = TEST_LIST(.prompt = a->prompt, .prompt_count = a->count, .max_new_tokens = a->outputs,
                                            .sampling = a->sampling, .ignore_stop = !a->stops,
                                            .deterministic = a->marked &&
                                                             l->desc.policy.mode != LLM42_MODE_NONDETERMINISTIC,
                                            .arrival = l->spread ? now + w->seconds / 2 * i : 0);
        ok = CHECK_MSG(llm42_engine_submit(engine, &desc, &ids[i], &rig_error) == LLM42_OK, "%s: %s", l->name,
                       rig_error.text);
    }
    return ok;
}

static void report(const load *l, const outcome *o) {
    const llm42_stats *s = &o->stats;
    const struct {
        const char *quantity;
        double value;
    } values[] = TEST_LIST(
        {"requests", (double)s->finished}, {"tokens", (double)s->returned_tokens},
        {"fast_passes", (double)s->passes[LLM42_SCHEDULE_FAST]},
        {"fixed_passes", (double)s->passes[LLM42_SCHEDULE_FIXED]},
        {"invariant_passes", (double)s->passes[LLM42_SCHEDULE_INVARIANT]}, {"verifications", (double)s->verifications},
        {"compared_candidates", (double)s->compared}, {"rollbacks", (double)s->rollbacks},
        {"preemptions", (double)s->preemptions}, {"prefix_hits", (double)s->prefix_hits}, {"seconds", o->seconds},
        {"compared", o->marked.compared}, {"differing", o->marked.differing},
        {"differing_in_tokens", o->marked.in_tokens}, {"unmarked", o->unmarked.compared},
        {"unmarked_differing", o->unmarked.differing}, {"unmarked_differing_in_tokens", o->unmarked.in_tokens});
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) note(l->name, values[i].quantity, values[i].value);
    printf("    %.1f s, %lld requests, %lld tokens, passes %lld FAST %lld FIXED %lld INVARIANT, %lld "
           "rollbacks, %lld preempted, %lld hits",
           o->seconds, (long long)s->finished, (long long)s->returned_tokens, (long long)s->passes[LLM42_SCHEDULE_FAST],
           (long long)s->passes[LLM42_SCHEDULE_FIXED], (long long)s->passes[LLM42_SCHEDULE_INVARIANT],
           (long long)s->rollbacks, (long long)s->preemptions, (long long)s->prefix_hits);
    if (o->marked.compared) printf(": %d of %d marked differ", o->marked.differing, o->marked.compared);
    if (o->unmarked.compared)
        printf("; %d of %d unmarked differ (%d in tokens)", o->unmarked.differing, o->unmarked.compared,
               o->unmarked.in_tokens);
    printf("\n");
    fflush(stdout);
}

// What the load's shape is meant to bring about has happened.
static void check_shape(const load *l, int count, const outcome *o) {
    const bool mixed = l->desc.planner == &mixed_planner;
    const llm42_stats *s = &o->stats;
    CHECK_MSG(s->finished == count && s->failed == 0, "%s: %lld of %d requests finished, %lld failed", l->name,
              (long long)s->finished, count, (long long)s->failed);
    // Fewer requests than can run at once may fit into the few pages there are.
    CHECK_MSG(!l->tight || count < l->desc.max_running || s->preemptions > 0, "%s: nothing was preempted", l->name);
    CHECK_MSG(!l->desc.kv.prefix_cache || s->prefix_hits > 0, "%s: nothing was found in the prefix cache", l->name);
    CHECK_MSG(!mixed ||
                  (s->passes[LLM42_SCHEDULE_FAST] > 0 && s->passes[LLM42_SCHEDULE_INVARIANT] > 0 && s->compared > 0),
              "%s: not both ways were taken", l->name);
}

// Serves count requests from the first on under a load. make: the results are kept, else compared with those kept.
static outcome serve(const workload *w, const load *l, int first, int count, results *kept, bool make) {
    outcome o = {0};
    double begin = test_seconds();
    note_head(l->shape);
    int64_t *ids = calloc((size_t)count, sizeof *ids);
    llm42_engine *engine = open_load(w, l, &o);
    if (engine && options.record && l->desc.preset != LLM42_PRESET_PAPER &&
        l->desc.policy.mode != LLM42_MODE_NONDETERMINISTIC)
        record(&o, l, engine);
    bool ok = engine && ids && submit_all(w, engine, l, first, count, ids);
    ok = ok && CHECK_MSG(llm42_engine_run(engine, &rig_error) == LLM42_OK, "%s: %s", l->name, rig_error.text);
    for (int i = 0; ok && i < count; i++)
        take_results(w, first + i, llm42_engine_request(engine, ids[i]), kept, make, &o);
    if (engine) o.stats = llm42_engine_stats(engine);
    o.seconds = test_seconds() - begin;
    CHECK_MSG(llm42_recorder_close(o.recorder, &rig_error) == LLM42_OK, "%s", rig_error.text);
    llm42_engine_close(engine);
    free(ids);
    if (ok) check_shape(l, count, &o);
    report(l, &o);
    return o;
}

// The same, for loads with a promise: of the marked requests none may differ.
static void check_load(const workload *w, const load *l, int first, int count, results *kept, bool make) {
    outcome o = serve(w, l, first, count, kept, make);
    CHECK_MSG(make || o.marked.compared > 0, "%s: nothing was compared", l->name);
    CHECK_MSG(o.marked.differing == 0, "%s: %d of %d marked requests differ", l->name, o.marked.differing,
              o.marked.compared);
}

// >>checks -------------------------------------------------------------------------------------------------------
// Runs a text through INVARIANT passes of random sizes, without an engine. At each position the same token must be
// drawn again, with the same bits of its log-probability.
static void score(const workload *w, rig *g, int i, llm42_output *out, int32_t *text, tally *t) {
    enum { MOST = 256 };
    const ask *a = &w->asks[i];
    const int length = w->canonical.counts[i], count = a->count + length - 1;
    memcpy(text, a->prompt, sizeof *text * (size_t)a->count);
    memcpy(text + a->count, w->canonical.tokens + a->at, sizeof *text * (size_t)length);
    g->seq[0].sampling = a->sampling;
    for (int at = 0, rows; at < count; at += rows) {
        rows = least(test_random_int(&g->random, 1, MOST), count - at);
        if (!rig_feed(g, LLM42_SCHEDULE_INVARIANT, 0, text, at, rows, out + at, NULL)) return;
    }
    bool tokens = false, logprobs = false;
    for (int k = 0; k < length; k++) {
        const llm42_output *got = &out[a->count - 1 + k];
        tokens |= got->token != text[a->count + k];
        logprobs |= memcmp(&got->logprob, &w->canonical.logprobs[a->at + (size_t)k], sizeof got->logprob) != 0;
    }
    compare(t, tokens, logprobs);
}

static void check_scoring(const workload *w) {
    enum { EVERY = 10 };
    rig g = {0};
    tally t = {0};
    double begin = test_seconds();
    llm42_output *out = calloc((size_t)w->max_context, sizeof *out);
    int32_t *text = calloc((size_t)w->max_context, sizeof *text);
    assert(out && text);
    if (rig_open(&g, tested,
                 (llm42_backend_desc)TEST_LIST(.model = w->model, .max_rows = 256, .max_context = w->max_context,
                                               .schedules = 1u << LLM42_SCHEDULE_INVARIANT)))
        for (int i = 0; i < w->n; i += EVERY) score(w, &g, i, out, text, &t);
    rig_close(&g);
    TEST_FREE(out, text);
    printf("  scoring by INVARIANT passes without an engine: %d of %d texts differ, %.1f s\n", t.differing, t.compared,
           test_seconds() - begin);
    note("scoring", "compared", t.compared);
    note("scoring", "differing", t.differing);
    CHECK_MSG(t.compared == (w->n + EVERY - 1) / EVERY && !t.differing, "scoring: %d of %d texts differ", t.differing,
              t.compared);
}

// An eighth of the requests by the other presets.
static void check_other_presets(workload *w) {
    const int some = least(w->n, most(w->n / 8, 64));
    for (int number = 1; number <= 2 && !options.all_presets; number++) {
        load l = draw_load(w, LLM42_PRESET_DVR, number);
        check_load(w, &l, (number - 1) * (some / 2), some / 2, &w->canonical, false);
    }
    for (int number = 1; number <= 2; number++) {
        load l = draw_load(w, LLM42_PRESET_PAPER, number);
        check_load(w, &l, 0, some, &w->others, number == 1);
    }
}

// States that keep what was rolled back must make a difference.
static void check_kept_states(workload *w) {
    load l = draw_load(w, LLM42_PRESET_DVR, 4);
    l.desc.experiment.keep_fast_state = true;
    outcome o = serve(w, &l, 0, least(w->n, 200), &w->canonical, false);
    CHECK_MSG(o.marked.differing > 0, "no request differs whose states keep what was rolled back");
}

// The controls: without a promise results do differ. Where FAST passes happen to have one order of sums whatever the
// load, as with small products, other numerics must make a difference instead: leaves, or logits in fp32.
static void check_unmarked(workload *w) {
    for (int i = 0; i < 2; i++) {
        load l = fixed_load(i ? "unmarked 2" : "unmarked 1", LLM42_PRESET_DVR, LLM42_MODE_NONDETERMINISTIC,
                            i ? 256 : 64);
        l.reference = !i;
        outcome o = serve(w, &l, 0, w->n, &w->others, i == 0);
        if (!i || o.unmarked.differing) continue;
        l = fixed_load("other numerics", LLM42_PRESET_INVARIANT, LLM42_MODE_DEFAULT, 64);
        l.reference = true;
        const llm42_config *c = &w->model->config;  // small models in FP8 and small hybrids cannot have leaves
        if (c->scaling || c->recurrent_layers) l.desc.numerics.logits_fp32 = true;
        else l.leaves = leaves_for(w->model) == 2 ? 1 : 2;
        o = serve(w, &l, 0, w->n, &w->canonical, false);
        CHECK_MSG(o.marked.differing > 0,
                  "neither unmarked requests nor other numerics differ: nothing has been shown");
    }
}

// Without leaves results depend on the number of ranks.
static void check_one_leaf(workload *w) {
    for (int i = 0; i < 2; i++) {
        load l = fixed_load(i ? "one leaf 2" : "one leaf 1", LLM42_PRESET_INVARIANT, LLM42_MODE_DEFAULT, 64);
        l.leaves = 1, l.reference = !i;
        outcome o = serve(w, &l, 0, w->n, &w->others, i == 0);
        CHECK_MSG(i == 0 || o.marked.differing > 0,
                  "without leaves other numbers of ranks give the same results: nothing has been shown");
    }
}

// The reference is by one rank. If one device has no room for the model, it is by more (--reference-ranks).
void part_determinism(void) {
    static const llm42_preset presets[] = {LLM42_PRESET_BEST, LLM42_PRESET_DVR, LLM42_PRESET_INVARIANT};
    workload w;
    llm42_model *model = load_model(main_model(), false);
    int n = (int)or_default(options.requests, 256, 20000), loads = (int)options.loads;
    if (!model) return;
    workload_make(&w, model, n);
    printf("  %s, %d requests, %.0f tokens each in the mean, at most %d\n", main_model(), n, w.mean_tokens,
           w.max_context);
    load reference = fixed_load("invariant", LLM42_PRESET_INVARIANT, LLM42_MODE_DEFAULT, 128);
    reference.reference = true;
    outcome o = serve(&w, &reference, 0, n, &w.canonical, true);
    w.seconds = o.stats.busy[LLM42_SCHEDULE_INVARIANT] / n;
    CHECK_MSG(options.from_load <= loads, "--from %d: there are %d loads", (int)options.from_load, loads);
    if (options.from_load == 1) check_scoring(&w);
    for (int i = 0; i < (options.all_presets ? 3 : 1); i++)
        for (int number = (int)options.from_load; number <= loads; number++) {
            load l = draw_load(&w, presets[i], number);
            int first = (int)((int64_t)n * (number - 1) / loads), end = (int)((int64_t)n * number / loads);
            check_load(&w, &l, first, end - first, &w.canonical, false);
        }
    if (options.from_load == 1) {
        check_other_presets(&w);
        check_unmarked(&w);
        if (model->config.recurrent_layers) check_kept_states(&w);
        if (ranks_for(model) != options.reference_ranks) check_one_leaf(&w);
    }
    workload_free(&w);
}
