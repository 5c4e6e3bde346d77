// llm42_cuda.h: the CUDA backend, and what measures a GPU: its ceilings, and the stages of a pass. llm42.cu has the
// functions.
#ifndef LLM42_CUDA_H
#define LLM42_CUDA_H

#include "llm42.h"

// The CUDA backend is in llm42.cu and kernels.cu: link them to use it. It computes in bf16. When it opens, it chooses
// an algorithm for each matrix product, and logs device, driver, libraries, algorithms and what opening took. Each line
// is `cuda KEY: VALUE`; together they are the manifest of a result file. If an algorithm's product of noise differs
// from a plain kernel's by more than rounding can explain, the algorithm is not used, and a line `cuda refused: ...`
// names it. The algorithms of deterministic passes are then checked bit by bit. A FIXED pass takes the first algorithm
// in cuBLASLt's list for M rows whose bits hold, as serving engines take the first of that list. If none holds, or if
// that one sums in the INVARIANT order, it takes the fastest of that order.
typedef enum llm42_cuda_fast {  // how a FAST pass sums
    LLM42_CUDA_FAST_DEFAULT = 0,
    // Default: each matrix product takes the fastest of (1) what cuBLASLt offers first for this number of rows, (2)
    // variants of its first choice (with CUDA 12.8 or later; meant for Hopper), and (3) the kernels of kernels.cu. On
    // an H200 nearly all algorithms that win have the INVARIANT order of sums, and attention has one order in passes of
    // all schedules. Then batches of any size agree. Where INVARIANT passes verify (verifier INVARIANT, mode HYBRID),
    // products of FAST passes take the INVARIANT order, so that few candidates are rolled back: those of up to 16 rows,
    // and those of more rows where it costs at most 2%.
    LLM42_CUDA_FAST_FASTEST,
    // The fastest of (1) and (3), without the variants. The order of sums differs from one number of rows to another.
    // FAST passes never prefer the INVARIANT order of products, whatever verifies them. So verifier INVARIANT and mode
    // HYBRID then meet the drift that other engines' products have.
    LLM42_CUDA_FAST_OFFERED,
} llm42_cuda_fast;

typedef struct llm42_cuda_desc {
    int device;            // ordinal, of rank 0; default: 0
    llm42_cuda_fast fast;  // default: FASTEST
    // Tensor parallelism: the ranks are on this number of devices, `device` and those after it. If there are fewer
    // devices than ranks, ranks share them: results are the same, and nothing is faster. Default: a device for each
    // rank. If engines of a process share one of several devices, their passes run one after the other, and wait while
    // another thread opens or closes an engine on one of these devices. Engines on one device are free of this.
    int devices;
    // A file that keeps the chosen algorithms from run to run. An engine takes those that the file holds for this
    // device, driver and libraries, these matrix shapes, options and numbers of rows. It chooses what is missing and
    // adds it to the file. Default: none; every open chooses again.
    const char *algorithm_file;
    bool no_graphs;  // launch kernels one by one; default: CUDA graphs
    bool no_check;   // leave out open's tests of algorithms, to measure time: nothing is promised then; default: check
    // All matrix products run by kernels.cu, in the INVARIANT order. Then bits do not depend on cuBLASLt's version, but
    // passes of many rows are slow. Default: cuBLASLt where it is faster.
    bool no_cublas;
} llm42_cuda_desc;

// .backend_desc is an llm42_cuda_desc; default: its defaults.
LLM42_API const llm42_backend *llm42_backend_cuda(void);

// Ceilings of a device, measured now, medians of several runs: bytes/s of a device-to-device copy (read + written),
// bytes/s read by a kernel that only reads, bf16 FLOP/s of cuBLAS (4096 x 14336 x 4096). Errors: UNSUPPORTED, BACKEND.
typedef struct llm42_cuda_ceilings {
    double copy_bytes_per_s, read_bytes_per_s, matmul_flop_per_s;
} llm42_cuda_ceilings;
LLM42_API llm42_result llm42_cuda_measure_ceilings(llm42_cuda_ceilings *ceilings, int device, llm42_error *error);

// Runs a pass launch by launch and times each stage (all layers together) on the device: medians of `repeats` runs.
// state is that of llm42_backend_cuda.
enum { LLM42_CUDA_STAGES = 16 };
typedef struct llm42_cuda_stage {
    const char *name;
    double ms;
    int launches;
} llm42_cuda_stage;
LLM42_API llm42_result llm42_cuda_stages(void *state, const llm42_pass *pass, int repeats,
                                         llm42_cuda_stage stages[LLM42_CUDA_STAGES], int *count, llm42_error *error);

#endif  // LLM42_CUDA_H
