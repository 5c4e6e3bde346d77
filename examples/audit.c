// audit: computes the answers of a transcript again and compares every bit. It does not rely on what the file says
// about the answers. It takes the prompts and the sampling parameters from the file, and runs each request alone, by
// INVARIANT passes. (In an INVARIANT pass the result of a row, which is one token, does not depend on the other rows.)
// make build/generate build/audit
// build/generate --deterministic --samples 4 --temperature 1 --record run.txt
// build/audit run.txt --model examples/tiny42
//
// --model is your own copy of the model, since whoever made the file may have put another model where it points to.
// `--model from-file` takes the model that the file names. AUDIT.md says what an audit proves and what it does not.
//
// The prompt and the recorded tokens go through the model. At each audited position the model draws a token with the
// request's own parameters. The token and the bits of its log-probability must be the recorded ones. If a token
// differs, the audit goes on behind the recorded token, not behind its own.
//
// Answers share passes of --rows tokens, each with KV pages of its own, so that short answers fill a GPU, too.
//
// A window is --window successive tokens of an answer. --share or --windows audits some of the windows, drawn at random
// by a seed of the system or by --seed. A window needs the keys and values of all tokens before it, so these tokens run
// too, but without the LM head (the product that gives the logits). The tokens behind the last drawn window of a
// request do not run, and neither do requests of which no window is drawn. Whoever made the transcript must not have
// known the seed.
//
// --against REQUESTS compares the answers with what their client asked for, lines as those of `generate --batch`. An
// audit alone cannot know that: an answer that was cut is whole to it, if the limit in the file was cut, too.
//
// Exit status: 0 if all that was asked for is verified; 1 if something differs, or a request was not marked
// deterministic (--skip-ordinary allows such requests); 2 if a comparison is not possible: the file is broken or was
// changed, its answers are not canonical or are of 0.2.0 (--skip-ordinary leaves out what cannot be compared), the
// model or the arithmetic is not the recorded one, or a pass fails.
#define _POSIX_C_SOURCE 200809L
#define LLM42_IMPLEMENTATION
#include "examples/util/llm42_synthetic.h"
#include "examples/lib/args.h"
#include "examples/lib/scoring.h"
#include "audit/against.h"
#define LLM42_TRANSCRIPT_IMPLEMENTATION
#include "util/llm42_transcript.h"
#ifdef _OPENMP
#include <omp.h>
#endif

enum { PAGE = 16, TOGETHER = 64 };  // tokens in a KV page; answers that run together, at most

// The most bytes of weights that a file may have us load: `--model DIR` has no such limit.
static const double most_bytes = 4e9;

static const char *path, *model_path, *seed_text, *verdicts, *against_path, *name = "cpu";
static int64_t rows, window = 16, windows, seed, threads, tensor_parallel = 1, devices;
static double share = 1;
static bool skip_ordinary, no_mmap, chatting;
static chat_options chatted;

static const args_option options[] = {
    ARGS_WORD("FILE", &path, "the transcript"),
    ARGS_IN("model,m DIR", &model_path,
            "your copy of the model: folder or synthetic:NAME; or from-file,\n"
            "                         the one that FILE names, whose maker chose it (at most 4 GB)"),
    ARGS_TEXT("backend NAME", &name, "cpu or cuda"),
    ARGS_INT("window W", &window, 1, INT32_MAX, "number of successive tokens in a window"),
    ARGS_REAL("share S", &share, 0, 1, "audit this share of all windows (at least one), drawn at random"),
    ARGS_INT("windows N", &windows, 0, INT64_MAX, "audit this number of windows instead; 0: as --share says"),
    ARGS_TEXT("seed,s S", &seed_text, "decides which windows are drawn (default: a number from the system)"),
    ARGS_OUT("verdicts FILE", &verdicts, "write a line of TSV for each audited window: what differs in it"),
    ARGS_IN("against REQUESTS", &against_path,
            "compare with what was asked: prompt, max_tokens, sampling, seed and\n"
            "                         stops, as in a file of generate --batch (examples/lib/request_file.h)"),
    ARGS_FLAG("chat", &chatting, "with --against: prompts are users' turns, as with generate --chat"),
    ARGS_ONCE("system TEXT", &chatted.system, "with --chat: what the system says first"),
    CHAT_OPTIONS(&chatted),
    ARGS_FLAG("skip-ordinary", &skip_ordinary, "allow requests that were not marked deterministic, or are of 0.2.0"),
    ARGS_INT("rows N", &rows, 0, 4096,
             "the most tokens in one pass, 0: 128 on a CPU, 1024 on a GPU; the number changes no result"),
    ARGS_INT("tensor-parallel N", &tensor_parallel, 1, 8,
             "parts (ranks) into which the model is cut; at most the transcript's leaves"),
    ARGS_DEVICES(&devices),
    ARGS_INT("threads,t N", &threads, 0, 1024, "0: as many as OpenMP offers"),
    ARGS_FLAG("no-mmap", &no_mmap, "read the weights into memory; without it files are mapped, and must not shrink"),
    ARGS_END,
};

