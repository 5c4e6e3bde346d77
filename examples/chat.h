// chat.h: one turn of a user, with a system's turn before it if there is one, as the chat template of a model's family
// spells it. A template is a program (of Jinja), which is not run here: its family is recognised by the tokens that it
// names. It is read from chat_template.jinja in the model's folder, or from chat_template in tokenizer_config.json. A
// folder without either is known by its special tokens.
//
//   family    models                      recognised by           a turn of the user
//   llama3    Llama 3, 3.1, 3.2, 3.3      <|start_header_id|> <|start_header_id|>user<|end_header_id|>\n\n...<|eot_id|>
//   chatml    Qwen2, Qwen2.5, Qwen3, ...  <|im_start|>            <|im_start|>user\n...<|im_end|>\n
//   llama2    Llama 2                     [INST] and <<SYS>>      [INST] ... [/INST]
//   mistral   Mistral, Ministral          [INST] alone            [INST] ...[/INST], with the template's spaces
#ifndef CHAT_H
#define CHAT_H

#include "args.h"
#include "util/tokenizer.h"

typedef enum chat_family { CHAT_LLAMA3 = 1, CHAT_CHATML, CHAT_LLAMA2, CHAT_MISTRAL } chat_family;

typedef struct chat {
    chat_family family;
    const char *system;          // NULL: none
    char standard[2048];         // what a ChatML template says for a system that says nothing; empty: no turn
    bool dated;                  // llama3: two lines with dates stand before what the system says
    bool thinks;                 // chatml: an answer begins with <think>
    bool bos;                    // a begin-of-text token comes first
    const char *before, *after;  // mistral: around what the user says
    int32_t end;                 // the token that ends a turn; -1: the model's own are enough
} chat;

// The template of a folder, to be freed; NULL: it has none.
static inline char *chat_template(const char *folder) {
    char path[4096];
    char *text = NULL;
    size_t size = 0;
    tok_json j;
    llm42_error error = {0};
    snprintf(path, sizeof path, "%.4000s/chat_template.jinja", folder);
    if (!access(path, F_OK)) return args_check(tok_read(path, &text, &size, &error), &error), text;
    snprintf(path, sizeof path, "%.4000s/tokenizer_config.json", folder);
    if (access(path, F_OK)) return NULL;
    args_check(tok_json_load(&j, path, &error), &error);
    int value = tok_json_get(&j, 0, "chat_template");
    if (tok_json_is(&j, value, JSMN_ARRAY)) {  // several, by name
        int item = value + 1, named = -1;
        for (int n = 0; n < j.token[value].size; n++, item = tok_json_next(&j, item))
            if (tok_json_same(&j, tok_json_get(&j, item, "name"), "default"))
                named = tok_json_get(&j, item, "template");
        value = named;
    }
    if (tok_json_is(&j, value, JSMN_STRING)) {
        size = strlen(tok_json_string(&j, value)) + 1;
        text = malloc(size);
        if (!text) args_fail(1, "%s: out of memory", path);
        memcpy(text, tok_json_string(&j, value), size);
    }
    tok_json_free(&j);
    return text;
}

// What a ChatML template says where there is no system: the text between <|im_start|>system, a newline, and <|im_end|>.
// False: there is one, but not as plain text.
static inline bool chat_standard(chat *c, const char *template) {
    static const char begin[] = "<|im_start|>system", end[] = "<|im_end|>";
    for (const char *at = strstr(template, begin); at; at = strstr(at, begin)) {
        at += sizeof begin - 1;
        if (at[0] == '\n') at++;
        else if (at[0] == '\\' && at[1] == 'n') at += 2;
        else continue;
        const char *to = strstr(at, end);
        const size_t size = to ? (size_t)(to - at) : 0;
        if (!to || memchr(at, '\'', size) || memchr(at, '"', size)) continue;  // the rest of it is computed
        if (size >= sizeof c->standard || memchr(at, '\\', size) || memchr(at, '{', size)) return false;
        memcpy(c->standard, at, size);
        return true;
    }
    return true;
}

// Sets all that follows from the template. False: it is of no known family.
static inline bool chat_recognise(chat *c, const char *template) {
    c->bos = strstr(template, "bos_token") || strstr(template, "<|begin_of_text|>");
    c->before = strstr(template, "[INST] ") ? "[INST] " : "[INST]";
    c->after = strstr(template, " [/INST]") ? " [/INST]" : "[/INST]";
    c->dated = strstr(template, "Cutting Knowledge Date");
    c->thinks = strstr(template, "<|im_start|>assistant\\n<think>") ||
                strstr(template, "<|im_start|>assistant\n<think>");
    if (strstr(template, "Reasoning Mode")) return false;  // some models of other makers say more to a system
    if (c->dated && !strstr(template, "\"Today Date: \" + date_string + \"\\n\\n\"")) return false;
    if (strstr(template, "<|start_header_id|>")) c->family = CHAT_LLAMA3;
    else if (strstr(template, "<|im_start|>")) c->family = CHAT_CHATML;
    else if (strstr(template, "[SYSTEM_PROMPT]")) return false;  // later Mistrals have a system's turn of another kind
    else if (strstr(template, "<<SYS>>")) c->family = CHAT_LLAMA2;
    else if (strstr(template, "[INST]")) c->family = CHAT_MISTRAL;
    else return false;
    return c->family != CHAT_CHATML || chat_standard(c, template);
}

