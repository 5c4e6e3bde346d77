// transcripts.h: tests of transcripts and of the hash of a model. A recorder writes what an engine did, reading gives
// every bit of it again, and a broken file is refused with its line. The hash depends on all that a model computes
// with, and on nothing else. Include "make_model.h" first, and define `error`, and let
// `good` be tests/transcripts/format_1.txt. (test_tools.sh tests build/audit.)
#ifndef LLM42_TRANSCRIPTS_H
#define LLM42_TRANSCRIPTS_H

#ifdef _OPENMP
#include <omp.h>
#endif

#define TINY "examples/tiny42"

// >>hash ---------------------------------------------------------------------------------------------------------
// The first 64 of its bits, which tests compare with those of other models.
static uint64_t hash_of(const llm42_model *model) {
    char hash[LLM42_SHA256_TEXT] = "", half[17];
    CHECK_MSG(llm42_model_sha256(model, hash, &error) == LLM42_OK, "%s", error.text);
    snprintf(half, sizeof half, "%.16s", hash);
    return strtoull(half, NULL, 16);
}

// By both ways of computing it, in pieces of so many bytes.
static void check_sha256(const char *text, size_t size, const char *hex) {
    static const size_t pieces[] = {1, 3, 55, 56, 63, 64, 65, 127, 128, 1000, 1 << 20};
    char is[LLM42_SHA256_TEXT];
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        llm42_sha256 s;
        llm42_sha256_begin(&s);
        for (size_t at = 0; at < size; at += pieces[i])
            llm42_sha256_add(&s, text + at, LLM42__MIN(pieces[i], size - at));
        llm42_sha256_end(s, is);
        CHECK_STR(is, hex);
    }
    llm42_sha256 s;
    llm42_sha256_begin(&s);
    llm42__sha256_plain(s.state, (const unsigned char *)text, size / 64);
    s.bytes = size / 64 * 64;
    llm42_sha256_add(&s, text + s.bytes, size - s.bytes);
    llm42_sha256_end(s, is);
    CHECK_STR(is, hex);
}

