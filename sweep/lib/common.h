// common.h: what the programs in sweep/ share: errors, files, clocks, sorted numbers, policies by name, and the list of
// a calibration's tables. Like everything in sweep/ it uses the public interface of llm42.h alone.
//
// Include llm42.h before it, and before any system header.
#ifndef SWEEP_COMMON_H
#define SWEEP_COMMON_H

#include "llm42.h"

#include "examples/lib/args.h"

#include <time.h>
#ifdef _OPENMP
#include <omp.h>
#define PARALLEL(clauses) _Pragma(clauses)
#else
#define PARALLEL(clauses)
#endif

// >>errors -------------------------------------------------------------------------------------------------------
// Returns what the call returned, unless that was LLM42_OK.
#define TRY(call)                                \
    do {                                         \
        llm42_result result_ = (call);           \
        if (result_ != LLM42_OK) return result_; \
    } while (0)

// Memory at a multiple of 64 bytes, to be freed. Exits if there is none left.
static inline void *allocate(size_t bytes) {
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!memory) args_fail(1, "out of memory: %zu bytes", bytes);
    return memory;
}

// >>files --------------------------------------------------------------------------------------------------------
// Reads a whole file. The text ends in a 0 that size does not count, and is to be freed. Errors: IO, MEMORY,
// UNSUPPORTED.
static inline llm42_result file_read(const char *path, char **text, size_t *size, llm42_error *error) {
    struct stat status;
    *text = NULL, *size = 0;
    if (stat(path, &status)) return llm42_fail(error, LLM42_IO, "%s: cannot open: %s", path, strerror(errno));
    if (!S_ISREG(status.st_mode)) return llm42_fail(error, LLM42_IO, "%s: not a regular file", path);
    if (status.st_size >= INT32_MAX) return llm42_fail(error, LLM42_UNSUPPORTED, "%s: larger than 2 GiB", path);
    FILE *file = fopen(path, "r");
    if (!file) return llm42_fail(error, LLM42_IO, "%s: cannot open: %s", path, strerror(errno));
    size_t room = (size_t)status.st_size;
    char *data = calloc(room + 1, 1);
    if (data) *size = fread(data, 1, room, file);
    bool bad = ferror(file);
    fclose(file);
    if (data && !bad) {
        *text = data;
        return LLM42_OK;
    }
    free(data);
    return bad ? llm42_fail(error, LLM42_IO, "%s: cannot read", path)
               : llm42_fail(error, LLM42_MEMORY, "%s: out of memory for %zu bytes", path, room);
}

// FNV-1a.
static inline uint64_t file_hash(const char *text, size_t size) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++) hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    return hash;
}

// What stands in the way of writing this file, found out before hours of work: NULL if nothing does.
static inline const char *cannot_write(const char *path) {
    if (!path[0]) return "the name is empty";
    struct stat there;
    bool exists = !stat(path, &there);
    if (exists && S_ISDIR(there.st_mode)) return "it is a folder";
    // Not opened to try: closing a pipe would send its reader away.
    if (exists && !S_ISREG(there.st_mode)) return access(path, W_OK) ? strerror(errno) : NULL;
    FILE *file = llm42_file_create(path);
    if (!file) return strerror(errno);
    llm42_file_drop(file);
    return NULL;
}

// Exits if it cannot be written, before anything is measured. NULL: not wanted.
static inline void out_try(const char *path) {
    const char *why = path ? cannot_write(path) : NULL;
    if (why) args_fail(1, "%s: cannot write: %s", path, why);
}

// A result file, which gets its name when it is whole (see llm42_file.h). Exits if it cannot be written.
static inline FILE *out_begin(const char *path) {
    FILE *file = llm42_file_create(path);
    if (!file) args_fail(1, "%s: cannot write: %s", path, strerror(errno));
    return file;
}

// For files that take long to fill: what was written goes out now. Exits where it cannot, at once and with the reason,
// which errno has only now.
static inline void out_flush(FILE *file, const char *path) {
    if (fflush(file) || ferror(file)) args_fail(1, "%s: cannot write: %s", path, strerror(errno));
}

// A file whose lines are of use also if no more come: it is kept if the run is ended now, which happens here.
static inline void out_flush_kept(FILE *file, const char *path) {
    llm42_file_keep(file, "# unfinished\n");
    args_watches = 1;
    out_flush(file, path);
    args_stop_if_asked();
}

static inline void out_finish(FILE *file, const char *path) {
    if (!llm42_file_finish(file)) args_fail(1, "%s: cannot write: %s", path, strerror(errno));
    printf("wrote %s\n", path);
}

