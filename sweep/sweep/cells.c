// cells.c: the grid of a sweep and the files of its cells (see cells.h).
#define _POSIX_C_SOURCE 200809L
#include "cells.h"

#include <assert.h>
#include <ctype.h>
#include <dirent.h>
#include <stddef.h>

static const char *const qps_words[] = {"offline", "trace", NULL};
static const char *const draft_words[] = {"none", NULL};
static const char *const apart_words[] = {"share", NULL};
#define WHOLE(from, to) .number = true, .whole = true, .low = (from), .high = (to)
#define REAL(from, to) .number = true, .low = (from), .high = (to)
#define FIELD(path) .field = offsetof(llm42_engine_desc, path)
#define AXIS(id, option, otherwise, text, ...) [id] = {.name = option, .list = otherwise, .about = text, __VA_ARGS__},
const axis axes[AXES] = {SWEEP_AXES(AXIS)};

// >>axes ---------------------------------------------------------------------------------------------------------
const char *const *axis_words(axis_name which) {
    if (which == PLANNER) return planner_words();
    return axes[which].policy ? args_policy_words(axes[which].name) : axes[which].words;
}

const char *axis_column(axis_name which) {
    static char column[AXES][32];
    char *p = column[which];
    snprintf(p, sizeof *column, "%s", axes[which].name);
    while ((p = strchr(p, '-'))) *p = '_';
    return column[which];
}

// A planner of your own may have a parameter behind a colon. It becomes part of names of files.
static size_t planner_word_length(const char *option, const char *item) {
    const size_t length = strcspn(item, ":");
    if (!item[length]) return length;
    if (!planner_kind_find(item, length))
        args_fail(2, "%s: '%s': only a planner of your own takes a parameter (make sweep PLANNER=FILE)", option, item);
    for (const char *p = item + length + 1; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr(".+-_=", *p))
            args_fail(2, "%s: '%s': a parameter has letters, digits and . + - _ =", option, item);
    return length;
}

static value value_parse(axis_name which, const char *option, const char *item) {
    const axis *a = &axes[which];
    const char *const *words = axis_words(which);
    value v = {.word = -1};
    const size_t length = which == PLANNER ? planner_word_length(option, item) : strlen(item);
    for (int i = 0; words && words[i]; i++)
        if (strlen(words[i]) == length && !strncmp(item, words[i], length)) v.word = i;
    if (!strcmp(item, "preset") && !strcmp(a->list, "preset")) {
        v.word = AS_PRESET;
        memcpy(v.text, "preset", sizeof "preset");
        return v;
    }
    bool letter = (item[0] >= 'a' && item[0] <= 'z') || (item[0] >= 'A' && item[0] <= 'Z');
    if (v.word >= 0) {
        snprintf(v.text, sizeof v.text, "%s", which == PLANNER ? item : words[v.word]);
    } else if (!a->number) {
        args_choice(option, item, words);  // does not return: the item is none of them
    } else if (words && letter) {
        char all[128];
        args_fail(2, "%s: '%s' is not a number, nor one of: %s", option, item, words_help(all, sizeof all, "", words));
    } else if (a->whole) {
        v.number = (double)args_int(option, item, item + strlen(item), (int64_t)a->low, (int64_t)a->high);
        snprintf(v.text, sizeof v.text, "%.0f", v.number);
    } else {
        v.number = args_real(option, item, a->low, a->high) + 0.0;  // no minus zero
        number_text(v.text, sizeof v.text, v.number);
    }
    return v;
}

void axis_parse(grid *g, axis_name which, const char *list) {
    char option[32], item[64];
    snprintf(option, sizeof option, "--%s", axes[which].name);
    if (!list[0]) args_fail(2, "%s: the list is empty", option);
    for (const char *from = list;; from++) {
        size_t length = strcspn(from, ",");
        if (!length) args_fail(2, "%s: '%s': an item of the list is empty", option, list);
        if (length >= sizeof item) args_fail(2, "%s: '%.40s...' is too long", option, from);
        if (g->count[which] == MAX_VALUES) args_fail(2, "%s: at most %d values", option, MAX_VALUES);
        snprintf(item, sizeof item, "%.*s", (int)length, from);
        value v = value_parse(which, option, item);
        for (int i = 0; i < g->count[which]; i++)
            if (!strcmp(g->values[which][i].text, v.text)) args_fail(2, "%s: %s is there twice", option, v.text);
        g->values[which][g->count[which]++] = v;
        if (g->count[which] > 1 && (v.word == AS_PRESET || g->values[which][0].word == AS_PRESET))
            args_fail(2, "%s: preset must stand alone: other values could be the same", option);
        from += length;
        if (!*from) return;
    }
}

