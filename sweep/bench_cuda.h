// bench_cuda.h: a part of bench.c, on which it stands: what is measured of a GPU. Ceilings of the device; passes by
// schedule, rows and context, as shares of them; a pass's stages; whole workloads by mode, one deterministic request
// among eleven, and arrivals over time. Workloads run as build/sweep's cells do (serve.h). Times are wall times around
// calls of the backend.
#ifndef BENCH_CUDA_H
#define BENCH_CUDA_H

#include "sweep/collect.h"
#include "sweep/serve.h"

enum { CUDA_ROWS = 2048, CUDA_POOL = 262144 };

// >>start --------------------------------------------------------------------------------------------------------
static bool late(const bench *b) { return b->set.seconds > 0 && seconds() - b->begun >= b->set.seconds; }

static void cuda_ceilings(bench *b) {
    llm42_cuda_ceilings c;
    llm42_error error = {0};
    progress("ceilings");
    args_check(llm42_cuda_measure_ceilings(&c, b->cuda_desc.device, &error), &error);
    b->copy_gb_per_s = 1e-9 * c.copy_bytes_per_s, b->read_gb_per_s = 1e-9 * c.read_bytes_per_s;
    b->matmul_gflop_per_s = 1e-9 * c.matmul_flop_per_s;
    progress(NULL);
}

static void cuda_ceilings_report(bench *b) {
    figures copy = figures_of(b, "ceilings", "memory_copy"), read = figures_of(b, "ceilings", "memory_read");
    figures matmul = figures_of(b, "ceilings", "matmul_bf16");
    copy.gb_per_s = b->copy_gb_per_s, read.gb_per_s = b->read_gb_per_s, matmul.gflop_per_s = b->matmul_gflop_per_s;
    printf("\nceilings: memory copy %.0f GB/s, memory read [A] %.0f GB/s, cuBLAS bf16 [B] %.1f TFLOP/s\n",
           copy.gb_per_s, read.gb_per_s, 1e-3 * matmul.gflop_per_s);
    figures_write(b, &copy), figures_write(b, &read), figures_write(b, &matmul);
}

// Opens the result once an engine or backend has said what the device is. The file has its own name from the start:
// a run that is ended at a time limit leaves what it has.
static void cuda_begin(bench *b) {
    if (b->described) {  // a later engine's plans, where they are not those of one before
        for (const char *line = b->manifest.text + b->told; b->tsv && *line; line += strcspn(line, "\n") + 1)
            fprintf(b->tsv, "# %.*s\n", (int)strcspn(line, "\n"), line);
        b->told = b->manifest.size;
        return;
    }
    b->described = true;
    b->told = b->manifest.size;
    describe(b, stdout, "");
    if (b->set.out) {
        b->tsv = fopen(b->set.out, "w");
        if (!b->tsv) args_fail(1, "%s: cannot write: %s", b->set.out, strerror(errno));
        describe(b, b->tsv, "# ");
        fprintf(b->tsv,
                "# path: %s; suite: %s; replay passes in the class of small fast passes (match): %s; fast: %s\n",
                b->set.model, b->set.suite, b->set.match ? "on" : "off", b->set.offered ? "offered" : "fastest");
        fprintf(b->tsv,
                "# floor_ms: weights and KV read at the read ceiling; memory_share_pct, copy_share_pct: that\n"
                "#   at the read and the copy ceiling, of ms; matmul_share_pct: of the cuBLAS ceiling\n"
                "# workloads: policies %s, %s, chunked prefill %s; max_running %d; token_budget %d; a DVR\n"
                "#   case that names a policy has that one; in _overlap fast passes go on beside replay passes\n"
                "# relative_pct, nondet_itl_relative_pct: to nondeterministic of this run\n",
                b->set.verify, b->set.prefill, b->set.chunked, (int)b->set.max_running, (int)b->set.token_budget);
        tsv_columns(b);
    }
    cuda_ceilings_report(b);
}

