// kernels.cu: the kernels of the CUDA backend, and what chooses their builds. llm42.cu includes it and launches them.
//
// Shapes: R rows, D model width, H query heads, K kv heads, d head size, F feed-forward width, V vocabulary, T context
// tokens, E experts. Widths are padded with zeros to multiples of 64, which changes no sum. Each kernel says in which
// order it sums and what that order depends on. There are no atomics on floating-point numbers; atomics only count, and
// add integers. The compiler fuses nothing on its own (-fmad=false): a fused multiply-add is written as one.
//
// The sequential order: tensor cores sum over k in ascending steps of 16 terms, into one fp32 accumulator.
//
// Words, each with one meaning here:
//   piece    16 bytes, eight bf16 values: what one thread copies at a time
//   tile     the outputs and rows of a matrix product that one block of threads computes
//   stage    a part of shared memory that holds one chunk of k of a tile's operands; stages form a ring
//   unit     512 consecutive keys of a row, which attention sums on their own, in steps of 128 keys
//   strip    32 keys, or their values, in shared memory
//   record   the sums of a unit, or of a task's units: see kernel-attention
//   task     a part of the work of an attention kernel: a block does one task after another
//   slot     the place of a position in the KV cache: page x page_size + place in the page
//   draw     a row for which a token is drawn
//
// Each section uses only those before it, and numbers (llm42.h).
//
// What runs an operator, in order of a layer. Launchers stand in llm42.cu (cuda-products, cuda-launches), because they
// need an engine; their names begin with llm42__. A test is a part of tests/test_cuda or a file of tests/cuda.
//
//   operator          kernel                          launcher                   test
//   x += delta, norm  k_norm                          enqueue_norm               arithmetic, layers
//   product           k_matmul, k_leaves or cuBLASLt  enqueue_product            arithmetic, leaves.cu
//   product in e4m3   k_e4m3 or cuBLASLt              run_e4m3, _e4m3_experts    e4m3, steps.cu
//   input in e4m3     k_quantise_, or the one ahead   quantise                   e4m3
//   rope, KV write    k_rope                          enqueue_rope               arithmetic, layers
//   attention         k_attend_prefill, _decode       enqueue_attention          arithmetic, passes
//                     k_gate_attention                enqueue_attend             arithmetic
//   recurrent layer   k_convolve, _delta, _leave, or  enqueue_recurrent          arithmetic, leaves.cu
//                     k_recur
//   gate              k_gate, or the end of k_matmul  run_product_to             arithmetic, leaves.cu
//   mixture           k_route, k_sort                 enqueue_route, _experts    arithmetic, layers
//                     k_experts, or k_matmul          run_experts                arithmetic, leaves.cu
//   draw              k_draw                          enqueue_head               small
//   exchange          k_norm, k_meet, k_gather        enqueue_exchange           exchange

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <type_traits>

typedef __nv_bfloat16 llm42__bf16;
// A function of the device, always inlined, so that its arrays stay in registers. A loop that is always unrolled.
#define LLM42__DEVICE __device__ __forceinline__
#define LLM42__UNROLLED(...) _Pragma("unroll") for (__VA_ARGS__)

// A revision, to be raised by each change here that changes bits or times. Results name the one that they are from.
enum { LLM42__KERNELS = 35 };

// >>kernel-ptx ---------------------------------------------------------------------------------------------------
// Owns: instructions that CUDA C++ has no name for, rounding, and launching.
//
// Programmatic dependent launch (sm_90): a kernel may start while the one before it drains. It must call
// llm42__wait_for_previous() before it reads that kernel's output, and must not read it through the read-only cache (no
// __restrict__). It waits only for the kernel right before it, so every kernel must wait, even one that reads nothing:
// if B, between A and C, did not, it could end first, and C's wait return while A runs. Before its wait a kernel may
// read only what no kernel of this pass writes: metadata and keys of earlier passes. Earlier devices need no waits.
#if __CUDA_ARCH__ >= 900
#define LLM42__SM90(...) asm volatile(__VA_ARGS__ ::: "memory")
#define LLM42__TRY_WAIT "mbarrier.try_wait.parity"
#else
#define LLM42__SM90(...)
#define LLM42__TRY_WAIT "mbarrier.test_wait.parity"
#endif
LLM42__DEVICE void llm42__launch_next() { LLM42__SM90("griddepcontrol.launch_dependents;"); }
LLM42__DEVICE uint32_t llm42__shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

#ifndef LLM42__EMULATED  // tests/cuda/emulator.h has its own
LLM42__DEVICE void llm42__wait_for_previous() { LLM42__SM90("griddepcontrol.wait;"); }
LLM42__DEVICE void llm42__prefetch(const void *at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }
// Starts a copy of 16 bytes from global to shared memory, and goes on. If !valid it writes zeros.
LLM42__DEVICE void llm42__copy16(uint32_t to, const void *from, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0));
}
LLM42__DEVICE void llm42__copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> LLM42__DEVICE void llm42__copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
// Arrives at an mbarrier when all copies that this thread has started have arrived.
LLM42__DEVICE void llm42__copy_arrive(uint32_t barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}
// wgmma reads shared memory by the async proxy. After this fence and a barrier it sees what this thread has copied.
LLM42__DEVICE void llm42__fence_async() { LLM42__SM90("fence.proxy.async.shared::cta;"); }

// An mbarrier: 8 bytes of shared memory that count arrivals, and bytes that copies bring. The last ends a phase.
LLM42__DEVICE void llm42__mbarrier_open(uint32_t barrier, int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
LLM42__DEVICE void llm42__mbarrier_arrive(uint32_t barrier) {
    asm volatile("{\n.reg .b64 phase;\nmbarrier.arrive.shared.b64 phase, [%0];\n}" ::"r"(barrier) : "memory");
}
// Waits for the end of a phase: phases have parity 0 and 1 in turn. The one before the first counts as ended. CLUSTER:
// what other blocks have stored before can then be read. Tests set a limit, so that an error does not become a hang.
#define LLM42__TRY_PHASE(ACQUIRE)                                                                           \
    asm volatile("{\n.reg .pred p;\n" LLM42__TRY_WAIT ACQUIRE ".b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}" \
                 : "=r"(ended)                                                                              \
                 : "r"(barrier), "r"(parity)                                                                \
                 : "memory")
template <bool CLUSTER = false> LLM42__DEVICE void llm42__mbarrier_wait(uint32_t barrier, uint32_t parity) {
    uint32_t ended = 0;
#ifdef LLM42__MOST_WAIT_NS
    uint64_t begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
#endif
    while (!ended) {
        if constexpr (CLUSTER) LLM42__TRY_PHASE(".acquire.cluster.shared::cta");
        else LLM42__TRY_PHASE(".shared");
#ifdef LLM42__MOST_WAIT_NS
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        if (!ended && now - begin > LLM42__MOST_WAIT_NS) __trap();
#endif
    }
}

// Loads four 8x8 matrices of 16-bit values. Lane i gives the address of row i % 8 of matrix i / 8.
LLM42__DEVICE void llm42__load_matrices(uint32_t r[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}
LLM42__DEVICE void llm42__load_matrices_transposed(uint32_t r[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

// c[16 x 8] += a[16 x 16] b[16 x 8]. Lane (g = lane / 4, t = lane % 4) has c of rows g, g + 8 and columns 2t, 2t + 1.
LLM42__DEVICE void llm42__mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 1 / x, with an error of at most one unit in the last place.
LLM42__DEVICE float llm42__near_inverse(float x) {
    asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(x));
    return x;
}

// 2^x, with the bits of llm42__ex2 on Hopper, whose instruction a CPU reproduces: a backend makes sure of that when it
// opens. Nobody has compared other GPUs, so they take the polynomial.
LLM42__DEVICE float llm42__power(float x) {
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000
    asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
    return x;
#else
    return llm42__exp2(x);
#endif
}

// Two numbers as e4m3, with the bits of llm42__to_e4m3, but for NaN, which has no sign here.
LLM42__DEVICE uint32_t llm42__pack_e4m3(float low, float high) {
#if __CUDA_ARCH__ >= 890
    uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return llm42__to_e4m3(low) | (uint32_t)llm42__to_e4m3(high) << 8;
#endif
}

// Turns a warp's 8x8 matrix of 16-bit values: rows become columns.
LLM42__DEVICE uint32_t llm42__transposed(uint32_t x) {
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(x));
    return x;
}

// Loads what other devices may have written: a cache beside the multiprocessor could hold an older value.
LLM42__DEVICE uint4 llm42__load_shared_by_ranks(const void *from) {
    uint4 v;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from)
                 : "memory");
    return v;
}
// Two words of mail. Each is an access of its own in the memory model, and as such whole.
LLM42__DEVICE void llm42__put_mail(ulonglong2 *to, uint32_t first, uint32_t second, unsigned stamp) {
    const unsigned long long high = (unsigned long long)stamp << 32;
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1,%2};" ::"l"(to), "l"(high | first), "l"(high | second)
                 : "memory");
}
LLM42__DEVICE ulonglong2 llm42__get_mail(const ulonglong2 *from) {
    ulonglong2 v;
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0,%1}, [%2];" : "=l"(v.x), "=l"(v.y) : "l"(from) : "memory");
    return v;
}
// A number that devices tell one another. Who sees it also sees what was written before it was told.
LLM42__DEVICE void llm42__tell(unsigned *flag, unsigned value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
LLM42__DEVICE unsigned llm42__seen(const unsigned *flag) {
    unsigned value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}

// Instructions of sm_90a. On other devices no kernel calls them, and what nothing calls is not compiled.
// The registers that a thread of this warpgroup has from here on.
template <int COUNT> LLM42__DEVICE void llm42__fewer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> LLM42__DEVICE void llm42__more_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
LLM42__DEVICE void llm42__wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
LLM42__DEVICE void llm42__wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT> LLM42__DEVICE void llm42__wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}
#define LLM42__FOUR(d) "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define LLM42__TWO(n) LLM42__FOUR(c[n]), LLM42__FOUR(c[n + 1])
#define LLM42__EIGHT(n) LLM42__TWO(n), LLM42__TWO(n + 2), LLM42__TWO(n + 4), LLM42__TWO(n + 6)
// R: the registers of c, which are the operands %0, %1, ... of the instruction.
#define LLM42__R4 "%0,%1,%2,%3"
#define LLM42__R8 LLM42__R4 ",%4,%5,%6,%7"
#define LLM42__R16 LLM42__R8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define LLM42__R24 LLM42__R16 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define LLM42__R32 LLM42__R24 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define LLM42__R40 LLM42__R32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define LLM42__R48 LLM42__R40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define LLM42__R56 LLM42__R48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define LLM42__R64 LLM42__R56 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define LLM42__R80 LLM42__R64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define LLM42__R96 LLM42__R80 ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
// c[64 x 8N] = a[64 x 16] b[16 x 8N], plus the old c if `add`, by four warps. a and b lie in shared memory, along k. A,
// B, ADD: the operands that follow c's. In e4m3 there are 32 terms: a[64 x 32] b[32 x 8N].
#define LLM42__WGMMA_AS(NAME, STEP, END, A_IS, AS, EIGHTS, N, R, A, B, ADD, ...)                                     \
    LLM42__DEVICE void NAME(float(&c)[EIGHTS][4], A_IS, uint64_t b, int add) {                                       \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD ", 0;\nwgmma.mma_async.sync.aligned.m64n" N STEP " {" R \
                     "}, " A ", " B ", p, 1, 1" END ";\n}"                                                           \
                     : __VA_ARGS__                                                                                   \
                     : AS, "l"(b), "r"(add));                                                                        \
    }
#define LLM42__WGMMA(...)                                                                         \
    LLM42__WGMMA_AS(llm42__wgmma, "k16.f32.bf16.bf16", ", 0, 0", uint64_t a, "l"(a), __VA_ARGS__) \
    LLM42__WGMMA_AS(llm42__wgmma_e4m3, "k32.f32.e4m3.e4m3", "", uint64_t a, "l"(a), __VA_ARGS__)
LLM42__WGMMA(1, "8", LLM42__R4, "%4", "%5", "%6", LLM42__FOUR(c[0]))
LLM42__WGMMA(2, "16", LLM42__R8, "%8", "%9", "%10", LLM42__TWO(0))
LLM42__WGMMA(4, "32", LLM42__R16, "%16", "%17", "%18", LLM42__TWO(0), LLM42__TWO(2))
LLM42__WGMMA(6, "48", LLM42__R24, "%24", "%25", "%26", LLM42__TWO(0), LLM42__TWO(2), LLM42__TWO(4))
LLM42__WGMMA(8, "64", LLM42__R32, "%32", "%33", "%34", LLM42__EIGHT(0))
LLM42__WGMMA(10, "80", LLM42__R40, "%40", "%41", "%42", LLM42__EIGHT(0), LLM42__TWO(8))
LLM42__WGMMA(12, "96", LLM42__R48, "%48", "%49", "%50", LLM42__EIGHT(0), LLM42__TWO(8), LLM42__TWO(10))
LLM42__WGMMA(14, "112", LLM42__R56, "%56", "%57", "%58", LLM42__EIGHT(0), LLM42__TWO(8), LLM42__TWO(10), LLM42__TWO(12))
LLM42__WGMMA(16, "128", LLM42__R64, "%64", "%65", "%66", LLM42__EIGHT(0), LLM42__EIGHT(8))
LLM42__WGMMA(20, "160", LLM42__R80, "%80", "%81", "%82", LLM42__EIGHT(0), LLM42__EIGHT(8), LLM42__TWO(16),
             LLM42__TWO(18))
LLM42__WGMMA(24, "192", LLM42__R96, "%96", "%97", "%98", LLM42__EIGHT(0), LLM42__EIGHT(8), LLM42__EIGHT(16))
// The same with a in registers (A: four operands), and b along its columns.
#define LLM42__HELD "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
#define LLM42__WGMMA_HELD(...) \
    LLM42__WGMMA_AS(llm42__wgmma, "k16.f32.bf16.bf16", ", 1", const uint32_t(&a)[4], LLM42__HELD, __VA_ARGS__)
LLM42__WGMMA_HELD(8, "64", LLM42__R32, "{%32,%33,%34,%35}", "%36", "%37", LLM42__EIGHT(0))
LLM42__WGMMA_HELD(16, "128", LLM42__R64, "{%64,%65,%66,%67}", "%68", "%69", LLM42__EIGHT(0), LLM42__EIGHT(8))

LLM42__DEVICE uint32_t llm42__block_in_cluster() {
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
// The address by which the blocks of a cluster reach what block `rank` has at an address of its shared memory.
LLM42__DEVICE uint32_t llm42__address_in(uint32_t address, uint32_t rank) {
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}
// The place in block `rank` of the cluster that p has in this block's shared memory.
template <typename T> LLM42__DEVICE const T *llm42__in_block(const T *p, uint32_t rank) {
    uint64_t there;
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(p), "r"(rank));
    return (const T *)there;
}
LLM42__DEVICE void llm42__cluster_barrier() {
    asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;" ::: "memory");
}
// What a thread has written before, all threads of the cluster see behind it.
LLM42__DEVICE void llm42__cluster_meet() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
// Makes opened barriers known to the cluster and to copies.
LLM42__DEVICE void llm42__mbarriers_opened() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
// Arrives, and says how many bytes this phase waits for.
LLM42__DEVICE void llm42__mbarrier_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
LLM42__DEVICE void llm42__mbarrier_arrive_in(uint32_t there) {  // an address in a cluster
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
}
// The same. What this thread has read or written before comes before what the cluster's blocks do after the phase.
LLM42__DEVICE void llm42__mbarrier_release_in(uint32_t there) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
}
// Starts a store of 16 bytes into the shared memory of a cluster's block. They count for an mbarrier there.
LLM42__DEVICE void llm42__store4_in(uint32_t there, const float (&four)[4], uint32_t barrier_there) {
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(there),
        "f"(four[0]), "f"(four[1]), "f"(four[2]), "f"(four[3]), "r"(barrier_there)
        : "memory");
}
// Starts a copy of a box of a matrix into shared memory, by the copy engine (TMA). The box begins at (row, column) and
// is as large as the map says. What lies outside the matrix becomes zeros. The bytes count for an mbarrier.
#define LLM42__COPY_BOX(BEFORE, DIMENSIONS, HOW, FROM, ...)                                                  \
    asm volatile("{\n" BEFORE "cp.async.bulk.tensor." DIMENSIONS                                             \
                 ".shared::cluster.global.mbarrier::complete_tx::bytes" HOW " [%0], " FROM ";\n}" ::"r"(to), \
                 "l"(map), __VA_ARGS__                                                                       \
                 : "memory")
LLM42__DEVICE void llm42__copy_box(uint32_t to, const CUtensorMap *map, int column, int row, uint32_t barrier) {
    LLM42__COPY_BOX("", "2d", "", "[%1, {%2, %3}], [%4]", "r"(column), "r"(row), "r"(barrier));
}
// The same, to the same place in each of a cluster's blocks in a set.
LLM42__DEVICE void llm42__copy_box_to(uint32_t to, const CUtensorMap *map, int column, int row, uint32_t barrier,
                                      uint16_t blocks) {
    LLM42__COPY_BOX("", "2d", ".multicast::cluster", "[%1, {%2, %3}], [%4], %5", "r"(column), "r"(row), "r"(barrier),
                    "h"(blocks));
}
// Of an array with three dimensions.
LLM42__DEVICE void llm42__copy_box3(uint32_t to, const CUtensorMap *map, int c0, int c1, int c2, uint32_t barrier) {
    LLM42__COPY_BOX("", "3d", "", "[%1, {%2, %3, %4}], [%5]", "r"(c0), "r"(c1), "r"(c2), "r"(barrier));
}
// The same of what nobody will read again soon, so that it leaves the cache first.
LLM42__DEVICE void llm42__copy_box3_once(uint32_t to, const CUtensorMap *map, int c0, int c1, int c2,
                                         uint32_t barrier) {
    LLM42__COPY_BOX(".reg .b64 first;\ncreatepolicy.fractional.L2::evict_first.b64 first, 1.0;\n", "3d",
                    ".L2::cache_hint", "[%1, {%2, %3, %4}], [%5], first", "r"(c0), "r"(c1), "r"(c2), "r"(barrier));
}
// Stores what llm42__load_matrices loads (or two), turned: lane i has the address of column i % 8 of matrix i / 8.
LLM42__DEVICE void llm42__store_matrices_turned(uint32_t address, const uint32_t (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(r[0]),
                 "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}
LLM42__DEVICE void llm42__store_matrices_turned(uint32_t address, const uint32_t (&r)[2]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1,%2};" ::"r"(address), "r"(r[0]), "r"(r[1])
                 : "memory");
}
#endif

// For kernels that have nothing to do before their wait.
LLM42__DEVICE void llm42__launch_and_wait() {
    llm42__launch_next();
    llm42__wait_for_previous();
}

LLM42__DEVICE float llm42__rounded(float x) { return __bfloat162float(__float2bfloat16_rn(x)); }
LLM42__DEVICE uint32_t llm42__pack(float low, float high) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&pair);
}

// Rounds COUNT pairs (an even number) to bf16 and gives silu(gate) x up, on Hopper with the bits of llm42__silu. The
// compiler's division branches near the ends of the range, so that a thread's divisions would run one after another.
// Here they run side by side and have one branch in all, for |gate| from 64 on. For smaller gates a divisor is below
// 2^93, and a tiny gate is halved, which is exact. Quotients are right only if the device's near inverse is good
// enough, so cuda_leaves tries the gate of each bf16 value. (An error of one unit shows only in the gate 2^-23.)
template <int COUNT>
LLM42__DEVICE void llm42__gate(const float (&gate)[COUNT], const float (&up)[COUNT], float (&out)[COUNT]) {
    static_assert(COUNT % 2 == 0, "gates are rounded in pairs");
    float g[COUNT], u[COUNT], largest = 0;
    LLM42__UNROLLED(int i = 0; i < COUNT; i += 2) {
        const uint32_t gates = llm42__pack(gate[i], gate[i + 1]), ups = llm42__pack(up[i], up[i + 1]);
        g[i] = llm42__float(gates << 16), g[i + 1] = llm42__float(gates & 0xffff0000);
        u[i] = llm42__float(ups << 16), u[i + 1] = llm42__float(ups & 0xffff0000);
    }
    LLM42__UNROLLED(int i = 0; i < COUNT; i++) {
        largest = fmaxf(largest, fabsf(g[i]));
        const float divisor = 1.0f + llm42__power(g[i] * -1.44269504f), inverse = llm42__near_inverse(divisor),
                    quotient = g[i] * inverse, excess = fmaf(divisor, quotient, -g[i]);  // a zero keeps its sign
        out[i] = fmaf(-inverse, excess, quotient) * u[i];
    }
    if (largest < 64.0f) return;
    LLM42__UNROLLED(int i = 0; i < COUNT; i++)
        out[i] = __fdiv_rn(g[i], 1.0f + llm42__power(fminf(g[i] * -1.44269504f, 128.0f))) * u[i];
}

// The sum over a warp, or over groups of LANES lanes. Order: lanes by butterfly. Each lane gets the sum.
template <int LANES = 32, typename T> LLM42__DEVICE T llm42__sum_of_lanes(T x) {
    LLM42__UNROLLED(int i = LANES / 2; i; i >>= 1) x += __shfl_xor_sync(0xffffffffu, x, i);
    return x;
}

// Byte offset of a piece in rows of 128 bytes, permuted so that the same piece of eight rows lies in eight banks.
LLM42__DEVICE uint32_t llm42__swizzle(int row, int piece) { return (uint32_t)(row * 128 + ((piece ^ (row & 7)) << 4)); }

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define LLM42__WARPGROUPS 1  // products of four warps at once (wgmma); they have the order of those of one warp (mma)
#else
#define LLM42__WARPGROUPS 0
#endif
// The 64-bit word by which wgmma finds an operand in shared memory ("matrix descriptor" in the PTX manual). The operand
// lies in panels with rows of 128 bytes whose pieces are exchanged (swizzled).
//   bits  0-13   address / 16
//   bits 16-29   leading dimension: bytes from one panel to the next / 16; unused (1) where the operand has one panel
//   bits 32-45   stride: bytes from eight rows to the next eight / 16
//   bits 62-63   1: pieces are permuted within 128 bytes
LLM42__DEVICE uint64_t llm42__smem_descriptor(uint32_t address, int panel) {
    const uint64_t start = (address & 0x3ffff) >> 4, leading = (uint64_t)(panel >> 4), stride = 8 * 128 >> 4,
                   swizzle_128 = 1;
    return start | leading << 16 | stride << 32 | swizzle_128 << 62;
}

// Starts a kernel that may begin before the one ahead of it in the stream has ended. `blocks` blocks are a cluster.
template <typename... PARAMS, typename... ARGS>
static cudaError_t llm42__launch_clusters(int blocks, void (*kernel)(PARAMS...), dim3 grid, dim3 block, size_t shared,
                                          cudaStream_t stream, ARGS... args) {
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim = {(unsigned)blocks, 1, 1};
    int device = 0, major = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    const cudaLaunchConfig_t config = {grid, block, shared, stream, attributes, major < 9 ? 0u : blocks > 1 ? 2u : 1u};
    return cudaLaunchKernelEx(&config, kernel, static_cast<PARAMS>(args)...);
}
template <typename... PARAMS, typename... ARGS>
static cudaError_t llm42__launch(void (*kernel)(PARAMS...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                                 ARGS... args) {
    return llm42__launch_clusters(1, kernel, grid, block, shared, stream, args...);
}

// >>kernel-product -----------------------------------------------------------------------------------------------
// Owns: matrix products, in the sequential order.

// Rows of a grouped product, for a mixture: expert e's weights are for the rows offset[e] <= r < offset[e + 1].
typedef struct llm42__groups {
    const int32_t *offset;  // [E + 1]; NULL: one matrix for all rows
    const int32_t *source;  // row of x behind row r; NULL: r itself
    int experts;
} llm42__groups;

// Where each rank norms some rows, fp32 sums of o and down go to the rank of row r: to[r / rows]. Elsewhere rows is 0.
typedef struct llm42__owners {
    int rows;
    float *to[8];
} llm42__owners;
template <typename OUT> LLM42__DEVICE OUT *llm42__row_of(OUT *y, const llm42__owners &owners, int row, int n) {
    if constexpr (std::is_same_v<OUT, float>)
        if (owners.rows) y = owners.to[row / owners.rows];
    return y + (size_t)row * n;
}

// Leaves of a product: its sums over k are cut into `count` parts (1, 2, 4 or 8) of `terms` terms each, a multiple of
// 16; what is left of k is padding. Without a part_stride the parts are joined by a binary tree of neighbours, ((0 + 1)
// + (2 + 3)) + ..., in fp32. Else part p is an output of its own, y + p x part_stride.
typedef struct llm42__leaves {
    int count, terms;
    size_t part_stride;
    llm42__owners owners = {};
    void *workspace = nullptr;  // of llm42__k_leaves alone: device memory, for sums that wait there
    size_t workspace_bytes = 0;
} llm42__leaves;

// Shared memory of llm42__k_matmul: a ring of stages. Each has CHUNK terms of OUTPUTS rows of w and of ROWS rows of x.
//
//               k ------------------------------------>
//   w, x     | chunk | chunk | chunk | chunk | ...          copies run STAGES - 1 chunks ahead of the products
//                 :       :       :
//   stages       | w x | | w x | | w x |                    chunk c is in stage c % STAGES
template <int TILES, int WARPS, int CHUNK_, int STAGES_> struct llm42__ring {
    enum { CHUNK = CHUNK_, STAGES = STAGES_, ROWS = TILES * 8, OUTPUTS = WARPS * 16 };
    enum { PIECES = CHUNK / 8, COPIED = WARPS * 32 / PIECES };  // of a row's chunk; rows that a block copies at once
    enum { ROW = CHUNK * 2, W_BYTES = OUTPUTS * ROW, STAGE = W_BYTES + ROWS * ROW };  // bytes
    // Offset of a piece. The pieces of a row are permuted, so that eight rows use different banks.
    static LLM42__DEVICE uint32_t place(int row, int piece) {
        return (uint32_t)(row * ROW) + (uint32_t)((piece ^ (row & 7)) << 4);
    }
};

// How far the copies of an operand have come: the stage that is filled next, and its term of k and block of outputs.
// Copies go on from block to block without a break. A thread copies a piece of every COPIED-th row from `first` on.
template <typename RING> struct llm42__operand {
    int blocks, k, block = (int)blockIdx.x, stride = (int)gridDim.x, at = 0, stage = 0;
    LLM42__DEVICE bool ended() const { return block >= blocks; }
    // Goes on by one stage. True if another block of outputs begins.
    LLM42__DEVICE bool advance() {
        at += RING::CHUNK;
        if (++stage == RING::STAGES) stage = 0;
        if (at < k) return false;
        block += stride, at = 0;
        return true;
    }
};

// Starts copies of the next chunk of w. from: where this thread's first piece lies.
template <typename RING>
LLM42__DEVICE void llm42__load_w(llm42__operand<RING> &w, const llm42__bf16 *&from, int first, int piece,
                                 uint32_t stages) {
    if (w.ended()) return;
    const uint32_t to = stages + (uint32_t)(w.stage * RING::STAGE);
    const bool valid = RING::CHUNK == 64 || w.at + piece * 8 < w.k;
    LLM42__UNROLLED(int i = 0; i < RING::OUTPUTS / RING::COPIED; i++)
        llm42__copy16(to + RING::place(first + i * RING::COPIED, piece), from + (size_t)i * RING::COPIED * w.k, valid);
    from += RING::CHUNK;
    const int passed = w.at + RING::CHUNK;
    if (w.advance()) from += (size_t)w.stride * RING::OUTPUTS * w.k - passed;
}

// Starts copies of the next chunk of the rows row0 <= r < row_end of x; beyond them it writes zeros.
template <typename RING>
LLM42__DEVICE void llm42__load_x(llm42__operand<RING> &own, const llm42__bf16 *x, const int32_t *source, int row0,
                                 int row_end, int first, int piece, uint32_t stages) {
    if (own.ended()) return;
    const uint32_t to = stages + (uint32_t)(own.stage * RING::STAGE) + RING::W_BYTES;
    LLM42__UNROLLED(int i = 0; i < (RING::ROWS + RING::COPIED - 1) / RING::COPIED; i++) {
        const int place = first + i * RING::COPIED, row = row0 + place;
        if (RING::ROWS % RING::COPIED != 0 && place >= RING::ROWS) break;
        const bool valid = row < row_end && (RING::CHUNK == 64 || own.at + piece * 8 < own.k);
        const size_t from = !valid ? 0 : source ? source[row] : row;
        llm42__copy16(to + RING::place(place, piece), x + from * own.k + (valid ? own.at + piece * 8 : 0), valid);
    }
    own.advance();
}

// The sum of a value over this lane and those below it.
LLM42__DEVICE int llm42__sum_upto(int value) {
    const int lane = threadIdx.x % 32;
    LLM42__UNROLLED(int i = 1; i < 32; i *= 2) {
        const int below = __shfl_up_sync(0xffffffffu, value, i);
        value += lane >= i ? below : 0;
    }
    return value;
}

// Finds the expert and the rows row0 <= r < row_end of row tile `tile`, by each warp for itself. False: there is none.
LLM42__DEVICE bool llm42__find_group(const llm42__groups &groups, int tile, int tile_rows, int *expert, int *row0,
                                     int *row_end) {
    const int lane = threadIdx.x % 32;
    for (int first = 0; first < groups.experts; first += 32) {
        const int e = min(first + lane, groups.experts), begin = groups.offset[e],
                  end = groups.offset[min(e + 1, groups.experts)], tiles = (end - begin + tile_rows - 1) / tile_rows;
        const int upto = llm42__sum_upto(tiles);
        const unsigned behind = __ballot_sync(0xffffffffu, tile < upto);
        const int found = behind ? __ffs((int)behind) - 1 : 31;
        tile -= __shfl_sync(0xffffffffu, behind ? upto - tiles : upto, found);
        if (!behind) continue;
        *expert = first + found;
        *row0 = __shfl_sync(0xffffffffu, begin, found) + tile * tile_rows;
        *row_end = __shfl_sync(0xffffffffu, end, found);
        return true;
    }
    return false;
}

// Counts through the leaves of a sum, if it has LEAVES. Host functions, too, for tests.
template <bool LEAVES = true> struct llm42__leaf_count {
    int terms, count, left, done;  // of a leaf; leaves; terms left in this one; leaves that have ended
    __host__ LLM42__DEVICE bool ends_within() const { return LEAVES && left == 16; }  // the next 32 terms
    // The leaf that ends with the next n terms, or -1.
    __host__ LLM42__DEVICE int pass(int n) {
        left -= n;
        if (!LEAVES || left || done == count) return -1;
        left = terms;
        return done++;
    }
};

// sum += x w^T over the terms of a stage, in ascending order. close(l) takes the sums of leaf l where it ends.
template <int TILES, int WARPS, int CHUNK, int STAGES, typename LEAVES, typename CLOSE>
LLM42__DEVICE void llm42__multiply(float (&sum)[TILES][4], uint32_t at, LEAVES &leaves, CLOSE close) {
    using ring = llm42__ring<TILES, WARPS, CHUNK, STAGES>;
    const int lane = threadIdx.x % 32, w_row = threadIdx.x / 32 * 16 + lane % 16;
    LLM42__UNROLLED(int pair = 0; pair < CHUNK / 32; pair++) {  // of steps of 16
        uint32_t a[2][4], b[4];
        llm42__load_matrices(a[0], at + ring::place(w_row, 4 * pair + lane / 16));
        llm42__load_matrices(a[1], at + ring::place(w_row, 4 * pair + 2 + lane / 16));
        const bool apart = leaves.ends_within();  // a leaf ends between the two steps
        LLM42__UNROLLED(int t = 0; t < TILES; t++) {
            llm42__load_matrices(b, at + ring::W_BYTES + ring::place(t * 8 + lane % 8, 4 * pair + lane / 8));
            llm42__mma(sum[t], a[0], b[0], b[1]);
            if (!apart) llm42__mma(sum[t], a[1], b[2], b[3]);
        }
        int ended = leaves.pass(apart ? 16 : 32);
        if (ended >= 0) close(ended);
        if (!apart) continue;
        LLM42__UNROLLED(int t = 0; t < TILES; t++) {
            llm42__load_matrices(b, at + ring::W_BYTES + ring::place(t * 8 + lane % 8, 4 * pair + lane / 8));
            llm42__mma(sum[t], a[1], b[2], b[3]);
        }
        ended = leaves.pass(16);
        if (ended >= 0) close(ended);
    }
}

// Takes a leaf's sums into the tree, where pending[l] is 2^l leaves. They become 0, or, with the last leaf, the total.
template <int TILES>
__host__ LLM42__DEVICE void llm42__join_leaf(float (&pending)[3][TILES][4], float (&sum)[TILES][4], int leaf,
                                             bool last) {
    bool alone = false;
    for (int level = 0; level < 3; level++) {
        if (alone) continue;
        alone = !(leaf >> level & 1);
        for (int t = 0; t < TILES; t++)
            for (int i = 0; i < 4; i++)
                if (alone) pending[level][t][i] = sum[t][i];
                else sum[t][i] = pending[level][t][i] + sum[t][i];
    }
    for (int t = 0; t < TILES; t++)
        for (int i = 0; i < 4; i++)
            if (!last) sum[t][i] = 0.0f;
}

// Writes a warp's sums, for sixteen outputs from n0 on and the rows from row0 on, and sets them to zero.
template <int TILES, bool GATED, typename OUT>
LLM42__DEVICE void llm42__write_outputs(float (&sum)[TILES][4], OUT *y, const llm42__owners &owners, int n, int n0,
                                        int row0, int row_end) {
    const int lane = threadIdx.x % 32;
    LLM42__UNROLLED(int t = 0; t < TILES; t++) {
        float gated[2];
        if (GATED) llm42__gate<2>({sum[t][0], sum[t][1]}, {sum[t][2], sum[t][3]}, gated);
        LLM42__UNROLLED(int i = 0; i < 2; i++) {
            const int row = row0 + t * 8 + lane % 4 * 2 + i;
            const float first = sum[t][i], second = sum[t][2 + i];
            sum[t][i] = sum[t][2 + i] = 0.0f;
            if (row >= row_end) continue;
            if (GATED) {
                y[(size_t)row * (n / 2) + n0 / 2 + lane / 4] = (OUT)gated[i];
            } else {
                OUT *to = llm42__row_of(y, owners, row, n) + n0 + lane / 4;
                to[0] = (OUT)first, to[8] = (OUT)second;
            }
        }
    }
}

// y[R, N] = x[R, k] w[N, k]^T. GATED: y[R, N/2] = silu(gate) x up, of groups of eight gate and then eight up outputs.
// Work: a warp computes 16 outputs of TILES x 8 rows. The WARPS warps of a block have the same rows; blockIdx.y says
// which. Blocks stride over the outputs and keep the ring full. Copies of w start before x has been written.
// Order: the sequential order, with LEAVES in each leaf. It depends on k and the leaves alone, and not on R.
template <int TILES, int WARPS, int CHUNK, int STAGES, bool GATED, bool LEAVES, typename OUT>
__global__ void __launch_bounds__(WARPS * 32)
    llm42__k_matmul(const llm42__bf16 *__restrict__ x, const llm42__bf16 *__restrict__ w, OUT *__restrict__ y, int rows,
                    int n, int k, llm42__groups groups, llm42__leaves leaves) {
    extern __shared__ __align__(1024) unsigned char shared[];
    using ring = llm42__ring<TILES, WARPS, CHUNK, STAGES>;
    const uint32_t stages = llm42__shared_address(shared);
    const int blocks = n / ring::OUTPUTS, my_row = threadIdx.x / ring::PIECES, piece = threadIdx.x % ring::PIECES;
    int row0 = blockIdx.y * ring::ROWS, row_end = rows;
    if (groups.offset) {
        int expert;
        llm42__wait_for_previous();
        if (!llm42__find_group(groups, blockIdx.y, ring::ROWS, &expert, &row0, &row_end)) return;
        w += (size_t)expert * n * k;
    }
    llm42__operand<ring> w_operand = {blocks, k}, x_operand = {blocks, k};
    const llm42__bf16 *w_from = w + ((size_t)blockIdx.x * ring::OUTPUTS + my_row) * k + piece * 8;
    auto load_w = [&]() { llm42__load_w(w_operand, w_from, my_row, piece, stages); };
    auto load_x = [&]() { llm42__load_x(x_operand, x, groups.source, row0, row_end, my_row, piece, stages); };
    for (int s = 0; s < STAGES - 1; s++) load_w();
    llm42__launch_next();
    if (!groups.offset) llm42__wait_for_previous();
    for (int s = 0; s < STAGES - 1; s++) {
        load_x();
        llm42__copy_commit();
    }
    float sum[TILES][4] = {};
    int stage = 0;
    for (int block = blockIdx.x; block < blocks; block += gridDim.x) {
        auto n0 = [&]() { return block * ring::OUTPUTS + (int)threadIdx.x / 32 * 16; };
        float pending[LEAVES ? 3 : 1][TILES][4];
        auto close = [&](int leaf) {
            if constexpr (LEAVES) {
                if (leaves.part_stride)
                    llm42__write_outputs<TILES, GATED>(sum, y + leaf * leaves.part_stride, leaves.owners, n, n0(), row0,
                                                       row_end);
                else llm42__join_leaf<TILES>(pending, sum, leaf, leaf + 1 == leaves.count);
            }
        };
        llm42__leaf_count<LEAVES> now = {};
        if (LEAVES) now = {leaves.terms, leaves.count, leaves.terms, 0};
        for (int k0 = 0; k0 < k; k0 += CHUNK) {
            llm42__copy_wait<STAGES - 2>();
            __syncthreads();  // all threads' copies of this stage are there, and the stage to fill next is read
            load_w();
            load_x();
            llm42__copy_commit();
            llm42__multiply<TILES, WARPS, CHUNK, STAGES>(sum, stages + (uint32_t)(stage * ring::STAGE), now, close);
            if (++stage == STAGES) stage = 0;
        }
        if (LEAVES && leaves.part_stride) continue;  // every part has been written
        llm42__write_outputs<TILES, GATED>(sum, y, leaves.owners, n, n0(), row0, row_end);
    }
}

// Runs a matrix product by one build of a kernel: llm42__k_matmul, llm42__k_leaves or llm42__k_experts.
typedef cudaError_t llm42__product_fn(const llm42__bf16 *x, const llm42__bf16 *w, void *y, int rows, int n, int k,
                                      llm42__groups groups, llm42__leaves leaves, int processors, cudaStream_t stream);
typedef struct llm42__tile_kind {
    const char *name;
    int rows, outputs, bytes;                                  // of a block; shared memory it takes
    llm42__product_fn *plain, *gated, *fp32, *joined, *parts;  // joined: leaves, to bf16; parts: leaves, to fp32
} llm42__tile_kind;

template <int TILES, int WARPS, int CHUNK, int STAGES, int RESIDENT, bool GATED, bool LEAVES, typename OUT>
static cudaError_t llm42__cu_matmul(const llm42__bf16 *x, const llm42__bf16 *w, void *y, int rows, int n, int k,
                                    llm42__groups groups, llm42__leaves leaves, int processors, cudaStream_t stream) {
    auto kernel = llm42__k_matmul<TILES, WARPS, CHUNK, STAGES, GATED, LEAVES, OUT>;
    const int bytes = STAGES * (WARPS * 16 + TILES * 8) * CHUNK * 2;
    cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
    int tiles = (rows + TILES * 8 - 1) / (TILES * 8), all = n / (16 * WARPS), fill = processors * RESIDENT;
    if (groups.offset) {  // there are at most so many tiles, of unlike size: blocks for four times what runs at once
        tiles = LLM42__MIN(rows, tiles + groups.experts);
        fill *= 4;
    }
    int most = LLM42__MAX(1, fill / tiles), rounds = (all + most - 1) / most;
    return llm42__launch(kernel, dim3((all + rounds - 1) / rounds, tiles), dim3(WARPS * 32), bytes, stream, x, w,
                         (OUT *)y, rows, n, k, groups, leaves);
}

// The builds of llm42__k_matmul that algorithms are chosen from, with the same bits. The last one fits every device.
#define LLM42__TILE_KIND(T, W, C, S, RESIDENT)                                      \
    {                                                                               \
        "tile" #T "x" #W "x" #C "x" #S, T * 8, W * 16, S *(W * 16 + T * 8) * C * 2, \
            llm42__cu_matmul<T, W, C, S, RESIDENT, false, false, llm42__bf16>,      \
            llm42__cu_matmul<T, W, C, S, RESIDENT, true, false, llm42__bf16>,       \
            llm42__cu_matmul<T, W, C, S, RESIDENT, false, false, float>,            \
            llm42__cu_matmul<T, W, C, S, RESIDENT, false, true, llm42__bf16>,       \
            llm42__cu_matmul<T, W, C, S, RESIDENT, false, true, float>              \
    }
static const llm42__tile_kind llm42__tile_kinds[] = {
    LLM42__TILE_KIND(1, 2, 512, 4, 1), LLM42__TILE_KIND(1, 4, 256, 4, 1), LLM42__TILE_KIND(1, 2, 256, 4, 2),
    LLM42__TILE_KIND(1, 2, 128, 8, 2), LLM42__TILE_KIND(2, 2, 512, 4, 1), LLM42__TILE_KIND(2, 4, 256, 4, 1),
    LLM42__TILE_KIND(2, 2, 256, 4, 2), LLM42__TILE_KIND(2, 2, 128, 8, 2), LLM42__TILE_KIND(4, 2, 256, 5, 1),
    LLM42__TILE_KIND(4, 4, 128, 4, 2), LLM42__TILE_KIND(8, 4, 128, 4, 1), LLM42__TILE_KIND(8, 4, 64, 4, 2)};
enum { LLM42__TILE_KINDS = sizeof llm42__tile_kinds / sizeof *llm42__tile_kinds };

// The sum of what 1, 2, 4 or 8 leaves have at an index, by the tree of neighbours.
template <int MOST> LLM42__DEVICE float4 llm42__leaf_sum(const float4 (&part)[MOST], int count) {
    float4 sum[MOST];
    LLM42__UNROLLED(int p = 0; p < MOST; p++) sum[p] = part[p];
    LLM42__UNROLLED(int apart = 1; apart < MOST; apart *= 2)
        LLM42__UNROLLED(int p = 0; p < MOST; p += 2 * apart)
            if (const float4 &other = sum[p + apart]; p + apart < count)
                sum[p] = make_float4(sum[p].x + other.x, sum[p].y + other.y, sum[p].z + other.z, sum[p].w + other.w);
    return sum[0];
}
LLM42__DEVICE void llm42__write4(float4 sum, float *to) { *(float4 *)to = sum; }
LLM42__DEVICE void llm42__write4(float4 sum, llm42__bf16 *to) {
    *(uint2 *)to = make_uint2(llm42__pack(sum.x, sum.y), llm42__pack(sum.z, sum.w));
}

// Shapes: parts [count][R, n], fp32, part_stride apart -> out [R, n]; n is a multiple of 4, values R x n.
// Work: a thread takes four values at a time. Order: the leaves' tree.
template <typename OUT>
__global__ void __launch_bounds__(256) llm42__k_join(const float *parts, size_t part_stride, int count, size_t values,
                                                     int n, llm42__owners owners, OUT *out) {
    llm42__launch_and_wait();
    for (size_t i = 4 * (blockIdx.x * (size_t)blockDim.x + threadIdx.x); i < values;
         i += 4 * (size_t)gridDim.x * blockDim.x) {
        float4 part[8];
        LLM42__UNROLLED(int p = 0; p < 8; p++)
            part[p] = p < count ? *(const float4 *)(parts + p * part_stride + i) : make_float4(0, 0, 0, 0);
        const int row = (int)(i / n);
        llm42__write4(llm42__leaf_sum(part, count), llm42__row_of(out, owners, row, n) + (i - (size_t)row * n));
    }
}

// >>kernel-leaves ------------------------------------------------------------------------------------------------
// Owns: products with leaves for many rows, by warpgroups: four warps that multiply at once (wgmma, sm_90a).

// A block computes 128 outputs of ROWS rows at a time. One of its three warpgroups starts copies, the other two take 64
// outputs each. A cluster of SPLIT x SHARE blocks works together. SPLIT blocks compute the same tile, each from a part
// of the leaves. SHARE blocks have the same outputs and rows of their own, and each copies a part of w for all.
//
// Shared memory of a block:
//   stages     a ring; a stage holds a chunk of 64 terms, of w and of x
//   scratch    of each of the eight warps: sums of leaves while others are summed, other blocks' sums, outputs
//   mbarriers  full and empty of each stage; ready and joined of each warp
//
// Registers hold sums of three leaves for up to 128 rows, but only of two for more. Then other sums must wait elsewhere
// (llm42__held_sums): in registers that are left, in the scratch, which must leave room for four stages, and in memory.
enum { LLM42__LEAF_OUTPUTS = 128 };
template <int ROWS_, int SPLIT_, int SHARE_, int LEAVES_> struct llm42__leaf_tile {
    enum { ROWS = ROWS_, SPLIT = SPLIT_, SHARE = SHARE_, LEAVES = LEAVES_ };  // LEAVES: of a block
    enum { OUTPUTS = LLM42__LEAF_OUTPUTS, CHUNK = 64, WARPS = 8, THREADS = 128 + WARPS * 32, ROOM = 226 * 1024 };
    // W_ROWS: that a block copies
    enum { BLOCKS = SPLIT * SHARE, CLUSTER_ROWS = ROWS * SHARE, W_ROWS = OUTPUTS / SHARE };
    enum { EIGHTS = ROWS / 8, OWN = EIGHTS / SPLIT };  // of rows; those that a block joins and writes
    enum { ROW = CHUNK * 2, W_BYTES = OUTPUTS * ROW, STAGE = W_BYTES + ROWS * ROW };  // bytes
    // Bytes of a warp's sums for eight rows, in fp32; eights that other blocks send.
    enum { EIGHT = 4 * 4 * 32, RECEIVED = (SPLIT - 1) * OWN };
    // Where the sums of a pair of leaves and of four leaves wait, in eights. KEPT wait in registers. With the sums of
    // two leaves they take 208 of a thread's 240 registers. With SPLIT the joining of blocks needs these.
    enum { TWO_SETS = ROWS > 128, WAIT = TWO_SETS && LEAVES >= 4, KEPT = WAIT && SPLIT == 1 ? 52 - 2 * EIGHTS : 0 };
    enum { PAIR_KEPT = LEAVES == 4 ? KEPT : 0, SPARE = (ROOM - 4 * STAGE) / (WARPS * EIGHT) };
    enum { PAIR_IN_SCRATCH = WAIT ? LLM42__MIN(SPARE, EIGHTS - PAIR_KEPT) : 0 };
    enum { PAIR_IN_WORKSPACE = WAIT ? EIGHTS - PAIR_KEPT - PAIR_IN_SCRATCH : 0 };
    enum { FOUR_IN_WORKSPACE = TWO_SETS && LEAVES == 8 ? EIGHTS - KEPT : 0 };
    enum { IN_WORKSPACE = PAIR_IN_WORKSPACE + FOUR_IN_WORKSPACE, WORKSPACE = WARPS * IN_WORKSPACE * EIGHT };
    enum { HELD = PAIR_IN_SCRATCH + (!TWO_SETS && LEAVES == 8) * EIGHTS };             // one of the two is 0
    enum { SCRATCH = LLM42__MAX(HELD, LLM42__MAX(RECEIVED, (OWN + 1) / 2)) * EIGHT };  // of a warp
    enum { FIT = (ROOM - WARPS * SCRATCH) / STAGE, STAGES = FIT < 8 ? FIT : 8, SCRATCH_AT = STAGES * STAGE };
    enum { FULL_AT = SCRATCH_AT + WARPS * SCRATCH, EMPTY_AT = FULL_AT + 8 * STAGES };
    enum { JOINED_AT = EMPTY_AT + 8 * STAGES, READY_AT = JOINED_AT + 8 * WARPS, BYTES = READY_AT + 8 * WARPS };
};

// The warp of this thread, the same register for all lanes.
LLM42__DEVICE int llm42__warp() { return __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0); }