const value *cell_value(const grid *g, const cell *c, axis_name which) {
    const value *v = c->at[which] < 0 ? NULL : &g->values[which][c->at[which]];
    if (!v || v->word != AS_PRESET) return v;
    const bool fixed = c->at[VERIFIER] >= 0 && g->values[VERIFIER][c->at[VERIFIER]].word + 1 == LLM42_VERIFIER_FIXED;
    return &g->of_preset[g->values[PRESET][c->at[PRESET]].word][fixed][which];
}

// The values of each preset, for the axes whose list is "preset".
static void grid_presets(grid *g) {
    const char *const *presets = args_policy_words("preset");
    for (int p = 0; presets[p]; p++)
        for (int fixed = 0; fixed < 2; fixed++) {
            llm42_engine_desc desc = {.preset = (llm42_preset)(p + 1)};
            if (fixed) desc.policy.verifier = LLM42_VERIFIER_FIXED;
            assert(p < MAX_PRESETS);
            llm42_preset_apply(&desc);
            for (int a = 0; a < AXES; a++) {
                char text[16];
                if (strcmp(axes[a].list, "preset")) continue;
                assert(axes[a].policy || axes[a].field);
                snprintf(text, sizeof text, "%d", *(const int *)((const char *)&desc + axes[a].field));
                g->of_preset[p][fixed][a] = value_parse((axis_name)a, axes[a].name,
                                                        axes[a].policy ? llm42_policy_word(&desc, axes[a].name) : text);
            }
        }
}

// What the cell of these values has. The library says in which schedules its passes run, and where these are several,
// passes of one verify those of another. A fleet that sets replicas apart can have batch-invariant passes in these
// only.
static unsigned cell_has(const grid *g, const cell *c, backend_name backend) {
    const fleet_router router = (fleet_router)g->values[ROUTER][c->at[ROUTER]].word;
    llm42_policy policy = {.mode = (llm42_mode)(cell_value(g, c, MODE)->word + 1),  // word i stands for value i + 1
                           .verifier = (llm42_verifier)(cell_value(g, c, VERIFIER)->word + 1),
                           .prefill = (llm42_prefill)(cell_value(g, c, PREFILL)->word + 1)};
    const bool apart = router == DETERMINISTIC_APART && policy.mode != LLM42_MODE_NONDETERMINISTIC;
    if (policy.mode == LLM42_MODE_HYBRID) policy.verifier = LLM42_VERIFIER_INVARIANT;
    const unsigned schedules = llm42_policy_schedules(&policy);
    const bool verified = (schedules & (schedules - 1)) != 0;
    return (verified ? VERIFIED : 0u) | (policy.mode == LLM42_MODE_DVR ? VERIFIED_BY_CHOICE : 0u) |
           (schedules >> LLM42_SCHEDULE_INVARIANT & 1 ? INVARIANT_PASSES : 0u) | (verified || apart ? MIXED : 0u) |
           (g->values[DRAFT][c->at[DRAFT]].word < 0 ? DRAFTED : 0u) | (backend == BACKEND_SIM ? SIMULATED : 0u) |
           (apart ? SET_APART : 0u) | (!strcmp(g->values[QPS][c->at[QPS]].text, "trace") ? TRACED : 0u);
}

void grid_make(grid *g, backend_name backend) {
    grid_presets(g);
    double product = 1;
    for (int a = 0; a < AXES; a++) {
        g->hidden[a] |= axes[a].of && g->hidden[axes[a].of];
        product *= g->count[a];
    }
    if (product > MAX_CELLS) args_fail(2, "the grid has %.0f cells: at most %d", product, MAX_CELLS);
    cell c = {.row = NULL};
    for (int a = 0; a >= 0;) {
        const unsigned has = cell_has(g, &c, backend);
        cell now = c;
        bool first = true;  // of the cells that differ only in what means nothing
        for (int i = 0; i < AXES; i++) {
            if (!g->hidden[i] && !(axes[i].needs & ~has)) continue;
            first &= c.at[i] == 0;
            now.at[i] = -1;
        }
        if (first) arrput(g->cells, now);
        for (a = AXES - 1; a >= 0 && ++c.at[a] == g->count[a]; a--) c.at[a] = 0;
    }
}

// Policies that mean nothing in the cell keep the library's defaults.
void cell_desc(const grid *g, const cell *c, llm42_engine_desc *desc) {
    for (int a = 0; a < AXES; a++) {
        const value *v = cell_value(g, c, (axis_name)a);
        if (v && axes[a].policy) llm42_policy_set(desc, axes[a].name, v->text, NULL);
        if (v && axes[a].field) *(int *)((char *)desc + axes[a].field) = (int)v->number;
    }
    // The axis means nothing in mode HYBRID, which has one verifier, whatever the preset's is.
    if (desc->policy.mode == LLM42_MODE_HYBRID) desc->policy.verifier = LLM42_VERIFIER_INVARIANT;
}

