// engine.c: the options of an engine (see engine.h).
#define _POSIX_C_SOURCE 200809L
#include "engine.h"

#include "examples/planners.h"

#include <dirent.h>

void engine_look_up(engine_options *o) {
    o->table = args_backend(o->backend);
    args_dtype("--dtype", o->dtype);
    args_arithmetic(o->arithmetic);
    args_choice("--planner", o->planner, planner_names);
}

// Adds to an error what weights a folder has that is no model folder, and what makes one of them.
static void explain(const char *folder, llm42_error *error) {
    static const char *const kinds[][2] = {
        {".gguf",
         "a GGUF file; take the model's safetensors, or load it by transformers (gguf_file=) and save_pretrained"},
        {"adapter_model.safetensors", "an adapter; merge it into its model by peft (merge_and_unload)"},
        {"consolidated.safetensors", "weights in Mistral's own form; take the files for transformers"},
        {".bin", "a pickle of PyTorch; load it by transformers and save_pretrained"},
        {".safetensors",
         "a part of the weights; fetch model.safetensors.index.json, too, or rename a file that is whole"}};
    DIR *list = opendir(folder);
    for (size_t k = 0; list && k < sizeof kinds / sizeof *kinds; k++, rewinddir(list))
        for (struct dirent *file; (file = readdir(list));) {
            const size_t used = strlen(error->text), name = strlen(file->d_name), end = strlen(kinds[k][0]);
            if (name < end || strcmp(file->d_name + name - end, kinds[k][0])) continue;
            snprintf(error->text + used, sizeof error->text - used, " (here: %.80s, %s)", file->d_name, kinds[k][1]);
            closedir(list);
            return;
        }
    if (list) closedir(list);
}

llm42_model *engine_model(engine_options *o) {
    llm42_error error = {0};
    llm42_model *model = NULL;
    o->path = args_find(o->model, o->found);
    const llm42_model_desc desc = {
        .path = o->path, .on_device = args_on_device(o->path, o->table), .no_mmap = o->no_mmap, .log = args_model_log};
    const llm42_result result = llm42_model_load(&model, &desc, &error);
    if (result == LLM42_IO) explain(o->path, &error);
    args_check(result, &error);
    return model;
}

llm42_engine_desc engine_desc(engine_options *o, const llm42_model *model) {
    const bool cuda = !strcmp(o->table->name, "cuda");
    if (!cuda && o->algorithm_file) args_fail(2, "--algorithm-file: only with --backend cuda");
    if (!cuda && o->offered) args_fail(2, "--offered: only with --backend cuda");
    o->cpu.threads = (int)o->threads;
    o->cuda.devices = args_devices(o->tensor_parallel, o->devices);
    o->cuda.algorithm_file = o->algorithm_file;
    if (o->offered) o->cuda.fast = LLM42_CUDA_FAST_OFFERED;
    llm42_engine_desc desc = {.model = model,
                              .backend = o->table,
                              .backend_desc = cuda ? (const void *)&o->cuda : &o->cpu,
                              .planner = planner_find(o->planner),
                              .numerics.compute = args_dtype("--dtype", o->dtype),
                              .numerics.arithmetic = args_arithmetic(o->arithmetic),
                              .numerics.leaves = (int)o->leaves,
                              .tensor_parallel = (int)o->tensor_parallel,
                              .kv.page_size = 16,
                              .kv.pages = (int)((o->kv_tokens + 15) / 16),
                              .policy.window = (int)o->window,
                              .policy.group = (int)o->group,
                              .log = args_manifest_log,
                              .log_user = &o->manifest};
    args_policy(&desc, "preset", o->preset);
    args_policy(&desc, "verifier", o->verifier);
    return desc;
}
