// exchange.h: how long two ranks, on a device each, take to add their parts of a layer's output. measure.cu includes
// it.
//
// A step is what a pass does from the end of such a product to the next norm: each rank writes its part, the parts are
// exchanged and added, then come the residual and RMSNorm. A chain of steps runs on both devices at once, and steps
// take the two buffers for parts in turn, as passes do. The ways to exchange the parts:
//
//     mail             ours for few rows: the norm sends and receives the parts itself
//     meeting          ours for more rows: the devices meet, then the norm reads the parts from each other's memory
//     own_rows         ours for many rows of fp32: each device adds and norms half of the rows. The other one writes
//                      its part of them into this one's memory. They meet, norm, send each other h, and meet again
//     nccl_all_gather  NCCL copies all parts to all devices, then the norm adds them in the order of ours
//     nccl_all_reduce  NCCL adds the parts, in bf16, then comes the norm of one device, as in serving engines
//     none             no exchange: the norm of one device
//
// Parts are bf16, as in FAST passes, or fp32, as in INVARIANT passes. Before a number of rows is timed, h of all steps
// is compared: on both ranks, and each way with the first of ours. The control is a chain in which a rank does not
// write its part of one step, so that an old part is exchanged: the comparison has to find it.
enum { EXCHANGE_RANKS = 2, STEPS = 64, MOST_EXCHANGED = 2048, STALE_STEP = 37 };
enum exchange_way { MAIL, MEETING, OWN_ROWS, ALL_GATHER, ALL_REDUCE, NO_EXCHANGE, EXCHANGE_WAYS };
static const char *const way_names[] = {"mail", "meeting", "own_rows", "nccl_all_gather", "nccl_all_reduce", "none"};

// to = from, for a part and for what is compared. Work: a thread copies 16 bytes at a time.
__global__ void __launch_bounds__(256) copy_pieces(const uint4 *from, uint4 *to, size_t pieces) {
    llm42__launch_next();
    llm42__wait_for_previous();
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < pieces; i += (size_t)gridDim.x * blockDim.x)
        to[i] = from[i];
}
__global__ void fill_fp32(float *to, size_t count, uint64_t key) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        to[i] = llm42__synthetic_noise(key, i);
}
// Another pass begins, for mail.
__global__ void next_number(llm42__header *header) { header->number = header->number % LLM42__MOST_NUMBER + 1; }
// Keeps a stream busy while the host puts more into it.
__global__ void spin(long long cycles) {
    const long long begin = clock64();
    while (clock64() - begin < cycles) {
    }
}

// What a rank has beside its execution.
struct exchange_rank {
    void *base[2];         // [most rows + STEPS, D], bf16 and fp32: the part of step i begins at row i
    llm42__bf16 *start;    // x before the first step, the same for all ranks
    llm42__bf16 *seen[2];  // of two chains: [STEPS][rows, D], h of each step
    ulonglong2 *mail[2];   // of its execution
    float *weight;
    void *gathered;  // [ranks][most rows, D], fp32 or bf16: what NCCL has brought of all ranks, or their sum
    cudaEvent_t begin, end;
};

struct exchange_bench {
    bench b;  // .settings and .cu alone
    device_memory memory;
    exchange_rank rank[EXCHANGE_RANKS];
    unsigned *differ;
    int most;         // rows
    bool one_by_one;  // NCCL runs without CUDA graphs
    ~exchange_bench() {
        for (const exchange_rank &r : rank) {
            if (r.begin) cudaEventDestroy(r.begin);
            if (r.end) cudaEventDestroy(r.end);
        }
    }
};

struct chain {
    exchange_way way;
    bool fp32;
    int rows;
    int seen;    // where h of each step goes; -1: nowhere
    bool stale;  // the control
};

static bool by_nccl(exchange_way way) { return way == ALL_GATHER || way == ALL_REDUCE; }

static bool ours(exchange_way way) { return way <= OWN_ROWS; }

// The backend's functions ask whether an execution has mailboxes.
static void take_way(exchange_bench *e, exchange_way way) {
    for (int r = 0; r < EXCHANGE_RANKS; r++)
        for (int stage = 0; stage < 2; stage++)
            llm42__rank(e->b.cu, r)->execution.mail[stage] = way == MAIL ? e->rank[r].mail[stage] : nullptr;
    e->b.cu->own_rows_from = way == OWN_ROWS ? 1 : INT_MAX;
}