const char *cell_text(const grid *g, const cell *c, axis_name which) {
    const value *v = cell_value(g, c, which);
    return v ? v->text : axes[which].number ? "nan" : "-";
}

double cell_number(const grid *g, const cell *c, axis_name which, double otherwise) {
    const value *v = cell_value(g, c, which);
    return v ? v->number : otherwise;
}

bool is_default_planner(axis_name which, const value *v) { return which == PLANNER && v->word == 0; }

cell_name_text cell_name(const grid *g, const cell *c) {
    cell_name_text name = {""};
    for (int a = 0; a < AXES; a++) {
        const value *v = cell_value(g, c, (axis_name)a);
        if (!v || is_default_planner((axis_name)a, v)) continue;
        bool labelled = a != MODE && a != VERIFY && a != PREFILL;
        const char *label = labelled ? axes[a].name : "", *dash = labelled && v->word >= 0 ? "-" : "";
        size_t used = strlen(name.text);
        snprintf(name.text + used, sizeof name.text - used, "%s%s%s%s", used ? "_" : "", label, dash, v->text);
    }
    return name;
}

// The cell's own settings: what it adds to the configuration that all cells of a run have in common.
typedef struct cell_settings_text {
    char text[1280];
} cell_settings_text;

static cell_settings_text cell_settings(const grid *g, const cell *c) {
    cell_settings_text settings = {""};
    for (int a = 0; a < AXES; a++) {
        const value *v = cell_value(g, c, (axis_name)a);
        if (g->hidden[a] || (v && is_default_planner((axis_name)a, v))) continue;
        size_t used = strlen(settings.text);
        snprintf(settings.text + used, sizeof settings.text - used, "%s%s %s", used ? "; " : "", axes[a].name,
                 cell_text(g, c, (axis_name)a));
    }
    return settings;
}

// >>files --------------------------------------------------------------------------------------------------------
// DIR/NAME-HASH.tsv holds a finished cell: four lines, what a GPU backend said of itself (args_manifest), and two lines
// more. The last one says that the file is whole, and the one before has a hash of those above it, so that a number
// that was edited is noticed. NAME is the cell's, HASH of the configuration, so that cells of several configurations
// can share DIR.
#define CELL_KIND "# llm42 sweep cell "
#define CELL_FIRST CELL_KIND "3\n"
#define CELL_CONFIGURATION "# configuration: "
#define CELL_SETTINGS "# cell: "
#define CELL_MANIFEST "# cuda "
#define CELL_HASH "# hash: "
#define CELL_END "# end\n"

file_name cell_path(const char *folder, const char *configuration, const grid *g, const cell *c) {
    file_name path;
    uint64_t hash = file_hash(configuration, strlen(configuration));
    snprintf(path.text, sizeof path.text, "%.4000s/%s-%016" PRIx64 ".tsv", folder, cell_name(g, c).text, hash);
    return path;
}

bool file_write(const char *path, const char *text) {
    FILE *file = llm42_file_create(path);
    if (!file) return false;
    fputs(text, file);
    return llm42_file_finish(file);
}

bool cell_write(const char *folder, const char *configuration, const grid *g, const cell *c,
                const args_manifest *manifest) {
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    if (!file) return false;
    fprintf(file, CELL_FIRST CELL_CONFIGURATION "%s\n" CELL_SETTINGS "%s\n%s\n", configuration,
            cell_settings(g, c).text, c->row);
    args_manifest_print(manifest, file);
    fflush(file);
    fprintf(file, CELL_HASH "%016" PRIx64 "\n" CELL_END, file_hash(text, size));
    bool good = fclose(file) == 0 && file_write(cell_path(folder, configuration, g, c).text, text);
    int why = errno;
    free(text);
    errno = why;
    return good;
}

// What the file of a finished cell says; it points into `text`.
typedef struct cell_file {
    char *text;  // of the whole file, to be freed
    const char *configuration, *settings, *row;
    char *manifest, *manifest_end;  // whole lines
} cell_file;

const char *const cell_state_text[] = {
    [CELL_MISSING] = "missing",
    [CELL_CUT] = "cut short or damaged",  // the file is not whole, or is no cell
    [CELL_EDITED] = "edited or damaged, because its hash does not fit its lines",
    [CELL_OTHER_VERSION] = "written by another version of build/sweep",
};

