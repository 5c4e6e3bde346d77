// drafts: what drafts are worth. It serves the same requests, a batch of them at once, in several ways: ordinary ones
// (NONDETERMINISTIC) and deterministic ones by presets, each without drafts and with each drafter. For every way it
// prints tokens per second, tokens a pass, and how many drafts were right, and compares the tokens and log-probability
// bits of deterministic requests with those of preset invariant without drafts.
//
//     build/drafts --model DIR --draft lookup,model:examples/draft42 --batch 1,8 --out FILE
//     build/drafts --backend cuda --model synthetic:llama-3.1-8b,margin=6.2 --draft 0,0.5,0.7,0.9 --batch 1,4,16
//
// A number among the drafters stands for an oracle: it knows the tokens of each way from the run without drafts, and
// proposes the right one with this probability. So it tells what a rate of acceptance is worth without a drafter.
//
// A run serves --rounds times as many requests as the batch has, and where one ends the next begins. So the batch is
// full from the pass in which its last request gets its first token to the first pass in which a request ends that has
// no successor. The speed is what these passes commit, divided by their time. They also hold the prompts of later
// requests. Drafters take turns, and each figure is the median of --repeats runs. The ratio to the run without drafts
// has its least and most over the turns beside it, because a ratio says nothing where these are far apart.
#define _POSIX_C_SOURCE 200809L
#define LLM42_IMPLEMENTATION
#include "examples/util/llm42_synthetic.h"
#define LLM42_DRAFT_IMPLEMENTATION
#include "examples/util/llm42_draft.h"
#include "examples/lib/engine.h"
#include "sweep/lib/common.h"

#include "stb_ds.h"

enum { MOST = 24, BATCH_MOST = 256, REQUESTS_MOST = 4096, REPEATS_MOST = 31 };

typedef struct way {
    const char *name;
    llm42_preset preset;
    llm42_mode mode;
} way;
static const way ways[] = {
    {"invariant", LLM42_PRESET_INVARIANT, LLM42_MODE_DEFAULT},  // the first one is what others are compared with
    {"ordinary", LLM42_PRESET_DVR, LLM42_MODE_NONDETERMINISTIC},
    {"dvr", LLM42_PRESET_DVR, LLM42_MODE_DEFAULT},
    {"best", LLM42_PRESET_BEST, LLM42_MODE_DEFAULT},
};
enum { WAYS = sizeof ways / sizeof *ways, ORDINARY = 1 };
static const char *const way_names[] = {"invariant", "ordinary", "dvr", "best", NULL};

typedef struct answer {
    int count;
    int32_t *tokens;
    float *logprobs;  // both [tokens]
} answer;

typedef struct run_figures {
    double seconds, tokens, passes, drafting;  // while the batch is full; drafting: seconds of the drafter
    double drafted, accepted, preemptions;
    int other;  // requests whose tokens or bits are not those of the first way
} run_figures;

typedef struct study {
    engine_options how;
    const char *draft_list, *batch_list, *way_list, *out;
    int64_t tokens, prompt_tokens, limit, seed, repeats, rounds;
    float temperature;
    double kv_share;
    bool always, other_noise, chosen[WAYS];
    llm42_model *model;
    int32_t batch[MOST];
    int batch_count, draft_count;
    const char *draft[MOST];   // "none" is the first
    llm42_model *small[MOST];  // the models of drafters, for all runs
    int32_t **prompt;          // [BATCH_MOST], stb_ds arrays
    answer *truth;             // [WAYS][requests]
    int requests;              // of the largest batch
    FILE *tsv;
    bool broken;
    int64_t compared[2], differ[2];  // requests, deterministic and ordinary ones
} study;

// The drafter of an engine: the one of the run under way, or none.
typedef struct turn {
    study *s;
    llm42_drafter now;
    int way;
    // Of the run, from its events.
    int begun, ended;
    int64_t tokens, passes;
    double drafting;
} turn;

static int32_t truth_of(void *user, const llm42_request *r, int at) {
    const turn *t = user;
    const answer *a = &t->s->truth[t->way * t->s->requests + (int)(intptr_t)r->user];
    return at < a->count ? a->tokens[at] : -1;
}

