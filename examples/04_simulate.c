/* 04_simulate: which window and which group suit a GPU? One simulated run for each pair of them.

   The simulator is a backend, so planner, KV pages and verification are those of the programs before. A pass takes
   virtual time, so all thirty-five runs together take about a tenth of a second. A calibration, here that of an H100
   with Llama-3.1-8B, says how long a pass takes and how often a fast pass returns a wrong token.

   The runs show two things. A replay pass has up to M = W x G rows, and one of 16 rows takes almost as long as one of
   256, so a small M is a waste. And the larger a window is, the more tokens a rollback drops.

   New here: another backend, a model without weights, and a virtual clock.

   Compile it in the repository's root, and run it there:

      mkdir -p build && cc -std=c11 -O2 -march=native -ffp-contract=off -fopenmp -I. -I/usr/include/stb \
          examples/04_simulate.c -o build/04_simulate -lm
      build/04_simulate
*/
#define LLM42_CALIBRATION_IMPLEMENTATION
#define LLM42_IMPLEMENTATION
#include "llm42.h"
#include "util/llm42_calibration.h"

enum { REQUESTS = 128, RUNNING = 64, PROMPT = 256, TOKENS = 256, WINDOWS = 7, GROUPS = 5 };
static const int window[WINDOWS] = {8, 16, 32, 64, 128, 256, 512}, group[GROUPS] = {1, 2, 4, 8, 16};

static void check(llm42_result result, const llm42_error *error) {
    if (result >= 0) return;
    fprintf(stderr, "04_simulate: %s\n", error->text);
    exit(1);
}

// Serves REQUESTS requests, all deterministic and there from the start. Returns tokens per second and recomputed %.
static void simulate(const llm42_engine_desc *how, double result[2]) {
    static const int32_t prompt[PROMPT];  // the simulator does not look at the tokens
    llm42_engine *engine = NULL;
    llm42_error error;
    check(llm42_engine_open(&engine, how, &error), &error);
    for (int i = 0; i < REQUESTS; i++) {
        llm42_request_desc ask = {.prompt = prompt, .prompt_count = PROMPT, .max_new_tokens = TOKENS};
        ask.deterministic = ask.ignore_stop = true;
        check(llm42_engine_submit(engine, &ask, NULL, &error), &error);
    }
    check(llm42_engine_run(engine, &error), &error);
    llm42_stats s = llm42_engine_stats(engine);
    result[0] = (double)s.returned_tokens / llm42_engine_now(engine);
    result[1] = 100.0 * (double)s.recomputed / (double)s.returned_tokens;
    llm42_engine_close(engine);
}

// A number, shaded by where it lies between the smallest (0) and the largest (1): in colour or by characters.
static void print_cell(double value, double share, bool colour) {
    static const char *const shade[] = {"  ", "\u2591\u2591", "\u2592\u2592", "\u2593\u2593", "\u2588\u2588"};
    static const int ramp[] = {54, 61, 31, 36, 71, 149, 227};  // of the 256 colours of a terminal
    int level = (int)(6.99 * share);
    if (colour) printf("\033[48;5;%d;38;5;%dm %5.*f \033[0m", ramp[level], level < 3 ? 231 : 16, value < 100, value);
    else printf("%5.*f%s", value < 100, value, shade[(int)(4.99 * share)]);
}

int main(void) {
    const char *no_color = getenv("NO_COLOR");
    bool colour = isatty(1) && !(no_color && no_color[0]);
    llm42_model *model = NULL;
    llm42_calibration *calibration = NULL;
    llm42_error error;
    check(llm42_model_load(&model, &(llm42_model_desc){.path = "shape:llama-3.1-8b"}, &error), &error);
    check(llm42_calibration_load(&calibration, "sweep/calibration/h100-pcie-paper.tsv", &error), &error);

    double result[WINDOWS][GROUPS][2], low[2] = {1e9, 1e9}, high[2] = {0, 0};
    const llm42_sim_desc sim = {.calibration = calibration};
    llm42_engine_desc how = {.model = model, .backend = llm42_backend_sim(), .backend_desc = &sim};
    int best = 0;
    how.max_running = RUNNING;
    how.kv.pages = RUNNING * (PROMPT + TOKENS) / 16;
    for (int w = 0; w < WINDOWS; w++)
        for (int g = 0; g < GROUPS; g++) {
            how.policy.window = window[w], how.policy.group = group[g];
            simulate(&how, result[w][g]);
            if (result[w][g][0] > high[0]) best = w * GROUPS + g;
            for (int i = 0; i < 2; i++) {
                low[i] = fmin(low[i], result[w][g][i]);
                high[i] = fmax(high[i], result[w][g][i]);
            }
        }

    printf("simulated %s, %d deterministic requests of %d + %d tokens\n\n", calibration->device, REQUESTS, PROMPT,
           TOKENS);
    printf("       %-38s%s\n      ", "tokens per second", "recomputed tokens, %");
    for (int g = 0; g < 2 * GROUPS; g++) printf("%s G=%-4d", g == GROUPS ? "   " : "", group[g % GROUPS]);
    for (int w = 0; w < WINDOWS; w++) {
        printf("\nW=%-4d", window[w]);
        for (int i = 0; i < 2; printf("%s", i++ ? "" : "   "))
            for (int g = 0; g < GROUPS; g++)
                print_cell(result[w][g][i], (result[w][g][i] - low[i]) / (high[i] - low[i]), colour);
    }
    printf("\n\nfastest: W = %d, G = %d, with replay passes of M = %d rows\n", window[best / GROUPS],
           group[best % GROUPS], window[best / GROUPS] * group[best % GROUPS]);
    llm42_calibration_free(calibration);
    llm42_model_free(model);
}
