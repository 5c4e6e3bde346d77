// flips.h: counts flips from an engine's events, and makes the calibration's table of flip rates from the counts.
//
// A replay pass compares the candidates of a window in order, up to the first one that differs. It changes that one (a
// flip). The candidates after it continue a text that is no longer valid, so they are not counted. A candidate is
// counted under the number of rows of the FAST pass that made it.
#ifndef FLIPS_H
#define FLIPS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "llm42.h"

enum { FLIP_FAST = 12, FLIP_REPLAY = 8 };  // numbers of rows of FAST passes, and of replay passes, at most
// Neighbours in the table are alike unless their counts differ by more than this many standard deviations of chi^2. A
// pair of cells counts for that if each of the two would have at least FLIP_FEW flips at their common rate.
#define FLIP_DIFFERENT 3.0
#define FLIP_FEW 20.0

typedef struct flip_cell {
    double compared, changed;  // candidates
} flip_cell;

// >>counter ------------------------------------------------------------------------------------------------------
// What is counted of one run. Bin b holds FAST passes of edge[b] rows or more, up to edge[b + 1].
typedef struct flip_counter {
    int bins;
    const int *edge;  // [bins], ascending
    int64_t first, requests;
    int longest;  // output tokens of a request, at most
    unsigned char
        *bin;         // [requests][longest]: 1 + the bin in which the candidate at this place was decoded; 0: in none
    flip_cell *cell;  // [requests][bins]
    int pass;         // 1 + the bin of the pass whose events are coming; 0: it is not FAST
} flip_counter;

// Index of the last of the ascending edges that is at most `rows`; 0 if there is none.
static inline int flip_bin(const int *edge, int bins, int rows) {
    int b = 0;
    while (b + 1 < bins && rows >= edge[b + 1]) b++;
    return b;
}

static inline void flip_compare(flip_counter *c, int64_t request, int position, bool changed) {
    if (position >= c->longest) return;
    int bin = c->bin[request * c->longest + position];
    if (!bin) return;
    flip_cell *cell = &c->cell[request * c->bins + bin - 1];
    cell->compared++;
    cell->changed += changed;
}

// To be called with each event of the engine.
static inline void flip_event(flip_counter *c, const llm42_event *e) {
    int64_t request = e->request - c->first;
    if (e->type == LLM42_EVENT_PASS)
        c->pass = e->schedule == LLM42_SCHEDULE_FAST ? 1 + flip_bin(c->edge, c->bins, e->shape) : 0;
    if (e->type == LLM42_EVENT_PASS || request < 0 || request >= c->requests) return;
    if (e->type == LLM42_EVENT_CANDIDATE && e->position < c->longest)
        c->bin[request * c->longest + e->position] = (unsigned char)c->pass;
    for (int i = 0; e->type == LLM42_EVENT_VERIFIED && i < e->n; i++)
        flip_compare(c, request, e->info->committed + i, false);
    if (e->type == LLM42_EVENT_ROLLED_BACK) flip_compare(c, request, e->position, true);
}

// >>table --------------------------------------------------------------------------------------------------------
// Counts by rows of the FAST pass and rows of the replay pass, from fast[f] and replay[r] rows on.
typedef struct flip_grid {
    int fasts, replays;
    int fast[FLIP_FAST], replay[FLIP_REPLAY];  // ascending; replay 0: INVARIANT
    flip_cell cell[FLIP_FAST][FLIP_REPLAY];
} flip_grid;

// Adds a counter's cells, of a run with replay passes of replay[r] rows. Its edges are the grid's fast[].
static inline void flip_add(flip_grid *g, int r, const flip_counter *c) {
    for (int64_t i = 0; i < c->requests; i++)
        for (int b = 0; b < c->bins; b++) {
            g->cell[b][r].compared += c->cell[i * c->bins + b].compared;
            g->cell[b][r].changed += c->cell[i * c->bins + b].changed;
        }
}

