// screen.c: a pass of the record on a terminal or in a log, and the keys that page through the passes.
//
//     a terminal             one screen, drawn again for each pass
//     with NO_COLOR set      the same without colours: brackets say what they say
//     with TERM=dumb         no control sequences at all: screens and lines below each other
//     a file or a pipe       a log: a line for each pass that is not fast, and how its candidates compared
#define _DEFAULT_SOURCE  // TIOCGWINSZ
#include "rollback.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>

enum { LOG_WIDTH = 100, LABEL = 11, POLL_MS = 200, ESCAPE_MS = 50 };

// >>keys ---------------------------------------------------------------------------------------------------------
// Signal handlers need these.
static struct termios keys_saved;
static volatile sig_atomic_t keys_raw, continued;

static bool in_foreground(void) { return tcgetpgrp(STDIN_FILENO) == getpgrp(); }

static void keys_restore(void) {
    if (keys_raw && in_foreground()) tcsetattr(STDIN_FILENO, TCSANOW, &keys_saved);
}

// Single keys, and none of them shown. Ctrl-C and Ctrl-Z stay signals.
static void keys_set_raw(void) {
    struct termios raw = keys_saved;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    if (in_foreground()) tcsetattr(STDIN_FILENO, TCSANOW, &raw);
}

static void on_interrupt(int number) { args_signal = number; }

static void on_fatal(int number) {
    keys_restore();
    llm42_files_remove();
    signal(number, SIG_DFL);
    raise(number);
}

static void on_stop(int number) {
    (void)number;
    int saved = errno;
    keys_restore();
    raise(SIGSTOP);
    errno = saved;
}

static void on_continue(int number) {
    (void)number;
    int saved = errno;
    if (keys_raw) keys_set_raw();
    continued = 1;
    errno = saved;
}

// The terminal gets its settings back however the program ends, and while it is stopped.
static void keys_open(screen *s) {
    const int polite[] = {SIGINT, SIGTERM, SIGHUP}, fatal[] = {SIGPIPE, SIGQUIT};
    for (int i = 0; i < 3; i++) args_catch(polite[i], 0, on_interrupt);
    for (int i = 0; i < 2; i++) args_catch(fatal[i], 0, on_fatal);
    bool typed = args_is_terminal(stdin) && (s->terminal || s->mode == STEP);
    if (typed && !tcgetattr(STDIN_FILENO, &keys_saved)) {
        atexit(keys_restore);
        args_catch(SIGTSTP, 0, on_stop);
        args_catch(SIGCONT, 0, on_continue);
        keys_raw = 1;
        keys_set_raw();
    }
    s->piped_keys = !typed && s->mode == STEP;
    s->keys = keys_raw || s->piped_keys;
}

void stop_if_interrupted(const screen *s) {
    if (args_signal && s && s->drawn) printf("\n");
    args_stop_if_asked();
}

// One more character of input; -1: its end, or none within `ms` milliseconds, unless that is negative.
static int read_char(int ms) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    unsigned char c;
    ssize_t got;
    if (ms >= 0 && poll(&input, 1, ms) <= 0) return -1;
    do got = read(STDIN_FILENO, &c, 1);
    while (got < 0 && errno == EINTR && !args_signal);
    return got == 1 ? c : -1;
}

// Right, Left, Page Down and Page Up: arrow keys, and what a presenter's remote control sends.
static key read_sequence(void) {
    int c = read_char(ESCAPE_MS), number = 0;
    if (c != '[' && c != 'O') return KEY_NONE;
    for (c = read_char(ESCAPE_MS); c >= '0' && c <= ';'; c = read_char(ESCAPE_MS))
        number = c <= '9' && number < 100 ? 10 * number + c - '0' : 100;
    if (c == 'C' || (c == '~' && number == 6)) return KEY_NEXT;
    if (c == 'D' || (c == '~' && number == 5)) return KEY_BACK;
    return KEY_NONE;
}

