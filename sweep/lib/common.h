// common.h: what the programs in sweep/ share: errors, files, clocks, sorted numbers, policies by name, and the list of
// a calibration's tables. Like everything in sweep/ it uses the public interface of llm42.h alone.
#ifndef SWEEP_COMMON_H
#define SWEEP_COMMON_H

#include "llm42.h"
#include "examples/lib/args.h"
#ifdef _OPENMP
#include <omp.h>
#define PARALLEL(clauses) _Pragma(clauses)
#else
#define PARALLEL(clauses)
#endif

// Returns what the call returned, unless that was LLM42_OK.
#define TRY(call)                                \
    do {                                         \
        llm42_result result_ = (call);           \
        if (result_ != LLM42_OK) return result_; \
    } while (0)

// Memory at a multiple of 64 bytes, to be freed. Exits if there is none left.
void *allocate(size_t bytes);
// Reads a whole file. The text ends in a 0 that size does not count, and is to be freed. Errors: IO, MEMORY,
// UNSUPPORTED.
llm42_result file_read(const char *path, char **text, size_t *size, llm42_error *error);
// FNV-1a.
uint64_t file_hash(const char *text, size_t size);
// What stands in the way of writing this file, found out before hours of work: NULL if nothing does.
const char *cannot_write(const char *path);
// Exits if it cannot be written, before anything is measured. NULL: not wanted.
void out_try(const char *path);
// A result file, which gets its name when it is whole (see llm42_file.h). Exits if it cannot be written.
FILE *out_begin(const char *path);
// For files that take long to fill: what was written goes out now. Exits where it cannot, at once and with the reason,
// which errno has only now.
void out_flush(FILE *file, const char *path);
// A file whose lines are of use also if no more come: it is kept if the run is ended now, which happens here.
void out_flush_kept(FILE *file, const char *path);
void out_finish(FILE *file, const char *path);
// Wall clock, from any fixed point.
double wall_seconds(void);
// As many threads as OpenMP would take.
int all_threads(void);
// The processor's name into text, and returns it; "unknown" where /proc/cpuinfo does not say.
const char *processor_name(char *text, size_t size);
void sort_numbers(double *values, int64_t count);
// Sorts the values.
double median(double *values, int count);
// The smallest of sorted values with at least p percent of them at or below it (nearest rank); NAN of none.
double percentile(const double *sorted, int64_t count, double p);
// Replaces values, which stand `stride` apart, by the nearest ones (least squares) that never fall: neighbours that
// fall are pooled into their mean (pool adjacent violators).
void make_monotone(double *values, int count, int stride);
// The shortest decimal that reads back as this number; whole numbers without an exponent.
void number_text(char *text, size_t size, double number);
// What an option is about and the words that it takes, as "about: word, word", into text, which it returns.
const char *words_help(char *text, size_t size, const char *about, const char *const *words);

// The tables of pass times in a calibration, in the order in which they are written. Only the last one may be missing.
enum { COST_TABLES = 7, REQUIRED_COST_TABLES = 6 };
typedef struct cost_table {
    llm42_schedule schedule;
    llm42_kind kind;
} cost_table;
extern const cost_table cost_tables[COST_TABLES];
// The parts of a calibration that are the same in all: its first line, the names of its columns, the line that begins
// table t of so many rows, and its last line. A reader refuses a file that lacks any of them.
#define CALIBRATION_FIRST "# llm42 calibration 2\n"
#define CALIBRATION_COLUMNS "schedule\tkind\trows\tcontext_tokens\tms\n"
#define CALIBRATION_END "# end\n"
// The word of a kind in calibrations.
const char *kind_word(llm42_kind kind);
void calibration_table(FILE *file, int t, int rows);
void calibration_row(FILE *file, int t, double rows, double context, double ms);
// The whole table of flip rates: rate[f * replays + r] from fast[f] and replay[r] rows on.
void calibration_flips(FILE *file, const int *fast, int fasts, const int *replay, int replays, const double *rate);

#endif  // SWEEP_COMMON_H
