// cuda_host: what the CUDA backend does on the host alone, which needs no GPU: how attention's work is shared out, over
// random models, devices and passes, what an algorithm file keeps, how much memory an engine needs, which algorithms
// are chosen from their tests' results, and what happens when the host's memory runs out.
//
// Built and run by tests/test_cuda_build.sh. The last line is "N passed, N failed".
#include <cuda_runtime.h>
#include <cstdio>
#include <cstring>
#include <map>
#include <new>
#include <set>
#include <thread>
#include <vector>

// Instead of a device: memory is counted and not taken, copies are made on the host, and nothing is waited for.
static std::map<void *, size_t> device_blocks;
static size_t device_taken, device_most, device_free;  // bytes: now, at most, what cudaMemGetInfo tells
static char *device_next = (char *)4096;
static cudaError_t host_malloc(void **to, size_t bytes) {
    bytes = bytes < 1 << 20 ? bytes : (bytes + (2 << 20) - 1) >> 21 << 21;  // as cudaMalloc does
    *to = device_next;
    device_next += (bytes + 4095) / 4096 * 4096;
    device_blocks[*to] = bytes;
    device_most = std::max(device_most, device_taken += bytes);
    return cudaSuccess;
}
template <typename... ARGS> static cudaError_t host_done(const ARGS &...) { return cudaSuccess; }
static cudaError_t host_free(void *block) {
    const auto at = device_blocks.find(block);
    if (at != device_blocks.end()) device_taken -= at->second, device_blocks.erase(at);
    return cudaSuccess;
}
template <typename... REST> static cudaError_t host_copy(void *to, const void *from, size_t bytes, const REST &...) {
    return host_done(memcpy(to, from, bytes));
}
static cudaError_t host_memory(size_t *left, size_t *all) {
    return host_done(*left = device_free, *all = (size_t)1 << 40);
}

// A stream stands for a device, which may be lost. It then waits until its passes are told to end.
struct host_stream {
    bool lost;
    const unsigned *until;  // NULL: it does not wait
    bool waits() const { return until && !*(const volatile unsigned *)until; }
};
static int host_hangs;  // waits that would never end
static bool host_lost[8];
static cudaError_t host_set_device(int device) { return host_lost[device] ? cudaErrorLaunchFailure : cudaSuccess; }
static std::vector<const void *> host_launches;  // kernels
template <typename... ARGS> static cudaError_t host_launch(const void *kernel, const ARGS &...) {
    host_launches.push_back(kernel);
    return cudaSuccess;
}
// An event is a number. It remembers how many launches there were when it was recorded.
static std::vector<size_t> host_events;
static cudaError_t host_create(cudaEvent_t *event) {
    host_events.push_back(0);
    *event = (cudaEvent_t)host_events.size();
    return cudaSuccess;
}
static cudaError_t host_record(cudaEvent_t event, cudaStream_t = nullptr) {
    return host_done(host_events[(size_t)event - 1] = host_launches.size());
}
static cudaError_t host_pointer(void **to, void *from, unsigned) { return host_done(*to = from); }
static cudaError_t host_query(cudaStream_t stream) {
    const host_stream *s = (const host_stream *)stream;
    return !s ? cudaSuccess : s->lost ? cudaErrorLaunchFailure : s->waits() ? cudaErrorNotReady : cudaSuccess;
}
static cudaError_t host_wait(cudaStream_t stream) {
    host_hangs += host_query(stream) == cudaErrorNotReady;
    return host_query(stream);
}
#define cudaMalloc(to, bytes) host_malloc(to, bytes)
#define cudaFree(block) host_free(block)
#define cudaMemGetInfo(left, all) host_memory(left, all)
#define cudaMemset(to, value, bytes) host_done(to, value, bytes)
#define cudaMemcpyAsync(...) host_copy(__VA_ARGS__)
#define cudaMemsetAsync(...) host_done(__VA_ARGS__)
#define cudaStreamSynchronize(stream) host_wait(stream)
#define cudaStreamQuery(stream) host_query(stream)
#define cudaEventQuery(event) host_done(event)
#define cudaDeviceSynchronize() host_done()
#define cudaSetDevice(device) host_set_device(device)
#define cudaHostGetDevicePointer(to, from, flags) host_pointer(to, from, flags)
#define cudaFuncSetAttribute(...) host_done(__VA_ARGS__)
#define cudaFuncGetAttributes(built, kernel) host_done((built)->maxThreadsPerBlock = 1024, kernel)
#define cudaLaunchKernelEx(config, kernel, ...) host_launch((const void *)(kernel), __VA_ARGS__)
#define cudaEventCreate(event) host_create(event)
#define cudaEventRecord(...) host_record(__VA_ARGS__)

#include "llm42.cu"

// The host's own memory runs out on demand. (nvcc would compile these for the device too.)
static bool no_memory;
static void switch_memory(void) { no_memory = !no_memory; }
#ifndef __CUDA_ARCH__
__attribute__((noinline)) void *operator new(size_t bytes) {
    void *block = no_memory ? nullptr : malloc(bytes);
    if (!block) throw std::bad_alloc();
    return block;
}
__attribute__((noinline)) void operator delete(void *block) noexcept { free(block); }
__attribute__((noinline)) void operator delete(void *block, size_t) noexcept { free(block); }
#endif

static llm42_error error;  // of the last call that failed
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

// The passes of an engine whose verifier is INVARIANT.
static const unsigned FAST_AND_INVARIANT = 1u << LLM42_SCHEDULE_FAST | 1u << LLM42_SCHEDULE_INVARIANT;

// Every product has this algorithm in every schedule, for any number of rows.
static void set_all(llm42__cuda *cu, const llm42__algorithm &algorithm) {
    for (auto &product : cu->algorithms)
        for (auto &schedule : product) schedule.assign(cu->buckets.size(), algorithm);
}

// An engine as it is when its sizes are known and nothing is on a device. Devices as an A100, an L4 and an H200 are.
static void fabricate(llm42__cuda *cu, llm42_model *model) {
    static const int room[] = {166912, 101376, 232448}, processors[] = {108, 58, 132};
    const int device = random_int(0, 2), dims[] = {16, 48, 64, 128, 256};
    llm42_config *c = &model->config;
    c->kv_heads = random_int(1, 16), c->heads = c->kv_heads * random_int(1, 16), c->head_dim = dims[random_int(0, 4)];
    c->dim = c->ffn = c->vocab = 64, c->layers = 2, c->context = 131072;
    c->sliding_window = random_size(131072);
    static llm42_layer layer[2];
    for (llm42_layer &one : layer) one.sliding = random_int(0, 2) == 0;
    model->layer = layer;
    cu->model = cu->desc.model = model;
    cu->device.sharedMemPerBlockOptin = (size_t)room[device];
    cu->device.multiProcessorCount = processors[device];
    cu->device.major = device == 2 ? 9 : 8;
    llm42_backend_desc *d = &cu->desc;
    d->max_context = random_int(0, 1) ? 131072 : random_size(131072), d->page_size = 16;
    d->max_rows = random_size(1024), d->max_running = random_size(512);
    d->pages = random_int(1, std::max(1, (int)((int64_t)d->max_running * d->max_context / 16)));
    cu->desc.schedules = random_int(0, 1) ? FAST_AND_INVARIANT : 0;
    cu->options.fast = random_int(0, 2) ? LLM42_CUDA_FAST_DEFAULT : LLM42_CUDA_FAST_OFFERED;
    llm42__cuda_sizes(cu);
    set_all(cu, llm42__algorithm());
}

static int parts(int n, int size) { return (n + size - 1) / size; }

// The tasks of a row, in the order of their units. taken: records that are in use.
static void check_row(const llm42__cuda *cu, const std::vector<llm42__decode_task> &tasks, const llm42_row *row,
                      int window, std::set<int> *taken, int64_t at) {
    const int high = row->position, low = window ? std::max(0, high + 1 - window) : 0, first = low / 512,
              row_units = high / 512 + 1 - first, units = tasks[0].units;
    std::map<int, int> owners;  // of each unit, by its first key
    check((int)tasks.size() == parts(row_units, units), "as many blocks as the last one waits for", at);
    for (const llm42__decode_task &task : tasks) {
        check(task.units == units && task.row_units == row_units && task.position == high, "a row's tasks agree", at);
        check(task.begin == (first + task.first_unit) * 512, "units begin at multiples of 512", at);
        check((task.record < 0) == (tasks.size() == 1), "what several blocks share goes through memory", at);
        check(task.record < 0 || task.record - task.first_unit == tasks[0].record, "a row's records lie together", at);
        for (int unit = 0; unit < std::min(units, row_units - task.first_unit); unit++) {
            owners[task.begin + unit * 512]++;
            check(task.record < 0 || (task.record + unit < cu->max_records && taken->insert(task.record + unit).second),
                  "each record has its own room", at);
        }
    }
    bool once = (int)owners.size() == row_units;
    for (const auto &unit : owners)
        once = once && unit.second == 1 && unit.first <= high && unit.first + 512 > low && unit.first % 512 == 0;
    check(once, "each unit that the row sees belongs to one task, and no other unit does", at);
}

