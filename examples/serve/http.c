// http.c: connections and endpoints, on the one thread of libmicrohttpd. A connection that waits for the engine is
// suspended, so that it takes no time, and resumed when there is news. While a connection is suspended nobody else
// looks at its socket, so the engine's thread also looks whether the client is still there.
#define _GNU_SOURCE
#include "serve.h"

#include <netdb.h>
#include <sys/socket.h>

// >>metrics: Prometheus text. Names of vLLM where they mean the same ------------------------------------------------

static void http_histogram(FILE *f, const char *name, const serve_histogram *h) {
    int64_t count = 0;
    fprintf(f, "# TYPE %s histogram\n", name);
    for (int i = 0; i < SERVE_BUCKETS; i++)
        fprintf(f, "%s_bucket{le=\"%g\"} %" PRId64 "\n", name, serve_bounds[i], count += h->count[i]);
    count += h->count[SERVE_BUCKETS];
    fprintf(f, "%s_bucket{le=\"+Inf\"} %" PRId64 "\n%s_sum %.9g\n", name, count, name, h->sum);
    fprintf(f, "%s_count %" PRId64 "\n", name, count);
}

static void http_by(FILE *f, const char *name, const char *label, const char *const *words, int first, int last,
                    const int64_t *value) {
    fprintf(f, "# TYPE %s counter\n", name);
    for (int i = first; i <= last; i++) fprintf(f, "%s{%s=\"%s\"} %" PRId64 "\n", name, label, words[i], value[i]);
}

static char *http_metrics(void) {  // to be freed; NULL: out of memory
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f) return NULL;
    static const char *const reasons[] = {"none", "stop", "length", "abort", "error"};
    static const char *const codes[] = {"", "1xx", "2xx", "3xx", "4xx", "5xx"};
    static const char *const schedules[] = {"none", "fast", "fixed", "invariant"};
    serve_lock();
    const serve_counts now = serve.counts;
    serve_unlock();
    const llm42_stats *s = &now.stats;
    const struct {
        const char *name;
        double value;
    } single[] = {{"vllm:num_requests_running", s->running},
                  {"vllm:num_requests_waiting", now.live - s->running},
                  {"vllm:kv_cache_usage_perc", 1 - (double)s->pages_free / serve.config->kv.pages},
                  {"vllm:num_preemptions_total", (double)s->preemptions},
                  {"vllm:prefix_cache_hits_total", (double)s->prefix_hits},
                  {"vllm:prompt_tokens_total", (double)s->prompt_tokens},
                  {"vllm:spec_decode_num_draft_tokens_total", (double)s->drafted},
                  {"vllm:spec_decode_num_accepted_tokens_total", (double)s->accepted},
                  {"vllm:generation_tokens_total", (double)now.sent},
                  {"llm42:returned_tokens_total", (double)s->returned_tokens},
                  {"llm42:deterministic_tokens_total", (double)s->deterministic_tokens},
                  {"llm42:candidates_total", (double)s->candidates},
                  {"llm42:windows_total", (double)s->verifications},
                  {"llm42:rollbacks_total", (double)s->rollbacks},
                  {"llm42:recomputed_tokens_total", (double)s->recomputed},
                  {"llm42:clients_gone_total", (double)now.clients_gone}};
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        fprintf(f, "# TYPE %s %s\n%s %.15g\n", single[i].name, strstr(single[i].name, "_total") ? "counter" : "gauge",
                single[i].name, single[i].value);
    http_by(f, "vllm:request_success_total", "finished_reason", reasons, 1, 4, now.finished);
    http_by(f, "llm42:passes_total", "schedule", schedules, 1, 3, s->passes);
    http_by(f, "llm42:rows_total", "schedule", schedules, 1, 3, s->rows);
    fprintf(f, "# TYPE llm42:pass_seconds_total counter\n");
    for (int i = 1; i <= 3; i++)
        fprintf(f, "llm42:pass_seconds_total{schedule=\"%s\"} %.9g\n", schedules[i], s->busy[i]);
    http_by(f, "llm42:http_responses_total", "code", codes, 2, 5, now.responses);
    http_histogram(f, "vllm:time_to_first_token_seconds", &now.first_token);
    http_histogram(f, "vllm:e2e_request_latency_seconds", &now.latency);
    fclose(f);
    return text;
}

