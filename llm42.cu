// llm42.cu: the CUDA backend of llm42.h. It owns device memory, matrix algorithms, streams and CUDA graphs. The kernels
// are in kernels.cu. `make cuda` builds it; the head of llm42.h has the commands to build it by hand.
//
// A pass is padded to one of a few numbers of rows, called buckets. For each bucket, matrix product and schedule the
// backend holds an algorithm: a kernel of kernels.cu or one of cuBLASLt's algorithms. The sequential order is that of
// tile kernels (llm42__k_matmul); its bits are the same for every number of rows.
// - FAST takes the fastest algorithm: with the option OFFERED, of tile kernels and of what cuBLASLt offers. Where
//   INVARIANT passes verify FAST ones, FAST too takes the sequential order, unless that costs too much or with OFFERED.
// - INVARIANT takes the fastest algorithm of the sequential order.
// - FIXED takes the order of cuBLASLt's first choice for M rows.
// When the backend opens, it times a few algorithms for each, compares the products of the fastest with those of a
// plain kernel, and checks bit by bit that they keep their order. Passes of the usual shapes are CUDA graphs.
//
// Sections: cuda-errors, -state, -products, -launches, -graphs, -tasks, -run, -memory, -trials, -algorithms,
// -algorithm-file, -open, -measure. A pass comes in at cuda-run, which uses the four before it.
#define LLM42_BASE
#include "llm42.h"
#include "examples/util/llm42_cuda.h"

#include "kernels.cu"

#include <cublasLt.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cmath>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

// >>cuda-errors --------------------------------------------------------------------------------------------------
// Owns: turning errors of CUDA and cuBLASLt, and C++ exceptions, into llm42_result.
// Calls: results (llm42.h).
// Invariant: an error is reported once. cudaGetLastError then forgets it, so that the next call does not report it.

// For calls that return cudaError_t or cublasStatus_t. STATUS is such a call's llm42_result. CU makes the calling
// function return that if it is not LLM42_OK. (By STATUS it would name the call as macros of CUDA rename it.)
#define LLM42__STATUS(call) llm42__cuda_status(error, #call, (call))
#define LLM42__CU(call) LLM42__TRY(llm42__cuda_status(error, #call, (call)))

static llm42_result llm42__cuda_status(llm42_error *error, const char *call, cudaError_t e) {
    if (e == cudaSuccess) return LLM42_OK;
    const int length = (int)strcspn(call, "(");
    cudaGetLastError();
    if (e == cudaErrorMemoryAllocation)
        LLM42__FAIL(MEMORY, "cuda backend: %.*s: out of memory: lower pages, max_context or token_budget", length,
                    call);
    if (e == cudaErrorNoKernelImageForDevice || e == cudaErrorInvalidDeviceFunction ||
        e == cudaErrorUnsupportedPtxVersion)
        LLM42__FAIL(
            UNSUPPORTED,
            "cuda backend: built for other GPUs than this one: make cuda CUDA_ARCH=NN with its compute capability");
    const bool is_lost = e == cudaErrorIllegalAddress || e == cudaErrorLaunchFailure || e == cudaErrorLaunchTimeout ||
                         e == cudaErrorECCUncorrectable || e == cudaErrorNvlinkUncorrectable ||
                         e == cudaErrorHardwareStackError || e == cudaErrorIllegalInstruction ||
                         e == cudaErrorMisalignedAddress || e == cudaErrorInvalidAddressSpace ||
                         e == cudaErrorInvalidPc || e == cudaErrorAssert || e == cudaErrorDevicesUnavailable ||
                         e == cudaErrorContained || e == cudaErrorUnknown;
    LLM42__FAIL(BACKEND, "cuda backend: %.*s: %s%s", length, call, cudaGetErrorString(e),
                is_lost ? ": the device is lost to this process: start a new one and open the engine again" : "");
}

static llm42_result llm42__cuda_status(llm42_error *error, const char *call, cublasStatus_t status) {
    if (status == CUBLAS_STATUS_SUCCESS) return LLM42_OK;
    return llm42_fail(error, status == CUBLAS_STATUS_ALLOC_FAILED ? LLM42_MEMORY : LLM42_BACKEND,
                      "cuda backend: %.*s: %s", (int)strcspn(call, "("), call, cublasLtGetStatusString(status));
}

// Runs f, which returns a llm42_result. C calls the backend's functions, so no exception may leave them.
template <typename F> static llm42_result llm42__guarded(llm42_error *error, F f) {
    try {
        return f();
    } catch (const std::bad_alloc &) {
        LLM42__FAIL(MEMORY, "cuda backend: out of host memory");
    } catch (...) {
        LLM42__FAIL(BACKEND, "cuda backend: an unexpected C++ exception");
    }
}

// >>cuda-state ---------------------------------------------------------------------------------------------------
// Owns: the structs of the backend.
// Calls: nothing.
// Invariant: buckets are ascending, and the last one is max_rows.
// Products. The first five may have weights in e4m3, in some layers or in all, and have other algorithms then.
enum { LLM42__QKV, LLM42__O, LLM42__GATE_UP, LLM42__DOWN, LLM42__MIXED, LLM42__HEAD, LLM42__ROUTER, LLM42__RAW };
enum { LLM42__E4M3 = 8, LLM42__PRODUCTS = LLM42__E4M3 + 5 };  // LLM42__E4M3 + LLM42__O: that of o in e4m3
static const char *const llm42__product_names[] = {"qkv",          "o",         "gate_up",    "down",     "mixed",
                                                   "head",         "router",    "beta_alpha", "qkv_e4m3", "o_e4m3",
                                                   "gate_up_e4m3", "down_e4m3", "mixed_e4m3"};
static bool llm42__in_e4m3(int product) { return product >= LLM42__E4M3; }
static int llm42__operator_of(int product) { return product % LLM42__E4M3; }  // whatever the type of its weights
static const llm42_schedule llm42__schedules[] = {LLM42_SCHEDULE_FAST, LLM42_SCHEDULE_FIXED, LLM42_SCHEDULE_INVARIANT};

// How one product is computed for one number of rows.
struct llm42__algorithm {
    int tile = -1;  // of llm42__tile_kinds, or behind them of llm42__leaf_kinds or llm42__e4m3_kinds; -1: cuBLASLt
    cublasLtMatmulAlgo_t algo;
    cublasLtMatrixLayout_t w = nullptr, x = nullptr, y = nullptr;  // owned by the layouts' list
    float us = 0;
    bool leaves = false;      // it sums as INVARIANT passes do where ranks or leaves cut the sums (llm42__cut)
    bool sequential = false;  // it sums in the order of INVARIANT: the sequential one, of products with leaves in each
    bool e4m3 = false;        // of cuBLASLt: for weights in e4m3
};

enum { LLM42__FIRST_E4M3_KIND = LLM42__TILE_KINDS + LLM42__LEAF_KINDS };
enum { LLM42__ALL_KINDS = LLM42__FIRST_E4M3_KIND + LLM42__E4M3_KINDS };
static const llm42__leaf_kind *llm42__leaf_kind_of(const llm42__algorithm *p) {  // NULL: it is none
    const bool leaf = p->tile >= LLM42__TILE_KINDS && p->tile < LLM42__FIRST_E4M3_KIND;
    return leaf ? &llm42__leaf_kinds[p->tile - LLM42__TILE_KINDS] : nullptr;
}
static const llm42__e4m3_kind *llm42__e4m3_kind_of(const llm42__algorithm *p) {  // NULL: it is none
    return p->tile < LLM42__FIRST_E4M3_KIND ? nullptr : &llm42__e4m3_kinds[p->tile - LLM42__FIRST_E4M3_KIND];
}
static const char *llm42__kind_name(const llm42__algorithm *p) {
    const llm42__leaf_kind *leaf = llm42__leaf_kind_of(p);
    const llm42__e4m3_kind *eight = llm42__e4m3_kind_of(p);
    return leaf ? leaf->name : eight ? eight->name : p->tile < 0 ? "cublasLt" : llm42__tile_kinds[p->tile].name;
}

struct llm42__cuda_layer {
    float *attention_norm, *ffn_norm, *q_norm, *k_norm;
    float *taps, *decay, *alpha_bias, *head_norm;  // recurrent: qkv, z, beta, alpha are MIXED; in FP8 the last are RAW
    float *bias, *o_bias, *gate_bias, *down_bias;  // of qkv; gate_bias: of gate and then of up, padded as they are
    // NULL where the layer has that operator's weights in another type. Of a mixture gate_up and down are those of all
    // experts, one behind the other. Weights in e4m3 are bytes [n, k], with those of gate before those of up. Behind
    // them are their scales (llm42__e4m3_args), and then llm42_matrix.input_scale.
    llm42__bf16 *w[LLM42__PRODUCTS];
};

struct llm42__shape_key {  // what the launches of a pass depend on
    llm42_schedule schedule;
    int rows, draws;       // padded
    bool prefill, decode;  // attention kernels that it needs
};

// Layers see the whole sequence or have a sliding window. Each kind that a model has needs attention tasks of its own.
enum { LLM42__FULL, LLM42__SLIDING, LLM42__REACHES };
struct llm42__tasks {
    std::vector<llm42__prefill_task> prefill;
    std::vector<llm42__decode_task> decode;
};

// A pass as the host has prepared it. Kept between passes, so that no pass allocates.
struct llm42__prepared {
    llm42__shape_key key;
    llm42__tasks tasks[LLM42__REACHES];
    std::vector<int> run_begin;    // first row of each run of rows of one sequence
    std::vector<int> seqs;         // of the runs, ascending
    std::vector<llm42__run> runs;  // for recurrent layers: the longest first
    int groups;                    // of their positions
    int draws, page_stride;
    bool old;                                  // see llm42__header
    size_t head_bytes, pages_at, pages_bytes;  // the metadata up to the tasks, and the page tables
};

// What a pass needs for itself while it runs.
struct llm42__execution {
    cudaStream_t stream;
    bool shared;  // the stream is that of a rank before this one
    llm42__bf16 *x, *h, *delta, *qkv, *q, *attended, *gate_up, *gated, *expert_out;
    llm42__bf16 *convolved, *raw;  // see llm42__recurrent
    float *factors;
    void *logits, *router, *workspace;  // logits, router: bf16 or fp32
    // Of several ranks: what this one gives to the others, [R, Dp] of o and of down, bf16 or fp32; its logits.
    void *part[2], *own_logits;
    ulonglong2 *mail[2];  // mailboxes for o and down (llm42__rank_parts)
    uint32_t number;      // of the last pass
    unsigned *flag;       // see llm42__meeting; of the first rank on a device
    float *partial, *route_weight;
    uint8_t *eight;      // the input of a product whose weights are in e4m3, and its scales; NULL: none are
    float *eight_scale;  // of BLOCK [k / 128][R], or [R]
    float *parts;        // [leaves][rows, Dp], of a mixture [leaves][entries, Dp]; NULL: there is one leaf
    unsigned *arrived;
    uint32_t *route_group;  // [groups of 32 rows][E]
    int32_t *route_offset, *route_source, *route_place;
    unsigned char *meta, *meta_host;  // device; pinned
    llm42_output *out, *out_host;     // one block of pinned memory: its addresses for the device and the host
    llm42__prepared prepared;
};

struct llm42__graph {
    llm42__shape_key key;
    cudaGraphExec_t exec[8];  // by device
};

struct llm42__timing {
    const char *name;
    cudaEvent_t begin, end;
};

// A block of device memory. Every block that a backend takes stands in a list (section cuda-memory). The lists are
// summed up before anything is taken, and then taken from.
enum { LLM42__WEIGHTS, LLM42__CACHE, LLM42__PASSES, LLM42__LOADING, LLM42__TRIALS, LLM42__BLOCK_KINDS };
struct llm42__block {
    int kind;  // LOADING and TRIALS, one after the other, are given back before the backend is open
    void **to;
    size_t bytes;
};
typedef std::vector<llm42__block> llm42__blocks;

struct llm42__cuda {
    llm42_backend_desc desc;
    llm42_cuda_desc options;
    const llm42_model *model;
    // Tensor parallelism: this is one of `ranks` parts of the backend. Rank 0 is the backend's state and holds the
    // others. Ranks on one device share a stream. `config` is the model's but for heads and widths of feed-forward
    // parts, which are those of the rank, and a shared expert, which counts as the last of the experts.
    int rank = 0, ranks = 1, devices = 1, own_device = 0;  // own_device: counted from 0 among those of the engine
    std::vector<llm42__cuda *> others;
    llm42__cuda *first = this;  // rank 0
    llm42_config config;
    std::deque<std::vector<float>> shown[8];  // of rank 0: each rank's parts of what is to be given to the probe
    unsigned *ended;                          // of rank 0, pinned: nobody is to wait for another device any more
    int own_rows_from = 128;                  // of rank 0: see llm42__own_rows; up to 64 rows are exchanged by mail
    cudaDeviceProp device;
    cublasLtHandle_t lt;
    cublasLtMatmulDesc_t product, product_e4m3;
    // Widths. All but D are padded. dp: of a head; qkv, attended: of a row; Vr: logits of a rank; Vp: of all ranks.
    int D, Dp, Fp, Vp, Vr, dp, qkv, attended, Ep;
    int k_at, v_at, gates_at;  // where keys, values, and gates begin in a row of qkv
    int channels = 0, width = 0, z_at = 0, mixed = 0, raw = 0, capacity = 0;  // see llm42__recurrent; mixed: of a row
    int page_shift, group, max_rows, max_draws, max_records;
    int leaves = 1;                         // of a rank's part of o and down in INVARIANT passes
    size_t kv_layer, meta_size, page_room;  // elements; bytes; int32 entries
    bool has[LLM42__REACHES];               // layers of this kind
    std::vector<void *> blocks, pinned;
    std::vector<cublasLtMatrixLayout_t> layouts;
    llm42__bf16 *embed, *head, *k, *v;
    float *final_norm, *rope, *q_rope;  // q_rope: NULL if queries have that of keys
    float *states, *saved_states;       // [slots or snapshots][recurrent layers]
    llm42__bf16 *rings, *saved_inputs;
    std::vector<llm42__cuda_layer> layer;
    std::vector<int> buckets;
    std::vector<llm42__algorithm> algorithms[LLM42__PRODUCTS][LLM42_SCHEDULE_COUNT];  // by bucket
    std::vector<llm42__graph> graphs;
    llm42__execution execution;
    size_t device_bytes;
    std::vector<llm42__timing> *timings;  // NULL: stages are not timed
    const llm42_pass *probed;             // the pass whose probe is called; NULL: none
};

// What NVIDIA recommends for cuBLASLt on Hopper. llm42__k_leaves holds sums there, too: without SPLIT at most 15 MB on
// an H200, with SPLIT up to 64 KiB a tile. It refuses a product whose sums do not fit.
static const size_t llm42__workspace_bytes = (size_t)32 << 20;
enum { LLM42__MOST_NUMBER = (1 << 22) - 1 };        // of a pass: with an exchange's it is a stamp
enum { LLM42__FLAG_BYTES = 9 * sizeof(unsigned) };  // of llm42__meeting.flag

#define LLM42__LOG(cu, ...) llm42__log((cu)->desc.log, (cu)->desc.log_user, __VA_ARGS__)

static int llm42__padded(int n) { return (n + 63) / 64 * 64; }

// Outputs and terms of a product.
struct llm42__product_size {
    int n, k;
};
static llm42__product_size llm42__product_shape(const llm42__cuda *cu, int product) {
    const llm42__product_size sizes[] = {{cu->qkv, cu->Dp}, {cu->Dp, cu->attended}, {2 * cu->Fp, cu->Dp},
                                         {cu->Dp, cu->Fp},  {cu->mixed, cu->Dp},    {cu->Vr, cu->Dp},
                                         {cu->Ep, cu->Dp},  {cu->raw, cu->Dp}};
    return sizes[llm42__operator_of(product)];
}

// The product of an operator in a layer.
static int llm42__product_in(const llm42__cuda *cu, int of, int l) {
    const llm42_layer *layer = &cu->model->layer[l];
    const llm42_matrix *const matrices[] = {&layer->q, &layer->o, cu->config.experts ? layer->expert : &layer->gate,
                                            cu->config.experts ? layer->expert + 2 : &layer->down, &layer->qkv};
    return of <= LLM42__MIXED && cu->config.scaling && matrices[of]->type == LLM42_DTYPE_E4M3 ? LLM42__E4M3 + of : of;
}

// The product that a layer begins with.
static int llm42__first_product(const llm42__cuda *cu, int l) {
    return cu->model->layer[l].recurrent ? LLM42__MIXED : LLM42__QKV;
}

// Outputs of a product, of a mixture those of all experts.
static size_t llm42__all_outputs(const llm42__cuda *cu, int product) {
    const int of = llm42__operator_of(product),
              experts = of == LLM42__GATE_UP || of == LLM42__DOWN ? cu->config.experts : 0;
    return (size_t)std::max(1, experts) * (size_t)llm42__product_shape(cu, product).n;
}

// Scales of weights in e4m3: how far rows are apart, in floats (BLOCK), and where they lie.
static int llm42__scale_stride(int k) { return (k / LLM42__BLOCK + 3) / 4 * 4; }
static size_t llm42__scale_count(const llm42__cuda *cu, int product) {
    const size_t n = llm42__all_outputs(cu, product),
                 stride = (size_t)llm42__scale_stride(llm42__product_shape(cu, product).k);
    return cu->config.scaling == LLM42_SCALING_CHANNEL ? n : n / LLM42__BLOCK * stride;
}
static float *llm42__scales_of(const llm42__cuda *cu, int product, const void *w) {
    return (float *)((uintptr_t)w + llm42__all_outputs(cu, product) * (size_t)llm42__product_shape(cu, product).k);
}

// A leaf of the feed-forward width. Where there are several, each is padded to whole steps of 16 terms.
static int llm42__leaf_width(const llm42__cuda *cu) {
    const int ffn = std::max(cu->config.ffn, cu->config.shared_ffn);
    return cu->leaves == 1 ? ffn : (ffn / cu->leaves + 15) / 16 * 16;
}

// Puts into an error, behind "cuda backend: ", where it happened. Returns `result`.
static llm42_result llm42__add_place(llm42_result result, llm42_error *error, const char *format, ...) {
    static const char prefix[] = "cuda backend: ";
    if (result == LLM42_OK || !error) return result;
    const llm42_error cause = *error;
    const size_t skipped = strncmp(cause.text, prefix, sizeof prefix - 1) == 0 ? sizeof prefix - 1 : 0;
    char place[256];
    va_list values;
    va_start(values, format);
    vsnprintf(place, sizeof place, format, values);
    va_end(values);
    return llm42_fail(error, result, "%s%s: %s", prefix, place, cause.text + skipped);
}

// Adds to an error which rank it is of. Returns `result`.
static llm42_result llm42__of_rank(const llm42__cuda *cu, llm42_result result, llm42_error *error) {
    if (cu->ranks == 1 || (error && strstr(error->text, ": rank "))) return result;
    return llm42__add_place(result, error, "rank %d of %d, on device %d", cu->rank, cu->ranks, cu->options.device);
}

// A mailbox has room for fp32 parts, which are the larger ones.
static size_t llm42__mail_bytes(const llm42__cuda *cu) {
    return (size_t)cu->ranks * LLM42__MAIL_ROWS * (size_t)llm42__mail_quads(cu->Dp, 4) * 2 * sizeof(ulonglong2);
}

static llm42__cuda *llm42__rank(llm42__cuda *cu, int r) { return r ? cu->others[(size_t)r - 1] : cu; }

// Runs f(rank) for each rank in turn, on its device.
template <typename F> static llm42_result llm42__each_rank(llm42__cuda *cu, llm42_error *error, F f) {
    for (int r = 0; r < cu->ranks; r++) {
        llm42__cuda *rank = llm42__rank(cu, r);
        if (cu->devices > 1) LLM42__CU(cudaSetDevice(rank->options.device));
        LLM42__TRY(llm42__of_rank(rank, f(rank), error));
    }
    if (cu->devices > 1) LLM42__CU(cudaSetDevice(cu->options.device));
    return LLM42_OK;
}
// The same for the first rank of each device.
template <typename F> static llm42_result llm42__each_device(llm42__cuda *cu, llm42_error *error, F f) {
    return llm42__each_rank(cu, error, [&](llm42__cuda *rank) {
        return rank->rank && rank->own_device == llm42__rank(cu, rank->rank - 1)->own_device ? LLM42_OK : f(rank);
    });
}

// True if ranks or leaves cut the sums of a product. FAST and FIXED passes round the part of each rank to bf16 and add
// the parts in order. INVARIANT passes keep leaves and parts in fp32 and add them by the leaves' tree.
static bool llm42__cut(const llm42__cuda *cu, int product) {
    const int of = llm42__operator_of(product);
    return (cu->leaves > 1 || cu->ranks > 1) && (of == LLM42__O || of == LLM42__DOWN);
}

// How INVARIANT passes cut a rank's part of a product's sums.
static llm42__leaves llm42__leaves_of(const llm42__cuda *cu, int product) {
    if (cu->leaves == 1 || !llm42__cut(cu, product)) return {1, 0, 0};
    const llm42_config *c = &cu->config;
    const bool o = llm42__operator_of(product) == LLM42__O;
    return {cu->leaves, o ? c->heads * c->head_dim / cu->leaves : llm42__leaf_width(cu), 0};
}

// True if the outputs of a product stay fp32. Else they are bf16. `leaves` is that of the algorithm.
static bool llm42__fp32_out(const llm42__cuda *cu, int product, bool leaves) {
    return (product == LLM42__HEAD && cu->desc.numerics.logits_fp32) ||
           (product == LLM42__ROUTER && cu->desc.numerics.router_fp32) || (leaves && cu->ranks > 1);
}
// The most bytes of an output of a product, by any algorithm.
static size_t llm42__out_bytes(const llm42__cuda *cu, int product) {
    return llm42__fp32_out(cu, product, llm42__cut(cu, product)) ? 4 : 2;
}

static int llm42__bucket(const llm42__cuda *cu, int rows) {
    assert(rows <= cu->buckets.back());
    return (int)(std::lower_bound(cu->buckets.begin(), cu->buckets.end(), rows) - cu->buckets.begin());
}

static int llm42__padded_rows(const llm42__cuda *cu, int rows) { return cu->buckets[(size_t)llm42__bucket(cu, rows)]; }
// The padded number of draws of a pass in which every running sequence draws a token.
static int llm42__usual_draws(const llm42__cuda *cu) {
    return llm42__padded_rows(cu, std::min({std::max(cu->desc.max_running, 1), 256, cu->max_draws}));
}

static int llm42__most_rows(const llm42__cuda *cu, int product) {
    return product == LLM42__HEAD ? cu->max_draws : cu->max_rows;
}

static const llm42__algorithm *llm42__algorithm_of(const llm42__cuda *cu, int product, llm42_schedule schedule,
                                                   int rows) {
    return &cu->algorithms[product][schedule][(size_t)llm42__bucket(cu, rows)];
}

