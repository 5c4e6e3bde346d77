// reply.c: answers as JSON: whole, or as the events of a stream, in pieces. It runs on HTTP's thread, so that a piece
// takes at most some milliseconds.
#define _POSIX_C_SOURCE 200809L
#include "serve.h"

// A string of JSON. What is no UTF-8, as in a client's own words, becomes U+FFFD.
static json_t *reply_text(const char *text, size_t size) {
    char *good = NULL;
    json_t *whole = json_stringn(text ? text : "", size);  // NULL: there is such a byte
    if (whole) return whole;
    tok_show(&good, text, size);
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

// What an answer lists of each of its tokens.
typedef enum reply_list {
    REPLY_TOKENS,
    REPLY_LOGPROBS,
    REPLY_TOPS,
    REPLY_OFFSETS,
    REPLY_CONTENT,
    REPLY_IDS
} reply_list;

// The first token of a prompt has no logprobs.
static json_t *reply_item(const serve_sample *s, reply_list list, int i) {
    const serve_token *t = &s->token[i];
    const bool none = s->echo && !i;
    switch (list) {
    case REPLY_TOKENS: return reply_token(t->id);
    case REPLY_LOGPROBS: return none ? json_null() : json_real((double)t->logprob);
    case REPLY_TOPS: return none || !s->top ? json_null() : reply_top(s, i, t->id, t->logprob);
    case REPLY_OFFSETS: return json_integer(t->offset);
    case REPLY_CONTENT: {
        json_t *token = reply_chat_token(t->id, t->logprob), *tops = json_array();
        for (int k = 0; k < s->call->top; k++) {
            const serve_top *top = &s->top[(size_t)i * (size_t)s->call->top + (size_t)k];
            if (top->token >= 0) json_array_append_new(tops, reply_chat_token(top->token, top->logprob));
        }
        json_object_set_new(token, "top_logprobs", tops);
        return token;
    }
    case REPLY_IDS: return json_integer(t->id);
    }
    return NULL;
}

static json_t *reply_items(const serve_sample *s, reply_list list, int from, int to) {
    json_t *items = json_array();
    for (int i = from; i < to; i++) json_array_append_new(items, reply_item(s, list, i));
    return items;
}

// The logprobs of tokens [from, to).
static json_t *reply_logprobs(const serve_sample *s, int from, int to) {
    if (!s->call->logprobs) return json_null();
    if (s->call->chat) return json_pack("{s:o}", "content", reply_items(s, REPLY_CONTENT, from, to));
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", reply_items(s, REPLY_TOKENS, from, to), "token_logprobs",
                     reply_items(s, REPLY_LOGPROBS, from, to), "top_logprobs", reply_items(s, REPLY_TOPS, from, to),
                     "text_offset", reply_items(s, REPLY_OFFSETS, from, to));
}

// How an answer has ended.
static void reply_end(serve_sample *s, json_t *choice) {
    json_object_set_new(choice, "finish_reason", json_string(answer_finish(&s->answer, s->finish)));
    json_object_set_new(choice, "seed", json_integer((json_int_t)s->seed));
    json_object_set_new(choice, "deterministic", json_boolean(s->ask.deterministic));
    s->ended = true;
}

// Tokens below `to` are written, and their client gets them.
static void reply_sent(serve_sample *s, int to) {
    const int from = s->sent > s->echo ? s->sent : s->echo;
    serve_lock();
    if (to > from) serve.counts.sent += to - from;
    serve_unlock();
    s->sent = to, s->begun = true;
}

