// invariance: which operators of a pass keep a row's bits when the row stands elsewhere in the pass (position
// invariance), when the pass has other rows beside it, and when its number of rows M changes (batch invariance)? This
// is Table 2 of the LLM-42 paper for the operators of the CPU backend, which chooses orders of sums as GPU libraries
// do. make build/invariance && build/invariance
//
// Requests have the same context, computed by INVARIANT passes. Then each decodes one row in every pass that is
// compared, so that only the passes differ. The bits of an operator's result are compared only where its input has the
// same bits in both passes. So a change is that of the operator, and not one that it was given. A norm's input is the
// sum of all earlier results of its row.
//
// The exit status is 1 if a promise is broken (INVARIANT results depend on the row alone, FIXED ones on the row and M),
// and 3 if no FAST result depends on M either, because equal bits show nothing then.
#define _POSIX_C_SOURCE 200809L
#define LLM42_IMPLEMENTATION
#include "examples/util/llm42_synthetic.h"
#include "examples/lib/args.h"
#include "examples/lib/compare.h"

enum { PAGE = 16, MOST_OPERATORS = 24, LIST = 4096, MOST_ROWS = 80 };
static const int numbers[] = {1, 2, 3, 5, 7, 8, 9, 10, 16, 31, 32, 33, 48, 63, 64, 65, 66, MOST_ROWS};
static const int places[] = {0, 1, 2, 7, 8, 39, 40, MOST_ROWS - 1};

typedef struct study {
    const char *model_path, *out_path;
    int64_t requests, context, threads;
    llm42_model *model;
    void *state;
    llm42_seq *seq;  // [requests + MOST_ROWS]: those that are compared, and those that fill passes up
    FILE *tsv;
    bool broken, drifts;
} study;

static void *get(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (!memory) args_fail(1, "out of memory");
    return memory;
}

static int32_t token_of(const study *s, int64_t seq, int64_t position) {
    const int64_t of_context = (int64_t)(llm42_hash((uint64_t)position) >> 1);
    return (int32_t)((position < s->context && seq < s->requests ? of_context : seq) % s->model->config.vocab);
}

// >>passes -------------------------------------------------------------------------------------------------------
static void run(study *s, llm42_schedule schedule, int shape, int rows, llm42_row *row, film *to) {
    const int vocab = s->model->config.vocab;
    llm42_error error = {0};
    llm42_output *out = get((size_t)rows, sizeof *out);
    float *logits = to ? get((size_t)rows * (size_t)vocab, sizeof *logits) : NULL;
    llm42_follow_rows(s->seq, row, rows);
    const llm42_pass pass = {.schedule = schedule,
                             .rows = rows,
                             .shape = shape,
                             .row = row,
                             .seq = s->seq,
                             .out = out,
                             .logits = logits,
                             .probe = to ? film_take : NULL,
                             .probe_user = to};
    args_check(llm42_backend_cpu()->run(s->state, &pass, &error), &error);
    if (to) film_take(to, -1, "logits", rows, vocab, logits);
    if (to && to->failed) args_fail(1, "out of memory");
    free(out), free(logits);
}

// How the passes are that serve all requests: the first row stands at `place`, the next one behind it, and so on.
typedef struct way {
    llm42_schedule schedule;
    int shape, rows, place;
} way;

