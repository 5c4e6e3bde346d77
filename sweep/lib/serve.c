// serve.c: one run of a workload on an engine (see serve.h).
#define _POSIX_C_SOURCE 200809L
#include "serve.h"

int64_t serve_pages(const serve_plan *s, int64_t page_size, double kv_gb) {
    int64_t request = (s->max_context + page_size - 1) / page_size;
    double page_bytes = (double)llm42_kv_token_bytes(&s->model->config, LLM42_DTYPE_BF16) * (double)page_size;
    int64_t pages = (int64_t)fmin(kv_gb * 1073741824.0 / page_bytes, (double)request * s->max_running);
    return pages < request ? request : pages;
}

llm42_result serve_context(serve_plan *s, const char *qps, int64_t most, llm42_error *error) {
    workload load;
    int context = s->model->config.context;
    if (most && most < context) context = (int)most;
    TRY(workload_open(&load, s->workload, qps, 42, error));
    const int longest = workload_max_tokens(&load);
    s->timed = load.timed, s->empty = load.empty;
    workload_close(&load);
    s->clipped = longest > context;
    s->max_context = s->clipped ? context : longest;
    return LLM42_OK;
}

// >>serve --------------------------------------------------------------------------------------------------------
llm42_request_desc serving_request(serving *v, const workload_request *r) {
    const int32_t *prompt = v->prompt;
    if (v->prompts) prompt = v->prompts->tokens + v->prompts->start[r->index];
    else if (v->s->random_prompts) workload_prompt(&v->load, r, v->s->model->config.vocab, v->prompt);
    // An arrival of 0 would mean "now". That is too late if the request is submitted after its arrival.
    return (llm42_request_desc){.prompt = prompt,
                                .prompt_count = r->input_tokens,
                                .max_new_tokens = r->output_tokens,
                                .ignore_stop = true,
                                .deterministic = workload_is_deterministic(r->index, v->ratio),
                                .sampling = {.temperature = (float)v->s->temperature,
                                             .seed = v->s->temperature > 0 ? (uint64_t)r->index + 1 : 0},
                                .arrival = fmax(v->start + r->arrival_s, DBL_MIN)};
}

llm42_result submit_next(serving *v, llm42_error *error) {
    workload_request r;
    workload_next(&v->load, &r);
    llm42_request_desc desc = serving_request(v, &r);
    v->submitted++;
    return llm42_engine_submit(v->engine, &desc, NULL, error);
}

// Short requests that end one after the other, so that decoding goes through every batch size, half of them
// deterministic where any will be: what a device sets up at first use is then there.
static llm42_result serving_warm_up(serving *v, llm42_error *error) {
    const llm42_config *c = &v->s->model->config;
    int32_t prompt[16];
    int64_t count = v->s->warm_up;
    int room = v->s->max_context - 16, longest = room < 48 ? room : 48;
    if (longest < 1) return LLM42_OK;
    v->collected.skip = INT64_MAX;
    for (int64_t i = 0; i < count; i++) {
        for (int k = 0; k < 16; k++) prompt[k] = (int32_t)(llm42_hash((uint64_t)(16 * i + k)) % (uint64_t)c->vocab);
        bool deterministic = v->ratio > 0 && workload_is_deterministic(i, fmax(v->ratio, 0.5));
        llm42_request_desc desc = {.prompt = prompt,
                                   .prompt_count = 16,
                                   .ignore_stop = true,
                                   .max_new_tokens = 1 + (int)(i * longest / count),
                                   .deterministic = deterministic};
        TRY(llm42_engine_submit(v->engine, &desc, NULL, error));
    }
    TRY(llm42_engine_run(v->engine, error));
    v->collected.skip = count;
    v->before = llm42_engine_stats(v->engine);
    return LLM42_OK;
}

llm42_result serving_begin(serving *v, const char *qps, uint64_t seed, llm42_error *error) {
    const serve_plan *s = v->s;
    TRY(workload_open(&v->load, s->workload, qps, seed, error));
    if (s->clipped) TRY(workload_clip(&v->load, s->max_context, error));
    if (v->trace_speed > 0) TRY(workload_speed(&v->load, v->trace_speed, error));
    v->prompt = calloc((size_t)s->max_context, sizeof *v->prompt);
    if (!collect_open(&v->collected, s->requests) || !v->prompt)
        return llm42_fail(error, LLM42_MEMORY, "--requests: out of memory for %" PRId64 " requests", s->requests);
    v->collected.outside_s = s->outside_s, v->collected.leave_out = s->leave_out;
    return LLM42_OK;
}

llm42_result serving_open(serving *v, llm42_engine_desc desc, const char *qps, uint64_t seed, double ratio,
                          llm42_error *error) {
    v->ratio = desc.policy.mode == LLM42_MODE_NONDETERMINISTIC  ? 0
               : desc.policy.mode == LLM42_MODE_BATCH_INVARIANT ? 1
                                                                : ratio;
    TRY(serving_begin(v, qps, seed, error));
    desc.on_event = collect_event;
    desc.event_user = &v->collected;
    desc.auto_release = true;
    TRY(llm42_engine_open(&v->engine, &desc, error));
    if (v->s->warm_up) TRY(serving_warm_up(v, error));
    v->start = llm42_engine_now(v->engine);
    return LLM42_OK;
}

