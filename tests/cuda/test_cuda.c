// test_cuda: what the CUDA backend promises, tested on a device.
//
//     make test-cuda TEST_CUDA="--part all --shared ../shared [--quick] [--tsv FILE]"
//
// Each part is a file of this folder:
//   models       logits against goldens
//   layers       operator by operator against the CPU backend
//   arithmetic   the same to the bit: the CPU backend in the arithmetic sm90
//   e4m3         the same for FP8 models
//   passes       the bits of rows under each schedule
//   errors       one clear line for each error
//   small        models of every kind, for compute-sanitizer
//   ranks        tensor parallelism
//   sglang       SGLang's three subtests
//   determinism  thousands of requests by each preset, under loads of random shapes
//
// Without a device everything is skipped. --backend cpu runs the parts on the CPU backend, to test the tests.
#include "rig.h"

#include "examples/lib/args.h"

static const char *part = "all", *backend = "cuda", *tsv_path, *algorithm_path;

static const args_option table[] = {
    ARGS_TEXT(
        "part NAME", &part,
        "models, layers, arithmetic, passes, determinism, sglang, errors, small, ranks,\n                         "
        "exchange, e4m3 or all"),
    ARGS_TEXT("backend NAME", &backend, "cuda, or cpu to test the tests"),
    ARGS_TEXT("shared DIR", &options.shared, "folder of models/ and traces/; without it their tests are skipped"),
    ARGS_TEXT("model,m SPEC", &options.model, "model of passes, determinism, sglang (default: base42) or arithmetic"),
    ARGS_INT("requests N", &options.requests, 0, 1000000, "determinism: requests; 0: 20000, with --quick 256"),
    ARGS_INT("loads N", &options.loads, 2, 1000,
             "determinism: loads by preset best, each of its share of the requests"),
    ARGS_FLAG("all-presets", &options.all_presets,
              "determinism: as many loads by presets dvr and invariant, of all requests again"),
    ARGS_INT("from N", &options.from_load, 1, 1000, "determinism: the reference, then loads N and on alone"),
    ARGS_INT("seed,s N", &options.seed, 1, 1 << 30, "determinism: loads are drawn from it"),
    ARGS_INT("longest-prompt N", &options.longest_prompt, 0, 1 << 20,
             "determinism: prompts are cut to N tokens; 0: 1024, with --quick 128"),
    ARGS_INT("longest-output N", &options.longest_output, 0, 1 << 20,
             "determinism: outputs are cut to N tokens; 0: 512, with --quick 128"),
    ARGS_TEXT("record DIR", &options.record,
              "determinism: transcripts of the deterministic requests, a file for each canonical load"),
    ARGS_INT("record-every N", &options.record_every, 1, 1000000, "determinism: --record takes one request in N"),
    ARGS_INT("window W", &options.window, 1, 4096, "W; M = G x W"),
    ARGS_INT("group G", &options.group, 1, 4096, "G"),
    ARGS_INT("tensor-parallel N", &options.ranks, 1, 8, "ranks; where a model allows only fewer, as many as it does"),
    ARGS_INT("reference-ranks N", &options.reference_ranks, 1, 8, "determinism: ranks of the reference"),
    ARGS_INT("devices N", &options.devices, 0, 8, "that ranks are on; 0: one for each rank. Part ranks: no fewer"),
    ARGS_INT("leaves C", &options.leaves, 1, 8,
             "of INVARIANT passes; where a model allows only fewer, as many as it does"),
    ARGS_INT("kv-gib N", &options.kv_gib, 0, 4096, "memory for KV pages, at most; 0: 40, on the CPU 1"),
    ARGS_TEXT("algorithms FILE", &algorithm_path, "chosen matrix algorithms are kept there between engines"),
    ARGS_FLAG("no-check", &cuda_desc.no_check, "without the backend's own bit tests at open, to save time"),
    ARGS_FLAG("no-cublas", &cuda_desc.no_cublas, "matrix products by our own kernels alone"),
    ARGS_OUT("tsv FILE", &tsv_path, "results: the manifest, then `part case quantity value`"),
    ARGS_FLAG("quick", &options.quick, "fewer sizes, shorter texts"),
    ARGS_END,
};

