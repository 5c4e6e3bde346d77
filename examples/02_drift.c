/* 02_drift: the answer to a prompt depends on who else is being served.

   Eight prompts are served one at a time, then all at once. The two answers to each prompt are compared. Decoding is
   greedy, and nothing is random. But the order of sums in a fast pass depends on its number of rows (tokens), so the
   bits of the log-probabilities differ, and now and then a token does. From there on the two answers differ.
   New here: requests share passes, and answers are read with llm42_engine_request.

   Compile it in the repository's root, and run it there:

      mkdir -p build && cc -std=c11 -O2 -march=native -ffp-contract=off -fopenmp -I. -I/usr/include/stb \
          examples/02_drift.c -o build/02_drift -lm
      build/02_drift
*/
#define LLM42_IMPLEMENTATION
#include "llm42.h"

enum { PROMPTS = 8, LENGTH = 7, TOKENS = 48 };
static const char *const text[PROMPTS] = {
    "It was the best of times", "The king heard a voice",    "The thief smiled at", "The farmer thought of the",
    "I went to the house of",   "In the morning they found", "The dog ran to the",  "The road led to the"};
static const int32_t prompt[PROMPTS][LENGTH] = {  // as token ids of examples/tiny42
    {0, 905, 312, 264, 1108, 283, 1767}, {0, 678, 387, 282, 945, 260, 1024}, {0, 678, 318, 1417, 652, 1186, 360},
    {0, 678, 874, 959, 629, 283, 264},   {0, 42, 719, 279, 264, 781, 283},   {0, 42, 79, 264, 1093, 462, 935},
    {0, 678, 411, 72, 1924, 279, 264},   {0, 678, 1711, 288, 274, 279, 264}};

typedef struct answer {
    int32_t tokens[TOKENS];
    float logprobs[TOKENS];
} answer;

static void check(llm42_result result, const llm42_error *error) {
    if (result >= 0) return;
    fprintf(stderr, "02_drift: %s\n", error->text);
    exit(1);
}

// Serves prompts `first` to `last` together and keeps their answers.
static void serve(const llm42_model *model, int first, int last, answer *out) {
    llm42_engine *engine = NULL;
    llm42_error error;
    check(llm42_engine_open(&engine, &(llm42_engine_desc){.model = model}, &error), &error);
    for (int i = first; i <= last; i++) {
        llm42_request_desc desc = {
            .prompt = prompt[i], .prompt_count = LENGTH, .max_new_tokens = TOKENS, .ignore_stop = true};
        check(llm42_engine_submit(engine, &desc, NULL, &error), &error);  // ids count up from 1
    }
    check(llm42_engine_run(engine, &error), &error);
    for (int i = first; i <= last; i++) {
        const llm42_request *r = llm42_engine_request(engine, i - first + 1);
        memcpy(out[i].tokens, r->tokens, sizeof out[i].tokens);
        memcpy(out[i].logprobs, r->logprobs, sizeof out[i].logprobs);
    }
    llm42_engine_close(engine);
}

static uint32_t bits(float x) {
    uint32_t u;
    return memcpy(&u, &x, sizeof u), u;
}

// One line for a prompt: how many tokens are equal before one differs, and how many of those in all bits.
static int compare(int i, const answer *a, const answer *b, int *differ) {
    int equal = 0, other_bits = 0;
    double largest = 0;
    for (; equal < TOKENS && a->tokens[equal] == b->tokens[equal]; equal++) {
        other_bits += bits(a->logprobs[equal]) != bits(b->logprobs[equal]);
        largest = fmax(largest, fabs((double)a->logprobs[equal] - (double)b->logprobs[equal]));
    }
    printf("%-26s%6d of %d%10d of %2d%13.4f\n", text[i], equal, TOKENS, other_bits, equal, largest);
    *differ += other_bits;
    return equal;
}

int main(void) {
    static answer alone[PROMPTS], together[PROMPTS];
    llm42_model *model = NULL;
    llm42_error error;
    check(llm42_model_load(&model, &(llm42_model_desc){.path = "examples/tiny42"}, &error), &error);
    for (int i = 0; i < PROMPTS; i++) serve(model, i, i, alone);
    serve(model, 0, PROMPTS - 1, together);
    llm42_model_free(model);

    int part = TOKENS, shown = 0, differ = 0;
    printf("                          equal tokens     log-probs with      largest\n");
    printf("prompt                    at the start       other bits     difference\n");
    for (int i = 0; i < PROMPTS; i++) {
        int equal = compare(i, &alone[i], &together[i], &differ);
        if (equal < part) part = equal, shown = i;
    }
    printf("alone and together: %d log-probabilities differ before any token does\n", differ);
    if (part == TOKENS) return 0;
    printf("\nThe first to differ in a token is \"%s\":\n\n", text[shown]);
    printf("                    alone                       together\n");
    printf("token      id   log-prob  as bits       id   log-prob  as bits\n");
    for (int t = part > 6 ? part - 6 : 0; t < TOKENS && t < part + 2; t++) {
        const answer *a = &alone[shown], *b = &together[shown];
        bool same = bits(a->logprobs[t]) == bits(b->logprobs[t]);
        printf("%5d  %6d%11.5f  %08x %8d%11.5f  %08x  %s\n", t + 1, (int)a->tokens[t], (double)a->logprobs[t],
               bits(a->logprobs[t]), (int)b->tokens[t], (double)b->logprobs[t], bits(b->logprobs[t]),
               t >= part ? "another token"
               : same    ? ""
                         : "other bits");
    }
}
