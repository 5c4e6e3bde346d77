// common.c: what the programs in sweep/ share (see common.h).
#define _POSIX_C_SOURCE 200809L
#include "common.h"

// >>errors -------------------------------------------------------------------------------------------------------
void *allocate(size_t bytes) {
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!memory) args_fail(1, "out of memory: %zu bytes", bytes);
    return memory;
}

// >>files --------------------------------------------------------------------------------------------------------
llm42_result file_read(const char *path, char **text, size_t *size, llm42_error *error) {
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

uint64_t file_hash(const char *text, size_t size) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++) hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    return hash;
}

const char *cannot_write(const char *path) {
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

void out_try(const char *path) {
    const char *why = path ? cannot_write(path) : NULL;
    if (why) args_fail(1, "%s: cannot write: %s", path, why);
}

FILE *out_begin(const char *path) {
    FILE *file = llm42_file_create(path);
    if (!file) args_fail(1, "%s: cannot write: %s", path, strerror(errno));
    return file;
}

void out_flush(FILE *file, const char *path) {
    if (fflush(file) || ferror(file)) args_fail(1, "%s: cannot write: %s", path, strerror(errno));
}

void out_flush_kept(FILE *file, const char *path) {
    llm42_file_keep(file, "# unfinished\n");
    args_watches = 1;
    out_flush(file, path);
    args_stop_if_asked();
}

void out_finish(FILE *file, const char *path) {
    if (!llm42_file_finish(file)) args_fail(1, "%s: cannot write: %s", path, strerror(errno));
    printf("wrote %s\n", path);
}

// >>machine ------------------------------------------------------------------------------------------------------
double wall_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int all_threads(void) {
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

const char *processor_name(char *text, size_t size) {
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
static int compare_numbers(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void sort_numbers(double *values, int64_t count) { qsort(values, (size_t)count, sizeof *values, compare_numbers); }

double median(double *values, int count) {
    sort_numbers(values, count);
    return count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

double percentile(const double *sorted, int64_t count, double p) {
    int64_t rank = (int64_t)ceil(p * (double)count / 100.0);
    return count ? sorted[rank < 1 ? 0 : rank - 1] : (double)NAN;
}

void make_monotone(double *values, int count, int stride) {
    for (int i = 1; i < count; i++)
        for (int first = i; first > 0 && values[first * stride] < values[(first - 1) * stride]; first--) {
            double sum = 0;
            for (int k = first - 1; k <= i; k++) sum += values[k * stride];
            for (int k = first - 1; k <= i; k++) values[k * stride] = sum / (i - first + 2);
        }
}

void number_text(char *text, size_t size, double number) {
    snprintf(text, size, "%.0f", number);
    for (int digits = 1; strtod(text, NULL) != number; digits++) snprintf(text, size, "%.*g", digits, number);
}

// >>names --------------------------------------------------------------------------------------------------------
const char *words_help(char *text, size_t size, const char *about, const char *const *words) {
    size_t used = (size_t)snprintf(text, size, "%s", about);
    for (int i = 0; words[i] && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : about[0] ? ": " : "", words[i]);
    return text;
}

const cost_table cost_tables[COST_TABLES] = {
    {LLM42_SCHEDULE_FAST, LLM42_KIND_DECODE},      {LLM42_SCHEDULE_FAST, LLM42_KIND_PROMPT},
    {LLM42_SCHEDULE_FIXED, LLM42_KIND_WINDOW},     {LLM42_SCHEDULE_FIXED, LLM42_KIND_PROMPT},
    {LLM42_SCHEDULE_INVARIANT, LLM42_KIND_DECODE}, {LLM42_SCHEDULE_INVARIANT, LLM42_KIND_PROMPT},
    {LLM42_SCHEDULE_INVARIANT, LLM42_KIND_WINDOW}};
#define CALIBRATION_FLIPS "fast_rows\treplay_rows\tflip_rate\n"

const char *kind_word(llm42_kind kind) {
    static const char *const words[LLM42_KIND_COUNT] = {"decode", "prompt", "window"};
    return words[kind];
}

void calibration_table(FILE *file, int t, int rows) {
    fprintf(file, "# table: %s %s %d\n", llm42_schedule_name(cost_tables[t].schedule), kind_word(cost_tables[t].kind),
            rows);
}

void calibration_row(FILE *file, int t, double rows, double context, double ms) {
    fprintf(file, "%s\t%s\t%.0f\t%.0f\t%.6g\n", llm42_schedule_name(cost_tables[t].schedule),
            kind_word(cost_tables[t].kind), rows, context, ms);
}

void calibration_flips(FILE *file, const int *fast, int fasts, const int *replay, int replays, const double *rate) {
    fprintf(file, "# table: flips %d\n" CALIBRATION_FLIPS, fasts * replays);
    for (int f = 0; f < fasts; f++)
        for (int r = 0; r < replays; r++) fprintf(file, "%d\t%d\t%.4g\n", fast[f], replay[r], rate[f * replays + r]);
}