// A block's place in its cluster and in the work. Tiles of rows change first, so that blocks share few tiles of w.
template <typename TILE> struct llm42__leaf_work {
    int part, share, row_tiles, tiles, row_end;  // a tile here has the rows of all SHARE blocks
    LLM42__DEVICE llm42__leaf_work(int rows, int n) : row_end(rows) {
        const int rank = (int)llm42__block_in_cluster();
        part = rank / TILE::SHARE, share = rank % TILE::SHARE;
        row_tiles = (rows + TILE::CLUSTER_ROWS - 1) / TILE::CLUSTER_ROWS;
        tiles = row_tiles * (n / TILE::OUTPUTS);
    }
    LLM42__DEVICE int first() const { return (int)blockIdx.x / TILE::BLOCKS; }
    LLM42__DEVICE int stride() const { return (int)gridDim.x / TILE::BLOCKS; }
    LLM42__DEVICE int row0(int tile) const { return tile % row_tiles * TILE::CLUSTER_ROWS + share * TILE::ROWS; }
    LLM42__DEVICE int n0(int tile) const { return tile / row_tiles * TILE::OUTPUTS; }
    LLM42__DEVICE int w_row(int tile) const { return n0(tile); }
    LLM42__DEVICE int column(int terms) const { return part * TILE::LEAVES * terms; }
    LLM42__DEVICE size_t part_at() const { return 0; }
    LLM42__DEVICE void seek(int) {}
};
// The same for a mixture (llm42__k_experts): an item is a tile of one expert's rows, a leaf and 128 outputs, of which
// the last changes fastest. table [E + 1], in shared memory: of each expert that has rows, its first tile, the first of
// its rows, their end, and its number; then the number of all tiles.
template <typename TILE> struct llm42__expert_work {
    enum { part = 0, share = 0 };
    const int4 *table;
    int leaves, n, tiles;  // tiles: items, in all
    size_t part_stride;
    int expert = 0, row = 0, row_end = 0, output = 0, leaf = 0;  // of the item that seek has found
    LLM42__DEVICE int first() const { return (int)blockIdx.x; }
    LLM42__DEVICE int stride() const { return (int)gridDim.x; }
    // Finds an item that is not before the last one.
    LLM42__DEVICE void seek(int item) {
        const int blocks = n / TILE::OUTPUTS, rest = item / blocks, tile = rest / leaves;
        output = (item - rest * blocks) * TILE::OUTPUTS, leaf = rest - tile * leaves;
        while (tile >= table[1].x) table++;
        row = table->y + (tile - table->x) * TILE::ROWS, row_end = table->z, expert = table->w;
    }
    LLM42__DEVICE int row0(int) const { return row; }
    LLM42__DEVICE int n0(int) const { return output; }
    LLM42__DEVICE int w_row(int) const { return expert * n + output; }
    LLM42__DEVICE int column(int terms) const { return leaf * terms; }
    LLM42__DEVICE size_t part_at() const { return leaf * part_stride; }
};

// A place in the ring, and how often the ring has been gone round, modulo 2.
template <int STAGES> struct llm42__ring_place {
    int stage = 0;
    uint32_t turn = 0;
    LLM42__DEVICE void advance() {
        if (++stage == STAGES) stage = 0, turn ^= 1;
    }
};

// Opens the barriers of the stages, which `fill` arrivals make full and `read` arrivals make empty.
template <typename TILE>
LLM42__DEVICE void llm42__open_stages(uint32_t shared, int fill = 1, int read = TILE::WARPS * TILE::SHARE) {
    for (int s = 0; s < TILE::STAGES; s++) {
        llm42__mbarrier_open(shared + TILE::FULL_AT + 8 * s, fill);
        llm42__mbarrier_open(shared + TILE::EMPTY_AT + 8 * s, read);
    }
}

// Fills the stages, by one thread. Copies of w start before the kernel that writes x has ended.
template <typename TILE, typename WORK>
LLM42__DEVICE void llm42__fill_stages(const CUtensorMap *w_map, const CUtensorMap *x_map, uint32_t shared, WORK work,
                                      int terms) {
    const int chunks = TILE::LEAVES * terms / TILE::CHUNK, ahead = LLM42__MIN(chunks, (int)TILE::STAGES);
    const uint16_t sharers = (uint16_t)(((1 << TILE::SHARE) - 1) << work.part * TILE::SHARE);
    const int first = work.share * TILE::W_ROWS;
    auto load_w = [&](int stage, int tile, int chunk) {
        const uint32_t full = shared + TILE::FULL_AT + 8 * stage, at = shared + stage * TILE::STAGE + first * TILE::ROW;
        const int column = work.column(terms) + chunk * TILE::CHUNK, row = work.w_row(tile) + first;
        llm42__mbarrier_expect(full, TILE::STAGE);
        if (TILE::SHARE == 1) llm42__copy_box(at, w_map, column, row, full);
        else llm42__copy_box_to(at, w_map, column, row, full, sharers);
    };
    auto load_x = [&](int stage, int tile, int chunk) {
        llm42__copy_box(shared + stage * TILE::STAGE + TILE::W_BYTES, x_map, work.column(terms) + chunk * TILE::CHUNK,
                        work.row0(tile), shared + TILE::FULL_AT + 8 * stage);
    };
    work.seek(work.first());
    for (int i = 0; i < ahead; i++) load_w(i, work.first(), i);
    llm42__wait_for_previous();
    for (int i = 0; i < ahead; i++) load_x(i, work.first(), i);
    llm42__ring_place<TILE::STAGES> place;
    for (int i = 0; i < ahead; i++) place.advance();
    for (int tile = work.first(), chunk = ahead; tile < work.tiles; tile += work.stride(), chunk = 0) {
        work.seek(tile);
        for (; chunk < chunks; chunk++, place.advance()) {
            llm42__mbarrier_wait(shared + TILE::EMPTY_AT + 8 * place.stage, place.turn ^ 1);
            load_w(place.stage, tile, chunk);
            load_x(place.stage, tile, chunk);
        }
    }
    // Not earlier: on two H200 a decode pass of one row took 3% longer when the next kernel waited meanwhile.
    llm42__launch_next();
    // Others arrive at this block's barriers, so it must not end before them.
    for (int i = 0; TILE::SHARE > 1 && i < TILE::STAGES; i++, place.advance())
        llm42__mbarrier_wait(shared + TILE::EMPTY_AT + 8 * place.stage, place.turn ^ 1);
}

// Keeps the compiler from using sums before the products that wait has waited for.
template <int EIGHTS> LLM42__DEVICE void llm42__settle(float (&sum)[EIGHTS][4]) {
    LLM42__UNROLLED(int e = 0; e < EIGHTS; e++) asm volatile("" : LLM42__FOUR(sum[e])::"memory");
}
template <int EIGHTS> LLM42__DEVICE void llm42__add_sums(float (&to)[EIGHTS][4], float (&other)[EIGHTS][4]) {
    llm42__settle(to);
    llm42__settle(other);
    LLM42__UNROLLED(int i = 0; i < EIGHTS * 4; i++) to[i / 4][i % 4] = to[i / 4][i % 4] + other[i / 4][i % 4];
    llm42__settle(to);
}

// Multiplies the stages, in their order, by a warpgroup. The products of a stage run while those of the next one are
// started, also where a leaf ends: the next leaf has other registers.
template <typename TILE> struct llm42__stage_products {
    uint32_t full, empty;  // of stage 0
    uint64_t w, x;         // descriptors of stage 0
    int chunks, part;      // of a leaf
    llm42__ring_place<TILE::STAGES> place;
    int running = -1;  // the stage that the tensor cores still read

    LLM42__DEVICE llm42__stage_products(uint32_t shared, int terms, int part)
        : full(shared + TILE::FULL_AT), empty(shared + TILE::EMPTY_AT), chunks(terms / TILE::CHUNK), part(part) {
        const int group = llm42__warp() / 4 - 1;
        w = llm42__smem_descriptor(shared + (uint32_t)(group * 64 * TILE::ROW), 16);
        x = llm42__smem_descriptor(shared + TILE::W_BYTES, 16);
    }
    // Gives back the running stage, to all blocks that fill it.
    LLM42__DEVICE void give_back() {
        const int lane = threadIdx.x % 32;
        if (running < 0 || lane >= TILE::SHARE) return;
        if (TILE::SHARE == 1) llm42__mbarrier_arrive(empty + 8 * running);
        else llm42__mbarrier_arrive_in(llm42__address_in(empty + 8 * running, (uint32_t)(part * TILE::SHARE + lane)));
    }
    LLM42__DEVICE void start(float (&sum)[TILE::EIGHTS][4], bool first) {
        llm42__mbarrier_wait(full + 8 * place.stage, place.turn);
        llm42__wgmma_fence();
        LLM42__UNROLLED(int step = 0; step < TILE::CHUNK / 16; step++) {
            const uint32_t at = (uint32_t)(place.stage * TILE::STAGE + step * 32) >> 4;
            llm42__wgmma(sum, w + at, x + at, !first || step);
        }
        llm42__wgmma_commit();
        llm42__wgmma_wait<1>();
        give_back();
        running = place.stage;
        place.advance();
    }
    LLM42__DEVICE void finish() {
        llm42__wgmma_wait<0>();
        give_back();
        running = -1;
    }
    // Sums a leaf. then() runs beside its first products, when those of the leaf before have ended.
    template <typename THEN> LLM42__DEVICE void leaf(float (&sum)[TILE::EIGHTS][4], THEN then) {
        start(sum, true);
        then();
#pragma unroll 1
        for (int chunk = 1; chunk < chunks; chunk++) start(sum, false);
    }
    LLM42__DEVICE void leaf(float (&sum)[TILE::EIGHTS][4]) {
        leaf(sum, [] {});
    }
};

LLM42__DEVICE float4 llm42__four(const float (&x)[4]) { return make_float4(x[0], x[1], x[2], x[3]); }
LLM42__DEVICE void llm42__set_four(float (&x)[4], float4 to) { x[0] = to.x, x[1] = to.y, x[2] = to.z, x[3] = to.w; }

// A warp's sums that wait for others: IN_SCRATCH eights in its scratch, IN_WORKSPACE in the workspace, then registers.
template <int EIGHTS, int IN_SCRATCH, int IN_WORKSPACE> struct llm42__held_sums {
    enum { STORED = IN_SCRATCH + IN_WORKSPACE, KEPT = EIGHTS - STORED };
    float4 *scratch, *workspace;
    float kept[KEPT ? KEPT : 1][4];
    LLM42__DEVICE float4 *place(int e) {
        return (e < IN_SCRATCH ? scratch + e * 32 : workspace + (e - IN_SCRATCH) * 32) + threadIdx.x % 32;
    }
    LLM42__DEVICE void hold(const float (&sum)[EIGHTS][4]) {
        LLM42__UNROLLED(int e = 0; e < STORED; e++) *place(e) = llm42__four(sum[e]);
        LLM42__UNROLLED(int i = 0; i < KEPT * 4; i++) kept[i / 4][i % 4] = sum[STORED + i / 4][i % 4];
    }
    LLM42__DEVICE void recall(float (&sum)[EIGHTS][4]) {
        LLM42__UNROLLED(int e = 0; e < STORED; e++) llm42__set_four(sum[e], *place(e));
        LLM42__UNROLLED(int i = 0; i < KEPT * 4; i++) sum[STORED + i / 4][i % 4] = kept[i / 4][i % 4];
    }
};

// a = the sum of the block's leaves, by the tree of neighbours: ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)).
template <typename TILE>
LLM42__DEVICE void llm42__sum_leaves(llm42__stage_products<TILE> &products, float (&a)[TILE::EIGHTS][4],
                                     float4 *scratch) {
    llm42__held_sums<TILE::EIGHTS, TILE::EIGHTS, 0> held = {scratch};
    float b[TILE::EIGHTS][4] = {}, c[TILE::EIGHTS][4] = {};
    products.leaf(a);                                   // 0
    if constexpr (TILE::LEAVES >= 2) products.leaf(b);  // 1
    if constexpr (TILE::LEAVES >= 4) {
        products.leaf(c, [&] { llm42__add_sums(a, b); });  // 2
        products.leaf(b);                                  // 3
    }
    products.finish();
    if constexpr (TILE::LEAVES == 2) llm42__add_sums(a, b);
    if constexpr (TILE::LEAVES >= 4) llm42__add_sums(c, b);
    if constexpr (TILE::LEAVES == 4) llm42__add_sums(a, c);
    if constexpr (TILE::LEAVES == 8) {
        products.leaf(b, [&] {  // 4
            llm42__add_sums(a, c);
            held.hold(a);
        });
        products.leaf(a);                                  // 5
        products.leaf(c, [&] { llm42__add_sums(b, a); });  // 6
        products.leaf(a);                                  // 7
        products.finish();
        llm42__add_sums(c, a);
        llm42__add_sums(b, c);
        held.recall(a);
        llm42__add_sums(a, b);
    }
    llm42__settle(a);
}
// The same with registers for two leaves' sums. Others wait where there is room.
template <typename TILE>
LLM42__DEVICE void llm42__sum_leaf_pairs(llm42__stage_products<TILE> &products, float (&a)[TILE::EIGHTS][4],
                                         float4 *scratch, float4 *workspace) {
    typedef float sums[TILE::EIGHTS][4];
    llm42__held_sums<TILE::EIGHTS, TILE::PAIR_IN_SCRATCH, TILE::PAIR_IN_WORKSPACE> two = {scratch, workspace};
    llm42__held_sums<TILE::EIGHTS, 0, TILE::FOUR_IN_WORKSPACE> four = {nullptr,
                                                                       workspace + TILE::PAIR_IN_WORKSPACE * 32};
    sums b = {};
    // to = the sum of two leaves. then() runs beside the first one's products.
    auto pair = [&](sums &to, sums &other, auto then) {
        products.leaf(to, then);
        products.leaf(other);
        products.finish();
        llm42__add_sums(to, other);
    };
    if constexpr (TILE::LEAVES == 1) products.leaf(a), products.finish();
    else pair(a, b, [] {});  // 0 + 1
    if constexpr (TILE::LEAVES >= 4) {
        pair(b, a, [&] { two.hold(a); });  // 2 + 3
        two.recall(a);
        llm42__add_sums(a, b);
    }
    if constexpr (TILE::LEAVES == 8) {
        pair(b, a, [&] { four.hold(a); });  // 4 + 5
        pair(a, b, [&] { two.hold(b); });   // 6 + 7
        two.recall(b);
        llm42__add_sums(b, a);
        four.recall(a);
        llm42__add_sums(a, b);
    }
    llm42__settle(a);
}

// Sends each block of the same outputs its rows' sums and takes theirs. own: the sums of the rows that this one writes.
template <typename TILE>
LLM42__DEVICE void llm42__join_blocks(float (&own)[TILE::OWN][4], float (&sum)[TILE::EIGHTS][4], uint32_t shared,
                                      float4 *scratch, int part, int share) {
    const int lane = threadIdx.x % 32;
    const uint32_t joined = shared + TILE::JOINED_AT + 8 * (llm42__warp() - 4),
                   mine = llm42__shared_address(scratch) + (uint32_t)lane * 16;
    if constexpr (TILE::PAIR_IN_SCRATCH) {  // sums that waited in the scratch have been read: others may write there
        const uint32_t ready = joined + TILE::READY_AT - TILE::JOINED_AT;
        __syncwarp();
        if (lane < TILE::SPLIT && lane != part)
            llm42__mbarrier_release_in(llm42__address_in(ready, (uint32_t)(lane * TILE::SHARE + share)));
        llm42__mbarrier_wait<true>(ready, 0);
    }
    LLM42__UNROLLED(int to = 0; to < TILE::SPLIT; to++) {
        if (to == part) {
            LLM42__UNROLLED(int i = 0; i < TILE::OWN * 4; i++) own[i / 4][i % 4] = sum[to * TILE::OWN + i / 4][i % 4];
            continue;
        }
        const uint32_t rank = (uint32_t)(to * TILE::SHARE + share), place = (uint32_t)(part - (part > to)),
                       there = llm42__address_in(mine + place * (TILE::OWN * TILE::EIGHT), rank),
                       joined_there = llm42__address_in(joined, rank);
        LLM42__UNROLLED(int e = 0; e < TILE::OWN; e++)
            llm42__store4_in(there + (uint32_t)(e * TILE::EIGHT), sum[to * TILE::OWN + e], joined_there);
    }
    llm42__mbarrier_wait<true>(joined, 0);
    LLM42__UNROLLED(int e = 0; e < TILE::OWN; e++) {
        float4 sums[TILE::SPLIT];
        LLM42__UNROLLED(int p = 0; p < TILE::SPLIT; p++)
            sums[p] = p == part ? llm42__four(own[e]) : scratch[((p - (p > part)) * TILE::OWN + e) * 32 + lane];
        llm42__set_four(own[e], llm42__leaf_sum(sums, TILE::SPLIT));
    }
}

// Writes a warp's sums, for sixteen outputs from n0 on and the rows from row0 on. A lane has output lane / 4 and the
// eighth behind it. It exchanges one of them with its neighbour, so that 64 bytes of a row are written at once.
template <int OWN>
LLM42__DEVICE void llm42__write_rows(const float (&sum)[OWN][4], float *y, const llm42__owners &owners, int n, int n0,
                                     int row0, int rows, float4 *) {
    const int lane = threadIdx.x % 32, odd = lane / 4 % 2;
    LLM42__UNROLLED(int e = 0; e < OWN; e++)
        LLM42__UNROLLED(int i = 0; i < 2; i++) {
            const float got = __shfl_xor_sync(0xffffffffu, odd ? sum[e][i] : sum[e][2 + i], 4);
            const int row = row0 + e * 8 + lane % 4 * 2 + i, at = odd ? 8 + lane / 4 - 1 : lane / 4;
            if (row >= rows) continue;
            *(float2 *)(llm42__row_of(y, owners, row, n) + n0 + at) = odd ? make_float2(got, sum[e][2 + i])
                                                                          : make_float2(sum[e][i], got);
        }
}
// In bf16 they go through the scratch: two pieces of a row, exchanged in every other four rows to use different banks.
template <int OWN>
LLM42__DEVICE void llm42__write_rows(const float (&sum)[OWN][4], llm42__bf16 *y, const llm42__owners &, int n, int n0,
                                     int row0, int rows, float4 *scratch) {
    const int lane = threadIdx.x % 32;
    auto place = [](int row, int piece) { return row * 2 + (piece ^ (row >> 2 & 1)); };
    __syncwarp();  // all lanes have read what was in the scratch
    LLM42__UNROLLED(int e = 0; e < OWN; e += 2) {
        const bool last = e + 1 == OWN;  // eight rows without a neighbour
        const uint32_t to = llm42__shared_address(scratch +
                                                  place((e + (last ? 0 : lane / 16)) * 8 + lane % 8, lane / 8 % 2));
        const uint32_t r[2] = {llm42__pack(sum[e][0], sum[e][1]), llm42__pack(sum[e][2], sum[e][3])};
        if (last) {
            llm42__store_matrices_turned(to, r);
        } else {
            const uint32_t both[4] = {r[0], r[1], llm42__pack(sum[e + 1][0], sum[e + 1][1]),
                                      llm42__pack(sum[e + 1][2], sum[e + 1][3])};
            llm42__store_matrices_turned(to, both);
        }
    }
    __syncwarp();
    LLM42__UNROLLED(int i = 0; i < (OWN + 1) / 2; i++) {
        const int row = i * 16 + lane / 2, piece = lane % 2;
        if (row < OWN * 8 && row0 + row < rows)
            *(float4 *)(y + (size_t)(row0 + row) * n + n0 + piece * 8) = scratch[place(row, piece)];
    }
    __syncwarp();
}
// The same with a gate: sixteen outputs from n0 on, eight of gate and eight of up, give one piece of a row.
template <int EIGHTS>
LLM42__DEVICE void llm42__write_gated(const float (&sum)[EIGHTS][4], llm42__bf16 *y, int n, int n0, int row0, int rows,
                                      float4 *scratch) {
    const int lane = threadIdx.x % 32;
    __syncwarp();  // all lanes have read what was in the scratch
    LLM42__UNROLLED(int e = 0; e < EIGHTS; e += 2) {
        const float(&a)[4] = sum[e], (&b)[4] = sum[LLM42__MIN(e + 1, EIGHTS - 1)];  // the last one twice: not read
        float out[4];
        llm42__gate<4>({a[0], a[1], b[0], b[1]}, {a[2], a[3], b[2], b[3]}, out);
        const uint32_t both[2] = {llm42__pack(out[0], out[1]), llm42__pack(out[2], out[3])};
        llm42__store_matrices_turned(llm42__shared_address(scratch + e * 8 + lane % 16), both);
    }
    __syncwarp();
    LLM42__UNROLLED(int row = lane; row < EIGHTS * 8; row += 32)
        if (row0 + row < rows) *(float4 *)(y + (size_t)(row0 + row) * (n / 2) + n0 / 2) = scratch[row];
    __syncwarp();
}

template <typename TILE, bool GATED, typename WORK, typename OUT>
LLM42__DEVICE void llm42__multiply_tiles(unsigned char *shared, WORK work, OUT *y, const llm42__owners &owners,
                                         float4 *workspace, int n, int terms) {
    const int warp = llm42__warp() - 4;
    const uint32_t base = llm42__shared_address(shared);
    float4 *scratch = (float4 *)(shared + TILE::SCRATCH_AT + warp * TILE::SCRATCH);
    workspace += ((int)blockIdx.x * TILE::WARPS + warp) * TILE::IN_WORKSPACE * 32;
    llm42__stage_products<TILE> products(base, terms, work.part);
    for (int tile = work.first(); tile < work.tiles; tile += work.stride()) {
        float sum[TILE::EIGHTS][4] = {};
        work.seek(tile);
        if constexpr (TILE::TWO_SETS) llm42__sum_leaf_pairs(products, sum, scratch, workspace);
        else llm42__sum_leaves(products, sum, scratch);
        const int n0 = work.n0(tile) + warp * 16, row0 = work.row0(tile) + work.part * TILE::OWN * 8;
        if constexpr (GATED) {
            llm42__write_gated(sum, y, n, n0, row0, work.row_end, scratch);
        } else if constexpr (TILE::SPLIT == 1) {
            llm42__write_rows(sum, y + work.part_at(), owners, n, n0, row0, work.row_end, scratch);
        } else {
            float own[TILE::OWN][4];
            llm42__join_blocks<TILE>(own, sum, base, scratch, work.part, work.share);
            llm42__write_rows(own, y, owners, n, n0, row0, work.row_end, scratch);
        }
    }
}

