// test_tokenizer: examples/util/tokenizer.h against goldens of HF tokenizers, a simple merger of pairs, and bad files.
#define TEST_ALL
#include "test.h"
#include "examples/util/llm42_synthetic.h"
#include "examples/util/tokenizer.h"

static llm42_error error;

// A small tokenizer.json: the 256 bytes as tokens 0 to 255, and what the fields add. A NULL field takes its default.
typedef struct parts {
    const char *normalizer, *pre, *post, *decoder, *type, *model, *vocab, *merges, *added;
    int lacks;  // byte that is left out, plus 1
} parts;

#define SPLIT_BY(regex) \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex "\"},\"behavior\":\"Isolated\",\"invert\":false}"
#define SPLIT SPLIT_BY(" ?\\\\p{L}+|\\\\s+|.")
#define CUT(kind, pattern, behavior, invert)                                                                          \
    "{\"type\":\"Split\",\"pattern\":{\"" kind "\":\"" pattern "\"},\"behavior\":\"" behavior "\",\"invert\":" invert \
    "}"
#define LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"
#define LIST(items) "{\"type\":\"Sequence\",\"pretokenizers\":[" items "]}"
#define DECODERS(items) "{\"type\":\"Sequence\",\"decoders\":[" items "]}"
#define TEMPLATE(id)                                                                                     \
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"" id "\",\"type_id\":0}}," \
    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}]}"
#define S_TOKEN(id) "[{\"id\":" #id ",\"content\":\"<s>\",\"special\":true}]"

static const char * or (const char *text, const char *otherwise) { return text ? text : otherwise; }

static const char *write_parts(const parts *p) {
    static char text[1 << 15];
    static const char *path;
    uint16_t chars[256];
    size_t at = 0, room = sizeof text;
    tok_byte_chars(chars);
    at += (size_t)snprintf(text, room,
                           "{\"normalizer\":%s,\"pre_tokenizer\":%s,\"post_processor\":%s,"
                           "\"decoder\":%s,\"added_tokens\":%s,\"model\":{\"type\":%s,%s\"vocab\":{",
                           or (p->normalizer, "null"), or (p->pre, LIST(SPLIT "," LEVEL)), or (p->post, "null"),
                           or (p->decoder, "{\"type\":\"ByteLevel\"}"), or (p->added, "[]"), or (p->type, "\"BPE\""),
                           or (p->model, ""));
    for (int b = 0; b < 256; b++)
        if (b + 1 != p->lacks)
            at += (size_t)snprintf(text + at, room - at, "%s\"\\u%04x\":%d", b ? "," : "", chars[b], b);
    at += (size_t)snprintf(text + at, room - at, "%s},\"merges\":%s}}", or (p->vocab, ""), or (p->merges, "[]"));
    path = test_file("parts.json");
    test_write(path, text, at);
    return path;
}

static tok *load(const char *path, int vocab) {
    tok *t = NULL;
    llm42_result result = tok_load(&t, path, vocab, &error);
    CHECK_MSG(result == LLM42_OK && t, "%s", error.text);
    return t;
}

// A file that must be refused so.
static void refused(const char *path, int vocab, llm42_result want, const char *part) {
    tok *t = NULL;
    const llm42_result result = tok_load(&t, path, vocab, &error);
    CHECK_MSG(result == want && !t, "%s: %s, expected %s", part, llm42_result_name(result), llm42_result_name(want));
    CHECK_CONTAINS(error.text, part);
    CHECK_CONTAINS(error.text, path);
    tok_free(t);
}

// Ids as "1,2,3", in one of four buffers.
static const char *encoded(tok *t, const char *text, size_t size, bool bos) {
    static char buffer[4][4096];
    static unsigned next;
    char *out = buffer[next++ % 4];
    int32_t *ids = NULL;
    size_t at = 0;
    out[0] = 0;
    if (tok_encode(t, text, size, bos, &ids, &error)) snprintf(out, 4096, "error: %s", error.text);
    else
        for (int i = 0; i < (int)arrlen(ids) && at < 4000; i++)
            at += (size_t)snprintf(out + at, 4096 - at, "%s%d", i ? "," : "", (int)ids[i]);
    arrfree(ids);
    return out;
}

static const char *ids_of(tok *t, const char *text) { return encoded(t, text, strlen(text), false); }

// The tokenizer of these parts makes these ids of a text.
static void check_ids(const parts *p, const char *text, const char *ids) {
    tok *t = load(write_parts(p), 0);
    if (t) CHECK_STR(ids_of(t, text), ids);
    tok_free(t);
}

// What is shown of bytes: one U+FFFD for each longest part of a character that is not whole, found by trying.
static char *shown(const char *text, size_t size) {
    char *out = NULL;
    for (size_t i = 0, n = 0, part; i < size; i += n ? n : part) {
        const size_t most = size - i < 4 ? size - i : 4;
        for (n = most; n > 0 && tok_utf8(text + i, n) != (int)n;) n--;
        for (part = most; part > 1 && tok_utf8(text + i, part) != 0;) part--;
        const tok_text piece = n ? (tok_text){text + i, n} : (tok_text){"\xEF\xBF\xBD", 3};
        memcpy(arraddnptr(out, piece.size), piece.data, piece.size);
    }
    return out;
}

