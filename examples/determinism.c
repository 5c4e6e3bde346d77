// How reproducible is a request? Serves the same prompts in many batches, by each preset, and counts unique outputs.
//
//     make build/determinism && build/determinism
//
// The suites:
//   single  one prompt, in batches of 1 to N copies.
//   mixed   prompts of different lengths, drawn into batches of 1 to N.
//   prefix  prompts that share beginnings of different lengths, with the prefix cache on and warm. The lengths of
//           SGLang's test are --prefix-tokens 1,511,2048,4097.
//   spans   each request is served among all others and alone. Prints consistent spans (how many tokens stay equal),
//           flip rate (share of wrong candidates), rollbacks and recompute %. The load of LLM-42's measurement is
//           --requests 350 --tokens 512 --qps 6.
//   score   requests are served all at once. Then their finished texts are scored in INVARIANT passes. Prints how many
//           log-probabilities have other bits, and how far apart the probabilities are. Preset paper has a second row,
//           whose texts are scored in FIXED passes.
//
// Outputs are equal if all tokens and all bits of the log-probabilities are. `nondeterministic` is the control:
// requests without verification. `together` counts the unique outputs of dvr, best and invariant together: the three
// must have one result. The exit status is 1 if outputs that are promised to be equal are not, and 3 if the control of
// a suite never differs either, because equal outputs show nothing then: more requests or tokens are needed. With
// --backend cuda the GPU's manifest stands in the header, here and in the --tsv file. No tokenizer is needed.
#define _POSIX_C_SOURCE 200809L
#define LLM42_IMPLEMENTATION
#include "examples/util/llm42_synthetic.h"
#include "examples/lib/engine.h"
#include "planners.h"
#define LLM42_METRICS_IMPLEMENTATION
#include "util/llm42_metrics.h"
#include "examples/lib/scoring.h"
#include "stb_ds.h"

enum { KINDS = 4, LONG_TEXT = 300, TEXT = 48 };  // prompts that mixed and prefix draw from; lengths of texts
enum { MOST = 1024 };                            // requests

typedef int32_t *output;  // [2 x --tokens]: tokens, then the bits of their log-probabilities
typedef struct tally {
    output *unique;
    int trials, unique_tokens, difference;
} tally;  // difference: the earliest

typedef struct study {
    engine_options how;
    const char *suite, *preset, *tsv_path;
    int64_t requests, tokens, seed, alone;
    double qps;
    float temperature;
    const char *prefix_list;
    int32_t prefix[KINDS];  // tokens of the beginnings that prompts of suite prefix share
    int prefixes;           // 0: those of the suite
    int longest;            // text, of those that prompts are cut from
    llm42_model *model;
    int32_t **text;  // [KINDS + requests], of the model's own making
    FILE *tsv;       // collects what follows the header in tsv_text, until every engine has told its manifest
    char *tsv_text;
    size_t tsv_size;
    double begin;
    int broken;           // promises
    int compared;         // results that were promised to be equal, and of which there were two
    bool drifts;          // the control of this suite: unverified requests have different outputs
    char blind[64];       // suites whose control does not
    char same[256];       // prompts of which the control's outputs do not
    const char *running;  // suite
} study;

// A way to serve requests; its name is its word in options and results.
typedef struct way {
    const char *name;
    llm42_preset preset;  // 0: mode NONDETERMINISTIC
    bool canonical;       // all of these have the same result
} way;
enum { WAYS = 5 };
static const way ways[WAYS] = {
    {"nondeterministic", LLM42_PRESET_DEFAULT, false},
    {"dvr", LLM42_PRESET_DVR, true},
    {"best", LLM42_PRESET_BEST, true},
    {"paper", LLM42_PRESET_PAPER, false},
    {"invariant", LLM42_PRESET_INVARIANT, true},
};
static const char *const way_names[] = {"nondeterministic", "dvr", "best", "paper", "invariant", "all", NULL};

