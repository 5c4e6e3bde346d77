// args.c: the command line of the programs here (see args.h).
#define _POSIX_C_SOURCE 200809L
#include "args.h"

#include <dirent.h>
#include <fcntl.h>
#ifndef __wasi__
#include <pthread.h>
#endif

enum { ARGS_MOST = 128 };  // options of a program

const char *args_program = "llm42";
int args_went_wrong = 1;
const char *args_status_1 = "something went wrong";
const char *args_status_signal = "130: ended by Ctrl-C; 143: by SIGTERM";
volatile sig_atomic_t args_signal, args_watches;
static const args_option *args_options;  // the program's; args_parse sets it

void args_fail(int status, const char *format, ...) {
    char text[8192];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 127) *p = '?';
    fflush(stdout);
    fprintf(stderr, "%s: %s\n", args_program, text);
    exit(status);
}

#ifdef __wasi__  // nobody sends signals there
static void args_catch_signals(void) { atexit(llm42_files_end); }
#else
static pthread_t args_main;  // the thread that opens files: it must not do so while another one removes them

static void args_on_signal(int number) {
    static volatile time_t first;
    if (args_watches && !args_signal) {
        args_signal = number;
        first = time(NULL);
        return;
    }
    if (args_signal && time(NULL) - first < 2) return;  // timeout(1) sends each signal twice
    if (!pthread_equal(pthread_self(), args_main)) {
        pthread_kill(args_main, number);
        return;
    }
    llm42_files_remove();
    _exit(128 + number);
}

void args_catch(int number, int flags, void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags}, old;
    if (!sigaction(number, NULL, &old) && old.sa_handler != SIG_IGN) sigaction(number, &action, NULL);
}

static void args_catch_signals(void) {
    const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    args_main = pthread_self();
    for (int i = 0; i < 4; i++) args_catch(numbers[i], SA_RESTART, args_on_signal);
    args_catch(SIGXFSZ, 0, SIG_IGN);  // a file over the limit of `ulimit -f` is then an error, as on a full disk
    atexit(llm42_files_end);
}
#endif

void args_stop_saying(const char *more, const FILE *named) {
    char kept[8192] = "", left[LLM42_FILE_PATH];
    if (args_signal == SIGPIPE) exit(128 + SIGPIPE);  // nobody reads what it says
    for (const llm42_file *f = llm42_files; f && args_signal; f = f->next) {
        const size_t used = strlen(kept);
        if (!f->tail[0] || !strcmp(f->part, f->path) || f->file == named) continue;
        llm42_file_left(f, left);
        snprintf(kept + used, sizeof kept - used, "%s %.1000s", used ? "," : "; what there is is in", left);
    }
    if (args_signal) args_fail(128 + (int)args_signal, "interrupted%s%s", kept, more);
}

void args_stop_if_asked(void) { args_stop_saying("", NULL); }
static const args_option *args_find_option(const args_option *o, const char *name, size_t length, bool one_dash);

// What the library says of a field of a desc, of the option that sets the field: "llm42_engine_desc.policy.window x
// policy.group: 0: ..." is of "--window x --group", and numerics.compute of --dtype. False: `text` is of something
// else, or no option sets the field.
static bool args_name_option(const char *text, char said[2048]) {
    const char *end = strstr(text, ": ");
    if (!args_options || strncmp(text, "llm42_", 6) || !end) return false;
    for (size_t size, used = 0; text < end; text += size + (text[size] == ' ')) {
        char name[64];
        size = strcspn(text, " :");
        const char *field = text + size;
        while (field > text && field[-1] != '.') field--;
        const bool between = size == 1 && *text == 'x';
        snprintf(name, sizeof name, "%.*s", (int)(text + size - field), field);
        for (char *p = name; *p; p++)
            if (*p == '_') *p = '-';
        if (!strcmp(name, "compute")) memcpy(name, "dtype", sizeof "dtype");
        if (!between && !args_find_option(args_options, name, strlen(name), false)->name) return false;
        used += (size_t)snprintf(said + used, 2048 - used, "%s%s%.60s", used ? " " : "", between ? "" : "--", name);
    }
    snprintf(said + strlen(said), 2048 - strlen(said), "%.1500s", end);
    return true;
}

llm42_result args_check(llm42_result result, const llm42_error *error) {
    char said[2048];
    if (result < 0 && args_name_option(error->text, said)) args_fail(2, "%s", said);
    if (result < 0) args_fail(args_went_wrong, "%s", error->text[0] ? error->text : llm42_result_text(result));
    return result;
}