// In a pipe a key is a letter, with or without a line end behind it; an empty line is Enter.
static key read_one_key(screen *s) {
    int c = read_char(-1);
    bool ends_line = s->piped_keys && s->letter && c == '\n';
    s->letter = c != '\n';
    switch (c) {
    case '\r':
    case '\n':
    case ' ': return ends_line ? KEY_NONE : KEY_NEXT;
    case 'n':
    case 'N': return KEY_ROLLBACK;
    case 'b':
    case 'B': return KEY_BACK;
    case 'r':
    case 'R': return KEY_RUN;
    case 'q':
    case 'Q': return KEY_QUIT;
    case 27: return s->piped_keys ? KEY_NONE : read_sequence();
    case 4:  // Ctrl-D
    case -1: return KEY_END;
    default: return KEY_NONE;
    }
}

// >>lines --------------------------------------------------------------------------------------------------------

static bool measure(screen *s) {
    struct winsize size = {0};
    bool known = s->terminal && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col && size.ws_row;
    int width = s->terminal ? (known ? size.ws_col : 80) - 1 : LOG_WIDTH, rows = known ? size.ws_row : 24;
    if (width < 20) width = 20;
    bool changed = width != s->width || rows != s->rows;
    s->width = width;
    s->rows = rows;
    return changed;
}

void screen_open(screen *s, bool step, int64_t delay) {
    const char *term = getenv("TERM");
    s->terminal = args_is_terminal(stdout);
    s->live = s->terminal && term && term[0] && strcmp(term, "dumb");
    s->color = s->live && args_use_color(stdout);
    s->mode = step ? STEP : RUN;
    s->delay = delay >= 0 ? delay : s->terminal ? 60 : 0;
    text_open();
    measure(s);
    keys_open(s);
    if (step && !s->terminal && keys_raw)
        fprintf(stderr, "Enter: next pass, n: next rollback, b: back, r: run on, q: summary\n");
}

static void print_line(const screen *s, const cell *line) {
    int look = PLAIN, count = (int)arrlen(line);
    while (count && line[count - 1].text[0] == ' ') count--;
    for (int i = 0; i < count; i++) {
        if (s->color && line[i].look != look) printf("\033[0m%s", LOOK[line[i].look].ansi);
        look = line[i].look;
        printf("%s", line[i].text);
    }
    if (s->color && look != PLAIN) printf("\033[0m");
}

void print_page(const screen *s, page *p, int indent) {
    for (int i = 0; i < (int)arrlen(*p); i++) {
        printf("%*s", arrlen((*p)[i]) ? indent : 0, "");
        print_line(s, (*p)[i]);
        printf("\n");
    }
    page_free(p);
}

void print_text(const screen *s, cell *text, int hang) {
    page p = NULL;
    add_paragraph(&p, text, s->width, hang);
    print_page(s, &p, 0);
}

void print_command(const screen *s, cell *text) {
    for (int at = 0, end, n = (int)arrlen(text); at < n; at = end) {
        cell *line = NULL;
        end = at + s->width - 1 < n ? at + s->width - 1 : n;
        for (int i = end; end < n && i > at; i--) {
            if (!strchr(" ,", text[i - 1].text[0])) continue;
            end = i;
            break;
        }
        add_cells(&line, text, at, end);
        if (end < n) add(&line, PLAIN, "\\");
        print_line(s, line);
        printf("\n");
        arrfree(line);
    }
    arrfree(text);
}

void say(const screen *s, look look, int hang, const char *format, ...) {
    char text[1024];
    cell *cells = NULL;
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    add(&cells, look, "%s", text);
    print_text(s, cells, hang);
}

