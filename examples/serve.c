// serve: answers requests over HTTP, in the form of OpenAI's completions and chat completions. A request that says
// "deterministic": true gets the tokens and log-probabilities of `generate --deterministic`, whoever else is served.
// serve/README.md has the fields. Needs libmicrohttpd and jansson: `make deps` installs them.
// make build/serve && build/serve --port 8042
//
// This file has the engine's thread: it submits what HTTP has read, steps the engine, takes its tokens, and has the
// connections woken that wait for them. In the folder serve, serve.h says what the threads share, ask.c reads requests,
// reply.c writes answers, http.c has the endpoints, and tap.c the log-probabilities that the engine does not return.
#define _GNU_SOURCE  // POLLRDHUP
#define LLM42_IMPLEMENTATION
#include "examples/util/llm42_synthetic.h"
#define LLM42_DRAFT_IMPLEMENTATION
#include "examples/lib/drafting.h"
#include "examples/lib/engine.h"
#include "examples/lib/texts.h"
#include "serve/serve.h"
#define LLM42_TRANSCRIPT_IMPLEMENTATION
#include "util/llm42_transcript.h"
#include <poll.h>

enum { HOST_NAMES = 16 };

static engine_options how = {ENGINE_DEFAULTS, .preset = "dvr"};
static const char *tokenizer, *host = "127.0.0.1", *record_path;
static const char *host_name[HOST_NAMES + 1];  // of --host-name
static int64_t port = 8042, connections = 256, max_queue = 256, max_running = 32, max_context;
static bool prefix_cache;
static drafting drafts;
static chat_options chatted;

static const args_option options[] = {
    ENGINE_MODEL(&how),
    ARGS_IN("tokenizer FILE", &tokenizer, "its tokenizer (default: the one in the model's folder)"),
    ARGS_ONCE("name NAME", &serve.name, "what clients call the model (default: the last part of its path)"),
    ARGS_TEXT("host NAME", &host, "address to listen on; 0.0.0.0 or :: for all of this computer's"),
    ARGS_MANY("host-name NAME", host_name, HOST_NAMES,
              "also answer requests whose header Host has NAME; up to 16 times. A server on loopback answers to\n"
              "                         localhost, 127.0.0.1, [::1] and --host alone, another one to any name"),
    ARGS_INT("port,p N", &port, 0, 65535, "0: any free one, which is printed"),
    ARGS_ONCE("api-key KEY", &serve.key, "clients must send Authorization: Bearer KEY (default: none)"),
    CHAT_OPTIONS(&chatted),
    ARGS_ONCE("chat-command COMMAND", &serve.command,
              "a shell runs COMMAND to spell a chat: JSON on standard input, the prompt on standard\n"
              "                         output; serve/README.md has an example"),
    ARGS_INT("chat-timeout S", &serve.chat_timeout, 1, 86400, "seconds that --chat-command may take"),
    ARGS_FLAG("deterministic", &serve.deterministic, "what counts for requests that do not say"),
    ARGS_INT("max-connections N", &connections, 1, 4096, "connections at once"),
    ARGS_INT("max-body N", &serve.max_body, 1, 1 << 28, "bytes of a request's body"),
    ARGS_INT("max-queue N", &max_queue, 0, 1 << 20, "answers that wait, beside those that run; more are refused"),
    ARGS_INT("read-timeout S", &serve.read_timeout, 1, 86400,
             "seconds in which a request must have come, or bytes be taken"),
    ARGS_INT("request-timeout S", &serve.request_timeout, 1, 86400, "seconds in which an answer must be finished"),
    ENGINE_COMPUTE(&how),
    ENGINE_POLICIES(&how),
    ARGS_INT("max-running N", &max_running, 1, 4096, "answers that run at once"),
    ARGS_INT("max-context N", &max_context, 0, INT32_MAX, "tokens of prompt and answer; 0: the model's, at most 8192"),
    ENGINE_KV(&how),
    ARGS_FLAG("prefix-cache", &prefix_cache, "what prompts have in common is computed once"),
    ENGINE_PLANNER(&how),
    DRAFTING_OPTIONS(&drafts),
    ENGINE_OFFERED(&how),
    ENGINE_RANKS(&how),
    ENGINE_ALGORITHMS(&how),
    ENGINE_THREADS(&how),
    ARGS_OUT("record FILE", &record_path, "write a transcript: build/audit computes it again"),
    ENGINE_NO_MMAP(&how),
    ARGS_END,
};

