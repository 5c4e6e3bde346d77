// calibrate.h: a part of bench.c, on which it stands. Measures what the simulator needs to know of a backend and writes
// it as a calibration: pass times by schedule, kind of rows, rows and context; the flip rate of candidates; on a GPU,
// what passes side by side cost each other.
//
// Times are taken of passes alone, on a KV cache of scattered pages. A round goes through all cells, so that a slow
// minute of the machine does not fall on one of them, and takes the mean of some passes of each, since the simulator
// adds passes up. A cell's figure is the lower quartile of its rounds: whatever disturbs a round can only make it
// longer. What the engine itself spends on a row is measured while it serves the requests that the flip rate comes
// from, and added.
//
// A GPU computes a FIXED pass at its whole shape, and makes that ready when it opens: so FIXED passes of each number of
// rows are measured on a backend opened for it.
#ifndef LLM42_CALIBRATE_H
#define LLM42_CALIBRATE_H

enum { CAL_ROWS = 22, CAL_CONTEXTS = 4, CAL_TABLES = 6, CAL_LOADS = 3 };
// Fine where passes are small, since the CPU backend works on tiles of four rows.
static const int cal_rows[CAL_ROWS] = {1,  2,  3,  4,  5,  6,  7,   8,   10,  12,   14,
                                       16, 20, 24, 32, 48, 64, 128, 256, 512, 1024, BED_ROWS};
static const int cal_contexts[CAL_CONTEXTS] = {16, 64, 256, 1024};
static const int cal_loads[CAL_LOADS] = {DECODE_ROWS, 4, 1};  // sequences at once, for the flip rate
enum { CAL_CUDA_ROWS = 16 };
static const int cal_cuda_rows[CAL_CUDA_ROWS] = {1,  2,  4,   8,   16,  24,  32,   48,
                                                 64, 96, 128, 192, 256, 512, 1024, BED_ROWS};
static const int cal_cuda_contexts[CAL_CONTEXTS] = {64, 512, 2048, 8192};
static const int cal_cuda_loads[CAL_LOADS] = {256, 64, 16};

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
static const struct {
    llm42_schedule schedule;
    cal_kind kind;
} cal_tables[CAL_TABLES] = {{LLM42_FAST, CAL_DECODE},  {LLM42_FAST, CAL_PROMPT},      {LLM42_FIXED, CAL_WINDOW},
                            {LLM42_FIXED, CAL_PROMPT}, {LLM42_INVARIANT, CAL_DECODE}, {LLM42_INVARIANT, CAL_PROMPT}};

typedef struct cal_grid {
    int rows[CAL_TABLES], row[CAL_TABLES][CAL_ROWS];
    int contexts, rounds;
    const int *context;
    double ms[CAL_TABLES][CAL_ROWS][CAL_CONTEXTS];
    double mean_ms[CAL_TABLES][CAL_ROWS][CAL_CONTEXTS][MAX_REPEATS];  // of each round
} cal_grid;

// Milliseconds of one cell in one round, mean of some passes. Windows run under the shape of a whole replay pass, as
// the engine runs them, on a GPU that of their rows; other passes are as large as their rows.
static double cell_ms(const bench *b, bed *d, int table, int rows, int context) {
    llm42_schedule schedule = cal_tables[table].schedule;
    cal_kind kind = cal_tables[table].kind;
    int M = (int)(b->set.window * b->set.group), count = 0;
    int shape = kind == CAL_WINDOW && M > rows && !b->cuda ? M : rows;
    int length = kind == CAL_DECODE ? 1 : kind == CAL_WINDOW ? (int)b->set.window : rows;
    if (b->cuda) bed_tables(d, context + length / 2 + 16 < d->context ? context + length / 2 + 16 : d->context);
    double start = seconds(), sum = 0;
    for (int turn = 0; turn < 2 || (turn < MAX_SAMPLES && seconds() - start < 0.01); turn++) {
        bed_pieces(d, rows, length, context, kind != CAL_PROMPT, turn);
        double begin = seconds();
        bed_run(d, schedule, shape);
        // The first warms the caches; on a CPU long passes have no use of that.
        if (!turn && (b->cuda || seconds() - begin < 0.01)) continue;
        sum += seconds() - begin;
        if (++count == 1 && sum > 0.05) break;
    }
    return 1e3 * sum / count;
}