// >>steps --------------------------------------------------------------------------------------------------------
static llm42_result enqueue_copy(const llm42__cuda *rank, const void *from, void *to, size_t bytes,
                                 llm42_error *error) {
    const size_t pieces = bytes / 16, most = 8 * (size_t)rank->device.multiProcessorCount;
    LLM42__CU(llm42__launch(copy_pieces, dim3((unsigned)std::min((pieces + 255) / 256, most)), dim3(256), 0,
                            rank->execution.stream, (const uint4 *)from, (uint4 *)to, pieces));
    return LLM42_OK;
}

#ifdef LLM42_NCCL
static ncclComm_t communicators[EXCHANGE_RANKS];
static llm42_result open_nccl(llm42_error *error) {
    int device[EXCHANGE_RANKS];
    for (int r = 0; r < EXCHANGE_RANKS; r++) device[r] = r;
    LLM42__CU(ncclCommInitAll(communicators, EXCHANGE_RANKS, device));
    return LLM42_OK;
}
static void close_nccl(void) {
    for (ncclComm_t &one : communicators)
        if (one) ncclCommAbort(one), one = nullptr;
}

// Fetches the parts of all ranks (`gather`), or their sum.
static llm42_result enqueue_nccl(exchange_bench *e, bool gather, bool fp32, int stage, size_t values,
                                 llm42_error *error) {
    const ncclDataType_t type = fp32 ? ncclFloat32 : ncclBfloat16;
    LLM42__CU(ncclGroupStart());
    for (int r = 0; r < EXCHANGE_RANKS; r++) {
        const llm42__execution *ex = &llm42__rank(e->b.cu, r)->execution;
        void *to = e->rank[r].gathered;
        if (gather) LLM42__CU(ncclAllGather(ex->part[stage], to, values, type, communicators[r], ex->stream));
        else LLM42__CU(ncclAllReduce(ex->part[stage], to, values, type, ncclSum, communicators[r], ex->stream));
    }
    LLM42__CU(ncclGroupEnd());
    return LLM42_OK;
}

static std::string nccl_version() {
    int version = 0;
    ncclGetVersion(&version);
    return "NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
           std::to_string(version % 100);
}
#else
static llm42_result open_nccl(llm42_error *) { return LLM42_OK; }
static void close_nccl(void) {}
static llm42_result enqueue_nccl(exchange_bench *, bool, bool, int, size_t, llm42_error *) { return LLM42_OK; }
static std::string nccl_version() { return ""; }
#endif

static llm42__shape_key key_of(const chain *c) {
    return {c->fp32 ? LLM42_SCHEDULE_INVARIANT : LLM42_SCHEDULE_FAST, c->rows, c->rows, false, true};
}

