// bench: how fast passes and whole workloads run on the CPU or a GPU, as shares of what the machine can do.
//
//     build/bench                                              everything, on examples/tiny42
//     build/bench --model DIR --threads 2 --out FILE           another model; every figure as TSV too
//     build/bench --model DIR --suite decode                   tokens a second of one greedy stream, and nothing else
//     build/bench --model DIR --calibrate FILE                 the pass times and flip rate that the simulator reads
//     build/bench --backend cuda --suite passes --out FILE     a GPU: passes, stages, workloads, one-of-eleven, online
//
// Ceilings come first, in the same run and with the same threads, because a share of a datasheet's figure says little
// on a shared machine. Every figure is a median of repeats; a ceiling is the best of several medians, since whatever
// disturbs it can only make it smaller.
//
// What is counted. Weights: the matrices that the pass uses, as stored, once a pass; the LM head only where a row is
// sampled; of a mixture, at most rows x experts-used experts. Floating-point operations: 2 x the weights that a row
// uses, for every row; 2 x the LM head for every sampled row; 4 x heads x head size a layer for every position that a
// row attends to. Norms, rotary embedding, softmax and sampling count for nothing. KV bytes are not weights; on a GPU
// the floor of a pass is the time to read both, the KV once for each sequence.
#define _POSIX_C_SOURCE 200809L
#define LLM42_IMPLEMENTATION
#include "llm42.h"

#include "examples/args.h"
#include "sweep/workload.h"

#include <time.h>
#ifdef _OPENMP
#include <omp.h>
#define PARALLEL(clauses) _Pragma(clauses)
#else
#define PARALLEL(clauses)
#endif
#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__))
#include <immintrin.h>
#endif

enum { MAX_SAMPLES = 512, PAGE_SIZE = 16, DECODE_ROWS = 32, MAX_ROWS = 256, WINDOW = 32, TABLES = 40, BED_ROWS = 2048 };
enum { CUDA_REPEATS = 20 };  // at least

typedef struct settings {
    const char *model, *dtype, *suite, *out, *calibrate, *backend;
    const char *workload, *algorithm_file, *verify, *prefill, *chunked;  // these and the next two lines: cuda
    int64_t max_running, max_context, token_budget, online_requests, seeds;
    double kv_gb, qps, seconds;
    int64_t threads, repeats, requests, input_tokens, output_tokens, decode_tokens, window, group, flip_requests;
    bool quick, match, offered;
    llm42_dtype compute;
} settings;

// One line of the TSV: a case and its figures. What does not apply stays NAN.
#define COLUMNS(X)                                                                                                     \
    X(threads)                                                                                                         \
    X(buffer_mb) X(rows) X(context_tokens) X(deterministic_ratio) X(window) X(group) X(ms) X(tokens_per_s) X(gb_per_s) \
        X(memory_share_pct) X(gflop_per_s) X(fma_share_pct) X(relative_pct) X(recompute_pct) X(rollbacks)              \
            X(replay_time_pct) X(ttft_p50_ms) X(ttft_p99_ms) X(itl_p50_ms) X(itl_p99_ms) X(latency_p50_ms)             \
                X(latency_p99_ms) X(floor_ms) X(copy_share_pct) X(matmul_share_pct) X(launches) X(requests) X(qps)     \
                    X(duration_s) X(nondet_itl_p99_ms) X(nondet_itl_relative_pct)
typedef struct figures {
    const char *suite;
    char what[48];
#define X(name) double name;
    COLUMNS(X)
#undef X
} figures;

typedef struct bench {
    settings set;
    const llm42_model *model;
    const llm42_backend *backend;
    bool cuda;
    llm42_cuda_desc cuda_desc;
    args_manifest manifest;
    double begun;                                             // seconds
    bool described;                                           // cuda: the result is open
    size_t told;                                              // of the manifest: bytes that the result has
    double copy_gb_per_s, read_gb_per_s, matmul_gflop_per_s;  // cuda: ceilings
    FILE *tsv;                                                // NULL: not wanted
    double weight_bytes;                                      // of a decode step of one row
    double memory_gb_per_s;                                   // ceiling at that size, the largest over thread counts
    double fma_gflop_per_s;
    double got_share;  // of the processor time that the ceilings asked for; less than 1: others were using it
    double decode1_share, decode1_rate, decode32_rate, decode32_gflop, replay_share;  // the three targets
    int target_context;
} bench;

enum { FAST_BIT = 1 << LLM42_FAST, FIXED_BIT = 1 << LLM42_FIXED, INVARIANT_BIT = 1 << LLM42_INVARIANT };

// >>common -------------------------------------------------------------------------------------------------------
static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Processor seconds of all threads of this process.
static double processor_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Sorts values.
static double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, ascending);
    return count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

static void *take(size_t bytes) {
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!memory) args_fail(1, "out of memory: %zu bytes", bytes);
    return memory;
}

// The line that says what runs now. It stands on the terminal only, and only until there is something better to read.
static void progress(const char *format, ...) {
    if (!args_is_terminal(stderr)) return;
    fflush(stdout);
    fprintf(stderr, "\r\033[K");
    if (format) {
        va_list values;
        va_start(values, format);
        vfprintf(stderr, format, values);
        va_end(values);
    }
    fflush(stderr);
}

// One line of a table's head; a negative width stands left.
static void head_print(const char *const *words, const int *width, int count) {
    for (int i = 0; i < count; i++) printf("%*s%s", width[i], words[i], i + 1 < count ? " " : "\n");
}

static figures figures_of(const bench *b, const char *suite, const char *what) {
    figures f = {.suite = suite};
    snprintf(f.what, sizeof f.what, "%s", what);
#define X(name) f.name = NAN;
    COLUMNS(X)
#undef X
    f.threads = (double)b->set.threads;
    return f;
}

static void put(FILE *file, double value) { isnan(value) ? fprintf(file, "\tnan") : fprintf(file, "\t%.6g", value); }

static void figures_write(const bench *b, const figures *f) {
    if (!b->tsv) return;
    fprintf(b->tsv, "%s\t%s", f->suite, f->what);
#define X(name) put(b->tsv, f->name);
    COLUMNS(X)
#undef X
    fprintf(b->tsv, "\n");
    fflush(b->tsv);  // a run that is ended keeps what it has
}

static void tsv_columns(bench *b) {
    fprintf(b->tsv, "suite\tcase");
#define X(name) fprintf(b->tsv, "\t" #name);
    COLUMNS(X)
#undef X
    fprintf(b->tsv, "\n");
}

