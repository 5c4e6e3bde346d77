// llm42_calibration.h: reads the pass times and flip rates that the simulator needs from a file.
//
//     #define LLM42_CALIBRATION_IMPLEMENTATION   // in one C file, before its first include of llm42.h
//     #include "llm42_calibration.h"             // it includes llm42.h
#if defined(LLM42_CALIBRATION_IMPLEMENTATION) && defined(__cplusplus)
#error "llm42_calibration.h: the implementation is C11: define LLM42_CALIBRATION_IMPLEMENTATION in a .c file"
#undef LLM42_CALIBRATION_IMPLEMENTATION
#elif defined(LLM42_CALIBRATION_IMPLEMENTATION) && !defined(LLM42_BASE)
#define LLM42_BASE  // memory, files and messages of llm42.h
#endif
#include "llm42.h"

#ifndef LLM42_CALIBRATION_H
#define LLM42_CALIBRATION_H

// Reads a calibration file: `# key: value` lines, then tables of pass times (TSV `schedule kind rows context_tokens
// ms`) and one of flip rates (`fast_rows replay_rows flip_rate`), each of which says how many rows it has, then
// `# end`. sweep/calibration/README.md describes the format. Errors: IO, MEMORY, FORMAT (names the file, and the line
// or what is missing: the file is cut short or goes on behind `# end`; a table is missing, there twice, has another
// number of rows or is not a full grid; pass times decrease; a key is misspelt; a value is no number, no whole number
// where one belongs, or out of range; the unit is not ms).
LLM42_API llm42_result llm42_calibration_load(llm42_calibration **calibration, const char *path, llm42_error *error);
LLM42_API void llm42_calibration_free(llm42_calibration *calibration);

#endif  // LLM42_CALIBRATION_H

#if defined(LLM42_CALIBRATION_IMPLEMENTATION) && !defined(LLM42_CALIBRATION_IMPLEMENTED)
#define LLM42_CALIBRATION_IMPLEMENTED

// A file that was read is whole: its last line is `# end`, and each table has the rows that it announces, which form a
// full grid.

// What the value of a key or of a column must be: a number, or else one of two words, or else any text.
typedef struct llm42__quantity {
    const char *name;
    double low, high;  // of a number; else high is 0
    bool whole;
    const char *word[2];
    size_t at, size;  // of a key: the field of llm42_calibration that it sets; size is 0 if there is none
} llm42__quantity;

#define LLM42__FIELD(field) .at = offsetof(llm42_calibration, field), .size = sizeof(((llm42_calibration *)0)->field)
static const llm42__quantity llm42__keys[] = {{"source", LLM42__FIELD(source)},
                                              {"device", LLM42__FIELD(device)},
                                              {"model", LLM42__FIELD(model)},
                                              {"time_unit", .word = {"ms", ""}},  // up to here they are required
                                              {"padding", .word = {"computed", "free"}, LLM42__FIELD(padding_free)},
                                              {"forced", LLM42__FIELD(forced)},
                                              {.name = "pass_rows"},  // a list of numbers
                                              {"devices", 1, 1 << 20, .whole = true, LLM42__FIELD(devices)},
                                              {"leaves", 1, 8, .whole = true, LLM42__FIELD(leaves)},
                                              {"kv_tokens", 0, 1e12, .whole = true, LLM42__FIELD(kv_tokens)},
                                              {"undivided_ms", 0, 1e6, LLM42__FIELD(undivided_ms)},
                                              {"draft_ms", 0, 1e6, LLM42__FIELD(draft_ms)},
                                              {"window_rows", 0, 4096, LLM42__FIELD(window_rows)},
                                              {"flip_shape", 1e-3, 1e6, LLM42__FIELD(flip_shape)},
                                              {"host_decode_ms", 0, 1e6, LLM42__FIELD(host_ms[LLM42_KIND_DECODE])},
                                              {"host_prompt_ms", 0, 1e6, LLM42__FIELD(host_ms[LLM42_KIND_PROMPT])},
                                              {"host_window_ms", 0, 1e6, LLM42__FIELD(host_ms[LLM42_KIND_WINDOW])},
                                              {"host_request_ms", 0, 1e6, LLM42__FIELD(host_request_ms)}};
