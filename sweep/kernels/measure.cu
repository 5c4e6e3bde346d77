// measure.cu: what build/kernels measures on a GPU. It opens the CUDA backend as an engine does and uses its kernels,
// launchers and chosen algorithms.
#include "llm42.cu"

#include "sweep/kernels/kernels.h"

#include <functional>
#ifdef LLM42_NCCL
#include <nccl.h>
static llm42_result llm42__cuda_status(llm42_error *error, const char *call, ncclResult_t status) {
    if (status == ncclSuccess) return LLM42_OK;
    return llm42_fail(error, LLM42_BACKEND, "%.*s: %s", (int)strcspn(call, "("), call, ncclGetErrorString(status));
}
#endif

#include "sweep/kernels/timing.h"

#include "sweep/kernels/products.h"

#include "sweep/kernels/leaves.h"

#include "sweep/kernels/norms.h"

#include "sweep/kernels/operators.h"

#include "sweep/kernels/cost.h"

#include "sweep/kernels/exchange.h"

static void emit_ceilings(const bench *b) {
    const llm42_cuda_ceilings *c = &b->ceilings;
    kernels_line copy = kernels_line_of("ceilings", "memory_copy", NULL, 0),
                 read = kernels_line_of("ceilings", "memory_read", NULL, 0),
                 product = kernels_line_of("ceilings", "matmul_bf16", NULL, 0);
    copy.gb_per_s = 1e-9 * c->copy_bytes_per_s, read.gb_per_s = 1e-9 * c->read_bytes_per_s;
    product.tflop_per_s = 1e-12 * c->matmul_flop_per_s;
    emit(b, copy);
    emit(b, read);
    emit(b, product);
}

#include "sweep/kernels/attention.h"

static llm42_result check_shape(const llm42_model *model, llm42_error *error) {
    const llm42_config *c = &model->config;
    if (c->dim % 64 || c->ffn % 64 || c->vocab % 64 || c->experts || c->context < MOST_ROWS)
        return llm42_fail(error, LLM42_UNSUPPORTED,
                          "model %s: needs a dense model whose widths are multiples of 64 and whose context is %d or "
                          "more, such as synthetic:llama-3.1-8b",
                          model->name, (int)MOST_ROWS);
    return LLM42_OK;
}

static llm42_result open_backend(const kernels_settings *s, const llm42_model *model, llm42__cuda **cu,
                                 llm42_error *error) {
    void *state = NULL;
    llm42_cuda_desc own = {};
    llm42_backend_desc desc = {};
    own.algorithm_file = s->algorithm_file;
    desc.model = model, desc.numerics.compute = LLM42_DTYPE_BF16;
    desc.max_rows = s->most_rows, desc.max_context = MOST_ROWS;
    desc.pages = KV_PAGES, desc.page_size = PAGE;
    desc.max_running = s->quick ? 256 : 1024, desc.fixed_rows = 512;
    desc.numerics.leaves = s->leaves;
    desc.schedules = 1u << LLM42_SCHEDULE_FAST | 1u << LLM42_SCHEDULE_FIXED | 1u << LLM42_SCHEDULE_INVARIANT;
    desc.backend_desc = &own;
    desc.log = s->log, desc.log_user = s->log_user;
    s->progress("opening the backend: algorithms are chosen");
    LLM42__TRY(llm42_backend_cuda()->open(&state, &desc, error));
    *cu = (llm42__cuda *)state;
    return LLM42_OK;
}

static llm42_result measure_parts(bench *b, llm42_error *error) {
    const kernels_settings *s = b->settings;
    llm42__cuda *cu = b->cu;
    device_memory memory;
    b->ex = &cu->execution;
    b->widest = (size_t)std::max(std::max(cu->Dp, cu->Fp), cu->attended);
    LLM42__TRY(memory.take(&b->flush, (size_t)FLUSH_BYTES / sizeof *b->flush, error));
    LLM42__TRY(memory.take(&b->word, 1, error));
    LLM42__TRY(memory.take(&b->noise, (size_t)cu->max_rows * b->widest, error));
    llm42__k_fill<<<2048, 256>>>(b->noise, (size_t)cu->max_rows * b->widest, 44, 1.0f);
    LLM42__CU(cudaGetLastError());
    LLM42__CU(cudaDeviceSynchronize());
    emit_ceilings(b);
    LLM42__TRY(measure_sustained(b, error));
    if (wanted(s, "operators")) LLM42__TRY(measure_operators(b, error));
    if (wanted(s, "products")) LLM42__TRY(measure_products(b, error));
    if (wanted(s, "leaves") && s->leaves > 1 && !cu->config.scaling) LLM42__TRY(measure_leaves(b, error));
    if (wanted(s, "rmsnorm")) LLM42__TRY(measure_norms(b, error));
    if (wanted(s, "cost")) LLM42__TRY(measure_cost(b, error));
    LLM42__CU(cudaDeviceSynchronize());
    return LLM42_OK;
}

llm42_result kernels_measure(const kernels_settings *s, llm42_error *error) {
    bench b = {};
    llm42_model *model = NULL;
    llm42_model_desc source = {};
    const bool exchange = strcmp(s->part, "exchange") == 0, attention = strcmp(s->part, "attention") == 0;
    b.settings = s;
    source.path = s->model, source.on_device = true;
    s->progress("ceilings");
    if (!exchange) LLM42__TRY(llm42_cuda_measure_ceilings(&b.ceilings, 0, error));
    LLM42__TRY(llm42_model_load(&model, &source, error));
    llm42_result result = check_shape(model, error);
    if (result == LLM42_OK && exchange) result = measure_exchange(s, model, error);
    if (result == LLM42_OK && !exchange && !attention) {
        result = open_backend(s, model, &b.cu, error);
        if (result == LLM42_OK) result = llm42__guarded(error, [&]() { return measure_parts(&b, error); });
        llm42__cuda_close(b.cu);
    }
    if (result == LLM42_OK && wanted(s, "attention")) result = measure_attention(s, &b.ceilings, model, error);
    llm42_model_free(model);
    return result;
}
