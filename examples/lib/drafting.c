// drafting.c: the options --draft and --draft-limit (see drafting.h).
#define _POSIX_C_SOURCE 200809L
#include "drafting.h"

bool drafting_asked(const drafting *d) { return d->name && strcmp(d->name, "none"); }

// The tokens that lookup must find, of "lookup:MATCH"; 0: its own default.
static int drafting_match(const drafting *d) {
    const char *match = d->name + strcspn(d->name, ":");
    return *match ? (int)args_int("--draft lookup", match + 1, match + strlen(match), 1, INT32_MAX) : 0;
}

// The folder of "model:DIR"; NULL: it is another drafter.
static const char *drafting_folder(const drafting *d) {
    return strncmp(d->name, "model:", 6) || !d->name[6] ? NULL : d->name + 6;
}

void drafting_check(const drafting *d) {
    if (d->limit && !drafting_asked(d)) args_fail(2, "--draft-limit: needs --draft");
    if (!drafting_asked(d) || drafting_folder(d)) return;
    if (strcmp(d->name, "lookup") && strncmp(d->name, "lookup:", 7))
        args_fail(2, "--draft: '%s' is not one of: none, lookup, lookup:MATCH, model:DIR", d->name);
    drafting_match(d);
}

// Keeps the line that says why the engine goes on without drafts.
static void drafting_log(void *user, const char *line) {
    drafting *d = user;
    if (!strncmp(line, "drafter ", 8)) snprintf(d->failure, sizeof d->failure, "%s", line);
    if (d->log) d->log(d->log_user, line);
}

// The draft model runs on a backend of the engine's kind and in its type: on the CPU with its threads, on one GPU.
static llm42_result drafting_open_model(drafting *d, const llm42_engine_desc *desc, llm42_error *error) {
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

void drafting_open(drafting *d, llm42_engine_desc *desc) {
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

void drafting_report(const drafting *d, const llm42_engine *engine) {
    if (llm42_engine_stats(engine).draft_failures) fprintf(stderr, "%s: %s\n", args_program, d->failure);
}

void drafting_close(drafting *d) {
    llm42_drafter_close(&d->drafter);
    llm42_model_free(d->model);
    d->model = NULL;
}