enum { LLM42__REQUIRED = 4, LLM42__KEYS = sizeof llm42__keys / sizeof *llm42__keys };

// The three numbers in a row of each form of table: x, y and value of llm42_table. In a table of pass times the two
// words of its name stand before them, in columns of their own.
enum { LLM42__COSTS, LLM42__FLIPS, LLM42__EXCHANGES, LLM42__TABLE_FORMS };
static const llm42__quantity llm42__columns[LLM42__TABLE_FORMS][3] = {
    {{"rows", 1, 1 << 30, .whole = true}, {"context_tokens", 0, 1 << 30, .whole = true}, {"ms", DBL_MIN, .high = 1e12}},
    {{"fast_rows", 1, 1 << 30, .whole = true}, {"replay_rows", 0, 1 << 30, .whole = true}, {"flip_rate", .high = 1}},
    {{"ranks", 2, 1 << 20, .whole = true}, {"rows", 1, 1 << 30, .whole = true}, {"exchange_us", .high = 1e12}}};

static const struct {
    const char *name;  // as in the file; the rows of a table of pass times repeat it in their first two columns
    int form;
    size_t at;  // in llm42_calibration
} llm42__tables[] = {
    {"fast decode", LLM42__COSTS, offsetof(llm42_calibration, cost[LLM42_SCHEDULE_FAST][LLM42_KIND_DECODE])},
    {"fast prompt", LLM42__COSTS, offsetof(llm42_calibration, cost[LLM42_SCHEDULE_FAST][LLM42_KIND_PROMPT])},
    {"fixed window", LLM42__COSTS, offsetof(llm42_calibration, cost[LLM42_SCHEDULE_FIXED][LLM42_KIND_WINDOW])},
    {"fixed prompt", LLM42__COSTS, offsetof(llm42_calibration, cost[LLM42_SCHEDULE_FIXED][LLM42_KIND_PROMPT])},
    {"invariant decode", LLM42__COSTS, offsetof(llm42_calibration, cost[LLM42_SCHEDULE_INVARIANT][LLM42_KIND_DECODE])},
    {"invariant prompt", LLM42__COSTS, offsetof(llm42_calibration, cost[LLM42_SCHEDULE_INVARIANT][LLM42_KIND_PROMPT])},
    {"flips", LLM42__FLIPS, offsetof(llm42_calibration, flips)},  // up to here they are required
    {"invariant window", LLM42__COSTS, offsetof(llm42_calibration, cost[LLM42_SCHEDULE_INVARIANT][LLM42_KIND_WINDOW])},
    {"exchange", LLM42__EXCHANGES, offsetof(llm42_calibration, exchange)},
    {"invariant exchange", LLM42__EXCHANGES, offsetof(llm42_calibration, invariant_exchange)}};
enum { LLM42__REQUIRED_TABLES = 7, LLM42__TABLES = sizeof llm42__tables / sizeof *llm42__tables };

static llm42_table *llm42__table_of(llm42_calibration *c, int t) {
    return (llm42_table *)(void *)((char *)c + llm42__tables[t].at);
}

// A row of a table.
typedef struct llm42__point {
    double x, y, value;
    int line;
} llm42__point;

// The state of reading a calibration file.
typedef struct llm42__calibrating {
    const char *path;
    llm42_calibration *to;
    llm42_error *error;
    int line;                        // that errors name
    int table, count;                // whose rows are being read, and the number of rows it has announced; -1: none
    int rows, room;                  // of that table: those that were read, and the most that a file of this size has
    llm42__point *points;            // [rows]
    bool named[LLM42__TABLE_FORMS];  // the line with the names of the columns was read
    unsigned seen;                   // keys that were read, as bits by their place in llm42__keys
} llm42__calibrating;

