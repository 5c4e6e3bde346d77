// calibrate.c: measures what the simulator needs to know of a backend and writes it as a calibration: pass times by
// schedule, kind of rows, rows and context; the flip rates of candidates and the host's work (flips.c); on a GPU, what
// passes side by side cost each other.
//
// Before and behind each measurement the processor is asked for: what was measured while other programs used it is
// measured again, and so is what repeats disagree on. Where that does not help, nothing is written, unless --force is
// given, and then the file says so (steady.h).
//
// Times are taken of passes alone, on a KV cache of scattered pages. A round times every cell once, so that a slow
// minute of the machine does not fall on one cell. A cell's time in a round is the mean of several passes, because the
// simulator adds passes up. On a CPU a cell's figure is the lower quartile of its rounds: whatever disturbs a round can
// only make it longer. On a GPU it is the median. A GPU runs faster after a pause: large passes draw more power than it
// may for long, and its clock falls within a second. So there each cell's passes run for a while before they are timed.
//
// A GPU computes a FIXED pass at its whole shape, and makes that ready when it opens. So FIXED passes of each number of
// rows are measured on a backend opened for it. INVARIANT windows are measured on a backend opened for no FIXED passes,
// because only such a one makes the shapes of INVARIANT replay passes ready.
#include "sweep/bench/bench.h"

enum { MAX_TURNS = 512, ROWS = 22, CUDA_ROWS = 20, CONTEXTS = 4 };
// The most rows that decode in a table, for passes in which prompts' rows come to them. With recurrent layers each
// takes a state.
static int decode_rows(const bench *b) { return b->model->config.recurrent_layers ? (int)b->set.max_running : 1024; }
// Seconds that the passes of a cell run on a GPU before they are timed, and while they are.
static const double cuda_before = 0.2, cuda_timed = 0.1;
enum { FAST_PROMPT = 1, FIXED_WINDOW = 2, INVARIANT_WINDOW = 6 };  // indices into cost_tables
enum { INVARIANT_REPLAY = -1 };  // stands for the number of fixed rows where a rig is for INVARIANT windows
// Fine where passes are small, since the CPU backend works on tiles of four rows.
static const int cpu_rows[ROWS] = {1,  2,  3,  4,  5,  6,  7,   8,   10,  12,   14,
                                   16, 20, 24, 32, 48, 64, 128, 256, 512, 1024, RIG_ROWS};
static const int cpu_contexts[CONTEXTS] = {16, 64, 256, 1024};
// Products are computed in tiles of up to 128 or 256 rows, so times do not grow evenly between these numbers.
static const int cuda_rows[CUDA_ROWS] = {1,   2,   4,   8,   16,  24,  32,  48,  64,   96,
                                         128, 192, 224, 256, 320, 384, 448, 512, 1024, RIG_ROWS};
static const int cuda_contexts[CONTEXTS] = {64, 512, 2048, 8192};

// >>cells --------------------------------------------------------------------------------------------------------
// Pieces of `length` rows, each of a sequence of its own, that attend to `context` positions in the mean. Short ones
// lie anywhere about there, as those of served requests do: attention costs less where a context fills its last tile.
static void rig_piece_rows(rig *r, int rows, int length, int context, bool sample_all, int turn) {
    if (length > rows) length = rows;
    if (length > 2 * context - 1) length = 2 * context - 1;  // the longest that starts at position 0 and has this mean
    rig_clear(r);
    for (int i = 0; i < rows; i++) {
        int piece = i / length, shift = length < 16 ? (7 * turn + 5 * piece) % 16 - 8 : 0;
        bool last = i == rows - 1 || i % length == length - 1;
        rig_add_row(r, piece, context - (length + 1) / 2 + shift + i % length, sample_all || last);
    }
}

// The cells of the tables that are measured.
typedef struct cost_grid {
    int rows[COST_TABLES], row[COST_TABLES][ROWS];
    int contexts, rounds;
    const int *context;
    steadiness steady;
    double ms[COST_TABLES][ROWS][CONTEXTS];
    double mean_ms[COST_TABLES][ROWS][CONTEXTS][MAX_REPEATS];  // of each round
} cost_grid;

