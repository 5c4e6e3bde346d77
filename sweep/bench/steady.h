// steady.h: can times that were measured be trusted? Only if no other program had the processor meanwhile, and if
// repeats agree.
#ifndef STEADY_H
#define STEADY_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#define STEADY_SHARE 0.9   // of the processor time that the program asked for, at least
#define STEADY_SPREAD 1.5  // the repeat that is taken, relative to the shortest one, at most

// The worst of all that was measured. Begin with {.share = 1, .spread = 1}.
typedef struct steadiness {
    double share;     // of the processor time that the program asked for
    double spread;    // of the repeats of one figure
    char where[160];  // which figure that is, and two of its repeats
} steadiness;

static inline void steady_share(steadiness *s, double share) {
    if (!(share >= s->share)) s->share = share;  // NAN counts as none
}

// The repeat that is taken of so many: the lower quartile, since whatever disturbs a repeat can only make it longer.
static inline int steady_taken(int repeats) { return repeats / 4; }

// ms: the repeats of one figure, sorted. One of them more must be like the shortest: the lower quartile where that is
// another, else the second. A single repeat says nothing.
static inline void steady_repeats(steadiness *s, const double *ms, int repeats, const char *what) {
    if (repeats < 2) return;
    int other = steady_taken(repeats) > 1 ? steady_taken(repeats) : 1;
    double spread = ms[other] / ms[0];
    if (spread <= s->spread) return;
    s->spread = spread;
    snprintf(s->where, sizeof s->where, "%.80s: %.4g and %.4g ms", what, ms[0], ms[other]);
}

// Adds what was measured apart from it.
static inline void steady_add(steadiness *s, const steadiness *other) {
    steady_share(s, other->share);
    if (other->spread <= s->spread) return;
    s->spread = other->spread;
    snprintf(s->where, sizeof s->where, "%s", other->where);
}

// False, and why in one line, where the figures must not be trusted.
static inline bool steady_enough(const steadiness *s, char *why, size_t size) {
    bool shared = !(s->share >= STEADY_SHARE), differ = !(s->spread <= STEADY_SPREAD);
    int used = 0;
    why[0] = 0;
    if (shared) used = snprintf(why, size, "this program got %.0f%% of the processor's time", floor(100 * s->share));
    if (differ && used < (int)size)
        snprintf(why + used, size - (size_t)used, "%srepeats disagree (%s)", shared ? "; " : "", s->where);
    return !shared && !differ;
}

#endif  // STEADY_H
