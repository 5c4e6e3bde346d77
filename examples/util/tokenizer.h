// tokenizer.h: text to token ids and back, for the programs here; the library itself knows ids only.
//
//     #define _POSIX_C_SOURCE 200809L          // before every include
//     #define LLM42_IMPLEMENTATION             // it brings the implementation of stb_ds.h, which is used here too
//     #include "llm42.h"
//     #include "tokenizer.h"                   // link with -lpcre2-8
//
//     tok *t = NULL;
//     int32_t *ids = NULL;                     // an stb_ds array: arrlen(ids), arrfree(ids)
//     llm42_error error;
//     if (tok_open(&t, model, "examples/tiny42", NULL, &error) ||
//         tok_encode(t, "It was", 6, true, &ids, &error)) puts(error.text);
//
// Two kinds of files are read.
// - tokenizer.json of HF: byte-level BPE. Accepted: model BPE, with merges as pairs or as "a b"; pre_tokenizer Split
//   with a regular expression, Punctuation (both with behaviour Isolated), Digits, several of them in a row, and
//   ByteLevel; added tokens; a normaliser that is null, NFC or a Sequence of one or none. Any other normaliser,
//   pre_tokenizer or model is refused by name. Text that NFC might change is refused rather than encoded otherwise than
//   HF does; most Latin, Cyrillic and CJK text passes.
// - tokenizer.bin of llama2.c: SentencePiece BPE, the merge with the best score first, text behind a space.
// All 256 bytes must have a token, so that any text, valid UTF-8 or not, encodes and decodes to the same bytes.
// tok_encode takes O(n log n) time for n bytes, without spaces too. Its scratch memory is that of the call, so threads
// may share a tokenizer.
//
// How it works: text is cut at added tokens, then by the expressions into pieces; each piece starts as a list of
// single bytes (or characters, for llama2.c) and the best mergeable pair is merged until none is left. A heap holds
// the mergeable pairs; pairs that an earlier merge has eaten are dropped as they surface.
#ifdef __cplusplus
#error "tokenizer.h is C11: include it in a .c file, and call that from C++"
#elif !defined(TOKENIZER_H)
#define TOKENIZER_H

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

#ifndef PCRE2_CODE_UNIT_WIDTH
#define PCRE2_CODE_UNIT_WIDTH 8
#endif
#include <pcre2.h>

enum {
    TOK_MAX_SPLITS = 8,       // expressions applied one after the other
    TOK_MAX_DEPTH = 64,       // nesting of a JSON file
    TOK_MAX_FILE = 1 << 30,   // bytes of a file or of a text
    TOK_LLAMA2_BOS = 1,       // llama2.c files fix these ids
    TOK_LLAMA2_SPECIALS = 3,  // <unk>, BOS, EOS
};

typedef struct tok_piece {
    size_t at;
    int size;
    bool special, set;
} tok_piece;  // bytes of a token, in tok.bytes
typedef struct tok_word {
    char *key;
    int32_t value;
} tok_word;  // a token as the file spells it
typedef struct tok_merged {
    double cost;
    int32_t id;
} tok_merged;
typedef struct tok_pair {
    uint64_t key;
    int32_t rank, merged;
} tok_pair;  // key: left id << 32 | right id
typedef struct tok_added {
    char *text;
    int size;
    int32_t id;
} tok_added;
typedef struct tok_symbol {
    int32_t id, previous, next;
} tok_symbol;  // id -1: merged into its left one
typedef struct tok_candidate {
    double cost;
    int32_t at, left, right, merged;
} tok_candidate;

typedef struct tok {
    int count;         // tokens; ids are 0 to count - 1
    int bos;           // id that tok_encode puts first when asked to; -1: none
    bool llama2;       // a llama2.c file
    tok_piece *piece;  // [count]
    char *bytes;
    tok_word *word;  // an stb_ds map
    int32_t byte_id[256];
    uint16_t byte_char[256];  // HF: the character that spells a byte
    tok_pair *pair;           // HF: the merges, by key
    float *score;             // llama2.c: [count]
    int longest;              // llama2.c: bytes in the longest token
    int32_t space;            // llama2.c: the token " "
    bool ignore_merges;       // HF: a piece that is a token as a whole is not built from merges
    tok_added *added;
    pcre2_code *split[TOK_MAX_SPLITS], *nfc;
    int splits;
    pcre2_match_data *match;  // from here on scratch: each call of tok_encode has its own
    tok_symbol *symbol;       // the piece being merged
    tok_candidate *heap;
    char *scratch;
} tok;

// Loads a file: llama2.c's if its name ends in .bin, else JSON. vocab: tokens of the model, 0 if unknown; a
// tokenizer with more is refused, and so is a .bin with fewer. Errors: IO, FORMAT, UNSUPPORTED, MEMORY.
static inline llm42_result tok_load(tok **t, const char *path, int vocab, llm42_error *error);

// Loads the tokenizer of a model: `file`, or if that is NULL tokenizer.json in the model's folder, or else the
// tokenizer.bin there. The model gives the vocabulary. Whether text has a BOS says the tokenizer, never the model:
// llama2.c's always has, and tokenizer.json by its post_processor or add_bos_token of the tokenizer_config.json beside.
static inline llm42_result tok_open(tok **t, const llm42_model *model, const char *model_path, const char *file,
                                    llm42_error *error);
static inline void tok_free(tok *t);  // NULL is fine

// Appends the ids of `size` bytes of text to the stb_ds array *ids, after BOS if asked for and there is one.
static inline llm42_result tok_encode(const tok *t, const char *text, size_t size, bool bos, int32_t **ids,
                                      llm42_error *error);

// Appends the bytes of ids to the stb_ds array *text, without a final 0. An id that the tokenizer does not have (a
// model's vocabulary may be padded) gives nothing, and so does llama2.c's BOS, which also eats the space after it.
static inline void tok_decode(const tok *t, const int32_t *ids, int count, char **text);

