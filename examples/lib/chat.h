// chat.h: the turns of a chat, as the chat template of a model's family spells them: the user's, the assistant's
// between them, and a system's before them if there is one. A template is a program (of Jinja), which is not run here:
// its family is recognised by the tokens that it names. It is read from chat_template.jinja in the model's folder, or
// from chat_template in tokenizer_config.json. A folder without either is known by its special tokens.
//
//   family    models                      recognised by           a turn of the user
//   llama3    Llama 3, 3.1, 3.2, 3.3      <|start_header_id|> <|start_header_id|>user<|end_header_id|>\n\n...<|eot_id|>
//   chatml    Qwen2, Qwen2.5, Qwen3, ...  <|im_start|>            <|im_start|>user\n...<|im_end|>\n
//   llama2    Llama 2                     [INST] and <<SYS>>      [INST] ... [/INST]
//   mistral   Mistral, Ministral          [INST] alone            [INST] ...[/INST], with the template's spaces
//   plain     none that was taught turns  being CHAT_TEXT_ALONE   the text; a space before it, unless it is the first
//
// In llama2 and mistral there is one turn of the user alone, since their templates disagree about what stands between
// several.
#ifndef CHAT_H
#define CHAT_H

#include "examples/lib/args.h"
#include "examples/util/tokenizer.h"

typedef enum chat_family { CHAT_LLAMA3 = 1, CHAT_CHATML, CHAT_LLAMA2, CHAT_MISTRAL, CHAT_PLAIN } chat_family;

// The template of a model that only continues a text: what all have said is one text, which the answer continues.
#define CHAT_TEXT_ALONE                                                                                             \
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' and not loop.first %} {% endif %}" \
    "{{ message['content'] }}{% endfor %}"

typedef struct chat {
    chat_family family;
    const char *system;          // NULL: none
    char standard[2048];         // what a ChatML template says for a system that says nothing; empty: no turn
    bool dated;                  // llama3: two lines with dates stand before what the system says
    bool thinks;                 // chatml: an answer begins with <think>
    bool forgets;                // chatml: of what the assistant said before, the part up to </think> is left out
    bool no_system;              // mistral: the template has no system's turn
    bool bos;                    // a begin-of-text token comes first
    const char *before, *after;  // mistral: around what the user says
    int32_t end;                 // the token that ends a turn; -1: the model's own are enough
} chat;

typedef struct chat_turn {
    const char *role;  // "system", "user" or "assistant"
    tok_text text;
} chat_turn;

// The template of a folder, to be freed; NULL: it has none.
llm42_result chat_template(const char *folder, char **template, llm42_error *error);
// Recognises the family. `system` NULL: nobody said anything before the user. Errors: those of reading a file,
// UNSUPPORTED (the family is not known), FORMAT (the tokenizer is another one's).
llm42_result chat_open(chat *c, tok *t, const char *folder, const char *system, llm42_error *error);
// The stop tokens of a model and the one that ends a turn. Returns their number.
int chat_stop(const chat *c, const llm42_config *config, int32_t stop[LLM42_MAX_STOP]);
// Appends the ids of the turns to *ids. Errors: UNSUPPORTED (the family spells no such turns), and those of tok_encode.
llm42_result chat_turns(const chat *c, tok *t, const chat_turn *turn, int turns, int32_t **ids, llm42_error *error);
// The same for one turn of the user, behind that of .system.
llm42_result chat_encode(const chat *c, tok *t, const char *text, size_t size, int32_t **ids, llm42_error *error);

#endif  // CHAT_H
