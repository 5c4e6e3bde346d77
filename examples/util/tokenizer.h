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
// Two kinds of files are read: tokenizer.json of HF with a model of kind BPE, and tokenizer.bin of llama2.c. A
// tokenizer is a pipeline, of which each part is a list of steps:
// 1. Added tokens that are not `normalized` are cut out of the text. What stands between them goes on.
// 2. The normalizer changes it: NFC, Prepend and Replace of a string.
// 3. Added tokens that are `normalized` are cut out.
// 4. The pre-tokenizer cuts it into pieces: Split by a regular expression or a string, Digits and Punctuation, each
//    with any behaviour; Metaspace; and ByteLevel, which must be the last.
// 5. The model, BPE, makes tokens of each piece: with ByteLevel of its bytes, otherwise of its characters. What the
//    vocabulary lacks becomes tokens of bytes (byte_fallback) or unk_token, or is left out, as HF does it.
// 6. The decoder makes text of tokens: ByteLevel, Metaspace, or Replace, ByteFallback, Fuse and Strip in this order.
// Any other type of a step and any other model is refused by name. llama2.c's files are such a pipeline, too: Prepend
// of a space, characters with byte_fallback, and of the merges the one with the best score first.
//
// Any text, valid UTF-8 or not, is encoded, and decodes to the same bytes if the vocabulary has all bytes. What is
// shown of broken UTF-8 (tok_stream) has one U+FFFD for each longest part of a character, as Python and HF have it, or
// with ByteFallback, as HF has it there, for each byte. (HF then also shows whole characters of the same run of bytes
// as U+FFFD, which a stream cannot know in time.) Ids depend on the installed PCRE2 for characters that are newer than
// its version of Unicode (tok_versions): PCRE2 10.42 knows those of Unicode 14. NFC has tables of its own (tok_nfc.h).
//
// tok_encode takes O(n log n) time for n bytes, without spaces too: a piece starts as a list of single bytes or
// characters, and the best mergeable pair is merged until none is left. A heap holds the mergeable pairs; pairs that an
// earlier merge has eaten are dropped as they surface. Its scratch memory is that of the call, so threads may share a
// tokenizer.
#ifdef __cplusplus
#error "tokenizer.h is C11: include it in a .c file, and call that from C++"
#elif !defined(TOKENIZER_H)
#define TOKENIZER_H

#include <math.h>

#include "tok_json.h"
#include "tok_nfc.h"

#ifndef PCRE2_CODE_UNIT_WIDTH
#define PCRE2_CODE_UNIT_WIDTH 8
#endif
#include <pcre2.h>

enum {
    TOK_MAX_STEPS = 16,       // of a part of the pipeline
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
    char *text;  // normalized if the token is `normalized`
    int size;
    int32_t id;
    bool normalized, single_word, lstrip, rstrip;
} tok_added;
typedef struct tok_symbol {
    int32_t id, previous, next;
} tok_symbol;  // id -1: merged into its left one
typedef struct tok_candidate {
    double cost;
    int32_t at, left, right, merged;
} tok_candidate;

// What a step does with a text; what Split does with its matches, in the order of tok_behaviors.
typedef enum tok_kind { TOK_NFC, TOK_PREPEND, TOK_PREFIX, TOK_REPLACE, TOK_SPLIT } tok_kind;
typedef enum tok_behavior { TOK_ISOLATED, TOK_REMOVED, TOK_WITH_PREVIOUS, TOK_WITH_NEXT, TOK_CONTIGUOUS } tok_behavior;
typedef struct tok_step {
    tok_kind kind;
    char *from, *text;      // REPLACE puts text for from; PREPEND and, unless it is there, PREFIX put it in front
    bool only_first;        // PREFIX: not behind an added token or a part that a Split has cut off
    pcre2_code *code;       // SPLIT
    tok_behavior behavior;  // SPLIT
    bool invert;            // SPLIT: matches are what lies between
} tok_step;
typedef struct tok_steps {
    tok_step step[TOK_MAX_STEPS];
    char *text[TOK_MAX_STEPS];  // scratch: what they have made
    int count;
} tok_steps;
typedef struct tok_part {
    const char *text;
    size_t size;
    bool match;   // of a Split
    bool begins;  // a prefix may be put
    bool first;   // it begins where the whole text does
} tok_part;

typedef struct tok {
    int count;         // tokens; ids are 0 to count - 1
    int bos, tail;     // ids that tok_encode puts first and last when asked to; -1: none
    bool llama2;       // a llama2.c file
    tok_piece *piece;  // [count]
    tok_piece *first;  // NULL, or [count]: what a token gives at the beginning of a text (Metaspace)
    char *bytes;
    tok_word *word;        // an stb_ds map
    ptrdiff_t words;       // of the vocabulary, which come first in it; the others are only added
    bool byte_level;       // a piece is its bytes, each as a character of byte_char
    bool byte_fallback;    // bytes stand for characters that the vocabulary lacks
    int32_t byte_id[256];  // -1: none
    uint16_t byte_char[256];
    int32_t unknown;  // -1: none
    bool fuse_unknown;
    tok_pair *pair;      // HF: the merges, by key
    float *score;        // llama2.c: [count]
    int longest;         // llama2.c: bytes in the longest token
    bool ignore_merges;  // HF: a piece that is a token as a whole is not built from merges
    tok_added *added;
    bool begins[2][256];         // first bytes of added tokens, the normalized last
    pcre2_code *word_character;  // of single_word
    tok_steps normalizer, pre, decoder;
    bool decodes_bytes, decodes_fallback, fuses;  // the other steps of the decoder
    char *strip;                                  // what Strip takes from the beginning of a decoded text, up to
    int strips;                                   // so many times
    pcre2_match_data *match;                      // from here on scratch: each call of tok_encode has its own
    tok_symbol *symbol;                           // the piece being merged
    tok_candidate *heap;
    char *scratch;
} tok;

// Loads a file: llama2.c's if its name ends in .bin, else JSON. vocab: tokens of the model, 0 if unknown; a
// tokenizer with more is refused, and so is a .bin with fewer. Errors: IO, FORMAT, UNSUPPORTED, MEMORY.
static inline llm42_result tok_load(tok **t, const char *path, int vocab, llm42_error *error);

// Loads the tokenizer of a model: `file`, or if that is NULL tokenizer.json in the model's folder, or else the
// tokenizer.bin there. The model gives the vocabulary. Whether text has a BOS says the tokenizer, never the model:
// llama2.c's always has, and tokenizer.json where its post_processor puts one. (transformers 5 ignores add_bos_token.)
static inline llm42_result tok_open(tok **t, const llm42_model *model, const char *model_path, const char *file,
                                    llm42_error *error);
static inline void tok_free(tok *t);  // NULL is fine

// Names the installed PCRE2 and its Unicode version, on which the ids of rare characters depend, as in "PCRE2 10.42
// 2022-12-11 (Unicode 14.0.0)".
static inline const char *tok_versions(char text[128]);

// Appends the ids of `size` bytes of text to the stb_ds array *ids. bos: with the tokens that the tokenizer puts around
// a text, if there are any: BOS before it, and with models of embeddings one behind it.
static inline llm42_result tok_encode(const tok *t, const char *text, size_t size, bool bos, int32_t **ids,
                                      llm42_error *error);