static llm42_engine *open_engine(study *s, const way *w, bool prefix_cache) {
    llm42_engine_desc desc = engine_desc(&s->how, s->model);
    llm42_engine *engine = NULL;
    llm42_error error = {0};
    desc.kv.prefix_cache = prefix_cache;
    desc.preset = w->preset;
    if (!w->preset) desc.policy.mode = LLM42_MODE_NONDETERMINISTIC;
    desc.max_running = (int)s->requests + KINDS;
    desc.max_context = s->longest + TEXT + (int)s->tokens;
    if (desc.max_context > s->model->config.context) desc.max_context = s->model->config.context;
    args_check(llm42_engine_open(&engine, &desc, &error), &error);
    return engine;
}

static void progress(const study *s, const llm42_engine *engine, const char *way, int done, int all) {
    if (!args_is_terminal(stderr)) return;
    bool slow = llm42_engine_now(engine) - s->begin > 2;
    if (done < all && slow) fprintf(stderr, "\r%s %s: %d of %d batches\033[K", s->running, way, done, all);
    if (done == all) fprintf(stderr, "\r\033[K");
}

// Prompts need no tokenizer: the model makes up texts of its own, drawn from the seed.
static void make_texts(study *s) {
    llm42_engine *engine = open_engine(s, &ways[WAYS - 1], false);
    llm42_error error = {0};
    const llm42_config *config = &s->model->config;
    int32_t start = config->bos >= 0 ? config->bos : 0;
    int room = config->context - (int)s->tokens - 8, longest = room < LONG_TEXT ? room : LONG_TEXT;
    if (longest < TEXT) args_fail(2, "--tokens: the model's context of %d leaves no room for prompts", config->context);
    if (s->longest > LONG_TEXT && s->longest > room)
        args_fail(2, "--prefix-tokens: %d: the model's context leaves room for %d", s->longest, room);
    s->begin = llm42_engine_now(engine);
    for (int i = 0; i < KINDS + (int)s->requests; i++) {
        llm42_request_desc desc = {.prompt = &start, .prompt_count = 1, .ignore_stop = true};
        desc.max_new_tokens = (i >= KINDS ? TEXT : i || s->longest == LONG_TEXT ? longest : s->longest) - 1;
        desc.sampling = (llm42_sampling){.temperature = 0.8f, .seed = (uint64_t)s->seed + (uint64_t)i};
        int64_t id;
        args_check(llm42_engine_submit(engine, &desc, &id, &error), &error);
    }
    if (args_is_terminal(stderr)) fprintf(stderr, "the model makes up prompts");
    args_run(engine);
    if (args_is_terminal(stderr)) fprintf(stderr, "\r\033[K");
    for (int i = 0; i < KINDS + (int)s->requests; i++) {
        const llm42_request *r = llm42_engine_request(engine, i + 1);
        int32_t *text = NULL;
        arrput(text, start);
        memcpy(arraddnptr(text, r->committed), r->tokens, sizeof(int32_t) * (size_t)r->committed);
        arrput(s->text, text);
    }
    llm42_engine_close(engine);
}

static output output_of(const llm42_request *r) {
    output o = NULL;
    memcpy(arraddnptr(o, r->committed), r->tokens, sizeof(int32_t) * (size_t)r->committed);
    memcpy(arraddnptr(o, r->committed), r->logprobs, sizeof(float) * (size_t)r->committed);
    return o;
}

static bool equal(const study *s, const int32_t *a, const int32_t *b) {
    return !memcmp(a, b, 2 * sizeof(int32_t) * (size_t)s->tokens);
}

static void tally_add(const study *s, tally *t, output o) {
    int at, second, n = (int)s->tokens;
    bool new_tokens = true, new_bits = true;
    for (int i = 0; i < (int)arrlen(t->unique); i++) {
        llm42_consistent_spans(t->unique[i], n, o, n, &at, &second);
        if (at < t->difference) t->difference = at;
        new_tokens = new_tokens && at < n;
        new_bits = new_bits && !equal(s, t->unique[i], o);
    }
    t->trials++;
    t->unique_tokens += new_tokens;
    if (new_bits) arrput(t->unique, o);
    else arrfree(o);
}