void add_lane(page *p, const demo *d, const screen *s, const lane *l, int pass, int lines) {
    cell *text = lane_text(d, l, pass, s->color);
    page body = NULL;
    int room = s->width - 4, skip = 0;
    for (int width = lines == 1 ? columns(text) : 0; width > room; skip++) width -= text[skip].width;
    if (skip) arrdeln(text, 0, (size_t)skip);
    add_paragraph(&body, text, room, 0);
    int wrapped = (int)arrlen(body), first = lines && wrapped > lines ? wrapped - lines : 0;
    for (int i = first; i < wrapped || (s->live && i - first < lines); i++) {
        cell *line = NULL;
        add(&line, l->deterministic ? NAME : PLAIN, "%-4s", i == first ? l->name : "");
        if (i < wrapped) add_cells(&line, body[i], 0, (int)arrlen(body[i]));
        arrput(*p, line);
    }
    page_free(&body);
}

// >>pass ---------------------------------------------------------------------------------------------------------

// A deterministic request that has read KV of FAST passes gets a candidate from an INVARIANT row, too.
static void add_invariant_pass(cell **text, const demo *d, int pass) {
    int count = 0, named = 0;
    const lane *with[MAX_LANES];
    for (int k = 0; k < d->requests; k++) {
        const lane *l = &d->lane[k];
        bool candidate = false;
        for (int i = 0; i < (int)arrlen(l->items); i++)
            candidate |= l->items[i].index >= 0 && l->items[i].born == pass && l->items[i].settled != pass;
        if (candidate) with[count++] = l;
    }
    const int rows = frame_at(d, pass)->event.n;
    add(text, STRONG, "INVARIANT schedule: %d row%s; ", rows, args_plural(rows));
    if (!count) add(text, STRONG, "what %s final", rows == 1 ? "it gives is" : "they give is");
    for (; named < count; named++)
        add(text, STRONG, "%s%s", !named ? "" : named + 1 == count ? " and " : ", ", with[named]->name);
    if (count) add(text, STRONG, count == 1 ? " still gets a candidate" : " still get candidates");
}

static void add_pass(cell **text, const demo *d, int pass, int width) {
    const llm42_event *e = &frame_at(d, pass)->event;
    const char *schedule = e->schedule == LLM42_SCHEDULE_INVARIANT ? "INVARIANT" : "FIXED";
    add(text, STRONG, "pass %-3d ", pass);
    if (width < 70 && e->schedule == LLM42_SCHEDULE_FAST) add(text, STRONG, "FAST: %d row%s", e->n, args_plural(e->n));
    else if (width < 70 && !e->windows) add(text, STRONG, "%s: %d row%s", schedule, e->shape, args_plural(e->shape));
    else if (width < 70) add(text, STRONG, "REPLAY (%s): %d of %d windows", schedule, e->windows, (int)d->group);
    else if (e->schedule == LLM42_SCHEDULE_FAST)
        add(text, STRONG, "FAST schedule: sums cut as suits %d row%s", e->n, args_plural(e->n));
    else if (!e->windows && e->schedule == LLM42_SCHEDULE_INVARIANT) add_invariant_pass(text, d, pass);
    else if (!e->windows) add(text, STRONG, "prompts, in a FIXED pass of %d row%s", e->shape, args_plural(e->shape));
    else
        add(text, STRONG, "REPLAY in %s schedule: %d row%s, %d of %d windows of %d used", schedule, e->shape,
            args_plural(e->shape), e->windows, (int)d->group, (int)d->window);
    int rollbacks = 0;
    for (int i = first_window(d, pass); i < frame_at(d, pass)->windows; i++) rollbacks += d->windows[i].dropped > 0;
    if (rollbacks > 1) add(text, STRONG, ", %d rollbacks", rollbacks);
}

