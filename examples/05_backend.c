/* 05_backend: a backend of one's own, with a language model of one's own in it.

   The model is a chain of hashes: the state at a position is a hash of the state before it and of the token there, and
   the next token is read from the state. States lie in KV pages, as keys and values do, and the clock is virtual. Now
   and then a FAST pass returns a wrong token on purpose, which a hash that includes the pass's number of rows decides.
   The engine adds batching, paging and determinism, and does not know what kind of model it serves.
   New here: the five functions of a backend. Section api-backend of llm42.h has their contract.

   Compile it in the repository's root, and run it there:

      mkdir -p build && cc -std=c11 -O2 -march=native -ffp-contract=off -fopenmp -I. -I/usr/include/stb \
          examples/05_backend.c -o build/05_backend -lm
      build/05_backend
*/
#define LLM42_IMPLEMENTATION
#include "llm42.h"
#include "util/llm42_policies.h"

// >>backend
typedef struct chain {
    int page_size, vocab;
    double now;
    uint64_t kv[];  // [pages][page_size]: the state at each position
} chain;

static uint64_t next_state(uint64_t before, int32_t token) { return llm42_hash(before ^ (uint64_t)token); }
static int32_t next_token(uint64_t state, int vocab) { return (int32_t)(state % (uint64_t)vocab); }

// Takes all memory that passes will need. Every field of desc is set: no zero means a default.
static llm42_result chain_open(void **state, const llm42_backend_desc *desc, llm42_error *error) {
    chain *c = *state = calloc(1, sizeof *c + (size_t)desc->pages * (size_t)desc->page_size * sizeof *c->kv);
    if (!c) return llm42_fail(error, LLM42_MEMORY, "chain backend: out of memory for %d KV pages", desc->pages);
    c->page_size = desc->page_size;
    c->vocab = desc->model->config.vocab;
    return LLM42_OK;
}

static void chain_close(void *state) { free(state); }

static uint64_t *chain_entry(chain *c, const llm42_seq *seq, int position) {
    size_t page = (size_t)seq->pages[position / c->page_size];
    return &c->kv[page * (size_t)c->page_size + (size_t)(position % c->page_size)];
}

// Each row writes the KV of its position. It may read what its sequence has before it, from this pass or from others.
static llm42_result chain_run(void *state, const llm42_pass *pass, llm42_error *error) {
    chain *c = state;
    if (pass->logits || pass->probe) return llm42_fail(error, LLM42_UNSUPPORTED, "chain backend: it has no logits");
    for (int i = 0; i < pass->rows; i++) {
        const llm42_row *row = &pass->row[i];
        const llm42_seq *seq = &pass->seq[row->seq];
        uint64_t next = next_state(row->position ? *chain_entry(c, seq, row->position - 1) : 0, row->token);
        if (!(row->flags & LLM42_ROW_KEEP_KV)) *chain_entry(c, seq, row->position) = next;
        if (!(row->flags & LLM42_ROW_SAMPLE)) continue;
        bool flip = pass->schedule == LLM42_SCHEDULE_FAST &&
                    llm42_uniform(llm42_hash(next + (uint64_t)pass->shape)) < 0.02;
        pass->out[i] = (llm42_output){(next_token(next, c->vocab) + flip) % c->vocab, -1.0f};
    }
    double ms = 1 + 0.01 * pass->shape;
    if (!pass->check) c->now += 1e-3 * (pass->schedule == LLM42_SCHEDULE_INVARIANT ? 1.5 * ms : ms);
    return LLM42_OK;
}

static double chain_now(void *state) { return ((chain *)state)->now; }
static void chain_wait_until(void *state, double seconds) { ((chain *)state)->now = fmax(chain_now(state), seconds); }

static const llm42_backend chain_backend = {.name = "chain",
                                            .open = chain_open,
                                            .close = chain_close,
                                            .run = chain_run,
                                            .now = chain_now,
                                            .wait_until = chain_wait_until};
// <<backend

enum { REQUESTS = 16, LENGTH = 4, TOKENS = 200 };

// Tokens of an answer that are not the model's own, which follow from the prompt.
static int count_wrong(const llm42_request *r, int vocab) {
    uint64_t state = 0;
    int wrong = 0;
    for (int t = 0; t < LENGTH + TOKENS; t++) {
        int32_t token = t < LENGTH ? r->prompt[t] : next_token(state, vocab);
        wrong += t >= LENGTH && r->tokens[t - LENGTH] != token;
        state = next_state(state, token);
    }
    return wrong;
}

int main(void) {
    static const llm42_mode modes[] = {LLM42_MODE_NONDETERMINISTIC, LLM42_MODE_DVR, LLM42_MODE_BATCH_INVARIANT};
    llm42_model *model = NULL;
    llm42_error error;
    llm42_result result = llm42_model_load(&model, &(llm42_model_desc){.path = "shape:tiny"}, &error);
    printf("%d requests of %d tokens; wrong are those that are not the model's own\n\n", REQUESTS, TOKENS);
    printf("%29s%29s%9s\n", "passes", "tokens", "virtual");
    printf("mode%16s%7s%10s%10s%11s%9s%8s\n", "fast", "replay", "others", "rollbacks", "recomputed", "ms", "wrong");
    for (int m = 0; m < 3 && !result; m++) {
        llm42_engine_desc how = {
            .model = model, .backend = &chain_backend, .policy.mode = modes[m], .policy.window = 16, .policy.group = 4};
        llm42_engine *engine = NULL;
        result = llm42_engine_open(&engine, &how, &error);
        for (int i = 0; i < REQUESTS && !result; i++) {
            const int32_t prompt[LENGTH] = {7, 11, 13, i};
            llm42_request_desc ask = {.prompt = prompt, .prompt_count = LENGTH, .max_new_tokens = TOKENS};
            ask.arrival = 0.02 * i;  // seconds on the backend's clock
            ask.ignore_stop = true;
            ask.deterministic = modes[m] == LLM42_MODE_DVR;
            result = llm42_engine_submit(engine, &ask, NULL, &error);
        }
        if (!result) result = llm42_engine_run(engine, &error);
        if (result) break;
        int wrong = 0;
        for (int i = 1; i <= REQUESTS; i++) wrong += count_wrong(llm42_engine_request(engine, i), model->config.vocab);
        llm42_stats s = llm42_engine_stats(engine);
        const int64_t fast = s.passes[LLM42_SCHEDULE_FAST], invariant = s.passes[LLM42_SCHEDULE_INVARIANT];
        printf("%-16s%4d%7d%10d%10d%11d%9.0f%8d\n", llm42_policy_word(&how, "mode"), (int)fast, (int)s.replay_passes,
               (int)(invariant - s.replay_passes), (int)s.rollbacks, (int)s.recomputed, 1000 * llm42_engine_now(engine),
               wrong);
        llm42_engine_close(engine);
    }
    if (result) fprintf(stderr, "05_backend: %s\n", error.text);
    llm42_model_free(model);
    return result != LLM42_OK;
}
