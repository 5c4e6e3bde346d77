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

#include "args.h"
#include "util/llm42_draft.h"

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

static inline bool drafting_asked(const drafting *d) { return d->name && strcmp(d->name, "none"); }

// The tokens that lookup must find, of "lookup:MATCH"; 0: its own default.
static inline int drafting_match(const drafting *d) {
    const char *match = d->name + strcspn(d->name, ":");
    return *match ? (int)args_int("--draft lookup", match + 1, match + strlen(match), 1, INT32_MAX) : 0;
}

// The folder of "model:DIR"; NULL: it is another drafter.
static inline const char *drafting_folder(const drafting *d) {
    return strncmp(d->name, "model:", 6) || !d->name[6] ? NULL : d->name + 6;
}

static inline void drafting_check(const drafting *d) {
    if (d->limit && !drafting_asked(d)) args_fail(2, "--draft-limit: needs --draft");
    if (!drafting_asked(d) || drafting_folder(d)) return;
    if (strcmp(d->name, "lookup") && strncmp(d->name, "lookup:", 7))
        args_fail(2, "--draft: '%s' is not one of: none, lookup, lookup:MATCH, model:DIR", d->name);
    drafting_match(d);
}

// Keeps the line that says why the engine goes on without drafts.
static inline void drafting_log(void *user, const char *line) {
    drafting *d = user;
    if (!strncmp(line, "drafter ", 8)) snprintf(d->failure, sizeof d->failure, "%s", line);
    if (d->log) d->log(d->log_user, line);
}

// The draft model runs on a backend of the engine's kind and in its type: on the CPU with its threads, on one GPU.
static inline llm42_result drafting_open_model(drafting *d, const llm42_engine_desc *desc, llm42_error *error) {
    char found[4096];
    const bool cpu = !strcmp(desc->backend->name, "cpu");
    const char *path = args_find(drafting_folder(d), found);
    const llm42_model_desc load = {.path = path, .on_device = args_on_device(path, desc->backend)};
    const llm42_result result = llm42_model_load(&d->model, &load, error);
    if (result != LLM42_OK) return result;
    const llm42_draft_model_desc own = {.model = d->model,
                                        .backend = desc->backend,
                                        .backend_desc = cpu ? desc->backend_desc : NULL,
                                        .compute = desc->numerics.compute,
                                        .vocab = desc->model->config.vocab,
                                        .max_running = desc->max_running,
                                        .max_context = desc->max_context};
    return llm42_draft_model_open(&d->drafter, &own, error);
}

// Who asks for drafts wants them for ordinary requests, too. Exits if the drafter cannot be opened.
static inline void drafting_open(drafting *d, llm42_engine_desc *desc) {
    llm42_error error = {0};
    if (!drafting_asked(d)) return;
    const llm42_lookup_desc lookup = {.min_match = drafting_folder(d) ? 0 : drafting_match(d)};
    const llm42_result result = drafting_folder(d) ? drafting_open_model(d, desc, &error)
                                                   : llm42_lookup_open(&d->drafter, &lookup, &error);
    if (result != LLM42_OK) args_fail(args_went_wrong, "--draft %s: %s", d->name, error.text);
    desc->drafter = &d->drafter;
    desc->draft_limit = (int)d->limit;
    desc->draft_ordinary = true;
    d->log = desc->log, d->log_user = desc->log_user;
    desc->log = drafting_log, desc->log_user = d;
}

static inline void drafting_report(const drafting *d, const llm42_engine *engine) {
    if (llm42_engine_stats(engine).draft_failures) fprintf(stderr, "%s: %s\n", args_program, d->failure);
}

static inline void drafting_close(drafting *d) {
    llm42_drafter_close(&d->drafter);
    llm42_model_free(d->model);
    d->model = NULL;
}

#endif  // DRAFTING_H
