// The promise of DVR, on examples/tiny42 in bf16: 200 deterministic requests give the same tokens and log-probability
// bits under every configuration below, and the controls, which leave something out, do not.
#include "test.h"
#define LLM42_IMPLEMENTATION
#include "llm42.h"

enum { REQUESTS = TEST_SLOW ? 24 : 200, M = 128, LONGEST_PROMPT = 300, LONGEST_OUTPUT = 200, TEXT = 1600 };

typedef struct work {
    int prompt_at, prompt_count, outputs;
    llm42_sampling sampling;
} work;
typedef struct result {
    int count;
    int32_t tokens[LONGEST_OUTPUT];
    float logprobs[LONGEST_OUTPUT];
} result;

static llm42_model *model;
static int32_t text[TEXT];  // written by the model itself: prompts are cut from it
static work requests[REQUESTS];
static result alone[REQUESTS];  // the reference: each request by itself

typedef struct config {
    const char *name;
    llm42_engine_desc desc;
    double ratio;      // share of the requests marked deterministic; 0: all
    bool one_by_one;   // submit each when the one before is finished
    uint64_t shuffle;  // 0: in order
    int rounds;        // runs in the same engine, of which the last counts (for a warm prefix cache); 0: 1
    int preempts;      // at least this many preemptions must have happened
} config;

static llm42_stats totals;  // of the last run
static int64_t checked, configurations;

static void make_requests(void) {
    llm42_error error;
    llm42_engine *engine;
    const int32_t start[] = {905, 312, 264, 1108, 283, 1767, 13, 325};
    memcpy(text, start, sizeof start);
    if (llm42_engine_open(&engine, &(llm42_engine_desc){.model = model, .threads = 1}, &error))
        printf("%s\n", error.text), exit(1);
    llm42_engine_submit(engine,
                        &(llm42_request_desc){.prompt = start,
                                              .prompt_count = 8,
                                              .max_new_tokens = TEXT - 8,
                                              .ignore_stop = true,
                                              .deterministic = true,
                                              .sampling = {.temperature = 1, .top_p = 0.95f}},
                        NULL, &error);
    llm42_engine_run(engine, &error);
    memcpy(text + 8, llm42_engine_request(engine, 1)->tokens, sizeof text - sizeof start);
    llm42_engine_close(engine);
    uint64_t state = 7;
    for (int i = 0; i < REQUESTS; i++) {
        work *w = &requests[i];
        bool shared = i % 5 == 0;  // every fifth prompt begins like the others of its kind, and ends inside a page
        w->prompt_count = i < 3 ? 1 + 149 * i + (i == 2)
                                : test_random_int(&state, shared ? 60 : 1,
                                                  shared  ? 90
                                                  : i % 8 ? 60
                                                          : LONGEST_PROMPT);
        w->prompt_at = shared ? 0 : test_random_int(&state, 0, TEXT - w->prompt_count);
        w->outputs = i == 3 ? LONGEST_OUTPUT : test_random_int(&state, 16, i % 6 ? 90 : LONGEST_OUTPUT);
        if (i % 2)
            w->sampling = (llm42_sampling){.temperature = 0.8f,
                                           .top_p = i % 4 == 1 ? 0.9f : 0,
                                           .top_k = i % 6 == 1 ? 40 : 0,
                                           .min_p = i % 10 == 1 ? 0.02f : 0,
                                           .seed = 1 + (uint64_t)i};
    }
    requests[2].prompt_count = LONGEST_PROMPT;
    requests[2].prompt_at = 11;
}

