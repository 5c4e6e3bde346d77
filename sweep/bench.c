// bench: how fast passes and whole workloads run on the CPU or a GPU, as shares of what the machine can do.
//
//     build/bench                                              everything, on examples/tiny42
//     build/bench --model DIR --threads 2 --out FILE           another model; every figure as TSV too
//     build/bench --model DIR --suite decode                   tokens a second of one greedy stream, and nothing else
//     build/bench --model DIR --calibrate FILE                 the pass times and flip rate that the simulator reads
//     build/bench --backend cuda --suite passes --out FILE     a GPU: passes, stages, prompts, workloads, ...
//
// Ceilings come first, in the same run and with the same threads, because a share of a datasheet's figure says little
// on a shared machine. Every figure is a median of repeats; a ceiling is the best of several medians, since whatever
// disturbs it can only make it smaller.
//
// What is counted. Weights: the matrices that the pass uses, as stored, once a pass; the LM head only where a row is
// sampled; of a mixture, rows x experts_used experts, but not more than the model has. Floating-point operations: 2 x
// the weights that a row uses, for every row; 2 x the LM head for every sampled row; 4 x heads x head size a layer for
// every position that a row attends to. Norms, rotary embedding, softmax and sampling count for nothing. KV bytes are
// not weights; on a GPU the floor of a pass is the time to read both, the KV once for each sequence.
#define _POSIX_C_SOURCE 200809L
#define LLM42_IMPLEMENTATION
#include "examples/util/llm42_synthetic.h"

#define LLM42_TRACE_IMPLEMENTATION
#include "examples/util/llm42_trace.h"
#include "sweep/bench/bench.h"
#include "sweep/lib/workload.h"

const char *compiler_name(void) {
#ifdef __clang__
    return __VERSION__;
#else
    return "gcc " __VERSION__;
#endif
}

void describe(const bench *b, FILE *file, const char *mark) {
    const settings *s = &b->set;
    const llm42_config *c = &b->model->config;
    char cpu[256];
    processor_name(cpu, sizeof cpu);
    if (b->cuda) {
        fprintf(file, "%sllm42 %s bench, CUDA backend; host: %s; compiler: %s\n", mark, LLM42_VERSION, cpu,
                compiler_name());
        args_manifest_print(&b->set.how.manifest, file);
    } else {
        fprintf(file, "%sllm42 %s bench, CPU backend (%s)\n", mark, LLM42_VERSION, llm42_cpu_isa());
        fprintf(file, "%sdevice: %s, %d threads; compiler: %s\n", mark, cpu, (int)s->how.threads, compiler_name());
    }
    fprintf(file, "%smodel: %s: %d layers, width %d, %d/%d heads of %d, feed-forward %d, vocabulary %d; ", mark,
            b->model->name, c->layers, c->dim, c->heads, c->kv_heads, c->head_dim, c->ffn, c->vocab);
    if (c->experts) fprintf(file, "%d of %d experts; ", c->experts_used, c->experts);
    fprintf(file, "%.1f MB of weights in a decode step\n", b->weight_bytes * 1e-6);
    int repeats = b->cuda && s->repeats < CUDA_REPEATS ? CUDA_REPEATS : (int)s->repeats;
    if (s->how.arithmetic) fprintf(file, "%sarithmetic: %s\n", mark, s->how.arithmetic);
    fprintf(file, "%scompute type: %s; medians of at least %d repeats%s\n", mark, s->how.dtype, repeats,
            s->quick ? "; quick" : "");
}

