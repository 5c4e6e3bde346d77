// pcre2.h: what tokenizer.h calls of PCRE2, by the regular expressions of the JavaScript that runs the program. The
// patterns of tokenizers (classes such as \p{L}, lookahead, groups such as (?i:...)) mean the same in both.
#ifndef PCRE2_H
#define PCRE2_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned char PCRE2_UCHAR;
typedef const unsigned char *PCRE2_SPTR;
typedef size_t PCRE2_SIZE;
typedef struct pcre2_code {
    int pattern;
} pcre2_code;
typedef struct pcre2_match_data {
    PCRE2_SIZE place[2];
} pcre2_match_data;

enum { PCRE2_UTF = 1, PCRE2_UCP = 2, PCRE2_NO_UTF_CHECK = 4, PCRE2_JIT_COMPLETE = 8, PCRE2_ERROR_NOMATCH = -1 };
enum { PCRE2_CONFIG_VERSION, PCRE2_CONFIG_UNICODE_VERSION };
#define PCRE2_ZERO_TERMINATED (~(PCRE2_SIZE)0)

__attribute__((import_module("host"), import_name("regex_compile"))) int host_regex_compile(const void *pattern,
                                                                                            size_t size);
__attribute__((import_module("host"), import_name("regex_match"))) int
host_regex_match(int pattern, const void *text, size_t size, size_t from, uint32_t match[2]);

static inline pcre2_code *pcre2_compile(PCRE2_SPTR pattern, PCRE2_SIZE size, uint32_t options, int *number,
                                        PCRE2_SIZE *at, void *context) {
    (void)options, (void)context;
    pcre2_code *code = malloc(sizeof *code);
    *number = 0, *at = 0;
    if (size == PCRE2_ZERO_TERMINATED) size = strlen((const char *)pattern);
    if (code) code->pattern = host_regex_compile(pattern, size);
    if (!code || code->pattern >= 0) return code;
    free(code);
    return NULL;
}

static inline int pcre2_match(const pcre2_code *code, PCRE2_SPTR text, PCRE2_SIZE size, PCRE2_SIZE from,
                              uint32_t options, pcre2_match_data *data, void *context) {
    (void)options, (void)context;
    uint32_t match[2];
    if (!host_regex_match(code->pattern, text, size, from, match)) return PCRE2_ERROR_NOMATCH;
    data->place[0] = match[0], data->place[1] = match[1];
    return 1;
}

static inline int pcre2_config(uint32_t what, void *where) {
    strcpy(where, what == PCRE2_CONFIG_VERSION ? "by JavaScript" : "the browser's");
    return 0;
}

static inline int pcre2_get_error_message(int number, PCRE2_UCHAR *text, PCRE2_SIZE size) {
    (void)number;
    return snprintf((char *)text, size, "JavaScript has no such regular expression");
}

static inline PCRE2_SIZE *pcre2_get_ovector_pointer(pcre2_match_data *data) { return data->place; }
static inline int pcre2_jit_compile(pcre2_code *code, uint32_t options) { return (void)code, (void)options, 0; }
static inline pcre2_match_data *pcre2_match_data_create(uint32_t pairs, void *context) {
    return (void)pairs, (void)context, malloc(sizeof(pcre2_match_data));
}
static inline void pcre2_code_free(pcre2_code *code) { free(code); }
static inline void pcre2_match_data_free(pcre2_match_data *data) { free(data); }

#endif  // PCRE2_H
