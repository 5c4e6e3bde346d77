// rig.c: see rig.h. It also holds the harness's state for all files of test_cuda.
#define TEST_OWN_MALLOC  // the CUDA backend takes its memory from malloc: one allocator for both
#include "../test.h"
#include "rig.h"

rig_options options = TEST_LIST(.shared = "../shared", .loads = 8, .from_load = 1, .seed = 42, .window = 32, .group = 8,
                                .record_every = 1, .ranks = 1, .reference_ranks = 1, .leaves = 1);
const llm42_backend *tested;
llm42_cuda_desc cuda_desc;
llm42_error rig_error;

bool is_cuda(void) { return strcmp(tested->name, "cpu") != 0; }

// Results ----------------------------------------------------------------------------------------------------------
static char **manifest;  // lines of the head: what the backend logged, and the shapes of loads
static char **results;   // lines of the results file

void note_head(const char *line) {
    for (int i = 0; i < (int)arrlen(manifest); i++)
        if (!strcmp(manifest[i], line)) return;
    arrput(manifest, strdup(line));
    printf("  %s\n", line);
    fflush(stdout);
}

void note_line(void *user, const char *line) {
    (void)user;
    if (!strncmp(line, "cuda ", 5)) note_head(line);
}

void note(const char *name, const char *quantity, double value) {
    char line[512];
    snprintf(line, sizeof line, "%s\t%s\t%s\t%.9g", test_state.name ? test_state.name : "main", name, quantity, value);
    arrput(results, strdup(line));
}

void write_results(FILE *tsv) {
    for (int i = 0; i < (int)arrlen(manifest); i++) {
        if (tsv) fprintf(tsv, "# %s\n", manifest[i]);
        free(manifest[i]);
    }
    if (tsv) fprintf(tsv, "part\tcase\tquantity\tvalue\n");
    for (int i = 0; i < (int)arrlen(results); i++) {
        if (tsv) fprintf(tsv, "%s\n", results[i]);
        free(results[i]);
    }
    arrfree(manifest);
    arrfree(results);
}

// Models -----------------------------------------------------------------------------------------------------------
llm42_model *load_model(const char *path, bool on_device) {
    llm42_model *model = NULL;
    bool made_there = on_device || (is_cuda() && !strncmp(path, "synthetic:llama", 15));
    llm42_result result = llm42_model_load(&model, &(llm42_model_desc){.path = path, .on_device = made_there},
                                           &rig_error);
    CHECK_MSG(result == LLM42_OK && model, "%s: %s", path, rig_error.text);
    return model;
}

const char *main_model(void) {
    static char path[1024];
    snprintf(path, sizeof path, "%.1000s/models/base42", options.shared);
    return options.model ? options.model : test_exists(path) ? path : "synthetic:base";
}

static int visible(const struct dirent *entry) { return entry->d_name[0] != '.'; }
void each_arch(void (*check)(const char *path)) {
    char path[900];
    struct dirent **list = NULL;
    int count = scandir("tests/arch", &list, visible, alphasort);
    CHECK_MSG(count > 0, "run this in the repository's root: no tests/arch");
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "tests/arch/%s", list[i]->d_name);
        check(path);
        free(list[i]);
    }
    free(list);
}

enum { LAG = 41 };

// A backend with one page table for each sequence ------------------------------------------------------------------
void rig_shuffle(rig *g) {
    int n = g->seqs * g->pages_per_seq;
    for (int i = n - 1; i > 0; i--) {
        int j = test_random_int(&g->random, 0, i);
        int32_t t = g->page[i];
        g->page[i] = g->page[j];
        g->page[j] = t;
    }
}

static int most_parts(const llm42_model *model, int n) {
    const llm42_config *c = &model->config;
    const int unit = c->scaling ? 128 : 16, width = c->heads * c->head_dim;
    if (c->recurrent_layers && c->value_heads * c->value_dim != width) return 1;
    while (n > 1 && c->recurrent_layers && (c->key_heads % n || c->shared_ffn % n)) n /= 2;
    while (n > 1 && (c->heads % n || c->ffn % n || width / n % unit || (c->scaling && c->ffn / n % unit))) n /= 2;
    return n;
}
int leaves_for(const llm42_model *model) { return most_parts(model, (int)options.leaves); }
int ranks_for(const llm42_model *model) {
    int n = most_parts(model, (int)options.ranks);
    while (n > 1 && model->config.kv_heads % n && n % model->config.kv_heads) n /= 2;
    return n;
}

