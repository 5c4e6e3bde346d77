// small.c: small models of every kind, served in a moment, so that compute-sanitizer can follow: each kernel of a
// pass runs. With verifier FIXED requests run together and then alone: those with a promise give the same bits. Without
// it all presets and policies give one result.
#include "rig.h"
#include "../make_model.h"

typedef struct small_case {
    test_shape shape;
    llm42_mode mode;
    llm42_prefill prefill;
    int requests, page_size, group;
    bool fp32;   // logits and router logits are
    int longer;  // times: prompts and context
} small_case;

#define SMALL_MIXTURE                                                                                                \
    TEST_LIST(                                                                                                       \
        "qwen3_moe", 64, 64, 1, 4, 2, 64, 64, 4, false, "BF16",                                                      \
        "\"moe_intermediate_size\": 64, \"num_experts\": 4, \"num_experts_per_tok\": 2, \"norm_topk_prob\": true, ", \
        768)

static const small_case small_cases[] = {
    TEST_LIST({"llama", 64, 64, 2, 4, 2, 16, 96, 0, true, "BF16", "\"rope_theta\": 10000.0, ", 768}, LLM42_MODE_DVR,
              LLM42_PREFILL_PACKED, 4, 16, 2, false, 1),
    TEST_LIST({"mistral", 64, 96, 2, 12, 1, 80, 96, 0, false, "BF16", "\"sliding_window\": 200, ", 768}, LLM42_MODE_DVR,
              LLM42_PREFILL_INVARIANT, 4, 4, 4, true, 1),
    TEST_LIST({"llama", 64, 64, 2, 4, 1, 128, 96, 0, true, "BF16", "\"rope_theta\": 10000.0, ", 768}, LLM42_MODE_DVR,
              LLM42_PREFILL_ISOLATED, 4, 64, 4, true, 1),
    TEST_LIST({"qwen2", 64, 64, 1, 4, 2, 32, 96, 0, true, "BF16", "\"use_sliding_window\": false, ", 768},
              LLM42_MODE_DVR, LLM42_PREFILL_PACKED, 4, 16, 4, false, 1),
    TEST_LIST(SMALL_MIXTURE, LLM42_MODE_DVR, LLM42_PREFILL_PACKED, 4, 16, 4, false, 1),
    TEST_LIST(SMALL_MIXTURE, LLM42_MODE_DVR, LLM42_PREFILL_PACKED, 4, 16, 4, true, 1),
    // so many rows that a block has all units of a row, and merges them itself
    TEST_LIST(
        {"qwen3", 64, 64, 1, 8, 8, 128, 96, 0, true, "BF16", "\"rope_parameters\": {\"rope_theta\": 1000000.0}, ", 768},
        LLM42_MODE_BATCH_INVARIANT, LLM42_PREFILL_PACKED, 24, 16, 2, false, 1),
    // few rows and many keys: several blocks share a row, and the last one merges the records of all
    TEST_LIST({"llama", 64, 64, 1, 32, 32, 16, 96, 0, true, "BF16", "\"rope_theta\": 10000.0, ", 2560}, LLM42_MODE_DVR,
              LLM42_PREFILL_INVARIANT, 4, 16, 2, false, 4),
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
        llm42_request_desc desc = TEST_LIST(.prompt = prompt, .prompt_count = length, .max_new_tokens = SMALL_NEW,
                                            .ignore_stop = true, .deterministic = i % 2 == 0);
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
    return (llm42_engine_desc)TEST_LIST(.model = model, .backend = tested, .backend_desc = &cuda_desc,
                                        .numerics.leaves = leaves_for(model), .tensor_parallel = ranks_for(model),
                                        .policy.mode = s->mode, .policy.prefill = s->prefill,
                                        .max_running = s->requests, .max_context = 640 * s->longer, .token_budget = 128,
                                        .policy.window = 8, .policy.group = s->group, .numerics.logits_fp32 = s->fp32,
                                        .numerics.router_fp32 = s->fp32, .kv.page_size = s->page_size,
                                        .log = note_line);
}

