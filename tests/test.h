// test.h: the harness of the test programs, with llm42.h. Include it before anything else: it sets the POSIX level,
// keeps assert alive and counts the allocations of what is included after it. One program:
//
//     #include "test.h"
//
//     TEST(greedy_takes_the_lowest_id) { CHECK_INT(token, 3); }
//
//     int main(void) { RUN(greedy_takes_the_lowest_id, ...); return test_end("test_sampler"); }
//
// Every CHECK counts as one passed or failed; a failed one prints its place and values and the test goes on.
//
// A program of several files shares one state: all but one of them define TEST_SHARED before they include this.
#ifndef LLM42_TEST_H
#define LLM42_TEST_H

#undef NDEBUG
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>  // it declares posix_memalign: before the macros at the end
#endif

// Sanitizers make everything several times slower: where TEST_SLOW is 1, long tests take a smaller share.
#if defined(__SANITIZE_ADDRESS__)
#define TEST_SLOW 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer) || __has_feature(thread_sanitizer)
#define TEST_SLOW 1
#endif
#endif
#ifndef TEST_SLOW
#define TEST_SLOW 0
#elif !defined(TEST_SHARED)
// Out of memory is an answer to test, and not the end.
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1:abort_on_error=1"; }
#endif

// The library and its companions take their memory by these: see the end.
void *test_lib_malloc(size_t size);
void *test_lib_realloc(void *old, size_t size);
void test_lib_free(void *p);
#define LLM42_MALLOC(size) test_lib_malloc(size)
#define LLM42_REALLOC(pointer, size) test_lib_realloc(pointer, size)
#define LLM42_FREE(pointer) test_lib_free(pointer)
#define LLM42_BASE  // functions on numbers, too
#include "llm42.h"

// The CPU backend's desc with so many threads, for .backend_desc.
static const llm42_cpu_desc test_cpu_descs[] = {{0}, {1}, {2}, {3}, {4}};
#define TEST_THREADS(n) ((const void *)&test_cpu_descs[n])

typedef struct test_counts {
    int64_t passed, failed, skipped, ran;
    const char *name;     // of the TEST that runs
    const char *only;     // tests whose names do not contain this are left out; NULL: none
    char others[4000];    // names of those that were left out
    int64_t allocations;  // calls of malloc, calloc, realloc, aligned_alloc and posix_memalign so far
    unsigned starve;      // while not 0: every starve-th allocation of the library fails
    unsigned asked;       // allocations of the library since then,
    unsigned starved;     // and those that failed; a test sets both to 0
} test_counts;
extern test_counts test_state;
#ifndef TEST_SHARED
test_counts test_state;
#endif

// Counting ------------------------------------------------------------------------------------------------------
enum { TEST_FAILURES_PRINTED = 40 };

#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
static inline bool
test_check(bool ok, const char *file, int line, const char *format, ...) {
    if (ok) {
        test_state.passed++;
        return true;
    }
    if (test_state.failed++ < TEST_FAILURES_PRINTED) {
        va_list args;
        va_start(args, format);
        fprintf(stdout, "%s:%d: %s: FAILED: ", file, line, test_state.name ? test_state.name : "main");
        vfprintf(stdout, format, args);
        fputc('\n', stdout);
        va_end(args);
        fflush(stdout);
    }
    return false;
}

