// The promise, on examples/tiny42 in bf16. 100 deterministic requests have one result, tokens and log-probability bits,
// under every load and each of the presets dvr, best and invariant. It is also that of scoring the finished text. With
// the paper's verifier FIXED there is one result for one M and one prefill. Controls leave something out and differ.
#include "test.h"
#define LLM42_METRICS_IMPLEMENTATION
#include "examples/util/llm42_metrics.h"

enum { REQUESTS = TEST_SLOW ? 9 : 100, LONGEST_PROMPT = 300, LONGEST_OUTPUT = TEST_SLOW ? 80 : 200 };
enum { TEXT = TEST_SLOW ? 400 : 1600 };

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
static result canonical[REQUESTS];  // each request by itself, by the default preset

typedef struct config {
    const char *name;
    llm42_engine_desc desc;
    double ratio;      // share of the requests marked deterministic; 0: all
    double spread;     // seconds over which the requests arrive
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
    if (llm42_engine_open(&engine, &(llm42_engine_desc){.model = model, .backend_desc = TEST_THREADS(1)}, &error))
        printf("%s\n", error.text), exit(1);
    llm42_engine_submit(engine,
                        &(llm42_request_desc)TEST_LIST(.prompt = start, .prompt_count = 8, .max_new_tokens = TEXT - 8,
                                                       .ignore_stop = true, .deterministic = true,
                                                       .sampling = {.temperature = 1, .top_p = 0.95f}),
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
            w->sampling = (llm42_sampling)TEST_LIST(.temperature = 0.8f, .top_p = i % 4 == 1 ? 0.9f : 0,
                                                    .top_k = i % 6 == 1 ? 40 : 0, .min_p = i % 10 == 1 ? 0.02f : 0,
                                                    .seed = 1 + (uint64_t)i);
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
    if (!desc.backend_desc) desc.backend_desc = TEST_THREADS(1);
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
            double arrives = c->spread ? llm42_engine_now(engine) + c->spread * k / REQUESTS : 0;
            bool mine = marked && (c->ratio == 0 || (order[k] * 37 + 11) % 100 < c->ratio * 100);
            llm42_result got = llm42_engine_submit(
                engine,
                &(llm42_request_desc)TEST_LIST(.prompt = text + w->prompt_at, .prompt_count = w->prompt_count,
                                               .max_new_tokens = w->outputs, .sampling = w->sampling,
                                               .deterministic = mine, .arrival = arrives),
                &ids[order[k]], &error);
            CHECK_MSG(got == LLM42_OK, "%s: %s", c->name, error.text);
            if (c->one_by_one) llm42_engine_run(engine, &error);
        }
        CHECK_INT(llm42_engine_run(engine, &error), LLM42_OK);
    }
    const bool every = llm42_engine_config(engine)->policy.mode == LLM42_MODE_BATCH_INVARIANT;
    for (int i = 0; i < REQUESTS; i++) {
        const llm42_request *r = llm42_engine_request(engine, ids[i]);
        bool wanted = r->deterministic || !marked || every;
        out[i].count = wanted ? r->committed : 0;
        if (!wanted) continue;
        memcpy(out[i].tokens, r->tokens, sizeof *r->tokens * (size_t)r->committed);
        memcpy(out[i].logprobs, r->logprobs, sizeof *r->logprobs * (size_t)r->committed);
    }
    totals = llm42_engine_stats(engine);
    CHECK_MSG(totals.preemptions >= c->preempts, "%s: %lld preemptions, expected %d", c->name,
              (long long)totals.preemptions, c->preempts);
    CHECK_INT(totals.pages_free, llm42_engine_config(engine)->kv.pages);
    llm42_engine_close(engine);
    printf("  %-44s %4.1f s, passes %5lld FAST %5lld INVARIANT %5lld FIXED, %4lld rollbacks, recompute %5.2f%%, %3lld "
           "preemptions, %5lld prefix hits\n",
           c->name, test_seconds() - begin, (long long)totals.passes[LLM42_SCHEDULE_FAST],
           (long long)totals.passes[LLM42_SCHEDULE_INVARIANT], (long long)totals.passes[LLM42_SCHEDULE_FIXED],
           (long long)totals.rollbacks, 100.0 * (double)totals.recomputed / (double)totals.returned_tokens,
           (long long)totals.preemptions, (long long)totals.prefix_hits);
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
    run(&(config){.name = "alone (reference)", .one_by_one = true}, true, canonical);
    const double rollbacks = (double)totals.rollbacks;
    printf("  alone: flip rate %.3f%% of compared candidates, %.0f rollbacks in %lld verifications, recompute %.2f%%\n",
           100 * rollbacks / (double)totals.compared, rollbacks, (long long)totals.verifications,
           100.0 * (double)totals.recomputed / (double)totals.returned_tokens);
    CHECK_MSG(TEST_SLOW || totals.rollbacks > 0, "no natural rollback in %lld candidates", (long long)totals.compared);
}

