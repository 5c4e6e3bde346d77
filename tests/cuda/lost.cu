// cuda_lost: what is left of the library when the device is lost. A kernel writes to an illegal address, which takes
// the process's whole CUDA context down. The next pass and an open must say so in one line, and close must not crash.
//
// Built and run by `make test-cuda`. The last line is "N passed, N failed"; without a device both are 0.
#include "examples/util/llm42_cuda.h"

#define COUNTS_OF "cuda_lost"
#include "counts.h"

#include <cuda_runtime.h>
#include <math.h>
#include <string.h>

static llm42_error error;
static bool check(bool ok, const char *what) { return count_check(ok, what, error.text); }

__global__ void fault(int *nowhere) { *nowhere = 42; }

// One line that says what has happened and what to do.
static void check_lost(llm42_result result, const char *what) {
    check(result == LLM42_BACKEND, what);
    check(error.text[0] && !strchr(error.text, '\n'), "the error is one line");
    check(strstr(error.text, "lost") != NULL, "the error says that the device is lost");
    check(strstr(error.text, "process") != NULL, "the error says that another process is needed");
    printf("%s: %s: %s\n", what, llm42_result_name(result), error.text);
    error.text[0] = 0;
}

static llm42_result submit(llm42_engine *engine, int64_t *id) {
    static const int32_t prompt[] = {3, 1, 4, 1, 5, 9, 2, 6};
    llm42_request_desc ask = {};
    ask.prompt = prompt;
    ask.prompt_count = 8;
    ask.max_new_tokens = 24;
    ask.ignore_stop = true;
    ask.deterministic = true;
    return llm42_engine_submit(engine, &ask, id, &error);
}

int main() {
    llm42_model *model = NULL;
    llm42_engine *engine = NULL, *other = NULL, *later = NULL;
    llm42_model_desc source = {};
    source.path = "synthetic:tiny";
    if (!check(llm42_model_load(&model, &source, &error) == LLM42_OK, "the model loads")) return end();
    llm42_engine_desc desc = {};
    desc.model = model;
    desc.backend = llm42_backend_cuda();
    desc.max_context = 128;
    desc.max_running = 4;
    desc.policy.window = 8;
    desc.policy.group = 2;
    llm42_result result = llm42_engine_open(&engine, &desc, &error);
    if (result == LLM42_UNSUPPORTED && strstr(error.text, "no CUDA device")) {
        printf("cuda_lost: skipped: %s\n", error.text);
        passed = 0;
        return end();
    }
    if (!check(result == LLM42_OK && llm42_engine_open(&other, &desc, &error) == LLM42_OK, "engines open"))
        return end();
    int64_t id = 0, second = 0;
    check(submit(engine, &id) == LLM42_OK && llm42_engine_run(engine, &error) == LLM42_OK, "a request runs");
    check(llm42_engine_request(engine, id)->committed == 24, "it returns its tokens");
    check(submit(engine, &id) == LLM42_OK && submit(other, &second) == LLM42_OK, "requests are queued");

    fault<<<1, 1>>>((int *)8);
    check(cudaDeviceSynchronize() != cudaSuccess, "the kernel has faulted");

    check_lost(llm42_engine_run(engine, &error), "the next run");
    check_lost(llm42_engine_run(engine, &error), "the run after it");
    check_lost(llm42_engine_run(other, &error), "another engine");
    check(llm42_engine_cancel(engine, id, &error) == LLM42_OK, "its request can be cancelled");
    llm42_engine_close(engine);
    llm42_engine_close(other);
    result = llm42_engine_open(&later, &desc, &error);
    check(result < 0 && !later && error.text[0] && !strchr(error.text, '\n'),
          "an open in this process is refused in one line");
    printf("an open: %s: %s\n", llm42_result_name(result), error.text);
    llm42_engine_close(later);
    llm42_model_free(model);
    return end();
}
