// ask.h: reads the body of a request into a call, and refuses what it does not understand. Every field is one of four
// kinds. Some are read. Some change no answer and are ignored. Some would change the answer in a way that is not
// offered here: they are accepted with the one value that asks for nothing. Any other field is refused by name.
#ifndef SERVE_ASK_H
#define SERVE_ASK_H

#include "../texts.h"
#include "calls.h"

typedef struct ask_field {
    const char *name;
    int where;            // 1: completions, 2: chat completions, 3: both
    const char *neutral;  // NULL: it is read; "": it is ignored; else the values of JSON that ask for nothing
} ask_field;

static const ask_field ask_fields[] = {
    {"model", 3, NULL},
    {"prompt", 1, NULL},
    {"messages", 2, NULL},
    {"max_tokens", 3, NULL},
    {"max_completion_tokens", 2, NULL},
    {"temperature", 3, NULL},
    {"top_p", 3, NULL},
    {"top_k", 3, NULL},
    {"min_p", 3, NULL},
    {"n", 3, NULL},
    {"seed", 3, NULL},
    {"stop", 3, NULL},
    {"ignore_eos", 3, NULL},
    {"stream", 3, NULL},
    {"stream_options", 3, NULL},
    {"logprobs", 3, NULL},
    {"top_logprobs", 2, NULL},
    {"echo", 1, NULL},
    {"deterministic", 3, NULL},
    {"is_deterministic", 3, NULL},
    {"return_token_ids", 3, NULL},
    {"user", 3, ""},
    {"metadata", 3, ""},
    {"store", 3, ""},
    {"service_tier", 3, ""},
    {"safety_identifier", 3, ""},
    {"prompt_cache_key", 3, ""},
    {"parallel_tool_calls", 2, ""},
    {"frequency_penalty", 3, "[0]"},
    {"presence_penalty", 3, "[0]"},
    {"repetition_penalty", 3, "[1]"},
    {"logit_bias", 3, "[{}]"},
    {"suffix", 1, "[\"\"]"},
    {"best_of", 1, "[1]"},
    {"tools", 2, "[[]]"},
    {"tool_choice", 2, "[\"none\", \"auto\"]"},
    {"functions", 2, "[[]]"},
    {"modalities", 2, "[[\"text\"]]"},
    {"response_format", 3, "[{\"type\": \"text\"}]"},
};
enum { ASK_FIELDS = sizeof ask_fields / sizeof *ask_fields };

static inline bool ask_same(const json_t *a, const json_t *b) {
    return json_is_number(a) ? json_is_number(b) && json_number_value(a) == json_number_value(b) : json_equal(a, b);
}

// Is every field one that is known here, with a value that can be honoured?
static inline bool ask_check_fields(serve_call *c, json_t *body) {
    const char *name;
    json_t *value;
    json_object_foreach(body, name, value) {
        const ask_field *f = ask_fields;
        while (f < ask_fields + ASK_FIELDS && (strcmp(f->name, name) || !(f->where & (c->chat ? 2 : 1)))) f++;
        if (f == ask_fields + ASK_FIELDS)
            return serve_fail(c, 400, name, "unknown_field", "%.60s: no such field here: leave it out", name);
        if (!f->neutral || !f->neutral[0] || json_is_null(value)) continue;
        json_t *allowed = json_loads(f->neutral, 0, NULL);
        bool fine = false;
        for (size_t i = 0; i < json_array_size(allowed); i++) fine |= ask_same(json_array_get(allowed, i), value);
        json_decref(allowed);
        if (!fine)
            return serve_fail(c, 400, name, "unsupported", "%s: unsupported: leave it out, or give one of %s", name,
                              f->neutral);
    }
    return true;
}

// A field; NULL where it is missing or null.
static inline json_t *ask_get(const json_t *body, const char *name) {
    json_t *value = json_object_get(body, name);
    return json_is_null(value) ? NULL : value;
}

static inline bool ask_bool(serve_call *c, const json_t *body, const char *name, bool *to) {
    const json_t *value = ask_get(body, name);
    if (!value) return true;
    if (!json_is_boolean(value)) return serve_fail(c, 400, name, "wrong_type", "%s: must be true or false", name);
    *to = json_is_true(value);
    return true;
}