// >>one result ----------------------------------------------------------------------------------------------------
enum { SMALL = 1 };  // preemptions that a small KV pool must bring
static const config loads[] = {
    {.name = "among 3, W 8, G 4", .desc = {.max_running = 4, .policy.window = 8, .policy.group = 4}},
    {.name = "among 31, EAGER, shuffled",
     .desc = {.max_running = 32, .policy.verify = LLM42_VERIFY_EAGER},
     .shuffle = 8},
    {.name = "among 63, arriving", .desc = {.max_running = 64, .kv.prefix_cache = true}, .spread = 0.2},
    TEST_LIST(.name = "pages of 1 token, W 1, PACKED",
              .desc = TEST_LIST(.max_running = 16, .kv.page_size = 1, .policy.window = 1, .policy.group = 5,
                                .policy.prefill = LLM42_PREFILL_PACKED)),
    TEST_LIST(.name = "pages of 64, W 128, G 1, no bonus token",
              .desc = TEST_LIST(.max_running = 8, .kv.page_size = 64, .policy.window = 128, .policy.group = 1,
                                .experiment.bonus = LLM42_BONUS_OFF)),
    TEST_LIST(.name = "2 threads, ISOLATED",
              .desc = TEST_LIST(.max_running = 16, .backend_desc = TEST_THREADS(2),
                                .policy.prefill = LLM42_PREFILL_ISOLATED, .policy.window = 16)),
    {.name = "WAIT, deadline 3, half",
     .desc = {.max_running = 12, .policy.verify = LLM42_VERIFY_WAIT, .policy.deadline = 3},
     .ratio = 0.5},
    TEST_LIST(.name = "WAIT, deadline 200, W 2, G 64",
              .desc = TEST_LIST(.max_running = 24, .policy.verify = LLM42_VERIFY_WAIT, .policy.deadline = 200,
                                .policy.window = 2, .policy.group = 64)),
    {.name = "EAGER, a tenth marked",
     .desc = {.max_running = 32, .policy.verify = LLM42_VERIFY_EAGER, .policy.window = 16, .policy.group = 8},
     .ratio = 0.1},
    {.name = "whole prompts, ISOLATED, half",
     .desc = {.max_running = 16, .policy.chunked_prefill = LLM42_CHUNKED_OFF, .policy.prefill = LLM42_PREFILL_ISOLATED},
     .ratio = 0.5},
    TEST_LIST(.name = "token budget 32, W 64, G 2",
              .desc = TEST_LIST(.max_running = 16, .token_budget = 32, .policy.window = 64, .policy.group = 2,
                                .policy.prefill = LLM42_PREFILL_INVARIANT),
              .shuffle = 2),
    {.name = "prefix cache, warm, whole prompts",
     .desc = {.max_running = 16, .kv.prefix_cache = true, .policy.chunked_prefill = LLM42_CHUNKED_OFF},
     .rounds = 2},
    TEST_LIST(.name = "prefix cache, pages of 4, PACKED, half, warm",
              .desc = TEST_LIST(.max_running = 16, .kv.prefix_cache = true, .kv.page_size = 4,
                                .policy.prefill = LLM42_PREFILL_PACKED),
              .ratio = 0.5, .rounds = 2),
    TEST_LIST(.name = "small pool, EAGER",
              .desc = {.max_running = 16, .kv.pages = 60, .policy.verify = LLM42_VERIFY_EAGER}, .ratio = 0.7,
              .preempts = SMALL),
    TEST_LIST(.name = "small pool, cache, 5% made wrong",
              .desc = TEST_LIST(.max_running = 16, .kv.pages = 240, .kv.page_size = 4, .kv.prefix_cache = true,
                                .experiment.inject_rate = 0.05),
              .shuffle = 9, .preempts = SMALL),
    TEST_LIST(.name = "10% made wrong, no bonus token, PACKED",
              .desc = TEST_LIST(.max_running = 16, .experiment.inject_rate = 0.1, .experiment.bonus = LLM42_BONUS_OFF,
                                .policy.prefill = LLM42_PREFILL_PACKED)),
};

