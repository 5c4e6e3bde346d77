// request_file.c: requests in a file (see request_file.h).
#define _POSIX_C_SOURCE 200809L
#include "request_file.h"

#include "examples/lib/texts.h"

typedef enum request_key {
    REQUEST_PROMPT,
    REQUEST_IDS,
    REQUEST_MAX_TOKENS,
    REQUEST_TEMPERATURE,
    REQUEST_TOP_K,
    REQUEST_TOP_P,
    REQUEST_MIN_P,
    REQUEST_SEED,
    REQUEST_IGNORE_EOS,
    REQUEST_DETERMINISTIC,
    REQUEST_STOP,
    REQUEST_ID,
    REQUEST_KEYS
} request_key;

static const char *const request_keys[] = {"prompt", "ids",   "max_tokens", "temperature", "top_k",
                                           "top_p",  "min_p", "seed",       "ignore_eos",  "deterministic",
                                           "stop",   "id",    NULL};

// Token i as text that ends in a 0, for messages and numbers.
static const char *request_text(tok_json *j, int i) {
    j->text[j->token[i].end] = 0;
    return tok_json_string(j, i);
}

static int64_t request_int(const char *name, tok_json *j, int i, int64_t low, int64_t high) {
    const char *text = request_text(j, i);
    if (!tok_json_is(j, i, JSMN_PRIMITIVE)) args_fail(2, "%s: '%.80s' is not a whole number", name, text);
    return args_int(name, text, text + strlen(text), low, high);
}

static float request_float(const char *name, tok_json *j, int i, double high) {
    const char *text = request_text(j, i);
    if (!tok_json_is(j, i, JSMN_PRIMITIVE)) args_fail(2, "%s: '%.80s' is not a number", name, text);
    return args_float(name, text, 0, high);
}

static const char *request_string(const char *name, tok_json *j, int i) {
    if (!tok_json_is(j, i, JSMN_STRING)) args_fail(2, "%s: '%.80s' is not a string", name, request_text(j, i));
    return tok_json_string(j, i);
}

static bool request_bool(const char *name, tok_json *j, int i) {
    const bool yes = tok_json_word(j, i, "true");
    if (!yes && !tok_json_word(j, i, "false"))
        args_fail(2, "%s: '%.80s' is neither true nor false", name, request_text(j, i));
    return yes;
}

static void request_stop(const request_file *f, const char *name, answer *a, tok_json *j, int i) {
    const bool list = tok_json_is(j, i, JSMN_ARRAY);
    const int count = list ? j->token[i].size : 1;
    if (count > ANSWER_STOPS) args_fail(2, "%s: more than %d strings", name, ANSWER_STOPS);
    if (count && !f->t) args_fail(2, "%s: the model has no tokenizer, so there is no text to look at", name);
    a->stops = 0;
    for (int k = 0; k < count; k++) {
        const char *text = request_string(name, j, i + list + k);
        if (!text[0]) args_fail(2, "%s: a stop string is empty", name);
        a->stop[a->stops++] = (tok_text){text, strlen(text)};
    }
}

static void request_prompt(const request_file *f, const char *name, request_line *l, tok_json *j, int i) {
    llm42_error error = {0};
    const char *text = request_string(name, j, i);
    if (!f->t) args_fail(2, "%s: the model has no tokenizer: give ids", name);
    if (f->chat ? chat_encode(f->chat, f->t, text, strlen(text), &l->ids, &error)
                : text_ids(f->t, text, strlen(text), &l->ids, NULL, &error))
        args_fail(2, "%s: %s", name, error.text);
}

static void request_value(const request_file *f, request_key key, const char *name, request_line *l, tok_json *j,
                          int i) {
    llm42_sampling *s = &l->ask.sampling;
    switch (key) {
    case REQUEST_PROMPT: request_prompt(f, name, l, j, i); break;
    case REQUEST_IDS:
        if (!tok_json_is(j, i, JSMN_ARRAY)) args_fail(2, "%s: '%.80s' is not a list", name, request_text(j, i));
        for (int k = i + 1, end = i + 1 + j->token[i].size; k < end; k++)
            arrput(l->ids, (int32_t)request_int(name, j, k, 0, f->model->config.vocab - 1));
        break;
    case REQUEST_MAX_TOKENS:
        l->ask.max_new_tokens = (int)request_int(name, j, i, 0, INT32_MAX);
        l->limited = true;
        break;
    case REQUEST_TEMPERATURE: s->temperature = request_float(name, j, i, 1000); break;
    case REQUEST_TOP_K: s->top_k = (int)request_int(name, j, i, 0, INT32_MAX); break;
    case REQUEST_TOP_P: s->top_p = request_float(name, j, i, 1); break;
    case REQUEST_MIN_P: s->min_p = request_float(name, j, i, 1); break;
    case REQUEST_SEED: s->seed = (uint64_t)request_int(name, j, i, 0, INT64_MAX); break;
    case REQUEST_IGNORE_EOS: l->ask.ignore_stop = request_bool(name, j, i); break;
    case REQUEST_DETERMINISTIC: l->ask.deterministic = request_bool(name, j, i); break;
    case REQUEST_STOP: request_stop(f, name, &l->answer, j, i); break;
    case REQUEST_ID: l->id = request_string(name, j, i); break;
    case REQUEST_KEYS: break;
    }
}

