// batch.c: many requests from a file (see batch.h).
#define _POSIX_C_SOURCE 200809L
#include "batch.h"

#include <dirent.h>

#define BATCH_TAIL "{\"unfinished\": true}\n"  // the last line of OUT.unfinished
#define BATCH_HEAD "{\"digest\": \""           // what its other lines begin with: then 32 digits and...
#define BATCH_REST "\", "                      // ...this, and then the line of OUT behind its brace
enum { BATCH_DIGITS = 32 };                    // of a digest: enough to tell lines apart

// >>lines: reading IN ---------------------------------------------------------------------------------------------

typedef enum batch_key {
    BATCH_PROMPT,
    BATCH_IDS,
    BATCH_MAX_TOKENS,
    BATCH_TEMPERATURE,
    BATCH_TOP_K,
    BATCH_TOP_P,
    BATCH_MIN_P,
    BATCH_SEED,
    BATCH_DETERMINISTIC,
    BATCH_STOP,
    BATCH_ID,
    BATCH_KEYS
} batch_key;

static const char *const batch_keys[] = {"prompt", "ids",  "max_tokens",    "temperature", "top_k", "top_p",
                                         "min_p",  "seed", "deterministic", "stop",        "id",    NULL};

// Token i as text that ends in a 0, for messages and numbers.
static const char *batch_text(tok_json *j, int i) {
    j->text[j->token[i].end] = 0;
    return tok_json_string(j, i);
}

static int64_t batch_int(const char *name, tok_json *j, int i, int64_t low, int64_t high) {
    const char *text = batch_text(j, i);
    if (!tok_json_is(j, i, JSMN_PRIMITIVE)) args_fail(2, "%s: '%.80s' is not a whole number", name, text);
    return args_int(name, text, text + strlen(text), low, high);
}

static float batch_float(const char *name, tok_json *j, int i, double high) {
    const char *text = batch_text(j, i);
    if (!tok_json_is(j, i, JSMN_PRIMITIVE)) args_fail(2, "%s: '%.80s' is not a number", name, text);
    return args_float(name, text, 0, high);
}

static const char *batch_string(const char *name, tok_json *j, int i) {
    if (!tok_json_is(j, i, JSMN_STRING)) args_fail(2, "%s: '%.80s' is not a string", name, batch_text(j, i));
    return tok_json_string(j, i);
}

static void batch_stop(const batch *b, const char *name, answer *a, tok_json *j, int i) {
    const bool list = tok_json_is(j, i, JSMN_ARRAY);
    const int count = list ? j->token[i].size : 1;
    if (count > ANSWER_STOPS) args_fail(2, "%s: more than %d strings", name, ANSWER_STOPS);
    if (count && !b->t) args_fail(2, "%s: the model has no tokenizer, so there is no text to look at", name);
    a->stops = 0;
    for (int k = 0; k < count; k++) {
        const char *text = batch_string(name, j, i + list + k);
        if (!text[0]) args_fail(2, "%s: a stop string is empty", name);
        a->stop[a->stops++] = (tok_text){text, strlen(text)};
    }
}

static void batch_prompt(const batch *b, const char *name, batch_line *l, tok_json *j, int i) {
    llm42_error error = {0};
    const char *text = batch_string(name, j, i);
    if (!b->t) args_fail(2, "%s: the model has no tokenizer: give ids", name);
    if (b->chat ? chat_encode(b->chat, b->t, text, strlen(text), &l->ids, &error)
                : text_ids(b->t, text, strlen(text), &l->ids, NULL, &error))
        args_fail(2, "%s: %s", name, error.text);
}

