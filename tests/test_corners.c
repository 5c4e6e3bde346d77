// The corners of the protocol, by name. Most are looked at twice: with the library's defaults, and with the paper's
// verifier FIXED, whose replay passes have M rows. Wrong candidates are made by a backend that stands in front of the
// CPU's and changes chosen tokens of its fast passes, so every mismatch sits exactly where a test wants it.
#include "test.h"
#include "make_model.h"
#define LLM42_IMPLEMENTATION
#include "examples/util/llm42_synthetic.h"
#include "examples/util/llm42_policies.h"
#define LLM42_METRICS_IMPLEMENTATION
#include "examples/util/llm42_metrics.h"

#include <signal.h>
#include <sys/wait.h>

enum { MOST = 256, PROMPT = 12 };

// >>the backend in front -----------------------------------------------------------------------------------------
static struct {
    bool wrong[4096];   // positions of rows whose fast token is changed
    int32_t put[4096];  // to this, or to its successor in the vocabulary if 0
    int fail_pass;      // this pass (counted from 1) fails; 0: none
    int passes;
    bool spoil;              // a failing pass leaves NaN in the KV of its rows
    unsigned variant;        // schedules, 1 << each, under which a row's log-probability depends on its place
    bool invariant_as_fast;  // INVARIANT passes run FAST
} front;

static llm42_result front_run(void *state, const llm42_pass *pass, llm42_error *error) {
    if (++front.passes == front.fail_pass) {
        for (int i = 0; front.spoil && i < pass->rows; i++) {
            const llm42__cpu *cpu = state;
            uint16_t *k = (uint16_t *)cpu->k +
                          llm42__cpu_kv_at(cpu, pass->seq[pass->row[i].seq].pages, pass->row[i].position, 0);
            for (int j = 0; j < cpu->pad; j++) k[j] = 0x7fc0;  // NaN in bf16
        }
        snprintf(error->text, sizeof error->text, "the device is gone");
        return error->result = LLM42_BACKEND;
    }
    llm42_pass given = *pass;
    if (front.invariant_as_fast && given.schedule == LLM42_SCHEDULE_INVARIANT) given.schedule = LLM42_SCHEDULE_FAST;
    llm42_result result = llm42_backend_cpu()->run(state, &given, error);
    for (int i = 0; i < pass->rows && result == LLM42_OK; i++) {
        if (front.variant >> pass->schedule & 1) pass->out[i].logprob += (float)i * 1e-3f;
        int at = pass->row[i].position;
        if (pass->schedule != LLM42_SCHEDULE_FAST || !(pass->row[i].flags & LLM42_ROW_SAMPLE) || !front.wrong[at])
            continue;
        pass->out[i].token = front.put[at] ? front.put[at] : (pass->out[i].token + 1) % 2048;
    }
    return result;
}

static const llm42_backend *front_backend(void) {
    static llm42_backend backend;
    backend = *llm42_backend_cpu();
    backend.name = "front";
    backend.run = front_run;
    return &backend;
}

// >>helpers ------------------------------------------------------------------------------------------------------
static llm42_model *model;
static int32_t prompt[PROMPT] = {905, 312, 264, 1108, 283, 1767, 13, 325, 312, 264, 467, 323};
static llm42_error error;

typedef struct run {
    int32_t tokens[MOST];
    float logprobs[MOST];
    int count;
    llm42_finish finish;
    llm42_stats stats;
} run;

// The policies of engines that say nothing else, and the schedule of their replay passes.
typedef struct setting {
    llm42_engine_desc policies;
    llm42_schedule replay;
} setting;
static const setting defaults = {.replay = LLM42_SCHEDULE_INVARIANT};
static const setting fixed = TEST_LIST(.policies = {.policy.verifier = LLM42_VERIFIER_FIXED,
                                                    .policy.verify = LLM42_VERIFY_EAGER,
                                                    .policy.prefill = LLM42_PREFILL_PACKED},
                                       .replay = LLM42_SCHEDULE_FIXED);
static const setting *used = &defaults;

static llm42_engine *open_with(llm42_engine_desc desc) {
    desc.model = model;
    if (!desc.policy.verifier) desc.policy.verifier = used->policies.policy.verifier;
    if (!desc.policy.verify) desc.policy.verify = used->policies.policy.verify;
    if (!desc.policy.prefill) desc.policy.prefill = used->policies.policy.prefill;
    if (!desc.backend_desc) desc.backend_desc = TEST_THREADS(1);
    if (!desc.max_context) desc.max_context = 512;
    if (!desc.backend) desc.backend = front_backend();
    if (!desc.policy.window) desc.policy.window = 8, desc.policy.group = 4;
    return test_open(&desc);
}

static int64_t submit(llm42_engine *engine, llm42_request_desc desc) {
    if (!desc.prompt) desc.prompt = prompt, desc.prompt_count = PROMPT;
    if (!desc.stop_count) desc.ignore_stop = true;
    return test_submit(engine, desc);
}

static void finish(llm42_engine *engine) { CHECK_MSG(llm42_engine_run(engine, &error) == LLM42_OK, "%s", error.text); }

static run take(llm42_engine *engine, int64_t id) {
    const llm42_request *r = llm42_engine_request(engine, id);
    run out = {.count = r->committed, .finish = r->finish, .stats = llm42_engine_stats(engine)};
    memcpy(out.tokens, r->tokens, sizeof *r->tokens * (size_t)r->committed);
    memcpy(out.logprobs, r->logprobs, sizeof *r->logprobs * (size_t)r->committed);
    return out;
}

static run one(llm42_engine_desc desc, llm42_request_desc request) {
    llm42_engine *engine = open_with(desc);
    int64_t id = submit(engine, request);
    finish(engine);
    run out = take(engine, id);
    llm42_engine_close(engine);
    return out;
}

// The desc of a deterministic request.
#define MARKED(...) ((llm42_request_desc){.deterministic = true, __VA_ARGS__})

// The slow oracle: every token goes through a pass of its own, of M rows if it is FIXED.
static run oracle_by(llm42_schedule prompts, llm42_schedule replay, const int32_t *start, int count, int outputs,
                     llm42_sampling sampling) {
    enum { M = 32 };
    const llm42_backend *cpu = llm42_backend_cpu();
    llm42_backend_desc desc = TEST_LIST(.model = model, .numerics.compute = LLM42_DTYPE_BF16,
                                        .backend_desc = TEST_THREADS(1), .max_rows = 1, .max_context = 512, .pages = 32,
                                        .page_size = 16);
    void *state = NULL;
    int32_t pages[32];
    run out = {0};
    CHECK_INT(cpu->open(&state, &desc, &error), LLM42_OK);
    for (int i = 0; i < 32; i++) pages[i] = 31 - i;
    if (!sampling.seed) sampling.seed = 42;
    llm42_seq seq = {.pages = pages, .sampling = sampling};
    for (int t = 0; t < count + outputs - 1; t++) {
        llm42_row row = {0, t, t < count ? start[t] : out.tokens[t - count], LLM42_ROW_SAMPLE};
        llm42_output got;
        llm42_schedule schedule = t < count ? prompts : replay;
        llm42_pass pass = TEST_LIST(.schedule = schedule, .rows = 1, .shape = schedule == LLM42_SCHEDULE_FIXED ? M : 1,
                                    .row = &row, .seq = &seq, .out = &got);
        CHECK_INT(cpu->run(state, &pass, &error), LLM42_OK);
        if (t < count - 1) continue;
        out.tokens[out.count] = got.token;
        out.logprobs[out.count++] = got.logprob;
    }
    cpu->close(state);
    return out;
}

static run oracle(const int32_t *start, int count, int outputs, llm42_sampling sampling) {
    return oracle_by(used->replay, used->replay, start, count, outputs, sampling);
}

// With INVARIANT prompts and the FIXED verifier.
static run mixed_oracle(const int32_t *start, int count, int outputs) {
    return oracle_by(LLM42_SCHEDULE_INVARIANT, LLM42_SCHEDULE_FIXED, start, count, outputs, (llm42_sampling){0});
}

// Are the first tokens and log-probabilities the same, to the bit?
static bool equal(const run *a, const run *b, int count) {
    const size_t n = (size_t)count;
    return !memcmp(a->tokens, b->tokens, n * sizeof *a->tokens) &&
           !memcmp(a->logprobs, b->logprobs, n * sizeof *a->logprobs);
}

static void same(run got, run want, int count, const char *what) {
    CHECK_MSG(got.count == count, "%s: %d tokens, expected %d", what, got.count, count);
    CHECK_MSG(equal(&got, &want, count), "%s: tokens or bits of log-probabilities differ from the oracle's", what);
}

static run reference;        // the oracle's 64 tokens for `prompt`
static run mixed_reference;  // with an INVARIANT prompt and the FIXED verifier

static void use(const setting *s) {
    used = s;
    reference = oracle(prompt, PROMPT, 64, (llm42_sampling){0});
}
// FIXED passes are the largest, to a sanitizer like others; fuzz_engine and test_determinism run them, too.
#define RUN_BOTH(...) (TEST_SLOW ? (void)0 : RUN_FIXED(__VA_ARGS__), use(&defaults), RUN(__VA_ARGS__))
#define RUN_FIXED(...) (use(&fixed), RUN_AS(" (FIXED)", __VA_ARGS__))

static void clear_front(void) { memset(&front, 0, sizeof front); }

// >>corners ------------------------------------------------------------------------------------------------------
TEST(tokens_equal_the_oracle) {
    for (int i = 0; i < 8; i++) {
        llm42_sampling sampling = {
            .temperature = i % 2 ? 0.9f : 0, .top_p = i == 3 ? 0.8f : 0, .top_k = i == 5 ? 20 : 0, .seed = (uint64_t)i};
        int count = 1 + i * 5 % PROMPT;
        run got = one((llm42_engine_desc){0},
                      MARKED(.prompt = prompt, .prompt_count = count, .max_new_tokens = 80, .sampling = sampling));
        same(got, oracle(prompt, count, 80, sampling), 80, "greedy and sampled requests");
    }
}