// Encoding, then decoding at once, gives the same bytes, and as a stream what is shown of them.
static bool round_trip(tok *t, const char *text, size_t size) {
    int32_t *ids = NULL;
    char *whole = NULL, *streamed = NULL, *wanted = shown(text, size);
    tok_stream stream = {.t = t};
    // In llama2.c's, BOS eats the space that goes before the text.
    bool same = tok_encode(t, text, size, t->llama2, &ids, &error) == LLM42_OK;
    tok_decode(t, ids, (int)arrlen(ids), &whole);
    for (int i = 0; i <= (int)arrlen(ids); i++) {
        tok_text part = i < (int)arrlen(ids) ? tok_stream_next(&stream, ids[i]) : tok_stream_end(&stream);
        if (part.size) memcpy(arraddnptr(streamed, part.size), part.data, part.size);
    }
    same = same && arrlenu(whole) == size && arrlenu(streamed) == arrlenu(wanted);
    same = same && (!size || (!memcmp(whole, text, size) && !memcmp(streamed, wanted, arrlenu(wanted))));
    tok_stream_free(&stream);
    arrfree(wanted);
    arrfree(whole);
    arrfree(streamed);
    arrfree(ids);
    return same;
}

static bool round_trip_text(tok *t, const char *text) { return round_trip(t, text, strlen(text)); }

static void check_golden(const char *model) {
    tok_json json, *j = &json;
    const char *golden = test_path(model, "tokenizer_golden.json");
    tok *t = load(test_path(model, "tokenizer.json"), 0);
    if (!t || !CHECK_MSG(!tok_json_load(j, golden, &error), "%s", error.text)) return;
    int i = 1;
    CHECK(j->token[0].size > 0);
    for (int n = 0; n < j->token[0].size; n++, i = tok_json_next(j, i)) {
        const char *text = tok_json_string(j, tok_json_get(j, i, "text"));
        int list = tok_json_get(j, i, "ids"), count = j->token[list].size;
        int32_t *ids = NULL, want = 0;
        CHECK_MSG(!tok_encode(t, text, strlen(text), false, &ids, &error), "%s", error.text);
        CHECK_INT(arrlen(ids), count);
        for (int k = 0; k < count && k < (int)arrlen(ids); k++) {
            CHECK(tok_json_int(j, list + 1 + k, &want));
            CHECK_MSG(ids[k] == want, "%s: text %d, token %d is %d, expected %d", model, n, k, (int)ids[k], (int)want);
        }
        CHECK(round_trip_text(t, text));
        arrfree(ids);
    }
    tok_json_free(j);
    tok_free(t);
}

TEST(tiny42_gives_the_golden_ids) { check_golden("examples/tiny42"); }

TEST(base42_gives_the_golden_ids) {
    if (!test_exists("../shared/models/base42")) SKIP("no ../shared/models/base42");
    else check_golden("../shared/models/base42");
}

TEST(any_bytes_come_back) {
    tok *t = load("examples/tiny42/tokenizer.json", 0);
    uint64_t state = 1;
    char text[200];
    for (int round = 0; t && round < 300; round++) {
        int size = test_random_int(&state, 0, (int)sizeof text), kind = round % 3;
        for (int i = 0; i < size; i++) {
            int any = test_random_int(&state, 0, 255);
            text[i] = (char)(kind == 0 ? any : kind == 1 ? 32 + any % 95 : " \n\xC3\xA9\xF0\x9F\x98\x80"[i % 8]);
        }
        if (!CHECK(round_trip(t, text, (size_t)size))) break;
    }
    tok_free(t);
}

// Merges the way it is defined: the cheapest pair, the leftmost of equals, again and again.
static void slow_merge(tok *t, int32_t *ids, int *count) {
    for (;;) {
        tok_merged best = {0}, now;
        int at = -1;
        for (int i = 0; i + 1 < *count; i++)
            if (tok_merge_of(t, ids[i], ids[i + 1], &now) && (at < 0 || now.cost < best.cost)) best = now, at = i;
        if (at < 0) return;
        ids[at] = best.id;
        memmove(ids + at + 1, ids + at + 2, (size_t)(*count - at - 2) * sizeof *ids);
        --*count;
    }
}

static void check_merger(tok *t, bool spaced) {
    uint64_t state = 7;
    char text[400];
    for (int round = 0; t && round < 40; round++) {
        int32_t *ids = NULL, slow[402];
        int count = 0, size = test_random_int(&state, 1, (int)sizeof text);
        for (int i = 0; i < size; i++) text[i] = "eta oinshr"[test_random_int(&state, 0, 9)];
        for (int i = 0; i < size; i++)
            if (!spaced && text[i] == ' ') text[i] = 'e';
        CHECK(!tok_encode(t, text, (size_t)size, false, &ids, &error));
        if (t->llama2) slow[count++] = tok_word_id(t, " ");
        arrsetlen(t->scratch, (size_t)t->longest + 8);  // as an encoding has it
        for (int i = 0; i < size; i++) {
            char one[2] = {text[i], 0};
            slow[count++] = t->llama2 ? tok_word_id(t, one) : t->byte_id[(unsigned char)text[i]];
        }
        slow_merge(t, slow, &count);
        CHECK_INT(arrlen(ids), count);
        CHECK(arrlen(ids) == count && !memcmp(ids, slow, (size_t)count * sizeof *slow));
        arrfree(ids);
    }
}

TEST(the_heap_merges_as_the_definition_does) {
    tok *t = load("examples/tiny42/tokenizer.json", 0);
    if (t) check_merger(t, false);  // one word: the expression does not cut it
    tok_free(t);
}

