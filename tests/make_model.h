// make_model.h: writes tiny but valid model folders and files by code, for the tests that then break them.
// Include "test.h" first. Text goes through test_text, which grows; all of it is freed by the caller.
#ifndef LLM42_MAKE_MODEL_H
#define LLM42_MAKE_MODEL_H

#include "test.h"

typedef struct test_text {
    char *data;  // a 0 byte stands behind the last one
    size_t size, room;
} test_text;

static inline void test_append(test_text *text, const void *data, size_t size) {
    if (text->size + size + 1 > text->room) {
        text->room = 2 * (text->size + size) + 256;
        text->data = realloc(text->data, text->room);
        assert(text->data);
    }
    if (size) memcpy(text->data + text->size, data, size);
    text->size += size;
    text->data[text->size] = 0;
}

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static inline void
test_print(test_text *text, const char *format, ...) {
    char line[2048];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    assert(n >= 0 && n < (int)sizeof line);
    test_append(text, line, (size_t)n);
}

static inline void test_text_free(test_text *text) {
    free(text->data);
    memset(text, 0, sizeof *text);
}

// TEST_TEXTS_FREE(a, b): these texts.
#define TEST_TEXTS_FREE(...) \
    test_texts_free((test_text *const[]){__VA_ARGS__}, (int)(sizeof(test_text *const[]){__VA_ARGS__} / sizeof(void *)))
static inline void test_texts_free(test_text *const *texts, int count) {
    for (int i = 0; i < count; i++) test_text_free(texts[i]);
}

// A copy of text with the first `from` replaced by `to`; `from` must be there.
static inline test_text test_replace(const char *text, const char *from, const char *to) {
    const char *at = strstr(text, from);
    test_text out = {0};
    if (!at) fprintf(stderr, "test_replace: no '%s' in '%.200s'\n", from, text);
    assert(at);
    test_append(&out, text, (size_t)(at - text));
    test_append(&out, to, strlen(to));
    test_append(&out, at + strlen(from), strlen(at + strlen(from)));
    return out;
}

typedef struct test_shape {
    const char *type;  // model_type
    int vocab, dim, layers, heads, kv_heads, head_dim, ffn, experts;
    bool tied;
    const char *dtype;  // BF16, F16 or F32
    const char *extra;  // further entries of config.json, each with a comma behind it
    int context;        // 0: 64
} test_shape;

static const test_shape test_shapes[] = {
    {"llama", 32, 16, 1, 2, 1, 8, 24, 0, true, "BF16", "\"rope_theta\": 10000.0, ", 0},
    {"llama", 32, 16, 1, 2, 2, 8, 24, 0, false, "F32",
     "\"rope_parameters\": {\"rope_type\": \"llama3\", \"rope_theta\": 500000.0, \"factor\": 8.0, "
     "\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 16}, ",
     0},
    {"mistral", 32, 16, 1, 2, 1, 8, 24, 0, false, "F16", "\"sliding_window\": 4, ", 0},
    {"qwen2", 32, 16, 1, 2, 1, 8, 24, 0, true, "BF16", "\"use_sliding_window\": false, ", 0},
    {"qwen3", 32, 16, 1, 2, 1, 16, 24, 0, true, "BF16", "\"rope_parameters\": {\"rope_theta\": 1000000.0}, ", 0},
    {"qwen3_moe", 32, 16, 1, 2, 1, 8, 24, 4, false, "BF16",
     "\"moe_intermediate_size\": 24, \"num_experts\": 4, \"num_experts_per_tok\": 2, \"norm_topk_prob\": true, ", 0},
};
// Its recurrent layers have as many key heads as there are KV heads, value heads as heads, and heads of the same size.
// clang-format off
static const test_shape test_hybrid = {
    "qwen3_5_text", 32, 16, 4, 2, 1, 8, 24, 0, true, "BF16",
    "\"rope_theta\": 10000.0, \"partial_rotary_factor\": 0.5, \"full_attention_interval\": 2, "
    "\"linear_num_key_heads\": 1, \"linear_num_value_heads\": 2, \"linear_key_head_dim\": 8, "
    "\"linear_value_head_dim\": 8, \"linear_conv_kernel_dim\": 4, ",
    0};
