// calls.c: what the threads of build/serve do with a call (see serve.h).
#define _POSIX_C_SOURCE 200809L
#include "serve.h"

struct serve serve = {.lock = PTHREAD_MUTEX_INITIALIZER,
                      .news = PTHREAD_COND_INITIALIZER,
                      .waking = PTHREAD_COND_INITIALIZER,
                      .reading = PTHREAD_COND_INITIALIZER,
                      .max_body = 1 << 20,
                      .read_timeout = 30,
                      .chat_timeout = 10,
                      .request_timeout = 600};

double serve_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void serve_lock(void) { pthread_mutex_lock(&serve.lock); }
void serve_unlock(void) { pthread_mutex_unlock(&serve.lock); }

const double serve_bounds[SERVE_BUCKETS] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};

void serve_observe(serve_histogram *h, double seconds) {
    int i = 0;
    while (i < SERVE_BUCKETS && seconds > serve_bounds[i]) i++;
    h->count[i]++, h->sum += seconds;
}

bool serve_fail(serve_call *c, int status, const char *param, const char *code, const char *format, ...) {
    va_list values;
    if (c->status) return false;
    va_start(values, format);
    vsnprintf(c->message, sizeof c->message, format, values);
    va_end(values);
    snprintf(c->param, sizeof c->param, "%s", param ? param : "");
    c->status = status, c->code = code;
    return false;
}

void serve_append(char **text, const char *more, size_t size) {
    if (size) memcpy(arraddnptr(*text, size), more, size);
}

int serve_chars(const char *text, size_t size) {
    int chars = 0;
    for (size_t i = 0; i < size; i++) chars += ((unsigned char)text[i] & 0xC0) != 0x80;
    return chars;
}

void serve_take_text(serve_sample *s, int to, bool ended) {
    const bool offsets = s->call->logprobs && !s->call->chat;
    for (int i = s->echo + s->texts; i < to; i++, s->texts++) {
        const size_t before = arrlenu(s->answer.text);
        answer_take(&s->answer, s->token[i].id);
        s->token[i].offset = s->chars + s->answer.stream.before;
        if (offsets && arrlenu(s->answer.text) > before)
            s->chars += serve_chars(s->answer.text + before, arrlenu(s->answer.text) - before);
    }
    if (ended) answer_finished(&s->answer);
}

void serve_call_free(serve_call *c) {
    for (int i = 0; i < c->samples && c->sample; i++) {
        serve_sample *s = &c->sample[i];
        answer_free(&s->answer);
        arrfree(s->prefix);
        free(s->token), free(s->top);
    }
    for (int i = 0; i < c->stops; i++) free((char *)c->stop[i].data);
    for (int i = 0; i < (int)arrlen(c->prompt); i++) arrfree(c->prompt[i]);
    arrfree(c->prompt);
    arrfree(c->out);
    free(c->sample);
    free(c->body);
    free(c);
}
