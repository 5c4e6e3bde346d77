// record.c: the record of a run (see rollback.h), and its text as characters that have a look.
#define _XOPEN_SOURCE 700  // wcwidth
#include "rollback.h"

#include <locale.h>
#include <stdarg.h>
#include <wchar.h>

const look_text LOOK[] = {
#define LOOK_VALUE(name, ansi, open, close, legend) {#name, ansi, open, close, legend},
    LOOKS(LOOK_VALUE)
#undef LOOK_VALUE
};

const pass_kind PASSES[PASS_KINDS] = {
    {'.', FAST_LETTER, "fast"},     {'I', PLAIN, "INVARIANT"},          {'P', PLAIN, "prompts"},
    {'R', REPLAY_LETTER, "replay"}, {'X', ROLLBACK_LETTER, "rollback"},
};

frame *frame_at(const demo *d, int pass) { return &d->frames[pass - 1]; }
int passes(const demo *d) { return (int)arrlen(d->frames); }
int first_window(const demo *d, int pass) { return pass > 1 ? frame_at(d, pass - 1)->windows : 0; }

bool may_occur(const demo *d, int kind) {
    const bool fixed = d->how.policy.verifier == LLM42_VERIFIER_FIXED;
    const bool invariant = !fixed || d->how.policy.prefill == LLM42_PREFILL_INVARIANT;
    return kind == PROMPT_PASS ? !invariant : kind != INVARIANT_PASS || invariant;
}

look look_at(const item *i, int pass) { return i->settled && i->settled <= pass ? i->look : CANDIDATE; }

int count_settled(const lane *l, int pass, bool dropped) {
    int count = 0;
    for (int i = 0; i < (int)arrlen(l->items); i++)
        count += l->items[i].index >= 0 && l->items[i].settled == pass && (l->items[i].look == STRUCK) == dropped;
    return count;
}

const window *best_rollback(const demo *d) {
    const window *best = NULL;
    for (int i = 0; i < (int)arrlen(d->windows); i++) {
        const window *w = &d->windows[i];
        if (w->dropped && (!best || (best->injected && !w->injected))) best = w;
    }
    return best;
}

// The pass that drew candidate i of a window, up to the one that differs.
static int drawn_in(const demo *d, const window *w, int i) {
    const item *items = d->lane[w->lane].items;
    int k = (int)arrlen(items) - 1;
    while (k > 0 && (items[k].index != w->index + i || items[k].settled != w->pass || items[k].born == w->pass)) k--;
    return items[k].born;
}

const llm42_event *drawn_by(const demo *d, const window *w, int i) { return &frame_at(d, drawn_in(d, w, i))->event; }

// The replay pass before this one that verified the same request; 0: none.
static int verified_before(const demo *d, const window *w) {
    int pass = 0;
    for (int i = 0; i < (int)arrlen(d->windows) && d->windows[i].pass < w->pass; i++)
        if (d->windows[i].lane == w->lane) pass = d->windows[i].pass;
    return pass;
}

const char *no_rollback(const demo *d) {
    if (d->keep_fast_kv)
        return "No rollback in this run, which is a control: the KV of FAST passes stays, so that replay passes read "
               "it, too, and find no difference. The marked answers may then depend on the load.";
    return frame_at(d, passes(d))->stats.candidates
               ? "No rollback in this run: no candidate differed from its replay pass. "
                 "Another --requests or --window, or --inject 0.05, may show one."
               : "No rollback in this run: it had no candidates, because nothing that a deterministic request got came "
                 "from a FAST pass.";
}

// >>text ---------------------------------------------------------------------------------------------------------

void text_open(void) {
    if (!setlocale(LC_CTYPE, "C.UTF-8")) setlocale(LC_CTYPE, "en_US.UTF-8");
}

int columns_of(const cell *cells, int begin, int end) {
    int width = 0;
    for (int i = begin; i < end; i++) width += cells[i].width;
    return width;
}

int columns(const cell *cells) { return columns_of(cells, 0, (int)arrlen(cells)); }

// Characters that turn the direction of text would turn the rest of the line, too.
static bool is_unsafe(uint32_t c) {
    return c == 0x200E || c == 0x200F || (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069) || c == 0xFEFF ||
           (c & 0xFFFE) == 0xFFFE;
}

