// cuda_host: what the CUDA backend does on the host alone, which needs no GPU: how attention's work is shared out, over
// random models, devices and passes, and what an algorithm file keeps.
//
// Built and run by tests/test_cuda_build.sh. The last line is "N passed, N failed".
#include "llm42.cu"

#include <cstdio>

static int64_t passed, failed;
static bool check(bool ok, const char *what, int64_t at) {
    passed += ok;
    failed += !ok;
    if (!ok && failed < 20) printf("cuda_host: FAILED: %s (%" PRId64 ")\n", what, at);
    return ok;
}

static uint64_t state = 42;
static int random_int(int least, int most) {
    state += 0x9e3779b97f4a7c15ull;
    uint64_t x = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return least + (int)((x ^ (x >> 31)) % (uint64_t)(most - least + 1));
}
// As likely within each power of two.
static int random_size(int most) { return random_int(1, std::max(1, most >> random_int(0, 16))); }

// An engine as it is when its sizes are known and nothing is on a device. Devices as an A100, an L4 and an H200 are.
static void fabricate(llm42__cuda *cu, llm42_model *model) {
    static const int room[] = {166912, 101376, 232448}, processors[] = {108, 58, 132};
    const int device = random_int(0, 2), dims[] = {16, 48, 64, 128};
    llm42_config *c = &model->config;
    c->kv_heads = random_int(1, 16), c->heads = c->kv_heads * random_int(1, 10), c->head_dim = dims[random_int(0, 3)];
    c->dim = c->ffn = c->vocab = 64, c->layers = 2, c->context = 131072;
    c->sliding_window = random_size(131072);
    static llm42_layer layer[2];
    for (llm42_layer &one : layer) one.sliding = random_int(0, 2) == 0;
    model->layer = layer;
    cu->model = cu->desc.model = model;
    cu->device.sharedMemPerBlockOptin = (size_t)room[device];
    cu->device.multiProcessorCount = processors[device];
    llm42_backend_desc *d = &cu->desc;
    d->max_context = random_int(0, 1) ? 131072 : random_size(131072), d->page_size = 16;
    d->max_rows = random_size(1024), d->max_running = random_size(512);
    d->pages = random_int(1, std::max(1, (int)((int64_t)d->max_running * d->max_context / 16)));
    cu->options.fixed = random_int(0, 1) ? LLM42_CUDA_FIXED_MATCH : LLM42_CUDA_FIXED_DEFAULT;
    llm42__cuda_sizes(cu);
    for (auto &product : cu->algorithms)
        for (auto &schedule : product) schedule.resize(cu->buckets.size());
}

static void check_row(const llm42__cuda *cu, const llm42__decode_task *task, int tasks, const llm42_row *row,
                      int window, bool by_position, int *records, int64_t at) {
    const int end = row->position + 1, low = window ? std::max(0, end - window) : 0, row_units = task[0].row_units,
              units = task[0].units, unit_keys = task[0].unit_keys;
    check(task[0].begin <= low && low - task[0].begin < LLM42__UNIT_KEYS, "a row's keys begin where they do", at);
    check(!by_position || (unit_keys == LLM42__UNIT_KEYS && task[0].begin == low / 128 * 128),
          "by position, units begin and end at multiples of 128", at);
    check(unit_keys % LLM42__STRIP_KEYS == 0 && task[0].begin % LLM42__STRIP_KEYS == 0, "units end where strips do",
          at);
    check(tasks == (row_units + units - 1) / units, "as many blocks as the last one waits for", at);
    check(tasks == 1 || task[0].record >= 0, "what several blocks share goes through memory", at);
    for (int i = 0, unit = 0; i < tasks; i++, unit += units)
        check(task[i].first_unit == unit && task[i].begin == task[0].begin + unit * unit_keys && task[i].end == end &&
                  task[i].unit_keys == unit_keys && task[i].row_units == row_units && task[i].units == units &&
                  task[i].record == (task[0].record < 0 ? -1 : task[0].record + unit),
              "a row's blocks are one behind the other", at);
    check((row_units - 1) * unit_keys < end - task[0].begin && row_units * unit_keys >= end - task[0].begin,
          "units cover all keys, each once", at);
    if (task[0].record < 0) return;
    check(task[0].record == *records && *records + row_units <= cu->max_records, "records have their own room", at);
    *records += row_units;
}

