// chat.c: chat templates (see chat.h).
#define _POSIX_C_SOURCE 200809L
#include "chat.h"

#include "examples/lib/chat_templates.h"
#include "examples/util/llm42_sha256.h"
#include <ctype.h>
#include <time.h>

enum { CHAT_FORMATS = sizeof chat_format_list / sizeof *chat_format_list };

const chat_format *chat_formats(int *count) {
    *count = CHAT_FORMATS;
    return chat_format_list;
}

// >>folder: its template, and its special tokens ---------------------------------------------------------------------
static llm42_result chat_config(tok_json *j, const char *folder, const char *name, llm42_error *error) {
    char path[4096];
    *j = (tok_json){0};
    snprintf(path, sizeof path, "%.4000s/%s", folder, name);
    return access(path, F_OK) ? LLM42_OK : tok_json_load(j, path, error);
}

llm42_result chat_template(const char *folder, char **template, llm42_error *error) {
    char path[4096];
    size_t size = 0;
    tok_json j;
    llm42_result result;
    *template = NULL;
    snprintf(path, sizeof path, "%.4000s/chat_template.jinja", folder);
    if (!access(path, F_OK)) return tok_read(path, template, &size, error);
    if ((result = chat_config(&j, folder, "tokenizer_config.json", error)) || !j.token) return result;
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
        else result = llm42_fail(error, LLM42_MEMORY, "%s: out of memory for the chat template", folder);
    }
    tok_json_free(&j);
    return result;
}

// The text of a special token: a string, or an object with .content. It stays empty if the file has none.
static llm42_result chat_token(const char *folder, const char *name, char text[64], llm42_error *error) {
    static const char *const files[] = {"tokenizer_config.json", "special_tokens_map.json"};
    llm42_result result = LLM42_OK;
    for (int i = 0; i < 2 && !result && !text[0]; i++) {
        tok_json j;
        if ((result = chat_config(&j, folder, files[i], error)) || !j.token) continue;
        int value = tok_json_get(&j, 0, name);
        if (tok_json_is(&j, value, JSMN_OBJECT)) value = tok_json_get(&j, value, "content");
        if (tok_json_is(&j, value, JSMN_STRING) && snprintf(text, 64, "%s", tok_json_string(&j, value)) >= 64)
            result = llm42_fail(error, LLM42_UNSUPPORTED, "%s/%s: %s has more than 63 bytes", folder, files[i], name);
        tok_json_free(&j);
    }
    return result;
}

// >>format -----------------------------------------------------------------------------------------------------------
enum { CHAT_STRINGS = 6, CHAT_MARKER = 64 };

static const char *chat_string(const chat_format *f, int i) {
    const char *const all[CHAT_STRINGS] = {f->alone, f->system, f->then, f->reply, f->next, f->answer};
    return all[i] ? all[i] : "";
}

static bool chat_has(const chat_format *f, const char *text) {
    for (int i = 0; i < CHAT_STRINGS; i++)
        if (strstr(chat_string(f, i), text)) return true;
    return false;
}

