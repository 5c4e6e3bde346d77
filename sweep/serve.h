// serve.h: one run of a workload on an engine, from its first request to its figures. sweep.c's cells and bench.c's
// workloads on a device are both such runs. Included behind llm42.h (with LLM42_IMPLEMENTATION), collect.h and
// workload.h.
#ifndef SERVE_H
#define SERVE_H

#define TRY(call)                                \
    do {                                         \
        llm42_result result_ = (call);           \
        if (result_ != LLM42_OK) return result_; \
    } while (0)

// Prompts made before the clock starts: those of one seed, one behind the other.
typedef struct prompt_set {
    uint64_t seed;
    int32_t *tokens;
    int64_t *start;  // [requests + 1]
} prompt_set;

typedef struct serve_plan {  // what the runs of a program have in common
    const llm42_model *model;
    const char *workload;
    int64_t requests, warm_up;  // warm_up: requests served before the clock starts
    int max_context, max_running;
    bool clipped;         // requests of the workload may be longer than the context
    bool random_prompts;  // token ids of prompts matter, and are the workload's own
} serve_plan;

typedef struct serving serving;
struct serving {
    const serve_plan *s;
    const prompt_set *prompts;  // NULL: none were made
    void (*progress)(serving *v);
    void *user;  // of progress
    llm42_engine *engine;
    workload load;
    collector collected;
    int32_t *prompt;      // [max_context]
    double ratio, start;  // share of deterministic requests; when the first request may arrive
    int64_t submitted;    // requests
    llm42_stats before;   // what the warm-up has left
};

// KV pages of a device's pool: kv_gb GiB, or less where max_running whole contexts take less, but at least one context.
static int64_t serve_pages(const serve_plan *s, int64_t page_size, double kv_gb) {
    int64_t request = (s->max_context + page_size - 1) / page_size;
    double page_bytes = (double)llm42_kv_token_bytes(&s->model->config, LLM42_BF16) * (double)page_size;
    int64_t pages = (int64_t)fmin(kv_gb * 1073741824.0 / page_bytes, (double)request * s->max_running);
    return pages < request ? request : pages;
}

static llm42_result submit_next(serving *v, llm42_error *error) {
    workload_request r;
    workload_next(&v->load, &r);
    const int32_t *prompt = v->prompt;
    if (v->prompts) prompt = v->prompts->tokens + v->prompts->start[r.index];
    else if (v->s->random_prompts) workload_prompt(&v->load, &r, v->s->model->config.vocab, v->prompt);
    // An arrival of 0 would stand for "now", which is late for a request that is submitted late.
    llm42_request_desc desc = {.prompt = prompt,
                               .prompt_count = r.input_tokens,
                               .max_new_tokens = r.output_tokens,
                               .ignore_stop = true,
                               .deterministic = workload_is_deterministic(r.index, v->ratio),
                               .arrival = fmax(v->start + r.arrival_s, DBL_MIN)};
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

// desc says how to serve; its events go to the collector. ratio: share of requests that are deterministic.
static llm42_result serving_open(serving *v, llm42_engine_desc desc, const char *qps, uint64_t seed, double ratio,
                                 llm42_error *error) {
    const serve_plan *s = v->s;
    v->ratio = desc.mode == LLM42_DVR ? ratio : desc.mode == LLM42_BATCH_INVARIANT;
    TRY(workload_open(&v->load, s->workload, qps, seed, error));
    if (s->clipped) TRY(workload_clip(&v->load, s->max_context, error));
    v->prompt = calloc((size_t)s->max_context, sizeof *v->prompt);
    if (!collect_open(&v->collected, s->requests) || !v->prompt)
        return llm42_fail(error, LLM42_MEMORY, "--requests: out of memory for %" PRId64 " requests", s->requests);
    desc.on_event = collect_event;
    desc.event_user = &v->collected;
    desc.auto_release = true;
    TRY(llm42_engine_open(&v->engine, &desc, error));
    if (s->warm_up) TRY(serving_warm_up(v, error));
    v->start = llm42_engine_now(v->engine);
    return LLM42_OK;
}

// more says whether to submit another request while so many are waiting; NULL: all at once.
static llm42_result serve(serving *v, bool (*more)(const serving *v, int64_t waiting), llm42_error *error) {
    for (int64_t steps = 1;; steps++) {
        int64_t waiting = v->submitted < v->s->requests ? llm42_engine_stats(v->engine).waiting : 0;
        for (; v->submitted < v->s->requests && (!more || more(v, waiting)); waiting++) TRY(submit_next(v, error));
        llm42_result result = llm42_engine_step(v->engine, error);
        if (v->progress && (result != LLM42_OK || steps % 1024 == 0)) v->progress(v);
        if (result != LLM42_OK) return result == LLM42_IDLE ? LLM42_OK : result;
    }
}

static llm42_result serving_figures(serving *v, metrics *m, llm42_error *error) {
    llm42_stats s = llm42_engine_stats(v->engine);
    const llm42_stats *b = &v->before;
    s.returned_tokens -= b->returned_tokens, s.deterministic_tokens -= b->deterministic_tokens;
    s.candidates -= b->candidates, s.verifications -= b->verifications, s.rollbacks -= b->rollbacks;
    s.recomputed -= b->recomputed, s.preemptions -= b->preemptions;
    for (int i = 0; i <= LLM42_EXACT; i++) s.passes[i] -= b->passes[i], s.busy[i] -= b->busy[i];
    if (collect_figures(&v->collected, &s, m)) return LLM42_OK;
    return llm42_fail(error, LLM42_MEMORY, "out of memory for the figures of a run");
}

static void serving_close(serving *v) {
    llm42_engine_close(v->engine);
    workload_close(&v->load);
    collect_close(&v->collected);
    free(v->prompt);
}

#endif  // SERVE_H
