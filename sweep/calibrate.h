// calibrate.h: a part of bench.c, on which it stands. Measures what the simulator needs to know of the CPU backend and
// writes it as a calibration: pass times by schedule, kind of rows, rows and context; the flip rate of candidates.
//
// Times are taken of passes alone, on a KV cache of scattered pages. A round goes through all cells, so that a slow
// minute of the machine does not fall on one of them, and takes the mean of some passes of each, since the simulator
// adds passes up. A cell's figure is the lower quartile of its rounds: whatever disturbs a round can only make it
// longer. What the engine itself spends on a row is measured while it serves the requests that the flip rate comes
// from, and added.
#ifndef LLM42_CALIBRATE_H
#define LLM42_CALIBRATE_H

enum { CAL_ROWS = 22, CAL_CONTEXTS = 4, CAL_TABLES = 6, CAL_LOADS = 3 };
// Fine where passes are small, since the CPU backend works on tiles of four rows.
static const int cal_rows[CAL_ROWS] = {1,  2,  3,  4,  5,  6,  7,   8,   10,  12,   14,
                                       16, 20, 24, 32, 48, 64, 128, 256, 512, 1024, BED_ROWS};
static const int cal_contexts[CAL_CONTEXTS] = {16, 64, 256, 1024};
static const int cal_loads[CAL_LOADS] = {DECODE_ROWS, 4, 1};  // sequences at once, for the flip rate

// >>cells --------------------------------------------------------------------------------------------------------
// Pieces of `length` rows, each of a sequence of its own, that attend to `context` positions in the mean. Short ones
// lie anywhere about there, as those of served requests do: attention costs less where a context fills its last tile.
static void bed_pieces(bed *d, int rows, int length, int context, bool sample_all, int turn) {
    if (length > rows) length = rows;
    if (length > 2 * context - 1) length = 2 * context - 1;  // the longest that starts at position 0 and has this mean
    bed_clear(d);
    for (int i = 0; i < rows; i++) {
        int piece = i / length, shift = length < 16 ? (7 * turn + 5 * piece) % 16 - 8 : 0;
        bool last = i == rows - 1 || i % length == length - 1;
        bed_row(d, piece, context - (length + 1) / 2 + shift + i % length, sample_all || last);
    }
}

typedef enum cal_kind { CAL_DECODE, CAL_WINDOW, CAL_PROMPT } cal_kind;
static const char *const cal_kind_name[] = {"decode", "window", "prompt"};
static const struct { llm42_schedule schedule; cal_kind kind; } cal_tables[CAL_TABLES] = {
    {LLM42_FAST, CAL_DECODE},  {LLM42_FAST, CAL_PROMPT},      {LLM42_FIXED, CAL_WINDOW},
    {LLM42_FIXED, CAL_PROMPT}, {LLM42_INVARIANT, CAL_DECODE}, {LLM42_INVARIANT, CAL_PROMPT}};

typedef struct cal_grid {
    int rows, contexts, rounds;
    double ms[CAL_TABLES][CAL_ROWS][CAL_CONTEXTS];
    double mean_ms[CAL_TABLES][CAL_ROWS][CAL_CONTEXTS][MAX_REPEATS];  // of each round
} cal_grid;

// Milliseconds of one cell in one round, mean of some passes. Windows run under the shape of a whole replay pass, as
// the engine runs them; other passes are as large as their rows.
static double cell_ms(const bench *b, bed *d, int table, int rows, int context) {
    llm42_schedule schedule = cal_tables[table].schedule;
    cal_kind kind = cal_tables[table].kind;
    int M = (int)(b->set.window * b->set.group), shape = kind == CAL_WINDOW && M > rows ? M : rows, count = 0;
    int length = kind == CAL_DECODE ? 1 : kind == CAL_WINDOW ? (int)b->set.window : rows;
    double start = seconds(), sum = 0;
    for (int turn = 0; turn < 2 || (turn < MAX_SAMPLES && seconds() - start < 0.01); turn++) {
        bed_pieces(d, rows, length, context, kind != CAL_PROMPT, turn);
        double begin = seconds();
        bed_run(d, schedule, shape);
        if (!turn && seconds() - begin < 0.01) continue;  // it warms the caches; long passes have no use of that
        sum += seconds() - begin;
        if (++count == 1 && sum > 0.05) break;
    }
    return 1e3 * sum / count;
}