static inline bool ask_int(serve_call *c, const json_t *body, const char *name, int64_t low, int64_t high,
                           int64_t *to) {
    const json_t *value = ask_get(body, name);
    if (!value) return true;
    if (!json_is_integer(value)) return serve_fail(c, 400, name, "wrong_type", "%s: must be a whole number", name);
    *to = json_integer_value(value);
    if (*to < low || *to > high)
        return serve_fail(c, 400, name, "out_of_range",
                          "%s: %" PRId64 " is outside %" PRId64 " to %" PRId64 ": give one inside", name, *to, low,
                          high);
    return true;
}

// The number is kept in a float: it must not become 0 or 1 by rounding, since these are settings of their own.
static inline bool ask_float(serve_call *c, const json_t *body, const char *name, double low, double high, float *to) {
    const json_t *json = ask_get(body, name);
    const double value = json_number_value(json);
    if (!json) return true;
    if (!json_is_number(json)) return serve_fail(c, 400, name, "wrong_type", "%s: must be a number", name);
    if (!(value >= low && value <= high))
        return serve_fail(c, 400, name, "out_of_range", "%s: %g is outside %g to %g: give one inside", name, value, low,
                          high);
    *to = (float)value;
    if ((double)*to != value && *to == floorf(*to))
        return serve_fail(c, 400, name, "out_of_range", "%s: %.17g would be rounded to %g: write that", name, value,
                          (double)*to);
    return true;
}

// A prompt or what a message says, as the text of a string of JSON.
static inline tok_text ask_text(const json_t *value) {
    return (tok_text){json_string_value(value), json_string_length(value)};
}

static inline bool ask_stop(serve_call *c, const json_t *body) {
    const json_t *stop = ask_get(body, "stop");
    const size_t count = json_is_string(stop) ? 1 : json_array_size(stop);
    if (!stop) return true;
    if (!json_is_string(stop) && !json_is_array(stop))
        return serve_fail(c, 400, "stop", "wrong_type", "stop: must be a string, or a list of strings");
    if (count > ANSWER_STOPS)
        return serve_fail(c, 400, "stop", "out_of_range", "stop: at most %d strings", (int)ANSWER_STOPS);
    if (!serve.t) return serve_fail(c, 400, "stop", "no_tokenizer", "stop: the model has no tokenizer, so no text");
    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_is_string(stop) ? stop : json_array_get(stop, i);
        const tok_text text = ask_text(one);
        if (!json_is_string(one) || !text.size)
            return serve_fail(c, 400, "stop", "wrong_type", "stop: item %d must be a string that is not empty", (int)i);
        char *copy = malloc(text.size);
        if (!copy) return serve_fail(c, 500, NULL, "out_of_memory", "out of memory");
        memcpy(copy, text.data, text.size);
        c->stop[c->stops++] = (tok_text){copy, text.size};
    }
    return true;
}

// One prompt: a text, or token ids.
static inline bool ask_prompt(serve_call *c, const json_t *prompt) {
    const int vocab = serve.model->config.vocab;
    const tok_text text = ask_text(prompt);
    llm42_error error = {0};
    int32_t *ids = NULL;
    if (json_is_string(prompt) && !serve.t)
        return serve_fail(c, 400, "prompt", "no_tokenizer", "prompt: the model has no tokenizer: give token ids");
    if (json_is_string(prompt) && text_ids(serve.t, text.data, text.size, &ids, NULL, &error))
        serve_fail(c, 400, "prompt", "not_encodable", "prompt: %s", error.text);
    for (size_t i = 0; i < json_array_size(prompt) && !c->status; i++) {
        const json_t *id = json_array_get(prompt, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= vocab)
            serve_fail(c, 400, "prompt", "bad_token", "prompt: item %d must be a token id from 0 to %d", (int)i,
                       vocab - 1);
        else arrput(ids, (int32_t)json_integer_value(id));
    }
    if (!arrlen(ids)) serve_fail(c, 400, "prompt", "empty", "prompt: no tokens: write a text, or give token ids");
    arrput(c->prompt, ids);
    return !c->status;
}