// What an answer turned out to be. `token` and `logprob` are the first that differ, and `none` is the first where the
// model gives no token, -1: there is none.
typedef struct finding {
    int tokens, other_tokens, other_logprobs, token, logprob, none;
    llm42_output is_token, is_logprob;  // what the model gives there
} finding;

// Counts of an audited window. An answer that cannot run leaves them 0.
typedef struct verdict {
    int tokens, other_tokens, other_logprobs;  // as in a finding; a token where the model gives none is another one
} verdict;

// An answer on its way through the model.
typedef struct job {
    int at;        // its number in the transcript
    int count;     // tokens to run; 0: none
    int32_t *ids;  // the prompt, then the recorded tokens
    finding f;
    char why[160];  // what is wrong with it, whatever its tokens are
} job;

typedef struct audit {
    llm42_transcript *t;
    scoring s;
    int32_t *pages;           // of the KV cache, all of them
    llm42_seq seq[TOGETHER];  // of the answers that run together
    job job[TOGETHER];
    int jobs, pages_taken;
    int64_t *first;    // [t->count + 1]: windows before those of each answer
    bool *chosen;      // [windows]
    verdict *verdict;  // [windows]
    int *same_id;      // [t->count] the line of another answer with the same id, 0: there is none
    const llm42_model *model;
    char sha256[LLM42_SHA256_TEXT];  // of the model
    int64_t tokens;                  // of chosen windows, so far
    int64_t rows, rows_done;
    int audited, differ, ordinary, cancelled, empty, old;
    int asked, other, more;  // requests of --against, of which `other` have no such answer; answers to none of them
    bool show;
} audit;

static void progress(const audit *a) {
    if (!a->show || !a->rows) return;
    fprintf(stderr, "\raudit: %d%%", (int)(100 * a->rows_done / a->rows));
    fflush(stderr);
}

static void hide_progress(const audit *a) {
    if (a->show) fprintf(stderr, "\r%16s\r", "");
}

static bool is_chosen(const audit *a, int at, int token) { return a->chosen[a->first[at] + token / window]; }

// Before format 3 answers were drawn with another noise, and sums had another order in arithmetic sm90. Greedy answers
// need no noise.
static bool is_old(const audit *a, const llm42_answer *q) {
    return q->deterministic && a->t->format < 3 &&
           (q->sampling.temperature > 0 || strcmp(a->t->arithmetic, "sm90") == 0);
}

// What the model has to give again: the tokens, and behind them that there is none, where an answer ended with an
// error.
static int outputs(const audit *a, const llm42_answer *q) {
    return q->deterministic && !is_old(a, q) ? q->count + (q->finish == LLM42_FINISH_ERROR) : 0;
}

// Outputs of an answer up to the end of its last chosen window.
static int last_chosen(const audit *a, int at) {
    int n = outputs(a, &a->t->answer[at]);
    while (n > 0 && !is_chosen(a, at, n - 1)) n--;
    return n;
}

// A number that nobody could know beforehand.
static int64_t system_seed(void) {
    uint64_t number = 0;
    FILE *file = fopen("/dev/urandom", "rb");
    if (!file || fread(&number, sizeof number, 1, file) != 1)
        args_fail(2, "/dev/urandom: cannot read: %s: give a --seed that the file's maker cannot know", strerror(errno));
    fclose(file);
    return (int64_t)(number >> 1);
}