// Appends the bytes of ids to the stb_ds array *text, without a final 0. An id that the tokenizer does not have (a
// model's vocabulary may be padded) gives nothing, and so does llama2.c's BOS, which also eats the space after it.
static inline void tok_decode(const tok *t, const int32_t *ids, int count, char **text);

// Decoding as tokens come. Zero-initialise it but for t. What it returns is UTF-8: a character whose bytes come in
// several tokens is held back until it is whole, and what never becomes one is U+FFFD. The text returned holds until
// the next call.
typedef struct tok_stream {
    const tok *t;
    bool skip_special;  // leave BOS, EOS and the like out
    bool begun;         // a token was decoded
    int32_t last;       // the token before, to know what follows BOS
    int stripped;       // what Strip has taken
    char *text;
    char held[4];  // the beginning of a character
    int holds;     // bytes of it
    int before;    // of the returned characters, how many belong to earlier tokens (all are U+FFFD)
} tok_stream;

typedef struct tok_text {
    const char *data;
    size_t size;
} tok_text;

// Appends bytes to an stb_ds array as UTF-8, with U+FFFD for what is none.
static inline void tok_show(char **to, const char *text, size_t size);
static inline tok_text tok_stream_next(tok_stream *s, int32_t id);
static inline tok_text tok_stream_end(tok_stream *s);  // what is still held back
// Tells the stream which tokens come before. Their text is shown elsewhere, so the stream returns none of it, even if
// they end inside a character.
static inline void tok_stream_follow(tok_stream *s, const int32_t *ids, int count);
static inline void tok_stream_free(tok_stream *s);

// Steps ------------------------------------------------------------------------------------------------------------
// What normalizers and pre-tokenizers are made of; a Metaspace, for one, is a REPLACE, a PREFIX and a SPLIT.

static inline char *tok_copy(const char *text) {
    const size_t size = strlen(text) + 1;
    char *copy = malloc(size);
    return copy ? memcpy(copy, text, size) : NULL;
}

static inline llm42_result tok_step_add(tok_steps *steps, const tok_json *j, const char *field, tok_step step,
                                        const char *from, const char *text, llm42_error *error) {
    const bool room = steps->count < TOK_MAX_STEPS;
    tok_step *const s = &steps->step[room ? steps->count++ : 0];
    if (!room) {
        pcre2_code_free(step.code);
        return tok_fail(error, LLM42_UNSUPPORTED, j->path, "%s: more than %d steps", field, TOK_MAX_STEPS);
    }
    *s = step;
    if ((from && !(s->from = tok_copy(from))) || (text && !(s->text = tok_copy(text))))
        return tok_fail(error, LLM42_MEMORY, j->path, "out of memory");
    return LLM42_OK;
}

// What \s, \w and \d are in HF's expressions. PCRE2's \s also matches U+180E, its \w matches no marks, and JavaScript's
// classes differ from both.
static const char *const tok_classes[][2] = {
    {"s",
     "\\t-\\r \xC2\x85\xC2\xA0\xE1\x9A\x80\xE2\x80\x80-\xE2\x80\x8A\xE2\x80\xA8\xE2\x80\xA9\xE2\x80\xAF\xE2\x81\x9F"
     "\xE3\x80\x80"},
    {"w", "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\xE2\x92\xB6-\xE2\x93\xA9\xF0\x9F\x84\xB0-\xF0\x9F\x85\x89\xF0\x9F\x85\x90-"
          "\xF0\x9F\x85\xA9\xF0\x9F\x85\xB0-\xF0\x9F\x86\x89"},
    {"d", "\\p{Nd}"}};

// Appends an expression with these classes spelt out. False: it nests one class in another, which PCRE2 reads
// differently.
static inline bool tok_expression(char **to, const char *pattern) {
    bool class = false;  // inside brackets
    for (const char *p = pattern; *p; p++) {
        size_t i = 0;
        while (i < 3 && !(p[0] == '\\' && (p[1] | 32) == tok_classes[i][0][0] && (p[1] >= 'a' || !class))) i++;
        if (i < 3) {
            const char *open = class ? "" : p[1] >= 'a' ? "[" : "[^", *close = class ? "" : "]";
            const char *more = i == 1 && !class ? "\xC2\xB2\xC2\xB3\xC2\xB9\xC2\xBC-\xC2\xBE" : "";  // only there
            const char *spelled[] = {open, tok_classes[i][1], more, close};
            for (int k = 0; k < 4; k++) memcpy(arraddnptr(*to, strlen(spelled[k])), spelled[k], strlen(spelled[k]));
            p++;
            continue;
        }
        if (class && ((p[0] == '[' && p[1] != ':') || (p[0] == '&' && p[1] == '&'))) return false;
        if (*p == '[') class = true;
        if (*p == ']') class = false;
        arrput(*to, *p);
        if (*p == '\\' && p[1]) arrput(*to, *++p);
    }
    arrput(*to, 0);
    return true;
}

static inline llm42_result tok_compile(const char *pattern, pcre2_code **code, const char *path, const char *field,
                                       llm42_error *error) {
    int number = 0;
    PCRE2_SIZE at = 0;
    char *spelled = NULL;
    if (!tok_expression(&spelled, pattern))
        return arrfree(spelled),
               tok_fail(error, LLM42_UNSUPPORTED, path, "%s: '%s': nested classes are unsupported", field, pattern);
    *code = pcre2_compile((PCRE2_SPTR)spelled, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &number, &at, NULL);
    arrfree(spelled);
    if (!*code) {
        char text[128];
        pcre2_get_error_message(number, (PCRE2_UCHAR *)text, sizeof text);
        return tok_fail(error, LLM42_UNSUPPORTED, path, "%s: '%s': PCRE2: %s", field, pattern, text);
    }
    pcre2_jit_compile(*code, PCRE2_JIT_COMPLETE);  // without a JIT the interpreter does the same, slower
    return LLM42_OK;
}

// Applies a step to a part; writes to `to` only if the text changes.
static inline llm42_result tok_change(const tok_step *s, tok_part *part, char **to, llm42_error *error) {
    const size_t front = s->text ? strlen(s->text) : 0, from = s->from ? strlen(s->from) : 0;
    const char *text = part->text, *end = text + part->size, *found = text, *done = text;
    const bool has = part->size >= front && !memcmp(text, s->text ? s->text : "", front);
    if (!part->size || (s->kind == TOK_NFC && nfc_is(text, part->size))) return LLM42_OK;
    if (s->kind == TOK_PREFIX && (has || !part->begins || (s->only_first && !part->first))) return LLM42_OK;
    if (*to) arrsetlen(*to, 0);
    if (s->kind == TOK_NFC) nfc_append(to, text, part->size);
    if (s->kind == TOK_PREPEND || s->kind == TOK_PREFIX) memcpy(arraddnptr(*to, front), s->text, front);
    while (s->kind == TOK_REPLACE && (found = memchr(found, s->from[0], (size_t)(end - found)))) {
        if ((size_t)(end - found) < from || memcmp(found, s->from, from)) {
            found++;
            continue;
        }
        memcpy(arraddnptr(*to, (size_t)(found - done) + front), done, (size_t)(found - done));
        memcpy(*to + arrlenu(*to) - front, s->text, front);
        done = found += from;
        if (arrlenu(*to) > TOK_MAX_FILE / 2)
            return tok_fail(error, LLM42_INVALID, NULL, "the normalizer makes the text too long");
    }
    if (s->kind != TOK_NFC) memcpy(arraddnptr(*to, (size_t)(end - done)), done, (size_t)(end - done));
    part->text = *to;
    part->size = arrlenu(*to);
    return LLM42_OK;
}