// A stop token that is not among the first `from` tokens of the reference, and its place there.
static int stop_place(int from) {
    for (int i = from; i < reference.count; i++) {
        bool before = false;
        for (int j = 0; j < i; j++) before |= reference.tokens[j] == reference.tokens[i];
        if (!before) return i;
    }
    return -1;
}

TEST(stop_inside_a_window) {
    for (int from = 0; from < 24; from += TEST_SLOW ? 5 : 1) {
        int at = stop_place(from);
        if (at < 0) break;  // the rest of the text only repeats tokens
        run got = one((llm42_engine_desc){0},
                      MARKED(.max_new_tokens = 64, .stop = &reference.tokens[at], .stop_count = 1));
        same(got, reference, at + 1, "stop token");
        CHECK_INT(got.finish, LLM42_FINISH_STOP);
    }
}

TEST(stop_rolled_back) {
    int32_t stop = 7;
    for (int i = 0; i < 64; i++) CHECK(reference.tokens[i] != stop);
    for (int at = 1; at < 20; at += 3) {  // the fast path claims the end of the text; the verifier disagrees
        if (at % 8 == 0) continue;        // tokens 8 and 16 are the verifier's own: no candidate stands there
        clear_front();
        front.wrong[PROMPT + at - 1] = true;
        front.put[PROMPT + at - 1] = stop;
        run got = one((llm42_engine_desc){0}, MARKED(.max_new_tokens = 40, .stop = &stop, .stop_count = 1));
        same(got, reference, 40, "stop token rolled back");
        CHECK_INT(got.finish, LLM42_FINISH_LENGTH);
        CHECK(got.stats.rollbacks >= 1);
    }
    clear_front();
}

TEST(length_reached_at_every_offset_of_a_window) {
    for (int bonus = LLM42_BONUS_ON; bonus <= LLM42_BONUS_OFF; bonus++)
        for (int verify = LLM42_VERIFY_EAGER; verify <= LLM42_VERIFY_WAIT; verify++)
            for (int n = 1; n <= 20; n += TEST_SLOW ? 6 : 1) {
                run got = one(
                    (llm42_engine_desc){.experiment.bonus = (llm42_bonus)bonus, .policy.verify = (llm42_verify)verify},
                    MARKED(.max_new_tokens = n));
                same(got, reference, n, "length");
                CHECK_INT(got.finish, LLM42_FINISH_LENGTH);
            }
}

TEST(window_of_one) {
    for (int verify = LLM42_VERIFY_EAGER; verify <= LLM42_VERIFY_WAIT; verify++)
        for (int bonus = LLM42_BONUS_ON; bonus <= LLM42_BONUS_OFF; bonus++) {
            run got = one((llm42_engine_desc)TEST_LIST(.policy.window = 1, .policy.group = 32,
                                                       .policy.verify = (llm42_verify)verify,
                                                       .experiment.bonus = (llm42_bonus)bonus),
                          MARKED(.max_new_tokens = 40));
            same(got, reference, 40, "W = 1");
        }
}

TEST(window_larger_than_the_output) {
    run got = one((llm42_engine_desc){.policy.window = 32, .policy.group = 1}, MARKED(.max_new_tokens = 9));
    same(got, reference, 9, "W = 32, output of 9");
    CHECK_INT(got.stats.verifications, 1);
}

TEST(group_of_one) {
    llm42_engine *engine = open_with((llm42_engine_desc){.policy.window = 32, .policy.group = 1});
    int64_t ids[5];
    for (int i = 0; i < 5; i++) ids[i] = submit(engine, MARKED(.max_new_tokens = 50));
    finish(engine);
    for (int i = 0; i < 5; i++) same(take(engine, ids[i]), reference, 50, "G = 1");
    llm42_engine_close(engine);
}

TEST(mismatch_at_the_first_a_middle_and_the_last_position) {
    // The first token comes from the prompt's pass; candidates of the first window are output tokens 1 .. W-1 = 7.
    const int places[] = {1, 4, 7};
    for (int i = 0; i < 3; i++)
        for (int verify = LLM42_VERIFY_EAGER; verify <= LLM42_VERIFY_WAIT; verify++) {
            clear_front();
            front.wrong[PROMPT + places[i] - 1] = true;
            run got = one((llm42_engine_desc){.policy.verify = (llm42_verify)verify, .policy.deadline = 3},
                          MARKED(.max_new_tokens = 8));
            same(got, reference, 8, "one mismatch");
            CHECK_INT(got.stats.rollbacks, 1);
            CHECK_INT(got.stats.recomputed, 7 - places[i]);
        }
    clear_front();
}

TEST(mismatch_at_every_position) {
    memset(front.wrong, 1, sizeof front.wrong);
    for (int verify = LLM42_VERIFY_EAGER; verify <= LLM42_VERIFY_WAIT; verify++) {
        run got = one((llm42_engine_desc){.policy.verify = (llm42_verify)verify}, MARKED(.max_new_tokens = 40));
        same(got, reference, 40, "every candidate wrong");
        CHECK_INT(got.stats.rollbacks, got.stats.verifications);
    }
    clear_front();
    run got = one((llm42_engine_desc){.experiment.inject_rate = 1}, MARKED(.max_new_tokens = 40));
    same(got, reference, 40, "injection of 100%");
    CHECK_INT(got.stats.injected, got.stats.candidates);
    CHECK_INT(got.stats.rollbacks, got.stats.verifications);
}

TEST(cancel_in_mid_window) {
    llm42_engine *engine = open_with((llm42_engine_desc){0});
    int64_t gone = submit(engine, MARKED(.max_new_tokens = 60));
    int64_t stays = submit(engine, MARKED(.max_new_tokens = 60));
    for (int i = 0; i < 200 && llm42_engine_request(engine, gone)->candidates != 3; i++)
        CHECK_INT(llm42_engine_step(engine, &error), LLM42_OK);
    CHECK_INT(llm42_engine_request(engine, gone)->candidates, 3);
    CHECK_INT(llm42_engine_cancel(engine, gone, &error), LLM42_OK);
    CHECK_INT(llm42_engine_cancel(engine, gone, &error), LLM42_OK);  // again: nothing happens
    finish(engine);
    run got = take(engine, gone);
    CHECK_INT(got.finish, LLM42_FINISH_CANCELLED);
    CHECK(got.count < 60);
    same(got, reference, got.count, "committed before the cancel");
    same(take(engine, stays), reference, 60, "the other request");
    CHECK_INT(got.stats.pages_free, llm42_engine_config(engine)->kv.pages);
    CHECK_INT(llm42_engine_release(engine, gone, &error), LLM42_OK);
    CHECK_INT(llm42_engine_cancel(engine, gone, &error), LLM42_NOT_FOUND);
    llm42_engine_close(engine);
}

TEST(preemption_in_mid_window) {
    int64_t dropped = 0, preemptions = 0;
    for (int pages = 5; pages <= 14; pages += TEST_SLOW ? 3 : 1) {
        llm42_engine *engine = open_with((llm42_engine_desc){.kv.pages = pages, .kv.page_size = 16});
        int64_t ids[4];
        for (int i = 0; i < 4; i++)
            ids[i] = submit(engine, (llm42_request_desc){.max_new_tokens = 60, .deterministic = i != 1});
        finish(engine);
        for (int i = 0; i < 4; i++) {
            if (i != 1) same(take(engine, ids[i]), reference, 60, "preempted");
            CHECK_INT(llm42_engine_request(engine, ids[i])->committed, 60);
        }
        dropped += llm42_engine_stats(engine).preempted_candidates;
        preemptions += llm42_engine_stats(engine).preemptions;
        CHECK_INT(llm42_engine_stats(engine).pages_free, pages);
        llm42_engine_close(engine);
    }
    CHECK_MSG(dropped > 0, "no candidate was dropped in %lld preemptions", (long long)preemptions);
}

TEST(shared_prefix_that_ends_inside_a_page) {
    int32_t other[PROMPT + 6];
    memcpy(other, prompt, sizeof prompt);
    for (int i = 0; i < 6; i++) other[PROMPT + i] = 300 + i;
    run want = oracle(other, PROMPT + 6, 30, (llm42_sampling){0});
    for (int size = 1; size <= 16; size *= 2) {
        llm42_engine *engine = open_with((llm42_engine_desc){.kv.page_size = size, .kv.prefix_cache = true});
        int64_t a = submit(engine, MARKED(.max_new_tokens = 30));
        finish(engine);
        int64_t b = submit(engine, MARKED(.prompt = other, .prompt_count = PROMPT + 6, .max_new_tokens = 30));
        int64_t c = submit(engine, MARKED(.max_new_tokens = 30));
        int64_t d = submit(engine,
                           (llm42_request_desc){.prompt = other, .prompt_count = PROMPT + 6, .max_new_tokens = 30});
        finish(engine);
        same(take(engine, a), reference, 30, "first");
        same(take(engine, b), want, 30, "shares a prefix");
        same(take(engine, c), reference, 30, "same prompt again");
        // whole pages of the shared 12 tokens; of the same prompt again all but the page of its last token
        CHECK_INT(llm42_engine_request(engine, b)->prefix_hits, PROMPT / size * size);
        CHECK_INT(llm42_engine_request(engine, c)->prefix_hits, (PROMPT - 1) / size * size);
        CHECK(llm42_engine_request(engine, d)->prefix_hits >= PROMPT / size * size);
        llm42_engine_close(engine);
    }
}

TEST(fast_pages_are_not_read_by_deterministic_requests) {
    llm42_engine *engine = open_with((llm42_engine_desc){.kv.page_size = 4, .kv.prefix_cache = true});
    submit(engine, (llm42_request_desc){.max_new_tokens = 30});
    finish(engine);
    int64_t again = submit(engine, (llm42_request_desc){.max_new_tokens = 30});
    int64_t marked = submit(engine, MARKED(.max_new_tokens = 30));
    finish(engine);
    CHECK_INT(llm42_engine_request(engine, again)->prefix_hits, 8);
    CHECK_INT(llm42_engine_request(engine, marked)->prefix_hits, 0);
    same(take(engine, marked), reference, 30, "beside fast pages");
    llm42_engine_close(engine);
}

