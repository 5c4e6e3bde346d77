// fuzz.h: what makes a fuzz target a test. A target defines
//
//     int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
//     static size_t fuzz_seed(int index, uint8_t *out, size_t room);  // the seeds; 0: no more
//     static void fuzz_report(void);                                  // prints what the inputs reached
//     static const char *const fuzz_words[] = {..., NULL};            // put into inputs now and then
//
// and ends with FUZZ_MAIN("name"). Under libFuzzer (-DLLM42_LIBFUZZER) that adds nothing; else it is a main function
// that runs the seeds and a fixed sequence of mutations of them: the same inputs on every machine.
#ifndef LLM42_FUZZ_H
#define LLM42_FUZZ_H

#include "test.h"

#include <fcntl.h>
#include <signal.h>

enum { FUZZ_ROOM = 1 << 17 };
#ifndef FUZZ_RUNS
#define FUZZ_RUNS 20000  // inputs, as a test: not seconds, or a busy machine would try fewer
#endif

// What the target finds wrong ends the program, which is how libFuzzer learns of it.
#define FUZZ_CHECK(condition, ...)                                                        \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: %s does not hold: ", __FILE__, __LINE__, #condition); \
            fprintf(stderr, __VA_ARGS__);                                                 \
            fputc('\n', stderr);                                                          \
            abort();                                                                      \
        }                                                                                 \
    } while (0)

// A refusal: a negative result with a text of one line. True.
static inline bool fuzz_one_line(llm42_result result, const llm42_error *error) {
    FUZZ_CHECK(result < 0 && error->result == result, "result %d, in the error %d", (int)result, (int)error->result);
    FUZZ_CHECK(error->text[0] && memchr(error->text, 0, sizeof error->text), "no text");
    for (const char *p = error->text; *p; p++)
        FUZZ_CHECK((unsigned char)*p >= ' ', "a control character in '%s'", error->text);
    return true;
}

// Before something is loaded: every `every`-th allocation fails, 0: none. Behind it: the result fits what there is and
// what failed. Whether there is something to use.
static int64_t fuzz_out_of_memory;  // loads that were
static inline void fuzz_starve(unsigned every) {
    test_state.starve = every;
    test_state.asked = test_state.starved = 0;
}
static inline bool fuzz_is_loaded(llm42_result result, const void *loaded, const llm42_error *error) {
    test_state.starve = 0;
    FUZZ_CHECK((result == LLM42_OK) == (loaded != NULL), "result %d: %s", (int)result, error->text);
    if (test_state.starved) FUZZ_CHECK(result < 0, "an allocation failed and nobody noticed");
    fuzz_out_of_memory += result == LLM42_MEMORY;
    if (result != LLM42_OK) fuzz_one_line(result, error);
    return result == LLM42_OK;
}

#ifdef LLM42_LIBFUZZER
#define FUZZ_MAIN(name)                                                \
    const void *fuzz_unused(size_t (**seed)(int, uint8_t *, size_t));  \
    const void *fuzz_unused(size_t (**seed)(int, uint8_t *, size_t)) { \
        fuzz_report();                                                 \
        *seed = fuzz_seed;                                             \
        return fuzz_words;                                             \
    }                                                                  \
    typedef int fuzz_main_is_the_fuzzer
#else

static struct {
    const char *name;
    uint8_t data[FUZZ_ROOM], other[FUZZ_ROOM];
    size_t size;
    long run;
    uint64_t random;
} fuzz;

static inline size_t fuzz_below(size_t n) { return n ? (size_t)(test_random(&fuzz.random) % n) : 0; }

