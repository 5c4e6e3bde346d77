// diff: runs the same rows on two sides, a and b. A row is one token of a text in a pass. A side is one way to run the
// rows. diff names the first value that differs: its operator, layer, row and column, both values and their distance.
// Then it shows how the difference grows from there to the logits.
// make build/diff && build/diff -a schedule=fast,rows=8 -b schedule=fast,rows=9
//
// Other pairs to try:
//     -a leaves=1 -b leaves=4                       sums in one part, and cut into four parts
//     -a leaves=1 -b flip=layer0.down:5:6           one bit of one weight; bit 0 is the lowest
//     -a compute=fp32 -b compute=bf16               what rounding to bf16 changes
//     --arithmetic sm80 --arithmetic sm90           the tensor cores of an A100, and those of an H200
//     -a schedule=invariant,rows=8 -b schedule=invariant,rows=9       equal to the bit
//     -a schedule=fast,rows=14+6+6 -b schedule=invariant --prompt 4   three tokens decoded one by one, and in one pass
//     -a backend=cpu -b backend=cuda                after make cuda
//
// The text's tokens are rows of one pass. If `rows` asks for more, rows of other requests fill the pass up: each is the
// first token of a request of its own. With --prompt N, the first N tokens run before, in INVARIANT passes, and only
// the others are compared. If one token is left, it runs as a decoding row does.
//
// A side is written as a list of key=value. To add a key, add a line to the table keys, a field to side and its use in
// run_side.
//
// Exit status: 0 if all values are equal to the bit, 1 if any differs, 2 if something went wrong.
#define _POSIX_C_SOURCE 200809L
#define LLM42_IMPLEMENTATION
#include "examples/util/llm42_synthetic.h"
#include "examples/lib/args.h"
#include "examples/lib/compare.h"
#include "diff/explain.h"
#include "util/tokenizer.h"
#ifdef _OPENMP
#include <omp.h>
#endif

enum { PAGE = 16, MOST_ROWS = 4096, MOST_KEYS = 16, MOST_PASSES = 256, TEXT = 4096, SHOWN_ROWS = 12 };

typedef struct side {
    const char *option;            // "-a"
    const char *value[MOST_KEYS];  // by key: as typed, or the default
    char text[TEXT];               // what they point into
    const llm42_backend *backend;
    llm42_dtype compute;
    llm42_arithmetic arithmetic;
    int rows, leaves, ranks, devices;
    int passes, pass_rows[MOST_PASSES];  // of the compared tokens, one a pass; 0: one pass for all. rows: the most
    int schedules;                       // how many the list has; a single one is that of every pass
    llm42_schedule schedule[MOST_PASSES];
    const char *path, *flip;    // of the model; TENSOR:INDEX:BIT, or NULL
    char rows_text[16];         // where their number was left to the program
    char found[4096];           // where the model is
    const llm42_model *loaded;  // as it is in its files
    llm42_model model;          // with the flipped bit
    void *copies[3];            // what the flip has copied
    film film;                  // the compared rows of each operator, and then the logits
} side;

static const char *model_path = "examples/tiny42", *tokenizer, *text, *ids_text, *a_text, *b_text, *out_path;
static const char *arithmetics[3];  // of --arithmetic: of a and b
static int64_t prompt, threads;
static bool explains;
static side a = {.option = "-a"}, b = {.option = "-b"};

static void *get(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (!memory) args_fail(2, "out of memory");
    return memory;
}

// >>sides --------------------------------------------------------------------------------------------------------
// `where` is for messages: "-a: rows".
static int number(const char *where, const char *value, int low, int high) {
    return (int)args_int(where, value, value + strlen(value), low, high);
}
static int power(const char *where, const char *value) {
    const int n = number(where, value, 1, 8);
    if (n & (n - 1)) args_fail(2, "%s: %d: must be 1, 2, 4 or 8", where, n);
    return n;
}
static void set_model(side *s, const char *where, const char *value) {
    args_check_input("--out", out_path, where, value);
    s->path = value;
}
static void set_backend(side *s, const char *where, const char *value) {
    static const char *const words[] = {"cpu", "cuda", NULL};
    if (args_choice(where, value, words) == 0) s->backend = llm42_backend_cpu();
#ifdef LLM42_CUDA
    else s->backend = llm42_backend_cuda();
#else
    else args_fail(2, "%s: built without CUDA: run make cuda", where);
#endif
}
static void set_compute(side *s, const char *where, const char *value) { s->compute = args_dtype(where, value); }
static void set_arithmetic(side *s, const char *where, const char *value) {
    s->arithmetic = args_arithmetic_of(where, value);
}
static void set_schedule(side *s, const char *where, const char *value) {
    static const char *const words[] = {"fast", "fixed", "invariant", NULL};
    s->schedules = 0;
    for (const char *at = value, *end; at; at = *end ? end + 1 : NULL) {
        char word[TEXT];
        end = at + strcspn(at, "+");
        if (s->schedules == MOST_PASSES) args_fail(2, "%s: more than %d passes", where, MOST_PASSES);
        snprintf(word, sizeof word, "%.*s", (int)(end - at), at);
        s->schedule[s->schedules++] = (llm42_schedule)(LLM42_SCHEDULE_FAST + args_choice(where, word, words));
    }
}
static void set_rows(side *s, const char *where, const char *value) {
    const bool one_by_one = strchr(value, '+');
    const char *at = value, *end = value + strcspn(value, "+");
    s->passes = 0;
    s->rows = (int)args_int(where, at, end, one_by_one, MOST_ROWS);
    for (; one_by_one && at; at = *end ? end + 1 : NULL) {
        end = at + strcspn(at, "+");
        if (s->passes == MOST_PASSES) args_fail(2, "%s: more than %d passes", where, MOST_PASSES);
        const int rows = s->pass_rows[s->passes++] = (int)args_int(where, at, end, 1, MOST_ROWS);
        if (rows > s->rows) s->rows = rows;
    }
}
// Of the pass in which a compared row runs.
static llm42_schedule schedule_of(const side *s, int row) { return s->schedule[s->schedules > 1 ? row : 0]; }
static void set_leaves(side *s, const char *where, const char *value) { s->leaves = power(where, value); }
static void set_ranks(side *s, const char *where, const char *value) { s->ranks = power(where, value); }
static void set_devices(side *s, const char *where, const char *value) { s->devices = number(where, value, 0, 8); }
static void set_flip(side *s, const char *where, const char *value) { (void)where, s->flip = value[0] ? value : NULL; }

