// matmul_ladder: one matrix product in nine steps, from a naive kernel to the project's own. Each step adds one idea.
// The table shows that speed depends on how work is laid out, and that bits depend on the order of sums.
//
//     make ladder
//     build/matmul_ladder --rows 1,8,64 --n 4096 --k 14336 --tsv FILE
//
// The product is y[R, N] = x[R, K] w[N, K]^T. x, w and y are bf16, sums are fp32. With few rows, reading w from memory
// limits its speed. The columns:
//   ms          time of a launch, a median; each launch reads another copy of w
//   GB/s        bytes of w, divided by that time
//   of reading  the same, as a share of the GB/s of a kernel that only reads, measured in the same run
//   error       root mean square of y - y64, divided by that of y64, over sampled outputs; y64 is summed in float64
//   bits        steps with the same letter give the same bits, in every output
// The inputs are such that sums nearly cancel (llm42__k_fill_cancelling), so that another order of sums shows.
//
// Exit status 1 if a step is wrong, if steps of one order differ in bits, or if step 8, the control, has the bits of
// step 5: it sums in another order and must differ. The last line is "matmul_ladder: N passed, N failed"; without a
// device both are 0.
#define LLM42_BASE
#include "llm42.h"

#include "kernels.cu"

#include <cublasLt.h>

#define LADDER "matmul_ladder"
#include "ladder.h"

// >>steps --------------------------------------------------------------------------------------------------------

// Step 1: one thread for each output.
// Shapes: x [R, K], w [N, K] -> y [R, N].
// Work: a thread takes one output; blockIdx.y is its row.
// Order: k ascending, one fused multiply-add after the other. It depends on K alone.
__global__ void __launch_bounds__(128) step_thread(const bf16 *x, const bf16 *w, bf16 *y, int n, int k) {
    const int output = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (output >= n) return;
    float sum = 0;
    for (int i = 0; i < k; i++) sum = fmaf((float)x[(size_t)row * k + i], (float)w[(size_t)output * k + i], sum);
    y[(size_t)row * n + output] = __float2bfloat16_rn(sum);
}

// Step 2: one warp for each output, so that neighbouring lanes read neighbouring weights.
// Shapes: x [R, K], w [N, K] -> y [R, N].
// Work: a warp takes one output; neighbouring warps take the rows of an output.
// Order: every 32nd k in a lane, ascending; then lanes by butterfly. It depends on K alone.
__global__ void __launch_bounds__(256) step_warp(const bf16 *x, const bf16 *w, bf16 *y, int rows, int n, int k) {
    const int lane = threadIdx.x % 32, warp = (int)(blockIdx.x * blockDim.x + threadIdx.x) / 32, row = warp % rows,
              output = warp / rows;
    if (output >= n) return;
    float sum = 0;
    for (int i = lane; i < k; i += 32) sum = fmaf((float)x[(size_t)row * k + i], (float)w[(size_t)output * k + i], sum);
#pragma unroll
    for (int i = 16; i; i >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, i);
    if (lane == 0) y[(size_t)row * n + output] = __float2bfloat16_rn(sum);
}

// The tile of a block in steps 3 and 4: one thread for each of 16 outputs of 8 rows.
enum { TILE_OUTPUTS = 16, TILE_ROWS = 8, TILE_THREADS = TILE_OUTPUTS * TILE_ROWS };

