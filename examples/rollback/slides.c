// slides.c: the whole run as a web page or as a picture for a slide. Both are single files without
// scripts, fonts or pictures from elsewhere. Their bytes depend on the run and the options alone.
//
// The picture has a light ground of its own, so that it can be read on a dark slide too. It shows every pass, a line of
// each deterministic request, and one rollback. The page has all of them, and follows the reader's choice of a light or
// a dark screen.
#define _POSIX_C_SOURCE 200809L
#include "rollback.h"

enum { SVG_WIDTH = 1600, SVG_MARGIN = 40, SVG_TEXT = 26, SVG_SMALL = 22, SVG_LANE = 28 };

// Colours of text by its look, and of what is drawn: on a light and on a dark ground.
static const struct {
    const char *name, *light, *dark, *more;
} STYLE[] = {
    {"PROMPT", "#5c5c5c", "#ababab", ""},
    {"ORDINARY", "#333333", "#dddddd", ""},
    {"CANDIDATE", "#8a5200", "#ffc266", "text-decoration:underline"},
    {"COMMITTED", "#00569c", "#6cbcff", "font-weight:bold"},
    {"STRUCK", "#b93a00", "#ff9468", "text-decoration:line-through"},
    {"VERDICT", "#ffffff", "#00251a", "font-weight:bold"},
    {"PLAIN", "#1a1a1a", "#f2f2f2", ""},
    {"STRONG", "#1a1a1a", "#f2f2f2", "font-weight:bold"},
    {"FAINT", "#666666", "#a3a3a3", ""},
    {"NAME", "#00569c", "#6cbcff", "font-weight:bold"},
    {"ROLLBACK_LETTER", "#b93a00", "#ff9468", "font-weight:bold"},
    {"REPLAY_LETTER", "#00569c", "#6cbcff", "font-weight:bold"},
    {"own", "#00694d", "#3ddbaa", ""},  // behind the verifier's own token
    {"ground", "#ffffff", "#15181d", ""},
    // In the grid: a token that is final at once, a candidate that held, one that was dropped, a verification in which
    // all agreed, one with a rollback, and a replay pass.
    {"token", "#808080", "#8f8f8f", ""},
    {"candidate", "#e69f00", "#e69f00", ""},
    {"wrong", "none", "none", "stroke-width:2"},
    {"commit", "#0072b2", "#56b4e9", ""},
    {"rollback", "#d55e00", "#ff7a33", ""},
    {"band", "#e8f1f8", "#22303c", ""},
};

static void write_styles(FILE *f, bool dark) {
    for (size_t i = 0; i < sizeof STYLE / sizeof *STYLE; i++) {
        const char *color = dark ? STYLE[i].dark : STYLE[i].light;
        fprintf(f, ".%s{fill:%s;color:%s;%s}\n", STYLE[i].name, color, color, STYLE[i].more);
    }
    fprintf(f, ".wrong{stroke:%s}\n.cross{stroke:%s;stroke-width:2.5}\n", dark ? "#ff9468" : "#b93a00",
            dark ? "#000000" : "#ffffff");
}

// A browser would break a line behind the space of a quoted token.
static void write_cells(FILE *f, const cell *cells, int begin, int end, bool html) {
    for (int i = begin; i < end; i++) {
        const char *c = html && cells[i].glued && cells[i].text[0] == ' ' ? "\u00a0" : cells[i].text;
        const char *escaped = *c == '&' ? "&amp;" : *c == '<' ? "&lt;" : *c == '>' ? "&gt;" : *c == '"' ? "&quot;" : c;
        fputs(escaped, f);
    }
}

// Text in stretches of one look, each an element of that class. In SVG (x >= 0) each starts where its column does.
static void write_runs(FILE *f, const cell *cells, double x, double column) {
    for (int i = 0, end, count = (int)arrlen(cells); i < count; i = end) {
        for (end = i; end < count && cells[end].look == cells[i].look;) end++;
        const char *name = LOOK[cells[i].look].name;
        if (x >= 0) fprintf(f, "<tspan class=\"%s\" x=\"%.1f\">", name, x + column * columns_of(cells, 0, i));
        else fprintf(f, "<span class=\"%s\">", name);
        write_cells(f, cells, i, end, x < 0);
        fputs(x >= 0 ? "</tspan>" : "</span>", f);
    }
}

