// passes.c: what a row's bits may depend on. FIXED: the row and M. INVARIANT: the row. Nothing else: not where it
// stands in the pass, what shares it, how the tokens before it were cut into passes, which pages or page size hold
// them. Logits are compared, all of them, besides tokens and log-probabilities. The control: a CPU's FAST rows must
// differ. A GPU's need not, as each product may have one order in passes of any size: check_canonical has its control.
#include "rig.h"
#include "../make_model.h"

// The rows looked at, behind a prompt that fills more than one unit of attention (LONG_PROMPT: more than two
// units); those beside them. All of the subject goes into one pass, with a few rows of others.
enum { SUBJECT = 48, PROMPT = 600, LONG_PROMPT = 1300, OTHERS = 40, OTHER_CONTEXT = 64, BEFORE = 7, AFTER = 2 };
_Static_assert(PASSES_LEAST_M == BEFORE + SUBJECT + AFTER, "rig.h: a pass of M rows holds all of these");

typedef struct subject {
    int32_t *ids, *other;          // [prompt + SUBJECT]; [OTHER_CONTEXT], of all others
    int prompt;                    // tokens before the subject, as far as the context goes
    llm42_output out[3][SUBJECT];  // the references, one a schedule: fed at once, alone
    float *logits;                 // [3, SUBJECT, V], theirs
    float *got;                    // [max_rows, V]
    llm42_row *row;                // [max_rows]
    llm42_output *outs;            // [max_rows]
    bool fp32;                     // logits are not rounded
} subject;

// Appends n rows of other sequences, each at a random place of its own context: decode rows and pieces of prompts.
static int add_others(rig *g, subject *s, llm42_row *row, int n, int *next) {
    int at = 0;
    while (at < n && *next < g->seqs) {
        int left = n - at, most = OTHER_CONTEXT < left ? OTHER_CONTEXT : left, later = g->seqs - *next - 1;
        int least = left - later * OTHER_CONTEXT;
        int count = test_random_int(&g->random, 0, 2) ? 1 : test_random_int(&g->random, 1, most);
        if (count < least) count = least < most ? least : most;
        if (later < left / 4 && count < most) count = most;
        int from = test_random_int(&g->random, 0, OTHER_CONTEXT - count);
        bool sampled = test_random_int(&g->random, 0, 1);
        for (int i = 0; i < count; i++)
            row[at++] = (llm42_row){*next, from + i, s->other[from + i], sampled ? LLM42_ROW_SAMPLE : 0};
        ++*next;
    }
    return at;
}

// Runs the subject's rows [from, from + count) behind `before` rows of others and in front of `after`, and compares
// them with the reference (or makes it). True if every bit is the same.
static bool feed_subject(rig *g, subject *s, llm42_schedule schedule, int from, int count, int before, int after,
                         bool make) {
    int next = 1, first = add_others(g, s, s->row, before, &next), rows = first;
    for (int i = 0, at = s->prompt + from; i < count; i++, at++)
        s->row[rows++] = (llm42_row){0, at, s->ids[at], LLM42_ROW_SAMPLE};
    rows += add_others(g, s, s->row + rows, after, &next);
    llm42_pass pass = rig_pass(g, schedule, s->row, rows, s->outs, s->got);
    if (!rig_run(g, &pass)) return false;
    size_t V = (size_t)g->vocab, bytes = (size_t)count * V * sizeof(float);
    int of = schedule - LLM42_SCHEDULE_FAST;
    float *want = s->logits + (size_t)(of * SUBJECT + from) * V, *got = s->got + (size_t)first * V;
    llm42_output *want_out = s->out[of] + from, *got_out = s->outs + first;
    if (make) {
        memcpy(want, got, bytes);
        memcpy(want_out, got_out, (size_t)count * sizeof *want_out);
        return true;
    }
    return !memcmp(want, got, bytes) && !memcmp(want_out, got_out, (size_t)count * sizeof *want_out);
}

static bool fill_others(rig *g, const subject *s) {
    bool ok = true;
    for (int i = 1; i < g->seqs && ok; i++)
        ok = rig_prefill(g, LLM42_SCHEDULE_FAST, i, s->other, OTHER_CONTEXT, g->desc.fixed_rows, NULL);
    return ok;
}