// Milliseconds of one cell in one round, mean of some passes. FIXED windows run under the shape of a whole replay pass,
// as the engine runs them, on a GPU that of their rows; other passes are as large as their rows.
static double cell_ms(const bench *b, rig *r, int table, int rows, int context) {
    llm42_schedule schedule = cost_tables[table].schedule;
    llm42_kind kind = cost_tables[table].kind;
    int M = (int)(b->set.window * b->set.group), count = 0;
    int shape = table == FIXED_WINDOW && M > rows && !b->cuda ? M : rows;
    int length = kind == LLM42_KIND_DECODE ? 1 : kind == LLM42_KIND_WINDOW ? (int)b->set.window : rows;
    if (b->cuda) rig_deal_pages(r, context + length / 2 + 16 < r->context ? context + length / 2 + 16 : r->context);
    double start = wall_seconds(), sum = 0, before = b->cuda ? cuda_before : 0, timed = b->cuda ? cuda_timed : 0.01;
    for (int turn = 0; turn < 2 || !count || ((b->cuda || turn < MAX_TURNS) && wall_seconds() - start < before + timed);
         turn++) {
        rig_piece_rows(r, rows, length, context, kind != LLM42_KIND_PROMPT, turn);
        double begin = wall_seconds();
        rig_run(r, schedule, shape);
        if (begin - start < before) continue;
        // The first warms the caches; on a CPU long passes have no use of that.
        if (!turn && (b->cuda || wall_seconds() - begin < 0.01)) continue;
        sum += wall_seconds() - begin;
        if (++count == 1 && sum > 0.05) break;
    }
    return 1e3 * sum / count;
}

// Is this cell for a rig that was opened for so many fixed rows, or for INVARIANT windows?
static bool cell_wanted(const bench *b, int table, int rows, int fixed_rows) {
    const bool fixed = cost_tables[table].schedule == LLM42_SCHEDULE_FIXED;
    return !b->cuda || fixed_rows == (fixed ? rows : table == INVARIANT_WINDOW ? INVARIANT_REPLAY : 0);
}

// --seconds: what is left of them must do for the flips. One round there is in any case.
static bool grid_late(const bench *b, int fixed_rows) {
    const double share = fixed_rows > 0 ? 0.7 : fixed_rows == INVARIANT_REPLAY ? 0.5 : 0.4;
    return b->set.seconds > 0 && wall_seconds() - b->begun > b->set.seconds * share;
}

// Times every cell once, as repeat `round`.
static void grid_round(const bench *b, rig *r, cost_grid *g, int fixed_rows, int round) {
    for (int t = 0; t < COST_TABLES; t++)
        for (int i = 0; i < g->rows[t]; i++) {
            if (!cell_wanted(b, t, g->row[t][i], fixed_rows)) continue;
            progress("calibrate: round %d of %d, table %d of %d, %d rows", round + 1,
                     round < g->rounds ? g->rounds : round + 1, t + 1, COST_TABLES, g->row[t][i]);
            for (int c = 0; c < g->contexts; c++)
                g->mean_ms[t][i][c][round] = cell_ms(b, r, t, g->row[t][i], g->context[c]);
        }
    progress(NULL);
}

// Takes the figures of so many repeats, and says how well these agree.
static steadiness grid_take(const bench *b, cost_grid *g, int fixed_rows, int rounds) {
    steadiness steady = {.share = 1, .spread = 1};
    for (int t = 0; t < COST_TABLES; t++)
        for (int i = 0; i < g->rows[t]; i++)
            for (int c = 0; c < g->contexts && cell_wanted(b, t, g->row[t][i], fixed_rows); c++) {
                double *ms = g->mean_ms[t][i][c];
                char what[80];
                snprintf(what, sizeof what, "%s %s, %d rows, context %d", llm42_schedule_name(cost_tables[t].schedule),
                         kind_word(cost_tables[t].kind), g->row[t][i], g->context[c]);
                sort_numbers(ms, rounds);
                g->ms[t][i][c] = ms[b->cuda ? rounds / 2 : steady_taken(rounds)];
                steady_repeats(&steady, ms, rounds, what);
            }
    return steady;
}

// Exits where measured times must not be trusted, unless the user wants them all the same.
static void check_steady(const bench *b, const steadiness *steady) {
    char why[256];
    if (steady_enough(steady, why, sizeof why) || b->set.force) return;
    args_fail(1, "--calibrate: %s: end other programs%s, or add --force to have a file that says so", why,
              steady->share < STEADY_SHARE && !b->cuda && b->set.how.threads != 1 ? " or take fewer --threads" : "");
}

