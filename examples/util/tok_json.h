// tok_json.h: what tokenizer.h and other programs here read files with: UTF-8, JSON and errors that name the file.
//
//     tok_json j;
//     if (tok_json_load(&j, "config.json", &error)) puts(error.text);
//     else if (tok_json_is(&j, tok_json_get(&j, 0, "model"), JSMN_STRING)) ...
//     tok_json_free(&j);
//
// A value is the number of a token of jsmn; 0 is the outermost one and -1 none, which every function takes.
#ifndef TOK_JSON_H
#define TOK_JSON_H

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#ifndef JSMN_H
#define JSMN_STATIC
#define JSMN_STRICT
#define JSMN_PARENT_LINKS  // without them jsmn takes quadratic time on a vocabulary
#endif
#include "jsmn.h"
#include "llm42.h"
#if defined(LLM42_FREE) && !defined(INCLUDE_STB_DS_H)  // arrays are freed here as the library grows them
#define STBDS_REALLOC(context, pointer, size) LLM42_REALLOC(pointer, size)
#define STBDS_FREE(context, pointer) LLM42_FREE(pointer)
#endif
#include "stb_ds.h"

enum {
    TOK_MAX_DEPTH = 64,      // nesting of a JSON file
    TOK_MAX_FILE = 1 << 30,  // bytes of a file or of a text
};

// Errors, files, UTF-8 ---------------------------------------------------------------------------------------------

static inline llm42_result tok_fail(llm42_error *error, llm42_result result, const char *file, const char *format,
                                    ...) {
    char text[sizeof error->text];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    return llm42_fail(error, result, "%s%s%s", file ? file : "", file ? ": " : "", text);
}

// Reads a whole file and puts a 0 behind it.
static inline llm42_result tok_read(const char *path, char **data, size_t *size, llm42_error *error) {
    struct stat status;  // a FIFO would wait for somebody to write
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode))
        return tok_fail(error, LLM42_IO, path, "not a regular file");
    FILE *file = fopen(path, "rb");
    size_t room = 1 << 16, used = 0;
    char *text = file ? malloc(room + 1) : NULL;
    llm42_result result = LLM42_OK;
    if (!file) return tok_fail(error, LLM42_IO, path, "cannot open: %s", strerror(errno));
    while (text) {
        used += fread(text + used, 1, room - used, file);
        if (used < room || room >= TOK_MAX_FILE) break;
        char *grown = realloc(text, 2 * room + 1);
        if (!grown) free(text);
        text = grown;
        room *= 2;
    }
    if (!text) result = tok_fail(error, LLM42_MEMORY, path, "out of memory");
    else if (ferror(file)) result = tok_fail(error, LLM42_IO, path, "cannot read: %s", strerror(errno));
    else if (used >= TOK_MAX_FILE) result = tok_fail(error, LLM42_FORMAT, path, "larger than %d bytes", TOK_MAX_FILE);
    fclose(file);
    if (result) return free(text), result;
    text[used] = 0;
    *data = text;
    *size = used;
    return LLM42_OK;
}

// Bytes of the character at s [n], n > 0; 0: its beginning, cut off by the end; -k: k bytes that are no UTF-8, the
// longest part of a character that is not whole, or one.
static inline int tok_utf8(const char *text, size_t n) {
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80) return 1;
    if (s[0] < 0xC2 || s[0] > 0xF4) return -1;
    int size = s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
    // The second byte rules out overlong forms, surrogates and what lies beyond U+10FFFF.
    int low = s[0] == 0xE0 ? 0xA0 : s[0] == 0xF0 ? 0x90 : 0x80;
    int high = s[0] == 0xED ? 0x9F : s[0] == 0xF4 ? 0x8F : 0xBF;
    for (int i = 1; i < size; i++, low = 0x80, high = 0xBF) {
        if ((size_t)i == n) return 0;
        if (s[i] < low || s[i] > high) return -i;
    }
    return size;
}

static inline int tok_utf8_write(uint32_t c, char *to) {
    if (c < 0x80) return to[0] = (char)c, 1;
    int size = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = size - 1; i > 0; i--, c >>= 6) to[i] = (char)(0x80 | (c & 0x3F));
    to[0] = (char)((size == 2 ? 0xC0 : size == 3 ? 0xE0 : 0xF0) | c);
    return size;
}

static inline uint32_t tok_utf8_read(const char *text, int size) {
    const unsigned char *s = (const unsigned char *)text;
    uint32_t c = size == 1 ? s[0] : s[0] & (0x7Fu >> size);
    for (int i = 1; i < size; i++) c = c << 6 | (s[i] & 0x3F);
    return c;
}

