// errors.c: part errors. What goes wrong gives one clear line, and an engine opened afterwards works. See also lost.cu.
#include "rig.h"

// An error's text: one line that names what to look at.
static void check_text(llm42_result result, llm42_result want, const char *names) {
    bool one_line = rig_error.text[0] && !strchr(rig_error.text, '\n') &&
                    strlen(rig_error.text) < sizeof rig_error.text - 1;
    CHECK_MSG(result == want, "%s instead of %s: %s", llm42_result_name(result), llm42_result_name(want),
              rig_error.text);
    CHECK_MSG(one_line, "the error is not one line: '%s'", rig_error.text);
    CHECK_MSG(strstr(rig_error.text, names) != NULL, "the error does not name %s: %s", names, rig_error.text);
    printf("  %s: %s\n", llm42_result_name(result), rig_error.text);
}

static void must_refuse(const llm42_model *model, llm42_backend_desc desc, llm42_result want, const char *names) {
    rig g = {0};
    rig_error = (llm42_error){0};
    desc.model = model;
    if (!desc.max_rows) desc.max_rows = 16;
    if (!desc.max_context) desc.max_context = 16;
    llm42_result result = rig_try(&g, tested, desc);
    CHECK_MSG(result == LLM42_OK || !g.state, "an open that failed left a state behind");
    check_text(result, want, names);
    rig_close(&g);
}

static void engine_works(const llm42_model *model) {
    llm42_engine *engine = NULL;
    const int32_t prompt[] = {3, 1, 4, 1, 5};
    llm42_engine_desc desc = TEST_LIST(.model = model, .backend = tested, .backend_desc = &cuda_desc, .max_context = 64,
                                       .max_running = 2, .policy.window = 8, .policy.group = 2);
    llm42_request_desc ask = {
        .prompt = prompt, .prompt_count = 5, .max_new_tokens = 20, .ignore_stop = true, .deterministic = true};
    CHECK_MSG(!llm42_engine_open(&engine, &desc, &rig_error) && !llm42_engine_submit(engine, &ask, NULL, &rig_error) &&
                  !llm42_engine_run(engine, &rig_error),
              "afterwards: %s", rig_error.text);
    CHECK_MSG(engine && llm42_engine_stats(engine).returned_tokens == 20, "an engine opened afterwards does not work");
    llm42_engine_close(engine);
}

static void check_bad_passes(const llm42_model *model) {
    rig g = {0};
    llm42_output out[17];
    if (!rig_open(&g, tested, (llm42_backend_desc){.model = model, .max_rows = 16, .max_context = 16, .fixed_rows = 8}))
        return;
    const llm42_row bad[] = {{0, 0, g.vocab, LLM42_ROW_SAMPLE},
                             {0, 0, -1, LLM42_ROW_SAMPLE},
                             {0, 16, 0, LLM42_ROW_SAMPLE},
                             {0, -1, 0, LLM42_ROW_SAMPLE},
                             {-1, 0, 0, LLM42_ROW_SAMPLE}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        llm42_row rows[2] = {{0, 0, 1, LLM42_ROW_SAMPLE}, bad[i]};
        llm42_pass pass = rig_pass(&g, LLM42_SCHEDULE_FAST, rows, 2, out, NULL);
        rig_error = (llm42_error){0};
        check_text(g.backend->run(g.state, &pass, &rig_error), LLM42_INVALID, "row 1");
    }
    llm42_row many[17];
    for (int i = 0; i < 17; i++) many[i] = (llm42_row){0, i % 16, 1, LLM42_ROW_SAMPLE};
    const llm42_pass passes[] = {{.schedule = LLM42_SCHEDULE_FAST, .rows = 17, .shape = 17},
                                 {.schedule = LLM42_SCHEDULE_FAST, .rows = 0, .shape = 0},
                                 {.schedule = LLM42_SCHEDULE_FIXED, .rows = 9, .shape = 8},
                                 {.schedule = LLM42_SCHEDULE_COUNT, .rows = 4, .shape = 4}};
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        llm42_pass pass = passes[i];
        pass.row = many;
        pass.seq = g.seq;
        pass.out = out;
        rig_error = (llm42_error){0};
        check_text(g.backend->run(g.state, &pass, &rig_error), i < 3 ? LLM42_INVALID : LLM42_UNSUPPORTED,
                   i < 3 ? "rows" : "schedule");
    }
    int32_t *ids = random_ids(8, g.vocab, 1);
    CHECK(rig_feed(&g, LLM42_SCHEDULE_FIXED, 0, ids, 0, 8, NULL, NULL));  // the state has not suffered
    free(ids);
    rig_close(&g);
}

