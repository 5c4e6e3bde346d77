// planner.h: planners by name, for the cells of build/sweep: the built-in one, those of examples/planners.h, and those
// of a file of your own (make sweep PLANNER=FILE; sweep/budget.h is an example). Included behind llm42.h.
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

// The file defines OWN_PLANNERS: a planner_kind in braces for each of its planners, separated by commas.
#ifdef LLM42_PLANNER
#include LLM42_PLANNER
#else
#define OWN_PLANNERS \
    { .name = NULL }
#endif

enum { PLANNERS_MOST = 32 };
static const planner_kind own_planners[] = {OWN_PLANNERS};
_Static_assert(sizeof own_planners / sizeof *own_planners < PLANNERS_MOST / 2, "more planners than there is room for");

// One of your own that is open for an engine; all zero: none is.
typedef struct own_planner {
    llm42_planner planner;
    const planner_kind *kind;
} own_planner;

// The kind of a planner of your own, by what stands in --planner before the colon; NULL: there is none.
static inline const planner_kind *planner_kind_find(const char *word, size_t length) {
    for (size_t i = 0; i < sizeof own_planners / sizeof *own_planners; i++) {
        const char *name = own_planners[i].name;
        if (name && strlen(name) == length && !strncmp(name, word, length)) return &own_planners[i];
    }
    return NULL;
}

// All names, NULL-terminated. First called before there are threads.
static inline const char *const *planner_words(void) {
    static const char *words[PLANNERS_MOST];
    int count = 0;
    if (words[0]) return words;
    for (; planner_names[count]; count++) words[count] = planner_names[count];
    for (size_t i = 0; i < sizeof own_planners / sizeof *own_planners; i++)
        if (own_planners[i].name) words[count++] = own_planners[i].name;
    return words;
}

// Sets the planner of an engine from the text of --planner, such as every or budget:0.2.
static inline llm42_result own_planner_open(own_planner *own, const char *text, llm42_engine_desc *desc,
                                            llm42_error *error) {
    const char *colon = strchr(text, ':');
    own->kind = planner_kind_find(text, strcspn(text, ":"));
    desc->planner = own->kind ? &own->planner : planner_find(text);
    if (!own->kind) return LLM42_OK;
    own->planner = (llm42_planner){.name = own->kind->name};
    if (planner_find(own->kind->name))
        return llm42_fail(error, LLM42_INVALID, "planner %s: there is one of this name already", text);
    if (!own->kind->open) return llm42_fail(error, LLM42_INVALID, "planner %s: its open function: required", text);
    error->text[0] = 0;
    llm42_result result = own->kind->open(&own->planner, colon ? colon + 1 : NULL, error);
    if (result == LLM42_OK) return LLM42_OK;
    own->kind = NULL;
    if (result > 0)
        return llm42_fail(error, LLM42_INVALID, "planner %s: open returned %d, which is neither LLM42_OK nor an error",
                          text, (int)result);
    if (error->text[0]) return result;
    return llm42_fail(error, result, "planner %s: open: %s", text, llm42_result_text(result));
}

static inline void own_planner_close(own_planner *own) {
    if (own->kind && own->kind->close) own->kind->close(&own->planner);
    own->kind = NULL;
}

#endif  // SWEEP_PLANNER_H