// >>passes -------------------------------------------------------------------------------------------------------
// Bytes of KV that the bed's pass reads: every sequence's positions, once.
static double bed_kv_bytes(const bench *b, const bed *d) {
    double tokens = 0;
    for (int i = 0; i < d->rows; i++)
        if (i + 1 == d->rows || d->row[i + 1].seq != d->row[i].seq) tokens += d->row[i].position + 1;
    return tokens * (double)llm42_kv_token_bytes(&b->model->config, b->set.compute);
}

// A bed whose sequences have up to `context` tokens, cut to the model's context.
static void cuda_bed(bench *b, bed *d, int context, int pool, int fixed_rows, unsigned schedules, bool overlap) {
    int limit = b->model->config.context;
    if (b->set.quick && pool > 16384) pool = 16384;
    if (context > limit) context = limit;
    if (context > pool) context = pool;
    bed_plan plan = {.max_rows = CUDA_ROWS,
                     .context = context,
                     .tables = pool / context,
                     .scattered = true,
                     .fill_rows = CUDA_ROWS,
                     .fixed_rows = fixed_rows,
                     .schedules = schedules | FAST_BIT,
                     .overlap = overlap};
    progress("opening the backend");
    bed_open(d, b, plan);
    progress(NULL);
    cuda_begin(b);
}

static void cuda_pass(const bench *b, bed *d, llm42_schedule schedule, const char *kind, int context) {
    if (late(b)) return;
    char what[48];
    snprintf(what, sizeof what, "%s_%s", llm42_schedule_name(schedule), kind);
    progress("passes: %s, %d rows, context %d", what, d->rows, context);
    int repeats = b->set.repeats > CUDA_REPEATS ? (int)b->set.repeats : CUDA_REPEATS;
    double time = bed_time(d, schedule, repeats);
    double bytes = pass_bytes(b->model, d->rows, d->sampled) + bed_kv_bytes(b, d);
    figures f = figures_of(b, "passes", what);
    f.rows = d->rows, f.context_tokens = context, f.ms = 1e3 * time, f.tokens_per_s = d->rows / time;
    f.gb_per_s = 1e-9 * bytes / time, f.floor_ms = 1e-6 * bytes / b->read_gb_per_s;
    f.memory_share_pct = 100 * f.gb_per_s / b->read_gb_per_s, f.copy_share_pct = 100 * f.gb_per_s / b->copy_gb_per_s;
    f.gflop_per_s = 1e-9 * pass_flop(b->model, d->rows, d->sampled, d->keys) / time;
    f.matmul_share_pct = 100 * f.gflop_per_s / b->matmul_gflop_per_s;
    progress(NULL);
    printf("%-18s %5d %8d %9.3f %9.0f %8.3f %8.1f %8.1f %8.1f %8.1f\n", what, d->rows, context, f.ms, f.tokens_per_s,
           f.floor_ms, f.memory_share_pct, f.copy_share_pct, 1e-3 * f.gflop_per_s, f.matmul_share_pct);
    fflush(stdout);
    figures_write(b, &f);
}

// Decode at a batch of 1 to max_running; every second batch under INVARIANT.
static void cuda_decode_passes(bench *b, bed *d, int context, int step) {
    if (context > b->model->config.context || context > d->context) return;
    bed_tables(d, context);
    for (int rows = 1, i = 0; rows <= b->set.max_running; rows *= step, i++) {
        if (rows > d->tables) break;  // sharing them would leave KV in the caches
        bed_decode(d, rows, context);
        cuda_pass(b, d, LLM42_FAST, "decode", context);
        if (step == 2 && i % 2) continue;
        cuda_pass(b, d, LLM42_INVARIANT, "decode", context);
    }
}

