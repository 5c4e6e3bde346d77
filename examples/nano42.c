// nano42: the protocol of LLM-42 on one page. A language model answers the same prompt differently when other requests
// share its passes, and decode, verify, roll back cures it. This file needs nothing but a C compiler:
//
//     cc -std=c11 -O2 -march=native -ffp-contract=off examples/nano42.c -o nano42 -lm && ./nano42
//
// It reads examples/tiny42, a model of a million parameters, in the repository's root. The tokens and log-probabilities
// of its deterministic requests are, to the bit, those of `build/generate --deterministic` (tests/test_examples.sh
// compares them). llm42.h does the same for any model, with batches, pages, drafts and GPUs.
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// tiny42 is a Llama. Its numbers stand in examples/tiny42/config.json.
enum { LAYERS = 4, DIM = 128, HEADS = 4, KV_HEADS = 2, HEAD = 32, KV = KV_HEADS * HEAD, FFN = 384, VOCAB = 2048 };
enum { REQUESTS = 10, PROMPT = 16, NEW = 64, CONTEXT = PROMPT + NEW };  // PROMPT and NEW: tokens of a request, at most
enum { WINDOW = 8, ROWS = REQUESTS * WINDOW };  // rows of a request in a verification, and rows of a pass, at most

static void fail(const char *what) {
    fprintf(stderr, "nano42: %s\n", what);
    exit(1);
}

// ---- numbers --------------------------------------------------------------------------------------------------------
// The model computes in bf16, a float of which only the upper 16 bits are kept. Sums are taken in fp32, then rounded.

typedef union bits {
    float f;
    uint32_t u;
} bits;
static uint32_t bits_of(float x) { return (bits){.f = x}.u; }
static float float_of(uint32_t u) { return (bits){.u = u}.f; }

// The nearest bf16 number, of two equally near ones the even one.
static float round_bf16(float x) {
    const uint32_t u = bits_of(x);
    return float_of((u + 0x7fffu + (u >> 16 & 1)) & 0xffff0000u);
}

// e^x = 2^n e^f, with n the nearest integer to x / ln 2, and a polynomial for e^f. (In llm42.h: llm42__exp.)
static float exp_f32(float x) {
    if (x < -87) return 0;
    if (x > 88) x = 88;
    const float n = rintf(x * 1.44269504f);
    const float f = fmaf(n, -1.42860677e-6f, fmaf(n, -0.693145752f, x));
    static const float c[] = {1 / 5040.0f, 1 / 720.0f, 1 / 120.0f, 1 / 24.0f, 1 / 6.0f, 0.5f, 1, 1};
    float p = c[0];
    for (int i = 1; i < 8; i++) p = fmaf(p, f, c[i]);
    return float_of(bits_of(p) + ((uint32_t)(int)n << 23));
}

// log x = e ln 2 + log m, with m between sqrt(1/2) and sqrt(2), and log m = 2 atanh((m - 1) / (m + 1)).
static float log_f32(float x) {
    const int e = (int32_t)(bits_of(x) - 0x3f3504f3u) >> 23;
    const float f = float_of(bits_of(x) - ((uint32_t)e << 23)) - 1, s = f / (2 + f), z = s * s;
    float p = 2.0f / 11;
    for (int i = 9; i >= 3; i -= 2) p = fmaf(p, z, 2.0f / (float)i);
    const float tail = fmaf((float)e, 1.42860677e-6f, s * z * p);
    return fmaf((float)e, 0.693145752f, fmaf(2, s, tail));
}

// ---- sums -----------------------------------------------------------------------------------------------------------
// Floating-point addition rounds, so the result of a sum depends on its order. Fast libraries choose the order by the
// number of rows of the pass: with few rows a processor has idle units, so the library cuts each sum into parts, one
// for each of several units. A decoding pass has a row for each request that runs, so other requests change the order.
// Where two tokens are nearly equally likely, a changed last bit can flip the choice, and the texts part.

// Adds sixteen partial sums as a tree. Partial sum j has the terms whose index is j modulo 16.
static float tree(float partial[16]) {
    for (int half = 8; half; half /= 2)
        for (int j = 0; j < half; j++) partial[j] += partial[j + half];
    return partial[0];
}

// The sum of x[i] y[i]; n is a multiple of 16.
static float dot(const float *x, const float *y, int n) {
    float partial[16] = {0};
    for (int i = 0; i < n; i += 16)
        for (int j = 0; j < 16; j++) partial[j] = fmaf(x[i + j], y[i + j], partial[j]);
    return tree(partial);
}