// Runs all requests under a configuration; out[i].count is 0 for those not marked deterministic.
static void run(const config *c, bool marked, result *out) {
    llm42_error error;
    llm42_engine *engine;
    llm42_engine_desc desc = c->desc;
    desc.model = model;
    if (!desc.threads) desc.threads = 1;
    if (!desc.window) desc.window = 32, desc.group = M / 32;
    desc.max_context = 512;
    if (!CHECK_MSG(llm42_engine_open(&engine, &desc, &error) == LLM42_OK, "%s: %s", c->name, error.text)) return;
    static int64_t ids[REQUESTS];
    static int order[REQUESTS];
    uint64_t state = c->shuffle;
    for (int i = 0; i < REQUESTS; i++) order[i] = i;
    for (int i = REQUESTS - 1; i > 0 && c->shuffle; i--) {
        int j = test_random_int(&state, 0, i), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    double begin = test_seconds();
    for (int round = 0; round < (c->rounds ? c->rounds : 1); round++) {
        for (int k = 0; k < REQUESTS; k++) {
            const work *w = &requests[order[k]];
            bool mine = marked && (c->ratio == 0 || (order[k] * 37 + 11) % 100 < c->ratio * 100);
            llm42_result got = llm42_engine_submit(engine,
                                                   &(llm42_request_desc){.prompt = text + w->prompt_at,
                                                                         .prompt_count = w->prompt_count,
                                                                         .max_new_tokens = w->outputs,
                                                                         .sampling = w->sampling,
                                                                         .deterministic = mine},
                                                   &ids[order[k]], &error);
            CHECK_MSG(got == LLM42_OK, "%s: %s", c->name, error.text);
            if (c->one_by_one) llm42_engine_run(engine, &error);
        }
        CHECK_INT(llm42_engine_run(engine, &error), LLM42_OK);
    }
    for (int i = 0; i < REQUESTS; i++) {
        const llm42_request *r = llm42_engine_request(engine, ids[i]);
        bool wanted = r->deterministic || !marked || desc.mode == LLM42_BATCH_INVARIANT;
        out[i].count = wanted ? r->committed : 0;
        if (!wanted) continue;
        memcpy(out[i].tokens, r->tokens, sizeof *r->tokens * (size_t)r->committed);
        memcpy(out[i].logprobs, r->logprobs, sizeof *r->logprobs * (size_t)r->committed);
    }
    totals = llm42_engine_stats(engine);
    CHECK_MSG(totals.preemptions >= c->preempts, "%s: %lld preemptions, expected %d", c->name,
              (long long)totals.preemptions, c->preempts);
    CHECK_INT(totals.pages_free, llm42_engine_config(engine)->pages);
    llm42_engine_close(engine);
    int64_t marked_passes = totals.passes[LLM42_FIXED];
    printf("  %-34s %5.1f s, %6lld passes, %5lld replayed, %4lld rollbacks, recompute %5.2f%%, %3lld preemptions, "
           "%5lld prefix hits\n",
           c->name, test_seconds() - begin,
           (long long)(totals.passes[LLM42_FAST] + marked_passes + totals.passes[LLM42_INVARIANT]),
           (long long)marked_passes, (long long)totals.rollbacks,
           100.0 * (double)totals.recomputed / (double)totals.returned_tokens, (long long)totals.preemptions,
           (long long)totals.prefix_hits);
    fflush(stdout);
}

typedef struct difference {
    int requests, token_requests, compared;
} difference;

static difference compare(const result *a, const result *b) {
    difference d = {0};
    for (int i = 0; i < REQUESTS; i++) {
        if (!a[i].count || !b[i].count) continue;
        d.compared++;
        size_t n = (size_t)a[i].count;
        bool tokens = a[i].count != b[i].count || memcmp(a[i].tokens, b[i].tokens, n * sizeof *a[i].tokens) != 0;
        d.token_requests += tokens;
        d.requests += tokens || memcmp(a[i].logprobs, b[i].logprobs, n * sizeof *a[i].logprobs) != 0;
    }
    return d;
}

static result got[REQUESTS];

static void must_match(const result *reference, const config *c) {
    run(c, true, got);
    difference d = compare(reference, got);
    CHECK_MSG(d.requests == 0 && d.compared > 0, "%s: %d of %d requests differ (%d in their tokens)", c->name,
              d.requests, d.compared, d.token_requests);
    checked += d.compared;
    configurations++;
}

// What the others are compared with.
TEST(alone_in_the_engine) {
    run(&(config){.name = "alone (reference)", .one_by_one = true}, true, alone);
    const double rollbacks = (double)totals.rollbacks;
    printf("  alone: flip rate %.3f%% of compared candidates, %.0f rollbacks in %lld verifications, recompute %.2f%%\n",
           100 * rollbacks / (double)totals.compared, rollbacks, (long long)totals.verifications,
           100.0 * (double)totals.recomputed / (double)totals.returned_tokens);
    CHECK_MSG(TEST_SLOW || totals.rollbacks > 0, "no natural rollback in %lld candidates", (long long)totals.compared);
}

TEST(dvr_packed) {
    const config configs[] = {
        {.name = "among 3 others", .desc = {.max_running = 4}},
        {.name = "among 7 others", .desc = {.max_running = 8}},
        {.name = "among 15 others", .desc = {.max_running = 16}},
        {.name = "among 31 others", .desc = {.max_running = 32}},
        {.name = "shuffled, among 15", .desc = {.max_running = 16}, .shuffle = 1},
        {.name = "shuffled again, among 7", .desc = {.max_running = 8}, .shuffle = 2},
        {.name = "pages of 1 token", .desc = {.max_running = 16, .page_size = 1}},
        {.name = "pages of 16 tokens, WAIT", .desc = {.max_running = 16, .page_size = 16, .verify = LLM42_VERIFY_WAIT}},
        {.name = "pages of 64 tokens", .desc = {.max_running = 16, .page_size = 64}},
        {.name = "2 threads", .desc = {.max_running = 16, .threads = 2}},
        {.name = "WAIT, look-ahead 5, deadline 3",
         .desc = {.max_running = 12, .verify = LLM42_VERIFY_WAIT, .look_ahead = 5, .deadline = 3}},
        {.name = "WAIT, look-ahead 100",
         .desc = {.max_running = 24, .verify = LLM42_VERIFY_WAIT, .look_ahead = 100, .deadline = 200}},
        {.name = "prefix cache, cold", .desc = {.max_running = 16, .prefix_cache = true}},
        {.name = "prefix cache, warm", .desc = {.max_running = 16, .prefix_cache = true}, .rounds = 2},
        {.name = "prefix cache, pages of 1, WAIT",
         .desc = {.max_running = 8, .prefix_cache = true, .page_size = 1, .verify = LLM42_VERIFY_WAIT}},
        {.name = "prefix cache, half unmarked",
         .desc = {.max_running = 16, .prefix_cache = true},
         .ratio = 0.5,
         .rounds = 2},
        {.name = "small KV pool", .desc = {.max_running = 16, .pages = 60}, .preempts = TEST_SLOW ? 1 : 5},
        {.name = "small KV pool, WAIT, prefix cache",
         .desc = {.max_running = 16, .pages = 60, .verify = LLM42_VERIFY_WAIT, .prefix_cache = true},
         .shuffle = 3,
         .preempts = TEST_SLOW ? 1 : 5},
        {.name = "small KV pool, half unmarked",
         .desc = {.max_running = 16, .pages = 60, .prefix_cache = true},
         .ratio = 0.5,
         .preempts = TEST_SLOW ? 1 : 5},
        {.name = "a tenth marked", .desc = {.max_running = 32}, .ratio = 0.1},
        {.name = "half marked", .desc = {.max_running = 16}, .ratio = 0.5},
        {.name = "half marked, WAIT, shuffled",
         .desc = {.max_running = 16, .verify = LLM42_VERIFY_WAIT},
         .ratio = 0.5,
         .shuffle = 4},
        {.name = "W 16, G 8", .desc = {.max_running = 16, .window = 16, .group = 8}},
        {.name = "W 64, G 2", .desc = {.max_running = 16, .window = 64, .group = 2}},
        {.name = "W 128, G 1", .desc = {.max_running = 8, .window = 128, .group = 1}},
        {.name = "W 2, G 64, WAIT", .desc = {.max_running = 32, .window = 2, .group = 64, .verify = LLM42_VERIFY_WAIT}},
        {.name = "no bonus token", .desc = {.max_running = 16, .bonus = LLM42_BONUS_OFF}},
        {.name = "no bonus token, WAIT, W 16",
         .desc = {.max_running = 16, .bonus = LLM42_BONUS_OFF, .verify = LLM42_VERIFY_WAIT, .window = 16, .group = 8}},
        {.name = "token budget 32", .desc = {.max_running = 16, .token_budget = 32}, .ratio = 0.5},
        {.name = "5% of candidates made wrong", .desc = {.max_running = 16, .inject_rate = 0.05}},
        {.name = "10% made wrong, WAIT",
         .desc = {.max_running = 16, .inject_rate = 0.1, .verify = LLM42_VERIFY_WAIT, .prefix_cache = true}},
    };
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i += TEST_SLOW ? 2 : 1) must_match(alone, &configs[i]);
}

