// emulated_runtime.h: the calls of the CUDA runtime that the backend and tests make, for the devices of emulator.h. A
// program includes it once, before its kernels.
#ifndef LLM42_EMULATED_RUNTIME_H
#define LLM42_EMULATED_RUNTIME_H
#include "emulator.h"

// What a call answers that does this, and cannot fail.
template <typename... DONE> static cudaError_t done(DONE &&...) { return cudaSuccess; }

static int cluster_size(const cudaLaunchConfig_t *config) {
    int blocks = 1;
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == cudaLaunchAttributeClusterDimension) blocks = (int)config->attrs[i].val.clusterDim.x;
    return blocks;
}
static bool is_dependent(const cudaLaunchConfig_t *config) {
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization)
            return config->attrs[i].val.programmaticStreamSerializationAllowed;
    return false;
}
#define cudaLaunchKernelEx(config, kernel, ...)                                                            \
    emulator::launch({(config)->gridDim, (config)->blockDim, (config)->dynamicSmemBytes, (config)->stream, \
                      cluster_size(config), is_dependent(config)},                                         \
                     kernel, __VA_ARGS__)

template <typename KERNEL> static cudaError_t cudaFuncSetAttribute(KERNEL *, cudaFuncAttribute, int) { return done(); }
template <typename KERNEL> static cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *built, KERNEL *) {
    return done(built->maxThreadsPerBlock = 1024);
}

// >>runtime ------------------------------------------------------------------------------------------------------
enum { DEVICES = 2 };
static int emulated_major = 9;  // compute capability, which a control may change
static thread_local int device_now;
static std::mutex streams_mutex;
static std::vector<emulator::stream *> streams;

struct emulated_event {
    std::atomic<uint64_t> asked{0}, done{0};
};
struct emulated_exec {
    emulator::graph graph;
};

extern "C" {
cudaError_t cudaGetDeviceCount(int *count) { return done(*count = DEVICES); }
cudaError_t cudaSetDevice(int device) {
    if (device < 0 || device >= DEVICES) return cudaErrorInvalidDevice;
    device_now = device;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device) { return done(*device = device_now); }
// It has the arithmetic of a Hopper GPU.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *to, int) {
    *to = {};
    snprintf(to->name, sizeof to->name, "emulated GPU");
    to->major = emulated_major, to->minor = 0;
    to->multiProcessorCount = getenv("EMULATOR_PROCESSORS") ? atoi(getenv("EMULATOR_PROCESSORS")) : 132;
    to->totalGlobalMem = (size_t)16 << 30;
    to->sharedMemPerBlockOptin = 232448, to->sharedMemPerMultiprocessor = 233472, to->l2CacheSize = 50 << 20;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr, int) {
    *value = emulated_major;  // the major compute capability: nothing else is asked for
    return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { return done(*least = 0, *greatest = -1); }
cudaError_t cudaDeviceCanAccessPeer(int *can, int, int) { return done(*can = 1); }
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int *version) { return done(*version = CUDART_VERSION); }
cudaError_t cudaRuntimeGetVersion(int *version) { return done(*version = CUDART_VERSION); }
const char *cudaGetErrorString(cudaError_t) { return "an emulated error"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }

// Maps are of arrays of bf16 or bytes whose boxes have rows of 128 bytes.
static CUresult emulated_encode(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *from,
                                const cuuint64_t *size, const cuuint64_t *stride, const cuuint32_t *box,
                                const cuuint32_t *step, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    emulator::box_map own = {(const unsigned char *)from, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, 0};
    own.bytes = type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 ? 2 : type == CU_TENSOR_MAP_DATA_TYPE_UINT8 ? 1 : 0;
    if (rank > 3 || swizzle != CU_TENSOR_MAP_SWIZZLE_128B || (int)box[0] * own.bytes != 128 || (uintptr_t)from % 16)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < rank; i++) {
        if (box[i] > 256 || step[i] != 1 || (i && stride[i - 1] % 16)) return CUDA_ERROR_INVALID_VALUE;
        own.size[i] = (int64_t)size[i], own.box[i] = (int)box[i], own.stride[i] = i ? (int64_t)stride[i - 1] : 0;
    }
    own.size[0] *= own.bytes;
    memcpy(map, &own, sizeof own);
    return CUDA_SUCCESS;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **to, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult *) {
    if (strcmp(name, "cuTensorMapEncodeTiled")) return cudaErrorNotSupported;
    *to = (void *)emulated_encode;
    return cudaSuccess;
}

