// ask.c: reads the body of a request into a call, and refuses what it does not understand. Every field is one of four
// kinds. Some are read. Some change no answer and are ignored. Some would change the answer in a way that is not
// offered here: they are accepted with a value that asks for nothing. Any other field is refused by name. Null asks for
// nothing, whatever the field is called.
#define _POSIX_C_SOURCE 200809L
#include "serve.h"

#include "examples/lib/texts.h"

// Names between spaces: those of both endpoints, then those of one; the third line has those that are ignored.
static const char ask_both[] =
    " model max_tokens temperature top_p top_k min_p n seed stop ignore_eos stream stream_options logprobs "
    "deterministic is_deterministic return_token_ids "
    "user metadata store service_tier safety_identifier prompt_cache_key spaces_between_special_tokens ";
static const char ask_completions[] = " prompt echo best_of ";
static const char ask_chats[] = " messages max_completion_tokens top_logprobs reasoning_effort parallel_tool_calls ";
static const char ask_commanded[] =  // with --chat-command
    " messages tools chat_template_kwargs max_completion_tokens top_logprobs reasoning_effort parallel_tool_calls ";

// The values of fields that ask for nothing, and what is said of any other value. .where: c for completions, t for
// chats' turns, m for a message, s for stream_options.
static const struct {
    const char *where, *name, *neutral, *otherwise;
} ask_neutral[] = {
    {"ct", "frequency_penalty", "[0]", "there are no penalties here: leave it out, or give 0"},
    {"ct", "presence_penalty", "[0]", "there are no penalties here: leave it out, or give 0"},
    {"ct", "repetition_penalty", "[1]", "there are no penalties here: leave it out, or give 1"},
    {"ct", "length_penalty", "[1]", "there are no penalties here: leave it out, or give 1"},
    {"ct", "use_beam_search", "[false]", "there is no beam search here: leave it out, or give false"},
    {"ct", "logit_bias", "[{}]", "logits are not changed here: leave it out, or give {}"},
    {"ct", "min_tokens", "[0]",
     "answers have no least length here: leave it out, or give 0; ignore_eos goes on behind the model's end tokens"},
    {"ct", "stop_token_ids", "[[]]",
     "answers end at the model's own end tokens or at a string: leave it out, give [], or use stop"},
    {"ct", "skip_special_tokens", "[true]",
     "special tokens have no text in an answer: leave it out, or give true; return_token_ids shows them"},
    {"ct", "include_stop_str_in_output", "[false]",
     "an answer ends before its stop string: leave it out, or give false"},
    {"ct", "response_format", "[{\"type\": \"text\"}]",
     "no answer is forced into a form such as JSON here: leave it out, or give {\"type\": \"text\"}; ask for the form "
     "in the prompt, and check the answer"},
    {"c", "suffix", "[\"\"]", "text is continued here, and not filled in: leave it out, or give \"\""},
    {"t", "tools", "[[]]", "needs a server that was started with --chat-command: leave it out, or give []"},
    {"t", "tool_choice", "[\"none\", \"auto\"]", "models call no tools here: leave it out, or give \"none\""},
    {"t", "functions", "[[]]", "models call no functions here: leave it out, or give []"},
    {"t", "function_call", "[\"none\", \"auto\"]", "models call no functions here: leave it out, or give \"none\""},
    {"t", "modalities", "[[\"text\"], []]", "answers are text: leave it out, or give [\"text\"]"},
    {"t", "verbosity", "[\"medium\"]", "no model here has levels of it: leave it out, or give \"medium\""},
    {"t", "add_generation_prompt", "[true]", "an answer is always a new turn: leave it out, or give true"},
    {"t", "continue_final_message", "[false]", "an answer is always a new turn: leave it out, or give false"},
    {"t", "chat_template_kwargs", "[{}]",
     "needs a server that was started with --chat-command: leave it out, or give {}"},
    {"m", "tool_calls", "[[]]", "needs a server that was started with --chat-command: leave it out, or give []"},
    {"m", "annotations", "[[]]", "no turn has annotations here: leave it out, or give []"},
    {"s", "continuous_usage_stats", "[false]", "the last event alone has the usage: leave it out, or give false"},
    {"s", "include_obfuscation", "[false]", "no event is padded here: leave it out, or give false"},
};
enum { ASK_NEUTRAL = sizeof ask_neutral / sizeof *ask_neutral };