// Reads l->text [size]; exits with a message that names the file, the line and the key.
static void request_parse(const request_file *f, request_line *l, size_t size) {
    char where[4200], name[4400], all[256];
    bool seen[REQUEST_KEYS] = {0};
    llm42_error error = {0};
    snprintf(where, sizeof where, "%.4096s:%d", f->path, l->number);
    tok_json j = {.path = where, .text = l->text, .size = size};
    if (memchr(l->text, 0, size)) args_fail(2, "%s: not JSON: a 0 byte", where);
    if (tok_json_parse(&j, &error)) args_fail(2, "%s", error.text);
    if (!tok_json_is(&j, 0, JSMN_OBJECT)) args_fail(2, "%s: not an object: write {\"prompt\": \"...\"}", where);
    for (int n = 0, i = 1, next; n < j.token[0].size; n++, i = next) {
        int key = 0;
        next = tok_json_next(&j, i + 1);
        snprintf(name, sizeof name, "%s: %.100s", where, tok_json_string(&j, i));
        while (request_keys[key] && strcmp(request_keys[key], tok_json_string(&j, i))) key++;
        if (key == REQUEST_KEYS) args_fail(2, "%s: not a key that is known: %s", name, args_words(all, request_keys));
        if (seen[key]) args_fail(2, "%s: the key is there twice", name);
        seen[key] = !tok_json_absent(&j, i + 1);  // null stands for the default
        if (seen[key]) request_value(f, (request_key)key, name, l, &j, i + 1);
    }
    if (seen[REQUEST_PROMPT] == seen[REQUEST_IDS]) args_fail(2, "%s: give one of prompt and ids", where);
    if (!arrlen(l->ids))
        args_fail(2, "%s: %s: no tokens%s", where, request_keys[seen[REQUEST_IDS] ? REQUEST_IDS : REQUEST_PROMPT],
                  seen[REQUEST_IDS] ? "" : ", since the model has no begin-of-text token: write a text");
    free(j.token);
}

// Two answers of one id could not be told apart. A line without an id has its number.
static void request_check_ids(const request_file *f) {
    struct {
        char *key;
        int value;
    } *seen = NULL;
    char number[16];
    sh_new_arena(seen);
    for (int64_t i = 0; i < arrlen(f->line); i++) {
        const request_line *l = &f->line[i];
        snprintf(number, sizeof number, "%d", l->number);
        const char *id = l->id ? l->id : number;
        const ptrdiff_t at = shgeti(seen, id);
        if (at >= 0)
            args_fail(2,
                      "%s:%d: id: '%.80s' is the id of line %d, too (a line without one has its number): give another",
                      f->path, l->number, id, seen[at].value);
        shput(seen, id, l->number);
    }
    shfree(seen);
}

void request_file_read(request_file *f) {
    size_t size = 0;
    char *text = text_read(f->option, f->path, &size);
    int number = 0;
    for (size_t begin = size >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0, end; begin < size; begin = end + 1) {
        const char *newline = memchr(text + begin, '\n', size - begin);
        end = newline ? (size_t)(newline - text) : size;
        request_line l = {.number = ++number, .ask = f->ask, .answer = f->answer};
        if (begin + strspn(text + begin, " \t\r") >= end) continue;
        l.text = malloc(end - begin + 1);
        if (!l.text) args_fail(1, "%s: out of memory", f->path);
        memcpy(l.text, text + begin, end - begin);
        l.text[end - begin] = 0;
        request_parse(f, &l, end - begin);
        arrput(f->line, l);
    }
    free(text);
    if (!arrlen(f->line)) args_fail(2, "%s: %s: no lines", f->option, f->path);
    request_check_ids(f);
}

void request_file_free(request_file *f) {
    for (int64_t i = 0; i < arrlen(f->line); i++) {
        free(f->line[i].text);
        arrfree(f->line[i].ids);
        answer_free(&f->line[i].answer);
    }
    arrfree(f->line);
}