// Each yields whether it held, so that a test can stop: if (!CHECK(p)) return;
#define CHECK(condition) test_check((condition) ? true : false, __FILE__, __LINE__, "%s", #condition)
// CHECK_MSG(condition, "format", ...): values of the caller's choice.
#define CHECK_MSG(condition, ...) test_check((condition) ? true : false, __FILE__, __LINE__, __VA_ARGS__)
#define CHECK_INT(got, want) test_check_int((int64_t)(got), (int64_t)(want), #got, __FILE__, __LINE__)
#define CHECK_STR(got, want) test_check_str((got), (want), #got, __FILE__, __LINE__)
#define CHECK_CONTAINS(text, part) test_check_contains((text), (part), #text, __FILE__, __LINE__)
// The call gives this result, and `error`, where it says why, has this part.
#define CHECK_ERROR(call, want, part) (CHECK_INT(call, want), CHECK_CONTAINS(error.text, part))
#define CHECK_BITS(got, want) test_check_bits((got), (want), #got, __FILE__, __LINE__)  // floats, to the bit
#define CHECK_NEAR(got, want, tolerance) \
    test_check_near((double)(got), (double)(want), (double)(tolerance), #got, __FILE__, __LINE__)

static inline bool test_check_int(int64_t got, int64_t want, const char *what, const char *file, int line) {
    return test_check(got == want, file, line, "%s is %lld, expected %lld", what, (long long)got, (long long)want);
}

static inline bool test_check_str(const char *got, const char *want, const char *what, const char *file, int line) {
    return test_check(got && want && strcmp(got, want) == 0, file, line, "%s is \"%s\", expected \"%s\"", what,
                      got ? got : "(null)", want ? want : "(null)");
}

static inline bool test_check_contains(const char *text, const char *part, const char *what, const char *file,
                                       int line) {
    return test_check(text && part && strstr(text, part), file, line, "%s is \"%s\", without \"%s\"", what,
                      text ? text : "(null)", part ? part : "(null)");
}

static inline bool test_check_bits(float got, float want, const char *what, const char *file, int line) {
    uint32_t a, b;
    memcpy(&a, &got, sizeof a);
    memcpy(&b, &want, sizeof b);
    return test_check(a == b, file, line, "%s is %.9g (%08x), expected %.9g (%08x)", what, (double)got, (unsigned)a,
                      (double)want, (unsigned)b);
}

// A NaN on either side fails: the comparison is written so that only a number within the tolerance passes.
static inline bool test_check_near(double got, double want, double tolerance, const char *what, const char *file,
                                   int line) {
    return test_check(fabs(got - want) <= tolerance, file, line, "%s is %.9g, expected %.9g within %g", what, got, want,
                      tolerance);
}

// A program that defines TEST_ALL before it includes this has a list of its tests, and RUN_ALL runs them in their
// order.
#ifdef TEST_ALL
static void (*test_list[64])(void);
static const char *test_names[64];
static int test_listed;
#define TEST(test)                                               \
    static void test(void);                                      \
    __attribute__((constructor)) static void test##_list(void) { \
        assert(test_listed < 64);                                \
        test_list[test_listed] = test;                           \
        test_names[test_listed++] = #test;                       \
    }                                                            \
    static void test(void)
#define RUN_ALL() \
    for (int i = 0; i < test_listed; i++) test_run(test_list[i], test_names[i])
// The main function of a program that does nothing else.
#define TEST_MAIN(program)            \
    int main(int argc, char **argv) { \
        test_begin(argc, argv);       \
        RUN_ALL();                    \
        return test_end(program);     \
    }
#else
#define TEST(name) static void name(void)
#endif
#define RUN(...) RUN_AS("", __VA_ARGS__)
// RUN_AS(" (so)", test, ...): the tests' names end in " (so)".
#define RUN_AS(ending, ...) test_run_all((void (*const[])(void)){__VA_ARGS__}, #__VA_ARGS__, ending)
#define RUN_FIRST(name) test_run_first(name, #name)  // what later tests rest on: runs whatever was asked for

// The first line of main: `test_NAME PART` runs only the tests whose names contain PART.
static inline void test_begin(int argc, char **argv) {
    if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
        fprintf(stderr, "usage: %s [PART OF A TEST'S NAME]\n", argv[0]);
        exit(2);
    }
    test_state.only = argc == 2 ? argv[1] : NULL;
}

static inline void test_run_first(void (*test)(void), const char *name) {
    test_state.name = name;
    test();
    test_state.name = NULL;
}

static inline void test_run(void (*test)(void), const char *name) {
    if (test_state.only && !strstr(name, test_state.only)) {
        size_t used = strlen(test_state.others);
        snprintf(test_state.others + used, sizeof test_state.others - used, " %s", name);
        return;
    }
    test_state.ran++;
    test_run_first(test, name);
}

