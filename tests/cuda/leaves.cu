// cuda_leaves: every build of llm42__k_leaves (products with leaves by warpgroups) beside llm42__k_matmul with leaves,
// bit by bit: many shapes, noise, sums that nearly cancel, and rows of zeros, tiny and large numbers. Nothing may be
// written behind the last row. Control: half as many leaves must give other bits. Then in the same way every build of
// llm42__k_experts (products of a mixture) beside llm42__k_matmul with groups. Control: a row that moves to another
// expert must give other bits. Last the gate of each bf16 value beside the CPU's. Control: a quotient from which its
// excess is not taken must give other bits.
//
// Built and run by `make test-cuda`. The last line is "N passed, N failed"; without a device of compute capability 9.0
// both are 0. The Makefile also builds it for the emulator (cuda_leaves_emulated), with fewer and smaller shapes.
#ifdef LLM42_EMULATED
#include "emulated_runtime.h"
#endif
#define LLM42__MOST_WAIT_NS 1000000000  // a kernel that hangs is an error
#define LLM42_BASE
#include "llm42.h"

#include "kernels.cu"

#include <vector>

#define COUNTS_OF "cuda_leaves"
#include "counts.h"

// Where kernels are emulated, one never starts before the one ahead has ended, and the first shapes are all alike.
#ifdef LLM42_EMULATED
enum { MOST_ROWS = 260, MOST_OUTPUTS = 256, MOST_TERMS = 1024, WORKSPACE = 8 << 20, CHAIN_TURNS = 0 };
enum { FIRST_SHAPE = 5, SHAPES = 18 };
#else
enum { MOST_ROWS = 2048, MOST_OUTPUTS = 4096, MOST_TERMS = 14336, WORKSPACE = 32 << 20, CHAIN_TURNS = 8 };
enum { FIRST_SHAPE = 0, SHAPES = 90 };
#endif
enum { BEYOND = 3 };
enum { CANCELLING, NOISE, SPECIAL, INPUTS };

static bool check(bool ok, const char *what, const char *which, int number) {
    char about[300];
    snprintf(about, sizeof about, "%s, %d", which, number);
    return count_check(ok, what, about);
}

static bool works(cudaError_t status, const char *what) {
    return check(status == cudaSuccess, what, cudaGetErrorString(status), (int)status);
}

struct shape {
    int rows, n, input;
    bool fp32;
    llm42__leaves leaves;
    int k() const { return leaves.count * leaves.terms; }
};

struct bench {
    llm42__bf16 *x, *w;
    char *y, *want, *workspace;
    unsigned *count;
    int processors;
};

// Rows 0 to 5 of x: zeros, negative zeros, numbers that are tiny or large.
__global__ void make_special(llm42__bf16 *x, int rows, int k) {
    const unsigned short bits[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x0080, 0x5d80};
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < LLM42__MIN(rows, 6) * k; i += gridDim.x * blockDim.x) {
        __nv_bfloat16_raw value;
        value.x = bits[i / k];
        x[i] = value;
    }
}

static void fill(const bench *b, const shape &s, uint64_t key) {
    const size_t rows = (size_t)s.rows, n = (size_t)s.n, k = (size_t)s.k();
    if (s.input == CANCELLING) {
        llm42__k_fill_cancelling<<<1024, 256>>>(b->x, rows, s.k(), key, true);
        llm42__k_fill_cancelling<<<1024, 256>>>(b->w, n, s.k(), key + 1, false);
        return;
    }
    llm42__k_fill<<<1024, 256>>>(b->x, rows * k, key, 1.0f);
    llm42__k_fill<<<1024, 256>>>(b->w, n * k, key + 1, 1.0f);
    if (s.input == SPECIAL) make_special<<<256, 256>>>(b->x, s.rows, s.k());
}

// y by a function, and behind it rows of ones bits.
static cudaError_t launch(const bench *b, const shape &s, llm42__product_fn *fn, const llm42__leaves &leaves, char *y) {
    cudaError_t status = cudaMemset(y, 0xff, (size_t)(s.rows + BEYOND) * (size_t)s.n * (s.fp32 ? 4 : 2));
    if (status == cudaSuccess)
        status = fn(b->x, b->w, y, s.rows, s.n, s.k(), llm42__groups{}, leaves, b->processors, 0);
    return status == cudaSuccess ? cudaDeviceSynchronize() : status;
}