static void add_char(cell **cells, uint32_t c, look look) {
    cell new = {.look = (unsigned char)look};
    if (c == '\n') c = 0xB6;        // a pilcrow
    else if (c < ' ') c += 0x2400;  // the picture of a control character
    else if (c == 0x7F) c = 0x2421;
    int width = c < 0x7F ? 1 : wcwidth((wchar_t)c);
    bool known = width >= 0 && !is_unsafe(c);
    if (!known && c >= 0xA0 && !is_unsafe(c) && wcwidth(0xE9) < 0) known = true, width = 1;  // there is no UTF-8 locale
    if (!known) c = 0xFFFD, width = 1;
    new.width = (signed char)width;
    new.text[tok_utf8_write(c, new.text)] = 0;
    arrput(*cells, new);
}

// Bytes that are no character, half of one say, as \xE2.
static void add_text(cell **cells, look look, const char *text, size_t size) {
    for (size_t i = 0; i < size;) {
        int n = tok_utf8(text + i, size - i);
        if (n > 0) {
            add_char(cells, tok_utf8_read(text + i, n), look);
            i += (size_t)n;
            continue;
        }
        char hex[5];
        snprintf(hex, sizeof hex, "\\x%02X", (unsigned)(unsigned char)text[i++]);
        for (int k = 0; k < 4; k++) add_char(cells, (unsigned char)hex[k], look);
    }
}

void add(cell **cells, look look, const char *format, ...) {
    char text[4096];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    add_text(cells, look, text, strlen(text));
}

void add_cells(cell **cells, const cell *more, int begin, int end) {
    if (end > begin) memcpy(arraddnptr(*cells, end - begin), more + begin, sizeof(cell) * (size_t)(end - begin));
}

void add_tokens(cell **cells, const demo *d, look look, const int32_t *ids, int count) {
    char *text = NULL;
    for (int i = 0; i < count; i++) {
        if (ids[i] >= d->tok->count) continue;
        const tok_piece piece = d->tok->piece[ids[i]];  // with the space that the beginning of a text would not have
        if (!piece.special && piece.size)
            memcpy(arraddnptr(text, piece.size), d->tok->bytes + piece.at, (size_t)piece.size);
        if (piece.special && ids[i] != d->tok->bos) memcpy(arraddnptr(text, 3), "\u25a0", 3);  // the text ends
    }
    add_text(cells, look, text, arrlenu(text));
    arrfree(text);
}

void add_token(cell **cells, const demo *d, look look, int32_t id) {
    cell *own = NULL;
    add_tokens(&own, d, look, &id, 1);
    if (!columns(own)) add(&own, look, "#%d", (int)id);
    bool cut = columns(own) > TOKEN_COLUMNS;
    while (cut && columns(own) >= TOKEN_COLUMNS) (void)arrpop(own);
    if (cut) add(&own, look, "\u2026");
    add_cells(cells, own, 0, (int)arrlen(own));
    arrfree(own);
}

cell *lane_text(const demo *d, const lane *l, int pass, bool color) {
    cell *cells = NULL;
    int32_t *run = NULL;
    for (int i = 0, n = (int)arrlen(l->items); i < n && l->items[i].born <= pass; i++) {
        look look = look_at(&l->items[i], pass);
        bool brackets = !color || look == STRUCK || look == VERDICT;
        arrput(run, l->items[i].token);
        bool last = i + 1 == n || l->items[i + 1].born > pass;
        if (!last && look_at(&l->items[i + 1], pass) == look) continue;
        if (brackets) add(&cells, look, "%s", LOOK[look].open);
        add_tokens(&cells, d, look, run, (int)arrlen(run));
        if (brackets) add(&cells, look, "%s", LOOK[look].close);
        arrfree(run);
    }
    return cells;
}

// >>lines --------------------------------------------------------------------------------------------------------

void page_free(page *p) {
    for (int i = 0; i < (int)arrlen(*p); i++) arrfree((*p)[i]);
    arrfree(*p);
}

bool is_break(const cell *c) { return c->text[0] == ' ' && !c->glued; }

// Where the line that begins at `at` ends: behind a space, unless that leaves it less than half full. Text only grows
// at its end, so what has been read stays where it is.
static int line_end(const cell *cells, int at, int width) {
    int end = at, used = 0, space = 0, count = (int)arrlen(cells);
    while (end < count && (end == at || used + cells[end].width <= width)) {
        used += cells[end].width;
        if (is_break(&cells[end++]) && used > width / 2) space = end;
    }
    if (end < count && is_break(&cells[end])) return end + 1;  // it is not printed
    return end < count && space ? space : end;
}

