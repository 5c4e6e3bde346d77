// Fuzz target of the loaders: broken model and tokenizer files are refused with an error of one line, or work. An input
// is one byte for the kind of file (see kinds), one byte for the model's shape, then the file. Kinds go round: their
// second and later rounds load the same with every second, third and so on allocation failing. What loads is also run:
// one deterministic request, or one text through the tokenizer and back.
#include "fuzz.h"
#include "make_model.h"

#define LLM42_IMPLEMENTATION
#include "llm42.h"
#include "examples/util/tokenizer.h"

enum {
    CONFIG,       // config.json beside valid weights
    SAFETENSORS,  // a whole model.safetensors beside a valid config
    HEADER,       // the JSON of its header; length and data are made to fit
    INDEX,        // model.safetensors.index.json beside two valid shards
    TOKENIZER,    // tokenizer.json
    LLAMA2C_TOKENIZER,
    KINDS,
};

// clang-format off
static const char *const fuzz_words[] = {
    "{", "}", "[", "]", ":", ",", "\"", "\\", "\\u0000", "null", "true", "false", "[[[[[[[[", "{\"a\":{\"a\":",
    "\"dtype\"", "\"shape\"", "\"data_offsets\"", "\"BF16\"", "\"F16\"", "\"F32\"", "\"I64\"", "__metadata__",
    "[0,0]", "\"model_type\"", "\"llama\"", "\"mistral\"", "\"qwen2\"", "\"qwen3\"", "\"qwen3_moe\"",
    "\"rope_scaling\"", "\"rope_parameters\"", "\"head_dim\"", "\"num_key_value_heads\"", "\"sliding_window\"",
    "\"use_sliding_window\"", "\"max_window_layers\"", "\"layer_types\"", "\"full_attention\"",
    "\"sliding_attention\"", "\"eos_token_id\"", "model.norm.weight", "lm_head.weight",
    "model-00001-of-00002.safetensors", "weight_map", "../", "\"merges\"", "\"vocab\"", "\"added_tokens\"",
    "\"Regex\"", "(?:", ")*", "\\\\p{L}", "\"NFC\"", "\"Prepend\"", "\"Replace\"", "\"Metaspace\"",
    "\"MergedWithNext\"", "\"ByteFallback\"", "\"unk_token\": \"the\"", "\"normalized\": true",
    "\"single_word\": true", "\xc4\xa0", "\xff", NULL};
// clang-format on

static int64_t models, tokenizers;  // that loaded

static void folder_of(char path[128], int kind, int shape) {
    snprintf(path, 128, "%s/%d-%d", test_scratch(), kind, shape);
}

static void set_up(void) {
    char path[128];
    if (test_own_folder[0]) return;
    for (int shape = 0; shape < TEST_SHAPES; shape++)
        for (int kind = CONFIG; kind <= INDEX; kind++) {
            folder_of(path, kind, shape);
            if (kind == INDEX) test_shards(path, &test_shapes[shape]);
            else test_model_folder(path, &test_shapes[shape]);
        }
}

static void run_model(const llm42_model *model, bool deterministic) {
    llm42_engine *engine = NULL;
    llm42_error error = {0};
    int32_t prompt[3] = {0, model->config.vocab - 1, model->config.vocab / 2};
    llm42_engine_desc desc = TEST_LIST(.model = model, .backend_desc = TEST_THREADS(1), .max_context = 8,
                                       .max_running = 2, .token_budget = 4, .kv.page_size = 4, .kv.pages = 4,
                                       .policy.window = 2, .policy.group = 2);
    llm42_request_desc request = {
        .prompt = prompt, .prompt_count = 3, .max_new_tokens = 3, .deterministic = deterministic};
    int64_t id = 0;
    if (model->config.context < 8) desc.max_context = 0;
    llm42_result result = llm42_engine_open(&engine, &desc, &error);
    if (result != LLM42_OK && fuzz_one_line(result, &error)) return;
    result = llm42_engine_submit(engine, &request, &id, &error);
    if (result == LLM42_OK) result = llm42_engine_run(engine, &error);
    if (result != LLM42_OK) {
        fuzz_one_line(result, &error);
    } else {
        const llm42_request *r = llm42_engine_request(engine, id);
        bool overflown = r && r->finish == LLM42_FINISH_ERROR;  // or the weights hold NaN
        FUZZ_CHECK(r && r->committed >= !overflown && r->committed <= 3, "tokens committed");
        for (int i = 0; i < r->committed; i++)
            FUZZ_CHECK(r->tokens[i] >= 0 && r->tokens[i] < model->config.vocab, "token %d", (int)r->tokens[i]);
    }
    llm42_engine_close(engine);
}