// Decoding as tokens come. Zero-initialise it but for t; a character whose bytes come in several tokens is held back
// until it is whole. The text returned holds until the next call.
typedef struct tok_stream {
    const tok *t;
    bool skip_special;  // leave BOS, EOS and the like out
    int32_t last;       // the token before, to know what follows BOS
    char *text;
    size_t returned;
} tok_stream;

typedef struct tok_text {
    const char *data;
    size_t size;
} tok_text;

static inline tok_text tok_stream_next(tok_stream *s, int32_t id);
static inline tok_text tok_stream_end(tok_stream *s);  // what is still held back
static inline void tok_stream_free(tok_stream *s);

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

// Bytes of the character at s [n], n > 0; 0: its beginning, cut off by the end; -1: not UTF-8.
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
        if (s[i] < low || s[i] > high) return -1;
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

// One that is too large or too small for a double is a number, too: infinity or about 0.
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

// Checks the grammar but for what tokens say: brackets match, values and commas alternate, nothing is too deep.
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

// Reads and checks j->text, which ends in a 0. On success the caller frees it with tok_json_free, else it is freed
// here. Token 0 is the outermost value.
static inline llm42_result tok_json_parse(tok_json *j, llm42_error *error) {
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

// HF tokenizer.json ------------------------------------------------------------------------------------------------
// Vocabularies spell bytes as characters: printable ASCII and Latin-1 stand for themselves, the other 68 bytes, in
// order, for U+0100 and on.

static inline void tok_byte_chars(uint16_t byte_char[256]) {
    uint16_t next = 256;
    for (int b = 0; b < 256; b++) {
        bool itself = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        byte_char[b] = itself ? (uint16_t)b : next++;
    }
}

static inline int tok_word_id(const tok *t, const char *word) {
    void *map = t->word, *key = (void *)(uintptr_t)word;
    ptrdiff_t i = -1;  // shgeti would put it into the map, where other threads put theirs
    if (map) stbds_hmget_key_ts(map, sizeof *t->word, key, sizeof t->word->key, &i, STBDS_HM_STRING);
    return i < 0 ? -1 : t->word[i].value;
}

// Gives id the bytes that a vocabulary entry spells; an entry with other characters, as some added tokens have,
// stands for its own UTF-8.
static inline void tok_piece_set(tok *t, int32_t id, const char *word, bool spelled, const int16_t *byte_of) {
    tok_piece *piece = &t->piece[id];
    size_t size = strlen(word), at = 0, begin = arrlenu(t->bytes);
    while (spelled && at < size) {
        int length = tok_utf8(word + at, size - at);
        uint32_t c = length > 0 ? tok_utf8_read(word + at, length) : 512;
        if (c >= 512 || byte_of[c] < 0) break;
        arrput(t->bytes, (char)byte_of[c]);
        at += (size_t)length;
    }
    if (at < size) {
        arrsetlen(t->bytes, begin);
        memcpy(arraddnptr(t->bytes, size), word, size);
    }
    piece->at = begin;
    piece->size = (int)(arrlenu(t->bytes) - begin);
    piece->set = true;
}

// Enters model.vocab and added_tokens into t->word. Ids must be exactly 0 to count - 1.
static inline llm42_result tok_json_words(tok *t, const tok_json *j, int vocab, int added, llm42_error *error) {
    int i = vocab + 1;
    sh_new_strdup(t->word);
    for (int n = 0; n < j->token[vocab].size; n++, i = tok_json_next(j, i + 1)) {
        const char *word = tok_json_string(j, i);
        int32_t id;
        if (!tok_json_int(j, i + 1, &id))
            return tok_fail(error, LLM42_FORMAT, j->path, "model.vocab: the id of '%s' is not a whole number", word);
        if (tok_word_id(t, word) >= 0)
            return tok_fail(error, LLM42_FORMAT, j->path, "model.vocab: '%s' stands there twice", word);
        shput(t->word, word, id);
    }
    i = added + 1;
    for (int n = 0; added >= 0 && n < j->token[added].size; n++, i = tok_json_next(j, i)) {
        static const char *const unknown[] = {"single_word", "lstrip", "rstrip"};
        int content = tok_json_get(j, i, "content");
        int32_t id;
        if (!tok_json_is(j, content, JSMN_STRING) || !tok_json_string(j, content)[0])
            return tok_fail(error, LLM42_FORMAT, j->path, "added_tokens[%d].content is not a text", n);
        const char *word = tok_json_string(j, content);
        if (!tok_json_int(j, tok_json_get(j, i, "id"), &id))
            return tok_fail(error, LLM42_FORMAT, j->path, "added_tokens[%d].id is not a whole number", n);
        for (int f = 0; f < 3; f++)
            if (tok_json_word(j, tok_json_get(j, i, unknown[f]), "true"))
                return tok_fail(error, LLM42_UNSUPPORTED, j->path, "added_tokens[%d].%s is unsupported", n, unknown[f]);
        int known = tok_word_id(t, word);
        if (known >= 0 && known != id)
            return tok_fail(error, LLM42_FORMAT, j->path, "added_tokens[%d].id is %d, but model.vocab has '%s' as %d",
                            n, id, word, known);
        shput(t->word, word, id);
        tok_added entry = {NULL, (int)strlen(word), id};
        if (!(entry.text = malloc((size_t)entry.size + 1)))
            return tok_fail(error, LLM42_MEMORY, j->path, "out of memory");
        memcpy(entry.text, word, (size_t)entry.size + 1);
        arrput(t->added, entry);
    }
    return LLM42_OK;
}

static inline llm42_result tok_json_pieces(tok *t, const tok_json *j, int added, llm42_error *error) {
    int16_t byte_of[512];
    memset(byte_of, -1, sizeof byte_of);
    for (int b = 0; b < 256; b++) byte_of[t->byte_char[b]] = (int16_t)b;
    t->count = (int)shlen(t->word);
    arrsetlen(t->piece, t->count);
    if (t->count) memset(t->piece, 0, (size_t)t->count * sizeof *t->piece);
    for (int n = 0; n < t->count; n++) {
        int32_t id = t->word[n].value;
        if (id >= t->count)
            return tok_fail(error, LLM42_FORMAT, j->path,
                            "model.vocab: id %d of '%s' leaves gaps: %d tokens need "
                            "the ids 0 to %d",
                            id, t->word[n].key, t->count, t->count - 1);
        if (t->piece[id].set)
            return tok_fail(error, LLM42_FORMAT, j->path, "model.vocab: id %d of '%s' is another token's too", id,
                            t->word[n].key);
        tok_piece_set(t, id, t->word[n].key, true, byte_of);
    }
    for (int n = 0, i = added + 1; n < (int)arrlen(t->added); n++, i = tok_json_next(j, i)) {
        tok_piece_set(t, t->added[n].id, t->added[n].text, false, byte_of);
        t->piece[t->added[n].id].special = tok_json_word(j, tok_json_get(j, i, "special"), "true");
    }
    for (int b = 0; b < 256; b++) {
        char word[5] = {0};
        tok_utf8_write(t->byte_char[b], word);
        t->byte_id[b] = tok_word_id(t, word);
        if (t->byte_id[b] < 0)
            return tok_fail(error, LLM42_FORMAT, j->path, "model.vocab lacks byte 0x%02X, spelled '%s'", b, word);
    }
    return LLM42_OK;
}

static inline int tok_pair_order(const void *left, const void *right) {
    const tok_pair *a = left, *b = right;
    if (a->key != b->key) return a->key < b->key ? -1 : 1;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

static inline llm42_result tok_json_merges(tok *t, tok_json *j, int merges, llm42_error *error) {
    if (!tok_json_is(j, merges, JSMN_ARRAY))
        return tok_fail(error, LLM42_FORMAT, j->path, "model.merges is not an array");
    int i = merges + 1;
    for (int n = 0; n < j->token[merges].size; n++, i = tok_json_next(j, i)) {
        const char *left = NULL, *right = NULL;
        if (tok_json_is(j, i, JSMN_ARRAY) && j->token[i].size == 2 && tok_json_is(j, i + 1, JSMN_STRING) &&
            tok_json_is(j, i + 2, JSMN_STRING)) {
            left = tok_json_string(j, i + 1);
            right = tok_json_string(j, i + 2);
        } else if (tok_json_is(j, i, JSMN_STRING)) {
            char *space = strchr(j->text + j->token[i].start, ' ');
            if (space && !strchr(space + 1, ' ')) {
                *space = 0;
                left = tok_json_string(j, i);
                right = space + 1;
            }
        }
        if (!left) return tok_fail(error, LLM42_FORMAT, j->path, "model.merges[%d] is not a pair of tokens", n);
        size_t left_size = strlen(left), right_size = strlen(right);
        arrsetlen(t->scratch, left_size + right_size + 1);
        memcpy(t->scratch, left, left_size);
        memcpy(t->scratch + left_size, right, right_size + 1);
        const char *words[] = {left, right, t->scratch};
        int32_t id[3];
        for (int k = 0; k < 3; k++)
            if ((id[k] = tok_word_id(t, words[k])) < 0)
                return tok_fail(error, LLM42_FORMAT, j->path, "model.merges[%d] names '%s', which model.vocab lacks", n,
                                words[k]);
        tok_pair pair = {(uint64_t)id[0] << 32 | (uint32_t)id[1], n, id[2]};
        arrput(t->pair, pair);
    }
    if (t->pair) qsort(t->pair, arrlenu(t->pair), sizeof *t->pair, tok_pair_order);
    return LLM42_OK;
}

static inline llm42_result tok_compile(const char *pattern, pcre2_code **code, const char *path, const char *field,
                                       llm42_error *error) {
    int number = 0;
    PCRE2_SIZE at = 0;
    *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &number, &at, NULL);
    if (!*code) {
        char text[128];
        pcre2_get_error_message(number, (PCRE2_UCHAR *)text, sizeof text);
        return tok_fail(error, LLM42_UNSUPPORTED, path, "%s: PCRE2 at byte %zu: %s", field, (size_t)at, text);
    }
    pcre2_jit_compile(*code, PCRE2_JIT_COMPLETE);  // without a JIT the interpreter does the same, slower
    return LLM42_OK;
}

// One element of the pre-tokenizer. *last: it was ByteLevel, after which none may come.
static inline llm42_result tok_json_split(tok *t, const tok_json *j, int i, bool *last, llm42_error *error) {
    static const char *gpt2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
    int type = tok_json_get(j, i, "type");
    const char *pattern = NULL;
    if (*last) return tok_fail(error, LLM42_UNSUPPORTED, j->path, "pre_tokenizer: something after ByteLevel");
    if (tok_json_same(j, type, "Digits")) {
        pattern = tok_json_word(j, tok_json_get(j, i, "individual_digits"), "true") ? "\\p{N}" : "\\p{N}+";
    } else if (tok_json_same(j, type, "Punctuation") && tok_json_same(j, tok_json_get(j, i, "behavior"), "Isolated")) {
        pattern = "[\\p{P}$+<=>^`|~]";
    } else if (tok_json_same(j, type, "Split")) {
        int regex = tok_json_get(j, tok_json_get(j, i, "pattern"), "Regex");
        if (!tok_json_is(j, regex, JSMN_STRING))
            return tok_fail(error, LLM42_UNSUPPORTED, j->path, "pre_tokenizer: a Split pattern that is not a Regex");
        if (!tok_json_same(j, tok_json_get(j, i, "behavior"), "Isolated") ||
            tok_json_word(j, tok_json_get(j, i, "invert"), "true"))
            return tok_fail(error, LLM42_UNSUPPORTED, j->path,
                            "pre_tokenizer: a Split whose behavior is not Isolated, or that is inverted");
        pattern = tok_json_string(j, regex);
    } else if (tok_json_same(j, type, "ByteLevel")) {
        *last = true;
        if (tok_json_word(j, tok_json_get(j, i, "add_prefix_space"), "true"))
            return tok_fail(error, LLM42_UNSUPPORTED, j->path,
                            "pre_tokenizer: ByteLevel.add_prefix_space is unsupported");
        if (!tok_json_word(j, tok_json_get(j, i, "use_regex"), "false")) pattern = gpt2;
    } else {
        return tok_fail(error, LLM42_UNSUPPORTED, j->path, "pre_tokenizer: type '%s' is unsupported",
                        tok_json_is(j, type, JSMN_STRING) ? tok_json_string(j, type) : "(none)");
    }
    if (!pattern) return LLM42_OK;
    if (t->splits == TOK_MAX_SPLITS)
        return tok_fail(error, LLM42_UNSUPPORTED, j->path, "pre_tokenizer: more than %d expressions", TOK_MAX_SPLITS);
    return tok_compile(pattern, &t->split[t->splits++], j->path, "pre_tokenizer: Split.pattern", error);
}

static inline llm42_result tok_json_pre_tokenizer(tok *t, const tok_json *j, llm42_error *error) {
    int pre = tok_json_get(j, 0, "pre_tokenizer"), list = tok_json_get(j, pre, "pretokenizers");
    bool last = false;
    llm42_result result = LLM42_OK;
    if (!tok_json_same(j, tok_json_get(j, pre, "type"), "Sequence")) {
        result = tok_json_split(t, j, pre, &last, error);
    } else {
        if (!tok_json_is(j, list, JSMN_ARRAY))
            return tok_fail(error, LLM42_FORMAT, j->path, "pre_tokenizer.pretokenizers is not an array");
        for (int n = 0, i = list + 1; n < j->token[list].size && !result; n++, i = tok_json_next(j, i))
            result = tok_json_split(t, j, i, &last, error);
    }
    if (!result && !last)
        result = tok_fail(error, LLM42_UNSUPPORTED, j->path, "pre_tokenizer: without ByteLevel it is unsupported");
    return result;
}

// Characters that NFC might change, alone or behind another: marks but variation selectors, and singletons.
#define TOK_NFC_SENSITIVE                                                                                         \
    "(?![\\x{FE00}-\\x{FE0F}])[\\p{M}\\x{374}\\x{37E}\\x{387}\\x{958}-\\x{95F}\\x{9DC}-\\x{9DF}\\x{A33}\\x{A36}"  \
    "\\x{A59}-\\x{A5E}\\x{B5C}\\x{B5D}\\x{F43}-\\x{F69}\\x{1161}-\\x{1175}\\x{11A8}-\\x{11C2}\\x{1F71}-\\x{1FFD}" \
    "\\x{2000}\\x{2001}\\x{2126}\\x{212A}\\x{212B}\\x{2329}\\x{232A}\\x{2ADC}\\x{F900}-\\x{FAD9}"                 \
    "\\x{FB1D}-\\x{FB4E}\\x{1D15E}-\\x{1D164}\\x{1D1BB}-\\x{1D1C0}\\x{2F800}-\\x{2FA1D}]"

// The fields around the vocabulary that change what encoding does: each is understood or refused.
static inline llm42_result tok_json_settings(tok *t, const tok_json *j, int model, llm42_error *error) {
    static const char *const none[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix"};
    int normalizer = tok_json_get(j, 0, "normalizer"), decoder = tok_json_get(j, 0, "decoder");
    for (int f = 0; f < 3; f++) {
        int i = tok_json_get(j, model, none[f]);
        if (!tok_json_absent(j, i) && !tok_json_same(j, i, ""))
            return tok_fail(error, LLM42_UNSUPPORTED, j->path, "model.%s is unsupported", none[f]);
    }
    if (tok_json_word(j, tok_json_get(j, model, "byte_fallback"), "true"))
        return tok_fail(error, LLM42_UNSUPPORTED, j->path, "model.byte_fallback is unsupported: not byte-level BPE");
    t->ignore_merges = tok_json_word(j, tok_json_get(j, model, "ignore_merges"), "true");
    if (!tok_json_absent(j, decoder) && !tok_json_same(j, tok_json_get(j, decoder, "type"), "ByteLevel"))
        return tok_fail(error, LLM42_UNSUPPORTED, j->path, "decoder: only ByteLevel is supported");
    if (tok_json_same(j, tok_json_get(j, normalizer, "type"), "Sequence")) {  // of one, or of none
        const int list = tok_json_get(j, normalizer, "normalizers");
        if (tok_json_is(j, list, JSMN_ARRAY) && j->token[list].size == 0) return LLM42_OK;
        if (tok_json_is(j, list, JSMN_ARRAY) && j->token[list].size == 1) normalizer = list + 1;
    }
    if (tok_json_absent(j, normalizer)) return LLM42_OK;
    if (!tok_json_same(j, tok_json_get(j, normalizer, "type"), "NFC"))
        return tok_fail(error, LLM42_UNSUPPORTED, j->path, "normalizer: only null and NFC are supported");
    return tok_compile(TOK_NFC_SENSITIVE, &t->nfc, j->path, "normalizer", error);
}

// BOS is the special token that a TemplateProcessing, alone or in a Sequence, puts before the text.
static inline llm42_result tok_json_bos(tok *t, const tok_json *j, int post, llm42_error *error) {
    int type = tok_json_get(j, post, "type"), list = tok_json_get(j, post, "processors");
    if (tok_json_absent(j, post) || tok_json_same(j, type, "ByteLevel")) return LLM42_OK;
    if (tok_json_same(j, type, "Sequence") && tok_json_is(j, list, JSMN_ARRAY)) {
        llm42_result result = LLM42_OK;
        for (int n = 0, i = list + 1; n < j->token[list].size && !result; n++, i = tok_json_next(j, i)) {
            if (tok_json_same(j, tok_json_get(j, i, "type"), "Sequence"))
                return tok_fail(error, LLM42_UNSUPPORTED, j->path, "post_processor: a Sequence in a Sequence");
            result = tok_json_bos(t, j, i, error);
        }
        return result;
    }
    int single = tok_json_get(j, post, "single");
    if (!tok_json_same(j, type, "TemplateProcessing") || !tok_json_is(j, single, JSMN_ARRAY))
        return tok_fail(error, LLM42_UNSUPPORTED, j->path,
                        "post_processor: only ByteLevel and TemplateProcessing are supported");
    int id = j->token[single].size ? tok_json_get(j, tok_json_get(j, single + 1, "SpecialToken"), "id") : -1;
    if (id < 0) return LLM42_OK;
    if (!tok_json_is(j, id, JSMN_STRING) || (t->bos = tok_word_id(t, tok_json_string(j, id))) < 0)
        return tok_fail(error, LLM42_FORMAT, j->path, "post_processor.single[0].SpecialToken.id is not a token");
    return LLM42_OK;
}

static inline llm42_result tok_load_json(tok *t, const char *path, llm42_error *error) {
    tok_json json, *j = &json;
    llm42_result result = tok_json_load(j, path, error);
    if (result) return result;
    int model = tok_json_get(j, 0, "model"), vocab = tok_json_get(j, model, "vocab");
    int added = tok_json_get(j, 0, "added_tokens");
    if (tok_json_absent(j, added)) added = -1;
    if (!tok_json_is(j, model, JSMN_OBJECT))
        result = tok_fail(error, LLM42_FORMAT, path, "model is missing or not an object");
    else if (!tok_json_same(j, tok_json_get(j, model, "type"), "BPE"))
        result = tok_fail(error, LLM42_UNSUPPORTED, path, "model.type: only BPE is supported");
    else if (!tok_json_is(j, vocab, JSMN_OBJECT))
        result = tok_fail(error, LLM42_FORMAT, path, "model.vocab is missing or not an object");
    else if (added >= 0 && !tok_json_is(j, added, JSMN_ARRAY))
        result = tok_fail(error, LLM42_FORMAT, path, "added_tokens is not an array");
    tok_byte_chars(t->byte_char);
    if (!result) result = tok_json_settings(t, j, model, error);
    if (!result) result = tok_json_pre_tokenizer(t, j, error);
    if (!result) result = tok_json_words(t, j, vocab, added, error);
    if (!result) result = tok_json_pieces(t, j, added, error);
    if (!result) result = tok_json_merges(t, j, tok_json_get(j, model, "merges"), error);
    if (!result) result = tok_json_bos(t, j, tok_json_get(j, 0, "post_processor"), error);
    tok_json_free(j);
    return result;
}

// llama2.c tokenizer.bin -------------------------------------------------------------------------------------------
// int32 bytes in the longest token, then for each token: float score, int32 bytes, the bytes. Little-endian.

static inline llm42_result tok_bin_tokens(tok *t, const char *path, const char *data, size_t size, int vocab,
                                          llm42_error *error) {
    size_t at = sizeof(int32_t);
    if (size < at) return tok_fail(error, LLM42_FORMAT, path, "too short for the length of the longest token");
    int32_t turned;  // with the bytes the other way round
    memcpy(&t->longest, data, sizeof(int32_t));
    for (size_t i = 0; i < sizeof turned; i++) ((char *)&turned)[i] = data[i ^ 3];
    if ((t->longest < 1 || (size_t)t->longest > size) && turned >= 1 && (size_t)turned <= size)
        return tok_fail(error, LLM42_FORMAT, path, "wrong byte order: the file and the machine must be little-endian");
    if (t->longest < 1 || (size_t)t->longest > size)
        return tok_fail(error, LLM42_FORMAT, path, "the length of the longest token is %d", t->longest);
    sh_new_strdup(t->word);
    for (int n = 0; at < size; n++) {
        float score;
        int32_t length;
        if (size - at < sizeof score + sizeof length)
            return tok_fail(error, LLM42_FORMAT, path, "the file ends in the head of token %d", n);
        memcpy(&score, data + at, sizeof score);
        memcpy(&length, data + at + sizeof score, sizeof length);
        at += sizeof score + sizeof length;
        if (length < 0 || length > t->longest || (size_t)length > size - at)
            return tok_fail(error, LLM42_FORMAT, path, "the length of token %d is %d, beyond the longest or the file",
                            n, length);
        if (!isfinite(score)) return tok_fail(error, LLM42_FORMAT, path, "the score of token %d is not finite", n);
        tok_piece piece = {arrlenu(t->bytes), length, n < TOK_LLAMA2_SPECIALS, true};
        memcpy(arraddnptr(t->bytes, (size_t)length + 1), data + at, (size_t)length);
        char *word = t->bytes + piece.at;
        word[length] = 0;
        arrput(t->piece, piece);
        arrput(t->score, score);
        // A token with a 0 in it can be decoded but not be merged to; of equal tokens the first counts.
        if (length && strlen(word) == (size_t)length && tok_word_id(t, word) < 0) shput(t->word, word, n);
        at += (size_t)length;
    }
    t->count = (int)arrlen(t->piece);
    if (vocab && t->count != vocab)
        return tok_fail(error, LLM42_FORMAT, path, "has %d tokens, the model %d", t->count, vocab);
    return LLM42_OK;
}

static inline llm42_result tok_load_bin(tok *t, const char *path, int vocab, llm42_error *error) {
    char *data = NULL;
    size_t size = 0;
    llm42_result result = tok_read(path, &data, &size, error);
    if (result) return result;
    result = tok_bin_tokens(t, path, data, size, vocab, error);
    free(data);
    if (result) return result;
    t->llama2 = true;
    t->bos = TOK_LLAMA2_BOS;
    if (t->count <= TOK_LLAMA2_BOS) return tok_fail(error, LLM42_FORMAT, path, "has no token 1, which is BOS");
    for (int b = 0; b < 256; b++) {
        char word[8];
        snprintf(word, sizeof word, "<0x%02X>", b);
        t->byte_id[b] = tok_word_id(t, word);
        if (t->byte_id[b] < 0) return tok_fail(error, LLM42_FORMAT, path, "lacks the token %s", word);
        tok_piece *piece = &t->piece[t->byte_id[b]];
        t->bytes[piece->at] = (char)b;  // decoding gives the byte itself
        piece->size = 1;
    }
    if ((t->space = tok_word_id(t, " ")) < 0) return tok_fail(error, LLM42_FORMAT, path, "lacks the token ' '");
    return LLM42_OK;
}

// Loading ----------------------------------------------------------------------------------------------------------

// Where tokenizer.json puts no token before the text, add_bos_token of the tokenizer_config.json beside it may.
static inline llm42_result tok_config_bos(tok *t, const char *file, llm42_error *error) {
    char path[2048];
    const char *slash = strrchr(file, '/');
    struct stat status;
    tok_json json, *j = &json;
    snprintf(path, sizeof path, "%.*stokenizer_config.json", slash ? (int)(slash + 1 - file) : 0, file);
    if (t->bos >= 0 || stat(path, &status)) return LLM42_OK;
    llm42_result result = tok_json_load(j, path, error);
    int token = result ? -1 : tok_json_get(j, 0, "bos_token");
    if (!result && tok_json_is(j, token, JSMN_OBJECT)) token = tok_json_get(j, token, "content");
    if (!result && tok_json_word(j, tok_json_get(j, 0, "add_bos_token"), "true") &&
        (!tok_json_is(j, token, JSMN_STRING) || (t->bos = tok_word_id(t, tok_json_string(j, token))) < 0))
        result = tok_fail(error, LLM42_FORMAT, path, "add_bos_token: bos_token is no token of %s", file);
    tok_json_free(j);
    return result;
}

static inline llm42_result tok_load(tok **t, const char *path, int vocab, llm42_error *error) {
    size_t size = strlen(path);
    *t = calloc(1, sizeof **t);
    if (!*t) return tok_fail(error, LLM42_MEMORY, path, "out of memory");
    (*t)->bos = -1;
    bool bin = size > 4 && !strcmp(path + size - 4, ".bin");
    llm42_result result = bin ? tok_load_bin(*t, path, vocab, error) : tok_load_json(*t, path, error);
    if (!result && !bin) result = tok_config_bos(*t, path, error);
    if (!result && vocab && (*t)->count > vocab)
        result = tok_fail(error, LLM42_FORMAT, path, "has %d tokens, the model %d", (*t)->count, vocab);
    if (result) {
        tok_free(*t);
        *t = NULL;
    }
    return result;
}

static inline void tok_free_scratch(tok *t) {
    pcre2_match_data_free(t->match);
    arrfree(t->symbol);
    arrfree(t->heap);
    arrfree(t->scratch);
}

static inline void tok_free(tok *t) {
    if (!t) return;
    for (int i = 0; i < t->splits; i++) pcre2_code_free(t->split[i]);
    pcre2_code_free(t->nfc);
    for (int i = 0; i < (int)arrlen(t->added); i++) free(t->added[i].text);
    arrfree(t->piece);
    arrfree(t->bytes);
    shfree(t->word);
    arrfree(t->pair);
    arrfree(t->score);
    arrfree(t->added);
    tok_free_scratch(t);
    free(t);
}

// The tokenizer's file in a model's folder.
static inline llm42_result tok_find(const char *model_path, char *file, size_t room, llm42_error *error) {
    struct stat status;
    if (!strncmp(model_path, "synthetic:", 10))
        return tok_fail(error, LLM42_INVALID, model_path, "a synthetic model has no tokenizer");
    if (stat(model_path, &status)) return tok_fail(error, LLM42_IO, model_path, "cannot open: %s", strerror(errno));
    if (strlen(model_path) + 16 > room) return tok_fail(error, LLM42_INVALID, model_path, "the path is too long");
    snprintf(file, room, "%s/tokenizer.json", model_path);
    if (!stat(file, &status)) return LLM42_OK;
    snprintf(file, room, "%s/tokenizer.bin", model_path);
    if (stat(file, &status)) snprintf(file, room, "%s/tokenizer.json", model_path);  // for the message
    return LLM42_OK;
}

static inline llm42_result tok_open(tok **t, const llm42_model *model, const char *model_path, const char *file,
                                    llm42_error *error) {
    char found[1024];
    *t = NULL;
    llm42_result result = file ? LLM42_OK : tok_find(model_path, found, sizeof found, error);
    if (!result) result = tok_load(t, file ? file : found, model->config.vocab, error);
    return result;
}

// Encoding ---------------------------------------------------------------------------------------------------------

// llama2.c's tokens <0xNN> stand for bytes that no other token could; they never merge.
static inline bool tok_is_byte(const tok *t, int32_t id) {
    return t->piece[id].size == 1 && t->byte_id[(unsigned char)t->bytes[t->piece[id].at]] == id;
}

// What left and right merge to, if they do; the lowest cost goes first.
static inline bool tok_merge_of(tok *t, int32_t left, int32_t right, tok_merged *merged) {
    if (!t->llama2) {
        uint64_t key = (uint64_t)left << 32 | (uint32_t)right;
        size_t low = 0, high = arrlenu(t->pair);  // high becomes the first pair beyond key
        while (low < high) {
            size_t middle = low + (high - low) / 2;
            if (t->pair[middle].key <= key) low = middle + 1;
            else high = middle;
        }
        if (!high || t->pair[high - 1].key != key) return false;
        *merged = (tok_merged){t->pair[high - 1].rank, t->pair[high - 1].merged};  // of equal pairs the last counts
        return true;
    }
    const tok_piece *a = &t->piece[left], *b = &t->piece[right];
    if (a->size + b->size > t->longest || tok_is_byte(t, left) || tok_is_byte(t, right)) return false;
    memcpy(t->scratch, t->bytes + a->at, (size_t)a->size);
    memcpy(t->scratch + a->size, t->bytes + b->at, (size_t)b->size);
    t->scratch[a->size + b->size] = 0;
    int id = tok_word_id(t, t->scratch);
    if (id < 0 || t->piece[id].size != a->size + b->size) return false;
    *merged = (tok_merged){-(double)t->score[id], id};
    return true;
}

static inline bool tok_before(const tok_candidate *a, const tok_candidate *b) {
    return a->cost != b->cost ? a->cost < b->cost : a->at < b->at;
}

// Puts the pair that begins at `at` on the heap, if it merges.
static inline void tok_push(tok *t, int32_t at) {
    tok_merged merged;
    if (at < 0 || t->symbol[at].next < 0) return;
    int32_t left = t->symbol[at].id, right = t->symbol[t->symbol[at].next].id;
    if (!tok_merge_of(t, left, right, &merged)) return;
    tok_candidate new = {merged.cost, at, left, right, merged.id};
    arrput(t->heap, new);
    size_t i = arrlenu(t->heap) - 1;
    for (; i > 0 && tok_before(&new, &t->heap[(i - 1) / 2]); i = (i - 1) / 2) t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = new;
}

static inline tok_candidate tok_pop(tok *t) {
    tok_candidate top = t->heap[0], last = arrpop(t->heap);
    size_t n = arrlenu(t->heap), i = 0;
    if (!n) return top;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child + 1 < n && tok_before(&t->heap[child + 1], &t->heap[child])) child++;
        if (child >= n || !tok_before(&t->heap[child], &last)) break;
        t->heap[i] = t->heap[child];
        i = child;
    }
    t->heap[i] = last;
    return top;
}

