// planner.c: planners by name (see planner.h).
#define _POSIX_C_SOURCE 200809L
#include "planner.h"

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

const planner_kind *planner_kind_find(const char *word, size_t length) {
    for (size_t i = 0; i < sizeof own_planners / sizeof *own_planners; i++) {
        const char *name = own_planners[i].name;
        if (name && strlen(name) == length && !strncmp(name, word, length)) return &own_planners[i];
    }
    return NULL;
}

const char *const *planner_words(void) {
    static const char *words[PLANNERS_MOST];
    int count = 0;
    if (words[0]) return words;
    for (; planner_names[count]; count++) words[count] = planner_names[count];
    for (size_t i = 0; i < sizeof own_planners / sizeof *own_planners; i++)
        if (own_planners[i].name) words[count++] = own_planners[i].name;
    return words;
}

llm42_result own_planner_open(own_planner *own, const char *text, llm42_engine_desc *desc, llm42_error *error) {
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

void own_planner_close(own_planner *own) {
    if (own->kind && own->kind->close) own->kind->close(&own->planner);
    own->kind = NULL;
}