llm42_result args_requests(const llm42_engine *engine, llm42_error *error) {
    long long failed = (long long)llm42_engine_stats(engine).failed;
    if (!failed) return LLM42_OK;
    return llm42_fail(error, LLM42_BACKEND,
                      "%lld %s ended early: the logits are not finite: the weights hold NaN or infinity, or overflow",
                      failed, failed == 1 ? "request" : "requests");
}

void args_check_requests(const llm42_engine *engine) {
    llm42_error error = {0};
    args_check(args_requests(engine, &error), &error);
}

void args_run(llm42_engine *engine) {
    const int before = args_watches;
    llm42_error error = {0};
    args_watches = 1;
    while (!args_signal && args_check(llm42_engine_step(engine, &error), &error) == LLM42_OK) continue;
    args_watches = before;
    args_stop_if_asked();
    args_check_requests(engine);
}

int args_finish(void) {
    if (fflush(stdout) || ferror(stdout)) args_fail(args_went_wrong, "stdout: cannot write: %s", strerror(errno));
    return 0;
}

const char *args_find(const char *path, char found[4096]) {
    static const char *const folders[] = {"", "share/llm42/"};
    char root[2048];
    ssize_t size = readlink("/proc/self/exe", root, sizeof root - 1);
    if (!path[0] || path[0] == '/' || !access(path, F_OK) || size < 0) return path;
    root[size] = 0;
    for (int i = 0; i < 2; i++) {  // the folder above the program's
        char *slash = strrchr(root, '/');
        if (slash) *slash = 0;
    }
    for (int i = 0; i < 2; i++) {
        snprintf(found, 4096, "%s/%s%.1024s", root, folders[i], path);
        if (!access(found, F_OK)) return found;
    }
    return path;
}

const char *args_plural(int64_t number) { return number == 1 ? "" : "s"; }
bool args_is_terminal(FILE *file) { return isatty(fileno(file)); }

bool args_use_color(FILE *file) {
    const char *no_color = getenv("NO_COLOR");
    return args_is_terminal(file) && !(no_color && no_color[0]);
}

int64_t args_int(const char *name, const char *text, const char *end, int64_t low, int64_t high) {
    char *stop = NULL;
    errno = 0;
    long long value = strtoll(text, &stop, 10);
    bool digits = text < end && stop == end && (text[0] == '-' || (text[0] >= '0' && text[0] <= '9'));
    if (!digits) args_fail(2, "%s: '%.*s' is not a whole number", name, (int)(end - text), text);
    if (errno == ERANGE || value < low || value > high)
        args_fail(2, "%s: %.*s is outside %" PRId64 " to %" PRId64, name, (int)(end - text), text, low, high);
    return value;
}

double args_real(const char *name, const char *text, double low, double high) {
    char *stop = NULL;
    errno = 0;
    double value = strtod(text, &stop);
    if (stop == text || *stop || isnan(value)) args_fail(2, "%s: '%s' is not a number", name, text);
    if (errno == ERANGE && fabs(value) < 1) args_fail(2, "%s: %s is too close to 0: write 0", name, text);
    if (value < low || value > high) args_fail(2, "%s: %s is outside %g to %g", name, text, low, high);
    return value;
}

float args_float(const char *name, const char *text, double low, double high) {
    double value = args_real(name, text, low, high);
    float single = (float)value;
    if ((double)single != value && single == floorf(single))
        args_fail(2, "%s: %s would be rounded to %g: write that, or a number farther from it", name, text,
                  (double)single);
    return single;
}

const char *args_words(char line[256], const char *const *words) {
    line[0] = 0;
    for (int i = 0; words[i]; i++) {
        size_t used = strlen(line);
        snprintf(line + used, 256 - used, "%s%s", i ? ", " : "", words[i]);
    }
    return line;
}

int args_given(char line[256], const char *const *names, const bool *given) {
    int count = 0;
    line[0] = 0;
    for (int i = 0; names[i]; i++) count += given[i];
    for (int i = 0, left = count; names[i]; i++) {
        const size_t used = strlen(line);
        if (!given[i]) continue;
        left--;
        snprintf(line + used, 256 - used, "%s%s", names[i], left > 1 ? ", " : left ? " and " : "");
    }
    return count;
}

int args_choice(const char *name, const char *value, const char *const *words) {
    char all[256];
    for (int i = 0; words[i]; i++)
        if (!strcmp(value, words[i])) return i;
    args_fail(2, "%s: '%s' is not one of: %s", name, value, args_words(all, words));
    return -1;
}

