// binding.c: see binding.h.
#define _POSIX_C_SOURCE 200809L
#include "llm42.h"
#define LLM42_CALIBRATION_IMPLEMENTATION
#define LLM42_DRAFT_IMPLEMENTATION
#define LLM42_TRANSCRIPT_IMPLEMENTATION
#include "binding.h"
#include "examples/util/tokenizer.h"
#include <time.h>

static const char *const declarations[] = {
#include "declarations.inc"
    NULL};

const char *llm42_py_version(void) { return LLM42_VERSION; }
const char *const *llm42_py_declarations(void) { return declarations; }

// Makes room for `more` items of an array of `count`, twice as much as before.
static bool reserve(void **array, int count, int more, int *room, size_t size) {
    const int wanted = count + more > 2 * *room ? count + more : 2 * *room;
    if (count + more <= *room) return true;
    void *grown = realloc(*array, (size_t)wanted * size);
    if (!grown) return false;
    *array = grown;
    *room = wanted;
    return true;
}

// Two arrays have the room of tokens: it counts once both have it.
static bool reserve_tokens(llm42_py_events *l, int more) {
    int room = l->token_room;
    void *token = l->token, *logprob = l->logprob;
    const bool both = reserve(&token, l->tokens, more, &room, sizeof *l->token);
    int other = l->token_room;
    const bool done = both && reserve(&logprob, l->tokens, more, &other, sizeof *l->logprob);
    l->token = token, l->logprob = logprob;
    if (done) l->token_room = room;
    return done;
}

void llm42_py_on_event(void *user, const llm42_event *e) {
    llm42_py_events *const l = user;
    void *event = l->event;
    llm42_recorder_event(l->recorder, e);
    if (!(l->types >> e->type & 1)) return;
    const bool room = reserve(&event, l->count, 1, &l->event_room, sizeof *l->event);
    l->event = event;
    if (!room || (e->tokens && !reserve_tokens(l, e->n))) {
        l->out_of_memory = true;
        return;
    }
    l->event[l->count++] = (llm42_py_event){.request = e->request,
                                            .time = e->time,
                                            .begin = e->begin,
                                            .type = (int32_t)e->type,
                                            .n = e->n,
                                            .position = e->position,
                                            .finish = (int32_t)e->finish,
                                            .schedule = (int32_t)e->schedule,
                                            .shape = e->shape,
                                            .windows = e->windows,
                                            .at = e->tokens ? l->tokens : -1,
                                            .has_logprobs = e->logprobs != NULL,
                                            .replayed = e->replayed};
    if (!e->tokens) return;
    for (int i = 0; i < e->n; i++) {
        l->token[l->tokens] = e->tokens[i];
        l->logprob[l->tokens++] = e->logprobs ? e->logprobs[i] : 0;
    }
}

static double clock_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

llm42_result llm42_py_run(llm42_engine *engine, llm42_py_events *l, double seconds, llm42_error *error) {
    const double end = clock_seconds() + seconds;
    llm42_result result = LLM42_OK;
    while (result == LLM42_OK && !l->count && clock_seconds() < end) result = llm42_engine_step(engine, error);
    if (!l->out_of_memory) return result;
    l->out_of_memory = false;
    return llm42_fail(error, LLM42_MEMORY, "out of memory for events");
}

void llm42_py_events_free(llm42_py_events *l) {
    free(l->event);
    free(l->token);
    free(l->logprob);
    l->event = NULL, l->token = NULL, l->logprob = NULL;
    l->count = l->tokens = l->event_room = l->token_room = 0;
}

struct llm42_py_tokenizer {
    tok *t;
};

llm42_result llm42_py_tokenizer_open(llm42_py_tokenizer **tokenizer, const llm42_model *model, const char *model_path,
                                     const char *file, llm42_error *error) {
    *tokenizer = calloc(1, sizeof **tokenizer);
    if (!*tokenizer) return llm42_fail(error, LLM42_MEMORY, "out of memory for a tokenizer");
    const llm42_result result = tok_open(&(*tokenizer)->t, model, model_path, file, error);
    if (result == LLM42_OK) return LLM42_OK;
    free(*tokenizer);
    *tokenizer = NULL;
    return result;
}

void llm42_py_tokenizer_close(llm42_py_tokenizer *t) {
    if (!t) return;
    tok_free(t->t);
    free(t);
}

llm42_result llm42_py_encode(const llm42_py_tokenizer *t, const char *text, size_t size, bool bos, int32_t **ids,
                             int *count, llm42_error *error) {
    *ids = NULL;
    const llm42_result result = tok_encode(t->t, text, size, bos, ids, error);
    if (result) arrfree(*ids);
    *count = (int)arrlen(*ids);
    return result;
}

static void append(char **text, tok_text more) {
    if (more.size) memcpy(arraddnptr(*text, more.size), more.data, more.size);
}

char *llm42_py_decode(const llm42_py_tokenizer *t, const int32_t *ids, int from, int count, bool skip_special,
                      size_t *size) {
    tok_stream stream = {.t = t->t, .skip_special = skip_special};
    char *text = NULL;
    tok_stream_follow(&stream, ids, from);
    for (int i = from; i < count; i++) append(&text, tok_stream_next(&stream, ids[i]));
    append(&text, tok_stream_end(&stream));
    tok_stream_free(&stream);
    *size = arrlenu(text);
    return text;
}

void llm42_py_free(void *array) {
    char *bytes = array;
    arrfree(bytes);
}