// schedules: those that the engine has, 0: all.
static bool subject_open(rig *g, subject *s, const llm42_model *model, int M, int page_size, int prompt, bool fp32,
                         unsigned schedules) {
    *s = (subject){.fp32 = fp32};
    int left = model->config.context - SUBJECT;
    s->prompt = left < prompt ? left : prompt;
    int longest = s->prompt + SUBJECT > OTHER_CONTEXT ? s->prompt + SUBJECT : OTHER_CONTEXT;
    llm42_backend_desc desc = TEST_LIST(.model = model, .max_rows = M, .max_context = longest, .page_size = page_size,
                                        .max_running = 1 + OTHERS, .schedules = schedules,
                                        .numerics.logits_fp32 = fp32);
    if (!rig_open(g, tested, desc)) return false;
    s->ids = random_ids(s->prompt + SUBJECT, g->vocab, 5);
    s->other = random_ids(OTHER_CONTEXT, g->vocab, 6);
    s->logits = new_floats(3 * (size_t)SUBJECT * (size_t)g->vocab);
    s->got = new_floats((size_t)M * (size_t)g->vocab);
    s->row = calloc((size_t)M, sizeof *s->row);
    s->outs = calloc((size_t)M, sizeof *s->outs);
    assert(s->row && s->outs);
    g->seq[0].sampling = (llm42_sampling){.temperature = 0.8f, .top_p = 0.9f, .seed = 9};
    return fill_others(g, s);
}

static void subject_close(rig *g, subject *s) {
    TEST_FREE(s->ids, s->other, s->logits, s->got, s->row, s->outs);
    rig_close(g);
}

// Row `at` of the subject (-1: each time another) at random places in passes of all sizes: in how many its bits differ.
static int differing_sizes(rig *g, subject *s, llm42_schedule schedule, int at, int M, int step, int *tried) {
    int differing = 0;
    *tried = 0;
    for (int rows = 1; rows <= M; rows += rows < 20 ? 1 : step, ++*tried) {
        int before = test_random_int(&g->random, 0, rows - 1);
        int row = at >= 0 ? at : test_random_int(&g->random, 0, SUBJECT - 1);
        differing += !feed_subject(g, s, schedule, row, 1, before, rows - 1 - before, false);
    }
    return differing;
}

// The whole subject, cut into passes of random sizes (or of one row) with random company.
static bool feed_in_pieces(rig *g, subject *s, llm42_schedule schedule, int M, bool by_one) {
    bool same = true;
    for (int from = 0; from < SUBJECT;) {
        int count = by_one ? 1 : test_random_int(&g->random, 1, SUBJECT - from), room = M - count;
        int before = test_random_int(&g->random, 0, room), after = test_random_int(&g->random, 0, room - before);
        same = feed_subject(g, s, schedule, from, count, before, after, false) && same;
        from += count;
    }
    return same;
}

static bool feed_prompt(rig *g, const subject *s, llm42_schedule schedule) {
    return rig_prefill(g, schedule, 0, s->ids, s->prompt, g->desc.max_rows, NULL);
}

static void check_schedule(rig *g, subject *s, llm42_schedule schedule, int M, const char *name) {
    int tried, pieces = options.quick ? 3 : 12;
    if (!CHECK(feed_prompt(g, s, schedule) && feed_subject(g, s, schedule, 0, SUBJECT, 0, 0, true))) return;
    CHECK_MSG(feed_subject(g, s, schedule, 0, SUBJECT, 0, 0, false), "%s: the same pass again gives other bits", name);
    int differing = differing_sizes(g, s, schedule, -1, M, options.quick ? M / 16 + 1 : 1, &tried);
    CHECK_MSG(!differing, "%s: a row's bits differ in %d of %d passes of 1 to %d rows", name, differing, tried, M);
    CHECK_MSG(feed_subject(g, s, schedule, 0, SUBJECT, M - SUBJECT, 0, false),
              "%s: bits differ at the end of a full pass", name);
    CHECK_MSG(feed_subject(g, s, schedule, 0, SUBJECT, 0, M - SUBJECT, false),
              "%s: bits differ at the start of a full pass", name);
    for (int i = 0; i < pieces; i++)
        CHECK_MSG(feed_in_pieces(g, s, schedule, M, i == 0), "%s: bits differ when the prompt is cut into %s", name,
                  i ? "pieces" : "single rows");
    for (int i = 0; i < SUBJECT; i++)  // what fast passes left is overwritten
        rig_feed(g, LLM42_SCHEDULE_FAST, 0, s->ids, s->prompt + i, 1, NULL, NULL);
    CHECK_MSG(feed_subject(g, s, schedule, 0, SUBJECT, 3, 5, false), "%s: bits hold a trace of fast passes", name);
    rig_shuffle(g);
    CHECK_MSG(fill_others(g, s) && feed_prompt(g, s, schedule) &&
                  feed_subject(g, s, schedule, 0, SUBJECT, BEFORE, AFTER, false),
              "%s: bits differ on other pages", name);
}

