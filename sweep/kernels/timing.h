// timing.h: what all parts need: the backend that is measured, memory of their own, and the time of launches.
// measure.cu includes it.

// Device memory, given back at the end of its scope.
struct device_memory {
    std::vector<void *> blocks;
    ~device_memory() {
        for (void *block : blocks) cudaFree(block);
    }
    template <typename T> llm42_result take(T **to, size_t count, llm42_error *error) {
        blocks.reserve(blocks.size() + 1);
        LLM42__CU(cudaMalloc((void **)to, std::max<size_t>(count * sizeof(T), 256)));
        blocks.push_back(*to);
        LLM42__CU(cudaMemset(*to, 0, count * sizeof(T)));
        LLM42__CU(cudaDeviceSynchronize());  // the backend's streams do not wait for cudaMemset's
        return LLM42_OK;
    }
};

struct bench {
    const kernels_settings *settings;
    llm42__cuda *cu;
    llm42__execution *ex;
    llm42_cuda_ceilings ceilings;            // of a GPU that has rested
    double sustained_flop, sustained_bytes;  // a second: what lasts (measure_sustained); 0: not measured yet
    uint4 *flush;                            // reading it empties the cache of other data
    unsigned *word;
    llm42__bf16 *noise;  // [NORM_ROWS, widest]
    size_t widest;       // elements of the widest input
};

enum { FLUSH_BYTES = 256 << 20, TIMES = 11, MOST_ROWS = 4096, NORM_ROWS = 8192, KV_PAGES = 8448, PAGE = 16 };
// A GPU that has rested has another clock rate than a busy one: so long the ways run before any time counts.
static const double WARM_SECONDS = 0.5;

// The rows that passes and products have at most.
static int most_rows(const bench *b) { return b->cu->max_rows; }

static bool wanted(const kernels_settings *s, const char *part) {
    return strcmp(s->part, "all") == 0 || strcmp(s->part, part) == 0;
}

static void progress(const bench *b, const char *format, ...) {
    char text[160];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    b->settings->progress(text);
}

static void emit(const bench *b, const kernels_line &line) { b->settings->emit(b->settings->user, &line); }

// What a measurement takes from CUDA, given back at the end of its scope.
struct measurement {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    cudaEvent_t begin[TIMES] = {}, end[TIMES] = {};
    ~measurement() {
        if (exec) cudaGraphExecDestroy(exec);
        if (graph) cudaGraphDestroy(graph);
        for (cudaEvent_t event : begin)
            if (event) cudaEventDestroy(event);
        for (cudaEvent_t event : end)
            if (event) cudaEventDestroy(event);
    }
};

static llm42_result flush_cache(const bench *b, llm42_error *error) {
    llm42__k_read<<<(unsigned)b->cu->device.multiProcessorCount * 4, 512, 0, b->ex->stream>>>(
        b->flush, (size_t)FLUSH_BYTES / 16, b->word);
    LLM42__CU(cudaGetLastError());
    return LLM42_OK;
}

// A way to compute something, which is timed beside others.
struct way {
    int launches;                                               // of a CUDA graph
    std::function<llm42_result(int i, llm42_error *)> enqueue;  // puts launch i into the stream
    double us;                                                  // a launch takes: set by time_in_turn
};

static llm42_result prepare(const bench *b, const way &w, measurement *m, llm42_error *error) {
    cudaStream_t stream = b->ex->stream;
    LLM42__TRY(w.enqueue(0, error));  // loads the kernels
    LLM42__CU(cudaStreamSynchronize(stream));
    LLM42__CU(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    llm42_result result = LLM42_OK;
    for (int i = 0; i < w.launches && result == LLM42_OK; i++) result = w.enqueue(i, error);
    const cudaError_t ended = cudaStreamEndCapture(stream, &m->graph);
    LLM42__TRY(result);
    LLM42__CU(ended);
    LLM42__CU(cudaGraphInstantiate(&m->exec, m->graph, 0));
    for (int i = 0; i < TIMES; i++) {
        LLM42__CU(cudaEventCreate(&m->begin[i]));
        LLM42__CU(cudaEventCreate(&m->end[i]));
    }
    return LLM42_OK;
}

// One round: each way once, with a cold cache.
static llm42_result run_round(const bench *b, const std::vector<measurement> &of, int i, llm42_error *error) {
    for (const measurement &m : of) {
        LLM42__TRY(flush_cache(b, error));
        LLM42__CU(cudaEventRecord(m.begin[i], b->ex->stream));
        LLM42__CU(cudaGraphLaunch(m.exec, b->ex->stream));
        LLM42__CU(cudaEventRecord(m.end[i], b->ex->stream));
    }
    return LLM42_OK;
}

// Times ways in turn, so that changes of the clock rate meet all alike: rounds that do not count for so many seconds,
// at least one, then TIMES rounds, whose median counts.
static llm42_result time_in_turn(const bench *b, double warm_seconds, std::vector<way> *ways, llm42_error *error) {
    std::vector<measurement> of(ways->size());
    for (size_t w = 0; w < of.size(); w++) LLM42__TRY(prepare(b, (*ways)[w], &of[w], error));
    const double begin = llm42__wall_now(NULL);
    do {
        LLM42__TRY(run_round(b, of, 0, error));
        LLM42__CU(cudaStreamSynchronize(b->ex->stream));
    } while (llm42__wall_now(NULL) - begin < warm_seconds);
    for (int i = 0; i < TIMES; i++) LLM42__TRY(run_round(b, of, i, error));
    LLM42__CU(cudaStreamSynchronize(b->ex->stream));
    for (size_t w = 0; w < of.size(); w++) {
        float ms[TIMES];
        for (int i = 0; i < TIMES; i++) LLM42__CU(cudaEventElapsedTime(&ms[i], of[w].begin[i], of[w].end[i]));
        std::sort(ms, ms + TIMES);
        (*ways)[w].us = 1000.0 * (double)ms[TIMES / 2] / (*ways)[w].launches;
    }
    return LLM42_OK;
}

// cuBLASLt's own choice for so many rows: the first of its list, with any way of adding parts of a sum.
static llm42_result first_choice(llm42__cuda *cu, int product, int rows, llm42__algorithm *algorithm,
                                 llm42_error *error) {
    std::vector<llm42__candidate> list;
    *algorithm = llm42__algorithm();
    LLM42__TRY(llm42__lt_layouts(cu, product, rows, algorithm, error));
    LLM42__TRY(llm42__ask_lt(cu, *algorithm, CUBLASLT_REDUCTION_SCHEME_MASK, 0, &list, error));
    if (list.empty())
        return llm42_fail(error, LLM42_UNSUPPORTED, "cuBLASLt offers no algorithm for the %s product with %d rows",
                          llm42__product_names[product], rows);
    *algorithm = list.front().algorithm;
    return LLM42_OK;
}

// One tile of 64 rows and 64 outputs for every number of rows: the simplest batch-invariant product.
static llm42__algorithm fixed_tile(int product) {
    llm42__algorithm algorithm;
    algorithm.tile = (llm42__in_e4m3(product) ? (int)LLM42__ALL_KINDS : (int)LLM42__TILE_KINDS) - 1;
    algorithm.sequential = true;
    return algorithm;
}
