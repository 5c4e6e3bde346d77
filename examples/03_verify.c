/* 03_verify: decode, verify, roll back. The prompts of 02_drift, now marked deterministic.

   Fast passes decode as in 02_drift, and their bits differ as there. But their tokens are only candidates until a
   replay pass computes them again, in up to G windows of W tokens. In each window the candidates that agree are
   committed, then one token of the pass's own, and the rest is dropped. So commits differ in length, but an answer is
   the same to the bit, alone and among others.
   New here: .group, and the events of a request, from which the picture is drawn. .deterministic and .window are those
   of 01_hello.

   Compile it in the repository's root, and run it there:

      mkdir -p build && cc -std=c11 -O2 -march=native -ffp-contract=off -fopenmp -I. -I/usr/include/stb \
          examples/03_verify.c -o build/03_verify -lm
      build/03_verify
*/
#define LLM42_IMPLEMENTATION
#include "llm42.h"

enum { PROMPTS = 8, LENGTH = 7, TOKENS = 52, WINDOW = 14, GROUP = 4 };
static const int32_t prompt[PROMPTS][LENGTH] = {  // 02_drift.c has the texts
    {0, 905, 312, 264, 1108, 283, 1767}, {0, 678, 387, 282, 945, 260, 1024}, {0, 678, 318, 1417, 652, 1186, 360},
    {0, 678, 874, 959, 629, 283, 264},   {0, 42, 719, 279, 264, 781, 283},   {0, 42, 79, 264, 1093, 462, 935},
    {0, 678, 411, 72, 1924, 279, 264},   {0, 678, 1711, 288, 274, 279, 264}};

typedef struct answer {
    int32_t tokens[TOKENS];
    float logprobs[TOKENS];
    int rollbacks, agreed;                       // agreed: candidates, in the verification that is under way
    char picture[TOKENS * WINDOW + TOKENS + 1];  // no verification drops more than a window
} answer;

static void check(llm42_result result, const llm42_error *error) {
    if (result >= 0) return;
    fprintf(stderr, "03_verify: %s\n", error->text);
    exit(1);
}

// Draws a token as '.' while it is a candidate. Verification turns it into '=', or into 'X' with '-' behind it.
static void draw(void *user, const llm42_event *e) {
    (void)user;
    if (!e->info) return;  // the event is about a pass
    answer *a = e->info->user;
    char *candidates = strchr(a->picture, '.'), *end = strchr(a->picture, 0);
    if (e->type == LLM42_EVENT_CANDIDATE) memcpy(end, ".", 2);
    if (e->type == LLM42_EVENT_VERIFIED && e->n) memset(candidates, '=', (size_t)e->n);
    if (e->type == LLM42_EVENT_VERIFIED) a->agreed = e->n;
    if (e->type == LLM42_EVENT_ROLLED_BACK) memset(candidates, '-', (size_t)e->n), *candidates = 'X';
    if (e->type != LLM42_EVENT_COMMITTED) return;
    if (e->n > a->agreed) memcpy(end, "+", 2);  // the last one is of the verifier's own
    a->agreed = 0;
}

// Serves prompts `first` to `last` together, all marked, and keeps their answers.
static llm42_stats serve(const llm42_model *model, int first, int last, answer *out) {
    llm42_engine *engine = NULL;
    llm42_error error;
    llm42_engine_desc how = {.model = model, .policy.window = WINDOW, .policy.group = GROUP, .on_event = draw};
    check(llm42_engine_open(&engine, &how, &error), &error);
    for (int i = first; i <= last; i++) {
        llm42_request_desc ask = {.prompt = prompt[i], .prompt_count = LENGTH, .max_new_tokens = TOKENS};
        ask.deterministic = ask.ignore_stop = true;
        ask.user = &out[i];
        check(llm42_engine_submit(engine, &ask, NULL, &error), &error);
    }
    check(llm42_engine_run(engine, &error), &error);
    for (int i = first; i <= last; i++) {
        const llm42_request *r = llm42_engine_request(engine, i - first + 1);
        memcpy(out[i].tokens, r->tokens, sizeof out[i].tokens);
        memcpy(out[i].logprobs, r->logprobs, sizeof out[i].logprobs);
        out[i].rollbacks = (int)r->rollbacks;
    }
    llm42_stats stats = llm42_engine_stats(engine);
    llm42_engine_close(engine);
    return stats;
}

int main(void) {
    static answer alone[PROMPTS], together[PROMPTS];
    llm42_model *model = NULL;
    llm42_error error;
    check(llm42_model_load(&model, &(llm42_model_desc){.path = "examples/tiny42"}, &error), &error);
    for (int i = 0; i < PROMPTS; i++) serve(model, i, i, alone);
    llm42_stats s = serve(model, 0, PROMPTS - 1, together);
    llm42_model_free(model);

    int differ = 0;
    printf("%d prompts together, all deterministic: W = %d, G = %d\n\n", PROMPTS, WINDOW, GROUP);
    printf("=  a candidate that held              X  a candidate that did not\n");
    printf("+  a token of the verifier's own      -  a candidate dropped behind it\n\n");
    printf("prompt%56srollbacks\n", "");
    for (int i = 0; i < PROMPTS; i++) {
        printf("%4d    %-58s%5d\n", i + 1, together[i].picture, together[i].rollbacks);
        for (int t = 0; t < TOKENS; t++)
            differ += alone[i].tokens[t] != together[i].tokens[t] ||
                      memcmp(&alone[i].logprobs[t], &together[i].logprobs[t], sizeof(float));
    }
    printf("\n%d candidates, %d verifications, %d rollback%s, %d tokens decoded again\n", (int)s.candidates,
           (int)s.verifications, (int)s.rollbacks, s.rollbacks == 1 ? "" : "s", (int)s.recomputed);
    printf("alone and together: %d of %d tokens differ in id or log-probability bits\n", differ, PROMPTS * TOKENS);
}