// Draws n of the windows. One is taken with the probability that is left: (n - taken) / (all - seen).
static void choose(audit *a) {
    a->first = scoring_get((size_t)a->t->count + 1, sizeof *a->first);
    for (int i = 0; i < a->t->count; i++)
        a->first[i + 1] = a->first[i] + (outputs(a, &a->t->answer[i]) + window - 1) / window;
    const int64_t all = a->first[a->t->count];
    int64_t n = windows ? windows : (int64_t)ceil(share * (double)all), taken = 0;
    if (n < 1) n = 1;
    if (n < all && !seed_text) seed = system_seed();
    a->chosen = scoring_get((size_t)all + 1, sizeof *a->chosen);
    a->verdict = scoring_get((size_t)all + 1, sizeof *a->verdict);
    for (int64_t i = 0; i < all; i++) {
        double x = llm42_uniform(llm42_hash(llm42_hash((uint64_t)seed) ^ (uint64_t)i));
        a->chosen[i] = x * (double)(all - i) < (double)(n - taken);
        taken += a->chosen[i];
    }
    windows = taken;
    for (int i = 0; i < a->t->count; i++)
        if (last_chosen(a, i)) a->rows += a->t->answer[i].prompt_count + last_chosen(a, i) - 1;
}

// Why an answer cannot end where it ends, whatever its tokens are; NULL: it can.
static const char *wrong_end(const llm42_answer *q) {
    if (q->count > q->max_new_tokens) return "has more tokens than were asked for";
    for (int i = 0; i < q->count; i++)
        for (int k = 0; k < q->stop_count; k++) {
            if (q->tokens[i] != q->stop[k]) continue;
            if (i + 1 < q->count) return "goes on behind a stop token";
            return q->finish == LLM42_FINISH_STOP ? NULL : "ends with a stop token and says otherwise";
        }
    if (q->finish == LLM42_FINISH_STOP) return "ends without the stop token that it names as the reason";
    if (q->finish != LLM42_FINISH_LENGTH && q->count == q->max_new_tokens)
        return "has all tokens that were asked for, and names another reason for its end";
    if (q->finish == LLM42_FINISH_LENGTH && q->count < q->max_new_tokens)
        return "has fewer tokens than were asked for, and names the number as the reason for its end";
    return NULL;
}

// What no answer of this model can have, in `why`. False: then the answer cannot run.
static bool can_run(const audit *a, int at, char why[160]) {
    const llm42_answer *q = &a->t->answer[at];
    const llm42_config *c = &a->model->config;
    if ((int64_t)q->prompt_count + q->count > c->context) {
        snprintf(why, 160, "has more tokens than the model's context of %d", c->context);
        return false;
    }
    for (int k = 0; k < q->prompt_count + q->count; k++) {
        const int32_t id = k < q->prompt_count ? q->prompt[k] : q->tokens[k - q->prompt_count];
        if (id < c->vocab) continue;
        snprintf(why, 160, "has token %d, which is outside the vocabulary of %d", (int)id, c->vocab);
        return false;
    }
    const char *end = wrong_end(q);
    if (end) snprintf(why, 160, "%s", end);
    if (a->same_id[at]) snprintf(why, 160, "is there twice, also in line %d", a->same_id[at]);
    return true;
}

static void compare(const llm42_answer *q, int i, llm42_output out, finding *f, verdict *v) {
    f->tokens++, v->tokens++;
    if (out.token < 0) {
        v->other_tokens++;
        if (f->none < 0) f->none = i;
    } else if (out.token != q->tokens[i]) {
        v->other_tokens++;
        if (!f->other_tokens++) f->token = i, f->is_token = out;
    } else if (memcmp(&out.logprob, &q->logprobs[i], sizeof out.logprob) != 0) {
        v->other_logprobs++;
        if (!f->other_logprobs++) f->logprob = i, f->is_logprob = out;
    }
}

// Not scoring_run, which ends the program where logits are not finite.
static void run_pass(audit *a, const llm42_pass *pass) {
    llm42_error error = {0};
    args_check(a->s.backend->run(a->s.state, pass, &error), &error);
}

// Runs the rows that were put together, and compares what comes out where a window is chosen.
static void run_rows(audit *a, int n) {
    llm42_pass pass = {
        .schedule = LLM42_SCHEDULE_INVARIANT, .rows = n, .shape = n, .row = a->s.row, .seq = a->seq, .out = a->s.out};
    if (!n) return;
    llm42_follow_rows(a->seq, a->s.row, n);
    run_pass(a, &pass);
    for (const llm42_row *row = a->s.row; row < a->s.row + n; row++) {
        job *q = &a->job[row->seq];
        const llm42_answer *answer = &a->t->answer[q->at];
        if (!(row->flags & LLM42_ROW_SAMPLE)) continue;
        const int i = row->position - answer->prompt_count + 1;
        compare(answer, i, a->s.out[row - a->s.row], &q->f, &a->verdict[a->first[q->at] + i / window]);
    }
    a->rows_done += n;
    progress(a);
}