// >>responses -------------------------------------------------------------------------------------------------------

static enum MHD_Result http_queue(serve_call *c, int status, struct MHD_Response *response, const char *type) {
    if (!response) return MHD_NO;
    serve_lock();
    const bool draining = serve.draining;
    serve.counts.responses[status / 100]++;
    serve_unlock();
    MHD_add_response_header(response, "Content-Type", type);
    if (draining || c->last) MHD_add_response_header(response, "Connection", "close");
    if (status == 429 || status == 503) MHD_add_response_header(response, "Retry-After", "1");
    if (status == 405) MHD_add_response_header(response, "Allow", c->only);
    if (status == 401) MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    const enum MHD_Result result = MHD_queue_response(c->connection, (unsigned)status, response);
    MHD_destroy_response(response);
    return result;
}

// Sends a text, which is freed.
static enum MHD_Result http_text(serve_call *c, int status, char *text, const char *type) {
    if (!text) return MHD_NO;
    return http_queue(c, status, MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE), type);
}

static enum MHD_Result http_json(serve_call *c, int status, json_t *json) {
    char *text = json_dumps(json, REPLY_FLAGS);
    json_decref(json);
    return http_text(c, status, text, "application/json");
}

// The next bytes of an answer. Where a stream has none yet, the connection is suspended.
static ssize_t http_stream(void *user, uint64_t position, char *to, size_t room) {
    serve_call *c = user;
    (void)position;
    for (;;) {
        const size_t left = arrlenu(c->out) - c->out_sent, size = left < room ? left : room;
        if (left) memcpy(to, c->out + c->out_sent, size);
        c->out_sent += size;
        if (left) return (ssize_t)size;
        arrsetlen(c->out, 0), c->out_sent = 0;
        if (c->out_ended) return MHD_CONTENT_READER_END_OF_STREAM;
        if (c->stream) reply_stream(c);
        else reply_whole(c, REPLY_PIECE);
        if (arrlen(c->out)) continue;
        serve_lock();
        const bool gone = c->gone, wait = !gone && !c->fresh && !c->status;
        if (wait) c->suspended = true, MHD_suspend_connection(c->connection);
        serve_unlock();
        if (gone) return MHD_CONTENT_READER_END_WITH_ERROR;
        if (wait) return 0;
    }
}

// A whole answer. A short one has a Content-Length; a long one is written as it is sent.
static enum MHD_Result http_whole(serve_call *c) {
    reply_whole(c, 4 * REPLY_PIECE);
    return http_queue(c, 200,
                      c->out_ended ? MHD_create_response_from_buffer(arrlenu(c->out), c->out, MHD_RESPMEM_PERSISTENT)
                                   : MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 1 << 14, http_stream, c, NULL),
                      "application/json");
}

// Gives a call to the engine's thread, unless there are too many.
static bool http_submit(serve_call *c) {
    serve_call **end = &serve.calls;
    serve_lock();
    const int64_t room = serve.max_samples - serve.counts.live;
    if (serve.draining) serve_fail(c, 503, NULL, "draining", "the server is being ended: ask another one");
    if (c->samples > room)
        serve_fail(c, 429, NULL, "queue_full", "the queue has room for %" PRId64 " answers, not for %d: try again",
                   room, c->samples);
    if (!c->status) {
        while (*end) end = &(*end)->next;
        *end = c, serve.counts.live += c->samples;
        c->open = c->samples, c->number = ++serve.numbers, c->begin = serve_now(), c->submitted = true;
        serve.asked = true;
        pthread_cond_signal(&serve.news);
        if (!c->stream) c->suspended = true, MHD_suspend_connection(c->connection);
    }
    serve_unlock();
    return c->submitted;
}

