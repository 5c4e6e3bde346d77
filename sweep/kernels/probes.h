// probes.h: the operators that are probed. operators.h includes it.

// Moves rows: row r goes to place (r + shift) % rows.
static llm42_result rotate(const bench *b, const llm42__bf16 *from, llm42__bf16 *to, int rows, int width, int shift,
                           llm42_error *error) {
    llm42__k_rotate_rows<<<(unsigned)rows, 256, 0, b->ex->stream>>>(from, to, rows, width, shift);
    LLM42__CU(cudaGetLastError());
    return LLM42_OK;
}

// >>controls -----------------------------------------------------------------------------------------------------
enum { CONTROL_N = 512, CONTROL_K = 4096, CONTROL_ROWS = 1024 };

// A product for controls: k is cut in parts.
// Shapes: x [R, k], w [n, k] -> y [R, n]. Work: a warp takes one output.
// Order: a part's terms, every 32nd in a lane, then lanes by butterfly; then parts ascending. It depends on k, on
// `parts` and, if by_place, on the row's place: odd places have one part more.
__global__ void __launch_bounds__(256) control_product(const llm42__bf16 *x, const llm42__bf16 *w, llm42__bf16 *y,
                                                       int rows, int n, int k, int parts, bool by_place) {
    const int lane = threadIdx.x % 32, output = (int)((blockIdx.x * blockDim.x + threadIdx.x) / 32), row = blockIdx.y;
    if (output >= n || row >= rows) return;
    if (by_place) parts += row % 2;
    float total = 0;
    for (int part = 0; part < parts; part++) {
        float sum = 0;
        const int first = k / parts * part, end = part + 1 == parts ? k : first + k / parts;
        for (int i = first + lane; i < end; i += 32)
            sum = fmaf((float)x[(size_t)row * k + i], (float)w[(size_t)output * k + i], sum);
#pragma unroll
        for (int i = 16; i; i >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, i);
        total += sum;
    }
    if (lane == 0) y[(size_t)row * n + output] = __float2bfloat16_rn(total);
}

static llm42_result probe_controls(const bench *b, const probe_memory &m, llm42_error *error) {
    device_memory memory;
    llm42__bf16 *x, *turned, *w, *y;
    LLM42__TRY(memory.take(&x, (size_t)CONTROL_ROWS * CONTROL_K, error));
    LLM42__TRY(memory.take(&turned, (size_t)CONTROL_ROWS * CONTROL_K, error));
    LLM42__TRY(memory.take(&w, (size_t)CONTROL_N * CONTROL_K, error));
    LLM42__TRY(memory.take(&y, (size_t)CONTROL_ROWS * CONTROL_N, error));
    llm42__k_fill_cancelling<<<1024, 256>>>(x, (size_t)CONTROL_ROWS, CONTROL_K, 42, true);
    llm42__k_fill_cancelling<<<1024, 256>>>(w, (size_t)CONTROL_N, CONTROL_K, 43, false);
    LLM42__CU(cudaGetLastError());
    LLM42__CU(cudaDeviceSynchronize());
    for (bool by_place : {false, true}) {
        probe p;
        p.subject = "control";
        p.variant = by_place ? "product, order by place" : "product, split-K by number of rows";
        p.published_as = nullptr;
        p.note = by_place ? "odd places cut k in two parts" : "k in 4 parts up to 8 rows, in 2 up to 64, else in 1";
        p.most = CONTROL_ROWS, p.width = CONTROL_N, p.out = y;
        p.must_batch = by_place ? "yes" : "no", p.must_position = by_place ? "no" : "yes";
        p.run = [=](int rows, int shift, llm42_error *error) -> llm42_result {
            const int parts = by_place ? 1 : rows <= 8 ? 4 : rows <= 64 ? 2 : 1;
            LLM42__TRY(rotate(b, x, turned, rows, CONTROL_K, shift, error));
            control_product<<<dim3(CONTROL_N / 8, (unsigned)rows), 256, 0, b->ex->stream>>>(
                turned, w, y, rows, CONTROL_N, CONTROL_K, parts, by_place);
            LLM42__CU(cudaGetLastError());
            return LLM42_OK;
        };
        LLM42__TRY(probe_operator(b, m, p, error));
    }
    return LLM42_OK;
}