// An error in the line that is being read.
#define LLM42__BAD_LINE(c, text, ...) \
    llm42_fail((c)->error, LLM42_FORMAT, "%s:%d: " text, (c)->path, (c)->line, __VA_ARGS__)

// Reads a number. No whole number needs a point or a minus sign.
static llm42_result llm42__calibration_number(const llm42__calibrating *c, const llm42__quantity *q, const char *text,
                                              double *number) {
    const bool unfit = q->whole && strpbrk(text, ".-");
    if (!unfit && llm42_number(text, text + strlen(text), number) && *number >= q->low && *number <= q->high)
        return LLM42_OK;
    if (q->low == DBL_MIN)
        return LLM42__BAD_LINE(c, "%s: '%.60s': must be a positive number, at most %.10g", q->name, text, q->high);
    return LLM42__BAD_LINE(c, "%s: '%.60s': must be a %snumber from %.10g to %.10g", q->name, text,
                           q->whole ? "whole " : "", q->low, q->high);
}

static int llm42__point_order(const void *a, const void *b) {
    const llm42__point *p = a, *q = b;
    const double after = p->x != q->x ? p->x - q->x : p->y - q->y;
    return (after > 0) - (after < 0);
}

// Ends the table whose rows were being read: makes it of them.
static llm42_result llm42__calibration_close(llm42__calibrating *c) {
    if (c->table < 0) return LLM42_OK;
    const int form = llm42__tables[c->table].form, line = c->line, rows = c->rows;
    const char *name = llm42__tables[c->table].name;
    const llm42__quantity *column = llm42__columns[form];
    const llm42__point *first = c->points, *p = first;
    if (rows < c->count) return LLM42__BAD_LINE(c, "table '%s' has %d of its %d rows", name, rows, c->count);
    qsort(c->points, (size_t)rows, sizeof *p, llm42__point_order);
    int ys = 1;
    while (ys < rows && p[ys].x == p->x) ys++;
    const int xs = rows / ys;
    double *x = llm42__alloc((size_t)(xs + ys + xs * ys), sizeof *x);
    if (!x) return llm42_fail(c->error, LLM42_MEMORY, "%s: out of memory", c->path);
    const llm42_table t = *llm42__table_of(c->to, c->table) = (llm42_table){xs, ys, x, x + xs, x + xs + ys};
    for (int i = 0; i < xs * ys; i++, p++) {
        const int r = i / ys, k = i % ys;
        t.x[r] = p->x, t.y[k] = first[k].y, t.value[i] = p->value;
        c->line = p->line;
        if (p->x != p[-k].x || p->y != t.y[k] || (i && p->x == p[-1].x && (!k || p->y == p[-1].y)))
            return LLM42__BAD_LINE(c, "table '%s' is no full grid: each %s needs the same %s, once", name,
                                   column[0].name, column[1].name);
        // Kernels for more rows may be faster, but not by much. Behind the last rows the line goes on, so it must not
        // fall.
        const double less = r == xs - 1 ? 1 : 0.75;
        const bool shorter = k && p->value < p[-1].value, smaller = r && p->value < less * p[-ys].value;
        if (form == LLM42__COSTS && (shorter || smaller))
            return LLM42__BAD_LINE(
                c, "table '%s' falls: %g ms at %g rows, %g context tokens is less than %sa smaller pass takes", name,
                p->value, p->x, p->y, less < 1 && !shorter ? "three quarters of what " : "");
    }
    c->line = first[rows - 1].line;
    if (rows % ys) return LLM42__BAD_LINE(c, "table '%s' is no full grid: its last rows lack %s", name, column[1].name);
    c->line = line, c->table = -1, c->count = c->rows = 0;
    return LLM42_OK;
}