// One of the rows of a verification, for some of its columns.
static cell *window_row(const column *all, int begin, int end, int row) {
    static const char *const label[] = {"candidate", "", "replay", "in state"};
    cell *text = NULL;
    add(&text, PLAIN, "%-*s", LABEL, label[row]);
    for (int i = begin; i < end; i++) {
        const cell *token = row ? all[i].output : all[i].candidate;
        int used = row == 1 ? 1 : columns(token);
        look mark = all[i].mark == 'X' ? ROLLBACK_LETTER : all[i].mark == '.' ? FAINT : STRONG;
        if (row == 3 && !all[i].candidate) break;
        if (row == 3) used = 1, add(&text, PLAIN, "%d", all[i].taken);
        else if (row == 1) add(&text, mark, "%c", all[i].mark);
        else add_cells(&text, token, 0, (int)arrlen(token));
        if (i + 1 < end) add(&text, PLAIN, "%*s", all[i].width - used + 2, "");
    }
    return text;
}

void add_window(page *p, const demo *d, const window *w, int width, int most) {
    page head = NULL, rows = NULL, reason = NULL;
    column *all = columns_of_window(d, w);
    const bool states = d->model->config.recurrent_layers > 0;
    const int each = states ? 4 : 3;
    int count = (int)arrlen(all), *starts = NULL, split = 0;
    add_paragraph(&head, window_outcome(d, w), width, 2);
    if (w->dropped) add_paragraph(&reason, rollback_reason(d, w, !most), width, 2);
    if (w->dropped && states && (!most || width >= 70)) add_paragraph(&reason, state_text(w, !most), width, 2);
    for (int at = 0, used = LABEL; at < count; used += all[at++].width + 2) {
        if (at && used + all[at].width <= width) continue;
        if (w->agreed >= at) split = (int)arrlen(starts);
        arrput(starts, at);
        used = LABEL;
    }
    int chunks = (int)arrlen(starts), room = (most - (int)arrlen(head) - (int)arrlen(reason)) / each;
    if (most && room < chunks) room = (most - 1 - (int)arrlen(head) - (int)arrlen(reason)) / each;
    if (!most || room > chunks) room = chunks;
    if (room < 1) room = 1;
    int first = split + room > chunks ? chunks - room : split;
    cell *rest = NULL;
    add(&rest, FAINT, "(Make the terminal larger to see all %d.)", count);
    for (int k = first; k < chunks && k < first + room; k++)
        for (int row = 0; row < each; row++)
            arrput(rows, window_row(all, starts[k], k + 1 < chunks ? starts[k + 1] : count, row));
    move_lines(p, &head, 0);
    move_lines(p, &rows, 0);
    if (room < chunks) add_paragraph(p, rest, width, 2);
    else arrfree(rest);
    move_lines(p, &reason, 0);
    arrfree(starts);
    columns_free(all);
}

// >>log ----------------------------------------------------------------------------------------------------------

static void log_pass(const demo *d, const screen *s) {
    int pass = s->at;
    const frame *f = frame_at(d, pass);
    cell *text = NULL;
    add_pass(&text, d, pass, s->width);
    for (int i = 0, first = 1; i < d->requests; i++) {
        const lane *l = &d->lane[i];
        int released = count_settled(l, pass, false), dropped = count_settled(l, pass, true);
        if (f->event.windows ? !l->deterministic || !released : f->kind != FAST_PASS && s->mode != STEP) continue;
        if (f->event.windows) {
            add(&text, PLAIN, "%s %s +%d", first ? ":" : ",", l->name, released);
            if (dropped) add(&text, PLAIN, " -%d", dropped);
            first = 0;
        }
        for (int k = 0; k < (int)arrlen(l->items) && !f->event.windows; k++) {
            const item *it = &l->items[k];
            if (it->index < 0 || it->born != pass) continue;
            look look = look_at(it, pass);
            add(&text, PLAIN, "%s %s ", first ? ":" : ",", l->name);
            add(&text, look, "%s", LOOK[look].open);
            add_token(&text, d, look, it->token);
            add(&text, look, "%s", LOOK[look].close);
            first = 0;
        }
    }
    print_text(s, text, 9);
    for (int i = first_window(d, pass); i < f->windows; i++) {
        page p = NULL;
        if (!d->windows[i].dropped && s->mode != STEP) continue;
        add_window(&p, d, &d->windows[i], s->width - 9, 0);
        print_page(s, &p, 9);
    }
}

