// The teaching demo: decode, verify, roll back as it happens, on the text of a real model.
//
//     make build/rollback && build/rollback        (a screen on a terminal, a log in a pipe)
//     build/rollback --step                        (a key for each pass; n goes to the next rollback, b back)
//     build/rollback --html run.html --svg run.svg (the whole run, for slides)
//
// Requests marked deterministic (D) and ordinary ones (o) are served together. Fast passes decode candidates, and
// replay passes of up to W x G rows verify them. Candidates that agree are committed. One that does not is struck out,
// and the verifier's own token stands in its place. Then the same requests are served alone, and their tokens and
// log-probability bits are compared.
//
// Nothing is injected unless --inject says so. The order of sums of a fast pass depends on its number of rows, so the
// low bits of a result depend on which other requests share the pass. The prompts were chosen so that these bits change
// a token among the first 64. Their order was chosen, too: the first candidate to be dropped comes from a FAST pass,
// and the second one is an exception, because it comes from an INVARIANT pass.
#define _POSIX_C_SOURCE 200809L
#define LLM42_IMPLEMENTATION
#include "examples/util/llm42_synthetic.h"
#include "planners.h"
#define LLM42_TRACE_IMPLEMENTATION
#include "util/llm42_trace.h"
#define LLM42_TRANSCRIPT_IMPLEMENTATION
#include "util/llm42_transcript.h"
#include "rollback/rollback.h"

static const char *const PROMPTS[] = {
    "The sailor was dead, and",
    "At the end of the street there lived a",
    "In the garden there was a",
    "The farmer thought of the",
    "On the third day the rain",
    "My uncle began to cry when",
    "The landlord dropped the candle and",
    "The thief smiled at",
    "The shepherd looked at the sea and",
    "That same night the house",
    "The judge shut the door and",
    "The baron opened the letter and",
    "The king heard a voice",
    "The young lady was born in",
    "The thief shut the door and",
    "The poor girl kept a",
};
enum { BUDGET = 256 };
_Static_assert(sizeof PROMPTS / sizeof *PROMPTS == MAX_LANES, "a prompt for each lane");

typedef struct answer {
    int32_t *tokens;
    float *logprobs;
} answer;  // stb_ds arrays

static demo *watching;  // whose passes watch_run looks at

// >>watch --------------------------------------------------------------------------------------------------------
// The CPU backend with a look at the logits that pass by, to show both sides of a disagreement.
static item *candidate_at(const lane *l, int index) {
    for (int i = (int)arrlen(l->items) - 1; i >= 0; i--)
        if (!l->items[i].settled && l->items[i].index == index) return &l->items[i];
    return NULL;
}

// The distance of bf16 numbers, which have 8 significant bits, as large as x.
static float bf16_step(float x) {
    int exponent;
    frexpf(x, &exponent);
    return x == 0 ? 0 : ldexpf(1, exponent - 8);
}

static void watch_row(demo *d, lane *l, const llm42_pass *pass, int row) {
    int vocab = d->model->config.vocab, index = pass->row[row].position + 1 - (int)arrlen(l->prompt);
    int32_t token = pass->out[row].token;
    float *kept = l->fast + (size_t)(index % d->ring) * (size_t)vocab;
    const float *logits = pass->logits + (size_t)row * (size_t)vocab;
    bool replay = pass->schedule != LLM42_SCHEDULE_FAST;
    const item *candidate = replay ? candidate_at(l, index) : NULL;
    if (replay) arrput(l->output, token);
    if (!candidate) {
        memcpy(kept, logits, sizeof(float) * (size_t)vocab);
        l->drawn[index % d->ring] = token;
        return;
    }
    window *w = &l->found;
    if (l->disagrees || candidate->token == token) return;
    l->disagrees = true;
    w->fast = kept[candidate->token] - kept[token];
    w->replay = logits[candidate->token] - logits[token];
    w->injected = l->drawn[index % d->ring] != candidate->token;
    if (!d->how.numerics.logits_fp32) w->step = bf16_step(kept[candidate->token]);
}

// Counts how often the state of recurrent layers takes in each position of a sequence.
static void watch_state(lane *l, const llm42_seq *seq, int begin, int rows) {
    const int end = seq->state_to < begin + rows ? seq->state_to : begin + rows;
    if (!seq->state) arrsetlen(l->taken, 0);
    for (int t = seq->state < begin ? seq->state : begin; t < end; t++) {
        if (t == (int)arrlen(l->taken)) arrput(l->taken, 0);
        l->taken[t]++;
    }
    l->state = seq->state_to;
}

