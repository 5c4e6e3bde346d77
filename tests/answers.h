// answers.h: what requests have got, to compare. Include "test.h" and "llm42.h" first, and have NEW, the most tokens.
#ifndef LLM42_ANSWERS_H
#define LLM42_ANSWERS_H

typedef struct answer {
    int count;
    int32_t tokens[NEW];
    float logprobs[NEW];
} answer;

static inline answer take(const llm42_engine *engine, int64_t id) {
    const llm42_request *r = llm42_engine_request(engine, id);
    answer a = {.count = r->committed};
    memcpy(a.tokens, r->tokens, sizeof *a.tokens * (size_t)a.count);
    memcpy(a.logprobs, r->logprobs, sizeof *a.logprobs * (size_t)a.count);
    return a;
}

static inline bool same(const answer *a, const answer *b) {
    return a->count == b->count && !memcmp(a->tokens, b->tokens, sizeof *a->tokens * (size_t)a->count) &&
           !memcmp(a->logprobs, b->logprobs, sizeof *a->logprobs * (size_t)a->count);
}

#endif  // LLM42_ANSWERS_H