// A task of rows of one sequence has all keys that they see, from a multiple of 128 on. This pass writes no old keys.
static void check_prefill_task(const llm42__cuda *cu, const llm42__prepared *p, const llm42__prefill_task &task,
                               int window, const llm42_pass *pass, int64_t at) {
    const llm42_row *row = &pass->row[task.row];
    const int low = window ? std::max(0, row->position + 1 - window) : 0;
    int written = INT_MAX, others = 0;
    for (int r = 0; r < pass->rows; r++)
        if (pass->row[r].seq == row->seq) written = std::min(written, pass->row[r].position);
    for (int r = 1; r < task.rows; r++) others += row[r].seq != row->seq || row[r].position != row->position + r;
    check(task.rows > 0 && !others, "a task has consecutive rows of one sequence", at);
    check(task.rows * cu->group <= LLM42__TEAM_QUERIES * llm42__prefill_teams(cu->dp, cu->device.major == 9),
          "a block has its queries", at);
    check(task.first == low / 128 * 128 && task.end == row->position + task.rows, "a task has all keys", at);
    check(p->run_begin[(size_t)task.seq] <= task.row && pass->row[p->run_begin[(size_t)task.seq]].seq == row->seq,
          "they are those of its sequence", at);
    check(task.old == (p->old ? written : 0), "old keys are those below what the pass writes", at);
}

static void check_attention_tasks(const llm42__cuda *cu, const llm42__prepared *p, int reach, int window,
                                  const llm42_pass *pass, int64_t at) {
    const std::vector<llm42__decode_task> &decode = p->tasks[reach].decode;
    const size_t room = p->key.decode ? (size_t)llm42__decode_room(cu, p->key.rows) : 0;
    check(decode.size() <= room, "tasks fit their room", at);
    auto follows = [&](int r) {
        return r > 0 && r < pass->rows && pass->row[r].seq == pass->row[r - 1].seq &&
               pass->row[r].position == pass->row[r - 1].position + 1;
    };
    int lone = 0, longest[2] = {0, 0};
    size_t next = 0;
    for (int r = 0; r < pass->rows; r++) {
        const bool single = !follows(r) && !follows(r + 1);
        lone += single;
        longest[single] = std::max(longest[single], pass->row[r].position + 1);
    }
    const bool as_prompts = longest[1] <= longest[0] && llm42__draws_fit(cu, p, pass);
    std::vector<std::vector<llm42__decode_task>> of((size_t)pass->rows);  // in the order of their units
    std::vector<int> as_prompt((size_t)pass->rows);
    std::set<int> taken;
    for (const llm42__decode_task &task : decode) of[(size_t)task.row].push_back(task);
    for (const llm42__prefill_task &task : p->tasks[reach].prefill) {
        check_prefill_task(cu, p, task, window, pass, at);
        for (int r = task.row; r < task.row + task.rows; r++) as_prompt[(size_t)r]++;
    }
    check(as_prompts ? !p->key.decode : p->key.decode || !lone, "a kernel for single rows where it is needed", at);
    for (int r = 0; r < pass->rows; r++) {
        const bool prompt = follows(r) || follows(r + 1) || as_prompts;
        check(as_prompt[(size_t)r] == prompt, "each row of a prompt is in one task, and others in none", at);
        if (prompt) continue;
        std::vector<llm42__decode_task> &row = of[(size_t)r];
        std::sort(row.begin(), row.end(), [](auto &a, auto &b) { return a.first_unit < b.first_unit; });
        if (check(!row.empty(), "each row that stands alone is worked on", at))
            check_row(cu, row, &pass->row[r], window, &taken, at);
        next += row.size();
    }
    check(next == decode.size(), "nothing else is", at);
}

// Runs the pass through llm42__make_tasks and checks them.
static void check_tasks(const llm42__cuda *cu, const llm42_pass *pass, int64_t at) {
    llm42__prepared p = {};
    p.draws = random_int(0, 2) ? pass->rows : random_int(1, pass->rows);
    llm42__make_tasks(cu, &p, pass);
    std::set<int> seqs;
    bool two_runs = false;
    for (int r = 0; r < pass->rows; r++) {
        const bool follows = r && pass->row[r].seq == pass->row[r - 1].seq &&
                             pass->row[r].position == pass->row[r - 1].position + 1;
        two_runs = two_runs || (!follows && !seqs.insert(pass->row[r].seq).second);
    }
    check(p.old == !two_runs, "keys before a single row are old if no sequence has two runs", at);
    llm42__choose_key(cu, &p, pass);
    const size_t before_pages = (uintptr_t)llm42__meta_at(cu, &p.key, nullptr, LLM42__FULL).pages;
    check(before_pages + cu->page_room * 4 <= cu->meta_size, "metadata fit theirs", at);
    const bool warpgroups = cu->device.major == 9;
    const int prefill = llm42__by_head_dim(cu->dp, [&](auto dp) {
        return llm42__prefill_teams(dp.value, warpgroups) == 2 ? llm42__prefill_shape<dp.value, 2>::bytes(warpgroups)
                                                               : llm42__prefill_shape<dp.value, 1>::bytes(warpgroups);
    });
    // An engine with heads of 256 is refused on other GPUs than Hopper (llm42__cuda_open).
    const llm42__decode_shape decode = llm42__decode_shape_of(cu, p.key.rows);
    const bool fit = std::max(decode.bytes, prefill) <= llm42__shared_room(&cu->device);
    check(fit == (cu->dp <= 128 || warpgroups), "blocks fit a multiprocessor", at);
    check(decode.ring == 3 || cu->dp >= 128, "llm42__decode_build has a build with such a ring", at);
    for (int reach = 0; reach < LLM42__REACHES; reach++) {
        const int window = reach == LLM42__SLIDING ? cu->model->config.sliding_window : 0;
        if (cu->has[reach]) check_attention_tasks(cu, &p, reach, window, pass, at);
        else check(p.tasks[reach].prefill.empty() && p.tasks[reach].decode.empty(), "no layer, no task", at);
    }
}

static void check_pass(const llm42__cuda *cu, int64_t at) {
    static const llm42_schedule schedules[] = {LLM42_SCHEDULE_FAST, LLM42_SCHEDULE_INVARIANT};
    llm42_pass pass = {};
    std::vector<llm42_row> rows;
    const int want = std::min(random_int(0, 1) ? random_int(1, 20) : random_size(1024), cu->max_rows),
              longest = cu->desc.max_context, usual = random_int(1, longest);
    for (int seq = 0; (int)rows.size() < want; seq++) {
        int position = random_int(0, 1) ? usual - 1 : random_size(longest) - 1, run = random_int(0, 9) ? 1 : 40;
        // Seldom a sequence stands twice, at any two places: the rule must hold for what callers should not do, too.
        const int again = random_int(0, 399) ? 0 : random_int(0, seq), own = 2000 - seq + again;  // no usual order
        for (; run && (int)rows.size() < want && position < longest; run--) {
            llm42_row row = {};
            row.seq = own, row.position = position++;
            rows.push_back(row);
        }
    }
    pass.schedule = schedules[random_int(0, 1)];
    pass.rows = pass.shape = (int)rows.size(), pass.row = rows.data();
    check_tasks(cu, &pass, at);
}

// The attention of single rows ---------------------------------------------------------------------------------------

// A model on an H200, the 8B one unless said otherwise, and the tasks of a decode pass of rows with so many keys.
struct decode_engine {
    llm42_model model = {};
    llm42_layer layer = {};
    llm42__cuda cu = {};
    explicit decode_engine(int kv_heads = 8, int context = 131072, int window = 0) {
        model.config.heads = 4 * kv_heads, model.config.kv_heads = kv_heads, model.config.head_dim = 128;
        model.config.layers = 1, model.config.dim = model.config.ffn = model.config.vocab = 64;
        model.config.context = context, model.config.sliding_window = window;
        model.layer = &layer, layer.sliding = window > 0;
        cu.model = cu.desc.model = &model;
        cu.device.sharedMemPerBlockOptin = 232448, cu.device.multiProcessorCount = 132, cu.device.major = 9;
        cu.desc.max_context = context, cu.desc.page_size = 16, cu.desc.pages = 1 << 16;
        cu.desc.max_rows = cu.desc.max_running = 1024, cu.desc.schedules = FAST_AND_INVARIANT;
        llm42__cuda_sizes(&cu);
    }
    std::vector<llm42__decode_task> tasks(llm42_schedule schedule, const std::vector<int> &keys) const {
        std::vector<llm42_row> rows;
        llm42__prepared p = {};
        llm42_pass pass = {};
        for (size_t i = 0; i < keys.size(); i++) rows.push_back({(int)i, keys[i] - 1, 0, 0});
        pass.schedule = schedule, pass.rows = pass.shape = p.draws = (int)rows.size(), pass.row = rows.data();
        llm42__make_tasks(&cu, &p, &pass);
        return p.tasks[LLM42__FULL].decode;
    }
};

