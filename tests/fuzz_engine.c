// Fuzz target of the engine: an input is a desc and a sequence of submit, cancel, release and step calls, valid and
// not, on the CPU or on the simulator. After every call the books must balance: pages, counts, events, tokens; a step
// allocates nothing; and the tokens and log-probabilities of deterministic requests are those of the same request run
// alone, or on the simulator the true tokens. A spy in front of the backend lets passes fail in some inputs. In others
// memory runs short while an engine opens or takes a request, or on_event submits, cancels and releases requests.
#define FUZZ_RUNS (TEST_SLOW ? 400 : 4000)
#include "fuzz.h"
#include "make_model.h"

#define LLM42_IMPLEMENTATION
#include "examples/util/llm42_synthetic.h"

enum {
    CONTEXT = 48,
    LONGEST = 24,   // prompt tokens
    NEW = 16,       // new tokens, at most
    REQUESTS = 64,  // an input submits at most
    PROMPTS = 6,
    SAMPLINGS = 4,
    STEPS = 3000,  // an input takes at most, the run to the end included
    HEAD = 6,      // bytes of an input that choose the desc
    ROWS = 16,     // of a replay pass, at most
    BUDGET = 78,   // rows of another pass, at most
};

static const char *const fuzz_words[] = {"\x10\x01\x0f", "\x30\x05\x0f\xf7", "\x50\x22\x1f",
                                         "\x27\x27",     "\x05\x01\x06\x01", NULL};

// Most inputs run on a model of 32 tokens, others on one so wide that FAST and FIXED differ, or simulated.
static llm42_model *models[4], *model;

// Prompts share beginnings, so that the prefix cache has something to find: 1, 2, 9, 16, 17 and 24 tokens.
static int32_t tokens_of[LONGEST];
static const int prompt_count[PROMPTS] = {1, 2, 9, 16, 17, LONGEST};

static const llm42_sampling samplings[SAMPLINGS] = {{0},
                                                    {.temperature = 1.0f, .seed = 7},
                                                    {.temperature = 0.7f, .top_k = 5, .seed = 8},
                                                    {.temperature = 1.3f, .top_p = 0.9f, .min_p = 0.01f, .seed = 9}};

// Desc choices. The M of a desc (0: batch-invariant, or the INVARIANT verifier) and the request decide the tokens.
static const int windows[][2] = {{1, 1}, {4, 1}, {2, 2}, {1, 4}, {8, 2}, {4, 4}, {16, 1}, {3, 2}};

typedef struct reference {
    const llm42_model *model;
    llm42_prefill prefill;
    int m, prompt, sampling, count;
    int32_t tokens[NEW];
    float logprobs[NEW];
} reference;

static reference references[1024];
static int reference_count;

static struct {
    int64_t engines, simulated, requests, refused, rollbacks, natural, preemptions, prefix_hits, compared;
    int64_t failed, starved, meddled, drafted, accepted;
} seen;  // what the inputs reached

// Pass times of the simulator are made up: 1 ms, a row and a context of 10 tokens more each.
static double pass_ms[4] = {1, 1.1, 1.2, 1.3}, pass_rows[2] = {1, 11}, pass_contexts[2] = {0, 10};
static llm42_calibration calibration = {
    .name = "fuzz", .devices = 1, .flips = {1, 1, (double[]){1}, (double[]){1}, (double[]){0.1}}, .flip_shape = 1};
static const llm42_sim_desc sim_desc = {.calibration = &calibration};
static int32_t truth[PROMPTS][REQUESTS][NEW];  // tokens of the simulator, by prompt and id - 1

// An engine that has served such a request so many times.
static llm42_engine *served(const llm42_engine_desc *desc, const llm42_request_desc *request, int count) {
    llm42_engine *engine = NULL;
    llm42_error error = {0};
    FUZZ_CHECK(llm42_engine_open(&engine, desc, &error) == LLM42_OK, "%s", error.text);
    for (int i = 0; i < count; i++)
        FUZZ_CHECK(llm42_engine_submit(engine, request, NULL, &error) == LLM42_OK, "%s", error.text);
    FUZZ_CHECK(llm42_engine_run(engine, &error) == LLM42_OK, "%s", error.text);
    return engine;
}

