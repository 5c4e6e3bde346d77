// attention_ladder: attention of single rows (decode) in nine steps, from three naive kernels to the project's own. Up
// to step 6 each changes one thing in an earlier one. The table shows that speed depends on how work is laid out. Bits
// depend on where a row's keys are cut, on the order of sums within such a unit and on how weights are rounded, and not
// on who sums a unit.
//
//     make ladder
//     build/attention_ladder --rows 1,8,64 --context 4096 --tsv FILE
//
// Each of R rows belongs to another sequence and sees T keys. There are H = 32 query heads and K = 8 KV heads, as in
// Llama 3.1 8B: q [R, H, 128], k and v [R x T, K, 128] -> y [R, H x 128], all bf16. Reading keys and values from memory
// limits the speed. The columns:
//   ms          time of a step's launches, a median; each reads another copy of the keys and values
//   GB/s        bytes of keys and values, divided by that time
//   of reading  the same, as a share of the GB/s of a kernel that only reads, measured in the same run
//   error       root mean square of y - y64, divided by that of y64, over sampled heads; y64 is summed in float64
//   bits        steps with the same letter give the same bits, in every output
// The keys of a sequence's second half are those of its first half, and its values those of the first half with the
// other sign, up to the last bit (llm42__k_fill_cancelling). So sums nearly cancel, and another order of sums shows.
// (Each half has whole units: otherwise its weights would be rounded differently, and sums would not cancel.)
//
// Exit status 1 if a step is wrong, if steps of one order differ in bits (step 7 is tried with several numbers of
// blocks for a row), or if step 9, the control, has the bits of step 6: its units are shorter, so it must differ. The
// last line is "attention_ladder: N passed, N failed"; without a device both are 0.
#ifdef LLM42_EMULATED
#include "emulated_runtime.h"
#endif
#define LLM42_BASE
#include "llm42.h"

#include "kernels.cu"

#define LADDER "attention_ladder"
#include "ladder.h"

enum {
    HEADS = 32,
    KV_HEADS = 8,
    GROUP = HEADS / KV_HEADS,
    DIM = 128,
    UNIT = LLM42__UNIT_KEYS,
    STEP = LLM42__STEP_KEYS,
    SHORT = UNIT / 2,  // units of the control
    RECORD = llm42__record(DIM)
};
enum { KEY = KV_HEADS * DIM };                 // elements from a key of a KV head to the next one
enum { STRIP = LLM42__STRIP_KEYS * DIM * 2 };  // bytes of the keys (or values) that a warp copies at a time

// What a step reads and writes. The keys of row r are those from r x context on.
struct work {
    const bf16 *q, *k, *v;
    bf16 *y;
    float *scores;   // [R, H, context]
    float *records;  // [R x units, KV_HEADS, GROUP, RECORD]: of a unit's sums, as the library has them
    int rows, context;
    float scale;  // log2(e) / sqrt(DIM)
};

// >>steps --------------------------------------------------------------------------------------------------------

// A lane has four columns of a head: those from 4 x lane on.
__device__ __forceinline__ float4 four(const bf16 *of_head) {
    const uint2 raw = ((const uint2 *)of_head)[threadIdx.x % 32];
    const float2 low = __bfloat1622float2(*(const __nv_bfloat162 *)&raw.x),
                 high = __bfloat1622float2(*(const __nv_bfloat162 *)&raw.y);
    return float4{low.x, low.y, high.x, high.y};
}
__device__ __forceinline__ float sum_of_lanes(float x) {
#pragma unroll
    for (int i = 16; i; i >>= 1) x += __shfl_xor_sync(0xffffffffu, x, i);
    return x;
}
__device__ __forceinline__ float most_of_lanes(float x) {
#pragma unroll
    for (int i = 16; i; i >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, i));
    return x;
}
// q k of a key. All lanes get it. Order: a lane's four columns ascending, then lanes by butterfly.
__device__ __forceinline__ float dot(float4 q, float4 k) {
    return sum_of_lanes(fmaf(q.w, k.w, fmaf(q.z, k.z, fmaf(q.y, k.y, __fmul_rn(q.x, k.x)))));
}
__device__ __forceinline__ void add_value(float (&x)[4], float weight, float4 v) {
    x[0] = fmaf(weight, v.x, x[0]), x[1] = fmaf(weight, v.y, x[1]);
    x[2] = fmaf(weight, v.z, x[2]), x[3] = fmaf(weight, v.w, x[3]);
}
__device__ __forceinline__ int warp_of_grid() { return (int)(blockIdx.x * blockDim.x + threadIdx.x) / 32; }
// Where the keys (or values) of a row and KV head begin.
__device__ __forceinline__ const bf16 *keys_of(const bf16 *cache, const work &w, int row, int kv_head) {
    return cache + (size_t)row * w.context * KEY + kv_head * DIM;
}