// Again with another page size: the references are kept.
static void check_page_size(subject *s, const llm42_model *model, int M, int page_size, const char *path) {
    rig g;
    subject other;
    if (subject_open(&g, &other, model, M, page_size, PROMPT, s->fp32, 0)) {
        memcpy(other.out, s->out, sizeof s->out);
        memcpy(other.logits, s->logits, sizeof(float) * 3 * SUBJECT * (size_t)g.vocab);
        for (llm42_schedule schedule = LLM42_SCHEDULE_FIXED; schedule <= LLM42_SCHEDULE_INVARIANT; schedule++)
            CHECK_MSG(feed_prompt(&g, &other, schedule) && feed_subject(&g, &other, schedule, 0, SUBJECT, 4, 4, false),
                      "%s, %s: bits differ in pages of %d", path, llm42_schedule_name(schedule), page_size);
    }
    subject_close(&g, &other);
}

static void check_bits(const char *path, int M, bool fp32) {
    llm42_model *model = load_model(path, false);
    rig g = {0};
    subject s = {0};
    double begin = test_seconds();
    if (!model) return;
    if (subject_open(&g, &s, model, M, 16, PROMPT, fp32, 0)) {
        for (llm42_schedule schedule = LLM42_SCHEDULE_FIXED; schedule <= LLM42_SCHEDULE_INVARIANT; schedule++) {
            char name[640];
            snprintf(name, sizeof name, "%.500s%s, %s", path, fp32 ? ", fp32 logits" : "",
                     llm42_schedule_name(schedule));
            check_schedule(&g, &s, schedule, M, name);
        }
        check_page_size(&s, model, M, 4, path);
        if (!options.quick) check_page_size(&s, model, M, 64, path);
    }
    subject_close(&g, &s);
    printf("  %-40s FIXED and INVARIANT bits, M = %d: %.1f s\n", path, M, test_seconds() - begin);
    fflush(stdout);
    llm42_model_free(model);
}

// The control, on a model big enough: a CPU's FAST rows change their bits with the size of the pass, by products where
// the context is short, by attention where it is long. The same pass repeats. Returns in how many passes they changed.
static int fast_drift(const llm42_model *model, const char *path, int M, int prompt, int *all) {
    rig g = {0};
    subject s = {0};
    int tried, differing = 0;
    if (subject_open(&g, &s, model, M, 16, prompt, true, 0)) {  // rounding to bf16 would hide the drift of many a row
        CHECK(feed_prompt(&g, &s, LLM42_SCHEDULE_FAST) &&
              feed_subject(&g, &s, LLM42_SCHEDULE_FAST, 0, SUBJECT, 0, 0, true));
        CHECK_MSG(feed_subject(&g, &s, LLM42_SCHEDULE_FAST, 0, SUBJECT, 0, 0, false),
                  "%s, fast: the same pass again gives other bits", path);
        for (int at = 1; at < SUBJECT; at += 6, *all += tried) {
            feed_subject(&g, &s, LLM42_SCHEDULE_FAST, at, 1, 0, 0, true);
            CHECK_MSG(feed_subject(&g, &s, LLM42_SCHEDULE_FAST, at, 1, 0, 0, false),
                      "%s, fast: a decode row gives other bits again", path);
            differing += differing_sizes(&g, &s, LLM42_SCHEDULE_FAST, at, M, M / 16 + 1, &tried);
        }
    }
    subject_close(&g, &s);
    return differing;
}