// The same with a workspace of ones bits.
static bool run(const bench *b, const shape &s, llm42__product_fn *fn, llm42__leaves leaves, char *y) {
    leaves.workspace = b->workspace, leaves.workspace_bytes = WORKSPACE;
    return works(cudaMemset(b->workspace, 0xff, WORKSPACE), "cudaMemset") &&
           works(launch(b, s, fn, leaves, y), "a launch");
}

// How many 16-bit words of y and want differ.
static unsigned differing(const bench *b, const shape &s) {
    const size_t words = (size_t)(s.rows + BEYOND) * (size_t)s.n * (s.fp32 ? 2 : 1);
    unsigned count = ~0u;
    cudaMemset(b->count, 0, sizeof count);
    llm42__k_differ<<<264, 512>>>((const uint16_t *)b->y, (const uint16_t *)b->want, 1, words, 0, b->count);
    works(cudaMemcpy(&count, b->count, sizeof count, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return count;
}

// How many words differ if the rows have two owners, and the first half goes behind the second. -1: it does not run.
static int differing_by_owners(const bench *b, const shape &s, llm42__product_fn *fn) {
    const int own = (s.rows + 1) / 2;
    llm42__leaves leaves = s.leaves;
    unsigned count = 0;
    leaves.owners.rows = own;
    leaves.owners.to[0] = (float *)b->y + (ptrdiff_t)(s.rows - own) * s.n;
    leaves.owners.to[1] = (float *)b->y - (ptrdiff_t)own * s.n;
    if (!run(b, s, fn, leaves, b->y)) return -1;
    cudaMemset(b->count, 0, sizeof count);
    llm42__k_differ<<<264, 512>>>((const uint16_t *)b->y, (const uint16_t *)b->want, s.rows, (size_t)s.n * 2, own,
                                  b->count);
    works(cudaMemcpy(&count, b->count, sizeof count, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return (int)count;
}

// Shapes by number. The first ones are those of an 8B model.
static shape shape_of(int i) {
    static const int rows[] = {1,   5,   8,   16,  24,  32,  63,  64,  65,  80,  96,  100, 112,  127, 128,
                               129, 160, 191, 192, 224, 255, 256, 257, 384, 512, 640, 777, 1024, 2048};
    static const int outputs[] = {128, 256, 384, 512, 1024, 4096}, terms[] = {64, 128, 192, 256, 512, 1792};
    const uint64_t draw = llm42__hash((uint64_t)i + 1000);
    auto pick = [&](const auto &list, int turn) { return list[(draw >> 8 * turn) % (sizeof list / sizeof *list)]; };
    shape s = {pick(rows, 0), pick(outputs, 1), i / 3 % INPUTS, i % 7 == 3, {2 << i % 3, pick(terms, 2), 0}};
    if (i < 6) s = {i < 3 ? 256 : MOST_ROWS, MOST_OUTPUTS, CANCELLING, i == 5, {8, i % 2 ? MOST_TERMS : 512, 0}};
    s.rows = LLM42__MIN(s.rows, MOST_ROWS), s.n = LLM42__MIN(s.n, MOST_OUTPUTS);
    s.leaves.terms = LLM42__MIN(s.leaves.terms, MOST_TERMS / 8);
    return s;
}

// Without a workspace a kind refuses, or it needs none and its bits are right. *refused: it refuses.
static bool holds_without_workspace(const bench *b, const shape &s, const llm42__leaf_kind *kind, bool *refused) {
    const cudaError_t status = launch(b, s, kind->bf16, s.leaves, b->y);
    *refused = status == cudaErrorNotSupported;
    return *refused || (works(status, "a launch") && differing(b, s) == 0);
}

static void check_workspace(const bench *b) {
    const llm42__tile_kind *reference = &llm42__tile_kinds[LLM42__TILE_KINDS - 1];
    int refusals = 0;
    for (int leaves : {2, 4, 8}) {
        const shape s = {
            LLM42__MIN(320, MOST_ROWS / 2), LLM42__MIN(512, MOST_OUTPUTS / 2), NOISE, false, {leaves, 128, 0}};
        fill(b, s, 7);
        if (!run(b, s, reference->joined, s.leaves, b->want)) return;
        for (const llm42__leaf_kind &kind : llm42__leaf_kinds) {
            bool refused = false;
            check(holds_without_workspace(b, s, &kind, &refused), "right or refused without a workspace", kind.name,
                  leaves);
            refusals += refused;
            check(!refused || (kind.rows > 128 && leaves > 2), "a workspace for many rows and leaves only", kind.name,
                  leaves);
        }
    }
    check(refusals > 0, "a kind that needs a workspace refuses to run without", "all", refusals);
}

// Compares all shapes that a kind can compute, whether an engine would let it or not. Each shape's reference is
// computed once, for all kinds. Without a GPU, where a shape takes seconds, the first that differs is the last.
static void check_kinds(const bench *b) {
    const llm42__tile_kind *reference = &llm42__tile_kinds[LLM42__TILE_KINDS - 1];
    int compared[LLM42__LEAF_KINDS] = {}, same[LLM42__LEAF_KINDS] = {}, owned[LLM42__LEAF_KINDS] = {},
        same_owned[LLM42__LEAF_KINDS] = {}, controls = 0, others = 0;
    bool differs = false;
    for (int i = FIRST_SHAPE; i < SHAPES && (CHAIN_TURNS || !differs); i++) {
        const shape s = shape_of(i);
        if (s.n % LLM42__LEAF_OUTPUTS) continue;
        fill(b, s, 42 + 2 * (uint64_t)i);
        llm42__product_fn *fn = s.fp32 ? reference->parts : reference->joined;
        if (!run(b, s, fn, s.leaves, b->want)) return;
        if (s.fp32) check(differing_by_owners(b, s, fn) == 0, "rows go to their owners", reference->name, i);
        if (s.input == CANCELLING && s.leaves.count >= 4 && s.rows >= 60 &&
            s.leaves.terms >= LLM42__MIN(256, MOST_TERMS / 8)) {
            if (!run(b, s, fn, {s.leaves.count / 2, s.leaves.terms * 2, 0}, b->y)) return;
            controls++, others += differing(b, s) > 0;
        }
        for (int k = 0; k < LLM42__LEAF_KINDS; k++) {
            const llm42__leaf_kind *kind = &llm42__leaf_kinds[k];
            if (s.leaves.count % kind->split) continue;
            if (!run(b, s, s.fp32 ? kind->fp32 : kind->bf16, s.leaves, b->y)) return;
            const unsigned count = differing(b, s);
            compared[k]++, same[k] += count == 0, differs |= count > 0;
            if (count)
                printf("%s: %d rows, %d outputs, %d leaves of %d terms, input %d%s: %u words differ\n", kind->name,
                       s.rows, s.n, s.leaves.count, s.leaves.terms, s.input, s.fp32 ? ", fp32" : "", count);
            if (s.fp32) owned[k]++, same_owned[k] += differing_by_owners(b, s, kind->fp32) == 0;
        }
    }
    for (int k = 0; k < LLM42__LEAF_KINDS; k++) {
        const char *name = llm42__leaf_kinds[k].name;
        check(compared[k] > SHAPES / 4 && same[k] == compared[k], "the bits of tile kernels", name, compared[k]);
        check(owned[k] > 1 && same_owned[k] == owned[k], "rows go to their owners", name, owned[k] - same_owned[k]);
        printf("%s: %d shapes, %d have the bits of tile kernels\n", name, compared[k], same[k]);
    }
    check(controls > 2 && others == controls, "control: half as many leaves give other bits", "all", controls);
    printf("tile kernels: of %d shapes with half as many leaves %d differ\n", controls, others);
}

// Four products, each of the outputs of the one before, with nothing between them: a kernel may start before the one
// ahead has ended, and must wait for its outputs.
static bool run_chain(const bench *b, llm42__product_fn *fn, int size, char *outputs) {
    const size_t bytes = (size_t)size * (size_t)size * 2;
    const llm42__leaves leaves = {8, size / 8, 0, {}, b->workspace, WORKSPACE};
    for (int i = 0; i < 4; i++) {
        const llm42__bf16 *x = i ? (const llm42__bf16 *)(outputs + (size_t)(i - 1) * bytes) : b->x;
        if (!works(
                fn(x, b->w, outputs + (size_t)i * bytes, size, size, size, llm42__groups{}, leaves, b->processors, 0),
                "a launch"))
            return false;
    }
    return works(cudaDeviceSynchronize(), "a chain of kernels");
}

static void check_chain(const bench *b, const llm42__leaf_kind *kind) {
    enum { SIZE = 1024 };
    const llm42__tile_kind *reference = &llm42__tile_kinds[LLM42__TILE_KINDS - 1];
    const shape all = {4 * SIZE - BEYOND, SIZE, NOISE, false, {8, SIZE / 8, 0}};
    unsigned count = 0;
    llm42__k_fill<<<1024, 256>>>(b->x, (size_t)SIZE * SIZE, 7, 1.0f);
    llm42__k_fill<<<1024, 256>>>(b->w, (size_t)SIZE * SIZE, 8, 1.0f / 32);
    if (!run_chain(b, reference->joined, SIZE, b->want)) return;
    for (int turn = 0; turn < CHAIN_TURNS; turn++) {
        cudaMemset(b->y, 0xff, (size_t)4 * SIZE * SIZE * 2);
        if (!run_chain(b, kind->bf16, SIZE, b->y)) return;
        count += differing(b, all);
    }
    check(count == 0, "each product waits for the one before", kind->name, (int)count);
}

// Rows of experts by chance: some experts have none, and some have most.
static std::vector<int32_t> draw_offsets(int experts, int entries, uint64_t key) {
    std::vector<int32_t> offset((size_t)experts + 1);
    for (int i = 0; i < entries; i++) {
        const uint64_t draw = llm42__hash(key + (uint64_t)i), from = draw >> 32;
        offset[1 + (draw % 3 ? from % (uint64_t)experts : from % (uint64_t)LLM42__MIN(experts, 3))]++;
    }
    for (int e = 0; e < experts; e++) offset[(size_t)e + 1] += offset[(size_t)e];
    return offset;
}

// y [entries, n], or of a gated product [entries, n / 2], by a function, for each leaf; what is behind keeps ones.
static bool run_experts(const bench *b, const shape &s, llm42__product_fn *fn, int32_t *at,
                        const std::vector<int32_t> &offset, char *y) {
    const llm42__groups groups = {at, nullptr, (int)offset.size() - 1};
    llm42__leaves leaves = s.leaves;
    leaves.part_stride = (size_t)s.rows * (size_t)s.n;
    return works(cudaMemcpy(at, offset.data(), offset.size() * sizeof *at, cudaMemcpyHostToDevice), "cudaMemcpy") &&
           works(cudaMemset(y, 0xff, (size_t)(s.rows * s.leaves.count + BEYOND) * (size_t)s.n * (s.fp32 ? 4 : 2)),
                 "cudaMemset") &&
           works(fn(b->x, b->w, y, s.rows, s.n, s.k(), groups, leaves, b->processors, 0), "a launch") &&
           works(cudaDeviceSynchronize(), "a kernel");
}

static void check_experts(const bench *b, const llm42__expert_kind *kind) {
    enum { GATED, PLAIN, PARTS, FORMS, MOST_EXPERTS = 1024 };
    static const int experts_of[] = {1, 2, 5, 8, 31, 32, 33, 64}, terms_of[] = {64, 128, 192, 256};
    const llm42__tile_kind *reference = &llm42__tile_kinds[LLM42__TILE_KINDS - 1];
    char name[32];
    int compared = 0, same = 0, controls = 0, others = 0;
    int32_t *at;
    if (!works(cudaMalloc(&at, (MOST_EXPERTS + 1) * sizeof *at), "memory")) return;
    snprintf(name, sizeof name, "experts, %d rows", kind->rows);
    for (int i = 0; i < SHAPES; i++) {
        const uint64_t draw = llm42__hash((uint64_t)i + 77);
        const int form = i % FORMS, count = form == PARTS ? 1 << draw % 4 : 1, n = draw >> 8 & 1 ? 128 : 256,
                  terms = terms_of[draw >> 16 & 3] / (count > 4 ? 2 : 1) / 64 * 64;
        if (!terms || count * terms > MOST_TERMS) continue;
        const int most = (int)((size_t)MOST_OUTPUTS * MOST_TERMS / (size_t)(n * count * terms)),
                  many = kind->rows < 160 ? 700 : 340,  // beside the largest stages is room for so many
            experts = i == 4 ? LLM42__MIN(most, many) : LLM42__MIN(most, experts_of[draw >> 24 & 7]);
        shape s = {1 + (int)((draw >> 32) % (uint64_t)LLM42__MIN(MOST_ROWS, 2 * experts * kind->rows + 1)),
                   n,
                   i / 3 % INPUTS,
                   form == PARTS,
                   {count, terms, 0}};
        s.rows = LLM42__MIN(s.rows, MOST_ROWS / count);
        std::vector<int32_t> offset = draw_offsets(experts, s.rows, draw);
        fill(b, {s.rows, experts * n, s.input, s.fp32, s.leaves}, 42 + 2 * (uint64_t)i);
        llm42__product_fn *by = form == GATED   ? reference->gated
                                : form == PLAIN ? reference->plain
                                                : reference->parts,
                          *fn = form == GATED   ? kind->gated
                                : form == PLAIN ? kind->plain
                                                : kind->fp32;
        if (!run_experts(b, s, by, at, offset, b->want) || !run_experts(b, s, fn, at, offset, b->y)) break;
        const shape whole = {s.rows * count, n, s.input, s.fp32, s.leaves};
        const unsigned words = differing(b, whole);
        compared++, same += words == 0;
        if (words)
            printf("%s: %d experts, %d rows, %d outputs, %d leaves of %d terms, form %d, input %d: %u words differ\n",
                   name, experts, s.rows, n, count, terms, form, s.input, words);
        int e = 1;  // whose first row moves to the expert before it
        while (e < experts && offset[(size_t)e] == offset[(size_t)e + 1]) e++;
        if (s.input != NOISE || e >= experts) continue;
        offset[(size_t)e]++;
        if (!run_experts(b, s, fn, at, offset, b->y)) break;
        controls++, others += differing(b, whole) > 0;
    }
    cudaFree(at);
    check(compared > SHAPES / 2 && same == compared, "the bits of tile kernels", name, compared);
    check(controls > 2 && others == controls, "control: a row of another expert gives other bits", name, controls);
    printf("%s: %d shapes, %d have the bits of tile kernels; of %d with a row of another expert %d differ\n", name,
           compared, same, controls, others);
}

// The gate of each bf16 value: behind a gate that takes the fast way; twice; before three that take the fast way, not
// yet rounded and with an up of its own; and without the excess of the quotient.
enum { GATES = 1 << 16, WITHOUT_EXCESS = 3, GATE_WAYS = 4 };
__host__ __device__ inline float up_of(uint32_t i) { return llm42__float((0x3f00 + i * 37 % 512) << 16); }
__global__ void gate_all(float *to) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    const float g = llm42__float(i << 16);
    float two[2], four[4];
    llm42__gate<2>({1.0f, g}, {1.0f, 1.0f}, two);
    to[i] = two[1];
    llm42__gate<2>({g, g}, {1.0f, 1.0f}, two);
    to[GATES + i] = two[0] == two[1] ? two[0] : NAN;
    llm42__gate<4>({llm42__float(i << 16 | 0x1234), 1.0f, -0.5f, 3.0f}, {up_of(i), 5.0f, 6.0f, 7.0f}, four);
    to[2 * GATES + i] = four[0];
    to[WITHOUT_EXCESS * GATES + i] = g * llm42__near_inverse(1.0f + llm42__power(g * -1.44269504f));
}

static void check_gate() {
    std::vector<float> got((size_t)GATE_WAYS * GATES);
    float *at;
    int differing[GATE_WAYS] = {};
    if (!works(cudaMalloc(&at, sizeof(float) * got.size()), "memory")) return;
    gate_all<<<GATES / 256, 256>>>(at);
    if (works(cudaMemcpy(got.data(), at, sizeof(float) * got.size(), cudaMemcpyDeviceToHost), "cudaMemcpy")) {
        for (int way = 0; way < GATE_WAYS; way++)
            for (uint32_t i = 0; i < GATES; i++) {
                const float g = llm42__float(i << 16), silu = llm42__silu(g), want = way == 2 ? silu * up_of(i) : silu,
                            have = got[(size_t)way * GATES + i];
                if (way == 2 && (i & 0x7f80) == 0x7f80) continue;  // infinities with more bits are NaN
                if (way == WITHOUT_EXCESS && !(fabsf(g) < 64)) continue;
                differing[way] += want == want ? llm42__bits(have) != llm42__bits(want) : have == have;
            }
        const int wrong = differing[0] + differing[1] + differing[2];
        check(wrong == 0, "the gate has the CPU's bits", "differing", wrong);
        check(differing[WITHOUT_EXCESS] > 1000, "control: without the excess other bits", "differing",
              differing[WITHOUT_EXCESS]);
        printf("gate: of %d values %d, %d and %d differ from the CPU's, without the excess %d below 64\n", (int)GATES,
               differing[0], differing[1], differing[2], differing[WITHOUT_EXCESS]);
    }
    cudaFree(at);
}

// Counts numbers of which llm42__silu_rounded has other bits than the CPU; the same without the excess of the quotient.
__global__ void silu_all(size_t step, unsigned *differing) {
    for (size_t i = step * (blockIdx.x * (size_t)blockDim.x + threadIdx.x); i >> 32 == 0;
         i += step * gridDim.x * blockDim.x) {
        const float x = llm42__float((uint32_t)i), want = llm42__rounded(llm42__silu(x));
        const float without = llm42__rounded(x * llm42__near_inverse(1.0f + llm42__power(x * -1.44269504f)));
        float own[1] = {x};
        llm42__silu_rounded(own);
        if (want == want ? llm42__bits(own[0]) != llm42__bits(want) : own[0] == own[0]) atomicAdd(differing, 1u);
        if (want == want && llm42__bits(without) != llm42__bits(want)) atomicAdd(differing + 1, 1u);
    }
}

static void check_silu() {
#ifdef LLM42_EMULATED
    const size_t step = 65537;
#else
    const size_t step = 1;
#endif
    unsigned *at, differing[2] = {};
    if (!works(cudaMalloc(&at, sizeof differing), "memory")) return;
    cudaMemset(at, 0, sizeof differing);
    silu_all<<<1024, 256>>>(step, at);
    if (works(cudaMemcpy(differing, at, sizeof differing, cudaMemcpyDeviceToHost), "cudaMemcpy")) {
        check(differing[0] == 0, "silu, rounded, has the CPU's bits", "differing", (int)differing[0]);
        check(step > 1 || differing[1] > 0, "control: without the excess other bits", "differing", (int)differing[1]);
        printf("silu, rounded: of each %zuth number %u differ from the CPU's, without the excess %u\n", step,
               differing[0], differing[1]);
    }
    cudaFree(at);
}

int main() {
    bench b = {};
    int major = 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess || major != 9) {
        printf("cuda_leaves: skipped: no device of compute capability 9.0\n");
        return end();
    }
    const size_t y = (size_t)(MOST_ROWS + BEYOND) * MOST_OUTPUTS * 4;
    if (works(cudaDeviceGetAttribute(&b.processors, cudaDevAttrMultiProcessorCount, 0), "there is a device") &&
        works(cudaMalloc(&b.x, (size_t)MOST_ROWS * MOST_TERMS * 2), "memory") &&
        works(cudaMalloc(&b.w, (size_t)MOST_OUTPUTS * MOST_TERMS * 2), "memory") &&
        works(cudaMalloc(&b.y, y), "memory") && works(cudaMalloc(&b.want, y), "memory") &&
        works(cudaMalloc(&b.workspace, WORKSPACE), "memory") && works(cudaMalloc(&b.count, sizeof *b.count), "memory"))
        check_kinds(&b);
    for (const llm42__leaf_kind &kind : llm42__leaf_kinds)
        if (CHAIN_TURNS && !failed) check_chain(&b, &kind);
    if (!failed) check_workspace(&b);
    for (const llm42__expert_kind &kind : llm42__expert_kinds) {
        if (failed && !CHAIN_TURNS) break;
        check_experts(&b, &kind);
    }
    check_gate();
    check_silu();
    return end();
}
