// test_events: what a program may do inside on_event. Requests are submitted, cancelled and released there, from every
// kind of event, on the simulator with flips and preemption. The tokens of all others stay as
// they are, and no page, slot or request is lost. llm42_engine_step, _run and _close are refused there.
#include "test.h"
#define LLM42_CALIBRATION_IMPLEMENTATION
#include "examples/util/llm42_calibration.h"

enum { REQUESTS = 24, MOST = 200, PROMPT = 40, PAGES = 40, LONGEST = 60 };

static llm42_model *model;
static llm42_calibration *calibration;
static llm42_error error;

// >>a run with an action in its events ---------------------------------------------------------------------------
typedef enum action {
    NOTHING,
    SUBMIT,
    CANCEL_SELF,
    CANCEL_OLDEST,
    CANCEL_NEWEST,
    CANCEL_ALL,
    CANCEL_TWICE,
    SUBMIT_AND_CANCEL,
    RELEASE,
    RELEASE_FINISHED,
    REFUSED,
    ACTIONS
} action;

static const char *const action_names[] = {
    "nothing",       "submit",           "cancel self",        "cancel oldest",
    "cancel newest", "cancel all",       "cancel twice",       "submit and cancel",
    "release",       "release finished", "step, run and close"};

static const int32_t prompt[PROMPT];

typedef struct run {
    llm42_engine *engine;
    action act;
    llm42_event_type at;  // in events of this type
    int every, seen, acted;
    int64_t last;                       // newest id
    int32_t tokens[MOST + 1][LONGEST];  // by id
    int count[MOST + 1];
    bool cancelled[MOST + 1], finished[MOST + 1], released[MOST + 1];
    int64_t events[LLM42_EVENT_PASS + 1];
    int late, twice, astray;  // tokens released after a cancel, second ends, events that do not fit together
} run;

// Lengths follow from the id, and so do the simulator's tokens.
static llm42_request_desc request_of(int64_t id) {
    return (llm42_request_desc)TEST_LIST(.prompt = prompt, .prompt_count = 1 + (int)(id * 37 % PROMPT),
                                         .max_new_tokens = 1 + (int)(id * 53 % (LONGEST - 1)), .ignore_stop = true,
                                         .deterministic = id % 3 != 0, .arrival = 1e-9 + 0.02 * (double)(id % 40));
}

static void submit(run *r) {
    const int64_t want = r->last + 1;
    if (r->last >= MOST) return;
    r->last = want;  // the event submitted comes inside the call
    CHECK_INT(test_submit(r->engine, request_of(want)), want);
}

static void cancel(run *r, int64_t id) {
    const llm42_request *request = llm42_engine_request(r->engine, id);
    bool alive = request && request->state != LLM42_STATE_FINISHED;
    CHECK_INT(llm42_engine_cancel(r->engine, id, &error), request ? LLM42_OK : LLM42_NOT_FOUND);
    r->cancelled[id] |= alive;
}

static void release(run *r, int64_t id) {
    const llm42_request *request = llm42_engine_request(r->engine, id);
    llm42_result want = !request ? LLM42_NOT_FOUND : request->state != LLM42_STATE_FINISHED ? LLM42_INVALID : LLM42_OK;
    CHECK_INT(llm42_engine_release(r->engine, id, &error), want);
    if (want == LLM42_OK) r->released[id] = true;
}

static void act(run *r, int64_t self) {
    int64_t oldest = 1, newest = r->last;
    while (oldest < r->last && r->finished[oldest]) oldest++;
    while (newest > 1 && r->finished[newest]) newest--;
    if (r->act == SUBMIT) submit(r);
    if (r->act == CANCEL_SELF && self) cancel(r, self);
    if (r->act == CANCEL_OLDEST) cancel(r, oldest);
    if (r->act == CANCEL_NEWEST) cancel(r, newest);
    for (int64_t id = 1; r->act == CANCEL_ALL && id <= r->last; id++) cancel(r, id);
    for (int i = 0; r->act == CANCEL_TWICE && i < 2; i++) cancel(r, self ? self : newest);
    if (r->act == SUBMIT_AND_CANCEL && r->last < MOST) submit(r), cancel(r, r->last);
    if (r->act == RELEASE) release(r, self ? self : oldest);
    for (int64_t id = 1; r->act == RELEASE_FINISHED && id <= r->last; id++)
        if (r->finished[id]) release(r, id);
    if (r->act != REFUSED) return;
    CHECK_ERROR(llm42_engine_step(r->engine, &error), LLM42_INVALID, "llm42_engine_step: called inside an event");
    CHECK_INT(llm42_engine_run(r->engine, &error), LLM42_INVALID);
    CHECK_INT(llm42_engine_close(r->engine), LLM42_INVALID);
}

static void note(void *user, const llm42_event *e) {
    run *r = user;
    int64_t id = e->request;
    r->events[e->type]++;
    if (e->type == LLM42_EVENT_COMMITTED) {
        r->late += r->cancelled[id];
        r->astray += e->position != r->count[id];
        memcpy(r->tokens[id] + r->count[id], e->tokens, (size_t)e->n * sizeof *e->tokens);
        r->count[id] += e->n;
    }
    if (e->type == LLM42_EVENT_FINISHED) {
        r->twice += r->finished[id];
        r->finished[id] = true;
    }
    r->astray += id && (e->info->id != id || e->info->prompt_count != request_of(id).prompt_count);
    if (e->type == r->at && ++r->seen % r->every == 0 && r->acted < 40) r->acted++, act(r, id);
}

