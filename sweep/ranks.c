// ranks: does the number of devices change what a model answers? A rank is the part of a model on one device (tensor
// parallelism). This program makes the tables of the paper on tree-based invariant kernels (TBIK). It serves the same
// prompts with each number of ranks and each number of requests at once. For each way of serving it counts how many
// different outputs a prompt has, by tokens and by log-probability bits. It also says how far probabilities are apart
// before the first token that differs. Then it scores the outputs of two ranks by one rank. For FAST passes and for
// INVARIANT ones it also says how far the five largest probabilities behind a token of the same texts are apart, where
// each number of ranks scores them in passes of each number of rows. The exit status is 1 if a promise is broken, and 3
// if the ways without one have no different outputs either, because equal ones show nothing then.
// make build/ranks && build/ranks
#define _POSIX_C_SOURCE 200809L
#define LLM42_IMPLEMENTATION
#include "examples/util/llm42_synthetic.h"
#include "examples/lib/engine.h"
#include "examples/lib/scoring.h"
#include "stb_ds.h"

enum { MOST = 16, CONFIGURATIONS = 4 * MOST, TOP = 5 };

typedef struct way {
    const char *name;
    llm42_preset preset;
    llm42_mode mode;
    bool leaves;  // as many as --leaves says; else one
    bool same;    // one result is promised whatever the ranks and the batch
    bool top;     // its passes are compared: those of the other ways have the order of one of these
} way;
static const way ways[] = {
    {"nondeterministic", LLM42_PRESET_DVR, LLM42_MODE_NONDETERMINISTIC, false, false, true},
    {"paper", LLM42_PRESET_PAPER, LLM42_MODE_DEFAULT, false, false, false},
    {"invariant", LLM42_PRESET_INVARIANT, LLM42_MODE_DEFAULT, false, false, true},
    {"invariant, leaves", LLM42_PRESET_INVARIANT, LLM42_MODE_DEFAULT, true, true, true},
    {"dvr, leaves", LLM42_PRESET_DVR, LLM42_MODE_DEFAULT, true, true, false},
    {"best, leaves", LLM42_PRESET_BEST, LLM42_MODE_DEFAULT, true, true, false},
};
enum { WAYS = sizeof ways / sizeof *ways };

// What one request returned under one configuration.
typedef struct answer {
    int32_t *tokens;
    float *logprobs;
} answer;

typedef struct study {
    engine_options how;
    const char *ranks_list, *batch_list, *tsv_path;
    int64_t requests, tokens, seed, prompt_tokens;
    float temperature;
    llm42_model *model;
    int32_t ranks[MOST], batch[MOST];
    int ranks_count, batch_count;
    char ranks_run[2 * MOST];  // the ranks that are run, as text
    int32_t **prompt;          // [requests], stb_ds arrays
    FILE *tsv;
    int broken;
    bool drifts;  // the control: without leaves outputs differ
} study;

// >>serve --------------------------------------------------------------------------------------------------------
static llm42_engine_desc way_desc(study *s, const way *w, int ranks, int batch) {
    engine_options *how = &s->how;
    how->tensor_parallel = ranks;
    llm42_engine_desc desc = engine_desc(how, s->model);
    desc.preset = w->preset;
    desc.policy.mode = w->mode;
    if (!w->leaves) desc.numerics.leaves = 1;
    desc.max_running = batch;
    desc.max_context = (int)(s->prompt_tokens + s->tokens);
    return desc;
}

static llm42_engine *engine_open(study *s, const way *w, int ranks, int batch) {
    llm42_engine *engine = NULL;
    llm42_error error = {0};
    const llm42_engine_desc desc = way_desc(s, w, ranks, batch);
    args_check(llm42_engine_open(&engine, &desc, &error), &error);
    return engine;
}

