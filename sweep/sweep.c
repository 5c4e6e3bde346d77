// sweep: runs a grid of serving configurations, simulated or measured (CPU, CUDA), and writes one TSV row a cell.
//
//     build/sweep --calibration sweep/calibration/NAME.tsv --window 16,32,64 --ratio 0.1,1 --out FILE
//     build/sweep ... --cells DIR               keep finished cells in DIR; the same command goes on after a break
//     build/sweep ... --cells DIR --cell 2/8    only the second of eight shares, say of a cluster's job array
//     build/sweep ... --merge DIR --out FILE    join the finished cells of all shares in DIR
//     build/sweep ... --replicas 4,8 --router round_robin,least_tokens    a fleet of engines behind a router
//     build/sweep --backend cpu --workload fixed:64x64 --requests 32    measured here, on a real model
//     build/sweep --backend cuda --model DIR --qps offline    the same on a GPU (make cuda)
//     build/sweep ... --preset dvr,best,paper,invariant    sets of policies beside each other
//
// Results do not depend on the number of threads, on shares or on breaks. sweep/README.md has the columns and examples
// for Slurm and GNU parallel, and sweep/calibration/README.md the format of calibrations.
// The way of a cell: main parses options (parse) and makes the cells (axes_read, grid_make in cells.c), opens what they
// share (section open), and takes those that no file has (cells_to_run). run_cells has a thread call cell_run for each:
// cell_serve opens an engine (cell_engine) or a fleet and serves it, and cell_row makes its line of the result.
// cell_finish keeps the line in a file of --cells, and result_write writes all lines in the order of the grid.
#define _POSIX_C_SOURCE 200809L
#define LLM42_CALIBRATION_IMPLEMENTATION
#define LLM42_IMPLEMENTATION
#include "examples/util/llm42_synthetic.h"
#include "examples/util/llm42_calibration.h"

#define LLM42_DRAFT_IMPLEMENTATION
#define LLM42_TRACE_IMPLEMENTATION
#include "examples/util/llm42_trace.h"
#include "sweep/lib/common.h"
#include "sweep/lib/draft.h"
#include "sweep/lib/fleet.h"
#include "sweep/lib/serve.h"
#include "sweep/sweep/cells.h"

#include <sys/resource.h>

enum { CPU_RUNNING = 32, CUDA_RUNNING = 256, SIM_RUNNING = 2048, CHUNK = 2048, WHOLE = 16384 };

typedef struct settings {
    const char *backend, *calibration, *workload, *model, *out, *cells, *cell, *merge, *per_request, *trace;
    const char *algorithm_file, *prompts;
    int64_t devices;
    const char *list[AXES];
    int64_t requests, threads, kv_tokens, page_size, token_budget, deadline;
    int64_t max_context, pages, warm_up, leave_out;
    double admission_reserve, gate, flip_scale, flip_spread, draft_spread, kv_gb, seconds;
    bool prefix_cache, draft_ordinary, draft_always, no_flips, offered, list_only, quiet, timing;
    bool fleet;             // --replicas was given
    int64_t share, shares;  // of --cell
} settings;

typedef struct sweep {
    settings set;
    bool sim, cuda;
    grid grid;
    llm42_calibration *calibration;  // sim only
    char calibration_found[4096];    // its file, if set.calibration is not from the working folder
    const llm42_backend *backend;
    llm42_model *model;
    serve_plan plan;
    int64_t pages;              // of the KV pool; 0: the engine's default
    int budget[2];              // rows of a pass with chunked prefill off, on
    char workload[128];         // as results have it: no folders
    char *configuration;        // all that cells have in common, one line
    prompt_set *prompts;        // stb_ds array; cpu, and cuda with --prompts own
    args_manifest manifest;     // of the engines opened
    int64_t printed;            // rows on standard output so far
    FILE *out;                  // NULL: nothing is written yet
    llm42_trace *trace;         // of a cell that has failed: kept here, since exit gives its file the name .unfinished
    int64_t to_do, cells_done;  // cells to run, and run
    double work, work_done;     // of all of them, by progress_weight
    double began, shown;        // wall clock of the progress line, seconds
} sweep;

// >>progress -----------------------------------------------------------------------------------------------------
static bool progress_wanted(const sweep *s) { return !s->set.quiet && args_is_terminal(stderr); }

static void progress_clear(const sweep *s) {
    if (progress_wanted(s)) fprintf(stderr, "\r\033[K");
}

// Roughly what one request of a cell costs to run, in units of one without verification: passes are what costs.
static double progress_weight(const sweep *s, const cell *c) {
    double ratio = cell_number(&s->grid, c, RATIO, 0);
    double rows = cell_number(&s->grid, c, WINDOW, 1) * cell_number(&s->grid, c, GROUP, 1);
    return 1 + 2 * ratio * (1 + 32 / rows);
}

// Adds work that was done, and shows the line on a terminal: at most five times a second.
static void progress_show(sweep *s, double work) {
    PARALLEL("omp critical(progress)") {
        double now = wall_seconds(), took = now - s->began;
        s->work_done += work;
        if (progress_wanted(s) && now - s->shown >= 0.2) {
            double share = s->work_done / s->work, left = share > 0 ? took * (1 - share) / share : 0;
            fprintf(stderr, "\r\033[K%" PRId64 " of %" PRId64 " cells, %.1f%% of the work", s->cells_done, s->to_do,
                    100 * share);
            if (took > 2 && share > 0) fprintf(stderr, ", %.0f:%02d left", floor(left / 60), (int)fmod(left, 60));
            fflush(stderr);
            s->shown = now;
        }
    }
}

// >>serve --------------------------------------------------------------------------------------------------------
// A cell that runs, for the progress line.
typedef struct cell_run_of {
    sweep *s;
    cell *c;
    int64_t counted;  // requests that progress has counted as finished
} cell_run_of;

// Pages that a cell's engine takes. The simulator's pool is only a table of pages, but one for billions of tokens would
// take gigabytes. So pages that no request can ever need are left out, which changes no result: at most max_running
// requests run at once, each holds at most the pages of the longest request, and admission keeps at most as many more
// free for it (and one, by rounding); the prefix cache keeps at most the pages of every request; and the engine checks
// itself with a page for each that can run. (Only a planner that reads .pages_free sees the difference.)
static int engine_pages(const sweep *s) {
    const serve_plan *p = &s->plan;
    int64_t longest = (p->max_context + s->set.page_size - 1) / s->set.page_size;
    int64_t running = p->requests < p->max_running ? p->requests : p->max_running;
    int64_t needed = 2 * (longest + 1) * running + p->max_running;
    if (s->set.prefix_cache) needed += longest * p->requests;
    return (int)(s->sim && needed < s->pages ? needed : s->pages);
}

static llm42_engine_desc cell_engine(const sweep *s, const cell *c) {
    llm42_engine_desc desc = {.model = s->model,
                              .backend = s->backend,
                              .tensor_parallel = 1,
                              .numerics.leaves = 1,
                              .max_context = s->plan.max_context,
                              .max_running = s->plan.max_running,
                              .kv.page_size = (int)s->set.page_size,
                              .kv.pages = engine_pages(s),
                              .policy.deadline = (int)s->set.deadline,
                              .draft_ordinary = s->set.draft_ordinary,
                              .kv.admission_reserve = s->set.admission_reserve,
                              .experiment.gate = s->set.gate,
                              .kv.prefix_cache = s->set.prefix_cache};
    cell_desc(&s->grid, c, &desc);
    desc.token_budget = s->budget[desc.policy.chunked_prefill == LLM42_CHUNKED_ON];
    return desc;
}

static void cell_progress(serving *v) {
    cell_run_of *run = v->user;
    double done = (double)(v->collected.finished - run->counted) / (double)v->collected.requests;
    progress_show(run->s, done * progress_weight(run->s, run->c));
    run->counted = v->collected.finished;
}

static void row_print(const sweep *s, const cell *c, FILE *file, const metrics *m) {
    fprintf(file, "%s\t%s\t%s\t%" PRId64, s->set.backend, s->sim ? s->calibration->name : "-", s->workload,
            s->set.requests);
    for (int a = 0; a < AXES; a++)
        if (!s->grid.hidden[a]) fprintf(file, "\t%s", cell_text(&s->grid, c, (axis_name)a));
    metrics_print(file, m);
    if (!s->grid.hidden[DRAFT]) fprintf(file, "\t%.0f\t%.0f", m->drafted, m->accepted);
}