// >>products -----------------------------------------------------------------------------------------------------
// One product by one way of choosing its algorithm: cuBLASLt's first choice, or an engine's schedule. FIXED is padded
// to M rows, as in a replay pass. The others are padded to the next number of rows for which an engine has an
// algorithm.
static llm42_result probe_product(const bench *b, const probe_memory &m, llm42__trial *t, int product,
                                  llm42_schedule schedule, bool cublas, llm42_error *error) {
    llm42__cuda *cu = b->cu;
    const int M = cu->desc.fixed_rows;
    std::vector<llm42__algorithm> chosen((size_t)cu->max_rows + 1);  // cuBLASLt's, by rows
    std::vector<bool> known(chosen.size());
    if (cublas && first_choice(cu, product, 1, &chosen[1], error) == LLM42_UNSUPPORTED) return LLM42_OK;
    char note[96] = "its own choice for each number of rows";
    const llm42__product_size size = llm42__product_shape(cu, product);
    const int n = size.n, k = size.k;
    if (!cublas && schedule == LLM42_SCHEDULE_FIXED) snprintf(note, sizeof note, "padded to %d rows", M);
    if (!cublas && schedule != LLM42_SCHEDULE_FIXED)
        snprintf(note, sizeof note, "padded to the next row count of the engine");
    probe p;
    p.subject = std::string("product ") + llm42__product_names[product];
    p.variant = cublas ? "cublasLt" : llm42_schedule_name(schedule);
    p.published_as = cublas ? "cuBLAS GEMM" : nullptr;
    p.note = note;
    p.most = !cublas && schedule == LLM42_SCHEDULE_FIXED ? M : llm42__most_rows(cu, product);
    p.width = (size_t)(llm42__operator_of(product) == LLM42__GATE_UP ? n / 2 : n);
    p.out = t->y;
    p.run = [&](int rows, int shift, llm42_error *error) -> llm42_result {
        const int padded = cublas                             ? rows
                           : schedule == LLM42_SCHEDULE_FIXED ? M
                                                              : cu->buckets[(size_t)llm42__bucket(cu, rows)];
        if (cublas && !known[(size_t)rows]) {
            LLM42__TRY(first_choice(cu, product, rows, &chosen[(size_t)rows], error));
            known[(size_t)rows] = true;
        }
        const llm42__algorithm *algorithm = cublas ? &chosen[(size_t)rows]
                                                   : llm42__algorithm_of(cu, product, schedule, padded);
        if (shift) LLM42__TRY(rotate(b, t->x, t->turned, rows, k, shift, error));
        return llm42__run_product(cu, b->ex, product, algorithm, t->w, shift ? t->turned : t->x, t->y, b->ex->gate_up,
                                  padded, error);
    };
    return probe_operator(b, m, p, error);
}

static llm42_result probe_products(const bench *b, const probe_memory &m, llm42_error *error) {
    llm42__trial t = {};
    t.cu = b->cu, t.tests = &llm42__device_tests;
    const llm42__lent memory = {llm42__trial_blocks(&t)};
    LLM42__TRY(llm42__open_trial(&t, memory.list, error));
    for (int of : {LLM42__QKV, LLM42__O, LLM42__GATE_UP, LLM42__DOWN, LLM42__HEAD}) {
        const int product = llm42__product_in(b->cu, of, 0);
        LLM42__TRY(llm42__fill_inputs(&t, product, error));
        LLM42__TRY(probe_product(b, m, &t, product, LLM42_SCHEDULE_FAST, true, error));
        for (llm42_schedule schedule : llm42__schedules)
            LLM42__TRY(probe_product(b, m, &t, product, schedule, false, error));
    }
    return LLM42_OK;
}