// >>endpoints -------------------------------------------------------------------------------------------------------

static json_t *http_model(void) {
    return json_pack("{s:s, s:s, s:I, s:s, s:i}", "id", serve.name, "object", "model", "created",
                     (json_int_t)serve.started, "owned_by", "llm42", "max_model_len", answer_room(serve.config));
}

// Compares every byte, so that the time tells nothing of the key.
static bool http_key(struct MHD_Connection *connection) {
    const char *said = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization");
    if (!serve.key) return true;
    if (!said || strncasecmp(said, "Bearer ", 7)) return false;
    const size_t size = strlen(said + 7), want = strlen(serve.key);
    unsigned different = size != want;
    for (size_t i = 0; i < want; i++) different |= (unsigned char)(serve.key[i] ^ (said + 7)[i < size ? i : 0]);
    return !different;
}

static bool http_is_json(struct MHD_Connection *connection) {
    const char *type = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Type");
    return type && !strncasecmp(type, "application/json", 16) && (!type[16] || strchr("; \t", type[16]));
}

static enum MHD_Result http_health(serve_call *c) {
    serve_lock();
    const bool draining = serve.draining;
    serve_unlock();
    return http_json(c, draining ? 503 : 200, json_pack("{s:s}", "status", draining ? "draining" : "ok"));
}

// The path of a request's target, which may be a whole URL (RFC 9112, 3.2.2). libmicrohttpd gives it without its query.
static const char *http_path(const char *target) {
    const size_t scheme = !strncasecmp(target, "http://", 7) ? 7 : !strncasecmp(target, "https://", 8) ? 8 : 0;
    const char *path = scheme ? strchr(target + scheme, '/') : target;
    return path ? path : "/";
}

static bool http_too_large(serve_call *c) {
    return serve_fail(c, 413, NULL, "body_too_large", "the body has more than %" PRId64 " bytes (--max-body)",
                      serve.max_body);
}

// Bytes of a body that are read. What is over --max-body is dropped, so that the client can read why, but not for ever.
static int64_t http_most(void) { return 4 * serve.max_body + (1 << 20); }

// >>headers: what is wrong with a request before its body is read. A page in a browser may ask any server under a name
// that it has pointed at 127.0.0.1 (DNS rebinding), so a server on loopback answers to its own names alone.
static bool http_is_own(const char *said, size_t size) {
    const size_t name = said[0] == '[' ? strcspn(said, "]") + (strchr(said, ']') != NULL) : strcspn(said, ":");
    const char *port = said + name + (said[name] == ':');
    if (port + strspn(port, "0123456789") != said + size) return false;
    for (int i = 0; serve.names[i]; i++)
        if (strlen(serve.names[i]) == name && !strncasecmp(serve.names[i], said, name)) return true;
    return false;
}

typedef struct http_headers {
    const char *wrong;    // what is wrong with the form of a line
    const char *end;      // of the last value; NULL: there is none
    const char *foreign;  // a Host that is not ours, of so many bytes
    int foreign_size, hosts, lengths, codings;
    bool chunked;
} http_headers;

// libmicrohttpd ends a value at a NUL and drops the rest of its line. But names and values stay where they were
// received, so what comes next begins at most `most` bytes behind the line's end if nothing was dropped.
static bool http_line_ends(const char *end, const char *next, size_t most) {
    const char *from = end + 1 + strspn(end + 1, " \t\r");
    return (uintptr_t)next - (uintptr_t)from <= most;
}

