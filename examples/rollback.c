// The teaching demo: decode, verify, roll back as it happens, on the text of a real model.
//
//     make build/rollback && build/rollback        (a screen on a terminal; a log when piped or under NO_COLOR)
//     build/rollback --step                        (Enter runs the next pass)
//
// Requests marked deterministic (D) and ordinary ones (o) are served together. Fast passes decode candidates; replay
// passes of M = W x G rows verify them: what agrees is committed, what does not is struck out and the verifier's own
// token stands instead. Then the same requests are served alone, and tokens and log-probability bits compared. Nothing
// is injected unless --inject says so: a fast pass cuts its sums by its number of rows, so the low bits of a result
// depend on the company that a request has. The prompts are such that this decides a token within 64.
#define _DEFAULT_SOURCE  // TIOCGWINSZ
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <sys/ioctl.h>
#include <time.h>

#define LLM42_IMPLEMENTATION
#include "llm42.h"
#include "args.h"
#include "planners.h"
#include "tokenizer.h"

static const char *const PROMPTS[] = {
    "The landlord dropped the candle and",
    "The king heard a voice",
    "The thief smiled at",
    "The shepherd looked at the sea and",
    "The baron opened the letter and",
    "On the third day the rain",
    "At the end of the street there lived a",
    "The sailor was dead, and",
    "My uncle began to cry when",
    "In the garden there was a",
    "The poor girl kept a",
    "The young lady was born in",
    "The farmer thought of the",
    "That same night the house",
    "The thief shut the door and",
    "The judge shut the door and",
};
enum { MAX_LANES = sizeof PROMPTS / sizeof *PROMPTS, BUDGET = 256, HEAD = 4, FOOT = 3, WIDTH = 80 };

// How a stretch of text stands and looks. Without colour, brackets say it; looks differ by more than their colour.
typedef enum mark { PROMPT, ORDINARY, CANDIDATE, COMMITTED, STRUCK, VERDICT, MARKS } mark;
static const struct {
    const char *ansi, *open, *close, *legend;
} LOOK[MARKS] = {
    {"\033[2m", "", "", "prompt"},
    {"", "", "", "ordinary"},
    {"\033[4;33m", "(", ")", "candidate"},
    {"\033[1;32m", "", "", "committed"},
    {"\033[9;31m", "[-", "-]", "struck out"},
    {"\033[7;1;32m", "{+", "+}", "verifier's own"},
};
static const struct {
    char letter;
    const char *ansi, *legend;
} PASSES[] = {
    {'.', "\033[33m", "fast"},
    {'P', "", "prompts"},
    {'R', "\033[1;36m", "replay"},
    {'X', "\033[1;41;37m", "rollback"},
};
enum { FAST_PASS, PROMPT_PASS, REPLAY_PASS, ROLLBACK_PASS };

typedef struct item {
    int32_t token;
    mark mark;
    int index;
} item;  // index among the output tokens; prompt: -1
typedef struct cell {
    char text[5];
    mark mark;
} cell;  // one character
typedef struct answer {
    int32_t *tokens;
    float *logprobs;
} answer;  // stb_ds arrays, as the pointers below

// A disagreement: [0] is the candidate, [1] the verifier's own token, with log-probabilities in both passes.
typedef struct rollback {
    int lane, pass, index, dropped;
    int32_t token[2];
    float fast[2], replay[2];
    bool injected;
} rollback;

typedef struct lane {
    char name[8];
    bool deterministic;
    int64_t id;
    int32_t *prompt;
    item *items;            // its line: everything that ever stood there, what was struck out included
    int released, dropped;  // tokens, in the pass that just ran
    float *fast;            // [ring, V]: logits that the latest candidates were drawn from, and
    int32_t *drawn;         // [ring]: what was drawn
    rollback found;         // where the pass that just ran disagreed, if it did
    bool disagrees;
} lane;

