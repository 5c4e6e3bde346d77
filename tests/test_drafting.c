// What programs say when a drafter fails: one line with the reason, and the answer is what it would have been.
#define TEST_ALL
#include "test.h"
#define LLM42_DRAFT_IMPLEMENTATION
#include "examples/lib/drafting.h"

enum { TOKENS = 40 };
static int calls;
static char heard[2048];  // every line that the engine has logged

static llm42_result fail_later(void *user, const llm42_view *view, llm42_draft *draft, int count, llm42_error *error) {
    (void)user, (void)view, (void)draft, (void)count;
    return ++calls < 3 ? LLM42_OK : llm42_fail(error, LLM42_MEMORY, "the drafts have run out");
}

// Serves one request and returns what drafting_report has printed. broken: the drafter fails at its third call.
static const char *report(const llm42_model *model, bool broken, int32_t tokens[TOKENS]) {
    static const int32_t prompt[] = {0, 905, 312};
    static char said[4096];
    char path[] = "/tmp/test_drafting.XXXXXX";
    drafting drafts = {.name = broken ? "lookup" : "none"};
    llm42_engine_desc desc = {
        .model = model, .backend = llm42_backend_cpu(), .max_running = 1, .log = test_keep_line, .log_user = heard};
    llm42_error error = {0};
    drafting_check(&drafts);
    drafting_open(&drafts, &desc);
    llm42_drafter lookup = drafts.drafter;
    if (broken) drafts.drafter = (llm42_drafter){.name = "broken", .draft = fail_later};
    llm42_engine *engine = test_open(&desc);
    llm42_request_desc ask = {.prompt = prompt, .prompt_count = 3, .max_new_tokens = TOKENS, .ignore_stop = true};
    ask.deterministic = true;
    test_submit(engine, ask);
    CHECK_INT(llm42_engine_run(engine, &error), LLM42_OK);
    memcpy(tokens, llm42_engine_request(engine, 1)->tokens, TOKENS * sizeof *tokens);
    fflush(stderr);
    const int screen = dup(2), file = mkstemp(path);
    dup2(file, 2);
    drafting_report(&drafts, engine);
    fflush(stderr);
    dup2(screen, 2);
    close(screen), close(file);
    char *text = test_read(path, NULL);
    snprintf(said, sizeof said, "%s", text);
    free(text);
    unlink(path);
    llm42_engine_close(engine);
    drafts.drafter = lookup;
    drafting_close(&drafts);
    return said;
}

TEST(a_drafter_that_fails_is_reported) {
    llm42_model *model = test_load("examples/tiny42");
    int32_t plain[TOKENS], broken[TOKENS];
    CHECK_STR(report(model, false, plain), "");
    heard[0] = 0;
    CHECK_STR(report(model, true, broken),
              "llm42: drafter broken: the drafts have run out: the engine goes on without drafts\n");
    CHECK_INT(calls, 3);  // it is not asked again
    CHECK(memcmp(plain, broken, sizeof plain) == 0);
    CHECK_CONTAINS(heard, "cpu backend");  // the log of the program still gets every line
    CHECK_CONTAINS(heard, "the drafts have run out");
    llm42_model_free(model);
}

TEST_MAIN("test_drafting")