static const struct key {
    const char *name, *initial;
    bool quiet;  // not mentioned where both sides have the default
    void (*set)(side *s, const char *where, const char *value);
    const char *help;
} keys[] = {
    {"model", "", false, set_model, "DIR: a model of the same shape (default: --model)"},
    {"backend", "cpu", false, set_backend, "cpu or cuda (default cpu)"},
    {"compute", "bf16", false, set_compute, "compute type: bf16 or fp32 (default bf16)"},
    {"arithmetic", "own", true, set_arithmetic, "how sums round: own (the backend's; the default), " ARGS_ARITHMETICS},
    {"schedule", "invariant", false, set_schedule,
     "order of sums: fast, fixed or invariant (default invariant).\n"
     "             S1+S2+...: of each pass that rows=R1+R2+... lists"},
    {"rows", "0", false, set_rows,
     "rows in the pass; in a fixed pass also M (default 0: as many as are compared).\n"
     "             R1+R2+...: the compared tokens one by one, each in a pass of so many rows"},
    {"leaves", "1", false, set_leaves,
     "parts into which invariant passes cut the sums that ranks share: 1, 2, 4, 8 (default 1)"},
    {"ranks", "1", false, set_ranks, "parts into which the model is cut, tensor parallelism: 1, 2, 4, 8 (default 1)"},
    {"devices", "0", true, set_devices, "cuda: the most GPUs that the ranks use (default 0: one for each rank)"},
    {"flip", "", true, set_flip,
     "TENSOR:INDEX:BIT: one bit of one weight is changed, in memory. TENSOR: for example embed, head, final_norm,\n"
     "             layer0.q, layer0.attention_norm, layer0.expert3.up. INDEX: counts row by row. BIT: 0 is the lowest"},
};

enum { KEYS = sizeof keys / sizeof *keys };

static int key_of(const char *item) {
    for (int k = 0; k < KEYS; k++) {
        const size_t length = strlen(keys[k].name);
        if (!strncmp(item, keys[k].name, length) && item[length] == '=') return k;
    }
    return -1;
}

// All that goes wrong has status 2: 1 means that values differ. What the library says of a field is said of the key
// that sets it: "llm42_backend_desc.numerics.leaves: 8: ..." is of "-b: leaves".
static void check(const char *who, llm42_result result, const llm42_error *error) {
    const char *text = error->text[0] ? error->text : llm42_result_text(result), *end = strstr(text, ": "),
               *field = end;
    if (result >= 0) return;
    while (field && field > text && field[-1] != '.') field--;
    for (int k = 0; end && !strncmp(text, "llm42_", 6) && k < KEYS; k++) {
        const char *name = keys[k].set == set_ranks ? "tensor_parallel" : keys[k].name;
        if (strlen(name) == (size_t)(end - field) && !strncmp(field, name, strlen(name)))
            args_fail(2, "%s: %s%s", who, keys[k].name, end);
    }
    args_fail(2, "%s: %s", who, text);
}

// An item ends at a comma. A model's name may have commas: it ends where the next key begins. like: the side from which
// this one has what the list does not set; NULL: defaults.
static void parse_side(side *s, const char *list, const side *like) {
    char where[64];
    for (int k = 0; k < KEYS; k++) s->value[k] = NULL;
    if (strlen(list) >= TEXT) args_fail(2, "%s: longer than %d bytes", s->option, TEXT - 1);
    memcpy(s->text, list, strlen(list) + 1);
    for (char *item = s->text; *item;) {
        char *end = item + strcspn(item, ",");
        const int k = key_of(item);
        if (k < 0)
            args_fail(2, "%s: '%.*s' is not key=value with a key that is known (try --help)", s->option,
                      (int)(end - item), item);
        while (!strcmp(keys[k].name, "model") && *end && key_of(end + 1) < 0) end += 1 + strcspn(end + 1, ",");
        if (s->value[k]) args_fail(2, "%s: %s is there twice", s->option, keys[k].name);
        s->value[k] = item + strlen(keys[k].name) + 1;
        item = end + (*end != 0);
        *end = 0;
    }
    for (int k = 0; k < KEYS; k++) {
        if (!s->value[k]) s->value[k] = like ? like->value[k] : k ? keys[k].initial : model_path;
        snprintf(where, sizeof where, "%s: %s", s->option, keys[k].name);
        keys[k].set(s, where, s->value[k]);
    }
}

