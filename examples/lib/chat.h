// chat.h: the turns of a chat, as a model's chat template spells them: the user's, the assistant's between them, and a
// system's before them if there is one. A template is a program (of Jinja), which is not run here. Instead a chat has a
// format: the strings that stand around what is said, and a few rules. chat_templates.h has the formats, and the
// SHA-256 of every template that chat_templates.py has compared with one of them, conversation by conversation. A
// template is known only if its whole text is in that table. For any other one somebody has to name the format.
//
// Some white space in a template changes no output, and is left out before the text is hashed: jinja2 itself reads
// \r\n and \r as \n, and drops the newline at the end and what stands before {%-, {{- or {#-, or behind -%}, -}} or
// -#}. No other white space is touched, because it may stand in what the template spells. If a part of a template is
// not understood, or it has {% raw %}, only the ends of lines are touched.
//
// A template is read from chat_template.jinja in the model's folder, or from chat_template in tokenizer_config.json.
#ifndef CHAT_H
#define CHAT_H

#include "examples/lib/args.h"
#include "examples/util/tokenizer.h"

// In the strings of a format: the tokens that tokenizer_config.json calls bos_token and eos_token, and a date.
#define CHAT_BOS "\001"
#define CHAT_EOS "\002"
#define CHAT_DATE "\003"

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_ROLES };
enum { CHAT_BEGIN = 1, CHAT_END = 2, CHAT_WORDS = 8 };  // CHAT_BEGIN and CHAT_END: bits, the two ends of a text

// A chat is spelled as [alone | system S then] U1 reply A1 next U2 answer. S, U and A are the words of the system, the
// user and the assistant. Behind .answer the model's answer begins.
typedef struct chat_format {
    const char *name;
    const char *alone, *system, *then;  // .system NULL: there is no system's turn
    const char *reply, *next, *answer;  // .reply NULL: only one turn of the user can be spelled
    const char *date, *form;            // date: the default; NULL: the user must give one. form: strftime's for today's
    int trim[CHAT_ROLES];               // at which ends a role's words lose their white space
    bool together;  // the system's and the first user's words are one text to be trimmed, so the user's keep theirs at
                    // the beginning
    int blank;   // bit 1 << role: a turn of this role with only white space is refused, because the template treats it
                 // specially
    bool plain;  // a tokenizer may lack the markers, because models with this format learned them as plain text
    int empty;   // 1: a system that says nothing is none; 2: nor is one that says white space alone
    int cut;     // bits. 1: what an assistant said up to the last </think> is left out; 2: the newlines behind it,
                 // too; 4: newlines at the beginning are left out
    bool late;   // the system's words and .then stand before the last user's words, behind .alone or .next
    int where;   // roles (bits) in which `words` are refused, because the template treats these words specially
    const char *words[CHAT_WORDS];
} chat_format;

// The options of a program.
typedef struct chat_options {
    const char *system;  // what the system says first; NULL: nothing
    const char *format;  // the name of one; NULL: that of the folder's template
    const char *date;    // NULL: that of the format; "today": today's date
} chat_options;

#define CHAT_OPTIONS(o)                                                                                              \
    ARGS_ONCE("chat-format NAME", &(o)->format,                                                                      \
              "spell chats as llama3, chatml or another format, whatever the model's template is;\n"                 \
              "                         a wrong NAME lists all"),                                                    \
        ARGS_ONCE("chat-date TEXT", &(o)->date,                                                                      \
                  "the date that templates with a date write, as in '26 Jul 2024', the default of Llama 3.1\n"       \
                  "                         and later; today: today's, which transformers writes for many models,\n" \
                  "                         but not for Llama 3.1")

// The template of a model that only continues a text: what all have said is one text, which the answer continues.
#define CHAT_TEXT_ALONE                                                                                             \
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' and not loop.first %} {% endif %}" \
    "{{ message['content'] }}{% endfor %}"

typedef struct chat {
    const chat_format *format;  // NULL: chat_open failed
    chat_options how;
    char bos[64], eos[64], date[64];
    bool adds_bos;  // the tokenizer puts BOS first, because it has no text
    int32_t end;    // the token that ends a turn; -1: the model's own are enough
} chat;

typedef struct chat_turn {
    const char *role;  // "system", "user" or "assistant"
    tok_text text;
} chat_turn;

// All formats that have a name of their own; *count of them.
const chat_format *chat_formats(int *count);
// The template of a folder, to be freed; NULL: it has none.
llm42_result chat_template(const char *folder, char **template, llm42_error *error);
// Finds the format. `t` NULL: what is spelled will not become ids. Errors: those of reading a file, UNSUPPORTED (the
// template is not known, and no format was named), INVALID (no such format, or a date is missing or means nothing),
// FORMAT (the tokenizer is another one's).
llm42_result chat_open(chat *c, tok *t, const char *folder, const chat_options *how, llm42_error *error);
// The stop tokens of a model and the one that ends a turn. Returns their number.
int chat_stop(const chat *c, const llm42_config *config, int32_t stop[LLM42_MAX_STOP]);
// The turns as a text, to be freed, that ends where the answer begins. UNSUPPORTED: the format spells no such turns.
llm42_result chat_spell(const chat *c, const chat_turn *turn, int turns, char **text, size_t *size, llm42_error *error);
// Appends the ids of this text to *ids. Errors: those of chat_spell and of tok_encode.
llm42_result chat_turns(const chat *c, tok *t, const chat_turn *turn, int turns, int32_t **ids, llm42_error *error);
// The same for one turn of the user, behind that of how.system.
llm42_result chat_encode(const chat *c, tok *t, const char *text, size_t size, int32_t **ids, llm42_error *error);

#endif  // CHAT_H
