// request_file.h: requests in a file, which `generate --batch` answers and to which `audit --against` compares answers.
// A line is an object of JSON:
//
//     {"prompt": "It was", "max_tokens": 20, "deterministic": true, "stop": ["\n", "The end"], "id": "first"}
//
// It has `prompt`, a text, or `ids`, its token ids. It may have max_tokens, temperature, top_k, top_p, min_p, seed,
// ignore_eos, deterministic, stop and id. What it does not say, or says with null, is as the program's options say.
#ifndef REQUEST_FILE_H
#define REQUEST_FILE_H

#include "examples/lib/answers.h"
#include "examples/lib/chat.h"

typedef struct request_line {
    int number;              // in the file, from 1
    char *text;              // the line; strings are read in place
    const char *id;          // NULL: the number
    int32_t *ids;            // the prompt, an stb_ds array
    llm42_request_desc ask;  // without what points to memory
    bool limited;            // the line says max_tokens
    answer answer;           // with the stop strings
} request_line;

typedef struct request_file {
    const char *option, *path;  // the option that names the file
    const llm42_model *model;
    tok *t;                  // NULL: prompts are ids
    const chat *chat;        // NULL: prompts are texts as they are
    llm42_request_desc ask;  // what counts where a line says nothing
    answer answer;           // the same, for stop strings
    request_line *line;      // an stb_ds array
} request_file;

// Reads and checks the file. Empty lines are passed over.
void request_file_read(request_file *f);
void request_file_free(request_file *f);

#endif  // REQUEST_FILE_H
