// Recurrent layers: a prompt in chunks of any size, decoding, prefix hits at every border of a page, rollbacks and
// preemption give the bits of a request that runs alone, and a state that keeps what was rolled back does not. Then
// what is refused. tests/fuzz_engine.c tries such a model with everything else at random, failing passes too.
#include "test.h"

#include "make_model.h"

enum { PROMPT = 45, NEW = 24, REQUESTS = 9, PAGE = 4 };
static llm42_model *model;
static llm42_error error;
static int32_t prompts[REQUESTS][PROMPT];
#include "answers.h"
static answer want[REQUESTS], got[REQUESTS];

static void submit(llm42_engine *engine, int i) {
    test_submit(engine, (llm42_request_desc){.prompt = prompts[i],
                                             .prompt_count = PROMPT,
                                             .max_new_tokens = NEW,
                                             .ignore_stop = true,
                                             .deterministic = true,
                                             .sampling = {.temperature = i % 2 ? 0.9f : 0, .seed = 7}});
}

// Serves all prompts together, or each alone where `alone`, and returns how many differ from `want`.
static int differing(llm42_engine_desc desc, bool alone, llm42_stats *stats) {
    int differ = 0;
    desc.model = model, desc.backend_desc = TEST_THREADS(2), desc.kv.page_size = PAGE;
    llm42_engine *engine = test_open(&desc);
    for (int i = 0; i < REQUESTS; i++) {
        submit(engine, i);
        if (alone) CHECK_MSG(!llm42_engine_run(engine, &error), "%s", error.text);
    }
    CHECK_MSG(!llm42_engine_run(engine, &error), "%s", error.text);
    for (int i = 0; i < REQUESTS; i++) {
        got[i] = take(engine, i + 1);
        CHECK_INT(got[i].count, NEW);
        differ += !same(&got[i], &want[i]);
    }
    *stats = test_finish(engine);
    return differ;
}

// Prompt i shares i + 1 pages with prompt 0, or all of it.
static void serve_alone(const char *path) {
    llm42_model_free(model);
    model = test_load(path);
    for (int i = 0; i < REQUESTS; i++)
        for (int t = 0; t < PROMPT; t++)
            prompts[i][t] = (t * t * 7 + 31 * t + 3 + (i && t >= (i + 1) * PAGE ? 11 * i : 0)) % 320;
    for (int i = 0; i < REQUESTS; i++) {
        llm42_engine *engine = test_open(&(llm42_engine_desc){
            .model = model, .backend_desc = TEST_THREADS(1), .preset = LLM42_PRESET_INVARIANT, .max_running = 1});
        submit(engine, i);
        CHECK_MSG(!llm42_engine_run(engine, &error), "%s", error.text);
        want[i] = take(engine, 1);
        llm42_engine_close(engine);
    }
}

TEST(alone) { serve_alone("tests/arch/qwen3_5_text"); }

TEST(chunks_presets_and_preemption_change_no_bit) {
    static const llm42_preset presets[] = {LLM42_PRESET_DVR, LLM42_PRESET_BEST, LLM42_PRESET_INVARIANT};
    llm42_stats stats;
    int64_t rollbacks = 0, preemptions = 0;
    for (int p = 0; p < 3; p++)
        for (int budget = REQUESTS; budget < 60; budget += 7) {
            llm42_engine_desc desc = {.preset = presets[p], .token_budget = budget, .max_running = REQUESTS};
            desc.policy.window = 2 + budget % 9, desc.kv.pages = budget % 2 ? 40 : 0, desc.max_context = 80;
            desc.experiment.inject_rate = 0.1;
            CHECK_INT(differing(desc, false, &stats), 0);
            rollbacks += stats.rollbacks, preemptions += stats.preemptions;
        }
    CHECK_MSG(rollbacks > 20 && preemptions > 5, "%d rollbacks, %d preemptions", (int)rollbacks, (int)preemptions);
}

TEST(prefix_hits_begin_with_a_snapshot) {
    llm42_stats stats;
    for (int snapshots = 1; snapshots <= 64; snapshots *= 4) {
        llm42_engine_desc desc = {
            .kv.prefix_cache = true, .kv.snapshots = snapshots, .max_running = 4, .max_context = 96};
        CHECK_INT(differing(desc, true, &stats), 0);
        // Prompt 0 has no snapshot inside; the first prompt that leaves it leaves one there, for those behind it.
        if (snapshots > 4) CHECK_MSG(stats.prefix_hits >= 8, "%d hits", (int)stats.prefix_hits);
        desc.preset = LLM42_PRESET_BEST, desc.kv.pages = 60, desc.experiment.inject_rate = 0.2;
        CHECK_INT(differing(desc, false, &stats), 0);
    }
}