// Exits if the tokenizer lacks a token of the family, because it would spell the token's name letter by letter, which
// no model has learned.
static inline void chat_check_tokens(const chat *c, tok *t, const char *folder) {
    static const char *const llama3[] = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", NULL},
                             *const chatml[] = {"<|im_start|>", "<|im_end|>", NULL}, *const none[] = {NULL};
    const char *const *names = c->family == CHAT_LLAMA3 ? llama3 : c->family == CHAT_CHATML ? chatml : none;
    for (; *names; names++) {
        int32_t *ids = NULL;
        llm42_error error = {0};
        args_check(tok_encode(t, *names, strlen(*names), false, &ids, &error), &error);
        if (arrlen(ids) != 1)
            args_fail(1,
                      "--chat: %s: the tokenizer lacks the token %s of the chat template, and would spell it as text: "
                      "give the tokenizer that belongs to the template",
                      folder, *names);
        arrfree(ids);
    }
}

// Exits if the family of the model is not known. `system` NULL: nobody said anything before the user.
static inline void chat_open(chat *c, tok *t, const char *folder, const char *system) {
    static const char what_to_do[] = "leave out --chat and write the turns out in the prompt, special tokens included";
    *c = (chat){.system = system, .end = -1};
    char *template = chat_template(folder);
    if (template && !chat_recognise(c, template))
        args_fail(
            1, "--chat: %s: the chat template is of no family that is known here (Llama 2 and 3, ChatML, Mistral): %s",
            folder, what_to_do);
    if (template && system && c->family == CHAT_MISTRAL && !strstr(template, "system"))
        args_fail(1, "--system: %s: the chat template has no system's turn", folder);
    if (!template && tok_word_id(t, "<|start_header_id|>") >= 0) c->family = CHAT_LLAMA3, c->bos = true;
    else if (!template && tok_word_id(t, "<|im_start|>") >= 0) c->family = CHAT_CHATML;
    else if (!template)
        args_fail(
            1,
            "--chat: %s: no chat_template in tokenizer_config.json, no chat_template.jinja, and no special tokens "
            "of Llama 3 or ChatML: %s",
            folder, what_to_do);
    chat_check_tokens(c, t, folder);
    if (c->family == CHAT_LLAMA3) c->end = tok_word_id(t, "<|eot_id|>");
    if (c->family == CHAT_CHATML) c->end = tok_word_id(t, "<|im_end|>");
    free(template);
}

// Without the white space around it, as the templates of the Llamas have it.
static inline tok_text chat_trim(tok_text text) {
    static const char space[] = " \t\n\r\v\f";
    while (text.size && strchr(space, text.data[0])) text.data++, text.size--;
    while (text.size && strchr(space, text.data[text.size - 1])) text.size--;
    return text;
}

static inline void chat_put(FILE *file, const char *before, tok_text text, const char *after) {
    fputs(before, file);
    fwrite(text.data, 1, text.size, file);
    fputs(after, file);
}

// Llama 3. The date is that of the template where nobody sets one, so that no answer depends on the day.
static inline void chat_write_llama3(const chat *c, FILE *file, tok_text system, tok_text user) {
    if (c->system || c->dated) fputs("<|start_header_id|>system<|end_header_id|>\n\n", file);
    if (c->dated) fputs("Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n", file);
    if (c->system || c->dated) chat_put(file, "", chat_trim(system), "<|eot_id|>");
    chat_put(file, "<|start_header_id|>user<|end_header_id|>\n\n", chat_trim(user),
             "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n");
}

// Writes the turns, up to where the model's answer begins.
static inline void chat_write(const chat *c, FILE *file, tok_text user) {
    const char *said = c->system ? c->system : c->standard;
    const tok_text system = {said, strlen(said)}, trimmed = chat_trim(user);
    if (c->family == CHAT_LLAMA3) {
        chat_write_llama3(c, file, system, user);
    } else if (c->family == CHAT_CHATML) {
        if (c->system || system.size) chat_put(file, "<|im_start|>system\n", system, "<|im_end|>\n");
        chat_put(file, "<|im_start|>user\n", user, "<|im_end|>\n<|im_start|>assistant\n");
        if (c->thinks) fputs("<think>\n", file);
    } else if (c->family == CHAT_LLAMA2) {  // the template trims the system's and the user's words together
        fputs("[INST] ", file);
        if (c->system) chat_put(file, "<<SYS>>\n", system, "\n<</SYS>>\n\n");
        if (c->system) user.size = trimmed.size + (size_t)(trimmed.data - user.data);
        chat_put(file, "", c->system ? user : trimmed, " [/INST]");
    } else {
        fputs(c->before, file);
        if (c->system) chat_put(file, "", system, "\n\n");
        chat_put(file, "", user, c->after);
    }
}

// Appends the ids of the turns to *ids.
static inline llm42_result chat_encode(const chat *c, tok *t, const char *text, size_t size, int32_t **ids,
                                       llm42_error *error) {
    char *turns = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&turns, &length);
    if (file) chat_write(c, file, (tok_text){text, size});
    if (!file || fclose(file)) return llm42_fail(error, LLM42_MEMORY, "out of memory for the chat's turns");
    llm42_result result = tok_encode(t, turns, length, c->bos, ids, error);
    free(turns);
    return result;
}

#endif  // CHAT_H