// The request alone, on an engine of its own, with everything else at its simplest but what the promise rests on.
static const reference *alone(const llm42_engine_desc *d, int prompt, int sampling) {
    int m = d->policy.mode == LLM42_MODE_DVR && d->policy.verifier == LLM42_VERIFIER_FIXED
                ? d->policy.window * d->policy.group
                : 0;
    llm42_prefill prefill = m && d->policy.prefill == LLM42_PREFILL_INVARIANT ? d->policy.prefill
                                                                              : LLM42_PREFILL_PACKED;
    for (int i = 0; i < reference_count; i++)
        if (references[i].model == model && references[i].m == m && references[i].prefill == prefill &&
            references[i].prompt == prompt && references[i].sampling == sampling)
            return &references[i];
    FUZZ_CHECK(reference_count < 1024, "too many references");
    reference *r = &references[reference_count++];
    llm42_engine_desc desc = TEST_LIST(.model = model, .backend_desc = TEST_THREADS(1), .max_context = CONTEXT,
                                       .max_running = 1, .policy.window = m ? m : 1, .policy.group = 1,
                                       .policy.mode = m ? LLM42_MODE_DVR : LLM42_MODE_BATCH_INVARIANT,
                                       .policy.verifier = m ? LLM42_VERIFIER_FIXED : LLM42_VERIFIER_INVARIANT,
                                       .policy.prefill = prefill, .kv.pages = 8);
    llm42_request_desc request = TEST_LIST(.prompt = tokens_of, .prompt_count = prompt_count[prompt],
                                           .max_new_tokens = NEW, .deterministic = true, .ignore_stop = true,
                                           .sampling = samplings[sampling]);
    llm42_engine *engine = served(&desc, &request, 1);
    const llm42_request *info = llm42_engine_request(engine, 1);
    FUZZ_CHECK(info && info->committed == NEW, "the reference run is short");
    *r = (reference){.model = model, .m = m, .prefill = prefill, .prompt = prompt, .sampling = sampling, .count = NEW};
    memcpy(r->tokens, info->tokens, sizeof r->tokens);
    memcpy(r->logprobs, info->logprobs, sizeof r->logprobs);
    llm42_engine_close(engine);
    return r;
}

// What the events told about a request.
typedef struct shadow {
    int64_t id;
    int prompt, sampling, max_new, committed, candidates, rolled_back_at;
    bool live, finished, deterministic, checked;
    bool cancelled, released;  // inside an event: it commits no more tokens; it goes when the outer call returns
    int64_t rollbacks, verifications, preemptions;
    int32_t tokens[NEW], candidate[CONTEXT];
    const int32_t *own;     // its canonical tokens; NULL: not known, or the simulator's
    float guessed[NEW];     // log-probabilities of the newest candidates, from their events
    llm42_output replayed;  // of the last rollback; token 0 and log-probability 1: none that must come next
    float logprobs[NEW];
} shadow;

static struct {
    llm42_engine *engine;
    const llm42_engine_desc *desc;
    shadow requests[REQUESTS];
    int count, submitting;  // submitting: index of the request whose submit call runs, else -1
    int64_t passes;
    double time;             // of the last event
    bool simulated, faulty;  // faulty: passes fail now and then
    bool starving;           // allocations fail now and then
    bool meddling;           // on_event calls the engine
    bool drafter_failed;
    int64_t allocated;  // inside events
    uint64_t random;
    const uint8_t *data;
    size_t size;
} run;

static uint8_t next(void) {
    if (!run.size) return 0;
    run.size--;
    return *run.data++;
}

// The spy.
static bool spy_fails(void) { return run.faulty && test_random(&run.random) % 8 == 0; }

static const llm42_backend *behind(void) { return run.simulated ? llm42_backend_sim() : llm42_backend_cpu(); }

// Inputs may ask for one pass in eight to fail. Its outputs are undefined then.
static llm42_result spy_result(const llm42_pass *pass, bool fails, llm42_error *error) {
    if (!fails) return LLM42_OK;
    for (int i = 0; i < pass->rows; i++) pass->out[i] = (llm42_output){-1, NAN};
    if (error) *error = (llm42_error){LLM42_BACKEND, "made to fail"};
    seen.failed++;
    return LLM42_BACKEND;
}

static llm42_result spy_open(void **state, const llm42_backend_desc *desc, llm42_error *error) {
    return behind()->open(state, desc, error);
}

static void spy_close(void *state) { behind()->close(state); }

// After a preemption tokens of a deterministic request follow its prompt in other passes.
static bool ends_prompt(const llm42_pass *pass, const llm42_row *row) {
    for (int i = 0; i < run.count; i++)
        if (run.requests[i].id == pass->seq[row->seq].request)
            return run.requests[i].deterministic && row->position + 1 == prompt_count[run.requests[i].prompt];
    return false;
}

static llm42_result spy_run(void *state, const llm42_pass *pass, llm42_error *error) {
    bool replay = run.desc &&
                  pass->schedule == (run.desc->policy.verifier == LLM42_VERIFIER_FIXED ? LLM42_SCHEDULE_FIXED
                                                                                       : LLM42_SCHEDULE_INVARIANT);
    bool whole = run.desc && run.desc->policy.chunked_prefill == LLM42_CHUNKED_OFF && !replay;
    for (int i = 0; whole && i < pass->rows; i++) {
        bool last = i + 1 == pass->rows || pass->row[i + 1].seq != pass->row[i].seq;
        FUZZ_CHECK(!last || (pass->row[i].flags & LLM42_ROW_SAMPLE) || ends_prompt(pass, &pass->row[i]),
                   "a prompt in parts, without chunked prefill");
    }
    llm42_row wrong[BUDGET];
    llm42_pass as_run = *pass;
    bool fails = spy_fails();
    for (int i = 0; fails && i < pass->rows; i++) {  // a pass that fails leaves wrong KV behind
        wrong[i] = pass->row[i];
        wrong[i].token ^= 1;
        as_run.row = wrong;
    }
    llm42_result result = behind()->run(state, &as_run, error);
    return result != LLM42_OK ? result : spy_result(pass, fails, error);
}