typedef struct demo {
    const char *model_path, *verify, *prefill, *planner, *trace_path;
    llm42_engine_desc how;  // policies and planner
    int64_t window, group, requests, tokens, delay, seed, threads;
    double inject;
    bool step, screen;  // screen: redraw in place, in colour
    llm42_model *model;
    tok *tok;
    llm42_trace *trace;
    lane lane[MAX_LANES];
    rollback latest, natural;  // dropped == 0: none yet; the first that was not injected
    unsigned char *passes;     // their kinds
    llm42_event pass;          // the latest
    llm42_stats stats;
    float *logits;  // of a pass
    int ring, drawn_rows, columns, rows, dropped;
} demo;

static demo *watching;  // whose passes watch_run looks at
static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal) { interrupted = signal; }

// >>watch --------------------------------------------------------------------------------------------------------
// The CPU backend with a look at the logits that pass by, to show both sides of a disagreement.
static item *candidate_at(const lane *l, int index) {
    for (int i = (int)arrlen(l->items) - 1; i >= 0; i--)
        if (l->items[i].mark == CANDIDATE && l->items[i].index == index) return &l->items[i];
    return NULL;
}

static void watch_row(demo *d, lane *l, const llm42_pass *pass, int row) {
    int vocab = d->model->config.vocab, index = pass->row[row].position + 1 - (int)arrlen(l->prompt);
    int32_t token = pass->out[row].token;
    float *kept = l->fast + (size_t)(index % d->ring) * (size_t)vocab;
    const float *logits = pass->logits + (size_t)row * (size_t)vocab;
    if (pass->schedule != LLM42_FIXED) {
        memcpy(kept, logits, sizeof(float) * (size_t)vocab);
        l->drawn[index % d->ring] = token;
        return;
    }
    const item *candidate = candidate_at(l, index);
    if (!candidate || candidate->token == token || l->disagrees) return;
    l->disagrees = true;
    l->found = (rollback){.lane = (int)(l - d->lane),
                          .pass = (int)arrlen(d->passes) + 1,
                          .index = index,
                          .token = {candidate->token, token}};
    l->found.injected = l->drawn[index % d->ring] != candidate->token;
    for (int i = 0; i < 2; i++) {
        l->found.fast[i] = llm42_logprob(kept, vocab, l->found.token[i]);
        l->found.replay[i] = llm42_logprob(logits, vocab, l->found.token[i]);
    }
}

static llm42_result watch_run(void *state, const llm42_pass *pass, llm42_error *error) {
    demo *d = watching;
    llm42_pass seen = *pass;
    seen.logits = d->logits;
    llm42_result result = llm42_backend_cpu()->run(state, &seen, error);
    for (int i = 0; i < pass->rows && result == LLM42_OK; i++) {
        int64_t id = pass->check ? 0 : pass->seq[pass->row[i].seq].request;
        for (int k = 0; id && k < d->requests && (pass->row[i].flags & LLM42_ROW_SAMPLE); k++)
            if (d->lane[k].deterministic && d->lane[k].id == id) watch_row(d, &d->lane[k], &seen, i);
    }
    return result;
}

// >>events -------------------------------------------------------------------------------------------------------
static void on_committed(lane *l, const llm42_event *e) {
    for (int i = 0; i < e->n; i++) {
        item own = {e->tokens[i], !l->deterministic ? ORDINARY : l->disagrees ? VERDICT : COMMITTED, e->position + i};
        item *candidate = candidate_at(l, e->position + i);
        if (candidate) candidate->mark = COMMITTED;
        else arrput(l->items, own);
    }
    l->released += e->n;
}

// Candidates from the event's position on (all, if the request lost its pages) are struck out, but stay to be seen.
static void on_dropped(demo *d, lane *l, const llm42_event *e) {
    for (int i = 0; i < (int)arrlen(l->items); i++)
        if (l->items[i].mark == CANDIDATE && l->items[i].index >= e->position) l->items[i].mark = STRUCK;
    l->dropped += e->n;
    d->dropped += e->n;
    if (e->type != LLM42_EVENT_ROLLED_BACK) return;
    l->found.dropped = e->n;
    d->latest = l->found;
    if (!d->natural.dropped && !l->found.injected) d->natural = l->found;
}