// A row with far more keys than others is shared by blocks; rows of equal length are not divided further. But few rows
// are divided, so that all multiprocessors have work.
static void check_long_rows(void) {
    const decode_engine engine;
    for (llm42_schedule schedule : {LLM42_SCHEDULE_FAST, LLM42_SCHEDULE_INVARIANT}) {
        std::vector<int> keys(64, 500);
        check(engine.tasks(schedule, keys).size() == 64, "a block for each short row", schedule);
        keys.assign(64, 20000);
        check(engine.tasks(schedule, keys).size() == 64, "a block for each long row, if all are long", schedule);
        keys.assign(64, 500), keys[5] = 40000;
        check(engine.tasks(schedule, keys).size() == 63 + 16, "a block for each even share of one long row", schedule);
        for (int rows : {1, 2, 4, 8, 16})
            check(engine.tasks(schedule, std::vector<int>((size_t)rows, 32768)).size() == 16,
                  "few rows share all multiprocessors", rows);
    }
}

// One kv head and a window that begins within a unit: of such rows as many are divided as can be. Some are long, the
// others very short, so that the even share is small.
static void check_most_tasks(void) {
    for (int window = 641; window <= 4090; window += 64) {
        const decode_engine engine(1, 4096, window);
        for (int many : {1, 70, 100, 130, 143, 160, 200}) {
            std::vector<llm42_row> rows;
            for (int i = 0; i < 320; i++) rows.push_back({i, i < many ? 4095 : 5, 0, 0});
            llm42_pass pass = {};
            pass.schedule = random_int(0, 1) ? LLM42_SCHEDULE_FAST : LLM42_SCHEDULE_INVARIANT;
            pass.rows = pass.shape = (int)rows.size(), pass.row = rows.data();
            check_tasks(&engine.cu, &pass, window);
        }
    }
}