static void cuda_passes(bench *b) {
    bed *d = take(sizeof *d);
    int prompt = b->model->config.context < CUDA_ROWS ? b->model->config.context : CUDA_ROWS;
    cuda_bed(b, d, 4096, CUDA_POOL, 0, INVARIANT_BIT, false);
    static const char *const head[2][10] = {
        {"", "", "context", "", "", "floor", "floor at", "at copy", "", "cuBLAS"},
        {"passes", "rows", "tokens", "ms", "tokens/s", "ms", "[A] %", "%", "TFLOP/s", "[B] %"}};
    static const int width[10] = {-18, 5, 8, 9, 9, 8, 8, 8, 8, 8};
    printf("\n");
    head_print(&head[0][0], width, 10);
    head_print(&head[1][0], width, 10);
    cuda_decode_passes(b, d, 512, 2);
    cuda_decode_passes(b, d, 4096, 8);
    bed_tables(d, d->context);
    for (int rows = prompt; rows >= 256 && rows > prompt / 5; rows /= 4) {
        bed_prompt(d, rows);
        cuda_pass(b, d, LLM42_FAST, "prompt", rows);
        cuda_pass(b, d, LLM42_INVARIANT, "prompt", rows);
    }
    bed_close(d);
    int context = prompt < 512 ? prompt : 512;
    for (int M = 128; M <= (b->set.quick ? 256 : 1024) && !late(b); M *= 2) {
        cuda_bed(b, d, CUDA_ROWS, 32768, M, FIXED_BIT, false);
        bed_tables(d, context);
        bed_windows(d, M, (int)b->set.window, context);
        cuda_pass(b, d, LLM42_FIXED, "replay", context);
        bed_tables(d, d->context);
        bed_prompt(d, M < prompt ? M : prompt);
        if (d->rows == M) cuda_pass(b, d, LLM42_FIXED, "prompt", M);
        bed_close(d);
    }
    printf("decode: a row a sequence, all sampled; replay: windows of %d, all sampled; prompt: the first rows of one\n"
           "prompt, the last sampled. floor: weights and KV read once at [A]; copy: the same at the copy ceiling.\n",
           (int)b->set.window);
    free(d);
}

// >>stages -------------------------------------------------------------------------------------------------------
static void cuda_stages_of(const bench *b, bed *d, llm42_schedule schedule, const char *name) {
    if (late(b)) return;
    llm42_cuda_stage stage[LLM42_CUDA_STAGES];
    llm42_error error = {0};
    llm42_pass pass = {
        .schedule = schedule, .rows = d->rows, .shape = d->rows, .row = d->row, .seq = d->seq, .out = d->out};
    int count = 0;
    double all = 0;
    progress("stages: %s, %d rows", name, d->rows);
    args_check(llm42_cuda_stages(d->state, &pass, CUDA_REPEATS, stage, &count, &error), &error);
    progress(NULL);
    for (int i = 0; i < count; i++) all += stage[i].ms;
    printf("\n%-22s %6s %9s %8s %9s\n", name, "rows", "ms", "% time", "launches");
    for (int i = 0; i < count; i++) {
        char what[48];
        snprintf(what, sizeof what, "%.20s:%.26s", name, stage[i].name);
        figures f = figures_of(b, "stages", what);
        f.rows = d->rows, f.ms = stage[i].ms, f.launches = stage[i].launches, f.relative_pct = 100 * stage[i].ms / all;
        printf("%-22s %6d %9.4f %8.1f %9d\n", stage[i].name, d->rows, f.ms, f.relative_pct, stage[i].launches);
        figures_write(b, &f);
    }
    printf("%-22s %6d %9.4f\n", "sum", d->rows, all);
}

