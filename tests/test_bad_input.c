// Everything a user can get wrong, by name: a clear error with the right code that names the file or field, nothing
// crashes, and an engine that runs meanwhile goes on to the same tokens.
#define TEST_ALL
#include "make_model.h"

#define LLM42_CALIBRATION_IMPLEMENTATION
#include "examples/util/llm42_synthetic.h"
#include "examples/util/llm42_policies.h"
#include "examples/util/llm42_calibration.h"

#ifdef _OPENMP
#include <omp.h>
#endif
#define LLM42_TRACE_IMPLEMENTATION
#include "examples/util/llm42_trace.h"
#define LLM42_TRANSCRIPT_IMPLEMENTATION
#include "examples/util/llm42_transcript.h"

enum { PROMPT = 7, NEW = 400 };

static llm42_model *model;  // synthetic:tiny, of the engine that must not be harmed
static llm42_engine *engine;
static int64_t bystander;         // its request
static int32_t undisturbed[NEW];  // the tokens that it must come to

static const int32_t prompt[PROMPT] = {5, 17, 3, 99, 4, 250, 8};

static llm42_engine *open_engine(void) {
    llm42_engine_desc desc = TEST_LIST(.model = model, .backend_desc = TEST_THREADS(1), .max_context = 512,
                                       .max_running = 4, .kv.page_size = 16, .kv.pages = 40, .policy.window = 4,
                                       .policy.group = 2, .experiment.inject_rate = 0.2);
    return test_open(&desc);
}

static int64_t submit_bystander(llm42_engine *e) {
    llm42_request_desc desc = {
        .prompt = prompt, .prompt_count = PROMPT, .max_new_tokens = NEW, .deterministic = true, .ignore_stop = true};
    return test_submit(e, desc);
}

// The engine still takes steps while the bad input comes in.
static void alive(void) {
    llm42_error error = {0};
    llm42_result result = llm42_engine_step(engine, &error);
    CHECK_MSG(result >= LLM42_OK, "the running engine: %s", error.text);
}

static bool one_line(const char *text) {
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p < ' ') return false;
    return *text != 0;
}

static void check_error(llm42_result got, const llm42_error *error, llm42_result want, const char *part) {
    CHECK_MSG(got == want, "result is %s, expected %s: %s", llm42_result_name(got), llm42_result_name(want),
              error->text);
    CHECK_INT(error->result, got);
    CHECK_CONTAINS(error->text, part);
    CHECK_MSG(one_line(error->text), "'%s' is not one printable line", error->text);
    alive();
}

// Loading path must fail so; the file or field stands in the message.
static void refused(const char *path, llm42_result want, const char *part) {
    llm42_model *got = (llm42_model *)(uintptr_t)1;
    llm42_error error = {0};
    llm42_model_desc desc = {.path = path};
    llm42_result result = llm42_model_load(&got, &desc, &error);
    check_error(result, &error, want, part);
    CHECK(got == NULL);
    if (result == LLM42_OK) llm42_model_free(got);
    CHECK_INT(llm42_model_load(&got, &desc, NULL), result);  // the error is optional
    if (result == LLM42_OK) llm42_model_free(got);
}

// A valid test_scratch(), to be broken.
static const char *fresh(const test_shape *shape) {
    static char dir[80];
    snprintf(dir, sizeof dir, "%s/m", test_scratch());
    test_remove(dir);
    test_model_folder(dir, shape);
    return dir;
}

// A valid folder in which one file has this content instead.
static const char *fresh_but(const char *name, const void *data, size_t size) {
    const char *dir = fresh(&test_shapes[0]);
    test_write(test_path(dir, name), data, size);
    return dir;
}

// config.json of a valid folder with one replacement.
static void bad_config(const test_shape *shape, const char *from, const char *to, llm42_result want, const char *part) {
    const char *dir = fresh(shape);
    test_text config = test_config(shape), broken = test_replace(config.data, from, to);
    test_write(test_path(dir, "config.json"), broken.data, broken.size);
    refused(dir, want, part);
    TEST_TEXTS_FREE(&config, &broken);
}

// The header of model.safetensors with one replacement; the data stays as it was.
static void bad_header(const test_shape *shape, const char *from, const char *to, llm42_result want, const char *part) {
    const char *dir = fresh(shape);
    size_t bytes;
    test_text header = test_header(shape, &bytes), broken = test_replace(header.data, from, to);
    test_text file = test_safetensors(broken.data, shape->dtype, bytes);
    test_write(test_path(dir, "model.safetensors"), file.data, file.size);
    refused(dir, want, part);
    TEST_TEXTS_FREE(&header, &broken, &file);
}

