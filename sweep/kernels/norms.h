// norms.h: RMSNorm by number of rows (LLM-42, Fig. 4b), and an RMSNorm that is not batch-invariant. measure.cu
// includes it.
//
// Both have the same inputs and outputs. RMSNorm alone takes rows of a table, as a pass takes embeddings: it reads a
// row and writes x and h. With the residual, x += delta comes first: it reads x and delta and writes x and h.
enum { SPLIT_PARTS = 8, SPLIT_THREADS = 64 };

// The first half of an RMSNorm that splits rows: x and the sums of squares of its parts.
// Shapes: x, delta [R, D] -> x [R, D], sums [R, parts]. token: x = delta's row of that number; NULL: x += delta.
// Work: a block takes a part of a row (blockIdx.x) and a row (blockIdx.y).
// Order: a thread's elements ascending, then llm42__block_sum. It depends on D and on the number of parts.
__global__ void __launch_bounds__(SPLIT_THREADS)
    split_sums(llm42__bf16 *x, const llm42__bf16 *delta, const int32_t *token, float *sums, int width) {
    __shared__ float shared[32];
    const int pieces = width / 8 / (int)gridDim.x, first = (int)blockIdx.x * pieces;
    const size_t row = blockIdx.y;
    llm42__launch_next();
    llm42__wait_for_previous();
    const llm42__bf16 *from = delta + (token ? (size_t)token[row] : row) * width;
    llm42__bf16 *to = x + row * width;
    float sum = 0;
    for (int piece = first + (int)threadIdx.x; piece < first + pieces; piece += SPLIT_THREADS) {
        uint4 mine = *(const uint4 *)(from + piece * 8), old = *(const uint4 *)(to + piece * 8);
        __nv_bfloat162 *p = (__nv_bfloat162 *)&mine;
        const __nv_bfloat162 *o = (const __nv_bfloat162 *)&old;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 a = __bfloat1622float2(p[j]);
            if (!token) {
                const float2 b = __bfloat1622float2(o[j]);
                p[j] = __floats2bfloat162_rn(b.x + a.x, b.y + a.y);
                a = __bfloat1622float2(p[j]);
            }
            sum = fmaf(a.x, a.x, sum);
            sum = fmaf(a.y, a.y, sum);
        }
        *(uint4 *)(to + piece * 8) = mine;
    }
    sum = llm42__block_sum(sum, shared);
    if (threadIdx.x == 0) sums[row * gridDim.x + blockIdx.x] = sum;
}

// The second half: h = x / sqrt(mean(x^2) + eps) x weight.
// Shapes: x [R, D], sums [R, parts] -> h [R, D]. Work: as above. Order: parts ascending.
__global__ void __launch_bounds__(SPLIT_THREADS)
    split_scale(const llm42__bf16 *x, const float *sums, const float *weight, llm42__bf16 *h, int width, float eps) {
    const int pieces = width / 8 / (int)gridDim.x, first = (int)blockIdx.x * pieces;
    const size_t row = blockIdx.y;
    llm42__launch_next();
    llm42__wait_for_previous();
    float sum = 0;
    for (int i = 0; i < (int)gridDim.x; i++) sum += sums[row * gridDim.x + i];
    const float scale = __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(sum, (float)width) + eps));
    for (int piece = first + (int)threadIdx.x; piece < first + pieces; piece += SPLIT_THREADS) {
        uint4 mine = *(const uint4 *)(x + row * width + piece * 8);
        __nv_bfloat162 *p = (__nv_bfloat162 *)&mine;
        const float *v = weight + piece * 8;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float2 a = __bfloat1622float2(p[j]);
            p[j] = __floats2bfloat162_rn(a.x * scale * v[2 * j], a.y * scale * v[2 * j + 1]);
        }
        *(uint4 *)(h + row * width + piece * 8) = mine;
    }
}

// What an RMSNorm works on: rows in memory of its own.
struct norm_data {
    llm42__bf16 *x, *delta, *h;  // [NORM_ROWS, D]
    int32_t *token;              // [NORM_ROWS]
    float *weight, *sums;        // [D]; [NORM_ROWS, SPLIT_PARTS]
};

