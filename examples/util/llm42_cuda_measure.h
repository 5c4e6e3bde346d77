// llm42_cuda_measure.h: what only measures a GPU: its ceilings, and the stages of a pass. llm42.cu has the functions.
#ifndef LLM42_CUDA_MEASURE_H
#define LLM42_CUDA_MEASURE_H

#include "llm42.h"

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

#endif  // LLM42_CUDA_MEASURE_H