TEST(one_result_under_every_load) {
    static const struct {
        const char *name;
        llm42_preset preset;
    } presets[] = {{"dvr", LLM42_PRESET_DVR}, {"best", LLM42_PRESET_BEST}, {"invariant", LLM42_PRESET_INVARIANT}};
    int64_t before = configurations, verified = 0, rollbacks = 0, chosen = 0;
    for (int p = 0; p < 3; p++)
        for (size_t i = 0; i < sizeof loads / sizeof *loads; i += TEST_SLOW ? 9 : 1) {
            char name[64];
            config c = loads[i];
            if (p == 2 && i % 2) continue;  // one kind of pass: half of the loads will do
            snprintf(name, sizeof name, "%s, %s", presets[p].name, c.name);
            c.name = name, c.desc.preset = presets[p].preset;
            must_match(canonical, &c);
            CHECK_INT(totals.passes[LLM42_SCHEDULE_FIXED], 0);
            if (p == 0) CHECK_MSG(totals.verifications > 0, "%s: nothing was verified", name);
            if (p == 2) CHECK_INT(totals.passes[LLM42_SCHEDULE_FAST] + totals.verifications, 0);
            verified += totals.verifications, rollbacks += totals.rollbacks;
            chosen += p == 1 && totals.passes[LLM42_SCHEDULE_FAST] && totals.passes[LLM42_SCHEDULE_INVARIANT];
        }
    CHECK(verified > 0 && chosen > 0);
    CHECK(TEST_SLOW || rollbacks > 0);
    CHECK(TEST_SLOW || configurations - before >= 40);
}

// Scores a finished text, 37 rows in a pass, and compares the tokens and log-probabilities that were generated.
static void score(const work *w, const result *r) {
    enum { ROWS = 37, PAGES = 32 };
    const llm42_backend *cpu = llm42_backend_cpu();
    const llm42_backend_desc desc = TEST_LIST(.model = model, .numerics.compute = LLM42_DTYPE_BF16,
                                              .backend_desc = TEST_THREADS(1), .max_rows = ROWS, .max_context = 512,
                                              .pages = PAGES, .page_size = 16);
    llm42_error error;
    void *state = NULL;
    int32_t pages[PAGES];
    if (!CHECK_INT(cpu->open(&state, &desc, &error), LLM42_OK)) return;
    for (int i = 0; i < PAGES; i++) pages[i] = PAGES - 1 - i;
    llm42_seq seq = {.pages = pages, .sampling = w->sampling};
    int last = w->prompt_count + r->count - 2, differ = 0;
    for (int from = 0; from <= last; from += ROWS) {
        llm42_row row[ROWS];
        llm42_output out[ROWS];
        int rows = last + 1 - from < ROWS ? last + 1 - from : ROWS;
        for (int i = 0; i < rows; i++) {
            int t = from + i - w->prompt_count;
            row[i] = (llm42_row){0, from + i, t < 0 ? text[w->prompt_at + from + i] : r->tokens[t], LLM42_ROW_SAMPLE};
        }
        llm42_pass pass = {
            .schedule = LLM42_SCHEDULE_INVARIANT, .rows = rows, .shape = rows, .row = row, .seq = &seq, .out = out};
        CHECK_INT(cpu->run(state, &pass, &error), LLM42_OK);
        for (int i = 0; i < rows; i++) {
            int t = from + i + 1 - w->prompt_count;
            if (t < 0) continue;
            differ += out[i].token != r->tokens[t] || memcmp(&out[i].logprob, &r->logprobs[t], sizeof(float)) != 0;
        }
    }
    CHECK_MSG(!differ, "scoring gives another token or other bits at %d of %d places", differ, r->count);
    cpu->close(state);
}

TEST(it_is_that_of_scoring) {
    for (int i = 0; i < REQUESTS; i += 7) score(&requests[i], &canonical[i]);  // greedy and sampled ones
}

