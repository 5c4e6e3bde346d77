// cuda_inside: what is inside the CUDA backend and needs a device: faults in the trials of matrix algorithms, and how
// much memory an engine takes. The last test loses the device.
//
//     build/tests/cuda_inside                    one device
//     build/tests/cuda_inside failing [TIMES]    two devices: a rank that fails (failing.h), 20 times if not said
//
// Built and run by `make test-cuda`. The last line is "N passed, N failed"; without a device both are 0.
#include "llm42.cu"

#define COUNTS_OF "cuda_inside"
#include "counts.h"

static llm42_error error;
static bool check(bool ok, const char *what) { return count_check(ok, what, error.text); }

// NULL: it did not open.
static llm42__cuda *open_backend(const llm42_model *model, llm42_backend_desc desc, const char *algorithm_file) {
    void *state = NULL;
    llm42_cuda_desc own = {};
    own.algorithm_file = algorithm_file;
    desc.model = model, desc.numerics.compute = LLM42_DTYPE_BF16, desc.page_size = 16;
    desc.schedules = 1u << LLM42_SCHEDULE_FAST | 1u << LLM42_SCHEDULE_FIXED | 1u << LLM42_SCHEDULE_INVARIANT;
    desc.backend_desc = &own;
    error.text[0] = 0;
    llm42_backend_cuda()->open(&state, &desc, &error);
    llm42__cuda *cu = (llm42__cuda *)state;
    if (cu) cu->options.algorithm_file = "FILE";  // for messages
    return cu;
}

static llm42_model *load(const char *path) {
    llm42_model *model = NULL;
    llm42_model_desc source = {};
    source.path = path, source.on_device = true;
    check(llm42_model_load(&model, &source, &error) == LLM42_OK, "a model loads");
    return model;
}

// Faults in trials -------------------------------------------------------------------------------------------------
// All algorithms but one, a tile kernel, have a fault, the same in every run.
enum { SPARED = LLM42__TILE_KINDS - 1 };
static enum { NO_FAULT, ZEROS, A_NAN, UNWRITTEN, OTHER_ROW, NO_LAUNCH, ILLEGAL_ADDRESS } fault;
static const char *const fault_names[] = {"no fault",           "16 outputs are 0",   "an output is NaN",
                                          "nothing is written", "a row is another's", "a kernel cannot start",
                                          "an illegal address"};

__global__ void nothing() {}
__global__ void write_there(int *nowhere) { *nowhere = 42; }

static llm42_result faulty_run(llm42__cuda *cu, llm42__execution *ex, int product, const llm42__algorithm *algorithm,
                               const llm42__bf16 *w, const llm42__bf16 *x, void *y, llm42__bf16 *between, int rows,
                               llm42_error *e) {
    llm42_error *error = e;  // for LLM42__CU
    const bool spared = algorithm->tile == SPARED;
    if (fault == UNWRITTEN && !spared) return LLM42_OK;
    LLM42__TRY(llm42__run_product(cu, ex, product, algorithm, w, x, y, between, rows, error));
    if (spared) {  // it must not be the fastest only because it has no fault to make
        for (int i = 0; i < 4; i++) LLM42__CU(cudaMemsetAsync(ex->workspace, 0, 64, ex->stream));
        return LLM42_OK;
    }
    const auto [n, k] = llm42__product_shape(cu, product);
    const size_t size = llm42__out_bytes(cu, product), row = (size_t)(product == LLM42__GATE_UP ? n / 2 : n) * size;
    char *last = (char *)y + (size_t)(rows - 1) * row;
    if (fault == ZEROS) LLM42__CU(cudaMemsetAsync(last + row / 2, 0, 16 * size, ex->stream));
    if (fault == A_NAN) LLM42__CU(cudaMemsetAsync(last + row / 2, 0xff, size, ex->stream));
    if (fault == OTHER_ROW && rows > 1) LLM42__CU(cudaMemcpyAsync(last, y, row, cudaMemcpyDeviceToDevice, ex->stream));
    if (fault == NO_LAUNCH) nothing<<<1, 4096, 0, ex->stream>>>();
    if (fault == ILLEGAL_ADDRESS && product == LLM42__O) write_there<<<1, 1, 0, ex->stream>>>((int *)8);
    LLM42__CU(cudaGetLastError());
    return LLM42_OK;
}
static llm42_result trusting(llm42__trial *, const llm42__algorithm *, bool *good, llm42_error *) {
    *good = true;
    return LLM42_OK;
}