static int row_columns(const sweep *s) {
    int columns = 4;
    for (int a = 0; a < AXES; a++) columns += !s->grid.hidden[a];
#define X(name, format) columns++;
    METRICS(X)
#undef X
    return columns + (s->grid.hidden[DRAFT] ? 0 : 2);
}

// Sets the cell's row.
static llm42_result cell_row(const sweep *s, fleet *f, cell *c, llm42_error *error) {
    metrics m = {0};
    TRY(f->replica ? fleet_figures(f, &m, error) : serving_figures(&f->v, &m, error));
    size_t size = 0;
    FILE *file = open_memstream(&c->row, &size);
    if (file) row_print(s, c, file, &m);
    if (!file || fclose(file)) return llm42_fail(error, LLM42_MEMORY, "out of memory for the figures of a cell");
    return LLM42_OK;
}

// A line for each request, in order of submission.
static llm42_result per_request_write(const sweep *s, const cell *c, const serving *v, llm42_error *error) {
    const char *path = s->set.per_request;
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    if (!file) return llm42_fail(error, LLM42_MEMORY, "%s: out of memory", path);
    fprintf(file,
            "# llm42 %s sweep, each request of one cell\n# configuration: %s\n# cell: %s\n"
            "# times in seconds, from the first request's arrival and from the request's own\n"
            "request\tdeterministic\tinput_tokens\toutput_tokens\tarrival_s\tttft_s\te2e_s\tverifications\trollbacks\t"
            "recomputed%s\n",
            LLM42_VERSION, s->configuration, cell_name(&s->grid, c).text, s->set.fleet ? "\treplica" : "");
    for (int64_t i = 0; i < v->collected.requests; i++) {
        const served *r = &v->collected.served[i];
        fprintf(file, "%" PRId64 "\t%d\t%d\t%d\t%.9g\t%.9g\t%.9g\t%d\t%d\t%d", i + 1, r->deterministic, r->input,
                r->output, r->arrival - v->collected.begin, r->ttft, r->e2e, r->verifications, r->rollbacks,
                r->recomputed);
        if (s->set.fleet) fprintf(file, "\t%d", r->replica + 1);
        fputc('\n', file);
    }
    bool good = !fclose(file) && file_write(path, text);
    if (!good) llm42_fail(error, LLM42_IO, "%s: cannot write: %s", path, strerror(errno));
    free(text);
    return good ? LLM42_OK : LLM42_IO;
}

static llm42_cuda_desc cuda_desc(const sweep *s, int ranks) {
    return (llm42_cuda_desc){.algorithm_file = s->set.algorithm_file,
                             .devices = args_devices(ranks, s->set.devices),
                             .fast = s->set.offered ? LLM42_CUDA_FAST_OFFERED : LLM42_CUDA_FAST_FASTEST};
}

// Serves the cell on a fleet. Where deterministic requests have replicas of their own and passes are batch-invariant,
// the others' passes are FAST.
static llm42_result cell_serve_fleet(const sweep *s, const cell *c, llm42_engine_desc desc, fleet *f,
                                     llm42_error *error) {
    const grid *g = &s->grid;
    fleet_desc d = {.oracle = f->desc.oracle,
                    .replicas = (int)cell_number(g, c, REPLICAS, 1),
                    .router = (fleet_router)cell_value(g, c, ROUTER)->word,
                    .engine = desc,
                    .set_apart = desc,
                    .planner = cell_text(g, c, PLANNER)};
    bool some = desc.policy.mode == LLM42_MODE_BATCH_INVARIANT && d.router == DETERMINISTIC_APART;
    d.ratio = desc.policy.mode == LLM42_MODE_NONDETERMINISTIC ? 0 : cell_number(g, c, RATIO, 1);
    d.apart = fleet_apart(d.router, d.replicas, (int)cell_number(g, c, APART, 0), d.ratio);
    if (some && (d.apart || d.ratio == 0)) d.engine.policy.mode = LLM42_MODE_NONDETERMINISTIC;
    TRY(fleet_open(f, &d, cell_text(g, c, QPS), (uint64_t)cell_number(g, c, SEED, 0), error));
    return fleet_serve(f, error);
}

static llm42_result cell_serve(sweep *s, cell *c, fleet *f, own_planner *own, sim_drafter *drafter,
                               llm42_error *error) {
    serving *v = &f->v;
    const grid *g = &s->grid;
    uint64_t seed = (uint64_t)cell_number(g, c, SEED, 0);
    const llm42_sim_desc sim = {.calibration = s->calibration,
                                .seed = seed,
                                .flip_scale = s->set.flip_scale,
                                .no_flips = s->set.no_flips,
                                .invariant_slowdown = cell_number(g, c, SLOWDOWN, 0)};
    llm42_engine_desc desc = cell_engine(s, c);
    const llm42_cuda_desc cuda = cuda_desc(s, desc.tensor_parallel);
    const llm42_cpu_desc cpu = {.threads = (int)s->set.threads};
    desc.backend_desc = s->sim ? (const void *)&sim : s->cuda ? (const void *)&cuda : &cpu;
    desc.log = s->cuda ? args_manifest_log : NULL;
    desc.log_user = &s->manifest;
    for (int i = 0; i < (int)arrlen(s->prompts); i++)
        if (s->prompts[i].seed == seed) v->prompts = &s->prompts[i];
    v->trace_speed = cell_number(g, c, TRACE_SPEED, 0);
    v->submit_late = is_default_planner(PLANNER, cell_value(g, c, PLANNER));
    const bool drafts = cell_value(g, c, DRAFT) && cell_value(g, c, DRAFT)->word < 0;
    f->desc.oracle = (llm42_oracle_desc){.truth = drafts ? sim_drafter_truth : NULL,
                                         .rate = cell_number(g, c, DRAFT, 0),
                                         .spread = s->set.draft_spread,
                                         .always = s->set.draft_always};
    if (s->set.fleet) return cell_serve_fleet(s, c, desc, f, error);
    if (drafts) TRY(sim_drafter_open(drafter, &desc, &f->desc.oracle, error));
    TRY(own_planner_open(own, cell_text(g, c, PLANNER), &desc, error));
    TRY(serving_open(v, desc, cell_text(g, c, QPS), seed, cell_number(g, c, RATIO, 0), error));
    if (s->set.trace) TRY(llm42_trace_open(&v->collected.trace, s->set.trace, error));
    return serve(v, error);
}

// Runs a cell and sets its row, or its error.
static void cell_run(sweep *s, cell *c) {
    llm42_error error = {0};
    cell_run_of run = {.s = s, .c = c};
    fleet f = {.v = {.s = &s->plan, .progress = cell_progress, .user = &run}};  // only a fleet has replicas
    own_planner own = {0};
    sim_drafter drafter = {0};
    llm42_result result = cell_serve(s, c, &f, &own, &drafter, &error);
    if (result) s->trace = f.v.collected.trace;  // is kept as NAME.unfinished
    else result = llm42_trace_close(f.v.collected.trace, &error);
    if (!result) result = cell_row(s, &f, c, &error);
    if (!result && s->set.per_request) result = per_request_write(s, c, &f.v, &error);
    if (result) snprintf(c->error, sizeof c->error, "%s", error.text[0] ? error.text : llm42_result_text(result));
    fleet_close(&f);
    own_planner_close(&own);
    llm42_drafter_close(&drafter.drafter);
}

// >>prompts ------------------------------------------------------------------------------------------------------
// The prompts of every seed that a cell still to be run has: made before any time is taken.
static void prompts_of_cells(sweep *s, cell **cells) {
    llm42_error error = {0};
    for (int64_t i = 0; i < arrlen(cells); i++) {
        uint64_t seed = (uint64_t)cell_number(&s->grid, cells[i], SEED, 0);
        bool there = false;
        for (int64_t k = 0; k < arrlen(s->prompts); k++) there |= s->prompts[k].seed == seed;
        if (there) continue;
        if (progress_wanted(s)) fprintf(stderr, "\r\033[Kmaking prompts");
        const llm42_cuda_desc cuda = cuda_desc(s, 1);
        const llm42_cpu_desc cpu = {.threads = (int)s->set.threads};
        const llm42_engine_desc desc = {.model = s->model,
                                        .backend = s->backend,
                                        .kv.pages = s->cuda ? (int)s->pages : 0,
                                        .kv.page_size = (int)s->set.page_size,
                                        .backend_desc = s->cuda ? (const void *)&cuda : &cpu};
        prompt_set made = {.seed = seed};
        args_check(prompts_make(&made, &s->plan, desc, &error), &error);
        arrput(s->prompts, made);
    }
}