// All of the steps, none of which is a SPLIT.
static inline llm42_result tok_change_all(tok_steps *s, tok_part *part, llm42_error *error) {
    llm42_result result = LLM42_OK;
    for (int i = 0; i < s->count && !result; i++) result = tok_change(&s->step[i], part, &s->text[i], error);
    return result;
}

static inline void tok_steps_free(tok_steps *s) {
    for (int i = 0; i < s->count; i++) free(s->step[i].from), free(s->step[i].text), pcre2_code_free(s->step[i].code);
    for (int i = 0; i < TOK_MAX_STEPS; i++) arrfree(s->text[i]);
}

// HF tokenizer.json: normalizer, pre-tokenizer and decoder ------------------------------------------------------------

static inline const char *tok_json_type(const tok_json *j, int i) {
    const int type = tok_json_get(j, i, "type");
    return tok_json_is(j, type, JSMN_STRING) ? tok_json_string(j, type) : "(none)";
}

// The string of a field, or `otherwise` if there is none.
static inline const char *tok_json_text(const tok_json *j, int i, const char *field, const char *otherwise) {
    const int value = tok_json_get(j, i, field);
    return tok_json_is(j, value, JSMN_STRING) ? tok_json_string(j, value) : otherwise;
}

typedef llm42_result tok_json_step(tok *t, const tok_json *j, int i, llm42_error *error);

// Calls `each` for the elements of a Sequence, of Sequences in it, or for the only one. null: none.
static inline llm42_result tok_json_sequence(tok *t, const tok_json *j, int i, const char *field, const char *list,
                                             tok_json_step *each, llm42_error *error) {
    if (tok_json_absent(j, i)) return LLM42_OK;
    if (strcmp(tok_json_type(j, i), "Sequence")) return each(t, j, i, error);
    const int items = tok_json_get(j, i, list);
    llm42_result result = LLM42_OK;
    if (!tok_json_is(j, items, JSMN_ARRAY))
        return tok_fail(error, LLM42_FORMAT, j->path, "%s.%s is not an array", field, list);
    for (int n = 0, at = items + 1; n < j->token[items].size && !result; n++, at = tok_json_next(j, at))
        result = tok_json_sequence(t, j, at, field, list, each, error);
    return result;
}

static inline llm42_result tok_json_replace(tok_steps *steps, const tok_json *j, int i, const char *field,
                                            llm42_error *error) {
    const char *from = tok_json_text(j, tok_json_get(j, i, "pattern"), "String", "");
    const char *text = tok_json_text(j, i, "content", NULL);
    if (!*from || !text)
        return tok_fail(error, LLM42_UNSUPPORTED, j->path, "%s: Replace of anything but a String is unsupported",
                        field);
    return tok_step_add(steps, j, field, (tok_step){.kind = TOK_REPLACE}, from, text, error);
}

static inline llm42_result tok_json_normalizer(tok *t, const tok_json *j, int i, llm42_error *error) {
    const char *type = tok_json_type(j, i), *field = "normalizer", *text = tok_json_text(j, i, "prepend", NULL);
    if (!strcmp(type, "NFC"))
        return tok_step_add(&t->normalizer, j, field, (tok_step){.kind = TOK_NFC}, NULL, NULL, error);
    if (!strcmp(type, "Replace")) return tok_json_replace(&t->normalizer, j, i, field, error);
    if (!strcmp(type, "Prepend") && text)
        return tok_step_add(&t->normalizer, j, field, (tok_step){.kind = TOK_PREPEND}, NULL, text, error);
    return tok_fail(error, LLM42_UNSUPPORTED, j->path,
                    "normalizer: type '%s' is unsupported: only NFC, Prepend, Replace and a Sequence of them are",
                    type);
}

static inline llm42_result tok_json_cut(tok *t, const tok_json *j, int i, const char *pattern, llm42_error *error) {
    static const char *const tok_behaviors[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext",
                                                "Contiguous"};
    const char *behavior = tok_json_text(j, i, "behavior", "Isolated");
    tok_step step = {.kind = TOK_SPLIT, .invert = tok_json_word(j, tok_json_get(j, i, "invert"), "true")};
    while (step.behavior < 5 && strcmp(behavior, tok_behaviors[step.behavior])) step.behavior++;
    if (step.behavior == 5)
        return tok_fail(error, LLM42_UNSUPPORTED, j->path, "pre_tokenizer: behavior '%s' is unsupported", behavior);
    llm42_result result = tok_compile(pattern, &step.code, j->path, "pre_tokenizer", error);
    return result ? result : tok_step_add(&t->pre, j, "pre_tokenizer", step, NULL, NULL, error);
}

// Cuts where a string stands: an expression with its special characters escaped.
static inline llm42_result tok_json_cut_by(tok *t, const tok_json *j, int i, const char *string, llm42_error *error) {
    char *pattern = NULL;
    if (!*string) return tok_fail(error, LLM42_UNSUPPORTED, j->path, "pre_tokenizer: Split by an empty String");
    for (const char *s = string; *s; s++) {
        if (strchr("^$\\.*+?()[]{}|/", *s)) arrput(pattern, '\\');
        arrput(pattern, *s);
    }
    arrput(pattern, 0);
    llm42_result result = tok_json_cut(t, j, i, pattern, error);
    arrfree(pattern);
    return result;
}

static inline llm42_result tok_json_metaspace(tok *t, const tok_json *j, int i, llm42_error *error) {
    const char *mark = tok_json_text(j, i, "replacement", "\xE2\x96\x81"), *field = "pre_tokenizer";
    const char *scheme = tok_json_text(j, i, "prepend_scheme", "always");
    if (tok_json_word(j, tok_json_get(j, i, "add_prefix_space"), "false")) scheme = "never";
    const tok_step prefix = {.kind = TOK_PREFIX, .only_first = !strcmp(scheme, "first")};
    if (strcmp(scheme, "always") && strcmp(scheme, "first") && strcmp(scheme, "never"))
        return tok_fail(error, LLM42_UNSUPPORTED, j->path, "%s: Metaspace.prepend_scheme '%s' is unsupported", field,
                        scheme);
    llm42_result result = tok_step_add(&t->pre, j, field, (tok_step){.kind = TOK_REPLACE}, " ", mark, error);
    if (!result && strcmp(scheme, "never")) result = tok_step_add(&t->pre, j, field, prefix, NULL, mark, error);
    if (result || tok_json_word(j, tok_json_get(j, i, "split"), "false")) return result;
    result = tok_json_cut_by(t, j, i, mark, error);
    if (!result) t->pre.step[t->pre.count - 1].behavior = TOK_WITH_NEXT;
    return result;
}