static llm42_result turn_draft(void *user, const llm42_view *view, llm42_draft *draft, int count, llm42_error *error) {
    turn *t = user;
    if (!t->now.draft) return LLM42_OK;
    const double begin = wall_seconds();
    const llm42_result result = t->now.draft(t->now.user, view, draft, count, error);
    t->drafting += wall_seconds() - begin;
    return result;
}

static void turn_forget(void *user, const llm42_request *r) {
    turn *t = user;
    if (t->now.forget) t->now.forget(t->now.user, r);
}

static void on_event(void *user, const llm42_event *e) {
    turn *t = user;
    if (e->type == LLM42_EVENT_PASS) t->passes++;
    if (e->type == LLM42_EVENT_COMMITTED) t->tokens += e->n, t->begun += e->position == 0;
    if (e->type == LLM42_EVENT_FINISHED) t->ended++;
}

// >>run ----------------------------------------------------------------------------------------------------------
static void drafter_open(study *s, turn *t, const char *name) {
    llm42_error error = {0};
    llm42_model **small = s->small;
    const int vocab = s->model->config.vocab;
    char *end = NULL;
    const double rate = strtod(name, &end);
    if (!strcmp(name, "none")) return;
    if (!strcmp(name, "lookup"))
        args_check(llm42_lookup_open(&t->now, &(llm42_lookup_desc){.always = s->always}, &error), &error);
    if (end != name && !*end) {
        const llm42_oracle_desc oracle = {
            .truth = truth_of, .user = t, .rate = rate, .vocab = vocab, .always = s->always};
        args_check(llm42_oracle_open(&t->now, &oracle, &error), &error);
    }
    if (!strncmp(name, "model:", 6)) {
        char found[4096];
        for (int d = 0; s->draft[d] != name; d++) small++;
        if (!*small)
            args_check(llm42_model_load(small, &(llm42_model_desc){.path = args_find(name + 6, found)}, &error),
                       &error);
        const llm42_draft_model_desc model = {.model = *small,
                                              .backend = s->how.table,
                                              .backend_desc = engine_desc(&s->how, s->model).backend_desc,
                                              .vocab = vocab,
                                              .max_running = BATCH_MOST,
                                              .max_context = (int)(s->prompt_tokens + s->tokens),
                                              .always = s->always,
                                              .other_noise = s->other_noise};
        if (llm42_draft_model_open(&t->now, &model, &error)) args_fail(2, "--draft %s: %s", name, error.text);
    }
}

static llm42_engine *engine_open(study *s, const way *w, turn *t, const llm42_drafter *drafter) {
    llm42_engine *engine = NULL;
    llm42_error error = {0};
    int most = 1;
    for (int i = 0; i < s->batch_count; i++) most = s->batch[i] > most ? s->batch[i] : most;
    s->requests = most * (int)s->rounds;
    const int each = (int)((s->prompt_tokens + s->tokens) / 16 + 2);
    const int pages = w == &ways[0] ? most * each : each + (int)(s->kv_share * (most - 1) * each);
    llm42_engine_desc desc = engine_desc(&s->how, s->model);
    desc.preset = w->preset;
    desc.policy.mode = w->mode;
    desc.max_running = most;
    desc.max_context = (int)(s->prompt_tokens + s->tokens);
    desc.token_budget = most * (int)(1 + s->limit) > 256 ? most * (int)(1 + s->limit) : 256;
    desc.kv.pages = pages;
    desc.drafter = drafter;
    desc.draft_limit = (int)s->limit;
    desc.draft_ordinary = true;
    desc.on_event = on_event;
    desc.event_user = t;
    args_check(llm42_engine_open(&engine, &desc, &error), &error);
    return engine;
}

static int64_t submit(const study *s, llm42_engine *engine, const turn *t, int i) {
    llm42_error error = {0};
    int64_t id;
    const int32_t *prompt = s->prompt[i % arrlen(s->prompt)];
    const llm42_request_desc ask = {.prompt = prompt,
                                    .prompt_count = (int)s->prompt_tokens,
                                    .max_new_tokens = (int)s->tokens,
                                    .deterministic = t->way != ORDINARY,
                                    .ignore_stop = true,
                                    .sampling = {.temperature = s->temperature, .seed = (uint64_t)(s->seed + i)},
                                    .user = (void *)(intptr_t)i};
    args_check(llm42_engine_submit(engine, &ask, &id, &error), &error);
    return id;
}

