// cuda_inside failing: a rank that fails does not leave the others waiting for it. Needs two devices. The last test
// loses one. Part of inside.cu, which includes it.
#include <csignal>

static void hangs(int) {
    fputs("cuda_inside: FAILED: a pass or a close hangs\n", stdout);
    fflush(stdout);
    _exit(1);
}

enum { ROWS = 4, PAGE = 16 };

static llm42__cuda *open_two(const llm42_model *model) {
    void *state = NULL;
    llm42_cuda_desc own = {};
    llm42_backend_desc desc = {};
    own.no_check = true;
    desc.model = model, desc.numerics.compute = LLM42_DTYPE_BF16, desc.page_size = PAGE, desc.pages = 4,
    desc.max_context = PAGE;
    desc.max_rows = desc.fixed_rows = ROWS, desc.max_running = 1;
    desc.schedules = 1u << LLM42_SCHEDULE_FAST | 1u << LLM42_SCHEDULE_INVARIANT;
    desc.tensor_parallel = 2, desc.numerics.leaves = 2;
    desc.backend_desc = &own;
    error = {};
    llm42_backend_cuda()->open(&state, &desc, &error);
    return (llm42__cuda *)state;
}

// A pass of four rows. logits: NULL, or room for theirs.
struct four_rows {
    int32_t pages[1] = {2};
    llm42_seq seq = {};
    llm42_row row[ROWS];
    llm42_pass pass = {};
    four_rows(llm42_output out[ROWS], float *logits) {
        seq.pages = pages;
        for (int i = 0; i < ROWS; i++) row[i] = {0, i, 7 * i + 3, LLM42_ROW_SAMPLE};
        pass.schedule = LLM42_SCHEDULE_INVARIANT, pass.rows = pass.shape = ROWS;
        pass.row = row, pass.seq = &seq, pass.out = out, pass.logits = logits;
    }
};

static llm42_result run(llm42__cuda *cu, llm42_output out[ROWS]) {
    const four_rows four(out, NULL);
    return llm42_backend_cuda()->run(cu, &four.pass, &error);
}

// Device 0 has its graph, and waits. Device 1 gets none.
static void check_launch(llm42__cuda *cu) {
    llm42_output want[ROWS], got[ROWS];
    std::vector<cudaGraphExec_t> kept;
    if (!check(run(cu, want) == LLM42_OK, "a pass runs")) return;
    for (llm42__graph &g : cu->graphs) kept.push_back(g.exec[1]), g.exec[1] = nullptr;
    error = {};
    check(run(cu, got) == LLM42_BACKEND && strstr(error.text, "rank 1 of 2, on device 1"),
          "a pass whose rank 1 fails is an error that names it");
    for (size_t i = 0; i < kept.size(); i++) cu->graphs[i].exec[1] = kept[i];
    check(run(cu, got) == LLM42_OK && !memcmp(want, got, sizeof want), "the next pass runs as before");
}

// The numbers of passes begin anew.
static void check_numbers(llm42__cuda *cu) {
    llm42_output want[ROWS], got[ROWS];
    if (!check(run(cu, want) == LLM42_OK, "a pass runs")) return;
    cu->execution.number = LLM42__MOST_NUMBER - 2;
    for (int i = 0; i < 4; i++)
        check(run(cu, got) == LLM42_OK && !memcmp(want, got, sizeof want), "the numbers begin anew");
    check(cu->execution.number == 2, "the numbers have begun anew");
}

// Device 1 has no memory left.
static void check_memory_of_a_rank(const llm42_model *model) {
    size_t left = 0, all = 0, before = 0, after = 0;
    void *ballast = NULL;
    cudaSetDevice(0);
    cudaMemGetInfo(&before, &all);
    cudaSetDevice(1);
    cudaMemGetInfo(&left, &all);
    check(cudaMalloc(&ballast, left - ((size_t)16 << 20)) == cudaSuccess, "the memory of device 1 is taken");
    llm42__cuda *cu = open_two(model);
    check(!cu && error.result == LLM42_MEMORY && strstr(error.text, "rank 1 of 2, on device 1"),
          "a rank without memory is an error that names it");
    llm42__cuda_close(cu);
    cudaFree(ballast);
    cudaSetDevice(0);
    cudaMemGetInfo(&after, &all);
    check(before == after, "device 0 has its memory back");
}

// Device 1 is lost in the middle of a pass. Logits, because a graph would have the weights' true address.
static void check_lost_rank(const llm42_model *model) {
    static float logits[ROWS * 65536];
    llm42_output out[ROWS];
    const four_rows four(out, logits);
    const llm42_backend *cuda = llm42_backend_cuda();
    llm42__cuda *cu = open_two(model);
    if (!check(cu && model->config.vocab <= 65536, "a backend opens")) return;
    cu->others[0]->layer[0].w[LLM42__GATE_UP] = (llm42__bf16 *)8;
    error = {};
    check(cuda->run(cu, &four.pass, &error) == LLM42_BACKEND, "a lost device is an error");
    check(strstr(error.text, "rank 1 of 2, on device 1") && strstr(error.text, "the device is lost"),
          "the error says which");
    printf("%s\n", error.text);
    check(cuda->run(cu, &four.pass, &error) == LLM42_BACKEND, "no pass runs any more");
    llm42__cuda_close(cu);
}

static int check_failing_ranks(int times) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 2) {
        printf("cuda_inside failing: skipped: needs two devices\n");
        return end();
    }
    llm42_model *model = NULL;
    llm42_model_desc source = {};  // in the host's memory: each rank takes its part
    source.path = "synthetic:tiny";
    if (!check(llm42_model_load(&model, &source, &error) == LLM42_OK, "a model loads")) return end();
    signal(SIGALRM, hangs);
    for (int i = 0; i < times; i++) {
        alarm(60);
        llm42__cuda *cu = open_two(model);
        if (!check(cu, "a backend opens")) break;
        check_launch(cu);
        check_numbers(cu);
        llm42__cuda_close(cu);
        if (i % 10 == 0) check_memory_of_a_rank(model);
    }
    alarm(60);
    check_lost_rank(model);
    llm42_model_free(model);
    return end();
}