// A valid folder of three layers with further entries in config.json.
static const char *fresh_with(const char *type, const char *extra) {
    bool mixture = !strcmp(type, "qwen3_moe");
    test_shape shape = test_shapes[mixture ? 5 : 0];
    char entries[512];
    snprintf(entries, sizeof entries, "%s%s", extra, mixture ? shape.extra : "");
    shape.type = type, shape.layers = 3, shape.extra = entries;
    return fresh(&shape);
}

// The cases of tests/cases/bad_input.tsv that have the name of the test that runs.
static void bad_cases(void) {
    for (char **c; (c = test_case("bad_input", test_state.name)) != NULL;) {
        const llm42_result want = test_result(c[4]);
        const test_shape *shape = &test_shapes[atoi(c[1])];
        if (!strcmp(c[0], "path")) refused(c[1], want, c[5]);
        else if (!strcmp(c[0], "header")) bad_header(shape, c[2], c[3], want, c[5]);
        else if (!strcmp(c[0], "config")) bad_config(shape, c[2], c[3], want, c[5]);
        else refused(fresh_with(c[1], c[2]), want, c[5]), refused(test_file("m"), want, "config.json");
    }
}

static const test_shape *const llama = &test_shapes[0];

TEST(valid_models_load) {
    for (int i = 0; i < TEST_SHAPES; i++) {
        const char *dir = fresh(&test_shapes[i]);
        for (int sharded = 0; sharded < 2; sharded++) {
            if (sharded) test_remove(test_path(dir, "model.safetensors")), test_shards(dir, &test_shapes[i]);
            llm42_model *m = test_load(dir);
            CHECK(m->config.vocab == 32 && m->config.stop_count == 2);
            llm42_model_free(m);
        }
    }
}

TEST(path_that_does_not_exist) {
    refused(test_file("nowhere"), LLM42_IO, "nowhere");
    refused(test_file("nowhere.bin"), LLM42_IO, "nowhere.bin");
    bad_cases();
    refused(NULL, LLM42_INVALID, "path");
    CHECK_INT(llm42_model_load(NULL, &(llm42_model_desc){.path = "synthetic:tiny"}, NULL), LLM42_INVALID);
    llm42_model_free(NULL);
}

TEST(folder_without_config_or_weights) {
    const char *dir = fresh(llama);
    test_write(test_path(dir, "model.safetensors"), "", 0);
    refused(dir, LLM42_FORMAT, "model.safetensors");
    test_remove(test_path(dir, "model.safetensors"));
    refused(dir, LLM42_IO, "model.safetensors");
    test_remove(test_path(dir, "config.json"));
    refused(dir, LLM42_IO, "config.json");
    CHECK(mkdir(test_path(dir, "config.json"), 0777) == 0);
    refused(dir, LLM42_IO, "config.json");
}

// A valid folder's model.safetensors is cut short, has a length of its header that cannot be, or is in the other byte
// order: as files of a big-endian machine would be, and as ours look to one.
TEST(truncated_safetensors_and_lengths_of_headers) {
    const char *dir = fresh(llama), *path = test_path(dir, "model.safetensors");
    size_t bytes;
    test_text header = test_header(llama, &bytes), file = test_safetensors(header.data, llama->dtype, bytes);
    const size_t sizes[] = {1, 7, 8, 9, 200, 8 + header.size, 9 + header.size, file.size - 1};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        test_write(path, file.data, sizes[i]);
        refused(dir, LLM42_FORMAT, "model.safetensors");
    }
    test_swap_bytes(file.data, 8, 1);
    test_write(path, file.data, file.size);
    refused(dir, LLM42_FORMAT, "a git-lfs pointer?");
    const uint64_t lengths[] = {0, 1, file.size - 7, file.size, UINT32_MAX, INT64_MAX, UINT64_MAX - 7, UINT64_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        memcpy(file.data, &lengths[i], 8);
        test_write(path, file.data, file.size);
        refused(dir, LLM42_FORMAT, "model.safetensors");
    }
    TEST_TEXTS_FREE(&header, &file);
}

TEST(offsets_that_overlap_or_leave_the_file) {
    const char *norm = "\"data_offsets\":[1024,1056]";
    static const char *const outside[] = TEST_LIST("[1024,999999]", "[-32,0]", "[1056,1024]",
                                                   "[18446744073709551584,18446744073709551616]", "[1e300,2e300]",
                                                   "[1024.5,1056.5]", "[1024]", "[1024,1056,1088]", "\"1024\"",
                                                   "[null,1056]", "[[1024],1056]", "{}", "[4294968320,4294968352]");
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        char to[128];
        snprintf(to, sizeof to, "\"data_offsets\":%s", outside[i]);
        bad_header(llama, norm, to, LLM42_FORMAT, "model.layers.0.input_layernorm.weight");
    }
    bad_cases();
}