// Copies the first marker of turns at or behind `at`, such as <|im_end|>, <seed:bos> or [INST], and returns what
// follows it. NULL: there is none. <think> and </think> are not markers here: they belong to what a model says, and
// some tokenizers have no token for them.
static const char *chat_marker(const char *at, char marker[CHAT_MARKER]) {
    static const char capitals[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_/";
    for (; *at; at++) {
        const bool bracket = *at == '[';
        const size_t n = bracket ? strspn(at + 1, capitals) : *at == '<' ? strcspn(at + 1, "<> \n") : 0;
        if (!n || n + 3 > CHAT_MARKER || at[n + 1] != (bracket ? ']' : '>')) continue;
        if (n >= 5 && !strncmp(at + n - 4, "think", 5)) continue;
        snprintf(marker, CHAT_MARKER, "%.*s", (int)n + 2, at);
        return at + n + 2;
    }
    return NULL;
}

// The end of the tag of Jinja at `at`, which begins with {{, {% or {#. NULL: it has none, or brackets that do not
// match.
static const char *chat_tag_end(const char *at) {
    const char close[] = {at[1] == '{' ? '}' : at[1], '}', 0};
    const bool comment = at[1] == '#';
    char open[64];
    int depth = 0;
    for (at += 2; *at; at++) {
        if (!depth && !strncmp(at, close, 2)) return at + 2;
        if (comment) continue;
        const char quote = *at, *bracket = strchr("()[]{}", *at);
        if (quote == '\'' || quote == '"') {
            for (at++; *at && *at != quote; at++) at += *at == '\\' && at[1];
            if (!*at) return NULL;
        } else if (bracket && strchr("([{", *at)) {
            if (depth == sizeof open) return NULL;
            open[depth++] = bracket[1];
        } else if (bracket && (!depth || open[--depth] != *at)) {
            return NULL;
        }
    }
    return NULL;
}

// Does this tag begin a raw block, in which nothing is a tag?
static bool chat_is_raw(const char *tag) {
    const char *at = tag + 2 + (tag[2] == '-' || tag[2] == '+');
    at += strspn(at, " \n");
    return tag[1] == '%' && !strncmp(at, "raw", 3) && at[3] != '_' && !isalnum((unsigned char)at[3]);
}

// Appends a template's text without the white space that its tags drop, {%- what stands before and -%} what stands
// behind. False: some part is not understood.
static bool chat_without_blanks(const char *at, char **out) {
    static const char blanks[] = " \t\n\v\f";
    while (*at) {
        if (at[0] != '{' || !at[1] || !strchr("{%#", at[1])) {
            arrput(*out, *at++);
            continue;
        }
        const char *end = chat_tag_end(at);
        if (!end || chat_is_raw(at)) return false;
        if (at[2] == '-') {
            while (arrlen(*out) && strchr(blanks, arrlast(*out))) arrsetlen(*out, arrlenu(*out) - 1);
            if (arrlen(*out) && arrlast(*out) == '{') return false;  // this and the tag would become another tag
        }
        memcpy(arraddnptr(*out, end - at), at, (size_t)(end - at));
        at = end + (end[-3] == '-' && end - at > 4 ? strspn(end, blanks) : 0);
    }
    return true;
}

// Finds the format whose table lists the SHA-256 of the normalised template (see chat.h).
static const chat_format *chat_known(const char *template) {
    char hex[LLM42_SHA256_TEXT], *lines = NULL, *plain = NULL;
    llm42_sha256 s;
    for (const char *at = template; *at;) {
        const size_t size = strcspn(at, "\r\n"), line = at[size] == '\r' && at[size + 1] == '\n' ? 2 : at[size] ? 1 : 0;
        memcpy(arraddnptr(lines, size), at, size);
        at += size + line;
        if (line && *at) arrput(lines, '\n');
    }
    const size_t size = arrlenu(lines);
    arrput(lines, 0);
    const bool understood = chat_without_blanks(lines, &plain);
    llm42_sha256_begin(&s);
    llm42_sha256_add(&s, understood ? plain : lines, understood ? arrlenu(plain) : size);
    llm42_sha256_end(s, hex);
    arrfree(lines);
    arrfree(plain);
    for (size_t i = 0; i < sizeof chat_template_list / sizeof *chat_template_list; i++)
        if (!strcmp(chat_template_list[i].sha256, hex)) return &chat_format_list[chat_template_list[i].format];
    return NULL;
}

static void chat_names(char *text, size_t size) {
    text[0] = 0;
    for (size_t i = 0, used = 0; i < CHAT_NAMED && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s, ", chat_format_list[i].name);
}

// The markers that a template shares with known formats. How it puts them together is not read, so an error must not
// propose a format.
static void chat_markers(const char *template, char *text, size_t size) {
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < CHAT_FORMATS * CHAT_STRINGS; i++) {
        const char *at = chat_string(&chat_format_list[i / CHAT_STRINGS], i % CHAT_STRINGS);
        for (char marker[CHAT_MARKER]; (at = chat_marker(at, marker));)
            if (strstr(template, marker) && !strstr(text, marker) && used + strlen(marker) + 2 < size)
                used += (size_t)snprintf(text + used, size - used, " %s", marker);
    }
}

// What the tokenizer of a folder without a template tells. Several formats have each of these markers, so none is
// proposed here either.
static const char *chat_hint(const tok *t) {
    return !t                                           ? ""
           : tok_word_id(t, "<|start_header_id|>") >= 0 ? "; its tokenizer has the marker <|start_header_id|>"
           : tok_word_id(t, "<|im_start|>") >= 0        ? "; its tokenizer has the marker <|im_start|>"
                                                        : "";
}

static llm42_result chat_choose(chat *c, const tok *t, const char *folder, llm42_error *error) {
    char *template = NULL, text[320];
    if (c->how.format) {
        for (int i = 0; i < CHAT_FORMATS && !c->format; i++)
            if (!strcmp(chat_format_list[i].name, c->how.format)) c->format = &chat_format_list[i];
        chat_names(text, sizeof text);
        return c->format ? LLM42_OK
                         : llm42_fail(error, LLM42_INVALID,
                                      "--chat-format: '%.40s': there are %sand those of single models in "
                                      "examples/lib/chat_templates.h",
                                      c->how.format, text);
    }
    const llm42_result result = chat_template(folder, &template, error);
    if (result) return result;
    if (!template)
        return llm42_fail(error, LLM42_UNSUPPORTED,
                          "%.150s: no chat_template in tokenizer_config.json and no chat_template.jinja%s: name the "
                          "format by --chat-format",
                          folder, chat_hint(t));
    c->format = chat_known(template);
    if (!c->format) chat_markers(template, text, 120);
    free(template);
    if (c->format) return LLM42_OK;
    return llm42_fail(error, LLM42_UNSUPPORTED,
                      "%.150s: the chat template is not known here; it has %s%s%s: if you know a format that spells "
                      "turns as it does, name that by --chat-format",
                      folder, text[0] ? "the markers" : "no marker of a known format", text,
                      text[0] ? " of known formats, but may put them together in another way" : "");
}

// BOS is what the tokenizer's files say, or else the token that its post-processor puts first.
static llm42_result chat_fill(chat *c, const tok *t, const char *folder, llm42_error *error) {
    llm42_result result = chat_token(folder, "bos_token", c->bos, error);
    if (!result) result = chat_token(folder, "eos_token", c->eos, error);
    if (result) return result;
    c->adds_bos = t && t->llama2 && c->format->alone[0] == CHAT_BOS[0];
    if (t && !c->bos[0] && !c->adds_bos && t->bos >= 0)
        snprintf(c->bos, sizeof c->bos, "%.*s", t->piece[t->bos].size, t->bytes + t->piece[t->bos].at);
    const bool bos = !c->bos[0] && !c->adds_bos && chat_has(c->format, CHAT_BOS);
    if (bos || (!c->eos[0] && chat_has(c->format, CHAT_EOS)))
        return llm42_fail(error, LLM42_FORMAT,
                          "%.150s: the chat format %s writes %s, which tokenizer_config.json does not name", folder,
                          c->format->name, bos ? "bos_token" : "eos_token");
    if (c->how.date && !c->how.date[0])
        return llm42_fail(error, LLM42_INVALID, "--chat-date: the text is empty: give a date, or leave it out");
    const char *date = c->how.date ? c->how.date : c->format->date;
    const time_t now = time(NULL);
    if (!chat_has(c->format, CHAT_DATE))
        return !c->how.date ? LLM42_OK
                            : llm42_fail(error, LLM42_INVALID,
                                         "--chat-date: the chat format %s writes no date: leave "
                                         "it out",
                                         c->format->name);
    if (!date)
        return llm42_fail(error, LLM42_INVALID,
                          "the chat format %s writes a date and has none of its own: give --chat-date TEXT, or "
                          "--chat-date today",
                          c->format->name);
    if (c->how.date && !strcmp(date, "today"))
        strftime(c->date, sizeof c->date, c->format->form ? c->format->form : "%d %b %Y", localtime(&now));
    else if (snprintf(c->date, sizeof c->date, "%s", date) >= (int)sizeof c->date)
        return llm42_fail(error, LLM42_INVALID, "--chat-date: more than %d bytes", (int)sizeof c->date - 1);
    return LLM42_OK;
}

// Fails if the tokenizer lacks a token of the format, because it would spell the token's name letter by letter, which
// no model with this format has learned.
static llm42_result chat_check_tokens(const chat *c, const tok *t, const char *folder, llm42_error *error) {
    char marker[CHAT_MARKER];
    for (int i = 0; i < CHAT_STRINGS && !c->format->plain; i++)
        for (const char *at = chat_string(c->format, i); (at = chat_marker(at, marker));) {
            int32_t *ids = NULL;
            const llm42_result result = tok_encode(t, marker, strlen(marker), false, &ids, error);
            const ptrdiff_t count = arrlen(ids);
            arrfree(ids);
            if (result) return result;
            if (count != 1)
                return llm42_fail(error, LLM42_FORMAT,
                                  "%.150s: the tokenizer lacks the token %s of the chat format %s, and would spell it "
                                  "as text: give the tokenizer that belongs to the template",
                                  folder, marker, c->format->name);
        }
    return LLM42_OK;
}

// The token that the assistant's words end with, where the next turn begins.
static int32_t chat_end(const chat *c, const tok *t) {
    char name[64];
    const char *next = c->format->next ? c->format->next : "";
    next += strspn(next, " \n");
    if (next[0] == CHAT_EOS[0]) return tok_word_id(t, c->eos);
    if (next[0] != '<' || !strchr(next, '>')) return -1;
    snprintf(name, sizeof name, "%.*s", (int)(strchr(next, '>') + 1 - next), next);
    return tok_word_id(t, name);
}

llm42_result chat_open(chat *c, tok *t, const char *folder, const chat_options *how, llm42_error *error) {
    *c = (chat){.how = *how, .end = -1};
    llm42_result result = chat_choose(c, t, folder, error);
    if (!result) result = chat_fill(c, t, folder, error);
    if (!result && t) result = chat_check_tokens(c, t, folder, error);
    if (result) return c->format = NULL, result;
    if (t) c->end = chat_end(c, t);
    return LLM42_OK;
}

int chat_stop(const chat *c, const llm42_config *config, int32_t stop[LLM42_MAX_STOP]) {
    int count = config->stop_count;
    bool known = c->end < 0;
    for (int i = 0; i < count; i++) stop[i] = config->stop[i], known |= stop[i] == c->end;
    if (!known && count < LLM42_MAX_STOP) stop[count++] = c->end;
    return count;
}

// >>spelling ---------------------------------------------------------------------------------------------------------
// Bytes of the white space at the beginning, or at the end, of a text: what Python's str.strip, and so jinja's trim,
// takes for it. 0: there is none.
static size_t chat_space(const char *data, size_t size, bool end) {
    size_t bytes = size ? 1 : 0;
    while (end && bytes < size && bytes < 4 && ((unsigned char)data[size - bytes] & 0xC0) == 0x80) bytes++;
    if (end) data += size - bytes, size = bytes;
    if (!size || (bytes = (size_t)(tok_utf8(data, size) > 0 ? tok_utf8(data, size) : 0)) == 0) return 0;
    const uint32_t u = tok_utf8_read(data, (int)bytes);
    const bool space = (u >= 9 && u <= 13) || (u >= 0x1C && u <= 0x20) || u == 0x85 || u == 0xA0 || u == 0x1680 ||
                       (u >= 0x2000 && u <= 0x200A) || u == 0x2028 || u == 0x2029 || u == 0x202F || u == 0x205F ||
                       u == 0x3000;
    return space && (!end || bytes == size) ? bytes : 0;
}

static tok_text chat_trim(tok_text text, int ends) {
    for (size_t n; ends & CHAT_BEGIN && (n = chat_space(text.data, text.size, false));) text.data += n, text.size -= n;
    for (size_t n; ends & CHAT_END && (n = chat_space(text.data, text.size, true));) text.size -= n;
    return text;
}

// What an assistant said before, without what the template leaves out.
static tok_text chat_said(const chat_format *f, tok_text text) {
    static const char end[] = "</think>";
    const size_t size = sizeof end - 1;
    size_t at = text.size >= size ? text.size - size : 0;
    while (at && memcmp(text.data + at, end, size)) at--;
    const bool thought = text.size >= size && !memcmp(text.data + at, end, size);
    if (f->cut & 1 && thought) text.data += at + size, text.size -= at + size;
    while ((f->cut & 4 || (f->cut & 2 && thought)) && text.size && text.data[0] == '\n') text.data++, text.size--;
    return chat_trim(text, f->trim[CHAT_ASSISTANT]);
}

static void chat_put(const chat *c, FILE *file, const char *text) {
    for (; *text; text++) {
        if (*text == CHAT_BOS[0]) fputs(c->adds_bos ? "" : c->bos, file);
        else if (*text == CHAT_EOS[0]) fputs(c->eos, file);
        else if (*text == CHAT_DATE[0]) fputs(c->date, file);
        else fputc(*text, file);
    }
}

static void chat_say(FILE *file, tok_text text) { fwrite(text.data, 1, text.size, file); }

static void chat_write(const chat *c, FILE *file, const tok_text *system, const chat_turn *turn, int turns) {
    const chat_format *f = c->format;
    const bool early = system && !f->late;
    const tok_text said = chat_trim(system ? *system : (tok_text){"", 0}, f->trim[CHAT_SYSTEM]);
    chat_put(c, file, early ? f->system : f->alone);
    for (int i = 0; i < turns; i += 2) {
        const bool last = i == turns - 1, first = i == 0;
        if (early ? first : system && last) chat_say(file, said), chat_put(c, file, f->then);
        chat_say(file,
                 chat_trim(turn[i].text, f->trim[CHAT_USER] & ~(first && system && f->together ? CHAT_BEGIN : 0)));
        chat_put(c, file, last ? f->answer : f->reply);
        if (last) break;
        chat_say(file, chat_said(f, turn[i + 1].text));
        chat_put(c, file, f->next);
    }
}

// Does the template ignore a system prompt with this text?
static bool chat_is_none(const chat_format *f, tok_text text) {
    return f->empty && !(f->empty == 2 ? chat_trim(text, CHAT_BEGIN | CHAT_END) : text).size;
}

// Is this turn one that the format spells as the template does?
static llm42_result chat_check_turn(const chat_format *f, const chat_turn *turn, int number, llm42_error *error) {
    const int role = 1 << (!strcmp(turn->role, "system") ? CHAT_SYSTEM
                           : !strcmp(turn->role, "user") ? CHAT_USER
                                                         : CHAT_ASSISTANT);
    if (f->blank & role && !chat_trim(turn->text, CHAT_BEGIN | CHAT_END).size)
        return llm42_fail(
            error, LLM42_UNSUPPORTED,
            "turn %d (%s): the text is empty or white space, which the chat template treats specially: leave "
            "the turn out, or write something",
            number, turn->role);
    for (int i = 0; f->where & role && i < CHAT_WORDS && f->words[i]; i++)
        for (size_t at = 0, size = strlen(f->words[i]); at + size <= turn->text.size; at++)
            if (!memcmp(turn->text.data + at, f->words[i], size))
                return llm42_fail(error, LLM42_UNSUPPORTED,
                                  "turn %d (%s), byte %zu: the chat template treats '%s' specially, which llm42 does "
                                  "not imitate: remove it, or let jinja2 render the template",
                                  number, turn->role, at, f->words[i]);
    return LLM42_OK;
}

static llm42_result chat_check(const chat_format *f, const chat_turn *turn, int turns, llm42_error *error) {
    llm42_result result = LLM42_OK;
    const bool system = turns && !strcmp(turn->role, "system");
    for (int i = system; i < turns; i++)
        if (strcmp(turn[i].role, (i - system) % 2 ? "assistant" : "user"))
            return llm42_fail(error, LLM42_UNSUPPORTED,
                              "turn %d is of the %s: behind a system's turn, if there is one, the user and the "
                              "assistant take turns, and the user begins",
                              i, turn[i].role);
    if ((turns - system) % 2 == 0) return llm42_fail(error, LLM42_UNSUPPORTED, "the last turn must be the user's");
    if (turns - system > 1 && !f->reply)
        return llm42_fail(error, LLM42_UNSUPPORTED, "the chat template spells only one turn of the user");
    if (system && !f->system && !chat_is_none(f, turn->text))
        return llm42_fail(error, LLM42_UNSUPPORTED, "the chat template has no system's turn");
    for (int i = 0; i < turns && !result; i++) result = chat_check_turn(f, &turn[i], i, error);
    return result;
}

llm42_result chat_spell(const chat *c, const chat_turn *turn, int turns, char **text, size_t *size,
                        llm42_error *error) {
    const chat_format *f = c->format;
    llm42_result result = chat_check(f, turn, turns, error);
    *text = NULL;
    if (result) return result;
    const tok_text *system = !strcmp(turn->role, "system") ? &turn->text : NULL;
    if (system) turn++, turns--;
    if (system && chat_is_none(f, *system)) system = NULL;
    FILE *file = open_memstream(text, size);
    if (file) chat_write(c, file, system, turn, turns);
    if (file && !fclose(file)) return LLM42_OK;
    free(*text);
    *text = NULL;
    return llm42_fail(error, LLM42_MEMORY, "out of memory for the chat's turns");
}

llm42_result chat_turns(const chat *c, tok *t, const chat_turn *turn, int turns, int32_t **ids, llm42_error *error) {
    char *text = NULL;
    size_t size = 0;
    llm42_result result = chat_spell(c, turn, turns, &text, &size, error);
    if (!result) result = tok_encode(t, text, size, c->adds_bos, ids, error);
    free(text);
    return result;
}

llm42_result chat_encode(const chat *c, tok *t, const char *text, size_t size, int32_t **ids, llm42_error *error) {
    const char *system = c->how.system;
    const chat_turn turn[] = {{"system", {system, system ? strlen(system) : 0}}, {"user", {text, size}}};
    return chat_turns(c, t, turn + !system, 2 - !system, ids, error);
}
