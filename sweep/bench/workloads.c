// workloads.c: requests on the CPU: one stream, and whole workloads by mode and policy.
#include "sweep/bench/bench.h"
#define LLM42_METRICS_IMPLEMENTATION
#include "examples/util/llm42_metrics.h"

enum { MEASURES = 11 };

// >>decode -------------------------------------------------------------------------------------------------------
static int32_t first_token(const llm42_model *model) { return model->config.bos >= 0 ? model->config.bos : 0; }

// Tokens a second of one greedy request, from its first token to its last.
static double decode_rate(const bench *b, llm42_engine *engine, bool deterministic, int tokens) {
    llm42_error error = {0};
    int32_t prompt = first_token(b->model);
    int64_t id = 0;
    llm42_request_desc desc = {.prompt = &prompt,
                               .prompt_count = 1,
                               .max_new_tokens = tokens,
                               .ignore_stop = true,
                               .deterministic = deterministic};
    args_check(llm42_engine_submit(engine, &desc, &id, &error), &error);
    args_run(engine);
    const llm42_request *r = llm42_engine_request(engine, id);
    double rate = (tokens - 1) / (r->last_token - r->first_token);
    args_check(llm42_engine_release(engine, id, &error), &error);
    return rate;
}

void run_decode(bench *b) {
    static const serving_case streams[] = {{0},
                                           {.preset = LLM42_PRESET_DVR},
                                           {.preset = LLM42_PRESET_BEST},
                                           {.preset = LLM42_PRESET_PAPER},
                                           {.preset = LLM42_PRESET_INVARIANT}};
    double rates[MAX_REPEATS];
    int repeats = (int)b->set.repeats, tokens = (int)b->set.decode_tokens;
    if (tokens >= b->model->config.context) tokens = b->model->config.context - 1;
    printf("\none stream, %d tokens, greedy    median tokens/s      lowest     highest\n", tokens);
    for (int m = 0; m < (int)(sizeof streams / sizeof *streams); m++) {
        llm42_engine *engine = NULL;
        llm42_error error = {0};
        llm42_engine_desc desc = b->engine;
        desc.max_context = tokens + 1, desc.max_running = 1;
        if (!case_chosen(b, &streams[m])) continue;
        case_policies(b, &streams[m], &desc);
        case_text text = case_name(&streams[m]);
        const char *name = text.text;
        progress("decode: %s", name);
        args_check(llm42_engine_open(&engine, &desc, &error), &error);
        bool deterministic = streams[m].preset != 0;
        decode_rate(b, engine, deterministic, tokens);
        for (int i = 0; i < repeats; i++) rates[i] = decode_rate(b, engine, deterministic, tokens);
        llm42_engine_close(engine);
        figures f = figures_of(b, "decode", name);
        f.rows = 1, f.tokens_per_s = median(rates, repeats);
        progress(NULL);
        printf("%-32s %15.1f %11.1f %11.1f\n", name, f.tokens_per_s, rates[0], rates[repeats - 1]);
        figures_write(b, &f);
    }
}

// >>workloads ----------------------------------------------------------------------------------------------------
static const serving_case cases[] = {
    {.preset = 0},
    {LLM42_PRESET_DVR, 0},
    {LLM42_PRESET_DVR, 0.1},
    {LLM42_PRESET_DVR, 0.5},
    {LLM42_PRESET_DVR, 1},
    {LLM42_PRESET_BEST, 0.1},
    {LLM42_PRESET_BEST, 0.5},
    {LLM42_PRESET_BEST, 1},
    {LLM42_PRESET_PAPER, 0.1},
    {LLM42_PRESET_PAPER, 0.5},
    {LLM42_PRESET_PAPER, 1},
    {LLM42_PRESET_INVARIANT, 1},
};
enum { CASES = sizeof cases / sizeof *cases };

case_text case_name(const serving_case *c) {
    case_text name;
    const llm42_engine_desc desc = {.preset = c->preset};
    snprintf(name.text, sizeof name.text, "%s", c->preset ? llm42_policy_word(&desc, "preset") : "nondeterministic");
    return name;
}

bool case_chosen(const bench *b, const serving_case *c) {
    const llm42_engine_desc desc = {.preset = c->preset};
    return !c->preset || !b->set.preset || !strcmp(llm42_policy_word(&desc, "preset"), b->set.preset);
}