const char *const *args_policy_words(const char *policy) {
    const llm42_policy_words *p = llm42_policies();
    while (strcmp(p->name, policy)) p++;
    return p->word;
}

void args_policy(llm42_engine_desc *desc, const char *policy, const char *word) {
    char option[32];
    if (!word) return;
    snprintf(option, sizeof option, "--%s", policy);
    args_choice(option, word, args_policy_words(policy));
    llm42_policy_set(desc, policy, word, NULL);
}

llm42_dtype args_dtype(const char *name, const char *value) {
    static const char *const words[] = {"bf16", "fp32", NULL};
    return args_choice(name, value, words) == 0 ? LLM42_DTYPE_BF16 : LLM42_DTYPE_FP32;
}

llm42_arithmetic args_arithmetic(const char *value) {
    return value ? args_arithmetic_of("--arithmetic", value) : LLM42_ARITHMETIC_DEFAULT;
}

llm42_arithmetic args_arithmetic_of(const char *name, const char *value) {
    static const char *const words[] = {"own", "fp32", "sm90", "sm80", "sm89", "sm100", "sm86", NULL};
    const int word = args_choice(name, value, words);
    return word == 6 ? LLM42_ARITHMETIC_SM80 : (llm42_arithmetic)(LLM42_ARITHMETIC_DEFAULT + word);
}

const llm42_backend *args_backend(const char *name) {
    static const char *const words[] = {"cpu", "cuda", NULL};
    if (args_choice("--backend", name, words) == 0) return llm42_backend_cpu();
#ifdef LLM42_CUDA
    return llm42_backend_cuda();
#else
    args_fail(args_went_wrong, "--backend cuda: built without CUDA: run make cuda");
    return NULL;
#endif
}

int args_devices(int64_t ranks, int64_t devices) { return (int)(devices < ranks ? devices : ranks); }

const void *args_backend_desc(const llm42_backend *backend, int64_t threads, int64_t ranks, int64_t devices) {
    static llm42_cpu_desc cpu;
    static llm42_cuda_desc cuda;
    cpu.threads = (int)threads;
    cuda.devices = args_devices(ranks, devices);
    return !strcmp(backend->name, "cuda") ? (const void *)&cuda : &cpu;
}

bool args_on_device(const char *path, const llm42_backend *backend) {
    return !strcmp(backend->name, "cuda") && !strncmp(path, "synthetic:", 10);
}

void args_model_log(void *user, const char *line) {
    (void)user;
    if (strncmp(line, "model ", 6) != 0) fprintf(stderr, "%s: %s\n", args_program, line);
}

void args_manifest_log(void *user, const char *line) {
    args_manifest *manifest = user;
    size_t length = strlen(line);
    if (strncmp(line, "cuda ", 5) || manifest->size + length + 2 > sizeof manifest->text) return;
    for (const char *old = manifest->text; *old; old += strcspn(old, "\n") + 1)
        if (!strncmp(old, line, length) && old[length] == '\n') return;  // another engine of this process has said it
    manifest->size += (size_t)snprintf(manifest->text + manifest->size, length + 2, "%s\n", line);
}

void args_manifest_print(const args_manifest *manifest, FILE *file) {
    for (const char *line = manifest->text; *line; line += strcspn(line, "\n") + 1)
        fprintf(file, "# %.*s\n", (int)strcspn(line, "\n"), line);
}

int args_list_count(const char *text) {
    int count = text[0] != 0;
    for (; *text; text++) count += *text == ',';
    return count;
}

int args_ids(const char *name, const char *text, int32_t *ids) {
    int count = 0;
    if (!text[0]) args_fail(2, "%s: the list is empty", name);
    for (const char *item = text;; item++) {
        const char *end = item + strcspn(item, ",");
        ids[count++] = (int32_t)args_int(name, item, end, 0, INT32_MAX);
        if (!*end) return count;
        item = end;
    }
}

void args_ids_check(const char *name, const int32_t *ids, int count, int vocab) {
    for (int i = 0; i < count; i++)
        if (ids[i] >= vocab) args_fail(2, "%s: token %d is outside 0 to %d", name, (int)ids[i], vocab - 1);
}