// A name that has a space before its colon is another one to libmicrohttpd, as is one whose value goes on in the next
// line: that value's rest becomes the end of the name, in a copy of it that no longer stands before the value.
static enum MHD_Result http_header(void *user, enum MHD_ValueKind kind, const char *name, size_t name_size,
                                   const char *value, size_t size) {
    static const char token[] = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    http_headers *h = user;
    (void)kind;
    const uintptr_t gap = (uintptr_t)value - (uintptr_t)(name + name_size + 1);
    if (gap > 1 << 16 || strspn(name + name_size + 1, " \t") < gap)
        h->wrong = "a value goes on in the next line: write it in one line";
    else if (!name_size || strspn(name, token) != name_size)
        h->wrong = "the name of a header has a space or another character that no name has: write 'Name: value'";
    else if (h->end && !http_line_ends(h->end, name, 1)) h->wrong = "a header has a NUL: leave it out";
    h->end = value + size;
    h->lengths += !strcasecmp(name, "Content-Length");
    if (!strcasecmp(name, "Transfer-Encoding")) h->codings++, h->chunked = !strcasecmp(value, "chunked");
    if (strcasecmp(name, "Host")) return MHD_YES;
    h->hosts++;
    if (serve.names[0] && !http_is_own(value, size)) h->foreign = value, h->foreign_size = size < 200 ? (int)size : 200;
    return MHD_YES;
}

// False: it is unclear where the body ends, or nobody reads so much of it, so the connection cannot go on.
static bool http_check_headers(serve_call *c, const char *method, const char *version) {
    http_headers h = {0};
    MHD_get_connection_values_n(c->connection, MHD_HEADER_KIND, http_header, &h);
    const char *length = MHD_lookup_connection_value(c->connection, MHD_HEADER_KIND, "Content-Length");
    const size_t size = MHD_get_connection_info(c->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE)->header_size;
    if (!h.wrong && h.end && !http_line_ends(h.end, method + size, 3)) h.wrong = "a header has a NUL: leave it out";
    if (h.wrong) serve_fail(c, 400, NULL, "bad_header", "%s", h.wrong);
    else if (h.lengths + h.codings > 1)
        serve_fail(c, 400, NULL, "bad_length",
                   "it is unclear where the body ends: send one Content-Length, or one Transfer-Encoding");
    else if (h.codings && !h.chunked)
        serve_fail(c, 501, NULL, "unknown_coding",
                   "Transfer-Encoding: only chunked is understood here: send that, or a Content-Length");
    else if (length && strtoll(length, NULL, 10) > http_most()) http_too_large(c);
    c->last = c->status != 0;
    if (c->last) return false;
    if (h.foreign)
        serve_fail(c, 403, NULL, "wrong_host",
                   "Host: '%.*s' is no name of this server: ask %s, or start it with --host-name NAME", h.foreign_size,
                   h.foreign, serve.names[0]);
    else if (h.hosts > 1 || (!h.hosts && strcmp(version, "HTTP/1.0")))
        serve_fail(c, 400, NULL, "bad_header", "a request has one header Host: send one, such as Host: localhost");
    return true;
}

// >>reading: a text of a megabyte takes seconds to become tokens, and a command takes its time, so a thread of its own
// reads what is long.

enum { HTTP_SHORT = 1 << 12 };  // bytes of a body that takes some milliseconds at most

void *http_read_long(void *unused) {
    (void)unused;
    serve_lock();
    for (serve_call *c; arrlen(serve.reads) || !serve.reads_end;) {
        if (!arrlen(serve.reads)) {
            pthread_cond_wait(&serve.reading, &serve.lock);
            continue;
        }
        c = serve.reads[0];
        arrdel(serve.reads, 0);
        serve_unlock();
        ask_read(c);
        MHD_resume_connection(c->connection);
        serve_lock();
    }
    serve_unlock();
    return NULL;
}

static enum MHD_Result http_read_later(serve_call *c) {
    c->reading = true;
    serve_lock();
    serve.in_reading++;
    MHD_suspend_connection(c->connection);
    arrput(serve.reads, c);
    pthread_cond_signal(&serve.reading);
    serve_unlock();
    return MHD_YES;
}