static llm42_result enqueue_step(exchange_bench *e, const chain *c, int step, llm42_error *error) {
    llm42__cuda *cu = e->b.cu;
    const int stage = step % 2, layer = step / 2;
    const size_t values = (size_t)c->rows * (size_t)cu->Dp, row = (size_t)cu->Dp * (c->fp32 ? 4 : 2);
    const llm42__shape_key key = key_of(c);
    LLM42__TRY(llm42__each_rank(cu, error, [&](llm42__cuda *rank) {
        if (c->stale && step == STALE_STEP && rank->rank) return LLM42_OK;
        const char *from = (const char *)e->rank[rank->rank].base[c->fp32] + (size_t)step * row;
        llm42__execution *ex = &rank->execution;
        if (c->way == OWN_ROWS)
            return llm42__cuda_status(error, "llm42__join_parts(",
                                      llm42__join_parts(ex->stream, (const float *)from, 1, c->rows, rank->Dp,
                                                        llm42__owners_of(rank, key.schedule, c->rows, stage), true,
                                                        nullptr));
        return enqueue_copy(rank, from, rank->execution.part[stage], (size_t)c->rows * row, error);
    }));
    const bool by_parts = ours(c->way) || c->way == ALL_GATHER;
    if (ours(c->way)) LLM42__TRY(llm42__enqueue_exchange(cu, &key, layer, stage, error));
    if (by_nccl(c->way)) LLM42__TRY(enqueue_nccl(e, c->way == ALL_GATHER, c->fp32, stage, values, error));
    LLM42__TRY(llm42__each_rank(cu, error, [&](llm42__cuda *rank) -> llm42_result {
        const llm42__execution *ex = &rank->execution;
        const exchange_rank *mine = &e->rank[rank->rank];
        llm42__execution own = {};
        llm42__meta meta = {};
        own.stream = ex->stream, own.x = ex->x, own.h = ex->h;
        meta.header = (const llm42__header *)ex->meta;
        const void *whole = c->way == ALL_REDUCE ? mine->gathered : c->fp32 ? mine->base[0] : ex->part[stage];
        llm42__sum sum = by_parts ? llm42__sum_of(rank, &key, layer, stage) : llm42__whole((const llm42__bf16 *)whole);
        for (int r = 0; r < EXCHANGE_RANKS && c->way == ALL_GATHER; r++)
            sum.parts.of[r] = (const char *)mine->gathered + (size_t)r * (size_t)c->rows * row;
        if (c->seen >= 0) {
            own.h = mine->seen[c->seen] + (size_t)step * values;
            for (int r = 0; r < EXCHANGE_RANKS; r++) sum.parts.h[r] = e->rank[r].seen[c->seen] + (size_t)step * values;
        }
        return llm42__enqueue_norm<LLM42__ADD>(rank, &own, c->rows, &sum, mine->weight, meta, error);
    }));
    return c->way == OWN_ROWS ? llm42__enqueue_meeting(cu, error) : LLM42_OK;
}

static llm42_result enqueue_chain(exchange_bench *e, const chain *c, llm42_error *error) {
    llm42__cuda *cu = e->b.cu;
    take_way(e, c->way);
    LLM42__TRY(llm42__each_rank(cu, error, [&](llm42__cuda *rank) -> llm42_result {
        const llm42__execution *ex = &rank->execution;
        next_number<<<1, 1, 0, ex->stream>>>((llm42__header *)ex->meta);
        LLM42__CU(cudaGetLastError());
        return enqueue_copy(rank, e->rank[rank->rank].start, ex->x, (size_t)c->rows * (size_t)cu->Dp * sizeof *ex->x,
                            error);
    }));
    for (int step = 0; step < STEPS; step++) LLM42__TRY(enqueue_step(e, c, step, error));
    return LLM42_OK;
}

// >>chains -------------------------------------------------------------------------------------------------------
struct chain_graphs {
    cudaGraphExec_t exec[EXCHANGE_RANKS] = {};  // none: the chain's launches run one by one
    ~chain_graphs() {
        for (cudaGraphExec_t one : exec)
            if (one) cudaGraphExecDestroy(one);
    }
};

// Runs a chain on both devices, begun together. *us: of a step, on the slower device. Streams are kept busy until the
// host has enqueued all that it can.
static llm42_result run_chain(exchange_bench *e, const chain *c, const chain_graphs *graphs, double *us,
                              llm42_error *error) {
    llm42__cuda *cu = e->b.cu;
    const bool captured = graphs && graphs->exec[0];
    LLM42__TRY(llm42__each_rank(cu, error, [&](llm42__cuda *rank) -> llm42_result {
        spin<<<1, 1, 0, rank->execution.stream>>>(captured ? 600000 : 10000000);  // about 0.3 and 5 ms
        LLM42__CU(cudaGetLastError());
        return LLM42_OK;
    }));
    LLM42__TRY(llm42__enqueue_meeting(cu, error));
    LLM42__TRY(llm42__each_rank(cu, error, [&](llm42__cuda *rank) -> llm42_result {
        LLM42__CU(cudaEventRecord(e->rank[rank->rank].begin, rank->execution.stream));
        if (captured) LLM42__CU(cudaGraphLaunch(graphs->exec[rank->rank], rank->execution.stream));
        return LLM42_OK;
    }));
    if (!captured) LLM42__TRY(enqueue_chain(e, c, error));
    LLM42__TRY(llm42__each_rank(cu, error, [&](llm42__cuda *rank) -> llm42_result {
        LLM42__CU(cudaEventRecord(e->rank[rank->rank].end, rank->execution.stream));
        return LLM42_OK;
    }));
    LLM42__TRY(llm42__wait(cu, error));
    *us = 0;
    return llm42__each_rank(cu, error, [&](llm42__cuda *rank) -> llm42_result {
        float ms = 0;
        LLM42__CU(cudaEventElapsedTime(&ms, e->rank[rank->rank].begin, e->rank[rank->rank].end));
        *us = std::max(*us, 1000.0 * (double)ms / STEPS);
        return LLM42_OK;
    });
}

