// ceilings.c: what the memory and the multiply-adds of this machine can do, with the threads that the engine gets.
#include "sweep/bench/bench.h"

#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__))
#include <immintrin.h>
#endif

// Processor seconds of all threads of this process.
static double processor_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// 64 bytes: one register where there is AVX-512, else the compiler takes two or four.
typedef uint64_t wide __attribute__((vector_size(64)));

static volatile uint64_t sink;  // takes results, so that the compiler cannot leave the work out

// One stream of whole cache lines into eight accumulators: enough loads in flight for any level of the memory.
static uint64_t read_wide(const wide *data, size_t count) {
    wide sum[8];
    memset(sum, 0, sizeof sum);
    for (size_t i = 0; i + 8 <= count; i += 8)
        for (int j = 0; j < 8; j++) sum[j] ^= data[i + (size_t)j];
    for (int j = 1; j < 8; j++) sum[0] ^= sum[j];
    return sum[0][0];
}

// GB/s that `threads` threads read a buffer with, each its own part, over and over.
static double memory_ceiling(const wide *data, size_t bytes, int threads, int repeats) {
    double times[64], best = 0;
    size_t part = bytes / sizeof(wide) / (size_t)threads;
    int loops = (int)((96u << 20) / bytes) + 1;
    for (int group = 0; group < 5; group++) {
        for (int r = 0; r < repeats; r++) {
            double begin = wall_seconds();
            uint64_t used = 0;
            PARALLEL("omp parallel for num_threads(threads) schedule(static, 1) reduction(+ : used)")
            for (int t = 0; t < threads; t++)
                for (int i = 0; i < loops; i++) {
                    used += read_wide(data + part * (size_t)t, part);
                    __asm__ volatile("" ::: "memory");  // or one reading would do for all loops
                }
            times[r] = wall_seconds() - begin;
            sink = used;
        }
        double rate = 1e-9 * (double)(part * sizeof(wide)) * threads * loops / median(times, repeats);
        if (rate > best) best = rate;
    }
    return best;
}

// Twelve independent chains of multiply-add: more than latency x units, and few enough for sixteen registers.
enum { CHAINS = 12, FMA_LOOPS = 500000 };
#if defined(__AVX512F__)
enum { LANES = 16 };
static float fma_loop(void) {
    __m512 a[CHAINS], x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
    for (int j = 0; j < CHAINS; j++) a[j] = _mm512_set1_ps((float)j);
    for (int i = 0; i < FMA_LOOPS; i++)
        for (int j = 0; j < CHAINS; j++) a[j] = _mm512_fmadd_ps(a[j], x, y);
    for (int j = 1; j < CHAINS; j++) a[0] = _mm512_add_ps(a[0], a[j]);
    return _mm512_cvtss_f32(a[0]);
}
#elif defined(__AVX2__) && defined(__FMA__)
enum { LANES = 8 };
static float fma_loop(void) {
    __m256 a[CHAINS], x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
    for (int j = 0; j < CHAINS; j++) a[j] = _mm256_set1_ps((float)j);
    for (int i = 0; i < FMA_LOOPS; i++)
        for (int j = 0; j < CHAINS; j++) a[j] = _mm256_fmadd_ps(a[j], x, y);
    for (int j = 1; j < CHAINS; j++) a[0] = _mm256_add_ps(a[0], a[j]);
    return _mm256_cvtss_f32(a[0]);
}
#else
enum { LANES = 4 };
typedef float four __attribute__((vector_size(16)));
// Without an instruction set that the intrinsics above cover, a multiply and an add stand for one multiply-add.
static float fma_loop(void) {
    four a[CHAINS], x = {0.999f, 0.999f, 0.999f, 0.999f}, y = {0.001f, 0.001f, 0.001f, 0.001f};
    for (int j = 0; j < CHAINS; j++) a[j] = y;
    for (int i = 0; i < FMA_LOOPS; i++)
        for (int j = 0; j < CHAINS; j++) a[j] = a[j] * x + y;
    for (int j = 1; j < CHAINS; j++) a[0] += a[j];
    return a[0][0];
}
#endif

static double fma_ceiling(int threads, int repeats) {
    double times[64], best = 0;
    for (int group = 0; group < 5; group++) {
        for (int r = 0; r < repeats; r++) {
            double begin = wall_seconds();
            double used = 0;
            PARALLEL("omp parallel for num_threads(threads) schedule(static, 1) reduction(+ : used)")
            for (int t = 0; t < threads; t++) used += fma_loop();
            times[r] = wall_seconds() - begin;
            sink = (uint64_t)used;
        }
        double rate = 1e-9 * 2.0 * LANES * CHAINS * FMA_LOOPS * threads / median(times, repeats);
        if (rate > best) best = rate;
    }
    return best;
}

double processor_share(const bench *b) {
#ifdef _OPENMP
    int threads = (int)b->set.how.threads;
#else
    int threads = 1;
    (void)b;
#endif
    double begin = wall_seconds(), used = processor_seconds(), result = 0;
    PARALLEL("omp parallel num_threads(threads) reduction(+ : result)")
    while (wall_seconds() - begin < 0.1) result += fma_loop();
    sink = (uint64_t)result;
    return (processor_seconds() - used) / (wall_seconds() - begin) / threads;
}

void run_ceilings(bench *b) {
    int all = (int)b->set.how.threads, repeats = b->set.quick ? 3 : 5;
    size_t far = (size_t)1 << 30, near = (size_t)b->weight_bytes;
    if (near > far) near = far;
    wide *data = allocate(far);
    memset(data, 1, far);
    printf("\nceilings                                 threads        MB     GB/s  GFLOP/s\n");
    for (int t = 1; t <= all; t = t < all && 2 * t > all ? all : 2 * t) {
        progress("ceilings, %d threads", t);
        figures f = figures_of(b, "ceilings", "memory_read_weights_size");
        f.threads = t, f.buffer_mb = 1e-6 * (double)near;
        f.gb_per_s = memory_ceiling(data, near, t, repeats);
        figures g = figures_of(b, "ceilings", "memory_read_far");
        g.threads = t, g.buffer_mb = 1e-6 * (double)far;
        g.gb_per_s = memory_ceiling(data, far, t, repeats);
        figures h = figures_of(b, "ceilings", "fma_fp32");
        h.threads = t;
        double begin = wall_seconds(), used = processor_seconds();
        h.gflop_per_s = fma_ceiling(t, repeats);
        b->got_share = (processor_seconds() - used) / (wall_seconds() - begin) / t;
        if (f.gb_per_s > b->memory_gb_per_s) b->memory_gb_per_s = f.gb_per_s;
        if (h.gflop_per_s > b->fma_gflop_per_s) b->fma_gflop_per_s = h.gflop_per_s;
        progress(NULL);
        printf("memory read, as large as the weights [A]  %6d  %8.1f %8.1f\n", t, f.buffer_mb, f.gb_per_s);
        printf("memory read, beyond the caches            %6d  %8.1f %8.1f\n", t, g.buffer_mb, g.gb_per_s);
        printf("fp32 multiply-add                    [B]  %6d                    %8.1f\n", t, h.gflop_per_s);
        figures_write(b, &f), figures_write(b, &g), figures_write(b, &h);
    }
    printf("Below, shares of memory are of [A], %.1f GB/s, and shares of multiply-add of [B], %.1f GFLOP/s.\n",
           b->memory_gb_per_s, b->fma_gflop_per_s);
    if (b->got_share < STEADY_SHARE)
        printf("Other programs are using the processor (this one got %.0f%% of its time): all figures are too low.\n",
               100 * b->got_share);
    free(data);
}
