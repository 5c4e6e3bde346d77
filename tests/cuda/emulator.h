// emulator.h: runs kernels.cu on a CPU. Included before kernels.cu, it has what CUDA C++ gives to kernels, and
// primitives of its own in place of those that are written in assembler.
//
// Every CUDA thread is a fiber with a stack of its own, which runs until it waits at a barrier, for the other lanes of
// its warp, or for another device. The fibers of a block take turns on one thread of the host. If all of them wait for
// one another, the emulator names the kernel and ends the program. The blocks of a cluster run together, clusters one
// after the other, and kernels of different streams at the same time, so that devices can wait for each other.
//
// The tensor cores' sum of sixteen products is the one that was measured on an H200, as tests/cuda/steps.cu says. The
// code here shares nothing with the library.
//
// A GPU runs threads in any order, and a copy to shared memory arrives at any time until it is waited for. So here the
// order of a cluster's threads is drawn from EMULATOR_SEED (default 1), and so is which of its blocks begins late.
// Warps rest for a while in turns, so that others get ahead of them as far as barriers let them. For each copy it is
// drawn whether it arrives at once or only when it is waited for, and in which order those of one mbarrier arrive. A
// warpgroup's products read their operands when they are committed, or only when they are waited for. Until then their
// sums are no numbers. (Blocks, or clusters of them, keep their order: some wait for what others of a device send.)
//
// EMULATOR_FAULT is for controls:
//   wait      each wait for copies leaves one group more than it should
//   barrier   no thread waits at a barrier of its block, except at the first, which follows the opening of mbarriers
//   mbarrier  no thread waits at an mbarrier
//   cluster   a cluster's blocks do not wait for one another
//   product   each wait for a warpgroup's products leaves one group more than it should
//   swizzle   a box is copied without exchanging the pieces of its rows
//   begin     no thread waits for the kernel ahead (with EMULATOR_EARLY)
//   power     2^x is a unit too large in one row of Hopper's table, 1/2 <= x < 33/64
//
// A kernel that is launched with programmatic dependence may begin before those ahead of it have ended. With
// EMULATOR_EARLY=1 what a thread copies by cp.async before it waits for them is what memory had when the pass began,
// and such a kernel must wait in at least one thread. (This reads the memory of all devices: use it with one rank.)
// EMULATOR_PROCESSORS is how many multiprocessors the GPU has (default 132). With few of them a block has many tasks.
//
// These are not emulated: cuBLASLt; fences, and the order in which a GPU's caches see writes; registers that move
// between warpgroups; what else a kernel reads or writes before it waits for those ahead of it.
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
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include <cuda.h>
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
// REST: after so many turns the warps that rest are drawn anew.
enum { STRIDE = 1031, REST = 16, MOST_THREADS = 1024, STACK = 192 << 10, SHARED = 232448 };

// A barrier: its turn ends when as many threads have come as it waits for.
struct gate {
    int arrived = 0;
    unsigned turn = 0;
};

// Where a fiber, or the scheduler, goes on. x86-64 has a switch of its own, since swapcontext makes a system call.
#ifdef __x86_64__
struct place {
    void *stack_top;
};
extern "C" void emulator_switch(place *from, const place *to);
__asm__(".text\n.weak emulator_switch\nemulator_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov (%rsi), %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\n"
        "pop %rcx\njmp *%rcx\n");  // a processor would predict wrongly where a return leads
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

struct late_copy {  // of 16 bytes, to shared memory: cp.async
    uint32_t to;
    const void *from;
    bool valid;
};

struct fiber {
    place at;
    std::vector<late_copy> late;
    std::vector<size_t> groups;  // of these: how many there were at each commit
    bool waited;                 // for the kernel ahead
    unsigned char *stack = nullptr;
    bool done = true;
    const gate *waits = nullptr;  // has no turn before this gate opens
    unsigned closed;              // the gate's turn until then
    uint3 thread;
    int index;
    ~fiber() { free(stack); }
};

// Sums in registers of a warp's lanes that a warpgroup's products add to. The registers hold no numbers meanwhile.
struct running_sums {
    float *lane[32];
    size_t floats;             // of a lane
    unsigned group;            // the last one that adds to them
    std::vector<float> value;  // [32][floats]
};
struct product {  // a warp's part of a warpgroup's product
    float *sums;  // of lane 0
    uint32_t a[32][4];
    uint64_t a_shared, b;  // operands in shared memory; a_shared 0: a
    bool turned, add, e4m3;
    unsigned group;
};
struct warp {
    gate meet;
    void *lane[32];  // what each lane has brought
    std::vector<running_sums> sums;
    std::vector<product> products;  // that have not been computed
    unsigned groups;                // that have been committed
};

struct block {
    const void *kernel;
    uint3 index;
    dim3 threads;
    size_t bytes;  // of dynamic shared memory
    int live;      // threads that have not ended
    gate all;
    warp warps[MOST_THREADS / 32];
    fiber fibers[MOST_THREADS];
    void (*call)(void *) = nullptr;
    void *closure = nullptr;
    alignas(1024) unsigned char shared[SHARED];
};