static inline llm42_result tok_json_pre_tokenizer(tok *t, const tok_json *j, int i, llm42_error *error) {
    static const char *gpt2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
    const char *type = tok_json_type(j, i);
    if (t->byte_level) return tok_fail(error, LLM42_UNSUPPORTED, j->path, "pre_tokenizer: something after ByteLevel");
    if (!strcmp(type, "Digits"))
        return tok_json_cut(
            t, j, i, tok_json_word(j, tok_json_get(j, i, "individual_digits"), "true") ? "\\p{N}" : "\\p{N}+", error);
    if (!strcmp(type, "Punctuation")) return tok_json_cut(t, j, i, "[\\p{P}$+<=>^`|~]", error);
    if (!strcmp(type, "Metaspace")) return tok_json_metaspace(t, j, i, error);
    if (!strcmp(type, "Split")) {
        const int pattern = tok_json_get(j, i, "pattern");
        const char *regex = tok_json_text(j, pattern, "Regex", NULL),
                   *string = tok_json_text(j, pattern, "String", NULL);
        if (regex) return tok_json_cut(t, j, i, regex, error);
        if (string) return tok_json_cut_by(t, j, i, string, error);
        return tok_fail(error, LLM42_UNSUPPORTED, j->path,
                        "pre_tokenizer: a Split pattern that is neither a Regex nor a String");
    }
    if (strcmp(type, "ByteLevel"))
        return tok_fail(error, LLM42_UNSUPPORTED, j->path, "pre_tokenizer: type '%s' is unsupported", type);
    t->byte_level = true;
    llm42_result result = LLM42_OK;
    if (tok_json_word(j, tok_json_get(j, i, "add_prefix_space"), "true"))
        result = tok_step_add(&t->pre, j, "pre_tokenizer", (tok_step){.kind = TOK_PREFIX}, NULL, " ", error);
    if (!result && !tok_json_word(j, tok_json_get(j, i, "use_regex"), "false"))
        result = tok_json_cut(t, j, i, gpt2, error);
    return result;
}

// Decoding Metaspace replaces its mark by a space, but drops the mark that begins a text.
static inline llm42_result tok_json_decoder(tok *t, const tok_json *j, int i, llm42_error *error) {
    const char *type = tok_json_type(j, i);
    const bool early = !t->decodes_fallback && !t->fuses, none = early && !t->decoder.count;
    if (t->decodes_bytes || (!strcmp(type, "ByteLevel") && !none))
        return tok_fail(error, LLM42_UNSUPPORTED, j->path, "decoder: something beside ByteLevel");
    if (!strcmp(type, "ByteLevel")) return t->decodes_bytes = true, LLM42_OK;
    if (!strcmp(type, "Replace") && early) return tok_json_replace(&t->decoder, j, i, "decoder", error);
    if (!strcmp(type, "ByteFallback") && early) return t->decodes_fallback = true, LLM42_OK;
    if (!strcmp(type, "Fuse") && !t->strip) return t->fuses = true, LLM42_OK;
    if (!strcmp(type, "Metaspace") && early) {
        const bool never = !strcmp(tok_json_text(j, i, "prepend_scheme", "always"), "never") ||
                           tok_json_word(j, tok_json_get(j, i, "add_prefix_space"), "false");
        return tok_step_add(&t->decoder, j, "decoder", (tok_step){.kind = TOK_REPLACE, .only_first = !never},
                            tok_json_text(j, i, "replacement", "\xE2\x96\x81"), " ", error);
    }
    int32_t stop = 1;
    const char *content = tok_json_text(j, i, "content", "");
    const bool strip = !strcmp(type, "Strip") && t->fuses && !t->strip && *content &&
                       tok_json_int(j, tok_json_get(j, i, "start"), &t->strips) &&
                       tok_json_int(j, tok_json_get(j, i, "stop"), &stop) && stop == 0;
    if (strip)
        return (t->strip = tok_copy(content)) ? LLM42_OK : tok_fail(error, LLM42_MEMORY, j->path, "out of memory");
    return tok_fail(error, LLM42_UNSUPPORTED, j->path, "decoder: type '%s' is unsupported%s", type,
                    strcmp(type, "Strip") ? " in this place" : " but for the beginning of a text, behind Fuse");
}

// HF tokenizer.json: the vocabulary ----------------------------------------------------------------------------------
// Byte-level ones spell bytes as characters: printable ASCII and Latin-1 stand for themselves, the other 68 bytes, in
// order, for U+0100 and on.

static inline void tok_byte_chars(uint16_t byte_char[256]) {
    uint16_t next = 256;
    for (int b = 0; b < 256; b++) {
        bool itself = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        byte_char[b] = itself ? (uint16_t)b : next++;
    }
}

// The place of a word in the map, or -1. shgeti would put it into the map, where other threads put theirs.
static inline ptrdiff_t tok_word_at(const tok *t, const char *word) {
    void *map = t->word, *key = (void *)(uintptr_t)word;
    ptrdiff_t i = -1;
    if (map) stbds_hmget_key_ts(map, sizeof *t->word, key, sizeof t->word->key, &i, STBDS_HM_STRING);
    return i;
}

static inline int32_t tok_word_id(const tok *t, const char *word) {
    const ptrdiff_t i = tok_word_at(t, word);
    return i < 0 ? -1 : t->word[i].value;
}

// The id in the model's vocabulary, in which tokens that are only added are not.
static inline int32_t tok_model_id(const tok *t, const char *word) {
    const ptrdiff_t i = tok_word_at(t, word);
    return i < 0 || i >= t->words ? -1 : t->word[i].value;
}

// Of model.vocab.
static inline llm42_result tok_json_words(tok *t, const tok_json *j, int vocab, llm42_error *error) {
    sh_new_strdup(t->word);
    for (int n = 0, i = vocab + 1; n < j->token[vocab].size; n++, i = tok_json_next(j, i + 1)) {
        const char *word = tok_json_string(j, i);
        int32_t id;
        if (!tok_json_int(j, i + 1, &id))
            return tok_fail(error, LLM42_FORMAT, j->path, "model.vocab: the id of '%s' is not a whole number", word);
        if (tok_word_id(t, word) >= 0)
            return tok_fail(error, LLM42_FORMAT, j->path, "model.vocab: '%s' stands there twice", word);
        shput(t->word, word, id);
    }
    t->words = shlen(t->word);
    return LLM42_OK;
}