// Step 1, first of three kernels: a thread computes the score of one key for one query.
// Shapes: q [R, H, 128], k [R x T, K, 128] -> scores [R, H, T].
// Order: columns ascending.
__global__ void __launch_bounds__(256) step_scores(work w) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    const int t = (int)(i % w.context), head = (int)(i / w.context % HEADS), row = (int)(i / w.context / HEADS);
    if (row >= w.rows) return;
    const bf16 *q = w.q + ((size_t)row * HEADS + head) * DIM, *k = keys_of(w.k, w, row, head / GROUP) + (size_t)t * KEY;
    float sum = 0;
    for (int c = 0; c < DIM; c++) sum = fmaf((float)q[c], (float)k[c], sum);
    w.scores[i] = sum;
}

// Step 1, second kernel: a warp turns the scores of a query into weights, whose total is one.
// Shapes: scores [R, H, T], in place.
// Order: the total: every 32nd key in a lane, ascending; then lanes by butterfly.
__global__ void __launch_bounds__(256) step_weights(work w) {
    const int lane = threadIdx.x % 32;
    float *score = w.scores + (size_t)warp_of_grid() * w.context, top = -INFINITY, total = 0;
    if (warp_of_grid() >= w.rows * HEADS) return;
    for (int t = lane; t < w.context; t += 32) top = fmaxf(top, score[t]);
    top = most_of_lanes(top) * w.scale;
    for (int t = lane; t < w.context; t += 32) total += score[t] = llm42__power(fmaf(score[t], w.scale, -top));
    total = sum_of_lanes(total);
    for (int t = lane; t < w.context; t += 32) score[t] = __fdiv_rn(score[t], total);
}

// Step 1, third kernel: a thread sums one column of the values for one query.
// Shapes: scores [R, H, T], v [R x T, K, 128] -> y [R, H x 128].
// Order: keys ascending, one fused multiply-add after the other.
__global__ void __launch_bounds__(DIM) step_values(work w) {
    const int head = blockIdx.x % HEADS, row = blockIdx.x / HEADS;
    const float *weight = w.scores + (size_t)blockIdx.x * w.context;
    const bf16 *v = keys_of(w.v, w, row, head / GROUP) + threadIdx.x;
    float sum = 0;
    for (int t = 0; t < w.context; t++) sum = fmaf(weight[t], (float)v[(size_t)t * KEY], sum);
    w.y[(size_t)blockIdx.x * DIM + threadIdx.x] = __float2bfloat16_rn(sum);
}

// What a lane has of a query: sums of weighted values for its four columns, which begin as those of no keys.
struct merged {
    float base = -INFINITY, total = 0, x[4] = {};
};
__device__ __forceinline__ void merge(merged &m, float base, float total, const float *x) {
    float keep, take;
    llm42__merge_factors(m.base, base, keep, take);
    m.total = fmaf(m.total, keep, total * take);
    for (int c = 0; c < 4; c++) m.x[c] = fmaf(m.x[c], keep, x[c] * take);
}
__device__ __forceinline__ void write_merged(const merged &m, bf16 *query) {
    for (int c = 0; c < 4; c++)
        query[threadIdx.x % 32 * 4 + c] = __float2bfloat16_rn(m.x[c] * __fdiv_rn(1.0f, m.total));
}

// Step 2: one kernel, and no scores in memory (online softmax): what was summed is scaled when a larger score comes.
// Shapes: q [R, H, 128], k, v [R x T, K, 128] -> y [R, H x 128].
// Work: a warp takes one query, a lane four columns.
// Order: keys ascending, one after the other.
__global__ void __launch_bounds__(128) step_online(work w) {
    const int query = warp_of_grid(), row = query / HEADS, kv_head = query % HEADS / GROUP;
    if (row >= w.rows) return;
    const bf16 *k = keys_of(w.k, w, row, kv_head), *v = keys_of(w.v, w, row, kv_head);
    const float4 q = four(w.q + (size_t)query * DIM);
    merged m;
    for (int t = 0; t < w.context; t++) {
        const float score = dot(q, four(k + (size_t)t * KEY));
        float keep, take;
        llm42__merge_factors(m.base, score * w.scale, keep, take);
        m.total = fmaf(m.total, keep, take);
        for (float &x : m.x) x *= keep;
        add_value(m.x, take, four(v + (size_t)t * KEY));
    }
    write_merged(m, w.y + (size_t)query * DIM);
}