// arrival: on the engine's clock; 0: now
static int64_t submit(const study *s, llm42_engine *engine, const way *w, const int32_t *prompt, int count,
                      double arrival) {
    llm42_error error = {0};
    llm42_request_desc desc = {.prompt = prompt, .prompt_count = count, .ignore_stop = true, .arrival = arrival};
    desc.max_new_tokens = (int)s->tokens;
    desc.sampling.temperature = s->temperature;
    desc.deterministic = w->preset != 0;
    int64_t id;
    args_check(llm42_engine_submit(engine, &desc, &id, &error), &error);
    return id;
}

// Batches of 1 to N requests, each with one of `kinds` prompts by a fixed hash, tallied by prompt.
static void run_batches(study *s, const way *w, int32_t *const *prompt, int kinds, bool prefix, tally *tallies) {
    llm42_engine *engine = open_engine(s, w, prefix);
    llm42_error error = {0};
    uint64_t hash = (uint64_t)s->seed;
    for (int n = 1; n <= s->requests; n++) {
        int kind[MOST];
        int64_t id[MOST];
        for (int i = 0; i < n; i++) {
            hash = hash * 6364136223846793005u + 1442695040888963407u;
            kind[i] = (int)((hash >> 33) % (uint64_t)kinds);
            id[i] = submit(s, engine, w, prompt[kind[i]], (int)arrlen(prompt[kind[i]]), 0);
        }
        args_run(engine);
        for (int i = 0; i < n; i++) {
            tally_add(s, &tallies[kind[i]], output_of(llm42_engine_request(engine, id[i])));
            args_check(llm42_engine_release(engine, id[i], &error), &error);
        }
        progress(s, engine, w->name, n, (int)s->requests);
    }
    llm42_engine_close(engine);
}

// Prompts of a suite: `kinds` of them. single: a text. mixed: texts cut to different lengths. prefix: beginnings of
// one text, each with a few words of its own behind it, so that most shared parts end inside a page.
static int suite_prompts(const study *s, int32_t *prompt[KINDS]) {
    bool prefix = !strcmp(s->running, "prefix");
    int kinds = prefix && s->prefixes ? s->prefixes : strcmp(s->running, "single") ? KINDS : 1;
    for (int k = 0; k < kinds; k++) {
        const int32_t *from = s->text[prefix ? 0 : k];
        int longest = (int)arrlen(from), length = k == 0 ? 1 : longest * k / (KINDS - 1);
        if (!strcmp(s->running, "single")) length = TEXT;
        if (prefix && s->prefixes) length = s->prefix[k];
        prompt[k] = NULL;
        memcpy(arraddnptr(prompt[k], length), from, sizeof(int32_t) * (size_t)length);
        for (int i = 1; i <= 5 && prefix; i++) arrput(prompt[k], s->text[KINDS + k % (int)s->requests][i]);
    }
    return kinds;
}

// Adds a suite, or a prompt of it, to a list with commas, in which a suite stands once. What has no room is left out.
static void append(char *list, size_t size, const char *suite, int length) {
    const size_t used = strlen(list);
    const char *name = strstr(list, suite) ? "" : suite;
    char number[16] = "";
    if (used + 32 > size) return;
    if (length) snprintf(number, sizeof number, *name ? " %d" : "%d", length);
    snprintf(list + used, size - used, "%s%s%s", used ? ", " : "", name, number);
}

// A line of what was tallied of a prompt of so many tokens.
static void report_tally(study *s, const char *name, bool promised, int length, const tally *t) {
    int unique = (int)arrlen(t->unique);
    bool broken = promised && unique > 1;
    if (!t->trials) return;  // the batches were too small for this prompt's turn
    s->compared += promised && t->trials > 1;
    s->drifts |= !promised && unique > 1;
    if (!promised && unique == 1) append(s->same, sizeof s->same, s->running, length);
    s->broken += broken;
    printf("%-16s%8d%8d%11d%19d", name, length, t->trials, t->unique_tokens, unique);
    if (t->difference == s->tokens) printf("%14s", "-");
    else printf("%14d", t->difference + 1);
    printf("%s\n", broken ? "  BROKEN" : "");
    if (!s->tsv) return;
    const char *const metric[] = {"trials", "unique_tokens", "unique_bits", "first_difference_token"};
    const int value[] = {t->trials, t->unique_tokens, unique, t->difference + 1};
    for (int i = 0; i < 4 - (t->difference == s->tokens); i++)
        fprintf(s->tsv, "%s\t%s\t%d\t%s\t%d\n", s->running, name, length, metric[i], value[i]);
}