// Feeds the prompts and the recorded tokens of all answers that run together, one answer behind the other.
static void replay(audit *a) {
    int n = 0;
    for (int j = 0; j < a->jobs; j++) {
        const job *q = &a->job[j];
        const int behind = a->t->answer[q->at].prompt_count - 1;  // the row at this position gives token 0
        for (int i = 0; i < q->count; i++) {
            const bool sample = i >= behind && is_chosen(a, q->at, i - behind);
            a->s.row[n++] = (llm42_row){j, i, q->ids[i], sample ? LLM42_ROW_SAMPLE : 0};
            if (n == a->s.rows) run_rows(a, n), n = 0;
        }
    }
    run_rows(a, n);
}

// The logits behind a position whose KV and that of all before it is there: the row runs once more, alone. With
// recurrent layers all rows before it run again, too, because the state is that of a later position.
static const float *logits_at(audit *a, const job *q, int position) {
    llm42_seq seq = {.request = 1, .pages = a->seq[q - a->job].pages};
    for (int at = a->model->config.recurrent_layers ? 0 : position; at <= position; at++) {
        a->s.row[0] = (llm42_row){0, at, q->ids[at], LLM42_ROW_SAMPLE};
        llm42_follow_rows(&seq, a->s.row, 1);
        llm42_pass pass = {.schedule = LLM42_SCHEDULE_INVARIANT,
                           .rows = 1,
                           .shape = 1,
                           .row = a->s.row,
                           .seq = &seq,
                           .out = a->s.out,
                           .logits = a->s.logits};
        run_pass(a, &pass);
    }
    return a->s.logits;
}

// Does the model give a token behind a position? As in logits_at, all before it has run. NaN and infinity give none.
static bool has_token(audit *a, const job *q, int position) {
    const int number = (int)(q - a->job);
    const llm42_row row = {number, position, q->ids[position], LLM42_ROW_SAMPLE};
    llm42_follow_rows(a->seq, &row, 1);
    const llm42_pass pass = {
        .schedule = LLM42_SCHEDULE_INVARIANT, .rows = 1, .shape = 1, .row = &row, .seq = a->seq, .out = a->s.out};
    run_pass(a, &pass);
    a->rows_done++;
    return a->s.out[0].token >= 0;
}

