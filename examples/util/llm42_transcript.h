// llm42_transcript.h: a file that says what was asked and answered, and everything that canonical answers depend on, so
// that somebody else can compute the answers again and compare every bit, as build/audit does.
//
//     #define LLM42_TRANSCRIPT_IMPLEMENTATION   // in one C file, before its first include of llm42.h
//     #include "llm42_transcript.h"             // it includes llm42.h
#if defined(LLM42_TRANSCRIPT_IMPLEMENTATION) && defined(__cplusplus)
#error "llm42_transcript.h: the implementation is C11: define LLM42_TRANSCRIPT_IMPLEMENTATION in a .c file"
#undef LLM42_TRANSCRIPT_IMPLEMENTATION
#elif defined(LLM42_TRANSCRIPT_IMPLEMENTATION) && !defined(LLM42_SHA256_IMPLEMENTATION)
#define LLM42_SHA256_IMPLEMENTATION
#endif
#include "llm42_sha256.h"

#ifndef LLM42_TRANSCRIPT_H
#define LLM42_TRANSCRIPT_H

// Writes a transcript: open it when the engine is open, give it every event, close it when requests have finished.
typedef struct llm42_recorder llm42_recorder;
// Begins the file. `comments` is NULL or lines that are written as comments, for example what the backend logs about
// itself. The function hashes the model. Errors: IO, and those of llm42_model_sha256.
LLM42_API llm42_result llm42_recorder_open(llm42_recorder **recorder, const char *path, const llm42_engine *engine,
                                           const char *comments, llm42_error *error);
// A request is written at its event FINISHED.
LLM42_API void llm42_recorder_event(llm42_recorder *recorder, const llm42_event *event);
// Has a write failed? Then closing it will fail. NULL has not.
LLM42_API bool llm42_recorder_failed(const llm42_recorder *recorder);
// Finishes the file, which has its name from now on (see llm42_file.h). It fails if this or any earlier write failed.
// NULL is fine.
LLM42_API llm42_result llm42_recorder_close(llm42_recorder *recorder, llm42_error *error);

typedef struct llm42_answer {
    int64_t request;     // its id
    bool deterministic;  // false: no result was promised, and the answer cannot be audited
    llm42_finish finish;
    int max_new_tokens;
    llm42_sampling sampling;  // the seed is not 0
    int stop_count;
    int32_t stop[LLM42_MAX_STOP];
    int prompt_count, count;
    int32_t *prompt, *tokens;  // [prompt_count], [count]
    float *logprobs;           // [count]
    char digest[LLM42_SHA256_TEXT];
    int line;  // of the file, where it begins
} llm42_answer;

typedef struct llm42_transcript {
    int format;                          // 3; 1 and 2: of versions before 0.3.0, whose draws had another noise
    char model[256];                     // llm42_model.name
    char model_hash[LLM42_SHA256_TEXT];  // llm42_model_sha256; format 1: 16 hex digits of llm42_model_hash
    char digest[LLM42_SHA256_TEXT];      // of the file; format 1: empty
    char arithmetic[32];                 // llm42_engine_arithmetic, or "not known"
    llm42_numerics numerics;  // .arithmetic is left out; .leaves is the larger of .leaves and .tensor_parallel
    char preset[32];          // its word
    char result[64];          // "canonical", or what more the results depend on (then they cannot be audited)
    int count;
    llm42_answer *answer;  // [count], in the order in which they finished
} llm42_transcript;

// Reads a transcript. Errors: IO, MEMORY, FORMAT (the file is cut short or goes on behind `# end`, it has another
// version of the format, a line is wrong, or a digest is not that of its lines; the message names file and line).
LLM42_API llm42_result llm42_transcript_load(llm42_transcript **transcript, const char *path, llm42_error *error);
LLM42_API void llm42_transcript_free(llm42_transcript *transcript);  // NULL is fine