// The sums of the UNIT keys from t0 on, for QUERIES queries of a KV head. A warp calls it, a lane gets four columns.
// Order: steps of 128 keys, ascending. A step's weights are relative to the unit's largest score so far (its base), and
// where that has grown, the sums so far are scaled. The weights' total: a lane's four keys ascending, then steps, then
// lanes by butterfly. Values: keys ascending. The order depends on the unit's keys alone.
template <int QUERIES>
__device__ __forceinline__ void sum_unit(merged (&m)[QUERIES], const bf16 *q, const bf16 *k, const bf16 *v, int t0,
                                         float scale) {
    const int lane = threadIdx.x % 32;
    float4 own[QUERIES];
    for (int i = 0; i < QUERIES; i++) own[i] = four(q + i * DIM), m[i] = {};
    for (const int end = t0 + UNIT; t0 < end; t0 += STEP) {
        float weight[QUERIES][STEP / 32];  // of the keys t0 + lane, t0 + 32 + lane, ...; first the scores
#pragma unroll
        for (int j = 0; j < STEP / 32; j++)
#pragma unroll 8
            for (int t = 0; t < 32; t++) {
                const float4 key = four(k + (size_t)(t0 + j * 32 + t) * KEY);
                for (int i = 0; i < QUERIES; i++) {
                    const float score = dot(own[i], key);
                    if (lane == t) weight[i][j] = score;
                }
            }
        for (int i = 0; i < QUERIES; i++) {
            float top = -INFINITY, total = 0;
            for (float score : weight[i]) top = fmaxf(top, score);
            const float keep = llm42__grow(m[i].base, most_of_lanes(top) * scale);
            for (float &x : weight[i]) total += x = llm42__power(fmaf(x, scale, -m[i].base));
            m[i].total = fmaf(m[i].total, keep, total);
            for (float &x : m[i].x) x *= keep;
        }
#pragma unroll
        for (int j = 0; j < STEP / 32; j++)
#pragma unroll 8
            for (int t = 0; t < 32; t++) {
                const float4 value = four(v + (size_t)(t0 + j * 32 + t) * KEY);
                for (int i = 0; i < QUERIES; i++) add_value(m[i].x, __shfl_sync(0xffffffffu, weight[i][j], t), value);
            }
    }
    for (int i = 0; i < QUERIES; i++) m[i].total = sum_of_lanes(m[i].total);
}

// Step 3: units of 512 keys. Each is summed on its own, and the sums are merged in ascending order.
// Shapes: q [R, H, 128], k, v [R x T, K, 128] -> y [R, H x 128].
// Work: a warp takes one query.
// Order: that of units, as above. It depends on the row's keys alone.
__global__ void __launch_bounds__(128) step_units(work w) {
    const int query = warp_of_grid(), row = query / HEADS, kv_head = query % HEADS / GROUP;
    if (row >= w.rows) return;
    merged m, unit[1];
    for (int t0 = 0; t0 < w.context; t0 += UNIT) {
        sum_unit(unit, w.q + (size_t)query * DIM, keys_of(w.k, w, row, kv_head), keys_of(w.v, w, row, kv_head), t0,
                 w.scale);
        merge(m, unit[0].base, unit[0].total, unit[0].x);
    }
    write_merged(m, w.y + (size_t)query * DIM);
}