// Shapes: x [R, k] and w [n, k], by their maps -> y [R, n] = x w^T, where k = SPLIT x LEAVES x terms, terms is a
// multiple of 64 and n of 128. Work: see llm42__leaf_tile. With SPLIT a cluster has one tile, else clusters stride over
// tiles. workspace: tile::WORKSPACE bytes for each block. Order: in each leaf the sequential order (wgmma takes 16
// terms at a time, as mma does, from zero on), then the leaves' tree. It depends on k and the leaves alone.
template <int ROWS, int SPLIT, int SHARE, int LEAVES, typename OUT>
__global__ void __launch_bounds__(LLM42__WARPGROUPS ? 384 : 32, 1)
    llm42__k_leaves(const __grid_constant__ CUtensorMap w_map, const __grid_constant__ CUtensorMap x_map, OUT *y,
                    const __grid_constant__ llm42__owners owners, float4 *workspace, int rows, int n, int terms) {
#if LLM42__WARPGROUPS
    extern __shared__ __align__(1024) unsigned char shared[];
    using tile = llm42__leaf_tile<ROWS, SPLIT, SHARE, LEAVES>;
    const uint32_t base = llm42__shared_address(shared);
    const llm42__leaf_work<tile> work(rows, n);
    if (threadIdx.x == 0) {
        llm42__open_stages<tile>(base);
        for (int w = 0; w < tile::WARPS; w++) llm42__mbarrier_open(base + tile::JOINED_AT + 8 * w, 1);
        for (int w = 0; SPLIT > 1 && tile::PAIR_IN_SCRATCH && w < tile::WARPS; w++)
            llm42__mbarrier_open(base + tile::READY_AT + 8 * w, SPLIT - 1);
        llm42__mbarriers_opened();
        for (int w = 0; w < tile::WARPS; w++)
            llm42__mbarrier_expect(base + tile::JOINED_AT + 8 * w, tile::RECEIVED * tile::EIGHT);
    }
    if (tile::BLOCKS > 1) llm42__cluster_barrier();
    else __syncthreads();
    // Registers move from the warpgroup that copies to those that sum.
    if (threadIdx.x < 128) {
        llm42__fewer_registers<24>();
        if (threadIdx.x == 0) llm42__fill_stages<tile>(&w_map, &x_map, base, work, terms);
    } else {
        llm42__more_registers<240>();
        llm42__multiply_tiles<tile, false>(shared, work, y, owners, workspace, n, terms);
    }
#endif
}

// A map, by which the copy engine finds boxes of an array. In shared memory their rows of 128 bytes lie as
// llm42__swizzle says. The L2 cache reads 128 bytes at a time: with 256 it is slower.
static cudaError_t llm42__encode_map(CUtensorMap *map, CUtensorMapDataType type, unsigned dimensions, const void *from,
                                     const cuuint64_t *size, const cuuint64_t *stride, const cuuint32_t *box) {
    typedef decltype(&cuTensorMapEncodeTiled) encode_fn;
    static const encode_fn encode = []() {  // of the driver, so that programs need not be linked with it
        void *found = nullptr;
        cudaDriverEntryPointQueryResult status;
#if CUDART_VERSION >= 12050
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &status);
#else
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &status);
#endif
        return (encode_fn)found;
    }();
    const cuuint32_t step[] = {1, 1, 1};
    if (!encode || encode(map, type, dimensions, (void *)from, size, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                          CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
        return cudaErrorNotSupported;
    return cudaSuccess;
}
// That of a matrix [rows, k] with boxes of box_rows rows and 64 terms.
static cudaError_t llm42__map_matrix(CUtensorMap *map, const llm42__bf16 *from, int rows, int k, int box_rows) {
    const cuuint64_t size[] = {(cuuint64_t)k, (cuuint64_t)rows}, stride[] = {(cuuint64_t)k * 2};
    const cuuint32_t box[] = {64, (cuuint32_t)box_rows};
    return llm42__encode_map(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, from, size, stride, box);
}

// An llm42__product_fn. A block has LEAVES leaves, or twice as many where that is too few.
template <int ROWS, int SPLIT, int SHARE, typename OUT, int LEAVES = SPLIT == 1 ? 2 : 1>
static cudaError_t llm42__cu_leaves(const llm42__bf16 *x, const llm42__bf16 *w, void *y, int rows, int n, int k,
                                    llm42__groups groups, llm42__leaves leaves, int processors, cudaStream_t stream) {
    using tile = llm42__leaf_tile<ROWS, SPLIT, SHARE, LEAVES>;
    auto kernel = llm42__k_leaves<ROWS, SPLIT, SHARE, LEAVES, OUT>;
    if constexpr (SPLIT * LEAVES < 8)
        if (leaves.count > SPLIT * LEAVES)
            return llm42__cu_leaves<ROWS, SPLIT, SHARE, OUT, 2 * LEAVES>(x, w, y, rows, n, k, groups, leaves,
                                                                         processors, stream);
    if (leaves.count != SPLIT * LEAVES || leaves.terms % tile::CHUNK || leaves.count * leaves.terms != k ||
        n % tile::OUTPUTS)
        return cudaErrorNotSupported;
    CUtensorMap w_map, x_map;
    cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, tile::BYTES);
    if (error == cudaSuccess) error = llm42__map_matrix(&w_map, w, n, k, tile::W_ROWS);
    if (error == cudaSuccess) error = llm42__map_matrix(&x_map, x, rows, k, ROWS);
    if (error != cudaSuccess) return error;
    const int tiles = (rows + tile::CLUSTER_ROWS - 1) / tile::CLUSTER_ROWS * (n / tile::OUTPUTS),
              most = LLM42__MAX(1, processors / tile::BLOCKS), rounds = SPLIT > 1 ? 1 : (tiles + most - 1) / most,
              clusters = (tiles + rounds - 1) / rounds;
    if ((size_t)(clusters * tile::BLOCKS) * (size_t)tile::WORKSPACE > leaves.workspace_bytes)
        return cudaErrorNotSupported;
    return llm42__launch_clusters(tile::BLOCKS, kernel, dim3((unsigned)(clusters * tile::BLOCKS)), dim3(tile::THREADS),
                                  tile::BYTES, stream, w_map, x_map, (OUT *)y, leaves.owners,
                                  (float4 *)leaves.workspace, rows, n, leaves.terms);
}

// The builds of llm42__k_leaves to choose from, with the bits of llm42__k_matmul with leaves. With 4,096 outputs rows
// have 32 tiles, so an H200's 132 multiprocessors compute four tiles of rows at once: 384 to 768 rows, or with SPLIT 2
// half as many. If pairs share w, tiles of 96 to 128 rows are faster; an odd tile of rows costs a pair as much as two.
typedef struct llm42__leaf_kind {
    const char *name;
    int rows, split;
    llm42__product_fn *bf16, *fp32;
} llm42__leaf_kind;
#define LLM42__LEAF_KIND(ROWS, SPLIT, SHARE)                                                                \
    {                                                                                                       \
        "leaf" #ROWS "x" #SPLIT "x" #SHARE, ROWS, SPLIT, llm42__cu_leaves<ROWS, SPLIT, SHARE, llm42__bf16>, \
            llm42__cu_leaves<ROWS, SPLIT, SHARE, float>                                                     \
    }
static const llm42__leaf_kind llm42__leaf_kinds[] = {
    LLM42__LEAF_KIND(64, 2, 1),  LLM42__LEAF_KIND(80, 2, 1),  LLM42__LEAF_KIND(96, 2, 1),  LLM42__LEAF_KIND(112, 2, 1),
    LLM42__LEAF_KIND(128, 2, 1), LLM42__LEAF_KIND(160, 2, 1), LLM42__LEAF_KIND(192, 2, 1), LLM42__LEAF_KIND(96, 1, 2),
    LLM42__LEAF_KIND(112, 1, 2), LLM42__LEAF_KIND(128, 1, 2), LLM42__LEAF_KIND(160, 1, 1), LLM42__LEAF_KIND(192, 1, 1)};
enum { LLM42__LEAF_KINDS = sizeof llm42__leaf_kinds / sizeof *llm42__leaf_kinds };

// Shapes: x [entries, k], sorted by expert, and w [E, n, k], by their maps as [E n, k]; offset [E + 1]: each expert's
// first row -> y [entries, n] = x w^T of each row's expert, or with GATED [entries, n / 2], as in llm42__k_matmul. Leaf
// l of a sum goes to y + l x part_stride. A sum has leaves x terms products; terms is a multiple of 64, n of 128. Work:
// a block takes items of llm42__expert_work, its ring filled across them. Order: sequential in each leaf.
template <int ROWS, bool GATED, typename OUT>
__global__ void __launch_bounds__(LLM42__WARPGROUPS ? 384 : 32, 1)
    llm42__k_experts(const __grid_constant__ CUtensorMap w_map, const __grid_constant__ CUtensorMap x_map, OUT *y,
                     size_t part_stride, const int32_t *offset, int experts, int leaves, int n, int terms) {
#if LLM42__WARPGROUPS
    extern __shared__ __align__(1024) unsigned char shared[];
    using tile = llm42__leaf_tile<ROWS, 1, 1, 1>;
    const uint32_t base = llm42__shared_address(shared);
    int4 *const table = (int4 *)(shared + tile::BYTES);
    int *const begins = (int *)(table + experts + 1), *const row_tiles = begins + experts + 1;
    if (threadIdx.x == 0) {
        llm42__open_stages<tile>(base);
        llm42__mbarriers_opened();
    }
    llm42__wait_for_previous();
    for (int e = threadIdx.x; e <= experts; e += tile::THREADS) begins[e] = offset[e];
    __syncthreads();
    if (threadIdx.x < 32) {
        const int lane = threadIdx.x;
        int before = 0, used = 0;  // tiles and experts in the table
        for (int first = 0; first < experts; first += 32) {
            const int e = first + lane, begin = begins[min(e, experts)], end = begins[min(e + 1, experts)];
            const int tiles = (end - begin + ROWS - 1) / ROWS, upto = llm42__sum_upto(tiles);
            const unsigned all = __ballot_sync(0xffffffffu, tiles > 0);
            if (tiles) table[used + __popc(all & ((1u << lane) - 1))] = make_int4(before + upto - tiles, begin, end, e);
            before += __shfl_sync(0xffffffffu, upto, 31);
            used += __popc(all);
        }
        if (lane == 0) table[used] = make_int4(before, 0, 0, 0), *row_tiles = before;
    }
    __syncthreads();
    const llm42__expert_work<tile> work = {table, leaves, n, *row_tiles * leaves * (n / tile::OUTPUTS), part_stride};
    if (work.first() >= work.tiles) return;
    if (threadIdx.x < 128) {
        llm42__fewer_registers<40>();
        if (threadIdx.x == 0) llm42__fill_stages<tile>(&w_map, &x_map, base, work, terms);
    } else {
        llm42__more_registers<232>();
        llm42__multiply_tiles<tile, GATED>(shared, work, y, llm42__owners{}, nullptr, n, terms);
    }
#endif
}

// Gives a kernel its shared memory. cudaErrorNotSupported: built for sm_90 and not for sm_90a it has fewer threads.
template <typename KERNEL> static cudaError_t llm42__make_ready(KERNEL kernel, int threads, int bytes) {
    cudaFuncAttributes built;
    cudaError_t error = cudaFuncGetAttributes(&built, kernel);
    if (error != cudaSuccess) return error;
    if (built.maxThreadsPerBlock < threads) return cudaErrorNotSupported;
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

// An llm42__product_fn for mixtures. cudaErrorNotSupported: not for these shapes.
template <int ROWS, bool GATED, typename OUT>
static cudaError_t llm42__cu_experts(const llm42__bf16 *x, const llm42__bf16 *w, void *y, int rows, int n, int k,
                                     llm42__groups groups, llm42__leaves leaves, int processors, cudaStream_t stream) {
    using tile = llm42__leaf_tile<ROWS, 1, 1, 1>;
    auto kernel = llm42__k_experts<ROWS, GATED, OUT>;
    const int terms = leaves.count > 1 ? leaves.terms : k, bytes = tile::BYTES + (groups.experts + 1) * 20 + 4,
              tiles = LLM42__MIN(rows, groups.experts + rows / ROWS),  // there are at most so many
        items = tiles * leaves.count * (n / tile::OUTPUTS);
    CUtensorMap w_map, x_map;
    if (terms % tile::CHUNK || n % tile::OUTPUTS || bytes > 227 * 1024) return cudaErrorNotSupported;
    cudaError_t error = llm42__make_ready(kernel, tile::THREADS, bytes);
    if (error == cudaSuccess) error = llm42__map_matrix(&w_map, w, groups.experts * n, k, tile::OUTPUTS);
    if (error == cudaSuccess) error = llm42__map_matrix(&x_map, x, rows, k, ROWS);
    if (error != cudaSuccess) return error;
    return llm42__launch(kernel, dim3((unsigned)LLM42__MIN(items, processors)), dim3(tile::THREADS), bytes, stream,
                         w_map, x_map, (OUT *)y, leaves.part_stride, groups.offset, groups.experts, leaves.count, n,
                         terms);
}

// The builds of llm42__k_experts, and up to how many rows of an average expert each is for. Few experts have more rows
// than the average and twice its root. All give the bits of llm42__k_matmul with groups.
typedef struct llm42__expert_kind {
    int rows, most;
    llm42__product_fn *gated, *plain, *fp32;
} llm42__expert_kind;
#define LLM42__EXPERT_KIND(ROWS, MOST)                                                                       \
    {                                                                                                        \
        ROWS, MOST, llm42__cu_experts<ROWS, true, llm42__bf16>, llm42__cu_experts<ROWS, false, llm42__bf16>, \
            llm42__cu_experts<ROWS, false, float>                                                            \
    }
static const llm42__expert_kind llm42__expert_kinds[] = {LLM42__EXPERT_KIND(8, 4),   LLM42__EXPERT_KIND(16, 9),
                                                         LLM42__EXPERT_KIND(32, 22), LLM42__EXPERT_KIND(48, 36),
                                                         LLM42__EXPERT_KIND(80, 64), LLM42__EXPERT_KIND(160, 1 << 30)};

// >>kernel-e4m3 --------------------------------------------------------------------------------------------------
// Owns: products of weights in e4m3 (FP8 models), and their inputs in e4m3, by warpgroups (sm_90a).
//
// Shapes: x [R, k] and w [n, k], in e4m3, n and k multiples of 128 -> y [R, n], in bf16 or fp32. Order: see DETERMINISM
// in llm42.h. A chain of 128 terms takes four steps of 32 (wgmma). Each leaf is a sum. CHANNEL: y = (sum * scale of w)
// * scale of x. The order depends on k, scaling and leaves alone; cuBLASLt has it unless it splits k.
typedef struct llm42__e4m3_args {
    const float *x_scale, *w_scale;  // BLOCK: [k / 128][R], [n / 128][stride]; CHANNEL: [R], [n]
    void *y;
    bool channel, fp32;
    int rows, n, stride;
    int leaves, blocks;         // blocks of 128 terms in a leaf
    size_t part_stride;         // from the y of a leaf to that of the next one
    llm42__groups groups = {};  // of a mixture w is [E n, k], and rows are sorted by expert
} llm42__e4m3_args;

// With few rows of x. wgmma multiplies 64 rows of weights by its columns, few of which x would fill. So its 64 rows are
// sixteen outputs with four blocks of k each, and its columns are ROWS rows of x with the same four blocks each. Of the
// sixteen pairs of blocks, the four with equal blocks are used. A copy then takes 512 bytes of an output at once. A
// lane has the chains of one block for four sums. Four lanes exchange theirs, and then each adds those of one sum.
template <int OUTPUTS_, int ROWS_, bool CHANNEL_> struct llm42__e4m3_few {
    enum { OUTPUTS = OUTPUTS_, ROWS = ROWS_, RESIDENT = 2, CHANNEL = CHANNEL_, STACK = 4 };
    enum { EIGHTS = ROWS / 8, HELPERS = CHANNEL ? 0 : 1, HELPED = ROWS / 8, WARPS = OUTPUTS / 4 };
    enum { THREADS = WARPS * 32 + 32 + HELPERS * 32, W_BYTES = OUTPUTS * STACK * 128 };
    enum { STAGE = W_BYTES + ROWS * STACK * 128, SCALES = HELPERS * ROWS * STACK * 4 };
    enum { STAGES = LLM42__MIN(111 * 1024 / (STAGE + SCALES + 16), 16), SCALES_AT = STAGES * STAGE };
    enum { FULL_AT = SCALES_AT + STAGES * SCALES, EMPTY_AT = FULL_AT + 8 * STAGES, BYTES = EMPTY_AT + 8 * STAGES };
    // Where the scale i of a stage lies: a row's four blocks lie together.
    LLM42__DEVICE static int place(int i) { return i; }
};

// A tile: a block of outputs and rows of one leaf and, in a mixture, of one expert. Blocks stride over tiles. Rows
// change first, then leaves, then outputs, so that blocks share few tiles of w; in a mixture outputs change first.
template <typename TILE> struct llm42__e4m3_work {
    int expert = 0, row0 = 0, row_end = 0, output = 0, leaf = 0;
    // Finds a tile, by all lanes of a warp. False: there is none.
    LLM42__DEVICE bool seek(const llm42__e4m3_args &a, int tile) {
        const int blocks = a.n / TILE::OUTPUTS;
        if (a.groups.offset) {
            output = tile % blocks * TILE::OUTPUTS, leaf = tile / blocks % a.leaves;
            return llm42__find_group(a.groups, tile / blocks / a.leaves, TILE::ROWS, &expert, &row0, &row_end);
        }
        const int row_tiles = (a.rows + TILE::ROWS - 1) / TILE::ROWS, rest = tile / row_tiles;
        row0 = tile % row_tiles * TILE::ROWS, row_end = a.rows;
        leaf = rest % a.leaves, output = rest / a.leaves * TILE::OUTPUTS;
        return output < a.n;
    }
    LLM42__DEVICE int block(const llm42__e4m3_args &a) const { return leaf * a.blocks; }
    LLM42__DEVICE int w_row(const llm42__e4m3_args &a) const { return expert * a.n + output; }
};

// Fills the stages, by one warp: a stage holds STACK blocks of k. Copies of w start while x is still being written.
template <typename TILE>
LLM42__DEVICE void llm42__e4m3_fill(const CUtensorMap *w_map, const CUtensorMap *x_map, uint32_t base,
                                    const llm42__e4m3_args &a) {
    const int steps = (a.blocks + TILE::STACK - 1) / TILE::STACK;
    const bool first_lane = threadIdx.x % 32 == 0, once = TILE::STACK > 1 || a.rows <= TILE::ROWS;
    llm42__e4m3_work<TILE> work;
    auto load_w = [&](int stage, int step) {
        const uint32_t full = base + TILE::FULL_AT + 8 * stage;
        llm42__mbarrier_expect(full, TILE::STAGE);
        const int block = work.block(a) + step * TILE::STACK;
        if (once) llm42__copy_box3_once(base + stage * TILE::STAGE, w_map, 0, block, work.w_row(a), full);
        else llm42__copy_box3(base + stage * TILE::STAGE, w_map, 0, block, work.w_row(a), full);
    };
    auto load_x = [&](int stage, int step) {
        llm42__copy_box3(base + stage * TILE::STAGE + TILE::W_BYTES, x_map, 0, work.row0,
                         work.block(a) + step * TILE::STACK, base + TILE::FULL_AT + 8 * stage);
    };
    if (a.groups.offset) llm42__wait_for_previous();
    bool there = work.seek(a, blockIdx.x);
    const int ahead = there ? LLM42__MIN(steps, (int)TILE::STAGES) : 0;
    for (int i = 0; i < ahead && first_lane; i++) load_w(i, i);
    if (TILE::STACK > 1) llm42__launch_next();
    if (!a.groups.offset) llm42__wait_for_previous();
    llm42__ring_place<TILE::STAGES> place;
    for (int i = 0; i < ahead; i++, place.advance())
        if (first_lane) load_x(i, i);
    for (int tile = blockIdx.x, step = ahead; there; step = 0) {
        for (; step < steps; step++, place.advance()) {
            if (!first_lane) continue;
            llm42__mbarrier_wait(base + TILE::EMPTY_AT + 8 * place.stage, place.turn ^ 1);
            load_w(place.stage, step);
            load_x(place.stage, step);
        }
        there = work.seek(a, tile += gridDim.x);
    }
    if (TILE::STACK == 1) llm42__launch_next();
}

// Puts scale of x * scale of w into the stages, by HELPERS warps. Each lane makes HELPED of these products for a stage,
// the first of which is number `first`. It loads the scales of the next AT_ONCE stages before it stores the products of
// the present ones, because scales of w come from far: the first of them before the kernel that writes x has ended.
template <typename TILE>
LLM42__DEVICE void llm42__e4m3_multiply_scales(unsigned char *shared, uint32_t base, const llm42__e4m3_args &a,
                                               int first) {
    enum { LANES = TILE::HELPERS * 32, AT_ONCE = TILE::STACK > 1 && TILE::HELPED == 1 ? 8 : 4 };
    enum { COUNT = AT_ONCE * TILE::HELPED };
    const int steps = (a.blocks + TILE::STACK - 1) / TILE::STACK;
    float scale[COUNT], of_w[COUNT], of_x[COUNT];
    llm42__ring_place<TILE::STAGES> place;
    llm42__e4m3_work<TILE> work;
    auto at = [&](int step, int i) {
        return min((step + i / TILE::HELPED) * TILE::STACK + (first + i % TILE::HELPED * LANES) % TILE::STACK,
                   a.blocks - 1);
    };
    auto load_w = [&](int step) {
        const float *from = a.w_scale + (size_t)(work.w_row(a) / 128) * a.stride + work.block(a);
        LLM42__UNROLLED(int i = 0; i < COUNT; i++) of_w[i] = from[at(step, i)];
    };
    auto load_x = [&](int step) {
        const float *from = a.x_scale + (size_t)work.block(a) * a.rows;
        LLM42__UNROLLED(int i = 0; i < COUNT; i++) {
            const int row = min(work.row0 + (first + i % TILE::HELPED * LANES) / TILE::STACK, a.rows - 1);
            of_x[i] = from[(size_t)at(step, i) * a.rows + row];
        }
    };
    if (a.groups.offset) llm42__wait_for_previous();
    bool there = work.seek(a, blockIdx.x);
    if (there) load_w(0);
    if (!a.groups.offset) llm42__wait_for_previous();
    if (there) load_x(0);
    for (int tile = blockIdx.x, step = 0; there;) {
        const int count = min(steps - step, (int)AT_ONCE);
        LLM42__UNROLLED(int i = 0; i < COUNT; i++) scale[i] = of_x[i] * of_w[i];
        step += AT_ONCE;
        if (step >= steps) step = 0, there = work.seek(a, tile += gridDim.x);
        if (there) load_w(step), load_x(step);
        LLM42__UNROLLED(int s = 0; s < AT_ONCE; s++) {
            if (s >= count) break;
            llm42__mbarrier_wait(base + TILE::EMPTY_AT + 8 * place.stage, place.turn ^ 1);
            float *to = (float *)(shared + TILE::SCALES_AT + place.stage * TILE::SCALES);
            LLM42__UNROLLED(int i = 0; i < TILE::HELPED; i++)
                if (first + i * LANES < TILE::ROWS * TILE::STACK)
                    to[TILE::place(first + i * LANES)] = scale[s * TILE::HELPED + i];
            __syncwarp();
            if (threadIdx.x % 32 == 0) llm42__mbarrier_arrive(base + TILE::FULL_AT + 8 * place.stage);
            place.advance();
        }
    }
}

// The products of a warpgroup. Those of a stage run while those of the stage before are added.
template <typename TILE> struct llm42__e4m3_products {
    uint32_t base;
    uint64_t w, x;                                // descriptors of stage 0
    llm42__ring_place<TILE::STAGES> ahead, done;  // the stages to multiply and to add next
    LLM42__DEVICE llm42__e4m3_products(uint32_t base, int group) : base(base) {
        w = llm42__smem_descriptor(base + group * 8192, 16);
        x = llm42__smem_descriptor(base + TILE::W_BYTES, 16);
    }
    template <int EIGHTS> LLM42__DEVICE void start(float (&products)[EIGHTS][4]) {
        llm42__mbarrier_wait(base + TILE::FULL_AT + 8 * ahead.stage, ahead.turn);
        llm42__wgmma_fence();
        LLM42__UNROLLED(int i = 0; i < 4; i++) {
            const uint32_t at = (uint32_t)(ahead.stage * TILE::STAGE + i * 32) >> 4;
            llm42__wgmma_e4m3(products, w + at, x + at, i);
        }
        llm42__wgmma_commit();
        ahead.advance();
    }
    LLM42__DEVICE void give_back() {
        __syncwarp();  // all lanes have read the scales
        if (threadIdx.x % 32 == 0) llm42__mbarrier_arrive(base + TILE::EMPTY_AT + 8 * done.stage);
        done.advance();
    }
    // Multiplies `steps` stages, into p and q in turns. add(p, i) adds the products of stage i and gives it back.
    template <int EIGHTS, typename ADD>
    LLM42__DEVICE void each(float (&p)[EIGHTS][4], float (&q)[EIGHTS][4], int steps, ADD add) {
        int step = 0;
        start(p);
#pragma unroll 1
        for (int left = (steps - 1) / 2; left > 0; left--, step += 2) {
            start(q), llm42__wgmma_wait<1>(), add(p, step);
            start(p), llm42__wgmma_wait<1>(), add(q, step + 1);
        }
        if (steps % 2 == 0) {
            start(q), llm42__wgmma_wait<1>(), add(p, step);
            llm42__wgmma_wait<0>(), add(q, step + 1);
        } else {
            llm42__wgmma_wait<0>(), add(p, step);
        }
    }
};

// Of a lane's products (chains of blocks 0 to 3 of x, in eights of rows) takes those of its own block, which is q, and
// exchanges them with the three lanes that have the other blocks: chain[b] is that of block b, all of one sum.
template <int EIGHTS>
LLM42__DEVICE void llm42__e4m3_take_chains(const float (&products)[4 * EIGHTS][4], int e, int q, float (&chain)[4]) {
    float own[4], even[2], odd[2];
    LLM42__UNROLLED(int i = 0; i < 4; i++) {
        const float low = q & 1 ? products[EIGHTS + e][i] : products[e][i],
                    high = q & 1 ? products[3 * EIGHTS + e][i] : products[2 * EIGHTS + e][i];
        own[i] = q & 2 ? high : low;
    }
    LLM42__UNROLLED(int i = 0; i < 2; i++) {
        const float got = __shfl_xor_sync(0xffffffffu, q & 1 ? own[2 * i] : own[2 * i + 1], 4);
        even[i] = q & 1 ? got : own[2 * i];
        odd[i] = q & 1 ? own[2 * i + 1] : got;
    }
    const float other_even = __shfl_xor_sync(0xffffffffu, q & 2 ? even[0] : even[1], 8),
                other_odd = __shfl_xor_sync(0xffffffffu, q & 2 ? odd[0] : odd[1], 8);
    chain[0] = q & 2 ? other_even : even[0], chain[1] = q & 2 ? other_odd : odd[0];
    chain[2] = q & 2 ? even[1] : other_even, chain[3] = q & 2 ? odd[1] : other_odd;
}

// Multiplies the stages: a warpgroup has sixteen outputs. A lane sums one of them, for rows `row`, row + 8, ...
template <typename TILE>
LLM42__DEVICE void llm42__e4m3_multiply_few(const unsigned char *shared, uint32_t base, const llm42__e4m3_args &a) {
    const int warp = llm42__warp(), lane = threadIdx.x % 32, g = lane / 4, own = g % 4, row = lane % 4 * 2 + own % 2,
              output = 4 * warp + g / 4 + 2 * (own / 2);
    llm42__e4m3_products<TILE> products(base, warp / 4);
    llm42__e4m3_work<TILE> work;
    float p[4 * TILE::EIGHTS][4] = {}, q[4 * TILE::EIGHTS][4] = {}, sum[TILE::EIGHTS];
    auto add = [&](float(&of)[4 * TILE::EIGHTS][4], int step) {
        llm42__settle(of);
        const float4 *of_stage = (const float4 *)(shared + TILE::SCALES_AT + products.done.stage * TILE::SCALES) + row;
        float4 scales[TILE::EIGHTS];
        LLM42__UNROLLED(int e = 0; e < TILE::EIGHTS && !TILE::CHANNEL; e++) scales[e] = of_stage[8 * e];
        products.give_back();
        LLM42__UNROLLED(int e = 0; e < TILE::EIGHTS; e++) {
            float chain[4];
            llm42__e4m3_take_chains<TILE::EIGHTS>(of, e, own, chain);
            LLM42__UNROLLED(int b = 0; b < 4; b++) {
                if (4 * step + b >= a.blocks) continue;
                if constexpr (TILE::CHANNEL) sum[e] = sum[e] + chain[b];
                else sum[e] = fmaf(chain[b], ((const float *)&scales[e])[b], sum[e]);
            }
        }
    };
    if (TILE::CHANNEL || a.groups.offset) llm42__wait_for_previous();  // for scales and tiles
    for (int tile = blockIdx.x; work.seek(a, tile); tile += gridDim.x) {
        LLM42__UNROLLED(int e = 0; e < TILE::EIGHTS; e++) sum[e] = 0.0f;
        products.each(p, q, (a.blocks + 3) / 4, add);
        LLM42__UNROLLED(int e = 0; e < TILE::EIGHTS; e++) {
            const int at = work.row0 + row + 8 * e;
            const size_t to = work.leaf * a.part_stride + (size_t)at * a.n + work.output + output;
            if (at >= work.row_end) continue;
            float y = sum[e];
            if constexpr (TILE::CHANNEL) y = y * a.w_scale[work.w_row(a) + output] * a.x_scale[at];
            if (a.fp32) ((float *)a.y)[to] = y;
            else ((llm42__bf16 *)a.y)[to] = __float2bfloat16_rn(y);
        }
    }
}

// Many rows: a tile has 64 outputs for each of GROUPS warpgroups, and ROWS rows. One warpgroup copies (a warp) and
// multiplies the scales of x and w (three warps); the others multiply, and add a chain while the next one runs.
template <int OUTPUTS_, int ROWS_, bool CHANNEL_> struct llm42__e4m3_many {
    enum { OUTPUTS = OUTPUTS_, ROWS = ROWS_, CHANNEL = CHANNEL_, STACK = 1, RESIDENT = 1, GROUPS = OUTPUTS / 64 };
    enum { EIGHTS = ROWS / 8, WARPS = 4 * GROUPS, THREADS = 128 + 128 * GROUPS };
    enum { HELPERS = CHANNEL ? 0 : 3, HELPED = (ROWS + 95) / 96 };  // warps that multiply scales; rows of each lane
    enum { W_BYTES = OUTPUTS * 128, STAGE = W_BYTES + ROWS * 128, SCALES = CHANNEL ? 0 : ROWS * 4 };
    enum { PART = EIGHTS < 4 ? EIGHTS : 4, SCRATCH = PART * 256 };  // eights that a warp writes at once, and its room
    enum { STAGES = LLM42__MIN((226 * 1024 - WARPS * SCRATCH) / (STAGE + SCALES + 16), 12) };
    enum { SCALES_AT = STAGES * STAGE, SCRATCH_AT = SCALES_AT + STAGES * SCALES };
    enum { FULL_AT = SCRATCH_AT + WARPS * SCRATCH, EMPTY_AT = FULL_AT + 8 * STAGES, BYTES = EMPTY_AT + 8 * STAGES };
    // Where a row's scale lies. A lane that adds chains loads those of rows 2t and 2t + 1 of two eights at once.
    LLM42__DEVICE static int place(int i) { return i / 16 * 16 + i % 8 / 2 * 4 + i / 8 % 2 * 2 + i % 2; }
};

template <typename TILE>
LLM42__DEVICE void llm42__e4m3_multiply(unsigned char *shared, uint32_t base, const llm42__e4m3_args &a) {
    typedef float sums[TILE::EIGHTS][4];
    const int warp = llm42__warp() - 4, lane = threadIdx.x % 32;
    llm42__e4m3_products<TILE> products(base, warp / 4);
    sums p = {}, q = {};
    float4 *scratch = (float4 *)(shared + TILE::SCRATCH_AT + warp * TILE::SCRATCH);
    llm42__e4m3_work<TILE> work;
    if (TILE::CHANNEL || a.groups.offset) llm42__wait_for_previous();  // for scales and tiles
    for (int tile = blockIdx.x; work.seek(a, tile); tile += gridDim.x) {
        sums sum = {};
        products.each(p, q, a.blocks, [&](sums &chain, int) {
            llm42__settle(chain);
            const float4 *scales = (const float4 *)(shared + TILE::SCALES_AT + products.done.stage * TILE::SCALES);
            LLM42__UNROLLED(int e = 0; e < TILE::EIGHTS; e += 2) {
                const float4 four = TILE::CHANNEL ? float4{} : scales[threadIdx.x % 4 + e * 2];
                LLM42__UNROLLED(int i = 0; i < 8; i++) {
                    float &to = sum[e + i / 4][i % 4], own = chain[e + i / 4][i % 4];
                    to = TILE::CHANNEL ? to + own : fmaf(own, ((const float *)&four)[i / 4 * 2 + i % 2], to);
                }
            }
            products.give_back();
        });
        const int n0 = work.output + warp * 16, row0 = work.row0;
        const size_t part_at = work.leaf * a.part_stride;
        if constexpr (TILE::CHANNEL) {
            const float *scales = a.w_scale + work.w_row(a) + warp * 16 + lane / 4, of_w[2] = {scales[0], scales[8]};
            LLM42__UNROLLED(int e = 0; e < TILE::EIGHTS; e++)
                LLM42__UNROLLED(int i = 0; i < 4; i++)
                    sum[e][i] = sum[e][i] * of_w[i / 2] *
                                a.x_scale[min(row0 + e * 8 + lane % 4 * 2 + i % 2, a.rows - 1)];
        }
        LLM42__UNROLLED(int e = 0; e < TILE::EIGHTS; e += TILE::PART) {
            float part[TILE::PART][4];
            LLM42__UNROLLED(int i = 0; i < TILE::PART * 4; i++) part[i / 4][i % 4] = sum[e + i / 4][i % 4];
            auto write = [&](auto *y) {
                llm42__write_rows(part, y + part_at, llm42__owners{}, a.n, n0, row0 + e * 8, work.row_end, scratch);
            };
            if (a.fp32) write((float *)a.y);
            else write((llm42__bf16 *)a.y);
        }
    }
}

// Shapes and order: see the head of this section. Work: see llm42__e4m3_few (a warp copies) and llm42__e4m3_many.
template <typename TILE>
__global__ void __launch_bounds__(LLM42__WARPGROUPS ? TILE::THREADS : 32, TILE::RESIDENT)
    llm42__k_e4m3(const __grid_constant__ CUtensorMap w_map, const __grid_constant__ CUtensorMap x_map,
                  const __grid_constant__ llm42__e4m3_args a) {
#if LLM42__WARPGROUPS
    extern __shared__ __align__(1024) unsigned char shared[];
    const uint32_t base = llm42__shared_address(shared);
    if (threadIdx.x == 0) {
        llm42__open_stages<TILE>(base, 1 + TILE::HELPERS, TILE::WARPS);
        llm42__mbarriers_opened();
    }
    __syncthreads();
    if constexpr (TILE::STACK > 1) {
        if (llm42__warp() < TILE::WARPS) llm42__e4m3_multiply_few<TILE>(shared, base, a);
        else if (llm42__warp() == TILE::WARPS) llm42__e4m3_fill<TILE>(&w_map, &x_map, base, a);
        else if constexpr (!TILE::CHANNEL) llm42__e4m3_multiply_scales<TILE>(shared, base, a, threadIdx.x % 32);
    } else if (threadIdx.x < 128) {
        if constexpr (TILE::GROUPS == 2) llm42__fewer_registers<40>();
        if (threadIdx.x < 32) llm42__e4m3_fill<TILE>(&w_map, &x_map, base, a);
        else if constexpr (!TILE::CHANNEL) llm42__e4m3_multiply_scales<TILE>(shared, base, a, threadIdx.x - 32);
    } else {
        if constexpr (TILE::GROUPS == 2) llm42__more_registers<232>();
        llm42__e4m3_multiply<TILE>(shared, base, a);
    }
#endif
}

// Maps of [rows, k] in e4m3, in blocks of 128 bytes. w: [rows][blocks], boxes [box_rows][stack]; x: the same, turned.
static cudaError_t llm42__map_e4m3(CUtensorMap *map, const void *from, int rows, int k, int box_rows, int stack,
                                   bool is_x) {
    const cuuint64_t blocks = (cuuint64_t)k / 128, row_bytes = (cuuint64_t)k,
                     size[2][3] = {{128, blocks, (cuuint64_t)rows}, {128, (cuuint64_t)rows, blocks}},
                     stride[2][2] = {{128, row_bytes}, {row_bytes, 128}};
    const cuuint32_t box[2][3] = {{128, (cuuint32_t)stack, (cuuint32_t)box_rows},
                                  {128, (cuuint32_t)box_rows, (cuuint32_t)stack}};
    return llm42__encode_map(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, from, size[is_x], stride[is_x], box[is_x]);
}

// Launches a build on x [R, k] and w [n, k] (of a mixture [E n, k]). cudaErrorNotSupported: it is not for this device.
template <typename TILE>
static cudaError_t llm42__launch_e4m3(const void *x, const void *w, int k, const llm42__e4m3_args &a, int processors,
                                      cudaStream_t stream) {
    auto kernel = llm42__k_e4m3<TILE>;
    CUtensorMap w_map, x_map;
    const int experts = a.groups.offset ? a.groups.experts : 1, row_tiles = (a.rows + TILE::ROWS - 1) / TILE::ROWS,
              most_tiles = experts == 1 ? row_tiles : LLM42__MIN(a.rows, row_tiles + experts),
              tiles = most_tiles * a.leaves * (a.n / TILE::OUTPUTS), most = processors * TILE::RESIDENT,
              rounds = experts == 1 ? (tiles + most - 1) / most : 1,
              blocks = LLM42__MIN((tiles + rounds - 1) / rounds, most);
    cudaError_t error = llm42__make_ready(kernel, TILE::THREADS, TILE::BYTES);
    if (error == cudaSuccess) error = llm42__map_e4m3(&w_map, w, experts * a.n, k, TILE::OUTPUTS, TILE::STACK, false);
    if (error == cudaSuccess) error = llm42__map_e4m3(&x_map, x, a.rows, k, TILE::ROWS, TILE::STACK, true);
    if (error != cudaSuccess) return error;
    return llm42__launch(kernel, dim3((unsigned)blocks), dim3(TILE::THREADS), TILE::BYTES, stream, w_map, x_map, a);
}
typedef cudaError_t llm42__e4m3_fn(const void *x, const void *w, int k, const llm42__e4m3_args &a, int processors,
                                   cudaStream_t stream);

// The builds to choose from. All give the same bits. Up to 8 rows there is no choice. Up to 16 a build is tried only if
// it has a tile for each multiprocessor, or if its tiles are the smallest, because in a pass weights come before x is
// there, as many as blocks have room for. The time of a product that runs alone does not show that.
typedef struct llm42__e4m3_kind {
    const char *name;
    int least, most, outputs;         // of rows that it may be for; outputs of its tiles
    llm42__e4m3_fn *block, *channel;  // by scaling
} llm42__e4m3_kind;
#define LLM42__E4M3_KIND(TILE, OUTPUTS, ROWS, LEAST, MOST)                \
    {                                                                     \
        "e4m3_" #OUTPUTS "x" #ROWS, LEAST, MOST, OUTPUTS,                 \
            llm42__launch_e4m3<llm42__e4m3_##TILE<OUTPUTS, ROWS, false>>, \
            llm42__launch_e4m3<llm42__e4m3_##TILE<OUTPUTS, ROWS, true>>   \
    }
static const llm42__e4m3_kind llm42__e4m3_kinds[] = {
    LLM42__E4M3_KIND(few, 16, 8, 1, 8),        LLM42__E4M3_KIND(few, 16, 16, 9, 32),
    LLM42__E4M3_KIND(many, 64, 16, 9, 16),     LLM42__E4M3_KIND(many, 64, 32, 9, 128),
    LLM42__E4M3_KIND(many, 128, 32, 17, 128),  LLM42__E4M3_KIND(many, 64, 64, 33, 256),
    LLM42__E4M3_KIND(many, 128, 64, 33, 1024), LLM42__E4M3_KIND(many, 128, 128, 65, 1 << 30),
    LLM42__E4M3_KIND(many, 64, 128, 65, 512)};
enum { LLM42__E4M3_KINDS = sizeof llm42__e4m3_kinds / sizeof *llm42__e4m3_kinds };
// The builds for experts, and up to how many rows of an average expert (most) each is for, as in llm42__expert_kinds.
static const llm42__e4m3_kind llm42__experts_e4m3[] = {
    LLM42__E4M3_KIND(few, 32, 8, 1, 4), LLM42__E4M3_KIND(many, 64, 16, 1, 9), LLM42__E4M3_KIND(many, 128, 32, 1, 22),
    LLM42__E4M3_KIND(many, 128, 64, 1, 48), LLM42__E4M3_KIND(many, 128, 128, 1, 1 << 30)};

// The magnitude of eight bf16 values that is the largest. NaN counts as none.
LLM42__DEVICE float llm42__largest(uint4 piece) {
    const uint32_t word[4] = {piece.x, piece.y, piece.z, piece.w};
    float largest = 0;
    LLM42__UNROLLED(int i = 0; i < 8; i++)
        largest = fmaxf(largest, llm42__float((i % 2 ? word[i / 2] & 0x7fff0000u : word[i / 2] << 16 & 0x7fff0000u)));
    return largest;
}
// Eight bf16 values / scale, as e4m3. The quotients are those of an fp32 division, for scales from 1e-27 on and
// infinity: for each of the 2^30 pairs of significands, and with all exponents for many scales, they have been compared
// with a division. Above 1024 a quotient may be wrong, which changes nothing because all above 448 becomes 448. A
// division would be much more code, and instructions have to come from memory while weights pass through the caches.
LLM42__DEVICE uint2 llm42__in_e4m3(uint4 piece, float scale) {
    const uint32_t word[4] = {piece.x, piece.y, piece.z, piece.w};
    const float inverse = __fdiv_rn(1.0f, scale), by = scale < INFINITY ? scale : 0.0f;
    auto divided = [&](float x) {
        const float close = x * inverse, exact = fmaf(-fmaf(close, by, -x), inverse, close);
        return fabsf(close) < 1024 ? exact : close;
    };
    uint32_t pair[4];
    LLM42__UNROLLED(int i = 0; i < 4; i++)
        pair[i] = llm42__pack_e4m3(divided(llm42__float(word[i] << 16)), divided(llm42__float(word[i] & 0xffff0000u)));
    return make_uint2(pair[0] | pair[1] << 16, pair[2] | pair[3] << 16);
}
// The largest value of `lanes` neighbouring lanes, for each of them. No order matters.
template <int LANES> LLM42__DEVICE float llm42__largest_of_lanes(float x) {
    LLM42__UNROLLED(int i = LANES / 2; i; i >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, i));
    return x;
}