// The paper's prefill has a promise of its own, and its bits are not those of PACKED.
TEST(dvr_isolated) {
    static result isolated[REQUESTS];
    run(&(config){.name = "ISOLATED, alone (reference)",
                  .desc = {.prefill = LLM42_PREFILL_ISOLATED},
                  .one_by_one = true},
        true, isolated);
    const config configs[] = {
        {.name = "ISOLATED, among 15, W 16",
         .desc = {.prefill = LLM42_PREFILL_ISOLATED, .max_running = 16, .window = 16, .group = 8}},
        {.name = "ISOLATED, small KV pool, WAIT",
         .desc = {.prefill = LLM42_PREFILL_ISOLATED, .max_running = 16, .pages = 60, .verify = LLM42_VERIFY_WAIT},
         .preempts = TEST_SLOW ? 1 : 5},
        {.name = "ISOLATED, half marked, prefix cache",
         .desc = {.prefill = LLM42_PREFILL_ISOLATED, .max_running = 16, .prefix_cache = true},
         .ratio = 0.5},
    };
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) must_match(isolated, &configs[i]);
    difference d = compare(alone, isolated);
    printf("  PACKED against ISOLATED: %d of %d requests differ, %d in their tokens (allowed)\n", d.requests,
           d.compared, d.token_requests);
}