static inline void tok_symbol_add(tok *t, int32_t id) {
    int32_t n = (int32_t)arrlen(t->symbol);
    tok_symbol symbol = {id, n - 1, n + 1};
    arrput(t->symbol, symbol);
}

// Merges t->symbol until nothing merges, and appends what is left to *ids.
static inline void tok_merge_all(tok *t, int32_t **ids) {
    int32_t n = (int32_t)arrlen(t->symbol);
    if (!n) return;
    t->symbol[n - 1].next = -1;
    for (int32_t i = 0; i < n; i++) tok_push(t, i);
    while (arrlen(t->heap)) {
        tok_candidate c = tok_pop(t);
        tok_symbol *left = &t->symbol[c.at];
        if (left->id != c.left || left->next < 0 || t->symbol[left->next].id != c.right) continue;
        tok_symbol *right = &t->symbol[left->next];
        left->id = c.merged;
        left->next = right->next;
        right->id = -1;
        if (left->next >= 0) t->symbol[left->next].previous = c.at;
        tok_push(t, left->previous);
        tok_push(t, c.at);
    }
    for (int32_t i = 0; i >= 0; i = t->symbol[i].next) arrput(*ids, t->symbol[i].id);
    arrsetlen(t->symbol, 0);
}

// One piece of a text for HF.
static inline void tok_encode_piece(tok *t, const char *text, size_t size, int32_t **ids) {
    if (t->ignore_merges) {
        arrsetlen(t->scratch, 2 * size + 1);
        char *to = t->scratch;
        for (size_t i = 0; i < size; i++) to += tok_utf8_write(t->byte_char[(unsigned char)text[i]], to);
        *to = 0;
        int id = size ? tok_word_id(t, t->scratch) : -1;
        if (id >= 0) {
            arrput(*ids, id);
            return;
        }
    }
    for (size_t i = 0; i < size; i++) tok_symbol_add(t, t->byte_id[(unsigned char)text[i]]);
    tok_merge_all(t, ids);
}

