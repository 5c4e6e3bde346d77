// kernels.cu: the CUDA backend's kernels and their launchers. Included by llm42.cu.
//
// Shape legend: R rows, D model width, H query heads, K kv heads, d head size, F feed-forward width, V vocabulary, T
// context tokens, E experts. Every kernel says in which order it sums and what that order depends on. No floating-point
// atomics; the only atomics count arrivals. Compiled with -fmad=false: a fused multiply-add is one that is written.
//
// Sums over k of a matrix product run through the tensor cores in steps of 16, in ascending order, into one fp32
// accumulator: "the sequential order". Widths are padded to multiples of 64 with zeros, which changes no sum.

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

typedef __nv_bfloat16 llm42__bf16;

#define LLM42__CU_MIN(a, b) ((a) < (b) ? (a) : (b))
#define LLM42__CU_MAX(a, b) ((a) > (b) ? (a) : (b))

// >>primitives ---------------------------------------------------------------------------------------------------

// Programmatic dependent launch (sm_90): a kernel may start while the one before it drains; what it reads of that one's
// output comes after llm42__wait(), and never by way of the read-only cache (no __restrict__ on it). Earlier devices
// run kernels one after another and need neither.
__device__ __forceinline__ void llm42__wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void llm42__let_next_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ uint32_t llm42__shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

// 16 bytes from global to shared memory, behind the thread's back; zeros if !valid.
__device__ __forceinline__ void llm42__copy16(uint32_t to, const void *from, bool valid) {
    int bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}
__device__ __forceinline__ void llm42__copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> __device__ __forceinline__ void llm42__copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

// Four 8x8 tiles of 16-bit values; lane i gives the address of row i % 8 of tile i / 8.
__device__ __forceinline__ void llm42__load_tiles(uint32_t r[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}
__device__ __forceinline__ void llm42__load_tiles_transposed(uint32_t r[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

// c[16 x 8] += a[16 x 16] b[16 x 8]. Lane (g = lane / 4, t = lane % 4) holds c of rows g and g + 8, columns 2t and 2t
// + 1.
__device__ __forceinline__ void llm42__mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ float llm42__rounded(float x) { return __bfloat162float(__float2bfloat16_rn(x)); }

__device__ __forceinline__ uint32_t llm42__pack(float low, float high) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&pair);
}

__device__ __forceinline__ float llm42__exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// silu(gate) x up from bf16 values: the same in every kernel that does it.
__device__ __forceinline__ float llm42__gated(float gate, float up) {
    gate = llm42__rounded(gate);
    return __fdividef(gate, 1.0f + llm42__exp2(gate * -1.44269504f)) * llm42__rounded(up);
}

// Byte offset of 16-byte piece `piece` of row `row` in a shared tile with rows of 128 bytes: pieces are exchanged
// within a row so that eight rows' same piece lies in eight different banks.
__device__ __forceinline__ uint32_t llm42__swizzle(int row, int piece) {
    return (uint32_t)(row * 128 + ((piece ^ (row & 7)) << 4));
}

// Starts a kernel that may begin before the one ahead of it in the stream has ended.
template <typename... PARAMS, typename... ARGS>
static cudaError_t llm42__launch(void (*kernel)(PARAMS...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                                 ARGS... args) {
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = &early;
    int device = 0, major = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    config.numAttrs = major >= 9 ? 1 : 0;
    return cudaLaunchKernelEx(&config, kernel, static_cast<PARAMS>(args)...);
}

// >>matmul -------------------------------------------------------------------------------------------------------
// Rows of a grouped product (a mixture's experts): rows offset[e] <= r < offset[e + 1] meet expert e's weights.
typedef struct llm42__groups {
    const int32_t *offset;  // [E + 1]; NULL: one matrix for all rows
    const int32_t *source;  // row of x behind row r; NULL: r itself
    int experts;
} llm42__groups;

// y[R, N] = x[R, k] w[N, k]^T; GATED: pairs of eight gate and eight up outputs become eight of silu(gate) x up, y[R,
// N/2]. Work: a warp takes 16 outputs and TILES x 8 rows, a block WARPS of those with their rows in common; blockIdx.y
// counts row tiles. w and x stream through a ring of STAGES pieces of shared memory, CHUNK terms long. Blocks stride
// over the outputs without draining it. w is fetched before the kernel that makes x has ended. Order: the sequential
// order; depends on k alone, so it is the same for every R and every choice of the template's numbers.
template <int TILES, int WARPS, int CHUNK, int STAGES, bool GATED, typename OUT>
__global__ void __launch_bounds__(WARPS * 32)
    llm42__k_matmul(const llm42__bf16 *__restrict__ x, const llm42__bf16 *__restrict__ w, OUT *__restrict__ y, int rows,
                    int n, int k, llm42__groups groups) {
    extern __shared__ __align__(128) unsigned char shared[];
    enum {
        ROW = CHUNK * 2,
        PIECES = CHUNK / 8,
        W_BYTES = WARPS * 16 * ROW,
        X_BYTES = TILES * 8 * ROW,
        STAGE = W_BYTES + X_BYTES,
        THREADS = WARPS * 32,
        W_ROWS = THREADS / PIECES
    };
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, blocks = n / (16 * WARPS),
              stride = gridDim.x;
    const uint32_t ring = llm42__shared_address(shared);
    int row0 = blockIdx.y * (TILES * 8), row_end = rows;
    if (groups.offset) {  // find the expert and the rows of this row tile
        llm42__wait();
        int tile = blockIdx.y, e = 0;
        for (; e < groups.experts; e++) {
            int tiles = (groups.offset[e + 1] - groups.offset[e] + TILES * 8 - 1) / (TILES * 8);
            if (tile < tiles) break;
            tile -= tiles;
        }
        if (e == groups.experts) return;
        row0 = groups.offset[e] + tile * TILES * 8;
        row_end = groups.offset[e + 1];
        w += (size_t)e * n * k;
    }
    const int my_row = thread / PIECES,
              piece = thread % PIECES;  // what this thread copies first; W_ROWS further down the next
    const llm42__bf16 *w_from = w + ((size_t)blockIdx.x * 16 * WARPS + my_row) * k + piece * 8;
    const uint32_t my_place = (uint32_t)(my_row * ROW);
    int w_block = blockIdx.x, w_k = 0, w_stage = 0, x_block = blockIdx.x, x_k = 0, x_stage = 0;
    auto load_w = [&]() {
        if (w_block >= blocks) return;
        uint32_t to = ring + (uint32_t)(w_stage * STAGE) + my_place;
#pragma unroll
        for (int i = 0; i < WARPS * 16 / W_ROWS; i++) {
            int row = my_row + i * W_ROWS;
            llm42__copy16(to + (uint32_t)(i * W_ROWS * ROW) + (uint32_t)((piece ^ (row & 7)) << 4),
                          w_from + (size_t)i * W_ROWS * k, CHUNK == 64 || w_k + piece * 8 < k);
        }
        w_from += CHUNK;
        w_k += CHUNK;
        if (++w_stage == STAGES) w_stage = 0;
        if (w_k < k) return;
        w_block += stride;
        w_from += (size_t)stride * 16 * WARPS * k - w_k;
        w_k = 0;
    };
    auto load_x = [&]() {
        if (x_block >= blocks) return;
        uint32_t to = ring + (uint32_t)(x_stage * STAGE) + W_BYTES;
#pragma unroll
        for (int i = 0; i < (TILES * 8 + W_ROWS - 1) / W_ROWS; i++) {
            int place = my_row + i * W_ROWS, row = row0 + place;
            if (TILES * 8 % W_ROWS != 0 && place >= TILES * 8) break;
            bool valid = row < row_end && (CHUNK == 64 || x_k + piece * 8 < k);
            size_t source = !valid ? 0 : groups.source ? groups.source[row] : row;
            llm42__copy16(to + (uint32_t)(place * ROW) + (uint32_t)((piece ^ (place & 7)) << 4),
                          x + source * k + (valid ? x_k + piece * 8 : 0), valid);
        }
        x_k += CHUNK;
        if (++x_stage == STAGES) x_stage = 0;
        if (x_k < k) return;
        x_block += stride;
        x_k = 0;
    };
    for (int s = 0; s < STAGES - 1; s++) load_w();
    llm42__let_next_start();
    if (!groups.offset) llm42__wait();
    for (int s = 0; s < STAGES - 1; s++) {
        load_x();
        llm42__copy_commit();
    }
    float sum[TILES][4] = {};
    int stage = 0;
    const uint32_t a_row = (uint32_t)((warp * 16 + lane % 16) * ROW), b_row = (uint32_t)(W_BYTES + lane % 8 * ROW);
    for (int block = blockIdx.x; block < blocks; block += stride) {
        for (int k0 = 0; k0 < k; k0 += CHUNK) {
            llm42__copy_wait<STAGES - 2>();
            __syncthreads();  // everyone's copies of this stage have landed, and everyone has left the stage that is
                              // filled next
            load_w();
            load_x();
            llm42__copy_commit();
            const uint32_t at = ring + (uint32_t)(stage * STAGE);
            if (++stage == STAGES) stage = 0;
#pragma unroll
            for (int pair = 0; pair < CHUNK / 32; pair++) {  // of steps of 16
                uint32_t a[2][4], b[4];
                llm42__load_tiles(a[0], at + a_row + (uint32_t)(((4 * pair + lane / 16) ^ (lane & 7)) << 4));
                llm42__load_tiles(a[1], at + a_row + (uint32_t)(((4 * pair + 2 + lane / 16) ^ (lane & 7)) << 4));
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                    llm42__load_tiles(b, at + b_row + (uint32_t)(t * 8 * ROW) +
                                             (uint32_t)(((4 * pair + lane / 8) ^ (lane & 7)) << 4));
                    llm42__mma(sum[t], a[0], b[0], b[1]);
                    llm42__mma(sum[t], a[1], b[2], b[3]);
                }
            }
        }
        const size_t n0 = (size_t)block * 16 * WARPS + (size_t)warp * 16 + lane / 4;
#pragma unroll
        for (int t = 0; t < TILES; t++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int row = row0 + t * 8 + lane % 4 * 2 + i;
                float first = sum[t][i], second = sum[t][2 + i];
                sum[t][i] = sum[t][2 + i] = 0.0f;
                if (row >= row_end) continue;
                if (GATED) {
                    y[(size_t)row * (n / 2) + (n0 - lane / 4) / 2 + lane / 4] = (OUT)llm42__gated(first, second);
                } else {
                    y[(size_t)row * n + n0] = (OUT)first;
                    y[(size_t)row * n + n0 + 8] = (OUT)second;
                }
            }
        }
    }
}

