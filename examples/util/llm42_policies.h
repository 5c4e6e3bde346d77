// llm42_policies.h: the policies of an engine's desc by their words, which options and columns of results use.
//
//     llm42_policy_set(&desc, "verify", "wait", &error);
//     llm42_policy_word(&desc, "verify");                 // "wait"
//
// Its functions are static: include it wherever they are called.
#ifndef LLM42_POLICIES_H
#define LLM42_POLICIES_H

#include "llm42.h"

#include <string.h>

// A policy's words, NULL-terminated; word[i] is value i + 1.
typedef struct llm42_policy_words {
    const char *name;  // "verify"
    const char *const *word;
} llm42_policy_words;

// All policies, in the order of LLM42_POLICIES, ended by one whose name is NULL.
static inline const llm42_policy_words *llm42_policies(void) {
#define LLM42__WORD(name, word, ...) word,
#define LLM42__POLICY(name, field, type, none, values) \
    static const char *const type##_word[] = {values(LLM42__WORD) NULL};
    LLM42_POLICIES(LLM42__POLICY)
#undef LLM42__POLICY
#define LLM42__POLICY(name, field, type, none, values) {name, type##_word},
    static const llm42_policy_words policies[] = {LLM42_POLICIES(LLM42__POLICY){NULL, NULL}};
#undef LLM42__POLICY
#undef LLM42__WORD
    return policies;
}

// The place of a policy in llm42_policies; -1: there is none of this name.
static inline int llm42__policy_find(const char *name) {
    for (int i = 0; llm42_policies()[i].name; i++)
        if (!strcmp(llm42_policies()[i].name, name)) return i;
    return -1;
}

// The field of a desc that holds the policy at this place. All of them are enums, which are as large as int.
static inline int *llm42__policy_field(const llm42_engine_desc *desc, int policy) {
#define LLM42__POLICY(name, field, type, none, values) offsetof(llm42_engine_desc, field),
    static const size_t at[] = {LLM42_POLICIES(LLM42__POLICY)};
#undef LLM42__POLICY
    _Static_assert(sizeof(llm42_mode) == sizeof(int), "compile without -fshort-enums");
    return (int *)((uintptr_t)desc + at[policy]);
}

// Sets a policy of a desc by its word. Errors: INVALID, which lists the words.
static inline llm42_result llm42_policy_set(llm42_engine_desc *desc, const char *policy, const char *word,
                                            llm42_error *error) {
    if (!desc || !policy || !word) return llm42_fail(error, LLM42_INVALID, "llm42_policy_set: an argument is NULL");
    const int p = llm42__policy_find(policy);
    if (p < 0) return llm42_fail(error, LLM42_INVALID, "policy %s: there is none of this name", policy);
    char all[160] = "";
    for (int i = 0; llm42_policies()[p].word[i]; i++) {
        const char *known = llm42_policies()[p].word[i];
        if (!strcmp(known, word)) return *llm42__policy_field(desc, p) = i + 1, LLM42_OK;
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "", known);
    }
    return llm42_fail(error, LLM42_INVALID, "policy %s: '%s' is not one of: %s", policy, word, all);
}

// The word of a desc's policy; "default" where the field is 0, NULL where there is no such policy.
static inline const char *llm42_policy_word(const llm42_engine_desc *desc, const char *policy) {
    const int p = desc && policy ? llm42__policy_find(policy) : -1, value = p < 0 ? -1 : *llm42__policy_field(desc, p);
    if (value < 0) return NULL;
    if (value == 0) return "default";
    for (int i = 0; llm42_policies()[p].word[i]; i++)
        if (i + 1 == value) return llm42_policies()[p].word[i];
    return NULL;
}

#endif  // LLM42_POLICIES_H