// Cuts valid UTF-8 by expression `level` and what comes of it by the next ones: matches and what lies between them
// both stay. A match is encoded before the next is looked for, so one match_data serves all levels.
static inline llm42_result tok_encode_split(tok *t, const char *text, size_t size, int level, int32_t **ids,
                                            llm42_error *error) {
    if (level == t->splits) return tok_encode_piece(t, text, size, ids), LLM42_OK;
    size_t done = 0, from = 0;
    llm42_result result = LLM42_OK;
    while (from < size && !result) {
        int found = pcre2_match(t->split[level], (PCRE2_SPTR)text, size, from, PCRE2_NO_UTF_CHECK, t->match, NULL);
        if (found == PCRE2_ERROR_NOMATCH) break;
        if (found < 0)
            return tok_fail(error, LLM42_UNSUPPORTED, NULL, "pre_tokenizer: PCRE2 error %d on the text", found);
        const PCRE2_SIZE *match = pcre2_get_ovector_pointer(t->match);
        size_t begin = match[0], end = match[1];
        if (end <= begin) {  // empty: looks on behind the next character
            from = begin < size ? begin + (size_t)tok_utf8(text + begin, size - begin) : size;
            continue;
        }
        if (begin > done) result = tok_encode_split(t, text + done, begin - done, level + 1, ids, error);
        if (!result) result = tok_encode_split(t, text + begin, end - begin, level + 1, ids, error);
        done = from = end;
    }
    if (!result && done < size) result = tok_encode_split(t, text + done, size - done, level + 1, ids, error);
    return result;
}