// A field is wrong, or what it says cannot be done. Returns false.
static bool ask_bad(serve_call *c, const char *field, const char *format, ...) {
    char text[760];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    return serve_fail(c, 400, field, "invalid_value", "%.60s: %s", field, text);
}

// Is it one of the names, which stand between spaces?
static bool ask_named(const char *names, const char *name) {
    char word[80];
    snprintf(word, sizeof word, " %s ", name);
    return name[0] && !strchr(name, ' ') && strstr(names, word);
}

static bool ask_same(const json_t *a, const json_t *b) {
    return json_is_number(a) ? json_is_number(b) && json_number_value(a) == json_number_value(b) : json_equal(a, b);
}

// Does a field ask for nothing? Then the answer is right without it. *known: there is such a field, and *otherwise is
// what to say of its other values.
static bool ask_is_neutral(char where, const char *name, const json_t *value, bool *known, const char **otherwise) {
    int i = 0;
    while (i < ASK_NEUTRAL && (!strchr(ask_neutral[i].where, where) || strcmp(ask_neutral[i].name, name))) i++;
    *known = i < ASK_NEUTRAL;
    json_t *neutral = *known ? json_loads(ask_neutral[i].neutral, 0, NULL) : NULL;
    bool fine = json_is_null(value);
    for (size_t k = 0; k < json_array_size(neutral); k++) fine |= ask_same(json_array_get(neutral, k), value);
    json_decref(neutral);
    *otherwise = *known ? ask_neutral[i].otherwise : "no such field here: leave it out";
    return fine;
}

// Has an object only these fields, and others that ask for nothing? `field` is the one that holds the object; NULL: it
// is the body.
static bool ask_only(serve_call *c, json_t *object, const char *field, char where, const char *names,
                     const char *more) {
    const char *name, *otherwise;
    json_t *value;
    json_object_foreach(object, name, value) {
        bool known = false;
        if (ask_named(names, name) || ask_named(more, name)) continue;
        if (ask_is_neutral(where, name, value, &known, &otherwise)) continue;
        return serve_fail(c, 400, field ? field : name, known ? "invalid_value" : "unknown_field", "%s%s%.60s: %s",
                          field ? field : "", field ? ": " : "", name, otherwise);
    }
    return true;
}

// Is it this string? It may have NULs, which strcmp would take for its end.
static bool ask_is(const json_t *value, const char *text) {
    return json_is_string(value) && json_string_length(value) == strlen(text) &&
           !strcmp(json_string_value(value), text);
}

// A field; NULL where it is missing or null.
static json_t *ask_get(const json_t *body, const char *name) {
    json_t *value = json_object_get(body, name);
    return json_is_null(value) ? NULL : value;
}

static bool ask_bool(serve_call *c, const json_t *body, const char *name, bool *to) {
    const json_t *value = ask_get(body, name);
    if (!value) return true;
    if (!json_is_boolean(value)) return ask_bad(c, name, "must be true or false");
    *to = json_is_true(value);
    return true;
}

static bool ask_int(serve_call *c, const json_t *body, const char *name, int64_t low, int64_t high, int64_t *to) {
    const json_t *value = ask_get(body, name);
    if (!value) return true;
    if (!json_is_integer(value)) return ask_bad(c, name, "must be a whole number");
    *to = json_integer_value(value);
    if (*to < low || *to > high)
        return ask_bad(c, name, "%" PRId64 " is outside %" PRId64 " to %" PRId64 ": give one inside", *to, low, high);
    return true;
}

// The number is kept in a float: it must not become 0 or 1 by rounding, since these are settings of their own.
static bool ask_float(serve_call *c, const json_t *body, const char *name, double low, double high, float *to) {
    const json_t *json = ask_get(body, name);
    const double value = json_number_value(json);
    if (!json) return true;
    if (!json_is_number(json)) return ask_bad(c, name, "must be a number");
    if (!(value >= low && value <= high))
        return ask_bad(c, name, "%g is outside %g to %g: give one inside", value, low, high);
    *to = (float)value;
    if ((double)*to != value && *to == floorf(*to))
        return ask_bad(c, name, "%.17g would be rounded to %g: write that", value, (double)*to);
    return true;
}

// A list, or one thing in place of a list of it.
static size_t ask_count(const json_t *list) { return json_is_array(list) ? json_array_size(list) : list != NULL; }