// What a build of llm42__k_matmul looks like. blocks: resident blocks for each multiprocessor that the launcher asks
// for.
typedef cudaError_t llm42__tile_fn(const llm42__bf16 *x, const llm42__bf16 *w, void *y, int rows, int n, int k,
                                   llm42__groups groups, int processors, cudaStream_t stream);
typedef struct llm42__tile_kind {
    const char *name;
    int rows, outputs, bytes;  // of a block; shared memory it takes
    llm42__tile_fn *plain, *gated, *fp32;
} llm42__tile_kind;

template <int TILES, int WARPS, int CHUNK, int STAGES, int RESIDENT, bool GATED, typename OUT>
static cudaError_t llm42__cu_matmul(const llm42__bf16 *x, const llm42__bf16 *w, void *y, int rows, int n, int k,
                                    llm42__groups groups, int processors, cudaStream_t stream) {
    auto kernel = llm42__k_matmul<TILES, WARPS, CHUNK, STAGES, GATED, OUT>;
    const int bytes = STAGES * (WARPS * 16 + TILES * 8) * CHUNK * 2;
    cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
    int tiles = (rows + TILES * 8 - 1) / (TILES * 8) + (groups.offset ? groups.experts : 0);
    int all = n / (16 * WARPS), most = LLM42__CU_MAX(1, processors * RESIDENT / tiles),
        rounds = (all + most - 1) / most;
    return llm42__launch(kernel, dim3((all + rounds - 1) / rounds, tiles), dim3(WARPS * 32), bytes, stream, x, w,
                         (OUT *)y, rows, n, k, groups);
}

// The kinds that a plan is chosen from. All give the same bits. The last one fits every device and any number of rows.
#define LLM42__TILE_KIND(T, W, C, S, RESIDENT)                                      \
    {                                                                               \
        "tile" #T "x" #W "x" #C "x" #S, T * 8, W * 16, S *(W * 16 + T * 8) * C * 2, \
            llm42__cu_matmul<T, W, C, S, RESIDENT, false, llm42__bf16>,             \
            llm42__cu_matmul<T, W, C, S, RESIDENT, true, llm42__bf16>,              \
            llm42__cu_matmul<T, W, C, S, RESIDENT, false, float>                    \
    }
static const llm42__tile_kind llm42__tile_kinds[] = {
    LLM42__TILE_KIND(1, 2, 512, 4, 1), LLM42__TILE_KIND(1, 4, 256, 4, 1), LLM42__TILE_KIND(1, 2, 256, 4, 2),
    LLM42__TILE_KIND(1, 2, 128, 8, 2), LLM42__TILE_KIND(2, 2, 512, 4, 1), LLM42__TILE_KIND(2, 4, 256, 4, 1),
    LLM42__TILE_KIND(2, 2, 256, 4, 2), LLM42__TILE_KIND(2, 2, 128, 8, 2), LLM42__TILE_KIND(4, 2, 256, 5, 1),
    LLM42__TILE_KIND(4, 4, 128, 4, 2), LLM42__TILE_KIND(8, 4, 128, 4, 1), LLM42__TILE_KIND(8, 4, 64, 4, 2)};
#undef LLM42__TILE_KIND
enum { LLM42__TILE_KINDS = sizeof llm42__tile_kinds / sizeof *llm42__tile_kinds };

// >>weights ------------------------------------------------------------------------------------------------------
// splitmix64's finaliser, as llm42.h has it.
__device__ __forceinline__ uint64_t llm42__mixed(uint64_t x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

__device__ __forceinline__ float llm42__noise(uint64_t key, uint64_t i) {
    uint64_t h = llm42__mixed(key ^ i * 0x9e3779b97f4a7c15ull);
    int sum = (int)(h & 0xffff) + (int)(h >> 16 & 0xffff) + (int)(h >> 32 & 0xffff) + (int)(h >> 48);
    return __fmul_rn((float)(sum - 131070), 1.0f / 37837.0f);
}

// Where row r of a matrix goes on the device: plain, or gate and up in turns of eight rows.
enum { LLM42__PLAIN = 0, LLM42__GATE = 1, LLM42__UP = 2 };
__device__ __forceinline__ size_t llm42__placed(size_t r, int turn) {
    return turn == LLM42__PLAIN ? r : r / 8 * 16 + r % 8 + (turn == LLM42__UP ? 8 : 0);
}

// Rows r0 <= r < r0 + count of a matrix [n, k] into its place with rows of `stride`. from: bf16 or fp32 values, or
// NULL: made from (key, scale). Padding stays as it is (zero). Work: a thread an element. No sums.
__global__ void llm42__k_place(llm42__bf16 *to, int stride, int turn, const void *from, bool fp32, size_t r0,
                               size_t count, int k, uint64_t key, float scale) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count * k; i += (size_t)gridDim.x * blockDim.x) {
        size_t r = r0 + i / k, c = i % k;
        float value = !from ? __fmul_rn(scale, llm42__noise(key, r * k + c)) : fp32 ? ((const float *)from)[i] : 0.0f;
        to[llm42__placed(r, turn) * stride + c] = from && !fp32 ? ((const llm42__bf16 *)from)[i]
                                                                : __float2bfloat16_rn(value);
    }
}

// Adds lead x the embedding of token t to the head's row of its successor. Work: a block a token. No sums.
__global__ void llm42__k_lead(llm42__bf16 *head, const llm42__bf16 *embed, int vocab, int stride, int width,
                              float lead) {
    size_t t = blockIdx.x, to = (5 * t + 1) % vocab;
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        head[to * stride + i] = __float2bfloat16_rn(
            fmaf(lead, __bfloat162float(embed[t * stride + i]), __bfloat162float(head[to * stride + i])));
}

// Noise, for tests of plans and for ceilings.
__global__ void llm42__k_fill(llm42__bf16 *to, size_t count, uint64_t key, float scale) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        to[i] = __float2bfloat16_rn(scale * llm42__noise(key, i));
}