static void grid_measure(const bench *b, bed *d, cal_grid *g) {
    for (int round = 0; round < g->rounds; round++)
        for (int t = 0; t < CAL_TABLES; t++)
            for (int r = 0; r < g->rows; r++) {
                progress("calibrate: round %d of %d, table %d of %d, %d rows", round + 1, g->rounds, t + 1, CAL_TABLES,
                         cal_rows[r]);
                for (int c = 0; c < g->contexts; c++)
                    g->mean_ms[t][r][c][round] = cell_ms(b, d, t, cal_rows[r], cal_contexts[c]);
            }
    progress(NULL);
    for (int t = 0; t < CAL_TABLES; t++)
        for (int r = 0; r < g->rows; r++)
            for (int c = 0; c < g->contexts; c++) {
                qsort(g->mean_ms[t][r][c], (size_t)g->rounds, sizeof(double), ascending);
                g->ms[t][r][c] = g->mean_ms[t][r][c][g->rounds / 4];
            }
}

// The nearest sequence, by squares, that never falls: neighbours that fall are pooled into their mean.
static void rise(double *value, int count, int stride) {
    double sum[CAL_ROWS];
    int size[CAL_ROWS], pools = 0;
    for (int i = 0; i < count; i++) {
        sum[pools] = value[i * stride], size[pools++] = 1;
        for (; pools > 1 && sum[pools - 2] * size[pools - 1] > sum[pools - 1] * size[pools - 2]; pools--)
            sum[pools - 2] += sum[pools - 1], size[pools - 2] += size[pools - 1];
    }
    for (int p = 0, i = 0; p < pools; p++)
        for (int k = 0; k < size[p]; k++, i++) value[i * stride] = sum[p] / size[p];
}

// Alternates between contexts and rows. What rounding leaves falling is then lifted.
static void grid_rise(cal_grid *g) {
    for (int t = 0; t < CAL_TABLES; t++) {
        for (int turn = 0; turn < 200; turn++) {
            for (int r = 0; r < g->rows; r++) rise(g->ms[t][r], g->contexts, 1);
            for (int c = 0; c < g->contexts; c++) rise(&g->ms[t][0][c], g->rows, CAL_CONTEXTS);
        }
        for (int r = 0; r < g->rows; r++)
            for (int c = 0; c < g->contexts; c++) {
                if (r) g->ms[t][r][c] = fmax(g->ms[t][r][c], g->ms[t][r - 1][c]);
                if (c) g->ms[t][r][c] = fmax(g->ms[t][r][c], g->ms[t][r][c - 1]);
            }
    }
}

// >>flips --------------------------------------------------------------------------------------------------------
// Candidates of each request that a replay pass compared and changed, and what comes of them.
typedef struct flips {
    double *compared, *changed;
    double compared_sum, changed_sum, rate, shape;
    double engine_ms;  // outside passes, for each row in one
} flips;

static void on_flip(void *user, const llm42_event *e) {
    flips *f = user;
    bool changed = e->type == LLM42_EVENT_ROLLED_BACK;
    if (e->type != LLM42_EVENT_VERIFIED && !changed) return;
    f->compared[e->request - 1] += changed ? 1 : e->n;
    f->changed[e->request - 1] += changed;
}

// Mean and shape over requests, by moments: given a rate p_i from a gamma distribution, request i changes
// Poisson(p_i n_i) of n_i candidates, so that the squares of (changed - rate n_i) sum to the sum of
// (rate n_i + rate^2 n_i^2 / shape).
static void flips_moments(flips *f, int64_t requests) {
    double squares = 0, excess = 0;
    for (int64_t i = 0; i < requests; i++) f->compared_sum += f->compared[i], f->changed_sum += f->changed[i];
    f->rate = f->compared_sum > 0 ? f->changed_sum / f->compared_sum : 0;
    for (int64_t i = 0; i < requests; i++) {
        double mean = f->rate * f->compared[i], from = f->changed[i] - mean;
        squares += mean * mean;
        excess += from * from - mean;
    }
    f->shape = excess > 0 ? squares / excess : 100;
    f->shape = f->shape < 0.05 ? 0.05 : f->shape > 100 ? 100 : f->shape;
}