// In fp32 two leaves give another result than one, which is the same for one rank and two.
TEST(ranks_and_leaves_are_as_with_attention) {
    llm42_stats stats;
    llm42_engine_desc desc = {.max_running = REQUESTS, .max_context = 96, .numerics.compute = LLM42_DTYPE_FP32};
    for (int leaves = 1; leaves <= 2; leaves++) {
        desc.numerics.leaves = leaves;
        CHECK(differing(desc, false, &stats) > 0);
        memcpy(want, got, sizeof want);
    }
    desc.tensor_parallel = 2, desc.token_budget = 20, desc.preset = LLM42_PRESET_BEST;
    CHECK_INT(differing(desc, false, &stats), 0);
}

TEST(a_state_that_keeps_what_was_rolled_back_differs) {
    llm42_stats stats;
    llm42_engine_desc desc = {.experiment = {.inject_rate = 0.1}, .max_running = REQUESTS, .max_context = 96};
    CHECK_INT(differing(desc, false, &stats), 0);
    desc.experiment.keep_fast_state = true;
    CHECK(differing(desc, false, &stats) > REQUESTS / 2);
}

// All of this, and the control, in e4m3.
TEST(in_eight_bits) {
    serve_alone("synthetic:tiny-hybrid-fp8");
    const llm42_layer *l = model->layer;
    for (const llm42_matrix *m = &l->qkv; m <= &l->alpha; m++)  // qkv, z, beta, alpha
        CHECK_INT(m->type, m < &l->beta ? LLM42_DTYPE_E4M3 : LLM42_DTYPE_BF16);
    CHECK_INT(l->o.type, LLM42_DTYPE_E4M3);
    chunks_presets_and_preemption_change_no_bit(), prefix_hits_begin_with_a_snapshot();
    a_state_that_keeps_what_was_rolled_back_differs();
    serve_alone("tests/arch/qwen3_5_text");
}

// In FP8 beta and alpha stay in bf16, and z is in e4m3 if q, k and v are.
TEST(what_is_refused_in_eight_bits) {
    static const char *const cases[][2] = {
        {"in_proj_b", "and no in_proj_a, in_proj_b"}, {"in_proj_z", "in_proj_z: either all are"}, {"out_proj", ""}};
    const char *dir = test_scratch();
    char extra[700];
    snprintf(extra, sizeof extra,
             "\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128], "
             "\"activation_scheme\": \"dynamic\"}, %s",
             test_hybrid.extra);
    test_shape shape = test_hybrid;
    shape.extra = extra;
    test_model_folder(dir, &shape);
    for (int i = 0; i < 3; i++) {
        size_t bytes;
        int n = 0, k = 0, at = 0;
        llm42_model *m = NULL;
        test_text header = test_header(&shape, &bytes), to = {0};
        const char *end = strstr(header.data, cases[i][0]) + strlen(cases[i][0]);
        CHECK(sscanf(end, ".weight\":{\"dtype\":\"BF16\",\"shape\":[%d,%d],\"data_offsets\":[%d", &n, &k, &at) == 3);
        test_append(&to, header.data, (size_t)(end - header.data));
        test_print(&to, ".weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[%d,%d],\"data_offsets\":[%d,%d]}", n, k, at,
                   at + n * k);
        test_print(&to, ",\"model.layers.0.linear_attn.%s.weight_scale_inv\":{\"dtype\":\"BF16\",\"shape\":[1],",
                   cases[i][0]);
        test_print(&to, "\"data_offsets\":[%d,%d]", at + n * k, at + n * k + 2);
        test_append(&to, strchr(end, '}'), strlen(strchr(end, '}')));
        test_text file = test_safetensors(to.data, "BF16", bytes);
        memset(file.data + file.size - bytes, 0x3c, bytes);  // scales are above 0
        test_write(test_path(dir, "model.safetensors"), file.data, file.size);
        CHECK_INT(llm42_model_load(&m, &(llm42_model_desc){.path = dir}, &error), i < 2 ? LLM42_UNSUPPORTED : LLM42_OK);
        if (i < 2) CHECK_CONTAINS(error.text, cases[i][1]);
        llm42_model_free(m);
        test_text_free(&header), test_text_free(&to), test_text_free(&file);
    }
}