static void watch_states(demo *d, const llm42_pass *pass) {
    for (int first = 0, rows; first < pass->rows; first += rows) {
        const llm42_seq *seq = &pass->seq[pass->row[first].seq];
        for (rows = 1; first + rows < pass->rows && pass->row[first + rows].seq == pass->row[first].seq;) rows++;
        for (int k = 0; k < d->requests; k++)
            if (d->lane[k].id == seq->request) watch_state(&d->lane[k], seq, pass->row[first].position, rows);
    }
}

static llm42_result watch_run(void *state, const llm42_pass *pass, llm42_error *error) {
    demo *d = watching;
    llm42_pass seen = *pass;
    seen.logits = d->logits;
    llm42_result result = llm42_backend_cpu()->run(state, &seen, error);
    if (d->model->config.recurrent_layers && !pass->check && result == LLM42_OK) watch_states(d, pass);
    for (int i = 0; i < pass->rows && result == LLM42_OK; i++) {
        int64_t id = pass->check ? 0 : pass->seq[pass->row[i].seq].request;
        for (int k = 0; id && k < d->requests && (pass->row[i].flags & LLM42_ROW_SAMPLE); k++)
            if (d->lane[k].deterministic && d->lane[k].id == id) watch_row(d, &d->lane[k], &seen, i);
    }
    return result;
}

// >>events -------------------------------------------------------------------------------------------------------
static void add_item(const demo *d, lane *l, int32_t token, look look, int index) {
    int now = passes(d) + 1;
    item new = {token, look, index, now, look == CANDIDATE ? 0 : now};
    arrput(l->items, new);
}

static void on_committed(const demo *d, lane *l, const llm42_event *e) {
    look look = !l->deterministic ? ORDINARY : l->disagrees ? VERDICT : COMMITTED;
    for (int i = 0; i < e->n; i++) {
        item *candidate = candidate_at(l, e->position + i);
        if (!candidate) add_item(d, l, e->tokens[i], look, e->position + i);
        else candidate->look = COMMITTED, candidate->settled = passes(d) + 1;
    }
}

// Candidates from the event's position on (all, if the request lost its pages) are struck out, but stay to be seen.
static void on_dropped(const demo *d, lane *l, const llm42_event *e) {
    for (int i = 0; i < (int)arrlen(l->items); i++)
        if (!l->items[i].settled && l->items[i].index >= e->position)
            l->items[i].look = STRUCK, l->items[i].settled = passes(d) + 1;
    if (e->type == LLM42_EVENT_ROLLED_BACK) arrlast(d->windows).dropped = e->n;
}

// Candidates agreed; what comes of the others is told by the events behind this one.
static void on_verified(demo *d, lane *l, const llm42_event *e) {
    window w = l->found;
    w.lane = (int)(l - d->lane);
    w.pass = passes(d) + 1;
    w.index = e->info->committed;
    w.agreed = e->n;
    w.output = l->output;
    l->output = NULL;
    w.state = l->state;
    for (int i = 0; i < e->info->candidates; i++) {
        const int position = (int)arrlen(l->prompt) + w.index + i;
        arrput(w.candidate, e->info->tokens[w.index + i]);
        arrput(w.taken, position < (int)arrlen(l->taken) ? l->taken[position] : 0);
    }
    arrput(d->windows, w);
}

static void on_event(void *user, const llm42_event *e) {
    demo *d = user;
    if (d->trace) llm42_trace_event(d->trace, e);
    llm42_recorder_event(d->recorder, e);
    if (e->type == LLM42_EVENT_PASS) d->event = *e;
    if (!e->info) return;
    lane *l = e->info->user;
    if (e->type == LLM42_EVENT_CANDIDATE) add_item(d, l, e->tokens[0], CANDIDATE, e->position);
    if (e->type == LLM42_EVENT_COMMITTED) on_committed(d, l, e);
    if (e->type == LLM42_EVENT_VERIFIED) on_verified(d, l, e);
    if (e->type == LLM42_EVENT_ROLLED_BACK || e->type == LLM42_EVENT_PREEMPTED) on_dropped(d, l, e);
}

