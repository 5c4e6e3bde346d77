// chat.c: chat templates (see chat.h).
#define _POSIX_C_SOURCE 200809L
#include "chat.h"

llm42_result chat_template(const char *folder, char **template, llm42_error *error) {
    char path[4096];
    size_t size = 0;
    tok_json j;
    llm42_result result;
    *template = NULL;
    snprintf(path, sizeof path, "%.4000s/chat_template.jinja", folder);
    if (!access(path, F_OK)) return tok_read(path, template, &size, error);
    snprintf(path, sizeof path, "%.4000s/tokenizer_config.json", folder);
    if (access(path, F_OK)) return LLM42_OK;
    if ((result = tok_json_load(&j, path, error))) return result;
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
        *template = malloc(size);
        if (*template) memcpy(*template, tok_json_string(&j, value), size);
        else result = llm42_fail(error, LLM42_MEMORY, "%s: out of memory", path);
    }
    tok_json_free(&j);
    return result;
}

// What a ChatML template says where there is no system: the text between <|im_start|>system, a newline, and <|im_end|>.
// False: there is one, but not as plain text.
static bool chat_standard(chat *c, const char *template) {
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
static bool chat_recognise(chat *c, const char *template) {
    c->bos = strstr(template, "bos_token") || strstr(template, "<|begin_of_text|>");
    c->before = strstr(template, "[INST] ") ? "[INST] " : "[INST]";
    c->after = strstr(template, " [/INST]") ? " [/INST]" : "[/INST]";
    c->dated = strstr(template, "Cutting Knowledge Date");
    c->thinks = strstr(template, "<|im_start|>assistant\\n<think>") ||
                strstr(template, "<|im_start|>assistant\n<think>");
    c->forgets = strstr(template, "</think>");
    c->no_system = !strstr(template, "system");
    if (strstr(template, "Reasoning Mode")) return false;  // some models of other makers say more to a system
    if (c->dated && !strstr(template, "\"Today Date: \" + date_string + \"\\n\\n\"")) return false;
    if (strstr(template, "<|start_header_id|>")) c->family = CHAT_LLAMA3;
    else if (strstr(template, "<|im_start|>")) c->family = CHAT_CHATML;
    else if (strstr(template, "[SYSTEM_PROMPT]")) return false;  // later Mistrals have a system's turn of another kind
    else if (strstr(template, "<<SYS>>")) c->family = CHAT_LLAMA2;
    else if (strstr(template, "[INST]")) c->family = CHAT_MISTRAL;
    else if (!strcmp(template, CHAT_TEXT_ALONE)) c->family = CHAT_PLAIN;
    else return false;
    return c->family != CHAT_CHATML || chat_standard(c, template);
}

// Fails if the tokenizer lacks a token of the family, because it would spell the token's name letter by letter, which
// no model has learned.
static llm42_result chat_check_tokens(const chat *c, tok *t, const char *folder, llm42_error *error) {
    static const char *const llama3[] = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", NULL},
                             *const chatml[] = {"<|im_start|>", "<|im_end|>", NULL}, *const none[] = {NULL};
    const char *const *names = c->family == CHAT_LLAMA3 ? llama3 : c->family == CHAT_CHATML ? chatml : none;
    llm42_result result = LLM42_OK;
    for (; *names && !result; names++) {
        int32_t *ids = NULL;
        result = tok_encode(t, *names, strlen(*names), false, &ids, error);
        if (!result && arrlen(ids) != 1)
            result = llm42_fail(error, LLM42_FORMAT,
                                "%s: the tokenizer lacks the token %s of the chat template, and would spell it as "
                                "text: give the tokenizer that belongs to the template",
                                folder, *names);
        arrfree(ids);
    }
    return result;
}

llm42_result chat_open(chat *c, tok *t, const char *folder, const char *system, llm42_error *error) {
    char *template = NULL;
    *c = (chat){.system = system, .end = -1};
    llm42_result result = chat_template(folder, &template, error);
    if (result) return result;
    if (template && !chat_recognise(c, template))
        result = llm42_fail(
            error, LLM42_UNSUPPORTED,
            "%s: the chat template is of no family that is known here (Llama 2 and 3, ChatML, Mistral, or text alone)",
            folder);
    free(template);
    if (!template && tok_word_id(t, "<|start_header_id|>") >= 0) c->family = CHAT_LLAMA3, c->bos = true;
    else if (!template && tok_word_id(t, "<|im_start|>") >= 0) c->family = CHAT_CHATML;
    else if (!template)
        result = llm42_fail(error, LLM42_UNSUPPORTED,
                            "%s: no chat_template in tokenizer_config.json, no chat_template.jinja, and no special "
                            "tokens of Llama 3 or ChatML",
                            folder);
    if (!result) result = chat_check_tokens(c, t, folder, error);
    if (result) return c->family = 0, result;
    if (c->family != CHAT_MISTRAL) c->no_system = false;
    if (c->family == CHAT_LLAMA3) c->end = tok_word_id(t, "<|eot_id|>");
    if (c->family == CHAT_CHATML) c->end = tok_word_id(t, "<|im_end|>");
    return LLM42_OK;
}

int chat_stop(const chat *c, const llm42_config *config, int32_t stop[LLM42_MAX_STOP]) {
    int count = config->stop_count;
    for (int i = 0; i < count; i++) stop[i] = config->stop[i];
    if (c->end >= 0 && count < LLM42_MAX_STOP) stop[count++] = c->end;
    return count;
}

// Without the white space around it, as the templates of the Llamas have it.
static tok_text chat_trim(tok_text text) {
    static const char space[] = " \t\n\r\v\f";
    while (text.size && strchr(space, text.data[0])) text.data++, text.size--;
    while (text.size && strchr(space, text.data[text.size - 1])) text.size--;
    return text;
}

// What an assistant said before, behind the last </think> and the newlines that follow it.
static tok_text chat_said(tok_text text) {
    static const char end[] = "</think>";
    for (size_t at = text.size; at >= sizeof end - 1; at--) {
        if (memcmp(text.data + at - (sizeof end - 1), end, sizeof end - 1)) continue;
        while (at < text.size && text.data[at] == '\n') at++;
        return (tok_text){text.data + at, text.size - at};
    }
    return text;
}

static void chat_put(FILE *file, const char *before, tok_text text, const char *after) {
    fputs(before, file);
    fwrite(text.data, 1, text.size, file);
    fputs(after, file);
}

// Llama 3. The date is that of the template where nobody sets one, so that no answer depends on the day.
static void chat_write_llama3(const chat *c, FILE *file, const tok_text *system, const chat_turn *turn, int turns) {
    if (system || c->dated) fputs("<|start_header_id|>system<|end_header_id|>\n\n", file);
    if (c->dated) fputs("Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n", file);
    if (system || c->dated) chat_put(file, "", system ? chat_trim(*system) : (tok_text){"", 0}, "<|eot_id|>");
    for (int i = 0; i < turns; i++) {
        fprintf(file, "<|start_header_id|>%s<|end_header_id|>\n\n", turn[i].role);
        chat_put(file, "", chat_trim(turn[i].text), "<|eot_id|>");
    }
    fputs("<|start_header_id|>assistant<|end_header_id|>\n\n", file);
}

static void chat_write_chatml(const chat *c, FILE *file, const tok_text *system, const chat_turn *turn, int turns) {
    const tok_text said = system ? *system : (tok_text){c->standard, strlen(c->standard)};
    if (system || said.size) chat_put(file, "<|im_start|>system\n", said, "<|im_end|>\n");
    for (int i = 0; i < turns; i++) {
        const bool cut = c->forgets && !strcmp(turn[i].role, "assistant");
        fprintf(file, "<|im_start|>%s\n", turn[i].role);
        chat_put(file, "", cut ? chat_said(turn[i].text) : turn[i].text, "<|im_end|>\n");
    }
    fputs(c->thinks ? "<|im_start|>assistant\n<think>\n" : "<|im_start|>assistant\n", file);
}

// Writes the turns, up to where the model's answer begins.
static void chat_write(const chat *c, FILE *file, const chat_turn *turn, int turns) {
    const tok_text *system = !strcmp(turn->role, "system") ? &turn++->text : NULL;
    if (system) turns--;
    if (c->family == CHAT_LLAMA3) {
        chat_write_llama3(c, file, system, turn, turns);
    } else if (c->family == CHAT_CHATML) {
        chat_write_chatml(c, file, system, turn, turns);
    } else if (c->family == CHAT_PLAIN) {
        if (system) chat_put(file, "", *system, "");
        for (int i = 0; i < turns; i++)
            chat_put(file, !strcmp(turn[i].role, "user") && (i || system) ? " " : "", turn[i].text, "");
    } else if (c->family == CHAT_LLAMA2) {  // the template trims the system's and the user's words together
        tok_text user = turn->text;
        const tok_text trimmed = chat_trim(user);
        fputs("[INST] ", file);
        if (system) chat_put(file, "<<SYS>>\n", *system, "\n<</SYS>>\n\n");
        if (system) user.size = trimmed.size + (size_t)(trimmed.data - user.data);
        chat_put(file, "", system ? user : trimmed, " [/INST]");
    } else {
        fputs(c->before, file);
        if (system) chat_put(file, "", *system, "\n\n");
        chat_put(file, "", turn->text, c->after);
    }
}

llm42_result chat_turns(const chat *c, tok *t, const chat_turn *turn, int turns, int32_t **ids, llm42_error *error) {
    char *text = NULL;
    size_t size = 0;
    const bool system = turns && !strcmp(turn->role, "system");
    for (int i = system; i < turns; i++)
        if (strcmp(turn[i].role, (i - system) % 2 ? "assistant" : "user"))
            return llm42_fail(error, LLM42_UNSUPPORTED,
                              "turn %d is of the %s: behind a system's turn, if there is one, the user and the "
                              "assistant take turns, and the user begins",
                              i, turn[i].role);
    if ((turns - system) % 2 == 0) return llm42_fail(error, LLM42_UNSUPPORTED, "the last turn must be the user's");
    if (turns - system > 1 && (c->family == CHAT_LLAMA2 || c->family == CHAT_MISTRAL))
        return llm42_fail(error, LLM42_UNSUPPORTED,
                          "for the families Llama 2 and Mistral only one turn of the user can be spelled here");
    if (system && c->no_system) return llm42_fail(error, LLM42_UNSUPPORTED, "the template has no system's turn");
    FILE *file = open_memstream(&text, &size);
    if (file) chat_write(c, file, turn, turns);
    if (!file || fclose(file)) return llm42_fail(error, LLM42_MEMORY, "out of memory for the chat's turns");
    llm42_result result = tok_encode(t, text, size, c->bos, ids, error);
    free(text);
    return result;
}

llm42_result chat_encode(const chat *c, tok *t, const char *text, size_t size, int32_t **ids, llm42_error *error) {
    const chat_turn turn[] = {{"system", {c->system, c->system ? strlen(c->system) : 0}}, {"user", {text, size}}};
    return chat_turns(c, t, turn + !c->system, 2 - !c->system, ids, error);
}