// names: those of the tests, each but the last with ", " behind it.
static inline void test_run_all(void (*const *tests)(void), const char *names, const char *ending) {
    for (size_t length; *names; names += length + strspn(names + length, ", "), tests++) {
        char name[128];
        length = strcspn(names, ",");
        snprintf(name, sizeof name, "%.*s%s", (int)length, names, ending);
        test_run(*tests, name);
    }
}

// Counts one skipped test and says why; the caller returns.
#define SKIP(message) test_skip(message)

static inline void test_skip(const char *message) {
    test_state.skipped++;
    printf("%s: skipped: %s\n", test_state.name ? test_state.name : "main", message);
}

// Prints the line that `make test` adds up and returns the exit status.
static inline int test_end(const char *program) {
    if (test_state.only && !test_state.ran) {
        printf("%s: no test's name contains '%s'; there are:%s\n", program, test_state.only, test_state.others);
        test_state.failed++;
    }
    if (test_state.failed > TEST_FAILURES_PRINTED)
        printf("... %lld more failures\n", (long long)(test_state.failed - TEST_FAILURES_PRINTED));
    printf("%s: %lld passed, %lld failed", program, (long long)test_state.passed, (long long)test_state.failed);
    if (test_state.skipped) printf(", %lld skipped", (long long)test_state.skipped);
    printf("\n");
    fflush(stdout);
    return test_state.failed ? 1 : 0;
}

// Files ---------------------------------------------------------------------------------------------------------
#ifndef __wasi__
// A new folder in memory where the system has such a place, else in /tmp. Its path goes to path.
static inline void test_folder(char path[64]) {
    const char *root = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(path, 64, "%s/llm42-test-XXXXXX", root);
    if (mkdtemp(path)) return;
    snprintf(path, 64, "/tmp/llm42-test-XXXXXX");
    if (!mkdtemp(path)) {
        perror(path);
        exit(1);
    }
}
#endif

// dir + "/" + name, in one of 32 buffers used in turn.
static inline const char *test_path(const char *dir, const char *name) {
    static char buffer[32][1024];
    static unsigned next;
    char *path = buffer[next++ % 32];
    snprintf(path, sizeof buffer[0], "%s/%s", dir, name);
    return path;
}

// Removes a folder and all in it; a path that is not there is fine.
static inline void test_remove(const char *path) {
    struct stat status;
    if (lstat(path, &status) != 0) return;
    if (S_ISDIR(status.st_mode)) {
        DIR *dir = opendir(path);
        struct dirent *entry;
        while (dir && (entry = readdir(dir)) != NULL) {
            char child[1024];
            if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
            if (snprintf(child, sizeof child, "%s/%s", path, entry->d_name) < (int)sizeof child) test_remove(child);
        }
        if (dir) closedir(dir);
    }
    if (remove(path) != 0) perror(path);
}

#ifndef __wasi__
// The program's own folder, which is made when it is first asked for and goes when the program ends, and a path in it.
static char test_own_folder[64];
static inline void test_leave(void) { test_remove(test_own_folder); }
static inline const char *test_scratch(void) {
    if (!test_own_folder[0]) test_folder(test_own_folder), atexit(test_leave);
    return test_own_folder;
}
static inline const char *test_file(const char *name) { return test_path(test_scratch(), name); }
#endif

static inline void test_write(const char *path, const void *data, size_t size) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
}

static inline void test_write_text(const char *path, const char *text) { test_write(path, text, strlen(text)); }

// The whole file, with a 0 byte behind it; NULL when it cannot be read. The caller frees it; *size may be NULL.
static inline char *test_read(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    char *data = NULL;
    size_t used = 0, room = 0;
    if (size) *size = 0;
    if (!file) return NULL;
    for (;;) {
        if (room - used < 2) {
            char *grown = realloc(data, room = room ? 2 * room : 65536);
            if (!grown) break;
            data = grown;
        }
        size_t n = fread(data + used, 1, room - used - 1, file);
        if (n == 0) break;
        used += n;
    }
    if (data) data[used] = 0;
    if (size) *size = used;
    fclose(file);
    return data;
}