static void tally_free(tally *t) {
    for (int i = 0; i < (int)arrlen(t->unique); i++) arrfree(t->unique[i]);
    arrfree(t->unique);
}

static void run_unique(study *s, const bool chosen[WAYS]) {
    int32_t *prompt[KINDS];
    tally together[KINDS] = {0};
    int kinds = suite_prompts(s, prompt), values = 2 * (int)s->tokens, canonical = 0;
    for (int k = 0; k < kinds; k++) together[k].difference = (int)s->tokens;
    for (int i = 0; i < WAYS; i++) {
        tally tallies[KINDS] = {0};
        if (!chosen[i]) continue;
        for (int k = 0; k < kinds; k++) tallies[k].difference = (int)s->tokens;
        run_batches(s, &ways[i], prompt, kinds, !strcmp(s->running, "prefix"), tallies);
        canonical += ways[i].canonical;
        for (int k = 0; k < kinds; k++) {
            report_tally(s, ways[i].name, ways[i].preset != 0, (int)arrlen(prompt[k]), &tallies[k]);
            for (int u = 0; u < (int)arrlen(tallies[k].unique) && ways[i].canonical; u++) {
                output copy = NULL;
                memcpy(arraddnptr(copy, values), tallies[k].unique[u], sizeof *copy * (size_t)values);
                tally_add(s, &together[k], copy);
            }
            if (ways[i].canonical && tallies[k].trials)
                together[k].trials += tallies[k].trials - (int)arrlen(tallies[k].unique);
            tally_free(&tallies[k]);
        }
        fflush(stdout);
    }
    for (int k = 0; k < kinds; k++) {
        if (canonical > 1) report_tally(s, "together", true, (int)arrlen(prompt[k]), &together[k]);
        tally_free(&together[k]);
        arrfree(prompt[k]);
    }
}

// Serves all requests together, at once or as they arrive, and then as many alone as --alone says. Compares the two.
static void run_spans(study *s, const way *w) {
    llm42_engine *alone = open_engine(s, w, false), *loaded = open_engine(s, w, false);
    int n = (int)s->requests, tokens = (int)s->tokens, identical = 0, drifted = 0, first, second;
    double first_sum = 0, second_sum = 0, arrival = s->qps > 0 ? llm42_engine_now(loaded) : 0;
    for (int i = 0; i < n; i++) {
        submit(s, loaded, w, s->text[KINDS + i], TEXT, arrival);
        if (s->qps > 0) arrival -= log(1 - llm42_uniform(llm42_hash((uint64_t)(s->seed * MOST + i)))) / s->qps;
    }
    args_run(loaded);
    if (s->alone && s->alone < n) n = (int)s->alone;
    for (int i = 0; i < n; i++) {
        submit(s, alone, w, s->text[KINDS + i], TEXT, 0);
        args_run(alone);
        output a = output_of(llm42_engine_request(alone, i + 1)), b = output_of(llm42_engine_request(loaded, i + 1));
        llm42_consistent_spans(a, tokens, b, tokens, &first, &second);
        first_sum += first;
        if (first < tokens) second_sum += second, drifted++;
        if (s->tsv) {
            fprintf(s->tsv, "spans\t%s\t%d\trequest_first_span_tokens\t%d\n", w->name, TEXT, first);
            if (first < tokens)
                fprintf(s->tsv, "spans\t%s\t%d\trequest_second_span_tokens\t%d\n", w->name, TEXT, second);
        }
        identical += equal(s, a, b);
        arrfree(a);
        arrfree(b);
        progress(s, alone, w->name, i + 1, n);
    }
    llm42_stats stats = llm42_engine_stats(loaded);
    const double value[] = {n,
                            identical,
                            first_sum / n,
                            drifted ? second_sum / drifted : NAN,
                            stats.compared ? 100.0 * (double)stats.rollbacks / (double)stats.compared : NAN,
                            (double)stats.rollbacks,
                            100.0 * (double)stats.recomputed / (double)stats.returned_tokens};
    static const char *const name[] = {
        "requests",          "identical", "first_span_tokens_mean", "second_span_tokens_mean",
        "flip_rate_percent", "rollbacks", "recompute_percent"};
    bool broken = w->preset && identical < n;
    s->compared += w->preset != 0;
    s->drifts |= !w->preset && identical < n;
    static const int digits[] = {0, 0, 1, 1, 3, 0, 2}, width[] = {9, 10, 9, 9, 8, 10, 9};
    printf("%-16s", w->name);
    for (int i = 0; i < 7; i++) {
        if (isnan(value[i])) printf("%*s", width[i], "-");
        else printf("%*.*f", width[i], digits[i], value[i]);
    }
    printf("%s\n", broken ? "  BROKEN" : "");
    s->broken += broken;
    for (int i = 0; i < 7 && s->tsv; i++)
        if (!isnan(value[i])) fprintf(s->tsv, "spans\t%s\t%d\t%s\t%.6g\n", w->name, TEXT, name[i], value[i]);
    llm42_engine_close(alone);
    llm42_engine_close(loaded);
}