static void batch_value(const batch *b, batch_key key, const char *name, batch_line *l, tok_json *j, int i) {
    llm42_sampling *s = &l->ask.sampling;
    switch (key) {
    case BATCH_PROMPT: batch_prompt(b, name, l, j, i); break;
    case BATCH_IDS:
        if (!tok_json_is(j, i, JSMN_ARRAY)) args_fail(2, "%s: '%.80s' is not a list", name, batch_text(j, i));
        for (int k = i + 1, end = i + 1 + j->token[i].size; k < end; k++)
            arrput(l->ids, (int32_t)batch_int(name, j, k, 0, b->model->config.vocab - 1));
        break;
    case BATCH_MAX_TOKENS:
        l->ask.max_new_tokens = (int)batch_int(name, j, i, 0, INT32_MAX);
        l->limited = true;
        break;
    case BATCH_TEMPERATURE: s->temperature = batch_float(name, j, i, 1000); break;
    case BATCH_TOP_K: s->top_k = (int)batch_int(name, j, i, 0, INT32_MAX); break;
    case BATCH_TOP_P: s->top_p = batch_float(name, j, i, 1); break;
    case BATCH_MIN_P: s->min_p = batch_float(name, j, i, 1); break;
    case BATCH_SEED: s->seed = (uint64_t)batch_int(name, j, i, 0, INT64_MAX); break;
    case BATCH_DETERMINISTIC:
        l->ask.deterministic = tok_json_word(j, i, "true");
        if (!l->ask.deterministic && !tok_json_word(j, i, "false"))
            args_fail(2, "%s: '%.80s' is neither true nor false", name, batch_text(j, i));
        break;
    case BATCH_STOP: batch_stop(b, name, &l->answer, j, i); break;
    case BATCH_ID: l->id = batch_string(name, j, i); break;
    case BATCH_KEYS: break;
    }
}

// Reads l->text [size]; exits with a message that names the file, the line and the key.
static void batch_parse(const batch *b, batch_line *l, size_t size) {
    char where[4200], name[4400], all[256];
    bool seen[BATCH_KEYS] = {0};
    llm42_error error = {0};
    snprintf(where, sizeof where, "%.4096s:%d", b->in, l->number);
    tok_json j = {.path = where, .text = l->text, .size = size};
    if (memchr(l->text, 0, size)) args_fail(2, "%s: not JSON: a 0 byte", where);
    if (tok_json_parse(&j, &error)) args_fail(2, "%s", error.text);
    if (!tok_json_is(&j, 0, JSMN_OBJECT)) args_fail(2, "%s: not an object: write {\"prompt\": \"...\"}", where);
    for (int n = 0, i = 1, next; n < j.token[0].size; n++, i = next) {
        int key = 0;
        next = tok_json_next(&j, i + 1);
        snprintf(name, sizeof name, "%s: %.100s", where, tok_json_string(&j, i));
        while (batch_keys[key] && strcmp(batch_keys[key], tok_json_string(&j, i))) key++;
        if (key == BATCH_KEYS) args_fail(2, "%s: not a key that is known: %s", name, args_words(all, batch_keys));
        if (seen[key]) args_fail(2, "%s: the key is there twice", name);
        seen[key] = !tok_json_absent(&j, i + 1);  // null stands for the default
        if (seen[key]) batch_value(b, (batch_key)key, name, l, &j, i + 1);
    }
    if (seen[BATCH_PROMPT] == seen[BATCH_IDS]) args_fail(2, "%s: give one of prompt and ids", where);
    if (!arrlen(l->ids))
        args_fail(2, "%s: %s: no tokens%s", where, batch_keys[seen[BATCH_IDS] ? BATCH_IDS : BATCH_PROMPT],
                  seen[BATCH_IDS] ? "" : ", since the model has no begin-of-text token: write a text");
    free(j.token);
}

// Two answers of one id could not be told apart. A line without an id has its number.
static void batch_check_ids(const batch *b) {
    struct {
        char *key;
        int value;
    } *seen = NULL;
    char number[16];
    sh_new_arena(seen);
    for (int64_t i = 0; i < arrlen(b->line); i++) {
        const batch_line *l = &b->line[i];
        snprintf(number, sizeof number, "%d", l->number);
        const char *id = l->id ? l->id : number;
        const ptrdiff_t at = shgeti(seen, id);
        if (at >= 0)
            args_fail(2,
                      "%s:%d: id: '%.80s' is the id of line %d, too (a line without one has its number): give another",
                      b->in, l->number, id, seen[at].value);
        shput(seen, id, l->number);
    }
    shfree(seen);
}

void batch_read(batch *b) {
    size_t size = 0;
    char *text = text_read("--batch", b->in, &size);
    int number = 0;
    for (size_t begin = size >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0, end; begin < size; begin = end + 1) {
        const char *newline = memchr(text + begin, '\n', size - begin);
        end = newline ? (size_t)(newline - text) : size;
        batch_line l = {.number = ++number, .ask = b->ask, .answer = b->answer};
        if (begin + strspn(text + begin, " \t\r") >= end) continue;
        l.text = malloc(end - begin + 1);
        if (!l.text) args_fail(1, "%s: out of memory", b->in);
        memcpy(l.text, text + begin, end - begin);
        l.text[end - begin] = 0;
        batch_parse(b, &l, end - begin);
        arrput(b->line, l);
    }
    free(text);
    if (!arrlen(b->line)) args_fail(2, "--batch: %s: no lines", b->in);
    batch_check_ids(b);
}