// The settings that both have, or those that a side has for itself, as text to be freed.
static char *settings(const side *s, const side *other, bool shared) {
    char *line = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&line, &size);
    if (!file) args_fail(2, "out of memory");
    for (int k = 0; k < KEYS; k++) {
        const bool same = !strcmp(s->value[k], other->value[k]), usual = !strcmp(s->value[k], keys[k].initial);
        const char *value = s->value[k], *base = k || !shared ? NULL : strrchr(value, '/');
        if (same == shared && !(same && usual && keys[k].quiet))
            fprintf(file, "%s%s=%s", ftell(file) ? " " : "", keys[k].name, base ? base + 1 : value[0] ? value : "none");
    }
    if (fclose(file)) args_fail(2, "out of memory");
    return line;
}

// >>flip ---------------------------------------------------------------------------------------------------------
typedef struct tensor {
    const void **data, **tied;  // tied: the LM head and the embedding may be one
    llm42_dtype type;
    int n, k;  // rows and columns
} tensor;

static tensor matrix_tensor(llm42_matrix *m) { return (tensor){&m->data, NULL, m->type, m->n, m->k}; }

static tensor layer_tensor(const llm42_config *c, llm42_layer *l, const char *name) {
    struct {
        const char *name;
        llm42_matrix *matrix;
        const float **vector;
        int n;
    } all[] = {{"q", &l->q, NULL, 0},
               {"k", &l->k, NULL, 0},
               {"v", &l->v, NULL, 0},
               {"o", &l->o, NULL, 0},
               {"gate", &l->gate, NULL, 0},
               {"up", &l->up, NULL, 0},
               {"down", &l->down, NULL, 0},
               {"router", &l->router, NULL, 0},
               {"qkv", &l->qkv, NULL, 0},
               {"z", &l->z, NULL, 0},
               {"beta", &l->beta, NULL, 0},
               {"alpha", &l->alpha, NULL, 0},
               {"attention_norm", NULL, &l->attention_norm, c->dim},
               {"ffn_norm", NULL, &l->ffn_norm, c->dim},
               {"q_norm", NULL, &l->q_norm, c->head_dim},
               {"k_norm", NULL, &l->k_norm, c->head_dim},
               {"decay", NULL, &l->decay, c->value_heads},
               {"alpha_bias", NULL, &l->alpha_bias, c->value_heads},
               {"head_norm", NULL, &l->head_norm, c->value_dim},
               {"taps", NULL, &l->taps, (2 * c->key_heads * c->key_dim + c->value_heads * c->value_dim) * 4},
               {"q_bias", NULL, &l->q_bias, c->heads * c->head_dim},
               {"k_bias", NULL, &l->k_bias, c->kv_heads * c->head_dim},
               {"v_bias", NULL, &l->v_bias, c->kv_heads * c->head_dim}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(name, all[i].name)) continue;
        if (all[i].matrix) return matrix_tensor(all[i].matrix);
        return (tensor){(const void **)(void *)all[i].vector, NULL, LLM42_DTYPE_FP32, 1, all[i].n};
    }
    return (tensor){0};
}

// .data is NULL if the model has no tensor of this name.
static tensor find_tensor(side *s, const char *name) {
    llm42_model *m = &s->model;
    const llm42_config *c = &m->config;
    int l = 0, e = 0, used = 0;
    tensor t = {0};
    if (!strcmp(name, "embed") || !strcmp(name, "head")) {
        t = matrix_tensor(name[0] == 'e' ? &m->embed : &m->head);
        if (m->embed.data == m->head.data) t.tied = name[0] == 'e' ? &m->head.data : &m->embed.data;
    } else if (!strcmp(name, "final_norm")) {
        t = (tensor){(const void **)(void *)&m->final_norm, NULL, LLM42_DTYPE_FP32, 1, c->dim};
    } else if (sscanf(name, "layer%4d.%n", &l, &used) == 1 && used && l >= 0 && l < c->layers) {
        llm42_layer *layer = s->copies[0] = get((size_t)c->layers, sizeof *layer);
        memcpy(layer, m->layer, sizeof *layer * (size_t)c->layers);
        m->layer = layer, layer += l, name += used, used = 0;
        if (sscanf(name, "expert%6d.%n", &e, &used) == 1 && used && e >= 0 && e < c->experts) {
            static const char *const parts[] = {"gate", "up", "down"};
            llm42_matrix *expert = s->copies[1] = get(3 * (size_t)c->experts, sizeof *expert);
            memcpy(expert, layer->expert, sizeof *expert * 3 * (size_t)c->experts);
            layer->expert = expert;
            for (int i = 0; i < 3; i++)
                if (!strcmp(name + used, parts[i])) t = matrix_tensor(&expert[3 * e + i]);
        } else t = layer_tensor(c, layer, name);
    }
    if (t.data && !*t.data) t.data = NULL;
    return t;
}

static float value_at(const void *data, llm42_dtype type, size_t index) {
    uint32_t bits;
    float x;
    if (type == LLM42_DTYPE_E4M3) {  // without its scale
        const int byte = ((const uint8_t *)data)[index], exponent = byte >> 3 & 15, fraction = byte & 7;
        x = exponent ? ldexpf((float)(8 + fraction), exponent - 10) : ldexpf((float)fraction, -9);
        return (byte & 127) == 127 ? NAN : byte & 128 ? -x : x;
    }
    if (type == LLM42_DTYPE_BF16) bits = (uint32_t)((const uint16_t *)data)[index] << 16;
    else memcpy(&bits, (const char *)data + 4 * index, 4);
    memcpy(&x, &bits, sizeof x);
    return x;
}