TEST(wrong_dtype) { bad_cases(); }

TEST(wrong_shape) {
    const char *entry = "\"shape\":[32,16]";
    static const char *const shapes[] = {"[16,32]", "[512]", "[32,16,1]", "[]", "[32,16,1,1,1,1,1]"};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        char to[64];
        snprintf(to, sizeof to, "\"shape\":%s", shapes[i]);
        bad_header(llama, entry, to, LLM42_FORMAT, "model.embed_tokens.weight");
    }
    bad_cases();
}

TEST(missing_tensors) {
    static const char *const names[] = TEST_LIST(
        "model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.o_proj.weight",
        "model.layers.0.mlp.down_proj.weight", "model.layers.0.post_attention_layernorm.weight", "model.norm.weight");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        bad_header(llama, names[i], "renamed", LLM42_FORMAT, names[i]);
    bad_cases();
}

TEST(unknown_architecture) { bad_cases(); }

TEST(malformed_json) {
    static const char *const texts[] = TEST_LIST("{", "}", "{\"model_type\": \"llama\"", "{\"model_type\" \"llama\"}",
                                                 "[1, 2", "nul", "{\"a\": \"\\u12\"}", "\xff\xfe", "[]", "7",
                                                 "\"model_type\"", "{]", "{\"a\": \"b");
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        refused(fresh_but("config.json", texts[i], strlen(texts[i])), LLM42_FORMAT, "config.json");
        test_text file = test_safetensors(texts[i], "BF16", 64);
        refused(fresh_but("model.safetensors", file.data, file.size), LLM42_FORMAT, "model.safetensors");
        test_text_free(&file);
        const char *dir = fresh_but("model.safetensors.index.json", texts[i], strlen(texts[i]));
        test_remove(test_path(dir, "model.safetensors"));
        refused(dir, LLM42_FORMAT, "model.safetensors.index.json");
    }
    refused(fresh_but("config.json", "", 0), LLM42_FORMAT, "config.json");
}

TEST(deep_nesting) {
    enum { DEEP = 100000 };
    for (int kind = 0; kind < 4; kind++) {  // open or closed; arrays or objects
        test_text text = {0}, file;
        test_print(&text, "{\"model_type\": ");
        for (int i = 0; i < DEEP; i++) test_print(&text, kind & 1 ? "{\"a\": " : "[");
        test_print(&text, "1");
        for (int i = 0; kind >= 2 && i < DEEP; i++) test_print(&text, kind & 1 ? "}" : "]");
        if (kind >= 2) test_print(&text, "}");
        refused(fresh_but("config.json", text.data, text.size), LLM42_FORMAT, "config.json");
        file = test_safetensors(text.data, "BF16", 64);
        refused(fresh_but("model.safetensors", file.data, file.size), LLM42_FORMAT, "model.safetensors");
        TEST_TEXTS_FREE(&file, &text);
    }
}

// A string may hold brackets and escaped quotes: neither hides depth, nor counts as any.
TEST(nesting_and_strings) {
    test_text deep = {0}, text = {0};
    for (int i = 0; i < 50000; i++) test_print(&deep, "[");
    test_print(&text, "{\"model_type\": \"\\\"\", \"a\": ");
    test_append(&text, deep.data, deep.size);
    refused(fresh_but("config.json", text.data, text.size), LLM42_FORMAT, "deep");
    test_text config = test_config(&test_shapes[0]), quoted = {0};
    test_print(&quoted, "{\"chat_template\": \"\\\"");
    test_append(&quoted, deep.data, deep.size);
    test_print(&quoted, "\\\\\", ");
    test_append(&quoted, config.data + 1, config.size - 1);
    llm42_model_free(test_load(fresh_but("config.json", quoted.data, quoted.size)));
    TEST_TEXTS_FREE(&deep, &text, &config, &quoted);
}

TEST(numbers_of_the_config) {
    static const char *const fields[][2] = {{"vocab_size", "32"},         {"hidden_size", "16"},
                                            {"num_hidden_layers", "1"},   {"num_attention_heads", "2"},
                                            {"num_key_value_heads", "1"}, {"head_dim", "8"},
                                            {"intermediate_size", "24"},  {"max_position_embeddings", "64"}};
    static const char *const values[] = {"-1",     "0",        "2147483648",          "1e300",
                                         "NaN",    "Infinity", "-Infinity",           "1.5",
                                         "\"16\"", "[16]",     "9223372036854775808", "true"};
    for (size_t f = 0; f < sizeof fields / sizeof fields[0]; f++)
        for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
            char from[64], to[64];
            snprintf(from, sizeof from, "\"%s\": %s", fields[f][0], fields[f][1]);
            snprintf(to, sizeof to, "\"%s\": %s", fields[f][0], values[v]);
            // A bare word that is no number breaks the JSON itself.
            bool json = values[v][0] != 'N' && values[v][0] != 'I' && strcmp(values[v], "-Infinity") != 0;
            bad_config(llama, from, to, LLM42_FORMAT, json ? fields[f][0] : "config.json");
        }
    bad_cases();
}