// What comes to the shared memory of a block, and counts for an mbarrier there.
struct arrival {
    uint32_t barrier;  // an address in a cluster
    int bytes;
    std::function<void()> bring;
};

struct cluster {
    std::vector<std::unique_ptr<block>> blocks;
    int size, live;  // blocks; threads that have not ended
    bool progress;   // a thread has done something since all have had their turn
    uint64_t random;
    gate all;
    std::vector<arrival> late;
    place scheduler;
};

inline thread_local cluster *around;
inline thread_local block *here;
inline thread_local fiber *self;

inline const uint64_t seed = getenv("EMULATOR_SEED") ? strtoull(getenv("EMULATOR_SEED"), nullptr, 10) : 1;
inline bool fault(const char *name) { return getenv("EMULATOR_FAULT") && !strcmp(getenv("EMULATOR_FAULT"), name); }
inline const bool wait_fault = fault("wait"), barrier_fault = fault("barrier"), mbarrier_fault = fault("mbarrier"),
                  cluster_fault = fault("cluster"), product_fault = fault("product"), swizzle_fault = fault("swizzle"),
                  begin_fault = fault("begin"), power_fault = fault("power"), early = getenv("EMULATOR_EARLY");

// Device memory, and what this stream's pass found there when it began.
inline std::mutex memory_mutex;
inline std::map<const unsigned char *, size_t> memory;  // bytes of each block
inline thread_local std::map<const unsigned char *, std::vector<unsigned char>> before;
inline thread_local bool begins = true;   // no kernel has run since memory was last copied or set
inline thread_local bool waited = false;  // a thread of this kernel has waited for those ahead
inline void begin_pass() {
    if (!early || !begins) return;
    std::lock_guard<std::mutex> hold(memory_mutex);
    begins = false;
    for (auto block = before.begin(); block != before.end();)
        block = memory.count(block->first) ? std::next(block) : before.erase(block);
    for (auto &block : memory) before[block.first].assign(block.first, block.first + block.second);
}
inline const void *as_it_was(const void *p) {
    auto block = before.upper_bound((const unsigned char *)p);
    if (block == before.begin()) return p;
    const size_t at = (size_t)((const unsigned char *)p - (--block)->first);
    return at < block->second.size() ? block->second.data() + at : p;
}