// A schedule is a rule for the order of sums. FAST cuts sums into parts: how many depends on the rows of the pass.
// INVARIANT takes each sum in one way, whatever else is in the pass, which costs time on a real processor.
typedef enum schedule { FAST, INVARIANT } schedule;

// The length of a part of a sum of k terms, at least 32, for a matrix of n outputs (0: attention). Many outputs keep
// all units busy without parts. (llm42_cpu_splits has the same table.)
static int part_of(schedule s, int rows, int n, int k) {
    int parts = rows <= 1 ? 4 : rows <= 8 ? 3 : rows <= 64 ? 2 : 1;
    if (parts > k / 32) parts = k / 32;
    if (parts < 1 || s == INVARIANT || n > k) parts = 1;
    return ((k + parts - 1) / parts + 15) / 16 * 16;
}

// y[n] = sum over k of w[n][k] x[k], rounded to bf16.
static void multiply(float *y, const float *w, const float *x, int n, int k, schedule s, int rows) {
    const int part = part_of(s, rows, n, k);
    for (int o = 0; o < n; o++, w += k) {
        float sum = dot(x, w, part < k ? part : k);
        for (int i = part; i < k; i += part) sum += dot(x + i, w + i, part < k - i ? part : k - i);
        y[o] = round_bf16(sum);
    }
}

// ---- model ----------------------------------------------------------------------------------------------------------
enum { ATTENTION_NORM, Q, K, V, O, FFN_NORM, GATE, UP, DOWN, WEIGHTS };
static const char *const NAMES[WEIGHTS] = {"input_layernorm",  "self_attn.q_proj", "self_attn.k_proj",
                                           "self_attn.v_proj", "self_attn.o_proj", "post_attention_layernorm",
                                           "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};
static const char *word[VOCAB];  // the text of each token, with a quotation mark and a colon behind it
static float *embed, *final_norm, *weights[LAYERS][WEIGHTS];  // a matrix is [outputs][inputs]

static char *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) fail("cannot read examples/tiny42: run it in the repository's root");
    *size = (size_t)ftell(file), rewind(file);
    char *text = calloc(*size + 1, 1);
    if (!text || fread(text, 1, *size, file) != *size) fail("cannot read a file of examples/tiny42");
    fclose(file);
    return text;
}

// A file of weights has eight bytes with the size of a header, the header in JSON, and then the numbers in bf16.
static float *tensor(const char *file, size_t size, const char *prefix, const char *name) {
    char key[96], *at, *mark = "\"data_offsets\":[";
    uint64_t header;
    memcpy(&header, file, sizeof header);
    snprintf(key, sizeof key, "\"model.%s%s.weight\"", prefix, name);
    if (!(at = strstr(file + 8, key)) || !(at = strstr(at, mark))) fail("a weight is missing");
    const size_t begin = strtoull(at + strlen(mark), &at, 10), count = (strtoull(at + 1, NULL, 10) - begin) / 2;
    float *to = malloc(count * sizeof *to);
    if (!to || 8 + header + begin + 2 * count > size) fail("the file of the weights was cut");
    for (size_t i = 0; i < count; i++) {
        uint16_t h;
        memcpy(&h, file + 8 + header + begin + 2 * i, sizeof h);
        to[i] = float_of((uint32_t)h << 16);
    }
    return to;
}

static void load(void) {
    size_t size;
    const char *file = read_file("examples/tiny42/tokenizer.json", &size), *line = strstr(file, "\"vocab\": {\n");
    for (int i = 0; i < VOCAB; i++) word[i] = (line = strchr(line, '\n') + 1) + strlen("      \"");
    file = read_file("examples/tiny42/model.safetensors", &size);
    embed = tensor(file, size, "", "embed_tokens");
    final_norm = tensor(file, size, "", "norm");
    for (int i = 0; i < LAYERS * WEIGHTS; i++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "layers.%d.", i / WEIGHTS);
        weights[i / WEIGHTS][i % WEIGHTS] = tensor(file, size, prefix, NAMES[i % WEIGHTS]);
    }
}

typedef struct request {
    int number, prompt[PROMPT], prompt_tokens;
    bool deterministic;
    int token[NEW];  // first the committed tokens, then the candidates
    float logprob[NEW];
    int committed, candidates;
    float k[LAYERS][CONTEXT][KV], v[LAYERS][CONTEXT][KV];  // keys and values (KV) of all positions so far, in bf16
} request;