// >>grid ---------------------------------------------------------------------------------------------------------
static file_name path_of(const sweep *s, const char *folder, const cell *c) {
    return cell_path(folder, s->configuration, &s->grid, c);
}

// Takes over what --cells or --merge has of a cell.
static cell_state cell_load(sweep *s, cell *c, const char *folder) {
    return cell_read(folder, s->configuration, &s->grid, c, row_columns(s), &s->manifest);
}

// The cells of this share that have no finished file yet (stb_ds array).
static cell **cells_to_run(sweep *s) {
    cell **left = NULL;
    for (int64_t i = 0; i < arrlen(s->grid.cells); i++) {
        cell *c = &s->grid.cells[i];
        if (i % s->set.shares != s->set.share) continue;  // neighbours in the grid cost much the same: deal them out
        cell_state state = s->set.cells ? cell_load(s, c, s->set.cells) : CELL_MISSING;
        if (state > CELL_MISSING)
            fprintf(stderr, "%s: %s: %s: run again\n", args_program, path_of(s, s->set.cells, c).text,
                    cell_state_text[state]);
        if (state != CELL_DONE) arrput(left, c);
    }
    return left;
}

static void cell_finish(sweep *s, cell *c) {
    if (c->error[0] || !s->set.cells) return;
    if (!cell_write(s->set.cells, s->configuration, &s->grid, c, &s->manifest))
        snprintf(c->error, sizeof c->error, "%.300s: cannot write: %s", path_of(s, s->set.cells, c).text,
                 strerror(errno));
}

// What the folder of --merge has beside the cells of this configuration: a text of "; 12 cells of another
// configuration: requests 201 (here 200)" for each, to be freed. *ours: cells of this one, of whatever grid.
static char *others_text(const sweep *s, int64_t *ours) {
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    if (!file) args_fail(1, "out of memory");
    found *all = configurations_find(s->set.merge);
    *ours = 0;
    for (int64_t i = 0; i < arrlen(all); i++) {
        if (!strcmp(all[i].configuration, s->configuration)) {
            *ours = all[i].cells;
        } else {
            fprintf(file, "; %" PRId64 " cell%s of another configuration: ", all[i].cells, all[i].cells > 1 ? "s" : "");
            differences_print(file, all[i].configuration, s->configuration);
        }
        free(all[i].configuration);
    }
    arrfree(all);
    if (fclose(file)) args_fail(1, "out of memory");
    return text;
}

// Takes every row of the grid from its file, and says what the folder has.
static void merge_cells(sweep *s) {
    int64_t count = arrlen(s->grid.cells), bad = 0;
    const cell *first = NULL;
    cell_state what = CELL_DONE;
    struct stat folder;
    if (stat(s->set.merge, &folder) || !S_ISDIR(folder.st_mode)) args_fail(1, "%s: no such folder", s->set.merge);
    for (int64_t i = 0; i < count; i++) {
        cell_state state = cell_load(s, &s->grid.cells[i], s->set.merge);
        if (state == CELL_DONE) continue;
        if (!bad++) first = &s->grid.cells[i], what = state;
    }
    int64_t ours;
    char *others = others_text(s, &ours);
    if (bad)
        args_fail(1, "%s: %s; %" PRId64 " of the grid's %" PRId64 " cells are not done: run them with --cells %s%s%s",
                  path_of(s, s->set.merge, first).text, cell_state_text[what], bad, count, s->set.merge,
                  others[0] ? "; it has" : "", others[0] ? others + 1 : "");
    if (!s->set.quiet || others[0])
        fprintf(stderr, "%s: %s: %" PRId64 " cells of this configuration, %" PRId64 " of them in this grid%s%s\n",
                args_program, s->set.merge, ours, count, others, others[0] ? "; only this one is merged" : "");
    free(others);
}

// >>output -------------------------------------------------------------------------------------------------------
// What the columns mean, and their names.
static void columns_print(const sweep *s, FILE *file) {
    fputs("# duration_s: first arrival to last token at its client; total_tok_per_s counts prompts too\n"
          "# det, nondet: requests marked deterministic, or not\n"
          "# itl: between releases of tokens, to 0.4%; percentiles by nearest rank\n"
          "# recompute_pct: of all returned tokens; rollbacks_per_request: of deterministic ones\n"
          "# passes_fast, _fixed, _invariant: all passes, by schedule; passes_replay: those of them, of any schedule,\n"
          "# that verify windows, and FIXED ones with prompts; replay_busy_pct: these, of the time in passes\n"
          "# running_mean: over duration_s\n"
          "# offered_per_s: requests, over the time of arrivals; served_per_s: over duration_s\n"
          "# overloaded: 1 if requests arrive faster than they are served, so that latencies grow with their number; "
          "nan\n"
          "# if the run is too short to tell, or they all arrive at once\n"
          "# nan, -: does not apply\n"
          "backend\tcalibration\tworkload\trequests",
          file);
    for (int a = 0; a < AXES; a++)
        if (!s->grid.hidden[a]) fprintf(file, "\t%s", axis_column((axis_name)a));
#define X(name, format) fputs("\t" #name, file);
    METRICS(X)
#undef X
    if (!s->grid.hidden[DRAFT]) fputs("\tdrafted\taccepted", file);
    fputc('\n', file);
}

// The largest M of the FIXED passes whose flips the calibration knows. build/bench lists in a comment those that it
// served. What was fitted to published runs knows those of 512 rows.
static int64_t flips_known(const char *path) {
    char line[4096];
    int64_t most = 0;
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        for (const char *at = line; !strncmp(line, "#   fast_rows  ", 15) && (at = strstr(at, "  M = ")); at += 6)
            most = strtoll(at + 6, NULL, 10);
    if (file) fclose(file);
    return most ? most : 512;
}

// Says in how many cells what is recomputed was extrapolated, and in how many nothing can be.
static void flips_print(const sweep *s, FILE *file) {
    const int64_t known = flips_known(s->set.calibration);
    const int64_t cells = arrlen(s->grid.cells);
    int64_t beyond = 0, none = 0;
    for (int64_t i = 0; i < cells; i++) {
        llm42_engine_desc desc = {0};
        cell_desc(&s->grid, &s->grid.cells[i], &desc);
        const llm42_policy *p = &desc.policy;
        if (p->mode != LLM42_MODE_DVR && p->mode != LLM42_MODE_HYBRID) continue;
        if (cell_number(&s->grid, &s->grid.cells[i], RATIO, 1) == 0) continue;  // nothing is verified
        const bool fixed = p->verifier != LLM42_VERIFIER_INVARIANT;
        double rate = 0;
        for (int rows = 1; rows <= 1 << 16; rows *= 2)
            rate += llm42_calibration_flip_rate(s->calibration, rows, fixed ? (double)p->window * p->group : 0);
        if (rate == 0) none++;
        else if (fixed) beyond += (int64_t)p->window * p->group > known;
    }
    if (s->set.no_flips || s->set.flip_scale == 0) return;
    if (beyond)
        fprintf(file,
                "# extrapolated: in %" PRId64 " of %" PRId64
                " cells a replay pass has more rows (W x G) than the %" PRId64
                " up to which flips are known, so recompute_pct is a guess\n",
                beyond, cells, known);
    if (none)
        fprintf(file,
                "# no flips: in %" PRId64 " of %" PRId64 " cells nothing is rolled back, because the calibration has "
                "no flips for such replay passes\n",
                none, cells);
}