// Keeps the batch full until all requests are served, and returns what was done while it was.
static run_figures keep_full(const study *s, llm42_engine *engine, turn *t, int batch, int64_t *id) {
    const int requests = batch * (int)s->rounds;
    llm42_error error = {0};
    turn first = {0}, last = {0};
    double begin = 0, end = 0;
    for (int next = 0; t->ended < requests;) {
        while (next < requests && next - t->ended < batch) id[next] = submit(s, engine, t, next), next++;
        const llm42_result result = llm42_engine_step(engine, &error);
        if (result != LLM42_IDLE) args_check(result, &error);
        const double now = llm42_engine_now(engine);
        if (!first.begun && t->begun >= batch) first = *t, begin = now;
        if (!last.begun && t->ended > requests - batch) last = *t, end = now;
    }
    return (run_figures){.seconds = end - begin,
                         .tokens = (double)(last.tokens - first.tokens),
                         .passes = (double)(last.passes - first.passes),
                         .drafting = last.drafting - first.drafting};
}

// Where no drafts are, the answers become the truth of this way.
static run_figures serve(study *s, llm42_engine *engine, turn *t, int batch, const char *drafter) {
    llm42_error error = {0};
    const llm42_stats before = llm42_engine_stats(engine);
    static int64_t id[REQUESTS_MOST];
    const bool truth = !strcmp(drafter, "none");
    *t = (turn){.s = s, .way = t->way};
    drafter_open(s, t, drafter);
    run_figures f = keep_full(s, engine, t, batch, id);
    const llm42_stats after = llm42_engine_stats(engine);
    f.drafted = (double)(after.drafted - before.drafted);
    f.accepted = (double)(after.accepted - before.accepted);
    f.preemptions = (double)(after.preemptions - before.preemptions);
    if (after.draft_failures) args_fail(1, "--draft %s: the drafter failed", drafter);
    for (int i = 0; i < batch * (int)s->rounds; i++) {
        const llm42_request *r = llm42_engine_request(engine, id[i]);
        answer *own = &s->truth[t->way * s->requests + i];
        const answer *a = &s->truth[i];
        if (truth) {
            memcpy(own->tokens, r->tokens, sizeof *own->tokens * (size_t)r->committed);
            memcpy(own->logprobs, r->logprobs, sizeof *own->logprobs * (size_t)r->committed);
            own->count = r->committed;
        }
        f.other += r->committed != a->count || memcmp(r->tokens, a->tokens, sizeof *a->tokens * (size_t)a->count) ||
                   memcmp(r->logprobs, a->logprobs, sizeof *a->logprobs * (size_t)a->count);
        args_check(llm42_engine_release(engine, id[i], &error), &error);
    }
    llm42_drafter_close(&t->now);
    return f;
}

// >>table --------------------------------------------------------------------------------------------------------
static double speed_of(const run_figures *f) { return f->tokens / f->seconds; }

static int by_speed(const void *a, const void *b) {
    const double l = speed_of(a), r = speed_of(b);
    return (l > r) - (l < r);
}

// The least and the most of the ratios of runs to the runs without drafts of the same turns.
typedef struct spread {
    double least, most;
} spread;

static spread spread_of(const run_figures *f, const run_figures *without, int n) {
    spread s = {(double)INFINITY, 0};
    for (int i = 0; i < n; i++) {
        const double ratio = speed_of(&f[i]) / speed_of(&without[i]);
        s.least = fmin(s.least, ratio), s.most = fmax(s.most, ratio);
    }
    return s;
}

