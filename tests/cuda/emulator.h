// emulator.h: runs kernels.cu on a CPU. It is included before kernels.cu, has what CUDA C++ gives to kernels, and has
// primitives of its own in place of those that are written in assembler.
//
// Every CUDA thread is a fiber: a function with a stack of its own, which runs until it waits. A fiber waits at a
// barrier, for the other lanes of its warp, or for another device. The fibers of a block take turns on one thread of
// the host. If all of them wait for one another, the kernel would wait for ever on a GPU. Then the emulator names the
// kernel and ends the program. Blocks of a kernel run one after the other. Kernels of different streams run at the same
// time, so several devices can wait for each other.
//
// The tensor cores' sum of sixteen products is the one that was measured on an H200. The products are exact. All
// addends are cut toward zero to 25 bits below the largest exponent, and are added exactly. The sum is cut toward zero
// to fp32, and a zero is +0. The code here was written from this description, and shares nothing with the library.
//
// A GPU runs threads in any order, and a copy to shared memory arrives at any time until it is waited for. So here the
// order of a block's threads is drawn from EMULATOR_SEED (default 1), and so is for each copy whether it arrives at
// once or only when it is waited for. (Blocks keep their order: some wait for what others of a device send.)
// EMULATOR_FAULT is for controls: with "wait" each wait for copies leaves one group more than it should, and with
// "barrier" no thread waits at a barrier.
//
// These are not emulated: cuBLASLt; warpgroups and the copy engine, which kernels for sm_90 alone use; the order in
// which a GPU's caches see writes.
#ifndef LLM42_EMULATOR_H
#define LLM42_EMULATOR_H
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <dlfcn.h>
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#undef __device__
#undef __global__
#undef __host__
#undef __shared__
#undef __launch_bounds__
#undef __grid_constant__
#undef __forceinline__
#define __device__
#define __global__
#define __host__
#define __shared__ static thread_local
#define __launch_bounds__(...)
#define __grid_constant__
#define __forceinline__ inline

// What CUDA C++ tells a thread about itself.
inline thread_local uint3 threadIdx, blockIdx;
inline thread_local dim3 blockDim, gridDim;
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }

namespace emulator {

// >>fibers -------------------------------------------------------------------------------------------------------
// STRIDE: a prime number, which steps through all threads of a block.
enum { STRIDE = 1031, MOST_THREADS = 1024, STACK = 128 << 10, SHARED = 232448, NAMED_BARRIERS = 16 };

// A barrier: its turn ends when as many threads have come as it waits for.
struct gate {
    int arrived = 0;
    unsigned turn = 0;
};

// Where a fiber, or the scheduler, goes on. swapcontext makes a system call each time, so x86-64 has a switch of its
// own.
#ifdef __x86_64__
struct place {
    void *stack_top;
};
extern "C" void emulator_switch(place *from, const place *to);
__asm__(".text\n.weak emulator_switch\nemulator_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov (%rsi), %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
inline void begin_at(place *at, unsigned char *stack, size_t bytes, void (*entry)()) {
    void **top = (void **)(stack + bytes) - 2;  // the entry finds its stack aligned as behind a call
    top[0] = (void *)entry;
    top[1] = nullptr;
    at->stack_top = top - 6;
    memset(top - 6, 0, 6 * sizeof *top);
}
#else
struct place {
    ucontext_t context;
};
inline void emulator_switch(place *from, const place *to) { swapcontext(&from->context, &to->context); }
inline void begin_at(place *at, unsigned char *stack, size_t bytes, void (*entry)()) {
    getcontext(&at->context);
    at->context.uc_stack.ss_sp = stack, at->context.uc_stack.ss_size = bytes;
    makecontext(&at->context, entry, 0);
}
#endif

struct late_copy {  // of 16 bytes, to shared memory
    uint32_t to;
    const void *from;
    bool valid;
};

struct fiber {
    place at;
    std::vector<late_copy> late;
    std::vector<size_t> groups;  // of these: how many there were at each commit
    unsigned char *stack = nullptr;
    bool done = true;
    uint3 thread;
    int index;
    ~fiber() { free(stack); }
};

struct warp {
    gate meet;
    void *lane[32];  // what each lane has brought
};

struct block {
    const void *kernel;
    uint3 index;
    dim3 threads, grid;
    size_t bytes;   // of dynamic shared memory
    int live;       // threads that have not ended
    bool progress;  // a thread has done something since all have had their turn
    uint64_t random;
    gate all, named[NAMED_BARRIERS];
    warp warps[MOST_THREADS / 32];
    fiber fibers[MOST_THREADS];
    place scheduler;
    void (*call)(void *) = nullptr;
    void *closure = nullptr;
    alignas(1024) unsigned char shared[SHARED];
};

inline thread_local block *here;
inline thread_local fiber *self;

inline const uint64_t seed = getenv("EMULATOR_SEED") ? strtoull(getenv("EMULATOR_SEED"), nullptr, 10) : 1;
inline bool fault(const char *name) { return getenv("EMULATOR_FAULT") && !strcmp(getenv("EMULATOR_FAULT"), name); }
inline const bool wait_fault = fault("wait"), barrier_fault = fault("barrier");

inline uint64_t mix(uint64_t x) {  // the numbers of SplitMix64
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

__attribute__((noinline)) inline void yield() { emulator_switch(&self->at, &here->scheduler); }

// A thread ends. Those at a barrier of all threads wait for one thread less.
inline void release(gate *g, int expected) {
    if (g->arrived < expected || !expected) return;
    g->arrived = 0, g->turn++, here->progress = true;
}
inline void live_fiber() {
    for (;;) {
        here->call(here->closure);
        self->done = true, here->live--, here->progress = true;
        if (here->all.arrived) release(&here->all, here->live);
        yield();
    }
}

inline void wait_at(gate *g, int expected) {
    if (barrier_fault && expected != 32) return;
    const unsigned turn = g->turn;
    g->arrived++;
    release(g, expected);
    while (g->turn == turn) yield();
    here->progress = true;
}

// The lanes of a warp come together. The last one computes what each gets, from what all have brought.
template <typename LANE, typename F> void together(LANE *own, F compute) {
    warp *w = &here->warps[self->index / 32];
    w->lane[self->index % 32] = own;
    if (w->meet.arrived == 31) compute((LANE **)w->lane);
    wait_at(&w->meet, 32);
}

inline void arrive(const late_copy &copy) {
    if (copy.valid) memcpy(here->shared + copy.to, copy.from, 16);
    else memset(here->shared + copy.to, 0, 16);
}
// Copies of this thread arrive, but not those of its newest groups.
inline void arrive_all_but(size_t newest) {
    std::vector<size_t> &groups = self->groups;
    if (groups.size() <= newest) return;
    const size_t ended = groups.size() - newest, copies = groups[ended - 1];
    for (size_t i = 0; i < copies; i++) arrive(self->late[i]);
    self->late.erase(self->late.begin(), self->late.begin() + (ptrdiff_t)copies);
    groups.erase(groups.begin(), groups.begin() + (ptrdiff_t)ended);
    for (size_t &end : groups) end -= copies;
}

// Lets others go on: this thread waits for another device.
inline void pause() {
    here->progress = true;
    std::this_thread::yield();
    yield();
}

// Ends the program, and says in which kernel.
template <typename... ARGS> [[noreturn]] void end_with(const char *format, ARGS... args) {
    Dl_info at = {};
    int status = 0;
    dladdr(here->kernel, &at);
    char *name = abi::__cxa_demangle(at.dli_sname ? at.dli_sname : "", nullptr, nullptr, &status);
    fflush(stdout);
    fprintf(stderr, "emulator: %s: ", name ? name : "a kernel");
    fprintf(stderr, format, args...);
    fprintf(stderr, "\n");
    abort();
}

inline void run_block(block *b) {
    const int threads = (int)(b->threads.x * b->threads.y * b->threads.z);
    blockIdx = b->index, blockDim = b->threads, gridDim = b->grid;
    b->live = threads, b->all = {};
    for (gate &g : b->named) g = {};
    for (warp &w : b->warps) w.meet = {};
    memset(b->shared, 0xff, b->bytes);  // as floats these are not numbers
    b->random = mix(seed ^ mix(b->index.x ^ (uint64_t)b->index.y << 20 ^ (uint64_t)b->index.z << 40));
    for (int i = 0; i < threads; i++) {
        b->fibers[i].done = false, b->fibers[i].index = i;
        b->fibers[i].late.clear(), b->fibers[i].groups.clear();
        b->fibers[i].thread = {(unsigned)i % b->threads.x, (unsigned)i / b->threads.x % b->threads.y,
                               (unsigned)i / b->threads.x / b->threads.y};
    }
    while (b->live) {
        b->progress = false;
        const uint64_t first = (b->random = mix(b->random)) % 1024;
        for (int i = 0; i < threads; i++) {
            fiber *f = &b->fibers[((uint64_t)i * STRIDE + first) % (uint64_t)threads];
            if (f->done) continue;
            self = f, threadIdx = f->thread;
            if (!f->stack) begin_at(&f->at, f->stack = (unsigned char *)malloc(STACK), STACK, live_fiber);
            emulator_switch(&b->scheduler, &f->at);
        }
        if (b->progress) continue;
        end_with("%d threads of block (%u, %u) wait for one another for ever", b->live, b->index.x, b->index.y);
    }
}

inline void run_grid(const void *kernel, dim3 grid, dim3 threads, size_t bytes, void (*call)(void *), void *closure) {
    static thread_local std::vector<block> own(1);
    block *b = here = &own[0];
    b->kernel = kernel, b->grid = grid, b->threads = threads, b->bytes = bytes, b->call = call, b->closure = closure;
    if (threads.x * threads.y * threads.z > MOST_THREADS || threads.x % 32) end_with("blocks of %u threads", threads.x);
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                b->index = {x, y, z};
                run_block(b);
            }
}

// >>streams ------------------------------------------------------------------------------------------------------
typedef std::function<void()> work;
struct graph {
    std::vector<work> works;
};

// Runs its works in order, on a thread of its own.
struct stream {
    int device;
    std::vector<work> works;
    std::mutex mutex;
    std::condition_variable changed;
    bool busy = false, ends = false;
    graph *captured = nullptr;
    std::thread worker;

    explicit stream(int device) : device(device), worker([this] { live(); }) {}
    ~stream() {
        {
            std::lock_guard<std::mutex> hold(mutex);
            ends = true;
        }
        changed.notify_all();
        worker.join();
    }
    void live() {
        std::unique_lock<std::mutex> hold(mutex);
        for (;;) {
            changed.wait(hold, [this] { return ends || !works.empty(); });
            if (works.empty()) return;
            std::vector<work> now;
            now.swap(works);
            busy = true;
            hold.unlock();
            for (work &w : now) w();
            hold.lock();
            busy = false;
            changed.notify_all();
        }
    }
    void put(work w) {
        if (captured) {
            captured->works.push_back(std::move(w));
            return;
        }
        std::lock_guard<std::mutex> hold(mutex);
        works.push_back(std::move(w));
        changed.notify_all();
    }
    bool idle() {
        std::lock_guard<std::mutex> hold(mutex);
        return works.empty() && !busy;
    }
    void wait() {
        std::unique_lock<std::mutex> hold(mutex);
        changed.wait(hold, [this] { return works.empty() && !busy; });
    }
};

inline void enqueue(cudaStream_t to, work w) {
    if (to) ((stream *)to)->put(std::move(w));
    else w();  // the default stream: nothing else runs meanwhile
}

struct shape {  // of a launch by <<<>>>
    dim3 grid, threads;
    size_t bytes;
    cudaStream_t to;
    shape(dim3 grid, dim3 threads, size_t bytes = 0, cudaStream_t to = nullptr)
        : grid(grid), threads(threads), bytes(bytes), to(to) {}
};
// The kernel's arguments are copied when it is launched.
template <typename... PARAMS, typename... ARGS>
cudaError_t launch(const shape &s, void (*kernel)(PARAMS...), const ARGS &...args) {
    auto call = [kernel, all = std::tuple<std::remove_const_t<PARAMS>...>(args...)]() { std::apply(kernel, all); };
    enqueue(s.to, [=]() mutable {
        run_grid((const void *)kernel, s.grid, s.threads, s.bytes,
                 [](void *closure) { (*(decltype(call) *)closure)(); }, &call);
    });
    return cudaSuccess;
}
template <typename... PARAMS, typename... ARGS>
void run(const shape &s, void (*kernel)(PARAMS...), const ARGS &...args) {
    launch(s, kernel, static_cast<PARAMS>(args)...);
}

// >>warps --------------------------------------------------------------------------------------------------------
template <typename T> struct swap_lane {
    T value, result;
    int from;
};
template <typename T> T shuffle(T value, int from) {
    swap_lane<T> own = {value, value, from};
    together(&own, [](swap_lane<T> **lane) {
        for (int i = 0; i < 32; i++) lane[i]->result = lane[lane[i]->from & 31]->value;
    });
    return own.result;
}
struct vote {
    bool value;
    unsigned result;
};
inline unsigned ballot(bool value) {
    vote own = {value, 0};
    together(&own, [](vote **lane) {
        unsigned all = 0;
        for (int i = 0; i < 32; i++) all |= (unsigned)lane[i]->value << i;
        for (int i = 0; i < 32; i++) lane[i]->result = all;
    });
    return own.result;
}
inline void sync_warp() {
    char none;
    together(&none, [](char **) {});
}

struct matrix_lane {
    const unsigned char *row;
    uint32_t r[4];
};
// ldmatrix: four 8x8 matrices of 16-bit values; lane i gives row i % 8 of matrix i / 8.
inline void load_matrices(uint32_t r[4], uint32_t address, bool turned) {
    matrix_lane own = {here->shared + address, {}};
    auto compute = [](matrix_lane **lane, bool turned) {
        auto value = [&](int matrix, int row, int column) {
            uint16_t v;
            memcpy(&v, lane[matrix * 8 + row]->row + 2 * column, 2);
            return (uint32_t)v;
        };
        for (int i = 0; i < 32; i++)
            for (int m = 0; m < 4; m++) {
                const int at = i / 4, pair = i % 4 * 2;
                lane[i]->r[m] = turned ? value(m, pair, at) | value(m, pair + 1, at) << 16
                                       : value(m, at, pair) | value(m, at, pair + 1) << 16;
            }
    };
    if (turned) together(&own, [&](matrix_lane **lane) { compute(lane, true); });
    else together(&own, [&](matrix_lane **lane) { compute(lane, false); });
    memcpy(r, own.r, sizeof own.r);
}
struct word_lane {
    uint32_t x, result;
};
inline uint32_t turn_matrix(uint32_t x) {  // movmatrix
    word_lane own = {x, 0};
    together(&own, [](word_lane **lane) {
        auto value = [&](int row, int column) { return lane[row * 4 + column / 2]->x >> (column % 2 * 16) & 0xffff; };
        for (int i = 0; i < 32; i++) {
            const int row = i / 4, column = i % 4 * 2;
            lane[i]->result = value(column, row) | value(column + 1, row) << 16;
        }
    });
    return own.result;
}

// >>tensor-cores -------------------------------------------------------------------------------------------------
inline float of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
inline uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}
// Sixteen values of bf16, and their exponents. That of a subnormal number is the smallest one's; that of zero is far
// below all others.
struct sixteen {
    enum { OF_ZERO = -100000, OF_SPECIAL = 128 };
    double value[16];
    int exponent[16];
    bool special = false;  // some value is infinite or not a number
    bool zero = true;      // all are
};
inline double power_of_two(int n) {
    const uint64_t bits = (uint64_t)(n + 1023) << 52;
    double value;
    memcpy(&value, &bits, 8);
    return value;
}
inline int exponent_of(float x) {
    return x == 0 ? (int)sixteen::OF_ZERO : std::max((int)(bits_of(x) >> 23 & 0xff), 1) - 127;
}
inline void set(sixteen *of, int i, uint32_t bits) {
    const float x = of_bits(bits);
    of->value[i] = x, of->exponent[i] = exponent_of(x);
    of->special |= of->exponent[i] == sixteen::OF_SPECIAL;
    of->zero &= x == 0;
}

inline int kept_bits = 25;  // below the largest exponent. A control of tests/cuda/steps.cu sets another number

// sum + a[0] b[0] + ... + a[15] b[15]
inline float step(float sum, const sixteen &a, const sixteen &b) {
    int largest = exponent_of(sum);
    if (a.special || b.special || largest == sixteen::OF_SPECIAL) {
        double all = sum;
        for (int i = 0; i < 16; i++) all += a.value[i] * b.value[i];
        return std::isnan(all) ? of_bits(0x7fffffff) : (float)all;
    }
    if (a.zero || b.zero) return sum == 0 ? 0.0f : sum;  // which has no bits to cut
    for (int i = 0; i < 16; i++) largest = std::max(largest, a.exponent[i] + b.exponent[i]);
    if (largest <= sixteen::OF_ZERO / 2) return 0.0f;
    const double scale = power_of_two(kept_bits - largest);
    int64_t total = (int64_t)((double)sum * scale);
    int32_t cut[16];  // addends are below 2^(kept_bits + 2)
    for (int i = 0; i < 16; i++) cut[i] = (int32_t)(a.value[i] * b.value[i] * scale);
    for (int i = 0; i < 16; i++) total += cut[i];
    if (!total) return 0.0f;
    const double value = (double)total * power_of_two(largest - kept_bits);
    float result = (float)value;
    if (std::fabs((double)result) > std::fabs(value) && std::fabs(value) < power_of_two(128))
        result = std::nextafterf(result, 0.0f);
    return result == 0 ? 0.0f : result;
}

struct mma_lane {
    float *c;
    uint32_t a[4], b[2];
};
// c[16 x 8] += a[16 x 16] b[16 x 8]: the layouts of the PTX manual for mma.m16n8k16.
inline void mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    mma_lane own = {c, {a[0], a[1], a[2], a[3]}, {b0, b1}};
    together(&own, [](mma_lane **lane) {
        sixteen rows[16], columns[8];
        for (int i = 0; i < 32; i++)
            for (int half = 0; half < 2; half++) {
                auto element = [&](uint32_t word) { return half ? word & 0xffff0000u : word << 16; };
                const int g = i / 4, k = i % 4 * 2 + half;
                for (int r = 0; r < 4; r++) set(&rows[g + r % 2 * 8], k + r / 2 * 8, element(lane[i]->a[r]));
                for (int r = 0; r < 2; r++) set(&columns[g], k + r * 8, element(lane[i]->b[r]));
            }
        for (int i = 0; i < 32; i++)
            for (int r = 0; r < 4; r++)
                lane[i]->c[r] = step(lane[i]->c[r], rows[i / 4 + r / 2 * 8], columns[i % 4 * 2 + r % 2]);
    });
}

}  // namespace emulator

