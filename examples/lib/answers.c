// answers.c: the answer to a request as its tokens come (see answers.h).
#define _POSIX_C_SOURCE 200809L
#include "answers.h"

void answer_free(answer *a) {
    tok_stream_free(&a->stream);
    arrfree(a->text);
}

// Where the first stop string begins that ends behind byte `from` of the text; the end of the text: there is none.
static size_t answer_find(const answer *a, size_t from) {
    const size_t size = arrlenu(a->text);
    size_t first = size;
    for (int i = 0; i < a->stops; i++) {
        const tok_text s = a->stop[i];
        for (size_t at = from < s.size ? 0 : from - s.size + 1; at + s.size <= size && at < first; at++)
            if (!memcmp(a->text + at, s.data, s.size)) first = at;
    }
    return first;
}

static void answer_add(answer *a, tok_text more) {
    const size_t before = arrlenu(a->text);
    if (!more.size) return;
    memcpy(arraddnptr(a->text, more.size), more.data, more.size);
    const size_t end = answer_find(a, before);
    if (end < arrlenu(a->text)) a->stopped = true;
    arrsetlen(a->text, end);
}

void answer_take(answer *a, int32_t id) {
    const tok *t = a->stream.t;
    a->tokens++;
    if (!t) return;
    answer_add(a, tok_stream_next(&a->stream, id));
    for (int i = 0; i < a->stops && id < t->count && t->piece[id].special; i++)
        if (a->stop[i].size == (size_t)t->piece[id].size &&
            !memcmp(a->stop[i].data, t->bytes + t->piece[id].at, a->stop[i].size))
            a->stopped = true;
}

int answer_committed(answer *a, llm42_engine *engine, const llm42_event *event) {
    const int before = a->tokens;
    for (int i = 0; i < event->n && !a->stopped; i++) answer_take(a, event->tokens[i]);
    if (a->stopped) llm42_engine_cancel(engine, event->request, NULL);
    return a->tokens - before;
}

void answer_finished(answer *a) {
    if (a->stream.t && !a->stopped) answer_add(a, tok_stream_end(&a->stream));
}

tok_text answer_fresh(answer *a, bool finished) {
    const size_t size = arrlenu(a->text), from = a->shown;
    size_t held = 0;
    for (int i = 0; i < a->stops && !finished; i++)
        for (size_t n = a->stop[i].size - 1; n > held; n--)
            if (n <= size && !memcmp(a->text + size - n, a->stop[i].data, n)) held = n;
    if (size - held > from) a->shown = size - held;
    return (tok_text){size ? a->text + from : "", a->shown - from};
}

const char *answer_finish(const answer *a, llm42_finish finish) {
    static const char *const words[] = {"none", "stop", "length", "cancelled", "error"};
    return words[a->stopped ? LLM42_FINISH_STOP : finish];
}

// A string of JSON. What is no UTF-8, as in a model's name, becomes U+FFFD.
static void answer_string(FILE *file, const char *text, size_t size) {
    fputc('"', file);
    for (size_t i = 0; i < size;) {
        const int bytes = tok_utf8(text + i, size - i);
        const unsigned char c = (unsigned char)text[i];
        if (bytes < 1) fputs("\xEF\xBF\xBD", file);
        else if (c == '"' || c == '\\') fprintf(file, "\\%c", c);
        else if (c == '\n') fputs("\\n", file);
        else if (c < ' ') fprintf(file, "\\u%04x", c);
        else fwrite(text + i, 1, (size_t)bytes, file);
        i += bytes < 0 ? (size_t)-bytes : bytes ? (size_t)bytes : size - i;
    }
    fputc('"', file);
}

char *answer_json(const answer *a, const llm42_request *r, const char *model, int index, const char *id,
                  const char *digest, size_t *size) {
    char *line = NULL;
    FILE *file = open_memstream(&line, size);
    if (!file) args_fail(1, "out of memory for an answer");
    fprintf(file, "{\"index\": %d, ", index);
    if (id) fputs("\"id\": ", file), answer_string(file, id, strlen(id));
    if (id) fprintf(file, ", \"request\": \"%s\", ", digest);
    fputs("\"text\": ", file);
    if (a->stream.t) answer_string(file, a->text, arrlenu(a->text));
    else fputs("null", file);
    fputs(", \"ids\": [", file);
    for (int i = 0; i < a->tokens; i++) fprintf(file, "%s%d", i ? ", " : "", (int)r->tokens[i]);
    fputs("], \"logprobs\": [", file);
    for (int i = 0; i < a->tokens; i++) fprintf(file, "%s%.9g", i ? ", " : "", (double)r->logprobs[i]);
    fprintf(file, "], \"finish\": \"%s\", \"prompt_tokens\": %d, \"seed\": %" PRIu64 ", \"deterministic\": %s, ",
            answer_finish(a, r->finish), r->prompt_count, r->sampling.seed, r->deterministic ? "true" : "false");
    fputs("\"model\": ", file);
    answer_string(file, model, strlen(model));
    fputs("}\n", file);
    if (fclose(file)) args_fail(1, "out of memory for an answer");
    return line;
}

uint64_t answer_seed(uint64_t seed, int64_t index) {
    if (!seed) seed = 42;
    const uint64_t hash = llm42_hash(llm42_hash(seed) + (uint64_t)index) >> 11;
    return index == 0 ? seed : hash ? hash : 1;
}

int answer_room(const llm42_engine_desc *config) {
    const int64_t pages = (int64_t)config->kv.pages * config->kv.page_size + 1;
    return pages < config->max_context ? (int)pages : config->max_context;
}

void answer_check_room(const char *prompt_name, int prompt, const char *name, int64_t tokens, int context) {
    if (prompt >= context)
        args_fail(2, "%s: the prompt has %d tokens, and the context of %d must hold one more", prompt_name, prompt,
                  context);
    if (tokens > context - prompt)
        args_fail(2, "%s: %" PRId64 ": behind a prompt of %d tokens the context of %d has room for %d", name, tokens,
                  prompt, context, context - prompt);
}
