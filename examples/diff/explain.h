// explain.h: diff --explain shows the sum behind the first value that differs. Both sides add the same products,
// because all operators before it are equal to the bit; they only add them in another order.
//
// It knows the matrix products whose inputs are operators of the film (v, o, down and the logits) of the CPU backend,
// and takes each sum again as section vectors of llm42.h describes it: in parts, each of which has sixteen partial
// sums.
#ifndef EXPLAIN_H
#define EXPLAIN_H

#include "examples/lib/compare.h"

typedef struct explain_side {
    const char *option;  // "-a"
    llm42_schedule schedule;
    int shape;  // rows of the pass that the value is from
} explain_side;

// Returns why there is nothing to show, or NULL. `at` is the first operator that differs, in f[0] and in f[1].
const char *explain(const llm42_model *model, const film *const f[2], int at, int row, int column,
                    const explain_side side[2]);

#endif  // EXPLAIN_H