// >>passes -------------------------------------------------------------------------------------------------------
// A pass whose rows can be moved. Row r is of a sequence of its own; with `chunk` the first half of the rows, rounded
// up, are consecutive rows of one sequence, as in a prompt.
struct moved_pass {
    std::vector<llm42_row> row;
    std::vector<llm42_seq> seq;
    std::vector<int32_t> pages;  // of row 0, 1, ...; sequences share them, because nothing is written
    llm42_pass pass;
};
enum { PROBED_POSITION = 1000, PAGES_OF_ROW = 3 };

static void make_pass(const bench *b, moved_pass *p, llm42_schedule schedule, int rows, int shift, bool chunk) {
    const llm42__cuda *cu = b->cu;
    const int in_chunk = chunk ? (rows + 1) / 2 : 0;
    const size_t table = (size_t)cu->desc.max_context / PAGE;
    p->row.resize((size_t)rows), p->seq.resize((size_t)rows);
    p->pages.resize(table + (size_t)rows * PAGES_OF_ROW);
    for (size_t i = 0; i < p->pages.size(); i++) p->pages[i] = (int32_t)(llm42__hash(i) % KV_PAGES);
    for (int r = 0; r < rows; r++) {
        const int place = (r + shift) % rows;
        const bool in = r < in_chunk;
        llm42_seq *seq = &p->seq[(size_t)r];
        *seq = llm42_seq{};
        seq->request = r + 1;
        seq->pages = p->pages.data() + (in ? 0 : r * PAGES_OF_ROW);
        const int position = in  ? PROBED_POSITION + r
                             : r ? 64 + (int)(llm42__hash((uint64_t)r) % 1900)
                                 : (int)PROBED_POSITION;
        p->row[(size_t)place] = {in ? 0 : r, position, r, LLM42_ROW_SAMPLE | LLM42_ROW_KEEP_KV};
    }
    p->pass = llm42_pass{};
    p->pass.schedule = schedule, p->pass.rows = rows;
    p->pass.shape = schedule == LLM42_SCHEDULE_FIXED ? cu->desc.fixed_rows : rows;
    p->pass.row = p->row.data(), p->pass.seq = p->seq.data();
}

// Puts the metadata of a pass on the device, as a pass does.
static llm42_result place_pass(const bench *b, const moved_pass *p, llm42_error *error) {
    llm42__execution *ex = b->ex;
    llm42__prepared *ready = &ex->prepared;
    LLM42__TRY(llm42__prepare(b->cu, ex, ready, &p->pass, error));
    LLM42__CU(cudaMemcpyAsync(ex->meta, ex->meta_host, ready->head_bytes, cudaMemcpyHostToDevice, ex->stream));
    LLM42__CU(cudaMemcpyAsync(ex->meta + ready->pages_at, ex->meta_host + ready->pages_at, ready->pages_bytes,
                              cudaMemcpyHostToDevice, ex->stream));
    // Kernels may read metadata before the kernel ahead of them has ended.
    LLM42__CU(cudaStreamSynchronize(ex->stream));
    return LLM42_OK;
}

// >>attention ----------------------------------------------------------------------------------------------------
static llm42_result probe_attention_of(const bench *b, const probe_memory &m, llm42_schedule schedule, bool chunk,
                                       const llm42__bf16 *queries, llm42_error *error) {
    llm42__cuda *cu = b->cu;
    moved_pass pass;
    probe p;
    p.subject = chunk ? "attention, prompt and single rows" : "attention, single rows";
    p.variant = llm42_schedule_name(schedule);
    p.published_as = schedule == LLM42_SCHEDULE_INVARIANT ? "FlashAttention-3, num_splits=1" : nullptr;
    p.note = chunk ? "half of the rows are of one prompt" : "one row of each sequence, 65 to 1,964 keys";
    p.most = std::min(schedule == LLM42_SCHEDULE_FIXED ? cu->desc.fixed_rows : cu->max_rows,
                      chunk ? 2048 : (int)MOST_ROWS);
    p.width = (size_t)cu->attended;
    p.out = b->ex->attended;
    p.half = chunk;
    p.run = [&](int rows, int shift, llm42_error *error) -> llm42_result {
        make_pass(b, &pass, schedule, rows, shift, chunk);
        LLM42__TRY(rotate(b, queries, b->ex->q, rows, cu->model->config.heads * cu->dp, shift, error));
        LLM42__TRY(place_pass(b, &pass, error));
        return llm42__enqueue_attention(cu, &b->ex->prepared.key, 0, error);
    };
    return probe_operator(b, m, p, error);
}