// What generation_config.json says of end tokens counts, if it says anything, and not what config.json says.
TEST(generation_config) {
    static const struct {
        const char *text;
        int count, first;
    } good[] = {{"{\"eos_token_id\": [7, 2, 5]}", 3, 7},
                {"{\"eos_token_id\": 9, \"top_p\": 0.9}", 1, 9},
                {"{\"eos_token_id\": []}", 0, 0},
                {"{\"eos_token_id\": null}", 2, 1},
                {"{}", 2, 1}};
    static const char *const bad[] = {
        "",   "{\"eos_token_id\": [1, 32]}", "{\"eos_token_id\": \"1\"}",
        "[]", "{\"eos_token_id\": 1",        "{\"eos_token_id\": 1, \"eos_token_id\": 2}"};
    const char *dir = fresh(llama);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        test_write_text(test_path(dir, "generation_config.json"), good[i].text);
        llm42_model *m = test_load(dir);
        CHECK_INT(m->config.stop_count, good[i].count);
        if (good[i].count) CHECK_INT(m->config.stop[0], good[i].first);
        llm42_model_free(m);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        test_write_text(test_path(dir, "generation_config.json"), bad[i]);
        refused(dir, LLM42_FORMAT, "/generation_config.json: ");
    }
}

// Which layers have a window, as a text of 0 and 1, and how long it is.
static void windows_are(const char *type, const char *extra, const char *sliding, int window) {
    llm42_model *m = test_load(fresh_with(type, extra));
    CHECK_MSG(m->config.sliding_window == window, "%s, %s: a window of %d", type, extra, m->config.sliding_window);
    for (int l = 0; l < 3; l++)
        CHECK_MSG(m->layer[l].sliding == (sliding[l] == '1'), "%s, %s: layer %d", type, extra, l);
    llm42_model_free(m);
}

#define USE "\"use_sliding_window\": true, "
#define WINDOW "\"sliding_window\": 8, "
#define TYPES(a, b, c) "\"layer_types\": [\"" a "_attention\", \"" b "_attention\", \"" c "_attention\"], "
#define FROM(n) "\"max_window_layers\": " #n ", "

// The expected values are those of HF transformers 5.23: its configuration classes and the models' forward functions.
TEST(windows_by_layer) {
    windows_are("qwen2", WINDOW, "000", 0);
    windows_are("qwen2", USE WINDOW, "000", 0);  // max_window_layers is 28 if it is missing
    windows_are("qwen2", USE WINDOW FROM(2), "001", 8);
    windows_are("qwen3", USE WINDOW FROM(0), "111", 8);
    windows_are("qwen3", USE FROM(1), "011", 4096);
    windows_are("qwen2", USE "\"sliding_window\": null, " FROM(0), "000", 0);
    windows_are("qwen2", USE WINDOW FROM(0) TYPES("full", "sliding", "full"), "010", 8);
    windows_are("qwen2", "\"use_sliding_window\": null, " TYPES("full", "full", "full"), "000", 0);
    windows_are("qwen3_moe", USE WINDOW, "111", 8);
    windows_are("qwen3_moe", WINDOW FROM(3), "000", 0);
    windows_are("mistral", "", "111", 4096);
    windows_are("mistral", "\"sliding_window\": null, ", "000", 0);
    windows_are("mistral", WINDOW FROM(3), "111", 8);
    windows_are("mistral", WINDOW TYPES("sliding", "full", "full"), "100", 8);
    windows_are("ministral", WINDOW TYPES("full", "sliding", "full"), "010", 8);
    windows_are("llama", WINDOW TYPES("full", "full", "full"), "000", 0);
    bad_cases();
}

// What is written as a string is neither true nor false.
TEST(booleans_of_the_config) {
    static const char *const fields[] = {"use_sliding_window", "tie_word_embeddings", "mlp_bias", "attention_bias",
                                         "is_causal"};
    static const char *const values[] = {"\"true\"", "\"false\"", "1", "[true]", "{}", "troo"};
    char extra[100];
    for (size_t f = 0; f < sizeof fields / sizeof fields[0]; f++)
        for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
            snprintf(extra, sizeof extra, "\"%s\": %s, ", fields[f], values[v]);
            refused(fresh_with("qwen2", extra), LLM42_FORMAT, v < 5 ? fields[f] : "config.json");
        }
    bad_cases();
}