static void on_event(void *user, const llm42_event *e) {
    demo *d = user;
    if (d->trace) llm42_trace_event(d->trace, e);
    if (e->type == LLM42_EVENT_PASS) d->pass = *e;
    if (!e->info) return;
    lane *l = e->info->user;
    if (e->type == LLM42_EVENT_CANDIDATE) {
        item new = {e->tokens[0], CANDIDATE, e->position};
        arrput(l->items, new);
    }
    if (e->type == LLM42_EVENT_COMMITTED) on_committed(l, e);
    if (e->type == LLM42_EVENT_ROLLED_BACK || e->type == LLM42_EVENT_PREEMPTED) on_dropped(d, l, e);
}

// >>text ---------------------------------------------------------------------------------------------------------
static void add_text(cell **cells, const char *text, size_t size, mark mark) {
    for (size_t i = 0; i < size;) {
        int n = tok_utf8(text + i, size - i);
        cell c = {"?", mark};  // half a character: the other half is in a token of another mark
        if (n > 0) memcpy(c.text, text + i, (size_t)n), c.text[n] = 0;
        if (c.text[0] == '\n') memcpy(c.text, "\u00b6", sizeof "\u00b6");
        else if ((unsigned char)c.text[0] < ' ') c.text[0] = ' ';
        arrput(*cells, c);
        i += n > 0 ? (size_t)n : 1;
    }
}

static void add_tokens(const demo *d, cell **cells, const int32_t *ids, int count, mark mark) {
    char *text = NULL;
    for (int i = 0; i < count; i++) {
        bool special = ids[i] < d->tok->count && d->tok->piece[ids[i]].special;
        if (!special) tok_decode(d->tok, &ids[i], 1, &text);
        else if (ids[i] != d->tok->bos) memcpy(arraddnptr(text, 3), "\u25a0", 3);  // the text ends
    }
    add_text(cells, text, arrlenu(text), mark);
    arrfree(text);
}

// A request's whole line.
static cell *lane_cells(const demo *d, const lane *l) {
    cell *cells = NULL;
    int32_t *run = NULL;
    for (int i = 0, n = (int)arrlen(l->items); i < n; i++) {
        mark mark = l->items[i].mark;
        arrput(run, l->items[i].token);
        if (i + 1 < n && l->items[i + 1].mark == mark) continue;
        if (!d->screen) add_text(&cells, LOOK[mark].open, strlen(LOOK[mark].open), mark);
        add_tokens(d, &cells, run, (int)arrlen(run), mark);
        if (!d->screen) add_text(&cells, LOOK[mark].close, strlen(LOOK[mark].close), mark);
        arrfree(run);
    }
    return cells;
}

static void print_cells(const demo *d, const cell *cells, int begin, int end) {
    for (int i = begin; i < end; i++) {
        bool change = i == begin || cells[i].mark != cells[i - 1].mark;
        if (d->screen && change) printf("\033[0m%s", LOOK[cells[i].mark].ansi);
        printf("%s", cells[i].text);
    }
    if (d->screen) printf("\033[0m");
}

// Where the lines of at most `width` characters begin; they break behind spaces. Text only grows at its end, so what
// has been read stays where it is.
static int *wrap(const cell *cells, int width) {
    int *starts = NULL, count = (int)arrlen(cells);
    for (int at = 0; at < count;) {
        arrput(starts, at);
        int end = count - at > width ? at + width : count, space = end;
        while (end < count && space > at + width / 2 && cells[space - 1].text[0] != ' ') space--;
        at = space > at + width / 2 ? space : end;
    }
    arrput(starts, count);
    return starts;
}