// >>the FIXED verifier --------------------------------------------------------------------------------------------
#define M128 .policy.verifier = LLM42_VERIFIER_FIXED, .policy.window = 32, .policy.group = 4
#define PACKED .policy.prefill = LLM42_PREFILL_PACKED
#define EAGER .policy.verify = LLM42_VERIFY_EAGER
TEST(fixed_packed) {
    static result alone[REQUESTS];
    run(&(config){.name = "FIXED, PACKED, alone (reference)", .desc = {M128, PACKED, EAGER}, .one_by_one = true}, true,
        alone);
    const config configs[] = {
        {.name = "FIXED, among 31, shuffled", .desc = {M128, PACKED, EAGER, .max_running = 32}, .shuffle = 1},
        {.name = "FIXED, pages of 1 token, WAIT", .desc = {M128, PACKED, .max_running = 16, .kv.page_size = 1}},
        {.name = "FIXED, 2 threads, W 128, G 1",
         .desc = {PACKED, EAGER, .policy.verifier = LLM42_VERIFIER_FIXED, .max_running = 16,
                  .backend_desc = TEST_THREADS(2), .policy.window = 128, .policy.group = 1}},
        {.name = "FIXED, WAIT, W 2, G 64",
         .desc = {PACKED, .policy.verifier = LLM42_VERIFIER_FIXED, .max_running = 32, .policy.window = 2,
                  .policy.group = 64}},
        TEST_LIST(.name = "FIXED, prefix cache, half, warm",
                  .desc = {M128, PACKED, EAGER, .max_running = 16, .kv.prefix_cache = true}, .ratio = 0.5, .rounds = 2),
        TEST_LIST(.name = "FIXED, small pool, cache, WAIT",
                  .desc = {M128, PACKED, .max_running = 16, .kv.pages = 60, .kv.prefix_cache = true}, .shuffle = 3,
                  .preempts = SMALL),
        {.name = "FIXED, token budget 32, a tenth, no bonus",
         .desc = {M128, PACKED, EAGER, .max_running = 16, .token_budget = 32, .experiment.bonus = LLM42_BONUS_OFF},
         .ratio = 0.1},
        {.name = "FIXED, 10% made wrong",
         .desc = {M128, PACKED, EAGER, .max_running = 16, .experiment.inject_rate = 0.1}},
    };
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i += TEST_SLOW ? 6 : 1) must_match(alone, &configs[i]);
    if (TEST_SLOW) return;
    static result no_overwrite[REQUESTS];
    run(&(config){.name = "control: FIXED, KV overwrite left out",
                  .desc = {M128, PACKED, EAGER, .max_running = 16, .experiment.keep_fast_kv = true}},
        true, no_overwrite);
    CHECK_MSG(compare(alone, no_overwrite).requests > 0, "leaving out the KV overwrite changed nothing");
}

// The paper's prefill ISOLATED has a promise of its own.
TEST(the_paper) {
    static result alone[REQUESTS];
#define PAPER .preset = LLM42_PRESET_PAPER
    run(&(config){.name = "paper, alone (reference)", .desc = {PAPER}, .one_by_one = true}, true, alone);
    const config configs[] = {
        {.name = "paper, among 15", .desc = {PAPER, .max_running = 16}},
        TEST_LIST(.name = "paper, the same M, small pool, WAIT",
                  .desc = {PAPER, .max_running = 16, .kv.pages = 60, .policy.verify = LLM42_VERIFY_WAIT,
                           .policy.window = 32, .policy.group = 16},
                  .preempts = SMALL),
        {.name = "paper, half marked, prefix cache",
         .desc = {PAPER, .max_running = 16, .kv.prefix_cache = true},
         .ratio = 0.5},
    };
#undef PAPER
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i += TEST_SLOW ? 2 : 1) must_match(alone, &configs[i]);
    difference d = compare(canonical, alone);
    printf("  paper against the canonical result: %d of %d requests differ, %d in their tokens\n", d.requests,
           d.compared, d.token_requests);
    CHECK_MSG(d.requests > 0, "the paper's verifier gave the canonical bits: nothing tells them apart");
}