// Is this cell for a bed that was opened for so many fixed rows?
static bool cell_wanted(const bench *b, int table, int rows, int fixed_rows) {
    return !b->cuda || fixed_rows == (cal_tables[table].schedule == LLM42_FIXED ? rows : 0);
}

// --seconds: what is left of them must do for the flips. One round there is in any case.
static bool grid_late(const bench *b, int fixed_rows) {
    return b->set.seconds > 0 && seconds() - b->begun > b->set.seconds * (fixed_rows ? 0.7 : 0.4);
}

static void grid_measure(const bench *b, bed *d, cal_grid *g, int fixed_rows) {
    int rounds = 0;
    while (rounds < g->rounds && !(rounds && grid_late(b, fixed_rows))) {
        int round = rounds++;
        for (int t = 0; t < CAL_TABLES; t++)
            for (int r = 0; r < g->rows[t]; r++) {
                if (!cell_wanted(b, t, g->row[t][r], fixed_rows)) continue;
                progress("calibrate: round %d of %d, table %d of %d, %d rows", round + 1, g->rounds, t + 1, CAL_TABLES,
                         g->row[t][r]);
                for (int c = 0; c < g->contexts; c++)
                    g->mean_ms[t][r][c][round] = cell_ms(b, d, t, g->row[t][r], g->context[c]);
            }
    }
    progress(NULL);
    for (int t = 0; t < CAL_TABLES; t++)
        for (int r = 0; r < g->rows[t]; r++)
            for (int c = 0; c < g->contexts && cell_wanted(b, t, g->row[t][r], fixed_rows); c++) {
                qsort(g->mean_ms[t][r][c], (size_t)rounds, sizeof(double), ascending);
                g->ms[t][r][c] = g->mean_ms[t][r][c][rounds / 4];
            }
    if (b->cuda)
        printf("calibrate: passes of %d fixed rows (0: fast and invariant), %d rounds; %.0f s gone by\n", fixed_rows,
               rounds, seconds() - b->begun);
    fflush(stdout);
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
            for (int r = 0; r < g->rows[t]; r++) rise(g->ms[t][r], g->contexts, 1);
            for (int c = 0; c < g->contexts; c++) rise(&g->ms[t][0][c], g->rows[t], CAL_CONTEXTS);
        }
        for (int r = 0; r < g->rows[t]; r++)
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
    int context = (int)(length + b->set.output_tokens);
    int pages = b->cuda ? (context + PAGE_SIZE - 1) / PAGE_SIZE * running : 0;
    llm42_engine_desc desc = {.model = b->model,
                              .backend = b->backend,
                              .compute = b->set.compute,
                              .pages = pages,
                              .backend_desc = b->cuda ? &b->cuda_desc : NULL,
                              .page_size = PAGE_SIZE,
                              .threads = (int)b->set.threads,
                              .window = (int)b->set.window,
                              .group = (int)b->set.group,
                              .max_running = running,
                              .max_context = context,
                              .prefill = b->cuda ? LLM42_PREFILL_PACKED : LLM42_PREFILL_ISOLATED,
                              .bonus = LLM42_BONUS_OFF,
                              .fill = LLM42_FILL_OLDEST,
                              .auto_release = true,
                              .on_event = on_flip,
                              .event_user = f};
    args_check(llm42_engine_open(&engine, &desc, &error), &error);
    for (int64_t i = 0; i < requests; i++) {
        llm42_request_desc request = {.prompt = prompts + i * length,
                                      .prompt_count = (int)length,
                                      .ignore_stop = true,
                                      .max_new_tokens = (int)b->set.output_tokens,
                                      .deterministic = true};
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
    const int *loads = b->cuda ? cal_cuda_loads : cal_loads;
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
        flips_measure(b, prompts, loads[i], &f[i]);
    }
    flips_moments(all, requests * CAL_LOADS);
    all->engine_ms = f[0].engine_ms;
    free(prompts);
    free(all->compared);
    free(all->changed);
}

// >>overlap ------------------------------------------------------------------------------------------------------
// How many times longer a pass takes beside one of the other sort: decoding beside replay passes one after the other.
typedef struct overlap {
    double fast, replay;
    int rows, context;  // of the fast pass
} overlap;

enum { OVERLAP_REPEATS = 30 };