// >>grid ---------------------------------------------------------------------------------------------------------

// A mark for each thing that can happen to a request in a pass. Marks differ by shape, not by colour alone.
static void write_mark(FILE *f, const char *name, double x, double y, double wide) {
    bool rollback = !strcmp(name, "rollback");
    double r = wide < 14 ? wide * 0.4 : 5.6, w = wide < 20 ? wide * 0.86 : 17, arm;
    if (rollback && w < 14) w = wide < 7 ? 2 * wide : 14;  // few and important: they may overlap others
    arm = w * 0.3;
    if (rollback || !strcmp(name, "commit") || !strcmp(name, "band"))
        fprintf(f, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"22\" rx=\"2\"/>\n", name,
                x - w / 2, y - 11, w);
    else if (!strcmp(name, "token"))
        fprintf(f, "<rect class=\"token\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", x - r / 2,
                y - r / 2, r, r);
    else
        fprintf(f, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>\n", name, x, y,
                strcmp(name, "wrong") ? r
                : r > 1.5             ? r - 0.5
                                      : 1);
    if (rollback && arm >= 3)
        fprintf(f, "<path class=\"cross\" d=\"M%.1f %.1fl%.1f 12m0 -12l%.1f 12\"/>\n", x - arm, y - 6, 2 * arm,
                -2 * arm);
}

static void write_text(FILE *f, cell *text, double x, double y, int size) {
    double column = 0.602 * size;
    for (int i = 0, end, count = (int)arrlen(text); i < count; i = end) {
        for (end = i; end < count && text[end].look == text[i].look;) end++;
        if (text[i].look != VERDICT) continue;
        fprintf(f, "<rect class=\"own\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"3\"/>\n",
                x + column * columns_of(text, 0, i), y - 0.9 * size, column * columns_of(text, i, end), 1.2 * size);
    }
    fprintf(f, "<text xml:space=\"preserve\" y=\"%.1f\" font-size=\"%d\">", y, size);
    write_runs(f, text, x, column);
    fprintf(f, "</text>\n");
    arrfree(text);
}

// What each pass did for a request: decoded a token, or verified its candidates.
static void write_lane(FILE *f, const demo *d, int k, double x, double y, double wide) {
    const lane *l = &d->lane[k];
    for (int i = 0; i < (int)arrlen(l->items); i++) {
        const item *it = &l->items[i];
        bool prompt = it->index < 0, own = l->deterministic && frame_at(d, it->born)->event.windows;
        const char *name = it->settled == it->born ? "token" : it->look == STRUCK ? "wrong" : "candidate";
        if (!prompt && !own) write_mark(f, name, x + wide * (it->born - 0.5), y, wide);
    }
    for (int i = 0; i < (int)arrlen(d->windows); i++) {
        const window *w = &d->windows[i];
        if (w->lane == k) write_mark(f, w->dropped ? "rollback" : "commit", x + wide * (w->pass - 0.5), y, wide);
    }
}
enum { LEGEND_ENTRIES = 6 };

static const char *const LEGEND[LEGEND_ENTRIES][2] = {
    {"token", "token, final at once"},   {"candidate", "candidate that held"},
    {"wrong", "candidate, dropped"},     {"commit", "window, all agreed"},
    {"rollback", "window, rolled back"}, {"band", "replay pass (R, X: with a rollback)"},
};

// The letter of passes that verify nothing.
static const char *legend_letter(const demo *d) {
    return may_occur(d, INVARIANT_PASS) ? "I: INVARIANT pass without windows" : "P: pass of deterministic prompts";
}

