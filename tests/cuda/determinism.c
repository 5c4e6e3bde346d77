// determinism.c: part determinism. Requests with real lengths run under different loads. The marked ones must give the
// same tokens and log-probability bits under all of them. The same requests unmarked, the control, must not.
#include "rig.h"

typedef struct ask {
    int32_t *prompt;
    int count, outputs;
    bool marked, stops;
    llm42_sampling sampling;
    size_t at;
} ask;

// A load: how many run at once, and what else is different.
typedef struct load {
    const char *name;
    int running;
    llm42_verify verify;
    llm42_fill fill;
    llm42_bonus bonus;
    double wider;   // windows as many times as wide, groups as many times smaller; 0: 1
    double inject;  // share of candidates made wrong: more rollbacks, the same results
    int page_size;  // 0: 16
    bool tight;     // so few pages that requests are preempted
    bool overlap, cache, no_graphs, spread, small_budget, whole;
} load;

static const load all_loads[] = {
    {.name = "64 running, EAGER (reference)", .running = 64},
    {.name = "256 running, WAIT, overlap, no bonus",
     .running = 256,
     .verify = LLM42_VERIFY_WAIT,
     .overlap = true,
     .bonus = LLM42_BONUS_OFF},
    {.name = "128 running, few pages, prefix cache, W/2 x 2G",
     .running = 128,
     .tight = true,
     .cache = true,
     .wider = 0.5,
     .page_size = 4},
    {.name = "32 running, arrivals spread, overlap, 2W x G/2",
     .running = 32,
     .spread = true,
     .overlap = true,
     .wider = 2,
     .page_size = 32},
    {.name = "256 running, few pages, overlap, cache, spread, WAIT",
     .running = 256,
     .tight = true,
     .overlap = true,
     .cache = true,
     .spread = true,
     .verify = LLM42_VERIFY_WAIT},
    {.name = "16 running, prompts whole, OLDEST, 5% made wrong",
     .running = 16,
     .whole = true,
     .fill = LLM42_FILL_OLDEST,
     .page_size = 64,
     .inject = 0.05},
    {.name = "8 running, no graphs, small budget, cache",
     .running = 8,
     .no_graphs = true,
     .small_budget = true,
     .cache = true},
    {.name = "4 running, WAIT, no bonus, W/4 x 4G",
     .running = 4,
     .verify = LLM42_VERIFY_WAIT,
     .bonus = LLM42_BONUS_OFF,
     .wider = 0.25},
};

static llm42_verifier verifier = LLM42_VERIFIER_FIXED;  // of the engines that are opened next

typedef struct workload {
    llm42_model *model;
    ask *asks;
    int n, max_context;
    size_t room;      // output tokens of all
    int32_t *tokens;  // [room], of the reference
    float *logprobs;
    int *counts;                  // [n]
    double mean_tokens, seconds;  // prompt and output of a request; of the reference run
} workload;

typedef struct outcome {
    llm42_stats stats;
    double seconds;
    int compared, differing, in_tokens;
} outcome;

static int64_t or_default(int64_t value, int64_t quick_one, int64_t full) {
    return value ? value : options.quick ? quick_one : full;
}

// Lengths of ShareGPT, in the file's order; without the file lengths of the same means.
static int read_lengths(int lengths[][2], int most) {
    char path[900], line[128];
    snprintf(path, sizeof path, "%.500s/traces/sharegpt_lengths.tsv", options.shared);
    FILE *file = fopen(path, "r");
    int n = 0;
    uint64_t random = 3;
    while (file && n < most && fgets(line, sizeof line, file))
        n += sscanf(line, "%d %d", &lengths[n][0], &lengths[n][1]) == 2;
    if (file) fclose(file);
    if (!n) printf("  no %s: lengths are made up\n", path);
    for (; n == 0 || (n < most && !file); n++)
        lengths[n][0] = test_random_int(&random, 4, 600), lengths[n][1] = test_random_int(&random, 4, 400);
    return n;
}