// One row of each request, in as many passes as needed: a film whose rows are the requests.
static film serve(study *s, way w) {
    film all = {0};
    llm42_row *row = get((size_t)w.rows, sizeof *row);
    for (int from = 0; from < s->requests; from += w.rows) {
        const int left = (int)s->requests - from, served = left < w.rows ? left : w.rows;
        film taken = {0};
        for (int i = 0; i < w.rows; i++) {
            const int seq = i < served ? from + i : (int)s->requests + i, position = i < served ? (int)s->context : 0;
            row[(i + w.place) % w.rows] = (llm42_row){seq, position, token_of(s, seq, position), LLM42_ROW_SAMPLE};
        }
        run(s, w.schedule, w.shape, w.rows, row, &taken);
        for (int o = 0; o < (int)arrlen(taken.shots); o++) {
            const shot *one = &taken.shots[o];
            const size_t width = (size_t)one->width;
            if (!from) {
                shot empty = *one;
                empty.rows = (int)s->requests, empty.values = get((size_t)s->requests * width, sizeof(float));
                arrput(all.shots, empty);
            }
            for (int i = 0; i < served; i++)
                memcpy(all.shots[o].values + (size_t)(from + i) * width,
                       one->values + (size_t)((i + w.place) % w.rows) * width, width * sizeof(float));
        }
        film_free(&taken);
    }
    free(row);
    return all;
}

// Requests have the pages of the first one for the context, and one of their own behind it.
static void open_backend(study *s, llm42_dtype compute) {
    const int many = (int)s->requests + MOST_ROWS, shared = (int)s->context / PAGE, each = shared + 1;
    const llm42_backend_desc desc = {.model = s->model,
                                     .backend_desc = args_backend_desc(llm42_backend_cpu(), s->threads, 1, 0),
                                     .numerics = {.compute = compute, .leaves = 1},
                                     .tensor_parallel = 1,
                                     .max_rows = s->context > MOST_ROWS ? (int)s->context : MOST_ROWS,
                                     .max_context = (int)s->context + 1,
                                     .pages = shared + many,
                                     .page_size = PAGE,
                                     .max_running = many,
                                     .fixed_rows = MOST_ROWS,
                                     .schedules = 1u << LLM42_SCHEDULE_FAST | 1u << LLM42_SCHEDULE_FIXED |
                                                  1u << LLM42_SCHEDULE_INVARIANT};
    llm42_error error = {0};
    llm42_row *row = get((size_t)s->context, sizeof *row);
    int32_t *page = get((size_t)(many * each), sizeof *page);
    args_check(llm42_backend_cpu()->open(&s->state, &desc, &error), &error);
    s->seq = get((size_t)many, sizeof *s->seq);
    for (int i = 0; i < many; i++) {
        for (int p = 0; p < shared; p++) page[i * each + p] = p;
        page[i * each + shared] = shared + i;
        if (i >= s->requests) page[i * each] = shared + i;  // those that fill passes up have no context
        s->seq[i] = (llm42_seq){.request = i + 1, .pages = page + i * each};
    }
    for (int p = 0; p < s->context; p++) row[p] = (llm42_row){0, p, token_of(s, 0, p), 0};
    run(s, LLM42_SCHEDULE_INVARIANT, (int)s->context, (int)s->context, row, NULL);
    free(row);
}

static void close_backend(study *s) {
    llm42_backend_cpu()->close(s->state);
    free((void *)s->seq[0].pages), free(s->seq);
}

// >>operators ----------------------------------------------------------------------------------------------------
enum { FP32, BF16, TYPES };
typedef struct count {  // of an operator
    char name[24];
    int compared[TYPES], differing[TYPES];           // results whose inputs are equal; those of them that are not
    bool changes[sizeof numbers / sizeof *numbers];  // from the number before, by the place in its list
} count;

static bool same_row(const film *a, const film *b, int shot_at, int row) {
    const shot *x = &a->shots[shot_at], *y = &b->shots[shot_at];
    const size_t at = (size_t)row * (size_t)x->width;
    return !memcmp(x->values + at, y->values + at, (size_t)x->width * sizeof(float));
}

static int find(const film *f, int layer, const char *name) {
    for (int i = 0; i < (int)arrlen(f->shots); i++)
        if (f->shots[i].layer == layer && !strcmp(f->shots[i].name, name)) return i;
    args_fail(1, "the model has no operator %s: a mixture and recurrent layers are not compared", name);
    return -1;
}

