// args.h: the options of the programs here. A table in, checked values out; nothing is allocated.
//
//     #define _POSIX_C_SOURCE 200809L     // before every include
//     #include "examples/lib/args.h"
//
//     const char *model = "examples/tiny42";              // what a variable holds before is its default
//     int64_t n = 64;
//     bool stats = false;
//     const args_option options[] = {
//         ARGS_TEXT("model,m DIR", &model, "model folder or file"),
//         ARGS_INT("tokens,n N", &n, 1, 1000000, "new tokens"),
//         ARGS_FLAG("stats", &stats, "print counts at the end"),
//         ARGS_END,
//     };
//     args_parse(argc, argv, "Generates text.", options);
//
// The first word of a name is what the user types after the dashes, the second stands for the value in the help. Users
// write `--name value` or `--name=value`; a name of one letter takes one dash. A letter behind a comma is a short name
// of the same option: -m DIR. `--help` or `-h` prints the table and what the exit statuses mean, and `--version` the
// version; both exit with 0. A wrong option, value or range is one line on stderr and exit status 2. Of equal options
// the last counts, but a second text, input or output would be lost, so ARGS_ONCE, ARGS_IN and ARGS_OUT refuse it. A
// word without dashes is taken by the first ARGS_WORD that has none yet.
#ifndef ARGS_H
#define ARGS_H

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "examples/util/llm42_cuda.h"
#include "examples/util/llm42_file.h"
#include "examples/util/llm42_policies.h"
#include "llm42.h"

typedef enum args_type {
    ARGS_TYPE_END = 0,
    ARGS_TYPE_FLAG,
    ARGS_TYPE_INT,
    ARGS_TYPE_REAL,
    ARGS_TYPE_FLOAT,
    ARGS_TYPE_TEXT,
    ARGS_TYPE_ONCE,
    ARGS_TYPE_MANY,
    ARGS_TYPE_IN,
    ARGS_TYPE_OUT,
    ARGS_TYPE_WORD,
} args_type;

typedef struct args_option {
    const char *name;
    args_type type;
    bool *flag;  // one of these five receives the value
    int64_t *integer;
    double *real;
    float *single;
    const char **text;
    int64_t int_low, int_high;
    double real_low, real_high;
    const char *help;
} args_option;

#define ARGS_FLAG(name, pointer, help) \
    { name, ARGS_TYPE_FLAG, pointer, NULL, NULL, NULL, NULL, 0, 0, 0, 0, help }

// llm42_cuda_desc.devices.
#define ARGS_DEVICES(devices)            \
    ARGS_INT("devices D", devices, 0, 8, \
             "cuda: GPUs that ranks are on, at most; ranks may share one, to try them; 0: one each")

#define ARGS_INT(name, pointer, low, high, help) \
    { name, ARGS_TYPE_INT, NULL, pointer, NULL, NULL, NULL, low, high, 0, 0, help }

#define ARGS_REAL(name, pointer, low, high, help) \
    { name, ARGS_TYPE_REAL, NULL, NULL, pointer, NULL, NULL, 0, 0, low, high, help }

#define ARGS_FLOAT(name, pointer, low, high, help) \
    { name, ARGS_TYPE_FLOAT, NULL, NULL, NULL, pointer, NULL, 0, 0, low, high, help }

#define ARGS_TEXT(name, pointer, help) \
    { name, ARGS_TYPE_TEXT, NULL, NULL, NULL, NULL, pointer, 0, 0, 0, 0, help }

// A text that is no setting, but what the program works on: there is one.
#define ARGS_ONCE(name, pointer, help) \
    { name, ARGS_TYPE_ONCE, NULL, NULL, NULL, NULL, pointer, 0, 0, 0, 0, help }

// A text that may be given up to `most` times, for an array of most + 1 texts, of which the one behind the last is
// NULL.
#define ARGS_MANY(name, array, most, help) \
    { name, ARGS_TYPE_MANY, NULL, NULL, NULL, NULL, array, 0, most, 0, 0, help }

// A text that names what the program reads (a file, a folder of files, KIND:FILE) or a file that it writes. No file may
// be in two of a program's ARGS_OUT, or in an ARGS_OUT and an ARGS_IN.
#define ARGS_IN(name, pointer, help) \
    { name, ARGS_TYPE_IN, NULL, NULL, NULL, NULL, pointer, 0, 0, 0, 0, help }

#define ARGS_OUT(name, pointer, help) \
    { name, ARGS_TYPE_OUT, NULL, NULL, NULL, NULL, pointer, 0, 0, 0, 0, help }

// A word without dashes: its name stands for it in the help.
#define ARGS_WORD(name, pointer, help) \
    { name, ARGS_TYPE_WORD, NULL, NULL, NULL, NULL, pointer, 0, 0, 0, 0, help }

#define ARGS_END \
    { NULL, ARGS_TYPE_END, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0, NULL }

extern const char *args_program;   // for messages; args_parse sets it
extern int args_went_wrong;        // exit status of what goes wrong behind the command line; 1 at first
extern const char *args_status_1;  // what status 1 means, for the help
extern const char *args_status_signal;

// One line on stderr, then exit: status 2 is for what the user typed, 1 for what went wrong later. Control characters
// that were typed are shown as ?.
void args_fail(int status, const char *format, ...);