// Changes the bit in a copy of the tensor, and says so.
static void flip_bit(side *s) {
    char where[32], name[64];
    snprintf(where, sizeof where, "%s: flip", s->option);
    const char *colon = strchr(s->flip, ':'), *second = colon ? strchr(colon + 1, ':') : NULL;
    if (!second) args_fail(2, "%s: '%s' is not TENSOR:INDEX:BIT", where, s->flip);
    snprintf(name, sizeof name, "%.*s", (int)(colon - s->flip), s->flip);
    const tensor t = find_tensor(s, name);
    if (!t.data) args_fail(2, "%s: the model has no tensor %s, as layer0.q would be (try --help)", where, name);
    const size_t size = t.type == LLM42_DTYPE_E4M3   ? 1
                        : t.type == LLM42_DTYPE_BF16 ? 2
                                                     : 4,
                 count = (size_t)t.n * (size_t)t.k;
    snprintf(where, sizeof where, "%s: flip: index", s->option);
    const size_t index = (size_t)args_int(where, colon + 1, second, 0, (int64_t)count - 1);
    snprintf(where, sizeof where, "%s: flip: bit", s->option);
    const int bit = number(where, second + 1, 0, (int)(8 * size) - 1);
    unsigned char *copy = s->copies[2] = get(count, size);
    memcpy(copy, *t.data, count * size);
    copy[index * size + (size_t)(bit / 8)] ^= (unsigned char)(1u << bit % 8);
    printf("%s     bit %d of %s[%zu][%zu] is flipped%s: %.9g becomes %.9g\n", s->option + 1, bit, name,
           index / (size_t)t.k, index % (size_t)t.k, t.tied ? " (embed and head are one tensor)" : "",
           (double)value_at(*t.data, t.type, index), (double)value_at(copy, t.type, index));
    *t.data = copy;
    if (t.tied) *t.tied = copy;
}

// >>run ----------------------------------------------------------------------------------------------------------
// The two sides share a model if they load the same. A bit can be flipped only in weights that are on the host.
static bool on_device(const side *s) { return args_on_device(s->path, s->backend) && !s->flip; }

static void load(side *s, const side *other) {
    llm42_error error = {0};
    llm42_model *model = NULL;
    s->path = args_find(s->path, s->found);
    if (other && !strcmp(s->path, other->path) && on_device(s) == on_device(other)) {
        s->loaded = other->loaded;
    } else {
        check(s->option,
              llm42_model_load(&model, &(llm42_model_desc){.path = s->path, .on_device = on_device(s)}, &error),
              &error);
        s->loaded = model;
    }
    s->model = *s->loaded;
    if (!s->loaded->layer)
        args_fail(2, "%s: model: %s has no weights: load a folder or synthetic:NAME", s->option, s->path);
}

// Two models can be compared if all their operators have the same sizes.
static void check_shapes(void) {
    const llm42_config *x = &a.model.config, *y = &b.model.config;
    const struct {
        const char *name;
        int a, b;
    } sizes[] = {{"layers", x->layers, y->layers},        {"width", x->dim, y->dim},
                 {"heads", x->heads, y->heads},           {"KV heads", x->kv_heads, y->kv_heads},
                 {"head size", x->head_dim, y->head_dim}, {"feed-forward width", x->ffn, y->ffn},
                 {"experts", x->experts, y->experts},     {"vocabulary", x->vocab, y->vocab}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].a != sizes[i].b)
            args_fail(2, "-b: model: %s: %d, in -a %d: only models of one shape can be compared", sizes[i].name,
                      sizes[i].b, sizes[i].a);
}

// Puts the rows of a film behind those of another one of the same operators.
static void film_join(film *all, film *more) {
    for (int i = 0; i < (int)arrlen(all->shots); i++) {
        shot *to = &all->shots[i], *from = &more->shots[i];
        const size_t old = (size_t)to->rows * (size_t)to->width, new = (size_t)from->rows *(size_t)from->width;
        float *values = realloc(to->values, (old + new) * sizeof *values);
        if (!values) args_fail(2, "out of memory");
        memcpy(values + old, from->values, new * sizeof *values);
        to->values = values, to->rows += from->rows;
    }
    if (all->shots) film_free(more);
    else all->shots = more->shots;
}

// Runs a pass of rows [from, from + count) of the text. If the pass is one that is compared, it is filled up to `rows`
// with rows of other requests, and s->film gets its rows.
static void run_pass(side *s, void *state, llm42_seq *seq, const int32_t *ids, int from, int count, int rows,
                     bool compared) {
    const int vocab = s->model.config.vocab;
    const llm42_schedule schedule = compared ? schedule_of(s, from - (int)prompt) : LLM42_SCHEDULE_INVARIANT;
    llm42_row *row = get((size_t)rows, sizeof *row);
    llm42_output *out = get((size_t)rows, sizeof *out);
    float *logits = compared ? get((size_t)rows * (size_t)vocab, sizeof *logits) : NULL;
    film taken = {.rows = count};
    llm42_error error = {0};
    for (int i = 0; i < count; i++) row[i] = (llm42_row){0, from + i, ids[from + i], compared ? LLM42_ROW_SAMPLE : 0};
    for (int i = count; i < rows; i++)
        row[i] = (llm42_row){i - count + 1, 0, (int32_t)(((int64_t)i * i * 7 + 31 * i + 3) % vocab), LLM42_ROW_SAMPLE};
    llm42_follow_rows(seq, row, rows);
    const llm42_pass pass = {.schedule = schedule,
                             .rows = rows,
                             .shape = rows,
                             .row = row,
                             .seq = seq,
                             .out = out,
                             .logits = logits,
                             .probe = compared ? film_take : NULL,
                             .probe_user = &taken};
    check(s->option, s->backend->run(state, &pass, &error), &error);
    if (compared) film_take(&taken, -1, "logits", rows, vocab, logits);
    if (taken.failed) args_fail(2, "out of memory for the values of %d operators", (int)arrlen(taken.shots));
    if (compared) film_join(&s->film, &taken);
    free(row), free(out), free(logits);
}