TEST(what_is_refused) {
    static const struct {
        const char *from, *to, *part;
        llm42_result result;
    } bad[] = {{"key_heads\": 1", "key_heads\": 4", "linear_num_value_heads", LLM42_FORMAT},
               {"_heads\": 1, \"linear", "_heads\": 0, \"linear", "linear_num_key_heads", LLM42_FORMAT},
               {"kernel_dim\": 4", "kernel_dim\": 3", "linear_conv_kernel_dim", LLM42_UNSUPPORTED},
               {"_interval\": 2", "_interval\": 9", "full_attention_interval: model_type", LLM42_UNSUPPORTED},
               {"\"full_att", "\"attn_output_gate\": false, \"full_att", "attn_output_gate", LLM42_UNSUPPORTED},
               {"\"qwen3_5_text", "\"qwen3_5_moe_text\", \"num_experts\": 2, \"num_experts_per_tok\": 1, \"x\": \"",
                "shared_expert_intermediate_size: must be given", LLM42_FORMAT},
               {"_factor\": 0.5", "_factor\": 0.1", "partial_rotary_factor", LLM42_FORMAT},
               {"key_head_dim\": 8", "key_head_dim\": 7", "linear_value_head_dim 8: must be even", LLM42_FORMAT},
               {"\"full_attention_interval\": 2", "\"layer_types\": [\"linear_attention\", \"mamba\", 1, 2]", "mamba",
                LLM42_UNSUPPORTED},
               {"_dim\": 8, \"linear_value", "_dim\": 16, \"linear_value", "wrong shape", LLM42_FORMAT}};
    const char *dir = test_scratch();
    test_model_folder(dir, &test_hybrid);
    test_text config = test_config(&test_hybrid);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        llm42_model *m = NULL;
        test_text text = test_replace(config.data, bad[i].from, bad[i].to);
        test_write_text(test_path(dir, "config.json"), text.data);
        CHECK_ERROR(llm42_model_load(&m, &(llm42_model_desc){.path = dir}, &error), bad[i].result, bad[i].part);
        llm42_model_free(m);
        test_text_free(&text);
    }
    test_text_free(&config);
    test_refused(&(llm42_engine_desc){.model = model, .kv.snapshots = -1}, LLM42_INVALID, "kv.snapshots");
    test_refused(&(llm42_engine_desc){.model = model, .numerics.leaves = 4}, LLM42_INVALID, "2 key heads");
}

// Rows that do not follow the state or one another are refused, and snapshots that cannot be (there is one).
TEST(what_a_backend_refuses) {
    static const char snapshots[] = "restore, saves: must be of the 1 snapshots";
    const struct {
        llm42_seq seq;
        int from, to;
        const char *part;
    } bad[] = TEST_LIST({{0}, 5, 6, "state"}, {{0}, 0, 2, "state"}, {{.state = 9, .state_to = 8}, 9, 10, "state"},
                        {{.state_to = 2, .restore = 2}, 0, 1, snapshots},
                        {{.state_to = 2, .restore = 1, .saves = 1, .save = {{2, 0}}}, 0, 1, snapshots},
                        {{.state_to = 2, .saves = 1, .save = {{2, 1}}}, 0, 1, snapshots},
                        {{.state_to = 2, .saves = 1, .save = {{0, 0}}}, 0, 1, snapshots},
                        {{.state_to = 2, .saves = 1, .save = {{3, 0}}}, 0, 1, snapshots},
                        {{.state_to = 2, .saves = 2, .save = {{1, 0}, {1, 0}}}, 0, 1, snapshots},
                        {{.state_to = 2, .saves = 3}, 0, 1, snapshots},
                        {{.state = 1, .state_to = 1, .restore = 1}, 0, 1, snapshots}, {{0}, 0, 1, ""});
    enum { APART = sizeof bad / sizeof *bad - 1 };
    void *state = NULL;
    const llm42_backend *cpu = llm42_backend_cpu();
    const llm42_backend_desc desc = TEST_LIST(.model = model, .numerics.compute = LLM42_DTYPE_BF16, .max_rows = 4,
                                              .behind = 2, .snapshots = 1, .max_context = 64, .pages = 16,
                                              .page_size = PAGE, .max_running = 2);
    if (!CHECK_MSG(!cpu->open(&state, &desc, &error), "%s", error.text)) return;
    const int32_t pages[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (int i = 0; i <= APART; i++) {
        llm42_seq seq[2] = {bad[i].seq, {.pages = pages + 8}};
        const llm42_row row[] = {
            {0, bad[i].from, 3, 0}, {i == APART, i == APART ? 0 : bad[i].to, 3, 0}, {0, bad[i].to, 3, 0}};
        const int rows = i == APART ? 3 : 2;
        llm42_output out[3];
        const llm42_pass pass = {LLM42_SCHEDULE_INVARIANT, rows, rows, row, seq, out, NULL, NULL, NULL, false, NULL};
        seq[0].pages = pages;
        CHECK_ERROR(cpu->run(state, &pass, &error), LLM42_INVALID, bad[i].part);
    }
    cpu->close(state);
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    RUN_FIRST(alone);
    RUN(chunks_presets_and_preemption_change_no_bit, prefix_hits_begin_with_a_snapshot,
        a_state_that_keeps_what_was_rolled_back_differs, what_is_refused, what_is_refused_in_eight_bits,
        what_a_backend_refuses, ranks_and_leaves_are_as_with_attention, in_eight_bits);
    llm42_model_free(model);
    return test_end("test_recurrent");
}