static void put(study *s, int w, int batch, const char *drafter, run_figures *f, spread ratio, double *base) {
    const int n = (int)s->repeats;
    int other = 0;
    double preemptions = 0;
    for (int i = 0; i < n; i++) other += f[i].other, preemptions += f[i].preemptions;
    qsort(f, (size_t)n, sizeof *f, by_speed);
    const run_figures *m = &f[(n - 1) / 2];  // of an even number the slower one
    const double speed = speed_of(m), low = speed_of(&f[0]), high = speed_of(&f[n - 1]),
                 a_pass = m->tokens / m->passes / batch;
    if (!strcmp(drafter, "none")) *base = speed;
    s->broken |= w != ORDINARY && other;
    s->compared[w == ORDINARY] += n * s->rounds * batch, s->differ[w == ORDINARY] += other;
    const double own = 1e6 * m->drafting / m->passes;
    printf("%6d  %-10s %-22s %9.1f %6.3f %6.3f %6.3f %7.2f %8.0f %8.0f %7.1f %s\n", batch, ways[w].name, drafter, speed,
           speed / *base, ratio.least, ratio.most, a_pass, m->drafted, m->accepted, own,
           w == ORDINARY ? "-"
           : other       ? "BITS DIFFER"
                         : "same bits");
    fflush(stdout);
    if (!s->tsv) return;
    fprintf(s->tsv, "%s\t%s\t%g\t%d\t%s\t%s\t%d\t%.6g\t%.6g\t%.6g\t%.6g\t%.6g\t%.0f\t%.0f\t%.0f\t%.3g\t%d\n",
            s->how.table->name, s->model->name, (double)s->temperature, batch, ways[w].name, drafter, (int)s->limit,
            speed, low, high, 1e3 * m->seconds / m->passes, a_pass, m->drafted, m->accepted, preemptions, own, other);
    out_flush(s->tsv, s->out);
}

static void run_way(study *s, int w) {
    turn t = {.s = s, .way = w};
    const llm42_drafter drafter = {.name = "turn", .user = &t, .draft = turn_draft, .forget = turn_forget};
    llm42_engine *engine = engine_open(s, &ways[w], &t, &drafter);
    for (int b = 0; b < s->batch_count; b++) {
        run_figures f[MOST][REPEATS_MOST];
        spread ratio[MOST];
        double base = 0;
        for (int d = 0; d < (s->chosen[w] ? s->draft_count : 1); d++)
            serve(s, engine, &t, s->batch[b], s->draft[d]);  // warm, and the truth
        if (!s->chosen[w]) continue;
        for (int i = 0; i < s->repeats; i++)
            for (int d = 0; d < s->draft_count; d++) f[d][i] = serve(s, engine, &t, s->batch[b], s->draft[d]);
        for (int d = 0; d < s->draft_count; d++) ratio[d] = spread_of(f[d], f[0], (int)s->repeats);  // put sorts f
        for (int d = 0; d < s->draft_count; d++) put(s, w, s->batch[b], s->draft[d], f[d], ratio[d], &base);
    }
    llm42_engine_close(engine);
}

// >>main ---------------------------------------------------------------------------------------------------------
// Prompts need no tokenizer: the model makes up texts of its own at temperature 1, in INVARIANT passes.
static void make_prompts(study *s) {
    turn t = {.s = s};
    llm42_engine *engine = engine_open(s, &ways[0], &t, NULL);
    llm42_error error = {0};
    const int32_t start = s->model->config.bos >= 0 ? s->model->config.bos : 0;
    const int prompts = s->requests < BATCH_MOST ? s->requests : BATCH_MOST;
    for (int i = 0; i < prompts && s->prompt_tokens > 1; i++) {
        const llm42_request_desc ask = {.prompt = &start,
                                        .prompt_count = 1,
                                        .max_new_tokens = (int)s->prompt_tokens - 1,
                                        .ignore_stop = true,
                                        .sampling = {.temperature = 1, .seed = (uint64_t)(s->seed + 1000 + i)}};
        args_check(llm42_engine_submit(engine, &ask, NULL, &error), &error);
    }
    args_run(engine);
    for (int i = 0; i < prompts; i++) {
        const llm42_request *r = llm42_engine_request(engine, i + 1);
        int32_t *text = NULL;
        arrput(text, start);
        if (r) memcpy(arraddnptr(text, r->committed), r->tokens, sizeof *text * (size_t)r->committed);
        arrput(s->prompt, text);
    }
    llm42_engine_close(engine);
    s->truth = calloc((size_t)(WAYS * s->requests), sizeof *s->truth);
    for (int i = 0; s->truth && i < WAYS * s->requests; i++) {
        s->truth[i].tokens = allocate((size_t)s->tokens * sizeof *s->truth->tokens);
        s->truth[i].logprobs = allocate((size_t)s->tokens * sizeof *s->truth->logprobs);
    }
    if (!s->truth) args_fail(1, "out of memory");
}