// Prompts of random tokens; one in four begins like others. Some are sampled, some may end at a stop token.
static void workload_make(workload *w, llm42_model *model, int n) {
    enum { LENGTHS = 4096, PREFIXES = 8, PREFIX = 256 };
    static int lengths[LENGTHS][2];
    int known = read_lengths(lengths, LENGTHS), vocab = model->config.vocab;
    int prompt = (int)or_default(options.longest_prompt, 128, 1024),
        output = (int)or_default(options.longest_output, 128, 512);
    if (prompt + output > model->config.context)
        prompt = model->config.context * 2 / 3, output = model->config.context / 3;
    *w = (workload){.model = model, .n = n, .max_context = prompt + output};
    w->asks = calloc((size_t)n, sizeof *w->asks);
    w->counts = calloc((size_t)n, sizeof *w->counts);
    int32_t *prefix = random_ids(PREFIXES * PREFIX, vocab, 77);
    uint64_t random = 42;
    assert(w->asks && w->counts);
    for (int i = 0; i < n; i++) {
        ask *a = &w->asks[i];
        const int *l = lengths[i % known];
        a->count = l[0] < 1 ? 1 : l[0] > prompt ? prompt : l[0];
        a->outputs = l[1] < 1 ? 1 : l[1] > output ? output : l[1];
        a->prompt = random_ids(a->count, vocab, 1000 + (uint64_t)i);
        int common = test_random_int(&random, 16, PREFIX);
        if (i % 4 == 0)
            memcpy(a->prompt, prefix + i / 16 % PREFIXES * PREFIX,
                   sizeof(int32_t) * (size_t)(common < a->count ? common : a->count));
        a->marked = test_random_int(&random, 0, 1);
        a->stops = i % 8 == 7;
        if (i % 3)
            a->sampling = (llm42_sampling){.temperature = 0.9f,
                                           .top_p = i % 3 == 1 ? 0.95f : 0,
                                           .top_k = i % 6 == 1 ? 50 : 0,
                                           .min_p = i % 9 == 1 ? 0.02f : 0,
                                           .seed = 1 + (uint64_t)i};
        a->at = w->room;
        w->room += (size_t)a->outputs;
        w->mean_tokens += (double)(a->count + a->outputs) / n;
    }
    w->tokens = calloc(w->room, sizeof *w->tokens);
    w->logprobs = new_floats(w->room);
    assert(w->tokens);
    free(prefix);
}

static void workload_free(workload *w) {
    for (int i = 0; i < w->n; i++) free(w->asks[i].prompt);
    free(w->asks);
    free(w->counts);
    free(w->tokens);
    free(w->logprobs);
    llm42_model_free(w->model);
}

// KV pages: for all that run, as memory allows; or for so few that they push each other out.
static int pages_for(const workload *w, const load *l, int page_size) {
    const llm42_config *c = &w->model->config;
    const double token = 4.0 * c->layers * c->kv_heads * c->head_dim, usual = is_cuda() ? 40 : 1,
                 gib = options.kv_gib ? (double)options.kv_gib : usual;
    int one = (w->max_context + page_size - 1) / page_size + 1;
    double many = (double)l->running * one, most = gib * 0x1p30 / token / page_size;
    if (l->tight) many = (6 + l->running / 32) * w->mean_tokens / page_size;
    return (int)fmax(one, fmin(many, most));
}

static llm42_engine *open_load(const workload *w, const load *l, llm42_mode mode, llm42_prefill prefill) {
    static llm42_cuda_desc cuda;
    cuda = cuda_desc;
    cuda.no_graphs = l->no_graphs;
    double wider = l->wider > 0 ? l->wider : 1;
    llm42_engine_desc desc = {.model = w->model,
                              .backend = tested,
                              .backend_desc = &cuda,
                              .mode = mode,
                              .verifier = verifier,
                              .max_context = w->max_context,
                              .max_running = l->running,
                              .page_size = l->page_size ? l->page_size : 16,
                              .verify = l->verify,
                              .fill = l->fill,
                              .bonus = l->bonus,
                              .overlap = l->overlap && mode == LLM42_DVR,
                              .prefix_cache = l->cache,
                              .prefill = prefill,
                              .log = note_line};
    desc.pages = pages_for(w, l, desc.page_size);
    desc.window = (int)((double)options.window * wider);
    desc.group = (int)(options.window * options.group) / (desc.window ? desc.window : 1);
    if (desc.window < 1 || desc.window * desc.group != options.window * options.group)
        desc.window = (int)options.window, desc.group = (int)options.group;
    desc.inject_rate = mode == LLM42_DVR ? l->inject : 0;
    if (l->small_budget) desc.token_budget = l->running > 48 ? l->running : 48;
    if (l->whole)
        desc.chunked_prefill = LLM42_CHUNKED_OFF,
        desc.token_budget = w->max_context > l->running ? w->max_context : l->running;
    if (prefill == LLM42_PREFILL_ISOLATED) desc.token_budget = 256;  // a part of its promise
    llm42_engine *engine = NULL;
    llm42_result result = llm42_engine_open(&engine, &desc, &rig_error);
    CHECK_MSG(result == LLM42_OK && engine, "%s: %s", l->name, rig_error.text);
    return engine;
}