void case_policies(const bench *b, const serving_case *c, llm42_engine_desc *desc) {
    const settings *s = &b->set;
    desc->preset = c->preset;
    if (!c->preset) desc->policy.mode = LLM42_MODE_NONDETERMINISTIC;
    desc->policy.window = (int)s->served_window, desc->policy.group = (int)s->served_group;
    args_policy(desc, "verifier", s->verifier);
    args_policy(desc, "verify", s->verify);
    args_policy(desc, "prefill", s->prefill);
    args_policy(desc, "chunked", s->chunked);
    llm42_preset_apply(desc);
}

// A case's engine, and what each repeat gave: [measure][repeat], in the order of case_serve.
typedef struct case_run {
    llm42_engine *engine;
    llm42_metrics metrics;
    double value[MEASURES][MAX_REPEATS];
} case_run;

static void on_event(void *user, const llm42_event *event) { llm42_metrics_event(&((case_run *)user)->metrics, event); }

static llm42_engine *case_open(const bench *b, const serving_case *c, case_run *run) {
    llm42_error error = {0};
    llm42_engine_desc desc = b->engine;
    desc.max_context = (int)(b->set.input_tokens + b->set.output_tokens);
    desc.auto_release = run != NULL;
    desc.on_event = run ? on_event : NULL;
    desc.event_user = run;
    llm42_engine *engine = NULL;
    case_policies(b, c, &desc);
    args_check(llm42_engine_open(&engine, &desc, &error), &error);
    return engine;
}

void make_prompts(const bench *b, int32_t *prompts) {
    int64_t count = b->set.requests, length = b->set.input_tokens, id = 0;
    const serving_case invariant = {.preset = LLM42_PRESET_INVARIANT};
    llm42_engine *engine = case_open(b, &invariant, NULL);
    llm42_error error = {0};
    int32_t first = first_token(b->model);
    for (int64_t i = 0; i < count && length > 1; i++) {
        llm42_request_desc desc = {.prompt = &first,
                                   .prompt_count = 1,
                                   .max_new_tokens = (int)length - 1,
                                   .ignore_stop = true,
                                   .sampling = {.temperature = 1, .seed = (uint64_t)i + 1}};
        args_check(llm42_engine_submit(engine, &desc, &id, &error), &error);
    }
    progress("workloads: making prompts");
    args_run(engine);
    for (int64_t i = 0; i < count; i++) {
        prompts[i * length] = first;
        if (length > 1)
            memcpy(prompts + i * length + 1, llm42_engine_request(engine, i + 1)->tokens,
                   (size_t)(length - 1) * sizeof *prompts);
    }
    llm42_engine_close(engine);
}

// All requests at once; repeat -1 warms up.
static void case_serve(const bench *b, const serving_case *c, case_run *run, const int32_t *prompts, int repeat) {
    llm42_error error = {0};
    int64_t length = b->set.input_tokens;
    llm42_stats before = llm42_engine_stats(run->engine);
    double arrival = llm42_engine_now(run->engine);
    for (int64_t i = 0; i < b->set.requests; i++) {
        bool deterministic = floor((double)(i + 1) * c->ratio + 1e-9) > floor((double)i * c->ratio + 1e-9);
        llm42_request_desc desc = {.prompt = prompts + i * length,
                                   .prompt_count = (int)length,
                                   .ignore_stop = true,
                                   .max_new_tokens = (int)b->set.output_tokens,
                                   .deterministic = deterministic,
                                   .sampling = {.temperature = (float)b->set.temperature,
                                                .seed = b->set.temperature > 0 ? (uint64_t)i + 1 : 0},
                                   .arrival = arrival};
        int64_t id = 0;
        args_check(llm42_engine_submit(run->engine, &desc, &id, &error), &error);
    }
    args_run(run->engine);
    llm42_stats after = llm42_engine_stats(run->engine);
    llm42_metrics *m = &run->metrics;
    double busy = 0, passes = 0;
    for (int s = 0; s < LLM42_SCHEDULE_COUNT; s++)
        busy += after.busy[s] - before.busy[s], passes += (double)(after.passes[s] - before.passes[s]);
    double value[MEASURES] = {(double)m->output_tokens / (m->end - m->begin),
                              100.0 * (double)m->recomputed / (double)m->output_tokens,
                              (double)m->rollbacks,
                              100 * (after.replay_busy - before.replay_busy) / busy,
                              1e3 * llm42_metrics_percentile(&m->ttft, 50),
                              1e3 * llm42_metrics_percentile(&m->ttft, 99),
                              1e3 * llm42_metrics_percentile(&m->itl, 50),
                              1e3 * llm42_metrics_percentile(&m->itl, 99),
                              1e3 * llm42_metrics_percentile(&m->latency, 50),
                              1e3 * llm42_metrics_percentile(&m->latency, 99),
                              1e3 * busy / passes};
    for (int i = 0; i < MEASURES && repeat >= 0; i++) run->value[i][repeat] = value[i];
    llm42_metrics_free(m);
    *m = (llm42_metrics){0};
}