// clang-format on
enum { TEST_SHAPES = sizeof test_shapes / sizeof test_shapes[0] };

static inline test_text test_config(const test_shape *s) {
    test_text text = {0};
    test_print(&text, "{\"model_type\": \"%s\", \"vocab_size\": %d, \"hidden_size\": %d, ", s->type, s->vocab, s->dim);
    test_print(&text, "\"num_hidden_layers\": %d, \"num_attention_heads\": %d, ", s->layers, s->heads);
    test_print(&text, "\"num_key_value_heads\": %d, \"head_dim\": %d, ", s->kv_heads, s->head_dim);
    test_print(&text, "\"intermediate_size\": %d, \"max_position_embeddings\": %d, ", s->ffn,
               s->context ? s->context : 64);
    test_print(&text, "%s", s->extra);
    test_print(&text, "\"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-05, \"bos_token_id\": 0, ");
    test_print(&text, "\"eos_token_id\": [1, 2], \"tie_word_embeddings\": %s}", s->tied ? "true" : "false");
    return text;
}

// Appends a tensor `prefix`.`name` (prefix NULL: `name`) behind those that are there. columns 0: a vector.
static inline void test_tensor(test_text *header, const test_shape *s, size_t *offset, int rows, int columns,
                               const char *prefix, const char *name) {
    size_t element = strcmp(s->dtype, "F32") == 0 ? 4 : 2, count = (size_t)rows * (size_t)(columns ? columns : 1);
    test_print(header, "%s\"%s%s%s\":{\"dtype\":\"%s\",\"shape\":[%d", header->size > 1 ? "," : "",
               prefix ? prefix : "", prefix ? "." : "", name, s->dtype, rows);
    if (columns) test_print(header, ",%d", columns);
    test_print(header, "],\"data_offsets\":[%zu,%zu]}", *offset, *offset + count * element);
    *offset += count * element;
}

static inline void test_mlp(test_text *header, const test_shape *s, size_t *offset, const char *prefix) {
    test_tensor(header, s, offset, s->ffn, s->dim, prefix, "gate_proj.weight");
    test_tensor(header, s, offset, s->ffn, s->dim, prefix, "up_proj.weight");
    test_tensor(header, s, offset, s->dim, s->ffn, prefix, "down_proj.weight");
}

static inline void test_layer(test_text *header, const test_shape *s, size_t *offset, int layer) {
    const bool hybrid = !strcmp(s->type, "qwen3_5_text"), recurrent = hybrid && layer % 2 == 0;
    int q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    char at[64], name[192];
    snprintf(at, sizeof at, "model.layers.%d", layer);
#define TEST_TENSOR(suffix, rows, columns) test_tensor(header, s, offset, rows, columns, at, suffix)
    TEST_TENSOR("input_layernorm.weight", s->dim, 0);
    TEST_TENSOR("post_attention_layernorm.weight", s->dim, 0);
    if (recurrent) {
        TEST_TENSOR("linear_attn.A_log", s->heads, 0);
        TEST_TENSOR("linear_attn.dt_bias", s->heads, 0);
        TEST_TENSOR("linear_attn.norm.weight", s->head_dim, 0);
        TEST_TENSOR("linear_attn.conv1d.weight", 2 * kv + q, 4);
        TEST_TENSOR("linear_attn.out_proj.weight", s->dim, q);
        TEST_TENSOR("linear_attn.in_proj_qkv.weight", 2 * kv + q, s->dim);
        TEST_TENSOR("linear_attn.in_proj_z.weight", q, s->dim);
        TEST_TENSOR("linear_attn.in_proj_b.weight", s->heads, s->dim);
        TEST_TENSOR("linear_attn.in_proj_a.weight", s->heads, s->dim);
    } else {
        TEST_TENSOR("self_attn.q_proj.weight", q << hybrid, s->dim);
        TEST_TENSOR("self_attn.k_proj.weight", kv, s->dim);
        TEST_TENSOR("self_attn.v_proj.weight", kv, s->dim);
        TEST_TENSOR("self_attn.o_proj.weight", s->dim, q);
    }
    if (strcmp(s->type, "qwen2") == 0) {
        TEST_TENSOR("self_attn.q_proj.bias", q, 0);
        TEST_TENSOR("self_attn.k_proj.bias", kv, 0);
        TEST_TENSOR("self_attn.v_proj.bias", kv, 0);
    }
    if (strncmp(s->type, "qwen3", 5) == 0 && !recurrent) {
        TEST_TENSOR("self_attn.q_norm.weight", s->head_dim, 0);
        TEST_TENSOR("self_attn.k_norm.weight", s->head_dim, 0);
    }
    if (s->experts) TEST_TENSOR("mlp.gate.weight", s->experts, s->dim);
#undef TEST_TENSOR
    for (int e = 0; e < s->experts; e++) {
        snprintf(name, sizeof name, "%s.mlp.experts.%d", at, e);
        test_mlp(header, s, offset, name);
    }
    snprintf(name, sizeof name, "%s.mlp", at);
    if (!s->experts) test_mlp(header, s, offset, name);
}

