// A digest of everything whose bits are promised not to depend on the instruction set, the compiler or its options:
// the library's own functions, passes of every schedule and compute type, and deterministic requests. What is drawn,
// with its log-probabilities, has a digest of its own. test_isa.sh builds this in many ways and compares. With
// LLM42_TEST_CONTROL the passes sum in another order: the digests must change.
#include "test.h"
#define LLM42_IMPLEMENTATION
#include "examples/util/llm42_synthetic.h"

static uint64_t digest = 0xcbf29ce484222325u, drawn = 0xcbf29ce484222325u;

static void add_to(uint64_t *sum, const void *data, size_t size) {
    for (size_t i = 0; i < size; i++) *sum = (*sum ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
}
static void add(const void *data, size_t size) { add_to(&digest, data, size); }

static void add_functions(void) {
    for (int i = -4000; i < 4000; i++) {
        double sine, cosine;
        llm42_sincos(i * 7.3, &sine, &cosine);
        float values[] = {llm42__exp((float)i * 0.021f), llm42__log_f32((float)(i + 4001) * 0.013f), (float)sine,
                          (float)cosine};
        add(values, sizeof values);
        CHECK_NEAR(values[0] / expf((float)i * 0.021f), 1, values[0] > 0 ? 4e-7 : INFINITY);
        CHECK_NEAR(values[1], logf((float)(i + 4001) * 0.013f), 4e-7 * (1 + fabs(values[1])));
        CHECK_NEAR(sine, sin(i * 7.3), 1e-13);
        CHECK_NEAR(cosine, cos(i * 7.3), 1e-13);
    }
}

// Hopper's powers, in a loop that becomes vector instructions. Their digest is known, because an H200 gave them.
static void check_powers(void) {
    enum { MANY = 1 << 20 };
    static float power[MANY];
    uint64_t powers = 0xcbf29ce484222325u;
    for (uint32_t i = 0; i < MANY; i++) power[i] = llm42__float(i * 4093u);
    for (int i = 0; i < MANY; i++) power[i] = llm42__ex2(power[i]);
    add_to(&powers, power, sizeof power);
    CHECK_MSG(powers == 0xa225a1c1f3715a30u, "the digest of Hopper's powers is %016llx", (unsigned long long)powers);
}

// The logits of a prompt's rows, one pass.
static void add_pass(const llm42_model *model, llm42_schedule schedule, int shape, llm42_dtype compute,
                     llm42_arithmetic arithmetic) {
    enum { ROWS = 40 };
    const llm42_backend_desc desc = TEST_LIST(.model = model, .numerics.compute = compute,
                                              .numerics.arithmetic = arithmetic, .backend_desc = TEST_THREADS(2));
    llm42_output out[ROWS];
    const llm42_seq seq = {.sampling = {.temperature = 0.9f, .top_p = 0.95f, .seed = 7}};
    float *logits = malloc(sizeof *logits * (size_t)model->config.vocab * ROWS);
    const llm42_pass pass = {.schedule = schedule, .shape = shape, .seq = &seq, .out = out, .logits = logits};
    if (test_passes(llm42_backend_cpu(), desc, pass, NULL, ROWS, ROWS)) {
        add_to(&drawn, out, sizeof out);
        add(logits, sizeof *logits * (size_t)model->config.vocab * ROWS);
    }
    free(logits);
}

static void add_requests(const llm42_model *model, llm42_verifier verifier) {
    llm42_error error;
    llm42_engine *engine;
    if (!CHECK_INT(
            llm42_engine_open(&engine,
                              &(llm42_engine_desc)TEST_LIST(.model = model, .policy.verifier = verifier,
                                                            .policy.window = 8, .policy.group = 4, .max_context = 128),
                              &error),
            LLM42_OK))
        return;
    const int32_t prompt[] = {905, 312, 264, 1108, 283, 1767, 13};
    for (int i = 0; i < 4; i++)
        llm42_engine_submit(engine,
                            &(llm42_request_desc)TEST_LIST(.prompt = prompt, .prompt_count = 4 + i,
                                                           .max_new_tokens = 24, .deterministic = true,
                                                           .sampling = {.temperature = i % 2 ? 0.8f : 0},
                                                           .ignore_stop = true),
                            NULL, &error);
    CHECK_INT(llm42_engine_run(engine, &error), LLM42_OK);
    for (int i = 1; i <= 4; i++) {
        const llm42_request *r = llm42_engine_request(engine, i);
        uint64_t *to = i % 2 == 0 ? &drawn : &digest;
        add_to(to, r->tokens, sizeof *r->tokens * (size_t)r->committed);
        add_to(to, r->logprobs, sizeof *r->logprobs * (size_t)r->committed);
    }
    llm42_engine_close(engine);
}

int main(void) {
#ifdef LLM42_TEST_CONTROL
    const int fast_shape = 41;  // 41 and 65 rows are summed in another number of parts
#else
    const int fast_shape = 70;
#endif
    llm42_error error;
    llm42_model *model[3];
    static const char *const paths[3] = {"examples/tiny42", "synthetic:tiny", "synthetic:tiny-fp8"};
    for (int i = 0; i < 3; i++)
        if (!CHECK_INT(llm42_model_load(&model[i], &(llm42_model_desc){.path = paths[i]}, &error), LLM42_OK)) return 1;
    const llm42_model *tiny42 = model[0], *synthetic = model[1], *eight = model[2];
    add_functions();
    check_powers();
    add_pass(tiny42, LLM42_SCHEDULE_FAST, fast_shape, LLM42_DTYPE_FP32,
             LLM42_ARITHMETIC_FP32);  // fp32: bf16 rounding hides most differences
    add_pass(tiny42, LLM42_SCHEDULE_FAST, 40, LLM42_DTYPE_BF16, LLM42_ARITHMETIC_FP32);
    add_pass(tiny42, LLM42_SCHEDULE_FIXED, 64, LLM42_DTYPE_FP32, LLM42_ARITHMETIC_FP32);
    add_pass(tiny42, LLM42_SCHEDULE_INVARIANT, 40, LLM42_DTYPE_BF16, LLM42_ARITHMETIC_FP32);
    add_pass(synthetic, LLM42_SCHEDULE_FAST, 40, LLM42_DTYPE_FP32, LLM42_ARITHMETIC_FP32);
    add_pass(tiny42, LLM42_SCHEDULE_INVARIANT, 40, LLM42_DTYPE_BF16, LLM42_ARITHMETIC_SM90);
    add_pass(tiny42, LLM42_SCHEDULE_INVARIANT, 40, LLM42_DTYPE_BF16, LLM42_ARITHMETIC_SM80);
    add_pass(eight, LLM42_SCHEDULE_FAST, 40, LLM42_DTYPE_FP32, LLM42_ARITHMETIC_FP32);
    add_pass(eight, LLM42_SCHEDULE_INVARIANT, 40, LLM42_DTYPE_BF16, LLM42_ARITHMETIC_SM90);
    add_pass(eight, LLM42_SCHEDULE_INVARIANT, 40, LLM42_DTYPE_BF16, LLM42_ARITHMETIC_SM89);
    add_requests(tiny42, LLM42_VERIFIER_INVARIANT);
    add_requests(tiny42, LLM42_VERIFIER_FIXED);
    for (int i = 0; i < 3; i++) llm42_model_free(model[i]);
    printf("%s digest %016llx, of draws %016llx\n", llm42_cpu_isa(), (unsigned long long)digest,
           (unsigned long long)drawn);
    return test_end("test_isa");
}