// So has prefill INVARIANT. M is 32 here: at 128 rows FIXED cuts no matrix sum, as INVARIANT never does.
TEST(dvr_invariant_prefill) {
    static result reference[REQUESTS], packed[REQUESTS];
#define W8 .window = 8, .group = 4
#define INVARIANT .prefill = LLM42_PREFILL_INVARIANT, W8
    run(&(config){.name = "INVARIANT prompts, alone (reference)", .desc = {INVARIANT}, .one_by_one = true}, true,
        reference);
    const config configs[] = {
        {.name = "INVARIANT prompts, among 15", .desc = {INVARIANT, .max_running = 16}},
        {.name = "INVARIANT prompts, half marked, WAIT",
         .desc = {INVARIANT, .max_running = 32, .verify = LLM42_VERIFY_WAIT},
         .ratio = 0.5,
         .shuffle = 6},
        {.name = "INVARIANT prompts, token budget 32",
         .desc = {INVARIANT, .max_running = 16, .token_budget = 32},
         .ratio = 0.5},
        {.name = "INVARIANT prompts, whole",
         .desc = {INVARIANT, .max_running = 16, .chunked_prefill = LLM42_CHUNKED_OFF}},
        {.name = "INVARIANT prompts, W 32, G 1",
         .desc = {.prefill = LLM42_PREFILL_INVARIANT, .window = 32, .group = 1, .max_running = 8},
         .ratio = 0.2},
        {.name = "INVARIANT prompts, cache, half, warm",
         .desc = {INVARIANT, .max_running = 16, .prefix_cache = true},
         .ratio = 0.5,
         .rounds = 2},
        {.name = "INVARIANT prompts, small pool",
         .desc = {INVARIANT, .max_running = 16, .pages = 60, .token_budget = 40},
         .preempts = TEST_SLOW ? 1 : 5},
        {.name = "INVARIANT prompts, small pool, cache",
         .desc = {INVARIANT, .max_running = 16, .pages = 240, .page_size = 4, .prefix_cache = true,
                  .verify = LLM42_VERIFY_WAIT, .inject_rate = 0.05},
         .ratio = 0.5,
         .shuffle = 7,
         .preempts = TEST_SLOW ? 1 : 5},
    };
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) must_match(reference, &configs[i]);
    run(&(config){.name = "PACKED, M = 32, among 15", .desc = {W8, .max_running = 16}}, true, packed);