// Text between added tokens: runs of valid UTF-8 go through the expressions, other bytes are pieces of their own.
static inline llm42_result tok_encode_segment(tok *t, const char *text, size_t size, int32_t **ids,
                                              llm42_error *error) {
    llm42_result result = LLM42_OK;
    for (size_t begin = 0, end = 0; begin < size && !result; begin = end) {
        bool valid = tok_utf8(text + begin, size - begin) > 0;
        for (int n; end < size && ((n = tok_utf8(text + end, size - end)) > 0) == valid;) end += valid ? (size_t)n : 1;
        if (!valid) {
            tok_encode_piece(t, text + begin, end - begin, ids);
            continue;
        }
        if (t->nfc && pcre2_match(t->nfc, (PCRE2_SPTR)text + begin, end - begin, 0, PCRE2_NO_UTF_CHECK, t->match,
                                  NULL) != PCRE2_ERROR_NOMATCH)
            return tok_fail(error, LLM42_UNSUPPORTED, NULL,
                            "normalizer: NFC might change the character at byte %zu of "
                            "the text, which is unsupported",
                            begin + pcre2_get_ovector_pointer(t->match)[0]);
        result = tok_encode_split(t, text + begin, end - begin, 0, ids, error);
    }
    return result;
}

// The longest added token that begins at text, or NULL.
static inline const tok_added *tok_added_at(const tok *t, const char *text, size_t size) {
    const tok_added *best = NULL;
    for (int i = 0; i < (int)arrlen(t->added); i++) {
        const tok_added *a = &t->added[i];
        if (a->text[0] == text[0] && (size_t)a->size <= size && !memcmp(a->text, text, (size_t)a->size) &&
            (!best || a->size > best->size))
            best = a;
    }
    return best;
}

