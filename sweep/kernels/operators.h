// operators.h: which operators keep the bits of a row (LLM-42, Table 2), probed and not asserted. measure.cu includes
// it.
//
//   batch-invariant      the result of row 0 has the same bits with every number of rows in `row_counts`
//   position-invariant   in a pass of one shape, the result of every row has the same bits when the rows are moved
//   repeats              the same launch gives the same bits twice
//
// Two kinds of controls must fail: products and norms whose order of sums follows from the number of rows, and a
// product whose order follows from the place of the row. If one of them passes, a probe is blind.
static const int row_counts[] = {1,   2,   3,   4,    5,    6,    7,    8,    9,    12,  15,  16,  17,
                                 20,  24,  28,  31,   32,   33,   40,   48,   56,   63,  64,  65,  80,
                                 96,  127, 128, 129,  160,  192,  255,  256,  257,  320, 384, 448, 511,
                                 512, 640, 768, 1000, 1024, 1536, 2000, 2048, 3000, 4096};
static const int probed_shapes[] = {16, 64, 256, 512};
enum { SHIFTS = 7 };

// An operator to probe.
struct probe {
    std::string subject, variant;
    const char *published_as;  // NULL: Table 2 does not have it
    const char *note;
    int most;                                                    // rows
    size_t width;                                                // 16-bit words of a row's result
    const void *out;                                             // [most, width]
    bool half = false;                                           // rows may be moved by at most half of a shape
    const char *must_batch = nullptr, *must_position = nullptr;  // of a control: yes or no
    // Computes the result of `rows` rows. The input of row r lies at place (r + shift) % rows, and so does its result.
    std::function<llm42_result(int rows, int shift, llm42_error *error)> run;
};

struct probe_memory {
    uint16_t *base;  // a result to compare with
    size_t words;
    unsigned *differ;
};

// Runs a probe once. What it does not write is 0xffff, which is no number: an operator that writes nothing is an error.
static llm42_result run_probe(const bench *b, const probe &p, int rows, int shift, llm42_error *error) {
    LLM42__CU(cudaMemsetAsync((void *)(uintptr_t)p.out, 0xff, (size_t)rows * p.width * 2, b->ex->stream));
    LLM42__TRY(p.run(rows, shift, error));
    LLM42__CU(cudaGetLastError());
    LLM42__CU(cudaStreamSynchronize(b->ex->stream));
    return LLM42_OK;
}

// Row 0's result of a probe.
static llm42_result row_bits(const bench *b, const probe &p, int rows, std::vector<uint16_t> *bits,
                             llm42_error *error) {
    bits->resize(p.width);
    LLM42__TRY(run_probe(b, p, rows, 0, error));
    LLM42__CU(cudaMemcpy(bits->data(), p.out, p.width * 2, cudaMemcpyDeviceToHost));
    const size_t unwritten = (size_t)std::count(bits->begin(), bits->end(), (uint16_t)0xffff);
    if (unwritten > p.width / 64)
        return llm42_fail(error, LLM42_BACKEND, "%s, %s, %d rows: %zu of %zu words of row 0 were not written",
                          p.subject.c_str(), p.variant.c_str(), rows, unwritten, p.width);
    return LLM42_OK;
}

static llm42_result probe_batch(const bench *b, const probe &p, kernels_line *line, llm42_error *error) {
    std::vector<std::vector<uint16_t>> seen;
    std::vector<uint16_t> bits, again;
    bool repeats = true;
    line->row_counts = line->changes_at = 0;
    for (int rows : row_counts) {
        if (rows > p.most) break;
        LLM42__TRY(row_bits(b, p, rows, &bits, error));
        LLM42__TRY(row_bits(b, p, rows, &again, error));
        repeats &= bits == again;
        if (std::find(seen.begin(), seen.end(), bits) == seen.end()) seen.push_back(bits);
        if (!line->changes_at && bits != seen[0]) line->changes_at = rows;
        line->row_counts++, line->most_rows = rows;
    }
    line->distinct = (int)seen.size();
    line->batch_invariant = seen.size() == 1 ? "yes" : "no";
    line->repeats = repeats ? "yes" : "no";
    return LLM42_OK;
}

static llm42_result probe_position(const bench *b, const probe_memory &m, const probe &p, kernels_line *line,
                                   llm42_error *error) {
    bool same = true;
    line->places = 0;
    for (int rows : probed_shapes) {
        const int shifts[SHIFTS] = {1, 2, 3, 7, 8, rows / 2, p.half ? 5 : rows - 1};
        if (rows > p.most || (size_t)rows * p.width > m.words) continue;
        LLM42__TRY(run_probe(b, p, rows, 0, error));
        LLM42__CU(cudaMemcpyAsync(m.base, p.out, (size_t)rows * p.width * 2, cudaMemcpyDeviceToDevice, b->ex->stream));
        for (int shift : shifts) {
            unsigned differ = 0;
            LLM42__TRY(run_probe(b, p, rows, shift, error));
            LLM42__CU(cudaMemsetAsync(m.differ, 0, sizeof differ, b->ex->stream));
            llm42__k_differ<<<264, 512, 0, b->ex->stream>>>(m.base, (const uint16_t *)p.out, rows, p.width, shift,
                                                            m.differ);
            LLM42__CU(cudaGetLastError());
            LLM42__CU(cudaMemcpyAsync(&differ, m.differ, sizeof differ, cudaMemcpyDeviceToHost, b->ex->stream));
            LLM42__CU(cudaStreamSynchronize(b->ex->stream));
            same &= differ == 0;
        }
        line->places += 1 + SHIFTS;
    }
    line->position_invariant = same ? "yes" : "no";
    return LLM42_OK;
}

static llm42_result probe_operator(const bench *b, const probe_memory &m, const probe &p, llm42_error *error) {
    kernels_line line = kernels_line_of("operators", p.subject.c_str(), p.variant.c_str(), 0);
    progress(b, "operators: %s, %s", line.subject, line.variant);
    LLM42__TRY(probe_batch(b, p, &line, error));
    LLM42__TRY(probe_position(b, m, p, &line, error));
    line.published_as = p.published_as, line.note = p.note;
    line.control = p.must_batch != nullptr;
    line.control_failed = line.control && (strcmp(line.batch_invariant, p.must_batch) != 0 ||
                                           strcmp(line.position_invariant, p.must_position) != 0);
    emit(b, line);
    return LLM42_OK;
}

#include "sweep/kernels/probes.h"

#include "sweep/kernels/allreduce.h"

static llm42_result measure_operators(const bench *b, llm42_error *error) {
    device_memory memory;
    probe_memory m = {};
    m.words = (size_t)512 * (size_t)b->cu->Vp;  // the widest result is that of the head
    LLM42__TRY(memory.take(&m.base, m.words, error));
    LLM42__TRY(memory.take(&m.differ, 1, error));
    LLM42__TRY(probe_controls(b, m, error));
    LLM42__TRY(probe_products(b, m, error));
    LLM42__TRY(probe_attention(b, m, error));
    LLM42__TRY(probe_norms(b, m, error));
    LLM42__TRY(probe_others(b, m, error));
    return probe_reductions(b, m, error);
}