static void check_fast(const char *path, int M) {
    llm42_model *model = load_model(path, false);
    int all = 0, differing = 0;
    if (!model) return;
    differing = fast_drift(model, path, M, 0, &all) + fast_drift(model, path, M, LONG_PROMPT, &all);
    CHECK_MSG(differing > 0 || is_cuda() || !strcmp(path, "synthetic:tiny"),  // which is too small to drift
              "%s, fast: a row's bits never changed with the batch: no drift to verify", path);
    printf("  %-40s FAST bits differ from batch 1 in %d of %d passes of other sizes\n", path, differing, all);
    note(path, "fast_passes_differing_share", (double)differing / all);
    llm42_model_free(model);
}

// A GPU's FAST decode rows beside INVARIANT passes alone, which verify them. Our own kernels have one order for all
// products, and attention has one. So FAST and INVARIANT rows have the same bits, in passes of any number of rows. The
// control: rows of an engine with leaves have other bits than those of the first, which has none.
static void check_canonical(const char *path, int M) {
    const llm42_cuda_desc before = cuda_desc;
    const int64_t leaves = options.leaves;
    llm42_model *model = load_model(path, false);
    const size_t count = model ? (size_t)SUBJECT * (size_t)model->config.vocab : 0;
    float *kept = new_floats(count);  // what FAST rows must give: the INVARIANT ones of the first engine
    for (int control = 0; model && control < 2; control++) {
        rig g = {0};
        subject s = {0};
        int tried, differing = 0, all = 0;
        cuda_desc.no_cublas = true;
        cuda_desc.fast = LLM42_CUDA_FAST_OFFERED;
        options.leaves = control ? 8 : 1;
        if (subject_open(&g, &s, model, M, 16, LONG_PROMPT, true,
                         1u << LLM42_SCHEDULE_FAST | 1u << LLM42_SCHEDULE_INVARIANT)) {
            const int of = LLM42_SCHEDULE_INVARIANT - LLM42_SCHEDULE_FAST;
            CHECK(feed_prompt(&g, &s, LLM42_SCHEDULE_INVARIANT) &&
                  feed_subject(&g, &s, LLM42_SCHEDULE_INVARIANT, 0, SUBJECT, 0, 0, true));
            if (!control) memcpy(kept, s.logits + (size_t)of * count, count * sizeof *kept);
            memcpy(s.logits, kept, count * sizeof *kept);
            memcpy(s.out[0], s.out[of], sizeof s.out[0]);
            for (int at = 1; at < SUBJECT; at += 6, all += tried)
                differing += differing_sizes(&g, &s, LLM42_SCHEDULE_FAST, at, M, M / 16 + 1, &tried);
        }
        subject_close(&g, &s);
        CHECK_MSG(all > 0 && (control ? differing > 0 : !differing),
                  "%s, %s: FAST rows have other bits than INVARIANT ones in %d of %d passes", path,
                  control ? "8 leaves beside one" : "one leaf", differing, all);
    }
    cuda_desc = before;
    options.leaves = leaves;
    free(kept);
    llm42_model_free(model);
}

// A row with KEEP_KV computes, but what follows does not see it; without the flag it does.
static void check_keep_kv(const char *path) {
    enum { N = 20 };
    llm42_model *model = load_model(path, false);
    rig g = {0};
    if (!model || !rig_open(&g, tested, (llm42_backend_desc){.model = model, .max_rows = 64, .max_context = 32}))
        return;
    int32_t *ids = random_ids(N + 1, g.vocab, 8), wrong = (ids[N - 1] + 1) % g.vocab;
    size_t V = (size_t)g.vocab;
    float *logits = new_floats(3 * V);
    llm42_output out[2];
    rig_prefill(&g, LLM42_SCHEDULE_FIXED, 0, ids, N, N, NULL);
    for (int i = 0; i < 3; i++) {  // before; behind a wrong token that keeps the KV; behind one that does not
        llm42_row row = {0, N - 1, wrong, i == 1 ? LLM42_ROW_KEEP_KV : 0};
        llm42_pass pass = rig_pass(&g, LLM42_SCHEDULE_FIXED, &row, 1, out, NULL);
        if (i) rig_run(&g, &pass);
        rig_feed(&g, LLM42_SCHEDULE_FIXED, 0, ids, N, 1, out, logits + (size_t)i * V);
    }
    CHECK_MSG(!memcmp(logits, logits + V, V * sizeof *logits), "%s: a row with KEEP_KV changed the cache", path);
    CHECK_MSG(memcmp(logits, logits + 2 * V, V * sizeof *logits), "%s: a row without KEEP_KV left the cache as it was",
              path);
    TEST_FREE(ids, logits);
    rig_close(&g);
    llm42_model_free(model);
}

