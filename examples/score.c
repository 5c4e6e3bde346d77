// score: prints the log-probability of each token of a text, and the logits after it. It drives a backend itself,
// without an engine. This is the library's low-level interface: passes made of rows.
// make build/score && build/score --text "It was the best of times"
//
// The tokens run through the model in passes of --rows rows. --schedule says in which order a pass takes its sums.
// Under INVARIANT, the default, a result depends on the row alone. Under FIXED it also depends on M, the shape that
// passes are padded to, which is --rows here. Under FAST it depends on the rows of the pass. Compare the last digits of
//     build/score --text "It was the best of times" --dtype fp32 --schedule fast --rows 32
//     build/score --text "It was the best of times" --dtype fp32 --schedule fast --rows 1
// (bf16 rounds away most of these differences in a text of so few tokens.)
//
// A text that is longer than the model's context is scored in windows of the context, as Hugging Face's guide to
// perplexity does it: a window begins every --stride tokens and scores those tokens that no window before it has
// scored. So each token is scored once, with at least context - stride tokens before it, or with all that there are. No
// BOS is put before a window, so its log-probabilities are those of its tokens alone:
//     build/score --ids TOKENS-OF-THE-WINDOW
//
// At the end a summary goes to standard error, as lines `name value` with a tab between:
//     tokens         that were scored
//     mean_logprob   their natural log-probabilities, added in double in the order of their positions, by their number
//     perplexity     exp(-mean_logprob)
//     bits_per_byte  -log2 of the probability of all of them, by the bytes that they stand for; not with --ids
// --summary prints it on standard output, and nothing else. Where nothing is scored, `tokens 0` is all.
//
// score gives the log-probabilities of `build/generate --deterministic --logprobs` to the last bit. IDS are the N
// tokens of the prompt, then the output:
//     build/score --ids IDS                                          presets dvr, best and invariant
//     build/score --ids IDS --schedule fixed --rows 512 --prompt N   preset paper: M = W x G = 512, and prompts run
//                                                                    alone, each in one pass of its own shape
// If --arithmetic, --tensor-parallel or --leaves were given there, give the same here. With at least as many leaves as
// ranks, presets dvr, best and invariant do not need --tensor-parallel.
#define _POSIX_C_SOURCE 200809L
#define LLM42_IMPLEMENTATION
#include "examples/util/llm42_synthetic.h"
#include "examples/lib/engine.h"
#include "examples/lib/scoring.h"
#include "examples/lib/texts.h"
#ifdef _OPENMP
#include <omp.h>
#endif

enum { CONTEXT = 8192 };  // the longest sequence of an engine, by default

static engine_options how = {ENGINE_DEFAULTS};
static const char *tokenizer, *text, *text_file, *ids_text, *order = "invariant";
static int64_t rows = 32, prompt, stride;
static bool all_logits, summary;
static size_t text_size;

static const args_option options[] = {
    ENGINE_MODEL(&how),
    ARGS_IN("tokenizer FILE", &tokenizer, "its tokenizer (default: the one in the model's folder)"),
    ARGS_ONCE("ids LIST", &ids_text, "the tokens, as in 0,5,7"),
    ARGS_ONCE("text TEXT", &text, "the tokens as text; BOS goes before it"),
    ARGS_IN("file,f FILE", &text_file, "the text is what this file says; -: standard input"),
    ENGINE_COMPUTE(&how),
    ARGS_TEXT("schedule NAME", &order, "order of sums: fast, fixed or invariant"),
    ARGS_INT("rows N", &rows, 1, 4096, "tokens that run in one pass; M of fixed passes"),
    ARGS_INT("prompt N", &prompt, 0, INT32_MAX,
             "the first N are a prompt: it is not scored, and by fixed passes it runs alone"),
    ENGINE_RANKS(&how),
    ENGINE_THREADS(&how),
    ENGINE_NO_MMAP(&how),
    ARGS_INT("stride N", &stride, 0, INT32_MAX,
             "of a text longer than the context: a window begins every N tokens; 0: half the context"),
    ARGS_FLAG("summary", &summary,
              "print only tokens, mean_logprob, perplexity and bits_per_byte, which else end stderr"),
    ARGS_FLAG("logits", &all_logits, "then a table `token logit` of all logits after the last token"),
    ARGS_END,
};

// The log-probabilities of all tokens behind the first, or behind the prompt, in windows if there are more than the
// context holds. Returns the number of rows of the last pass.
static int score_windows(const scoring *s, const int32_t *ids, int count, float *logprob) {
    const int context = s->desc.max_context;
    float *window = scoring_get((size_t)context, sizeof *window);
    int last = 0;
    for (int begin = 0, scored = 0; scored < count; begin += (int)stride) {
        const int end = count - begin < context ? count : begin + context;
        last = scoring_text(s, ids + begin, end - begin, (int)prompt, window);
        memcpy(logprob + scored, window + scored - begin, sizeof *window * (size_t)(end - scored));
        scored = end;
    }
    free(window);
    return last;
}

static size_t bytes_of(const tok *t, const int32_t *ids, int count) {
    char *decoded = NULL;
    tok_decode(t, ids, count, &decoded);
    const size_t size = arrlenu(decoded);
    arrfree(decoded);
    return size;
}

