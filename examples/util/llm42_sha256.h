// llm42_sha256.h: SHA-256 (FIPS 180-4), and the hash of a model, which says whether two people have the same one.
//
//     #define LLM42_SHA256_IMPLEMENTATION   // in one C file, before its first include of llm42.h
//     #include "llm42_sha256.h"             // it includes llm42.h; llm42_transcript.h includes this file
#if defined(LLM42_SHA256_IMPLEMENTATION) && defined(__cplusplus)
#error "llm42_sha256.h: the implementation is C11: define LLM42_SHA256_IMPLEMENTATION in a .c file"
#undef LLM42_SHA256_IMPLEMENTATION
#elif defined(LLM42_SHA256_IMPLEMENTATION) && !defined(LLM42_BASE)
#define LLM42_BASE  // memory and messages of llm42.h
#endif
#include "llm42.h"

#ifndef LLM42_SHA256_H
#define LLM42_SHA256_H

// SHA-256 of bytes that come piece by piece. A copy of the struct goes on by itself.
typedef struct llm42_sha256 {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64];  // its first bytes % 64 are what does not make a block yet
} llm42_sha256;

enum { LLM42_SHA256_TEXT = 65 };  // 64 hex digits and the end of the string

LLM42_API void llm42_sha256_begin(llm42_sha256 *s);
LLM42_API void llm42_sha256_add(llm42_sha256 *s, const void *data, size_t size);
LLM42_API void llm42_sha256_end(llm42_sha256 s, char hex[LLM42_SHA256_TEXT]);

// The hash of the weights and of what else a model computes with, as described below. It tells whether two models are
// the same, however their files are arranged: nobody knows how to make two models with the same hash. All weights are
// read, in as many threads as OpenMP offers. Errors: INVALID (the model has no weights), MEMORY.
LLM42_API llm42_result llm42_model_sha256(const llm42_model *model, char hex[LLM42_SHA256_TEXT], llm42_error *error);
// The hash of transcripts of format 1. It is weak: 64 bits, for which anybody can make another model within seconds, by
// inverting llm42_hash. Use it for nothing but such old files.
LLM42_API llm42_result llm42_model_hash(const llm42_model *model, uint64_t *hash, llm42_error *error);

// A model is a list of words (uint64) and of parts. A number that is not an integer is converted to double, and the
// word is the bits of the double.
// - The words arch, vocab, dim, layers, heads, kv_heads, head_dim, ffn, experts, experts_used, experts_renorm,
//   sliding_window, norm_eps, rope_theta, 0, rope_factor, rope_low_freq_factor, rope_high_freq_factor and
//   rope_original_context of llm42_config. Its other fields change no logit. (Before 0.3.0 the 0 was 1 for llama2.c.)
// - embed, head and final_norm; then for each layer the word .sliding, and attention_norm, ffn_norm, q_norm, k_norm,
//   q_bias, k_bias, v_bias, q, k, v, o, gate, up, down, router; then gate, up and down of each of its experts. A head
//   that is tied to the embedding is hashed as if it were a tensor of its own.
// A tensor is in this list:
// - If the model or the layer does not have the tensor: the word 0.
// - Otherwise its type (llm42_dtype), its number of rows n, its number of columns k, and one part for each MiB of its
//   values (the last part may be shorter). A vector is FP32 and has one row.
// - A synthetic matrix is the word 16, then n, k, and its recipe's key, scale and lead. Its values follow from these.
//
// llm42_model_sha256 is SHA-256 of a byte 1 and the list. A word is eight bytes, the lowest first. A part is the 32
// bytes of SHA-256 of a byte 0 and the part's own bytes. (The bytes 0 and 1 keep a part from being taken for a model.)
// llm42_model_hash: h = 0, then h = llm42_hash(h ^ word) for each word of the list in turn. The word of a part is the
// hash of its bytes, in the same way: eight bytes make a word, the lowest first, and the last word is filled up with
// zeros.
#endif  // LLM42_SHA256_H