// Characters, or bytes where the vocabulary lacks a character, behind a space.
static inline void tok_encode_llama2(tok *t, const char *text, size_t size, int32_t **ids) {
    arrsetlen(t->scratch, (size_t)t->longest + 8);
    if (size) tok_symbol_add(t, t->space);
    for (size_t i = 0, n; i < size; i += n) {
        // A character: a byte and up to three continuation bytes.
        for (n = 1; n < 4 && i + n < size && ((unsigned char)text[i + n] & 0xC0) == 0x80;) n++;
        memcpy(t->scratch, text + i, n);
        t->scratch[n] = 0;
        int id = strlen(t->scratch) == n ? tok_word_id(t, t->scratch) : -1;
        if (id >= 0) tok_symbol_add(t, id);
        else
            for (size_t k = 0; k < n; k++) tok_symbol_add(t, t->byte_id[(unsigned char)text[i + k]]);
    }
    tok_merge_all(t, ids);
}

// The ids of a text by a tokenizer that has scratch memory.
static inline llm42_result tok_encode_all(tok *t, const char *text, size_t size, int32_t **ids, llm42_error *error) {
    llm42_result result = LLM42_OK;
    size_t begin = 0;
    for (size_t i = 0; i < size && !result;) {
        const tok_added *added = tok_added_at(t, text + i, size - i);
        if (!added) {
            i++;
            continue;
        }
        result = tok_encode_segment(t, text + begin, i - begin, ids, error);
        arrput(*ids, added->id);
        begin = i += (size_t)added->size;
    }
    return result ? result : tok_encode_segment(t, text + begin, size - begin, ids, error);
}