static void run_side(side *s, const int32_t *ids, int count, args_manifest *manifest) {
    const int compared = count - (int)prompt, others = s->rows - (s->passes ? 1 : compared),
              pages = (count + PAGE - 1) / PAGE;
    unsigned schedules = prompt ? 1u << LLM42_SCHEDULE_INVARIANT : 0;
    llm42_error error = {0};
    void *state = NULL;
    int32_t *page = get((size_t)(pages + others), sizeof *page);
    llm42_seq *seq = get((size_t)(1 + others), sizeof *seq);
    for (int i = 0; i < pages + others; i++) page[i] = i;
    for (int i = 0; i <= others; i++) seq[i] = (llm42_seq){.request = i + 1, .pages = page + (i ? pages + i - 1 : 0)};
    for (int i = 0; i < s->schedules; i++) schedules |= 1u << s->schedule[i];
    const llm42_backend_desc desc = {.model = &s->model,
                                     .backend_desc = args_backend_desc(s->backend, threads, s->ranks, s->devices),
                                     .numerics.compute = s->compute,
                                     .numerics.arithmetic = s->arithmetic,
                                     .numerics.logits_fp32 = s->compute == LLM42_DTYPE_FP32,
                                     .numerics.router_fp32 = s->compute == LLM42_DTYPE_FP32,
                                     .tensor_parallel = s->ranks,
                                     .numerics.leaves = s->leaves,
                                     .max_rows = s->rows,
                                     .max_context = count,
                                     .pages = pages + others,
                                     .page_size = PAGE,
                                     .max_running = 1 + others,
                                     .fixed_rows = s->rows,
                                     .schedules = schedules,
                                     .log = args_manifest_log,
                                     .log_user = manifest};
    check(s->option, s->backend->open(&state, &desc, &error), &error);
    for (int from = 0; from < prompt; from += s->rows) {
        const int rows = prompt - from < s->rows ? (int)prompt - from : s->rows;
        run_pass(s, state, seq, ids, from, rows, rows, false);
    }
    if (!s->passes) run_pass(s, state, seq, ids, (int)prompt, compared, s->rows, true);
    for (int i = 0; i < s->passes; i++) run_pass(s, state, seq, ids, (int)prompt + i, 1, s->pass_rows[i], true);
    s->backend->close(state);
    free(page), free(seq);
}

// >>report -------------------------------------------------------------------------------------------------------
typedef struct report {
    llm42_dtype unit;  // of ulps
    const char *ulps;  // "ulps of bf16"
    int operators, first;
    const char *unexplained;  // why --explain shows no sum
    comparison *of;           // [operators]
    const int32_t *ids;
} report;

static double ulps_of(const comparison *c) { return c->ulps; }
static double differing_of(const comparison *c) { return (double)c->differing; }
static double percent_of(const comparison *c) { return 1e2 * c->relative; }
static double millionths_of(const comparison *c) { return 1e6 * c->relative; }

static const char *cell(const comparison *c, double (*value)(const comparison *), char to[24]) {
    const double x = value(c);
    if (!c->differing) return ".";
    snprintf(to, 24, x < 1e9 && (x >= 1000 || x == floor(x)) ? "%.0f" : "%.3g", x);
    return to;
}

// A table of a line for each layer and a column for each operator. The first word of a name stands above the second.
static void print_grid(const report *r, const char *title, double (*value)(const comparison *)) {
    enum { MOST = 16, LEAST = 5 };
    const shot *shots = a.film.shots;
    int column[MOST], width[MOST], columns = 0;
    char number[24];
    for (int i = 0; i < r->operators && columns < MOST; i++)
        if (shots[i].layer == 0) column[columns++] = i;
    for (int c = 0; c < columns; c++) {
        const int first = (int)strcspn(shots[column[c]].name, "_"), whole = (int)strlen(shots[column[c]].name);
        width[c] = whole - first > first + 1 ? whole - first - 1 : first;
        if (width[c] < LEAST) width[c] = LEAST;
        for (int i = column[c]; i < r->operators; i += columns)
            if (shots[i].layer >= 0 && width[c] < (int)strlen(cell(&r->of[i], value, number)))
                width[c] = (int)strlen(cell(&r->of[i], value, number));
    }
    printf("\n%s\n     ", title);
    for (int c = 0; c < columns; c++) {
        const char *name = shots[column[c]].name, *second = strchr(name, '_');
        printf("  %*.*s", width[c], second ? (int)(second - name) : 0, name);
    }
    printf("\nlayer");
    for (int c = 0; c < columns; c++) {
        const char *name = shots[column[c]].name, *second = strchr(name, '_');
        printf("  %*s", width[c], second ? second + 1 : name);
    }
    for (int i = 0, c = 0; i < r->operators; i++) {
        if (shots[i].layer < 0) continue;
        if (c == 0) printf("\n%5d", shots[i].layer);
        printf("  %*s", width[c], cell(&r->of[i], value, number));
        c = (c + 1) % columns;
    }
    printf("\n");
    const char *between = "outside the layers: ";
    for (int i = 0; i < r->operators; i++) {
        if (shots[i].layer >= 0) continue;
        printf("%s%s %s", between, shots[i].name, r->of[i].differing ? cell(&r->of[i], value, number) : "equal");
        between = ", ";
    }
    printf("\n");
}