static void header_print(const sweep *s, FILE *file) {
    const llm42_calibration *k = s->calibration;
    char name[256];
    fprintf(file, "# llm42 %s sweep\n", LLM42_VERSION);
    if (s->sim) {
        fprintf(file, "# simulated: no model ran; pass times and rollbacks come from calibration %s\n", k->name);
        fprintf(file, "# source: %s%s%s\n# device: %s\n# devices: %d\n", k->source,
                k->forced[0] ? "; doubtful, written with --force: " : "", k->forced, k->device, k->devices);
        if (k->leaves > 1) fprintf(file, "# leaves: %d, of INVARIANT passes\n", k->leaves);
    } else {
        fprintf(file, "# measured on this machine: %s %s", s->cuda ? "cuda, host" : "cpu",
                processor_name(name, sizeof name));
        if (!s->cuda) fprintf(file, ", %" PRId64 " threads", s->set.threads);
        fprintf(file, ", model %s\n", s->set.model);
        args_manifest_print(&s->manifest, file);
        fputs(s->plan.random_prompts
                  ? "# prompts: token ids drawn from the seed, the same in every cell\n"
                  : "# prompts: the model's own samples at temperature 1; of traces that share prefixes, random\n",
              file);
        if (s->plan.warm_up)
            fprintf(file, "# %" PRId64 " short requests are served in each cell before the clock starts\n",
                    s->plan.warm_up);
    }
    fprintf(file, "# configuration: %s\n# grid:", s->configuration);
    for (int a = 0; a < AXES; a++) {
        if (s->grid.hidden[a]) continue;
        const value *first = &s->grid.values[a][0];
        if (first->word == AS_PRESET || (s->grid.count[a] == 1 && is_default_planner((axis_name)a, first))) continue;
        fprintf(file, "%s %s ", a ? ";" : "", axes[a].name);
        for (int i = 0; i < s->grid.count[a]; i++) fprintf(file, "%s%s", i ? "," : "", s->grid.values[a][i].text);
    }
    fputc('\n', file);
    if (s->sim) flips_print(s, file);
    if (s->plan.empty)
        fprintf(file, "# empty: 0 input or output tokens count as 1, in %" PRId64 " of the file's requests\n",
                s->plan.empty);
    if (s->set.leave_out)
        fprintf(file, "# percentiles: without the first %" PRId64 " requests of each cell\n", s->set.leave_out);
    if (s->plan.clipped)
        fprintf(file,
                "# lengths: prompts, and outputs where no prompt would be left, are cut to the context of %d tokens\n",
                s->plan.max_context);
    if (s->set.fleet)
        fputs(
            "# replicas: engines behind a router; the figures are of all of them together, running_mean is their sum\n",
            file);
    columns_print(s, file);
}

// Rows not written yet, in the grid's order, up to the first cell that has not run. The header comes with the first of
// them, when the backend has said what it is.
static void result_stream(sweep *s) {
    if (!s->printed) header_print(s, stdout);
    for (; s->printed < arrlen(s->grid.cells) && s->grid.cells[s->printed].row; s->printed++)
        printf("%s\n", s->grid.cells[s->printed].row);
    fflush(stdout);
}

static int64_t cells_done(const sweep *s) {
    int64_t done = 0;
    for (int64_t i = 0; i < arrlen(s->grid.cells); i++) done += s->grid.cells[i].row != NULL;
    return done;
}

// Writes the cells that have run: to --out the whole file anew, to standard output what is not there yet. --out gets
// its name with the last call; of a run that fails or is interrupted before, the cells are in NAME.unfinished, unless
// --cells has them already.
static void result_write(sweep *s, bool last) {
    const int64_t done = cells_done(s), count = arrlen(s->grid.cells);
    if (!s->set.out && (s->sim || done)) result_stream(s);
    if (!s->set.out || (!last && s->set.cells)) return;
    struct stat status;
    if (!s->out) s->out = out_begin(s->set.out);
    FILE *file = s->out;
    const bool regular = !fstat(fileno(file), &status) && S_ISREG(status.st_mode);
    if (!last && !regular) return;
    if (regular && (fseek(file, 0, SEEK_SET) || ftruncate(fileno(file), 0)))
        args_fail(1, "%s: cannot write: %s", s->set.out, strerror(errno));
    header_print(s, file);
    for (int64_t i = 0; i < count; i++)
        if (s->grid.cells[i].row) fprintf(file, "%s\n", s->grid.cells[i].row);
    if (done < count) fprintf(file, "# unfinished: %" PRId64 " of %" PRId64 " cells have run\n", done, count);
    if (last && !llm42_file_finish(file)) args_fail(1, "%s: cannot write: %s", s->set.out, strerror(errno));
    if (last) return;
    llm42_file_keep(file, "# unfinished: the run has failed or was ended\n");
    out_flush(file, s->set.out);
}

// Warns of cells whose latencies say how long the queue has grown, or may do so. Rows may come from files, so the text
// of a row is what counts: its last three columns before those of drafts.
static void overload_print(const sweep *s) {
    const cell *worst = NULL;
    const int columns = s->grid.hidden[DRAFT] ? 3 : 5;
    int64_t cells = 0, rows = 0, doubtful = 0;
    double least = 0, offered = 0, served = 0, overloaded = 0, worst_offered = 0;
    for (int64_t i = 0; i < arrlen(s->grid.cells); i++) {
        const cell *c = &s->grid.cells[i];
        const char *last = c->row ? c->row + strlen(c->row) : NULL;
        for (int tabs = 0; last && last > c->row && tabs < columns; tabs += *last == '\t') last--;
        rows += last != NULL;
        if (!last || sscanf(last, "%lf %lf %lf", &offered, &served, &overloaded) != 3) continue;
        doubtful += !isnan(offered) && isnan(overloaded);
        if (overloaded != 1) continue;
        if (!cells++ || served * worst_offered < least * offered) worst = c, least = served, worst_offered = offered;
    }
    if (cells) {
        fprintf(stderr, "%s: overloaded: ", args_program);
        if (rows > 1) fprintf(stderr, "%" PRId64 " of %" PRId64 " cells; ", cells, rows);
        for (int a = 0; a < AXES; a++)
            if (s->grid.count[a] > 1)
                fprintf(stderr, "%s %s, ", axes[a].name, cell_text(&s->grid, worst, (axis_name)a));
        fprintf(stderr, "served %.3g of %.3g/s, latencies grow with --requests\n", least, worst_offered);
    }
    if (doubtful && !s->set.quiet)
        fprintf(stderr, "%s: %" PRId64 " of %" PRId64 " cells may be overloaded: too short to tell, raise --requests\n",
                args_program, doubtful, rows);
}

// The value of a comment of a result, up to the end of its line; NULL: it has none.
static const char *comment_of(const char *text, const char *key) {
    const char *at = strstr(text, key);
    return at && at != text && at[-1] == '\n' ? at + strlen(key) : NULL;
}

// A run that was ended has left NAME.unfinished. Now that NAME is whole, those of the same settings hold nothing that
// it has not, and are removed. Others stay, and are named.
static void remove_unfinished(const sweep *s) {
    char name[LLM42_FILE_PATH], path[LLM42_FILE_PATH + 32], *whole, *part;
    size_t size;
    if (!llm42_file_follow(s->set.out, name) || file_read(name, &whole, &size, NULL)) return;
    for (int n = 1; n < 1000; n++) {
        snprintf(path, sizeof path, "%.4060s.unfinished", name);
        if (n > 1) snprintf(path + strlen(path), 32, ".%d", n);
        if (file_read(path, &part, &size, NULL)) continue;
        bool same = true;
        for (int i = 0; i < 2; i++) {
            const char *key = i ? "# grid:" : "# configuration:", *a = comment_of(whole, key),
                       *b = comment_of(part, key);
            same &= a && b && strcspn(a, "\n") == strcspn(b, "\n") && !strncmp(a, b, strcspn(a, "\n"));
        }
        if (same) remove(path);
        if (!s->set.quiet)
            fprintf(stderr, "%s: %s: %s\n", args_program, path,
                    same ? "removed: the result has all of it" : "left as it is: it is of other settings");
        free(part);
    }
    free(whole);
}

