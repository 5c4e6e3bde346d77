// cost.h: what invariance costs whole passes: a decode step and a prompt, by schedule. measure.cu includes it.
//
// A third variant takes one fixed tile for every product and number of rows: the price without a choice among kernels
// that have the same bits. Times are wall times of a pass, from the call to the result.
enum { DECODE_CONTEXT = 512, PROMPT_ROWS = 2048 };

struct cost_pass {
    std::vector<llm42_row> row;
    std::vector<llm42_seq> seq;
    std::vector<int32_t> pages;
    std::vector<llm42_output> out;
    const char *kind;
};

// One row of each of `batch` sequences, or (batch 0) a prompt.
static void make_cost_pass(cost_pass *p, int batch) {
    const int sequences = std::max(1, batch), context = batch ? (int)DECODE_CONTEXT : (int)PROMPT_ROWS,
              table = context / PAGE, rows = batch ? batch : (int)PROMPT_ROWS;
    p->kind = batch ? "decode" : "prompt";
    p->pages.resize((size_t)(sequences * table));
    p->seq.assign((size_t)sequences, llm42_seq{});
    p->row.resize((size_t)rows);
    p->out.resize((size_t)rows);
    for (size_t i = 0; i < p->pages.size(); i++) p->pages[i] = (int32_t)i;
    for (int s = 0; s < sequences; s++) {
        p->seq[(size_t)s].request = s + 1;
        p->seq[(size_t)s].pages = p->pages.data() + s * table;
    }
    for (int r = 0; r < rows; r++) {
        const bool sampled = batch || r + 1 == rows;
        p->row[(size_t)r] = {batch ? r : 0, batch ? context - 1 : r, (7 * r + 3) % 1000,
                             sampled ? (uint32_t)LLM42_ROW_SAMPLE : 0u};
    }
}

static llm42_result run_cost_pass(const bench *b, cost_pass *p, llm42_schedule schedule, double *seconds,
                                  llm42_error *error) {
    llm42_pass pass = {};
    pass.schedule = schedule;
    pass.rows = pass.shape = (int)p->row.size();
    pass.row = p->row.data(), pass.seq = p->seq.data(), pass.out = p->out.data();
    const double begin = llm42__wall_now(NULL);
    LLM42__TRY(llm42__cuda_run(b->cu, &pass, error));
    *seconds = llm42__wall_now(NULL) - begin;
    return LLM42_OK;
}

// Median microseconds of a pass under each of the schedules, which run in turn, so that changes of the clock rate
// affect all of them alike. What runs in the first half second does not count.
static llm42_result time_cost_passes(const bench *b, cost_pass *p, const llm42_schedule *schedules, int count,
                                     double *us, llm42_error *error) {
    std::vector<std::vector<double>> times((size_t)count);
    const double begin = llm42__wall_now(NULL);
    while (times[(size_t)count - 1].size() < TIMES) {
        const bool warm = llm42__wall_now(NULL) - begin >= WARM_SECONDS;
        for (int i = 0; i < count; i++) {
            double seconds;
            LLM42__TRY(run_cost_pass(b, p, schedules[i], &seconds, error));
            if (warm) times[(size_t)i].push_back(seconds);
        }
    }
    for (int i = 0; i < count; i++) {
        std::sort(times[(size_t)i].begin(), times[(size_t)i].end());
        us[i] = 1e6 * times[(size_t)i][TIMES / 2];
    }
    return LLM42_OK;
}

// The same with one fixed tile for every product of an INVARIANT pass. The pass's graph is captured anew, before and
// after the measurement.
static llm42_result time_fixed_tile(const bench *b, cost_pass *p, double *us, llm42_error *error) {
    llm42__cuda *cu = b->cu;
    const llm42_schedule schedule = LLM42_SCHEDULE_INVARIANT;
    const llm42__shape_key key = b->ex->prepared.key;  // of the last pass, which was INVARIANT
    std::vector<llm42__algorithm> kept[LLM42__PRODUCTS];
    assert(key.schedule == schedule);
    for (int product = 0; product < LLM42__PRODUCTS; product++) {
        kept[product] = cu->algorithms[product][schedule];
        for (llm42__algorithm &algorithm : cu->algorithms[product][schedule]) algorithm = fixed_tile(product);
    }
    LLM42__TRY(llm42__capture(cu, key, error));
    LLM42__TRY(time_cost_passes(b, p, &schedule, 1, us, error));
    for (int product = 0; product < LLM42__PRODUCTS; product++) cu->algorithms[product][schedule] = kept[product];
    return llm42__capture(cu, key, error);
}

static llm42_result cost_at(const bench *b, int batch, llm42_error *error) {
    static const char *const variants[] = {"fast", "invariant", "fixed_tile"};
    const llm42_schedule schedules[] = {LLM42_SCHEDULE_FAST, LLM42_SCHEDULE_INVARIANT};
    cost_pass p;
    double us[3];
    make_cost_pass(&p, batch);
    progress(b, "cost: %s, %d rows", p.kind, (int)p.row.size());
    LLM42__TRY(time_cost_passes(b, &p, schedules, 2, us, error));
    LLM42__TRY(time_fixed_tile(b, &p, &us[2], error));
    for (int i = 0; i < 3; i++) {
        kernels_line line = kernels_line_of("cost", p.kind, variants[i], (int)p.row.size());
        line.us = us[i];
        line.relative_pct = 100 * us[i] / us[0];
        line.note = batch ? "context 512" : "the last row sampled";
        emit(b, line);
    }
    return LLM42_OK;
}

static llm42_result measure_cost(const bench *b, llm42_error *error) {
    llm42__cuda *cu = b->cu;
    const size_t count = (size_t)cu->model->config.layers * cu->kv_layer;
    llm42__k_fill<<<4096, 256>>>(cu->k, count, 55, 1.0f);
    llm42__k_fill<<<4096, 256>>>(cu->v, count, 56, 1.0f);
    LLM42__CU(cudaGetLastError());
    LLM42__CU(cudaDeviceSynchronize());
    for (int batch = 1; batch <= 256; batch *= 2) LLM42__TRY(cost_at(b, batch, error));
    return cu->max_rows >= PROMPT_ROWS ? cost_at(b, 0, error) : LLM42_OK;
}