// Where rows go in e4m3 with scaling BLOCK: values [R, k], scales [k / 128][R]. NULL: nowhere.
typedef struct llm42__blocks_of_x {
    uint8_t *values;
    float *scales;
    int rows;
} llm42__blocks_of_x;
// Quantises piece `at` of a row of `pieces`. Sixteen neighbouring lanes have 128 values of a row, or are not `there`.
LLM42__DEVICE void llm42__quantise(const llm42__blocks_of_x &to, size_t row, int at, int pieces, uint4 piece,
                                   bool there) {
    const float largest = there ? llm42__largest(piece) : 0.0f,
                scale = llm42__e4m3_scale(llm42__largest_of_lanes<16>(largest));
    if (!there) return;
    ((uint2 *)to.values)[row * pieces + at] = llm42__in_e4m3(piece, scale);
    if (at % 16 == 0) to.scales[(size_t)(at / 16) * to.rows + row] = scale;
}

// Shapes: x [R, k] in bf16 -> to. Work: a thread for each piece. No sums.
__global__ void __launch_bounds__(256) llm42__k_quantise_blocks(const llm42__bf16 *x, llm42__blocks_of_x to, int k) {
    llm42__launch_and_wait();
    const size_t pieces = k / 8, i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    const bool there = i < to.rows * pieces;
    llm42__quantise(to, i / pieces, i % pieces, pieces, there ? ((const uint4 *)x)[i] : uint4{}, there);
}
// The same with one scale a row, scales [R]: of its values or, unless that is 0, given[expert]. Work: a block a row.
__global__ void __launch_bounds__(256) llm42__k_quantise_rows(const llm42__bf16 *x, uint8_t *out, float *scales, int k,
                                                              const float *given, llm42__groups groups) {
    __shared__ float shared[8];
    __shared__ int expert;
    const size_t row = blockIdx.x;
    const uint4 *from = (const uint4 *)(x + row * k);
    float largest = 0;
    llm42__launch_and_wait();
    if (threadIdx.x == 0 && !groups.offset) expert = 0;
    for (int e = threadIdx.x; groups.offset && e < groups.experts; e += blockDim.x)
        if (groups.offset[e] <= (int)row && (int)row < groups.offset[e + 1]) expert = e;
    for (int i = threadIdx.x; i < k / 8; i += blockDim.x) largest = fmaxf(largest, llm42__largest(from[i]));
    largest = llm42__largest_of_lanes<32>(largest);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = largest;
    __syncthreads();
    LLM42__UNROLLED(int w = 0; w < 8; w++) largest = fmaxf(largest, shared[w]);
    const float scale = given[expert] > 0 ? given[expert] : llm42__e4m3_scale(largest);
    for (int i = threadIdx.x; i < k / 8; i += blockDim.x)
        ((uint2 *)(out + row * k))[i] = llm42__in_e4m3(from[i], scale);
    if (threadIdx.x == 0) scales[row] = scale;
}

// >>kernel-pass --------------------------------------------------------------------------------------------------
// Owns: the metadata of a pass.
//
// One block of memory, which the host copies before a pass starts. Its parts' places depend on padded rows and draws.

// A task of attention for consecutive rows of a sequence (prompts, windows): `rows` rows from `row` on, and the keys
// first <= t < end that they see. seq: whose pages. old: earlier passes have written the KV of positions below it.
typedef struct llm42__prefill_task {
    int32_t row, rows, first, end, seq, old;
} llm42__prefill_task;
// A task of attention for a row (decode) at `position`: from key `begin` on, `units` of its units, or what is left.
typedef struct llm42__decode_task {
    int32_t row, position, seq, begin, first_unit, row_units, units;
    int32_t record;  // place of the first unit's record in llm42__attention.partial; -1: the task has all units
} llm42__decode_task;
typedef struct llm42__draw {
    int32_t row, top_k;
    float temperature, top_p, min_p;
    int32_t position;
    uint64_t seed;
} llm42__draw;
typedef struct llm42__header {
    int32_t rows, prefill_tasks, decode_tasks, draws, page_stride;
    uint32_t number;       // of the pass; for mail between ranks
    int32_t old;           // 1: an earlier pass has written the KV of all positions before a single row's
    int32_t runs, groups;  // of recurrent layers
} llm42__header;
// The rows of one sequence (for recurrent layers, see llm42_seq): `rows` rows from `row` on, at positions from `begin`
// on. What is to be applied begins at position `from`: that is the state's, and there the run's first group begins.
typedef struct llm42__run {
    int32_t row, rows, begin, from, slot, group, state, state_to, restore, saves;
    llm42_save save[2];
} llm42__run;
typedef struct llm42__meta {
    const llm42__header *header;
    const int32_t *token, *position;
    const int32_t *slot;  // where the row's KV goes; -1: nowhere
    const llm42__draw *draw;
    const llm42__prefill_task *prefill;
    const llm42__decode_task *decode;
    const llm42__run *run;
    const int32_t *pages;  // [sequences, page_stride]
    int page_shift;
} llm42__meta;

// The run to which a group belongs. Their groups ascend.
LLM42__DEVICE const llm42__run &llm42__run_of_group(const llm42__meta &meta, int group) {
    int low = 0, high = meta.header->runs - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (meta.run[middle].group <= group) low = middle;
        else high = middle - 1;
    }
    return meta.run[low];
}

// >>kernel-exchange ----------------------------------------------------------------------------------------------
// Owns: the sum of the ranks' parts, and the ways in which ranks meet and send them.

// What an operator before a norm has given: one sum (WHOLE), or a part of each rank. Parts are bf16 (ROUNDED) or, in
// INVARIANT passes, fp32 (LEAVES). A rank gets the others' parts in one of two ways:
// - It reads them from memory, of[r]. Before that all ranks must have written theirs, so they meet (llm42__k_meet).
// - By mail, for few rows. A rank writes its part into the others' mailboxes and waits for theirs in its own. Each word
//   of 64 bits there holds four bytes of a part and a stamp, which belongs to one exchange of one pass. A word is
//   written and read whole, so no meeting is needed, and nobody takes old mail for new.
// Of many rows with fp32 parts each rank norms only some (own_rows): the others' products have written their parts of
// these rows into its memory (llm42__owners). It writes their h into the memory of all ranks, which have to meet again.
typedef struct llm42__rank_parts {
    const void *of[8];
    int ranks, used, stride;
    int self;               // this rank
    int own_rows;           // rank r norms the rows from r x own_rows on; 0: each rank norms all rows
    const float *bias;      // [stride], which is added to the sum; NULL: none
    float embed_scale;      // by which embeddings are multiplied; 0: 1
    llm42__bf16 *h[8];      // of each rank
    unsigned exchange;      // number of this exchange in the pass, for mail
    const unsigned *ended;  // see llm42__meeting
    ulonglong2 *mail[8];    // of each rank: [from rank][row][32 quads][2][32]
    const int32_t *place;   // EXPERTS: of[0] is [entries, stride], by place (llm42__routing)
    const float *weight;    // EXPERTS: [R, used]
} llm42__rank_parts;
// What kernels call PARTS. ROUNDED and LEAVES are read from memory, unless MAIL is added. EXPERTS: each row's.
enum { LLM42__WHOLE = 0, LLM42__ROUNDED = 1, LLM42__LEAVES = 2, LLM42__MAIL = 4, LLM42__EXPERTS = 8 };
// The most rows and exchanges of a pass by mail.
enum { LLM42__MAIL_ROWS = 64, LLM42__MAIL_EXCHANGES = 1024 };

// A quad is four words of a part: eight elements if they are bf16, four if fp32. The sum of quads is bf16.
template <int PARTS> struct llm42__quad {
    enum { FP32 = (PARTS & LLM42__LEAVES) != 0, MAIL = (PARTS & LLM42__MAIL) != 0, ELEMENTS = FP32 ? 4 : 8 };
    enum { TOGETHER = MAIL || PARTS == LLM42__EXPERTS };  // the threads of a block share a row's sum in shared memory
    typedef std::conditional_t<FP32, uint2, uint4> sum;
};

// Quads of a row in a mailbox: whole groups of 32, so that a warp writes and reads 512 bytes that lie together.
__host__ __device__ static inline int llm42__mail_quads(int stride, int elements) {
    return (stride / elements + 31) / 32 * 32;
}
// Waits for a quad, whose first half is to come to `from`.
LLM42__DEVICE uint4 llm42__receive(const llm42__rank_parts &parts, const ulonglong2 *from, unsigned stamp) {
    ulonglong2 first, second;
    unsigned ended = 0;
    for (unsigned turn = 1; !ended; turn++) {
        first = llm42__get_mail(from), second = llm42__get_mail(from + 32);
        if (first.x >> 32 == stamp && first.y >> 32 == stamp && second.x >> 32 == stamp && second.y >> 32 == stamp)
            break;
        if (turn % 4096 == 0) ended = llm42__seen(parts.ended);
    }
    return make_uint4((uint32_t)first.x, (uint32_t)first.y, (uint32_t)second.x, (uint32_t)second.y);
}

// The sum of the ranks' quads, rounded once. Order: bf16 parts by rank, fp32 parts by the leaves' tree.
template <int PARTS>
LLM42__DEVICE typename llm42__quad<PARTS>::sum llm42__sum_quads(const uint4 (&quad)[8], int ranks) {
    if constexpr (llm42__quad<PARTS>::FP32) {
        float4 part[8];
        LLM42__UNROLLED(int r = 0; r < 8; r++) part[r] = *(const float4 *)&quad[r];
        const float4 sum = llm42__leaf_sum(part, ranks);
        return make_uint2(llm42__pack(sum.x, sum.y), llm42__pack(sum.z, sum.w));
    } else {
        float sum[8];
        LLM42__UNROLLED(int i = 0; i < 64; i++) {
            const float v = __bfloat162float(((const llm42__bf16 *)quad)[i]);
            if (i / 8 < ranks) sum[i % 8] = i < 8 ? v : sum[i % 8] + v;
        }
        return make_uint4(llm42__pack(sum[0], sum[1]), llm42__pack(sum[2], sum[3]), llm42__pack(sum[4], sum[5]),
                          llm42__pack(sum[6], sum[7]));
    }
}

// The sum of the parts of a quad, read from where they are.
template <int PARTS>
LLM42__DEVICE typename llm42__quad<PARTS>::sum llm42__add_quads(const llm42__rank_parts &parts, size_t quad) {
    uint4 of[8] = {};
    LLM42__UNROLLED(int r = 0; r < 8; r++)
        if (r < parts.ranks) of[r] = llm42__load_shared_by_ranks((const uint4 *)parts.of[r] + quad);
    return llm42__sum_quads<PARTS>(of, parts.ranks);
}

// Eight elements of the weighted sum of a row's experts. Order: by rank, from +0.
LLM42__DEVICE uint4 llm42__add_experts(const llm42__rank_parts &parts, size_t row, size_t column) {
    float sum[8] = {};
#pragma unroll 8
    for (int rank = 0; rank < parts.used; rank++) {
        const size_t entry = row * parts.used + rank, from = (size_t)parts.place[entry] * parts.stride + column;
        const uint4 four = *(const uint4 *)((const llm42__bf16 *)parts.of[0] + from);
        LLM42__UNROLLED(int i = 0; i < 8; i++)
            sum[i] = fmaf(parts.weight[entry], __bfloat162float(((const llm42__bf16 *)&four)[i]), sum[i]);
    }
    return make_uint4(llm42__pack(sum[0], sum[1]), llm42__pack(sum[2], sum[3]), llm42__pack(sum[4], sum[5]),
                      llm42__pack(sum[6], sum[7]));
}

// The sum of the parts of eight elements from `at` on. fp32 parts of these are two quads. The even and the odd thread
// of a pair load neighbouring quads and then exchange sums, since 32 bytes is the least that memory gives. So all
// threads of a warp come here, `in` or not, and a pair has sixteen elements that lie together.
template <int PARTS> LLM42__DEVICE uint4 llm42__add_parts(const llm42__rank_parts &parts, size_t at, bool in) {
    if constexpr (PARTS != LLM42__LEAVES) {
        if (!in) return make_uint4(0, 0, 0, 0);
        if constexpr (PARTS == LLM42__WHOLE) return *(const uint4 *)((const llm42__bf16 *)parts.of[0] + at);
        else if constexpr (PARTS == LLM42__ROUNDED) return llm42__add_quads<PARTS>(parts, at / 8);
        else return llm42__add_experts(parts, at / parts.stride, at % parts.stride);
    } else {
        const int odd = (int)threadIdx.x % 2;
        const size_t first = at / 4 - odd;  // of the pair's four quads: 0 and 2, or 1 and 3
        const uint2 low = in ? llm42__add_quads<PARTS>(parts, first) : make_uint2(0, 0),
                    high = in ? llm42__add_quads<PARTS>(parts, first + 2) : make_uint2(0, 0);
        const uint2 give = odd ? low : high;
        const uint2 got = make_uint2(__shfl_xor_sync(0xffffffffu, give.x, 1), __shfl_xor_sync(0xffffffffu, give.y, 1));
        return odd ? make_uint4(got.x, got.y, high.x, high.y) : make_uint4(low.x, low.y, got.x, got.y);
    }
}

// Sends a row to the other ranks by mail and takes their parts of it. out [stride], in shared memory, is the row's sum.
// No other exchange has its stamp until the numbers of passes begin anew. Work: a thread takes a quad at a time.
template <int PARTS>
LLM42__DEVICE void llm42__exchange_row(const llm42__rank_parts &parts, int row, int stride, const llm42__header *header,
                                       typename llm42__quad<PARTS>::sum *out) {
    const unsigned stamp = header->number * LLM42__MAIL_EXCHANGES + parts.exchange;
    const int quads = stride / llm42__quad<PARTS>::ELEMENTS,
              places = llm42__mail_quads(stride, llm42__quad<PARTS>::ELEMENTS);
    const uint4 *own = (const uint4 *)parts.of[parts.self] + (size_t)row * quads;
    // Where the first half of quad q lies in the mail from a rank. The second half lies 32 places behind it.
    auto place = [&](ulonglong2 *box, int from, int q) {
        return box + 2 * (((size_t)from * LLM42__MAIL_ROWS + row) * places + q / 32 * 32) + q % 32;
    };
    for (int q = threadIdx.x; q < quads; q += blockDim.x) {
        const uint4 v = own[q];
        for (int r = 0; r < parts.ranks; r++) {
            if (r == parts.self) continue;
            ulonglong2 *to = place(parts.mail[r], parts.self, q);
            llm42__put_mail(to, v.x, v.y, stamp);
            llm42__put_mail(to + 32, v.z, v.w, stamp);
        }
    }
    for (int q = threadIdx.x; q < quads; q += blockDim.x) {
        uint4 quad[8] = {};
        LLM42__UNROLLED(int r = 0; r < 8; r++) {
            if (r >= parts.ranks) continue;
            if (r == parts.self) quad[r] = own[q];
            else quad[r] = llm42__receive(parts, place(parts.mail[parts.self], r, q), stamp);
        }
        out[q] = llm42__sum_quads<PARTS>(quad, parts.ranks);
    }
    __syncthreads();
}

// Shapes: delta -> out [values], bf16; values is a multiple of 8. Norms do this themselves. The kernel is for those who
// want to see the sum. Work: a thread takes eight values at a time. Order: that of llm42__sum_quads.
template <int PARTS>
__global__ void __launch_bounds__(256) llm42__k_add_parts(llm42__rank_parts delta, size_t values, llm42__bf16 *out) {
    llm42__launch_and_wait();
    for (size_t begin = 8 * (blockIdx.x * (size_t)blockDim.x); begin < values;
         begin += 8 * (size_t)gridDim.x * blockDim.x) {
        const size_t i = begin + 8 * threadIdx.x;
        const uint4 sum = llm42__add_parts<PARTS>(delta, i, i < values);
        if (i < values) *(uint4 *)(out + i) = sum;
    }
}

// Where the devices of an engine meet. Each has flags in its own memory, which the others write: flag[d] is the number
// of the last meeting that device d has come to. flag[8] counts the meetings of the device itself.
typedef struct llm42__meeting {
    unsigned *flag[8];      // of each device
    const unsigned *ended;  // in the host's memory: nobody is to wait any more
    int devices, self;
} llm42__meeting;

// Waits until all devices have come here. What they have written before is then there for all to read. With one small
// block, nothing else on the device has to wait for room. The kernels behind it may begin while it waits. They load
// weights, but hold the multiprocessors' shared memory. Two passes at once could each hold on one device what the other
// needs there, and both wait for ever: passes on shared devices take turns (llm42__turn). Work: a thread a device.
__global__ void llm42__k_meet(llm42__meeting b) {
    __shared__ unsigned meeting;
    llm42__launch_and_wait();
    if (threadIdx.x == 0) meeting = ++b.flag[b.self][8];
    __syncthreads();
    const int other = (int)threadIdx.x;
    if (other >= b.devices || other == b.self) return;
    llm42__tell(b.flag[other] + b.self, meeting);
    for (unsigned turn = 1; (int)(llm42__seen(b.flag[b.self] + other) - meeting) < 0; turn++)
        if (turn % 4096 == 0 && llm42__seen(b.ended)) return;
}

// Shapes: part r [rows, width] -> to [rows, ranks, width], elements of `size` bytes; width x size is a multiple of 16.
// Work: a thread copies 16 bytes at a time.
__global__ void __launch_bounds__(256)
    llm42__k_gather(llm42__rank_parts parts, int rows, int width, int size, void *to) {
    const size_t pieces = (size_t)width * size / 16, all = (size_t)rows * parts.ranks * pieces;
    llm42__launch_and_wait();
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < all; i += (size_t)gridDim.x * blockDim.x) {
        const size_t row = i / pieces / parts.ranks, rank = i / pieces % parts.ranks, piece = i % pieces;
        ((uint4 *)to)[i] = llm42__load_shared_by_ranks((const uint4 *)parts.of[rank] + row * pieces + piece);
    }
}

// >>kernel-rows --------------------------------------------------------------------------------------------------
// Owns: the operators that take a row at a time: norms with the residual, rotation with the KV writes, and the gate.

// Sum over a block, for every thread. Order: lanes by butterfly, then warps ascending. shared: 32 floats.
LLM42__DEVICE float llm42__block_sum(float value, float *shared) {
    value = llm42__sum_of_lanes(value);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0, of_warp[16];
    const int warps = blockDim.x / 32;  // at most 16
    LLM42__UNROLLED(int i = 0; i < 16; i++) of_warp[i] = shared[min(i, warps - 1)];
    LLM42__UNROLLED(int i = 0; i < 16; i++) sum = i < warps ? sum + of_warp[i] : sum;
    return sum;
}

// What a norm does with delta.
enum {
    LLM42__EMBED,      // x = the embedding of the row's token: delta is the table
    LLM42__ADD,        // x += delta
    LLM42__ADD_DRAWS,  // h is of x + delta and has a row for each draw; x is left as it is
};
enum { LLM42__MOST_WIDTH = 16384, LLM42__NORM_THREADS = 512 };  // at most

// The pieces of a row [stride] that a thread holds: up to four of eight elements, from at(0), at(1), ... on.
typedef struct llm42__held_pieces {
    int stride;
    LLM42__DEVICE int at(int i) const { return (int)(threadIdx.x + i * blockDim.x) * 8; }
    LLM42__DEVICE bool ended(int i) const { return at(i) >= stride; }
} llm42__held_pieces;

// Loads the pieces of a row: x, of the embedding or the residual stream, and (but for EMBED) other, of delta. If parts
// of delta come by mail, or are experts', all threads of the block first take them together, and `sums` holds the row's
// sum. Otherwise parts stay where they are, and each thread adds up its own pieces.
template <int KIND, int PARTS>
LLM42__DEVICE void llm42__gather_row(uint4 (&piece)[4], uint4 (&other)[4], const llm42__bf16 *x,
                                     const llm42__rank_parts &delta, size_t row, const llm42__held_pieces &held,
                                     const llm42__meta &meta, uint4 *sums) {
    using quad = llm42__quad<PARTS>;
    const int stride = held.stride;
    const llm42__bf16 *from = KIND == LLM42__EMBED ? (const llm42__bf16 *)delta.of[0] + (size_t)meta.token[row] * stride
                                                   : x + row * stride;
    LLM42__UNROLLED(int i = 0; i < 4; i++)
        if (!held.ended(i)) piece[i] = *(const uint4 *)(from + held.at(i));
    if constexpr (quad::MAIL) {
        llm42__exchange_row<PARTS>(delta, (int)row, stride, meta.header, (typename quad::sum *)sums);
    } else if constexpr (quad::TOGETHER) {
        for (int i = threadIdx.x; i < stride / 8; i += blockDim.x) sums[i] = llm42__add_experts(delta, row, 8 * i);
        __syncthreads();
    }
    LLM42__UNROLLED(int i = 0; i < 4 && KIND != LLM42__EMBED; i++)  // all threads of a warp come to llm42__add_parts
        if constexpr (!quad::TOGETHER)
            other[i] = llm42__add_parts<PARTS>(delta, row * stride + held.at(i), held.at(i) < stride);
        else if (!held.ended(i)) other[i] = sums[held.at(i) / 8];
}

// What few models have: embeddings times a scale, or other plus a bias; rounded.
template <int KIND>
LLM42__DEVICE void llm42__amend_row(uint4 (&piece)[4], const llm42__rank_parts &delta, const llm42__held_pieces &held) {
    if (KIND == LLM42__EMBED ? delta.embed_scale == 0 : !delta.bias) return;
    LLM42__UNROLLED(int n = 0; n < 16 && !held.ended(n / 4); n++) {
        __nv_bfloat162 *p = (__nv_bfloat162 *)&piece[n / 4] + n % 4;
        const float *bias = delta.bias + held.at(n / 4) + n % 4 * 2, scale = delta.embed_scale;
        const float2 a = __bfloat1622float2(*p);
        if constexpr (KIND == LLM42__EMBED) *p = __floats2bfloat162_rn(a.x * scale, a.y * scale);
        else *p = __floats2bfloat162_rn(a.x + bias[0], a.y + bias[1]);
    }
}

// piece += other, but for EMBED, rounded; x = the pieces, but for ADD_DRAWS.
template <int KIND>
LLM42__DEVICE void llm42__add_row(uint4 (&piece)[4], const uint4 (&other)[4], llm42__bf16 *x,
                                  const llm42__held_pieces &held) {
    LLM42__UNROLLED(int i = 0; i < 4; i++) {
        if (held.ended(i)) break;
        __nv_bfloat162 *p = (__nv_bfloat162 *)&piece[i];
        const __nv_bfloat162 *o = (const __nv_bfloat162 *)&other[i];
        LLM42__UNROLLED(int j = 0; j < 4 && KIND != LLM42__EMBED; j++) {
            const float2 a = __bfloat1622float2(p[j]), b = __bfloat1622float2(o[j]);
            p[j] = __floats2bfloat162_rn(a.x + b.x, a.y + b.y);
        }
        if (KIND != LLM42__ADD_DRAWS) *(uint4 *)(x + held.at(i)) = piece[i];
    }
}

// The sum of a row's squares, for every thread. Order: the first `threads` threads sum pieces t, t + threads, ... of
// the row, elements ascending; then llm42__block_sum. A block of more threads passes the pieces through `row`.
LLM42__DEVICE float llm42__sum_squares(const uint4 (&piece)[4], const llm42__held_pieces &held, int threads, uint4 *row,
                                       float *shared) {
    const bool own = (int)blockDim.x == threads;
    float sum = 0;
    if (!own) {
        LLM42__UNROLLED(int i = 0; i < 4; i++)
            if (!held.ended(i)) row[held.at(i) / 8] = piece[i];
        __syncthreads();
    }
    LLM42__UNROLLED(int i = 0; i < 4; i++) {
        const int at = (int)threadIdx.x + i * threads;
        if ((int)threadIdx.x >= threads || at >= held.stride / 8) break;
        const uint4 eight = own ? piece[i] : row[at];
        LLM42__UNROLLED(int j = 0; j < 4; j++) {
            const float2 a = __bfloat1622float2(((const __nv_bfloat162 *)&eight)[j]);
            sum = fmaf(a.y, a.y, fmaf(a.x, a.x, sum));
        }
    }
    return llm42__block_sum(sum, shared);
}

// piece x weight / sqrt(mean of squares + eps), rounded, is given to write(at, eight elements). squares: of the row.
template <typename WRITE>
LLM42__DEVICE void llm42__norm_row(uint4 (&piece)[4], float squares, const float4 (&weight)[4][2], int width, float eps,
                                   const llm42__held_pieces &held, WRITE write) {
    const float scale = __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(squares, (float)width) + eps)) +
                        (squares - squares);  // overflow becomes NaN
    LLM42__UNROLLED(int i = 0; i < 4; i++) {
        if (held.ended(i)) break;
        __nv_bfloat162 *p = (__nv_bfloat162 *)&piece[i];
        const float *v = (const float *)weight[i];
        LLM42__UNROLLED(int j = 0; j < 4; j++) {
            float2 a = __bfloat1622float2(p[j]);
            p[j] = __floats2bfloat162_rn(a.x * scale * v[2 * j], a.y * scale * v[2 * j + 1]);
        }
        write(held.at(i), piece[i]);
    }
}

// Shapes: x [R, D] (bf16, the residual stream), delta [R, D] -> h [R, D] = x / sqrt(mean(x^2) + eps) x weight. First, x
// += delta, or x = the embedding of the row's token. Work: a block takes one row at a time. Each of its first `threads`
// threads holds up to four pieces of eight elements; for few rows a block has more. h goes to `eight`, too, and need
// not go anywhere else (NULL). Order: that of llm42__sum_squares, by D alone. Of delta: llm42__sum_quads.
template <int KIND, int PARTS>
__global__ void __launch_bounds__(LLM42__NORM_THREADS)
    llm42__k_norm(llm42__bf16 *x, llm42__rank_parts delta, const float *__restrict__ weight, llm42__bf16 *h,
                  llm42__meta meta, int rows, int width, int stride, int threads, float eps, llm42__blocks_of_x eight) {
    constexpr bool draws = KIND == LLM42__ADD_DRAWS;
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ float of_warps[2][32];
    uint4 *sums = (uint4 *)shared;  // [stride / 8], if parts are added together or the block has more threads
    const llm42__held_pieces held = {stride};
    float4 w[4][2];
    LLM42__UNROLLED(int i = 0; i < 8 && !held.ended(i / 2); i++)
        w[i / 2][i % 2] = *(const float4 *)(weight + held.at(i / 2) + i % 2 * 4);
    llm42__launch_and_wait();
    const bool some_rows = PARTS == LLM42__LEAVES && delta.own_rows;
    const int own = some_rows && KIND == LLM42__ADD ? delta.self * delta.own_rows : 0,
              end = some_rows && KIND == LLM42__ADD ? min(rows, own + delta.own_rows) : rows;
    for (int place = own + blockIdx.x, turn = 0; place < end; place += gridDim.x) {
        // A place without a draw stands for row 0.
        const size_t row = !draws ? place : place < meta.header->draws ? (size_t)meta.draw[place].row : 0;
        if (draws && some_rows && (int)row / delta.own_rows != delta.self) continue;
        uint4 piece[4], other[4];  // up to 4 x 8 x 512 elements
        llm42__gather_row<KIND, PARTS>(piece, other, x, delta, row, held, meta, sums);
        llm42__amend_row<KIND>(KIND == LLM42__EMBED ? piece : other, delta, held);
        llm42__add_row<KIND>(piece, other, x + row * stride, held);
        const float squares = llm42__sum_squares(piece, held, threads, sums, of_warps[turn]);
        llm42__norm_row(piece, squares, w, width, eps, held, [&](int at, uint4 v) {
            if (!some_rows && h) *(uint4 *)(h + (size_t)place * stride + at) = v;
            for (int r = 0; some_rows && r < delta.ranks; r++) *(uint4 *)(delta.h[r] + (size_t)place * stride + at) = v;
        });
        LLM42__UNROLLED(int i = 0; i < 4 && eight.values && i * (int)blockDim.x * 8 < stride; i++)
            llm42__quantise(eight, place, held.at(i) / 8, stride / 8, piece[i], !held.ended(i));
        turn ^= 1;
    }
}