// Two first pages of sixteen tokens that have one chain of llm42__hash from 0x4242 on: a cache that trusts such a chain
// finds the second page of one prompt for the other prompt.
TEST(pages_are_found_by_all_tokens_before_them) {
    static const test_shape wide = {"llama", 98520, 16, 2, 2, 1, 8, 24, 0, true, "BF16", "\"rope_theta\": 10000.0, ",
                                    128};
    llm42_model *const usual = model;
    int32_t text[2][40];
    run want[2];
    model = test_model(&wide);
    uint64_t chain[2] = {0x4242, 0x4242};
    for (int i = 0; i < 40; i++) text[0][i] = text[1][i] = i < 13 ? 1 : 1000 * i;
    memcpy(text[0] + 13, (int32_t[]){1464, 5274, 98519}, 3 * sizeof **text);
    memcpy(text[1] + 13, (int32_t[]){331, 1951, 1}, 3 * sizeof **text);
    for (int i = 0; i < 32; i++) chain[i % 2] = llm42_hash(chain[i % 2] ^ (uint64_t)text[i % 2][i / 2]);
    CHECK(chain[0] == chain[1]);
    for (int cached = 0; cached < 2; cached++) {
        llm42_engine *engine = open_with((llm42_engine_desc){.max_context = 128, .kv.prefix_cache = cached});
        submit(engine, MARKED(.prompt = text[1], .prompt_count = 17));
        for (int i = 0; i < 2; i++) {
            int64_t id = submit(engine, MARKED(.prompt = text[i], .prompt_count = 40, .max_new_tokens = 20));
            finish(engine);
            if (!cached) want[i] = take(engine, id);
            else CHECK_INT(llm42_engine_request(engine, id)->prefix_hits, 16 * i);
            same(take(engine, id), want[i], 20, "beside a page of the same hash");
        }
        llm42_engine_close(engine);
    }
    llm42_model_free(model);
    model = usual;
}

TEST(prompt_of_one_token) {
    for (int prefill = LLM42_PREFILL_PACKED; prefill <= LLM42_PREFILL_INVARIANT; prefill++) {
        bool invariant = used->replay == LLM42_SCHEDULE_INVARIANT || prefill == LLM42_PREFILL_INVARIANT;
        run want = oracle_by(invariant ? LLM42_SCHEDULE_INVARIANT : LLM42_SCHEDULE_FIXED, used->replay, prompt, 1, 30,
                             (llm42_sampling){0});
        run got = one((llm42_engine_desc){.policy.prefill = (llm42_prefill)prefill, .kv.prefix_cache = true},
                      MARKED(.prompt = prompt, .prompt_count = 1, .max_new_tokens = 30));
        CHECK_INT(got.count, 30);
        if (invariant || prefill == LLM42_PREFILL_PACKED) same(got, want, 30, "prompt of one token");
    }
}

TEST(n_samples_of_one_prompt) {
    llm42_engine *engine = open_with((llm42_engine_desc){.kv.prefix_cache = true, .kv.page_size = 4});
    int64_t ids[6];
    for (int i = 0; i < 6; i++)
        ids[i] = submit(engine, MARKED(.max_new_tokens = 40, .sampling = {.temperature = 1}, .sample_index = i));
    int64_t twin = submit(engine, MARKED(.max_new_tokens = 40, .sampling = {.temperature = 1, .seed = 44}));
    finish(engine);
    for (int i = 0; i < 6; i++) {
        run want = oracle(prompt, PROMPT, 40, (llm42_sampling){.temperature = 1, .seed = 42 + (uint64_t)i}),
            got = take(engine, ids[i]);
        same(got, want, 40, "sample");
        for (int j = 0; j < i; j++)
            CHECK(memcmp(got.tokens, llm42_engine_request(engine, ids[j])->tokens, 40 * sizeof(int32_t)) != 0);
        if (i == 2) same(take(engine, twin), want, 40, "the seed that sample 2 has by default");
    }
    llm42_engine_close(engine);
}

TEST(deterministic_arrival_while_the_kv_pool_is_full) {
    llm42_engine *engine = open_with((llm42_engine_desc){.kv.pages = 8, .kv.page_size = 16, .max_running = 8});
    int64_t others[3];
    for (int i = 0; i < 3; i++) others[i] = submit(engine, (llm42_request_desc){.max_new_tokens = 110});
    while (llm42_engine_stats(engine).pages_free > 0) CHECK_INT(llm42_engine_step(engine, &error), LLM42_OK);
    int64_t id = submit(engine, MARKED(.max_new_tokens = 60));
    CHECK_INT(llm42_engine_step(engine, &error), LLM42_OK);
    finish(engine);
    run got = take(engine, id);
    same(got, reference, 60, "arrived at a full pool");
    for (int i = 0; i < 3; i++) CHECK_INT(llm42_engine_request(engine, others[i])->committed, 110);
    CHECK(got.stats.preemptions > 0);
    llm42_engine_close(engine);
}

static void a_pass_fails(llm42_prefill prefill, const run *want) {
    clear_front();
    llm42_engine_close(open_with((llm42_engine_desc){.policy.prefill = prefill}));
    for (int fail = front.passes + 1; fail < 40; fail += TEST_SLOW ? 13 : 1) {  // the first ones are the check at open
        clear_front();
        front.fail_pass = fail;
        llm42_engine *engine = open_with((llm42_engine_desc){.policy.prefill = prefill});
        int64_t a = submit(engine, MARKED(.max_new_tokens = 25));
        int64_t b = submit(engine, MARKED(.max_new_tokens = 25));
        llm42_result result = llm42_engine_run(engine, &error);
        if (front.passes >= fail) {
            CHECK_INT(result, LLM42_BACKEND);
            CHECK_STR(error.text, "the device is gone");
        }
        finish(engine);
        same(take(engine, a), *want, 25, "retried");
        same(take(engine, b), *want, 25, "retried");
        llm42_engine_close(engine);
    }
    clear_front();
}

TEST(a_failed_pass_leaves_the_engine_as_it_was) {
    a_pass_fails(LLM42_PREFILL_PACKED, &reference);
    a_pass_fails(LLM42_PREFILL_INVARIANT, used->replay == LLM42_SCHEDULE_FIXED ? &mixed_reference : &reference);
}

// A failed replay may leave anything under its windows; here it leaves NaN, and then the ready request goes away.
TEST(a_failed_replay_is_not_read_by_others) {
    for (int cancel = 0; cancel < 2; cancel++) {
        clear_front();
        llm42_engine *engine = open_with((llm42_engine_desc){.policy.verify = LLM42_VERIFY_EAGER});
        int64_t a = submit(engine, MARKED(.max_new_tokens = 40));
        for (int i = 0; i < 3; i++) llm42_engine_step(engine, &error);
        int64_t b = submit(engine, MARKED(.max_new_tokens = 40));
        while (llm42_engine_request(engine, a)->candidates < 7) CHECK_INT(llm42_engine_step(engine, &error), LLM42_OK);
        front.fail_pass = front.passes + 1;  // the replay pass
        front.spoil = true;
        CHECK_INT(llm42_engine_step(engine, &error), LLM42_BACKEND);
        front.spoil = false;
        if (cancel) CHECK_INT(llm42_engine_cancel(engine, a, &error), LLM42_OK);
        finish(engine);
        same(take(engine, b), reference, 40, "beside a failed replay");
        llm42_engine_close(engine);
    }
    clear_front();
}

TEST(ordinary_requests_go_on_at_w_1) {
    llm42_engine *engine = open_with((llm42_engine_desc){.policy.window = 1, .policy.group = 8});
    int64_t a = submit(engine, MARKED(.max_new_tokens = 60));
    int64_t b = submit(engine, (llm42_request_desc){.max_new_tokens = 20});
    while (llm42_engine_request(engine, b)->finish == LLM42_FINISH_NONE)
        CHECK_INT(llm42_engine_step(engine, &error), LLM42_OK);
    CHECK(llm42_engine_request(engine, a)->committed < 60);
    finish(engine);
    llm42_engine_close(engine);
}

// A deterministic request whose prompt is that of request a, its 30 tokens of output and one more; runs to its end.
static int64_t next_turn(llm42_engine *engine, int64_t a, int32_t turn[PROMPT + 31]) {
    memcpy(turn, prompt, sizeof prompt);
    memcpy(turn + PROMPT, llm42_engine_request(engine, a)->tokens, 30 * sizeof *turn);
    turn[PROMPT + 30] = 325;
    int64_t b = submit(engine, MARKED(.prompt = turn, .prompt_count = PROMPT + 31, .max_new_tokens = 20));
    finish(engine);
    return b;
}

TEST(the_last_window_reaches_the_prefix_cache) {
    llm42_engine *engine = open_with((llm42_engine_desc){.kv.page_size = 4, .kv.prefix_cache = true});
    int64_t a = submit(engine, MARKED(.max_new_tokens = 30));
    finish(engine);
    int32_t turn[PROMPT + 31];
    int64_t b = next_turn(engine, a, turn);
    CHECK_INT(llm42_engine_request(engine, b)->prefix_hits, 40);  // 41 of the 42 positions before are final: ten pages
    same(take(engine, b), oracle(turn, PROMPT + 31, 20, (llm42_sampling){0}), 20, "second turn");
    llm42_engine_close(engine);
}

// After a reload an engine gives what a new one gives. The control: without it a prefix of the old weights is found.
TEST(weights_that_are_written) {
    const llm42_model_desc desc = {.path = "examples/tiny42", .no_mmap = true};
    llm42_model *const good = model;
    if (!CHECK(!llm42_model_load(&model, &desc, NULL))) return;
    for (int reload = 0; reload < 2; reload++) {
        llm42_engine *engine = open_with((llm42_engine_desc){.kv.page_size = 4, .kv.prefix_cache = true});
        const int64_t a = submit(engine, MARKED(.max_new_tokens = 20));
        CHECK_INT(llm42_engine_reload(engine, &error), LLM42_INVALID);
        CHECK(strstr(error.text, "1 requests are not finished"));
        finish(engine);
        uint16_t *v = (uint16_t *)(uintptr_t)model->layer[0].v.data;
        for (int i = 0; i < 500; i++) v[i] ^= 0x8000;
        if (reload) CHECK_INT(llm42_engine_reload(engine, &error), LLM42_OK);
        const run old = take(engine, a), want = oracle(prompt, PROMPT, 20, (llm42_sampling){0});
        const int64_t b = submit(engine, MARKED(.max_new_tokens = 20));
        finish(engine);
        const run got = take(engine, b);
        CHECK(!equal(&old, &want, 20));
        CHECK_INT(equal(&got, &want, 20), reload);
        llm42_engine_close(engine);
    }
    llm42_model_free(model);
    model = good;
}