static const struct {
    const char *name;
    void (*test)(void);
} parts[] = TEST_LIST({"models", part_models}, {"layers", part_layers}, {"passes", part_passes},
                      {"errors", part_errors}, {"small", part_small}, {"ranks", part_ranks}, {"sglang", part_sglang},
                      {"determinism", part_determinism}, {"arithmetic", part_arithmetic}, {"exchange", part_exchange},
                      {"e4m3", part_e4m3});
enum { PARTS = sizeof parts / sizeof *parts };

// Whether the backend opens at all: without a device the tests are skipped, any other refusal is a failure.
static bool device_present(void) {
    llm42_model *model = NULL;
    rig g = {0};
    llm42_result result = llm42_model_load(&model, &(llm42_model_desc){.path = "synthetic:tiny"}, &rig_error);
    if (!result) result = rig_try(&g, tested, (llm42_backend_desc){.model = model, .max_rows = 16, .max_context = 16});
    bool none = result == LLM42_UNSUPPORTED && strstr(rig_error.text, "no CUDA device");
    rig_close(&g);
    llm42_model_free(model);
    if (none) printf("skipped: %s\n", rig_error.text);
    else CHECK_MSG(result == LLM42_OK, "%s: %s", llm42_result_name(result), rig_error.text);
    return result == LLM42_OK;
}

int main(int argc, char **argv) {
    static const char *const names[] = {"models", "layers", "passes",     "determinism", "sglang", "errors", "small",
                                        "ranks",  "all",    "arithmetic", "exchange",    "e4m3",   NULL};
    FILE *tsv = NULL;
    args_status_1 = "a test fails, or something went wrong";
    args_parse(argc, argv, "Tests the CUDA backend on a device.", table);
    args_choice("--part", part, names);
    if ((!strcmp(part, "all") || !strcmp(part, "passes")) && options.window * options.group < PASSES_LEAST_M)
        args_fail(2, "--window %" PRId64 " --group %" PRId64 ": M = G x W is %" PRId64 ", part passes needs %d or more",
                  options.window, options.group, options.window * options.group, PASSES_LEAST_M);
    if (!strcmp(part, "determinism") && options.leaves < options.ranks && options.reference_ranks < options.ranks)
        args_fail(2,
                  "--tensor-parallel %" PRId64 ": part determinism needs --leaves %" PRId64 " or more: with fewer "
                  "leaves results depend on the number of ranks",
                  options.ranks, options.ranks);
    static const char *const backends[] = {"cpu", "cuda", NULL};
    if (args_choice("--backend", backend, backends) == 0) tested = llm42_backend_cpu();
#ifdef LLM42_CUDA
    else tested = llm42_backend_cuda();
#endif
    cuda_desc.algorithm_file = algorithm_path, cuda_desc.devices = options.ranks > 1 ? (int)options.devices : 0;
    if (!tested) printf("skipped: built without CUDA: run make cuda\n");
    if (!tested || !device_present()) return test_end("test_cuda");
    if (tsv_path && !(tsv = llm42_file_create(tsv_path)))
        args_fail(1, "%s: cannot write: %s", tsv_path, strerror(errno));
    for (int i = 0; i < PARTS; i++) {
        if (strcmp(part, "all") && strcmp(part, parts[i].name)) continue;
        double begin = test_seconds();
        printf("%s\n", parts[i].name);
        fflush(stdout);
        test_run(parts[i].test, parts[i].name);
        printf("%s: %.1f s\n", parts[i].name, test_seconds() - begin);
        fflush(stdout);
    }
    write_results(tsv);
    if (tsv && !llm42_file_finish(tsv)) args_fail(1, "%s: cannot write: %s", tsv_path, strerror(errno));
    return test_end("test_cuda");
}