static json_t *ask_item(json_t *list, size_t i) { return json_is_array(list) ? json_array_get(list, i) : list; }
static bool ask_no_memory(serve_call *c) { return serve_fail(c, 500, NULL, "out_of_memory", "out of memory"); }

static bool ask_stop(serve_call *c, const json_t *body) {
    json_t *stop = ask_get(body, "stop");
    if (stop && !serve.t) return ask_bad(c, "stop", "the model has no tokenizer, so no text");
    if (ask_count(stop) > ANSWER_STOPS) return ask_bad(c, "stop", "at most %d strings", (int)ANSWER_STOPS);
    for (size_t i = 0; i < ask_count(stop); i++) {
        const json_t *one = ask_item(stop, i);
        const size_t size = json_string_length(one);
        if (!size) return ask_bad(c, "stop", "must be a string that is not empty, or a list of such strings");
        char *copy = malloc(size);
        if (!copy) return ask_no_memory(c);
        c->stop[c->stops++] = (tok_text){memcpy(copy, json_string_value(one), size), size};
    }
    return true;
}

// No token has more bytes than the longest one, so a text of so many is too long whatever its tokens are. To find them
// could take seconds.
static bool ask_fits(serve_call *c, const char *field, size_t bytes) {
    const int context = answer_room(serve.config);
    return bytes / serve.longest < (size_t)context ||
           serve_fail(c, 400, field, "context_length_exceeded",
                      "%s: %zu bytes are more tokens than the context of %d can hold: shorten it", field, bytes,
                      context);
}

// One prompt: a text, or token ids.
static bool ask_prompt(serve_call *c, const json_t *prompt) {
    const int vocab = serve.model->config.vocab;
    const bool text = json_is_string(prompt);
    llm42_error error = {0};
    int32_t *ids = NULL;
    if (!text && !json_is_array(prompt))
        ask_bad(c, "prompt", "must be a text, a list of token ids, or a list of either");
    else if (text && !serve.t) ask_bad(c, "prompt", "the model has no tokenizer: give token ids");
    else if (text && !ask_fits(c, "prompt", json_string_length(prompt))) return false;
    else if (text && text_ids(serve.t, json_string_value(prompt), json_string_length(prompt), &ids, NULL, &error))
        ask_bad(c, "prompt", "%s", error.text);
    for (size_t i = 0; i < json_array_size(prompt) && !c->status; i++) {
        const json_int_t id = json_integer_value(json_array_get(prompt, i));
        if (!json_is_integer(json_array_get(prompt, i)) || id < 0 || id >= vocab)
            ask_bad(c, "prompt", "item %d must be a token id from 0 to %d", (int)i, vocab - 1);
        else arrput(ids, (int32_t)id);
    }
    if (!arrlen(ids)) ask_bad(c, "prompt", "no tokens: write a text, or give token ids");
    arrput(c->prompt, ids);
    return !c->status;
}

static bool ask_prompts(serve_call *c, const json_t *body) {
    const json_t *prompt = ask_get(body, "prompt"), *first = json_array_get(prompt, 0);
    if (!json_is_string(first) && !json_is_array(first)) return ask_prompt(c, prompt);
    if ((int64_t)json_array_size(prompt) > serve.max_samples)
        return ask_bad(c, "prompt", "at most %" PRId64 " prompts", serve.max_samples);
    for (size_t i = 0; i < json_array_size(prompt); i++)
        if (!ask_prompt(c, json_array_get(prompt, i))) return false;
    return true;
}

// What a message says: a text, or parts that are texts, which are joined; to be freed.
static bool ask_content(serve_call *c, json_t *content, int number, tok_text *text) {
    char *all = NULL;
    bool fine = content != NULL;
    FILE *file = open_memstream(&all, &text->size);
    for (size_t i = 0; i < ask_count(content) && fine && file; i++) {
        json_t *part = ask_item(content, i);
        if (ask_is(json_object_get(part, "type"), "text")) {
            ask_only(c, part, "messages", 'p', " type text ", "");
            part = json_object_get(part, "text");
        }
        fine = json_is_string(part);
        if (fine) fwrite(json_string_value(part), 1, json_string_length(part), file);
    }
    if (!file || fclose(file)) return ask_no_memory(c);
    text->data = all;
    return fine || ask_bad(c, "messages", "the content of message %d must be a text, or parts of type text", number);
}

