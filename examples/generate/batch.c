// batch.c: many requests from a file (see batch.h).
#define _POSIX_C_SOURCE 200809L
#include "batch.h"

#include <dirent.h>

#define BATCH_TAIL "{\"unfinished\": true}\n"  // the last line of OUT.unfinished
#define BATCH_HEAD "{\"digest\": \""           // what its other lines begin with: then 32 digits and...
#define BATCH_REST "\", "                      // ...this, and then the line of OUT behind its brace
enum { BATCH_DIGITS = 32 };                    // of a digest: enough to tell lines apart

void batch_read(batch *b) {
    request_file_read(&b->in);
    arrsetlen(b->line, arrlenu(b->in.line));
    for (int64_t i = 0; i < arrlen(b->line); i++) b->line[i] = (batch_line){.asked = &b->in.line[i]};
}

// >>digests -------------------------------------------------------------------------------------------------------

// Begins a digest with all that answers depend on beside their requests: the settings, and the model's weights and
// end tokens, its tokens as text, and how the backend computes. (The same path may hold another model by now.)
static void batch_basis(const batch *b, const llm42_engine *engine, llm42_sha256 *sha) {
    char hash[LLM42_SHA256_TEXT], text[256];
    llm42_error error = {0};
    const llm42_config *c = &b->in.model->config;
    const char *arithmetic = llm42_engine_arithmetic(engine);
    args_check(llm42_model_sha256(b->in.model, hash, &error), &error);
    llm42_sha256_begin(sha);
    llm42_sha256_add(sha, b->settings, strlen(b->settings) + 1);
    snprintf(text, sizeof text, "%s %s %s %d", LLM42_VERSION, hash, arithmetic ? arithmetic : "",
             llm42_engine_config(engine)->max_context);
    llm42_sha256_add(sha, text, strlen(text) + 1);
    llm42_sha256_add(sha, c->stop, (size_t)c->stop_count * sizeof *c->stop);
    for (int i = 0; b->in.t && i < b->in.t->count; i++) {
        const tok_piece *piece = &b->in.t->piece[i];
        llm42_sha256_add(sha, &piece->size, sizeof piece->size);
        llm42_sha256_add(sha, &piece->special, sizeof piece->special);
        llm42_sha256_add(sha, b->in.t->bytes + piece->at, (size_t)piece->size);
    }
}

// Of the basis, the request, and the line's number and id, so that each line of OUT belongs to one line of IN.
static void batch_digest(llm42_sha256 sha, batch_line *l) {
    char text[512];
    const llm42_sampling *s = &l->asked->ask.sampling;
    snprintf(text, sizeof text, "%d %d %d %.9g %d %.9g %.9g %" PRIu64 " %d %d %d", l->asked->number,
             l->asked->ask.max_new_tokens, l->asked->ask.deterministic, (double)s->temperature, s->top_k,
             (double)s->top_p, (double)s->min_p, s->seed, l->asked->ask.ignore_stop, l->asked->answer.stops,
             (int)arrlen(l->asked->ids));
    llm42_sha256_add(&sha, text, strlen(text) + 1);
    llm42_sha256_add(&sha, l->asked->ids, arrlenu(l->asked->ids) * sizeof *l->asked->ids);
    for (int i = 0; i < l->asked->answer.stops; i++)
        llm42_sha256_add(&sha, l->asked->answer.stop[i].data, l->asked->answer.stop[i].size + 1);
    if (l->asked->id) llm42_sha256_add(&sha, l->asked->id, strlen(l->asked->id));
    llm42_sha256_end(sha, l->digest);
    l->digest[BATCH_DIGITS] = 0;
}

// Of a line of OUT without its newline.
static void batch_line_digest(const char *json, size_t size, char digest[LLM42_SHA256_TEXT]) {
    llm42_sha256 sha;
    llm42_sha256_begin(&sha);
    llm42_sha256_add(&sha, json, size);
    llm42_sha256_end(sha, digest);
    digest[BATCH_DIGITS] = 0;
}

// >>out: writing OUT, and what an interrupted run has left --------------------------------------------------------

// The line of OUT in a line of OUT.unfinished, which is size bytes without its newline; to be freed. NULL: it is not as
// it was written.
static char *batch_unwrap(const batch *b, const char *text, size_t size, size_t *json_size) {
    const size_t head = sizeof BATCH_HEAD - 1, rest = sizeof BATCH_REST - 1, before = head + BATCH_DIGITS + rest;
    char digest[LLM42_SHA256_TEXT];
    if (size <= before || memchr(text, 0, size) || memcmp(text, BATCH_HEAD, head) ||
        memcmp(text + head + BATCH_DIGITS, BATCH_REST, rest))
        return NULL;
    *json_size = size - before + 2;
    char *json = malloc(*json_size + 1);
    if (!json) args_fail(1, "%s: out of memory", b->unfinished);
    json[0] = '{';
    memcpy(json + 1, text + before, size - before);
    memcpy(json + *json_size - 1, "\n", 2);
    batch_line_digest(json, *json_size - 1, digest);
    if (!memcmp(digest, text + head, BATCH_DIGITS)) return json;
    free(json);
    return NULL;
}

