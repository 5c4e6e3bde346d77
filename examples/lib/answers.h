// answers.h: the answer to a request as its tokens come: its text, up to a stop string if there is one, and all of it
// as an object of JSON. The programs' own options are read by args.h, texts of prompts by texts.h.
#ifndef ANSWERS_H
#define ANSWERS_H

#include "examples/lib/args.h"
#include "examples/util/tokenizer.h"

enum { ANSWER_STOPS = 16 };  // stop strings of a request, at most

typedef struct answer {
    tok_stream stream;            // its .t is NULL where there is no tokenizer, and then there is no text
    tok_text stop[ANSWER_STOPS];  // each of at least one byte
    int stops;
    char *text;    // an stb_ds array, without the stop string
    size_t shown;  // bytes of it that answer_fresh has returned
    int tokens;    // up to the one with which the stop string was whole
    bool stopped;  // a stop string has come
} answer;

void answer_free(answer *a);
// A special token has no text in an answer. It ends one if a stop string spells it.
void answer_take(answer *a, int32_t id);
// Takes the tokens of an event COMMITTED and returns how many of them belong to the answer. At a stop string the
// request is ended; what the event brought behind it depends on the load and belongs to nobody.
int answer_committed(answer *a, llm42_engine *engine, const llm42_event *event);
// At event FINISHED: the bytes of a character that never became whole are text, too.
void answer_finished(answer *a);
// What may be shown since the last call. Until the answer is finished, a beginning of a stop string is held back.
tok_text answer_fresh(answer *a, bool finished);
// Why an answer ended: a stop string counts as a stop token does.
const char *answer_finish(const answer *a, llm42_finish finish);
// The answer of a finished request as a line with an object of JSON, to be freed. id and digest are of a line of
// --batch; NULL: none.
char *answer_json(const answer *a, const llm42_request *r, const char *model, int index, const char *id,
                  const char *digest, size_t *size);
// The seed of sample `index` of those that are asked with one seed; 0: 42. The first has the seed itself; the others
// have hashes of it and their index, so that they are not what another seed gives. JSON keeps their 53 bits.
uint64_t answer_seed(uint64_t seed, int64_t index);
// Tokens of a prompt and its answer together, at most: the context, or what the KV cache has room for if that is less
// (--kv-tokens). Nothing reads the KV of the last token.
int answer_room(const llm42_engine_desc *config);
// Exits unless the context holds the prompt and so many tokens behind it, of which 0 means as many as there is room
// for. The names are of what says the prompt and the number.
void answer_check_room(const char *prompt_name, int prompt, const char *name, int64_t tokens, int context);

#endif  // ANSWERS_H