// The JSON header of a safetensors file; *bytes, the size of the data that it describes.
static inline test_text test_header(const test_shape *s, size_t *bytes) {
    test_text header = {0};
    *bytes = 0;
    test_print(&header, "{");
    test_tensor(&header, s, bytes, s->vocab, s->dim, NULL, "model.embed_tokens.weight");
    for (int layer = 0; layer < s->layers; layer++) test_layer(&header, s, bytes, layer);
    test_tensor(&header, s, bytes, s->dim, 0, NULL, "model.norm.weight");
    if (!s->tied) test_tensor(&header, s, bytes, s->vocab, s->dim, NULL, "lm_head.weight");
    test_print(&header, "}");
    return header;
}

// Arbitrary weights between -0.5 and 0.5, the same each time.
static inline void test_weights(test_text *out, const char *dtype, size_t bytes) {
    uint64_t state = 42;
    size_t element = strcmp(dtype, "F32") == 0 ? 4 : 2;
    for (size_t i = 0; i < bytes / element; i++) {
        float value = (float)test_random_int(&state, -128, 128) / 256;
        uint32_t bits;
        memcpy(&bits, &value, 4);
        uint16_t half = (uint16_t)(bits >> 16);
        // Multiples of 1/256 below 1 are exact in fp16 as well: the exponent moves and the mantissa loses zeros.
        if (strcmp(dtype, "F16") == 0)
            half = (uint16_t)(value == 0
                                  ? 0
                                  : (bits >> 16 & 0x8000) | (((bits >> 23 & 255) - 112) << 10) | (bits >> 13 & 1023));
        test_append(out, element == 4 ? (void *)&bits : (void *)&half, element);
    }
}

// A whole safetensors file of a header and `bytes` of weights.
static inline test_text test_safetensors(const char *header, const char *dtype, size_t bytes) {
    test_text out = {0};
    uint64_t length = strlen(header);
    test_append(&out, &length, 8);
    test_append(&out, header, strlen(header));
    test_weights(&out, dtype, bytes);
    return out;
}

// Writes dir/config.json and dir/model.safetensors; makes dir.
static inline void test_model_folder(const char *dir, const test_shape *s) {
    size_t bytes;
    test_text config = test_config(s), header = test_header(s, &bytes);
    test_text file = test_safetensors(header.data, s->dtype, bytes);
    if (!test_exists(dir) && mkdir(dir, 0777) != 0) perror(dir);
    test_write(test_path(dir, "config.json"), config.data, config.size);
    test_write(test_path(dir, "model.safetensors"), file.data, file.size);
    TEST_TEXTS_FREE(&config, &header, &file);
}

// A model of this shape, which must load. Its files are gone.
static inline llm42_model *test_model(const test_shape *s) {
    char folder[64];
    test_folder(folder);
    test_model_folder(folder, s);
    llm42_model *model = test_load(folder);
    test_remove(folder);
    return model;
}