// Returns the height that lines behind the first one take.
static double write_legend(FILE *f, const demo *d, double left, double y) {
    double x = left, first = y;
    for (int i = 0; i <= LEGEND_ENTRIES; i++) {
        const char *mark = i < LEGEND_ENTRIES ? LEGEND[i][0] : NULL;
        cell *text = NULL;
        add(&text, PLAIN, "%s", mark ? LEGEND[i][1] : legend_letter(d));
        const double wide = (mark ? 22 : 0) + 0.602 * 20 * columns(text);
        if (x + wide > SVG_WIDTH - SVG_MARGIN) x = left, y += 30;
        if (mark) write_mark(f, mark, x + 8, y - 7, 18);
        write_text(f, text, mark ? x + 22 : x, y, 20);
        x += wide + 26;
    }
    return y - first;
}

static void write_number(FILE *f, double x, double y, look look, const char *text) {
    fprintf(f, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" font-size=\"18\" text-anchor=\"middle\">%s</text>\n",
            LOOK[look].name, x, y, text);
}

// Passes from left to right, requests from top to bottom. Returns the height.
static double write_grid(FILE *f, const demo *d, double x, double y, double width) {
    double left = x + 56, wide = (width - 56) / passes(d), height = SVG_LANE * (double)d->requests;
    int step = 1;
    if (wide > 26) wide = 26;
    for (int i = 0; wide * step < 46; i++) step = step * (i % 3 == 1 ? 5 : 4) / 2;  // 1, 2, 5, 10, 20 ...
    for (int pass = 1; pass <= passes(d); pass++) {
        int kind = frame_at(d, pass)->kind;
        double at = left + wide * (pass - 1), middle = at + wide / 2;
        char text[16];
        if (kind == REPLAY_PASS || kind == ROLLBACK_PASS)
            fprintf(f, "<rect class=\"band\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", at, y + 24,
                    wide, height);
        snprintf(text, sizeof text, "%c", PASSES[kind].letter);
        if (kind != FAST_PASS && wide >= 9) write_number(f, middle, y + 18, PASSES[kind].look, text);
        snprintf(text, sizeof text, "%d", pass);
        if (pass == 1 || pass % step == 0) write_number(f, middle, y + height + 46, FAINT, text);
    }
    for (int k = 0; k < d->requests; k++) {
        const lane *l = &d->lane[k];
        double middle = y + 24 + SVG_LANE * (k + 0.5);
        cell *name = NULL;
        add(&name, l->deterministic ? NAME : PLAIN, "%s", l->name);
        write_text(f, name, x, middle + 8, SVG_SMALL);
        write_lane(f, d, k, left, middle, wide);
    }
    return height + 58;
}

// >>words --------------------------------------------------------------------------------------------------------

static cell *settings_text(const demo *d) {
    cell *text = NULL;
    add(&text, PLAIN, "%s: %d request%s, %d deterministic (D), ", d->model_path, (int)d->requests,
        args_plural(d->requests), (int)(d->requests + 1) / 2);
    cell *policies = policies_text(d);
    add_cells(&text, policies, 0, (int)arrlen(policies));
    arrfree(policies);
    if (d->inject > 0) add(&text, PLAIN, ", %g of the candidates made wrong on purpose", d->inject);
    return text;
}

static cell *counts_text(const demo *d) {
    const llm42_stats *n = &frame_at(d, passes(d))->stats;
    cell *text = NULL;
    add(&text, PLAIN, "%d pass%s, %d window%s verified, ", passes(d), passes(d) == 1 ? "" : "es", (int)n->verifications,
        args_plural(n->verifications));
    add(&text, STRONG, "%d rollback%s", (int)n->rollbacks, args_plural(n->rollbacks));
    add(&text, PLAIN, ", %d token%s recomputed of %d returned.", (int)n->recomputed, args_plural(n->recomputed),
        (int)n->returned_tokens);
    return text;
}

static cell *proof_text(const demo *d, const proof *p) {
    cell *text = NULL;
    if (p->same == p->count)
        add(&text, STRONG,
            "Served alone, %d of %d deterministic request%s gave the same %d tokens and log-probabilities, "
            "bit for bit.",
            p->same, p->count, args_plural(p->count), p->returned);
    else
        add(&text, STRONG,
            "Served alone, only %d of %d deterministic request%s gave the same answer: %d of %d tokens, "
            "and %d log-probabilities to the bit.",
            p->same, p->count, args_plural(p->count), p->tokens, p->returned, p->bits);
    add(&text, PLAIN, " Not marked deterministic, %d of %d request%s gave another answer alone.", p->drifted,
        (int)d->requests, args_plural(d->requests));
    return text;
}