// The last `lines` lines of a request, or all if that is 0. A single one shows the last characters instead.
static void print_lane(const demo *d, const lane *l, int lines, int width) {
    cell *cells = lane_cells(d, l);
    int room = width - 5, count = (int)arrlen(cells);
    if (lines == 1 && count > room) arrdeln(cells, 0, (size_t)(count - room));
    int *starts = wrap(cells, room), wrapped = (int)arrlen(starts) - 1;
    int first = lines && wrapped > lines ? wrapped - lines : 0;
    for (int i = 0; i < (lines ? lines : wrapped); i++) {
        if (d->screen && l->deterministic) printf("\033[1;36m");
        printf("%-4s%s", i ? "" : l->name, d->screen ? "\033[0m" : "");
        if (first + i < wrapped) print_cells(d, cells, starts[first + i], starts[first + i + 1]);
        printf(d->screen ? "\033[K\n" : "\n");
    }
    arrfree(starts);
    arrfree(cells);
}

static void print_tokens(const demo *d, const int32_t *ids, int count, int width, mark mark) {
    cell *cells = NULL;
    add_tokens(d, &cells, ids, count, mark);
    print_cells(d, cells, 0, (int)arrlen(cells) < width ? (int)arrlen(cells) : width);
    arrfree(cells);
}

static void print_pass(const demo *d) {
    const llm42_event *p = &d->pass;
    printf("pass %-3d ", (int)arrlen(d->passes));
    if (p->schedule == LLM42_FAST) printf("FAST schedule: sums cut as suits %d row%s", p->n, p->n == 1 ? "" : "s");
    else if (p->schedule == LLM42_INVARIANT) printf("prompts among others, in an INVARIANT pass of %d rows", p->shape);
    else if (!p->windows) printf("prompts, in a FIXED pass of %d rows", p->shape);
    else
        printf("REPLAY in FIXED schedule: %d rows, %d of %d windows of %d used", p->shape, p->windows, (int)d->group,
               (int)d->window);
}

static void print_rollback(const demo *d, const rollback *r, const char *indent) {
    const char *end = d->screen ? "\033[K\n" : "\n";
    const float *sides[] = {r->fast, r->replay};
    printf("%s%s, token %d: '", indent, d->lane[r->lane].name, r->index + 1);
    print_tokens(d, &r->token[0], 1, 16, STRUCK);
    printf("' becomes '");
    print_tokens(d, &r->token[1], 1, 16, VERDICT);
    printf("'; pass %d drops %d candidate%s%s%s", r->pass, r->dropped, r->dropped == 1 ? "" : "s",
           r->injected ? " (injected)" : "", end);
    printf("%slog-probs old, new token:", indent);
    for (int i = 0; i < 2; i++) {
        const float *p = sides[i];
        const char *order = p[0] == p[1] ? "=" : p[0] < p[1] ? "<" : ">";
        printf("%s %.5f %s %.5f", i ? ", replay" : " fast", (double)p[0], order, (double)p[1]);
    }
    printf("%s", end);
}

// >>show ---------------------------------------------------------------------------------------------------------
static void draw_head(const demo *d) {
    printf("\033[1mllm42\033[0m   \033[1;36mD\033[0m deterministic   o ordinary   W %d x G %d = M %d   %s, %s\033[K\n",
           (int)d->window, (int)d->group, (int)(d->window * d->group), d->verify, d->prefill);
    for (int i = 0; i < MARKS; i++) printf("%s%s\033[0m   ", LOOK[i].ansi, LOOK[i].legend);
    printf("\033[K\n");
    int room = d->columns - 1, passes = (int)arrlen(d->passes);
    for (int i = 0; i < 4; i++) {
        printf("%s%c\033[0m %s  ", PASSES[i].ansi, PASSES[i].letter, PASSES[i].legend);
        room -= 4 + (int)strlen(PASSES[i].legend);
    }
    for (int i = passes > room ? passes - room : 0; i < passes; i++)
        printf("%s%c\033[0m", PASSES[d->passes[i]].ansi, PASSES[d->passes[i]].letter);
    printf("\033[K\n\033[1m");
    print_pass(d);
    printf("\033[0m\033[K\n");
}