static llm42_recorder *recorder;
static double last_event;  // its time, which is that of serve_now

// >>events: on the engine's thread, inside a step --------------------------------------------------------------------
// Behind a stop string what the event brings depends on the load and belongs to nobody. Returns whether it has come.
static bool take_tokens(serve_sample *s, const llm42_event *event) {
    const bool stops = s->answer.stops > 0;
    bool stopped = false;
    if (!s->have) s->have = s->echo;
    if (stops) serve_lock();
    for (int i = 0; i < event->n && !(stops && s->answer.stopped) && s->have < s->echo + s->limit; i++) {
        s->token[s->have++] = (serve_token){.id = event->tokens[i], .logprob = event->logprobs[i]};
        if (stops) serve_take_text(s, s->have, false);
    }
    if (stops) stopped = s->answer.stopped && !s->finished, serve_unlock();
    return stopped;
}

static void take_end(serve_sample *s, const llm42_event *event) {
    serve_call *c = s->call;
    if (s->answer.stops) serve_take_text(s, s->have, true);
    s->count = s->have, c->fresh = true;
    s->finished = true, s->finish = event->finish, s->seed = event->info->sampling.seed;
    c->open--, serve.counts.live--;
    serve.counts.finished[s->answer.stopped ? LLM42_FINISH_STOP : s->finish]++;
    serve_observe(&serve.counts.latency, event->time - c->begin);
    if (s->finish == LLM42_FINISH_ERROR)
        serve_fail(c, 500, NULL, "not_finite",
                   "the logits are not finite: the weights hold NaN or infinity, or overflow");
}

static void on_event(void *user, const llm42_event *event) {
    (void)user;
    last_event = event->time;
    llm42_recorder_event(recorder, event);
    if (event->type != LLM42_EVENT_COMMITTED && event->type != LLM42_EVENT_FINISHED) return;
    serve_sample *s = event->info->user;
    if (event->type == LLM42_EVENT_FINISHED || event->position == 0) {
        serve_lock();
        if (event->type == LLM42_EVENT_FINISHED) take_end(s, event);
        else serve_observe(&serve.counts.first_token, event->time - s->call->begin);
        serve_unlock();
    }
    s->call->news = true;
    if (event->type == LLM42_EVENT_FINISHED) tap_end(event->request);
    else if (take_tokens(s, event)) llm42_engine_cancel(serve.engine, event->request, NULL);
}

// >>loop -------------------------------------------------------------------------------------------------------------
// A sample that the engine has not taken ends here.
static void submit_sample(serve_sample *s) {
    llm42_error error = {0};
    serve_call *c = s->call;
    const llm42_result result = llm42_engine_submit(serve.engine, &s->ask, &s->id, &error);
    if (!result && (c->top || (c->echo && c->logprobs))) tap_add(s);
    if (!result) return;
    serve_lock();
    serve_fail(c, result == LLM42_MEMORY ? 500 : 400, NULL, "refused", "%s", error.text);
    s->finished = true, s->finish = LLM42_FINISH_CANCELLED;
    c->open--, serve.counts.live--;
    serve_unlock();
}

static void cancel_call(serve_call *c) {
    for (int i = 0; i < c->samples; i++)
        if (c->sample[i].id && !c->sample[i].finished) llm42_engine_cancel(serve.engine, c->sample[i].id, NULL);
}

