// reply.c: answers as JSON: whole, or as the events of a stream. It runs on HTTP's thread.
#define _POSIX_C_SOURCE 200809L
#include "serve.h"

// A string of JSON. Each byte that is no UTF-8 becomes U+FFFD.
static json_t *reply_text(const char *text, size_t size) {
    char *good = NULL;
    json_t *whole = json_stringn(text ? text : "", size);  // NULL: there is such a byte
    if (whole) return whole;
    for (size_t i = 0; i < size;) {
        const int bytes = tok_utf8(text + i, size - i);
        const tok_text from = bytes < 1 ? (tok_text){"\xEF\xBF\xBD", 3} : (tok_text){text + i, (size_t)bytes};
        serve_append(&good, from.data, from.size);
        i += bytes < 1 ? 1 : from.size;
    }
    json_t *json = json_stringn(good ? good : "", arrlenu(good));
    arrfree(good);
    return json;
}

static tok_text reply_bytes(int32_t id, char number[32]) {
    const tok *t = serve.t;
    if (t && id < t->count) return (tok_text){t->bytes + t->piece[id].at, (size_t)t->piece[id].size};
    return (tok_text){number, (size_t)snprintf(number, 32, "token_id:%d", (int)id)};
}

// The text of a token, by itself: "bytes:\xe2\x80" if it is a part of a character.
static json_t *reply_token(int32_t id) {
    char number[32], *spelled = NULL;
    const tok_text piece = reply_bytes(id, number);
    size_t size = 0;
    bool whole = true;
    for (size_t i = 0; i < piece.size && whole;) {
        const int bytes = tok_utf8(piece.data + i, piece.size - i);
        whole = bytes > 0, i += whole ? (size_t)bytes : 0;
    }
    if (whole) return json_stringn(piece.data, piece.size);
    FILE *file = open_memstream(&spelled, &size);
    if (!file) return json_string("");
    fputs("bytes:", file);
    for (size_t i = 0; i < piece.size; i++) fprintf(file, "\\x%02x", (unsigned char)piece.data[i]);
    fclose(file);
    json_t *json = json_stringn(spelled, size);
    free(spelled);
    return json;
}

// What a chat's answer says of a token.
static json_t *reply_chat_token(int32_t id, float logprob) {
    char number[32];
    const tok_text piece = reply_bytes(id, number);
    json_t *bytes = json_array();
    for (size_t i = 0; i < piece.size; i++) json_array_append_new(bytes, json_integer((unsigned char)piece.data[i]));
    return json_pack("{s:o, s:f, s:o}", "token", reply_token(id), "logprob", (double)logprob, "bytes", bytes);
}

// The alternatives of place `at`, by their texts, and the token itself, which is none of them if it was unlikely.
static json_t *reply_top(const serve_sample *s, int at, int32_t id, float logprob) {
    const int k = s->call->top;
    json_t *all = json_object();
    for (int i = 0; i <= k; i++) {
        const serve_top *top = &s->top[(size_t)at * (size_t)k + (size_t)(i < k ? i : 0)];
        const int32_t token = i < k ? top->token : id;
        json_t *key = token < 0 ? NULL : reply_token(token);
        if (key && !json_object_get(all, json_string_value(key)))  // of equal texts the likelier one counts
            json_object_set_new(all, json_string_value(key), json_real((double)(i < k ? top->logprob : logprob)));
        json_decref(key);
    }
    return all;
}

// The logprobs of tokens [from, to) of a completion. The first token of a prompt has none.
static json_t *reply_logprobs(const serve_sample *s, int from, int to) {
    json_t *tokens = json_array(), *logprobs = json_array(), *tops = json_array(), *offsets = json_array();
    for (int i = from; i < to; i++) {
        const serve_token *t = &s->token[i];
        const bool none = s->echo && !i;
        json_array_append_new(tokens, reply_token(t->id));
        json_array_append_new(logprobs, none ? json_null() : json_real((double)t->logprob));
        json_array_append_new(tops, none || !s->top ? json_null() : reply_top(s, i, t->id, t->logprob));
        json_array_append_new(offsets, json_integer(t->offset));
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", logprobs, "top_logprobs", tops,
                     "text_offset", offsets);
}

static json_t *reply_chat_logprobs(const serve_sample *s, int from, int to) {
    json_t *content = json_array();
    for (int i = from; i < to; i++) {
        json_t *token = reply_chat_token(s->token[i].id, s->token[i].logprob), *tops = json_array();
        for (int k = 0; k < s->call->top; k++) {
            const serve_top *top = &s->top[(size_t)i * (size_t)s->call->top + (size_t)k];
            if (top->token >= 0) json_array_append_new(tops, reply_chat_token(top->token, top->logprob));
        }
        json_object_set_new(token, "top_logprobs", tops);
        json_array_append_new(content, token);
    }
    return json_pack("{s:o}", "content", content);
}