// Says what is not as the files of the command line have it.
static void say_otherwise(const sweep *s) {
    if (s->set.quiet) return;
    if (s->plan.timed && s->set.list[QPS] == axes[QPS].list)
        fprintf(stderr, "%s: --qps: %s, not the arrivals of %s: --qps trace takes these\n", args_program,
                axes[QPS].list, s->workload);
    if (s->plan.empty)
        fprintf(stderr, "%s: --workload: 0 input or output tokens count as 1, in %" PRId64 " of the requests of %s\n",
                args_program, s->plan.empty, s->workload);
    const int64_t kv = s->sim && !s->set.pages && !s->set.kv_tokens ? s->calibration->kv_tokens : 0;
    if (kv && s->pages > kv / s->set.page_size)
        fprintf(stderr, "%s: the KV pool has room for the longest request, %d tokens: kv_tokens of %s is %" PRId64 "\n",
                args_program, s->plan.max_context, s->calibration->name, kv);
}

// Opens the simulated engine of each cell, which takes no time, since what is wrong with a cell comes out there.
static void list_check(const sweep *s) {
    llm42_engine_desc last = {0};
    for (int64_t i = 0; s->sim && i < arrlen(s->grid.cells); i++) {
        const llm42_sim_desc sim = {.calibration = s->calibration, .seed = 42};
        llm42_engine_desc desc = cell_engine(s, &s->grid.cells[i]);
        llm42_engine *engine = NULL;
        llm42_error error = {0};
        if (i && !memcmp(&desc, &last, sizeof desc)) continue;
        last = desc, desc.backend_desc = &sim;
        args_check(llm42_engine_open(&engine, &desc, &error), &error);
        llm42_engine_close(engine);
    }
}

static void list_print(const sweep *s) {
    printf("cell\tname");
    for (int a = 0; a < AXES; a++)
        if (!s->grid.hidden[a]) printf("\t%s", axis_column((axis_name)a));
    printf("\n");
    for (int64_t i = 0; i < arrlen(s->grid.cells); i++) {
        const cell *c = &s->grid.cells[i];
        printf("%" PRId64 "\t%s", i + 1, cell_name(&s->grid, c).text);
        for (int a = 0; a < AXES; a++)
            if (!s->grid.hidden[a]) printf("\t%s", cell_text(&s->grid, c, (axis_name)a));
        printf("\n");
    }
}

// >>run ----------------------------------------------------------------------------------------------------------
// --seconds: no cell is begun after so many.
static bool out_of_time(const sweep *s) { return s->set.seconds > 0 && wall_seconds() - s->began >= s->set.seconds; }

// Ends the program if it was asked to, and says how to go on.
static void stop_if_asked(const sweep *s) {
    char how[4400];
    const int64_t done = cells_done(s), count = arrlen(s->grid.cells);
    if (s->set.cells)
        snprintf(how, sizeof how, "; %" PRId64 " of %" PRId64 " cells are in %.4200s, and the same command goes on",
                 done, count, s->set.cells);
    else
        snprintf(how, sizeof how,
                 "; %" PRId64 " of %" PRId64 " cells have run: with --cells DIR, which keeps each in a file, the same "
                 "command would go on",
                 done, count);
    args_stop_saying(how, NULL);
}

// Simulated cells run side by side, one thread each, which changes nothing about what they give; measured ones must not
// disturb each other, and what is done is written after each, so that a run that is ended keeps it. After an error no
// cell is begun, and the first error in the order of the grid is reported.
static void run_cells(sweep *s, cell **cells) {
    int64_t count = arrlen(cells);
    bool failed = false;
    s->to_do = count, s->began = wall_seconds(), args_watches = 1;
    for (int64_t i = 0; i < count; i++) s->work += progress_weight(s, cells[i]);
    PARALLEL("omp parallel for schedule(dynamic, 1) num_threads((int)s->set.threads) if (s->sim)")
    for (int64_t i = 0; i < count; i++) {
        bool stop;
        PARALLEL("omp atomic read")
        stop = failed;
        if (stop || args_signal || out_of_time(s)) continue;
        cell_run(s, cells[i]);
        cell_finish(s, cells[i]);
        if (cells[i]->error[0]) {
            PARALLEL("omp atomic write")
            failed = true;
        }
        PARALLEL("omp critical(progress)")
        s->cells_done++;
        if (!s->sim && !s->set.cell && !cells[i]->error[0]) result_write(s, false);
    }
    progress_clear(s);
    // The cells that have run are kept.
    if ((failed || args_signal) && s->sim && !s->set.cell && cells_done(s)) result_write(s, false);
    stop_if_asked(s);
    for (int64_t i = 0; i < count; i++) {
        llm42_error error = {LLM42_INVALID, ""};
        snprintf(error.text, sizeof error.text, "%s", cells[i]->error);
        if (error.text[0]) args_check(error.result, &error);
    }
}

// >>open ---------------------------------------------------------------------------------------------------------
// What a file holds, in 16 digits: another calibration under the same name is another configuration.
static void contents_print(FILE *file, const char *path) {
    llm42_error error = {0};
    char *text;
    size_t size;
    args_check(file_read(path, &text, &size, &error), &error);
    fprintf(file, " %016" PRIx64, file_hash(text, size));
    free(text);
}

static void open_model(sweep *s) {
    llm42_error error = {0};
    char path[4096], found[4096];
    snprintf(path, sizeof path, "%s", s->set.model);
    s->backend = s->sim ? llm42_backend_sim() : args_backend(s->set.backend);
    if (s->sim) {
        if (!s->set.calibration)
            args_fail(2, "--calibration FILE: required with --backend sim: see the folder sweep/calibration");
        s->set.calibration = args_find(s->set.calibration, s->calibration_found);
        args_check(llm42_calibration_load(&s->calibration, s->set.calibration, &error), &error);
        // A gamma distribution's standard deviation is its mean over the root of its shape.
        if (s->set.flip_spread > 0) s->calibration->flip_shape = 1 / (s->set.flip_spread * s->set.flip_spread);
        bool shape = false;
        for (const char *const *name = llm42_synthetic_names(); *name; name++) {
            const char *behind = s->calibration->model + strlen(*name);
            shape |= !strncmp(*name, s->calibration->model, strlen(*name)) && (!*behind || !strcmp(behind, "-fp8"));
        }
        snprintf(path, sizeof path, "%s%s", shape ? "shape:" : "", s->calibration->model);
    }
    llm42_model_desc desc = {.path = args_find(path, found), .on_device = args_on_device(path, s->backend)};
    if (llm42_model_load(&s->model, &desc, &error) == LLM42_OK) return;
    args_fail(1, "%s%s%s", s->sim ? s->set.calibration : "", s->sim ? ": model: " : "", error.text);
}

// Refuses ranks and leaves that the model cannot be cut into: the cell that has them may be the last.
static void check_ranks(const sweep *s) {
    const llm42_config *c = &s->model->config;
    llm42_error error = {0};
    for (int64_t i = 0; i < arrlen(s->grid.cells); i++) {
        const int ranks = (int)cell_number(&s->grid, &s->grid.cells[i], TENSOR_PARALLEL, 1);
        const int leaves = (int)cell_number(&s->grid, &s->grid.cells[i], LEAVES, 1);
        if (s->sim && isnan(llm42_calibration_ranks_ms(s->calibration, LLM42_SCHEDULE_FAST, 1, 1, ranks, 1)))
            args_fail(2,
                      "--tensor-parallel: %d: calibration %s is of %d device%s and has no table of exchanges for this",
                      ranks, s->calibration->name, s->calibration->devices, s->calibration->devices > 1 ? "s" : "");
        args_check(llm42_ranks_check("llm42_engine_desc", c, ranks, leaves, &error), &error);
        // There are at least as many leaves as ranks. With --slowdown INVARIANT passes have no times of their own.
        const int known = s->sim ? s->calibration->leaves : 0;
        if (s->sim && !s->grid.hidden[LEAVES] && cell_value(&s->grid, &s->grid.cells[i], LEAVES) && leaves != known &&
            (leaves > ranks || known > ranks) && cell_number(&s->grid, &s->grid.cells[i], SLOWDOWN, 0) == 0)
            args_fail(2,
                      "--leaves: %d: the INVARIANT passes of calibration %s have %d: build/bench --calibrate FILE "
                      "--leaves %d measures one",
                      leaves, s->calibration->name, known, leaves);
    }
}