// A pass and all its events are over.
static void record_pass(demo *d, const llm42_engine *engine) {
    bool dropped = false;
    for (int i = first_window(d, passes(d) + 1); i < (int)arrlen(d->windows); i++) dropped |= d->windows[i].dropped > 0;
    const llm42_schedule schedule = d->event.schedule;
    const int other = schedule == LLM42_SCHEDULE_INVARIANT ? INVARIANT_PASS : PROMPT_PASS;
    const int replay = !d->event.windows ? other : dropped ? ROLLBACK_PASS : REPLAY_PASS;
    frame new = {.kind = schedule == LLM42_SCHEDULE_FAST ? FAST_PASS : replay,
                 .windows = (int)arrlen(d->windows),
                 .event = d->event,
                 .stats = llm42_engine_stats(engine)};
    arrput(d->frames, new);
    for (int i = 0; i < d->requests; i++) {
        d->lane[i].disagrees = false;
        d->lane[i].found = (window){0};
        arrsetlen(d->lane[i].output, 0);
    }
}

// >>serve --------------------------------------------------------------------------------------------------------
// In a run that is not shown: keeps its passes.
static void keep_pass(void *user, const llm42_event *e) {
    llm42_event **events = user;
    if (e->type == LLM42_EVENT_PASS) arrput(*events, *e);
}

// events: gets the passes if `watch` is not set.
static llm42_engine *open_engine(demo *d, bool watch, llm42_event **events) {
    static llm42_backend watched;
    llm42_engine_desc desc = d->how;
    llm42_engine *engine = NULL;
    llm42_error error = {0};
    desc.model = d->model;
    desc.policy.window = (int)d->window;
    desc.policy.group = (int)d->group;
    desc.token_budget = d->budget;
    if (desc.policy.chunked_prefill == LLM42_CHUNKED_OFF) desc.max_context = d->longest;
    desc.max_running = MAX_LANES;
    desc.experiment.inject_rate = d->inject;
    desc.experiment.inject_seed = (uint64_t)d->seed;
    desc.experiment.keep_fast_kv = watch && d->keep_fast_kv;
    desc.experiment.keep_fast_state = watch && d->keep_fast_state;
    bool small = d->model->mapped_bytes + d->model->copied_bytes < 16 << 20;  // too little work to share
    const llm42_cpu_desc cpu = {.threads = d->threads ? (int)d->threads : small};
    desc.backend_desc = &cpu;
    desc.on_event = keep_pass;
    desc.event_user = events;
    if (watch) {
        watched = *llm42_backend_cpu();
        watched.run = watch_run;
        watching = d;
        desc.backend = &watched;
        desc.on_event = on_event;
        desc.event_user = d;
    }
    args_check(llm42_engine_open(&engine, &desc, &error), &error);
    if (watch && d->record_path)
        args_check(llm42_recorder_open(&d->recorder, d->record_path, engine, NULL, &error), &error);
    return engine;
}

static void submit(demo *d, llm42_engine *engine, lane *l, bool marked, bool watch) {
    llm42_error error = {0};
    llm42_request_desc desc = {.prompt = l->prompt,
                               .prompt_count = (int)arrlen(l->prompt),
                               .user = l,
                               .max_new_tokens = (int)d->tokens,
                               .deterministic = marked && l->deterministic};
    for (int i = 0; i < (int)arrlen(l->prompt) && watch; i++) add_item(d, l, l->prompt[i], PROMPT, -1);
    args_check(llm42_engine_submit(engine, &desc, &l->id, &error), &error);
}

// Serves lanes `first` to `last`, one more every second pass so that batches differ in size, and keeps their answers.
// With a screen every pass is recorded and shown, and otherwise the passes' cost is returned.
static cost serve(demo *d, screen *s, int first, int last, bool marked, answer *answers) {
    llm42_event *events = NULL;
    llm42_engine *engine = open_engine(d, s != NULL, &events);
    llm42_error error = {0};
    llm42_result result = LLM42_OK;
    for (int pass = 0, next = first; result == LLM42_OK || next <= last; pass++) {
        while (next <= last && pass >= 2 * (next - first)) submit(d, engine, &d->lane[next++], marked, s != NULL);
        result = args_check(llm42_engine_step(engine, &error), &error);
        if (result == LLM42_OK && s) {
            record_pass(d, engine);
            show(d, s);
        }
        // Of a run that is ended, also while a key is waited for, a transcript has what was committed.
        for (int i = first; args_signal && i < next; i++) llm42_engine_cancel(engine, d->lane[i].id, NULL);
        stop_if_interrupted(s);
    }
    args_check_requests(engine);
    for (int i = first; i <= last; i++) {
        const llm42_request *r = llm42_engine_request(engine, d->lane[i].id);
        memcpy(arraddnptr(answers[i].tokens, r->committed), r->tokens, sizeof(int32_t) * (size_t)r->committed);
        memcpy(arraddnptr(answers[i].logprobs, r->committed), r->logprobs, sizeof(float) * (size_t)r->committed);
    }
    llm42_engine_close(engine);
    return cost_of_passes(events);
}