static double spy_now(void *state) { return behind()->now(state); }
static void spy_wait_until(void *state, double seconds) { behind()->wait_until(state, seconds); }

static const llm42_backend spy = {
    .name = "spy", .open = spy_open, .close = spy_close, .run = spy_run, .now = spy_now, .wait_until = spy_wait_until};

// What the events tell.
static shadow *shadow_of(int64_t id) {
    for (int i = 0; i < run.count; i++)
        if (run.requests[i].id == id) return &run.requests[i];
    return NULL;
}

// Drafts are right, wrong, too few or a stop token by chance. A drafter that breaks a rule or fails is asked no more.
static llm42_result draft(void *user, const llm42_view *view, llm42_draft *d, int count, llm42_error *error) {
    (void)user, (void)view;
    FUZZ_CHECK(!run.drafter_failed && count >= 1, "asked for %d drafts", count);
    for (int i = 0; i < count; i++) {
        const llm42_request *r = d[i].request;
        const shadow *s = shadow_of(r->id);
        const int at = r->committed + r->candidates;
        FUZZ_CHECK(s && d[i].limit >= 1 && d[i].limit + at < s->max_new && !r->drafts,
                   "%d drafts of request %lld at %d", d[i].limit, (long long)r->id, at);
        const int32_t *own = run.simulated ? truth[s->prompt][s->id - 1] : s->own;
        d[i].count = (int)(test_random(&run.random) % (uint64_t)(d[i].limit + 1));
        for (int k = 0; k < d[i].count; k++) {
            const uint64_t chance = test_random(&run.random);
            d[i].token[k] = own && chance % 4 ? own[at + k] : (int32_t)(chance >> 8) & (model->config.vocab - 1);
        }
        if (test_random(&run.random) % 512) continue;
        run.drafter_failed = true;
        if (test_random(&run.random) % 2) d[i].count = d[i].limit + 1;
        else d[i].count = 1, d[i].token[0] = model->config.vocab;
    }
    seen.drafted++;
    if (test_random(&run.random) % 512 == 0) return run.drafter_failed = true, llm42_fail(error, LLM42_IO, "no drafts");
    return LLM42_OK;
}

static void forget(void *user, const llm42_request *request) {
    (void)user;
    const shadow *s = shadow_of(request->id);
    FUZZ_CHECK(s && !s->finished && request->state == LLM42_STATE_FINISHED, "forget before the end");
}

static double draft_seconds(void *user, int requests, int tokens) {
    (void)user;
    return 1e-6 * (requests + tokens);
}

static const llm42_drafter drafters[2] = {
    {.name = "chance", .draft = draft}, {.name = "timed", .draft = draft, .forget = forget, .seconds = draft_seconds}};

static void committed(shadow *s, const llm42_event *e) {
    FUZZ_CHECK(e->position == s->committed && e->n >= 1 && e->tokens && e->logprobs, "committed at %d, expected %d",
               e->position, s->committed);
    FUZZ_CHECK(!s->cancelled, "tokens of a request that was cancelled inside an event");
    FUZZ_CHECK(s->committed + e->n <= s->max_new, "%d + %d tokens of %d", s->committed, e->n, s->max_new);
    if (s->replayed.logprob <= 0) {
        const float logprob = e->logprobs[s->rolled_back_at - e->position];
        FUZZ_CHECK(e->tokens[s->rolled_back_at - e->position] == s->replayed.token &&
                       memcmp(&logprob, &s->replayed.logprob, sizeof logprob) == 0,
                   "a rollback announced token %d, which is not what came", (int)s->replayed.token);
        s->replayed.logprob = 1;
    }
    memcpy(s->tokens + s->committed, e->tokens, (size_t)e->n * sizeof *s->tokens);
    memcpy(s->logprobs + s->committed, e->logprobs, (size_t)e->n * sizeof *s->logprobs);
    s->committed += e->n;
}

// Beside those that run already a request is admitted only when pages are left for the reserve.
static void check_reserve(void) {
    llm42_stats stats = llm42_engine_stats(run.engine);
    int64_t left = 0;
    for (int i = 0; i < run.count; i++) {
        const llm42_request *r = llm42_engine_request(run.engine, run.requests[i].id);
        bool runs = r && (r->state == LLM42_STATE_PREFILL || r->state == LLM42_STATE_DECODE);
        left += runs ? r->max_new_tokens - r->committed : 0;
    }
    double pages = run.desc->kv.admission_reserve * (double)left / run.desc->kv.page_size;
    FUZZ_CHECK(stats.running == 1 || stats.pages_free >= pages - 1e-9, "%d pages free, %g in reserve", stats.pages_free,
               pages);
}