int args_numbers(const char *name, const char *text, int most, int high, int32_t *to) {
    if (args_list_count(text) > most) args_fail(2, "%s: at most %d numbers", name, most);
    const int count = args_ids(name, text, to);
    for (int i = 0; i < count; i++) {
        if (to[i] < 1 || to[i] > high) args_fail(2, "%s: %d is outside 1 to %d", name, (int)to[i], high);
        for (int k = 0; k < i; k++)
            if (to[k] == to[i]) args_fail(2, "%s: %d is there twice", name, (int)to[i]);
    }
    return count;
}

static size_t args_word(const args_option *option) { return strcspn(option->name, ", "); }

static const char *args_dashes(const args_option *option) {
    return option->type == ARGS_TYPE_WORD ? "" : args_word(option) == 1 ? "-" : "--";
}

// The letter of an option: its short name, or its only one. 0: it has none.
static char args_letter(const args_option *option) {
    const size_t n = args_word(option);
    if (option->type == ARGS_TYPE_WORD) return 0;
    return option->name[n] == ',' ? option->name[n + 1] : n == 1 ? option->name[0] : '\0';
}

// Has it this name, which the user typed behind one dash or two?
static bool args_is(const args_option *option, const char *name, size_t length, bool one_dash) {
    if (option->type == ARGS_TYPE_WORD) return false;
    if (one_dash) return length == 1 && name[0] && args_letter(option) == name[0];
    return length > 1 && args_word(option) == length && !strncmp(option->name, name, length);
}

static bool args_is_text(const args_option *option) {
    return option->type == ARGS_TYPE_TEXT || option->type == ARGS_TYPE_IN || option->type == ARGS_TYPE_OUT;
}

static void args_help_option(const args_option *o) {
    char head[64], letter[8] = "";
    const char *value = strchr(o->name, ' ');
    if (args_word(o) > 1 && args_letter(o)) snprintf(letter, sizeof letter, "-%c, ", args_letter(o));
    snprintf(head, sizeof head, "%s%s%.*s%s", letter, args_dashes(o), (int)args_word(o), o->name, value ? value : "");
    printf("  %-22s %s", head, o->help);
    if (o->type == ARGS_TYPE_INT) printf(" (default %" PRId64 ")", *o->integer);
    if (o->type == ARGS_TYPE_REAL) printf(" (default %g)", *o->real);
    if (o->type == ARGS_TYPE_FLOAT) printf(" (default %g)", (double)*o->single);
    if (args_is_text(o) && *o->text) printf(" (default %s)", *o->text);
    printf("\n");
}

static void args_help(const char *about, const args_option *options, const args_option *own) {
    printf("%s\nusage: %s [options]\n", about, args_program);
    for (const args_option *o = options; o->name; o++) args_help_option(o);
    for (const args_option *o = own; o->name; o++) args_help_option(o);
    printf("Exit status: 0: all went well; 1: %s;\n2: the command line is wrong%s; %s.\n", args_status_1,
           args_went_wrong == 2 ? ", or something went wrong" : "", args_status_signal);
    exit(args_finish());
}

// `again`: the option has been given before.
static void args_set(const args_option *option, const char *value, bool again) {
    const bool once = option->type == ARGS_TYPE_ONCE || option->type == ARGS_TYPE_IN || option->type == ARGS_TYPE_OUT;
    char name[64];
    snprintf(name, sizeof name, "%s%.*s", args_dashes(option), (int)args_word(option), option->name);
    if (option->type == ARGS_TYPE_FLAG && value) args_fail(2, "%s takes no value", name);
    if (option->type != ARGS_TYPE_FLAG && !value) args_fail(2, "%s needs a value", name);
    if (once && again) args_fail(2, "%s is given twice: give one of '%s' and '%s'", name, *option->text, value);
    switch (option->type) {
    case ARGS_TYPE_FLAG: *option->flag = true; break;
    case ARGS_TYPE_INT:
        *option->integer = args_int(name, value, value + strlen(value), option->int_low, option->int_high);
        break;
    case ARGS_TYPE_REAL: *option->real = args_real(name, value, option->real_low, option->real_high); break;
    case ARGS_TYPE_FLOAT: *option->single = args_float(name, value, option->real_low, option->real_high); break;
    case ARGS_TYPE_MANY: {
        int64_t n = 0;
        while (option->text[n]) n++;
        if (n == option->int_high) args_fail(2, "%s is given more than %" PRId64 " times", name, n);
        option->text[n] = value;
        break;
    }
    case ARGS_TYPE_OUT:
        if (!strcmp(value, "-")) args_fail(2, "%s: '-' names no file: /dev/stdout is standard output", name);
        *option->text = value;
        break;
    case ARGS_TYPE_ONCE:
    case ARGS_TYPE_WORD:
    case ARGS_TYPE_IN:
    case ARGS_TYPE_TEXT: *option->text = value; break;
    case ARGS_TYPE_END: break;
    }
}

