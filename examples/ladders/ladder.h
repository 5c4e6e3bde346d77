// ladder.h: what matmul_ladder.cu and attention_ladder.cu share: checks, errors, times, bits, and options with numbers.
// Each of them defines LADDER, its name, and includes kernels.cu first.
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <string>
#include <vector>

typedef llm42__bf16 bf16;

#ifdef LLM42_EMULATED  // on a CPU (emulator.h): bits, but no times
enum { LAUNCHES = 1, TIMES = 1, LEAST_BYTES = 1 };
#else
enum { LAUNCHES = 4, TIMES = 21, LEAST_BYTES = 1 << 30 };  // all copies together: far more than caches hold
#endif

static int passed, failed;

static void check(bool ok, int rows, const char *what) {
    passed += ok;
    failed += !ok;
    if (!ok) printf(LADDER ": FAILED: %d rows: %s\n", rows, what);
}

static int end(void) {
    printf(LADDER ": %d passed, %d failed\n", passed, failed);
    return failed ? 1 : 0;
}

// One line, and the end: status 2 for what the user typed, 1 for what went wrong later.
static void fail(int status, const char *format, ...) {
    va_list values;
    va_start(values, format);
    fflush(stdout);
    fprintf(stderr, LADDER ": ");
    vfprintf(stderr, format, values);
    fprintf(stderr, "\n");
    va_end(values);
    exit(status);
}

#define CU(call) must(#call, (call))
static void must(const char *call, cudaError_t status) {
    if (status == cudaErrorNoKernelImageForDevice)
        fail(1, "built for other GPUs than this one: make ladder CUDA_ARCH=NN with its compute capability");
    if (status != cudaSuccess) fail(1, "%.*s: %s", (int)strcspn(call, "("), call, cudaGetErrorString(status));
}

// Milliseconds of a launch: the median of 21 means of four launches. The caller lets each launch read another copy. All
// are queued before the device is waited for, so it never idles. The first four are not counted.
template <typename F> static double median_ms(F launch_once) {
    cudaEvent_t event[TIMES + 2];
    std::vector<float> ms(TIMES + 1);
    for (cudaEvent_t &e : event) CU(cudaEventCreate(&e));
    for (int i = 0; i < TIMES + 2; i++) {
        for (int j = 0; i && j < LAUNCHES; j++) launch_once();
        CU(cudaEventRecord(event[i]));
    }
    CU(cudaDeviceSynchronize());
    for (int i = 0; i <= TIMES; i++) CU(cudaEventElapsedTime(&ms[(size_t)i], event[i], event[i + 1]));
    for (cudaEvent_t &e : event) CU(cudaEventDestroy(e));
    ms.erase(ms.begin());
    std::sort(ms.begin(), ms.end());
    return (double)ms[TIMES / 2] / LAUNCHES;
}

// GB/s of a kernel that only reads `bytes` bytes. word: a word of device memory for the kernel's result.
static double reading_speed(const cudaDeviceProp *device, const void *from, size_t bytes, unsigned *word) {
    const double ms = median_ms([&] {
        llm42__k_read<<<(unsigned)device->multiProcessorCount * 4, 512>>>((const uint4 *)from, bytes / 16, word);
        CU(cudaGetLastError());
    });
    return (double)bytes / ms * 1e-6;
}

static std::vector<float> to_float(const std::vector<bf16> &raw) {
    std::vector<float> values(raw.size());
    for (size_t i = 0; i < raw.size(); i++) values[i] = __bfloat162float(raw[i]);
    return values;
}
static std::vector<float> to_host(const bf16 *from, size_t count) {
    std::vector<bf16> raw(count);
    CU(cudaMemcpy(raw.data(), from, count * sizeof(bf16), cudaMemcpyDeviceToHost));
    return to_float(raw);
}

// Have two results [rows, width] the same bits in every output? word: as above.
static bool same_bits(const bf16 *a, const bf16 *b, int rows, size_t width, unsigned *word) {
    unsigned differ = 0;
    CU(cudaMemset(word, 0, sizeof differ));
    llm42__k_differ<<<264, 512>>>((const uint16_t *)a, (const uint16_t *)b, rows, width, 0, word);
    CU(cudaGetLastError());
    CU(cudaMemcpy(&differ, word, sizeof differ, cudaMemcpyDeviceToHost));
    return differ == 0;
}

// The letters of a table: steps with the same bits have the same one. y[1 .. step] are results, letter[1 .. step - 1]
// their letters.
static char letter_of(bf16 *const *y, const char *letter, int step, int rows, size_t width, unsigned *word) {
    char next = 'A';
    for (int other = 1; other < step; other++) {
        if (same_bits(y[step], y[other], rows, width, word)) return letter[other];
        next = std::max(next, (char)(letter[other] + 1));
    }
    return next;
}

// What a step has given for some number of rows. Each is a line of the table.
struct measured {
    int rows, step;
    std::string what, order;
    double ms, gb_per_s, reading, error;  // reading: GB/s of a kernel that only reads
    char letter;
};