static inline llm42_result tok_encode(const tok *t, const char *text, size_t size, bool bos, int32_t **ids,
                                      llm42_error *error) {
    if (size > TOK_MAX_FILE / 2) return tok_fail(error, LLM42_INVALID, NULL, "the text is too long");
    llm42_result result = LLM42_OK;
    tok own = *t;
    own.match = NULL, own.symbol = NULL, own.heap = NULL, own.scratch = NULL;
    if (bos && t->bos >= 0) arrput(*ids, t->bos);
    if (t->llama2) tok_encode_llama2(&own, text, size, ids);
    else if ((own.match = pcre2_match_data_create(1, NULL))) result = tok_encode_all(&own, text, size, ids, error);
    else result = tok_fail(error, LLM42_MEMORY, NULL, "out of memory");
    tok_free_scratch(&own);
    return result;
}

// Decoding ---------------------------------------------------------------------------------------------------------

static inline tok_text tok_piece_after(const tok *t, int32_t last, int32_t id) {
    if (id < 0 || id >= t->count || (t->llama2 && id == TOK_LLAMA2_BOS)) return (tok_text){"", 0};
    tok_text piece = {t->bytes + t->piece[id].at, (size_t)t->piece[id].size};
    if (t->llama2 && last == TOK_LLAMA2_BOS && piece.size && piece.data[0] == ' ') piece.data++, piece.size--;
    return piece;
}