// Number n of added_tokens, at i, is entered into t->word, too.
static inline llm42_result tok_json_added(tok *t, const tok_json *j, int n, int i, llm42_error *error) {
    const char *word = tok_json_text(j, i, "content", ""), *flags[] = {"normalized", "single_word", "lstrip", "rstrip"};
    bool yes[4];
    int32_t id;
    if (!*word) return tok_fail(error, LLM42_FORMAT, j->path, "added_tokens[%d].content is not a text", n);
    if (!tok_json_int(j, tok_json_get(j, i, "id"), &id))
        return tok_fail(error, LLM42_FORMAT, j->path, "added_tokens[%d].id is not a whole number", n);
    const int known = tok_word_id(t, word);
    if (known >= 0 && known != id)
        return tok_fail(error, LLM42_FORMAT, j->path, "added_tokens[%d].id is %d, but model.vocab has '%s' as %d", n,
                        id, word, known);
    for (int f = 0; f < 4; f++) yes[f] = tok_json_word(j, tok_json_get(j, i, flags[f]), "true");
    if (yes[1] && !t->word_character) {  // \w as HF means it
        llm42_result result = tok_compile(
            "[\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\xE2\x80\x8C\xE2\x80\x8D\xE2\x92\xB6-\xE2\x93"
            "\xA9\xF0\x9F\x84\xB0-\xF0\x9F\x85\x89\xF0\x9F\x85\x90-\xF0\x9F\x85\xA9\xF0\x9F"
            "\x85\xB0-\xF0\x9F\x86\x89]",
            &t->word_character, j->path, "added_tokens", error);
        if (result) return result;
    }
    tok_part part = {.text = word, .size = strlen(word)};
    llm42_result result = yes[0] ? tok_change_all(&t->normalizer, &part, error) : LLM42_OK;
    if (result) return result;
    tok_added entry = {malloc(part.size + 1), (int)part.size, id, yes[0], yes[1], yes[2], yes[3]};
    if (!entry.text) return tok_fail(error, LLM42_MEMORY, j->path, "out of memory");
    memcpy(entry.text, part.text, part.size);
    entry.text[part.size] = 0;
    arrput(t->added, entry);
    t->begins[yes[0]][(unsigned char)entry.text[0]] = true;
    shput(t->word, word, id);
    return LLM42_OK;
}

// Appends what a byte-level word spells. Other characters, as some added tokens have them, stand for themselves.
static inline void tok_spell(tok *t, const char *word, const int16_t *byte_of) {
    const size_t size = strlen(word), begin = arrlenu(t->bytes);
    size_t at = 0;
    while (byte_of && at < size) {
        const int length = tok_utf8(word + at, size - at);
        const uint32_t c = length > 0 ? tok_utf8_read(word + at, length) : 512;
        if (c >= 512 || byte_of[c] < 0) break;
        arrput(t->bytes, (char)byte_of[c]);
        at += (size_t)length;
    }
    if (at == size) return;
    arrsetlen(t->bytes, begin);
    memcpy(arraddnptr(t->bytes, size), word, size);
}

// The byte of a token that is spelled <0xNN>; -1: it is none.
static inline int tok_fallback_byte(const char *word, size_t size) {
    static const char digits[] = "0123456789abcdefABCDEF";
    if (size != 6 || memcmp(word, "<0x", 3) || word[5] != '>') return -1;
    const char *high = strchr(digits, word[3]), *low = strchr(digits, word[4]);
    if (!high || !low) return -1;
    const int h = (int)(high - digits), l = (int)(low - digits);
    return (h > 15 ? h - 6 : h) * 16 + (l > 15 ? l - 6 : l);
}

// Decodes a word. first: as the beginning of a text.
static inline llm42_result tok_piece_set(tok *t, tok_piece *piece, const char *word, bool first, const int16_t *byte_of,
                                         llm42_error *error) {
    tok_part part = {.text = word, .size = strlen(word)};
    char nothing[] = "";
    piece->at = arrlenu(t->bytes);
    piece->set = true;
    for (int k = 0; k < t->decoder.count; k++) {
        tok_step rule = t->decoder.step[k];
        if (rule.only_first && first) rule.text = nothing;
        const llm42_result result = tok_change(&rule, &part, &t->decoder.text[k], error);
        if (result) return result;
    }
    const int byte = t->decodes_fallback ? tok_fallback_byte(part.text, part.size) : -1;
    if (byte >= 0) arrput(t->bytes, (char)byte);
    else if (t->decodes_bytes) tok_spell(t, word, byte_of);
    else if (part.size) memcpy(arraddnptr(t->bytes, part.size), part.text, part.size);
    piece->size = (int)(arrlenu(t->bytes) - piece->at);
    return LLM42_OK;
}

// Checks that ids are exactly 0 to count - 1, and decodes all words.
static inline llm42_result tok_json_pieces(tok *t, const tok_json *j, int added, llm42_error *error) {
    int16_t byte_of[512];
    llm42_result result = LLM42_OK;
    memset(byte_of, -1, sizeof byte_of);
    for (int b = 0; b < 256; b++) byte_of[t->byte_char[b]] = (int16_t)b;
    t->count = (int)shlen(t->word);
    arrsetlen(t->piece, t->count);
    for (int k = 0; k < t->decoder.count; k++)
        if (t->decoder.step[k].only_first) arrsetlen(t->first, t->count);
    if (t->count) memset(t->piece, 0, (size_t)t->count * sizeof *t->piece);
    for (int n = 0; n < t->count && !result; n++) {
        const int32_t id = t->word[n].value;
        const char *word = t->word[n].key;
        if (id >= t->count)
            return tok_fail(error, LLM42_FORMAT, j->path,
                            "model.vocab: id %d of '%s' leaves gaps: %d tokens need the ids 0 to %d", id, word,
                            t->count, t->count - 1);
        if (t->piece[id].set)
            return tok_fail(error, LLM42_FORMAT, j->path, "model.vocab: id %d of '%s' is another token's too", id,
                            word);
        result = tok_piece_set(t, &t->piece[id], word, false, byte_of, error);
        if (!result && t->first) result = tok_piece_set(t, &t->first[id], word, true, byte_of, error);
    }
    for (int n = 0, i = added + 1; n < (int)arrlen(t->added) && !result; n++, i = tok_json_next(j, i)) {
        tok_piece *const piece = &t->piece[t->added[n].id];
        result = tok_piece_set(t, piece, t->added[n].text, false, NULL, error);
        if (!result && t->first)
            result = tok_piece_set(t, &t->first[t->added[n].id], t->added[n].text, true, NULL, error);
        piece->special = tok_json_word(j, tok_json_get(j, i, "special"), "true");
    }
    for (int b = 0; b < 256; b++) {
        char word[8] = {0};
        if (t->byte_level) tok_utf8_write(t->byte_char[b], word);
        else snprintf(word, sizeof word, "<0x%02X>", (unsigned)b);
        t->byte_id[b] = tok_model_id(t, word);
    }
    return result;
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
            if ((id[k] = tok_model_id(t, words[k])) < 0)
                return tok_fail(error, LLM42_FORMAT, j->path, "model.merges[%d] names '%s', which model.vocab lacks", n,
                                words[k]);
        tok_pair pair = {(uint64_t)id[0] << 32 | (uint32_t)id[1], n, id[2]};
        arrput(t->pair, pair);
    }
    if (t->pair) qsort(t->pair, arrlenu(t->pair), sizeof *t->pair, tok_pair_order);
    return LLM42_OK;
}