// >>main ---------------------------------------------------------------------------------------------------------
static void tsv_begin(bench *b) {
    if (!b->set.out) return;
    b->tsv = out_begin(b->set.out);
    describe(b, b->tsv, "# ");
    fprintf(b->tsv, "# path: %s; suite: %s\n", b->set.how.model, b->set.suite);
    fprintf(b->tsv, "# workloads: %d requests at once, input %d tokens, output %d tokens; tokens_per_s counts output\n",
            (int)b->set.requests, (int)b->set.input_tokens, (int)b->set.output_tokens);
    fprintf(b->tsv, "# decode: %d tokens of one greedy stream\n", (int)b->set.decode_tokens);
    fprintf(b->tsv, "# prompts: the model's own samples, temperature 1, seeds 1 to %d\n", (int)b->set.requests);
    fprintf(b->tsv, "# memory_share_pct: gb_per_s of weights / the best memory_read_weights_size\n"
                    "# fma_share_pct: gflop_per_s / the best fma_fp32\n");
    figures_columns(b->tsv);
    out_flush(b->tsv, b->set.out);
}

// The suites of a GPU that serve --workload come last: what is wrong with it comes out before the first.
static void check_workload(const settings *s) {
    if (strcmp(s->suite, "all") && strcmp(s->suite, "workloads") && strcmp(s->suite, "online")) return;
    workload w;
    llm42_error error = {0};
    args_check(workload_open(&w, s->workload, "offline", 42, &error), &error);
    workload_close(&w);
}

// What a command line says nothing of; 0 and NULL: it depends on the backend.
static const settings DEFAULTS = {.how = {ENGINE_DEFAULTS},
                                  .suite = "all",
                                  .repeats = 5,
                                  .input_tokens = 64,
                                  .decode_tokens = 256,
                                  .workload = "sharegpt",
                                  .max_running = 256,
                                  .token_budget = 2048,
                                  .online_requests = 512,
                                  .seeds = 5,
                                  .kv_gb = 64,
                                  .qps = 12};

// What the command line leaves open, and --quick.
static void resolve(settings *s) {
    static const char *const suites[] = {"all", "ceilings", "passes", "workloads", "decode", NULL};
    static const char *const cuda_suites[] = {"all",       "passes",        "stages", "prompts",
                                              "workloads", "one-of-eleven", "online", NULL};
    bool cuda = !strcmp(s->how.backend, "cuda");
    args_choice("--suite", s->suite, cuda ? cuda_suites : suites);
    llm42_engine_desc policies = {0};
    args_policy(&policies, "preset", s->preset);
    args_policy(&policies, "verifier", s->verifier);
    args_policy(&policies, "verify", s->verify);
    args_policy(&policies, "prefill", s->prefill);
    args_policy(&policies, "chunked", s->chunked);
    llm42_preset_apply(&policies);
    s->served_window = s->window, s->served_group = s->group;
    bool passes = s->calibrate || s->margins;
    if (!s->window) s->window = passes ? CALIBRATION_W : policies.policy.window;
    if (!s->group) s->group = passes ? CALIBRATION_G : policies.policy.group;
    if (cuda) check_workload(s);
    if (!cuda && (s->how.offered || s->how.algorithm_file || s->how.cuda.no_graphs))
        args_fail(2, "--offered, --algorithm-file, --no-graphs: only with --backend cuda");
    const settings *d = &DEFAULTS;
    bool served = strcmp(s->workload, d->workload) || s->token_budget != d->token_budget || s->kv_gb != d->kv_gb ||
                  s->qps != d->qps || s->online_requests != d->online_requests || s->seeds != d->seeds ||
                  s->max_context != d->max_context;
    if (!cuda && served)
        args_fail(2, "--workload, --max-context, --token-budget, --kv-gb, --qps, --online-requests, --seeds: only "
                     "with --backend cuda");
    if (s->force && !s->calibrate) args_fail(2, "--force: only with --calibrate");
    if (s->margins && s->calibrate) args_fail(2, "--calibrate, --margins: give one of them");
    if (s->prompts && !s->margins && !s->calibrate) args_fail(2, "--prompts: only with --calibrate or --margins");
    if (!s->prompts) s->prompts = "own";
    args_choice("--prompts", s->prompts, (const char *const[]){"own", "random", NULL});
    if (!s->how.model) s->how.model = cuda ? "synthetic:llama-3.1-8b" : "examples/tiny42";
    if (cuda) s->how.threads = 1;
    if (!s->requests) s->requests = cuda ? 1024 : 32;
    if (!s->flip_requests) s->flip_requests = cuda ? 256 : 500;
    if (!s->output_tokens) s->output_tokens = 64;
    if (s->window * s->group > 1 << 20)
        args_fail(2, "--window, --group: W x G of %.0f rows: at most %d", (double)(s->window * s->group), 1 << 20);
    if (!s->quick) return;
    if (s->repeats > 3) s->repeats = 3;
    if (s->requests > (cuda ? 128 : 16)) s->requests = cuda ? 128 : 16;
    if (s->output_tokens > 32) s->output_tokens = 32;
    if (s->flip_requests > (cuda ? 64 : 50)) s->flip_requests = cuda ? 64 : 50;
    if (s->online_requests > 64) s->online_requests = 64;
    if (s->seeds > 2) s->seeds = 2;
}