llm42_result rig_try(rig *g, const llm42_backend *backend, llm42_backend_desc desc) {
    *g = (rig){.backend = backend, .model = desc.model, .random = 7};
    if (!desc.numerics.compute) desc.numerics.compute = LLM42_DTYPE_BF16;
    if (!desc.numerics.leaves) desc.numerics.leaves = leaves_for(desc.model);
    if (!desc.tensor_parallel) desc.tensor_parallel = ranks_for(desc.model);
    if (!desc.page_size) desc.page_size = 16;
    if (!desc.behind) desc.behind = LAG, desc.snapshots = 2 * (desc.max_running ? desc.max_running : 1);
    if (!desc.max_running) desc.max_running = 1;
    if (!desc.fixed_rows) desc.fixed_rows = desc.max_rows;
    if (!desc.schedules)
        desc.schedules = 1u << LLM42_SCHEDULE_FAST | 1u << LLM42_SCHEDULE_FIXED | 1u << LLM42_SCHEDULE_INVARIANT;
    g->pages_per_seq = (desc.max_context + desc.page_size - 1) / desc.page_size;
    g->seqs = desc.max_running;
    if (!desc.pages) desc.pages = g->seqs * g->pages_per_seq;
    if (backend == llm42_backend_cpu()) desc.backend_desc = TEST_THREADS(2);
    else if (!desc.backend_desc) desc.backend_desc = &cuda_desc;
    desc.log = note_line;
    g->desc = desc;
    g->vocab = desc.model->config.vocab;
    llm42_result result = backend->open(&g->state, &g->desc, &rig_error);
    if (result) return result;
    size_t n = (size_t)g->seqs * (size_t)g->pages_per_seq;
    g->page = calloc(n, sizeof *g->page);
    g->seq = calloc((size_t)g->seqs, sizeof *g->seq);
    assert(g->page && g->seq);
    for (size_t i = 0; i < n; i++) g->page[i] = (int32_t)i;
    for (int i = 0; i < g->seqs; i++)
        g->seq[i] = (llm42_seq){.request = i + 1, .pages = g->page + (size_t)i * (size_t)g->pages_per_seq};
    rig_shuffle(g);
    return LLM42_OK;
}

bool rig_open(rig *g, const llm42_backend *backend, llm42_backend_desc desc) {
    llm42_result result = rig_try(g, backend, desc);
    return CHECK_MSG(result == LLM42_OK && g->state, "%s: %s: %s", desc.model->name, llm42_result_name(result),
                     rig_error.text);
}

void rig_close(rig *g) {
    if (g->state) g->backend->close(g->state);
    TEST_FREE(g->page, g->seq);
    *g = (rig){0};
}

llm42_pass rig_pass(const rig *g, llm42_schedule schedule, const llm42_row *row, int rows, llm42_output *out,
                    float *logits) {
    int shape = schedule == LLM42_SCHEDULE_FIXED ? g->desc.fixed_rows : rows;
    return (llm42_pass){
        .schedule = schedule, .rows = rows, .shape = shape, .row = row, .seq = g->seq, .out = out, .logits = logits};
}

// Recurrent layers: states stay LAG positions behind. One that moves is saved and spoilt: passes begin with snapshots.
static void move_states(rig *g, const llm42_pass *pass) {
    for (int r = 0; r < pass->rows; r++) {
        const int s = pass->row[r].seq, position = pass->row[r].position;
        llm42_seq *seq = &g->seq[s];
        if (!r || s != pass->row[r - 1].seq) {
            seq->restore = position && seq->saves ? seq->save[0].snapshot + 1 : 0;
            seq->state = position ? seq->state_to : 0, seq->state_to = seq->state, seq->saves = 0;
            const llm42_seq own = *seq;
            const llm42_row spoils = {s, 0, 1, LLM42_ROW_KEEP_KV};
            llm42_pass spoilt = rig_pass(g, pass->schedule, &spoils, 1, pass->out, NULL);
            seq->state = 0, seq->state_to = 1, seq->restore = 0;
            if (own.restore) CHECK_MSG(!g->backend->run(g->state, &spoilt, &rig_error), "%s", rig_error.text);
            *seq = own;
        }
        if (position + 1 - LAG <= seq->state_to) continue;
        seq->state_to = position + 1 - LAG;
        seq->saves = 1, seq->save[0] = (llm42_save){seq->state_to, 2 * s + (seq->restore == 2 * s + 1)};  // the other
    }
}