// What an operator reads, but for norms, which read the sum of embed and of all o and down before them.
static const char *const reads[][4] = {{"q", "attention_norm"},  {"k", "attention_norm"},     {"v", "attention_norm"},
                                       {"o", "attention"},       {"gate", "ffn_norm"},        {"down", "gate"},
                                       {"logits", "final_norm"}, {"attention", "q", "k", "v"}};

static bool same_input(const film *a, const film *b, int at, int row) {
    const shot *s = &a->shots[at];
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++) {
        if (strcmp(reads[i][0], s->name)) continue;
        for (int k = 1; k < 4 && reads[i][k]; k++)
            if (!same_row(a, b, find(a, s->layer, reads[i][k]), row)) return false;
        return true;
    }
    for (int i = 0; i < at; i++) {
        const char *name = a->shots[i].name;
        if ((!strcmp(name, "embed") || !strcmp(name, "o") || !strcmp(name, "down")) && !same_row(a, b, i, row))
            return false;
    }
    return true;
}

// Adds what differs between two films to the counts of the operators. place: of the second one's number in its list.
static void add(const study *s, const film *a, const film *b, int type, int place, count counts[MOST_OPERATORS]) {
    for (int at = 0; at < (int)arrlen(a->shots); at++) {
        count *c = counts;
        while (c->name[0] && strcmp(c->name, a->shots[at].name)) c++;
        memcpy(c->name, a->shots[at].name, sizeof c->name);
        for (int row = 0; row < s->requests; row++) {
            if (!same_input(a, b, at, row)) continue;
            c->compared[type]++;
            if (same_row(a, b, at, row)) continue;
            c->differing[type]++, c->changes[place] = true;
        }
    }
}

// >>questions ----------------------------------------------------------------------------------------------------
typedef enum what { SHAPE, OTHERS, PLACE } what;
static const struct question {
    const char *schedule, *name;
    llm42_schedule order;
    what changes;
    bool promised;  // that no bit changes
} questions[] = {
    {"FAST", "M", LLM42_SCHEDULE_FAST, SHAPE, false},
    {"FAST", "place", LLM42_SCHEDULE_FAST, PLACE, false},
    {"FIXED", "M", LLM42_SCHEDULE_FIXED, SHAPE, false},
    {"FIXED", "rows of M", LLM42_SCHEDULE_FIXED, OTHERS, true},
    {"FIXED", "place", LLM42_SCHEDULE_FIXED, PLACE, true},
    {"INVARIANT", "M", LLM42_SCHEDULE_INVARIANT, SHAPE, true},
    {"INVARIANT", "place", LLM42_SCHEDULE_INVARIANT, PLACE, true},
};

enum { QUESTIONS = sizeof questions / sizeof *questions };

static void report(study *s, const struct question *q, const count *counts) {
    const int *list = q->changes == PLACE ? places : numbers;
    for (const count *c = counts; c < counts + MOST_OPERATORS && c->name[0]; c++) {
        const bool differs = c->differing[FP32] || c->differing[BF16], broken = q->promised && differs;
        char at[LIST] = "";
        for (size_t i = 0; i < sizeof c->changes; i++)
            if (c->changes[i]) snprintf(at + strlen(at), LIST - strlen(at), "%s%d", at[0] ? " " : "", list[i]);
        s->broken |= broken;
        s->drifts |= q->order == LLM42_SCHEDULE_FAST && differs;
        printf("%-10s %-10s %-15s %9d %9d %9d %9d  %s%s\n", q->schedule, q->name, c->name, c->compared[FP32],
               c->differing[FP32], c->compared[BF16], c->differing[BF16], differs ? at : "never",
               broken ? "  BROKEN" : "");
        if (s->tsv)
            fprintf(s->tsv, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\n", q->schedule, q->name, c->name, c->compared[FP32],
                    c->differing[FP32], c->compared[BF16], c->differing[BF16], differs ? at : "none");
    }
    fflush(stdout);
}