// >>digests -------------------------------------------------------------------------------------------------------

// Begins a digest with all that answers depend on beside their requests: the settings, and the model's weights and
// end tokens, its tokens as text, and how the backend computes. (The same path may hold another model by now.)
static void batch_basis(const batch *b, const llm42_engine *engine, llm42_sha256 *sha) {
    char hash[LLM42_SHA256_TEXT], text[256];
    llm42_error error = {0};
    const llm42_config *c = &b->model->config;
    const char *arithmetic = llm42_engine_arithmetic(engine);
    args_check(llm42_model_sha256(b->model, hash, &error), &error);
    llm42_sha256_begin(sha);
    llm42_sha256_add(sha, b->settings, strlen(b->settings) + 1);
    snprintf(text, sizeof text, "%s %s %s %d", LLM42_VERSION, hash, arithmetic ? arithmetic : "",
             llm42_engine_config(engine)->max_context);
    llm42_sha256_add(sha, text, strlen(text) + 1);
    llm42_sha256_add(sha, c->stop, (size_t)c->stop_count * sizeof *c->stop);
    for (int i = 0; b->t && i < b->t->count; i++) {
        const tok_piece *piece = &b->t->piece[i];
        llm42_sha256_add(sha, &piece->size, sizeof piece->size);
        llm42_sha256_add(sha, &piece->special, sizeof piece->special);
        llm42_sha256_add(sha, b->t->bytes + piece->at, (size_t)piece->size);
    }
}

// Of the basis, the request, and the line's number and id, so that each line of OUT belongs to one line of IN.
static void batch_digest(llm42_sha256 sha, batch_line *l) {
    char text[512];
    const llm42_sampling *s = &l->ask.sampling;
    snprintf(text, sizeof text, "%d %d %d %.9g %d %.9g %.9g %" PRIu64 " %d %d %d", l->number, l->ask.max_new_tokens,
             l->ask.deterministic, (double)s->temperature, s->top_k, (double)s->top_p, (double)s->min_p, s->seed,
             l->ask.ignore_stop, l->answer.stops, (int)arrlen(l->ids));
    llm42_sha256_add(&sha, text, strlen(text) + 1);
    llm42_sha256_add(&sha, l->ids, arrlenu(l->ids) * sizeof *l->ids);
    for (int i = 0; i < l->answer.stops; i++)
        llm42_sha256_add(&sha, l->answer.stop[i].data, l->answer.stop[i].size + 1);
    if (l->id) llm42_sha256_add(&sha, l->id, strlen(l->id));
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
                  b->unfinished, number, (int)index + 1, b->in, (int)arrlen(b->line));
    if (!tok_json_same(&j, tok_json_get(&j, 0, "request"), l->digest))
        args_fail(2,
                  "%s:%d: not the answer to line %d of %s by this model and these options: give all as they were, or "
                  "remove the file",
                  b->unfinished, number, l->number, b->in);
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
        const int count = (int)arrlen(l->ids);
        if (l->json) continue;
        snprintf(where, sizeof where, "%.4096s:%d", b->in, l->number);
        snprintf(name, sizeof name, "%s: %s", where, l->limited ? "max_tokens" : "-n");
        answer_check_room(where, count, name, l->ask.max_new_tokens, context);
        l->ask.prompt = l->ids, l->ask.prompt_count = count;
        l->ask.user = l;
        if (llm42_engine_submit(engine, &l->ask, NULL, &error)) args_fail(2, "%s: %s", where, error.text);
        arrfree(l->ids);  // the engine has a copy
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
        b->tokens += answer_committed(&l->answer, engine, event);
        return;
    }
    answer_finished(&l->answer);
    snprintf(id, sizeof id, "%d", l->number);
    l->json = answer_json(&l->answer, event->info, b->model->name, (int)(l - b->line), l->id ? l->id : id, l->digest,
                          &l->size);
    answer_free(&l->answer);
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
        free(b->line[i].text);
        free(b->line[i].json);
        arrfree(b->line[i].ids);
        answer_free(&b->line[i].answer);
    }
    arrfree(b->line);
    if (b->failed) args_fail(1, "%s: answers ended by an error: their finish says so", b->out);
}