static void check_event(const llm42_event *e) {
    FUZZ_CHECK(e->type > LLM42_EVENT_NONE && e->type <= LLM42_EVENT_PASS, "event %d", (int)e->type);
    FUZZ_CHECK(e->time >= run.time, "%s at %.9f, after %.9f", llm42_event_name(e->type), e->time, run.time);
    run.time = e->time;
    if (e->type == LLM42_EVENT_PASS) {
        FUZZ_CHECK(e->request == 0 && e->n >= 1 && e->n <= e->shape && e->begin <= e->time, "%d rows, shape %d", e->n,
                   e->shape);
        run.passes++;
        return;
    }
    shadow *s = shadow_of(e->request);
    if (e->type == LLM42_EVENT_SUBMITTED && !s && run.submitting >= 0) {
        s = &run.requests[run.submitting];
        s->id = e->request;
        run.count = run.submitting + 1;
    }
    FUZZ_CHECK(s && e->info && e->info->id == e->request, "%s of request %lld that nobody submitted",
               llm42_event_name(e->type), (long long)e->request);
    FUZZ_CHECK(!s->finished, "%s after finished", llm42_event_name(e->type));
    switch (e->type) {
    case LLM42_EVENT_ADMITTED: check_reserve(); break;
    case LLM42_EVENT_CANDIDATE:
        FUZZ_CHECK(s->deterministic && e->n == 1, "a candidate of an ordinary request");
        FUZZ_CHECK(e->position >= s->committed && e->position < NEW, "candidate at %d of %d", e->position,
                   s->committed);
        s->guessed[e->position] = e->logprobs[0];
        break;
    case LLM42_EVENT_COMMITTED: committed(s, e); break;
    case LLM42_EVENT_DRAFTED:
        FUZZ_CHECK(e->n == e->info->drafts && e->n >= 1 && e->position == e->info->committed + e->info->candidates,
                   "%d drafts at %d", e->n, e->position);
        break;
    case LLM42_EVENT_ACCEPTED: seen.accepted += e->n; break;
    case LLM42_EVENT_VERIFIED: s->verifications++; break;
    case LLM42_EVENT_ROLLED_BACK:
        FUZZ_CHECK(e->n >= 1 && s->deterministic, "%d candidates rolled back", e->n);
        FUZZ_CHECK(memcmp(e->logprobs, s->guessed + e->position, (size_t)e->n * sizeof *e->logprobs) == 0,
                   "log-probabilities of a rollback at %d are not those of its candidates", e->position);
        FUZZ_CHECK(e->replayed.token != e->tokens[0], "a rollback to the same token %d", (int)e->tokens[0]);
        s->replayed = e->replayed, s->rolled_back_at = e->position;
        s->rollbacks++;
        break;
    case LLM42_EVENT_PREEMPTED: s->preemptions++; break;
    case LLM42_EVENT_FINISHED:
        FUZZ_CHECK(e->n == s->committed, "finished with %d tokens, %d were committed", e->n, s->committed);
        s->finished = true;
        break;
    default: break;
    }
}

static void check_promise(shadow *s);

static llm42_request_desc describe(shadow *s, uint8_t which, uint8_t how, bool deterministic) {
    *s = (shadow)TEST_LIST(.prompt = which % PROMPTS, .sampling = (how >> 4) % SAMPLINGS, .max_new = 1 + how % NEW,
                           .replayed.logprob = 1, .deterministic = deterministic, .live = true);
    return (llm42_request_desc)TEST_LIST(.prompt = tokens_of, .prompt_count = prompt_count[s->prompt],
                                         .max_new_tokens = s->max_new, .deterministic = deterministic,
                                         .sampling = samplings[s->sampling]);
}

// Calls the engine from inside an event. What may not be called there is refused and changes nothing.
static void meddle(void) {
    uint64_t r = test_random(&run.random);
    shadow *s = run.count ? &run.requests[r / 16 % (uint64_t)run.count] : NULL;
    llm42_error error = {0};
    llm42_result result = LLM42_INVALID;
    seen.meddled++;
    if (r % 8 < 2 && run.count < REQUESTS) {
        s = &run.requests[run.count];
        llm42_request_desc desc = describe(s, (uint8_t)(r >> 16), (uint8_t)(r >> 24), r >> 32 & 1);
        desc.ignore_stop = true;
        int64_t before = test_allocations();
        result = llm42_engine_submit(run.engine, &desc, &s->id, &error);
        run.allocated += test_allocations() - before;
        if (result == LLM42_OK) run.count++;
        FUZZ_CHECK(result == LLM42_OK || result == LLM42_NEVER_FITS ||
                       run.desc->policy.mode == LLM42_MODE_NONDETERMINISTIC,
                   "%s", error.text);
    } else if (r % 8 < 4 && s) {
        result = llm42_engine_cancel(run.engine, s->id, &error);
        bool gone = !s->live || (s->released && !llm42_engine_request(run.engine, s->id));
        FUZZ_CHECK(result == (gone ? LLM42_NOT_FOUND : LLM42_OK), "%s", error.text);
        s->cancelled = true;
    } else if (r % 8 < 6 && s) {
        result = llm42_engine_release(run.engine, s->id, &error);
        bool gone = !s->live || (s->released && result == LLM42_NOT_FOUND);  // since the event in which it was released
        FUZZ_CHECK(result == (gone ? LLM42_NOT_FOUND : s->finished ? LLM42_OK : LLM42_INVALID), "%s", error.text);
        s->released |= result == LLM42_OK;
    } else if (r % 8 == 6) {
        FUZZ_CHECK(llm42_engine_step(run.engine, &error) == LLM42_INVALID, "a step inside an event");
        FUZZ_CHECK(llm42_engine_run(run.engine, &error) == LLM42_INVALID && error.text[0], "a run inside an event");
    } else {
        FUZZ_CHECK(llm42_engine_close(run.engine) == LLM42_INVALID, "closed inside an event");
    }
}