// By how many standard deviations chi^2 of these pairs is beyond its mean: -INFINITY where no pair has enough flips.
// spread: how much more the counts vary than they would by chance alone, because requests differ.
static inline double flip_difference(const flip_cell *a, const flip_cell *b, int count, int stride, double spread) {
    double chi = 0, pairs = 0;
    for (int i = 0; i < count * stride; i += stride) {
        double all = a[i].compared + b[i].compared, rate = all > 0 ? (a[i].changed + b[i].changed) / all : 0;
        double in_a = rate * a[i].compared, in_b = rate * b[i].compared;
        if (!(in_a >= FLIP_FEW && in_b >= FLIP_FEW)) continue;
        double from = a[i].changed - in_a;
        chi += from * from / in_a + from * from / in_b;
        pairs++;
    }
    return pairs > 0 ? (chi / spread - pairs) / sqrt(2 * pairs) : (double)-INFINITY;
}

// Joins row f of the table with the next one.
static inline void flip_join_fast(flip_grid *g, int f) {
    for (int r = 0; r < g->replays; r++) {
        g->cell[f][r].compared += g->cell[f + 1][r].compared;
        g->cell[f][r].changed += g->cell[f + 1][r].changed;
    }
    g->fasts--;
    for (int i = f + 1; i < g->fasts; i++) {
        g->fast[i] = g->fast[i + 1];
        for (int r = 0; r < g->replays; r++) g->cell[i][r] = g->cell[i + 1][r];
    }
}

// Joins column r of the table with the next one.
static inline void flip_join_replay(flip_grid *g, int r) {
    g->replays--;
    for (int f = 0; f < g->fasts; f++) {
        g->cell[f][r].compared += g->cell[f][r + 1].compared;
        g->cell[f][r].changed += g->cell[f][r + 1].changed;
        for (int i = r + 1; i < g->replays; i++) g->cell[f][i] = g->cell[f][i + 1];
    }
    for (int i = r + 1; i < g->replays; i++) g->replay[i] = g->replay[i + 1];
}

// Joins the two neighbouring rows or columns that are most alike, again and again, until all neighbours differ. So a
// row or column with too few flips to be told apart joins a neighbour. The column of INVARIANT replay passes (0 rows)
// stays by itself, since their order of sums is no neighbour of the others.
static inline void flip_merge(flip_grid *g, double spread) {
    for (;;) {
        double least = FLIP_DIFFERENT;
        int at = -1;
        bool column = false;
        for (int f = 0; f + 1 < g->fasts; f++) {
            double d = flip_difference(g->cell[f], g->cell[f + 1], g->replays, 1, spread);
            if (d < least) least = d, at = f;
        }
        for (int r = g->replay[0] == 0; r + 1 < g->replays; r++) {
            double d = flip_difference(&g->cell[0][r], &g->cell[0][r + 1], g->fasts, FLIP_REPLAY, spread);
            if (d < least) least = d, at = r, column = true;
        }
        if (at < 0) return;
        if (column) flip_join_replay(g, at);
        else flip_join_fast(g, at);
    }
}

// The rate of a cell. A cell that was never seen has that of the nearest one in its column.
static inline double flip_rate_at(const flip_grid *g, int f, int r) {
    for (int away = 0; away < g->fasts; away++)
        for (int side = -1; side <= 1; side += 2) {
            int i = f + side * away;
            if (i >= 0 && i < g->fasts && g->cell[i][r].compared > 0)
                return g->cell[i][r].changed / g->cell[i][r].compared;
        }
    return 0;
}

static inline double flip_rate(const flip_grid *g, int fast_rows, int replay_rows) {
    return flip_rate_at(g, flip_bin(g->fast, g->fasts, fast_rows), flip_bin(g->replay, g->replays, replay_rows));
}