// Step 3: a block copies a tile of w and x to shared memory, where its threads share what was read.
// Shapes: x [R, K], w [N, K] -> y [R, N].
// Work: a block takes a tile of outputs, 64 terms at a time. A thread takes one output.
// Order: k ascending, one fused multiply-add after the other. It depends on K alone: it is that of step 1.
__global__ void __launch_bounds__(TILE_THREADS)
    step_tile(const bf16 *x, const bf16 *w, bf16 *y, int rows, int n, int k) {
    enum { TERMS = 64, COPIES = (TILE_OUTPUTS + TILE_ROWS) * TERMS / TILE_THREADS };  // copies of a thread
    __shared__ bf16 tile[TILE_OUTPUTS + TILE_ROWS][TERMS + 2];  // two more, so that lines begin in different banks
    const int n0 = blockIdx.x * TILE_OUTPUTS, row0 = blockIdx.y * TILE_ROWS, output = threadIdx.x % TILE_OUTPUTS,
              row = threadIdx.x / TILE_OUTPUTS;
    float sum = 0;
    for (int k0 = 0; k0 < k; k0 += TERMS) {
#pragma unroll
        for (int j = 0; j < COPIES; j++) {  // lines of w, then of x; beyond the last row, that row again
            const int i = j * TILE_THREADS + (int)threadIdx.x, line = i / TERMS, term = i % TERMS;
            const bf16 *from = line < TILE_OUTPUTS ? w + (size_t)(n0 + line) * k
                                                   : x + (size_t)LLM42__MIN(row0 + line - TILE_OUTPUTS, rows - 1) * k;
            tile[line][term] = from[k0 + term];
        }
        __syncthreads();  // the tile is there
        for (int i = 0; i < TERMS; i++) sum = fmaf((float)tile[TILE_OUTPUTS + row][i], (float)tile[output][i], sum);
        __syncthreads();  // everyone has read it
    }
    if (row0 + row < rows) y[(size_t)(row0 + row) * n + n0 + output] = __float2bfloat16_rn(sum);
}

// sum += the products of eight terms, ascending.
__device__ __forceinline__ float add_eight(float sum, uint4 a, uint4 b) {
    const __nv_bfloat162 *p = (const __nv_bfloat162 *)&a, *q = (const __nv_bfloat162 *)&b;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 f = __bfloat1622float2(p[i]), g = __bfloat1622float2(q[i]);
        sum = fmaf(f.x, g.x, sum);
        sum = fmaf(f.y, g.y, sum);
    }
    return sum;
}

// Step 4: copies of 16 bytes (eight values), and more terms at a time: more bytes are on their way.
// Shapes: x [R, K], w [N, K] -> y [R, N].
// Work: as in step 3, with 256 terms at a time.
// Order: k ascending, one fused multiply-add after the other. It depends on K alone: it is that of step 1.
__global__ void __launch_bounds__(TILE_THREADS)
    step_pieces(const bf16 *x, const bf16 *w, bf16 *y, int rows, int n, int k) {
    enum { TERMS = 256, PIECES = TERMS / 8, COPIES = (TILE_OUTPUTS + TILE_ROWS) * PIECES / TILE_THREADS };
    __shared__ uint4 tile[TILE_OUTPUTS + TILE_ROWS][PIECES + 1];  // one more, so that lines begin in different banks
    const int n0 = blockIdx.x * TILE_OUTPUTS, row0 = blockIdx.y * TILE_ROWS, output = threadIdx.x % TILE_OUTPUTS,
              row = threadIdx.x / TILE_OUTPUTS;
    float sum = 0;
    for (int k0 = 0; k0 < k; k0 += TERMS) {
#pragma unroll
        for (int j = 0; j < COPIES; j++) {
            const int i = j * TILE_THREADS + (int)threadIdx.x, line = i / PIECES, piece = i % PIECES;
            const bf16 *from = line < TILE_OUTPUTS ? w + (size_t)(n0 + line) * k
                                                   : x + (size_t)LLM42__MIN(row0 + line - TILE_OUTPUTS, rows - 1) * k;
            tile[line][piece] = *(const uint4 *)(from + k0 + piece * 8);
        }
        __syncthreads();  // the tile is there
        for (int i = 0; i < PIECES; i++) sum = add_eight(sum, tile[TILE_OUTPUTS + row][i], tile[output][i]);
        __syncthreads();  // everyone has read it
    }
    if (row0 + row < rows) y[(size_t)(row0 + row) * n + n0 + output] = __float2bfloat16_rn(sum);
}