// >>svg ----------------------------------------------------------------------------------------------------------

static double write_lines(FILE *f, page *lines, double y, int size) {
    for (int i = 0; i < (int)arrlen(*lines); i++) {
        y += 1.4 * size;
        write_text(f, (*lines)[i], SVG_MARGIN, y, size);
    }
    arrfree(*lines);
    return y;
}

static double write_paragraph(FILE *f, cell *text, double y, int size) {
    page lines = NULL;
    add_paragraph(&lines, text, (int)((SVG_WIDTH - 2 * SVG_MARGIN) / (0.602 * size)), 0);
    return write_lines(f, &lines, y, size);
}

// One line of a request: the stretch around its first rollback, or its beginning.
static cell *excerpt(const demo *d, const lane *l, int width) {
    cell *all = lane_text(d, l, passes(d), true), *text = NULL;
    int count = (int)arrlen(all), struck = 0, first = 0, last;
    while (struck < count && all[struck].look != STRUCK) struck++;
    if (struck < count && columns_of(all, 0, struck) > width / 2) {
        first = struck;
        while (columns_of(all, first, struck) < width / 3) first--;
        while (first < struck && all[first++].text[0] != ' ') continue;
    }
    add(&text, NAME, "%-4s", l->name);
    if (first) add(&text, FAINT, "\u2026 ");
    for (last = first; last < count && columns(text) + columns_of(all, first, last + 1) < width - 1;) last++;
    add_cells(&text, all, first, last);
    if (last < count) add(&text, FAINT, "\u2026");
    arrfree(all);
    return text;
}

// The body of the picture below its title. Returns where it ends.
static double write_picture(FILE *f, const demo *d, const proof *p) {
    const window *w = best_rollback(d);
    const llm42_stats *n = &frame_at(d, passes(d))->stats;
    int text_width = (int)((SVG_WIDTH - 2 * SVG_MARGIN) / (0.602 * SVG_TEXT));
    page lines = NULL;
    cell *note = NULL;
    double y = write_paragraph(f, settings_text(d), 72, SVG_SMALL);
    y += 24 + write_grid(f, d, SVG_MARGIN, y + 24, SVG_WIDTH - 2 * SVG_MARGIN);
    y += 38 + write_legend(f, d, SVG_MARGIN, y + 26);
    for (int k = 0; k < d->requests; k += 2) arrput(lines, excerpt(d, &d->lane[k], text_width));
    y = write_lines(f, &lines, y + 4, SVG_TEXT);
    if (w) add_window(&lines, d, w, text_width, INT32_MAX);
    else add(&note, PLAIN, "%s", no_rollback(d));
    if (w) y = write_lines(f, &lines, y + 26, SVG_TEXT);
    else y = write_paragraph(f, note, y + 26, SVG_TEXT);
    note = NULL;
    add(&note, FAINT, "One of %d rollbacks.", (int)n->rollbacks);
    if (n->rollbacks > 1) y = write_paragraph(f, note, y, SVG_SMALL);
    else arrfree(note);
    return write_paragraph(f, proof_text(d, p), y + 26, SVG_TEXT);
}
static const char SVG_FONT[] = "font-family=\"'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace\"";

// The height is known only when all is drawn, so it is drawn twice, first into nothing.
static void write_svg(FILE *f, const demo *d, const proof *p) {
    FILE *nothing = fopen("/dev/null", "w");
    double height = nothing ? write_picture(nothing, d, p) + SVG_MARGIN : 2 * SVG_WIDTH;
    cell *title = NULL;
    if (nothing) fclose(nothing);
    fprintf(f, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Without a width and a height it is as large as its window.
    fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" %s>\n", SVG_WIDTH, height, SVG_FONT);
    fprintf(f, "<title>llm42: decode, verify, roll back</title>\n<style>\n");
    write_styles(f, false);
    fprintf(f, "</style>\n<rect class=\"ground\" width=\"%d\" height=\"%.0f\"/>\n", SVG_WIDTH, height);
    add(&title, STRONG, "Decode, verify, roll back");
    write_text(f, title, SVG_MARGIN, 64, 42);
    write_picture(f, d, p);
    fprintf(f, "</svg>\n");
}

