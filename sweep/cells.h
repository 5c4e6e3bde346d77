// cells.h: the grid of a sweep (axes, values, cells) and the files that hold finished cells. sweep.c includes it behind
// llm42.h and examples/args.h; it knows nothing of engines.
//
// An axis is a list that the user gives; a cell takes one value of each. An axis that means nothing under the cell's
// mode is left out of the cell (its index is -1), so that a mode without verification has one cell and not one for each
// window. Cells stand in the order of the axes, the last one running fastest.
#ifndef CELLS_H
#define CELLS_H

#include <sys/stat.h>

enum { MAX_VALUES = 64, MAX_CELLS = 1000000 };
typedef enum axis_name {
    MODE,
    VERIFY,
    PREFILL,
    CHUNKED,
    BONUS,
    OVERLAP,
    FILL,
    WINDOW,
    GROUP,
    RATIO,
    QPS,
    SLOWDOWN,
    SEED,
    MATCH,
    AXES
} axis_name;
enum { MODE_DVR, MODE_NONDETERMINISTIC, MODE_INVARIANT };  // in the order of the words below
enum { PREFILL_ISOLATED, PREFILL_PACKED, PREFILL_INVARIANT };
enum { QPS_OFFLINE, QPS_TRACE };
typedef enum backend_name { BACKEND_SIM, BACKEND_CPU, BACKEND_CUDA } backend_name;

typedef struct axis {
    const char *name;
    const char *words[4];  // those that a value may be
    bool number, whole;    // may it be a number, and must that be whole
    double low, high;
} axis;

static const axis axes[AXES] = {
    [MODE] = {.name = "mode", .words = {"dvr", "nondeterministic", "batch_invariant"}},
    [VERIFY] = {.name = "verify", .words = {"eager", "wait"}},
    [PREFILL] = {.name = "prefill", .words = {"isolated", "packed", "invariant"}},
    [CHUNKED] = {.name = "chunked", .words = {"off", "on"}},
    [BONUS] = {.name = "bonus", .words = {"off", "on"}},
    [OVERLAP] = {.name = "overlap", .words = {"off", "on"}},
    [FILL] = {.name = "fill", .words = {"oldest", "largest"}},
    [WINDOW] = {.name = "window", .number = true, .whole = true, .low = 1, .high = 4096},
    [GROUP] = {.name = "group", .number = true, .whole = true, .low = 1, .high = 4096},
    [RATIO] = {.name = "ratio", .number = true, .low = 0, .high = 1},
    [QPS] = {.name = "qps", .words = {"offline", "trace"}, .number = true, .low = 1e-6, .high = 1e6},
    [SLOWDOWN] = {.name = "slowdown", .number = true, .low = 0, .high = 1000},
    [SEED] = {.name = "seed", .number = true, .whole = true, .low = 1, .high = 1e15},
    [MATCH] = {.name = "match", .words = {"off", "on"}},
};

typedef struct value {
    int word;  // index into the axis' words; -1: a number
    double number;
    char text[32];  // as results have it: one text for a value, however it was typed
} value;

typedef struct cell {
    int at[AXES];     // index of the value, or -1: means nothing here
    char *row;        // its line of the TSV once it has run, without newline
    char error[480];  // or why it could not
} cell;

typedef struct grid {
    value values[AXES][MAX_VALUES];
    int count[AXES];
    int shown;    // axes that results have: CUDA's own, the last one, is no column elsewhere
    cell *cells;  // stb_ds array
} grid;

// >>axes ---------------------------------------------------------------------------------------------------------
// The shortest decimal that reads back as this number; whole numbers without an exponent.
static void number_text(char *text, size_t size, double number) {
    snprintf(text, size, "%.0f", number);
    for (int digits = 1; strtod(text, NULL) != number; digits++) snprintf(text, size, "%.*g", digits, number);
}