static void load_model(const char *path, bool deterministic, unsigned starve) {
    llm42_model *model = NULL;
    llm42_error error = {0};
    fuzz_starve(starve);
    const llm42_result result = llm42_model_load(&model, &(llm42_model_desc){.path = path}, &error);
    if (!fuzz_is_loaded(result, model, &error)) return;
    models++;
    run_model(model, deterministic);
    llm42_model_free(model);
}

static void load_tokenizer(const char *path) {
    static const char sample[] =
        "The then, in 1234 \t\n\nhouses; <|end_of_text|> don't e\xCC\x81 \xE2\x82 \xE2\x96\x81the";
    tok *t = NULL;
    llm42_error error = {0};
    llm42_result result = tok_load(&t, path, 0, &error);
    if (!fuzz_is_loaded(result, t, &error)) return;
    tokenizers++;
    int32_t *ids = NULL;
    char *text = NULL;
    result = tok_encode(t, sample, sizeof sample - 1, true, &ids, &error);
    if (result == LLM42_OK) tok_decode(t, ids, (int)arrlen(ids), &text);
    else fuzz_one_line(result, &error);
    for (int i = 0; i < (int)arrlen(ids); i++) FUZZ_CHECK(ids[i] >= 0 && ids[i] < t->count, "id %d", (int)ids[i]);
    tok_stream stream = {.t = t, .skip_special = true};  // any tokens: what is shown is UTF-8
    for (int i = 0; i <= t->count && i < 600; i++) {
        const tok_text part = i < t->count ? tok_stream_next(&stream, (i * 7919) % t->count) : tok_stream_end(&stream);
        for (size_t at = 0; at < part.size;) {
            const int bytes = tok_utf8(part.data + at, part.size - at);
            FUZZ_CHECK(bytes > 0, "byte %zu of token %d's text", at, i);
            at += (size_t)bytes;
        }
    }
    tok_stream_free(&stream);
    arrfree(ids);
    arrfree(text);
    tok_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[] = {"config.json",       "model.safetensors",
                                        "model.safetensors", "model.safetensors.index.json",
                                        "tokenizer.json",    "tokenizer.bin"};
    if (size < 2) return 0;
    set_up();
    int kind = data[0] % KINDS, shape = data[1] % TEST_SHAPES;
    unsigned round = data[0] / KINDS;
    char dir[128], path[192];
    folder_of(dir, kind, shape);
    if (kind > INDEX) snprintf(dir, sizeof dir, "%s", test_scratch());
    snprintf(path, sizeof path, "%s/%s", dir, names[kind]);
    data += 2;
    size -= 2;
    if (kind == HEADER) {
        size_t bytes;
        uint64_t length = size;
        test_text file = {0}, valid = test_header(&test_shapes[shape], &bytes);
        test_append(&file, &length, 8);
        test_append(&file, data, size);
        test_weights(&file, test_shapes[shape].dtype, bytes);
        test_write(path, file.data, file.size);
        TEST_TEXTS_FREE(&valid, &file);
    } else {
        test_write(path, data, size);
    }
    if (kind >= TOKENIZER) load_tokenizer(path);
    else load_model(dir, size % 2 == 0, round ? round + 1 : 0);
    return 0;
}

// tokenizer.bin of llama2.c: the longest token's size, then score, size and bytes of each.
static test_text llama2c_tokenizer(void) {
    static const char *const more[] = {"<unk>", "\n<s>\n", "\n</s>\n"}, *const pieces[] = {" ", "t",  "h",
                                                                                           "e", "th", "the"};
    test_text text = {0};
    int32_t longest = 7;
    test_append(&text, &longest, 4);
    for (int id = 0; id < 3 + 256 + 6; id++) {
        char byte[16];
        snprintf(byte, sizeof byte, "<0x%02X>", (unsigned)(id - 3) & 255);
        const char *piece = id < 3 ? more[id] : id < 259 ? byte : pieces[id - 259];
        float score = id < 259 ? 0 : (float)-id;
        int32_t length = (int32_t)strlen(piece);
        test_append(&text, &score, 4);
        test_append(&text, &length, 4);
        test_append(&text, piece, strlen(piece));
    }
    return text;
}

