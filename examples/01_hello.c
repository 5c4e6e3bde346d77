/* 01_hello: one deterministic request. Its token ids are printed as they are committed, one line for each commit.
   Tokens are committed when they have been verified, up to 8 at a time (.policy.window). 03_verify shows how.

   Compile it in the repository's root, and run it there:

      mkdir -p build && cc -std=c11 -O2 -march=native -ffp-contract=off -fopenmp -I. -I/usr/include/stb \
          examples/01_hello.c -o build/01_hello -lm
      build/01_hello
*/
#define LLM42_IMPLEMENTATION
#include "llm42.h"

static void show(void *user, const llm42_event *e) {  // called for every event
    (void)user;
    if (e->type != LLM42_EVENT_COMMITTED) return;  // these tokens are final
    for (int i = 0; i < e->n; i++) printf("%6d%s", (int)e->tokens[i], i + 1 < e->n ? "" : "\n");
}

int main(void) {
    llm42_error why;
    llm42_model *model = NULL;
    llm42_engine *engine = NULL;
    const int32_t prompt[] = {0, 905, 312, 264, 1108, 283, 1767};  // "It was the best of times"
    llm42_request_desc request = {.prompt = prompt, .prompt_count = 7, .max_new_tokens = 64, .deterministic = true};
    if (llm42_model_load(&model, &(llm42_model_desc){.path = "examples/tiny42"}, &why) ||
        llm42_engine_open(&engine, &(llm42_engine_desc){.model = model, .policy.window = 8, .on_event = show}, &why) ||
        llm42_engine_submit(engine, &request, NULL, &why) || llm42_engine_run(engine, &why))
        return fprintf(stderr, "01_hello: %s\n", why.text), 1;
    llm42_engine_close(engine);
    llm42_model_free(model);
}