// What a token may see through L layers of window w: L (w - 1) positions back. Beyond it the bits cannot depend on it.
static void check_sliding_window(const char *path) {
    enum { N = 150 };
    llm42_model *model = load_model(path, false);
    rig g = {0};
    if (!model ||
        !rig_open(&g, tested, (llm42_backend_desc){.model = model, .max_rows = 64, .max_context = N, .page_size = 8}))
        return;
    int reach = model->config.layers * (model->config.sliding_window - 1);
    CHECK_MSG(model->config.sliding_window > 0 && reach < N - 10, "%s has no short sliding window", path);
    int32_t *ids = random_ids(N, g.vocab, 12);
    size_t V = (size_t)g.vocab;
    float *a = new_floats(N * V), *b = new_floats(N * V);
    for (int schedule = LLM42_SCHEDULE_FAST; schedule <= LLM42_SCHEDULE_INVARIANT; schedule++) {
        rig_prefill(&g, (llm42_schedule)schedule, 0, ids, N, 64, a);
        ids[0] = (ids[0] + 1) % g.vocab;
        rig_prefill(&g, (llm42_schedule)schedule, 0, ids, N, 64, b);
        size_t beyond = (size_t)(reach + 1) * V, left = (N * V - beyond) * sizeof *a;
        CHECK_MSG(!memcmp(a + beyond, b + beyond, left), "%s, %s: a token is seen from beyond the windows", path,
                  llm42_schedule_name((llm42_schedule)schedule));
        size_t within = (size_t)(model->config.sliding_window - 1) * V;
        CHECK_MSG(memcmp(a + within, b + within, V * sizeof *a), "%s, %s: a token is not seen within the window", path,
                  llm42_schedule_name((llm42_schedule)schedule));
    }
    TEST_FREE(ids, a, b);
    rig_close(&g);
    llm42_model_free(model);
}

// The longest context, in full passes and in passes of random sizes.
static void check_long(const char *path, int M, int longest) {
    llm42_model *model = load_model(path, false);
    rig g = {0};
    if (!model) return;
    int n = model->config.context < longest ? model->config.context : longest;
    double begin = test_seconds();
    if (!rig_open(&g, tested, (llm42_backend_desc){.model = model, .max_rows = M, .max_context = n, .max_running = 2}))
        return;
    int32_t *ids = random_ids(n, g.vocab, 14);
    size_t V = (size_t)g.vocab;
    float *a = new_floats(V), *b = new_floats(V);
    for (int schedule = LLM42_SCHEDULE_FIXED; schedule <= LLM42_SCHEDULE_INVARIANT; schedule++) {
        rig_prefill(&g, (llm42_schedule)schedule, 0, ids, n - 1, M, NULL);
        rig_feed(&g, (llm42_schedule)schedule, 0, ids, n - 1, 1, NULL, a);
        for (int i = 0; i < n - 1;) {
            int count = test_random_int(&g.random, 1, M);
            if (count > n - 1 - i) count = n - 1 - i;
            rig_feed(&g, (llm42_schedule)schedule, 1, ids, i, count, NULL, NULL);
            i += count;
        }
        rig_feed(&g, (llm42_schedule)schedule, 1, ids, n - 1, 1, NULL, b);
        CHECK_MSG(!memcmp(a, b, V * sizeof *a), "%s, %s: the bits of token %d depend on how the %d before it were cut",
                  path, llm42_schedule_name((llm42_schedule)schedule), n, n - 1);
    }
    printf("  %-40s context of %d: %.1f s\n", path, n, test_seconds() - begin);
    TEST_FREE(ids, a, b);
    rig_close(&g);
    llm42_model_free(model);
}