// A transcript is a text of lines `key: value`. None may be missing, and they have this order:
//   # llm42 transcript, format 3       the first line
//   model: NAME                        the path from which the model was loaded
//   model_hash: 64 hex digits          llm42_model_sha256
//   arithmetic: WORD                   fp32, sm90, sm80, sm89, sm100 or `not known`: how sums round
//   compute: bf16 or fp32
//   logits_fp32, router_fp32: yes or no
//   leaves: N                          the larger of .leaves and .tensor_parallel
//   preset: WORD
//   result: canonical                  or, if they are not canonical, what more the results depend on
// then for each request, in the order in which they finished:
//   request: N                         its id
//   deterministic: yes or no           no: no result was promised, and the answer cannot be audited
//   finish: stop, length, cancelled or error
//   max_new_tokens: N
//   stop: 1,2                          tokens that end the answer; empty: none
//   temperature: 8 hex digits
//   top_k: N
//   top_p, min_p: 8 hex digits
//   seed: N
//   prompt, tokens: 9,8                ids; tokens is the answer; empty: none
//   logprobs: hex,hex                  8 hex digits each
//   digest: 64 hex digits              SHA-256 of the file up to line `result`, and of this answer's lines before this
//   requests: N                        once, at the end, as the two lines below
//   file_digest: 64 hex digits         SHA-256 of all bytes before this line, as `head -n -2 FILE | sha256sum` gives
//   # end                              the last line: a file without it was cut short
// Empty lines and other lines that begin with # are comments. Whoever changes an answer can change its digests, too:
// they are for somebody who has a digest, or a signature, from elsewhere. Format 1 has no digests and the weak hash.
#endif  // LLM42_TRANSCRIPT_H

#if defined(LLM42_TRANSCRIPT_IMPLEMENTATION) && !defined(LLM42_TRANSCRIPT_IMPLEMENTED)
#define LLM42_TRANSCRIPT_IMPLEMENTED
#include "llm42_file.h"
#include "llm42_policies.h"

static bool llm42__transcript_is(const char *text, const char *end, const char *word) {
    return strlen(word) == (size_t)(end - text) && memcmp(text, word, (size_t)(end - text)) == 0;
}
#define LLM42__TRANSCRIPT_FIRST "# llm42 transcript, format "
#define LLM42__TRANSCRIPT_END "# end\n"
static const char *const llm42__finish_words[] = {"none", "stop", "length", "cancelled", "error"};
static const char *const llm42__compute_words[] = {"default", "bf16", "fp32"};
static const char *const llm42__yes_words[] = {"no", "yes"};

struct llm42_recorder {
    FILE *file;
    llm42_sha256 digest, head, answer;  // of the file so far, of its head, and of the head and this answer
    bool all;                           // every request is deterministic
    int64_t requests;
    char path[256];
};

static const char *llm42__transcript_result(const llm42_engine_desc *d) {
    if (d->policy.mode == LLM42_MODE_BATCH_INVARIANT) return "canonical";
    if (d->policy.mode == LLM42_MODE_NONDETERMINISTIC) return "depends on other requests (mode nondeterministic)";
    if (d->experiment.keep_fast_kv) return "depends on other requests (keep_fast_kv)";
    if (d->experiment.keep_fast_state) return "depends on other requests (keep_fast_state)";
    if (d->experiment.gate > 0) return "depends on other requests (gate)";
    return d->policy.verifier == LLM42_VERIFIER_INVARIANT ? "canonical" : "depends on M (verifier fixed)";
}

static void llm42__record_text(llm42_recorder *r, const char *text, size_t size) {
    fwrite(text, 1, size, r->file);
    llm42_sha256_add(&r->digest, text, size);
    llm42_sha256_add(&r->answer, text, size);
}

LLM42__PRINTF(2) static void llm42__record(llm42_recorder *r, const char *format, ...) {
    char text[640];  // a name is shorter than 256 bytes
    va_list values;
    va_start(values, format);
    llm42__record_text(r, text, (size_t)vsnprintf(text, sizeof text, format, values));
    va_end(values);
}