// A row is one token at one position of a request. The pass fills in `next` and `logprob`.
typedef struct row {
    request *r;
    int token, position, next;  // next: the token with the largest logit
    float logprob;
} row;

static void norm(float *y, const float *x, const float *weight) {
    const float scale = 1 / sqrtf(dot(x, x, DIM) / DIM + 1e-5f);
    for (int i = 0; i < DIM; i++) y[i] = round_bf16(x[i] * scale * weight[i]);
}

static void add(float *x, const float *y) {
    for (int i = 0; i < DIM; i++) x[i] = round_bf16(x[i] + y[i]);
}

// Turns each pair of numbers of a head by an angle that grows with the position.
static void rotate(float *x, int heads, int position) {
    for (int i = 0; i < heads * HEAD / 2; i++) {
        float *a = x + i / (HEAD / 2) * HEAD + i % (HEAD / 2), *b = a + HEAD / 2, old = *a;
        const float angle = (float)position * (float)pow(10000, -2.0 * (i % (HEAD / 2)) / HEAD);
        const float c = (float)cos(angle), s = (float)sin(angle);
        *a = round_bf16(fmaf(old, c, -(*b * s)));
        *b = round_bf16(fmaf(*b, c, old * s));
    }
}

// The mean of the values of all positions up to the row's, weighted by e^score. FAST cuts this sum too. A part takes
// off its largest score, lest e^ overflow, and parts are scaled to a common largest score as they are added.
static void attend(float *out, const float *q, const row *at, int layer, int head, schedule s, int rows) {
    const int end = at->position + 1, kv = head / (HEADS / KV_HEADS) * HEAD;
    const int part = part_of(s, rows, 0, end);
    float merged[HEAD], total = 0, top = -INFINITY, weight[CONTEXT];
    for (int begin = 0; begin < end; begin += part) {
        const int stop = begin + part < end ? begin + part : end;
        float largest = -INFINITY, sums[16] = {0};
        for (int t = begin; t < stop; t++) {
            weight[t] = dot(q, &at->r->k[layer][t][kv], HEAD) * (1 / sqrtf(HEAD));
            if (weight[t] > largest) largest = weight[t];
        }
        for (int t = begin; t < stop; t++) weight[t] = exp_f32(weight[t] - largest), sums[t % 16] += weight[t];
        const float higher = largest > top ? largest : top;
        const float old_scale = begin ? exp_f32(top - higher) : 0, new_scale = exp_f32(largest - higher);
        for (int i = 0; i < HEAD; i++) {
            float partial[16] = {0};
            for (int t = begin; t < stop; t++)
                partial[t % 16] = fmaf(weight[t], at->r->v[layer][t][kv + i], partial[t % 16]);
            merged[i] = begin ? fmaf(merged[i], old_scale, tree(partial) * new_scale) : tree(partial);
        }
        total = begin ? fmaf(total, old_scale, tree(sums) * new_scale) : tree(sums);
        top = higher;
    }
    const float inverse = 1 / total;
    for (int i = 0; i < HEAD; i++) out[i] = round_bf16(merged[i] * inverse);
}

// The likeliest token, the first of equal ones, and the logarithm of its probability.
static void choose(row *at, const float *logits) {
    float partial[16] = {0};
    at->next = 0;
    for (int i = 1; i < VOCAB; i++)
        if (logits[i] > logits[at->next]) at->next = i;
    for (int i = 0; i < VOCAB; i++) partial[i % 16] += exp_f32(logits[i] - logits[at->next]);
    at->logprob = -log_f32(tree(partial));
}