// >>report -------------------------------------------------------------------------------------------------------
static void report_counts(const demo *d, const screen *s) {
    const llm42_stats *n = &frame_at(d, passes(d))->stats;
    const int others = cost_of_kinds(d, INVARIANT_PASS, PROMPT_PASS).passes;
    const bool fixed = d->how.policy.verifier == LLM42_VERIFIER_FIXED;
    cell *candidates = NULL, *committed = NULL, *more[] = {candidates_text(d), committed_text(d)};
    printf("\n");
    say(s, STRONG, 0, "What happened");
    say(s, PLAIN, 11, "passes     %d FAST, %d replay (%d with a rollback), %d %s",
        cost_of_kinds(d, FAST_PASS, FAST_PASS).passes, cost_of_kinds(d, REPLAY_PASS, ROLLBACK_PASS).passes,
        cost_of_kinds(d, ROLLBACK_PASS, ROLLBACK_PASS).passes, others,
        fixed ? "for deterministic prompts" : "more in INVARIANT schedule");
    add(&candidates, PLAIN, "candidates ");
    add_cells(&candidates, more[0], 0, (int)arrlen(more[0]));
    print_text(s, candidates, 11);
    add(&committed, PLAIN, "committed  ");
    add_cells(&committed, more[1], 0, (int)arrlen(more[1]));
    print_text(s, committed, 11);
    for (int i = 0; i < 2; i++) arrfree(more[i]);
    say(s, PLAIN, 11, "rollbacks  %d in %d window%s; %d token%s recomputed, %.1f%% of the %d returned",
        (int)n->rollbacks, (int)n->verifications, args_plural(n->verifications), (int)n->recomputed,
        args_plural(n->recomputed), 100.0 * (double)n->recomputed / (double)n->returned_tokens,
        (int)n->returned_tokens);
    if (n->injected)
        say(s, PLAIN, 11, "injected   %d candidate%s made wrong on purpose", (int)n->injected,
            n->injected == 1 ? " was" : "s were");
    const window *w = best_rollback(d);
    page p = NULL;
    if (w) add_window(&p, d, w, s->width - 2, 0);
    const bool explained = w && !w->injected && !controlled(d);  // build/diff runs rows on KV and states that are right
    if (explained) add_paragraph(&p, rows_text(d, w), s->width - 2, 2);
    print_page(s, &p, 2);
    cell *command = explained ? diff_command(d, w) : NULL;
    if (command) print_command(s, command);
    if (!w) say(s, PLAIN, 2, "%s", no_rollback(d));
}

// First difference of two answers; -1: none.
static int differs(const answer *a, const answer *b) {
    int n = (int)arrlen(a->tokens), m = (int)arrlen(b->tokens);
    for (int i = 0; i < n && i < m; i++)
        if (a->tokens[i] != b->tokens[i]) return i;
    return n == m ? -1 : n < m ? n : m;
}

static void print_drift(const demo *d, const screen *s, const char *label, const answer *a, int at) {
    int from = at > 6 ? at - 6 : 0, room = s->width < 80 ? s->width - 17 : 63, first = room * 30 / 63;
    cell *line = NULL, *before = NULL, *after = NULL;
    add(&line, PLAIN, "  %-8s ...", label);
    add_tokens(&before, d, PROMPT, a->tokens + from, at - from);
    add_tokens(&after, d, PLAIN, a->tokens + at, (int)arrlen(a->tokens) - at);
    while (columns(before) > first) arrdel(before, 0);
    while (columns(after) > room - first) (void)arrpop(after);
    add_cells(&line, before, 0, (int)arrlen(before));
    add(&line, PLAIN, " | ");
    add_cells(&line, after, 0, (int)arrlen(after));
    print_text(s, line, 0);
    arrfree(before);
    arrfree(after);
}