// >>cuda-products ------------------------------------------------------------------------------------------------
// Owns: running one matrix product by its algorithm.
// Calls: kernels.cu, cuBLASLt.
// Invariant: an algorithm of cuBLASLt holds the layouts of w, x and y.
static llm42_result llm42__open_lt(llm42__cuda *cu, llm42_error *error) {
    const cublasOperation_t transposed = CUBLAS_OP_T;
    LLM42__CU(cublasLtCreate(&cu->lt));
    for (cublasLtMatmulDesc_t *product : {&cu->product, &cu->product_e4m3}) {
        LLM42__CU(cublasLtMatmulDescCreate(product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
        LLM42__CU(
            cublasLtMatmulDescSetAttribute(*product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
    }
#if CUBLAS_VERSION >= 120900  // older ones have no such scales, so that llm42__lt_candidates lists nothing
    const bool block = cu->config.scaling == LLM42_SCALING_BLOCK;
    const int32_t of_w = block ? CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F
                               : CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F,
                  of_x = block ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F : of_w;
    LLM42__CU(cublasLtMatmulDescSetAttribute(cu->product_e4m3, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &of_w, sizeof of_w));
    LLM42__CU(cublasLtMatmulDescSetAttribute(cu->product_e4m3, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &of_x, sizeof of_x));
#endif
    return LLM42_OK;
}
static cublasLtMatmulDesc_t llm42__lt_product(const llm42__cuda *cu, const llm42__algorithm *p) {
    return p->e4m3 ? cu->product_e4m3 : cu->product;
}
static llm42_result llm42__set_lt_scales(llm42__cuda *cu, const float *of_w, const float *of_x, llm42_error *error) {
    LLM42__CU(
        cublasLtMatmulDescSetAttribute(cu->product_e4m3, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &of_w, sizeof of_w));
    return LLM42__STATUS(
        cublasLtMatmulDescSetAttribute(cu->product_e4m3, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &of_x, sizeof of_x));
}

static llm42_result llm42__run_lt(llm42__cuda *cu, llm42__execution *ex, const llm42__algorithm *algorithm,
                                  const void *w, const void *x, void *y, llm42_error *error) {
    const float one = 1.0f, zero = 0.0f;
    assert(algorithm->w && algorithm->x && algorithm->y);
    return LLM42__STATUS(cublasLtMatmul(cu->lt, llm42__lt_product(cu, algorithm), &one, w, algorithm->w, x,
                                        algorithm->x, &zero, y, algorithm->y, y, algorithm->y, &algorithm->algo,
                                        ex->workspace, llm42__workspace_bytes, ex->stream));
}

// What an algorithm of cuBLASLt multiplies.
static llm42_result llm42__lt_layouts(llm42__cuda *cu, int product, int rows, llm42__algorithm *algorithm,
                                      llm42_error *error) {
    const auto [n, k] = llm42__product_shape(cu, product);
    const llm42__leaves leaves = llm42__leaves_of(cu, product);
    const bool several = algorithm->leaves && leaves.count > 1, fp32 = llm42__fp32_out(cu, product, algorithm->leaves);
    const uint64_t terms = (uint64_t)(several ? leaves.terms : k);
    const int32_t count = leaves.count;  // of products at once, `apart` elements from each other
    algorithm->e4m3 = llm42__in_e4m3(product);
    const cudaDataType_t in = algorithm->e4m3 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
    // cuBLASLt counts columns first: y^T [n, rows] = w [k, n]^T x^T [k, rows].
    const struct {
        cublasLtMatrixLayout_t *to;
        cudaDataType_t type;
        uint64_t rows, columns;
        int64_t stride, apart;
    } matrices[] = {
        {&algorithm->w, in, terms, (uint64_t)n, k, leaves.terms},
        {&algorithm->x, in, terms, (uint64_t)rows, k, leaves.terms},
        {&algorithm->y, several || fp32 ? CUDA_R_32F : CUDA_R_16BF, (uint64_t)n, (uint64_t)rows, n, (int64_t)n * rows}};
    for (const auto &m : matrices) {
        LLM42__CU(cublasLtMatrixLayoutCreate(m.to, m.type, m.rows, m.columns, m.stride));
        cu->layouts.push_back(*m.to);
        if (!several) continue;
        LLM42__CU(cublasLtMatrixLayoutSetAttribute(*m.to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
        LLM42__CU(cublasLtMatrixLayoutSetAttribute(*m.to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &m.apart,
                                                   sizeof m.apart));
    }
    return LLM42_OK;
}

// True if cuBLASLt can run an algorithm with its layouts.
static bool llm42__lt_accepts(const llm42__cuda *cu, const llm42__algorithm &p) {
    cublasLtMatmulHeuristicResult_t fit;
    return cublasLtMatmulAlgoCheck(cu->lt, llm42__lt_product(cu, &p), p.w, p.x, p.y, p.y, &p.algo, &fit) ==
               CUBLAS_STATUS_SUCCESS &&
           fit.workspaceSize <= llm42__workspace_bytes;
}

// ex->parts [count][rows, n] -> y [rows, n], in fp32 or bf16.
static cudaError_t llm42__join_parts(cudaStream_t stream, const float *parts, int count, int rows, int n,
                                     const llm42__owners &owners, bool fp32, void *y) {
    const size_t values = (size_t)rows * (size_t)n;
    auto join = [&](auto kernel, auto *to) {
        return llm42__launch(kernel, dim3((unsigned)std::min<size_t>((values + 1023) / 1024, 4096)), dim3(256), 0,
                             stream, parts, values, count, values, n, owners, to);
    };
    return fp32 ? join(llm42__k_join<float>, (float *)y) : join(llm42__k_join<llm42__bf16>, (llm42__bf16 *)y);
}

// Where the input of a product goes in blocks of e4m3; nowhere unless `wanted` and the scaling is BLOCK.
static llm42__blocks_of_x llm42__blocks_for(const llm42__cuda *cu, const llm42__execution *ex, int rows, bool wanted) {
    if (!wanted || cu->config.scaling != LLM42_SCALING_BLOCK) return {};
    return {ex->eight, ex->eight_scale, rows};
}

// out [rows, F] = silu(gate) x up of y [rows, 2F]. apart: of weights in e4m3. Then it is the next input in e4m3, too.
static cudaError_t llm42__run_gate(const llm42__cuda *cu, const llm42__execution *ex, const llm42__bf16 *y, bool apart,
                                   llm42__bf16 *out, const float *bias, int rows) {
    const size_t count = (size_t)rows * (size_t)cu->Fp / 8;
    return llm42__launch(llm42__k_gate, dim3((unsigned)((count + 255) / 256)), dim3(256), 0, ex->stream, y, apart, out,
                         count, bias, cu->Fp, llm42__blocks_for(cu, ex, rows, apart));
}

// The input x [rows, k] of a product, in e4m3. input_scale: of the weights, on the device.
static cudaError_t llm42__quantise(const llm42__cuda *cu, llm42__execution *ex, const llm42__bf16 *x, int rows, int k,
                                   const float *input_scale, const llm42__groups &groups = {}) {
    if (cu->config.scaling == LLM42_SCALING_CHANNEL)
        return llm42__launch(llm42__k_quantise_rows, dim3((unsigned)rows), dim3(256), 0, ex->stream, x, ex->eight,
                             ex->eight_scale, k, input_scale, groups);
    const size_t pieces = (size_t)rows * (size_t)k / 8;
    return llm42__launch(llm42__k_quantise_blocks, dim3((unsigned)((pieces + 255) / 256)), dim3(256), 0, ex->stream, x,
                         llm42__blocks_for(cu, ex, rows, true), k);
}

// y [rows, n] = x w^T, by a kernel for weights in e4m3. x is ex->eight. Leaf l of a sum goes to y + l x part_stride.
static cudaError_t llm42__run_e4m3_kind(const llm42__cuda *cu, const llm42__execution *ex, int product,
                                        const llm42__e4m3_kind *kind, const void *w, void *y, bool fp32, int rows,
                                        const llm42__leaves &leaves, const llm42__groups &groups = {}) {
    const auto [n, k] = llm42__product_shape(cu, product);
    llm42__e4m3_args a = {};
    a.x_scale = ex->eight_scale, a.w_scale = llm42__scales_of(cu, product, w), a.stride = llm42__scale_stride(k);
    a.channel = cu->config.scaling == LLM42_SCALING_CHANNEL, a.fp32 = fp32, a.y = y, a.rows = rows, a.n = n;
    a.leaves = leaves.count, a.blocks = (leaves.count > 1 ? leaves.terms : k) / LLM42__BLOCK;
    a.part_stride = leaves.part_stride, a.groups = groups;
    return (a.channel ? kind->channel : kind->block)(ex->eight, w, k, a, cu->device.multiProcessorCount, ex->stream);
}

// What llm42__run_product_to does, for weights in e4m3. Sums to be joined come from memory. x: NULL if it is quantised.
static llm42_result llm42__run_e4m3(llm42__cuda *cu, llm42__execution *ex, int product,
                                    const llm42__algorithm *algorithm, const void *w, const llm42__bf16 *x, void *y,
                                    const llm42__owners &owners, llm42__bf16 *between, const float *gate_bias, int rows,
                                    llm42_error *error) {
    const auto [n, k] = llm42__product_shape(cu, product);
    const bool gated = llm42__operator_of(product) == LLM42__GATE_UP,
               fp32 = llm42__fp32_out(cu, product, algorithm->leaves);
    llm42__leaves leaves = algorithm->leaves ? llm42__leaves_of(cu, product) : llm42__leaves{1, 0, 0};
    leaves.part_stride = (size_t)rows * (size_t)n;
    const bool joined = leaves.count > 1 || owners.rows;
    const float *scales = llm42__scales_of(cu, product, w);
    void *to = joined ? (void *)ex->parts : gated ? between : y;
    if (x) LLM42__CU(llm42__quantise(cu, ex, x, rows, k, scales + llm42__scale_count(cu, product)));
    if (const llm42__e4m3_kind *kind = llm42__e4m3_kind_of(algorithm)) {
        LLM42__CU(llm42__run_e4m3_kind(cu, ex, product, kind, w, to, fp32 || joined, rows, leaves));
    } else {
        LLM42__TRY(llm42__set_lt_scales(cu, scales, ex->eight_scale, error));
        LLM42__TRY(llm42__run_lt(cu, ex, algorithm, w, ex->eight, to, error));
    }
    if (joined) return LLM42__STATUS(llm42__join_parts(ex->stream, ex->parts, leaves.count, rows, n, owners, fp32, y));
    if (gated) LLM42__CU(llm42__run_gate(cu, ex, between, true, (llm42__bf16 *)y, gate_bias, rows));
    return LLM42_OK;
}

// y[rows, n] = x w^T by an algorithm. GATE_UP gives silu(gate) x up [rows, F]; cuBLASLt's product, and one that gets a
// bias, is put into `between` first. With owners fp32 sums go to them and not to y.
static llm42_result llm42__run_product_to(llm42__cuda *cu, llm42__execution *ex, int product,
                                          const llm42__algorithm *algorithm, const llm42__bf16 *w, const llm42__bf16 *x,
                                          void *y, const llm42__owners &owners, llm42__bf16 *between,
                                          const float *gate_bias, int rows, llm42_error *error) {
    if (llm42__in_e4m3(product))
        return llm42__run_e4m3(cu, ex, product, algorithm, w, x, y, owners, between, gate_bias, rows, error);
    const auto [n, k] = llm42__product_shape(cu, product);
    bool gated = product == LLM42__GATE_UP, fp32 = llm42__fp32_out(cu, product, algorithm->leaves);
    llm42__leaves leaves = llm42__leaves_of(cu, product);
    leaves.owners = owners, leaves.workspace = ex->workspace, leaves.workspace_bytes = llm42__workspace_bytes;
    const bool several = algorithm->leaves && leaves.count > 1;
    if (const llm42__leaf_kind *leaf = llm42__leaf_kind_of(algorithm)) {
        llm42__product_fn *fn = fp32 ? leaf->fp32 : leaf->bf16;
        return LLM42__STATUS(
            fn(x, w, y, rows, n, k, llm42__groups{}, leaves, cu->device.multiProcessorCount, ex->stream));
    }
    if (algorithm->tile >= 0) {
        const llm42__tile_kind *tile = &llm42__tile_kinds[algorithm->tile];
        llm42__product_fn *fn = gated && !gate_bias ? tile->gated
                                : several           ? fp32 ? tile->parts : tile->joined
                                : fp32              ? tile->fp32
                                                    : tile->plain;
        LLM42__CU(fn(x, w, gate_bias ? between : y, rows, n, k, llm42__groups{}, leaves, cu->device.multiProcessorCount,
                     ex->stream));
        if (!gate_bias) return LLM42_OK;
    } else if (several || owners.rows) {  // a product for each leaf, all at once
        LLM42__TRY(llm42__run_lt(cu, ex, algorithm, w, x, ex->parts, error));
        return LLM42__STATUS(llm42__join_parts(ex->stream, ex->parts, leaves.count, rows, n, owners, fp32, y));
    }
    if (algorithm->tile < 0) LLM42__TRY(llm42__run_lt(cu, ex, algorithm, w, x, gated ? between : y, error));
    if (gated) LLM42__CU(llm42__run_gate(cu, ex, between, false, (llm42__bf16 *)y, gate_bias, rows));
    return LLM42_OK;
}
static llm42_result llm42__run_product(llm42__cuda *cu, llm42__execution *ex, int product,
                                       const llm42__algorithm *algorithm, const llm42__bf16 *w, const llm42__bf16 *x,
                                       void *y, llm42__bf16 *between, int rows, llm42_error *error) {
    return llm42__run_product_to(cu, ex, product, algorithm, w, x, y, llm42__owners{}, between, nullptr, rows, error);
}

static std::string llm42__algorithm_name(const llm42__algorithm *algorithm) {
    if (algorithm->tile >= 0)
        return std::string(llm42__kind_name(algorithm)) + (algorithm->leaves ? " with leaves" : "");
    const cublasLtMatmulAlgoConfigAttributes_t what[] = {CUBLASLT_ALGO_CONFIG_ID, CUBLASLT_ALGO_CONFIG_TILE_ID,
                                                         CUBLASLT_ALGO_CONFIG_SPLITK_NUM};
    int value[3] = {0, 0, 0};
    for (int i = 0; i < 3; i++)
        cublasLtMatmulAlgoConfigGetAttribute(&algorithm->algo, what[i], &value[i], sizeof value[i], nullptr);
    return "cublasLt algorithm " + std::to_string(value[0]) + ", tile " + std::to_string(value[1]) + ", split " +
           std::to_string(value[2]) + (algorithm->leaves ? ", with leaves" : "");
}

// True if an algorithm of leaf kind can compute a product, and its tiles do not have far more rows than there are. (A
// pair that shares w may have a tile of no rows. It costs little.)
static bool llm42__leaf_kind_serves(const llm42__cuda *cu, int product, const llm42__algorithm *algorithm, int rows) {
    const llm42__leaf_kind *kind = llm42__leaf_kind_of(algorithm);
    const llm42__leaves leaves = llm42__leaves_of(cu, product);
    const auto [n, k] = llm42__product_shape(cu, product);
    const int more = (rows + kind->rows - 1) / kind->rows * kind->rows - rows;
    return cu->device.major == 9 && algorithm->leaves && leaves.count > 1 && leaves.count % kind->split == 0 &&
           leaves.terms % 64 == 0 && leaves.count * leaves.terms == k && n % LLM42__LEAF_OUTPUTS == 0 &&
           (rows <= 64 ? kind->rows == 64 : more < 32 || 4 * more < rows);
}

// >>cuda-launches ------------------------------------------------------------------------------------------------
// Owns: the launches of a pass, operator by operator in the order of kernels.cu; at the end layers and passes of them.
// Calls: cuda-products, kernels.cu.
// Invariant: the launches of a pass depend on its padded shape alone (its key, section cuda-graphs), so that a graph of
// them can be kept. Everything else is metadata on the device.

// True if only FAST passes will run, for which nothing is promised.
static bool llm42__fast_alone(const llm42__cuda *cu) { return cu->desc.schedules == 1u << LLM42_SCHEDULE_FAST; }
// True if algorithms with leaves are tried, and so need memory for their parts: also where no pass will be INVARIANT.
static bool llm42__has_leaves(const llm42__cuda *cu) { return llm42__cut(cu, LLM42__O) && !llm42__fast_alone(cu); }
// True if INVARIANT passes will verify what FAST passes decode: there are no others.
static bool llm42__invariant_verifier(const llm42__cuda *cu) {
    return cu->desc.schedules == (1u << LLM42_SCHEDULE_FAST | 1u << LLM42_SCHEDULE_INVARIANT);
}
// True if FAST passes sum as INVARIANT passes do wherever that costs little. A verifier then finds the same tokens, and
// fewer are rolled back. With the option OFFERED they keep orders of their own.
static bool llm42__prefers_canonical(const llm42__cuda *cu) {
    return llm42__invariant_verifier(cu) && cu->options.fast != LLM42_CUDA_FAST_OFFERED;
}
enum { LLM42__FEW_ROWS = 16 };  // FAST products of up to so many rows then take the INVARIANT order whatever it costs
// True if a pass of `rows` rows that draws at most 16 tokens may multiply only 16 rows with the head, that is, if this
// leaves the bits of FIXED and INVARIANT passes as they are.
static bool llm42__draws_few(const llm42__cuda *cu, llm42_schedule schedule, int rows) {
    return rows > 16 && (schedule == LLM42_SCHEDULE_FAST ||
                         llm42__algorithm_of(cu, LLM42__HEAD, schedule, std::min(rows, cu->max_draws))->sequential);
}

// The largest number of tasks of llm42__k_attend_decode: one for each row, and two for each multiprocessor, because a
// row is divided only as far as blocks are idle (llm42__split_keys).
static int llm42__decode_room(const llm42__cuda *cu, int rows) { return rows + 2 * cu->device.multiProcessorCount; }

// The most sequences of a pass of so many rows, and groups of positions that it convolves.
static int llm42__most_runs(const llm42__cuda *cu, int rows) {
    return std::min(rows, std::max(1, cu->desc.max_running));
}
static int llm42__most_groups(const llm42__cuda *cu, int rows) {
    const int runs = llm42__most_runs(cu, rows), most = LLM42__GROUP - 1;
    return (rows + runs * (cu->desc.behind + most)) / LLM42__GROUP;
}

// A pass's metadata at `base`, for padded numbers of rows and draws, with the attention tasks of one kind of layers.
// The page tables come last, so those of metadata at NULL tell how many bytes the others need.
static llm42__meta llm42__meta_at(const llm42__cuda *cu, const llm42__shape_key *key, unsigned char *base, int reach) {
    llm42__meta meta[LLM42__REACHES] = {}, *own = &meta[reach];
    uintptr_t at = (uintptr_t)base;
    auto place = [&](auto *&part, size_t count) {
        part = (decltype(part + 0))at;
        at += (count * sizeof *part + 15) & ~(size_t)15;
    };
    assert(key->rows > 0);
    const size_t rows = (size_t)key->rows, tasks = key->decode ? (size_t)llm42__decode_room(cu, key->rows) : 0;
    for (llm42__meta &kind : meta) place(kind.header, 1);
    for (const int32_t **column : {&own->token, &own->position, &own->slot}) place(*column, rows);
    place(own->draw, (size_t)key->draws);
    if (cu->config.recurrent_layers) place(own->run, (size_t)llm42__most_runs(cu, key->rows));
    for (int kind = 0; kind < LLM42__REACHES; kind++) {
        place(meta[kind].prefill, cu->has[kind] ? rows : 0);
        place(meta[kind].decode, cu->has[kind] ? tasks : 0);
    }
    place(own->pages, 0);
    own->page_shift = cu->page_shift;
    return *own;
}

// When stages are timed, they stand between two events. name: of the one that begins; NULL: one ends.
static llm42_result llm42__mark_stage(llm42__cuda *cu, const char *name, llm42_error *error) {
    if (!cu->timings) return LLM42_OK;
    if (name) cu->timings->push_back({name, nullptr, nullptr});
    cudaEvent_t *event = name ? &cu->timings->back().begin : &cu->timings->back().end;
    LLM42__CU(cudaEventCreate(event));
    return LLM42__STATUS(cudaEventRecord(*event, cu->execution.stream));
}

// Gives a rank's part of an operator's output to the probe, once all ranks have given theirs: [rows, width] of each. A
// rank gives several before the next one gives its first. `copies` ranks one after the other have the same.
static void llm42__show_values(llm42__cuda *cu, int layer, const char *name, int rows, int copies,
                               std::vector<float> *values) {
    llm42__cuda *first = cu->first;
    std::vector<float> all;
    first->shown[cu->rank].push_back(std::move(*values));
    if (cu->rank + 1 < cu->ranks) return;
    const size_t width = first->shown[0].front().size() / (size_t)rows;
    for (size_t r = 0; r < (size_t)rows; r++)
        for (int rank = 0; rank < cu->ranks; rank += copies) {
            const float *from = first->shown[rank].front().data() + r * width;
            all.insert(all.end(), from, from + width);
        }
    for (int rank = 0; rank < cu->ranks; rank++) first->shown[rank].pop_front();
    cu->probed->probe(cu->probed->probe_user, layer, name, rows, (int)(all.size() / (size_t)rows), all.data());
}

// Gives an operator's output to the probe: `rows` rows of `groups` vectors of `width` values, which lie `stride` apart.
// All ranks have the same, or, if `split`, each has a part.
static llm42_result llm42__show(llm42__cuda *cu, int layer, const char *name, const llm42__bf16 *from, int rows,
                                int groups, int width, int stride, int row_stride, bool split, llm42_error *error) {
    if (!cu->probed || (cu->rank && !split)) return LLM42_OK;
    std::vector<uint16_t> raw((size_t)rows * (size_t)row_stride);
    std::vector<float> values;
    LLM42__CU(cudaStreamSynchronize(cu->execution.stream));
    LLM42__CU(cudaMemcpy(raw.data(), from, raw.size() * 2, cudaMemcpyDeviceToHost));
    for (int r = 0; r < rows; r++)
        for (int g = 0; g < groups; g++)
            for (int i = 0; i < width; i++)
                values.push_back(llm42__from_bf16(raw[(size_t)r * (size_t)row_stride + (size_t)(g * stride + i)]));
    if (split) llm42__show_values(cu, layer, name, rows, 1, &values);
    else cu->probed->probe(cu->probed->probe_user, layer, name, rows, groups * width, values.data());
    return LLM42_OK;
}

// Gives the rows' k or v to the probe, from the cache.
static llm42_result llm42__show_cache(llm42__cuda *cu, int layer, const char *name, const llm42__bf16 *cache,
                                      llm42_error *error) {
    if (!cu->probed) return LLM42_OK;
    const llm42_config *c = &cu->config;
    const llm42_pass *pass = cu->probed;
    size_t width = (size_t)(c->kv_heads * cu->dp);
    std::vector<uint16_t> raw(width);
    std::vector<float> values;
    LLM42__CU(cudaStreamSynchronize(cu->execution.stream));
    for (int r = 0; r < pass->rows; r++) {
        const llm42_row *row = &pass->row[r];
        size_t page = (size_t)pass->seq[row->seq].pages[row->position >> cu->page_shift];
        size_t slot = (page << cu->page_shift) + (size_t)(row->position & (cu->desc.page_size - 1));
        LLM42__CU(cudaMemcpy(raw.data(), cache + slot * width, width * 2, cudaMemcpyDeviceToHost));
        for (int h = 0; h < c->kv_heads; h++)
            for (int i = 0; i < c->head_dim; i++) values.push_back(llm42__from_bf16(raw[(size_t)(h * cu->dp + i)]));
    }
    llm42__show_values(cu, layer, name, pass->rows, std::max(1, cu->ranks / cu->model->config.kv_heads), &values);
    return LLM42_OK;
}

#define LLM42__STAGE(name, call)                           \
    do {                                                   \
        LLM42__TRY(llm42__mark_stage(cu, name, error));    \
        call;                                              \
        LLM42__TRY(llm42__mark_stage(cu, nullptr, error)); \
    } while (0)

// True if FAST passes of so many rows take the INVARIANT order whatever it costs.
static bool llm42__few(const llm42__cuda *cu, llm42_schedule schedule, int rows) {
    return schedule == LLM42_SCHEDULE_FAST && llm42__prefers_canonical(cu) && rows <= LLM42__FEW_ROWS;
}

// True if the sums of o (stage 0) or down (1) have leaves in layer l.
static bool llm42__sums_leaves(const llm42__cuda *cu, llm42_schedule schedule, int rows, int l, int stage) {
    if (stage && cu->config.experts)
        return llm42__has_leaves(cu) && (schedule == LLM42_SCHEDULE_INVARIANT || llm42__few(cu, schedule, rows));
    const int product = llm42__product_in(cu, stage ? LLM42__DOWN : LLM42__O, l);
    return llm42__algorithm_of(cu, product, schedule, rows)->leaves;
}

// True if ranks send their parts by mail. Not in a pass that is probed, whose probe has to find the parts in their
// place. Each exchange needs a number. Blocks of such a norm wait for other devices, and all must have room at once.
static bool llm42__by_mail(const llm42__cuda *cu, int rows) {
    const int most = std::min((int)LLM42__MAIL_ROWS, cu->device.multiProcessorCount / 2 - 2);
    return cu->execution.mail[0] && rows <= most && !cu->first->probed &&
           2 * cu->config.layers <= LLM42__MAIL_EXCHANGES;
}

// The rows that each rank norms of a pass (llm42__rank_parts.own_rows); 0: all. All exchanges of a pass are alike in
// this, since x lies only where it is normed. Parts in bf16 are half as large. For them a second meeting does not pay.
static int llm42__own_rows(const llm42__cuda *cu, llm42_schedule schedule, int rows) {
    bool some = cu->ranks > 1 && !cu->first->probed && rows >= cu->first->own_rows_from && !llm42__by_mail(cu, rows);
    for (int i = 0; some && i < 2 * cu->config.layers; i++) some = llm42__sums_leaves(cu, schedule, rows, i / 2, i % 2);
    return some ? (rows + cu->ranks - 1) / cu->ranks : 0;
}

// Where a rank's own rows have their parts from rank `from`, as if all rows were there, in [from rank][own rows, Dp].
static float *llm42__parts_for(const llm42__cuda *owner, int from, int stage, int own_rows) {
    const ptrdiff_t rows = (ptrdiff_t)(from - owner->rank) * own_rows;
    return (float *)((uintptr_t)owner->execution.part[stage] + (uintptr_t)(rows * owner->Dp * 4));
}
static llm42__owners llm42__owners_of(const llm42__cuda *cu, llm42_schedule schedule, int rows, int stage) {
    llm42__owners owners = {};
    owners.rows = llm42__own_rows(cu, schedule, rows);
    for (int r = 0; r < cu->ranks && owners.rows; r++)
        owners.to[r] = llm42__parts_for(llm42__rank(cu->first, r), cu->rank, stage, owners.rows);
    return owners;
}

static const llm42__bf16 *llm42__weights_of(const llm42__cuda *cu, int product, int layer) {
    return product == LLM42__HEAD ? cu->head : cu->layer[(size_t)layer].w[product];
}

// x: NULL if it is quantised already. y of gate_up: NULL if nobody needs it but down.
static llm42_result llm42__enqueue_product(llm42__cuda *cu, int product, llm42_schedule schedule, int l,
                                           const llm42__bf16 *x, void *y, int rows, llm42_error *error) {
    const char *name = llm42__product_names[product == LLM42__RAW ? LLM42__MIXED : product];
    const float *gate_bias = product == LLM42__GATE_UP ? cu->layer[(size_t)l].gate_bias : nullptr;
    const int stage = product == LLM42__DOWN;
    product = llm42__product_in(cu, product, l);
    const llm42__bf16 *w = llm42__weights_of(cu, product, l);
    const llm42__algorithm *algorithm = llm42__algorithm_of(cu, product, schedule, rows);
    const bool cut = llm42__cut(cu, product);
    const llm42__owners owners = cut ? llm42__owners_of(cu, schedule, rows, stage) : llm42__owners{};
    LLM42__STAGE(name, LLM42__TRY(llm42__run_product_to(cu, &cu->execution, product, algorithm, w, x, y, owners,
                                                        cu->execution.gate_up, gate_bias, rows, error)));
    return LLM42_OK;
}

// A sum that a product or the experts have given to the next norm: whole, or a part of each rank.
struct llm42__sum {
    llm42__rank_parts parts;
    int kind;  // LLM42__WHOLE, ROUNDED, LEAVES | MAIL, ...
};

static llm42__sum llm42__whole(const llm42__bf16 *of) {
    llm42__sum sum = {};
    sum.parts.of[0] = of, sum.kind = LLM42__WHOLE;
    return sum;
}

// Where a rank puts its sums of o (stage 0) or down (1).
static void *llm42__sum_at(const llm42__cuda *cu, int stage) {
    return cu->ranks == 1 ? cu->execution.delta : cu->execution.part[stage];
}

// The down outputs of a rank's experts, of which the sum of each row is still to be taken.
static llm42__rank_parts llm42__expert_parts(llm42__cuda *cu) {
    llm42__rank_parts parts = {};
    parts.of[0] = cu->execution.expert_out, parts.place = cu->execution.route_place;
    parts.weight = cu->execution.route_weight, parts.used = cu->config.experts_used, parts.stride = cu->Dp;
    return parts;
}

// What the ranks have put there in layer l. cu: the rank that is to read it.
static llm42__sum llm42__sum_of(llm42__cuda *cu, const llm42__shape_key *key, int l, int stage) {
    const bool leaves = llm42__sums_leaves(cu, key->schedule, key->rows, l, stage);
    llm42__sum sum = llm42__whole(cu->execution.delta);
    sum.parts.bias = stage ? cu->layer[(size_t)l].down_bias : cu->layer[(size_t)l].o_bias;
    if (cu->ranks == 1 && stage && cu->config.experts && !leaves) {
        const float *bias = sum.parts.bias;
        sum.parts = llm42__expert_parts(cu), sum.parts.bias = bias, sum.kind = LLM42__EXPERTS;
    }
    if (cu->ranks == 1) return sum;
    sum.kind = leaves ? LLM42__LEAVES : LLM42__ROUNDED;
    if (llm42__by_mail(cu, key->rows)) sum.kind |= LLM42__MAIL;
    sum.parts.ranks = cu->ranks, sum.parts.self = cu->rank;
    sum.parts.own_rows = llm42__own_rows(cu, key->schedule, key->rows);
    sum.parts.exchange = (unsigned)(2 * l + stage);
    sum.parts.ended = cu->first->ended;
    for (int r = 0; r < cu->ranks; r++) {
        const llm42__execution *ex = &llm42__rank(cu->first, r)->execution;
        sum.parts.mail[r] = ex->mail[stage], sum.parts.h[r] = ex->h;
        sum.parts.of[r] = sum.parts.own_rows ? llm42__parts_for(cu, r, stage, sum.parts.own_rows) : ex->part[stage];
    }
    return sum;
}

// Gives the sum of o or down to the probe.
static llm42_result llm42__show_sum(llm42__cuda *cu, int layer, const char *name, int rows, const llm42__sum *sum,
                                    llm42_error *error) {
    llm42__execution *ex = &cu->execution;
    if (!cu->probed || cu->rank) return LLM42_OK;
    const size_t values = (size_t)rows * (size_t)cu->Dp;
    auto kernel = sum->kind == LLM42__LEAVES    ? llm42__k_add_parts<LLM42__LEAVES>
                  : sum->kind == LLM42__EXPERTS ? llm42__k_add_parts<LLM42__EXPERTS>
                                                : llm42__k_add_parts<LLM42__ROUNDED>;
    if (sum->kind != LLM42__WHOLE)
        LLM42__CU(llm42__launch(kernel, dim3(256), dim3(256), 0, ex->stream, sum->parts, values, ex->delta));
    return llm42__show(cu, layer, name, ex->delta, cu->probed->rows, 1, cu->D, cu->Dp, cu->Dp, false, error);
}

// Where ranks meet: what they wrote before, all can read behind it. Those on one device need not wait. cu: rank 0.
static llm42_result llm42__enqueue_meeting(llm42__cuda *cu, llm42_error *error) {
    if (cu->devices == 1) return LLM42_OK;
    llm42__meeting meeting = {};
    meeting.devices = cu->devices;
    LLM42__CU(cudaHostGetDevicePointer((void **)&meeting.ended, cu->ended, 0));
    for (int r = 0; r < cu->ranks; r++) {
        const llm42__cuda *rank = llm42__rank(cu, r);
        unsigned *&flag = meeting.flag[rank->own_device];
        if (!flag) flag = rank->execution.flag;
    }
    return llm42__each_device(cu, error, [&](llm42__cuda *rank) -> llm42_result {
        meeting.self = rank->own_device;
        return LLM42__STATUS(llm42__launch(llm42__k_meet, dim3(1), dim3(32), 0, rank->execution.stream, meeting));
    });
}

// Makes the ranks' sums of o (stage 0) or down (1) readable for all ranks. cu: rank 0. The ranks put the two into
// memory of their own, so one meeting is enough: who writes one of them again has met the others behind their reading
// it, or has had their mail about the other one since.
static llm42_result llm42__enqueue_exchange(llm42__cuda *cu, const llm42__shape_key *key, int l, int stage,
                                            llm42_error *error) {
    const int kind = llm42__sum_of(cu, key, l, stage).kind;
    if (cu->ranks == 1 || kind & LLM42__MAIL) return LLM42_OK;
    LLM42__STAGE("exchange", LLM42__TRY(llm42__enqueue_meeting(cu, error)));
    return LLM42_OK;
}

template <int KIND>
static llm42_result llm42__enqueue_norm(llm42__cuda *cu, llm42__execution *ex, int rows, const llm42__sum *sum,
                                        const float *weight, llm42__meta meta, llm42_error *error,
                                        llm42__blocks_of_x eight = {}, bool only_eight = true) {
    const int threads = ((cu->Dp / 8 + 3) / 4 + 31) / 32 * 32;
    const int most = 8 * cu->device.multiProcessorCount;
    auto kernel = llm42__k_norm<KIND, LLM42__WHOLE>;
    if constexpr (KIND != LLM42__EMBED) switch (sum->kind) {
        case LLM42__EXPERTS: kernel = llm42__k_norm<KIND, LLM42__EXPERTS>; break;
        case LLM42__ROUNDED: kernel = llm42__k_norm<KIND, LLM42__ROUNDED>; break;
        case LLM42__LEAVES: kernel = llm42__k_norm<KIND, LLM42__LEAVES>; break;
        case LLM42__ROUNDED | LLM42__MAIL: kernel = llm42__k_norm<KIND, LLM42__ROUNDED | LLM42__MAIL>; break;
        case LLM42__LEAVES | LLM42__MAIL: kernel = llm42__k_norm<KIND, LLM42__LEAVES | LLM42__MAIL>; break;
        }
    // More threads end a row sooner. Where rows keep all multiprocessors busy, smaller blocks are better.
    const bool wide = sum->kind & LLM42__MAIL || rows <= 2 * cu->device.multiProcessorCount;
    const int block = wide ? std::min((int)LLM42__NORM_THREADS, (cu->Dp / 8 + 31) / 32 * 32) : threads;
    const size_t bytes = block > threads || sum->kind & (LLM42__MAIL | LLM42__EXPERTS) ? (size_t)cu->Dp * 2 : 0;
    const int own = KIND == LLM42__ADD && sum->parts.own_rows ? sum->parts.own_rows : rows;
    LLM42__STAGE("norm", LLM42__CU(llm42__launch(kernel, dim3((unsigned)std::min(own, most)), dim3((unsigned)block),
                                                 bytes, ex->stream, ex->x, sum->parts, weight,
                                                 eight.values && only_eight && !cu->first->probed ? nullptr : ex->h,
                                                 meta, rows, cu->D, cu->Dp, threads, cu->config.norm_eps, eight)));
    return LLM42_OK;
}

// Calls what is compiled for each padded head_dim.
template <typename CALL> static auto llm42__by_head_dim(int dp, CALL call) {
    return dp == 16    ? call(std::integral_constant<int, 16>())
           : dp == 32  ? call(std::integral_constant<int, 32>())
           : dp == 64  ? call(std::integral_constant<int, 64>())
           : dp == 128 ? call(std::integral_constant<int, 128>())
                       : call(std::integral_constant<int, 256>());
}

static llm42_result llm42__enqueue_rope(llm42__cuda *cu, int rows, int l, llm42__meta meta, llm42_error *error) {
    llm42__execution *ex = &cu->execution;
    const llm42_config *c = &cu->config;
    const llm42__cuda_layer *layer = &cu->layer[(size_t)l];
    const float *q_rope = cu->q_rope ? cu->q_rope : cu->rope;
    const bool rotated = !cu->model->layer[l].unrotated;
    llm42__heads a = {c->heads,      c->kv_heads,   c->head_dim, cu->qkv,  cu->k_at, cu->v_at,      layer->bias,
                      layer->q_norm, layer->k_norm, q_rope,      cu->rope, rotated,  c->rotary_dim, c->norm_eps};
    const size_t cache = (size_t)cu->model->layer[l].cache * cu->kv_layer;
    const int heads = 128 / (cu->dp / 16);  // of a block
    dim3 grid((unsigned)rows, (unsigned)((c->heads + 2 * c->kv_heads + heads - 1) / heads));
    return LLM42__STATUS(llm42__by_head_dim(cu->dp, [&](auto dp) {
        auto kernel = c->rotary_dim ? llm42__k_rope<dp.value, true> : llm42__k_rope<dp.value, false>;
        return llm42__launch(kernel, grid, dim3(128), 0, ex->stream, ex->qkv, ex->q, cu->k + cache, cu->v + cache, a,
                             meta);
    }));
}

// True if the input of an operator is quantised where it is made: that of qkv and gate_up by a norm, unless each rank
// norms some rows, that of o by attention that only decodes, and that of down by the gate.
static bool llm42__comes_quantised(const llm42__cuda *cu, const llm42__shape_key *key, int of, int l) {
    auto eight = [&](int product) { return llm42__in_e4m3(llm42__product_in(cu, product, l)); };
    if (cu->config.scaling != LLM42_SCALING_BLOCK || !eight(of)) return false;
    if (of == LLM42__GATE_UP && cu->config.experts) return false;
    if (of == LLM42__O)
        return !key->prefill && cu->config.head_dim == LLM42__BLOCK && !cu->config.gated && !cu->first->probed;
    return of == LLM42__DOWN ? eight(LLM42__GATE_UP) : !llm42__own_rows(cu, key->schedule, key->rows);
}

// Dynamic shared memory that a block may have, bytes. 1,024 are left for its static part.
static int llm42__shared_room(const cudaDeviceProp *device) { return (int)device->sharedMemPerBlockOptin - 1024; }

static int llm42__padded_head_dim(int d) { return d <= 16 ? 16 : d <= 32 ? 32 : d <= 64 ? 64 : d <= 128 ? 128 : 256; }

static llm42__decode_shape llm42__decode_shape_of(const llm42__cuda *cu, int rows) {
    return llm42__decode_shape_of(cu->dp, cu->group, rows * cu->config.kv_heads, cu->device.multiProcessorCount,
                                  llm42__shared_room(&cu->device));
}
// Blocks for each kv head: as many as run at once.
static int llm42__decode_blocks(const llm42__cuda *cu, const llm42__decode_shape &shape) {
    return std::max(1, 8 / shape.warps * cu->device.multiProcessorCount / cu->config.kv_heads);
}
template <int DP>
static llm42_result llm42__enqueue_attention_as(llm42__cuda *cu, const llm42__shape_key *key, llm42__attention a,
                                                llm42__meta meta, llm42_error *error) {
    const unsigned heads = (unsigned)cu->config.kv_heads, processors = (unsigned)cu->device.multiProcessorCount;
    if (key->prefill) {
        enum { MOST_TEAMS = DP == 64 || DP == 128 ? 2 : 1 };
        const bool warpgroups = cu->device.major == 9;
        const int teams = llm42__prefill_teams(DP, warpgroups);
        auto kernel = teams == 2 ? llm42__k_attend_prefill<DP, MOST_TEAMS> : llm42__k_attend_prefill<DP, 1>;
        const int bytes = teams == 2 ? llm42__prefill_shape<DP, MOST_TEAMS>::bytes(warpgroups)
                                     : llm42__prefill_shape<DP, 1>::bytes(warpgroups);
        LLM42__CU(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
        LLM42__CU(llm42__launch(kernel, dim3(std::min((unsigned)key->rows * heads, processors)),
                                dim3((unsigned)teams * 128 + 128), (size_t)bytes, cu->execution.stream, a, meta));
    }
    if (key->decode) {
        const llm42__decode_shape shape = llm42__decode_shape_of(cu, key->rows);
        auto kernel = cu->group > 8 ? llm42__decode_build<DP, 2>(shape) : llm42__decode_build<DP, 1>(shape);
        LLM42__CU(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       llm42__shared_room(&cu->device)));  // other engines ask for other sizes
        LLM42__CU(llm42__launch(kernel, dim3(heads, (unsigned)llm42__decode_blocks(cu, shape)),
                                dim3((unsigned)shape.warps * 32), (size_t)shape.bytes, cu->execution.stream, a, meta));
    }
    return LLM42_OK;
}

static llm42_result llm42__enqueue_attention(llm42__cuda *cu, const llm42__shape_key *key, int layer,
                                             llm42_error *error) {
    llm42__execution *ex = &cu->execution;
    const llm42_config *c = &cu->config;
    const bool sliding = cu->model->layer[layer].sliding;
    const llm42__meta meta = llm42__meta_at(cu, key, ex->meta, sliding ? LLM42__SLIDING : LLM42__FULL);
    llm42__attention a = {};
    a.q = ex->q, a.out = ex->attended, a.partial = ex->partial, a.arrived = ex->arrived;
    const size_t cache = (size_t)cu->model->layer[layer].cache * cu->kv_layer;
    a.k = cu->k + cache, a.v = cu->v + cache;
    a.heads = c->heads, a.kv_heads = c->kv_heads, a.head_dim = c->head_dim, a.stride = cu->attended,
    a.group = cu->group, a.group_inverse = 65536 / (uint32_t)cu->group + 1, a.window = sliding ? c->sliding_window : 0;
    a.scale = llm42__scale_log2(c);
    a.eight = llm42__blocks_for(cu, ex, key->rows, llm42__comes_quantised(cu, key, LLM42__O, layer));
    return llm42__by_head_dim(cu->dp,
                              [&](auto dp) { return llm42__enqueue_attention_as<dp.value>(cu, key, a, meta, error); });
}

// With few rows a draw has a cluster, where there are clusters, so that more multiprocessors work.
template <typename LOGIT>
static cudaError_t llm42__run_draw(const llm42__cuda *cu, const LOGIT *logits, llm42_output *out, int rows,
                                   llm42__meta meta, int first, cudaStream_t stream) {
    auto run = [&](auto kernel, int blocks, size_t shared) {
        return llm42__launch_clusters(blocks, kernel, dim3((unsigned)(rows * blocks)), dim3(1024u / (unsigned)blocks),
                                      shared, stream, logits, cu->config.vocab, cu->Vp, out, meta, first);
    };
    if (cu->device.major == 9 && rows < cu->device.multiProcessorCount)
        return run(llm42__k_draw<LOGIT, 8>, 8, sizeof(llm42__drawers<8>));
    return run(llm42__k_draw<LOGIT, 1>, 1, sizeof(llm42__drawers<1>));
}

// The LM head and the draws first <= i < first + rows; rows is padded. cu: rank 0, which draws.
static llm42_result llm42__enqueue_head(llm42__cuda *cu, llm42_schedule schedule, int first, int rows, llm42__meta meta,
                                        llm42_error *error) {
    llm42__execution *ex = &cu->execution;
    // Within a pass nothing else keeps other logits from their place before rank 0 has taken those of the last draws.
    if (cu->ranks > 1 && first) LLM42__TRY(llm42__enqueue_meeting(cu, error));
    LLM42__TRY(llm42__each_rank(cu, error, [&](llm42__cuda *rank) {
        llm42__execution *own = &rank->execution;
        return llm42__enqueue_product(rank, LLM42__HEAD, schedule, 0, own->h + (size_t)first * (size_t)cu->Dp,
                                      cu->ranks == 1 ? own->logits : own->own_logits, rows, error);
    }));
    if (cu->ranks > 1) {
        llm42__rank_parts parts = {};
        parts.ranks = cu->ranks;
        for (int r = 0; r < cu->ranks; r++) parts.of[r] = llm42__rank(cu, r)->execution.own_logits;
        LLM42__TRY(llm42__enqueue_meeting(cu, error));
        LLM42__CU(llm42__launch(llm42__k_gather, dim3(4 * (unsigned)cu->device.multiProcessorCount), dim3(256), 0,
                                ex->stream, parts, rows, cu->Vr, (int)llm42__out_bytes(cu, LLM42__HEAD), ex->logits));
    }
    auto draw = [&](auto *logits) { return llm42__run_draw(cu, logits, ex->out, rows, meta, first, ex->stream); };
    LLM42__STAGE("draw", LLM42__CU(cu->desc.numerics.logits_fp32 ? draw((const float *)ex->logits)
                                                                 : draw((const llm42__bf16 *)ex->logits)));
    return LLM42_OK;
}

// One launch for up to 32 rows. More rows are placed by a second one, with about two blocks for each multiprocessor.
template <typename LOGIT>
static llm42_result llm42__enqueue_route(llm42__cuda *cu, const LOGIT *router, int rows, llm42__bf16 *sorted,
                                         llm42_error *error) {
    llm42__execution *ex = &cu->execution;
    const llm42_config *c = &cu->config;
    llm42__routing to = {};
    to.rows = rows, to.experts = c->experts, to.used = c->experts_used, to.shared = c->shared_ffn > 0,
    to.pieces = sorted ? cu->Dp / 8 : 0;
    to.weight = ex->route_weight, to.group = ex->route_group, to.offset = ex->route_offset;
    to.source = ex->route_source, to.place = ex->route_place, to.x = (const uint4 *)ex->h, to.sorted = (uint4 *)sorted;
    auto kernel = c->experts <= 128   ? llm42__k_route<4, LOGIT>
                  : c->experts <= 288 ? llm42__k_route<9, LOGIT>
                                      : llm42__k_route<32, LOGIT>;
    const bool alone = rows <= 32;
    LLM42__CU(llm42__launch(kernel, dim3((unsigned)(alone ? rows : (rows + 31) / 32)),
                            dim3((unsigned)(alone ? 32 * std::max(rows, 8) : LLM42__ROUTE_THREADS)), 0, ex->stream,
                            router, cu->Ep, c->experts_renorm, to));
    if (alone) return LLM42_OK;
    int most = 1;
    while (most < 32 && rows > 2 * most * cu->device.multiProcessorCount) most *= 2;
    return LLM42__STATUS(llm42__launch(llm42__k_sort, dim3((unsigned)((rows + most - 1) / most)),
                                       dim3(LLM42__ROUTE_THREADS), 0, ex->stream, to, most));
}

// What llm42__run_experts does, for weights in e4m3. x is sorted by expert, or NULL if it is quantised already.
static llm42_result llm42__run_e4m3_experts(llm42__cuda *cu, int product, const void *w, const llm42__bf16 *x, void *y,
                                            int entries, bool cut, const llm42__leaves &leaves, llm42_error *error) {
    llm42__execution *ex = &cu->execution;
    const int experts = cu->config.experts, k = llm42__product_shape(cu, product).k;
    const bool gated = llm42__operator_of(product) == LLM42__GATE_UP;
    const llm42__groups groups = {ex->route_offset, nullptr, experts};
    const float *input_scales = llm42__scales_of(cu, product, w) + llm42__scale_count(cu, product);
    if (x) LLM42__CU(llm42__quantise(cu, ex, x, entries, k, input_scales, groups));
    const llm42__e4m3_kind *kind = llm42__experts_e4m3;
    while ((long)kind->most * experts < entries) kind++;
    LLM42__CU(llm42__run_e4m3_kind(cu, ex, product, kind, w, gated ? ex->gate_up : y, cut, entries, leaves, groups));
    if (gated) LLM42__CU(llm42__run_gate(cu, ex, ex->gate_up, true, (llm42__bf16 *)y, nullptr, entries));
    return LLM42_OK;
}

// gate_up or down of all experts: x [entries, k] -> y [entries, n], in fp32 and by leaves if `cut`. source: the row of
// x of an entry, or NULL if x is sorted by expert. All kinds give the same bits. The fewer rows an expert has, the
// fewer rows a tile gets. The last tile kind fits every device.
static llm42_result llm42__run_experts(llm42__cuda *cu, int product, const llm42__bf16 *w, const llm42__bf16 *x,
                                       const int32_t *source, void *y, int entries, bool cut,
                                       const llm42__leaves &leaves, llm42_error *error) {
    if (llm42__in_e4m3(product)) return llm42__run_e4m3_experts(cu, product, w, x, y, entries, cut, leaves, error);
    llm42__execution *ex = &cu->execution;
    const int experts = cu->config.experts, processors = cu->device.multiProcessorCount;
    const bool gated = product == LLM42__GATE_UP;
    const llm42__groups groups = {ex->route_offset, source, experts};
    int kind = 0;
    const auto [n, k] = llm42__product_shape(cu, product);
    while ((long)llm42__expert_kinds[kind].most * experts < entries) kind++;
    for (; cu->device.major == 9 && kind >= 0; kind--) {
        const llm42__expert_kind *own = &llm42__expert_kinds[kind];
        llm42__product_fn *fn = gated ? own->gated : cut ? own->fp32 : own->plain;
        const cudaError_t status = fn(x, w, y, entries, n, k, groups, leaves, processors, ex->stream);
        if (status == cudaErrorNotSupported) continue;
        return LLM42__STATUS(status);
    }
    kind = entries <= 8 * experts ? 3 : entries <= 32 * experts ? 9 : LLM42__TILE_KINDS - 1;
    if (llm42__tile_kinds[kind].bytes > (int)cu->device.sharedMemPerBlockOptin) kind = LLM42__TILE_KINDS - 1;
    const llm42__tile_kind *tile = &llm42__tile_kinds[kind];
    llm42__product_fn *fn = gated ? tile->gated : !cut ? tile->plain : leaves.count > 1 ? tile->parts : tile->fp32;
    return LLM42__STATUS(fn(x, w, y, entries, n, k, groups, leaves, processors, ex->stream));
}

// The feed-forward part of a mixture: a grouped product takes the rows of each expert together.
static llm42_result llm42__enqueue_experts(llm42__cuda *cu, const llm42__shape_key *key, int l, llm42_error *error) {
    llm42__execution *ex = &cu->execution;
    const llm42_config *c = &cu->config;
    const llm42__cuda_layer *layer = &cu->layer[(size_t)l];
    const int rows = key->rows, used = c->experts_used, entries = rows * used;
    LLM42__TRY(llm42__enqueue_product(cu, LLM42__ROUTER, key->schedule, l, ex->h, ex->router, rows, error));
    // Rows go to their places on a device whose experts' products need that. What they are put into is free until down.
    llm42__bf16 *const sorted = cu->device.major == 9 ? ex->expert_out : nullptr;
    LLM42__STAGE("route",
                 LLM42__TRY(cu->desc.numerics.router_fp32
                                ? llm42__enqueue_route(cu, (const float *)ex->router, rows, sorted, error)
                                : llm42__enqueue_route(cu, (const llm42__bf16 *)ex->router, rows, sorted, error)));
    const bool cut = llm42__sums_leaves(cu, key->schedule, rows, l, 1);
    void *sum = llm42__sum_at(cu, 1);
    llm42__leaves leaves = cut ? llm42__leaves_of(cu, LLM42__DOWN) : llm42__leaves{1, 0, 0};
    leaves.part_stride = (size_t)entries * (size_t)cu->Dp;
    const int gate_up = llm42__product_in(cu, LLM42__GATE_UP, l), down = llm42__product_in(cu, LLM42__DOWN, l);
    LLM42__STAGE("gate_up", LLM42__TRY(llm42__run_experts(cu, gate_up, layer->w[gate_up], sorted ? sorted : ex->h,
                                                          sorted ? nullptr : ex->route_source, ex->gated, entries,
                                                          false, llm42__leaves{1, 0, 0}, error)));
    const llm42__bf16 *gated = llm42__comes_quantised(cu, key, LLM42__DOWN, l) ? nullptr : ex->gated;
    LLM42__STAGE("down",
                 LLM42__TRY(llm42__run_experts(cu, down, layer->w[down], gated, nullptr,
                                               cut ? (void *)ex->parts : ex->expert_out, entries, cut, leaves, error)));
    if (cut) {
        const llm42__owners owners = llm42__owners_of(cu, key->schedule, rows, 1);
        auto combine = [&](auto *to) {
            return llm42__launch(llm42__k_combine_leaves<std::remove_pointer_t<decltype(to)>>, dim3((unsigned)rows),
                                 dim3(256), 0, ex->stream, ex->parts, leaves.part_stride, leaves.count, ex->route_place,
                                 ex->route_weight, used, cu->Dp, owners, to);
        };
        LLM42__STAGE("route", LLM42__CU(cu->ranks > 1 ? combine((float *)sum) : combine((llm42__bf16 *)sum)));
        return LLM42_OK;
    }
    if (cu->ranks > 1)  // on one rank the next norm takes the sum
        LLM42__STAGE("route", LLM42__CU(llm42__launch(llm42__k_add_parts<LLM42__EXPERTS>, dim3(256), dim3(256), 0,
                                                      ex->stream, llm42__expert_parts(cu),
                                                      (size_t)rows * (size_t)cu->Dp, (llm42__bf16 *)sum)));
    return LLM42_OK;
}

// The norm before a layer's attention (stage 0) or before its feed-forward part (1), on one rank.
static llm42_result llm42__enqueue_layer_norm(llm42__cuda *cu, const llm42__shape_key *key, int l, int stage,
                                              llm42_error *error) {
    llm42__execution *ex = &cu->execution;
    const llm42__meta meta = llm42__meta_at(cu, key, ex->meta, LLM42__FULL);
    const llm42__cuda_layer *layer = &cu->layer[(size_t)l];
    const bool recurrent = !stage && cu->model->layer[l].recurrent;  // beta and alpha need h as it is
    const bool quantises = llm42__comes_quantised(cu, key, stage ? LLM42__GATE_UP : llm42__first_product(cu, l), l);
    const llm42__blocks_of_x eight = llm42__blocks_for(cu, ex, key->rows, quantises);
    if (!l && !stage) {
        llm42__sum embedding = llm42__whole(cu->embed);
        embedding.parts.embed_scale = cu->config.embed_scale;
        LLM42__TRY(llm42__enqueue_norm<LLM42__EMBED>(cu, ex, key->rows, &embedding, layer->attention_norm, meta, error,
                                                     eight, !recurrent));
        return llm42__show(cu, -1, "embed", ex->x, cu->probed ? cu->probed->rows : 0, 1, cu->D, cu->Dp, cu->Dp, false,
                           error);
    }
    const llm42__sum sum = llm42__sum_of(cu, key, stage ? l : l - 1, !stage);
    if (stage) LLM42__TRY(llm42__show_sum(cu, l, "o", key->rows, &sum, error));
    return llm42__enqueue_norm<LLM42__ADD>(cu, ex, key->rows, &sum, stage ? layer->ffn_norm : layer->attention_norm,
                                           meta, error, eight, !recurrent);
}

// What a recurrent layer has instead of attention: on Hopper one kernel for at most FEW_ROWS rows, else three. A block
// of k_delta takes 32 columns of a state, or 16 if value_dim is 16 or key_dim 256. a.few: see k_delta.
static llm42_result llm42__enqueue_recurrent(llm42__cuda *cu, const llm42__shape_key *key, int l, llm42_error *error) {
    enum { FEW_ROWS = 8, LONG_ROWS = 160 };
    const llm42_config *c = &cu->config;
    llm42__execution *ex = &cu->execution;
    const llm42__cuda_layer *layer = &cu->layer[(size_t)l];
    const llm42__meta meta = llm42__meta_at(cu, key, ex->meta, LLM42__FULL);
    const size_t L = (size_t)c->recurrent_layers, cache = (size_t)cu->model->layer[l].cache,
                 state = (size_t)(c->value_heads * c->value_dim * c->key_dim),
                 ring = (size_t)(cu->capacity * cu->width), inputs = (size_t)((LLM42__TAPS - 1) * cu->channels);
    llm42__recurrent a = {};
    a.key_heads = c->key_heads, a.value_heads = c->value_heads, a.value_dim = c->value_dim;
    a.channels = cu->channels, a.width = cu->width, a.stride = cu->mixed, a.z = cu->z_at, a.capacity = cu->capacity;
    a.out_stride = cu->attended, a.eps = c->norm_eps, a.mixed = ex->qkv, a.out = ex->attended;
    a.raw = cu->raw ? ex->raw : ex->qkv + cu->channels, a.raw_stride = cu->raw ? cu->raw : cu->mixed;
    a.taps = layer->taps, a.decay = layer->decay, a.alpha_bias = layer->alpha_bias, a.norm = layer->head_norm;
    a.convolved = ex->convolved, a.factors = ex->factors;
    a.states = cu->states + cache * state, a.saved_states = cu->saved_states + cache * state;
    a.rings = cu->rings + cache * ring, a.saved_inputs = cu->saved_inputs + cache * inputs;
    a.states_apart = L * state, a.rings_apart = L * ring, a.saved_inputs_apart = L * inputs;
    const unsigned processors = (unsigned)cu->device.multiProcessorCount, lanes = (unsigned)cu->attended / 16;
    const unsigned across = ((unsigned)cu->channels + 2047) / 2048, runs = (unsigned)llm42__most_runs(cu, key->rows),
                   groups = (unsigned)llm42__most_groups(cu, key->rows),
                   columns = c->value_dim % 32 || c->key_dim == 256 ? 16 : 32,
                   each = (unsigned)(c->value_heads * c->value_dim) / columns, few = 2 * processors / each;
    if (cu->device.major == 9 && key->rows <= FEW_ROWS && c->key_dim == c->value_dim && c->key_dim % 32 == 0 &&
        c->key_dim <= 128 && cu->attended == c->value_heads * c->value_dim) {
        LLM42__STAGE("delta", LLM42__CU(llm42__by_head_dim(c->key_dim, [&](auto dim) {
                         if constexpr (dim.value < 32 || dim.value > 128) return cudaErrorInvalidValue;
                         else
                             return llm42__launch_clusters(dim.value / 32, llm42__k_recur<dim.value>, dim3(runs * each),
                                                           dim3(128), sizeof(llm42__recur_memory<dim.value>),
                                                           ex->stream, a, meta);
                     })));
        return LLM42_OK;
    }
    if (key->prefill && key->rows >= LONG_ROWS) a.few = (int)few;
    auto delta = [&](auto kernel) {
        auto launch = [&](unsigned n) { return llm42__launch(kernel, dim3(n), dim3(128), 0, ex->stream, a, meta); };
        const cudaError_t status = a.few ? launch(few * each) : cudaSuccess;
        return status != cudaSuccess || (a.few && runs <= few) ? status : launch(std::min(runs * each, 8 * processors));
    };
    LLM42__STAGE("convolve", LLM42__CU(llm42__by_head_dim(c->key_dim, [&](auto dim) {
                     return llm42__launch(llm42__k_convolve<dim.value>, dim3(across, std::min(groups, 4 * processors)),
                                          dim3(128), 0, ex->stream, a, meta);
                 })));
    LLM42__STAGE("delta", LLM42__CU(llm42__by_head_dim(c->key_dim, [&](auto dim) {
                     constexpr int most = dim.value == 256 ? 1 : 2;  // columns of eight lanes
                     return columns == 16 ? delta(llm42__k_delta<dim.value, 1>)
                                          : delta(llm42__k_delta<dim.value, most>);
                 })));
    LLM42__STAGE("leave", LLM42__CU(llm42__by_head_dim(c->value_dim, [&](auto dim) {
                     return llm42__launch(llm42__k_leave<dim.value>, dim3((unsigned)key->rows, (lanes + 127) / 128),
                                          dim3(128), 0, ex->stream, a);
                 })));
    return LLM42_OK;
}

// A layer as far as o, on one rank. h is the first norm's output.
static llm42_result llm42__enqueue_attend(llm42__cuda *cu, const llm42__shape_key *key, int l, llm42_error *error) {
    const llm42_config *c = &cu->config;
    llm42__execution *ex = &cu->execution;
    const llm42__meta meta = llm42__meta_at(cu, key, ex->meta, LLM42__FULL);
    const int R = key->rows, real = cu->probed ? cu->probed->rows : 0;
    LLM42__TRY(llm42__show(cu, l, "attention_norm", ex->h, real, 1, cu->D, cu->Dp, cu->Dp, false, error));
    const bool recurrent = cu->model->layer[l].recurrent;
    const int product = recurrent ? LLM42__MIXED : LLM42__QKV;
    LLM42__TRY(llm42__enqueue_product(cu, product, key->schedule, l,
                                      llm42__comes_quantised(cu, key, product, l) ? nullptr : ex->h, ex->qkv, R,
                                      error));
    if (recurrent) {
        if (cu->raw) LLM42__TRY(llm42__enqueue_product(cu, LLM42__RAW, key->schedule, l, ex->h, ex->raw, R, error));
        LLM42__TRY(llm42__enqueue_recurrent(cu, key, l, error));
    } else {
        const size_t cache = (size_t)cu->model->layer[l].cache * cu->kv_layer;
        LLM42__STAGE("rope", LLM42__TRY(llm42__enqueue_rope(cu, R, l, meta, error)));
        LLM42__TRY(llm42__show(cu, l, "q", ex->q, real, c->heads, c->head_dim, cu->dp, c->heads * cu->dp, true, error));
        LLM42__TRY(llm42__show_cache(cu, l, "k", cu->k + cache, error));
        LLM42__TRY(llm42__show_cache(cu, l, "v", cu->v + cache, error));
        LLM42__STAGE("attention", LLM42__TRY(llm42__enqueue_attention(cu, key, l, error)));
        const dim3 gates((unsigned)R, (unsigned)(cu->attended / 8 + 255) / 256);
        if (c->gated)
            LLM42__STAGE("attention", LLM42__CU(llm42__launch(llm42__k_gate_attention, gates, dim3(256), 0, ex->stream,
                                                              ex->attended, cu->attended, ex->qkv + cu->gates_at,
                                                              cu->qkv, c->heads * c->head_dim)));
    }
    const int attended = recurrent ? c->value_heads * c->value_dim : c->heads * c->head_dim;
    LLM42__TRY(
        llm42__show(cu, l, "attention", ex->attended, real, 1, attended, cu->attended, cu->attended, true, error));
    return llm42__enqueue_product(cu, LLM42__O, key->schedule, l,
                                  llm42__comes_quantised(cu, key, LLM42__O, l) ? nullptr : ex->attended,
                                  llm42__sum_at(cu, 0), R, error);
}

// The rest of a layer, on one rank. h is the second norm's output.
static llm42_result llm42__enqueue_feed_forward(llm42__cuda *cu, const llm42__shape_key *key, int l,
                                                llm42_error *error) {
    const llm42_config *c = &cu->config;
    llm42__execution *ex = &cu->execution;
    const int R = key->rows, real = cu->probed ? cu->probed->rows : 0;
    LLM42__TRY(llm42__show(cu, l, "ffn_norm", ex->h, real, 1, cu->D, cu->Dp, cu->Dp, false, error));
    if (c->experts) return llm42__enqueue_experts(cu, key, l, error);
    const bool quantised = llm42__comes_quantised(cu, key, LLM42__DOWN, l);
    LLM42__TRY(llm42__enqueue_product(cu, LLM42__GATE_UP, key->schedule, l,
                                      llm42__comes_quantised(cu, key, LLM42__GATE_UP, l) ? nullptr : ex->h,
                                      quantised && !cu->first->probed ? nullptr : ex->gated, R, error));
    LLM42__TRY(llm42__show(cu, l, "gate", ex->gated, real, cu->leaves, c->ffn / cu->leaves, llm42__leaf_width(cu),
                           cu->Fp, true, error));
    return llm42__enqueue_product(cu, LLM42__DOWN, key->schedule, l, quantised ? nullptr : ex->gated,
                                  llm42__sum_at(cu, 1), R, error);
}

// The stages of a layer. Each is timed under its name, by llm42_cuda_stages. "A product" is llm42__k_matmul,
// llm42__k_leaves or cuBLASLt. tests/cuda/host.cu checks stages and kernels of one rank, and how often ranks meet.
//
//   stage      what it launches                                   by
//   norm       k_norm: x += down's sum (or x = embedding), and h  llm42__enqueue_layer_norm
//   exchange   k_meet, where each rank norms some rows            llm42__enqueue
//   qkv        a product                                          llm42__enqueue_attend
//   rope       k_rope: rotated q, and KV into the cache           llm42__enqueue_attend
//   attention  k_attend_*, k_gate_attention where it has gates    llm42__enqueue_attend
//   o          a product                                          llm42__enqueue_attend
//   exchange   k_meet, unless the parts come by mail              llm42__enqueue_exchange
//   norm       k_norm: x += o's sum, and h                        llm42__enqueue_layer_norm
//   exchange   k_meet, where each rank norms some rows            llm42__enqueue
//   gate_up    a product; its end, or k_gate, is silu(gate) x up  llm42__enqueue_feed_forward
//   down       a product                                          llm42__enqueue_feed_forward
//   exchange   k_meet, unless the parts come by mail              llm42__enqueue_exchange
//
// A product with weights in e4m3 begins with k_quantise_blocks or _rows, unless its input comes quantised.
// Instead of qkv, rope and attention a recurrent layer has the product mixed (in FP8 also beta_alpha, timed as mixed)
// and, by llm42__enqueue_recurrent, the stages convolve, delta and leave, each the kernel of its name. For few rows it
// has only delta, which is k_recur then. Instead of gate_up and down a mixture has, by llm42__enqueue_experts:
//   router     a product
//   route      k_route, and above 32 rows k_sort
//   gate_up, down  k_experts, or k_matmul, of each expert
//   route      k_combine_leaves, or k_add_parts if there are several ranks; else the next norm adds up experts

// All launches of a pass whose metadata is on the devices. The head is left out if there is no room for all logits.
// cu: rank 0. Between two meetings each rank's launches go to its stream one rank after the other, so that ranks on one
// device keep this order. By mail a norm waits for those of the other ranks, so all of them are launched before
// anything else: what comes behind may not be launched before its device is idle, if CUDA has still to load the kernel.
static llm42_result llm42__enqueue(llm42__cuda *cu, const llm42__shape_key *key, llm42_error *error) {
    const int layers = cu->config.layers;
    auto meta_of = [&](llm42__cuda *rank) { return llm42__meta_at(rank, key, rank->execution.meta, LLM42__FULL); };
    // Ranks that have normed only some rows wait for the h of the others.
    const bool own_rows = llm42__own_rows(cu, key->schedule, key->rows);
    auto norms = [&](int l, int stage) -> llm42_result {
        LLM42__TRY(llm42__each_rank(
            cu, error, [&](llm42__cuda *rank) { return llm42__enqueue_layer_norm(rank, key, l, stage, error); }));
        if (own_rows && (l || stage)) LLM42__STAGE("exchange", LLM42__TRY(llm42__enqueue_meeting(cu, error)));
        return LLM42_OK;
    };
    for (int l = 0; l < layers; l++) {
        LLM42__TRY(norms(l, 0));
        LLM42__TRY(
            llm42__each_rank(cu, error, [&](llm42__cuda *rank) { return llm42__enqueue_attend(rank, key, l, error); }));
        LLM42__TRY(llm42__enqueue_exchange(cu, key, l, 0, error));
        LLM42__TRY(norms(l, 1));
        LLM42__TRY(llm42__each_rank(
            cu, error, [&](llm42__cuda *rank) { return llm42__enqueue_feed_forward(rank, key, l, error); }));
        LLM42__TRY(llm42__enqueue_exchange(cu, key, l, 1, error));
        const llm42__sum sum = llm42__sum_of(cu, key, l, 1);
        LLM42__TRY(llm42__show_sum(cu, l, "down", key->rows, &sum, error));
    }
    if (!key->draws) return LLM42_OK;
    LLM42__TRY(llm42__each_rank(cu, error, [&](llm42__cuda *rank) {
        const llm42__sum sum = llm42__sum_of(rank, key, layers - 1, 1);
        return llm42__enqueue_norm<LLM42__ADD_DRAWS>(rank, &rank->execution, key->draws, &sum, rank->final_norm,
                                                     meta_of(rank), error);
    }));
    if (own_rows) LLM42__STAGE("exchange", LLM42__TRY(llm42__enqueue_meeting(cu, error)));
    if (key->draws > cu->max_draws) return LLM42_OK;
    // A FIXED pass that draws few tokens has a smaller product of the head if that keeps the bits.
    const bool smaller = key->schedule == LLM42_SCHEDULE_FIXED && key->draws < key->rows;
    return llm42__enqueue_head(cu, smaller ? LLM42_SCHEDULE_INVARIANT : key->schedule, 0, key->draws, meta_of(cu),
                               error);
}

// >>cuda-graphs --------------------------------------------------------------------------------------------------
// Owns: CUDA graphs. A pass runs as one of few padded shapes (keys), so that each can have a graph. llm42__choose_key
// pads a pass. llm42__make_graphs captures the usual keys. For others the kernels are launched one by one.
// Calls: cuda-launches.
// Invariant: a key has room for the rows of its pass, and for those for which a token is drawn.
static llm42__graph *llm42__find_graph(llm42__cuda *cu, const llm42__shape_key *key) {
    for (llm42__graph &g : cu->graphs)
        if (g.key.schedule == key->schedule && g.key.rows == key->rows && g.key.draws == key->draws &&
            g.key.prefill == key->prefill && g.key.decode == key->decode)
            return &g;
    return nullptr;
}

// Captures the launches of a pass: a graph for each device.
static llm42_result llm42__capture(llm42__cuda *cu, llm42__shape_key key, llm42_error *error) {
    LLM42__TRY(llm42__each_device(cu, error, [&](llm42__cuda *rank) {
        return LLM42__STATUS(cudaStreamBeginCapture(rank->execution.stream, cudaStreamCaptureModeThreadLocal));
    }));
    llm42_result result = llm42__enqueue(cu, &key, error);
    llm42__graph *graph_of = llm42__find_graph(cu, &key);
    if (!graph_of) graph_of = &*cu->graphs.insert(cu->graphs.end(), {key, {}});
    auto note = [&](const llm42__cuda *rank, const char *call, cudaError_t status) {
        if (result == LLM42_OK) result = llm42__of_rank(rank, llm42__cuda_status(error, call, status), error);
    };
    // All captures are ended first, also after an error: until then nothing else may be done with graphs.
    cudaGraph_t graph[8] = {};
    const llm42_result ended = llm42__each_device(cu, error, [&](llm42__cuda *rank) {
        note(rank, "cudaStreamEndCapture(", cudaStreamEndCapture(rank->execution.stream, &graph[rank->own_device]));
        return LLM42_OK;
    });
    const llm42_result made = llm42__each_device(cu, error, [&](llm42__cuda *rank) {
        cudaGraphExec_t *exec = &graph_of->exec[rank->own_device];
        if (*exec) cudaGraphExecDestroy(*exec);
        *exec = nullptr;
        if (result == LLM42_OK)
            note(rank, "cudaGraphInstantiate(", cudaGraphInstantiate(exec, graph[rank->own_device], 0));
        if (graph[rank->own_device]) cudaGraphDestroy(graph[rank->own_device]);
        if (result == LLM42_OK) note(rank, "cudaGraphUpload(", cudaGraphUpload(*exec, rank->execution.stream));
        return LLM42_OK;
    });
    return result != LLM42_OK ? result : ended != LLM42_OK ? ended : made;
}

// True if there is a shape without a kernel for single rows for as many draws: at most 16, or all rows.
static bool llm42__draws_fit(const llm42__cuda *cu, const llm42__prepared *p, const llm42_pass *pass) {
    const int rows = llm42__padded_rows(cu, pass->rows);
    return p->draws == pass->rows || (p->draws <= 16 && llm42__draws_few(cu, pass->schedule, rows));
}

// Chooses the pass's padded shape. If no row is single, or if single rows count as prompts (llm42__make_tasks), the
// kernel for single rows is not launched, unless the number of draws is one that such a shape is not made for. A FIXED
// pass has always the same kernels: in it single rows count as prompts.
static void llm42__choose_key(const llm42__cuda *cu, llm42__prepared *p, const llm42_pass *pass) {
    const int rows = llm42__padded_rows(cu, pass->schedule == LLM42_SCHEDULE_FIXED ? pass->shape : pass->rows);
    const llm42__tasks *tasks = &p->tasks[cu->has[LLM42__FULL] ? LLM42__FULL : LLM42__SLIDING];
    llm42__shape_key key = {pass->schedule, rows, 0, !tasks->prefill.empty(), !tasks->decode.empty()};
    if (!key.decode && (llm42__draws_fit(cu, p, pass) || pass->schedule == LLM42_SCHEDULE_FIXED)) {
        key.draws = p->draws <= 16 && llm42__draws_few(cu, pass->schedule, rows) ? 16 : rows;
    } else if (!key.prefill && p->draws == pass->rows) {
        key.draws = rows;
    } else {
        key.draws = std::min(llm42__usual_draws(cu), rows);
        if (p->draws > key.draws) key.draws = llm42__padded_rows(cu, p->draws);
        key.prefill = key.decode = true;
    }
    if (key.draws > cu->max_draws) key.draws = std::max(p->draws, cu->max_draws + 1);  // the head runs in parts
    assert(key.rows >= pass->rows && key.draws >= p->draws);
    p->key = key;
}

// Makes the graphs of the passes that an engine runs most often: decode passes and mixed passes of each bucket, and
// replay passes. FIXED ones have M rows, INVARIANT ones those of any bucket up to M.
static llm42_result llm42__make_graphs(llm42__cuda *cu, llm42_error *error) {
    enum { MOST_ROWS = 2048 };
    const unsigned wanted = cu->desc.schedules ? cu->desc.schedules
                                               : 1u << LLM42_SCHEDULE_FAST | 1u << LLM42_SCHEDULE_FIXED |
                                                     1u << LLM42_SCHEDULE_INVARIANT;
    const int running = llm42__padded_rows(cu, std::min(std::max(cu->desc.max_running, 1), cu->max_rows)),
              usual = llm42__usual_draws(cu);
    for (llm42_schedule schedule : {LLM42_SCHEDULE_FAST, LLM42_SCHEDULE_INVARIANT}) {
        if (!(wanted >> schedule & 1)) continue;
        for (int rows : cu->buckets) {
            if (rows > MOST_ROWS || rows > cu->max_rows) break;
            if (rows <= running && rows <= cu->max_draws)
                LLM42__TRY(llm42__capture(cu, {schedule, rows, rows, false, true}, error));
            LLM42__TRY(llm42__capture(cu, {schedule, rows, std::min(usual, rows), true, true}, error));
            if (llm42__draws_few(cu, schedule, rows))
                LLM42__TRY(llm42__capture(cu, {schedule, rows, 16, true, false}, error));
        }
    }
    const int M = cu->desc.fixed_rows;
    if (M < 1 || M > cu->max_draws) return LLM42_OK;
    for (llm42_schedule schedule : {LLM42_SCHEDULE_FIXED, LLM42_SCHEDULE_INVARIANT}) {
        const bool fixed = schedule == LLM42_SCHEDULE_FIXED;
        for (int rows : cu->buckets) {
            if (!(wanted >> schedule & 1)) break;
            if (rows > M || (rows < M && fixed)) continue;
            LLM42__TRY(llm42__capture(cu, {schedule, rows, rows, true, false}, error));
            if (fixed && llm42__draws_few(cu, schedule, rows))
                LLM42__TRY(llm42__capture(cu, {schedule, rows, 16, true, false}, error));
            if (!fixed && rows > usual)  // with a single row that is longer than all windows
                LLM42__TRY(llm42__capture(cu, {schedule, rows, rows, true, true}, error));
        }
    }
    return LLM42_OK;
}

// >>cuda-tasks ---------------------------------------------------------------------------------------------------
// Owns: the tasks of the attention kernels and the metadata of a pass.
// Calls: nothing.
// Invariant: every key of attention that a row sees belongs to one unit of one task.
//
// A single row is the only row of its sequence in the pass (decoding). Its keys are summed in units. The units are
// divided among thread blocks. One block's units are a task.
//
//   keys    low ------------------------------------------------------------------------> position
//   units   | u0 | u1 | u2 | u3 | u4 | u5 | u6 | ...     each is summed on its own
//   tasks   |  units of block 0  |  units of block 1 | ... chosen by load: bits do not depend on them

// How the keys of a pass's single rows are split in layers of one reach.
struct llm42__split {
    int window;
    int share;    // units of a block, if all blocks that run at once had equally many
    int records;  // taken so far
};
static int llm42__parts(int n, int size) { return (n + size - 1) / size; }
static int llm42__first_key(const llm42_row *row, int window, int grain) {
    return window ? std::max(0, row->position + 1 - window) / grain * grain : 0;
}
static int llm42__row_units(const llm42_row *row, int window) {
    return llm42__parts(row->position + 1 - llm42__first_key(row, window, LLM42__UNIT_KEYS), LLM42__UNIT_KEYS);
}

// A long row must not be left to one block while the others have no more work, so it is divided if it has more than 1.5
// times the even share. Other rows are not divided, so that their blocks need not write records.
static void llm42__split_keys(const llm42__cuda *cu, llm42__tasks *tasks, llm42__split *split, const llm42_row *row,
                              int r, int seq) {
    const int begin = llm42__first_key(row, split->window, LLM42__UNIT_KEYS),
              row_units = llm42__row_units(row, split->window);
    int blocks = 2 * row_units > 3 * split->share ? llm42__parts(row_units, split->share) : 1;
    if (split->records + row_units > cu->max_records) blocks = 1;
    const int units = llm42__parts(row_units, blocks);  // of a task
    const bool alone = units >= row_units;
    assert(units > 0);
    for (int u = 0; u < row_units; u += units)
        tasks->decode.push_back({r, row->position, seq, begin + u * LLM42__UNIT_KEYS, u, row_units, units,
                                 alone ? -1 : split->records + u});
    if (!alone) split->records += row_units;
}

// Long tasks first, so that no long one runs alone at the end. This order of work changes no sum.
static void llm42__sort_decode_tasks(std::vector<llm42__decode_task> *tasks) {
    auto units_of = [](const llm42__decode_task &t) { return std::min(t.units, t.row_units - t.first_unit); };
    std::sort(tasks->begin(), tasks->end(), [&](const llm42__decode_task &a, const llm42__decode_task &b) {
        const int of_a = units_of(a), of_b = units_of(b);
        return of_a != of_b ? of_a > of_b : a.row != b.row ? a.row < b.row : a.first_unit < b.first_unit;
    });
}

// Tasks of at most `most` rows for the rows begin <= r < end, which are consecutive in a sequence.
static void llm42__add_prefill_tasks(llm42__tasks *tasks, int window, const llm42_pass *pass, int begin, int end,
                                     int most, int seq, bool old) {
    for (int r = begin; r < end; r += most) {
        const int rows = std::min(most, end - r);
        tasks->prefill.push_back({r, rows, llm42__first_key(&pass->row[r], window, LLM42__STEP_KEYS),
                                  pass->row[r].position + rows, seq, old ? pass->row[begin].position : 0});
    }
}

// Finds the runs of a pass: rows that are consecutive in a sequence. Returns how many have one row.
static int llm42__find_runs(llm42__prepared *p, const llm42_pass *pass) {
    int single = 0;
    p->run_begin.clear(), p->seqs.clear();
    auto same_run = [&](int r) {
        return pass->row[r].seq == pass->row[r - 1].seq && pass->row[r].position == pass->row[r - 1].position + 1;
    };
    for (int r = 0; r < pass->rows; r++)
        if (!r || !same_run(r)) {
            p->run_begin.push_back(r);
            p->seqs.push_back(pass->row[r].seq);
            single += r + 1 == pass->rows || !same_run(r + 1);
        }
    std::sort(p->seqs.begin(), p->seqs.end());
    p->old = std::adjacent_find(p->seqs.begin(), p->seqs.end()) == p->seqs.end();  // no sequence has two runs
    return single;
}

static void llm42__make_tasks(const llm42__cuda *cu, llm42__prepared *p, const llm42_pass *pass) {
    const int single = llm42__find_runs(p, pass), R = pass->rows;
    // Both kernels give the same bits. Single rows count as prompts if a prompt or a window has as many keys, and if
    // the pass then does without the kernel for single rows (llm42__choose_key).
    int longest[2] = {0, 0};  // keys: of single rows, of others
    auto end_of = [&](size_t i) { return i + 1 < p->run_begin.size() ? p->run_begin[i + 1] : R; };
    for (size_t i = 0; i < p->run_begin.size(); i++) {
        int *most = &longest[end_of(i) - p->run_begin[i] > 1];
        *most = std::max(*most, pass->row[end_of(i) - 1].position + 1);
    }
    const bool as_prompts = pass->schedule == LLM42_SCHEDULE_FIXED ||
                            (longest[0] <= longest[1] && llm42__draws_fit(cu, p, pass));
    // Tasks have queries for all teams of a block, but where blocks would be few, for one team, so that more work.
    const int heads = cu->config.kv_heads, processors = cu->device.multiProcessorCount;
    int most = LLM42__TEAM_QUERIES * llm42__prefill_teams(cu->dp, cu->device.major == 9) / cu->group, blocks = 0;
    for (size_t i = 0; i < p->run_begin.size(); i++)
        if (as_prompts || end_of(i) - p->run_begin[i] > 1)
            blocks += heads * llm42__parts(end_of(i) - p->run_begin[i], most);
    if (2 * blocks <= processors) most = LLM42__TEAM_QUERIES / cu->group;
    const llm42__decode_shape shape = llm42__decode_shape_of(cu, llm42__padded_rows(cu, R));
    const int at_once = llm42__decode_blocks(cu, shape);
    for (int reach = 0; reach < LLM42__REACHES; reach++) {
        llm42__tasks *tasks = &p->tasks[reach];
        llm42__split split = {reach == LLM42__SLIDING ? cu->config.sliding_window : 0, 0, 0};
        tasks->prefill.clear(), tasks->decode.clear();
        int64_t units = 0;  // of all single rows
        for (size_t i = 0; i < p->run_begin.size(); i++)
            if (end_of(i) - p->run_begin[i] == 1) units += llm42__row_units(&pass->row[p->run_begin[i]], split.window);
        split.share = (int)std::max<int64_t>(1, (units + at_once - 1) / at_once);
        for (size_t i = 0; cu->has[reach] && i < p->run_begin.size(); i++) {
            const int begin = p->run_begin[i], end = end_of(i);
            if (as_prompts || end - begin > 1)
                llm42__add_prefill_tasks(tasks, split.window, pass, begin, end, most, (int)i, p->old);
            else llm42__split_keys(cu, tasks, &split, &pass->row[begin], begin, (int)i);
        }
        if ((int)tasks->decode.size() > at_once) llm42__sort_decode_tasks(&tasks->decode);
        std::sort(tasks->prefill.begin(), tasks->prefill.end(),
                  [](const llm42__prefill_task &a, const llm42__prefill_task &b) {
                      return a.end - a.first != b.end - b.first ? a.end - a.first > b.end - b.first : a.row < b.row;
                  });
    }
}

static llm42_result llm42__check_pass(const llm42__cuda *cu, const llm42_pass *pass, llm42_error *error) {
    int R = pass->rows;
    if (pass->schedule < LLM42_SCHEDULE_FAST || pass->schedule > LLM42_SCHEDULE_INVARIANT)
        LLM42__FAIL(UNSUPPORTED, "cuda backend: schedule %s is not available", llm42_schedule_name(pass->schedule));
    if (R < 1 || R > cu->max_rows || R > pass->shape ||
        (pass->schedule == LLM42_SCHEDULE_FIXED && pass->shape > cu->max_rows))
        LLM42__FAIL(INVALID, "cuda backend: a pass of %d rows, shape %d: expected 1 to %d, and at most the shape", R,
                    pass->shape, cu->max_rows);
    for (int r = 0; r < R; r++) {
        const llm42_row *row = &pass->row[r];
        if (row->seq < 0 || row->token < 0 || row->token >= cu->config.vocab || row->position < 0 ||
            row->position >= cu->desc.max_context)
            LLM42__FAIL(INVALID, "cuda backend: row %d: token %d, position %d: out of range", r, row->token,
                        row->position);
    }
    return cu->config.recurrent_layers ? llm42__check_runs(&cu->desc, "cuda", pass, error) : LLM42_OK;
}

// The runs of a pass for recurrent layers, the longest first, so that no long one runs alone at the end.
static void llm42__make_runs(const llm42__cuda *cu, llm42__prepared *p, const llm42_pass *pass) {
    p->runs.clear(), p->groups = 0;
    for (size_t i = 0; cu->config.recurrent_layers && i < p->run_begin.size(); i++) {
        const int row = p->run_begin[i], end = i + 1 < p->run_begin.size() ? p->run_begin[i + 1] : pass->rows;
        const llm42_seq *s = &pass->seq[pass->row[row].seq];
        const int begin = pass->row[row].position;
        llm42__run run = {};
        run.row = row, run.rows = end - row, run.begin = begin, run.from = std::min(begin, s->state);
        run.slot = pass->row[row].seq, run.state = s->state, run.state_to = s->state_to;
        run.restore = s->restore, run.saves = s->saves;
        for (int j = 0; j < s->saves; j++) run.save[j] = {s->save[j].at, s->save[j].snapshot};
        p->runs.push_back(run);
    }
    auto length = [](const llm42__run &run) { return run.begin + run.rows - run.from; };
    std::stable_sort(p->runs.begin(), p->runs.end(),
                     [&](const llm42__run &a, const llm42__run &b) { return length(a) > length(b); });
    for (llm42__run &run : p->runs) run.group = p->groups, p->groups += llm42__parts(length(run), LLM42__GROUP);
}

// Writes what a pass says of its rows, their pages and draws, as padded.
static void llm42__write_rows(const llm42__cuda *cu, const llm42__prepared *p, const llm42_pass *pass,
                              const llm42__meta &to) {
    int32_t *token = (int32_t *)to.token, *position = (int32_t *)to.position, *slot = (int32_t *)to.slot,
            *pages = (int32_t *)to.pages;
    llm42__draw *draw = (llm42__draw *)to.draw;
    int run = -1;
    const int runs = (int)p->run_begin.size();
    for (int r = pass->rows; r < p->key.rows; r++) token[r] = position[r] = 0, slot[r] = -1;
    for (int r = 0; r < pass->rows; r++) {
        const llm42_row *row = &pass->row[r];
        const llm42_seq *s = &pass->seq[row->seq];
        if (run + 1 < runs && p->run_begin[(size_t)run + 1] == r) {
            run++;
            const int end = run + 1 < runs ? p->run_begin[(size_t)run + 1] : pass->rows,
                      used = (pass->row[end - 1].position >> cu->page_shift) + 1;
            memcpy(pages + (size_t)run * (size_t)p->page_stride, s->pages, (size_t)used * sizeof *pages);
        }
        token[r] = row->token, position[r] = row->position;
        slot[r] = row->flags & LLM42_ROW_KEEP_KV ? -1
                                                 : (s->pages[row->position >> cu->page_shift] << cu->page_shift) +
                                                       (row->position & (cu->desc.page_size - 1));
        const llm42_sampling *by = &s->sampling;
        if (row->flags & LLM42_ROW_SAMPLE)
            *draw++ = {r, by->top_k, by->temperature, by->top_p, by->min_p, row->position, by->seed};
    }
}

// Checks a pass, makes its tasks and writes its metadata to pinned memory.
static llm42_result llm42__prepare(const llm42__cuda *cu, llm42__execution *ex, llm42__prepared *p,
                                   const llm42_pass *pass, llm42_error *error) {
    LLM42__TRY(llm42__check_pass(cu, pass, error));
    p->draws = 0, p->page_stride = 0;
    for (int r = 0; r < pass->rows; r++) {
        p->draws += (pass->row[r].flags & LLM42_ROW_SAMPLE) != 0;
        p->page_stride = std::max(p->page_stride, (pass->row[r].position >> cu->page_shift) + 1);
    }
    llm42__make_tasks(cu, p, pass);
    llm42__make_runs(cu, p, pass);
    llm42__choose_key(cu, p, pass);
    if (p->run_begin.size() * (size_t)p->page_stride > cu->page_room)
        LLM42__FAIL(INVALID,
                    "cuda backend: a pass of %zu sequences of up to %d pages: more than max_running and max_context "
                    "were opened for",
                    p->run_begin.size(), p->page_stride);
    unsigned char *base = ex->meta_host;
    ex->number = ex->number % LLM42__MOST_NUMBER + 1;
    const llm42__meta first = llm42__meta_at(cu, &p->key, base, LLM42__FULL);
    llm42__write_rows(cu, p, pass, first);
    std::copy(p->runs.begin(), p->runs.end(), (llm42__run *)first.run);
    for (int reach = 0; reach < LLM42__REACHES; reach++) {
        const auto &prefill = p->tasks[reach].prefill;
        const auto &decode = p->tasks[reach].decode;
        const llm42__meta to = llm42__meta_at(cu, &p->key, base, reach);
        *(llm42__header *)to.header = {pass->rows, (int32_t)prefill.size(), (int32_t)decode.size(),
                                       p->draws,   p->page_stride,          ex->number,
                                       p->old,     (int32_t)p->runs.size(), p->groups};
        std::copy(prefill.begin(), prefill.end(), (llm42__prefill_task *)to.prefill);
        std::copy(decode.begin(), decode.end(), (llm42__decode_task *)to.decode);
        if (cu->has[reach]) p->head_bytes = (size_t)((unsigned char *)(to.decode + decode.size()) - base);
        p->pages_at = (size_t)((unsigned char *)to.pages - base);
    }
    p->pages_bytes = p->run_begin.size() * (size_t)p->page_stride * sizeof(int32_t);
    return LLM42_OK;
}

// >>cuda-run -----------------------------------------------------------------------------------------------------
// Owns: running a pass and fetching its outputs.
// Calls: cuda-tasks, cuda-graphs, cuda-launches.
// Invariant: one pass of an engine runs at a time.

// Waits for a pass, and no longer if a device fails: the others then wait for it until llm42__end_pass tells them.
static llm42_result llm42__wait(llm42__cuda *cu, llm42_error *error) {
    if (cu->devices == 1) return LLM42__STATUS(cudaStreamSynchronize(cu->execution.stream));
    for (bool all = false; !all;) {
        all = true;
        for (int r = 0; r < cu->ranks; r++) {
            const cudaError_t status = cudaStreamQuery(llm42__rank(cu, r)->execution.stream);
            all &= status == cudaSuccess;
            if (status == cudaErrorNotReady) cudaGetLastError();  // which is no error
            else LLM42__TRY(llm42__of_rank(llm42__rank(cu, r), llm42__cuda_status(error, "a pass", status), error));
        }
    }
    return LLM42_OK;
}

// Empties the mailboxes, before the numbers of passes begin anew. It waits as passes do: so an error is that of the
// rank that has it. Stamps become 0, which no exchange has as its stamp.
static llm42_result llm42__empty_mail(llm42__cuda *cu, llm42_error *error) {
    if (!cu->execution.mail[0]) return LLM42_OK;
    LLM42__TRY(llm42__each_rank(cu, error, [&](llm42__cuda *rank) -> llm42_result {
        const llm42__execution *ex = &rank->execution;
        for (ulonglong2 *box : ex->mail)
            if (box) LLM42__CU(cudaMemsetAsync(box, 0, llm42__mail_bytes(cu), ex->stream));
        return LLM42_OK;
    }));
    return llm42__wait(cu, error);
}

// An error if a pass cannot run, or cannot have run, because no device waits for others any more (llm42__end_pass).
static llm42_result llm42__check_lost(const llm42__cuda *cu, llm42_error *error) {
    if (!cu->ended || !*(volatile unsigned *)cu->ended) return LLM42_OK;
    LLM42__FAIL(BACKEND,
                "cuda backend: a device was lost in another pass: start a new process and open the engine again");
}

// While an engine has a turn, engines of other threads do not get one on any of its devices. Devices are taken in
// ascending order. A thread may take a turn again: an engine's passes run while it opens, and a pass may run inside the
// probe of another one, which has then no kernel that waits.
struct llm42__turn {
    const int first, count;
    static std::recursive_mutex &of(int device) {
        static std::recursive_mutex all[64];
        return all[device % 64];
    }
    llm42__turn(int first, int count) : first(first), count(count) {
        for (int d = 0; d < count; d++) of(first + d).lock();
    }
    llm42__turn(const llm42__turn &) = delete;
    ~llm42__turn() {
        for (int d = 0; d < count; d++) of(first + d).unlock();
    }
    // For a pass. Its kernels wait for other devices (llm42__k_meet), so none of another pass may be among them.
    static llm42__turn to_run(const llm42__cuda *cu) { return {cu->options.device, cu->devices > 1 ? cu->devices : 0}; }
    // For opening and closing. To take or free memory the driver may wait for a device, and hold up launches on others
    // meanwhile. So no pass may then be launched half-way.
    static llm42__turn to_change(const llm42__cuda *cu) {
        return {cu->options.device, cu->first == cu ? cu->devices : 0};
    }
};

static llm42_result llm42__launch_pass(llm42__cuda *cu, const llm42_pass *pass, llm42_error *error) {
    LLM42__TRY(llm42__check_lost(cu, error));
    const llm42__prepared *p = &cu->execution.prepared;
    const unsigned char *from = cu->execution.meta_host;
    if (cu->execution.number == 1) LLM42__TRY(llm42__empty_mail(cu, error));
    LLM42__TRY(llm42__each_rank(cu, error, [&](llm42__cuda *rank) -> llm42_result {
        llm42__execution *ex = &rank->execution;
        LLM42__CU(cudaMemcpyAsync(ex->meta, from, p->head_bytes, cudaMemcpyHostToDevice, ex->stream));
        return LLM42__STATUS(cudaMemcpyAsync(ex->meta + p->pages_at, from + p->pages_at, p->pages_bytes,
                                             cudaMemcpyHostToDevice, ex->stream));
    }));
    const llm42__graph *graph = pass->logits || pass->probe || cu->timings ? nullptr : llm42__find_graph(cu, &p->key);
    if (!graph || !graph->exec[0]) return llm42__enqueue(cu, &p->key, error);
    return llm42__each_device(cu, error, [&](llm42__cuda *rank) {
        return LLM42__STATUS(cudaGraphLaunch(graph->exec[rank->own_device], rank->execution.stream));
    });
}

// Ends what is left of a pass that has failed: no kernel of it may still run, and no device wait for another. If a
// device is lost, nobody is to wait for that one any more. The device's calls fail then, and so does cudaSetDevice.
static void llm42__end_pass(llm42__cuda *cu) {
    volatile unsigned *ended = cu->ended;
    if (ended) *ended = 1;
    const bool lost = llm42__wait(cu, nullptr) != LLM42_OK;
    for (int r = 0; r < cu->ranks; r++) {
        const llm42__cuda *rank = llm42__rank(cu, r);
        const llm42__execution *ex = &rank->execution;
        cudaSetDevice(rank->options.device);
        if (ex->flag) cudaMemsetAsync(ex->flag, 0, LLM42__FLAG_BYTES, ex->stream);
        cudaStreamSynchronize(ex->stream);
    }
    cudaSetDevice(cu->options.device);
    if (ended && !lost) *ended = 0;
    cudaGetLastError();
}

// Copies the logits of draws from `first` on, or takes their margins. A row in bf16 is copied to its second half and
// widened from the left.
static llm42_result llm42__copy_logits(llm42__cuda *cu, const llm42_pass *pass, int first, int count,
                                       llm42_error *error) {
    if (!pass->logits && !pass->margins) return LLM42_OK;
    LLM42__TRY(llm42__wait(cu, error));
    const llm42__execution *ex = &cu->execution;
    const size_t V = (size_t)cu->config.vocab, size = cu->desc.numerics.logits_fp32 ? 4 : 2;
    std::vector<float> one(pass->logits ? 0 : V);
    for (int r = 0, draw = 0; r < pass->rows && draw < first + count; r++) {
        if (!(pass->row[r].flags & LLM42_ROW_SAMPLE) || draw++ < first) continue;
        float *to = pass->logits ? pass->logits + (size_t)r * V : one.data();
        LLM42__CU(cudaMemcpyAsync((char *)(to + V) - V * size,
                                  (const char *)ex->logits + (size_t)(draw - 1 - first) * (size_t)cu->Vp * size,
                                  V * size, cudaMemcpyDeviceToHost, ex->stream));
        LLM42__CU(cudaStreamSynchronize(ex->stream));
        for (size_t i = 0; size == 2 && i < V; i++) {
            uint16_t half;
            memcpy(&half, (const char *)(to + V) - 2 * (V - i), sizeof half);
            to[i] = llm42__from_bf16(half);
        }
        const llm42_sampling *p = &pass->seq[pass->row[r].seq].sampling;
        if (pass->margins) pass->margins[r] = llm42_margin(to, (int)V, p, pass->row[r].position);
    }
    return LLM42_OK;
}

// Runs the head of a pass in parts, because there is no room for the logits of all its draws.
static llm42_result llm42__long_head(llm42__cuda *cu, const llm42_pass *pass, llm42_error *error) {
    const llm42__prepared *p = &cu->execution.prepared;
    llm42__meta meta = llm42__meta_at(cu, &p->key, cu->execution.meta, LLM42__FULL);
    for (int first = 0; first < p->draws; first += cu->max_draws) {
        int count = std::min(cu->max_draws, p->draws - first);
        int rows = pass->schedule == LLM42_SCHEDULE_FIXED ? cu->max_draws : llm42__padded_rows(cu, count);
        LLM42__TRY(llm42__enqueue_head(cu, pass->schedule, first, rows, meta, error));
        LLM42__TRY(llm42__copy_logits(cu, pass, first, count, error));
    }
    return LLM42_OK;
}

// Copies the tokens of a pass that has ended to pass->out.
static void llm42__take_outputs(const llm42__cuda *cu, const llm42_pass *pass) {
    for (int r = 0; r < pass->rows; r++) {
        if (!(pass->row[r].flags & LLM42_ROW_SAMPLE)) continue;
        llm42_output *out = &pass->out[r];
        *out = cu->execution.out_host[r];
        if (!(out->logprob - out->logprob == 0)) out->token = -1;  // its logits are not finite
    }
}

// The pass whose probe is called from now on; NULL: none. What ranks have shown of one that has failed is forgotten.
static void llm42__set_probed(llm42__cuda *cu, const llm42_pass *pass) {
    for (int r = 0; r < cu->ranks; r++) {
        llm42__rank(cu, r)->probed = pass;
        cu->shown[r].clear();
    }
}

static llm42_result llm42__run_pass(llm42__cuda *cu, const llm42_pass *pass, llm42_error *error) {
    llm42__execution *ex = &cu->execution;
    llm42__prepared *p = &cu->execution.prepared;
    const llm42__turn turn = llm42__turn::to_run(cu);
    LLM42__CU(cudaSetDevice(cu->options.device));
    LLM42__TRY(llm42__prepare(cu, ex, p, pass, error));
    llm42__set_probed(cu, pass->probe ? pass : nullptr);
    LLM42__TRY(llm42__launch_pass(cu, pass, error));
    if (p->key.draws)
        LLM42__TRY(llm42__show(cu, -1, "final_norm", ex->h, p->draws, 1, cu->D, cu->Dp, cu->Dp, false, error));
    if (p->key.draws > cu->max_draws) LLM42__TRY(llm42__long_head(cu, pass, error));
    else LLM42__TRY(llm42__copy_logits(cu, pass, 0, p->draws, error));
    return llm42__wait(cu, error);
}

static llm42_result llm42__cuda_run(void *state, const llm42_pass *pass, llm42_error *error) {
    llm42__cuda *cu = (llm42__cuda *)state;
    const llm42_result result = llm42__guarded(error, [&]() { return llm42__run_pass(cu, pass, error); });
    llm42__set_probed(cu, nullptr);
    if (result == LLM42_OK) llm42__take_outputs(cu, pass);
    else llm42__end_pass(cu);
    return result;
}

// >>cuda-memory --------------------------------------------------------------------------------------------------
// Owns: device memory, and the copies of weights and tables there.
// Calls: kernels.cu (llm42__k_place, llm42__k_lead), numbers (llm42.h).
// Invariant: device memory is taken by llm42__take_blocks alone, from lists. A block is zero when it is taken, so
// padding is zero. Blocks are freed with the backend, or by llm42__lent.
template <typename T> static void llm42__want(llm42__blocks *list, int kind, T **to, size_t count) {
    list->push_back({kind, (void **)to, std::max<size_t>(count * sizeof(T), 256)});
}

// Takes the blocks of one kind.
static llm42_result llm42__take_blocks(llm42__cuda *cu, const llm42__blocks &list, int kind, llm42_error *error) {
    cu->blocks.reserve(cu->blocks.size() + list.size());
    for (const llm42__block &block : list) {
        if (block.kind != kind) continue;
        LLM42__CU(cudaMalloc(block.to, block.bytes));
        if (kind < LLM42__LOADING) cu->blocks.push_back(*block.to), cu->device_bytes += block.bytes;
        LLM42__CU(cudaMemset(*block.to, 0, block.bytes));
        assert((uintptr_t)*block.to % 256 == 0);  // vector loads and tensor cores need alignment
    }
    // cudaMemset does not wait for its end, and the streams of passes do not wait for its stream.
    return LLM42__STATUS(cudaDeviceSynchronize());
}

// Blocks of the kinds LOADING and TRIALS. They are given back at the end of their scope, also if an exception ends it.
struct llm42__lent {
    llm42__blocks list;
    ~llm42__lent() {
        for (const llm42__block &block : list) cudaFree(*block.to);
    }
};

static llm42_result llm42__take_pinned(llm42__cuda *cu, void **to, size_t bytes, llm42_error *error) {
    cu->pinned.reserve(cu->pinned.size() + 1);
    LLM42__CU(cudaHostAlloc(to, bytes, cudaHostAllocMapped | cudaHostAllocPortable));
    cu->pinned.push_back(*to);
    memset(*to, 0, bytes);
    return LLM42_OK;
}

static llm42_result llm42__upload_vector(float *to, const float *from, size_t n, llm42_error *error) {
    if (from) LLM42__CU(cudaMemcpy(to, from, n * sizeof *to, cudaMemcpyHostToDevice));
    return LLM42_OK;
}

static const size_t llm42__loading_bytes = (size_t)64 << 20;  // of a buffer that weights pass through

// Where a slice of a matrix goes on the device: rows are `stride` apart.
struct llm42__place_at {
    llm42__bf16 *to;
    int stride, turn = LLM42__PLAIN;  // or GATE or UP
    llm42__gaps rows = {}, columns = {};
};

// Puts a slice of a matrix into its place on the device. Rows that come from the host pass through a buffer.
static llm42_result llm42__place(const llm42_matrix *m, llm42__slice slice, llm42__place_at at, char *buffer,
                                 llm42_error *error) {
    const size_t row = (size_t)m->k * (m->type == LLM42_DTYPE_FP32 ? 4 : 2), end = (size_t)(slice.row0 + slice.rows),
                 most = m->data ? std::max<size_t>(1, llm42__loading_bytes / row) : (size_t)m->n;
    for (size_t r = (size_t)slice.row0; r < end; r += most) {
        size_t count = std::min(most, end - r);
        if (m->data)
            LLM42__CU(cudaMemcpy(buffer, (const char *)m->data + r * row, count * row, cudaMemcpyHostToDevice));
        llm42__k_place<<<2048, 256>>>(at.to, at.stride, at.turn, at.rows, at.columns, m->data ? buffer : nullptr,
                                      m->type == LLM42_DTYPE_FP32, slice, r, count, m->k, m->recipe.key,
                                      m->recipe.scale);
        LLM42__CU(cudaGetLastError());
    }
    return LLM42_OK;
}

// Slices: all of a matrix; the rank's part of its rows; the rank's part of its columns.
static llm42__slice llm42__all_of(const llm42__cuda *, const llm42_matrix *m) { return {0, m->n, 0, m->k}; }
static llm42__slice llm42__rows_of(const llm42__cuda *cu, const llm42_matrix *m) {
    return {cu->rank * (m->n / cu->ranks), m->n / cu->ranks, 0, m->k};
}
static llm42__slice llm42__columns_of(const llm42__cuda *cu, const llm42_matrix *m) {
    return {0, m->n, cu->rank * (m->k / cu->ranks), m->k / cu->ranks};
}
// The rows of k or v. Where there are fewer KV heads than ranks, several ranks have the same head.
static llm42__slice llm42__kv_rows_of(const llm42__cuda *cu, const llm42_matrix *m) {
    const int heads = m->n / cu->config.head_dim, first = (int)((int64_t)cu->rank * heads / cu->ranks);
    return {first * cu->config.head_dim, cu->config.kv_heads * cu->config.head_dim, 0, m->k};
}
// The rows of the LM head, or of embeddings that serve as one. The last ranks may have fewer, or none.
static llm42__slice llm42__head_rows_of(const llm42__cuda *cu, const llm42_matrix *m) {
    const int first = std::min(m->n, cu->rank * cu->Vr);
    return {first, std::min(cu->Vr, m->n - first), 0, m->k};
}

// A head of its own, that is, not the embeddings'.
static bool llm42__own_head(const llm42_model *m) {
    return m->head.data != m->embed.data || m->head.recipe.key != m->embed.recipe.key;
}
// Where the weights of an operator in layer l stand, bf16 or e4m3.
static llm42__bf16 **llm42__weights_at(llm42__cuda *cu, int of, int l) {
    return &cu->layer[(size_t)l].w[llm42__product_in(cu, of, l)];
}
static size_t llm42__weights_bytes(const llm42__cuda *cu, int of, int l) {
    const int product = llm42__product_in(cu, of, l), input_scales = std::max(1, cu->config.experts);
    const size_t weights = llm42__all_outputs(cu, product) * (size_t)llm42__product_shape(cu, product).k;
    return llm42__in_e4m3(product) ? weights + 4 * (llm42__scale_count(cu, product) + (size_t)input_scales)
                                   : 2 * weights;
}
static void llm42__list_layer(llm42__cuda *cu, int l, llm42__blocks *list) {
    const llm42_config *c = &cu->config;
    const llm42_layer *from = &cu->model->layer[l];
    llm42__cuda_layer *to = &cu->layer[(size_t)l];
    const size_t Dp = (size_t)cu->Dp, Fp = (size_t)cu->Fp;
    auto want = [&](float **vector, const float *is_there, size_t count) {
        if (is_there) llm42__want(list, LLM42__WEIGHTS, vector, count);
    };
    want(&to->attention_norm, from->attention_norm, Dp), want(&to->ffn_norm, from->ffn_norm, Dp);
    want(&to->o_bias, from->o_bias, Dp), want(&to->down_bias, from->down_bias, Dp);
    want(&to->q_norm, from->q_norm, (size_t)c->head_dim), want(&to->k_norm, from->k_norm, (size_t)c->head_dim);
    want(&to->bias, from->q_bias, (size_t)((c->heads + 2 * c->kv_heads) * c->head_dim));
    want(&to->gate_bias, from->gate_bias, 2 * Fp);
    want(&to->taps, from->taps, (size_t)(cu->channels * LLM42__TAPS)),
        want(&to->decay, from->decay, (size_t)c->value_heads);
    want(&to->alpha_bias, from->alpha_bias, (size_t)c->value_heads);
    want(&to->head_norm, from->head_norm, (size_t)c->value_dim);
    for (int of : {llm42__first_product(cu, l), (int)LLM42__O, (int)LLM42__GATE_UP, (int)LLM42__DOWN})
        llm42__want(list, LLM42__WEIGHTS, (char **)llm42__weights_at(cu, of, l), llm42__weights_bytes(cu, of, l));
    if (from->recurrent && cu->raw) llm42__want(list, LLM42__WEIGHTS, &to->w[LLM42__RAW], (size_t)cu->raw * Dp);
    if (c->experts) llm42__want(list, LLM42__WEIGHTS, &to->w[LLM42__ROUTER], (size_t)cu->Ep * Dp);
}

// What a pass needs.
static void llm42__list_execution(llm42__cuda *cu, llm42__blocks *list) {
    const llm42_config *c = &cu->config;
    llm42__execution *ex = &cu->execution;
    const size_t R = (size_t)cu->max_rows, used = (size_t)c->experts_used, entries = R * std::max<size_t>(1, used),
                 Dp = (size_t)cu->Dp;
    auto want = [&](auto **to, size_t count) { llm42__want(list, LLM42__PASSES, to, count); };
    for (llm42__bf16 **to : {&ex->x, &ex->delta}) want(to, R * Dp);
    want(&ex->h, (R + (size_t)cu->max_draws) * Dp);  // the head's last part may look further
    want(&ex->qkv, R * (size_t)std::max(cu->qkv, cu->mixed));
    if (c->recurrent_layers) {
        const size_t positions = (size_t)(llm42__most_groups(cu, cu->max_rows) * LLM42__GROUP);
        want(&ex->convolved, positions * (size_t)cu->channels), want(&ex->raw, R * (size_t)cu->raw);
        want(&ex->factors, positions * 2 * (size_t)(c->key_heads + c->value_heads));
    }
    want(&ex->q, R * (size_t)(c->heads * cu->dp));
    want(&ex->attended, R * (size_t)cu->attended);
    want(&ex->gate_up, (c->scaling ? entries : R) * 2 * (size_t)cu->Fp);  // of experts in e4m3, too
    want(&ex->gated, entries * (size_t)cu->Fp);
    if (!cu->rank)
        want((char **)&ex->logits, (size_t)cu->max_draws * (size_t)cu->Vp * llm42__out_bytes(cu, LLM42__HEAD));
    if (cu->ranks > 1) {
        want((char **)&ex->own_logits, (size_t)cu->max_draws * (size_t)cu->Vr * llm42__out_bytes(cu, LLM42__HEAD));
        for (void *&part : ex->part) want((char **)&part, (R + (size_t)cu->ranks) * Dp * 4);
        want((char **)&ex->flag, LLM42__FLAG_BYTES);
        for (ulonglong2 *&box : ex->mail)
            if (cu->devices == cu->ranks) want((char **)&box, llm42__mail_bytes(cu));
    }
    want((char **)&ex->workspace, llm42__workspace_bytes);
    want(&ex->partial, (size_t)cu->max_records * (size_t)c->heads * (size_t)llm42__record(cu->dp));
    want(&ex->arrived, R * (size_t)c->kv_heads);
    if (used) {
        want((char **)&ex->router, R * (size_t)cu->Ep * llm42__out_bytes(cu, LLM42__ROUTER));
        want(&ex->expert_out, entries * Dp);
        want(&ex->route_weight, entries);
        want(&ex->route_offset, (size_t)c->experts + 1);
        want(&ex->route_group, (R + 31) / 32 * (size_t)c->experts);
        for (int32_t **to : {&ex->route_source, &ex->route_place}) want(to, entries);
    }
    if (c->scaling) {
        const size_t widest = (size_t)std::max(std::max(cu->Dp, cu->Fp), cu->attended);
        want(&ex->eight, entries * widest);
        want(&ex->eight_scale, entries * (widest / LLM42__BLOCK));
    }
    if (llm42__has_leaves(cu)) want(&ex->parts, (size_t)cu->leaves * (used ? entries : R) * Dp);
    want(&ex->meta, cu->meta_size);
}

// All that an open backend keeps.
static llm42__blocks llm42__kept_blocks(llm42__cuda *cu) {
    const llm42_config *c = &cu->config;
    llm42__blocks list;
    const size_t embedding = (size_t)cu->Vp * (size_t)cu->Dp,
                 cache = (size_t)(c->layers - c->recurrent_layers) * cu->kv_layer, L = (size_t)c->recurrent_layers,
                 slots = L * (size_t)llm42__most_runs(cu, INT32_MAX), snapshots = L * (size_t)cu->desc.snapshots,
                 state = (size_t)(c->value_heads * c->value_dim * c->key_dim);
    llm42__want(&list, LLM42__WEIGHTS, &cu->embed, embedding);
    if (llm42__own_head(cu->model)) llm42__want(&list, LLM42__WEIGHTS, &cu->head, (size_t)cu->Vr * (size_t)cu->Dp);
    llm42__want(&list, LLM42__WEIGHTS, &cu->final_norm, (size_t)cu->Dp);
    cu->layer.resize((size_t)c->layers);
    for (int l = 0; l < c->layers; l++) llm42__list_layer(cu, l, &list);
    for (float **to : {&cu->rope, &cu->q_rope})
        if (to == &cu->rope || c->query_beta > 0)
            llm42__want(&list, LLM42__WEIGHTS, to, (size_t)cu->desc.max_context * (size_t)c->head_dim);
    for (llm42__bf16 **to : {&cu->k, &cu->v}) llm42__want(&list, LLM42__CACHE, to, cache);
    if (L) {
        llm42__want(&list, LLM42__CACHE, &cu->states, slots * state);
        llm42__want(&list, LLM42__CACHE, &cu->saved_states, snapshots * state);
        llm42__want(&list, LLM42__CACHE, &cu->rings, slots * (size_t)(cu->capacity * cu->width));
        llm42__want(&list, LLM42__CACHE, &cu->saved_inputs, snapshots * (size_t)((LLM42__TAPS - 1) * cu->channels));
    }
    llm42__list_execution(cu, &list);
    return list;
}

static llm42__blocks llm42__loading_blocks(char **buffer) {
    llm42__blocks list;
    llm42__want(&list, LLM42__LOADING, buffer, llm42__loading_bytes);
    return list;
}

// Puts a slice of a matrix in e4m3, and its scales, into the weights of a product, from row `row` on. A block of rows
// that share scales begins at a multiple of 128 rows there, too.
static llm42_result llm42__place_e4m3(const llm42__cuda *cu, int product, const llm42_matrix *m, llm42__slice slice,
                                      void *w, int row, llm42_error *error) {
    const auto [n, k] = llm42__product_shape(cu, product);
    const int stride = llm42__scale_stride(k), across = (m->k + LLM42__BLOCK - 1) / LLM42__BLOCK,
              rows = (slice.row0 % LLM42__BLOCK + slice.rows + LLM42__BLOCK - 1) / LLM42__BLOCK,
              columns = (slice.columns + LLM42__BLOCK - 1) / LLM42__BLOCK;  // blocks
    float *scales = llm42__scales_of(cu, product, w);
    uint8_t *to = (uint8_t *)w + (size_t)row * (size_t)k;
    LLM42__CU(cudaMemcpy(scales + llm42__scale_count(cu, product) + row / n, &m->input_scale, 4,
                         cudaMemcpyHostToDevice));  // row / n: which expert
    const bool block = cu->config.scaling == LLM42_SCALING_BLOCK;
    assert(!block || (row % LLM42__BLOCK == slice.row0 % LLM42__BLOCK && slice.column0 % LLM42__BLOCK == 0));
    scales += block ? row / LLM42__BLOCK * stride : row;
    if (!m->data) {
        llm42__k_make_e4m3<<<dim3((unsigned)columns, (unsigned)rows), 256>>>(to, k, scales, stride, slice, m->n, m->k,
                                                                             m->recipe.key, m->recipe.scale);
        return LLM42__STATUS(cudaGetLastError());
    }
    const size_t at = (size_t)slice.row0 * (size_t)m->k + (size_t)slice.column0;
    LLM42__CU(cudaMemcpy2D(to, (size_t)k, (const uint8_t *)m->data + at, (size_t)m->k, (size_t)slice.columns,
                           (size_t)slice.rows, cudaMemcpyHostToDevice));
    if (!block)
        return LLM42__STATUS(cudaMemcpy(scales, m->scale + slice.row0, (size_t)slice.rows * 4, cudaMemcpyHostToDevice));
    const float *from = m->scale + slice.row0 / LLM42__BLOCK * across + slice.column0 / LLM42__BLOCK;
    return LLM42__STATUS(cudaMemcpy2D(scales, (size_t)stride * 4, from, (size_t)across * 4, (size_t)columns * 4,
                                      (size_t)rows, cudaMemcpyHostToDevice));
}

static llm42_result llm42__upload_matrices(llm42__cuda *cu, int l, char *buffer, llm42_error *error) {
    const llm42_config *c = &cu->config;
    const llm42_layer *from = &cu->model->layer[l];
    const llm42__gaps none = {};
    // Puts a matrix into the weights of an operator, from row `row` on. turn: gate or up.
    auto place = [&](int of, const llm42_matrix *m, auto slice_of, int row, int turn = LLM42__PLAIN) {
        const int product = llm42__product_in(cu, of, l), k = llm42__product_shape(cu, product).k;
        llm42__bf16 *w = *llm42__weights_at(cu, of, l);
        if (llm42__in_e4m3(product))
            return llm42__place_e4m3(cu, product, m, slice_of(cu, m), w, row + (turn == LLM42__UP ? cu->Fp : 0), error);
        const int ffn = of == LLM42__DOWN ? m->k / cu->ranks : m->n / cu->ranks;  // a shared expert has its own
        const llm42__gaps gaps = {cu->leaves > 1 ? ffn / cu->leaves : 0, llm42__leaf_width(cu)};
        return llm42__place(
            m, slice_of(cu, m),
            {w + (size_t)row * (size_t)k, k, turn, of == LLM42__GATE_UP ? gaps : none, of == LLM42__DOWN ? gaps : none},
            buffer, error);
    };
    auto some = [&](int row0, int rows) {  // rows of a matrix
        return [=](const llm42__cuda *, const llm42_matrix *m) { return llm42__slice{row0, rows, 0, m->k}; };
    };
    if (from->recurrent) {
        const int q = c->key_heads * c->key_dim, v = c->value_heads * c->value_dim, part[] = {q, q, v};
        for (int i = 0, at = 0, row = 0; i < 3; at += cu->ranks * part[i], row += part[i++])
            LLM42__TRY(place(LLM42__MIXED, &from->qkv, some(at + cu->rank * part[i], part[i]), row));
        const int of = cu->raw ? LLM42__RAW : LLM42__MIXED, first = cu->raw ? 0 : cu->channels;
        LLM42__TRY(place(of, &from->beta, llm42__rows_of, first));
        LLM42__TRY(place(of, &from->alpha, llm42__rows_of, first + c->value_heads));
        LLM42__TRY(place(LLM42__MIXED, &from->z, llm42__rows_of, cu->z_at));
    } else {
        const int d = c->head_dim, parts = c->gated ? 2 : 1;  // of a head of q: with its gates
        for (int i = 0; i < parts * c->heads; i++)
            LLM42__TRY(place(LLM42__QKV, &from->q, some((cu->rank * parts * c->heads + i) * d, d),
                             i / parts * d + i % parts * cu->gates_at));
        LLM42__TRY(place(LLM42__QKV, &from->k, llm42__kv_rows_of, cu->k_at));
        LLM42__TRY(place(LLM42__QKV, &from->v, llm42__kv_rows_of, cu->v_at));
    }
    LLM42__TRY(place(LLM42__O, &from->o, llm42__columns_of, 0));
    for (int e = 0; e < std::max(1, c->experts); e++) {
        const llm42_matrix *all = c->experts ? &from->expert[3 * e] : nullptr;
        LLM42__TRY(place(LLM42__GATE_UP, all ? all : &from->gate, llm42__rows_of, e * 2 * cu->Fp, LLM42__GATE));
        LLM42__TRY(place(LLM42__GATE_UP, all ? all + 1 : &from->up, llm42__rows_of, e * 2 * cu->Fp, LLM42__UP));
        LLM42__TRY(place(LLM42__DOWN, all ? all + 2 : &from->down, llm42__columns_of, e * cu->Dp));
    }
    if (c->shared_ffn) LLM42__TRY(place(LLM42__ROUTER, &from->shared_gate, llm42__all_of, c->experts - 1));
    return c->experts ? place(LLM42__ROUTER, &from->router, llm42__all_of, 0) : LLM42_OK;
}

static llm42_result llm42__upload_layer(llm42__cuda *cu, int l, char *buffer, llm42_error *error) {
    const llm42_config *c = &cu->config;
    const llm42_layer *from = &cu->model->layer[l];
    const llm42__cuda_layer *to = &cu->layer[(size_t)l];
    const size_t Fp = (size_t)cu->Fp, kv = (size_t)(c->kv_heads * c->head_dim), q = (size_t)(c->heads * c->head_dim);
    auto vector = [&](float *where, const float *all, size_t first, size_t count) {
        return all ? llm42__upload_vector(where, all + first, count, error) : LLM42_OK;
    };
    LLM42__TRY(vector(to->attention_norm, from->attention_norm, 0, (size_t)c->dim));
    LLM42__TRY(vector(to->ffn_norm, from->ffn_norm, 0, (size_t)c->dim));
    LLM42__TRY(vector(to->o_bias, from->o_bias, 0, (size_t)c->dim));
    LLM42__TRY(vector(to->down_bias, from->down_bias, 0, (size_t)c->dim));
    LLM42__TRY(vector(to->q_norm, from->q_norm, 0, (size_t)c->head_dim));
    LLM42__TRY(vector(to->k_norm, from->k_norm, 0, (size_t)c->head_dim));
    const size_t Hv = (size_t)c->value_heads, keys = (size_t)(c->key_heads * c->key_dim) * LLM42__TAPS,
                 values = (size_t)(c->value_heads * c->value_dim) * LLM42__TAPS;
    for (size_t i = 0; from->taps && i < 3; i++)  // of q, of k, of v
        LLM42__TRY(vector(to->taps + i * keys, from->taps + i * keys * (size_t)cu->ranks,
                          (size_t)cu->rank * (i < 2 ? keys : values), i < 2 ? keys : values));
    LLM42__TRY(vector(to->decay, from->decay, (size_t)cu->rank * Hv, Hv));
    LLM42__TRY(vector(to->alpha_bias, from->alpha_bias, (size_t)cu->rank * Hv, Hv));
    LLM42__TRY(vector(to->head_norm, from->head_norm, 0, (size_t)c->value_dim));
    const size_t kv0 = from->recurrent ? 0 : (size_t)llm42__kv_rows_of(cu, &from->k).row0;
    LLM42__TRY(vector(to->bias, from->q_bias, (size_t)cu->rank * q, q));
    LLM42__TRY(vector(to->bias + q, from->k_bias, kv0, kv));
    LLM42__TRY(vector(to->bias + q + kv, from->v_bias, kv0, kv));
    for (int leaf = 0; leaf < cu->leaves; leaf++) {
        const size_t F = (size_t)(c->ffn / cu->leaves), first = (size_t)(cu->rank * cu->leaves + leaf) * F;
        float *at = to->gate_bias + leaf * llm42__leaf_width(cu);
        LLM42__TRY(vector(at, from->gate_bias, first, F));
        LLM42__TRY(vector(at + Fp, from->up_bias, first, F));
    }
    return llm42__upload_matrices(cu, l, buffer, error);
}

static llm42_result llm42__upload_weights(llm42__cuda *cu, llm42_error *error) {
    const llm42_model *m = cu->model;
    char *buffer = nullptr;
    const llm42__lent memory = {llm42__loading_blocks(&buffer)};
    LLM42__TRY(llm42__take_blocks(cu, memory.list, LLM42__LOADING, error));
    LLM42__TRY(llm42__place(&m->embed, llm42__all_of(cu, &m->embed), {cu->embed, cu->Dp}, buffer, error));
    if (!llm42__own_head(m)) {
        cu->head = cu->embed + (size_t)cu->rank * (size_t)cu->Vr * (size_t)cu->Dp;
    } else {
        const llm42__slice own = llm42__head_rows_of(cu, &m->head);
        LLM42__TRY(llm42__place(&m->head, own, {cu->head, cu->Dp}, buffer, error));
        if (!m->head.data && m->head.recipe.lead != 0.0f)
            llm42__k_lead<<<(unsigned)m->config.vocab, 256>>>(cu->head, cu->embed, own.row0, own.rows, m->config.vocab,
                                                              cu->Dp, m->config.dim, m->head.recipe.lead);
        LLM42__CU(cudaGetLastError());
    }
    LLM42__TRY(llm42__upload_vector(cu->final_norm, m->final_norm, (size_t)m->config.dim, error));
    for (int l = 0; l < m->config.layers; l++) LLM42__TRY(llm42__upload_layer(cu, l, buffer, error));
    std::vector<float> rope((size_t)cu->desc.max_context * (size_t)llm42__rotary(&cu->config));
    for (float *to : {cu->rope, cu->q_rope}) {
        if (!to) continue;
        llm42__rope_table(&m->config, to == cu->q_rope, rope.data(), cu->desc.max_context);
        LLM42__TRY(llm42__upload_vector(to, rope.data(), rope.size(), error));
    }
    return LLM42__STATUS(cudaDeviceSynchronize());
}

static llm42_result llm42__open_execution(llm42__cuda *cu, llm42_error *error) {
    llm42__execution *ex = &cu->execution;
    for (int r = 0; r < cu->rank; r++) {  // ranks on one device share a stream
        const llm42__cuda *other = llm42__rank(cu->first, r);
        if (other->own_device == cu->own_device) ex->stream = other->execution.stream, ex->shared = true;
    }
    if (ex->shared) return LLM42_OK;
    LLM42__CU(cudaStreamCreateWithFlags(&ex->stream, cudaStreamNonBlocking));
    if (cu->rank) return LLM42_OK;
    LLM42__TRY(llm42__take_pinned(cu, (void **)&ex->meta_host, cu->meta_size, error));
    LLM42__TRY(llm42__take_pinned(cu, (void **)&ex->out_host, (size_t)cu->max_rows * sizeof *ex->out_host, error));
    return LLM42__STATUS(cudaHostGetDevicePointer((void **)&ex->out, ex->out_host, 0));
}

// >>cuda-trials --------------------------------------------------------------------------------------------------
// Owns: trying an algorithm: how fast it is, in which order it sums, whether its bits hold and its product is right.
// Calls: cuda-products, cuda-memory, kernels.cu (kernel-tools).
// Invariant: a test has failed only if it says so; an error says that it could not be made.
// The tests of an algorithm, for the product and the rows of a trial. tests/cuda has others, which put faults in.
struct llm42__trial;
typedef llm42_result llm42__test(llm42__trial *t, const llm42__algorithm *algorithm, bool *good, llm42_error *error);
struct llm42__tests {
    decltype(&llm42__run_product) run;
    llm42_result (*time)(llm42__trial *t, const llm42__algorithm *algorithm, int launches, float *us,
                         llm42_error *error);
    llm42__test *order;                         // it sums in the sequential order
    llm42__test *holds;                         // it gives the same bits in two runs, and with the rows in other places
    llm42__test *right;                         // the product is what it should be, up to rounding
    llm42_result (*alive)(llm42_error *error);  // the device still works. Called after a test has failed
};

// Memory for trying algorithms.
struct llm42__trial {
    llm42__cuda *cu;
    const llm42__tests *tests;
    int product, rows;  // what is tried
    // x [max_rows, k] and w [n, k] are made so that sums nearly cancel, for comparing bits; turned: x with its rows
    // moved. noise is an x for comparing products: sums [max_rows, n] are its product with w by llm42__k_reference.
    llm42__bf16 *x, *turned, *noise, *w;
    llm42__bf16 *wide;  // w in e4m3 as bf16
    void *y, *other;
    float *sums;
    unsigned *differ;
    cudaEvent_t begin, end;
    ~llm42__trial() {
        if (begin) cudaEventDestroy(begin);
        if (end) cudaEventDestroy(end);
    }
};

static llm42__blocks llm42__trial_blocks(llm42__trial *t) {
    const llm42__cuda *cu = t->cu;
    const size_t widest = (size_t)std::max(std::max(cu->Dp, cu->Fp), cu->attended), x = (size_t)cu->max_rows * widest;
    size_t y = 0, w = 0, sums = 0;
    for (int product = 0; product < LLM42__PRODUCTS; product++) {
        const auto [n, k] = llm42__product_shape(cu, product);
        const size_t outputs = (size_t)llm42__most_rows(cu, product) * (size_t)n;
        w = std::max(w, (size_t)n * (size_t)k);
        y = std::max(y, outputs * llm42__out_bytes(cu, product));
        sums = std::max(sums, outputs);
    }
    llm42__blocks list;
    for (llm42__bf16 **to : {&t->x, &t->turned, &t->noise}) llm42__want(&list, LLM42__TRIALS, to, x);
    llm42__want(&list, LLM42__TRIALS, &t->w, w);
    if (cu->config.scaling) llm42__want(&list, LLM42__TRIALS, &t->wide, w);
    for (void **to : {&t->y, &t->other}) llm42__want(&list, LLM42__TRIALS, (char **)to, y);
    llm42__want(&list, LLM42__TRIALS, &t->sums, sums);
    llm42__want(&list, LLM42__TRIALS, &t->differ, 1);
    return list;
}

static llm42_result llm42__open_trial(llm42__trial *t, const llm42__blocks &list, llm42_error *error) {
    LLM42__TRY(llm42__take_blocks(t->cu, list, LLM42__TRIALS, error));
    LLM42__CU(cudaEventCreate(&t->begin));
    return LLM42__STATUS(cudaEventCreate(&t->end));
}

// Makes the inputs of a product with weights in e4m3. noise: what products make of noise, as bf16.
static llm42_result llm42__fill_e4m3_inputs(llm42__trial *t, llm42_error *error) {
    llm42__cuda *cu = t->cu;
    llm42__execution *ex = &cu->execution;
    const auto [n, k] = llm42__product_shape(cu, t->product);
    const int rows = llm42__most_rows(cu, t->product), stride = llm42__scale_stride(k);
    const size_t count = llm42__scale_count(cu, t->product);
    const bool block = cu->config.scaling == LLM42_SCALING_BLOCK;
    float *scales = llm42__scales_of(cu, t->product, t->w);
    llm42__k_fill_spread<<<2048, 256, 0, ex->stream>>>(t->x, (size_t)rows, k, 42);
    llm42__k_fill_e4m3<<<2048, 256, 0, ex->stream>>>((uint8_t *)t->w, (size_t)n, k, scales, count, block ? stride : 1,
                                                     43);
    llm42__k_fill<<<2048, 256, 0, ex->stream>>>(t->noise, (size_t)rows * (size_t)k, 44, 1.0f);
    LLM42__CU(cudaGetLastError());
    if (cu->options.no_check) return LLM42_OK;
    LLM42__CU(llm42__quantise(cu, ex, t->noise, rows, k, scales + count));
    llm42__k_widen<<<2048, 256, 0, ex->stream>>>(ex->eight, t->noise, (size_t)rows, k, ex->eight_scale, 1, 1,
                                                 block ? rows : 0);
    llm42__k_widen<<<2048, 256, 0, ex->stream>>>((const uint8_t *)t->w, t->wide, (size_t)n, k, scales,
                                                 block ? LLM42__BLOCK : 1, block ? stride : 1, block);
    llm42__k_reference<<<4096, 256, 0, ex->stream>>>(t->noise, t->wide, t->sums, rows, n, k);
    return LLM42__STATUS(cudaGetLastError());
}

// Makes the inputs of a product. Behind the last leaf they are zero, as in passes.
static llm42_result llm42__fill_inputs(llm42__trial *t, int product, llm42_error *error) {
    const cudaStream_t stream = t->cu->execution.stream;
    const llm42__leaves leaves = llm42__leaves_of(t->cu, product);
    const size_t rows = (size_t)llm42__most_rows(t->cu, product);
    t->product = product;
    if (llm42__in_e4m3(product)) return llm42__fill_e4m3_inputs(t, error);
    const auto [n, k] = llm42__product_shape(t->cu, product);
    const int used = leaves.count > 1 ? leaves.count * leaves.terms : k;
    llm42__k_fill_cancelling<<<2048, 256, 0, stream>>>(t->x, rows, k, 42, true);
    llm42__k_fill_cancelling<<<2048, 256, 0, stream>>>(t->w, (size_t)n, k, 43, false);
    llm42__k_fill<<<2048, 256, 0, stream>>>(t->noise, rows * (size_t)k, 44, 1.0f);
    for (llm42__bf16 *x : {t->x, t->noise})
        if (used < k) LLM42__CU(cudaMemset2DAsync(x + used, (size_t)k * 2, 0, (size_t)(k - used) * 2, rows, stream));
    if (!t->cu->options.no_check)
        llm42__k_reference<<<4096, 256, 0, stream>>>(t->noise, t->w, t->sums, (int)rows, n, k);
    return LLM42__STATUS(cudaGetLastError());
}

// y = x w^T, of `rows` rows.
static llm42_result llm42__try(llm42__trial *t, const llm42__algorithm *algorithm, const llm42__bf16 *w,
                               const llm42__bf16 *x, void *y, int rows, llm42_error *error) {
    llm42__execution *ex = &t->cu->execution;
    return t->tests->run(t->cu, ex, t->product, algorithm, w, x, y, ex->gate_up, rows, error);
}

// Fetches what a kernel has counted in t->differ. *none: nothing.
static llm42_result llm42__none_counted(llm42__trial *t, bool *none, llm42_error *error) {
    const cudaStream_t stream = t->cu->execution.stream;
    unsigned count = 0;
    LLM42__CU(cudaGetLastError());
    LLM42__CU(cudaMemcpyAsync(&count, t->differ, sizeof count, cudaMemcpyDeviceToHost, stream));
    LLM42__CU(cudaStreamSynchronize(stream));
    LLM42__CU(cudaMemsetAsync(t->differ, 0, sizeof count, stream));
    *none = count == 0;
    return LLM42_OK;
}

// *same: t->y[r] has the bits of t->other[(r + shift) % rows], for all r < rows.
static llm42_result llm42__same_bits(llm42__trial *t, const llm42__algorithm *algorithm, int rows, int shift,
                                     bool *same, llm42_error *error) {
    const cudaStream_t stream = t->cu->execution.stream;
    const auto [n, k] = llm42__product_shape(t->cu, t->product);
    const bool fp32 = llm42__fp32_out(t->cu, t->product, algorithm->leaves);
    const bool gated = llm42__operator_of(t->product) == LLM42__GATE_UP;
    const size_t width = gated ? (size_t)n / 2 : fp32 ? (size_t)n * 2 : (size_t)n;
    llm42__k_differ<<<264, 512, 0, stream>>>((const uint16_t *)t->y, (const uint16_t *)t->other, rows, width, shift,
                                             t->differ);
    return llm42__none_counted(t, same, error);
}

// An algorithm sums in the sequential order if the first 64 rows have the bits of our last tile kernel.
static llm42_result llm42__find_order(llm42__trial *t, const llm42__algorithm *algorithm, bool *sequential,
                                      llm42_error *error) {
    const int rows = std::min(t->rows, 64);
    *sequential = algorithm->leaves == llm42__cut(t->cu, t->product);
    if ((algorithm->tile >= 0 && !llm42__leaf_kind_of(algorithm)) || !*sequential) return LLM42_OK;
    llm42__algorithm reference;
    reference.tile = (llm42__in_e4m3(t->product) ? (int)LLM42__ALL_KINDS : (int)LLM42__TILE_KINDS) - 1;
    reference.leaves = algorithm->leaves;
    LLM42__TRY(llm42__try(t, &reference, t->w, t->x, t->other, rows, error));
    LLM42__TRY(llm42__try(t, algorithm, t->w, t->x, t->y, t->rows, error));
    return llm42__same_bits(t, algorithm, rows, 0, sequential, error);
}

static llm42_result llm42__algorithm_holds(llm42__trial *t, const llm42__algorithm *algorithm, bool *holds,
                                           llm42_error *error) {
    const int shifts[] = {0, 1, t->rows / 2 + 1};
    const auto [n, k] = llm42__product_shape(t->cu, t->product);
    *holds = true;
    LLM42__TRY(llm42__try(t, algorithm, t->w, t->x, t->y, t->rows, error));
    for (int i = 0; *holds && i < (t->rows > 1 ? 3 : 1); i++) {
        if (shifts[i])
            llm42__k_rotate_rows<<<(unsigned)t->rows, 256, 0, t->cu->execution.stream>>>(t->x, t->turned, t->rows, k,
                                                                                         shifts[i]);
        LLM42__CU(cudaGetLastError());
        LLM42__TRY(llm42__try(t, algorithm, t->w, shifts[i] ? t->turned : t->x, t->other, t->rows, error));
        LLM42__TRY(llm42__same_bits(t, algorithm, t->rows, shifts[i] % t->rows, holds, error));
    }
    return LLM42_OK;
}

// *right: an algorithm's product of noise agrees with t->sums. Terms have a standard deviation of 1, so a sum of k
// terms has s = sqrt(k), and no output is beyond 6 s. Rounding to bf16 takes an output up to 6 s / 256 = 0.023 s off,
// rounding of up to 64 partial sums (together below 10 s) 0.039 s, and tensor cores 0.001 s: s / 16 at worst. A product
// without 16 of 14,336 terms is off by 0.033 s on average, and one of a few thousand outputs by over s / 8.
static llm42_result llm42__right(llm42__trial *t, const llm42__algorithm *algorithm, bool *right, llm42_error *error) {
    llm42__cuda *cu = t->cu;
    const llm42__execution *ex = &cu->execution;
    const bool gated = llm42__operator_of(t->product) == LLM42__GATE_UP, e4m3 = llm42__in_e4m3(t->product),
               fp32 = llm42__fp32_out(cu, t->product, algorithm->leaves);
    const llm42__product_size size = llm42__product_shape(cu, t->product);
    const int n = size.n;
    const size_t values = (size_t)t->rows * (size_t)n, bytes = values * (fp32 ? 4 : 2);
    const float slack = sqrtf((float)size.k) / 16;
    // An output that is not written is NaN.
    LLM42__CU(cudaMemsetAsync(t->y, 0xff, bytes, ex->stream));
    if (gated) LLM42__CU(cudaMemsetAsync(ex->gate_up, 0xff, bytes, ex->stream));
    if (algorithm->leaves && cu->leaves > 1 && (algorithm->tile < 0 || e4m3))
        LLM42__CU(cudaMemsetAsync(ex->parts, 0xff, (size_t)cu->leaves * values * 4, ex->stream));
    LLM42__TRY(llm42__try(t, algorithm, t->w, t->noise, t->y, t->rows, error));
    auto compare = [&](auto far, auto *y) {
        const int apart = !gated ? 0 : e4m3 ? n / 2 : 8;
        far<<<1056, 256, 0, ex->stream>>>(y, t->sums, t->rows, n, apart, slack, t->differ);
    };
    if (fp32) compare(llm42__k_far<float>, (const float *)t->y);
    else compare(llm42__k_far<llm42__bf16>, (const llm42__bf16 *)t->y);
    return llm42__none_counted(t, right, error);
}

// Times an algorithm. It runs with the weights of several layers, so that they come from memory and not from a cache.
// The stream starts when all launches are in it: else a slow host would make all short kernels equal.
static llm42_result llm42__time_algorithm(llm42__trial *t, const llm42__algorithm *algorithm, int launches, float *us,
                                          llm42_error *error) {
    const cudaStream_t stream = t->cu->execution.stream;
    std::mutex closed;
    std::vector<const llm42__bf16 *> w;
    for (int l = 0; l < t->cu->config.layers && w.size() < (t->product == LLM42__HEAD ? 1u : 4u); l++)
        if (const llm42__bf16 *of = llm42__weights_of(t->cu, t->product, l)) w.push_back(of);
    float ms;
    auto pass = [](void *gate) { std::lock_guard<std::mutex> passed(*(std::mutex *)gate); };
    llm42_result result = LLM42_OK;
    closed.lock();
    for (int i = 0; i < launches + 2 && !result; i++) {  // two do not count: the first loads what a shut stream cannot
        if (i == 1) result = LLM42__STATUS(cudaLaunchHostFunc(stream, pass, &closed));
        if (i == 2) result = LLM42__STATUS(cudaEventRecord(t->begin, stream));
        if (!result) result = llm42__try(t, algorithm, w[(size_t)i % w.size()], t->x, t->other, t->rows, error);
    }
    if (!result) result = LLM42__STATUS(cudaEventRecord(t->end, stream));
    closed.unlock();
    cudaStreamSynchronize(stream);  // whatever happened: `closed` goes
    LLM42__TRY(result);
    LLM42__CU(cudaEventElapsedTime(&ms, t->begin, t->end));
    *us = ms * 1000.0f / (float)launches;
    return LLM42_OK;
}

// Forgets what a launch that cannot run leaves behind, but neither a lack of memory nor what stays of a lost device.
static llm42_result llm42__device_alive(llm42_error *error) {
    const cudaError_t last = cudaGetLastError();
    if (last == cudaErrorMemoryAllocation) return llm42__cuda_status(error, "loading a kernel", last);
    return LLM42__STATUS(cudaDeviceSynchronize());
}

static const llm42__tests llm42__device_tests = {llm42__run_product,     llm42__time_algorithm, llm42__find_order,
                                                 llm42__algorithm_holds, llm42__right,          llm42__device_alive};
static const llm42__tests *llm42__algorithm_tests = &llm42__device_tests;  // another one without a GPU

// >>cuda-algorithms ----------------------------------------------------------------------------------------------
// Owns: choosing an algorithm for each product, schedule and bucket, among few, because an engine is to open soon.
// Calls: cuda-products, cuda-trials, cuBLASLt.
// Invariant: unless no_check is set, algorithms have computed products right, and all but FAST's have kept their bits.
//
// For one product and one number of rows:
// 1. Listed are a few that cuBLASLt offers, variants of its first choice, and our own kernels. Each is timed briefly.
// 2. The fastest few become contenders, if their products are right and their bits hold.
// 3. Contenders are timed in rounds, in turn, on a warm GPU. The median counts. A schedule takes its fastest one.
struct llm42__candidate {
    llm42__algorithm algorithm;
    int rank;                            // place in cuBLASLt's own list, from 0; -1: not in the list
    bool checked = false, good = false;  // good: it has passed the tests
};
typedef std::vector<llm42__candidate> llm42__candidate_list;

// True if FAST passes may take it.
static bool llm42__serves_fast(const llm42__cuda *cu, const llm42__candidate &c) {
    return !c.algorithm.leaves && (cu->options.fast != LLM42_CUDA_FAST_OFFERED || c.rank >= 0 || c.algorithm.tile >= 0);
}
// Microseconds that a product costs in a decode pass beyond its time alone: {by cuBLASLt, by a tile kernel}. A tile
// kernel starts while the one before it drains, which saves time, but not behind attention (o). Measured on an H200 by
// exchanging algorithms of 1 to 16 rows in whole passes: means, single measurements were up to 3 us off. Leaf kernels
// for down, behind the tile kernel that gate_up of few rows has, cost 5 us for 16 rows and 13 for 4: for 32, the mean.
static const float llm42__beyond[LLM42__E4M3][2] = {{0, 0}, {0, 2}, {2, 0}, {1, 0}};
static float llm42__cost(const llm42__trial *t, const llm42__algorithm &p) {
    enum { FEW = 32, LEAF_DOWN = 9 };
    if (llm42__leaf_kind_of(&p)) return p.us + (t->product == LLM42__DOWN && t->rows <= FEW ? LEAF_DOWN : 0);
    return p.us + llm42__beyond[llm42__operator_of(t->product)][p.tile >= 0];
}

// Adds an algorithm of cuBLASLt to a list that does not have it.
static void llm42__add_lt(llm42__candidate_list *list, const llm42__algorithm &p, int rank) {
    for (const llm42__candidate &c : *list)
        if (c.algorithm.tile < 0 && c.algorithm.leaves == p.leaves &&
            !memcmp(&c.algorithm.algo, &p.algo, sizeof p.algo))
            return;
    list->push_back({p, rank});
}

// Adds to a list what cuBLASLt offers first for the layouts of `algorithm`, in cuBLASLt's order.
static llm42_result llm42__ask_lt(llm42__cuda *cu, llm42__algorithm algorithm, uint32_t reduction, int leaf_terms,
                                  llm42__candidate_list *list, llm42_error *error) {
    enum { MOST = 4 };
    const size_t workspace = llm42__workspace_bytes;
    cublasLtMatmulPreference_t wish;
    cublasLtMatmulHeuristicResult_t found[MOST];
    int count = 0;
    LLM42__CU(cublasLtMatmulPreferenceCreate(&wish));
    cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction,
                                         sizeof reduction);
    if (algorithm.leaves && leaf_terms) {  // where a leaf begins
        const int bytes = 2 * leaf_terms;
        const uint32_t aligned = (uint32_t)std::min(256, bytes & -bytes);
        for (cublasLtMatmulPreferenceAttributes_t operand :
             {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES})
            cublasLtMatmulPreferenceSetAttribute(wish, operand, &aligned, sizeof aligned);
    }
    if (cublasLtMatmulAlgoGetHeuristic(cu->lt, llm42__lt_product(cu, &algorithm), algorithm.w, algorithm.x, algorithm.y,
                                       algorithm.y, wish, MOST, found, &count) != CUBLAS_STATUS_SUCCESS)
        count = 0;
    cublasLtMatmulPreferenceDestroy(wish);
    for (int i = 0; i < count; i++) {
        algorithm.algo = found[i].algo;
        if (found[i].state == CUBLAS_STATUS_SUCCESS)
            llm42__add_lt(list, algorithm, algorithm.leaves ? -1 : (int)list->size());
    }
    return LLM42_OK;
}

// Tile sizes that cuBLASLt's algorithms for Hopper may have.
struct llm42__lt_tile {
    int id, outputs, rows;
};
#if CUDART_VERSION >= 12080
#define LT(n, rows) \
    { CUBLASLT_MATMUL_TILE_##n##x##rows, n, rows }
static const llm42__lt_tile llm42__lt_tiles[] = {
    LT(64, 16),   LT(64, 32),  LT(64, 48),   LT(64, 64),   LT(64, 80),   LT(64, 96),   LT(64, 128),  LT(64, 192),
    LT(64, 256),  LT(96, 64),  LT(96, 128),  LT(96, 192),  LT(96, 256),  LT(128, 16),  LT(128, 32),  LT(128, 48),
    LT(128, 64),  LT(128, 96), LT(128, 128), LT(128, 192), LT(128, 256), LT(160, 64),  LT(160, 128), LT(192, 16),
    LT(192, 32),  LT(192, 48), LT(192, 64),  LT(192, 96),  LT(192, 128), LT(192, 192), LT(224, 64),  LT(224, 128),
    LT(224, 192), LT(256, 16), LT(256, 32),  LT(256, 48),  LT(256, 64),  LT(256, 96),  LT(256, 128)};
#undef LT
#else  // older headers lack most of these
static const llm42__lt_tile llm42__lt_tiles[] = {{CUBLASLT_MATMUL_TILE_128x128, 128, 128}};
#endif

// Adds what cuBLASLt has but does not offer: variants of its first choice without a reduction across blocks, with other
// tiles, clusters and options, which are not documented. Over 47 products on an H200 the best one offered was 4% slower
// than the best of all variants, at most 16%. Tiles are tried in order of the work that full waves of blocks do and of
// the memory that they read, until four are accepted; many rows fill the device with any tile, so there one is enough.
static void llm42__vary_lt(llm42__cuda *cu, int product, int rows, const llm42__algorithm base,
                           llm42__candidate_list *list) {
    const int products = base.leaves ? llm42__leaves_of(cu, product).count : 1;
    int left = rows > 2048 ? 1 : 4;
    const auto [n, k] = llm42__product_shape(cu, product);
    std::vector<std::pair<double, uint32_t>> order;
    for (const llm42__lt_tile &tile : llm42__lt_tiles) {
        // cuBLASLt takes wider tiles than blocks of scales, too, and then takes wrong scales.
        if (base.e4m3 && (tile.outputs > LLM42__BLOCK || tile.rows > LLM42__BLOCK)) continue;
        const int blocks = ((n + tile.outputs - 1) / tile.outputs) * ((rows + tile.rows - 1) / tile.rows) * products,
                  processors = cu->device.multiProcessorCount, waves = (blocks + processors - 1) / processors;
        order.push_back({(double)waves * (tile.outputs * tile.rows + 16 * (tile.outputs + tile.rows)), tile.id});
    }
    std::sort(order.begin(), order.end());
    for (size_t i = 0; i < order.size() && left; i++) {
        bool accepted = false;
        for (uint16_t cluster : {CUBLASLT_CLUSTER_SHAPE_1x1x1, CUBLASLT_CLUSTER_SHAPE_1x2x1})
            for (uint32_t option : {0, 1, 4, 7}) {
                llm42__algorithm p = base;
                auto set = [&](cublasLtMatmulAlgoConfigAttributes_t what, const auto &value) {
                    return !cublasLtMatmulAlgoConfigSetAttribute(&p.algo, what, &value, sizeof value);
                };
                if (!set(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, (int32_t)1) ||
                    !set(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, (uint32_t)CUBLASLT_REDUCTION_SCHEME_NONE) ||
                    !set(CUBLASLT_ALGO_CONFIG_TILE_ID, order[i].second) ||
                    !set(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, cluster) ||
                    !set(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, option) || !llm42__lt_accepts(cu, p))
                    continue;
                accepted = true;
                llm42__add_lt(list, p, -1);
            }
        left -= accepted;
    }
}

// Lists algorithms of cuBLASLt: first its own list, without reductions in place, which add in any order. Then what it
// offers without any reduction across blocks (of leaves only this), and then the variants.
static llm42_result llm42__lt_candidates(llm42__cuda *cu, int product, int rows, bool leaves,
                                         llm42__candidate_list *list, llm42_error *error) {
    const uint32_t ordered = CUBLASLT_REDUCTION_SCHEME_MASK & ~(uint32_t)CUBLASLT_REDUCTION_SCHEME_INPLACE;
    const size_t before = list->size();
    llm42__algorithm algorithm;
    algorithm.leaves = leaves;
    // Scales of leaves would have to be found where no mode of cuBLASLt looks for them.
    if (llm42__in_e4m3(product) && leaves && llm42__leaves_of(cu, product).count > 1) return LLM42_OK;
    if (llm42__in_e4m3(product))
        LLM42__TRY(llm42__set_lt_scales(cu, cu->execution.eight_scale, cu->execution.eight_scale, error));
    LLM42__TRY(llm42__lt_layouts(cu, product, rows, &algorithm, error));
    const int terms = llm42__leaves_of(cu, product).terms;
    if (!leaves) LLM42__TRY(llm42__ask_lt(cu, algorithm, ordered, terms, list, error));
    LLM42__TRY(llm42__ask_lt(cu, algorithm, CUBLASLT_REDUCTION_SCHEME_NONE, terms, list, error));
    const bool idle = cu->options.fast == LLM42_CUDA_FAST_OFFERED && llm42__fast_alone(cu);  // none may be chosen
    if (list->size() > before && !idle) llm42__vary_lt(cu, product, rows, (*list)[before].algorithm, list);
    return LLM42_OK;
}

// Lists algorithms for a product of `rows` rows, beginning with those that cuBLASLt offers. A product with leaves has
// algorithms of both kinds: with leaves for INVARIANT passes, and without for the others.
static llm42_result llm42__candidates(llm42__cuda *cu, int product, int rows, llm42__candidate_list *list,
                                      llm42_error *error) {
    const bool cut = llm42__cut(cu, product), both = cut && llm42__has_leaves(cu);
    list->clear();
    if (!cu->options.no_cublas) LLM42__TRY(llm42__lt_candidates(cu, product, rows, false, list, error));
    if (both && !cu->options.no_cublas) LLM42__TRY(llm42__lt_candidates(cu, product, rows, true, list, error));
    auto add = [&](int tile, bool only_leaves) {
        llm42__algorithm own;
        own.tile = tile, own.sequential = !cut && !only_leaves;
        if (!only_leaves) list->push_back({own, -1});
        own.leaves = true, own.sequential = !only_leaves;
        if (both) list->push_back({own, -1});
    };
    for (int i = 0; llm42__in_e4m3(product) && i < LLM42__E4M3_KINDS; i++) {
        const llm42__e4m3_kind *kind = &llm42__e4m3_kinds[i];
        const bool fills = llm42__product_shape(cu, product).n / kind->outputs >= cu->device.multiProcessorCount;
        if (rows >= kind->least && rows <= kind->most && (fills || rows > 16 || kind->outputs == 16))
            add(LLM42__FIRST_E4M3_KIND + i, false);
    }
    for (int i = 0; !llm42__in_e4m3(product) && i < LLM42__TILE_KINDS; i++) {
        const llm42__tile_kind *tile = &llm42__tile_kinds[i];
        const bool fits = tile->bytes <= (int)cu->device.sharedMemPerBlockOptin,
                   suits = tile->rows >= std::min(rows, 64) && tile->rows <= 4 * rows + 4 && rows <= 256;
        if (fits && (suits || i + 1 == LLM42__TILE_KINDS)) add(i, false);
    }
    for (int i = 0; both && !llm42__in_e4m3(product) && i < LLM42__LEAF_KINDS; i++) {
        llm42__algorithm own;
        own.tile = LLM42__TILE_KINDS + i, own.leaves = true;
        if (llm42__leaf_kind_serves(cu, product, &own, rows)) add(own.tile, true);
    }
    return LLM42_OK;
}

// "qkv product (6144 x 4096) with 16 rows"
static std::string llm42__shape_name(const llm42__trial *t) {
    const auto [n, k] = llm42__product_shape(t->cu, t->product);
    return std::string(llm42__product_names[t->product]) + " product (" + std::to_string(n) + " x " +
           std::to_string(k) + ") with " + std::to_string(t->rows) + " rows";
}

// Adds to an error which product and algorithm were tried. Returns `result`.
static llm42_result llm42__tried(const llm42__trial *t, const llm42__algorithm *algorithm, llm42_result result,
                                 llm42_error *error) {
    return llm42__add_place(result, error, "while trying the %s by %s", llm42__shape_name(t).c_str(),
                            llm42__algorithm_name(algorithm).c_str());
}

// *runs: the test went well. One that failed may only mean that the algorithm cannot run here. But a lost device is an
// error, and so is a lack of memory: an engine must not take another order of sums because memory is short.
static llm42_result llm42__runs(const llm42__trial *t, const llm42__algorithm *algorithm, llm42_result result,
                                bool *runs, llm42_error *error) {
    *runs = result == LLM42_OK;
    if (*runs) return LLM42_OK;
    const bool no_memory = result == LLM42_MEMORY;
    result = t->tests->alive(error);
    if (result == LLM42_OK && no_memory) result = llm42__cuda_status(error, "a kernel", cudaErrorMemoryAllocation);
    return llm42__tried(t, algorithm, result, error);
}

static void llm42__sort_by_cost(const llm42__trial *t, llm42__candidate_list *list) {
    std::stable_sort(list->begin(), list->end(), [&](const llm42__candidate &a, const llm42__candidate &b) {
        return llm42__cost(t, a.algorithm) < llm42__cost(t, b.algorithm);
    });
}

// Times all candidates briefly (many rows by one launch), leaves out those that cannot run here, and sorts by time.
static llm42_result llm42__screen(llm42__trial *t, llm42__candidate_list *list, llm42_error *error) {
    llm42__candidate_list kept;
    for (llm42__candidate &c : *list) {
        bool runs;
        const llm42_result result = t->tests->time(t, &c.algorithm, t->rows > 512 ? 1 : 2, &c.algorithm.us, nullptr);
        LLM42__TRY(llm42__runs(t, &c.algorithm, result, &runs, error));
        if (runs) kept.push_back(c);
    }
    list->swap(kept);
    llm42__sort_by_cost(t, list);
    return LLM42_OK;
}

// Times candidates for half a second, because a GPU that has rested has another clock rate than the one of passes.
// Small matrices do not heat it, so their engines open without this wait.
static llm42_result llm42__warm_up(llm42__trial *t, llm42__candidate_list *list, llm42_error *error) {
    const double end = llm42__wall_now(nullptr) + 0.5;
    const auto [n, k] = llm42__product_shape(t->cu, t->product);
    while ((int64_t)n * k >= 1 << 22 && llm42__wall_now(nullptr) < end) LLM42__TRY(llm42__screen(t, list, error));
    return LLM42_OK;
}

// Tests a candidate, once: its order of sums; whether its bits hold, which FAST passes alone do not need; its product.
static llm42_result llm42__check(llm42__trial *t, llm42__candidate *c, llm42_error *error) {
    const llm42__tests *tests = t->tests;
    const llm42__cuda *cu = t->cu;
    if (c->checked) return LLM42_OK;
    c->checked = c->good = true;
    auto tried = [&](llm42_result result) { return llm42__tried(t, &c->algorithm, result, error); };
    LLM42__TRY(tried(tests->order(t, &c->algorithm, &c->algorithm.sequential, error)));
    if (cu->options.no_check) return LLM42_OK;
    if (!llm42__fast_alone(cu)) LLM42__TRY(tried(tests->holds(t, &c->algorithm, &c->good, error)));
    if (!c->good) return LLM42_OK;
    LLM42__TRY(tried(tests->right(t, &c->algorithm, &c->good, error)));
    if (!c->good)
        LLM42__LOG(cu, "cuda refused: %s by %s: its product is wrong", llm42__shape_name(t).c_str(),
                   llm42__algorithm_name(&c->algorithm).c_str());
    return LLM42_OK;
}

// Checks the fastest candidates that fit, until `most` are good or the next one is much slower than the first.
template <typename FITS>
static llm42_result llm42__contend(llm42__trial *t, llm42__candidate_list *list, int most, FITS fits,
                                   llm42_error *error) {
    float limit = INFINITY;
    for (llm42__candidate &c : *list) {
        if (!most || llm42__cost(t, c.algorithm) > limit) break;
        if (!fits(c)) continue;
        LLM42__TRY(llm42__check(t, &c, error));
        if (!c.good || !fits(c)) continue;
        limit = std::min(limit, 1.1f * llm42__cost(t, c.algorithm));
        most--;
    }
    return LLM42_OK;
}

// One of our kernels that has the order of FIXED passes where INVARIANT passes have leaves.
static bool llm42__is_whole(const llm42__candidate &c) { return c.algorithm.tile >= 0 && !c.algorithm.leaves; }

// Leaves only contenders in a list, sorted by time. They are timed in turn, so that changes of clock rate meet all.
static llm42_result llm42__find_contenders(llm42__trial *t, llm42__candidate_list *list, llm42_error *error) {
    enum { MOST = 3, ROUNDS = 5 };
    const llm42__cuda *cu = t->cu;
    const bool has_fixed = !llm42__fast_alone(cu) && !llm42__invariant_verifier(cu);
    auto contend = [&](int most, auto fits) { return llm42__contend(t, list, most, fits, error); };
    LLM42__TRY(llm42__screen(t, list, error));
    LLM42__TRY(contend(MOST, [&](const llm42__candidate &c) { return llm42__serves_fast(cu, c); }));
    if (!llm42__fast_alone(cu))
        LLM42__TRY(contend(MOST, [&](const llm42__candidate &c) {  // those that sum in the INVARIANT order, or may
            return c.checked ? c.algorithm.sequential : c.algorithm.leaves == llm42__cut(cu, t->product);
        }));
    if (has_fixed && llm42__cut(cu, t->product)) LLM42__TRY(contend(1, llm42__is_whole));
    for (llm42__candidate &c : *list)
        if (has_fixed && c.rank >= 0) LLM42__TRY(llm42__check(t, &c, error));
    list->erase(std::remove_if(list->begin(), list->end(), [](const llm42__candidate &c) { return !c.good; }),
                list->end());
    std::vector<std::array<float, ROUNDS>> us(list->size());
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < us.size(); i++) {
            const llm42__algorithm *p = &(*list)[i].algorithm;
            LLM42__TRY(llm42__tried(t, p, t->tests->time(t, p, t->rows > 512 ? 1 : 4, &us[i][round], error), error));
        }
    for (size_t i = 0; i < us.size(); i++) {
        std::sort(us[i].begin(), us[i].end());
        (*list)[i].algorithm.us = us[i][ROUNDS / 2];
    }
    llm42__sort_by_cost(t, list);
    return LLM42_OK;
}

// Chooses among contenders the algorithms of each schedule.
static llm42_result llm42__choose_from(llm42__trial *t, const llm42__candidate_list &list, llm42_error *error) {
    llm42__cuda *cu = t->cu;
    const size_t bucket = (size_t)llm42__bucket(cu, t->rows);
    auto chosen = [&](llm42_schedule schedule) { return &cu->algorithms[t->product][schedule][bucket]; };
    llm42__algorithm *fast = chosen(LLM42_SCHEDULE_FAST), *fixed = chosen(LLM42_SCHEDULE_FIXED),
                     *invariant = chosen(LLM42_SCHEDULE_INVARIANT);
    auto first = [&](auto fits, llm42__algorithm *to) {
        const auto c = std::find_if(list.begin(), list.end(), fits);
        if (c != list.end()) *to = c->algorithm;
        return c != list.end();
    };
    auto none = [&]() {
        LLM42__FAIL(
            NOT_INVARIANT,
            "cuda backend: no algorithm for the %s is right and keeps its bits on this device: use the CPU backend",
            llm42__shape_name(t).c_str());
    };
    if (!first([&](const llm42__candidate &c) { return llm42__serves_fast(cu, c); }, fast)) return none();
    *fixed = *invariant = *fast;
    if (llm42__fast_alone(cu)) return LLM42_OK;
    if (!first([&](const llm42__candidate &c) { return c.algorithm.sequential; }, invariant)) return none();
    // Parts in fp32 take twice as long to reach the other ranks.
    const bool costs_little = llm42__cost(t, *invariant) <= 1.02f * llm42__cost(t, *fast) &&
                              !(cu->ranks > 1 && llm42__cut(cu, t->product));
    if (llm42__prefers_canonical(cu) && (t->rows <= LLM42__FEW_ROWS || costs_little)) *fast = *invariant;
    *fixed = *invariant;
    if (llm42__invariant_verifier(cu)) return LLM42_OK;  // no pass is FIXED
    // FIXED takes what cuBLASLt offers first. If it offers none that is good, FIXED takes the sequential order: the
    // choice must not depend on times, which change from run to run. If the one offered has that order, another has the
    // same bits in less time. Where INVARIANT has leaves, a tile kernel without them has that order.
    const llm42__candidate *offered = nullptr;
    for (const llm42__candidate &c : list)
        if (c.rank >= 0 && (!offered || c.rank < offered->rank)) offered = &c;
    if (offered && !offered->algorithm.sequential) *fixed = offered->algorithm;
    else if (llm42__cut(cu, t->product) && !first(llm42__is_whole, fixed)) return none();
    return LLM42_OK;
}

static bool llm42__product_used(const llm42__cuda *cu, int product) {
    const int of = llm42__operator_of(product);
    bool in_some_layer = of > LLM42__MIXED || (!cu->config.scaling && !llm42__in_e4m3(product));
    for (int l = 0; !in_some_layer && cu->config.scaling && l < cu->config.layers; l++)
        in_some_layer = ((of != LLM42__QKV && of != LLM42__MIXED) || of == llm42__first_product(cu, l)) &&
                        llm42__product_in(cu, of, l) == product;
    if (!in_some_layer) return false;
    if (of == LLM42__MIXED || of == LLM42__RAW) return llm42__product_shape(cu, of).n > 0;
    if (of == LLM42__ROUTER) return cu->config.experts > 0;
    return !cu->config.experts || (of != LLM42__GATE_UP && of != LLM42__DOWN);
}

// True if the engine has an algorithm for a product of so many rows, which are those of a bucket.
static bool llm42__algorithm_wanted(const llm42__cuda *cu, int product, int rows) {
    return llm42__product_used(cu, product) && (product != LLM42__HEAD || rows <= cu->max_draws);
}

// *known: the algorithms for the rows of the product are known, from a file. Then they are tested.
static llm42_result llm42__prove(llm42__trial *t, bool *known, llm42_error *error) {
    const llm42__cuda *cu = t->cu;
    *known = true;
    for (llm42_schedule schedule : llm42__schedules) {
        const llm42__algorithm *p = llm42__algorithm_of(cu, t->product, schedule, t->rows);
        *known &= p->tile >= 0 || p->w;
    }
    for (llm42_schedule schedule : llm42__schedules) {
        if (!*known || cu->options.no_check) break;
        llm42__candidate c = {*llm42__algorithm_of(cu, t->product, schedule, t->rows), -1};
        const bool sequential = c.algorithm.sequential;
        LLM42__TRY(llm42__check(t, &c, error));
        if (!c.good || (sequential && !c.algorithm.sequential))
            LLM42__FAIL(
                NOT_INVARIANT,
                "algorithm file %s: the algorithm of the %s is wrong here or does not keep its bits: remove the file",
                cu->options.algorithm_file, llm42__shape_name(t).c_str());
    }
    return LLM42_OK;
}

// Chooses algorithms, or tests known ones. *anew: for how many numbers of rows of products they were chosen.
static llm42_result llm42__choose_algorithms(llm42__cuda *cu, const llm42__tests *tests, int *anew,
                                             llm42_error *error) {
    llm42__trial t = {};
    t.cu = cu, t.tests = tests, *anew = 0;
    const llm42__lent memory = {llm42__trial_blocks(&t)};
    LLM42__TRY(llm42__open_trial(&t, memory.list, error));
    for (int product = 0; product < LLM42__PRODUCTS; product++) {
        llm42__candidate_list list;
        bool known;
        if (llm42__product_used(cu, product)) LLM42__TRY(llm42__fill_inputs(&t, product, error));
        for (int rows : cu->buckets) {
            if (!llm42__algorithm_wanted(cu, product, rows)) continue;
            t.rows = rows;
            LLM42__TRY(llm42__prove(&t, &known, error));
            if (known) continue;
            LLM42__TRY(llm42__candidates(cu, product, rows, &list, error));
            if (!(*anew)++) LLM42__TRY(llm42__warm_up(&t, &list, error));
            LLM42__TRY(llm42__find_contenders(&t, &list, error));
            LLM42__TRY(llm42__choose_from(&t, list, error));
        }
    }
    return LLM42_OK;
}

// >>cuda-algorithm-file ------------------------------------------------------------------------------------------
// Owns: algorithm files, which keep chosen algorithms from run to run. A line is one algorithm of one kind of engine.
// Lines are only ever added, and the last of equal ones counts. A comment line says which kind it is.
// Calls: cuda-algorithms.
// Invariant: an algorithm comes from a line with the engine's key (all that its choice depends on) and is tested anew.
static const char llm42__algorithm_title[] = "# llm42 algorithms ";
static const char llm42__algorithm_columns[] = "18: key product schedule rows kind leaves sequential us algorithm\n";

// The version of cuBLASLt; 0 if it is not used.
static size_t llm42__lt_version(const llm42__cuda *cu) { return cu->options.no_cublas ? 0 : cublasLtGetVersion(); }

// What the choice of algorithms depends on.
static std::string llm42__engine_kind(const llm42__cuda *cu) {
    char text[512];
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    snprintf(text, sizeof text,
             "%s, sm_%d%d; driver %d; runtime %d; cublasLt %zu; kernels %d; fast %s; schedules %u; logits %s; router "
             "logits %s; ranks %d; leaves %d; scaling %d",
             cu->device.name, cu->device.major, cu->device.minor, driver, runtime, llm42__lt_version(cu),
             (int)LLM42__KERNELS, cu->options.fast == LLM42_CUDA_FAST_OFFERED ? "offered" : "fastest",
             cu->desc.schedules, cu->desc.numerics.logits_fp32 ? "fp32" : "bf16",
             cu->desc.numerics.router_fp32 ? "fp32" : "bf16", cu->ranks, cu->leaves * cu->ranks,
             (int)cu->config.scaling);
    std::string kind = text;
    for (int product = 0; product < LLM42__E4M3; product++) {
        const auto [n, k] = llm42__product_shape(cu, product);
        if (n)
            kind += std::string("; ") + llm42__product_names[product] + " " + std::to_string(n) + " x " +
                    std::to_string(k);
    }
    return kind;
}

// Lets f(line, product, schedule, rows) see the beginning of the line of each algorithm that the engine wants.
template <typename F> static void llm42__each_line(const llm42__cuda *cu, F f) {
    uint64_t key = 0;
    char begin[128];
    for (char c : llm42__algorithm_columns + llm42__engine_kind(cu)) key = llm42__hash(key ^ (unsigned char)c);
    for (int product = 0; product < LLM42__PRODUCTS; product++)
        for (llm42_schedule schedule : llm42__schedules)
            for (int rows : cu->buckets) {
                if (!llm42__algorithm_wanted(cu, product, rows)) continue;
                snprintf(begin, sizeof begin, "%016" PRIx64 "\t%s\t%s\t%d\t", key, llm42__product_names[product],
                         llm42_schedule_name(schedule), rows);
                f(std::string(begin), product, schedule, rows);
            }
}

// An algorithm as the rest of a line.
static std::string llm42__algorithm_text(const llm42__algorithm *p) {
    char text[256];
    int at = snprintf(text, sizeof text, "%s\t%d\t%d\t%.2f\t", llm42__kind_name(p), p->leaves, p->sequential,
                      (double)p->us);
    for (int i = 0; i < 8; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%016" PRIx64 "%c",
                       p->tile >= 0 ? (uint64_t)0 : p->algo.data[i], i < 7 ? ':' : '\n');
    return text;
}

// False: the text is not whole, or the algorithm cannot be used here.
static bool llm42__parse_algorithm(llm42__cuda *cu, const char *text, int product, llm42_schedule schedule, int rows,
                                   llm42__algorithm *p) {
    char kind[64];
    int leaves, sequential, at = 0;
    if (sscanf(text, "%63[^\t]\t%d\t%d\t%f\t%n", kind, &leaves, &sequential, &p->us, &at) != 4 || !at) return false;
    p->leaves = leaves != 0, p->sequential = sequential != 0;
    p->tile = LLM42__ALL_KINDS - 1;
    while (p->tile >= 0 && strcmp(kind, llm42__kind_name(p)) != 0) p->tile--;
    for (int i = 0; i < 8; i++, at += 17) {
        char *end;
        p->algo.data[i] = strtoull(text + at, &end, 16);
        if (end != text + at + 16 || *end != (i < 7 ? ':' : '\n')) return false;
    }
    if (schedule == LLM42_SCHEDULE_INVARIANT && !p->sequential && !llm42__fast_alone(cu)) return false;
    if (p->leaves && (!llm42__cut(cu, product) || !llm42__has_leaves(cu))) return false;
    if (p->tile >= 0 && llm42__in_e4m3(product) != (llm42__e4m3_kind_of(p) != nullptr)) return false;
    if (p->tile >= 0) return !llm42__leaf_kind_of(p) || llm42__leaf_kind_serves(cu, product, p, rows);
    return !strcmp(kind, llm42__kind_name(p)) && !cu->options.no_cublas &&
           llm42__lt_layouts(cu, product, rows, p, nullptr) == LLM42_OK && llm42__lt_accepts(cu, *p);
}

// Takes what the file has for this engine. An algorithm that it lacks is left as it is.
static void llm42__read_algorithms(llm42__cuda *cu) {
    std::map<std::string, std::string> lines;
    char line[512];
    FILE *file = fopen(cu->options.algorithm_file, "r");
    while (file && fgets(line, sizeof line, file)) {
        const char *rest = line;
        for (int i = 0; i < 4 && rest; i++) rest = strchr(rest, '\t'), rest += rest != nullptr;
        if (rest) lines[std::string(line, (size_t)(rest - line))] = rest;
    }
    if (file) fclose(file);
    llm42__each_line(cu, [&](const std::string &begin, int product, llm42_schedule schedule, int rows) {
        llm42__algorithm p;
        if (llm42__parse_algorithm(cu, lines[begin].c_str(), product, schedule, rows, &p))
            cu->algorithms[product][schedule][(size_t)llm42__bucket(cu, rows)] = p;
    });
}

// Adds the engine's algorithms to its file, at once, so that engines may write at the same time. What a writer left
// unfinished is a line of its own, which nobody can read.
static void llm42__write_algorithms(const llm42__cuda *cu) {
    const char *path = cu->options.algorithm_file;
    char head[sizeof llm42__algorithm_title] = "";
    const int file = open(path, O_RDWR | O_CREAT | O_APPEND, 0666);
    const ssize_t there = file < 0 ? -1 : pread(file, head, sizeof head - 1, 0);
    std::string text = there ? "\n" : std::string(llm42__algorithm_title) + llm42__algorithm_columns;
    text += "# " + llm42__engine_kind(cu) + ":\n";
    llm42__each_line(cu, [&](const std::string &begin, int product, llm42_schedule schedule, int rows) {
        text += begin + llm42__algorithm_text(llm42__algorithm_of(cu, product, schedule, rows));
    });
    if (there > 0 && strcmp(head, llm42__algorithm_title) != 0)
        LLM42__LOG(cu, "algorithm file %s: is there and is not an algorithm file: it is left as it is", path);
    else if (there < 0 || write(file, text.data(), text.size()) != (ssize_t)text.size())
        LLM42__LOG(cu, "algorithm file %s: cannot be written: %s; every open chooses anew", path, strerror(errno));
    if (file >= 0) close(file);
}

static void llm42__clear_algorithms(llm42__cuda *cu) {
    for (auto &product : cu->algorithms)
        for (auto &schedule : product) schedule.assign(cu->buckets.size(), llm42__algorithm());
}

static llm42_result llm42__open_algorithms(llm42__cuda *cu, llm42_error *error) {
    int anew;
    llm42__clear_algorithms(cu);
    if (cu->options.algorithm_file) llm42__read_algorithms(cu);
    LLM42__TRY(llm42__choose_algorithms(cu, llm42__algorithm_tests, &anew, error));
    if (cu->options.algorithm_file && anew) llm42__write_algorithms(cu);
    return LLM42_OK;
}

// >>cuda-open ----------------------------------------------------------------------------------------------------
// Owns: opening and closing the backend: checks, sizes, memory, and the check of whole passes.
// Calls: all sections above.
// Invariant: an open backend has all memory that it needs; unless no_check is set, all but FAST passes have kept bits.
static void llm42__cuda_close(void *state) {
    llm42__cuda *cu = (llm42__cuda *)state;
    if (!cu) return;
    const llm42__turn turn = llm42__turn::to_change(cu);
    if (cu->ended) llm42__end_pass(cu);
    for (size_t r = cu->others.size(); r > 0; r--) llm42__cuda_close(cu->others[r - 1]);
    cudaSetDevice(cu->options.device);
    for (llm42__graph &g : cu->graphs)
        for (cudaGraphExec_t exec : g.exec)
            if (exec) cudaGraphExecDestroy(exec);
    if (cu->execution.stream) cudaStreamSynchronize(cu->execution.stream);
    if (cu->execution.stream && !cu->execution.shared) cudaStreamDestroy(cu->execution.stream);
    for (void *block : cu->blocks) cudaFree(block);
    for (void *block : cu->pinned) cudaFreeHost(block);
    for (cublasLtMatrixLayout_t layout : cu->layouts) cublasLtMatrixLayoutDestroy(layout);
    for (cublasLtMatmulDesc_t product : {cu->product, cu->product_e4m3})
        if (product) cublasLtMatmulDescDestroy(product);
    if (cu->lt) cublasLtDestroy(cu->lt);
    cudaGetLastError();
    delete cu;
}

static llm42_result llm42__find_device(int ordinal, cudaDeviceProp *device, llm42_error *error) {
    int count = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess || count < 1) {
        cudaGetLastError();
        int driver = 0;
        if (cudaDriverGetVersion(&driver) != cudaSuccess || !driver) status = cudaErrorNoDevice;  // no driver at all
        cudaGetLastError();
        LLM42__FAIL(UNSUPPORTED,
                    "cuda backend: no CUDA device: %s; use the CPU backend, or a machine with an NVIDIA GPU",
                    status != cudaSuccess ? cudaGetErrorString(status) : "none found");
    }
    if (ordinal < 0 || ordinal >= count)
        LLM42__FAIL(INVALID, "llm42_cuda_desc.device: %d: this machine has devices 0 to %d (.devices: ranks may share)",
                    ordinal, count - 1);
    LLM42__CU(cudaSetDevice(ordinal));
    LLM42__CU(cudaGetDeviceProperties(device, ordinal));
    if (device->major < 8)
        LLM42__FAIL(UNSUPPORTED, "cuda backend: %s is sm_%d%d: bf16 tensor cores need sm_80 or later", device->name,
                    device->major, device->minor);
    return LLM42_OK;
}

static llm42_result llm42__validate_recurrent(const llm42_backend_desc *d, int leaves, llm42_error *error) {
    const llm42_config *c = &d->model->config;
    const int attended = c->heads * c->head_dim, values = c->value_heads * c->value_dim;
    for (int n : {c->key_dim, c->value_dim})
        if (n < 16 || n != llm42__padded_head_dim(n))
            LLM42__FAIL(UNSUPPORTED,
                        "model %s: its recurrent layers have keys of %d and values of %d: the CUDA backend takes 16, "
                        "32, 64, 128 or 256",
                        d->model->name, c->key_dim, c->value_dim);
    if (c->scaling == LLM42_SCALING_BLOCK && c->head_dim % LLM42__BLOCK)
        LLM42__FAIL(UNSUPPORTED,
                    "model %s: head_dim: %d: with gated attention in FP8 the CUDA backend takes heads of 128 or 256",
                    d->model->name, c->head_dim);
    if (leaves <= 1 || attended == values) return LLM42_OK;
    LLM42__FAIL(UNSUPPORTED,
                "llm42_engine_desc.%s: %d: the CUDA backend cuts recurrent layers only where they are as wide as "
                "attention: %d and %d values",
                d->numerics.leaves == leaves ? "numerics.leaves" : "tensor_parallel", leaves, values, attended);
}

static llm42_result llm42__cuda_validate(const llm42_backend_desc *d, llm42_error *error) {
    const llm42_config *c = &d->model->config;
    if (!d->model->layer)
        LLM42__FAIL(INVALID, "model %s has no weights: it is for the simulator; load a folder or synthetic:NAME",
                    d->model->name);
    if (d->numerics.compute != LLM42_DTYPE_BF16)
        LLM42__FAIL(UNSUPPORTED, "llm42_backend_desc.numerics.compute: the CUDA backend computes in bf16 with fp32 "
                                 "sums; fp32 is the CPU backend's");
    if (d->numerics.arithmetic == LLM42_ARITHMETIC_FP32)
        LLM42__FAIL(UNSUPPORTED,
                    "llm42_engine_desc.numerics.arithmetic: FP32 is the CPU backend's: a GPU sums by its tensor cores");
    for (int l = 0; c->scaling == LLM42_SCALING_CHANNEL && d->tensor_parallel > 1 && l < c->layers; l++)
        for (const llm42_matrix *m :
             {&d->model->layer[l].o, c->experts ? d->model->layer[l].expert + 2 : &d->model->layer[l].down})
            if (m->type == LLM42_DTYPE_E4M3 && !m->input_scale)
                LLM42__FAIL(UNSUPPORTED,
                            "model %s: tensor_parallel: %d: its FP8 weights have a scale for each output, so that a "
                            "scale of their input would depend on all ranks: use one rank, or blocks of 128 x 128",
                            d->model->name, d->tensor_parallel);
    const llm42__field fields[] = {
        {"max_rows", d->max_rows, 1, 1 << 20, false},
        {"numerics.arithmetic", d->numerics.arithmetic, LLM42_ARITHMETIC_DEFAULT, LLM42_ARITHMETIC_SM100, false},
        {"max_context", d->max_context, 1, c->context, false},
        {"pages", d->pages, 1, 1 << 28, false},
        {"page_size", d->page_size, 1, 4096, true},
        {"fixed_rows", d->fixed_rows, 0, 1 << 20, false}};
    LLM42__TRY(llm42__check_fields("llm42_backend_desc", fields, sizeof fields / sizeof *fields, error));
    LLM42__TRY(llm42_ranks_check("llm42_backend_desc", c, d->tensor_parallel, d->numerics.leaves, error));
    const int attended = c->heads * c->head_dim, leaves = std::max(d->numerics.leaves, d->tensor_parallel);
    if (leaves > 1 && attended / leaves % 16)
        LLM42__FAIL(UNSUPPORTED,
                    "llm42_engine_desc.%s: %d: %d heads of %d: the CUDA backend needs leaves of a multiple of 16 terms",
                    d->numerics.leaves == leaves ? "numerics.leaves" : "tensor_parallel", leaves, c->heads,
                    c->head_dim);
    const int64_t tokens = (int64_t)d->pages * d->page_size;
    if (tokens > INT32_MAX || tokens * c->kv_heads > INT64_C(0xffffffff) / 32)  // places in a cache have 32 bits
        LLM42__FAIL(MEMORY, "llm42_backend_desc.pages: %d pages of %d tokens: no device has memory for so many",
                    d->pages, d->page_size);
    const llm42_cuda_desc *own = (const llm42_cuda_desc *)d->backend_desc;
    if (own && (own->fast < LLM42_CUDA_FAST_DEFAULT || own->fast > LLM42_CUDA_FAST_OFFERED))
        LLM42__FAIL(INVALID, "llm42_cuda_desc.fast: %d: must be FASTEST or OFFERED", (int)own->fast);
    if (own && own->devices && (own->devices < 0 || std::max(1, d->tensor_parallel) % own->devices))
        LLM42__FAIL(INVALID, "llm42_cuda_desc.devices: %d: must divide the %d ranks of .tensor_parallel", own->devices,
                    std::max(1, d->tensor_parallel));
    if (c->recurrent_layers) LLM42__TRY(llm42__validate_recurrent(d, leaves, error));
    if (c->head_dim > 256 || c->head_dim % 2 || c->heads % c->kv_heads || c->heads / c->kv_heads > 16 ||
        c->dim > LLM42__MOST_WIDTH || c->experts + (c->shared_ffn > 0) > 1024)
        LLM42__FAIL(UNSUPPORTED,
                    "model %s: head_dim %d, %d heads, %d kv_heads, width %d, %d experts: the CUDA backend takes an "
                    "even head_dim up to 256, up to 16 heads a kv head, width 16384 and 1024 experts",
                    d->model->name, c->head_dim, c->heads, c->kv_heads, c->dim, c->experts);
    return LLM42_OK;
}

static void llm42__recurrent_sizes(llm42__cuda *cu) {
    const llm42_config *c = &cu->config;
    const int values = c->value_heads * c->value_dim, block = c->scaling ? LLM42__BLOCK : 64;
    cu->channels = 2 * c->key_heads * c->key_dim + values, cu->raw = c->scaling ? llm42__padded(2 * c->value_heads) : 0;
    cu->width = (cu->channels + 2 * c->value_heads + 7) / 8 * 8;
    cu->z_at = c->scaling ? (cu->channels + block - 1) / block * block : cu->width;
    cu->mixed = (cu->z_at + values + block - 1) / block * block;
    cu->capacity = cu->desc.behind + LLM42__TAPS + LLM42__GROUP;
}

static void llm42__cuda_sizes(llm42__cuda *cu) {
    const llm42_config *c = &cu->config;
    const llm42_backend_desc *d = &cu->desc;
    cu->config = cu->model->config;
    cu->ranks = std::max(1, d->tensor_parallel);
    cu->config.heads /= cu->ranks, cu->config.ffn /= cu->ranks, cu->config.shared_ffn /= cu->ranks;
    cu->config.key_heads /= cu->ranks, cu->config.value_heads /= cu->ranks;
    if (c->shared_ffn) cu->config.experts++, cu->config.experts_used++;
    cu->config.kv_heads = std::max(1, cu->config.kv_heads / cu->ranks);
    cu->leaves = std::max(d->numerics.leaves, cu->ranks) / cu->ranks;
    cu->Vr = llm42__padded((c->vocab + cu->ranks - 1) / cu->ranks), cu->Vp = cu->ranks * cu->Vr;
    // In e4m3 scales are those of blocks of 128. Keys and values begin in a block where they do in the checkpoint.
    const int block = c->scaling ? LLM42__BLOCK : 1, kv = c->kv_heads * c->head_dim,
              kv0 = (int)((int64_t)cu->rank * cu->model->config.kv_heads / cu->ranks) * c->head_dim;
    auto padded = [&](int n) { return (llm42__padded(n) + block - 1) / block * block; };
    auto next_block = [&](int n) { return (n + block - 1) / block * block + kv0 % block; };
    cu->D = c->dim, cu->Dp = padded(c->dim);
    cu->Fp = padded(cu->leaves * llm42__leaf_width(cu));
    cu->dp = llm42__padded_head_dim(c->head_dim);
    cu->k_at = next_block(c->heads * c->head_dim), cu->v_at = next_block(cu->k_at + kv);
    cu->attended = padded(std::max(c->heads * c->head_dim, c->value_heads * c->value_dim));
    cu->gates_at = padded(cu->v_at + kv);
    cu->qkv = c->gated ? cu->gates_at + cu->attended : padded(cu->v_at + kv);
    cu->Ep = llm42__padded(std::max(1, c->experts));
    cu->group = c->heads / c->kv_heads;
    if (c->recurrent_layers) llm42__recurrent_sizes(cu);
    for (int l = 0; l < c->layers; l++)
        if (!cu->model->layer[l].recurrent) cu->has[cu->model->layer[l].sliding ? LLM42__SLIDING : LLM42__FULL] = true;
    while (1 << cu->page_shift < d->page_size) cu->page_shift++;
    cu->kv_layer = (size_t)d->pages * (size_t)d->page_size * (size_t)c->kv_heads * (size_t)cu->dp;
    const int most = std::max(d->max_rows, d->fixed_rows);
    // From 64 rows on there are four between each power of two and the next, up to steps of 512.
    for (int rows = 1, power = 1; rows < most; rows += rows < 8 ? rows : rows < 64 ? 8 : std::min(512, power / 4)) {
        cu->buckets.push_back(rows);
        while (2 * power <= rows) power *= 2;
    }
    cu->buckets.push_back(most);
    if (d->fixed_rows) cu->buckets.push_back(d->fixed_rows);
    std::sort(cu->buckets.begin(), cu->buckets.end());
    cu->buckets.erase(std::unique(cu->buckets.begin(), cu->buckets.end()), cu->buckets.end());
    cu->max_rows = most;
    cu->max_draws = llm42__padded_rows(
        cu, std::min(most, std::max(std::max(d->fixed_rows, 256), std::min(d->max_running, 1024))));
    int per_row = (d->max_context + LLM42__UNIT_KEYS - 1) / LLM42__UNIT_KEYS + 1,
        singles = std::min(most, std::max(d->max_running, 64));
    int64_t records = std::min((int64_t)singles * per_row,
                               (int64_t)d->pages * d->page_size / LLM42__UNIT_KEYS + 2 * singles);
    cu->max_records = (int)std::max<int64_t>(records, 8 * cu->device.multiProcessorCount);
    size_t pages_each = (size_t)(d->max_context + d->page_size - 1) / (size_t)d->page_size;
    cu->page_room = std::min((size_t)most * pages_each,
                             std::max((size_t)std::max(d->max_running, 1) * pages_each, (size_t)4 << 20));
    for (llm42_schedule schedule : {LLM42_SCHEDULE_FAST, LLM42_SCHEDULE_INVARIANT}) {
        llm42__shape_key key = {schedule, most, most, true, true};
        cu->meta_size = std::max(cu->meta_size,
                                 (uintptr_t)llm42__meta_at(cu, &key, nullptr, LLM42__FULL).pages + cu->page_room * 4);
    }
}

// Bytes of device memory that blocks take, by kind. cudaMalloc takes pages of 2 MB, which blocks below 1 MB share.
static void llm42__sum_blocks(const llm42__blocks &list, size_t sums[LLM42__BLOCK_KINDS]) {
    const size_t page = (size_t)2 << 20;
    for (const llm42__block &block : list)
        sums[block.kind] += block.bytes < page / 2 ? block.bytes : (block.bytes + page - 1) / page * page;
}

// What CUDA needs beside the blocks, for kernels, graphs (up to about 200) and cuBLASLt: a generous estimate.
static const size_t llm42__cuda_bytes = (size_t)400 << 20;

// Bytes of device memory that a rank needs while its engine opens, also by kind. The first device tries algorithms.
static size_t llm42__needed_bytes(llm42__cuda *cu, size_t sums[LLM42__BLOCK_KINDS]) {
    char *buffer;
    llm42__trial t = {};
    t.cu = cu;
    memset(sums, 0, LLM42__BLOCK_KINDS * sizeof *sums);
    llm42__sum_blocks(llm42__kept_blocks(cu), sums);
    llm42__sum_blocks(llm42__loading_blocks(&buffer), sums);
    llm42__sum_blocks(llm42__trial_blocks(&t), sums);
    return sums[LLM42__WEIGHTS] + sums[LLM42__CACHE] + sums[LLM42__PASSES] +
           std::max(sums[LLM42__LOADING], cu->own_device ? 0 : sums[LLM42__TRIALS]) + llm42__cuda_bytes;
}

// Refuses an engine that does not fit into device memory, before any is taken.
static llm42_result llm42__check_room(llm42__cuda *cu, llm42_error *error) {
    size_t sums[LLM42__BLOCK_KINDS], left = 0, all = 0;
    const size_t need = llm42__needed_bytes(cu, sums), weights = sums[LLM42__WEIGHTS], cache = sums[LLM42__CACHE];
    LLM42__CU(cudaMemGetInfo(&left, &all));
    if (need > left)
        LLM42__FAIL(
            MEMORY,
            "cuda backend: %s needs %.1f GB of device memory (weights %.1f, cache of %lld tokens %.1f, passes of %d "
            "rows %.1f), %s has %.1f GB free: lower pages, max_context or token_budget, or take a smaller model",
            cu->model->name, (double)need * 1e-9, (double)weights * 1e-9,
            (long long)cu->desc.pages * cu->desc.page_size, (double)cache * 1e-9, cu->max_rows,
            (double)(need - weights - cache) * 1e-9, cu->device.name, (double)left * 1e-9);
    return LLM42_OK;
}

// Runs a text, then its last row alone, then its last rows together. The last row must have the same bits each time.
// This checks whole passes, attention included. States stay before the last rows, which are applied again.
static llm42_result llm42__check_passes(llm42__cuda *cu, llm42_schedule schedule, llm42_error *error) {
    const int V = cu->config.vocab, room = std::min(cu->desc.pages * cu->desc.page_size, cu->desc.max_context);
    const int most = schedule == LLM42_SCHEDULE_FIXED ? cu->desc.fixed_rows : cu->desc.max_rows,
              T = std::min(1100, room);
    std::vector<int32_t> pages((size_t)(T + cu->desc.page_size - 1) / (size_t)cu->desc.page_size);
    for (size_t i = 0; i < pages.size(); i++) pages[i] = (int32_t)i;
    llm42_seq seq = {};
    seq.pages = pages.data();
    std::vector<llm42_row> rows((size_t)most);
    llm42_output first = {};
    const int last_rows = std::min({most, 40, cu->config.recurrent_layers ? cu->desc.behind + 1 : 40});
    for (int trial = 0; trial < 3; trial++) {  // the text; its last row alone; its last rows together
        int begin = trial == 0 ? 0 : trial == 1 ? T - 1 : std::max(0, T - last_rows);
        for (int t = begin; t < T;) {
            llm42_pass pass = {};
            pass.schedule = schedule;
            for (; pass.rows < most && t < T; t++, pass.rows++)
                rows[(size_t)pass.rows] = {0, t, (int32_t)((7 * (int64_t)t + 3) % V),
                                           t == T - 1 ? (uint32_t)LLM42_ROW_SAMPLE : 0u};
            pass.shape = schedule == LLM42_SCHEDULE_FIXED ? cu->desc.fixed_rows : pass.rows;
            pass.row = rows.data(), pass.seq = &seq;
            seq.state = trial ? std::max(0, T - last_rows) : std::min(rows[0].position, std::max(0, T - last_rows));
            seq.state_to = std::min(t, std::max(0, T - last_rows));
            LLM42__TRY(llm42__run_pass(cu, &pass, error));
            if (t < T) continue;
            llm42_output last = cu->execution.out_host[pass.rows - 1];  // may be NaN: run reports that
            if (!trial) first = last;
            else if (memcmp(&last, &first, sizeof last) != 0)
                LLM42__FAIL(NOT_INVARIANT,
                            "cuda backend: schedule %s: position %d of a text gives other bits with %d rows in its "
                            "pass: nothing can be promised; use mode NONDETERMINISTIC",
                            llm42_schedule_name(schedule), T - 1, pass.rows);
        }
    }
    return LLM42_OK;
}

static void llm42__log_device(const llm42__cuda *cu) {
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver), cudaRuntimeGetVersion(&runtime);
    LLM42__LOG(cu, "cuda device: %s, sm_%d%d, %d multiprocessors, %.1f GB", cu->device.name, cu->device.major,
               cu->device.minor, cu->device.multiProcessorCount, (double)cu->device.totalGlobalMem * 1e-9);
    LLM42__LOG(cu, "cuda driver: CUDA %d.%d", driver / 1000, driver % 1000 / 10);
    LLM42__LOG(cu, "cuda runtime: CUDA %d.%d", runtime / 1000, runtime % 1000 / 10);
}

// Of other generations only steps are known (llm42_arithmetic), and not the order in which our kernels add there.
static const char *llm42__cuda_arithmetic(void *state) {
    const cudaDeviceProp &device = ((const llm42__cuda *)state)->device;
    return device.major == 9 && device.minor == 0 ? "sm90" : nullptr;
}

static void llm42__log_manifest(const llm42__cuda *cu) {
    llm42__log_device(cu);
    LLM42__LOG(cu, "cuda cublasLt: %zu%s", llm42__lt_version(cu), cu->options.no_cublas ? " (not used)" : "");
    LLM42__LOG(cu, "cuda kernels: %d", LLM42__KERNELS);
    std::string all_rows;
    for (int rows : cu->buckets) all_rows += " " + std::to_string(rows);
    LLM42__LOG(cu, "cuda pass rows:%s", all_rows.c_str());
    const char *arithmetic = llm42__cuda_arithmetic((void *)cu);
    const char *steps = cu->device.major == 8 ? " (steps of sm80)" : cu->device.major == 10 ? " (steps of sm100)" : "";
    LLM42__LOG(cu, "cuda arithmetic: %s%s", arithmetic ? arithmetic : "not known", arithmetic ? "" : steps);
    if (cu->ranks > 1)
        LLM42__LOG(cu, "cuda ranks: %d on %d device%s", cu->ranks, cu->devices, cu->devices > 1 ? "s" : "");
    if (cu->leaves * cu->ranks > 1) LLM42__LOG(cu, "cuda leaves: %d", cu->leaves * cu->ranks);
    if (!cu->options.no_cublas)
        LLM42__LOG(cu, "cuda fast: %s",
                   cu->options.fast == LLM42_CUDA_FAST_OFFERED
                       ? "offered (the fastest of our kernels and of what cuBLASLt offers)"
                       : "fastest (the fastest found, whether cuBLASLt offers it or not)");
    if (llm42__invariant_verifier(cu))
        LLM42__LOG(cu, "cuda canonical: %s",
                   llm42__prefers_canonical(cu) ? "FAST takes the INVARIANT order where that costs little"
                                                : "FAST keeps its own orders");
    else if (!llm42__fast_alone(cu))
        LLM42__LOG(cu, "cuda fixed: %s",
                   cu->options.no_cublas ? "the fastest of our own kernels for M rows"
                                         : "the order of cuBLASLt's own choice for M rows");
    for (int product = 0; product < LLM42__PRODUCTS; product++) {
        if (!llm42__product_used(cu, product)) continue;
        std::string line;
        for (llm42_schedule schedule : llm42__schedules) {
            if (llm42__fast_alone(cu) && schedule != LLM42_SCHEDULE_FAST) break;
            if (llm42__invariant_verifier(cu) && schedule == LLM42_SCHEDULE_FIXED) continue;
            line += std::string(schedule == LLM42_SCHEDULE_FAST ? "" : "; ") + llm42_schedule_name(schedule);
            for (size_t b = 0; b < cu->buckets.size(); b++) {
                const int rows = cu->buckets[b];
                const bool usual = rows == 1 || rows == 16 || rows == 64 || rows == 256,
                           shown = schedule == LLM42_SCHEDULE_FIXED ? rows == cu->desc.fixed_rows : usual;
                if (!shown || (product == LLM42__HEAD && rows > cu->max_draws)) continue;
                const llm42__algorithm *p = &cu->algorithms[product][schedule][b];
                char text[96];
                snprintf(text, sizeof text, " %d:%s%s/%.1fus", rows, llm42__kind_name(p), p->sequential ? "" : "*",
                         (double)p->us);
                line += text;
            }
        }
        LLM42__LOG(cu, "cuda algorithm %s: %s", llm42__product_names[product], line.c_str());
    }
    LLM42__LOG(cu, "cuda algorithms: * sums in another order than the sequential one; %zu graphs; %.2f GB taken",
               cu->graphs.size(), (double)cu->device_bytes * 1e-9);
}

// Opens one rank as far as its weights. Its device is set.
static llm42_result llm42__open_rank(llm42__cuda *cu, llm42_error *error) {
    llm42__cuda_sizes(cu);
    LLM42__TRY(llm42__check_room(cu, error));
    LLM42__TRY(llm42__open_lt(cu, error));
    const llm42__blocks kept = llm42__kept_blocks(cu);
    for (int kind = 0; kind < LLM42__LOADING; kind++) LLM42__TRY(llm42__take_blocks(cu, kept, kind, error));
    LLM42__TRY(llm42__upload_weights(cu, error));
    LLM42__TRY(llm42__open_execution(cu, error));
    return LLM42__STATUS(cudaDeviceSynchronize());
}

// Lets every device read the others' memory.
static llm42_result llm42__open_peers(llm42__cuda *cu, llm42_error *error) {
    if (cu->devices == 1) return LLM42_OK;
    LLM42__TRY(llm42__take_pinned(cu, (void **)&cu->ended, sizeof *cu->ended, error));
    return llm42__each_device(cu, error, [&](llm42__cuda *rank) -> llm42_result {
        for (int d = 0; d < cu->devices; d++) {
            const int other = cu->options.device + d;
            int can = 0;
            if (other == rank->options.device) continue;
            LLM42__CU(cudaDeviceCanAccessPeer(&can, rank->options.device, other));
            if (!can)
                LLM42__FAIL(UNSUPPORTED,
                            "cuda backend: device %d cannot read the memory of device %d: take devices that are "
                            "linked, or all ranks on one (llm42_cuda_desc.devices = 1)",
                            rank->options.device, other);
            const cudaError_t status = cudaDeviceEnablePeerAccess(other, 0);
            if (status == cudaErrorPeerAccessAlreadyEnabled) cudaGetLastError();
            else LLM42__TRY(llm42__cuda_status(error, "cudaDeviceEnablePeerAccess(", status));
        }
        return LLM42_OK;
    });
}

// Results of a Hopper GPU are reproducible on a CPU only if its instruction for 2^x is llm42__ex2.
static llm42_result llm42__check_powers(llm42__cuda *cu, llm42_error *error) {
#ifdef LLM42__EMULATED
    const size_t step = 4099;
#else
    const size_t step = 1;
#endif
    unsigned *const on_device = (unsigned *)cu->execution.workspace, found[2];  // how many differ, and one of them
    if (cu->device.major != 9) return LLM42_OK;
    LLM42__CU(cudaMemset(on_device, 0, sizeof found));
    llm42__k_wrong_powers<<<(unsigned)cu->device.multiProcessorCount * 4, 512>>>(step, on_device);
    LLM42__CU(cudaGetLastError());
    LLM42__CU(cudaMemcpy(found, on_device, sizeof found, cudaMemcpyDeviceToHost));
    if (!found[0]) return LLM42_OK;
    LLM42__FAIL(
        UNSUPPORTED,
        "cuda backend: %s: 2^x has other bits than on the GPUs that llm42 knows, for instance of x = %a (in all, "
        "for %u numbers): no CPU would reproduce its results; use another GPU, or the CPU backend",
        cu->device.name, (double)llm42__float(found[1]), found[0]);
}

static llm42_result llm42__cuda_open_state(llm42__cuda *cu, llm42_error *error) {
    double ended[5] = {llm42__wall_now(nullptr)};  // of the parts of opening
    auto end = [&](int part) { ended[part] = llm42__wall_now(nullptr); };
    LLM42__TRY(llm42__each_rank(cu, error, [&](llm42__cuda *rank) { return llm42__open_rank(rank, error); }));
    LLM42__TRY(llm42__open_peers(cu, error));
    LLM42__TRY(llm42__each_device(cu, error, [&](llm42__cuda *rank) { return llm42__check_powers(rank, error); }));
    end(1);
    llm42__prepared &p = cu->execution.prepared;
    for (int reach = 0; reach < LLM42__REACHES; reach++) {
        p.tasks[reach].prefill.reserve(cu->has[reach] ? (size_t)cu->max_rows : 0);
        p.tasks[reach].decode.reserve(cu->has[reach] ? (size_t)llm42__decode_room(cu, cu->max_rows) : 0);
    }
    p.run_begin.reserve((size_t)cu->max_rows);
    p.runs.reserve(cu->config.recurrent_layers ? (size_t)cu->max_rows : 0);
    LLM42__TRY(llm42__open_algorithms(cu, error));
    for (llm42__cuda *rank : cu->others)  // the ranks' shapes and devices are the same
        std::copy(cu->algorithms[0], cu->algorithms[LLM42__PRODUCTS], rank->algorithms[0]);
    end(2);
    assert(std::is_sorted(cu->buckets.begin(), cu->buckets.end()) && cu->buckets.back() == cu->max_rows);
    LLM42__CU(cudaDeviceSynchronize());
    if (!cu->options.no_graphs) LLM42__TRY(llm42__make_graphs(cu, error));
    end(3);
    for (llm42_schedule schedule : {LLM42_SCHEDULE_FIXED, LLM42_SCHEDULE_INVARIANT})
        if (!cu->options.no_check && cu->desc.schedules >> schedule & 1 &&
            (schedule == LLM42_SCHEDULE_INVARIANT || cu->desc.fixed_rows))
            LLM42__TRY(llm42__check_passes(cu, schedule, error));
    end(4);
    llm42__log_manifest(cu);
    LLM42__LOG(cu, "cuda opened: %.1f s: weights %.1f, algorithms %.1f, graphs %.1f, checks %.1f", ended[4] - ended[0],
               ended[1] - ended[0], ended[2] - ended[1], ended[3] - ended[2], ended[4] - ended[3]);
    return LLM42_OK;
}

// One algorithm serves all ranks, and some divide their sums by the number of multiprocessors.
static bool llm42__same_kind(const cudaDeviceProp *a, const cudaDeviceProp *b) {
    return strcmp(a->name, b->name) == 0 && a->major == b->major && a->minor == b->minor &&
           a->multiProcessorCount == b->multiProcessorCount && a->sharedMemPerBlockOptin == b->sharedMemPerBlockOptin;
}

// Are there devices for the ranks, all of one kind?
static llm42_result llm42__find_devices(const llm42_backend_desc *desc, llm42_cuda_desc *options,
                                        cudaDeviceProp *device, llm42_error *error) {
    const int ranks = std::max(1, desc->tensor_parallel);
    LLM42__TRY(llm42__find_device(options->device, device, error));
    if (desc->numerics.arithmetic && (desc->numerics.arithmetic != LLM42_ARITHMETIC_SM90 || device->major != 9))
        LLM42__FAIL(UNSUPPORTED, "llm42_engine_desc.numerics.arithmetic: default, or SM90 on sm_90: %s is sm_%d%d",
                    device->name, device->major, device->minor);
    if (desc->model->config.scaling && device->major != 9)
        LLM42__FAIL(UNSUPPORTED,
                    "model %s: its products in FP8 need an sm_90 GPU, and %s is sm_%d%d: take a model in bf16",
                    desc->model->name, device->name, device->major, device->minor);
    if (!options->devices) options->devices = ranks;
    for (int d = 1; d < options->devices; d++) {
        cudaDeviceProp other;
        LLM42__TRY(llm42__find_device(options->device + d, &other, error));
        if (!llm42__same_kind(device, &other))
            LLM42__FAIL(UNSUPPORTED,
                        "cuda backend: device %d is %s with %d multiprocessors, and device %d is another one: ranks "
                        "need devices of one kind",
                        options->device, device->name, device->multiProcessorCount, options->device + d);
    }
    return LLM42__STATUS(cudaSetDevice(options->device));
}

// A rank without anything on its device. NULL: no memory.
static llm42__cuda *llm42__new_rank(const llm42_backend_desc *desc, const llm42_cuda_desc *options, int rank,
                                    const cudaDeviceProp *device) {
    llm42__cuda *cu = new (std::nothrow) llm42__cuda();
    if (!cu) return cu;
    cu->desc = *desc, cu->options = *options, cu->model = desc->model, cu->device = *device;
    cu->rank = rank, cu->devices = options->devices;
    cu->own_device = rank * options->devices / std::max(1, desc->tensor_parallel);
    cu->options.device += cu->own_device;
    return cu;
}

static llm42_result llm42__cuda_open(void **state, const llm42_backend_desc *desc, llm42_error *error) {
    *state = NULL;
    LLM42__TRY(llm42__cuda_validate(desc, error));
    llm42_cuda_desc options = desc->backend_desc ? *(const llm42_cuda_desc *)desc->backend_desc : llm42_cuda_desc{};
    cudaDeviceProp device;
    LLM42__TRY(llm42__find_devices(desc, &options, &device, error));
    const llm42_config *c = &desc->model->config;
    if (c->head_dim > 128 && llm42__prefill_shape<256, 1>::bytes(device.major == 9) > llm42__shared_room(&device))
        LLM42__FAIL(UNSUPPORTED,
                    "model %s: heads of %d need more shared memory than %s has: use a GPU with 226 KB a block or more",
                    desc->model->name, c->head_dim, device.name);
    llm42__cuda *cu = llm42__new_rank(desc, &options, 0, &device);
    if (!cu) LLM42__FAIL(MEMORY, "cuda backend: out of host memory");
    const llm42__turn turn = llm42__turn::to_change(cu);
    const llm42_result result = llm42__guarded(error, [&]() -> llm42_result {
        cu->ranks = std::max(1, desc->tensor_parallel);
        cu->others.reserve((size_t)cu->ranks);
        for (int r = 1; r < cu->ranks; r++) {
            llm42__cuda *rank = llm42__new_rank(desc, &options, r, &device);
            if (!rank) throw std::bad_alloc();
            rank->first = cu, rank->ranks = cu->ranks;
            cu->others.push_back(rank);
        }
        return llm42__cuda_open_state(cu, error);
    });
    if (result != LLM42_OK) {
        llm42__cuda_close(cu);
        return result;
    }
    *state = cu;
    return LLM42_OK;
}

static llm42_result llm42__cuda_reload(void *state, llm42_error *error) {
    llm42__cuda *const cu = (llm42__cuda *)state;
    const llm42__turn turn = llm42__turn::to_change(cu);
    LLM42__CU(cudaSetDevice(cu->options.device));
    return llm42__guarded(error, [&]() {
        return llm42__each_rank(cu, error, [&](llm42__cuda *rank) { return llm42__upload_weights(rank, error); });
    });
}

const llm42_backend *llm42_backend_cuda(void) {
    static const llm42_backend backend = {"cuda",          llm42__cuda_open,       llm42__cuda_close,
                                          llm42__cuda_run, llm42__wall_now,        llm42__wall_wait_until,
                                          nullptr,         llm42__cuda_arithmetic, llm42__cuda_reload};
    return &backend;
}

// >>cuda-measure -------------------------------------------------------------------------------------------------
// Owns: measuring: the stages of a pass, and the ceilings of a device.
// Calls: cuda-run, cuda-algorithms.
// Invariant: a stage's time lies between two events on one stream.
static llm42_result llm42__sum_timings(std::vector<llm42__timing> *timings, llm42_cuda_stage *stages, int *count,
                                       llm42_error *error) {
    *count = 0;
    for (const llm42__timing &t : *timings) {
        float ms = 0;
        assert(t.begin && t.end);
        LLM42__CU(cudaEventElapsedTime(&ms, t.begin, t.end));
        int i = 0;
        while (i < *count && strcmp(stages[i].name, t.name) != 0) i++;
        if (i == LLM42_CUDA_STAGES) continue;
        if (i == *count) stages[(*count)++] = {t.name, 0.0, 0};
        stages[i].ms += (double)ms;
        stages[i].launches++;
    }
    return LLM42_OK;
}

static llm42_result llm42__time_stages(llm42__cuda *cu, const llm42_pass *pass, int repeats, llm42_cuda_stage *stages,
                                       int *count, llm42_error *error) {
    std::vector<double> all[LLM42_CUDA_STAGES];
    for (int i = 0; i < std::max(1, repeats); i++) {
        std::vector<llm42__timing> timings;
        cu->timings = &timings;
        llm42_result result = llm42__cuda_run(cu, pass, error);
        cu->timings = nullptr;
        if (result == LLM42_OK) result = llm42__sum_timings(&timings, stages, count, error);
        for (const llm42__timing &t : timings) {
            if (t.begin) cudaEventDestroy(t.begin);
            if (t.end) cudaEventDestroy(t.end);
        }
        LLM42__TRY(result);
        for (int s = 0; s < *count; s++) all[s].push_back(stages[s].ms);
    }
    for (int s = 0; s < *count; s++) {
        std::sort(all[s].begin(), all[s].end());
        stages[s].ms = all[s][all[s].size() / 2];
    }
    return LLM42_OK;
}

llm42_result llm42_cuda_stages(void *state, const llm42_pass *pass, int repeats,
                               llm42_cuda_stage stages[LLM42_CUDA_STAGES], int *count, llm42_error *error) {
    return llm42__guarded(
        error, [&]() { return llm42__time_stages((llm42__cuda *)state, pass, repeats, stages, count, error); });
}

// For measuring a device: a backend without a model, and two blocks of memory to copy between.
enum { LLM42__GAUGE_N = 4096, LLM42__GAUGE_K = 14336, LLM42__GAUGE_REPEATS = 9 };
static const size_t llm42__gauge_bytes = (size_t)4 << 30;
struct llm42__gauge {
    llm42__cuda *cu;
    char *from, *to;
    unsigned *word;
    cudaEvent_t begin, end;
    ~llm42__gauge() {
        if (begin) cudaEventDestroy(begin);
        if (end) cudaEventDestroy(end);
        llm42__cuda_close(cu);
    }
};

static llm42_result llm42__open_gauge(llm42__gauge *g, llm42_error *error) {
    llm42__cuda *cu = g->cu;
    cu->Dp = LLM42__GAUGE_N, cu->Fp = LLM42__GAUGE_K;
    llm42__blocks list;
    llm42__want(&list, LLM42__PASSES, &g->from, llm42__gauge_bytes);
    llm42__want(&list, LLM42__PASSES, &g->to, llm42__gauge_bytes);
    llm42__want(&list, LLM42__PASSES, &g->word, 1);
    llm42__want(&list, LLM42__PASSES, (char **)&cu->execution.workspace, llm42__workspace_bytes);
    LLM42__TRY(llm42__take_blocks(cu, list, LLM42__PASSES, error));
    LLM42__CU(cudaEventCreate(&g->begin));
    LLM42__CU(cudaEventCreate(&g->end));
    LLM42__TRY(llm42__open_lt(cu, error));
    llm42__k_fill<<<4096, 256>>>((llm42__bf16 *)g->from, llm42__gauge_bytes / 2, 1, 1.0f);
    LLM42__CU(cudaGetLastError());
    return LLM42__STATUS(cudaDeviceSynchronize());
}

// Median seconds of what `run` launches.
template <typename F>
static llm42_result llm42__median(const llm42__gauge *g, F run, double *seconds, llm42_error *error) {
    float times[LLM42__GAUGE_REPEATS], warm_up;
    for (int i = -2; i < LLM42__GAUGE_REPEATS; i++) {
        LLM42__CU(cudaEventRecord(g->begin));
        LLM42__TRY(run());
        LLM42__CU(cudaEventRecord(g->end));
        LLM42__CU(cudaEventSynchronize(g->end));
        LLM42__CU(cudaEventElapsedTime(i < 0 ? &warm_up : &times[i], g->begin, g->end));
    }
    std::sort(times, times + LLM42__GAUGE_REPEATS);
    *seconds = (double)times[LLM42__GAUGE_REPEATS / 2] * 1e-3;
    return LLM42_OK;
}

static llm42_result llm42__gauge_memory(const llm42__gauge *g, llm42_cuda_ceilings *ceilings, llm42_error *error) {
    const unsigned blocks = (unsigned)g->cu->device.multiProcessorCount * 4;
    double copy, read;
    auto copies = [&]() {
        return LLM42__STATUS(cudaMemcpyAsync(g->to, g->from, llm42__gauge_bytes, cudaMemcpyDeviceToDevice));
    };
    auto reads = [&]() -> llm42_result {
        llm42__k_read<<<blocks, 512>>>((const uint4 *)g->from, llm42__gauge_bytes / 16, g->word);
        return LLM42__STATUS(cudaGetLastError());
    };
    LLM42__TRY(llm42__median(g, copies, &copy, error));
    LLM42__TRY(llm42__median(g, reads, &read, error));
    ceilings->copy_bytes_per_s = 2.0 * (double)llm42__gauge_bytes / copy;
    ceilings->read_bytes_per_s = (double)llm42__gauge_bytes / read;
    return LLM42_OK;
}

// The best of the first four algorithms that cuBLASLt offers.
static llm42_result llm42__gauge_product(const llm42__gauge *g, llm42_cuda_ceilings *ceilings, llm42_error *error) {
    const size_t N = LLM42__GAUGE_N, K = LLM42__GAUGE_K;
    const llm42__bf16 *x = (const llm42__bf16 *)g->from, *w = x + N * K;
    std::vector<llm42__candidate> list;
    double best = INFINITY, seconds;
    LLM42__TRY(llm42__candidates(g->cu, LLM42__DOWN, LLM42__GAUGE_N, &list, error));
    for (const llm42__candidate &c : list) {
        if (c.rank < 0 || c.rank > 3) continue;
        LLM42__TRY(llm42__median(
            g, [&]() { return llm42__run_lt(g->cu, &g->cu->execution, &c.algorithm, w, x, g->to, error); }, &seconds,
            error));
        best = std::min(best, seconds);
    }
    ceilings->matmul_flop_per_s = 2.0 * (double)(N * N * K) / best;
    return LLM42_OK;
}

llm42_result llm42_cuda_measure_ceilings(llm42_cuda_ceilings *ceilings, int device, llm42_error *error) {
    cudaDeviceProp properties;
    LLM42__TRY(llm42__find_device(device, &properties, error));
    llm42__gauge g = {};
    g.cu = new (std::nothrow) llm42__cuda();
    if (!g.cu) LLM42__FAIL(MEMORY, "cuda backend: out of host memory");
    g.cu->options.device = device, g.cu->device = properties;
    return llm42__guarded(error, [&]() -> llm42_result {
        LLM42__TRY(llm42__open_gauge(&g, error));
        LLM42__TRY(llm42__gauge_memory(&g, ceilings, error));
        return llm42__gauge_product(&g, ceilings, error);
    });
}
