// examples/lib/chat.h: formats spell chats as jinja2 spelled them (chat/golden.json), a template is known by its whole
// text only, what is said of another one, and dates and markers are checked. `test_chat --spell FOLDER` reads chats, a
// list of [role, text] in each line, and prints each as a JSON string, or null: chat_templates.py compares these with
// jinja2.
#include "test.h"

#define LLM42_SHA256_IMPLEMENTATION
#include "examples/util/llm42_sha256.h"
#include "examples/lib/chat.h"

static llm42_error error;
static chat c;

static const chat_format *format_of(const char *name) {
    int count = 0;
    const chat_format *all = chat_formats(&count);
    for (int i = 0; i < count; i++)
        if (!strcmp(all[i].name, name)) return &all[i];
    return NULL;
}

// The turns in a list of [role, text]; to be freed.
static chat_turn *turns_of(const tok_json *j, int list, int *count) {
    *count = j->token[list].size;
    chat_turn *turn = calloc((size_t)*count, sizeof *turn);
    for (int i = 0, at = list + 1; i < *count; i++, at = tok_json_next(j, at)) {
        const jsmntok_t *text = &j->token[at + 2];
        turn[i] = (chat_turn){tok_json_string(j, at + 1),
                              {tok_json_string(j, at + 2), (size_t)(text->end - text->start)}};
    }
    return turn;
}

TEST(golden) {
    tok_json j;
    if (!CHECK_MSG(!tok_json_load(&j, "tests/chat/golden.json", &error), "%s", error.text)) return;
    int cases = 0;
    for (int n = 0, i = 1; n < j.token[0].size; n++, i = tok_json_next(&j, i + 1)) {
        c = (chat){.format = format_of(tok_json_string(&j, i)), .bos = "<BOS>", .eos = "<EOS>", .date = "<DATE>"};
        if (!CHECK_MSG(c.format != NULL, "no format '%s'", tok_json_string(&j, i))) continue;
        for (int k = 0, at = i + 2; k < j.token[i + 1].size; k++, at = tok_json_next(&j, at), cases++) {
            char *text = NULL;
            size_t size = 0;
            int count = 0;
            chat_turn *turn = turns_of(&j, at + 1, &count);
            const int want = tok_json_next(&j, at + 1);
            const bool spelled = !chat_spell(&c, turn, count, &text, &size, &error);
            CHECK_MSG(spelled == tok_json_is(&j, want, JSMN_STRING), "%s, case %d: %s", c.format->name, k, error.text);
            if (spelled) CHECK_STR(text, tok_json_string(&j, want));
            TEST_FREE(text, turn);
        }
    }
    CHECK_MSG(cases > 200, "only %d cases", cases);
    tok_json_free(&j);
}

// What Python's str.strip takes for white space, and nothing else.
TEST(white_space) {
    int spaces = 0;
    c = (chat){.format = format_of("llama3"), .bos = "", .eos = ""};
    for (uint32_t u = 1; u < 0x110000; u += u < 0x3100 ? 1 : 97) {
        if (u >= 0xD800 && u < 0xE000) continue;
        char said[16] = {0}, *text = NULL;
        size_t size = 0;
        int n = tok_utf8_write(u, said);
        said[n] = 'x';
        n += 1 + tok_utf8_write(u, said + n + 1);
        chat_spell(&c, &(chat_turn){"user", {said, (size_t)n}}, 1, &text, &size, NULL);
        const char *at = strstr(text, "\n\n") + 2;
        const bool cut = !strncmp(at, "x<|eot_id|>", 11);
        CHECK(cut || (!strncmp(at, said, (size_t)n) && !strncmp(at + n, "<|eot_id|>", 10)));
        spaces += cut;
        free(text);
    }
    CHECK_INT(spaces, 29);
}

static tok *tiny42;

// Opens the chat of the folder with this template.
static llm42_result opens(const char *template, const chat_options *how) {
    test_write_text(test_file("chat_template.jinja"), template);
    return chat_open(&c, tiny42, test_scratch(), how, &error);
}