// A regular file, or where one would be: a folder and a name in it. Two names of one file have the same place.
typedef struct args_place {
    dev_t device;
    ino_t inode;
    char name[LLM42_FILE_PATH];  // empty: the file is there, and the inode is its own
} args_place;

// False: it has none, as a folder or a device.
static bool args_place_of(const char *path, args_place *place) {
    struct stat there;
    char to[LLM42_FILE_PATH];
    *place = (args_place){0};
    if (!path || !llm42_file_follow(path, to)) return false;
    const bool exists = stat(to, &there) == 0;
    if (exists && !S_ISREG(there.st_mode)) return false;
    if (!exists) {
        char *slash = strrchr(to, '/');
        snprintf(place->name, sizeof place->name, "%s", slash ? slash + 1 : to);
        if (slash) slash[1] = 0;
        if (!place->name[0] || stat(slash ? to : ".", &there)) return false;
    }
    place->device = there.st_dev, place->inode = there.st_ino;
    return true;
}

static bool args_same_place(const args_place *place, const char *path) {
    args_place other;
    return args_place_of(path, &other) && place->device == other.device && place->inode == other.inode &&
           !strcmp(place->name, other.name);
}

void args_check_input(const char *out, const char *path, const char *in, const char *from) {
    args_place place;
    char found[4096], file[8192];
    if (!from || !args_place_of(path, &place)) return;
    const char *read = args_find(from, found), *colon = strchr(from, ':');
    if (access(read, F_OK) && colon) read = args_find(colon + 1, found);
    bool same = args_same_place(&place, read);
    DIR *folder = opendir(read);
    for (struct dirent *entry; folder && !same && (entry = readdir(folder));) {
        snprintf(file, sizeof file, "%.4000s/%s", read, entry->d_name);
        same = args_same_place(&place, file);
    }
    if (folder) closedir(folder);
    if (same) args_fail(2, "%s %s is a file that %s %s reads: give another name", out, path, in, from);
}

// Every ARGS_OUT against all others and every ARGS_IN, before any file is opened.
static void args_check_files(const args_option *options) {
    for (const args_option *o = options; o->name; o++) {
        args_place place;
        char out[64], other[64];
        if (o->type != ARGS_TYPE_OUT || !args_place_of(*o->text, &place)) continue;
        snprintf(out, sizeof out, "%s%.*s", args_dashes(o), (int)args_word(o), o->name);
        for (const args_option *p = options; p->name; p++) {
            snprintf(other, sizeof other, "%s%.*s", args_dashes(p), (int)args_word(p), p->name);
            if (p->type == ARGS_TYPE_OUT && p < o && args_same_place(&place, *p->text))
                args_fail(2, "%s and %s name the same file, %s and %s: give two names", other, out, *p->text, *o->text);
            if (p->type == ARGS_TYPE_IN) args_check_input(out, *o->text, other, *p->text);
        }
    }
}

// A file that is opened gets the lowest free descriptor. If one of 0 to 2 is closed, that is the file's, and what is
// printed lands in it. So /dev/null is opened on those, the other way round: to read it, or to write to it, still
// fails.
static void args_open_standard(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) != fd)
            args_fail(args_went_wrong, "/dev/null: cannot open: %s", strerror(errno));
}

// The option of that name, or the end of the table.
static const args_option *args_find_option(const args_option *o, const char *name, size_t length, bool one_dash) {
    while (o->name && !args_is(o, name, length, one_dash)) o++;
    return o;
}

// Exits if an option has a name of one before it in the table or of one in `own`: it would never be found. Returns
// their number.
static int args_count(const args_option *options, const args_option *own) {
    const args_option *o = options;
    for (; o->name; o++) {
        const char letter[2] = {args_letter(o)};
        const size_t word = args_word(o);
        if (args_find_option(own, o->name, word, false)->name || args_find_option(own, letter, 1, true)->name ||
            (o->type != ARGS_TYPE_WORD && word > 1 && args_find_option(options, o->name, word, false) != o) ||
            (letter[0] && args_find_option(options, letter, 1, true) != o))
            args_fail(1, "the program has two options called %s", o->name);
    }
    if (o - options > ARGS_MOST) args_fail(1, "the program has more than %d options", (int)ARGS_MOST);
    return (int)(o - options);
}