static value value_parse(const axis *a, const char *option, const char *item) {
    value v = {.word = -1};
    for (int i = 0; i < 4 && a->words[i]; i++)
        if (!strcmp(item, a->words[i])) v.word = i;
    bool letter = (item[0] >= 'a' && item[0] <= 'z') || (item[0] >= 'A' && item[0] <= 'Z');
    if (v.word >= 0) {
        snprintf(v.text, sizeof v.text, "%s", a->words[v.word]);
    } else if (!a->number) {
        args_choice(option, item, a->words);  // does not return: the item is none of them
    } else if (a->words[0] && letter) {
        args_fail(2, "%s: '%s' is not a number, nor one of: %s, %s", option, item, a->words[0], a->words[1]);
    } else if (a->whole) {
        v.number = (double)args_int(option, item, item + strlen(item), (int64_t)a->low, (int64_t)a->high);
        snprintf(v.text, sizeof v.text, "%.0f", v.number);
    } else {
        v.number = args_real(option, item, a->low, a->high) + 0.0;  // no minus zero
        number_text(v.text, sizeof v.text, v.number);
    }
    return v;
}

// Reads a comma-separated list. Exits on an empty list, a value that is there twice, or one that the axis has not.
static void axis_parse(grid *g, axis_name which, const char *list) {
    char option[32], item[64];
    snprintf(option, sizeof option, "--%s", axes[which].name);
    if (!list[0]) args_fail(2, "%s: the list is empty", option);
    for (const char *from = list;; from++) {
        size_t length = strcspn(from, ",");
        if (!length) args_fail(2, "%s: '%s': an item of the list is empty", option, list);
        if (length >= sizeof item) args_fail(2, "%s: '%.40s...' is too long", option, from);
        if (g->count[which] == MAX_VALUES) args_fail(2, "%s: at most %d values", option, MAX_VALUES);
        snprintf(item, sizeof item, "%.*s", (int)length, from);
        value v = value_parse(&axes[which], option, item);
        for (int i = 0; i < g->count[which]; i++)
            if (!strcmp(g->values[which][i].text, v.text)) args_fail(2, "%s: %s is there twice", option, v.text);
        g->values[which][g->count[which]++] = v;
        from += length;
        if (!*from) return;
    }
}

// Does the axis mean anything under this mode and prefill? Without verification few do, and only simulated INVARIANT
// passes are slowed down.
static bool axis_applies(axis_name which, int mode, int prefill, backend_name backend) {
    bool invariant = mode == MODE_INVARIANT || (mode == MODE_DVR && prefill == PREFILL_INVARIANT);
    if (which == SLOWDOWN) return backend == BACKEND_SIM && invariant;
    if (which == MATCH && backend != BACKEND_CUDA) return false;
    if (which == MODE || which == CHUNKED || which == QPS || which == SEED) return true;
    return mode == MODE_DVR;
}

// Makes the cells of the lists.
static void grid_make(grid *g, backend_name backend) {
    g->shown = backend == BACKEND_CUDA ? AXES : MATCH;
    double product = 1;
    for (int a = 0; a < AXES; a++) product *= g->count[a];
    if (product > MAX_CELLS) args_fail(2, "the grid has %.0f cells: at most %d", product, MAX_CELLS);
    cell c;
    memset(&c, 0, sizeof c);
    for (int a = 0; a >= 0;) {
        int mode = g->values[MODE][c.at[MODE]].word, prefill = g->values[PREFILL][c.at[PREFILL]].word;
        cell now = c;
        bool first = true;  // of the cells that differ only in what means nothing
        for (int i = 0; i < AXES; i++) {
            if (axis_applies((axis_name)i, mode, prefill, backend)) continue;
            first &= c.at[i] == 0;
            now.at[i] = -1;
        }
        if (first) arrput(g->cells, now);
        for (a = AXES - 1; a >= 0 && ++c.at[a] == g->count[a]; a--) c.at[a] = 0;
    }
}

// NULL when the axis means nothing in this cell.
static const value *cell_value(const grid *g, const cell *c, axis_name which) {
    return c->at[which] < 0 ? NULL : &g->values[which][c->at[which]];
}

static const char *cell_text(const grid *g, const cell *c, axis_name which) {
    const value *v = cell_value(g, c, which);
    return v ? v->text : axes[which].number ? "nan" : "-";
}

// The value's word or number; `otherwise` where the axis means nothing.
static int cell_word(const grid *g, const cell *c, axis_name which, int otherwise) {
    const value *v = cell_value(g, c, which);
    return v ? v->word : otherwise;
}

static double cell_number(const grid *g, const cell *c, axis_name which, double otherwise) {
    const value *v = cell_value(g, c, which);
    return v ? v->number : otherwise;
}

// A name that says what the cell is, the same in every grid that has it.
typedef struct cell_name_text {
    char text[320];
} cell_name_text;