#undef INVARIANT
#undef W8
    difference d = compare(packed, reference);
    CHECK_MSG(TEST_SLOW || d.requests > 0,
              "prompts of FIXED and of INVARIANT rows gave the same bits: sharing them would not show");
    printf("  PACKED against INVARIANT prompts: %d of %d requests differ, %d in their tokens (allowed)\n", d.requests,
           d.compared, d.token_requests);
}

// With the INVARIANT verifier W, G and the prefill do not matter either: the result is that of mode BATCH_INVARIANT.
// Mode HYBRID chooses by measured times, so its passes differ from run to run, and its result does not.
static void one_result(const result *reference) {
    static const llm42_prefill prefills[] = {LLM42_PREFILL_PACKED, LLM42_PREFILL_ISOLATED, LLM42_PREFILL_INVARIANT};
    static const char *const words[] = {"PACKED", "ISOLATED", "INVARIANT"};
    printf("  the INVARIANT verifier, by prefill:\n");
    static const config configs[] = {
        {.name = "alone", .one_by_one = true},
        {.name = "among 3, W 8, G 4", .desc = {.max_running = 4, .window = 8, .group = 4}},
        {.name = "among 31, WAIT", .desc = {.max_running = 32, .verify = LLM42_VERIFY_WAIT}, .shuffle = 8},
        {.name = "W 128, G 1, no bonus token",
         .desc = {.max_running = 8, .window = 128, .group = 1, .bonus = LLM42_BONUS_OFF}},
        {.name = "W 2, G 64, WAIT", .desc = {.max_running = 32, .window = 2, .group = 64, .verify = LLM42_VERIFY_WAIT}},
        {.name = "W 1, pages of 1 token", .desc = {.max_running = 16, .window = 1, .group = 5, .page_size = 1}},
        {.name = "a tenth marked, OLDEST",
         .desc = {.max_running = 32, .window = 16, .group = 8, .fill = LLM42_FILL_OLDEST},
         .ratio = 0.1},
        {.name = "half, WAIT, deadline 3",
         .desc = {.max_running = 12, .verify = LLM42_VERIFY_WAIT, .deadline = 3},
         .ratio = 0.5},
        {.name = "whole prompts",
         .desc = {.max_running = 16, .window = 64, .group = 8, .chunked_prefill = LLM42_CHUNKED_OFF},
         .ratio = 0.5},
        {.name = "token budget 32, W 64", .desc = {.max_running = 16, .token_budget = 32, .window = 64, .group = 2}},
        {.name = "prefix cache, warm", .desc = {.max_running = 16, .prefix_cache = true}, .rounds = 2},
        {.name = "small pool", .desc = {.max_running = 16, .pages = 60}, .ratio = 0.7, .preempts = 1},
        {.name = "small pool, cache, WAIT",
         .desc = {.max_running = 16, .pages = 240, .page_size = 4, .prefix_cache = true, .verify = LLM42_VERIFY_WAIT},
         .ratio = 0.5,
         .shuffle = 9,
         .preempts = 1},
        {.name = "5% made wrong, cache", .desc = {.max_running = 16, .inject_rate = 0.05, .prefix_cache = true}},
    };
    for (size_t p = 0; p < sizeof prefills / sizeof *prefills; p++)
        for (size_t i = 0; i < sizeof configs / sizeof *configs; i += (p ? 2 : 1) * (TEST_SLOW ? 2 : 1)) {
            char name[64];
            config c = configs[i];
            snprintf(name, sizeof name, "%s, %s", words[p], c.name);
            c.name = name;
            c.desc.verifier = LLM42_VERIFIER_INVARIANT, c.desc.prefill = prefills[p];
            must_match(reference, &c);
            CHECK_INT(totals.passes[LLM42_FIXED], 0);
            CHECK_MSG(totals.verifications > 0, "%s: nothing was verified", name);
        }
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i += TEST_SLOW ? 3 : 1) {
        char name[64];
        config c = configs[i];
        snprintf(name, sizeof name, "HYBRID, %s", c.name);
        c.name = name, c.desc.mode = LLM42_HYBRID, c.desc.prefill = prefills[i % 3];
        must_match(reference, &c);
        CHECK_INT(totals.passes[LLM42_FIXED], 0);
    }
}