// Turns `count` numbers of `size` bytes around.
static inline void test_swap_bytes(char *data, int size, int count) {
    for (; count > 0; count--, data += size)
        for (int i = 0; i < size / 2; i++) {
            char byte = data[i];
            data[i] = data[size - 1 - i];
            data[size - 1 - i] = byte;
        }
}

// Ends a text at the next tab and puts bytes for \n, \t, \r, \\ and \xHH. Returns what stands behind the tab, or "".
static inline char *test_unescape(char *text) {
    char *to = text;
    for (; *text && *text != '\t'; text++) {
        char byte = *text;
        if (byte == '\\' && *++text != '\\') {
            const char *letter = strchr("n\nt\tr\r", *text);
            byte = letter ? letter[1] : (char)strtol((char[]){text[1], text[2], 0}, NULL, 16);
            if (!letter) text += 2;
        }
        *to++ = byte;
    }
    text += *text == '\t';
    *to = 0;
    return text;
}

// The texts of the next case in tests/cases/NAME.tsv whose line begins with this word, and NULL behind the last one. A
// tab stands before each text, test_unescape says what stands in it, and lines with # are comments. There must be a
// case. One loop ends before another begins:
//
//     for (char **c; (c = test_case("sim", "rows")) != NULL;) refused(head, with(text, c[0], c[1]), c[2]);
static inline char **test_case(const char *name, const char *word) {
    static char *text, *at, *column[9];
    static int found;
    char path[128], *line = NULL;
    snprintf(path, sizeof path, "tests/cases/%s.tsv", name);
    if (!text) text = at = test_read(path, NULL), found = 0;
    while (text && *at && !line) {
        if (!strncmp(at, word, strlen(word)) && at[strlen(word)] == '\t') line = at + strlen(word) + 1;
        at += strcspn(at, "\n");
        if (*at) *at++ = 0;
    }
    found += line != NULL;
    if (!found) printf("%s: no case '%s'\n", path, word), exit(1);
    if (!line) {
        free(text);
        text = NULL;
        return NULL;
    }
    for (int i = 0; i < 9; i++) column[i] = line, line = test_unescape(line);
    return column;
}