TEST(long_text_without_spaces_is_fast) {
    enum { SIZE = 100000 };
    static char text[SIZE];
    tok *t = load("examples/tiny42/tokenizer.json", 0);
    uint64_t state = 3;
    for (int kind = 0; t && kind < 3; kind++) {  // letters that merge, equal letters, nothing but spaces
        int32_t *ids = NULL;
        for (int i = 0; i < SIZE; i++)
            text[i] = kind == 0 ? "etaoinshrd"[test_random_int(&state, 0, 9)] : kind == 1 ? 'e' : ' ';
        alarm(60);  // it takes milliseconds, and a quadratic merger minutes: SIGALRM ends the test, however busy we are
        CHECK_MSG(!tok_encode(t, text, SIZE, false, &ids, &error), "%s", error.text);
        alarm(0);
        CHECK(arrlen(ids) > 0);
        arrfree(ids);
        CHECK(round_trip(t, text, SIZE));
    }
    tok_free(t);
}

TEST(a_stream_holds_back_incomplete_characters) {
    tok *t = load(write_parts(&(parts){0}), 0);
    const unsigned char bytes[] = {'a', 0xF0, 0x9F, 0x98, 0x80, 0xC3, 'b', 0xE2, 0x82};
    const size_t sizes[] = {1, 0, 0, 0, 4, 0, 4, 0, 0};  // C3 becomes U+FFFD before b
    tok_stream stream = {.t = t};
    for (int i = 0; t && i < 9; i++) {
        CHECK_INT(tok_stream_next(&stream, bytes[i]).size, sizes[i]);
        CHECK_INT(stream.before, i == 6);
    }
    tok_text rest = tok_stream_end(&stream);
    CHECK(rest.size == 3 && !memcmp(rest.data, "\xEF\xBF\xBD", 3));
    CHECK_INT(tok_stream_end(&stream).size, 0);
    CHECK_INT(tok_stream_next(&stream, 100000).size, 0);  // beyond the vocabulary
    CHECK_INT(tok_stream_next(&stream, -1).size, 0);
    tok_stream_free(&stream);
    tok_free(t);
}

TEST(added_tokens_match_the_longest) {
    parts p = TEST_LIST(.vocab = ",\"<s>\":256", .added = "[{\"id\":256,\"content\":\"<s>\",\"special\":true},"
                                                          "{\"id\":257,\"content\":\"<s><s>\",\"special\":false},"
                                                          "{\"id\":258,\"content\":\"\\u00e9\\ud83d\\ude00\"}]");
    tok *t = load(write_parts(&p), 259);
    if (!t) return;
    CHECK_STR(ids_of(t, "a<s>b<s><s><s><x>\xC3\xA9\xF0\x9F\x98\x80"), "97,256,98,257,256,60,120,62,258");
    CHECK_STR(ids_of(t, "<s>"), "256");
    CHECK(round_trip_text(t, "a<s>b<s><s><s>\xC3\xA9\xF0\x9F\x98\x80"));
    tok_stream stream = {.t = t, .skip_special = true};
    CHECK_INT(tok_stream_next(&stream, 256).size, 0);
    CHECK_INT(tok_stream_next(&stream, 257).size, 6);
    tok_stream_free(&stream);
    tok_free(t);
}

TEST(merges_as_pairs_and_as_strings) {
    parts p = {.vocab = ",\"ab\":256,\"abc\":257,\"\\u0120a\":258,\"bc\":259"};
    const char *spelled[] = {"[[\"a\",\"b\"],[\"\\u0120\",\"a\"],[\"ab\",\"c\"],[\"b\",\"c\"]]",
                             "[\"a b\",\"\\u0120 a\",\"ab c\",\"b c\"]"};
    for (int i = 0; i < 2; i++) {
        p.merges = spelled[i];
        check_ids(&p, "abc", "257");
        check_ids(&p, "xbc abc", "120,259,32,257");  // a b comes before the space and a
        check_ids(&p, " a", "258");
        check_ids(&p, "aab", "97,256");
    }
}

TEST(ignore_merges_takes_whole_pieces) {
    parts p = {.vocab = ",\"xyz\":256,\"\\u0120xyz\":257"};
    for (int on = 0; on < 2; on++) {
        p.model = on ? "\"ignore_merges\":true," : "\"ignore_merges\":false,";
        check_ids(&p, "xyz xyz", on ? "256,257" : "120,121,122,32,120,121,122");
        check_ids(&p, "xyzz", "120,121,122,122");
    }
}

// With every two equal neighbours merged, ids show where the text was cut.
TEST(the_default_expression_is_that_of_gpt2) {
    parts p = {.pre = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}",
               .vocab = ",\"aa\":256,\"11\":257,\"\\u0120\\u0120\":258,\"\\u0120a\":259,\"'a\":260,\"'s\":261",
               .merges = "[\"a a\",\"1 1\",\"\\u0120 \\u0120\",\"\\u0120 a\",\"' a\",\"' s\"]"};
    check_ids(&p, "aa11", "256,257");
    check_ids(&p, "a   a", "97,258,259");  // the last space goes with the word
    check_ids(&p, "a's'a", "97,261,39,97");
}

TEST(several_splits_apply_in_turn) {
    parts p = {.pre = LIST(SPLIT_BY("-") "," SPLIT_BY("aa") "," LEVEL),
               .vocab = ",\"aa\":256,\"aaa\":257,\"--\":258,\"-a\":259",
               .merges = "[\"- a\",\"- -\",\"a a\",\"aa a\"]"};
    check_ids(&p, "--aaa", "45,45,256,97");
}

