// planner.h: planners by name, for the cells of build/sweep: the built-in one, those of examples/planners.h, and those
// of a file of your own (make sweep PLANNER=FILE; sweep/budget.h is an example).
//
// Planners of examples/planners.h have no state, so that all cells share them. One of your own is opened for each
// engine, because cells run side by side and each replica of a fleet has an engine.
#ifndef SWEEP_PLANNER_H
#define SWEEP_PLANNER_H

#include "sweep/lib/common.h"
#include "examples/planners.h"

typedef struct planner_kind {
    const char *name;  // letters, digits, - and _
    // Sets the functions of a planner, and .user to its state, for one engine. parameter: what follows the name and a
    // colon in --planner, or NULL. On an error nothing is left open.
    llm42_result (*open)(llm42_planner *planner, const char *parameter, llm42_error *error);
    void (*close)(llm42_planner *planner);  // called after the engine has closed; NULL: there is nothing to free
} planner_kind;

// One of your own that is open for an engine; all zero: none is.
typedef struct own_planner {
    llm42_planner planner;
    const planner_kind *kind;
} own_planner;

// The kind of a planner of your own, by what stands in --planner before the colon; NULL: there is none.
const planner_kind *planner_kind_find(const char *word, size_t length);
// All names, NULL-terminated. First called before there are threads.
const char *const *planner_words(void);
// Sets the planner of an engine from the text of --planner, such as every or budget:0.2.
llm42_result own_planner_open(own_planner *own, const char *text, llm42_engine_desc *desc, llm42_error *error);
void own_planner_close(own_planner *own);

#endif  // SWEEP_PLANNER_H