// A graph for each device. All captures are ended first, also after an error: until then nothing else may be done with
// graphs.
static llm42_result capture_chain(exchange_bench *e, const chain *c, chain_graphs *graphs, llm42_error *error) {
    llm42__cuda *cu = e->b.cu;
    cudaGraph_t graph[EXCHANGE_RANKS] = {};
    llm42_result result = llm42__each_rank(cu, error, [&](llm42__cuda *rank) -> llm42_result {
        LLM42__CU(cudaStreamBeginCapture(rank->execution.stream, cudaStreamCaptureModeThreadLocal));
        return LLM42_OK;
    });
    if (result == LLM42_OK) result = enqueue_chain(e, c, error);
    const llm42_result ended = llm42__each_rank(cu, error, [&](llm42__cuda *rank) {
        const cudaError_t status = cudaStreamEndCapture(rank->execution.stream, &graph[rank->rank]);
        if (result == LLM42_OK) result = llm42__cuda_status(error, "cudaStreamEndCapture(", status);
        return LLM42_OK;
    });
    const llm42_result made = llm42__each_rank(cu, error, [&](llm42__cuda *rank) {
        cudaGraphExec_t *exec = &graphs->exec[rank->rank];
        if (result == LLM42_OK)
            result = llm42__cuda_status(error, "cudaGraphInstantiate(",
                                        cudaGraphInstantiate(exec, graph[rank->rank], 0));
        if (graph[rank->rank]) cudaGraphDestroy(graph[rank->rank]);
        if (result == LLM42_OK)
            result = llm42__cuda_status(error, "cudaGraphUpload(", cudaGraphUpload(*exec, rank->execution.stream));
        return LLM42_OK;
    });
    cudaGetLastError();
    return result != LLM42_OK ? result : ended != LLM42_OK ? ended : made;
}

// Captures a chain. If chains of NCCL's cannot be captured, they run without graphs from then on. They run once before,
// since NCCL connects the devices when it needs to.
static llm42_result prepare_chain(exchange_bench *e, const chain *c, chain_graphs *graphs, llm42_error *error) {
    double us;
    if (by_nccl(c->way)) LLM42__TRY(run_chain(e, c, nullptr, &us, error));
    if (by_nccl(c->way) && e->one_by_one) return LLM42_OK;
    const llm42_result result = capture_chain(e, c, graphs, error);
    if (result == LLM42_OK || !by_nccl(c->way)) return result;
    for (cudaGraphExec_t &exec : graphs->exec) {
        if (exec) cudaGraphExecDestroy(exec);
        exec = nullptr;
    }
    e->one_by_one = true;
    llm42__log(e->b.settings->log, e->b.settings->log_user, "cuda nccl: cannot be captured: %s", error->text);
    LLM42__TRY(llm42__device_alive(error));
    close_nccl();
    return open_nccl(error);
}

// >>bits ---------------------------------------------------------------------------------------------------------
// Runs a chain once and keeps h of each step.
static llm42_result watch_chain(exchange_bench *e, const chain *c, llm42_error *error) {
    llm42__cuda *cu = e->b.cu;
    chain_graphs graphs;
    double us;
    LLM42__TRY(prepare_chain(e, c, &graphs, error));
    LLM42__TRY(llm42__each_rank(cu, error, [&](llm42__cuda *rank) -> llm42_result {
        LLM42__CU(cudaMemsetAsync(e->rank[rank->rank].seen[c->seen], 0x11 * (c->seen + 1),
                                  (size_t)STEPS * (size_t)c->rows * (size_t)cu->Dp * sizeof(llm42__bf16),
                                  rank->execution.stream));
        return LLM42_OK;
    }));
    return run_chain(e, c, &graphs, &us, error);
}