// >>frame --------------------------------------------------------------------------------------------------------

// What a screen shows: settings, a letter for each pass, the requests, a verification, and counts.
static void add_strip(cell **text, const demo *d, const screen *s) {
    int room = s->width - columns(*text) - 5, first = (s->at - 1) / room * room + 1;
    add(text, PLAIN, "%4d ", first);
    for (int i = first; i <= s->at; i++) {
        int kind = frame_at(d, i)->kind;
        add(text, PASSES[kind].look, "%c", PASSES[kind].letter);
    }
}

cell *policies_text(const demo *d) {
    cell *text = NULL;
    add(&text, PLAIN, "W %d x G %d", (int)d->window, (int)d->group);
    if (d->how.policy.verifier == LLM42_VERIFIER_FIXED) add(&text, PLAIN, " = M %d", (int)(d->window * d->group));
    llm42_engine_desc preset = {.preset = d->how.preset};
    llm42_preset_apply(&preset);
    add(&text, PLAIN, ", preset %s: verifier %s, verify %s", d->preset, llm42_policy_word(&d->how, "verifier"),
        llm42_policy_word(&d->how, "verify"));
    // The demo has a default of its own, which must not seem to be the preset's.
    if (d->how.policy.verify != preset.policy.verify)
        add(&text, PLAIN, " (preset: %s)", llm42_policy_word(&preset, "verify"));
    add(&text, PLAIN, ", prefill %s", llm42_policy_word(&d->how, "prefill"));
    if (d->keep_fast_kv) add(&text, PLAIN, "; control: the KV of FAST passes stays");
    if (d->keep_fast_state) add(&text, PLAIN, "; control: states keep what is rolled back");
    return text;
}

static page head_page(const demo *d, const screen *s, bool legends) {
    page p = NULL;
    cell *title = NULL, *looks = NULL, *strip = NULL, *pass = NULL;
    add(&title, STRONG, "llm42");
    if (legends) {
        add(&title, NAME, "  D");
        add(&title, PLAIN, " deterministic  o ordinary");
    }
    cell *settings = policies_text(d);
    add(&title, PLAIN, "  ");
    add_cells(&title, settings, 0, (int)arrlen(settings));
    arrfree(settings);
    add_paragraph(&p, title, s->width, 2);
    for (int i = PROMPT; i <= VERDICT && legends; i++) {
        bool brackets = !s->color || i >= STRUCK;
        add(&looks, (look)i, "%s%s%s", brackets ? LOOK[i].open : "", LOOK[i].legend, brackets ? LOOK[i].close : "");
        add(&looks, PLAIN, i < VERDICT ? "   " : "");
    }
    if (legends) add_paragraph(&p, looks, s->width, 2);
    for (int i = 0; i < PASS_KINDS && legends; i++) {
        if (!may_occur(d, i)) continue;
        add(&strip, PASSES[i].look, "%c", PASSES[i].letter);
        add(&strip, PLAIN, " %s  ", PASSES[i].legend);
    }
    if (legends && s->width - columns(strip) < 35) {
        add_paragraph(&p, strip, s->width, 2);
        strip = NULL;
    }
    add_strip(&strip, d, s);
    add_paragraph(&p, strip, s->width, 2);
    add_pass(&pass, d, s->at, s->width);
    if (s->at < passes(d)) add(&pass, FAINT, " (of %d so far)", passes(d));
    add_paragraph(&p, pass, s->width, 2);
    return p;
}