// Of suspended connections, which clients listen no more? Nobody else looks at their sockets.
static void look_at_clients(void) {
    struct pollfd *at = NULL;
    for (serve_call *c = serve.calls; c; c = c->next)
        if (c->suspended) arrput(at, ((struct pollfd){.fd = c->fd, .events = POLLRDHUP}));
    if (arrlen(at) && poll(at, arrlenu(at), 0) > 0) {
        int i = 0;
        for (serve_call *c = serve.calls; c; c = c->next)
            if (c->suspended && at[i++].revents) c->gone = true;
    }
    arrfree(at);
}

// Submits the samples of new calls and cancels those of calls that nobody waits for any more, that took too long, or
// that an error has ended. `look`: it is time to look at the clients.
static void update_calls(bool look, double now) {
    serve_call **take = NULL, **end = NULL;
    serve_lock();
    serve.asked = false;
    if (look) look_at_clients();
    for (serve_call *c = serve.calls; c; c = c->next) {
        if (c->open && look && now - c->begin > (double)serve.request_timeout)
            serve_fail(c, 504, NULL, "timeout", "no answer within %" PRId64 " s: ask for less, or later",
                       serve.request_timeout);
        if (!c->taken) arrput(take, c), c->taken = true;
        if (c->cancelled || !(c->gone || c->status)) continue;
        c->cancelled = true, c->fresh = true;
        if (c->gone && c->open) serve.counts.clients_gone++;
        arrput(end, c);
    }
    // A connection that sends no whole request, or takes no answer, is shut in the end.
    for (serve_connection *at = serve.connections; at && look; at = at->next) {
        const int64_t most = serve.read_timeout + (at->asked ? serve.request_timeout : 0);
        if (at->shut || now - at->since <= (double)most) continue;
        at->shut = true;
        shutdown(at->fd, SHUT_RDWR);
    }
    serve_unlock();
    for (int i = 0; i < (int)arrlen(take); i++)
        for (int k = 0; k < take[i]->samples; k++) submit_sample(&take[i]->sample[k]);
    for (int i = 0; i < (int)arrlen(end); i++) cancel_call(end[i]);
    arrfree(take);
    arrfree(end);
}

// To wake a connection takes a system call, so another thread than the engine's does it.
static void *wake_connections(void *unused) {
    (void)unused;
    struct MHD_Connection **wake = NULL;  // to be resumed when the lock is free
    serve_lock();
    while (!serve.wakes_end) {
        if (!arrlen(serve.wake)) pthread_cond_wait(&serve.waking, &serve.lock);
        struct MHD_Connection **all = serve.wake;
        serve.wake = wake, wake = all;
        serve_unlock();
        for (int i = 0; i < (int)arrlen(wake); i++) MHD_resume_connection(wake[i]);
        if (wake) arrsetlen(wake, 0);
        serve_lock();
    }
    serve_unlock();
    arrfree(wake);
    return NULL;
}

// Streams whose answers go on are woken together, 100 times a second at most, because each event has its price on both
// sides. The first event does not wait. `turn`: now they may be.
static bool has_news(const serve_call *c, bool turn) {
    return c->gone || !c->open || (c->stream && c->fresh && (turn || !c->woken));
}

// Publishes the tokens of a pass, has the connections woken that have news, and frees the calls that nobody needs.
// Returns whether any call is left. *asked: whether update_calls has something to do.
static bool publish(double now, bool *asked) {
    static double next_turn;
    const bool turn = now >= next_turn;
    serve_call *unneeded = NULL;
    serve_lock();
    serve.counts.stats = llm42_engine_stats(serve.engine);
    *asked = serve.asked;
    for (serve_call **link = &serve.calls, *c; (c = *link);) {
        for (int i = 0; i < c->samples && c->news; i++) c->sample[i].count = c->sample[i].have;
        c->fresh |= c->news, c->news = false;
        if (c->suspended && has_news(c, turn)) {
            if (turn && c->open) next_turn = now + 0.01;
            c->suspended = false, c->woken = true;
            arrput(serve.wake, c->connection);
        }
        if (c->done && c->taken && !c->open) *link = c->next, c->next = unneeded, unneeded = c;
        else link = &c->next;
    }
    const bool any = serve.calls != NULL || serve.in_reading;
    if (arrlen(serve.wake)) pthread_cond_signal(&serve.waking);
    serve_unlock();
    for (serve_call *c; (c = unneeded); serve_call_free(c)) unneeded = c->next;
    return any;
}