// A body that was read.
static enum MHD_Result http_asked(serve_call *c) {
    const bool was_long = c->reading;
    c->reading = false;
    const bool submitted = !c->status && http_submit(c);
    serve_lock();
    if (was_long) serve.in_reading--;
    serve_unlock();
    if (!submitted) return http_json(c, c->status, reply_error(c));
    if (!c->stream) return MHD_YES;
    return http_queue(c, 200, MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 1 << 14, http_stream, c, NULL),
                      "text/event-stream; charset=utf-8");
}

// A request whose body is all here. Of an answer to HEAD libmicrohttpd sends the headers alone.
static enum MHD_Result http_dispatch(serve_call *c, const char *url, const char *method) {
    const bool get = !strcmp(method, "GET") || !strcmp(method, "HEAD"), post = !strcmp(method, "POST");
    const bool health = !strcmp(url, "/health"), metrics = !strcmp(url, "/metrics"), list = !strcmp(url, "/v1/models");
    const char *model = !strncmp(url, "/v1/models/", 11) && url[11] ? url + 11 : NULL;
    c->chat = !strcmp(url, "/v1/chat/completions");
    const bool asks = c->chat || !strcmp(url, "/v1/completions"), known = asks || health || metrics || list || model;
    c->only = asks ? "POST" : "GET, HEAD";
    if (c->status) return http_json(c, c->status, reply_error(c));  // its headers were wrong
    if (!strncmp(url, "/v1/", 4) && !http_key(c->connection))
        serve_fail(c, 401, NULL, "invalid_api_key", "the API key is missing or wrong: send Authorization: Bearer KEY");
    else if (!strncmp(url, "/v1/responses", 13))
        serve_fail(c, 404, NULL, "not_found",
                   "%.200s: there is no Responses API here: send the turns to /v1/chat/completions (with the package "
                   "openai: client.chat.completions.create)",
                   url);
    else if (!known)
        serve_fail(c, 404, NULL, "not_found",
                   "%.200s: there are /v1/completions, /v1/chat/completions, /v1/models, /health and /metrics", url);
    else if (asks ? !post : !get) serve_fail(c, 405, NULL, "method_not_allowed", "%.200s: use %s", url, c->only);
    else if (health) return http_health(c);
    else if (metrics) return http_text(c, 200, http_metrics(), "text/plain; version=0.0.4; charset=utf-8");
    else if (list) return http_json(c, 200, json_pack("{s:s, s:[o]}", "object", "list", "data", http_model()));
    else if (model && !strcmp(model, serve.name)) return http_json(c, 200, http_model());
    else if (model)
        serve_fail(c, 404, NULL, "model_not_found", "'%.200s' is not here: this server has '%.200s'", model,
                   serve.name);
    else if ((int64_t)c->size > serve.max_body) http_too_large(c);
    else if (!http_is_json(c->connection))
        serve_fail(c, 415, NULL, "not_json", "send the header Content-Type: application/json");
    else if (c->size > HTTP_SHORT || (c->chat && serve.command)) return http_read_later(c);
    else return ask_read(c), http_asked(c);
    return http_json(c, c->status, reply_error(c));
}

static bool http_body(serve_call *c, const char *data, size_t size) {
    if ((int64_t)(c->size + size) > serve.max_body) {
        free(c->body);
        c->body = NULL, c->room = 0, c->size += size;
        return (int64_t)c->size <= http_most();
    }
    if (c->size + size > c->room) {
        c->room = 2 * (c->size + size);
        char *body = realloc(c->body, c->room);
        if (!body) return false;
        c->body = body;
    }
    memcpy(c->body + c->size, data, size);
    c->size += size;
    return true;
}