void add_paragraph(page *p, cell *cells, int width, int hang) {
    int at = 0, count = (int)arrlen(cells);
    if (hang > width / 2) hang = width / 2;
    do {
        cell *line = NULL;
        int indent = at ? hang : 0, end = line_end(cells, at, width - indent), shown = end;
        add(&line, PLAIN, "%*s", indent, "");
        while (shown > at && cells[shown - 1].text[0] == ' ') shown--;
        add_cells(&line, cells, at, shown);
        arrput(*p, line);
        at = end;
    } while (at < count);
    arrfree(cells);
}

void move_lines(page *to, page *from, int first) {
    for (int i = 0; i < first; i++) arrfree((*from)[i]);
    for (int i = first; i < (int)arrlen(*from); i++) arrput(*to, (*from)[i]);
    arrfree(*from);
}

// >>window -------------------------------------------------------------------------------------------------------

// A token of a column. The dot says that a word begins: tokens are parts of words. Two tokens of one text are told
// apart by their numbers.
static cell *column_text(const demo *d, look look, int32_t id, int32_t other) {
    cell *text[2] = {NULL};
    for (int k = 0; k < 2; k++) {
        add_token(&text[k], d, look, k ? other : id);
        const int n = (int)arrlen(text[k]);
        if (n > 1 && text[k][0].text[0] == ' ' && text[k][1].text[0] != ' ') strcpy(text[k][0].text, WORD_BEGINS);
    }
    bool same = id != other && arrlen(text[0]) == arrlen(text[1]);
    for (int i = 0; same && i < (int)arrlen(text[0]); i++) same = !strcmp(text[0][i].text, text[1][i].text);
    arrfree(text[1]);
    if (!same) return text[0];
    arrfree(text[0]);
    add(&text[0], look, "#%d", (int)id);
    return text[0];
}

static column column_of(const demo *d, const window *w, int i) {
    int candidates = (int)arrlen(w->candidate), outputs = (int)arrlen(w->output);
    column c = {.mark = ' '};
    look old = i < w->agreed ? COMMITTED : w->dropped ? STRUCK : CANDIDATE;
    look new = i < w->agreed ? COMMITTED : i == w->agreed ? VERDICT : FAINT;
    int32_t candidate = i < candidates ? w->candidate[i] : w->output[i];
    int32_t output = i < outputs ? w->output[i] : w->candidate[i];
    if (i < candidates) c.candidate = column_text(d, old, candidate, output), c.taken = w->taken[i];
    if (i < outputs) c.output = column_text(d, new, output, candidate);
    if (i < w->agreed) c.mark = '=';
    else if (i == w->agreed && i < outputs) c.mark = i < candidates ? 'X' : '+';
    else if (w->dropped && i < candidates) c.mark = '.';
    c.width = columns(c.candidate) > columns(c.output) ? columns(c.candidate) : columns(c.output);
    return c;
}

column *columns_of_window(const demo *d, const window *w) {
    int candidates = (int)arrlen(w->candidate), outputs = (int)arrlen(w->output);
    column *all = NULL;
    for (int i = 0; i < candidates || i < outputs; i++) {
        column c = column_of(d, w, i);
        arrput(all, c);
    }
    return all;
}

void columns_free(column *all) {
    for (int i = 0; i < (int)arrlen(all); i++) {
        arrfree(all[i].candidate);
        arrfree(all[i].output);
    }
    arrfree(all);
}

// From cell `first` on no line ends.
static void glue(cell *cells, int first) {
    for (int i = first; i < (int)arrlen(cells); i++) cells[i].glued = true;
}

static void add_quoted(cell **text, const demo *d, look look, int32_t id) {
    int first = (int)arrlen(*text);
    add(text, PLAIN, "'");
    add_token(text, d, look, id);
    add(text, PLAIN, "'");
    glue(*text, first);
}

cell *window_outcome(const demo *d, const window *w) {
    cell *text = NULL;
    add(&text, NAME, "%s", d->lane[w->lane].name);
    add(&text, STRONG, ", pass %d:", w->pass);
    add(&text, PLAIN, " %d agree%s (=)", w->agreed, w->agreed == 1 ? "s" : "");
    if (!w->dropped && w->agreed == (int)arrlen(w->output)) return text;  // and no row was left for a token more
    add(&text, PLAIN, ", ");
    if (w->dropped) add_quoted(&text, d, STRUCK, w->candidate[w->agreed]);
    if (w->dropped) add(&text, PLAIN, "%s differs (X):", w->injected ? " (injected)" : "");
    else add(&text, PLAIN, "the replay adds a token (+):");
    add(&text, PLAIN, " commit ");
    add_quoted(&text, d, VERDICT, w->output[w->agreed]);
    if (w->dropped) add(&text, PLAIN, ", ");
    int drop = (int)arrlen(text);
    if (w->dropped) add(&text, PLAIN, "drop %d", w->dropped);
    glue(text, drop);
    return text;
}