llm42_result serve(serving *v, llm42_error *error) {
    for (int64_t steps = 1;; steps++) {
        int64_t waiting = v->submitted < v->s->requests ? llm42_engine_stats(v->engine).waiting : 0;
        for (; v->submitted < v->s->requests && (!v->submit_late || waiting <= v->s->max_running); waiting++)
            TRY(submit_next(v, error));
        llm42_result result = llm42_engine_step(v->engine, error);
        if (args_signal) return llm42_fail(error, LLM42_IO, "interrupted");
        if (v->progress && (result != LLM42_OK || steps % 1024 == 0)) v->progress(v);
        if (result != LLM42_OK) return result == LLM42_IDLE ? args_requests(v->engine, error) : result;
    }
}

llm42_result serving_figures(serving *v, metrics *m, llm42_error *error) {
    llm42_stats s = llm42_engine_stats(v->engine);
    stats_add(&s, &v->before, -1);
    if (collect_figures(&v->collected, &s, m)) return LLM42_OK;
    return llm42_fail(error, LLM42_MEMORY, "out of memory for the figures of a run");
}

void serving_close(serving *v) {
    llm42_engine_close(v->engine);
    workload_close(&v->load);
    collect_close(&v->collected);
    free(v->prompt);
}

// >>prompts ------------------------------------------------------------------------------------------------------
// Prompts that look like the model's text, since random tokens would not drift as text does: its own samples. Those of
// a trace that shares prefixes are the workload's, or nothing would be shared.

// Submits a request for each prompt to be sampled, with the prompt's index as .user, and sets p->start.
static llm42_result prompts_submit(prompt_set *p, const serve_plan *s, workload *load, llm42_engine *engine,
                                   const int32_t *first, llm42_error *error) {
    workload_request r;
    for (int64_t i = 0; i < s->requests; i++) {
        workload_next(load, &r);
        p->start[i + 1] = p->start[i] + r.input_tokens;
        if (r.block_count || r.input_tokens == 1) continue;
        uint64_t seed = llm42_hash(llm42_hash(p->seed) ^ (uint64_t)i) | 1;
        llm42_request_desc request = {.prompt = first,
                                      .prompt_count = 1,
                                      .max_new_tokens = r.input_tokens - 1,
                                      .ignore_stop = true,
                                      .user = (void *)(intptr_t)i,
                                      .sampling = {.temperature = 1, .seed = seed}};
        TRY(llm42_engine_submit(engine, &request, NULL, error));
    }
    return LLM42_OK;
}

static llm42_result prompts_fill(prompt_set *p, const serve_plan *s, workload *load, llm42_engine *engine,
                                 llm42_error *error) {
    const llm42_config *c = &s->model->config;
    const int32_t first = c->bos >= 0 ? c->bos : 0;
    p->start = calloc((size_t)s->requests + 1, sizeof *p->start);
    if (!p->start) return llm42_fail(error, LLM42_MEMORY, "out of memory for the prompts");
    TRY(prompts_submit(p, s, load, engine, &first, error));
    TRY(llm42_engine_run(engine, error));
    TRY(args_requests(engine, error));
    p->tokens = malloc(((size_t)p->start[s->requests] + 1) * sizeof *p->tokens);
    if (!p->tokens) return llm42_fail(error, LLM42_MEMORY, "out of memory for the prompts");
    workload_rewind(load);
    for (int64_t i = 0; i < s->requests; i++) {
        workload_request r;
        workload_next(load, &r);
        if (r.block_count) workload_prompt(load, &r, c->vocab, p->tokens + p->start[i]);
        else p->tokens[p->start[i]] = first;
    }
    const llm42_request *sample;
    for (int64_t id = 1; (sample = llm42_engine_request(engine, id)); id++)
        memcpy(p->tokens + p->start[(intptr_t)sample->user] + 1, sample->tokens,
               (size_t)sample->committed * sizeof *p->tokens);
    return LLM42_OK;
}

llm42_result prompts_make(prompt_set *p, const serve_plan *s, llm42_engine_desc desc, llm42_error *error) {
    workload load;
    llm42_engine *engine = NULL;
    desc.policy.mode = LLM42_MODE_BATCH_INVARIANT, desc.max_context = s->max_context, desc.max_running = s->max_running;
    TRY(workload_open(&load, s->workload, "offline", p->seed, error));
    llm42_result result = s->clipped ? workload_clip(&load, s->max_context, error) : LLM42_OK;
    if (!result) result = llm42_engine_open(&engine, &desc, error);
    if (!result) result = prompts_fill(p, s, &load, engine, error);
    llm42_engine_close(engine);
    workload_close(&load);
    return result;
}