static inline bool ask_prompts(serve_call *c, const json_t *body) {
    const json_t *prompt = ask_get(body, "prompt"), *first = json_array_get(prompt, 0);
    const bool many = json_is_string(first) || json_is_array(first);
    if (!json_is_string(prompt) && !json_is_array(prompt))
        return serve_fail(c, 400, "prompt", "wrong_type",
                          "prompt: must be a text, a list of token ids, or a list of either");
    if (!many) return ask_prompt(c, prompt);
    for (size_t i = 0; i < json_array_size(prompt); i++) {
        const json_t *one = json_array_get(prompt, i);
        if (!json_is_string(one) && !json_is_array(one))
            return serve_fail(c, 400, "prompt", "wrong_type", "prompt: item %d must be a text or a list of token ids",
                              (int)i);
        if ((int64_t)i >= serve.max_samples)
            return serve_fail(c, 400, "prompt", "too_many", "prompt: at most %" PRId64 " prompts", serve.max_samples);
        if (!ask_prompt(c, one)) return false;
    }
    return true;
}

// What a message says: a text, or parts that are texts, which are joined; to be freed.
static inline bool ask_content(serve_call *c, const json_t *content, int number, tok_text *text) {
    char *all = NULL;
    const size_t parts = json_is_array(content) ? json_array_size(content) : 1;
    bool fine = json_is_string(content) || json_is_array(content);
    FILE *file = open_memstream(&all, &text->size);
    for (size_t i = 0; i < parts && fine && file; i++) {
        const json_t *part = json_is_array(content) ? json_array_get(content, i) : content;
        const char *type = json_string_value(json_object_get(part, "type"));
        if (json_is_array(content)) part = type && !strcmp(type, "text") ? json_object_get(part, "text") : NULL;
        fine = json_is_string(part);
        if (fine) fwrite(json_string_value(part), 1, json_string_length(part), file);
    }
    if (!file || fclose(file)) return serve_fail(c, 500, NULL, "out_of_memory", "out of memory");
    text->data = all;
    return fine ||
           serve_fail(c, 400, "messages", "wrong_type",
                      "messages: the content of message %d must be a text, or a list of parts of type text", number);
}

static inline bool ask_messages(serve_call *c, const json_t *body) {
    static const char *const roles[] = {"system", "user", "assistant", "developer", NULL};
    const json_t *messages = ask_get(body, "messages");
    const size_t count = json_array_size(messages);
    llm42_error error = {0};
    int32_t *ids = NULL;
    if (!count) return serve_fail(c, 400, "messages", "wrong_type", "messages: must be a list of at least one message");
    if (!serve.chat.family)
        return serve_fail(c, 400, "messages", "no_chat_template",
                          "%s: give the turns, written out, to /v1/completions as a prompt", serve.chat_error.text);
    chat_turn *turn = calloc(count, sizeof *turn);
    if (!turn) serve_fail(c, 500, NULL, "out_of_memory", "out of memory");
    for (size_t i = 0; i < count && !c->status; i++) {
        const json_t *message = json_array_get(messages, i), *calls = json_object_get(message, "tool_calls");
        const char *role = json_string_value(json_object_get(message, "role"));
        int k = 0;
        while (roles[k] && (!role || strcmp(role, roles[k]))) k++;
        turn[i].role = roles[k == 3 ? 0 : k];
        if (!roles[k] || json_array_size(calls))
            serve_fail(c, 400, "messages", "unsupported",
                       "messages: message %d: its role must be system, user or assistant, and it must have no "
                       "tool_calls",
                       (int)i);
        else ask_content(c, json_object_get(message, "content"), (int)i, &turn[i].text);
    }
    if (!c->status && chat_turns(&serve.chat, serve.t, turn, (int)count, &ids, &error))
        serve_fail(c, 400, "messages", "not_encodable", "messages: %s", error.text);
    for (size_t i = 0; turn && i < count; i++) free((char *)turn[i].text.data);
    free(turn);
    arrput(c->prompt, ids);
    return !c->status;
}

static inline bool ask_model(serve_call *c, const json_t *body) {
    const json_t *model = ask_get(body, "model");
    if (!model) return true;
    if (!json_is_string(model)) return serve_fail(c, 400, "model", "wrong_type", "model: must be a string");
    return !strcmp(json_string_value(model), serve.name) ||
           serve_fail(c, 404, "model", "model_not_found", "model: '%.200s' is not here: this server has '%.200s'",
                      json_string_value(model), serve.name);
}