static void on_event(void *user, const llm42_event *e) {
    (void)user;
    check_event(e);
    if (run.meddling && test_random(&run.random) % 4 == 0) meddle();
}

// What events released is gone when the call that emitted them has returned.
static void forget_released(void) {
    for (int i = 0; i < run.count; i++) {
        shadow *s = &run.requests[i];
        if (!s->released || !s->live) continue;
        check_promise(s);
        s->checked = true;
        s->live = false;
    }
}

// A deterministic request's promise: under PACKED and INVARIANT prefill, with the INVARIANT verifier, and always in a
// batch-invariant engine and on the simulator, whose tokens do not hang on KV.
static void check_promise(shadow *s) {
    const llm42_engine_desc *d = run.desc;
    bool invariant = d->policy.mode == LLM42_MODE_BATCH_INVARIANT;
    bool any = d->policy.prefill != LLM42_PREFILL_ISOLATED || d->policy.verifier == LLM42_VERIFIER_INVARIANT;
    bool promised = invariant ||
                    ((d->policy.mode == LLM42_MODE_DVR || d->policy.mode == LLM42_MODE_HYBRID) && s->deterministic &&
                     (run.simulated || (any && !d->experiment.keep_fast_kv)) && d->experiment.gate == 0);
    if (!promised || !s->committed) return;
    if (run.simulated) {
        seen.compared++;
        FUZZ_CHECK(memcmp(truth[s->prompt][s->id - 1], s->tokens, (size_t)s->committed * sizeof *s->tokens) == 0,
                   "request %lld: tokens other than the true ones", (long long)s->id);
        return;
    }
    const reference *r = alone(d, s->prompt, s->sampling);
    seen.compared++;
    FUZZ_CHECK(memcmp(r->tokens, s->tokens, (size_t)s->committed * sizeof *s->tokens) == 0,
               "request %lld: tokens differ from the run alone", (long long)s->id);
    FUZZ_CHECK(memcmp(r->logprobs, s->logprobs, (size_t)s->committed * sizeof *s->logprobs) == 0,
               "request %lld: log-probabilities differ from the run alone", (long long)s->id);
}

static void check_request(shadow *s) {
    const llm42_request *r = llm42_engine_request(run.engine, s->id);
    FUZZ_CHECK((r != NULL) == s->live, "request %lld", (long long)s->id);
    if (!r) return;
    FUZZ_CHECK(r->id == s->id && r->committed == s->committed, "committed %d, events told %d", r->committed,
               s->committed);
    FUZZ_CHECK(r->committed <= r->max_new_tokens && r->candidates >= 0, "committed %d", r->committed);
    FUZZ_CHECK(r->committed + r->candidates <= r->max_new_tokens, "%d candidates", r->candidates);
    FUZZ_CHECK((r->state == LLM42_STATE_FINISHED) == s->finished, "state %d", (int)r->state);
    FUZZ_CHECK((r->finish != LLM42_FINISH_NONE) == s->finished, "finish %d", (int)r->finish);
    FUZZ_CHECK(memcmp(r->tokens, s->tokens, (size_t)r->committed * 4) == 0, "tokens other than the events told");
    FUZZ_CHECK(memcmp(r->logprobs, s->logprobs, (size_t)r->committed * 4) == 0, "logprobs other than the events told");
    FUZZ_CHECK(r->rollbacks == s->rollbacks && r->preemptions == s->preemptions, "counts other than the events told");
    for (int i = 0; i < r->committed + r->candidates; i++)
        FUZZ_CHECK(r->tokens[i] >= 0 && r->tokens[i] < model->config.vocab, "token %d", (int)r->tokens[i]);
    for (int i = 0; i < r->committed; i++) FUZZ_CHECK(r->logprobs[i] <= 0, "logprob %g", (double)r->logprobs[i]);
    if (r->finish == LLM42_FINISH_LENGTH) FUZZ_CHECK(r->committed == r->max_new_tokens, "%d tokens", r->committed);
}