// The prompts once more, none marked: among each other, and alone.
static void report_drift(demo *d, const screen *s, proof *p, answer *among, answer *alone) {
    int shown = 0, earliest = INT32_MAX;
    serve(d, NULL, 0, (int)d->requests - 1, false, among);
    for (int k = 0; k < d->requests; k++) {
        serve(d, NULL, k, k, false, alone);
        int at = differs(&among[k], &alone[k]);
        p->drifted += at >= 0;
        if (at >= 0 && at < earliest) shown = k, earliest = at;
    }
    if (!p->drifted) say(s, PLAIN, 11, "not marked 0 of %d drift", (int)d->requests);
    if (!p->drifted) return;
    say(s, PLAIN, 11, "not marked %d of %d drift; prompt %d from token %d on:", p->drifted, (int)d->requests, shown + 1,
        earliest + 1);
    print_drift(d, s, "together", &among[shown], earliest);
    print_drift(d, s, "alone", &alone[shown], earliest);
}

// The same requests once more, with other policies.
static cost serve_with(const demo *d, llm42_engine_desc how, bool marked) {
    answer answers[MAX_LANES] = {{0}};
    demo other = *d;
    other.how = how;
    llm42_preset_apply(&other.how);
    other.inject = 0;
    const cost c = serve(&other, NULL, 0, (int)d->requests - 1, marked, answers);
    for (int k = 0; k < d->requests; k++) {
        arrfree(answers[k].tokens);
        arrfree(answers[k].logprobs);
    }
    return c;
}

static void report_costs(const demo *d, const screen *s, const proof *p) {
    cost_line lines[COSTS];
    const int count = costs_of(d, p, lines);
    printf("\n");
    say(s, STRONG, 0, "What it cost");
    if (verifies(d)) print_text(s, pays_text(d, p), 0);
    say(s, PLAIN, 11, "%-28s %6s %6s %10s %8s", "", "passes", "rows", "ms a pass", "ms");
    for (int i = 0; i < count; i++) {
        const cost *c = &lines[i].cost;
        char median[16] = "";
        if (c->median > 0) snprintf(median, sizeof median, "%.2f", 1e3 * c->median);
        say(s, PLAIN, 11, "%-28s %6d %6d %10s %8.1f", lines[i].name, c->passes, c->rows, median, 1e3 * c->total);
    }
    say(s, PLAIN, 0, "ms a pass: the median of the passes. ms: passes x median, which for this run is added up.");
    if (verifies(d)) print_text(s, price_text(d), 0);
}

// Serves the same requests without company and compares.
static proof report_proof(demo *d, const screen *s, answer *marked) {
    answer alone[MAX_LANES] = {{0}}, loose[MAX_LANES] = {{0}}, loose_alone[MAX_LANES] = {{0}};
    proof p = {0};
    for (int k = 0; k < d->requests; k += 2, p.count++) {
        serve(d, NULL, k, k, true, alone);
        int n = (int)arrlen(marked[k].tokens), m = (int)arrlen(alone[k].tokens), equal = 0, equal_bits = 0;
        for (int i = 0; i < n && i < m; i++) {
            equal += marked[k].tokens[i] == alone[k].tokens[i];
            equal_bits += !memcmp(&marked[k].logprobs[i], &alone[k].logprobs[i], sizeof(float));
        }
        p.same += n == m && equal == n && equal_bits == n;
        p.tokens += equal;
        p.bits += equal_bits;
        p.returned += n;
    }
    printf("\n");
    say(s, STRONG, 0, "The same requests, together and alone");
    say(s, PLAIN, 11, "marked     %d of %d identical: %d/%d tokens, %d/%d log-probs to the bit", p.same, p.count,
        p.tokens, p.returned, p.bits, p.returned);
    for (int k = 0, at; k < d->requests; k += 2) {
        if ((at = differs(&marked[k], &alone[k])) < 0) continue;
        print_drift(d, s, "together", &marked[k], at);
        print_drift(d, s, "alone", &alone[k], at);
    }
    report_drift(d, s, &p, loose, loose_alone);
    p.all_fast = serve_with(d, (llm42_engine_desc){.policy.mode = LLM42_MODE_NONDETERMINISTIC}, false);
    p.all_invariant = serve_with(d, (llm42_engine_desc){.preset = LLM42_PRESET_INVARIANT}, true);
    report_costs(d, s, &p);
    answer *all[] = {marked, alone, loose, loose_alone};
    for (int k = 0; k < 4 * MAX_LANES; k++) {
        arrfree(all[k % 4][k / 4].tokens);
        arrfree(all[k % 4][k / 4].logprobs);
    }
    return p;
}

