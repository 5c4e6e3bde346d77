// scoring.c: the log-probabilities of a finished text (see scoring.h).
#define _POSIX_C_SOURCE 200809L
#include "scoring.h"

void *scoring_get(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory) args_fail(args_went_wrong, "out of memory");
    return memory;
}

scoring scoring_of(const llm42_engine_desc *engine, llm42_schedule schedule, int rows) {
    scoring s = {.backend = engine->backend, .schedule = schedule, .rows = rows};
    s.desc = (llm42_backend_desc){.model = engine->model,
                                  .backend_desc = engine->backend_desc,
                                  .numerics = engine->numerics,
                                  .tensor_parallel = engine->tensor_parallel,
                                  .max_rows = rows,
                                  .max_context = engine->max_context,
                                  .pages = engine->kv.pages,
                                  .page_size = engine->kv.page_size,
                                  .max_running = engine->max_running,
                                  .fixed_rows = rows,
                                  .schedules = 1u << schedule,
                                  .log = engine->log,
                                  .log_user = engine->log_user};
    if (!s.desc.pages) s.desc.pages = s.desc.max_context / s.desc.page_size + 1;
    return s;
}

void scoring_open(scoring *s) {
    llm42_error error = {0};
    const size_t rows = (size_t)s->desc.max_rows, vocab = (size_t)s->desc.model->config.vocab;
    const int pages = (s->desc.max_context + s->desc.page_size - 1) / s->desc.page_size;
    args_check(s->backend->open(&s->state, &s->desc, &error), &error);
    s->logits = scoring_get(rows * vocab, sizeof *s->logits);
    s->row = scoring_get(rows, sizeof *s->row);
    s->out = scoring_get(rows, sizeof *s->out);
    s->pages = scoring_get((size_t)pages, sizeof *s->pages);
    for (int i = 0; i < pages; i++) s->pages[i] = i;
}

void scoring_close(scoring *s) {
    if (s->state) s->backend->close(s->state);
    free(s->logits);
    free(s->row);
    free(s->out);
    free(s->pages);
    *s = (scoring){0};
}

// Runs a pass. True if the likeliest token after each row is the one that follows in the text.
static bool scoring_run(const scoring *s, const llm42_pass *pass, const int32_t *ids, int count) {
    llm42_error error = {0};
    bool likeliest = true;
    args_check(s->backend->run(s->state, pass, &error), &error);
    for (int i = 0; i < pass->rows; i++) {
        const int at = pass->row[i].position;
        if (!(pass->row[i].flags & LLM42_ROW_SAMPLE)) continue;
        if (pass->out[i].token < 0)
            args_fail(args_went_wrong,
                      "%s: position %d: the logits are not finite: the weights hold NaN or infinity, or overflow",
                      s->desc.model->name, at);
        likeliest &= at + 1 >= count || pass->out[i].token == ids[at + 1];
    }
    return likeliest;
}

int scoring_text(const scoring *s, const int32_t *ids, int count, int prompt, float *logprob) {
    const size_t vocab = (size_t)s->desc.model->config.vocab;
    llm42_seq seq = {.request = 1, .pages = s->pages};
    const bool fixed = s->schedule == LLM42_SCHEDULE_FIXED;
    const bool once = s->keep_logits || s->desc.model->config.recurrent_layers;  // a state would take in rows twice
    int rows = 0;
    for (int begin = 0; begin < count; begin += rows) {
        const bool alone = fixed && begin < prompt;
        rows = alone ? prompt : s->rows < count - begin ? s->rows : count - begin;
        for (int i = 0; i < rows; i++)
            s->row[i] = (llm42_row){0, begin + i, ids[begin + i], begin + i + 1 < prompt ? 0 : LLM42_ROW_SAMPLE};
        llm42_follow_rows(&seq, s->row, rows);
        llm42_pass pass = {.schedule = s->schedule,
                           .rows = rows,
                           .shape = fixed && !alone ? s->rows : rows,
                           .row = s->row,
                           .seq = &seq,
                           .out = s->out,
                           .logits = once ? s->logits : NULL};
        if (!scoring_run(s, &pass, ids, count) && !pass.logits) {
            pass.logits = s->logits;
            scoring_run(s, &pass, ids, count);
        }
        for (int i = 0; i < rows && begin + i + 1 < count; i++) {
            const float *logits = pass.logits ? pass.logits + (size_t)i * vocab : NULL;
            if (!(s->row[i].flags & LLM42_ROW_SAMPLE)) continue;
            if (s->each) s->each(s->user, logits, &s->out[i]);
            const float below = logits ? logits[ids[begin + i + 1]] - logits[s->out[i].token] : 0;
            logprob[begin + i + 1] = below + s->out[i].logprob;
        }
    }
    return rows;
}

void scoring_compare(const scoring *s, const int32_t *prompt, int prompt_count, const int32_t *tokens,
                     const float *logprobs, int count, scored *sum) {
    const size_t all = (size_t)prompt_count + (size_t)count;
    int32_t *ids = scoring_get(all, sizeof *ids);
    float *logprob = scoring_get(all, sizeof *logprob);
    memcpy(ids, prompt, sizeof *ids * (size_t)prompt_count);
    memcpy(ids + prompt_count, tokens, sizeof *ids * (size_t)count);
    scoring_text(s, ids, (int)all, prompt_count, logprob);
    for (int i = 0; i < count; i++) {
        const float its = logprob[prompt_count + i];
        const double difference = fabs(llm42_exp64((double)logprobs[i]) - llm42_exp64((double)its));
        sum->tokens++;
        sum->other += memcmp(&logprobs[i], &its, sizeof its) != 0;
        sum->sum += difference;
        if (difference > sum->largest) sum->largest = difference;
    }
    free(ids);
    free(logprob);
}