double wait_for_processor(const bench *b) {
    double share = processor_share(b);
    for (int i = 0; i < 2 && share < STEADY_SHARE && !b->set.force; i++) {
        progress("calibrate: waiting: this program gets %.0f%% of the processor's time", 100 * share);
        nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
        share = processor_share(b);
    }
    progress(NULL);
    return share;
}

// Rounds, as many as are wanted; then more, up to twice as many, until repeats agree. A round during which other
// programs used the processor does not count, unless --force is given.
static void grid_measure(const bench *b, rig *r, cost_grid *g, int fixed_rows) {
    int rounds = 0, turns = b->set.force ? g->rounds : 2 * g->rounds;
    char why[256];
    steadiness now = {.share = 1, .spread = 1}, busy = now;
    bool late = false;
    for (; turns > 0 && rounds < MAX_REPEATS && !late; turns--) {
        if (rounds >= g->rounds && steady_enough(&now, why, sizeof why)) break;
        double share = wait_for_processor(b);
        if (share >= STEADY_SHARE || b->set.force) {
            grid_round(b, r, g, fixed_rows, rounds);
            share = fmin(share, processor_share(b));
        }
        steady_share(&busy, share);
        if (share >= STEADY_SHARE || b->set.force) now = grid_take(b, g, fixed_rows, ++rounds);
        late = rounds && grid_late(b, fixed_rows);
    }
    if (b->set.force || (rounds < g->rounds && !late)) now.share = busy.share;
    check_steady(b, &now);
    steady_add(&g->steady, &now);
    if (b->cuda)
        printf("calibrate: passes of %d fixed rows (0: fast and invariant, %d: invariant windows), %d rounds; %.0f s "
               "gone by\n",
               fixed_rows, INVARIANT_REPLAY, rounds, wall_seconds() - b->begun);
    fflush(stdout);
}

// Alternates between contexts and rows. What rounding leaves falling is then lifted.
static void grid_make_monotone(cost_grid *g) {
    for (int t = 0; t < COST_TABLES; t++) {
        for (int turn = 0; turn < 200; turn++) {
            for (int r = 0; r < g->rows[t]; r++) make_monotone(g->ms[t][r], g->contexts, 1);
            for (int c = 0; c < g->contexts; c++) make_monotone(&g->ms[t][0][c], g->rows[t], CONTEXTS);
        }
        for (int r = 0; r < g->rows[t]; r++)
            for (int c = 0; c < g->contexts; c++) {
                if (r) g->ms[t][r][c] = fmax(g->ms[t][r][c], g->ms[t][r - 1][c]);
                if (c) g->ms[t][r][c] = fmax(g->ms[t][r][c], g->ms[t][r][c - 1]);
            }
    }
}

// >>calibrate ----------------------------------------------------------------------------------------------------
// The value of the manifest's line `cuda KEY: VALUE`, into text.
static const char *manifest_value(const bench *b, const char *key, char *text, size_t size) {
    char start[64];
    snprintf(start, sizeof start, "cuda %s: ", key);
    const char *line = strstr(b->set.how.manifest.text, start);
    snprintf(text, size, "unknown");
    if (line) snprintf(text, size, "%.*s", (int)strcspn(line + strlen(start), "\n"), line + strlen(start));
    return text;
}

// What the simulator reads, but for the table.
static void calibration_keys(const bench *b, const steadiness *steady, const flips *f, FILE *file) {
    const settings *s = &b->set;
    char name[1024];
    bool synthetic = !strncmp(s->how.model, "synthetic:", 10);  // the simulator needs its shape only
    const char *model = synthetic ? s->how.model + 10 : s->how.model;
    // Results of the simulator repeat the source, and files of one name can be of several revisions.
    fputs("# source: measured by build/bench --calibrate", file);
    if (b->cuda) fprintf(file, ", revision %s of the kernels", manifest_value(b, "kernels", name, sizeof name));
    fputc('\n', file);
    if (b->cuda) fprintf(file, "# device: %s\n", manifest_value(b, "device", name, sizeof name));
    else
        fprintf(file, "# device: %s, %d thread%s\n", processor_name(name, sizeof name), (int)s->how.threads,
                s->how.threads > 1 ? "s" : "");
    const int64_t leaves = s->how.leaves > s->how.tensor_parallel ? s->how.leaves : s->how.tensor_parallel;
    fprintf(file, "# devices: %d\n# leaves: %d\n", used_devices(b), (int)leaves);
    fprintf(file, "# model: %.*s\n", (int)strcspn(model, synthetic ? "," : ""), model);
    double token = (double)llm42_kv_token_bytes(&b->model->config, b->engine.numerics.compute);
    fprintf(file, "# time_unit: ms\n# kv_tokens: %.0f\n# padding: %s\n",
            b->cuda ? floor(s->kv_gb * 1073741824.0 / token) : 0, b->cuda ? "computed" : "free");
    if (b->cuda) fprintf(file, "# pass_rows: %s\n", manifest_value(b, "pass rows", name, sizeof name));
    fprintf(file, "# flip_shape: %.3g\n", f->shape);
    for (int k = 0; k < LLM42_KIND_COUNT; k++)
        fprintf(file, "# host_%s_ms: %.3g\n", kind_word((llm42_kind)k), f->host_ms[k]);
    fprintf(file, "# host_request_ms: 0\n");
    if (b->cuda) fprintf(file, "# window_rows: %d\n", (int)s->window);
    if (!steady_enough(steady, name, sizeof name)) fprintf(file, "# forced: %s\n", name);
}