// The fields around the vocabulary that change what encoding does: each is understood or refused.
static inline llm42_result tok_json_settings(tok *t, const tok_json *j, int model, llm42_error *error) {
    static const char *const none[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix"};
    const int decoder = tok_json_get(j, 0, "decoder");
    double dropout = 1;
    for (int f = 0; f < 3; f++) {
        int i = tok_json_get(j, model, none[f]);
        const bool zero = !f && tok_json_number(j, i, &dropout) && dropout == 0;
        if (!tok_json_absent(j, i) && !tok_json_same(j, i, "") && !zero)
            return tok_fail(error, LLM42_UNSUPPORTED, j->path, "model.%s is unsupported", none[f]);
    }
    t->byte_fallback = tok_json_word(j, tok_json_get(j, model, "byte_fallback"), "true");
    t->fuse_unknown = tok_json_word(j, tok_json_get(j, model, "fuse_unk"), "true");
    t->ignore_merges = tok_json_word(j, tok_json_get(j, model, "ignore_merges"), "true");
    llm42_result result = tok_json_sequence(t, j, tok_json_get(j, 0, "normalizer"), "normalizer", "normalizers",
                                            tok_json_normalizer, error);
    if (!result)
        result = tok_json_sequence(t, j, tok_json_get(j, 0, "pre_tokenizer"), "pre_tokenizer", "pretokenizers",
                                   tok_json_pre_tokenizer, error);
    if (!result) result = tok_json_sequence(t, j, decoder, "decoder", "decoders", tok_json_decoder, error);
    if (tok_json_absent(j, decoder) && t->byte_level) t->decodes_bytes = true;
    else if (!result && tok_json_absent(j, decoder))
        return tok_fail(error, LLM42_UNSUPPORTED, j->path, "decoder: null is unsupported without ByteLevel");
    return result;
}

// What stands for characters that the vocabulary lacks.
static inline llm42_result tok_json_unknown(tok *t, const tok_json *j, int model, llm42_error *error) {
    const char *word = tok_json_text(j, model, "unk_token", NULL);
    bool all = t->byte_level || t->byte_fallback;
    for (int b = 0; b < 256; b++) all &= t->byte_id[b] >= 0;
    if (!word || all) return LLM42_OK;  // there is none
    if ((t->unknown = tok_model_id(t, word)) >= 0) return LLM42_OK;
    return tok_fail(error, LLM42_FORMAT, j->path, "model.unk_token: '%s' is not in model.vocab", word);
}

// BOS is the special token that a TemplateProcessing, alone or in a Sequence, puts before the text. Another token may
// follow the text.
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
    int32_t *place = &t->bos;
    for (int n = 0, i = single + 1; n < j->token[single].size; n++, i = tok_json_next(j, i)) {
        const char *word = tok_json_text(j, tok_json_get(j, i, "SpecialToken"), "id", NULL);
        if (word && *place >= 0)
            return tok_fail(error, LLM42_UNSUPPORTED, j->path, "post_processor.single: more than one token in a place");
        if (word && (*place = tok_word_id(t, word)) < 0)
            return tok_fail(error, LLM42_FORMAT, j->path, "post_processor.single[%d].SpecialToken.id is not a token",
                            n);
        if (!word) place = &t->tail;
    }
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
    if (!result) result = tok_json_words(t, j, vocab, error);
    for (int n = 0, i = added + 1; added >= 0 && n < j->token[added].size && !result; n++, i = tok_json_next(j, i))
        result = tok_json_added(t, j, n, i, error);
    if (!result) result = tok_json_pieces(t, j, added, error);
    if (!result) result = tok_json_unknown(t, j, model, error);
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
    t->llama2 = t->byte_fallback = true;
    t->bos = TOK_LLAMA2_BOS;
    t->words = shlen(t->word);
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
    if (tok_word_id(t, " ") < 0) return tok_fail(error, LLM42_FORMAT, path, "lacks the token ' '");
    return tok_step_add(&t->normalizer, &(tok_json){.path = path}, path, (tok_step){.kind = TOK_PREPEND}, NULL, " ",
                        error);
}

// Loading ----------------------------------------------------------------------------------------------------------

static inline llm42_result tok_load(tok **t, const char *path, int vocab, llm42_error *error) {
    size_t size = strlen(path);
    *t = calloc(1, sizeof **t);
    if (!*t) return tok_fail(error, LLM42_MEMORY, path, "out of memory");
    (*t)->bos = (*t)->tail = (*t)->unknown = -1;
    bool bin = size > 4 && !strcmp(path + size - 4, ".bin");
    llm42_result result = bin ? tok_load_bin(*t, path, vocab, error) : tok_load_json(*t, path, error);
    if (!result && vocab && (*t)->count > vocab)
        result = tok_fail(error, LLM42_FORMAT, path, "has %d tokens, the model %d", (*t)->count, vocab);
    if (result) {
        tok_free(*t);
        *t = NULL;
    }
    return result;
}

static inline void tok_free_scratch(tok *t) {
    tok_steps *const steps[] = {&t->normalizer, &t->pre, &t->decoder};
    for (int s = 0; s < 3; s++)
        for (int i = 0; i < TOK_MAX_STEPS; i++) arrfree(steps[s]->text[i]);
    pcre2_match_data_free(t->match);
    arrfree(t->symbol);
    arrfree(t->heap);
    arrfree(t->scratch);
}

static inline void tok_free(tok *t) {
    if (!t) return;
    tok_free_scratch(t);
    tok_steps_free(&t->normalizer), tok_steps_free(&t->pre), tok_steps_free(&t->decoder);
    pcre2_code_free(t->word_character);
    for (int i = 0; i < (int)arrlen(t->added); i++) free(t->added[i].text);
    free(t->strip);
    arrfree(t->piece);
    arrfree(t->first);
    arrfree(t->bytes);
    shfree(t->word);
    arrfree(t->pair);
    arrfree(t->score);
    arrfree(t->added);
    free(t);
}

static inline const char *tok_versions(char text[128]) {
    char version[64] = "?", unicode[64] = "?";
    pcre2_config(PCRE2_CONFIG_VERSION, version);
    pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, unicode);
    return snprintf(text, 128, "PCRE2 %.40s (Unicode %.20s)", version, unicode), text;
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

// Tokens of the characters of a piece, or of its bytes. `pending` is an unknown token to which the next unknown
// character may belong. If a character falls back to bytes, HF places them before the pending unknown token.
static inline void tok_symbols(tok *t, const char *text, size_t size) {
    int32_t pending = -1;
    for (size_t i = 0, n; i < size; i += n) {
        const int whole = t->byte_level ? 1 : tok_utf8(text + i, size - i);
        bool bytes = t->byte_fallback || whole < 1;
        int32_t id = -1;
        n = whole < 1 ? 1 : (size_t)whole;
        if (t->byte_level) {
            id = t->byte_id[(unsigned char)text[i]];
        } else if (whole > 0 && text[i]) {
            char one[5] = {0};
            memcpy(one, text + i, n);
            id = tok_model_id(t, one);
        }
        for (size_t k = 0; k < n && id < 0; k++) bytes &= t->byte_id[(unsigned char)text[i + k]] >= 0;
        if (id < 0 && bytes && !t->byte_level) {
            for (size_t k = 0; k < n; k++) tok_symbol_add(t, t->byte_id[(unsigned char)text[i + k]]);
            continue;
        }
        if (pending >= 0 && (id >= 0 || !t->fuse_unknown)) tok_symbol_add(t, pending);
        pending = id < 0 ? t->unknown : -1;
        if (id >= 0) tok_symbol_add(t, id);
    }
    if (pending >= 0) tok_symbol_add(t, pending);
}