static void check_all(void) {
    forget_released();
    llm42_stats stats = llm42_engine_stats(run.engine);
    FUZZ_CHECK(stats.pages_free >= 0 && stats.pages_free <= run.desc->kv.pages, "%d pages free", stats.pages_free);
    FUZZ_CHECK(stats.running >= 0 && stats.running <= run.desc->max_running, "%d running", stats.running);
    int64_t submitted = 0, finished = 0, returned = 0;
    for (int i = 0; i < run.count; i++) {
        check_request(&run.requests[i]);
        submitted++;
        finished += run.requests[i].finished;
        returned += run.requests[i].committed;
    }
    FUZZ_CHECK(stats.submitted == submitted, "%lld submitted", (long long)stats.submitted);
    FUZZ_CHECK(stats.finished + stats.cancelled >= finished, "%lld finished", (long long)stats.finished);
    FUZZ_CHECK(stats.running + stats.waiting == submitted - finished, "%d running, %d waiting", stats.running,
               stats.waiting);
    FUZZ_CHECK(stats.returned_tokens == returned, "%lld returned, the events told %lld",
               (long long)stats.returned_tokens, (long long)returned);
    if (submitted == finished && !run.desc->kv.prefix_cache)
        FUZZ_CHECK(stats.pages_free == run.desc->kv.pages, "%d pages free of %d", stats.pages_free, run.desc->kv.pages);
}

static llm42_result step(void) {
    llm42_error error = {0};
    int64_t before = test_allocations();
    run.allocated = 0;
    llm42_result result = llm42_engine_step(run.engine, &error);
    int64_t allocated = test_allocations() - before - run.allocated;
    FUZZ_CHECK(allocated == 0, "the step allocated %lld times", (long long)allocated);
    FUZZ_CHECK(result >= LLM42_OK || (run.faulty && result == LLM42_BACKEND), "%s", error.text);
    check_all();
    return result;
}

// In some inputs the allocations of the next call may fail.
static void starve(void) {
    test_state.asked = test_state.starved = 0;
    test_state.starve = run.starving ? (unsigned)(test_random(&run.random) % 16) : 0;
}

// True if the call ran out of memory, which it must say.
static bool ran_out(llm42_result result, const llm42_error *error) {
    test_state.starve = 0;
    FUZZ_CHECK((result == LLM42_MEMORY) == (test_state.starved > 0), "%u allocations failed: %s", test_state.starved,
               error->text);
    seen.starved += result == LLM42_MEMORY;
    return result == LLM42_MEMORY;
}

// One field out of its range: refused by name, and nothing else happens.
static void submit_invalid(llm42_request_desc desc) {
    static const int32_t wrong[2] = {3, 1 << 20};
    llm42_error error = {0};
    int64_t id = 0;
    int submitting = run.submitting;
    run.submitting = -1;
    switch (next() % 14) {
    case 0: desc.prompt_count = 0; break;
    case 1: desc.prompt = NULL; break;
    case 2: desc.prompt = wrong, desc.prompt_count = 2; break;
    case 3: desc.max_new_tokens = -1; break;
    case 4: desc.max_new_tokens = CONTEXT; break;
    case 5: desc.sampling.temperature = NAN; break;
    case 6: desc.sampling.top_k = -2; break;
    case 7: desc.sampling.top_p = 2; break;
    case 8: desc.sampling.min_p = -1; break;
    case 9: desc.stop_count = LLM42_MAX_STOP + 1, desc.stop = tokens_of; break;
    case 10: desc.stop = wrong, desc.stop_count = 2; break;
    case 11: desc.arrival = (double)NAN; break;
    case 12: desc.prompt_count = -5; break;
    default: desc.sample_index = -1; break;
    }
    llm42_result result = llm42_engine_submit(run.engine, &desc, &id, &error);
    FUZZ_CHECK(result < 0 && error.result == result && error.text[0], "result %d", (int)result);
    run.submitting = submitting;
}

static void submit(uint8_t op) {
    if (run.count == REQUESTS) return;
    shadow *s = &run.requests[run.count];
    uint8_t which = next(), how = next();
    llm42_request_desc desc = describe(s, which, how, (op & 0x10) != 0);
    desc.ignore_stop = (op & 0x20) != 0;
    const int32_t *own = run.simulated ? truth[s->prompt][run.count] : alone(run.desc, s->prompt, s->sampling)->tokens;
    s->own = own;
    int32_t stop = own[which >> 4];
    if (op & 0x40) desc.stop = &stop, desc.stop_count = 1;  // one that is going to come
    if ((op & 0x80) && which % 7 == 0) {
        submit_invalid(desc);
        return;
    }
    if (op & 0x80) desc.arrival = llm42_engine_now(run.engine) + 1e-4 * (which % 4);
    llm42_error error = {0};
    int64_t id = 0;
    int count = run.count;
    run.submitting = count;
    starve();
    llm42_result result = llm42_engine_submit(run.engine, &desc, &id, &error);
    run.submitting = -1;
    if (ran_out(result, &error)) {
        FUZZ_CHECK(run.count == count, "out of memory after its submitted event");
        return;
    }
    if (result == LLM42_OK) {
        FUZZ_CHECK(run.count > count && s->id == id, "submit told id %lld, the event %lld", (long long)id,
                   (long long)s->id);
        return;
    }
    seen.refused++;
    // An honest request is refused only when it can never fit, or when its mode forbids it.
    FUZZ_CHECK(run.count == count, "refused after its submitted event");
    FUZZ_CHECK(result == LLM42_NEVER_FITS || (run.desc->policy.mode == LLM42_MODE_NONDETERMINISTIC && s->deterministic),
               "%s", error.text);
}