static cell_state cell_file_read(const char *path, cell_file *file) {
    size_t size;
    *file = (cell_file){0};
    if (file_read(path, &file->text, &size, NULL) != LLM42_OK) return CELL_MISSING;
    char *line[6] = {file->text};
    for (int i = 0; i < 5; i++) {
        char *next = strchr(line[i], '\n');
        if (i == 3 && next) file->manifest = next + 1;
        while (i == 3 && next && !strncmp(next + 1, CELL_MANIFEST, strlen(CELL_MANIFEST)))
            next = strchr(next + 1, '\n');
        if (!next) break;
        line[i + 1] = next + 1;
    }
    file->manifest_end = line[4];
    if (!line[1] || strncmp(line[0], CELL_KIND, strlen(CELL_KIND))) return CELL_CUT;
    if (strncmp(line[0], CELL_FIRST, strlen(CELL_FIRST))) return CELL_OTHER_VERSION;
    const size_t configuration = strlen(CELL_CONFIGURATION), settings = strlen(CELL_SETTINGS);
    if (!line[5] || strcmp(line[5], CELL_END) || strlen(file->text) != size ||
        strncmp(line[1], CELL_CONFIGURATION, configuration) || strncmp(line[2], CELL_SETTINGS, settings))
        return CELL_CUT;
    char hash[32];
    snprintf(hash, sizeof hash, CELL_HASH "%016" PRIx64 "\n", file_hash(file->text, (size_t)(line[4] - file->text)));
    if (strncmp(line[4], hash, strlen(hash))) return CELL_EDITED;
    for (int i = 1; i < 6; i++) (i == 4 ? file->manifest : line[i])[-1] = 0;
    file->configuration = line[1] + configuration, file->settings = line[2] + settings, file->row = line[3];
    return CELL_DONE;
}

cell_state cell_read(const char *folder, const char *configuration, const grid *g, cell *c, int columns,
                     args_manifest *manifest) {
    cell_file file;
    cell_state state = cell_file_read(cell_path(folder, configuration, g, c).text, &file);
    if (state == CELL_DONE) {
        int tabs = 0;
        for (const char *p = file.row; *p; p++) tabs += *p == '\t';
        bool ours = !strcmp(file.configuration, configuration) && !strcmp(file.settings, cell_settings(g, c).text);
        if (!ours || tabs + 1 != columns) state = CELL_CUT;
        else if (!(c->row = strdup(file.row))) state = CELL_MISSING;
        for (char *line = file.manifest, *end; state == CELL_DONE && line < file.manifest_end; line = end + 1) {
            end = strchr(line, '\n');
            *end = 0;
            args_manifest_log(manifest, line + 2);  // behind "# "
        }
    }
    free(file.text);
    return state;
}

// >>configurations -----------------------------------------------------------------------------------------------
static int found_order(const void *a, const void *b) {
    return strcmp(((const found *)a)->configuration, ((const found *)b)->configuration);
}

found *configurations_find(const char *folder) {
    found *all = NULL;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char path[4400];
        cell_file file;
        size_t length = strlen(entry->d_name);
        if (length < 4 || strcmp(entry->d_name + length - 4, ".tsv")) continue;
        snprintf(path, sizeof path, "%.4000s/%s", folder, entry->d_name);
        if (cell_file_read(path, &file) == CELL_DONE) {
            int64_t i = 0;
            while (i < arrlen(all) && strcmp(all[i].configuration, file.configuration)) i++;
            if (i == arrlen(all)) arrput(all, ((found){strdup(file.configuration), 0}));
            if (!all[i].configuration) args_fail(1, "out of memory");
            all[i].cells++;
        }
        free(file.text);
    }
    if (dir) closedir(dir);
    if (all) qsort(all, (size_t)arrlen(all), sizeof *all, found_order);
    return all;
}

static const char *setting_next(const char *setting) {
    setting += strcspn(setting, ";");
    return setting + strspn(setting, "; ");
}

// The setting of a configuration ("KEY VALUE; KEY VALUE") that has the first `length` characters of `setting`, or NULL.
static const char *setting_find(const char *configuration, const char *setting, size_t length) {
    for (const char *p = configuration; *p; p = setting_next(p))
        if (!strncmp(p, setting, length) && strchr(" ;", p[length])) return p;  // strchr finds the 0 too
    return NULL;
}

void differences_print(FILE *file, const char *other, const char *ours) {
    const char *comma = "";
    for (const char *p = other; *p; p = setting_next(p)) {
        size_t all = strcspn(p, ";"), key = strcspn(p, " ;");
        const char *here = setting_find(ours, p, key);
        if (here && strcspn(here, ";") == all && !strncmp(here, p, all)) continue;
        fprintf(file, "%s%.*s", comma, (int)all, p);
        if (here) fprintf(file, " (here%.*s)", (int)(strcspn(here, ";") - key), here + key);
        comma = ", ";
    }
    for (const char *p = ours; *p; p = setting_next(p)) {
        if (setting_find(other, p, strcspn(p, " ;"))) continue;
        fprintf(file, "%s(here %.*s)", comma, (int)strcspn(p, ";"), p);
        comma = ", ";
    }
}