static void open_demo(demo *d) {
    llm42_error error = {0};
    char found[4096];
    llm42_model_desc desc = {.path = args_find(d->model_path, found)};
    // Preset dvr verifies as soon as one window is ready. A demo has more to show if windows are full.
    if (!d->verify && !strcmp(d->preset, "dvr")) d->verify = "wait";
    args_policy(&d->how, "preset", d->preset);
    args_policy(&d->how, "verifier", d->verifier);
    args_policy(&d->how, "verify", d->verify);
    args_policy(&d->how, "prefill", d->prefill);
    llm42_preset_apply(&d->how);
    args_choice("--planner", d->planner, planner_names);
    d->how.planner = planner_find(d->planner);
    args_check(llm42_model_load(&d->model, &desc, &error), &error);
    if (d->keep_fast_kv && d->how.policy.mode == LLM42_MODE_BATCH_INVARIANT)
        args_fail(2, "--keep-fast-kv: by this preset there are no FAST passes: try --preset dvr");
    if (d->keep_fast_state && !d->model->config.recurrent_layers)
        args_fail(2, "--keep-fast-state: %s has no recurrent layers: try examples/hybrid42", d->model_path);
    args_check(tok_open(&d->tok, d->model, desc.path, NULL, &error), &error);
    if (d->trace_path) args_check(llm42_trace_open(&d->trace, d->trace_path, &error), &error);
    size_t vocab = (size_t)d->model->config.vocab, rows = (size_t)(d->window * d->group);
    d->ring = 2 * (int)d->window + 2;  // candidates alive at once, the wait for the replay pass included, at most
    for (int k = 0; k < d->requests; k++) {
        lane *l = &d->lane[k];
        l->deterministic = k % 2 == 0;
        snprintf(l->name, sizeof l->name, "%c%d", l->deterministic ? 'D' : 'o', k + 1);
        args_check(tok_encode(d->tok, PROMPTS[k], strlen(PROMPTS[k]), true, &l->prompt, &error), &error);
        arrsetlen(l->fast, vocab * (size_t)d->ring);
        arrsetlen(l->drawn, (size_t)d->ring);
        int tokens = (int)arrlen(l->prompt) + (int)d->tokens;
        if (tokens > d->longest) d->longest = tokens;
    }
    if (d->longest > d->model->config.context) d->longest = d->model->config.context;
    bool whole = d->how.policy.chunked_prefill == LLM42_CHUNKED_OFF;  // a prompt must fit into a pass
    d->budget = whole && d->longest > BUDGET ? d->longest : BUDGET;
    arrsetlen(d->logits, vocab * (rows > (size_t)d->budget ? rows : (size_t)d->budget));
}

static void close_demo(demo *d) {
    for (int k = 0; k < MAX_LANES; k++) {
        arrfree(d->lane[k].prompt);
        arrfree(d->lane[k].items);
        arrfree(d->lane[k].fast);
        arrfree(d->lane[k].drawn);
        arrfree(d->lane[k].output);
        arrfree(d->lane[k].taken);
    }
    for (int i = 0; i < (int)arrlen(d->windows); i++) {
        arrfree(d->windows[i].candidate);
        arrfree(d->windows[i].output);
        arrfree(d->windows[i].taken);
    }
    arrfree(d->windows);
    arrfree(d->frames);
    arrfree(d->logits);
    tok_free(d->tok);
    llm42_model_free(d->model);
}

// Serves and reports. Returns how many deterministic requests gave another answer alone.
static int run_demo(demo *d, screen *s, slides *files) {
    answer marked[MAX_LANES] = {{0}};
    llm42_error error = {0};
    serve(d, s, 0, (int)d->requests - 1, true, marked);
    if (d->trace) args_check(llm42_trace_close(d->trace, &error), &error);
    args_check(llm42_recorder_close(d->recorder, &error), &error);
    show_end(d, s);
    if (!s->live) {
        printf("\n");
        say(s, STRONG, 0, "The deterministic requests; [-dropped-], {+the verifier's own token instead+}");
    }
    for (int k = 0; k < d->requests && !s->live; k += 2) {
        page p = NULL;
        add_lane(&p, d, s, &d->lane[k], passes(d), 0);
        print_page(s, &p, 0);
    }
    report_counts(d, s);
    proof p = report_proof(d, s, marked);
    slides_finish(files, d, &p);
    if (controlled(d) && p.count == p.same)
        args_fail(3, "a control that shows nothing: all marked answers are equal all the same; take more --requests or "
                     "--tokens");
    return p.count - p.same;
}