// Milliseconds of a replay pass that begins now, alone, or with the bed's pass run beside it until it lands. It lands
// some time in the last of these, taken to be half way. inside: [0] milliseconds, [1] number of passes wholly
// beside it.
static double overlap_replay_ms(bed *d, const llm42_pass *replay, bool beside, double inside[2]) {
    llm42_error error = {0};
    double start = seconds(), begin = start, end = start;
    args_check(d->backend->start(d->state, replay, &error), &error);
    while (beside) {
        begin = seconds();
        bed_run(d, LLM42_FAST, d->rows);
        end = seconds();
        if (args_check(d->backend->poll(d->state, d->backend->now(d->state), &error), &error) == LLM42_OK) break;
        inside[0] += 1e3 * (end - begin), inside[1]++;
    }
    if (beside) return 1e3 * (0.5 * (begin + end) - start);
    args_check(d->backend->poll(d->state, INFINITY, &error), &error);
    return 1e3 * (seconds() - start);
}

static overlap overlap_measure(bench *b) {
    overlap o = {.fast = 2, .replay = 2, .rows = b->set.max_running < 64 ? (int)b->set.max_running : 64};
    if (!b->cuda || !b->backend->start) return o;
    int M = (int)(b->set.window * b->set.group), limit = b->model->config.context;
    o.context = limit < 512 ? limit : 512;
    int windows = (int)b->set.group;
    bed *d = take(sizeof *d);
    bed_open(d, b,
             (bed_plan){.max_rows = M > BED_ROWS ? M : BED_ROWS,
                        .context = o.context,
                        .tables = windows + o.rows,
                        .scattered = true,
                        .fill_rows = BED_ROWS,
                        .fixed_rows = M,
                        .schedules = FAST_BIT | FIXED_BIT,
                        .overlap = true});
    progress("calibrate: overlap");
    bed_windows(d, M, (int)b->set.window, o.context);
    llm42_row *row = take((size_t)M * sizeof *row);
    llm42_output *out = take((size_t)M * sizeof *out);
    memcpy(row, d->row, (size_t)M * sizeof *row);
    llm42_pass replay = {.schedule = LLM42_FIXED, .rows = M, .shape = M, .row = row, .seq = d->seq, .out = out};
    bed_clear(d);
    for (int i = 0; i < o.rows; i++) bed_row(d, windows + i, o.context - 1, true);
    double alone[OVERLAP_REPEATS], inside[2] = {0, 0}, beside = 0;
    double fast = 1e3 * bed_time(d, LLM42_FAST, OVERLAP_REPEATS);
    for (int i = 0; i < OVERLAP_REPEATS; i++) alone[i] = overlap_replay_ms(d, &replay, false, inside);
    overlap_replay_ms(d, &replay, true, (double[2]){0, 0});
    for (int i = 0; i < OVERLAP_REPEATS; i++) beside += overlap_replay_ms(d, &replay, true, inside) / OVERLAP_REPEATS;
    o.replay = fmax(1, beside / median(alone, OVERLAP_REPEATS));
    // Without one wholly beside it the two took turns at best.
    o.fast = inside[1] > 0 ? fmax(1, inside[0] / inside[1] / fast) : o.replay;
    progress(NULL);
    bed_close(d);
    free(d), free(row), free(out);
    return o;
}

// >>calibrate ----------------------------------------------------------------------------------------------------
// The value of the manifest's line `cuda KEY: VALUE`, into text.
static const char *manifest_value(const bench *b, const char *key, char *text, size_t size) {
    char start[64];
    snprintf(start, sizeof start, "cuda %s: ", key);
    const char *line = strstr(b->manifest.text, start);
    snprintf(text, size, "unknown");
    if (line) snprintf(text, size, "%.*s", (int)strcspn(line + strlen(start), "\n"), line + strlen(start));
    return text;
}

// What the simulator reads, but for the table.
static void calibration_keys(const bench *b, const flips *f, const overlap *o, FILE *file) {
    const settings *s = &b->set;
    char name[256];
    bool synthetic = !strncmp(s->model, "synthetic:", 10);  // the simulator needs its shape only
    const char *model = synthetic ? s->model + 10 : s->model;
    fprintf(file, "# llm42 calibration 1\n# source: measured by build/bench --calibrate\n");
    if (b->cuda) fprintf(file, "# device: %s\n# devices: 1\n", manifest_value(b, "device", name, sizeof name));
    else
        fprintf(file, "# device: %s, %d thread%s\n# devices: 1\n", cpu_model(name, sizeof name), (int)s->threads,
                s->threads > 1 ? "s" : "");
    fprintf(file, "# model: %.*s\n", (int)strcspn(model, synthetic ? "," : ""), model);
    double token = (double)llm42_kv_token_bytes(&b->model->config, s->compute);
    fprintf(file, "# time_unit: ms\n# kv_tokens: %.0f\n# padding: %s\n",
            b->cuda ? floor(s->kv_gb * 1073741824.0 / token) : 0, b->cuda && !s->match ? "computed" : "free");
    fprintf(file, "# flip_rate: %.4g\n# flip_shape: %.3g\n", f[CAL_LOADS].rate, f[CAL_LOADS].shape);
    fprintf(file, "# overlap_fast: %.3g\n# overlap_replay: %.3g\n", o->fast, o->replay);
}