typedef struct llm42__heads {
    int heads, kv_heads, head_dim, qkv_stride;  // qkv [R, stride]: q, k, v side by side
    int k_at, v_at;                             // where in a row k and v begin
    const float *bias, *q_norm, *k_norm;        // [(H + 2K) d] [d] [d], NULL where there is none
    const float *q_rope, *k_rope;               // [T][d / 2][2]
    bool rotated;                               // false: the layer takes queries and keys as they are
    int rotary_dim;                             // PARTIAL: values of a head that are rotated; then tables have so many
    float eps;
} llm42__heads;

// The eight pairs of a head's d values that a lane rotates: pair i of the lane consists of the values low + i and
// high + i. whole: the sixteen values of a lane are two pieces of sixteen bytes.
template <int DP> struct llm42__pairs {
    float x[8][2];
    int d, lane, low, high;
    bool whole;
    LLM42__DEVICE llm42__pairs(const llm42__heads &a, int lane)
        : d(a.head_dim), lane(lane), low(lane * 8), high(low + a.head_dim / 2),
          whole(a.head_dim == DP && a.qkv_stride % 8 == 0) {}
    LLM42__DEVICE bool there(int i) const { return lane * 8 + i < d / 2; }

    LLM42__DEVICE void load(const llm42__bf16 *from, bool needed) {
        if (needed && whole) {
            const uint4 piece[2] = {*(const uint4 *)(from + low), *(const uint4 *)(from + high)};
            const llm42__bf16 *value = (const llm42__bf16 *)piece;
            LLM42__UNROLLED(int i = 0; i < 16; i++) x[i % 8][i / 8] = __bfloat162float(value[i]);
            return;
        }
        LLM42__UNROLLED(int i = 0; i < 8; i++) {
            x[i][0] = needed && there(i) ? __bfloat162float(from[low + i]) : 0.0f;
            x[i][1] = needed && there(i) ? __bfloat162float(from[high + i]) : 0.0f;
        }
    }
    LLM42__DEVICE void add(const float *bias) {  // of the head
        LLM42__UNROLLED(int i = 0; i < 8; i++) {
            if (!there(i)) continue;
            x[i][0] = llm42__rounded(x[i][0] + bias[low + i]);
            x[i][1] = llm42__rounded(x[i][1] + bias[high + i]);
        }
    }
    LLM42__DEVICE void store(llm42__bf16 *to) const {
        if (whole) {
            uint4 piece[2];
            uint32_t *words = (uint32_t *)piece;
            LLM42__UNROLLED(int i = 0; i < 8; i++) words[i] = llm42__pack(x[2 * i % 8][i / 4], x[2 * i % 8 + 1][i / 4]);
            *(uint4 *)(to + low) = piece[0], *(uint4 *)(to + high) = piece[1];
            return;
        }
        LLM42__UNROLLED(int i = 0; i < 8; i++) {
            if (!there(i)) continue;
            to[low + i] = __float2bfloat16_rn(x[i][0]);
            to[high + i] = __float2bfloat16_rn(x[i][1]);
        }
        for (int i = d + lane; i < DP; i += DP / 16) to[i] = __float2bfloat16_rn(0.0f);
    }
    // Rotates the first values of a head: pair i is i and half + i. head [d], in shared memory: of these lanes.
    LLM42__DEVICE void rotate(float *head, int half, const float *angle) {
        LLM42__UNROLLED(int i = 0; i < 16; i++)
            if (there(i % 8)) head[(i < 8 ? low : high) + i % 8] = x[i % 8][i / 8];
        __syncwarp();
        LLM42__UNROLLED(int i = 0; i < 16; i++) {
            const int at = (i < 8 ? low : high) + i % 8, first = at < half, pair = first ? at : at - half;
            if (at >= 2 * half || !there(i % 8)) continue;
            const float other = head[first ? at + half : pair] * angle[2 * pair + 1];
            x[i % 8][i / 8] = fmaf(x[i % 8][i / 8], angle[2 * pair], first ? -other : other);
        }
    }
};

// Shapes: qkv [R, (H + 2K) d] -> q [R, H, DP], rotated, and one layer of the cache [slots, K, DP]. DP is d, padded with
// zeros. Work: DP / 16 lanes for each head of a row, each with eight pairs. Order (head norms): a lane's pairs
// ascending, then lanes by butterfly. It depends on d alone. PARTIAL: only the first values of a head are rotated.
// Where v is infinite or NaN, 0 is stored, and NaN in k. A row that sees the position gets NaN by its score. Others
// multiply the value by 0, which is why v itself must not be NaN or infinite (0 x NaN is NaN).
template <int DP, bool PARTIAL>
__global__ void __launch_bounds__(128) llm42__k_rope(const llm42__bf16 *qkv, llm42__bf16 *q, llm42__bf16 *k_cache,
                                                     llm42__bf16 *v_cache, llm42__heads a, llm42__meta meta) {
    enum { LANES = DP / 16, HEADS = 128 / LANES };
    const int row = blockIdx.x, head = blockIdx.y * HEADS + threadIdx.x / LANES, lane = threadIdx.x % LANES,
              d = a.head_dim, real_rows = meta.header->rows;
    llm42__launch_next();
    const bool is_q = head < a.heads, is_k = !is_q && head < a.heads + a.kv_heads;
    const int kv_head = head - a.heads - (is_k ? 0 : a.kv_heads), slot = row < real_rows ? meta.slot[row] : -1;
    llm42__bf16 *to = is_q ? q + ((size_t)row * a.heads + head) * DP
                           : (is_k ? k_cache : v_cache) + ((size_t)(slot < 0 ? 0 : slot) * a.kv_heads + kv_head) * DP;
    const bool needed = head < a.heads + 2 * a.kv_heads && (is_q || slot >= 0);
    const int turned = PARTIAL ? a.rotary_dim : d;
    const float *angle = (is_q ? a.q_rope : a.k_rope) + (size_t)(row < real_rows ? meta.position[row] : 0) * turned;
    llm42__pairs<DP> p(a, lane), v(a, lane);  // v: those of k's position
    float2 turn[8];                           // cosine and sine
    LLM42__UNROLLED(int i = 0; i < 8; i++)
        turn[i] = p.there(i) && !PARTIAL ? ((const float2 *)angle)[lane * 8 + i] : float2{1.0f, 0.0f};
    llm42__wait_for_previous();
    const int at = is_q ? head * d : is_k ? a.k_at + kv_head * d : a.v_at + kv_head * d;
    p.load(qkv + (size_t)row * a.qkv_stride + at, needed);
    v.load(qkv + (size_t)row * a.qkv_stride + a.v_at + kv_head * d, needed && is_k);
    if (a.bias && needed) p.add(a.bias + head * d);
    if (a.bias && needed && is_k) v.add(a.bias + (head + a.kv_heads) * d);
    const float *norm = is_q ? a.q_norm : is_k ? a.k_norm : nullptr;
    float sum = 0, scale = 1;
    if (a.q_norm || a.k_norm) {
        LLM42__UNROLLED(int i = 0; i < 16; i++) sum = fmaf(p.x[i / 2][i % 2], p.x[i / 2][i % 2], sum);
        sum = llm42__sum_of_lanes<LANES>(sum);
        scale = __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(sum, (float)d) + a.eps)) + (sum - sum);
    }
    auto norm_pair = [&](int i) {
        if (!norm || !p.there(i)) return;
        p.x[i][0] = llm42__rounded(p.x[i][0] * scale * norm[p.low + i]);
        p.x[i][1] = llm42__rounded(p.x[i][1] * scale * norm[p.high + i]);
    };
    if constexpr (PARTIAL) {
        __shared__ float rotated[HEADS][DP];
        LLM42__UNROLLED(int i = 0; i < 8; i++) norm_pair(i);
        p.rotate(rotated[threadIdx.x / LANES], a.rotated && (is_q || is_k) ? turned / 2 : 0, angle);
    }
    if (!needed) return;
    LLM42__UNROLLED(int i = 0; i < 8; i++) {
        if (!PARTIAL) norm_pair(i);
        if (!PARTIAL && a.rotated && (is_q || is_k)) {
            const float2 before = {p.x[i][0], p.x[i][1]};
            p.x[i][0] = fmaf(before.x, turn[i].x, -(before.y * turn[i].y));
            p.x[i][1] = fmaf(before.y, turn[i].x, before.x * turn[i].y);
        }
        LLM42__UNROLLED(int j = 0; j < 2; j++) {
            const float value = is_k ? v.x[i][j] : p.x[i][j];
            if (!is_q && value - value != 0.0f) p.x[i][j] = is_k ? NAN : 0.0f;
        }
    }
    p.store(to);
}

// Shapes: y [R, 2F], gate and up in groups of eight or, if `apart`, up behind gate -> out [R, F], unless it is NULL,
// and `eight`; bias [2][F], or NULL. Work: a thread computes eight outputs. No sums.
__global__ void __launch_bounds__(256) llm42__k_gate(const llm42__bf16 *y, bool apart, llm42__bf16 *out, size_t count,
                                                     const float *bias, int width, llm42__blocks_of_x eight) {
    llm42__launch_and_wait();
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= count && !eight.values) return;
    const bool there = i < count;
    if (!there) i = 0;
    const size_t pieces = width / 8, at = apart ? i + i / pieces * pieces : 2 * i;
    const uint4 from[] = {((const uint4 *)y)[at], ((const uint4 *)y)[at + (apart ? pieces : 1)]};
    float gate_up[2][8], to[8];
    LLM42__UNROLLED(int j = 0; j < 16; j++) {
        gate_up[j / 8][j % 8] = __bfloat162float(((const llm42__bf16 *)from)[j]);
        if (bias) gate_up[j / 8][j % 8] += bias[j / 8 * width + i * 8 % width + j % 8];  // llm42__gate rounds
    }
    llm42__gate(gate_up[0], gate_up[1], to);
    const uint4 piece = make_uint4(llm42__pack(to[0], to[1]), llm42__pack(to[2], to[3]), llm42__pack(to[4], to[5]),
                                   llm42__pack(to[6], to[7]));
    if (out && there) ((uint4 *)out)[i] = piece;
    if (eight.values) llm42__quantise(eight, i / pieces, i % pieces, pieces, piece, there);
}

// >>kernel-recurrent ---------------------------------------------------------------------------------------------
// Owns: recurrent layers (the convolution, the gated delta rule, the norm of its output), and the gate of attention.
//
// Section recurrent of llm42.h says what they compute. A sequence's slot has its state in fp32, for each value head S
// turned, [value_dim][key_dim], and a ring of the inputs of the positions after it. k_convolve gives what the positions
// from the state on need; k_delta takes them in one after the other, moves the state and writes the ring; k_leave norms
// the outputs. In passes of few rows k_recur does all of this.
typedef struct llm42__recurrent {
    int key_heads, value_heads, value_dim;
    // channels: what is convolved of a row; width: with beta and alpha, as in a ring; stride of mixed, with z at `z`.
    int channels, width, stride, z;
    int capacity, out_stride, raw_stride, few;  // capacity: rows of `width` of a ring; position t is at t modulo this
    float eps;
    const llm42__bf16 *mixed, *raw;                 // raw: beta and alpha of row 0, in mixed or apart from it
    llm42__bf16 *out;                               // [R, out_stride]
    const float *taps, *decay, *alpha_bias, *norm;  // of llm42_layer
    llm42__bf16 *convolved;                         // [8 x groups, channels]: each run begins a new group
    float *factors;                                 // [8 x groups][2 Hk + 2 Hv]: 1 / length of q, of k; beta and decay
    float *states, *saved_states;                   // of this layer: [slots], [snapshots]
    llm42__bf16 *rings, *saved_inputs;              // the last three inputs before a snapshot: [3][channels]
    size_t states_apart, rings_apart, saved_inputs_apart;  // from one slot or snapshot to the next
} llm42__recurrent;
enum { LLM42__GROUP = 8 };  // positions

// With the bits of llm42__sigmoid.
LLM42__DEVICE float llm42__device_sigmoid(float x) {
    const float power = x * -1.44269504f;
    return __fdiv_rn(1.0f, 1.0f + llm42__power(power > 128.0f ? 128.0f : power));
}

// x = llm42__silu(x), rounded to bf16. Divisions run side by side as in llm42__gate; a test tries all 2^32 numbers.
template <int COUNT> LLM42__DEVICE void llm42__silu_rounded(float (&x)[COUNT]) {
    float largest = 0;
    LLM42__UNROLLED(int i = 0; i < COUNT; i++) largest = fmaxf(largest, fabsf(x[i]));
    if (largest < 64.0f) {
        LLM42__UNROLLED(int i = 0; i < COUNT; i++) {
            const float divisor = 1.0f + llm42__power(x[i] * -1.44269504f), inverse = llm42__near_inverse(divisor),
                        quotient = x[i] * inverse;
            x[i] = llm42__rounded(fmaf(-inverse, fmaf(divisor, quotient, -x[i]), quotient));
        }
        return;
    }
    LLM42__UNROLLED(int i = 0; i < COUNT; i++)
        x[i] = llm42__rounded(__fdiv_rn(x[i], 1.0f + llm42__power(fminf(x[i] * -1.44269504f, 128.0f))));
}

// The inputs at position t of a run: from its row in the pass, from the snapshot that it restores, or from its ring.
LLM42__DEVICE const llm42__bf16 *llm42__inputs_at(const llm42__recurrent &a, const llm42__run &run, int t) {
    if (t >= run.begin) return a.mixed + (size_t)(run.row + t - run.begin) * a.stride;
    if (run.restore && t < run.state)
        return a.saved_inputs + (size_t)(run.restore - 1) * a.saved_inputs_apart +
               (size_t)(t - run.state + LLM42__TAPS - 1) * a.channels;
    return a.rings + (size_t)run.slot * a.rings_apart + (size_t)(t % a.capacity) * a.width;
}
LLM42__DEVICE const llm42__bf16 *llm42__raw_at(const llm42__recurrent &a, const llm42__run &run, int t) {
    if (t >= run.begin) return a.raw + (size_t)(run.row + t - run.begin) * a.raw_stride;
    return llm42__inputs_at(a, run, t) + a.channels;
}

// Stores a lane's values of a head: eight side by side, and eight half a head behind. left: values up to the row's end.
LLM42__DEVICE void llm42__store_halves(llm42__bf16 *to, int half, int left, const float (&x)[16]) {
    uint4 piece[2];
    LLM42__UNROLLED(int i = 0; i < 8; i++) ((uint32_t *)piece)[i] = llm42__pack(x[2 * i], x[2 * i + 1]);
    LLM42__UNROLLED(int i = 0; i < 2; i++)
        if (i * half < left) *(uint4 *)(to + i * half) = piece[i];
}

// beta and the decay of a head, from a position's raw ones.
LLM42__DEVICE float2 llm42__factors_of(const llm42__recurrent &a, const llm42__bf16 *raw, int head) {
    const float alpha = __bfloat162float(raw[a.value_heads + head]) + a.alpha_bias[head];
    return {llm42__device_sigmoid(__bfloat162float(raw[head])),
            llm42__exp(a.decay[head] * (alpha > 20.0f ? alpha : llm42__log_f32(1.0f + llm42__exp(alpha))))};
}

// Copies, for each snapshot within a group of a run, eight channels of the three inputs before it.
LLM42__DEVICE void llm42__save_inputs(const llm42__recurrent &a, const llm42__run &run, int first, int end, int low) {
    for (int i = 0; i < run.saves; i++) {
        const int at = run.save[i].at;
        llm42__bf16 *to = a.saved_inputs + (size_t)run.save[i].snapshot * a.saved_inputs_apart + low;
        for (int j = 0; j < LLM42__TAPS - 1 && at > first && at <= end; j++, to += a.channels)
            *(uint4 *)to = *(const uint4 *)(llm42__inputs_at(a, run, max(at - LLM42__TAPS + 1 + j, 0)) + low);
    }
}

// A norm's factor. x: sixteen of a head's V values: eight side by side, eight half a head behind. Order: as in k_rope.
template <int V> LLM42__DEVICE float llm42__scale_of(const float (&x)[16], float eps) {
    float squares = 0;
    LLM42__UNROLLED(int i = 0; i < 16; i++) squares = fmaf(x[i % 2 * 8 + i / 2], x[i % 2 * 8 + i / 2], squares);
    squares = llm42__sum_of_lanes<V / 16>(squares);
    return __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(squares, (float)V) + eps)) + (squares - squares);
}

// Shapes: mixed, and rings or snapshots -> convolved, factors; and the inputs before snapshots that are to be saved.
// K: key_dim. Work: a block takes every gridDim.y-th group of positions, and 2048 channels of it: K / 16 lanes for a
// head, each with sixteen channels and taps. Order: the four terms by fma, the oldest first; lengths as in k_rope.
template <int K> __global__ void __launch_bounds__(128, 3) llm42__k_convolve(llm42__recurrent a, llm42__meta meta) {
    enum { LANES = K / 16, LAST = LLM42__TAPS - 1 };
    const int u = (int)(blockIdx.x * 128 + threadIdx.x), keys = 2 * a.key_heads, heads = a.value_heads,
              head = u / LANES, in_values = u - keys * LANES, value_lanes = a.value_dim / 16,
              half = head < keys ? K / 2 : a.value_dim / 2;
    const bool there = u * 16 < a.channels;
    const int low = !there        ? 0
                    : head < keys ? head * K + u % LANES * 8
                                  : keys * K + in_values / value_lanes * a.value_dim + in_values % value_lanes * 8;
    float4 tap[16];
    LLM42__UNROLLED(int i = 0; i < 16; i++) tap[i] = ((const float4 *)a.taps)[low + i % 8 + i / 8 * half];
    const int groups = meta.header->groups, runs = meta.header->runs;
    if (groups == runs || runs > a.few) llm42__launch_next();  // else k_delta needs multiprocessors that are empty
    if ((int)blockIdx.y >= groups) return llm42__wait_for_previous();
    for (int group = blockIdx.y; group < groups; group += gridDim.y) {
        const llm42__run &run = llm42__run_of_group(meta, group);
        const int begin = run.begin, first = run.from + (group - run.group) * LLM42__GROUP,
                  end = min(first + LLM42__GROUP, begin + run.rows);
        llm42__bf16 *to = a.convolved + (size_t)group * LLM42__GROUP * a.channels + low;
        float *factors = a.factors + (size_t)group * LLM42__GROUP * (keys + 2 * heads);
        if (group == (int)blockIdx.y) llm42__wait_for_previous();
        const llm42__bf16 *from = nullptr;
        uint4 next[2], before[LAST][2];
        float x[16], sum[LAST][16] = {};            // the terms so far of the next position and of two behind it
        auto take = [&](int t, uint4(&piece)[2]) {  // zero before a sequence's first position
            from = from && t > begin ? from + a.stride : llm42__inputs_at(a, run, max(t, 0)) + low;
            LLM42__UNROLLED(int i = 0; i < 2; i++) piece[i] = *(const uint4 *)(from + i * half);
            if (t < 0) piece[0] = piece[1] = uint4{};
        };
        auto add = [&](const uint4(&piece)[2]) {
            LLM42__UNROLLED(int i = 0; i < 16; i++) {
                const float value = __bfloat162float(((const llm42__bf16 *)&piece[i / 8])[i % 8]);
                x[i] = fmaf(value, tap[i].w, sum[0][i]), sum[0][i] = fmaf(value, tap[i].z, sum[1][i]);
                sum[1][i] = fmaf(value, tap[i].y, sum[2][i]), sum[2][i] = fmaf(value, tap[i].x, 0.0f);
            }
        };
        LLM42__UNROLLED(int i = 0; i < LAST; i++) take(first - LAST + i, before[i]);
        take(first, next);
        LLM42__UNROLLED(int i = 0; i < LAST; i++) add(before[i]);
        for (int t = first; t < end; t++, to += a.channels) {
            add(next);
            if (t + 1 < end) take(t + 1, next);
            llm42__silu_rounded(x);
            float squares = 0;
            LLM42__UNROLLED(int i = 0; i < 16; i++) squares = fmaf(x[i % 2 * 8 + i / 2], x[i % 2 * 8 + i / 2], squares);
            squares = llm42__sum_of_lanes<LANES>(squares);
            if (there) llm42__store_halves(to, half, a.channels, x);
            if (head < keys && u % LANES == 0)
                factors[(t - first) * (keys + 2 * heads) + head] = __fdiv_rn(1.0f, __fsqrt_rn(squares + 1e-6f));
        }
        for (int i = u; i < (end - first) * heads; i += (int)gridDim.x * 128) {
            float *place = factors + i / heads * (keys + 2 * heads) + keys + i % heads * 2;
            *(float2 *)place = llm42__factors_of(a, llm42__raw_at(a, run, first + i / heads), i % heads);
        }
        LLM42__UNROLLED(int i = 0; i < 2; i++)
            if (there) llm42__save_inputs(a, run, first, end, low + i * half);
    }
}

// Puts into a run's ring what the pass leaves there: rows from three before the state that it leaves on. Work: each of
// `parts` blocks of a run copies some pieces of each row.
LLM42__DEVICE void llm42__write_ring(const llm42__recurrent &a, const llm42__run &run, const int32_t *slot, int part,
                                     int parts) {
    const int pieces = a.width / 8, own = (pieces + parts - 1) / parts, end = run.begin + run.rows;
    const int first = LLM42__MAX(LLM42__MAX(0, run.state_to - LLM42__TAPS + 1), end - a.capacity);
    for (int i = threadIdx.x ^ (blockDim.x / 2); i < (end - first) * own; i += blockDim.x) {
        const int t = first + i / own, piece = part * own + i % own;
        const bool restored = run.restore && t < run.state;
        if (t < run.begin ? !restored : slot[run.row + t - run.begin] < 0) continue;  // in the ring, or to keep the old
        const uint4 *from = (const uint4 *)(piece * 8 < a.channels ? llm42__inputs_at(a, run, t)
                                                                   : llm42__raw_at(a, run, t) - a.channels);
        uint4 *to = (uint4 *)(a.rings + (size_t)run.slot * a.rings_apart + (size_t)(t % a.capacity) * a.width);
        if (piece < (restored ? a.channels / 8 : pieces)) to[piece] = from[piece];
    }
}

// What a block has of a group of positions: k and q of a key head, v of its columns, beta and decay.
template <int K, int C> struct llm42__delta_stage {
    enum { COLUMNS = 16 * C, PIECES = LLM42__GROUP * K / 4, EACH = (PIECES + 127) / 128 };
    float4 k_q[LLM42__GROUP][2][K / 4];
    alignas(16) float v[LLM42__GROUP][COLUMNS];
    float2 factor[LLM42__GROUP];
};
// The same on its way there, in registers. All threads load, without a branch, so that no load waits for another one.
template <int K, int C> struct llm42__delta_load {
    using stage = llm42__delta_stage<K, C>;
    uint4 piece[stage::EACH], v;
    float length[stage::EACH], factor;
    // piece_t, of_k, inside: where a piece of q or k is. t: position of v (i < 2C) and of factors (i < 2).
    int t, i, piece_t[stage::EACH], of_k[stage::EACH], inside[stage::EACH];
    const llm42__bf16 *from, *v_from;
    const float *lengths, *factors;

    LLM42__DEVICE llm42__delta_load() : t(threadIdx.x / 16), i(threadIdx.x % 16) {
        LLM42__UNROLLED(int e = 0; e < stage::EACH; e++) {
            const int at = min((int)threadIdx.x + e * 128, (int)stage::PIECES - 1);
            piece_t[e] = at / (K / 4), of_k[e] = at / (K / 8) % 2, inside[e] = at % (K / 8);
        }
    }
    // row: of the first position of a group.
    LLM42__DEVICE void begin(const llm42__recurrent &a, size_t row, int head, int column) {
        const int keys = a.key_heads, key_head = head / (a.value_heads / keys);
        from = a.convolved + row * a.channels + key_head * K;
        v_from = a.convolved + (row + t) * a.channels + 2 * keys * K + head * a.value_dim + column +
                 min(i, 2 * C - 1) * 8;
        lengths = a.factors + row * 2 * (keys + a.value_heads) + key_head;
        factors = lengths - key_head + t * 2 * (keys + a.value_heads) + 2 * keys + head * 2 + i % 2;
    }
    LLM42__DEVICE void take(const llm42__recurrent &a) {
        const int all = 2 * (a.key_heads + a.value_heads);
        LLM42__UNROLLED(int e = 0; e < stage::EACH; e++) {
            piece[e] = *(const uint4 *)(from + piece_t[e] * a.channels + of_k[e] * a.key_heads * K + inside[e] * 8);
            length[e] = lengths[piece_t[e] * all + of_k[e] * a.key_heads];
        }
        v = *(const uint4 *)v_from, factor = *factors;
        from += LLM42__GROUP * a.channels, v_from += LLM42__GROUP * a.channels;
        lengths += LLM42__GROUP * all, factors += LLM42__GROUP * all;
    }
    LLM42__DEVICE void put(stage *to, float scale) const {
        LLM42__UNROLLED(int e = 0; e < stage::EACH; e++) {
            float x[8];
            LLM42__UNROLLED(int j = 0; j < 8; j++) {
                x[j] = __bfloat162float(((const llm42__bf16 *)&piece[e])[j]) * length[e];
                if (!of_k[e]) x[j] *= scale;
            }
            float4 *place = &to->k_q[piece_t[e]][!of_k[e]][inside[e] * 2];
            place[0] = make_float4(x[0], x[1], x[2], x[3]), place[1] = make_float4(x[4], x[5], x[6], x[7]);
        }
        LLM42__UNROLLED(int j = 0; j < 2; j++) {
            const __nv_bfloat162 *two = (const __nv_bfloat162 *)&v + 2 * j;
            const float2 low = __bfloat1622float2(two[0]), high = __bfloat1622float2(two[1]);
            if (i < 2 * C) ((float4 *)to->v[t])[i * 2 + j] = make_float4(low.x, low.y, high.x, high.y);
        }
        if (i < 2) ((float *)&to->factor[t])[i] = factor;
    }
};

// A thread's part of C columns of a head's state: rows 32 i + 4 lane to 32 i + 4 lane + 3, for all i.
template <int K, int C> struct llm42__delta_part {
    enum { EACH = K < 32 ? 1 : K / 32 };
    float4 S[C][EACH], k[EACH];
    float beta, decay;
    int lane;

    LLM42__DEVICE bool there() const { return K >= 32 || lane * 4 < K; }
    // The state that a run begins with. place: of the lane's part in a state.
    LLM42__DEVICE void load(const llm42__recurrent &a, const llm42__run &run, size_t place) {
        const float *from = run.restore ? a.saved_states + (run.restore - 1) * a.states_apart + place
                                        : a.states + run.slot * a.states_apart + place;
        LLM42__UNROLLED(int i = 0; i < C * EACH; i++)
            S[i / EACH][i % EACH] = !run.state || !there() ? float4{}
                                                           : *(const float4 *)(from + i / EACH * K + i % EACH * 32);
    }
    LLM42__DEVICE void store(float *to) const {
        LLM42__UNROLLED(int i = 0; i < C * EACH; i++)
            if (there()) *(float4 *)(to + i / EACH * K + i % EACH * 32) = S[i / EACH][i % EACH];
    }
    // The lane's part of S^T x.
    LLM42__DEVICE void dot(const float4 (&x)[EACH], float (&sum)[C]) const {
        LLM42__UNROLLED(int c = 0; c < C; c++) {
            float4 part = {};
            LLM42__UNROLLED(int i = 0; i < EACH; i++)
                part = make_float4(fmaf(S[c][i].x, x[i].x, part.x), fmaf(S[c][i].y, x[i].y, part.y),
                                   fmaf(S[c][i].z, x[i].z, part.z), fmaf(S[c][i].w, x[i].w, part.w));
            sum[c] = (part.x + part.y) + (part.z + part.w);
        }
    }
    LLM42__DEVICE void load_k(const llm42__delta_stage<K, C> &stage, int t) {
        LLM42__UNROLLED(int i = 0; i < EACH; i++) k[i] = there() ? stage.k_q[t][0][i * 8 + lane] : float4{};
        beta = stage.factor[t].x, decay = stage.factor[t].y;
    }
    // Takes in position t of a stage, whose k is loaded. Loads k of t + 1 before it stores anything, because a load
    // behind stores would wait for them. part: the lane's part of what the columns give.
    LLM42__DEVICE void step(const llm42__delta_stage<K, C> &stage, int t, int columns, float4 (*part)[16][2]) {
        float4 q[EACH];
        float delta[C], out[C];
        LLM42__UNROLLED(int i = 0; i < EACH; i++) q[i] = there() ? stage.k_q[t][1][i * 8 + lane] : float4{};
        LLM42__UNROLLED(int i = 0; i < C * EACH; i++) {
            float4 &s = S[i / EACH][i % EACH];
            s = make_float4(s.x * decay, s.y * decay, s.z * decay, s.w * decay);
        }
        dot(k, delta);
        LLM42__UNROLLED(int lanes = 4; lanes < 32; lanes *= 2)
            LLM42__UNROLLED(int c = 0; c < C; c++) delta[c] += __shfl_xor_sync(0xffffffffu, delta[c], lanes);
        LLM42__UNROLLED(int c = 0; c < C; c++) delta[c] = (stage.v[t][columns * C + c] - delta[c]) * beta;
        LLM42__UNROLLED(int i = 0; i < C * EACH; i++) {
            float4 &s = S[i / EACH][i % EACH];
            const float4 x = k[i % EACH];
            const float d = delta[i / EACH];
            s = make_float4(fmaf(x.x, d, s.x), fmaf(x.y, d, s.y), fmaf(x.z, d, s.z), fmaf(x.w, d, s.w));
        }
        if (t + 1 < LLM42__GROUP) load_k(stage, t + 1);
        dot(q, out);
        LLM42__UNROLLED(int c = 0; c < C; c++) ((float *)part[c][columns])[lane] = out[c];
    }
    // When the positions before t have been taken in: stores the state where it is to go. place: of the lane's part.
    LLM42__DEVICE void settle(const llm42__recurrent &a, const llm42__run &run, int t, size_t place) const {
        if (t == run.state_to && (t > run.from || run.restore)) store(a.states + run.slot * a.states_apart + place);
        LLM42__UNROLLED(int i = 0; i < 2; i++)
            if (i < run.saves && t == run.save[i].at && t > run.from)
                store(a.saved_states + run.save[i].snapshot * a.states_apart + place);
    }
    // What the columns give, from all lanes' parts.
    static LLM42__DEVICE float sum_of(const float4 (&lanes)[2]) {
        const float4 x = lanes[0], y = lanes[1];
        return ((x.x + x.y) + (x.z + x.w)) + ((y.x + y.y) + (y.z + y.w));
    }
};

// Shapes: convolved, factors, states or snapshots -> out [R, out_stride], states, snapshots, rings. K: key_dim. Work: a
// block takes 16 C columns of a value head of a run, position after position; eight lanes share C columns. States are
// read before the wait, to save time: no kernel of the pass has written them. Order: that of llm42__recurrent_dot in
// llm42.h: a lane has partial sums 4 lane to 4 lane + 3, which a tree of lanes adds. It depends on key_dim alone.
//
// With long runs two blocks on a multiprocessor take half as long again as one, and an H200 spreads blocks unevenly if
// a launch has many more than have work, or begins while k_convolve runs. So there are two launches: the first, of two
// blocks a multiprocessor at most, works only in passes of at most a.few runs, the second only in all other passes.
template <int K, int C> __global__ void __launch_bounds__(128, 4) llm42__k_delta(llm42__recurrent a, llm42__meta meta) {
    using stage = llm42__delta_stage<K, C>;
    __shared__ stage stages[2];
    __shared__ float4 parts[2][LLM42__GROUP][C][16][2];  // of outputs, by lane: they are added up after a group
    static_assert(sizeof stages + sizeof parts <= 48 << 10, "without being asked GPUs give no more");
    const int across = a.value_dim / stage::COLUMNS, each = a.value_heads * across, runs = meta.header->runs,
              tasks = (runs <= a.few) == ((int)gridDim.x == a.few * each) ? runs * each : 0;
    const int own = threadIdx.x / 32 * 4 + threadIdx.x % 4;  // of sixteen times C columns
    const float scale = __fdiv_rn(1.0f, __fsqrt_rn((float)K));
    llm42__delta_part<K, C> part;
    llm42__delta_load<K, C> load;
    part.lane = threadIdx.x / 4 % 8;
    int turn = 0;
    llm42__launch_next();
    for (int task = blockIdx.x; task < tasks; task += gridDim.x) {
        const llm42__run run = meta.run[task / each];
        const int head = task % each / across, column = task % across * stage::COLUMNS, end = run.begin + run.rows;
        const size_t row = (size_t)run.group * LLM42__GROUP,
                     place = ((size_t)head * a.value_dim + column + own * C) * K + part.lane * 4;
        part.load(a, run, place);
        if (task == (int)blockIdx.x) llm42__wait_for_previous();
        load.begin(a, row, head, column), load.take(a);
        auto inside = [&](int t, int at) { return t < at && at < t + LLM42__GROUP; };
        part.settle(a, run, run.from, place);
        load.put(&stages[turn], scale);
        if (run.from + LLM42__GROUP < end) load.take(a);
        __syncthreads();
        for (int t = run.from; t < end; t += LLM42__GROUP, turn ^= 1) {
            stage &now = stages[turn];
            part.load_k(now, 0);
            load.put(&stages[turn ^ 1], scale);  // the next group; after the last one this is not used
            if (t + 2 * LLM42__GROUP < end) load.take(a);
            if (end - t < LLM42__GROUP || inside(t, run.state_to) || (run.saves && inside(t, run.save[0].at)) ||
                (run.saves > 1 && inside(t, run.save[1].at))) {
                LLM42__UNROLLED(int i = 0; i < LLM42__GROUP; i++)
                    if (t + i < end) part.step(now, i, own, parts[turn][i]), part.settle(a, run, t + i + 1, place);
            } else {
                LLM42__UNROLLED(int i = 0; i < LLM42__GROUP; i++) part.step(now, i, own, parts[turn][i]);
                part.settle(a, run, t + LLM42__GROUP, place);
            }
            __syncthreads();
            const int of = threadIdx.x / 16, at = t + of, columns = threadIdx.x % 16;
            if (at < run.begin || at >= end) continue;
            llm42__bf16 *to = a.out + (size_t)(run.row + at - run.begin) * a.out_stride + head * a.value_dim + column +
                              columns * C;
            LLM42__UNROLLED(int c = 0; c < C; c++)
                to[c] = __float2bfloat16_rn(part.sum_of(parts[turn][of][c][columns]));
        }
        llm42__write_ring(a, run, meta.slot, task % each, each);
    }
    if ((int)blockIdx.x >= tasks) llm42__wait_for_previous();
}