// *same: what rank `r` has kept as `seen` equals what rank 0 has kept as 0.
static llm42_result compare_seen(const exchange_bench *e, int r, int seen, int rows, bool *same, llm42_error *error) {
    cudaStream_t stream = e->b.cu->execution.stream;
    unsigned count = 0;
    LLM42__CU(cudaMemsetAsync(e->differ, 0, sizeof *e->differ, stream));
    llm42__k_differ<<<1056, 512, 0, stream>>>((const uint16_t *)e->rank[0].seen[0],
                                              (const uint16_t *)e->rank[r].seen[seen], STEPS * rows,
                                              (size_t)e->b.cu->Dp, 0, e->differ);
    LLM42__CU(cudaGetLastError());
    LLM42__CU(cudaMemcpyAsync(&count, e->differ, sizeof count, cudaMemcpyDeviceToHost, stream));
    LLM42__CU(cudaStreamSynchronize(stream));
    *same = count == 0;
    return LLM42_OK;
}

// Runs a chain and compares it with the first one that was kept, on both ranks.
static llm42_result compare_chain(exchange_bench *e, const chain *c, bool *same, llm42_error *error) {
    LLM42__TRY(watch_chain(e, c, error));
    *same = true;
    for (int r = 0; r < EXCHANGE_RANKS; r++) {
        bool one;
        LLM42__TRY(compare_seen(e, r, c->seen, c->rows, &one, error));
        *same &= one;
    }
    return LLM42_OK;
}

// >>times --------------------------------------------------------------------------------------------------------
static bool has_way(const exchange_bench *e, exchange_way way, bool fp32, int rows) {
    if (way == MAIL) return rows <= LLM42__MAIL_ROWS && e->rank[0].mail[0];
    if (way == OWN_ROWS) return fp32;
#ifdef LLM42_NCCL
    return way != ALL_REDUCE || !fp32;
#else
    (void)fp32;
    return !by_nccl(way);
#endif
}

struct exchange_times {
    double us[EXCHANGE_WAYS];
    bool same[EXCHANGE_WAYS], found[EXCHANGE_WAYS];  // found: the control's old part
};

static llm42_result check_ways(exchange_bench *e, bool fp32, int rows, exchange_times *t, llm42_error *error) {
    for (exchange_way way : {MEETING, MAIL, OWN_ROWS, ALL_GATHER, ALL_REDUCE}) {
        const chain c = {way, fp32, rows, way == MEETING ? 0 : 1, false};
        if (has_way(e, way, fp32, rows)) LLM42__TRY(compare_chain(e, &c, &t->same[way], error));
    }
    for (exchange_way way : {MEETING, MAIL, OWN_ROWS}) {
        bool same = false;
        const chain control = {way, fp32, rows, 1, true};
        if (has_way(e, way, fp32, rows)) LLM42__TRY(compare_chain(e, &control, &same, error));
        t->found[way] = !same;
    }
    return LLM42_OK;
}

// The ways take turns, so that changes of the clock rate meet all alike. The first round does not count.
static llm42_result time_ways(exchange_bench *e, bool fp32, int rows, exchange_times *t, llm42_error *error) {
    chain_graphs graphs[EXCHANGE_WAYS];
    chain chains[EXCHANGE_WAYS];
    double times[EXCHANGE_WAYS][TIMES + 1];
    for (int w = 0; w < EXCHANGE_WAYS; w++) {
        chains[w] = {(exchange_way)w, fp32, rows, -1, false};
        if (has_way(e, chains[w].way, fp32, rows)) LLM42__TRY(prepare_chain(e, &chains[w], &graphs[w], error));
    }
    for (int round = 0; round <= TIMES; round++)
        for (int w = 0; w < EXCHANGE_WAYS; w++)
            if (has_way(e, chains[w].way, fp32, rows))
                LLM42__TRY(run_chain(e, &chains[w], &graphs[w], &times[w][round], error));
    for (int w = 0; w < EXCHANGE_WAYS; w++) {
        std::sort(times[w] + 1, times[w] + 1 + TIMES);
        t->us[w] = times[w][1 + TIMES / 2];
    }
    return LLM42_OK;
}