static cell_name_text cell_name(const grid *g, const cell *c) {
    cell_name_text name = {""};
    for (int a = 0; a < AXES; a++) {
        const value *v = cell_value(g, c, (axis_name)a);
        if (!v) continue;
        size_t used = strlen(name.text);
        const char *label = a <= PREFILL ? "" : axes[a].name, *dash = a > PREFILL && v->word >= 0 ? "-" : "";
        snprintf(name.text + used, sizeof name.text - used, "%s%s%s%s", used ? "_" : "", label, dash, v->text);
    }
    return name;
}

// >>files --------------------------------------------------------------------------------------------------------
// DIR/NAME.tsv: four lines, the last of which says that the file is whole.
#define CELL_FIRST "# llm42 sweep cell\n"
#define CELL_CONFIGURATION "# configuration: "
#define CELL_END "# end\n"

typedef struct file_name {
    char text[4400];
} file_name;

static file_name cell_path(const char *folder, const grid *g, const cell *c) {
    file_name path;
    snprintf(path.text, sizeof path.text, "%.4000s/%s.tsv", folder, cell_name(g, c).text);
    return path;
}

// What stands in the way of writing this file, found out before hours of work: NULL if nothing does.
static const char *cannot_write(const char *path) {
    char part[4096];
    struct stat there;
    bool exists = !stat(path, &there);
    if (exists && S_ISDIR(there.st_mode)) return "it is a folder";
    // Not opened to try: closing a pipe would send its reader away.
    if (exists && !S_ISREG(there.st_mode)) return access(path, W_OK) ? strerror(errno) : NULL;
    FILE *file = args_out_begin(path, part);
    if (!file) return strerror(errno);
    fclose(file);
    if (strcmp(path, part)) remove(part);
    return NULL;
}

// False if the text could not be written; errno says why.
static bool file_write(const char *path, const char *text) {
    char part[4096];
    FILE *file = args_out_begin(path, part);
    if (!file) return false;
    fputs(text, file);
    return args_out_finish(file, path, part);
}

// The whole file as text, to be freed; NULL if it is not there or cannot be read.
static char *file_text(const char *path) {
    llm42__file file;
    llm42_result result = llm42__file_map(&file, path, NULL);
    if (result == LLM42_FORMAT) return calloc(1, 1);  // empty
    if (result != LLM42_OK) return NULL;
    char *text = calloc(file.size + 1, 1);
    if (text) memcpy(text, file.data, file.size);
    llm42__file_unmap(&file);
    return text;
}

static bool cell_write(const char *folder, const grid *g, const cell *c, const char *configuration) {
    size_t size = strlen(configuration) + strlen(c->row) + 128;
    char *text = malloc(size);
    if (!text) return false;
    snprintf(text, size, CELL_FIRST CELL_CONFIGURATION "%s\n%s\n" CELL_END, configuration, c->row);
    bool good = file_write(cell_path(folder, g, c).text, text);
    int why = errno;
    free(text);
    errno = why;
    return good;
}

typedef enum cell_state { CELL_DONE, CELL_MISSING, CELL_CUT, CELL_FOREIGN } cell_state;

// Sets the cell's row from its file if that is whole and of this configuration, with `columns` columns.
static cell_state cell_read(const char *folder, const grid *g, cell *c, const char *configuration, int columns) {
    char *text = file_text(cell_path(folder, g, c).text), *line[4] = {text};
    if (!text) return CELL_MISSING;
    cell_state state = CELL_CUT;
    for (int i = 0; i < 3 && line[i]; i++) {
        line[i + 1] = strchr(line[i], '\n');
        if (line[i + 1]) line[i + 1]++;
    }
    if (line[3] && !strcmp(line[3], CELL_END)) {
        line[2][-1] = line[3][-1] = 0;
        int tabs = 0;
        for (const char *p = line[2]; *p; p++) tabs += *p == '\t';
        size_t label = strlen(CELL_CONFIGURATION);
        bool ours = !strncmp(text, CELL_FIRST, strlen(CELL_FIRST)) && !strncmp(line[1], CELL_CONFIGURATION, label) &&
                    !strcmp(line[1] + label, configuration);
        state = !ours ? CELL_FOREIGN : tabs + 1 != columns ? CELL_CUT : CELL_DONE;
    }
    if (state == CELL_DONE) c->row = strdup(line[2]);
    free(text);
    return state == CELL_DONE && !c->row ? CELL_MISSING : state;
}

#endif  // CELLS_H