// Prompts need no tokenizer: the model makes up texts of its own. They are cut to different lengths.
static void make_prompts(study *s) {
    llm42_engine *engine = engine_open(s, &ways[2], 1, (int)s->requests);
    llm42_error error = {0};
    const int32_t start = s->model->config.bos >= 0 ? s->model->config.bos : 0;
    for (int i = 0; i < s->requests; i++) {
        llm42_request_desc r = {.prompt = &start, .prompt_count = 1, .ignore_stop = true};
        r.max_new_tokens = (int)(1 + (s->prompt_tokens - 2) * (i + 1) / s->requests);
        r.sampling = (llm42_sampling){.temperature = 0.8f, .seed = (uint64_t)(s->seed + i)};
        args_check(llm42_engine_submit(engine, &r, NULL, &error), &error);
    }
    args_run(engine);
    for (int i = 0; i < s->requests; i++) {
        const llm42_request *r = llm42_engine_request(engine, i + 1);
        int32_t *text = NULL;
        arrput(text, start);
        memcpy(arraddnptr(text, r->committed), r->tokens, sizeof *text * (size_t)r->committed);
        arrput(s->prompt, text);
    }
    llm42_engine_close(engine);
}

static void serve(study *s, const way *w, int ranks, int batch, answer *out) {
    llm42_engine *engine = engine_open(s, w, ranks, batch);
    llm42_error error = {0};
    for (int i = 0; i < s->requests; i++) {
        llm42_request_desc r = {.prompt = s->prompt[i], .prompt_count = (int)arrlen(s->prompt[i]), .ignore_stop = true};
        r.max_new_tokens = (int)s->tokens;
        r.sampling.temperature = s->temperature;
        r.deterministic = w->mode != LLM42_MODE_NONDETERMINISTIC;
        args_check(llm42_engine_submit(engine, &r, NULL, &error), &error);
    }
    args_run(engine);
    for (int i = 0; i < s->requests; i++) {
        const llm42_request *r = llm42_engine_request(engine, i + 1);
        out[i].tokens = scoring_get((size_t)s->tokens, sizeof *out->tokens);
        out[i].logprobs = scoring_get((size_t)s->tokens, sizeof *out->logprobs);
        memcpy(out[i].tokens, r->tokens, sizeof *r->tokens * (size_t)s->tokens);
        memcpy(out[i].logprobs, r->logprobs, sizeof *r->logprobs * (size_t)s->tokens);
    }
    llm42_engine_close(engine);
}

// >>tables -------------------------------------------------------------------------------------------------------
static bool same_tokens(const study *s, const answer *a, const answer *b) {
    return !memcmp(a->tokens, b->tokens, sizeof *a->tokens * (size_t)s->tokens);
}

static bool same_bits(const study *s, const answer *a, const answer *b) {
    return same_tokens(s, a, b) && !memcmp(a->logprobs, b->logprobs, sizeof *a->logprobs * (size_t)s->tokens);
}

static void put(study *s, const way *w, const char *metric, double value) {
    if (s->tsv) fprintf(s->tsv, "%s\t%d\t%s\t%.6g\n", w->name, w->leaves ? (int)s->how.leaves : 1, metric, value);
}

typedef struct spread {
    double tokens, bits;  // different outputs of a prompt, mean over prompts
    double largest;       // difference of probability to the first configuration, before the first token that differs
} spread;

// answers: [configurations][requests].
static spread spread_of(const study *s, answer *const *answers, int configurations) {
    spread d = {0};
    int tokens = 0, bits = 0;  // whole numbers: a sum of shares would not come to 1
    for (int i = 0; i < s->requests; i++)
        for (int c = 0; c < configurations; c++) {
            const answer *a = &answers[c][i], *first = &answers[0][i];
            bool new_tokens = true, new_bits = true;
            for (int e = 0; e < c; e++) {
                new_tokens = new_tokens && !same_tokens(s, a, &answers[e][i]);
                new_bits = new_bits && !same_bits(s, a, &answers[e][i]);
            }
            tokens += new_tokens;
            bits += new_bits;
            for (int t = 0; t < s->tokens && a->tokens[t] == first->tokens[t]; t++)
                d.largest = fmax(d.largest,
                                 fabs(llm42_exp64((double)a->logprobs[t]) - llm42_exp64((double)first->logprobs[t])));
        }
    d.tokens = (double)tokens / (double)s->requests;
    d.bits = (double)bits / (double)s->requests;
    return d;
}