static void cuda_stages(bench *b) {
    bed *d = take(sizeof *d);
    int limit = b->model->config.context, context = limit < 512 ? limit : 512;
    cuda_bed(b, d, CUDA_ROWS, 131072, 0, 0, false);
    bed_tables(d, context);
    static const int batch[] = {1, 16, 64, 256};
    for (int i = 0; i < 4 && batch[i] <= b->set.max_running && batch[i] <= d->tables; i++) {
        bed_decode(d, batch[i], context);
        cuda_stages_of(b, d, LLM42_FAST, "decode");
    }
    bed_tables(d, d->context);
    bed_prompt(d, d->context < CUDA_ROWS ? d->context : CUDA_ROWS);
    cuda_stages_of(b, d, LLM42_FAST, "prompt");
    bed_close(d);
    for (int M = 256; M <= (b->set.quick ? 256 : 512) && !late(b); M *= 2) {
        cuda_bed(b, d, CUDA_ROWS, 32768, M, FIXED_BIT, false);
        bed_tables(d, context);
        bed_windows(d, M, (int)b->set.window, context);
        cuda_stages_of(b, d, LLM42_FIXED, "replay");
        bed_close(d);
    }
    free(d);
}

// >>workloads ----------------------------------------------------------------------------------------------------
typedef struct cuda_case {
    const char *name;
    llm42_mode mode;
    double ratio;
    bool overlap;
    llm42_verify verify;  // 0: as --verify says
} cuda_case;

// The paper's policy is eager; those that wait fill their replay passes. The cases that matter most come first: time
// may run out.
static const cuda_case cuda_offline[] = {{"nondeterministic", LLM42_NONDETERMINISTIC, 0, false, 0},
                                         {"dvr_wait", LLM42_DVR, 0.02, false, LLM42_VERIFY_WAIT},
                                         {"dvr_wait", LLM42_DVR, 0.1, false, LLM42_VERIFY_WAIT},
                                         {"dvr_wait", LLM42_DVR, 1, false, LLM42_VERIFY_WAIT},
                                         {"batch_invariant", LLM42_BATCH_INVARIANT, 0, false, 0},
                                         {"dvr_eager", LLM42_DVR, 0.1, false, LLM42_VERIFY_EAGER},
                                         {"dvr_eager", LLM42_DVR, 1, false, LLM42_VERIFY_EAGER},
                                         {"dvr_wait", LLM42_DVR, 0.5, false, LLM42_VERIFY_WAIT},
                                         {"dvr_wait_overlap", LLM42_DVR, 0.1, true, LLM42_VERIFY_WAIT},
                                         {"dvr_wait_overlap", LLM42_DVR, 1, true, LLM42_VERIFY_WAIT}};
static const cuda_case cuda_eleven[] = {  // 0.0909 marks one request of eleven
    {"nondeterministic", LLM42_NONDETERMINISTIC, 0, false, 0},
    {"dvr", LLM42_DVR, 0.0909, false, 0},
    {"dvr_overlap", LLM42_DVR, 0.0909, true, 0},
    {"batch_invariant", LLM42_BATCH_INVARIANT, 0, false, 0}};
static const cuda_case cuda_online[] = {{"nondeterministic", LLM42_NONDETERMINISTIC, 0, false, 0},
                                        {"dvr", LLM42_DVR, 0.1, false, 0},
                                        {"dvr_overlap", LLM42_DVR, 0.1, true, 0}};

static llm42_engine_desc cuda_engine(bench *b, const serve_plan *plan, const cuda_case *c) {
    const settings *s = &b->set;
    return (llm42_engine_desc){
        .model = b->model,
        .backend = b->backend,
        .backend_desc = &b->cuda_desc,
        .threads = 1,
        .mode = c->mode,
        .max_context = plan->max_context,
        .max_running = plan->max_running,
        .token_budget = (int)fmax((double)(strcmp(s->chunked, "on") ? plan->max_context : 1), (double)s->token_budget),
        .page_size = PAGE_SIZE,
        .pages = (int)serve_pages(plan, PAGE_SIZE, s->kv_gb),
        .window = (int)s->window,
        .group = (int)s->group,
        .overlap = c->overlap,
        .admission_reserve = 0.7,
        .verify = c->verify                   ? c->verify
                  : strcmp(s->verify, "wait") ? LLM42_VERIFY_EAGER
                                              : LLM42_VERIFY_WAIT,
        .prefill = !strcmp(s->prefill, "packed")    ? LLM42_PREFILL_PACKED
                   : strcmp(s->prefill, "isolated") ? LLM42_PREFILL_INVARIANT
                                                    : LLM42_PREFILL_ISOLATED,
        .chunked_prefill = strcmp(s->chunked, "on") ? LLM42_CHUNKED_OFF : LLM42_CHUNKED_ON,
        .log = args_manifest_log,
        .log_user = &b->manifest};
}