// Serves all requests, every one deterministic, `running` at a time, under the conditions that build/sweep has by
// default.
static void flips_measure(const bench *b, const int32_t *prompts, int running, flips *f) {
    llm42_error error = {0};
    int64_t requests = b->set.requests, length = b->set.input_tokens;
    llm42_engine *engine = NULL;
    llm42_engine_desc desc = {.model = b->model, .compute = b->set.compute, .threads = (int)b->set.threads,
                              .window = (int)b->set.window, .group = (int)b->set.group, .max_running = running,
                              .max_context = (int)(length + b->set.output_tokens), .prefill = LLM42_PREFILL_ISOLATED,
                              .bonus = LLM42_BONUS_OFF, .fill = LLM42_FILL_OLDEST, .auto_release = true,
                              .on_event = on_flip, .event_user = f};
    args_check(llm42_engine_open(&engine, &desc, &error), &error);
    for (int64_t i = 0; i < requests; i++) {
        llm42_request_desc request = {.prompt = prompts + i * length, .prompt_count = (int)length, .ignore_stop = true,
                                      .max_new_tokens = (int)b->set.output_tokens, .deterministic = true};
        args_check(llm42_engine_submit(engine, &request, NULL, &error), &error);
    }
    double begin = seconds();
    for (int64_t step = 0; args_check(llm42_engine_step(engine, &error), &error) == LLM42_OK; step++)
        if (step % 64 == 0)
            progress("calibrate: flips, up to %d at a time, %.0f%%", running,
                     100.0 * (double)llm42_engine_stats(engine).finished / (double)requests);
    llm42_stats stats = llm42_engine_stats(engine);
    f->engine_ms = 1e3 * (seconds() - begin - stats.busy[LLM42_FAST] - stats.busy[LLM42_FIXED]) /
                   (double)(stats.rows[LLM42_FAST] + stats.rows[LLM42_FIXED]);
    progress(NULL);
    llm42_engine_close(engine);
    flips_moments(f, requests);
}

// Every load, and in f[CAL_LOADS] all of them together.
static void flips_all(const bench *b, flips *f) {
    int64_t requests = b->set.requests;
    size_t size = (size_t)requests * CAL_LOADS * sizeof(double);
    flips *all = &f[CAL_LOADS];
    *all = (flips){.compared = take(size), .changed = take(size)};
    memset(all->compared, 0, size);
    memset(all->changed, 0, size);
    int32_t *prompts = take((size_t)(requests * b->set.input_tokens) * sizeof *prompts);
    make_prompts(b, prompts);
    for (int i = 0; i < CAL_LOADS; i++) {
        f[i] = (flips){.compared = all->compared + i * requests, .changed = all->changed + i * requests};
        flips_measure(b, prompts, cal_loads[i], &f[i]);
    }
    flips_moments(all, requests * CAL_LOADS);
    all->engine_ms = f[0].engine_ms;
    free(prompts);
    free(all->compared);
    free(all->changed);
}