static void calibration_head(const bench *b, const cal_grid *g, const flips *f, const overlap *o, FILE *file) {
    const settings *s = &b->set;
    int M = (int)(s->window * s->group);
    calibration_keys(b, f, o, file);
    args_manifest_print(&b->manifest, file);
    if (b->cuda) fprintf(file, "# measured with: llm42 %s, %s, model %s, ", LLM42_VERSION, compiler(), s->model);
    else
        fprintf(file, "# measured with: llm42 %s (%s), %s, compute type %s, ", LLM42_VERSION, llm42_cpu_isa(),
                compiler(), s->dtype);
    fprintf(file, "lower quartile of %d rounds%s\n", g->rounds, s->seconds > 0 ? " or what the time allowed" : "");
    fprintf(file,
            "# rows are decode: one of each sequence, all sampled; window: of windows of %d, all sampled, "
            "under the\n",
            (int)s->window);
    if (b->cuda) fprintf(file, "#   shape of as large a replay pass");
    else fprintf(file, "#   shape of a replay pass of %d", M);
    fprintf(file,
            "; prompt: of one prompt, the last sampled. Where the rows of one prompt\n"
            "#   or window would attend to more than context_tokens from position 0 on, of as many as it takes.\n"
            "# ms includes the %.2g ms that the engine spends between passes for each of their rows. Figures that\n"
            "#   fell with rows or context are pooled with their neighbours (isotonic least squares).\n",
            f[CAL_LOADS].engine_ms);
    if (!b->cuda)
        fprintf(
            file,
            "# padding is free: rows behind those in the list are not computed. KV: as much as an engine asks for.\n"
            "# overlap is not measured: the CPU backend runs one pass at a time, and two would share its cores.\n");
    else
        fprintf(file,
                "# padding is %s. KV: %g GiB.\n"
                "# overlap: decoding %d sequences at context %d beside a replay pass of %d rows, mean of %d.\n",
                s->match ? "free: under match a FIXED pass is no larger than its rows"
                         : "computed: a FIXED pass takes the time of its whole shape",
                s->kv_gb, o->rows, o->context, M, OVERLAP_REPEATS);
    fprintf(file,
            "# flips: %d requests at once, %d tokens in, %d out, all deterministic, W = %d, G = %d, other conditions\n"
            "#   those of build/sweep by default; together over the loads below. The rate depends on the batch and on\n"
            "#   M, since the order does in which FAST and FIXED passes sum:\n",
            (int)s->requests, (int)s->input_tokens, (int)s->output_tokens, (int)s->window, (int)s->group);
    for (int i = 0; i < CAL_LOADS; i++)
        fprintf(file, "#   up to %2d at a time, rate %.5f +- %.5f (%.0f of %.0f candidates)\n",
                (b->cuda ? cal_cuda_loads : cal_loads)[i], f[i].rate,
                f[i].compared_sum > 0 ? sqrt(f[i].changed_sum) / f[i].compared_sum : 0, f[i].changed_sum,
                f[i].compared_sum);
    fprintf(file, "schedule\tkind\trows\tcontext_tokens\tms\n");
}

// Rows of a table on a GPU: no more sequences than run at once; where a backend is opened for each, powers of two.
static bool cuda_has(const bench *b, int table, int rows) {
    bool power = (rows & (rows - 1)) == 0;
    if (cal_tables[table].kind == CAL_DECODE) return rows <= b->set.max_running;
    return power && (cal_tables[table].schedule != LLM42_FIXED || rows >= 16);
}