// The tile of a block in steps 5, 6 and 8: 32 outputs of TILES x 8 rows, 128 terms at a time. llm42__ring in kernels.cu
// says where the pieces of a line lie in shared memory.
enum { MMA_WARPS = 2, MMA_THREADS = MMA_WARPS * 32, MMA_TERMS = 128, MMA_STAGES = 4 };
template <int TILES> struct mma_ring : llm42__ring<TILES, MMA_WARPS, MMA_TERMS, MMA_STAGES> {
    using base = llm42__ring<TILES, MMA_WARPS, MMA_TERMS, MMA_STAGES>;
    enum { COPIES = (base::OUTPUTS + base::ROWS) / base::COPIED };  // pieces that a thread copies
    // Copy j of this thread: the line and the piece of it. Lines of w come first, those of x behind them.
    static __device__ __forceinline__ int line(int j) { return j * base::COPIED + (int)threadIdx.x / base::PIECES; }
    static __device__ __forceinline__ int piece() { return (int)threadIdx.x % base::PIECES; }
    // Where it comes from. Beyond the last row, x has that row again.
    static __device__ __forceinline__ const bf16 *source(int j, const bf16 *x, const bf16 *w, int rows, int k) {
        const int n0 = blockIdx.x * base::OUTPUTS, row = blockIdx.y * base::ROWS + line(j) - base::OUTPUTS;
        const bf16 *from = line(j) < base::OUTPUTS ? w + (size_t)(n0 + line(j)) * k
                                                   : x + (size_t)LLM42__MIN(row, rows - 1) * k;
        return from + piece() * 8;
    }
};

// Step 5: tensor cores. One instruction of a warp (mma) adds the products of 16 outputs, 8 rows and 16 terms.
// Shapes: x [R, K], w [N, K] -> y [R, N].
// Work: a warp takes 16 outputs of TILES x 8 rows; a block's warps share x.
// Order: 16 terms at a time, k ascending, into one accumulator: the sequential order. It depends on K alone.
template <int TILES>
__global__ void __launch_bounds__(MMA_THREADS) step_mma(const bf16 *x, const bf16 *w, bf16 *y, int rows, int n, int k) {
    using ring = mma_ring<TILES>;
    __shared__ uint4 tile[ring::STAGE / 16];
    const int lane = threadIdx.x % 32, my_output = threadIdx.x / 32 * 16, row0 = blockIdx.y * ring::ROWS;
    const uint32_t at = llm42__shared_address(tile);
    float sum[TILES][4] = {};
    for (int k0 = 0; k0 < k; k0 += MMA_TERMS) {
#pragma unroll
        for (int j = 0; j < ring::COPIES; j++)
            tile[ring::place(ring::line(j), ring::piece()) / 16] = *(const uint4 *)(ring::source(j, x, w, rows, k) +
                                                                                    k0);
        __syncthreads();  // the tile is there
        // Four pieces of a line are two steps of 16 terms. a is of w, b of x.
        for (int piece = 0; piece < ring::PIECES; piece += 4) {
            uint32_t a[2][4], b[4];
            llm42__load_matrices(a[0], at + ring::place(my_output + lane % 16, piece + lane / 16));
            llm42__load_matrices(a[1], at + ring::place(my_output + lane % 16, piece + 2 + lane / 16));
#pragma unroll
            for (int t = 0; t < TILES; t++) {
                llm42__load_matrices(b, at + ring::W_BYTES + ring::place(t * 8 + lane % 8, piece + lane / 8));
                llm42__mma(sum[t], a[0], b[0], b[1]);
                llm42__mma(sum[t], a[1], b[2], b[3]);
            }
        }
        __syncthreads();  // everyone has read it
    }
    llm42__write_outputs<TILES, false>(sum, y, llm42__owners{}, n, (int)blockIdx.x * ring::OUTPUTS + my_output, row0,
                                       rows);
}