static llm42_result probe_attention(const bench *b, const probe_memory &m, llm42_error *error) {
    llm42__cuda *cu = b->cu;
    device_memory memory;
    llm42__bf16 *queries;
    const size_t width = (size_t)(cu->model->config.heads * cu->dp);
    LLM42__TRY(memory.take(&queries, (size_t)cu->max_rows * width, error));
    llm42__k_fill<<<1024, 256>>>(queries, (size_t)cu->max_rows * width, 48, 1.0f);
    llm42__k_fill<<<1024, 256>>>(cu->k, cu->kv_layer, 49, 1.0f);
    llm42__k_fill<<<1024, 256>>>(cu->v, cu->kv_layer, 50, 1.0f);
    LLM42__CU(cudaGetLastError());
    LLM42__CU(cudaDeviceSynchronize());
    for (bool chunk : {false, true})
        for (llm42_schedule schedule : llm42__schedules)
            LLM42__TRY(probe_attention_of(b, m, schedule, chunk, queries, error));
    return LLM42_OK;
}

// >>norms --------------------------------------------------------------------------------------------------------
// Makes row 0 such that another order of its sum shows. The sum of squares of the first quarter is large. Each square
// of the rest is so small that it is lost if it is added to a thread's sum of the first quarter. But added together
// first, these squares change the sum. The weights put outputs next to the border between two bf16 numbers, so that a
// scale that is off by one unit in the last place moves some of them across. Both x and delta have half of the row's
// values.
static llm42_result sharpen_norm(const bench *b, const norm_data *d, bool residual, llm42_error *error) {
    const int D = b->cu->D;
    std::vector<llm42__bf16> row((size_t)D);
    std::vector<float> weight((size_t)D);
    double squares = 0;
    for (int i = 0; i < D; i++) {
        const uint64_t hash = llm42__hash((uint64_t)i + 51);
        const float large = 1.0f + (float)(hash % 32) / 128.0f, value = i < D / 4 ? large : 1.0f / 2048.0f;
        const float whole = hash >> 63 ? -value : value;
        squares += (double)whole * (double)whole;
        weight[(size_t)i] = fabsf(whole);
        row[(size_t)i] = __float2bfloat16_rn(residual ? 0.5f * whole : whole);
    }
    const double scale = 1.0 / sqrt(squares / D + (double)b->cu->model->config.norm_eps);
    for (int i = 0; i < D; i++) {
        const double border = 1.0 + 1.0 / 256, near = 1.0 + (i % 128 - 64) / 16777216.0;
        weight[(size_t)i] = (float)(border * near / (scale * (double)weight[(size_t)i]));
    }
    LLM42__CU(cudaMemcpy(d->x, row.data(), row.size() * sizeof row[0], cudaMemcpyHostToDevice));
    LLM42__CU(cudaMemcpy(d->delta, row.data(), row.size() * sizeof row[0], cudaMemcpyHostToDevice));
    LLM42__CU(cudaMemcpy(d->weight, weight.data(), weight.size() * sizeof weight[0], cudaMemcpyHostToDevice));
    return LLM42_OK;
}