// Memory holds what is no number until it is written.
cudaError_t cudaMalloc(void **to, size_t bytes) {
    *to = aligned_alloc(512, (bytes + 511) / 512 * 512);
    if (!*to) return cudaErrorMemoryAllocation;
    memset(*to, 0xff, bytes);
    std::lock_guard<std::mutex> hold(emulator::memory_mutex);
    emulator::memory[(unsigned char *)*to] = bytes;
    return cudaSuccess;
}
cudaError_t cudaFree(void *block);
cudaError_t cudaHostAlloc(void **to, size_t bytes, unsigned) { return cudaMalloc(to, bytes); }
cudaError_t cudaFreeHost(void *block) { return cudaFree(block); }
cudaError_t cudaHostGetDevicePointer(void **to, void *from, unsigned) { return done(*to = from); }
cudaError_t cudaMemGetInfo(size_t *left, size_t *all) { return done(*left = *all = (size_t)16 << 30); }
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind) {
    return done(memmove(to, from, bytes));
}
cudaError_t cudaMemset(void *to, int value, size_t bytes) { return done(memset(to, value, bytes)); }
cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                         cudaMemcpyKind kind) {
    for (size_t y = 0; y < height; y++)
        cudaMemcpy((char *)to + y * to_pitch, (const char *)from + y * from_pitch, width, kind);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
    return emulator::enqueue(stream, [=] { memmove(to, from, bytes), emulator::begins = true; });
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    return emulator::enqueue(stream, [=] { memset(to, value, bytes), emulator::begins = true; });
}
cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream) {
    return emulator::enqueue(stream, [=] {
        for (size_t i = 0; i < height; i++) memset((char *)to + i * pitch, value, width);
        emulator::begins = true;
    });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *to, unsigned) {
    emulator::stream *s = new emulator::stream(device_now);
    std::lock_guard<std::mutex> hold(streams_mutex);
    streams.push_back(s);
    *to = (cudaStream_t)s;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    std::lock_guard<std::mutex> hold(streams_mutex);
    streams.erase(std::find(streams.begin(), streams.end(), (emulator::stream *)stream));
    delete (emulator::stream *)stream;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (stream) ((emulator::stream *)stream)->wait();
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    if (!stream || ((emulator::stream *)stream)->idle()) return cudaSuccess;
    std::this_thread::yield();
    return cudaErrorNotReady;
}
cudaError_t cudaDeviceSynchronize() {
    std::vector<emulator::stream *> own;
    {
        std::lock_guard<std::mutex> hold(streams_mutex);
        for (emulator::stream *s : streams)
            if (s->device == device_now) own.push_back(s);
    }
    for (emulator::stream *s : own) s->wait();
    return cudaSuccess;
}

cudaError_t cudaFree(void *block) {
    cudaDeviceSynchronize();
    std::lock_guard<std::mutex> hold(emulator::memory_mutex);
    emulator::memory.erase((unsigned char *)block);
    free(block);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *to, unsigned) { return done(*to = (cudaEvent_t) new emulated_event); }
cudaError_t cudaEventCreate(cudaEvent_t *to) { return cudaEventCreateWithFlags(to, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete (emulated_event *)event, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    emulated_event *e = (emulated_event *)event;
    const uint64_t number = ++e->asked;
    return emulator::enqueue(stream, [=] { e->done = number; });
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t f, void *with) {
    return emulator::enqueue(stream, [=] { f(with); });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    emulated_event *e = (emulated_event *)event;
    if (e->done == e->asked) return cudaSuccess;
    std::this_thread::yield();
    return cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    while (cudaEventQuery(event) != cudaSuccess) continue;
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t, cudaEvent_t) { return done(*ms = 1); }

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    return done(((emulator::stream *)stream)->captured = new emulator::graph);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    *graph = (cudaGraph_t)((emulator::stream *)stream)->captured;
    ((emulator::stream *)stream)->captured = nullptr;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long) {
    return done(*exec = (cudaGraphExec_t) new emulated_exec{*(emulator::graph *)graph});
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    if (!exec) return cudaErrorInvalidValue;
    for (const emulator::work &w : ((emulated_exec *)exec)->graph.works) emulator::enqueue(stream, w);
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return delete (emulated_exec *)exec, cudaSuccess; }
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete (emulator::graph *)graph, cudaSuccess; }
cudaError_t cudaFuncSetAttribute(const void *, cudaFuncAttribute, int) { return cudaSuccess; }
}
#endif