// Who speaks, and what is said. No chat template that is known here spells .name. An assistant may have said nothing.
static bool ask_message(serve_call *c, json_t *message, int number, chat_turn *turn) {
    static const char *const roles[] = {"system", "user", "assistant"};
    json_t *content = ask_get(message, "content"), *name = ask_get(message, "name");
    for (int i = 0; i < 3; i++)
        if (ask_is(json_object_get(message, "role"), roles[i])) turn->role = roles[i];
    if (!turn->role)
        return ask_bad(c, "messages",
                       "message %d: its role must be system, user or assistant, as in all known templates; other roles "
                       "need a server that was started with --chat-command",
                       number);
    if (!ask_only(c, message, "messages", 'm', " role content name ", "")) return false;
    if (name && !json_is_string(name)) return ask_bad(c, "messages", "the name of message %d must be a text", number);
    json_t *nothing = !content && !strcmp(turn->role, "assistant") ? json_string("") : NULL;
    const bool fine = ask_content(c, nothing ? nothing : content, number, &turn->text);
    json_decref(nothing);
    return fine;
}

// The command gets what it can use, and its text becomes ids.
static bool ask_command(serve_call *c, const json_t *body) {
    static const char *const names[] = {"messages", "tools", "chat_template_kwargs"};
    llm42_error error = {0};
    int32_t *ids = NULL;
    char *text = NULL;
    json_t *asked = json_object();
    for (int i = 0; i < 3; i++)
        if (ask_get(body, names[i])) json_object_set(asked, names[i], ask_get(body, names[i]));
    char *input = json_dumps(asked, JSON_COMPACT);
    if (!serve.t) ask_bad(c, "messages", "the model has no tokenizer: give token ids to /v1/completions");
    else if (!input) ask_no_memory(c);
    else if (command_spell(c, input, strlen(input), &text) && ask_fits(c, "messages", arrlenu(text)) &&
             tok_encode(serve.t, text, arrlenu(text), false, &ids, &error))
        ask_bad(c, "messages", "%s", error.text);
    arrfree(text);
    free(input);
    json_decref(asked);
    arrput(c->prompt, ids);
    return !c->status;
}

static bool ask_messages(serve_call *c, const json_t *body) {
    const json_t *messages = ask_get(body, "messages"), *effort = ask_get(body, "reasoning_effort");
    const size_t count = json_array_size(messages);
    llm42_error error = {0};
    int32_t *ids = NULL;
    if (!count) return ask_bad(c, "messages", "must be a list of at least one message");
    if (effort && !json_is_string(effort)) return ask_bad(c, "reasoning_effort", "must be a text");
    if (serve.command) return ask_command(c, body);
    if (!serve.chat.format)
        return ask_bad(c, "messages",
                       "%s, or start the server with --chat-command and a program that spells chats, or give the turns "
                       "to /v1/completions, written out or as ids, or have "
                       "Python spell them (examples/python/llm42_chat.py)",
                       serve.chat_error.text);
    if (effort && serve.chat.format->cut & 1)
        return ask_bad(c, "reasoning_effort", "the model's chat template has no levels of it: leave it out");
    chat_turn *turn = calloc(count, sizeof *turn);
    if (!turn) ask_no_memory(c);
    for (size_t i = 0, bytes = 0; i < count && !c->status; i++) {
        ask_message(c, json_array_get(messages, i), (int)i, &turn[i]);
        ask_fits(c, "messages", bytes += turn[i].text.size);
    }
    if (!c->status && chat_turns(&serve.chat, serve.t, turn, (int)count, &ids, &error))
        ask_bad(c, "messages", "%s", error.text);
    for (size_t i = 0; turn && i < count; i++) free((char *)turn[i].text.data);
    free(turn);
    arrput(c->prompt, ids);
    return !c->status;
}

static bool ask_model(serve_call *c, const json_t *body) {
    const json_t *model = ask_get(body, "model");
    if (!model) return true;
    const char *name = json_string_value(model);
    if (!name) return ask_bad(c, "model", "must be a string");
    return ask_is(model, serve.name) ||
           serve_fail(c, 404, "model", "model_not_found", "model: '%.200s' is not here: this server has '%.200s'", name,
                      serve.name);
}