// Opens the workload at every rate, so that what is wrong with it comes out before the first cell; finds the context.
static void open_workload(sweep *s) {
    llm42_error error = {0};
    s->plan.model = s->model, s->plan.workload = s->set.workload, s->plan.requests = s->set.requests;
    for (int i = 0; i < s->grid.count[QPS]; i++)
        args_check(serve_context(&s->plan, s->grid.values[QPS][i].text, s->set.max_context, &error), &error);
    const char *spec = s->set.workload, *colon = strchr(spec, ':'), *slash = strrchr(spec, '/');
    bool folder = slash && colon && slash > colon;
    snprintf(s->workload, sizeof s->workload, "%.*s%s", folder ? (int)(colon + 1 - spec) : 0, spec,
             folder ? slash + 1 : spec);
    for (char *p = s->workload; *p; p++)
        if (*p == '\t' || *p == '\n') *p = ' ';
}

// The pages of the KV pool; 0: the engine's default. *from: the option that says how many.
static int64_t resolve_pages(const sweep *s, const char **from) {
    const settings *o = &s->set;
    *from = "--pages";
    if (o->pages) return o->pages;
    *from = "--kv-gb";
    if (s->cuda && !o->kv_tokens) return serve_pages(&s->plan, o->page_size, o->kv_gb);
    *from = o->kv_tokens ? "--kv-tokens" : "--max-running, --max-context";
    if (o->kv_tokens) return o->kv_tokens / o->page_size;
    int64_t kv = s->sim ? s->calibration->kv_tokens : 0;
    int64_t request = (s->plan.max_context + o->page_size - 1) / o->page_size, pages = kv / o->page_size;
    if (!kv && s->sim) pages = request * s->plan.max_running;
    if ((kv || s->sim) && pages < request) pages = request;
    return pages;
}

// Sizes that the command line leaves open.
static void resolve(sweep *s) {
    settings *o = &s->set;
    serve_plan *p = &s->plan;
    int running = s->sim ? SIM_RUNNING : s->cuda ? CUDA_RUNNING : CPU_RUNNING;
    p->outside_s = s->sim ? 1e-3 * s->calibration->host_request_ms : 0;
    p->leave_out = o->leave_out;
    // Of several numbers the largest decides what cells share: the sizes of the KV pool and of passes.
    p->max_running = 0;
    for (int i = 0; i < s->grid.count[MAX_RUNNING]; i++)
        p->max_running = (int)fmax(p->max_running, s->grid.values[MAX_RUNNING][i].number);
    if (!p->max_running) p->max_running = running;
    p->warm_up = o->warm_up >= 0 ? o->warm_up : s->cuda ? p->max_running : 0;
    p->random_prompts = s->sim ? o->prefix_cache : !strcmp(o->prompts, "random");
    int whole = p->max_context > p->max_running ? p->max_context : p->max_running;
    if (s->sim && whole < WHOLE) whole = WHOLE;  // as SGLang; measured it would be scratch memory for nothing
    int chunk = CHUNK > p->max_running ? CHUNK : p->max_running;
    s->budget[0] = o->token_budget ? (int)o->token_budget : whole;
    s->budget[1] = o->token_budget ? (int)o->token_budget : chunk;
    const char *from;
    int64_t pages = resolve_pages(s, &from), most = 1 << 28;
    int64_t least = (p->max_context + o->page_size - 2) / o->page_size;  // the last token has no KV
    // Refused here, since a request that needs more may be the last.
    if (o->pages && pages < least)
        args_fail(2,
                  "--pages: %" PRId64 " of %" PRId64 " tokens: requests can have %d tokens and need %" PRId64
                  " pages: raise --pages, or lower --max-context",
                  pages, o->page_size, p->max_context, least);
    if (o->kv_tokens && pages < least)
        args_fail(2,
                  "--kv-tokens: %" PRId64 ": requests can have %d tokens and need %" PRId64 ", in pages of %" PRId64
                  ": raise --kv-tokens, or lower --max-context",
                  o->kv_tokens, p->max_context, least * o->page_size, o->page_size);
    if (pages > most && s->sim && !o->kv_tokens && s->calibration->kv_tokens)
        args_fail(1,
                  "%s: kv_tokens: %" PRId64 " tokens are %" PRId64 " pages of %" PRId64 ": at most %" PRId64
                  ": lower it, or give --kv-tokens",
                  o->calibration, s->calibration->kv_tokens, pages, o->page_size, most);
    if (pages > most)
        args_fail(2, "%s: a KV pool of %" PRId64 " pages of %" PRId64 " tokens: at most %" PRId64 " pages", from, pages,
                  o->page_size, most);
    s->pages = pages;
}

// All but the cell's own values and what cannot change a result (threads of the simulator, names of files).
static void configuration_write(sweep *s) {
    const settings *o = &s->set;
    size_t size = 0;
    char name[256], number[64];
    FILE *file = open_memstream(&s->configuration, &size);
    if (!file) args_fail(1, "out of memory");
    fprintf(file, "llm42 %s; backend %s; ", LLM42_VERSION, o->backend);
    if (s->sim) {
        fprintf(file, "calibration %s", s->calibration->name);
        contents_print(file, o->calibration);
        fprintf(file, "; model %s; ", s->calibration->model);
        number_text(number, sizeof number, o->flip_scale);
        if (o->no_flips) fprintf(file, "flips off; ");
        else fprintf(file, "flip_scale %s; ", number);
        number_text(number, sizeof number, o->flip_spread);
        if (o->flip_spread > 0) fprintf(file, "flip_spread %s; ", number);
        number_text(number, sizeof number, o->draft_spread);
        if (o->draft_spread > 0) fprintf(file, "draft_spread %s; ", number);
        if (o->draft_ordinary) fprintf(file, "ordinary requests have drafts; ");
        if (o->draft_always) fprintf(file, "drafts whether they pay or not; ");
    } else {
        fprintf(file, "cpu %s", processor_name(name, sizeof name));
        if (s->cuda)
            fprintf(file, " as host; prompts %s; warm_up %" PRId64 "; fast %s; ", o->prompts, s->plan.warm_up,
                    o->offered ? "offered" : "fastest");
        else fprintf(file, " (%s); threads %" PRId64 "; ", llm42_cpu_isa(), o->threads);
        fprintf(file, "model %s; ", o->model);
    }
    fprintf(file, "workload %s", s->workload);
    const char *path = workload_path(o->workload);
    if (path) contents_print(file, path);
    fprintf(file, "; requests %" PRId64, o->requests);
    if (o->leave_out) fprintf(file, "; leave_out %" PRId64, o->leave_out);
    fprintf(file, "; max_context %d", s->plan.max_context);
    if (s->grid.hidden[MAX_RUNNING]) fprintf(file, "; max_running %d", s->plan.max_running);
    fprintf(file, "; page_size %" PRId64, o->page_size);
    if (s->pages) fprintf(file, "; kv_tokens %" PRId64, s->pages * o->page_size);
    else fprintf(file, "; kv_tokens default");
    fprintf(file, "; token_budget %d (chunked off) %d (on)", s->budget[0], s->budget[1]);
    if (o->deadline) fprintf(file, "; deadline %" PRId64, o->deadline);
    else fprintf(file, "; deadline W");
    number_text(number, sizeof number, o->admission_reserve);
    fprintf(file, "; admission_reserve %s; prefix_cache %s", number, o->prefix_cache ? "on" : "off");
    number_text(number, sizeof number, o->gate);
    if (o->gate > 0) fprintf(file, "; gate %s", number);
    if (fclose(file)) args_fail(1, "out of memory");
    for (char *p = s->configuration; *p; p++)
        if (*p == '\n') *p = ' ';
}

// Folders and files that the run will write are tried before it begins.
static void try_outputs(const sweep *s) {
    const settings *o = &s->set;
    const char *const files[] = {o->out, o->per_request, o->trace}, *folder = o->merge ? o->merge : o->cells;
    for (int64_t i = 0; folder && i < arrlen(s->grid.cells); i++)
        args_check_input("--out", o->out, o->merge ? "--merge" : "--cells", path_of(s, folder, &s->grid.cells[i]).text);
    for (int i = 0; i < 3; i++) out_try(files[i]);
    if (!o->cells) return;
    char probe[4200];
    snprintf(probe, sizeof probe, "%.4000s/cells", o->cells);
    const bool made = !mkdir(o->cells, 0777);
    if (!made && errno != EEXIST) args_fail(1, "%s: cannot make this folder: %s", o->cells, strerror(errno));
    const char *why = cannot_write(probe);
    if (made && o->list_only) rmdir(o->cells);
    if (why) args_fail(1, "%s: cannot write into this folder: %s", o->cells, why);
}