// For --help: the words of a policy, and what counts if none is given.
static const char *words_or(char line[256], const char *policy, const char *otherwise) {
    const size_t used = strlen(args_words(line, args_policy_words(policy)));
    snprintf(line + used, 256 - used, " (default: %s)", otherwise);
    return line;
}

int main(int argc, char **argv) {
    static demo d = {.model_path = "examples/tiny42",
                     .preset = "dvr",
                     .planner = "default",
                     .window = 8,
                     .group = 4,
                     .requests = 10,
                     .tokens = 64,
                     .delay = -1,
                     .seed = 42};
    char presets[256], verifiers[256], verifies[256], prefills[256], planners[256];
    const args_option options[] = {
        ARGS_IN("model,m DIR", &d.model_path, "model folder with a tokenizer"),
        ARGS_INT("window W", &d.window, 1, 64, "tokens of a request in a verification"),
        ARGS_INT("group G", &d.group, 1, 64, "requests verified together; a replay pass has W x G rows"),
        ARGS_INT("requests N", &d.requests, 1, MAX_LANES, "requests; every other one is deterministic"),
        ARGS_INT("tokens,n N", &d.tokens, 1, 1024, "new tokens of each request, at most"),
        ARGS_TEXT("preset NAME", &d.preset, args_words(presets, args_policy_words("preset"))),
        ARGS_TEXT("verifier NAME", &d.verifier, words_or(verifiers, "verifier", "the preset's")),
        ARGS_TEXT("verify WHEN", &d.verify,
                  words_or(verifies, "verify", "wait with preset dvr, so that windows are full; else the preset's")),
        ARGS_TEXT("prefill HOW", &d.prefill, words_or(prefills, "prefill", "the preset's")),
        ARGS_TEXT("planner NAME", &d.planner, args_words(planners, planner_names)),
        ARGS_REAL("inject RATE", &d.inject, 0, 1, "share of candidates made wrong on purpose"),
        ARGS_INT("seed,s S", &d.seed, 1, INT64_MAX, "seed of --inject"),
        ARGS_FLAG("keep-fast-kv", &d.keep_fast_kv,
                  "a control that must fail: the KV of FAST passes stays when their tokens are verified"),
        ARGS_FLAG("keep-fast-state", &d.keep_fast_state,
                  "a control that must fail: states of recurrent layers take in what is rolled back, too"),
        ARGS_INT("threads,t N", &d.threads, 0, 1024, "0: one for a small model, else what OpenMP offers"),
        ARGS_FLAG("step", &d.step, "wait for a key after each pass"),
        ARGS_INT("delay MS", &d.delay, -1, 60000, "pause after a pass, more after a replay; -1: 60 on a terminal"),
        ARGS_OUT("html FILE", &d.html_path, "write the whole run as a web page"),
        ARGS_OUT("svg FILE", &d.svg_path, "write a picture of the run, for a slide"),
        ARGS_OUT("trace FILE", &d.trace_path, "write the events: .json for Perfetto, else TSV"),
        ARGS_OUT("record FILE", &d.record_path, "write a transcript: build/audit computes it again"),
        ARGS_END,
    };
    args_status_1 =
        "a deterministic request got another answer alone, or something went wrong;\n3: a control shows nothing";
    args_parse(argc, argv,
               "Shows decode, verify, roll back as it happens.\n"
               "Keys: Enter, Space or Right shows the next pass (or stops a run), n the next rollback, b or Left goes\n"
               "back, r runs on, q runs to the end and shows the summary. With --step they may come from a pipe.\n"
               "NO_COLOR=1 leaves colours out, TERM=dumb all control sequences.",
               options);
    screen s = {0};
    slides files = {0};
    slides_open(&files, &d);
    open_demo(&d);
    screen_open(&s, d.step, d.delay);
    int changed = run_demo(&d, &s, &files);
    close_demo(&d);
    return args_finish() || changed;
}
