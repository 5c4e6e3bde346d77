// serve.h: what the files and threads of build/serve share. The thread of HTTP reads requests and writes answers; the
// engine's thread, which is the program's first, steps the engine; a third one only wakes connections, and a fourth one
// reads what is long. A call is a request over HTTP. It has one sample, a request of the engine, for each answer that
// it asks for.
//
// Each field of a call or sample belongs to one thread, or is only touched under serve.lock, as its comment says. What
// a sample's arrays hold below .count never changes again, so it is read without the lock. They have room for all
// of its answer from the beginning. So a client that reads slowly holds nobody up, and needs no more memory than one
// that reads at once: its answer becomes text and JSON only when it can be sent. On a GPU a pass of a small model takes
// a fraction of a millisecond, so the engine's thread does as little as it can between two passes: it stores tokens
// without the lock and publishes those of a pass together. Only where a stop string may end a request does it make the
// text itself.
#ifndef SERVE_H
#define SERVE_H

#include <jansson.h>
#include <microhttpd.h>
#include <pthread.h>

#include "examples/lib/answers.h"
#include "examples/lib/chat.h"

enum { SERVE_TOP = 20 };  // most alternatives of a token

typedef struct serve_top {
    int32_t token;
    float logprob;
} serve_top;

typedef struct serve_token {
    int32_t id;
    float logprob;
    int offset;  // characters of text before it
} serve_token;

typedef struct serve_sample {
    struct serve_call *call;
    llm42_request_desc ask;  // its prompt is of the call
    int echo, limit;         // tokens of the prompt that the answer begins with: none or all; new tokens; 0: the
                             // engine's one is dropped
    int64_t id;              // engine's thread; 0: not submitted
    answer answer;           // lock, if there are stop strings; else HTTP's thread
    int have;                // final tokens: none, or those of .echo and new ones; engine's thread
    int count;               // lock: those of them that are published
    bool finished;           // lock
    llm42_finish finish;
    uint64_t seed;
    int texts, chars;    // new tokens that are text; characters of all text so far; as .answer
    serve_token *token;  // [echo + limit]
    serve_top *top;      // NULL, or [echo + limit][call.top]
    char *prefix;        // stb_ds array: the text of .echo tokens
    int sent;            // tokens; HTTP's thread
    bool begun, ended;   // its first and its last chunk are written; HTTP's thread
} serve_sample;

typedef struct serve_call {
    struct serve_call *next;  // in serve.calls; lock
    struct MHD_Connection *connection;
    int fd;
    int64_t number;
    char *body;
    size_t size, room;  // of the body
    bool asked;         // all of it has come; HTTP's thread
    bool reading;       // the thread for long bodies has it, and nobody else looks at it; HTTP's thread
    bool last;          // its connection is closed behind the answer; HTTP's thread
    bool chat, stream, usage, echo, ids_out, logprobs;
    int top;                      // alternatives of each token
    int n, samples;               // answers to a prompt, and in all
    int32_t **prompt;             // [samples / n], stb_ds arrays
    tok_text stop[ANSWER_STOPS];  // its samples share them
    int stops;
    serve_sample *sample;  // [samples]
    int64_t prompt_tokens;
    double begin;  // seconds
    int status;    // of the error; 0: none. Set before the engine has it, then lock
    char message[800], param[64];
    const char *code, *only;  // only: the methods that its endpoint takes
    // Under the lock:
    bool submitted;  // the engine has its samples
    bool suspended;  // HTTP waits for news
    bool fresh;      // there are some
    bool woken;      // a stream that was woken before
    bool gone;       // its client has gone
    bool cancelled;  // its samples were
    bool done;       // HTTP has no more to do with it
    bool taken;      // its samples were submitted to the engine
    int open;        // samples that are not finished
    // The engine's thread:
    bool news;  // a sample has tokens that are not published
    // HTTP's thread:
    char *out;  // stb_ds array: what is written of an answer but not yet sent
    size_t out_sent;
    bool out_ended;
    struct {  // how far a whole answer is written
        int state, sample, list;
        size_t at;
    } whole;
} serve_call;

// A connection, from its first byte on.
typedef struct serve_connection {
    struct serve_connection *next;
    int fd;
    double since;  // seconds: when it began, or was answered last, or was asked
    bool asked;    // a request is being answered
    bool shut;
} serve_connection;

enum { SERVE_BUCKETS = 13 };