static void take_results(workload *w, const llm42_engine *engine, const int64_t *ids, bool all, bool make, outcome *o) {
    for (int i = 0; i < w->n; i++) {
        const ask *a = &w->asks[i];
        const llm42_request *r = llm42_engine_request(engine, ids[i]);
        if (!r || !(all || a->marked)) continue;
        size_t n = (size_t)r->committed;
        CHECK_MSG(a->stops || r->committed == a->outputs, "request %d returned %d tokens of %d", i, r->committed,
                  a->outputs);
        o->compared++;
        if (make) {
            w->counts[i] = r->committed;
            memcpy(w->tokens + a->at, r->tokens, n * sizeof *r->tokens);
            memcpy(w->logprobs + a->at, r->logprobs, n * sizeof *r->logprobs);
            continue;
        }
        bool tokens = r->committed != w->counts[i] || memcmp(w->tokens + a->at, r->tokens, n * sizeof *r->tokens);
        o->in_tokens += tokens;
        o->differing += tokens || memcmp(w->logprobs + a->at, r->logprobs, n * sizeof *r->logprobs);
    }
}

// Runs the first n requests under a load. make: the results become the reference; else they are compared with it. all:
// every request is looked at, else the marked ones.
static outcome run_load(workload *w, int n, const load *l, llm42_mode mode, llm42_prefill prefill, bool all,
                        bool make) {
    outcome o = {0};
    int whole = w->n;
    int64_t *ids = calloc((size_t)n, sizeof *ids);
    llm42_engine *engine = open_load(w, l, mode, prefill);
    double begin = test_seconds(), now = engine ? llm42_engine_now(engine) : 0;
    bool ok = engine && ids;
    for (int i = 0; ok && i < n; i++) {
        const ask *a = &w->asks[i];
        llm42_request_desc desc = {.prompt = a->prompt,
                                   .prompt_count = a->count,
                                   .max_new_tokens = a->outputs,
                                   .sampling = a->sampling,
                                   .ignore_stop = !a->stops,
                                   .deterministic = a->marked && mode == LLM42_DVR};
        if (l->spread) desc.arrival = now + 0.5 * w->seconds * i / n;
        ok = CHECK_MSG(llm42_engine_submit(engine, &desc, &ids[i], &rig_error) == LLM42_OK, "%s: %s", l->name,
                       rig_error.text);
    }
    ok = ok && CHECK_MSG(llm42_engine_run(engine, &rig_error) == LLM42_OK, "%s: %s", l->name, rig_error.text);
    o.seconds = test_seconds() - begin;
    if (engine) o.stats = llm42_engine_stats(engine);
    w->n = n;
    if (ok) take_results(w, engine, ids, all, make, &o);
    w->n = whole;
    llm42_engine_close(engine);
    free(ids);
    CHECK_MSG(ok && o.compared > 0, "%s: nothing was compared", l->name);
    CHECK_MSG(!l->tight || o.stats.preemptions > 0, "%s: nothing was preempted", l->name);
    CHECK_MSG(!l->cache || o.stats.prefix_hits > 0, "%s: nothing was found in the prefix cache", l->name);
    return o;
}

static void print_load(const char *kind, const load *l, const outcome *o) {
    char name[256];
    snprintf(name, sizeof name, "%s: %s", kind, l->name);
    printf("  %-66s %5lld requests %8lld tokens %6lld rollbacks %5lld preempted %7lld hits %7.1f s  %4d of %4d differ "
           "(%d in tokens)\n",
           name, (long long)o->stats.finished, (long long)o->stats.returned_tokens, (long long)o->stats.rollbacks,
           (long long)o->stats.preemptions, (long long)o->stats.prefix_hits, o->seconds, o->differing, o->compared,
           o->in_tokens);
    fflush(stdout);
    note(name, "requests", (double)o->stats.finished);
    note(name, "tokens", (double)o->stats.returned_tokens);
    note(name, "rollbacks", (double)o->stats.rollbacks);
    note(name, "compared_candidates", (double)o->stats.compared);
    note(name, "preemptions", (double)o->stats.preemptions);
    note(name, "prefix_hits", (double)o->stats.prefix_hits);
    note(name, "seconds", o->seconds);
    note(name, "compared", o->compared);
    note(name, "differing", o->differing);
    note(name, "differing_in_tokens", o->in_tokens);
}