static void case_report(const bench *b, const serving_case *c, case_run *run, double baseline) {
    int repeats = (int)b->set.repeats;
    const llm42_engine_desc *config = llm42_engine_config(run->engine);
    double v[MEASURES];
    for (int i = 0; i < MEASURES; i++) v[i] = median(run->value[i], repeats);
    case_text name = case_name(c);
    figures f = figures_of(b, "workloads", name.text);
    f.deterministic_ratio = c->ratio, f.window = config->policy.window, f.group = config->policy.group;
    f.tokens_per_s = v[0], f.relative_pct = 100 * v[0] / baseline, f.recompute_pct = v[1], f.rollbacks = v[2];
    f.replay_time_pct = v[3], f.ttft_p50_ms = v[4], f.ttft_p99_ms = v[5], f.itl_p50_ms = v[6], f.itl_p99_ms = v[7];
    f.latency_p50_ms = v[8], f.latency_p99_ms = v[9], f.ms = v[10];
    printf("%-18s %7.1f %9.0f %6.1f %6.2f %6.1f %6.0f %7.1f %7.1f %7.2f %7.2f %7.0f %7.0f\n", name.text, c->ratio, v[0],
           f.relative_pct, v[1], v[3], v[2], v[4], v[5], v[6], v[7], v[8], v[9]);
    figures_write(b, &f);
}

void check_lengths(const bench *b) {
    if (b->set.input_tokens + b->set.output_tokens > b->model->config.context)
        args_fail(2, "--input-tokens and --output-tokens: their sum is beyond the model's context of %d",
                  b->model->config.context);
}

void run_workloads(bench *b) {
    settings *s = &b->set;
    check_lengths(b);
    int32_t *prompts = allocate((size_t)(s->requests * s->input_tokens) * sizeof *prompts);
    make_prompts(b, prompts);
    case_run *runs = allocate(CASES * sizeof *runs);
    memset(runs, 0, CASES * sizeof *runs);
    for (int w = 0; w < CASES; w++)
        if (case_chosen(b, &cases[w])) runs[w].engine = case_open(b, &cases[w], &runs[w]);
    // Repeats go round all workloads, so that a slow minute of the machine does not fall on one of them.
    for (int r = -1; r < (int)s->repeats; r++)
        for (int w = 0; w < CASES; w++) {
            if (!runs[w].engine) continue;
            progress("workloads: round %d of %d, %s %g", r + 2, (int)s->repeats + 1, case_name(&cases[w]).text,
                     cases[w].ratio);
            case_serve(b, &cases[w], &runs[w], prompts, r);
        }
    progress(NULL);
    printf("\nworkloads: %d requests at once, %d tokens in, %d out; at most %d run at a time\n", (int)s->requests,
           (int)s->input_tokens, (int)s->output_tokens, llm42_engine_config(runs[0].engine)->max_running);
    static const char *const head[2][13] = {
        {"", "deter-", "output", "", "recom-", "replay", "roll-", "TTFT", "ms", "ITL", "ms", "latency", "ms"},
        {"preset", "minist.", "tokens/s", "% rel", "pute %", "% time", "backs", "p50", "p99", "p50", "p99", "p50",
         "p99"}};
    static const int width[13] = {-18, 7, 9, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7};
    head_print(&head[0][0], width, 13);
    head_print(&head[1][0], width, 13);
    double baseline = median(runs[0].value[0], (int)s->repeats);
    for (int w = 0; w < CASES; w++)
        if (runs[w].engine) case_report(b, &cases[w], &runs[w], baseline);
    for (int w = 0; w < CASES; w++) llm42_engine_close(runs[w].engine);
    free(runs);
    free(prompts);
}