typedef struct serve_histogram {
    int64_t count[SERVE_BUCKETS + 1];
    double sum;
} serve_histogram;

// What /metrics tells.
typedef struct serve_counts {
    llm42_stats stats;
    int live;      // samples that are not finished
    int64_t sent;  // new tokens that were written for clients
    int64_t finished[5], responses[6], clients_gone;
    serve_histogram first_token, latency;
} serve_counts;

extern struct serve {
    // Set before the threads begin.
    llm42_model *model;
    tok *t;                // NULL: requests have ids
    size_t longest;        // bytes of its longest token
    chat chat;             // if chat.format is NULL, chats are refused, for the reason in chat_error
    const char *command;   // spells chats in place of that; NULL: none
    int64_t chat_timeout;  // seconds that it may take
    llm42_error chat_error;
    int32_t stop[LLM42_MAX_STOP];  // tokens that end an answer in a chat
    int stop_count;
    llm42_engine *engine;  // the engine's thread
    const llm42_engine_desc *config;
    const char *name, *key;    // the model's name for clients; the API key, NULL: none is needed
    const char *const *names;  // those that a request may call the server by; none: any
    char fingerprint[128];
    bool deterministic;                     // of requests that do not say
    int64_t max_body, max_samples;          // bytes, and answers that wait or run
    int64_t read_timeout, request_timeout;  // seconds
    time_t started;
    // Under the lock:
    pthread_mutex_t lock;
    pthread_cond_t news;  // for the engine's thread
    serve_call *calls;    // all that the engine's thread knows of, the oldest first
    serve_connection *connections;
    bool asked;  // there is something new in a call
    bool draining;
    pthread_cond_t waking;         // for the thread that wakes connections
    struct MHD_Connection **wake;  // an stb_ds array: to be woken
    bool wakes_end;                // none will be
    pthread_cond_t reading;        // for the thread that reads long bodies
    serve_call **reads;            // an stb_ds array: to be read
    int in_reading;                // read, or to be read, and not yet submitted
    bool reads_end;                // none will be
    int64_t numbers;               // calls so far
    serve_counts counts;
} serve;

// >>calls ------------------------------------------------------------------------------------------------------------
double serve_now(void);
void serve_lock(void);
void serve_unlock(void);
extern const double serve_bounds[SERVE_BUCKETS];
void serve_observe(serve_histogram *h, double seconds);
// What is wrong with a request: the first fault counts. `param` is the field, NULL: none. Returns false.
bool serve_fail(serve_call *c, int status, const char *param, const char *code, const char *format, ...);
void serve_append(char **text, const char *more, size_t size);
// Characters of a text, which is UTF-8.
int serve_chars(const char *text, size_t size);
// Makes text of a sample's tokens below `to`, and at the end of the bytes of a character that never became whole.
void serve_take_text(serve_sample *s, int to, bool ended);
void serve_call_free(serve_call *c);

// >>ask, reply, command, http, tap: each the file of its name -------------------------------------------------------
// Reads the body of a call. False: the call says what is wrong.
bool ask_read(serve_call *c);

enum { REPLY_FLAGS = JSON_COMPACT | JSON_REAL_PRECISION(9) };  // 9 digits give the bits of a float back
// {"error": {"message", "type", "param", "code"}}, OpenAI's form.
json_t *reply_error(const serve_call *c);
enum { REPLY_PIECE = 1 << 13 };  // bytes that are written at a time, about
// Adds to .out of a call whose samples are all finished, until it has `size` bytes or .out_ended is set.
void reply_whole(serve_call *c, size_t size);
// Adds to .out of a stream what has come since the last time, or the next piece of that. At the end it sets .out_ended.
void reply_stream(serve_call *c);

// The prompt that serve.command makes of `input`; *text is an stb_ds array to be freed. False: the call says what is
// wrong.
bool command_spell(serve_call *c, const char *input, size_t size, char **text);

// A listening socket; *port 0 becomes the port that it got.
int http_listen(const char *host, int64_t *port);
struct MHD_Daemon *http_start(int fd, int64_t connections);
void *http_read_long(void *unused);  // a thread; serve.reads_end ends it

// A sample that wants more than the engine returns, until its request ends.
void tap_add(serve_sample *s);
void tap_end(int64_t id);
// The backend that an engine opens in place of `inner`.
const llm42_backend *tap_open(const llm42_backend *inner);
void tap_close(void);

#endif  // SERVE_H