static void serve(run *r, llm42_engine_desc desc) {
    const llm42_sim_desc sim = {.calibration = calibration, .flip_scale = 8};
    desc.model = model, desc.backend = llm42_backend_sim(), desc.backend_desc = &sim;
    desc.max_context = PROMPT + LONGEST, desc.max_running = 8, desc.policy.window = 8, desc.policy.group = 2,
    desc.kv.pages = PAGES, desc.kv.page_size = 4, desc.token_budget = 64, desc.on_event = note, desc.event_user = r;
    r->engine = test_open(&desc);
    while (r->last < REQUESTS) submit(r);
    llm42_result result = LLM42_OK;
    for (int steps = 0; result == LLM42_OK && steps < 100000; steps++) result = llm42_engine_step(r->engine, &error);
    CHECK_MSG(result == LLM42_IDLE, "%s", error.text);
    CHECK_INT(r->late, 0);
    CHECK_INT(r->twice, 0);
    CHECK_INT(r->astray, 0);
    llm42_stats stats = llm42_engine_stats(r->engine);
    CHECK_INT(stats.submitted, r->last);
    CHECK_INT(stats.finished, r->last);
    CHECK_INT(stats.running + stats.waiting, 0);
    CHECK_INT(stats.pages_free, PAGES);
    CHECK_INT(r->events[LLM42_EVENT_SUBMITTED], r->last);
    CHECK_INT(r->events[LLM42_EVENT_FINISHED], r->last);
    int64_t lost = 0;
    for (int64_t id = 1; id <= r->last; id++) {
        const llm42_request *request = llm42_engine_request(r->engine, id);
        lost += !r->finished[id] || (request != NULL) != (!r->released[id] && !desc.auto_release);
        lost += request && request->committed != r->count[id];
    }
    CHECK_INT(lost, 0);
    CHECK_INT(llm42_engine_close(r->engine), LLM42_OK);
}

// Proposes now and then up to three tokens, of which some are right.
static llm42_result draft_some(void *user, const llm42_view *view, llm42_draft *draft, int count, llm42_error *none) {
    (void)user, (void)none;
    for (llm42_draft *d = draft; d < draft + count; d++) {
        const llm42_request *q = d->request;
        const int at = q->committed + q->candidates, vocab = view->desc->model->config.vocab;
        const uint64_t chance = llm42_hash((uint64_t)(q->key * 1000 + at));
        while (chance % 3 == 0 && d->count < d->limit && d->count < 3) {
            const int32_t truth = llm42_sim_token(0, vocab, q->key, q->prompt_count + at + d->count - 1);
            d->token[d->count] = chance >> (8 + d->count) & 1 ? truth : 1;
            d->count++;
        }
    }
    return LLM42_OK;
}

// >>tests --------------------------------------------------------------------------------------------------------
static void actions_in_events(llm42_engine_desc desc, const char *name) {
    const llm42_drafter drafter = {.name = "some", .draft = draft_some};
    desc.drafter = &drafter;
    run *plain = calloc(1, sizeof *plain), *r = calloc(1, sizeof *r);
    if (!CHECK(plain && r)) return;
    plain->every = 1 << 30;
    serve(plain, desc);
    int64_t acted = 0, alike = 0;
    for (int at = LLM42_EVENT_SUBMITTED; at <= LLM42_EVENT_PASS; at++)
        for (int act = SUBMIT; act < ACTIONS; act++) {
            int64_t failed = test_state.failed;
            memset(r, 0, sizeof *r);
            r->act = (action)act, r->at = (llm42_event_type)at, r->every = act == CANCEL_ALL ? 7 : 3;
            serve(r, desc);
            for (int64_t id = 1; id <= REQUESTS; id++) {
                int want = r->cancelled[id] ? r->count[id] : plain->count[id];
                CHECK_INT(r->count[id], want);
                // Requests that are not deterministic get other tokens in other passes.
                if (!request_of(id).deterministic) continue;
                CHECK(!memcmp(r->tokens[id], plain->tokens[id], (size_t)r->count[id] * sizeof *r->tokens[id]));
                alike++;
            }
            acted += r->acted;
            if (test_state.failed > failed)
                printf("%s: %s in event %s\n", name, action_names[act], llm42_event_name((llm42_event_type)at));
        }
    for (int at = LLM42_EVENT_SUBMITTED; at <= LLM42_EVENT_PASS; at++)
        CHECK_MSG(plain->events[at] > 3, "%s: only %d events '%s'", name, (int)plain->events[at],
                  llm42_event_name((llm42_event_type)at));
    printf("%-28s %lld actions in events, %lld requests compared\n", name, (long long)acted, (long long)alike);
    TEST_FREE(plain, r);
}

TEST(actions_while_passes_run) { actions_in_events((llm42_engine_desc){.policy.mode = LLM42_MODE_DVR}, "preset dvr"); }

TEST(actions_while_windows_wait) {
    actions_in_events((llm42_engine_desc){.policy.verify = LLM42_VERIFY_WAIT}, "windows wait for each other");
}

TEST(actions_with_auto_release) {
    actions_in_events((llm42_engine_desc){.auto_release = true}, "requests released at once");
    actions_in_events((llm42_engine_desc)TEST_LIST(.auto_release = true, .policy.verifier = LLM42_VERIFIER_FIXED,
                                                   .policy.verify = LLM42_VERIFY_EAGER,
                                                   .policy.prefill = LLM42_PREFILL_PACKED),
                      "the same, FIXED");
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    model = test_load("shape:tiny");
    test_need(CHECK_MSG(!llm42_calibration_load(&calibration, "tests/calibration.tsv", &error), "%s", error.text));
    RUN(actions_while_passes_run, actions_while_windows_wait, actions_with_auto_release);
    llm42_calibration_free(calibration);
    llm42_model_free(model);
    return test_end("test_events");
}