// >>html ---------------------------------------------------------------------------------------------------------

static void write_element(FILE *f, const char *element, cell *text) {
    fprintf(f, "<%s>", element);
    write_runs(f, text, -1, 0);
    fprintf(f, "</%.*s>\n", (int)strcspn(element, " "), element);
    arrfree(text);
}

// A browser breaks lines behind hyphens too, and inside of a long list. Here lines end behind a space or a comma.
static void write_command(FILE *f, cell *text) {
    fprintf(f, "<pre>");
    for (int i = 0, begin = 1; i < (int)arrlen(text); i++) {
        if (begin) fprintf(f, "<span>");
        write_cells(f, text, i, i + 1, true);
        begin = is_break(&text[i]) || text[i].text[0] == ',';
        if (begin) fprintf(f, "</span><wbr/>");
    }
    fprintf(f, "</span></pre>\n");
    arrfree(text);
}

// Columns stand side by side; a narrow page scrolls them.
static void write_window(FILE *f, const demo *d, const window *w) {
    column *all = columns_of_window(d, w);
    fprintf(f, "<section>\n");
    write_element(f, "h3", window_outcome(d, w));
    fprintf(f, "<div class=\"window\"><div class=\"column\"><b>candidate</b><b>&#160;</b><b>replay</b></div>\n");
    for (int i = 0; i < (int)arrlen(all); i++) {
        fprintf(f, "<div class=\"column\"><span>");
        write_runs(f, all[i].candidate, -1, 0);
        fprintf(f, "&#160;</span><b%s>%c</b><span>", all[i].mark == 'X' ? " class=\"ROLLBACK_LETTER\"" : "",
                all[i].mark);
        write_runs(f, all[i].output, -1, 0);
        fprintf(f, "&#160;</span></div>\n");
    }
    fprintf(f, "</div>\n");
    write_element(f, "p", rollback_reason(d, w, true));
    if (d->model->config.recurrent_layers && w->dropped) write_element(f, "p", state_text(w, false));
    if (!w->injected && !controlled(d)) {
        cell *command = diff_command(d, w);
        write_element(f, "p", rows_text(d, w));
        if (command) write_command(f, command);
    }
    fprintf(f, "</section>\n");
    columns_free(all);
}