static void print_value(const report *r, const char *who, float x) {
    if (r->unit == LLM42_DTYPE_BF16 && !(float_bits(x) & 0xffffu))
        printf("  %s  %-16.9g bits %04x\n", who, (double)x, float_bits(x) >> 16);
    else printf("  %s  %-16.9g bits %08x\n", who, (double)x, float_bits(x));
}

static float first_value(const report *r, const side *s) {
    const shot *at = &s->film.shots[r->first];
    return at->values[(size_t)r->of[r->first].row * (size_t)at->width + (size_t)r->of[r->first].column];
}

static void layer_name(const shot *s, char text[24]) {
    text[0] = 0;
    if (s->layer >= 0) snprintf(text, 24, "layer %d, ", s->layer);
}

static void print_first(const report *r) {
    const shot *at = &a.film.shots[r->first];
    const comparison *c = &r->of[r->first];
    const float x = first_value(r, &a), y = first_value(r, &b);
    char layer[24], distance[48];
    layer_name(at, layer);
    printf("\nThe first difference: %s%s, row %d (token %d at position %d), column %d\n", layer, at->name, c->row,
           (int)r->ids[prompt + c->row], (int)prompt + c->row, c->column);
    print_value(r, "a", x);
    print_value(r, "b", y);
    printf("  They are %s apart.\n", ulps_text(compare_ulps(x, y, r->unit), r->unit, distance));
    printf("Values of this operator that differ: %lld of %lld\n", (long long)c->differing, (long long)c->values);
    printf("Operators before it, equal to the bit: %d of %d\n", r->first, r->operators);
}

typedef struct likely {
    int token;  // of the largest logit, the lowest on a tie; -1: a logit is not finite
    double margin;
} likely;

static likely likeliest(const shot *logits, int row) {
    const float *x = logits->values + (size_t)row * (size_t)logits->width;
    likely l = {0, (double)INFINITY};
    for (int i = 0; i < logits->width; i++) {
        if (!finite_bits(x[i])) return (likely){-1, (double)NAN};
        if (x[i] > x[l.token]) l.token = i;
    }
    for (int i = 0; i < logits->width; i++)
        if (i != l.token) l.margin = fmin(l.margin, (double)x[l.token] - (double)x[i]);
    return l;
}

// The sum behind the first value that differs, if --explain asks for it.
static void print_sum(report *r) {
    const side *of[2] = {&a, &b};
    const film *films[2] = {&a.film, &b.film};
    explain_side sides[2];
    const int row = r->of[r->first].row;
    for (int i = 0; i < 2; i++) {
        const side *s = of[i];
        sides[i] = (explain_side){s->option, schedule_of(s, row), s->passes ? s->pass_rows[row] : s->rows};
        if (s->backend != llm42_backend_cpu() || s->compute != LLM42_DTYPE_BF16 || s->leaves > 1 || s->ranks > 1 ||
            s->arithmetic > LLM42_ARITHMETIC_FP32 || s->flip || s->loaded != a.loaded)
            r->unexplained =
                "both sides must be backend=cpu compute=bf16 arithmetic=fp32 leaves=1 ranks=1, of one model";
    }
    if (!r->unexplained) r->unexplained = explain(a.loaded, films, r->first, row, r->of[r->first].column, sides);
    if (r->unexplained) printf("\n--explain has no sum to show: %s.\n", r->unexplained);
}

// The most likely token after each row. Of many rows, only the last and those where it is another one.
static void print_likely(const report *r) {
    const shot *x = &a.film.shots[r->operators - 1], *y = &b.film.shots[r->operators - 1];
    int other = 0, shown = 0, left_out = 0;
    for (int i = 0; i < x->rows; i++) other += likeliest(x, i).token != likeliest(y, i).token;
    printf("\nThe most likely token after each row, and its margin: its logit less the second largest\n");
    printf("  row   token   likeliest: a         b   margin: a         b\n");
    for (int i = 0; i < x->rows; i++) {
        const likely of[2] = {likeliest(x, i), likeliest(y, i)};
        const bool differs = of[0].token != of[1].token, last = i == x->rows - 1;
        if (!last && x->rows > SHOWN_ROWS && (!differs || shown >= SHOWN_ROWS)) {
            left_out++;
            continue;
        }
        shown++;
        printf("%5d %7d %14d %9d %11.4g %9.4g%s\n", i, (int)r->ids[prompt + i], of[0].token, of[1].token, of[0].margin,
               of[1].margin, differs ? "  another token" : "");
    }
    if (left_out) printf("%d more row%s not shown.\n", left_out, left_out == 1 ? " is" : "s are");
    printf("After %d of %d row%s the most likely token is another one.\n", other, x->rows, args_plural(x->rows));
}

static void print_report(report *r) {
    int64_t values = 0;
    bool far = false;
    char title[120];
    for (int i = 0; i < r->operators; i++) values += r->of[i].values;
    if (r->first < 0) {
        printf("\nEqual to the bit: all %lld values of %d operators, the logits included.\n", (long long)values,
               r->operators);
        return;
    }
    print_first(r);
    if (explains) print_sum(r);
    printf("\nHow it goes on. A dot: equal to the bit.\n");
    snprintf(title, sizeof title, "Largest distance of two values, in %s", r->ulps);
    print_grid(r, title, ulps_of);
    for (int i = 0; i < r->operators; i++) far |= r->unit == LLM42_DTYPE_BF16 && r->of[i].ulps >= 1e4;
    if (far) printf("Values near 0 that change their sign are tens of thousands of ulps apart.\n");
    print_grid(r, "Values that differ", differing_of);
    if (r->unit == LLM42_DTYPE_BF16)
        print_grid(r, "Largest difference of a row, in % of the row (root mean squares)", percent_of);
    else print_grid(r, "Largest difference of a row, in millionths of the row (root mean squares)", millionths_of);
    print_likely(r);
}