// Logits that are not finite give no token.
static void check_not_finite(const llm42_model *model) {
    llm42_model copy = *model;
    float *norm = new_floats((size_t)model->config.dim);
    rig g = {0};
    for (int i = 0; i < model->config.dim; i++) norm[i] = NAN;
    copy.final_norm = norm;
    llm42_row row = {0, 0, 1, LLM42_ROW_SAMPLE};
    llm42_output out;
    if (rig_open(&g, tested, (llm42_backend_desc){.model = &copy, .max_rows = 4, .max_context = 16})) {
        llm42_pass pass = rig_pass(&g, LLM42_SCHEDULE_FAST, &row, 1, &out, NULL);
        CHECK_INT(g.backend->run(g.state, &pass, &rig_error), LLM42_OK);
        CHECK_INT(out.token, -1);
    }
    rig_close(&g);
    free(norm);
}

// A model of 400 layers of the 8B shape, 174 GB; a head of 520.
static void check_models(const llm42_model *tiny) {
    enum { LAYERS = 400 };
    llm42_model *model = load_model("synthetic:llama-3.1-8b", true), copy;
    llm42_layer *layers = calloc(LAYERS, sizeof *layers), odd[8];
    if (!model || !layers) return;
    copy = *model;
    for (int i = 0; i < LAYERS; i++) layers[i] = model->layer[i % model->config.layers];
    copy.layer = layers;
    copy.config.layers = LAYERS;
    must_refuse(&copy, (llm42_backend_desc){.max_running = 1}, LLM42_MEMORY, "memory");
    free(layers);
    llm42_model_free(model);
    copy = *tiny;
    assert(copy.config.layers <= 8);
    copy.config.head_dim = 520;
    for (int i = 0; i < copy.config.layers; i++) {
        odd[i] = tiny->layer[i];
        odd[i].q.n = odd[i].o.k = 520 * copy.config.heads;
        odd[i].k.n = odd[i].v.n = 520 * copy.config.kv_heads;
    }
    copy.layer = odd;
    must_refuse(&copy, (llm42_backend_desc){.max_running = 1}, LLM42_UNSUPPORTED, "head_dim");
}

// An algorithm file that cannot be used is written anew or refused in one line that names it; the bits stay the same.
static void check_algorithm_file(const llm42_model *model, const char *what, const char *path, const float *want,
                                 const int32_t *ids, int V) {
    llm42_cuda_desc algorithms = cuda_desc;
    float *logits = new_floats((size_t)(16 * V));
    rig g = {0};
    algorithms.algorithm_file = path;
    rig_error = (llm42_error){0};
    llm42_result result = rig_try(
        &g, tested,
        (llm42_backend_desc){.model = model, .max_rows = 16, .max_context = 16, .backend_desc = &algorithms});
    if (result) {
        CHECK_MSG(strstr(rig_error.text, path) && !strchr(rig_error.text, '\n'),
                  "algorithm file, %s: the error does not name it: %s", what, rig_error.text);
        printf("  algorithm file, %s: %s: %s\n", what, llm42_result_name(result), rig_error.text);
    } else {
        rig_feed(&g, LLM42_SCHEDULE_FIXED, 0, ids, 0, 16, NULL, logits);
        CHECK_MSG(!memcmp(logits, want, sizeof(float) * 16 * (size_t)V),
                  "algorithm file, %s: other bits than without it", what);
        printf("  algorithm file, %s: the backend opens\n", what);
    }
    rig_close(&g);
    free(logits);
}