static void write_html_head(FILE *f) {
    fprintf(f, "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n"
               "<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
               "<title>llm42: decode, verify, roll back</title>\n<style>\n"
               ":root{color-scheme:light dark;--ground:#fff;--shade:#0006}\n"
               "body{margin:2rem auto;padding:0 1.5rem;max-width:80rem;font:1.35rem/1.5 system-ui,sans-serif;"
               "background:#fff;color:#1a1a1a}\n"
               "h1{font-size:2.6rem;margin:0}\nh2{font-size:1.9rem;margin:2.5rem 0 .5rem}\n"
               "h3{font-size:1.4rem;font-weight:normal;margin:1.5rem 0 .5rem}\n"
               ".grid,.window{overflow-x:auto;background:linear-gradient(90deg,var(--ground) 1.5rem,transparent),"
               "linear-gradient(270deg,var(--ground) 1.5rem,transparent) 100%% 0,"
               "linear-gradient(90deg,var(--shade),transparent),"
               "linear-gradient(270deg,var(--shade),transparent) 100%% 0;"
               "background-size:3rem 100%%,3rem 100%%,1.5rem 100%%,1.5rem 100%%;background-repeat:no-repeat;"
               "background-attachment:local,local,scroll,scroll}\n"
               ".wide{display:none}\nsvg{width:100%%;min-width:56rem;height:auto}\n"
               "svg,.lane,.window{font-family:ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace}\n"
               ".lane{display:flex;gap:1.2rem;margin:.7rem 0}\n.lane p{margin:0;white-space:pre-wrap;"
               "overflow-wrap:anywhere}\n"
               ".window{display:flex;gap:1.2rem;font-size:1.7rem;padding-bottom:.4rem}\n"
               ".legend{display:flex;flex-wrap:wrap;gap:.2rem 1.6rem;margin:.5rem 0}\n"
               ".legend svg{width:1.2em;min-width:0;height:1.4em;vertical-align:middle}\n"
               "pre{white-space:normal;overflow-x:auto;font-size:1.05rem}\npre span{white-space:pre}\n"
               "table{border-collapse:collapse}\nth,td{padding:.15rem 1.2rem .15rem 0;text-align:right}\n"
               "th:first-child,td:first-child{text-align:left}\n"
               "dt{font-weight:bold;margin-top:1rem}\ndd{margin:0}\n"
               "@media (max-width:59rem){\n.wide{display:block}\n}\n"
               "@media (max-width:40rem){\nbody{font-size:1.1rem;margin:1rem auto;padding:0 1rem}\n"
               "h1{font-size:1.9rem}\nh2{font-size:1.5rem}\nh3{font-size:1.15rem}\n.window{font-size:1.3rem}\n}\n"
               ".column>*{display:block;white-space:pre}\n"
               ".VERDICT{background:#00694d;border-radius:.2em}\n"
               "section{break-inside:avoid}\n");
    write_styles(f, false);
    fprintf(f, "@media "
               "(prefers-color-scheme:dark){\n:root{--ground:#15181d;--shade:#fff6}\nbody{background:#15181d;color:#"
               "f2f2f2}\n");
    write_styles(f, true);
    fprintf(f, ".VERDICT{background:#3ddbaa}\n}\n</style>\n</head>\n");
}

// Why there are rollbacks at all, before any is shown.
static void write_why(FILE *f, const demo *d) {
    const window *w = best_rollback(d);
    fprintf(f,
            "<p>A server adds up the same products in another order when another number of requests shares the pass, "
            "and floating-point sums in another order end in other last bits. Now and then such a bit carries a "
            "logit over to the next bf16 number");
    if (w && w->step > 0 && !w->injected) fprintf(f, " (a step of %.4g below)", (double)w->step);
    fprintf(f, ", and two tokens whose logits were equal or a step apart change places. A replay pass adds in an order "
               "that no other request can change, so what it gives is ");
    if (d->how.policy.verifier == LLM42_VERIFIER_INVARIANT)
        fprintf(f, "<em>canonical</em>: the same in every run, though not better.</p>\n");
    else
        fprintf(
            f,
            "the same in every run, though not better. It is not <em>canonical</em>, because it depends on "
            "settings, above all on M, the %d rows that a replay pass is padded to. The canonical answer is that of "
            "INVARIANT passes, which M does not change.</p>\n",
            (int)(d->window * d->group));
}

static void write_legend_html(FILE *f, const demo *d) {
    fprintf(f, "<p class=\"legend\">");
    for (int i = 0; i < LEGEND_ENTRIES; i++) {
        fprintf(f, "<span><svg viewBox=\"0 0 20 26\">");
        write_mark(f, LEGEND[i][0], 10, 13, 18);
        fprintf(f, "</svg> %s</span>\n", LEGEND[i][1]);
    }
    fprintf(f, "<span>%s</span></p>\n", legend_letter(d));
}

// Rows, not milliseconds: the same run gives the same page.
static void write_costs(FILE *f, const demo *d, const proof *p) {
    cost_line lines[COSTS];
    const int count = costs_of(d, p, lines);
    fprintf(f, "<h2>What it cost</h2>\n");
    if (verifies(d)) write_element(f, "p", pays_text(d, p));
    fprintf(f, "<table>\n<tr><th></th><th>passes</th><th>rows</th></tr>\n");
    for (int i = 0; i < count; i++)
        fprintf(f, "<tr><td>%s</td><td>%d</td><td>%d</td></tr>\n", lines[i].name, lines[i].cost.passes,
                lines[i].cost.rows);
    fprintf(f, "</table>\n");
    if (verifies(d)) write_element(f, "p", price_text(d));
    fprintf(f, "<p>The summary on the terminal has the milliseconds, too.</p>\n");
}