// One piece of a text.
static inline void tok_encode_piece(tok *t, const char *text, size_t size, int32_t **ids) {
    if (t->ignore_merges) {
        arrsetlen(t->scratch, 2 * size + 1);
        char *to = t->scratch;
        for (size_t i = 0; i < size && t->byte_level; i++)
            to += tok_utf8_write(t->byte_char[(unsigned char)text[i]], to);
        if (!t->byte_level) memcpy(to, text, size), to += size;
        *to = 0;
        int id = strlen(t->scratch) == (size_t)(to - t->scratch) ? tok_model_id(t, t->scratch) : -1;
        if (id >= 0) {
            arrput(*ids, id);
            return;
        }
    }
    if (t->llama2) arrsetlen(t->scratch, (size_t)t->longest + 8);
    tok_symbols(t, text, size);
    tok_merge_all(t, ids);
}

static inline llm42_result tok_encode_steps(tok *t, tok_part part, int level, int32_t **ids, llm42_error *error);

// The next part of a text that a SPLIT cuts: the one before it goes on to the next step, unless the two are one.
static inline llm42_result tok_encode_part(tok *t, tok_part *held, tok_part next, int level, int32_t **ids,
                                           llm42_error *error) {
    const tok_step *s = &t->pre.step[level];
    const tok_part done = *held;
    *held = next;
    if ((s->behavior == TOK_CONTIGUOUS && done.match == next.match) ||
        (s->behavior == TOK_WITH_PREVIOUS && next.match && !done.match) ||
        (s->behavior == TOK_WITH_NEXT && done.match && !next.match)) {
        *held = done;
        held->size += next.size, held->match = next.match;
        return LLM42_OK;
    }
    return s->behavior == TOK_REMOVED && done.match ? LLM42_OK : tok_encode_steps(t, done, level + 1, ids, error);
}

// Cuts valid UTF-8 by SPLIT `level`. A part goes through all later steps before the next match is looked for, so one
// match_data serves all levels. An empty match cuts, too, but not right behind another match.
static inline llm42_result tok_encode_split(tok *t, tok_part whole, int level, int32_t **ids, llm42_error *error) {
    const tok_step *s = &t->pre.step[level];
    tok_part held = whole;
    size_t done = 0, last = SIZE_MAX;
    llm42_result result = LLM42_OK;
    held.size = 0;
    for (size_t from = 0; from <= whole.size && !result;) {
        int found = pcre2_match(s->code, (PCRE2_SPTR)whole.text, whole.size, from, PCRE2_NO_UTF_CHECK, t->match, NULL);
        if (found < 0 && found != PCRE2_ERROR_NOMATCH)
            return tok_fail(error, LLM42_UNSUPPORTED, NULL, "pre_tokenizer: PCRE2 error %d on the text", found);
        const PCRE2_SIZE *match = pcre2_get_ovector_pointer(t->match);
        const size_t begin = found < 0 ? whole.size : match[0], end = found < 0 ? whole.size : match[1];
        if (found > 0 && begin >= end && begin == last) {
            from = begin < whole.size ? begin + (size_t)tok_utf8(whole.text + begin, whole.size - begin) : SIZE_MAX;
            continue;
        }
        const bool first = whole.first && !done, begins = whole.begins || done;
        const tok_part between = {whole.text + done, begin - done, s->invert, begins, first};
        const tok_part matched = {whole.text + begin, end - begin, !s->invert, whole.begins || begin,
                                  whole.first && !begin};
        if (between.size) result = tok_encode_part(t, &held, between, level, ids, error);
        if (found < 0) break;
        if (!result) result = tok_encode_part(t, &held, matched, level, ids, error);
        done = from = last = end;
    }
    const bool removed = s->behavior == TOK_REMOVED && held.match;
    return result || removed ? result : tok_encode_steps(t, held, level + 1, ids, error);
}

// Valid UTF-8 from step `level` of the pre-tokenizer on.
static inline llm42_result tok_encode_steps(tok *t, tok_part part, int level, int32_t **ids, llm42_error *error) {
    if (!part.size) return LLM42_OK;
    if (level == t->pre.count) return tok_encode_piece(t, part.text, part.size, ids), LLM42_OK;
    if (t->pre.step[level].kind == TOK_SPLIT) return tok_encode_split(t, part, level, ids, error);
    llm42_result result = tok_change(&t->pre.step[level], &part, &t->pre.text[level], error);
    return result ? result : tok_encode_steps(t, part, level + 1, ids, error);
}

// A normalized text between added tokens: runs of valid UTF-8 go through the pre-tokenizer, other bytes are pieces of
// their own.
static inline llm42_result tok_encode_runs(tok *t, tok_part part, int32_t **ids, llm42_error *error) {
    llm42_result result = LLM42_OK;
    for (size_t begin = 0, end = 0; begin < part.size && !result; begin = end) {
        bool valid = tok_utf8(part.text + begin, part.size - begin) > 0;
        for (int n; end < part.size && ((n = tok_utf8(part.text + end, part.size - end)) > 0) == valid;)
            end += valid ? (size_t)n : 1;
        const tok_part run = {part.text + begin, end - begin, false, !begin, part.first && !begin};
        if (valid) result = tok_encode_steps(t, run, 0, ids, error);
        else tok_encode_piece(t, run.text, run.size, ids);
    }
    return result;
}

// The longest added token of a kind that begins at text, or NULL.
static inline const tok_added *tok_added_at(const tok *t, const char *text, size_t size, bool normalized) {
    const tok_added *best = NULL;
    if (!t->begins[normalized][(unsigned char)text[0]]) return NULL;
    for (int i = 0; i < (int)arrlen(t->added); i++) {
        const tok_added *a = &t->added[i];
        if (a->normalized == normalized && a->text[0] == text[0] && (size_t)a->size <= size &&
            !memcmp(a->text, text, (size_t)a->size) && (!best || a->size > best->size))
            best = a;
    }
    return best;
}

// Bytes of the character before place `at` of a text; 0: none, or no UTF-8.
static inline size_t tok_utf8_before(const char *text, size_t at) {
    for (size_t n = 1; n <= 4 && n <= at; n++)
        if (tok_utf8(text + at - n, n) == (int)n) return n;
    return 0;
}

static inline bool tok_is_word(const tok *t, const char *text, int size) {
    return size > 0 && pcre2_match(t->word_character, (PCRE2_SPTR)text, (size_t)size, 0, PCRE2_NO_UTF_CHECK, t->match,
                                   NULL) != PCRE2_ERROR_NOMATCH;
}