// Saves the input that did it, and dies the way the signal says.
static void fuzz_died(int signal_number) {
    char path[128];
    snprintf(path, sizeof path, "/tmp/llm42-%s-%ld.input", fuzz.name, fuzz.run);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (file >= 0 && write(file, fuzz.data, fuzz.size) == (ssize_t)fuzz.size)
        fprintf(stderr, "%s: signal %d at input %ld, saved to %s\n", fuzz.name, signal_number, fuzz.run, path);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static inline void fuzz_splice(size_t at, size_t drop, const void *data, size_t size) {
    if (at > fuzz.size) at = fuzz.size;
    if (drop > fuzz.size - at) drop = fuzz.size - at;
    if (fuzz.size - drop + size > FUZZ_ROOM) return;
    memmove(fuzz.data + at + size, fuzz.data + at + drop, fuzz.size - at - drop);
    if (size) memcpy(fuzz.data + at, data, size);
    fuzz.size = fuzz.size - drop + size;
}

// Replaces a decimal number of the input by one that tends to hurt.
static inline void fuzz_number(size_t at) {
    static const char *const numbers[] = TEST_LIST("0", "-1", "1", "2147483647", "2147483648", "-2147483648",
                                                   "4294967296", "9223372036854775807", "18446744073709551616", "1e9",
                                                   "1e400", "-1e-400", "NaN", "0.5", "65536", "1000000000000");
    while (at < fuzz.size && !(fuzz.data[at] >= '0' && fuzz.data[at] <= '9')) at++;
    size_t length = 0;
    while (at + length < fuzz.size && fuzz.data[at + length] >= '0' && fuzz.data[at + length] <= '9') length++;
    const char *number = numbers[fuzz_below(sizeof numbers / sizeof numbers[0])];
    char small[16];
    if (fuzz_below(2)) {
        snprintf(small, sizeof small, "%zu", fuzz_below(100));
        number = small;
    }
    if (length) fuzz_splice(at, length, number, strlen(number));
}

// One change; what it hits lies within the first 2,000 bytes half of the time, where headers are.
static inline void fuzz_mutate(const char *const *words) {
    static const uint64_t values[] = TEST_LIST(0, 1, 7, 8, 0x7f, 0x80, 0xff, 0xffff, 0x7fffffff, 0x80000000u,
                                               0xffffffffu, 0x7fffffffffffffffu, 0xffffffffffffffffu, 100000000);
    size_t at = fuzz_below(fuzz_below(2) && fuzz.size > 2000 ? 2000 : fuzz.size);
    size_t length = 1 + fuzz_below(fuzz_below(4) ? 8 : 400), from = fuzz_below(fuzz.size), count = 0;
    if (length > fuzz.size - from) length = fuzz.size - from;
    while (words[count]) count++;
    switch (fuzz_below(11)) {
    case 0: fuzz.data[at] ^= (uint8_t)(1u << fuzz_below(8)); break;
    case 1: fuzz.data[at] = (uint8_t)test_random(&fuzz.random); break;
    case 2: fuzz_splice(at, length, NULL, 0); break;
    case 3: fuzz_splice(at, length, values + fuzz_below(14), 1 + fuzz_below(8)); break;
    case 4:
        memcpy(fuzz.other, fuzz.data + from, length);
        fuzz_splice(at, fuzz_below(2) ? length : 0, fuzz.other, length);
        break;
    case 5: fuzz.size = fuzz_below(4) ? fuzz.size : at; break;
    case 6:
    case 7: fuzz_number(at); break;
    case 8:
    case 9: {
        const char *word = count ? words[fuzz_below(count)] : "";
        fuzz_splice(at, fuzz_below(2) ? strlen(word) : 0, word, strlen(word));
        break;
    }
    default: {
        uint64_t value = values[fuzz_below(14)];
        size_t bytes = (size_t)1 << fuzz_below(4);
        if (at + bytes <= fuzz.size) memcpy(fuzz.data + at, &value, bytes);
    }
    }
}

static inline long fuzz_option(int argc, char **argv, const char *name, long value) {
    for (int i = 1; i + 1 < argc; i++) {
        char *end;
        if (strcmp(argv[i], name) != 0) continue;
        errno = 0;
        value = strtol(argv[i + 1], &end, 10);
        if (errno || end == argv[i + 1] || *end || value < 0) {
            fprintf(stderr, "%s: %s wants a number, not '%s'\n", fuzz.name, name, argv[i + 1]);
            exit(2);
        }
    }
    return value;
}

static inline int fuzz_files(int argc, char **argv, size_t (*seed)(int, uint8_t *, size_t),
                             int (*target)(const uint8_t *, size_t)) {
    if (argc == 3 && strcmp(argv[1], "--seeds") == 0) {
        for (int i = 0; (fuzz.size = seed(i, fuzz.data, FUZZ_ROOM)) > 0; i++) {
            char name[32];
            snprintf(name, sizeof name, "seed-%02d", i);
            test_write(test_path(argv[2], name), fuzz.data, fuzz.size);
        }
        return 0;
    }
    for (int i = 1; i < argc; i++) {
        char *data = test_read(argv[i], &fuzz.size);
        if (!data || fuzz.size > FUZZ_ROOM) {
            fprintf(stderr, "%s: %s: cannot be read, or too large\n", fuzz.name, argv[i]);
            return 2;
        }
        memcpy(fuzz.data, data, fuzz.size);
        free(data);
        target(fuzz.data, fuzz.size);
    }
    return 0;
}

static inline int fuzz_main(const char *name, int argc, char **argv, size_t (*seed)(int, uint8_t *, size_t),
                            int (*target)(const uint8_t *, size_t), void (*report)(void), const char *const *words) {
    static const int deadly[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGALRM};
    fuzz.name = name;
    fuzz.random = 42;
    if (argc > 1 && (strcmp(argv[1], "--help") == 0)) {
        printf("usage: %s [--seconds N] [--runs N] | --seeds FOLDER | INPUT...\n", name);
        return 0;
    }
    for (int i = 0; i < 6; i++) signal(deadly[i], fuzz_died);
    if (argc > 1 && strcmp(argv[1], "--seconds") != 0 && strcmp(argv[1], "--runs") != 0)
        return fuzz_files(argc, argv, seed, target);
    long seconds = fuzz_option(argc, argv, "--seconds", 1000000000), seeds = 0;
    long runs = fuzz_option(argc, argv, "--runs", argc > 1 ? 1000000000 : FUZZ_RUNS);
    double start = test_seconds();
    while (seed((int)seeds, fuzz.data, FUZZ_ROOM) > 0) seeds++;
    for (fuzz.run = 0; fuzz.run < runs; fuzz.run++) {
        if (argc > 1 && fuzz.run >= seeds && test_seconds() - start > (double)seconds) break;
        alarm(60);  // an input that takes this long is a finding
        fuzz.size = seed((int)(fuzz.run % seeds), fuzz.data, FUZZ_ROOM);
        for (size_t n = fuzz.run < seeds ? 0 : 1 + fuzz_below(4); n > 0 && fuzz.size > 0; n--) fuzz_mutate(words);
        target(fuzz.data, fuzz.size);
    }
    printf("  %ld seeds, %ld inputs in %.1f s\n", seeds, fuzz.run, test_seconds() - start);
    report();
    test_state.passed += seeds;  // each seed and its mutants came through
    return test_end(name);
}

#define FUZZ_MAIN(name)                                                                                 \
    int main(int argc, char **argv) {                                                                   \
        return fuzz_main(name, argc, argv, fuzz_seed, LLVMFuzzerTestOneInput, fuzz_report, fuzz_words); \
    }                                                                                                   \
    typedef int fuzz_main_is_here

#endif  // LLM42_LIBFUZZER
#endif  // LLM42_FUZZ_H
