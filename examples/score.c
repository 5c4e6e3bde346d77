// score: the log-probability of each token of a text, and the logits after it. It drives a backend itself, without an
// engine: this is the library's low-level interface, passes made of rows.
// make build/score && build/score --text "It was the best of times"
//
// The tokens run through the model in passes of --rows rows. --schedule says in which order a pass takes its sums.
// Under INVARIANT, the default, a result depends on the row alone. Under FIXED it also depends on the shape that passes
// are padded to, which is 32 here. Under FAST it depends on the rows of the pass. Compare the last digits of
//     build/score --text "It was the best of times" --dtype fp32 --schedule fast --rows 32
//     build/score --text "It was the best of times" --dtype fp32 --schedule fast --rows 1
// (bf16 rounds away most of these differences in a text of so few tokens.)
#define _POSIX_C_SOURCE 200809L
#define LLM42_IMPLEMENTATION
#include "llm42.h"
#include "args.h"
#include "tokenizer.h"
#ifdef _OPENMP
#include <omp.h>
#endif

enum { CHUNK = 32, PAGE = 16 };  // rows in a pass, at most; tokens in a KV page

static const char *model_path = "examples/tiny42", *tokenizer, *text, *ids_text, *dtype = "bf16", *name = "cpu";
static const char *how = "invariant";
static int64_t threads, rows_of_pass = CHUNK;
static bool all_logits, no_mmap;

static const args_option options[] = {
    ARGS_TEXT("model DIR", &model_path, "model folder, llama2.c file or synthetic:NAME"),
    ARGS_TEXT("tokenizer FILE", &tokenizer, "its tokenizer (default: the one in or beside the model)"),
    ARGS_TEXT("ids LIST", &ids_text, "the tokens, as in 0,5,7"),
    ARGS_TEXT("text TEXT", &text, "the tokens as text; BOS goes before it"),
    ARGS_TEXT("backend NAME", &name, "cpu or cuda"),
    ARGS_TEXT("dtype TYPE", &dtype, "compute type: bf16 or fp32"),
    ARGS_TEXT("schedule NAME", &how, "order of sums: fast, fixed or invariant"),
    ARGS_INT("rows N", &rows_of_pass, 1, CHUNK, "tokens that run in one pass"),
    ARGS_INT("threads N", &threads, 0, 1024, "0: as many as OpenMP offers"),
    ARGS_FLAG("no-mmap", &no_mmap, "read the weights into memory: a mapped file must not shrink"),
    ARGS_FLAG("logits", &all_logits, "then a table `token logit` of all logits after the last token"),
    ARGS_END,
};

static void *get(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory) args_fail(1, "out of memory");
    return memory;
}

// Runs ids through the model and prints.
static void score(const llm42_backend *backend, void *state, llm42_schedule schedule, const int32_t *ids, int count,
                  int vocab) {
    llm42_error error = {0};
    llm42_row row[CHUNK];
    llm42_output out[CHUNK];
    int32_t *pages = get((size_t)count / PAGE + 1, sizeof *pages);
    float *logits = get((size_t)CHUNK * (size_t)vocab, sizeof *logits);
    for (int i = 0; i <= count / PAGE; i++) pages[i] = i;
    llm42_seq seq = {.request = 1, .pages = pages};
    printf("position\ttoken\tlogprob\n");
    int chunk = (int)rows_of_pass;
    for (int begin = 0; begin < count; begin += chunk) {
        int rows = count - begin < chunk ? count - begin : chunk;
        for (int i = 0; i < rows; i++) row[i] = (llm42_row){0, begin + i, ids[begin + i], LLM42_ROW_SAMPLE};
        llm42_pass pass = {.schedule = schedule,
                           .rows = rows,
                           .shape = schedule == LLM42_FIXED ? CHUNK : rows,
                           .row = row,
                           .seq = &seq,
                           .out = out,
                           .logits = logits};
        args_check(backend->run(state, &pass, &error), &error);
        for (int i = 0; i < rows; i++)
            if (out[i].token < 0)
                args_fail(1,
                          "%s: position %d: the logits are not finite: the weights hold NaN or infinity, or overflow",
                          model_path, begin + i);
        for (int i = 0; i < rows && begin + i + 1 < count; i++) {
            int32_t next = ids[begin + i + 1];
            printf("%d\t%d\t%.9g\n", begin + i + 1, (int)next,
                   (double)llm42_logprob(logits + (size_t)i * (size_t)vocab, vocab, next));
        }
    }
    const float *last = logits + (size_t)((count - 1) % chunk) * (size_t)vocab;
    if (all_logits) printf("\ntoken\tlogit\n");
    for (int i = 0; all_logits && i < vocab; i++) printf("%d\t%.9g\n", i, (double)last[i]);
    free(pages);
    free(logits);
}

int main(int argc, char **argv) {
    args_parse(argc, argv, "Prints `position token logprob` of each token but the first.", options);
    llm42_dtype compute = args_dtype("--dtype", dtype);
    const llm42_backend *backend = args_backend(name);
    static const char *const schedules[] = {"fast", "fixed", "invariant", NULL};
    llm42_schedule schedule = (llm42_schedule)(LLM42_FAST + args_choice("--schedule", how, schedules));
    char found[4096];
    model_path = args_find(model_path, found);
    if (text && ids_text) args_fail(2, "--ids and --text exclude each other");
    if (!text && !ids_text) args_fail(2, "give --ids LIST or --text TEXT");
    int32_t *ids = NULL;
    if (ids_text) {
        arrsetlen(ids, args_list_count(ids_text));
        args_ids("--ids", ids_text, ids);
    }

    llm42_error error = {0};
    llm42_model *model = NULL;
    tok *t = NULL;
    llm42_model_desc load = {.path = model_path, .on_device = args_on_device(model_path, backend), .no_mmap = no_mmap};
    args_check(llm42_model_load(&model, &load, &error), &error);
    if (text) {
        args_check(tok_open(&t, model, model_path, tokenizer, &error), &error);
        args_check(tok_encode(t, text, strlen(text), true, &ids, &error), &error);
    }
    int count = (int)arrlen(ids), vocab = model->config.vocab;
    if (count < 1) args_fail(1, "--text: no tokens");
    if (count > model->config.context)
        args_fail(1, "%d tokens are more than the model's context of %d", count, model->config.context);
    for (int i = 0; i < count; i++)
        if (ids[i] >= vocab) args_fail(1, "token %d is outside 0 to %d", (int)ids[i], vocab - 1);

    llm42_backend_desc desc = {.model = model,
                               .compute = compute,
                               .logits_fp32 = compute == LLM42_FP32,
                               .threads = 1,
                               .max_rows = CHUNK,
                               .max_context = count,
                               .pages = count / PAGE + 1,
                               .page_size = PAGE,
                               .max_running = 1,
                               .fixed_rows = CHUNK,
                               .schedules = 1u << schedule};
#ifdef _OPENMP
    desc.threads = omp_get_max_threads();
#endif
    if (threads) desc.threads = (int)threads;
    void *state = NULL;
    args_check(backend->open(&state, &desc, &error), &error);
    score(backend, state, schedule, ids, count, vocab);
    backend->close(state);
    tok_free(t);
    llm42_model_free(model);
    arrfree(ids);
    return args_finish();
}
