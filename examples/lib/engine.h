// engine.h: the options that say how a model is loaded, computed and served, and what follows from them: the backend,
// the model and the desc of an engine.
//
//     static engine_options how = {ENGINE_DEFAULTS};
//     ... ENGINE_MODEL(&how), ENGINE_COMPUTE(&how), ...       // in the table of options
//     engine_look_up(&how);                                   // the words that were typed; exits if one is wrong
//     llm42_model *model = engine_model(&how);                // exits if it cannot be loaded
//     llm42_engine_desc desc = engine_desc(&how, model);      // what no option says is the program's to set
#ifndef ENGINE_H
#define ENGINE_H

#include "examples/lib/args.h"

typedef struct engine_options {
    const char *model, *backend, *dtype, *arithmetic, *preset, *verifier, *planner, *algorithm_file;
    int64_t window, group, kv_tokens, tensor_parallel, leaves, devices, threads;
    bool no_mmap, offered;
    const llm42_backend *table;  // of .backend; engine_look_up sets it
    args_manifest manifest;      // what engines that were opened have said of a GPU
    llm42_cpu_desc cpu;          // the backend's own desc
    llm42_cuda_desc cuda;
    const char *path;  // where the model is (args_find); engine_model sets it
    char found[4096];
} engine_options;

#define ENGINE_DEFAULTS                                                                                        \
    .model = "examples/tiny42", .backend = "cpu", .dtype = "bf16", .planner = "default", .tensor_parallel = 1, \
    .leaves = 1

#define ENGINE_MODEL(o) ARGS_IN("model,m DIR", &(o)->model, "model folder or synthetic:NAME")
#define ENGINE_BACKEND(o) ARGS_TEXT("backend NAME", &(o)->backend, "cpu or cuda")
#define ENGINE_COMPUTE(o)                                                                  \
    ENGINE_BACKEND(o), ARGS_TEXT("dtype TYPE", &(o)->dtype, "compute type: bf16 or fp32"), \
        ARGS_ARITHMETIC(&(o)->arithmetic)
#define ENGINE_WINDOWS(o)                                                                                    \
    ARGS_INT("window W", &(o)->window, 0, 4096, "tokens of one request in a verification; 0: the preset's"), \
        ARGS_INT("group G", &(o)->group, 0, 4096, "requests verified together; 0: the preset's")
#define ENGINE_POLICIES(o)                                                                           \
    ARGS_TEXT("preset NAME", &(o)->preset, "policies of the engine: dvr, best, invariant or paper"), \
        ARGS_TEXT("verifier NAME", &(o)->verifier,                                                   \
                  "order of sums of replay passes: fixed or invariant (default: the preset's)"),     \
        ENGINE_WINDOWS(o)
#define ENGINE_PLANNER(o) ARGS_TEXT("planner NAME", &(o)->planner, "who shares a pass: default, or one of planners.h")
// The default of .kv.pages of llm42_engine_desc suits small models.
#define ENGINE_KV(o)                                              \
    ARGS_INT("kv-tokens N", &(o)->kv_tokens, 0, (int64_t)1 << 31, \
             "tokens for which the KV cache has room; 0: as all running requests may need, but at most 1 GiB")
#define ENGINE_RANKS(o)                                                                                               \
    ARGS_INT("tensor-parallel N", &(o)->tensor_parallel, 1, 8, "ranks (devices) that share the model: 1, 2, 4 or 8"), \
        ARGS_INT("leaves C", &(o)->leaves, 1, 8,                                                                      \
                 "parts into which INVARIANT passes cut sums that ranks share: 1, 2, 4 or 8; with N or\n"             \
                 "                         more of them the canonical result does not depend on N"),                  \
        ARGS_DEVICES(&(o)->devices)
#define ENGINE_ALGORITHMS(o) \
    ARGS_OUT("algorithm-file FILE", &(o)->algorithm_file, "cuda: chosen matrix algorithms are kept here")
#define ENGINE_OFFERED(o)               \
    ARGS_FLAG("offered", &(o)->offered, \
              "cuda: FAST passes keep orders of their own, as other engines' do, so that there is drift to verify")
#define ENGINE_THREADS(o) ARGS_INT("threads,t N", &(o)->threads, 0, 1024, "0: as many as OpenMP offers")
#define ENGINE_NO_MMAP(o)               \
    ARGS_FLAG("no-mmap", &(o)->no_mmap, \
              "read the weights into memory; without it files are mapped, and must not shrink")

void engine_look_up(engine_options *o);
llm42_model *engine_model(engine_options *o);
llm42_engine_desc engine_desc(engine_options *o, const llm42_model *model);

#endif  // ENGINE_H