// Reads what stands behind `# table:`: the name of the table that begins, and its number of rows.
static llm42_result llm42__calibration_table(llm42__calibrating *c, const char *text) {
    LLM42__TRY(llm42__calibration_close(c));
    for (int t = 0; t < LLM42__TABLES; t++) {
        const char *name = llm42__tables[t].name;
        const size_t length = strlen(name);
        if (strncmp(text, name, length) != 0 || !strchr(" ", text[length])) continue;
        char rows[64];
        snprintf(rows, sizeof rows, "table '%s': rows", name);
        double count = 0;
        LLM42__TRY(llm42__calibration_number(c, &(llm42__quantity){rows, 1, 1 << 24, .whole = true},
                                             text + length + strspn(text + length, " "), &count));
        if (llm42__table_of(c->to, t)->xs) return LLM42__BAD_LINE(c, "table '%s' is there twice", name);
        c->table = t, c->count = (int)count;
        return LLM42_OK;
    }
    const char *last = strrchr(text, ' ');
    return LLM42__BAD_LINE(c, "no table is called '%.*s'", last ? (int)LLM42__MIN(last - text, 60) : 60, text);
}

// Reads one row of a table, or the names of its columns. Before the first table they are those of pass times.
static llm42_result llm42__calibration_row(llm42__calibrating *c, char *text) {
    const int f = c->table < 0 ? LLM42__COSTS : llm42__tables[c->table].form;
    const int words = f == LLM42__COSTS ? 2 : 0, columns = words + 3;
    const char *column[5] = {"schedule", "kind"};
    for (int i = words; i < columns; i++) column[i] = llm42__columns[f][i - words].name;
    char *field[6], name[64] = "";
    int count = 0;
    for (char *at = text; at && count < 6; at = strchr(at, '\t')) {
        if (count) *at++ = 0;
        field[count++] = at;
    }
    if (count != columns) {
        for (int i = 0; i < columns; i++) snprintf(name + strlen(name), sizeof name - strlen(name), " %s", column[i]);
        return LLM42__BAD_LINE(c, "expected %d columns with tabs between:%s", columns, name);
    }
    for (int i = 0; !c->named[f] && i < columns; i++)
        if (strcmp(field[i], column[i]) != 0)
            return LLM42__BAD_LINE(c, "column %d is called '%.60s': expected %s", i + 1, field[i], column[i]);
    if (!c->named[f]) return c->named[f] = true, LLM42_OK;
    llm42__point point = {.line = c->line};
    double *const number[3] = {&point.x, &point.y, &point.value};
    for (int i = 0; i < 3; i++)
        LLM42__TRY(llm42__calibration_number(c, &llm42__columns[f][i], field[words + i], number[i]));
    if (words) snprintf(name, sizeof name, "%s %s", field[0], field[1]);
    if (words && (c->table < 0 || strcmp(name, llm42__tables[c->table].name) != 0))
        return LLM42__BAD_LINE(c, "a row of table '%s' that no line '# table:' announces", name);
    if (c->rows == c->count)
        return LLM42__BAD_LINE(c, "table '%s' has more than its %d rows", llm42__tables[c->table].name, c->count);
    if (!c->points && !(c->points = llm42__alloc((size_t)c->room, sizeof point)))
        return llm42_fail(c->error, LLM42_MEMORY, "%s: out of memory", c->path);
    assert(c->rows < c->room);
    c->points[c->rows++] = point;
    return LLM42_OK;
}

// How like a word is to a key that it is not. 2: one letter was changed, left out or added, one stands for two or two
// for one, two were swapped, or the unit is missing. 1: they begin alike, up to an underscore. 0: neither.
static int llm42__likeness(const char *word, const char *key) {
    bool alike = false;
    for (; *word && *word == *key; word++, key++) alike = alike || *word == '_';
    const bool unit = !*word && (!strcmp(key, "_ms") || !strcmp(key, "_tokens") || !strcmp(key, "_rows"));
    size_t a = strlen(word), b = strlen(key);  // what is left between the letters that both begin and end with
    while (a && b && word[a - 1] == key[b - 1]) a--, b--;
    const bool swapped = a == 2 && b == 2 && word[0] == key[1] && word[1] == key[0];
    return unit || swapped || a + b <= (a && b ? 3 : 1) ? 2 : alike;
}