static void cuda_serve(bench *b, const serve_plan *plan, const cuda_case *c, const char *qps, uint64_t seed,
                       metrics *m) {
    llm42_error error = {0};
    serving v = {.s = plan};
    args_check(serving_open(&v, cuda_engine(b, plan, c), qps, seed, c->ratio, &error), &error);
    cuda_begin(b);
    args_check(serve(&v, NULL, &error), &error);
    args_check(serving_figures(&v, m, &error), &error);
    serving_close(&v);
}

// The workload's requests, cut to the context where they are longer.
static serve_plan cuda_plan(const bench *b, const char *spec, int64_t requests) {
    workload w;
    llm42_error error = {0};
    args_check(workload_open(&w, spec, "offline", 42, &error), &error);
    int longest = workload_max_tokens(&w), context = b->model->config.context;
    workload_close(&w);
    if (b->set.max_context && b->set.max_context < context) context = (int)b->set.max_context;
    return (serve_plan){.model = b->model,
                        .workload = spec,
                        .requests = requests,
                        .warm_up = b->set.max_running,
                        .max_context = longest > context ? context : longest,
                        .max_running = (int)b->set.max_running,
                        .clipped = longest > context,
                        .random_prompts = true};
}

static void cuda_case_report(const bench *b, const char *suite, const serve_plan *plan, const cuda_case *c,
                             const char *qps, const metrics *m, const metrics *base) {
    char what[48];
    const char *slash = strrchr(plan->workload, '/');
    snprintf(what, sizeof what, "%.28s:%s", slash ? slash + 1 : plan->workload, c->name);
    figures f = figures_of(b, suite, what);
    f.deterministic_ratio = c->ratio, f.window = (double)b->set.window, f.group = (double)b->set.group;
    f.requests = (double)plan->requests, f.qps = strcmp(qps, "offline") ? b->set.qps : NAN;
    f.duration_s = m->duration_s, f.tokens_per_s = m->output_tok_per_s;
    f.relative_pct = 100 * m->output_tok_per_s / base->output_tok_per_s;
    f.recompute_pct = m->recompute_pct, f.rollbacks = m->rollbacks, f.replay_time_pct = m->replay_busy_pct;
    f.ttft_p50_ms = 1e3 * m->ttft_p50_s, f.ttft_p99_ms = 1e3 * m->ttft_p99_s;
    f.itl_p50_ms = 1e3 * m->itl_p50_s, f.itl_p99_ms = 1e3 * m->itl_p99_s;
    f.latency_p50_ms = 1e3 * m->e2e_p50_s, f.latency_p99_ms = 1e3 * m->e2e_p99_s;
    f.nondet_itl_p99_ms = 1e3 * m->nondet_itl_p99_s;
    f.nondet_itl_relative_pct = 100 * m->nondet_itl_p99_s / base->nondet_itl_p99_s;
    progress(NULL);
    printf("%-36s %6.2f %8.1f %9.0f %6.1f %6.2f %6.1f %6.0f %8.0f %8.2f %8.2f %6.0f\n", what, c->ratio, f.duration_s,
           f.tokens_per_s, f.relative_pct, f.recompute_pct, f.replay_time_pct, f.rollbacks, f.ttft_p99_ms, f.itl_p50_ms,
           f.nondet_itl_p99_ms, f.nondet_itl_relative_pct);
    fflush(stdout);
    figures_write(b, &f);
}