// Compares the passes of each M with those of the one before; or passes of the largest M, in which the number of rows
// or their places change.
static void ask(study *s, const struct question *q, int type, count *counts) {
    const int *list = q->changes == PLACE ? places : numbers;
    const int length = (int)(q->changes == PLACE ? sizeof places : sizeof numbers) / (int)sizeof *list;
    film before = {0};
    for (int i = 0; i < length; i++) {
        way w = {q->order, MOST_ROWS, MOST_ROWS, 0};
        if (q->changes == PLACE) w.place = list[i];
        else w.rows = list[i];
        if (q->changes == SHAPE) w.shape = w.rows;
        film now = serve(s, w);
        if (i > 0) add(s, &before, &now, type, i, counts);
        film_free(&before);
        before = now;
    }
    film_free(&before);
}

int main(int argc, char **argv) {
    study s = {.model_path = "examples/tiny42", .requests = 1024, .context = 192};
    const args_option options[] = {
        ARGS_IN("model,m DIR", &s.model_path, "model folder or synthetic:NAME"),
        ARGS_INT("requests N", &s.requests, 1, 4096, "rows that are compared"),
        ARGS_INT("context N", &s.context, 1, 100000, "tokens before each of them"),
        ARGS_INT("threads,t N", &s.threads, 0, 1024, "0: one for a small model, else what OpenMP offers"),
        ARGS_OUT("out FILE", &s.out_path, "write the numbers there too"),
        ARGS_END,
    };
    char found[4096];
    llm42_error error = {0};
    args_status_1 = "a promise is broken, or something went wrong;\n3: no FAST result depends on M either";
    args_parse(argc, argv, "Says which operators of the CPU backend keep a row's bits in other passes.", options);
    const llm42_model_desc desc = {.path = args_find(s.model_path, found), .log = args_model_log};
    args_check(llm42_model_load(&s.model, &desc, &error), &error);
    if (s.model->config.experts || s.model->config.recurrent_layers || !s.model->layer)
        args_fail(2, "--model: a dense model with weights is needed");
    if (s.context % PAGE || s.context >= s.model->config.context)
        args_fail(2, "--context: must be a multiple of %d, and less than the model's of %d", (int)PAGE,
                  s.model->config.context);
    s.tsv = s.out_path ? llm42_file_create(s.out_path) : NULL;
    if (s.out_path && !s.tsv) args_fail(1, "%s: cannot write: %s", s.out_path, strerror(errno));
    if (s.tsv)
        fprintf(s.tsv,
                "# llm42 %s invariance, model %s, backend cpu, %d rows of %d layers, context %d\n"
                "# compared: results of an operator, in a pass and in the one before, whose inputs have the same bits\n"
                "# differs_at: numbers of rows, or places, at which one of them has other bits than before\n"
                "schedule\tchanges\toperator\tfp32_compared\tfp32_differing\tbf16_compared\tbf16_differing\t"
                "differs_at\n",
                LLM42_VERSION, s.model->name, (int)s.requests, s.model->config.layers, (int)s.context);
    static count counts[QUESTIONS][MOST_OPERATORS];
    for (int type = 0; type < TYPES; type++) {
        open_backend(&s, type == FP32 ? LLM42_DTYPE_FP32 : LLM42_DTYPE_BF16);
        for (int i = 0; i < QUESTIONS; i++) ask(&s, &questions[i], type, counts[i]);
        close_backend(&s);
    }
    printf("%-36s  of fp32: %9s  of bf16: %9s\n%-10s %-10s %-15s %9s %9s %9s %9s  %s\n", "", "", "", "schedule",
           "changes", "operator", "compared", "differing", "compared", "differing", "differs at");
    for (int i = 0; i < QUESTIONS; i++) report(&s, &questions[i], counts[i]);
    if (s.tsv) fprintf(s.tsv, "# end\n");
    if (s.tsv && !llm42_file_finish(s.tsv)) args_fail(1, "%s: cannot write: %s", s.out_path, strerror(errno));
    llm42_model_free(s.model);
    const int went = args_finish();
    return s.broken ? 1 : went ? went : s.drifts ? 0 : 3;
}