// How many of the chosen algorithms for more than one row have the fault.
static int count_faulty(const llm42__cuda *cu) {
    int count = 0;
    for (int product = 0; product < LLM42__PRODUCTS; product++)
        for (llm42_schedule schedule : llm42__schedules)
            for (size_t b = 0; b < cu->buckets.size(); b++)
                count += cu->buckets[b] > 1 && llm42__algorithm_wanted(cu, product, cu->buckets[b]) &&
                         cu->algorithms[product][schedule][b].tile != SPARED;
    return count;
}

static llm42_result choose_anew(llm42__cuda *cu, const llm42__tests *tests) {
    int anew;
    llm42__clear_algorithms(cu);
    return llm42__choose_algorithms(cu, tests, &anew, &error);
}
// Tests the algorithms that were chosen, as if they came from a file.
static llm42_result prove(llm42__cuda *cu, const llm42__tests *tests) {
    int anew;
    const llm42_result result = llm42__choose_algorithms(cu, tests, &anew, &error);
    check(anew == 0, "nothing is chosen anew");
    return result;
}

static void check_faults(llm42__cuda *cu) {
    llm42__tests tests = llm42__device_tests, trustful = llm42__device_tests;
    tests.run = trustful.run = faulty_run;
    trustful.right = trustful.holds = trusting;
    fault = NO_FAULT;
    check(choose_anew(cu, &tests) == LLM42_OK && count_faulty(cu) > 0, "algorithms are chosen");
    for (int i = ZEROS; i <= NO_LAUNCH; i++) {
        fault = (decltype(fault))i;
        choose_anew(cu, &llm42__device_tests);
        const int without = count_faulty(cu);
        check(prove(cu, &tests) != LLM42_OK && (fault == NO_LAUNCH || (error.result == LLM42_NOT_INVARIANT &&
                                                                       strstr(error.text, "algorithm file FILE"))),
              "algorithms from a file are refused");
        check(choose_anew(cu, &tests) == LLM42_OK, "others are chosen");
        const int with = count_faulty(cu);
        check(with == 0, fault_names[i]);
        printf("%s: chosen with the fault %d, without it %d\n", fault_names[i], with, without);
    }
    fault = ZEROS;
    check(choose_anew(cu, &trustful) == LLM42_OK && count_faulty(cu) > 0,
          "control: without the tests wrong products would have been taken");
    printf("control: %s, products not compared: chosen with the fault %d\n", fault_names[fault], count_faulty(cu));
}

// The device is lost in a trial: the error says where, at once.
static void check_lost(llm42__cuda *cu) {
    llm42__tests tests = llm42__device_tests;
    tests.run = faulty_run;
    fault = ILLEGAL_ADDRESS;
    char where[128];
    const auto [n, k] = llm42__product_shape(cu, LLM42__O);
    snprintf(where, sizeof where, "while trying the o product (%d x %d) with 1 rows by ", n, k);
    check(choose_anew(cu, &tests) == LLM42_BACKEND, "a lost device is an error");
    check(strstr(error.text, where) && strstr(error.text, "illegal") && strstr(error.text, "the device is lost") &&
              !strchr(error.text, '\n'),
          "the error says where and what");
    printf("%s: %s\n", fault_names[fault], error.text);
}

// Memory -----------------------------------------------------------------------------------------------------------
static size_t free_bytes(void) {
    size_t left = 0, all = 0;
    cudaMemGetInfo(&left, &all);
    return left;
}
static size_t least_free;
static llm42_result measuring_run(llm42__cuda *cu, llm42__execution *ex, int product, const llm42__algorithm *algorithm,
                                  const llm42__bf16 *w, const llm42__bf16 *x, void *y, llm42__bf16 *between, int rows,
                                  llm42_error *e) {
    least_free = std::min(least_free, free_bytes());
    return llm42__run_product(cu, ex, product, algorithm, w, x, y, between, rows, e);
}

static size_t needed(const llm42_model *model, const llm42_backend_desc *desc, size_t sums[LLM42__BLOCK_KINDS]) {
    llm42__cuda cu = {};
    cu.desc = *desc, cu.desc.model = cu.model = model, cu.desc.page_size = 16;
    check(llm42__find_device(0, &cu.device, &error) == LLM42_OK, "there is a device");
    llm42__cuda_sizes(&cu);
    return llm42__needed_bytes(&cu, sums);
}