// >>main ---------------------------------------------------------------------------------------------------------
// Options that only some backends have.
static void check_backend(const sweep *s) {
    const settings *o = &s->set;
    if (!s->sim && (o->calibration || o->no_flips || o->flip_scale != 1 || o->flip_spread))
        args_fail(2, "--calibration, --no-flips, --flip-scale, --flip-spread: only with --backend sim");
    for (int i = 0; i < s->grid.count[SLOWDOWN]; i++)
        if (!s->sim && s->grid.values[SLOWDOWN][i].number != 0) args_fail(2, "--slowdown: only with --backend sim");
    if (!s->cuda && (o->offered || o->algorithm_file || o->devices))
        args_fail(2, "--offered, --algorithm-file, --devices: only with --backend cuda");
    bool trace = false;
    for (int i = 0; i < s->grid.count[QPS]; i++) trace |= !strcmp(s->grid.values[QPS][i].text, "trace");
    if (!s->grid.hidden[TRACE_SPEED] && !trace)
        args_fail(2, "--trace-speed: needs --qps trace: other arrivals have a rate");
    if (s->sim && o->warm_up > 0)
        args_fail(2, "--warm-up: only with --backend cpu or cuda: --leave-out N leaves N requests out of percentiles");
    if (!s->cuda && o->kv_gb != 64) args_fail(2, "--kv-gb: only with --backend cuda; --kv-tokens is for all");
    if (s->sim && o->seconds > 0) args_fail(2, "--seconds: only with --backend cpu or cuda");
    args_choice("--prompts", o->prompts, (const char *const[]){"own", "random", NULL});
}

// Options that only a fleet has, or that it does not have.
static void check_fleet(const sweep *s) {
    const settings *o = &s->set;
    const grid *g = &s->grid;
    bool apart = false;
    if (!o->fleet) return;
    if (!s->sim) args_fail(2, "--replicas: only with --backend sim: each replica has a clock of its own");
    if (o->trace)
        args_fail(2, "--trace: not with --replicas: a trace is of one engine; --per-request has a column replica");
    for (int i = 0; i < g->count[ROUTER]; i++) apart |= g->values[ROUTER][i].word == DETERMINISTIC_APART;
    if (!apart && o->list[APART] != axes[APART].list) args_fail(2, "--apart: needs --router deterministic_apart");
    for (int i = 0; i < g->count[APART]; i++)
        for (int k = 0; k < g->count[REPLICAS]; k++)
            if (g->values[APART][i].number >= g->values[REPLICAS][k].number)
                args_fail(2, "--apart: %s of %s replicas: at least one must be left for other requests",
                          g->values[APART][i].text, g->values[REPLICAS][k].text);
}

// Makes the cells from the lists of the axes.
static void axes_read(sweep *s) {
    settings *o = &s->set;
    backend_name backend = (backend_name)args_choice("--backend", o->backend,
                                                     (const char *const[]){"sim", "cpu", "cuda", NULL});
    s->sim = backend == BACKEND_SIM, s->cuda = backend == BACKEND_CUDA;
    for (int a = 0; a < AXES; a++) {
        const axis_name of = axes[a].of;
        axis_parse(&s->grid, (axis_name)a, o->list[a]);
        s->grid.hidden[a] = axes[a].optional && o->list[a] == axes[a].list;
        if (of && s->grid.hidden[of] && o->list[a] != axes[a].list)
            args_fail(2, "--%s: needs --%s", axes[a].name, axes[of].name);
    }
    o->fleet = !s->grid.hidden[REPLICAS];
    check_fleet(s);
    s->grid.hidden[MAX_RUNNING] = s->grid.count[MAX_RUNNING] == 1;
    for (int i = 0; !s->grid.hidden[MAX_RUNNING] && i < s->grid.count[MAX_RUNNING]; i++)
        if (s->grid.values[MAX_RUNNING][i].number == 0)
            args_fail(2, "--max-running: 0, the backend's own number, must stand alone");
    grid_make(&s->grid, backend);
    double rows = 0;  // of the largest replay pass: refused here, since its cell may be the last
    for (int64_t i = 0; i < arrlen(s->grid.cells); i++) {
        const cell *c = &s->grid.cells[i];
        rows = fmax(rows, cell_number(&s->grid, c, WINDOW, 0) * cell_number(&s->grid, c, GROUP, 0));
    }
    if (rows > 1 << 20) args_fail(2, "--window, --group: W x G of %.0f rows: at most %d", rows, 1 << 20);
}

// Options that do not go together, and --cell.
static void check(sweep *s) {
    settings *o = &s->set;
    if (o->flip_scale == 0) o->no_flips = true;
    if (s->grid.hidden[DRAFT] && (o->draft_spread || o->draft_ordinary || o->draft_always))
        args_fail(2, "--draft-spread, --draft-ordinary, --draft-always: need --draft");
    if (!s->grid.hidden[DRAFT] && !s->sim) args_fail(2, "--draft: only with --backend sim: build/drafts measures them");
    check_backend(s);
    if (o->merge && (o->cells || o->cell)) args_fail(2, "--merge: runs nothing: leave --cells and --cell out");
    bool detail = o->per_request || o->trace;
    if (detail && (arrlen(s->grid.cells) != 1 || o->merge || o->cells))
        args_fail(2, "--per-request, --trace: for a grid of one cell, run here: %d cells%s", (int)arrlen(s->grid.cells),
                  o->merge || o->cells ? "; leave --merge and --cells out" : "");
    if (o->leave_out >= o->requests)
        args_fail(2, "--leave-out: %" PRId64 " of %" PRId64 " requests: percentiles need at least one", o->leave_out,
                  o->requests);
    o->shares = 1;
    if (!o->cell) return;
    const char *slash = strchr(o->cell, '/'), *end = o->cell + strlen(o->cell);
    if (!slash) args_fail(2, "--cell: '%s': expected I/N, as in 2/8", o->cell);
    o->shares = args_int("--cell", slash + 1, end, 1, MAX_CELLS);
    o->share = args_int("--cell", o->cell, slash, 1, o->shares) - 1;
    if (!o->cells) args_fail(2, "--cell: needs --cells DIR to leave its cells in");
    if (o->out) args_fail(2, "--cell: a share is no whole result: leave --out out, and use --merge when all are done");
}

// The option of an axis. Its help lists the words that it takes, unless it is an axis of numbers.
static args_option axis_option(settings *s, axis_name which) {
    static char name[AXES][32], help[AXES][320];
    static const char *const none[] = {NULL};
    const axis *a = &axes[which];
    s->list[which] = a->list;
    snprintf(name[which], sizeof name[which], "%s%s LIST", a->name, which == SEED ? ",s" : "");
    words_help(help[which], sizeof help[which], a->about, a->number ? none : axis_words(which));
    return (args_option)ARGS_TEXT(name[which], &s->list[which], help[which]);
}

static const settings defaults = {
    .backend = "sim",
    .workload = "sharegpt",
    .requests = 4096,
    .page_size = 16,
    .admission_reserve = 0.7,
    .flip_scale = 1,
    .warm_up = -1,
    .kv_gb = 64,
};