static void write_tsv(const report *r, int count, const char *const own[2], const char *both,
                      const args_manifest *manifest) {
    FILE *file = llm42_file_create(out_path);
    if (!file) args_fail(2, "%s: cannot write: %s", out_path, strerror(errno));
    const shot *logits[2] = {&a.film.shots[r->operators - 1], &b.film.shots[r->operators - 1]};
    fprintf(file, "# llm42 %s diff\n# a: %s\n# b: %s\n# both: %s\n# prompt: %d\n# ids: ", LLM42_VERSION, own[0], own[1],
            both, (int)prompt);
    for (int i = 0; i < count; i++) fprintf(file, "%s%d", i ? "," : "", (int)r->ids[i]);
    fprintf(file, "\n");
    args_manifest_print(manifest, file);
    if (r->first >= 0) {
        const shot *at = &a.film.shots[r->first];
        const comparison *c = &r->of[r->first];
        const float x = first_value(r, &a), y = first_value(r, &b);
        char layer[24], distance[48];
        layer_name(at, layer);
        fprintf(file, "# first: %s%s, row %d, column %d: a %.9g, b %.9g, %s apart\n", layer, at->name, c->row,
                c->column, (double)x, (double)y, ulps_text(compare_ulps(x, y, r->unit), r->unit, distance));
    } else {
        fprintf(file, "# first: none\n");
    }
    for (int i = 0; i < 2; i++) {
        const likely last = likeliest(logits[i], logits[i]->rows - 1);
        fprintf(file, "# last row, %c: token %d, margin %.9g\n", "ab"[i], last.token, last.margin);
    }
    fprintf(file,
            "# ulps_of: %s\n# layer: -1 is outside the layers\n# relative_pct: the root mean square of a row's "
            "differences, in %% of that of the row in a; the largest over the rows\n",
            r->unit == LLM42_DTYPE_BF16 ? "bf16" : "fp32");
    fprintf(file, "layer\toperator\trows\tvalues\tdiffering\tlargest_ulps\trelative_pct\n");
    for (int i = 0; i < r->operators; i++) {
        const shot *s = &a.film.shots[i];
        const comparison *c = &r->of[i];
        fprintf(file, "%d\t%s\t%d\t%lld\t%lld\t%.9g\t%.9g\n", s->layer, s->name, s->rows, (long long)c->values,
                (long long)c->differing, c->ulps, 100 * c->relative);
    }
    fprintf(file, "# end\n");
    if (!llm42_file_finish(file)) args_fail(2, "%s: cannot write: %s", out_path, strerror(errno));
}

// >>main ---------------------------------------------------------------------------------------------------------
// A side's list with another item.
static const char *with_arithmetic(const char *side, const char *name) {
    char *list = get(strlen(side ? side : "") + strlen(name) + 16, 1);
    sprintf(list, "%s%sarithmetic=%s", side ? side : "", side && *side ? "," : "", name);
    return list;
}

static void parse(int argc, char **argv) {
    static char about[4096] =
        "Runs the same rows on two sides and names the first value that differs. A side is\n"
        "written key=value,key=value,... with these keys; b takes each key that it does not set from a:\n";
    const args_option options[] = {
        ARGS_TEXT("a SIDE", &a_text, "one side, for example schedule=fast,rows=8"),
        ARGS_TEXT("b SIDE", &b_text, "the other side, for example rows=9"),
        ARGS_MANY("arithmetic NAME", arithmetics, 2,
                  "given twice: arithmetic=NAME of side a, and arithmetic=NAME of side b"),
        ARGS_IN("model,m DIR", &model_path, "model folder or synthetic:NAME"),
        ARGS_IN("tokenizer FILE", &tokenizer, "its tokenizer (default: the one in the model's folder)"),
        ARGS_ONCE("ids LIST", &ids_text, "the tokens (default: 0,905,312,264,1108,283,1767)"),
        ARGS_ONCE("text TEXT", &text, "the tokens as text; the token BOS (begin of sequence) is put before them"),
        ARGS_INT(
            "prompt N", &prompt, 0, INT32_MAX,
            "the first N tokens run before, in invariant passes (preset paper has fixed ones), and are not compared"),
        ARGS_INT("threads,t N", &threads, 0, 1024, "0: as many as OpenMP offers"),
        ARGS_FLAG("explain", &explains, "show the sum behind the first value that differs, in both orders"),
        ARGS_OUT("out FILE", &out_path, "write all numbers there, as TSV; sweep/plot_diff.sh draws them"),
        ARGS_END,
    };
    for (int k = 0; k < KEYS; k++) {
        const size_t used = strlen(about);
        snprintf(about + used, sizeof about - used, "  %-10s %s%s", keys[k].name, keys[k].help,
                 k < KEYS - 1 ? "\n" : "");
    }
    args_went_wrong = 2;
    args_status_1 = "a value differs";
    args_parse(argc, argv, about, options);
    if (arithmetics[0] && !arithmetics[1])
        args_fail(2, "--arithmetic: give it twice: first that of side a, then that of side b");
    if (arithmetics[0])
        a_text = with_arithmetic(a_text, arithmetics[0]), b_text = with_arithmetic(b_text, arithmetics[1]);
    if (!b_text) args_fail(2, "give -b SIDE: what is to be compared, as -a schedule=fast,rows=8 -b rows=9");
    if (text && ids_text) args_fail(2, "--ids and --text exclude each other");
#ifdef _OPENMP
    if (!threads) threads = omp_get_max_threads();
#endif
    if (!threads) threads = 1;
}