// Shapes: out [R, out_stride], in place: each head's output, normed, times silu(z); zeros behind the last head. V:
// value_dim. Work: V / 16 lanes for a head of a row.
template <int V> __global__ void __launch_bounds__(128) llm42__k_leave(llm42__recurrent a) {
    const int u = (int)(blockIdx.y * 128 + threadIdx.x), head = u / (V / 16), low = u % (V / 16) * 8;
    llm42__launch_next();
    llm42__wait_for_previous();
    llm42__bf16 *out = a.out + (size_t)blockIdx.x * a.out_stride + head * V + low;
    const llm42__bf16 *z = a.mixed + (size_t)blockIdx.x * a.stride + a.z + head * V + low;
    const bool there = head < a.value_heads;
    float x[16], gate[16], up[16];
    LLM42__UNROLLED(int i = 0; i < 16; i++) {
        const int at = i % 8 + i / 8 * (V / 2);
        x[i] = there ? __bfloat162float(out[at]) : 0.0f, gate[i] = there ? __bfloat162float(z[at]) : 0.0f;
    }
    const float scale = llm42__scale_of<V>(x, a.eps);
    LLM42__UNROLLED(int i = 0; i < 16; i++) up[i] = there ? x[i] * scale * a.norm[low + i % 8 + i / 8 * (V / 2)] : 0.0f;
    llm42__gate(gate, up, x);
    llm42__store_halves(out, V / 2, a.out_stride - head * V - low, x);
}

// What a block of k_recur has, in shared memory and in a thread, and what it does with a group of positions.
template <int K> struct llm42__recur_memory {
    llm42__delta_stage<K, 2> now;
    float4 parts[LLM42__GROUP][2][16][2], outputs[2][LLM42__GROUP][K / 4];  // outputs: of the head; groups take turns
    float scales[LLM42__GROUP];
    uint64_t sent[2];  // barriers; groups take turns
};
template <int K> struct llm42__recur {
    enum { BLOCKS = K / 32, LANES = K / 16, PIECES = K / 4 + 4 };  // of eight channels: q, k, the block's v
    const llm42__recurrent &a;
    const llm42__run &run;
    llm42__recur_memory<K> &memory;
    int rank, head, each, value, u;  // each: value heads of a key head; value: first column of the block; u: thread
    float scale;                     // of q

    LLM42__DEVICE int channel_of(int piece) const {
        return piece < K / 4 ? (piece / (K / 8) * a.key_heads + head / each) * K + piece % (K / 8) * 8
                             : 2 * a.key_heads * K + value + (piece - K / 4) * 8;
    }
    // The convolution. All loads of a piece are issued before one of them is used, so that none waits for another.
    LLM42__DEVICE void convolve(int first, int count) const {
        for (int i = u; i < count * PIECES; i += 128) {
            const int t = i / PIECES, piece = i % PIECES, channel = channel_of(piece);
            const llm42__bf16 *from[LLM42__TAPS];
            uint4 taken[LLM42__TAPS];
            auto at = [&](int j) { return first + t - LLM42__TAPS + 1 + j; };
            LLM42__UNROLLED(int j = 0; j < LLM42__TAPS; j++) from[j] = llm42__inputs_at(a, run, max(at(j), 0));
            LLM42__UNROLLED(int j = 0; j < LLM42__TAPS; j++) taken[j] = *(const uint4 *)(from[j] + channel);
            LLM42__UNROLLED(int j = 0; j < LLM42__TAPS; j++) taken[j] = at(j) < 0 ? uint4{} : taken[j];
            float x[8];
            LLM42__UNROLLED(int c = 0; c < 8; c++) {
                const float4 tap = ((const float4 *)a.taps)[channel + c];
                auto input = [&](int j) { return __bfloat162float(((const llm42__bf16 *)&taken[j])[c]); };
                x[c] = fmaf(input(1), tap.y, fmaf(input(0), tap.x, 0.0f));
                x[c] = fmaf(input(3), tap.w, fmaf(input(2), tap.z, x[c]));
            }
            llm42__silu_rounded(x);
            float *to = piece < K / 4 ? (float *)memory.now.k_q[t][piece < K / 8] + piece % (K / 8) * 8
                                      : memory.now.v[t] + (piece - K / 4) * 8;
            LLM42__UNROLLED(int c = 0; c < 8; c++) to[c] = x[c];
            if (!t && (piece >= K / 4 || (head % each == 0 && !rank)))
                llm42__save_inputs(a, run, first, first + count, channel);
        }
        const int behind = u - 128 + LLM42__GROUP;
        if (behind >= 0 && behind < count)
            memory.now.factor[behind] = llm42__factors_of(a, llm42__raw_at(a, run, first + behind), head);
    }
    // Divides q and k by their lengths, and q by sqrt(K). Work: LANES lanes for q or k of a position.
    LLM42__DEVICE void give_lengths(int count) const {
        if (u / 32 * 32 >= count * 2 * LANES) return;
        const bool is_q = u / LANES % 2;
        float *x = (float *)memory.now.k_q[u / LANES / 2 % LLM42__GROUP][is_q] + u % LANES * 8, squares = 0;
        LLM42__UNROLLED(int i = 0; i < 16; i++)
            squares = fmaf(x[i / 2 + i % 2 * (K / 2)], x[i / 2 + i % 2 * (K / 2)], squares);
        const float length = __fdiv_rn(1.0f, __fsqrt_rn(llm42__sum_of_lanes<LANES>(squares) + 1e-6f));
        LLM42__UNROLLED(int i = 0; i < 16; i++) {
            float &one = x[i % 8 + i / 8 * (K / 2)];
            one = is_q ? one * length * scale : one * length;
        }
    }
    // Sends what the block's columns give to all blocks of the cluster, and waits for theirs.
    LLM42__DEVICE void exchange(int turn, int count) const {
        const uint32_t barrier = llm42__shared_address(&memory.sent[turn % 2]);
        if (u < count * 8) {
            const int t = u / 8, column = u % 8 * 4;
            float four[4];
            LLM42__UNROLLED(int c = 0; c < 4; c++)
                four[c] = llm42__rounded(llm42__delta_part<K, 2>::sum_of(memory.parts[t][c % 2][column / 2 + c / 2]));
            float4 *to = &memory.outputs[turn % 2][t][rank * 8 + u % 8];
            if (BLOCKS == 1) *to = make_float4(four[0], four[1], four[2], four[3]);
            LLM42__UNROLLED(uint32_t r = 0; BLOCKS > 1 && r < BLOCKS; r++)
                llm42__store4_in(llm42__address_in(llm42__shared_address(to), r), four, llm42__address_in(barrier, r));
        }
        if (BLOCKS == 1) __syncthreads();  // then there is no cluster
        else llm42__mbarrier_wait<true>(barrier, turn / 2 % 2);
    }
    // Norms the block's outputs and multiplies them by silu(z), as k_leave does. A thread has two columns of a
    // position.
    LLM42__DEVICE void leave(int turn, int first, int count) const {
        auto output = [&](int t, int column) { return ((const float *)memory.outputs[turn % 2][t])[column]; };
        if (u / 32 * 32 < count * LANES) {
            const int t = u / LANES % LLM42__GROUP;
            float x[16];
            LLM42__UNROLLED(int i = 0; i < 16; i++) x[i] = output(t, u % LANES * 8 + i % 8 + i / 8 * (K / 2));
            memory.scales[t] = llm42__scale_of<K>(x, a.eps);
        }
        __syncthreads();
        const int t = u / 16, column = u % 16 * 2, row = first + t - run.begin;
        if (row < 0 || row >= run.rows) return;
        float gate[2], up[2], out[2];
        LLM42__UNROLLED(int c = 0; c < 2; c++) {
            gate[c] = __bfloat162float(a.mixed[(size_t)(run.row + row) * a.stride + a.z + value + column + c]);
            up[c] = output(t, rank * 32 + column + c) * memory.scales[t] * a.norm[rank * 32 + column + c];
        }
        llm42__gate(gate, up, out);
        *(uint32_t *)(a.out + (size_t)(run.row + row) * a.out_stride + value + column) = llm42__pack(out[0], out[1]);
    }
};

// What k_convolve, k_delta and k_leave do, and in their order, for few rows: their time is mostly that of waiting for
// one another. K: key_dim and value_dim. Work: a cluster has a value head of a run, and each of its blocks 32 columns,
// as in k_delta. No loop over positions is unrolled, because instructions that are not in a cache cost more than the
// loop. Rings have room for LLM42__GROUP rows more than k_delta needs: blocks write a run's ring while others read it.
template <int K> __global__ void __launch_bounds__(128, 3) llm42__k_recur(llm42__recurrent a, llm42__meta meta) {
#if LLM42__WARPGROUPS || __CUDA_ARCH__ >= 900
    enum { BLOCKS = K / 32 };
    extern __shared__ __align__(1024) unsigned char shared[];
    auto &memory = *(llm42__recur_memory<K> *)shared;
    const int heads = a.value_heads, rank = blockIdx.x % BLOCKS, head = blockIdx.x / BLOCKS % heads, u = threadIdx.x,
              own = u / 32 * 4 + u % 4;
    llm42__launch_next();
    if ((int)blockIdx.x >= meta.header->runs * heads * BLOCKS) return llm42__wait_for_previous();
    const llm42__run run = meta.run[blockIdx.x / BLOCKS / heads];
    const float scale = __fdiv_rn(1.0f, __fsqrt_rn((float)K));
    const llm42__recur<K> block = {a, run, memory, rank, head, heads / a.key_heads, head * K + rank * 32, u, scale};
    const int end = run.begin + run.rows;
    llm42__delta_part<K, 2> part;
    part.lane = u / 4 % 8;
    const size_t place = (size_t)(block.value + own * 2) * K + part.lane * 4;
    part.load(a, run, place);
    if (u < block.PIECES) llm42__prefetch((const float4 *)a.taps + block.channel_of(u));
    if (u < 2) llm42__mbarrier_open(llm42__shared_address(&memory.sent[u]), 1), llm42__mbarriers_opened();
    if (BLOCKS > 1) llm42__cluster_barrier();
    llm42__wait_for_previous();
    part.settle(a, run, run.from, place);
    for (int first = run.from, turn = 0; first < end; first += LLM42__GROUP, turn++) {
        const int count = min(end - first, (int)LLM42__GROUP);
        if (u == 0 && BLOCKS > 1) llm42__mbarrier_expect(llm42__shared_address(&memory.sent[turn % 2]), count * K * 4);
        block.convolve(first, count);
        if (!turn) llm42__write_ring(a, run, meta.slot, head * BLOCKS + rank, heads * BLOCKS);
        __syncthreads();
        block.give_lengths(count);
        __syncthreads();
        part.load_k(memory.now, 0);
#pragma unroll 1
        for (int t = 0; t < count; t++)
            part.step(memory.now, t, own, memory.parts[t]), part.settle(a, run, first + t + 1, place);
        __syncthreads();
        block.exchange(turn, count);
        block.leave(turn, first, count);
    }
#endif
}

// Shapes: out [R, stride], in place: the first `width` values of a row are multiplied by sigmoid of `gates`, and
// the rest becomes 0. Work: a thread takes eight values. No sums.
__global__ void __launch_bounds__(256)
    llm42__k_gate_attention(llm42__bf16 *out, int stride, const llm42__bf16 *gates, int gates_stride, int width) {
    const int i = (int)(blockIdx.y * 256 + threadIdx.x) * 8;
    llm42__launch_next();
    llm42__wait_for_previous();
    if (i >= stride) return;
    uint4 *to = (uint4 *)(out + (size_t)blockIdx.x * stride + i), piece = *to;
    const llm42__bf16 *gate = gates + (size_t)blockIdx.x * gates_stride + i;
    float x[8];
    LLM42__UNROLLED(int j = 0; j < 8; j++)
        x[j] = i + j < width ? __bfloat162float(((const llm42__bf16 *)&piece)[j]) *
                                   llm42__device_sigmoid(__bfloat162float(gate[j]))
                             : 0.0f;
    *to = make_uint4(llm42__pack(x[0], x[1]), llm42__pack(x[2], x[3]), llm42__pack(x[4], x[5]),
                     llm42__pack(x[6], x[7]));
}

// >>kernel-attention ---------------------------------------------------------------------------------------------
// Owns: attention over the paged cache.
//
// The one order of sums in attention. A row's keys are cut into units of 512 keys, which begin at multiples of 512, and
// each unit is summed on its own, in steps of 128 keys in ascending order:
//   1. scores, by the tensor cores
//   2. the base: the largest score of the unit so far, times `scale`, which contains the factor log2(e). If it has
//      grown, what the unit has summed is multiplied by 2^(old base - base)
//   3. weights 2^(score x scale - base)
//   4. eight totals of weights, one for each remainder of a key's position modulo 8. In each of a step's four strips of
//      32 keys a total adds its four weights, ascending; then total = fma(total, factor of 2., (s0 + s1) + (s2 + s3))
//   5. weights x values, by the tensor cores, on top of the sums of the steps before
// At the end of a unit its eight totals are added pairwise. Then units are merged in ascending order. Units let blocks
// share a long row that is decoded, and are long because a merge costs time. Steps, units and keys that a row does not
// see change none of its bits, so a result depends neither on the rows beside it nor on which block sums a unit.

enum { LLM42__STRIP_KEYS = 32, LLM42__STEP_KEYS = 128, LLM42__UNIT_KEYS = 512, LLM42__TEAM_QUERIES = 64 };

// Byte offset of a piece in shared memory that holds KEYS keys (or values) of DP elements each. With 64 elements or
// more they lie in panels of 64 elements. A panel has one row of 128 bytes for each key. The pieces of a row are
// permuted, so that eight rows use different banks. llm42__smem_descriptor describes this layout to the tensor cores.
//
//   DP = 128:   panel 0: elements 0 .. 63, KEYS x 128 bytes   | panel 1: elements 64 .. 127, KEYS x 128 bytes
template <int DP, int KEYS> LLM42__DEVICE uint32_t llm42__key_place(int row, int piece) {
    if (DP >= 64) return (uint32_t)(piece / 8 * (KEYS * 128)) + llm42__swizzle(row, piece % 8);
    const int turn = DP == 32 ? (row >> 1) & 3 : (row >> 2) & 1;
    return (uint32_t)(row * DP * 2 + ((piece ^ turn) << 4));
}

// What a thread has of a unit's sums for its two queries: the base of each, and two of its eight totals.
struct llm42__unit_sums {
    float base[2], total[2][2];
    LLM42__DEVICE void begin() { *this = {{-INFINITY, -INFINITY}, {}}; }
};

// A query's base grows to `top`: the largest of its next scores, times scale. Returns the factor for its sums so far.
LLM42__DEVICE float llm42__grow(float &base, float top) {
    const float before = base;
    base = fmaxf(base, top);
    return base == before ? 1.0f : llm42__power(before - base);
}
// What is subtracted from scores: the base, or 0 where it is -INFINITY because the query has seen no key yet.
LLM42__DEVICE float llm42__from_base(float base) { return base == -INFINITY ? 0.0f : base; }

// The factors of a merge, `keep` of the sums so far and `take` of the unit's, scale both to the higher base: `base`.
LLM42__DEVICE void llm42__merge_factors(float &base, float unit_base, float &keep, float &take) {
    const float higher = fmaxf(base, unit_base), from = llm42__from_base(higher);
    keep = llm42__power(base - from), take = llm42__power(unit_base - from);
    base = higher;
}

// A record of a query: the sums of weighted values (DP columns), the base, and the total of weights.
__host__ __device__ constexpr int llm42__record(int dp) { return dp + 2; }

typedef struct llm42__attention {
    const llm42__bf16 *q, *k, *v;                   // q [R, H, DP]; one layer of the cache [slots, K, DP]
    llm42__bf16 *out;                               // [R, stride], H x d used
    float *partial;                                 // [slots of units, K, queries of a kv head, record]
    unsigned *arrived;                              // [R, K], zero between passes
    int heads, kv_heads, head_dim, stride, window;  // window: 0, or positions that a row sees
    int group;                                      // query heads of a kv head
    uint32_t group_inverse;                         // 65536 / group + 1
    float scale;                                    // log2(e) / sqrt(d)
    llm42__blocks_of_x eight;                       // of decode, where d is 128: takes what else goes to out
} llm42__attention;

// Where a warp that copies a strip puts a lane's i-th piece: llm42__key_place, but simpler, since 8 divides `first`.
template <int DP, int KEYS> LLM42__DEVICE uint32_t llm42__copy_place(int first, int i) {
    enum { PIECES = DP / 8, AT_ONCE = 32 / PIECES };
    const int lane = threadIdx.x % 32, piece = lane % PIECES, row = first + lane / PIECES;
    if (DP < 64) return llm42__key_place<DP, KEYS>(row + i * AT_ONCE, piece);
    return (uint32_t)(piece / 8 * (KEYS * 128) + row * 128) +
           ((uint32_t)((piece % 8 ^ lane / PIECES) << 4) ^ (uint32_t)((i * AT_ONCE & 7) << 4)) +
           (uint32_t)(i * AT_ONCE * 128);
}

// Starts copies of a strip of the cache to shared memory that holds KEYS keys, to its rows from `first` on (a multiple
// of 8). place: where the lane's key lies in the cache, in pieces; LLM42__NOWHERE gives zeros. All lanes must call it.
#define LLM42__NOWHERE 0xffffffffu
template <int DP, int KEYS>
LLM42__DEVICE void llm42__copy_keys(uint32_t to, int first, const llm42__bf16 *cache, uint32_t place) {
    enum { PIECES = DP / 8, AT_ONCE = 32 / PIECES };
    const int lane = threadIdx.x % 32, piece = lane % PIECES;
    LLM42__UNROLLED(int i = 0; i < PIECES; i++) {
        const uint32_t from = __shfl_sync(0xffffffffu, place, i * AT_ONCE + lane / PIECES);
        llm42__copy16(to + llm42__copy_place<DP, KEYS>(first, i),
                      cache + piece * 8 + (size_t)(from == LLM42__NOWHERE ? 0 : from) * 8, from != LLM42__NOWHERE);
    }
}
// The row of a task that its query i belongs to: i / group.
LLM42__DEVICE int llm42__row_of_query(const llm42__attention &a, int i) {
    return (int)((uint32_t)i * a.group_inverse >> 16);
}
// Where query i of a task lies, or the pass's first query if the task does not have it.
template <int DP>
LLM42__DEVICE const llm42__bf16 *llm42__query_at(const llm42__attention &a, const llm42__prefill_task &task,
                                                 int kv_head, int i, bool *there) {
    const int row = llm42__row_of_query(a, i);
    *there = row < task.rows;
    return a.q + (*there ? (size_t)(task.row + row) * a.heads + kv_head * a.group + i - row * a.group : 0) * DP;
}

// The 64 queries of a team (four warps), 16 for each warp: in shared memory for warpgroups, else in registers.
template <int DP> struct llm42__queries {
    static constexpr bool SHARED = LLM42__WARPGROUPS && DP >= 64;
    uint32_t shared, own[SHARED ? 1 : DP / 16][4];
    LLM42__DEVICE void load_own(const llm42__attention &a, const llm42__prefill_task &task, int kv_head, int first) {
        if constexpr (!SHARED)
            LLM42__UNROLLED(int i = 0; i < DP / 16 * 4; i++) {
                bool there;
                const llm42__bf16 *at = llm42__query_at<DP>(a, task, kv_head, first + i % 2 * 8, &there);
                own[i / 4][i % 4] = there ? *(const uint32_t *)(at + i / 4 * 16 + threadIdx.x % 4 * 2 + i % 4 / 2 * 8)
                                          : 0;
            }
    }
};

// Waits for all products that the warpgroup has committed, except the last LEFT groups. `product` is of none of these.
template <int DP, int LEFT, int EIGHTS> LLM42__DEVICE void llm42__await(float (&product)[EIGHTS][4]) {
    if constexpr (LLM42__WARPGROUPS && DP >= 64) {
        llm42__wgmma_wait<LEFT>();
        llm42__settle(product);
    }
}

// Starts the scores of a team's queries with the keys of a step.
template <int DP>
LLM42__DEVICE void llm42__score_step(float (&score)[16][4], const llm42__queries<DP> &q, uint32_t k_at) {
    if constexpr (LLM42__WARPGROUPS && DP >= 64) {
        // bytes: of a panel of 64 elements of the queries, and of the keys; of 16 elements
        enum { Q_PANEL = 64 * 128, PANEL = LLM42__STEP_KEYS * 128, SIXTEEN = 16 * 2 };
        const uint64_t queries = llm42__smem_descriptor(q.shared, 16), keys = llm42__smem_descriptor(k_at, 16);
        llm42__wgmma_fence();
        LLM42__UNROLLED(int kk = 0; kk < DP / 16; kk++)
            llm42__wgmma(score, queries + ((kk / 4 * Q_PANEL + kk % 4 * SIXTEEN) >> 4),
                         keys + ((kk / 4 * PANEL + kk % 4 * SIXTEEN) >> 4), kk > 0);
        llm42__wgmma_commit();
    } else {
        const int lane = threadIdx.x % 32;
        LLM42__UNROLLED(int block = 0; block < 16; block += 4) {  // of eight keys
            LLM42__UNROLLED(int i = 0; i < 16; i++) score[block + i / 4][i % 4] = 0.0f;
            LLM42__UNROLLED(int i = 0; i < DP / 8; i++) {
                const int kk = i / 2, n = block + i % 2 * 2;
                uint32_t b[4];
                llm42__load_matrices(b, k_at + llm42__key_place<DP, LLM42__STEP_KEYS>(8 * n + lane / 16 * 8 + lane % 8,
                                                                                      2 * kk + lane / 8 % 2));
                llm42__mma(score[n], q.own[kk], b[0], b[1]);
                llm42__mma(score[n + 1], q.own[kk], b[2], b[3]);
            }
        }
    }
}

// Starts to add a step's weights x values to the unit's sums, which begin at zero in the unit's first step (`first`).
template <int DP>
LLM42__DEVICE void llm42__add_values_step(float (&out)[DP / 8][4], const uint32_t (&weight)[8][4], uint32_t v_at,
                                          bool first) {
    if constexpr (LLM42__WARPGROUPS && DP >= 64) {
        enum { PANEL = LLM42__STEP_KEYS * 128, SIXTEEN_KEYS = 16 * 128 };  // bytes: of a panel; of 16 keys in a panel
        enum { EIGHTS = DP == 256 ? 16 : DP / 8 };                         // 128 columns at once, at most
        const uint64_t values = llm42__smem_descriptor(v_at, PANEL);
        llm42__wgmma_fence();
        LLM42__UNROLLED(int half = 0; half < DP / 8; half += EIGHTS)
            LLM42__UNROLLED(int kk = 0; kk < 8; kk++)
                llm42__wgmma(*(float(*)[EIGHTS][4])out[half], weight[kk],
                             values + ((half / 8 * PANEL + kk * SIXTEEN_KEYS) >> 4), kk > 0 || !first);
        llm42__wgmma_commit();
    } else {
        if (first)
            LLM42__UNROLLED(int i = 0; i < DP / 2; i++) out[i / 4][i % 4] = 0.0f;
        const int lane = threadIdx.x % 32;
        LLM42__UNROLLED(int i = 0; i < 8 * (DP / 16); i++) {
            const int kk = i / (DP / 16), n = i % (DP / 16) * 2;
            uint32_t b[4];
            llm42__load_matrices_transposed(
                b, v_at + llm42__key_place<DP, LLM42__STEP_KEYS>(16 * kk + lane % 16, n + lane / 16));
            llm42__mma(out[n], weight[kk], b[0], b[1]);
            llm42__mma(out[n + 1], weight[kk], b[2], b[3]);
        }
    }
}

// Shared memory of llm42__k_attend_prefill: mbarriers, a ring of steps' keys or values, sums of earlier units, queries.
template <int DP, int TEAMS> struct llm42__prefill_shape {
    enum { SLOTS = 2 * TEAMS, QUERIES = 64 * TEAMS, SLOT = LLM42__STEP_KEYS * DP * 2 };
    enum { FULL_AT = 0, EMPTY_AT = FULL_AT + 8 * SLOTS, QUERIES_FULL_AT = EMPTY_AT + 8 * SLOTS };
    enum { QUERIES_EMPTY_AT = QUERIES_FULL_AT + 8, RING_AT = 1024, MERGED_AT = RING_AT + SLOTS * SLOT };
    enum { QUERIES_AT = MERGED_AT + QUERIES * DP * 4 };
    static int bytes(bool warpgroups) { return QUERIES_AT + (warpgroups && DP >= 64 ? QUERIES * DP * 2 : 0); }
};

// A block's work: pairs of a task and a kv head. Tasks are sorted, long ones first, and every other round of pairs goes
// backward through the blocks, so that all blocks have about as much to do. turn: counts the block's pairs.
struct llm42__prefill_turn {
    int turn = 0, kv_head;
    llm42__prefill_task task;
    LLM42__DEVICE bool next(const llm42__attention &a, const llm42__meta &meta) {
        const int block = turn % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x, pair = turn * gridDim.x + block;
        if (pair >= meta.header->prefill_tasks * a.kv_heads) return false;
        kv_head = pair % a.kv_heads, task = meta.prefill[pair / a.kv_heads], turn++;
        return true;
    }
    LLM42__DEVICE int steps() const { return (task.end - task.first + LLM42__STEP_KEYS - 1) / LLM42__STEP_KEYS; }
};

// The warps that copy: each copies 32 keys of a step, from key 32 x warp on, and then their values. Copies are counted
// over all tasks, so even ones are of keys and odd ones of values. Pages are looked up one step ahead.
template <int DP, int TEAMS> struct llm42__prefill_feeder {
    using shape = llm42__prefill_shape<DP, TEAMS>;
    const llm42__attention &a;
    const llm42__meta &meta;
    uint32_t base, copies = 0;
    const int32_t *pages;       // of the task's sequence
    int page[2], next_page[2];  // of the first sixteen keys of a step's strip, and of the others
    llm42__prefill_turn own = {};
    LLM42__DEVICE int first(int step) const {
        return own.task.first + step * LLM42__STEP_KEYS + threadIdx.x % 128 / 32 * 32;
    }
    LLM42__DEVICE void look_up(int step, int (&to)[2]) const {
        LLM42__UNROLLED(int i = 0; i < 2; i++)
            to[i] = pages[LLM42__MIN(first(step) + 16 * i, own.task.end - 1) >> meta.page_shift];
    }
    LLM42__DEVICE void load(const llm42__bf16 *cache, uint32_t to, int step) const {
        enum { PIECES = DP / 8, AT_ONCE = 32 / PIECES };
        const int shift = meta.page_shift, in_page = (1 << shift) - 1, t = first(step), lane = threadIdx.x % 32,
                  key = t + lane, left = own.task.end - t - lane / PIECES, strip = threadIdx.x % 128 / 32 * 32;
        const uint32_t stride = (uint32_t)(a.kv_heads * PIECES);  // pieces from a key to the next
        cache += own.kv_head * DP;
        if (shift < 4) {  // pages of fewer than sixteen keys
            uint32_t place = LLM42__NOWHERE;
            if (key < own.task.end) place = (uint32_t)((pages[key >> shift] << shift) + (key & in_page)) * stride;
            return llm42__copy_keys<DP, LLM42__STEP_KEYS>(to, strip, cache, place);
        }
        LLM42__UNROLLED(int half = 0; half < 2; half++) {
            const int slot = (page[half] << shift) + (t + 16 * half & in_page);
            const llm42__bf16 *at = cache + (size_t)((uint32_t)(slot + lane / PIECES) * stride + lane % PIECES) * 8;
            LLM42__UNROLLED(int i = 0; i < PIECES / 2; i++)
                llm42__copy16(to + llm42__copy_place<DP, LLM42__STEP_KEYS>(strip, half * PIECES / 2 + i),
                              at + (size_t)(i * AT_ONCE * 8 * stride), half * 16 + i * AT_ONCE < left);
        }
    }
    LLM42__DEVICE void load_queries() const {
        enum { PIECES = DP / 8 };
        llm42__mbarrier_wait(base + shape::QUERIES_EMPTY_AT, own.turn & 1);
        for (int i = threadIdx.x % 128; i < shape::QUERIES * PIECES; i += 128) {
            const int query = i / PIECES, piece = i % PIECES;
            bool there;
            const llm42__bf16 *from = llm42__query_at<DP>(a, own.task, own.kv_head, query, &there) + piece * 8;
            llm42__copy16(base + shape::QUERIES_AT + query / 64 * (64 * DP * 2) +
                              llm42__key_place<DP, 64>(query % 64, piece),
                          from, there);
        }
        llm42__copy_arrive(base + shape::QUERIES_FULL_AT);
    }
    // Copies all keys and values of a task: those of earlier passes before the wait for the kernel ahead, the queries
    // behind it. It waits before the ring is full, because teams empty no slot until they have queries.
    LLM42__DEVICE void run() {
        const int count = 2 * own.steps();
        bool waited = false;
        pages = meta.pages + (size_t)own.task.seq * meta.header->page_stride;
        look_up(0, page);
        for (int c = 0; c < count; c++) {
            const uint32_t slot = (copies + c) % shape::SLOTS;
            if (c % 2 == 0 && c) page[0] = next_page[0], page[1] = next_page[1];
            if (!waited && (c + 1 == shape::SLOTS || c + 1 == count || first(c / 2) + 32 > own.task.old)) {
                llm42__wait_for_previous(), waited = true;
                if (llm42__queries<DP>::SHARED) load_queries();
            }
            llm42__mbarrier_wait(base + shape::EMPTY_AT + 8 * slot, ((copies + c) / shape::SLOTS & 1) ^ 1);
            load(c % 2 ? a.v : a.k, base + shape::RING_AT + slot * shape::SLOT, c / 2);
            llm42__copy_arrive(base + shape::FULL_AT + 8 * slot);
            if (c % 2 == 0) look_up(c / 2 + 1, next_page);
        }
        copies += count;
    }
};

// What a team has: the sums of its 64 queries, sixteen for each warp.
template <int DP, int TEAMS> struct llm42__prefill_team {
    using shape = llm42__prefill_shape<DP, TEAMS>;
    const llm42__attention &a;
    uint32_t base, copies = 0;    // copies: of earlier tasks
    float4 *merged;               // [DP / 8][128 threads]: sums of the units before
    int team_query, first_query;  // the first one of the team, and of the warp
    llm42__queries<DP> q;
    llm42__prefill_turn own = {};
    int low[2], high[2], all_low, all_high;  // positions that a lane's rows g and g + 8 see; that all of the warp's see
    llm42__unit_sums unit, ended;            // ended: the unit before, until it is merged
    bool begins;                             // the step whose weights were computed last is the first one of a unit
    bool fresh;                              // the step whose values are added next is the first one of a unit
    int units;                               // that have been merged
    float merged_base[2], merged_total[2], score[16][4], out[DP / 8][4], keep[2];
    uint32_t weight[8][4];

    LLM42__DEVICE uint32_t wait_full(int c) const {
        const uint32_t at = copies + (uint32_t)c, slot = at % shape::SLOTS;
        llm42__mbarrier_wait(base + shape::FULL_AT + 8 * slot, at / shape::SLOTS & 1);
        if (llm42__queries<DP>::SHARED) llm42__fence_async();
        return base + shape::RING_AT + slot * shape::SLOT;
    }
    LLM42__DEVICE void release(int c) const {
        if (!llm42__queries<DP>::SHARED) __syncwarp();  // all lanes have read it
        if (threadIdx.x % 32 == 0)
            llm42__mbarrier_arrive(base + shape::EMPTY_AT + 8 * ((copies + (uint32_t)c) % shape::SLOTS));
    }
    // Finds the positions that the warp's queries see.
    LLM42__DEVICE void look() {
        const int queries = own.task.rows * a.group, position = own.task.end - own.task.rows;  // of the first row
        auto lowest = [&](int highest) { return a.window ? LLM42__MAX(0, highest - a.window + 1) : 0; };
        all_low = 0, all_high = -1;
        LLM42__UNROLLED(int r = 0; r < 2; r++) {
            const int i = first_query + threadIdx.x % 32 / 4 + r * 8;
            high[r] = i < queries ? position + llm42__row_of_query(a, i) : -1;
            low[r] = lowest(high[r]);
        }
        if (first_query < queries) {
            all_low = lowest(position + llm42__row_of_query(a, LLM42__MIN(queries - 1, first_query + 15)));
            all_high = position + llm42__row_of_query(a, first_query);
        }
    }
    // Turns the scores of a step into weights. keep: the factor for the sums so far.
    LLM42__DEVICE void softmax(int step) {
        const int t0 = own.task.first + step * LLM42__STEP_KEYS;
        begins = t0 % LLM42__UNIT_KEYS == 0;
        if (begins) ended = unit, unit.begin();
        if (t0 < all_low || t0 + LLM42__STEP_KEYS - 1 > all_high)
            LLM42__UNROLLED(int i = 0; i < 64; i++) {
                const int t = t0 + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
                if (t < low[i % 4 / 2] || t > high[i % 4 / 2]) score[i / 4][i % 4] = -INFINITY;
            }
        LLM42__UNROLLED(int r = 0; r < 2; r++) {
            float top[4], strip[4][2] = {};  // four tops, because one would be a long chain
            LLM42__UNROLLED(int n = 0; n < 16; n++) {
                const float larger = fmaxf(score[n][2 * r], score[n][2 * r + 1]);
                top[n % 4] = n < 4 ? larger : fmaxf(top[n % 4], larger);
            }
            top[0] = fmaxf(fmaxf(top[0], top[1]), fmaxf(top[2], top[3]));
            top[0] = fmaxf(top[0], __shfl_xor_sync(0xffffffffu, top[0], 1));
            top[0] = fmaxf(top[0], __shfl_xor_sync(0xffffffffu, top[0], 2));
            keep[r] = llm42__grow(unit.base[r], top[0] * a.scale);
            const float from = llm42__from_base(unit.base[r]);
            LLM42__UNROLLED(int i = 0; i < 32; i++) {
                float &one = score[i / 2][2 * r + i % 2];
                strip[i / 8][i % 2] += one = llm42__power(fmaf(one, a.scale, -from));
            }
            LLM42__UNROLLED(int i = 0; i < 2; i++)
                unit.total[r][i] = fmaf(unit.total[r][i], keep[r],
                                        (strip[0][i] + strip[1][i]) + (strip[2][i] + strip[3][i]));
        }
    }
    // Packs weights as the tensor cores take them: weight[kk] is of the sixteen keys from 16 kk on.
    LLM42__DEVICE void pack() {
        LLM42__UNROLLED(int i = 0; i < 32; i++)
            weight[i / 4][i % 4] = llm42__pack(score[i / 2][i % 2 * 2], score[i / 2][i % 2 * 2 + 1]);
    }
    LLM42__DEVICE void merge(const llm42__unit_sums &of) {
        float take[2];
        LLM42__UNROLLED(int r = 0; r < 2; r++) {
            float total = of.total[r][0] + of.total[r][1];
            total += __shfl_xor_sync(0xffffffffu, total, 1);
            total += __shfl_xor_sync(0xffffffffu, total, 2);
            if (!units) {
                merged_base[r] = of.base[r], merged_total[r] = total;
                continue;
            }
            llm42__merge_factors(merged_base[r], of.base[r], keep[r], take[r]);
            merged_total[r] = fmaf(merged_total[r], keep[r], total * take[r]);
        }
        if (units++ == 0) return;
        LLM42__UNROLLED(int n = 0; n < DP / 8; n++) {
            const float4 m = merged[n * 128];
            LLM42__UNROLLED(int i = 0; i < 4; i++)
                out[n][i] = fmaf(((const float *)&m)[i], keep[i / 2], out[n][i] * take[i / 2]);
        }
    }
    // Makes the sums ready for the values of the step whose weights have been computed.
    LLM42__DEVICE void prepare_sums() {
        fresh = begins;
        if (begins) {
            merge(ended);
            LLM42__UNROLLED(int n = 0; n < DP / 8; n++) merged[n * 128] = llm42__four(out[n]);
        } else if (!__all_sync(0xffffffffu, keep[0] == 1.0f && keep[1] == 1.0f)) {  // times one changes nothing
            LLM42__UNROLLED(int i = 0; i < DP / 2; i++) out[i / 4][i % 4] *= keep[i % 4 / 2];
        }
    }
    LLM42__DEVICE void release_queries(int step) const {  // the scores of the last step are their last use
        if (llm42__queries<DP>::SHARED && step + 1 == own.steps() && threadIdx.x % 32 == 0)
            llm42__mbarrier_arrive(base + shape::QUERIES_EMPTY_AT);
    }
    // Sums all steps of a task. While the tensor cores compute the scores of a step, the sums are made ready for the
    // values of the step before. While the tensor cores multiply these values, scores become weights.
    LLM42__DEVICE void sum_task(int steps) {
        look();
        units = 0, unit.begin();
        if (llm42__queries<DP>::SHARED) llm42__mbarrier_wait(base + shape::QUERIES_FULL_AT, (own.turn & 1) ^ 1);
        else q.load_own(a, own.task, own.kv_head, first_query + threadIdx.x % 32 / 4);
        llm42__score_step<DP>(score, q, wait_full(0));
        llm42__await<DP, 0>(score);
        release(0), release_queries(0);
        softmax(0);
        begins = false, fresh = true;
        pack();
        for (int step = 1; step < steps; step++) {
            enum { AHEAD = DP <= 128 };  // registers have room for scores beside weights
            if (AHEAD) llm42__score_step<DP>(score, q, wait_full(2 * step));
            if (step > 1) prepare_sums();
            llm42__add_values_step<DP>(out, weight, wait_full(2 * step - 1), fresh);
            if (!AHEAD) {
                llm42__await<DP, 0>(out);
                llm42__score_step<DP>(score, q, wait_full(2 * step));
            }
            llm42__await<DP, AHEAD>(score);
            release(2 * step), release_queries(step);
            softmax(step);
            llm42__await<DP, 0>(out);
            release(2 * step - 1);
            pack();
        }
        if (steps > 1) prepare_sums();
        llm42__add_values_step<DP>(out, weight, wait_full(2 * steps - 1), fresh);
        llm42__await<DP, 0>(out);
        release(2 * steps - 1);
        merge(unit);
        write();
    }
    LLM42__DEVICE void run() {
        const int steps = own.steps();
        if (team_query < own.task.rows * a.group) {
            sum_task(steps);
        } else {  // the task has no queries for this team
            for (int c = 0; c < 2 * steps; c++) wait_full(c), __syncwarp(), release(c);
            release_queries(steps - 1);
        }
        copies += 2 * (uint32_t)steps;
    }
    LLM42__DEVICE void write() const {
        const int lane = threadIdx.x % 32;
        LLM42__UNROLLED(int r = 0; r < 2; r++) {
            const int i = first_query + lane / 4 + r * 8, row = llm42__row_of_query(a, i),
                      columns = row < own.task.rows ? a.head_dim : 0;
            const float inverse = __fdiv_rn(1.0f, merged_total[r]);
            llm42__bf16 *to = a.out + (size_t)(own.task.row + row) * a.stride +
                              (size_t)(own.kv_head * a.group + i - row * a.group) * a.head_dim + lane % 4 * 2;
            LLM42__UNROLLED(int n = 0; n < DP / 8; n++)
                if (n * 8 + lane % 4 * 2 < columns)  // d is even
                    *(__nv_bfloat162 *)(to + n * 8) = __floats2bfloat162_rn(out[n][2 * r] * inverse,
                                                                            out[n][2 * r + 1] * inverse);
        }
    }
};

