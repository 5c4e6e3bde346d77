// cuda.c: what is measured of a GPU. Ceilings of the device; passes by schedule, rows and context, as shares of them; a
// pass's stages; whole prompts; whole workloads by mode, one deterministic request among eleven, and arrivals over
// time. Workloads run as the cells of build/sweep do (serve.h). Times are wall times around calls of the backend.
#include "sweep/bench/bench.h"

#include "examples/util/llm42_cuda.h"
#include "sweep/lib/serve.h"

enum {
    POOL = 262144,       // tokens of KV that passes are timed on
    LONG = 32768,        // tokens of a long sequence
    PROMPT_REPEATS = 5,  // of a whole prompt: a long one takes seconds
};

// >>start --------------------------------------------------------------------------------------------------------
// --seconds: nothing is begun after so many.
static bool out_of_time(const bench *b) { return b->set.seconds > 0 && wall_seconds() - b->begun >= b->set.seconds; }

static void cuda_ceilings(bench *b) {
    llm42_cuda_ceilings c;
    llm42_error error = {0};
    progress("ceilings");
    args_check(llm42_cuda_measure_ceilings(&c, b->set.how.cuda.device, &error), &error);
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

static const char *given(const char *word) { return word ? word : "as the preset"; }

// Opens the result once an engine or backend has said what the device is. The file has its own name from the start:
// a run that is ended at a time limit leaves what it has.
static void cuda_begin(bench *b) {
    if (b->described) {  // a later engine's plans, where they are not those of one before
        for (const char *line = b->set.how.manifest.text + b->manifest_written; b->tsv && *line;
             line += strcspn(line, "\n") + 1)
            fprintf(b->tsv, "# %.*s\n", (int)strcspn(line, "\n"), line);
        b->manifest_written = b->set.how.manifest.size;
        return;
    }
    b->described = true;
    b->manifest_written = b->set.how.manifest.size;
    describe(b, stdout, "");
    if (b->set.out) {
        b->tsv = out_begin(b->set.out);
        describe(b, b->tsv, "# ");
        fprintf(b->tsv, "# path: %s; suite: %s; fast: %s\n", b->set.how.model, b->set.suite,
                b->set.how.offered ? "offered" : "fastest");
        fprintf(b->tsv, "# suite prompts: one prompt in passes of at most %d rows, all together; medians of %d\n",
                RIG_ROWS, PROMPT_REPEATS);
        fprintf(b->tsv,
                "# floor_ms: weights and KV read at the read ceiling; memory_share_pct, copy_share_pct: that\n"
                "#   at the read and the copy ceiling, of ms; matmul_share_pct: of the cuBLAS ceiling. On several\n"
                "#   devices these, gb_per_s and gflop_per_s are of one, with its part of weights, KV and work\n"
                "# workloads: ms is the mean of the passes; a case is a preset; verifier %s, verify %s, prefill %s,\n"
                "#   chunked %s; max_running %d; token_budget %d; temperature %g\n"
                "# relative_pct, nondet_itl_relative_pct: to nondeterministic of this run\n",
                given(b->set.verifier), given(b->set.verify), given(b->set.prefill), given(b->set.chunked),
                (int)b->set.max_running, (int)b->set.token_budget, b->set.temperature);
        figures_columns(b->tsv);
        out_flush(b->tsv, b->set.out);
    }
    cuda_ceilings_report(b);
}

// >>passes -------------------------------------------------------------------------------------------------------
// A rig whose sequences have up to `context` tokens, cut to the model's context.
static void cuda_rig(bench *b, rig *r, int context, int pool, int fixed_rows, unsigned schedules) {
    int limit = b->model->config.context;
    if (b->set.quick && pool > 16384) pool = 16384;
    if (context > limit) context = limit;
    if (context > pool) context = pool;
    rig_desc desc = {.max_rows = RIG_ROWS,
                     .context = context,
                     .page_tables = pool / context,
                     .scattered = true,
                     .fill_rows = RIG_ROWS,
                     .fixed_rows = fixed_rows,
                     .schedules = schedules | FAST_BIT};
    progress("opening the backend");
    rig_open(r, b, desc);
    progress(NULL);
    cuda_begin(b);
}

// Into how many parts the devices cut the KV. A KV head is not cut: with fewer heads than devices several have the
// same.
static int kv_parts(const bench *b) {
    int devices = used_devices(b), heads = b->model->config.kv_heads;
    return devices < heads ? devices : heads;
}

// What one device does in the pass of a rig, or in several.
typedef struct cuda_work {
    int rows;
    double flop, bytes;
} cuda_work;

static void cuda_work_add(const bench *b, const rig *r, cuda_work *w) {
    double devices = used_devices(b);
    w->rows += r->rows;
    w->flop += pass_flop(b->model, r->rows, r->sampled, r->keys) / devices;
    w->bytes += pass_bytes(b->model, r->rows, r->sampled) / devices + rig_kv_bytes(b, r) / kv_parts(b);
}

static void cuda_pass_report(const bench *b, const cuda_work *w, llm42_schedule schedule, const char *kind, int context,
                             double time) {
    char name[48];
    snprintf(name, sizeof name, "%s_%s", llm42_schedule_name(schedule), kind);
    figures f = figures_of(b, "passes", name);
    f.rows = w->rows, f.context_tokens = context, f.ms = 1e3 * time, f.tokens_per_s = w->rows / time;
    f.gb_per_s = 1e-9 * w->bytes / time, f.floor_ms = 1e-6 * w->bytes / b->read_gb_per_s;
    f.memory_share_pct = 100 * f.gb_per_s / b->read_gb_per_s, f.copy_share_pct = 100 * f.gb_per_s / b->copy_gb_per_s;
    f.gflop_per_s = 1e-9 * w->flop / time;
    f.matmul_share_pct = 100 * f.gflop_per_s / b->matmul_gflop_per_s;
    printf("%-18s %5d %8d %9.3f %9.0f %8.3f %8.1f %8.1f %8.1f %8.1f\n", name, w->rows, context, f.ms, f.tokens_per_s,
           f.floor_ms, f.memory_share_pct, f.copy_share_pct, 1e-3 * f.gflop_per_s, f.matmul_share_pct);
    fflush(stdout);
    figures_write(b, &f);
}

// Times a pass by schedule `first` and, if `beside`, in turn with it by INVARIANT.
static void cuda_pass(const bench *b, rig *r, llm42_schedule first, bool beside, const char *kind, int context) {
    if (out_of_time(b)) return;
    const llm42_schedule schedules[MOST_IN_TURN] = {first, LLM42_SCHEDULE_INVARIANT};
    const int count = beside ? 2 : 1, least = b->set.repeats > CUDA_REPEATS ? (int)b->set.repeats : CUDA_REPEATS;
    double time[MOST_IN_TURN];
    progress("passes: %s, %d rows, context %d", kind, r->rows, context);
    rig_time(r, schedules, count, least, time);
    progress(NULL);
    cuda_work work = {0};
    cuda_work_add(b, r, &work);
    for (int i = 0; i < count; i++) cuda_pass_report(b, &work, schedules[i], kind, context, time[i]);
}

// Decode at a batch of 1 to max_running.
static void cuda_decode_passes(bench *b, rig *r, int context, int step) {
    if (context > b->model->config.context || context > r->context) return;
    rig_deal_pages(r, context);
    for (int rows = 1; rows <= b->set.max_running; rows *= step) {
        if (rows > r->page_tables) break;  // sharing them would leave KV in the caches
        rig_decode_rows(r, rows, context);
        cuda_pass(b, r, LLM42_SCHEDULE_FAST, true, "decode", context);
    }
}

static void cuda_passes_head(const char *kind) {
    const char *const head[2][10] = {
        {"", "", "context", "", "", "floor", "floor at", "at copy", "", "cuBLAS"},
        {kind, "rows", "tokens", "ms", "tokens/s", "ms", "[A] %", "%", "TFLOP/s", "[B] %"}};
    static const int width[10] = {-18, 5, 8, 9, 9, 8, 8, 8, 8, 8};
    printf("\n");
    head_print(&head[0][0], width, 10);
    head_print(&head[1][0], width, 10);
}

static void cuda_passes(bench *b) {
    rig *r = allocate(sizeof *r);
    int prompt = b->model->config.context < RIG_ROWS ? b->model->config.context : RIG_ROWS;
    cuda_rig(b, r, 4096, POOL, 0, FIXED_BIT | INVARIANT_BIT);
    cuda_passes_head("passes");
    cuda_decode_passes(b, r, 512, 2);
    cuda_decode_passes(b, r, 4096, 8);
    rig_deal_pages(r, r->context);
    for (int rows = prompt; rows >= 256 && rows > prompt / 5; rows /= 4) {
        rig_prompt_rows(r, rows);
        cuda_pass(b, r, LLM42_SCHEDULE_FAST, true, "prompt", rows);
    }
    rig_close(r);
    if (b->model->config.context >= LONG && !b->set.quick && !out_of_time(b)) {
        cuda_rig(b, r, LONG, POOL, 0, FIXED_BIT | INVARIANT_BIT);
        cuda_decode_passes(b, r, LONG, 8);
        rig_close(r);
    }
    int context = prompt < 512 ? prompt : 512;
    for (int M = 128; M <= (b->set.quick ? 256 : 1024) && !out_of_time(b); M *= 2) {
        cuda_rig(b, r, RIG_ROWS, 32768, M, FIXED_BIT | INVARIANT_BIT);
        rig_deal_pages(r, context);
        rig_window_rows(r, M, (int)b->set.window, context);
        cuda_pass(b, r, LLM42_SCHEDULE_FIXED, true, "replay", context);
        rig_deal_pages(r, r->context);
        rig_prompt_rows(r, M < prompt ? M : prompt);
        if (r->rows == M) cuda_pass(b, r, LLM42_SCHEDULE_FIXED, false, "prompt", M);
        rig_close(r);
    }
    printf("decode: a row a sequence, all sampled; replay: windows of %d, all sampled; prompt: the first rows of one\n"
           "prompt, the last sampled. floor: weights and KV read once at [A]; copy: the same at the copy ceiling.\n",
           (int)b->set.window);
    if (used_devices(b) > 1)
        printf("%d devices: floor, TFLOP/s and the shares are of one, which reads its part of weights and KV and does\n"
               "its part of the work.\n",
               used_devices(b));
    free(r);
}

// >>stages -------------------------------------------------------------------------------------------------------
static void cuda_stages_report(const bench *b, const llm42_cuda_stage *stage, int count, int rows, const char *kind) {
    double all = 0;
    for (int i = 0; i < count; i++) all += stage[i].ms;
    printf("\n%-22s %6s %9s %8s %9s\n", kind, "rows", "ms", "% time", "launches");
    for (int i = 0; i < count; i++) {
        char name[48];
        snprintf(name, sizeof name, "%.20s:%.26s", kind, stage[i].name);
        figures f = figures_of(b, "stages", name);
        f.rows = rows, f.ms = stage[i].ms, f.launches = stage[i].launches, f.relative_pct = 100 * stage[i].ms / all;
        printf("%-22s %6d %9.4f %8.1f %9d\n", stage[i].name, rows, f.ms, f.relative_pct, stage[i].launches);
        figures_write(b, &f);
    }
    printf("%-22s %6d %9.4f\n", "sum", rows, all);
}

// Adds the stages of a rig's pass to those of the passes before it.
static void cuda_stages_add(rig *r, llm42_schedule schedule, int repeats, llm42_cuda_stage *sum, int *count) {
    llm42_cuda_stage stage[LLM42_CUDA_STAGES];
    llm42_error error = {0};
    llm42_pass pass = {
        .schedule = schedule, .rows = r->rows, .shape = r->rows, .row = r->row, .seq = r->seq, .out = r->out};
    int found = 0;
    args_check(llm42_cuda_stages(r->state, &pass, repeats, stage, &found, &error), &error);
    for (int i = 0; i < found; i++) {
        int to = 0;
        while (to < *count && strcmp(sum[to].name, stage[i].name)) to++;
        if (to == LLM42_CUDA_STAGES) continue;
        if (to == *count) sum[(*count)++] = (llm42_cuda_stage){.name = stage[i].name};
        sum[to].ms += stage[i].ms, sum[to].launches += stage[i].launches;
    }
}

static void cuda_stages_of(const bench *b, rig *r, llm42_schedule schedule, const char *kind) {
    if (out_of_time(b)) return;
    llm42_cuda_stage stage[LLM42_CUDA_STAGES];
    int count = 0;
    progress("stages: %s, %d rows", kind, r->rows);
    cuda_stages_add(r, schedule, CUDA_REPEATS, stage, &count);
    progress(NULL);
    cuda_stages_report(b, stage, count, r->rows, kind);
}

// With leaves the stages are those of INVARIANT passes, because others have none.
static void cuda_stages(bench *b) {
    rig *r = allocate(sizeof *r);
    const bool leaves = b->set.how.leaves > 1;
    const llm42_schedule fast = leaves ? LLM42_SCHEDULE_INVARIANT : LLM42_SCHEDULE_FAST,
                         fixed = leaves ? LLM42_SCHEDULE_INVARIANT : LLM42_SCHEDULE_FIXED;
    int limit = b->model->config.context, context = limit < 512 ? limit : 512;
    cuda_rig(b, r, RIG_ROWS, 131072, 0, leaves ? INVARIANT_BIT : 0);
    rig_deal_pages(r, context);
    static const int batch[] = {1, 16, 64, 256};
    for (int i = 0; i < 4 && batch[i] <= b->set.max_running && batch[i] <= r->page_tables; i++) {
        rig_decode_rows(r, batch[i], context);
        cuda_stages_of(b, r, fast, "decode");
    }
    rig_deal_pages(r, r->context);
    rig_prompt_rows(r, r->context < RIG_ROWS ? r->context : RIG_ROWS);
    cuda_stages_of(b, r, fast, "prompt");
    rig_close(r);
    for (int M = 256; M <= (b->set.quick ? 256 : 512) && !out_of_time(b); M *= 2) {
        cuda_rig(b, r, RIG_ROWS, 32768, M, leaves ? INVARIANT_BIT : FIXED_BIT);
        rig_deal_pages(r, context);
        rig_window_rows(r, M, (int)b->set.window, context);
        cuda_stages_of(b, r, fixed, "replay");
        rig_close(r);
    }
    free(r);
}

// >>prompts ------------------------------------------------------------------------------------------------------
// The next pass of a prompt, of which `done` rows have run: an engine cuts a prompt into passes of its token budget,
// which is RIG_ROWS here. False: all have run.
static bool next_chunk(rig *r, int tokens, int *done) {
    int rows = tokens - *done < RIG_ROWS ? tokens - *done : RIG_ROWS;
    if (!rows) return false;
    rig_chunk_rows(r, *done, rows, *done + rows == tokens);
    *done += rows;
    return true;
}

static double prompt_seconds(rig *r, llm42_schedule schedule, int tokens) {
    double begin = wall_seconds();
    for (int done = 0; next_chunk(r, tokens, &done);) rig_run(r, schedule, r->rows);
    return wall_seconds() - begin;
}

// Times a prompt by FAST and INVARIANT passes in turn. What runs first does not count.
static void cuda_prompt(const bench *b, rig *r, int tokens) {
    static const llm42_schedule schedules[] = {LLM42_SCHEDULE_FAST, LLM42_SCHEDULE_INVARIANT};
    double times[2][PROMPT_REPEATS];
    cuda_work work = {0};
    if (out_of_time(b)) return;
    progress("prompts: %d tokens", tokens);
    for (int i = -1; i < PROMPT_REPEATS; i++)
        for (int s = 0; s < 2; s++) {
            double seconds = prompt_seconds(r, schedules[s], tokens);
            if (i >= 0) times[s][i] = seconds;
        }
    progress(NULL);
    for (int done = 0; next_chunk(r, tokens, &done);) cuda_work_add(b, r, &work);
    for (int s = 0; s < 2; s++)
        cuda_pass_report(b, &work, schedules[s], "prompt", tokens, median(times[s], PROMPT_REPEATS));
}

static void cuda_prompt_stages(const bench *b, rig *r, int tokens) {
    if (out_of_time(b)) return;
    llm42_schedule schedule = b->set.how.leaves > 1 ? LLM42_SCHEDULE_INVARIANT : LLM42_SCHEDULE_FAST;
    llm42_cuda_stage stage[LLM42_CUDA_STAGES];
    int count = 0;
    progress("stages: a prompt of %d tokens", tokens);
    for (int done = 0; next_chunk(r, tokens, &done);) cuda_stages_add(r, schedule, PROMPT_REPEATS, stage, &count);
    progress(NULL);
    cuda_stages_report(b, stage, count, tokens, "prompt");
}

static void cuda_prompts(bench *b) {
    static const int lengths[] = {2048, 8192, LONG};
    rig *r = allocate(sizeof *r);
    cuda_rig(b, r, LONG, LONG, 0, FIXED_BIT | INVARIANT_BIT);
    cuda_passes_head("prompts");
    for (int i = 0; i < 3 && lengths[i] <= r->context; i++) cuda_prompt(b, r, lengths[i]);
    for (int i = 0; i < 3 && lengths[i] <= r->context; i++) cuda_prompt_stages(b, r, lengths[i]);
    printf("prompts: one prompt in passes of at most %d rows, all of its passes together, the last row sampled\n",
           RIG_ROWS);
    rig_close(r);
    free(r);
}

// >>workloads ----------------------------------------------------------------------------------------------------
// The cases that matter most come first: time may run out.
static const serving_case offline_cases[] = {
    {.preset = 0},           {LLM42_PRESET_BEST, 0.02}, {LLM42_PRESET_BEST, 0.1}, {LLM42_PRESET_BEST, 0.5},
    {LLM42_PRESET_BEST, 1},  {LLM42_PRESET_DVR, 1},     {LLM42_PRESET_DVR, 0},    {LLM42_PRESET_INVARIANT, 1},
    {LLM42_PRESET_DVR, 0.1}, {LLM42_PRESET_DVR, 0.02},  {LLM42_PRESET_DVR, 0.5},  {LLM42_PRESET_PAPER, 0.1},
    {LLM42_PRESET_PAPER, 1}};
static const serving_case eleven_cases[] = {{.preset = 0},  // 0.0909 marks one request of eleven
                                            {LLM42_PRESET_BEST, 0.0909},
                                            {LLM42_PRESET_DVR, 0.0909},
                                            {LLM42_PRESET_INVARIANT, 1}};
static const serving_case online_cases[] = {{.preset = 0}, {LLM42_PRESET_BEST, 0.1}, {LLM42_PRESET_DVR, 0.1}};

static llm42_engine_desc cuda_engine(bench *b, const serve_plan *plan, const serving_case *c) {
    const settings *s = &b->set;
    llm42_engine_desc desc = b->engine;
    desc.max_context = plan->max_context;
    desc.max_running = plan->max_running;
    desc.token_budget = (int)s->token_budget;
    desc.kv.pages = (int)serve_pages(plan, PAGE_SIZE, s->kv_gb);
    desc.kv.admission_reserve = 0.7;
    case_policies(b, c, &desc);
    bool whole = desc.policy.chunked_prefill == LLM42_CHUNKED_OFF;
    if (whole && desc.token_budget < plan->max_context) desc.token_budget = plan->max_context;
    return desc;
}

// *pass_ms: the mean time of a pass.
static void cuda_serve(bench *b, const serve_plan *plan, const serving_case *c, const char *qps, uint64_t seed,
                       metrics *m, double *pass_ms) {
    llm42_error error = {0};
    serving v = {.s = plan};
    args_check(serving_open(&v, cuda_engine(b, plan, c), qps, seed, c->ratio, &error), &error);
    cuda_begin(b);
    args_check(serve(&v, &error), &error);
    args_check(serving_figures(&v, m, &error), &error);
    const llm42_stats after = llm42_engine_stats(v.engine);
    double busy = 0, passes = 0;
    for (int s = 0; s < LLM42_SCHEDULE_COUNT; s++)
        busy += after.busy[s] - v.before.busy[s], passes += (double)(after.passes[s] - v.before.passes[s]);
    *pass_ms = 1e3 * busy / passes;
    serving_close(&v);
}

// The workload's requests, cut to the context where they are longer.
static serve_plan cuda_plan(const bench *b, const char *spec, int64_t requests) {
    llm42_error error = {0};
    serve_plan plan = {.model = b->model,
                       .workload = spec,
                       .requests = requests,
                       .warm_up = b->set.max_running,
                       .max_running = (int)b->set.max_running,
                       .random_prompts = true,
                       .temperature = b->set.temperature};
    args_check(serve_context(&plan, "offline", b->set.max_context, &error), &error);
    return plan;
}

static void cuda_case_report(const bench *b, const char *suite, const serve_plan *plan, const serving_case *c,
                             const char *qps, const metrics *m, const metrics *base, double pass_ms) {
    char name[48];
    const char *slash = strrchr(plan->workload, '/');
    snprintf(name, sizeof name, "%.28s:%.18s", slash ? slash + 1 : plan->workload, case_name(c).text);
    figures f = figures_of(b, suite, name);
    llm42_engine_desc policies = {0};
    case_policies(b, c, &policies);
    f.deterministic_ratio = c->ratio, f.window = policies.policy.window, f.group = policies.policy.group;
    f.requests = (double)plan->requests, f.qps = strcmp(qps, "offline") ? b->set.qps : NAN;
    f.duration_s = m->duration_s, f.tokens_per_s = m->output_tok_per_s, f.ms = pass_ms;
    f.relative_pct = 100 * m->output_tok_per_s / base->output_tok_per_s;
    f.recompute_pct = m->recompute_pct, f.rollbacks = m->rollbacks, f.replay_time_pct = m->replay_busy_pct;
    f.ttft_p50_ms = 1e3 * m->ttft_p50_s, f.ttft_p99_ms = 1e3 * m->ttft_p99_s;
    f.itl_p50_ms = 1e3 * m->itl_p50_s, f.itl_p99_ms = 1e3 * m->itl_p99_s;
    f.latency_p50_ms = 1e3 * m->e2e_p50_s, f.latency_p99_ms = 1e3 * m->e2e_p99_s;
    f.nondet_itl_p99_ms = 1e3 * m->nondet_itl_p99_s;
    f.nondet_itl_relative_pct = 100 * m->nondet_itl_p99_s / base->nondet_itl_p99_s;
    progress(NULL);
    printf("%-36s %6.2f %8.1f %9.0f %6.1f %6.2f %6.1f %6.0f %8.0f %8.2f %8.2f %6.0f\n", name, c->ratio, f.duration_s,
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

static void cuda_cases(bench *b, const char *suite, const serve_plan *plan, const serving_case *cases, int count,
                       const char *qps, int64_t seeds) {
    metrics base = {0};
    for (int i = 0; i < count && !out_of_time(b); i++) {
        metrics mean = {0};
        double pass_ms = 0;  // of the last run
        if (!case_chosen(b, &cases[i])) continue;
        for (int64_t k = 0; k < seeds; k++) {
            metrics m = {0};
            progress("%s: %s %g, run %d of %d", suite, case_name(&cases[i]).text, cases[i].ratio, (int)k + 1,
                     (int)seeds);
            cuda_serve(b, plan, &cases[i], qps, 42 + (uint64_t)k, &m, &pass_ms);
            metrics_add(&mean, &m, seeds);
        }
        if (!i) base = mean, cuda_cases_head(suite, plan, qps);
        cuda_case_report(b, suite, plan, &cases[i], qps, &mean, &base, pass_ms);
    }
}

// >>run ----------------------------------------------------------------------------------------------------------
static void cuda_workloads(bench *b, const char *suite) {
    char qps[32];
    number_text(qps, sizeof qps, b->set.qps);
    bool all = !strcmp(suite, "all");
    if (all || !strcmp(suite, "workloads")) {
        serve_plan plan = cuda_plan(b, b->set.workload, b->set.requests);
        cuda_cases(b, "workloads", &plan, offline_cases, sizeof offline_cases / sizeof *offline_cases, "offline", 1);
    }
    if (all || !strcmp(suite, "one-of-eleven")) {
        serve_plan plan = cuda_plan(b, "fixed:512x256", 11);
        cuda_cases(b, "one-of-eleven", &plan, eleven_cases, sizeof eleven_cases / sizeof *eleven_cases, "offline",
                   b->set.seeds);
    }
    if (all || !strcmp(suite, "online")) {
        serve_plan plan = cuda_plan(b, b->set.workload, b->set.online_requests);
        cuda_cases(b, "online", &plan, online_cases, sizeof online_cases / sizeof *online_cases, qps, 1);
    }
}

void run_cuda(bench *b) {
    const char *suite = b->set.suite;
    bool all = !strcmp(suite, "all");
    cuda_ceilings(b);
    if (all || !strcmp(suite, "passes")) cuda_passes(b);
    if (all || !strcmp(suite, "stages")) cuda_stages(b);
    if (all || !strcmp(suite, "prompts")) cuda_prompts(b);
    cuda_workloads(b, suite);
    if (out_of_time(b)) printf("stopped after %g s (--seconds): what is missing was not begun\n", b->set.seconds);
    if (!b->tsv) return;
    if (out_of_time(b)) fprintf(b->tsv, "# stopped after %g s: what is missing was not begun\n", b->set.seconds);
    out_finish(b->tsv, b->set.out);
}