// The verifications to draw: the rollbacks of this pass, else one window of it, else the latest rollback or window.
static page window_page(const demo *d, const screen *s, int most) {
    page p = NULL;
    int end = frame_at(d, s->at)->windows, first = first_window(d, s->at), chosen = -1;
    for (int i = end - 1; i >= 0 && (i >= first || chosen < first); i--)
        if (chosen < 0 || (d->windows[i].dropped && (i >= first || !d->windows[chosen].dropped))) chosen = i;
    if (chosen < 0) return p;
    add_window(&p, d, &d->windows[chosen], s->width, most);
    for (int i = chosen + 1; i < end && chosen >= first; i++) {
        page more = NULL;
        if (!d->windows[i].dropped) continue;
        add_window(&more, d, &d->windows[i], s->width, most);
        if ((int)(arrlen(p) + arrlen(more)) <= most) move_lines(&p, &more, 0);
        page_free(&more);
    }
    return p;
}

static page tail_page(const demo *d, const screen *s) {
    page p = NULL;
    cell *counts = NULL, *keys = NULL;
    const llm42_stats *n = &frame_at(d, s->at)->stats;
    add(&counts, PLAIN, "candidates %d  committed %d  rollbacks %d  recomputed %d", (int)n->candidates,
        (int)n->deterministic_tokens, (int)n->rollbacks, (int)n->recomputed);
    if (s->ended) add(&counts, STRONG, "   the run has ended");
    add_paragraph(&p, counts, s->width, 2);
    add(&keys, STRONG, "Enter %s  n next rollback  b back  r run on  q summary", s->mode == STEP ? "next" : "stop");
    if (s->keys) add_paragraph(&p, keys, s->width, 2);
    else arrfree(keys);
    return p;
}

// The requests in `room` lines. If there are too few, the ordinary ones are left out first.
static void add_lanes(page *p, const demo *d, const screen *s, int room) {
    int all = (int)d->requests, marked = (all + 1) / 2, shown = room >= all ? all : room > 2 ? room - 1 : 1;
    int use = 1 + (int)d->tokens * 5 / (s->width - 4), each = 1, extra = 0;  // lines that a request may need
    bool chosen[MAX_LANES] = {false};
    if (use > 4) use = 4;
    if (shown == all) each = room / all < use ? room / all : use;
    if (shown == all && each < use) extra = room - each * all >= marked;
    for (int pass = 0, left = shown; pass < 2; pass++)
        for (int i = 0; i < all && left; i++)
            if (d->lane[i].deterministic == !pass) chosen[i] = true, left--;
    for (int i = 0; i < all; i++)
        if (chosen[i]) add_lane(p, d, s, &d->lane[i], s->at, each + (d->lane[i].deterministic ? extra : 0));
    cell *note = NULL;
    add(&note, FAINT, "+ %d request%s: make the terminal taller", all - shown, args_plural(all - shown));
    if (shown < all) add_paragraph(p, note, s->width, 2);
    else arrfree(note);
}

static page frame_page(const demo *d, const screen *s) {
    page head = head_page(d, s, true), tail = tail_page(d, s);
    int requests = (int)d->requests, marked = (requests + 1) / 2, least = marked + (marked < requests);
    int room = s->rows - (int)arrlen(tail), keep = s->width >= 70 ? 6 : 8;
    if (room - (int)arrlen(head) - keep < requests) {
        page_free(&head);
        head = head_page(d, s, false);
    }
    int most = room - (int)arrlen(head) - least;
    page windows = window_page(d, s, most > 1 ? most : 1);
    // A place is kept for a verification, so that the requests stay where they are.
    int blank = keep - (int)arrlen(windows), lanes = room - (int)(arrlen(head) + arrlen(windows));
    if (!s->live || blank < 0 || lanes - blank < requests) blank = 0;
    add_lanes(&head, d, s, lanes - blank);
    move_lines(&head, &windows, 0);
    while (blank-- > 0) arrput(head, NULL);
    while ((int)arrlen(head) > room && room > 0) arrfree(head[arrlen(head) - 1]), (void)arrpop(head);
    move_lines(&head, &tail, 0);
    return head;
}