// Attention of consecutive rows (prompts, windows). Shapes: q [R, H, DP], cache [slots, K, DP] -> out [R, stride].
// Work: a task has up to 64 x TEAMS queries: rows x query heads of one kv head. A block takes pairs of a task and a kv
// head, one after the other. Its first four warps copy keys and values into a ring that all teams read, and go ahead to
// the next pair. Each team of four warps sums 64 queries. Order: the one order.
//
//   copy     | k0 | v0 | k1 | v1 | k2 | v2 | ...
//   team     | q k0 | weights | q k1   | weights    | q k2   | weights    | ...
//                             |        | weights v0 |        | weights v1 |      by the tensor cores meanwhile
//
// Barriers: a slot of the ring is full when all copies of the four warps have arrived, and empty when all warps of the
// teams have read it. The queries have two such barriers.
template <int DP, int TEAMS>
__global__ void __launch_bounds__(TEAMS * 128 + 128, 1) llm42__k_attend_prefill(llm42__attention a, llm42__meta meta) {
    extern __shared__ __align__(1024) unsigned char shared[];
    using shape = llm42__prefill_shape<DP, TEAMS>;
    const uint32_t base = llm42__shared_address(shared);
    llm42__launch_next();
    if (threadIdx.x == 0) {
        for (int s = 0; s < shape::SLOTS; s++) {
            llm42__mbarrier_open(base + shape::FULL_AT + 8 * s, 128);
            llm42__mbarrier_open(base + shape::EMPTY_AT + 8 * s, 4 * TEAMS);
        }
        llm42__mbarrier_open(base + shape::QUERIES_FULL_AT, 128);
        llm42__mbarrier_open(base + shape::QUERIES_EMPTY_AT, 4 * TEAMS);
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        if constexpr (LLM42__WARPGROUPS && TEAMS > 1) llm42__fewer_registers<56>();
        llm42__prefill_feeder<DP, TEAMS> feeder = {a, meta, base};
        while (feeder.own.next(a, meta)) feeder.run();
        llm42__wait_for_previous();  // a block without a task has not waited yet
    } else {
        if constexpr (LLM42__WARPGROUPS && TEAMS > 1) llm42__more_registers<224>();
        llm42__wait_for_previous();
        const int team = llm42__warp() / 4 - 1, thread = threadIdx.x % 128;
        llm42__prefill_team<DP, TEAMS> sums = {a, base};
        sums.merged = (float4 *)(shared + shape::MERGED_AT + team * 64 * DP * 4) + thread;
        sums.q.shared = base + shape::QUERIES_AT + (uint32_t)team * 64 * DP * 2;
        sums.team_query = team * 64, sums.first_query = team * 64 + thread / 32 * 16;
        while (sums.own.next(a, meta)) sums.run();
    }
}

// Teams of a block of llm42__k_attend_prefill: two where their sums fit into registers and shared memory.
static inline int llm42__prefill_teams(int dp, bool warpgroups) {
    return warpgroups && (dp == 64 || dp == 128) ? 2 : 1;
}

// Scores of a strip of keys with OCTETS x 8 queries: score[0] of its first sixteen keys, score[1] of the others.
template <int DP, int OCTETS>
LLM42__DEVICE void llm42__score_across(float (*score)[OCTETS][4], const uint32_t (&q)[OCTETS][DP / 16][2],
                                       uint32_t k_at) {
    const int lane = threadIdx.x % 32;
    LLM42__UNROLLED(int half = 0; half < 2; half++) {
        LLM42__UNROLLED(int i = 0; i < OCTETS * 4; i++) score[half][i / 4][i % 4] = 0.0f;
        LLM42__UNROLLED(int kk = 0; kk < DP / 16; kk++) {
            uint32_t k[4];
            llm42__load_matrices(k, k_at + llm42__key_place<DP, 32>(half * 16 + lane % 16, 2 * kk + lane / 16));
            LLM42__UNROLLED(int octet = 0; octet < OCTETS; octet++)
                llm42__mma(score[half][octet], k, q[octet][kk][0], q[octet][kk][1]);
        }
    }
}

// Loads a row's queries of one kv head, eight to an octet.
template <int DP, int OCTETS>
LLM42__DEVICE void llm42__load_across(uint32_t (&q)[OCTETS][DP / 16][2], const llm42__bf16 *from, int queries) {
    const int lane = threadIdx.x % 32;
    LLM42__UNROLLED(int i = 0; i < OCTETS * DP / 16; i++) {
        const int query = i / (DP / 16) * 8 + lane / 4;
        const llm42__bf16 *at = from + (size_t)query * DP + i % (DP / 16) * 16 + lane % 4 * 2;
        q[i / (DP / 16)][i % (DP / 16)][0] = query < queries ? *(const uint32_t *)at : 0;
        q[i / (DP / 16)][i % (DP / 16)][1] = query < queries ? *(const uint32_t *)(at + 8) : 0;
    }
}

// Bytes of shared memory of llm42__k_attend_decode: for each strip of the rings, and for each query (see below).
__host__ __device__ constexpr int llm42__decode_bytes(int dp, int octets, int warps, int ring) {
    return warps * ring * (LLM42__STRIP_KEYS * dp * 2 + 16) + octets * 8 * (LLM42__UNIT_KEYS * 2 + 16 * 36 + 20) + 8;
}

// Shared memory of llm42__k_attend_decode. Each warp has a ring of RING strips. Behind the rings warps share a unit's
// weights as the tensor cores take them [STRIPS][2][OCTETS][32 lanes], sums of weights [STRIPS][QUERIES][8], tops
// (largest scores) [STRIPS][QUERIES], the factor for sums before a step [STEPS][QUERIES], and 1 / total [QUERIES].
template <int DP, int OCTETS, int WARPS, int RING> struct llm42__decode_memory {
    enum { STEPS = LLM42__UNIT_KEYS / LLM42__STEP_KEYS, STRIPS = LLM42__UNIT_KEYS / LLM42__STRIP_KEYS };
    enum { OWN = STRIPS / WARPS, TILES = DP / 16 <= WARPS ? 1 : DP / 16 / WARPS };  // of a warp: strips, 16s of columns
    enum { QUERIES = OCTETS * 8, STRIP = LLM42__STRIP_KEYS * DP * 2, RINGS = WARPS * RING * STRIP };  // bytes
    enum { SUMS_AT = RINGS + LLM42__UNIT_KEYS * QUERIES * 2, TOPS_AT = SUMS_AT + STRIPS * QUERIES * 8 * 4 };
    enum { KEEP_AT = TOPS_AT + STRIPS * QUERIES * 4, INVERSE_AT = KEEP_AT + STEPS * QUERIES * 4 };
    enum { FULL_AT = INVERSE_AT + QUERIES * 4, EMPTY_AT = FULL_AT + 8 * RING * WARPS };
    enum { LAST_AT = EMPTY_AT + 8 * RING * WARPS, BYTES = LAST_AT + 8 };
    enum { OUT_AT = RINGS };  // a row's result that is to be quantised lies where the weights were
    static_assert(BYTES == llm42__decode_bytes(DP, OCTETS, WARPS, RING), "the host asks for as much");
};

// A unit that a block sums: its task, its number among the task's units, its first key, and what positions a row sees.
// Tasks are sorted, long ones first, and every other round of them goes backward through the blocks.
struct llm42__decode_unit {
    llm42__decode_task task;
    int round, unit, units, key, low, high;
    LLM42__DEVICE bool there() const { return units > 0; }
    LLM42__DEVICE bool last() const { return unit + 1 == units; }
    LLM42__DEVICE void next_task(const llm42__meta &meta, int tasks, int window) {
        const int block = round % 2 ? gridDim.y - 1 - blockIdx.y : blockIdx.y, at = round * gridDim.y + block;
        round++, unit = units = 0, low = 0, high = -1;
        if (at >= tasks) return;
        task = meta.decode[at];
        units = LLM42__MIN(task.row_units - task.first_unit, task.units);
        key = task.begin, high = task.position, low = window ? LLM42__MAX(0, high - window + 1) : 0;
    }
    LLM42__DEVICE void advance(const llm42__meta &meta, int tasks, int window) {
        if (last()) next_task(meta, tasks, window);
        else unit++, key += LLM42__UNIT_KEYS;
    }
};

// What a lane has of its block's work. Strip s of a unit belongs to warp s % WARPS, which copies its keys and then its
// values, and alone computes its scores. All warps multiply all values, each for its columns. A lane (g = lane / 4, t =
// lane % 4) has keys, or columns, g and g + 8 of each sixteen, and queries 2t, 2t + 1 of each octet.
template <int DP, int OCTETS, int WARPS, int RING> struct llm42__decode_block {
    using memory = llm42__decode_memory<DP, OCTETS, WARPS, RING>;
    enum { OWN = memory::OWN, STEPS = memory::STEPS, QUERIES = memory::QUERIES, TILES = memory::TILES };
    const llm42__attention &a;
    const llm42__meta &meta;
    unsigned char *shared;
    const int page_stride, old, tasks;  // see llm42__header
    llm42__decode_unit now = {}, next = {};
    uint32_t strips = 0;                   // copies of each warp before this unit, over all tasks
    uint32_t place[OWN], next_place[OWN];  // of a lane's key in each strip of `now`, of `next` (llm42__copy_keys)
    uint32_t q[OCTETS][DP / 16][2];
    float score[OWN][2][OCTETS][4], keep[STEPS][OCTETS][2], base[OCTETS][2], out[TILES][OCTETS][4];
    float merged[TILES][OCTETS][4], merged_base[OCTETS][2];
    // Of the query threadIdx.x / 8: its base and its total in this unit, and in all that have been merged.
    float unit_base, unit_total, query_base, total;

    static LLM42__DEVICE int warp() { return threadIdx.x / 32; }
    static LLM42__DEVICE int lane() { return threadIdx.x % 32; }
    static LLM42__DEVICE int query(int octet, int r) { return octet * 8 + threadIdx.x % 4 * 2 + r; }
    LLM42__DEVICE float *floats(int at) const { return (float *)(shared + at); }
    LLM42__DEVICE uint2 *weights() const { return (uint2 *)(shared + memory::RINGS); }
    LLM42__DEVICE int key_of(int own) const { return (warp() + own * WARPS) * LLM42__STRIP_KEYS; }
    static LLM42__DEVICE bool seen(const llm42__decode_unit &of, int strip_key) {  // by the row, at least in part
        return strip_key <= of.high && strip_key + LLM42__STRIP_KEYS > of.low;
    }
    LLM42__DEVICE void look_up(uint32_t (&to)[OWN], const llm42__decode_unit &of) const {
        const int32_t *pages = meta.pages + (size_t)of.task.seq * page_stride;
        LLM42__UNROLLED(int i = 0; i < OWN; i++) {
            const int strip = of.key + key_of(i), t = strip + lane(), shift = meta.page_shift;
            to[i] = LLM42__NOWHERE;
            if (t <= of.high && seen(of, strip))
                to[i] = (uint32_t)((pages[t >> shift] << shift) + (t & (1 << shift) - 1)) *
                        (uint32_t)(a.kv_heads * (DP / 8));
        }
    }
    LLM42__DEVICE uint32_t barrier(int at, int owner, uint32_t strip) const {
        return llm42__shared_address(shared) + (uint32_t)(at + 8 * (owner * RING)) + 8 * (strip % RING);
    }
    LLM42__DEVICE uint32_t strip_at(int owner, uint32_t strip) const {
        return llm42__shared_address(shared) + ((uint32_t)(owner * RING) + strip % RING) * memory::STRIP;
    }
    // Starts copy r of this warp in a unit: the first OWN are of its strips' keys, and the others of their values.
    // from: a lane's place. strip: the number of the copy over all tasks.
    LLM42__DEVICE void load(int r, const llm42__decode_unit &of, uint32_t from, uint32_t strip) const {
        llm42__mbarrier_wait(barrier(memory::EMPTY_AT, warp(), strip), (strip / RING & 1) ^ 1);
        if (seen(of, of.key + key_of(r % OWN)))
            llm42__copy_keys<DP, LLM42__STRIP_KEYS>(strip_at(warp(), strip), 0, (r < OWN ? a.k : a.v) + blockIdx.x * DP,
                                                    from);
        llm42__copy_arrive(barrier(memory::FULL_AT, warp(), strip));
    }
    // Starts the copy that takes the place of the warp's copy r: copy r + RING, which may be of the next unit.
    LLM42__DEVICE void load_behind(int r) const {
        const int behind = r + RING;
        if (behind < 2 * OWN) load(behind, now, place[behind % OWN], strips + behind);
        else if (next.there()) load(behind - 2 * OWN, next, next_place[behind % OWN], strips + behind);
    }
    LLM42__DEVICE uint32_t wait_full(int owner, uint32_t strip) const {
        llm42__mbarrier_wait(barrier(memory::FULL_AT, owner, strip), strip / RING & 1);
        return strip_at(owner, strip);
    }
    LLM42__DEVICE void begin_task() {
        query_base = -INFINITY, total = 0;
        LLM42__UNROLLED(int j = 0; j < OCTETS * 2; j++) merged_base[j / 2][j % 2] = -INFINITY;
        LLM42__UNROLLED(int j = 0; j < TILES * OCTETS * 4; j++) merged[j / (OCTETS * 4)][j / 4 % OCTETS][j % 4] = 0.0f;
    }
    LLM42__DEVICE void load_queries(const llm42__decode_task &of) {
        llm42__load_across<DP, OCTETS>(q, a.q + ((size_t)of.row * a.heads + blockIdx.x * a.group) * DP, a.group);
    }
    // Begins with the first units. Before the wait only what earlier passes have certainly written is copied.
    LLM42__DEVICE void begin() {
        now.next_task(meta, tasks, a.window);
        if (!now.there()) return llm42__wait_for_previous();
        look_up(place, now);
        LLM42__UNROLLED(int r = 0; r < RING; r++) {
            if (!old || now.key + key_of(r % OWN) + LLM42__STRIP_KEYS > now.high) llm42__wait_for_previous();
            load(r, now, place[r % OWN], strips + r);
        }
        next = now, look_ahead();
        llm42__wait_for_previous();
        load_queries(now.task), begin_task();
    }
    LLM42__DEVICE void look_ahead() {
        next.advance(meta, tasks, a.window);
        if (next.there()) look_up(next_place, next);
    }
    // Scores of the warp's strips, and their tops.
    LLM42__DEVICE void score_strips() {
        LLM42__UNROLLED(int i = 0; i < OWN; i++) {
            const uint32_t strip = strips + i, k_at = wait_full(warp(), strip);
            const int t0 = now.key + key_of(i);
            if (seen(now, t0)) llm42__score_across<DP, OCTETS>(score[i], q, k_at);
            __syncwarp();  // all lanes have read the keys; no other warp does, so this one arrives for all
            if (lane() < WARPS) llm42__mbarrier_arrive(barrier(memory::EMPTY_AT, warp(), strip));
            load_behind(i);
            if (t0 < now.low || t0 + LLM42__STRIP_KEYS - 1 > now.high)
                LLM42__UNROLLED(int j = 0; j < 2 * OCTETS * 4; j++) {
                    const int t = t0 + j / (OCTETS * 4) * 16 + lane() / 4 + j % 4 / 2 * 8;
                    if (t < now.low || t > now.high) score[i][j / (OCTETS * 4)][j / 4 % OCTETS][j % 4] = -INFINITY;
                }
            LLM42__UNROLLED(int j = 0; j < OCTETS * 2; j++) {
                const int octet = j / 2, r = j % 2;
                float top = fmaxf(fmaxf(score[i][0][octet][r], score[i][0][octet][2 + r]),
                                  fmaxf(score[i][1][octet][r], score[i][1][octet][2 + r]));
                LLM42__UNROLLED(int x = 4; x < 32; x <<= 1) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, x));
                if (lane() < 4)
                    floats(memory::TOPS_AT)[(warp() + i * WARPS) * QUERIES + query(octet, r)] = top * a.scale;
            }
        }
    }
    // The unit's base grows from step to step. Scores become weights, with the base of their step.
    LLM42__DEVICE void weigh() {
        float from[OWN];
        LLM42__UNROLLED(int j = 0; j < OCTETS * 2; j++) {
            const int octet = j / 2, r = j % 2;
            float sum[OWN] = {};
            base[octet][r] = -INFINITY;
            LLM42__UNROLLED(int step = 0; step < STEPS; step++) {
                float top = -INFINITY;
                LLM42__UNROLLED(int s = 4 * step; s < 4 * step + 4; s++)
                    top = fmaxf(top, floats(memory::TOPS_AT)[s * QUERIES + query(octet, r)]);
                keep[step][octet][r] = llm42__grow(base[octet][r], top);
                LLM42__UNROLLED(int i = 0; i < OWN; i++)
                    if ((warp() + i * WARPS) / 4 == step) from[i] = llm42__from_base(base[octet][r]);
                if (threadIdx.x < 4) floats(memory::KEEP_AT)[step * QUERIES + query(octet, r)] = keep[step][octet][r];
            }
            LLM42__UNROLLED(int i = 0; i < OWN; i++) {
                LLM42__UNROLLED(int n = 0; n < 4; n++) {
                    float &weight = score[i][n / 2][octet][n % 2 * 2 + r];
                    sum[i] += weight = llm42__power(fmaf(weight, a.scale, -from[i]));
                }
                floats(memory::SUMS_AT)[((warp() + i * WARPS) * QUERIES + query(octet, r)) * 8 + lane() / 4] = sum[i];
            }
        }
        LLM42__UNROLLED(int n = 0; n < OWN * 2 * OCTETS; n++) {
            const int i = n / (2 * OCTETS), half = n / OCTETS % 2, octet = n % OCTETS;
            const float(&w)[4] = score[i][half][octet];
            weights()[(((warp() + i * WARPS) * 2 + half) * OCTETS + octet) * 32 + lane()] = make_uint2(
                llm42__transposed(llm42__pack(w[0], w[1])), llm42__transposed(llm42__pack(w[2], w[3])));
        }
    }
    // The unit's total and base of query threadIdx.x / 8. Its eight sums are added by eight threads.
    LLM42__DEVICE void total_unit() {
        const int of = threadIdx.x / 8;
        if (of >= QUERIES) return;
        float sum = 0, top = -INFINITY;
        LLM42__UNROLLED(int step = 0; step < STEPS; step++) {
            float strip[4];
            LLM42__UNROLLED(int i = 0; i < 4; i++) {
                strip[i] = floats(memory::SUMS_AT)[((4 * step + i) * QUERIES + of) * 8 + threadIdx.x % 8];
                top = fmaxf(top, floats(memory::TOPS_AT)[(4 * step + i) * QUERIES + of]);
            }
            sum = fmaf(sum, floats(memory::KEEP_AT)[step * QUERIES + of],
                       (strip[0] + strip[1]) + (strip[2] + strip[3]));
        }
        LLM42__UNROLLED(int x = 1; x < 8; x <<= 1) sum += __shfl_xor_sync(0xffffffffu, sum, x);
        unit_base = top, unit_total = sum;
    }
    // Adds weights x values of a step to the sums of the warp's columns.
    LLM42__DEVICE void add_step(int step) {
        bool same = true;
        uint32_t v_at[4];
        LLM42__UNROLLED(int j = 0; j < OCTETS * 2; j++) same &= keep[step][j / 2][j % 2] == 1.0f;
        if (step && !__all_sync(0xffffffffu, same))
            LLM42__UNROLLED(int j = 0; j < TILES * OCTETS * 4; j++)
                out[j / (OCTETS * 4)][j / 4 % OCTETS][j % 4] *= keep[step][j / 4 % OCTETS][j % 2];
        LLM42__UNROLLED(int i = 0; i < 4; i++)
            v_at[i] = wait_full((4 * step + i) % WARPS, strips + OWN + (4 * step + i) / WARPS);
        // Loads of several strips' halves run side by side. What they bring of a strip that nobody sees is not used.
        enum { TOGETHER = TILES == 1 ? 8 : 4 };
        LLM42__UNROLLED(int first = 0; first < 8; first += TOGETHER) {
            if (warp() >= DP / 16) break;
            uint2 w[TOGETHER][OCTETS];
            LLM42__UNROLLED(int i = 0; i < TOGETHER * OCTETS; i++)
                w[i / OCTETS][i % OCTETS] =
                    weights()[((8 * step + first + i / OCTETS) * OCTETS + i % OCTETS) * 32 + lane()];
            LLM42__UNROLLED(int m = 0; m < TILES; m++) {
                uint32_t v[TOGETHER][4];
                LLM42__UNROLLED(int i = 0; i < TOGETHER; i++)
                    llm42__load_matrices_transposed(v[i], v_at[(first + i) / 2] +
                                                              llm42__key_place<DP, LLM42__STRIP_KEYS>(
                                                                  (first + i) % 2 * 16 + lane() / 16 * 8 + lane() % 8,
                                                                  2 * (warp() + m * WARPS) + lane() / 8 % 2));
                LLM42__UNROLLED(int i = 0; i < TOGETHER; i++)
                    if (seen(now, now.key + (4 * step + (first + i) / 2) * LLM42__STRIP_KEYS))
                        LLM42__UNROLLED(int octet = 0; octet < OCTETS; octet++)
                            llm42__mma(out[m][octet], v[i], w[i][octet].x, w[i][octet].y);
            }
        }
        __syncwarp();  // all lanes have read the values
        if (lane() < 4) {
            const int s = 4 * step + lane();
            llm42__mbarrier_arrive(barrier(memory::EMPTY_AT, s % WARPS, strips + OWN + s / WARPS));
        }
    }
    LLM42__DEVICE void add_values() {
        LLM42__UNROLLED(int j = 0; j < TILES * OCTETS * 4; j++) out[j / (OCTETS * 4)][j / 4 % OCTETS][j % 4] = 0.0f;
        LLM42__UNROLLED(int step = 0; step < STEPS; step++) {
            add_step(step);
            // A strip is replaced a step later, or at the unit's end: by then most warps have read it, and few wait.
            LLM42__UNROLLED(int i = 0; i < OWN; i++) {
                const int of = (warp() + i * WARPS) / 4;
                if (of == step - 1 || (step + 1 == STEPS && of == step)) load_behind(OWN + i);
            }
        }
    }
    LLM42__DEVICE void sum_unit() {
        score_strips();
        if (now.last() && next.there()) load_queries(next.task);
        __syncthreads();  // the tops of all strips are there
        weigh();
        __syncthreads();  // and their weights
        total_unit();
        add_values();
        strips += 2 * OWN;
    }
    LLM42__DEVICE void advance() {
        now = next;
        LLM42__UNROLLED(int i = 0; i < OWN; i++) place[i] = next_place[i];
        if (now.there()) look_ahead();
    }
    // Merges the unit with those before it. For the block that has the row's first units.
    LLM42__DEVICE void merge() {
        float kept, take;
        LLM42__UNROLLED(int j = 0; j < OCTETS * 2; j++) {
            const int octet = j / 2, r = j % 2;
            llm42__merge_factors(merged_base[octet][r], base[octet][r], kept, take);
            LLM42__UNROLLED(int n = r; n < TILES * 4; n += 2)
                merged[n / 4][octet][n % 4] = fmaf(merged[n / 4][octet][n % 4], kept, out[n / 4][octet][n % 4] * take);
        }
        llm42__merge_factors(query_base, unit_base, kept, take);
        total = fmaf(total, kept, unit_total * take);
    }
    // Writes sums as records, one for each query, if several blocks share the row. to: the first one.
    LLM42__DEVICE void write_records(float *to, const float (&sums)[TILES][OCTETS][4], float its_base,
                                     float its_total) const {
        enum { RECORD = llm42__record(DP) };
        if (warp() < DP / 16)
            LLM42__UNROLLED(int n = 0; n < TILES * OCTETS * 4; n++) {
                const int m = n / (OCTETS * 4), octet = n / 4 % OCTETS, j = n % 4;
                if (query(octet, j % 2) < a.group)
                    to[query(octet, j % 2) * RECORD + (warp() + m * WARPS) * 16 + lane() / 4 + j / 2 * 8] =
                        sums[m][octet][j];
            }
        const int of = threadIdx.x / 8;
        if (of < a.group && threadIdx.x % 8 == 0) to[of * RECORD + DP] = its_base, to[of * RECORD + DP + 1] = its_total;
    }
    LLM42__DEVICE void write(llm42__bf16 *to) const {  // [queries, d]
        const int of = threadIdx.x / 8;
        if (of < QUERIES && threadIdx.x % 8 == 0) floats(memory::INVERSE_AT)[of] = __fdiv_rn(1.0f, total);
        __syncthreads();
        if (warp() >= DP / 16) return;
        LLM42__UNROLLED(int n = 0; n < TILES * OCTETS * 2; n++) {
            const int m = n / (OCTETS * 2), octet = n / 2 % OCTETS, half = n % 2, row = octet * 8 + lane() / 4,
                      column = (warp() + m * WARPS) * 16 + half * 8 + lane() % 4 * 2;
            const float *inverse = floats(memory::INVERSE_AT) + query(octet, 0), *sum = &merged[m][octet][2 * half];
            const uint32_t two = llm42__transposed(llm42__pack(sum[0] * inverse[0], sum[1] * inverse[1]));
            if (row < a.group && column < a.head_dim) *(uint32_t *)(to + (size_t)row * a.head_dim + column) = two;
        }
    }
};

// Merges the records of a row [units, K, queries, record] and writes its result [queries, d]. The row's first task has
// one record for all of its units. A thread has two columns of a query at a time, and reads many records at once.
template <int DP, int WARPS>
LLM42__DEVICE void llm42__merge_row(const llm42__attention &a, const llm42__decode_task &task, llm42__bf16 *out) {
    enum { RECORD = llm42__record(DP), AT_ONCE = 16 };
    const size_t stride = (size_t)a.kv_heads * a.group * RECORD;  // from a unit's record to the next
    const float *records = a.partial + (size_t)(task.record - task.first_unit) * stride + blockIdx.x * a.group * RECORD;
    const int count = 1 + task.row_units - task.units;
    for (int i = threadIdx.x; i < a.group * DP / 2; i += WARPS * 32) {
        const int query = i / (DP / 2), column = i % (DP / 2) * 2;
        float base = -INFINITY, total = 0, keep, take;
        float2 sum = {0, 0}, unit[AT_ONCE], own[AT_ONCE];
        for (int first = 0; first < count; first += AT_ONCE) {
            LLM42__UNROLLED(int n = 0; n < AT_ONCE; n++) {
                if (first + n >= count) break;
                const size_t at = query * RECORD + (size_t)(first + n ? task.units + first + n - 1 : 0) * stride;
                // From the cache that all multiprocessors share: other blocks have written them.
                unit[n] = __ldcg((const float2 *)(records + at + column));
                own[n] = __ldcg((const float2 *)(records + at + DP));
            }
            LLM42__UNROLLED(int n = 0; n < AT_ONCE; n++) {
                if (first + n >= count) break;
                llm42__merge_factors(base, own[n].x, keep, take);
                total = fmaf(total, keep, own[n].y * take);
                sum = {fmaf(sum.x, keep, unit[n].x * take), fmaf(sum.y, keep, unit[n].y * take)};
            }
        }
        const float inverse = __fdiv_rn(1.0f, total);
        if (column < a.head_dim)  // d is even
            *(__nv_bfloat162 *)(out + (size_t)query * a.head_dim + column) = __floats2bfloat162_rn(sum.x * inverse,
                                                                                                   sum.y * inverse);
    }
}

// True in the last block of those that share a row and kv head, when all records are there. is_last: in shared memory.
LLM42__DEVICE bool llm42__arrives_last(unsigned *arrived, unsigned blocks, unsigned *is_last) {
    __threadfence();  // records must be visible before the arrival
    __syncthreads();
    if (threadIdx.x == 0) {
        *is_last = atomicAdd(arrived, 1u) == blocks - 1;
        if (*is_last) *arrived = 0;
        __threadfence();
    }
    __syncthreads();
    return *is_last;
}

// Attention of single rows (decode). Shapes: q [R, H, DP], cache [slots, K, DP] -> out [R, stride]. Work: as many
// blocks as run at once share the tasks. A task is units of one row, with all query heads of kv head blockIdx.x, in
// octets. The whole block sums a unit (see llm42__decode_block). Meanwhile the next unit is copied. Order: the one
// order. The block of a row's first task merges its units as they come. If several tasks share a row, it writes them as
// one record, the others one for each unit, and the last block to finish merges the records.
template <int DP, int OCTETS, int WARPS, int RING>
__global__ void __launch_bounds__(WARPS * 32, 8 / WARPS) llm42__k_attend_decode(llm42__attention a, llm42__meta meta) {
    extern __shared__ __align__(1024) unsigned char shared[];
    using memory = llm42__decode_memory<DP, OCTETS, WARPS, RING>;
    const uint32_t base = llm42__shared_address(shared);
    llm42__launch_next();
    llm42__decode_block<DP, OCTETS, WARPS, RING> own = {
        a, meta, shared, meta.header->page_stride, meta.header->old, meta.header->decode_tasks};
    if (threadIdx.x < RING * WARPS) {
        llm42__mbarrier_open(base + memory::FULL_AT + 8 * threadIdx.x, 32);
        llm42__mbarrier_open(base + memory::EMPTY_AT + 8 * threadIdx.x, WARPS);
    }
    __syncthreads();
    for (own.begin(); own.now.there(); own.advance()) {
        const llm42__decode_task &task = own.now.task;
        const bool alone = task.record < 0, merges = !task.first_unit, last = own.now.last();
        llm42__bf16 *out = a.eight.values
                               ? (llm42__bf16 *)(shared + memory::OUT_AT)
                               : a.out + (size_t)task.row * a.stride + (size_t)blockIdx.x * a.group * a.head_dim;
        const int record = alone ? 0 : task.record + (merges ? 0 : own.now.unit);
        float *to = a.partial + ((size_t)record * a.kv_heads + blockIdx.x) * a.group * llm42__record(DP);
        own.sum_unit();
        if (merges) own.merge();
        else own.write_records(to, own.out, own.unit_base, own.unit_total);
        if (!last) continue;
        if (alone) own.write(out);
        else if (merges) own.write_records(to, own.merged, own.query_base, own.total);
        own.begin_task();
        const unsigned blocks = (unsigned)((task.row_units + task.units - 1) / task.units);  // of the row
        if (!alone) {
            if (!llm42__arrives_last(a.arrived + (size_t)task.row * a.kv_heads + blockIdx.x, blocks,
                                     (unsigned *)(shared + memory::LAST_AT)))
                continue;
            llm42__merge_row<DP, WARPS>(a, task, out);
        }
        if (!a.eight.values) continue;
        const int count = a.group * 16;  // the block has written its heads to shared memory [queries, 128]
        __syncthreads();
        for (int i = threadIdx.x; i / 32 * 32 < count; i += blockDim.x)
            llm42__quantise(a.eight, task.row, blockIdx.x * count + i, a.heads * 16,
                            i < count ? ((const uint4 *)out)[i] : uint4{}, i < count);
    }
}

