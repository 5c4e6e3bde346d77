// allreduce.h: NCCL's all-reduce, probed like the other operators. It needs three GPUs, because a sum of two numbers
// has one order. NVLink multicast stays off. operators.h includes it.
#ifdef LLM42_NCCL
enum { REDUCED_WIDTH = 4096, LEAST_GPUS = 3 };

struct reducers {
    std::vector<ncclComm_t> comm;
    std::vector<cudaStream_t> stream;
    std::vector<llm42__bf16 *> base, in, out;  // [MOST_ROWS, REDUCED_WIDTH]
    ~reducers() {
        for (size_t i = 0; i < stream.size(); i++) {
            cudaSetDevice((int)i);
            cudaStreamDestroy(stream[i]);
        }
        for (ncclComm_t one : comm) ncclCommDestroy(one);
        for (auto *list : {&base, &in, &out})
            for (llm42__bf16 *block : *list) cudaFree(block);
        cudaSetDevice(0);
    }
};

static llm42_result open_reducers(reducers *r, int gpus, llm42_error *error) {
    const size_t count = (size_t)MOST_ROWS * REDUCED_WIDTH;
    for (int g = 0; g < gpus; g++) {
        LLM42__CU(cudaSetDevice(g));
        cudaStream_t stream;
        LLM42__CU(cudaStreamCreate(&stream));
        r->stream.push_back(stream);
        for (auto *list : {&r->base, &r->in, &r->out}) {
            llm42__bf16 *block;
            LLM42__CU(cudaMalloc((void **)&block, count * sizeof *block));
            list->push_back(block);
        }
        llm42__k_fill<<<1024, 256, 0, stream>>>(r->base.back(), count, 60 + (uint64_t)g, 1.0f);
        LLM42__CU(cudaGetLastError());
        LLM42__CU(cudaStreamSynchronize(stream));
    }
    LLM42__CU(cudaSetDevice(0));
    std::vector<ncclComm_t> comm((size_t)gpus);
    LLM42__CU(ncclCommInitAll(comm.data(), gpus, nullptr));
    r->comm = comm;
    return LLM42_OK;
}

static llm42_result reduce_rows(const reducers *r, int rows, int shift, llm42_error *error) {
    const size_t gpus = r->comm.size(), count = (size_t)rows * REDUCED_WIDTH;
    for (size_t g = 0; g < gpus; g++) {
        LLM42__CU(cudaSetDevice((int)g));
        llm42__k_rotate_rows<<<(unsigned)rows, 256, 0, r->stream[g]>>>(r->base[g], r->in[g], rows, REDUCED_WIDTH,
                                                                       shift);
        LLM42__CU(cudaGetLastError());
    }
    LLM42__CU(ncclGroupStart());
    for (size_t g = 0; g < gpus; g++)
        LLM42__CU(ncclAllReduce(r->in[g], r->out[g], count, ncclBfloat16, ncclSum, r->comm[g], r->stream[g]));
    LLM42__CU(ncclGroupEnd());
    for (size_t g = 0; g < gpus; g++) LLM42__CU(cudaStreamSynchronize(r->stream[g]));
    LLM42__CU(cudaSetDevice(0));
    return LLM42_OK;
}

static llm42_result probe_reduction(const bench *b, const probe_memory &m, int gpus, const char *algorithm,
                                    const char *published_as, llm42_error *error) {
    setenv("NCCL_ALGO", algorithm, 1);  // NCCL reads it when a communicator is made
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    reducers r;
    progress(b, "operators: all-reduce: NCCL is opened");
    LLM42__TRY(open_reducers(&r, gpus, error));
    const std::string note = std::to_string(gpus) + " GPUs, rows of 4,096 bf16";
    probe p;
    p.subject = "all-reduce, NCCL", p.variant = algorithm, p.published_as = published_as, p.note = note.c_str();
    p.most = MOST_ROWS, p.width = REDUCED_WIDTH, p.out = r.out[0];
    p.run = [&](int rows, int shift, llm42_error *error) -> llm42_result {
        LLM42__CU(cudaStreamSynchronize(b->ex->stream));  // the result was set to 0xffff there
        return reduce_rows(&r, rows, shift, error);
    };
    return probe_operator(b, m, p, error);
}
#endif

static void skip_reduction(const bench *b, const char *published_as, const char *why) {
    kernels_line line = kernels_line_of("operators", "all-reduce", published_as, 0);
    line.batch_invariant = line.position_invariant = line.repeats = "not run";
    line.published_as = published_as, line.note = why;
    emit(b, line);
}

static llm42_result probe_reductions(const bench *b, const probe_memory &m, llm42_error *error) {
    static const char *const ring = "ring AllReduce", *const tree = "tree AllReduce (fixed NCCL settings)";
    int gpus = 0;
    LLM42__CU(cudaGetDeviceCount(&gpus));
#ifdef LLM42_NCCL
    if (gpus >= LEAST_GPUS) {
        LLM42__TRY(probe_reduction(b, m, gpus, "Ring", ring, error));
        LLM42__TRY(probe_reduction(b, m, gpus, "Tree", tree, error));
        skip_reduction(b, "multimem AllReduce (CUDA 13+)", "NVLink multicast is left off");
        return LLM42_OK;
    }
#endif
    (void)m;
    const char *why = gpus < 2   ? "one GPU"
                      : gpus < 3 ? "two GPUs: a sum of two numbers has one order"
                                 : "built without NCCL (make kernels NCCL=1)";
    for (const char *name : {ring, tree, "multimem AllReduce (CUDA 13+)"}) skip_reduction(b, name, why);
    return LLM42_OK;
}