// The text's tokens, as an stb_ds array.
static int32_t *read_ids(void) {
    static const char usual[] = "0,905,312,264,1108,283,1767";  // "It was the best of times"
    const char *list = ids_text ? ids_text : usual;
    const llm42_model *model = a.loaded;
    llm42_error error = {0};
    int32_t *ids = NULL;
    tok *t = NULL;
    if (text) {
        check("--text", tok_open(&t, model, a.path, tokenizer, &error), &error);
        check("--text", tok_encode(t, text, strlen(text), true, &ids, &error), &error);
        tok_free(t);
    } else {
        arrsetlen(ids, args_list_count(list));
        args_ids("--ids", list, ids);
    }
    const int count = (int)arrlen(ids);
    if (count < 1) args_fail(2, "--text: no tokens");
    if (count > model->config.context)
        args_fail(2, "%s: %d tokens are more than the model's context of %d", text ? "--text" : "--ids", count,
                  model->config.context);
    args_ids_check("--ids", ids, count, model->config.vocab);
    if (prompt >= count) args_fail(2, "--prompt: %d leaves none of %d tokens to compare", (int)prompt, count);
    return ids;
}

static void fit_rows(side *s, int compared) {
    if (s->passes && s->passes != compared)
        args_fail(2, "%s: rows: %d passes of one compared token each, but %d tokens are compared", s->option, s->passes,
                  compared);
    if (s->schedules > 1 && s->schedules != s->passes)
        args_fail(2, "%s: schedule: %d schedules, but rows lists %d passes: give each pass its rows, as rows=8+9",
                  s->option, s->schedules, s->passes);
    if (s->passes) return;
    if (!s->rows) s->rows = compared;
    snprintf(s->rows_text, sizeof s->rows_text, "%d", s->rows);
    s->value[key_of("rows=")] = s->rows_text;
    if (s->rows < compared)
        args_fail(2, "%s: rows: %d are fewer than the %d that are compared", s->option, s->rows, compared);
    if (s->rows > MOST_ROWS)
        args_fail(2, "%s: rows: %d are more than %d: --prompt compares fewer", s->option, s->rows, MOST_ROWS);
}

// What ran before, which a server may have run in other passes.
static void print_before(void) {
    bool fixed = false;
    if (!prompt) return;
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < (i ? b : a).schedules; k++) fixed |= (i ? b : a).schedule[k] == LLM42_SCHEDULE_FIXED;
    if (prompt == 1) printf("      token 0 runs before, in an INVARIANT pass");
    else printf("      tokens 0 to %d run before, in INVARIANT passes", (int)prompt - 1);
    printf("%s\n", fixed ? "; FIXED ones, as preset paper has, may leave other keys and values" : "");
}

static void free_side(side *s) {
    for (int i = 0; i < 3; i++) free(s->copies[i]);
    film_free(&s->film);
}

int main(int argc, char **argv) {
    static args_manifest manifest;
    parse(argc, argv);
    parse_side(&a, a_text ? a_text : "", NULL);
    parse_side(&b, b_text, &a);
    load(&a, NULL);
    load(&b, &a);
    check_shapes();
    int32_t *ids = read_ids();
    const int count = (int)arrlen(ids), compared = count - (int)prompt;
    fit_rows(&a, compared), fit_rows(&b, compared);

    char *own[2] = {settings(&a, &b, false), settings(&b, &a, false)}, *both = settings(&a, &b, true);
    printf("a     %s\nb     %s\nboth  %s\n", own[0][0] ? own[0] : "nothing of its own",
           own[1][0] ? own[1] : "nothing of its own: the same again", both);
    if (a.flip) flip_bit(&a);
    if (b.flip) flip_bit(&b);
    if (compared == 1) printf("rows  1 is compared: the text's token %d\n", count - 1);
    else printf("rows  %d are compared: the text's tokens %d to %d\n", compared, (int)prompt, count - 1);
    print_before();
    fflush(stdout);
    run_side(&a, ids, count, &manifest);
    run_side(&b, ids, count, &manifest);

    report r = {.unit = a.compute == LLM42_DTYPE_BF16 || b.compute == LLM42_DTYPE_BF16 ? LLM42_DTYPE_BF16
                                                                                       : LLM42_DTYPE_FP32,
                .ids = ids,
                .first = -1};
    r.ulps = r.unit == LLM42_DTYPE_BF16 ? "ulps of bf16" : "ulps of fp32";
    r.operators = (int)arrlen(a.film.shots);
    if (r.operators != (int)arrlen(b.film.shots)) args_fail(2, "-b: it has another number of operators than -a");
    r.of = get((size_t)r.operators, sizeof *r.of);
    for (int i = 0; i < r.operators; i++) {
        if (!same_shape(&a.film.shots[i], &b.film.shots[i]))
            args_fail(2, "-b: its operator %d is not that of -a: %s, %s", i, b.film.shots[i].name,
                      a.film.shots[i].name);
        r.of[i] = compare_shots(&a.film.shots[i], &b.film.shots[i], r.unit);
        if (r.first < 0 && r.of[i].differing) r.first = i;
    }
    print_report(&r);
    if (out_path) write_tsv(&r, count, (const char *const *)own, both, &manifest);
    const int differ = r.first >= 0;
    free(own[0]), free(own[1]), free(both), free(r.of);
    arrfree(ids);
    free_side(&a), free_side(&b);
    if (b.loaded != a.loaded) llm42_model_free((llm42_model *)b.loaded);
    llm42_model_free((llm42_model *)a.loaded);
    return args_finish() || differ;
}