// Scores the outputs of some ranks by one rank, with as many leaves.
static scored score(study *s, const way *w, const answer *answers) {
    const llm42_engine_desc desc = way_desc(s, w, 1, 1);
    scored d = {0};
    scoring scorer = scoring_of(&desc, LLM42_SCHEDULE_INVARIANT, 64);
    scoring_open(&scorer);
    for (int i = 0; i < s->requests; i++)
        scoring_compare(&scorer, s->prompt[i], (int)arrlen(s->prompt[i]), answers[i].tokens, answers[i].logprobs,
                        (int)s->tokens, &d);
    scoring_close(&scorer);
    return d;
}

// The five likeliest tokens behind each token of all texts, by the first configuration, and their probabilities by
// another.
typedef struct top_five {
    int32_t *token;  // [tokens, TOP], a stb_ds array
    int at, vocab;   // next token; of the model
    bool first;
    double *p, largest;  // [tokens, TOP], of the first configuration; difference
} top_five;

static void top_take(void *user, const float *logits, const llm42_output *out) {
    top_five *t = user;
    for (int k = 0; k < TOP; k++) {
        int best = -1;
        for (int id = 0; id < t->vocab && t->first; id++) {
            bool taken = false;
            for (int e = 0; e < k && (best < 0 || logits[id] > logits[best]); e++)
                taken |= t->token[t->at * TOP + e] == id;
            if (!taken && (best < 0 || logits[id] > logits[best])) best = id;
        }
        if (t->first) arrput(t->token, best);
        const int32_t id = t->token[t->at * TOP + k];
        // The likeliest token's log-probability comes with it.
        const double p = llm42_exp64((double)(logits[id] - logits[out->token]) + (double)out->logprob);
        if (t->first) arrput(t->p, p);
        t->largest = fmax(t->largest, fabs(p - t->p[t->at * TOP + k]));
    }
    t->at++;
}

// The largest difference of those probabilities between all configurations, which score the same texts.
static double top_difference(study *s, const way *w, const answer *answers) {
    const bool fast = w->mode == LLM42_MODE_NONDETERMINISTIC;
    top_five t = {.vocab = s->model->config.vocab};
    for (int c = 0; c < s->ranks_count * s->batch_count; c++) {
        const llm42_engine_desc desc = way_desc(s, w, s->ranks[c / s->batch_count], 1);
        scoring scorer = scoring_of(&desc, fast ? LLM42_SCHEDULE_FAST : LLM42_SCHEDULE_INVARIANT,
                                    s->batch[c % s->batch_count]);
        scorer.keep_logits = true, scorer.each = top_take, scorer.user = &t;
        t.at = 0, t.first = c == 0;
        scoring_open(&scorer);
        for (int i = 0; i < s->requests; i++) {
            scored unused = {0};
            scoring_compare(&scorer, s->prompt[i], (int)arrlen(s->prompt[i]), answers[i].tokens, answers[i].logprobs,
                            (int)s->tokens, &unused);
        }
        scoring_close(&scorer);
    }
    arrfree(t.token);
    arrfree(t.p);
    return t.largest;
}