static void add_preference(cell **text, const demo *d, const window *w, float by) {
    int32_t one = w->candidate[w->agreed], other = w->output[w->agreed];
    double size = by < 0 ? -(double)by : (double)by;
    add(text, PLAIN, by == 0 ? " ranked " : " preferred ");
    add_quoted(text, d, PLAIN, by < 0 ? other : one);
    if (by == 0) {
        add(text, PLAIN, " and ");
        add_quoted(text, d, PLAIN, other);
        add(text, PLAIN, " equal");
    } else add(text, PLAIN, " by %.4g", size);
}

// Most candidates that are dropped come from FAST passes.
static bool is_exception(const demo *d, const window *w) {
    return !w->injected && d->how.policy.verifier != LLM42_VERIFIER_FIXED &&
           drawn_by(d, w, w->agreed)->schedule == LLM42_SCHEDULE_INVARIANT;
}

cell *rollback_reason(const demo *d, const window *w, bool in_full) {
    cell *text = NULL;
    add(&text, PLAIN, "Log-probabilities: ");
    if (w->injected) add(&text, PLAIN, "the candidate was made wrong on purpose; ");
    else {
        const bool fast = drawn_by(d, w, w->agreed)->schedule == LLM42_SCHEDULE_FAST;
        add(&text, PLAIN, fast ? "the fast pass" : "the INVARIANT pass that drew it");
        add_preference(&text, d, w, w->fast);
        if (in_full && w->step > 0 && w->fast > 0) {
            const double steps = (double)w->fast / (double)w->step;
            add(&text, PLAIN, ", which is %.2g step%s of bf16 between logits of this size", steps,
                steps < 1.5 ? "" : "s");
        }
        add(&text, PLAIN, "; ");
    }
    add(&text, PLAIN, "the replay");
    add_preference(&text, d, w, w->replay);
    add(&text, PLAIN, ".");
    if (in_full && ((w->fast == 0 && !w->injected) || w->replay == 0))
        add(&text, PLAIN, " (Of two equal ones, the lower token id is taken.)");
    if (is_exception(d, w))
        add(&text, PLAIN,
            " This is the exception: the candidate comes from an INVARIANT pass, whose sums are those of the replay, "
            "but "
            "which read keys and values (KV) that FAST passes had written.");
    return text;
}

cell *state_text(const window *w, bool in_full) {
    cell *text = NULL;
    bool none = true;
    for (int i = 0; i < (int)arrlen(w->taken); i++) none &= !w->taken[i];
    if (in_full)
        add(&text, PLAIN, "In state: how often the state of the recurrent layers has taken in each candidate%s. ",
            none ? "" : ", by a fast pass and again by the replay, also if it is dropped");
    if (none)
        add(&text, PLAIN, "The state has taken in the %d tokens before the candidates, which are final.", w->state);
    if (none && in_full)
        add(&text, PLAIN, " The candidates ran on a copy of it, so that the rollback has nothing to undo.");
    if (!none) add(&text, PLAIN, "A state has no place for each token, so that none can be taken out of it again.");
    return text;
}

cell *rows_text(const demo *d, const window *w) {
    cell *text = NULL;
    const int n = w->agreed + 1, replayed = verified_before(d, w);
    bool mixed = false;
    for (int i = 0; i < n; i++) mixed |= drawn_by(d, w, i)->schedule != LLM42_SCHEDULE_FAST;
    add(&text, PLAIN, "The %spass%s that drew ", mixed ? "" : "fast ", n == 1 ? "" : "es");
    if (n > 1) add(&text, PLAIN, "the candidates up to ");
    add_quoted(&text, d, PLAIN, w->candidate[w->agreed]);
    for (int i = 0; i < n; i++) {
        const llm42_event *e = drawn_by(d, w, i);
        add(&text, PLAIN, "%s%d", !i ? " had " : i + 1 == n ? " and " : ", ", e->n);
        if (mixed) add(&text, PLAIN, e->schedule == LLM42_SCHEDULE_FAST ? " (FAST)" : " (INVARIANT)");
    }
    add(&text, PLAIN, " row%s", n == 1 && drawn_by(d, w, 0)->n == 1 ? "" : "s");
    if (drawn_by(d, w, w->agreed)->schedule == LLM42_SCHEDULE_FAST)
        add(&text, PLAIN, "; the replay sums the same rows in another order.");
    else if (d->how.policy.verifier == LLM42_VERIFIER_FIXED)
        add(&text, PLAIN, "; the replay sums in the FIXED order, which is another one than INVARIANT.");
    else add(&text, PLAIN, ".");
    if (drawn_in(d, w, 0) > replayed)
        add(&text, PLAIN, " This command shows the first sum that differs%s:",
            d->how.policy.verifier == LLM42_VERIFIER_FIXED
                ? ", but it runs the tokens before in INVARIANT passes, and here some of these were FIXED"
                : "");
    else
        add(&text, PLAIN,
            " No command of build/diff repeats this, because pass %d, a replay, came between these passes and "
            "overwrote KV that the earlier ones had read.",
            replayed);
    return text;
}