// Outputs are off by 0.2% for having been rounded to bf16; a product of 65,536 terms by 1.5% in the sequential order.
// With sixteen terms left out they would be off by hundreds of percent.
static const double ERROR_TOLERANCE = 0.05;

static void print_columns(FILE *tsv, const char *bytes_of) {
    printf("%4s  %s  %-34s %-34s %9s %8s %11s %9s  %s\n", "rows", "#", "step", "order of sums", "ms", "GB/s",
           "of reading", "error", "bits");
    if (tsv) fprintf(tsv, "rows\tstep\twhat\torder\tms\t%s_gb_per_s\treading_share\terror_share\tbits\n", bytes_of);
}
static void print_step(FILE *tsv, const measured &m) {
    char text[64];
    const double share = m.gb_per_s / m.reading;
    printf("%4d  %d  %-34s %-34s %9.4f %8.1f %10.1f%% %8.2f%%  %c\n", m.rows, m.step, m.what.c_str(), m.order.c_str(),
           m.ms, m.gb_per_s, 100 * share, 100 * m.error, m.letter);
    fflush(stdout);
    if (tsv)
        fprintf(tsv, "%d\t%d\t%s\t%s\t%.6f\t%.3f\t%.5f\t%.3e\t%c\n", m.rows, m.step, m.what.c_str(), m.order.c_str(),
                m.ms, m.gb_per_s, share, m.error, m.letter);
    snprintf(text, sizeof text, "step %d is off by %.3g%%", m.step, 100 * m.error);
    check(m.error <= ERROR_TOLERANCE, m.rows, text);
}

static int number(const char *name, const char *text, char **rest, int low, int high, int multiple) {
    const long value = strtol(text, rest, 10);
    if (*rest == text) fail(2, "%s: '%s' is not a whole number", name, text);
    if (value < low || value > high || value % multiple)
        fail(2, "%s: %ld is not a multiple of %d from %d to %d", name, value, multiple, low, high);
    return (int)value;
}

// An option of a ladder: numbers separated by commas if `many` says where they go, else one number or a file's name.
struct option {
    const char *name, *help;
    int low, high, multiple;
    int *one;
    std::vector<int> *many;
    const char **file;
};

// what: the sentence that --help begins with.
static void parse(int argc, char **argv, const char *what, const std::vector<option> &options) {
    for (int i = 1; i < argc; i++) {
        const option *o = nullptr;
        char *rest = nullptr;
        if (!strcmp(argv[i], "--help")) {
            printf("%s\nusage: %s [options]\n", what, argv[0]);
            for (const option &each : options) printf("  %s\n", each.help);
            exit(0);
        }
        for (const option &each : options)
            if (!strcmp(argv[i], each.name)) o = &each;
        if (!o) fail(2, "unknown option '%s': --help lists them", argv[i]);
        const char *value = ++i < argc ? argv[i] : nullptr;
        if (!value) fail(2, "%s: no value: --help says which", o->name);
        if (o->file) *o->file = value;
        else if (o->one) *o->one = number(o->name, value, &rest, o->low, o->high, o->multiple);
        else
            for (o->many->clear(), rest = nullptr; !rest || *rest == ',';)
                o->many->push_back(number(o->name, rest ? rest + 1 : value, &rest, o->low, o->high, o->multiple));
        if (rest && *rest) fail(2, "%s: '%s' is not a whole number", o->name, value);
    }
}

// The GPU's properties. Without a GPU the program ends here: its tests are skipped.
static cudaDeviceProp open_device(void) {
    cudaDeviceProp device;
    int count = 0, driver = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess || count < 1) {
        if (cudaDriverGetVersion(&driver) != cudaSuccess || !driver) status = cudaErrorNoDevice;  // no driver at all
        printf(LADDER ": skipped: no CUDA device: %s\n",
               status != cudaSuccess ? cudaGetErrorString(status) : "none found");
        exit(end());
    }
    CU(cudaGetDeviceProperties(&device, 0));
    return device;
}

// The first lines of a table, on standard output and in a file if there is one: program, device and versions, then
// `what`.
static void print_head(FILE *tsv, const cudaDeviceProp *device, const std::string &what) {
    int driver = 0, runtime = 0;
    CU(cudaDriverGetVersion(&driver));
    CU(cudaRuntimeGetVersion(&runtime));
    for (FILE *file : {stdout, tsv})
        if (file)
            fprintf(file,
                    "# llm42 " LLM42_VERSION " " LADDER
                    "\n# cuda device: %s\n# cuda driver: CUDA %d.%d\n# cuda runtime: CUDA %d.%d\n# cuda kernels: %d\n"
                    "%s",
                    device->name, driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10,
                    (int)LLM42__KERNELS, what.c_str());
}

static FILE *open_tsv(const char *name) {
    FILE *tsv = name ? fopen(name, "w") : nullptr;
    if (name && !tsv) fail(1, "--tsv: cannot write %s: %s", name, strerror(errno));
    return tsv;
}
static void close_tsv(FILE *tsv, const char *name) {
    bool written = !tsv || !ferror(tsv);
    if (tsv) written &= fclose(tsv) == 0;
    if (!written) fail(1, "--tsv: cannot write %s: %s", name, strerror(errno));
}