// >>names --------------------------------------------------------------------------------------------------------
#define __syncthreads() emulator::wait_at(&emulator::here->all, emulator::here->live)
#define __syncwarp() emulator::sync_warp()
#define __shfl_xor_sync(mask, value, other) \
    emulator::shuffle(emulator::whole(mask, value), emulator::self->index % 32 ^ (other))
#define __shfl_sync(mask, value, from) emulator::shuffle(emulator::whole(mask, value), from)
#define __shfl_up_sync(mask, value, by)                                                    \
    emulator::shuffle(emulator::whole(mask, value), emulator::self->index % 32 < (int)(by) \
                                                        ? emulator::self->index % 32       \
                                                        : emulator::self->index % 32 - (int)(by))
#define __ballot_sync(mask, value) emulator::ballot(emulator::whole(mask, (bool)(value)))
#define __all_sync(mask, value) (emulator::ballot(emulator::whole(mask, (bool)(value))) == 0xffffffffu)
#define __threadfence() std::atomic_thread_fence(std::memory_order_seq_cst)
#define __trap() abort()
#define __cvta_generic_to_shared(p) ((size_t)((const unsigned char *)(p)-emulator::here->shared))
#define __ldcg(p) (*(p))
#define __ldcs(p) (*(p))
#define __popc(x) __builtin_popcount(x)
#define __fmul_rn(a, b) ((float)(a) * (float)(b))
#define __fadd_rn(a, b) ((float)(a) + (float)(b))
#define __fsub_rn(a, b) ((float)(a) - (float)(b))
#define __fdiv_rn(a, b) ((float)(a) / (float)(b))
#define __fsqrt_rn(a) sqrtf(a)
#define __float_as_uint(x) emulator::bits_of(x)
#define __uint_as_float(x) emulator::of_bits(x)
#define __float_as_int(x) ((int)emulator::bits_of(x))
#define __int_as_float(x) emulator::of_bits((uint32_t)(x))
#define atomicAdd(p, v) __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST)