// One frame over the one before. A row stays free below it, where the Enter of --step takes the cursor.
static void draw(demo *d) {
    struct winsize size = {0};
    bool known = !ioctl(fileno(stdout), TIOCGWINSZ, &size) && size.ws_col && size.ws_row;
    int columns = known ? size.ws_col : WIDTH, rows = known ? size.ws_row : 24;
    if (!d->drawn_rows || columns != d->columns || rows != d->rows) printf("\033[2J\033[H");
    else printf("\r\033[%dA", d->drawn_rows - 1);
    d->columns = columns;
    d->rows = rows;
    printf("\033[?7l");  // what is too long is cut, not wrapped
    draw_head(d);
    int room = rows - HEAD - FOOT - 1, shown = (int)d->requests < room ? (int)d->requests : room > 1 ? room : 1;
    int lines = room / shown > 4 ? 4 : room / shown > 1 ? room / shown : 1;
    for (int i = 0; i < shown; i++) print_lane(d, &d->lane[i], lines, columns);
    if (d->latest.dropped) print_rollback(d, &d->latest, "");
    else printf("\033[K\n\033[K\n");
    printf("candidates %d  committed %d  rollbacks %d  recomputed %d%s\033[K\033[?7h", (int)d->stats.candidates,
           (int)d->stats.deterministic_tokens, (int)d->stats.rollbacks, (int)d->stats.recomputed,
           d->step ? "   \033[1mEnter: next  r: run\033[0m" : "");
    d->drawn_rows = HEAD + FOOT + shown * lines;
}

// Without a screen: a line for each pass that is not fast (for each, in step mode), and what it rolled back.
static void print_log(const demo *d) {
    unsigned char kind = arrlast(d->passes);
    if (kind == FAST_PASS && !d->step) return;
    print_pass(d);
    for (int i = 0, first = 1; i < d->requests && d->pass.windows; i++) {
        const lane *l = &d->lane[i];
        if (!l->deterministic || !l->released) continue;
        printf("%s %s +%d", first ? ":" : ",", l->name, l->released);
        if (l->dropped) printf(" -%d", l->dropped);
        first = 0;
    }
    printf("\n");
    for (int i = 0; i < d->requests; i++)
        if (d->lane[i].disagrees) print_rollback(d, &d->lane[i].found, "         ");
}

static void show_pass(demo *d, const llm42_engine *engine) {
    bool dropped = false;
    for (int i = 0; i < d->requests; i++) dropped = dropped || d->lane[i].dropped;
    unsigned char replay = !d->pass.windows ? PROMPT_PASS : dropped ? ROLLBACK_PASS : REPLAY_PASS;
    arrput(d->passes, d->pass.schedule == LLM42_FAST ? FAST_PASS : replay);
    d->stats = llm42_engine_stats(engine);
    if (d->screen) draw(d);
    else print_log(d);
    fflush(stdout);
    int64_t ms = dropped ? 16 * d->delay : d->pass.windows ? 5 * d->delay : d->delay;
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    char line[16];
    if (!d->step) nanosleep(&left, NULL);
    else if (!fgets(line, sizeof line, stdin) || line[0] == 'r') d->step = false;
    else if (d->screen) printf("\033[A");  // back from where Enter took the cursor
    for (int i = 0; i < d->requests; i++) {
        d->lane[i].released = d->lane[i].dropped = 0;
        d->lane[i].disagrees = false;
    }
}

// >>serve --------------------------------------------------------------------------------------------------------
static llm42_engine *open_engine(demo *d, bool show) {
    static llm42_backend watched;
    llm42_engine_desc desc = d->how;
    llm42_engine *engine = NULL;
    llm42_error error = {0};
    desc.model = d->model;
    desc.window = (int)d->window;
    desc.group = (int)d->group;
    desc.token_budget = BUDGET;
    desc.max_running = MAX_LANES;
    desc.inject_rate = d->inject;
    desc.inject_seed = (uint64_t)d->seed;
    bool small = d->model->mapped_bytes + d->model->copied_bytes < 16 << 20;  // too little work to share
    desc.threads = d->threads ? (int)d->threads : small;
    if (show) {
        watched = *llm42_backend_cpu();
        watched.run = watch_run;
        watched.start = NULL;
        watched.poll = NULL;
        watching = d;
        desc.backend = &watched;
        desc.on_event = on_event;
        desc.event_user = d;
    }
    args_check(llm42_engine_open(&engine, &desc, &error), &error);
    return engine;
}

