// products.h: the matrix products of the 8B shape by number of rows (LLM-42, Fig. 4a). measure.cu includes it.
//
// Each launch reads weights that no cache holds: those of eight layers in turn. gate_up includes the gate, as in a
// pass.
enum { LAYERS_IN_TURN = 8 };

static llm42_result time_product(const bench *b, int product, const llm42__algorithm *algorithm, int rows,
                                 llm42__bf16 *y, double *us, llm42_error *error) {
    llm42__cuda *cu = b->cu;
    const bool head = product == LLM42__HEAD;
    const int layers = head ? 1 : std::min<int>(LAYERS_IN_TURN, cu->model->config.layers), launches = head ? 2 : layers;
    return time_launches(
        b, launches,
        [&](int i) {
            return llm42__run_product(cu, b->ex, product, algorithm, llm42__weights_of(cu, product, i % layers),
                                      b->noise, y, b->ex->gate_up, rows, error);
        },
        us, error);
}

static llm42_result products_at(const bench *b, int product, int rows, llm42__bf16 *y, llm42_error *error) {
    llm42__cuda *cu = b->cu;
    static const char *const variants[] = {"cublas", "fast", "invariant", "fixed_tile"};
    llm42__algorithm first;
    LLM42__TRY(first_choice(cu, product, rows, &first, error));
    const llm42__algorithm tile = fixed_tile(),
                           *algorithms[] = {&first, llm42__algorithm_of(cu, product, LLM42_SCHEDULE_FAST, rows),
                                            llm42__algorithm_of(cu, product, LLM42_SCHEDULE_INVARIANT, rows), &tile};
    int n, k;
    double cublas = 0;
    llm42__product_shape(cu, product, &n, &k);
    for (int i = 0; i < 4; i++) {
        double us = 0;
        progress(b, "products: %s, %d rows, %s", llm42__product_names[product], rows, variants[i]);
        LLM42__TRY(time_product(b, product, algorithms[i], rows, y, &us, error));
        const std::string name = llm42__algorithm_name(algorithms[i]);
        kernels_line line = kernels_line_of("products", llm42__product_names[product], variants[i], rows);
        line.us = us;
        line.tflop_per_s = 2e-6 * (double)rows * (double)n * (double)k / us;
        line.gb_per_s = 2e-3 * (double)n * (double)k / us;  // of weights
        if (!i) cublas = us;
        line.relative_pct = 100 * cublas / us;
        line.note = name.c_str();
        emit(b, line);
    }
    return LLM42_OK;
}

// down, which the paper's figure shows, comes first.
static llm42_result measure_products(const bench *b, llm42_error *error) {
    llm42__cuda *cu = b->cu;
    device_memory memory;
    llm42__bf16 *y;
    size_t most = 0;
    for (int product = LLM42__QKV; product <= LLM42__HEAD; product++) {
        int n, k;
        llm42__product_shape(cu, product, &n, &k);
        most = std::max(most, (size_t)llm42__most_rows(cu, product) * (size_t)n);
    }
    LLM42__TRY(memory.take(&y, most, error));
    for (int product : {LLM42__DOWN, LLM42__QKV, LLM42__O, LLM42__GATE_UP, LLM42__HEAD})
        for (int rows = 1; rows <= llm42__most_rows(cu, product); rows *= 2)
            LLM42__TRY(products_at(b, product, rows, y, error));
    return LLM42_OK;
}