static void llm42__record_head(llm42_recorder *r, const llm42_engine *e, const char *hash, const char *comments) {
    const llm42_engine_desc *d = llm42_engine_config(e);
    const char *arithmetic = llm42_engine_arithmetic(e);
    char name[sizeof d->model->name];
    snprintf(name, sizeof name, "%s", d->model->name);
    llm42__scrub(name);
    llm42_sha256_begin(&r->digest);
    llm42__record(r, LLM42__TRANSCRIPT_FIRST
                  "3\n# What was asked and answered, and all that the answers depend on (llm42 " LLM42_VERSION
                  "). build/audit computes them again.\n");
    static const char *const weights[] = {"", "# Weights are e4m3, with scales for blocks of 128 x 128.\n",
                                          "# Weights are e4m3, with scales for outputs.\n"};
    llm42__record(r, "%smodel: %s\nmodel_hash: %s\narithmetic: %s\ncompute: %s\n", weights[d->model->config.scaling],
                  name, hash, arithmetic ? arithmetic : "not known", llm42__compute_words[d->numerics.compute]);
    llm42__record(r, "logits_fp32: %s\nrouter_fp32: %s\nleaves: %d\npreset: %s\nresult: %s\n",
                  llm42__yes_words[d->numerics.logits_fp32], llm42__yes_words[d->numerics.router_fp32],
                  LLM42__MAX(d->numerics.leaves, d->tensor_parallel), llm42_policy_word(d, "preset"),
                  llm42__transcript_result(d));
    r->head = r->digest;
    for (size_t n; comments && *comments; comments += n + (comments[n] == '\n')) {
        n = strcspn(comments, "\n");
        llm42__record(r, "# ");
        llm42__record_text(r, comments, n);
        llm42__record(r, "\n");
    }
}

llm42_result llm42_recorder_open(llm42_recorder **recorder, const char *path, const llm42_engine *e,
                                 const char *comments, llm42_error *error) {
    char hash[LLM42_SHA256_TEXT];
    if (!recorder) return llm42_fail(error, LLM42_INVALID, "llm42_recorder_open: recorder: must not be NULL");
    *recorder = NULL;
    if (!path || !e)
        return llm42_fail(error, LLM42_INVALID, "llm42_recorder_open: %s: required", path ? "engine" : "path");
    const llm42_engine_desc *d = llm42_engine_config(e);
    LLM42__TRY(llm42_model_sha256(d->model, hash, error));
    llm42_recorder *r = llm42__alloc(1, sizeof *r);
    if (!r) return llm42_fail(error, LLM42_MEMORY, "%s: out of memory", path);
    *r = (llm42_recorder){.all = d->policy.mode == LLM42_MODE_BATCH_INVARIANT};
    snprintf(r->path, sizeof r->path, "%s", path);
    r->file = llm42_file_create(path);
    if (!r->file) {
        llm42__free(r);
        return llm42_fail(error, LLM42_IO, "%s: cannot write: %s", path, strerror(errno));
    }
    llm42__record_head(r, e, hash, comments);
    *recorder = r;
    return LLM42_OK;
}

static void llm42__record_ids(llm42_recorder *r, const char *key, const int32_t *ids, int count) {
    llm42__record(r, "%s:", key);
    for (int i = 0; i < count; i++) llm42__record(r, "%s%d", i ? "," : " ", (int)ids[i]);
    llm42__record(r, "\n");
}

static void llm42__record_digest(llm42_recorder *r, const char *key, llm42_sha256 of) {
    char digest[LLM42_SHA256_TEXT];
    llm42_sha256_end(of, digest);
    llm42__record(r, "%s: %s\n", key, digest);
}