#if defined(LLM42_SHA256_IMPLEMENTATION) && !defined(LLM42_SHA256_IMPLEMENTED)
#define LLM42_SHA256_IMPLEMENTED

#if !defined(LLM42_SCALAR) && defined(__SHA__) && defined(__SSE4_1__)
#define LLM42__SHA256_NATIVE 1
#include <immintrin.h>
#else
#define LLM42__SHA256_NATIVE 0
#endif

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes (FIPS 180-4, 4.2.2).
static const uint32_t llm42__sha256_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static inline uint32_t llm42__rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

// Blocks of 64 bytes (FIPS 180-4, 6.2.2), in plain C.
static inline void llm42__sha256_plain(uint32_t state[8], const unsigned char *data, size_t blocks) {
    for (; blocks; blocks--, data += 64) {
        uint32_t w[64];
        for (int i = 0; i < 16; i++)
            w[i] = (uint32_t)data[4 * i] << 24 | (uint32_t)data[4 * i + 1] << 16 | (uint32_t)data[4 * i + 2] << 8 |
                   data[4 * i + 3];
        for (int i = 16; i < 64; i++) {
            const uint32_t x = w[i - 15], y = w[i - 2];
            w[i] = w[i - 16] + (llm42__rotate(x, 7) ^ llm42__rotate(x, 18) ^ x >> 3) + w[i - 7] +
                   (llm42__rotate(y, 17) ^ llm42__rotate(y, 19) ^ y >> 10);
        }
        uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
        uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
        for (int i = 0; i < 64; i++) {
            const uint32_t t1 = h + (llm42__rotate(e, 6) ^ llm42__rotate(e, 11) ^ llm42__rotate(e, 25)) +
                                ((e & f) ^ (~e & g)) + llm42__sha256_k[i] + w[i];
            const uint32_t t2 = (llm42__rotate(a, 2) ^ llm42__rotate(a, 13) ^ llm42__rotate(a, 22)) +
                                ((a & b) ^ (a & c) ^ (b & c));
            h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
        }
        state[0] += a, state[1] += b, state[2] += c, state[3] += d;
        state[4] += e, state[5] += f, state[6] += g, state[7] += h;
    }
}