// As SmolLM2 has it: digits stand alone, in any script.
TEST(digits_and_punctuation_stand_alone) {
    parts p = {.vocab = ",\"aa\":256,\"11\":257,\"\\u0120\\u0120\":258,\"$$\":259,\"--\":260",
               .merges = "[\"a a\",\"1 1\",\"\\u0120 \\u0120\",\"$ $\",\"- -\"]"};
    static const struct {
        const char *pre, *ids;
    } forms[] = {{LIST("{\"type\":\"Digits\",\"individual_digits\":true}," LEVEL), "256,49,49,259,260,256"},
                 {LIST("{\"type\":\"Digits\",\"individual_digits\":false}," LEVEL), "256,257,259,260,256"},
                 {LIST("{\"type\":\"Punctuation\",\"behavior\":\"Isolated\"}," LEVEL), "256,257,36,36,45,45,256"}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        p.pre = forms[i].pre;
        check_ids(&p, "aa11$$--aa", forms[i].ids);
    }
}

TEST(a_normalizer_may_be_a_sequence) {
    check_ids(&(parts){.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[]}"}, "e\xCC\x81", "101,204,129");
    check_ids(&(parts){.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}]}"}, "e\xCC\x81",
              "195,169");
}

// Each text, and what Unicode and Python's unicodedata make of it.
TEST(nfc_is_that_of_unicode) {
    static const char *const texts[][2] = {
        {"na\u00efve \u65e5\u672c \U0001F600\uFE0F 1\uFE0F\u20E3",
         "na\u00efve \u65e5\u672c \U0001F600\uFE0F 1\uFE0F\u20E3"},
        {"\u0928\u092e\u0938\u094d\u0924\u0947 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
         "\u0928\u092e\u0938\u094d\u0924\u0947 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35"},
        {"e\u0301 ok \u212B \u0344", "\u00e9 ok \u00c5 \u0308\u0301"},
        {"a\u0323\u0307 a\u0307\u0323 q\u0307\u0323", "\u1ea1\u0307 \u1ea1\u0307 q\u0323\u0307"},  // marks are sorted
        {"\u1100\u1161 \u1112\u1161\u11ab \uac00\u11a8", "\uac00 \ud55c \uac01"},                  // Hangul
        {"\u0958 \u0915\u093c \u09c7\u09be \u2f800", "\u0915\u093c \u0915\u093c \u09cb \u2f800"},  // never composed
        {"e\xFF\u0301 e\u0301\xC3", "e\xFF\u0301 \u00e9\xC3"},  // not across other bytes
    };
    tok *t = load(write_parts(&(parts){.normalizer = "{\"type\":\"NFC\"}"}), 0),
        *plain = load(write_parts(&(parts){0}), 0);
    for (size_t i = 0; t && plain && i < sizeof texts / sizeof *texts; i++) {
        CHECK_STR(ids_of(t, texts[i][0]), ids_of(plain, texts[i][1]));
        CHECK_STR(ids_of(t, texts[i][1]), ids_of(plain, texts[i][1]));
        CHECK(nfc_is(texts[i][0], strlen(texts[i][0])) == (i < 2));
    }
    tok_free(t), tok_free(plain);
}

TEST(bos_comes_from_the_post_processor) {
    parts p = {.vocab = ",\"<s>\":256",
               .added = S_TOKEN(256),
               .post = "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"}," TEMPLATE("<s>") "]}"};
    tok *t = load(write_parts(&p), 0);
    if (!t) return;
    CHECK_STR(encoded(t, "a", 1, true), "256,97");
    CHECK_STR(encoded(t, "a", 1, false), "97");
    CHECK_STR(encoded(t, "", 0, true), "256");
    tok_free(t);
    // As Qwen3's models of embeddings have it.
    p.post = "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"<"
             "s>\"}}]}";
    if ((t = load(write_parts(&p), 0))) CHECK_STR(encoded(t, "a", 1, true), "97,256");
    tok_free(t);
}

// The bos_token_id of config.json counts for nothing: transformers writes one where no text has ever had one.
TEST(the_tokenizer_says_whether_text_has_a_bos) {
    llm42_model model = {.config = {.arch = LLM42_ARCH_LLAMA, .vocab = 2048, .bos = 1}};
    parts p = {.vocab = ",\"<s>\":256", .added = S_TOKEN(256)};
    tok *t = NULL;
    const char *path = write_parts(&p);
    test_write_text(test_file("tokenizer_config.json"), "{\"add_bos_token\": true, \"bos_token\": \"<s>\"}");
    CHECK_MSG(!tok_open(&t, &model, NULL, path, &error), "%s", error.text);
    CHECK_INT(t ? t->bos : -2, -1);  // transformers 5 ignores add_bos_token
    tok_free(t);
    test_remove(test_file("tokenizer_config.json"));
    CHECK_MSG(!tok_open(&t, &model, "examples/tiny42", NULL, &error), "%s", error.text);
    CHECK_INT(t ? t->bos : -2, 0);
    tok_free(t);
    model.config.vocab = 2047;
    CHECK_ERROR(tok_open(&t, &model, "examples/tiny42", NULL, &error), LLM42_FORMAT, "2048 tokens");
    CHECK_INT(tok_open(&t, &model, "synthetic:tiny", NULL, &error), LLM42_INVALID);
    CHECK_INT(tok_open(&t, &model, "no/such/folder", NULL, &error), LLM42_IO);
}