// Runs the first n requests under a load, as run_load does. None of those looked at may differ.
static outcome check_load(workload *w, int n, const load *l, llm42_mode mode, llm42_prefill prefill, bool make,
                          const char *kind) {
    outcome o = run_load(w, n, l, mode, prefill, mode == LLM42_BATCH_INVARIANT, make);
    print_load(kind, l, &o);
    CHECK_MSG(o.differing == 0, "%s: %s: %d of %d requests differ", kind, l->name, o.differing, o.compared);
    return o;
}

// The controls: without a promise results do differ. (Our own kernels alone have one order.)
static void check_unmarked(workload *w, int n) {
    for (int i = 0; i < 2; i++) {
        outcome o = run_load(w, n, &all_loads[i], LLM42_NONDETERMINISTIC, LLM42_PREFILL_DEFAULT, true, i == 0);
        print_load("control: unmarked", &all_loads[i], &o);
        CHECK_MSG(i == 0 || o.differing > 0 || cuda_desc.no_cublas,
                  "the same requests unmarked do not differ: nothing has been shown");
    }
    cuda_desc.fast = LLM42_CUDA_FAST_DEFAULT;
    for (int i = 0; i < 2 && is_cuda(); i++) {  // not a check: it shows how much drift is left
        outcome o = run_load(w, n, &all_loads[i], LLM42_NONDETERMINISTIC, LLM42_PREFILL_DEFAULT, true, i == 0);
        print_load("unmarked, fastest products", &all_loads[i], &o);
    }
}

// The other promises. Each has bits of its own: load 1 makes the reference.
static void check_promises(workload *w, int n) {
    const int some = n / 8 > 32 ? n / 8
                     : n < 32   ? n
                                : 32,
              most = options.quick ? 2 : 4, loads = options.loads < most ? (int)options.loads : most;
    for (int i = 0; i < 2; i++)
        check_load(w, some, &all_loads[i * 3], LLM42_DVR, LLM42_PREFILL_ISOLATED, i == 0, "DVR, ISOLATED");
    for (int i = 0; i < loads; i++) {
        outcome o = check_load(w, n, &all_loads[i], LLM42_DVR, LLM42_PREFILL_INVARIANT, i == 0,
                               "DVR, INVARIANT prompts");
        CHECK(o.stats.passes[LLM42_INVARIANT] > 0);
    }
    for (int i = 0; i < loads; i++)
        check_load(w, n, &all_loads[i], LLM42_BATCH_INVARIANT, LLM42_PREFILL_DEFAULT, i == 0, "BATCH_INVARIANT");
    verifier = LLM42_VERIFIER_INVARIANT;  // then all that is committed has the bits of mode BATCH_INVARIANT
    for (int i = 0; i < loads; i++)
        check_load(w, n, &all_loads[i], LLM42_DVR, i & 1 ? LLM42_PREFILL_PACKED : LLM42_PREFILL_INVARIANT, false,
                   "DVR, verifier INVARIANT, against BATCH_INVARIANT");
    verifier = LLM42_VERIFIER_FIXED;
}

void part_determinism(void) {
    workload w;
    llm42_model *model = load_model(main_model(), false);
    int n = (int)or_default(options.requests, 256, 4096);
    if (!model) return;
    workload_make(&w, model, n);
    printf("  %s, %d requests, %.0f tokens each in the mean, at most %d\n", main_model(), n, w.mean_tokens,
           w.max_context);
    // The products that cuBLASLt offers drift much, the fastest ones drift little. What is committed is the same.
    for (int i = 0; i < options.loads; i++) {
        if (i > 0 && i < options.from_load - 1) continue;
        cuda_desc.fast = i & 1 ? LLM42_CUDA_FAST_FASTEST : LLM42_CUDA_FAST_OFFERED;
        outcome o = check_load(&w, n, &all_loads[i], LLM42_DVR, LLM42_PREFILL_PACKED, i == 0,
                               !is_cuda() ? "DVR"
                               : i & 1    ? "DVR, fastest products"
                                          : "DVR, offered products");
        if (i == 0) w.seconds = o.seconds;
    }
    cuda_desc.fast = LLM42_CUDA_FAST_OFFERED;
    if (options.from_load == 1) {
        check_promises(&w, n);
        check_unmarked(&w, n);
    }
    cuda_desc.fast = LLM42_CUDA_FAST_DEFAULT;
    workload_free(&w);
}