// Where contexts differ, no block has much more than its even share, and long tasks come first. Where they do not, rows
// that are enough for all multiprocessors are not divided.
static void check_even_work(void) {
    const decode_engine engine;
    for (int rows = 1; rows <= 1024; rows += 1 + rows / 4) {
        const int at_once = (rows <= 16 ? 1 : 2) * 132 / 8;
        std::vector<int> keys((size_t)rows, 700);
        check(rows < 17 || (int)engine.tasks(LLM42_SCHEDULE_FAST, keys).size() == rows,
              "a block for each row of equal length", rows);
        int sum = 0, covered = 0, before = INT_MAX;
        for (int &k : keys) sum += parts(k = random_int(0, 4) ? random_int(50, 1000) : random_int(1000, 9000), 512);
        const std::vector<llm42__decode_task> tasks = engine.tasks(LLM42_SCHEDULE_FAST, keys);
        for (const llm42__decode_task &t : tasks) {
            const int units = std::min(t.units, t.row_units - t.first_unit);
            check(2 * units <= 3 * parts(sum, at_once), "no block has far more than its share", rows);
            check(units <= before, "long tasks come first", rows);
            before = (int)tasks.size() > at_once ? units : INT_MAX, covered += units;
        }
        check(covered == sum, "all units are read once", rows);
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

// The engine writes such algorithms into its file.
static void put_algorithms(llm42__cuda *cu, float us) {
    set_algorithms(cu, us);
    llm42__write_algorithms(cu);
}

// True if the file has all that an engine wants, and its algorithms are those of `us`.
static bool takes(llm42__cuda *cu, float us) {
    bool all = true;
    set_algorithms(cu, 0);
    llm42__read_algorithms(cu);
    for (int product = 0; product < LLM42__PRODUCTS; product++)
        for (llm42_schedule schedule : llm42__schedules)
            for (size_t b = 0; b < cu->buckets.size(); b++) {
                const llm42__algorithm *p = &cu->algorithms[product][schedule][b];
                all = all && (!llm42__algorithm_wanted(cu, product, cu->buckets[b]) ||
                              (p->us == us + (float)b &&
                               p->tile == (product + (int)schedule - 1 + (int)b) % LLM42__TILE_KINDS));
            }
    return all;
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
    b.desc.schedules = FAST_AND_INVARIANT;
    c.options.fast = LLM42_CUDA_FAST_OFFERED;
    check(!takes(&a, 10), "an empty file has no algorithms", 0);
    put_algorithms(&a, 10);
    check(takes(&a, 10), "algorithms come back", 0);
    check(!takes(&b, 10), "another kind of engine does not take them", 0);
    put_algorithms(&b, 20);
    put_algorithms(&c, 25);
    check(takes(&a, 10) && takes(&b, 20) && takes(&c, 25), "a file keeps algorithms of three kinds", 0);
    check(!takes(&wide, 10), "an engine with more rows lacks some", 0);
    put_algorithms(&wide, 30);
    check(takes(&wide, 30) && takes(&b, 20) && takes(&c, 25), "its algorithms are added", 0);
    put_algorithms(&a, 40);
    check(takes(&a, 40) && takes(&b, 20), "newer algorithms take the place of older ones", 0);
    set_algorithms(&wide, 0);
    llm42__read_algorithms(&wide);
    check(wide.algorithms[0][LLM42_SCHEDULE_FAST].back().us == 30 + (float)(wide.buckets.size() - 1),
          "those for other rows stay", 0);
    // Files that a writer has left unfinished.
    std::string all = read_text(path);
    const size_t last = all.rfind("# ");
    for (size_t cut = last; cut + 1 < all.size(); cut++) {
        write_text(path, all.substr(0, cut));
        check(!takes(&a, 40) && takes(&b, 20), "lines cut short are not taken, those before them are", (int64_t)cut);
        if (cut % 37 && cut > last + 40 && cut + 40 <= all.size()) continue;
        put_algorithms(&c, 26);
        check(!takes(&a, 40) && takes(&b, 20) && takes(&c, 26), "nor when others have been added", (int64_t)cut);
    }
    for (size_t cut = 0; cut < all.size(); cut += 1 + all.size() / 200) {
        if (cut && cut < sizeof llm42__algorithm_title - 1) continue;
        write_text(path, all.substr(0, cut));
        put_algorithms(&a, 50);
        put_algorithms(&b, 60);
        check(takes(&a, 50) && takes(&b, 60), "what is added to such a file is taken", (int64_t)cut);
    }
    // Head rows beyond what an engine draws: others of its kind want them.
    write_text(path, "");
    c.options.fast = a.options.fast, c.max_draws = 1;
    put_algorithms(&a, 70);
    put_algorithms(&c, 80);
    takes(&a, 80);
    check(a.algorithms[LLM42__HEAD][LLM42_SCHEDULE_FAST].back().us == 70 + (float)(a.buckets.size() - 1),
          "rows that an engine does not want stay", 0);
    all = read_text(path);
    size_t row = all.rfind("qkv\tinvariant\t1\t"), order = all.find("\t1\t", row + 17);
    all.replace(order, 3, "\t0\t");
    write_text(path, all);
    check(!takes(&a, 80), "an INVARIANT algorithm in another order is not taken", 0);
    write_text(path, "# llm42 algorithms 17\n# device: of an older version\nqkv\tfast\t1\ttile\t0\t1\t7.00\t0\n");
    check(!takes(&a, 70), "an older version's file has no algorithms", 0);
    llm42__write_algorithms(&a);
    put_algorithms(&a, 70);
    check(takes(&a, 70) && read_text(path).find("older") != std::string::npos, "but they can be added to it", 0);
    write_text(path, "a letter\n");
    llm42__write_algorithms(&a);
    check(!takes(&a, 70) && read_text(path) == "a letter\n", "another file is left as it is", 0);
    remove(path);
}

// Memory ----------------------------------------------------------------------------------------------------------

// Any model and engine, of which only sizes are known.
static void fabricate_sizes(llm42__cuda *cu, llm42_model *model, llm42_layer *layers) {
    static const float some = 0;
    static const char data[2] = {0, 0};
    fabricate(cu, model);
    llm42_config *c = &model->config;
    c->dim = random_size(8192), c->ffn = random_size(28672), c->vocab = random_size(200000);
    c->layers = random_int(1, 8);
    c->experts = random_int(0, 1) ? random_int(2, 128) : 0, c->experts_used = c->experts ? random_int(1, 2) : 0;
    const bool norms = random_int(0, 1), bias = random_int(0, 1), tied = random_int(0, 1);
    for (int i = 0; i < c->layers; i++) {
        llm42_layer *l = &layers[i];
        *l = llm42_layer();
        l->attention_norm = l->ffn_norm = &some;
        if (norms) l->q_norm = l->k_norm = &some;
        if (bias) l->q_bias = l->k_bias = l->v_bias = l->o_bias = &some;
        if (bias && !c->experts) l->gate_bias = l->up_bias = l->down_bias = &some;
    }
    model->layer = layers;
    model->embed.data = data, model->head.data = tied ? data : data + 1;
    cu->desc.fixed_rows = random_int(0, 1) ? 0 : random_size(2048);
    cu->desc.numerics.logits_fp32 = random_int(0, 1), cu->desc.numerics.router_fp32 = random_int(0, 1);
    cu->desc.numerics.leaves = 1 << random_int(0, 3);
    if (random_int(0, 1)) {
        const int ranks = 1 << random_int(0, 3);
        c->heads *= ranks, c->kv_heads *= random_int(0, 1) ? ranks : 1;
        cu->desc.tensor_parallel = ranks, cu->rank = random_int(0, ranks - 1);
        if (c->kv_heads % ranks && ranks % c->kv_heads) c->kv_heads = ranks;
        if (c->heads / c->kv_heads > 16) c->heads = 16 * c->kv_heads;
    }
    const unsigned fast = 1u << LLM42_SCHEDULE_FAST,
                   sets[] = {0, fast, fast | 1u << LLM42_SCHEDULE_FIXED, FAST_AND_INVARIANT};
    cu->desc.schedules = sets[random_int(0, 3)];
    llm42__cuda_sizes(cu);
    const llm42__leaves leaves = llm42__leaves_of(cu, LLM42__DOWN);
    check(leaves.count == std::max(1, cu->desc.numerics.leaves / cu->ranks) && cu->Fp % 64 == 0 &&
              cu->Fp >= leaves.count * leaves.terms &&
              (leaves.count == 1 || (leaves.terms % 16 == 0 && leaves.terms >= c->ffn / cu->ranks / leaves.count)),
          "leaves of the feed-forward width fit", 0);
}

// All that a pass reads and writes has its memory.
static void check_addresses(const llm42__cuda *cu, int64_t at) {
    const llm42_config *c = &cu->model->config;
    const bool own = cu->model->head.data != cu->model->embed.data;
    check(cu->embed && !own == !cu->head && cu->final_norm && cu->rope && cu->k && cu->v, "tables have memory", at);
    const llm42_layer *first = cu->model->layer;
    for (const llm42__cuda_layer &l : cu->layer)
        check(l.attention_norm && l.ffn_norm && !l.q_norm == !first->q_norm && !l.q_norm == !l.k_norm &&
                  !l.bias == !first->k_bias && !l.o_bias == !first->o_bias && !l.gate_bias == !first->up_bias &&
                  !l.down_bias == !first->down_bias && l.w[LLM42__QKV] && l.w[LLM42__O] && l.w[LLM42__GATE_UP] &&
                  l.w[LLM42__DOWN] && !l.w[LLM42__ROUTER] == !c->experts,
              "weights have memory", at);
    const llm42__execution *e = &cu->execution;
    check(e->x && e->h && e->delta && e->qkv && e->q && e->attended && e->gate_up && e->gated && e->workspace &&
              e->meta && e->partial && e->arrived,
          "passes have memory", at);
    check(!e->logits == (cu->rank > 0) && !e->own_logits == (cu->ranks == 1) && !e->part[0] == (cu->ranks == 1) &&
              !e->part[1] == (cu->ranks == 1) && !e->flag == (cu->ranks == 1),
          "ranks have memory to share", at);
    const bool fast_alone = cu->desc.schedules == 1u << LLM42_SCHEDULE_FAST;
    check(!e->parts == !((cu->leaves > 1 || cu->ranks > 1) && !fast_alone), "parts have memory where leaves are tried",
          at);
    check(!c->experts || (e->router && e->expert_out && e->route_weight && e->route_group && e->route_offset &&
                          e->route_source && e->route_place),
          "mixtures have memory", at);
}

// An engine takes what it was said to need, and is refused if there is one byte less.
static void check_memory(int64_t at) {
    static llm42_model model;
    static llm42_layer layers[8];
    llm42__cuda *cu = new llm42__cuda();
    fabricate_sizes(cu, &model, layers);
    size_t sums[LLM42__BLOCK_KINDS];
    const size_t need = llm42__needed_bytes(cu, sums);
    device_free = need;
    check(llm42__check_room(cu, &error) == LLM42_OK && !device_taken, "what is enough is enough", at);
    device_free = need - 1;
    check(llm42__check_room(cu, &error) == LLM42_MEMORY && strstr(error.text, "lower pages"), "what is not is not", at);
    device_most = 0;
    const llm42__blocks kept = llm42__kept_blocks(cu);
    for (int kind = 0; kind < LLM42__LOADING; kind++) {
        const size_t before = device_taken;
        check(llm42__take_blocks(cu, kept, kind, &error) == LLM42_OK, "blocks are taken", at);
        check(device_taken - before == sums[kind], "as much of each kind as was said", at);
    }
    check_addresses(cu, at);
    const size_t all = device_taken;
    char *buffer = nullptr;
    llm42__trial t = {};
    t.cu = cu;
    {
        const llm42__lent memory = {llm42__loading_blocks(&buffer)};
        llm42__take_blocks(cu, memory.list, LLM42__LOADING, &error);
        check(buffer && device_taken == all + sums[LLM42__LOADING], "the buffer's memory", at);
    }
    {
        const llm42__lent memory = {llm42__trial_blocks(&t)};
        llm42__take_blocks(cu, memory.list, LLM42__TRIALS, &error);
        check(t.x && t.turned && t.noise && t.w && t.y && t.other && t.sums && t.differ &&
                  device_taken == all + sums[LLM42__TRIALS],
              "the trials' memory", at);
    }
    check(device_taken == all && device_most + llm42__cuda_bytes == need, "the most that was taken is what was said",
          at);
    llm42__cuda_close(cu);
    check(!device_taken, "all is given back", at);
}

// A big vocabulary and many draws: logits in fp32 count in full.
static void check_logits_memory(void) {
    static llm42_model model;
    static llm42_layer layers[2];
    size_t passes[2] = {}, trials[2] = {}, draws = 0, vocab = 0;
    for (int fp32 = 0; fp32 < 2; fp32++) {
        llm42__cuda cu = {};
        size_t sums[LLM42__BLOCK_KINDS];
        model.config = {};
        model.config.heads = 32, model.config.kv_heads = 8, model.config.head_dim = 128, model.config.layers = 2;
        model.config.dim = 4096, model.config.ffn = 14336, model.config.vocab = 128256;
        model.layer = layers;
        cu.model = cu.desc.model = &model;
        cu.device.multiProcessorCount = 132;
        cu.desc.max_context = 8192, cu.desc.page_size = 16, cu.desc.pages = 16384;
        cu.desc.max_rows = 8192, cu.desc.max_running = 1024, cu.desc.fixed_rows = 256;
        cu.desc.numerics.logits_fp32 = fp32;
        llm42__cuda_sizes(&cu);
        llm42__needed_bytes(&cu, sums);
        draws = (size_t)cu.max_draws, vocab = (size_t)cu.Vp;
        passes[fp32] = sums[LLM42__PASSES], trials[fp32] = sums[LLM42__TRIALS];
    }
    // As much more as the logits need in bf16, up to whole pages.
    const long long more = (long long)(passes[1] - passes[0]) - (long long)(draws * vocab * 2);
    check(draws == 1024 && llabs(more) < 1ll << 21, "logits in fp32 count in full", 0);
    check(draws * vocab * 4 > (size_t)8192 * 28672 * 2 && trials[1] > 3 * draws * vocab * 4, "and in trials", 0);
}

// The choice of algorithms -----------------------------------------------------------------------------------------

// Algorithms by number: 0 to 3 are offered by cuBLASLt, 4 and 5 are variants, the others are tile kernels.
enum { OFFERED = 4, VARIANTS = 2, LT = OFFERED + VARIANTS, FAKES = LT + LLM42__TILE_KINDS };
static struct {
    float us[FAKES];
    bool wrong[FAKES], cannot_run[FAKES], sequential[FAKES], holds[FAKES];
    int kills, starves, fails;  // who loses the device; lacks memory; has no bits to compare; -1: none
    int lucky, readings;        // whose third reading is half of its time; -1: none. Its readings so far
    bool trusted;               // products are not looked at
    int leaves;                 // of the product; then those of the sequential order have leaves
    bool lost;
} fake;
static std::string logged;

static int fake_number(const llm42__algorithm *p) { return p->tile < 0 ? (int)p->algo.data[0] : LT + p->tile; }
static llm42_result fake_time(llm42__trial *, const llm42__algorithm *p, int, float *us, llm42_error *e) {
    const int i = fake_number(p);
    fake.lost |= i == fake.kills;
    if (i == fake.starves) return llm42_fail(e, LLM42_MEMORY, "cuda backend: out of memory");
    if (fake.lost || fake.cannot_run[i]) return llm42_fail(e, LLM42_BACKEND, "cuda backend: it failed");
    *us = i == fake.lucky && ++fake.readings == 3 ? fake.us[i] / 2 : fake.us[i];
    return LLM42_OK;
}
static llm42_result fake_order(llm42__trial *, const llm42__algorithm *p, bool *sequential, llm42_error *) {
    *sequential = fake.sequential[fake_number(p)];
    return LLM42_OK;
}
static llm42_result fake_holds(llm42__trial *, const llm42__algorithm *p, bool *holds, llm42_error *e) {
    if (fake_number(p) == fake.fails) return llm42_fail(e, LLM42_BACKEND, "cuda backend: cudaSomething: it failed");
    *holds = fake.holds[fake_number(p)];
    return LLM42_OK;
}
static llm42_result fake_right(llm42__trial *, const llm42__algorithm *p, bool *right, llm42_error *) {
    *right = fake.trusted || !fake.wrong[fake_number(p)];
    return LLM42_OK;
}
static llm42_result fake_alive(llm42_error *e) {
    return fake.lost ? llm42_fail(e, LLM42_BACKEND, "cuda backend: the device is lost") : LLM42_OK;
}
static const llm42__tests fake_tests = {llm42__run_product, fake_time, fake_order, fake_holds, fake_right, fake_alive};

// Fast algorithms that sum in orders of their own, and slower tile kernels: all of them good.
static void fake_all(void) {
    fake = {};
    fake.kills = fake.starves = fake.fails = fake.lucky = -1;
    for (int i = 0; i < FAKES; i++)
        fake.us[i] = (float)(i < LT ? 10 + i : 100 + i), fake.sequential[i] = i >= LT, fake.holds[i] = true;
}

// Chooses for a product of 6,144 x 4,096. chosen: by schedule.
static llm42_result fake_choose_for(llm42__algorithm *chosen, unsigned schedules, llm42_cuda_fast fast, int rows) {
    static llm42_model model;
    llm42__cuda cu = {};
    llm42__trial t = {};
    std::vector<llm42__candidate> list;
    t.cu = &cu, t.tests = &fake_tests;
    cu.model = &model, cu.qkv = 6144, cu.Dp = 4096, cu.Fp = 8192, cu.max_rows = rows, cu.options.fast = fast;
    cu.leaves = fake.leaves > 1 ? fake.leaves : 1;
    const int product = fake.leaves > 1 ? LLM42__DOWN : LLM42__QKV;
    cu.desc.schedules = schedules;
    cu.desc.log = [](void *, const char *line) { logged += line; };
    cu.buckets.push_back(rows);
    set_all(&cu, llm42__algorithm());
    for (int i = 0; i < FAKES; i++) {
        llm42__algorithm p = {};
        p.tile = i < LT ? -1 : i - LT, p.algo.data[0] = (uint64_t)i;
        p.leaves = fake.leaves > 1 && fake.sequential[i];
        list.push_back({p, i < OFFERED && !p.leaves ? i : -1});
    }
    logged.clear();
    t.product = product, t.rows = rows;
    LLM42__TRY(llm42__find_contenders(&t, &list, &error));
    LLM42__TRY(llm42__choose_from(&t, list, &error));
    for (llm42_schedule schedule : llm42__schedules) chosen[schedule] = cu.algorithms[product][schedule][0];
    return LLM42_OK;
}
// The same with 16 rows, for an engine of any passes.
static llm42_result fake_choose(llm42__algorithm *chosen) {
    return fake_choose_for(chosen, 0, LLM42_CUDA_FAST_DEFAULT, 16);
}
static int fake_chosen(llm42_schedule schedule) {
    llm42__algorithm chosen[LLM42_SCHEDULE_COUNT];
    const bool ok = fake_choose(chosen) == LLM42_OK;
    return check(ok, error.text, schedule) ? fake_number(&chosen[schedule]) : -1;
}
// What FAST passes of an engine take.
static int fake_fast(unsigned schedules, llm42_cuda_fast fast, int rows) {
    llm42__algorithm chosen[LLM42_SCHEDULE_COUNT];
    const bool ok = fake_choose_for(chosen, schedules, fast, rows) == LLM42_OK;
    return check(ok, error.text, rows) ? fake_number(&chosen[LLM42_SCHEDULE_FAST]) : -1;
}

static void check_wrong_products(void) {
    fake_all();
    check(fake_chosen(LLM42_SCHEDULE_FAST) == 0 && fake_chosen(LLM42_SCHEDULE_FIXED) == 0 &&
              fake_chosen(LLM42_SCHEDULE_INVARIANT) == LT && logged.empty(),
          "if all are good, FAST takes the fastest, FIXED the first, INVARIANT the fastest in order", 0);
    // A repeatable but wrong product: nothing but the comparison of products refuses it.
    fake.wrong[0] = fake.wrong[LT] = true;
    check(fake_chosen(LLM42_SCHEDULE_FAST) == 1 && fake_chosen(LLM42_SCHEDULE_FIXED) == 1 &&
              fake_chosen(LLM42_SCHEDULE_INVARIANT) == LT + 1,
          "no schedule takes a wrong product", 0);
    check(logged.find("cuda refused: qkv product (6144 x 4096) with 16 rows by cublasLt algorithm") !=
                  std::string::npos &&
              logged.find("with 16 rows by tile") != std::string::npos,
          "what is refused is logged", 0);
    fake.trusted = true;
    check(fake_chosen(LLM42_SCHEDULE_FAST) == 0 && fake_chosen(LLM42_SCHEDULE_FIXED) == 0 &&
              fake_chosen(LLM42_SCHEDULE_INVARIANT) == LT,
          "without the comparison all would have taken it", 0);
    fake_all();
    for (int i = 0; i < FAKES; i++) fake.wrong[i] = true;
    llm42__algorithm chosen[LLM42_SCHEDULE_COUNT];
    check(fake_choose(chosen) == LLM42_NOT_INVARIANT && strstr(error.text, "qkv product (6144 x 4096) with 16 rows"),
          "if all are wrong there is an error", 0);
}

static void check_failed_trials(void) {
    llm42__algorithm chosen[LLM42_SCHEDULE_COUNT];
    fake_all();
    fake.cannot_run[0] = true;
    check(fake_chosen(LLM42_SCHEDULE_FAST) == 1 && logged.empty(), "what cannot run here is left out", 0);
    const auto fails = [&](llm42_result want, const char *text, const char *what) {
        check(fake_choose(chosen) == want && strstr(error.text, text) && !strchr(error.text, '\n') &&
                  strstr(error.text, "qkv product (6144 x 4096) with 16 rows by cublasLt algorithm "),
              what, 0);
    };
    fake.kills = 2;
    fails(LLM42_BACKEND, ": the device is lost", "a lost device is an error that says where it was lost");
    check(strstr(error.text, "cuda backend: while trying the qkv"), "and when", 0);
    fake_all(), fake.starves = 1;
    fails(LLM42_MEMORY, "out of memory: lower pages", "so is a lack of memory");
    fake_all(), fake.fails = 0;
    fails(LLM42_BACKEND, ": cudaSomething: it failed", "so is a failure in a later test");
}

// Medians count: one short reading does not make an algorithm the fastest.
static void check_short_reading(void) {
    fake_all();
    fake.lucky = 1;
    check(fake_chosen(LLM42_SCHEDULE_FAST) == 0 && fake.readings > 3, "one short reading does not count", 0);
    fake.us[1] = fake.us[0] / 2;
    check(fake_chosen(LLM42_SCHEDULE_FAST) == 1, "control: if all are short it is the fastest", 0);
}

// Large matrices are multiplied for half a second before anything is timed, small ones are not.
static void check_warm_up(void) {
    for (int large = 0; large < 2; large++) {
        fake_all();
        llm42__cuda cu = {};
        llm42__trial t = {};
        llm42__algorithm p = {};
        p.tile = -1, fake.lucky = 0;
        llm42__candidate_list list = {{p, 0}};
        t.cu = &cu, t.tests = &fake_tests, t.product = LLM42__QKV, t.rows = 512;
        cu.qkv = large ? 6144 : 768, cu.Dp = large ? 4096 : 512;
        const double begin = llm42__wall_now(NULL);
        check(llm42__warm_up(&t, &list, &error) == LLM42_OK, error.text, large);
        const double took = llm42__wall_now(NULL) - begin;
        check(large ? fake.readings > 3 && took >= 0.5 : !fake.readings && took < 0.5, "half a second, or none", large);
    }
}

// What FIXED and INVARIANT sum does not depend on times.
static void check_times_do_not_matter(int64_t at) {
    int first = OFFERED;  // that holds
    fake_all();
    for (int i = 0; i < LT; i++) fake.sequential[i] = random_int(0, 3) == 0, fake.holds[i] = random_int(0, 2) == 0;
    for (int i = OFFERED - 1; i >= 0; i--)
        if (fake.holds[i]) first = i;
    const bool in_order = first == OFFERED || fake.sequential[first];
    for (int turn = 0; turn < 8; turn++) {
        for (int i = 0; i < FAKES; i++) fake.us[i] = (float)random_int(10, 30);
        llm42__algorithm chosen[LLM42_SCHEDULE_COUNT];
        check(fake_choose(chosen) == LLM42_OK, error.text, at);
        const llm42__algorithm *fixed = &chosen[LLM42_SCHEDULE_FIXED];
        check(chosen[LLM42_SCHEDULE_INVARIANT].sequential, "INVARIANT takes the sequential order", at);
        check(fixed->sequential == in_order && (in_order || fake_number(fixed) == first),
              "FIXED takes the first offered that holds, or the sequential order", at);
    }
}

// Where INVARIANT passes verify, FAST passes take the sequential order, if it is cheap or the rows are few.
static void check_canonical_products(void) {
    const llm42_cuda_fast fastest = LLM42_CUDA_FAST_FASTEST, offered = LLM42_CUDA_FAST_OFFERED;
    fake_all();
    check(fake_fast(FAST_AND_INVARIANT, fastest, 16) == LT && fake_fast(FAST_AND_INVARIANT, fastest, 64) == 0,
          "a dear order of sums is for few rows", 0);
    fake.us[LT] = 10.15f;
    check(fake_fast(FAST_AND_INVARIANT, fastest, 64) == LT, "a cheap one is for any number", 0);
    for (int rows : {16, 64}) {
        check(fake_fast(FAST_AND_INVARIANT, offered, rows) == 0, "OFFERED does not prefer it", rows);
        check(fake_fast(1u << LLM42_SCHEDULE_FAST, fastest, rows) == 0, "nor do FAST passes alone", rows);
        check(fake_fast(FAST_AND_INVARIANT | 1u << LLM42_SCHEDULE_FIXED, fastest, rows) == 0 &&
                  fake_fast(0, fastest, rows) == 0,
              "nor those beside FIXED passes", rows);
    }
}

// Only INVARIANT passes have leaves, and FAST ones where INVARIANT passes verify them.
static void check_leaves_of_products(void) {
    for (int turn = 0; turn < 200; turn++) {
        fake_all();
        fake.leaves = 1 << random_int(1, 3);
        for (int i = 0; i < FAKES; i++) {
            fake.us[i] = (float)random_int(10, 30), fake.sequential[i] = random_int(0, 1) || i == LT;
            fake.holds[i] = random_int(0, 3) || i == LT;
        }
        fake.sequential[LT + 1] = false, fake.holds[LT + 1] = true;  // a tile kernel without leaves
        const unsigned schedules = turn % 2 ? FAST_AND_INVARIANT : 0;
        llm42__algorithm chosen[LLM42_SCHEDULE_COUNT];
        check(fake_choose_for(chosen, schedules, LLM42_CUDA_FAST_DEFAULT, 16) == LLM42_OK, error.text, turn);
        check(chosen[LLM42_SCHEDULE_INVARIANT].leaves, "INVARIANT has leaves", turn);
        check(chosen[LLM42_SCHEDULE_FAST].leaves == (schedules == FAST_AND_INVARIANT), "FAST has them where that helps",
              turn);
        check(schedules || !chosen[LLM42_SCHEDULE_FIXED].leaves, "FIXED has none", turn);
    }
    fake_all();
}

// A backend with products o (4,096 x 4,096) and down (4,096 x ffn), with some leaves, on a device that is not there.
static llm42__cuda leaf_backend(int leaves, int ffn) {
    static const llm42_layer layer[1] = {};
    static llm42_model model;
    llm42__cuda cu = {};
    model.config = {}, model.layer = layer;
    model.config.heads = 32, model.config.kv_heads = 8, model.config.head_dim = 128, model.config.layers = 1;
    model.config.dim = 4096, model.config.ffn = ffn, model.config.vocab = 64;
    cu.model = cu.desc.model = &model, cu.desc.numerics.leaves = leaves;
    cu.desc.max_context = 64, cu.desc.page_size = 16, cu.desc.pages = 4, cu.desc.max_rows = 2048;
    cu.desc.schedules = FAST_AND_INVARIANT, cu.options.no_cublas = true, cu.device.major = 9;
    llm42__cuda_sizes(&cu);
    return cu;
}

static int leaf_kinds_of(const llm42__cuda *cu, int product, int rows) {
    int count = 0;
    for (int i = 0; i < LLM42__LEAF_KINDS; i++) {
        llm42__algorithm algorithm;
        algorithm.tile = LLM42__TILE_KINDS + i, algorithm.leaves = true;
        count += llm42__leaf_kind_serves(cu, product, &algorithm, rows);
    }
    return count;
}

// A row of an algorithm file comes back as it was.
static bool comes_back(llm42__cuda *cu, int product, int tile, bool leaves, int rows) {
    set_all(cu, llm42__algorithm());
    const size_t bucket = (size_t)llm42__bucket(cu, rows);
    llm42__algorithm *algorithm = &cu->algorithms[product][LLM42_SCHEDULE_INVARIANT][bucket];
    algorithm->tile = tile, algorithm->leaves = leaves, algorithm->sequential = true, algorithm->us = 7;
    const std::string text = llm42__algorithm_text(algorithm);
    llm42__algorithm got;
    return llm42__parse_algorithm(cu, text.c_str(), product, LLM42_SCHEDULE_INVARIANT, rows, &got) &&
           got.tile == tile && got.leaves == leaves && got.us == 7;
}

// Kernels with leaves by warpgroups are offered for what they can compute, and taken from a file only for that.
static void check_leaf_kinds(void) {
    enum { OF_128 = 128 };
    int at = 0;
    while (at < LLM42__LEAF_KINDS && strcmp(llm42__leaf_kinds[at].name, "leaf128x2x1")) at++;
    if (!check(at < LLM42__LEAF_KINDS, "there is a kind leaf128x2x1", at)) return;
    const int kind = LLM42__TILE_KINDS + at;
    for (int leaves : {2, 4, 8}) {
        llm42__cuda cu = leaf_backend(leaves, 14336);
        for (int rows : cu.buckets)
            for (int product : {LLM42__O, LLM42__DOWN})
                check(leaf_kinds_of(&cu, product, rows) > 0, "each number of rows has a kind", rows);
        check(leaf_kinds_of(&cu, LLM42__QKV, 128) == 0, "but not products without leaves", leaves);
        check(comes_back(&cu, LLM42__DOWN, kind, true, OF_128) && comes_back(&cu, LLM42__O, kind, true, OF_128),
              "a file keeps the kind", leaves);
        check(!comes_back(&cu, LLM42__DOWN, kind, false, OF_128), "not without leaves", leaves);
        check(!comes_back(&cu, LLM42__QKV, kind, true, OF_128), "nor for another product", leaves);
        check(!comes_back(&cu, LLM42__DOWN, kind, true, 1), "nor for far fewer rows", leaves);
        check(comes_back(&cu, LLM42__DOWN, LLM42__TILE_KINDS - 1, true, OF_128), "tile kernels come back", leaves);
        cu.device.major = 8;
        check(leaf_kinds_of(&cu, LLM42__O, 128) == 0, "other devices have none", leaves);
        check(!comes_back(&cu, LLM42__DOWN, kind, true, OF_128), "nor from a file", leaves);
    }
    llm42__cuda one = leaf_backend(1, 14336), odd = leaf_backend(8, 11008);  // leaves of 1,376 terms
    check(leaf_kinds_of(&one, LLM42__O, 128) == 0 && leaf_kinds_of(&odd, LLM42__DOWN, 128) == 0 &&
              leaf_kinds_of(&odd, LLM42__O, 128) > 0,
          "leaves need a multiple of 64 terms", 0);
}

// The kernels' leaves, step by step: each adds the value of 16 terms. Behind the last leaf there may be padding, zeros.
static float plain_leaves(const std::vector<float> &step, int each, int first, int count) {
    if (count > 1)
        return plain_leaves(step, each, first, count / 2) + plain_leaves(step, each, first + count / 2, count / 2);
    float sum = 0;
    for (int i = first * each; i < (first + 1) * each; i++) sum += step[(size_t)i];
    return sum;
}

static void check_leaves_of_a_sum(void) {
    for (int turn = 0; turn < 4000; turn++) {
        const int count = 1 << random_int(0, 3), each = random_int(1, 9), chunk = 2 << random_int(1, 4);  // in steps
        const int steps = (count * each + chunk - 1) / chunk * chunk;
        float sum[1][4] = {}, pending[3][1][4], parts[8] = {};
        const bool apart = random_int(0, 1);
        for (int block = 0; block < 2; block++) {
            std::vector<float> step((size_t)steps);
            for (int i = 0; i < count * each; i++) step[(size_t)i] = (float)random_int(-1000, 1000) / 7.0f;
            auto close = [&](int leaf) {
                if (apart) parts[leaf] = sum[0][3], sum[0][3] = 0;
                else llm42__join_leaf<1>(pending, sum, leaf, leaf + 1 == count);
            };
            llm42__leaf_count<> now = {16 * each, count, 16 * each, 0};
            auto pass = [&](int n) {
                const int ended = now.pass(n);
                if (ended >= 0) close(ended);
            };
            for (int i = 0; i < steps; i += 2) {  // as llm42__multiply does
                const bool within = now.ends_within();
                sum[0][3] += step[(size_t)i];
                if (!within) sum[0][3] += step[(size_t)i + 1];
                pass(within ? 16 : 32);
                if (!within) continue;
                sum[0][3] += step[(size_t)i + 1];
                pass(16);
            }
            const float want = plain_leaves(step, each, 0, count);
            if (apart)
                for (int p = 0; p < count; p++)
                    check(parts[p] == plain_leaves(step, each, p, 1) && sum[0][3] == 0, "each leaf is a part", turn);
            else check(sum[0][3] == want, "leaves are joined by the tree of neighbours", turn);
            sum[0][3] = 0;
        }
    }
}

// Host memory runs out ---------------------------------------------------------------------------------------------

// What f returns without memory; an exception is LLM42_NOT_FOUND.
template <typename F> static llm42_result without_memory(F f) {
    llm42_result result = LLM42_NOT_FOUND;
    switch_memory();
    try {
        result = f();
    } catch (...) {
    }
    switch_memory();
    return result;
}

static void check_no_exception(void) {
    llm42_model model = {};
    llm42__cuda *cu = new llm42__cuda();
    fabricate(cu, &model);
    cu->desc.fixed_rows = cu->desc.max_rows;
    int32_t page = 0;
    llm42_seq seq = {};
    seq.pages = &page;
    llm42_row row = {};
    llm42_output out = {};
    llm42_pass pass = {};
    pass.schedule = LLM42_SCHEDULE_FIXED, pass.rows = 1, pass.shape = cu->desc.fixed_rows;
    pass.row = &row, pass.seq = &seq, pass.out = &out;
    llm42_cuda_stage stages[LLM42_CUDA_STAGES];
    int count = 0;
    auto refused = [&](auto f, const char *what) {
        error = {};
        check(without_memory(f) == LLM42_MEMORY && strstr(error.text, "out of host memory"), what, 0);
    };
    refused([&]() { return llm42_backend_cuda()->run(cu, &pass, &error); }, "run without memory");
    refused([&]() { return llm42_cuda_stages(cu, &pass, 1, stages, &count, &error); }, "stages without memory");
    check(llm42__guarded(&error, []() -> llm42_result { throw 42; }) == LLM42_BACKEND, "other exceptions", 0);
    delete cu;
}

// Logits come back, and no memory is needed for that.
static void check_logits_copied(int64_t at) {
    enum { ROWS = 12, V = 77, VP = 128 };
    static llm42_model model;
    static uint32_t device[ROWS * VP];
    static float logits[ROWS * V];
    llm42__cuda cu = {};
    llm42_pass pass = {};
    llm42_seq seq = {};
    llm42_row rows[ROWS] = {};
    llm42_output outs[ROWS] = {};
    const bool fp32 = at & 1;
    model.config.vocab = V;
    cu.model = &model, cu.config = model.config, cu.Vp = VP, cu.desc.numerics.logits_fp32 = fp32;
    for (uint32_t &x : device) x = (uint32_t)random_int(0, INT32_MAX - 1);
    for (float &x : logits) x = -1;
    pass.rows = ROWS, pass.row = rows, pass.seq = &seq, pass.out = outs, pass.logits = logits;
    llm42__execution *ex = &cu.execution;
    ex->logits = device;
    for (llm42_row &row : rows)
        if (random_int(0, 2)) row.flags = LLM42_ROW_SAMPLE, ex->prepared.draws++;
    bool same = without_memory([&]() { return llm42__copy_logits(&cu, &pass, 0, ex->prepared.draws, &error); }) ==
                LLM42_OK;
    for (int r = 0, draw = 0; r < ROWS; r++) {
        const bool drawn = rows[r].flags & LLM42_ROW_SAMPLE;
        for (int i = 0; i < V; i++) {
            uint32_t want, got;
            const float none = -1;
            memcpy(&got, &logits[r * V + i], 4);
            memcpy(&want, &none, 4);
            if (drawn && fp32) want = device[draw * VP + i];
            if (drawn && !fp32) want = (uint32_t)((const uint16_t *)device)[draw * VP + i] << 16;
            same = same && got == want;
        }
        draw += drawn;
    }
    check(same, "logits are copied without memory", at);
}

// Several devices --------------------------------------------------------------------------------------------------

// An engine with a rank on each of so many devices, without memory.
struct some_ranks {
    llm42__cuda rank[8] = {};
    host_stream stream[8] = {};
    unsigned ended = 0, flag[8];
    explicit some_ranks(int count) {
        for (int r = 0; r < count; r++) {
            rank[r].rank = r, rank[r].ranks = rank[r].devices = count, rank[r].first = rank;
            rank[r].options.device = rank[r].own_device = r;
            rank[r].execution.stream = (cudaStream_t)&stream[r], rank[r].execution.flag = &flag[r];
            if (r) rank[0].others.push_back(&rank[r]);
        }
        rank[0].ended = &ended;
    }
};

// A pass has failed, and all devices wait for each other. If a device is lost, nobody waits for it any more.
static void check_end_of_pass(void) {
    for (int devices = 2; devices <= 8; devices *= 2)
        for (int lost = -1; lost < devices; lost++) {
            some_ranks e(devices);
            for (int d = 0; d < devices; d++) e.stream[d].until = &e.ended;
            if (lost >= 0) e.stream[lost].lost = host_lost[lost] = true;
            host_hangs = 0;
            llm42__end_pass(e.rank);
            check(!host_hangs, "the end of a pass that has failed does not hang", lost);
            check(e.ended == (lost >= 0), "where a device is lost no pass waits any more, else others may", lost);
            check(llm42__check_lost(e.rank, &error) == (lost >= 0 ? LLM42_BACKEND : LLM42_OK), "and none runs", lost);
            if (lost >= 0) host_lost[lost] = false;
        }
}

// Engines that share a device take turns to run, open and close. Others do not.
static void check_turns(void) {
    llm42__cuda a = {}, b = {};
    a.devices = b.devices = 2;
    const auto waits = [&](int device) {
        bool free = false;
        b.options.device = device;
        const llm42__turn turn = llm42__turn::to_run(&a), nested = llm42__turn::to_run(&a);
        std::thread([&]() {
            for (int d = 0; d < 2; d++) {
                free = llm42__turn::of(device + d).try_lock();
                if (!free) return;
                llm42__turn::of(device + d).unlock();
            }
            const llm42__turn another = llm42__turn::to_run(&b);
            free = true;
        }).join();
        return !free;
    };
    check(waits(0) && waits(1) && !waits(2), "engines that share a device take turns", 0);
    const auto held = [](llm42__turn (*take)(const llm42__cuda *), const llm42__cuda *cu) {
        const llm42__turn turn = take(cu);
        int devices = 0;
        std::thread([&]() {
            for (int d = 0; d < 4; d++) {
                const bool free = llm42__turn::of(d).try_lock();
                if (free) llm42__turn::of(d).unlock();
                devices += !free;
            }
        }).join();
        return devices;
    };
    b.options.device = 1;
    check(held(llm42__turn::to_run, &b) == 2, "a pass runs on all its devices in turn", 0);
    check(held(llm42__turn::to_change, &b) == 2, "so is its engine closed", 0);
    a.devices = 1;
    check(!waits(0), "engines on one device wait for nobody", 0);
    check(held(llm42__turn::to_change, &a) == 1, "but they open and close in turn", 0);
    check(held(llm42__turn::to_run, &a) == 0, "every turn has ended", 0);
}

static void check_kinds_of_devices(void) {
    cudaDeviceProp a = {}, b = {};
    strcpy(a.name, "NVIDIA H200"), strcpy(b.name, "NVIDIA H200");
    a.multiProcessorCount = b.multiProcessorCount = 132;
    check(llm42__same_kind(&a, &b), "devices of one kind", 0);
    b.multiProcessorCount = 114;
    check(!llm42__same_kind(&a, &b), "fewer multiprocessors are another kind", 0);
    b = a, b.name[7] = 'B';
    check(!llm42__same_kind(&a, &b), "another name is another kind", 0);
}

// An engine whose passes can be launched: a dense model or a mixture, by tile kernels.
struct launching : some_ranks {
    llm42_model model = {};
    llm42_layer layers[2] = {};
    launching(int ranks, bool mixture, int max_rows = 16) : some_ranks(ranks) {
        llm42_config *c = &model.config;
        model.layer = layers;
        c->heads = c->kv_heads = 8, c->head_dim = 16, c->dim = 128, c->ffn = 128, c->vocab = 512, c->layers = 2;
        c->context = 256, c->experts = mixture ? 4 : 0, c->experts_used = mixture ? 2 : 0;
        for (int r = 0; r < ranks; r++) {
            llm42__cuda *cu = &rank[r];
            cu->model = cu->desc.model = &model;
            cu->desc.max_rows = max_rows, cu->desc.max_running = 16, cu->desc.max_context = 256;
            cu->desc.page_size = 16, cu->desc.pages = 64, cu->desc.tensor_parallel = ranks;
            cu->device.sharedMemPerBlockOptin = 232448, cu->device.multiProcessorCount = 132;
            llm42__cuda_sizes(cu);
            cu->layer.resize(2);
            llm42__algorithm tile;
            tile.tile = 0;
            set_all(cu, tile);
            for (ulonglong2 *&box : cu->execution.mail) box = (ulonglong2 *)4096;
        }
    }
};

// Launches a pass of so many rows and draws.
static void launch(llm42__cuda *ranks, llm42_schedule schedule, int rows, int draws) {
    const llm42__shape_key key = {schedule, rows, draws, true, true};
    host_launches.clear();
    check(llm42__enqueue(ranks, &key, &error) == LLM42_OK, error.text, rows);
}

// The first launch of a kernel may wait until its device is idle, because CUDA loads the kernel then. So nothing is
// launched behind a norm that waits for mail before the other ranks' norms have been launched too.
static void check_order_of_launches(bool mixture) {
    const void *by_mail[] = {(const void *)llm42__k_norm<LLM42__ADD, LLM42__ROUNDED | LLM42__MAIL>,
                             (const void *)llm42__k_norm<LLM42__ADD_DRAWS, LLM42__ROUNDED | LLM42__MAIL>};
    for (int ranks = 2; ranks <= 8; ranks *= 2) {
        launching e(ranks, mixture);
        launch(e.rank, LLM42_SCHEDULE_FAST, 4, 4);
        int waiting = 0, all = 0, others = 0;  // waiting: norms whose mail is not all on its way
        for (const void *kernel : host_launches) {
            const bool waits = kernel == by_mail[0] || kernel == by_mail[1];
            others += waiting && !waits;
            waiting = (waiting + waits) % ranks;
            all += waits;
        }
        check(all == 4 * ranks, "ranks get mail twice in each layer", ranks);
        check(!others, "nothing is launched behind a norm whose mail may not come", ranks);
    }
}

// An engine for FAST passes alone has no memory for leaves, so none of its passes has any.
static void check_no_leaves(void) {
    launching e(2, true);
    for (llm42__cuda &cu : e.rank) cu.desc.schedules = 1u << LLM42_SCHEDULE_FAST;
    for (llm42_schedule schedule : llm42__schedules) {
        launch(e.rank, schedule, 4, 4);
        for (const void *kernel : host_launches)
            check(kernel != (const void *)llm42__k_combine_leaves<float>, "no leaves without memory", schedule);
    }
}

// The stages of a pass by name, and the kernels that each has launched. Every launch is a stage's.
struct stage_row {
    const char *name;
    std::vector<const void *> kernels;  // NULL: of attention
};
static void check_stages(bool mixture) {
    typedef llm42__bf16 bf16;
    const void *product = (const void *)llm42__k_matmul<1, 2, 512, 4, false, false, bf16>,
               *gated = (const void *)llm42__k_matmul<1, 2, 512, 4, true, false, bf16>,
               *experts = (const void *)llm42__k_matmul<1, 2, 128, 8, false, false, bf16>,
               *gated_experts = (const void *)llm42__k_matmul<1, 2, 128, 8, true, false, bf16>,
               *embed = (const void *)llm42__k_norm<LLM42__EMBED, LLM42__WHOLE>,
               *add = (const void *)llm42__k_norm<LLM42__ADD, LLM42__WHOLE>,
               *mix = mixture ? (const void *)llm42__k_norm<LLM42__ADD, LLM42__EXPERTS> : add,
               *draws = mixture ? (const void *)llm42__k_norm<LLM42__ADD_DRAWS, LLM42__EXPERTS>
                                : (const void *)llm42__k_norm<LLM42__ADD_DRAWS, LLM42__WHOLE>;
    std::vector<stage_row> want;
    for (int l = 0; l < 2; l++) {
        want.push_back({"norm", {l ? mix : embed}});
        want.push_back({"qkv", {product}});
        want.push_back({"rope", {(const void *)llm42__k_rope<16, false>}});
        want.push_back({"attention", {nullptr, nullptr}});
        want.push_back({"o", {product}});
        want.push_back({"norm", {add}});
        if (mixture) {
            want.push_back({"router", {product}});
            want.push_back({"route", {(const void *)llm42__k_route<4, bf16>}});
        }
        want.push_back({"gate_up", {mixture ? gated_experts : gated}});
        want.push_back({"down", {mixture ? experts : product}});
    }
    want.push_back({"norm", {draws}});
    want.push_back({"head", {product}});
    want.push_back({"draw", {(const void *)llm42__k_draw<bf16, 1>}});

    launching e(1, mixture);
    std::vector<llm42__timing> timings;
    host_events.clear();
    e.rank[0].timings = &timings;
    launch(e.rank, LLM42_SCHEDULE_FAST, 4, 4);
    if (!check(timings.size() == want.size(), "a pass has these stages", (int64_t)timings.size())) return;
    size_t launched = 0;
    for (size_t i = 0; i < want.size(); i++) {
        const stage_row &row = want[i];
        const size_t begin = host_events[(size_t)timings[i].begin - 1], end = host_events[(size_t)timings[i].end - 1];
        bool same = begin == launched && end == begin + row.kernels.size();
        for (size_t k = 0; same && k < row.kernels.size(); k++)
            same = !row.kernels[k] || row.kernels[k] == host_launches[begin + k];
        check(!strcmp(timings[i].name, row.name) && same, row.name, (int64_t)i);
        launched = end;
    }
    check(launched == host_launches.size(), "every launch is a stage's", mixture);
}

// Between two products the devices meet once, or twice where each norms only some rows. By mail they do not.
static void check_meetings(void) {
    enum { LAYERS = 2, RANKS = 2 };
    static const struct {
        llm42_schedule schedule;
        int rows;
        int meetings;  // of a layer's two exchanges
    } cases[] = {{LLM42_SCHEDULE_FAST, 64, 0},
                 {LLM42_SCHEDULE_FAST, 72, 2},
                 {LLM42_SCHEDULE_INVARIANT, 64, 0},
                 {LLM42_SCHEDULE_INVARIANT, 128, 4}};
    for (const auto &c : cases) {
        launching e(RANKS, false, 256);
        for (int r = 0; r < RANKS; r++) {
            llm42__cuda *cu = &e.rank[r];
            llm42__algorithm tile;
            tile.tile = 0, tile.leaves = true;
            for (int product : {LLM42__O, LLM42__DOWN})
                cu->algorithms[product][LLM42_SCHEDULE_INVARIANT].assign(cu->buckets.size(), tile);
        }
        launch(e.rank, c.schedule, c.rows, 0);
        // The last exchange's norm is behind the last layer, and only passes that draw have it.
        const bool own_rows = c.meetings > 2;
        const int want = RANKS * (c.meetings * LAYERS - own_rows);
        check(std::count(host_launches.begin(), host_launches.end(), (const void *)llm42__k_meet) == want,
              "the devices meet as often as they must", c.rows);
    }
}

static void take_shown(void *user, int, const char *, int, int width, const float *values) {
    std::vector<float> *all = (std::vector<float> *)user;
    all->insert(all->end(), values, values + width);
}

// A probe gets the parts of all ranks together, though each rank shows several operators before the next one begins. A
// pass that fails leaves nothing behind for the next one.
static void check_probe_of_ranks(void) {
    some_ranks e(2);
    std::vector<float> all;
    llm42_pass pass = {};
    pass.probe = take_shown, pass.probe_user = &all;
    auto show = [&](int rank, float value) {
        std::vector<float> values(1, value);
        llm42__show_values(&e.rank[rank], 0, "q", 1, 1, &values);
    };
    llm42__set_probed(e.rank, &pass);
    show(0, 1), show(0, 2);  // and then it fails
    llm42__set_probed(e.rank, nullptr);
    llm42__set_probed(e.rank, &pass);
    show(0, 3), show(0, 4);
    check(all.empty(), "nothing is given before all ranks have shown it", 0);
    show(1, 5), show(1, 6);
    check(all == std::vector<float>{3, 5, 4, 6}, "the parts of an operator come together", 0);
}

int main(void) {
    static llm42_model model;
    for (int64_t at = 0; at < 500; at++) {
        llm42__cuda *cu = new llm42__cuda();
        fabricate(cu, &model);
        for (int i = 0; i < 4; i++) check_pass(cu, at);
        delete cu;
    }
    check_long_rows();
    check_even_work();
    check_most_tasks();
    check_algorithm_file();
    for (int64_t at = 0; at < 200; at++) check_memory(at);
    check_logits_memory();
    check_wrong_products();
    check_failed_trials();
    check_short_reading();
    check_warm_up();
    for (int64_t at = 0; at < 200; at++) check_times_do_not_matter(at);
    check_canonical_products();
    check_leaves_of_products();
    check_leaf_kinds();
    check_leaves_of_a_sum();
    check_no_exception();
    for (int64_t at = 0; at < 20; at++) check_logits_copied(at);
    check_end_of_pass();
    check_kinds_of_devices();
    check_turns();
    check_no_leaves();
    check_probe_of_ranks();
    for (bool mixture : {false, true}) check_order_of_launches(mixture), check_stages(mixture);
    check_meetings();
    printf("cuda_host: %" PRId64 " passed, %" PRId64 " failed\n", passed, failed);
    return failed > 0;
}