// Each file is refused by a line that names what is wrong in it.
TEST(bad_json_is_refused) {
    static const struct {
        const char *name;
        size_t at;
    } fields[] = {
#define FIELD(name) {#name, offsetof(parts, name)}
        FIELD(normalizer), FIELD(pre),   FIELD(post),   FIELD(decoder), FIELD(type),
        FIELD(model),      FIELD(vocab), FIELD(merges), FIELD(added)};
#undef FIELD
    for (char **c; (c = test_case("tokenizer", "bad")) != NULL;) {
        parts p = {0};
        for (char **part = c + 2; **part; part += 2)
            for (int f = 0; f < 9; f++)
                if (!strcmp(*part, fields[f].name)) memcpy((char *)&p + fields[f].at, &part[1], sizeof part[1]);
        if (!strcmp(c[2], "lacks")) p.lacks = atoi(c[3]);
        refused(write_parts(&p), 0, test_result(c[0]), c[1]);
    }
}

TEST(malformed_json_is_refused) {
    static const char bad[] =  // each ends in a newline
        "\n \n{\n}\n[\n]\n{]\n[}\n{}}\n{} {}\n{\"a\"}\n{\"a\":}\n{\"a\":1,}\n{\"a\":1 \"b\":2}\n{a:1}\n{1:1}\n"
        "{\"a\":1,,\"b\":2}\n[1 2]\n[1,,2]\n[,1]\n[1,]\n{\"a\":tru}\n{\"a\":+1}\n{\"a\":nan}\n{\"a\":\"\\x\"}\n"
        "{\"a\":\"\\u12\"}\n{\"a\":\"\\ud800\"}\n{\"a\":\"\\udc00\"}\n{\"a\":\"\\ud800\\u0041\"}\n"
        "{\"a\":\"\\u0000\"}\n{\"a\":\"\xFF\"}\n{\"a\":\"\xC3\"}\n{\"a\":\"b}\n\"a\n{\"a\" 1}\n{\"a\":1:2}\n:\n,\n"
        "[:]\n{\"a\",\"b\"}\n[\"a\":1]\n{[]:1}\n{\"a\":1}x\n\xEF\xBB{}\n{\xEF\xBB\xBF}\n";
    const char *path = test_file("bad.json");
    char deep[4096];
    for (const char *line = bad; *line; line += strcspn(line, "\n") + 1) {
        test_write(path, line, strcspn(line, "\n"));
        const int64_t failed = test_state.failed;
        refused(path, 0, LLM42_FORMAT, "malformed JSON");
        if (test_state.failed > failed) printf("accepted: %.*s\n", (int)strcspn(line, "\n"), line);
    }
    for (int i = 0; i < 4096; i++) deep[i] = i < 2048 ? '[' : ']';
    test_write(path, deep, sizeof deep);
    refused(path, 0, LLM42_FORMAT, "deep");
    test_write(path, "{\"a\":1}\0{}", 10);
    refused(path, 0, LLM42_FORMAT, "");
    test_write_text(path, "{\"a\":\"b\n\"}");
    refused(path, 0, LLM42_FORMAT, "malformed JSON");
    test_write_text(path, "{\"a\":1}");
    refused(path, 0, LLM42_FORMAT, "model");
    test_write_text(path, "[]");
    refused(path, 0, LLM42_FORMAT, "");
    refused(test_file("absent.json"), 0, LLM42_IO, "absent.json");
    refused(test_scratch(), 0, LLM42_IO, "");
}

TEST(numbers_in_another_locale) {
    const char *path = test_file("number.json");
    if (!test_decimal_comma(test_scratch())) {
        SKIP("no locale with a decimal comma, and localedef makes none");
        return;
    }
    test_write_text(path, "{\"a\":1.5}");
    refused(path, 0, LLM42_FORMAT, "model");  // which is missing; the number is one
    setlocale(LC_NUMERIC, "C");
}

// No prefix and no changed byte of a good file may do worse than be refused.
TEST(damaged_json_does_no_harm) {
    size_t size = 0;
    char *whole = test_read("examples/tiny42/tokenizer.json", &size), *small = NULL;
    static const char damaged[] = "ab <s>\xC3\xA9";
    const char *path = test_file("damaged.json");
    tok *t = NULL;
    uint64_t state = 11;
    if (!CHECK(whole)) return;
    for (size_t cut = 0; cut + 2 < size; cut += 1 + size / 60) {
        test_write(path, whole, cut);
        refused(path, 0, LLM42_FORMAT, "");
    }
    free(whole);
    parts p = {.vocab = ",\"ab\":256", .merges = "[\"a b\"]", .added = S_TOKEN(257)};
    small = test_read(write_parts(&p), &size);
    for (int round = 0; small && round < 3000; round++) {
        size_t at = (size_t)test_random_int(&state, 0, (int)size - 1);
        char old = small[at], any = (char)test_random_int(&state, 0, 255);
        small[at] = round % 2 ? any : "[]{}\",:\\01u "[(unsigned char)any % 12];
        test_write(path, small, size);
        bool has_all = !tok_load(&t, path, 0, &error);
        for (const char *c = damaged; has_all && *c; c++) has_all = t->byte_id[(unsigned char)*c] >= 0;
        const bool same = t && round_trip_text(t, damaged);
        CHECK(same || !has_all);
        tok_free(t);
        small[at] = old;
    }
    free(small);
}

// Pipelines ---------------------------------------------------------------------------------------------------------

#define MARK "\xE2\x96\x81"
#define LLAMA_NORMALIZER                                                                       \
    "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"" MARK "\"}," \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" MARK "\"}]}"
#define UNMARK "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" MARK "\"},\"content\":\" \"}"
#define LLAMA_DECODER                                                   \
    DECODERS(UNMARK ",{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}," \
                    "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}")
#define BYTES "\"byte_fallback\":true,"
#define METASPACE(scheme, split) \
    "{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":\"" scheme "\",\"split\":" split "}"