// Steps 4 and 5: a warp for each unit (split-KV), so that the whole GPU works even for one row. In step 5 it takes all
// four queries of the KV head, which read the same keys (grouped queries).
// Shapes: q [R, H, 128], k, v [R x T, K, 128] -> records [R x units, K, 4, 130].
// Work: a warp takes one unit, and QUERIES queries of a KV head.
// Order: within a unit, that of step 3. step_merge merges the units in the order of step 3.
template <int QUERIES> __global__ void __launch_bounds__(128) step_split(work w) {
    static_assert(QUERIES == 1 || QUERIES == GROUP, "a query, or all of a KV head");
    const int units = w.context / UNIT, unit = warp_of_grid() % units, first = warp_of_grid() / units * QUERIES,
              row = first / HEADS, kv_head = first % HEADS / GROUP, lane = threadIdx.x % 32;
    if (row >= w.rows) return;
    merged m[QUERIES];
    sum_unit(m, w.q + (size_t)first * DIM, keys_of(w.k, w, row, kv_head), keys_of(w.v, w, row, kv_head), unit * UNIT,
             w.scale);
    for (int i = 0; i < QUERIES; i++) {
        float *record = w.records +
                        ((((size_t)row * units + unit) * KV_HEADS + kv_head) * GROUP + (first + i) % GROUP) * RECORD;
        for (int c = 0; c < 4; c++) record[lane * 4 + c] = m[i].x[c];
        if (lane == 0) record[DIM] = m[i].base, record[DIM + 1] = m[i].total;
    }
}

// Steps 4 to 6, last kernel: the units of a query are merged.
// Shapes: records [R x units, K, 4, 130] -> y [R, H x 128].
// Work: a warp takes one query, a lane four columns.
// Order: units ascending.
__global__ void __launch_bounds__(128) step_merge(work w, int units) {
    const int query = warp_of_grid(), row = query / HEADS, head = query % HEADS;
    if (row >= w.rows) return;
    merged m;
    for (int unit = 0; unit < units; unit++) {
        const float *record = w.records + (((size_t)row * units + unit) * HEADS + head) * RECORD;
        merge(m, record[DIM], record[DIM + 1], record + threadIdx.x % 32 * 4);
    }
    write_merged(m, w.y + (size_t)query * DIM);
}

// Scores of a step's 128 keys become weights. A lane (g, t) has those of the keys g and g + 8 of each sixteen and of
// the queries 2t and 2t + 1: so it can total those of its keys, which have one remainder modulo 8.
__device__ __forceinline__ void weigh_step(float (&score)[8][1][4], float (&base)[2], float (&total)[2],
                                           float (&keep)[2], float scale) {
    LLM42__UNROLLED(int r = 0; r < 2; r++) {
        float top = -INFINITY, strip[4] = {};
        LLM42__UNROLLED(int n = 0; n < 16; n++) top = fmaxf(top, score[n / 2][0][n % 2 * 2 + r]);
        LLM42__UNROLLED(int x = 4; x < 32; x <<= 1) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, x));
        keep[r] = llm42__grow(base[r], top * scale);
        LLM42__UNROLLED(int n = 0; n < 16; n++) {
            float &weight = score[n / 2][0][n % 2 * 2 + r];
            strip[n / 4] += weight = llm42__power(fmaf(weight, scale, -base[r]));
        }
        total[r] = fmaf(total[r], keep[r], (strip[0] + strip[1]) + (strip[2] + strip[3]));
    }
}

// Step 6: tensor cores. One instruction (mma) adds 16 of the 128 columns to the scores of sixteen keys for eight
// queries. Only four queries are there; the other places are empty. Step 9, the control, has units of 256 keys.
// Shapes: q [R, H, 128], k, v [R x T, K, 128] -> records [R x units, K, 4, 130].
// Work: a warp takes one unit of a KV head. It copies strips of 32 keys, then of 32 values, to shared memory, and waits
// for each.
// Order: within a unit that of all kernels of kernels.cu (section kernel-attention), with weights in bf16.
__global__ void __launch_bounds__(128) step_mma(work w, int keys) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const int units = w.context / keys, unit = warp_of_grid() % units, kv_head = warp_of_grid() / units % KV_HEADS,
              row = warp_of_grid() / units / KV_HEADS, lane = threadIdx.x % 32;
    if (row >= w.rows) return;
    const uint32_t at = llm42__shared_address(shared + threadIdx.x / 32 * STRIP);
    uint32_t q[1][DIM / 16][2];
    float score[8][1][4], out[DIM / 16][4] = {}, base[2] = {-INFINITY, -INFINITY}, total[2] = {}, keep[2];
    llm42__load_across<DIM, 1>(q, w.q + ((size_t)row * HEADS + kv_head * GROUP) * DIM, GROUP);
    for (int t0 = unit * keys; t0 < (unit + 1) * keys; t0 += STEP)