// A choice: the tokens from .sent to `to`, whose text is `text`; NULL: there is no tokenizer.
static json_t *reply_fields(serve_sample *s, json_t *text, int to, bool ended) {
    const serve_call *c = s->call;
    json_t *choice = json_pack("{s:i}", "index", (int)(s - c->sample)), *said = text;
    const char *name = !c->chat ? "text" : c->stream ? "delta" : "message";
    if (c->chat) said = json_pack("{s:o}", "content", text);
    if (c->chat && !s->begun) json_object_set_new(said, "role", json_string("assistant"));
    json_object_set_new(choice, name, said);
    json_t *logprobs = !c->logprobs ? json_null()
                       : c->chat    ? reply_chat_logprobs(s, s->sent, to)
                                    : reply_logprobs(s, s->sent, to);
    json_object_set_new(choice, "logprobs", logprobs);
    json_t *finish = ended ? json_string(answer_finish(&s->answer, s->finish)) : json_null();
    json_object_set_new(choice, "finish_reason", finish);
    if (ended) json_object_set_new(choice, "seed", json_integer((json_int_t)s->seed));
    if (ended) json_object_set_new(choice, "deterministic", json_boolean(s->ask.deterministic));
    json_t *ids = c->ids_out ? json_array() : NULL;
    for (int i = s->sent > s->echo ? s->sent : s->echo; ids && i < to; i++)
        json_array_append_new(ids, json_integer(s->token[i].id));
    if (ids) json_object_set_new(choice, "token_ids", ids);
    s->sent = to, s->begun = true, s->ended = ended;
    return choice;
}

// A choice with what is new of a sample. NULL: nothing is.
static json_t *reply_choice(serve_sample *s) {
    const serve_call *c = s->call;
    char *text = NULL;
    serve_lock();
    const int to = s->count;
    const bool ended = s->finished, waits = s->echo && !to && !ended;  // for the prompt's log-probabilities
    if (!c->stops) serve_unlock(), serve_take_text(s, to, ended);      // else the engine's thread has made the text
    const tok_text fresh = waits ? (tok_text){NULL, 0} : answer_fresh(&s->answer, ended);
    if (!waits && !s->begun) serve_append(&text, s->prefix, arrlenu(s->prefix));
    serve_append(&text, fresh.data, fresh.size);
    if (c->stops) serve_unlock();
    const bool any = ended || arrlen(text) || (to > s->sent && (c->logprobs || c->ids_out));
    json_t *json = any && !serve.t ? json_null() : any ? reply_text(text, arrlenu(text)) : NULL;
    arrfree(text);
    return any ? reply_fields(s, json, to, ended) : NULL;
}

// What every answer and every event begins with.
static json_t *reply_head(const serve_call *c, json_t *choices) {
    char id[64];
    snprintf(id, sizeof id, "%s-%" PRId64, c->chat ? "chatcmpl" : "cmpl", c->number);
    const char *object = !c->chat ? "text_completion" : c->stream ? "chat.completion.chunk" : "chat.completion";
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", id, "object", object, "created", (json_int_t)time(NULL),
                     "model", serve.name, "system_fingerprint", serve.fingerprint, "choices", choices);
}

static json_t *reply_usage(const serve_call *c) {
    json_int_t tokens = 0;
    for (int i = 0; i < c->samples; i++) tokens += c->sample[i].sent - c->sample[i].echo;
    return json_pack("{s:I, s:I, s:I}", "prompt_tokens", (json_int_t)c->prompt_tokens, "completion_tokens", tokens,
                     "total_tokens", (json_int_t)c->prompt_tokens + tokens);
}

json_t *reply_error(const serve_call *c) {
    const char *type = c->status == 401   ? "authentication_error"
                       : c->status == 429 ? "rate_limit_error"
                       : c->status >= 500 ? "server_error"
                                          : "invalid_request_error";
    json_t *param = c->param[0] ? reply_text(c->param, strlen(c->param)) : json_null();
    return json_pack("{s:{s:o, s:s, s:o, s:s}}", "error", "message", reply_text(c->message, strlen(c->message)), "type",
                     type, "param", param, "code", c->code);
}

char *reply_whole(serve_call *c) {
    json_t *choices = json_array();
    for (int i = 0; i < c->samples; i++) json_array_append_new(choices, reply_choice(&c->sample[i]));
    json_t *reply = reply_head(c, choices);
    json_object_set_new(reply, "usage", reply_usage(c));
    char *text = json_dumps(reply, REPLY_FLAGS);
    json_decref(reply);
    return text;
}

// Adds an event to what is to be sent, and lets the object go.
static void reply_put(serve_call *c, json_t *event) {
    char *text = json_dumps(event, REPLY_FLAGS);
    json_decref(event);
    if (!text) return;
    serve_append(&c->out, "data: ", 6);
    serve_append(&c->out, text, strlen(text));
    serve_append(&c->out, "\n\n", 2);
    free(text);
}

void reply_stream(serve_call *c) {
    bool all = true;
    serve_lock();
    const bool failed = c->status != 0;
    c->fresh = false;
    serve_unlock();
    for (int i = 0; i < c->samples && !failed; i++) {
        json_t *choice = c->sample[i].ended ? NULL : reply_choice(&c->sample[i]);
        json_t *event = choice ? reply_head(c, json_pack("[o]", choice)) : NULL;
        if (event && c->usage) json_object_set_new(event, "usage", json_null());
        if (event) reply_put(c, event);
        all &= c->sample[i].ended;
    }
    if (!failed && !all) return;
    if (failed) reply_put(c, reply_error(c));
    if (!failed && c->usage) {
        json_t *event = reply_head(c, json_array());
        json_object_set_new(event, "usage", reply_usage(c));
        reply_put(c, event);
    }
    serve_append(&c->out, "data: [DONE]\n\n", 14);
    c->out_ended = true;
}