// tokenizer.json as sentencepiece makes it.
static test_text characters(void) {
    static const char begin[] =
        "{'added_tokens': [{'id': 1, 'content': '<|end_of_text|>', 'special': true, 'lstrip': true}, {'id': 2, "
        "'content': 'in', 'normalized': true, 'single_word': true}], 'normalizer': {'type': 'Sequence', 'normalizers': "
        "[{'type': 'NFC'}, {'type': 'Prepend', 'prepend': '_'}, {'type': 'Replace', 'pattern': {'String': ' '}, "
        "'content': '_'}]}, 'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [{'type': 'Metaspace', "
        "'replacement': "
        "'_', 'prepend_scheme': 'first'}, {'type': 'Split', 'pattern': {'String': 'ou'}, 'behavior': "
        "'MergedWithPrevious'}]}, 'decoder': {'type': 'Sequence', 'decoders': [{'type': 'Replace', 'pattern': "
        "{'String': "
        "'_'}, 'content': ' '}, {'type': 'ByteFallback'}, {'type': 'Fuse'}, {'type': 'Strip', 'content': ' ', 'start': "
        "1, "
        "'stop': 0}]}, 'model': {'type': 'BPE', 'byte_fallback': true, 'fuse_unk': true, 'unk_token': '<unk>', "
        "'merges': "
        "[['t', 'h'], ['th', 'e'], '_ the'], 'vocab': {'<unk>': 0, '<|end_of_text|>': 1, 'in': 2, 't': 3, 'h': 4, "
        "'th': 5, "
        "'e': 6, 'the': 7, '_': 8, '_the': 9, 'i': 10, 'n': 11";
    test_text text = {0};
    test_append(&text, begin, sizeof begin - 1);
    for (int b = 0; b < 200; b++) test_print(&text, ", '<0x%02X>': %d", (unsigned)b, 12 + b);
    test_append(&text, "}}}", 3);
    for (size_t i = 0; i < text.size; i++)
        if (text.data[i] == '\'') text.data[i] = '"';
    return text;
}

// Valid inputs: each kind for each shape that matters to it, then models of the first shape while memory is short.
static inline size_t fuzz_seed(int index, uint8_t *out, size_t room) {
    static const int rounds[] = {1, 2, 4, 8, 16, 32};
    int kind = index % KINDS, shape = index / KINDS, round = 0;
    if (shape >= TEST_SHAPES) {
        index -= KINDS * TEST_SHAPES;
        if (index >= TOKENIZER * (int)(sizeof rounds / sizeof *rounds)) return 0;
        kind = index % TOKENIZER, shape = 0, round = rounds[index / TOKENIZER];
    }
    const test_shape *s = &test_shapes[shape];
    size_t bytes, used = 2;
    test_text text = {0}, header = test_header(s, &bytes);
    char *index_file = NULL;
    set_up();
    if (kind == CONFIG) text = test_config(s);
    if (kind == SAFETENSORS) text = test_safetensors(header.data, s->dtype, bytes);
    if (kind == HEADER) test_append(&text, header.data, header.size);
    if (kind == INDEX) {
        test_shards(test_file("seed"), s);
        index_file = test_read(test_file("seed/model.safetensors.index.json"), &bytes);
        test_append(&text, index_file, bytes);
        free(index_file);
    }
    if (kind == TOKENIZER) text = shape % 2 ? characters() : test_tokenizer();
    if (kind == LLAMA2C_TOKENIZER) text = llama2c_tokenizer();
    out[0] = (uint8_t)(kind + round * KINDS);
    out[1] = (uint8_t)shape;
    if (text.size + used <= room) memcpy(out + used, text.data, text.size), used += text.size;
    TEST_TEXTS_FREE(&text, &header);
    return used;
}

static inline void fuzz_report(void) {
    printf("  %lld models and %lld tokenizers loaded, %lld loads ran out of memory\n", (long long)models,
           (long long)tokenizers, (long long)fuzz_out_of_memory);
}

FUZZ_MAIN("fuzz_load");