void llm42_recorder_event(llm42_recorder *r, const llm42_event *ev) {
    if (!r || ev->type != LLM42_EVENT_FINISHED) return;
    const llm42_request *q = ev->info;
    const llm42_sampling *s = &q->sampling;
    r->requests++;
    llm42__record(r, "\n");
    r->answer = r->head;
    llm42__record(r, "request: %lld\ndeterministic: %s\nfinish: %s\nmax_new_tokens: %d\n", (long long)q->id,
                  llm42__yes_words[q->deterministic || r->all], llm42__finish_words[q->finish], q->max_new_tokens);
    llm42__record_ids(r, "stop", q->stop, q->stop_count);
    llm42__record(r, "temperature: %08x\ntop_k: %d\ntop_p: %08x\nmin_p: %08x\nseed: %llu\n",
                  (unsigned)llm42__bits(s->temperature), s->top_k, (unsigned)llm42__bits(s->top_p),
                  (unsigned)llm42__bits(s->min_p), (unsigned long long)s->seed);
    llm42__record_ids(r, "prompt", q->prompt, q->prompt_count);
    llm42__record_ids(r, "tokens", q->tokens, q->committed);
    llm42__record(r, "logprobs:");
    for (int i = 0; i < q->committed; i++)
        llm42__record(r, "%s%08x", i ? "," : " ", (unsigned)llm42__bits(q->logprobs[i]));
    llm42__record(r, "\n");
    llm42__record_digest(r, "digest", r->answer);
    char tail[192], digest[LLM42_SHA256_TEXT];  // of a run that is ended: what has finished can be audited
    llm42_sha256 all = r->digest;
    const int n = snprintf(tail, sizeof tail, "\nrequests: %lld\n# unfinished\n", (long long)r->requests);
    llm42_sha256_add(&all, tail, (size_t)n);
    llm42_sha256_end(all, digest);
    snprintf(tail + n, sizeof tail - (size_t)n, "file_digest: %s\n" LLM42__TRANSCRIPT_END, digest);
    llm42_file_keep(r->file, tail);
}

bool llm42_recorder_failed(const llm42_recorder *r) { return r && ferror(r->file); }

llm42_result llm42_recorder_close(llm42_recorder *r, llm42_error *error) {
    if (!r) return LLM42_OK;
    llm42__record(r, "\nrequests: %lld\n", (long long)r->requests);
    llm42__record_digest(r, "file_digest", r->digest);
    llm42__record(r, LLM42__TRANSCRIPT_END);
    llm42_result result = LLM42_OK;
    if (!llm42_file_finish(r->file))
        result = llm42_fail(error, LLM42_IO, "%s: writing failed: the disk may be full", r->path);
    llm42__free(r);
    return result;
}

// The state of reading a transcript: what is left of it, and the value of the line that was read last.
typedef struct llm42__transcribing {
    const char *path, *at, *end;
    const char *key, *value, *value_end;
    int line;
    llm42_sha256 head;  // of all up to the line `result`
    llm42_transcript *to;
} llm42__transcribing;

// The error of the line that was read last.
static llm42_result llm42__transcript_bad(const llm42__transcribing *t, const char *key, const char *want,
                                          llm42_error *error) {
    return llm42_fail(error, LLM42_FORMAT, "%s:%d: %s: '%.*s': must be %s", t->path, t->line, key,
                      (int)LLM42__MIN(t->value_end - t->value, 40), t->value, want);
}

// Goes to the next line that is no comment. False: there is none.
static bool llm42__transcript_next(llm42__transcribing *t, const char **line_end) {
    for (; t->at < t->end; t->at = *line_end + 1) {
        *line_end = memchr(t->at, '\n', (size_t)(t->end - t->at));
        t->line++;
        if (*t->at != '\n' && *t->at != '#') return true;
    }
    return false;
}

// Reads the line `key: value`. The value of the key may be left in t alone.
static llm42_result llm42__transcript_line(llm42__transcribing *t, const char *key, llm42_error *error) {
    const size_t length = strlen(key);
    const char *end = t->end;
    if (!llm42__transcript_next(t, &end))
        return llm42_fail(error, LLM42_FORMAT, "%s:%d: the line '%s: ...' is missing", t->path, t->line, key);
    const char *at = t->at;
    if ((size_t)(end - at) <= length || memcmp(at, key, length) != 0 || at[length] != ':')
        return llm42_fail(error, LLM42_FORMAT, "%s:%d: '%.*s': must be '%s: ...'", t->path, t->line,
                          (int)LLM42__MIN(end - at, 40), at, key);
    t->key = at, t->value = at + length + 1, t->value_end = end;
    t->value += t->value < end && *t->value == ' ';
    t->at = end + 1;
    return LLM42_OK;
}