static void cancel(void) {
    llm42_error error = {0};
    uint8_t which = next();
    shadow *s = run.count && which % 8 ? &run.requests[which % run.count] : NULL;
    llm42_result result = llm42_engine_cancel(run.engine, s ? s->id : 100000 + which, &error);
    FUZZ_CHECK(result == (s && s->live ? LLM42_OK : LLM42_NOT_FOUND), "%s", error.text);
    FUZZ_CHECK(!s || s->finished, "cancelled and not finished");
}

static void release(void) {
    llm42_error error = {0};
    uint8_t which = next();
    shadow *s = run.count && which % 8 ? &run.requests[which % run.count] : NULL;
    llm42_result result = llm42_engine_release(run.engine, s ? s->id : 100000 + which, &error);
    llm42_result expected = !s || !s->live ? LLM42_NOT_FOUND : s->finished ? LLM42_OK : LLM42_INVALID;
    FUZZ_CHECK(result == expected, "%d: %s", (int)result, error.text);
    if (result == LLM42_OK) check_promise(s), s->checked = true, s->live = false;
}

static bool open_engine(void) {
    uint8_t a = next(), b = next(), c = next(), d = next(), e = next(), f = next();
    static const int tokens[] = {34, 40, 44, 48, 64, 80, 112, 400}, sizes[] = {1, 2, 4, 16};  // of the KV pool
    run.simulated = e & 1;
    run.random = 1u + d;
    model = models[run.simulated ? 2 : c & 0x80 ? 3 : (d & 0x60) == 0];
    llm42_engine_desc desc = TEST_LIST(.model = model, .backend = &spy,
                                       .backend_desc = run.simulated ? (const void *)&sim_desc : TEST_THREADS(1),
                                       .policy.chunked_prefill = e & 4 ? LLM42_CHUNKED_OFF : LLM42_CHUNKED_ON,
                                       .kv.admission_reserve = (e >> 4 & 3) * 0.3, .max_context = CONTEXT,
                                       .policy.window = windows[a & 7][0], .policy.group = windows[a & 7][1],
                                       .policy.verifier = f & 1 ? LLM42_VERIFIER_INVARIANT : LLM42_VERIFIER_FIXED,
                                       .policy.verify = a & 8 ? LLM42_VERIFY_WAIT : LLM42_VERIFY_EAGER,
                                       .experiment.bonus = a & 16 ? LLM42_BONUS_OFF : LLM42_BONUS_ON,
                                       .policy.prefill = (a & 0x60) == 0x60   ? LLM42_PREFILL_ISOLATED
                                                         : (a & 0x60) == 0x40 ? LLM42_PREFILL_INVARIANT
                                                                              : LLM42_PREFILL_PACKED,
                                       .kv.prefix_cache = (a & 0x80) != 0 && (a & 0x60) != 0x60,
                                       .kv.page_size = sizes[b & 3], .kv.pages = tokens[b >> 2 & 7] / sizes[b & 3],
                                       .max_running = 1 + (b >> 5),
                                       .token_budget = (e & 4 ? CONTEXT : 1 + (b >> 5)) + (c & 15) * 2,
                                       .policy.deadline = c >> 4 & 3,
                                       .experiment.inject_rate = (d & 3) == 3 ? 1.0 : (d & 3) * 0.15,
                                       .policy.mode = (d & 0x1c) == 4                 ? LLM42_MODE_NONDETERMINISTIC
                                                      : (d & 0x1c) == 8               ? LLM42_MODE_BATCH_INVARIANT
                                                      : run.simulated && (f & 3) == 3 ? LLM42_MODE_HYBRID
                                                                                      : LLM42_MODE_DVR,
                                       .experiment.keep_fast_kv = (d & 0xe0) == 0xe0,
                                       .experiment.gate = (d & 0xe0) == 0xa0 ? 0.5 : 0, .kv.snapshots = c >> 6 & 1,
                                       .drafter = f >> 2 & 3 ? &drafters[f >> 2 & 1] : NULL, .draft_limit = f >> 4 & 7,
                                       .draft_ordinary = f >> 7 & 1, .on_event = on_event);
    llm42_error error = {0};
    run.starving = e >> 6 == 2;
    starve();
    llm42_result result = llm42_engine_open(&run.engine, &desc, &error);
    if (ran_out(result, &error)) {
        FUZZ_CHECK(!run.engine, "an engine without memory");
        result = llm42_engine_open(&run.engine, &desc, &error);
    }
    if (result != LLM42_OK) FUZZ_CHECK(error.text[0] && result < 0 && !run.engine, "result %d", (int)result);
    FUZZ_CHECK(result == LLM42_OK || result == LLM42_INVALID, "%s", error.text);
    if (result == LLM42_OK) run.desc = llm42_engine_config(run.engine);
    run.drafter_failed = false;
    run.faulty = e >> 6 == 3;
    run.meddling = e >> 6 == 1;
    return result == LLM42_OK;
}