// An error of a step ends all calls that it may have been about, so that none waits for ever.
static void fail_calls(const llm42_error *error) {
    fprintf(stderr, "%s: %s\n", args_program, error->text);
    serve_lock();
    for (serve_call *c = serve.calls; c; c = c->next)
        if (c->open) serve_fail(c, 500, NULL, "engine_failed", "%s", error->text);
    serve.asked = true;
    serve_unlock();
}

// Waits until something is asked of update_calls, but no longer than until it is time to look at the clients.
static bool wait_for_calls(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 50 * 1000 * 1000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    serve_lock();
    if (!serve.asked) pthread_cond_timedwait(&serve.news, &serve.lock, &until);
    const bool asked = serve.asked;
    serve_unlock();
    return asked;
}

// What cannot be recorded is said when it happens, and again at the end.
static void look_at_record(void) {
    static bool said;
    if (said || !llm42_recorder_failed(recorder)) return;
    said = true;
    fprintf(stderr, "%s: %s: writing failed: the disk may be full: answers are no longer recorded\n", args_program,
            record_path);
}

// Serves until it is asked to end, and then until all requests are answered. On some virtual machines to read the clock
// is a system call, so the time is that of the pass's events.
static void run(void) {
    double now = serve_now(), next_look = now;
    for (bool any = true, asked = false; !serve.draining || any;) {
        llm42_error error = {0};
        const bool look = now >= next_look;
        if (look) next_look = now + 0.05;
        if (args_signal && !serve.draining) {
            serve_lock();
            serve.draining = true;
            serve_unlock();
        }
        if (asked || look) update_calls(look, now);
        if (look) look_at_record();
        const llm42_result result = llm42_engine_step(serve.engine, &error);
        if (result < 0) fail_calls(&error);
        now = result == LLM42_OK && last_event > now ? last_event : serve_now();
        any = publish(now, &asked);
        if (result == LLM42_IDLE) asked = wait_for_calls(), now = serve_now();
    }
}

// The same, beside the threads that wake connections and read what is long.
static void run_beside(void) {
    pthread_t waker, reader;
    const int failed = pthread_create(&waker, NULL, wake_connections, NULL);
    if (pthread_create(&reader, NULL, http_read_long, NULL) || failed) args_fail(1, "cannot start a thread");
    run();
    serve_lock();
    serve.wakes_end = serve.reads_end = true;
    pthread_cond_signal(&serve.waking);
    pthread_cond_signal(&serve.reading);
    serve_unlock();
    pthread_join(waker, NULL);
    pthread_join(reader, NULL);
    arrfree(serve.wake);
    arrfree(serve.reads);
}

// >>start ------------------------------------------------------------------------------------------------------------
static void open_texts(void) {
    llm42_error error = {0};
    serve.chat_error = (llm42_error){LLM42_UNSUPPORTED, "the model has no tokenizer"};
    if (tok_open(&serve.t, serve.model, how.path, tokenizer, &error)) {
        if (tokenizer || (error.result != LLM42_IO && strncmp(how.path, "synthetic:", 10)))
            args_fail(1, "%s", error.text);
        return;
    }
    text_manifest(&how.manifest);
    serve.longest = 1;
    for (int i = 0; i < serve.t->count; i++)
        if ((size_t)serve.t->piece[i].size > serve.longest) serve.longest = (size_t)serve.t->piece[i].size;
    const llm42_result result = chat_open(&serve.chat, serve.t, how.path, &chatted, &serve.chat_error);
    if (result && (chatted.format || result == LLM42_INVALID)) args_fail(2, "%s", serve.chat_error.text);
    if (result && !serve.command)
        fprintf(stderr, "%s: chats will be refused: %s, or give a program that spells chats by --chat-command\n",
                args_program, serve.chat_error.text);
    serve.stop_count = chat_stop(&serve.chat, &serve.model->config, serve.stop);
}