static inline bool tok_is_space(const char *text, int size) {
    const uint32_t c = size > 0 ? tok_utf8_read(text, size) : 0;
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

// Cuts out the added tokens of a kind, with the spaces that belong to them; what is left goes on. A single_word
// token inside a longer word is left as text.
static inline llm42_result tok_encode_added(tok *t, tok_part part, bool normalized, int32_t **ids, llm42_error *error) {
    llm42_result result = LLM42_OK;
    size_t done = 0;
    for (size_t i = 0; i <= part.size && !result;) {
        const tok_added *a = i < part.size ? tok_added_at(t, part.text + i, part.size - i, normalized) : NULL;
        if (!a && i < part.size) {
            i++;
            continue;
        }
        size_t begin = i, end = i + (size_t)(a ? a->size : 0);
        i = a ? end : i + 1;
        if (a && a->single_word) {
            const size_t before = tok_utf8_before(part.text, begin);
            const int after = end < part.size ? tok_utf8(part.text + end, part.size - end) : 0;
            if (tok_is_word(t, part.text + begin - before, (int)before) || tok_is_word(t, part.text + end, after))
                continue;
        }
        for (size_t n; a && a->lstrip && begin > done && (n = tok_utf8_before(part.text, begin)) &&
                       tok_is_space(part.text + begin - n, (int)n);)
            begin -= n;
        for (int n; a && a->rstrip && end < part.size && (n = tok_utf8(part.text + end, part.size - end)) > 0 &&
                    tok_is_space(part.text + end, n);)
            end += (size_t)n;
        tok_part text = {part.text + done, begin > done ? begin - done : 0, false, true, part.first && !done};
        if (text.size && normalized) result = tok_encode_runs(t, text, ids, error);
        else if (text.size && !(result = tok_change_all(&t->normalizer, &text, error)))
            result = tok_encode_added(t, text, true, ids, error);
        if (a && !result) arrput(*ids, a->id);
        done = end;
    }
    return result;
}

static inline llm42_result tok_encode(const tok *t, const char *text, size_t size, bool bos, int32_t **ids,
                                      llm42_error *error) {
    if (size > TOK_MAX_FILE / 2) return tok_fail(error, LLM42_INVALID, NULL, "the text is too long");
    llm42_result result = LLM42_OK;
    tok own = *t;
    own.match = NULL, own.symbol = NULL, own.heap = NULL, own.scratch = NULL;
    memset(own.normalizer.text, 0, sizeof own.normalizer.text);
    memset(own.pre.text, 0, sizeof own.pre.text);
    memset(own.decoder.text, 0, sizeof own.decoder.text);
    if (bos && t->bos >= 0) arrput(*ids, t->bos);
    if ((own.match = pcre2_match_data_create(1, NULL)))
        result = tok_encode_added(&own, (tok_part){.text = text, .size = size, .first = true}, false, ids, error);
    else result = tok_fail(error, LLM42_MEMORY, NULL, "out of memory");
    if (bos && t->tail >= 0 && !result) arrput(*ids, t->tail);
    tok_free_scratch(&own);
    return result;
}

// Decoding ---------------------------------------------------------------------------------------------------------

// What token `id` adds to a text of which s knows how it begins.
static inline tok_text tok_piece_next(tok_stream *s, int32_t id) {
    const tok *t = s->t;
    const int32_t last = s->last;
    const bool known = id >= 0 && id < t->count;
    s->last = id;
    if (!known || (t->llama2 && id == TOK_LLAMA2_BOS) || (s->skip_special && t->piece[id].special))
        return (tok_text){"", 0};
    const tok_piece *p = t->first && !s->begun ? &t->first[id] : &t->piece[id];
    tok_text piece = {t->bytes + p->at, (size_t)p->size};
    const size_t strip = t->strip ? strlen(t->strip) : 0;
    s->begun = true;
    if (t->llama2 && last == TOK_LLAMA2_BOS && piece.size && piece.data[0] == ' ') piece.data++, piece.size--;
    for (; s->stripped < t->strips && piece.size >= strip && !memcmp(piece.data, t->strip, strip); s->stripped++)
        piece.data += strip, piece.size -= strip;
    if (piece.size) s->stripped = t->strips;
    return piece;
}

static inline void tok_decode(const tok *t, const int32_t *ids, int count, char **text) {
    tok_stream s = {.t = t, .last = -1};
    for (int i = 0; i < count; i++) {
        tok_text piece = tok_piece_next(&s, ids[i]);
        if (piece.size) memcpy(arraddnptr(*text, piece.size), piece.data, piece.size);
    }
}

static inline void tok_show_broken(char **to, int times) {
    for (; times > 0; times--) memcpy(arraddnptr(*to, 3), "\xEF\xBF\xBD", 3);
}

// Appends whole characters of a text, and U+FFFD for each part that is none, or for each byte of it if `each`, up to
// the beginning of one at its end. Returns the bytes taken.
static inline size_t tok_show_whole(char **to, const char *text, size_t size, bool each) {
    size_t at = 0;
    for (int n; at < size && (n = tok_utf8(text + at, size - at)); at += (size_t)(n < 0 ? -n : n)) {
        if (n > 0) memcpy(arraddnptr(*to, (size_t)n), text + at, (size_t)n);
        else tok_show_broken(to, each ? -n : 1);
    }
    return at;
}

static inline void tok_show(char **to, const char *text, size_t size) {
    tok_show_broken(to, tok_show_whole(to, text, size, false) < size);
}

static inline tok_text tok_stream_next(tok_stream *s, int32_t id) {
    const bool each = s->t->decodes_fallback;
    tok_text piece = tok_piece_next(s, id);
    size_t at = 0;
    s->before = 0;
    if (s->text) arrsetlen(s->text, 0);
    if (!piece.size) return (tok_text){"", 0};
    while (!s->holds && at < piece.size) {
        const int n = tok_utf8(piece.data + at, piece.size - at);
        if (n < 1) break;
        at += (size_t)n;
    }
    if (at == piece.size) return piece;  // the usual case: nothing is copied
    at = 0;
    while (s->holds && at < piece.size) {  // byte by byte, until the character is whole or never will be
        s->held[s->holds] = piece.data[at];
        const int n = tok_utf8(s->held, (size_t)s->holds + 1);
        if (n > 0) memcpy(arraddnptr(s->text, (size_t)n), s->held, (size_t)n);
        if (n < 0) tok_show_broken(&s->text, each ? -n : 1);
        if (n < 0 && !at) s->before = each ? -n : 1;
        at += n >= 0;
        s->holds = n ? 0 : s->holds + 1;
    }
    at += tok_show_whole(&s->text, piece.data + at, piece.size - at, each);
    s->holds += (int)(piece.size - at);
    memcpy(s->held, piece.data + at, piece.size - at);
    return (tok_text){s->text, arrlenu(s->text)};
}

static inline tok_text tok_stream_end(tok_stream *s) {
    if (s->text) arrsetlen(s->text, 0);
    tok_show_broken(&s->text, s->t->decodes_fallback ? s->holds : s->holds > 0);
    s->holds = s->before = 0;
    return (tok_text){s->text, arrlenu(s->text)};
}

static inline void tok_stream_follow(tok_stream *s, const int32_t *ids, int count) {
    for (int i = 0; i < count; i++) tok_piece_next(s, ids[i]);
}

static inline void tok_stream_free(tok_stream *s) {
    arrfree(s->text);
    *s = (tok_stream){0};
}

#endif  // TOKENIZER_H