// What may have been meant by an option that this program does not have: the same name behind another number of dashes,
// or what other programs call it. NULL: nothing is known.
static const args_option *args_meant(const args_option *options, const char *name, size_t length, bool one_dash) {
    static const struct {
        const char *typed, *meant;
    } same[] = {{"max-tokens", "tokens"},         {"max-new-tokens", "tokens"},  {"n-predict", "tokens"},
                {"num-tokens", "tokens"},         {"temp", "temperature"},       {"text", "prompt"},
                {"file", "prompt-file"},          {"prompt-file", "file"},       {"max-num-seqs", "max-running"},
                {"max-model-len", "max-context"}, {"served-model-name", "name"}, {"warmup", "leave-out"},
                {"num-prompts", "requests"},      {"request-rate", "qps"}};
    const args_option *o = args_find_option(options, name, length, !one_dash);
    if (length == 1 && !one_dash) return o->name ? o : NULL;
    for (size_t i = 0; i < sizeof same / sizeof *same && !o->name; i++)
        if (strlen(same[i].typed) == length && !strncmp(same[i].typed, name, length))
            o = args_find_option(options, same[i].meant, strlen(same[i].meant), false);
    return o->name ? o : NULL;
}

// Refuses an option that no program has, or has any more.
static void args_unknown(const args_option *options, const char *typed) {
    static const struct {
        const char *name, *since, *instead;
    } gone[] = {{"overlap", "0.3.0", "one pass runs at a time"},
                {"fill", "0.3.0", "the oldest requests' windows fill up an eager pass; see --verify wait"},
                {"look-ahead", "0.3.0", "--deadline bounds it"},
                {"match", "0.3.0", "use --verifier invariant"},
                {"in-norm", "0.3.0", "ranks exchange sums in one way"}};
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) {
        const size_t length = strlen(gone[i].name);
        if (!strncmp(typed, "--", 2) && !strncmp(typed + 2, gone[i].name, length) && strcspn(typed, "=") == length + 2)
            args_fail(2, "--%s: gone since version %s: %s", gone[i].name, gone[i].since, gone[i].instead);
    }
    const bool one_dash = typed[1] != '-';
    const char *name = typed + (one_dash ? 1 : 2);
    const args_option *o = args_meant(options, name, strcspn(name, "="), one_dash);
    if (!o) args_fail(2, "unknown option '%s' (try --help)", typed);
    if (args_word(o) > 1 && args_letter(o))
        args_fail(2, "unknown option '%s': use --%.*s or -%c", typed, (int)args_word(o), o->name, args_letter(o));
    args_fail(2, "unknown option '%s': use %s%.*s", typed, args_dashes(o), (int)args_word(o), o->name);
}

void args_parse(int argc, char **argv, const char *about, const args_option *options) {
    bool given[ARGS_MOST] = {false}, help = false, version = false;
    const args_option own[] = {ARGS_FLAG("help,h", &help, "print this and exit"),
                               ARGS_FLAG("version", &version, "print the version and exit"), ARGS_END};
    args_open_standard();
    args_catch_signals();
    const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
    if (argc > 0) args_program = slash ? slash + 1 : argv[0];
    const int count = args_count(options, own);
    static args_option kept[ARGS_MOST + 1];  // the program's table may be gone when the library refuses something
    memcpy(kept, options, (size_t)(count + 1) * sizeof *kept);
    args_options = kept;
    for (int i = 1; i < argc; i++) {
        const char *typed = argv[i], *name = typed + (typed[0] == '-') + (typed[0] == '-' && typed[1] == '-');
        const size_t length = strcspn(name, "=");
        const args_option *o = options;
        if (name == typed) {
            while (o->name && (o->type != ARGS_TYPE_WORD || *o->text)) o++;
            if (!o->name) args_fail(2, "unexpected argument '%s' (try --help)", typed);
            args_set(o, typed, false);
            continue;
        }
        o = args_find_option(options, name, length, name == typed + 1);
        const bool is_own = o == options + count;
        if (is_own) o = args_find_option(own, name, length, name == typed + 1);
        if (!o->name) args_unknown(options, typed);
        const char *value = name[length] ? name + length + 1 : NULL;
        if (!value && o->type != ARGS_TYPE_FLAG && i + 1 < argc) value = argv[++i];
        args_set(o, value, !is_own && given[o - options]);
        if (!is_own) given[o - options] = true;
        if (help) args_help(about, options, own);
        if (version) printf("%s (llm42 %s)\n", args_program, LLM42_VERSION), exit(args_finish());
    }
    args_check_files(options);
}