TEST(known_by_the_whole_text) {
    const chat_options none = {0};
    const char *text = CHAT_TEXT_ALONE;
    char changed[400];
    CHECK_MSG(!opens(text, &none), "%s", error.text);
    CHECK_STR(c.format->name, "text");
    snprintf(changed, sizeof changed, "%s\r\n", text);  // as jinja2 itself reads it
    CHECK(!opens(changed, &none));
    for (size_t i = 0; i < strlen(text); i++) {  // a byte more, a byte less, another byte
        snprintf(changed, sizeof changed, "%.*s %s", (int)i, text, text + i);
        CHECK_INT(opens(changed, &none), LLM42_UNSUPPORTED);
        snprintf(changed, sizeof changed, "%.*s%s", (int)i, text, text + i + 1);
        CHECK_INT(opens(changed, &none), LLM42_UNSUPPORTED);
        CHECK(!c.format);
    }
    snprintf(changed, sizeof changed, "%s\n\n", text);
    CHECK_INT(opens(changed, &none), LLM42_UNSUPPORTED);
    // What marks such as {%- drop may be there or not; what stands in a string, or elsewhere, may not.
    static const char *const parts[][4] = {{"\n", "' '", "", "known"}, {" \t\r\n\n", "' '", "\n\f", "known"},
                                           {"", "' '", "\n", "known"}, {"\n", "'  '", "", ""},
                                           {"\n", "' -%}'", "", ""},   {"{\n", "' '", "", ""},
                                           {"\n", "' '", ".", ""},     {"{% raw %}", "' '", "", ""},
                                           {"\n", "(' '", "", ""}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        snprintf(changed, sizeof changed,
                 "{{- bos_token }}%s{%%- for message in messages %%}\n    {%%- if message['role'] == 'user' and not "
                 "loop.first %%}{{ %s }}{%%- endif %%}\n    {{- message['content'] -}}%s{%%- endfor %%}\n",
                 parts[i][0], parts[i][1], parts[i][2]);
        CHECK_INT(!opens(changed, &none), parts[i][3][0] == 'k');
    }
}

