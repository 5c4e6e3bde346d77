// attention.h: the causal attention of whole prompts in one layer, by number of tokens. measure.cu includes it.
//
// A prompt is one pass, with the tasks and the metadata that an engine makes for it; the kernel is that of every
// schedule. The backend of this part has room for such passes but no algorithms, because it computes no products.
enum { PROMPTS_IN_TURN = 16, MOST_PROMPT = 32768 };
static const int prompt_lengths[] = {512, 2048, 8192, MOST_PROMPT};

// The pages of its KV lie in no order, as a busy engine hands them out (1,237 is prime).
static void make_prompt(const bench *b, moved_pass *p, int rows) {
    p->row.resize((size_t)rows);
    p->seq.assign(1, llm42_seq{});
    p->pages.resize((size_t)(rows + PAGE - 1) / PAGE);
    for (size_t i = 0; i < p->pages.size(); i++) p->pages[i] = (int32_t)(i * 1237 % (size_t)b->cu->desc.pages);
    p->seq[0].request = 1, p->seq[0].pages = p->pages.data();
    for (int r = 0; r < rows; r++)
        p->row[(size_t)r] = {0, r, r % 1000, LLM42_ROW_KEEP_KV | (r + 1 == rows ? (uint32_t)LLM42_ROW_SAMPLE : 0u)};
    p->pass = llm42_pass{};
    p->pass.schedule = LLM42_SCHEDULE_FAST, p->pass.rows = p->pass.shape = rows;
    p->pass.row = p->row.data(), p->pass.seq = p->seq.data();
}

// A launch takes queries, keys and values that no cache holds: those of another place and of another layer than the
// launch before it, but for the longest prompt, which is larger than a cache.
static llm42_result attention_at(const bench *b, int rows, llm42_error *error) {
    llm42__cuda *cu = b->cu;
    llm42__execution *ex = b->ex;
    llm42__bf16 *const q = ex->q, *const attended = ex->attended;
    const int prompts = std::min((int)PROMPTS_IN_TURN, cu->max_rows / rows), layers = cu->config.layers;
    const double heads = cu->config.heads, d = cu->config.head_dim;
    const size_t width = (size_t)(cu->config.heads * cu->dp), of_row = (size_t)cu->attended;
    moved_pass pass;
    make_prompt(b, &pass, rows);
    progress(b, "attention: a prompt of %d tokens", rows);
    LLM42__TRY(place_pass(b, &pass, error));
    auto enqueue = [=](int i, llm42_error *error) {
        ex->q = q + (size_t)i * (size_t)rows * width, ex->attended = attended + (size_t)i * (size_t)rows * of_row;
        const llm42_result result = llm42__enqueue_attention(cu, &ex->prepared.key, i % layers, error);
        ex->q = q, ex->attended = attended;
        return result;
    };
    probe last;  // a kernel that leaves out the last row is an error
    std::vector<uint16_t> bits;
    last.subject = "attention", last.variant = "the last row of a prompt";
    last.width = of_row, last.out = attended + (size_t)(rows - 1) * of_row;
    last.run = [=](int, int, llm42_error *error) { return enqueue(0, error); };
    LLM42__TRY(row_bits(b, last, 1, &bits, error));
    std::vector<way> ways = {{prompts, enqueue, 0}};
    LLM42__TRY(time_in_turn(b, WARM_SECONDS, &ways, error));
    kernels_line line = kernels_line_of("attention", "prompt", "all schedules", rows);
    line.us = ways[0].us;
    line.tflop_per_s = 2e-6 * (double)rows * (double)rows * d * heads / line.us;
    line.note = "one layer, one prompt, all of its rows in one pass";
    emit(b, line);
    return LLM42_OK;
}

// Opens a rank without algorithms and graphs, and fills its queries and its KV.
static llm42_result open_attention(bench *b, const llm42_model *model, llm42_error *error) {
    const kernels_settings *s = b->settings;
    llm42_cuda_desc options = {};
    llm42_backend_desc desc = {};
    cudaDeviceProp device;
    desc.model = model, desc.numerics.compute = LLM42_DTYPE_BF16;
    desc.max_rows = desc.max_context = s->quick ? s->most_rows : std::min((int)MOST_PROMPT, model->config.context);
    desc.pages = (desc.max_context + PAGE - 1) / PAGE, desc.page_size = PAGE, desc.max_running = 1;
    desc.schedules = 1u << LLM42_SCHEDULE_FAST;
    desc.log = s->log, desc.log_user = s->log_user;
    progress(b, "attention: opening the backend");
    LLM42__TRY(llm42__cuda_validate(&desc, error));
    LLM42__TRY(llm42__find_devices(&desc, &options, &device, error));
    llm42__cuda *cu = llm42__new_rank(&desc, &options, 0, &device);
    if (!cu) throw std::bad_alloc();
    b->cu = cu, b->ex = &cu->execution;
    LLM42__TRY(llm42__open_rank(cu, error));
    const size_t queries = (size_t)cu->max_rows * (size_t)(cu->config.heads * cu->dp),
                 cache = (size_t)cu->config.layers * cu->kv_layer;
    llm42__k_fill<<<4096, 256>>>(b->ex->q, queries, 48, 1.0f);
    llm42__k_fill<<<4096, 256>>>(cu->k, cache, 49, 1.0f);
    llm42__k_fill<<<4096, 256>>>(cu->v, cache, 50, 1.0f);
    LLM42__CU(cudaGetLastError());
    LLM42__CU(cudaDeviceSynchronize());
    llm42__log_device(cu);
    llm42__log(s->log, s->log_user, "cuda kernels: %d", LLM42__KERNELS);
    return LLM42_OK;
}

static llm42_result attention_on(bench *b, const llm42_model *model, llm42_error *error) {
    device_memory memory;
    LLM42__TRY(open_attention(b, model, error));
    LLM42__TRY(memory.take(&b->flush, (size_t)FLUSH_BYTES / sizeof *b->flush, error));
    LLM42__TRY(memory.take(&b->word, 1, error));
    if (!wanted(b->settings, "products")) emit_ceilings(b);  // else they are there
    for (int rows : prompt_lengths)
        if (rows <= b->cu->max_rows) LLM42__TRY(attention_at(b, rows, error));
    return LLM42_OK;
}

// Of the model's layers there are as many as are taken in turn: their weights are not used.
static llm42_result measure_attention(const kernels_settings *s, const llm42_cuda_ceilings *ceilings,
                                      const llm42_model *model, llm42_error *error) {
    bench b = {};
    llm42_model few = *model;
    few.config.layers = std::min((int)LAYERS_IN_TURN, few.config.layers);
    b.settings = s, b.ceilings = *ceilings;
    const llm42_result result = llm42__guarded(error, [&]() { return attention_on(&b, &few, error); });
    llm42__cuda_close(b.cu);
    return result;
}