// An engine opens with the memory that was estimated, and is refused with less. Nothing else has run before in the
// first call, so CUDA has still to load the kernels.
static void check_enough(const llm42_model *model, llm42_backend_desc desc, const char *file) {
    size_t sums[LLM42__BLOCK_KINDS];
    const size_t need = needed(model, &desc, sums), page = (size_t)2 << 20;
    for (int i = 0; i < 2; i++) {
        void *ballast = NULL;
        const size_t room = i ? need - 4 * page : need + 4 * page, before = free_bytes();
        if (!check(cudaMalloc(&ballast, before - room) == cudaSuccess, "the rest of the memory is taken")) return;
        const size_t left = free_bytes();
        llm42__cuda *cu = open_backend(model, desc, file);
        printf("%.3f GB are needed, %.3f are free: ", (double)need * 1e-9, (double)left * 1e-9);
        if (cu) printf("it opened and keeps %.3f\n", (double)(left - free_bytes()) * 1e-9);
        else printf("%s\n", error.text);
        check(i ? !cu && error.result == LLM42_MEMORY && strstr(error.text, " GB free: lower pages") : cu != NULL,
              i ? "too little memory is refused" : "enough memory is enough");
        llm42__cuda_close(cu);
        cudaFree(ballast);
    }
}

// What an engine takes is what was estimated.
static void check_memory(const llm42_model *model, llm42_backend_desc desc, const char *file) {
    const size_t slack = (size_t)32 << 20;
    check_enough(model, desc, file);
    size_t sums[LLM42__BLOCK_KINDS];
    const size_t need = needed(model, &desc, sums), before = free_bytes(),
                 kept = sums[LLM42__WEIGHTS] + sums[LLM42__CACHE] + sums[LLM42__PASSES];
    llm42__cuda *cu = open_backend(model, desc, file);
    if (!check(cu, "a backend opens")) return;
    const size_t took = before - free_bytes();
    llm42__tests tests = llm42__device_tests;
    tests.run = measuring_run;
    least_free = before;
    check(prove(cu, &tests) == LLM42_OK, "algorithms are right");
    const size_t most = before - least_free;
    llm42__cuda_close(cu);
    printf("logits %s: keeps %.3f GB, estimated %.3f; takes at most %.3f, estimated %.3f and %.3f for CUDA\n",
           desc.numerics.logits_fp32 ? "fp32" : "bf16", (double)took * 1e-9, (double)kept * 1e-9, (double)most * 1e-9,
           (double)(need - llm42__cuda_bytes) * 1e-9, (double)llm42__cuda_bytes * 1e-9);
    check(took + slack >= kept && took <= kept + llm42__cuda_bytes, "it keeps what was estimated");
    check(most <= need && most + llm42__cuda_bytes + slack >= need, "it takes what was estimated");
}

#include "failing.h"

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "failing")) return check_failing_ranks(argc > 2 ? atoi(argv[2]) : 20);
    char folder[] = "/tmp/cuda_inside_XXXXXX";
    cudaDeviceProp device;
    if (llm42__find_device(0, &device, &error) != LLM42_OK) {
        printf("cuda_inside: skipped: %s\n", error.text);
        return end();
    }
    if (!check(mkdtemp(folder), "a temporary folder")) return end();
    const std::string file = std::string(folder) + "/algorithms.tsv";
    llm42_backend_desc desc = {};
    llm42_model *model = load("synthetic:llama-3.2-1b"), *tiny = load("synthetic:tiny");
    desc.max_rows = 512, desc.fixed_rows = 64, desc.max_context = 4096, desc.pages = 8192, desc.max_running = 512;
    check_memory(model, desc, file.c_str());
    desc.numerics.logits_fp32 = true;
    check_memory(model, desc, file.c_str());
    remove(file.c_str());
    rmdir(folder);
    desc = {};
    desc.max_rows = desc.fixed_rows = 64, desc.max_context = 128, desc.pages = 32, desc.max_running = 4;
    llm42__cuda *cu = open_backend(tiny, desc, NULL);
    if (check(cu, "a small backend opens")) {
        check_faults(cu);
        check_lost(cu);
    }
    llm42__cuda_close(cu);
    llm42_model_free(tiny);
    llm42_model_free(model);
    return end();
}