#define ALWAYS METASPACE("always", "true")
// A tokenizer such as sentencepiece makes them: characters, bytes for the others, and U+2581 for a space.
static const char *write_characters(const char *normalizer, const char *pre, const char *decoder, const char *model,
                                    const char *added) {
    static const char *const words[] = {MARK,  "a",          "b",        "c",         (MARK "a"), "ab", (MARK "ab"),
                                        "abc", (MARK "abc"), "\xC3\xA9", (MARK MARK), "1",        "-",  ("a" MARK)};
    static char text[1 << 14];
    size_t at = (size_t)snprintf(
        text, sizeof text,
        "{\"normalizer\":%s,\"pre_tokenizer\":%s,\"decoder\":%s,\"added_tokens\":[%s],\"model\":{"
        "\"type\":\"BPE\",%s\"vocab\":{\"<unk>\":0,\"<s>\":1,\"</s>\":2",
        or (normalizer, "null"), or (pre, "null"), or (decoder, DECODERS("{\"type\":\"Fuse\"}")),
        or (added, "{\"id\":1,\"content\":\"<s>\",\"special\":true}"), or (model, ""));
    for (int b = 0; b < 256; b++)
        at += (size_t)snprintf(text + at, sizeof text - at, ",\"<0x%02X>\":%d", (unsigned)b, 3 + b);
    for (int w = 0; w < (int)(sizeof words / sizeof *words); w++)
        at += (size_t)snprintf(text + at, sizeof text - at, ",\"%s\":%d", words[w], 259 + w);
    at += (size_t)snprintf(text + at, sizeof text - at,
                           "},\"merges\":[\"" MARK " a\",\"a b\",[\"" MARK "a\",\"b\"],\"ab c\",\"" MARK
                           "ab c\",\"" MARK " " MARK "\",\"a " MARK "\"]}}");
    const char *path = test_file("characters.json");
    test_write(path, text, at);
    return path;
}

// Ids and texts are those of HF's package tokenizers 0.23.
TEST(pipelines_are_those_of_hf) {
    static const struct {
        const char *normalizer, *pre, *decoder, *model, *added, *text, *ids, *decoded;
    } cases[] = {
        {LLAMA_NORMALIZER, NULL, LLAMA_DECODER, BYTES, NULL, "abc ab", "267,265", "abc ab"},
        {LLAMA_NORMALIZER, NULL, LLAMA_DECODER, BYTES, NULL, "<s>ab<s> abc", "1,265,1,259,267", "<s> ab<s>  abc"},
        {LLAMA_NORMALIZER, NULL, LLAMA_DECODER, BYTES, NULL, "  a \xE6\x97\xA5\n", "269,263,259,233,154,168,13",
         "  a \xE6\x97\xA5\n"},
        {LLAMA_NORMALIZER, NULL, DECODERS(UNMARK ",{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}"), BYTES, NULL, "ab",
         "265", " ab"},
        {NULL, ALWAYS, ALWAYS, BYTES, NULL, "abc a", "267,263", "abc a"},
        {NULL, METASPACE("first", "false"), LLAMA_DECODER, BYTES, NULL, "a<s>a a", "263,1,260,263", "a<s>a a"},
        {NULL, METASPACE("first", "true"), LLAMA_DECODER, BYTES, NULL, "<s>a a ", "1,260,263,259", "<s>a a "},
        {NULL, METASPACE("never", "true"), METASPACE("never", "true"), BYTES, NULL, "a ab", "260,265", "a ab"},
        {NULL, METASPACE("never", "false"), METASPACE("never", "false"), BYTES, NULL, "a ab", "260,265", "a ab"},
        {NULL, ALWAYS, ALWAYS, "\"unk_token\":\"<unk>\",\"fuse_unk\":true,", NULL, "a\xE6\x97\xA5\xE6\x9C\xAC-",
         "263,0,271", "a<unk>-"},
        {NULL, ALWAYS, ALWAYS, "\"unk_token\":\"<unk>\",\"fuse_unk\":false,", NULL, "a\xE6\x97\xA5\xE6\x9C\xAC-",
         "263,0,0,271", "a<unk><unk>-"},
        {NULL, ALWAYS, ALWAYS, NULL, NULL, "a\xE6\x97\xA5\xE6\x9C\xAC-", "263,271", "a-"},
        {NULL, ALWAYS, ALWAYS, "\"ignore_merges\":true,", NULL, "abc", "267", "abc"},
        {NULL, CUT("String", "-", "Removed", "false"), NULL, NULL, NULL, "a-b--c", "260,261,262", "abc"},
        {NULL, CUT("String", "b", "MergedWithPrevious", "false"), NULL, NULL, NULL, "abcbab", "264,262,261,264",
         "abcbab"},
        {NULL, CUT("String", "b", "MergedWithNext", "false"), NULL, NULL, NULL, "abcbab", "260,261,262,261,260,261",
         "abcbab"},
        {NULL, CUT("Regex", "[ab]", "Contiguous", "false"), NULL, NULL, NULL, "abcbab", "264,262,261,264", "abcbab"},
        {NULL, CUT("Regex", "[ab]+", "Removed", "true"), NULL, NULL, NULL, "abcbabc", "264,261,264", "abbab"},
        {NULL, CUT("Regex", "\\\\w+", "Isolated", "false"), NULL, NULL, NULL,
         "a\xCC\x81"
         "b",
         "264", "ab"},
        {NULL, CUT("Regex", "(?<=a)(?=b)", "Isolated", "false"), NULL, NULL, NULL, "abcab", "260,261,262,260,261",
         "abcab"},
        {NULL, "{\"type\":\"Punctuation\",\"behavior\":\"Removed\"}", NULL, NULL, NULL, "a-b", "260,261", "ab"},
        {NULL, NULL, NULL, NULL, "{\"id\":273,\"content\":\"1a\",\"lstrip\":true,\"rstrip\":true}", "b 1a c",
         "261,273,262", "b1ac"},
        {NULL, NULL, NULL, NULL, "{\"id\":273,\"content\":\"bb\",\"single_word\":true}", "bb abb bb1 -bb-",
         "273,264,261,261,261,270,271,273,271", "bbabbbb1-bb-"},
        {LLAMA_NORMALIZER, NULL, LLAMA_DECODER, BYTES, "{\"id\":273,\"content\":\"c c\",\"normalized\":true}",
         "c c ac c", "273,263,262,259,262", "c c ac c"},
        {LLAMA_NORMALIZER, NULL, LLAMA_DECODER, BYTES, "{\"id\":268,\"content\":\"\xC3\xA9\"}",
         "a\xC3\xA9"
         "a",
         "263,268,263", "a\xC3\xA9 a"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tok *t = load(
            write_characters(cases[i].normalizer, cases[i].pre, cases[i].decoder, cases[i].model, cases[i].added), 0);
        int32_t *ids = NULL;
        char *text = NULL;
        if (!t) continue;
        CHECK_STR(ids_of(t, cases[i].text), cases[i].ids);
        CHECK(!tok_encode(t, cases[i].text, strlen(cases[i].text), false, &ids, &error));
        tok_decode(t, ids, (int)arrlen(ids), &text);
        arrput(text, 0);
        CHECK_STR(text, cases[i].decoded);
        arrfree(text), arrfree(ids);
        tok_free(t);
    }
}

// A space at the beginning of an answer is of the text that it follows.
TEST(an_answer_follows_its_prompt) {
    tok *t = load(write_characters(LLAMA_NORMALIZER, "null", LLAMA_DECODER, "\"byte_fallback\":true,", NULL), 0);
    const int32_t prompt[] = {1, 265, 3 + 0xE6};  // <s>, MARK ab and the beginning of a character
    for (int with = 0; t && with < 2; with++) {
        tok_stream stream = {.t = t, .skip_special = true};
        tok_stream_follow(&stream, prompt, with ? 3 : 0);
        CHECK_INT(tok_stream_next(&stream, 265).size, 2 + with);
        CHECK_INT(tok_stream_next(&stream, 265).size, 3);
        CHECK_INT(tok_stream_end(&stream).size, 0);
        tok_stream_free(&stream);
    }
    tok_free(t);
}

TEST(add_prefix_space_and_missing_bytes) {
    parts p = TEST_LIST(.pre = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}",
                        .vocab = ",\"<unk>\":256,\"\\u0120a\":257", .merges = "[\"\\u0120 a\"]",
                        .added = "[{\"id\":256,\"content\":\"<unk>\"}]");
    check_ids(&p, "a<unk>a a", "257,256,257,257");
    p = (parts){.lacks = 'z' + 1, .vocab = ",\"<unk>\":122"};
    check_ids(&p, "azzb", "97,98");
    for (int fuse = 0; fuse < 2; fuse++) {
        p.model = fuse ? "\"unk_token\":\"<unk>\",\"fuse_unk\":true," : "\"unk_token\":\"<unk>\",";
        check_ids(&p, "zazzb", fuse ? "122,97,122,98" : "122,97,122,122,98");
    }
}

