// figures.c: lines of the result, tables and progress on a terminal.
#include "sweep/bench/bench.h"

figures figures_of(const bench *b, const char *suite, const char *name) {
    figures f = {.suite = suite};
    snprintf(f.name, sizeof f.name, "%s", name);
#define X(column) f.column = NAN;
    COLUMNS(X)
#undef X
    f.threads = (double)b->set.how.threads;
    return f;
}

static void put(FILE *file, double value) { isnan(value) ? fprintf(file, "\tnan") : fprintf(file, "\t%.6g", value); }

void figures_write(const bench *b, const figures *f) {
    if (!b->tsv) return;
    fprintf(b->tsv, "%s\t%s", f->suite, f->name);
#define X(column) put(b->tsv, f->column);
    COLUMNS(X)
#undef X
    fprintf(b->tsv, "\n");
    out_flush_kept(b->tsv, b->set.out);
}

void figures_columns(FILE *file) {
    fprintf(file, "suite\tcase");
#define X(column) fprintf(file, "\t" #column);
    COLUMNS(X)
#undef X
    fprintf(file, "\n");
}

void progress(const char *format, ...) {
    if (!args_is_terminal(stderr)) return;
    fflush(stdout);
    fprintf(stderr, "\r\033[K");
    if (format) {
        va_list values;
        va_start(values, format);
        vfprintf(stderr, format, values);
        va_end(values);
    }
    fflush(stderr);
}

void head_print(const char *const *words, const int *width, int count) {
    for (int i = 0; i < count; i++) printf("%*s%s", width[i], words[i], i + 1 < count ? " " : "\n");
}
