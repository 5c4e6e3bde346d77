// passes.c: how long passes take on the CPU, as shares of its ceilings.
#include "sweep/bench/bench.h"

enum { DECODE_ROWS = 32, WINDOW = 32, PAGE_TABLES = 40 };

// >>counts -------------------------------------------------------------------------------------------------------
static double elements(llm42_matrix m) { return (double)m.n * m.k; }
static double stored(llm42_matrix m) {
    return elements(m) * (m.type == LLM42_DTYPE_E4M3 ? 1 : m.type == LLM42_DTYPE_BF16 ? 2 : 4);
}

// Weights that a pass of `rows` rows uses: in bytes for the pass, or (rows = 0) in elements for one row. Of a mixture's
// experts as many count as are used on average if every row chooses its own at random.
static double layer_weights(const llm42_model *model, int rows) {
    const llm42_config *c = &model->config;
    double sum = 0;
    for (int l = 0; l < c->layers; l++) {
        const llm42_layer *w = &model->layer[l];
        const llm42_matrix dense[] = {w->qkv, w->z, w->q, w->k, w->v, w->o, w->gate, w->up, w->down};
        for (int i = 0; i < (c->experts ? 6 : 9); i++) sum += rows ? stored(dense[i]) : elements(dense[i]);
        if (!c->experts) continue;
        sum += rows ? stored(w->router) : elements(w->router);
        const double missed = pow(1 - (double)c->experts_used / c->experts, rows ? rows : 1);
        for (int i = 0; i < 3 && c->shared_ffn; i++)
            sum += rows ? stored(w->expert[3 * c->experts + i]) : elements(w->expert[3 * c->experts + i]);
        for (int i = 0; i < 3; i++)
            sum += c->experts * (1 - missed) * (rows ? stored(w->expert[i]) : elements(w->expert[i]));
    }
    return sum;
}

double pass_bytes(const llm42_model *model, int rows, int sampled) {
    return layer_weights(model, rows) + (sampled ? stored(model->head) : 0);
}

double pass_flop(const llm42_model *model, int rows, int sampled, double keys) {
    const llm42_config *c = &model->config;
    return 2 * layer_weights(model, 0) * rows + 2 * elements(model->head) * sampled +
           4.0 * (c->layers - c->recurrent_layers) * c->heads * c->head_dim * keys +
           8.0 * c->recurrent_layers * c->value_heads * c->value_dim * c->key_dim * rows;
}

static figures pass_measure(const bench *b, rig *r, llm42_schedule schedule, const char *kind, int context) {
    char name[48];
    snprintf(name, sizeof name, "%s_%s", llm42_schedule_name(schedule), kind);
    progress("passes: %s, %d rows, context %d", name, r->rows, context);
    figures f = figures_of(b, "passes", name);
    double time;
    rig_time(r, &schedule, 1, (int)b->set.repeats, &time);
    f.rows = r->rows, f.context_tokens = context, f.ms = 1e3 * time, f.tokens_per_s = r->rows / time;
    f.gb_per_s = 1e-9 * pass_bytes(b->model, r->rows, r->sampled) / time;
    f.gflop_per_s = 1e-9 * pass_flop(b->model, r->rows, r->sampled, r->keys) / time;
    f.memory_share_pct = 100 * f.gb_per_s / b->memory_gb_per_s;
    f.fma_share_pct = 100 * f.gflop_per_s / b->fma_gflop_per_s;
    progress(NULL);
    printf("%-20s %5d %8d %9.3f %10.0f %8.2f %8.1f %9.2f %8.1f\n", name, r->rows, context, f.ms, f.tokens_per_s,
           f.gb_per_s, f.memory_share_pct, f.gflop_per_s, f.fma_share_pct);
    figures_write(b, &f);
    return f;
}

static void passes_at(bench *b, rig *r, int context, bool target) {
    for (int rows = 1; rows <= DECODE_ROWS; rows *= 2) {
        rig_decode_rows(r, rows, context);
        figures f = pass_measure(b, r, LLM42_SCHEDULE_FAST, "decode", context);
        if (target && rows == 1) b->decode1_share = f.memory_share_pct, b->decode1_rate = f.tokens_per_s;
        if (target && rows == 32) b->decode32_rate = f.tokens_per_s, b->decode32_gflop = f.gflop_per_s;
    }
    for (int rows = 1; rows <= DECODE_ROWS; rows *= DECODE_ROWS) {
        rig_decode_rows(r, rows, context);
        pass_measure(b, r, LLM42_SCHEDULE_INVARIANT, "decode", context);
    }
    for (int rows = 64; rows <= CPU_ROWS; rows *= 2) {
        rig_window_rows(r, rows, WINDOW, context);
        figures f = pass_measure(b, r, LLM42_SCHEDULE_FIXED, "replay", context);
        if (target && rows == CPU_ROWS) b->replay_share = f.fma_share_pct;
    }
}

void run_passes(bench *b) {
    static const int wanted[] = {64, 512};
    int limit = b->model->config.context, largest = b->set.quick ? 64 : 512;
    if (largest > limit) largest = limit;
    if (largest < CPU_ROWS && limit >= CPU_ROWS) largest = CPU_ROWS;  // room for the longest prompt below
    rig *r = allocate(sizeof *r);
    rig_open(r, b, (rig_desc){.max_rows = CPU_ROWS, .context = largest, .page_tables = PAGE_TABLES});
    static const char *const head[2][9] = {
        {"", "", "context", "", "", "weights", "weights", "", ""},
        {"passes", "rows", "tokens", "ms", "tokens/s", "GB/s", "% of [A]", "GFLOP/s", "% of [B]"}};
    static const int width[9] = {-20, 5, 8, 9, 10, 8, 8, 9, 8};
    printf("\n");
    head_print(&head[0][0], width, 9);
    head_print(&head[1][0], width, 9);
    for (int i = 0; i < 2 && wanted[i] <= (b->set.quick ? 64 : largest); i++) {
        passes_at(b, r, wanted[i], i == 0);
        b->target_context = wanted[0];
    }
    for (int rows = 64; rows <= CPU_ROWS && rows <= largest; rows *= 4) {
        static const llm42_schedule schedules[] = {LLM42_SCHEDULE_FAST, LLM42_SCHEDULE_FIXED, LLM42_SCHEDULE_INVARIANT};
        for (int i = 0; i < 3; i++) {
            rig_prompt_rows(r, rows);
            pass_measure(b, r, schedules[i], "prompt", rows);
        }
    }
    printf("tokens/s counts rows. decode: a row a sequence, all sampled; replay: windows of %d, all sampled;\n"
           "prompt: the first rows of one prompt, the last sampled.\n",
           WINDOW);
    rig_close(r);
    free(r);
}

void print_targets(const bench *b) {
    if (!b->target_context) return;
    printf("\nAt context %d, %d threads:\n", b->target_context, (int)b->set.how.threads);
    printf("target: decode at batch 1 reads weights at %.1f%% of the memory ceiling [A] (wanted: 50%% or more)\n",
           b->decode1_share);
    printf("target: a replay pass of M = 256 reaches %.1f%% of the multiply-add ceiling [B] (wanted: 40%% or more)\n",
           b->replay_share);
    double ratio = b->decode32_rate / b->decode1_rate;
    printf("target: batch 32 gives %.2f times the tokens/s of batch 1 (wanted: 6 or more; at the whole multiply-add\n"
           "        ceiling it would give %.2f times this batch 1)\n",
           ratio, ratio * b->fma_gflop_per_s / b->decode32_gflop);
}