// Opens the backend again, as an engine had it, for scoring.
static scoring open_scoring(const llm42_engine_desc *d, llm42_schedule schedule) {
    scoring scorer = scoring_of(d, schedule, d->policy.window * d->policy.group);
    if (scorer.desc.max_rows < d->token_budget) scorer.desc.max_rows = d->token_budget;
    scoring_open(&scorer);
    return scorer;
}

static void score_request(const scoring *scorer, const llm42_request *r, scored *sum) {
    scoring_compare(scorer, r->prompt, r->prompt_count, r->tokens, r->logprobs, r->committed, sum);
}

static void report_scored(study *s, const char *name, bool promised, const scored *sum) {
    const char *const metric[] = {"tokens", "other_bits", "mean_probability_difference",
                                  "largest_probability_difference"};
    const double value[] = {sum->tokens, sum->other, sum->sum / sum->tokens, sum->largest};
    const bool broken = promised && sum->other;
    s->compared += promised;
    s->broken += broken;
    printf("%-16s%9d%12d%18.3g%18.3g%s\n", name, sum->tokens, sum->other, value[2], value[3], broken ? "  BROKEN" : "");
    for (int i = 0; i < 4 && s->tsv; i++)  // the prompts differ in length: 0
        fprintf(s->tsv, "score\t%s\t0\t%s\t%.6g\n", name, metric[i], value[i]);
}

// Serves all requests at once, the first ones with long prompts, and scores what they return.
static void run_score(study *s, const bool chosen[WAYS]) {
    scoring invariant = {0}, fixed = {0};
    for (int i = 0; i < WAYS; i++) {
        const way *w = &ways[i];
        scored canonical = {0}, paper = {0};
        if (!chosen[i]) continue;
        llm42_engine *engine = open_engine(s, w, false);
        const llm42_engine_desc *config = llm42_engine_config(engine);
        const bool by_fixed = w->preset == LLM42_PRESET_PAPER;
        if (!invariant.state) invariant = open_scoring(config, LLM42_SCHEDULE_INVARIANT);
        if (by_fixed) fixed = open_scoring(config, LLM42_SCHEDULE_FIXED);
        for (int k = 0; k < s->requests; k++) submit(s, engine, w, s->text[k], (int)arrlen(s->text[k]), 0);
        args_run(engine);
        for (int k = 0; k < s->requests; k++) {
            const llm42_request *r = llm42_engine_request(engine, k + 1);
            score_request(&invariant, r, &canonical);
            if (by_fixed) score_request(&fixed, r, &paper);
            progress(s, engine, w->name, k + 1, (int)s->requests);
        }
        report_scored(s, w->name, w->canonical, &canonical);
        s->drifts |= !w->preset && canonical.other;
        if (by_fixed) report_scored(s, "paper, by FIXED", true, &paper);
        fflush(stdout);
        llm42_engine_close(engine);
    }
    scoring_close(&invariant);
    scoring_close(&fixed);
}