static llm42_result exchange_at(exchange_bench *e, bool fp32, int rows, llm42_error *error) {
    exchange_times t = {};
    progress(&e->b, "exchange: %d rows, %s", rows, fp32 ? "fp32" : "bf16");
    LLM42__TRY(check_ways(e, fp32, rows, &t, error));
    LLM42__TRY(time_ways(e, fp32, rows, &t, error));
    for (int w = 0; w < EXCHANGE_WAYS; w++) {
        const exchange_way way = (exchange_way)w;
        if (!has_way(e, way, fp32, rows)) continue;
        kernels_line line = kernels_line_of("exchange", fp32 ? "fp32" : "bf16", way_names[w], rows);
        line.ranks = EXCHANGE_RANKS;
        line.us = t.us[w];
        line.exchange_us = way == NO_EXCHANGE ? 0 : std::max(0.0, t.us[w] - t.us[NO_EXCHANGE]);
        const double gather = has_way(e, ALL_GATHER, fp32, rows) ? t.us[ALL_GATHER] - t.us[NO_EXCHANGE] : 0;
        if (gather > 0 && way != NO_EXCHANGE) line.relative_pct = 100 * line.exchange_us / gather;
        if (way != NO_EXCHANGE) line.bits = t.same[w] ? "equal" : "differ";
        line.must_equal = ours(way) || way == ALL_GATHER;
        line.control = ours(way), line.control_failed = ours(way) && !t.found[w];
        const std::string how = by_nccl(way) && e->one_by_one ? "launched one by one" : "CUDA graphs",
                          note = by_nccl(way) ? nccl_version() + ", " + how : how;
        line.note = note.c_str();
        emit(&e->b, line);
    }
    return LLM42_OK;
}

// >>open ---------------------------------------------------------------------------------------------------------
// What a rank needs for exchanges: its execution, without weights, and memory of its own. Its device is set.
static llm42_result open_exchange_rank(exchange_bench *e, llm42__cuda *rank, llm42_error *error) {
    exchange_rank *mine = &e->rank[rank->rank];
    llm42__blocks list;
    cudaFuncAttributes loaded;
    llm42__cuda_sizes(rank);
    rank->layer.resize((STEPS + 1) / 2);  // without weights, and so without biases
    const size_t D = (size_t)rank->Dp, values = (size_t)e->most * D, based = values + STEPS * D;
    llm42__list_execution(rank, &list);
    LLM42__TRY(llm42__take_blocks(rank, list, LLM42__PASSES, error));
    LLM42__TRY(llm42__open_execution(rank, error));
    for (int product : {LLM42__O, LLM42__DOWN})
        for (llm42_schedule schedule : llm42__schedules) {
            llm42__algorithm algorithm;  // only this of it is asked for: parts are fp32
            algorithm.leaves = schedule == LLM42_SCHEDULE_INVARIANT;
            rank->algorithms[product][schedule].assign(rank->buckets.size(), algorithm);
        }
    LLM42__TRY(e->memory.take((float **)&mine->gathered, EXCHANGE_RANKS * values, error));
    for (int stage = 0; stage < 2; stage++) mine->mail[stage] = rank->execution.mail[stage];
    LLM42__TRY(e->memory.take((llm42__bf16 **)&mine->base[0], based, error));
    LLM42__TRY(e->memory.take((float **)&mine->base[1], based, error));
    LLM42__TRY(e->memory.take(&mine->start, values, error));
    LLM42__TRY(e->memory.take(&mine->weight, D, error));
    for (llm42__bf16 *&seen : mine->seen) LLM42__TRY(e->memory.take(&seen, STEPS * values, error));
    if (!rank->rank) LLM42__TRY(e->memory.take(&e->differ, 1, error));
    const std::vector<float> weight(D, 1.0f);
    LLM42__CU(cudaMemcpy(mine->weight, weight.data(), D * sizeof weight[0], cudaMemcpyHostToDevice));
    llm42__k_fill<<<1024, 256>>>((llm42__bf16 *)mine->base[0], based, 70 + (uint64_t)rank->rank, 1.0f);
    fill_fp32<<<1024, 256>>>((float *)mine->base[1], based, 80 + (uint64_t)rank->rank);
    llm42__k_fill<<<1024, 256>>>(mine->start, values, 90, 1.0f);
    LLM42__CU(cudaGetLastError());
    LLM42__CU(cudaEventCreate(&mine->begin));
    LLM42__CU(cudaEventCreate(&mine->end));
    // These wait for others: they are loaded before any of them runs.
    LLM42__CU(cudaFuncGetAttributes(&loaded, llm42__k_meet));
    LLM42__CU(cudaFuncGetAttributes(&loaded, spin));
    LLM42__CU(cudaDeviceSynchronize());
    return LLM42_OK;
}