static settings parse(int argc, char **argv) {
    settings s = defaults;
    const args_option served[] = {
        ARGS_TEXT("backend NAME", &s.backend, "sim (virtual time), cpu or cuda (measured)"),
        ARGS_IN("calibration FILE", &s.calibration,
                "required with --backend sim: times of passes; sweep/calibration has them"),
        ARGS_IN("model,m DIR", &s.model, "cpu, cuda: model folder, file or synthetic:NAME"),
        ARGS_IN("workload SPEC", &s.workload,
                "sharegpt, sharegpt-served, arxiv, fixed:IxO, uniform:IxO, sglang:IxOxN,\n"
                "                         lengths:FILE, azure:FILE, mooncake:FILE"),
        ARGS_INT("requests N", &s.requests, 1, 100000000, "requests of a cell"),
        ARGS_INT("leave-out N", &s.leave_out, 0, 100000000,
                 "percentiles leave out the first N requests, which meet an engine with less to do"),
    };
    const args_option conditions[] = {
        ARGS_INT("threads,t N", &s.threads, 0, 1024, "sim: cells at a time, 0: all cores; cpu: the engine's, 0: one"),
        ARGS_INT("kv-tokens N", &s.kv_tokens, 0, (int64_t)1 << 40, "KV pool, 0: the calibration's"),
        ARGS_REAL("kv-gb X", &s.kv_gb, 0.001, 1e6, "cuda: KV pool in GiB, if max_running contexts take as much"),
        ARGS_INT("pages N", &s.pages, 0, 1 << 28, "KV pool in pages, 0: as the options above say"),
        ARGS_INT("max-context N", &s.max_context, 0, 1 << 24,
                 "tokens of a request, longer prompts are cut; 0: the model's context"),
        ARGS_INT("page-size N", &s.page_size, 1, 4096, "tokens of a KV page"),
        ARGS_INT("token-budget N", &s.token_budget, 0, 1 << 20,
                 "rows of a pass, 0: 2048, or with chunked off 16384 or the context"),
        ARGS_INT("deadline N", &s.deadline, 0, INT32_MAX,
                 "wait: passes that a ready window waits, and candidates beyond it, 0: W"),
        ARGS_REAL("admission-reserve X", &s.admission_reserve, 0, 1,
                  "share of tokens to come that admission leaves room for"),
        ARGS_FLAG("prefix-cache", &s.prefix_cache, "share the KV of equal prefixes"),
        ARGS_REAL("gate X", &s.gate, 0, 1e9,
                  "experiment: verify only tokens with a margin below X (sim: this share of the tokens is below);\n"
                  "                         answers then depend on other requests"),
        ARGS_FLAG("offered", &s.offered, "cuda: FAST passes keep orders of their own, as other engines' do"),
        ARGS_FLAG("no-flips", &s.no_flips, "sim: every candidate is right"),
        ARGS_REAL("flip-scale X", &s.flip_scale, 0, 1e6, "sim: times the calibration's flip rate"),
        ARGS_REAL("draft-spread X", &s.draft_spread, 0, 10,
                  "sim: how the requests' shares of right drafts differ: a request has the share of --draft to\n"
                  "                         the power of a number with mean 1 and this standard deviation"),
        ARGS_FLAG("draft-ordinary", &s.draft_ordinary, "sim: ordinary requests have drafts, too"),
        ARGS_FLAG("draft-always", &s.draft_always, "sim: as many drafts as --draft-limit, whether they pay or not"),
        ARGS_REAL("flip-spread X", &s.flip_spread, 0, 30,
                  "sim: how the requests' flip rates differ: their standard deviation over their mean; 0: as\n"
                  "                         calibrated"),
        ARGS_TEXT("prompts KIND", &s.prompts, "cpu, cuda: the model's own samples, or random: own, random"),
        ARGS_OUT("algorithm-file FILE", &s.algorithm_file, "cuda: chosen matrix algorithms are kept here"),
        ARGS_DEVICES(&s.devices),
        ARGS_INT("warm-up N", &s.warm_up, -1, 1 << 20,
                 "cpu, cuda: requests before the clock starts, -1: none (cpu), as many as run at once (cuda)"),
        ARGS_REAL("seconds X", &s.seconds, 0, 1e9, "cpu, cuda: begin no cell after so many; 0: no limit"),
        ARGS_OUT("out FILE", &s.out, "the TSV; standard output otherwise"),
        ARGS_TEXT("cells DIR", &s.cells, "a file for each finished cell; those that are there are not run again"),
        ARGS_TEXT("cell I/N", &s.cell, "run only the I-th of N shares of the cells"),
        ARGS_TEXT("merge DIR", &s.merge, "run nothing, put the finished cells of DIR together"),
        ARGS_OUT("per-request FILE", &s.per_request, "one cell: a TSV line for each request"),
        ARGS_OUT("trace FILE", &s.trace, "one cell: every event; .json for Perfetto"),
        ARGS_FLAG("list", &s.list_only, "print the cells and exit"),
        ARGS_FLAG("quiet", &s.quiet, "no progress"),
        ARGS_FLAG("timing", &s.timing, "say at the end, on standard error, what the run took"),
        ARGS_END,
    };
    enum { SERVED = sizeof served / sizeof *served };
    args_option options[SERVED + AXES + sizeof conditions / sizeof *conditions];
    memcpy(options, served, sizeof served);
    for (int a = 0; a < AXES; a++) options[SERVED + a] = axis_option(&s, (axis_name)a);
    memcpy(options + SERVED + AXES, conditions, sizeof conditions);
    args_parse(argc, argv, "Runs a grid of serving configurations and writes a TSV row a cell. LIST: a,b,c.", options);
    return s;
}

// What the command line leaves open, and that the backend decides.
static void set_defaults(settings *s) {
    bool sim = !strcmp(s->backend, "sim"), cpu = !strcmp(s->backend, "cpu");
    if (sim && (s->model || s->prompts))
        args_fail(2, "--model, --prompts: only with --backend cpu or cuda: the simulator's model is its calibration's");
    if (!s->model) s->model = "examples/tiny42";
    if (!s->prompts) s->prompts = cpu ? "own" : "random";
    if (!s->threads) s->threads = sim ? all_threads() : 1;
}

static void timing_print(const sweep *s, int64_t cells) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double seconds = (double)used.ru_utime.tv_sec + 1e-6 * (double)used.ru_utime.tv_usec +
                     (double)used.ru_stime.tv_sec + 1e-6 * (double)used.ru_stime.tv_usec;
    double requests = (double)cells * (double)s->set.requests;
    fprintf(stderr,
            "%" PRId64 " cells, %.0f requests, %.2f s of processor time, %.0f requests/s and core, %.1f MB at most\n",
            cells, requests, seconds, requests / seconds, (double)used.ru_maxrss / 1024);
}

static int finish(sweep *s) {
    for (int64_t i = 0; i < arrlen(s->grid.cells); i++) free(s->grid.cells[i].row);
    arrfree(s->grid.cells);
    for (int64_t i = 0; i < arrlen(s->prompts); i++) free(s->prompts[i].tokens), free(s->prompts[i].start);
    arrfree(s->prompts);
    free(s->configuration);
    llm42_calibration_free(s->calibration);
    llm42_model_free(s->model);
    return args_finish();
}

int main(int argc, char **argv) {
    static sweep s;  // too large for a small stack
    s.set = parse(argc, argv);
    set_defaults(&s.set);
    axes_read(&s);
    check(&s);
    open_model(&s);
    check_ranks(&s);
    open_workload(&s);
    resolve(&s);
    configuration_write(&s);
    try_outputs(&s);
    if (s.set.list_only) {
        list_check(&s);
        list_print(&s);
        return finish(&s);
    }
    say_otherwise(&s);
    int64_t missing = 0;  // cells that --seconds has left out
    if (s.set.merge) {
        merge_cells(&s);
    } else {
        cell **cells = cells_to_run(&s);
        int64_t to_run = arrlen(cells), run = 0;
        if (!s.sim && !s.plan.random_prompts) prompts_of_cells(&s, cells);
        run_cells(&s, cells);
        for (int64_t i = 0; i < to_run; i++) run += cells[i]->row != NULL;
        missing = to_run - run;
        if (s.set.timing) timing_print(&s, run);
        if (s.set.cell && !s.set.quiet)
            printf("share %s: %" PRId64 " cells run, %" PRId64 " were there\n", s.set.cell, run,
                   (arrlen(s.grid.cells) + s.set.shares - 1 - s.set.share) / s.set.shares - to_run);
        arrfree(cells);
    }
    if (!s.set.cell) {
        result_write(&s, true);
        overload_print(&s);
    }
    if (s.set.out && !s.set.cell && !s.set.quiet) printf("wrote %s\n", s.set.out);
    if (missing) fprintf(stderr, "%s: --seconds: %" PRId64 " cells were not begun\n", args_program, missing);
    assert(!missing || s.set.seconds > 0);
    if (s.set.out && !s.set.cell && !missing) remove_unfinished(&s);
    return finish(&s);
}