// The message names the markers that the template shares with known formats. It proposes no format: one with the same
// markers may put them together in another way.
TEST(unknown) {
    static const struct {
        const char *template, *says;
    } cases[] = {
        {"{{ bos_token }}<|start_header_id|>user<|end_header_id|>\n\nTask: say yes.\n",
         "the markers <|start_header_id|> <|end_header_id|> of known formats"},
        {"{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}x",
         "markers <|im_start|> <|im_end|> of"},
        {"{{ '[INST] ' + m + '[/INST]' }}<think>{{ eos_token }}", "the markers [INST] [/INST] of"},
        {"{{ '<seed:bos>' + role + content + '<seed:eos>' }}", "the markers <seed:bos> <seed:eos> of"},
        {"{{ '[[q]]' }}", "it has no marker of a known format"},
        {"{{ '", "it has no marker of a known format"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int count = 0;
        CHECK_INT(opens(cases[i].template, &(chat_options){0}), LLM42_UNSUPPORTED);
        CHECK_CONTAINS(error.text, cases[i].says);
        CHECK_CONTAINS(error.text, "--chat-format");
        CHECK_CONTAINS(error.text, test_scratch());
        for (const chat_format *all = chat_formats(&count); count--; all++) {
            char name[64];
            snprintf(name, sizeof name, " %s", all->name);
            CHECK_MSG(!strstr(error.text, name), "%s proposes%s", error.text, name);
        }
    }
    CHECK(!opens("{{ x }}", &(chat_options){.format = "text"}));
    CHECK_INT(opens("{{ x }}", &(chat_options){.format = "nonsense"}), LLM42_INVALID);
    CHECK_CONTAINS(error.text, "'nonsense': there are llama3, llama3.1, ");
}

TEST(dates) {
    static const char model[] = "examples/tiny42";
    CHECK_ERROR(chat_open(&c, NULL, model, &(chat_options){.format = "granite3"}, &error), LLM42_INVALID,
                "give --chat-date");
    CHECK(!chat_open(&c, NULL, model, &(chat_options){.format = "granite3", .date = "May 1"}, &error));
    CHECK_STR(c.date, "May 1");
    for (int i = 0; i < 2; i++) {
        const chat_options how = {.format = i ? "llama3.1" : "granite3", .date = ""};
        CHECK_ERROR(chat_open(&c, NULL, model, &how, &error), LLM42_INVALID, "--chat-date: the text is empty");
    }
}

// A tokenizer must have a format's markers as tokens, unless models with this format learned them as text.
TEST(markers) {
    static const char *const as_tokens[][2] = TEST_LIST(
        {"llama3", "<|start_header_id|>"}, {"chatml", "<|im_start|>"}, {"phi3", "<|user|>"}, {"phi3.5", "<|user|>"},
        {"phi4", "<|im_start|>"}, {"phi-4-mini-instruct", "<|user|>"}, {"granite3", "<|start_of_role|>"},
        {"granite-3.0-8b-instruct", "<|start_of_role|>"}, {"seed-oss", "<seed:bos>"},
        {"deepseek-r1", "<\xEF\xBD\x9CUser\xEF\xBD\x9C>"}, {"ministral-3-14b-reasoning-2512", "[SYSTEM_PROMPT]"},
        {"mistral-0.3", "[INST]"}, {"mistral-nemo", "[INST]"}, {"openchat-3.5-0106", "<|end_of_turn|>"},
        {"codellama-70b-instruct", "<s>"});
    test_write_text(test_file("tokenizer_config.json"), "{\"bos_token\": \"It\", \"eos_token\": \".\"}");
    int count = 0, as_text = 0;
    const chat_format *all = chat_formats(&count);
    for (int i = 0; i < count; i++) {
        if (!all[i].plain) continue;
        CHECK_MSG(!opens("x", &(chat_options){.format = all[i].name}), "%s", error.text);
        as_text++;
    }
    CHECK_INT(as_text, 11);
    for (size_t i = 0; i < sizeof as_tokens / sizeof *as_tokens; i++) {
        const chat_options how = {.format = as_tokens[i][0], .date = strstr(as_tokens[i][0], "granite3") ? "x" : NULL};
        char want[96];
        snprintf(want, sizeof want, "lacks the token %s of the chat format %s,", as_tokens[i][1], how.format);
        CHECK_INT(opens("x", &how), LLM42_FORMAT);
        CHECK_CONTAINS(error.text, want);
    }
}

// Tokens are those that the folder's files name.
TEST(tokens) {
    int32_t *ids = NULL, *want = NULL;
    test_write_text(test_file("tokenizer_config.json"), "{\"bos_token\": {\"content\": \"It\"}}");
    CHECK(!opens(CHAT_TEXT_ALONE, &(chat_options){0}));
    CHECK(!chat_encode(&c, tiny42, " was", 4, &ids, &error) && !tok_encode(tiny42, "It was", 6, false, &want, &error));
    CHECK(arrlen(ids) == arrlen(want) && !memcmp(ids, want, (size_t)arrlen(ids) * sizeof *ids));
    CHECK_INT(opens("x", &(chat_options){.format = "zephyr"}), LLM42_FORMAT);
    CHECK_CONTAINS(error.text, "eos_token");
    arrfree(ids);
    arrfree(want);
}

// The folders of ../shared/cases whose templates hold known turns and something more.
TEST(templates_like_known_ones) {
    static const char *const names[] = {"guard_like", "always_system", "ends_in_a_mark"};
    if (access("../shared/cases", R_OK)) SKIP("no ../shared/cases");
    for (int i = 0; i < 3 && !access("../shared/cases", R_OK); i++) {
        char path[128];
        snprintf(path, sizeof path, "../shared/cases/template_%s", names[i]);
        CHECK_ERROR(chat_open(&c, NULL, path, &(chat_options){0}, &error), LLM42_UNSUPPORTED, path);
    }
}

static int spell(const char *path) {
    char *line = NULL;
    size_t room = 0;
    const chat_options how = {.date = strstr(path, "dated") ? "<DATE>" : NULL};
    if (chat_open(&c, NULL, path, &how, &error)) return puts(error.text), 1;
    for (ssize_t n; (n = getline(&line, &room, stdin)) > 0; puts("")) {
        char *text = NULL;
        size_t size = 0;
        int count = 0;
        tok_json j = {.path = "chat", .text = line, .size = (size_t)n};
        if (tok_json_parse(&j, &error)) return puts(error.text), 1;
        chat_turn *turn = turns_of(&j, 0, &count);
        const bool spelled = !chat_spell(&c, turn, count, &text, &size, &error);
        printf(spelled ? "\"" : "null");
        for (size_t i = 0; i < size; i++) printf("\\u%04x", (unsigned char)text[i]);
        if (spelled) printf("\"");
        TEST_FREE(text, turn, j.token);
    }
    free(line);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "--spell")) return spell(argv[2]);
    test_begin(argc, argv);
    llm42_model *model = test_load("examples/tiny42");
    CHECK_MSG(!tok_open(&tiny42, model, "examples/tiny42", NULL, &error), "%s", error.text);
    RUN(golden, white_space, known_by_the_whole_text, unknown, dates, markers, tokens, templates_like_known_ones);
    tok_free(tiny42);
    llm42_model_free(model);
    return test_end("test_chat");
}