// Every way to the canonical result; the first is the reference.
static const struct {
    llm42_preset preset;
    llm42_prefill prefill;
    bool mixed;  // mode HYBRID takes both ways, whatever takes less time
} ways[] = {{LLM42_PRESET_INVARIANT, LLM42_PREFILL_DEFAULT, false}, {LLM42_PRESET_DVR, LLM42_PREFILL_PACKED, false},
            {LLM42_PRESET_DVR, LLM42_PREFILL_ISOLATED, false},      {LLM42_PRESET_DVR, LLM42_PREFILL_INVARIANT, false},
            {LLM42_PRESET_BEST, LLM42_PREFILL_DEFAULT, false},      {LLM42_PRESET_BEST, LLM42_PREFILL_DEFAULT, true},
            {LLM42_PRESET_BEST, LLM42_PREFILL_PACKED, true}};

static int64_t mixed_passes[LLM42_SCHEDULE_COUNT];  // of all mixed ones, by schedule

static void check_one_result(const small_case *s, const llm42_model *model) {
    llm42_output outs[SMALL_MOST * SMALL_NEW];
    for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
        llm42_engine *engine = NULL;
        llm42_engine_desc desc = small_desc(s, model);
        desc.preset = ways[k].preset, desc.policy.mode = LLM42_MODE_DEFAULT;
        desc.policy.prefill = ways[k].prefill;
        desc.planner = ways[k].mixed ? &mixed_planner : NULL;
        if (!CHECK_MSG(!llm42_engine_open(&engine, &desc, &rig_error), "%s: %s", s->shape.type, rig_error.text)) return;
        small_run(engine, s, 0, s->requests, outs, !k);
        const llm42_stats stats = llm42_engine_stats(engine);
        CHECK(!stats.passes[LLM42_SCHEDULE_FIXED] && (desc.preset != LLM42_PRESET_DVR || stats.verifications > 0));
        for (int i = 0; i <= LLM42_SCHEDULE_INVARIANT; i++) mixed_passes[i] += ways[k].mixed ? stats.passes[i] : 0;
        llm42_engine_close(engine);
    }
}

// Requests together, and then those with a promise alone.
static void check_alone(const small_case *s, const llm42_engine_desc *desc) {
    llm42_engine *engine = NULL;
    llm42_output outs[SMALL_MOST * SMALL_NEW];
    if (CHECK_MSG(!llm42_engine_open(&engine, desc, &rig_error), "%s: %s", s->shape.type, rig_error.text)) {
        small_run(engine, s, 0, s->requests, outs, true);
        for (int i = 0; i < 4; i += 2) small_run(engine, s, i, 1, outs, false);
        bool differ = false;  // the control: what another prompt gives is told apart
        for (int t = 0; t < SMALL_NEW; t++) differ |= outs[t].logprob != outs[2 * SMALL_NEW + t].logprob;
        CHECK_MSG(differ, "%s: two prompts gave the same log-probabilities", s->shape.type);
    }
    llm42_engine_close(engine);
}

static void check_small(int at) {
    const small_case *s = &small_cases[at];
    char path[128];
    snprintf(path, sizeof path, "%s/small_%d", test_scratch(), at);
    test_model_folder(path, &s->shape);
    llm42_model *model = load_model(path, false);
    if (!model) return;
    llm42_engine_desc desc = small_desc(s, model);
    desc.policy.verifier = LLM42_VERIFIER_FIXED;
    check_alone(s, &desc);
    if (s->mode == LLM42_MODE_DVR) {
        desc = small_desc(s, model);
        desc.preset = LLM42_PRESET_PAPER, desc.policy.prefill = LLM42_PREFILL_DEFAULT;
        desc.token_budget = desc.max_context;  // prompts run whole
        check_alone(s, &desc);
        check_one_result(s, model);
    }
    llm42_model_free(model);
}

void part_small(void) {
    for (int i = 0; i < SMALL_CASES; i++) check_small(i);
    CHECK(mixed_passes[LLM42_SCHEDULE_FAST] > 0 && mixed_passes[LLM42_SCHEDULE_INVARIANT] > 0);
}