static void submit(demo *d, llm42_engine *engine, lane *l, bool marked, bool show) {
    llm42_error error = {0};
    llm42_request_desc desc = {.prompt = l->prompt,
                               .prompt_count = (int)arrlen(l->prompt),
                               .user = l,
                               .max_new_tokens = (int)d->tokens,
                               .deterministic = marked && l->deterministic};
    for (int i = 0; i < (int)arrlen(l->prompt) && show; i++) {
        item word = {l->prompt[i], PROMPT, -1};
        arrput(l->items, word);
    }
    args_check(llm42_engine_submit(engine, &desc, &l->id, &error), &error);
}

// Serves lanes `first` to `last`, one more every second pass so that batches differ in size, and keeps their answers.
static void serve(demo *d, int first, int last, bool marked, bool show, answer *answers) {
    llm42_engine *engine = open_engine(d, show);
    llm42_error error = {0};
    llm42_result result = LLM42_OK;
    for (int pass = 0, next = first; result == LLM42_OK || next <= last; pass++) {
        while (next <= last && pass >= 2 * (next - first)) submit(d, engine, &d->lane[next++], marked, show);
        result = args_check(llm42_engine_step(engine, &error), &error);
        if (result == LLM42_OK && show) show_pass(d, engine);
        if (interrupted && d->screen) printf("\n");
        if (interrupted) args_fail(128 + (int)interrupted, "interrupted");
    }
    for (int i = first; i <= last; i++) {
        const llm42_request *r = llm42_engine_request(engine, d->lane[i].id);
        memcpy(arraddnptr(answers[i].tokens, r->committed), r->tokens, sizeof(int32_t) * (size_t)r->committed);
        memcpy(arraddnptr(answers[i].logprobs, r->committed), r->logprobs, sizeof(float) * (size_t)r->committed);
    }
    llm42_engine_close(engine);
}

// >>report -------------------------------------------------------------------------------------------------------
static void print_title(const demo *d, const char *text) {
    printf(d->screen ? "\n\033[1m%s\033[0m\n" : "\n%s\n", text);
}

static void report_counts(const demo *d) {
    const llm42_stats *s = &d->stats;
    int kinds[4] = {0}, kept = (int)s->candidates - d->dropped;
    for (int i = 0; i < (int)arrlen(d->passes); i++) kinds[d->passes[i]]++;
    print_title(d, "What happened");
    printf("passes     %d fast, %d replay (%d with a rollback), %d for deterministic prompts\n", kinds[FAST_PASS],
           kinds[REPLAY_PASS] + kinds[ROLLBACK_PASS], kinds[ROLLBACK_PASS], kinds[PROMPT_PASS]);
    printf("candidates %d, of which %d held\n", (int)s->candidates, kept);
    printf("committed  %d tokens: those and %d of the verifier's own\n", (int)s->deterministic_tokens,
           (int)s->deterministic_tokens - kept);
    printf("rollbacks  %d in %d windows; %d tokens recomputed, %.1f%% of the %d returned\n", (int)s->rollbacks,
           (int)s->verifications, (int)s->recomputed, 100.0 * (double)s->recomputed / (double)s->returned_tokens,
           (int)s->returned_tokens);
    if (s->injected) printf("injected   %d candidates were made wrong on purpose\n", (int)s->injected);
    const rollback *shown = d->natural.dropped ? &d->natural : &d->latest;
    if (shown->dropped) print_rollback(d, shown, "  ");
    if (shown->dropped && (shown->fast[0] == shown->fast[1] || shown->replay[0] == shown->replay[1]))
        printf("  (of two that are equal, the one with the lower token id is taken)\n");
}