// Rows whose sums nearly cancel, so that another order of summing shows in almost every output that is rounded to bf16:
// the second half of a row of w repeats the first, and that of x is its negative, but for the last bit. Work: a thread
// an element. No sums.
__global__ void llm42__k_fill_cancelling(llm42__bf16 *to, size_t rows, int k, uint64_t key, bool negate) {
    const size_t half = (size_t)k / 2;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < rows * k; i += (size_t)gridDim.x * blockDim.x) {
        size_t row = i / k, column = i % k, at = row * half + column % half;
        __nv_bfloat16_raw value = __float2bfloat16_rn(llm42__noise(key, at));
        if (negate && column >= half) value.x ^= 0x8000u | (unsigned short)(llm42__mixed(key + at) & 1);
        to[i] = value;
    }
}

// Counts 16-bit words of y[r] that differ from those of other[(r + shift) % rows] (an integer count: its order does not
// matter).
__global__ void llm42__k_differ(const uint16_t *y, const uint16_t *other, int rows, size_t width, int shift,
                                unsigned *count) {
    unsigned mine = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < rows * width;
         i += (size_t)gridDim.x * blockDim.x)
        mine += y[i] != other[(i / width + shift) % rows * width + i % width];
    if (mine) atomicAdd(count, mine);
}

// Moves rows of x [rows, width] on by `shift`, around.
__global__ void llm42__k_turn(const llm42__bf16 *x, llm42__bf16 *to, int rows, int width, int shift) {
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        to[(size_t)((blockIdx.x + shift) % rows) * width + i] = x[(size_t)blockIdx.x * width + i];
}

// Reads `count` words of 16 bytes and keeps nothing: the ceiling of reading.
__global__ void __launch_bounds__(512) llm42__k_read(const uint4 *from, size_t count, unsigned *never) {
    unsigned sum = 0;
    size_t stride = (size_t)gridDim.x * blockDim.x, i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    for (; i + 7 * stride < count; i += 8 * stride) {
        uint4 v[8];
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = __ldcs(from + i + j * stride);
#pragma unroll
        for (int j = 0; j < 8; j++) sum ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
    }
    if (sum == 0x12345678u) *never = sum;
}

// >>pass ---------------------------------------------------------------------------------------------------------
// What the host sends ahead of a pass: one block of memory whose parts lie where the pass's padded row count says.
typedef struct llm42__tile_task {
    int32_t row, rows, first, end;
} llm42__tile_task;                 // rows of one sequence; keys first <= t < end
typedef struct llm42__split_task {  // one row; units of keys from begin on, up to LLM42__SPLIT_WARPS of them
    int32_t row, begin, end, unit, first_unit, units, slot,
        pad;  // unit: keys; units: of the row; slot: of its first partial
} llm42__split_task;
typedef struct llm42__draw {
    int32_t row, top_k;
    float temperature, top_p, min_p;
    int32_t position;
    uint64_t seed;
} llm42__draw;
typedef struct llm42__header {
    int32_t rows, tile_tasks, split_tasks, draws, page_stride, pad[3];
} llm42__header;
typedef struct llm42__meta {
    const llm42__header *header;
    const int32_t *token, *position, *slot,
        *seq;  // slot: page x page_size + place, where the row's KV goes; -1: nowhere
    const llm42__draw *draw;
    const llm42__tile_task *tile;
    const llm42__split_task *split;
    const int32_t *pages;  // [sequences, page_stride]
    int page_shift;
} llm42__meta;

// Sum over a block, the same bits in every thread: lanes by butterfly, then warps in ascending order. shared: 32
// floats.
__device__ __forceinline__ float llm42__block_sum(float value, float *shared) {
#pragma unroll
    for (int i = 16; i; i >>= 1) value += __shfl_xor_sync(0xffffffffu, value, i);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < (int)blockDim.x / 32; i++) sum += shared[i];
    return sum;
}

// Shapes: x [R, D] (bf16, the residual stream); delta [R, D] is added first, or x is the embedding of the row's token;
// h [R, D] = x / sqrt(mean(x^2) + eps) x weight. Work: a block a row, a thread eight elements at a time. Order: a
// thread's elements ascending, then llm42__block_sum; depends on D alone. draws: h row i is of draw i's row, and x
// stays.
enum { LLM42__EMBED, LLM42__ADD, LLM42__ADD_DRAWS };
template <int KIND>
__global__ void llm42__k_norm(llm42__bf16 *x, const llm42__bf16 *delta, const float *__restrict__ weight,
                              llm42__bf16 *h, llm42__meta meta, int width, int stride, float eps) {
    __shared__ float shared[32];
    const bool early = gridDim.x <= 64;  // few rows wait for one another; many are better off with the registers
    float4 w[4][2];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int at = (threadIdx.x + i * blockDim.x) * 8;
        if (at >= stride || !early) break;
        w[i][0] = *(const float4 *)(weight + at);
        w[i][1] = *(const float4 *)(weight + at + 4);
    }
    llm42__let_next_start();
    llm42__wait();
    size_t row = blockIdx.x, from = row;
    if (KIND == LLM42__EMBED) from = (size_t)meta.token[row];
    if (KIND == LLM42__ADD_DRAWS) row = (int)blockIdx.x < meta.header->draws ? (size_t)meta.draw[blockIdx.x].row : 0;
    uint4 piece[4], other;  // up to 4 x 8 x 1024 elements
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int at = (threadIdx.x + i * blockDim.x) * 8;
        if (at >= stride) break;
        piece[i] = *(const uint4 *)(KIND == LLM42__EMBED ? delta + from * stride + at : x + row * stride + at);
        __nv_bfloat162 *p = (__nv_bfloat162 *)&piece[i];
        if (KIND != LLM42__EMBED) {
            other = *(const uint4 *)(delta + row * stride + at);
            const __nv_bfloat162 *o = (const __nv_bfloat162 *)&other;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float2 a = __bfloat1622float2(p[j]), b = __bfloat1622float2(o[j]);
                p[j] = __floats2bfloat162_rn(a.x + b.x, a.y + b.y);
            }
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 a = __bfloat1622float2(p[j]);
            sum = fmaf(a.x, a.x, sum);
            sum = fmaf(a.y, a.y, sum);
        }
        if (KIND != LLM42__ADD_DRAWS) *(uint4 *)(x + row * stride + at) = piece[i];
    }
    sum = llm42__block_sum(sum, shared);
    float scale = __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(sum, (float)width) + eps)) +
                  (sum - sum);  // overflow becomes NaN
    if (KIND == LLM42__ADD_DRAWS) row = blockIdx.x;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int at = (threadIdx.x + i * blockDim.x) * 8;
        if (at >= stride) break;
        __nv_bfloat162 *p = (__nv_bfloat162 *)&piece[i];
        if (!early) w[i][0] = *(const float4 *)(weight + at), w[i][1] = *(const float4 *)(weight + at + 4);
        const float *v = (const float *)w[i];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 a = __bfloat1622float2(p[j]);
            p[j] = __floats2bfloat162_rn(a.x * scale * v[2 * j], a.y * scale * v[2 * j + 1]);
        }
        *(uint4 *)(h + row * stride + at) = piece[i];
    }
}

typedef struct llm42__heads {
    int heads, kv_heads, head_dim, qkv_stride;   // qkv [R, stride]: q, k, v side by side
    bool interleaved;                            // rope pairs (2i, 2i + 1)
    const float *bias, *q_norm, *k_norm, *rope;  // [(H + 2K) d] [d] [d], NULL where there is none; rope [T][d / 2][2]
    float eps;
} llm42__heads;