static void check_algorithm_files(const llm42_model *model) {
    const char *path = test_file("algorithms.tsv");
    int V = model->config.vocab;
    int32_t *ids = random_ids(16, V, 17);
    float *want = new_floats((size_t)(16 * V));
    rig g = {0};
    if (rig_open(&g, tested, (llm42_backend_desc){.model = model, .max_rows = 16, .max_context = 16}))
        rig_feed(&g, LLM42_SCHEDULE_FIXED, 0, ids, 0, 16, NULL, want);
    rig_close(&g);
    check_algorithm_file(model, "new", path, want, ids, V);
    size_t size = 0;
    char *text = test_read(path, &size);
    CHECK_MSG(text && size > 0, "%s was not written", path);
    check_algorithm_file(model, "read again", path, want, ids, V);
    char *again = test_read(path, NULL);  // found anew, it would have other times
    CHECK_MSG(text && again && !strcmp(text, again), "a algorithm file that fits was not read");
    free(again);
    // Plans of another kind of engine, and of one with other numbers of rows, are added and leave these as they are.
    cuda_desc.fast = LLM42_CUDA_FAST_OFFERED;
    check_algorithm_file(model, "of the fastest products, where offered ones are asked for", path, want, ids, V);
    char *offered = test_read(path, NULL);
    check_algorithm_file(model, "of both", path, want, ids, V);
    cuda_desc.fast = LLM42_CUDA_FAST_DEFAULT;
    check_algorithm_file(model, "of both, the first asked for", path, want, ids, V);
    again = test_read(path, NULL);
    CHECK_MSG(text && offered && again && strstr(offered, text) && strstr(offered, "# fast: offered") &&
                  !strcmp(offered, again),
              "a algorithm file does not hold algorithms of two kinds of engines");
    TEST_FREE(offered, again);
    rig wide = {0};
    llm42_cuda_desc algorithms = cuda_desc;
    algorithms.algorithm_file = path;
    if (rig_open(&wide, tested,
                 (llm42_backend_desc){.model = model, .max_rows = 64, .max_context = 64, .backend_desc = &algorithms}))
        rig_close(&wide);
    char *wider = test_read(path, NULL);
    check_algorithm_file(model, "of wider engines", path, want, ids, V);
    again = test_read(path, NULL);
    CHECK_MSG(wider && again && !strcmp(wider, again),
              "a algorithm file does not hold algorithms for other numbers of rows");
    TEST_FREE(wider, again);
    if (text && size > 0) {
        test_write(path, text, size / 2);
        check_algorithm_file(model, "cut in half", path, want, ids, V);
        for (char *p = text; (p = strstr(p, "NVIDIA")) != NULL; p++) memcpy(p, "OTHERS", 6);
        test_write(path, text, size);
        check_algorithm_file(model, "of another device", path, want, ids, V);
        for (size_t i = 0; i < size; i++)
            if (text[i] >= '0' && text[i] <= '9') text[i] = '9';
        test_write(path, text, size);
        check_algorithm_file(model, "with other numbers", path, want, ids, V);
    }
    test_write(path, "\0\xff garbage\n\n\t\t9999999999999999999\n", 36);
    check_algorithm_file(model, "garbage", path, want, ids, V);
    test_write(path, "", 0);
    check_algorithm_file(model, "empty", path, want, ids, V);
    check_algorithm_file(model, "a folder", test_scratch(), want, ids, V);
    check_algorithm_file(model, "in no folder", test_file("none/algorithms.tsv"), want, ids, V);
    TEST_FREE(text, want, ids);
}

void part_errors(void) {
    llm42_model *model = load_model("synthetic:tiny", false), *shape = load_model("shape:tiny", false);
    if (!model || !shape) return;
    must_refuse(model, (llm42_backend_desc){.pages = 1 << 26, .page_size = 4096}, LLM42_MEMORY, "pages");
    must_refuse(shape, (llm42_backend_desc){.max_running = 1}, LLM42_INVALID, "weights");
    must_refuse(model, (llm42_backend_desc){.page_size = 3}, LLM42_INVALID, "page_size");
    must_refuse(model, (llm42_backend_desc){.max_context = 1 << 30, .pages = 1}, LLM42_INVALID, "max_context");
    if (is_cuda()) {
        must_refuse(model, (llm42_backend_desc){.tensor_parallel = 3}, LLM42_INVALID, "tensor_parallel: 3: must be");
        must_refuse(model, (llm42_backend_desc){.numerics.leaves = 3}, LLM42_INVALID, "numerics.leaves: 3: must be");
        must_refuse(model, (llm42_backend_desc){.numerics.compute = LLM42_DTYPE_FP32}, LLM42_UNSUPPORTED, "compute");
        must_refuse(model, (llm42_backend_desc){.backend_desc = &(llm42_cuda_desc){.device = 99}}, LLM42_INVALID,
                    "device");
        must_refuse(model, (llm42_backend_desc){.backend_desc = &(llm42_cuda_desc){.device = -1}}, LLM42_INVALID,
                    "device");
        must_refuse(model, (llm42_backend_desc){.backend_desc = &(llm42_cuda_desc){.fast = (llm42_cuda_fast)9}},
                    LLM42_INVALID, "fast");
        check_models(model);
        check_algorithm_files(model);
    }
    check_bad_passes(model);
    check_not_finite(model);
    engine_works(model);
    llm42_model_free(model);
    llm42_model_free(shape);
}