// >>calibrate ----------------------------------------------------------------------------------------------------
static void calibration_head(const bench *b, const cal_grid *g, const flips *f, FILE *file) {
    const settings *s = &b->set;
    char cpu[256];
    bool synthetic = !strncmp(s->model, "synthetic:", 10);  // the simulator needs its shape only
    const char *model = synthetic ? s->model + 10 : s->model;
    fprintf(file, "# llm42 calibration 1\n# source: measured by build/bench --calibrate\n");
    fprintf(file, "# device: %s, %d thread%s\n# devices: 1\n", cpu_model(cpu, sizeof cpu), (int)s->threads,
            s->threads > 1 ? "s" : "");
    fprintf(file, "# model: %.*s\n", (int)strcspn(model, synthetic ? "," : ""), model);
    fprintf(file, "# time_unit: ms\n# kv_tokens: 0\n# padding: free\n");
    fprintf(file, "# flip_rate: %.4g\n# flip_shape: %.3g\n", f[CAL_LOADS].rate, f[CAL_LOADS].shape);
    fprintf(file, "# overlap_fast: 2\n# overlap_replay: 2\n");
    fprintf(file, "# measured with: llm42 %s (%s), %s, compute type %s, lower quartile of %d rounds\n", LLM42_VERSION,
            llm42_cpu_isa(), compiler(), s->dtype, g->rounds);
    fprintf(file,
            "# rows are decode: one of each sequence, all sampled; window: of windows of %d, all sampled, under the\n"
            "#   shape of a replay pass of %d; prompt: of one prompt, the last sampled. Where the rows of one prompt\n"
            "#   or window would attend to more than context_tokens from position 0 on, of as many as it takes.\n"
            "# ms includes the %.2g ms that the engine spends between passes for each of their rows. Figures that\n"
            "#   fell with rows or context are pooled with their neighbours (isotonic least squares).\n"
            "# padding is free: rows behind those in the list are not computed. KV: as much as an engine asks for.\n"
            "# overlap is not measured: the CPU backend runs one pass at a time, and two would share its cores.\n",
            (int)s->window, (int)(s->window * s->group), f[CAL_LOADS].engine_ms);
    fprintf(file,
            "# flips: %d requests at once, %d tokens in, %d out, all deterministic, W = %d, G = %d, other conditions\n"
            "#   those of build/sweep by default; together over the loads below. The rate depends on the batch and on\n"
            "#   M, since the order does in which FAST and FIXED passes sum:\n",
            (int)s->requests, (int)s->input_tokens, (int)s->output_tokens, (int)s->window, (int)s->group);
    for (int i = 0; i < CAL_LOADS; i++)
        fprintf(file, "#   up to %2d at a time, rate %.5f +- %.5f (%.0f of %.0f candidates)\n", cal_loads[i], f[i].rate,
                f[i].compared_sum > 0 ? sqrt(f[i].changed_sum) / f[i].compared_sum : 0, f[i].changed_sum,
                f[i].compared_sum);
    fprintf(file, "schedule\tkind\trows\tcontext_tokens\tms\n");
}

// Sets the grid's size and opens a bed that has room for its cells.
static void grid_open(const bench *b, cal_grid *g, bed *d) {
    const llm42_config *c = &b->model->config;
    g->rounds = (int)b->set.repeats;
    g->contexts = b->set.quick ? 2 : CAL_CONTEXTS;
    while (g->contexts > 0 && 2 * cal_contexts[g->contexts - 1] > c->context) g->contexts--;
    if (!g->contexts)
        args_fail(1, "--calibrate: the model's context of %d is shorter than %d", c->context, 2 * cal_contexts[0]);
    g->rows = CAL_ROWS;  // as long as their logits take no more than 256 MB
    while (cal_rows[g->rows - 1] > MAX_ROWS && (double)cal_rows[g->rows - 1] * c->vocab > 1 << 26) g->rows--;
    int context = cal_contexts[g->contexts - 1], most = cal_rows[g->rows - 1];
    context += context < most / 2 ? context : most / 2 + 16;  // the end of the longest piece, see bed_pieces
    if (context > c->context) context = c->context;
    double tables = (double)(256 << 20) / ((double)llm42__kv_token_bytes(c, b->set.compute) * context);
    bed_open(d, b, most, context, tables < 8 ? 8 : tables > BED_ROWS ? BED_ROWS : (int)tables, true);
}

static void calibrate(const bench *caller) {
    bench b = *caller;
    b.set.requests = b.set.flip_requests;
    if (b.set.input_tokens + b.set.output_tokens > b.model->config.context)
        args_fail(2, "--input-tokens and --output-tokens: their sum is beyond the model's context of %d",
                  b.model->config.context);
    cal_grid *g = take(sizeof *g);
    bed *d = take(sizeof *d);
    grid_open(&b, g, d);
    FILE *file = file_begin(b.set.calibrate);
    grid_measure(&b, d, g);
    bed_close(d);
    free(d);
    flips f[CAL_LOADS + 1];
    flips_all(&b, f);
    for (int t = 0; t < CAL_TABLES; t++)
        for (int r = 0; r < g->rows; r++)
            for (int c = 0; c < g->contexts; c++) g->ms[t][r][c] += f[CAL_LOADS].engine_ms * cal_rows[r];
    grid_rise(g);
    calibration_head(&b, g, f, file);
    for (int t = 0; t < CAL_TABLES; t++)
        for (int r = 0; r < g->rows; r++)
            for (int c = 0; c < g->contexts; c++)
                fprintf(file, "%s\t%s\t%d\t%d\t%.6g\n", llm42_schedule_name(cal_tables[t].schedule),
                        cal_kind_name[cal_tables[t].kind], cal_rows[r], cal_contexts[c], g->ms[t][r][c]);
    free(g);
    file_finish(file, b.set.calibrate);
}
#endif
