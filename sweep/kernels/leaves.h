// leaves.h: the products with leaves (o and down) by number of rows, beside cuBLASLt's without. measure.cu includes it.
//
//     cublas       the fastest that cuBLASLt has without leaves, in any order of sums
//     invariant    what the engine takes for INVARIANT passes: one of the next three
//     batch        the fastest of cuBLASLt's with leaves: a product for each leaf, and the join
//     tile         the fastest of our tile kernels with leaves (llm42__k_matmul)
//     leaf         the fastest of our kernels for leaves (llm42__k_leaves)
//     join         the join alone
enum { LEAST_LEAF_ROWS = 16, ALL_LEAF_ROWS = 256, MOST_LEAF_ROWS = 2048 };

// The fastest of those that fit. *us: infinite if there is none. What cannot run here is left out.
template <typename FITS>
static llm42_result fastest_of(const bench *b, int product, int rows, const std::vector<llm42__candidate> &list,
                               FITS fits, llm42__bf16 *y, llm42__algorithm *fastest, double *us, llm42_error *error) {
    *us = INFINITY;
    for (const llm42__candidate &c : list) {
        if (!fits(c.algorithm)) continue;
        std::vector<way> one = {product_way(b, product, &c.algorithm, rows, y)};
        if (time_in_turn(b, 0, &one, nullptr) != LLM42_OK) LLM42__TRY(llm42__device_alive(error));
        else if (one[0].us < *us) *us = one[0].us, *fastest = c.algorithm;
    }
    return LLM42_OK;
}

static way join_way(const bench *b, int product, int rows, llm42__bf16 *y) {
    const int n = llm42__product_shape(b->cu, product).n;
    return {LAYERS_IN_TURN,
            [=](int, llm42_error *error) -> llm42_result {
                LLM42__CU(
                    llm42__join_parts(b->ex->stream, b->ex->parts, b->cu->leaves, rows, n, llm42__owners{}, false, y));
                return LLM42_OK;
            },
            0};
}

static void emit_leaves(const bench *b, int product, const char *variant, int rows, double us, double cublas,
                        const std::string &note) {
    kernels_line line = kernels_line_of("leaves", llm42__product_names[product], variant, rows);
    const llm42__product_size size = llm42__product_shape(b->cu, product);
    line.n = size.n, line.k = size.k;
    line.leaves = strcmp(variant, "cublas") == 0 ? 1 : b->cu->leaves;
    line.us = us;
    if (cublas > 0 && cublas < INFINITY) {  // not the join
        line.tflop_per_s = 2e-6 * (double)rows * (double)line.n * (double)line.k / us;
        line.relative_pct = 100 * cublas / us;
        line.ceiling_pct = 100 * product_floor(b, product, rows) / us;
    }
    line.note = note.c_str();
    emit(b, line);
}

// cuBLAS, the engine's choice and our fastest kernel for leaves are timed in turn. The batch and the tile kernel are
// slower and are timed afterwards: a slow kernel lets the GPU cool, so that what runs behind it has a higher clock
// rate.
static llm42_result leaves_at(const bench *b, int product, int rows, llm42__bf16 *y, llm42_error *error) {
    enum { CUBLAS, BATCH, TILE, LEAF, INVARIANT, KINDS };
    static const char *const variants[] = {"cublas", "batch", "tile", "leaf", "invariant"};
    llm42__cuda *cu = b->cu;
    std::vector<llm42__candidate> list;
    llm42__algorithm algorithm[KINDS];
    double us[KINDS];
    std::vector<way> join = {join_way(b, product, rows, y)};
    LLM42__TRY(llm42__candidates(cu, product, rows, &list, error));
    for (int i = 0; i < INVARIANT; i++) {
        progress(b, "leaves: %s, %d rows, %s", llm42__product_names[product], rows, variants[i]);
        LLM42__TRY(fastest_of(
            b, product, rows, list,
            [&](const llm42__algorithm &a) {
                const int of = llm42__leaf_kind_of(&a) ? LEAF : a.tile >= 0 ? TILE : a.leaves ? BATCH : CUBLAS;
                return of == i && a.leaves == (i != CUBLAS);
            },
            y, &algorithm[i], &us[i], error));
    }
    algorithm[INVARIANT] = *llm42__algorithm_of(cu, product, LLM42_SCHEDULE_INVARIANT, rows);
    us[INVARIANT] = 0;
    auto time_those = [&](std::initializer_list<int> which) -> llm42_result {
        std::vector<way> ways;
        for (int i : which)
            if (us[i] < INFINITY) ways.push_back(product_way(b, product, &algorithm[i], rows, y));
        LLM42__TRY(time_in_turn(b, WARM_SECONDS, &ways, error));
        size_t at = 0;
        for (int i : which)
            if (us[i] < INFINITY) us[i] = ways[at++].us;
        return LLM42_OK;
    };
    const bool same = us[LEAF] < INFINITY && algorithm[INVARIANT].tile == algorithm[LEAF].tile;
    if (same) LLM42__TRY(time_those({CUBLAS, INVARIANT}));
    else LLM42__TRY(time_those({CUBLAS, INVARIANT, LEAF}));
    LLM42__TRY(time_those({BATCH, TILE}));
    if (same) us[LEAF] = us[INVARIANT];
    LLM42__TRY(time_in_turn(b, 0, &join, error));
    for (int i = 0; i < KINDS; i++) {
        if (us[i] == INFINITY) continue;
        emit_leaves(b, product, variants[i], rows, us[i], us[CUBLAS], llm42__algorithm_name(&algorithm[i]));
    }
    emit_leaves(b, product, "join", rows, join[0].us, 0, "the join alone");
    return LLM42_OK;
}

static llm42_result measure_leaves(const bench *b, llm42_error *error) {
    llm42__cuda *cu = b->cu;
    device_memory memory;
    llm42__bf16 *y;
    LLM42__TRY(memory.take(&y, (size_t)cu->max_rows * (size_t)cu->Dp, error));
    // Numbers of rows that passes are padded to: from ALL_LEAF_ROWS on all of them, because tiles fit some far better
    // than others.
    for (int product : {LLM42__O, LLM42__DOWN})
        for (int rows : cu->buckets) {
            const bool power = (rows & (rows - 1)) == 0;
            if (rows >= LEAST_LEAF_ROWS && rows <= MOST_LEAF_ROWS && (power || rows >= ALL_LEAF_ROWS))
                LLM42__TRY(leaves_at(b, product, rows, y, error));
        }
    return LLM42_OK;
}
