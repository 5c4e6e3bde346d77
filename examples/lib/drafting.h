// drafting.h: the options --draft and --draft-limit of the programs here, and the drafters that they name.
//
//     static drafting drafts;
//     ... DRAFTING_OPTIONS(&drafts), ...            // in the table of options
//     drafting_check(&drafts);                      // what was typed, before anything is loaded
//     drafting_open(&drafts, &desc);                // sets the drafter of desc, whose other fields are filled in
//     drafting_report(&drafts, engine);             // after a run: one line on stderr if the drafter failed
//     drafting_close(&drafts);                      // after llm42_engine_close
//
// A program defines LLM42_DRAFT_IMPLEMENTATION before it includes this.
#ifndef DRAFTING_H
#define DRAFTING_H

#include "examples/lib/args.h"
#include "examples/util/llm42_draft.h"

typedef struct drafting {
    const char *name;  // what was typed; NULL: none
    int64_t limit;     // 0: the library's
    llm42_drafter drafter;
    llm42_model *model;  // of model:DIR
    llm42_log_fn *log;   // of the engine, which gets every line, too
    void *log_user;
    char failure[1024];  // what the engine has said of the drafter
} drafting;

#define DRAFTING_OPTIONS(d)                                                                                         \
    ARGS_IN("draft NAME", &(d)->name,                                                                               \
            "who guesses the next tokens, which changes no answer and may save passes: none (default),\n"           \
            "                         lookup (what followed the last 2 tokens earlier in the text), lookup:MATCH\n" \
            "                         (the last MATCH tokens), or model:DIR (a small model with this vocabulary)"), \
        ARGS_INT("draft-limit N", &(d)->limit, 0, 4096, "most guesses of a request in a pass; 0: 7")

bool drafting_asked(const drafting *d);
void drafting_check(const drafting *d);
// Who asks for drafts wants them for ordinary requests, too. Exits if the drafter cannot be opened.
void drafting_open(drafting *d, llm42_engine_desc *desc);
void drafting_report(const drafting *d, const llm42_engine *engine);
void drafting_close(drafting *d);

#endif  // DRAFTING_H