TEST(a_backend_whose_rows_change_with_their_place_is_refused) {
    const unsigned both = 1u << LLM42_SCHEDULE_FIXED | 1u << LLM42_SCHEDULE_INVARIANT,
                   invariant = 1u << LLM42_SCHEDULE_INVARIANT;
    const struct {
        unsigned variant;  // it matters where such passes will run
        llm42_engine_desc desc;
        llm42_result want;
    } tries[] = {
        {both, {0}, LLM42_NOT_INVARIANT},
        {both, {.policy.mode = LLM42_MODE_HYBRID}, LLM42_NOT_INVARIANT},
        {both, {.policy.mode = LLM42_MODE_BATCH_INVARIANT}, LLM42_NOT_INVARIANT},
        {both, {.policy.mode = LLM42_MODE_NONDETERMINISTIC}, LLM42_OK},
        {both, {.preset = LLM42_PRESET_PAPER}, LLM42_NOT_INVARIANT},
        {1u << LLM42_SCHEDULE_FIXED, {0}, LLM42_OK},
        {invariant, {0}, LLM42_NOT_INVARIANT},
        {invariant, {.preset = LLM42_PRESET_PAPER}, LLM42_OK},
        {invariant, {.preset = LLM42_PRESET_PAPER, .policy.prefill = LLM42_PREFILL_INVARIANT}, LLM42_NOT_INVARIANT},
    };
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        llm42_engine *engine;
        llm42_engine_desc desc = tries[i].desc;
        desc.model = model, desc.backend = front_backend();
        front.variant = tries[i].variant;
        CHECK_INT(llm42_engine_open(&engine, &desc, &error), tries[i].want);
        CHECK((engine != NULL) == (tries[i].want == LLM42_OK));
        if (!engine) CHECK_CONTAINS(error.text, "backend front");
        if (tries[i].variant == invariant && !engine) CHECK_CONTAINS(error.text, "schedule invariant");
        if (engine && desc.policy.mode == LLM42_MODE_NONDETERMINISTIC) {
            int64_t id = 0;
            const llm42_request_desc marked = {.prompt = prompt, .prompt_count = 3, .deterministic = true};
            CHECK_INT(llm42_engine_submit(engine, &marked, &id, &error), LLM42_INVALID);
            CHECK_CONTAINS(error.text, "deterministic");
        }
        llm42_engine_close(engine);
    }
    clear_front();
}

// >>presets ------------------------------------------------------------------------------------------------------
// The policies of a desc in words, W and G.
typedef struct choices {
    const char *word[16];
    int policies, window, group;
} choices;

static choices choices_of(const llm42_engine_desc *desc) {
    choices c = {.window = desc->policy.window, .group = desc->policy.group};
    for (const llm42_policy_words *p = llm42_policies(); p->name; p++)
        c.word[c.policies++] = llm42_policy_word(desc, p->name);
    return c;
}

// -1: they are equal. -2: more than one differs. Else the one that differs; W and G stand behind the policies.
static int differing(const choices *a, const choices *b) {
    int at = -1;
    for (int i = 0; i < a->policies + 2; i++) {
        bool differs = i < a->policies    ? strcmp(a->word[i], b->word[i]) != 0
                       : i == a->policies ? a->window != b->window
                                          : a->group != b->group;
        if (differs) at = at == -1 ? i : -2;
    }
    return at;
}

static llm42_engine_desc preset_of(llm42_preset preset) {
    llm42_engine_desc desc = {.preset = preset};
    llm42_preset_apply(&desc);
    return desc;
}

TEST(a_preset_fills_the_fields_that_are_zero) {
    for (int preset = LLM42_PRESET_DVR; preset <= LLM42_PRESET_INVARIANT; preset++) {
        llm42_engine_desc full = preset_of((llm42_preset)preset), other;
        choices want = choices_of(&full), got;
        for (int i = 0; i < want.policies; i++) CHECK(strcmp(want.word[i], "default") != 0);
        CHECK(full.policy.window > 0 && full.policy.group > 0);
        CHECK_INT(full.preset, preset);
        other = full;  // nothing is zero, so nothing changes
        llm42_preset_apply(&other);
        got = choices_of(&other);
        CHECK_INT(differing(&got, &want), -1);
        // One field is not zero: it stays, and the others are the preset's.
        for (int i = 1; i < want.policies; i++) {  // 0 is the preset itself
            const llm42_policy_words *p = &llm42_policies()[i];
            for (int w = 0; p->word[w]; w++) {
                other = (llm42_engine_desc){.preset = (llm42_preset)preset};
                CHECK_INT(llm42_policy_set(&other, p->name, p->word[w], &error), LLM42_OK);
                llm42_preset_apply(&other);
                got = choices_of(&other);
                choices changed = want;
                changed.word[i] = p->word[w];
                if (other.policy.verifier == LLM42_VERIFIER_FIXED && changed.group > 32) changed.group = 32;
                CHECK_INT(differing(&got, &changed), -1);
            }
        }
        for (int i = 0; i < 2; i++) {
            other = (llm42_engine_desc){.preset = (llm42_preset)preset};
            *(i ? &other.policy.group : &other.policy.window) = 5;
            llm42_preset_apply(&other);
            got = choices_of(&other);
            CHECK_INT(i ? got.group : got.window, 5);
            CHECK_INT(differing(&got, &want), want.policies + i);
        }
        // Their defaults are no matter of a preset.
        CHECK(!full.max_context && !full.max_running && !full.token_budget && !full.kv.page_size && !full.kv.pages &&
              !full.policy.deadline && !full.backend && !full.planner);
    }
}

TEST(the_presets_are_what_they_are_called) {
    llm42_engine_desc dvr = preset_of(LLM42_PRESET_DVR), best = preset_of(LLM42_PRESET_BEST),
                      paper = preset_of(LLM42_PRESET_PAPER), invariant = preset_of(LLM42_PRESET_INVARIANT),
                      zero = preset_of(LLM42_PRESET_DEFAULT);
    choices by_default = choices_of(&zero), got = choices_of(&dvr);
    CHECK_INT(differing(&got, &by_default), -1);
    CHECK_INT(dvr.policy.mode, LLM42_MODE_DVR);
    CHECK_INT(best.policy.mode, LLM42_MODE_HYBRID);
    CHECK_INT(invariant.policy.mode, LLM42_MODE_BATCH_INVARIANT);
    CHECK_INT(dvr.policy.verifier, LLM42_VERIFIER_INVARIANT);
    CHECK_INT(best.policy.verifier, LLM42_VERIFIER_INVARIANT);
    got = choices_of(&paper);
    static const char *const published[] = {"paper", "dvr", "fixed", "eager", "isolated", "off", "off"};
    CHECK_INT(got.policies, sizeof published / sizeof *published);
    for (int i = 0; i < got.policies; i++) CHECK_STR(got.word[i], published[i]);
    CHECK_INT(paper.policy.window, 64);
    CHECK_INT(paper.policy.group, 8);
}

TEST(an_engine_has_the_policies_of_its_preset) {
    for (int preset = LLM42_PRESET_DEFAULT; preset <= LLM42_PRESET_INVARIANT; preset++) {
        llm42_engine_desc desc = {.model = model, .preset = (llm42_preset)preset, .max_context = 64};
        llm42_engine *engine = test_open(&desc);
        llm42_engine_desc full = preset_of((llm42_preset)preset);
        choices want = choices_of(&full), got = choices_of(llm42_engine_config(engine));
        want.group = want.group < 32 ? want.group : 32;  // as many requests run
        CHECK_INT(differing(&got, &want), -1);
        llm42_engine_close(engine);
    }
    // What the desc says itself wins.
    llm42_engine_desc own = TEST_LIST(.model = model, .preset = LLM42_PRESET_PAPER, .max_context = 64,
                                      .experiment.bonus = LLM42_BONUS_ON, .policy.window = 6);
    llm42_engine *engine = test_open(&own);
    const llm42_engine_desc *config = llm42_engine_config(engine);
    CHECK_INT(config->experiment.bonus, LLM42_BONUS_ON);
    CHECK_INT(config->policy.window, 6);
    CHECK_INT(config->policy.group, preset_of(LLM42_PRESET_PAPER).policy.group);
    CHECK_INT(config->policy.verifier, LLM42_VERIFIER_FIXED);
    llm42_engine_close(engine);
}

// Of an INVARIANT replay pass no more windows than requests run, or 32, count towards M, so that no memory is taken for
// more. M of a FIXED one is what its result depends on, so it stays as it is given.
TEST(an_engine_has_no_more_windows_than_requests_run) {
    static const struct {
        int group, max_running;
        llm42_verifier replay;
        int want;
    } tries[] = {{0, 8, LLM42_VERIFIER_DEFAULT, 32},     {0, 64, LLM42_VERIFIER_DEFAULT, 64},
                 {0, 256, LLM42_VERIFIER_DEFAULT, 128},  {0, 256, LLM42_VERIFIER_FIXED, 32},
                 {300, 8, LLM42_VERIFIER_INVARIANT, 32}, {300, 256, LLM42_VERIFIER_DEFAULT, 256},
                 {100, 8, LLM42_VERIFIER_FIXED, 100},    {4, 8, LLM42_VERIFIER_DEFAULT, 4}};
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        llm42_engine_desc desc = TEST_LIST(.model = model, .max_context = 64, .max_running = tries[i].max_running,
                                           .policy.verifier = tries[i].replay, .policy.group = tries[i].group);
        llm42_engine *engine = test_open(&desc);
        CHECK_INT(llm42_engine_config(engine)->policy.group, tries[i].want);
        llm42_engine_close(engine);
    }
}