// Takes over line `number` of OUT.unfinished, [size] with its newline.
static void batch_keep(batch *b, int number, const char *text, size_t size) {
    llm42_error error = {0};
    int32_t index = 0;
    size_t json_size = 0;
    char *json = batch_unwrap(b, text, size - 1, &json_size);
    tok_json j = {.path = b->unfinished, .text = json ? malloc(json_size + 1) : NULL, .size = json_size};
    if (json && !j.text) args_fail(1, "%s: out of memory", b->unfinished);
    if (json) memcpy(j.text, json, json_size + 1);  // reading changes it
    if (!json || tok_json_parse(&j, &error) || !tok_json_int(&j, tok_json_get(&j, 0, "index"), &index))
        args_fail(
            1,
            "%s:%d: the line was changed since it was written, by its digest: remove the line, so that its answer "
            "is computed again",
            b->unfinished, number);
    batch_line *l = index < arrlen(b->line) ? &b->line[index] : NULL;
    if (!l)
        args_fail(2, "%s:%d: the answer to request %d, and %s has %d: give it as it was, or remove the file",
                  b->unfinished, number, (int)index + 1, b->in.path, (int)arrlen(b->line));
    if (!tok_json_same(&j, tok_json_get(&j, 0, "request"), l->digest))
        args_fail(2,
                  "%s:%d: not the answer to line %d of %s by this model and these options: give all as they were, or "
                  "remove the file",
                  b->unfinished, number, l->asked->number, b->in.path);
    b->failed |= tok_json_same(&j, tok_json_get(&j, 0, "finish"), "error");
    tok_json_free(&j);
    b->kept += !l->json, b->ready = b->kept;
    free(l->json);
    l->json = json, l->size = json_size;
}

// Names the parts of OUT that runs left which were killed: no process has the number in the part's name any more.
static void batch_name_parts(const batch *b, const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char folder[LLM42_FILE_PATH];
    snprintf(folder, sizeof folder, "%.*s", (int)(name - path), path);
    DIR *dir = opendir(slash ? folder : ".");
    for (const struct dirent *entry; dir && (entry = readdir(dir));) {
        long process = 0;
        int used = 0;
        if (strncmp(entry->d_name, name, strlen(name))) continue;
        const char *rest = entry->d_name + strlen(name);
        if (sscanf(rest, ".%ld.part%n", &process, &used) != 1 || !used || rest[used]) continue;
        if (process < 1 || !kill((pid_t)process, 0) || errno != ESRCH) continue;  // a run may be writing it
        fprintf(stderr,
                "%s: %s%s is what a run that was killed has left: to take over its answers, end this run, rename the "
                "file to %s and give the same command again\n",
                args_program, folder, entry->d_name, b->unfinished);
    }
    if (dir) closedir(dir);
}

// A last line that is cut short is left out.
static void batch_resume(batch *b) {
    size_t size = 0;
    int number = 1;
    char *text = NULL;
    llm42_error error = {0};
    char path[LLM42_FILE_PATH];
    if (!llm42_file_follow(b->out, path)) return;  // opening it will say why
    snprintf(b->unfinished, sizeof b->unfinished, "%s.unfinished", path);
    batch_name_parts(b, path);
    if (access(b->unfinished, F_OK)) return;
    args_check(tok_read(b->unfinished, &text, &size, &error), &error);
    for (const char *line = text, *end; (end = memchr(line, '\n', size - (size_t)(line - text))); line = end + 1)
        if (number++, strncmp(line, BATCH_TAIL, sizeof BATCH_TAIL - 1))
            batch_keep(b, number - 1, line, (size_t)(end - line) + 1);
    free(text);
}

// Opens OUT.
static void batch_create(batch *b) {
    b->file = llm42_file_create(b->out);
    if (!b->file) args_fail(1, "%s: cannot write: %s", b->out, strerror(errno));
    llm42_file *f = llm42_file_find(b->file);
    f->replaces = true;  // all of OUT.unfinished is taken over
    b->piped = !strcmp(f->part, f->path);
}

// "; 5 of 6 answers are kept in OUT.unfinished; the same command goes on"; "" for a pipe, or if none is kept.
static const char *batch_kept(const batch *b, int64_t answers, char text[4400]) {
    text[0] = 0;
    if (!b->piped && answers)
        snprintf(text, 4400, "; %" PRId64 " of %d answers are kept in %.4200s; the same command goes on", answers,
                 (int)arrlen(b->line), b->unfinished);
    return text;
}

