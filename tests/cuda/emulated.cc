// The CUDA backend on a CPU: emulator.h, the calls of the CUDA runtime and of cuBLASLt that the backend makes, and the
// backend itself. The Makefile makes copies of llm42.cu and kernels.cu, and this file includes the copies. In them
// launches by <<<>>> are calls, and dynamic shared memory is a pointer.
#include "emulated_runtime.h"

#include "llm42.cu"

// >>cublas -------------------------------------------------------------------------------------------------------
// cuBLASLt offers nothing. What it makes is never looked at.
template <typename T> static cublasStatus_t make(T *to) {
    *to = (T)8;
    return CUBLAS_STATUS_SUCCESS;
}
extern "C" {
cublasStatus_t cublasLtCreate(cublasLtHandle_t *to) { return make(to); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
size_t cublasLtGetVersion() { return 0; }
const char *cublasLtGetStatusString(cublasStatus_t) { return "an emulated error"; }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *to, cublasComputeType_t, cudaDataType_t) { return make(to); }
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void *,
                                              size_t) {
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *to, cudaDataType_t, uint64_t, uint64_t, int64_t) { return make(to); }
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, const void *,
                                                size_t) {
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *to) { return make(to); }
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                    const void *, size_t) {
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t[],
                                              int *count) {
    *count = 0;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t *, cublasLtMatmulHeuristicResult_t *) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t *, cublasLtMatmulAlgoConfigAttributes_t,
                                                    const void *, size_t) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *, cublasLtMatmulAlgoConfigAttributes_t,
                                                    void *, size_t, size_t *) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void *, const void *,
                              cublasLtMatrixLayout_t, const void *, cublasLtMatrixLayout_t, const void *, const void *,
                              cublasLtMatrixLayout_t, void *, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *,
                              void *, size_t, cudaStream_t) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
}
}

// >>algorithms ---------------------------------------------------------------------------------------------------
// Nothing is timed: kernels take turns, so that tests meet all of them. All give the same bits.
static llm42_result emulated_time(llm42__trial *t, const llm42__algorithm *p, int, float *us, llm42_error *) {
    *us = (float)((p->tile * 5 + t->product * 3 + t->rows) % (LLM42__TILE_KINDS + LLM42__LEAF_KINDS - 1) + 1);
    return LLM42_OK;
}
// None is of cuBLASLt. Those without leaves have another order than those with them, where a product has leaves.
static llm42_result emulated_order(llm42__trial *t, const llm42__algorithm *p, bool *sequential, llm42_error *) {
    *sequential = p->leaves || !llm42__cut(t->cu, t->product);
    return LLM42_OK;
}
static llm42_result emulated_good(llm42__trial *, const llm42__algorithm *, bool *good, llm42_error *) {
    *good = true;
    return LLM42_OK;
}
static llm42_result emulated_alive(llm42_error *) { return LLM42_OK; }
static const llm42__tests emulated_tests = {llm42__run_product, emulated_time, emulated_order,
                                            emulated_good,      emulated_good, emulated_alive};
static const bool emulated_chosen = (llm42__algorithm_tests = &emulated_tests, true);