cell *diff_command(const demo *d, const window *w) {
    cell *text = NULL;
    const lane *l = &d->lane[w->lane];
    const int before = (int)arrlen(l->prompt) + w->index - 1;  // tokens whose keys and values were final
    bool mixed = false;
    if (drawn_in(d, w, 0) <= verified_before(d, w)) return NULL;
    for (int i = 0; i <= w->agreed; i++) mixed |= drawn_by(d, w, i)->schedule != LLM42_SCHEDULE_FAST;
    add(&text, PLAIN, "build/diff --model %s --prompt %d -a schedule=", d->model_path, before);
    for (int i = 0; i <= (mixed ? w->agreed : 0); i++)
        add(&text, PLAIN, "%s%s", i ? "+" : "", llm42_schedule_name(drawn_by(d, w, i)->schedule));
    for (int i = 0; i <= w->agreed; i++) add(&text, PLAIN, i ? "+%d" : ",rows=%d", drawn_by(d, w, i)->n);
    if (d->how.policy.verifier == LLM42_VERIFIER_FIXED)
        add(&text, PLAIN, " -b schedule=fixed,rows=%d --explain --ids ", (int)(d->window * d->group));
    else add(&text, PLAIN, " -b schedule=invariant,rows=%d --explain --ids ", w->agreed + 1);
    for (int i = 0; i < (int)arrlen(l->prompt); i++) add(&text, PLAIN, i ? ",%d" : "%d", (int)l->prompt[i]);
    for (int i = 0; i < (int)arrlen(l->items); i++) {
        const item *it = &l->items[i];
        const bool kept = it->look != STRUCK && it->index >= 0 && it->index < w->index + w->agreed;
        if (kept) add(&text, PLAIN, ",%d", (int)it->token);
    }
    return text;
}

// >>counts -------------------------------------------------------------------------------------------------------

// What became of all candidates, and where all committed tokens came from: the parts add up.
typedef struct shares {
    int held, differed, behind, lost;  // candidates
    int own, at_once;                  // committed tokens, beside `held`, and one for each that differed
} shares;

static shares count_shares(const demo *d) {
    const llm42_stats *n = &frame_at(d, passes(d))->stats;
    shares s = {0};
    for (int i = 0; i < (int)arrlen(d->windows); i++) {
        const window *w = &d->windows[i];
        s.held += w->agreed;
        if (w->dropped) s.differed++, s.behind += w->dropped - 1;
        else s.own += (int)arrlen(w->output) > w->agreed;
    }
    s.lost = (int)n->candidates - s.held - s.differed - s.behind;
    s.at_once = (int)n->deterministic_tokens - s.held - s.differed - s.own;
    return s;
}

typedef struct part {
    int count;
    const char *what;
} part;

// "ALL: NUMBER WHAT, NUMBER WHAT, ...", without parts of 0.
static cell *parts_text(int all, const char *unit, const part *parts, int n) {
    cell *text = NULL;
    const char *between = ": ";
    add(&text, PLAIN, "%d%s", all, unit);
    for (int i = 0; i < n; i++) {
        if (!parts[i].count) continue;
        add(&text, PLAIN, "%s%d %s", between, parts[i].count, parts[i].what);
        between = ", ";
    }
    return text;
}

cell *candidates_text(const demo *d) {
    const shares n = count_shares(d);
    const part parts[] = {{n.held, "held"},
                          {n.differed, "differed"},
                          {n.behind, "stood behind one that differed"},
                          {n.lost, "went when their request lost its pages"}};
    return parts_text((int)frame_at(d, passes(d))->stats.candidates, "", parts, 4);
}