#if LLM42__SHA256_NATIVE
// The same by SHA instructions, which keep the state as the two vectors ABEF and CDGH and do two rounds each.
static inline void llm42__sha256_native(uint32_t state[8], const unsigned char *data, size_t blocks) {
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    const __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)state), 0xb1);
    const __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)(state + 4)), 0x1b);
    __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
    for (; blocks; blocks--, data += 64) {
        const __m128i was_abef = abef, was_cdgh = cdgh;
        __m128i w[4];
        for (int i = 0; i < 4; i++)
            w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(data + 16 * i)), big_endian);
        for (int i = 0; i < 16; i++) {  // four rounds
            const __m128i k = _mm_loadu_si128((const __m128i *)(const void *)(llm42__sha256_k + 4 * i));
            const __m128i wk = _mm_add_epi32(w[0], k);
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, wk);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(wk, 0x0e));
            const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(w[0], w[1]), _mm_alignr_epi8(w[3], w[2], 4));
            const __m128i next = _mm_sha256msg2_epu32(sum, w[3]);
            w[0] = w[1], w[1] = w[2], w[2] = w[3], w[3] = next;
        }
        abef = _mm_add_epi32(abef, was_abef);
        cdgh = _mm_add_epi32(cdgh, was_cdgh);
    }
    const __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)(void *)state, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128((__m128i *)(void *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}
#endif

static void llm42__sha256_blocks(uint32_t state[8], const unsigned char *data, size_t blocks) {
#if LLM42__SHA256_NATIVE
    llm42__sha256_native(state, data, blocks);
#else
    llm42__sha256_plain(state, data, blocks);
#endif
}

void llm42_sha256_begin(llm42_sha256 *s) {
    *s = (llm42_sha256){
        .state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void llm42_sha256_add(llm42_sha256 *s, const void *data, size_t size) {
    const unsigned char *at = data;
    const size_t used = (size_t)(s->bytes % 64);
    s->bytes += size;
    if (used) {
        const size_t n = size < 64 - used ? size : 64 - used;
        memcpy(s->block + used, at, n);
        at += n, size -= n;
        if (used + n < 64) return;
        llm42__sha256_blocks(s->state, s->block, 1);
    }
    llm42__sha256_blocks(s->state, at, size / 64);
    if (size % 64) memcpy(s->block, at + size / 64 * 64, size % 64);
}

static void llm42__sha256_digest(llm42_sha256 s, unsigned char digest[32]) {
    static const unsigned char padding[64] = {0x80};
    const uint64_t bits = s.bytes * 8;
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(bits >> (56 - 8 * i));
    llm42_sha256_add(&s, padding, 1 + (119 - s.bytes % 64) % 64);
    llm42_sha256_add(&s, length, sizeof length);
    for (int i = 0; i < 32; i++) digest[i] = (unsigned char)(s.state[i / 4] >> (24 - i % 4 * 8));
}

void llm42_sha256_end(llm42_sha256 s, char hex[LLM42_SHA256_TEXT]) {
    unsigned char digest[32];
    llm42__sha256_digest(s, digest);
    for (int i = 0; i < 32; i++) snprintf(hex + 2 * i, 3, "%02x", (unsigned)digest[i]);
}

// The list is walked three times: to count its parts, to note where they are, and, when any thread has hashed any part,
// to hash the list itself in its order. So neither hash depends on the number of threads.
typedef struct llm42__part {
    const unsigned char *data;
    size_t size;
    uint64_t weak;
    unsigned char digest[32];
} llm42__part;
typedef enum llm42__walk { LLM42__WALK_COUNT, LLM42__WALK_NOTE, LLM42__WALK_HASH } llm42__walk;
typedef struct llm42__hasher {
    bool is_weak;
    llm42__walk walk;
    llm42__part *part;
    int64_t parts;  // so far in this walk
    uint64_t weak;
    llm42_sha256 sha256;
} llm42__hasher;

enum { LLM42__HASHED_BYTES = 1 << 20, LLM42__HASHED_RECIPE = 16 };

static void llm42__hash_word(llm42__hasher *h, uint64_t word) {
    unsigned char bytes[8];
    if (h->walk != LLM42__WALK_HASH) return;
    if (h->is_weak) {
        h->weak = llm42_hash(h->weak ^ word);
        return;
    }
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(word >> 8 * i);
    llm42_sha256_add(&h->sha256, bytes, sizeof bytes);
}

static void llm42__hash_number(llm42__hasher *h, double number) {
    uint64_t word;
    memcpy(&word, &number, sizeof word);
    llm42__hash_word(h, word);
}

static uint64_t llm42__hash_weakly(const unsigned char *data, size_t size) {
    uint64_t h = 0, word;
    for (; size >= sizeof word; data += sizeof word, size -= sizeof word) {
        memcpy(&word, data, sizeof word);
        h = llm42_hash(h ^ word);
    }
    word = 0;
    memcpy(&word, data, size);
    return size ? llm42_hash(h ^ word) : h;
}

static void llm42__hash_part(llm42__part *p, bool is_weak) {
    llm42_sha256 s;
    if (is_weak) {
        p->weak = llm42__hash_weakly(p->data, p->size);
        return;
    }
    llm42_sha256_begin(&s);
    llm42_sha256_add(&s, "", 1);
    llm42_sha256_add(&s, p->data, p->size);
    llm42__sha256_digest(s, p->digest);
}

static void llm42__hash_vector(llm42__hasher *h, const float *data, int count);

static void llm42__hash_matrix(llm42__hasher *h, const llm42_matrix *m) {
    const bool recipe = m->recipe.scale != 0;
    const size_t element = m->type == LLM42_DTYPE_FP32 ? 4 : m->type == LLM42_DTYPE_E4M3 ? 1 : 2;
    const size_t bytes = (size_t)m->n * (size_t)m->k * element;
    if (m->type == LLM42_DTYPE_E4M3) {
        const int side = m->scaling == LLM42_SCALING_BLOCK ? 128 : 1;
        const int count = (m->n + side - 1) / side * (side > 1 ? (m->k + side - 1) / side : 1);
        llm42__hash_word(h, (uint64_t)m->scaling);
        llm42__hash_number(h, (double)m->input_scale);
        llm42__hash_vector(h, recipe ? NULL : m->scale, count);
    }
    llm42__hash_word(h, recipe ? LLM42__HASHED_RECIPE : m->data ? (uint64_t)m->type : 0);
    if (!recipe && !m->data) return;
    llm42__hash_word(h, (uint64_t)m->n);
    llm42__hash_word(h, (uint64_t)m->k);
    if (recipe) {
        llm42__hash_word(h, m->recipe.key);
        llm42__hash_number(h, (double)m->recipe.scale);
        llm42__hash_number(h, (double)m->recipe.lead);
        return;
    }
    for (size_t begin = 0; begin < bytes; begin += LLM42__HASHED_BYTES, h->parts++) {
        llm42__part *p = h->part ? &h->part[h->parts] : NULL;
        const size_t left = bytes - begin;
        if (h->walk == LLM42__WALK_NOTE)
            *p = (llm42__part){.data = (const unsigned char *)m->data + begin,
                               .size = left < LLM42__HASHED_BYTES ? left : LLM42__HASHED_BYTES};
        if (h->walk != LLM42__WALK_HASH) continue;
        if (h->is_weak) llm42__hash_word(h, p->weak);
        else llm42_sha256_add(&h->sha256, p->digest, sizeof p->digest);
    }
}

static void llm42__hash_vector(llm42__hasher *h, const float *data, int count) {
    llm42__hash_matrix(h, &(llm42_matrix){.data = data, .type = LLM42_DTYPE_FP32, .n = 1, .k = count});
}

static void llm42__hash_config(llm42__hasher *h, const llm42_config *c) {
    const int number[] = {(int)c->arch, c->vocab, c->dim,     c->layers,       c->heads,          c->kv_heads,
                          c->head_dim,  c->ffn,   c->experts, c->experts_used, c->experts_renorm, c->sliding_window};
    const double rope[] = {c->rope_factor, c->rope_low_freq_factor, c->rope_high_freq_factor, c->rope_original_context};
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) llm42__hash_word(h, (uint64_t)number[i]);
    llm42__hash_number(h, (double)c->norm_eps);
    llm42__hash_number(h, c->rope_theta);
    llm42__hash_word(h, 0);
    for (int i = 0; i < 4; i++) llm42__hash_number(h, rope[i]);
    // What most models do not have leaves their hashes as they were.
    const double kind = c->rope == LLM42_ROPE_LLAMA3 ? 0 : (double)c->rope;
    const double others[5] = {(double)c->embed_scale, (double)c->attention_scale, c->rope_scale, c->query_beta, kind};
    const int sizes[6] = {c->key_heads, c->value_heads, c->key_dim, c->value_dim, c->rotary_dim, c->shared_ffn};
    for (int i = 0; i < 11; i++) {
        const double value = i < 5 ? others[i] : sizes[i - 5];
        if (value != 0) llm42__hash_word(h, (uint64_t)i), llm42__hash_number(h, value);
    }
}

static void llm42__hash_layer(llm42__hasher *h, const llm42_config *c, const llm42_layer *l) {
    const llm42_matrix *matrix[] = {&l->q,      &l->k,           &l->v,   &l->o, &l->gate, &l->up,   &l->down,
                                    &l->router, &l->shared_gate, &l->qkv, &l->z, &l->beta, &l->alpha};
    llm42__hash_word(h, (uint64_t)l->sliding + 2 * (uint64_t)l->unrotated);
    llm42__hash_vector(h, l->attention_norm, c->dim);
    llm42__hash_vector(h, l->ffn_norm, c->dim);
    llm42__hash_vector(h, l->q_norm, c->head_dim);
    llm42__hash_vector(h, l->k_norm, c->head_dim);
    llm42__hash_vector(h, l->q_bias, c->heads * c->head_dim << c->gated);
    llm42__hash_vector(h, l->k_bias, c->kv_heads * c->head_dim);
    llm42__hash_vector(h, l->v_bias, c->kv_heads * c->head_dim);
    const float *const few[] = {l->o_bias, l->gate_bias,  l->up_bias,   l->down_bias,  // most models have none of these
                                l->decay,  l->alpha_bias, l->head_norm, l->taps};
    const int count[] = {c->dim,         c->ffn,         c->ffn,       c->dim,
                         c->value_heads, c->value_heads, c->value_dim, LLM42__TAPS * l->qkv.n};
    for (int i = 0; i < 8; i++)
        if (few[i]) llm42__hash_vector(h, few[i], count[i]);
    for (int i = 0; i < (l->recurrent ? 13 : c->shared_ffn ? 9 : 8); i++) llm42__hash_matrix(h, matrix[i]);
    for (int i = 0; l->expert && i < 3 * (c->experts + (c->shared_ffn > 0)); i++) llm42__hash_matrix(h, &l->expert[i]);
}

static void llm42__hash_walk(llm42__hasher *h, const llm42_model *m, llm42__walk walk) {
    h->walk = walk;
    h->parts = 0;
    llm42__hash_config(h, &m->config);
    llm42__hash_matrix(h, &m->embed);
    llm42__hash_matrix(h, &m->head);
    llm42__hash_vector(h, m->final_norm, m->config.dim);
    for (int i = 0; i < m->config.layers; i++) llm42__hash_layer(h, &m->config, &m->layer[i]);
}

static llm42_result llm42__hash_model(llm42__hasher *h, const llm42_model *m, llm42_error *error) {
    if (!m->layer)
        return llm42_fail(error, LLM42_INVALID, "model %s: it is a shape without weights: it has no hash", m->name);
    llm42__hash_walk(h, m, LLM42__WALK_COUNT);
    const int64_t parts = h->parts;
    h->part = llm42__alloc((size_t)parts + 1, sizeof *h->part);
    if (!h->part) return llm42_fail(error, LLM42_MEMORY, "model %s: its hash: out of memory", m->name);
    llm42__hash_walk(h, m, LLM42__WALK_NOTE);
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic)
#endif
    for (int64_t i = 0; i < parts; i++) llm42__hash_part(&h->part[i], h->is_weak);
    llm42__hash_walk(h, m, LLM42__WALK_HASH);
    llm42__free(h->part);
    return LLM42_OK;
}

llm42_result llm42_model_sha256(const llm42_model *m, char hex[LLM42_SHA256_TEXT], llm42_error *error) {
    llm42__hasher h = {.is_weak = false};
    if (!m || !hex) return llm42_fail(error, LLM42_INVALID, "llm42_model_sha256: an argument is NULL");
    llm42_sha256_begin(&h.sha256);
    llm42_sha256_add(&h.sha256, "\1", 1);
    const llm42_result result = llm42__hash_model(&h, m, error);
    if (result == LLM42_OK) llm42_sha256_end(h.sha256, hex);
    return result;
}

llm42_result llm42_model_hash(const llm42_model *m, uint64_t *hash, llm42_error *error) {
    llm42__hasher h = {.is_weak = true};
    if (!m || !hash) return llm42_fail(error, LLM42_INVALID, "llm42_model_hash: an argument is NULL");
    const llm42_result result = llm42__hash_model(&h, m, error);
    if (result == LLM42_OK) *hash = h.weak;
    return result;
}

#endif  // LLM42_SHA256_IMPLEMENTATION