// The build of llm42__k_attend_decode that is used: eight warps if they fit and there are no more pairs of a row and a
// kv head than multiprocessors, else four, so that two blocks fit a multiprocessor. Then the longest ring that fits.
// ring: strips of each warp; bytes: of shared memory. `most`: what a block may have of it.
struct llm42__decode_shape {
    int warps, ring, bytes;
};
static inline llm42__decode_shape llm42__decode_shape_of(int dp, int group, int pairs, int processors, int most) {
    const bool few = pairs <= processors;
    llm42__decode_shape shape = {};
    for (auto &kind : {std::make_pair(8, 3), std::make_pair(4, 3), std::make_pair(4, 2)}) {
        if (kind.first == 8 ? !few : kind.second == 2 && dp < 128) continue;  // llm42__decode_build has no others
        shape = {kind.first, kind.second, llm42__decode_bytes(dp, group > 8 ? 2 : 1, kind.first, kind.second)};
        if (shape.bytes <= (few ? most : most / 2)) break;
    }
    // The last one may fit a multiprocessor only once. The caller launches two blocks for each all the same, half of
    // which wait for the others to end. Once it always fits: with heads of up to 128 it needs less than every device
    // has, and with wider ones an engine opens only where llm42__k_attend_prefill fits, which needs more.
    return shape;
}
template <int DP, int OCTETS> static inline auto llm42__decode_build(const llm42__decode_shape &shape) {
    if constexpr (DP <= 128)
        if (shape.warps == 8) return llm42__k_attend_decode<DP, OCTETS, 8, 3>;
    if constexpr (DP >= 128)
        if (shape.ring == 2) return llm42__k_attend_decode<DP, OCTETS, 4, 2>;
    return llm42__k_attend_decode<DP, OCTETS, 4, 3>;
}

// >>kernel-sample ------------------------------------------------------------------------------------------------
// Owns: drawing tokens from logits.

typedef struct llm42__best {
    float score;
    int id;
} llm42__best;  // the largest, the lowest id on a tie; id -1: none
LLM42__DEVICE llm42__best llm42__better(llm42__best a, llm42__best b) {
    return b.id >= 0 && (a.id < 0 || b.score > a.score || (b.score == a.score && b.id < a.id)) ? b : a;
}

// The 1,024 threads of a draw are those of a block or of a cluster of BLOCKS. Each block has this in its shared memory
// and reads that of the others. Warps are numbered through the cluster. All threads must call what meets.
template <int BLOCKS> struct llm42__drawers {
    enum { THREADS = 1024 / BLOCKS, WARPS = THREADS / 32 };
    llm42__best best[2][WARPS];
    float sum[WARPS];
    int ties[WARPS];
    unsigned long long mass[WARPS], bins[256], found[2];

    static constexpr bool CLUSTER = LLM42__WARPGROUPS && BLOCKS > 1;
    static LLM42__DEVICE int block() { return CLUSTER ? (int)llm42__block_in_cluster() : 0; }
    static LLM42__DEVICE int thread() { return block() * THREADS + (int)threadIdx.x; }
    static LLM42__DEVICE void meet() {
        if constexpr (CLUSTER) llm42__cluster_meet();
        else __syncthreads();
    }
    // What block `at` has where this one has mine[i].
    template <typename T> static LLM42__DEVICE T in(int at, const T *mine, int i) {
        if constexpr (CLUSTER) return *llm42__in_block(mine + i, (uint32_t)at);
        else return mine[i];
    }
    // What the warp with this lane's number has written to its place of mine.
    template <typename T> static LLM42__DEVICE T of_warp(const T *mine) {
        const int warp = threadIdx.x % 32;
        return in(warp / WARPS, mine, warp % WARPS);
    }
    // The best of a warp, then that of all: each warp writes to its place, all meet, and each thread gets the best.
    static LLM42__DEVICE llm42__best of_lanes(llm42__best mine) {
        LLM42__UNROLLED(int i = 16; i; i >>= 1)
            mine = llm42__better(mine, llm42__best{__shfl_xor_sync(0xffffffffu, mine.score, i),
                                                   __shfl_xor_sync(0xffffffffu, mine.id, i)});
        return mine;
    }
    LLM42__DEVICE void put(int which, llm42__best mine) {
        mine = of_lanes(mine);
        if (threadIdx.x % 32 == 0) best[which][threadIdx.x / 32] = mine;
    }
    LLM42__DEVICE llm42__best get(int which) const { return of_lanes(of_warp(best[which])); }
};

// Finds, byte by byte, the largest key above which ids hold less than `wanted`: mass if by_mass, else a number of ids.
// Only ids whose key is floor_key or above count. *above: what ids above the key hold. All threads get the same.
template <typename LOGIT, int BLOCKS>
__device__ uint32_t llm42__find_key(const LOGIT *logits, int vocab, bool by_mass, unsigned long long wanted,
                                    uint32_t floor_key, float largest, float scale, llm42__drawers<BLOCKS> &own,
                                    unsigned long long *above) {
    enum { THREADS = llm42__drawers<BLOCKS>::THREADS };
    uint32_t prefix = 0;
    unsigned long long before = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < 256; i += THREADS) own.bins[i] = 0;
        __syncthreads();
        for (int id = own.thread(); id < vocab; id += 1024) {
            const float x = (float)logits[id];
            const uint32_t key = llm42__sort_key(x);
            if (key < floor_key || (shift < 24 && key >> (shift + 8) != prefix >> (shift + 8))) continue;
            atomicAdd(&own.bins[key >> shift & 255], by_mass ? llm42__mass(x, largest, scale) : 1ull);
        }
        own.meet();
        if (BLOCKS > 1) {  // each block gets the sums of all
            unsigned long long sum[(256 + THREADS - 1) / THREADS] = {};
            for (int i = threadIdx.x, k = 0; i < 256; i += THREADS, k++)
                for (int b = 0; b < BLOCKS; b++) sum[k] += own.in(b, own.bins, i);
            own.meet();  // all have read
            for (int i = threadIdx.x, k = 0; i < 256; i += THREADS, k++) own.bins[i] = sum[k];
            __syncthreads();
        }
        if (threadIdx.x == 0) {
            int bin = 255;
            unsigned long long sum = before;
            for (; bin > 0 && sum + own.bins[bin] < wanted; bin--) sum += own.bins[bin];
            own.found[0] = (unsigned long long)bin, own.found[1] = sum;
        }
        __syncthreads();
        prefix |= (uint32_t)own.found[0] << shift, before = own.found[1];
        __syncthreads();
    }
    *above = before;
    return prefix;
}

template <typename LOGIT, int BLOCKS>
__device__ llm42__kept llm42__filter(const LOGIT *logits, int vocab, const llm42__draw &d, float largest,
                                     llm42__drawers<BLOCKS> &own) {
    const float scale = __fdiv_rn(1.0f, d.temperature);
    llm42__kept kept = {0, vocab};
    unsigned long long above;
    if (d.top_k > 0 && d.top_k < vocab) {
        kept.key = llm42__find_key(logits, vocab, false, (unsigned long long)d.top_k, 0, largest, scale, own, &above);
        kept.ties = d.top_k - (int)above;
    }
    if (!(d.top_p > 0 && d.top_p < 1)) return kept;
    unsigned long long total = 0;  // the mass of what top-k has kept
    for (int id = own.thread(); id < vocab; id += 1024) {
        const float x = (float)logits[id];
        if (llm42__sort_key(x) > kept.key) total += llm42__mass(x, largest, scale);
    }
    total = llm42__sum_of_lanes(total);
    if (threadIdx.x % 32 == 0) own.mass[threadIdx.x / 32] = total;
    own.meet();
    total = llm42__sum_of_lanes(own.of_warp(own.mass));
    total += (unsigned long long)kept.ties * llm42__mass(llm42__key_value(kept.key), largest, scale);
    const unsigned long long share = llm42__share(d.top_p, total);
    const uint32_t key = llm42__find_key(logits, vocab, true, share, kept.key, largest, scale, own, &above);
    return llm42__keep(key, share - above, llm42__mass(llm42__key_value(key), largest, scale), kept, vocab);
}

// Calls see(id, logit) for a thread's logits, loaded by eights: from 8 x thread on, then those 8,192 higher, and so on.
template <typename LOGIT, typename SEE>
LLM42__DEVICE void llm42__each_logit(const LOGIT *logits, int vocab, int thread, SEE see) {
    enum { WORDS = 8 * sizeof(LOGIT) / 16 };
#pragma unroll 4  // loads do not wait for what is done with the eight before
    for (int base = thread * 8; base < vocab; base += 8192) {
        union {
            uint4 word[WORDS];
            LOGIT logit[8];
        } eight;
        LLM42__UNROLLED(int i = 0; i < WORDS; i++)
            eight.word[i] = ((const uint4 *)(logits + base))[i];  // a row is padded
        LLM42__UNROLLED(int j = 0; j < 8; j++)
            if (base + j < vocab) see(base + j, (float)eight.logit[j]);
    }
}

// The first token of this thread's to arrive (see llm42.h, section sampling); its score is minus the time, and a NaN
// never arrives. best: the token with the largest logit. All threads must call it.
template <typename LOGIT, int BLOCKS>
LLM42__DEVICE llm42__best llm42__race(const LOGIT *logits, int vocab, const llm42__draw &d, llm42__best best,
                                      llm42__drawers<BLOCKS> &own) {
    const uint64_t key = llm42__hash(d.seed ^ llm42__hash((uint64_t)d.position));
    const float scale = __fdiv_rn(1.0f, d.temperature);
    const int thread = own.thread(), lane = thread % 32;
    llm42__best top = {-INFINITY, -1};
    auto draw = [&](int id, float x) {
        const float slower = llm42__exp(__fmul_rn(__fsub_rn(best.score, x), scale));
        if (__fmul_rn(slower, d.min_p) > 1) return;
        const float score = __fmul_rn(-llm42__exponential(key, id), slower);
        if (score > top.score) top = llm42__best{score, id};
    };
    if (!(d.top_k > 0 || (d.top_p > 0 && d.top_p < 1))) {
        llm42__each_logit(logits, vocab, thread, draw);
        return top;
    }
    const llm42__kept kept = llm42__filter(logits, vocab, d, best.score, own);
    const int part = (vocab + 1023) / 1024, begin = thread * part, end = LLM42__MIN(begin + part, vocab);
    int mine = 0;  // ids whose key equals the last one kept, numbered by id
    for (int id = begin; id < end; id++) mine += llm42__sort_key((float)logits[id]) == kept.key;
    const int upto = llm42__sum_upto(mine);
    if (lane == 31) own.ties[threadIdx.x / 32] = upto;
    own.meet();
    const int before = llm42__sum_of_lanes(lane < thread / 32 ? own.of_warp(own.ties) : 0);
    int tie = before + upto - mine;
    for (int id = begin; id < end; id++) {
        const float x = (float)logits[id];
        const uint32_t at = llm42__sort_key(x);
        if (at > kept.key || (at == kept.key && tie++ < kept.ties)) draw(id, x);
    }
    return top;
}

// Shapes: logits [S, stride] -> out [S]: token and log-probability of each draw. Work: 1,024 threads for each draw, a
// block or a cluster (llm42__drawers). Order of the sum of exponentials: a thread's ids ascending (8 consecutive ones,
// then 8 that are 8,192 higher, and so on), lanes by butterfly, then warps ascending. It depends on V alone.
template <typename LOGIT, int BLOCKS>
__global__ void __launch_bounds__(1024 / BLOCKS)
    llm42__k_draw(const LOGIT *all_logits, int vocab, int stride, llm42_output *out, llm42__meta meta, int first) {
    extern __shared__ __align__(1024) unsigned char shared[];
    llm42__drawers<BLOCKS> &own = *(llm42__drawers<BLOCKS> *)shared;
    llm42__launch_and_wait();
    const int at = blockIdx.x / BLOCKS, thread = own.thread(), lane = thread % 32;
    if (first + at >= meta.header->draws) return;
    const llm42__draw d = meta.draw[first + at];
    const LOGIT *logits = all_logits + (size_t)at * stride;
    llm42__best best = {0, -1};
    llm42__each_logit(logits, vocab, thread, [&](int id, float x) {
        if (x == x) best = llm42__better(best, llm42__best{x, id});
    });
    own.put(0, best);
    own.meet();
    best = own.get(0);
    if (best.id < 0) best = llm42__best{__uint_as_float(0x7fffffffu), 0};
    const float largest = best.score;
    float sum = 0;
    llm42__each_logit(logits, vocab, thread,
                      [&](int, float x) { sum += llm42__power(__fsub_rn(x, largest) * 1.44269504f); });
    sum = llm42__sum_of_lanes(sum);
    if (lane == 0) own.sum[threadIdx.x / 32] = sum;
    own.put(1, d.temperature > 0 ? llm42__race(logits, vocab, d, best, own) : llm42__best{0, -1});
    own.meet();
    if (thread < 32) {
        const float of_warp = own.of_warp(own.sum);
        sum = 0;
        for (int warp = 0; warp < 32; warp++) sum += __shfl_sync(0xffffffffu, of_warp, warp);
        const llm42__best top = own.get(1);
        const int token = top.id >= 0 ? top.id : best.id;
        if (thread == 0)
            out[d.row] = llm42_output{token, __fsub_rn(__fsub_rn((float)logits[token], largest), llm42__log_f32(sum))};
    }
    if (BLOCKS > 1) own.meet();  // a block that has ended cannot be read
}

// >>kernel-mixture -----------------------------------------------------------------------------------------------
// Owns: routing the rows of a mixture to their experts and back.

// An entry is a row and the rank of one of its experts. Entries have places, sorted by expert and then by row. A row
// has an expert once at most, so for a group of 32 rows one word an expert says which of them have it.
enum { LLM42__MOST_EXPERTS = 1024, LLM42__MOST_USED = 64, LLM42__ROUTE_THREADS = 1024 };
typedef struct llm42__routing {
    int rows, experts, used, pieces;
    int shared;                // 1: the last expert is every row's last one, with sigmoid of its logit as its weight
    float *weight;             // [R, used]
    uint32_t *group;           // [groups][E]
    int32_t *offset, *source;  // [E + 1]: where an expert's entries begin; [entries]: the row of a place
    int32_t *place;            // [entries]: the place of an entry; between k_route and k_sort its expert
    const uint4 *x;            // [R, pieces]: rows, which are copied to their places: sorted [entries, pieces]
    uint4 *sorted;
} llm42__routing;

// What a block knows of experts: their entries in all groups and (until `sort` adds lower experts) in lower groups, and
// which rows of the block's group they have; and of the group's entries: the expert, and then the place.
typedef struct llm42__sorter {
    int all[LLM42__MOST_EXPERTS + 1], first[LLM42__MOST_EXPERTS + 1], place[32][LLM42__MOST_USED];
    uint32_t group[LLM42__MOST_EXPERTS + 1];

    // Returns the first piece that a thread of a block that sorts `rows` rows will copy.
    LLM42__DEVICE uint4 start(const llm42__routing &a, int row, int rows) {
        llm42__launch_next();
        for (int e = threadIdx.x; e <= a.experts; e += blockDim.x) all[e] = first[e] = 0, group[e] = 0;
        __syncthreads();
        llm42__wait_for_previous();
        return (int)threadIdx.x < rows * a.pieces ? a.x[(size_t)row * a.pieces + threadIdx.x] : uint4{};
    }
    // Gives rows their places, and copies them. Lower experts are added by lanes: first those of other warps.
    LLM42__DEVICE void sort(const llm42__routing &a, int row, int rows, uint4 piece) {
        __syncthreads();
        for (int e = threadIdx.x, lane = e % 32; e - lane <= a.experts; e += blockDim.x) {
            int own = e <= a.experts ? all[e] : 0, lower = 0;
            for (int i = lane; i < e - lane; i += 32) lower += all[i];
            lower = llm42__sum_of_lanes(lower);
            for (int i = 0; i < 32; i++) lower += __shfl_sync(0xffffffffu, own, i) & -(i < lane);
            if (e <= a.experts) first[e] += lower;
            if (e <= a.experts && blockIdx.x == 0) a.offset[e] = lower;
        }
        __syncthreads();
        for (int i = threadIdx.x; i < rows * a.used; i += blockDim.x) {
            const int r = row + i / a.used, e = place[r % 32][i % a.used];
            const int to = first[e] + __popc(group[e] & ((1u << r % 32) - 1));
            a.place[row * a.used + i] = place[r % 32][i % a.used] = to, a.source[to] = r;
        }
        __syncthreads();
        for (int i = threadIdx.x; i < rows * a.pieces; i += blockDim.x) {
            if (i >= (int)blockDim.x) piece = a.x[(size_t)row * a.pieces + i];
            const int *to = place[(row + i / a.pieces) % 32];
            for (int rank = 0; rank < a.used; rank++) a.sorted[(size_t)to[rank] * a.pieces + i % a.pieces] = piece;
        }
    }
} llm42__sorter;

// Shapes: router [R, stride] (E used, up to 32 EACH) -> each row's experts, the largest logit first (NaN last), the
// lowest index on a tie, and their weights. Work: a block for a group, a warp for a row, a lane for every 32nd expert.
// If there is one group, there is a block for each row: each routes all rows and sorts its own. Order of the softmax: a
// lane's exponentials ascending, then lanes by butterfly. Order of the renormalising sum: by rank. Atomics count.
template <int EACH, typename LOGIT>
__global__ void __launch_bounds__(LLM42__ROUTE_THREADS)
    llm42__k_route(const LOGIT *router, int stride, bool renorm, llm42__routing a) {
    __shared__ llm42__sorter own;
    __shared__ float score[32][LLM42__MOST_USED];  // of an entry: its logit, and then its probability
    const bool alone = a.rows <= 32;
    const int block = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32,
              row = warp + (alone ? 0 : 32 * block);
    const uint4 piece = own.start(a, block, alone);
    uint32_t key[EACH];  // of expert lane + 32 i; 0: chosen, or no expert
    float largest = 0, total = 0, sum = 0;
    LLM42__UNROLLED(int i = 0; i < EACH; i++)
        if (key[i] = 0; lane + 32 * i < a.experts - a.shared && row < a.rows)
            key[i] = llm42__sort_key((float)router[(size_t)row * stride + lane + 32 * i]), key[i] += !key[i];
    for (int rank = 0; rank < a.used - a.shared && row < a.rows; rank++) {
        uint32_t best = 0, chosen = LLM42__MOST_EXPERTS;
        LLM42__UNROLLED(int i = 0; i < EACH; i++) best = LLM42__MAX(best, key[i]);
        best = __reduce_max_sync(0xffffffffu, best);  // the largest key left, and then the lowest expert that has it
        LLM42__UNROLLED(int i = EACH - 1; i >= 0; i--) chosen = key[i] == best ? lane + 32 * i : chosen;
        chosen = __reduce_min_sync(0xffffffffu, chosen);
        if (rank == 0) largest = llm42__key_value(best);
        LLM42__UNROLLED(int i = 0; i < EACH && rank == 0; i++)
            if (key[i]) total += llm42__exp(llm42__key_value(key[i]) - largest);
        LLM42__UNROLLED(int i = 0; i < EACH; i++) key[i] = chosen == lane + 32 * i ? 0 : key[i];
        if (rank % 32 == lane) own.place[warp][rank] = (int)chosen, score[warp][rank] = llm42__key_value(best);
    }
    total = llm42__sum_of_lanes(total);
    for (int rank = lane; rank < a.used && row < a.rows; rank += 32) {
        const bool chosen = rank < a.used - a.shared;
        const int e = chosen ? own.place[warp][rank] : a.experts - 1, entry = row * a.used + rank;
        own.place[warp][rank] = e;
        score[warp][rank] = chosen ? __fdiv_rn(llm42__exp(score[warp][rank] - largest), total)
                                   : llm42__device_sigmoid((float)router[(size_t)row * stride + e]);
        atomicAdd(&own.all[e], 1), atomicOr(&own.group[e], 1u << warp);
        if (!alone) a.place[entry] = e;
    }
    __syncwarp();
    for (int rank = 0; rank < a.used - a.shared; rank++) sum += score[warp][rank];
    for (int rank = lane; rank < a.used && (alone ? row == block : row < a.rows); rank += 32)
        a.weight[row * a.used + rank] = llm42__rounded(
            __fdiv_rn(score[warp][rank], renorm && rank < a.used - a.shared ? sum : 1));
    if (alone) return own.sort(a, block, 1, piece);
    __syncthreads();
    for (int e = threadIdx.x; e < a.experts; e += blockDim.x) a.group[block * a.experts + e] = own.group[e];
}

// Sorts several groups. Work: a block for `most` rows, a divisor of 32. Threads count an expert's entries together.
__global__ void __launch_bounds__(LLM42__ROUTE_THREADS, 2) llm42__k_sort(llm42__routing a, int most) {
    __shared__ llm42__sorter own;
    const int row = blockIdx.x * most, rows = min(most, a.rows - row), groups = (a.rows + 31) / 32,
              teams = LLM42__ROUTE_THREADS / a.experts, team = threadIdx.x / a.experts, e = threadIdx.x % a.experts;
    const uint4 piece = own.start(a, row, rows);
    for (int i = threadIdx.x; i < rows * a.used; i += LLM42__ROUTE_THREADS)
        own.place[row % 32 + i / a.used][i % a.used] = a.place[row * a.used + i];
    int all = 0, lower = 0;
#pragma unroll 8
    for (int g = team < teams ? team : groups; g < groups; g += teams) {
        const uint32_t its = a.group[g * a.experts + e];
        all += __popc(its), lower += g < row / 32 ? __popc(its) : 0;
        if (g == row / 32) own.group[e] = its;
    }
    atomicAdd(&own.all[e], all), atomicAdd(&own.first[e], lower);
    own.sort(a, row, rows, piece);
}

// Shapes: y [count][entries, stride], leaves in fp32 by place -> out [R, stride]: the weighted sum of each row's
// experts. Work: a block for each row. Order: by rank, from +0, in each leaf; then the leaves' tree.
template <typename OUT>
__global__ void llm42__k_combine_leaves(const float *y, size_t part_stride, int count, const int32_t *place,
                                        const float *weight, int used, int stride, llm42__owners owners, OUT *out) {
    llm42__launch_and_wait();
    for (int i = 4 * threadIdx.x; i < stride; i += 4 * blockDim.x) {
        float4 part[8] = {};
        LLM42__UNROLLED(int p = 0; p < 8; p++)
            for (int rank = 0; p < count && rank < used; rank++) {
                const int entry = blockIdx.x * used + rank;
                const float w = weight[entry];
                const float4 v = *(const float4 *)(y + p * part_stride + (size_t)place[entry] * stride + i);
                part[p] = make_float4(fmaf(w, v.x, part[p].x), fmaf(w, v.y, part[p].y), fmaf(w, v.z, part[p].z),
                                      fmaf(w, v.w, part[p].w));
            }
        llm42__write4(llm42__leaf_sum(part, count), llm42__row_of(out, owners, (int)blockIdx.x, stride) + i);
    }
}

// >>kernel-tools -------------------------------------------------------------------------------------------------
// Owns: placing weights in device memory, making synthetic ones, and the kernels that measure and compare.

// Where row r of a matrix goes on the device: to row r, or gate and up alternate in groups of eight rows.
enum { LLM42__PLAIN = 0, LLM42__GATE = 1, LLM42__UP = 2 };
LLM42__DEVICE size_t llm42__placed(size_t r, int turn) {
    return turn == LLM42__PLAIN ? r : r / 8 * 16 + r % 8 + (turn == LLM42__UP ? 8 : 0);
}
// Where the indices of an axis go if it has leaves: each `part` of them takes `padded` places. 0: they stay.
typedef struct llm42__gaps {
    int part, padded;
} llm42__gaps;
LLM42__DEVICE size_t llm42__spread(size_t i, llm42__gaps gaps) {
    return gaps.part ? i / gaps.part * gaps.padded + i % gaps.part : i;
}
// The part of a matrix [n, k] that a rank has: `rows` rows from row0 on, and of them `columns` columns from column0 on.
typedef struct llm42__slice {
    int row0, rows, column0, columns;
} llm42__slice;

// Puts the rows r0 <= r < r0 + count of a slice of a matrix [n, k] into their place, where rows are `stride` apart.
// from: these rows, whole; NULL: they are made from (key, scale). Work: a thread for each element. No sums.
__global__ void llm42__k_place(llm42__bf16 *to, int stride, int turn, llm42__gaps rows, llm42__gaps columns,
                               const void *from, bool fp32, llm42__slice slice, size_t r0, size_t count, int k,
                               uint64_t key, float scale) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count * slice.columns;
         i += (size_t)gridDim.x * blockDim.x) {
        const size_t row = i / slice.columns, r = r0 + row, column = i % slice.columns, c = slice.column0 + column,
                     at = row * k + c;
        float value = !from  ? __fmul_rn(scale, llm42__synthetic_noise(key, r * k + c))
                      : fp32 ? ((const float *)from)[at]
                             : 0.0f;
        to[llm42__placed(llm42__spread(r - slice.row0, rows), turn) * stride + llm42__spread(column, columns)] =
            from && !fp32 ? ((const llm42__bf16 *)from)[at] : __float2bfloat16_rn(value);
    }
}

// Makes a slice of a synthetic matrix [n, k] in e4m3, from (key, scale). to: rows of `stride` bytes; scales: those of
// the slice's blocks. Work: a block for 128 x 128 weights, of which the slice may lack rows. No sums.
__global__ void __launch_bounds__(256) llm42__k_make_e4m3(uint8_t *to, int stride, float *scales, int scale_stride,
                                                          llm42__slice slice, int n, int k, uint64_t key, float scale) {
    __shared__ float shared[8];
    const int first = slice.row0 / LLM42__BLOCK * LLM42__BLOCK + (int)blockIdx.y * LLM42__BLOCK,
              column = slice.column0 + (int)blockIdx.x * LLM42__BLOCK + (int)threadIdx.x % LLM42__BLOCK;
    auto value = [&](int row) {
        return row < n && column < k
                   ? llm42__rounded(__fmul_rn(scale, llm42__synthetic_noise(key, (size_t)row * k + column)))
                   : 0.0f;
    };
    float largest = 0;
    for (int r = threadIdx.x / LLM42__BLOCK; r < LLM42__BLOCK; r += 2)
        largest = fmaxf(largest, fabsf(value(first + r)));
    largest = llm42__largest_of_lanes<32>(largest);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = largest;
    __syncthreads();
    for (int w = 0; w < 8; w++) largest = fmaxf(largest, shared[w]);
    const float of_block = llm42__e4m3_scale(largest);
    if (threadIdx.x == 0) scales[(size_t)blockIdx.y * scale_stride + blockIdx.x] = of_block;
    for (int r = threadIdx.x / LLM42__BLOCK; r < LLM42__BLOCK; r += 2) {
        const int row = first + r - slice.row0;
        if (row >= 0 && row < slice.rows && column < slice.column0 + slice.columns)
            to[(size_t)row * stride + column - slice.column0] = llm42__to_e4m3(__fdiv_rn(value(first + r), of_block));
    }
}

// Adds lead x the embedding of token t to the head's row of its successor, if that is one of the `rows` rows from row0
// on, which `head` has. Work: a block for each token. No sums.
__global__ void llm42__k_lead(llm42__bf16 *head, const llm42__bf16 *embed, int row0, int rows, int vocab, int stride,
                              int width, float lead) {
    const size_t t = blockIdx.x;
    const int row = (int)((5 * t + 1) % vocab) - row0;
    if (row < 0 || row >= rows) return;
    llm42__bf16 *to = head + (size_t)row * stride;
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        to[i] = __float2bfloat16_rn(fmaf(lead, __bfloat162float(embed[t * stride + i]), __bfloat162float(to[i])));
}

// Compares this device's 2^x with llm42__ex2: for all x with 2^-25 <= |x| < 2^8, and for every 61st number of all,
// since results of the others are 1, 0 or infinite. Only each `step`th of these is compared; step is odd. found: how
// many differ, and one of them. Work: a thread takes every n-th number. Integers only.
__global__ void llm42__k_wrong_powers(size_t step, unsigned *found) {
    const uint32_t near = 33u << 24, all = near + 0xffffffffu / 61;
    for (size_t i = step * (blockIdx.x * (size_t)blockDim.x + threadIdx.x); i < all;
         i += step * gridDim.x * blockDim.x) {
        const uint32_t n = (uint32_t)i, bits = n < near ? n << 31 | (0x33000000u + n / 2) : (n - near) * 61;
        const float x = __uint_as_float(bits);
        if (__float_as_uint(llm42__power(x)) == __float_as_uint(llm42__ex2(x))) continue;
        if (atomicAdd(found, 1u) == 0) found[1] = bits;
    }
}

// Noise, for ceilings and for products that are compared with llm42__k_reference.
__global__ void llm42__k_fill(llm42__bf16 *to, size_t count, uint64_t key, float scale) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        to[i] = __float2bfloat16_rn(scale * llm42__synthetic_noise(key, i));
}

// Makes rows whose sums nearly cancel, so that another order changes almost every output, even in bf16. The second half
// of a row of w repeats the first; that of a row of x is its negative, up to the last bit. A thread makes an element.
__global__ void llm42__k_fill_cancelling(llm42__bf16 *to, size_t rows, int k, uint64_t key, bool negate) {
    const size_t half = (size_t)k / 2;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < rows * k; i += (size_t)gridDim.x * blockDim.x) {
        size_t row = i / k, column = i % k, at = row * half + column % half;
        __nv_bfloat16_raw value = __float2bfloat16_rn(llm42__synthetic_noise(key, at));
        if (negate && column >= half) value.x ^= 0x8000u | (unsigned short)(llm42__hash(key + at) & 1);
        to[i] = value;
    }
}
// The same for products with weights in e4m3: their chains are of very different size, and those of the second half
// take away what those of the first half give, so that a sum consists of what was lost in rounding.
__global__ void llm42__k_fill_spread(llm42__bf16 *to, size_t rows, int k, uint64_t key) {
    const int half = k / LLM42__BLOCK / 2 * LLM42__BLOCK;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < rows * k; i += (size_t)gridDim.x * blockDim.x) {
        const int column = i % k, at = half && column < 2 * half ? column % half : column;
        const float power = __uint_as_float((uint32_t)(127 - llm42__hash(at / LLM42__BLOCK) % 16) << 23),
                    value = power * llm42__synthetic_noise(key, i / k * k + at);
        to[i] = __float2bfloat16_rn(!half || column < half ? value : column < 2 * half ? -value : 0.0f);
    }
}
// Noise in e4m3, and scales, `across` a row, for a standard deviation of about 1. Halves of rows are alike, as above.
__global__ void llm42__k_fill_e4m3(uint8_t *to, size_t rows, int k, float *scales, size_t count, int across,
                                   uint64_t key) {
    const int blocks = LLM42__MAX(1, k / LLM42__BLOCK / 2), half = blocks * LLM42__BLOCK;
    const size_t first = blockIdx.x * (size_t)blockDim.x + threadIdx.x, step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = first; i < rows * k; i += step)
        to[i] = llm42__to_e4m3(64.0f * llm42__synthetic_noise(key, i / k * k + i % k % half));
    for (size_t i = first; i < count; i += step)
        scales[i] = (1.0f + 0.1f * llm42__synthetic_noise(key + 1, i / across * across + i % across % blocks)) / 64.0f;
    if (first == 0) scales[count] = 0.0f;  // no input_scale
}

// from [rows, k] in e4m3, with scales at [row / side x down + column / 128 x across] -> to, rounded to bf16.
__global__ void llm42__k_widen(const uint8_t *from, llm42__bf16 *to, size_t rows, int k, const float *scales, int side,
                               int down, int across) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < rows * k; i += (size_t)gridDim.x * blockDim.x) {
        const size_t row = i / k, column = i % k;
        to[i] = __float2bfloat16_rn(llm42__from_e4m3(from[i]) *
                                    scales[row / side * down + column / LLM42__BLOCK * across]);
    }
}

// Counts the 16-bit words of y[r] that differ from those of other[(r + shift) % rows].
__global__ void llm42__k_differ(const uint16_t *y, const uint16_t *other, int rows, size_t width, int shift,
                                unsigned *count) {
    unsigned mine = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < rows * width;
         i += (size_t)gridDim.x * blockDim.x)
        mine += y[i] != other[(i / width + shift) % rows * width + i % width];
    if (mine) atomicAdd(count, mine);
}

// Shapes: x [R, k], w [n, k] -> y [R, n] = x w^T in fp32, without tensor cores: what the products of other kernels are
// compared with. Work: a warp computes one output of four rows. Order: a lane's terms ascending (8 consecutive ones,
// then 8 that are 256 higher, and so on), then lanes by butterfly. It depends on k alone.
__global__ void __launch_bounds__(256)
    llm42__k_reference(const llm42__bf16 *x, const llm42__bf16 *w, float *y, int rows, int n, int k) {
    enum { ROWS = 4 };
    const int lane = threadIdx.x % 32;
    const size_t warps = (size_t)gridDim.x * blockDim.x / 32, jobs = (size_t)((rows + ROWS - 1) / ROWS) * n;
    for (size_t job = (blockIdx.x * (size_t)blockDim.x + threadIdx.x) / 32; job < jobs; job += warps) {
        const size_t row0 = job / n * ROWS, output = job % n;
        float sum[ROWS] = {};
        for (int at = lane * 8; at < k; at += 256) {
            const uint4 b = *(const uint4 *)(w + output * k + at);
            LLM42__UNROLLED(int r = 0; r < ROWS; r++) {
                const uint4 a = *(const uint4 *)(x + LLM42__MIN(row0 + r, (size_t)rows - 1) * k + at);
                const llm42__bf16 *p = (const llm42__bf16 *)&a, *q = (const llm42__bf16 *)&b;
                LLM42__UNROLLED(int i = 0; i < 8; i++)
                    sum[r] = fmaf(__bfloat162float(p[i]), __bfloat162float(q[i]), sum[r]);
            }
        }
        LLM42__UNROLLED(int r = 0; r < ROWS; r++) {
            sum[r] = llm42__sum_of_lanes(sum[r]);
            if (lane == 0 && row0 + r < (size_t)rows) y[(row0 + r) * n + output] = sum[r];
        }
    }
}

// Counts the outputs that are farther from what `sums` [R, n] says than `slack`. With `apart`, y is [R, n/2]:
// silu(gate) x up, where gate and up may each be off by `slack`; the slope of silu is at most 1.1. Up is so far behind
// gate: 8, if they are in groups of eight. A NaN is far from everything. Work: a thread for each output.
template <typename OUT>
__global__ void llm42__k_far(const OUT *y, const float *sums, int rows, int n, int apart, float slack,
                             unsigned *count) {
    const size_t width = apart ? n / 2 : n;
    unsigned mine = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < rows * width;
         i += (size_t)gridDim.x * blockDim.x) {
        const size_t column = i % width;
        const float *from = sums + i / width * n + (apart == 8 ? column / 8 * 16 + column % 8 : column);
        float want = from[0], most = slack;
        if (apart) {
            const float up = from[apart], silu = llm42__silu(want);
            want = silu * up;
            most = 1.1f * slack * (fabsf(up) + slack) + fabsf(silu) * slack + fabsf(want) / 128;
        }
        mine += !(fabsf((float)y[i] - want) <= most);
    }
    if (mine) atomicAdd(count, mine);
}

// Moves the rows of x [rows, width] by `shift` places, cyclically.
__global__ void llm42__k_rotate_rows(const llm42__bf16 *x, llm42__bf16 *to, int rows, int width, int shift) {
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        to[(size_t)((blockIdx.x + shift) % rows) * width + i] = x[(size_t)blockIdx.x * width + i];
}

// Reads `count` words of 16 bytes and keeps nothing, to measure the ceiling of reading.
__global__ void __launch_bounds__(512) llm42__k_read(const uint4 *from, size_t count, unsigned *never) {
    unsigned sum = 0;
    size_t stride = (size_t)gridDim.x * blockDim.x, i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    for (; i + 7 * stride < count; i += 8 * stride) {
        uint4 v[8];
        LLM42__UNROLLED(int j = 0; j < 8; j++) v[j] = __ldcs(from + i + j * stride);
        LLM42__UNROLLED(int j = 0; j < 8; j++) sum ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
    }
    if (sum == 0x12345678u) *never = sum;
}