// So has prefill INVARIANT. M is 32 here: at 128 rows FIXED cuts no matrix sum, as INVARIANT never does.
TEST(fixed_with_invariant_prefill) {
    static result alone[REQUESTS], packed[REQUESTS];
#define M32 .policy.verifier = LLM42_VERIFIER_FIXED, .policy.window = 8, .policy.group = 4
#define RIDING .policy.prefill = LLM42_PREFILL_INVARIANT, M32
    run(&(config){.name = "FIXED, INVARIANT prompts, alone (reference)", .desc = {RIDING, EAGER}, .one_by_one = true},
        true, alone);
    const config configs[] = {
        TEST_LIST(.name = "FIXED, INVARIANT prompts, half, WAIT", .desc = {RIDING, .max_running = 32}, .ratio = 0.5,
                  .shuffle = 6),
        {.name = "FIXED, INVARIANT prompts, token budget 32",
         .desc = {RIDING, EAGER, .max_running = 16, .token_budget = 32},
         .ratio = 0.5},
        TEST_LIST(.name = "FIXED, INVARIANT prompts, whole, cache, warm",
                  .desc = {RIDING, EAGER, .max_running = 16, .policy.chunked_prefill = LLM42_CHUNKED_OFF,
                           .kv.prefix_cache = true},
                  .ratio = 0.5, .rounds = 2),
        TEST_LIST(.name = "FIXED, INVARIANT prompts, small pool, cache",
                  .desc = {RIDING, .max_running = 16, .kv.pages = 240, .kv.page_size = 4, .kv.prefix_cache = true,
                           .experiment.inject_rate = 0.05},
                  .ratio = 0.5, .shuffle = 7, .preempts = SMALL),
    };
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i += TEST_SLOW ? 2 : 1) must_match(alone, &configs[i]);
    if (TEST_SLOW) return;
    run(&(config){.name = "FIXED, PACKED, M = 32", .desc = {PACKED, M32, EAGER, .max_running = 16}}, true, packed);
#undef RIDING
#undef M32
    CHECK_MSG(compare(packed, alone).requests > 0,
              "prompts of FIXED and of INVARIANT rows gave the same bits: sharing them would not show");
    CHECK_MSG(compare(packed, canonical).requests > 0,
              "the FIXED and the INVARIANT verifier gave the same bits: M would not matter");
}
#undef EAGER
#undef PACKED
#undef M128

// >>controls ------------------------------------------------------------------------------------------------------
// With a part of the protocol left out the same comparison must fail.
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
           "first %.1f, second %.2f of %.1f tokens (means)\n",
           d.requests, d.compared, d.token_requests, d.token_requests, (double)first / drifted,
           (double)second / drifted, (double)length / drifted);
    CHECK_MSG(d.token_requests > 0, "unmarked requests did not drift: the fast schedule does not depend on the batch");
    CHECK_MSG(compare(canonical, b).token_requests > 0, "unmarked requests have the canonical tokens");

    run(&(config){.name = "control: KV overwrite left out",
                  .desc = {.max_running = 16, .experiment.keep_fast_kv = true}},
        true, b);
    d = compare(canonical, b);
    printf("  KV overwrite left out: %d of %d requests differ in a bit, %d in their tokens\n", d.requests, d.compared,
           d.token_requests);
    CHECK_MSG(d.requests > 0, "leaving out the KV overwrite changed nothing");

    // No token passes the first gate, and nearly every one passes the second, so that its KV stays as it is.
    const double gates[] = {INFINITY, 1e-9};
    for (int i = 0; i < 2; i++) {
        run(&(config){.name = "a margin gate", .desc = {.max_running = 16, .experiment.gate = gates[i]}}, true, b);
        d = compare(canonical, b);
        printf("  gate %g: %lld tokens passed, and %d of %d requests differ in a bit, %d in their tokens\n", gates[i],
               (long long)totals.gated, d.requests, d.compared, d.token_requests);
        CHECK_MSG(i ? d.token_requests > 0 && totals.gated > totals.candidates : !d.requests && !totals.gated,
                  "gate %g: %d requests differ, %lld tokens passed", gates[i], d.requests, (long long)totals.gated);
    }
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    model = test_load("examples/tiny42");
    make_requests();
    RUN_FIRST(alone_in_the_engine);
    RUN(one_result_under_every_load, it_is_that_of_scoring, fixed_packed, the_paper, fixed_with_invariant_prefill);
    if (!TEST_SLOW) RUN(controls);  // they compare results, and are passes like others to a sanitizer
    printf("  %lld comparisons of a request with its reference, in %lld configurations\n", (long long)checked,
           (long long)configurations);
    llm42_model_free(model);
    return test_end("test_determinism");
}