TEST(presets_that_are_refused) {
    llm42_engine_desc desc = {.model = model, .max_context = 64};
    const int outside[] = {LLM42_PRESET_PAPER + 1, -1, 1 << 20};
    for (int i = 0; i < 3; i++) {
        desc.preset = (llm42_preset)outside[i];
        test_refused(&desc, LLM42_INVALID, "llm42_engine_desc.preset: ");
    }
    // Mode HYBRID has one result, and the paper's verifier has another.
    desc.preset = LLM42_PRESET_PAPER, desc.policy.mode = LLM42_MODE_HYBRID;
    test_refused(&desc, LLM42_INVALID, "llm42_engine_desc.policy.verifier: FIXED");
    desc.policy.verifier = LLM42_VERIFIER_INVARIANT;
    llm42_engine_close(test_open(&desc));

    desc = (llm42_engine_desc){0};
    CHECK_STR(llm42_policy_word(&desc, "preset"), "default");
    CHECK_INT(llm42_policy_set(&desc, "preset", "best", &error), LLM42_OK);
    CHECK_INT(desc.preset, LLM42_PRESET_BEST);
    CHECK_INT(desc.policy.mode, LLM42_MODE_DEFAULT);  // it is applied later
    CHECK_STR(llm42_policy_word(&desc, "preset"), "best");
    CHECK_INT(llm42_policy_set(&desc, "preset", "worst", &error), LLM42_INVALID);
    CHECK_CONTAINS(error.text, "dvr, best, invariant, paper");
    CHECK_INT(desc.preset, LLM42_PRESET_BEST);
}

// >>prefill INVARIANT, verifier FIXED -----------------------------------------------------------------------------
static const llm42_engine_desc invariant_prefill = TEST_LIST(.policy.prefill = LLM42_PREFILL_INVARIANT,
                                                             .policy.verifier = LLM42_VERIFIER_FIXED,
                                                             .policy.verify = LLM42_VERIFY_EAGER, .kv.page_size = 4,
                                                             .kv.prefix_cache = true);

// Together in one pass: a deterministic prompt, others, and rows that decode. Its first token is final, theirs are not.
TEST(invariant_prompts_ride_beside_decodes) {
    llm42_engine *engine = open_with(invariant_prefill);
    int64_t a = submit(engine, MARKED(.max_new_tokens = 60));
    CHECK_INT(llm42_engine_step(engine, &error), LLM42_OK);
    CHECK_INT(llm42_engine_request(engine, a)->committed, 1);
    CHECK_INT(llm42_engine_request(engine, a)->candidates, 0);
    CHECK_INT(llm42_engine_step(engine, &error), LLM42_OK);
    CHECK_INT(llm42_engine_stats(engine).passes[LLM42_SCHEDULE_FAST], 1);  // no prompt: FAST again
    int32_t other[PROMPT];
    for (int i = 0; i < PROMPT; i++) other[i] = 300 + i;
    int64_t b = submit(engine, MARKED(.max_new_tokens = 60, .prompt = other, .prompt_count = PROMPT));
    int64_t c = submit(engine, (llm42_request_desc){.max_new_tokens = 60});
    CHECK_INT(llm42_engine_step(engine, &error), LLM42_OK);
    llm42_stats stats = llm42_engine_stats(engine);
    CHECK_INT(stats.passes[LLM42_SCHEDULE_INVARIANT], 2);
    CHECK_INT(stats.passes[LLM42_SCHEDULE_FIXED], 0);
    CHECK_INT(stats.rows[LLM42_SCHEDULE_INVARIANT], PROMPT + 1 + PROMPT + PROMPT - 8);  // c found two pages
    CHECK_INT(llm42_engine_request(engine, a)->committed, 1);
    CHECK_INT(llm42_engine_request(engine, a)->candidates, 2);
    CHECK_INT(llm42_engine_request(engine, b)->committed, 1);
    CHECK_INT(llm42_engine_request(engine, c)->committed, 1);
    finish(engine);
    same(take(engine, a), mixed_reference, 60, "in passes of either kind");
    same(take(engine, b), mixed_oracle(other, PROMPT, 60), 60, "beside decodes");
    llm42_engine_close(engine);
}

// Runs `prompt` beside seven others and says whether it is as alone.
static bool as_alone(bool fast, int budget) {
    llm42_engine_desc desc = invariant_prefill;
    desc.kv.prefix_cache = false, desc.token_budget = budget, desc.max_running = 8;
    llm42_engine *engine = open_with(desc);
    front.invariant_as_fast = fast;  // the check at open is over
    int64_t ids[8];
    for (int i = 0; i < 8; i++)
        ids[i] = submit(engine, (llm42_request_desc){.max_new_tokens = 60, .deterministic = i % 2 == 0});
    finish(engine);
    run got = take(engine, ids[6]);
    llm42_engine_close(engine);
    clear_front();
    return got.count == 60 && equal(&got, &mixed_reference, 60);
}

TEST(invariant_prompts_may_be_cut_anywhere) {
    const int step = TEST_SLOW ? 21 : 7;
    for (int budget = 8; budget <= 64; budget += step) CHECK_MSG(as_alone(false, budget), "token_budget %d", budget);
    bool control = true;
    for (int budget = 8; budget <= 64; budget += step) control &= as_alone(true, budget);
    CHECK_MSG(!control, "prompts under FAST gave the same bits: nothing has been shown");
}

TEST(invariant_prompts_share_pages_of_invariant_rows) {
    llm42_engine *engine = open_with(invariant_prefill);
    int32_t other[2][PROMPT];
    for (int i = 0; i < 2 * PROMPT; i++) other[i / PROMPT][i % PROMPT] = 300 + i;
    const int hits[] = {0, 8, 8, 0};
    int64_t ids[4] = {submit(engine, MARKED(.max_new_tokens = 30))};
    submit(engine, (llm42_request_desc){.max_new_tokens = 1, .prompt = other[0], .prompt_count = PROMPT});
    finish(engine);  // both prompts were in one pass
    ids[1] = submit(engine, MARKED(.max_new_tokens = 30));
    ids[2] = submit(engine, MARKED(.max_new_tokens = 30, .prompt = other[0], .prompt_count = PROMPT));
    finish(engine);
    submit(engine, (llm42_request_desc){.max_new_tokens = 1, .prompt = other[1], .prompt_count = PROMPT});
    finish(engine);  // in a FAST pass
    ids[3] = submit(engine, MARKED(.max_new_tokens = 30, .prompt = other[1], .prompt_count = PROMPT));
    finish(engine);
    for (int i = 0; i < 4; i++) {
        run want = i < 2 ? mixed_reference : mixed_oracle(other[i - 2], PROMPT, 30);
        same(take(engine, ids[i]), want, 30, "shares pages");
        CHECK_INT(llm42_engine_request(engine, ids[i])->prefix_hits, hits[i]);
    }
    llm42_engine_close(engine);
}

// Outputs hold the KV of FIXED rows, which prompts with the same tokens would not get; nor would INVARIANT candidates.
TEST(pages_of_outputs_are_not_shared_with_invariant_prompts) {
    llm42_engine_desc desc = invariant_prefill;
    desc.kv.page_size = 1;
    llm42_engine *engine = open_with(desc);
    int64_t a = submit(engine, MARKED(.max_new_tokens = 30));
    CHECK_INT(llm42_engine_step(engine, &error), LLM42_OK);
    int32_t other[PROMPT] = {0};
    submit(engine, MARKED(.max_new_tokens = 1, .prompt = other, .prompt_count = PROMPT));
    finish(engine);
    CHECK_INT(llm42_engine_stats(engine).passes[LLM42_SCHEDULE_INVARIANT], 2);
    int32_t turn[PROMPT + 31];
    int64_t b = next_turn(engine, a, turn);
    CHECK_INT(llm42_engine_request(engine, b)->prefix_hits, PROMPT);
    same(take(engine, b), mixed_oracle(turn, PROMPT + 31, 20), 20, "second turn");
    llm42_engine_close(engine);
}

typedef struct preempted {
    int in_prompt, in_output, refills;
} preempted;

static void hear_preempted(void *user, const llm42_event *e) {
    preempted *p = user;
    if (e->type == LLM42_EVENT_PREEMPTED) (*(e->info->committed ? &p->in_output : &p->in_prompt))++;
    p->refills += e->type == LLM42_EVENT_PASS && e->schedule == LLM42_SCHEDULE_FIXED && e->windows == 0;
}

// A preempted request gets INVARIANT rows for its prompt again and FIXED ones for its outputs, though the first
// request's prompt, which is prompt and output of the last, could lend it pages for both.
TEST(preemption_under_invariant_prefill) {
    preempted seen = {0};
    int32_t turn[PROMPT + 40];
    memcpy(turn, prompt, sizeof prompt);
    memcpy(turn + PROMPT, mixed_reference.tokens, 40 * sizeof *turn);
    run want = mixed_oracle(turn, PROMPT + 40, 40);
    int64_t hits = 0;
    for (int pages = 24; pages <= 60; pages += TEST_SLOW ? 6 : 2) {
        llm42_engine_desc desc = invariant_prefill;
        desc.kv.pages = pages, desc.token_budget = pages % 4 ? 5 : 64, desc.max_running = 5,
        desc.kv.prefix_cache = pages % 8 < 4;
        desc.on_event = hear_preempted, desc.event_user = &seen;
        llm42_engine *engine = open_with(desc);
        int64_t ids[5];
        ids[0] = submit(engine, MARKED(.prompt = turn, .prompt_count = PROMPT + 40, .max_new_tokens = 40));
        for (int i = 1; i < 5; i++)
            ids[i] = submit(engine, (llm42_request_desc){.max_new_tokens = 60, .deterministic = i != 2});
        finish(engine);
        for (int i = 0; i < 5; i++) {
            if (i != 2) same(take(engine, ids[i]), i ? mixed_reference : want, i ? 60 : 40, "preempted");
            hits += llm42_engine_request(engine, ids[i])->prefix_hits;
        }
        CHECK_INT(llm42_engine_stats(engine).pages_free, pages);
        llm42_engine_close(engine);
    }
    CHECK_MSG(seen.in_prompt > 0 && seen.in_output > 0 && seen.refills > 0 && hits > 0,
              "%d in a prompt, %d in an output, %d refills", seen.in_prompt, seen.in_output, seen.refills);
}