// t: NULL if there is no text.
static void print_summary(const tok *t, const int32_t *ids, const float *logprob, int first, int count) {
    FILE *file = summary ? stdout : stderr;
    double sum = 0;
    for (int i = first; i < count; i++) sum += (double)logprob[i];
    fflush(stdout);
    fprintf(file, "tokens\t%d\n", count > first ? count - first : 0);
    if (count <= first) return;
    const double mean = sum / (count - first);
    const size_t bytes = t ? bytes_of(t, ids, count) - bytes_of(t, ids, first) : 0;
    fprintf(file, "mean_logprob\t%.9g\nperplexity\t%.9g\n", mean, llm42_exp64(-mean));
    if (bytes) fprintf(file, "bits_per_byte\t%.9g\n", -sum / llm42_log64(2) / (double)bytes);
}

// Runs ids through the model and prints.
static void score(scoring *s, const tok *t, const int32_t *ids, int count) {
    float *logprob = scoring_get((size_t)count, sizeof *logprob);
    const int vocab = s->desc.model->config.vocab, first = prompt > 1 ? (int)prompt : 1;
    s->keep_logits = all_logits;
    int last = score_windows(s, ids, count, logprob) - 1;
    if (!summary) printf("position\ttoken\tlogprob\n");
    for (int i = first; i < count && !summary; i++) printf("%d\t%d\t%.9g\n", i, (int)ids[i], (double)logprob[i]);
    if (all_logits) printf("\ntoken\tlogit\n");
    for (int i = 0; all_logits && i < vocab; i++)
        printf("%d\t%.9g\n", i, (double)s->logits[(size_t)last * (size_t)vocab + (size_t)i]);
    print_summary(t, ids, logprob, first, count);
    free(logprob);
}

// What the user gave, before the model is loaded: the list's tokens, or none yet. *read is a file's text.
static int32_t *read_input(char **read) {
    int32_t *ids = NULL;
    if ((text != NULL) + (ids_text != NULL) + (text_file != NULL) != 1)
        args_fail(2, "give one of --ids LIST, --text TEXT and --file FILE");
    if (text && !text[0]) args_fail(2, "--text: the text is empty");
    if (text) text_check("--text", "--file", text), text_size = strlen(text);
    if (text_file) text = *read = text_read("--file", text_file, &text_size);
    if (!ids_text) return NULL;
    arrsetlen(ids, args_list_count(ids_text));
    args_ids("--ids", ids_text, ids);
    return ids;
}

// Exits if the tokens cannot be scored, and chooses the stride.
static void check_ids(const llm42_config *c, const int32_t *ids, int count) {
    if (count < 1) args_fail(2, "%s: no tokens", text_file ? "--file" : "--text");
    args_ids_check("--ids", ids, count, c->vocab);
    if (prompt > count) args_fail(2, "--prompt: %d is more than the text's %d tokens", (int)prompt, count);
    if (!stride) stride = c->context / 2;
    if (stride >= c->context || (!stride && count > c->context))
        args_fail(2, "--stride: %" PRId64 " must be less than the model's context of %d, so that the windows overlap",
                  stride, c->context);
    if (prompt && count > c->context)
        args_fail(2,
                  "--prompt: the text's %d tokens are more than the context of %d, and in windows nothing is a prompt",
                  count, c->context);
    if (summary && all_logits) args_fail(2, "--summary and --logits exclude each other");
}

int main(int argc, char **argv) {
    args_parse(argc, argv, "Prints `position token logprob` of each token but the first, or of each behind a prompt.",
               options);
    engine_look_up(&how);
    static const char *const schedules[] = {"fast", "fixed", "invariant", NULL};
    llm42_schedule schedule = (llm42_schedule)(LLM42_SCHEDULE_FAST + args_choice("--schedule", order, schedules));
    char *read = NULL;
    int32_t *ids = read_input(&read);

    llm42_error error = {0};
    llm42_model *model = engine_model(&how);
    tok *t = NULL;
    if (text) {
        if (tok_open(&t, model, how.path, tokenizer, &error))
            args_fail(1, "%s (--ids does without a tokenizer)", error.text);
        text_encode(t, text, text_size, &ids);
        free(read);
    }
    const int count = (int)arrlen(ids), context = count < model->config.context ? count : model->config.context;
    check_ids(&model->config, ids, count);

    llm42_engine_desc desc = engine_desc(&how, model);
    desc.max_context = context, desc.max_running = 1;
    desc.numerics.logits_fp32 = desc.numerics.compute == LLM42_DTYPE_FP32;
    scoring s = scoring_of(&desc, schedule, (int)rows);
    // A prompt that runs alone is one pass. The most rows are those that an engine of preset paper has: on a GPU the
    // order of sums of a large pass may depend on them.
    int longest = model->config.context < CONTEXT ? model->config.context : CONTEXT;
    if (longest < prompt) longest = (int)prompt;
    if (schedule == LLM42_SCHEDULE_FIXED && prompt && s.desc.max_rows < longest) s.desc.max_rows = longest;
    scoring_open(&s);
    score(&s, t, ids, count);
    scoring_close(&s);
    tok_free(t);
    llm42_model_free(model);
    arrfree(ids);
    return args_finish();
}