static llm42_result llm42__transcript_text(llm42__transcribing *t, const char *key, char *to, size_t size,
                                           llm42_error *error) {
    LLM42__TRY(llm42__transcript_line(t, key, error));
    const size_t n = (size_t)(t->value_end - t->value);
    if (!n || n >= size) return llm42__transcript_bad(t, key, n ? "shorter" : "given", error);
    if (memchr(t->value, 0, n)) return llm42__transcript_bad(t, key, "without a byte 0", error);
    memcpy(to, t->value, n);
    to[n] = 0;
    llm42__scrub(to);
    return LLM42_OK;
}

// The index of the value in a list of words, the first of which is left out if `from` is 1.
static llm42_result llm42__transcript_word(llm42__transcribing *t, const char *key, const char *const *words, int from,
                                           int count, int *index, llm42_error *error) {
    char all[64] = "";
    LLM42__TRY(llm42__transcript_line(t, key, error));
    for (*index = from; *index < count; ++*index) {
        if (llm42__transcript_is(t->value, t->value_end, words[*index])) return LLM42_OK;
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", *index > from ? " or " : "", words[*index]);
    }
    return llm42__transcript_bad(t, key, all, error);
}

static llm42_result llm42__transcript_bool(llm42__transcribing *t, const char *key, bool *value, llm42_error *error) {
    int index = 0;
    LLM42__TRY(llm42__transcript_word(t, key, llm42__yes_words, 0, 2, &index, error));
    *value = index;
    return LLM42_OK;
}

// Reads digits of a base up to the end. In base 16 there are exactly `digits` of them, in base 10 at most so many.
static bool llm42__transcript_digits(const char *p, const char *end, unsigned base, int digits, uint64_t *value) {
    if (p >= end || end - p > digits || (base == 16 && end - p != digits)) return false;
    for (*value = 0; p < end; p++) {
        unsigned digit = *p >= '0' && *p <= '9' ? (unsigned)(*p - '0') : 99;
        if (base == 16 && *p >= 'a' && *p <= 'f') digit = (unsigned)(*p - 'a') + 10;
        if (digit >= base || *value > (UINT64_MAX - digit) / base) return false;
        *value = *value * base + digit;
    }
    return true;
}

static llm42_result llm42__transcript_integer(llm42__transcribing *t, const char *key, uint64_t low, uint64_t high,
                                              uint64_t *value, llm42_error *error) {
    char want[64];
    LLM42__TRY(llm42__transcript_line(t, key, error));
    if (llm42__transcript_digits(t->value, t->value_end, 10, 20, value) && *value >= low && *value <= high)
        return LLM42_OK;
    snprintf(want, sizeof want, "a whole number from %llu to %llu", (unsigned long long)low, (unsigned long long)high);
    return llm42__transcript_bad(t, key, want, error);
}

// Reads a list into a new array, which the caller frees also after an error: int32 ids, or floats.
static llm42_result llm42__transcript_list(llm42__transcribing *t, const char *key, bool floats, void **items,
                                           int *count, llm42_error *error) {
    LLM42__TRY(llm42__transcript_line(t, key, error));
    const char *p = t->value, *const end = t->value_end;
    int64_t wanted = p < end;
    for (const char *q = p; q < end; q++) wanted += *q == ',';
    if (wanted > 1 << 28) return llm42__transcript_bad(t, key, "shorter", error);
    *count = (int)wanted;
    *items = llm42__alloc((size_t)wanted + 1, 4);
    if (!*items) return llm42_fail(error, LLM42_MEMORY, "%s:%d: %s: out of memory", t->path, t->line, key);
    for (int i = 0; i < *count; i++) {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        uint64_t number = 0;
        t->value = p, t->value_end = comma ? comma : end;
        if (!llm42__transcript_digits(p, t->value_end, floats ? 16 : 10, floats ? 8 : 10, &number) ||
            (!floats && number > INT32_MAX))
            return llm42__transcript_bad(t, key, floats ? "the 8 hex digits of a float" : "a token id", error);
        const uint32_t item = (uint32_t)number;
        memcpy((char *)*items + (size_t)i * sizeof item, &item, sizeof item);
        p = comma ? comma + 1 : end;
    }
    return LLM42_OK;
}