// JSON -------------------------------------------------------------------------------------------------------------
// jsmn finds the tokens; what it lets through (missing or doubled commas, for one) is refused here. Strings are
// unescaped in place and end in a 0, so that token i's string is tok_json_string(j, i).

typedef struct tok_json {
    const char *path;
    char *text;
    size_t size;
    jsmntok_t *token;
    int count;
} tok_json;

static inline void tok_json_free(tok_json *j) {
    free(j->text);
    free(j->token);
    *j = (tok_json){0};
}

static inline const char *tok_json_string(const tok_json *j, int i) { return j->text + j->token[i].start; }
static inline bool tok_json_is(const tok_json *j, int i, jsmntype_t type) {
    return i >= 0 && i < j->count && j->token[i].type == type;
}

// The token after i and all it holds.
static inline int tok_json_next(const tok_json *j, int i) {
    int end = j->token[i].end;
    do i++;
    while (i < j->count && j->token[i].start < end);
    return i;
}

// The value of a key, or -1. `object` may be anything, -1 included.
static inline int tok_json_get(const tok_json *j, int object, const char *key) {
    if (!tok_json_is(j, object, JSMN_OBJECT)) return -1;
    for (int n = 0, i = object + 1; n < j->token[object].size; n++, i = tok_json_next(j, i + 1))
        if (!strcmp(tok_json_string(j, i), key)) return i + 1;
    return -1;
}

static inline bool tok_json_word(const tok_json *j, int i, const char *word) {
    size_t size = strlen(word);
    return tok_json_is(j, i, JSMN_PRIMITIVE) && (size_t)(j->token[i].end - j->token[i].start) == size &&
           !memcmp(tok_json_string(j, i), word, size);
}

static inline bool tok_json_absent(const tok_json *j, int i) { return i < 0 || tok_json_word(j, i, "null"); }
static inline bool tok_json_same(const tok_json *j, int i, const char *text) {
    return tok_json_is(j, i, JSMN_STRING) && !strcmp(tok_json_string(j, i), text);
}

// A number beyond double's range counts as infinity or about 0.
static inline bool tok_json_number(const tok_json *j, int i, double *value) {
    if (!tok_json_is(j, i, JSMN_PRIMITIVE)) return false;
    const char *text = tok_json_string(j, i), *end = j->text + j->token[i].end;
    char *stop = NULL;
    if (text[0] != '-' && (text[0] < '0' || text[0] > '9')) return false;
    return llm42_number(text, end, value) || (errno = 0, *value = strtod(text, &stop), errno == ERANGE && stop == end);
}

static inline bool tok_json_int(const tok_json *j, int i, int32_t *value) {
    double number;
    if (!tok_json_number(j, i, &number) || number < 0 || number > INT32_MAX || number != floor(number)) return false;
    *value = (int32_t)number;
    return true;
}

static inline llm42_result tok_json_fail(const tok_json *j, size_t at, const char *what, llm42_error *error) {
    return tok_fail(error, LLM42_FORMAT, j->path, "malformed JSON at byte %zu: %s", at, what);
}

// Checks the grammar between tokens; their contents are checked below. Brackets match, values and commas alternate,
// nothing is too deep.
static inline llm42_result tok_json_scan(const tok_json *j, llm42_error *error) {
    char open[TOK_MAX_DEPTH], last = 0;  // last: a bracket, ',' or ':', 's' a string, 'v' another value, 0 nothing yet
    int depth = 0;
    for (size_t i = 0; i < j->size; i++) {
        char c = j->text[i];
        if (c == ' ' || c == '\t' || c == '\n' || c == '\r') continue;
        bool after_value = last == 's' || last == 'v' || last == '}' || last == ']';
        if (c == ',' || c == ':') {
            if (c == ',' ? !after_value || !depth : last != 's' || !depth || open[depth - 1] != '{')
                return tok_json_fail(j, i, "a comma or colon stands where a value is due", error);
        } else if (c == '}' || c == ']') {
            char begin = c == '}' ? '{' : '[';
            if (!depth || open[depth - 1] != begin || !(after_value || last == begin))
                return tok_json_fail(j, i, "a bracket closes nothing or an unfinished value", error);
            depth--;
        } else {
            if (after_value || (last == 0 && depth)) return tok_json_fail(j, i, "a comma is missing", error);
            if (c == '{' || c == '[') {
                if (depth == TOK_MAX_DEPTH) return tok_json_fail(j, i, "nested more than 64 deep", error);
                open[depth++] = c;
            } else if (c == '"') {
                while (++i < j->size && j->text[i] != '"') i += j->text[i] == '\\';
                c = 's';
            } else {
                while (i + 1 < j->size && !strchr(" \t\n\r,:]}[{\"", j->text[i + 1])) i++;
                c = 'v';
            }
        }
        last = c;
    }
    if (depth || !last) return tok_json_fail(j, j->size, "the file ends too early", error);
    return LLM42_OK;
}