// Ctrl-C, and what else asks a program to end. A program that sets args_watches looks at args_signal between passes and
// ends by args_stop_if_asked. Another one, or one that is asked again some seconds later, ends at once. Either way a
// file that it would have replaced is left as it was (see llm42_file.h).
extern volatile sig_atomic_t args_signal;  // its number; 0: none has come
extern volatile sig_atomic_t args_watches;
// Handles a signal so, unless it is ignored.
void args_catch(int number, int flags, void (*handler)(int));
// Ends the program if it was asked to, and says where the files are that it has begun, but for `named`; then `more`.
void args_stop_saying(const char *more, const FILE *named);
void args_stop_if_asked(void);
// Exits with the error's line if a call of the library failed: with status 2 if it is about an option. LLM42_IDLE is
// not a failure.
llm42_result args_check(llm42_result result, const llm42_error *error);
// An error if requests of an engine have ended with LLM42_FINISH_ERROR.
llm42_result args_requests(const llm42_engine *engine, llm42_error *error);
void args_check_requests(const llm42_engine *engine);
// Runs an engine until it is idle. Exits if the engine or a request fails, or if the program is asked to end.
void args_run(llm42_engine *engine);
// The last line of main: 0, unless what was printed could not be written (a full disk, a closed pipe).
int args_finish(void);
// A file or folder that came with the programs, as examples/tiny42: `path` if that is there or is an absolute path,
// else the one of that name in the source tree (above the program's folder), else in PREFIX/share/llm42, beside
// PREFIX/bin. If it is nowhere, `path`, so that the message names what was typed.
const char *args_find(const char *path, char found[4096]);
// What makes a plural of the word behind a number.
const char *args_plural(int64_t number);
bool args_is_terminal(FILE *file);
// Colours are for terminals whose user has not set NO_COLOR.
bool args_use_color(FILE *file);
// A whole number that fills the text up to `end`, within [low, high]; exits otherwise.
int64_t args_int(const char *name, const char *text, const char *end, int64_t low, int64_t high);
double args_real(const char *name, const char *text, double low, double high);
// For what is kept in a float: such a number must not become 0 or 1 by rounding, since these are settings of their own.
float args_float(const char *name, const char *text, double low, double high);
// "eager, wait": a NULL-terminated list of words in one line.
const char *args_words(char line[256], const char *const *words);
// "--json, --stream and --logprobs": those of a NULL-terminated list that are given. Returns their number.
int args_given(char line[256], const char *const *names, const bool *given);
// Index of value in such a list; exits if it is not there.
int args_choice(const char *name, const char *value, const char *const *words);
// The words of a policy of the library.
const char *const *args_policy_words(const char *policy);
// Sets a policy of an engine to the word that the user typed for --POLICY; exits if the policy has no such word. NULL:
// the user typed none.
void args_policy(llm42_engine_desc *desc, const char *policy, const char *word);
// "bf16" or "fp32" as the library's name of it.
llm42_dtype args_dtype(const char *name, const char *value);
// --arithmetic as the library's name of it. NULL: the backend's own.
llm42_arithmetic args_arithmetic(const char *value);
// The same of a word of the option `name`. The words are those of llm42_arithmetic in small letters, `own` for DEFAULT,
// and sm86 for SM80, because both have the same steps.
llm42_arithmetic args_arithmetic_of(const char *name, const char *value);
#define ARGS_ARITHMETICS "fp32 (a CPU's), sm90 (as a Hopper GPU), or the steps alone of sm80 (sm86), sm89 or sm100"
#define ARGS_ARITHMETIC(value) ARGS_TEXT("arithmetic NAME", value, "how sums round: " ARGS_ARITHMETICS)

// The backend of a name, "cpu" or "cuda"; exits if this build does not have it.
const llm42_backend *args_backend(const char *name);
// llm42_cuda_desc.devices for so many ranks where --devices says at most so many. 0: one for each.
int args_devices(int64_t ranks, int64_t devices);
// A backend's own desc: the CPU's threads (0: as many as OpenMP offers), or the GPUs of CUDA.
const void *args_backend_desc(const llm42_backend *backend, int64_t threads, int64_t ranks, int64_t devices);
// For llm42_model_desc.on_device: synthetic weights for a GPU are made there.
bool args_on_device(const char *path, const llm42_backend *backend);

// What a GPU backend says of itself in its log, for the headers of result files: set .log = args_manifest_log and
// .log_user = a manifest, and print it when the file is written.
typedef struct args_manifest {
    char text[1 << 15];  // lines `cuda KEY: VALUE`, each once and with its newline; what does not fit is left out
    size_t size;
} args_manifest;

void args_manifest_log(void *user, const char *line);
// What loading a model finds odd (keys and tensors that nothing uses), on standard error: .log of llm42_model_desc.
void args_model_log(void *user, const char *line);
// Each line as `# cuda KEY: VALUE`.
void args_manifest_print(const args_manifest *manifest, FILE *file);
// Items of a comma-separated list, for sizing what args_ids fills.
int args_list_count(const char *text);
// Reads "0,5,7" into ids [args_list_count(text)] and returns how many there are; exits on anything else, an empty
// list included. args_ids_check says whether a model has these ids.
int args_ids(const char *name, const char *text, int32_t *ids);
void args_ids_check(const char *name, const int32_t *ids, int count, int vocab);
// Reads at most `most` numbers from 1 to `high`, each once, and returns how many.
int args_numbers(const char *name, const char *text, int most, int high, int32_t *to);
// Exits if `path`, which the option `out` names, is a file that is read for the option `in`: `from` itself, or one of
// the folder `from`. Of KIND:FILE it is FILE.
void args_check_input(const char *out, const char *path, const char *in, const char *from);
// Fills the table's variables from the command line. `about` is the help's first line or lines. Comes before the first
// file is opened (see args_open_standard).
void args_parse(int argc, char **argv, const char *about, const args_option *options);

#endif  // ARGS_H