static llm42_result probe_norm(const bench *b, const probe_memory &m, const norm_data *from, const norm_data *d,
                               bool residual, bool split, llm42_error *error) {
    std::vector<int32_t> token((size_t)NORM_ROWS);
    probe p;
    p.subject = residual ? "residual and RMSNorm" : "RMSNorm";
    p.variant = split ? "control: split by number of rows" : "one block a row";
    p.published_as = residual ? "fused RMSNorm+residual (vLLM/SGLang)" : "RMSNorm";
    p.note = split ? "a row in 8 blocks, with more rows in 4, 2 and 1" : "the kernel of every schedule";
    p.most = MOST_ROWS, p.width = (size_t)b->cu->D, p.out = d->h;
    if (split) p.must_batch = "no", p.must_position = "yes";
    p.run = [&](int rows, int shift, llm42_error *error) -> llm42_result {
        const int D = b->cu->D;
        LLM42__TRY(rotate(b, from->x, d->x, rows, D, shift, error));
        LLM42__TRY(rotate(b, from->delta, d->delta, rows, D, residual ? shift : 0, error));
        for (int r = 0; r < rows; r++) token[(size_t)((r + shift) % rows)] = r;
        LLM42__CU(cudaMemcpyAsync(d->token, token.data(), (size_t)rows * sizeof token[0], cudaMemcpyHostToDevice,
                                  b->ex->stream));
        LLM42__CU(cudaStreamSynchronize(b->ex->stream));
        return run_norm(b, d, residual, split, 0, rows, error);
    };
    return probe_operator(b, m, p, error);
}

static llm42_result probe_norms(const bench *b, const probe_memory &m, llm42_error *error) {
    device_memory memory;
    norm_data from = {}, d = {};
    LLM42__TRY(open_norm(b, &memory, &from, error));
    LLM42__TRY(open_norm(b, &memory, &d, error));
    for (bool residual : {false, true}) {
        LLM42__TRY(sharpen_norm(b, &from, residual, error));
        LLM42__CU(cudaMemcpy(d.weight, from.weight, (size_t)b->cu->D * sizeof(float), cudaMemcpyDeviceToDevice));
        LLM42__CU(cudaDeviceSynchronize());
        for (bool split : {false, true}) LLM42__TRY(probe_norm(b, m, &from, &d, residual, split, error));
    }
    return LLM42_OK;
}

// >>others -------------------------------------------------------------------------------------------------------
static llm42_result probe_rope(const bench *b, const probe_memory &m, llm42_error *error) {
    llm42__cuda *cu = b->cu;
    device_memory memory;
    llm42__bf16 *qkv;
    moved_pass pass;
    LLM42__TRY(memory.take(&qkv, (size_t)cu->max_rows * (size_t)cu->qkv, error));
    llm42__k_fill<<<1024, 256>>>(qkv, (size_t)cu->max_rows * (size_t)cu->qkv, 52, 1.0f);
    LLM42__CU(cudaGetLastError());
    LLM42__CU(cudaDeviceSynchronize());
    probe p;
    p.subject = "rotary embedding", p.variant = "all schedules", p.published_as = nullptr;
    p.note = "no sums";
    p.most = cu->max_rows, p.width = (size_t)(cu->model->config.heads * cu->dp), p.out = b->ex->q;
    p.run = [&](int rows, int shift, llm42_error *error) -> llm42_result {
        make_pass(b, &pass, LLM42_SCHEDULE_FAST, rows, shift, false);
        LLM42__TRY(rotate(b, qkv, b->ex->qkv, rows, cu->qkv, shift, error));
        LLM42__TRY(place_pass(b, &pass, error));
        const llm42__meta meta = llm42__meta_at(cu, &b->ex->prepared.key, b->ex->meta, LLM42__FULL);
        return llm42__enqueue_rope(cu, rows, 0, meta, error);
    };
    return probe_operator(b, m, p, error);
}