// What the keys of the host's work were found from.
static void calibration_host(const bench *b, const flips *f, FILE *file) {
    fprintf(file,
            "# host: %s%s%s (M = %d, up to %d at a time):\n"
            "#   least squares over %.0f passes. Of a pass's %.4g ms in the mean, %.3g ms passed in the engine,\n"
            "#   between two passes. %.0f passes that took over three times as long as they should were left out.\n"
            "#   Requests are token ids here. So the work for a request is 0: a server that takes text tokenises it.\n",
            b->cuda ? "what passes took" : "the time between passes", " while requests were served",
            b->cuda ? ", beyond the times in the tables" : "", f->timed_replay, f->load[f->loads - 1],
            (double)f->passes, f->inside_ms + f->outside_ms, f->outside_ms, (double)f->left_out);
}

// The counts that the table of flip rates was made from.
static void calibration_seen(const bench *b, const flips *f, FILE *file) {
    fprintf(
        file,
        "# flips: %d requests%s, %s, prompts %s, the library's own policies but as the options say; with each M at\n"
        "#   several loads (flips.c). Rows or columns of the table that differ by less than %g standard deviations "
        "are\n"
        "#   joined. A cell without candidates has the rate of the nearest one in its column. Flips / candidates:\n"
        "#   fast_rows",
        (int)f->requests, b->set.seconds > 0 ? " or as many as the time allowed" : "", f->workload, b->set.prompts,
        FLIP_DIFFERENT);
    for (int r = 0; r < f->seen.replays; r++)
        if (f->seen.replay[r]) fprintf(file, "  M = %d", f->seen.replay[r]);
        else fprintf(file, "  INVARIANT");
    for (int i = 0; i < f->seen.fasts; i++) {
        fprintf(file, "\n#   %d", f->seen.fast[i]);
        for (int r = 0; r < f->seen.replays; r++)
            fprintf(file, "  %.0f / %.0f", f->seen.cell[i][r].changed, f->seen.cell[i][r].compared);
    }
    fprintf(file, "\n");
}

static void calibration_head(const bench *b, const cost_grid *g, const flips *f, FILE *file) {
    const settings *s = &b->set;
    int M = (int)(s->window * s->group);
    calibration_keys(b, &g->steady, f, file);
    args_manifest_print(&b->set.how.manifest, file);
    if (b->cuda)
        fprintf(file, "# measured with: llm42 %s, %s, model %s, ", LLM42_VERSION, compiler_name(), s->how.model);
    else
        fprintf(file, "# measured with: llm42 %s (%s), %s, compute type %s, ", LLM42_VERSION, llm42_cpu_isa(),
                compiler_name(), s->how.dtype);
    if (s->how.arithmetic) fprintf(file, "arithmetic %s, ", s->how.arithmetic);
    fprintf(file, "%s of %d rounds or more%s\n", b->cuda ? "median" : "lower quartile", g->rounds,
            s->seconds > 0 ? ", or what the time allowed" : "");
    if (b->cuda)
        fprintf(
            file,
            "# Before a cell's passes are timed for %g s, they run for %g s, because a GPU is faster after a pause.\n",
            cuda_timed, cuda_before);
    fprintf(file,
            "# rows are decode: one of each sequence, all sampled; window: of windows of %d, all sampled, fixed ones "
            "under the\n",
            (int)s->window);
    if (b->cuda) fprintf(file, "#   shape of as large a replay pass");
    else fprintf(file, "#   shape of a replay pass of %d", M);
    fprintf(file,
            "; prompt: of one prompt, the last sampled. Where the rows of one prompt\n"
            "#   or window would attend to more than context_tokens from position 0 on, of as many as it takes.\n"
            "# Figures that fell with rows or context are pooled with their neighbours (isotonic least squares).\n");
    if (!b->cuda)
        fprintf(
            file,
            "# padding is free: rows behind those in the list are not computed. KV: as much as an engine asks for.\n");
    else
        fprintf(file, "# padding is computed: a FIXED pass takes the time of its whole shape. KV: %g GiB.\n", s->kv_gb);
    calibration_host(b, f, file);
    calibration_seen(b, f, file);
    fputs(CALIBRATION_COLUMNS, file);
}