// First difference of two answers; -1: none.
static int differs(const answer *a, const answer *b) {
    int n = (int)arrlen(a->tokens), m = (int)arrlen(b->tokens);
    for (int i = 0; i < n && i < m; i++)
        if (a->tokens[i] != b->tokens[i]) return i;
    return n == m ? -1 : n < m ? n : m;
}

// The prompts once more, none marked: among each other, and alone.
static void report_drift(demo *d, answer *among, answer *alone) {
    int drifted = 0, shown = 0, earliest = INT32_MAX;
    serve(d, 0, (int)d->requests - 1, false, false, among);
    for (int k = 0; k < d->requests; k++) {
        serve(d, k, k, false, false, alone);
        int at = differs(&among[k], &alone[k]);
        drifted += at >= 0;
        if (at >= 0 && at < earliest) shown = k, earliest = at;
    }
    printf("not marked %d of %d drift", drifted, (int)d->requests);
    if (drifted) printf("; prompt %d from token %d on:", shown + 1, earliest + 1);
    printf("\n");
    int from = earliest > 6 ? earliest - 6 : 0;
    for (int i = 0; i < 2 && drifted; i++) {
        const answer *a = i ? &alone[shown] : &among[shown];
        printf(i ? "  alone    ..." : "  together ...");
        print_tokens(d, a->tokens + from, earliest - from, 30, PROMPT);
        printf(" | ");
        print_tokens(d, a->tokens + earliest, (int)arrlen(a->tokens) - earliest, 33, ORDINARY);
        printf("\n");
    }
}

// Serves the same requests without company and compares. Returns how many deterministic ones changed.
static int report_proof(demo *d, answer *marked) {
    answer alone[MAX_LANES] = {{0}}, loose[MAX_LANES] = {{0}}, loose_alone[MAX_LANES] = {{0}};
    int same = 0, tokens = 0, bits = 0, count = 0, returned = 0;
    for (int k = 0; k < d->requests; k += 2, count++) {
        serve(d, k, k, true, false, alone);
        int n = (int)arrlen(marked[k].tokens), m = (int)arrlen(alone[k].tokens), equal = 0, equal_bits = 0;
        for (int i = 0; i < n && i < m; i++) {
            equal += marked[k].tokens[i] == alone[k].tokens[i];
            equal_bits += !memcmp(&marked[k].logprobs[i], &alone[k].logprobs[i], sizeof(float));
        }
        same += n == m && equal == n && equal_bits == n;
        tokens += equal;
        bits += equal_bits;
        returned += n;
    }
    print_title(d, "The same requests, together and alone");
    printf("marked     %d of %d identical: %d/%d tokens, %d/%d log-probs to the bit\n", same, count, tokens, returned,
           bits, returned);
    report_drift(d, loose, loose_alone);
    answer *all[] = {marked, alone, loose, loose_alone};
    for (int k = 0; k < 4 * MAX_LANES; k++) {
        arrfree(all[k % 4][k / 4].tokens);
        arrfree(all[k % 4][k / 4].logprobs);
    }
    return count - same;
}