static void write_question(FILE *f, const char *question, const char *answer) {
    fprintf(f, "<dt>%s</dt>\n<dd>%s</dd>\n", question, answer);
}

// A rollback in which the replay ranked both tokens equal, and the pass that drew the candidate did not.
static bool has_tie(const demo *d) {
    for (int i = 0; i < (int)arrlen(d->windows); i++) {
        const window *w = &d->windows[i];
        if (w->dropped && !w->injected && w->replay == 0 && w->fast != 0) return true;
    }
    return false;
}

// A candidate up to a rollback that an INVARIANT pass drew.
static bool has_invariant_candidate(const demo *d) {
    for (int i = 0; i < (int)arrlen(d->windows); i++) {
        const window *w = &d->windows[i];
        if (w->dropped && !w->injected && drawn_by(d, w, w->agreed)->schedule != LLM42_SCHEDULE_FAST) return true;
    }
    return false;
}

// Why a request may have no mark in a pass, as section planner of llm42.h decides.
static void write_waits(FILE *f, const demo *d) {
    const llm42_policy *p = &d->how.policy;
    fprintf(f, "<dt>Why does a request sit out some passes?</dt>\n<dd>A replay pass verifies windows and decodes for "
               "nobody, so every request without a window in it gets nothing from it.");
    if (p->verify == LLM42_VERIFY_WAIT)
        fprintf(
            f,
            " With <code>--verify wait</code> a window is ready if it is full, or if its request has drawn its last "
            "token. The replay pass runs when %d windows are ready, or those of all deterministic requests if these "
            "are fewer, when one has waited for %d passes, or when nothing else can run. Until then a request goes on "
            "decoding, but one that has drawn its last token can only wait, however few candidates it has.",
            (int)d->group, (int)d->window);
    if (p->verify == LLM42_VERIFY_WAIT && d->how.preset == LLM42_PRESET_DVR)
        fprintf(f, " Preset dvr itself verifies eagerly; this demo waits, because full windows have more to show.");
    if (p->chunked_prefill == LLM42_CHUNKED_OFF)
        fprintf(f, " With preset paper decoding also stops while a prompt runs.");
    if (p->mode == LLM42_MODE_HYBRID)
        fprintf(f, " With preset best the deterministic requests may also have an INVARIANT pass for themselves, and "
                   "the ordinary ones then a FAST one.");
    fprintf(f, "</dd>\n");
}

static void write_questions(FILE *f, const demo *d) {
    const bool fixed = d->how.policy.verifier == LLM42_VERIFIER_FIXED;
    fprintf(f, "<h2>Questions</h2>\n<dl>\n");
    if (has_tie(d))
        write_question(
            f, "The replay ranked both tokens equal. Why is the candidate dropped?",
            "It is not worse, but it is not the one that every run gives. Of two equal logits the lower token "
            "id is taken, in every pass. The pass that drew the candidate saw no tie and took the other "
            "token; among other requests it may see one.");
    if (has_invariant_candidate(d) && !fixed)
        write_question(f, "A pass is INVARIANT. Why are some of its tokens only candidates?",
                       "Its sums are those of the replay, but a row also reads the keys and values (KV) of the tokens "
                       "before it. Where FAST passes wrote these, their low bits are not canonical, and so the row's "
                       "result is not: it stays a candidate until a replay has written the KV anew.");
    write_question(f, "Why are a prompt's pass and its first token final at once?",
                   fixed
                       ? "A prompt of a deterministic request never runs in a FAST pass, but in one whose order of "
                         "sums no other request can change. So its result is the same in every run, and there is "
                         "nothing to verify."
                       : "A prompt of a deterministic request runs in the order of sums of the replay. What comes out "
                         "is canonical already, so there is nothing to verify.");
    if (d->how.policy.mode != LLM42_MODE_BATCH_INVARIANT) write_waits(f, d);
    fprintf(f, "<dt>Is this the one right answer?</dt>\n<dd>");
    if (fixed)
        fprintf(f,
                "It is the answer of FIXED passes of M = %d rows: the same in every run, but another M may give "
                "another one. <code>--preset dvr</code> gives the canonical one, which does not depend on M.",
                (int)(d->window * d->group));
    else
        fprintf(f, "It is the answer of the INVARIANT schedule. The replay of <code>--preset paper</code> adds in "
                   "another order.");
    fprintf(f, " There a rollback may turn round: the token that is dropped here is committed. Neither order of sums "
               "is nearer to the truth.</dd>\n</dl>\n");
}