// The answer of a line is whole. A pipe gets it when all before it are; a file gets it now. The file is kept from when
// it has all that OUT.unfinished has, because it replaces that one.
static void batch_put(batch *b, const batch_line *l) {
    char digest[LLM42_SHA256_TEXT], kept[4400];
    const int64_t before = b->written;
    for (; b->piped && b->written < arrlen(b->line) && b->line[b->written].json; b->written++)
        fwrite(b->line[b->written].json, 1, b->line[b->written].size, b->file);
    if (!b->piped) {
        batch_line_digest(l->json, l->size - 1, digest);
        fprintf(b->file, BATCH_HEAD "%s" BATCH_REST, digest);
        fwrite(l->json + 1, 1, l->size - 1, b->file);
        b->written++;
    }
    if (fflush(b->file) || ferror(b->file)) {
        const int why = errno;
        args_fail(1, "%s: cannot write: %s%s", b->out, strerror(why),
                  batch_kept(b, before > b->kept ? before : b->kept, kept));
    }
    if (!b->piped && b->written >= b->kept) llm42_file_keep(b->file, BATCH_TAIL);
}

void batch_begin(batch *b, llm42_engine *engine) {
    llm42_error error = {0};
    llm42_sha256 basis;
    const int context = answer_room(llm42_engine_config(engine));
    batch_basis(b, engine, &basis);
    for (int64_t i = 0; i < arrlen(b->line); i++) batch_digest(basis, &b->line[i]);
    batch_resume(b);
    for (int64_t i = 0; i < arrlen(b->line); i++) {
        batch_line *l = &b->line[i];
        char where[4200], name[4300];
        const int count = (int)arrlen(l->asked->ids);
        if (l->json) continue;
        snprintf(where, sizeof where, "%.4096s:%d", b->in.path, l->asked->number);
        snprintf(name, sizeof name, "%s: %s", where, l->asked->limited ? "max_tokens" : "-n");
        answer_check_room(where, count, name, l->asked->ask.max_new_tokens, context);
        l->asked->ask.prompt = l->asked->ids, l->asked->ask.prompt_count = count;
        l->asked->ask.user = l;
        if (l->asked->answer.stream.t) tok_stream_follow(&l->asked->answer.stream, l->asked->ids, count);
        if (llm42_engine_submit(engine, &l->asked->ask, NULL, &error)) args_fail(2, "%s: %s", where, error.text);
        arrfree(l->asked->ids);  // the engine has a copy
    }
    batch_create(b);
    for (int64_t i = 0; i < arrlen(b->line); i++)
        if (b->line[i].json) batch_put(b, &b->line[i]);
    if (b->kept)
        fprintf(stderr, "%s: %" PRId64 " of %d answers are in %s already\n", args_program, b->kept,
                (int)arrlen(b->line), b->unfinished);
}

void batch_event(batch *b, llm42_engine *engine, const llm42_event *event) {
    batch_line *l = event->info->user;
    char id[16];
    if (b->stopping) return;
    if (event->type == LLM42_EVENT_COMMITTED) {
        b->tokens += answer_committed(&l->asked->answer, engine, event);
        return;
    }
    answer_finished(&l->asked->answer);
    snprintf(id, sizeof id, "%d", l->asked->number);
    l->json = answer_json(&l->asked->answer, event->info, b->in.model->name, (int)(l - b->line),
                          l->asked->id ? l->asked->id : id, l->digest, &l->size);
    answer_free(&l->asked->answer);
    b->ready++;
    batch_put(b, l);
}

void batch_run(batch *b, llm42_engine *engine) {
    llm42_error error = {0};
    const bool show = args_is_terminal(stderr);
    const double begin = llm42_engine_now(engine);
    double next = begin;
    args_watches = 1;
    for (llm42_result result = LLM42_OK; !args_signal && result == LLM42_OK;) {
        result = args_check(llm42_engine_step(engine, &error), &error);
        const double now = llm42_engine_now(engine);
        if (!show || (now < next && result == LLM42_OK)) continue;
        fprintf(stderr, "\r%" PRId64 "/%d answers, %.1f tokens/s ", b->ready, (int)arrlen(b->line),
                now > begin ? (double)b->tokens / (now - begin) : 0);
        next = now + 0.2;
    }
    if (show) fputc('\n', stderr);
    b->stopping = args_signal != 0;  // what is cut short by that is no answer
}

void batch_stop_if_asked(const batch *b) {
    char kept[4400];
    batch_kept(b, b->ready, kept);
    if (!b->ready) snprintf(kept, sizeof kept, "; none of %d answers was finished", (int)arrlen(b->line));
    args_stop_saying(kept, b->file);
}

void batch_end(batch *b) {
    bool good = true;
    if (!b->piped) {
        good = llm42_file_leave(b->file);
        if (good) batch_create(b);
        for (int64_t i = 0; good && i < arrlen(b->line); i++) fwrite(b->line[i].json, 1, b->line[i].size, b->file);
    }
    if (!good || !llm42_file_finish(b->file))
        args_fail(1, "%s: cannot write: %s%s%s", b->out, strerror(errno), b->piped ? "" : "; the answers are in ",
                  b->piped ? "" : b->unfinished);
    if (!b->piped) remove(b->unfinished);
    for (int64_t i = 0; i < arrlen(b->line); i++) {
        free(b->line[i].json);
    }
    arrfree(b->line);
    request_file_free(&b->in);
    if (b->failed) args_fail(1, "%s: answers ended by an error: their finish says so", b->out);
}