static void open_demo(demo *d) {
    llm42_error error = {0};
    char found[4096];
    llm42_model_desc desc = {.path = args_find(d->model_path, found)};
    args_policy(&d->how, "verify", d->verify);
    args_policy(&d->how, "prefill", d->prefill);
    args_choice("--planner", d->planner, planner_names);
    d->how.planner = planner_find(d->planner);
    args_check(llm42_model_load(&d->model, &desc, &error), &error);
    args_check(tok_open(&d->tok, d->model, desc.path, NULL, &error), &error);
    if (d->trace_path) args_check(llm42_trace_open(&d->trace, d->trace_path, &error), &error);
    size_t vocab = (size_t)d->model->config.vocab, rows = (size_t)(d->window * d->group);
    d->ring = 2 * (int)d->window + 2;  // candidates alive at once, look-ahead included, at most
    arrsetlen(d->logits, vocab * (rows > BUDGET ? rows : BUDGET));
    for (int k = 0; k < d->requests; k++) {
        lane *l = &d->lane[k];
        l->deterministic = k % 2 == 0;
        snprintf(l->name, sizeof l->name, "%c%d", l->deterministic ? 'D' : 'o', k + 1);
        args_check(tok_encode(d->tok, PROMPTS[k], strlen(PROMPTS[k]), true, &l->prompt, &error), &error);
        arrsetlen(l->fast, vocab * (size_t)d->ring);
        arrsetlen(l->drawn, (size_t)d->ring);
    }
}

static void close_demo(demo *d) {
    for (int k = 0; k < MAX_LANES; k++) {
        arrfree(d->lane[k].prompt);
        arrfree(d->lane[k].items);
        arrfree(d->lane[k].fast);
        arrfree(d->lane[k].drawn);
    }
    arrfree(d->logits);
    arrfree(d->passes);
    tok_free(d->tok);
    llm42_model_free(d->model);
}

int main(int argc, char **argv) {
    static demo d = {.model_path = "examples/tiny42",
                     .verify = "eager",
                     .prefill = "packed",
                     .planner = "default",
                     .window = 8,
                     .group = 4,
                     .requests = 8,
                     .tokens = 64,
                     .delay = -1,
                     .seed = 42};
    char verifies[256], prefills[256], planners[256];
    const args_option options[] = {
        ARGS_TEXT("model DIR", &d.model_path, "model folder with a tokenizer"),
        ARGS_INT("window W", &d.window, 1, 64, "tokens of a request in a verification"),
        ARGS_INT("group G", &d.group, 1, 64, "requests verified together; a replay pass has W x G rows"),
        ARGS_INT("requests N", &d.requests, 1, MAX_LANES, "requests; every other one is deterministic"),
        ARGS_INT("tokens N", &d.tokens, 1, 1024, "new tokens of each request, at most"),
        ARGS_TEXT("verify WHEN", &d.verify, args_words(verifies, args_policy_words("verify"))),
        ARGS_TEXT("prefill HOW", &d.prefill, args_words(prefills, args_policy_words("prefill"))),
        ARGS_TEXT("planner NAME", &d.planner, args_words(planners, planner_names)),
        ARGS_REAL("inject RATE", &d.inject, 0, 1, "share of candidates made wrong on purpose"),
        ARGS_INT("seed S", &d.seed, 1, INT64_MAX, "seed of --inject"),
        ARGS_INT("threads N", &d.threads, 0, 1024, "0: one for a small model, else what OpenMP offers"),
        ARGS_FLAG("step", &d.step, "wait for Enter before each pass"),
        ARGS_INT("delay MS", &d.delay, -1, 60000, "pause after a pass, more after a replay; -1: 60 on a screen"),
        ARGS_TEXT("trace FILE", &d.trace_path, "write the events: .json for Perfetto, else TSV"),
        ARGS_END,
    };
    args_parse(argc, argv, "Shows decode, verify, roll back as it happens.", options);
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
    answer marked[MAX_LANES] = {{0}};
    llm42_error error = {0};
    d.screen = args_use_color(stdout);
    if (d.delay < 0) d.delay = d.screen ? 60 : 0;
    open_demo(&d);
    serve(&d, 0, (int)d.requests - 1, true, true, marked);
    if (d.trace) args_check(llm42_trace_close(d.trace, &error), &error);
    if (d.screen) printf("\n");
    else print_title(&d, "The deterministic requests; [-struck out-], {+the verifier's own token instead+}");
    for (int k = 0; k < d.requests && !d.screen; k += 2) print_lane(&d, &d.lane[k], 0, 100);
    report_counts(&d);
    int changed = report_proof(&d, marked);
    close_demo(&d);
    return args_finish() || changed;
}