static void check_decode_tasks(const llm42__cuda *cu, const llm42__prepared *p, const llm42__meta_layout *layout,
                               int reach, int window, const llm42_pass *pass, int64_t at) {
    const std::vector<llm42__decode_task> &decode = p->tasks[reach].decode;
    const int tasks = (int)decode.size();
    check(tasks <= (p->key.decode ? layout->decode_tasks : 0), "tasks fit their room", at);
    auto follows = [&](int r) {
        return r > 0 && r < pass->rows && pass->row[r].seq == pass->row[r - 1].seq &&
               pass->row[r].position == pass->row[r - 1].position + 1;
    };
    int lone = 0, records = 0, next = 0;
    for (int r = 0; r < pass->rows; r++) lone += !follows(r) && !follows(r + 1);
    const bool by_position = llm42__by_position(cu, pass->schedule, lone);
    for (int r = 0; r < pass->rows; r++) {
        if (follows(r) || follows(r + 1)) continue;
        int n = 0;
        while (next + n < tasks && decode[(size_t)(next + n)].row == r) n++;
        if (check(n > 0, "each row that stands alone is worked on", at))
            check_row(cu, &decode[(size_t)next], n, &pass->row[r], window, by_position, &records, at);
        next += n;
    }
    check(next == tasks, "nothing else is", at);
}

static void check_pass(const llm42__cuda *cu, int64_t at) {
    static const llm42_schedule schedules[] = {LLM42_FAST, LLM42_INVARIANT};
    llm42_pass pass = {};
    llm42__prepared p = {};
    std::vector<llm42_row> rows;
    const int want = std::min(random_int(0, 1) ? random_int(1, 20) : random_size(1024), cu->max_rows),
              longest = cu->desc.max_context, usual = random_int(1, longest);
    for (int seq = 0; (int)rows.size() < want; seq++) {
        int position = random_int(0, 1) ? usual - 1 : random_size(longest) - 1, run = random_int(0, 9) ? 1 : 40;
        for (; run && (int)rows.size() < want && position < longest; run--) {
            llm42_row row = {};
            row.seq = seq, row.position = position++;
            rows.push_back(row);
        }
    }
    pass.schedule = schedules[random_int(0, 1)];
    pass.rows = pass.shape = (int)rows.size(), pass.row = rows.data();
    llm42__make_tasks(cu, &p, &pass);
    p.draws = pass.rows;
    llm42__choose_key(cu, &p, &pass);
    const llm42__meta_layout layout = llm42__layout(cu, &p.key);
    check(layout.pages + cu->page_room * 4 <= cu->meta_size, "metadata fit theirs", at);
    const llm42__decode_shape shape = llm42__decode_shape_of(cu, p.key.rows);
    check(shape.bytes <= llm42__shared_room(&cu->device), "blocks fit a multiprocessor", at);
    for (int reach = 0; reach < LLM42__REACHES; reach++) {
        const int window = reach == LLM42__SLIDING ? cu->model->config.sliding_window : 0;
        if (cu->has[reach]) check_decode_tasks(cu, &p, &layout, reach, window, &pass, at);
        else check(p.tasks[reach].prefill.empty() && p.tasks[reach].decode.empty(), "no layer, no task", at);
    }
}

// Algorithms that can be told apart by their times; our own kernels', for cuBLASLt's need a device.
static void set_algorithms(llm42__cuda *cu, float us) {
    for (int product = 0; product < LLM42__PRODUCTS; product++)
        for (llm42_schedule mode : llm42__schedules) {
            cu->algorithms[product][mode].assign(cu->buckets.size(), llm42__algorithm());
            for (size_t b = 0; us > 0 && b < cu->buckets.size(); b++) {
                llm42__algorithm *algorithm = &cu->algorithms[product][mode][b];
                algorithm->tile = (product + (int)mode - 1 + (int)b) % LLM42__TILE_KINDS, algorithm->sequential = true;
                algorithm->us = us + (float)b;
            }
        }
}

static bool takes(llm42__cuda *cu, float us) {
    set_algorithms(cu, 0);
    return llm42__read_algorithms(cu) && cu->algorithms[0][LLM42_FAST][0].us == us &&
           cu->algorithms[1][LLM42_INVARIANT].back().us == us + (float)(cu->buckets.size() - 1) &&
           cu->algorithms[1][LLM42_INVARIANT].back().tile == (1 + 2 + (int)cu->buckets.size() - 1) % LLM42__TILE_KINDS;
}

static void write_text(const char *path, const std::string &text) {
    if (FILE *file = fopen(path, "w")) {
        fputs(text.c_str(), file);
        fclose(file);
    }
}

static std::string read_text(const char *path) {
    std::string text;
    if (FILE *file = fopen(path, "r")) {
        for (int c; (c = fgetc(file)) != EOF;) text += (char)c;
        fclose(file);
    }
    return text;
}