static unsigned bits(float x) {
    unsigned u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static const char *logprobs_word(int64_t number) { return number == 1 ? "log-probability" : "log-probabilities"; }

static void report(audit *a, const job *job) {
    const llm42_answer *q = &a->t->answer[job->at];
    const finding *f = &job->f;
    printf("request %lld: differs: %d of %d token%s, %d %s of the others\n", (long long)q->request, f->other_tokens,
           f->tokens, args_plural(f->tokens), f->other_logprobs, logprobs_word(f->other_logprobs));
    if (f->token >= 0) {
        const float *logits = logits_at(a, job, q->prompt_count - 1 + f->token);
        const int32_t was = q->tokens[f->token], is = f->is_token.token;
        printf("  first token: %d of %d: recorded %d (log-probability %.9g), computed %d (%.9g); margin %.9g%s\n",
               f->token + 1, q->count, (int)was, (double)q->logprobs[f->token], (int)is, (double)f->is_token.logprob,
               (double)(logits[is] - logits[was]), q->sampling.temperature > 0 ? ", before the noise of the draw" : "");
    }
    if (f->logprob >= 0) {
        const float was = q->logprobs[f->logprob], is = f->is_logprob.logprob;
        printf("  first log-probability: %d of %d, of token %d: recorded %.9g (bits %08x), computed %.9g (bits %08x)\n",
               f->logprob + 1, q->count, (int)q->tokens[f->logprob], (double)was, bits(was), (double)is, bits(is));
    }
}

static void verified(const llm42_answer *q, const finding *f, bool whole) {
    if (whole)
        printf("request %lld: verified to the bit: %d token%s and %s%s\n", (long long)q->request, f->tokens,
               args_plural(f->tokens), logprobs_word(f->tokens),
               q->finish == LLM42_FINISH_CANCELLED ? ", up to where it was cancelled"
               : q->finish == LLM42_FINISH_ERROR   ? ", up to logits that are not finite"
                                                   : "");
    else
        printf("request %lld: verified to the bit: %d of its %d token%s and %s\n", (long long)q->request, f->tokens,
               q->count, args_plural(q->count), logprobs_word(q->count));
}

// What is said of an answer when it has run.
static void conclude_answer(audit *a, job *job) {
    const llm42_answer *q = &a->t->answer[job->at];
    const int last = last_chosen(a, job->at);
    const finding *f = &job->f;
    char *why = job->why;
    if (f->none >= 0)
        snprintf(why, sizeof job->why, "has a token, number %d of %d, behind logits that are not finite", f->none + 1,
                 q->count);
    if (!why[0] && last > q->count && has_token(a, job, q->prompt_count + q->count - 1))
        snprintf(why, sizeof job->why, "ends with an error, and the model gives a token there");
    hide_progress(a);
    if (why[0]) printf("request %lld: differs: it %s\n", (long long)q->request, why);
    const bool differs = f->other_tokens || f->other_logprobs;
    if (differs) report(a, job);
    if (!differs && !why[0]) verified(q, f, f->tokens == q->count && last == outputs(a, q));
    a->audited++;
    a->differ += differs || why[0];
    a->tokens += f->tokens;
    free(job->ids);
}

// Runs the answers that were put together, and says what they turned out to be.
static void audit_together(audit *a) {
    replay(a);
    for (int j = 0; j < a->jobs; j++) conclude_answer(a, &a->job[j]);
    a->jobs = a->pages_taken = 0;
}

static void audit_answer(audit *a, int at) {
    const llm42_answer *q = &a->t->answer[at];
    const int last = last_chosen(a, at), tokens = q->prompt_count + q->count, pages = tokens / PAGE + 1;
    job own = {.at = at, .f = {.token = -1, .logprob = -1, .none = -1}};
    if (!q->deterministic) {
        a->ordinary++;
        if (skip_ordinary) return;
        audit_together(a);  // so that lines come in the order of the file
        printf("request %lld: cannot be audited: it was not marked deterministic\n", (long long)q->request);
        return;
    }
    if (is_old(a, q)) return;
    const bool runs = can_run(a, at, own.why);
    a->cancelled += q->finish == LLM42_FINISH_CANCELLED;
    if (!own.why[0] && !outputs(a, q)) {
        a->empty++;
        audit_together(a);
        printf("request %lld: nothing to compare: it was cancelled before its first token\n", (long long)q->request);
        return;
    }
    if (!own.why[0] && !last) return;  // no window of it was drawn
    if (a->jobs == TOGETHER || (runs && a->pages_taken + pages > a->s.desc.pages)) audit_together(a);
    own.ids = scoring_get((size_t)tokens, sizeof *own.ids);
    memcpy(own.ids, q->prompt, sizeof *own.ids * (size_t)q->prompt_count);
    memcpy(own.ids + q->prompt_count, q->tokens, sizeof *own.ids * (size_t)q->count);
    if (runs && last) own.count = q->prompt_count + (last < q->count ? last : q->count) - 1;
    a->seq[a->jobs] = (llm42_seq){.request = a->jobs + 1, .pages = a->pages + a->pages_taken, .sampling = q->sampling};
    a->pages_taken += runs ? pages : 0;
    a->job[a->jobs++] = own;
}

static int by_request(const void *left, const void *right) {
    const llm42_answer *const *l = left, *const *r = right;
    if ((*l)->request != (*r)->request) return (*l)->request < (*r)->request ? -1 : 1;
    return (*l)->line < (*r)->line ? -1 : 1;
}

// An engine gives each request another id. So an answer that is there twice was added to the file.
static void find_same_ids(audit *a) {
    const llm42_transcript *t = a->t;
    const llm42_answer **sorted = scoring_get((size_t)t->count + 1, sizeof *sorted);
    a->same_id = scoring_get((size_t)t->count + 1, sizeof *a->same_id);
    for (int i = 0; i < t->count; i++) sorted[i] = &t->answer[i];
    qsort(sorted, (size_t)t->count, sizeof *sorted, by_request);
    for (int i = 1; i < t->count; i++)
        if (sorted[i]->request == sorted[i - 1]->request) a->same_id[sorted[i] - t->answer] = sorted[i - 1]->line;
    free(sorted);
}

// Is it the recorded model? Files of format 1 have the weak hash only.
static void check_hash(audit *a, const llm42_model *model) {
    llm42_error error = {0};
    char hash[LLM42_SHA256_TEXT];
    uint64_t weak = 0;
    args_check(llm42_model_sha256(model, a->sha256, &error), &error);
    memcpy(hash, a->sha256, sizeof hash);
    if (a->t->format == 1) {
        args_check(llm42_model_hash(model, &weak, &error), &error);
        snprintf(hash, sizeof hash, "%016llx", (unsigned long long)weak);
    }
    if (strcmp(hash, a->t->model_hash) != 0)
        args_fail(2, "%s: its model has the hash %s, and %s has %s: another model, or changed since", path,
                  a->t->model_hash, model->name, hash);
}

static double weight_bytes(const llm42_config *c) {
    const double dim = c->dim, attention = 2.0 * c->head_dim * (c->heads + c->kv_heads);
    const double feed_forward = 3.0 * c->ffn * (c->experts ? c->experts : 1);
    return 2 * dim * (2.0 * c->vocab + c->layers * (attention + feed_forward));
}

// What a file names is looked at before it is built: a line of text must not make this computer fill its memory. Of a
// synthetic model the recipes are enough for its hash.
static llm42_model *load_model(audit *a, const llm42_backend *backend) {
    const bool from_file = !strcmp(model_path, "from-file");
    char found[4096];
    const char *from = args_find(from_file ? a->t->model : model_path, found);
    const bool synthetic = !strncmp(from, "synthetic:", 10);
    llm42_model_desc load = {.path = from, .on_device = synthetic, .log = args_model_log};
    llm42_error error = {0};
    llm42_model *model = NULL;
    args_check(llm42_model_load(&model, &load, &error), &error);
    if (from_file && weight_bytes(&model->config) > most_bytes)
        args_fail(2, "%s: its model %s has %.0f GB of weights, and from-file loads at most %.0f: give --model DIR",
                  path, from, weight_bytes(&model->config) * 1e-9, most_bytes * 1e-9);
    if (synthetic) check_hash(a, model);
    if (no_mmap || load.on_device != args_on_device(from, backend)) {
        llm42_model_free(model);
        load.on_device = args_on_device(from, backend), load.no_mmap = no_mmap, load.log = NULL;
        args_check(llm42_model_load(&model, &load, &error), &error);
    }
    if (!synthetic) check_hash(a, model);
    return model;
}

// How sums are taken: the file says it, and the model and the options must allow it.
static void check_leaves(const audit *a) {
    if (llm42_ranks_check("llm42_engine_desc", &a->model->config, 0, a->t->numerics.leaves, NULL))
        args_fail(2, "%s: leaves: %d: the model cannot be cut into these", path, a->t->numerics.leaves);
    if (tensor_parallel > a->t->numerics.leaves)
        args_fail(2, "--tensor-parallel: %d ranks: the transcript has %d leaves, and more ranks give other bits",
                  (int)tensor_parallel, a->t->numerics.leaves);
}

// A CPU can take any; a GPU has its own.
static llm42_arithmetic arithmetic_of(const llm42_transcript *t) {
    static const char *const names[] = {"fp32", "sm90", "sm80", "sm89", "sm100"};
    for (int i = 0; i < 5; i++)
        if (!strcmp(t->arithmetic, names[i])) return (llm42_arithmetic)(LLM42_ARITHMETIC_FP32 + i);
    return LLM42_ARITHMETIC_DEFAULT;
}

static void open_backend(audit *a, const llm42_backend *backend) {
    int longest = 1;
    char why[160];
    if (!rows) rows = strcmp(backend->name, "cpu") ? 1024 : 128;
    for (int i = 0; i < a->t->count; i++) {
        if (!can_run(a, i, why)) continue;
        const int tokens = a->t->answer[i].prompt_count + a->t->answer[i].count;
        if (tokens > longest) longest = tokens;
    }
    // Room for the longest answer, or for several that fill a pass.
    const int most = longest > 2 * (int)rows ? longest : 2 * (int)rows, pages = most / PAGE + 1;
    a->s = (scoring){.backend = backend, .schedule = LLM42_SCHEDULE_INVARIANT, .rows = (int)rows};
    a->s.desc = (llm42_backend_desc){.model = a->model,
                                     .backend_desc = args_backend_desc(backend, threads, tensor_parallel, devices),
                                     .numerics.compute = a->t->numerics.compute,
                                     .numerics.arithmetic = arithmetic_of(a->t),
                                     .numerics.logits_fp32 = a->t->numerics.logits_fp32,
                                     .numerics.router_fp32 = a->t->numerics.router_fp32,
                                     .tensor_parallel = (int)tensor_parallel,
                                     .numerics.leaves = a->t->numerics.leaves,
                                     .max_rows = (int)rows,
                                     .max_context = longest,
                                     .pages = pages,
                                     .page_size = PAGE,
                                     .max_running = TOGETHER,
                                     .fixed_rows = (int)rows,
                                     .schedules = 1u << LLM42_SCHEDULE_INVARIANT};
    scoring_open(&a->s);
    a->pages = scoring_get((size_t)pages, sizeof *a->pages);
    for (int i = 0; i < pages; i++) a->pages[i] = i;
    const char *is = backend->arithmetic ? backend->arithmetic(a->s.state) : NULL;
    if (!is || strcmp(is, a->t->arithmetic) != 0)
        args_fail(2, "%s: its arithmetic is %s, and that of --backend %s here is %s: their bits differ", path,
                  a->t->arithmetic, name, is ? is : "not known");
}

// The file of --verdicts. What is wrong with an answer as a whole, such as its end, is no window's fault and not in it.
static void write_verdicts(const audit *a) {
    FILE *file = verdicts ? llm42_file_create(verdicts) : NULL;
    if (!verdicts) return;
    if (!file) args_fail(2, "%s: cannot write: %s", verdicts, strerror(errno));
    fprintf(file, "request\twindow\ttokens\tother_tokens\tother_logprobs\n");
    for (int at = 0; at < a->t->count; at++)
        for (int64_t i = a->first[at]; i < a->first[at + 1]; i++) {
            const verdict *v = &a->verdict[i];
            if (a->chosen[i])
                fprintf(file, "%lld\t%lld\t%d\t%d\t%d\n", (long long)a->t->answer[at].request,
                        (long long)(i - a->first[at]), v->tokens, v->other_tokens, v->other_logprobs);
        }
    if (!llm42_file_finish(file)) args_fail(2, "%s: cannot write: %s", verdicts, strerror(errno));
}

// Compares with what was asked for, by the tokenizer of the model.
static void compare_requests(audit *a) {
    llm42_error error = {0};
    int32_t stop[LLM42_MAX_STOP];
    chat turns = {0};
    request_file f = {.option = "--against", .path = against_path, .model = a->model, .ask.deterministic = true};
    const char *folder = a->model->name;
    if (!strncmp(folder, "synthetic:", 10)) f.t = NULL;  // its prompts are ids
    else if (tok_open(&f.t, a->model, folder, NULL, &error) && error.result != LLM42_IO) args_fail(2, "%s", error.text);
    if (chatting && !f.t) args_fail(2, "--chat: %s has no tokenizer", folder);
    if (chatting) {
        if (chat_open(&turns, f.t, folder, &chatted, &error)) args_fail(2, "--chat: %s", error.text);
        f.chat = &turns, f.ask.stop = stop, f.ask.stop_count = chat_stop(&turns, &a->model->config, stop);
    }
    request_file_read(&f);
    a->asked = (int)arrlen(f.line);
    a->other = against_compare(&f, a->t, &a->more);
    request_file_free(&f);
    tok_free(f.t);
}

static void print_asked(const audit *a) {
    if (!a->asked) return;
    if (a->other)
        printf("; %d of %d request%s of %s %s not answered as asked", a->other, a->asked, args_plural(a->asked),
               against_path, a->other == 1 ? "is" : "are");
    else
        printf("; %d of %d request%s of %s answered as asked", a->asked, a->asked, args_plural(a->asked), against_path);
    if (a->more) printf("; %d answer%s to none of them", a->more, args_plural(a->more));
}

// The last lines, and the exit status. They claim nothing about what the file leaves out.
static int conclude(const audit *a) {
    const llm42_transcript *t = a->t;
    const int64_t all = a->first[t->count];
    const bool bad = a->differ || a->other || (a->ordinary && !skip_ordinary);
    const char *parts = windows < all ? "parts of " : "";
    printf("%s: %s%d of %d request%s%s", bad ? "NOT VERIFIED" : "verified to the bit", parts, a->audited - a->differ,
           t->count, args_plural(t->count),
           !bad            ? ""
           : t->count == 1 ? " is equal to the bit"
                           : " are equal to the bit");
    if (a->differ) printf(", %d %s", a->differ, a->differ == 1 ? "differs" : "differ");
    printf("%s%lld of %lld window%s of %d token%s", bad ? "; compared: " : ", ", (long long)windows, (long long)all,
           args_plural(all), (int)window, args_plural(window));
    if (windows < all) printf(", drawn by seed %lld%s", (long long)seed, seed_text ? "" : " of the system");
    else
        printf(": all %s", a->old        ? "that can be computed again"
                           : a->ordinary ? "that are marked deterministic"
                                         : "of the file");
    printf("; %lld token%s and %s%s", (long long)a->tokens, args_plural(a->tokens), logprobs_word(a->tokens),
           bad ? "" : " compared");
    if (a->cancelled) printf("; %d cancelled: where these end is not verified", a->cancelled);
    if (a->empty) printf("; %d without a token: nothing to compare", a->empty);
    if (a->ordinary) printf("; %d not marked deterministic", a->ordinary);
    if (a->old) printf("; %d drawn or summed as by 0.2.0", a->old);
    print_asked(a);
    printf("\n  model %s, SHA-256 %s, arithmetic %s, compute %s, logits_fp32 %s, router_fp32 %s, leaves %d\n",
           a->model->name, a->sha256, t->arithmetic, t->numerics.compute == LLM42_DTYPE_FP32 ? "fp32" : "bf16",
           t->numerics.logits_fp32 ? "yes" : "no", t->numerics.router_fp32 ? "yes" : "no", t->numerics.leaves);
    if (!strcmp(model_path, "from-file"))
        printf("  from-file: the maker of the file chose the model: compare its SHA-256 with that of your own copy\n");
    if (t->format == 1)
        printf("  format 1: the file has no digest and a weak hash of the model (64 bits, invertible), which another "
               "model can have, too\n");
    else printf("  digest of the file %s: compare it with a published or signed one (examples/AUDIT.md)\n", t->digest);
    return bad;
}

int main(int argc, char **argv) {
    args_went_wrong = 2;
    args_status_1 = "an answer differs or was not marked deterministic";
    args_parse(
        argc, argv,
        "Computes the answers of a transcript (made by build/generate --record) again. Compares every token and every\n"
        "bit of the log-probabilities.",
        options);
    if (!path) args_fail(2, "give the FILE of a transcript (try --help)");
    if (!model_path)
        args_fail(2, "give --model DIR, your own copy of the model, or --model from-file, the model that %s names",
                  path);
    if (chatting && !against_path) args_fail(2, "--chat: needs --against REQUESTS, whose prompts it is about");
    if (chatted.system && !chatting) args_fail(2, "--system: needs --chat");
    if ((chatted.format || chatted.date) && !chatting)
        args_fail(2, "%s: needs --chat", chatted.format ? "--chat-format" : "--chat-date");
    if (seed_text) seed = args_int("--seed", seed_text, seed_text + strlen(seed_text), 0, INT64_MAX);
    const llm42_backend *backend = args_backend(name);
    llm42_error error = {0};
    audit a = {.show = args_is_terminal(stderr)};
    args_check(llm42_transcript_load(&a.t, path, &error), &error);
    if (strcmp(a.t->result, "canonical") != 0)
        args_fail(2, "%s: preset %s: its result %s: only canonical ones can be audited", path, a.t->preset,
                  a.t->result);
    choose(&a);
    for (int i = 0; i < a.t->count; i++) a.old += is_old(&a, &a.t->answer[i]);
    if (a.old && !(skip_ordinary && a.first[a.t->count]))
        args_fail(2,
                  "%s: %d of its %d requests have the draws or the sums (sm90) of llm42 0.2.0: audit them with that "
                  "version%s",
                  path, a.old, a.t->count, a.first[a.t->count] ? ": --skip-ordinary leaves them out" : "");
    if (!a.first[a.t->count])
        args_fail(2, "%s: none of its %d requests is deterministic and has tokens", path, a.t->count);
    llm42_model *model = load_model(&a, backend);
    a.model = model;
    check_leaves(&a);
    find_same_ids(&a);
    if (against_path) compare_requests(&a);
    open_backend(&a, backend);
    for (int i = 0; i < a.t->count; i++) audit_answer(&a, i);
    audit_together(&a);
    write_verdicts(&a);
    const int status = conclude(&a);
    scoring_close(&a.s);
    free(a.pages);
    llm42_model_free(model);
    llm42_transcript_free(a.t);
    free(a.first);
    free(a.chosen);
    free(a.verdict);
    free(a.same_id);
    return args_finish() || status;
}