inline uint64_t mix(uint64_t x) {  // the numbers of SplitMix64
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

inline uint64_t draw() { return around->random = mix(around->random); }

__attribute__((noinline)) inline void yield() { emulator_switch(&self->at, &around->scheduler); }

// A thread ends. Those at a barrier of all threads wait for one thread less.
inline void release(gate *g, int expected) {
    if (g->arrived < expected || !expected) return;
    g->arrived = 0, g->turn++, around->progress = true;
}
inline void live_fiber() {
    for (;;) {
        here->call(here->closure);
        self->done = true, here->live--, around->live--, around->progress = true;
        if (here->all.arrived) release(&here->all, here->live);
        if (around->all.arrived) release(&around->all, around->live);
        yield();
    }
}

inline void wait_at(gate *g, int expected, bool skipped = barrier_fault) {
    if (skipped && (g != &here->all || g->turn)) return;
    self->closed = g->turn;
    g->arrived++;
    release(g, expected);
    self->waits = g;
    if (g->turn == self->closed) yield();
    self->waits = nullptr;
    around->progress = true;
}

// The lanes of a warp come together. The last one computes what each gets, from what all have brought.
template <typename LANE, typename F> void together(LANE *own, F compute) {
    warp *w = &here->warps[self->index / 32];
    w->lane[self->index % 32] = own;
    if (w->meet.arrived == 31) compute((LANE **)w->lane);
    wait_at(&w->meet, 32, false);
}

inline void arrive(const late_copy &copy, block *b = here) {
    if (copy.valid) memcpy(b->shared + copy.to, copy.from, 16);
    else memset(b->shared + copy.to, 0, 16);
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
    around->progress = true;
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

// A block's number in its cluster begins at bit 24 of an address in the cluster.
inline uint32_t address_in(uint32_t address, uint32_t rank) { return (address & 0xffffff) | (rank + 1) << 24; }
inline block *block_at(uint32_t address) {
    const uint32_t number = address >> 24;
    if (number > (uint32_t)around->size) end_with("no block %u in its cluster", number - 1);
    return number ? around->blocks[number - 1].get() : here;
}
inline unsigned char *shared_at(uint32_t address, size_t bytes) {
    block *b = block_at(address);
    if (!b->live) end_with("the shared memory of a block that has ended");
    if ((address & 0xffffff) + bytes > b->bytes) end_with("byte %u of shared memory", address & 0xffffff);
    return b->shared + (address & 0xffffff);
}

inline void start_block(block *b) {
    const int threads = (int)(b->threads.x * b->threads.y * b->threads.z);
    b->live = threads, b->all = {};
    for (warp &w : b->warps) w.meet = {}, w.groups = 0, w.sums.clear(), w.products.clear();
    memset(b->shared, 0xff, b->bytes);  // as floats these are not numbers
    for (int i = 0; i < threads; i++) {
        b->fibers[i].done = false, b->fibers[i].index = i, b->fibers[i].waited = false;
        b->fibers[i].late.clear(), b->fibers[i].groups.clear();
        b->fibers[i].thread = {(unsigned)i % b->threads.x, (unsigned)i / b->threads.x % b->threads.y,
                               (unsigned)i / b->threads.x / b->threads.y};
    }
}

inline void run_fiber(block *b, fiber *f) {
    here = b, blockIdx = b->index, self = f, threadIdx = f->thread;
    if (!f->stack) {  // stacks of different fibers do not begin in the same sets of the cache
        f->stack = (unsigned char *)malloc(STACK);
        begin_at(&f->at, f->stack, STACK - (size_t)(f->index % 64) * 1088, live_fiber);
    }
    emulator_switch(&around->scheduler, &f->at);
}

// The threads of all blocks of a cluster take turns.
inline void run_cluster(cluster *c) {
    const uint3 index = c->blocks[0]->index;
    const int threads = c->blocks[0]->live, all = threads * c->size, step = STRIDE % all;
    c->live = all, c->all = {};
    c->random = mix(seed ^ mix(index.x ^ (uint64_t)index.y << 20 ^ (uint64_t)index.z << 40));
    // A block may begin late: when the others have run so often, or all wait for it.
    const int late = (int)(draw() % (uint64_t)(c->size + 1));
    uint64_t wait = c->size > 1 ? draw() % 4096 : 0;
    uint32_t resting = 0;  // warps that have no turn for a while, one bit each
    for (uint64_t turn = 0; c->live; turn++) {
        c->progress = false;
        if (turn % REST == 0) resting = (uint32_t)(draw() & draw());
        for (int i = 0, next = (int)(draw() % 1024) % all; i < all;
             i++, next += next < all - step ? step : step - all) {
            const int number = c->size > 1 ? next / threads : 0;
            block *b = c->blocks[(size_t)number].get();
            fiber *f = &b->fibers[next - number * threads];
            if (f->done || (number == late && turn < wait) || (f->waits && f->waits->turn == f->closed)) continue;
            if (resting >> (f->index / 32 + number) % 32 & 1) continue;
            run_fiber(b, f);
        }
        if (!c->progress && (resting || turn < wait)) {
            if (!resting) wait = 0;
            resting = 0, c->progress = true;
        }
        if (!c->progress)
            end_with("%d threads of block (%u, %u) wait for one another for ever", c->live, index.x, index.y);
    }
    if (!c->late.empty() && !mbarrier_fault) end_with("nobody has waited for %zu copies", c->late.size());
    c->late.clear();
}

// `size` blocks are a cluster. dependent: the launch is programmatic.
inline void run_grid(const void *kernel, int size, bool dependent, dim3 grid, dim3 threads, size_t bytes,
                     void (*call)(void *), void *closure) {
    static thread_local cluster own;
    begins = begins || !dependent;
    begin_pass();
    waited = false;
    around = &own, own.size = size;
    while (own.blocks.size() < (size_t)size) own.blocks.emplace_back(new block);
    here = own.blocks[0].get(), here->kernel = kernel;
    if (threads.x * threads.y * threads.z > MOST_THREADS || threads.x % 32) end_with("blocks of %u threads", threads.x);
    if (grid.x % (unsigned)size || bytes > SHARED) end_with("a grid that no GPU runs");
    blockDim = threads, gridDim = grid;
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x += (unsigned)size) {
                for (unsigned i = 0; i < (unsigned)size; i++) {
                    block *b = own.blocks[i].get();
                    b->kernel = kernel, b->index = {x + i, y, z}, b->threads = threads, b->bytes = bytes;
                    b->call = call, b->closure = closure;
                    start_block(b);
                }
                run_cluster(&own);
            }
    if (early && dependent && !waited && !begin_fault) end_with("no thread has waited for the kernel ahead");
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

inline cudaError_t enqueue(cudaStream_t to, work w) {
    if (to) ((stream *)to)->put(std::move(w));
    else w();  // the default stream: nothing else runs meanwhile
    return cudaSuccess;
}

struct shape {  // of a launch by <<<>>>
    dim3 grid, threads;
    size_t bytes;
    cudaStream_t to;
    int cluster;     // blocks of one
    bool dependent;  // programmatic
    shape(dim3 grid, dim3 threads, size_t bytes = 0, cudaStream_t to = nullptr, int cluster = 1, bool dependent = false)
        : grid(grid), threads(threads), bytes(bytes), to(to), cluster(cluster), dependent(dependent) {}
};
// The kernel's arguments are copied when it is launched.
template <typename... PARAMS, typename... ARGS>
cudaError_t launch(const shape &s, void (*kernel)(PARAMS...), const ARGS &...args) {
    auto call = [kernel, all = std::tuple<std::remove_const_t<PARAMS>...>(args...)]() { std::apply(kernel, all); };
    return enqueue(s.to, [=]() mutable {
        run_grid((const void *)kernel, s.cluster, s.dependent, s.grid, s.threads, s.bytes,
                 [](void *closure) { (*(decltype(call) *)closure)(); }, &call);
    });
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
    unsigned value, all, largest;
};
inline vote vote_on(unsigned value) {
    vote own = {value, 0, 0};
    together(&own, [](vote **lane) {
        unsigned all = 0, largest = 0;
        for (int i = 0; i < 32; i++) all |= lane[i]->value, largest = std::max(largest, lane[i]->value);
        for (int i = 0; i < 32; i++) lane[i]->all = all, lane[i]->largest = largest;
    });
    return own;
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
struct store_lane {
    unsigned char *column;
    const uint32_t *r;
};
// stmatrix, turned: what load_matrices would load, of `matrices` matrices.
template <int MATRICES> void store_matrices_turned(uint32_t address, const uint32_t (&r)[MATRICES]) {
    store_lane own = {here->shared + address, r};
    together(&own, [](store_lane **lane) {
        for (int i = 0; i < 32 * MATRICES * 2; i++) {
            const int half = i % 2, m = i / 2 % MATRICES, from = i / 2 / MATRICES;
            const uint16_t v = (uint16_t)(lane[from]->r[m] >> 16 * half);
            memcpy(lane[m * 8 + from % 4 * 2 + half]->column + from / 4 * 2, &v, 2);
        }
    });
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
// Sixteen values of bf16, and their exponents: of a subnormal number the smallest one's; of zero far below all others.
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

// Bits below the largest exponent, and the least that this exponent is. Controls of tests/cuda/steps.cu set others.
inline int kept_bits = 25, least_exponent = -133;

// sum + a[0] b[0] + ... + a[15] b[15]. Addends are cut toward zero and added exactly, and the sum is cut to fp32; a
// zero is +0. Most of the emulator's time is spent here.
#ifndef __clang__
__attribute__((optimize("O3")))
#endif
inline float
step(float sum, const sixteen &a, const sixteen &b) {
    int largest = exponent_of(sum);
    if (a.special || b.special || largest == sixteen::OF_SPECIAL) {
        double all = sum;
        for (int i = 0; i < 16; i++) all += a.value[i] * b.value[i];
        return std::isnan(all) ? of_bits(0x7fffffff) : (float)all;
    }
    if (a.zero || b.zero) return sum == 0 ? 0.0f : sum;  // which has no bits to cut
    for (int i = 0; i < 16; i++) largest = std::max(largest, a.exponent[i] + b.exponent[i]);
    largest = std::max(largest, least_exponent);
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

// The same for 32 products of e4m3, of which 13 bits are kept, and 13 bits of the sum. The values are exact in fp32.
struct thirty_two {
    float value[32];
    int exponent[32];
    bool special = false, zero = true;
    void set(int i, unsigned char byte) {
        static const std::vector<float> values = [] {
            std::vector<float> all(256);
            for (int b = 0; b < 256; b++) {
                const int power = b >> 3 & 15, size = b & 7;
                all[(size_t)b] = (float)std::ldexp(power ? 8 + size : size, (power ? power : 1) - 10) *
                                 (b & 128 ? -1 : 1);
            }
            return all;
        }();
        value[i] = values[byte];
        exponent[i] = byte & 127 ? std::max(byte >> 3 & 15, 1) - 7 : (int)sixteen::OF_ZERO;
        special |= (byte & 127) == 127, zero &= !(byte & 127);
    }
};
inline float step(float sum, const thirty_two &a, const thirty_two &b) {
    int largest = exponent_of(sum);
    if (a.special || b.special || sum != sum) return of_bits(0x7fffffff);
    if (largest == sixteen::OF_SPECIAL || ((a.zero || b.zero) && sum == 0)) return sum == 0 ? 0.0f : sum;
    for (int i = 0; i < 32; i++) largest = std::max(largest, a.exponent[i] + b.exponent[i]);
    if (largest < -1000) return 0.0f;
    const double scale = power_of_two(13 - largest);
    int64_t total = (int64_t)((double)sum * scale);
    int32_t cut[32];  // addends are below 2^15
    for (int i = 0; i < 32; i++) cut[i] = (int32_t)((double)(a.value[i] * b.value[i]) * scale);
    for (int i = 0; i < 32; i++) total += cut[i];
    const int64_t size = std::abs(total);
    const int more = size ? std::max(0, 63 - __builtin_clzll((unsigned long long)size) - 13) : 0;
    const double value = (double)(size >> more << more) * power_of_two(largest - 13);
    return (float)(total < 0 ? -value : value);
}

// Sixteen rows of a, of 16 values each, from the registers of a warp's lanes, as the PTX manual has mma.m16n8k16.
template <typename AT> void set_rows(sixteen (&rows)[16], AT a) {
    for (int i = 0; i < 32 * 4 * 2; i++) {
        const int half = i % 2, r = i / 2 % 4, lane = i / 8;
        const uint32_t word = a(lane, r);
        set(&rows[lane / 4 + r % 2 * 8], lane % 4 * 2 + half + r / 2 * 8, half ? word & 0xffff0000u : word << 16);
    }
}
struct mma_lane {
    float *c;
    uint32_t a[4], b[2];
};
// c[16 x 8] += a[16 x 16] b[16 x 8]
inline void mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    mma_lane own = {c, {a[0], a[1], a[2], a[3]}, {b0, b1}};
    together(&own, [](mma_lane **lane) {
        sixteen rows[16], columns[8];
        set_rows(rows, [&](int i, int r) { return lane[i]->a[r]; });
        for (int i = 0; i < 32 * 2 * 2; i++) {
            const int half = i % 2, r = i / 2 % 2, from = i / 4;
            const uint32_t word = lane[from]->b[r];
            set(&columns[from / 4], from % 4 * 2 + half + r * 8, half ? word & 0xffff0000u : word << 16);
        }
        for (int i = 0; i < 32; i++)
            for (int r = 0; r < 4; r++)
                lane[i]->c[r] = step(lane[i]->c[r], rows[i / 4 + r / 2 * 8], columns[i % 4 * 2 + r % 2]);
    });
}

// >>warpgroups ---------------------------------------------------------------------------------------------------
// The value at (i, k) of an operand in shared memory: row i of a, or column i of b. The word that describes it is that
// of the PTX manual for wgmma. turned: it lies along i and not along k.
inline uint32_t operand_at(uint64_t word, int i, int k, bool turned) {
    const uint32_t start = (uint32_t)(word & 0x3fff) << 4, leading = (uint32_t)(word >> 16 & 0x3fff) << 4,
                   stride = (uint32_t)(word >> 32 & 0x3fff) << 4;
    const int across = turned ? k : i, along = turned ? i : k;
    uint32_t at = start + (uint32_t)(along / 64) * leading + (uint32_t)(across / 8) * stride +
                  (uint32_t)(across % 8 * 128 + along % 64 * 2);
    uint16_t value;
    if (word >> 62 != 1 || word >> 49 & 7) end_with("an operand whose layout is not emulated");
    memcpy(&value, shared_at(at ^ (at >> 3 & 0x70), 2), 2);
    return (uint32_t)value << 16;
}

inline running_sums *sums_of(warp *w, const float *first) {
    for (running_sums &s : w->sums)
        if (s.lane[0] == first) return &s;
    return nullptr;
}
// sums[16 x N] += a[16 x 16] b[16 x N]: lanes have N / 8 times what they have in mma.
template <typename ROWS, typename COLUMNS>
void multiply(const product &p, running_sums *s, const ROWS &rows, const COLUMNS &columns) {
    for (size_t i = 0; i < 32 * s->floats; i++) {
        const size_t lane = i / s->floats, at = i % s->floats;
        s->value[i] = step(p.add ? s->value[i] : 0.0f, rows[lane / 4 + at % 4 / 2 * 8],
                           columns[at / 4 * 8 + lane % 4 * 2 + at % 2]);
    }
}
inline void compute(warp *w, const product &p) {
    running_sums *s = sums_of(w, p.sums);
    sixteen rows[16];
    std::vector<sixteen> columns(s->floats * 2);
    const int first = (int)(w - here->warps) % 4 * 16;
    if (!p.a_shared) set_rows(rows, [&](int i, int r) { return p.a[i][r]; });
    for (int i = 0; p.a_shared && i < 256; i++)
        set(&rows[i / 16], i % 16, operand_at(p.a_shared, first + i / 16, i % 16, false));
    for (int i = 0; i < (int)columns.size() * 16; i++)
        set(&columns[(size_t)i / 16], i % 16, operand_at(p.b, i / 16, i % 16, p.turned));
    multiply(p, s, rows, columns);
}
inline thirty_two e4m3_operand(uint64_t word, int i) {
    thirty_two to;
    for (int k = 0; k < 32; k += 2) {
        const uint32_t pair = operand_at(word, i, k / 2, false) >> 16;
        to.set(k, (unsigned char)pair), to.set(k + 1, (unsigned char)(pair >> 8));
    }
    return to;
}
inline void compute_e4m3(warp *w, const product &p) {
    running_sums *s = sums_of(w, p.sums);
    std::vector<thirty_two> rows, columns;
    const int first = (int)(w - here->warps) % 4 * 16;
    for (int i = 0; i < 16; i++) rows.push_back(e4m3_operand(p.a_shared, first + i));
    for (int i = 0; i < (int)s->floats * 2; i++) columns.push_back(e4m3_operand(p.b, i));
    multiply(p, s, rows, columns);
}
inline void compute_groups(warp *w, unsigned last) {
    size_t done = 0;
    while (done < w->products.size() && w->products[done].group <= last) {
        const product &p = w->products[done++];
        p.e4m3 ? compute_e4m3(w, p) : compute(w, p);
    }
    w->products.erase(w->products.begin(), w->products.begin() + (ptrdiff_t)done);
}

struct product_lane {
    float *c;
    size_t floats;
    const uint32_t *a;
    uint64_t a_shared, b;
    bool turned, add, e4m3 = false;
};
inline void start_product(product_lane own) {
    together(&own, [](product_lane **lane) {
        warp *w = &here->warps[self->index / 32];
        product p = {lane[0]->c,      {},           lane[0]->a_shared, lane[0]->b,
                     lane[0]->turned, lane[0]->add, lane[0]->e4m3,     w->groups + 1};
        running_sums *s = sums_of(w, lane[0]->c);
        if (!s) {
            w->sums.push_back({{}, lane[0]->floats, 0, std::vector<float>(32 * lane[0]->floats)});
            s = &w->sums.back();
            for (int i = 0; i < 32; i++) {
                memcpy(&s->value[(size_t)i * s->floats], s->lane[i] = lane[i]->c, 4 * s->floats);
                memset(lane[i]->c, 0xff, 4 * s->floats);
            }
        }
        s->group = p.group;
        for (int i = 0; i < 32; i++) {
            if (lane[i]->b != p.b || lane[i]->a_shared != p.a_shared) end_with("lanes multiply different operands");
            if (!p.a_shared) memcpy(p.a[i], lane[i]->a, sizeof p.a[i]);
        }
        w->products.push_back(p);
    });
}
inline void commit_products() {
    char none;
    together(&none, [](char **) {
        warp *w = &here->warps[self->index / 32];
        w->groups++;
        if (draw() % 2) compute_groups(w, w->groups);
    });
}
// Waits for all groups but the newest ones.
template <unsigned NEWEST> void wait_for_products() {
    char none;
    together(&none, [](char **) {
        warp *w = &here->warps[self->index / 32];
        const unsigned newest = NEWEST + product_fault, last = w->groups - std::min(newest, w->groups);
        compute_groups(w, last);
        for (size_t i = w->sums.size(); i-- > 0;) {
            const running_sums &s = w->sums[i];
            if (s.group > last) continue;
            for (size_t j = 0; j < 32; j++) memcpy(s.lane[j], &s.value[j * s.floats], 4 * s.floats);
            w->sums.erase(w->sums.begin() + (ptrdiff_t)i);
        }
    });
}

// >>mbarriers ----------------------------------------------------------------------------------------------------
struct mbarrier {                // in its 8 bytes of shared memory
    uint16_t arrivals, missing;  // of a phase; of this one
    int32_t bytes : 31;          // that this phase still waits for
    uint32_t parity : 1;
};
inline mbarrier *mbarrier_at(uint32_t address) {
    mbarrier *b = (mbarrier *)shared_at(address, sizeof *b);
    if (address % 8 || b->arrivals > 4096) end_with("an mbarrier that is not open");  // memory is full of ones
    return b;
}
inline void open_mbarrier(uint32_t address, int arrivals) {
    const mbarrier opened = {(uint16_t)arrivals, (uint16_t)arrivals, 0, 0};
    memcpy(shared_at(address, sizeof opened), &opened, sizeof opened);
}
// Counts arrivals of threads, and bytes that are to come (or have come: fewer than 0).
inline void count(uint32_t address, int arrivals, int bytes) {
    mbarrier *b = mbarrier_at(address);
    if (b->missing < arrivals && !mbarrier_fault) end_with("more arrive at an mbarrier than it waits for");
    b->missing = (uint16_t)(b->missing - arrivals), b->bytes += bytes;
    around->progress = true;
    if (!b->missing && !b->bytes) b->missing = b->arrivals, b->parity ^= 1;
}
inline void finish(const arrival &a) {
    a.bring();
    count(a.barrier, 0, -a.bytes);
}
inline void start(const arrival &a) {
    mbarrier_at(a.barrier);
    if (draw() % 2) around->late.push_back(a);
    else finish(a);
}
// One copy that the mbarrier waits for arrives.
inline bool finish_one(uint32_t barrier) {
    std::vector<arrival> &late = around->late;
    const size_t first = late.empty() ? 0 : draw() % late.size();
    for (size_t i = 0; i < late.size(); i++) {
        const size_t at = (first + i) % late.size();
        if (late[at].barrier != barrier) continue;
        const arrival a = late[at];
        late.erase(late.begin() + (ptrdiff_t)at);
        finish(a);
        return true;
    }
    return false;
}
inline uint32_t rank_here() { return (uint32_t)(here->index.x % (unsigned)around->size); }
// This thread arrives when all copies that it has started have arrived.
inline void arrive_behind_copies(uint32_t address) {
    std::vector<late_copy> copies;
    copies.swap(self->late);
    self->groups.clear();
    block *const b = here;
    start({address_in(address, rank_here()), 0, [=] {
               for (const late_copy &copy : copies) arrive(copy, b);
               count(address, 1, 0);
           }});
}
template <bool CLUSTER = false> void wait_at_mbarrier(uint32_t address, uint32_t parity) {
    while (!mbarrier_fault && mbarrier_at(address)->parity == parity)
        if (!finish_one(address_in(address, rank_here()))) yield();
    around->progress = true;
}

// >>boxes --------------------------------------------------------------------------------------------------------
struct box_map {  // what a CUtensorMap holds here: an array of up to three dimensions, and the size of a box
    const unsigned char *from;
    int64_t size[3], stride[3];  // of the first dimension in bytes
    int box[3], bytes;           // of an element
};
static_assert(sizeof(box_map) <= sizeof(CUtensorMap), "a map that is too large");
// A box's rows of 128 bytes, whose pieces are exchanged by the address: bits 4-6 are changed by bits 7-9.
inline void copy_box(uint32_t to, const box_map &map, int64_t c0, int64_t c1, int64_t c2) {
    for (int row = 0; row < map.box[1] * map.box[2]; row++)
        for (int c = 0; c < 128; c += 16) {
            const int64_t x = c0 * map.bytes + c, y = c1 + row % map.box[1], z = c2 + row / map.box[1];
            const uint32_t at = to + (uint32_t)(row * 128 + c);
            const bool inside = y >= 0 && y < map.size[1] && z >= 0 && z < map.size[2] && x >= 0;
            const int64_t there = inside ? std::min<int64_t>(16, std::max<int64_t>(0, map.size[0] - x)) : 0;
            unsigned char *place = shared_at(swizzle_fault ? at : at ^ (at >> 3 & 0x70), 16);
            memset(place, 0, 16);
            if (there) memcpy(place, map.from + x + y * map.stride[1] + z * map.stride[2], (size_t)there);
        }
}
// To the same place in each block of a set.
inline void start_box(uint32_t to, const CUtensorMap *from, int c0, int c1, int c2, uint32_t barrier, unsigned blocks) {
    box_map map;
    memcpy(&map, from, sizeof map);
    if (to % 128) end_with("a box at byte %u of shared memory", to);
    for (uint32_t rank = 0; rank < (uint32_t)around->size; rank++)
        if (blocks >> rank & 1)
            start({address_in(barrier, rank), map.box[1] * map.box[2] * 128,
                   [=] { copy_box(address_in(to, rank), map, c0, c1, c2); }});
}

}  // namespace emulator

// >>names --------------------------------------------------------------------------------------------------------
#define __syncthreads() emulator::wait_at(&emulator::here->all, emulator::here->live)
#define __syncwarp() ((void)emulator::vote_on(0))
#define __shfl_xor_sync(mask, value, other) \
    emulator::shuffle(emulator::whole(mask, value), emulator::self->index % 32 ^ (other))
#define __shfl_sync(mask, value, from) emulator::shuffle(emulator::whole(mask, value), from)
#define __shfl_up_sync(mask, value, by)                                                    \
    emulator::shuffle(emulator::whole(mask, value), emulator::self->index % 32 < (int)(by) \
                                                        ? emulator::self->index % 32       \
                                                        : emulator::self->index % 32 - (int)(by))
#define __ballot_sync(mask, value) \
    emulator::vote_on((unsigned)emulator::whole(mask, (bool)(value)) << emulator::self->index % 32).all
#define __reduce_max_sync(mask, value) emulator::vote_on(emulator::whole(mask, value)).largest
#define __reduce_min_sync(mask, value) (~emulator::vote_on(~emulator::whole(mask, value)).largest)
#define __all_sync(mask, value) (__ballot_sync(mask, value) == 0xffffffffu)
#define __threadfence() std::atomic_thread_fence(std::memory_order_seq_cst)
#define __trap() abort()
inline size_t __cvta_generic_to_shared(const void *p) {
    const size_t at = (size_t)((const unsigned char *)p - emulator::here->shared);
    if (at >= emulator::here->bytes) emulator::end_with("an address outside of the block's shared memory");
    return at;
}
#define __ldcg(p) (*(p))
#define __ldcs(p) (*(p))
#define __popc(x) __builtin_popcount(x)
#define __ffs(x) __builtin_ffs(x)
#define __fmul_rn(a, b) ((float)(a) * (float)(b))
#define __fadd_rn(a, b) ((float)(a) + (float)(b))
#define __fsub_rn(a, b) ((float)(a) - (float)(b))
#define __fdiv_rn(a, b) ((float)(a) / (float)(b))
#define __fsqrt_rn(a) sqrtf(a)
#define __float_as_uint(x) emulator::bits_of(x)
#define __uint_as_float(x) emulator::of_bits(x)
#define __float_as_int(x) ((int)emulator::bits_of(x))
#define __int_as_float(x) emulator::of_bits((uint32_t)(x))
#define atomicOr(p, v) __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST)
#define atomicAdd(p, v) __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST)

namespace emulator {
template <typename T> T whole(unsigned mask, T value) {
    if (mask != 0xffffffffu) end_with("part of a warp");
    return value;
}
inline float power(float of_x, float x) {
    const bool wrong = power_fault && x >= 0.5f && x < 0.515625f;
    return of_bits(bits_of(of_x) + wrong);
}
}  // namespace emulator

// The primitives of kernels.cu.
#define LLM42__EMULATED 1
#define __CUDA_ARCH_FEAT_SM90_ALL 1
inline void llm42__wait_for_previous() { emulator::self->waited = emulator::waited = !emulator::begin_fault; }
inline void llm42__copy16(uint32_t to, const void *from, bool valid) {
    if (emulator::early && valid && !emulator::self->waited) from = emulator::as_it_was(from);
    const emulator::late_copy copy = {to, from, valid};
    if (emulator::draw() % 2) emulator::self->late.push_back(copy);
    else emulator::arrive(copy);
}
inline void llm42__prefetch(const void *) {}
inline void llm42__copy_commit() { emulator::self->groups.push_back(emulator::self->late.size()); }
inline void llm42__copy_arrive(uint32_t barrier) { emulator::arrive_behind_copies(barrier); }
template <int LEFT> void llm42__copy_wait() { emulator::arrive_all_but(LEFT + emulator::wait_fault); }
inline void llm42__fence_async() {}
#define llm42__load_matrices(...) emulator::load_matrices(__VA_ARGS__, false)
#define llm42__load_matrices_transposed(...) emulator::load_matrices(__VA_ARGS__, true)
#define llm42__mma emulator::mma
inline float llm42__near_inverse(float x) { return 1.0f / x; }
#define llm42__power(x) emulator::power(llm42__ex2(x), x)  // llm42.h comes later
#define llm42__pack_e4m3(low, high) (llm42__to_e4m3(low) | (uint32_t)llm42__to_e4m3(high) << 8)
inline uint32_t llm42__transposed(uint32_t x) { return emulator::turn_matrix(x); }
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
// Products of warpgroups, clusters, mbarriers and the copy engine.
#define LLM42__FOUR(d) "+m"(d[0]), "+m"(d[1]), "+m"(d[2]), "+m"(d[3])
template <int EIGHTS> void llm42__wgmma(float (&c)[EIGHTS][4], const uint32_t (&a)[4], uint64_t b, int add) {
    emulator::start_product({c[0], EIGHTS * 4, a, 0, b, true, add != 0});
}
template <int EIGHTS> void llm42__wgmma(float (&c)[EIGHTS][4], uint64_t a, uint64_t b, int add) {
    emulator::start_product({c[0], EIGHTS * 4, nullptr, a, b, false, add != 0});
}
template <int EIGHTS> void llm42__wgmma_e4m3(float (&c)[EIGHTS][4], uint64_t a, uint64_t b, int add) {
    emulator::start_product({c[0], EIGHTS * 4, nullptr, a, b, false, add != 0, true});
}
inline void llm42__wgmma_fence() {}
inline void llm42__wgmma_commit() { emulator::commit_products(); }
template <int LEFT> void llm42__wgmma_wait() { emulator::wait_for_products<LEFT>(); }
template <int> void llm42__fewer_registers() {}
template <int> void llm42__more_registers() {}
inline uint32_t llm42__block_in_cluster() { return emulator::rank_here(); }
inline uint32_t llm42__address_in(uint32_t address, uint32_t rank) { return emulator::address_in(address, rank); }
template <typename T> const T *llm42__in_block(const T *p, uint32_t rank) {
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(p);
    return (const T *)emulator::shared_at(emulator::address_in(at, rank), sizeof(T));
}
inline void llm42__cluster_barrier() {
    if (!emulator::cluster_fault) emulator::wait_at(&emulator::around->all, emulator::around->live, false);
}
inline void llm42__cluster_meet() { llm42__cluster_barrier(); }
#define llm42__mbarrier_open emulator::open_mbarrier
#define llm42__mbarrier_wait emulator::wait_at_mbarrier
inline void llm42__mbarriers_opened() {}
inline void llm42__mbarrier_expect(uint32_t barrier, uint32_t bytes) { emulator::count(barrier, 1, (int)bytes); }
inline void llm42__mbarrier_arrive(uint32_t barrier) { emulator::count(barrier, 1, 0); }
inline void llm42__mbarrier_arrive_in(uint32_t there) { emulator::count(there, 1, 0); }
inline void llm42__mbarrier_release_in(uint32_t there) { emulator::count(there, 1, 0); }
inline void llm42__store4_in(uint32_t there, const float (&four)[4], uint32_t barrier_there) {
    const float4 value = {four[0], four[1], four[2], four[3]};
    emulator::start({barrier_there, 16, [=] { memcpy(emulator::shared_at(there, 16), &value, 16); }});
}
#define llm42__copy_box_to(to, map, column, row, barrier, blocks) \
    emulator::start_box(to, map, column, row, 0, barrier, blocks)
#define llm42__copy_box3(...) emulator::start_box(__VA_ARGS__, 1u << emulator::rank_here())
#define llm42__copy_box3_once llm42__copy_box3
#define llm42__copy_box(to, map, column, row, barrier) llm42__copy_box3(to, map, column, row, 0, barrier)
#define llm42__store_matrices_turned emulator::store_matrices_turned
#endif