namespace emulator {
template <typename T> T whole(unsigned mask, T value) {
    if (mask != 0xffffffffu) end_with("part of a warp");
    return value;
}
}  // namespace emulator

// The primitives of kernels.cu.
#define LLM42__EMULATED 1
inline void llm42__copy16(uint32_t to, const void *from, bool valid) {
    const emulator::late_copy copy = {to, from, valid};
    emulator::here->random = emulator::mix(emulator::here->random);
    if (emulator::here->random % 2) emulator::self->late.push_back(copy);
    else emulator::arrive(copy);
}
inline void llm42__copy_commit() { emulator::self->groups.push_back(emulator::self->late.size()); }
template <int LEFT> void llm42__copy_wait() { emulator::arrive_all_but(LEFT + emulator::wait_fault); }
inline void llm42__fence_async() {}
inline void llm42__load_matrices(uint32_t r[4], uint32_t address) { emulator::load_matrices(r, address, false); }
inline void llm42__load_matrices_transposed(uint32_t r[4], uint32_t address) {
    emulator::load_matrices(r, address, true);
}
inline void llm42__mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1) { emulator::mma(c, a, b0, b1); }
inline uint32_t llm42__transposed(uint32_t x) { return emulator::turn_matrix(x); }
inline void llm42__barrier(int id, int threads) { emulator::wait_at(&emulator::here->named[id], threads); }
inline void llm42__arrive(int id, int threads) {
    emulator::here->named[id].arrived++;
    emulator::release(&emulator::here->named[id], threads);
}
inline uint4 llm42__load_shared_by_ranks(const void *from) {
    uint4 v;
    memcpy(&v, from, sizeof v);
    return v;
}
inline uint4 llm42__await_shared_by_ranks(const void *from) {
    emulator::pause();
    const uint32_t *word = (const uint32_t *)from;
    uint32_t v[4];
    for (int i = 0; i < 4; i++) v[i] = __atomic_load_n(word + i, __ATOMIC_ACQUIRE);
    return {v[0], v[1], v[2], v[3]};
}
inline void llm42__store_shared_by_ranks(uint4 *to, uint4 v) {
    const uint32_t word[4] = {v.x, v.y, v.z, v.w};
    for (int i = 0; i < 4; i++) __atomic_store_n((uint32_t *)to + i, word[i], __ATOMIC_RELEASE);
}
inline void llm42__put_mail(ulonglong2 *to, uint32_t first, uint32_t second, unsigned stamp) {
    const unsigned long long high = (unsigned long long)stamp << 32;
    __atomic_store_n(&to->x, high | first, __ATOMIC_RELEASE);
    __atomic_store_n(&to->y, high | second, __ATOMIC_RELEASE);
}
inline ulonglong2 llm42__get_mail(const ulonglong2 *from) {
    emulator::pause();
    ulonglong2 v;
    v.x = __atomic_load_n(&from->x, __ATOMIC_ACQUIRE), v.y = __atomic_load_n(&from->y, __ATOMIC_ACQUIRE);
    return v;
}
inline void llm42__tell(unsigned *flag, unsigned value) { __atomic_store_n(flag, value, __ATOMIC_RELEASE); }
inline unsigned llm42__seen(const unsigned *flag) {
    emulator::pause();
    return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}
#endif