// Step 6: a ring of stages that copies fill while earlier stages are multiplied. Step 8 has more than one part.
// Shapes: x [R, K], w [N, K] -> y [parts, R, N].
// Work: as in step 5. Part blockIdx.z takes K / parts terms of its own.
// Order: within a part the sequential order. It depends on K and on the number of parts.
template <int TILES, typename OUT>
__global__ void __launch_bounds__(MMA_THREADS) step_ring(const bf16 *x, const bf16 *w, OUT *y, int rows, int n, int k) {
    using ring = mma_ring<TILES>;
    extern __shared__ __align__(1024) unsigned char stages[];
    const int terms = k / (int)gridDim.z, first = (int)blockIdx.z * terms, chunks = terms / MMA_TERMS;
    const int n0 = blockIdx.x * ring::OUTPUTS + threadIdx.x / 32 * 16, row0 = blockIdx.y * ring::ROWS;
    const uint32_t at = llm42__shared_address(stages);
    auto copy = [&](int chunk) {
        const uint32_t to = at + (uint32_t)(chunk % MMA_STAGES * ring::STAGE);
#pragma unroll
        for (int j = 0; j < ring::COPIES && chunk < chunks; j++)
            llm42__copy16(to + ring::place(ring::line(j), ring::piece()),
                          ring::source(j, x, w, rows, k) + first + chunk * MMA_TERMS, true);
        llm42__copy_commit();  // empty behind the last chunk, so that counting groups counts chunks
    };
    for (int chunk = 0; chunk < MMA_STAGES - 1; chunk++) copy(chunk);
    float sum[TILES][4] = {};
    llm42__leaf_count<false> whole = {};
    for (int chunk = 0; chunk < chunks; chunk++) {
        llm42__copy_wait<MMA_STAGES - 2>();
        // Everyone's copies of this chunk are there, and everyone has left the stage that is filled next.
        __syncthreads();
        copy(chunk + MMA_STAGES - 1);
        llm42__multiply<TILES, MMA_WARPS, MMA_TERMS, MMA_STAGES>(sum, at + (uint32_t)(chunk % MMA_STAGES * ring::STAGE),
                                                                 whole, [](int) {});  // as step 5 does
    }
    llm42__write_outputs<TILES, false>(sum, y + (size_t)blockIdx.z * rows * n, llm42__owners{}, n, n0, row0, rows);
}

// Step 8, behind step 6 with two parts: their sum.
// Shapes: parts [2, R, N] (fp32) -> y [R, N].
// Work: a thread takes one output.
// Order: the first part plus the second.
__global__ void __launch_bounds__(256) step_join(const float *parts, bf16 *y, size_t count) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < count) y[i] = __float2bfloat16_rn(parts[i] + parts[count + i]);
}

// >>host ---------------------------------------------------------------------------------------------------------
enum { THREAD = 1, WARP, TILE, PIECES, MMA, RING, LIBRARY, SPLIT, CUBLAS, STEPS = CUBLAS };
enum { SAMPLED = 256 };

static void must(const char *call, cublasStatus_t status) {
    if (status != CUBLAS_STATUS_SUCCESS)
        fail(1, "%.*s: %s", (int)strcspn(call, "("), call, cublasLtGetStatusString(status));
}

struct options {
    std::vector<int> rows = {1, 8, 64};
    int n = 4096, k = 14336;
    const char *tsv = nullptr;
};

// cuBLASLt's first choice for a number of rows.
struct cublas_choice {
    cublasLtHandle_t lt;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t w, x, y;
    cublasLtMatmulAlgo_t algo;
    void *workspace;
    int parts;  // that it cuts k into
};
static const size_t workspace_bytes = (size_t)32 << 20;

struct ladder {
    cudaDeviceProp device;
    int rows, n, k, copies, next;  // next: the copy of w that is read next
    bf16 *x, *w;                   // [most rows, k]; [copies, n, k]
    bf16 *y[STEPS + 1];            // [most rows, n], by step
    float *parts;                  // [2, most rows, n]
    unsigned *word;                // for kernels that count
    double read_gb_per_s;
    const llm42__tile_kind *tile;  // of step 7
    cublas_choice cublas;
    std::vector<int> sampled;   // [SAMPLED] outputs of a row
    std::vector<float> host_w;  // [SAMPLED, k], their weights
    std::vector<float> host_x;  // [most rows, k]
};

static const bf16 *next_weights(ladder *l) {
    const bf16 *w = l->w + (size_t)l->next * (size_t)l->n * (size_t)l->k;
    l->next = (l->next + 1) % l->copies;
    return w;
}

template <int TILES> static void launch_mma(const ladder *l, const bf16 *w, bf16 *y) {
    using ring = mma_ring<TILES>;
    const dim3 grid(l->n / ring::OUTPUTS, (l->rows + ring::ROWS - 1) / ring::ROWS);
    step_mma<TILES><<<grid, MMA_THREADS>>>(l->x, w, y, l->rows, l->n, l->k);
}

