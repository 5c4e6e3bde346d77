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
        double one = INFINITY;
        if (!fits(c.algorithm)) continue;
        if (time_product(b, product, &c.algorithm, rows, y, &one, nullptr) != LLM42_OK)
            LLM42__TRY(llm42__device_alive(error));
        else if (one < *us) *us = one, *fastest = c.algorithm;
    }
    return LLM42_OK;
}

static llm42_result time_join(const bench *b, int product, int rows, llm42__bf16 *y, double *us, llm42_error *error) {
    int n, k;
    llm42__product_shape(b->cu, product, &n, &k);
    return time_launches(
        b, LAYERS_IN_TURN,
        [&](int) -> llm42_result {
            LLM42__CU(llm42__join_parts(b->ex->stream, b->ex->parts, b->cu->leaves, rows, n, llm42__owners{}, y));
            return LLM42_OK;
        },
        us, error);
}

static void emit_leaves(const bench *b, int product, const char *variant, int rows, double us, double cublas,
                        const std::string &note) {
    kernels_line line = kernels_line_of("leaves", llm42__product_names[product], variant, rows);
    llm42__product_shape(b->cu, product, &line.n, &line.k);
    line.leaves = strcmp(variant, "cublas") == 0 ? 1 : b->cu->leaves;
    line.us = us;
    if (cublas > 0 && cublas < INFINITY) {  // not the join
        line.tflop_per_s = 2e-6 * (double)rows * (double)line.n * (double)line.k / us;
        line.relative_pct = 100 * cublas / us;
    }
    line.note = note.c_str();
    emit(b, line);
}

// Each time but that of the join is the median of ROUNDS. cuBLAS, the engine's choice and our fastest kernel for leaves
// are timed in turn. The batch and the tile kernel are slower and are timed afterwards: a slow kernel lets the GPU
// cool, so that what runs behind it has a higher clock rate.
static llm42_result leaves_at(const bench *b, int product, int rows, llm42__bf16 *y, llm42_error *error) {
    enum { CUBLAS, BATCH, TILE, LEAF, INVARIANT, KINDS, ROUNDS = 5 };
    static const char *const variants[] = {"cublas", "batch", "tile", "leaf", "invariant"};
    llm42__cuda *cu = b->cu;
    std::vector<llm42__candidate> list;
    llm42__algorithm algorithm[KINDS];
    double us[KINDS], times[KINDS][ROUNDS], join = 0;
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
    auto time_in_turn = [&](std::initializer_list<int> which) -> llm42_result {
        for (int round = 0; round < ROUNDS; round++)
            for (int i : which)
                if (us[i] < INFINITY)
                    LLM42__TRY(time_product(b, product, &algorithm[i], rows, y, &times[i][round], error));
        return LLM42_OK;
    };
    const bool same = us[LEAF] < INFINITY && algorithm[INVARIANT].tile == algorithm[LEAF].tile;
    if (same) LLM42__TRY(time_in_turn({CUBLAS, INVARIANT}));
    else LLM42__TRY(time_in_turn({CUBLAS, INVARIANT, LEAF}));
    LLM42__TRY(time_in_turn({BATCH, TILE}));
    if (same) std::copy(times[INVARIANT], times[INVARIANT] + ROUNDS, times[LEAF]);
    LLM42__TRY(time_join(b, product, rows, y, &join, error));
    for (int i = 0; i < KINDS; i++) {
        if (us[i] == INFINITY) continue;
        std::sort(times[i], times[i] + ROUNDS);
        us[i] = times[i][ROUNDS / 2];
        emit_leaves(b, product, variants[i], rows, us[i], us[CUBLAS], llm42__algorithm_name(&algorithm[i]));
    }
    emit_leaves(b, product, "join", rows, join, 0, "the join alone");
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