// Is it the name of a drafter? A number is an oracle's.
static bool is_drafter(const char *name) {
    char *end;
    const double rate = strtod(name, &end);
    return !strcmp(name, "lookup") || (!strncmp(name, "model:", 6) && name[6]) ||
           (end != name && !*end && rate >= 0 && rate <= 1);
}

// The same drafter; 0.5 and 0.50 are.
static bool same_drafter(const char *a, const char *b) {
    char *a_end, *b_end;
    const double a_rate = strtod(a, &a_end), b_rate = strtod(b, &b_end);
    return !strcmp(a, b) || (a_end != a && b_end != b && !*a_end && !*b_end && a_rate == b_rate);
}

static void parse_lists(study *s) {
    static char text[4096];
    s->batch_count = args_numbers("--batch", s->batch_list, MOST, BATCH_MOST, s->batch);
    for (int i = 0; i < s->batch_count; i++)
        if (s->batch[i] * s->rounds > REQUESTS_MOST)
            args_fail(2, "--rounds: %d x %d requests: at most %d", (int)s->rounds, s->batch[i], (int)REQUESTS_MOST);
    for (const char *item = s->way_list; *item; item += strcspn(item, ",")) {
        char word[32];
        item += *item == ',';
        snprintf(word, sizeof word, "%.*s", (int)strcspn(item, ","), item);
        bool *chosen = &s->chosen[args_choice("--way", word, way_names)];
        if (*chosen) args_fail(2, "--way: %s is there twice", word);
        *chosen = true;
    }
    if (args_list_count(s->draft_list) >= MOST || strlen(s->draft_list) >= sizeof text)
        args_fail(2, "--draft: at most %d drafters", (int)MOST - 1);
    snprintf(text, sizeof text, "%s", s->draft_list);
    s->draft[s->draft_count++] = "none";
    for (char *item = strtok(text, ","); item; item = strtok(NULL, ",")) {
        if (!is_drafter(item))
            args_fail(2,
                      "--draft: '%s': must be lookup, model:DIR, or the probability that an oracle's draft is right, "
                      "0 to 1 (a run without drafts is always there)",
                      item);
        for (int d = 1; d < s->draft_count; d++)
            if (same_drafter(s->draft[d], item)) args_fail(2, "--draft: %s is there twice", item);
        s->draft[s->draft_count++] = item;
    }
}

static void header(study *s) {
    char name[256];
    fprintf(s->tsv, "# llm42 %s drafts, model %s, bf16, backend %s, host %s, %d threads\n", LLM42_VERSION,
            s->model->name, s->how.table->name, processor_name(name, sizeof name), (int)s->how.threads);
    args_manifest_print(&s->how.manifest, s->tsv);
    fprintf(s->tsv,
            "# prompt_tokens %d, new tokens %d, requests %d times the batch, seed %d, repeats %d%s%s%s\n"
            "# draft: a number is the probability that an oracle's draft is right if those before it are\n"
            "# tok_per_s: median, least and most, while the batch is full; tokens_a_pass: of one request\n"
            "# draft_us_a_pass: time of the drafter, which the tokens per second include\n"
            "# other_bits: requests, over the repeats, that differ from preset invariant without drafts\n"
            "backend\tmodel\ttemperature\tbatch\tway\tdraft\tdraft_limit\ttok_per_s\ttok_per_s_least\ttok_per_s_most\t"
            "ms_a_pass\ttokens_a_pass\tdrafted\taccepted\tpreemptions\tdraft_us_a_pass\tother_bits\n",
            (int)s->prompt_tokens, (int)s->tokens, (int)s->rounds, (int)s->seed, (int)s->repeats,
            s->always ? ", as many drafts as the limit" : "", s->kv_share < 1 ? ", too few KV pages" : "",
            s->other_noise ? ", drafted with other noise" : "");
}