typedef struct heard {
    int32_t tokens[4][MOST];
    int count[4];
    int64_t events, passes;
    double last;
    bool ordered;
} heard;

static void hear(void *user, const llm42_event *e) {
    heard *h = user;
    h->ordered = h->ordered && e->time >= h->last;
    h->last = e->time;
    h->events++;
    h->passes += e->type == LLM42_EVENT_PASS;
    if (e->type != LLM42_EVENT_COMMITTED) return;
    int i = (int)e->request - 1;
    if (CHECK_INT(e->position, h->count[i]))
        memcpy(h->tokens[i] + h->count[i], e->tokens, sizeof *e->tokens * (size_t)e->n);
    h->count[i] += e->n;
}

TEST(events_carry_the_tokens_once_and_steps_allocate_nothing) {
    heard h = {.ordered = true};
    llm42_engine *engine = open_with(
        (llm42_engine_desc)TEST_LIST(.on_event = hear, .event_user = &h, .kv.pages = 14, .kv.prefix_cache = true,
                                     .policy.verify = LLM42_VERIFY_WAIT, .experiment.inject_rate = 0.05));
    for (int i = 0; i < 4; i++)
        submit(engine, (llm42_request_desc){.max_new_tokens = 90,
                                            .deterministic = i != 2,
                                            .sampling = {.temperature = i == 3 ? 0.7f : 0, .top_p = 0.9f}});
    int64_t before = test_allocations();
    finish(engine);
    CHECK_INT(test_allocations() - before, 0);
    CHECK(h.ordered);
    for (int i = 0; i < 4; i++) {
        const llm42_request *r = llm42_engine_request(engine, i + 1);
        CHECK_INT(h.count[i], r->committed);
        CHECK(memcmp(h.tokens[i], r->tokens, sizeof *r->tokens * (size_t)r->committed) == 0);
    }
    llm42_stats s = llm42_engine_stats(engine);
    CHECK_INT(h.passes,
              s.passes[LLM42_SCHEDULE_FAST] + s.passes[LLM42_SCHEDULE_FIXED] + s.passes[LLM42_SCHEDULE_INVARIANT]);
    CHECK(s.preemptions > 0);
    llm42_engine_close(engine);
    before = test_allocations();
    (void)malloc(1 + (size_t)(before < 0));  // control: the counter counts
    CHECK_INT(test_allocations() - before, 1);
}

TEST(arrivals_in_the_future_wait) {
    llm42_engine *engine = open_with((llm42_engine_desc){0});
    double now = llm42_engine_now(engine);
    int64_t late = submit(engine, (llm42_request_desc){.max_new_tokens = 4, .arrival = now + 0.05});
    int64_t early = submit(engine, (llm42_request_desc){.max_new_tokens = 4, .arrival = now + 0.01});
    finish(engine);
    const llm42_request *a = llm42_engine_request(engine, early), *b = llm42_engine_request(engine, late);
    CHECK(a->first_token >= now + 0.01);
    CHECK(b->first_token >= now + 0.05);
    CHECK(a->first_token <= b->first_token);  // one pass has both where the machine was busy elsewhere
    llm42_engine_close(engine);
}

// On the CPU the clock is real: it waits, in pieces, and the tokens are those of one run.
TEST(run_until_waits_in_real_time) {
    llm42_engine *engine = open_with((llm42_engine_desc){0});
    double now = llm42_engine_now(engine);
    // The first arrives so late that no busy machine gets there; the second soon, and is waited for.
    int64_t late = submit(engine, (llm42_request_desc){.max_new_tokens = 8, .arrival = now + 1e6});
    CHECK_INT(llm42_engine_run_until(engine, now + 0.02, &error), LLM42_OK);
    CHECK(llm42_engine_now(engine) >= now + 0.02);
    llm42_stats stats = llm42_engine_stats(engine);
    CHECK_INT(stats.passes[LLM42_SCHEDULE_FAST] + stats.passes[LLM42_SCHEDULE_FIXED] +
                  stats.passes[LLM42_SCHEDULE_INVARIANT],
              0);
    CHECK_INT(llm42_engine_cancel(engine, late, &error), LLM42_OK);
    now = llm42_engine_now(engine);
    int64_t id = submit(engine, MARKED(.max_new_tokens = 8, .arrival = now + 0.03));
    llm42_result result = LLM42_OK;
    for (int i = 2; result == LLM42_OK && i < 100000; i++)
        result = llm42_engine_run_until(engine, now + 0.01 * i, &error);
    CHECK_INT(result, LLM42_IDLE);
    const llm42_request *r = llm42_engine_request(engine, id);
    CHECK(r->first_token >= now + 0.03);
    CHECK_INT(r->committed, 8);
    CHECK(!memcmp(r->tokens, reference.tokens, 8 * sizeof *r->tokens));
    llm42_engine_close(engine);
}

TEST(metrics_and_spans) {
    double values[] = {5, 1, 4, 2, 3}, many[100];
    llm42_series list = {.value = values, .count = 5}, hundred = {.value = many, .count = 100}, empty = {0};
    CHECK_INT(llm42_metrics_percentile(&list, 50), 3);
    CHECK_INT(llm42_metrics_percentile(&list, 99), 5);
    CHECK_INT(llm42_metrics_percentile(&list, 20), 1);
    CHECK_INT(llm42_metrics_percentile(&list, 21), 2);
    for (int i = 0; i < 100; i++) many[i] = 100 - i;
    for (int p = 1; p <= 100; p++) CHECK_INT(llm42_metrics_percentile(&hundred, p), p);
    CHECK(isnan(llm42_metrics_percentile(&empty, 50)));
    const int32_t a[] = {1, 2, 3, 4, 5, 6, 7}, b[] = {1, 2, 9, 4, 5, 8, 7};
    int first, second;
    llm42_consistent_spans(a, 7, b, 7, &first, &second);
    CHECK_INT(first, 2);
    CHECK_INT(second, 2);
    llm42_consistent_spans(a, 7, a, 7, &first, &second);
    CHECK_INT(first, 7);
    CHECK_INT(second, 0);
}

static int truncated_model(const char *dir, bool no_mmap, run *got) {
    static const char *const names[] = {"config.json", "model.safetensors"};
    llm42_model *good = model;
    for (int i = 0; i < 2; i++) {
        size_t size;
        char *data = test_read(test_path("examples/tiny42", names[i]), &size);
        test_write(test_path(dir, names[i]), data, size);
        free(data);
    }
    if (llm42_model_load(&model, &(llm42_model_desc){.path = dir, .no_mmap = no_mmap}, &error)) return 1;
    if (truncate(test_path(dir, "model.safetensors"), 0)) return 1;
    *got = one((llm42_engine_desc){0}, MARKED(.max_new_tokens = 8));
    llm42_model_free(model);
    model = good;
    return 0;
}

// Weights that were read do not need the file any more. The control: a mapped file that shrinks ends the process.
TEST(a_file_of_weights_that_shrinks) {
    char dir[64];
    test_folder(dir);
    run want = one((llm42_engine_desc){0}, MARKED(.max_new_tokens = 8)), got = {0};
    CHECK_INT(truncated_model(dir, true, &got), 0);
    same(got, want, 8, "weights that were read");
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        signal(SIGBUS, SIG_DFL);
        _exit(truncated_model(dir, false, &got));
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    test_remove(dir);
}

// OpenMP's threads stay in the parent, so a child that waited for them would hang. Its engines give the same bits.
TEST(a_forked_child_runs_passes) {
    llm42_engine_desc two = {.backend_desc = TEST_THREADS(2)};
    const llm42_request_desc asked = {.max_new_tokens = 24, .deterministic = true};
    run want = one(two, asked);
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        alarm(60);
        run got = one(two, asked);
        llm42_model *made;  // its matrices are made by several threads, too
        const llm42_model_desc synthetic = {.path = "synthetic:tiny"};
        _exit(got.count != 24 || !equal(&got, &want, 24) || llm42_model_load(&made, &synthetic, NULL));
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_MSG(status == 0, "the child ended with status %d%s", status, status == SIGALRM ? ": it hung" : "");
}

// The model with NaN in the embeddings of some tokens. Its head keeps its weights. The caller frees .embed.data.
static llm42_model with_nan(int token, int count) {
    llm42_model broken = *model;
    const size_t D = (size_t)model->config.dim, size = (size_t)model->config.vocab * D;
    uint16_t *embed = malloc(size * sizeof *embed);
    memcpy(embed, model->embed.data, size * sizeof *embed);
    for (size_t i = 0; i < (size_t)count * D; i++) embed[(size_t)token * D + i] = 0x7fc0;
    broken.embed.data = embed;
    return broken;
}

// The embedding of one token holds NaN. Requests that meet it, in a prompt or later, end with an error, and no others.
TEST(a_request_whose_embedding_holds_nan) {
    enum { N = 6, BAD = 1999, LENGTH = 24 };
    static const llm42_mode modes[] = {LLM42_MODE_DVR, LLM42_MODE_NONDETERMINISTIC, LLM42_MODE_BATCH_INVARIANT};
    llm42_model *good = model, broken = with_nan(BAD, 1);
    int32_t asked[N][PROMPT];
    run want[N];
    for (int i = 0; i < N; i++) {
        memcpy(asked[i], prompt, sizeof prompt);
        asked[i][0] = 100 + i;
        if (i == 1) asked[i][5] = BAD;
        if (i == 4) asked[i][PROMPT - 1] = BAD;
    }
    for (int m = 0; m < 3; m++) {
        llm42_engine_desc desc = {.policy.mode = modes[m], .max_running = 8};
        llm42_request_desc r = {.prompt_count = PROMPT, .max_new_tokens = LENGTH};
        r.deterministic = modes[m] != LLM42_MODE_NONDETERMINISTIC;
        for (int i = 0; i < N; i++) r.prompt = asked[i], want[i] = one(desc, r);
        model = &broken;
        llm42_engine *engine = open_with(desc);
        for (int i = 0; i < N; i++) r.prompt = asked[i], submit(engine, r);
        finish(engine);
        for (int i = 0; i < N; i++) {
            run got = take(engine, i + 1);
            bool bad = i == 1 || i == 4;
            CHECK_INT(got.finish, bad ? LLM42_FINISH_ERROR : LLM42_FINISH_LENGTH);
            CHECK_INT(got.count, bad ? 0 : LENGTH);
            if (bad || modes[m] == LLM42_MODE_NONDETERMINISTIC) continue;
            CHECK(equal(&got, &want[i], LENGTH));
        }
        llm42_stats stats = llm42_engine_stats(engine);
        CHECK_INT(stats.failed, 2);
        CHECK_INT(stats.pages_free, llm42_engine_config(engine)->kv.pages);
        llm42_engine_close(engine);
        model = good;
    }
    free((void *)(uintptr_t)broken.embed.data);
}

