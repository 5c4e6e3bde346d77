// overlap.c: part overlap. Passes in flight give the bits of run, and so do the passes beside them.
#include "rig.h"

enum { FLIGHT = 64, DECODES = 8, BESIDE = 20 };

typedef struct flight {
    rig g;
    llm42_row row[FLIGHT], fast[DECODES];
    llm42_output out[FLIGHT], alone[FLIGHT], fast_out[DECODES];
    float *logits, *want, *fast_logits, *fast_want;
    int32_t *ids;
} flight;

// Decode rows of the other sequences, one pass after the other; the last one's logits stay.
static bool fly_beside(flight *f, int passes) {
    bool ok = true;
    for (int i = 0; i < passes && ok; i++) {
        for (int k = 0; k < DECODES; k++)
            f->fast[k] = (llm42_row){2 + k, 32 + i % 16, f->ids[i % 16 + k], LLM42_ROW_SAMPLE};
        llm42_pass pass = rig_pass(&f->g, LLM42_SCHEDULE_FAST, f->fast, DECODES, f->fast_out, f->fast_logits);
        ok = rig_run(&f->g, &pass);
    }
    return ok;
}

static void check_flight(flight *f, llm42_schedule schedule, const char *what) {
    size_t V = (size_t)f->g.vocab;
    rig *g = &f->g;
    llm42_pass pass = rig_pass(g, schedule, f->row, FLIGHT, f->out, f->logits);
    memset(f->out, 0, sizeof f->out);
    memset(f->logits, 0, FLIGHT * V * sizeof(float));
    if (!CHECK_MSG(g->backend->start(g->state, &pass, &rig_error) == LLM42_OK, "%s: %s", what, rig_error.text)) return;
    rig_error.text[0] = 0;
    llm42_result second = g->backend->start(g->state, &pass, &rig_error);
    CHECK_MSG(second < 0 && rig_error.text[0], "%s: a second pass was sent off beside the first", what);
    CHECK(fly_beside(f, BESIDE));
    int looks = 0;
    llm42_result result = LLM42_IDLE;
    for (double begin = test_seconds(); result == LLM42_IDLE && test_seconds() - begin < 30; looks++)
        result = g->backend->poll(g->state, g->backend->now(g->state) - 1, &rig_error);
    CHECK_MSG(result == LLM42_OK, "%s: the pass did not land: %s", what,
              result < 0 ? rig_error.text : "30 s have gone by");
    CHECK_MSG(!memcmp(f->out, f->alone, sizeof f->out) && !memcmp(f->logits, f->want, FLIGHT * V * sizeof(float)),
              "%s: a pass in flight does not give the bits of run", what);
    CHECK_MSG(!memcmp(f->fast_logits, f->fast_want, DECODES * V * sizeof(float)),
              "%s: fast passes beside one in flight give other bits", what);
    CHECK_MSG(g->backend->start(g->state, &pass, &rig_error) == LLM42_OK, "%s: again: %s", what, rig_error.text);
    CHECK_MSG(g->backend->poll(g->state, INFINITY, &rig_error) == LLM42_OK, "%s: waited for: %s", what, rig_error.text);
    CHECK_MSG(!memcmp(f->logits, f->want, FLIGHT * V * sizeof(float)),
              "%s: a pass waited for does not give the bits of run", what);
    pass.row = &(llm42_row){0, 0, g->vocab, LLM42_ROW_SAMPLE};
    pass.rows = 1;
    result = g->backend->start(g->state, &pass, &rig_error);
    if (result == LLM42_OK) result = g->backend->poll(g->state, INFINITY, &rig_error);
    CHECK_MSG(result < 0, "%s: a pass with a token out of range has landed", what);
}

static void check_overlap(const char *path) {
    llm42_model *model = load_model(path, false);
    flight f = {{0}, {{0}}, {{0}}, {{0, 0}}, {{0, 0}}, {{0, 0}}, NULL, NULL, NULL, NULL, NULL};
    if (!model) return;
    llm42_backend_desc desc = {
        .model = model, .max_rows = FLIGHT, .max_context = 64, .max_running = 2 + DECODES, .overlap = true};
    if (rig_open(&f.g, tested, desc)) {
        size_t V = (size_t)f.g.vocab;
        f.ids = random_ids(64, f.g.vocab, 4);
        f.logits = new_floats(FLIGHT * V), f.want = new_floats(FLIGHT * V);
        f.fast_logits = new_floats(DECODES * V), f.fast_want = new_floats(DECODES * V);
        for (int i = 0; i < FLIGHT; i++) f.row[i] = (llm42_row){i / 32, i % 32, f.ids[i], LLM42_ROW_SAMPLE};
        for (int k = 0; k < DECODES; k++) rig_prefill(&f.g, LLM42_SCHEDULE_FAST, 2 + k, f.ids, 32, 32, NULL);
        for (llm42_schedule schedule = LLM42_SCHEDULE_FIXED; schedule <= LLM42_SCHEDULE_INVARIANT;
             schedule++) {  // of both verifiers
            llm42_pass pass = rig_pass(&f.g, schedule, f.row, FLIGHT, f.alone, f.want);
            CHECK(rig_run(&f.g, &pass) && fly_beside(&f, BESIDE));
            memcpy(f.fast_want, f.fast_logits, DECODES * V * sizeof(float));
            for (int i = 0; i < (options.quick ? 3 : 10); i++) check_flight(&f, schedule, path);
        }
    }
    rig_close(&f.g);
    free(f.ids);
    free(f.logits);
    free(f.want);
    free(f.fast_logits);
    free(f.fast_want);
    llm42_model_free(model);
}

void part_overlap(void) {
    if (!CHECK_MSG(tested->start && tested->poll, "backend %s has no start and poll", tested->name)) return;
    check_overlap("synthetic:tiny");
    check_overlap(main_model());
}