// The examples of FIPS 180-4 and of its test vectors.
TEST(sha256_is_that_of_fips_180_4) {
    enum { MILLION = 1000000 };
    char *a = malloc(MILLION);
    if (!CHECK(a != NULL)) return;
    memset(a, 'a', MILLION);
    check_sha256("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check_sha256("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check_sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
                 "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    check_sha256(a, MILLION, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(a);
}

static uint64_t hash_at(const llm42_model_desc *desc) {
    llm42_model *model = NULL;
    if (!CHECK_MSG(llm42_model_load(&model, desc, &error) == LLM42_OK, "%s: %s", desc->path, error.text)) return 0;
    uint64_t hash = hash_of(model);
    llm42_model_free(model);
    return hash;
}

static uint64_t hash_path(const char *path) { return hash_at(&(llm42_model_desc){.path = path}); }

// The known values were computed by another program, from the description in llm42_sha256.h.
TEST(the_hash_of_tiny42_is_known) {
    for (int i = 0; i < 2; i++) {
        llm42_model *model = NULL;
        char hash[LLM42_SHA256_TEXT] = "";
        uint64_t weak = 0;
        if (!CHECK(!llm42_model_load(&model, &(llm42_model_desc){.path = TINY, .no_mmap = i}, &error))) return;
        CHECK_INT(llm42_model_sha256(model, hash, &error), LLM42_OK);
        CHECK_STR(hash, "37403f3c96329b7544b57ff56689a50b08ce17fd083f51075e978058d9e766c4");
        CHECK_INT(llm42_model_hash(model, &weak, &error), LLM42_OK);
        CHECK(weak == 0x4d7d417309660721u);
        CHECK_INT(llm42_model_sha256(model, NULL, &error), LLM42_INVALID);
        CHECK_INT(llm42_model_hash(NULL, &weak, &error), LLM42_INVALID);
        llm42_model_free(model);
    }
}

// The same weights in one file and in two, where a header is padded.
TEST(files_do_not_matter) {
    for (int i = 0; i < TEST_SHAPES; i++) {
        size_t bytes;
        char one[80], two[80];
        snprintf(one, sizeof one, "%s", test_file("one"));
        snprintf(two, sizeof two, "%s", test_file("two"));
        test_model_folder(one, &test_shapes[i]);
        uint64_t hash = hash_path(one);
        test_text header = test_header(&test_shapes[i], &bytes);
        for (int k = 0; k < 24; k++) test_append(&header, " ", 1);
        test_text file = test_safetensors(header.data, test_shapes[i].dtype, bytes);
        test_write(test_path(one, "model.safetensors"), file.data, file.size);
        CHECK_MSG(hash_path(one) == hash, "shape %d, padded", i);
        if (mkdir(two, 0777) == 0) CHECK(rename(test_path(one, "config.json"), test_path(two, "config.json")) == 0);
        test_write(test_path(two, "model.safetensors"), file.data, file.size);
        CHECK_MSG(hash_path(two) == hash, "shape %d, elsewhere", i);
        TEST_TEXTS_FREE(&header, &file);
        test_remove(one);
        test_remove(two);
    }
}

// Every tensor counts: one bit anywhere, and the hash is another one.
TEST(every_weight_matters) {
    for (int i = 0; i < TEST_SHAPES; i++) {
        size_t size, bytes;
        test_shape shape = test_shapes[i];
        test_model_folder(test_scratch(), &shape);
        const char *path = test_file("model.safetensors");
        char *file = test_read(path, &size);
        test_text header = test_header(&shape, &bytes);
        uint64_t before = hash_path(test_scratch());
        int same = 0, tried = 0;
        // The lowest bit of the first and the last value of each tensor.
        for (char *p = header.data; (p = strstr(p, "data_offsets\":[")) != NULL; p++) {
            unsigned long begin, end;
            if (sscanf(p, "data_offsets\":[%lu,%lu", &begin, &end) != 2) break;
            const size_t values = size - bytes,
                         at[] = {values + begin,
                                 values + end - (shape.dtype[0] == 'F' && shape.dtype[1] == '3' ? 4 : 2)};
            for (int k = 0; k < 2; k++, tried++) {
                file[at[k]] ^= 1;
                test_write(path, file, size);
                same += hash_path(test_scratch()) == before;
                file[at[k]] ^= 1;
            }
        }
        CHECK_MSG(tried > 20 && same == 0, "shape %d: %d of %d changed bits kept the hash", i, same, tried);
        free(file);
        test_text_free(&header);
    }
}

TEST(the_configuration_matters_where_it_computes) {
    llm42_model *model = test_load(TINY);
    const llm42_config was = model->config;
    const uint64_t hash = hash_of(model);
    llm42_config *c = &model->config;
#define OTHER(change)                  \
    do {                               \
        *c = was;                      \
        change;                        \
        CHECK(hash_of(model) != hash); \
    } while (0)
    OTHER(c->norm_eps *= 2);
    OTHER(c->rope_theta += 1);
    OTHER(c->rope_factor = 8);
    OTHER(c->rope_low_freq_factor += 1);
    OTHER(c->rope_high_freq_factor += 1);
    OTHER(c->rope_original_context += 1);
    OTHER(c->sliding_window = 7);
    OTHER(c->experts_renorm = !c->experts_renorm);
    OTHER(c->arch = LLM42_ARCH_QWEN2);
    OTHER(c->embed_scale = 12);
    OTHER(c->attention_scale = 12);
    OTHER(c->rope_scale = 1.1);
    OTHER(c->query_beta = 0.1);
    OTHER(c->rope = LLM42_ROPE_LINEAR);
#undef OTHER
    *c = was;
    c->context = 99, c->bos = 7, c->stop_count = 0, c->tied = !c->tied;
    CHECK(hash_of(model) == hash);
    llm42_model_free(model);
}

// A matrix of several parts, by any number of threads.
TEST(threads_do_not_matter) {
    const test_shape wide = {"llama", 5000, 128, 1, 2, 1, 64, 8, 0, false, "F32", "", 0};
    test_model_folder(test_scratch(), &wide);
    uint64_t hash = hash_path(test_scratch());
#ifdef _OPENMP
    const int threads = omp_get_max_threads();
    for (int i = 1; i < 6; i++) {
        omp_set_num_threads(i);
        CHECK(hash_path(test_scratch()) == hash);
    }
    omp_set_num_threads(threads);
#endif
    CHECK(hash != 0);
}

TEST(synthetic_models_are_hashed_by_their_recipes) {
    const uint64_t hash = hash_path("synthetic:tiny");
    CHECK(hash_at(&(llm42_model_desc){.path = "synthetic:tiny", .on_device = true}) == hash);
    const uint64_t mixture = hash_path("synthetic:tiny-moe");
    CHECK(mixture != hash && mixture != hash_path("synthetic:tiny-moe,seed=43"));
    CHECK(hash_at(&(llm42_model_desc){.path = "synthetic:tiny-moe", .on_device = true}) == mixture);
    CHECK(hash_path("synthetic:tiny,seed=42,margin=3") == hash);
    CHECK(hash_path("synthetic:tiny,seed=43") != hash);
    CHECK(hash_path("synthetic:tiny,margin=3.5") != hash);
    CHECK(hash_path("synthetic:tiny,margin=0") != hash);
    // Nothing of such a size is made.
    CHECK(hash_at(&(llm42_model_desc){.path = "synthetic:llama-3.1-70b", .on_device = true}) != hash);
    llm42_model *model = test_load("shape:tiny");
    char none[LLM42_SHA256_TEXT];
    CHECK_ERROR(llm42_model_sha256(model, none, &error), LLM42_INVALID, "shape:tiny: it is a shape without weights");
    llm42_model_free(model);
}

static llm42_model *tiny42;  // for tests that only read it

// >>recording ----------------------------------------------------------------------------------------------------
enum { RECORDED = 8, CANCELLED = 4 };

typedef struct recording {
    llm42_engine *engine;
    llm42_recorder *recorder;
} recording;

static void record_event(void *user, const llm42_event *e) {
    recording *r = user;
    llm42_recorder_event(r->recorder, e);
    if (e->type == LLM42_EVENT_COMMITTED && e->request == CANCELLED && e->info->committed > 5)
        llm42_engine_cancel(r->engine, e->request, NULL);
}

// Even requests are deterministic. They differ in sampling, stop tokens and length.
static void submit_recorded(llm42_engine *engine) {
    static const int32_t prompt[] = {0, 905, 312, 264, 1108, 283, 1767}, stop[] = {13, 280, 15};
    for (int i = 1; i <= RECORDED; i++) {
        llm42_request_desc d = {.prompt = prompt,
                                .prompt_count = 2 + i % 6,
                                .max_new_tokens = i == CANCELLED ? 100 : 12 + i,  // more than one window commits
                                .deterministic = i % 2 == 0,
                                .sample_index = i == 6 ? 5 : 0,
                                .ignore_stop = i != 8};
        if (i > 2) d.sampling = (llm42_sampling){.temperature = 0.1f * (float)i, .top_k = 5 * i, .seed = 1u << i};
        if (i == 6) d.sampling = (llm42_sampling){.temperature = 1, .top_p = 0.9f, .min_p = 0.01f};
        if (i == 7) d.sampling.seed = UINT64_MAX;
        if (i == 8) d.stop = stop, d.stop_count = 3;
        test_submit(engine, d);
    }
}

static void check_answer(const llm42_answer *a, const llm42_request *r, bool all) {
    CHECK(a->deterministic == (all || r->deterministic));
    CHECK_INT(a->finish, r->finish);
    CHECK_INT(a->max_new_tokens, r->max_new_tokens);
    CHECK_BITS(a->sampling.temperature, r->sampling.temperature);
    CHECK_BITS(a->sampling.top_p, r->sampling.top_p);
    CHECK_BITS(a->sampling.min_p, r->sampling.min_p);
    CHECK_INT(a->sampling.top_k, r->sampling.top_k);
    CHECK(a->sampling.seed == r->sampling.seed && a->sampling.seed);
    CHECK(a->stop_count == r->stop_count && !memcmp(a->stop, r->stop, sizeof *a->stop * (size_t)a->stop_count));
    if (!CHECK(a->prompt_count == r->prompt_count && a->count == r->committed)) return;
    CHECK(!memcmp(a->prompt, r->prompt, sizeof *a->prompt * (size_t)a->prompt_count));
    CHECK(!memcmp(a->tokens, r->tokens, sizeof *a->tokens * (size_t)a->count));
    CHECK_INT(strlen(a->digest), 64);
    CHECK(!memcmp(a->logprobs, r->logprobs, sizeof *a->logprobs * (size_t)a->count));
}

// Serves the requests and records them. The caller closes the engine and frees the transcript.
static llm42_transcript *record(llm42_engine_desc desc, llm42_engine **engine, const char *path) {
    recording r = {0};
    llm42_transcript *t = NULL;
    desc.on_event = record_event;
    desc.event_user = &r;
    *engine = r.engine = test_open(&desc);
    CHECK_MSG(!llm42_recorder_open(&r.recorder, path, r.engine, "cuda device: none\n\nlast", &error), "%s", error.text);
    submit_recorded(r.engine);
    CHECK_MSG(llm42_engine_run(r.engine, &error) == LLM42_OK, "%s", error.text);
    CHECK_MSG(llm42_recorder_close(r.recorder, &error) == LLM42_OK, "%s", error.text);
    CHECK_MSG(llm42_transcript_load(&t, path, &error) == LLM42_OK, "%s", error.text);
    return t;
}

TEST(what_is_read_is_what_was_served) {
    static const struct {
        llm42_preset preset;
        llm42_verifier verifier;
        bool keep_fast_kv, logits_fp32;
        int ranks, leaves, sum;  // sum: the leaves that decide
        llm42_dtype compute;
        const char *word, *result;
    } ways[] = {
        {LLM42_PRESET_DVR, 0, 0, 0, 1, 1, 1, LLM42_DTYPE_BF16, "dvr", "canonical"},
        {LLM42_PRESET_BEST, 0, 0, 0, 1, 4, 4, LLM42_DTYPE_FP32, "best", "canonical"},
        {LLM42_PRESET_INVARIANT, 0, 0, 1, 2, 1, 2, LLM42_DTYPE_BF16, "invariant", "canonical"},
        {LLM42_PRESET_PAPER, 0, 0, 0, 1, 1, 1, LLM42_DTYPE_BF16, "paper", "depends on M (verifier fixed)"},
        {LLM42_PRESET_PAPER, LLM42_VERIFIER_INVARIANT, 0, 0, 1, 1, 1, LLM42_DTYPE_BF16, "paper", "canonical"},
        {LLM42_PRESET_DVR, LLM42_VERIFIER_FIXED, 0, 0, 1, 1, 1, LLM42_DTYPE_BF16, "dvr",
         "depends on M (verifier fixed)"},
        {LLM42_PRESET_DVR, 0, 1, 0, 1, 1, 1, LLM42_DTYPE_BF16, "dvr", "depends on other requests (keep_fast_kv)"},
    };
    for (size_t i = 0; i < (TEST_SLOW ? 4 : sizeof ways / sizeof *ways); i++) {
        llm42_engine *engine;
        llm42_engine_desc desc = TEST_LIST(.model = tiny42, .preset = ways[i].preset,
                                           .policy.verifier = ways[i].verifier,
                                           .experiment.keep_fast_kv = ways[i].keep_fast_kv,
                                           .numerics.logits_fp32 = ways[i].logits_fp32,
                                           .numerics.compute = ways[i].compute, .tensor_parallel = ways[i].ranks,
                                           .numerics.leaves = ways[i].leaves, .backend_desc = TEST_THREADS(1),
                                           .max_context = 256);
        llm42_transcript *t = record(desc, &engine, test_file("run.txt"));
        if (t) {
            CHECK_STR(t->model, TINY);
            char hash[LLM42_SHA256_TEXT] = "";
            CHECK_INT(llm42_model_sha256(tiny42, hash, &error), LLM42_OK);
            CHECK_STR(t->model_hash, hash);
            CHECK(t->format == 3 && strlen(t->digest) == 64);
            CHECK_STR(t->arithmetic, "fp32");
            CHECK_STR(t->preset, ways[i].word);
            CHECK_STR(t->result, ways[i].result);
            CHECK_INT(t->numerics.compute, ways[i].compute);
            CHECK_INT(t->numerics.leaves, ways[i].sum);
            CHECK_INT(t->numerics.logits_fp32, ways[i].logits_fp32);
            CHECK_INT(t->numerics.router_fp32, false);
            CHECK_INT(t->count, RECORDED);
        }
        int cancelled = 0, stopped = 0;
        for (int k = 0; t && k < t->count; k++) {
            const llm42_answer *a = &t->answer[k];
            check_answer(a, llm42_engine_request(engine, a->request), ways[i].preset == LLM42_PRESET_INVARIANT);
            cancelled += a->finish == LLM42_FINISH_CANCELLED && a->count < a->max_new_tokens;
            stopped += a->finish == LLM42_FINISH_STOP && a->stop_count == 3;
        }
        CHECK_INT(cancelled, 1);
        CHECK_INT(stopped, 1);
        llm42_transcript_free(t);
        llm42_engine_close(engine);
    }
}

TEST(a_recorder_says_what_it_cannot_do) {
    llm42_recorder *recorder = NULL;
    llm42_engine *engine = test_open(&(llm42_engine_desc){.model = tiny42, .max_context = 64});
    CHECK_ERROR(llm42_recorder_open(&recorder, "/nowhere/at/all", engine, NULL, &error), LLM42_IO,
                "/nowhere/at/all: cannot write: No such file");
    CHECK_INT(llm42_recorder_open(&recorder, NULL, engine, NULL, &error), LLM42_INVALID);
    CHECK_INT(llm42_recorder_open(&recorder, "x", NULL, NULL, &error), LLM42_INVALID);
    CHECK(!recorder);
    CHECK_INT(llm42_recorder_close(NULL, &error), LLM42_OK);
    if (test_exists("/dev/full")) {
        CHECK_INT(llm42_recorder_open(&recorder, "/dev/full", engine, NULL, &error), LLM42_OK);
        CHECK_ERROR(llm42_recorder_close(recorder, &error), LLM42_IO, "/dev/full: writing failed");
    }
    test_state.starve = 1, test_state.asked = 0;
    CHECK_INT(llm42_recorder_open(&recorder, test_file("none"), engine, NULL, &error), LLM42_MEMORY);
    test_state.starve = 0;
    CHECK(!test_exists(test_file("none")));
    llm42_engine_close(engine);
}

// A name that would break a line does not.
TEST(a_name_is_one_line) {
    llm42_model *model = test_load("synthetic:tiny");
    llm42_recorder *recorder = NULL;
    llm42_transcript *t = NULL;
    snprintf(model->name, sizeof model->name, "a\nresult: b\033");
    llm42_engine *engine = test_open(&(llm42_engine_desc){.model = model, .max_context = 64});
    const char *path = test_file("name.txt");
    CHECK_INT(llm42_recorder_open(&recorder, path, engine, NULL, &error), LLM42_OK);
    CHECK_INT(llm42_recorder_close(recorder, &error), LLM42_OK);
    if (CHECK_MSG(llm42_transcript_load(&t, path, &error) == LLM42_OK, "%s", error.text)) {
        CHECK_STR(t->model, "a?result: b?");
        CHECK_INT(t->count, 0);
    }
    llm42_transcript_free(t);
    llm42_engine_close(engine);
    llm42_model_free(model);
}

// >>reading ------------------------------------------------------------------------------------------------------
static char *good;  // a transcript of format 1, which is still read

TEST(a_file_is_read) {
    llm42_transcript *t = NULL;
    if (!CHECK_MSG(llm42_transcript_load(&t, "tests/transcripts/format_1.txt", &error) == LLM42_OK, "%s", error.text))
        return;
    CHECK_STR(t->model_hash, "0123456789abcdef");
    CHECK(t->format == 1 && !t->digest[0] && !t->answer[0].digest[0]);
    CHECK(t->numerics.compute == LLM42_DTYPE_FP32 && t->numerics.logits_fp32 && !t->numerics.router_fp32);
    CHECK_STR(t->arithmetic, "sm90");
    CHECK_INT(t->numerics.leaves, 8);
    CHECK_INT(t->count, 2);
    const llm42_answer *a = t->answer;
    CHECK_INT(a[0].line, 14);
    CHECK_INT(a[0].request, 3);
    CHECK_INT(a[0].stop_count, 2);
    CHECK(a[0].sampling.seed == UINT64_MAX);
    CHECK_BITS(a[0].sampling.top_p, 0.5f);
    CHECK_BITS(a[0].logprobs[0], -1.0f);
    CHECK_INT(a[0].tokens[1], 1);
    CHECK_INT(a[1].count, 0);
    CHECK_INT(a[1].line, 28);
    llm42_transcript_free(t);
}

TEST(a_broken_file_is_refused_with_its_line) {
    const char *path = test_file("bad.txt");
    for (char **c; (c = test_case("transcripts", "broken")) != NULL;) {
        llm42_transcript *t = NULL;
        test_text text = test_replace(good, c[0], c[1]);
        test_write(path, text.data, text.size);
        CHECK_MSG(llm42_transcript_load(&t, path, &error) == LLM42_FORMAT && !t, "%s", c[1]);
        CHECK_CONTAINS(error.text, c[2]);
        CHECK_CONTAINS(error.text, path);
        llm42_transcript_free(t);
        test_text_free(&text);
    }
    llm42_transcript *t = NULL;
    test_text text = test_replace(good, "result: canonical", "result: canonical|depends");
    *strchr(text.data, '|') = 0;  // a string would end here, and the line does not
    test_write(path, text.data, text.size);
    CHECK_ERROR(llm42_transcript_load(&t, path, &error), LLM42_FORMAT,
                ":11: result: 'canonical': must be without a byte 0");
    test_text_free(&text);
    CHECK_INT(llm42_transcript_load(&t, test_file("none.txt"), &error), LLM42_IO);
    CHECK_INT(llm42_transcript_load(&t, NULL, &error), LLM42_INVALID);
}

// A file of format 3: whatever is changed in it, a digest says so. Whoever makes all digests anew is found by an audit.
TEST(every_byte_counts_in_a_digest) {
    llm42_engine *engine = NULL;
    const char *path = test_file("digests.txt");
    size_t size;
    int refused = 0;
    const llm42_engine_desc desc = {.model = tiny42, .backend_desc = TEST_THREADS(1), .max_context = 256};
    llm42_transcript *t = record(desc, &engine, path);
    llm42_transcript_free(t);
    char *text = test_read(path, &size);
    for (size_t i = 0; i < size; i += 7) {
        text[i] ^= 1;
        test_write(path, text, size);
        text[i] ^= 1;
        refused += llm42_transcript_load(&t, path, &error) == LLM42_FORMAT;
    }
    CHECK_INT(refused, (int)((size + 6) / 7));
    test_text more = test_replace(text, "\nfile_digest: ", "\n# more\nfile_digest: ");
    test_write(path, more.data, more.size);
    CHECK_ERROR(llm42_transcript_load(&t, path, &error), LLM42_FORMAT,
                ": must be the digest of the lines before it: some were changed");
    test_text_free(&more);
    free(text);
    llm42_engine_close(engine);
}

// Cut anywhere, and with each allocation failing in turn.
TEST(a_part_of_a_file_is_no_file) {
    const char *path = test_file("part.txt");
    llm42_transcript *t = NULL;
    int loaded = 0;
    for (size_t size = 1; size < strlen(good); size++) {
        test_write(path, good, size);
        loaded += llm42_transcript_load(&t, path, &error) != LLM42_FORMAT;
    }
    CHECK_INT(loaded, 0);
    test_write_text(path, good);
    for (unsigned k = 1; k < 12; k++) {
        test_state.starve = k, test_state.asked = test_state.starved = 0;
        llm42_result result = llm42_transcript_load(&t, path, &error);
        test_state.starve = 0;
        CHECK_INT(result, test_state.starved ? LLM42_MEMORY : LLM42_OK);
        llm42_transcript_free(t);
    }
}

#endif  // LLM42_TRANSCRIPTS_H
