// small.c: small models of every kind, served in a moment, so that compute-sanitizer can follow: each kernel of a
// pass runs. Requests run together and then alone: those with a promise give the same bits.
#include "rig.h"
#include "../make_model.h"

typedef struct small_case {
    test_shape shape;
    llm42_mode mode;
    llm42_prefill prefill;
    int requests, page_size, group;
    bool overlap, fp32;  // fp32: of logits and of router logits
    int longer;          // times: prompts and context
} small_case;

static const small_case small_cases[] = {
    {{"llama", 64, 64, 2, 4, 2, 16, 96, 0, true, "BF16", "\"rope_theta\": 10000.0, ", 768},
     LLM42_DVR,
     LLM42_PREFILL_PACKED,
     4,
     16,
     2,
     false,
     false,
     1},
    {{"mistral", 64, 96, 2, 12, 1, 80, 96, 0, false, "BF16", "\"sliding_window\": 200, ", 768},
     LLM42_DVR,
     LLM42_PREFILL_INVARIANT,
     4,
     4,
     4,
     false,
     true,
     1},
    {{"llama", 64, 64, 2, 4, 1, 128, 96, 0, true, "BF16", "\"rope_theta\": 10000.0, ", 768},
     LLM42_DVR,
     LLM42_PREFILL_ISOLATED,
     4,
     64,
     4,
     true,
     true,
     1},
    {{"qwen2", 64, 64, 1, 4, 2, 32, 96, 0, true, "BF16", "\"use_sliding_window\": false, ", 768},
     LLM42_DVR,
     LLM42_PREFILL_PACKED,
     4,
     16,
     4,
     true,
     false,
     1},
    {{"qwen3_moe", 64, 64, 1, 4, 2, 64, 64, 4, false, "BF16",
      "\"moe_intermediate_size\": 64, \"num_experts\": 4, \"num_experts_per_tok\": 2, \"norm_topk_prob\": true, ", 768},
     LLM42_DVR,
     LLM42_PREFILL_PACKED,
     4,
     16,
     4,
     false,
     false,
     1},
    {{"qwen3_moe", 64, 64, 1, 4, 2, 64, 64, 4, false, "BF16",
      "\"moe_intermediate_size\": 64, \"num_experts\": 4, \"num_experts_per_tok\": 2, \"norm_topk_prob\": true, ", 768},
     LLM42_DVR,
     LLM42_PREFILL_PACKED,
     4,
     16,
     4,
     false,
     true,
     1},
    // so many rows that a block has several rounds of a row's units to merge
    {{"qwen3", 64, 64, 1, 8, 8, 128, 96, 0, true, "BF16", "\"rope_parameters\": {\"rope_theta\": 1000000.0}, ", 768},
     LLM42_BATCH_INVARIANT,
     LLM42_PREFILL_PACKED,
     24,
     16,
     2,
     false,
     false,
     1},
    // few rows and many keys: several blocks share a row, and a block has more units than it keeps in shared memory
    {{"llama", 64, 64, 1, 32, 32, 16, 96, 0, true, "BF16", "\"rope_theta\": 10000.0, ", 2560},
     LLM42_DVR,
     LLM42_PREFILL_INVARIANT,
     4,
     16,
     2,
     false,
     false,
     4},
};
enum { SMALL_CASES = sizeof small_cases / sizeof *small_cases, SMALL_NEW = 10, SMALL_MOST = 24 };