// >>shape --------------------------------------------------------------------------------------------------------
// The shape of the gamma distribution over requests, by moments. A request whose candidates have e flips by the table
// has Poisson(p e) of them, where p has mean 1 and variance 1/shape. So the squares of (flips - e) sum to the sum of
// e + e^2 / shape.
typedef struct flip_moments {
    double expected, squares, excess;
} flip_moments;

static inline void flip_moments_add(flip_moments *m, const flip_grid *g, int replay_rows, const flip_counter *c) {
    for (int64_t i = 0; i < c->requests; i++) {
        double expected = 0, changed = 0;
        for (int b = 0; b < c->bins; b++) {
            expected += c->cell[i * c->bins + b].compared * flip_rate(g, c->edge[b], replay_rows);
            changed += c->cell[i * c->bins + b].changed;
        }
        m->expected += expected;
        m->squares += expected * expected;
        m->excess += (changed - expected) * (changed - expected) - expected;
    }
}

// How much more the flips of requests vary than they would by chance alone: 1 or more.
static inline double flip_spread(const flip_moments *m) {
    return m->expected > 0 && m->excess > 0 ? 1 + m->excess / m->expected : 1;
}

static inline double flip_shape(const flip_moments *m) {
    double shape = m->excess > 0 ? m->squares / m->excess : 100;
    return shape < 0.05 ? 0.05 : shape > 100 ? 100 : shape;
}

// >>margins ------------------------------------------------------------------------------------------------------
// Counts flips by the margin of the largest logit over the next one in the replay pass. The counts show whether the
// margin decides which candidates flip. Logits are in bf16, so a margin of exactly 0 is common. It has a bin of its
// own.
enum { MARGIN_BINS = 11 };

static inline double margin_edge(int bin) { return bin ? ldexp(1, bin - 9) : 0; }  // 0, 1/256, 1/128, ... 2

typedef struct margins {
    int64_t first, requests;  // as the counter's
    int longest, rows, vocab;
    int *input;     // [requests], tokens of its prompt
    float *logits;  // [rows, vocab], of a replay pass
    float *margin;  // [requests][longest], of the replay pass that gave this output token
    flip_cell cell[FLIP_FAST][MARGIN_BINS];
} margins;

// Takes the margins of a replay pass that has run with these logits.
static inline void margins_pass(margins *m, const llm42_pass *pass) {
    const size_t V = (size_t)m->vocab;
    for (int r = 0; r < pass->rows; r++) {
        const llm42_row *row = &pass->row[r];
        int64_t request = pass->seq[row->seq].request - m->first;
        if (!(row->flags & LLM42_ROW_SAMPLE) || request < 0 || request >= m->requests) continue;
        int place = row->position + 1 - m->input[request];
        if (place < 0 || place >= m->longest) continue;
        const float *logits = m->logits + (size_t)r * V;
        float top = -INFINITY, next = -INFINITY;
        for (size_t i = 0; i < V; i++)
            if (logits[i] > top) next = top, top = logits[i];
            else if (logits[i] > next) next = logits[i];
        m->margin[request * m->longest + place] = top - next;
    }
}

// To be called with each event of the engine, beside flip_event.
static inline void margins_event(margins *m, const flip_counter *c, const llm42_event *e) {
    bool changed = e->type == LLM42_EVENT_ROLLED_BACK;
    int64_t request = e->request - m->first;
    if ((e->type != LLM42_EVENT_VERIFIED && !changed) || request < 0 || request >= m->requests) return;
    int first = changed ? e->position : e->info->committed, count = changed ? 1 : e->n;
    for (int i = first; i < first + count && i < m->longest; i++) {
        int made = c->bin[request * c->longest + i], bin = 0;
        while (bin + 1 < MARGIN_BINS && m->margin[request * m->longest + i] >= margin_edge(bin + 1)) bin++;
        if (!made) continue;
        m->cell[made - 1][bin].compared++;
        m->cell[made - 1][bin].changed += changed;
    }
}

#endif  // FLIPS_H