TEST(batch_invariant) {
    static result reference[REQUESTS];
    run(&(config){.name = "BATCH_INVARIANT, alone (reference)",
                  .desc = {.mode = LLM42_BATCH_INVARIANT},
                  .one_by_one = true},
        true, reference);
    const config configs[] = {
        {.name = "BATCH_INVARIANT, among 31", .desc = {.mode = LLM42_BATCH_INVARIANT, .max_running = 32}},
        {.name = "BATCH_INVARIANT, small pool, cache",
         .desc = {.mode = LLM42_BATCH_INVARIANT, .max_running = 16, .pages = 60, .prefix_cache = true},
         .shuffle = 5,
         .preempts = 1},
    };
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) must_match(reference, &configs[i]);
    one_result(reference);
}

// Controls: with a part of the protocol left out the same comparison must fail.
TEST(controls) {
    static result a[REQUESTS], b[REQUESTS];
    run(&(config){.name = "control: unmarked, alone", .one_by_one = true}, false, a);
    run(&(config){.name = "control: unmarked, among 15", .desc = {.max_running = 16}}, false, b);
    difference d = compare(a, b);
    int64_t first = 0, second = 0, length = 0;
    for (int i = 0; i < REQUESTS; i++) {
        int x, y;
        llm42_consistent_spans(a[i].tokens, a[i].count, b[i].tokens, b[i].count, &x, &y);
        if (x == a[i].count) continue;
        first += x;
        second += y;
        length += a[i].count;
    }
    double drifted = d.token_requests ? d.token_requests : 1;
    printf("  unmarked: %d of %d requests drift in a bit, %d in their tokens; of those %d the consistent spans are "
           "first %.1f, "
           "second %.2f of %.1f tokens (means)\n",
           d.requests, d.compared, d.token_requests, d.token_requests, (double)first / drifted,
           (double)second / drifted, (double)length / drifted);
    CHECK_MSG(d.token_requests > 0, "unmarked requests did not drift: the fast schedule does not depend on the batch");

    run(&(config){.name = "control: KV overwrite left out", .desc = {.max_running = 16, .keep_fast_kv = true}}, true,
        b);
    d = compare(alone, b);
    printf("  KV overwrite left out: %d of %d requests differ in a bit, %d in their tokens\n", d.requests, d.compared,
           d.token_requests);
    CHECK_MSG(d.requests > 0, "leaving out the KV overwrite changed nothing");

    run(&(config){.name = "control: the same, INVARIANT verifier",
                  .desc = {.max_running = 16, .keep_fast_kv = true, .verifier = LLM42_VERIFIER_INVARIANT}},
        true, a);
    run(&(config){.name = "BATCH_INVARIANT", .desc = {.mode = LLM42_BATCH_INVARIANT}}, true, b);
    d = compare(a, b);
    CHECK_MSG(d.requests > 0, "leaving out the KV overwrite changed nothing with the INVARIANT verifier");
    run(&(config){.name = "M = 32", .desc = {.max_running = 16, .window = 8, .group = 4}}, true, a);
    d = compare(a, b);
    CHECK_MSG(d.requests > 0, "the FIXED and the INVARIANT verifier gave the same bits: M would not matter");
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    llm42_error error;
    if (!CHECK_MSG(llm42_model_load(&model, &(llm42_model_desc){.path = "examples/tiny42"}, &error) == LLM42_OK, "%s",
                   error.text))
        return test_end("test_determinism");
    make_requests();
    RUN_FIRST(alone_in_the_engine);
    RUN(dvr_packed);
    RUN(dvr_isolated);
    RUN(dvr_invariant_prefill);
    RUN(batch_invariant);
    RUN(controls);
    printf("  %lld comparisons of a request with its reference, in %lld configurations\n", (long long)checked,
           (long long)configurations);
    llm42_model_free(model);
    return test_end("test_determinism");
}