cell *committed_text(const demo *d) {
    const shares n = count_shares(d);
    const bool fixed = d->how.policy.verifier == LLM42_VERIFIER_FIXED;
    const int all = (int)frame_at(d, passes(d))->stats.deterministic_tokens;
    const part parts[] = {
        {n.held, n.held == 1 ? "candidate that held" : "candidates that held"},
        {n.differed, n.differed == 1 ? "in place of the one that differed" : "in place of those that differed"},
        {n.own, "of the verifier's own behind those that held"},
        {n.at_once, fixed ? "from prompts, final at once" : "from INVARIANT passes, final at once"}};
    return parts_text(all, all == 1 ? " token" : " tokens", parts, 4);
}

// >>cost ---------------------------------------------------------------------------------------------------------

static int compare_seconds(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

cost cost_of_passes(llm42_event *events) {
    cost c = {.passes = (int)arrlen(events)};
    double *seconds = NULL;
    if (!c.passes) return c;
    arrsetlen(seconds, (size_t)c.passes);
    for (int i = 0; i < c.passes; i++) c.rows += events[i].n, seconds[i] = events[i].time - events[i].begin;
    qsort(seconds, (size_t)c.passes, sizeof *seconds, compare_seconds);
    c.median = (seconds[(c.passes - 1) / 2] + seconds[c.passes / 2]) / 2;
    c.total = c.passes * c.median;
    arrfree(seconds);
    arrfree(events);
    return c;
}

cost cost_of_kinds(const demo *d, int first, int last) {
    llm42_event *events = NULL;
    for (int i = 0; i < passes(d); i++)
        if (d->frames[i].kind >= first && d->frames[i].kind <= last) arrput(events, d->frames[i].event);
    return cost_of_passes(events);
}

int costs_of(const demo *d, const proof *p, cost_line to[COSTS]) {
    cost_line lines[COSTS] = {
        {"FAST passes", cost_of_kinds(d, FAST_PASS, FAST_PASS)},
        {"replay passes", cost_of_kinds(d, REPLAY_PASS, ROLLBACK_PASS)},
        {"other INVARIANT passes", cost_of_kinds(d, INVARIANT_PASS, INVARIANT_PASS)},
        {"deterministic prompts", cost_of_kinds(d, PROMPT_PASS, PROMPT_PASS)},
        {"this run", {0}},
        {"all FAST: answers may drift", p->all_fast},
        {"all INVARIANT: none drifts", p->all_invariant},
    };
    cost *run = &lines[4].cost;
    int count = 0;
    for (int i = 0; i < 4; i++) {
        run->passes += lines[i].cost.passes, run->rows += lines[i].cost.rows;
        run->total += lines[i].cost.total;
    }
    for (int i = 0; i < COSTS; i++)
        if (lines[i].cost.passes) to[count++] = lines[i];
    return count;
}

bool controlled(const demo *d) { return d->keep_fast_kv || d->keep_fast_state; }
bool verifies(const demo *d) { return frame_at(d, passes(d))->stats.verifications > 0; }

cell *pays_text(const demo *d, const proof *p) {
    const int fast = cost_of_kinds(d, FAST_PASS, FAST_PASS).passes, rest = passes(d) - fast;
    cell *text = NULL;
    add(&text, PLAIN, "This run has %d FAST passes and %d others, and without verification it has %d, all INVARIANT. ",
        fast, rest, p->all_invariant.passes);
    if (p->all_invariant.passes > rest)
        add(&text, PLAIN,
            "So verification wins where an INVARIANT pass takes more than %.2f times as long as a FAST one, and loses "
            "elsewhere.",
            (double)fast / (p->all_invariant.passes - rest));
    else add(&text, PLAIN, "So here verification never wins: it needs more requests in a pass.");
    return text;
}

cell *price_text(const demo *d) {
    const int again = (int)frame_at(d, passes(d))->stats.recomputed;
    cell *text = NULL;
    add(&text, PLAIN,
        "Verification costs the %d rows of the replay passes, and %d row%s that computed tokens again behind a "
        "candidate that differed. It buys FAST passes for all requests, of which only the deterministic ones are "
        "verified. So it pays where FAST passes take much less time than INVARIANT ones. Where they take nearly as "
        "much, as on one H200, running all passes INVARIANT costs less, and --preset best chooses so, pass by pass.",
        cost_of_kinds(d, REPLAY_PASS, ROLLBACK_PASS).rows, again, args_plural(again));
    return text;
}