// The metadata of a pass is there before its first kernel starts, so that a kernel may read it before llm42__wait().
//
// Shapes: qkv [R, (H + 2K) d] -> q [R, H, DP] rotated, DP being d padded with zeros, and one layer of the cache [slots,
// K, DP]. Work: a warp a head of a row. Order (head norms): a lane's elements ascending, lanes by butterfly; depends on
// d alone.
template <int DP>
__global__ void __launch_bounds__(256) llm42__k_rope(const llm42__bf16 *qkv, llm42__bf16 *q, llm42__bf16 *k_cache,
                                                     llm42__bf16 *v_cache, llm42__heads a, llm42__meta meta) {
    const int row = blockIdx.x, head = blockIdx.y * 8 + threadIdx.x / 32, lane = threadIdx.x % 32, d = a.head_dim,
              half = d / 2;
    llm42__let_next_start();
    if (head >= a.heads + 2 * a.kv_heads) return;
    const bool is_q = head < a.heads, is_k = !is_q && head < a.heads + a.kv_heads;
    const int kv_head = head - a.heads - (is_k ? 0 : a.kv_heads), slot = row < meta.header->rows ? meta.slot[row] : -1;
    llm42__bf16 *to = is_q ? q + ((size_t)row * a.heads + head) * DP
                           : (is_k ? k_cache : v_cache) + ((size_t)(slot < 0 ? 0 : slot) * a.kv_heads + kv_head) * DP;
    if (!is_q && slot < 0) return;
    const llm42__bf16 *from = qkv + (size_t)row * a.qkv_stride + (size_t)head * d;
    enum { PAIRS = DP / 2 > 32 ? DP / 64 : 1 };
    float x[PAIRS][2];
    float2 turn[PAIRS];  // cosine and sine
    const float2 *angle = (const float2 *)(a.rope + (size_t)(row < meta.header->rows ? meta.position[row] : 0) * d);
#pragma unroll
    for (int i = 0; i < PAIRS; i++) turn[i] = lane + i * 32 < half ? angle[lane + i * 32] : float2{1.0f, 0.0f};
    llm42__wait();
    const float *norm = is_q ? a.q_norm : is_k ? a.k_norm : nullptr;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        int pair = lane + i * 32, first = a.interleaved ? 2 * pair : pair,
            second = a.interleaved ? first + 1 : pair + half;
        if (pair >= half) break;
        x[i][0] = __bfloat162float(from[first]);
        x[i][1] = __bfloat162float(from[second]);
        if (a.bias) {
            x[i][0] = llm42__rounded(x[i][0] + a.bias[head * d + first]);
            x[i][1] = llm42__rounded(x[i][1] + a.bias[head * d + second]);
        }
        sum = fmaf(x[i][0], x[i][0], sum);
        sum = fmaf(x[i][1], x[i][1], sum);
    }
    float scale = 1.0f;
    if (norm) {
#pragma unroll
        for (int i = 16; i; i >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, i);
        scale = __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(sum, (float)d) + a.eps)) + (sum - sum);
    }
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        int pair = lane + i * 32, first = a.interleaved ? 2 * pair : pair,
            second = a.interleaved ? first + 1 : pair + half;
        if (pair >= half) break;
        if (norm) {
            x[i][0] = llm42__rounded(x[i][0] * scale * norm[first]);
            x[i][1] = llm42__rounded(x[i][1] * scale * norm[second]);
        }
        if (is_q || is_k) {
            float cosine = turn[i].x, sine = turn[i].y, p = x[i][0], s = x[i][1];
            x[i][0] = fmaf(p, cosine, -(s * sine));
            x[i][1] = fmaf(s, cosine, p * sine);
        }
        to[first] = __float2bfloat16_rn(x[i][0]);
        to[second] = __float2bfloat16_rn(x[i][1]);
    }
    for (int i = d + lane; i < DP; i += 32) to[i] = __float2bfloat16_rn(0.0f);
}

// Shapes: y [R, 2F], gate and up in turns of eight -> out [R, F]. Work: a thread eight outputs. No sums.
__global__ void __launch_bounds__(256) llm42__k_gate(const llm42__bf16 *y, llm42__bf16 *out, size_t count) {
    llm42__let_next_start();
    llm42__wait();
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= count) return;
    uint4 gate = ((const uint4 *)y)[2 * i], up = ((const uint4 *)y)[2 * i + 1], to;
    const __nv_bfloat162 *g = (const __nv_bfloat162 *)&gate, *u = (const __nv_bfloat162 *)&up;
    __nv_bfloat162 *o = (__nv_bfloat162 *)&to;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float2 a = __bfloat1622float2(g[j]), b = __bfloat1622float2(u[j]);
        o[j] = __floats2bfloat162_rn(llm42__gated(a.x, b.x), llm42__gated(a.y, b.y));
    }
    ((uint4 *)out)[i] = to;
}

// >>attention ----------------------------------------------------------------------------------------------------
// The one order: keys are taken in blocks of 32 from a position that 32 divides, by the tensor cores, with a running
// largest score (online softmax). Blocks make up units; each unit is summed on its own, and units are merged in
// ascending order. A block or unit that a row does not see at all changes none of its bits, so a result depends on the
// row's keys, where units begin and how long they are, never on the rows beside it. FIXED and INVARIANT: units of 128
// keys from position 0. FAST: chosen by load.

enum { LLM42__BLOCK_KEYS = 32, LLM42__UNIT_KEYS = 128, LLM42__SPLIT_WARPS = 4, LLM42__TILE_QUERIES = 64 };

// Offset in bytes of a 16-byte piece in a shared tile of keys with DP values a row, pieces exchanged to keep banks
// apart.
template <int DP> __device__ __forceinline__ uint32_t llm42__key_place(int row, int piece) {
    const int turn = DP >= 64 ? row & 7 : DP == 32 ? (row >> 1) & 3 : (row >> 2) & 1;
    return (uint32_t)(row * DP * 2 + ((piece ^ turn) << 4));
}

// What a warp has summed of sixteen queries: lane (g, t) holds rows g and g + 8 of out, whose columns lie as llm42__mma
// has them.
template <int DP> struct llm42__partial {
    float out[DP / 8][4], top[2], total[2];
    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < DP / 8; i++) out[i][0] = out[i][1] = out[i][2] = out[i][3] = 0.0f;
        top[0] = top[1] = -INFINITY;
        total[0] = total[1] = 0.0f;
    }
};

// Scores of 16 queries with the 32 keys of a shared tile: score[n] is of keys 8n .. 8n + 7, as llm42__mma has them.
template <int DP>
__device__ __forceinline__ void llm42__score(float (&score)[4][4], const uint32_t (&q)[DP / 16][4], uint32_t k_at) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < 4; n++) score[n][0] = score[n][1] = score[n][2] = score[n][3] = 0.0f;
#pragma unroll
    for (int kk = 0; kk < DP / 16; kk++)
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
            uint32_t b[4];
            llm42__load_tiles(b,
                              k_at + llm42__key_place<DP>(pair * 16 + lane / 16 * 8 + lane % 8, 2 * kk + lane / 8 % 2));
            llm42__mma(score[2 * pair], q[kk], b[0], b[1]);
            llm42__mma(score[2 * pair + 1], q[kk], b[2], b[3]);
        }
}

// Positions that a lane's rows g and g + 8 see, low <= t <= high, and those that every row of the warp sees.
typedef struct llm42__sight {
    int low[2], high[2], all_low, all_high;
} llm42__sight;

// Scores become weights e^(scale (score - top)), and what was summed so far is brought to the new top. scale: times
// log2(e).
template <int DP>
__device__ __forceinline__ void llm42__soften(llm42__partial<DP> &p, float (&score)[4][4], int t0,
                                              const llm42__sight &sight, float scale) {
    const int lane = threadIdx.x % 32;
    float top[2] = {p.top[0], p.top[1]}, fade[2];
    if (t0 < sight.all_low || t0 + 31 > sight.all_high) {
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int t = t0 + n * 8 + lane % 4 * 2 + i % 2;
                if (t < sight.low[i / 2] || t > sight.high[i / 2]) score[n][i] = -INFINITY;
            }
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
#pragma unroll
        for (int n = 0; n < 4; n++) top[r] = fmaxf(top[r], fmaxf(score[n][2 * r], score[n][2 * r + 1]));
        top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 1));
        top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 2));
        const float base = top[r] == -INFINITY ? 0.0f : top[r] * scale;
        float sum = 0;
        fade[r] = p.top[r] == top[r] ? 1.0f
                                     : llm42__exp2((p.top[r] - top[r]) * scale);  // a top that stays fades nothing
        p.top[r] = top[r];
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int i = 2 * r; i < 2 * r + 2; i++) {
                score[n][i] = llm42__exp2(fmaf(score[n][i], scale, -base));
                sum += score[n][i];
            }
        p.total[r] = fmaf(p.total[r], fade[r], sum);
    }
    if (__all_sync(0xffffffffu, fade[0] == 1.0f && fade[1] == 1.0f)) return;  // times one changes nothing
#pragma unroll
    for (int n = 0; n < DP / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) p.out[n][i] *= fade[i / 2];
}

