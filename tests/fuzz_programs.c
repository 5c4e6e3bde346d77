// Fuzz target of the programs' command lines. An input is one byte for the program (see programs), then options: a byte
// for the option, one for the kind of value, and what the value needs. The options are those that --help lists. For the
// last two programs, `generate --batch` and `sweep --merge`, the rest of the input is the file of requests, and that of
// a finished cell. Programs run in a folder of
// their own, with little time and memory. They may end with 0, or with 1 or 2 and one line on standard error that
// begins with their name; never by a signal. With 1 diff says that values differ, and prints no such line. The
// environment's B is the build folder; default: build.
#define FUZZ_RUNS (TEST_SLOW ? 90 : 330)
#include "fuzz.h"

#include <ctype.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { MOST_OPTIONS = 64, MOST_WORDS = 24, MOST_ARGUMENTS = 40, GIVEN = 8, LINE = 4096 };

static const char *const fuzz_words[] = {"\x01\x03", "nan", "-1", "0,1", "1/2", "=", "\xff", NULL};

typedef struct option {
    char name[40];
    bool value, path;  // it takes a value, and that is a file or folder
    char word[MOST_WORDS][32];
    int words;  // of its help
} option;

// An option of `first` is given unless the input gives it; what is given last bounds the work.
static struct program {
    const char *name, *first[5], *last[9];
    option option[MOST_OPTIONS];
    int options;
} programs[] = {
    {.name = "generate", .last = {"-n", "3"}},
    {.name = "score", .first = {"--ids", "0,905"}},
    {.name = "diff", .first = {"-b", "rows=8"}},
    {.name = "audit", .first = {"--model", "from-file", "run.txt"}},
    {.name = "rollback", .last = {"--requests", "2", "--tokens", "6", "--delay", "0"}},
    {.name = "determinism",
     .first = {"--suite", "single", "--preset", "dvr"},
     .last = {"--requests", "2", "--tokens", "4"}},
    {.name = "bench", .first = {"--suite", "decode"}, .last = {"--repeats", "1", "--tokens", "4", "--quick"}},
    {.name = "fit", .last = {"--out", "fit.tsv", "--reference", "no/such/place"}},
    {.name = "sweep", .first = {"--calibration", "sweep/calibration/cpu-tiny42.tsv"}, .last = {"--requests", "10"}},
    {.name = "generate"},  // --batch
    {.name = "sweep"},     // --merge
};
enum { PROGRAMS = sizeof programs / sizeof *programs, BATCH = PROGRAMS - 2, MERGE = PROGRAMS - 1 };

static const char *const numbers[] = {
    "0",    "1",     "2",          "7",       "64",    "-1",       "1e9",
    "0.5",  "1e-50", "2147483647", "nan",     "inf",   "1e400",    "99999999999999999999",
    "0x10", "3,5",   "1,,2",       ",",       "1/2",   "2/1",      "0/0",
    "",     " 1",    "1 ",         "1.5e300", "-2e-9", "4096,4096"};
static const char *const paths[] = TEST_LIST("/dev/full", "/dev/null", "no/such/place", "", ".", "out.tsv", "out.json",
                                             "cells", "examples/tiny42", "examples/tiny42/tokenizer.json",
                                             "sweep/calibration/cpu-tiny42.tsv", "synthetic:tiny",
                                             "synthetic:tiny,seed=3", "shape:tiny");

static char build[LINE], cell[LINE], *cell_text;
static size_t cell_size;
static struct { int64_t ended[3], limited, merged, answered; } seen;

// >>running ------------------------------------------------------------------------------------------------------
static void limit(int what, rlim_t most) { setrlimit(what, &(struct rlimit){most, most}); }