int main(int argc, char **argv) {
    study s = {.how = {ENGINE_DEFAULTS},
               .draft_list = "lookup,0.7",
               .batch_list = "1,4,16",
               .way_list = "invariant,ordinary,dvr,best",
               .tokens = 128,
               .prompt_tokens = 64,
               .limit = 7,
               .seed = 42,
               .repeats = 3,
               .rounds = 4,
               .kv_share = 1};
    const args_option options[] = {
        ENGINE_BACKEND(&s.how),
        ARGS_IN("model DIR", &s.how.model, "model folder, file or synthetic:NAME"),
        ARGS_TEXT("draft LIST", &s.draft_list,
                  "drafters: lookup, model:DIR, or a number, the probability that an oracle's draft is right"),
        ARGS_INT("draft-limit N", &s.limit, 1, 63, "drafts of a request in a pass, at most"),
        ARGS_FLAG("always", &s.always, "as many drafts as --draft-limit, whether they pay or not"),
        ARGS_REAL("kv-share X", &s.kv_share, 0, 1, "KV pool, as a share of what all requests need; less preempts some"),
        ARGS_FLAG("other-noise", &s.other_noise, "model:DIR draws with other noise than the request's"),
        ARGS_TEXT("batch LIST", &s.batch_list, "numbers of requests at once, up to 256"),
        ARGS_TEXT("way LIST", &s.way_list,
                  "of invariant, ordinary, dvr, best; invariant without drafts runs in any case"),
        ARGS_INT("tokens,n N", &s.tokens, 2, 100000, "new tokens of each request"),
        ARGS_INT("prompt-tokens N", &s.prompt_tokens, 1, 100000, "of each prompt"),
        ARGS_FLOAT("temperature T", &s.temperature, 0, 100, "0: greedy"),
        ARGS_INT("seed S", &s.seed, 1, INT32_MAX, "of prompts and requests"),
        ARGS_INT("repeats N", &s.repeats, 1, REPEATS_MOST, "runs that a median is taken of"),
        ARGS_INT("rounds N", &s.rounds, 2, 64, "requests of a run, as a multiple of the batch, which is kept full"),
        ARGS_INT("threads N", &s.how.threads, 0, 1024, "0: as many as OpenMP offers"),
        ENGINE_ALGORITHMS(&s.how),
        ENGINE_OFFERED(&s.how),
        ARGS_OUT("out FILE", &s.out, "write the table there too"),
        ARGS_END,
    };
    args_parse(argc, argv, "What drafts are worth: tokens per second of each way to serve a batch, without and with.",
               options);
    parse_lists(&s);
    out_try(s.out);
    if (!s.how.threads) s.how.threads = all_threads();
    engine_look_up(&s.how);
    s.model = engine_model(&s.how);
    if (s.prompt_tokens + s.tokens > s.model->config.context)
        args_fail(2, "--tokens, --prompt-tokens: more than the model's context of %d", s.model->config.context);
    make_prompts(&s);
    printf("%s, %s, temperature %g, at most %d drafts\n\n%6s  %-10s %-22s %9s %6s %6s %6s %7s %8s %8s %7s\n",
           s.model->name, s.how.table->name, (double)s.temperature, (int)s.limit, "batch", "way", "drafts", "tok/s",
           "ratio", "least", "most", "a pass", "drafted", "right", "own us");
    if (s.out) header((s.tsv = out_begin(s.out), &s));
    for (int w = 0; w < WAYS; w++)
        if (!w || s.chosen[w]) run_way(&s, w);
    printf("\nratio: to the same way without drafts, of the medians; least, most: of the repeats, turn by turn\n"
           "a pass: tokens of a request; own us: time of the drafter, a pass\n%" PRId64 " deterministic requests, of "
           "which %" PRId64 " differ; of %" PRId64 " ordinary ones %" PRId64 " do\n%s\n",
           s.compared[0], s.differ[0], s.compared[1], s.differ[1],
           s.broken ? "DETERMINISTIC RESULTS DIFFER" : "every deterministic result is preset invariant's, to the bit");
    if (s.tsv) out_finish(s.tsv, s.out);
    for (int i = 0; i < WAYS * s.requests; i++) free(s.truth[i].tokens), free(s.truth[i].logprobs);
    for (int i = 0; i < (int)arrlen(s.prompt); i++) arrfree(s.prompt[i]);
    free(s.truth);
    arrfree(s.prompt);
    for (int d = 0; d < s.draft_count; d++) llm42_model_free(s.small[d]);
    llm42_model_free(s.model);
    return s.broken ? 1 : args_finish();
}