// out += weights x the 32 values of a shared tile.
template <int DP>
__device__ __forceinline__ void llm42__gather(llm42__partial<DP> &p, const float (&weight)[4][4], uint32_t v_at) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int kk = 0; kk < 2; kk++) {
        uint32_t a[4] = {llm42__pack(weight[2 * kk][0], weight[2 * kk][1]),
                         llm42__pack(weight[2 * kk][2], weight[2 * kk][3]),
                         llm42__pack(weight[2 * kk + 1][0], weight[2 * kk + 1][1]),
                         llm42__pack(weight[2 * kk + 1][2], weight[2 * kk + 1][3])};
#pragma unroll
        for (int pair = 0; pair < DP / 16; pair++) {
            uint32_t b[4];
            llm42__load_tiles_transposed(b, v_at + llm42__key_place<DP>(kk * 16 + lane % 16, 2 * pair + lane / 16));
            llm42__mma(p.out[2 * pair], a, b[0], b[1]);
            llm42__mma(p.out[2 * pair + 1], a, b[2], b[3]);
        }
    }
}

// A unit's totals over the four lanes that share a row.
template <int DP> __device__ __forceinline__ void llm42__close_unit(llm42__partial<DP> &p) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        p.total[r] += __shfl_xor_sync(0xffffffffu, p.total[r], 1);
        p.total[r] += __shfl_xor_sync(0xffffffffu, p.total[r], 2);
    }
}

// How the sums so far (top, of scale `keep`) and a unit (unit_top, `take`) are weighed when they are merged.
__device__ __forceinline__ void llm42__weigh(float &top, float unit_top, float scale, float &keep, float &take) {
    float higher = fmaxf(top, unit_top), base = higher == -INFINITY ? 0.0f : higher;
    keep = llm42__exp2((top - base) * scale);
    take = llm42__exp2((unit_top - base) * scale);
    top = higher;
}

// One column of a query's units, `step` floats apart, merged in ascending order and divided by the total. OTHERS: other
// blocks wrote them during this kernel, so they are read past the L1 cache.
template <int DP, bool OTHERS>
__device__ __forceinline__ float llm42__merge_units(const float *unit, size_t step, int units, int column,
                                                    float scale) {
    auto read = [](const float *p) { return OTHERS ? __ldcg(p) : *p; };
    float top = read(unit + DP), total = read(unit + DP + 1), x = read(unit + column);
#pragma unroll 4
    for (int u = 1; u < units; u++) {
        unit += step;
        float keep, take, other_top = read(unit + DP), other_total = read(unit + DP + 1), other = read(unit + column);
        llm42__weigh(top, other_top, scale, keep, take);
        total = fmaf(total, keep, other_total * take);
        x = fmaf(x, keep, other * take);
    }
    return x * __fdiv_rn(1.0f, total);
}

typedef struct llm42__attention {
    const llm42__bf16 *q, *k, *v;                   // q [R, H, DP]; one layer of the cache [slots, K, DP]
    llm42__bf16 *out;                               // [R, stride], H x d used
    float *partial;                                 // [slots of units, K, queries of a kv head, DP + 2]
    unsigned *arrived;                              // [R, K], zero between passes
    int heads, kv_heads, head_dim, stride, window;  // window: 0, or positions that a row sees
    float scale;                                    // log2(e) / sqrt(d)
    int unit;                                       // tile kernel: keys in a unit; 0: all keys are one
} llm42__attention;

// Fragments of sixteen queries: rows that are not there are zeros. at(i): query i's q, or NULL.
template <int DP, typename AT> __device__ __forceinline__ void llm42__load_queries(uint32_t (&q)[DP / 16][4], AT at) {
    const int lane = threadIdx.x % 32;
    const llm42__bf16 *first = at(lane / 4), *second = at(lane / 4 + 8);
#pragma unroll
    for (int kk = 0; kk < DP / 16; kk++) {
        int column = kk * 16 + lane % 4 * 2;
        q[kk][0] = first ? *(const uint32_t *)(first + column) : 0;
        q[kk][1] = second ? *(const uint32_t *)(second + column) : 0;
        q[kk][2] = first ? *(const uint32_t *)(first + column + 8) : 0;
        q[kk][3] = second ? *(const uint32_t *)(second + column + 8) : 0;
    }
}

// Attention of rows that stand in a sequence one behind the other (replay windows, prompts).
// Work: a block takes up to 64 queries, i.e. rows x query heads of one kv head, a warp sixteen of them; blockIdx.y is
// the kv head; keys come in tiles of 64, the next on its way. Order: the one order; sums of closed units wait in shared
// memory, each thread's own.
template <int DP, bool UNITS>
__global__ void __launch_bounds__(128, 2) llm42__k_attend_tile(llm42__attention a, llm42__meta meta) {
    extern __shared__ __align__(128) unsigned char shared[];
    enum { KEYS = 64, PIECES = DP / 8, TILE = KEYS * DP * 2 };
    llm42__let_next_start();
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, group = a.heads / a.kv_heads,
              kv_head = blockIdx.y;
    const uint32_t ring = llm42__shared_address(shared);
    float *const closed = (float *)(shared + 4 * TILE) + thread;  // [DP / 2][128 threads]
    llm42__wait();
    for (int task_at = blockIdx.x; task_at < meta.header->tile_tasks; task_at += gridDim.x) {
        const llm42__tile_task task = meta.tile[task_at];
        const int32_t *pages = meta.pages + (size_t)meta.seq[task.row] * meta.header->page_stride;
        const int queries = task.rows * group, mask = (1 << meta.page_shift) - 1;
        // A lane looks up two keys of a tile, a tile ahead; a warp copies sixteen keys, which its own lanes have looked
        // up.
        enum { KEYS_AT_ONCE = 32 / PIECES > 0 ? 32 / PIECES : 1, ROUNDS = KEYS / 4 / KEYS_AT_ONCE };
        auto look_up = [&](int t0) {
            int t = t0 + warp * (KEYS / 4) + lane % (KEYS / 4);
            return t < task.end ? (pages[t >> meta.page_shift] << meta.page_shift) + (t & mask) : -1;
        };
        auto load = [&](int slots, int stage) {
            uint32_t to = ring + (uint32_t)(stage * 2 * TILE);
#pragma unroll
            for (int i = 0; i < ROUNDS; i++) {
                int mine = i * KEYS_AT_ONCE + lane / PIECES, key = warp * (KEYS / 4) + mine, piece = lane % PIECES;
                int slot = __shfl_sync(0xffffffffu, slots, mine);
                size_t from = ((size_t)(slot < 0 ? 0 : slot) * a.kv_heads + kv_head) * DP + piece * 8;
                llm42__copy16(to + llm42__key_place<DP>(key, piece), a.k + from, slot >= 0);
                llm42__copy16(to + TILE + llm42__key_place<DP>(key, piece), a.v + from, slot >= 0);
            }
            llm42__copy_commit();
        };
        __syncthreads();  // the last task's tiles have been read
        load(look_up(task.first), 0);
        int slots = look_up(task.first + KEYS);
        uint32_t q[DP / 16][4];
        llm42__load_queries<DP>(q, [&](int i) -> const llm42__bf16 * {
            i += warp * 16;
            return i < queries ? a.q + ((size_t)(task.row + i / group) * a.heads + kv_head * group + i % group) * DP
                               : nullptr;
        });
        llm42__sight sight;
        int highest = -1;
        sight.all_low = sight.all_high = 0;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int i = warp * 16 + lane / 4 + r * 8;
            sight.high[r] = i < queries ? meta.position[task.row + i / group] : -1;
            sight.low[r] = a.window ? LLM42__CU_MAX(0, sight.high[r] - a.window + 1) : 0;
        }
        if (warp * 16 < queries) {  // rows stand in ascending position
            highest = meta.position[task.row + LLM42__CU_MIN(queries - 1, warp * 16 + 15) / group];
            sight.all_high = meta.position[task.row + warp * 16 / group];
            sight.all_low = a.window ? LLM42__CU_MAX(0, highest - a.window + 1) : 0;
        }
        llm42__partial<DP> part;
        float top[2] = {-INFINITY, -INFINITY}, total[2] = {0.0f, 0.0f};  // of closed units
        part.clear();
        if (UNITS)
#pragma unroll
            for (int i = 0; i < DP / 2; i++) closed[i * 128] = 0.0f;
        int stage = 0;
        for (int t0 = task.first; t0 < task.end; t0 += KEYS, stage ^= 1) {
            llm42__copy_wait<0>();
            __syncthreads();  // this tile has landed for all; all have read the one that is overwritten next
            if (t0 + KEYS < task.end) load(slots, stage ^ 1);
            slots = look_up(t0 + 2 * KEYS);
            const uint32_t k_at = ring + (uint32_t)(stage * 2 * TILE), v_at = k_at + TILE;
            if (t0 <= highest) {  // the tile's second half may be out of sight: it changes nothing then
                float score[2][4][4];
                llm42__score<DP>(score[0], q, k_at);
                llm42__score<DP>(score[1], q, k_at + 32 * DP * 2);
                llm42__soften<DP>(part, score[0], t0, sight, a.scale);
                llm42__gather<DP>(part, score[0], v_at);
                llm42__soften<DP>(part, score[1], t0 + 32, sight, a.scale);
                llm42__gather<DP>(part, score[1], v_at + 32 * DP * 2);
            }
            if (UNITS && (t0 + KEYS) % LLM42__UNIT_KEYS == 0 && t0 + KEYS - LLM42__UNIT_KEYS <= highest) {
                llm42__close_unit(part);
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    float keep, take;
                    llm42__weigh(top[r], part.top[r], a.scale, keep, take);
                    total[r] = fmaf(total[r], keep, part.total[r] * take);
#pragma unroll
                    for (int n = 0; n < DP / 8; n++)
#pragma unroll
                        for (int i = 2 * r; i < 2 * r + 2; i++)
                            closed[(n * 4 + i) * 128] = fmaf(closed[(n * 4 + i) * 128], keep, part.out[n][i] * take);
                }
                part.clear();
            }
        }
        llm42__close_unit(part);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float keep = 0.0f, take = 1.0f;
            if (UNITS) llm42__weigh(top[r], part.top[r], a.scale, keep, take);
            float inverse = __fdiv_rn(1.0f, UNITS ? fmaf(total[r], keep, part.total[r] * take) : part.total[r]);
            int i = warp * 16 + lane / 4 + r * 8;
            if (i >= queries) continue;
            llm42__bf16 *to = a.out + (size_t)(task.row + i / group) * a.stride +
                              (size_t)(kv_head * group + i % group) * a.head_dim;