// Reads the value of a key. That of pass_rows is a list of ascending numbers with spaces between them.
static llm42_result llm42__calibration_value(const llm42__calibrating *c, const llm42__quantity *key, char *value) {
    const char *first = key->word[0], *second = key->word[1];
    void *to = (char *)c->to + key->at;
    double number = 0;
    if (key->high > 0) LLM42__TRY(llm42__calibration_number(c, key, value, &number));
    if (!*value) return LLM42__BAD_LINE(c, "%s: must not be empty", key->name);
    if (first && strcmp(value, first) != 0 && strcmp(value, second) != 0)
        return LLM42__BAD_LINE(c, "%s: %.60s: must be %s%s%s", key->name, value, first, *second ? " or " : "", second);
    if (key->size == sizeof(bool)) *(bool *)to = !strcmp(value, second);
    else if (key->size > sizeof(double)) snprintf(to, key->size, "%s", value), llm42__scrub(to);
    else if (key->size == sizeof(int)) *(int *)to = (int)number;
    else if (key->whole) *(int64_t *)to = (int64_t)number;
    else if (key->size) *(double *)to = number;
    const int leaves = c->to->leaves;
    if (leaves & (leaves - 1)) return LLM42__BAD_LINE(c, "leaves: %d: must be 1, 2, 4 or 8", leaves);
    if (strcmp(key->name, "pass_rows") != 0) return LLM42_OK;
    llm42__quantity rows = {"pass_rows, in ascending order", 1, 1 << 24, .whole = true};
    double *size = c->to->pass_rows = llm42__alloc(strlen(value) / 2 + 1, sizeof *size);
    if (!size) return llm42_fail(c->error, LLM42_MEMORY, "%s: out of memory", c->path);
    for (char *rest, *row = strtok_r(value, " ", &rest); row; row = strtok_r(NULL, " ", &rest)) {
        LLM42__TRY(llm42__calibration_number(c, &rows, row, size));
        rows.low = *size++ + 1;
        c->to->pass_sizes++;
    }
    return LLM42_OK;
}

// Reads a line that begins with a mark. It is a comment unless one word stands between the mark and a colon, and that
// is `table`, a key, or like a key: then it is misspelt, or of an older version of the format.
static llm42_result llm42__calibration_key(llm42__calibrating *c, char *text) {
    char *word = text + 1 + strspn(text + 1, " "), *end = word + strcspn(word, " :"), *value = end + strspn(end, " ");
    if (*value != ':') return LLM42_OK;
    *end = 0;
    value += 1 + strspn(value + 1, " ");
    for (end = value + strlen(value); end > value && end[-1] == ' ';) *--end = 0;
    if (!strcmp(word, "table")) return llm42__calibration_table(c, value);
    const char *meant = NULL;
    int most = 0, i = 0;
    for (; i < LLM42__KEYS && strcmp(word, llm42__keys[i].name) != 0; i++) {
        const int like = llm42__likeness(word, llm42__keys[i].name);
        if (like > most) most = like, meant = llm42__keys[i].name;
    }
    if (i == LLM42__KEYS && most == 0) return LLM42_OK;
    if (i == LLM42__KEYS && most == 1)
        return LLM42__BAD_LINE(c, "%.60s: no key has this name: sweep/calibration/README.md lists the keys", word);
    if (i == LLM42__KEYS) return LLM42__BAD_LINE(c, "%.60s: no key has this name: did you mean %s?", word, meant);
    if (c->seen >> i & 1) return LLM42__BAD_LINE(c, "%s is there twice", word);
    c->seen |= 1u << i;
    return llm42__calibration_value(c, &llm42__keys[i], value);
}