// A result file; see args_out_begin.
static FILE *file_begin(const char *path) {
    char part[4096];
    FILE *file = args_out_begin(path, part);
    if (!file) args_fail(1, "%s: cannot write: %s", path, strerror(errno));
    return file;
}

static void file_finish(FILE *file, const char *path) {
    char part[4096];
    args_out_part(path, part);
    if (!args_out_finish(file, path, part)) args_fail(1, "%s: cannot write: %s", path, strerror(errno));
    printf("wrote %s\n", path);
}

static const char *cpu_model(char *name, size_t size) {
    snprintf(name, size, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[512];
    while (file && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !colon) continue;
        snprintf(name, size, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        break;
    }
    if (file) fclose(file);
    return name;
}

static const char *compiler(void) {
#ifdef __clang__
    return __VERSION__;
#else
    return "gcc " __VERSION__;
#endif
}

// The configuration, each line after a mark: "# " in files, nothing on the terminal.
static void describe(const bench *b, FILE *file, const char *mark) {
    const settings *s = &b->set;
    const llm42_config *c = &b->model->config;
    char cpu[256];
    cpu_model(cpu, sizeof cpu);
    if (b->cuda) {
        fprintf(file, "%sllm42 %s bench, CUDA backend; host: %s; compiler: %s\n", mark, LLM42_VERSION, cpu, compiler());
        args_manifest_print(&b->manifest, file);
    } else {
        fprintf(file, "%sllm42 %s bench, CPU backend (%s)\n", mark, LLM42_VERSION, llm42_cpu_isa());
        fprintf(file, "%sdevice: %s, %d threads; compiler: %s\n", mark, cpu, (int)s->threads, compiler());
    }
    fprintf(file, "%smodel: %s: %d layers, width %d, %d/%d heads of %d, feed-forward %d, vocabulary %d; ", mark,
            b->model->name, c->layers, c->dim, c->heads, c->kv_heads, c->head_dim, c->ffn, c->vocab);
    if (c->experts) fprintf(file, "%d of %d experts; ", c->experts_used, c->experts);
    fprintf(file, "%.1f MB of weights in a decode step\n", b->weight_bytes * 1e-6);
    int repeats = b->cuda && s->repeats < CUDA_REPEATS ? CUDA_REPEATS : (int)s->repeats;
    fprintf(file, "%scompute type: %s; medians of at least %d repeats%s\n", mark, s->dtype, repeats,
            s->quick ? "; quick" : "");
}

// >>counts -------------------------------------------------------------------------------------------------------
static double elements(llm42_matrix m) { return (double)m.n * m.k; }
static double stored(llm42_matrix m) { return elements(m) * (m.type == LLM42_BF16 ? 2 : 4); }

// Weights that a pass of `rows` rows uses: in bytes for the pass, or (rows = 0) in elements for one row.
static double layer_weights(const llm42_model *model, int rows) {
    const llm42_config *c = &model->config;
    double sum = 0;
    for (int l = 0; l < c->layers; l++) {
        const llm42_layer *w = &model->layer[l];
        const llm42_matrix dense[] = {w->q, w->k, w->v, w->o, w->gate, w->up, w->down};
        for (int i = 0; i < (c->experts ? 4 : 7); i++) sum += rows ? stored(dense[i]) : elements(dense[i]);
        if (!c->experts) continue;
        sum += rows ? stored(w->router) : elements(w->router);
        int64_t used = rows ? (int64_t)rows * c->experts_used : c->experts_used;
        if (used > c->experts) used = c->experts;
        for (int i = 0; i < 3; i++) sum += (double)used * (rows ? stored(w->expert[i]) : elements(w->expert[i]));
    }
    return sum;
}

static double pass_bytes(const llm42_model *model, int rows, int sampled) {
    return layer_weights(model, rows) + (sampled ? stored(model->head) : 0);
}

// keys: positions attended to, over all rows of the pass.
static double pass_flop(const llm42_model *model, int rows, int sampled, double keys) {
    const llm42_config *c = &model->config;
    return 2 * layer_weights(model, 0) * rows + 2 * elements(model->head) * sampled +
           4.0 * c->layers * c->heads * c->head_dim * keys;
}

// >>ceilings -----------------------------------------------------------------------------------------------------
// 64 bytes: one register where there is AVX-512, else the compiler takes two or four.
typedef uint64_t wide __attribute__((vector_size(64)));

static volatile uint64_t sink;  // takes results, so that the compiler cannot leave the work out

// One stream of whole cache lines into eight accumulators: enough loads in flight for any level of the memory.
static uint64_t read_wide(const wide *data, size_t count) {
    wide sum[8];
    memset(sum, 0, sizeof sum);
    for (size_t i = 0; i + 8 <= count; i += 8)
        for (int j = 0; j < 8; j++) sum[j] ^= data[i + (size_t)j];
    for (int j = 1; j < 8; j++) sum[0] ^= sum[j];
    return sum[0][0];
}

// GB/s that `threads` threads read a buffer with, each its own part, over and over.
static double memory_ceiling(const wide *data, size_t bytes, int threads, int repeats) {
    double times[64], best = 0;
    size_t part = bytes / sizeof(wide) / (size_t)threads;
    int loops = (int)((96u << 20) / bytes) + 1;
    for (int group = 0; group < 5; group++) {
        for (int r = 0; r < repeats; r++) {
            double begin = seconds();
            uint64_t used = 0;
            PARALLEL("omp parallel for num_threads(threads) schedule(static, 1) reduction(+ : used)")
            for (int t = 0; t < threads; t++)
                for (int i = 0; i < loops; i++) {
                    used += read_wide(data + part * (size_t)t, part);
                    __asm__ volatile("" ::: "memory");  // or one reading would do for all loops
                }
            times[r] = seconds() - begin;
            sink = used;
        }
        double rate = 1e-9 * (double)(part * sizeof(wide)) * threads * loops / median(times, repeats);
        if (rate > best) best = rate;
    }
    return best;
}

// Twelve independent chains of multiply-add: more than latency x units, and few enough for sixteen registers.
enum { CHAINS = 12, FMA_LOOPS = 500000 };
#if defined(__AVX512F__)
enum { LANES = 16 };
static float fma_loop(void) {
    __m512 a[CHAINS], x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
    for (int j = 0; j < CHAINS; j++) a[j] = _mm512_set1_ps((float)j);
    for (int i = 0; i < FMA_LOOPS; i++)
        for (int j = 0; j < CHAINS; j++) a[j] = _mm512_fmadd_ps(a[j], x, y);
    for (int j = 1; j < CHAINS; j++) a[0] = _mm512_add_ps(a[0], a[j]);
    return _mm512_cvtss_f32(a[0]);
}
#elif defined(__AVX2__) && defined(__FMA__)
enum { LANES = 8 };
static float fma_loop(void) {
    __m256 a[CHAINS], x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
    for (int j = 0; j < CHAINS; j++) a[j] = _mm256_set1_ps((float)j);
    for (int i = 0; i < FMA_LOOPS; i++)
        for (int j = 0; j < CHAINS; j++) a[j] = _mm256_fmadd_ps(a[j], x, y);
    for (int j = 1; j < CHAINS; j++) a[0] = _mm256_add_ps(a[0], a[j]);
    return _mm256_cvtss_f32(a[0]);
}
#else
enum { LANES = 4 };
typedef float four __attribute__((vector_size(16)));
// Without an instruction set that the intrinsics above cover, a multiply and an add stand for one multiply-add.
static float fma_loop(void) {
    four a[CHAINS], x = {0.999f, 0.999f, 0.999f, 0.999f}, y = {0.001f, 0.001f, 0.001f, 0.001f};
    for (int j = 0; j < CHAINS; j++) a[j] = y;
    for (int i = 0; i < FMA_LOOPS; i++)
        for (int j = 0; j < CHAINS; j++) a[j] = a[j] * x + y;
    for (int j = 1; j < CHAINS; j++) a[0] += a[j];
    return a[0][0];
}
#endif

static double fma_ceiling(int threads, int repeats) {
    double times[64], best = 0;
    for (int group = 0; group < 5; group++) {
        for (int r = 0; r < repeats; r++) {
            double begin = seconds();
            double used = 0;
            PARALLEL("omp parallel for num_threads(threads) schedule(static, 1) reduction(+ : used)")
            for (int t = 0; t < threads; t++) used += fma_loop();
            times[r] = seconds() - begin;
            sink = (uint64_t)used;
        }
        double rate = 1e-9 * 2.0 * LANES * CHAINS * FMA_LOOPS * threads / median(times, repeats);
        if (rate > best) best = rate;
    }
    return best;
}

static void ceilings(bench *b) {
    int all = (int)b->set.threads, repeats = b->set.quick ? 3 : 5;
    size_t far = (size_t)1 << 30, near = (size_t)b->weight_bytes;
    if (near > far) near = far;
    wide *data = take(far);
    memset(data, 1, far);
    printf("\nceilings                                 threads        MB     GB/s  GFLOP/s\n");
    for (int t = 1; t <= all; t = t < all && 2 * t > all ? all : 2 * t) {
        progress("ceilings, %d threads", t);
        figures f = figures_of(b, "ceilings", "memory_read_weights_size");
        f.threads = t, f.buffer_mb = 1e-6 * (double)near;
        f.gb_per_s = memory_ceiling(data, near, t, repeats);
        figures g = figures_of(b, "ceilings", "memory_read_far");
        g.threads = t, g.buffer_mb = 1e-6 * (double)far;
        g.gb_per_s = memory_ceiling(data, far, t, repeats);
        figures h = figures_of(b, "ceilings", "fma_fp32");
        h.threads = t;
        double begin = seconds(), used = processor_seconds();
        h.gflop_per_s = fma_ceiling(t, repeats);
        b->got_share = (processor_seconds() - used) / (seconds() - begin) / t;
        if (f.gb_per_s > b->memory_gb_per_s) b->memory_gb_per_s = f.gb_per_s;
        if (h.gflop_per_s > b->fma_gflop_per_s) b->fma_gflop_per_s = h.gflop_per_s;
        progress(NULL);
        printf("memory read, as large as the weights [A]  %6d  %8.1f %8.1f\n", t, f.buffer_mb, f.gb_per_s);
        printf("memory read, beyond the caches            %6d  %8.1f %8.1f\n", t, g.buffer_mb, g.gb_per_s);
        printf("fp32 multiply-add                    [B]  %6d                    %8.1f\n", t, h.gflop_per_s);
        figures_write(b, &f), figures_write(b, &g), figures_write(b, &h);
    }
    printf("Below, shares of memory are of [A], %.1f GB/s, and shares of multiply-add of [B], %.1f GFLOP/s.\n",
           b->memory_gb_per_s, b->fma_gflop_per_s);
    if (b->got_share < 0.9)
        printf("Other programs are using the processor (this one got %.0f%% of its time): all figures are too low.\n",
               100 * b->got_share);
    free(data);
}

// >>passes -------------------------------------------------------------------------------------------------------
// An open backend whose sequences have the KV of real passes at every position, so that attention reads what it would.
// Where there are more sequences than page tables, sequences share them: a row's token hangs on its table and position,
// so that two rows that write one place write the same.
typedef struct bed {
    const llm42_backend *backend;
    void *state;
    int context;  // filled positions of every sequence
    int pages_per_table, tables;
    int32_t *pages;
    llm42_seq seq[BED_ROWS];
    llm42_row row[BED_ROWS];
    llm42_output out[BED_ROWS];
    int rows, sampled;
    double keys;  // positions attended to, over all rows
    int vocab, sliding_window;
    int64_t pool;  // pages
} bed;

typedef struct bed_plan {
    int max_rows, context, tables;
    bool scattered;      // pages lie as a busy engine hands them out, in no order; else one table behind the other
    int fill_rows;       // of the passes that write the KV
    int fixed_rows;      // M; 0: not known
    unsigned schedules;  // of passes to come; 0: any
    bool overlap;        // start and poll will be used
} bed_plan;

static void bed_row(bed *d, int seq, int position, bool sample) {
    uint32_t token = ((uint32_t)(seq % d->tables) * 7919u + (uint32_t)position) * 2654435761u >> 8;
    uint32_t flags = sample ? LLM42_ROW_SAMPLE : 0;
    d->row[d->rows++] = (llm42_row){seq, position, (int32_t)(token % (uint32_t)d->vocab), flags};
    d->sampled += sample;
    int keys = position + 1;
    d->keys += d->sliding_window && keys > d->sliding_window ? d->sliding_window : keys;
}

static void bed_clear(bed *d) { d->rows = d->sampled = 0, d->keys = 0; }

static void bed_run(bed *d, llm42_schedule schedule, int shape) {
    llm42_error error = {0};
    llm42_pass pass = {
        .schedule = schedule, .rows = d->rows, .shape = shape, .row = d->row, .seq = d->seq, .out = d->out};
    args_check(d->backend->run(d->state, &pass, &error), &error);
}

// As many tables as the pool has pages for, each for so many tokens; what their pages hold stays.
static void bed_tables(bed *d, int context) {
    d->pages_per_table = (context + PAGE_SIZE - 1) / PAGE_SIZE;
    int64_t tables = d->pool / d->pages_per_table;
    d->tables = tables < 1 ? 1 : tables > BED_ROWS ? BED_ROWS : (int)tables;
    for (int i = 0; i < BED_ROWS; i++)
        d->seq[i] = (llm42_seq){.request = i + 1, .pages = d->pages + d->pages_per_table * (i % d->tables)};
}

// Sequences in a pass: of decoding, or of windows.
static int bed_running(const bench *b, int rows) {
    int64_t windows = rows / b->set.window + 1;
    return !b->cuda ? 0 : (int)(windows > b->set.max_running ? windows : b->set.max_running);
}

static void bed_open(bed *d, bench *b, bed_plan plan) {
    const llm42_config *c = &b->model->config;
    int context = plan.context, fill = plan.fill_rows ? plan.fill_rows : MAX_ROWS;
    *d = (bed){.backend = b->backend, .context = context, .vocab = c->vocab, .sliding_window = c->sliding_window};
    d->pool = (int64_t)((context + PAGE_SIZE - 1) / PAGE_SIZE) * plan.tables;
    llm42_error error = {0};
    llm42_backend_desc desc = {.model = b->model,
                               .compute = b->set.compute,
                               .threads = (int)b->set.threads,
                               .max_rows = plan.max_rows,
                               .max_context = context,
                               .pages = (int)d->pool,
                               .page_size = PAGE_SIZE,
                               .max_running = bed_running(b, plan.max_rows),
                               .fixed_rows = plan.fixed_rows,
                               .schedules = plan.schedules,
                               .overlap = plan.overlap,
                               .backend_desc = b->cuda ? &b->cuda_desc : NULL,
                               .log = args_manifest_log,
                               .log_user = &b->manifest};
    args_check(d->backend->open(&d->state, &desc, &error), &error);
    d->pages = take((size_t)d->pool * sizeof *d->pages);
    for (int i = 0; i < d->pool; i++) {  // a shuffle, or none
        int other = plan.scattered ? (int)(llm42_hash((uint64_t)i) % (uint64_t)(i + 1)) : i;
        d->pages[i] = d->pages[other];
        d->pages[other] = i;
    }
    bed_tables(d, context);
    for (int s = 0; s < d->tables; s++) {
        progress("filling the KV cache, sequence %d of %d", s + 1, d->tables);
        for (int p = 0; p < context;) {
            bed_clear(d);
            for (; p < context && d->rows < fill; p++) bed_row(d, s, p, false);
            bed_run(d, LLM42_FAST, d->rows);
        }
    }
    progress(NULL);
}

static void bed_close(bed *d) {
    d->backend->close(d->state);
    free(d->pages);
}

// Seconds of the pass that the bed holds: a median of at least `repeats` runs, and of more where they are short.
static double bed_time(bed *d, llm42_schedule schedule, int repeats) {
    double times[MAX_SAMPLES], start = seconds();
    int count = 0;
    bed_run(d, schedule, d->rows);
    bed_run(d, schedule, d->rows);
    while (count < repeats || (count < MAX_SAMPLES && seconds() - start < 0.3)) {
        double begin = seconds();
        bed_run(d, schedule, d->rows);
        times[count++] = seconds() - begin;
    }
    return median(times, count);
}

// Decode: one sampled row for each sequence, the last of its context.
static void bed_decode(bed *d, int rows, int context) {
    bed_clear(d);
    for (int i = 0; i < rows; i++) bed_row(d, i, context - 1, true);
}

// Replay: windows that end the context, every row sampled.
static void bed_windows(bed *d, int rows, int window, int context) {
    bed_clear(d);
    for (int i = 0; i < rows; i++) bed_row(d, i / window, context - window + i % window, true);
}

// A prompt's first rows; the last one is sampled.
static void bed_prompt(bed *d, int rows) {
    bed_clear(d);
    for (int i = 0; i < rows; i++) bed_row(d, 0, i, i == rows - 1);
}

static figures pass_measure(const bench *b, bed *d, llm42_schedule schedule, const char *kind, int context) {
    char what[48];
    snprintf(what, sizeof what, "%s_%s", llm42_schedule_name(schedule), kind);
    progress("passes: %s, %d rows, context %d", what, d->rows, context);
    figures f = figures_of(b, "passes", what);
    double time = bed_time(d, schedule, (int)b->set.repeats);
    f.rows = d->rows, f.context_tokens = context, f.ms = 1e3 * time, f.tokens_per_s = d->rows / time;
    f.gb_per_s = 1e-9 * pass_bytes(b->model, d->rows, d->sampled) / time;
    f.gflop_per_s = 1e-9 * pass_flop(b->model, d->rows, d->sampled, d->keys) / time;
    f.memory_share_pct = 100 * f.gb_per_s / b->memory_gb_per_s;
    f.fma_share_pct = 100 * f.gflop_per_s / b->fma_gflop_per_s;
    progress(NULL);
    printf("%-20s %5d %8d %9.3f %10.0f %8.2f %8.1f %9.2f %8.1f\n", what, d->rows, context, f.ms, f.tokens_per_s,
           f.gb_per_s, f.memory_share_pct, f.gflop_per_s, f.fma_share_pct);
    figures_write(b, &f);
    return f;
}

static void passes_at(bench *b, bed *d, int context, bool target) {
    for (int rows = 1; rows <= DECODE_ROWS; rows *= 2) {
        bed_decode(d, rows, context);
        figures f = pass_measure(b, d, LLM42_FAST, "decode", context);
        if (target && rows == 1) b->decode1_share = f.memory_share_pct, b->decode1_rate = f.tokens_per_s;
        if (target && rows == 32) b->decode32_rate = f.tokens_per_s, b->decode32_gflop = f.gflop_per_s;
    }
    for (int rows = 1; rows <= DECODE_ROWS; rows *= DECODE_ROWS) {
        bed_decode(d, rows, context);
        pass_measure(b, d, LLM42_INVARIANT, "decode", context);
    }
    for (int rows = 64; rows <= MAX_ROWS; rows *= 2) {
        bed_windows(d, rows, WINDOW, context);
        figures f = pass_measure(b, d, LLM42_FIXED, "replay", context);
        if (target && rows == MAX_ROWS) b->replay_share = f.fma_share_pct;
    }
}

static void passes(bench *b) {
    static const int wanted[] = {64, 512};
    int limit = b->model->config.context, largest = b->set.quick ? 64 : 512;
    if (largest > limit) largest = limit;
    if (largest < MAX_ROWS && limit >= MAX_ROWS) largest = MAX_ROWS;  // room for the longest prompt below
    bed *d = take(sizeof *d);
    bed_open(d, b, (bed_plan){.max_rows = MAX_ROWS, .context = largest, .tables = TABLES});
    static const char *const head[2][9] = {
        {"", "", "context", "", "", "weights", "weights", "", ""},
        {"passes", "rows", "tokens", "ms", "tokens/s", "GB/s", "% of [A]", "GFLOP/s", "% of [B]"}};
    static const int width[9] = {-20, 5, 8, 9, 10, 8, 8, 9, 8};
    printf("\n");
    head_print(&head[0][0], width, 9);
    head_print(&head[1][0], width, 9);
    for (int i = 0; i < 2 && wanted[i] <= (b->set.quick ? 64 : largest); i++) {
        passes_at(b, d, wanted[i], i == 0);
        b->target_context = wanted[0];
    }
    for (int rows = 64; rows <= MAX_ROWS && rows <= largest; rows *= 4) {
        static const llm42_schedule schedules[] = {LLM42_FAST, LLM42_FIXED, LLM42_INVARIANT};
        for (int i = 0; i < 3; i++) {
            bed_prompt(d, rows);
            pass_measure(b, d, schedules[i], "prompt", rows);
        }
    }
    printf("tokens/s counts rows. decode: a row a sequence, all sampled; replay: windows of %d, all sampled;\n"
           "prompt: the first rows of one prompt, the last sampled.\n",
           WINDOW);
    bed_close(d);
    free(d);
}

static void targets(const bench *b) {
    if (!b->target_context) return;
    printf("\nAt context %d, %d threads:\n", b->target_context, (int)b->set.threads);
    printf("target: decode at batch 1 reads weights at %.1f%% of the memory ceiling [A] (wanted: 50%% or more)\n",
           b->decode1_share);
    printf("target: a replay pass of M = 256 reaches %.1f%% of the multiply-add ceiling [B] (wanted: 40%% or more)\n",
           b->replay_share);
    double ratio = b->decode32_rate / b->decode1_rate;
    printf("target: batch 32 gives %.2f times the tokens/s of batch 1 (wanted: 6 or more; at the whole multiply-add\n"
           "        ceiling it would give %.2f times this batch 1)\n",
           ratio, ratio * b->fma_gflop_per_s / b->decode32_gflop);
}

// >>decode -------------------------------------------------------------------------------------------------------
static int32_t first_token(const llm42_model *model) { return model->config.bos >= 0 ? model->config.bos : 0; }

// Tokens a second of one greedy request, from its first token to its last.
static double decode_rate(const bench *b, llm42_engine *engine, bool deterministic, int tokens) {
    llm42_error error = {0};
    int32_t prompt = first_token(b->model);
    int64_t id = 0;
    llm42_request_desc desc = {.prompt = &prompt,
                               .prompt_count = 1,
                               .max_new_tokens = tokens,
                               .ignore_stop = true,
                               .deterministic = deterministic};
    args_check(llm42_engine_submit(engine, &desc, &id, &error), &error);
    args_check(llm42_engine_run(engine, &error), &error);
    const llm42_request *r = llm42_engine_request(engine, id);
    double rate = (tokens - 1) / (r->last_token - r->first_token);
    args_check(llm42_engine_release(engine, id, &error), &error);
    return rate;
}

static void decode(bench *b) {
    static const struct {
        const char *name;
        llm42_mode mode;
    } modes[] = {
        {"nondeterministic", LLM42_NONDETERMINISTIC}, {"dvr", LLM42_DVR}, {"batch_invariant", LLM42_BATCH_INVARIANT}};
    double rates[64];
    int repeats = (int)b->set.repeats, tokens = (int)b->set.decode_tokens;
    if (tokens >= b->model->config.context) tokens = b->model->config.context - 1;
    printf("\none stream, %d tokens, greedy    median tokens/s      lowest     highest\n", tokens);
    for (int m = 0; m < 3; m++) {
        progress("decode: %s", modes[m].name);
        llm42_engine *engine = NULL;
        llm42_error error = {0};
        llm42_engine_desc desc = {.model = b->model,
                                  .backend = b->backend,
                                  .mode = modes[m].mode,
                                  .compute = b->set.compute,
                                  .threads = (int)b->set.threads,
                                  .max_context = tokens + 1,
                                  .max_running = 1,
                                  .window = (int)b->set.window,
                                  .group = (int)b->set.group};
        args_check(llm42_engine_open(&engine, &desc, &error), &error);
        bool deterministic = modes[m].mode == LLM42_DVR;
        decode_rate(b, engine, deterministic, tokens);
        for (int i = 0; i < repeats; i++) rates[i] = decode_rate(b, engine, deterministic, tokens);
        llm42_engine_close(engine);
        figures f = figures_of(b, "decode", modes[m].name);
        f.rows = 1, f.tokens_per_s = median(rates, repeats);
        progress(NULL);
        printf("%-32s %15.1f %11.1f %11.1f\n", modes[m].name, f.tokens_per_s, rates[0], rates[repeats - 1]);
        figures_write(b, &f);
    }
}

// >>workloads ----------------------------------------------------------------------------------------------------
typedef struct load_case {
    const char *name;
    llm42_mode mode;
    double ratio;  // share of requests that are deterministic
    llm42_verify verify;
    llm42_prefill prefill;
} load_case;

static const load_case load_cases[] = {
    {"nondeterministic", LLM42_NONDETERMINISTIC, 0, LLM42_VERIFY_EAGER, LLM42_PREFILL_PACKED},
    {"dvr_eager_packed", LLM42_DVR, 0, LLM42_VERIFY_EAGER, LLM42_PREFILL_PACKED},
    {"dvr_eager_packed", LLM42_DVR, 0.1, LLM42_VERIFY_EAGER, LLM42_PREFILL_PACKED},
    {"dvr_eager_packed", LLM42_DVR, 0.5, LLM42_VERIFY_EAGER, LLM42_PREFILL_PACKED},
    {"dvr_eager_packed", LLM42_DVR, 1, LLM42_VERIFY_EAGER, LLM42_PREFILL_PACKED},
    {"dvr_wait_packed", LLM42_DVR, 0.1, LLM42_VERIFY_WAIT, LLM42_PREFILL_PACKED},
    {"dvr_wait_packed", LLM42_DVR, 0.5, LLM42_VERIFY_WAIT, LLM42_PREFILL_PACKED},
    {"dvr_wait_packed", LLM42_DVR, 1, LLM42_VERIFY_WAIT, LLM42_PREFILL_PACKED},
    {"dvr_eager_isolated", LLM42_DVR, 1, LLM42_VERIFY_EAGER, LLM42_PREFILL_ISOLATED},
    {"dvr_wait_isolated", LLM42_DVR, 1, LLM42_VERIFY_WAIT, LLM42_PREFILL_ISOLATED},
    {"batch_invariant", LLM42_BATCH_INVARIANT, 0, LLM42_VERIFY_EAGER, LLM42_PREFILL_PACKED},
};
enum { WORKLOADS = sizeof load_cases / sizeof *load_cases, MEASURES = 10, MAX_REPEATS = 63 };

// A workload's engine, and what each repeat gave: [measure][repeat], in the order of load_run.
typedef struct load_run {
    llm42_engine *engine;
    llm42_metrics metrics;
    double value[MEASURES][MAX_REPEATS];
} load_run;

static void on_event(void *user, const llm42_event *event) { llm42_metrics_event(&((load_run *)user)->metrics, event); }

static llm42_engine *load_open(const bench *b, const load_case *w, load_run *run) {
    llm42_error error = {0};
    llm42_engine_desc desc = {.model = b->model,
                              .backend = b->backend,
                              .mode = w->mode,
                              .compute = b->set.compute,
                              .threads = (int)b->set.threads,
                              .backend_desc = b->cuda ? &b->cuda_desc : NULL,
                              .window = (int)b->set.window,
                              .group = (int)b->set.group,
                              .verify = w->verify,
                              .prefill = w->prefill,
                              .max_context = (int)(b->set.input_tokens + b->set.output_tokens),
                              .auto_release = run != NULL,
                              .on_event = run ? on_event : NULL,
                              .event_user = run};
    llm42_engine *engine = NULL;
    args_check(llm42_engine_open(&engine, &desc, &error), &error);
    return engine;
}

// Prompts that look like the model's text, since random tokens would not drift as text does: its own samples.
static void make_prompts(const bench *b, int32_t *prompts) {
    int64_t count = b->set.requests, length = b->set.input_tokens, id = 0;
    const load_case invariant = {.mode = LLM42_BATCH_INVARIANT};
    llm42_engine *engine = load_open(b, &invariant, NULL);
    llm42_error error = {0};
    int32_t first = first_token(b->model);
    for (int64_t i = 0; i < count && length > 1; i++) {
        llm42_request_desc desc = {.prompt = &first,
                                   .prompt_count = 1,
                                   .max_new_tokens = (int)length - 1,
                                   .ignore_stop = true,
                                   .sampling = {.temperature = 1, .seed = (uint64_t)i + 1}};
        args_check(llm42_engine_submit(engine, &desc, &id, &error), &error);
    }
    progress("workloads: making prompts");
    args_check(llm42_engine_run(engine, &error), &error);
    for (int64_t i = 0; i < count; i++) {
        prompts[i * length] = first;
        if (length > 1)
            memcpy(prompts + i * length + 1, llm42_engine_request(engine, i + 1)->tokens,
                   (size_t)(length - 1) * sizeof *prompts);
    }
    llm42_engine_close(engine);
}

// All requests at once; repeat -1 warms up.
static void load_once(const bench *b, const load_case *w, load_run *run, const int32_t *prompts, int repeat) {
    llm42_error error = {0};
    int64_t length = b->set.input_tokens;
    llm42_stats before = llm42_engine_stats(run->engine);
    double arrival = llm42_engine_now(run->engine);
    for (int64_t i = 0; i < b->set.requests; i++) {
        bool deterministic = floor((double)(i + 1) * w->ratio + 1e-9) > floor((double)i * w->ratio + 1e-9);
        llm42_request_desc desc = {.prompt = prompts + i * length,
                                   .prompt_count = (int)length,
                                   .ignore_stop = true,
                                   .max_new_tokens = (int)b->set.output_tokens,
                                   .deterministic = deterministic,
                                   .arrival = arrival};
        int64_t id = 0;
        args_check(llm42_engine_submit(run->engine, &desc, &id, &error), &error);
    }
    args_check(llm42_engine_run(run->engine, &error), &error);
    llm42_stats after = llm42_engine_stats(run->engine);
    llm42_metrics *m = &run->metrics;
    double busy = 0;
    for (int s = 0; s <= LLM42_EXACT; s++) busy += after.busy[s] - before.busy[s];
    double value[MEASURES] = {(double)m->output_tokens / (m->end - m->begin),
                              100.0 * (double)m->recomputed / (double)m->output_tokens,
                              (double)m->rollbacks,
                              100 * (after.busy[LLM42_FIXED] - before.busy[LLM42_FIXED]) / busy,
                              1e3 * llm42_metrics_percentile(m->ttft, 50),
                              1e3 * llm42_metrics_percentile(m->ttft, 99),
                              1e3 * llm42_metrics_percentile(m->itl, 50),
                              1e3 * llm42_metrics_percentile(m->itl, 99),
                              1e3 * llm42_metrics_percentile(m->latency, 50),
                              1e3 * llm42_metrics_percentile(m->latency, 99)};
    for (int i = 0; i < MEASURES && repeat >= 0; i++) run->value[i][repeat] = value[i];
    llm42_metrics_free(m);
    *m = (llm42_metrics){0};
}

static void load_report(const bench *b, const load_case *w, load_run *run, double baseline) {
    int repeats = (int)b->set.repeats;
    const llm42_engine_desc *config = llm42_engine_config(run->engine);
    double v[MEASURES];
    for (int i = 0; i < MEASURES; i++) v[i] = median(run->value[i], repeats);
    figures f = figures_of(b, "workloads", w->name);
    f.deterministic_ratio = w->ratio, f.window = config->window, f.group = config->group;
    f.tokens_per_s = v[0], f.relative_pct = 100 * v[0] / baseline, f.recompute_pct = v[1], f.rollbacks = v[2];
    f.replay_time_pct = v[3], f.ttft_p50_ms = v[4], f.ttft_p99_ms = v[5], f.itl_p50_ms = v[6], f.itl_p99_ms = v[7];
    f.latency_p50_ms = v[8], f.latency_p99_ms = v[9];
    printf("%-18s %7.1f %9.0f %6.1f %6.2f %6.1f %6.0f %7.1f %7.1f %7.2f %7.2f %7.0f %7.0f\n", w->name, w->ratio, v[0],
           f.relative_pct, v[1], v[3], v[2], v[4], v[5], v[6], v[7], v[8], v[9]);
    figures_write(b, &f);
}

static void run_workloads(bench *b) {
    settings *s = &b->set;
    if (s->input_tokens + s->output_tokens > b->model->config.context)
        args_fail(2, "--input-tokens and --output-tokens: their sum is beyond the model's context of %d",
                  b->model->config.context);
    int32_t *prompts = take((size_t)(s->requests * s->input_tokens) * sizeof *prompts);
    make_prompts(b, prompts);
    load_run *runs = take(WORKLOADS * sizeof *runs);
    memset(runs, 0, WORKLOADS * sizeof *runs);
    for (int w = 0; w < WORKLOADS; w++) runs[w].engine = load_open(b, &load_cases[w], &runs[w]);
    // Repeats go round all workloads, so that a slow minute of the machine does not fall on one of them.
    for (int r = -1; r < (int)s->repeats; r++)
        for (int w = 0; w < WORKLOADS; w++) {
            progress("workloads: round %d of %d, %s %g", r + 2, (int)s->repeats + 1, load_cases[w].name,
                     load_cases[w].ratio);
            load_once(b, &load_cases[w], &runs[w], prompts, r);
        }
    progress(NULL);
    const llm42_engine_desc *config = llm42_engine_config(runs[1].engine);
    printf("\nworkloads: %d requests at once, %d tokens in, %d out; at most %d run at a time; W = %d, G = %d\n",
           (int)s->requests, (int)s->input_tokens, (int)s->output_tokens, config->max_running, config->window,
           config->group);
    static const char *const head[2][13] = {
        {"", "deter-", "output", "", "recom-", "replay", "roll-", "TTFT", "ms", "ITL", "ms", "latency", "ms"},
        {"mode", "minist.", "tokens/s", "% rel", "pute %", "% time", "backs", "p50", "p99", "p50", "p99", "p50",
         "p99"}};
    static const int width[13] = {-18, 7, 9, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7};
    head_print(&head[0][0], width, 13);
    head_print(&head[1][0], width, 13);
    double baseline = median(runs[0].value[0], (int)s->repeats);
    for (int w = 0; w < WORKLOADS; w++) load_report(b, &load_cases[w], &runs[w], baseline);
    for (int w = 0; w < WORKLOADS; w++) llm42_engine_close(runs[w].engine);
    free(runs);
    free(prompts);
}

#include "sweep/calibrate.h"
#ifdef LLM42_CUDA
#include "sweep/bench_cuda.h"
#endif

// >>main ---------------------------------------------------------------------------------------------------------
static void tsv_begin(bench *b) {
    if (!b->set.out) return;
    b->tsv = file_begin(b->set.out);
    describe(b, b->tsv, "# ");
    fprintf(b->tsv, "# path: %s; suite: %s\n", b->set.model, b->set.suite);
    fprintf(b->tsv, "# workloads: %d requests at once, input %d tokens, output %d tokens; tokens_per_s counts output\n",
            (int)b->set.requests, (int)b->set.input_tokens, (int)b->set.output_tokens);
    fprintf(b->tsv, "# decode: %d tokens of one greedy stream\n", (int)b->set.decode_tokens);
    fprintf(b->tsv, "# prompts: the model's own samples, temperature 1, seeds 1 to %d\n", (int)b->set.requests);
    fprintf(b->tsv, "# memory_share_pct: gb_per_s of weights / the best memory_read_weights_size\n"
                    "# fma_share_pct: gflop_per_s / the best fma_fp32\n");
    tsv_columns(b);
}

// The suites of a GPU that serve --workload come last: what is wrong with it comes out before the first.
static void check_workload(const settings *s) {
    if (strcmp(s->suite, "all") && strcmp(s->suite, "workloads") && strcmp(s->suite, "online")) return;
    workload w;
    llm42_error error = {0};
    args_check(workload_open(&w, s->workload, "offline", 42, &error), &error);
    workload_close(&w);
}

// What a command line says nothing of; 0 and NULL: it depends on the backend.
static const settings DEFAULTS = {.dtype = "bf16",
                                  .suite = "all",
                                  .threads = 1,
                                  .repeats = 5,
                                  .input_tokens = 64,
                                  .decode_tokens = 256,
                                  .window = 32,
                                  .group = 8,
                                  .backend = "cpu",
                                  .workload = "sharegpt",
                                  .verify = "eager",
                                  .prefill = "packed",
                                  .chunked = "on",
                                  .max_running = 256,
                                  .token_budget = 2048,
                                  .online_requests = 512,
                                  .seeds = 5,
                                  .kv_gb = 64,
                                  .qps = 12};

// What the command line leaves open, and --quick.
static void resolve(settings *s) {
    static const char *const suites[] = {"all", "ceilings", "passes", "workloads", "decode", NULL};
    static const char *const cuda_suites[] = {"all", "passes", "stages", "workloads", "one-of-eleven", "online", NULL};
    bool cuda = !strcmp(s->backend, "cuda");
    args_choice("--suite", s->suite, cuda ? cuda_suites : suites);
    args_choice("--verify", s->verify, (const char *const[]){"eager", "wait", NULL});
    args_choice("--prefill", s->prefill, (const char *const[]){"packed", "isolated", "invariant", NULL});
    args_choice("--chunked", s->chunked, (const char *const[]){"on", "off", NULL});
    if (cuda && !s->calibrate) check_workload(s);
    if (!cuda && (s->match || s->offered || s->algorithm_file))
        args_fail(2, "--match, --offered, --algorithm-file: only with --backend cuda");
    const settings *d = &DEFAULTS;
    bool served = strcmp(s->workload, d->workload) || strcmp(s->verify, d->verify) || strcmp(s->prefill, d->prefill) ||
                  strcmp(s->chunked, d->chunked) || s->token_budget != d->token_budget || s->kv_gb != d->kv_gb ||
                  s->qps != d->qps || s->online_requests != d->online_requests || s->seeds != d->seeds ||
                  s->max_context != d->max_context;
    if (!cuda && served)
        args_fail(2, "--workload, --verify, --prefill, --chunked, --max-context, --token-budget, --kv-gb, --qps, "
                     "--online-requests, --seeds: only with --backend cuda");
    s->compute = args_dtype("--dtype", s->dtype);
    if (!s->model) s->model = cuda ? "synthetic:llama-3.1-8b" : "examples/tiny42";
    if (cuda) s->threads = 1;
    if (!s->requests) s->requests = cuda ? 1024 : 32;
    if (!s->flip_requests) s->flip_requests = cuda ? 256 : 2000;
    if (!s->output_tokens) s->output_tokens = cuda ? 128 : 64;  // cuda: of --calibrate
    if (s->window * s->group > 1 << 20)
        args_fail(2, "--window, --group: W x G of %.0f rows: at most %d", (double)(s->window * s->group), 1 << 20);
    if (!s->quick) return;
    if (s->repeats > 3) s->repeats = 3;
    if (s->requests > (cuda ? 128 : 16)) s->requests = cuda ? 128 : 16;
    if (s->output_tokens > 32) s->output_tokens = 32;
    if (s->flip_requests > (cuda ? 64 : 200)) s->flip_requests = cuda ? 64 : 200;
    if (s->online_requests > 64) s->online_requests = 64;
    if (s->seeds > 2) s->seeds = 2;
}

static settings parse(int argc, char **argv) {
    settings s = DEFAULTS;
#ifdef _OPENMP
    s.threads = omp_get_max_threads();
#endif
    const args_option options[] = {
        ARGS_TEXT("backend NAME", &s.backend, "cpu or cuda"),
        ARGS_TEXT("model DIR", &s.model,
                  "model folder, file or synthetic:NAME; examples/tiny42 (cpu), synthetic:llama-3.1-8b (cuda)"),
        ARGS_INT("threads N", &s.threads, 1, 1024, "threads of the engine and of the ceilings"),
        ARGS_TEXT("dtype TYPE", &s.dtype, "compute type, bf16 or fp32"),
        ARGS_TEXT("suite NAME", &s.suite,
                  "all, ceilings, passes, workloads or decode;\n"
                  "                         cuda: all, passes, stages, workloads, one-of-eleven or online"),
        ARGS_INT("repeats N", &s.repeats, 1, MAX_REPEATS, "runs that a median is taken of"),
        ARGS_INT("requests N", &s.requests, 0, 100000, "workloads: requests, 0: 32 (cpu) or 1024 (cuda)"),
        ARGS_INT("input-tokens N", &s.input_tokens, 1, 1000000, "workloads: tokens of a prompt"),
        ARGS_INT("output-tokens N", &s.output_tokens, 0, 1000000,
                 "workloads: tokens of an output, 0: 64 (cpu) or 128 (cuda, calibrate)"),
        ARGS_INT("tokens N", &s.decode_tokens, 2, 1000000, "decode: tokens of the stream"),
        ARGS_INT("window W", &s.window, 1, 4096, "rows of a window in a replay pass"),
        ARGS_INT("group G", &s.group, 1, 4096, "windows in a replay pass"),
        ARGS_FLAG("quick", &s.quick, "smaller grids and workloads, three repeats"),
        ARGS_TEXT("out FILE", &s.out, "write every figure to a TSV file"),
        ARGS_TEXT("calibrate FILE", &s.calibrate, "only write a calibration for the simulator"),
        ARGS_INT("flip-requests N", &s.flip_requests, 0, 1000000,
                 "calibrate: requests that flips are measured on, 0: 2000 (cpu) or 256 (cuda)"),
        ARGS_TEXT("workload SPEC", &s.workload, "cuda: what --suite workloads and online serve, as in build/sweep"),
        ARGS_TEXT("verify NAME", &s.verify, "cuda: eager or wait"),
        ARGS_TEXT("prefill NAME", &s.prefill, "cuda: packed, isolated or invariant"),
        ARGS_TEXT("chunked NAME", &s.chunked, "cuda: chunked prefill, on or off"),
        ARGS_FLAG("match", &s.match, "cuda: replay passes sum as small fast passes do"),
        ARGS_FLAG("offered", &s.offered, "cuda: fast passes take only such algorithms of cuBLASLt's as it offers"),
        ARGS_TEXT("algorithm-file FILE", &s.algorithm_file, "cuda: chosen matrix algorithms are kept here"),
        ARGS_INT("max-running N", &s.max_running, 1, 2048, "cuda: sequences at once"),
        ARGS_INT("max-context N", &s.max_context, 0, 1 << 24, "cuda: tokens of a request; 0: the model's context"),
        ARGS_INT("token-budget N", &s.token_budget, 1, 1 << 20, "cuda: rows of a pass, at most"),
        ARGS_REAL("kv-gb X", &s.kv_gb, 0.001, 1e6, "cuda: KV pool in GiB, if max_running contexts take as much"),
        ARGS_REAL("qps X", &s.qps, 1e-6, 1e6, "cuda, online: requests a second"),
        ARGS_INT("online-requests N", &s.online_requests, 1, 100000, "cuda, online: requests"),
        ARGS_INT("seeds N", &s.seeds, 1, 100, "cuda, one-of-eleven: runs that a mean is taken of"),
        ARGS_REAL("seconds X", &s.seconds, 0, 1e9, "cuda: begin no measurement after so many; 0: no limit"),
        ARGS_END,
    };
    args_parse(argc, argv, "Speed of passes and whole workloads on the CPU or a GPU.", options);
    resolve(&s);
    return s;
}

static void run_cpu(bench *b) {
    const char *suite = b->set.suite;
    bool all = !strcmp(suite, "all");
    tsv_begin(b);
    if (all || !strcmp(suite, "ceilings") || !strcmp(suite, "passes")) ceilings(b);
    if (all || !strcmp(suite, "passes")) passes(b);
    if (all || !strcmp(suite, "decode")) decode(b);
    if (all || !strcmp(suite, "workloads")) run_workloads(b);
    targets(b);
    if (b->tsv) file_finish(b->tsv, b->set.out);
}

int main(int argc, char **argv) {
    static bench b;
    b = (bench){.set = parse(argc, argv), .got_share = 1, .begun = seconds()};
    llm42_model *model = NULL;
    llm42_error error = {0};
    b.backend = args_backend(b.set.backend);
    b.cuda = !strcmp(b.backend->name, "cuda");
    b.cuda_desc = (llm42_cuda_desc){.algorithm_file = b.set.algorithm_file,
                                    .fast = b.set.offered ? LLM42_CUDA_FAST_OFFERED : LLM42_CUDA_FAST_FASTEST,
                                    .fixed = b.set.match ? LLM42_CUDA_FIXED_MATCH : LLM42_CUDA_FIXED_FIRST};
    llm42_model_desc desc = {.path = b.set.model, .on_device = args_on_device(b.set.model, b.backend)};
    args_check(llm42_model_load(&model, &desc, &error), &error);
    if (!model->layer)
        args_fail(1, "model %s has no weights: it is for the simulator; load a folder or synthetic:NAME", model->name);
    b.model = model;
    b.weight_bytes = pass_bytes(model, 1, 1);
    if (!b.cuda) describe(&b, stdout, "");
    if (b.set.calibrate) calibrate(&b);
#ifdef LLM42_CUDA
    else if (b.cuda) run_cuda(&b);
#endif
    else run_cpu(&b);
    llm42_model_free(model);
    return args_finish();
}