// Reads a sampling parameter and checks it. Those that were not read yet are 0, which is right.
static llm42_result llm42__transcript_parameter(llm42__transcribing *t, const char *key, float *value,
                                                const llm42_sampling *s, llm42_error *error) {
    llm42_error why = {LLM42_OK, ""};
    uint64_t bits = 0;
    LLM42__TRY(llm42__transcript_line(t, key, error));
    if (!llm42__transcript_digits(t->value, t->value_end, 16, 8, &bits))
        return llm42__transcript_bad(t, key, "the 8 hex digits of a float", error);
    *value = llm42__float((uint32_t)bits);
    if (llm42_sampling_check(s, &why) == LLM42_OK) return LLM42_OK;
    return llm42_fail(error, LLM42_FORMAT, "%s:%d: %s", t->path, t->line, why.text);
}

static llm42_result llm42__transcript_sampling(llm42__transcribing *t, llm42_sampling *s, llm42_error *error) {
    uint64_t top_k = 0;
    LLM42__TRY(llm42__transcript_parameter(t, "temperature", &s->temperature, s, error));
    LLM42__TRY(llm42__transcript_integer(t, "top_k", 0, INT32_MAX, &top_k, error));
    s->top_k = (int)top_k;
    LLM42__TRY(llm42__transcript_parameter(t, "top_p", &s->top_p, s, error));
    LLM42__TRY(llm42__transcript_parameter(t, "min_p", &s->min_p, s, error));
    return llm42__transcript_integer(t, "seed", 1, UINT64_MAX, &s->seed, error);
}

static llm42_result llm42__transcript_tokens(llm42__transcribing *t, llm42_answer *a, llm42_error *error) {
    void *items[3] = {NULL, NULL, NULL};
    int logprobs = 0;
    llm42_result result = llm42__transcript_list(t, "prompt", false, &items[0], &a->prompt_count, error);
    if (result == LLM42_OK && !a->prompt_count) result = llm42__transcript_bad(t, "prompt", "given", error);
    if (result == LLM42_OK) result = llm42__transcript_list(t, "tokens", false, &items[1], &a->count, error);
    if (result == LLM42_OK) result = llm42__transcript_list(t, "logprobs", true, &items[2], &logprobs, error);
    a->prompt = items[0], a->tokens = items[1], a->logprobs = items[2];
    if (result == LLM42_OK && logprobs != a->count)
        return llm42_fail(error, LLM42_FORMAT, "%s:%d: logprobs: there are %d for %d tokens", t->path, t->line,
                          logprobs, a->count);
    return result;
}

// Reads the line with the digest of the head and of what stands from `begin` up to this line. Format 1 has none.
static llm42_result llm42__transcript_digest(llm42__transcribing *t, const char *key, const char *begin,
                                             char digest[LLM42_SHA256_TEXT], llm42_error *error) {
    llm42_sha256 of = t->head;
    if (t->to->format == 1) return LLM42_OK;
    LLM42__TRY(llm42__transcript_line(t, key, error));
    llm42_sha256_add(&of, begin, (size_t)(t->key - begin));
    llm42_sha256_end(of, digest);
    if (llm42__transcript_is(t->value, t->value_end, digest)) return LLM42_OK;
    return llm42__transcript_bad(t, key, "the digest of the lines before it: some were changed", error);
}

