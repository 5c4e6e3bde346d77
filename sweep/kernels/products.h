// products.h: the matrix products of the 8B shape by number of rows (LLM-42, Fig. 4a). measure.cu includes it.
//
// Each launch reads weights that no cache holds: those of eight layers in turn. gate_up includes the gate, as in a
// pass.
enum { LAYERS_IN_TURN = 8 };

static way product_way(const bench *b, int product, const llm42__algorithm *algorithm, int rows, llm42__bf16 *y) {
    llm42__cuda *cu = b->cu;
    const bool head = product == LLM42__HEAD;
    const int layers = head ? 1 : std::min<int>(LAYERS_IN_TURN, cu->model->config.layers), launches = head ? 2 : layers;
    return {launches,
            [=](int i, llm42_error *error) {
                return llm42__run_product(cu, b->ex, product, algorithm, llm42__weights_of(cu, product, i % layers),
                                          b->noise, y, b->ex->gate_up, rows, error);
            },
            0};
}

static double weight_bytes(int product) { return llm42__in_e4m3(product) ? 1 : 2; }

// What the product takes at least: its floating-point operations and its weights by the ceilings that last.
static double product_floor(const bench *b, int product, int rows) {
    const auto [n, k] = llm42__product_shape(b->cu, product);
    const double weights = (double)n * (double)k;
    return 1e6 * std::max(2 * (double)rows * weights / b->sustained_flop,
                          weight_bytes(product) * weights / b->sustained_bytes);
}

// The fixed tile is timed afterwards: a slow kernel lets the GPU cool, so that what runs behind it has a higher clock
// rate.
static llm42_result products_at(const bench *b, int product, int rows, llm42__bf16 *y, llm42_error *error) {
    llm42__cuda *cu = b->cu;
    llm42__algorithm first;
    const llm42_result offered = first_choice(cu, product, rows, &first, error);
    if (offered != LLM42_OK && offered != LLM42_UNSUPPORTED) return offered;
    const llm42__algorithm tile = fixed_tile(product);
    std::vector<std::pair<const char *, const llm42__algorithm *>> variants = {
        {"cublas", &first},
        {"fast", llm42__algorithm_of(cu, product, LLM42_SCHEDULE_FAST, rows)},
        {"invariant", llm42__algorithm_of(cu, product, LLM42_SCHEDULE_INVARIANT, rows)},
        {"fixed_tile", &tile}};
    if (offered != LLM42_OK) variants.erase(variants.begin());  // e4m3, with some numbers of rows
    const auto [n, k] = llm42__product_shape(cu, product);
    std::vector<way> ways, slow;
    for (const auto &[name, algorithm] : variants)
        (algorithm == &tile ? slow : ways).push_back(product_way(b, product, algorithm, rows, y));
    progress(b, "products: %s, %d rows", llm42__product_names[product], rows);
    LLM42__TRY(time_in_turn(b, WARM_SECONDS, &ways, error));
    LLM42__TRY(time_in_turn(b, WARM_SECONDS, &slow, error));
    ways.push_back(slow[0]);
    for (size_t i = 0; i < ways.size(); i++) {
        const double us = ways[i].us;
        const std::string name = llm42__algorithm_name(variants[i].second);
        kernels_line line = kernels_line_of("products", llm42__product_names[product], variants[i].first, rows);
        line.us = us;
        line.tflop_per_s = 2e-6 * (double)rows * (double)n * (double)k / us;
        line.gb_per_s = 1e-3 * weight_bytes(product) * (double)n * (double)k / us;  // of weights
        if (offered == LLM42_OK) line.relative_pct = 100 * ways[0].us / us;
        line.ceiling_pct = 100 * product_floor(b, product, rows) / us;
        line.note = name.c_str();
        emit(b, line);
    }
    return LLM42_OK;
}

// What lasts: reading memory, and the fastest of the four algorithms that cuBLASLt offers first for down with most
// rows. Each runs alone, so that its GPU is as warm as it makes it.
static llm42_result measure_sustained(bench *b, llm42_error *error) {
    llm42__cuda *cu = b->cu;
    device_memory memory;
    llm42__bf16 *y;
    std::vector<llm42__candidate> list;
    std::vector<way> products, read;
    const int rows = cu->max_rows;
    const size_t kv = (size_t)cu->model->config.layers * cu->kv_layer * sizeof *cu->k,
                 bytes = std::min(kv, (size_t)4 << 30) / 16 * 16;
    const int down = llm42__product_in(cu, LLM42__DOWN, 0);
    const auto [n, k] = llm42__product_shape(cu, down);
    LLM42__TRY(memory.take(&y, (size_t)rows * (size_t)n, error));
    LLM42__TRY(llm42__candidates(cu, down, rows, &list, error));
    for (const llm42__candidate &c : list)
        if (c.rank >= 0 && c.rank < 4) products.push_back(product_way(b, down, &c.algorithm, rows, y));
    read.push_back({1,
                    [=](int, llm42_error *error) -> llm42_result {
                        llm42__k_read<<<(unsigned)cu->device.multiProcessorCount * 4, 512, 0, b->ex->stream>>>(
                            (const uint4 *)cu->k, bytes / 16, b->word);
                        LLM42__CU(cudaGetLastError());
                        return LLM42_OK;
                    },
                    0});
    progress(b, "ceilings that last");
    LLM42__TRY(time_in_turn(b, WARM_SECONDS, &read, error));
    b->sustained_bytes = 1e6 * (double)bytes / read[0].us;
    for (way &w : products) {
        std::vector<way> alone = {w};
        LLM42__TRY(time_in_turn(b, WARM_SECONDS, &alone, error));
        b->sustained_flop = std::max(b->sustained_flop, 2e6 * (double)rows * (double)n * (double)k / alone[0].us);
    }
    kernels_line last_read = kernels_line_of("ceilings", "memory_read_sustained", NULL, 0),
                 last_product = kernels_line_of(
                     "ceilings", llm42__in_e4m3(down) ? "matmul_e4m3_sustained" : "matmul_bf16_sustained", NULL, 0);
    last_read.gb_per_s = 1e-9 * b->sustained_bytes, last_product.tflop_per_s = 1e-12 * b->sustained_flop;
    emit(b, last_read);
    emit(b, last_product);
    return LLM42_OK;
}

// down, which the paper's figure shows, comes first.
static llm42_result measure_products(const bench *b, llm42_error *error) {
    llm42__cuda *cu = b->cu;
    device_memory memory;
    llm42__bf16 *y;
    size_t most = 0;
    for (int product : {LLM42__QKV, LLM42__O, LLM42__GATE_UP, LLM42__DOWN, LLM42__HEAD}) {
        const auto [n, k] = llm42__product_shape(cu, product);
        most = std::max(most, (size_t)llm42__most_rows(cu, product) * (size_t)n);
    }
    LLM42__TRY(memory.take(&y, most, error));
    for (int product : {LLM42__DOWN, LLM42__QKV, LLM42__O, LLM42__GATE_UP, LLM42__HEAD})
        for (int rows = 1; rows <= llm42__most_rows(cu, product); rows *= 2)
            LLM42__TRY(products_at(b, llm42__product_in(cu, product, 0), rows, y, error));
    return LLM42_OK;
}