#pragma unroll
            for (int n = 0; n < DP / 8; n++) {
                int column = n * 8 + lane % 4 * 2;
                float x = part.out[n][2 * r], y = part.out[n][2 * r + 1];
                if (UNITS) {
                    x = fmaf(closed[(n * 4 + 2 * r) * 128], keep, x * take);
                    y = fmaf(closed[(n * 4 + 2 * r + 1) * 128], keep, y * take);
                }
                if (column < a.head_dim)
                    *(__nv_bfloat162 *)(to + column) = __floats2bfloat162_rn(x * inverse, y * inverse);  // d is even
            }
        }
    }
}

// Attention of rows that stand alone in their sequence (decode), split along the keys.
// Work: a block takes up to four units of one row, a warp one unit and all query heads of the kv head blockIdx.y; keys
// come in blocks of 32 through each warp's own rings, AHEAD blocks of values at a time (fewer: more blocks on a
// multiprocessor). The block that is last to arrive merges a row's units. Order: the one order.
template <int DP, int AHEAD>
__global__ void __launch_bounds__(128) llm42__k_attend_split(llm42__attention a, llm42__meta meta) {
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ bool is_last;
    enum { KEYS = 32, PIECES = DP / 8, TILE = KEYS * DP * 2, RECORD = DP + 2 };
    llm42__let_next_start();
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, group = a.heads / a.kv_heads,
              kv_head = blockIdx.y;
    const uint32_t k_ring = llm42__shared_address(shared) + (uint32_t)(warp * (2 + AHEAD) * TILE),
                   v_ring = k_ring + 2 * TILE;
    float *const record = (float *)shared;  // [units of the block, group, RECORD], once the rings are no longer needed
    llm42__wait();
    for (int task_at = blockIdx.x; task_at < meta.header->split_tasks; task_at += gridDim.x) {
        const llm42__split_task task = meta.split[task_at];
        const int32_t *pages = meta.pages + (size_t)meta.seq[task.row] * meta.header->page_stride;
        const int mask = (1 << meta.page_shift) - 1, position = meta.position[task.row];
        const int begin = task.begin + warp * task.unit, end = LLM42__CU_MIN(begin + task.unit, task.end);
        auto look_up = [&](int t0) {  // a lane a key, a block ahead
            int t = t0 + lane;
            return t < end ? (pages[t >> meta.page_shift] << meta.page_shift) + (t & mask) : -1;
        };
        auto load = [&](const llm42__bf16 *cache, uint32_t to, int slots, int t0) {
            if (t0 < end) {
#pragma unroll
                for (int i = 0; i < PIECES; i++) {
                    int at = i * 32 + lane, key = at / PIECES, piece = at % PIECES,
                        slot = __shfl_sync(0xffffffffu, slots, key);
                    size_t from = ((size_t)(slot < 0 ? 0 : slot) * a.kv_heads + kv_head) * DP + piece * 8;
                    llm42__copy16(to + llm42__key_place<DP>(key, piece), cache + from, slot >= 0);
                }
            }
            llm42__copy_commit();
        };
        int slots = look_up(begin), next_slots = look_up(begin + KEYS);
        load(a.k, k_ring, slots, begin);
        load(a.v, v_ring, slots, begin);
        uint32_t q[DP / 16][4];
        llm42__load_queries<DP>(q, [&](int i) -> const llm42__bf16 * {
            return i < group ? a.q + ((size_t)task.row * a.heads + kv_head * group + i) * DP : nullptr;
        });
        llm42__sight sight;
        sight.low[0] = sight.low[1] = sight.all_low = a.window ? LLM42__CU_MAX(0, position - a.window + 1) : 0;
        sight.high[0] = sight.high[1] = sight.all_high = position;
        llm42__partial<DP> part;
        part.clear();
        int stage = 0;
        for (int t0 = begin; t0 < end; t0 += KEYS, stage ^= 1) {
            float score[4][4];
            slots = next_slots;
            next_slots = look_up(t0 + 2 * KEYS);
            load(a.k, k_ring + (uint32_t)((stage ^ 1) * TILE), slots, t0 + KEYS);
            if (AHEAD == 2) load(a.v, v_ring + (uint32_t)((stage ^ 1) * TILE), slots, t0 + KEYS);
            llm42__copy_wait<AHEAD + 1>();  // younger: this block's values, the next one's keys (and values)
            __syncwarp();                   // this block's keys have landed for every lane
            llm42__score<DP>(score, q, k_ring + (uint32_t)(stage * TILE));
            llm42__soften<DP>(part, score, t0, sight, a.scale);
            llm42__copy_wait<AHEAD>();
            __syncwarp();  // and its values
            llm42__gather<DP>(part, score, v_ring + (uint32_t)(AHEAD == 2 ? stage * TILE : 0));
            __syncwarp();  // every lane has read both: they may be overwritten
            if (AHEAD == 1) load(a.v, v_ring, slots, t0 + KEYS);
        }
        llm42__copy_wait<0>();
        llm42__close_unit(part);
        const int chunk_units = LLM42__CU_MIN(LLM42__SPLIT_WARPS, task.units - task.first_unit);
        const bool alone = task.units <= LLM42__SPLIT_WARPS;
        __syncthreads();  // the rings are no longer needed
        float *to = alone ? record + (size_t)warp * group * RECORD
                          : a.partial + (((size_t)task.slot + warp) * a.kv_heads + kv_head) * group * RECORD;
        if (warp < chunk_units) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                int i = lane / 4 + r * 8;
                if (i >= group) continue;
#pragma unroll
                for (int n = 0; n < DP / 8; n++)
                    *(float2 *)(to + (size_t)i * RECORD + n * 8 + lane % 4 * 2) = float2{part.out[n][2 * r],
                                                                                         part.out[n][2 * r + 1]};
                if (lane % 4 == 0) *(float2 *)(to + (size_t)i * RECORD + DP) = float2{part.top[r], part.total[r]};
            }
        }
        if (!alone) {
            __threadfence();  // partials first, then the arrival that announces them
            __syncthreads();
            if (thread == 0) {
                unsigned *arrived = a.arrived + (size_t)task.row * a.kv_heads + kv_head;
                unsigned blocks = (unsigned)((task.units + LLM42__SPLIT_WARPS - 1) / LLM42__SPLIT_WARPS);
                is_last = atomicAdd(arrived, 1u) == blocks - 1;
                if (is_last) *arrived = 0;
                __threadfence();
            }
        }
        __syncthreads();
        const float *all = a.partial + ((size_t)(task.slot - task.first_unit) * a.kv_heads + kv_head) * group * RECORD;
        llm42__bf16 *out = a.out + (size_t)task.row * a.stride + (size_t)kv_head * group * a.head_dim;
        for (int at = thread; at < group * DP && (alone || is_last); at += 128) {
            int i = at / DP, column = at % DP;
            if (column >= a.head_dim) continue;
            out[(size_t)i * a.head_dim + column] = __float2bfloat16_rn(
                alone ? llm42__merge_units<DP, false>(record + (size_t)i * RECORD, (size_t)group * RECORD, task.units,
                                                      column, a.scale)
                      : llm42__merge_units<DP, true>(all + (size_t)i * RECORD, (size_t)a.kv_heads * group * RECORD,
                                                     task.units, column, a.scale));
        }
        __syncthreads();  // records have been read before the next task's keys come
    }
}