// A result by its name.
static inline llm42_result test_result(const char *name) {
#define TEST_RESULT(value, number, text) \
    if (!strcmp(name, #value)) return value;
    LLM42_RESULTS(TEST_RESULT)
#undef TEST_RESULT
    return LLM42_OK;
}

static inline bool test_exists(const char *path) { return access(path, F_OK) == 0; }

// Numbers are now written with a decimal comma, as in German: an installed locale, or one made in this folder. False:
// there is none. setlocale(LC_NUMERIC, "C") takes it back.
static inline bool test_decimal_comma(const char *folder) {
    static const char *const installed[] = {"de_DE.UTF-8", "de_DE.utf8", "de_DE", "fr_FR.UTF-8", "fr_FR.utf8"};
    char command[512];
    for (size_t i = 0; i < sizeof installed / sizeof *installed; i++)
        if (setlocale(LC_NUMERIC, installed[i])) return true;
    test_write_text(test_path(folder, "source"), "LC_NUMERIC\ndecimal_point \"<U002C>\"\nthousands_sep "
                                                 "\"<U002E>\"\ngrouping 3;3\nEND LC_NUMERIC\n");
    // It warns of the other categories, and its status says so too.
    snprintf(command, sizeof command, "localedef -c -i %s/source -f ANSI_X3.4-1968 %s/comma >%s/log 2>&1", folder,
             folder, folder);
    if (system(command) == -1) return false;
    return setenv("LOCPATH", folder, 1) == 0 && setlocale(LC_NUMERIC, "comma") && localeconv()->decimal_point[0] == ',';
}

// Small things --------------------------------------------------------------------------------------------------
// TEST_FREE(a, b, c) frees all of these.
#define TEST_FREE(...) \
    test_free((void *const[]){__VA_ARGS__}, (int)(sizeof(void *const[]){__VA_ARGS__} / sizeof(void *)))
static inline void test_free(void *const *blocks, int count) {
    for (int i = 0; i < count; i++) free(blocks[i]);
}

// A list in braces whose lines clang-format fills; in plain braces it gives every element a line of its own.
#define TEST_LIST(...) \
    { __VA_ARGS__ }

// A desc's log: adds the line to a text of 2,048 bytes, which is log_user.
static inline void test_keep_line(void *user, const char *line) {
    const size_t used = strlen(user);
    snprintf((char *)user + used, 2048 - used, "%s\n", line);
}

// The next number of a fixed sequence (splitmix64), for tests that want arbitrary values, the same each time.
static inline uint64_t test_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline int test_random_int(uint64_t *state, int from, int to) {  // both included
    return from + (int)(test_random(state) % (uint64_t)(to - from + 1));
}

static inline double test_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Engines -------------------------------------------------------------------------------------------------------
// What all that follows rests on: without it the program ends here.
static inline void test_need(bool is_there) {
    if (!is_there) puts("nothing else is tested"), exit(1);
}

// A model that must load, and an engine that must open. The caller frees the one and closes the other.
static inline llm42_model *test_load(const char *path) {
    llm42_model *model = NULL;
    llm42_error error = {0};
    const llm42_result result = llm42_model_load(&model, &(llm42_model_desc){.path = path}, &error);
    test_need(CHECK_MSG(result == LLM42_OK, "%s: %s", path, error.text));
    return model;
}

static inline llm42_engine *test_open(const llm42_engine_desc *desc) {
    llm42_engine *engine = NULL;
    llm42_error error = {0};
    test_need(CHECK_MSG(llm42_engine_open(&engine, desc, &error) == LLM42_OK, "%s", error.text));
    return engine;
}

// A request that must be taken. Returns its id.
static inline int64_t test_submit(llm42_engine *engine, llm42_request_desc desc) {
    int64_t id = 0;
    llm42_error error = {0};
    CHECK_MSG(llm42_engine_submit(engine, &desc, &id, &error) == LLM42_OK, "%s", error.text);
    return id;
}

// Runs an engine to its end and closes it. Returns what it has counted.
static inline llm42_stats test_finish(llm42_engine *engine) {
    llm42_error error = {0};
    CHECK_MSG(llm42_engine_run(engine, &error) == LLM42_OK, "%s", error.text);
    const llm42_stats stats = llm42_engine_stats(engine);
    llm42_engine_close(engine);
    return stats;
}

// An engine that must be refused so.
static inline void test_refused(const llm42_engine_desc *desc, llm42_result want, const char *part) {
    llm42_engine *engine = (llm42_engine *)(uintptr_t)1;
    llm42_error error = {0};
    CHECK_INT(llm42_engine_open(&engine, desc, &error), want);
    CHECK_CONTAINS(error.text, part);
    CHECK(engine == NULL);
    if (engine != (llm42_engine *)(uintptr_t)1) llm42_engine_close(engine);
}

// Runs the first `count` of ids (NULL: of other tokens) through a backend, `each` of them in a pass. Of the desc, sizes
// may be left out. `pass` has the schedule, the sequence's sampling, and a shape (0: its rows) for all passes, and
// where outputs, logits and operators go.
static inline bool test_passes(const llm42_backend *backend, llm42_backend_desc desc, llm42_pass pass,
                               const int32_t *ids, int count, int each) {
    void *state = NULL;
    llm42_error error = {0};
    llm42_seq seq = pass.seq ? *pass.seq : (llm42_seq){0};
    const int vocab = desc.model->config.vocab, shape = pass.shape;
    if (!desc.page_size) desc.page_size = 16;
    if (!desc.max_rows) desc.max_rows = count;
    desc.max_context = count, desc.max_running = 1, desc.pages = count / desc.page_size + 1;
    if (!CHECK_MSG(!backend->open(&state, &desc, &error), "%s", error.text)) return false;
    int32_t *pages = calloc((size_t)desc.pages, sizeof *pages);
    llm42_row *row = calloc((size_t)count, sizeof *row);
    assert(pages && row);
    for (int i = 0; i < desc.pages; i++) pages[i] = desc.pages - 1 - i;  // a page's number says nothing of its place
    for (int i = 0; i < count; i++) row[i] = (llm42_row){0, i, ids ? ids[i] : (i * 37 + 5) % vocab, LLM42_ROW_SAMPLE};
    seq.request = 1, seq.pages = pages, pass.seq = &seq;
    bool good = true;
    for (int at = 0; good && at < count; at += each) {
        pass.row = row + at, pass.rows = count - at < each ? count - at : each, pass.shape = shape ? shape : pass.rows;
        llm42_follow_rows(&seq, pass.row, pass.rows);
        good = CHECK_MSG(!backend->run(state, &pass, &error), "%s", error.text);
        pass.out += pass.rows;
        if (pass.logits) pass.logits += (size_t)pass.rows * (size_t)vocab;
    }
    backend->close(state);
    TEST_FREE(pages, row);
    return good;
}

// Allocations ---------------------------------------------------------------------------------------------------
// int64_t before = test_allocations(); ...; CHECK_INT(test_allocations() - before, 0);
// The library's allocations are counted too, because it takes its memory by the functions below. The macros at the end
// reach an implementation in the test program itself; build/llm42.o calls the functions by name (allocate.h).
static inline int64_t test_allocations(void) { return __atomic_load_n(&test_state.allocations, __ATOMIC_RELAXED); }
static inline void test_count_allocation(void) { __atomic_fetch_add(&test_state.allocations, 1, __ATOMIC_RELAXED); }

static inline void *test_malloc(size_t size) { return test_count_allocation(), malloc(size); }
static inline void *test_calloc(size_t count, size_t size) { return test_count_allocation(), calloc(count, size); }
static inline void *test_realloc(void *old, size_t size) { return test_count_allocation(), realloc(old, size); }
static inline void *test_aligned_alloc(size_t alignment, size_t size) {
    return test_count_allocation(), aligned_alloc(alignment, size);
}
static inline int test_posix_memalign(void **to, size_t alignment, size_t size) {
    return test_count_allocation(), posix_memalign(to, alignment, size);
}

// The library's memory. The library aligns its blocks itself, so that some bytes of a block stay unused, where a
// sanitizer would not see a write. These blocks are so placed that none stays unused. (Arrays of stb_ds come through
// LLM42_REALLOC and are placed anywhere.) TEST_OWN_MALLOC: a test has its own.
enum { TEST_PLACE = 64 - (int)(sizeof(void *) + 63) % 64 };

#if !defined(TEST_OWN_MALLOC) && !defined(TEST_SHARED)
static bool test_is_starved(void) {
    if (!test_state.starve || ++test_state.asked % test_state.starve) return false;
    test_state.starved++;
    return true;
}

void *test_lib_malloc(size_t size) {
    void *block;
    if (test_is_starved() || size > SIZE_MAX - TEST_PLACE) return NULL;
    return test_posix_memalign(&block, 64, TEST_PLACE + size) ? NULL : (char *)block + TEST_PLACE;
}

void *test_lib_realloc(void *old, size_t size) { return test_is_starved() ? NULL : test_realloc(old, size); }
void test_lib_free(void *p) { free((uintptr_t)p % 64 == TEST_PLACE ? (char *)p - TEST_PLACE : p); }
#endif

#define malloc(size) test_malloc(size)
#define calloc(count, size) test_calloc(count, size)
#define realloc(old, size) test_realloc(old, size)
#define aligned_alloc(alignment, size) test_aligned_alloc(alignment, size)
#define posix_memalign(to, alignment, size) test_posix_memalign(to, alignment, size)

#endif  // LLM42_TEST_H