bool rig_run(rig *g, const llm42_pass *pass) {
    if (g->model->config.recurrent_layers) move_states(g, pass);
    llm42_result result = g->backend->run(g->state, pass, &rig_error);
    return CHECK_MSG(result == LLM42_OK, "%s: a %s pass of %d rows: %s", g->model->name,
                     llm42_schedule_name(pass->schedule), pass->rows, rig_error.text);
}

bool rig_feed(rig *g, llm42_schedule schedule, int s, const int32_t *ids, int from, int count, llm42_output *out,
              float *logits) {
    llm42_row *row = calloc((size_t)count, sizeof *row);
    llm42_output *own = calloc((size_t)count, sizeof *own);
    assert(row && own);
    for (int i = 0; i < count; i++) row[i] = (llm42_row){s, from + i, ids[from + i], LLM42_ROW_SAMPLE};
    llm42_pass pass = rig_pass(g, schedule, row, count, out ? out : own, logits);
    bool ok = rig_run(g, &pass);
    TEST_FREE(row, own);
    return ok;
}

bool rig_prefill(rig *g, llm42_schedule schedule, int s, const int32_t *ids, int count, int chunk, float *logits) {
    bool ok = true;
    for (int i = 0; i < count && ok; i += chunk) {
        int n = count - i < chunk ? count - i : chunk;
        ok = rig_feed(g, schedule, s, ids, i, n, NULL, logits ? logits + (size_t)i * (size_t)g->vocab : NULL);
    }
    return ok;
}

// Numbers ----------------------------------------------------------------------------------------------------------
int32_t *random_ids(int count, int vocab, uint64_t seed) {
    int32_t *ids = calloc((size_t)count + 1, sizeof *ids);
    assert(ids);
    for (int i = 0; i < count; i++) ids[i] = test_random_int(&seed, 0, vocab - 1);
    return ids;
}

float *new_floats(size_t count) {
    float *values = calloc(count ? count : 1, sizeof *values);
    assert(values);
    return values;
}

uint64_t hash_bytes(uint64_t hash, const void *data, size_t size) {
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

int top_of(const float *x, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

double gap_of(const float *x, int n) {
    int best = top_of(x, n);
    double second = -INFINITY;
    for (int i = 0; i < n; i++)
        if (i != best && x[i] > second) second = x[i];
    return x[best] - second;
}

double logit_error(const float *got, const float *want, int n) {
    double mean = 0, deviation = 0, sum = 0;
    for (int i = 0; i < n; i++) {
        if (!finite_bits(got[i]) || !finite_bits(want[i])) return INFINITY;
        mean += want[i] / (double)n;
    }
    for (int i = 0; i < n; i++) {
        deviation += (want[i] - mean) * (want[i] - mean);
        sum += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
    }
    return sqrt(sum / deviation);
}

// Mode HYBRID with made-up times -----------------------------------------------------------------------------------
static struct {
    uint64_t random;
    int passes;  // left of this turn
    bool invariant;
} turn = {.random = 1};

// A FAST pass takes a second. The other passes take no time in the turn of INVARIANT ones. In the turn of FAST ones, an
// INVARIANT pass takes twice as many seconds as it has rows that decode, and a replay pass or a prompt takes none.
static double turn_seconds(const llm42_view *view, const llm42_mix *mix) {
    (void)view;
    if (mix->schedule == LLM42_SCHEDULE_FAST) return 1;
    return turn.invariant ? 0 : 2 * mix->rows[LLM42_KIND_DECODE];
}

static llm42_result plan_mixed(void *user, const llm42_view *view, llm42_plan *plan, llm42_error *error) {
    llm42_view made_up = *view;
    if (turn.passes-- <= 0)
        turn.invariant = !turn.invariant, turn.passes = test_random_int(&turn.random, 0, 2 * view->desc->policy.window);
    made_up.seconds = turn_seconds;
    made_up.measured = false;
    return llm42_planner_default()->plan(user, &made_up, plan, error);
}

const llm42_planner mixed_planner = {.name = "mixed", .plan = plan_mixed};