static void draw_frame(const demo *d, screen *s) {
    bool changed = measure(s) || continued;
    continued = 0;
    page p = frame_page(d, s);
    if (!s->live) {
        printf("\n");
        print_page(s, &p, 0);
        return;
    }
    printf(changed || !s->drawn ? "\033[2J\033[H" : "\033[H");
    for (int i = 0, n = (int)arrlen(p); i < n && i < s->rows; i++) {
        print_line(s, p[i]);
        printf(i + 1 < n && i + 1 < s->rows ? "\033[K\n" : "\033[K\033[J");
    }
    page_free(&p);
    s->drawn = true;
}

static void draw(const demo *d, screen *s) {
    int kind = frame_at(d, s->at)->kind;
    if (s->ended && s->at == passes(d) && !s->live) {
        say(s, STRONG, 0, "The run has ended. Enter: summary, b: back");
    } else if (s->live || (s->terminal && (s->mode == STEP || (s->mode == RUN && kind != FAST_PASS)))) draw_frame(d, s);
    else if (s->terminal || kind != FAST_PASS || s->mode == STEP) log_pass(d, s);
    fflush(stdout);
}

// >>show ---------------------------------------------------------------------------------------------------------

// Waits for a key, at most `ms` milliseconds unless that is negative, or until the program is asked to end. A screen
// whose terminal changes its size is drawn again. In the background, and without keys, time passes alone.
static key wait_for_key(const demo *d, screen *s, int64_t ms) {
    for (;;) {
        int slice = ms < 0 || ms > POLL_MS ? POLL_MS : (int)ms;
        bool listen = s->keys && (ms < 0 || (keys_raw && in_foreground()));
        struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
        int ready = poll(&input, listen, slice);
        key pressed = ready > 0 && !args_signal ? read_one_key(s) : KEY_NONE;
        if (pressed != KEY_NONE || args_signal) return pressed;
        if (ready <= 0 && ms >= 0 && (ms -= slice) <= 0) return KEY_NONE;
        screen now = *s;
        if (s->live && (measure(&now) || continued)) draw(d, s);
    }
}

// True: go on to the pass after the one that is shown.
static bool apply_key(screen *s, key pressed) {
    bool stopped = s->mode == STEP;
    switch (pressed) {
    case KEY_NONE: return !stopped;
    case KEY_NEXT: s->mode = STEP; return stopped;
    case KEY_BACK:
        s->mode = STEP;
        s->at -= s->at > 1;
        return false;
    case KEY_ROLLBACK: s->mode = SEEK; return true;
    case KEY_RUN: s->mode = RUN; return stopped;
    case KEY_QUIT: s->mode = QUIET; return true;
    case KEY_END:
        s->mode = RUN;
        s->keys = false;
        return true;
    }
    return true;
}

void show(const demo *d, screen *s) {
    s->at = s->ended ? s->at : s->at + 1;
    while (s->mode != QUIET && !args_signal) {
        const frame *f = frame_at(d, s->at);
        int64_t pause = f->kind == ROLLBACK_PASS ? 16 * s->delay : f->event.windows ? 5 * s->delay : s->delay;
        if (s->mode == SEEK && f->kind == ROLLBACK_PASS) s->mode = STEP;
        draw(d, s);
        if (!apply_key(s, wait_for_key(d, s, s->mode == STEP ? -1 : s->mode == SEEK ? 0 : pause))) continue;
        if (s->at < passes(d)) s->at++;
        else if (s->ended && s->mode == SEEK) s->mode = STEP;
        else return;
    }
}

void show_end(const demo *d, screen *s) {
    s->ended = true;
    if (s->mode == SEEK) s->mode = s->keys ? STEP : RUN;
    if (s->mode == STEP) show(d, s);
    stop_if_interrupted(s);
    if (s->live && s->drawn) printf("\n");
}