static void open_engine(void) {
    llm42_error error = {0};
    llm42_engine_desc desc = engine_desc(&how, serve.model);
    desc.backend = tap_open(how.table);
    desc.max_running = (int)max_running;
    desc.max_context = (int)max_context;
    desc.kv.prefix_cache = prefix_cache;
    desc.auto_release = true;
    desc.on_event = on_event;
    drafting_open(&drafts, &desc);
    args_check(llm42_engine_open(&serve.engine, &desc, &error), &error);
    if (record_path)
        args_check(llm42_recorder_open(&recorder, record_path, serve.engine, how.manifest.text, &error), &error);
    serve.config = llm42_engine_config(serve.engine);
    serve.counts.stats = llm42_engine_stats(serve.engine);
    const char *rounding = llm42_engine_arithmetic(serve.engine);
    snprintf(serve.fingerprint, sizeof serve.fingerprint, "llm42-%s-%s-%s-%s", LLM42_VERSION, how.dtype,
             rounding ? rounding : "unknown", how.preset);
}

// The model's name for clients: the last part of its path, unless --name says another.
static void set_name(void) {
    static char own_name[256];
    char *slash;
    snprintf(own_name, sizeof own_name, "%s", serve.model->name);
    while ((slash = strrchr(own_name, '/')) && !slash[1]) *slash = 0;
    if (!serve.name) serve.name = slash ? slash + 1 : own_name;
    json_t *json = json_string(serve.name);
    if (!json || !serve.name[0]) args_fail(2, "--name: what clients call the model must be UTF-8 and not empty");
    json_decref(json);
}

// By which names a request may call the server.
static void set_host_names(bool local) {
    static const char *names[HOST_NAMES + 5] = {"localhost", "127.0.0.1", "[::1]"};
    static const char *const any[] = {NULL};
    int count = 3;
    if (!strchr(host, ':')) names[count++] = host;
    for (int i = 0; host_name[i]; i++) names[count++] = host_name[i];
    serve.names = local || host_name[0] ? names : any;
}

int main(int argc, char **argv) {
    args_status_signal = "130 or 143: ended by a second Ctrl-C or SIGTERM, before all was answered";
    args_parse(argc, argv, "Answers requests over HTTP, in the form of OpenAI's completions and chat completions.",
               options);
    engine_look_up(&how);
    drafting_check(&drafts);
    if (serve.command && (chatted.format || chatted.date))
        args_fail(2, "--chat-command: spells all of a chat: leave out %s",
                  chatted.format ? "--chat-format" : "--chat-date");
    if (serve.key && !serve.key[0]) args_fail(2, "--api-key: the key is empty");
    llm42_error error = {0};
    serve.model = engine_model(&how);
    open_texts();
    set_name();
    open_engine();
    serve.max_samples = max_running + max_queue;
    serve.started = time(NULL);
    signal(SIGPIPE, SIG_IGN);
    args_watches = 1;
    const bool local = !strncmp(host, "127.", 4) || !strcmp(host, "::1") || !strcmp(host, "localhost");
    set_host_names(local);
    const int fd = http_listen(host, &port);
    struct MHD_Daemon *daemon = http_start(fd, connections);
    if (!daemon) args_fail(1, "libmicrohttpd does not start");
    if (!local && !serve.key)
        fprintf(stderr, "%s: anybody who reaches %s can ask: set --api-key\n", args_program, host);
    printf("%s: http://%s%s%s:%" PRId64 "/v1 serves %s\n", args_program, strchr(host, ':') ? "[" : "", host,
           strchr(host, ':') ? "]" : "", port, serve.name);
    fflush(stdout);
    run_beside();
    MHD_stop_daemon(daemon);
    publish(serve_now(), &(bool){false});
    drafting_report(&drafts, serve.engine);
    args_check(llm42_recorder_close(recorder, &error), &error);
    llm42_engine_close(serve.engine);
    drafting_close(&drafts);
    tap_close();
    tok_free(serve.t);
    llm42_model_free(serve.model);
    return args_finish();
}