// Sets the grid's size.
static void grid_size(const bench *b, cal_grid *g) {
    const llm42_config *c = &b->model->config;
    const int *row = b->cuda ? cal_cuda_rows : cal_rows;
    int rows = b->cuda ? CAL_CUDA_ROWS : CAL_ROWS;
    *g = (cal_grid){.rounds = (int)b->set.repeats,
                    .contexts = b->set.quick ? 2 : CAL_CONTEXTS,
                    .context = b->cuda ? cal_cuda_contexts : cal_contexts};
    while (g->contexts > 0 && 2 * g->context[g->contexts - 1] > c->context) g->contexts--;
    if (!g->contexts)
        args_fail(1, "--calibrate: the model's context of %d is shorter than %d", c->context, 2 * g->context[0]);
    if (b->cuda && b->set.quick) rows -= 3;
    // On the CPU as long as their logits take no more than 256 MB.
    while (!b->cuda && row[rows - 1] > MAX_ROWS && (double)row[rows - 1] * c->vocab > 1 << 26) rows--;
    for (int t = 0; t < CAL_TABLES; t++)
        for (int r = 0; r < rows; r++)
            if (!b->cuda || cuda_has(b, t, row[r])) g->row[t][g->rows[t]++] = row[r];
}

// Opens a bed that has room for the grid's cells: on a GPU those of FIXED passes of so many rows, or (0) the others.
static void grid_open(bench *b, const cal_grid *g, bed *d, int fixed_rows) {
    const llm42_config *c = &b->model->config;
    int context = g->context[g->contexts - 1], most = g->row[1][g->rows[1] - 1];
    context += context < most / 2 ? context : most / 2 + 16;  // the end of the longest piece, see bed_pieces
    if (context > c->context) context = c->context;
    double bytes = b->cuda ? (fixed_rows ? 8.0 : 32.0) * 1073741824.0 : 256 << 20;
    double tables = bytes / ((double)llm42_kv_token_bytes(c, b->set.compute) * context);
    int most_tables = b->cuda ? (b->set.quick ? 2 : 64) : BED_ROWS, least = b->cuda ? 2 : 8;
    bed_open(d, b,
             (bed_plan){.max_rows = most,
                        .context = context,
                        .scattered = true,
                        .fixed_rows = fixed_rows,
                        .tables = tables < least         ? least
                                  : tables > most_tables ? most_tables
                                                         : (int)tables,
                        .fill_rows = b->cuda ? most : 0,
                        .schedules = FAST_BIT | (fixed_rows ? FIXED_BIT : INVARIANT_BIT)});
}

static void grid_fill(bench *b, cal_grid *g) {
    bed *d = take(sizeof *d);
    b->cuda_desc.no_check = true;  // the engine below checks
    grid_size(b, g);
    grid_open(b, g, d, 0);
    grid_measure(b, d, g, 0);
    bed_close(d);
    for (int r = 0; b->cuda && r < g->rows[2]; r++) {
        grid_open(b, g, d, g->row[2][r]);
        grid_measure(b, d, g, g->row[2][r]);
        bed_close(d);
    }
    free(d);
}

static void calibrate(const bench *caller) {
    bench *b = take(sizeof *b);
    *b = *caller;
    b->set.requests = b->set.flip_requests;
    if (b->set.input_tokens + b->set.output_tokens > b->model->config.context)
        args_fail(2, "--input-tokens and --output-tokens: their sum is beyond the model's context of %d",
                  b->model->config.context);
    cal_grid *g = take(sizeof *g);
    FILE *file = file_begin(b->set.calibrate);
    grid_fill(b, g);
    overlap o = overlap_measure(b);
    b->cuda_desc.no_check = false;
    flips f[CAL_LOADS + 1];
    flips_all(b, f);
    for (int t = 0; t < CAL_TABLES; t++)
        for (int r = 0; r < g->rows[t]; r++)
            for (int c = 0; c < g->contexts; c++) g->ms[t][r][c] += f[CAL_LOADS].engine_ms * g->row[t][r];
    grid_rise(g);
    calibration_head(b, g, f, &o, file);
    for (int t = 0; t < CAL_TABLES; t++)
        for (int r = 0; r < g->rows[t]; r++)
            for (int c = 0; c < g->contexts; c++)
                fprintf(file, "%s\t%s\t%d\t%d\t%.6g\n", llm42_schedule_name(cal_tables[t].schedule),
                        cal_kind_name[cal_tables[t].kind], g->row[t][r], g->context[c], g->ms[t][r][c]);
    free(g);
    file_finish(file, b->set.calibrate);
    free(b);
}
#endif