static inline void tok_decode(const tok *t, const int32_t *ids, int count, char **text) {
    for (int i = 0; i < count; i++) {
        tok_text piece = tok_piece_after(t, i ? ids[i - 1] : -1, ids[i]);
        if (piece.size) memcpy(arraddnptr(*text, piece.size), piece.data, piece.size);
    }
}

// Bytes of a text before a character that is not whole. A wrong byte counts as a character.
static inline size_t tok_whole(const char *text, size_t size) {
    size_t at = 0;
    for (int n; at < size && (n = tok_utf8(text + at, size - at));) at += n > 0 ? (size_t)n : 1;
    return at;
}

static inline tok_text tok_stream_next(tok_stream *s, int32_t id) {
    if (s->returned) arrdeln(s->text, 0, s->returned);
    s->returned = 0;
    tok_text piece = tok_piece_after(s->t, s->last, id);
    s->last = id;
    if (s->skip_special && id >= 0 && id < s->t->count && s->t->piece[id].special) piece.size = 0;
    if (!arrlenu(s->text) && tok_whole(piece.data, piece.size) == piece.size) return piece;  // nothing is held back
    if (piece.size) memcpy(arraddnptr(s->text, piece.size), piece.data, piece.size);
    return (tok_text){s->text, s->returned = tok_whole(s->text, arrlenu(s->text))};
}

static inline tok_text tok_stream_end(tok_stream *s) {
    if (s->returned) arrdeln(s->text, 0, s->returned);
    s->returned = arrlenu(s->text);
    return (tok_text){s->text, s->returned};
}

static inline void tok_stream_free(tok_stream *s) {
    arrfree(s->text);
    *s = (tok_stream){0};
}

#endif  // TOKENIZER_H