static void child(const char *program, char *const *argv) {
    char path[LINE];
    int in = open("/dev/null", O_RDONLY);
    if (chdir(test_scratch()) || in < 0) _exit(77);
    int out = open(".stdout", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    int err = open(".stderr", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (out < 0 || err < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) _exit(77);
    limit(RLIMIT_CPU, TEST_SLOW ? 4 : 1);
    limit(RLIMIT_FSIZE, 1 << 26);
    limit(RLIMIT_CORE, 0);
    if (!TEST_SLOW) limit(RLIMIT_AS, (rlim_t)4 << 30);
    setenv("OMP_NUM_THREADS", "1", 1);
    setenv("ASAN_OPTIONS", "exitcode=99:allocator_may_return_null=1:max_allocation_size_mb=2048:detect_leaks=0", 1);
    setenv("UBSAN_OPTIONS", "exitcode=99", 1);
    alarm(20);
    snprintf(path, sizeof path, "%.4000s/%s", build, program);
    execv(path, argv);
    _exit(77);
}

// The wait status of a program that has ended; its output is in .stdout and .stderr.
static int launch(const char *program, char *const *argv) {
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) child(program, argv);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

static void describe(char *to, size_t room, char *const *argv) {
    size_t used = 0;
    for (int i = 0; argv[i] && used < room; i++) used += (size_t)snprintf(to + used, room - used, "'%s' ", argv[i]);
}

// The last line of standard error begins with the program's name. Lines of libgomp's are due to the limit of threads.
static void check_error_line(const char *program, int status, const char *text, const char *command) {
    const char *end = text + strlen(text), *line = end;
    size_t length = strlen(program);
    if (strstr(text, "libgomp: ")) return;
    FUZZ_CHECK(end > text && end[-1] == '\n', "no line on standard error after status %d: %s", status, command);
    for (line = end - 1; line > text && line[-1] != '\n';) line--;
    FUZZ_CHECK(!strncmp(line, program, length) && line[length] == ':', "standard error ends in: %s: %s", line, command);
    FUZZ_CHECK(status != 2 || line == text, "more than one line on standard error: %s: %s", text, command);
    for (; line < end - 1; line++)
        FUZZ_CHECK((unsigned char)*line >= ' ', "a control character: %s: %s", text, command);
}

static int check_end(const char *program, char *const *argv) {
    char command[LINE];
    describe(command, sizeof command, argv);
    int status = launch(program, argv);
    char *error = test_read(test_file(".stderr"), NULL);
    FUZZ_CHECK(error, "no standard error");
    FUZZ_CHECK(!strstr(error, "Sanitizer") && !strstr(error, "runtime error"), "%s: %s", command, error);
    if (WIFSIGNALED(status)) {
        int s = WTERMSIG(status);
        FUZZ_CHECK(s == SIGXCPU || s == SIGKILL || s == SIGALRM || s == SIGXFSZ, "signal %d: %s", s, command);
        free(error);
        seen.limited++;
        return -1;
    }
    status = WEXITSTATUS(status);
    FUZZ_CHECK(status <= 2 || (status == 3 && strstr(error, "shows nothing")), "status %d: %s: %s", status, command,
               error);
    const bool differ = status == 1 && !strcmp(program, "diff") && !error[0];
    if (status && !differ) check_error_line(program, status, error, command);
    free(error);
    seen.ended[status]++;
    return status;
}

// >>options ------------------------------------------------------------------------------------------------------
// A line of --help: "  --name VALUE  words", or "  --name  words" for an option without a value. A short name before
// it, as in "  -n, --name", is the same option.
static void read_option(struct program *p, const char *line) {
    option *o = &p->option[p->options];
    char value[24] = "";
    int used = 0;
    if (line[4] == ',') line += 5;
    if (p->options == MOST_OPTIONS || sscanf(line, " %39s%n", o->name, &used) != 1 || !strcmp(o->name, "--help") ||
        !strcmp(o->name, "--version"))
        return;
    *o->word[0] = 0, o->words = 0;
    const char *at = line + used;
    if (at[0] == ' ' && at[1] && at[1] != ' ') sscanf(at, " %23s%n", value, &used), at += used;
    o->value = value[0] != 0;
    o->path = !strcmp(value, "FILE") || !strcmp(value, "DIR");
    p->options++;
    while (*at && *at != '\n' && o->words < MOST_WORDS) {
        size_t n = 0;
        while (isalnum((unsigned char)at[n]) || (at[n] && strchr("_.-:", at[n]))) n++;
        if (n && n < sizeof o->word[0]) snprintf(o->word[o->words++], sizeof o->word[0], "%.*s", (int)n, at);
        at += n ? n : 1;
    }
}

static void read_options(struct program *p) {
    char *argv[] = {(char *)p->name, "--help", NULL};
    FUZZ_CHECK(launch(p->name, argv) == 0, "%s/%s --help: build it first", build, p->name);
    char *text = test_read(test_file(".stdout"), NULL);
    for (char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (!strncmp(line, "  -", 3)) read_option(p, line);
    free(text);
    FUZZ_CHECK(p->options > 0, "%s --help lists no options", p->name);
}

// >>set-up -------------------------------------------------------------------------------------------------------
static void copy_files(const char *from) {
    DIR *dir = opendir(from);
    struct dirent *entry;
    FUZZ_CHECK(dir, "%s is not here", from);
    while ((entry = readdir(dir)) != NULL) {
        char path[512];
        size_t size;
        snprintf(path, sizeof path, "%.100s/%s", from, entry->d_name);
        char *text = entry->d_name[0] == '.' ? NULL : test_read(path, &size);
        if (text) test_write(test_file(path), text, size);
        free(text);
    }
    closedir(dir);
}

// The first file below a folder, by its path from there.
static bool find_file(const char *dir, char *path, size_t room) {
    DIR *open_dir = opendir(dir);
    struct dirent *entry;
    bool found = false;
    while (open_dir && !found && (entry = readdir(open_dir)) != NULL) {
        struct stat status;
        if (entry->d_name[0] == '.') continue;
        snprintf(path, room, "%.2000s/%s", dir, entry->d_name);
        found = stat(path, &status) == 0 && S_ISREG(status.st_mode);
        if (!found) {
            char deeper[LINE];
            snprintf(deeper, sizeof deeper, "%.4000s", path);
            found = find_file(deeper, path, room);
        }
    }
    if (open_dir) closedir(open_dir);
    return found;
}

static char *const cell_grid[] = {
    "sweep", "--calibration", "sweep/calibration/cpu-tiny42.tsv", "--requests", "5", "--quiet", "--cells", "finished",
    NULL};

static char *const transcript[] = {"generate",        "--ids",    "0,905",   "-n", "3",
                                   "--deterministic", "--record", "run.txt", NULL};

static char *const batch[] = {"generate", "--batch", "in.jsonl", "--out", "out.jsonl", "-n", "3", NULL};
static const char requests[] =
    "{\"prompt\": \"It \\u20ac\\ud83d\\ude00\", \"max_tokens\": 4, \"stop\": \"e\", \"id\": \"one\"}\n\n"
    "{\"ids\": [0, 905, 312], \"temperature\": 0.8, \"top_k\": 5, \"top_p\": 0.5, \"min_p\": 0.1, \"seed\": 9, "
    "\"deterministic\": true, \"max_tokens\": null, \"stop\": [\"a\", \"\\n\"]}\n";

static void set_up(void) {
    static const char *const parts[] = {"examples", "examples/tiny42", "sweep", "sweep/calibration", "sweep/reference"};
    char here[2048], given[1024];
    if (build[0]) return;
    const char *b = getenv("B");
    snprintf(given, sizeof given, "%.1000s", b && b[0] ? b : "build");
    FUZZ_CHECK(getcwd(here, sizeof here), "getcwd: %s", strerror(errno));
    snprintf(build, sizeof build, "%s%s%s", given[0] == '/' ? "" : here, given[0] == '/' ? "" : "/", given);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        FUZZ_CHECK(mkdir(test_file(parts[i]), 0777) == 0, "%s: %s", parts[i], strerror(errno));
        if (i != 0 && i != 2) copy_files(parts[i]);
    }
    for (int i = 0; i < PROGRAMS; i++) read_options(&programs[i]);
    FUZZ_CHECK(launch("generate", transcript) == 0, "generate does not write its transcript");
    FUZZ_CHECK(launch("sweep", cell_grid) == 0, "sweep does not write its cell");
    FUZZ_CHECK(find_file(test_file("finished"), cell, sizeof cell), "no cell");
    cell_text = test_read(cell, &cell_size);
}

// >>inputs -------------------------------------------------------------------------------------------------------
static uint8_t next(const uint8_t **data, size_t *size) {
    if (!*size) return 0;
    --*size;
    return *(*data)++;
}

// A value for an option: a word of its help, a number, a path, or bytes of the input. No path leaves the folder.
static const char *value_of(const option *o, const uint8_t **data, size_t *size, char room[32]) {
    uint8_t kind = next(data, size), which = next(data, size);
    if (o->path && kind % 8) return paths[which % (sizeof paths / sizeof *paths)];
    if (kind % 4 < 2 && o->words) return o->word[which % o->words];
    if (kind % 4 == 2) return numbers[which % (sizeof numbers / sizeof *numbers)];
    int n = 0;
    for (uint8_t c; n < which % 31 && (c = next(data, size)); n++) room[n] = c == '/' || c == '.' ? '_' : (char)c;
    room[n] = 0;
    return room;
}

static bool is_among(char *const *argv, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (!strcmp(argv[i], name)) return true;
    return false;
}

// No file or folder is given twice: that is refused, and nothing behind it would be tried.
static void try_options(const struct program *p, const uint8_t *data, size_t size) {
    static char room[GIVEN][32];
    char *argv[MOST_ARGUMENTS] = {(char *)p->name};
    int n = 1, lasts = 0;
    while (p->last[lasts]) lasts++;
    for (int i = 0; i < GIVEN && size; i++) {
        const option *o = &p->option[next(&data, &size) % p->options];
        const char *value = value_of(o, &data, &size, room[i]);
        if (o->path && (is_among(argv, n, o->name) || is_among((char *const *)p->last, lasts, o->name))) continue;
        argv[n++] = (char *)o->name;
        if (o->value) argv[n++] = (char *)value;
    }
    for (int i = 0; p->first[i]; i++) {
        if (p->first[i][0] == '-' && is_among(argv, n, p->first[i])) i++;
        else argv[n++] = (char *)p->first[i];
    }
    for (int i = 0; i < lasts; i++) argv[n++] = (char *)p->last[i];
    check_end(p->name, argv);
}

// Every row has as many columns as there are names.
static void check_rows(void) {
    char *text = test_read(test_file(".stdout"), NULL);
    int tabs = -1;
    for (char *line = text; line && *line;) {
        char *end = line + strcspn(line, "\n");
        int n = 0;
        for (char *p = line; p < end; p++) n += *p == '\t';
        if (*line != '#') FUZZ_CHECK(tabs < 0 || n == tabs, "%d tabs in a row, %d in the head", n, tabs);
        if (*line != '#') tabs = n;
        line = *end ? end + 1 : end;
    }
    free(text);
}

static void try_cell(const uint8_t *data, size_t size) {
    char *argv[10] = {0};
    for (int i = 0; cell_grid[i]; i++) argv[i] = cell_grid[i];
    argv[6] = "--merge";
    test_write(cell, data, size);
    if (check_end("sweep", argv)) return;
    seen.merged++;
    check_rows();
}

// What is wrong in a file of requests is said before anything is written. What is read has an answer to each line.
static void try_batch(const uint8_t *data, size_t size) {
    test_write(test_file("in.jsonl"), data, size);
    remove(test_file("out.jsonl"));
    const int status = check_end("generate", batch);
    const bool written = access(test_file("out.jsonl"), F_OK) == 0;
    if (status >= 0) FUZZ_CHECK(written == (status == 0), "generate --batch: status %d, written: %d", status, written);
    seen.answered += status == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    set_up();
    const struct program *p = &programs[data[0] % PROGRAMS];
    if (p == &programs[BATCH]) try_batch(data + 1, size - 1);
    else if (p == &programs[MERGE]) try_cell(data + 1, size - 1);
    else try_options(p, data + 1, size - 1);
    return 0;
}

// Seeds: the whole cell, the requests, and options at random.
static inline size_t fuzz_seed(int index, uint8_t *out, size_t room) {
    uint64_t random = 7 + (uint64_t)index;
    set_up();
    if (index >= 3 * PROGRAMS) return 0;
    out[0] = (uint8_t)(index % PROGRAMS);
    if (out[0] == MERGE && cell_size < room) {
        memcpy(out + 1, cell_text, cell_size);
        return cell_size + 1;
    }
    if (out[0] == BATCH && sizeof requests <= room) {
        memcpy(out + 1, requests, sizeof requests - 1);
        return sizeof requests;
    }
    size_t size = 1 + 3 * (size_t)(index / PROGRAMS);
    for (size_t i = 1; i < size; i++) out[i] = (uint8_t)test_random(&random);
    return size;
}

static inline void fuzz_report(void) {
    printf("  ended with 0: %lld, 1: %lld, 2: %lld; stopped by a limit: %lld; %lld merged, %lld answered\n",
           (long long)seen.ended[0], (long long)seen.ended[1], (long long)seen.ended[2], (long long)seen.limited,
           (long long)seen.merged, (long long)seen.answered);
}

FUZZ_MAIN("fuzz_programs");
