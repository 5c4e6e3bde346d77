// rig.c: a backend with many sequences, for timing single passes.
#include "sweep/bench/bench.h"

enum { MAX_SAMPLES = 512 };

void rig_add_row(rig *r, int seq, int position, bool sample) {
    uint32_t token = ((uint32_t)(seq % r->page_tables) * 7919u + (uint32_t)position) * 2654435761u >> 8;
    uint32_t flags = sample ? LLM42_ROW_SAMPLE : 0;
    if (!r->rows || r->row[r->rows - 1].seq != seq) r->seq[seq].state = position;  // of recurrent layers
    r->seq[seq].state_to = position + 1;
    r->row[r->rows++] = (llm42_row){seq, position, (int32_t)(token % (uint32_t)r->vocab), flags};
    r->sampled += sample;
    int keys = position + 1;
    r->keys += keys > r->sliding_window ? keys - r->sliding_share * (keys - r->sliding_window) : keys;
}

void rig_clear(rig *r) { r->rows = r->sampled = 0, r->keys = 0; }

void rig_run(rig *r, llm42_schedule schedule, int shape) {
    llm42_error error = {0};
    llm42_pass pass = {
        .schedule = schedule, .rows = r->rows, .shape = shape, .row = r->row, .seq = r->seq, .out = r->out};
    args_check(r->backend->run(r->state, &pass, &error), &error);
}

// If there are fewer page tables than sequences, several sequences share a table. Their rows then write to shared
// pages, which is forbidden (llm42_pass), so the tokens of such passes are wrong. Here only times are measured.
void rig_deal_pages(rig *r, int context) {
    r->pages_a_table = (context + PAGE_SIZE - 1) / PAGE_SIZE;
    int64_t tables = r->pool / r->pages_a_table;
    r->page_tables = tables < 1 ? 1 : tables > RIG_ROWS ? RIG_ROWS : (int)tables;
    for (int i = 0; i < RIG_ROWS; i++)
        r->seq[i] = (llm42_seq){.request = i + 1, .pages = r->pages + r->pages_a_table * (i % r->page_tables)};
}

// Sequences in a pass: those that decode, or those of windows. A CPU needs to know only with recurrent layers.
static int rig_running(const bench *b, const rig_desc *wanted) {
    int64_t windows = wanted->max_rows / (b->set.window < 31 ? b->set.window : 31) + 1;  // 31: see rig_piece_rows
    int running = b->set.max_running > wanted->running ? (int)b->set.max_running : wanted->running;
    if (!b->cuda && !b->model->config.recurrent_layers) return 0;
    return windows > running ? (int)windows : running;
}

void rig_open(rig *r, bench *b, rig_desc wanted) {
    const llm42_config *c = &b->model->config;
    int context = wanted.context, fill = wanted.fill_rows ? wanted.fill_rows : CPU_ROWS;
    *r = (rig){
        .backend = b->engine.backend, .context = context, .vocab = c->vocab, .sliding_window = c->sliding_window};
    for (int l = 0; l < c->layers; l++) r->sliding_share += b->model->layer[l].sliding ? 1.0 / c->layers : 0.0;
    r->pool = (int64_t)((context + PAGE_SIZE - 1) / PAGE_SIZE) * wanted.page_tables;
    llm42_error error = {0};
    llm42_backend_desc desc = {.model = b->model,
                               .numerics = b->engine.numerics,
                               .tensor_parallel = b->engine.tensor_parallel,
                               .max_rows = wanted.max_rows,
                               .max_context = context,
                               .pages = (int)r->pool,
                               .page_size = PAGE_SIZE,
                               .max_running = rig_running(b, &wanted),
                               .fixed_rows = wanted.fixed_rows,
                               .schedules = wanted.schedules,
                               .backend_desc = b->engine.backend_desc,
                               .log = b->engine.log,
                               .log_user = b->engine.log_user};
    args_check(r->backend->open(&r->state, &desc, &error), &error);
    r->pages = allocate((size_t)r->pool * sizeof *r->pages);
    for (int i = 0; i < r->pool; i++) {  // a shuffle, or none
        int other = wanted.scattered ? (int)(llm42_hash((uint64_t)i) % (uint64_t)(i + 1)) : i;
        r->pages[i] = r->pages[other];
        r->pages[other] = i;
    }
    rig_deal_pages(r, context);
    const int filled = c->recurrent_layers && desc.max_running < r->page_tables ? desc.max_running : r->page_tables;
    for (int s = 0; s < filled; s++) {
        progress("filling the KV cache, sequence %d of %d", s + 1, r->page_tables);
        for (int p = 0; p < context;) {
            rig_clear(r);
            for (; p < context && r->rows < fill; p++) rig_add_row(r, s, p, false);
            rig_run(r, LLM42_SCHEDULE_FAST, r->rows);
        }
    }
    progress(NULL);
}

void rig_close(rig *r) {
    r->backend->close(r->state);
    free(r->pages);
}

void rig_time(rig *r, const llm42_schedule *schedule, int count, int repeats, double *seconds) {
    double times[MOST_IN_TURN][MAX_SAMPLES], start = wall_seconds();
    int samples = 0;
    for (int i = 0; i < 2 * count; i++) rig_run(r, schedule[i % count], r->rows);
    for (; samples < repeats || (samples < MAX_SAMPLES && wall_seconds() - start < 0.3 * count); samples++)
        for (int i = 0; i < count; i++) {
            double begin = wall_seconds();
            rig_run(r, schedule[i], r->rows);
            times[i][samples] = wall_seconds() - begin;
        }
    for (int i = 0; i < count; i++) seconds[i] = median(times[i], samples);
}

void rig_decode_rows(rig *r, int rows, int context) {
    rig_clear(r);
    for (int i = 0; i < rows; i++) rig_add_row(r, i, context - 1, true);
}

void rig_window_rows(rig *r, int rows, int window, int context) {
    rig_clear(r);
    for (int i = 0; i < rows; i++) rig_add_row(r, i / window, context - window + i % window, true);
}

void rig_chunk_rows(rig *r, int first, int rows, bool end) {
    rig_clear(r);
    for (int i = 0; i < rows; i++) rig_add_row(r, 0, first + i, end && i == rows - 1);
}

void rig_prompt_rows(rig *r, int rows) { rig_chunk_rows(r, 0, rows, true); }

double rig_kv_bytes(const bench *b, const rig *r) {
    double tokens = 0, sequences = 0;
    for (int i = 0; i < r->rows; i++)
        if (i + 1 == r->rows || r->row[i + 1].seq != r->row[i].seq) tokens += r->row[i].position + 1, sequences++;
    return tokens * (double)llm42_kv_token_bytes(&b->model->config, b->engine.numerics.compute) +
           2 * sequences * (double)llm42_state_bytes(&b->model->config);
}