#pragma unroll
        for (int strip = 0; strip < 8; strip++) {
            const size_t key = row * (size_t)w.context + t0 + strip % 4 * 32 + lane;
            llm42__copy_keys<DIM, 32>(at, 0, (strip < 4 ? w.k : w.v) + kv_head * DIM, (uint32_t)key * (KEY / 8));
            llm42__copy_commit();
            llm42__copy_wait<0>();
            __syncwarp();  // the strip has arrived for every lane
            if (strip < 4) llm42__score_across<DIM, 1>(&score[2 * strip], q, at);
            if (strip == 4) {
                weigh_step(score, base, total, keep, w.scale);
                for (int i = 0; i < DIM / 4; i++) out[i / 4][i % 4] *= keep[i % 2];
            }
            for (int half = 0; strip >= 4 && half < 2; half++) {
                const float(&weight)[4] = score[2 * (strip - 4) + half][0];
                const uint32_t low = llm42__transposed(llm42__pack(weight[0], weight[1])),
                               high = llm42__transposed(llm42__pack(weight[2], weight[3]));
                for (int m = 0; m < DIM / 16; m++) {
                    uint32_t v[4];
                    llm42__load_matrices_transposed(
                        v, at + llm42__key_place<DIM, 32>(half * 16 + lane / 16 * 8 + lane % 8, 2 * m + lane / 8 % 2));
                    llm42__mma(out[m], v, low, high);
                }
            }
            __syncwarp();  // every lane has read it
        }
    for (int r = 0; r < 2; r++) {
        float *record = w.records + (((size_t)row * units + unit) * KV_HEADS + kv_head) * GROUP * RECORD +
                        (lane % 4 * 2 + r) * RECORD;
        for (int x = 4; x < 32; x <<= 1) total[r] += __shfl_xor_sync(0xffffffffu, total[r], x);
        if (lane % 4 * 2 >= GROUP) continue;
        for (int i = 0; i < DIM / 8; i++) record[i * 8 + lane / 4] = out[i / 2][i % 2 * 2 + r];
        if (lane < 4) record[DIM] = base[r], record[DIM + 1] = total[r];
    }
}

// >>host ---------------------------------------------------------------------------------------------------------
enum { THREE = 1, ONLINE, UNITS, SPLIT, GROUPED, MMA, DECODE, PREFILL, SHORTER, STEPS = SHORTER };
enum { SAMPLED = 64, PAGE_SHIFT = 4 };

struct ladder {
    cudaDeviceProp device;
    int rows, context, copies, next;  // next: the copy of keys and values that is read next
    size_t copy;                      // elements of a copy of the keys
    bf16 *q, *k, *v, *y[STEPS + 1];
    float *scores, *records;
    unsigned *arrived, *word;
    llm42__header *header;
    llm42__prefill_task *prefill;
    llm42__decode_task *decode;
    int cut;  // tasks of a row in step 7
    int32_t *pages;
    double read_gb_per_s;
};

