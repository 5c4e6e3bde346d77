// special_functions: whether a GPU's special functions are those of examples/util/llm42_sfu.h, for all 2^32 floats.
//
//   build/special_functions                       compares
//   build/special_functions --dump lg2 BITS FILE  only writes lg2's results for 2^23 floats, from the one with these
//   bits
//                                                on, for sweep/science/special_functions.py
//
// Built by `make test-cuda`. On sm_90 all have to be equal. Other devices are only measured. The last line is
// "N passed, N failed"; without a device both are 0.
#define LLM42_BASE
#include "examples/util/llm42_sfu.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define COUNTS_OF "special_functions"
#include "tests/cuda/counts.h"

static bool works(cudaError_t status, const char *what) {
    return status == cudaSuccess || count_check(false, what, cudaGetErrorString(status));
}

enum { EX2, RCP, SQRT, RSQRT, LG2, SIN, COS, TANH, KINDS };
static const char *const names[KINDS] = {"ex2", "rcp", "sqrt", "rsqrt", "lg2", "sin", "cos", "tanh"};

// y: the instruction's result; z: what llm42_sfu.h says.
template <int KIND> static __device__ void both(float x, float *y, float *z) {
#define OF(kind, name)                                            \
    if (KIND == kind) {                                           \
        asm(#name ".approx.ftz.f32 %0, %1;" : "=f"(*y) : "f"(x)); \
        *z = llm42_sfu_##name(x);                                 \
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
        asm("tanh.approx.f32 %0, %1;" : "=f"(*y) : "f"(x));
        *z = llm42_sfu_tanh(x);
    }
}

// wrong: how many floats, and the least of them.
template <int KIND> static __global__ void k_compare(unsigned long long *wrong) {
    for (uint64_t i = blockIdx.x * 256ull + threadIdx.x; i < 1ull << 32; i += gridDim.x * 256ull) {
        float y, z;
        both<KIND>(__uint_as_float((uint32_t)i), &y, &z);
        if (__float_as_uint(y) == __float_as_uint(z)) continue;
        atomicAdd(wrong, 1ull);
        atomicMin(wrong + 1, (unsigned long long)i);
    }
}

enum { DUMPED = 1 << 23 };
template <int KIND> static __global__ void k_dump(uint32_t first, float *to) {
    const uint32_t i = blockIdx.x * 256 + threadIdx.x;
    float z;
    both<KIND>(__uint_as_float(first + i), &to[i], &z);
}

#define ALL(kernel) \
    { kernel<EX2>, kernel<RCP>, kernel<SQRT>, kernel<RSQRT>, kernel<LG2>, kernel<SIN>, kernel<COS>, kernel<TANH> }
static void (*const compare[KINDS])(unsigned long long *) = ALL(k_compare);
static void (*const dumps[KINDS])(uint32_t, float *) = ALL(k_dump);

static int dump(const char *name, const char *first, const char *path) {
    int kind = 0;
    float *to;
    std::vector<float> results(DUMPED);
    while (kind < KINDS && strcmp(names[kind], name)) kind++;
    if (kind == KINDS) {
        fprintf(stderr, "special_functions: --dump %s: there are ex2, rcp, sqrt, rsqrt, lg2, sin, cos and tanh\n",
                name);
        return 2;
    }
    if (!works(cudaMalloc(&to, DUMPED * sizeof *to), "memory")) return end();
    dumps[kind]<<<DUMPED / 256, 256>>>((uint32_t)strtoul(first, NULL, 0), to);
    if (!works(cudaMemcpy(results.data(), to, DUMPED * sizeof *to, cudaMemcpyDeviceToHost), name)) return end();
    FILE *file = fopen(path, "wb");
    const bool whole = file && fwrite(results.data(), sizeof *to, DUMPED, file) == DUMPED;
    if ((file && fclose(file)) || !whole) {
        fprintf(stderr, "special_functions: cannot write %s\n", path);
        return 1;
    }
    return 0;
}

int main(int argc, char **argv) {
    int count = 0;
    cudaDeviceProp device;
    unsigned long long *wrong, found[2];
    if (cudaGetDeviceCount(&count) != cudaSuccess || !count) {
        printf("special_functions: skipped: no CUDA device\n");
        return end();
    }
    if (argc == 5 && !strcmp(argv[1], "--dump")) return dump(argv[2], argv[3], argv[4]);
    if (argc > 1) {
        fprintf(stderr, "special_functions: %s: there is --dump NAME BITS FILE\n", argv[1]);
        return 2;
    }
    if (!works(cudaGetDeviceProperties(&device, 0), "the device's properties")) return end();
    if (!works(cudaMalloc(&wrong, sizeof found), "memory")) return end();
    printf("special_functions: %s, sm_%d%d\n", device.name, device.major, device.minor);
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