// Keys of config.json that change what a model computes, and that its family does not have.
TEST(keys_that_cannot_be_ignored) { bad_cases(); }

// Keys that do nothing here, whatever they mean elsewhere, and keys that say what is so anyway.
TEST(keys_that_can_be_ignored) {
    char lines[2048] = "";
    llm42_model *m = NULL;
    llm42_error error = {0};
    const char *dir = fresh_with("llama", "\"use_cache\": true, \"attention_dropout\": 0.5, \"qk_norm\": false, "
                                          "\"rope_type\": null, \"shared_experts\": 3, \"max_window_layers\": 3, "
                                          "\"architectures\": [\"LlamaForCausalLM\"], ");
    const llm42_model_desc desc = {.path = dir, .log = test_keep_line, .log_user = lines};
    CHECK_MSG(llm42_model_load(&m, &desc, &error) == LLM42_OK, "%s", error.text);
    CHECK_CONTAINS(lines, "config.json: not used: shared_experts\n");
    llm42_model_free(m);
}

// A key that stands twice.
TEST(keys_of_the_config_that_stand_twice) { bad_cases(); }

// Rotary embeddings that are refused.
TEST(rope_of_the_config) { bad_cases(); }

// What is read and written in this locale, as text.
static void numbers_of_files(const char *dir, char text[1024]) {
    llm42_model *folder_model = test_load(dir), *random = test_load("synthetic:tiny,margin=6.25");
    llm42_calibration *calibration = NULL;
    llm42_trace *trace = NULL;
    llm42_error error = {0};
    const char *path = test_path(dir, "trace.json");
    test_need(CHECK_MSG(!llm42_calibration_load(&calibration, "tests/calibration.tsv", &error) &&
                            !llm42_trace_open(&trace, path, &error),
                        "%s", error.text));
    llm42_event pass = {.type = LLM42_EVENT_PASS, .begin = 0.25, .time = 1.75, .schedule = LLM42_SCHEDULE_FAST};
    llm42_trace_event(trace, &pass);
    CHECK_INT(llm42_trace_close(trace, &error), LLM42_OK);
    char *written = test_read(path, NULL);
    const char *event = strstr(written ? written : "", "\"ph\": \"X\"");
    CHECK(event != NULL);
    snprintf(text, 1024, "%a %a %a %a %a %s", (double)folder_model->config.norm_eps, folder_model->config.rope_theta,
             (double)random->head.recipe.lead, llm42_calibration_flip_rate(calibration, 1, 1),
             calibration->cost[LLM42_SCHEDULE_FAST][LLM42_KIND_DECODE].value[1], event ? event : "");
    for (char *p = text; *p; p++) *p = *p == ',' ? '.' : *p;  // what %a writes
    if (event) CHECK_CONTAINS(event, "\"dur\": 1500000.000");
    free(written);
    llm42_calibration_free(calibration);
    llm42_model_free(random);
    llm42_model_free(folder_model);
}

TEST(numbers_in_another_locale) {
    char plain[1024], comma[1024];
    const char *dir = fresh(llama);
    numbers_of_files(dir, plain);
    double value = 0;
    if (!test_decimal_comma(test_scratch())) {
        SKIP("no locale with a decimal comma, and localedef makes none");
        return;
    }
    CHECK_STR(localeconv()->decimal_point, ",");
    numbers_of_files(dir, comma);
    const char *point = "6.25", *german = "6,25";
    CHECK(llm42_number(point, point + 4, &value) && value == 6.25);
    CHECK(!llm42_number(german, german + 4, &value));
    refused("synthetic:tiny,margin=6,2", LLM42_INVALID, "'2'");
    setlocale(LC_NUMERIC, "C");
    CHECK_STR(comma, plain);
}

TEST(numbers_that_round_to_others) {
    static const struct {
        const char *text;
        double value;  // 0, but for the text "0": no number
    } numbers[] = {{"1e-22", 1e-22}, {"1e-400", 0},  {"-1e-400", 0}, {"1e400", 0},
                   {"0e-400", 0},    {"0", 0},       {"0.0", 0},     {"1e-99999999999", 0},
                   {"", 0},          {".", 0},       {"1e", 0},      {"0x10", 0},
                   {" 1", 0},        {"1 ", 0},      {"+1", 0},      {"inf", 0},
                   {"nan", 0},       {"-2.5e1", -25}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const char *text = numbers[i].text;
        double value = 42;
        bool zero = text[0] == '0' && text[1] != 'x', read = llm42_number(text, text + strlen(text), &value);
        CHECK_MSG(read == (zero || numbers[i].value != 0), "'%s' %s read", text, read ? "was" : "was not");
        CHECK_MSG(!read || value == numbers[i].value, "'%s' is %g", text, value);
    }
}