// Runs `count` requests from `first` on together; their outputs go to outs [SMALL_MOST, SMALL_NEW], or those with a
// promise are compared with what is there.
static void small_run(llm42_engine *engine, const small_case *s, int first, int count, llm42_output *outs, bool make) {
    static const int lengths[] = {600, 150, 40, 5};
    int64_t ids[SMALL_MOST];
    for (int i = first; i < first + count; i++) {
        const int length = s->requests > 4 ? 590 - i : lengths[i] * s->longer;
        int32_t *prompt = random_ids(length, s->shape.vocab, 50 + (uint64_t)i);
        llm42_request_desc desc = {.prompt = prompt,
                                   .prompt_count = length,
                                   .max_new_tokens = SMALL_NEW,
                                   .ignore_stop = true,
                                   .deterministic = i % 2 == 0};
        if (i % 4 == 2) desc.sampling = (llm42_sampling){.temperature = 0.9f, .top_k = 20, .top_p = 0.9f, .seed = 5};
        if (i % 4 == 3) desc.sampling = (llm42_sampling){.temperature = 1.1f, .min_p = 0.05f, .seed = 6};
        CHECK_MSG(!llm42_engine_submit(engine, &desc, &ids[i - first], &rig_error), "%s", rig_error.text);
        free(prompt);
    }
    if (!CHECK_MSG(llm42_engine_run(engine, &rig_error) == LLM42_OK, "%s", rig_error.text)) return;
    for (int i = first; i < first + count; i++) {
        const llm42_request *r = llm42_engine_request(engine, ids[i - first]);
        CHECK_INT(r->committed, SMALL_NEW);
        for (int t = 0; t < r->committed && t < SMALL_NEW; t++) {
            const llm42_output out = {r->tokens[t], r->logprobs[t]};
            llm42_output *kept = &outs[i * SMALL_NEW + t];
            if (make) *kept = out;
            else if (r->deterministic)
                CHECK_MSG(!memcmp(&out.token, &kept->token, sizeof out.token) &&
                              !memcmp(&out.logprob, &kept->logprob, sizeof out.logprob),
                          "%s: request %d of %d, token %d: other bits than before", s->shape.type, i, count, t);
        }
        llm42_engine_release(engine, ids[i - first], &rig_error);
    }
}

static llm42_engine_desc small_desc(const small_case *s, const llm42_model *model) {
    return (llm42_engine_desc){.model = model,
                               .backend = tested,
                               .backend_desc = &cuda_desc,
                               .mode = s->mode,
                               .prefill = s->prefill,
                               .max_running = s->requests,
                               .max_context = 640 * s->longer,
                               .token_budget = 128,
                               .window = 8,
                               .group = s->group,
                               .logits_fp32 = s->fp32,
                               .router_fp32 = s->fp32,
                               .page_size = s->page_size,
                               .overlap = s->overlap,
                               .log = note_line};
}

// With the INVARIANT verifier every prefill, with and without overlap, gives the bits of mode BATCH_INVARIANT.
static void check_one_result(const small_case *s, const llm42_model *model) {
    llm42_output outs[SMALL_MOST * SMALL_NEW];
    for (int k = 0; k < 7; k++) {
        llm42_engine *engine = NULL;
        llm42_engine_desc desc = small_desc(s, model);
        desc.mode = k ? LLM42_DVR : LLM42_BATCH_INVARIANT, desc.verifier = LLM42_VERIFIER_INVARIANT;
        desc.prefill = (llm42_prefill)(1 + k % 3), desc.overlap = k > 3;
        if (!CHECK_MSG(!llm42_engine_open(&engine, &desc, &rig_error), "%s: %s", s->shape.type, rig_error.text)) return;
        small_run(engine, s, 0, s->requests, outs, !k);
        const llm42_stats stats = llm42_engine_stats(engine);
        CHECK(!stats.passes[LLM42_FIXED] && (!k || stats.verifications > 0));
        llm42_engine_close(engine);
    }
}

static void check_small(const char *folder, int at) {
    const small_case *s = &small_cases[at];
    char path[128];
    snprintf(path, sizeof path, "%s/small_%d", folder, at);
    test_model_folder(path, &s->shape);
    llm42_model *model = load_model(path, false);
    llm42_engine *engine = NULL;
    llm42_engine_desc desc = small_desc(s, model);
    desc.verifier = LLM42_VERIFIER_FIXED;
    llm42_output outs[SMALL_MOST * SMALL_NEW];
    if (model && CHECK_MSG(!llm42_engine_open(&engine, &desc, &rig_error), "%s: %s", path, rig_error.text)) {
        small_run(engine, s, 0, s->requests, outs, true);
        for (int i = 0; i < 4; i += 2) small_run(engine, s, i, 1, outs, false);  // those with a promise
        bool differ = false;  // the control: what another prompt gives is told apart
        for (int t = 0; t < SMALL_NEW; t++) differ |= outs[t].logprob != outs[2 * SMALL_NEW + t].logprob;
        CHECK_MSG(differ, "%s: two prompts gave the same log-probabilities", path);
    }
    llm42_engine_close(engine);
    if (model && s->mode == LLM42_DVR) check_one_result(s, model);
    llm42_model_free(model);
}

void part_small(void) {
    char folder[64];
    test_folder(folder);
    for (int i = 0; i < SMALL_CASES; i++) check_small(folder, i);
    test_remove(folder);
}