template <typename T> static T *device_memory(size_t count) {
    T *memory;
    CU(cudaMalloc((void **)&memory, count * sizeof(T)));
    CU(cudaMemset(memory, 0, count * sizeof(T)));
    return memory;
}
template <typename T> static void to_device(T *to, const std::vector<T> &from) {
    CU(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
}

// At most `cut` tasks for each row. A block that has all units of a row merges them itself.
static void cut_rows(ladder *l, int cut) {
    const int row_units = l->context / UNIT, units = (row_units + cut - 1) / cut;
    std::vector<llm42__decode_task> tasks;
    for (int r = 0; r < l->rows; r++)
        for (int u = 0; u < row_units; u += units)
            tasks.push_back(
                {r, l->context - 1, r, u * UNIT, u, row_units, units, units >= row_units ? -1 : r * row_units + u});
    l->cut = (int)tasks.size() / l->rows;
    llm42__header header = {};
    header.rows = header.prefill_tasks = l->rows, header.decode_tasks = (int)tasks.size();
    header.page_stride = l->context >> PAGE_SHIFT;
    to_device(l->decode, tasks), to_device(l->header, std::vector<llm42__header>{header});
}

// Steps 7 and 8 run the library's kernels. Step 7: llm42__k_attend_decode with the fastest number of blocks for a row.
// Step 8: llm42__k_attend_prefill, the kernel for prompts and windows, with one row a task.
static void launch_library(ladder *l, int step, const work &w) {
    llm42__meta meta = {};
    meta.header = l->header, meta.prefill = l->prefill, meta.decode = l->decode, meta.pages = l->pages,
    meta.page_shift = PAGE_SHIFT;
    llm42__attention a = {w.q,      w.k, w.v,         w.y, w.records, l->arrived,        HEADS,
                          KV_HEADS, DIM, HEADS * DIM, 0,   GROUP,     65536 / GROUP + 1, w.scale};
    auto run = [&](void (*kernel)(llm42__attention, llm42__meta), dim3 grid, int threads, int bytes) {
        CU(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
        CU(llm42__launch(kernel, grid, dim3((unsigned)threads), (size_t)bytes, 0, a, meta));
    };
    const bool warpgroups = l->device.major == 9;
    const dim3 resident((unsigned)std::min(l->rows * KV_HEADS, l->device.multiProcessorCount));
    const llm42__decode_shape shape =  // as in an engine
        llm42__decode_shape_of(DIM, GROUP, l->rows * KV_HEADS, l->device.multiProcessorCount,
                               (int)l->device.sharedMemPerBlockOptin - 1024);
    if (step == DECODE)
        run(llm42__decode_build<DIM, 1>(shape), dim3(KV_HEADS, (unsigned)(l->rows * l->cut)), shape.warps * 32,
            shape.bytes);
    else if (llm42__prefill_teams(DIM, warpgroups) == 2)
        run(llm42__k_attend_prefill<DIM, 2>, resident, 384, llm42__prefill_shape<DIM, 2>::bytes(warpgroups));
    else run(llm42__k_attend_prefill<DIM, 1>, resident, 256, llm42__prefill_shape<DIM, 1>::bytes(warpgroups));
}

// All launches of a step, with the next copy of keys and values.
static void launch(ladder *l, int step) {
    const size_t at = (size_t)l->next * l->copy;
    const float scale = (float)(1.4426950408889634 / sqrt((double)DIM));
    work w = {l->q, l->k + at, l->v + at, l->y[step], l->scores, l->records, l->rows, l->context, scale};
    l->next = (l->next + 1) % l->copies;
    const int keys = step == SHORTER ? SHORT : UNIT, units = l->context / keys;
    const unsigned queries = (unsigned)(l->rows * HEADS), all = queries * (unsigned)units;
    auto blocks = [](unsigned warps) { return (warps + 3) / 4; };  // of four warps
    switch (step) {
    case THREE:
        step_scores<<<(unsigned)(((size_t)queries * (size_t)l->context + 255) / 256), 256>>>(w);
        step_weights<<<(queries + 7) / 8, 256>>>(w);
        step_values<<<queries, DIM>>>(w);
        break;
    case ONLINE: step_online<<<blocks(queries), 128>>>(w); break;
    case UNITS: step_units<<<blocks(queries), 128>>>(w); break;
    case SPLIT: step_split<1><<<blocks(all), 128>>>(w); break;
    case GROUPED: step_split<4><<<blocks(all / GROUP), 128>>>(w); break;
    case MMA:
    case SHORTER: step_mma<<<blocks(all / GROUP), 128, 4 * STRIP>>>(w, keys); break;
    default: launch_library(l, step, w);
    }
    if ((step >= SPLIT && step <= MMA) || step == SHORTER) step_merge<<<blocks(queries), 128>>>(w, units);
    CU(cudaGetLastError());
}

// Into how many tasks a row is cut: the fastest power of two. All must have the bits of step 6, which l->y has.
static void choose_cut(ladder *l) {
    double best = INFINITY;
    int best_cut = 1;
    for (int tasks = 1; tasks <= l->context / UNIT; tasks *= 2) {
        char text[96];
        cut_rows(l, tasks);
        CU(cudaMemset(l->y[DECODE], 0xff, (size_t)l->rows * HEADS * DIM * sizeof(bf16)));
        const double ms = median_ms([&] { launch(l, DECODE); });
        snprintf(text, sizeof text, "step 7 with %d blocks a row and step 6 have one order and differ in bits", l->cut);
        check(same_bits(l->y[DECODE], l->y[MMA], l->rows, HEADS * DIM, l->word), l->rows, text);
        printf("           %d blocks for a row: %.1f us\n", l->cut, 1e3 * ms);
        if (ms < best) best = ms, best_cut = l->cut;
    }
    cut_rows(l, best_cut);
}

static void open_ladder(ladder *l, int most, int context) {
    const size_t rows = (size_t)most, keys = rows * (size_t)context,
                 room = LEAST_BYTES / 4 + keys * KEY;  // copies_for
    l->context = context;
    std::vector<int32_t> pages(keys >> PAGE_SHIFT);
    std::vector<llm42__prefill_task> prefill(rows);
    l->q = device_memory<bf16>(rows * HEADS * DIM);
    l->k = device_memory<bf16>(room);
    l->v = device_memory<bf16>(room);
    for (int step = 1; step <= STEPS; step++) l->y[step] = device_memory<bf16>(rows * HEADS * DIM);
    l->scores = device_memory<float>(keys * HEADS);
    l->records = device_memory<float>(keys / SHORT * HEADS * RECORD);
    l->arrived = device_memory<unsigned>(rows * KV_HEADS);
    l->word = device_memory<unsigned>(1);
    l->header = device_memory<llm42__header>(1);
    l->prefill = device_memory<llm42__prefill_task>(rows);
    l->decode = device_memory<llm42__decode_task>(keys / UNIT);
    l->pages = device_memory<int32_t>(pages.size());
    for (int r = 0; r < most; r++) {
        prefill[(size_t)r] = {r, 1, 0, context, r, 0};
    }
    for (size_t i = 0; i < pages.size(); i++) pages[i] = (int32_t)i;
    to_device(l->pages, pages);
    to_device(l->prefill, prefill);
    llm42__k_fill_cancelling<<<64, 256>>>(l->q, rows, HEADS * DIM, 42, false);
    l->read_gb_per_s = reading_speed(&l->device, l->k, room / 8 * 8 * sizeof(bf16), l->word);
}

// Copies of the keys and values of so many rows: as many as caches cannot hold.
static void copies_for(ladder *l, int rows) {
    l->rows = rows, l->next = 0, l->copy = (size_t)rows * (size_t)l->context * KEY;
    l->copies = (int)((LEAST_BYTES + 4 * l->copy - 1) / (4 * l->copy));
    for (int i = 0; i < l->copies; i++) {
        // The k of k_fill_cancelling is all that a row's keys have: the second half of the keys repeats the first.
        llm42__k_fill_cancelling<<<1024, 256>>>(l->k + (size_t)i * l->copy, (size_t)rows, l->context * KEY, 43, false);
        llm42__k_fill_cancelling<<<1024, 256>>>(l->v + (size_t)i * l->copy, (size_t)rows, l->context * KEY, 44, true);
        CU(cudaGetLastError());
    }
}

static void close_ladder(ladder *l) {
    for (bf16 *y : l->y) CU(cudaFree(y));
    for (void *block :
         {(void *)l->q, (void *)l->k, (void *)l->v, (void *)l->scores, (void *)l->records, (void *)l->arrived,
          (void *)l->word, (void *)l->header, (void *)l->prefill, (void *)l->decode, (void *)l->pages})
        CU(cudaFree(block));
}

// A KV head's keys or values of a row: [context, DIM].
static std::vector<float> head_to_host(const ladder *l, const bf16 *cache, int row, int kv_head) {
    const size_t keys = (size_t)l->context;
    std::vector<bf16> raw(keys * KEY), head;
    CU(cudaMemcpy(raw.data(), cache + (size_t)row * raw.size(), raw.size() * sizeof(bf16), cudaMemcpyDeviceToHost));
    for (size_t t = 0; t < keys; t++)
        head.insert(head.end(), &raw[t * KEY + (size_t)kv_head * DIM], &raw[t * KEY + (size_t)kv_head * DIM] + DIM);
    return to_float(head);
}

// Sampled heads in float64: for each its place in y, and its 128 values.
struct sample {
    size_t at;
    std::vector<double> y;
};
static std::vector<sample> sample_heads(const ladder *l) {
    std::vector<sample> samples;
    const std::vector<float> q = to_host(l->q, (size_t)l->rows * HEADS * DIM);
    const int count = std::max((int)SAMPLED, l->rows);  // of every row at least one
    for (int i = 0; i < count; i++) {
        const int row = i % l->rows, head = (int)(llm42__hash((uint64_t)i) % HEADS);
        const std::vector<float> k = head_to_host(l, l->k, row, head / GROUP),
                                 v = head_to_host(l, l->v, row, head / GROUP);
        sample s = {((size_t)row * HEADS + (size_t)head) * DIM, std::vector<double>(DIM)};
        std::vector<double> weight((size_t)l->context);
        double top = -INFINITY, total = 0;
        for (size_t t = 0; t < weight.size(); t++) {
            for (size_t c = 0; c < DIM; c++) weight[t] += (double)q[s.at + c] * (double)k[t * DIM + c];
            top = std::max(top, weight[t]);
        }
        for (double &x : weight) total += x = exp((x - top) / sqrt((double)DIM));
        for (size_t t = 0; t < weight.size(); t++)
            for (size_t c = 0; c < DIM; c++) s.y[c] += weight[t] / total * (double)v[t * DIM + c];
        samples.push_back(s);
    }
    return samples;
}
static double error_of(const ladder *l, int step, const std::vector<sample> &samples) {
    const std::vector<float> y = to_host(l->y[step], (size_t)l->rows * HEADS * DIM);
    double off = 0, size = 0;
    for (const sample &s : samples)
        for (size_t c = 0; c < DIM; c++) {
            const double got = (double)y[s.at + c];
            off += (got - s.y[c]) * (got - s.y[c]);
            size += s.y[c] * s.y[c];
        }
    return sqrt(off / size);
}

static void describe(const ladder *l, int step, std::string *what, std::string *order) {
    static const char *const units = "units of 512 keys, ascending", *const by_16 = "the same units, by tensor cores";
    static const char *const texts[STEPS + 1][2] = {
        {"", ""},
        {"three kernels", "keys ascending"},
        {"one kernel, a warp a query", "keys ascending, scaled on the way"},
        {"units of 512 keys", units},
        {"a warp for each unit (split-KV)", units},
        {"and for four queries at once", units},
        {"tensor cores (mma)", by_16},
        {"llm42__k_attend_decode, blocks: ", by_16},
        {"llm42__k_attend_prefill", by_16},
        {"step 6 with units of 256 keys", "shorter units, ascending"},
    };
    *what = texts[step][0], *order = texts[step][1];
    if (step == DECODE) *what += std::to_string(l->cut);
}

// All steps for one number of rows: a line each, and what must hold.
static void climb(ladder *l, FILE *tsv) {
    char letter[STEPS + 1];
    const std::vector<sample> samples = sample_heads(l);
    for (int step = 1; step <= STEPS; step++) {
        if (step == DECODE) choose_cut(l);
        CU(cudaMemset(l->y[step], 0xff, (size_t)l->rows * HEADS * DIM * sizeof(bf16)));  // not numbers
        measured m = {};
        m.rows = l->rows, m.step = step, m.ms = median_ms([&] { launch(l, step); }),
        m.error = error_of(l, step, samples);
        m.gb_per_s = 4e-6 * l->rows * (double)l->context * KEY / m.ms, m.reading = l->read_gb_per_s;
        m.letter = letter[step] = letter_of(l->y, letter, step, l->rows, HEADS * DIM, l->word);
        describe(l, step, &m.what, &m.order);
        print_step(tsv, m);
    }
    check(letter[SPLIT] == letter[UNITS], l->rows, "steps 3 and 4 have one order and differ in bits");
    check(letter[GROUPED] == letter[UNITS], l->rows, "steps 3 and 5 have one order and differ in bits");
    check(letter[DECODE] == letter[MMA], l->rows, "steps 6 and 7 have one order and differ in bits");
    check(letter[PREFILL] == letter[MMA], l->rows, "steps 6 and 8 have one order and differ in bits");
    check(letter[SHORTER] != letter[MMA], l->rows, "the control: steps 6 and 9 have two orders and the same bits");
}

int main(int argc, char **argv) {
    ladder l = {};
    std::vector<int> rows = {1, 8, 64};
    int context = 4096;
    const char *name = nullptr;
    parse(argc, argv, "Times attention of single rows in nine steps, and compares their bits.",
          {{"--rows", "--rows R,R,...  numbers of rows, 1 to 256 (default 1,8,64)", 1, 256, 1, nullptr, &rows, nullptr},
           {"--context", "--context T     keys that each row sees, a multiple of 1024 up to 32768 (default 4096)", 1024,
            32768, 1024, &context, nullptr, nullptr},
           {"--tsv", "--tsv FILE      the table goes there too", 0, 0, 0, nullptr, nullptr, &name}});
    l.device = open_device();
    FILE *tsv = open_tsv(name);
    open_ladder(&l, *std::max_element(rows.begin(), rows.end()), context);
    char what[256];
    snprintf(what, sizeof what, "# context: %d\n# reading: %.1f GB/s\n", l.context, l.read_gb_per_s);
    print_head(tsv, &l.device, what);
    print_columns(tsv, "kv");
    for (int r : rows) {
        copies_for(&l, r);
        climb(&l, tsv);
    }
    close_ladder(&l);
    close_tsv(tsv, name);
    return end();
}