// Requests are found, and no others, though one in a thousand stays.
TEST(requests_that_are_never_released) {
    llm42_engine *engine = open_with((llm42_engine_desc){.max_context = 128});
    for (int i = 0; i < 20000; i++) {
        int64_t id = submit(engine, (llm42_request_desc){.max_new_tokens = 8});
        if (i % 1000 == 0) continue;
        if (llm42_engine_cancel(engine, id, &error) || llm42_engine_release(engine, id, &error)) break;
    }
    int left = 0;
    for (int i = 0; i < LLM42__BUCKETS; i++)
        for (const llm42__request *r = engine->bucket[i]; r; r = r->before) left++;
    CHECK_INT(left, 20);
    for (int64_t id = 1; id <= 20000; id++) CHECK((llm42_engine_request(engine, id) != NULL) == (id % 1000 == 1));
    CHECK(!llm42_engine_request(engine, 0) && !llm42_engine_request(engine, -1) &&
          !llm42_engine_request(engine, 1 << 30));
    llm42_engine_close(engine);
}

static void cancel_when_prefilled(void *user, const llm42_event *e) {
    if (e->type != LLM42_EVENT_PREFILLED) return;
    CHECK_INT(llm42_engine_cancel(*(llm42_engine **)user, e->request, &error), LLM42_OK);
}

// Cancelled in an event of the pass that gives no token, a request is cancelled, not failed.
TEST(a_cancelled_request_does_not_fail) {
    llm42_model *good = model, broken = with_nan(0, model->config.vocab);
    model = &broken;
    for (int cancels = 0; cancels < 2; cancels++) {
        llm42_engine *engine = NULL;
        engine = open_with((llm42_engine_desc){.policy.mode = LLM42_MODE_NONDETERMINISTIC,
                                               .on_event = cancels ? cancel_when_prefilled : NULL,
                                               .event_user = &engine});
        int64_t id = submit(engine, (llm42_request_desc){.max_new_tokens = 4});
        finish(engine);
        CHECK_INT(take(engine, id).finish, cancels ? LLM42_FINISH_CANCELLED : LLM42_FINISH_ERROR);
        llm42_engine_close(engine);
    }
    model = good;
    free((void *)(uintptr_t)broken.embed.data);
}

// A request's sixth token has an embedding of NaN. There the request ends, with five tokens, whatever the windows are.
TEST(a_token_whose_embedding_holds_nan_is_decoded) {
    enum { LENGTH = 24, AT = 6 };
    static const struct { int window, group, inject; } how[] = {{8, 4, 0}, {4, 8, 0}, {32, 1, 0}, {1, 8, 0}, {8, 4, 1}};
    run plain = one((llm42_engine_desc){0}, MARKED(.max_new_tokens = LENGTH));
    llm42_model *good = model, broken = with_nan(plain.tokens[AT], 1);
    for (int i = 0; i < AT; i++) CHECK(plain.tokens[i] != plain.tokens[AT]);
    model = &broken;
    for (size_t i = 0; i < sizeof how / sizeof how[0]; i++) {
        run got = one((llm42_engine_desc){.policy.window = how[i].window,
                                          .policy.group = how[i].group,
                                          .experiment.inject_rate = how[i].inject ? 0.5 : 0},
                      MARKED(.max_new_tokens = LENGTH));
        CHECK_INT(got.finish, LLM42_FINISH_ERROR);
        CHECK_INT(got.count, AT + 1);
        CHECK(!memcmp(got.tokens, plain.tokens, (AT + 1) * sizeof *got.tokens));
    }
    model = good;
    free((void *)(uintptr_t)broken.embed.data);
}

TEST(the_sampler) {
    enum { V = 1000, DRAWS = 4000 };
    static float logits[V];
    for (int i = 0; i < V; i++) logits[i] = (float)((i * 7919) % 1009) * 0.01f;
    logits[900] = logits[30] = 20;
    CHECK_INT(llm42_sample(logits, V, &(llm42_sampling){0}, 3).token, 30);  // the lowest id on a tie
    int counts[2] = {0};
    for (int i = 0; i < DRAWS; i++) {
        int t = llm42_sample(logits, V, &(llm42_sampling){.temperature = 1, .top_k = 2, .seed = 5}, i).token;
        CHECK(t == 30 || t == 900);
        counts[t == 900]++;
    }
    CHECK_NEAR(counts[0], DRAWS / 2, 5 * sqrt(DRAWS) / 2);                          // five standard deviations
    for (int i = 0; i < V; i++) logits[i] = i < 4 ? logf((float)(4 - i)) : -30.0f;  // 0.4 0.3 0.2 0.1
    int seen[5] = {0}, nucleus[5] = {0}, floor[5] = {0}, border[5] = {0};
    for (int i = 0; i < DRAWS; i++) {
        int t = llm42_sample(logits, V, &(llm42_sampling){.temperature = 1, .seed = 9}, i).token;
        seen[t < 4 ? t : 4]++;
        t = llm42_sample(logits, V, &(llm42_sampling){.temperature = 1, .top_p = 0.65f, .seed = 9}, i).token;
        nucleus[t < 4 ? t : 4]++;
        t = llm42_sample(logits, V, &(llm42_sampling){.temperature = 1, .min_p = 0.45f, .seed = 9}, i).token;
        floor[t < 4 ? t : 4]++;
        t = llm42_sample(logits, V, &(llm42_sampling){.temperature = 1, .min_p = 0.50001f, .seed = 9}, i).token;
        border[t < 4 ? t : 4]++;
    }
    for (int i = 0; i < 4; i++) CHECK_NEAR(seen[i], DRAWS * (4 - i) / 10.0, 160);
    CHECK_INT(nucleus[2] + nucleus[3] + nucleus[4], 0);
    CHECK_NEAR(nucleus[0], DRAWS * 4 / 7.0, 160);
    CHECK_INT(floor[3] + floor[4], 0);
    CHECK_NEAR(floor[2], DRAWS * 2 / 9.0, 160);
    CHECK_INT(border[2] + border[3] + border[4], 0);  // the third has half the weight of the first
    CHECK_NEAR(llm42_logprob(logits, V, 1), log(0.3), 1e-5);
    logits[77] = NAN;  // one bad logit spoils every log-probability, so that the backend's check sees it
    CHECK(isnan(llm42_logprob(logits, V, 1)));
    CHECK(isnan(llm42_sample(logits, V, &(llm42_sampling){.temperature = 1, .top_k = 4, .seed = 9}, 1).logprob));
}

// The probability of each token is that with which it is drawn, for each filter, and at temperature 1 it is the raw
// one.
TEST(probabilities_are_those_of_draws) {
    enum { V = 70, DRAWS = 20000 };
    static const llm42_sampling how[] = {{.temperature = 1},
                                         {.temperature = 0.7f},
                                         {.temperature = 1.5f, .top_k = 7},
                                         {.temperature = 0.8f, .top_p = 0.6f},
                                         {.temperature = 1.2f, .top_k = 20, .top_p = 0.9f, .min_p = 0.1f}};
    float logits[V], logprob[V];
    uint64_t random = 5;
    for (int i = 0; i < V; i++) logits[i] = (float)test_random_int(&random, 0, 40) / 10;  // with ties
    for (int h = 0; h < 5; h++) {
        int drawn[V] = {0}, raw = 0;
        double sum = 0, off = 0;
        for (int i = 0; i < DRAWS; i++) drawn[llm42_sample(logits, V, &how[h], i).token]++;
        llm42_sampled_logprobs(logits, V, &how[h], logprob);
        for (int id = 0; id < V; id++) {
            const float own = llm42_logprob(logits, V, id);
            const double p = exp(logprob[id]);
            raw += memcmp(&logprob[id], &own, sizeof own) == 0, sum += p;
            CHECK_MSG(p > 0 || !drawn[id], "%d: token %d is drawn %d times", h, id, drawn[id]);
            if (p > 0) off += (drawn[id] - DRAWS * p) * (drawn[id] - DRAWS * p) / (DRAWS * p);
        }
        CHECK_INT(raw, h ? 0 : V);
        CHECK_NEAR(sum, 1, 1e-5);
        CHECK_MSG(off < V + 5 * sqrt(2 * V), "%d: chi-square %g of at most %d tokens", h, off, V);
        off = 0;  // a control: those without temperature and filters
        for (int id = 0; id < V; id++) off += fabs(drawn[id] - DRAWS * exp(llm42_logprob(logits, V, id))) / DRAWS;
        CHECK(h ? off > 0.2 : off < 0.1);
    }
    llm42_sampled_logprobs(logits, V, &(llm42_sampling){0}, logprob);  // greedy
    for (int id = 0; id < V; id++) CHECK(id == llm42__argmax(logits, V) ? logprob[id] == 0 : isinf(logprob[id]));
}

// The number whose hash is h.
static uint64_t unhash(uint64_t h) {
    const uint64_t factor[2] = {0x94d049bb133111ebu, 0xbf58476d1ce4e5b9u};
    uint64_t x = h ^ h >> 31 ^ h >> 62;
    for (int i = 0; i < 2; i++) {
        uint64_t inverse = factor[i];
        for (int k = 0; k < 6; k++) inverse *= 2 - factor[i] * inverse;
        x *= inverse;
        x ^= i ? x >> 30 ^ x >> 60 : x >> 27 ^ x >> 54;
    }
    return x - 0x9e3779b97f4a7c15u;
}