// One pass of the model over rows of any requests. Rows of one request stand in order of their positions.
static void pass(row *all, int rows, schedule s) {
    static float x[ROWS][DIM], q[ROWS][DIM], h[DIM], y[DIM], attention[DIM], gate[FFN], up[FFN], logits[VOCAB];
    for (int r = 0; r < rows; r++) memcpy(x[r], embed + all[r].token * DIM, sizeof x[r]);
    for (int l = 0; l < LAYERS; l++) {
        for (int r = 0; r < rows; r++) {
            const row *at = &all[r];
            float *k = at->r->k[l][at->position], *v = at->r->v[l][at->position];
            norm(h, x[r], weights[l][ATTENTION_NORM]);
            multiply(q[r], weights[l][Q], h, DIM, DIM, s, rows);
            multiply(k, weights[l][K], h, KV, DIM, s, rows);
            multiply(v, weights[l][V], h, KV, DIM, s, rows);
            rotate(q[r], HEADS, at->position);
            rotate(k, KV_HEADS, at->position);
        }
        for (int r = 0; r < rows; r++) {
            for (int head = 0; head < HEADS; head++)
                attend(attention + head * HEAD, q[r] + head * HEAD, &all[r], l, head, s, rows);
            multiply(y, weights[l][O], attention, DIM, DIM, s, rows);
            add(x[r], y);
            norm(h, x[r], weights[l][FFN_NORM]);
            multiply(gate, weights[l][GATE], h, FFN, DIM, s, rows);
            multiply(up, weights[l][UP], h, FFN, DIM, s, rows);
            for (int i = 0; i < FFN; i++) gate[i] = round_bf16(gate[i] / (1 + exp_f32(-gate[i])) * up[i]);
            multiply(y, weights[l][DOWN], gate, DIM, FFN, s, rows);
            add(x[r], y);
        }
    }
    for (int r = 0; r < rows; r++) {
        norm(h, x[r], final_norm);
        multiply(logits, embed, h, VOCAB, DIM, s, rows);
        choose(&all[r], logits);
    }
}

// ---- protocol -------------------------------------------------------------------------------------------------------
// A deterministic request decodes in FAST passes, like any other, but what it gets are candidates. Once each such
// request has WINDOW - 1 of them, or all its answer, one INVARIANT pass takes as rows, for each of them, the last
// committed token and the candidates. A row's output is compared with the candidate that follows it. It depends on
// nothing but the request's tokens so far: each sum has one order, and all keys and values that it reads come from
// INVARIANT passes. Candidates that agree are committed. At the first that differs, which is seldom, the pass's own
// token is committed instead, and all later candidates are dropped: they follow from another text. If all agree, the
// last row adds a token: seven fast passes and one INVARIANT pass of eight rows, which takes less time than eight such
// passes, give eight tokens. What dropped candidates leave in the cache is overwritten before a row reads it: rolling
// back sets a counter.

static bool decodes(const request *r) { return r->committed + r->candidates < NEW && r->candidates < WINDOW - 1; }

// The row that takes token i of the answer as its input, and computes token i + 1.
static row row_of(request *r, int i) { return (row){.r = r, .token = r->token[i], .position = r->prompt_tokens + i}; }

// Each prompt has a pass of its own. That of a deterministic request is INVARIANT, so its first token is final.
static void prefill(request *r) {
    row rows[PROMPT];
    for (int i = 0; i < r->prompt_tokens; i++) rows[i] = (row){.r = r, .token = r->prompt[i], .position = i};
    pass(rows, r->prompt_tokens, r->deterministic ? INVARIANT : FAST);
    r->token[0] = rows[r->prompt_tokens - 1].next, r->logprob[0] = rows[r->prompt_tokens - 1].logprob;
    r->committed = 1;
}

// One FAST pass with a row of each request that may decode. False if none may.
static bool decode(request *all, int requests) {
    row rows[ROWS];
    int n = 0;
    for (int i = 0; i < requests; i++)
        if (decodes(&all[i])) rows[n++] = row_of(&all[i], all[i].committed + all[i].candidates - 1);
    if (n) pass(rows, n, FAST);
    for (int i = 0; i < n; i++) {
        request *r = rows[i].r;
        r->token[r->committed + r->candidates] = rows[i].next;
        r->logprob[r->committed + r->candidates] = rows[i].logprob;
        if (r->deterministic) r->candidates++;
        else r->committed++;
    }
    return n > 0;
}

static void print_token(int token) {
    for (const char *c = word[token]; strncmp(c, "\":", 2); c++) {
        if (*c != '\\') putchar(*c == '\xc4' ? ' ' : *c);  // a space is written as a letter of the bytes c4 and a0
        if (*c == '\xc4') c++;
    }
}

static void show(const request *r, int kept, int instead) {
    printf("  request %d: %d of %d candidates agree, then '", r->number, kept, r->candidates);
    print_token(r->token[r->committed + kept]), printf("' is dropped and '");
    print_token(instead), printf("' committed\n");
}