// Two shards and their index; the second shard holds only the last norm (and the head).
static inline void test_shards(const char *dir, const test_shape *s) {
    size_t bytes, second = 0;
    test_text config = test_config(s), header = test_header(s, &bytes), index = {0}, rest = {0};
    char *tail = strstr(header.data, ",\"model.norm.weight\"");
    size_t element = strcmp(s->dtype, "F32") == 0 ? 4 : 2;
    assert(tail);
    test_print(&rest, "{");
    test_tensor(&rest, s, &second, s->dim, 0, NULL, "model.norm.weight");
    if (!s->tied) test_tensor(&rest, s, &second, s->vocab, s->dim, NULL, "lm_head.weight");
    test_print(&rest, "}");
    bytes -= (size_t)s->dim * element + (s->tied ? 0 : (size_t)s->vocab * (size_t)s->dim * element);
    strcpy(tail, "}");
    test_print(&index, "{\"metadata\": {\"total_size\": %zu}, \"weight_map\": {", bytes + second);
    // The names are what stands between a quote and `":{`.
    for (char *p = header.data; (p = strstr(p, "\":{")) != NULL; p += 3) {
        char *name = p;
        while (name[-1] != '"') name--;
        test_print(&index, "\"%.*s\": \"model-00001-of-00002.safetensors\", ", (int)(p - name), name);
    }
    if (!s->tied) test_print(&index, "\"lm_head.weight\": \"model-00002-of-00002.safetensors\", ");
    test_print(&index, "\"model.norm.weight\": \"model-00002-of-00002.safetensors\"}}");
    test_text first_file = test_safetensors(header.data, s->dtype, bytes);
    test_text second_file = test_safetensors(rest.data, s->dtype, second);
    if (!test_exists(dir) && mkdir(dir, 0777) != 0) perror(dir);
    test_write(test_path(dir, "config.json"), config.data, config.size);
    test_write(test_path(dir, "model-00001-of-00002.safetensors"), first_file.data, first_file.size);
    test_write(test_path(dir, "model-00002-of-00002.safetensors"), second_file.data, second_file.size);
    test_write(test_path(dir, "model.safetensors.index.json"), index.data, index.size);
    TEST_TEXTS_FREE(&config, &header, &index, &rest, &first_file, &second_file);
}

// tokenizer.json of a byte-level BPE: 2 special tokens, the 256 bytes and a few merges.
static inline test_text test_tokenizer(void) {
    static const char *const merges[] = {"t h", "th e", "Ġ the", "o u", "i n"};
    test_text text = {0};
    int id = 2, other = 0;
    test_print(&text, "{\"version\": \"1.0\", \"added_tokens\": [{\"id\": 0, \"content\": \"<|begin_of_text|>\", "
                      "\"special\": true}, {\"id\": 1, \"content\": \"<|end_of_text|>\", \"special\": true}], "
                      "\"normalizer\": null, \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [");
    test_print(&text,
               "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"\\\\s?\\\\p{L}+|\\\\p{N}{1,3}|\\\\s+|[^\\\\s]\"}, "
               "\"behavior\": \"Isolated\", \"invert\": false}, {\"type\": \"ByteLevel\", "
               "\"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": false}]}, ");
    test_print(&text,
               "\"post_processor\": null, \"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", "
               "\"byte_fallback\": false, \"ignore_merges\": false, \"vocab\": {\"<|begin_of_text|>\": 0, "
               "\"<|end_of_text|>\": 1");
    for (int byte = 0; byte < 256; byte++) {
        bool shown = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
        int code = shown ? byte : 256 + other++;  // bytes without a printed form move to U+0100 and up
        if (code == '"' || code == '\\') test_print(&text, ", \"\\%c\": %d", code, id++);
        else if (code < 128) test_print(&text, ", \"%c\": %d", code, id++);
        else test_print(&text, ", \"%c%c\": %d", 0xc0 | code >> 6, 0x80 | (code & 63), id++);
    }
    for (int i = 0; i < 5; i++) {
        const char *space = strchr(merges[i], ' ');
        test_print(&text, ", \"%.*s%s\": %d", (int)(space - merges[i]), merges[i], space + 1, id++);
    }
    test_print(&text, "}, \"merges\": [");
    for (int i = 0; i < 5; i++) test_print(&text, "%s\"%s\"", i ? ", " : "", merges[i]);
    test_print(&text, "]}}");
    return text;
}

#endif  // LLM42_MAKE_MODEL_H