// What decides which fields an answer has.
static inline bool ask_output(serve_call *c, const json_t *body) {
    const json_t *options = ask_get(body, "stream_options");
    int64_t top = -1;
    if (options && !json_is_object(options))
        return serve_fail(c, 400, "stream_options", "wrong_type", "stream_options: must be an object");
    if (c->chat) {
        if (!ask_bool(c, body, "logprobs", &c->logprobs) || !ask_int(c, body, "top_logprobs", 0, SERVE_TOP, &top))
            return false;
        if (top >= 0 && !c->logprobs)
            return serve_fail(c, 400, "top_logprobs", "needs_logprobs", "top_logprobs: needs \"logprobs\": true");
    } else {
        if (!ask_int(c, body, "logprobs", 0, SERVE_TOP, &top)) return false;
        c->logprobs = top >= 0;
    }
    c->top = top > 0 ? (int)top : 0;
    return ask_bool(c, body, "stream", &c->stream) && ask_bool(c, body, "echo", &c->echo) &&
           ask_bool(c, options, "include_usage", &c->usage) && ask_bool(c, body, "return_token_ids", &c->ids_out);
}

// The fields of the engine's request that all samples share. *limit: max_tokens; -1: not given.
static inline bool ask_sampling(serve_call *c, const json_t *body, llm42_request_desc *ask, int64_t *limit) {
    int64_t top_k = 0, seed = 0, n = 1;
    const bool twice = ask_get(body, "max_completion_tokens") != NULL;
    bool second = serve.deterministic, given = ask_get(body, "deterministic") != NULL;
    llm42_sampling *s = &ask->sampling;
    s->temperature = 1;
    ask->deterministic = serve.deterministic;
    *limit = -1;
    if (!ask_int(c, body, "max_tokens", 0, INT32_MAX, limit) ||
        !ask_int(c, body, "max_completion_tokens", 0, INT32_MAX, limit) ||
        !ask_float(c, body, "temperature", 0, 1000, &s->temperature) || !ask_float(c, body, "top_p", 0, 1, &s->top_p) ||
        !ask_float(c, body, "min_p", 0, 1, &s->min_p) || !ask_int(c, body, "top_k", -1, INT32_MAX, &top_k) ||
        !ask_int(c, body, "seed", 0, INT64_MAX - 4096, &seed) || !ask_int(c, body, "n", 1, serve.max_samples, &n) ||
        !ask_bool(c, body, "ignore_eos", &ask->ignore_stop) ||
        !ask_bool(c, body, "deterministic", &ask->deterministic) || !ask_bool(c, body, "is_deterministic", &second))
        return false;
    if (given && ask_get(body, "is_deterministic") && second != ask->deterministic)
        return serve_fail(c, 400, "is_deterministic", "contradiction",
                          "is_deterministic: differs from deterministic: give one of them");
    if (twice && ask_get(body, "max_tokens"))
        return serve_fail(c, 400, "max_tokens", "contradiction", "max_tokens: give it or max_completion_tokens");
    if (ask_get(body, "top_p") && s->top_p == 0)
        return serve_fail(c, 400, "top_p", "out_of_range", "top_p: must be above 0; temperature 0 is greedy");
    if (!given) ask->deterministic = second;
    s->top_k = top_k > 0 ? (int)top_k : 0;
    s->seed = (uint64_t)seed;
    c->n = (int)n;
    return true;
}

// Has the context room for a prompt and so many tokens behind it? -1: OpenAI's default. Returns the tokens in *limit.
static inline bool ask_room(serve_call *c, int prompt, int64_t *limit) {
    const int context = serve.config->max_context;
    const char *field = c->chat ? "messages" : "prompt";
    if (prompt >= context)
        return serve_fail(c, 400, field, "context_length_exceeded",
                          "%s: %d tokens, and the context of %d must hold one more: shorten it", field, prompt,
                          context);
    if (*limit < 0) *limit = c->chat || context - prompt < 16 ? context - prompt : 16;
    return *limit <= context - prompt ||
           serve_fail(c, 400, "max_tokens", "context_length_exceeded",
                      "max_tokens: %" PRId64 ": behind a prompt of %d tokens the context of %d has room for %d", *limit,
                      prompt, context, context - prompt);
}