TEST(heads_that_do_not_divide) { bad_cases(); }

TEST(experts_that_cannot_be_chosen) { bad_cases(); }

TEST(index_that_names_a_missing_file) {
    char dir[80];
    snprintf(dir, sizeof dir, "%s", test_file("s"));
    test_shards(dir, llama);
    test_remove(test_path(dir, "model-00002-of-00002.safetensors"));
    refused(dir, LLM42_IO, "model-00002-of-00002.safetensors");
    static const char *const maps[] = {"{}", "{\"weight_map\": []}", "{\"weight_map\": {\"a\": 1}}",
                                       "{\"weight_map\": {\"a\": \"../x.safetensors\"}}",
                                       "{\"weight_map\": {\"a\": {}}}"};
    for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++) {
        test_write_text(test_path(dir, "model.safetensors.index.json"), maps[i]);
        refused(dir, LLM42_FORMAT, "weight_map");
    }
    test_write_text(test_path(dir, "model.safetensors.index.json"), "{\"weight_map\": {}}");
    refused(dir, LLM42_FORMAT, "model.embed_tokens.weight");
}

// transformers reads the single file, whatever index another checkpoint has left behind.
TEST(an_index_beside_a_single_file) {
    const char *dir = fresh(llama);
    test_write_text(test_path(dir, "model.safetensors.index.json"), "{\"weight_map\": {\"a\": \"gone.safetensors\"}}");
    llm42_model_free(test_load(dir));
}

// What a folder has in place of weights that can be read.
TEST(weights_of_other_kinds) {
    const char *dir = fresh(llama);
    test_remove(test_path(dir, "model.safetensors"));
    test_write_text(test_path(dir, "pytorch_model.bin"), "PK");
    refused(dir, LLM42_IO,
            "no model.safetensors: weights in other files (GGUF, consolidated.safetensors, pytorch_model");
    test_remove(test_path(dir, "config.json"));
    refused(dir, LLM42_IO, "no config.json: weights in other files (GGUF");
    bad_cases();
}

TEST(a_file_is_no_model) {
    test_write_text(test_file("x.bin"), "A llama2.c file, say.");
    refused(test_file("x.bin"), LLM42_UNSUPPORTED, "x.bin: not a folder");
    refused(test_file("x.bin"), LLM42_UNSUPPORTED, "GGUF");
    refused(test_file("x.bin"), LLM42_UNSUPPORTED, "examples/python/llama2c.py");
}

static void desc_refused(const llm42_engine_desc *desc, llm42_result want, const char *part) {
    llm42_engine *e = (llm42_engine *)(uintptr_t)1;
    llm42_error error = {0};
    llm42_result result = llm42_engine_open(&e, desc, &error);
    check_error(result, &error, want, part);
    CHECK(e == NULL);
    if (result == LLM42_OK) llm42_engine_close(e);
}

// An engine's good desc named d, changed by one statement, must be refused so.
#define DESC_REFUSED(change, part)                                               \
    do {                                                                         \
        llm42_engine_desc d = {.model = model, .backend_desc = TEST_THREADS(1)}; \
        change;                                                                  \
        desc_refused(&d, LLM42_INVALID, part);                                   \
    } while (0)

