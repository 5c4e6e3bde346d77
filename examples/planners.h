// planners.h: planners by name. Included behind llm42.h. (A stub: only the built-in planner.)
#ifndef PLANNERS_H
#define PLANNERS_H

#include <string.h>

#include "llm42.h"

static const char *const planner_names[] = {"default", NULL};

// NULL: there is none of this name.
static inline const llm42_planner *planner_find(const char *name) {
    return strcmp(name, planner_names[0]) ? NULL : llm42_planner_default();
}

#endif  // PLANNERS_H