static settings parse(int argc, char **argv) {
    settings s = DEFAULTS;
    s.how.threads = all_threads(), s.how.model = NULL;
    char preset[160], verifier[160], verify[160], prefill[160], chunked[160];
    const args_option options[] = {
        ENGINE_BACKEND(&s.how),
        ARGS_IN("model,m DIR", &s.how.model,
                "model folder, file or synthetic:NAME; examples/tiny42 (cpu), synthetic:llama-3.1-8b (cuda)"),
        ENGINE_RANKS(&s.how),
        ARGS_INT("threads,t N", &s.how.threads, 1, 1024, "threads of the engine and of the ceilings"),
        ARGS_TEXT("dtype TYPE", &s.how.dtype, "compute type, bf16 or fp32"),
        ARGS_ARITHMETIC(&s.how.arithmetic),
        ARGS_TEXT("suite NAME", &s.suite,
                  "all, ceilings, passes, workloads or decode;\n"
                  "                         cuda: all, passes, stages, prompts, workloads, one-of-eleven or online"),
        ARGS_INT("repeats N", &s.repeats, 1, MAX_REPEATS, "runs that a median is taken of"),
        ARGS_INT("requests N", &s.requests, 0, 100000, "workloads: requests, 0: 32 (cpu) or 1024 (cuda)"),
        ARGS_INT("input-tokens N", &s.input_tokens, 1, 1000000, "workloads: tokens of a prompt"),
        ARGS_INT("output-tokens N", &s.output_tokens, 0, 1000000, "workloads: tokens of an output, 0: 64"),
        ARGS_INT("tokens,n N", &s.decode_tokens, 2, 1000000, "decode: tokens of the stream"),
        ARGS_TEXT(
            "preset NAME", &s.preset,
            words_help(preset, sizeof preset, "serve only these cases (default: all)", args_policy_words("preset"))),
        ARGS_INT("window W", &s.window, 0, 4096, "rows of a window in a replay pass; 0: the preset's"),
        ARGS_INT("group G", &s.group, 0, 4096, "windows in a replay pass; 0: the preset's"),
        ARGS_TEXT("verifier NAME", &s.verifier,
                  words_help(verifier, sizeof verifier, "instead of the preset's", args_policy_words("verifier"))),
        ARGS_TEXT("verify NAME", &s.verify,
                  words_help(verify, sizeof verify, "instead of the preset's", args_policy_words("verify"))),
        ARGS_TEXT("prefill NAME", &s.prefill,
                  words_help(prefill, sizeof prefill, "instead of the preset's", args_policy_words("prefill"))),
        ARGS_TEXT("chunked NAME", &s.chunked,
                  words_help(chunked, sizeof chunked, "chunked prefill, instead of the preset's",
                             args_policy_words("chunked"))),
        ARGS_FLAG("quick", &s.quick, "smaller grids and workloads, three repeats"),
        ARGS_OUT("out FILE", &s.out, "write every figure to a TSV file"),
        ARGS_OUT("calibrate FILE", &s.calibrate, "only write a calibration for the simulator"),
        ARGS_FLAG("force", &s.force,
                  "calibrate: write the file although the processor was busy or repeats disagree;\n"
                  "                         the file says so, and so do results that come from it"),
        ARGS_INT("flip-requests N", &s.flip_requests, 0, 1000000,
                 "calibrate, margins: requests that flips are measured on, 0: 500 (cpu) or 256 (cuda)"),
        ARGS_TEXT("prompts KIND", &s.prompts, "calibrate, margins: the model's own samples, or random: own, random"),
        ARGS_OUT("margins FILE", &s.margins, "only count flips by the margin of the largest logit, into a TSV file"),
        ARGS_IN("workload SPEC", &s.workload,
                "cuda: what --suite workloads, online and --calibrate serve, as in build/sweep"),
        ARGS_REAL("temperature T", &s.temperature, 0, 1000,
                  "of the requests of suites workloads and online; request i draws with seed i, from 1; 0: greedy"),
        ENGINE_OFFERED(&s.how),
        ENGINE_ALGORITHMS(&s.how),
        ARGS_FLAG("no-graphs", &s.how.cuda.no_graphs, "cuda: kernels are launched one by one, and not as CUDA graphs"),
        ARGS_INT("max-running N", &s.max_running, 1, 2048, "cuda: sequences at once"),
        ARGS_INT("max-context N", &s.max_context, 0, 1 << 24, "cuda: tokens of a request; 0: the model's context"),
        ARGS_INT("token-budget N", &s.token_budget, 1, 1 << 20, "cuda: rows of a pass, at most"),
        ARGS_REAL("kv-gb X", &s.kv_gb, 0.001, 1e6, "cuda: KV pool in GiB, if max_running contexts take as much"),
        ARGS_REAL("qps X", &s.qps, 1e-6, 1e6, "cuda, online: requests a second"),
        ARGS_INT("online-requests N", &s.online_requests, 1, 100000, "cuda, online: requests"),
        ARGS_INT("seeds N", &s.seeds, 1, 100, "cuda, one-of-eleven: runs that a mean is taken of"),
        ARGS_REAL("seconds X", &s.seconds, 0, 1e9,
                  "cuda, calibrate: begin no measurement after so many, but calibrate each pass once; 0: no limit"),
        ARGS_END,
    };
    args_parse(argc, argv, "Speed of passes and whole workloads on the CPU or a GPU.", options);
    resolve(&s);
    out_try(s.out);
    out_try(s.calibrate);
    out_try(s.margins);
    return s;
}