TEST(sizes_of_an_engine_desc) {
    const struct {
        const char *name;
        size_t at;
    } fields[] = {
#define FIELD(name) {#name, offsetof(llm42_engine_desc, name)}
        FIELD(max_context),     FIELD(max_running),   FIELD(token_budget),   FIELD(kv.page_size),
        FIELD(kv.pages),        FIELD(policy.window), FIELD(policy.group),   FIELD(policy.deadline),
        FIELD(policy.mode),     FIELD(policy.verify), FIELD(policy.prefill), FIELD(experiment.bonus),
        FIELD(numerics.compute)};
#undef FIELD
    const int values[] = {-1, INT32_MIN};
    for (size_t f = 0; f < sizeof fields / sizeof fields[0]; f++)
        for (size_t v = 0; v < 2; v++)
            DESC_REFUSED(memcpy((char *)&d + fields[f].at, &values[v], sizeof(int)), fields[f].name);
    DESC_REFUSED(d.model = NULL, "model");
    for (int threads = -1; threads <= 1025; threads += 1026)
        DESC_REFUSED(d.backend_desc = &(llm42_cpu_desc){threads}, "llm42_cpu_desc.threads");
#ifdef _OPENMP
    const int offered = omp_get_max_threads();
    omp_set_num_threads(1025);  // the default takes no more than it may
    llm42_engine_close(test_open(&(llm42_engine_desc){.model = model}));
    omp_set_num_threads(offered);
#endif
    const double rates[] = {-0.1, 1.1, NAN, INFINITY};
    for (size_t i = 0; i < 4; i++) DESC_REFUSED(d.experiment.inject_rate = rates[i], "inject_rate");
    for (size_t i = 0; i < 3; i += 2) DESC_REFUSED(d.experiment.gate = rates[i], "experiment.gate");
    DESC_REFUSED(d.policy.mode = (llm42_mode)99, "mode");
    DESC_REFUSED(d.numerics.compute = (llm42_dtype)99, "compute");
    DESC_REFUSED(d.policy.verify = (llm42_verify)99, "verify");
    DESC_REFUSED(d.policy.prefill = (llm42_prefill)99, "prefill");
    DESC_REFUSED(d.policy.prefill = (llm42_prefill)(LLM42_PREFILL_INVARIANT + 1), "prefill");
    DESC_REFUSED(d.experiment.bonus = (llm42_bonus)99, "bonus");
    DESC_REFUSED((d.policy.window = INT32_MAX, d.policy.group = INT32_MAX), "window");
    CHECK_INT(llm42_engine_open(NULL, &(llm42_engine_desc){.model = model}, NULL), LLM42_INVALID);
    llm42_engine_close(NULL);
}

static void request_refused(const llm42_request_desc *desc, llm42_result want, const char *part) {
    int64_t id = -7, submitted = llm42_engine_stats(engine).submitted;
    llm42_error error = {0};
    llm42_result result = llm42_engine_submit(engine, desc, &id, &error);
    check_error(result, &error, want, part);
    CHECK_INT(llm42_engine_stats(engine).submitted, submitted);
    CHECK(llm42_engine_submit(engine, desc, NULL, NULL) < 0);  // the error is optional
}

static const llm42_request_desc good = {.prompt = prompt, .prompt_count = PROMPT, .max_new_tokens = 4};

// A good desc named d, changed by one statement, must be refused so.
#define REFUSE(change, want, part)         \
    do {                                   \
        llm42_request_desc d = good;       \
        change;                            \
        request_refused(&d, (want), part); \
    } while (0)

TEST(token_ids_out_of_range) {
    const int32_t bad[] = {-1, 512, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < 4; i++) {
        int32_t ids[PROMPT] = {1, 2, bad[i], 3, 4, 5, 6};
        REFUSE(d.prompt = ids, LLM42_INVALID, "prompt[2]");
        REFUSE((d.stop = &bad[i], d.stop_count = 1), LLM42_INVALID, "stop");
    }
}

TEST(empty_prompt) {
    REFUSE(d.prompt_count = 0, LLM42_INVALID, "prompt_count");
    REFUSE(d.prompt_count = -3, LLM42_INVALID, "prompt_count");
    REFUSE(d.prompt = NULL, LLM42_INVALID, "prompt");
}

TEST(prompt_beyond_the_context) {
    static int32_t ids[5000];
    REFUSE((d.prompt = ids, d.prompt_count = 512), LLM42_NEVER_FITS, "prompt_count");
    REFUSE((d.prompt = ids, d.prompt_count = 5000), LLM42_NEVER_FITS, "prompt_count");
    REFUSE(d.max_new_tokens = 512, LLM42_NEVER_FITS, "max_new_tokens");
    REFUSE(d.max_new_tokens = INT32_MAX, LLM42_NEVER_FITS, "max_new_tokens");
}

TEST(request_that_can_never_fit) {
    llm42_error error = {0};
    llm42_engine_desc desc = TEST_LIST(.model = model, .backend_desc = TEST_THREADS(1), .max_context = 512,
                                       .max_running = 2, .kv.page_size = 16, .kv.pages = 8, .policy.window = 4,
                                       .policy.group = 1);
    llm42_request_desc large = good, fits = good;
    large.max_new_tokens = 200, fits.max_new_tokens = 20;
    llm42_engine *small = test_open(&desc);
    check_error(llm42_engine_submit(small, &large, NULL, &error), &error, LLM42_NEVER_FITS, "pages");
    test_submit(small, fits);
    test_finish(small);
}