// >>sample -------------------------------------------------------------------------------------------------------
// exp and log as llm42.h has them, operation by operation, so that a draw's noise and weights are the CPU's to the bit.
__device__ __forceinline__ float llm42__exp_f32(float x) {
    float clamped = x < 88.0f ? x : 88.0f;
    clamped = clamped > -87.0f ? clamped : -87.0f;
    const float magic = 12582912.0f;
    float shifted = fmaf(clamped, 1.44269504f, magic);
    float n = __fsub_rn(shifted, magic);
    float f = fmaf(n, -0.693145752f, clamped);
    f = fmaf(n, -1.42860677e-6f, f);
    float p = 1.98412698e-4f;
    p = fmaf(p, f, 1.38888889e-3f);
    p = fmaf(p, f, 8.33333333e-3f);
    p = fmaf(p, f, 4.16666667e-2f);
    p = fmaf(p, f, 1.66666667e-1f);
    p = fmaf(p, f, 0.5f);
    p = fmaf(p, f, 1.0f);
    p = fmaf(p, f, 1.0f);
    float y = __uint_as_float(__float_as_uint(p) + ((__float_as_uint(shifted) - __float_as_uint(magic)) << 23));
    y = x < -87.0f ? 0.0f : y;
    return x == x ? y : x;
}

__device__ __forceinline__ float llm42__log_f32(float x) {
    uint32_t u = __float_as_uint(x);
    int32_t e = (int32_t)(u - 0x3f3504f3u) >> 23;
    float f = __fsub_rn(__uint_as_float(u - ((uint32_t)e << 23)), 1.0f);
    float s = __fdiv_rn(f, __fadd_rn(2.0f, f));
    float z = __fmul_rn(s, s);
    float p = 2.0f / 11.0f;
    p = fmaf(p, z, 2.0f / 9.0f);
    p = fmaf(p, z, 2.0f / 7.0f);
    p = fmaf(p, z, 2.0f / 5.0f);
    p = fmaf(p, z, 2.0f / 3.0f);
    float tail = fmaf((float)e, 1.42860677e-6f, __fmul_rn(__fmul_rn(s, z), p));
    float y = fmaf((float)e, 0.693145752f, fmaf(2.0f, s, tail));
    return x - x == 0 ? y : x;
}

__device__ __forceinline__ float llm42__gumbel(uint64_t key, int token) {
    uint64_t h = llm42__mixed(key ^ (uint64_t)token * 0x9e3779b97f4a7c15ull);
    float u = ((float)(h >> 41) + 0.5f) * (1.0f / 8388608.0f);
    return -llm42__log_f32(-llm42__log_f32(u));
}

// A key that sorts as the float does, NaN below everything.
__device__ __forceinline__ uint32_t llm42__sort_key(float x) {
    uint32_t u = __float_as_uint(x == 0.0f ? 0.0f : x);
    return x != x ? 0 : u & 0x80000000u ? ~u : u | 0x80000000u;
}

typedef struct llm42__best {
    float score;
    int id;
} llm42__best;  // the largest, the lowest id on a tie; id -1: none
__device__ __forceinline__ llm42__best llm42__better(llm42__best a, llm42__best b) {
    return b.id >= 0 && (a.id < 0 || b.score > a.score || (b.score == a.score && b.id < a.id)) ? b : a;
}
__device__ __forceinline__ llm42__best llm42__block_best(llm42__best mine, llm42__best *shared) {
#pragma unroll
    for (int i = 16; i; i >>= 1) {
        llm42__best other = {__shfl_xor_sync(0xffffffffu, mine.score, i), __shfl_xor_sync(0xffffffffu, mine.id, i)};
        mine = llm42__better(mine, other);
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = mine;
    __syncthreads();
    mine = shared[0];
    for (int i = 1; i < (int)blockDim.x / 32; i++) mine = llm42__better(mine, shared[i]);
    return mine;
}

// What top-k and top-p keep: every id whose key is above `key`, and the first `ties` ids that have it.
typedef struct llm42__kept {
    uint32_t key;
    int ties;
} llm42__kept;

// Weights are summed as integers, in units of 2^-40: such sums have no order.
__device__ __forceinline__ unsigned long long llm42__mass(float logit, float largest, float scale) {
    return (unsigned long long)((double)llm42__exp_f32(__fmul_rn(__fsub_rn(logit, largest), scale)) * 1099511627776.0);
}

// Largest key such that those above it hold less than `wanted` (ids if !by_mass, else mass), looked for byte by byte
// among ids that `within` keeps. Returns through *above what they hold. Everyone gets the same.
template <typename LOGIT>
__device__ uint32_t llm42__find_key(const LOGIT *logits, int vocab, bool by_mass, unsigned long long wanted,
                                    uint32_t floor_key, float largest, float scale, unsigned long long *bins,
                                    unsigned long long *above) {
    uint32_t prefix = 0;
    unsigned long long before = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < 258; i += blockDim.x) bins[i] = 0;
        __syncthreads();
        for (int id = threadIdx.x; id < vocab; id += blockDim.x) {
            float x = (float)logits[id];
            uint32_t key = llm42__sort_key(x);
            if (x != x || key < floor_key || (shift < 24 && key >> (shift + 8) != prefix >> (shift + 8))) continue;
            atomicAdd(&bins[key >> shift & 255], by_mass ? llm42__mass(x, largest, scale) : 1ull);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int bin = 255;
            unsigned long long sum = before;
            for (; bin > 0 && sum + bins[bin] < wanted; bin--) sum += bins[bin];
            bins[256] = (unsigned long long)bin;
            bins[257] = sum;
        }
        __syncthreads();
        prefix |= (uint32_t)bins[256] << shift;
        before = bins[257];
        __syncthreads();
    }
    *above = before;
    return prefix;
}

template <typename LOGIT>
__device__ llm42__kept llm42__filter(const LOGIT *logits, int vocab, const llm42__draw &d, float largest,
                                     unsigned long long *bins) {
    const float scale = __fdiv_rn(1.0f, d.temperature);
    llm42__kept kept = {0, vocab};
    unsigned long long above;
    bool nucleus = d.top_p > 0 && d.top_p < 1;
    if (d.top_k > 0 && d.top_k < vocab) {
        kept.key = llm42__find_key(logits, vocab, false, (unsigned long long)d.top_k, 0, largest, scale, bins, &above);
        kept.ties = d.top_k - (int)above;
    }
    if (!nucleus) return kept;
    // Mass of what top-k left; its ties weigh alike.
    if (threadIdx.x == 0) bins[0] = 0;
    __syncthreads();
    unsigned long long mine = 0;
    for (int id = threadIdx.x; id < vocab; id += blockDim.x) {
        float x = (float)logits[id];
        if (llm42__sort_key(x) > kept.key) mine += llm42__mass(x, largest, scale);
    }
    atomicAdd(&bins[0], mine);
    __syncthreads();
    unsigned long long total = bins[0];
    __syncthreads();
    float tie = __uint_as_float(kept.key & 0x80000000u ? kept.key & 0x7fffffffu : ~kept.key);
    if (kept.key) total += (unsigned long long)kept.ties * llm42__mass(tie, largest, scale);
    // The share is rounded as llm42_sample rounds it; its sum of weights is fp32 and may still end an id earlier or
    // later.
    float share = __fmul_rn(d.top_p, (float)((double)total / 1099511627776.0));
    unsigned long long wanted = (unsigned long long)ceil((double)share * 1099511627776.0);
    if (wanted < 1) wanted = 1;
    uint32_t key = llm42__find_key(logits, vocab, true, wanted, kept.key, largest, scale, bins, &above);
    tie = __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
    unsigned long long each = llm42__mass(tie, largest, scale);
    unsigned long long need = each ? (wanted - above + each - 1) / each : (unsigned long long)vocab;
    int most = key == kept.key ? kept.ties : vocab;
    kept.key = key;
    kept.ties = need < 1 ? 1 : need < (unsigned long long)most ? (int)need : most;
    return kept;
}