template <int TILES, typename OUT> static void launch_ring(const ladder *l, const bf16 *w, OUT *y, int parts) {
    using ring = mma_ring<TILES>;
    const dim3 grid(l->n / ring::OUTPUTS, (l->rows + ring::ROWS - 1) / ring::ROWS, parts);
    const int bytes = MMA_STAGES * ring::STAGE;
    CU(cudaFuncSetAttribute(step_ring<TILES, OUT>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    step_ring<TILES, OUT><<<grid, MMA_THREADS, bytes>>>(l->x, w, y, l->rows, l->n, l->k);
}

static void launch_split(const ladder *l, const bf16 *w, bf16 *y) {
    const size_t count = (size_t)l->rows * (size_t)l->n;
    if (l->rows <= 8) launch_ring<1>(l, w, l->parts, 2);
    else launch_ring<8>(l, w, l->parts, 2);
    CU(cudaGetLastError());
    step_join<<<(unsigned)((count + 255) / 256), 256>>>(l->parts, y, count);
}

static void launch_cublas(const ladder *l, const bf16 *w, bf16 *y) {
    const cublas_choice *c = &l->cublas;
    const float one = 1, zero = 0;
    CU(cublasLtMatmul(c->lt, c->product, &one, w, c->w, l->x, c->x, &zero, y, c->y, y, c->y, &c->algo, c->workspace,
                      workspace_bytes, 0));
}

// One launch of a step, on the next copy of w.
static void launch(ladder *l, int step) {
    const bf16 *w = next_weights(l), *x = l->x;
    bf16 *y = l->y[step];
    const int rows = l->rows, n = l->n, k = l->k;
    const dim3 tiles(n / TILE_OUTPUTS, (rows + TILE_ROWS - 1) / TILE_ROWS);
    switch (step) {
    case THREAD: step_thread<<<dim3((n + 127) / 128, rows), 128>>>(x, w, y, n, k); break;
    case WARP: step_warp<<<(rows * n + 7) / 8, 256>>>(x, w, y, rows, n, k); break;
    case TILE: step_tile<<<tiles, TILE_THREADS>>>(x, w, y, rows, n, k); break;
    case PIECES: step_pieces<<<tiles, TILE_THREADS>>>(x, w, y, rows, n, k); break;
    case MMA: rows <= 8 ? launch_mma<1>(l, w, y) : launch_mma<8>(l, w, y); break;
    case RING: rows <= 8 ? launch_ring<1>(l, w, y, 1) : launch_ring<8>(l, w, y, 1); break;
    case LIBRARY:
        CU(l->tile->plain(x, w, y, rows, n, k, llm42__groups{}, llm42__leaves{}, l->device.multiProcessorCount, 0));
        break;
    case SPLIT: launch_split(l, w, y); break;
    case CUBLAS: launch_cublas(l, w, y); break;
    }
    CU(cudaGetLastError());
}

// Of the builds of llm42__k_matmul that an engine would try for so many rows, the fastest. All give the same bits.
static void choose_tile(ladder *l) {
    double best = INFINITY;
    for (int i = 0; i < LLM42__TILE_KINDS; i++) {
        const llm42__tile_kind *tile = &llm42__tile_kinds[i];
        const bool wanted = tile->rows >= std::min(l->rows, 64) && tile->rows <= 4 * l->rows + 4;
        if (tile->bytes > (int)l->device.sharedMemPerBlockOptin || !(wanted || i + 1 == LLM42__TILE_KINDS)) continue;
        const llm42__tile_kind *before = l->tile;
        l->tile = tile;
        const double ms = median_ms([&] { launch(l, LIBRARY); });
        if (ms < best) best = ms;
        else l->tile = before;
    }
}

static void open_cublas(ladder *l) {
    const cublasOperation_t transposed = CUBLAS_OP_T;
    cublas_choice *c = &l->cublas;
    CU(cublasLtCreate(&c->lt));
    CU(cublasLtMatmulDescCreate(&c->product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    CU(cublasLtMatmulDescSetAttribute(c->product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
    CU(cudaMalloc(&c->workspace, workspace_bytes));
}

// cuBLASLt counts columns first: y^T [n, rows] = w [k, n]^T x^T [k, rows]. Reductions in place are left out: they add
// in any order.
static void choose_cublas(ladder *l) {
    const uint64_t n = (uint64_t)l->n, k = (uint64_t)l->k, rows = (uint64_t)l->rows;
    const uint32_t ordered = CUBLASLT_REDUCTION_SCHEME_MASK & ~(uint32_t)CUBLASLT_REDUCTION_SCHEME_INPLACE;
    cublas_choice *c = &l->cublas;
    cublasLtMatmulPreference_t wish;
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    int32_t parts = 1;
    size_t written;
    for (cublasLtMatrixLayout_t layout : {c->w, c->x, c->y})
        if (layout) CU(cublasLtMatrixLayoutDestroy(layout));
    CU(cublasLtMatrixLayoutCreate(&c->w, CUDA_R_16BF, k, n, l->k));
    CU(cublasLtMatrixLayoutCreate(&c->x, CUDA_R_16BF, k, rows, l->k));
    CU(cublasLtMatrixLayoutCreate(&c->y, CUDA_R_16BF, n, rows, l->n));
    CU(cublasLtMatmulPreferenceCreate(&wish));
    CU(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
                                            sizeof workspace_bytes));
    CU(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &ordered,
                                            sizeof ordered));
    CU(cublasLtMatmulAlgoGetHeuristic(c->lt, c->product, c->w, c->x, c->y, c->y, wish, 1, &found, &count));
    CU(cublasLtMatmulPreferenceDestroy(wish));
    if (count < 1) fail(1, "cuBLASLt has no algorithm for --rows %d --n %d --k %d", l->rows, l->n, l->k);
    c->algo = found.algo;
    CU(cublasLtMatmulAlgoConfigGetAttribute(&c->algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts, sizeof parts, &written));
    c->parts = parts;
}

static void open_ladder(ladder *l, const options *o) {
    const size_t most = (size_t)*std::max_element(o->rows.begin(), o->rows.end()), n = (size_t)o->n, k = (size_t)o->k,
                 least = LEAST_BYTES;
    l->n = o->n, l->k = o->k;
    l->copies = (int)std::max((least + 2 * n * k - 1) / (2 * n * k), (size_t)LAUNCHES);
    const size_t bytes = (size_t)l->copies * n * k * 2;
    CU(cudaMalloc((void **)&l->x, most * k * sizeof(bf16)));
    CU(cudaMalloc((void **)&l->w, bytes));
    for (int step = 1; step <= STEPS; step++) CU(cudaMalloc((void **)&l->y[step], most * n * sizeof(bf16)));
    CU(cudaMalloc((void **)&l->parts, 2 * most * n * sizeof(float)));
    CU(cudaMalloc((void **)&l->word, sizeof *l->word));
    llm42__k_fill_cancelling<<<1024, 256>>>(l->x, most, l->k, 42, true);
    CU(cudaGetLastError());
    for (int i = 0; i < l->copies; i++) {
        llm42__k_fill_cancelling<<<1024, 256>>>(l->w + (size_t)i * n * k, n, l->k, 43, false);
        CU(cudaGetLastError());
    }
    l->read_gb_per_s = reading_speed(&l->device, l->w, bytes, l->word);
    open_cublas(l);
    l->host_x = to_host(l->x, most * k);
    for (int i = 0; i < SAMPLED; i++) {
        l->sampled.push_back((int)(llm42__hash((uint64_t)i) % n));
        const std::vector<float> w = to_host(l->w + (size_t)l->sampled.back() * k, k);
        l->host_w.insert(l->host_w.end(), w.begin(), w.end());
    }
}

static void close_ladder(ladder *l) {
    cublas_choice *c = &l->cublas;
    for (cublasLtMatrixLayout_t layout : {c->w, c->x, c->y})
        if (layout) CU(cublasLtMatrixLayoutDestroy(layout));
    CU(cublasLtMatmulDescDestroy(c->product));
    CU(cublasLtDestroy(c->lt));
    for (bf16 *y : l->y) CU(cudaFree(y));
    for (void *block : {(void *)l->x, (void *)l->w, (void *)l->parts, (void *)l->word, c->workspace})
        CU(cudaFree(block));
}

// Of sampled outputs of a step, as the head of this file says. Sample i is of row i % R.
static double error_of(const ladder *l, int step) {
    const std::vector<float> y = to_host(l->y[step], (size_t)l->rows * (size_t)l->n);
    const size_t k = (size_t)l->k;
    double off = 0, size = 0;
    for (int i = 0; i < SAMPLED; i++) {
        const int row = i % l->rows;
        const float *x = &l->host_x[(size_t)row * k], *w = &l->host_w[(size_t)i * k];
        double want = 0;
        for (size_t j = 0; j < k; j++) want += (double)x[j] * (double)w[j];
        const double got = (double)y[(size_t)row * (size_t)l->n + (size_t)l->sampled[(size_t)i]];
        off += (got - want) * (got - want);
        size += want * want;
    }
    return sqrt(off / size);
}

static void describe(const ladder *l, int step, std::string *what, std::string *order) {
    static const char *const texts[STEPS + 1][2] = {
        {"", ""},
        {"one thread an output", "k ascending"},
        {"one warp an output", "every 32nd k, lanes by butterfly"},
        {"tile in shared memory", "k ascending"},
        {"copies of 16 bytes", "k ascending"},
        {"tensor cores (mma)", "by 16, ascending"},
        {"ring of copies (cp.async)", "by 16, ascending"},
        {"llm42__k_matmul ", "by 16, ascending"},
        {"step 6, k cut in two (split-K)", "by 16, ascending; then two halves"},
        {"cuBLASLt, its first choice", "its own; split-K "},
    };
    *what = texts[step][0], *order = texts[step][1];
    if (step == LIBRARY) *what += l->tile->name;
    if (step == CUBLAS) *order += std::to_string(l->cublas.parts);
}

// All steps for one number of rows: a line each, and what must hold.
static void climb(ladder *l, FILE *tsv) {
    char letter[STEPS + 1];
    choose_tile(l);
    choose_cublas(l);
    for (int step = 1; step <= STEPS; step++) {
        CU(cudaMemset(l->y[step], 0xff, (size_t)l->rows * (size_t)l->n * sizeof(bf16)));  // not numbers
        measured m = {};
        m.rows = l->rows, m.step = step, m.ms = median_ms([&] { launch(l, step); }), m.error = error_of(l, step);
        m.gb_per_s = 2e-6 * (double)l->n * (double)l->k / m.ms, m.reading = l->read_gb_per_s;
        m.letter = letter[step] = letter_of(l->y, letter, step, l->rows, (size_t)l->n, l->word);
        describe(l, step, &m.what, &m.order);
        print_step(tsv, m);
    }
    check(letter[TILE] == letter[THREAD], l->rows, "steps 1 and 3 have one order and differ in bits");
    check(letter[PIECES] == letter[THREAD], l->rows, "steps 1 and 4 have one order and differ in bits");
    check(letter[RING] == letter[MMA], l->rows, "steps 5 and 6 have one order and differ in bits");
    check(letter[LIBRARY] == letter[MMA], l->rows, "steps 5 and 7 have one order and differ in bits");
    check(letter[SPLIT] != letter[MMA], l->rows, "the control: steps 5 and 8 have two orders and the same bits");
}

int main(int argc, char **argv) {
    options o;
    ladder l = {};
    parse(
        argc, argv, "Times one matrix product in nine steps, and compares their bits.",
        {{"--rows", "--rows R,R,...  numbers of rows, 1 to 256 (default 1,8,64)", 1, 256, 1, nullptr, &o.rows, nullptr},
         {"--n", "--n N           outputs of a row, a multiple of 64 from 256 (default 4096)", 256, 1 << 17, 64, &o.n,
          nullptr, nullptr},
         {"--k", "--k K           terms of an output, a multiple of 256 from 2048 (default 14336)", 2048, 1 << 16, 256,
          &o.k, nullptr, nullptr},
         {"--tsv", "--tsv FILE      the table goes there too", 0, 0, 0, nullptr, nullptr, &o.tsv}});
    l.device = open_device();
    FILE *tsv = open_tsv(o.tsv);
    open_ladder(&l, &o);
    char what[256];
    snprintf(what, sizeof what, "# cuda cublasLt: %zu\n# n: %d\n# k: %d\n# copies of w: %d\n# reading: %.1f GB/s\n",
             cublasLtGetVersion(), l.n, l.k, l.copies, l.read_gb_per_s);
    print_head(tsv, &l.device, what);
    print_columns(tsv, "weights");
    for (int rows : o.rows) {
        l.rows = rows;
        climb(&l, tsv);
    }
    close_ladder(&l);
    close_tsv(tsv, o.tsv);
    return end();
}