typedef struct windows_words {
    char text[64];
} windows_words;

static windows_words windows_text(const study *s) {
    windows_words words = {"of the preset"};
    if (s->how.window || s->how.group)
        snprintf(words.text, sizeof words.text, "%d, %d (0: the preset's)", (int)s->how.window, (int)s->how.group);
    return words;
}

static void write_tsv(study *s, FILE *file) {
    fprintf(file,
            "# llm42 %s determinism, model %s, %s, backend %s, seed %d, temperature %g, tokens %d, requests %d, "
            "W and G %s",
            LLM42_VERSION, s->how.model, s->how.dtype, s->how.table->name, (int)s->seed, (double)s->temperature,
            (int)s->tokens, (int)s->requests, windows_text(s).text);
    if (s->qps > 0) fprintf(file, ", %g requests a second", s->qps);
    if (s->prefixes) fprintf(file, ", prefix tokens %s", s->prefix_list);
    fputc('\n', file);
    args_manifest_print(&s->how.manifest, file);
    if (fclose(s->tsv)) args_fail(1, "out of memory");
    fprintf(file, "suite\tpreset\tprompt_tokens\tmetric\tvalue\n%s", s->tsv_text);
    free(s->tsv_text);
    if (!llm42_file_finish(file)) args_fail(1, "%s: cannot write: %s", s->tsv_path, strerror(errno));
}

static void run_suite(study *s, const bool chosen[WAYS]) {
    const bool spans = !strcmp(s->running, "spans"), score = !strcmp(s->running, "score");
    const int compared = s->compared;
    s->drifts = false;
    printf("\n%s\n", s->running);
    if (spans)
        printf("%44s%9s%8s%19s\n%-16s%9s%10s%9s%9s%8s%10s%9s\n", "1st span", "2nd span", "flips", "recomputed",
               "preset", "requests", "identical", "tokens", "tokens", "%", "rollbacks", "%");
    else if (score)
        printf("%37s%36s\n%-16s%9s%12s%18s%18s\n", "log-probabilities", "difference of probability", "preset", "tokens",
               "other bits", "mean", "largest");
    else
        printf("%24s%19s%19s%14s\n%-16s%8s%8s%11s%19s%14s\n", "prompt", "unique by", "unique by tokens", "first token",
               "preset", "tokens", "trials", "tokens", "and log-prob bits", "that differs");
    if (score) run_score(s, chosen);
    else if (!spans) run_unique(s, chosen);
    for (int i = 0; i < WAYS && spans; i++)
        if (chosen[i]) run_spans(s, &ways[i]), fflush(stdout);
    if (chosen[0] && s->compared > compared && !s->drifts) append(s->blind, sizeof s->blind, s->running, 0);
}

// The last line, and the exit status.
static int verdict(const study *s, bool control) {
    if (s->broken) printf("\n%d promised results differ\n", s->broken);
    else if (!s->compared)
        printf("\nno promise was tested: ordinary requests have none, and else it takes two outputs of a prompt\n");
    else if (s->blind[0])
        printf("\nNO VERDICT: nondeterministic, the control, never differs in %s,\n"
               "so equal outputs show nothing there: give more --requests or --tokens\n",
               s->blind);
    else printf("\nevery promise held%s\n", control ? "" : ", but no control was served (--preset all has one)");
    if (!s->broken && !s->blind[0] && s->compared && s->same[0])
        printf("This shows nothing of prompts of these lengths, whose control is equal, too:\n%s\n", s->same);
    return s->broken ? 1 : s->blind[0] ? 3 : 0;
}