static llm42_result llm42__transcript_answer(llm42__transcribing *t, llm42_answer *a, llm42_error *error) {
    uint64_t number = 0;
    int word = 0, stops = 0;
    void *stop = NULL;
    LLM42__TRY(llm42__transcript_integer(t, "request", 1, INT64_MAX, &number, error));
    const char *const begin = t->key;
    a->request = (int64_t)number;
    a->line = t->line;
    LLM42__TRY(llm42__transcript_bool(t, "deterministic", &a->deterministic, error));
    LLM42__TRY(llm42__transcript_word(t, "finish", llm42__finish_words, LLM42_FINISH_STOP, LLM42_FINISH_ERROR + 1,
                                      &word, error));
    a->finish = (llm42_finish)word;
    LLM42__TRY(llm42__transcript_integer(t, "max_new_tokens", 1, INT32_MAX, &number, error));
    a->max_new_tokens = (int)number;
    llm42_result result = llm42__transcript_list(t, "stop", false, &stop, &stops, error);
    if (result == LLM42_OK && stops > LLM42_MAX_STOP) result = llm42__transcript_bad(t, "stop", "at most 8 ids", error);
    a->stop_count = result == LLM42_OK ? stops : 0;
    if (a->stop_count) memcpy(a->stop, stop, (size_t)a->stop_count * sizeof *a->stop);
    llm42__free(stop);
    if (result != LLM42_OK) return result;
    LLM42__TRY(llm42__transcript_sampling(t, &a->sampling, error));
    LLM42__TRY(llm42__transcript_tokens(t, a, error));
    return llm42__transcript_digest(t, "digest", begin, a->digest, error);
}

static llm42_result llm42__transcript_head(llm42__transcribing *t, llm42_error *error) {
    llm42_transcript *to = t->to;
    uint64_t leaves = 0;
    int compute = 0;
    const size_t digits = to->format == 1 ? 16 : 64;
    const char *const begin = t->at;
    LLM42__TRY(llm42__transcript_text(t, "model", to->model, sizeof to->model, error));
    LLM42__TRY(llm42__transcript_text(t, "model_hash", to->model_hash, sizeof to->model_hash, error));
    if (strspn(to->model_hash, "0123456789abcdef") != digits || to->model_hash[digits])
        return llm42__transcript_bad(t, "model_hash", digits == 16 ? "16 hex digits" : "64 hex digits", error);
    LLM42__TRY(llm42__transcript_text(t, "arithmetic", to->arithmetic, sizeof to->arithmetic, error));
    LLM42__TRY(llm42__transcript_word(t, "compute", llm42__compute_words, LLM42_DTYPE_BF16, LLM42_DTYPE_FP32 + 1,
                                      &compute, error));
    to->numerics.compute = (llm42_dtype)compute;
    LLM42__TRY(llm42__transcript_bool(t, "logits_fp32", &to->numerics.logits_fp32, error));
    LLM42__TRY(llm42__transcript_bool(t, "router_fp32", &to->numerics.router_fp32, error));
    LLM42__TRY(llm42__transcript_integer(t, "leaves", 1, 8, &leaves, error));
    to->numerics.leaves = (int)leaves;
    LLM42__TRY(llm42__transcript_text(t, "preset", to->preset, sizeof to->preset, error));
    LLM42__TRY(llm42__transcript_text(t, "result", to->result, sizeof to->result, error));
    llm42_sha256_begin(&t->head);
    llm42_sha256_add(&t->head, begin, (size_t)(t->at - begin));
    return LLM42_OK;
}