// >>machine ------------------------------------------------------------------------------------------------------
// Wall clock, from any fixed point.
static inline double wall_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// As many threads as OpenMP would take.
static inline int all_threads(void) {
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

// The processor's name into text, and returns it; "unknown" where /proc/cpuinfo does not say.
static inline const char *processor_name(char *text, size_t size) {
    snprintf(text, size, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[512];
    while (file && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !colon || !colon[1]) continue;
        snprintf(text, size, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        break;
    }
    if (file) fclose(file);
    return text;
}

// >>numbers ------------------------------------------------------------------------------------------------------
static inline int compare_numbers(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline void sort_numbers(double *values, int64_t count) {
    qsort(values, (size_t)count, sizeof *values, compare_numbers);
}

// Sorts the values.
static inline double median(double *values, int count) {
    sort_numbers(values, count);
    return count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

// The smallest of sorted values with at least p percent of them at or below it (nearest rank); NAN of none.
static inline double percentile(const double *sorted, int64_t count, double p) {
    int64_t rank = (int64_t)ceil(p * (double)count / 100.0);
    return count ? sorted[rank < 1 ? 0 : rank - 1] : (double)NAN;
}

// Replaces values, which stand `stride` apart, by the nearest ones (least squares) that never fall: neighbours that
// fall are pooled into their mean (pool adjacent violators).
static inline void make_monotone(double *values, int count, int stride) {
    for (int i = 1; i < count; i++)
        for (int first = i; first > 0 && values[first * stride] < values[(first - 1) * stride]; first--) {
            double sum = 0;
            for (int k = first - 1; k <= i; k++) sum += values[k * stride];
            for (int k = first - 1; k <= i; k++) values[k * stride] = sum / (i - first + 2);
        }
}

// The shortest decimal that reads back as this number; whole numbers without an exponent.
static inline void number_text(char *text, size_t size, double number) {
    snprintf(text, size, "%.0f", number);
    for (int digits = 1; strtod(text, NULL) != number; digits++) snprintf(text, size, "%.*g", digits, number);
}

// >>names --------------------------------------------------------------------------------------------------------
// The words of one of the library's policies, NULL-terminated. Word i stands for value i + 1. The name must be one of
// llm42_policies().
static inline const char *const *policy_words(const char *policy) {
    const llm42_policy_words *p = llm42_policies();
    while (strcmp(p->name, policy) != 0) p++;
    return p->word;
}

// What an option is about and the words that it takes, as "about: word, word", into text, which it returns.
static inline const char *words_help(char *text, size_t size, const char *about, const char *const *words) {
    size_t used = (size_t)snprintf(text, size, "%s", about);
    for (int i = 0; words[i] && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : about[0] ? ": " : "", words[i]);
    return text;
}

// The tables of pass times in a calibration, in the order in which they are written. Only the last one may be missing.
enum { COST_TABLES = 7, REQUIRED_COST_TABLES = 6 };
static const struct {
    llm42_schedule schedule;
    llm42_kind kind;
} cost_tables[COST_TABLES] = {
    {LLM42_SCHEDULE_FAST, LLM42_KIND_DECODE},      {LLM42_SCHEDULE_FAST, LLM42_KIND_PROMPT},
    {LLM42_SCHEDULE_FIXED, LLM42_KIND_WINDOW},     {LLM42_SCHEDULE_FIXED, LLM42_KIND_PROMPT},
    {LLM42_SCHEDULE_INVARIANT, LLM42_KIND_DECODE}, {LLM42_SCHEDULE_INVARIANT, LLM42_KIND_PROMPT},
    {LLM42_SCHEDULE_INVARIANT, LLM42_KIND_WINDOW}};

// The parts of a calibration that are the same in all: its first line, the names of its columns, the line that begins
// table t of so many rows, and its last line. A reader refuses a file that lacks any of them.
#define CALIBRATION_FIRST "# llm42 calibration 2\n"
#define CALIBRATION_COLUMNS "schedule\tkind\trows\tcontext_tokens\tms\n"
#define CALIBRATION_FLIPS "fast_rows\treplay_rows\tflip_rate\n"
#define CALIBRATION_END "# end\n"

// The word of a kind in calibrations.
static inline const char *kind_word(llm42_kind kind) {
    static const char *const words[LLM42_KIND_COUNT] = {"decode", "prompt", "window"};
    return words[kind];
}

static inline void calibration_table(FILE *file, int t, int rows) {
    fprintf(file, "# table: %s %s %d\n", llm42_schedule_name(cost_tables[t].schedule), kind_word(cost_tables[t].kind),
            rows);
}

static inline void calibration_row(FILE *file, int t, double rows, double context, double ms) {
    fprintf(file, "%s\t%s\t%.0f\t%.0f\t%.6g\n", llm42_schedule_name(cost_tables[t].schedule),
            kind_word(cost_tables[t].kind), rows, context, ms);
}

// The whole table of flip rates: rate[f * replays + r] from fast[f] and replay[r] rows on.
static inline void calibration_flips(FILE *file, const int *fast, int fasts, const int *replay, int replays,
                                     const double *rate) {
    fprintf(file, "# table: flips %d\n" CALIBRATION_FLIPS, fasts * replays);
    for (int f = 0; f < fasts; f++)
        for (int r = 0; r < replays; r++) fprintf(file, "%d\t%d\t%.4g\n", fast[f], replay[r], rate[f * replays + r]);
}

#endif  // SWEEP_COMMON_H
