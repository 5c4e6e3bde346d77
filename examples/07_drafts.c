/* 07_drafts: guess the next tokens, and let one pass check all guesses.

   A window of 03_verify takes one pass, however many candidates are in it, but each candidate took a pass before. A
   guess takes none, and verification does not care where a token comes from. A guess, called a draft, is accepted if it
   is the canonical token, and otherwise dropped, with all drafts behind it. So drafters, good ones and bad ones, change
   how many passes an answer takes, and never the answer. How much time that saves depends on the device: a GPU runs 8
   rows nearly as fast as one, and a CPU does not.
   "lookup" remembers the text: if the last two tokens occurred before, it proposes what followed them there. "nonsense"
   is a drafter of our own, which is always wrong.
   New here: .drafter, the events of drafts, and util/tokenizer.h, which gives the texts of tokens.

   Compile it in the repository's root, and run it there:

      mkdir -p build && cc -std=c11 -O2 -march=native -ffp-contract=off -fopenmp -I. -I/usr/include/stb \
          examples/07_drafts.c -o build/07_drafts -lpcre2-8 -lm
      build/07_drafts
*/
#define _POSIX_C_SOURCE 200809L
#define LLM42_IMPLEMENTATION
#include "llm42.h"
#define LLM42_DRAFT_IMPLEMENTATION
#include "util/llm42_draft.h"
#include "util/tokenizer.h"

enum { RUNS = 3, TOKENS = 72, LIMIT = 7, CANDIDATE = 0, DRAFT, OWN, DROPPED };
static const char MODEL[] = "examples/tiny42", TEXT[] = "And the rain fell, and the rain fell, and";
static const char *const mark[2][4][2] = {  // without and with colours: what stands before and behind a text
    {{"", ""}, {"<", ">"}, {"{+", "+}"}, {"[-", "-]"}},
    {{"", ""}, {"\033[1;38;5;133m", "\033[0m"}, {"\033[7;1;38;5;29m", "\033[0m"}, {"\033[9;2m", "\033[0m"}}};
static int colours;
static tok *t;

static void check(llm42_result result, const llm42_error *error) {
    if (result >= 0) return;
    fprintf(stderr, "07_drafts: %s\n", error->text);
    exit(1);
}

static void show(int kind, const char *text) { printf("%s%s%s", mark[colours][kind][0], text, mark[colours][kind][1]); }

static void put(int kind, const int32_t *tokens, int n) {
    char *text = NULL;
    tok_decode(t, tokens, n, &text);
    arrput(text, 0);
    if (n) show(kind, text);
    arrfree(text);
}

// Draws a line for each window: what it commits, and the drafts that it drops.
static void draw(void *user, const llm42_event *e) {
    static int passes, agreed, accepted, drafts;  // the last three: of the window under way
    static int32_t draft[LIMIT];
    (void)user;
    passes = e->type == LLM42_EVENT_SUBMITTED ? 0 : passes + (e->type == LLM42_EVENT_PASS);
    if (e->type == LLM42_EVENT_DRAFTED) memcpy(draft, e->tokens, (size_t)(drafts = e->n) * sizeof *draft);
    if (e->type == LLM42_EVENT_VERIFIED) agreed = e->n;  // candidates
    if (e->type == LLM42_EVENT_ACCEPTED) accepted = e->n;
    if (e->type != LLM42_EVENT_COMMITTED) return;
    printf("%4d ", passes);
    put(CANDIDATE, e->tokens, agreed);
    put(DRAFT, e->tokens + agreed, accepted);
    put(OWN, e->tokens + agreed + accepted, e->n - agreed - accepted);
    put(DROPPED, draft + accepted, drafts - accepted);
    printf("\n");
    agreed = accepted = drafts = 0;
}

static llm42_result nonsense(void *user, const llm42_view *view, llm42_draft *draft, int count, llm42_error *error) {
    (void)user, (void)view, (void)error;
    for (int i = 0; i < count; i++) draft[i].token[draft[i].count++] = 42;
    return LLM42_OK;
}

static llm42_engine *serve(const llm42_model *model, const llm42_drafter *drafter, llm42_event_fn *on_event) {
    llm42_engine *engine = NULL;
    llm42_error error;
    int32_t *ids = NULL;
    const llm42_cpu_desc cpu = {.threads = 1};  // enough for so small a model
    llm42_engine_desc how = {.model = model, .backend_desc = &cpu, .on_event = on_event, .drafter = drafter};
    check(llm42_engine_open(&engine, &how, &error), &error);
    check(tok_encode(t, TEXT, strlen(TEXT), true, &ids, &error), &error);
    llm42_request_desc ask = {.prompt = ids, .prompt_count = (int)arrlen(ids), .max_new_tokens = TOKENS};
    ask.deterministic = true;
    check(llm42_engine_submit(engine, &ask, NULL, &error), &error);
    check(llm42_engine_run(engine, &error), &error);
    arrfree(ids);
    return engine;
}

int main(void) {
    llm42_model *model = NULL;
    llm42_engine *engine[RUNS];
    llm42_drafter lookup, own = {.name = "nonsense", .draft = nonsense};
    llm42_error error;
    colours = isatty(1) && !(getenv("NO_COLOR") && getenv("NO_COLOR")[0]);
    check(llm42_model_load(&model, &(llm42_model_desc){.path = MODEL}, &error), &error);
    check(tok_open(&t, model, MODEL, NULL, &error), &error);
    check(llm42_lookup_open(&lookup, &(llm42_lookup_desc){.always = true}, &error), &error);
    printf("candidates, "), show(DRAFT, "accepted drafts"), printf(", "), show(OWN, "the verifier's own token");
    printf(", "), show(DROPPED, "dropped drafts"), printf("\n\nwithout drafts\npass %s\n", TEXT);
    engine[0] = serve(model, NULL, draw);
    printf("\nwith drafts by lookup\npass %s\n", TEXT);
    engine[1] = serve(model, &lookup, draw);
    engine[2] = serve(model, &own, NULL);
    printf("\ndrafter   passes  tokens a pass  drafts  accepted     ms  answer\n");
    for (int i = 0; i < RUNS; i++) {
        const char *const name[RUNS] = {"none", lookup.name, own.name};
        const llm42_request *first = llm42_engine_request(engine[0], 1), *r = llm42_engine_request(engine[i], 1);
        const llm42_stats s = llm42_engine_stats(engine[i]);
        const int passes = (int)(s.passes[LLM42_SCHEDULE_FAST] + s.passes[LLM42_SCHEDULE_INVARIANT]);
        const bool same = !memcmp(r->tokens, first->tokens, TOKENS * sizeof *r->tokens) &&
                          !memcmp(r->logprobs, first->logprobs, TOKENS * sizeof *r->logprobs);
        printf("%-9s %6d %14.1f %7d %9d %6.1f  %s\n", name[i], passes, 1.0 * TOKENS / passes, (int)s.drafted,
               (int)s.accepted, 1000 * (r->last_token - r->arrival), same ? "the same bits" : "ANOTHER");
    }
    for (int i = 0; i < RUNS; i++) llm42_engine_close(engine[i]);
    llm42_drafter_close(&lookup);
    tok_free(t);
    llm42_model_free(model);
}