// The first line and the last one.
static llm42_result llm42__transcript_ends(llm42__transcribing *t, llm42_error *error) {
    const size_t first = strlen(LLM42__TRANSCRIPT_FIRST), last = strlen(LLM42__TRANSCRIPT_END);
    const char *line_end = memchr(t->at, '\n', (size_t)(t->end - t->at));
    if (!line_end) line_end = t->end;
    if ((size_t)(line_end - t->at) < first || memcmp(t->at, LLM42__TRANSCRIPT_FIRST, first))
        return llm42_fail(error, LLM42_FORMAT, "%s:1: not a transcript: it does not begin with '%s'", t->path,
                          LLM42__TRANSCRIPT_FIRST);
    if (line_end[-1] == '\r')
        return llm42_fail(error, LLM42_FORMAT,
                          "%s:1: the line ends with a carriage return: something has changed how lines end", t->path);
    const char *const format = t->at + first;
    t->to->format = line_end - format == 1 ? *format - '0' : 0;
    if (t->to->format < 1 || t->to->format > 3)
        return llm42_fail(error, LLM42_FORMAT, "%s:1: format %.*s: this version of llm42 reads formats 1 to 3", t->path,
                          (int)LLM42__MIN(line_end - format, 40), format);
    if ((size_t)(t->end - t->at) < last || memcmp(t->end - last, LLM42__TRANSCRIPT_END, last) ||
        t->end[-1 - (ptrdiff_t)last] != '\n')
        return llm42_fail(error, LLM42_FORMAT, "%s: the file is cut short, or goes on behind its end: its last line %s",
                          t->path, "is not '# end'");
    return LLM42_OK;
}

static llm42_result llm42__transcript_read(llm42__transcribing *t, llm42_error *error) {
    llm42_transcript *to = t->to;
    uint64_t requests = 0;
    const char *line_end;
    LLM42__TRY(llm42__transcript_ends(t, error));
    LLM42__TRY(llm42__transcript_head(t, error));
    const char *const begin = t->at;
    for (;;) {
        llm42__transcribing look = *t;
        if (!llm42__transcript_next(&look, &line_end) || strncmp(look.at, "request:", 8) != 0) break;
        if (!(to->count & (to->count - 1))) {  // a power of two: the array is full
            llm42_answer *more = llm42__alloc(LLM42__MAX(1, 2 * (size_t)to->count), sizeof *more);
            if (!more) return llm42_fail(error, LLM42_MEMORY, "%s: out of memory", t->path);
            if (to->count) memcpy(more, to->answer, (size_t)to->count * sizeof *more);
            llm42__free(to->answer);
            to->answer = more;
        }
        to->answer[to->count++] = (llm42_answer){.request = 0};
        LLM42__TRY(llm42__transcript_answer(t, &to->answer[to->count - 1], error));
    }
    LLM42__TRY(llm42__transcript_integer(t, "requests", 0, INT32_MAX, &requests, error));
    if (requests != (uint64_t)to->count)
        return llm42_fail(error, LLM42_FORMAT, "%s:%d: requests: %llu: the file has %d", t->path, t->line,
                          (unsigned long long)requests, to->count);
    LLM42__TRY(llm42__transcript_digest(t, "file_digest", begin, to->digest, error));
    if (llm42__transcript_next(t, &line_end))
        return llm42_fail(error, LLM42_FORMAT, "%s:%d: '%.*s': must be '# end'", t->path, t->line,
                          (int)LLM42__MIN(line_end - t->at, 40), t->at);
    return LLM42_OK;
}

llm42_result llm42_transcript_load(llm42_transcript **transcript, const char *path, llm42_error *error) {
    llm42__file file;
    if (!transcript || !path)
        return llm42_fail(error, LLM42_INVALID, "llm42_transcript_load: %s: required", path ? "transcript" : "path");
    *transcript = NULL;
    LLM42__TRY(llm42__file_open(&file, path, false, error));
    llm42__transcribing t = {.path = path, .at = file.data, .end = file.data + file.size};
    t.to = llm42__alloc_zero(1, sizeof *t.to);
    llm42_result result = t.to ? llm42__transcript_read(&t, error)
                               : llm42_fail(error, LLM42_MEMORY, "%s: out of memory", path);
    llm42__file_close(&file);
    if (result == LLM42_OK) *transcript = t.to;
    else llm42_transcript_free(t.to);
    return result;
}

void llm42_transcript_free(llm42_transcript *t) {
    for (int i = 0; t && i < t->count; i++) {
        llm42__free(t->answer[i].prompt);
        llm42__free(t->answer[i].tokens);
        llm42__free(t->answer[i].logprobs);
    }
    if (t) llm42__free(t->answer);
    llm42__free(t);
}

#endif  // LLM42_TRANSCRIPT_IMPLEMENTATION