// Verifies and commits the candidates of all requests that have some.
static void verify(request *all, int requests, bool shown) {
    row rows[ROWS], *at = rows;
    int n = 0;
    for (int i = 0; i < requests; i++)
        for (int j = 0; all[i].candidates && j <= all[i].candidates; j++)
            rows[n++] = row_of(&all[i], all[i].committed - 1 + j);
    pass(rows, n, INVARIANT);
    for (int i = 0; i < requests; i++) {
        request *r = &all[i];
        if (!r->candidates) continue;
        int kept = 0;
        while (kept < r->candidates && at[kept].next == r->token[r->committed + kept]) kept++;
        if (kept < r->candidates && shown) show(r, kept, at[kept].next);
        // What is committed is the pass's: the tokens that agree, and the one behind them, if there is room for it.
        for (int j = 0; j <= kept && r->committed + j < NEW; j++) {
            r->token[r->committed + j] = at[j].next;
            r->logprob[r->committed + j] = at[j].logprob;
        }
        at += r->candidates + 1, r->candidates = 0;
        r->committed = r->committed + kept + 1 < NEW ? r->committed + kept + 1 : NEW;
    }
}

static void serve(request *all, int requests, bool shown) {
    for (int i = 0; i < requests; i++) prefill(&all[i]);
    while (decode(all, requests)) {
        bool ready = true;  // no deterministic request can decode further
        for (int i = 0; i < requests; i++) ready &= !all[i].deterministic || !decodes(&all[i]);
        if (ready) verify(all, requests, shown);
    }
}

// ---- main -----------------------------------------------------------------------------------------------------------
// "The landlord dropped the candle and", and others.
static const int prompts[REQUESTS][PROMPT] = {{0, 678, 1449, 77, 647, 1438, 970, 264, 277, 437, 304, 280},
                                              {0, 678, 874, 959, 629, 283, 264},
                                              {0, 34, 85, 264, 887, 283, 264, 1126, 333, 471, 417, 555, 260},
                                              {0, 42, 79, 264, 1791, 278, 471, 312, 260},
                                              {0, 678, 1949, 399, 402, 310, 264, 871, 280},
                                              {0, 678, 357, 393, 286, 312, 1392, 13, 280},
                                              {0, 678, 1516, 281, 1722, 264, 1309, 280},
                                              {0, 678, 351, 81, 356, 69, 739, 360, 264, 374, 66, 280},
                                              {0, 678, 387, 282, 945, 260, 1024},
                                              {0, 678, 318, 1417, 652, 1186, 360}};

int main(int argc, char **argv) {
    static request together[REQUESTS], alone[REQUESTS];
    load();
    for (int marked = 0; marked <= 1; marked++) {
        puts(marked ? "The same requests, marked deterministic:" : "Ordinary requests:");
        int differ = 0, other = 0;  // answers with other bits, and those among them with other tokens
        for (int i = 0; i < REQUESTS; i++) {
            alone[i] = (request){.number = i + 1, .deterministic = marked, .prompt_tokens = PROMPT};
            memcpy(alone[i].prompt, prompts[i], sizeof prompts[i]);
            while (!prompts[i][alone[i].prompt_tokens - 1]) alone[i].prompt_tokens--;
            together[i] = alone[i];
            serve(&alone[i], 1, false);
        }
        serve(together, REQUESTS, true);
        for (int i = 0; i < REQUESTS; i++) {
            const request *a = &alone[i], *b = &together[i];
            int same = 0;
            while (same < NEW && a->token[same] == b->token[same]) same++;
            for (int k = 0; k < 2 && same < NEW && !other; k++) {
                printf("  request %d %s: ...", b->number, k ? "together" : "alone   ");
                for (int t = 0; t < NEW && t < same + 8; t++) print_token((k ? b : a)->token[t]);
                printf(" ...\n");
            }
            other += same < NEW, differ += same < NEW || memcmp(a->logprob, b->logprob, sizeof a->logprob) != 0;
        }
        printf("  Served together, %d of %d get other bits, and %d other tokens.\n", differ, REQUESTS, other);
    }
    const bool all = argc > 1 && !strcmp(argv[1], "--logprobs");  // request, token, log-probability
    for (int i = 0; all && i < REQUESTS * NEW; i++)
        printf("%d %d %.9g\n", i / NEW + 1, together[i / NEW].token[i % NEW], together[i / NEW].logprob[i % NEW]);
    return 0;
}