// Tokens drawn on the device are those that llm42_sample draws from the same logits.
enum { DRAWS = 136, FEW_DRAWS = 64 };  // with fewer draws than multiprocessors, each has a cluster

typedef struct draws {
    int greedy, greedy_same, sampled, sampled_same;
    double logprob;
} draws;

static void check_draws(rig *g, uint64_t seed, llm42_sampling p, int rows, float *logits, draws *d) {
    llm42_row row[DRAWS];
    llm42_output out[DRAWS];
    for (int i = 0; i < rows; i++) {
        row[i] = (llm42_row){i, 0, test_random_int(&seed, 0, g->vocab - 1), LLM42_ROW_SAMPLE};
        g->seq[i].sampling = p;
        g->seq[i].sampling.seed = test_random(&seed) | 1;
    }
    llm42_pass pass = rig_pass(g, LLM42_SCHEDULE_FAST, row, rows, out, logits);
    if (!rig_run(g, &pass)) return;
    for (int i = 0; i < rows; i++) {
        const float *own = logits + (size_t)i * (size_t)g->vocab;
        llm42_output want = llm42_sample(own, g->vocab, &g->seq[i].sampling, 0);
        bool same = want.token == out[i].token, greedy = p.temperature == 0;
        *(greedy ? &d->greedy : &d->sampled) += 1;
        *(greedy ? &d->greedy_same : &d->sampled_same) += same;
        if (!finite_bits(out[i].logprob)) d->logprob = INFINITY;
        else d->logprob = fmax(d->logprob, fabs((double)out[i].logprob - llm42_logprob(own, g->vocab, out[i].token)));
    }
}

// The draws of a row are the same, to the bit, with few rows and with many: those have a cluster each, these a block.
static void check_draw_builds(rig *g, const llm42_sampling *filters, int count) {
    llm42_row row[DRAWS];
    llm42_output many[DRAWS], few[DRAWS];
    memset(many, 0, sizeof many), memset(few, 0, sizeof few);
    for (int i = 0; i < DRAWS; i++) {
        row[i] = (llm42_row){i, 0, i % g->vocab, LLM42_ROW_SAMPLE};
        g->seq[i].sampling = filters[i % count];
        g->seq[i].sampling.seed = (uint64_t)i + 1;
    }
    llm42_pass pass = rig_pass(g, LLM42_SCHEDULE_INVARIANT, row, DRAWS, many, NULL);
    if (!rig_run(g, &pass)) return;
    pass = rig_pass(g, LLM42_SCHEDULE_INVARIANT, row, FEW_DRAWS, few, NULL);
    if (!rig_run(g, &pass)) return;
    CHECK_MSG(!memcmp(many, few, FEW_DRAWS * sizeof *few), "draws of %d rows and of %d differ", FEW_DRAWS, DRAWS);
}