// What decides which fields an answer has.
static bool ask_output(serve_call *c, const json_t *body) {
    json_t *options = ask_get(body, "stream_options");
    int64_t top = -1;
    if (options && !json_is_object(options)) return ask_bad(c, "stream_options", "must be an object");
    if (!ask_only(c, options, "stream_options", 's', " include_usage ", "")) return false;
    if (c->chat) {
        if (!ask_bool(c, body, "logprobs", &c->logprobs) || !ask_int(c, body, "top_logprobs", 0, SERVE_TOP, &top))
            return false;
        if (top > 0 && !c->logprobs) return ask_bad(c, "top_logprobs", "needs \"logprobs\": true");
    } else {
        const bool none = json_is_false(ask_get(body, "logprobs"));
        if (!none && !ask_int(c, body, "logprobs", 0, SERVE_TOP, &top)) return false;
        c->logprobs = top >= 0;
    }
    c->top = top > 0 ? (int)top : 0;
    if (!ask_bool(c, body, "stream", &c->stream) || !ask_bool(c, body, "echo", &c->echo) ||
        !ask_bool(c, options, "include_usage", &c->usage) || !ask_bool(c, body, "return_token_ids", &c->ids_out))
        return false;
    return !(c->echo && c->logprobs && serve.config->kv.prefix_cache) ||
           ask_bad(c, "echo",
                   "a server with --prefix-cache does not compute all of a prompt, so it has not all of its "
                   "log-probabilities: ask without logprobs, or a server without this option");
}

// The fields of the engine's request that all samples share. *limit: max_tokens; -1: not given.
static bool ask_sampling(serve_call *c, const json_t *body, llm42_request_desc *ask, int64_t *limit) {
    int64_t top_k = 0, seed = 0, n = 1, best_of = 0;
    const bool twice = ask_get(body, "max_completion_tokens") != NULL;
    llm42_sampling *s = &ask->sampling;
    s->temperature = 1;
    ask->deterministic = serve.deterministic;
    *limit = -1;
    if (!ask_int(c, body, "max_tokens", 0, INT32_MAX, limit) ||
        !ask_int(c, body, "max_completion_tokens", 0, INT32_MAX, limit) ||
        !ask_float(c, body, "temperature", 0, 1000, &s->temperature) || !ask_float(c, body, "top_p", 0, 1, &s->top_p) ||
        !ask_float(c, body, "min_p", 0, 1, &s->min_p) || !ask_int(c, body, "top_k", -1, INT32_MAX, &top_k) ||
        !ask_int(c, body, "n", 1, serve.max_samples, &n) || !ask_int(c, body, "best_of", 1, INT32_MAX, &best_of) ||
        !ask_int(c, body, "seed", 0, INT64_MAX - 4096, &seed) || !ask_bool(c, body, "ignore_eos", &ask->ignore_stop) ||
        !ask_bool(c, body, "deterministic", &ask->deterministic))
        return false;
    const bool first = ask->deterministic;
    if (!ask_bool(c, body, "is_deterministic", &ask->deterministic)) return false;
    if (ask_get(body, "deterministic") && ask->deterministic != first)
        return ask_bad(c, "is_deterministic", "differs from deterministic: give one of them");
    if (s->temperature > 0 && s->temperature < 1e-4F)
        return ask_bad(c, "temperature", "%g is outside 0.0001 to 1000: give one inside, or 0, which is greedy",
                       (double)s->temperature);
    if (best_of && best_of != n)
        return ask_bad(c, "best_of", "all answers are returned here, and none is chosen: leave it out, or give n, %d",
                       (int)n);
    if (twice && ask_get(body, "max_tokens")) return ask_bad(c, "max_tokens", "give it or max_completion_tokens");
    if (ask_get(body, "top_p") && s->top_p == 0) return ask_bad(c, "top_p", "must be above 0; temperature 0 is greedy");
    s->top_k = top_k > 0 ? (int)top_k : 0;
    s->seed = (uint64_t)seed;
    c->n = (int)n;
    return true;
}