TEST(a_byte_order_mark_is_read_over) {
    size_t size = 0;
    char *text = test_read(write_parts(&(parts){0}), &size), *marked = malloc(size + 3);
    const char *path = test_file("marked.json");
    memcpy(marked, "\xEF\xBB\xBF", 3);
    memcpy(marked + 3, text, size);
    test_write(path, marked, size + 3);
    tok *t = load(path, 0);
    if (t) CHECK_STR(ids_of(t, "ab"), "97,98");
    tok_free(t);
    free(text), free(marked);
}

// llama2.c ---------------------------------------------------------------------------------------------------------

typedef struct bin {
    char data[8192];
    size_t size;
} bin;

static void bin_token(bin *b, const char *text, float score) {
    int32_t size = (int32_t)strlen(text);
    memcpy(b->data + b->size, &score, 4);
    memcpy(b->data + b->size + 4, &size, 4);
    memcpy(b->data + b->size + 8, text, (size_t)size);
    b->size += 8 + (size_t)size;
}

// The specials, the bytes, then: 259 " ", a b c, ab bc, " a", abc, and the same as "b" again.
static const char *bin_write(bin *b, int lacks) {
    const int32_t longest = 6;
    static const struct {
        const char *text;
        float score;
    } rest[] = {
        {" ", -9}, {"a", -8}, {"b", -8}, {"c", -8}, {"ab", -2}, {"bc", -1}, {" a", -2}, {"abc", -3}, {"b", 0},
    };
    b->size = 4;
    memcpy(b->data, &longest, 4);
    bin_token(b, "<unk>", 0);
    bin_token(b, "\n<s>\n", 0);
    bin_token(b, "\n</s>\n", 0);
    for (int i = 0; i < 256; i++) {
        char word[8];
        snprintf(word, sizeof word, i == lacks ? "x" : "<0x%02X>", (unsigned)i);
        bin_token(b, word, 0);
    }
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) bin_token(b, rest[i].text, rest[i].score);
    const char *path = test_file("tok.bin");
    test_write(path, b->data, b->size);
    return path;
}