static serve_connection *http_connection_of(struct MHD_Connection *connection) {
    return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

// libmicrohttpd calls this when the headers are there, for each part of the body, at its end, and when the connection
// was resumed.
static enum MHD_Result http_request(void *user, struct MHD_Connection *connection, const char *url, const char *method,
                                    const char *version, const char *data, size_t *size, void **context) {
    serve_call *c = *context;
    (void)user;
    if (!c) {
        const serve_connection *at = http_connection_of(connection);
        if (!at || !(*context = c = calloc(1, sizeof *c))) return MHD_NO;
        c->connection = connection, c->fd = at->fd;
        return http_check_headers(c, method, version) ? MHD_YES : http_json(c, c->status, reply_error(c));
    }
    if (*size) {
        const bool fine = http_body(c, data, *size);
        *size = 0;
        return fine ? MHD_YES : MHD_NO;
    }
    serve_lock();
    const bool gone = c->gone, first = !c->asked;
    if (first) http_connection_of(connection)->since = serve_now(), http_connection_of(connection)->asked = true;
    serve_unlock();
    c->asked = true;
    if (first) return http_dispatch(c, http_path(url), method);
    if (gone) return MHD_NO;
    if (c->reading) return http_asked(c);
    if (c->status) return http_json(c, c->status, reply_error(c));
    return http_whole(c);
}

// HTTP is done with a request, for whatever reason.
static void http_completed(void *user, struct MHD_Connection *connection, void **context,
                           enum MHD_RequestTerminationCode why) {
    serve_call *c = *context;
    serve_connection *at = http_connection_of(connection);
    (void)user, (void)why;
    if (!c) return;
    *context = NULL;
    serve_lock();
    if (at) at->asked = false, at->since = serve_now();
    if (c->reading) serve.in_reading--;  // its client left meanwhile
    const bool own = !c->submitted;
    c->done = true;
    if (c->open) c->gone = true;
    if (!own) serve.asked = true, pthread_cond_signal(&serve.news);
    serve_unlock();
    if (own) serve_call_free(c);
}

static void http_connected(void *user, struct MHD_Connection *connection, void **context,
                           enum MHD_ConnectionNotificationCode code) {
    (void)user;
    serve_lock();
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        serve_connection *at = calloc(1, sizeof *at);
        if (at) {
            at->fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
            at->since = serve_now(), at->next = serve.connections;
            serve.connections = at;
        }
        *context = at;
    } else {
        serve_connection **link = &serve.connections;
        while (*link && *link != *context) link = &(*link)->next;
        if (*link) *link = (*link)->next;
        free(*context);
        *context = NULL;
    }
    serve_unlock();
}

// >>socket ----------------------------------------------------------------------------------------------------------

int http_listen(const char *host, int64_t *port) {
    const struct addrinfo want = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    struct sockaddr_storage got;
    struct addrinfo *found = NULL;
    socklen_t size = sizeof got;
    char number[16], text[16];
    const int yes = 1;
    snprintf(number, sizeof number, "%d", (int)*port);
    const int wrong = getaddrinfo(host, number, &want, &found);
    if (wrong) args_fail(2, "--host: %s: %s", host, gai_strerror(wrong));
    const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) || listen(fd, 511))
        args_fail(1, "cannot listen on %s, port %s: %s: give another --port or --host", host, number, strerror(errno));
    freeaddrinfo(found);
    if (getsockname(fd, (struct sockaddr *)&got, &size) ||
        getnameinfo((struct sockaddr *)&got, size, NULL, 0, text, sizeof text, NI_NUMERICSERV))
        args_fail(1, "cannot tell the port: %s", strerror(errno));
    *port = atoll(text);
    return fd;
}

struct MHD_Daemon *http_start(int fd, int64_t connections) {
    return MHD_start_daemon(MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL,
                            http_request, NULL, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
                            (unsigned)connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)1 << 16,
                            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)serve.read_timeout, MHD_OPTION_NOTIFY_COMPLETED,
                            http_completed, NULL, MHD_OPTION_NOTIFY_CONNECTION, http_connected, NULL, MHD_OPTION_END);
}