static llm42_result open_exchange(exchange_bench *e, const llm42_model *model, llm42_error *error) {
    const kernels_settings *s = e->b.settings;
    llm42_cuda_desc options = {};
    llm42_backend_desc desc = {};
    cudaDeviceProp device;
    setenv("NCCL_NVLS_ENABLE", "0", 1);  // NVLink multicast stays off
    progress(&e->b, "exchange: opening two devices");
    e->most = std::min((int)MOST_EXCHANGED, s->most_rows);
    e->one_by_one = s->one_by_one;
    desc.model = model, desc.numerics.compute = LLM42_DTYPE_BF16;
    desc.tensor_parallel = EXCHANGE_RANKS;
    desc.max_rows = e->most, desc.max_context = MOST_ROWS;
    desc.pages = MOST_ROWS / PAGE, desc.page_size = PAGE;
    desc.max_running = 64;
    desc.schedules = 1u << LLM42_SCHEDULE_FAST | 1u << LLM42_SCHEDULE_FIXED | 1u << LLM42_SCHEDULE_INVARIANT;
    desc.log = s->log, desc.log_user = s->log_user;
    LLM42__TRY(llm42__cuda_validate(&desc, error));
    LLM42__TRY(llm42__find_devices(&desc, &options, &device, error));
    llm42__cuda *cu = llm42__new_rank(&desc, &options, 0, &device);
    if (!cu) throw std::bad_alloc();
    e->b.cu = cu;
    cu->ranks = EXCHANGE_RANKS;
    for (int r = 1; r < EXCHANGE_RANKS; r++) {
        llm42__cuda *rank = llm42__new_rank(&desc, &options, r, &device);
        if (!rank) throw std::bad_alloc();
        rank->first = cu, rank->ranks = EXCHANGE_RANKS;
        cu->others.push_back(rank);
    }
    LLM42__TRY(llm42__each_rank(cu, error, [&](llm42__cuda *rank) { return open_exchange_rank(e, rank, error); }));
    LLM42__TRY(llm42__open_peers(cu, error));
    LLM42__TRY(open_nccl(error));
    llm42__log_device(cu);
    llm42__log(s->log, s->log_user, "cuda kernels: %d", LLM42__KERNELS);
    llm42__log(s->log, s->log_user, "cuda ranks: %d on %d devices", cu->ranks, cu->devices);
    if (has_way(e, ALL_GATHER, false, 1))
        llm42__log(s->log, s->log_user, "cuda nccl: %s, without NVLink multicast", nccl_version().c_str());
    return LLM42_OK;
}

static llm42_result exchange_on(exchange_bench *e, const llm42_model *model, llm42_error *error) {
    LLM42__TRY(open_exchange(e, model, error));
    for (bool fp32 : {false, true})
        for (int rows = 1; rows <= e->most; rows *= 2) LLM42__TRY(exchange_at(e, fp32, rows, error));
    return LLM42_OK;
}

static llm42_result measure_exchange(const kernels_settings *s, const llm42_model *model, llm42_error *error) {
    exchange_bench e = {};
    cudaDeviceProp device;
    int count = 0;
    e.b.settings = s;
    LLM42__TRY(llm42__find_device(0, &device, error));
    LLM42__CU(cudaGetDeviceCount(&count));
    if (count < EXCHANGE_RANKS) {
        kernels_line line = kernels_line_of("exchange", NULL, NULL, 0);
        line.note = "not measured: it needs two devices, and this machine has one";
        emit(&e.b, line);
        return LLM42_OK;
    }
    const llm42_result result = llm42__guarded(error, [&]() { return exchange_on(&e, model, error); });
    close_nccl();
    llm42__cuda_close(e.b.cu);
    return result;
}