TEST(llama2_merges_by_score) {
    static bin b;
    tok *t = load(bin_write(&b, -1), 268);
    if (!t) return;
    CHECK_STR(encoded(t, "", 0, true), "1");
    CHECK_STR(encoded(t, "a", 1, true), "1,265");
    CHECK_STR(ids_of(t, "abc"), "265,264");  // b c has the best score, then the space and a; a bc is no token
    CHECK_STR(ids_of(t, "cab"), "259,262,263");
    CHECK_STR(ids_of(t, "ab"), "265,261");  // equal scores: the leftmost
    CHECK_STR(ids_of(t, "\xC3\xA9\n"), "259,198,172,13");
    CHECK(round_trip_text(t, "abc"));
    CHECK(round_trip_text(t, "  abc \n\xC3\xA9\xFF\x80\x80"));
    CHECK(round_trip(t, "a\0b", 3));
    tok_stream stream = {.t = t, .skip_special = true};
    CHECK_INT(tok_stream_next(&stream, 1).size, 0);
    CHECK_INT(tok_stream_next(&stream, 265).size, 1);  // the space behind BOS goes
    CHECK_INT(tok_stream_next(&stream, 265).size, 2);
    CHECK_INT(tok_stream_next(&stream, 3 + 0xC3).size, 0);
    CHECK_INT(tok_stream_next(&stream, 3 + 0xA9).size, 2);
    CHECK_INT(tok_stream_next(&stream, 2).size, 0);
    tok_stream_free(&stream);
    tok_free(t);
}

TEST(llama2_files_are_checked) {
    static bin b;
    const char *path = bin_write(&b, -1);
    tok_free(load(path, 0));
    refused(path, 267, LLM42_FORMAT, "268 tokens");
    refused(path, 269, LLM42_FORMAT, "");
    for (size_t cut = 0; cut < b.size; cut += 1 + cut / 40) {
        test_write(path, b.data, cut);
        refused(path, 268, LLM42_FORMAT, "tok.bin");
    }
    const struct {
        size_t at;
        int32_t value;
        const char *names;
    } bad[] = TEST_LIST({0, 0, "longest"}, {0, -1, "longest"}, {0, 3, "length of token 0"},
                        {4, 0x7FC00000, "score of token 0"}, {4, 0x7F800000, "score of token 0"},
                        {8, -1, "length of token 0"}, {8, INT32_MAX, "length of token 0"});
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bin_write(&b, -1);
        memcpy(b.data + bad[i].at, &bad[i].value, 4);
        test_write(path, b.data, b.size);
        refused(path, 0, LLM42_FORMAT, bad[i].names);
    }
    bin_write(&b, -1);
    test_swap_bytes(b.data, 4, 1);
    test_write(path, b.data, b.size);
    refused(path, 0, LLM42_FORMAT, "little-endian");
    refused(bin_write(&b, 0x41), 0, LLM42_FORMAT, "<0x41>");
}

// Wrong ids of `text` among many that threads encode at once with one tokenizer.
static int wrong_ids(const tok *t, const char *text) {
    const size_t size = strlen(text);
    int32_t *right = NULL;
    int wrong = 0;
    CHECK(!tok_encode(t, text, size, true, &right, &error));
#ifdef _OPENMP
#pragma omp parallel for num_threads(4) schedule(dynamic) reduction(+ : wrong)
#endif
    for (int i = 0; i < 4000; i++) {
        int32_t *ids = NULL;
        const size_t count = i % 2 ? size : size / 2;  // every other one is of another text
        if (tok_encode(t, text, count, true, &ids, NULL)) wrong++;
        else if (i % 2 && (arrlen(ids) != arrlen(right) || memcmp(ids, right, arrlenu(ids) * sizeof *ids))) wrong++;
        arrfree(ids);
    }
    arrfree(right);
    return wrong;
}

TEST(threads_share_a_tokenizer) {
    static bin b;
    const parts whole = {.vocab = ",\"xyz\":256,\"\\u0120xyz\":257", .model = "\"ignore_merges\":true,"};
    tok *bytes = load("examples/tiny42/tokenizer.json", 2048), *pieces = load(write_parts(&whole), 0),
        *llama2 = load(bin_write(&b, -1), 268);
    if (!bytes || !pieces || !llama2) return;
    CHECK_INT(wrong_ids(bytes, "It was a dark night, and the Count said nothing to the lady at the window."), 0);
    CHECK_INT(wrong_ids(pieces, "xyz xyz xyz yz xyzz xyz zyx xyz xyz xyz yz xyzz xyz zyx xyz"), 0);
    CHECK_INT(wrong_ids(llama2, "cab abc abcabcabc bcb a bca cab abc abcabcabc bcb a bca abc cba"), 0);
    tok_free(bytes), tok_free(pieces), tok_free(llama2);
}

TEST(stories260K_tokenizer) {
    if (!test_exists("../shared/models/stories260K")) {
        SKIP("no ../shared/models/stories260K");
        return;
    }
    llm42_model model = {.config = {.arch = LLM42_ARCH_LLAMA, .vocab = 512, .bos = 1}};
    tok *t = NULL;
    CHECK_MSG(!tok_open(&t, &model, "../shared/models/stories260K", "../shared/models/stories260K/tok512.bin", &error),
              "%s", error.text);
    if (!t) return;
    CHECK_STR(encoded(t, "Once upon a time", 16, true), "1,403,407,261,378");
    CHECK(round_trip_text(t, "Lily \xE6\x97\xA5 said: \"hi\"\n"));
    check_merger(t, true);
    tok_free(t);
}

TEST_MAIN("test_tokenizer")
