// sglang.c: part sglang. Unique outputs of a prompt over many batches, in SGLang's three settings: one prompt, several
// prompts mixed, and prompts that begin alike.
#include "rig.h"

enum { PROMPTS = 4, OWN = 8 };

typedef struct tally {
    uint64_t *outputs, *texts;
    int trials;
} tally;  // different ones: of all answers, with bits; texts alone, of the answers that SGLang counts

static void add_unique(uint64_t **set, uint64_t value) {
    for (int i = 0; i < (int)arrlen(*set); i++)
        if ((*set)[i] == value) return;
    arrput(*set, value);
}

// Batches of 1 to most requests of the prompts; a subtest of one prompt takes the last. There SGLang counts the first
// text of each batch, and else all texts.
static void run_batches(llm42_engine *engine, bool marked, int32_t *const *prompt, const int *count, int prompts,
                        int most, tally *t) {
    uint64_t random = 8;
    int tokens = options.quick ? 32 : 64;
    for (int n = 1; n <= most; n += options.quick && n > 8 ? 3 : 1) {
        int64_t ids[64];
        int which[64];
        for (int i = 0; i < n; i++) {
            int p = which[i] = prompts == 1 ? PROMPTS - 1 : test_random_int(&random, 0, prompts - 1);
            llm42_request_desc desc = TEST_LIST(.prompt = prompt[p], .prompt_count = count[p], .max_new_tokens = tokens,
                                                .ignore_stop = true, .deterministic = marked);
            if (!CHECK_MSG(!llm42_engine_submit(engine, &desc, &ids[i], &rig_error), "%s", rig_error.text)) return;
        }
        if (!CHECK_MSG(llm42_engine_run(engine, &rig_error) == LLM42_OK, "%s", rig_error.text)) return;
        for (int i = 0; i < n; i++) {
            const llm42_request *r = llm42_engine_request(engine, ids[i]);
            uint64_t text = hash_bytes(14695981039346656037u, r->tokens, sizeof *r->tokens * (size_t)r->committed);
            t[which[i]].trials++;
            if (prompts > 1 || i == 0) add_unique(&t[which[i]].texts, text);
            add_unique(&t[which[i]].outputs, hash_bytes(text, r->logprobs, sizeof *r->logprobs * (size_t)r->committed));
            llm42_engine_release(engine, ids[i], &rig_error);
        }
    }
}

// Without a preset: mode NONDETERMINISTIC, for which nothing is promised. Gives an output of the last prompt.
static uint64_t run_subtest(const llm42_model *model, const char *subtest, llm42_preset preset, const char *name,
                            bool logits_fp32, int prompts, const int *count, const int *common) {
    const bool ordinary = preset == LLM42_PRESET_DEFAULT;
    tally t[PROMPTS] = {{0}};
    int32_t *prompt[PROMPTS], *text = random_ids(512, model->config.vocab, 21);
    llm42_engine *engine = NULL;
    llm42_engine_desc desc = TEST_LIST(.model = model, .numerics.leaves = leaves_for(model),
                                       .tensor_parallel = ranks_for(model), .backend = tested,
                                       .backend_desc = &cuda_desc, .preset = preset,
                                       .policy.mode = ordinary ? LLM42_MODE_NONDETERMINISTIC : LLM42_MODE_DEFAULT,
                                       .max_running = 64, .max_context = 512, .kv.pages = 64 * 32,
                                       .policy.window = (int)options.window, .policy.group = (int)options.group,
                                       .kv.prefix_cache = common[1] > 0, .log = note_line,
                                       .numerics.logits_fp32 = logits_fp32);
    for (int p = 0; p < PROMPTS; p++) {
        prompt[p] = random_ids(count[p], model->config.vocab, 30 + (uint64_t)p);
        memcpy(prompt[p], text, sizeof *text * (size_t)common[p]);
    }
    if (CHECK_MSG(!llm42_engine_open(&engine, &desc, &rig_error), "%s", rig_error.text))
        run_batches(engine, !ordinary, prompt, count, prompts, options.quick ? 24 : 50, t);
    int most = 0, texts = 0;
    uint64_t output = arrlen(t[PROMPTS - 1].outputs) ? t[PROMPTS - 1].outputs[0] : 0;
    printf("  %-7s %-16s unique outputs", subtest, name);
    for (int p = 0; p < PROMPTS; p++) {
        int unique = (int)arrlen(t[p].outputs);
        if (unique > most) most = unique;
        if (arrlen(t[p].texts) > texts) texts = (int)arrlen(t[p].texts);
        if (t[p].trials) printf("  %d (texts: %d) of %d", unique, (int)arrlen(t[p].texts), t[p].trials);
        arrfree(t[p].outputs);
        arrfree(t[p].texts);
        free(prompt[p]);
    }
    printf("\n");
    char both[64];
    snprintf(both, sizeof both, "%s %s", subtest, name);
    note(both, "unique_texts", texts);
    note(both, "unique_outputs", most);
    CHECK_MSG(ordinary ? most > 0 : most == 1, "%s: %d unique outputs", both, most);
    free(text);
    llm42_engine_close(engine);
    return output;
}

// The control: with other numerics, logits in fp32, outputs must be others. Ordinary requests may have one output, too,
// where FAST passes of a model have one order of sums.
void part_sglang(void) {
    static const struct {
        llm42_preset preset;
        const char *name;
        bool logits_fp32;
    } presets[] = {{LLM42_PRESET_DVR, "dvr", false},
                   {LLM42_PRESET_BEST, "best", false},
                   {LLM42_PRESET_PAPER, "paper", false},
                   {LLM42_PRESET_INVARIANT, "invariant", false},
                   {LLM42_PRESET_DEFAULT, "nondeterministic", false},
                   {LLM42_PRESET_INVARIANT, "other numerics", true}};
    static const int lengths[PROMPTS] = {9, 60, 160, 300}, none[PROMPTS] = {0}, common[PROMPTS] = {1, 64, 150, 280};
    static const int with_common[PROMPTS] = {1 + OWN, 64 + OWN, 150 + OWN, 280 + OWN};
    static const char *const subtests[] = {"single", "mixed", "prefix"};
    llm42_model *model = load_model(main_model(), false);
    if (!model) return;
    cuda_desc.fast = LLM42_CUDA_FAST_OFFERED;  // as serving engines, which these subtests are of
    for (int s = 0; s < 3; s++) {
        uint64_t output, first = 0;
        for (size_t p = 0; p < sizeof presets / sizeof *presets; p++) {
            output = run_subtest(model, subtests[s], presets[p].preset, presets[p].name, presets[p].logits_fp32,
                                 s ? PROMPTS : 1, s == 2 ? with_common : lengths, s == 2 ? common : none);
            if (!p) first = output;
        }
        CHECK_MSG(output != first, "%s: other numerics give the same output: nothing has been shown", subtests[s]);
    }
    cuda_desc.fast = LLM42_CUDA_FAST_DEFAULT;
    llm42_model_free(model);
}
