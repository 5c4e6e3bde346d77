// kernels.h: what the files of build/kernels share.
//
//     main.c          options, the table on the terminal and as TSV, the exit status
//     measure.cu      opens the backend of the 8B shape and runs the parts
//     timing.h      device memory, and timing launches
//     products.h    part products: matrix products by number of rows
//     leaves.h      part leaves: products with leaves by number of rows
//     norms.h       part rmsnorm, and an RMSNorm that splits a row among blocks
//     operators.h   part operators: which operators keep the bits of a row
//     probes.h      how a part of a pass is probed
//     cost.h        part cost: whole passes by schedule
//     attention.h   part attention: a layer's attention of whole prompts
//     exchange.h    part exchange: how two devices add their parts of a sum
//
// measure.cu includes llm42.cu, so that what is measured is what an engine runs.
#ifndef SWEEP_KERNELS_H
#define SWEEP_KERNELS_H

#ifdef __cplusplus
extern "C" {
#endif

// One line of the result. Numbers that it does not have are negative; texts that it does not have are NULL.
typedef struct kernels_line {
    const char *part, *subject, *variant;
    int rows;
    int n, k, leaves, ranks;
    double us, exchange_us, tflop_per_s, gb_per_s;
    // products, leaves: of cuBLAS's TFLOP/s; rmsnorm: of the copy ceiling; cost: time, of FAST; exchange: exchange_us,
    // of NCCL's all-gather
    double relative_pct;
    double ceiling_pct;  // products, leaves: the least time by the ceilings that last, of us
    const char *batch_invariant, *position_invariant, *repeats;  // yes, no, or "not run"
    int distinct;                                                // results of one row, over the row counts
    int changes_at;  // the first row count with another result than that of one row; 0: none
    int row_counts, most_rows, places;
    const char *published_as;  // the operator of sweep/reference/table2_invariance.tsv
    const char *note;
    const char *bits;  // exchange: "equal" to ours or "differ"
    bool must_equal;
    bool control, control_failed;
} kernels_line;

typedef struct kernels_settings {
    const char *part, *model, *algorithm_file;
    int most_rows;  // of a pass
    int leaves;     // of INVARIANT passes; part leaves needs more than one
    bool quick;
    bool one_by_one;    // part exchange: NCCL without CUDA graphs
    llm42_log_fn *log;  // gets the backend's manifest
    void *log_user;
    void (*progress)(const char *text);
    void (*emit)(void *user, const kernels_line *line);
    void *user;
} kernels_settings;

// Runs the parts that the settings name. The first line has the ceilings, but for part exchange; the manifest is
// complete before it.
llm42_result kernels_measure(const kernels_settings *settings, llm42_error *error);

#ifdef __cplusplus
}
#endif

static inline kernels_line kernels_line_of(const char *part, const char *subject, const char *variant, int rows) {
    kernels_line line;
    memset(&line, 0, sizeof line);
    line.part = part, line.subject = subject, line.variant = variant, line.rows = rows;
    line.n = line.k = line.leaves = line.ranks = -1;
    line.us = line.exchange_us = line.tflop_per_s = line.gb_per_s = line.relative_pct = -1;
    line.ceiling_pct = -1;
    line.distinct = line.changes_at = line.row_counts = line.most_rows = line.places = -1;
    return line;
}

#endif  // SWEEP_KERNELS_H