// Has the context room for a prompt and so many tokens behind it? -1: OpenAI's default. Returns the tokens in *limit.
static bool ask_room(serve_call *c, int prompt, int64_t *limit) {
    const int context = answer_room(serve.config);
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
static bool ask_sample(serve_call *c, serve_sample *s, const int32_t *prompt, int limit) {
    const int count = (int)arrlen(prompt);
    const size_t room = (size_t)(c->echo ? count : 0) + (size_t)limit + 1;
    s->call = c, s->limit = limit, s->echo = c->echo ? count : 0;
    s->ask.prompt = prompt, s->ask.prompt_count = count;
    s->ask.max_new_tokens = limit ? limit : 1;
    s->ask.user = s;
    s->answer = (answer){.stream = {.t = serve.t, .skip_special = true}, .stops = c->stops};
    memcpy(s->answer.stop, c->stop, sizeof c->stop);
    s->token = calloc(room, sizeof *s->token);
    s->top = c->top ? calloc(room * (size_t)c->top, sizeof *s->top) : NULL;
    if (!s->token || (c->top && !s->top)) return ask_no_memory(c);
    if (!c->echo && serve.t) tok_stream_follow(&s->answer.stream, prompt, count);
    for (int i = 0; i < s->echo; i++) {
        const tok_text piece = serve.t ? tok_stream_next(&s->answer.stream, prompt[i]) : (tok_text){NULL, 0};
        s->token[i] = (serve_token){prompt[i], 0, s->chars + s->answer.stream.before};
        s->chars += serve_chars(piece.data, piece.size);
        serve_append(&s->prefix, piece.data, piece.size);
    }
    return true;
}

// What an answer takes at most: its tokens here, with their alternatives and text, and in the engine, which has a copy
// of the prompt, too. (Text is an array that doubles; four bytes a token are the most that English has on average.)
// JSON is made in pieces, and takes nothing.
static double ask_bytes(const serve_call *c, double limit, double prompt) {
    const double here = sizeof(serve_token) + 8 + (double)c->top * sizeof(serve_top), engine = 4 + 4;
    return limit * (here + engine) + prompt * (4 + (c->echo ? here : 0));
}

static bool ask_samples(serve_call *c, llm42_request_desc ask, int64_t max_tokens) {
    const int64_t prompts = arrlen(c->prompt);
    llm42_error error = {0};
    double bytes = 0;
    if (llm42_sampling_check(&ask.sampling, &error)) return serve_fail(c, 400, NULL, "invalid_value", "%s", error.text);
    if (prompts * c->n > serve.max_samples)
        return ask_bad(c, "n", "%d answers to each of %d prompts are more than %" PRId64, c->n, (int)prompts,
                       serve.max_samples);
    if (c->chat) ask.stop = serve.stop, ask.stop_count = serve.stop_count;
    c->sample = calloc((size_t)(prompts * c->n), sizeof *c->sample);
    if (!c->sample) return ask_no_memory(c);
    c->samples = (int)prompts * c->n;
    for (int i = 0; i < c->samples; i++) {
        const int32_t *prompt = c->prompt[i / c->n];
        int64_t limit = max_tokens;
        serve_sample *s = &c->sample[i];
        s->ask = ask;
        s->ask.sampling.seed = answer_seed(ask.sampling.seed, i % c->n);
        if (!ask_room(c, (int)arrlen(prompt), &limit)) return false;
        bytes += ask_bytes(c, (double)limit, (double)arrlen(prompt));
        if (bytes > 1 << 28)
            return ask_bad(c, "n", "the answers would take more than 256 MiB: ask for fewer, or fewer logprobs");
        if (!ask_sample(c, s, prompt, (int)limit)) return false;
        if (i % c->n == 0) c->prompt_tokens += arrlen(prompt);
    }
    return true;
}

bool ask_read(serve_call *c) {
    json_error_t wrong;
    llm42_request_desc ask = {0};
    int64_t limit = -1;
    json_t *body = json_loadb(c->body ? c->body : "", c->size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &wrong);
    if (!body && json_error_code(&wrong) == json_error_numeric_overflow)
        return serve_fail(c, 400, NULL, "invalid_value",
                          "line %d, column %d: %s: whole numbers are below 2^63, others below 1.8e308", wrong.line,
                          wrong.column, wrong.text);
    if (!body)
        return serve_fail(c, 400, NULL, "bad_json", "the body is not JSON: line %d, column %d: %s", wrong.line,
                          wrong.column, wrong.text);
    if (!json_is_object(body)) serve_fail(c, 400, NULL, "bad_json", "the body must be an object of JSON");
    const bool fine = !c->status &&
                      ask_only(c, body, NULL, c->chat ? 't' : 'c', ask_both,
                               !c->chat        ? ask_completions
                               : serve.command ? ask_commanded
                                               : ask_chats) &&
                      ask_model(c, body) && ask_output(c, body) && ask_stop(c, body) &&
                      ask_sampling(c, body, &ask, &limit) && (c->chat ? ask_messages(c, body) : ask_prompts(c, body)) &&
                      ask_samples(c, ask, limit);
    json_decref(body);
    return fine;
}