// Everything that the answer will need, so that nothing can fail later. The stream of text begins behind the prompt.
static inline bool ask_sample(serve_call *c, serve_sample *s, const int32_t *prompt, int limit) {
    const size_t room = (size_t)limit + 1, count = arrlenu(prompt), all = room + (c->echo ? count : 0);
    s->call = c, s->limit = limit;
    s->ask.prompt = prompt, s->ask.prompt_count = (int)count;
    s->ask.max_new_tokens = limit ? limit : 1;
    s->ask.user = s;
    s->answer = (answer){.stream = {.t = serve.t, .skip_special = true}, .stops = c->stops};
    memcpy(s->answer.stop, c->stop, sizeof c->stop);
    for (size_t i = 0; serve.t && i < count; i++) {
        const tok_text piece = tok_stream_next(&s->answer.stream, prompt[i]);
        if (c->echo) s->chars += serve_chars(piece.data, piece.size);
    }
    s->tokens = calloc(room, sizeof *s->tokens);
    s->logprobs = calloc(room, sizeof *s->logprobs);
    s->offset = calloc(room, sizeof *s->offset);
    s->top = c->top ? calloc(all * (size_t)c->top, sizeof *s->top) : NULL;
    s->prompt_logprobs = c->echo && c->logprobs ? calloc(count, sizeof *s->prompt_logprobs) : NULL;
    return (s->tokens && s->logprobs && s->offset && (s->top || !c->top) &&
            (s->prompt_logprobs || !c->echo || !c->logprobs)) ||
           serve_fail(c, 500, NULL, "out_of_memory", "out of memory");
}

static inline bool ask_samples(serve_call *c, llm42_request_desc ask, int64_t max_tokens) {
    const int64_t prompts = arrlen(c->prompt);
    llm42_error error = {0};
    double bytes = 0;
    if (llm42_sampling_check(&ask.sampling, &error)) return serve_fail(c, 400, NULL, "out_of_range", "%s", error.text);
    if (prompts * c->n > serve.max_samples)
        return serve_fail(c, 400, "n", "too_many", "n: %d answers to each of %d prompts are more than %" PRId64, c->n,
                          (int)prompts, serve.max_samples);
    if (c->chat) ask.stop = serve.stop, ask.stop_count = serve.stop_count;
    c->sample = calloc((size_t)(prompts * c->n), sizeof *c->sample);
    if (!c->sample) return serve_fail(c, 500, NULL, "out_of_memory", "out of memory");
    c->samples = (int)prompts * c->n;
    for (int i = 0; i < c->samples; i++) {
        const int32_t *prompt = c->prompt[i / c->n];
        int64_t limit = max_tokens;
        serve_sample *s = &c->sample[i];
        s->ask = ask;
        s->ask.sample_index = i % c->n;
        if (ask.sampling.seed) s->ask.sampling.seed += (uint64_t)(i % c->n);
        if (!ask_room(c, (int)arrlen(prompt), &limit)) return false;
        bytes += (double)(limit + (c->echo ? arrlen(prompt) : 0)) * (16 + 8 * c->top);
        if (bytes > 1 << 28)
            return serve_fail(c, 400, "n", "too_many",
                              "n: the answers would take more than 256 MiB: ask for fewer, or fewer logprobs");
        if (!ask_sample(c, s, prompt, (int)limit)) return false;
        if (i % c->n == 0) c->prompt_tokens += arrlen(prompt);
    }
    return true;
}

// Reads the body of a call. False: the call says what is wrong.
static inline bool ask_read(serve_call *c) {
    json_error_t wrong;
    llm42_request_desc ask = {0};
    int64_t limit = -1;
    json_t *body = json_loadb(c->body ? c->body : "", c->size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &wrong);
    if (!body)
        return serve_fail(c, 400, NULL, "bad_json", "the body is not JSON: line %d, column %d: %s", wrong.line,
                          wrong.column, wrong.text);
    if (!json_is_object(body)) serve_fail(c, 400, NULL, "bad_json", "the body must be an object of JSON");
    const bool fine = !c->status && ask_check_fields(c, body) && ask_model(c, body) && ask_output(c, body) &&
                      ask_stop(c, body) && ask_sampling(c, body, &ask, &limit) &&
                      (c->chat ? ask_messages(c, body) : ask_prompts(c, body)) && ask_samples(c, ask, limit);
    json_decref(body);
    return fine;
}

#endif  // SERVE_ASK_H