static llm42_result probe_gate(const bench *b, const probe_memory &m, llm42_error *error) {
    llm42__cuda *cu = b->cu;
    device_memory memory;
    llm42__bf16 *both;
    const size_t count = (size_t)cu->max_rows * 2 * (size_t)cu->Fp;
    LLM42__TRY(memory.take(&both, count, error));
    llm42__k_fill<<<1024, 256>>>(both, count, 53, 1.0f);
    LLM42__CU(cudaGetLastError());
    LLM42__CU(cudaDeviceSynchronize());
    probe p;
    p.subject = "SiLU gate", p.variant = "all schedules", p.published_as = nullptr;
    p.note = "no sums";
    p.most = cu->max_rows, p.width = (size_t)cu->Fp, p.out = b->ex->gated;
    p.run = [&](int rows, int shift, llm42_error *error) -> llm42_result {
        LLM42__TRY(rotate(b, both, b->ex->gate_up, rows, 2 * cu->Fp, shift, error));
        return LLM42__STATUS(llm42__run_gate(cu, b->ex, b->ex->gate_up, false, b->ex->gated, nullptr, rows));
    };
    return probe_operator(b, m, p, error);
}

// What a draw needs. Rows are greedy and sampled in turn; row 0 is sampled.
struct draw_data {
    llm42__bf16 *logits, *moved;  // [rows, V padded]
    llm42__header *header;
    llm42__draw *draw;
    llm42_output *out;
    std::vector<llm42__draw> host;
};

static llm42_result run_draws(const bench *b, draw_data *d, int rows, int shift, llm42_error *error) {
    llm42__cuda *cu = b->cu;
    llm42__header header = {};
    llm42__meta meta = {};
    header.rows = header.draws = rows;
    meta.header = d->header, meta.draw = d->draw;
    d->host.resize((size_t)rows);
    for (int r = 0; r < rows; r++) {
        const int place = (r + shift) % rows;
        const bool sampled = r % 2 == 0;
        llm42__draw draw = {};
        draw.row = place, draw.position = 100 + r, draw.seed = 42 + (uint64_t)r;
        if (sampled) draw.temperature = 0.8f, draw.top_k = 50, draw.top_p = 0.95f;
        d->host[(size_t)place] = draw;
    }
    LLM42__TRY(rotate(b, d->logits, d->moved, rows, cu->Vp, shift, error));
    LLM42__CU(cudaMemcpyAsync(d->header, &header, sizeof header, cudaMemcpyHostToDevice, b->ex->stream));
    LLM42__CU(cudaMemcpyAsync(d->draw, d->host.data(), d->host.size() * sizeof d->host[0], cudaMemcpyHostToDevice,
                              b->ex->stream));
    LLM42__CU(cudaStreamSynchronize(b->ex->stream));
    LLM42__CU(llm42__run_draw(cu, (const llm42__bf16 *)d->moved, d->out, rows, meta, 0, b->ex->stream));
    return LLM42_OK;
}

static llm42_result probe_draw(const bench *b, const probe_memory &m, llm42_error *error) {
    llm42__cuda *cu = b->cu;
    device_memory memory;
    draw_data d = {};
    const size_t rows = (size_t)std::min(cu->max_rows, 1024), count = rows * (size_t)cu->Vp;
    LLM42__TRY(memory.take(&d.logits, count, error));
    LLM42__TRY(memory.take(&d.moved, count, error));
    LLM42__TRY(memory.take(&d.header, 1, error));
    LLM42__TRY(memory.take(&d.draw, rows, error));
    LLM42__TRY(memory.take(&d.out, rows, error));
    llm42__k_fill<<<2048, 256>>>(d.logits, count, 54, 2.0f);
    LLM42__CU(cudaGetLastError());
    LLM42__CU(cudaDeviceSynchronize());
    probe p;
    p.subject = "softmax, log-probability and sampler", p.variant = "all schedules", p.published_as = nullptr;
    p.note = "token and log-probability of each row";
    p.most = (int)rows, p.width = sizeof(llm42_output) / 2, p.out = d.out;
    p.run = [&](int rows, int shift, llm42_error *error) { return run_draws(b, &d, rows, shift, error); };
    return probe_operator(b, m, p, error);
}

static llm42_result probe_others(const bench *b, const probe_memory &m, llm42_error *error) {
    LLM42__TRY(probe_rope(b, m, error));
    LLM42__TRY(probe_gate(b, m, error));
    return probe_draw(b, m, error);
}