// The draw with noise from 23 bits, which the library had before: a control.
static int draw_by_23_bits(const float *logits, int vocab, uint64_t key) {
    int best = 0;
    float top = -INFINITY;
    for (int id = 0; id < vocab; id++) {
        const uint64_t h = llm42_hash(key ^ (uint64_t)id * 0x9e3779b97f4a7c15u);
        const float u = ((float)(h >> 41) + 0.5f) * (1.0f / 8388608.0f);
        const float score = logits[id] - llm42__log_f32(-llm42__log_f32(u));
        if (score > top) best = id, top = score;
    }
    return best;
}

// A token whose logit is `gap` below the largest is drawn as often as its probability says, which nobody can count: at
// 30 it is 1e-13. But it can be drawn only if its hash is one of the smallest (or largest, for the control), and a seed
// can be found for any hash. So its hash is taken at random from the smallest 2^-bits of all, so few that about half of
// these draws give the token: its noise is uniform there, in (0, s), and of the other token exponential, so that the
// share is (1 - exp(-s e^gap)) / (s e^gap), if s is so small that noise and hash are proportional.
TEST(unlikely_tokens_are_drawn_as_often_as_they_should) {
    enum { V = 9, TOKEN = 5, DRAWS = 40000 };
    static const double gaps[] = {0.5, 5, 15, 17, 20.5, 24, 27, 30};
    uint64_t state = 1;
    for (int g = 0; g < 8; g++) {
        float logits[V];
        for (int i = 0; i < V; i++) logits[i] = i == TOKEN ? 3 - (float)gaps[g] : -60;
        logits[2] = 3;
        const int bits = (int)(gaps[g] / log(2));
        const double x = ldexp(exp(gaps[g]), -bits);
        double share = 0;
        for (int i = 0; i < 4096; i++) share += exp(exp(gaps[g]) * log1p(-ldexp(i + 0.5, -12 - bits))) / 4096;
        if (bits > 12) CHECK_NEAR(share, (1 - exp(-x)) / x, 1e-3);
        int drawn = 0, control = 0;
        for (int i = 0; i < DRAWS; i++) {
            const uint64_t h = test_random(&state) >> bits,
                           key[2] = {unhash(h) ^ TOKEN * 0x9e3779b97f4a7c15u, unhash(~h) ^ TOKEN * 0x9e3779b97f4a7c15u};
            const llm42_sampling s = {.temperature = 1, .seed = unhash(key[0]) ^ llm42_hash((uint64_t)i)};
            drawn += llm42_sample(logits, V, &s, i).token == TOKEN;
            control += draw_by_23_bits(logits, V, key[1]) == TOKEN;
        }
        const double wanted = DRAWS * share, slack = 4.5 * sqrt(wanted * (1 - share));
        CHECK_MSG(fabs(drawn - wanted) <= slack, "gap %g: drawn %d times, not %.0f", gaps[g], drawn, wanted);
        const bool found = fabs(control - wanted) > slack;
        CHECK_MSG(found == (gaps[g] > 16), "gap %g: with 23 bits %d times, of %.0f", gaps[g], control, wanted);
        if (gaps[g] > 19.5) CHECK_INT(control, 0);
    }
    // Without a choice of seeds: 262,143 tokens that are 15 below the largest logit.
    enum { MANY = 262144, FEW_DRAWS = 600 };
    float *logits = malloc(MANY * sizeof *logits);
    int others = 0;
    for (int i = 0; i < MANY; i++) logits[i] = i == 70000 ? 0 : -15;
    for (int i = 0; i < FEW_DRAWS; i++)
        others += llm42_sample(logits, MANY, &(llm42_sampling){.temperature = 1, .seed = 3}, i).token != 70000;
    const double rate = (MANY - 1) * exp(-15), share = rate / (1 + rate);
    CHECK_NEAR(others, FEW_DRAWS * share, 4.5 * sqrt(FEW_DRAWS * share * (1 - share)));
    free(logits);
}

// A token is drawn as long as its logit falls by less than its margin, times the temperature.
TEST(margins) {
    enum { V = 1000 };
    float logits[V], changed[V];
    uint64_t random = 1;
    for (int i = 0; i < 200; i++) {
        const llm42_sampling s = {.temperature = (float)(i % 4) * 0.5f, .seed = 7};
        const float by = i % 4 ? s.temperature : 1;
        for (int id = 0; id < V; id++)
            changed[id] = logits[id] = (float)test_random_int(&random, 0, 1 << 20) / (1 << 17);
        const int token = llm42_sample(logits, V, &s, i).token;
        const float margin = llm42_margin(logits, V, &s, i) * by;
        changed[token] = logits[token] - margin + 1e-4f;
        CHECK_INT(llm42_sample(changed, V, &s, i).token, token);
        changed[token] = logits[token] - margin - 1e-4f;
        CHECK(llm42_sample(changed, V, &s, i).token != token);
    }
}

static const float *sorted_logits;
static int by_logit(const void *left, const void *right) {
    const int a = *(const int *)left, b = *(const int *)right;
    if (sorted_logits[a] != sorted_logits[b]) return sorted_logits[a] > sorted_logits[b] ? -1 : 1;
    return a - b;
}

// What top-k and top-p keep of a large vocabulary is what sums in double say, also where logits are equal.
TEST(the_border_of_top_p) {
    enum { V = 128256 };
    static float logits[V];
    static int order[V];
    for (int k = 0; k < 8; k++) {
        const llm42_sampling p = TEST_LIST(.temperature = k == 7 ? 0.7f : 1,
                                           .top_k = k % 2    ? V - 1
                                                    : k == 6 ? 5000
                                                             : 0,
                                           .top_p = k < 4 ? 0.999f : 0.9f);
        const double scale = (double)(1.0f / p.temperature);
        for (int i = 0; i < V; i++) {
            logits[i] = 3 * llm42__synthetic_noise((uint64_t)k, (uint64_t)i);
            if (k & 2) logits[i] = llm42__round_bf16(logits[i]);  // ties
            order[i] = i;
        }
        sorted_logits = logits;
        qsort(order, V, sizeof *order, by_logit);
        double total = 0, sum = 0;
        const int most = p.top_k ? p.top_k : V;
        const float largest = logits[order[0]];
        for (int i = most - 1; i >= 0; i--) total += exp(((double)logits[order[i]] - (double)largest) * scale);
        int kept = 0, wrong = 0;
        while (sum < (double)p.top_p * total) sum += exp(((double)logits[order[kept++]] - (double)largest) * scale);
        llm42__kept border = llm42__filter(&(llm42__choices){logits, V, largest, 1.0f / p.temperature}, &p);
        static bool is[V];
        for (int i = 0; i < V; i++) {
            const uint32_t key = llm42__sort_key(logits[i]);
            is[i] = key > border.key || (key == border.key && border.ties-- > 0);
        }
        for (int i = 0; i < V; i++) wrong += is[order[i]] != (i < kept);
        CHECK_MSG(wrong == 0, "case %d: %d of %d ids are wrongly kept or dropped, %d should be kept", k, wrong, V,
                  kept);
    }
    // With the largest top_p below 1 the wanted mass is still at most the whole, however the whole is rounded. If it
    // were more, no key would reach it, and top_k would be lost. Of equal logits the lowest ids stay.
    const llm42_sampling nearly_all = {.temperature = 1, .top_k = 3, .top_p = nextafterf(1, 0), .seed = 8};
    for (int t = 0; t < 2000; t++) {
        for (int i = 0; i < 64; i++)
            logits[i] = t % 2 ? llm42__synthetic_noise(78, (uint64_t)(t * 64 + i)) : i % 7 ? -1.0f : 2.0f;
        const int token = llm42_sample(logits, 64, &nearly_all, t).token;
        int before = 0;
        for (int i = 0; i < 64; i++) before += logits[i] > logits[token] || (logits[i] == logits[token] && i < token);
        CHECK_MSG(before < 3, "%d tokens stand before the one that was drawn, with top_k 3", before);
    }
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    model = test_load("examples/tiny42");
    mixed_reference = mixed_oracle(prompt, PROMPT, 64);
    RUN_BOTH(tokens_equal_the_oracle, stop_inside_a_window, stop_rolled_back,
             length_reached_at_every_offset_of_a_window, window_of_one, window_larger_than_the_output, group_of_one,
             mismatch_at_the_first_a_middle_and_the_last_position, mismatch_at_every_position, cancel_in_mid_window,
             preemption_in_mid_window, shared_prefix_that_ends_inside_a_page,
             fast_pages_are_not_read_by_deterministic_requests, pages_are_found_by_all_tokens_before_them,
             prompt_of_one_token, n_samples_of_one_prompt, deterministic_arrival_while_the_kv_pool_is_full,
             a_failed_pass_leaves_the_engine_as_it_was, a_failed_replay_is_not_read_by_others,
             ordinary_requests_go_on_at_w_1, the_last_window_reaches_the_prefix_cache);
    RUN(a_backend_whose_rows_change_with_their_place_is_refused, a_preset_fills_the_fields_that_are_zero,
        the_presets_are_what_they_are_called, an_engine_has_the_policies_of_its_preset,
        an_engine_has_no_more_windows_than_requests_run, presets_that_are_refused,
        invariant_prompts_ride_beside_decodes, invariant_prompts_may_be_cut_anywhere,
        invariant_prompts_share_pages_of_invariant_rows, pages_of_outputs_are_not_shared_with_invariant_prompts,
        preemption_under_invariant_prefill);
    RUN_BOTH(events_carry_the_tokens_once_and_steps_allocate_nothing);
    RUN(arrivals_in_the_future_wait);
    RUN_BOTH(run_until_waits_in_real_time);
    RUN(metrics_and_spans, a_file_of_weights_that_shrinks, a_forked_child_runs_passes);
    RUN_BOTH(a_request_whose_embedding_holds_nan);
    RUN(requests_that_are_never_released, a_cancelled_request_does_not_fail);
    RUN_BOTH(a_token_whose_embedding_holds_nan_is_decoded);
    RUN(the_sampler, probabilities_are_those_of_draws, weights_that_are_written, margins,
        unlikely_tokens_are_drawn_as_often_as_they_should, the_border_of_top_p);
    llm42_model_free(model);
    return test_end("test_corners");
}