static inline int tok_json_hex(const char *s) {
    int value = 0;
    for (int i = 0; i < 4; i++) {
        int c = s[i] | 32, digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

// Replaces the escapes of string token i; what comes out is never longer. False: a bad escape, a 0 or not UTF-8.
static inline bool tok_json_unescape(tok_json *j, int i) {
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    char *to = j->text + j->token[i].start, *begin = to, *end = j->text + j->token[i].end;
    for (const char *s = begin; s < end;) {
        int size = tok_utf8(s, (size_t)(end - s));
        if (size < 1 || (unsigned char)*s < ' ') return false;
        if (*s != '\\') {
            memmove(to, s, (size_t)size);
            to += size, s += size;
        } else if (end - s >= 6 && s[1] == 'u') {
            int c = tok_json_hex(s + 2), low = 0;
            s += 6;
            if (c >= 0xD800 && c < 0xDC00 && end - s >= 6 && s[0] == '\\' && s[1] == 'u') {
                low = tok_json_hex(s + 2);
                if (low < 0xDC00 || low > 0xDFFF) return false;
                c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
                s += 6;
            }
            if (c <= 0 || (c >= 0xD800 && c < 0xE000)) return false;
            to += tok_utf8_write((uint32_t)c, to);
        } else {
            const char *found = end - s >= 2 ? strchr(from, s[1]) : NULL;
            if (!found || !*found) return false;
            *to++ = into[found - from];
            s += 2;
        }
    }
    *to = 0;  // at the latest where the closing quote stood
    j->token[i].end = (int)(to - j->text);
    return true;
}

// Checks that keys are strings with one value each and unescapes.
static inline llm42_result tok_json_check(tok_json *j, llm42_error *error) {
    int open[TOK_MAX_DEPTH + 1], depth = 0;
    bool value = false;  // the token is the value of the key before it
    for (int i = 0; i < j->count; i++) {
        jsmntok_t *k = &j->token[i];
        while (depth > 0 && k->start >= j->token[open[depth - 1]].end) depth--;
        bool key = !value && depth > 0 && j->token[open[depth - 1]].type == JSMN_OBJECT;
        bool container = k->type == JSMN_OBJECT || k->type == JSMN_ARRAY;
        if (key ? k->type != JSMN_STRING || k->size != 1 : !container && k->size != 0)
            return tok_json_fail(j, (size_t)k->start, "a key is not a string or lacks its value", error);
        if (k->type == JSMN_PRIMITIVE && !tok_json_word(j, i, "true") && !tok_json_word(j, i, "false") &&
            !tok_json_word(j, i, "null") && !tok_json_number(j, i, &(double){0}))
            return tok_json_fail(j, (size_t)k->start, "neither a number nor true, false or null", error);
        if (k->type == JSMN_STRING && !tok_json_unescape(j, i))
            return tok_json_fail(j, (size_t)k->start, "a string has a bad escape or is not UTF-8", error);
        if (container) open[depth++] = i;
        value = key;
    }
    return LLM42_OK;
}

// Reads and checks j->text, which ends in a 0 and may begin with a byte-order mark. On success the caller frees it with
// tok_json_free, else it is freed here. Token 0 is the outermost value.
static inline llm42_result tok_json_parse(tok_json *j, llm42_error *error) {
    if (j->size >= 3 && !memcmp(j->text, "\xEF\xBB\xBF", 3)) memset(j->text, ' ', 3);
    llm42_result result = tok_json_scan(j, error);
    for (int pass = 0; pass < 2 && !result; pass++) {  // count, then fill
        jsmn_parser parser;
        jsmn_init(&parser);
        j->count = jsmn_parse(&parser, j->text, j->size, j->token, (unsigned)(pass ? j->count : 0));
        if (j->count < 1) result = tok_json_fail(j, parser.pos, "not JSON from here", error);
        else if (!pass && !(j->token = malloc((size_t)j->count * sizeof *j->token)))
            result = tok_fail(error, LLM42_MEMORY, j->path, "out of memory");
    }
    if (!result) result = tok_json_check(j, error);
    if (result) tok_json_free(j);
    return result;
}

static inline llm42_result tok_json_load(tok_json *j, const char *path, llm42_error *error) {
    *j = (tok_json){.path = path};
    llm42_result result = tok_read(path, &j->text, &j->size, error);
    return result ? result : tok_json_parse(j, error);
}

#endif  // TOK_JSON_H