static void check_sampling(const char *path, bool ties) {
    static const llm42_sampling filters[] = TEST_LIST(
        {0}, {.temperature = 1}, {.temperature = 0.7f, .top_k = 40}, {.temperature = 1, .top_p = 0.9f},
        {.temperature = 1.5f, .min_p = 0.05f}, {.temperature = 0.8f, .top_k = 20, .top_p = 0.8f, .min_p = 0.02f},
        {.temperature = 1.2f, .top_k = 1}, {.temperature = 1, .top_p = 1e-6f}, {.temperature = 1e-4f},
        {.temperature = 2, .top_k = 1 << 20, .top_p = 1, .min_p = 1e-6f},
        {.temperature = 1, .top_p = 0.999f, .min_p = 0.3f});
    enum { FILTERS = sizeof filters / sizeof *filters };
    llm42_model *model = load_model(path, false);
    rig g = {0};
    draws d = {0};
    if (!model) return;
    llm42_model copy = *model;
    uint16_t *head = NULL;
    if (ties) {  // each odd token's row of the head is the even one's before it: the lower id must win
        size_t k = (size_t)model->head.k, n = (size_t)model->head.n;
        head = malloc(2 * n * k);
        assert(head && model->head.type == LLM42_DTYPE_BF16);
        memcpy(head, model->head.data, 2 * n * k);
        for (size_t i = 0; i + 1 < n; i += 2) memcpy(head + (i + 1) * k, head + i * k, 2 * k);
        copy.head.data = head;
        copy.config.tied = false;
    }
    if (rig_open(&g, tested,
                 (llm42_backend_desc){.model = &copy, .max_rows = DRAWS, .max_context = 16, .max_running = DRAWS})) {
        float *logits = new_floats((size_t)DRAWS * (size_t)g.vocab);
        for (int f = 0; f < FILTERS; f++)
            for (int i = 0; i < (options.quick ? 4 : 20); i++)
                check_draws(&g, 100 + (uint64_t)(f * 64 + i), filters[f], i % 2 ? DRAWS : FEW_DRAWS, logits, &d);
        check_draw_builds(&g, filters, FILTERS);
        free(logits);
    }
    double share = d.sampled ? (double)d.sampled_same / d.sampled : 0;
    CHECK_INT(d.greedy_same, d.greedy);
    CHECK_MSG(d.greedy > 0 && d.sampled_same == d.sampled, "%s: %d of %d sampled tokens are not llm42_sample's", path,
              d.sampled - d.sampled_same, d.sampled);
    CHECK_MSG(d.logprob <= 1e-3, "%s: a log-probability is off by %g", path, d.logprob);
    printf("  %-40s %sgreedy %d of %d, sampled %d of %d (%.2f%%) as on the CPU, log-probabilities within %.1e\n", path,
           ties ? "with ties: " : "", d.greedy_same, d.greedy, d.sampled_same, d.sampled, 100 * share, d.logprob);
    note(path, "sampled_equal_share", share);
    free(head);
    rig_close(&g);
    llm42_model_free(model);
}

// Heads as few models have them: twelve, five or three to a kv head, padded sizes, a window over several units.
static void check_rare_heads(void) {
    static const test_shape shapes[] = {
        {"mistral", 64, 96, 2, 12, 1, 80, 96, 0, false, "BF16", "\"sliding_window\": 700, ", 1536},
        {"llama", 64, 64, 2, 5, 1, 64, 96, 0, true, "BF16", "\"rope_theta\": 10000.0, ", 512},
        {"llama", 64, 64, 2, 6, 2, 96, 64, 0, true, "BF16", "\"rope_theta\": 10000.0, ", 512},
    };
    char path[100];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/rare_heads_%d", test_scratch(), i);
        test_model_folder(path, &shapes[i]);
        check_bits(path, 64, false);
        check_long(path, 64, 1536);
    }
}

