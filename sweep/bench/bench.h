// bench.h: what the files of build/bench share.
//
//     sweep/bench.c        options, what a result says of its run, which suites run; what is counted, and how
//     figures.c            lines of the result, tables and progress on a terminal
//     ceilings.c           what the memory and the multiply-adds of this machine can do
//     rig.c                a backend with many sequences, for timing single passes
//     passes.c             passes on the CPU
//     workloads.c          requests on the CPU: one stream, and whole workloads
//     steady.h             whether measured times can be trusted
//     calibrate.c          a calibration for the simulator: pass times, and the file
//     flips.h, flips.c     its flip rates, and the host's work, from requests that are served
//     cuda.c               the suites of a GPU
#ifndef BENCH_H
#define BENCH_H

#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include "examples/lib/engine.h"
#include "sweep/bench/flips.h"
#include "sweep/bench/steady.h"
#include "sweep/lib/common.h"

enum {
    PAGE_SIZE = 16,      // tokens of a KV page
    CPU_ROWS = 256,      // of the largest pass that the CPU's suites time
    MAX_REPEATS = 63,    // --repeats
    CUDA_REPEATS = 20,   // of a pass on a GPU, at least
    CALIBRATION_W = 32,  // of the replay passes whose flips and host time a calibration has
    CALIBRATION_G = 8,
};

typedef struct settings {
    engine_options how;
    const char *suite, *out, *calibrate;
    const char *prompts, *margins;                               // of --calibrate
    const char *preset, *verifier, *verify, *prefill, *chunked;  // NULL: every case; the case's own
    const char *workload;                                        // this and the next two lines: cuda
    int64_t max_running, max_context, token_budget, online_requests, seeds;
    double kv_gb, qps, seconds;
    int64_t repeats, requests, input_tokens, output_tokens, decode_tokens, flip_requests;
    int64_t served_window, served_group;  // as given; 0: the case's own
    int64_t window, group;                // of passes that are timed one by one, and of calibrations
    bool quick, force;
    double temperature;
} settings;

typedef struct bench {
    settings set;
    const llm42_model *model;
    llm42_engine_desc engine;  // what all engines have in common
    bool cuda;
    size_t manifest_written;                                  // cuda: bytes of the manifest that the result has
    bool described;                                           // cuda: the result is open
    double begun;                                             // wall clock, seconds
    FILE *tsv;                                                // NULL: not wanted
    double copy_gb_per_s, read_gb_per_s, matmul_gflop_per_s;  // cuda: ceilings
    double weight_bytes;                                      // of a decode step of one row
    double memory_gb_per_s;  // cpu: ceiling at that size, the largest over thread counts
    double fma_gflop_per_s;  // cpu: ceiling
    double got_share;        // of the processor time that the ceilings asked for; less than 1: others were using it
    double decode1_share, decode1_rate, decode32_rate, decode32_gflop, replay_share;  // cpu: the three targets
    int target_context;                                                               // 0: they were not measured
} bench;

// GPUs that the ranks are on (llm42_cuda_desc.devices). On the CPU ranks share the one machine.
static inline int used_devices(const bench *b) {
    return !b->cuda ? 1 : b->set.how.cuda.devices ? b->set.how.cuda.devices : b->engine.tensor_parallel;
}

// The configuration, each line behind a mark: "# " in files, nothing on the terminal.
void describe(const bench *b, FILE *file, const char *mark);
const char *compiler_name(void);

// >>figures ------------------------------------------------------------------------------------------------------
// One line of the result: a case and its figures. What does not apply stays NAN.
#define COLUMNS(X)         \
    X(threads)             \
    X(buffer_mb)           \
    X(rows)                \
    X(context_tokens)      \
    X(deterministic_ratio) \
    X(window)              \
    X(group)               \
    X(ms)                  \
    X(tokens_per_s)        \
    X(gb_per_s)            \
    X(memory_share_pct)    \
    X(gflop_per_s)         \
    X(fma_share_pct)       \
    X(relative_pct)        \
    X(recompute_pct)       \
    X(rollbacks)           \
    X(replay_time_pct)     \
    X(ttft_p50_ms)         \
    X(ttft_p99_ms)         \
    X(itl_p50_ms)          \
    X(itl_p99_ms)          \
    X(latency_p50_ms)      \
    X(latency_p99_ms)      \
    X(floor_ms)            \
    X(copy_share_pct)      \
    X(matmul_share_pct)    \
    X(launches)            \
    X(requests)            \
    X(qps)                 \
    X(duration_s)          \
    X(nondet_itl_p99_ms)   \
    X(nondet_itl_relative_pct)
typedef struct figures {
    const char *suite;
    char name[48];  // of the case
#define X(column) double column;
    COLUMNS(X)
#undef X
} figures;

figures figures_of(const bench *b, const char *suite, const char *name);  // all NAN but the threads
void figures_write(const bench *b, const figures *f);
void figures_columns(FILE *file);

// The line that says what runs now. It stands on the terminal only, and only until there is something better to read.
// NULL: takes it away.
void progress(const char *format, ...);
// One line of a table's head; a negative width stands left.
void head_print(const char *const *words, const int *width, int count);