// Rows of a table. On a GPU a backend is opened for each number of fixed rows, so these are few.
static bool table_has(const bench *b, int table, int rows) {
    bool power = (rows & (rows - 1)) == 0;
    if (cost_tables[table].kind == LLM42_KIND_DECODE && (b->cuda || b->model->config.recurrent_layers))
        return rows <= decode_rows(b);
    if (!b->cuda) return true;
    if (cost_tables[table].schedule == LLM42_SCHEDULE_FIXED) return power && rows >= 16;
    return table == INVARIANT_WINDOW ? rows > 1 : power || rows > 256;
}

// Sets the grid's size.
static void grid_size(const bench *b, cost_grid *g) {
    const llm42_config *c = &b->model->config;
    const int *row = b->cuda ? cuda_rows : cpu_rows;
    int rows = b->cuda ? CUDA_ROWS : ROWS;
    *g = (cost_grid){.rounds = (int)b->set.repeats,
                     .steady = {.share = 1, .spread = 1},
                     .contexts = b->set.quick ? 2 : CONTEXTS,
                     .context = b->cuda ? cuda_contexts : cpu_contexts};
    while (g->contexts > 0 && 2 * g->context[g->contexts - 1] > c->context) g->contexts--;
    if (!g->contexts)
        args_fail(1, "--calibrate: the model's context of %d is shorter than %d", c->context, 2 * g->context[0]);
    if (b->set.quick) rows -= 3;
    // On the CPU as long as their logits take no more than 256 MB.
    while (!b->cuda && row[rows - 1] > CPU_ROWS && (double)row[rows - 1] * c->vocab > 1 << 26) rows--;
    for (int t = 0; t < COST_TABLES; t++)
        for (int r = 0; r < rows; r++)
            if (table_has(b, t, row[r])) g->row[t][g->rows[t]++] = row[r];
}

// Opens a rig that has room for the grid's cells: on a GPU those of FIXED passes of so many rows, of INVARIANT windows
// (INVARIANT_REPLAY), or (0) the others.
static void grid_open(bench *b, const cost_grid *g, rig *r, int fixed_rows) {
    const llm42_config *c = &b->model->config;
    const bool replay = fixed_rows == INVARIANT_REPLAY;
    int context = g->context[g->contexts - 1], most = g->row[FAST_PROMPT][g->rows[FAST_PROMPT] - 1];
    context += context < most / 2 ? context : most / 2 + 16;  // the end of the longest piece, see rig_piece_rows
    if (context > c->context) context = c->context;
    double bytes = b->cuda ? (fixed_rows ? 8.0 : 32.0) * 1073741824.0 : 256 << 20;
    double tables = bytes / ((double)llm42_kv_token_bytes(c, b->engine.numerics.compute) * context);
    int most_tables = b->set.quick ? (b->cuda ? 2 : 64) : b->cuda ? 64 : RIG_ROWS, least = b->cuda ? 2 : 8;
    rig_open(r, b,
             (rig_desc){.max_rows = most,
                        .context = context,
                        .scattered = true,
                        .fixed_rows = replay ? most : fixed_rows,
                        .running = fixed_rows ? 0 : decode_rows(b),
                        .page_tables = tables < least         ? least
                                       : tables > most_tables ? most_tables
                                                              : (int)tables,
                        .fill_rows = b->cuda ? most : 0,
                        .schedules = FAST_BIT | (replay ? 0 : FIXED_BIT) | (fixed_rows > 0 ? 0 : INVARIANT_BIT)});
}

