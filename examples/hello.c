// hello: the shortest use of the library with text. It prints what tiny42 writes, deterministically.
// make build/hello && build/hello
#define _POSIX_C_SOURCE 200809L
#define LLM42_IMPLEMENTATION
#include "llm42.h"
#include "tokenizer.h"

static void print(void *user, const llm42_event *event) {
    if (event->type != LLM42_EVENT_COMMITTED) return;
    for (int i = 0; i < event->n; i++) {
        tok_text text = tok_stream_next(user, event->tokens[i]);
        fwrite(text.data, 1, text.size, stdout);
    }
    fflush(stdout);
}

int main(int argc, char **argv) {
    const char *path = "examples/tiny42", *prompt = argc > 1 ? argv[1] : "It was a dark and stormy night";
    if (argc > 2 || !strncmp(prompt, "--", 2))
        return fprintf(argc == 2 ? stdout : stderr, "usage: hello [PROMPT]\n"),
               argc == 2 && !strcmp(prompt, "--help") ? 0 : 2;
    llm42_error error;
    llm42_model *model = NULL;
    llm42_engine *engine = NULL;
    tok *t = NULL;
    int32_t *ids = NULL;
    int64_t request;
    llm42_result result = llm42_model_load(&model, &(llm42_model_desc){.path = path}, &error);
    if (!result) result = tok_open(&t, model, path, NULL, &error);
    if (!result) result = tok_encode(t, prompt, strlen(prompt), true, &ids, &error);
    tok_stream stream = {.t = t, .skip_special = true};
    llm42_engine_desc desc = {.model = model, .on_event = print, .event_user = &stream};
    if (!result) result = llm42_engine_open(&engine, &desc, &error);
    llm42_request_desc ask = {.prompt = ids, .prompt_count = (int)arrlen(ids), .deterministic = true};
    if (!result) result = llm42_engine_submit(engine, &ask, &request, &error);
    if (!result) printf("%s", prompt);
    if (!result) result = llm42_engine_run(engine, &error);
    if (result) fprintf(stderr, "hello: %s\n", error.text);
    bool written = puts("") >= 0 && fflush(stdout) == 0;
    llm42_engine_close(engine);
    llm42_model_free(model);
    tok_stream_free(&stream);
    tok_free(t);
    arrfree(ids);
    if (!written) perror("hello: standard output");
    return result || !written;
}
