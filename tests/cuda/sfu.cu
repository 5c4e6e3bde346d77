// cuda_sfu: whether a GPU's special functions are those of examples/util/llm42_sfu.h, for all 2^32 floats.
//
//   build/tests/cuda_sfu
//
// Built by `make test-cuda`. On sm_90 all have to be equal. Other devices are only measured. The last line is
// "N passed, N failed"; without a device both are 0.
#define LLM42_BASE
#include "examples/util/llm42_sfu.h"

#include <cstdio>

#define COUNTS_OF "cuda_sfu"
#include "counts.h"

static bool works(cudaError_t status, const char *what) {
    return status == cudaSuccess || count_check(false, what, cudaGetErrorString(status));
}

enum { EX2, RCP, SQRT, RSQRT, LG2, SIN, COS, TANH, KINDS };
static const char *const names[KINDS] = {"ex2", "rcp", "sqrt", "rsqrt", "lg2", "sin", "cos", "tanh"};

template <int KIND> static __device__ bool equal(float x) {
    float y = 0, z = 0;
#define OF(kind, name)                                           \
    if (KIND == kind) {                                          \
        asm(#name ".approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); \
        z = llm42_sfu_##name(x);                                 \
    }
    OF(EX2, ex2)
    OF(RCP, rcp)
    OF(SQRT, sqrt)
    OF(RSQRT, rsqrt)
    OF(LG2, lg2)
    OF(SIN, sin)
    OF(COS, cos)
#undef OF
    if (KIND == TANH) {
        asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
        z = llm42_sfu_tanh(x);
    }
    return __float_as_uint(y) == __float_as_uint(z);
}

// wrong: how many floats, and the least of them.
template <int KIND> static __global__ void k_compare(unsigned long long *wrong) {
    for (uint64_t i = blockIdx.x * 256ull + threadIdx.x; i < 1ull << 32; i += gridDim.x * 256ull) {
        if (equal<KIND>(__uint_as_float((uint32_t)i))) continue;
        atomicAdd(wrong, 1ull);
        atomicMin(wrong + 1, (unsigned long long)i);
    }
}

int main() {
    static void (*const compare[KINDS])(unsigned long long *) = {k_compare<EX2>,   k_compare<RCP>, k_compare<SQRT>,
                                                                 k_compare<RSQRT>, k_compare<LG2>, k_compare<SIN>,
                                                                 k_compare<COS>,   k_compare<TANH>};
    int count = 0;
    cudaDeviceProp device;
    unsigned long long *wrong, found[2];
    if (cudaGetDeviceCount(&count) != cudaSuccess || !count) {
        printf("cuda_sfu: skipped: no CUDA device\n");
        return end();
    }
    if (!works(cudaGetDeviceProperties(&device, 0), "the device's properties")) return end();
    if (!works(cudaMalloc(&wrong, sizeof found), "memory")) return end();
    printf("cuda_sfu: %s, sm_%d%d\n", device.name, device.major, device.minor);
    for (int kind = 0; kind < KINDS; kind++) {
        cudaMemset(wrong, 0, 8), cudaMemset(wrong + 1, 255, 8);
        compare[kind]<<<16 * device.multiProcessorCount, 256>>>(wrong);
        if (!works(cudaMemcpy(found, wrong, sizeof found, cudaMemcpyDeviceToHost), names[kind])) return end();
        printf("%-5s: %llu of 4294967296 floats have other bits", names[kind], found[0]);
        printf(found[0] ? ", the first of them is 0x%08llx\n" : "\n", found[1]);
        if (device.major == 9 && device.minor == 0) count_check(!found[0], names[kind], device.name);
    }
    return end();
}