// Reads a file's lines up to `last`, and ends each with a zero. A zero in a line would hide what stands behind it.
static llm42_result llm42__calibration_read(llm42__calibrating *c, char *text, const char *last) {
    bool ended = false;
    if (last - text >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) text += 3;  // a byte order mark
    for (char *end; !ended && (end = memchr(text, '\n', (size_t)(last - text))); text = end + 1) {
        for (char *p = text; p < end; p++) *p = *p ? *p : '?';
        *end = 0;
        if (end > text && end[-1] == '\r') end[-1] = 0;
        if (++c->line == 1 && strcmp(text, "# llm42 calibration 2") != 0)
            return LLM42__BAD_LINE(c,
                                   "not a calibration: the first line must be '%s'. (Version 1 could not tell a file "
                                   "that was cut short: measure it again, or convert it as sweep/calibration/README.md "
                                   "says.)",
                                   "# llm42 calibration 2");
        ended = !strcmp(text, "# end");
        if (ended) LLM42__TRY(llm42__calibration_close(c));
        else if (*text == '#') LLM42__TRY(llm42__calibration_key(c, text));
        else if (*text) LLM42__TRY(llm42__calibration_row(c, text));
    }
    char lacks[96] = "";  // the table that has too few rows, or the first one that has not begun
    for (int t = LLM42__REQUIRED_TABLES; t-- > 0;)
        if (t != c->table && !llm42__table_of(c->to, t)->xs)
            snprintf(lacks, sizeof lacks, "table '%s' is missing", llm42__tables[t].name);
    if (c->rows < c->count)
        snprintf(lacks, sizeof lacks, "table '%s' has %d of its %d rows", llm42__tables[c->table].name, c->rows,
                 c->count);
    if (!ended)
        return llm42_fail(c->error, LLM42_FORMAT,
                          "%s: cut short behind line %d: %s%sthe last line, '# end', is missing", c->path, c->line,
                          lacks, *lacks ? ", and " : "");
    c->line++;
    if (text < last) return LLM42__BAD_LINE(c, "there is more behind the last line, '%s'", "# end");
    for (int i = 0; i < LLM42__REQUIRED; i++)
        if (!(c->seen >> i & 1))
            return llm42_fail(c->error, LLM42_FORMAT, "%s: no line '# %s: ...'", c->path, llm42__keys[i].name);
    return *lacks ? llm42_fail(c->error, LLM42_FORMAT, "%s: %s", c->path, lacks) : LLM42_OK;
}

llm42_result llm42_calibration_load(llm42_calibration **calibration, const char *path, llm42_error *error) {
    if (!calibration) return llm42_fail(error, LLM42_INVALID, "llm42_calibration_load: calibration: must not be NULL");
    *calibration = NULL;
    if (!path) return llm42_fail(error, LLM42_INVALID, "llm42_calibration_load: path: must not be NULL");
    llm42_calibration *to = llm42__alloc_zero(1, sizeof *to);
    if (!to) return llm42_fail(error, LLM42_MEMORY, "%s: out of memory", path);
    *to = (llm42_calibration){.devices = 1, .leaves = 1, .flip_shape = 1};
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    snprintf(to->name, sizeof to->name, "%.*s", dot && dot > name ? (int)LLM42__MIN(dot - name, 127) : 127, name);
    llm42__calibrating reading = {.path = path, .to = to, .error = error, .table = -1};
    llm42__file file;
    llm42_result result = llm42__file_open(&file, path, false, error);
    char *text = (char *)(uintptr_t)file.data;                   // it was read, not mapped: its lines are cut in place
    reading.room = (int)LLM42__MIN(file.size / 6 + 1, 1 << 24);  // three numbers, two tabs and the end of the line
    if (result == LLM42_OK) result = llm42__calibration_read(&reading, text, text + file.size);
    llm42__free(reading.points);
    llm42__file_close(&file);
    if (result == LLM42_OK) *calibration = to;
    else llm42_calibration_free(to);
    return result;
}

void llm42_calibration_free(llm42_calibration *c) {
    for (int t = 0; c && t < LLM42__TABLES; t++) llm42__free(llm42__table_of(c, t)->x);  // and y and values behind it
    if (c) llm42__free(c->pass_rows);
    llm42__free(c);
}

#endif  // LLM42_CALIBRATION_IMPLEMENTATION