// Rows that stand alone in their sequences, behind long and short ones: each has the bits of a row of a prompt, alone
// and in any company, under INVARIANT. How many rows share the device, and how many blocks a row, must not show. The
// control: rows that see another first token have other bits.
static void check_lone(int at, int heads, int kv_heads, int head_dim) {
    enum { SEQS = 24, CONTEXT = 4352, CHUNK = 256 };
    static const int lengths[] = {4100, 2049, 1025, 700, 513, 130, 33, 9}, company[] = {1, 2, 4, 9, 12, 16, 17, SEQS};
    enum { COMPANIES = sizeof company / sizeof *company };
    const test_shape shape = {
        "llama", 64, 64, 2, heads, kv_heads, head_dim, 96, 0, true, "BF16", "\"rope_theta\": 10000.0, ", CONTEXT};
    char path[100];
    snprintf(path, sizeof path, "%s/lone_%d", test_scratch(), at);
    test_model_folder(path, &shape);
    llm42_model *model = load_model(path, false);
    rig g = {0};
    double begin = test_seconds();
    int compared[2] = {0, 0}, differing[2] = {0, 0};  // [1]: with another first token
    if (!model ||
        !rig_open(&g, tested,
                  (llm42_backend_desc){.model = model, .max_rows = CHUNK, .max_context = CONTEXT, .max_running = SEQS}))
        return;
    size_t V = (size_t)g.vocab;
    float *want = new_floats(SEQS * V), *piece = new_floats(8 * V), *got = new_floats(SEQS * V);
    llm42_row last[SEQS], other[SEQS];
    llm42_output out[SEQS];
    for (int s = 0; s < SEQS; s++) {
        const int n = lengths[s % 8] + s / 8;
        int32_t *ids = random_ids(n, g.vocab, 30 + (uint64_t)s);
        rig_prefill(&g, LLM42_SCHEDULE_INVARIANT, s, ids, n - 8, CHUNK, NULL);
        rig_feed(&g, LLM42_SCHEDULE_INVARIANT, s, ids, n - 8, 8, NULL, piece);
        memcpy(want + (size_t)s * V, piece + 7 * V, V * sizeof *want);
        last[s] = (llm42_row){s, n - 1, ids[n - 1], LLM42_ROW_SAMPLE};
        other[s] = (llm42_row){s, 0, (ids[0] + 1) % g.vocab, 0};
        free(ids);
    }
    for (int c = 0; c <= COMPANIES; c++) {
        const bool control = c == COMPANIES;
        llm42_pass change = rig_pass(&g, LLM42_SCHEDULE_INVARIANT, other, SEQS, out, NULL);
        if (control) rig_run(&g, &change);
        for (int first = 0, rows; first < SEQS; first += rows) {
            rows = control || company[c] > SEQS - first ? SEQS - first : company[c];
            llm42_pass pass = rig_pass(&g, LLM42_SCHEDULE_INVARIANT, last + first, rows, out, got);
            if (!rig_run(&g, &pass)) continue;
            for (int i = 0; i < rows; i++, compared[control]++)
                differing[control] += memcmp(got + (size_t)i * V, want + (size_t)(first + i) * V, V * sizeof *got) != 0;
        }
    }
    CHECK_MSG(!differing[0], "%s: %d of %d rows alone have other bits than as rows of a prompt", path, differing[0],
              compared[0]);
    CHECK_MSG(compared[0] == COMPANIES * SEQS, "%s: %d rows compared", path, compared[0]);
    CHECK_MSG(2 * differing[1] > SEQS, "%s: the control: another first token shows in %d of %d rows", path,
              differing[1], SEQS);
    printf(
        "  %2d heads, %2d kv heads of %-15d rows alone: %d compared; another first token shows in %d of %d: %.1f s\n",
        heads, kv_heads, head_dim, compared[0], differing[1], SEQS, test_seconds() - begin);
    TEST_FREE(want, piece, got);
    rig_close(&g);
    llm42_model_free(model);
}

// One and several units, shared by blocks and not, rings of each length, more than eight heads to a kv head.
static void check_lone_rows(void) {
    static const int shapes[][3] = {{32, 8, 128}, {64, 8, 128}, {12, 1, 64}, {16, 16, 32}};
    for (int i = 0; i < 4; i++) check_lone(i, shapes[i][0], shapes[i][1], shapes[i][2]);
}

// The longest context that models are served with.
static void check_longest(void) {
    static const test_shape shape = {"llama", 64, 64, 2, 4, 1, 128, 96, 0, true, "BF16", "\"rope_theta\": 500000.0, ",
                                     131072};
    const char *path = test_file("longest");
    test_model_folder(path, &shape);
    check_long(path, 2048, is_cuda() && !options.quick ? 131072 : 2048);
}

void part_passes(void) {
    const char *big = main_model();
    int M = (int)(options.window * options.group);
    char path[900];
    check_bits("synthetic:tiny", 64, false);
    check_bits("synthetic:tiny", 64, true);
    check_bits(big, M, false);
    static const char *const archs[] = {"llama3", "mistral", "qwen2", "qwen3", "qwen3_moe", "qwen2_layer_types"};
    for (int i = 0; i < 6; i++) {
        snprintf(path, sizeof path, "tests/arch/%s", archs[i]);
        check_bits(path, 64, false);
        if (i == 1) check_sliding_window(path);
    }
    check_fast(big, M);
    if (is_cuda()) check_canonical(big, M);
    check_rare_heads();
    check_keep_kv("synthetic:tiny");
    check_long("synthetic:tiny", 64, 2048);
    check_long(big, M, options.quick ? 2048 : 4096);
    check_lone_rows();
    check_longest();
    check_sampling("synthetic:tiny", true);
    check_sampling(big, false);
}
