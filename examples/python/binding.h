// binding.h: what llm42.py loads beside the library itself: the companions that it uses, a list of events that Python
// reads after a step instead of a call for each event, and text to token ids and back. `make shared` puts all of it
// into build/libllm42_python.so, with the declarations as text, of which llm42.py makes its structs.
#ifndef BINDING_H
#define BINDING_H

#include "examples/util/llm42_calibration.h"
#include "examples/util/llm42_cuda.h"
#include "examples/util/llm42_draft.h"
#include "examples/util/llm42_transcript.h"

// An llm42_event without pointers, so that it can be read after the step.
typedef struct llm42_py_event {
    int64_t request;
    double time, begin;
    int32_t type, n, position, finish, schedule, shape, windows;
    int32_t at;  // its tokens are at[0 .. n - 1] of the list's; -1: it has none
    bool has_logprobs;
    llm42_output replayed;
} llm42_py_event;

// Events that wait to be read. Zero it but for types, and give it to the engine as event_user, with llm42_py_on_event.
// Its arrays grow and are never made smaller. Whoever has read the events sets .count and .tokens to 0.
typedef struct llm42_py_events {
    uint64_t types;            // 1 << llm42_event_type of each type that is kept
    llm42_recorder *recorder;  // NULL, or gets every event
    llm42_py_event *event;     // [count]
    int32_t *token;            // [tokens]
    float *logprob;            // [tokens]
    int count, tokens, event_room, token_room;
    bool out_of_memory;  // an event is missing; llm42_py_run then fails once
} llm42_py_events;

LLM42_API void llm42_py_on_event(void *events, const llm42_event *event);
// Steps until an event waits, `seconds` have passed or an error occurs. LLM42_OK, LLM42_IDLE (every request is
// finished) or an error. Events that came before the error wait, too.
LLM42_API llm42_result llm42_py_run(llm42_engine *engine, llm42_py_events *events, double seconds, llm42_error *error);
LLM42_API void llm42_py_events_free(llm42_py_events *events);

typedef struct llm42_py_tokenizer llm42_py_tokenizer;
// As tok_open of tokenizer.h.
LLM42_API llm42_result llm42_py_tokenizer_open(llm42_py_tokenizer **tokenizer, const llm42_model *model,
                                               const char *model_path, const char *file, llm42_error *error);
LLM42_API void llm42_py_tokenizer_close(llm42_py_tokenizer *tokenizer);  // NULL is fine
// Threads may share a tokenizer. The results of both are arrays of this call, which llm42_py_free frees; empty ones and
// those of a call that failed are NULL.
LLM42_API llm42_result llm42_py_encode(const llm42_py_tokenizer *tokenizer, const char *text, size_t size, bool bos,
                                       int32_t **ids, int *count, llm42_error *error);
// The text of ids[from] and on, which follow the others.
LLM42_API char *llm42_py_decode(const llm42_py_tokenizer *tokenizer, const int32_t *ids, int from, int count,
                                bool skip_special, size_t *size);
LLM42_API void llm42_py_free(void *array);  // NULL is fine

LLM42_API const char *llm42_py_version(void);              // LLM42_VERSION
LLM42_API const char *const *llm42_py_declarations(void);  // lines of C, NULL-terminated

#endif  // BINDING_H