// Shapes: logits [S, stride] -> out [S]: token and log-probability of each draw. Work: a block of 1,024 threads a draw.
// Order: the largest has none; the sum of exponentials: a thread's ids ascending (8 side by side, 8,192 further on),
// then llm42__block_sum; depends on V alone.
template <typename LOGIT>
__global__ void __launch_bounds__(1024)
    llm42__k_draw(const LOGIT *all_logits, int vocab, int stride, llm42_output *out, llm42__meta meta, int first) {
    __shared__ float shared_sum[32];
    __shared__ llm42__best shared_best[32];
    __shared__ unsigned long long bins[258];
    __shared__ int tie_counts[33];
    llm42__let_next_start();
    llm42__wait();
    if (first + (int)blockIdx.x >= meta.header->draws) return;
    const llm42__draw d = meta.draw[first + blockIdx.x];
    const LOGIT *logits = all_logits + (size_t)blockIdx.x * stride;
    const int thread = threadIdx.x;
    llm42__best best = {0, -1};
    for (int base = thread * 8; base < vocab; base += 8192)
#pragma unroll
        for (int j = 0; j < 8; j++) {
            int id = base + j;
            float x = id < vocab ? (float)logits[id] : -INFINITY;
            if (id < vocab && x == x) best = llm42__better(best, llm42__best{x, id});
        }
    best = llm42__block_best(best, shared_best);
    if (best.id < 0) best = llm42__best{__uint_as_float(0x7fffffffu), 0};
    const float largest = best.score;
    float sum = 0;
    for (int base = thread * 8; base < vocab; base += 8192)
#pragma unroll
        for (int j = 0; j < 8; j++)
            if (base + j < vocab) sum += expf(__fsub_rn((float)logits[base + j], largest));
    sum = llm42__block_sum(sum, shared_sum);
    int token = best.id;
    if (d.temperature > 0) {
        const uint64_t key = llm42__mixed(d.seed ^ llm42__mixed((uint64_t)d.position));
        const float scale = __fdiv_rn(1.0f, d.temperature);
        bool filtered = d.top_k > 0 || (d.top_p > 0 && d.top_p < 1);
        llm42__kept kept = {0, vocab};
        int tie = 0, part = (vocab + 1023) / 1024, begin = thread * part, end = LLM42__CU_MIN(begin + part, vocab);
        if (filtered) {
            kept = llm42__filter(logits, vocab, d, largest, bins);
            int mine = 0, lane = thread % 32;  // ties with the last key that is kept, numbered by id
            for (int id = begin; id < end; id++) mine += llm42__sort_key((float)logits[id]) == kept.key;
            int upto = mine;
#pragma unroll
            for (int i = 1; i < 32; i <<= 1) {
                int other = __shfl_up_sync(0xffffffffu, upto, i);
                if (lane >= i) upto += other;
            }
            if (lane == 31) tie_counts[thread / 32] = upto;
            __syncthreads();
            for (int i = 0; i < thread / 32; i++) tie += tie_counts[i];
            tie += upto - mine;
        }
        llm42__best top = {0, -1};
        for (int id = begin; id < end; id++) {
            float x = (float)logits[id];
            if (x != x) continue;
            if (filtered) {
                uint32_t at = llm42__sort_key(x);
                if (at < kept.key || (at == kept.key && tie++ >= kept.ties)) continue;
            }
            if (d.min_p > 0 && id != best.id && llm42__exp_f32(__fmul_rn(__fsub_rn(x, largest), scale)) < d.min_p)
                continue;
            float score = fmaf(x, scale, llm42__gumbel(key, id));
            if (score == score) top = llm42__better(top, llm42__best{score, id});
        }
        top = llm42__block_best(top, shared_best);
        if (top.id >= 0) token = top.id;
    }
    if (thread == 0) out[d.row] = llm42_output{token, __fsub_rn(__fsub_rn((float)logits[token], largest), logf(sum))};
}

// >>mixture ------------------------------------------------------------------------------------------------------
// Shapes: router [R, stride] (E used) -> id, weight [R, used]: each row's experts, the largest first, the lowest index
// on a tie. Work: a warp a row. Order: a lane's exponentials ascending, lanes by butterfly; the renormalising sum by
// rank.
__global__ void __launch_bounds__(32) llm42__k_route(const llm42__bf16 *router, int experts, int stride, int used,
                                                     bool renorm, int32_t *id, float *weight) {
    enum { MOST = 32 };  // experts a lane looks after: up to 1,024 in all
    llm42__let_next_start();
    llm42__wait();
    const int lane = threadIdx.x, row = blockIdx.x;
    unsigned taken = 0;
    float largest = 0, total = 0, sum = 0;
    for (int rank = -1; rank < used; rank++) {  // -1: the largest, for the softmax
        llm42__best best = {0, -1};
        for (int i = 0; i < MOST && lane + 32 * i < experts; i++)
            if (!(taken >> i & 1))
                best = llm42__better(best,
                                     llm42__best{(float)router[(size_t)row * stride + lane + 32 * i], lane + 32 * i});
#pragma unroll
        for (int i = 16; i; i >>= 1)
            best = llm42__better(best, llm42__best{__shfl_xor_sync(0xffffffffu, best.score, i),
                                                   __shfl_xor_sync(0xffffffffu, best.id, i)});
        if (rank < 0) {
            largest = best.score;
            for (int i = 0; i < MOST && lane + 32 * i < experts; i++)
                total += expf((float)router[(size_t)row * stride + lane + 32 * i] - largest);
#pragma unroll
            for (int i = 16; i; i >>= 1) total += __shfl_xor_sync(0xffffffffu, total, i);
            continue;
        }
        int chosen = best.id < 0 ? rank : best.id;
        if (chosen % 32 == lane) taken |= 1u << chosen / 32;
        float p = __fdiv_rn(expf(best.score - largest), total);
        sum += p;
        if (lane == 0) {
            id[row * used + rank] = chosen;
            weight[row * used + rank] = p;
        }
    }
    if (lane == 0)
        for (int rank = 0; rank < used; rank++)
            weight[row * used + rank] = llm42__rounded(renorm ? __fdiv_rn(weight[row * used + rank], sum)
                                                              : weight[row * used + rank]);
}

// Sorts entries (row, rank) by expert, each expert's in ascending order: offset [E + 1], source [entries] the row
// behind a place, place [entries] where an entry went. Work: one block, a warp an expert at a time. Integers only.
__global__ void __launch_bounds__(1024) llm42__k_sort(const int32_t *id, int rows, int experts, int used,
                                                      int32_t *offset, int32_t *source, int32_t *place) {
    llm42__let_next_start();
    llm42__wait();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, entries = rows * used;
    for (int e = warp; e < experts; e += 32) {
        int count = 0;
        for (int i = lane; i < entries; i += 32) count += id[i] == e;
#pragma unroll
        for (int i = 16; i; i >>= 1) count += __shfl_xor_sync(0xffffffffu, count, i);
        if (lane == 0) offset[e + 1] = count;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        offset[0] = 0;
        for (int e = 0; e < experts; e++) offset[e + 1] += offset[e];
    }
    __syncthreads();
    for (int e = warp; e < experts; e += 32) {
        int at = offset[e];
        for (int base = 0; base < entries; base += 32) {
            int i = base + lane;
            bool mine = i < entries && id[i] == e;
            unsigned all = __ballot_sync(0xffffffffu, mine);
            if (mine) {
                int to = at + __popc(all & ((1u << lane) - 1));
                source[to] = i / used;
                place[i] = to;
            }
            at += __popc(all);
        }
    }
}

// Shapes: y [entries, stride] by place -> out [R, stride]: each row's experts weighted. Work: a block a row. Order: by
// rank, from +0.
__global__ void llm42__k_combine(const llm42__bf16 *y, const int32_t *place, const float *weight, int used, int stride,
                                 llm42__bf16 *out) {
    llm42__let_next_start();
    llm42__wait();
    for (int i = threadIdx.x; i < stride; i += blockDim.x) {
        float sum = 0;
        for (int rank = 0; rank < used; rank++) {
            int entry = blockIdx.x * used + rank;
            sum = fmaf(weight[entry], (float)y[(size_t)place[entry] * stride + i], sum);
        }
        out[(size_t)blockIdx.x * stride + i] = __float2bfloat16_rn(sum);
    }
}