static void run_way(study *s, const way *w) {
    answer *answers[CONFIGURATIONS];
    int count = 0, two = -1;  // two: a configuration of two ranks
    for (int r = 0; r < s->ranks_count; r++)
        for (int b = 0; b < s->batch_count; b++) {
            if (args_is_terminal(stderr))
                fprintf(stderr, "\r%s: %d ranks, %d requests at once\033[K", w->name, s->ranks[r], s->batch[b]);
            answers[count] = scoring_get((size_t)s->requests, sizeof **answers);
            serve(s, w, s->ranks[r], s->batch[b], answers[count]);
            if (s->ranks[r] == 2) two = count;
            count++;
        }
    const spread d = spread_of(s, answers, count);
    bool broken = w->same && d.bits > 1;
    if (args_is_terminal(stderr)) fprintf(stderr, "\r\033[K");
    printf("%-20s%8.2f%14.2f%14.3g", w->name, d.tokens, d.bits, d.largest);
    put(s, w, "configurations", count);
    put(s, w, "unique_outputs", d.tokens);
    put(s, w, "unique_bits", d.bits);
    put(s, w, "largest_probability_difference", d.largest);
    if (two >= 0) {
        const scored f = score(s, w, answers[two]);
        broken |= w->same && f.other;
        printf("%12.1f%14.3g%14.3g", 100.0 * f.other / f.tokens, f.sum / f.tokens, f.largest);
        put(s, w, "scored_tokens", f.tokens);
        put(s, w, "scored_other_bits", f.other);
        put(s, w, "scored_mean_probability_difference", f.sum / f.tokens);
        put(s, w, "scored_largest_probability_difference", f.largest);
    }
    if (w->top) {
        const double top = top_difference(s, w, answers[0]);
        broken |= w->same && top != 0;
        printf("%*s%14.3g", two >= 0 ? 0 : 40, "", top);
        put(s, w, "largest_top_five_difference", top);
    }
    s->broken += broken;
    s->drifts |= !w->same && d.bits > 1;
    printf("%s\n", broken ? "  BROKEN" : "");
    fflush(stdout);
    for (int c = 0; c < count; c++) {
        for (int i = 0; i < s->requests; i++) free(answers[c][i].tokens), free(answers[c][i].logprobs);
        free(answers[c]);
    }
}

// >>options ------------------------------------------------------------------------------------------------------
// Ranks that the model cannot be cut into are left out. All of this is checked before the first run.
static void fit_ranks(study *s) {
    const llm42_config *c = &s->model->config;
    llm42_error error = {0};
    int kept = 0;
    for (int i = 0; i < s->ranks_count; i++) {
        const int n = s->ranks[i];
        if (n != 1 && n != 2 && n != 4 && n != 8) args_fail(2, "--tensor-parallel: %d: must be 1, 2, 4 or 8", n);
        if (llm42_ranks_check("llm42_engine_desc", c, n, 0, &error))
            printf("%d ranks are left out: the model has %d heads, %d KV heads and a feed-forward width of %d\n", n,
                   c->heads, c->kv_heads, c->ffn);
        else s->ranks[kept++] = n;
    }
    if (!kept) args_fail(2, "--tensor-parallel: the model cannot be cut into any of %s ranks", s->ranks_list);
    s->ranks_count = kept;
    for (int n = 8; n >= 1 && !s->how.leaves; n /= 2)
        if (!llm42_ranks_check("llm42_engine_desc", c, 0, n, &error)) s->how.leaves = n;
    args_check(llm42_ranks_check("llm42_engine_desc", c, 0, (int)s->how.leaves, &error), &error);
    size_t used = 0;
    for (int i = 0; i < kept; i++) {
        if (s->ranks[i] > s->how.leaves)
            args_fail(2, "--leaves: %d: fewer than %d ranks: results would differ", (int)s->how.leaves, s->ranks[i]);
        used += (size_t)snprintf(s->ranks_run + used, sizeof s->ranks_run - used, "%s%d", i ? "," : "", s->ranks[i]);
    }
}