// A choice of an event: the tokens from .sent to `to`, whose text is `text`; null: there is no tokenizer. NULL: the
// last one of a chat, in which there is nothing new.
static json_t *reply_fields(serve_sample *s, json_t *text, int to, bool end) {
    const serve_call *c = s->call;
    json_t *choice = json_pack("{s:i}", "index", (int)(s - c->sample)), *said = text;
    if (c->chat) said = text ? json_pack("{s:o}", "content", text) : json_object();
    if (c->chat && !s->begun) json_object_set_new(said, "role", json_string("assistant"));
    json_object_set_new(choice, c->chat ? "delta" : "text", said);
    json_object_set_new(choice, "logprobs", text ? reply_logprobs(s, s->sent, to) : json_null());
    if (end) reply_end(s, choice);
    else json_object_set_new(choice, "finish_reason", json_null());
    if (c->ids_out && text)
        json_object_set_new(choice, "token_ids", reply_items(s, REPLY_IDS, s->sent > s->echo ? s->sent : s->echo, to));
    reply_sent(s, to);
    return choice;
}

// Tokens that are written in one go, so that a long answer does not hold up other clients.
static int reply_step(const serve_call *c) { return 512 / (1 + c->top); }

// A choice with what is new of a sample. NULL: nothing is. The last chunk of a chat has an empty delta.
static json_t *reply_choice(serve_sample *s) {
    const serve_call *c = s->call;
    char *text = NULL;
    serve_lock();
    const bool lists = c->logprobs || c->ids_out;
    const int most = lists ? s->sent + reply_step(c) : s->count, to = s->count < most ? s->count : most;
    const bool ended = s->finished && to == s->count;
    const bool waits = s->echo && !to && !ended;                   // for the prompt's log-probabilities
    if (!c->stops) serve_unlock(), serve_take_text(s, to, ended);  // else the engine's thread has made the text
    const tok_text fresh = waits ? (tok_text){NULL, 0} : answer_fresh(&s->answer, ended);
    if (!waits && !s->begun) serve_append(&text, s->prefix, arrlenu(s->prefix));
    serve_append(&text, fresh.data, fresh.size);
    if (c->stops) serve_unlock();
    const bool any = arrlen(text) || (to > s->sent && lists) || (ended && !s->begun);
    const bool last = ended && c->chat && !any;
    json_t *json = last ? NULL : serve.t ? reply_text(text, arrlenu(text)) : json_null();
    arrfree(text);
    if (!any && !ended) return json_decref(json), NULL;
    return reply_fields(s, json, to, ended && (last || !c->chat));
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

// >>whole: an answer that is sent when it is finished, in pieces: as one object of JSON it would take many times the
// memory of its tokens, and hold up all other clients while it is made.
static const struct {
    reply_list list;
    const char *before, *behind;
} reply_lists[] = {{REPLY_TOKENS, ",\"logprobs\":{\"tokens\":[", "]"},
                   {REPLY_LOGPROBS, ",\"token_logprobs\":[", "]"},
                   {REPLY_TOPS, ",\"top_logprobs\":[", "]"},
                   {REPLY_OFFSETS, ",\"text_offset\":[", "]}"},
                   {REPLY_CONTENT, ",\"logprobs\":{\"content\":[", "]}"},
                   {REPLY_IDS, ",\"token_ids\":[", "]"}};
enum { REPLY_LISTS = sizeof reply_lists / sizeof *reply_lists };

static void reply_add(serve_call *c, const char *text) { serve_append(&c->out, text, strlen(text)); }

// Adds JSON but for the bytes that it begins and ends with, and lets it go.
static void reply_add_json(serve_call *c, json_t *json, size_t begin, size_t end) {
    char *text = json_dumps(json, REPLY_FLAGS | JSON_ENCODE_ANY);
    const size_t size = text ? strlen(text) : 0;
    if (size >= begin + end) serve_append(&c->out, text + begin, size - begin - end);
    free(text);
    json_decref(json);
}

// Adds a part of the text; it ends at the end of a character.
static bool reply_add_text(serve_call *c, const serve_sample *s) {
    const size_t prompt = arrlenu(s->prefix), at = c->whole.at;
    const tok_text from = at < prompt ? (tok_text){s->prefix + at, prompt - at}
                                      : (tok_text){s->answer.text ? s->answer.text + (at - prompt) : "",
                                                   arrlenu(s->answer.text) + prompt - at};
    size_t size = 0;
    while (size < from.size && size < REPLY_PIECE) {
        const int bytes = tok_utf8(from.data + size, from.size - size);
        size += bytes < 1 ? 1 : (size_t)bytes;
    }
    reply_add_json(c, reply_text(from.data, size), 1, 1);
    c->whole.at += size;
    return c->whole.at == prompt + arrlenu(s->answer.text);
}

// Adds some items of a list. Returns whether these were the last.
static bool reply_add_items(serve_call *c, const serve_sample *s) {
    const reply_list list = reply_lists[c->whole.list].list;
    const int from = list == REPLY_IDS ? s->echo : 0;
    if (list == REPLY_IDS ? !c->ids_out : !c->logprobs || c->chat != (list == REPLY_CONTENT)) return true;
    if (!c->whole.at) reply_add(c, reply_lists[c->whole.list].before);
    for (int n = reply_step(c); n > 0 && from + (int)c->whole.at < s->count; n--, c->whole.at++) {
        if (c->whole.at) reply_add(c, ",");
        reply_add_json(c, reply_item(s, list, from + (int)c->whole.at), 0, 0);
    }
    if (from + (int)c->whole.at < s->count) return false;
    reply_add(c, reply_lists[c->whole.list].behind);
    return true;
}

// What stands before and behind the text and the lists of a choice.
static void reply_open(serve_call *c, serve_sample *s) {
    char text[80];
    if (!c->stops) serve_take_text(s, s->count, true);
    snprintf(text, sizeof text, "%s{\"index\":%d,%s", c->whole.sample ? "," : "", c->whole.sample,
             c->chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":");
    reply_add(c, text);
    reply_add(c, serve.t ? "\"" : "null");
}

static void reply_close(serve_call *c, serve_sample *s) {
    json_t *end = c->logprobs ? json_object() : json_pack("{s:n}", "logprobs");
    reply_end(s, end);
    reply_add(c, ",");
    reply_add_json(c, end, 1, 0);
    reply_sent(s, s->count);
}

// Adds the next piece. The states are in the order in which they come, and those from OPEN to CLOSE come once for each
// choice.
static void reply_next(serve_call *c) {
    enum { HEAD, OPEN, TEXT, LISTS, CLOSE, FOOT };
    serve_sample *s = &c->sample[c->whole.sample];
    switch (c->whole.state) {
    case HEAD: reply_add_json(c, reply_head(c, json_array()), 0, 2), c->whole.state = OPEN; break;
    case OPEN: reply_open(c, s), c->whole.at = 0, c->whole.state = TEXT; break;
    case TEXT:
        if (serve.t && !reply_add_text(c, s)) break;
        reply_add(c, !serve.t ? "" : "\"");
        if (c->chat) reply_add(c, "}");
        c->whole.at = 0, c->whole.list = 0, c->whole.state = LISTS;
        break;
    case LISTS:
        if (!reply_add_items(c, s)) break;
        c->whole.at = 0;
        if (++c->whole.list == REPLY_LISTS) c->whole.state = CLOSE;
        break;
    case CLOSE: reply_close(c, s), c->whole.state = ++c->whole.sample < c->samples ? OPEN : FOOT; break;
    case FOOT:
        reply_add(c, "],\"usage\":");
        reply_add_json(c, reply_usage(c), 0, 0);
        reply_add(c, "}");
        c->out_ended = true;
        break;
    }
}

void reply_whole(serve_call *c, size_t size) {
    while (!c->out_ended && arrlenu(c->out) < size) reply_next(c);
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
        json_t *choice = NULL;
        while (!c->sample[i].ended && arrlen(c->out) < REPLY_PIECE && (choice = reply_choice(&c->sample[i]))) {
            json_t *event = reply_head(c, json_pack("[o]", choice));
            if (c->usage) json_object_set_new(event, "usage", json_null());
            reply_put(c, event);
        }
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