static llm42_result open_norm(const bench *b, device_memory *memory, norm_data *d, llm42_error *error) {
    const size_t D = (size_t)b->cu->Dp;
    LLM42__TRY(memory->take(&d->x, NORM_ROWS * D, error));
    LLM42__TRY(memory->take(&d->delta, NORM_ROWS * D, error));
    LLM42__TRY(memory->take(&d->h, NORM_ROWS * D, error));
    LLM42__TRY(memory->take(&d->token, (size_t)NORM_ROWS, error));
    LLM42__TRY(memory->take(&d->weight, D, error));
    LLM42__TRY(memory->take(&d->sums, (size_t)NORM_ROWS * SPLIT_PARTS, error));
    std::vector<int32_t> token((size_t)NORM_ROWS);
    for (size_t i = 0; i < token.size(); i++) token[i] = (int32_t)i;
    const std::vector<float> weight(D, 1.0f);
    LLM42__CU(cudaMemcpy(d->token, token.data(), token.size() * sizeof token[0], cudaMemcpyHostToDevice));
    LLM42__CU(cudaMemcpy(d->weight, weight.data(), D * sizeof(float), cudaMemcpyHostToDevice));
    llm42__k_fill<<<1024, 256>>>(d->x, NORM_ROWS * D, 46, 1.0f);
    llm42__k_fill<<<1024, 256>>>(d->delta, NORM_ROWS * D, 47, 1.0f);
    LLM42__CU(cudaGetLastError());
    LLM42__CU(cudaDeviceSynchronize());
    return LLM42_OK;
}

// Parts of a row that fill the device when rows are few. One part: the kernel of a pass does it.
static int split_parts(const bench *b, int rows) {
    int parts = SPLIT_PARTS;
    while (parts > 1 && rows * parts > 2 * b->cu->device.multiProcessorCount) parts /= 2;
    return parts;
}

// Enqueues the norm of `rows` rows from row `first` on, by the kernel of a pass or, if split, by the kernels above.
static llm42_result run_norm(const bench *b, const norm_data *d, bool residual, bool split, int first, int rows,
                             llm42_error *error) {
    llm42__cuda *cu = b->cu;
    const size_t at = (size_t)first * (size_t)cu->Dp;
    const int parts = split ? split_parts(b, rows) : 1;
    if (parts > 1) {
        const dim3 grid((unsigned)parts, (unsigned)rows);
        assert(cu->Dp % (8 * SPLIT_PARTS) == 0 && cu->D == cu->Dp && rows <= 65535);
        LLM42__CU(llm42__launch(split_sums, grid, dim3(SPLIT_THREADS), 0, b->ex->stream, d->x + at, d->delta + at,
                                residual ? (const int32_t *)nullptr : (const int32_t *)d->token, d->sums, cu->Dp));
        LLM42__CU(llm42__launch(split_scale, grid, dim3(SPLIT_THREADS), 0, b->ex->stream, d->x + at, d->sums, d->weight,
                                d->h + at, cu->Dp, cu->model->config.norm_eps));
        return LLM42_OK;
    }
    llm42__execution ex = {};
    llm42__meta meta = {};
    ex.stream = b->ex->stream, ex.x = d->x + at, ex.h = d->h + at;
    meta.token = d->token;
    const llm42__sum delta = llm42__whole(d->delta + at);
    return residual ? llm42__enqueue_norm<LLM42__ADD>(cu, &ex, rows, &delta, d->weight, meta, error)
                    : llm42__enqueue_norm<LLM42__EMBED>(cu, &ex, rows, &delta, d->weight, meta, error);
}

static llm42_result norms_at(const bench *b, const norm_data *d, bool residual, int rows, llm42_error *error) {
    const int windows = NORM_ROWS / rows, launches = std::max(8, std::min(256, windows));
    const double bytes = (residual ? 4.0 : 3.0) * 2.0 * (double)rows * (double)b->cu->Dp;
    std::vector<way> ways;
    for (bool split : {false, true})
        ways.push_back({launches,
                        [=](int i, llm42_error *error) {
                            return run_norm(b, d, residual, split, i % windows * rows, rows, error);
                        },
                        0});
    progress(b, "rmsnorm: %d rows", rows);
    LLM42__TRY(time_in_turn(b, WARM_SECONDS, &ways, error));
    for (int split = 0; split < 2; split++) {
        const double us = ways[(size_t)split].us;
        char note[48];
        snprintf(note, sizeof note, "%d blocks a row", split ? split_parts(b, rows) : 1);
        kernels_line line = kernels_line_of("rmsnorm", residual ? "residual_rmsnorm" : "rmsnorm",
                                            split ? "split" : "one_block", rows);
        line.us = us;
        line.gb_per_s = 1e-3 * bytes / us;
        line.relative_pct = 1e11 * line.gb_per_s / b->ceilings.copy_bytes_per_s;
        line.note = note;
        emit(b, line);
    }
    return LLM42_OK;
}

static llm42_result measure_norms(const bench *b, llm42_error *error) {
    device_memory memory;
    norm_data d = {};
    LLM42__TRY(open_norm(b, &memory, &d, error));
    for (bool residual : {false, true})
        for (int rows = 1; rows <= (b->settings->quick ? 512 : NORM_ROWS); rows *= 2)
            LLM42__TRY(norms_at(b, &d, residual, rows, error));
    return LLM42_OK;
}