// Means of what one run's luck moves; the other figures stay those of the last run.
static void metrics_add(metrics *sum, const metrics *m, int64_t seeds) {
    double tokens = sum->output_tok_per_s + m->output_tok_per_s / (double)seeds;
    double duration = sum->duration_s + m->duration_s / (double)seeds;
    double recompute = sum->recompute_pct + m->recompute_pct / (double)seeds;
    *sum = *m;
    sum->output_tok_per_s = tokens, sum->duration_s = duration, sum->recompute_pct = recompute;
}

static void cuda_cases_head(const char *suite, const serve_plan *plan, const char *qps) {
    static const char *const head[2][12] = {
        {"", "deter-", "", "output", "", "recom-", "replay", "roll-", "TTFT", "ITL ms", "ordinary", "% rel"},
        {"case", "minist.", "s", "tokens/s", "% rel", "pute %", "% time", "backs", "p99 ms", "p50", "ITL p99", ""}};
    static const int width[12] = {-36, 7, 7, 9, 6, 6, 6, 6, 8, 8, 8, 6};
    printf("\n%s: %d requests, %s, %s\n", suite, (int)plan->requests, plan->workload, qps);
    head_print(&head[0][0], width, 12);
    head_print(&head[1][0], width, 12);
}

static void cuda_cases(bench *b, const char *suite, const serve_plan *plan, const cuda_case *cases, int count,
                       const char *qps, int64_t seeds) {
    metrics base = {0};
    for (int i = 0; i < count && !late(b); i++) {
        metrics mean = {0};
        for (int64_t k = 0; k < seeds; k++) {
            metrics m = {0};
            progress("%s: %s %g, run %d of %d", suite, cases[i].name, cases[i].ratio, (int)k + 1, (int)seeds);
            cuda_serve(b, plan, &cases[i], qps, 42 + (uint64_t)k, &m);
            metrics_add(&mean, &m, seeds);
        }
        if (!i) base = mean, cuda_cases_head(suite, plan, qps);
        cuda_case_report(b, suite, plan, &cases[i], qps, &mean, &base);
    }
}

// >>run ----------------------------------------------------------------------------------------------------------
static void cuda_workloads(bench *b, const char *suite) {
    char qps[32];
    snprintf(qps, sizeof qps, "%g", b->set.qps);
    bool all = !strcmp(suite, "all");
    if (all || !strcmp(suite, "workloads")) {
        serve_plan plan = cuda_plan(b, b->set.workload, b->set.requests);
        cuda_cases(b, "workloads", &plan, cuda_offline, sizeof cuda_offline / sizeof *cuda_offline, "offline", 1);
    }
    if (all || !strcmp(suite, "one-of-eleven")) {
        serve_plan plan = cuda_plan(b, "fixed:512x256", 11);
        cuda_cases(b, "one-of-eleven", &plan, cuda_eleven, sizeof cuda_eleven / sizeof *cuda_eleven, "offline",
                   b->set.seeds);
    }
    if (all || !strcmp(suite, "online")) {
        serve_plan plan = cuda_plan(b, b->set.workload, b->set.online_requests);
        cuda_cases(b, "online", &plan, cuda_online, sizeof cuda_online / sizeof *cuda_online, qps, 1);
    }
}

static void run_cuda(bench *b) {
    const char *suite = b->set.suite;
    bool all = !strcmp(suite, "all");
    cuda_ceilings(b);
    if (all || !strcmp(suite, "passes")) cuda_passes(b);
    if (all || !strcmp(suite, "stages")) cuda_stages(b);
    cuda_workloads(b, suite);
    if (late(b)) printf("stopped after %g s (--seconds): what is missing was not begun\n", b->set.seconds);
    if (!b->tsv) return;
    if (late(b)) fprintf(b->tsv, "# stopped after %g s: what is missing was not begun\n", b->set.seconds);
    bool bad = ferror(b->tsv);
    if (fclose(b->tsv) || bad) args_fail(1, "%s: cannot write: %s", b->set.out, strerror(errno));
    printf("wrote %s\n", b->set.out);
}
#endif