TEST(fields_of_a_request_desc) {
    const float bad[] = {-1, NAN, INFINITY};
    for (size_t i = 0; i < 3; i++) {
        REFUSE(d.sampling.temperature = bad[i], LLM42_INVALID, "temperature");
        REFUSE((d.sampling.temperature = 1, d.sampling.top_p = bad[i]), LLM42_INVALID, "top_p");
        REFUSE((d.sampling.temperature = 1, d.sampling.min_p = bad[i]), LLM42_INVALID, "min_p");
    }
    REFUSE(d.sampling.top_p = 1.5f, LLM42_INVALID, "top_p");
    REFUSE(d.sampling.min_p = 1.5f, LLM42_INVALID, "min_p");
    REFUSE(d.sampling.temperature = 1e-5f, LLM42_INVALID, "temperature");
    REFUSE(d.sampling.top_p = 1e-40f, LLM42_INVALID, "top_p");  // subnormal
    REFUSE(d.sampling.min_p = 1e-40f, LLM42_INVALID, "min_p");
    REFUSE(d.sampling.top_k = -1, LLM42_INVALID, "top_k");
    REFUSE(d.max_new_tokens = -1, LLM42_INVALID, "max_new_tokens");
    REFUSE(d.sample_index = -1, LLM42_INVALID, "sample_index");
    REFUSE(d.stop_count = -1, LLM42_INVALID, "stop_count");
    REFUSE((d.stop = prompt, d.stop_count = LLM42_MAX_STOP + 1), LLM42_INVALID, "stop_count");
    REFUSE(d.stop_count = 1, LLM42_INVALID, "stop");
    REFUSE(d.arrival = (double)NAN, LLM42_INVALID, "arrival");
    REFUSE(d.arrival = (double)INFINITY, LLM42_INVALID, "arrival");
    request_refused(NULL, LLM42_INVALID, "prompt");
}

TEST(ids_that_nobody_has) {
    const int64_t ids[] = {0, -1, 1000000, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < 5; i++) {
        llm42_error error = {0};
        check_error(llm42_engine_cancel(engine, ids[i], &error), &error, LLM42_NOT_FOUND, "");
        check_error(llm42_engine_release(engine, ids[i], &error), &error, LLM42_NOT_FOUND, "");
        CHECK(llm42_engine_request(engine, ids[i]) == NULL);
    }
    llm42_error error = {0};  // a request that runs cannot be forgotten
    check_error(llm42_engine_release(engine, bystander, &error), &error, LLM42_INVALID, "finished");
}

TEST(trace_that_cannot_be_written) {
    llm42_trace *trace = NULL;
    llm42_error error = {0};
    check_error(llm42_trace_open(&trace, test_file("no/such/trace.tsv"), &error), &error, LLM42_IO, "trace.tsv");
    CHECK(trace == NULL);
    check_error(llm42_trace_open(&trace, NULL, &error), &error, LLM42_INVALID, "path");
}

// C1 controls are control characters too, alone and in UTF-8; other UTF-8 stays.
TEST(messages_hold_no_control_characters) {
    llm42_error error;
    llm42_fail(&error, LLM42_IO, "%s", "a\x1b[31m\xc2\x9b b\x9b c\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80 d\xc3");
    CHECK_STR(error.text, "a?[31m?? b? c\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80 d?");
}

TEST(missing_arguments) {
    llm42_engine_desc desc = {0};
    llm42_error error;
    check_error(llm42_policy_set(NULL, "verify", "wait", &error), &error, LLM42_INVALID, "NULL");
    check_error(llm42_policy_set(&desc, NULL, "wait", &error), &error, LLM42_INVALID, "NULL");
    check_error(llm42_policy_set(&desc, "verify", NULL, &error), &error, LLM42_INVALID, "NULL");
    CHECK(!llm42_policy_word(&desc, NULL) && !llm42_policy_word(NULL, "verify"));
}

TEST(the_running_engine_is_unharmed) {
    llm42_error error = {0};
    CHECK_INT(llm42_engine_run(engine, &error), LLM42_OK);
    const llm42_request *r = llm42_engine_request(engine, bystander);
    if (!CHECK(r != NULL)) return;
    CHECK_INT(r->committed, NEW);
    CHECK(memcmp(r->tokens, undisturbed, sizeof undisturbed) == 0);
    CHECK_INT(llm42_engine_release(engine, bystander, &error), LLM42_OK);
    CHECK_INT(llm42_engine_stats(engine).submitted, 1);
    CHECK_INT(llm42_engine_stats(engine).pages_free, 40);
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    llm42_error error = {0};
    model = test_load("synthetic:tiny");
    llm42_engine *alone = open_engine();
    int64_t id = submit_bystander(alone);
    CHECK_INT(llm42_engine_run(alone, &error), LLM42_OK);
    memcpy(undisturbed, llm42_engine_request(alone, id)->tokens, sizeof undisturbed);
    llm42_engine_close(alone);
    engine = open_engine();
    bystander = submit_bystander(engine);

    RUN_ALL();

    llm42_engine_close(engine);
    llm42_model_free(model);
    return test_end("test_bad_input");
}