// >>rig ----------------------------------------------------------------------------------------------------------
// A rig is an open backend with many sequences that have the KV of real passes at every position, so that attention
// reads what it would. It holds the rows of one pass, which can be run and timed. Where there are more sequences than
// page tables, sequences share them. A row's token depends on its page table and position alone, so that two rows that
// write one place write the same.
enum { RIG_ROWS = 2048 };  // of its largest pass
// The passes that a rig may run. FIXED ones are among them wherever FAST ones are timed: beside INVARIANT passes alone,
// FAST passes on a GPU take the INVARIANT order where that costs little, and here they shall be as fast as they can be.
enum {
    FAST_BIT = 1 << LLM42_SCHEDULE_FAST,
    FIXED_BIT = 1 << LLM42_SCHEDULE_FIXED,
    INVARIANT_BIT = 1 << LLM42_SCHEDULE_INVARIANT
};

typedef struct rig {
    const llm42_backend *backend;
    void *state;
    int vocab, sliding_window;
    double sliding_share;            // of the layers
    int context;                     // filled positions of every sequence
    int64_t pool;                    // pages
    int32_t *pages;                  // [pool]
    int page_tables, pages_a_table;  // page_tables x pages_a_table of them are in use
    int rows, sampled;               // of the pass
    double keys;                     // positions attended to, over all rows; the mean of the layers
    llm42_seq seq[RIG_ROWS];
    llm42_row row[RIG_ROWS];
    llm42_output out[RIG_ROWS];
} rig;

typedef struct rig_desc {
    int max_rows, context, page_tables;
    bool scattered;      // pages lie as a busy engine hands them out, in no order; else one table behind the other
    int fill_rows;       // of the passes that write the KV; 0: CPU_ROWS
    int fixed_rows;      // M; 0: not known
    int running;         // sequences in a pass, at least; 0: --max-running or --window says how many
    unsigned schedules;  // of passes to come; 0: any
} rig_desc;

void rig_open(rig *r, bench *b, rig_desc desc);
void rig_close(rig *r);
// Deals the pool's pages out anew: as many page tables as there can be for so many tokens. What the pages hold stays.
void rig_deal_pages(rig *r, int context);
void rig_clear(rig *r);
void rig_add_row(rig *r, int seq, int position, bool sample);
// The pass becomes one of these. Decode: a sampled row of each sequence, the last of its context.
void rig_decode_rows(rig *r, int rows, int context);
// Replay: windows that end the context, every row sampled.
void rig_window_rows(rig *r, int rows, int window, int context);
// A prompt's first rows; the last one is sampled.
void rig_prompt_rows(rig *r, int rows);
// Rows of a prompt from its row `first` on; `end` says whether they are its last ones, of which the last is sampled.
void rig_chunk_rows(rig *r, int first, int rows, bool end);
// Runs the pass once.
void rig_run(rig *r, llm42_schedule schedule, int shape);
enum { MOST_IN_TURN = 2 };
// Seconds of the pass by each of `count` schedules: medians of at least `repeats` runs, and of more where they are
// short. The schedules take turns, so that a change of the clock rate meets all alike.
void rig_time(rig *r, const llm42_schedule *schedule, int count, int repeats, double *seconds);
// Bytes of KV that the pass reads, every sequence's positions once, and of states that it reads and writes.
double rig_kv_bytes(const bench *b, const rig *r);

// >>passes -------------------------------------------------------------------------------------------------------
// Bytes of weights that a pass reads, and its floating-point operations; keys: positions attended to, over all rows.
double pass_bytes(const llm42_model *model, int rows, int sampled);
double pass_flop(const llm42_model *model, int rows, int sampled, double keys);
void run_passes(bench *b);
void print_targets(const bench *b);

// >>workloads ----------------------------------------------------------------------------------------------------
// How requests are served.
typedef struct serving_case {
    llm42_preset preset;  // 0: mode NONDETERMINISTIC
    double ratio;         // share of requests that are deterministic
} serving_case;

typedef struct case_text {
    char text[48];
} case_text;

case_text case_name(const serving_case *c);  // "dvr"
// Sets what a case and the options say of an engine's policies.
void case_policies(const bench *b, const serving_case *c, llm42_engine_desc *desc);
// False: --preset leaves it out. The case without a preset is always there: others are compared with it.
bool case_chosen(const bench *b, const serving_case *c);
void run_decode(bench *b);
void run_workloads(bench *b);
// Prompts of set.input_tokens that look like the model's text, since random tokens would not drift as text does: its
// own samples. prompts: [set.requests][set.input_tokens].
void make_prompts(const bench *b, int32_t *prompts);
// Exits where a prompt and its output are longer than the model's context.
void check_lengths(const bench *b);

// >>flips --------------------------------------------------------------------------------------------------------
// What is found out by serving requests.
typedef struct flips {
    flip_grid grid, seen;                // the calibration's table, and the counts before neighbours were joined
    double shape;                        // of the gamma distribution over requests
    double host_ms[LLM42_KIND_COUNT];    // as in the calibration
    double inside_ms, outside_ms;        // of a timed pass: in the backend, and between passes
    int64_t passes, left_out, requests;  // timed passes, those that took far too long, requests of a run
    int timed_replay, loads, load[4];    // M of the timed passes; sequences at once
    char workload[64];
} flips;

// cost: the pass times that were measured, with no host's work.
void flips_measure(bench *b, llm42_calibration *cost, steadiness *steady, flips *f);
// Counts flips by margin into --margins.
void run_margins(const bench *b);

// >>others -------------------------------------------------------------------------------------------------------
void run_ceilings(bench *b);
// The share of the processor time that this program gets of what it asks for with all its threads, measured for a tenth
// of a second. Less than 1: other programs are using the processor, or there are more threads than processors.
double processor_share(const bench *b);
// Waits for a processor that other programs leave to this one: a second at most. Returns its share.
double wait_for_processor(const bench *b);
void run_calibrate(const bench *b);
void run_cuda(bench *b);

#endif  // BENCH_H