static void write_html(FILE *f, const demo *d, const proof *p) {
    double width = 1200, height = 24 + SVG_LANE * (double)d->requests + 34;
    int rollbacks = 0;
    write_html_head(f);
    fprintf(f, "<body>\n<h1>Decode, verify, roll back</h1>\n");
    write_why(f, d);
    write_element(f, "p", settings_text(d));
    fprintf(f,
            "<h2>Every pass</h2>\n<p class=\"wide\">The chart is wider than this screen: push it to the left to see "
            "the later passes.</p>\n<div class=\"grid\"><svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" "
            "viewBox=\"0 0 %.0f %.0f\">\n"
            "<title>passes from left to right, requests from top to bottom</title>\n",
            width, height);
    write_grid(f, d, 0, 0, width);
    fprintf(f, "</svg></div>\n");
    write_legend_html(f, d);
    fprintf(f,
            "<h2>Rollbacks</h2>\n<p>Above stand the candidates, below what the replay gave. A dot (%s) "
            "marks a token that begins a word.</p>\n",
            WORD_BEGINS);
    for (int i = 0; i < (int)arrlen(d->windows); i++) {
        if (!d->windows[i].dropped) continue;
        write_window(f, d, &d->windows[i]);
        rollbacks++;
    }
    if (!rollbacks) fprintf(f, "<p>%s</p>\n", no_rollback(d));
    fprintf(f, "<h2>Requests</h2>\n");
    for (int k = 0; k < d->requests; k++) {
        fprintf(f, "<div class=\"lane\"><b>%s</b>", d->lane[k].name);
        write_element(f, "p", lane_text(d, &d->lane[k], passes(d), true));
        fprintf(f, "</div>\n");
    }
    fprintf(f, "<h2>What happened</h2>\n");
    write_element(f, "p", counts_text(d));
    fprintf(f, "<p><b>Candidates</b> ");
    write_element(f, "span", candidates_text(d));
    fprintf(f, "</p>\n<p><b>Committed</b> ");
    write_element(f, "span", committed_text(d));
    fprintf(f, "</p>\n");
    fprintf(f, "<h2>The same requests, together and alone</h2>\n");
    write_element(f, "p", proof_text(d, p));
    write_costs(f, d, p);
    write_questions(f, d);
    fprintf(f, "</body>\n</html>\n");
}

// >>files --------------------------------------------------------------------------------------------------------

static FILE *slides_begin(const char *option, const char *path) {
    FILE *f = path ? llm42_file_create(path) : NULL;
    if (path && !f) args_fail(1, "%s: cannot write %s: %s", option, path, strerror(errno));
    return f;
}

void slides_open(slides *s, const demo *d) {
    s->html = slides_begin("--html", d->html_path);
    s->svg = slides_begin("--svg", d->svg_path);
}

void slides_finish(slides *s, const demo *d, const proof *p) {
    if (s->html) write_html(s->html, d, p);
    if (s->html && !llm42_file_finish(s->html))
        args_fail(1, "--html: cannot write %s: %s", d->html_path, strerror(errno));
    if (s->svg) write_svg(s->svg, d, p);
    if (s->svg && !llm42_file_finish(s->svg)) args_fail(1, "--svg: cannot write %s: %s", d->svg_path, strerror(errno));
}