static void run_cpu(bench *b) {
    const char *suite = b->set.suite;
    bool all = !strcmp(suite, "all");
    tsv_begin(b);
    if (all || !strcmp(suite, "ceilings") || !strcmp(suite, "passes")) run_ceilings(b);
    if (all || !strcmp(suite, "passes")) run_passes(b);
    if (all || !strcmp(suite, "decode")) run_decode(b);
    if (all || !strcmp(suite, "workloads")) run_workloads(b);
    print_targets(b);
    if (b->tsv) out_finish(b->tsv, b->set.out);
}

int main(int argc, char **argv) {
    static bench b;
    b = (bench){.set = parse(argc, argv), .got_share = 1, .begun = wall_seconds()};
    engine_look_up(&b.set.how);
    llm42_model *model = engine_model(&b.set.how);
    b.engine = engine_desc(&b.set.how, model);
    b.cuda = !strcmp(b.engine.backend->name, "cuda");
    if (!model->layer)
        args_fail(1, "model %s has no weights: it is for the simulator; load a folder or synthetic:NAME", model->name);
    b.model = model;
    b.weight_bytes = pass_bytes(model, 1, 1);
    if (!b.cuda) describe(&b, stdout, "");
    if (b.set.calibrate) run_calibrate(&b);
    else if (b.set.margins) run_margins(&b);
#ifdef LLM42_CUDA
    else if (b.cuda) run_cuda(&b);
#endif
    else run_cpu(&b);
    llm42_model_free(model);
    return args_finish();
}