int main(int argc, char **argv) {
    study s = {.how = {ENGINE_DEFAULTS},
               .ranks_list = "1,2,4,8",
               .batch_list = "8,16,32",
               .requests = 32,
               .tokens = 96,
               .prompt_tokens = 128,
               .seed = 3};
    s.how.leaves = 0;
    const args_option options[] = {
        ENGINE_BACKEND(&s.how),
        ENGINE_MODEL(&s.how),
        ARGS_TEXT("tensor-parallel LIST", &s.ranks_list, "numbers of ranks: 1, 2, 4, 8"),
        ARGS_TEXT("batch LIST", &s.batch_list, "numbers of requests at once"),
        ARGS_INT("leaves C", &s.how.leaves, 0, 8, "in the rows that say so; 0: as many as the model allows"),
        ARGS_DEVICES(&s.how.devices),
        ARGS_INT("requests N", &s.requests, 1, 4096, "prompts"),
        ARGS_INT("tokens,n N", &s.tokens, 1, 100000, "new tokens of each"),
        ARGS_INT("prompt-tokens N", &s.prompt_tokens, 8, 100000, "of the longest prompt"),
        ENGINE_ALGORITHMS(&s.how),
        ARGS_FLOAT("temperature T", &s.temperature, 0, 100, "0: greedy"),
        ARGS_INT("seed,s S", &s.seed, 1, INT32_MAX, "of the prompts"),
        ENGINE_THREADS(&s.how),
        ARGS_OUT("out FILE", &s.tsv_path, "write the numbers there too"),
        ARGS_END,
    };
    args_status_1 = "a promise is broken, or something went wrong;\n3: no output differs without leaves either";
    args_parse(argc, argv, "Counts the different outputs of prompts by ranks and batches, for each way of serving.",
               options);
    s.ranks_count = args_numbers("--tensor-parallel", s.ranks_list, MOST, 8, s.ranks);
    s.batch_count = args_numbers("--batch", s.batch_list, MOST, 4096, s.batch);
    if (s.ranks_count * s.batch_count > CONFIGURATIONS)
        args_fail(2, "--tensor-parallel, --batch: at most %d configurations", (int)CONFIGURATIONS);
    engine_look_up(&s.how);
    s.model = engine_model(&s.how);
    if (s.prompt_tokens + s.tokens > s.model->config.context)
        args_fail(2, "--tokens, --prompt-tokens: more than the model's context of %d", s.model->config.context);
    fit_ranks(&s);
    FILE *file = s.tsv_path ? llm42_file_create(s.tsv_path) : NULL;
    char *text = NULL;
    size_t size = 0;
    if (s.tsv_path && !file) args_fail(1, "%s: cannot write: %s", s.tsv_path, strerror(errno));
    if (file && !(s.tsv = open_memstream(&text, &size))) args_fail(1, "out of memory");
    make_prompts(&s);
    printf("%s, bf16, %s, temperature %g: %d prompts, %d new tokens, ranks %s, batches %s, %d leaves\n\n%42s%40s%14s\n"
           "%-20s%8s%14s%14s%12s%14s%14s%14s\n",
           s.model->name, s.how.table->name, (double)s.temperature, (int)s.requests, (int)s.tokens, s.ranks_run,
           s.batch_list, (int)s.how.leaves, "different outputs", "two ranks, scored by one", "top five", "", "tokens",
           "with bits", "largest dp", "other, %", "mean dp", "largest dp", "largest dp");
    for (int i = 0; i < WAYS; i++) run_way(&s, &ways[i]);
    printf("\ndifferent outputs of a prompt over all ranks and batches, mean; dp: difference of probability\n%s\n",
           s.broken   ? "a promised result differs"
           : s.drifts ? "every promise held"
                      : "NO VERDICT: without leaves no output differs either: give more --requests or --tokens");
    if (file) {
        const char *base = strrchr(s.how.model, '/');
        fprintf(file,
                "# llm42 %s ranks, model %s, bf16, backend %s, temperature %g, requests %d, tokens %d, "
                "prompt_tokens %d, seed %d, tensor_parallel %s, batch %s\n",
                LLM42_VERSION, base ? base + 1 : s.how.model, s.how.table->name, (double)s.temperature, (int)s.requests,
                (int)s.tokens, (int)s.prompt_tokens, (int)s.seed, s.ranks_run, s.batch_list);
        args_manifest_print(&s.how.manifest, file);
        fclose(s.tsv);
        fprintf(file, "way\tleaves\tmetric\tvalue\n%s", text);
        if (!llm42_file_finish(file)) args_fail(1, "%s: cannot write: %s", s.tsv_path, strerror(errno));
    }
    free(text);
    for (int i = 0; i < (int)arrlen(s.prompt); i++) arrfree(s.prompt[i]);
    arrfree(s.prompt);
    llm42_model_free(s.model);
    const int status = args_finish();
    return s.broken ? 1 : status || s.drifts ? status : 3;
}