int main(int argc, char **argv) {
    // At this seed the unverified requests of every suite lose a token, not only bits, on tiny42.
    study s = {.how = {ENGINE_DEFAULTS}, .suite = "all", .preset = "all", .requests = 16, .tokens = 128, .seed = 3};
    char names[256], planners[256];
    const args_option options[] = {
        ENGINE_BACKEND(&s.how),
        ARGS_TEXT("suite NAME", &s.suite, "single, mixed, prefix, spans, score or all"),
        ARGS_IN("model,m DIR", &s.how.model, "model folder or file"),
        ARGS_INT("requests N", &s.requests, 1, MOST, "requests in the largest batch"),
        ARGS_INT("tokens,n N", &s.tokens, 1, 100000, "new tokens of each request"),
        ARGS_TEXT("preset NAME", &s.preset, args_words(names, way_names)),
        ARGS_TEXT("planner NAME", &s.how.planner, args_words(planners, planner_names)),
        ARGS_INT("seed,s S", &s.seed, 1, INT32_MAX, "seed of the prompts and of their order"),
        ARGS_FLOAT("temperature T", &s.temperature, 0, 100, "0: greedy"),
        ARGS_TEXT("prefix-tokens LIST", &s.prefix_list, "prefix: tokens of shared beginnings, at most 4 numbers"),
        ARGS_REAL("qps X", &s.qps, 0, 1e6, "spans: requests that arrive in a second; 0: all at once"),
        ARGS_INT("alone N", &s.alone, 0, MOST, "spans: requests that are served alone, too; 0: all"),
        ENGINE_KV(&s.how),
        ENGINE_RANKS(&s.how),
        ENGINE_ALGORITHMS(&s.how),
        ENGINE_OFFERED(&s.how),
        ARGS_INT("threads,t N", &s.how.threads, 0, 1024, "0: one for a small model, else what OpenMP offers"),
        ARGS_OUT("tsv FILE", &s.tsv_path, "write the numbers there too"),
        ENGINE_WINDOWS(&s.how),
        ARGS_TEXT("dtype TYPE", &s.how.dtype, "bf16 or fp32"),
        ARGS_ARITHMETIC(&s.how.arithmetic),
        ARGS_END,
    };
    args_status_1 =
        "a promise is broken, or something went wrong;\n3: the control never differs, so equal outputs show nothing";
    args_parse(argc, argv, "Counts unique outputs of equal requests in batches of every size, by preset.", options);
    static const char *const suites[] = {"single", "mixed", "prefix", "spans", "score", "all", NULL};
    int suite = args_choice("--suite", s.suite, suites), one = args_choice("--preset", s.preset, way_names);
    bool chosen[WAYS];
    for (int i = 0; i < WAYS; i++) chosen[i] = one == WAYS || one == i;
    s.longest = LONG_TEXT;
    if (s.prefix_list) s.prefixes = args_numbers("--prefix-tokens", s.prefix_list, KINDS, INT32_MAX, s.prefix);
    for (int i = 0; i < s.prefixes; i++)
        if (s.prefix[i] > s.longest) s.longest = s.prefix[i];
    engine_look_up(&s.how);
    s.model = engine_model(&s.how);
    FILE *file = s.tsv_path ? llm42_file_create(s.tsv_path) : NULL;  // tried before the long part
    if (s.tsv_path && !file) args_fail(1, "%s: cannot write: %s", s.tsv_path, strerror(errno));
    if (file && !(s.tsv = open_memstream(&s.tsv_text, &s.tsv_size))) args_fail(1, "out of memory");
    if (!s.how.threads && s.model->mapped_bytes + s.model->copied_bytes < 16 << 20)
        s.how.threads = 1;  // too little to share
    make_texts(&s);
    printf("%s, %s, temperature %g\n%d tokens, batches to %d, W and G %s, planner %s\n", s.how.model, s.how.dtype,
           (double)s.temperature, (int)s.tokens, (int)s.requests, windows_text(&s).text, s.how.planner);
    args_manifest_print(&s.how.manifest, stdout);
    enum { ALL = sizeof suites / sizeof *suites - 2 };
    for (int i = 0; i < ALL; i++) {
        if (suite != ALL && suite != i) continue;
        s.running = suites[i];
        run_suite(&s, chosen);
    }
    const int found = verdict(&s, chosen[0]);
    for (int i = 0; i < (int)arrlen(s.text); i++) arrfree(s.text[i]);
    arrfree(s.text);
    llm42_model_free(s.model);
    if (file) write_tsv(&s, file);
    int status = args_finish();
    return found == 1 || !status ? found : status;
}