// The simulator's true tokens are those of its batch-invariant passes, by id and prompt length.
static void set_up_truth(int prompt) {
    llm42_engine_desc desc = TEST_LIST(.model = models[2], .backend = llm42_backend_sim(), .backend_desc = &sim_desc,
                                       .max_context = CONTEXT, .policy.mode = LLM42_MODE_BATCH_INVARIANT);
    llm42_request_desc request = {
        .prompt = tokens_of, .prompt_count = prompt_count[prompt], .max_new_tokens = NEW, .ignore_stop = true};
    llm42_engine *engine = served(&desc, &request, REQUESTS);
    for (int i = 0; i < REQUESTS; i++)
        memcpy(truth[prompt][i], llm42_engine_request(engine, i + 1)->tokens, sizeof truth[prompt][i]);
    llm42_engine_close(engine);
}

static void set_up(void) {
    uint64_t random = 1;
    if (models[0]) return;
    models[0] = test_model(&test_shapes[0]), models[1] = test_load("synthetic:tiny");
    models[2] = test_load("shape:tiny"), models[3] = test_model(&test_hybrid);
    for (int i = 0; i < LONGEST; i++) tokens_of[i] = test_random_int(&random, 3, 31);
    for (int schedule = LLM42_SCHEDULE_FAST; schedule <= LLM42_SCHEDULE_INVARIANT; schedule++)
        for (int kind = 0; kind < LLM42_KIND_COUNT; kind++)
            calibration.cost[schedule][kind] = (llm42_table){2, 2, pass_rows, pass_contexts, pass_ms};
    for (int i = 0; i < PROMPTS; i++) set_up_truth(i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    set_up();
    memset(&run, 0, sizeof run);
    run.submitting = -1;
    run.data = data;
    run.size = size;
    if (!open_engine()) return 0;
    int steps = 0;
    while (run.size && steps < STEPS / 2) {
        uint8_t op = next();
        switch (op & 15) {
        case 0:
        case 1:
        case 2:
        case 3:
        case 4: submit(op); break;
        case 5: cancel(); break;
        case 6: release(); break;
        default:
            for (int i = 0; i < 1 + (op >> 4); i++, steps++) step();
        }
        check_all();
    }
    while (step() != LLM42_IDLE) FUZZ_CHECK(++steps < STEPS, "no end in sight");
    for (int i = 0; i < run.count; i++) {
        FUZZ_CHECK(run.requests[i].finished, "idle with an unfinished request");
        if (!run.requests[i].checked) check_promise(&run.requests[i]);
    }
    llm42_stats stats = llm42_engine_stats(run.engine);
    seen.engines++;
    seen.simulated += run.simulated;
    seen.requests += stats.submitted;
    seen.rollbacks += stats.rollbacks;
    seen.natural += run.desc->experiment.inject_rate > 0 ? 0 : stats.rollbacks;
    seen.preemptions += stats.preemptions;
    seen.prefix_hits += stats.prefix_hits;
    llm42_engine_close(run.engine);
    return 0;
}

// Seeds: a few descs, each with a burst of requests, some steps, a cancel and a late arrival.
static inline size_t fuzz_seed(int index, uint8_t *out, size_t room) {
    uint64_t random = 100 + (uint64_t)index;
    size_t size = HEAD;
    if (index >= 48) return 0;
    for (int i = 0; i < HEAD; i++) out[i] = (uint8_t)test_random(&random);
    while (size < 60 + (size_t)index && size + 3 < room) {
        static const uint8_t ops[] = {0x10, 0x30, 0x50, 0x00, 0x90, 0x27, 0x47, 0x07, 0x37, 0x05, 0x06, 0x70};
        uint8_t op = ops[test_random(&random) % sizeof ops];
        bool first = size < HEAD + 24;  // eight requests come first; in every other seed ordinary ones
        out[size++] = first ? (uint8_t)(op & (index % 2 ? 0x70 : 0x60)) : op;
        out[size++] = (uint8_t)test_random(&random);
        out[size++] = (uint8_t)test_random(&random);
    }
    return size;
}

static inline void fuzz_report(void) {
    printf("  %lld engines (%lld simulated), %lld requests, %lld refused, %lld compared with the run alone\n",
           (long long)seen.engines, (long long)seen.simulated, (long long)seen.requests, (long long)seen.refused,
           (long long)seen.compared);
    printf("  %lld passes that failed, %lld calls that ran out of memory, %lld inside events\n", (long long)seen.failed,
           (long long)seen.starved, (long long)seen.meddled);
    printf("  %lld rollbacks (%lld without injection), %lld preemptions, %lld tokens from the prefix cache\n",
           (long long)seen.rollbacks, (long long)seen.natural, (long long)seen.preemptions,
           (long long)seen.prefix_hits);
    printf("  %lld times asked for drafts, %lld of which were accepted\n", (long long)seen.drafted,
           (long long)seen.accepted);
}

FUZZ_MAIN("fuzz_engine");