static void check_algorithm_file(void) {
    static llm42_model model;
    static const llm42_layer layer[1] = {};
    // In memory where the system has such a place: the file is written and read tens of thousands of times.
    char path[64];
    snprintf(path, sizeof path, "%s/cuda_host_XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    int handle = mkstemp(path);
    if (!check(handle >= 0, "a temporary file", 0)) return;
    close(handle);
    llm42__cuda a = {}, b = {}, c = {}, wide = {};
    for (llm42__cuda *cu : {&a, &b, &c, &wide}) {
        model.config = {};
        model.config.heads = model.config.kv_heads = 2, model.config.head_dim = 16;
        model.config.dim = model.config.ffn = model.config.vocab = 64, model.config.layers = 1;
        model.layer = layer;
        cu->model = cu->desc.model = &model;
        cu->desc.max_context = 64, cu->desc.page_size = 16, cu->desc.pages = 4;
        cu->desc.max_rows = cu == &wide ? 64 : 8, cu->desc.max_running = 1;
        cu->options.no_cublas = true, cu->options.algorithm_file = path;
        llm42__cuda_sizes(cu);
    }
    b.options.fixed = LLM42_CUDA_FIXED_MATCH;
    c.options.fast = LLM42_CUDA_FAST_OFFERED;
    check(!takes(&a, 10), "an empty file has no algorithms", 0);
    set_algorithms(&a, 10);
    llm42__write_algorithms(&a);
    check(takes(&a, 10), "algorithms come back", 0);
    check(!takes(&b, 10), "another kind of engine does not take them", 0);
    set_algorithms(&b, 20);
    llm42__write_algorithms(&b);
    set_algorithms(&c, 25);
    llm42__write_algorithms(&c);
    check(takes(&a, 10) && takes(&b, 20) && takes(&c, 25), "a file keeps algorithms of three kinds", 0);
    check(!takes(&wide, 10), "an engine with more rows lacks some", 0);
    set_algorithms(&wide, 30);
    llm42__write_algorithms(&wide);
    check(takes(&wide, 30) && takes(&b, 20) && takes(&c, 25), "its algorithms are added", 0);
    set_algorithms(&a, 40);
    llm42__write_algorithms(&a);
    check(takes(&a, 40) && takes(&b, 20), "newer algorithms take the place of older ones", 0);
    set_algorithms(&wide, 0);
    llm42__read_algorithms(&wide);
    check(wide.algorithms[0][LLM42_FAST].back().us == 30 + (float)(wide.buckets.size() - 1),
          "those for other rows stay", 0);
    std::string all = read_text(path);
    const size_t last = all.rfind("# llm42 algorithms ");
    check(all.compare(last, llm42__algorithm_header(&a).size(), llm42__algorithm_header(&a)) == 0,
          "the last part is the last written", 0);
    for (size_t cut = last; cut < all.size(); cut++) {
        write_text(path, all.substr(0, cut));
        check(!takes(&a, 40) && takes(&b, 20), "a part cut short is not taken, those before it are", (int64_t)cut);
        if (cut % 37 && cut > last + 40 && cut + 40 <= all.size()) continue;
        set_algorithms(&c, 26);
        llm42__write_algorithms(&c);
        check(!takes(&a, 40) && takes(&b, 20) && takes(&c, 26), "nor when others have been added", (int64_t)cut);
    }
    for (size_t cut = 0; cut < all.size(); cut += 1 + all.size() / 200) {
        write_text(path, all.substr(0, cut));
        set_algorithms(&a, 50);
        llm42__write_algorithms(&a);
        set_algorithms(&b, 60);
        llm42__write_algorithms(&b);
        check(takes(&a, 50) && takes(&b, 60), "a file cut short is mended", (int64_t)cut);
    }
    // Head rows beyond what an engine draws: others of its kind want them.
    write_text(path, "");
    c.options.fast = a.options.fast, c.max_draws = 1;
    set_algorithms(&a, 70);
    llm42__write_algorithms(&a);
    set_algorithms(&c, 80);
    llm42__write_algorithms(&c);
    set_algorithms(&a, 0);
    check(llm42__read_algorithms(&a) &&
              a.algorithms[LLM42__HEAD][LLM42_FAST].back().us == 70 + (float)(a.buckets.size() - 1),
          "rows that an engine does not want stay", 0);
    all = read_text(path);
    const size_t row = all.find("qkv\tinvariant\t1\t"), order = all.find("\t1\t", row + 17);
    all.replace(order, 3, "\t0\t");
    write_text(path, all);
    set_algorithms(&a, 0);
    check(!llm42__read_algorithms(&a), "an INVARIANT algorithm in another order is not taken", 0);
    write_text(path, "# llm42 algorithms 1\nof an older version\n");
    set_algorithms(&a, 70);
    llm42__write_algorithms(&a);
    check(takes(&a, 70) && read_text(path).find("older") == std::string::npos, "older versions' algorithms are dropped",
          0);
    write_text(path, "a letter\n");
    llm42__write_algorithms(&a);
    check(!takes(&a, 70) && read_text(path) == "a letter\n", "another file is left as it is", 0);
    remove(path);
}

int main(void) {
    static llm42_model model;
    for (int64_t at = 0; at < 500; at++) {
        llm42__cuda *cu = new llm42__cuda();
        fabricate(cu, &model);
        for (int i = 0; i < 4; i++) check_pass(cu, at);
        delete cu;
    }
    check_algorithm_file();
    printf("cuda_host: %" PRId64 " passed, %" PRId64 " failed\n", passed, failed);
    return failed > 0;
}