// Measures the cells of one rig.
static void grid_part(bench *b, cost_grid *g, rig *r, int fixed_rows) {
    grid_open(b, g, r, fixed_rows);
    grid_measure(b, r, g, fixed_rows);
    rig_close(r);
}

static void grid_fill(bench *b, cost_grid *g) {
    rig *r = allocate(sizeof *r);
    b->set.how.cuda.no_check = true;  // the engine below checks
    grid_size(b, g);
    grid_part(b, g, r, 0);
    if (b->cuda) grid_part(b, g, r, INVARIANT_REPLAY);
    for (int i = 0; b->cuda && i < g->rows[FIXED_WINDOW]; i++) grid_part(b, g, r, g->row[FIXED_WINDOW][i]);
    free(r);
}

// The grid as the simulator reads it, with no flips and no host's work. The caller frees it.
static llm42_calibration *cost_of(const bench *b, const cost_grid *g) {
    llm42_calibration *c = allocate(sizeof *c);
    *c = (llm42_calibration){.name = "this", .devices = 1, .flip_shape = 1};
    c->padding_free = !b->cuda;
    c->window_rows = b->cuda ? (double)b->set.window : 0;  // on a CPU attention takes time by rows, not by windows
    char sizes[1024], *next = sizes, *end;
    manifest_value(b, "pass rows", sizes, sizeof sizes);
    c->pass_rows = allocate(sizeof sizes * sizeof *c->pass_rows);
    for (double rows; rows = strtod(next, &end), end > next; next = end) c->pass_rows[c->pass_sizes++] = rows;
    for (int t = 0; t < COST_TABLES; t++) {
        llm42_table *table = &c->cost[cost_tables[t].schedule][cost_tables[t].kind];
        *table = (llm42_table){.xs = g->rows[t], .ys = g->contexts};
        table->x = allocate((size_t)g->rows[t] * sizeof *table->x);
        table->y = allocate((size_t)g->contexts * sizeof *table->y);
        table->value = allocate((size_t)(g->rows[t] * g->contexts) * sizeof *table->value);
        for (int k = 0; k < g->contexts; k++) table->y[k] = g->context[k];
        for (int r = 0; r < g->rows[t]; r++) {
            table->x[r] = g->row[t][r];
            memcpy(table->value + r * g->contexts, g->ms[t][r], (size_t)g->contexts * sizeof *table->value);
        }
    }
    return c;
}

static void cost_free(llm42_calibration *c) {
    free(c->pass_rows);
    for (int t = 0; t < COST_TABLES; t++) {
        llm42_table *table = &c->cost[cost_tables[t].schedule][cost_tables[t].kind];
        free(table->x), free(table->y), free(table->value);
    }
    free(c);
}

void run_calibrate(const bench *caller) {
    bench *b = allocate(sizeof *b);
    *b = *caller;
    b->engine.log_user = &b->set.how.manifest;  // not the caller's
    if (!b->cuda) check_lengths(b);
    cost_grid *g = allocate(sizeof *g);
    FILE *file = out_begin(b->set.calibrate);
    fputs(CALIBRATION_FIRST, file);
    out_flush(file, b->set.calibrate);  // a full disk is found out before the measurement
    check_steady(b, &(steadiness){.share = wait_for_processor(b), .spread = 1});
    grid_fill(b, g);
    b->set.how.cuda.no_check = false;
    grid_make_monotone(g);
    llm42_calibration *cost = cost_of(b, g);
    flips *f = allocate(sizeof *f);
    flips_measure(b, cost, &g->steady, f);
    check_steady(b, &g->steady);
    calibration_head(b, g, f, file);
    for (int t = 0; t < COST_TABLES; t++) {
        calibration_table(file, t, g->rows[t] * g->contexts);
        for (int r = 0; r < g->rows[t]; r++)
            for (int c = 0; c < g->contexts; c++) calibration_row(file, t, g->row[t][r], g->context[c], g->ms[t][r][c]);
    }
    double rate[FLIP_FAST * FLIP_REPLAY];
    for (int i = 0; i < f->grid.fasts; i++)
        for (int r = 0; r < f->grid.replays; r++) rate[i * f->grid.replays + r] = flip_rate_at(&f->grid, i, r);
    calibration_flips(file, f->grid.fast, f->grid.fasts, f->grid.replay, f->grid.replays, rate);
    fputs(CALIBRATION_END, file);
    cost_free(cost);
    free(f);
    free(g);
    out_finish(file, b->set.calibrate);
    free(b);
}
