/* llm42.h - v0.3.0-dev - deterministic LLM inference by decode, verify, roll back (LLM-42) - MIT licence, at the end

   Do this in ONE C file. Others that need the declarations include llm42.h without the first line (C11, or C++17). This
   program is complete. Run it in the folder that holds examples/tiny42:

      #define LLM42_IMPLEMENTATION
      #include "llm42.h"

      static void show(void *user, const llm42_event *e) {             // called when tokens are final
          (void)user;
          for (int i = 0; e->type == LLM42_EVENT_COMMITTED && i < e->n; i++) printf("%d ", e->tokens[i]);
      }
      int main(void) {
          llm42_error error;
          llm42_model *model = NULL;
          llm42_engine *engine = NULL;
          const int32_t prompt[] = {0, 905, 312, 264, 1108, 283, 1767};  // "It was the best of times"
          if (llm42_model_load(&model, &(llm42_model_desc){.path = "examples/tiny42"}, &error) ||
              llm42_engine_open(&engine, &(llm42_engine_desc){.model = model, .on_event = show}, &error) ||
              llm42_engine_submit(engine, &(llm42_request_desc){.prompt = prompt, .prompt_count = 7,
                                                                .deterministic = true}, NULL, &error) ||
              llm42_engine_run(engine, &error))
              return fprintf(stderr, "%s\n", error.text), 1;
          llm42_engine_close(engine);
          llm42_model_free(model);
      }

   Compile it with:

      cc -std=c11 -O3 -march=native -ffp-contract=off -fopenmp -I. -I/usr/include/stb program.c -lm

   It needs stb_ds.h and jsmn.h (Debian: libstb-dev, libjsmn-dev); OpenMP is optional. Without -march=native or
   -march=x86-64-v3 the scalar code is built: the same bits, about a hundred times slower. For a GPU, `make cuda`
   compiles llm42.cu and shows how to link it; set .backend = llm42_backend_cuda() (of examples/util/llm42_cuda.h).

   COMPILE-TIME OPTIONS

      LLM42_IMPLEMENTATION              this file holds the implementation
      LLM42_IMPLEMENTED                 an object file of the program already holds it: only declarations are taken
      LLM42_API                         stands before each declaration; default: extern; C++: extern "C"
      LLM42_SCALAR                      use no vector instructions (same bits, slower)
      LLM42_MALLOC(size)                these three together replace malloc, realloc and free
      LLM42_REALLOC(pointer, size), LLM42_FREE(pointer)
      LLM42_NO_STB_DS_IMPLEMENTATION    another file of the program defines STB_DS_IMPLEMENTATION

   The implementation needs POSIX (mmap, clock_gettime). With -std=c11 include llm42.h before system headers, or compile
   with -D_POSIX_C_SOURCE=200809L or -std=gnu11. If your program includes jsmn.h first, define JSMN_PARENT_LINKS for it.

   WHAT LLM42 DOES NOT DO

   It knows token ids only; its companion examples/util/tokenizer.h turns text into ids and back. It has no training,
   weights of less than 8 bits, adapters, beam search, images or network server. It does not run on Windows or on
   big-endian machines. It never prints, exits, reads the environment or takes a seed from the clock.

   STEP BY STEP

   1. llm42_model_load loads a model: an HF folder (examples/README.md has a table of families), or, with the companion
      llm42_synthetic.h, random weights. A model is read-only, so any number of engines may share it.
   2. llm42_engine_open opens an engine. Zero every field of its desc that you do not care about, because zero always
      means the default that the field's comment states. .preset names a set of policies: LLM42_PRESET_BEST is for
      serving, and the default, LLM42_PRESET_DVR, shows the protocol. LLM42_PRESETS lists what each of them sets.
   3. llm42_engine_submit queues a request, marked .deterministic or not, and gives its id.
   4. llm42_engine_step runs one pass of the model: call it until it returns LLM42_IDLE, or call llm42_engine_run. You
      may submit and cancel requests between steps. To run engines side by side, see llm42_engine_run_until.
   5. Tokens arrive through on_event as LLM42_EVENT_COMMITTED, and llm42_engine_request shows them too. What a
      deterministic request has committed never changes. Its candidates may still change, so do not show them to users.
   6. llm42_engine_release forgets a finished request, unless .auto_release has that done for you.
   7. Companions in examples/util/ take events: llm42_metrics.h collects statistics, llm42_trace.h draws a timeline, and
      llm42_transcript.h writes a file with which others can audit. llm42_calibration.h and llm42_draft.h serve engines.

   For a scheduling policy of your own, set .planner (see section api-planner); to guess tokens, .drafter (api-drafter).
   To run on other hardware, write a backend (api-backend). To run passes without an engine, call a backend's functions,
   as examples/score.c does. To try a policy without weights, simulate it, as examples/04_simulate.c does (api-sim).

   THE PROTOCOL, DVR (decode, verify, roll back: LLM-42, sections 3 and 4)

   A floating-point sum depends on the order of its terms, and the fastest order depends on how many rows share a pass.
   (A row is one token of one request in a forward pass.) So the logits of a request depend on which other requests are
   being served, and now and then the two largest logits change places. LLM-42 keeps the fast passes and checks what
   they produce: a replay pass runs a request's latest tokens again, in an order of sums that never changes. Tokens that
   agree are committed. The first that differs is replaced by the replay pass's own, and those after it are dropped.

   The order in which a pass takes its sums is its schedule. There are three:

      FAST         a row's result depends on the whole pass
      FIXED        a row's result depends on the row and on M, the number of rows that the pass is padded to
      INVARIANT    a row's result depends on the row alone (and, as always, on the tokens before it)

   In this picture one request is decoded and verified:

      fast passes      C a b c d e f g      each decodes one candidate, in a batch of any size (schedule FAST)
                       | | | | | | | |
      replay pass    [ C a b c d e f g ]    one window of W rows; up to G windows share the pass (schedule INVARIANT)
                       | | | | | | | |
      its outputs      a b c d e'f'g'h'
                       = = = = X            e' is canonical, e is not: commit a b c d e', drop e f g (a rollback)
                                            if all agree: commit a .. g and h', the verifier's own token (the bonus)

   Candidate    a token that was decoded but not yet verified
   Committed    released to the user; it never changes again
   Window, W    up to W rows of one request in a replay pass: its last committed token, and W - 1 candidates
   Group, G     the windows that share a replay pass, at most G
   Rollback     a candidate differs: it and all after it are dropped
   Recomputed   the dropped candidates without the one that differed, which the verifier's own token replaces

   Each verification commits at least one token, so a request always makes progress. The replay pass also overwrites the
   KV entries (the stored keys and values) of its positions, so that a committed prefix holds no trace of a fast pass.

   This engine goes beyond the paper in these policies:
   - Verifier INVARIANT: replay passes run under schedule INVARIANT and are not padded. The result is the canonical one
     (see DETERMINISM), whatever W, G and the prefill are. When a deterministic request has no candidates, a token that
     it decodes in an INVARIANT pass is committed at once, because a replay pass would compute the same token. Verifier
     FIXED, the paper's way, pads replay passes to M = G x W rows, and its result depends on M.
   - Mode HYBRID: the engine takes the way that should take least time: FAST passes whose candidates are verified later,
     or INVARIANT ones for some or all requests (see section hybrid). All give the same bits, so the clock may choose.
   - Prefill INVARIANT: deterministic prompts run in ordinary passes, beside decoding rows and other prompts (in mode
     HYBRID only if all rows share one INVARIANT pass). This makes the pass INVARIANT, which costs more for every row.
   - Drafts: .drafter may guess the next tokens. The guesses join the window (or the row, where passes are INVARIANT),
     and those that are right, because they are the canonical tokens, are committed together (see api-drafter).
   - Verify WAIT: requests whose windows are ready go on decoding until a replay pass is worth it (see LLM42_VERIFIES).

   DETERMINISM

   With verifier INVARIANT (all presets but PAPER) a deterministic request, and in mode BATCH_INVARIANT every request,
   gets the canonical result: the tokens and log-probability bits that the model gives when every pass is INVARIANT.
   They depend on (1) the model, (2) the prompt, the sampling parameters and the seed, (3) the types and the arithmetic
   (how sums round) in .numerics, and (4) the larger of .numerics.leaves and .tensor_parallel (see below). On CPUs and
   Hopper GPUs nothing else matters: not other requests, arrival order, batch and page sizes, W, G, prefix cache,
   preemption or planner, and on a CPU neither instruction set, compiler nor number of threads. Arithmetic SM90 is that
   of Hopper GPUs; a CPU can take it too, and then gives the GPU's bits (compared on H100 and H200). On other GPUs
   results depend on the GPU and its library versions; arithmetics SM80, SM89 and SM100 have only their steps. Scoring
   the finished text in INVARIANT passes gives the canonical result again. With verifier FIXED the result depends on M
   (see llm42_policy.verifier), and the text must be scored as it ran: in FIXED passes of M rows, the prompt in the kind
   of pass that .prefill names. The experiments .keep_fast_kv, .keep_fast_state and .gate break the promise.

   How the promise is kept: no order of a sum depends on chance or timing. On a CPU the order depends on the sizes of
   the operator and on the schedule and the shape of the pass, and on nothing else (sections vectors and cpu). On a GPU
   the order of products in a FAST pass also depends on the other rows. Fused multiply-adds are explicit, and exp, log,
   sin and cos are made of IEEE operations. An engine that opens runs a short sequence alone, and again after as many
   others as fit into a pass, under FIXED and INVARIANT. It does not open if a bit differs: a spot check, not a proof.

   Models in eight bits (FP8) have weights in e4m3 with scales, and the inputs of products get scales, too: a value is
   divided by its scale and rounded to the nearest e4m3, ties to even, at most +-448. The scale is the largest magnitude
   / 448, at least 1e-10, of a row or of a row and 128 columns (see llm42_scaling), or the checkpoint's, so that it
   never depends on other rows. A product's sum is cut into chains of 128 terms, each of which begins at zero. With
   scaling BLOCK, sum = fma(chain, scale of the input x scale of the weights, sum). With CHANNEL chains are added, and
   the sum is multiplied by the weights' scale and then by the input's. Terms and chains are in ascending order. In
   arithmetic SM90 a chain is four steps of the tensor cores, and in FP32 it has the one order (section vectors).

   Recurrent layers (gated delta rule, as in Qwen3-Next and Qwen3.5) keep a state instead of keys and values. FIXED and
   INVARIANT passes, and all passes of a GPU, take in one token after the other (section recurrent), so that no bit of
   this depends on how a prompt is cut, on prefix hits or on rollbacks. A FAST pass of the CPU takes in prompts by
   chunks of 64 tokens, as other engines do, which rounds differently. A state takes in final rows only, and later rows
   are applied again to a copy of it, so that a rollback touches no state.

   Tensor parallelism cuts a model into ranks, one for each device, and with it the sums of two matrix products, o
   (attention output) and down (feed-forward output). .numerics.leaves says into how many parts an INVARIANT pass cuts
   these sums whatever the ranks: with 8 leaves the canonical result is the same on 1, 2, 4 or 8 ranks. FAST and FIXED
   results depend on the ranks, and on a GPU also on the leaves.

   Compile with -ffp-contract=off: a build whose compiler has fused operations opens no engine, and one with -ffast-math
   or -fsingle-precision-constant fails. Setting flush-to-zero or another rounding mode anywhere breaks the promise.

   MEMORY, ERRORS, THREADS, BACKENDS

   llm42_engine_open allocates the memory of an engine, llm42_engine_submit that of a request, and a step allocates
   nothing (OpenMP may start its threads in the first one). When the KV cache runs out of pages, a request is preempted:
   it loses its pages, keeps its committed tokens and is prefilled again later. The planner chooses which (see its
   .preempt). A request that could never fit is refused when it is submitted.

   Functions return llm42_result: a negative value is an error, and llm42_error says in one line what to mend. A failed
   allocation is always LLM42_MEMORY. A failed pass loses no committed token; the next step tries again. Use an engine
   from one thread at a time; engines are independent of each other. A child of fork() runs passes on one thread. The
   CPU backend's threads spin while they wait. Beside a busy program that can halve the speed: set
   OMP_WAIT_POLICY=passive, or as many .threads (llm42_cpu_desc) as cores are free. The CPU and the simulator are in
   this file, the arithmetic of GPUs on a CPU in examples/util/llm42_sm90.h, CUDA in llm42.cu and kernels.cu (bf16 on
   sm_80 and later, FP8 models on sm_90). All may be open in one process.

   WHAT IT RESTS ON

   The protocol: LLM-42: Enabling Determinism in LLM Inference with Verified Speculation (2026). Batch invariance: He
   and others, Defeating Nondeterminism in LLM Inference (Thinking Machines, 2025). KV pages: Kwon and others, Paged-
   Attention (2023). Split-KV attention: Dao and others, Flash-Decoding (2023). The hash: Steele and others (2014).

   SECTIONS: search for two angle brackets and the name. Declarations are in api-results, -model, -pass, -backend, -sim,
   -policies, -request, -planner, -drafter, -engine and -math. The implementation:

      base        results, memory, numbers, files, names, doubles
      model       json, owner, scales, config, safetensors, layers, load
      backends    vectors, team, sampling, cpu, recurrent, fp32; calibrated, sim
      engine      state, kv, submit, step, admit, planner, hybrid, draft, plan, verify, open

   Each section says which others it calls, base aside. To follow one token, start at the prototypes in section submit.
*/
#ifndef LLM42_H
#define LLM42_H

// The implementation needs POSIX, which strict C leaves out. This must come before any system header.
#if (defined(LLM42_IMPLEMENTATION) || defined(LLM42_BASE)) && defined(__STRICT_ANSI__) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define LLM42_VERSION "0.3.0-dev"

#if !defined(LLM42_API) && defined(__cplusplus)
#define LLM42_API extern "C"
#elif !defined(LLM42_API)
#define LLM42_API extern
#endif

#ifdef __cplusplus
extern "C" {
#endif

// >>api-results --------------------------------------------------------------------------------------------------
// A negative result is an error. LLM42_OK and LLM42_IDLE are not errors.
#define LLM42_RESULTS(X)                                                                                       \
    X(LLM42_IDLE, 1, "nothing left to do")                                                                     \
    X(LLM42_OK, 0, "success")                                                                                  \
    X(LLM42_INVALID, -1, "a field or argument is out of its range")                                            \
    X(LLM42_IO, -2, "a file could not be opened, read or written")                                             \
    X(LLM42_FORMAT, -3, "a file is malformed")                                                                 \
    X(LLM42_UNSUPPORTED, -4, "a model, type or policy that this build or backend does not have")               \
    X(LLM42_MEMORY, -5, "out of memory")                                                                       \
    X(LLM42_NEVER_FITS, -6, "the request is larger than the context or the whole KV cache")                    \
    X(LLM42_NOT_FOUND, -7, "no live request has this id")                                                      \
    X(LLM42_NOT_INVARIANT, -8, "the backend does not keep the invariance that deterministic requests rely on") \
    X(LLM42_BACKEND, -9, "a pass failed on the backend")                                                       \
    X(LLM42_PLAN, -10, "a planner's plan breaks a rule")

#define LLM42__RESULT(name, value, text) name = value,
typedef enum llm42_result { LLM42_RESULTS(LLM42__RESULT) } llm42_result;

// What went wrong, in one line that names the file or field to mend. Every function that takes an error accepts NULL.
typedef struct llm42_error {
    llm42_result result;
    char text[480];
} llm42_error;

LLM42_API const char *llm42_result_name(llm42_result result);  // "LLM42_IO"
LLM42_API const char *llm42_result_text(llm42_result result);  // "a file could not be ..."
// For backends and planners of your own: fills in an error (NULL is fine) and returns its result. The text is a printf
// format. Control characters become question marks, so that a name from a broken file cannot reach a terminal raw.
LLM42_API llm42_result llm42_fail(llm42_error *error, llm42_result result, const char *format, ...);

// Receives one line of information without a newline. It is never an error.
typedef void llm42_log_fn(void *user, const char *line);

// >>api-model ----------------------------------------------------------------------------------------------------
typedef enum llm42_dtype {
    LLM42_DTYPE_DEFAULT = 0,
    LLM42_DTYPE_BF16,
    LLM42_DTYPE_FP32,
    LLM42_DTYPE_FP16,  // only as a stored type: converted to fp32 when a model is loaded
    LLM42_DTYPE_E4M3,  // only as a stored type: 8 bits with scales (see DETERMINISM, and llm42_matrix)
} llm42_dtype;

// Which numbers of a matrix in e4m3 share a scale, and which of the x [rows, k] that it is multiplied by.
typedef enum llm42_scaling {
    LLM42_SCALING_NONE,     // the matrix is not in e4m3
    LLM42_SCALING_BLOCK,    // 128 x 128 weights share one, and 128 values of a row of x
    LLM42_SCALING_CHANNEL,  // the weights of an output share one, and all values of a row of x, or all of x
} llm42_scaling;

// clang-format off
typedef enum llm42_arch {  // a row of the table of families, see section config
    LLM42_ARCH_LLAMA = 1, LLM42_ARCH_MISTRAL, LLM42_ARCH_QWEN2, LLM42_ARCH_QWEN3, LLM42_ARCH_QWEN3_MOE,
    LLM42_ARCH_MIXTRAL, LLM42_ARCH_MINISTRAL3, LLM42_ARCH_PHI3, LLM42_ARCH_SEED_OSS, LLM42_ARCH_SMOLLM3,
    LLM42_ARCH_GRANITE, LLM42_ARCH_QWEN3_NEXT, LLM42_ARCH_QWEN3_5, LLM42_ARCH_QWEN3_5_MOE,
} llm42_arch;
// clang-format on
typedef enum llm42_rope { LLM42_ROPE_PLAIN, LLM42_ROPE_LINEAR, LLM42_ROPE_LLAMA3, LLM42_ROPE_YARN } llm42_rope;

#define LLM42_MAX_STOP 8

typedef struct llm42_config {
    llm42_arch arch;
    int vocab;            // V
    int dim;              // D, model width
    int layers;           // L
    int heads;            // H, query heads
    int kv_heads;         // K
    int head_dim;         // d
    int ffn;              // F, feed-forward width (of one expert in a mixture)
    int experts;          // 0: dense
    int experts_used;     // experts that a token is sent to
    int shared_ffn;       // feed-forward width of the expert to which every token is sent, too; 0: there is none
    bool experts_renorm;  // the chosen experts' probabilities are scaled to sum to 1
    int context;          // longest sequence that the model was made for, tokens
    int sliding_window;   // positions that a token sees in layers with a window, itself included; 0: no layer has one
    // Recurrent layers (gated delta rule; see DETERMINISM). Each of their value heads has a state [key_dim, value_dim].
    int recurrent_layers;        // 0: every layer is attention
    int key_heads, value_heads;  // Hk and, a multiple of it, Hv
    int key_dim, value_dim;      // of a head
    bool gated;                  // attention's output is multiplied by sigmoid(gate), with gates from the q projection
    int rotary_dim;              // values of a head that are rotated, the first ones; 0: all
    float norm_eps;
    float embed_scale;      // of the embeddings' values; 0: 1
    float attention_scale;  // of the scores of attention; 0: 1 / sqrt(d)
    double rope_theta;
    llm42_rope rope;                                     // how frequencies are scaled; PLAIN: not
    double rope_factor;                                  // 0: not scaled
    double rope_low_freq_factor, rope_high_freq_factor;  // llama3; yarn: beta_slow, beta_fast
    double rope_original_context;                        // llama3, yarn
    double rope_scale;                                   // factor of cosine and sine, in yarn; 0: 1
    double query_beta;  // above 0: queries at position t are multiplied by 1 + this ln(1 + floor(t / original_context))
    bool tied;          // the LM head is the embedding
    llm42_scaling scaling;     // of those projections and experts that are in e4m3; NONE: none is
    int bos;                   // -1: none
    int stop[LLM42_MAX_STOP];  // end-of-sequence tokens, of generation_config.json or else of config.json
    int stop_count;
} llm42_config;

// How a synthetic matrix is made (llm42_synthetic.h has the formulas): element i (row-major) is bf16(scale x noise(key,
// i)). In the LM head the embedding of each token, times `lead`, is then added to the row of that token's successor.
typedef struct llm42_recipe {
    uint64_t key;
    float scale;
    float lead;  // margin / D; 0 except for the LM head
} llm42_recipe;

// A weight matrix [n, k], row-major, as stored (bf16, fp32 or e4m3). Backends read it; nobody writes it.
// A matrix in e4m3 is one byte for each weight, without padding, and its scales are fp32, finite and above 0. A
// weight's value is its byte's times its scale. Projections that share an input (q, k, v; qkv, z; gate, up) are all in
// e4m3, with one scaling and one .input_scale, or none is. Only experts and projections are, beta and alpha never.
// With a recipe, such a matrix has BLOCK scales: those of its bf16 values, as an input is scaled (see DETERMINISM).
typedef struct llm42_matrix {
    const void *data;  // NULL: the backend makes it from the recipe (llm42_model_desc.on_device)
    llm42_dtype type;
    int n, k;
    llm42_recipe recipe;
    llm42_scaling scaling;  // NONE unless .type is E4M3
    const float *scale;     // BLOCK: [ceil(n / 128), ceil(k / 128)]; CHANNEL: [n]; NULL as .data, and if NONE
    float input_scale;      // CHANNEL: of all of x, from the checkpoint; 0: each row of x has its own
} llm42_matrix;

// Weights of one layer; NULL where the architecture has none. Vectors are fp32.
typedef struct llm42_layer {
    bool sliding;                            // it has the window llm42_config.sliding_window
    bool unrotated;                          // its queries and keys are not rotated
    bool recurrent;                          // it keeps a state instead of keys and values
    int cache;                               // its place among the layers of its kind, from 0
    const float *attention_norm, *ffn_norm;  // [D]
    const float *q_norm, *k_norm;            // [d]
    const float *q_bias, *k_bias, *v_bias;   // [H*d] [K*d] [K*d]
    const float *o_bias, *down_bias;         // [D]
    const float *gate_bias, *up_bias;        // [F]
    llm42_matrix q, k, v, o;                 // [H*d, D] [K*d, D] [K*d, D] [D, H*d]; gated: q [H][2][d, D] with gates
    // Recurrent: q, k and v of all heads, [2 Hk*key_dim + Hv*value_dim, D], z [Hv*value_dim, D], beta and alpha [Hv,
    // D], and o [D, Hv*value_dim]. Taps of the convolution [2 Hk*key_dim + Hv*value_dim][4], the oldest first; for the
    // decay -e^A and the bias of alpha, [Hv]; the norm of the heads' outputs [value_dim].
    llm42_matrix qkv, z, beta, alpha;
    const float *taps, *decay, *alpha_bias, *head_norm;
    llm42_matrix gate, up, down;  // [F, D] [F, D] [D, F]; dense
    llm42_matrix router;          // [E, D]; mixture
    const llm42_matrix *expert;   // [E][3]: gate, up, down; and [1][3] of the shared expert
    llm42_matrix shared_gate;     // [1, D]: the shared expert counts sigmoid of this
} llm42_layer;

typedef struct llm42_model {
    llm42_config config;
    llm42_matrix embed, head;  // [V, D]
    const float *final_norm;   // [D]
    const llm42_layer *layer;  // [L]
    size_t mapped_bytes;       // of weights that are used as they are in their files, mapped or read
    size_t copied_bytes;       // of memory of the model's own: weights that were converted or made, tables
    char name[256];
    void *owner;  // what llm42_model_free releases
} llm42_model;

typedef struct llm42_model_desc {
    // Required. An HF folder (config.json and *.safetensors); "shape:NAME" (see llm42_synthetic_names): no weights, for
    // the simulator; or "synthetic:NAME[,seed=N][,margin=X]": random ones, with the companion llm42_synthetic.h.
    const char *path;
    bool on_device;  // the backend makes synthetic weights in its own memory (CUDA); default: on the host
    // Read the files of weights into memory. Default: map them, which takes no time and shares memory between
    // processes. A mapped file must not be changed while the model lives; if it is shortened, SIGBUS ends the process.
    // A program may write to weights that were read, although pointers to them are const: see llm42_engine_reload.
    bool no_mmap;
    llm42_log_fn *log;  // default: none
    void *log_user;
} llm42_model_desc;

// Its memory and its mapped files last until llm42_model_free. Errors: IO, FORMAT, UNSUPPORTED, MEMORY, INVALID.
LLM42_API llm42_result llm42_model_load(llm42_model **model, const llm42_model_desc *desc, llm42_error *error);
LLM42_API void llm42_model_free(llm42_model *model);  // NULL is fine. Close engines that use the model first.
// NULL-terminated list of the shapes that "shape:NAME" and "synthetic:NAME" know.
LLM42_API const char *const *llm42_synthetic_names(void);
// Bytes of KV that one token takes, all layers together.
LLM42_API size_t llm42_kv_token_bytes(const llm42_config *config, llm42_dtype compute);
// Bytes of a snapshot of a sequence's states, all recurrent layers together; 0: there are none.
LLM42_API size_t llm42_state_bytes(const llm42_config *config);

// >>api-pass -----------------------------------------------------------------------------------------------------
// The order in which a pass takes its sums (see THE PROTOCOL, and for ranks and leaves DETERMINISM).
typedef enum llm42_schedule {
    LLM42_SCHEDULE_FAST = 1,
    LLM42_SCHEDULE_FIXED,
    LLM42_SCHEDULE_INVARIANT,
    LLM42_SCHEDULE_COUNT  // the size of arrays that are indexed by a schedule; their place 0 stays empty
} llm42_schedule;

LLM42_API const char *llm42_schedule_name(llm42_schedule schedule);  // "fast"

// How a token is drawn. Greedy takes the largest logit, and the lowest id on a tie. Otherwise the filters apply in the
// order written here, and the token with the largest logit / temperature + Gumbel noise is drawn. The noise is from 64
// bits of a hash of (seed, position, token id): the same in fast and replay passes, and on every backend.
typedef struct llm42_sampling {
    float temperature;  // 0: greedy (default)
    int top_k;          // keep the k largest; 0: all (default)
    float top_p;        // then the smallest set with at least this share of what is left; 0: all (default)
    float min_p;        // then what has at least this share of the largest probability; 0: all (default)
    uint64_t seed;      // 0: 42 + the request's sample index (default); any other value is used as it is
} llm42_sampling;

enum {
    LLM42_ROW_SAMPLE = 1,   // a token and its log-probability are wanted after this row
    LLM42_ROW_KEEP_KV = 2,  // compute, but leave the KV entry as it is (see llm42_experiment.keep_fast_kv)
};

// One token at one position of one sequence.
typedef struct llm42_row {
    int32_t seq;       // index into llm42_pass.seq
    int32_t position;  // counted from 0
    int32_t token;
    uint32_t flags;  // LLM42_ROW_*
} llm42_row;

typedef struct llm42_save {
    int at, snapshot;  // a state is copied to this snapshot when it has taken in `at` positions
} llm42_save;

typedef struct llm42_seq {
    int64_t request;       // key of the request whose rows these are; by default its id, which counts from 1
    const int32_t *pages;  // pages[i] has positions i x page_size to (i + 1) x page_size - 1
    llm42_sampling sampling;
    // For recurrent layers. The backend keeps a state for each index into llm42_pass.seq, and the rows of the positions
    // after it. A pass applies these rows to a copy of the state, and then its own rows.
    int state;     // positions that the state has taken in; 0: none, it is zero
    int state_to;  // that it has taken in when the pass has run
    int restore;   // the state is first copied from snapshot `restore` - 1, which has `state` positions; 0: it is not
    int saves;  // times that the state is copied to a snapshot on its way to .state_to, ascending; in a pass a snapshot
                // that is saved is named once
    llm42_save save[2];
} llm42_seq;

typedef struct llm42_output {
    int32_t token;  // -1: none, because the row's logits are not finite; the engine ends that request with FINISH_ERROR
    float logprob;  // natural log of softmax(logits)[token], before temperature and filters
} llm42_output;

// Receives a pass's intermediate values: rows x width floats of one operator's output, in the order in which the
// operators run. layer counts from 0; it is -1 before the first and after the last. This is slow.
typedef void llm42_probe_fn(void *user, int layer, const char *operator_name, int rows, int width, const float *values);

// A forward pass. Each row writes the KV of its position, but not to a page that two sequences share. It attends to all
// positions of its sequence up to its own, also those that other rows write. A sequence's rows follow one another in
// position, and with recurrent layers also in the pass.
typedef struct llm42_pass {
    llm42_schedule schedule;
    int rows;              // R, rows in the list
    int shape;             // rows that the pass is padded to; the order of sums may depend on it; at least `rows`
    const llm42_row *row;  // [rows]
    const llm42_seq *seq;  // [sequences]
    llm42_output *out;     // [rows], written where LLM42_ROW_SAMPLE is set
    float *logits;         // NULL, or [rows, V], written where LLM42_ROW_SAMPLE is set
    // NULL, or called after each operator: embed, attention_norm, q (rotated), k (rotated), v, attention, o, ffn_norm,
    // gate (silu(gate) x up; a mixture has none), down (of a mixture: the sum over its experts), final_norm.
    llm42_probe_fn *probe;
    void *probe_user;
    bool check;  // true: a test pass that llm42_engine_open runs, for no request; the simulator counts no time for it
    float *margins;  // NULL, or [rows]: the llm42_margin of each row that .out has a token for
} llm42_pass;

// For callers without an engine, before a pass: says of the sequences of its rows that their states have taken in all
// positions before, and take in these rows. Of use for models with recurrent layers only.
LLM42_API void llm42_follow_rows(llm42_seq *seq, const llm42_row *row, int rows);

// >>api-backend --------------------------------------------------------------------------------------------------
// How the steps of a sum round. (A schedule is the order of its terms.)
typedef enum llm42_arithmetic {
    LLM42_ARITHMETIC_DEFAULT,  // the backend's own: FP32 on a CPU, that of the tensor cores on a GPU
    LLM42_ARITHMETIC_FP32,     // fused multiply-adds in fp32 (section vectors); CPU only
    // The bits of the CUDA backend's INVARIANT passes on a Hopper GPU (sm_90: H100, H200). A CPU emulates the sums of
    // its tensor cores, and takes two to four times as long as with FP32 (base42, one thread, AVX-512). Every schedule
    // has the INVARIANT order of sums, so nothing rolls back. bf16 only, and only where llm42_sm90.h is built in.
    LLM42_ARITHMETIC_SM90,
    // The same, but products sum by the steps of other tensor cores: A100, A2 (SM80), Ada, L40S (SM89; in bf16 as SM80)
    // and B200 (SM100; in bf16 as SM90). These were compared with the GPUs step by step only, 400 steps of each, and no
    // pass of a GPU was. FP8 models need FP32, SM89 or SM90: SM80 has no such steps, and those of SM100 are not known.
    LLM42_ARITHMETIC_SM80,
    LLM42_ARITHMETIC_SM89,
    LLM42_ARITHMETIC_SM100,
} llm42_arithmetic;

// What canonical bits depend on, beside the model, the prompt, the sampling parameters and the seed.
typedef struct llm42_numerics {
    llm42_dtype compute;          // default: LLM42_DTYPE_BF16
    llm42_arithmetic arithmetic;  // how sums round; default: the backend's own; not simulated
    bool logits_fp32;             // default: under bf16 logits are rounded to bf16, as serving engines do
    // Keep the router logits of a mixture in fp32. Default: under bf16 they are rounded to bf16, as HF transformers
    // does, so that two may become equal: then the expert with the lower index is chosen, even if the other one's was
    // larger before, and the row gets quite different logits. The chosen experts' weights are rounded in either case.
    bool router_fp32;
    // The equal parts, called leaves, into which an INVARIANT pass cuts the sums that ranks cut (see DETERMINISM). It
    // joins them by a fixed binary tree. 1, 2, 4 or 8; default: 1. If there are more ranks, each rank's part is a leaf.
    // The number must divide .heads and .ffn, and on a GPU 16 x leaves and 16 x ranks must divide .heads x .head_dim.
    // If weights are in e4m3, each part of the widths of heads and of .ffn must be a multiple of 128, also of a rank.
    int leaves;
} llm42_numerics;

typedef struct llm42_backend_desc {
    const llm42_model *model;
    llm42_numerics numerics;
    int tensor_parallel;       // ranks; 0: 1
    int max_rows;              // rows in a pass, at most
    int max_context;           // tokens in a sequence, at most
    int pages, page_size;      // of the KV cache
    int max_running;           // sequences in a pass, at most
    int fixed_rows;            // M: the shape of FIXED replay passes; 0: not known
    int behind, snapshots;     // recurrent layers: most rows between a state and a pass's first row; pool of snapshots
    unsigned schedules;        // that passes will have, as bits 1 << LLM42_SCHEDULE_FAST ...; 0: not known
    const void *backend_desc;  // the backend's own options, as in llm42_engine_desc; NULL: its defaults
    llm42_log_fn *log;
    void *log_user;
} llm42_backend_desc;

// What the rows of a request do in a pass. Plans, and tables of the times of passes, go by these kinds.
typedef enum llm42_kind {
    LLM42_KIND_DECODE,  // one row: the newest token goes in, the next one comes out
    LLM42_KIND_PROMPT,  // the next rows of its prompt, or of tokens that it had committed before a preemption
    LLM42_KIND_WINDOW,  // its verification window, in a replay pass; every row is sampled
    LLM42_KIND_COUNT
} llm42_kind;

// What a pass is made of, to ask for its time.
typedef struct llm42_mix {
    llm42_schedule schedule;
    int rows[LLM42_KIND_COUNT];
    double context[LLM42_KIND_COUNT];  // positions that a row attends to, on average
    int windows;                       // verification windows
} llm42_mix;

// A backend runs passes. It owns the device's copy of the weights, the KV pages and the clock. The contract:
// - open gets a desc in which every default is resolved. It allocates all memory that later calls need. If it fails, it
//   leaves *state NULL. close frees what open allocated. A backend may be open many times; the states share nothing.
// - run returns when the pass's outputs are valid. The pass and all it points to belong to the caller and stay in place
//   until then. Rows beyond pass->rows up to pass->shape are padding: they give no outputs and no KV.
// - If run fails, the outputs, the KV of the positions in pass->row and the states of its sequences are undefined, and
//   nothing else. Such KV is written again before a pass reads it, and requests with such states are preempted.
// - KV entries, tokens and log-probabilities depend on nothing but what the schedule allows (see llm42_schedule). The
//   engine opens only if rows keep their bits wherever they stand in a FIXED or INVARIANT pass.
// - A function returns LLM42_OK or an error. Anything else is LLM42_BACKEND to the engine.
// - now is in seconds from any fixed point and never runs backwards. wait_until returns at or after that time.
// - estimate gives the seconds that a pass of a mix would take alone. NULL: the engine goes by passes that it has run.
// - arithmetic names how INVARIANT passes round their sums. States with the same name give the same result, on any
//   device. NULL, or a function that returns NULL: the name is not known. Transcripts need the name.
// - reload is called when the model's weights have changed, and copies them again. NULL: the backend keeps no copy.
typedef struct llm42_backend {
    const char *name;
    llm42_result (*open)(void **state, const llm42_backend_desc *desc, llm42_error *error);
    void (*close)(void *state);
    llm42_result (*run)(void *state, const llm42_pass *pass, llm42_error *error);
    double (*now)(void *state);
    void (*wait_until)(void *state, double seconds);
    double (*estimate)(void *state, const llm42_mix *mix);
    const char *(*arithmetic)(void *state);  // "fp32": fused multiply-adds (CPU); "sm90": Hopper's tensor cores ...
    llm42_result (*reload)(void *state, llm42_error *error);
} llm42_backend;

typedef struct llm42_cpu_desc {
    int threads;  // at most 1,024; default: as many as OpenMP offers
} llm42_cpu_desc;

// .backend_desc is an llm42_cpu_desc; default: its defaults.
LLM42_API const llm42_backend *llm42_backend_cpu(void);
LLM42_API const char *llm42_cpu_isa(void);  // "avx512", "avx2" or "scalar": what this build of the header uses

// How many parts the CPU backend cuts a sum of k terms into, in a pass of `shape` rows with n outputs. n and k are
// those of one rank; n is 0 for attention. The number follows the table in section cpu; under INVARIANT it is 1.
LLM42_API int llm42_cpu_splits(llm42_schedule schedule, int shape, int n, int k);

// >>api-sim ------------------------------------------------------------------------------------------------------
// The simulator is a backend whose passes take virtual time, which a calibration gives. The true token at a position is
// a hash of request and position. A FAST pass may return another one, as real passes do. The share of candidates for
// which it does is the flip rate. It depends on the pass's shape and, with verifier FIXED, on M; with INVARIANT it is
// that of the table's smallest M. Requests multiply it by a number from a gamma distribution with mean 1.

// A table of a calibration: value[i * ys + k] is for x[i] and y[k]. llm42_calibration says what these are.
typedef struct llm42_table {
    int xs, ys;     // 0: the calibration has no such table
    double *x, *y;  // ascending
    double *value;  // [xs, ys]
} llm42_table;

typedef struct llm42_calibration {
    char name[128];  // the file's, without folder and ending
    char source[256], device[128], model[128];
    char forced[256];     // why build/bench wrote it only with --force, so that its times are doubtful; "": nothing
    int devices;          // that the times are of
    int leaves;           // of the INVARIANT passes: the larger of .leaves and .tensor_parallel of an engine's desc
    int64_t kv_tokens;    // KV pool, tokens; 0: not known
    double undivided_ms;  // of each pass: what more devices do not shorten
    // Microseconds of one exchange, in which x ranks add their parts of y rows. A pass has two for each layer. The
    // second table is of INVARIANT passes; the first also holds for them if the second lacks the ranks.
    llm42_table exchange, invariant_exchange;
    bool padding_free;  // rows that pad a FIXED pass to its shape cost nothing (CPU)
    int pass_sizes;     // 0: passes that are not FIXED are not padded
    double *pass_rows;  // [pass_sizes], ascending: else the device pads them to the next of these numbers of rows
    // Flip rates, mean over requests: the share of the candidates of FAST passes of x rows or more (up to the next x)
    // that replay passes of y rows or more change. The first x and y also hold for fewer rows.
    llm42_table flips;
    double flip_shape;                 // shape of the gamma distribution over requests; smaller is more uneven
    double host_ms[LLM42_KIND_COUNT];  // the host's work for each pass that decodes or has prompts, and each window
    double host_request_ms;            // of a request outside the engine: build/sweep adds it to latencies from arrival
    double draft_ms;                   // in which a drafter proposes one token for each request, all at once
    double window_rows;                // rows of each window in the tables of windows; 0: not known
    // Milliseconds of passes by schedule and kind: of x rows that attend to y positions on average. More y never takes
    // less, and the next x at most a quarter less, but not the largest. A schedule without a table of windows takes
    // that of INVARIANT passes, or else of FIXED ones, or without .window_rows that of its prompts.
    llm42_table cost[LLM42_SCHEDULE_COUNT][LLM42_KIND_COUNT];
} llm42_calibration;

typedef struct llm42_sim_desc {
    // Required; must outlive the engine. examples/util/llm42_calibration.h reads one from a file.
    const llm42_calibration *calibration;
    uint64_t seed;              // of tokens and flips; default: 42
    double flip_scale;          // multiplies the calibration's flip rates; default: 1
    bool no_flips;              // every candidate is right
    double invariant_slowdown;  // time of an INVARIANT pass, as a multiple of a FAST one; default: as calibrated
} llm42_sim_desc;

// .backend_desc is an llm42_sim_desc and required. The clock starts at 0. The model needs no weights ("shape:NAME").
LLM42_API const llm42_backend *llm42_backend_sim(void);
// The true token that follows position `position` of a request with this key, by llm42_sim_desc.seed.
LLM42_API int32_t llm42_sim_token(uint64_t seed, int vocab, int64_t key, int position);
// Milliseconds on `ranks` ranks of a pass of `rows` rows that takes `ms` on .devices, without the host's part. The
// exchanges of .devices are taken off, all but .undivided_ms is scaled by .devices / ranks, and the exchanges of
// `ranks` ranks are added, for a model of `layers` layers. NAN: it has no exchange of so many ranks or of .devices.
LLM42_API double llm42_calibration_ranks_ms(const llm42_calibration *calibration, llm42_schedule schedule, double ms,
                                            double rows, int ranks, int layers);
// Milliseconds that a pass of `rows` rows of one kind takes when they attend to `context` positions on average. Rows
// that pad the pass attend to none. NAN for numbers that are negative or not finite, and where there is no table. There
// are tables of decode (fast, invariant), prompt (fast, fixed, invariant) and window (fixed, sometimes invariant).
LLM42_API double llm42_calibration_ms(const llm42_calibration *calibration, llm42_schedule schedule, llm42_kind kind,
                                      double rows, double context);
// The share of the candidates of FAST passes of `fast_rows` rows that replay passes of `replay_rows` rows change.
LLM42_API double llm42_calibration_flip_rate(const llm42_calibration *calibration, double fast_rows,
                                             double replay_rows);

// >>api-policies -------------------------------------------------------------------------------------------------
// The values of .preset, of the policies (fields of llm42_policy) and of llm42_experiment.bonus, each with its word,
// which options and results use, and its meaning. To add a value, add a line to its list and code its effect.
#define LLM42_MODES(X)                                                                                           \
    X(LLM42_MODE_DVR, "dvr", "decode, verify, roll back for the requests marked deterministic")                  \
    X(LLM42_MODE_NONDETERMINISTIC, "nondeterministic", "every pass is FAST; deterministic requests are refused") \
    X(LLM42_MODE_BATCH_INVARIANT, "batch_invariant", "every pass is INVARIANT; every request is reproducible")   \
    X(LLM42_MODE_HYBRID, "hybrid", "dvr, but without verification where INVARIANT passes take less time")
#define LLM42_VERIFIERS(X)                                                                         \
    X(LLM42_VERIFIER_FIXED, "fixed", "replay passes have M rows (the paper): results depend on M") \
    X(LLM42_VERIFIER_INVARIANT, "invariant", "replay passes are INVARIANT, without padding: the canonical result")
#define LLM42_VERIFIES(X)                                                                        \
    X(LLM42_VERIFY_EAGER, "eager",                                                               \
      "as soon as one window is ready, filled up with those of the oldest requests (the paper)") \
    X(LLM42_VERIFY_WAIT, "wait",                                                                 \
      "when G windows are ready (or all), or one has waited for .deadline passes, or nothing else can run")
#define LLM42_PREFILLS(X)                                                                                       \
    X(LLM42_PREFILL_PACKED, "packed", "deterministic prompts ride in replay passes")                            \
    X(LLM42_PREFILL_ISOLATED, "isolated", "each deterministic prompt runs alone, at its own shape (the paper)") \
    X(LLM42_PREFILL_INVARIANT, "invariant", "deterministic prompts ride in ordinary passes, made INVARIANT")
#define LLM42_BONUSES(X)                                                                                  \
    X(LLM42_BONUS_ON, "on", "a window is W-1 candidates and the verifier's own token (the paper's text)") \
    X(LLM42_BONUS_OFF, "off", "a window is W candidates (the paper's code)")
#define LLM42_CHUNKEDS(X)                                                                      \
    X(LLM42_CHUNKED_ON, "on", "prompts ride beside decoding, cut into chunks by token_budget") \
    X(LLM42_CHUNKED_OFF, "off", "all prompts but PACKED ones run whole, before decoding goes on (the paper)")
// A preset fills in the policies, W and G that a desc leaves 0, and nothing else. DVR is the default and sets all of
// them; each of the others sets what is named here, and the rest as DVR does. This is the one table of defaults: the
// programs take theirs from it. DVR, BEST and INVARIANT give the canonical result, unless .policy.verifier is FIXED.
// clang-format off
#define LLM42_PRESETS(X)                                                                                              \
    X(LLM42_PRESET_DVR, "dvr", "decode, verify, roll back for the requests marked deterministic",                     \
      .policy = {.mode = LLM42_MODE_DVR, .verifier = LLM42_VERIFIER_INVARIANT, .verify = LLM42_VERIFY_EAGER,          \
                 .prefill = LLM42_PREFILL_INVARIANT, .chunked_prefill = LLM42_CHUNKED_ON, .window = 16, .group = 128},\
      .experiment = {.bonus = LLM42_BONUS_ON})                                                                        \
    X(LLM42_PRESET_BEST, "best", "the cheapest way to the same result, pass by pass: for serving, also with drafts",  \
      .policy = {.mode = LLM42_MODE_HYBRID, .verify = LLM42_VERIFY_WAIT, .window = 32, .group = 32})                  \
    X(LLM42_PRESET_INVARIANT, "invariant", "every pass is INVARIANT: every request is reproducible",                  \
      .policy = {.mode = LLM42_MODE_BATCH_INVARIANT, .group = 32})                                                    \
    X(LLM42_PRESET_PAPER, "paper", "the policies of the LLM-42 paper: results depend on M",                           \
      .policy = {.verifier = LLM42_VERIFIER_FIXED, .prefill = LLM42_PREFILL_ISOLATED,                                 \
                 .chunked_prefill = LLM42_CHUNKED_OFF, .window = 64, .group = 8},                                     \
      .experiment = {.bonus = LLM42_BONUS_OFF})
// clang-format on
// P(name in options and columns, field, type, name of the value 0, which is the preset's, list of values)
#define LLM42_POLICIES(P)                                                                   \
    P("preset", preset, llm42_preset, LLM42_PRESET_DEFAULT, LLM42_PRESETS)                  \
    P("mode", policy.mode, llm42_mode, LLM42_MODE_DEFAULT, LLM42_MODES)                     \
    P("verifier", policy.verifier, llm42_verifier, LLM42_VERIFIER_DEFAULT, LLM42_VERIFIERS) \
    P("verify", policy.verify, llm42_verify, LLM42_VERIFY_DEFAULT, LLM42_VERIFIES)          \
    P("prefill", policy.prefill, llm42_prefill, LLM42_PREFILL_DEFAULT, LLM42_PREFILLS)      \
    P("bonus", experiment.bonus, llm42_bonus, LLM42_BONUS_DEFAULT, LLM42_BONUSES)           \
    P("chunked", policy.chunked_prefill, llm42_chunked, LLM42_CHUNKED_DEFAULT, LLM42_CHUNKEDS)

#define LLM42__VALUE(name, ...) name,  // for each list of values of an enum
#define LLM42__POLICY(name, field, type, none, values) typedef enum type { none = 0, values(LLM42__VALUE) } type;
LLM42_POLICIES(LLM42__POLICY)
#undef LLM42__POLICY

// What a preset sets. Every field's default is the preset's, unless its comment says otherwise.
typedef struct llm42_policy {
    llm42_mode mode;
    // The schedule of replay passes. INVARIANT: the result is the canonical one. FIXED: it depends on M, on
    // .tensor_parallel and on .prefill; with prefill ISOLATED also on .token_budget, which cuts long prompts into
    // chunks, and with prefill INVARIANT on .numerics.leaves. FIXED also limits what deterministic requests share in
    // the prefix cache: with prefill PACKED all, with INVARIANT only prompts, with ISOLATED nothing.
    llm42_verifier verifier;
    llm42_verify verify;            // when replay passes run
    llm42_prefill prefill;          // of deterministic requests' prompts
    llm42_chunked chunked_prefill;  // of all prompts but PACKED ones
    int window;                     // W
    // G; M = G x W. FIXED: default at most 32. INVARIANT: counts as at most the larger of max_running and 32
    int group;
    // WAIT: a window that has been ready for this many passes is verified even if fewer than G are. Meanwhile its
    // request decodes at most this many candidates more. Default: W
    int deadline;
} llm42_policy;

typedef struct llm42_engine_desc llm42_engine_desc;
typedef struct llm42_engine llm42_engine;

// Sets .preset to DVR if it is 0, and what is 0 of policies, .window and .group as it says, as does llm42_engine_open.
LLM42_API void llm42_preset_apply(llm42_engine_desc *desc);
// In which schedules an engine with these policies runs passes: bit 1u << schedule for each.
LLM42_API unsigned llm42_policy_schedules(const llm42_policy *policy);
// Can a model be cut into so many ranks and leaves (0: 1)? Errors: INVALID, of the field of the desc of that name.
LLM42_API llm42_result llm42_ranks_check(const char *desc, const llm42_config *config, int ranks, int leaves,
                                         llm42_error *error);

// >>api-request --------------------------------------------------------------------------------------------------
typedef struct llm42_request_desc {
    const int32_t *prompt;    // required, [prompt_count], copied
    int prompt_count;         // required, at least 1
    int max_new_tokens;       // default: 128, or what the context leaves if that is less
    bool deterministic;       // default: no
    llm42_sampling sampling;  // default: greedy
    int sample_index;         // which of n samples of a prompt this is: shifts the default seed, and only that
    const int32_t *stop;      // [stop_count]; default: the model's end-of-sequence tokens
    int stop_count;           // at most LLM42_MAX_STOP
    bool ignore_stop;         // generate max_new_tokens, through stop tokens too
    double arrival;           // seconds on the backend's clock; default: now
    // Seeds what is drawn for this request: the simulator's tokens and flips, and the candidates that .inject_rate
    // makes wrong. Requests with the same key get the same draws, in whichever engine they run. Default: the id.
    int64_t key;
    void *user;  // given back in llm42_request.user
} llm42_request_desc;

// Are the parameters in their ranges? llm42_engine_submit asks the same. Errors: INVALID (names the field).
LLM42_API llm42_result llm42_sampling_check(const llm42_sampling *sampling, llm42_error *error);

typedef enum llm42_state {
    LLM42_STATE_WAITING = 1,  // queued, not yet arrived, or preempted
    LLM42_STATE_PREFILL,
    LLM42_STATE_DECODE,
    LLM42_STATE_FINISHED,
} llm42_state;

typedef enum llm42_finish {
    LLM42_FINISH_NONE = 0,  // still alive
    LLM42_FINISH_STOP,      // a stop token was committed (it is the last token returned)
    LLM42_FINISH_LENGTH,    // max_new_tokens
    LLM42_FINISH_CANCELLED,
    LLM42_FINISH_ERROR,  // no token could be drawn: its logits are not finite (the weights hold NaN, or overflow)
} llm42_finish;

// A request as users and planners see it. Pointers are valid until the request is released.
typedef struct llm42_request {
    int64_t id, key;  // key: as in the desc
    llm42_state state;
    llm42_finish finish;
    bool deterministic;
    bool verified;     // tokens that it decodes in FAST passes are candidates until they are verified
    bool must_verify;  // its last replay pass failed: its whole window must be verified before it decodes again
    bool complete;     // its newest candidate would be its last token (a stop token, or max_new_tokens is reached)
    int prompt_count, max_new_tokens;
    llm42_sampling sampling;  // the seed is resolved: never 0
    int stop_count;           // 0: it ends at no token
    int32_t stop[LLM42_MAX_STOP];
    int committed, candidates;  // output tokens: final ones, and candidates, which are not verified yet
    int drafts;                 // tokens that the drafter has proposed after the candidates; they have no KV
    int kv;                     // positions with KV; in state PREFILL the next row of its prompt is at this position
    int64_t ready_since;        // passes that had run when its window became ready; -1: it is not ready
    double arrival, first_token, last_token;  // seconds on the backend's clock; -1: not yet
    const int32_t *prompt;                    // [prompt_count]
    const int32_t *tokens;                    // [committed], then [candidates], then [drafts]
    const float *logprobs;                    // [committed]
    int64_t verifications, rollbacks, recomputed, preemptions, prefix_hits;
    int64_t drafted, accepted;  // drafts that a pass has judged, and those of them that were the right token
    void *user;
} llm42_request;

#define LLM42_EVENTS(X)                                                                                       \
    X(LLM42_EVENT_SUBMITTED, "submitted")     /* n: prompt tokens */                                          \
    X(LLM42_EVENT_ADMITTED, "admitted")       /* n: tokens found in the prefix cache */                       \
    X(LLM42_EVENT_PREFILLED, "prefilled")     /* n: tokens whose KV is present */                             \
    X(LLM42_EVENT_CANDIDATE, "candidate")     /* n = 1: a token decoded but not verified */                   \
    X(LLM42_EVENT_COMMITTED, "committed")     /* n tokens released; info's times are updated after it */      \
    X(LLM42_EVENT_VERIFIED, "verified")       /* n: candidates that agreed with the replay pass */            \
    X(LLM42_EVENT_ROLLED_BACK, "rolled back") /* n: candidates dropped, the one that differed included */     \
    X(LLM42_EVENT_DRAFTED, "drafted")         /* n: drafts after the newest token */                          \
    X(LLM42_EVENT_ACCEPTED, "accepted")       /* n: drafts that were the right tokens; the rest is dropped */ \
    X(LLM42_EVENT_PREEMPTED, "preempted")     /* n: candidates dropped; the KV pages go, the tokens stay */   \
    X(LLM42_EVENT_FINISHED, "finished")       /* n: tokens returned; see finish */                            \
    X(LLM42_EVENT_PASS, "pass")               /* request 0; n: rows; see schedule, shape, begin */

typedef enum llm42_event_type { LLM42_EVENT_NONE = 0, LLM42_EVENTS(LLM42__VALUE) } llm42_event_type;

typedef struct llm42_event {
    llm42_event_type type;
    double time;                // seconds on the backend's clock; the events of a pass have one time
    int64_t request;            // id; 0 for a pass
    const llm42_request *info;  // NULL for a pass
    int n;                      // see LLM42_EVENTS
    int position;               // index of tokens[0] among the request's output tokens
    const int32_t *tokens;      // [n]: candidate, committed, rolled back, drafted, accepted; else NULL
    const float *logprobs;      // [n]: committed; candidate and rolled back (the fast pass's); else NULL
    llm42_output replayed;      // rolled back: what the replay pass returned in place of tokens[0]. The two
                                // log-probabilities differ by about the margin, if the request is greedy
    llm42_finish finish;
    llm42_schedule schedule;                 // pass
    int shape;                               // pass: rows that it was padded to
    int windows;                             // pass: verification windows in it
    double begin;                            // pass: start time; time is its end
    double fast_seconds, invariant_seconds;  // pass: see llm42_plan
} llm42_event;

// Called inside llm42_engine_submit, _cancel and _step, on the caller's thread. Pointers in the event are valid during
// the call. It may call llm42_engine_submit, _cancel and _release. They check their arguments at once, and submit gives
// the id; the rest happens after the event, before another pass is planned. A request cancelled there releases no more
// tokens. llm42_engine_step, _run, _run_until and _close are refused there. The tokens of an event are already in
// info->tokens. Behind a stop string of your own, cut the rest yourself: how many tokens follow it in the event depends
// on the load. A request whose last token an event brings ends with STOP or LENGTH, even if it is cancelled there.
typedef void llm42_event_fn(void *user, const llm42_event *event);

LLM42_API const char *llm42_event_name(llm42_event_type type);  // "committed"

// >>api-planner --------------------------------------------------------------------------------------------------
// A planner decides which requests share the next pass. It sees the requests and fills in a plan: a schedule, a shape,
// and a list of choices. The engine checks it, takes KV pages and runs it. Every plan that obeys the rules is safe: no
// token or log-probability bit of a deterministic request depends on the planner. examples/planners.h has two.
typedef struct llm42_choice {
    int64_t request;  // id
    llm42_kind kind;
    int rows;  // 0: as many as llm42_choice_rows allows
} llm42_choice;

typedef struct llm42_plan {
    llm42_schedule schedule;  // required; the rules below say what may run under which
    int shape;                // rows that the pass is padded to; default: M for a FIXED replay pass, else as planned
    int count;                // choices
    llm42_choice *choice;     // [count], in the order of their rows; there is room for `room` of them
    int room;                 // at least the number of requests that run
    // Mode HYBRID, for the pass's event: how long one more token for every request is expected to take, if candidates
    // are verified later, and if deterministic requests decode in INVARIANT passes. 0: this was not compared.
    double fast_seconds, invariant_seconds;
} llm42_plan;

// What planners learn about a pass.
typedef struct llm42_planned {
    llm42_schedule schedule;
    int rows, shape;       // rows is 0 where there is no such pass
    int windows, prompts;  // choices of windows, and of deterministic prompts
    double begin;          // seconds on the backend's clock
} llm42_planned;

// What a planner sees, valid until the planner returns. It is a value: a planner may point .desc of a copy at a desc
// with other .policy.group, .verify, .deadline and .chunked_prefill, and give it to any function that takes a view.
typedef struct llm42_view llm42_view;
struct llm42_view {
    const llm42_engine *engine;     // for the functions below
    const llm42_engine_desc *desc;  // every default resolved
    double now;                     // the backend's clock, seconds
    int64_t passes;                 // passes that have run; llm42_request.ready_since counts in these
    llm42_schedule replay;          // of replay passes, as .policy.verifier says
    int window_ready;               // candidates that make a window ready: W - 1, or W without the bonus token
    int running_count, waiting_count;
    const llm42_request *const *running;  // [running_count], in order of admission
    const llm42_request *waiting;         // the one with the earliest .arrival, which may lie ahead; NULL: none
    int pages_free;                       // KV pages that no request holds
    llm42_planned last;                   // the last pass
    // The seconds that a pass of a mix takes alone, by the backend or by passes that have run. Negative: not known.
    double (*seconds)(const llm42_view *view, const llm42_mix *mix);
    bool measured;  // `seconds` goes by passes that have run
    // The seconds of verifying one candidate later, if decoding a token takes `decode` seconds: its share of a replay
    // pass, and of the tokens that are expected to be decoded again. As far as known; negative: not known.
    double (*verify_seconds)(const llm42_view *view, double decode);
    int64_t windows, window_tokens;  // of replay passes so far: windows, and the tokens that they have committed
};

// The rules. The engine refuses a plan that breaks one: llm42_engine_step returns LLM42_PLAN and an error that names
// the rule and the request. A refused plan changes nothing, and the engine can go on. The most rows of a plan are M in
// a FIXED pass, token_budget in others, and with verifier INVARIANT the larger of both in an INVARIANT pass.
#define LLM42_RULES(X)                                                                                                \
    X(LLM42_RULE_SCHEDULE, "the schedule is one that the mode and prefill use")                                       \
    X(LLM42_RULE_RUNNING, "a choice names a request that runs")                                                       \
    X(LLM42_RULE_ONCE, "a request is in a plan at most once")                                                         \
    X(LLM42_RULE_DECODE, "a request decodes when its prompt is done and another token may follow")                    \
    X(LLM42_RULE_PROMPT, "a prompt is chosen while some of it has no KV")                                             \
    X(LLM42_RULE_PREFILL, "a deterministic prompt runs in passes that .prefill and .replay name, never in FAST ones") \
    X(LLM42_RULE_ISOLATED,                                                                                            \
      "with prefill ISOLATED and verifier FIXED a deterministic prompt is alone, with all its rows")                  \
    X(LLM42_RULE_KIND, "a choice is to decode, to run rows of a prompt, or to verify a window")                       \
    X(LLM42_RULE_WINDOW, "a window has something to verify")                                                          \
    X(LLM42_RULE_FAILED, "after a failed replay pass the whole window is verified again")                             \
    X(LLM42_RULE_REPLAY, "windows are verified in passes of the schedule that .replay names")                         \
    X(LLM42_RULE_ROWS, "a choice has at most llm42_choice_rows rows, and a plan at most as many as its pass may")     \
    X(LLM42_RULE_SHAPE,                                                                                               \
      "the shape is M (FIXED) or an ISOLATED prompt's rows; in other passes it is at least the rows planned, and at " \
      "most as many as a plan may have")                                                                              \
    X(LLM42_RULE_WORK, "a plan chooses at least one request")                                                         \
    X(LLM42_RULE_ADMIT, "admit may admit none (0) only while a request runs")                                         \
    X(LLM42_RULE_PREEMPT, "preempt names a request that runs")                                                        \
    X(LLM42_RULE_ARRIVED, "admit names a waiting request that has arrived")

typedef enum llm42_rule { LLM42_RULES(LLM42__VALUE) } llm42_rule;

// The functions run inside llm42_engine_step, on the caller's thread, and must call no function of the engine. They
// return LLM42_OK or an error (see llm42_fail). For runs that repeat, a planner reads only the view's unmeasured parts.
typedef struct llm42_planner {
    const char *name;  // required; one word, for messages and results
    void *user;        // given to each function
    // Required. Fills in the plan of the next pass, which is empty when the planner gets it. An error ends the step.
    llm42_result (*plan)(void *user, const llm42_view *view, llm42_plan *plan, llm42_error *error);
    // Names the request that gives up its KV pages when a plan needs more than are free. The planner is then asked for
    // another plan. NULL (default): the youngest, ordinary requests first.
    int64_t (*preempt)(void *user, const llm42_view *view);
    // Names the request to admit next, asked while one that has arrived waits; 0: none. NULL (default): by arrival.
    int64_t (*admit)(void *user, const llm42_view *view);
    // Called after each pass with its plan and the seconds that it took. NULL (default): not called.
    void (*postprocess)(void *user, const llm42_view *view, const llm42_plan *plan, double seconds);
} llm42_planner;

// The built-in planner. Its parameters are the policies in llm42_engine_desc. A planner of your own can call its plan
// function (with NULL for user) for passes that it does not want to plan itself.
LLM42_API const llm42_planner *llm42_planner_default(void);
// Adds a choice to a plan. rows: 0 for as many as it may have.
LLM42_API void llm42_choose(llm42_plan *plan, const llm42_request *request, llm42_kind kind, int rows);
// How many rows this choice may have now in a pass of this schedule; 0: it may not be chosen.
LLM42_API int llm42_choice_rows(const llm42_view *view, const llm42_request *request, llm42_kind kind,
                                llm42_schedule schedule);
// The waiting request after this one, by arrival; NULL: there is none, or this one does not wait.
LLM42_API const llm42_request *llm42_next_waiting(const llm42_view *view, const llm42_request *request);

// Three parts of a plan, for planners that decide when and for whom, and not how. The built-in planner uses them, too.
// Each follows the policies in view->desc, and adds choices to what the plan already holds. It adds no request that the
// plan holds, and no more rows than the pass may still have, where a choice with rows 0 has as many as it may. A part
// sets the schedule of a plan that is empty or has none. It adds nothing to a plan that has another schedule or breaks
// a rule. So the parts may be called in any order, also between choices of your own. Set .shape after them, if at all.
//
// Windows are taken in ascending order of what this returns, then by admission. Negative, or NaN: it is left out.
typedef double llm42_order_fn(const llm42_view *view, const llm42_request *request);
// Adds up to G windows, for a replay pass. Only requests with something to verify are asked about. Returns their rows.
LLM42_API int llm42_plan_windows(const llm42_view *view, llm42_plan *plan, llm42_order_fn *order);
// Adds the deterministic prompts that may not ride in ordinary passes, for a replay pass. With prefill ISOLATED it adds
// one prompt to an empty plan. What would be padding in a FIXED pass is filled with ordinary prompts.
LLM42_API void llm42_plan_prompts(const llm42_view *view, llm42_plan *plan);
// Adds all requests that decode, and the prompts that may ride beside them, up to the token budget, for a FAST pass. If
// the plan was empty, deterministic prompts make it INVARIANT. To a plan that is INVARIANT already it adds them, too.
LLM42_API void llm42_plan_ordinary(const llm42_view *view, llm42_plan *plan);

// >>api-drafter --------------------------------------------------------------------------------------------------
// A drafter guesses the next tokens of a request (examples/util/llm42_draft.h has three). Its drafts stand after the
// newest token as candidates do, but have no KV yet: a row for each of them joins that of the newest token, and a draft
// is accepted if and only if it is what the row before it gives. So drafts save passes, and change no result.
typedef struct llm42_draft {
    const llm42_request *request;
    int limit, count;  // the most tokens to propose, at least 1; and how many it proposes, 0 before
    int32_t *token;    // [limit], in the request's own text: to be filled in during the call, and never afterwards
} llm42_draft;

// The functions run inside llm42_engine_step (forget also inside llm42_engine_cancel), on the caller's thread, and must
// call no function of the engine. If draft fails, gives more than the limit or an id outside the vocabulary, or seconds
// is negative or not finite, the engine logs it, counts it in llm42_stats.draft_failures, and goes on without drafts.
typedef struct llm42_drafter {
    const char *name;  // required; one word
    void *user;        // given to each function
    // Required. Proposes tokens for `count` requests at once, none of them twice: fewer than the limit, or none, where
    // rows cost more than they are likely to give (llm42_view.seconds).
    llm42_result (*draft)(void *user, const llm42_view *view, llm42_draft *draft, int count, llm42_error *error);
    void (*forget)(void *user, const llm42_request *request);  // it is finished; NULL (default): not called
    // Seconds in which it drafts `tokens` tokens for each of `requests` requests, on a simulated clock. NULL: none.
    double (*seconds)(void *user, int requests, int tokens);
} llm42_drafter;
// The drafts that a request may have now, at most. Those of a verified request share its window.
LLM42_API int llm42_draft_room(const llm42_view *view, const llm42_request *request);

// >>api-engine ---------------------------------------------------------------------------------------------------
// The KV cache.
typedef struct llm42_kv_desc {
    int page_size;             // tokens in a page; default: 16
    int pages;                 // default: max_running full contexts; if these take more than 1 GiB, then 1 GiB or one
                               // full context, whichever is more
    bool prefix_cache;         // default: off
    double admission_reserve;  // 0 to 1; default: 0. A request is admitted if enough pages are free for its tokens and
                               // for a reserve: the larger of one page for each running request, and this share of
                               // the tokens that it and they may still return. If none runs, one is always admitted
    int snapshots;             // of states, which prefix hits of models with recurrent layers begin with, each of them
                               // llm42_state_bytes; default: max_running, if there is a prefix cache
} llm42_kv_desc;

// For experiments: what breaks requests or the promise on purpose, and what is kept to reproduce the paper.
typedef struct llm42_experiment {
    double inject_rate;    // share of candidates replaced by a wrong token, 0 to 1, for stress tests; default: 0
    uint64_t inject_seed;  // default: 42
    bool keep_fast_kv;     // leave out the KV overwrite of verification, which breaks the promise
    bool keep_fast_state;  // states take in all rows, also those that are rolled back: this breaks the promise, too
    // MarginGate (arXiv 2605.30218): a token that a FAST pass gives is committed without verification if its margin
    // (llm42_margin) is at least this, and no candidate of its request waits before it. Its KV stays, too, which breaks
    // the promise. In the simulator this share of the tokens is below the gate.
    double gate;        // default: 0, none
    llm42_bonus bonus;  // whether a window has a row for the verifier's own token; default: the preset's
} llm42_experiment;

struct llm42_engine_desc {
    const llm42_model *model;      // required
    const llm42_backend *backend;  // default: llm42_backend_cpu()
    const void *backend_desc;  // of the backend's own type: llm42_cpu_desc, llm42_sim_desc (required), llm42_cuda_desc
    const llm42_planner *planner;  // decides who shares a pass; default: llm42_planner_default()
    const llm42_drafter *drafter;  // guesses the next tokens; default: none
    int draft_limit;               // drafts of a request in a pass, at most; default: 7
    bool draft_ordinary;           // requests that are neither verified nor in INVARIANT passes have drafts, too
    llm42_preset preset;           // fills in the policies that are 0; default: DVR
    llm42_policy policy;           // default: the preset's
    llm42_numerics numerics;       // what canonical bits depend on, beside the model and the request
    llm42_kv_desc kv;              // the KV cache
    llm42_experiment experiment;   // default: none
    // Tensor parallelism: the number of ranks, equal parts (of heads, feed-forward width and vocabulary) into which the
    // model is cut: 1, 2, 4 or 8; default: 1. It must divide the model's .heads and .ffn, and divide .kv_heads or be a
    // multiple of it (several ranks then copy a KV head). On the CPU ranks make nothing faster. On GPUs each has a
    // device (llm42_cuda_desc.devices). The simulator takes as many as its calibration has devices or exchanges for.
    int tensor_parallel;
    int max_context;  // tokens in a sequence; default: the model's, at most 8192
    int max_running;  // sequences that run at once; default: 32
    // The most rows of a FAST or INVARIANT pass, and of the pass of an ISOLATED prompt. (With .policy.verifier
    // INVARIANT an INVARIANT pass may have M rows if that is more.) It must be at least max_running, and with
    // chunked_prefill OFF max_context too. Default: the least that it may be, but with chunked_prefill ON 256 or more.
    int token_budget;
    bool auto_release;         // a finished request is released after its FINISHED event; default: by the user
    llm42_event_fn *on_event;  // default: none
    void *event_user;
    llm42_log_fn *log;  // default: none
    void *log_user;
};

typedef struct llm42_stats {
    int64_t submitted, finished, cancelled, failed;  // finished: cancelled and failed (FINISH_ERROR) ones included
    int64_t prompt_tokens;                           // of requests that were admitted
    int64_t returned_tokens;                         // released to users
    int64_t deterministic_tokens;                    // of those, to deterministic requests
    int64_t passes[LLM42_SCHEDULE_COUNT], rows[LLM42_SCHEDULE_COUNT];  // by schedule
    double busy[LLM42_SCHEDULE_COUNT];                                 // seconds in passes, by schedule
    double replay_busy;     // of those, in replay passes: FIXED ones, and others with verification windows
    int64_t replay_passes;  // those passes
    int64_t candidates, verifications, rollbacks, recomputed, injected;
    int64_t gated;                              // tokens that experiment.gate has committed
    int64_t compared;                           // candidates compared with a replay pass, up to the first that differs
    int64_t drafted, accepted, draft_failures;  // drafts that passes have judged, and those of them that were right
    int64_t preemptions, preempted_candidates;
    int64_t prefix_hits;  // tokens found in the prefix cache: of prompts, and after a preemption also committed ones
    int running, waiting, pages_free;  // now
} llm42_stats;

// Opens an engine and takes all memory that steps use. Errors: INVALID (names the field), UNSUPPORTED, MEMORY,
// NOT_INVARIANT (any mode but NONDETERMINISTIC, on a backend whose rows change with their place in a pass).
LLM42_API llm42_result llm42_engine_open(llm42_engine **engine, const llm42_engine_desc *desc, llm42_error *error);
// NULL is fine; live requests are dropped. Errors: INVALID (called inside an event; nothing is closed).
LLM42_API llm42_result llm42_engine_close(llm42_engine *engine);
// Takes up weights that were written into the model's memory, as a trainer does after each step, and empties the prefix
// cache, whose KV is that of the old weights. Between the first write and this call no pass may run. A transcript still
// names the weights that it began with. Errors: INVALID (a request is not finished, or called inside an event), and
// those of the backend, after which the call must be repeated.
LLM42_API llm42_result llm42_engine_reload(llm42_engine *engine, llm42_error *error);
// The desc with every default resolved.
LLM42_API const llm42_engine_desc *llm42_engine_config(const llm42_engine *engine);
// How INVARIANT passes round, by its name (see llm42_backend.arithmetic). NULL: the backend does not say.
LLM42_API const char *llm42_engine_arithmetic(const llm42_engine *engine);

// Queues a request. *id counts up from 1. Errors: INVALID (names the field), NEVER_FITS, MEMORY.
LLM42_API llm42_result llm42_engine_submit(llm42_engine *engine, const llm42_request_desc *desc, int64_t *id,
                                           llm42_error *error);
// Ends a request, unless it is finished. Tokens that it has committed can still be read. Errors: NOT_FOUND.
LLM42_API llm42_result llm42_engine_cancel(llm42_engine *engine, int64_t id, llm42_error *error);
// The request, or NULL when no live request has this id.
LLM42_API const llm42_request *llm42_engine_request(const llm42_engine *engine, int64_t id);
// Forgets a finished request and frees its tokens. Errors: NOT_FOUND, INVALID (it is not finished).
LLM42_API llm42_result llm42_engine_release(llm42_engine *engine, int64_t id, llm42_error *error);

// Admits arrivals, asks the planner for a pass, runs it, commits tokens and emits events. Returns LLM42_OK when a pass
// has run, LLM42_IDLE when every request is finished. If nothing can run until the next arrival, it sleeps until then.
// After an error no token was committed or lost: call it again to retry, or cancel. (Requests that the step admitted or
// preempted stay so.) Errors: those of the backend and the planner, PLAN, and INVALID (called inside an event).
LLM42_API llm42_result llm42_engine_step(llm42_engine *engine, llm42_error *error);
// Steps until idle. LLM42_OK, or the first error.
LLM42_API llm42_result llm42_engine_run(llm42_engine *engine, llm42_error *error);
// Steps until the backend's clock has reached `seconds`, and waits if there is nothing to run, so that one program can
// run several engines (sweep/lib/fleet.h). No pass begins at or after that time, but one may end later. Returns
// LLM42_IDLE when every request is finished, else LLM42_OK. (INFINITY: until idle.) Where times repeat (simulator) and
// the planner uses none, cutting a run into such calls changes nothing. Errors: those of a step, and INVALID (NaN).
LLM42_API llm42_result llm42_engine_run_until(llm42_engine *engine, double seconds, llm42_error *error);
LLM42_API double llm42_engine_now(const llm42_engine *engine);  // the backend's clock, seconds
LLM42_API llm42_stats llm42_engine_stats(const llm42_engine *engine);

// >>api-math -----------------------------------------------------------------------------------------------------
// Made of IEEE operations alone: the same bits on every CPU.
LLM42_API double llm42_exp64(double x);
LLM42_API double llm42_log64(double x);
LLM42_API void llm42_sincos(double x, double *sine, double *cosine);  // NaN if |x| is 1e9 or more
LLM42_API uint64_t llm42_hash(uint64_t x);
LLM42_API double llm42_uniform(uint64_t hash);  // a number in [0, 1) from a hash: its upper 53 bits
// Reads a finite decimal number that fills the text, in any locale. False: it is none, or does not fit a double.
LLM42_API bool llm42_number(const char *begin, const char *end, double *value);
// Draws a token from logits [V]. position is that of the row that gave the logits.
LLM42_API llm42_output llm42_sample(const float *logits, int vocab, const llm42_sampling *sampling, int position);
LLM42_API float llm42_logprob(const float *logits, int vocab, int token);
// logprob [V]: the natural log of the probability with which llm42_sample draws each token; -INFINITY for one that a
// filter removes. At temperature 1 without filters these are the bits of llm42_logprob.
LLM42_API void llm42_sampled_logprobs(const float *logits, int vocab, const llm42_sampling *sampling, float *logprob);
// The score of the token that is drawn, its logit (greedy) or logit / temperature + Gumbel noise, minus the second
// largest score. Top-k and other filters are ignored, so it may be that of a token which a filter removes.
LLM42_API float llm42_margin(const float *logits, int vocab, const llm42_sampling *sampling, int position);

#ifdef __cplusplus
}
#endif
#endif  // LLM42_H

#if defined(LLM42_IMPLEMENTATION) && !defined(LLM42_IMPLEMENTED) && (defined(__cplusplus) || __STDC_VERSION__ < 201112L)
#error "llm42.h: the implementation is C11: define LLM42_IMPLEMENTATION in a .c file, and compile it with -std=c11"
#undef LLM42_IMPLEMENTATION
#endif
// ================================================================================================================
// The base is C11 and C++17. llm42.cu defines LLM42_BASE to include only this part of the implementation.
#if (defined(LLM42_IMPLEMENTATION) || defined(LLM42_BASE)) && !defined(LLM42__BASE_INCLUDED)
#define LLM42__BASE_INCLUDED

#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) || \
    (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error \
    "llm42.h: compile without -ffast-math, -Ofast and their parts: they change bits, and bits are what llm42 promises"
#endif

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifndef CLOCK_MONOTONIC
#error "llm42.h: POSIX is hidden: include llm42.h before system headers, or compile with -D_POSIX_C_SOURCE=200809L"
#endif

#if defined(__GNUC__)
#define LLM42__PREFETCH(p, offset) __builtin_prefetch((const void *)((uintptr_t)(p) + (offset)))
#define LLM42__INLINE static inline __attribute__((always_inline))
#define LLM42__PRINTF(at) __attribute__((format(printf, at, at + 1)))
#else
#define LLM42__PREFETCH(p, offset) ((void)0)
#define LLM42__INLINE static inline
#define LLM42__PRINTF(at)
#endif
// For functions that run on the host and, when nvcc compiles them, in kernels too.
#ifdef __CUDACC__
#define LLM42__BOTH LLM42__INLINE __host__ __device__
#else
#define LLM42__BOTH LLM42__INLINE
#endif
#define LLM42__MIN(a, b) ((a) < (b) ? (a) : (b))
#define LLM42__MAX(a, b) ((a) > (b) ? (a) : (b))

// The calling function fails with the result LLM42_<result>.
#define LLM42__FAIL(result, ...) return llm42_fail(error, LLM42_##result, __VA_ARGS__)
// Makes the calling function return the call's result if that is not LLM42_OK.
#define LLM42__TRY(call)                               \
    do {                                               \
        llm42_result try_result = (call);              \
        if (try_result != LLM42_OK) return try_result; \
    } while (0)

// >>results ------------------------------------------------------------------------------------------------------
// Owns: log lines, and checks that descs share.
// Calls: names.
// Invariant: a message or log line is one line of UTF-8 without control characters, even if it quotes a broken file.

static void llm42__scrub(char *text) {
    for (unsigned char *p = (unsigned char *)text; *p; p++) {
        int more = *p >= 0xf0 ? 3 : *p >= 0xe0 ? 2 : *p >= 0xc2 ? 1 : 0;  // bytes that follow in UTF-8
        bool control = *p < ' ' || *p == 0x7f || (*p >= 0x80 && !more) || (*p == 0xc2 && p[1] < 0xa0);
        for (int i = 1; i <= more; i++) control = control || (p[i] & 0xc0) != 0x80;
        if (control) *p = '?';  // the bytes after it are then judged on their own
        else p += more;
    }
}

LLM42__PRINTF(3) static inline void llm42__log(llm42_log_fn *log, void *user, const char *format, ...) {
    if (!log) return;
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    llm42__scrub(line);
    (log)(user, line);  // <tgmath.h> has a macro of this name
}

// of: what has .log and .log_user
#define LLM42__LOG_TO(of, ...) llm42__log((of)->log, (of)->log_user, __VA_ARGS__)

// Integer fields of a desc, each with the range that it must lie in.
typedef struct llm42__field {
    const char *name;
    int64_t value, low, high;
    bool power;  // it must also be a power of two
} llm42__field;

static inline llm42_result llm42__check_fields(const char *desc, const llm42__field *field, size_t count,
                                               llm42_error *error) {
    for (size_t i = 0; i < count; i++) {
        if (field[i].value < field[i].low || field[i].value > field[i].high)
            LLM42__FAIL(INVALID, "%s.%s: %lld: must be from %lld to %lld", desc, field[i].name,
                        (long long)field[i].value, (long long)field[i].low, (long long)field[i].high);
        if (field[i].power && (field[i].value & (field[i].value - 1)))
            LLM42__FAIL(INVALID, "%s.%s: %lld: must be a power of two", desc, field[i].name, (long long)field[i].value);
    }
    return LLM42_OK;
}

// A sequence's rows stand together in a pass of a model with recurrent layers.
static inline llm42_result llm42__check_runs(const llm42_backend_desc *desc, const char *backend,
                                             const llm42_pass *pass, llm42_error *error) {
    for (int r = 0; r < pass->rows; r++) {
        const llm42_row *row = &pass->row[r];
        const llm42_seq *seq = &pass->seq[row->seq];
        const bool first = !r || row->seq != row[-1].seq;
        bool apart = false;  // rows of the same sequence stand before those of another one
        for (int earlier = 0; first && earlier < r; earlier++) apart |= pass->row[earlier].seq == row->seq;
        if (apart || row->seq >= LLM42__MAX(1, desc->max_running) ||
            (!first && row->position != row[-1].position + 1) || (first && row->position - seq->state > desc->behind) ||
            seq->state < 0 || seq->state_to < seq->state)
            LLM42__FAIL(INVALID,
                        "%s backend: row %d: sequence %d (of %d) at position %d, with a state of %d positions: its "
                        "rows must follow one another, at most %d positions after the state",
                        backend, r, row->seq, LLM42__MAX(1, desc->max_running), row->position, seq->state,
                        desc->behind);
        bool wild = first && (seq->restore < 0 || seq->restore > desc->snapshots || seq->saves < 0 || seq->saves > 2 ||
                              (seq->restore && row->position < seq->state));
        for (int i = 0; first && !wild && i < seq->saves; i++)
            wild = seq->save[i].snapshot < 0 || seq->save[i].snapshot >= desc->snapshots ||
                   seq->save[i].snapshot == seq->restore - 1 || (i && seq->save[0].snapshot == seq->save[1].snapshot) ||
                   seq->save[i].at > seq->state_to || seq->save[i].at <= (i ? seq->save[i - 1].at : seq->state);
        if (wild)
            LLM42__FAIL(INVALID,
                        "%s backend: row %d: sequence %d: restore, saves: must be of the %d snapshots, not the same "
                        "one, and saved on the way from state %d to %d",
                        backend, r, row->seq, desc->snapshots, seq->state, seq->state_to);
    }
    return LLM42_OK;
}

// >>memory -------------------------------------------------------------------------------------------------------
// Owns: allocation through LLM42_MALLOC, LLM42_REALLOC and LLM42_FREE, which arrays of stb_ds use too.
// Calls: nothing.
// Invariant: a block is aligned to 64 bytes. The pointer that is to be freed stands right before it.

#if defined(LLM42_MALLOC) != defined(LLM42_FREE) || defined(LLM42_MALLOC) != defined(LLM42_REALLOC)
#error "llm42.h: define all of LLM42_MALLOC, LLM42_REALLOC and LLM42_FREE, or none"
#endif
#ifndef LLM42_MALLOC
#define LLM42_MALLOC(size) malloc(size)
#define LLM42_REALLOC(pointer, size) realloc(pointer, size)
#define LLM42_FREE(pointer) free(pointer)
#endif

// NULL when memory is short or the size overflows.
static inline void *llm42__alloc(size_t count, size_t size) {
    const size_t extra = sizeof(void *) + 63;
    if (size && count > (SIZE_MAX - extra) / size) return NULL;
    void *block = LLM42_MALLOC(count * size + extra);
    if (!block) return NULL;
    void **p = (void **)(((uintptr_t)block + extra) & ~(uintptr_t)63);
    p[-1] = block;
    return p;
}
static inline void *llm42__alloc_zero(size_t count, size_t size) {
    void *p = llm42__alloc(count, size);
    if (p) memset(p, 0, count * size);
    return p;
}
static inline void llm42__free(void *p) {
    if (p) LLM42_FREE(((void **)p)[-1]);
}

// Blocks that are freed together. `missing`: memory was short for one of them, which is NULL.
typedef struct llm42__memory {
    void *block[32];
    int count;
    bool missing;
} llm42__memory;

static inline void *llm42__take(llm42__memory *b, size_t count, size_t size) {
    assert(b->count < (int)(sizeof b->block / sizeof *b->block));
    void *p = b->block[b->count++] = llm42__alloc(count, size);
    b->missing = b->missing || !p;
    return p;
}
static inline void llm42__free_all(llm42__memory *b) {
    while (b->count) llm42__free(b->block[--b->count]);
}

// >>numbers ------------------------------------------------------------------------------------------------------
// Owns: elementary functions made of IEEE operations, hashes and number formats. Their bits are the same on every CPU
// and GPU and with every compiler. exp and log are within 2 ulp.
// Calls: doubles.
// Invariant: each operation on floats is rounded to float by itself, and operations are fused only where fmaf says so.

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "llm42.h: weights are used as they lie in their files, which are little-endian: so must the machine be"
#endif
#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16
#error "llm42.h: this compiler keeps floats in wider registers: on 32-bit x86 compile with -msse2 -mfpmath=sse"
#endif
static_assert(sizeof 1.0 == sizeof(double), "llm42.h: compile without -fsingle-precision-constant: it changes bits");

LLM42__BOTH uint32_t llm42__bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
LLM42__BOTH float llm42__float(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

// exp(x) = 2^n exp(f), n the nearest integer to x/ln 2, |f| <= ln(2)/2. Below -87 the result is 0.
LLM42__BOTH float llm42__exp(float x) {
    float clamped = x < 88.0f ? x : 88.0f;
    clamped = clamped > -87.0f ? clamped : -87.0f;
    const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    float shifted = fmaf(clamped, 1.44269504f, magic), n = shifted - magic;
    float f = fmaf(n, -0.693145752f, clamped);
    f = fmaf(n, -1.42860677e-6f, f);
    float p = 1.98412698e-4f;  // 1/7!
    p = fmaf(p, f, 1.38888889e-3f);
    p = fmaf(p, f, 8.33333333e-3f);
    p = fmaf(p, f, 4.16666667e-2f);
    p = fmaf(p, f, 1.66666667e-1f);
    p = fmaf(p, f, 0.5f);
    p = fmaf(p, f, 1.0f);
    p = fmaf(p, f, 1.0f);
    // Masks instead of branches: loops over this function become vector instructions.
    const uint32_t y = llm42__bits(p) + ((llm42__bits(shifted) - llm42__bits(magic)) << 23);
    const uint32_t large = x < -87.0f ? 0 : ~0u, nan = x == x ? 0 : ~0u;
    return llm42__float((y & large & ~nan) | (llm42__bits(x) & nan));
}

// 2^x = 2^n 2^f, n the nearest integer to x, |f| <= 1/2; for x up to 128, within 2.1 ulp. Below -126.5 the result is
// 0, from 127.5 up it is infinite, and NaN stays NaN. Attention spends much of its time here: eleven operations.
LLM42__BOTH float llm42__exp2(float x) {
    const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
#ifdef __CUDA_ARCH__
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(-127.0f));  // the line below in one instruction
#else
    x = x < -127.0f ? -127.0f : x;
#endif
    float shifted = x + magic;
    float f = x - (shifted - magic);
    float p = 1.32647273e-3f;
    p = fmaf(p, f, 9.67151299e-3f);
    p = fmaf(p, f, 5.55073358e-2f);
    p = fmaf(p, f, 0.240222424f);
    p = fmaf(p, f, 0.693147004f);
    p = fmaf(p, f, 1.0f);
    return p * llm42__float((llm42__bits(shifted) << 23) + 0x3f800000u);
}

// 2^x with the bits of a Hopper GPU's instruction ex2.approx.ftz.f32, which an H200 gave for all 2^32 floats. The GPU
// works with integers. It cuts x toward zero to 23 binary places, and goes one unit lower if that is negative and no
// integer. Six bits of the fraction choose a row, the other seventeen are r, and the result's fraction is
// (c0 2^13 + 6114 + c1 r + c2 square) / 2^15, rounded down. `square` is r^2 / 2^19 without the products of two bits
// that are worth less than 2^19. Results below 2^-126 are 0, and NaN is 0x7fffffff.
LLM42__BOTH float llm42__ex2(float x) {
    static const int32_t c[3][64] = {
        {3,        365386,   734750,   1108133,  1485586,  1867145,  2252860,  2642777,  3036940,  3435393,  3838184,
         4245365,  4656977,  5073072,  5493699,  5918905,  6348741,  6783258,  7222505,  7666538,  8115404,  8569160,
         9027854,  9491545,  9960285,  10434129, 10913133, 11397354, 11886846, 12381669, 12881882, 13387539, 13898703,
         14415435, 14937793, 15465837, 15999633, 16539242, 17084727, 17636150, 18193579, 18757078, 19326714, 19902551,
         20484659, 21073106, 21667961, 22269293, 22877175, 23491674, 24112865, 24740822, 25375616, 26017322, 26666015,
         27321773, 27984672, 28654788, 29332202, 30016992, 30709240, 31409026, 32116431, 32831540},
        {22713, 22960, 23210, 23463, 23718, 23977, 24238, 24502, 24768, 25038, 25311, 25586, 25865,
         26147, 26431, 26719, 27010, 27304, 27602, 27902, 28206, 28513, 28824, 29138, 29455, 29776,
         30100, 30428, 30759, 31094, 31432, 31775, 32121, 32471, 32824, 33182, 33543, 33908, 34277,
         34651, 35028, 35409, 35795, 36185, 36579, 36977, 37380, 37787, 38198, 38614, 39035, 39460,
         39889, 40324, 40763, 41207, 41655, 42109, 42568, 43031, 43500, 43973, 44452, 44936},
        {494, 501, 506, 511, 518, 521, 527, 532, 541, 546, 551, 559, 564, 568, 577, 583, 589, 596, 600, 609, 615, 622,
         627, 633, 641, 647, 655, 661, 670, 677, 686, 691, 699, 705, 715, 721, 730, 739, 748, 753, 763, 773, 779, 787,
         796, 806, 813, 822, 833, 842, 849, 858, 870, 877, 887, 896, 909, 917, 925, 938, 946, 959, 969, 980}};
    const uint32_t u = llm42__bits(x), size = u & 0x7fffffffu, most = 0x43000000u;  // 128
    const float cut = llm42__float((size < most ? size : most) | (u & 0x80000000u));
    int32_t k = (int32_t)(cut * 8388608.0f);  // in units of 2^-23
    k -= (int32_t)((uint32_t)k >> 31) & ((k & 0x7fffff) + 0x7fffff) >> 23;
    const int32_t row = k >> 17 & 63, r = k & 0x1ffff, high = r >> 9, low = r & 0x1ff;
    int32_t square = high * high >> 1;
    for (int i = 1; i < 8; i++) square += -(high >> i & 1) & low >> (9 - i);
    // 2^15 (c0 / 4 + r) is added behind the division, so that 32 bits are enough.
    const int32_t rest = ((c[0][row] & 3) << 13) + 6114 + (c[1][row] - 32768) * r + c[2][row] * square;
    const uint32_t y = ((uint32_t)k & 0xff800000u) + 0x3f800000u + (uint32_t)((c[0][row] >> 2) + r + (rest >> 15));
    const int32_t small = (k + (126 << 23)) >> 31, nan = (int32_t)(0x7f800000u - size) >> 31;
    return llm42__float((y & (uint32_t)~small) | (uint32_t)(nan & 0x7fffffff));
}
LLM42__BOTH float llm42__silu(float x) { return x / (1.0f + llm42__ex2(x * -1.44269504f)); }
LLM42__BOTH float llm42__sigmoid(float x) { return 1.0f / (1.0f + llm42__ex2(x * -1.44269504f)); }

// log(x) = e ln 2 + log(m), m in [sqrt(1/2), sqrt(2)), log(m) = 2 atanh((m-1)/(m+1)). For normal x > 0.
LLM42__BOTH float llm42__log_f32(float x) {
    uint32_t u = llm42__bits(x);
    int32_t e = (int32_t)(u - 0x3f3504f3u) >> 23;
    float f = llm42__float(u - ((uint32_t)e << 23)) - 1.0f, s = f / (2.0f + f), z = s * s;
    float p = 2.0f / 11.0f;
    p = fmaf(p, z, 2.0f / 9.0f);
    p = fmaf(p, z, 2.0f / 7.0f);
    p = fmaf(p, z, 2.0f / 5.0f);
    p = fmaf(p, z, 2.0f / 3.0f);
    float tail = fmaf((float)e, 1.42860677e-6f, s * z * p), y = fmaf((float)e, 0.693145752f, fmaf(2.0f, s, tail));
    const uint32_t finite = x - x == 0 ? ~0u : 0;  // infinity and NaN come through, by a mask as in llm42__exp
    return llm42__float((llm42__bits(y) & finite) | (llm42__bits(x) & ~finite));
}

// Finaliser of splitmix64 (Steele, Lea and Flood 2014).
LLM42__BOTH uint64_t llm42__hash(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// Noise of element i of a synthetic matrix: close to normal, standard deviation 1.
LLM42__BOTH float llm42__synthetic_noise(uint64_t key, uint64_t i) {
    uint64_t h = llm42__hash(key ^ i * 0x9e3779b97f4a7c15u);
    int sum = (int)(h & 0xffff) + (int)(h >> 16 & 0xffff) + (int)(h >> 32 & 0xffff) + (int)(h >> 48);
    return (float)(sum - 131070) * (1.0f / 37837.0f);
}

// An exponentially distributed number of a token: -log(1 - v), with v from 64 bits of a hash of (seed, position,
// token). What decides whether an unlikely token is drawn are numbers near 0: v is at least 2^-65, has all bits of a
// float down to 2^-40, and what rounding 1 - v loses is added again. 1 - v is at least 2^-24.
LLM42__BOTH float llm42__exponential(uint64_t key, int token) {
    const uint64_t h = llm42__hash(key ^ (uint64_t)token * 0x9e3779b97f4a7c15u);
    const float low = fmaf((float)(uint32_t)h, 5.42101086e-20f, 2.71050543e-20f);          // 2^-64, 2^-65
    const float v = fmaf((float)(uint32_t)(h >> 32), 2.32830630e-10f, low), u = 1.0f - v;  // the float below 2^-32
    return (v - (1.0f - u)) - llm42__log_f32(u);
}

// A token's weight, in units of 2^-40. Weights are summed as integers, because these sums are the same in every order.
LLM42__BOTH uint64_t llm42__mass(float logit, float largest, float scale) {
    const float weight = llm42__exp((logit - largest) * scale);
    return weight > 0 ? (uint64_t)((double)weight * 1099511627776.0) : 0;
}

// An integer that sorts as the float does, with NaN below everything, and the float that has it.
LLM42__BOTH uint32_t llm42__sort_key(float x) {
    const uint32_t u = llm42__bits(x == 0.0f ? 0.0f : x);
    return x != x ? 0 : u & 0x80000000u ? ~u : u | 0x80000000u;
}
LLM42__BOTH float llm42__key_value(uint32_t key) { return llm42__float(key & 0x80000000u ? key & 0x7fffffffu : ~key); }

// What top-p and top-k keep: all tokens whose sort key is above `key`, and the first `ties` of those that have it.
typedef struct llm42__kept {
    uint32_t key;
    int ties;
} llm42__kept;

// The mass that top-p keeps of a total. top_p is below 1 by more than the rounding, so it is no more than the total.
LLM42__BOTH uint64_t llm42__share(float top_p, uint64_t total) {
    const uint64_t share = (uint64_t)ceil((double)top_p * (double)total);
    return share ? share : 1;
}

// Of the tokens with a key, top-p keeps the first ones that give the mass that is missing, of those that top-k keeps.
LLM42__BOTH llm42__kept llm42__keep(uint32_t key, uint64_t missing, uint64_t each, llm42__kept top_k, int vocab) {
    const uint64_t most = (uint64_t)(key == top_k.key ? top_k.ties : vocab),
                   need = each ? (missing - 1) / each + 1 : most;
    const llm42__kept kept = {key, (int)(need < most ? need : most)};
    return kept;
}

// Round to nearest even to bf16, kept as a float. A NaN stays a NaN.
LLM42__BOTH float llm42__round_bf16(float x) {
    uint32_t u = llm42__bits(x), rounded = (u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u;
    return llm42__float((u & 0x7fffffffu) > 0x7f800000u ? (u | 0x00400000u) & 0xffff0000u : rounded);
}
LLM42__BOTH uint16_t llm42__to_bf16(float x) { return (uint16_t)(llm42__bits(llm42__round_bf16(x)) >> 16); }
LLM42__BOTH float llm42__from_bf16(uint16_t h) { return llm42__float((uint32_t)h << 16); }

// fp16 to fp32, exact, subnormals and NaN included: the exponents' biases differ by 112.
LLM42__BOTH float llm42__from_fp16(uint16_t h) {
    const float size = llm42__float((uint32_t)(h & 0x7fffu) << 13) * 5.19229686e33f;  // 2^112
    const uint32_t special = (h & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0;
    return llm42__float(llm42__bits(size) | special | (uint32_t)(h & 0x8000u) << 16);
}

// e4m3 (OCP, 8 bits): a sign, four bits of exponent, three of the significand. The largest number is 448. There is no
// infinity, and 0x7f and 0xff are NaN. To fp32, exact. Masks instead of branches: loops become vector instructions.
LLM42__BOTH float llm42__from_e4m3(uint8_t byte) {
    const uint32_t size = byte & 0x7fu, small = size < 8 ? ~0u : 0, nan = size == 0x7f ? ~0u : 0;
    // A subnormal number is read as if it had a leading 1, which is 2^-6 too much.
    const float one_more = llm42__float((size << 20) + 0x3c000000u + (small & 0x00800000u));
    const float value = one_more - llm42__float(small & 0x3c800000u);
    return llm42__float(llm42__bits(value) | (nan & 0x7fc00000u) | (byte & 0x80u) << 24);
}

// To the nearest e4m3, ties to even, and to 448 if |x| is larger.
LLM42__BOTH uint8_t llm42__to_e4m3(float x) {
    const uint32_t bits = llm42__bits(x), sign = bits >> 24 & 0x80u, size = bits & 0x7fffffffu;
    const uint32_t normal = (size + 0x7ffffu + (size >> 20 & 1u)) >> 20, most = 0x7eu + (120u << 3);
    // Floats from 2^14 to 2^15 are 2^-9 apart, as subnormal numbers are, so that adding 2^14 rounds to one of them.
    const uint32_t small = llm42__bits(llm42__float(size < 0x3c800000u ? size : 0) + 16384.0f) - 0x46800000u;
    const uint32_t rounded = size < 0x3c800000u ? small : (normal < most ? normal : most) - (120u << 3);
    return (uint8_t)(sign | (size > 0x7f800000u ? 0x7fu : rounded));
}

// The scale of numbers of which `largest` is the largest magnitude. Stored is llm42__to_e4m3(number / scale).
LLM42__BOTH float llm42__e4m3_scale(float largest) {
    const float scale = largest / 448.0f;
    return scale < 1e-10f ? 1e-10f : scale;
}

// The side of a block of weights that share a scale, and the terms of a chain (see DETERMINISM).
enum { LLM42__BLOCK = 128 };
// The inputs that the convolution of a recurrent layer sees, and the positions that FAST passes take in at once.
enum { LLM42__TAPS = 4, LLM42__CHUNK = 64 };

LLM42__BOTH size_t llm42__dtype_size(llm42_dtype type) {
    return type == LLM42_DTYPE_FP32 ? 4 : type == LLM42_DTYPE_E4M3 ? 1 : 2;
}

// bf16, fp16 or fp32 to fp32, exact. `from` need not be aligned.
static inline void llm42__convert_f32(float *to, const void *from, llm42_dtype type, size_t count) {
    if (type == LLM42_DTYPE_FP32) memcpy(to, from, count * sizeof *to);
    for (size_t i = 0; type != LLM42_DTYPE_FP32 && i < count; i++) {
        uint16_t h;
        memcpy(&h, (const char *)from + 2 * i, sizeof h);
        to[i] = type == LLM42_DTYPE_BF16 ? llm42__from_bf16(h) : llm42__from_fp16(h);
    }
}

// Values of a head that are rotated, the first ones. d in the comments on rotation.
LLM42__INLINE int llm42__rotary(const llm42_config *c) { return c->rotary_dim ? c->rotary_dim : c->head_dim; }

// The frequency of pair i: theta^(-2i/d), scaled as the family says. Rounded to fp32, as HF does.
static inline float llm42__rope_frequency(const llm42_config *c, int i) {
    const double log_theta = llm42_log64(c->rope_theta), turn = 6.283185307179586, context = c->rope_original_context;
    const double low = c->rope_low_freq_factor, high = c->rope_high_freq_factor;
    const float frequency = (float)llm42_exp64(-(double)(2 * i) / llm42__rotary(c) * log_theta);
    double keep = 0;  // the share that is not divided by the factor
    if (c->rope == LLM42_ROPE_PLAIN) return frequency;
    if (c->rope == LLM42_ROPE_LLAMA3) {
        const double wave = turn / frequency;
        if (wave < context / high) return frequency;
        if (wave <= context / low) keep = (context / wave - low) / (high - low);
    } else if (c->rope == LLM42_ROPE_YARN) {  // pairs that turn `high` times in the context, and `low` times
        const double unit = llm42__rotary(c) / (2 * log_theta);
        const double first = fmax(floor(unit * llm42_log64(context / (high * turn))), 0);
        const double last = fmin(ceil(unit * llm42_log64(context / (low * turn))), llm42__rotary(c) - 1);
        keep = 1 - fmin(fmax((i - first) / fmax(last - first, 0.001), 0), 1);
    }
    return (float)((1 - keep) * frequency / c->rope_factor + keep * frequency);
}

// What scores of attention are multiplied by before 2^x.
static inline float llm42__scale_log2(const llm42_config *c) {
    const double log2_e = 1.4426950408889634;
    return (float)(c->attention_scale > 0 ? log2_e * (double)c->attention_scale : log2_e / sqrt((double)c->head_dim));
}

// Fills rope [max_context][d/2][2], of keys or of queries: cosine and sine of position x frequency in fp32, as HF does.
static inline void llm42__rope_table(const llm42_config *c, bool queries, float *rope, int max_context) {
    const int half = llm42__rotary(c) / 2;
    for (int i = 0; i < half; i++) {
        const float frequency = llm42__rope_frequency(c, i);
        for (int t = 0; t < max_context; t++) {
            double sine, cosine, scale = c->rope_scale > 0 ? c->rope_scale : 1;
            if (queries && c->query_beta > 0)
                scale *= 1 + c->query_beta * llm42_log64(1 + floor(t / c->rope_original_context));
            llm42_sincos((double)((float)t * frequency), &sine, &cosine);
            rope[((size_t)t * (size_t)half + (size_t)i) * 2] = (float)(cosine * scale);
            rope[((size_t)t * (size_t)half + (size_t)i) * 2 + 1] = (float)(sine * scale);
        }
    }
}

// >>files --------------------------------------------------------------------------------------------------------
// Owns: whole files, mapped or read, and the wall clock.
// Calls: names, memory.
// Invariant: a file is open as long as its data is not NULL. Only weights are mapped, as their files are large.

typedef struct llm42__file {
    const char *data;
    size_t size;
    bool mapped;
    const char *path;  // for messages: the caller's
} llm42__file;

static llm42_result llm42__file_take(llm42__file *file, const char *path, int fd, bool map, llm42_error *error) {
    struct stat st;
    if (fstat(fd, &st) != 0) LLM42__FAIL(IO, "%s: cannot stat: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) LLM42__FAIL(IO, "%s: not a regular file", path);
    if (st.st_size == 0) LLM42__FAIL(FORMAT, "%s: the file is empty", path);
    const size_t size = (size_t)st.st_size;
    char *data = map ? (char *)mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0) : (char *)llm42__alloc(size, 1);
    if (map && data == (char *)MAP_FAILED) LLM42__FAIL(IO, "%s: cannot map: %s", path, strerror(errno));
    if (!data) LLM42__FAIL(MEMORY, "%s: out of memory for %zu bytes", path, size);
    for (size_t at = 0; !map && at < size;) {
        ssize_t n = read(fd, data + at, size - at);
        if (n > 0) at += (size_t)n;
        if (n > 0 || (n < 0 && errno == EINTR)) continue;
        llm42__free(data);
        LLM42__FAIL(IO, "%s: cannot read: %s", path, n ? strerror(errno) : "it has become shorter meanwhile");
    }
    file->data = data, file->size = size, file->mapped = map, file->path = path;
    return LLM42_OK;
}

static inline llm42_result llm42__file_open(llm42__file *file, const char *path, bool map, llm42_error *error) {
    memset(file, 0, sizeof *file);
    int fd = open(path, O_RDONLY | O_NONBLOCK);  // does not wait at a FIFO, which is then refused
    if (fd < 0) LLM42__FAIL(IO, "%s: cannot open: %s", path, strerror(errno));
    llm42_result result = llm42__file_take(file, path, fd, map, error);
    close(fd);
    return result;
}
static inline void llm42__file_close(llm42__file *file) {
    void *data = (void *)(uintptr_t)file->data;
    if (data && file->mapped) munmap(data, file->size);
    else llm42__free(data);
    memset(file, 0, sizeof *file);
}

// Seconds from a fixed point, for backends that run in real time.
static inline double llm42__wall_now(void *state) {
    (void)state;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
static inline void llm42__wall_wait_until(void *state, double seconds) {
    for (double left; (left = seconds - llm42__wall_now(state)) > 0;) {
        const struct timespec t = {.tv_sec = (time_t)left, .tv_nsec = (long)((left - floor(left)) * 1e9)};
        nanosleep(&t, NULL);
    }
}
#endif  // LLM42_IMPLEMENTATION or LLM42_BASE
// ================================================================================================================
#if defined(LLM42_IMPLEMENTATION) && !defined(LLM42_IMPLEMENTED)
#define LLM42_IMPLEMENTED

#include <sched.h>
#include <stdatomic.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

#ifdef LLM42_NO_STB_DS_IMPLEMENTATION
#undef STB_DS_IMPLEMENTATION
#else
#define STB_DS_IMPLEMENTATION
#endif
#ifndef INCLUDE_STB_DS_H
#define STBDS_REALLOC(context, pointer, size) LLM42_REALLOC(pointer, size)
#define STBDS_FREE(context, pointer) LLM42_FREE(pointer)
#endif
#ifndef JSMN_H
#define JSMN_STATIC
#define JSMN_STRICT
#define JSMN_PARENT_LINKS
#endif
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wsign-compare"
#endif
#include "jsmn.h"
#include "stb_ds.h"
#undef STB_DS_IMPLEMENTATION  // another inclusion must not define it again
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

// >>names --------------------------------------------------------------------------------------------------------
// Owns: the words of results, events and schedules, the presets, and llm42_fail.
// Calls: results.
// Invariant: every value of these enums has a word.

llm42_result llm42_fail(llm42_error *error, llm42_result result, const char *format, ...) {
    if (!error) return result;
    va_list args;
    va_start(args, format);
    vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    llm42__scrub(error->text);
    error->result = result;
    return result;
}

static const char *llm42__result_word(llm42_result result, bool text) {
#define LLM42__RESULT_WORDS(name, value, text) [1 - (value)] = {#name, text},
    static const char *const word[][2] = {LLM42_RESULTS(LLM42__RESULT_WORDS)};
    const size_t i = (size_t)(1 - (int64_t)result);
    return i < sizeof word / sizeof *word ? word[i][text] : "unknown result";
}
const char *llm42_result_name(llm42_result result) { return llm42__result_word(result, false); }
const char *llm42_result_text(llm42_result result) { return llm42__result_word(result, true); }

const char *llm42_event_name(llm42_event_type type) {
#define LLM42__EVENT_NAME(name, text) text,
    static const char *const name[] = {"none", LLM42_EVENTS(LLM42__EVENT_NAME)};
    return (size_t)type < sizeof name / sizeof *name ? name[type] : name[0];
}

const char *llm42_schedule_name(llm42_schedule schedule) {
    static const char *const name[] = {"none", "fast", "fixed", "invariant"};
    _Static_assert(sizeof name / sizeof *name == LLM42_SCHEDULE_COUNT, "every schedule has a word");
    return schedule >= LLM42_SCHEDULE_FAST && schedule < LLM42_SCHEDULE_COUNT ? name[schedule] : name[0];
}

void llm42_preset_apply(llm42_engine_desc *desc) {
#define LLM42__PRESET(value, word, meaning, ...) [value] = {__VA_ARGS__},
    static const llm42_engine_desc presets[] = {LLM42_PRESETS(LLM42__PRESET)};
    if (!desc->preset) desc->preset = LLM42_PRESET_DVR;
    if ((size_t)desc->preset >= sizeof presets / sizeof *presets) return;  // llm42_engine_open refuses it
    for (int i = 0; i < 2; i++) {
        const llm42_engine_desc *from = &presets[i ? LLM42_PRESET_DVR : desc->preset];
#define LLM42__PRESET_POLICY(name, field, type, none, values) \
    if (!desc->field) desc->field = from->field;
        LLM42_POLICIES(LLM42__PRESET_POLICY)
        const int most = desc->policy.verifier == LLM42_VERIFIER_FIXED ? 32 : INT32_MAX;
        if (!desc->policy.window) desc->policy.window = from->policy.window;
        if (!desc->policy.group) desc->policy.group = LLM42__MIN(from->policy.group, most);
    }
}

llm42_result llm42_ranks_check(const char *desc, const llm42_config *c, int ranks, int leaves, llm42_error *error) {
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "numerics.leaves" : "tensor_parallel";
        const int n = i ? leaves : ranks;
        if (!n) continue;
        if (n != 1 && n != 2 && n != 4 && n != 8)
            LLM42__FAIL(INVALID, "%s.%s: %d: must be 1, 2, 4 or 8", desc, name, n);
        if (c->heads % n || c->ffn % n)
            LLM42__FAIL(INVALID, "%s.%s: %d: must divide the model's %d heads and feed-forward width %d", desc, name, n,
                        c->heads, c->ffn);
        if (c->recurrent_layers && (c->key_heads % n || c->value_heads % n || c->shared_ffn % n))
            LLM42__FAIL(INVALID,
                        "%s.%s: %d: must divide the model's %d key heads and %d value heads of recurrent layers, and "
                        "the shared expert's width %d",
                        desc, name, n, c->key_heads, c->value_heads, c->shared_ffn);
        const int q = c->heads * c->head_dim, keys = c->key_heads * c->key_dim, v = c->value_heads * c->value_dim;
        if (c->scaling && n > 1 && (q | c->ffn | c->shared_ffn | keys | v) / n % 128)
            LLM42__FAIL(INVALID,
                        "%s.%s: %d: products with FP8 weights are sums of chains of 128 terms, so each part of the "
                        "widths %d (heads) and %d (feed-forward), and of recurrent layers, must be a multiple of 128",
                        desc, name, n, q, c->ffn);
    }
    if (ranks && c->kv_heads % ranks && ranks % c->kv_heads)
        LLM42__FAIL(INVALID, "%s.tensor_parallel: %d: must divide the model's %d KV heads or be a multiple of them",
                    desc, ranks, c->kv_heads);
    return LLM42_OK;
}

// >>doubles ------------------------------------------------------------------------------------------------------
// Owns: the public functions of api-math but the sampler's. Those on doubles are simple and slow, as they run seldom.
// Calls: numbers; neither the locale nor the C library's mathematics.
// Invariant: an argument is reduced to the range in which its series is accurate.

uint64_t llm42_hash(uint64_t x) { return llm42__hash(x); }
double llm42_uniform(uint64_t hash) { return (double)(hash >> 11) * (1.0 / 9007199254740992.0); }

double llm42_log64(double x) {
    int e = 0;
    if (!(x > 0) || x > DBL_MAX) return x < 0 ? (double)NAN : x == 0 ? -(double)INFINITY : x;
    while (x >= 1.4142135623730951) x *= 0.5, e++;
    while (x < 0.70710678118654757) x *= 2.0, e--;
    double s = (x - 1.0) / (x + 1.0), z = s * s, p = 0.0;
    assert(!(s > 0.172 || s < -0.172));
    for (int k = 23; k >= 1; k -= 2) p = fma(p, z, 2.0 / k);
    return fma((double)e, 0.69314718055994531, s * p);
}

double llm42_exp64(double x) {
    if (!(x > -746) || x > 710) return x < 0 ? 0 : x > 0 ? (double)INFINITY : x;
    int n = (int)(x * 1.4426950408889634 + (x < 0 ? -0.5 : 0.5));
    double f = fma(-(double)n, 0.69314718055994531, x), p = 1.0;
    assert(!(f > 0.347 || f < -0.347));
    for (int k = 14; k >= 1; k--) p = fma(p, f / k, 1.0);
    for (; n > 0; n--) p *= 2.0;
    for (; n < 0; n++) p *= 0.5;
    return p;
}

// x = n pi/2 + r with pi/2 in two parts, then Taylor series on |r| <= pi/4.
void llm42_sincos(double x, double *sine, double *cosine) {
    if (!(x > -1e9 && x < 1e9)) {
        *sine = *cosine = (double)NAN;
        return;
    }
    const double magic = 6755399441055744.0;  // 1.5 * 2^52
    double shifted = fma(x, 0.63661977236758134, magic), n = shifted - magic, r = fma(n, -1.5707963267948966, x);
    r = fma(n, -6.123233995736766e-17, r);
    assert(!(r > 0.7854 || r < -0.7854));
    double z = r * r, s = 1.0, c = 1.0;
    for (int k = 17; k >= 3; k -= 2) s = fma(s, -z / (double)(k * (k - 1)), 1.0);
    for (int k = 18; k >= 2; k -= 2) c = fma(c, -z / (double)(k * (k - 1)), 1.0);
    s *= r;
    const int64_t quarter = (int64_t)n;
    const double a = quarter & 1 ? c : s, b = quarter & 1 ? s : c;
    *sine = quarter & 2 ? -a : a;
    *cosine = (quarter + 1) & 2 ? -b : b;
}

// strtod is of no use here: its decimal point depends on the locale.
bool llm42_number(const char *p, const char *end, double *value) {
    bool negative = p < end && *p == '-', point = false;
    int digits = 0, exponent = 0;
    double x = 0;
    for (p += negative; p < end && ((*p >= '0' && *p <= '9') || (*p == '.' && !point)); p++)
        if (*p == '.') point = true;
        else x = x * 10 + (*p - '0'), digits++, exponent -= point;
    if (!digits) return false;
    if (p < end && (*p == 'e' || *p == 'E')) {
        bool down = ++p < end && *p == '-';
        p += p < end && (*p == '-' || *p == '+');
        int power = 0, count = 0;
        for (; p < end && *p >= '0' && *p <= '9'; p++, count++) power = LLM42__MIN(power * 10 + (*p - '0'), 9999);
        if (!count) return false;
        exponent += down ? -power : power;
    }
    bool zero = x == 0;
    double scale = 1;  // a power of ten is exact up to 10^22, so usual numbers come out correctly rounded
    for (int k = LLM42__MIN(abs(exponent), 400); k > 0; k--) scale *= 10;
    x = exponent < 0 ? x / scale : x * scale;
    *value = negative ? -x : x;
    return p == end && x - x == 0 && (x != 0 || zero);
}

// >>json ---------------------------------------------------------------------------------------------------------
// Owns: reading values from JSON.
// Calls: nothing; jsmn.
// Invariant: functions check a token's type before they use it, and read none beyond the last: bad input is an error.

typedef struct llm42__json {
    const char *text;
    jsmntok_t *token;  // token[0] is the root; whoever has called llm42__json_parse frees it, also after an error
    int count;
    const char *path;  // for messages
    llm42_error *error;
} llm42__json;

// The two arguments of "%.*s" that show token i in a message.
#define LLM42__SHOW(json, i) \
    LLM42__MIN(120, (json)->token[i].end - (json)->token[i].start), (json)->text + (json)->token[i].start

LLM42__PRINTF(3)
static llm42_result llm42__json_fail(const llm42__json *json, llm42_result result, const char *format, ...) {
    char text[sizeof json->error->text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return llm42_fail(json->error, result, "%s: %s", json->path, text);
}

// The calling function refuses what it reads.
#define LLM42__MALFORMED(...) return llm42__json_fail(json, LLM42_FORMAT, __VA_ARGS__)
#define LLM42__NOT_SUPPORTED(...) return llm42__json_fail(json, LLM42_UNSUPPORTED, __VA_ARGS__)

// How deep objects and arrays are nested. jsmn takes quadratic time for deep nesting, and no model file has any.
static int llm42__json_depth(const char *text, size_t size) {
    int depth = 0, deepest = 0;
    bool string = false;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '"') string = !string;
        else if (string) i += text[i] == '\\';  // skips what it escapes
        else depth += (text[i] == '{' || text[i] == '[') - (text[i] == '}' || text[i] == ']');
        deepest = LLM42__MAX(deepest, depth);
    }
    return deepest;
}

static llm42_result llm42__json_parse(llm42__json *json, const char *path, const char *text, size_t size,
                                      llm42_error *error) {
    if (size > 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) text += 3, size -= 3;  // a byte-order mark
    *json = (llm42__json){.text = text, .path = path, .error = error};
    if (llm42__json_depth(text, size) > 100) LLM42__MALFORMED("malformed JSON: nested more than 100 deep");
    jsmn_parser parser;
    jsmn_init(&parser);
    json->count = size < INT32_MAX ? jsmn_parse(&parser, text, size, NULL, 0) : JSMN_ERROR_NOMEM;
    if (json->count > 0) {
        json->token = llm42__alloc((size_t)json->count, sizeof *json->token);
        if (!json->token) return llm42__json_fail(json, LLM42_MEMORY, "out of memory for %d JSON tokens", json->count);
        jsmn_init(&parser);
        json->count = jsmn_parse(&parser, text, size, json->token, (unsigned)json->count);
    }
    if (json->count > 0) return LLM42_OK;
    LLM42__MALFORMED("malformed JSON near byte %u", parser.pos);
}

// The token after everything inside token i.
static int llm42__json_skip(const llm42__json *json, int i) {
    assert(i >= 0 && i < json->count);
    const int end = json->token[i].end;
    do i++;
    while (i < json->count && json->token[i].start < end);
    return i;
}

// The key after `key` in an object; its value is the token after it. From the object itself: the first key. 0: none.
static int llm42__json_next(const llm42__json *json, int object, int key) {
    int i = key == object ? object + 1 : llm42__json_skip(json, key + 1);
    return i + 1 < json->count && json->token[i + 1].start < json->token[object].end ? i : 0;
}

static bool llm42__json_equal(const llm42__json *json, int i, const char *text, size_t length) {
    const jsmntok_t *t = &json->token[i];
    return (size_t)(t->end - t->start) == length && memcmp(json->text + t->start, text, length) == 0;
}

// False when there is no token i.
static bool llm42__json_is(const llm42__json *json, int i, const char *text) {
    return i >= 0 && llm42__json_equal(json, i, text, strlen(text));
}

static bool llm42__json_ends(const llm42__json *json, int i, const char *text) {
    const jsmntok_t *t = &json->token[i];
    const int length = (int)strlen(text);
    return t->end - t->start >= length && memcmp(json->text + t->end - length, text, (size_t)length) == 0;
}

// The value of a key in an object; -1 where there is none. Marks the key as read: its size in jsmn becomes 2, not 1.
static int llm42__json_get(const llm42__json *json, int object, const char *key) {
    if (object < 0 || json->token[object].type != JSMN_OBJECT) return -1;
    for (int i = object; (i = llm42__json_next(json, object, i)) > 0;)
        if (json->token[i].type == JSMN_STRING && llm42__json_is(json, i, key)) return json->token[i].size = 2, i + 1;
    return -1;
}
static bool llm42__json_was_read(const llm42__json *json, int key) { return json->token[key].size == 2; }

// Of the keys that were read, none may be there again, because it could mean either value.
static llm42_result llm42__json_unique(const llm42__json *json, int object) {
    for (int i = object, k; (k = i = llm42__json_next(json, object, i)) > 0;)
        while (llm42__json_was_read(json, i) && (k = llm42__json_next(json, object, k)) > 0)
            if (llm42__json_equal(json, k, json->text + json->token[i].start,
                                  (size_t)(json->token[i].end - json->token[i].start)))
                LLM42__MALFORMED("%.*s: the key is there twice", LLM42__SHOW(json, i));
    return LLM42_OK;
}

static bool llm42__json_null(const llm42__json *json, int i) {
    return i < 0 || (json->token[i].type == JSMN_PRIMITIVE && json->text[json->token[i].start] == 'n');
}

// False when token i is something else.
static bool llm42__json_number(const llm42__json *json, int i, double *value) {
    return i >= 0 && json->token[i].type == JSMN_PRIMITIVE &&
           llm42_number(json->text + json->token[i].start, json->text + json->token[i].end, value);
}

// A whole number from 0 to `most`. False when token i is something else.
static bool llm42__json_whole(const llm42__json *json, int i, double most, int64_t *value) {
    double x;
    if (!llm42__json_number(json, i, &x) || x < 0 || x > most || x != floor(x)) return false;
    *value = (int64_t)x;
    return true;
}

// Reads a number from low to high into *value. If the field is missing or null, *value stays as it is.
static llm42_result llm42__json_field(const llm42__json *json, int object, const char *key, double low, double high,
                                      double *value) {
    int i = llm42__json_get(json, object, key);
    if (llm42__json_null(json, i)) return LLM42_OK;
    double x;
    if (!llm42__json_number(json, i, &x) || x < low || x > high)
        LLM42__MALFORMED("%s: expected a number between %g and %g, found %.*s", key, low, high, LLM42__SHOW(json, i));
    *value = x;
    return LLM42_OK;
}
// The same of the root object, for a whole number.
static llm42_result llm42__json_int(const llm42__json *json, const char *key, int low, int high, int *value) {
    double x = *value;
    LLM42__TRY(llm42__json_field(json, 0, key, low, high, &x));
    if (x != floor(x)) LLM42__MALFORMED("%s: expected an integer, found %g", key, x);
    *value = (int)x;
    return LLM42_OK;
}
// The same for a size. If *value is 0 and the field is missing, that is an error.
static llm42_result llm42__json_size(const llm42__json *json, const char *key, int high, int *value) {
    LLM42__TRY(llm42__json_int(json, key, 1, high, value));
    if (!*value) LLM42__MALFORMED("%s: must be given and at least 1", key);
    return LLM42_OK;
}
// The same for true or false.
static llm42_result llm42__json_bool(const llm42__json *json, const char *key, bool *value) {
    int i = llm42__json_get(json, 0, key);
    if (llm42__json_null(json, i)) return LLM42_OK;
    *value = llm42__json_is(json, i, "true");
    if (json->token[i].type == JSMN_PRIMITIVE && (*value || llm42__json_is(json, i, "false"))) return LLM42_OK;
    const char *what = json->token[i].type == JSMN_STRING ? "the string " : "";
    LLM42__MALFORMED("%s: expected true or false, found %s%.*s", key, what, LLM42__SHOW(json, i));
}

// >>owner --------------------------------------------------------------------------------------------------------
// Owns: what a model owns: its files, its copies and, while it is being loaded, the list of its tensors.
// Calls: nothing; stb_ds.
// Invariant: files and copies live as long as the model.

// stb_ds checks no allocation, so LLM42__PUSH makes room before it, and is false when memory is short.
static bool llm42__make_room(void **array, size_t element) {
    size_t length = arrlenu((char *)*array), capacity = arrcap((char *)*array);
    if (length < capacity) return true;
    capacity = capacity ? 2 * capacity : 4;
    stbds_array_header *header = *array ? stbds_header(*array) : NULL;
    header = STBDS_REALLOC(NULL, header, sizeof *header + capacity * element);
    if (!header) return false;
    if (!*array) memset(header, 0, sizeof *header);
    header->capacity = capacity;
    *array = header + 1;
    return true;
}
#define LLM42__PUSH(array, value) \
    (llm42__make_room((void **)&(array), sizeof *(array)) ? ((void)arrput(array, value), true) : false)

typedef struct llm42__tensor {
    const char *name;  // [length], in the header of its file
    int length;
    llm42_dtype type;  // DEFAULT: a type that no model here uses
    int dims;
    int64_t shape[3];  // the first three dimensions
    const char *data;
    size_t size;       // bytes
    const char *path;  // of its file, for messages
    bool used;
} llm42__tensor;

typedef struct llm42__owner {
    llm42_model model;
    llm42__file *files;      // stb_ds array
    void **blocks;           // stb_ds array of allocations
    llm42__tensor *tensors;  // stb_ds array, only while loading; sorted by name when it is complete
    llm42_model_desc desc;   // only while loading
    // What the loader must know of config.json, and what the names of all tensors but the LM head's begin with.
    const struct llm42__family *family;
    bool qkv_bias, o_bias, ffn_bias;
    llm42_scaling scaling;      // of tensors in e4m3; NONE: config.json has no quantization_config
    bool one_scale, is_static;  // such a tensor has one scale; and its input has one, too, which the checkpoint gives
    const char *scale_ending;   // of the name of the tensor with the scales, behind that of the weights
    double logits_scaling;
    const char *prefix;
} llm42__owner;

void llm42_model_free(llm42_model *model) {
    if (!model) return;
    llm42__owner *owner = model->owner;
    for (int i = 0; i < arrlen(owner->files); i++) llm42__file_close(&owner->files[i]);
    for (int i = 0; i < arrlen(owner->blocks); i++) llm42__free(owner->blocks[i]);
    arrfree(owner->files);
    arrfree(owner->blocks);
    arrfree(owner->tensors);
    llm42__free(owner);
}

static void *llm42__model_block(llm42_model *model, size_t count, size_t size) {
    llm42__owner *owner = model->owner;
    void *block = llm42__alloc(count, size);
    if (!block || !LLM42__PUSH(owner->blocks, block)) return llm42__free(block), NULL;
    model->copied_bytes += count * size;
    return block;
}

static int llm42__tensor_by_name(const void *a, const void *b) {
    const llm42__tensor *x = a, *y = b;
    return x->length != y->length ? x->length - y->length : memcmp(x->name, y->name, (size_t)x->length);
}

static llm42__tensor *llm42__find_tensor(llm42_model *model, const char *name) {
    llm42__tensor *all = ((llm42__owner *)model->owner)->tensors, key = {.name = name, .length = (int)strlen(name)};
    return all ? bsearch(&key, all, arrlenu(all), sizeof key, llm42__tensor_by_name) : NULL;
}

static llm42_result llm42__model_layers(llm42_model *model, llm42_layer **layer, llm42_error *error) {
    size_t count = (size_t)model->config.layers;
    model->layer = *layer = llm42__model_block(model, count, sizeof **layer);
    if (!*layer) LLM42__FAIL(MEMORY, "%s: out of memory for %zu layers", model->name, count);
    memset(*layer, 0, count * sizeof **layer);
    return LLM42_OK;
}

// >>scales -------------------------------------------------------------------------------------------------------
// Owns: what config.json says of quantised weights, and the scales of tensors in e4m3.
// Calls: json, owner.
// Invariant: a scale that was loaded is finite and above 0, and does not depend on which rows share a pass.

// The reason for which a scale of activations is refused.
#define LLM42__SHARED_SCALE                                                                                          \
    "activations would have one scale for the whole tensor, which depends on the other requests of a batch: take a " \
    "checkpoint with scales for each token, for blocks of 128, or static ones"

static bool llm42__config_says(const llm42__json *json, int object, const char *key, const char *text) {
    return llm42__json_is(json, llm42__json_get(json, object, key), text);
}

// Runs when an object has been read. Refuses keys of it that nothing has read, and keys that are there twice. Those in
// `nothing` mean nothing here, nor does null, false or what is empty.
static llm42_result llm42__config_quantised_unread(const llm42__json *json, int object, const char *nothing) {
    char key[64];
    for (int i = object; (i = llm42__json_next(json, object, i)) > 0;) {
        snprintf(key, sizeof key, " %.*s ", LLM42__SHOW(json, i));
        if (strstr(nothing, key)) json->token[i].size = 2;  // as if it had been read
    }
    LLM42__TRY(llm42__json_unique(json, object));
    for (int i = object; (i = llm42__json_next(json, object, i)) > 0;) {
        const jsmntok_t *value = &json->token[i + 1];
        const bool word = value->type == JSMN_PRIMITIVE, text = value->type == JSMN_STRING;
        if (llm42__json_was_read(json, i)) continue;
        if (word ? strchr("nf", json->text[value->start]) != NULL : !(text ? value->end - value->start : value->size))
            continue;
        LLM42__NOT_SUPPORTED("quantization_config: %.*s: unknown, and may change what the model computes",
                             LLM42__SHOW(json, i));
    }
    return LLM42_OK;
}

// What a tensor in e4m3 will need. Which tensors are in e4m3 shows their type: lists of modules are not read.
static llm42_result llm42__config_scales(llm42__owner *owner, const llm42__json *json, int block, bool one_scale,
                                         bool is_static, const char *ending) {
    const bool blocks = !llm42__json_null(json, block);
    if (blocks && (json->token[block].type != JSMN_ARRAY || json->token[block].size != 2 ||
                   !llm42__json_is(json, block + 1, "128") || !llm42__json_is(json, block + 2, "128")))
        LLM42__NOT_SUPPORTED("quantization_config: blocks of %.*s: only [128, 128] is supported",
                             LLM42__SHOW(json, block));
    owner->scaling = blocks ? LLM42_SCALING_BLOCK : LLM42_SCALING_CHANNEL;
    owner->one_scale = one_scale, owner->is_static = is_static, owner->scale_ending = ending;
    return LLM42_OK;
}

// quant_method fp8: blocks of 128 x 128 weights and dynamic scales of activations, or static scales of whole tensors.
static llm42_result llm42__config_fp8(llm42__owner *owner, const llm42__json *json, int at) {
    const int block = llm42__json_get(json, at, "weight_block_size"), format = llm42__json_get(json, at, "fmt"),
              power = llm42__json_get(json, at, "scale_fmt");
    const bool blocks = !llm42__json_null(json, block),
               is_static = llm42__config_says(json, at, "activation_scheme", "static");
    if (!(llm42__json_null(json, format) || llm42__json_is(json, format, "e4m3")) ||
        !(llm42__json_null(json, power) || llm42__json_is(json, power, "float")))
        LLM42__NOT_SUPPORTED("quantization_config: fmt, scale_fmt: only e4m3 with scales in bf16 or fp32 is supported");
    if (is_static == blocks || (!is_static && !llm42__config_says(json, at, "activation_scheme", "dynamic")))
        LLM42__NOT_SUPPORTED("quantization_config: activation_scheme must be dynamic with weight_block_size, and "
                             "static without%s",
                             is_static || blocks ? "" : ": " LLM42__SHARED_SCALE);
    return llm42__config_scales(owner, json, block, !blocks, is_static, blocks ? "_scale_inv" : "_scale");
}

// Are weights or input_activations of compressed-tensors in 8 bits, with this strategy, dynamic or not?
static bool llm42__config_e4m3(const llm42__json *json, int args, const char *strategy, bool is_dynamic) {
    return llm42__config_says(json, args, "num_bits", "8") && llm42__config_says(json, args, "type", "float") &&
           llm42__config_says(json, args, "strategy", strategy) &&
           !llm42__config_says(json, args, "symmetric", "false") &&
           llm42__config_says(json, args, "dynamic", "true") == is_dynamic;
}

// compressed-tensors: one of config_groups.
static llm42_result llm42__config_group(llm42__owner *owner, const llm42__json *json, int group) {
    const int weights = llm42__json_get(json, group, "weights"), in = llm42__json_get(json, group, "input_activations");
    const bool block = llm42__config_e4m3(json, weights, "block", false),
               whole = llm42__config_e4m3(json, weights, "tensor", false),
               is_static = llm42__config_e4m3(json, in, "tensor", false);
    if (llm42__config_e4m3(json, in, "tensor", true))
        LLM42__NOT_SUPPORTED("quantization_config: strategy tensor, dynamic: " LLM42__SHARED_SCALE);
    if (block ? !llm42__config_e4m3(json, in, "group", true) || !llm42__config_says(json, in, "group_size", "128")
              : !(whole || llm42__config_e4m3(json, weights, "channel", false)) ||
                    !(is_static || llm42__config_e4m3(json, in, "token", true)))
        LLM42__NOT_SUPPORTED(
            "quantization_config: config_groups: weights must be symmetric floats of 8 bits by channel, tensor or "
            "block, and activations by token (dynamic), tensor (static) or, for blocks, group of 128 (dynamic)");
    static const char *const nothing = " block_structure group_size observer observer_kwargs scale_dtype zp_dtype ";
    const int blocks = block ? llm42__json_get(json, weights, "block_structure") : -1,
              format = llm42__json_get(json, group, "format");
    if (!llm42__json_null(json, format) && !llm42__json_is(json, format, "float-quantized"))
        LLM42__NOT_SUPPORTED("quantization_config: config_groups: format %.*s is not supported",
                             LLM42__SHOW(json, format));
    LLM42__TRY(llm42__config_quantised_unread(json, weights, nothing));
    LLM42__TRY(llm42__config_quantised_unread(json, in, nothing));
    LLM42__TRY(llm42__config_quantised_unread(json, group, " targets "));
    return llm42__config_scales(owner, json, blocks, whole, is_static, "_scale");
}

static llm42_result llm42__config_quantised(llm42__owner *owner, const llm42__json *json, int at) {
    static const char *const nothing =
        " version ignore ignored_layers modules_to_not_convert quantization_status global_compression_ratio "
        "is_checkpoint_fp8_serialized run_compressed ";
    if (json->token[at].type != JSMN_OBJECT) LLM42__MALFORMED("quantization_config: expected an object");
    const int method = llm42__json_get(json, at, "quant_method"), format = llm42__json_get(json, at, "format"),
              groups = llm42__json_get(json, at, "config_groups"), kv = llm42__json_get(json, at, "kv_cache_scheme");
    if (!llm42__json_null(json, kv) && !owner->scaling)  // once, although config.json is read as text_config, too
        LLM42__LOG_TO(&owner->desc, "%s: kv_cache_scheme is not used: the KV cache has the compute type", json->path);
    if (llm42__json_is(json, method, "fp8")) {
        LLM42__TRY(llm42__config_fp8(owner, json, at));
        return llm42__config_quantised_unread(json, at, nothing);
    }
    const bool compressed = llm42__json_is(json, method, "compressed-tensors") && format >= 0;
    if (!compressed || !llm42__json_is(json, format, "float-quantized")) {
        const int what = compressed ? format : method < 0 ? at : method;
        LLM42__NOT_SUPPORTED("quantization_config: the model is quantised as %.*s, which llm42 does not read: take "
                             "bf16 weights, or FP8 ones (fp8, or compressed-tensors as float-quantized)",
                             LLM42__SHOW(json, what));
    }
    LLM42__TRY(llm42__config_quantised_unread(json, at, nothing));
    const bool listed = groups >= 0 && json->token[groups].type == JSMN_OBJECT;
    const int first = listed ? llm42__json_next(json, groups, groups) : 0;
    if (first <= 0 || llm42__json_next(json, groups, first) > 0)
        LLM42__NOT_SUPPORTED("quantization_config: config_groups: only one group is supported");
    return llm42__config_group(owner, json, first + 1);
}

// Is this the shape of a tensor of scales, [experts, down, across]? Dimensions of 1 may be there or not.
static bool llm42__scales_fit(const llm42__tensor *t, const int64_t shape[3]) {
    int i = 0, j = 0;
    if (t->dims > 3 || (t->dims > 1 && t->shape[t->dims - 1] != shape[2])) return false;
    for (;;) {
        while (i < 3 && shape[i] == 1) i++;
        while (j < t->dims && t->shape[j] == 1) j++;
        if (i == 3 || j == t->dims) return i == 3 && j == t->dims;
        if (shape[i++] != t->shape[j++]) return false;
    }
}

// Reads `count` scales from number `first` on, of a tensor of this shape. If it has only one, that is repeated.
static llm42_result llm42__read_scales(llm42_model *model, const char *name, const int64_t shape[3], int64_t first,
                                       int count, const float **out, llm42_error *error) {
    llm42__tensor *t = llm42__find_tensor(model, name);
    if (!t) LLM42__FAIL(FORMAT, "%s: tensor %s is missing", model->name, name);
    if (t->type == LLM42_DTYPE_DEFAULT || t->type == LLM42_DTYPE_E4M3)
        LLM42__FAIL(UNSUPPORTED, "%s: %s: scales must be BF16, F16 or F32", t->path, name);
    const bool one = shape[0] * shape[1] * shape[2] == 1, stacked = shape[0] > 1;
    if (!llm42__scales_fit(t, shape))
        LLM42__FAIL(FORMAT, "%s: %s: wrong shape: expected [%.0lld%s%lld, %lld]", t->path, name,
                    stacked ? (long long)shape[0] : 0, stacked ? ", " : "", (long long)shape[1], (long long)shape[2]);
    float *scale = llm42__model_block(model, (size_t)count, sizeof *scale);
    if (!scale) LLM42__FAIL(MEMORY, "%s: %s: out of memory", t->path, name);
    const size_t at = one ? 0 : (size_t)first * llm42__dtype_size(t->type);
    assert(one || first + count <= shape[0] * shape[1] * shape[2]);
    llm42__convert_f32(scale, t->data + at, t->type, one ? 1 : (size_t)count);
    for (int i = 0; i < count; i++) {
        if (one) scale[i] = scale[0];
        if (!(scale[i] > 0) || scale[i] - scale[i] != 0)
            LLM42__FAIL(FORMAT, "%s: %s: scale %lld is %g: must be above 0 and finite", t->path, name,
                        (long long)first + i, (double)scale[i]);
    }
    t->used = true;
    *out = scale;
    return LLM42_OK;
}

// Gives m, which is rows `first` to first + m->n - 1 of the tensor w in e4m3, its scales.
static llm42_result llm42__load_scales(llm42_model *model, const char *name, const llm42__tensor *w, int first,
                                       llm42_matrix *m, llm42_error *error) {
    const llm42__owner *owner = model->owner;
    const int stem = (int)strlen(name) - (strstr(name, ".weight") ? 7 : 0);
    const int side = owner->scaling == LLM42_SCALING_BLOCK ? LLM42__BLOCK : 1, rows = (int)w->shape[w->dims - 2],
              within = first % rows, down = (rows + side - 1) / side, across = side > 1 ? (m->k + side - 1) / side : 1;
    const int64_t shape[3] = {w->dims == 3 ? w->shape[0] : 1, down, across}, one[3] = {1, 1, 1};
    char of[200];
    if (within % side)
        LLM42__FAIL(UNSUPPORTED,
                    "%s: %s: a part begins at row %d and would share scales with the part before it: widths of parts "
                    "(gate and up, or q, k and v) must be multiples of 128",
                    w->path, name, within);
    snprintf(of, sizeof of, "%s%s", name, owner->scale_ending);
    LLM42__TRY(llm42__read_scales(model, of, owner->one_scale ? one : shape,
                                  ((int64_t)(first / rows) * down + within / side) * across,
                                  (m->n + side - 1) / side * across, &m->scale, error));
    m->scaling = model->config.scaling = owner->scaling;
    if (!owner->is_static) return LLM42_OK;
    const float *input_scale = NULL;
    snprintf(of, sizeof of, "%.*s.input_scale", stem, name);
    LLM42__TRY(llm42__read_scales(model, of, one, 0, 1, &input_scale, error));
    m->input_scale = *input_scale;
    if (m->input_scale < 1e-27f || m->input_scale > 1e30f)  // so that a reciprocal can divide by it
        LLM42__FAIL(FORMAT, "%s: %s is %g: must be from 1e-27 to 1e30", w->path, of, (double)m->input_scale);
    return LLM42_OK;
}

// A tensor that no layer uses. Refuses what by its name changes the values of a matrix that a layer uses: an order of
// its columns, zero points, and scales of a matrix that has others or is not in e4m3.
static llm42_result llm42__check_unused(llm42_model *model, const llm42__tensor *t, llm42_error *error) {
    static const char *const endings[] = {"_g_idx", "_zero_point", "_scale", "_scale_inv"};
    char name[200];
    for (int i = 0; i < 4; i++) {
        const int stem = t->length - (int)strlen(endings[i]);
        if (stem < 1 || memcmp(t->name + stem, endings[i], (size_t)(t->length - stem)) != 0) continue;
        snprintf(name, sizeof name, "%.*s", stem, t->name);
        const llm42__tensor *of = llm42__find_tensor(model, name);
        if (of && of->used)
            LLM42__FAIL(UNSUPPORTED, "%s: %.*s: is not used, and may change the values of %s", t->path, t->length,
                        t->name, name);
    }
    return LLM42_OK;
}

// Projections that share an input are in e4m3 together and scale it in one way, or none of them is in e4m3.
static llm42_result llm42__check_alike(const llm42_model *model, const char *names, int layer, const llm42_matrix *a,
                                       const llm42_matrix *b, llm42_error *error) {
    const bool eight = a->type == LLM42_DTYPE_E4M3;
    if (eight == (b->type == LLM42_DTYPE_E4M3) && (!eight || a->input_scale == b->input_scale)) return LLM42_OK;
    LLM42__FAIL(UNSUPPORTED, "%s: layer %d: %s: either all are F8_E4M3, with the same input_scale, or none",
                model->name, layer, names);
}

// >>config -------------------------------------------------------------------------------------------------------
// Owns: reading config.json into llm42_config: the table of families, and what keys mean. Defaults are transformers'.
// Calls: json, scales.
// Invariant: a config that was read has positive sizes, KV heads divide heads, and no key with an effect was skipped.

// Which layers have a sliding window. NONE; ALL, if sliding_window is a number; LATE, those from max_window_layers on,
// or ASKED, all, if use_sliding_window is true.
enum { LLM42__NONE, LLM42__ALL, LLM42__LATE, LLM42__ASKED };

typedef struct llm42__family {
    const char *type;  // model_type of config.json
    llm42_arch arch;
    int windows;    // as above
    bool normed;    // queries and keys have norms
    bool biased;    // q, k and v have biases, unless attention_bias says otherwise
    bool bias_key;  // attention_bias is obeyed, and is also for o, unless attention_out_bias says otherwise
    bool mixture;
    bool recurrent;  // of some layers; then norms multiply by 1 + weight, and attention is gated
} llm42__family;

static const llm42__family llm42__families[] = {
    {"llama", LLM42_ARCH_LLAMA, LLM42__NONE, false, false, true, false, false},
    {"mistral", LLM42_ARCH_MISTRAL, LLM42__ALL, false, false, false, false, false},
    {"ministral", LLM42_ARCH_MISTRAL, LLM42__ALL, false, false, false, false, false},
    {"ministral3", LLM42_ARCH_MINISTRAL3, LLM42__ALL, false, false, false, false, false},
    {"mixtral", LLM42_ARCH_MIXTRAL, LLM42__ALL, false, false, false, true, false},
    {"qwen2", LLM42_ARCH_QWEN2, LLM42__LATE, false, true, false, false, false},
    {"qwen3", LLM42_ARCH_QWEN3, LLM42__LATE, true, false, true, false, false},
    {"qwen3_moe", LLM42_ARCH_QWEN3_MOE, LLM42__ASKED, true, false, true, true, false},
    {"phi3", LLM42_ARCH_PHI3, LLM42__ALL, false, false, false, false, false},
    {"seed_oss", LLM42_ARCH_SEED_OSS, LLM42__NONE, false, true, true, false, false},
    {"smollm3", LLM42_ARCH_SMOLLM3, LLM42__LATE, false, false, true, false, false},
    {"granite", LLM42_ARCH_GRANITE, LLM42__NONE, false, false, true, false, false},
    {"qwen3_next", LLM42_ARCH_QWEN3_NEXT, LLM42__NONE, true, false, true, true, true},
    {"qwen3_5_text", LLM42_ARCH_QWEN3_5, LLM42__NONE, true, false, true, false, true},
    {"qwen3_5_moe_text", LLM42_ARCH_QWEN3_5_MOE, LLM42__NONE, true, false, true, true, true},
};

// What a model's sizes, all of them positive, must fulfil together.
static llm42_result llm42__config_check(const llm42_config *c, const llm42__json *json) {
    const int most_used = LLM42__MIN(c->experts, 64);
    if (c->context < 2) LLM42__MALFORMED("max_position_embeddings: 1: a prompt and a new token need 2");
    if (c->heads % c->kv_heads)
        LLM42__MALFORMED("num_attention_heads %d is not a multiple of num_key_value_heads %d", c->heads, c->kv_heads);
    if (c->head_dim % 2 || c->head_dim > 1024)
        LLM42__MALFORMED("head_dim %d: must be even and at most 1024", c->head_dim);
    if (c->experts && (c->experts_used < 1 || c->experts_used > most_used))
        LLM42__MALFORMED("num_experts_per_tok %d: must be between 1 and %d", c->experts_used, most_used);
    if (c->key_heads && c->value_heads % c->key_heads)
        LLM42__MALFORMED("linear_num_value_heads %d is not a multiple of linear_num_key_heads %d", c->value_heads,
                         c->key_heads);
    if (c->key_dim % 2 || c->value_dim % 2)  // arithmetic sm90 sums squares by pairs
        LLM42__MALFORMED("linear_key_head_dim %d, linear_value_head_dim %d: must be even", c->key_dim, c->value_dim);
    return LLM42_OK;
}

// What kind of a checkpoint it is: only decoders in 16 or 32 bits that need no code of their own.
static llm42_result llm42__config_kind(llm42__owner *owner, const llm42__json *json) {
    int class = llm42__json_get(json, 0, "architectures"), code = llm42__json_get(json, 0, "auto_map");
    int quantised = llm42__json_get(json, 0, "quantization_config");
    bool causal = true;
    LLM42__TRY(llm42__json_bool(json, "is_causal", &causal));
    if (!causal) LLM42__NOT_SUPPORTED("is_causal: false is not supported: an encoder generates no text");
    if (!llm42__json_null(json, quantised)) LLM42__TRY(llm42__config_quantised(owner, json, quantised));
    if (class >= 0 && json->token[class].size == 1 && !llm42__json_ends(json, class + 1, "ForCausalLM") &&
        !llm42__json_ends(json, class + 1, "ForConditionalGeneration"))
        LLM42__NOT_SUPPORTED("architectures: %.*s: only ...ForCausalLM has an LM head", LLM42__SHOW(json, class + 1));
    code = llm42__json_get(json, code, "AutoModelForCausalLM");
    if (code >= 0 && !llm42__json_is(json, code, "modeling_phi3.Phi3ForCausalLM"))  // Phi's folders bring the usual one
        LLM42__NOT_SUPPORTED("auto_map: the folder brings code of its own, %.*s, which llm42 cannot run",
                             LLM42__SHOW(json, code));
    return LLM42_OK;
}

// Runs last. Reports the keys that nothing has read, and refuses those whose names suggest that they change the result.
// The keys that are listed here mean nothing to a forward pass.
static llm42_result llm42__config_unread(const llm42__owner *owner, const llm42__json *json) {
    static const char *const nothing =
        " dtype initializer_range max_length max_window_layers norm_topk_prob original_max_position_embeddings "
        "output_attentions output_hidden_states output_router_logits pad_token_id pretraining_tp router_aux_loss_coef "
        "router_jitter_noise torch_dtype transformers_version use_cache _name_or_path _attn_implementation ";
    static const char *const grave[] = {"rope",     "rot",     "attn",   "attention", "norm", "scal",
                                        "multipli", "softcap", "window", "alibi",     "clip", NULL};
    char key[64], others[200] = "";
    for (int i = 0; (i = llm42__json_next(json, 0, i)) > 0;) {
        const jsmntok_t *value = &json->token[i + 1];
        snprintf(key, sizeof key, " %.*s ", LLM42__SHOW(json, i));
        if (llm42__json_was_read(json, i) || strstr(nothing, key) || strstr(key, "drop")) continue;
        if (value->type == JSMN_PRIMITIVE && strchr("nf", json->text[value->start])) continue;  // null, false
        for (int g = 0; grave[g]; g++)
            if (strstr(key, grave[g]) && value->type != JSMN_STRING)
                LLM42__NOT_SUPPORTED("%.*s: %.*s: unknown, and may change what the model computes",
                                     LLM42__SHOW(json, i), LLM42__SHOW(json, i + 1));
        const size_t used = strlen(others);
        snprintf(others + used, sizeof others - used, "%s%.*s", used ? ", " : "", LLM42__SHOW(json, i));
    }
    if (others[0]) LLM42__LOG_TO(&owner->desc, "%s: not used: %s", json->path, others);
    return LLM42_OK;
}

// attention_factor of yarn, by which cosine and sine are multiplied.
static llm42_result llm42__config_yarn(llm42_config *c, const llm42__json *json, int scaling) {
    double mscale = 0, all = 0;
    c->rope_high_freq_factor = 32, c->rope_low_freq_factor = 1;
    LLM42__TRY(llm42__json_field(json, scaling, "beta_fast", 1e-6, 1e6, &c->rope_high_freq_factor));
    LLM42__TRY(llm42__json_field(json, scaling, "beta_slow", 1e-6, 1e6, &c->rope_low_freq_factor));
    LLM42__TRY(llm42__json_field(json, scaling, "mscale", 0, 1e6, &mscale));
    LLM42__TRY(llm42__json_field(json, scaling, "mscale_all_dim", 0, 1e6, &all));
    const double log_factor = 0.1 * llm42_log64(c->rope_factor);
    c->rope_scale = mscale > 0 && all > 0 ? (1 + mscale * log_factor) / (1 + all * log_factor) : 1 + log_factor;
    LLM42__TRY(llm42__json_field(json, scaling, "attention_factor", 1e-6, 1e6, &c->rope_scale));
    c->context = LLM42__MAX(c->context, (int)fmin(c->rope_factor * c->rope_original_context, 1 << 26));
    if (c->arch != LLM42_ARCH_MINISTRAL3) return LLM42_OK;
    return llm42__json_field(json, scaling, "llama_4_scaling_beta", 0, 1e6, &c->query_beta);
}

// The parameters of rope, which stand in rope_parameters or, in older files, in rope_scaling.
static llm42_result llm42__config_rope_scaling(llm42_config *c, const llm42__json *json, int scaling) {
    static const char *const kinds[] = {"default", "linear", "llama3", "yarn"};
    int type = llm42__json_get(json, scaling, "rope_type"), older = llm42__json_get(json, scaling, "type"), kind = 0;
    if (type < 0) type = older;
    while (type >= 0 && kind < 4 && !llm42__json_is(json, type, kinds[kind])) kind++;
    if (kind == 4)
        LLM42__NOT_SUPPORTED("rope_type: \"%.*s\" is not supported (known: default, linear, llama3, yarn; in dynamic "
                             "and longrope a token's result would depend on how long its text becomes)",
                             LLM42__SHOW(json, type));
    double *const context = &c->rope_original_context;
    LLM42__TRY(llm42__json_field(json, scaling, "rope_theta", 1.0, 1e12, &c->rope_theta));
    LLM42__TRY(llm42__json_field(json, scaling, "factor", 1.0, 1e6, &c->rope_factor));
    LLM42__TRY(llm42__json_field(json, scaling, "low_freq_factor", 1e-6, 1e6, &c->rope_low_freq_factor));
    LLM42__TRY(llm42__json_field(json, scaling, "high_freq_factor", 1e-6, 1e6, &c->rope_high_freq_factor));
    LLM42__TRY(llm42__json_field(json, scaling, "original_max_position_embeddings", 1.0, 1e9, context));
    if (kind == LLM42_ROPE_YARN && *context == 0) *context = c->context;  // max_position_embeddings
    if (kind == LLM42_ROPE_YARN) LLM42__TRY(llm42__config_yarn(c, json, scaling));
    c->rope = (llm42_rope)kind;
    const bool bands = *context > 0 && c->rope_low_freq_factor > 0 &&
                       c->rope_high_freq_factor > c->rope_low_freq_factor;
    if (!kind || (c->rope_factor > 0 && (bands || kind == LLM42_ROPE_LINEAR))) return LLM42_OK;
    LLM42__MALFORMED("rope_parameters: %s needs factor%s%s", kinds[kind],
                     kind == LLM42_ROPE_LLAMA3 ? ", low_freq_factor < high_freq_factor" : "",
                     kind == LLM42_ROPE_LINEAR ? "" : " and original_max_position_embeddings");
}

static llm42_result llm42__config_rope(llm42_config *c, const llm42__json *json) {
    int scaling = llm42__json_get(json, 0, "rope_parameters"), older = llm42__json_get(json, 0, "rope_scaling");
    if (!llm42__json_null(json, scaling) && !llm42__json_null(json, older))
        LLM42__MALFORMED("rope_parameters, rope_scaling: keep one of the two");
    if (llm42__json_null(json, scaling)) scaling = older;
    const bool parts = c->recurrent_layers > 0;
    double whole = parts ? 0.25 : 1.0;  // the share of a head that is rotated
    LLM42__TRY(llm42__json_field(json, 0, "rope_theta", 1.0, 1e12, &c->rope_theta));
    LLM42__TRY(llm42__json_field(json, 0, "partial_rotary_factor", 0.0, 1.0, &whole));
    const bool given = !llm42__json_null(json, scaling);
    if (given && json->token[scaling].type != JSMN_OBJECT) LLM42__MALFORMED("rope_parameters: expected an object");
    if (given) LLM42__TRY(llm42__json_field(json, scaling, "partial_rotary_factor", 0.0, 1.0, &whole));
    if (whole < 1 && !parts)
        LLM42__NOT_SUPPORTED("partial_rotary_factor: %g: only whole heads are rotated here", whole);
    c->rotary_dim = whole < 1 ? (int)(whole * c->head_dim) : 0;
    if (whole < 1 && (c->rotary_dim < 2 || c->rotary_dim % 2))
        LLM42__MALFORMED("partial_rotary_factor: %g: gives %d of %d values, expected an even number", whole,
                         c->rotary_dim, c->head_dim);
    if (!given) return LLM42_OK;
    if (parts) llm42__json_get(json, scaling, "mrope_section"), llm42__json_get(json, scaling, "mrope_interleaved");
    LLM42__TRY(llm42__config_rope_scaling(c, json, scaling));
    LLM42__TRY(llm42__json_unique(json, scaling));
    for (int i = scaling; (i = llm42__json_next(json, scaling, i)) > 0;)
        if (!llm42__json_was_read(json, i) && !llm42__json_null(json, i + 1) && !llm42__json_is(json, i, "finetuned"))
            LLM42__NOT_SUPPORTED("rope_parameters.%.*s: not supported", LLM42__SHOW(json, i));
    return LLM42_OK;
}

// eos_token_id is a number or a list of numbers. Of two files that have it, what the second says counts.
static llm42_result llm42__config_stop(llm42_config *c, const llm42__json *json) {
    int first = llm42__json_get(json, 0, "eos_token_id"), count = 1;
    if (llm42__json_null(json, first)) return LLM42_OK;
    c->stop_count = 0;
    if (json->token[first].type == JSMN_ARRAY) count = json->token[first++].size;
    if (count > LLM42_MAX_STOP) LLM42__NOT_SUPPORTED("eos_token_id: more than %d tokens", LLM42_MAX_STOP);
    for (int i = first; i < first + count; i++) {
        int64_t id;
        if (!llm42__json_whole(json, i, c->vocab - 1, &id))
            LLM42__MALFORMED("eos_token_id: expected ids from 0 to %d", c->vocab - 1);
        c->stop[c->stop_count++] = (int)id;
    }
    return LLM42_OK;
}

static llm42_result llm42__config_mixture(llm42_config *c, const llm42__json *json) {
    int only = llm42__json_get(json, 0, "mlp_only_layers"), step = 1;
    LLM42__TRY(llm42__json_int(json, "num_experts", 1, 4096, &c->experts));
    LLM42__TRY(llm42__json_int(json, "num_local_experts", 1, 4096, &c->experts));
    LLM42__TRY(llm42__json_int(json, "num_experts_per_tok", 1, 4096, &c->experts_used));
    LLM42__TRY(llm42__json_int(json, "moe_intermediate_size", 1, 1 << 20, &c->ffn));
    LLM42__TRY(llm42__json_int(json, "decoder_sparse_step", 1, 4096, &step));
    if (!c->experts) LLM42__MALFORMED("num_experts: missing");
    bool every = llm42__json_null(json, only) || (json->token[only].type == JSMN_ARRAY && !json->token[only].size);
    if (step != 1 || !every)
        LLM42__NOT_SUPPORTED(
            "decoder_sparse_step, mlp_only_layers: layers of both kinds in one model are not supported");
    if (c->recurrent_layers)
        LLM42__TRY(llm42__json_size(json, "shared_expert_intermediate_size", 1 << 20, &c->shared_ffn));
    c->experts_renorm = c->arch == LLM42_ARCH_MIXTRAL || c->recurrent_layers;
    return llm42__json_bool(json, "norm_topk_prob", &c->experts_renorm);
}

// Finds the family, and which biases its models have.
static llm42_result llm42__config_family(llm42__owner *owner, const llm42__json *json) {
    const llm42__family *f = llm42__families, *end = f + sizeof llm42__families / sizeof *f;
    int type = llm42__json_get(json, 0, "model_type"), act = llm42__json_get(json, 0, "hidden_act");
    if (type < 0 || json->token[type].type != JSMN_STRING) LLM42__MALFORMED("model_type: missing or not a string");
    while (f < end && !llm42__json_is(json, type, f->type)) f++;
    if (f == end) {
        char known[200] = "";
        for (f = llm42__families; f < end; f++) strcat(strcat(known, f == llm42__families ? "" : ", "), f->type);
        LLM42__NOT_SUPPORTED("model_type: unknown architecture \"%.*s\" (known: %s)", LLM42__SHOW(json, type), known);
    }
    owner->family = f;
    owner->model.config.arch = f->arch;
    if (act >= 0 && !llm42__json_is(json, act, "silu")) LLM42__NOT_SUPPORTED("hidden_act: only \"silu\" is supported");
    owner->qkv_bias = f->biased;
    LLM42__TRY(llm42__json_bool(json, "attention_bias", &owner->qkv_bias));
    owner->o_bias = f->bias_key && owner->qkv_bias;
    LLM42__TRY(llm42__json_bool(json, "attention_out_bias", &owner->o_bias));
    LLM42__TRY(llm42__json_bool(json, "mlp_bias", &owner->ffn_bias));
    if (f->arch == LLM42_ARCH_QWEN2) owner->qkv_bias = true;  // whatever its file says
    if (!f->bias_key && owner->qkv_bias != f->biased)
        LLM42__NOT_SUPPORTED("attention_bias: true is not supported for model_type %s", f->type);
    return LLM42_OK;
}

// Granite's multipliers; logits_scaling is for the loader. The residual stream is kept divided by residual_multiplier,
// so that outputs are added as they are. Norms give the same result: their epsilon is divided by its square.
static llm42_result llm42__config_granite(llm42_config *c, const llm42__json *json, double *logits_scaling) {
    double embedding = 1, residual = 1, attention = 1;
    LLM42__TRY(llm42__json_field(json, 0, "embedding_multiplier", 1e-6, 1e6, &embedding));
    LLM42__TRY(llm42__json_field(json, 0, "residual_multiplier", 1e-6, 1e6, &residual));
    LLM42__TRY(llm42__json_field(json, 0, "attention_multiplier", 1e-6, 1e6, &attention));
    LLM42__TRY(llm42__json_field(json, 0, "logits_scaling", 1e-6, 1e6, logits_scaling));
    c->embed_scale = (float)(embedding / residual);
    c->norm_eps = (float)(c->norm_eps / (residual * residual));
    c->attention_scale = (float)attention;
    return LLM42_OK;
}

// The recurrent layers: all but every fourth (full_attention_interval), or as layer_types says (llm42__config_windows).
static llm42_result llm42__config_recurrent(llm42_config *c, const llm42__json *json) {
    int taps = 0;
    bool gated = true;
    LLM42__TRY(llm42__json_size(json, "linear_num_key_heads", 4096, &c->key_heads));
    LLM42__TRY(llm42__json_size(json, "linear_num_value_heads", 4096, &c->value_heads));
    LLM42__TRY(llm42__json_size(json, "linear_key_head_dim", 256, &c->key_dim));
    LLM42__TRY(llm42__json_size(json, "linear_value_head_dim", 256, &c->value_dim));
    LLM42__TRY(llm42__json_size(json, "linear_conv_kernel_dim", 4096, &taps));
    if (taps != LLM42__TAPS) LLM42__NOT_SUPPORTED("linear_conv_kernel_dim: %d: only %d", taps, LLM42__TAPS);
    LLM42__TRY(llm42__json_bool(json, "attn_output_gate", &gated));
    if (!gated) LLM42__NOT_SUPPORTED("attn_output_gate: false: only attention with gates is supported");
    llm42__json_get(json, 0, "mtp_num_hidden_layers");
    c->recurrent_layers = c->gated = true;  // how many they are llm42__config_windows counts
    return LLM42_OK;
}

static llm42_result llm42__config_read(llm42__owner *owner, const llm42__json *json) {
    llm42_config *c = &owner->model.config;
    *c = (llm42_config){.bos = -1, .norm_eps = 1e-6f};
    LLM42__TRY(llm42__config_family(owner, json));
    LLM42__TRY(llm42__json_size(json, "vocab_size", 1 << 24, &c->vocab));
    LLM42__TRY(llm42__json_size(json, "hidden_size", 1 << 20, &c->dim));
    LLM42__TRY(llm42__json_size(json, "num_hidden_layers", 4096, &c->layers));
    LLM42__TRY(llm42__json_size(json, "num_attention_heads", 4096, &c->heads));
    c->kv_heads = c->heads;
    LLM42__TRY(llm42__json_size(json, "num_key_value_heads", 4096, &c->kv_heads));
    c->head_dim = c->dim / c->heads;
    LLM42__TRY(llm42__json_size(json, "head_dim", 1024, &c->head_dim));
    LLM42__TRY(llm42__json_size(json, "max_position_embeddings", 1 << 26, &c->context));
    double eps = c->norm_eps;
    LLM42__TRY(llm42__json_field(json, 0, "rms_norm_eps", 0.0, 1.0, &eps));
    if (eps > 0 && eps < FLT_MIN)
        LLM42__MALFORMED("rms_norm_eps: %g: in fp32 this is 0: must be 0, or at least %g", eps, (double)FLT_MIN);
    c->norm_eps = (float)eps;
    if (owner->family->recurrent) LLM42__TRY(llm42__config_recurrent(c, json));
    if (owner->family->mixture) LLM42__TRY(llm42__config_mixture(c, json));
    if (!c->ffn) LLM42__TRY(llm42__json_size(json, "intermediate_size", 1 << 20, &c->ffn));
    LLM42__TRY(llm42__json_bool(json, "tie_word_embeddings", &c->tied));
    LLM42__TRY(llm42__json_int(json, "bos_token_id", 0, c->vocab - 1, &c->bos));
    LLM42__TRY(llm42__config_rope(c, json));
    const bool complete = c->rope_theta > 0 && llm42__json_get(json, 0, "rms_norm_eps") >= 0;
    if (c->arch > LLM42_ARCH_QWEN3_MOE && !complete)  // their defaults differ from those of the families before them
        LLM42__MALFORMED("rope_theta, rms_norm_eps: model_type %s needs both", owner->family->type);
    if (c->rope_theta == 0) c->rope_theta = 10000.0;
    owner->logits_scaling = 1;
    if (c->arch == LLM42_ARCH_GRANITE) LLM42__TRY(llm42__config_granite(c, json, &owner->logits_scaling));
    LLM42__TRY(llm42__config_check(c, json));
    return llm42__config_stop(c, json);
}

// Which layers have a sliding window: as layer_types says, or else as the family has it. transformers ignores
// layer_types for mixtral, ministral3, phi3 and qwen3_moe: they are refused if only some layers have the window.
static llm42_result llm42__config_windows(llm42__owner *owner, const llm42__json *json, llm42_layer *layer) {
    llm42_config *c = &owner->model.config;
    const int windows = owner->family->windows, types = llm42__json_get(json, 0, "layer_types");
    const bool given = llm42__json_get(json, 0, "sliding_window") >= 0, listed = !llm42__json_null(json, types);
    bool wanted = windows == LLM42__ALL;
    int first = windows == LLM42__LATE ? 28 : 0, sliding = 0;  // transformers' defaults
    if (windows == LLM42__LATE || windows == LLM42__ASKED) {
        LLM42__TRY(llm42__json_bool(json, "use_sliding_window", &wanted));
        LLM42__TRY(llm42__json_int(json, "max_window_layers", 0, 4096, &first));
    }
    if (wanted && !given && (windows != LLM42__ALL || c->arch == LLM42_ARCH_MISTRAL)) c->sliding_window = 4096;
    if (wanted) LLM42__TRY(llm42__json_int(json, "sliding_window", 1, 1 << 26, &c->sliding_window));
    if (listed && (json->token[types].type != JSMN_ARRAY || json->token[types].size != c->layers))
        LLM42__MALFORMED("layer_types: expected a list of num_hidden_layers = %d strings", c->layers);
    int interval = 4, recurrent = 0;
    if (c->recurrent_layers) LLM42__TRY(llm42__json_int(json, "full_attention_interval", 1, 4096, &interval));
    for (int l = 0, i = types + 1; l < c->layers; l++, sliding += layer[l - 1].sliding) {
        layer[l].sliding = c->sliding_window > 0 && l >= first;
        layer[l].recurrent = c->recurrent_layers &&
                             (listed ? llm42__json_is(json, i, "linear_attention") : (l + 1) % interval != 0);
        layer[l].cache = layer[l].recurrent ? recurrent++ : l - recurrent;
        if (!listed) continue;
        layer[l].sliding = !c->recurrent_layers && llm42__json_is(json, i, "sliding_attention");
        if (!layer[l].sliding && !layer[l].recurrent && !llm42__json_is(json, i, "full_attention"))
            LLM42__NOT_SUPPORTED("layer_types[%d]: \"%.*s\" is not supported (known: full_attention, %s)", l,
                                 LLM42__SHOW(json, i), c->recurrent_layers ? "linear_attention" : "sliding_attention");
        if (layer[l].sliding && !c->sliding_window)
            LLM42__MALFORMED("layer_types[%d]: sliding_attention needs sliding_window%s", l,
                             windows == LLM42__ALL ? "" : " and use_sliding_window: true, where a model has it");
        i = llm42__json_skip(json, i);
    }
    if (c->arch == LLM42_ARCH_SMOLLM3 && wanted && !listed)
        LLM42__NOT_SUPPORTED("use_sliding_window: true: model_type smollm3 then needs layer_types");
    const bool one_kind = windows == LLM42__ASKED || (windows == LLM42__ALL && c->arch != LLM42_ARCH_MISTRAL);
    if (one_kind && c->sliding_window && sliding < c->layers)
        LLM42__NOT_SUPPORTED(
            "max_window_layers, layer_types: a window in some layers only is not supported for this model_type");
    if (!sliding) c->sliding_window = 0;
    if (c->recurrent_layers && (!recurrent || recurrent == c->layers))
        LLM42__NOT_SUPPORTED("layer_types, full_attention_interval: model_type %s needs layers of both kinds",
                             owner->family->type);
    c->recurrent_layers = recurrent;
    return LLM42_OK;
}

// SmolLM3's layers without rope: those whose entry of no_rope_layers is 0, or else every fourth.
static llm42_result llm42__config_rotations(const llm42_config *c, const llm42__json *json, llm42_layer *layer) {
    if (c->arch != LLM42_ARCH_SMOLLM3) return LLM42_OK;
    int list = llm42__json_get(json, 0, "no_rope_layers"), interval = 4;
    LLM42__TRY(llm42__json_int(json, "no_rope_layer_interval", 1, 4096, &interval));
    const bool given = !llm42__json_null(json, list);
    if (given && (json->token[list].type != JSMN_ARRAY || json->token[list].size != c->layers))
        LLM42__MALFORMED("no_rope_layers: expected a list of num_hidden_layers = %d numbers", c->layers);
    for (int l = 0, i = list + 1; l < c->layers; l++, i += given) {
        int64_t rotated = (l + 1) % interval != 0;
        if (given && !llm42__json_whole(json, i, 1, &rotated))
            LLM42__MALFORMED("no_rope_layers[%d]: expected 0 or 1", l);
        layer[l].unrotated = !rotated;
    }
    return LLM42_OK;
}

// >>safetensors --------------------------------------------------------------------------------------------------
// Owns: HF folders. Matrices are used in place, in their file; misaligned ones, fp16 and vectors become fp32 copies.
// Calls: json, owner.
// Invariant: a tensor's bytes lie inside its file.

// The path of a file in a folder. It lives as long as the model. NULL when memory is short.
static const char *llm42__model_path(llm42_model *model, const char *name, int length) {
    const char *folder = ((const llm42__owner *)model->owner)->desc.path;
    size_t n = strlen(folder), size = n + (size_t)length + 2;
    char *path = llm42__model_block(model, size, 1);
    if (path) snprintf(path, size, "%s%s%.*s", folder, folder[n - 1] == '/' ? "" : "/", length, name);
    return path;
}

// One entry of a safetensors header: {"dtype": .., "shape": [..], "data_offsets": [begin, end]}.
static llm42_result llm42__safetensors_entry(const llm42__json *json, int name, const char *data, size_t data_size,
                                             llm42__tensor *tensor) {
    const jsmntok_t *token = json->token;
    int dtype = llm42__json_get(json, name + 1, "dtype"), shape = llm42__json_get(json, name + 1, "shape");
    int offsets = llm42__json_get(json, name + 1, "data_offsets");
    if (dtype < 0 || shape < 0 || offsets < 0 || token[dtype].type != JSMN_STRING || token[shape].type != JSMN_ARRAY ||
        token[offsets].type != JSMN_ARRAY || token[offsets].size != 2)
        LLM42__MALFORMED("%.*s: needs dtype, shape and two data_offsets", LLM42__SHOW(json, name));
    *tensor = (llm42__tensor){.name = json->text + token[name].start, .dims = token[shape].size, .path = json->path};
    tensor->length = token[name].end - token[name].start;
    if (llm42__json_is(json, dtype, "BF16")) tensor->type = LLM42_DTYPE_BF16;
    if (llm42__json_is(json, dtype, "F16")) tensor->type = LLM42_DTYPE_FP16;
    if (llm42__json_is(json, dtype, "F32")) tensor->type = LLM42_DTYPE_FP32;
    if (llm42__json_is(json, dtype, "F8_E4M3")) tensor->type = LLM42_DTYPE_E4M3;
    int64_t begin, end, n;
    if (!llm42__json_whole(json, offsets + 1, (double)data_size, &begin) ||
        !llm42__json_whole(json, offsets + 2, (double)data_size, &end) || end < begin)
        LLM42__MALFORMED("%.*s: data_offsets lie outside the file: is it incomplete?", LLM42__SHOW(json, name));
    double elements = 1;
    for (int i = 0; i < tensor->dims; i++) {
        if (!llm42__json_whole(json, shape + 1 + i, 1e15, &n))
            LLM42__MALFORMED("%.*s: shape: expected sizes", LLM42__SHOW(json, name));
        if (i < 3) tensor->shape[i] = n;
        elements *= (double)n;
    }
    if (tensor->type && elements * (double)llm42__dtype_size(tensor->type) != (double)(end - begin))
        LLM42__MALFORMED("%.*s: shape and data_offsets disagree about the size", LLM42__SHOW(json, name));
    tensor->data = data + begin;
    tensor->size = (size_t)(end - begin);
    return LLM42_OK;
}

static llm42_result llm42__safetensors_header(llm42__owner *owner, const llm42__json *json, const char *data,
                                              size_t data_size) {
    if (json->token[0].type != JSMN_OBJECT || llm42__json_skip(json, 0) != json->count)
        LLM42__MALFORMED("the header is not one JSON object");
    for (int i = 0; (i = llm42__json_next(json, 0, i)) > 0;) {
        if (llm42__json_is(json, i, "__metadata__")) continue;
        if (json->token[i].type != JSMN_STRING || json->token[i + 1].type != JSMN_OBJECT)
            LLM42__MALFORMED("the header maps names to something other than objects");
        llm42__tensor tensor;
        LLM42__TRY(llm42__safetensors_entry(json, i, data, data_size, &tensor));
        if (!LLM42__PUSH(owner->tensors, tensor)) return llm42__json_fail(json, LLM42_MEMORY, "out of memory");
    }
    return LLM42_OK;
}

// Opens a safetensors file. It consists of the header's length (8 bytes), the header (JSON) and the data. `path` must
// live as long as the model is being loaded; NULL: no memory for it.
static llm42_result llm42__safetensors_open(llm42_model *model, const char *path, llm42_error *error) {
    llm42__owner *owner = model->owner;
    llm42__file file = {.data = NULL};
    if (!path) LLM42__FAIL(MEMORY, "%s: out of memory for a path", model->name);
    if (!LLM42__PUSH(owner->files, file)) LLM42__FAIL(MEMORY, "%s: out of memory", path);
    LLM42__TRY(llm42__file_open(&file, path, !owner->desc.no_mmap, error));
    arrlast(owner->files) = file;
    uint64_t header = 0;
    memcpy(&header, file.data, (size_t)LLM42__MIN(file.size, sizeof header));
    if (file.size < 8 || header > file.size - 8 || header > 100000000)
        LLM42__FAIL(FORMAT, "%s: truncated, or no safetensors file (a git-lfs pointer?): fetch it again", path);
    const char *data = file.data + 8 + header;
    llm42__json json;
    llm42_result result = llm42__json_parse(&json, path, file.data + 8, (size_t)header, error);
    if (result == LLM42_OK) result = llm42__safetensors_header(owner, &json, data, file.size - 8 - (size_t)header);
    llm42__free(json.token);
    return result;
}

// Opens the files that an index's weight_map names, each once.
static llm42_result llm42__safetensors_index(llm42_model *model, const llm42__json *json) {
    const llm42__owner *owner = model->owner;
    int map = llm42__json_get(json, 0, "weight_map");
    if (map < 0 || json->token[map].type != JSMN_OBJECT) LLM42__MALFORMED("weight_map: missing or not an object");
    for (int i = map; (i = llm42__json_next(json, map, i)) > 0;) {
        const jsmntok_t *t = &json->token[i + 1];
        const char *name = json->text + t->start;
        int length = t->end - t->start, f = 0;
        if (t->type != JSMN_STRING || memchr(name, '/', (size_t)length))
            LLM42__MALFORMED("weight_map: expected names of files in the same folder");
        while (f < arrlen(owner->files) && !llm42__json_is(json, i + 1, strrchr(owner->files[f].path, '/') + 1)) f++;
        if (f < arrlen(owner->files)) continue;
        LLM42__TRY(llm42__safetensors_open(model, llm42__model_path(model, name, length), json->error));
    }
    return LLM42_OK;
}

static int llm42__tensor_by_place(const void *a, const void *b) {
    const llm42__tensor *x = a, *y = b;
    return ((uintptr_t)x->data > (uintptr_t)y->data) - ((uintptr_t)x->data < (uintptr_t)y->data);
}

// Sorts the tensors by name. No two have the same name or share bytes.
static llm42_result llm42__tensors_sort(llm42__tensor *t, size_t count, llm42_error *error) {
    const llm42__tensor *last = NULL;  // of those in place order that have bytes
    if (count) qsort(t, count, sizeof *t, llm42__tensor_by_place);
    for (size_t i = 0; i < count; i++) {
        if (!t[i].size) continue;
        if (last && t[i].data < last->data + last->size)
            LLM42__FAIL(FORMAT, "%s: tensors %.*s and %.*s overlap", t[i].path, LLM42__MIN(120, last->length),
                        last->name, LLM42__MIN(120, t[i].length), t[i].name);
        last = &t[i];
    }
    if (count) qsort(t, count, sizeof *t, llm42__tensor_by_name);
    for (size_t i = 1; i < count; i++)
        if (llm42__tensor_by_name(&t[i], &t[i - 1]) == 0)
            LLM42__FAIL(FORMAT, "%s: %.*s: the tensor appears twice", t[i].path, t[i].length, t[i].name);
    return LLM42_OK;
}

// Has a JSON file of the folder read by `read`. If there is none, the folder lacks what `lacks` names; NULL: nothing.
static llm42_result llm42__read_json(llm42_model *model, const char *name, const char *lacks,
                                     llm42_result (*read)(llm42_model *, const llm42__json *), llm42_error *error) {
    llm42__file file;
    llm42__json json;
    const char *path = llm42__model_path(model, name, (int)strlen(name));
    if (!path) LLM42__FAIL(MEMORY, "%s: out of memory for a path", model->name);
    const bool missing = access(path, F_OK) && errno == ENOENT;
    if (missing && !lacks) return LLM42_OK;
    if (missing)
        LLM42__FAIL(IO,
                    "%s: no %s: weights in other files (GGUF, consolidated.safetensors, pytorch_model.bin, an adapter) "
                    "must be converted, for instance by save_pretrained of transformers",
                    model->name, lacks);
    LLM42__TRY(llm42__file_open(&file, path, false, error));
    llm42_result result = llm42__json_parse(&json, path, file.data, file.size, error);
    if (result == LLM42_OK) result = read(model, &json);
    llm42__free(json.token);
    llm42__file_close(&file);
    return result;
}

static llm42_result llm42__safetensors_folder(llm42_model *model, llm42_error *error) {
    static const char single[] = "model.safetensors";
    const char *path = llm42__model_path(model, single, sizeof single - 1);
    if (!path || access(path, F_OK) == 0) return llm42__safetensors_open(model, path, error);
    return llm42__read_json(model, "model.safetensors.index.json", single, llm42__safetensors_index, error);
}

// >>layers -------------------------------------------------------------------------------------------------------
// Owns: which tensors a model has, by their names, and how weights are taken from them.
// Calls: json, owner, scales, config, safetensors.
// Invariant: a tensor has the shape that config.json asks for, or the folder is refused.

// What a layer wants of a tensor: a matrix [n, k], or a vector [n] if k is 0. It is rows `first` to first + n - 1 of a
// tensor of `rows` rows, in which several matrices stand one after the other, or the whole tensor if rows is 0.
typedef struct llm42__wanted {
    int n, k, first, rows;
    llm42_matrix *matrix;  // where it goes; or, as a copy in fp32,
    const float **vector;
} llm42__wanted;

// eight_bits: it may be in e4m3.
static llm42_result llm42__load_tensor(llm42_model *model, const char *name, const llm42__wanted *w, bool eight_bits,
                                       llm42_error *error) {
    const llm42__owner *owner = model->owner;
    llm42__tensor *t = llm42__find_tensor(model, name);
    if (!t) LLM42__FAIL(FORMAT, "%s: tensor %s is missing", model->name, name);
    if (t->type == LLM42_DTYPE_DEFAULT)
        LLM42__FAIL(UNSUPPORTED, "%s: %s: dtype must be BF16, F16, F32 or, in FP8 models, F8_E4M3", t->path, name);
    if (t->type == LLM42_DTYPE_E4M3 && !eight_bits)
        LLM42__FAIL(UNSUPPORTED,
                    "%s: %s: only projections and experts may be F8_E4M3, and no in_proj_a, in_proj_b or in_proj_ba",
                    t->path, name);
    if (t->type == LLM42_DTYPE_E4M3 && !owner->scaling)
        LLM42__FAIL(FORMAT, "%s: %s is F8_E4M3, but config.json has no quantization_config", t->path, name);
    const int rows = w->rows ? w->rows : w->n;
    const bool stacked = w->rows && t->dims == 3;  // [experts, rows, k]
    if (t->dims != (w->k ? 2 + stacked : 1) || t->shape[stacked + (w->k > 0)] != (w->k ? w->k : rows) ||
        (w->k && t->shape[0] * (stacked ? t->shape[1] : 1) != rows))
        LLM42__FAIL(
            FORMAT, "%s: %s: wrong shape: [%lld, %lld, ...], %d dimensions, but config.json asks for [%d%s%.0d]",
            t->path, name, (long long)t->shape[0], (long long)t->shape[1], t->dims, rows, w->k ? ", " : "", w->k);
    t->used = true;
    const size_t element = llm42__dtype_size(t->type), count = (size_t)w->n * (size_t)LLM42__MAX(w->k, 1);
    const char *data = t->data + (size_t)w->first * (size_t)LLM42__MAX(w->k, 1) * element;
    llm42_matrix out = {.data = data, .type = t->type, .n = w->n, .k = w->k};
    if (w->matrix && t->type != LLM42_DTYPE_FP16 && (uintptr_t)data % element == 0) {
        model->mapped_bytes += count * element;
    } else {
        float *copy = llm42__model_block(model, count, sizeof *copy);
        if (!copy) LLM42__FAIL(MEMORY, "%s: %s: out of memory", t->path, name);
        llm42__convert_f32(copy, data, t->type, count);
        out.data = copy, out.type = LLM42_DTYPE_FP32;
    }
    if (t->type == LLM42_DTYPE_E4M3) LLM42__TRY(llm42__load_scales(model, name, t, w->first, &out, error));
    if (w->matrix) *w->matrix = out;
    else *w->vector = out.data;
    return LLM42_OK;
}

// Experts stand in tensors of their own, named in one of two ways, or, as of transformers 5, those of a layer in two.
static llm42_result llm42__load_experts(llm42_model *model, llm42_layer *layer, int l, llm42_error *error) {
    static const char *const spelled[2][4] = {{"mlp", "gate_proj", "up_proj", "down_proj"},
                                              {"block_sparse_moe", "w1", "w3", "w2"}};
    const llm42_config *c = &model->config;
    const llm42__owner *owner = model->owner;
    char name[160];
    const int experts = c->experts + (c->shared_ffn > 0);
    llm42_matrix *expert = llm42__model_block(model, (size_t)experts * 3, sizeof *expert);
    if (!expert) LLM42__FAIL(MEMORY, "%s: out of memory", model->name);
    layer->expert = expert;
    snprintf(name, sizeof name, "%slayers.%d.mlp.experts.gate_up_proj", owner->prefix, l);
    const bool stacked = llm42__find_tensor(model, name) != NULL;
    snprintf(name, sizeof name, "%slayers.%d.block_sparse_moe.gate.weight", owner->prefix, l);
    const char *const *part = spelled[llm42__find_tensor(model, name) != NULL];
    snprintf(name, sizeof name, "%slayers.%d.%s.gate.weight", owner->prefix, l, part[0]);
    llm42__wanted w = {.n = c->experts, .k = c->dim, .matrix = &layer->router};
    LLM42__TRY(llm42__load_tensor(model, name, &w, false, error));
    w = (llm42__wanted){.n = 1, .k = c->dim, .matrix = &layer->shared_gate};
    snprintf(name, sizeof name, "%slayers.%d.mlp.shared_expert_gate.weight", owner->prefix, l);
    if (c->shared_ffn) LLM42__TRY(llm42__load_tensor(model, name, &w, false, error));
    for (int i = 0; i < experts * 3; i++) {
        const bool down = i % 3 == 2, shared = i / 3 == c->experts;
        const int F = shared ? c->shared_ffn : c->ffn;
        w = (llm42__wanted){.n = down ? c->dim : F, .k = down ? F : c->dim, .matrix = &expert[i]};
        snprintf(name, sizeof name, "%slayers.%d.%s.experts.%d.%s.weight", owner->prefix, l, part[0], i / 3,
                 part[1 + i % 3]);
        if (shared) {
            snprintf(name, sizeof name, "%slayers.%d.mlp.shared_expert.%s.weight", owner->prefix, l, part[1 + i % 3]);
        } else if (stacked) {
            w.rows = down ? c->experts * c->dim : 2 * c->experts * c->ffn;
            w.first = down ? i / 3 * c->dim : (2 * (i / 3) + i % 3) * c->ffn;
            snprintf(name, sizeof name, "%slayers.%d.mlp.experts.%s_proj", owner->prefix, l, down ? "down" : "gate_up");
        }
        LLM42__TRY(llm42__load_tensor(model, name, &w, true, error));
        if (i % 3 == 1)
            LLM42__TRY(llm42__check_alike(model, "gate, up of an expert", l, w.matrix - 1, w.matrix, error));
        if (i > 2 && (w.matrix->type == LLM42_DTYPE_E4M3) != (w.matrix[-3].type == LLM42_DTYPE_E4M3))
            LLM42__FAIL(UNSUPPORTED, "%s: layer %d: some experts are F8_E4M3 and others not", model->name, l);
    }
    return LLM42_OK;
}

// Copies a matrix whose rows stand by groups, in which each part has width / side rows: first all rows of the first
// part, and so on. Those of the last part become a matrix of their own. False: no memory.
static bool llm42__by_parts(llm42_model *model, llm42_matrix *m, llm42_matrix *last, int groups, const int *width,
                            int side, int parts) {
    const size_t row = (size_t)m->k * llm42__dtype_size(m->type);
    char *const copy = llm42__model_block(model, (size_t)m->n, row), *to = copy;
    for (int part = 0, at = 0; copy && part < parts; at += width[part++] / side)
        for (int g = 0; g < groups; g++, to += (size_t)(width[part] / side) * row)
            memcpy(to, (const char *)m->data + (size_t)(m->n / groups * g + at) * row,
                   (size_t)(width[part] / side) * row);
    m->data = copy, *last = *m, last->n = groups * width[parts - 1] / side, m->n -= last->n;
    last->data = copy ? copy + (size_t)m->n * row : NULL;
    return copy;
}

// Qwen3-Next's q, k, v and z, and beta and alpha, stand together by key head. Scales are another matrix with such rows.
static llm42_result llm42__split_fused(llm42_model *model, llm42_layer *layer, int l, llm42_error *error) {
    const llm42_config *c = &model->config;
    llm42_matrix *qkv = &layer->qkv, rest = {.data = NULL};
    const int Hk = c->key_heads, each = c->value_heads / Hk, keys = c->key_dim, values = each * c->value_dim;
    const int of_qkvz[] = {keys, keys, values, values}, of_ba[] = {each, each};
    const int side = qkv->scaling == LLM42_SCALING_BLOCK ? LLM42__BLOCK : 1,
              across = side > 1 ? (qkv->k + side - 1) / side : 1;
    llm42_matrix scales = {.data = qkv->scale, .type = LLM42_DTYPE_FP32, .n = qkv->n / side, .k = across};
    if ((keys | values) % side)
        LLM42__FAIL(
            UNSUPPORTED,
            "%s: layer %d: in_proj_qkvz: in F8_E4M3 with blocks of 128 x 128 the %d keys and %d values of a key "
            "head must be multiples of 128: take scales for each output, or BF16",
            model->name, l, keys, values);
    if (!llm42__by_parts(model, qkv, &layer->z, Hk, of_qkvz, 1, 4) ||
        !llm42__by_parts(model, &layer->beta, &layer->alpha, Hk, of_ba, 1, 2) ||
        (scales.data && !llm42__by_parts(model, &scales, &rest, Hk, of_qkvz, side, 4)))
        LLM42__FAIL(MEMORY, "%s: out of memory", model->name);
    qkv->scale = scales.data, layer->z.scale = rest.data;
    return LLM42_OK;
}

// What tells a recurrent layer from others.
static llm42_result llm42__load_recurrent(llm42_model *model, llm42_layer *layer, int l, llm42_error *error) {
    const llm42_config *c = &model->config;
    const llm42__owner *owner = model->owner;
    const bool next = c->arch == LLM42_ARCH_QWEN3_NEXT;
    const int D = c->dim, Hv = c->value_heads, V = Hv * c->value_dim, channels = 2 * c->key_heads * c->key_dim + V;
    const struct {
        const char *name;
        llm42__wanted of;
    } tensors[] = {
        {"A_log", {Hv, 0, 0, 0, NULL, &layer->decay}},
        {"dt_bias", {Hv, 0, 0, 0, NULL, &layer->alpha_bias}},
        {"norm.weight", {c->value_dim, 0, 0, 0, NULL, &layer->head_norm}},
        {"conv1d.weight", {channels, LLM42__TAPS, 0, channels, NULL, &layer->taps}},
        {next ? "in_proj_ba.weight" : "in_proj_b.weight", {Hv + next * Hv, D, 0, 0, &layer->beta, NULL}},
        {next ? NULL : "in_proj_a.weight", {Hv, D, 0, 0, &layer->alpha, NULL}},
        {"out_proj.weight", {D, V, 0, 0, &layer->o, NULL}},  // this and those behind it may be in e4m3
        {next ? "in_proj_qkvz.weight" : "in_proj_qkv.weight", {channels + next * V, D, 0, 0, &layer->qkv, NULL}},
        {next ? NULL : "in_proj_z.weight", {V, D, 0, 0, &layer->z, NULL}}};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        char name[160];
        snprintf(name, sizeof name, "%slayers.%d.linear_attn.%s", owner->prefix, l, tensors[i].name);
        if (tensors[i].name) LLM42__TRY(llm42__load_tensor(model, name, &tensors[i].of, i > 5, error));
    }
    if (next) LLM42__TRY(llm42__split_fused(model, layer, l, error));
    LLM42__TRY(llm42__check_alike(model, "in_proj_qkv, in_proj_z", l, &layer->qkv, &layer->z, error));
    for (int h = 0; h < Hv; h++) ((float *)(uintptr_t)layer->decay)[h] = -(float)llm42_exp64(layer->decay[h]);
    return LLM42_OK;
}

static llm42_result llm42__load_layer(llm42_model *model, llm42_layer *layer, int l, llm42_error *error) {
    const llm42_config *c = &model->config;
    const llm42__owner *o = model->owner;
    const int D = c->dim, F = c->ffn, d = c->head_dim, q = c->heads * d, kv = c->kv_heads * d, qs = q << c->gated,
              all = qs + 2 * kv;
    const bool attends = !layer->recurrent, normed = o->family->normed && attends, dense = !c->experts;
    static const char *const fused_qkv = "self_attn.qkv_proj", *const fused_ffn = "mlp.gate_up_proj";
    const struct {
        bool wanted, biased;
        const char *name, *fused;  // fused: the tensor in which it may stand with others, at row of.first
        llm42__wanted of;
        const float **bias;
    } tensors[] = {
        {true, false, "input_layernorm", NULL, {D, 0, 0, 0, NULL, &layer->attention_norm}, NULL},
        {true, false, "post_attention_layernorm", NULL, {D, 0, 0, 0, NULL, &layer->ffn_norm}, NULL},
        {normed, false, "self_attn.q_norm", NULL, {d, 0, 0, 0, NULL, &layer->q_norm}, NULL},
        {normed, false, "self_attn.k_norm", NULL, {d, 0, 0, 0, NULL, &layer->k_norm}, NULL},
        {attends, o->qkv_bias, "self_attn.q_proj", fused_qkv, {qs, D, 0, all, &layer->q, NULL}, &layer->q_bias},
        {attends, o->qkv_bias, "self_attn.k_proj", fused_qkv, {kv, D, qs, all, &layer->k, NULL}, &layer->k_bias},
        {attends, o->qkv_bias, "self_attn.v_proj", fused_qkv, {kv, D, qs + kv, all, &layer->v, NULL}, &layer->v_bias},
        {attends, o->o_bias, "self_attn.o_proj", NULL, {D, q, 0, 0, &layer->o, NULL}, &layer->o_bias},
        {dense, o->ffn_bias, "mlp.gate_proj", fused_ffn, {F, D, 0, 2 * F, &layer->gate, NULL}, &layer->gate_bias},
        {dense, o->ffn_bias, "mlp.up_proj", fused_ffn, {F, D, F, 2 * F, &layer->up, NULL}, &layer->up_bias},
        {dense, o->ffn_bias, "mlp.down_proj", NULL, {D, F, 0, 0, &layer->down, NULL}, &layer->down_bias}};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        llm42__wanted of = tensors[i].of, bias = {of.n, 0, 0, 0, NULL, tensors[i].bias};
        char name[160];
        if (!tensors[i].wanted) continue;
        snprintf(name, sizeof name, "%slayers.%d.%s.weight", o->prefix, l, tensors[i].fused ? tensors[i].fused : "");
        if (!tensors[i].fused || !llm42__find_tensor(model, name)) {
            snprintf(name, sizeof name, "%slayers.%d.%s.weight", o->prefix, l, tensors[i].name);
            of.first = of.rows = 0;
        }
        LLM42__TRY(llm42__load_tensor(model, name, &of, of.k > 0, error));
        for (int j = 0; o->family->recurrent && !of.k && j < of.n; j++) ((float *)(uintptr_t)*of.vector)[j] += 1;
        snprintf(name, sizeof name, "%slayers.%d.%s.bias", o->prefix, l, tensors[i].name);
        if (tensors[i].biased) LLM42__TRY(llm42__load_tensor(model, name, &bias, false, error));
    }
    if (layer->recurrent) LLM42__TRY(llm42__load_recurrent(model, layer, l, error));
    LLM42__TRY(llm42__check_alike(model, "q, k, v", l, &layer->q, &layer->k, error));
    LLM42__TRY(llm42__check_alike(model, "q, k, v", l, &layer->q, &layer->v, error));
    LLM42__TRY(llm42__check_alike(model, "gate, up", l, &layer->gate, &layer->up, error));
    return dense ? LLM42_OK : llm42__load_experts(model, layer, l, error);
}

// Reads generation_config.json.
static llm42_result llm42__config_generation(llm42_model *model, const llm42__json *json) {
    if (json->token[0].type != JSMN_OBJECT) LLM42__MALFORMED("expected a JSON object");
    LLM42__TRY(llm42__config_stop(&model->config, json));
    return llm42__json_unique(json, 0);
}

// Reads config.json. Models that also see or hear have a text_config.
static llm42_result llm42__config_all(llm42_model *model, const llm42__json *json) {
    llm42__owner *owner = model->owner;
    llm42_layer *layer;
    llm42__json text = *json;
    if (json->token[0].type != JSMN_OBJECT) LLM42__MALFORMED("expected a JSON object");
    LLM42__TRY(llm42__config_kind(owner, json));
    const int inner = llm42__json_get(json, 0, "text_config");
    if (inner >= 0 && json->token[inner].type == JSMN_OBJECT)
        text.token += inner, text.count = llm42__json_skip(json, inner) - inner;
    LLM42__TRY(llm42__config_kind(owner, &text));
    LLM42__TRY(llm42__config_read(owner, &text));
    LLM42__TRY(llm42__json_bool(json, "tie_word_embeddings", &model->config.tied));
    LLM42__TRY(llm42__model_layers(model, &layer, json->error));
    LLM42__TRY(llm42__config_windows(owner, &text, layer));
    LLM42__TRY(llm42__config_rotations(&model->config, &text, layer));
    LLM42__TRY(llm42__json_unique(json, 0));
    LLM42__TRY(llm42__json_unique(&text, 0));
    return llm42__config_unread(owner, &text);
}

// The embedding, the LM head and the last norm. The embedding's name shows the prefix of all tensors' names.
static llm42_result llm42__load_ends(llm42_model *model, llm42_error *error) {
    static const char *const prefixes[] = {"model.", "language_model.model.", "model.language_model.", ""};
    llm42__owner *owner = model->owner;
    llm42_config *c = &model->config;
    llm42__wanted embed = {.n = c->vocab, .k = c->dim, .matrix = &model->embed}, head = embed;
    llm42__wanted norm = {.n = c->dim, .vector = &model->final_norm};
    char name[80];
    int i = 4;
    do {  // the first one also if there is none
        owner->prefix = prefixes[--i];
        snprintf(name, sizeof name, "%sembed_tokens.weight", owner->prefix);
    } while (i && !llm42__find_tensor(model, name));
    LLM42__TRY(llm42__load_tensor(model, name, &embed, false, error));
    snprintf(name, sizeof name, "%snorm.weight", owner->prefix);
    LLM42__TRY(llm42__load_tensor(model, name, &norm, false, error));
    float *scaled = (float *)(uintptr_t)model->final_norm;  // a copy: logits_scaling divides what the LM head sees
    for (i = 0; i < c->dim; i++)
        scaled[i] = (float)((scaled[i] + (float)owner->family->recurrent) / owner->logits_scaling);
    head.matrix = &model->head;
    const char *own = owner->prefix == prefixes[1] ? "language_model.lm_head.weight" : "lm_head.weight";
    const bool there = llm42__find_tensor(model, own) != NULL;
    if (c->tied && there)
        LLM42__LOG_TO(&owner->desc, "%s: tie_word_embeddings is true, but %s is there and is used", model->name, own);
    if (there || !c->tied) return c->tied = false, llm42__load_tensor(model, own, &head, false, error);
    model->head = model->embed;
    return LLM42_OK;
}

static llm42_result llm42__load_folder(llm42_model *model, llm42_error *error) {
    llm42__owner *owner = model->owner;
    LLM42__TRY(llm42__read_json(model, "config.json", "config.json", llm42__config_all, error));
    LLM42__TRY(llm42__read_json(model, "generation_config.json", NULL, llm42__config_generation, error));
    LLM42__TRY(llm42__safetensors_folder(model, error));
    LLM42__TRY(llm42__tensors_sort(owner->tensors, arrlenu(owner->tensors), error));
    LLM42__TRY(llm42__load_ends(model, error));
    llm42_layer *layer = (llm42_layer *)(uintptr_t)model->layer;
    for (int l = 0; l < model->config.layers; l++) LLM42__TRY(llm42__load_layer(model, &layer[l], l, error));
    int unused = 0, one = 0, kv = 0;
    for (int i = 0; i < arrlen(owner->tensors); i++) {
        const llm42__tensor *t = &owner->tensors[i];
        const char *end = t->name + t->length - 7;
        const bool of_kv = t->length > 7 && (!memcmp(end, "k_scale", 7) || !memcmp(end, "v_scale", 7));
        if (!t->used) LLM42__TRY(llm42__check_unused(model, t, error));
        if (!t->used && of_kv) kv++;
        else if (!t->used) unused++, one = i;
    }
    if (kv)
        LLM42__LOG_TO(&owner->desc, "%s: %d scales of an FP8 KV cache are not used: it has the compute type",
                      model->name, kv);
    if (unused)
        LLM42__LOG_TO(&owner->desc, "%s: %d tensors that no layer uses, for instance %.*s", model->name, unused,
                      owner->tensors[one].length, owner->tensors[one].name);
    arrfree(owner->tensors);
    return LLM42_OK;
}

// >>load ---------------------------------------------------------------------------------------------------------
// Owns: llm42_model_load, which finds the loader for a path, and the named shapes, whose weights, if they have any, are
// made by the companion llm42_synthetic.h.
// Calls: owner, layers.
// Invariant: a model that was loaded owns its memory. A load that fails leaves nothing behind. 5 divides no vocabulary
// of a shape, because the companion gives each token a successor, (5 t + 1) mod V.

// The shapes: name, V, D, L, H, K, d, F, context, E, experts that a token is sent to. Only the sizes are those of the
// named model: a dense one computes as a llama, a mixture as a qwen3_moe. NAME-fp8 has e4m3. With recurrent
// layers, three of four, Hk, Hv, the size of their keys and values, rotated values of an attention head, and the width
// of the shared expert follow. (The vocabulary of Qwen3.5 is a multiple of 5, and 8 tokens less here.)
#define LLM42__SHAPES(X)                                                                   \
    X("tiny", 512, 64, 2, 4, 2, 16, 160, 2048, 0, 0)                                       \
    X("tiny-moe", 512, 128, 2, 4, 2, 32, 48, 2048, 8, 2)                                   \
    X("small", 4096, 256, 4, 8, 4, 32, 704, 4096, 0, 0)                                    \
    X("base", 4096, 512, 9, 8, 4, 64, 1408, 4096, 0, 0)                                    \
    X("llama-3.2-1b", 128256, 2048, 16, 32, 8, 64, 8192, 131072, 0, 0)                     \
    X("llama-3.1-8b", 128256, 4096, 32, 32, 8, 128, 14336, 131072, 0, 0)                   \
    X("llama-3.1-70b", 128256, 8192, 80, 64, 8, 128, 28672, 131072, 0, 0)                  \
    X("smollm3-3b", 128256, 2048, 36, 16, 4, 128, 11008, 65536, 0, 0)                      \
    X("qwen3-8b", 151936, 4096, 36, 32, 8, 128, 12288, 40960, 0, 0)                        \
    X("phi-4", 100352, 5120, 40, 40, 10, 128, 17920, 16384, 0, 0)                          \
    X("qwen3-30b-a3b", 151936, 2048, 48, 32, 4, 128, 768, 40960, 128, 8)                   \
    X("tiny-hybrid", 512, 64, 4, 4, 2, 32, 160, 2048, 0, 0, 2, 4, 32, 8, 0)                \
    X("qwen3.5-9b", 248312, 4096, 32, 16, 4, 256, 12288, 262144, 0, 0, 16, 32, 128, 64, 0) \
    X("qwen3.5-35b-a3b", 248312, 2048, 40, 16, 2, 256, 512, 262144, 256, 8, 16, 32, 128, 64, 512)

const char *const *llm42_synthetic_names(void) {
#define LLM42__SHAPE_NAME(name, ...) name,
    static const char *const names[] = {LLM42__SHAPES(LLM42__SHAPE_NAME) NULL};
    return names;
}

// The config of the shape whose name is the first `length` characters of spec.
static llm42_result llm42__shape_config(llm42_model *model, const char *spec, size_t length, llm42_error *error) {
    const char *const *name = llm42_synthetic_names();
#define LLM42__SHAPE_KNOWN(name, ...) ", " name
#define LLM42__SHAPE_SIZES(name, ...) {__VA_ARGS__},
    static const char known[] = LLM42__SHAPES(LLM42__SHAPE_KNOWN);
    static const int sizes[][15] = {LLM42__SHAPES(LLM42__SHAPE_SIZES)};
    int i = 0;
    const bool eight = length > 4 && memcmp(spec + length - 4, "-fp8", 4) == 0;
    if (eight) length -= 4;
    while (name[i] && (strlen(name[i]) != length || memcmp(name[i], spec, length) != 0)) i++;
    if (!name[i])
        LLM42__FAIL(UNSUPPORTED,
                    "%s: unknown shape (known: %s; each also as NAME-fp8; only synthetic:NAME takes seed and margin)",
                    model->name, known + 2);
    llm42_config *c = &model->config;
    const int *n = sizes[i];
    c->vocab = n[0], c->dim = n[1], c->layers = n[2], c->heads = n[3], c->kv_heads = n[4], c->head_dim = n[5];
    c->ffn = n[6], c->context = n[7], c->experts = n[8], c->experts_used = n[9], c->experts_renorm = n[8] > 0;
    c->arch = c->experts ? LLM42_ARCH_QWEN3_MOE : LLM42_ARCH_LLAMA;
    if (n[10]) {
        c->arch = c->experts ? LLM42_ARCH_QWEN3_5_MOE : LLM42_ARCH_QWEN3_5, c->gated = true;
        c->recurrent_layers = c->layers - c->layers / 4, c->key_heads = n[10], c->value_heads = n[11];
        c->key_dim = c->value_dim = n[12], c->rotary_dim = n[13], c->shared_ffn = n[14];
    }
    c->scaling = eight ? LLM42_SCALING_BLOCK : LLM42_SCALING_NONE;
    c->norm_eps = 1e-5f, c->rope_theta = 500000.0, c->stop[0] = c->stop_count = 1;
    return LLM42_OK;
}

typedef llm42_result llm42__synthetic_fn(llm42_model *model, const char *spec, bool on_device, llm42_error *error);
// NULL, unless the companion llm42_synthetic.h was included instead of this file, and goes on behind it.
static llm42__synthetic_fn *const llm42__synthetic;

llm42_result llm42_model_load(llm42_model **model, const llm42_model_desc *desc, llm42_error *error) {
    if (!model) LLM42__FAIL(INVALID, "llm42_model_load: model: must not be NULL");
    *model = NULL;
    if (!desc || !desc->path || !desc->path[0])
        LLM42__FAIL(INVALID, "llm42_model_desc.path: required: a model folder or synthetic:NAME");
    const bool synthetic = strncmp(desc->path, "synthetic:", 10) == 0;
    if (desc->on_device && !synthetic)
        LLM42__FAIL(INVALID, "llm42_model_desc.on_device: only for synthetic:NAME, not %s: leave it out", desc->path);
    llm42__owner *owner = llm42__alloc_zero(1, sizeof *owner);
    if (!owner) LLM42__FAIL(MEMORY, "%s: out of memory", desc->path);
    owner->desc = *desc;
    llm42_model *m = &owner->model;
    m->owner = owner;
    snprintf(m->name, sizeof m->name, "%s", desc->path);
    struct stat st;
    llm42_result result;
    if (synthetic && llm42__synthetic) result = llm42__synthetic(m, desc->path + 10, desc->on_device, error);
    else if (synthetic)
        result = llm42_fail(error, LLM42_UNSUPPORTED,
                            "%s: include examples/util/llm42_synthetic.h, not llm42.h, where "
                            "LLM42_IMPLEMENTATION is",
                            m->name);
    else if (strncmp(desc->path, "shape:", 6) == 0)
        result = llm42__shape_config(m, desc->path + 6, strlen(desc->path + 6), error);
    else if (stat(desc->path, &st) != 0)
        result = llm42_fail(error, LLM42_IO, "%s: no such model folder: %s", desc->path, strerror(errno));
    else if (!S_ISDIR(st.st_mode))
        result = llm42_fail(error, LLM42_UNSUPPORTED,
                            "%s: not a folder: a model is an HF folder (GGUF files must be converted to one, and since "
                            "0.3.0 llama2.c files, too: examples/python/llama2c.py)",
                            desc->path);
    else result = llm42__load_folder(m, error);
    if (result != LLM42_OK) return llm42_model_free(m), result;
    LLM42__LOG_TO(desc, "model %s: %d layers, width %d, vocabulary %d, %.1f MB %s, %.1f MB copied", m->name,
                  m->config.layers, m->config.dim, m->config.vocab, (double)m->mapped_bytes * 1e-6,
                  desc->no_mmap ? "read" : "mapped", (double)m->copied_bytes * 1e-6);
    *model = m;
    return LLM42_OK;
}

// >>vectors ------------------------------------------------------------------------------------------------------
// Owns: vectors of sixteen floats, in versions for AVX-512, AVX2 and plain C, which all give the same bits.
// Calls: nothing.
// Invariant: every sum of this section and of section fp32, or each part of it, is taken in the one order. Of sixteen
// partial sums, number j starts at +0 and adds, products by fused multiply-add, the terms whose index is j modulo 16,
// ascending. Then they are added in a tree: j + 8 to j for j = 0..7, then j + 4 for 0..3, j + 2 for 0..1, 1 to 0.

#if !defined(LLM42_SCALAR) && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define LLM42__ISA 2
#elif !defined(LLM42_SCALAR) && defined(__AVX2__) && defined(__FMA__)
#define LLM42__ISA 1
#else
#define LLM42__ISA 0
#endif

// A loop over things that must stay in registers.
#if defined(__clang__)
#define LLM42__UNROLLED(...) _Pragma("clang loop unroll(full)") for (__VA_ARGS__)
#elif defined(__GNUC__)
#define LLM42__UNROLLED(...) _Pragma("GCC unroll 16") for (__VA_ARGS__)
#else
#define LLM42__UNROLLED(...) for (__VA_ARGS__)
#endif

// Adds n partial sums, a power of two, by the tree: j + n / 2 is added to j, and so on. Overwrites them.
LLM42__INLINE float llm42__tree(float *partial, int n) {
    for (int half = n / 2; half; half /= 2)
        for (int j = 0; j < half; j++) partial[j] += partial[j + half];
    return partial[0];
}

#if LLM42__ISA == 2
typedef __m512 llm42__v16;
LLM42__INLINE llm42__v16 llm42__v16_set(float x) { return _mm512_set1_ps(x); }
LLM42__INLINE llm42__v16 llm42__v16_load(const float *p) { return _mm512_loadu_ps(p); }
LLM42__INLINE void llm42__v16_store(float *p, llm42__v16 a) { _mm512_storeu_ps(p, a); }
LLM42__INLINE llm42__v16 llm42__v16_add(llm42__v16 a, llm42__v16 b) { return _mm512_add_ps(a, b); }
LLM42__INLINE llm42__v16 llm42__v16_fma(llm42__v16 a, llm42__v16 b, llm42__v16 c) { return _mm512_fmadd_ps(a, b, c); }
LLM42__INLINE llm42__v16 llm42__v16_load_bf16(const uint16_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
// Sums of sixteen vectors at once. Each level folds two into one, by one shuffle and one blend, because a + b is b + a.
LLM42__INLINE llm42__v16 llm42__v16_sum16(llm42__v16 a[16]) {
    __m512 p[8], q[4], r[2];
    const __m512i quarters = _mm512_setr_epi32(4, 5, 6, 7, 16, 17, 18, 19, 12, 13, 14, 15, 24, 25, 26, 27);
    LLM42__UNROLLED(int i = 0; i < 8; i++)
        p[i] = _mm512_add_ps(_mm512_mask_blend_ps(0xff00, a[2 * i], a[2 * i + 1]),
                             _mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], 0x4e));
    LLM42__UNROLLED(int i = 0; i < 4; i++)
        q[i] = _mm512_add_ps(_mm512_mask_blend_ps(0xf0f0, p[2 * i], p[2 * i + 1]),
                             _mm512_permutex2var_ps(p[2 * i], quarters, p[2 * i + 1]));
    LLM42__UNROLLED(int i = 0; i < 2; i++)
        r[i] = _mm512_add_ps(_mm512_mask_blend_ps(0xcccc, q[2 * i], q[2 * i + 1]),
                             _mm512_shuffle_ps(q[2 * i], q[2 * i + 1], 0x4e));
    __m512 t = _mm512_add_ps(_mm512_mask_blend_ps(0xaaaa, r[0], r[1]),
                             _mm512_permute_ps(_mm512_mask_blend_ps(0x5555, r[0], r[1]), 0xb1));
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15), t);
}
#elif LLM42__ISA == 1
typedef struct llm42__v16 {
    __m256 lo, hi;
} llm42__v16;
LLM42__INLINE llm42__v16 llm42__v16_set(float x) { return (llm42__v16){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
LLM42__INLINE llm42__v16 llm42__v16_load(const float *p) {
    return (llm42__v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
LLM42__INLINE void llm42__v16_store(float *p, llm42__v16 a) {
    _mm256_storeu_ps(p, a.lo), _mm256_storeu_ps(p + 8, a.hi);
}
LLM42__INLINE llm42__v16 llm42__v16_add(llm42__v16 a, llm42__v16 b) { return (llm42__v16){a.lo + b.lo, a.hi + b.hi}; }
LLM42__INLINE llm42__v16 llm42__v16_fma(llm42__v16 a, llm42__v16 b, llm42__v16 c) {
    return (llm42__v16){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
LLM42__INLINE llm42__v16 llm42__v16_load_bf16(const uint16_t *p) {
    __m256i lo = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    __m256i hi = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p + 8)));
    return (llm42__v16){_mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16))};
}
LLM42__INLINE __m256 llm42__v8_sum8(const __m256 a[8]) {
    __m256 p[4];
    LLM42__UNROLLED(int i = 0; i < 4; i++)
        p[i] = _mm256_add_ps(_mm256_permute2f128_ps(a[2 * i], a[2 * i + 1], 0x20),
                             _mm256_permute2f128_ps(a[2 * i], a[2 * i + 1], 0x31));
    __m256 q = _mm256_add_ps(_mm256_shuffle_ps(p[0], p[1], 0x44), _mm256_shuffle_ps(p[0], p[1], 0xee));
    __m256 r = _mm256_add_ps(_mm256_shuffle_ps(p[2], p[3], 0x44), _mm256_shuffle_ps(p[2], p[3], 0xee));
    __m256 s = _mm256_add_ps(_mm256_shuffle_ps(q, r, 0x88), _mm256_shuffle_ps(q, r, 0xdd));
    return _mm256_permutevar8x32_ps(s, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
LLM42__INLINE llm42__v16 llm42__v16_sum16(llm42__v16 a[16]) {
    __m256 lo[8], hi[8];
    LLM42__UNROLLED(int i = 0; i < 8; i++) {
        lo[i] = _mm256_add_ps(a[i].lo, a[i].hi);
        hi[i] = _mm256_add_ps(a[i + 8].lo, a[i + 8].hi);
    }
    return (llm42__v16){llm42__v8_sum8(lo), llm42__v8_sum8(hi)};
}
#else
// On x86-64 without FMA every lane calls fmaf, so that inlining gains nothing and compiling would take twice as long.
#if defined(__GNUC__) && defined(__x86_64__) && !defined(__FMA__)
#define LLM42__V16 static __attribute__((noinline))
#else
#define LLM42__V16 LLM42__INLINE
#endif
typedef struct llm42__v16 {
    float f[16];
} llm42__v16;
LLM42__V16 llm42__v16 llm42__v16_set(float x) {
    llm42__v16 r;
    for (int j = 0; j < 16; j++) r.f[j] = x;
    return r;
}
LLM42__V16 llm42__v16 llm42__v16_load(const float *p) { return *(const llm42__v16 *)p; }
LLM42__V16 void llm42__v16_store(float *p, llm42__v16 a) { *(llm42__v16 *)p = a; }
LLM42__V16 llm42__v16 llm42__v16_add(llm42__v16 a, llm42__v16 b) {
    for (int j = 0; j < 16; j++) a.f[j] += b.f[j];
    return a;
}
LLM42__V16 llm42__v16 llm42__v16_fma(llm42__v16 a, llm42__v16 b, llm42__v16 c) {
    for (int j = 0; j < 16; j++) c.f[j] = fmaf(a.f[j], b.f[j], c.f[j]);
    return c;
}
LLM42__V16 llm42__v16 llm42__v16_load_bf16(const uint16_t *p) {
    llm42__v16 r;
    for (int j = 0; j < 16; j++) r.f[j] = llm42__from_bf16(p[j]);
    return r;
}
LLM42__V16 llm42__v16 llm42__v16_sum16(llm42__v16 a[16]) {
    llm42__v16 r;
    for (int i = 0; i < 16; i++) r.f[i] = llm42__tree(a[i].f, 16);
    return r;
}
#endif

const char *llm42_cpu_isa(void) {
    static const char *const name[] = {"scalar", "avx2", "avx512"};
    return name[LLM42__ISA];
}

LLM42__INLINE float llm42__v16_sum(llm42__v16 a) {
    float partial[16];
    llm42__v16_store(partial, a);
    return llm42__tree(partial, 16);
}

// The first n of sixteen values, zeros after them. A zero term leaves a partial sum's bits alone.
LLM42__INLINE llm42__v16 llm42__v16_load_part(const float *p, int n) {
    float part[16] = {0};
    memcpy(part, p, (size_t)n * sizeof *p);
    return llm42__v16_load(part);
}

static float llm42__sum_squares(const float *x, int n) {
    llm42__v16 s = llm42__v16_set(0.0f);
    for (int i = 0; i < n; i += 16) {
        llm42__v16 a = n - i < 16 ? llm42__v16_load_part(x + i, n - i) : llm42__v16_load(x + i);
        s = llm42__v16_fma(a, a, s);
    }
    return llm42__v16_sum(s);
}

static float llm42__sum_exp(const float *x, int n, float largest) {
    float partial[16] = {0};
    int i = 0;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++) partial[j] += llm42__exp(x[i + j] - largest);
    for (int j = 0; i + j < n; j++) partial[j] += llm42__exp(x[i + j] - largest);
    return llm42__tree(partial, 16);
}

// The exponent of a number in e4m3, plus 7; of zero, -64, so that its products never have the largest exponent.
LLM42__INLINE int8_t llm42__e4m3_exponent(uint8_t byte) {
    const int size = byte & 0x7f, e = size >> 3;
    return (int8_t)(size ? LLM42__MAX(e, 1) : -64);
}

// Weights of one chain. fp32: value [16 outputs][128]. sm90, plain: [128][16 outputs]; with vectors: [128][2][16
// outputs], [0] the positive ones, [1] the negative ones, zeros elsewhere, and exponent [128 / 4][16 outputs][4].
typedef struct llm42__e4m3_panel {
    _Alignas(64) float value[LLM42__BLOCK * 32];  // no vector of sixteen lies in two lines of the cache
    int8_t exponent[LLM42__BLOCK * 16];
} llm42__e4m3_panel;

// >>team ---------------------------------------------------------------------------------------------------------
// Owns: how threads share the tasks of an operator. One OpenMP region spans a pass, and inside it each thread takes the
// next part, which is some consecutive tasks, from a counter. An operator is over when its parts are done, even if some
// threads took none, so a thread that the system has suspended delays the others only in the middle of a part.
// Calls: nothing.
// Invariant: one operator runs at a time, and results never depend on which thread ran a part.

enum { LLM42__THREADS = 1024 };        // of a team, at most
typedef struct llm42__job llm42__job;  // what an operator works on, see section cpu
typedef void llm42__task_fn(const llm42__job *job, int64_t task);

typedef struct llm42__team {
    int threads;
    uint64_t number;  // of the operator
    const llm42__job *job;
    llm42__task_fn *fn;
    int64_t tasks, grain;     // grain: tasks of a part
    _Atomic uint64_t ticket;  // number << 48 | parts << 24 | next part
    _Atomic int left;         // parts not done
    _Atomic bool over;        // the pass has ended
} llm42__team;

// Waits a moment. Every 256th call gives the core to another thread.
static void llm42__team_relax(int *turns) {
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_ia32_pause();
#endif
    if (++*turns % 256 == 0) sched_yield();
}

static void llm42__team_work(llm42__team *team) {
    uint64_t ticket = atomic_load_explicit(&team->ticket, memory_order_acquire);
    while ((ticket & 0xffffff) < (ticket >> 24 & 0xffffff)) {
        if (!atomic_compare_exchange_weak(&team->ticket, &ticket, ticket + 1)) continue;
        const int64_t first = (int64_t)(ticket & 0xffffff) * team->grain;
        for (int64_t task = first; task < LLM42__MIN(first + team->grain, team->tasks); task++)
            team->fn(team->job, task);
        atomic_fetch_sub_explicit(&team->left, 1, memory_order_release);
        ticket = atomic_load_explicit(&team->ticket, memory_order_acquire);
    }
}

// Runs fn for each task. `work`: multiply-adds of all tasks. Below 100,000 of them, sharing costs more than it saves.
static void llm42__team_run(llm42__team *team, double work, int64_t tasks, int64_t grain, llm42__task_fn *fn,
                            const llm42__job *job) {
    if (team->threads == 1 || work < 100000.0) {
        for (int64_t task = 0; task < tasks; task++) fn(job, task);
        return;
    }
    const int64_t parts = (tasks + grain - 1) / grain;
    assert(!atomic_load_explicit(&team->left, memory_order_relaxed) && parts < 1 << 24);
    team->fn = fn;
    team->job = job;
    team->tasks = tasks;
    team->grain = grain;
    atomic_store_explicit(&team->left, (int)parts, memory_order_relaxed);
    atomic_store_explicit(&team->ticket, ++team->number << 48 | (uint64_t)parts << 24, memory_order_release);
    llm42__team_work(team);
    for (int turns = 0; atomic_load_explicit(&team->left, memory_order_acquire);) llm42__team_relax(&turns);
}

// What the other threads of a pass do until it is over.
static void llm42__team_help(llm42__team *team) {
    for (int turns = 0; !atomic_load_explicit(&team->over, memory_order_acquire); llm42__team_relax(&turns))
        llm42__team_work(team);
}

// True in a child that was forked after a region of several threads: OpenMP would wait there for ever for threads that
// only the parent has. It is asked before each such region, and keeps the first one's process, as OpenMP its threads.
static bool llm42__team_lost(void) {
    static _Atomic long first;
    long none = 0, own = getpid();
    return !atomic_compare_exchange_strong(&first, &none, own) && none != own;
}

#ifdef _OPENMP
static int llm42__team_most(void) { return LLM42__MIN(omp_get_max_threads(), LLM42__THREADS); }
static int llm42__team_thread(void) { return omp_get_thread_num(); }
#else
static int llm42__team_most(void) { return 1; }
static int llm42__team_thread(void) { return 0; }
#endif

// >>sampling -----------------------------------------------------------------------------------------------------
// Owns: the draw of a token from logits, with top-k, top-p and min-p, and the log-probability of a token.
// Calls: vectors.
// Invariant: the token drawn is one of the vocabulary and depends on nothing but logits, sampling parameters and
// position, so fast and replay passes draw alike, and so does llm42__k_draw from the same logits.

// The index of the largest value, the lowest on a tie. A NaN is never the largest.
static int llm42__argmax(const float *x, int n) {
    int best = 0;
    float largest = -INFINITY;
    for (int i0 = 0; i0 < n; i0 += 16) {  // blocks first: a compare of maxima is cheaper than tracking an index
        float block = -INFINITY;
        int end = LLM42__MIN(i0 + 16, n);
        for (int i = i0; i < end; i++) block = x[i] > block ? x[i] : block;
        if (!(block > largest)) continue;
        largest = block;
        for (best = i0; x[best] != block;) best++;
    }
    return best;
}

// Logits [vocab], the largest of them, and 1 / temperature.
typedef struct llm42__choices {
    const float *logits;
    int vocab;
    float largest, scale;
} llm42__choices;

// Finds, byte by byte, the largest key for which the tokens above it hold less than `wanted`: mass if by_mass, else a
// number of tokens. Only keys from floor_key on count. *above: what the tokens above the key hold.
static uint32_t llm42__find_key(const llm42__choices *c, bool by_mass, uint64_t wanted, uint32_t floor_key,
                                uint64_t *above) {
    uint32_t prefix = 0;
    *above = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        uint64_t bins[256] = {0};
        for (int id = 0; id < c->vocab; id++) {
            const uint32_t key = llm42__sort_key(c->logits[id]);
            if (key < floor_key || (shift < 24 && key >> (shift + 8) != prefix >> (shift + 8))) continue;
            bins[key >> shift & 255] += by_mass ? llm42__mass(c->logits[id], c->largest, c->scale) : 1;
        }
        uint32_t bin = 255;
        for (; bin > 0 && *above + bins[bin] < wanted; bin--) *above += bins[bin];
        prefix |= bin << shift;
    }
    return prefix;
}

// Applies top-k, then top-p to what it has kept.
static llm42__kept llm42__filter(const llm42__choices *c, const llm42_sampling *p) {
    llm42__kept kept = {0, c->vocab};
    uint64_t above, total = 0;
    if (p->top_k > 0 && p->top_k < c->vocab) {
        kept.key = llm42__find_key(c, false, (uint64_t)p->top_k, 0, &above);
        kept.ties = p->top_k - (int)above;
    }
    if (!(p->top_p > 0 && p->top_p < 1)) return kept;
    for (int id = 0; id < c->vocab; id++)
        if (llm42__sort_key(c->logits[id]) > kept.key) total += llm42__mass(c->logits[id], c->largest, c->scale);
    total += (uint64_t)kept.ties * llm42__mass(llm42__key_value(kept.key), c->largest, c->scale);
    const uint64_t share = llm42__share(p->top_p, total);
    const uint32_t key = llm42__find_key(c, true, share, kept.key, &above);
    return llm42__keep(key, share - above, llm42__mass(llm42__key_value(key), c->largest, c->scale), kept, c->vocab);
}

// A race draws the token: each arrives at a time that is exponentially distributed, with a rate that is its weight
// exp(logit / temperature), so each is the first one with the probability of its weight. (Minus the logarithm of a time
// is logit / temperature plus Gumbel noise.) On a tie the lowest id is first. best: the id of the largest logit.
static int llm42__race(const float *logits, int vocab, const llm42_sampling *p, int position, int best) {
    const llm42__choices c = {logits, vocab, logits[best], 1.0f / p->temperature};
    const uint64_t key = llm42__hash(p->seed ^ llm42__hash((uint64_t)position));
    const bool filtered = p->top_k > 0 || (p->top_p > 0 && p->top_p < 1);
    llm42__kept kept = llm42__filter(&c, p);
    float first = INFINITY;
    for (int i0 = 0; i0 < vocab; i0 += 16) {  // blocks, so that times become vector instructions
        const int n = LLM42__MIN(16, vocab - i0);
        float logit[16], slower[16], time[16];
        int left = n;
        for (int j = 0; j < 16; j++) logit[j] = NAN;  // never arrives
        memcpy(logit, logits + i0, (size_t)n * sizeof *logit);
        for (int j = 0; filtered && j < n; j++) {
            const uint32_t at = llm42__sort_key(logit[j]);
            if (at > kept.key || (at == kept.key && kept.ties-- > 0)) continue;
            logit[j] = NAN;
            left--;
        }
        if (!left) continue;
        for (int j = 0; j < 16; j++) slower[j] = llm42__exp((c.largest - logit[j]) * c.scale);
        for (int j = 0; j < 16; j++) time[j] = llm42__exponential(key, i0 + j) * slower[j];
        for (int j = 0; j < n; j++)
            if (time[j] < first && !(slower[j] * p->min_p > 1)) first = time[j], best = i0 + j;
    }
    return best;
}

// sum_exp: the arithmetic's.
static llm42_output llm42__sample(const float *logits, int vocab, const llm42_sampling *p, int position,
                                  float (*sum_exp)(const float *, int, float)) {
    const int best = llm42__argmax(logits, vocab);
    const int token = p->temperature > 0 ? llm42__race(logits, vocab, p, position, best) : best;
    return (llm42_output){token, (logits[token] - logits[best]) - llm42__log_f32(sum_exp(logits, vocab, logits[best]))};
}
llm42_output llm42_sample(const float *logits, int vocab, const llm42_sampling *p, int position) {
    return llm42__sample(logits, vocab, p, position, llm42__sum_exp);
}

float llm42_margin(const float *logits, int vocab, const llm42_sampling *p, int position) {
    const uint64_t key = llm42__hash(p->seed ^ llm42__hash((uint64_t)position));
    float first = -INFINITY, second = -INFINITY;
    for (int id = 0; id < vocab; id++) {
        const float x = p->temperature > 0 ? logits[id] / p->temperature - llm42__log_f32(llm42__exponential(key, id))
                                           : logits[id];
        if (x > second) second = LLM42__MIN(x, first), first = LLM42__MAX(x, first);
    }
    return first - second;
}

float llm42_logprob(const float *logits, int vocab, int token) {
    const float largest = logits[llm42__argmax(logits, vocab)];
    return (logits[token] - largest) - llm42__log_f32(llm42__sum_exp(logits, vocab, largest));
}

// The sum is taken in the order of llm42__sum_exp.
void llm42_sampled_logprobs(const float *logits, int vocab, const llm42_sampling *p, float *logprob) {
    const int best = llm42__argmax(logits, vocab);
    for (int id = 0; id < vocab; id++) logprob[id] = -INFINITY;
    logprob[best] = 0;
    if (!(p->temperature > 0)) return;
    const llm42__choices c = {logits, vocab, logits[best], 1.0f / p->temperature};
    llm42__kept kept = llm42__filter(&c, p);
    float partial[16] = {0};
    for (int id = 0; id < vocab; id++) {
        const uint32_t key = llm42__sort_key(logits[id]);
        const float below = (logits[id] - c.largest) * c.scale;
        if (!(key > kept.key || (key == kept.key && kept.ties-- > 0))) continue;
        if (p->min_p > 0 && llm42__exp(-below) * p->min_p > 1) continue;
        partial[id % 16] += llm42__exp(below);
        logprob[id] = below;
    }
    const float all = llm42__log_f32(llm42__tree(partial, 16));
    for (int id = 0; id < vocab; id++) logprob[id] -= all;
}

// >>cpu ----------------------------------------------------------------------------------------------------------
// Owns: the CPU backend, which is its memory, its schedules and the operators of which a pass consists. The table of
// its arithmetic takes all sums but those of ranks, leaves and experts.
// Calls: vectors, team, sampling, recurrent, fp32.
// Invariant: one thread computes the whole sum of an output, and no operator knows which arithmetic it runs in.

// Ranks of this backend share its memory. They only set the order of two sums, those of o and down:
// - FAST and FIXED sum each rank's part and round it to the compute type. Then they add the ranks' parts in order and
//   round again, as serving engines do.
// - INVARIANT cuts the sum into leaves: as many equal parts as .leaves says, but at least one for each rank. It adds
//   them in fp32 by a binary tree of neighbours, (0 + 1) + (2 + 3), and rounds once. A rank's leaves are a subtree, so
//   the tree is the same for any number of ranks.
//
// FAST and FIXED cut a sum into as many contiguous parts as this function returns, each in the one order (section
// vectors), and add them in order. The table imitates GPU libraries, which split sums if few rows leave a GPU idle:
// - those of matrices of which a rank has no more outputs than terms (n <= k). With one rank these are mostly o and
//   down, and q, k, v one by one, but not gate, up and the LM head.
// - attention, along the context (n = 0, k is the number of positions).
//
//   rows of the pass    1   2..8   9..64   65..
//   parts               4    3      2       1
//
// There are at most k / 32 parts, and at least one. INVARIANT does not use the table. It takes each matrix sum, or each
// leaf of it, in one part. It cuts attention at every multiple of LLM42__INVARIANT_CONTEXT positions.
int llm42_cpu_splits(llm42_schedule schedule, int shape, int n, int k) {
    if (schedule == LLM42_SCHEDULE_INVARIANT || n > k) return 1;
    int parts = shape <= 1 ? 4 : shape <= 8 ? 3 : shape <= 64 ? 2 : 1;
    return LLM42__MAX(1, LLM42__MIN(parts, k / 32));
}

// Sizes of what a recurrent layer keeps, in floats. A state has the heads' states [Hv][key_dim][value_dim].
typedef struct llm42__recurrence {
    int channels;                        // that are convolved: q and k of the key heads, v of the value heads
    int width;                           // of a row after a state: channels, beta and alpha
    int capacity;                        // of a ring of rows: position t is at t modulo this
    size_t head, state, ring, snapshot;  // of one layer; a snapshot has the state and the last inputs
} llm42__recurrence;

typedef struct llm42__cpu {
    llm42_backend_desc desc;
    int threads;
    const llm42_model *model;
    const struct llm42__arithmetic *arithmetic;
    llm42_pass pass;  // that runs
    int part_count;   // into which it cuts the sums of o and down: leaves if it is INVARIANT, else ranks
    llm42__team team;
    int page_shift, pad;         // pad: head_dim rounded up to 16, the stride of a KV vector
    size_t kv_layer;             // elements of one layer of k (or v)
    double work_per_row;         // multiply-adds with weights
    void *k, *v;                 // [L][pages][K][page_size][pad], bf16 or fp32; padding is zero
    float *rope, *query_rope;    // [max_context][d/2][2]: cosine, sine, for keys and for queries; often the same
    float *x, *h, *delta;        // [R, D]: the residual stream, its norm, what o or the FFN adds to it
    float *q, *kv, *attended;    // [R, H*d]; k [R, K*d] and then v [R, K*d]; [R, H*d]
    float *gated, *up, *logits;  // [R, F], silu(gate) * up; [R, F]; [R, V], or the router's
    float *parts;                // [parts][R, D] of o or down, before they are joined
    // The input of products with weights in e4m3: [R, wide] values without their scales, and zeros behind a row's end,
    // their exponents (llm42__e4m3_exponent), and the scales [R, wide / 128]; scaling CHANNEL has one in a row.
    float *eight, *eight_scale;
    int8_t *eight_exponent;
    size_t wide;
    float *expert_in, *expert_out, *expert_weight;
    int32_t *expert_id, *expert_rows, *sampled;
    // Recurrent layers, see section recurrent; and mixed, gates: the q projection with gates, and the gates.
    llm42__recurrence recurrence;
    float *mixed, *gates, *states, *behind, *snapshots;
    int32_t *order;  // [R + 1]: where the rows of each sequence of the pass begin, and end
    float *scratch;  // [threads][scratch_size]
    size_t scratch_size;
    llm42__memory memory;  // all of these
} llm42__cpu;

// One matrix product: y[r][n] = sum over k of x[r][k] w[n][k], plus bias[n].
typedef struct llm42__product {
    const llm42_matrix *w;
    const float *bias;  // NULL: none
    float *y;           // [R, n], or n values of each row of [R, stride]
    int stride;         // 0: n
    int ranks;          // that share its outputs; a rank has n / ranks
    int k0, k;          // the sum is over the k terms from k0 on
    bool fp32;          // y stays fp32, whatever the compute type
} llm42__product;

// What the tasks of an operator need to know. An operator fills in the fields that it uses.
struct llm42__job {
    llm42__cpu *cpu;
    int layer, rows, size;            // size: of a task, in values of a row or in heads
    const llm42__product *product;    // the first of them
    const float *in, *weight, *bias;  // bias: NULL, or of what is in `in`
    const float *out_bias;            // the same of what is in `out`
    float *out;
};

// Where a row finds the keys and values of one KV head. It attends to the positions first <= t < end.
typedef struct llm42__context {
    const llm42__cpu *cpu;
    const void *k, *v;  // the layer's
    const int32_t *pages;
    int kv_head, first, end;
} llm42__context;

// What tells one arithmetic from another: how the operators round and in which order they add. llm42__cpu_open chooses
// the table of section fp32 or one of section sm90, which says how to add one.
typedef float llm42__squares_fn(const float *x, int n);
typedef struct llm42__arithmetic {
    const char *name;  // for llm42_backend.arithmetic
    bool invariant;    // FAST and FIXED passes sum as INVARIANT ones do
    bool by_kv_head;   // a task of attention has all heads of a KV head; else it has one head
    bool bias_last;    // an output is rounded before its bias is added, too, as the CUDA backend does it
    const struct llm42__tensor_core *core;  // that adds products of bf16 numbers; NULL: none

    // One block of a matrix product: outputs n0 to n0 + 15, as far as there are so many, of all rows. x [rows, w->k] ->
    // p->y [rows, w->n]. The sum over p->k is cut into `parts`. scratch: [4 p->k].
    void (*block)(const llm42__cpu *cpu, const float *x, int rows, const llm42__product *p, int n0, int parts,
                  float *scratch);
    // One chain of products with weights in e4m3; NULL: none. `fill` reads so many bytes (at most 128) of sixteen
    // outputs, and zeros behind them. `chain` gives the sums [rows][16] of 128 values of each row of x [rows, stride].
    void (*fill)(const uint8_t *const w[16], int terms, llm42__e4m3_panel *panel);
    void (*chain)(const float *x, const int8_t *exponent, size_t stride, int rows, const llm42__e4m3_panel *panel,
                  float *sums);
    // The sum of squares of x [n]: of a row of the residual stream, and of one head.
    llm42__squares_fn *squares, *head_squares;
    // Attention of a row and the heads of a task: q -> out [heads, d], rounded. scratch: [3 pad + max_context + 32].
    void (*attend)(const llm42__context *c, int heads, const float *q, float *out, float *scratch);
    // gate [n] = silu(gate) * up [n]. No sums.
    void (*gate)(float *gate, const float *up, size_t n);
    // The sum of e^(x - largest) over x [n]: over a row's router outputs, and over its logits.
    float (*route_total)(const float *x, int n, float largest);
    float (*sum_exp)(const float *x, int n, float largest);
} llm42__arithmetic;

static const llm42__arithmetic llm42__fp32;  // section fp32 has it
// By llm42_arithmetic. Empty, unless the companion llm42_sm90.h was included instead of this file, and goes on behind.
static const llm42__arithmetic llm42__emulated[LLM42_ARITHMETIC_SM100 + 1];

static void llm42__cpu_round_all(const llm42__cpu *cpu, float *x, size_t n) {
    if (cpu->desc.numerics.compute != LLM42_DTYPE_BF16) return;
    for (size_t i = 0; i < n; i++) x[i] = llm42__round_bf16(x[i]);
}

// The calling thread's.
static float *llm42__cpu_scratch(const llm42__cpu *cpu) {
    return cpu->scratch + cpu->scratch_size * (size_t)llm42__team_thread();
}

// A task is a row of the input of a product with weights in e4m3: m->size values.
static void llm42__quantise_task(const llm42__job *m, int64_t r) {
    const llm42_matrix *w = m->product->w;
    const size_t wide = m->cpu->wide, at = (size_t)r * wide;
    const int k = w->k, side = w->scaling == LLM42_SCALING_BLOCK ? LLM42__BLOCK : k;
    const float *x = m->in + (size_t)r * (size_t)k;
    float *value = m->cpu->eight + at, *scale = m->cpu->eight_scale + (size_t)r * (wide / LLM42__BLOCK);
    int8_t *exponent = m->cpu->eight_exponent + at;
    for (int k0 = 0; k0 < k; k0 += side, scale++) {
        const int k1 = LLM42__MIN(k0 + side, k);
        float largest = 0;
        for (int i = k0; i < k1; i++) largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
        *scale = w->input_scale > 0 ? w->input_scale : llm42__e4m3_scale(largest);
        for (int i = k0; i < k1; i++) {
            const uint8_t byte = llm42__to_e4m3(x[i] / *scale);
            value[i] = llm42__from_e4m3(byte);
            exponent[i] = llm42__e4m3_exponent(byte);
        }
    }
    for (int i = k; i % LLM42__BLOCK; i++) value[i] = 0, exponent[i] = llm42__e4m3_exponent(0);
}

// Stores outputs n0 to n0 + count - 1 of rows from r0 on: with scales by CHANNEL, bias and rounding.
static void llm42__cpu_put(const llm42__cpu *cpu, const llm42__product *p, int n0, int count, int r0, int rows,
                           const float *sum) {
    const bool round = cpu->desc.numerics.compute == LLM42_DTYPE_BF16 && !p->fp32;
    for (int r = 0; r < rows; r++)
        for (int o = 0; o < count; o++) {
            float y = sum[16 * r + o];
            if (p->w->scaling == LLM42_SCALING_CHANNEL)
                y = y * p->w->scale[n0 + o] * cpu->eight_scale[(size_t)(r0 + r) * (cpu->wide / LLM42__BLOCK)];
            if (p->bias) y = (round && cpu->arithmetic->bias_last ? llm42__round_bf16(y) : y) + p->bias[n0 + o];
            p->y[(size_t)(r0 + r) * (size_t)(p->stride ? p->stride : p->w->n) + (size_t)(n0 + o)] =
                round ? llm42__round_bf16(y) : y;
        }
}

// Outputs n0 to n0 + 15, as far as there are so many, of all rows of cpu->eight, with weights in e4m3.
// Order: chains of 128 terms, each from zero, ascending, in each part of k; then the parts one after the other.
static void llm42__cpu_block_e4m3(const llm42__cpu *cpu, int rows, const llm42__product *p, int n0, int parts) {
    enum { ROWS = 64 };  // that use a panel before the next one is filled
    const llm42_matrix *m = p->w;
    const int count = LLM42__MIN(16, m->n - n0), across = (m->k + LLM42__BLOCK - 1) / LLM42__BLOCK;
    const int step = ((p->k + parts - 1) / parts + LLM42__BLOCK - 1) / LLM42__BLOCK * LLM42__BLOCK;
    const bool blocks = m->scaling == LLM42_SCALING_BLOCK;
    const size_t scales = cpu->wide / LLM42__BLOCK;
    for (int r0 = 0; r0 < rows; r0 += ROWS) {
        const int some = LLM42__MIN(ROWS, rows - r0);
        float sum[ROWS * 16], part[ROWS * 16] = {0}, chain[ROWS * 16];
        for (int k = 0; k < p->k; k += LLM42__BLOCK) {
            const int at = p->k0 + k, terms = LLM42__MIN(LLM42__BLOCK, p->k - k);
            const float of_w = blocks ? m->scale[n0 / LLM42__BLOCK * across + at / LLM42__BLOCK] : 1;
            const uint8_t *w[16];
            llm42__e4m3_panel panel;
            for (int o = 0; o < 16; o++)  // a missing output repeats the last one
                w[o] = (const uint8_t *)m->data + (size_t)(n0 + LLM42__MIN(o, count - 1)) * (size_t)m->k + (size_t)at;
            cpu->arithmetic->fill(w, terms, &panel);
            const size_t x = (size_t)r0 * cpu->wide + (size_t)at;
            cpu->arithmetic->chain(cpu->eight + x, cpu->eight_exponent + x, cpu->wide, some, &panel, chain);
            for (int r = 0; r < some; r++) {
                const float of_x = blocks ? cpu->eight_scale[(size_t)(r0 + r) * scales + (size_t)(at / LLM42__BLOCK)]
                                          : 1;
                const float scale = of_x * of_w;
                for (int o = 0; o < 16; o++) part[16 * r + o] = fmaf(chain[16 * r + o], scale, part[16 * r + o]);
            }
            if ((k + LLM42__BLOCK) % step && k + LLM42__BLOCK < p->k) continue;
            for (int i = 0; i < 16 * some; i++) sum[i] = k < step ? part[i] : sum[i] + part[i], part[i] = 0;
        }
        llm42__cpu_put(cpu, p, n0, count, r0, some, sum);
    }
}

// A task is a block of sixteen outputs of one of the products.
static void llm42__matmul_task(const llm42__job *m, int64_t task) {
    const llm42__product *p = m->product;
    for (; task >= (p->w->n + 15) / 16; p++) task -= (p->w->n + 15) / 16;
    const int n = (p->w->n + p->ranks - 1) / p->ranks;
    const int parts = llm42_cpu_splits(m->cpu->pass.schedule, m->cpu->pass.shape, n, p->k);
    if (p->w->type == LLM42_DTYPE_E4M3) llm42__cpu_block_e4m3(m->cpu, m->rows, p, (int)task * 16, parts);
    else m->cpu->arithmetic->block(m->cpu, m->in, m->rows, p, (int)task * 16, parts, llm42__cpu_scratch(m->cpu));
}

// Shapes: x [R, k], some matrices [n, k], y [R, n].
// Work: threads share blocks of sixteen outputs. A thread computes all rows of its blocks.
// Order: that of the arithmetic over k, in llm42_cpu_splits(schedule, shape, n / ranks, k) parts.
static void llm42__cpu_matmul(llm42__cpu *cpu, const float *x, int rows, const llm42__product *products, int count) {
    const llm42__job job = {.cpu = cpu, .rows = rows, .product = products, .in = x};
    int64_t blocks = 0;
    double work = 0;
    for (int i = 0; i < count; i++) {
        blocks += (products[i].w->n + 15) / 16;
        work += (double)products[i].w->n * products[i].k * rows;
    }
    if (products->w->type == LLM42_DTYPE_E4M3)  // the first one is if any is
        llm42__team_run(&cpu->team, 8.0 * rows * products->w->k, rows, 1, llm42__quantise_task, &job);
    const int64_t grain = (blocks + 2 * cpu->team.threads - 1) / (2 * cpu->team.threads);
    llm42__team_run(&cpu->team, work, blocks, grain, llm42__matmul_task, &job);
}

// Shapes: x [R, k], w [n, k] -> y [parts][R, n]. Order: that of llm42__cpu_matmul in each part of k. Leaves stay fp32.
static void llm42__cpu_partial(llm42__cpu *cpu, const llm42_matrix *w, const float *x, int rows, float *y) {
    int parts = cpu->part_count, k = w->k / parts;
    const bool fp32 = parts > 1 && cpu->pass.schedule == LLM42_SCHEDULE_INVARIANT;
    llm42__product product[8];
    for (int p = 0; p < parts; p++, y += (size_t)rows * (size_t)w->n)
        product[p] = (llm42__product){.w = w, .y = y, .ranks = 1, .k0 = p * k, .k = k, .fp32 = fp32};
    llm42__cpu_matmul(cpu, x, rows, product, parts);
}

static void llm42__add(float *to, const float *from, size_t n) {
    for (size_t i = 0; i < n; i++) to[i] += from[i];
}

// A task is a row.
static void llm42__join_task(const llm42__job *j, int64_t r) {
    const size_t parts = (size_t)j->cpu->part_count;
    const size_t D = (size_t)j->cpu->model->config.dim, stride = (size_t)j->cpu->pass.rows * D;
    float *part = j->cpu->parts + (size_t)r * D, *out = j->out + (size_t)r * D;
    if (j->cpu->pass.schedule == LLM42_SCHEDULE_INVARIANT) {
        for (size_t apart = 1; apart < parts; apart *= 2)
            for (size_t p = 0; p < parts; p += 2 * apart) llm42__add(part + p * stride, part + (p + apart) * stride, D);
    } else {
        for (size_t p = 1; p < parts; p++) llm42__add(part, part + p * stride, D);
    }
    memcpy(out, part, D * sizeof *out);
    llm42__cpu_round_all(j->cpu, out, D);
}

// Shapes: cpu->parts [parts][R, D] -> out [R, D]. Order: leaves by a tree of neighbours, ranks one after the other.
static void llm42__cpu_join(llm42__cpu *cpu, float *out) {
    const llm42__job job = {.cpu = cpu, .out = out};
    const double work = (double)cpu->part_count * cpu->pass.rows * cpu->model->config.dim;
    llm42__team_run(&cpu->team, work, cpu->pass.rows, 1, llm42__join_task, &job);
}

// Shapes: x [R, k], w [D, k] -> out [R, D], for o and down.
static void llm42__cpu_matmul_joined(llm42__cpu *cpu, const llm42_matrix *w, const float *x, float *out) {
    llm42__cpu_partial(cpu, w, x, cpu->pass.rows, cpu->part_count > 1 ? cpu->parts : out);
    if (cpu->part_count > 1) llm42__cpu_join(cpu, out);
}

// Shapes: x [R, n] -> y [R, n], weight [n]. Order: that of the arithmetic over n, for each row alone.
static void llm42__cpu_norm(const llm42__cpu *cpu, const float *x, int rows, int n, llm42__squares_fn *squares,
                            const float *weight, float *y) {
    for (int r = 0; r < rows; r++) {
        const float *from = x + (size_t)r * (size_t)n;
        float *to = y + (size_t)r * (size_t)n;
        float sum = squares(from, n);
        float scale = 1.0f / sqrtf(sum / (float)n + cpu->model->config.norm_eps) + (sum - sum);  // overflow becomes NaN
        for (int i = 0; i < n; i++) to[i] = from[i] * scale * weight[i];
        llm42__cpu_round_all(cpu, to, (size_t)n);
    }
}

// Shapes: x [heads, d] of one row, in place. Pairs are (i, i + d/2). No sums.
static void llm42__cpu_rope(const llm42__cpu *cpu, const float *rope, float *x, int heads, int position) {
    const llm42_config *c = &cpu->model->config;
    const int half = llm42__rotary(c) / 2;
    const float *angle = rope + (size_t)position * (size_t)(2 * half);
    for (int head = 0; head < heads; head++) {
        float *v = x + (size_t)head * (size_t)c->head_dim;
        for (int i = 0; i < half; i++) {
            float a = v[i], b = v[i + half], cosine = angle[2 * i], sine = angle[2 * i + 1];
            v[i] = fmaf(a, cosine, -(b * sine));
            v[i + half] = fmaf(b, cosine, a * sine);
        }
        llm42__cpu_round_all(cpu, v, (size_t)(2 * half));
    }
}

// Element offset of (page of position, kv head, position) in one layer of the cache.
LLM42__INLINE size_t llm42__cpu_kv_at(const llm42__cpu *cpu, const int32_t *pages, int position, int kv_head) {
    size_t page = (size_t)pages[position >> cpu->page_shift], in_page = (size_t)(position & (cpu->desc.page_size - 1));
    return ((page * (size_t)cpu->model->config.kv_heads + (size_t)kv_head) * (size_t)cpu->desc.page_size + in_page) *
           (size_t)cpu->pad;
}

// Writes one row's k or v [K, d] to the cache.
static void llm42__cpu_kv_write(const llm42__cpu *cpu, void *cache, int layer, const llm42_row *row,
                                const int32_t *pages, const float *x) {
    int d = cpu->model->config.head_dim;
    for (int head = 0; head < cpu->model->config.kv_heads; head++, x += d) {
        size_t at = (size_t)cpu->model->layer[layer].cache * cpu->kv_layer +
                    llm42__cpu_kv_at(cpu, pages, row->position, head);
        for (int i = 0; i < cpu->pad; i++) {
            float value = i < d ? x[i] : 0.0f;
            if (cpu->desc.numerics.compute == LLM42_DTYPE_BF16)
                ((uint16_t *)cache)[at + (size_t)i] = llm42__to_bf16(value);
            else ((float *)cache)[at + (size_t)i] = value;
        }
    }
}

// A part of the context that one row attends to: the positions first <= t < end within [begin, stop). begin and stop
// are multiples of sixteen, so that position t belongs to partial sum t modulo 16.
typedef struct llm42__span {
    int first, end, begin, stop;
} llm42__span;

// The sixteen vectors from position t0 on, in c->k or c->v. Outside the span one inside stands for them.
LLM42__INLINE void llm42__cpu_addresses(const llm42__context *c, const void *cache, size_t width, llm42__span s, int t0,
                                        const void **at) {
    if (t0 >= s.first && t0 + 16 <= s.end && c->cpu->page_shift >= 4) {  // all belong to the span and lie in one page
        const char *first = (const char *)cache + llm42__cpu_kv_at(c->cpu, c->pages, t0, c->kv_head) * width;
        for (int j = 0; j < 16; j++) at[j] = first + (size_t)j * (size_t)c->cpu->pad * width;
        return;
    }
    for (int j = 0; j < 16; j++) {
        int t = LLM42__MIN(LLM42__MAX(t0 + j, s.first), s.end - 1);
        at[j] = (const char *)cache + llm42__cpu_kv_at(c->cpu, c->pages, t, c->kv_head) * width;
    }
}

// A task is a->size heads. Tasks take the heads of the first row, then those of the second row, and so on.
static void llm42__attention_task(const llm42__job *a, int64_t task) {
    const llm42__cpu *cpu = a->cpu;
    const llm42_config *c = &cpu->model->config;
    const int64_t head = task * a->size, at = head * c->head_dim;
    const llm42_row *row = &a->cpu->pass.row[head / c->heads];
    const size_t layer = (size_t)cpu->model->layer[a->layer].cache * cpu->kv_layer *
                         (cpu->desc.numerics.compute == LLM42_DTYPE_BF16 ? 2 : 4);
    llm42__context context = {.cpu = cpu, .pages = a->cpu->pass.seq[row->seq].pages, .end = row->position + 1};
    context.k = (const char *)cpu->k + layer, context.v = (const char *)cpu->v + layer;
    context.kv_head = (int)(head % c->heads) / (c->heads / c->kv_heads);
    if (cpu->model->layer[a->layer].sliding) context.first = LLM42__MAX(0, context.end - c->sliding_window);
    cpu->arithmetic->attend(&context, a->size, a->in + at, a->out + at, llm42__cpu_scratch(cpu));
}

// Shapes: q [R, H*d] -> out [R, H*d], over the paged cache. Work: threads share pairs of a row and a head (or KV head).
// Order: that of the arithmetic. It depends on the row's position, the schedule and its shape.
static void llm42__cpu_attention(llm42__cpu *cpu, int layer, const float *q, float *out) {
    const llm42_config *c = &cpu->model->config;
    const int heads = cpu->arithmetic->by_kv_head ? c->heads / c->kv_heads : 1;
    const llm42__job job = {.cpu = cpu, .layer = layer, .size = heads, .in = q, .out = out};
    const int64_t tasks = (int64_t)cpu->pass.rows * c->heads / heads;
    const size_t values = (size_t)cpu->pass.rows * (size_t)(c->heads * c->head_dim);
    double work = 0;
    for (int r = 0; r < cpu->pass.rows; r++) work += 2.0 * (cpu->pass.row[r].position + 1) * c->heads * c->head_dim;
    llm42__team_run(&cpu->team, work, tasks, 1 + tasks / (16 * cpu->team.threads), llm42__attention_task, &job);
    for (size_t i = 0; c->gated && i < values; i++) out[i] *= llm42__sigmoid(cpu->gates[i]);
    if (c->gated) llm42__cpu_round_all(cpu, out, values);
}

// x [n] plus a bias, if there is one, rounded to the compute type.
static void llm42__cpu_bias(const llm42__cpu *cpu, float *x, const float *bias, size_t n) {
    if (!bias) return;
    llm42__add(x, bias, n);
    llm42__cpu_round_all(cpu, x, n);
}

// A task is a row.
static void llm42__gate_task(const llm42__job *g, int64_t r) {
    const size_t n = (size_t)g->size;
    float *gate = g->out + (size_t)r * n, *up = g->cpu->up + (size_t)r * n;
    llm42__cpu_bias(g->cpu, gate, g->out_bias, n);
    llm42__cpu_bias(g->cpu, up, g->bias, n);
    g->cpu->arithmetic->gate(gate, up, n);
    llm42__cpu_round_all(g->cpu, gate, n);
}

// Shapes: h [R, D] -> cpu->gated [R, F]: silu(gate(h)) * up(h). Order: that of llm42__cpu_matmul.
static void llm42__cpu_gate_up(llm42__cpu *cpu, const llm42_layer *layer, const llm42_matrix *gate,
                               const llm42_matrix *up, const float *h, int rows) {
    const int ranks = cpu->desc.tensor_parallel;
    const llm42__product in[2] = {{.w = gate, .y = cpu->gated, .ranks = ranks, .k = gate->k},
                                  {.w = up, .y = cpu->up, .ranks = ranks, .k = up->k}};
    llm42__cpu_matmul(cpu, h, rows, in, 2);
    const llm42__job job = {
        .cpu = cpu, .size = gate->n, .bias = layer->up_bias, .out_bias = layer->gate_bias, .out = cpu->gated};
    llm42__team_run(&cpu->team, 16.0 * rows * gate->n, rows, 1, llm42__gate_task, &job);
}

// Chooses each row's experts: those of the largest router probability, the lowest index on a tie. The weights are
// renormalised if the model asks for it. Order: that of the arithmetic in the softmax, that of ranks in renormalising.
static void llm42__cpu_route(llm42__cpu *cpu, const float *router, int rows) {
    const llm42_config *c = &cpu->model->config;
    const int used = c->experts_used + (c->shared_ffn > 0);
    for (int r = 0; r < rows; r++) {
        const float *p = router + (size_t)r * (size_t)c->experts;
        int32_t *id = cpu->expert_id + (size_t)r * (size_t)used;
        float *weight = cpu->expert_weight + (size_t)r * (size_t)used;
        float largest = p[llm42__argmax(p, c->experts)], sum = 0;
        float total = cpu->arithmetic->route_total(p, c->experts, largest);
        for (int rank = 0; rank < c->experts_used; rank++) {
            int best = -1;
            for (int e = 0; e < c->experts; e++) {
                bool taken = false;
                for (int i = 0; i < rank; i++) taken |= id[i] == e;
                if (!taken && (best < 0 || p[e] > p[best])) best = e;
            }
            id[rank] = best;
            weight[rank] = llm42__exp(p[best] - largest) / total;
            sum += weight[rank];
        }
        for (int rank = 0; rank < c->experts_used; rank++)
            if (c->experts_renorm) weight[rank] /= sum;
        if (c->shared_ffn) id[used - 1] = c->experts, weight[used - 1] = llm42__sigmoid(router[rows * c->experts + r]);
        llm42__cpu_round_all(cpu, weight, (size_t)used);
    }
}

// Shapes: h [R, D] -> out [R, D]. Rows are gathered expert by expert, each with sums of its own. Order: in each part of
// F a row's experts are added from +0 by fma, the likeliest first and the shared one last; then the parts are joined.
static void llm42__cpu_moe(llm42__cpu *cpu, const llm42_layer *layer, const float *h, float *out) {
    const llm42_config *c = &cpu->model->config;
    const int shared = c->shared_ffn > 0;
    size_t D = (size_t)c->dim, used = (size_t)(c->experts_used + shared), R = (size_t)cpu->pass.rows;
    size_t parts = (size_t)cpu->part_count;
    const bool fp32 = cpu->desc.numerics.router_fp32;
    const llm42__product router[] = {
        {.w = &layer->router, .y = cpu->logits, .ranks = 1, .k = c->dim, .fp32 = fp32},
        {.w = &layer->shared_gate, .y = cpu->logits + R * (size_t)c->experts, .ranks = 1, .k = c->dim, .fp32 = fp32}};
    llm42__cpu_matmul(cpu, h, cpu->pass.rows, router, 1 + shared);
    llm42__cpu_route(cpu, cpu->logits, cpu->pass.rows);
    for (int e = 0; e < c->experts + shared; e++) {
        int rows = 0;
        for (int32_t i = 0; i < (int32_t)(R * used); i++) {
            if (cpu->expert_id[i] != e) continue;
            memcpy(cpu->expert_in + (size_t)rows * D, h + (size_t)i / used * D, D * sizeof *h);
            cpu->expert_rows[rows++] = i;
        }
        if (!rows) continue;
        float *to = cpu->expert_in + R * D;
        llm42__cpu_gate_up(cpu, layer, &layer->expert[3 * e], &layer->expert[3 * e + 1], cpu->expert_in, rows);
        llm42__cpu_partial(cpu, &layer->expert[3 * e + 2], cpu->gated, rows, to);
        for (size_t p = 0; p < parts; p++)
            for (size_t j = 0; j < (size_t)rows; j++)
                memcpy(cpu->expert_out + (p * R * used + (size_t)cpu->expert_rows[j]) * D,
                       to + (p * (size_t)rows + j) * D, D * sizeof *to);
    }
    float *sums = parts > 1 ? cpu->parts : out;
    memset(sums, 0, parts * R * D * sizeof *sums);
    for (size_t i = 0; i < parts * R * used; i++) {
        float *sum = sums + i / used * D;
        const float *term = cpu->expert_out + i * D;
        for (size_t j = 0; j < D; j++) sum[j] = fmaf(cpu->expert_weight[i % (R * used)], term[j], sum[j]);
    }
    if (parts == 1 || cpu->pass.schedule != LLM42_SCHEDULE_INVARIANT) llm42__cpu_round_all(cpu, sums, parts * R * D);
    if (parts > 1) llm42__cpu_join(cpu, out);
}

// A task is a row: x += delta + its bias (if there is one), then h = norm(x).
static void llm42__residual_task(const llm42__job *w, int64_t r) {
    int D = w->cpu->model->config.dim;
    float *x = w->cpu->x + (size_t)r * (size_t)D;
    if (w->out) {
        float *delta = w->out + (size_t)r * (size_t)D;
        llm42__cpu_bias(w->cpu, delta, w->out_bias, (size_t)D);
        llm42__add(x, delta, (size_t)D);
    }
    llm42__cpu_round_all(w->cpu, x, (size_t)D);
    llm42__cpu_norm(w->cpu, x, 1, D, w->cpu->arithmetic->squares, w->weight, w->cpu->h + (size_t)r * (size_t)D);
}
static void llm42__cpu_residual(llm42__cpu *cpu, float *delta, const float *bias, const float *weight) {
    const llm42__job job = {.cpu = cpu, .out = delta, .out_bias = bias, .weight = weight};
    const double work = 8.0 * cpu->pass.rows * cpu->model->config.dim;
    llm42__team_run(&cpu->team, work, cpu->pass.rows, 1, llm42__residual_task, &job);
}

// A task is a row: its head norms, rope and KV write.
static void llm42__rope_task(const llm42__job *w, int64_t r) {
    llm42__cpu *cpu = w->cpu;
    const llm42_config *c = &cpu->model->config;
    const llm42_layer *layer = &cpu->model->layer[w->layer];
    const llm42_row *row = &w->cpu->pass.row[r];
    const int32_t *pages = w->cpu->pass.seq[row->seq].pages;
    size_t kv = (size_t)(c->kv_heads * c->head_dim);
    float *q = cpu->q + (size_t)r * (size_t)(c->heads * c->head_dim), *k = cpu->kv + (size_t)r * kv;
    const size_t d = (size_t)c->head_dim, gated = (size_t)r * 2 * (size_t)c->heads * d;
    for (size_t i = 0; c->gated && i < (size_t)c->heads * d; i++) {
        const float *from = cpu->mixed + gated + i / d * 2 * d + i % d;
        q[i] = from[0], cpu->gates[(size_t)r * (size_t)c->heads * d + i] = from[d];
    }
    if (layer->q_norm) {
        llm42__squares_fn *squares = cpu->arithmetic->head_squares;
        llm42__cpu_norm(cpu, q, c->heads, c->head_dim, squares, layer->q_norm, q);
        llm42__cpu_norm(cpu, k, c->kv_heads, c->head_dim, squares, layer->k_norm, k);
    }
    if (!layer->unrotated) {
        llm42__cpu_rope(cpu, cpu->query_rope, q, c->heads, row->position);
        llm42__cpu_rope(cpu, cpu->rope, k, c->kv_heads, row->position);
    }
    if (row->flags & LLM42_ROW_KEEP_KV) return;
    float *v = k + (size_t)w->cpu->pass.rows * kv;
    for (size_t i = 0; i < kv; i++)  // as llm42__k_rope does it
        if (v[i] - v[i] != 0) k[i] = NAN, v[i] = 0;
    llm42__cpu_kv_write(cpu, cpu->k, w->layer, row, pages, k);
    llm42__cpu_kv_write(cpu, cpu->v, w->layer, row, pages, v);
}

// Projections, head norms, rope and the KV write of one layer, from h [R, D] to q [R, H*d] and the cache.
static void llm42__cpu_qkv(llm42__cpu *cpu, int l) {
    const llm42_config *c = &cpu->model->config;
    const llm42_layer *layer = &cpu->model->layer[l];
    float *k = cpu->kv, *v = cpu->kv + (size_t)cpu->pass.rows * (size_t)(c->kv_heads * c->head_dim);
    const int ranks = cpu->desc.tensor_parallel, kv_ranks = LLM42__MIN(ranks, c->kv_heads);
    const llm42__product products[3] = {
        {.w = &layer->q, .bias = layer->q_bias, .y = c->gated ? cpu->mixed : cpu->q, .ranks = ranks, .k = c->dim},
        {.w = &layer->k, .bias = layer->k_bias, .y = k, .ranks = kv_ranks, .k = c->dim},
        {.w = &layer->v, .bias = layer->v_bias, .y = v, .ranks = kv_ranks, .k = c->dim}};
    llm42__cpu_matmul(cpu, cpu->h, cpu->pass.rows, products, 3);
    const llm42__job job = {.cpu = cpu, .layer = l};
    double work = 8.0 * cpu->pass.rows * (c->heads + 2 * c->kv_heads) * c->head_dim;
    llm42__team_run(&cpu->team, work, cpu->pass.rows, 1, llm42__rope_task, &job);
}

// Section recurrent has these.
static void llm42__recurrent_allocate(llm42__cpu *cpu), llm42__cpu_recurrent(llm42__cpu *cpu, int l);

// A task is a row that has LLM42_ROW_SAMPLE. If its logits are not finite, neither is the log-probability: token -1.
static void llm42__sample_task(const llm42__job *d, int64_t task) {
    const int r = d->cpu->sampled[task], vocab = d->cpu->model->config.vocab;
    const llm42_pass *pass = &d->cpu->pass;
    const llm42_row *row = &pass->row[r];
    const size_t V = (size_t)vocab;
    const float *logits = d->cpu->logits + (size_t)task * V;
    if (pass->logits) memcpy(pass->logits + (size_t)r * V, logits, V * sizeof *logits);
    if (pass->margins) pass->margins[r] = llm42_margin(logits, vocab, &pass->seq[row->seq].sampling, row->position);
    llm42_output *out = &pass->out[r];
    *out = llm42__sample(logits, vocab, &pass->seq[row->seq].sampling, row->position, d->cpu->arithmetic->sum_exp);
    if (!(out->logprob - out->logprob == 0)) out->token = -1;
}

// The LM head and the draw, from h [R, D], for rows that have LLM42_ROW_SAMPLE.
static void llm42__cpu_head_out(llm42__cpu *cpu) {
    const llm42_model *m = cpu->model;
    const size_t D = (size_t)m->config.dim;
    int count = 0;
    for (int r = 0; r < cpu->pass.rows; r++) {
        if (!(cpu->pass.row[r].flags & LLM42_ROW_SAMPLE)) continue;
        memmove(cpu->h + (size_t)count * D, cpu->h + (size_t)r * D, D * sizeof *cpu->h);
        cpu->sampled[count++] = r;
    }
    if (!count) return;
    llm42__product head = {.w = &m->head, .y = cpu->logits, .ranks = cpu->desc.tensor_parallel, .k = m->config.dim};
    head.fp32 = cpu->desc.numerics.logits_fp32;
    llm42__cpu_matmul(cpu, cpu->h, count, &head, 1);
    const llm42__job draw = {.cpu = cpu};
    llm42__team_run(&cpu->team, 16.0 * count * m->config.vocab, count, 1, llm42__sample_task, &draw);
}

static llm42_result llm42__cpu_check(const llm42__cpu *cpu, const llm42_pass *pass, llm42_error *error) {
    int R = pass->rows, vocab = cpu->model->config.vocab;
    if (pass->schedule < LLM42_SCHEDULE_FAST || pass->schedule > LLM42_SCHEDULE_INVARIANT)
        LLM42__FAIL(UNSUPPORTED, "cpu backend: schedule %s is not available", llm42_schedule_name(pass->schedule));
    if (R < 1 || R > cpu->desc.max_rows || R > pass->shape)
        LLM42__FAIL(INVALID, "cpu backend: a pass of %d rows: expected 1 to %d, and at most its shape %d", R,
                    cpu->desc.max_rows, pass->shape);
    for (int r = 0; r < R; r++) {
        const llm42_row row = pass->row[r];
        if (row.seq < 0 || row.token < 0 || row.token >= vocab || row.position < 0 ||
            row.position >= cpu->desc.max_context)
            LLM42__FAIL(INVALID, "cpu backend: row %d: token %d, position %d out of range", r, row.token, row.position);
    }
    return cpu->model->config.recurrent_layers ? llm42__check_runs(&cpu->desc, "cpu", pass, error) : LLM42_OK;
}

// Gives [rows, width] values of one operator to the pass's probe. Only one thread runs between operators.
static void llm42__cpu_probe(const llm42__cpu *cpu, int layer, const char *name, int width, const float *values) {
    if (cpu->pass.probe) cpu->pass.probe(cpu->pass.probe_user, layer, name, cpu->pass.rows, width, values);
}

// The model, from embedding to tokens. One thread calls it; the others join in llm42__team_run.
static void llm42__cpu_forward(llm42__cpu *cpu) {
    const llm42_model *m = cpu->model;
    const llm42_config *c = &m->config;
    int R = cpu->pass.rows, q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    size_t D = (size_t)c->dim, size = m->embed.type == LLM42_DTYPE_BF16 ? 2 : 4;
    for (int r = 0; r < R; r++)
        llm42__convert_f32(cpu->x + (size_t)r * D,
                           (const char *)m->embed.data + (size_t)cpu->pass.row[r].token * D * size, m->embed.type, D);
    for (size_t i = 0; c->embed_scale > 0 && i < (size_t)R * D; i++) cpu->x[i] *= c->embed_scale;
    llm42__cpu_round_all(cpu, cpu->x, (size_t)R * D);
    llm42__cpu_probe(cpu, -1, "embed", c->dim, cpu->x);
    for (int l = 0; l < c->layers; l++) {
        const llm42_layer *layer = &m->layer[l];
        llm42__cpu_residual(cpu, l ? cpu->delta : NULL, l ? layer[-1].down_bias : NULL, layer->attention_norm);
        llm42__cpu_probe(cpu, l, "attention_norm", c->dim, cpu->h);
        if (layer->recurrent) {
            llm42__cpu_recurrent(cpu, l);
        } else {
            llm42__cpu_qkv(cpu, l);
            llm42__cpu_probe(cpu, l, "q", q, cpu->q);
            llm42__cpu_probe(cpu, l, "k", kv, cpu->kv);
            llm42__cpu_probe(cpu, l, "v", kv, cpu->kv + (size_t)R * (size_t)kv);
            llm42__cpu_attention(cpu, l, cpu->q, cpu->attended);
        }
        llm42__cpu_probe(cpu, l, "attention", layer->o.k, cpu->attended);
        llm42__cpu_matmul_joined(cpu, &layer->o, cpu->attended, cpu->delta);
        llm42__cpu_probe(cpu, l, "o", c->dim, cpu->delta);
        llm42__cpu_residual(cpu, cpu->delta, layer->o_bias, layer->ffn_norm);
        llm42__cpu_probe(cpu, l, "ffn_norm", c->dim, cpu->h);
        if (c->experts) {
            llm42__cpu_moe(cpu, layer, cpu->h, cpu->delta);
        } else {
            llm42__cpu_gate_up(cpu, layer, &layer->gate, &layer->up, cpu->h, R);
            llm42__cpu_probe(cpu, l, "gate", c->ffn, cpu->gated);
            llm42__cpu_matmul_joined(cpu, &layer->down, cpu->gated, cpu->delta);
        }
        llm42__cpu_probe(cpu, l, "down", c->dim, cpu->delta);
    }
    llm42__cpu_residual(cpu, cpu->delta, m->layer[c->layers - 1].down_bias, m->final_norm);
    llm42__cpu_probe(cpu, -1, "final_norm", c->dim, cpu->h);
    llm42__cpu_head_out(cpu);
}

static llm42_result llm42__cpu_run(void *state, const llm42_pass *pass, llm42_error *error) {
    llm42__cpu *cpu = state;
    LLM42__TRY(llm42__cpu_check(cpu, pass, error));
    cpu->pass = *pass;
    if (cpu->arithmetic->invariant) cpu->pass.schedule = LLM42_SCHEDULE_INVARIANT;
    cpu->part_count = cpu->desc.tensor_parallel;
    if (cpu->pass.schedule == LLM42_SCHEDULE_INVARIANT)
        cpu->part_count = LLM42__MAX(cpu->part_count, cpu->desc.numerics.leaves);
    cpu->team.threads = cpu->work_per_row * pass->rows < 3e6 ? 1 : cpu->threads;  // waking threads costs time
    if (cpu->team.threads > 1 && llm42__team_lost()) cpu->team.threads = 1;
    atomic_store_explicit(&cpu->team.over, false, memory_order_relaxed);
#ifdef _OPENMP
#pragma omp parallel num_threads(cpu->team.threads)
#endif
    {
        if (llm42__team_thread()) llm42__team_help(&cpu->team);
        else llm42__cpu_forward(cpu), atomic_store_explicit(&cpu->team.over, true, memory_order_release);
    }
    return LLM42_OK;
}

static void llm42__cpu_close(void *state) {
    llm42__cpu *cpu = state;
    if (!cpu) return;
    llm42__free_all(&cpu->memory);
    llm42__free(cpu);
}

static bool llm42__cpu_allocate(llm42__cpu *cpu) {
    const llm42_config *c = &cpu->model->config;
    size_t R = (size_t)cpu->desc.max_rows, D = (size_t)c->dim, F = (size_t)LLM42__MAX(c->ffn, c->shared_ffn);
    size_t q = (size_t)(c->heads * c->head_dim), kv = (size_t)(c->kv_heads * c->head_dim);
    size_t values = (size_t)(c->value_heads * c->value_dim), attention = (size_t)(c->layers - c->recurrent_layers);
    size_t T = (size_t)cpu->desc.max_context, threads = (size_t)cpu->threads, pad = (size_t)cpu->pad;
    size_t size = cpu->desc.numerics.compute == LLM42_DTYPE_BF16 ? 2 : 4;
    size_t wide = LLM42__MAX(LLM42__MAX(D, F), LLM42__MAX(q, values));
    size_t parts = (size_t)LLM42__MAX(cpu->desc.numerics.leaves, cpu->desc.tensor_parallel);
    size_t cells = (size_t)cpu->desc.pages * (size_t)cpu->desc.page_size;
    size_t used = (size_t)(c->experts_used + (c->shared_ffn > 0));
    if ((double)cells * c->kv_heads * c->layers * (double)pad > 1e15) return false;  // more than any machine has
    cpu->kv_layer = cells * (size_t)c->kv_heads * pad;
    llm42__memory *memory = &cpu->memory;
    // For llm42__arithmetic: its block, its attend.
    const size_t states = (size_t)(c->key_dim * (c->value_dim + 2 * LLM42__CHUNK) +  // of llm42__delta_task
                                   c->value_dim * (LLM42__CHUNK + 2));
    cpu->scratch_size = (LLM42__MAX(LLM42__MAX(4 * wide, 3 * pad + T + 32), states) + 15) & ~(size_t)15;
    cpu->k = llm42__take(memory, attention * cpu->kv_layer, size);
    cpu->v = llm42__take(memory, attention * cpu->kv_layer, size);
    cpu->rope = llm42__take(memory, T * (size_t)c->head_dim, 4);
    cpu->query_rope = c->query_beta > 0 ? llm42__take(memory, T * (size_t)c->head_dim, 4) : cpu->rope;
    cpu->gates = llm42__take(memory, R * LLM42__MAX(values, q * c->gated), 4);
    if (c->recurrent_layers) llm42__recurrent_allocate(cpu);
    cpu->x = llm42__take(memory, R * D, 4);
    cpu->h = llm42__take(memory, R * D, 4);
    cpu->delta = llm42__take(memory, R * D, 4);
    cpu->q = llm42__take(memory, R * q, 4);
    cpu->kv = llm42__take(memory, 2 * R * kv, 4);
    cpu->attended = llm42__take(memory, R * LLM42__MAX(q, values), 4);
    cpu->gated = llm42__take(memory, R * F, 4);
    cpu->up = llm42__take(memory, R * F, 4);
    cpu->logits = llm42__take(memory, R * (size_t)LLM42__MAX(c->vocab, c->experts + 1), 4);
    const size_t eight = c->scaling ? R : 0;
    // 64 more, so that the same column of many rows does not lie in the same lines of a cache.
    cpu->wide = (wide + LLM42__BLOCK - 1) / LLM42__BLOCK * LLM42__BLOCK + LLM42__BLOCK / 2;
    cpu->eight = llm42__take(memory, eight * cpu->wide, 4);
    cpu->eight_scale = llm42__take(memory, eight * (cpu->wide / LLM42__BLOCK), 4);
    cpu->eight_exponent = llm42__take(memory, eight * cpu->wide, 1);
    cpu->parts = llm42__take(memory, R * D * parts * (parts > 1), 4);
    cpu->expert_in = llm42__take(memory, (1 + parts) * R * D * (used > 0), 4);
    cpu->expert_out = llm42__take(memory, R * D * used * parts, 4);
    cpu->expert_weight = llm42__take(memory, R * used, 4);
    cpu->expert_id = llm42__take(memory, R * used, 4);
    cpu->expert_rows = llm42__take(memory, R * used, 4);
    cpu->sampled = llm42__take(memory, R, 4);
    cpu->scratch = llm42__take(memory, threads * cpu->scratch_size, 4);
    return !memory->missing;
}

// Checks that this process computes as IEEE 754 says. Bits would be different if the compiler fused a*b + c on its own
// or reordered sums, with flush-to-zero, and in another rounding mode.
static llm42_result llm42__cpu_ieee(llm42_error *error) {
    volatile float above = 1.0f + FLT_EPSILON, below = 1.0f - FLT_EPSILON, minus = -1.0f, big = 1e8f, one = 1.0f,
                   three = 3.0f, least = FLT_MIN, half = 0.5f;
    float x = above, y = below, z = minus, o = one, g = big, fused = x * y + z, shifted = (o + g) - g;
    volatile float product = above * below, subnormal = least * half, third = one / three, minus_third = minus / three;
    if (fused != product + minus)
        LLM42__FAIL(UNSUPPORTED, "this build contracts a*b + c into a fused operation: compile with -ffp-contract=off");
    if (shifted != 0.0f)
        LLM42__FAIL(UNSUPPORTED, "this build reorders floating-point sums: compile without -ffast-math and its parts");
    if (subnormal == 0.0f || third != 0x1.555556p-2f || minus_third != -0x1.555556p-2f)
        LLM42__FAIL(UNSUPPORTED, "the processor flushes subnormals to zero, or does not round to nearest: other code "
                                 "in this process has set that; results would differ");
    return LLM42_OK;
}

static llm42_result llm42__cpu_validate(const llm42_backend_desc *d, int team, llm42_error *error) {
    const llm42_config *c = &d->model->config;
    const llm42__field fields[] = {
        {"numerics.compute", d->numerics.compute, LLM42_DTYPE_BF16, LLM42_DTYPE_FP32, false},
        {"numerics.arithmetic", d->numerics.arithmetic, LLM42_ARITHMETIC_DEFAULT, LLM42_ARITHMETIC_SM100, false},
        {"max_rows", d->max_rows, 1, 1 << 20, false},
        {"max_context", d->max_context, 1, c->context, false},
        {"pages", d->pages, 1, 1 << 28, false},
        {"page_size", d->page_size, 1, 4096, true}};
    const llm42__field threads = {"threads", team, 1, LLM42__THREADS, false};
    LLM42__TRY(llm42__check_fields("llm42_backend_desc", fields, sizeof fields / sizeof *fields, error));
    LLM42__TRY(llm42__check_fields("llm42_cpu_desc", &threads, 1, error));
    if (d->numerics.arithmetic > LLM42_ARITHMETIC_FP32) {
        const llm42__arithmetic *of = &llm42__emulated[d->numerics.arithmetic];
        if (!of->name)
            LLM42__FAIL(UNSUPPORTED, "llm42_engine_desc.numerics.arithmetic: that of a GPU: include "
                                     "examples/util/llm42_sm90.h, not llm42.h, where LLM42_IMPLEMENTATION is");
        if (d->numerics.compute != LLM42_DTYPE_BF16)
            LLM42__FAIL(UNSUPPORTED, "llm42_engine_desc.numerics.compute: FP32: arithmetic SM%s needs BF16",
                        of->name + 2);
        if (c->head_dim > 256 || c->head_dim % 2 || c->dim > 16384)
            LLM42__FAIL(UNSUPPORTED,
                        "llm42_engine_desc.numerics.arithmetic: SM%s needs an even head_dim up to 256 and a width up "
                        "to 16384, as the CUDA backend does; model %s has %d and %d",
                        of->name + 2, d->model->name, c->head_dim, c->dim);
        if (c->scaling && !of->chain)
            LLM42__FAIL(UNSUPPORTED,
                        "llm42_engine_desc.numerics.arithmetic: SM%s: %s, and model %s has weights in FP8: use SM89, "
                        "SM90 or FP32",
                        of->name + 2,
                        d->numerics.arithmetic == LLM42_ARITHMETIC_SM80 ? "its tensor cores have no FP8"
                                                                        : "its steps in FP8 are not known",
                        d->model->name);
    }
    return llm42_ranks_check("llm42_backend_desc", c, d->tensor_parallel, d->numerics.leaves, error);
}

static llm42_result llm42__cpu_open(void **state, const llm42_backend_desc *desc, llm42_error *error) {
    const llm42_cpu_desc *own = desc->backend_desc;
    const int threads = own && own->threads ? own->threads : llm42__team_most();
    *state = NULL;
    LLM42__TRY(llm42__cpu_ieee(error));
    LLM42__TRY(llm42__cpu_validate(desc, threads, error));
    if (!desc->model->layer || !desc->model->embed.data)
        LLM42__FAIL(
            INVALID,
            "model %s has no weights in memory: load a folder or synthetic:NAME, without llm42_model_desc.on_device",
            desc->model->name);
    llm42__cpu *cpu = llm42__alloc_zero(1, sizeof *cpu);
    if (!cpu) LLM42__FAIL(MEMORY, "cpu backend: out of memory");
    cpu->desc = *desc;
    cpu->threads = threads;
    cpu->desc.tensor_parallel = LLM42__MAX(1, desc->tensor_parallel);
    cpu->desc.numerics.leaves = LLM42__MAX(1, desc->numerics.leaves);
    cpu->model = desc->model;
    const bool gpu = desc->numerics.arithmetic > LLM42_ARITHMETIC_FP32;
    cpu->arithmetic = gpu ? &llm42__emulated[desc->numerics.arithmetic] : &llm42__fp32;
    cpu->pad = (desc->model->config.head_dim + 15) & ~15;
    while (1 << cpu->page_shift < desc->page_size) cpu->page_shift++;
    const llm42_config *c = &desc->model->config;
    cpu->work_per_row = (double)c->dim * (c->layers * (2.0 * (c->heads + c->kv_heads) * c->head_dim +
                                                       3.0 * c->ffn * LLM42__MAX(1, c->experts_used)) +
                                          c->vocab);
    if (!llm42__cpu_allocate(cpu)) {
        llm42__cpu_close(cpu);
        LLM42__FAIL(MEMORY,
                    "cpu backend: out of memory for %d pages of %d tokens and %d rows: lower pages, max_context%s or "
                    "token_budget",
                    desc->pages, desc->page_size, desc->max_rows,
                    c->recurrent_layers ? ", max_running, kv.snapshots, window, draft_limit" : "");
    }
    llm42__rope_table(c, false, cpu->rope, desc->max_context);
    if (cpu->query_rope != cpu->rope) llm42__rope_table(c, true, cpu->query_rope, desc->max_context);
    LLM42__LOG_TO(desc, "cpu backend: %s, %d threads, %s%s%s, %d pages of %d tokens", llm42_cpu_isa(), cpu->threads,
                  desc->numerics.compute == LLM42_DTYPE_BF16 ? "bf16" : "fp32", gpu ? " in arithmetic " : "",
                  gpu ? cpu->arithmetic->name : "", desc->pages, desc->page_size);
    *state = cpu;
    return LLM42_OK;
}
static const char *llm42__cpu_arithmetic(void *state) { return ((const llm42__cpu *)state)->arithmetic->name; }
const llm42_backend *llm42_backend_cpu(void) {
    static const llm42_backend backend = {"cpu",          llm42__cpu_open,       llm42__cpu_close,
                                          llm42__cpu_run, llm42__wall_now,       llm42__wall_wait_until,
                                          NULL,           llm42__cpu_arithmetic, NULL};
    return &backend;
}

// >>recurrent ----------------------------------------------------------------------------------------------------
// Owns: the gated delta rule: states of sequences, the rings of rows after them, and snapshots.
// Calls: vectors, team, cpu.
// Invariant: a state has taken in only rows that are final. Whatever is rolled back was in a copy of it.
//
// A value head has a state S [key_dim, value_dim]. A position has a decay a, beta and v, and q and k of a key head. S
// becomes a S, then S + k (beta (v - S^T k))^T, and the output is S^T q. q, k and v are silu of a convolution over four
// positions; q and k are then divided by their lengths, and q by sqrt(key_dim). A ring keeps what later ones need.

static void llm42__recurrent_allocate(llm42__cpu *cpu) {
    const llm42_config *c = &cpu->model->config;
    const size_t R = (size_t)cpu->desc.max_rows, L = (size_t)c->recurrent_layers,
                 running = (size_t)cpu->desc.max_running;
    llm42__recurrence *n = &cpu->recurrence;
    n->channels = 2 * c->key_heads * c->key_dim + c->value_heads * c->value_dim;
    n->width = n->channels + 2 * c->value_heads;
    n->capacity = cpu->desc.behind + LLM42__TAPS;
    n->head = (size_t)(c->key_dim * c->value_dim), n->state = (size_t)c->value_heads * n->head;
    n->ring = (size_t)n->capacity * (size_t)n->width;
    n->snapshot = n->state + (LLM42__TAPS - 1) * (size_t)n->width;
    cpu->mixed = llm42__take(&cpu->memory, R * (size_t)LLM42__MAX(n->width, 2 * c->heads * c->head_dim), 4);
    cpu->states = llm42__take(&cpu->memory, running * L * n->state, 4);
    cpu->behind = llm42__take(&cpu->memory, running * L * n->ring, 4);
    cpu->snapshots = llm42__take(&cpu->memory, (size_t)cpu->desc.snapshots * L * n->snapshot, 4);
    cpu->order = llm42__take(&cpu->memory, R + 1, 4);
}

// The inputs at position t of a sequence: those of its row in the pass, else those in its ring; NULL before the first.
static const float *llm42__recurrent_row(const llm42__cpu *cpu, const float *ring, int first, int t) {
    const llm42__recurrence *n = &cpu->recurrence;
    const int begin = cpu->pass.row[first].position;
    if (t >= begin) return cpu->mixed + (size_t)(first + t - begin) * (size_t)n->width;
    return t < 0 ? NULL : ring + (size_t)(t % n->capacity) * (size_t)n->width;
}

// Channels from `from` on at position t: silu of the convolution. Order: the four terms by fma, the oldest first.
static void llm42__recurrent_convolve(const llm42__cpu *cpu, const float *ring, int first, int t, const float *taps,
                                      int from, int count, float *out) {
    const float *in[LLM42__TAPS];
    for (int j = 0; j < LLM42__TAPS; j++) in[j] = llm42__recurrent_row(cpu, ring, first, t - LLM42__TAPS + 1 + j);
    for (int i = 0; i < count; i++) {
        float sum = 0;
        for (int j = 0; j < LLM42__TAPS; j++)
            sum = in[j] ? fmaf(in[j][from + i], taps[(from + i) * LLM42__TAPS + j], sum) : sum;
        out[i] = llm42__silu(sum);
    }
    llm42__cpu_round_all(cpu, out, (size_t)count);
}

// x [key_dim] is divided by its length, and multiplied by `scale`. Order: that of the arithmetic for a head.
static void llm42__recurrent_unit(const llm42__cpu *cpu, float *x, float scale) {
    const int n = cpu->model->config.key_dim;
    const float length = 1.0f / sqrtf(cpu->arithmetic->head_squares(x, n) + 1e-6f);
    for (int i = 0; i < n; i++) x[i] = x[i] * length * scale;
}

// out [columns] = S^T x. S [n][columns]. Order: term i is added, by fma, to partial sum i modulo 32, in ascending
// order; neighbouring partial sums are added, then neighbours of these, and so on.
LLM42__INLINE void llm42__recurrent_dot(const float *S, const float *x, int n, int columns, float *out) {
    for (int j = 0; j < columns; j += 16) {
        const int some = LLM42__MIN(16, columns - j);
        llm42__v16 level[6];  // of a tree in which sum 2i and sum 2i + 1 give sum i of the next level
        for (int m = 0; m < 32; m++) {
            llm42__v16 sum = llm42__v16_set(0.0f);
            for (int i = m; i < n; i += 32) {
                const float *row = S + (size_t)i * (size_t)columns + j;
                const llm42__v16 s = some < 16 ? llm42__v16_load_part(row, some) : llm42__v16_load(row);
                sum = llm42__v16_fma(s, llm42__v16_set(x[i]), sum);
            }
            int up = 0;
            for (; m >> up & 1; up++) sum = llm42__v16_add(level[up], sum);
            level[up] = sum;
        }
        float whole[16];
        llm42__v16_store(whole, level[5]);
        memcpy(out + j, whole, (size_t)some * sizeof *out);
    }
}

// One position of a head: S takes it in, and out [value_dim] = S^T q.
static void llm42__recurrent_step(const llm42_config *c, float *S, const float *q, const float *k, const float *v,
                                  float beta, float decay, float *delta, float *out) {
    const int n = c->key_dim, columns = c->value_dim;
    for (int i = 0; i < n * columns; i++) S[i] *= decay;
    llm42__recurrent_dot(S, k, n, columns, delta);
    for (int j = 0; j < columns; j++) delta[j] = (v[j] - delta[j]) * beta;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < columns; j++) S[i * columns + j] = fmaf(k[i], delta[j], S[i * columns + j]);
    llm42__recurrent_dot(S, q, n, columns, out);
}

// The positions of a chunk at once, as engines with tensor cores do it, because a sum over its earlier positions, and
// one with S as it was before, are products of matrices. k, q [n][key_dim]; v [n][value_dim], which becomes what each
// position adds to S; decay: logarithms; out [n][stride]; delta [value_dim]. Order: S, then the positions, ascending.
static void llm42__recurrent_chunk(const llm42_config *c, int n, float *S, const float *q, const float *k, float *v,
                                   const float *beta, float *decay, float *delta, float *out, size_t stride) {
    const int K = c->key_dim, V = c->value_dim;
    for (int i = 1; i < n; i++) decay[i] += decay[i - 1];  // since the chunk began
    for (int i = 0; i < 2 * n; i++) {                      // first what positions add, then what they give
        const int at = i % n;
        const float *x = (i < n ? k : q) + at * K, since = llm42__exp(decay[at]);
        float *to = i < n ? v + at * V : out + (size_t)at * stride;
        llm42__recurrent_dot(S, x, K, V, delta);
        for (int j = 0; j < V; j++) to[j] = i < n ? (to[j] - since * delta[j]) * beta[at] : since * delta[j];
        for (int earlier = 0; earlier < at + (i >= n); earlier++) {
            float product = 0;
            for (int d = 0; d < K; d++) product = fmaf(x[d], k[earlier * K + d], product);
            product *= llm42__exp(decay[at] - decay[earlier]) * (i < n ? -beta[at] : 1);
            for (int j = 0; j < V; j++) to[j] = fmaf(product, v[earlier * V + j], to[j]);
        }
    }
    for (int d = 0; d < K; d++) {
        for (int j = 0; j < V; j++) S[d * V + j] *= llm42__exp(decay[n - 1]);
        for (int i = 0; i < n; i++) {
            const float share = k[i * K + d] * llm42__exp(decay[n - 1] - decay[i]);
            for (int j = 0; j < V; j++) S[d * V + j] = fmaf(share, v[i * V + j], S[d * V + j]);
        }
    }
}

// What a value head needs of position t of a sequence: its ring has the inputs before row `first` of the pass.
static void llm42__recurrent_inputs(const llm42__cpu *cpu, const llm42_layer *layer, const float *ring, int first,
                                    int head, int t, float *q, float *k, float *v, float *beta, float *decay) {
    const llm42_config *c = &cpu->model->config;
    const int K = c->key_heads * c->key_dim, at = head / (c->value_heads / c->key_heads) * c->key_dim;
    const float *row = llm42__recurrent_row(cpu, ring, first, t) + cpu->recurrence.channels + head;
    llm42__recurrent_convolve(cpu, ring, first, t, layer->taps, at, c->key_dim, q);
    llm42__recurrent_convolve(cpu, ring, first, t, layer->taps, K + at, c->key_dim, k);
    llm42__recurrent_convolve(cpu, ring, first, t, layer->taps, 2 * K + head * c->value_dim, c->value_dim, v);
    llm42__recurrent_unit(cpu, q, 1.0f / sqrtf((float)c->key_dim));
    llm42__recurrent_unit(cpu, k, 1.0f);
    const float alpha = row[c->value_heads] + layer->alpha_bias[head];
    *beta = llm42__sigmoid(row[0]);
    *decay = layer->decay[head] * (alpha > 20.0f ? alpha : llm42__log_f32(1.0f + llm42__exp(alpha)));
}

// A task is a value head of a sequence. FAST passes run prompts in chunks, up to where a state is copied. Scratch: S,
// q and k [CHUNK][key_dim], v [CHUNK][value_dim], delta and an output that nobody wants [value_dim].
static void llm42__delta_task(const llm42__job *w, int64_t task) {
    llm42__cpu *cpu = w->cpu;
    const llm42_config *c = &cpu->model->config;
    const llm42_layer *layer = &cpu->model->layer[w->layer];
    const llm42__recurrence *n = &cpu->recurrence;
    const int head = (int)(task % c->value_heads), first = cpu->order[task / c->value_heads];
    const int rows = cpu->order[task / c->value_heads + 1] - first, begin = cpu->pass.row[first].position;
    const llm42_seq *seq = &cpu->pass.seq[cpu->pass.row[first].seq];
    const size_t L = (size_t)c->recurrent_layers, cache = (size_t)layer->cache, of_head = (size_t)head * n->head;
    const size_t place = (size_t)cpu->pass.row[first].seq * L + cache, stride = (size_t)(c->value_heads * c->value_dim);
    const bool chunks = cpu->pass.schedule == LLM42_SCHEDULE_FAST && rows >= LLM42__CHUNK / 4;
    float *state = cpu->states + place * n->state + of_head, *S = state, beta[LLM42__CHUNK], decay[LLM42__CHUNK];
    float *own = llm42__cpu_scratch(cpu), *q = own + n->head, *k = q + LLM42__CHUNK * c->key_dim;
    float *v = k + LLM42__CHUNK * c->key_dim, *delta = v + LLM42__CHUNK * c->value_dim;
    if (!seq->state) memset(state, 0, n->head * sizeof *state);
    for (int t = LLM42__MIN(seq->state, begin), save = 0, some; t < begin + rows; t += some) {
        some = chunks && t >= begin ? LLM42__MIN(LLM42__CHUNK, begin + rows - t) : 1;
        if (t < seq->state_to) some = LLM42__MIN(some, seq->state_to - t);
        if (save < seq->saves) some = LLM42__MIN(some, seq->save[save].at - t);
        if (t == seq->state_to) S = memcpy(own, state, n->head * sizeof *own);
        for (int i = 0; i < some; i++)
            llm42__recurrent_inputs(cpu, layer, cpu->behind + place * n->ring, first, head, t + i, q + i * c->key_dim,
                                    k + i * c->key_dim, v + i * c->value_dim, &beta[i], &decay[i]);
        float *out = cpu->attended + (size_t)(first + LLM42__MAX(t - begin, 0)) * stride +
                     (size_t)(head * c->value_dim);
        if (some > 1) llm42__recurrent_chunk(c, some, S, q, k, v, beta, decay, delta, out, stride);
        else
            llm42__recurrent_step(c, S, q, k, v, beta[0], llm42__exp(decay[0]), delta,
                                  t < begin ? delta + c->value_dim : out);
        for (; save < seq->saves && seq->save[save].at == t + some; save++)
            memcpy(cpu->snapshots + ((size_t)seq->save[save].snapshot * L + cache) * n->snapshot + of_head, S,
                   n->head * sizeof *S);
    }
}

// A task is a sequence: its ring gets the rows of the pass, and snapshots get the inputs before their positions.
static void llm42__ring_task(const llm42__job *w, int64_t task) {
    llm42__cpu *cpu = w->cpu;
    const llm42__recurrence *n = &cpu->recurrence;
    const int first = cpu->order[task], rows = cpu->order[task + 1] - first;
    const llm42_row *row = &cpu->pass.row[first];
    const llm42_seq *seq = &cpu->pass.seq[row->seq];
    const size_t L = (size_t)cpu->model->config.recurrent_layers, cache = (size_t)cpu->model->layer[w->layer].cache;
    const size_t width = (size_t)n->width;
    float *ring = cpu->behind + ((size_t)row->seq * L + cache) * n->ring;
    for (int i = 0; i < seq->saves; i++)
        for (int j = 0; j < LLM42__TAPS - 1; j++) {
            const float *from = llm42__recurrent_row(cpu, ring, first, seq->save[i].at - LLM42__TAPS + 1 + j);
            float *to = cpu->snapshots + ((size_t)seq->save[i].snapshot * L + cache) * n->snapshot + n->state;
            if (from) memcpy(to + (size_t)j * width, from, width * sizeof *to);
        }
    for (int i = LLM42__MAX(0, rows - n->capacity); i < rows; i++)
        if (!(row[i].flags & LLM42_ROW_KEEP_KV))
            memcpy(ring + (size_t)(row[i].position % n->capacity) * width, cpu->mixed + (size_t)(first + i) * width,
                   width * sizeof *ring);
}

// A task is a row: heads' outputs are normed and multiplied by silu(z).
static void llm42__leave_task(const llm42__job *w, int64_t r) {
    const llm42__cpu *cpu = w->cpu;
    const llm42_config *c = &cpu->model->config;
    const size_t values = (size_t)(c->value_heads * c->value_dim), at = (size_t)r * values;
    float *out = cpu->attended + at;
    llm42__cpu_round_all(cpu, out, values);
    llm42__cpu_norm(cpu, out, c->value_heads, c->value_dim, cpu->arithmetic->head_squares, w->weight, out);
    for (size_t i = 0; i < values; i++) out[i] *= llm42__silu(cpu->gates[at + i]);
    llm42__cpu_round_all(cpu, out, values);
}

// If a sequence begins with a snapshot, copies that into the layer's state and ring.
static void llm42__recurrent_restore(llm42__cpu *cpu, int slot, size_t cache) {
    const llm42_seq *seq = &cpu->pass.seq[slot];
    const llm42__recurrence *n = &cpu->recurrence;
    const size_t L = (size_t)cpu->model->config.recurrent_layers, width = (size_t)n->width;
    if (!seq->restore) return;
    const float *from = cpu->snapshots + ((size_t)(seq->restore - 1) * L + cache) * n->snapshot;
    float *ring = cpu->behind + ((size_t)slot * L + cache) * n->ring;
    memcpy(cpu->states + ((size_t)slot * L + cache) * n->state, from, n->state * sizeof *from);
    for (int j = 1; j < LLM42__TAPS; j++)
        if (seq->state >= j)
            memcpy(ring + (size_t)((seq->state - j) % n->capacity) * width,
                   from + n->state + (size_t)(LLM42__TAPS - 1 - j) * width, width * sizeof *from);
}

// Shapes: h [R, D] -> cpu->attended [R, Hv*value_dim]. Work: threads share the value heads of the pass's sequences.
// Order: that of llm42__recurrent_dot, token by token; for prompts in FAST passes that of llm42__recurrent_chunk.
static void llm42__cpu_recurrent(llm42__cpu *cpu, int l) {
    const llm42_config *c = &cpu->model->config;
    const llm42_layer *layer = &cpu->model->layer[l];
    const int ranks = cpu->desc.tensor_parallel, R = cpu->pass.rows;
    const int Hv = c->value_heads, width = cpu->recurrence.width;
    float *beta = cpu->mixed + cpu->recurrence.channels;
    const llm42__product products[] = {
        {.w = &layer->qkv, .y = cpu->mixed, .stride = width, .ranks = ranks, .k = c->dim},
        {.w = &layer->beta, .y = beta, .stride = width, .ranks = ranks, .k = c->dim},
        {.w = &layer->alpha, .y = beta + Hv, .stride = width, .ranks = ranks, .k = c->dim},
        {.w = &layer->z, .y = cpu->gates, .ranks = ranks, .k = c->dim}};
    llm42__cpu_matmul(cpu, cpu->h, R, products, 4);
    int sequences = 0;
    for (int r = 0; r < R; r++)
        if (!r || cpu->pass.row[r].seq != cpu->pass.row[r - 1].seq) cpu->order[sequences++] = r;
    cpu->order[sequences] = R;
    for (int i = 0; i < sequences; i++)
        llm42__recurrent_restore(cpu, cpu->pass.row[cpu->order[i]].seq, (size_t)layer->cache);
    const llm42__job job = {.cpu = cpu, .layer = l, .weight = layer->head_norm};
    const double work = 6.0 * R * (double)cpu->recurrence.state;
    llm42__team_run(&cpu->team, work, (int64_t)sequences * Hv, 1, llm42__delta_task, &job);
    llm42__team_run(&cpu->team, (double)R * width, sequences, 1, llm42__ring_task, &job);
    llm42__team_run(&cpu->team, 16.0 * R * (double)(Hv * c->value_dim), R, 1, llm42__leave_task, &job);
}

void llm42_follow_rows(llm42_seq *seq, const llm42_row *row, int rows) {
    for (int r = 0; r < rows; r++) {
        if (!r || row[r].seq != row[r - 1].seq) seq[row[r].seq].state = row[r].position;
        seq[row[r].seq].state_to = row[r].position + 1;
    }
}

size_t llm42_state_bytes(const llm42_config *c) {
    const size_t values = (size_t)(c->value_heads * c->value_dim);
    const size_t width = (size_t)(2 * c->key_heads * c->key_dim + 2 * c->value_heads) + values;
    return 4 * (size_t)c->recurrent_layers * ((size_t)c->key_dim * values + (LLM42__TAPS - 1) * width);
}

// >>fp32 ---------------------------------------------------------------------------------------------------------
// Owns: the arithmetic fp32: fused multiply-adds in fp32, whatever the type of the weights.
// Calls: vectors, cpu.
// Invariant: sums have the one order (section vectors), but products and attention cut theirs into parts first.

// One weight vector of 16 values at element i, at most `left` of them real.
LLM42__INLINE llm42__v16 llm42__weight_load(const void *w, bool bf16, size_t i, int left) {
    if (left >= 16) return bf16 ? llm42__v16_load_bf16((const uint16_t *)w + i) : llm42__v16_load((const float *)w + i);
    if (!bf16) return llm42__v16_load_part((const float *)w + i, left);
    uint16_t part[16] = {0};
    memcpy(part, (const uint16_t *)w + i, (size_t)left * sizeof *part);
    return llm42__v16_load_bf16(part);
}

// rn rows by on outputs, rn * on = 16. Lane r * on + o of the result is the sum of x[r][i] * w[o][i] over k0 <= i < k1,
// by the one order. If fewer rows or outputs are wanted, pointers repeat. The weight vector that is wanted next lies
// `ahead` bytes beyond each one. AVX-512 has registers for all sixteen sums at once, other instruction sets for four.
LLM42__INLINE llm42__v16 llm42__tile(int rn, int on, const float *const *x, const void *const *w, bool bf16, bool fetch,
                                     int k0, int k1, size_t ahead) {
    enum { LIVE = LLM42__ISA == 2 ? 16 : 4 };
    const int group = LIVE / rn;
    llm42__v16 sum[16], a[4];
    LLM42__UNROLLED(int i = 0; i < 16; i++) sum[i] = llm42__v16_set(0.0f);
    LLM42__UNROLLED(int o0 = 0; o0 < on; o0 += group) {
        int i = k0;
        for (; i + 16 <= k1; i += 16) {
            LLM42__UNROLLED(int r = 0; r < rn; r++) a[r] = llm42__v16_load(x[r] + i);
            LLM42__UNROLLED(int o = o0; o < o0 + group; o++) {
                llm42__v16 b = llm42__weight_load(w[o], bf16, (size_t)i, 16);
                if (fetch) LLM42__PREFETCH(w[o], ahead + (bf16 ? 2 : 4) * (size_t)i);
                LLM42__UNROLLED(int r = 0; r < rn; r++) sum[r * on + o] = llm42__v16_fma(a[r], b, sum[r * on + o]);
            }
        }
        if (i == k1) continue;
        LLM42__UNROLLED(int r = 0; r < rn; r++) a[r] = llm42__v16_load_part(x[r] + i, k1 - i);
        LLM42__UNROLLED(int o = o0; o < o0 + group; o++) {
            llm42__v16 b = llm42__weight_load(w[o], bf16, (size_t)i, k1 - i);
            LLM42__UNROLLED(int r = 0; r < rn; r++) sum[r * on + o] = llm42__v16_fma(a[r], b, sum[r * on + o]);
        }
    }
    return llm42__v16_sum16(sum);
}

// The tiles in use, each compiled on its own so that its sums stay in registers.
typedef llm42__v16 llm42__microkernel(const float *const *x, const void *const *w, int k0, int k1, size_t ahead);
#define LLM42__TILE(rn, on, name, bf16, fetch)                                                                        \
    static llm42__v16 llm42__tile_##name(const float *const *x, const void *const *w, int k0, int k1, size_t ahead) { \
        return llm42__tile(rn, on, x, w, bf16, fetch, k0, k1, ahead);                                                 \
    }
LLM42__TILE(1, 16, 1x16_bf16, true, true)
LLM42__TILE(1, 16, 1x16_fp32, false, true)
LLM42__TILE(2, 8, 2x8_bf16, true, true)
LLM42__TILE(2, 8, 2x8_fp32, false, false)
LLM42__TILE(4, 4, 4x4_bf16, true, true)
LLM42__TILE(4, 4, 4x4_fp32, false, false)

// Of one row, two and four: weights in fp32, and in bf16.
static llm42__microkernel *const llm42__tiles[2][3] = {
    {llm42__tile_1x16_fp32, llm42__tile_2x8_fp32, llm42__tile_4x4_fp32},
    {llm42__tile_1x16_bf16, llm42__tile_2x8_bf16, llm42__tile_4x4_bf16}};

// Rows r0 <= r < r1, `tall` (1, 2 or 4) at a time, outputs n0 <= n < n0 + count (at most 16). Parts are added in order.
static void llm42__fp32_tiles(const llm42__cpu *cpu, int tall, const float *x, int r0, int r1, const llm42__product *p,
                              int n0, int count, int parts, float *panel) {
    const int K = p->w->k, k = p->k, wide = 16 / tall, step = ((k + parts - 1) / parts + 15) & ~15;
    const bool bf16 = p->w->type == LLM42_DTYPE_BF16, widen = bf16 && r1 - r0 >= 16;
    const size_t size = bf16 ? 2 : 4, stride = (size_t)K * size, ahead = (size_t)wide * stride;
    const char *matrix = (const char *)p->w->data + (size_t)p->k0 * size;
    llm42__microkernel *tile = llm42__tiles[bf16 && !widen][tall / 2];
    for (int o0 = 0; o0 < count; o0 += wide) {
        const void *w[16];
        const int outputs = LLM42__MIN(wide, count - o0);
        for (int o = 0; o < wide; o++) {  // a missing output repeats the last one
            w[o] = matrix + (size_t)(n0 + o0 + LLM42__MIN(o, outputs - 1)) * stride;
            if (!widen) continue;
            llm42__convert_f32(panel + (size_t)o * (size_t)k, w[o], LLM42_DTYPE_BF16, (size_t)k);
            w[o] = panel + (size_t)o * (size_t)k;
        }
        const char *next = matrix + (size_t)(n0 + o0) * stride + ahead;
        const size_t slice = widen ? ahead * (size_t)tall / (size_t)(r1 - r0) : 0;
        for (int r = r0; r < r1; r += tall, next += slice) {
            const float *xr[4];
            float lane[16];
            for (size_t byte = 0; byte < slice; byte += 64) LLM42__PREFETCH(next, byte);
            for (int j = 0; j < tall; j++) xr[j] = x + (size_t)LLM42__MIN(r + j, r1 - 1) * (size_t)K + p->k0;
            llm42__v16 sum = tile(xr, w, 0, LLM42__MIN(step, k), ahead);
            for (int k0 = step; k0 < k; k0 += step)
                sum = llm42__v16_add(sum, tile(xr, w, k0, LLM42__MIN(k0 + step, k), ahead));
            llm42__v16_store(lane, sum);
            for (int j = 0; j < tall && r + j < r1; j++)
                llm42__cpu_put(cpu, p, n0 + o0, outputs, r + j, 1, lane + j * wide);
        }
    }
}

// Sixteen outputs from n0 on, for every row: four rows at a time (three count as four), then the last one or two.
// Order: the one order in each part of k, then the parts one after the other.
static void llm42__fp32_block(const llm42__cpu *cpu, const float *x, int rows, const llm42__product *p, int n0,
                              int parts, float *panel) {
    int count = LLM42__MIN(16, p->w->n - n0), rest = rows % 4 == 3 ? 0 : rows % 4, quads = rows - rest;
    if (quads) llm42__fp32_tiles(cpu, 4, x, 0, quads, p, n0, count, parts, panel);
    if (rest) llm42__fp32_tiles(cpu, rest, x, quads, rows, p, n0, count, parts, panel);
}

// Shapes: q [pad] of one head, scores [stop - begin], out [pad], to be divided by the sum of weights that is returned.
// Order: sums over d (scores), and over positions (weights, weighted v), each by the one order. Positions outside the
// span have weight 0. (The context is a copy, for registers: a vector store may change what a pointer points to.)
LLM42__INLINE float llm42__fp32_span(llm42__context c, bool bf16, llm42__span s, const float *q, float *scores,
                                     float *out, float *largest) {
    const llm42__cpu *cpu = c.cpu;
    const llm42_config *config = &cpu->model->config;
    const float scale = config->attention_scale > 0 ? config->attention_scale : 1.0f / sqrtf((float)config->head_dim);
    float tops[16], weights[16] = {0};
    llm42__microkernel *keys = bf16 ? llm42__tile_1x16_bf16 : llm42__tile_1x16_fp32;
    const void *at[16];
    size_t width = bf16 ? 2 : 4;
    for (int j = 0; j < 16; j++) tops[j] = -INFINITY;
    for (int t0 = s.begin; t0 < s.stop; t0 += 16) {
        float *score = scores + (t0 - s.begin);
        llm42__cpu_addresses(&c, c.k, width, s, t0, at);
        llm42__v16_store(score, keys(&q, at, 0, cpu->pad, 0));
        for (int j = 0; j < 16; j++) {
            score[j] *= scale;
            tops[j] = score[j] > tops[j] ? score[j] : tops[j];
        }
    }
    float top = tops[0];
    for (int j = 1; j < 16; j++) top = tops[j] > top ? tops[j] : top;
    *largest = top;
    for (int t0 = s.begin; t0 < s.stop; t0 += 16) {
        float *score = scores + (t0 - s.begin);
        for (int j = 0; j < 16; j++) {
            float weight = llm42__exp(score[j] - top);
            score[j] = t0 + j >= s.first && t0 + j < s.end ? weight : 0.0f;
            weights[j] += score[j];
        }
    }
    for (int i = 0; i < cpu->pad; i += 16) {
        llm42__v16 sum[16];
        LLM42__UNROLLED(int j = 0; j < 16; j++) sum[j] = llm42__v16_set(0.0f);
        for (int t0 = s.begin; t0 < s.stop; t0 += 16) {
            const float *score = scores + (t0 - s.begin);
            llm42__cpu_addresses(&c, c.v, width, s, t0, at);
            LLM42__UNROLLED(int j = 0; j < 16; j++)
                sum[j] = llm42__v16_fma(llm42__v16_set(score[j]), llm42__weight_load(at[j], bf16, (size_t)i, 16),
                                        sum[j]);
        }
        LLM42__UNROLLED(int j = 0; j < 8; j++) sum[j] = llm42__v16_add(sum[j], sum[j + 8]);
        LLM42__UNROLLED(int j = 0; j < 4; j++) sum[j] = llm42__v16_add(sum[j], sum[j + 4]);
        llm42__v16_store(out + i, llm42__v16_add(llm42__v16_add(sum[0], sum[2]), llm42__v16_add(sum[1], sum[3])));
    }
    return llm42__v16_sum(llm42__v16_load(weights));
}

enum { LLM42__INVARIANT_CONTEXT = 256 };  // context tokens in a part of an INVARIANT attention sum

// One row and head. The context is cut into parts p, each with its own largest score, top_p. They are merged in order:
//   out = sum of e^(top_p - top) out_p / sum of e^(top_p - top) weights_p
static void llm42__fp32_attend(const llm42__context *c, int heads, const float *q, float *out, float *scratch) {
    const llm42__cpu *cpu = c->cpu;
    const int d = cpu->model->config.head_dim, first = c->first, end = c->end;
    const bool bf16 = cpu->desc.numerics.compute == LLM42_DTYPE_BF16;
    const llm42_schedule schedule = cpu->pass.schedule;
    const bool invariant = schedule == LLM42_SCHEDULE_INVARIANT;
    const int unit = invariant ? LLM42__INVARIANT_CONTEXT : 16, begin = first / unit * unit;
    const int parts = llm42_cpu_splits(schedule, cpu->pass.shape, 0, end - begin);
    const int step = invariant ? unit : ((end - begin + parts - 1) / parts + 15) & ~15;
    (void)heads;  // one, because .by_kv_head is false
    float *padded = scratch, *part = padded + cpu->pad, *merged = part + cpu->pad, *scores = merged + cpu->pad;
    for (int i = 0; i < cpu->pad; i++) padded[i] = i < d ? q[i] : 0.0f;
    float top = -INFINITY, total = 0;
    for (int b = begin; b < end; b += step) {
        int stop = LLM42__MIN(b + step, (end + 15) & ~15);
        llm42__span span = {LLM42__MAX(first, b), LLM42__MIN(end, stop), LLM42__MAX(b, first & ~15), stop};
        float largest, weights = bf16 ? llm42__fp32_span(*c, true, span, padded, scores, part, &largest)
                                      : llm42__fp32_span(*c, false, span, padded, scores, part, &largest);
        bool alone = b == begin;  // the first part has nothing to be merged with
        float highest = largest > top ? largest : top;
        float rescale = alone ? 0.0f : llm42__exp(top - highest), new_scale = llm42__exp(largest - highest);
        for (int i = 0; i < cpu->pad; i++) merged[i] = alone ? part[i] : fmaf(merged[i], rescale, part[i] * new_scale);
        total = alone ? weights : fmaf(total, rescale, weights * new_scale);
        top = highest;
    }
    float inverse = 1.0f / total;
    for (int i = 0; i < d; i++) out[i] = merged[i] * inverse;
    llm42__cpu_round_all(cpu, out, (size_t)d);
}

// Weights of one chain, output by output.
static void llm42__fp32_e4m3_fill(const uint8_t *const w[16], int terms, llm42__e4m3_panel *panel) {
    memset(panel->value, 0, 16 * LLM42__BLOCK * sizeof *panel->value);
    for (int o = 0; o < 16; o++)
        for (int i = 0; i < terms; i++) panel->value[LLM42__BLOCK * o + i] = llm42__from_e4m3(w[o][i]);
}

// Order: the one order.
static void llm42__fp32_e4m3_chain(const float *x, const int8_t *exponent, size_t stride, int rows,
                                   const llm42__e4m3_panel *panel, float *sums) {
    const void *w[16];
    (void)exponent;
    for (int o = 0; o < 16; o++) w[o] = panel->value + LLM42__BLOCK * o;
    for (int r = 0; r < rows; r++, x += stride)
        llm42__v16_store(sums + 16 * r, llm42__tile_1x16_fp32(&x, w, 0, LLM42__BLOCK, 0));
}

static void llm42__fp32_gate(float *gate, const float *up, size_t n) {
    for (size_t i = 0; i < n; i++) gate[i] = gate[i] / (1.0f + llm42__exp(-gate[i])) * up[i];
}

// clang-format off
static const llm42__arithmetic llm42__fp32 = {
    .name = "fp32", .block = llm42__fp32_block,
    .fill = llm42__fp32_e4m3_fill, .chain = llm42__fp32_e4m3_chain,
    .attend = llm42__fp32_attend, .gate = llm42__fp32_gate,
    .squares = llm42__sum_squares, .head_squares = llm42__sum_squares,
    .route_total = llm42__sum_exp, .sum_exp = llm42__sum_exp};
// clang-format on

// >>calibrated ---------------------------------------------------------------------------------------------------
// Owns: the times and flip rates that a calibration gives.
// Calls: nothing.
// Invariant: in a table and beyond it, more context never takes less time. From one number of rows in the table to the
// next the time falls by at most a quarter, and to the last one not at all.

// Index of the last of the ascending x that is at most value; 0 if there is none.
static int llm42__step_of(const double *x, int n, double value) {
    int i = 0;
    while (i + 1 < n && value >= x[i + 1]) i++;
    return i;
}

// The value at x[i] and y: linear between the table's y, and beyond them as between the two that are nearest.
static double llm42__table_at(const llm42_table *t, int i, double y) {
    const int k = llm42__step_of(t->y, t->ys - 1, y);
    const double *value = t->value + i * t->ys + k;
    return t->ys == 1 ? *value : value[0] + (y - t->y[k]) / (t->y[k + 1] - t->y[k]) * (value[1] - value[0]);
}
// The same of pass times. Where the lines of two numbers of rows cross, beyond the table, the later one is raised.
static double llm42__cost_at(const llm42_table *t, int row, double context) {
    double ms = 0;
    for (int i = context < t->y[0] || context > t->y[t->ys - 1] ? 0 : row; i <= row; i++)
        ms = LLM42__MAX(llm42__table_at(t, i, context), (i == t->xs - 1 ? 1 : 0.75) * ms);
    return ms;
}

// Bilinear within the table, and linear beyond its ends unless times would fall there. Below the smallest number of
// rows the time is constant, because there it is that of reading the weights.
static double llm42__cost_ms(const llm42_table *t, double rows, double context) {
    const int i = llm42__step_of(t->x, t->xs - 1, rows), last = t->xs - 1;
    const double low = llm42__cost_at(t, i, context);
    if (last == 0 || rows < t->x[0]) return low;
    const double high = llm42__cost_at(t, i + 1, context), r = (rows - t->x[i]) / (t->x[i + 1] - t->x[i]);
    if (rows <= t->x[last]) return low + r * (high - low);
    // Beyond the last rows the time grows as between the last two: at this context, or at a smaller one of the table
    // where that is more. Else times would fall along the context there.
    const double *end = t->value + last * t->ys, *before = end - t->ys;
    double growth = llm42__table_at(t, last, context) - llm42__table_at(t, last - 1, context);
    if (context < t->y[0]) growth = LLM42__MAX(LLM42__MIN(growth, end[0] - before[0]), 0);
    for (int k = 0; k < t->ys && t->y[k] < context; k++) growth = LLM42__MAX(growth, end[k] - before[k]);
    return growth == high - low ? low + r * growth : high + (r - 1) * growth;
}

// The number of rows to which the device pads a pass. Beyond the last of the calibration's numbers the last step goes
// on. A FIXED pass is padded to its shape, which the caller counts in `rows`.
static double llm42__padded_rows(const llm42_calibration *c, llm42_schedule schedule, double rows) {
    const int n = schedule == LLM42_SCHEDULE_FIXED ? 0 : c->pass_sizes;
    for (int i = 0; i < n; i++)
        if (c->pass_rows[i] >= rows) return c->pass_rows[i];
    if (n < 2) return rows;
    const double last = c->pass_rows[n - 1], step = last - c->pass_rows[n - 2];
    return last + ceil((rows - last) / step) * step;
}

static const llm42_table *llm42__cost_table(const llm42_calibration *c, llm42_schedule schedule, llm42_kind kind) {
    const bool known = (unsigned)schedule < LLM42_SCHEDULE_COUNT && (unsigned)kind < LLM42_KIND_COUNT;
    return known && c->cost[schedule][kind].xs ? &c->cost[schedule][kind] : NULL;
}

// llm42_calibration_ms, if the device pads the pass to so many rows. Rows that pad it attend to nothing.
static double llm42__padded_ms(const llm42_table *t, double rows, double padded, double context) {
    if (!t || !(rows >= 0 && rows < 1e18 && context >= 0 && context < 1e18)) return (double)NAN;
    const double ms = llm42__cost_ms(t, rows, context);
    return padded > rows ? LLM42__MAX(ms, llm42__cost_ms(t, padded, context * rows / padded)) : ms;
}

// What context adds to the time of windows. It is no less than for fewer rows, although measured tables may say so.
static double llm42__attention_ms(const llm42_table *t, double rows, double context) {
    double ms = llm42__cost_ms(t, rows, context) - llm42__cost_ms(t, rows, 0);
    for (int i = 0; i < t->xs && t->x[i] <= rows; i++)
        ms = LLM42__MAX(ms, llm42__cost_at(t, i, context) - llm42__cost_at(t, i, 0));
    return ms;
}

double llm42_calibration_ms(const llm42_calibration *c, llm42_schedule schedule, llm42_kind kind, double rows,
                            double context) {
    const double padded = llm42__padded_rows(c, schedule, rows);
    return llm42__padded_ms(llm42__cost_table(c, schedule, kind), rows, padded, context);
}

// Microseconds of one exchange of so many rows among so many ranks. Linear between the rows of the table, and beyond
// its last ones; below its first ones constant. NAN: the table has no such number of ranks.
static double llm42__exchange_us(const llm42_table *t, int ranks, double rows) {
    const int i = llm42__step_of(t->x, t->xs, ranks);
    if (ranks == 1) return 0;
    if (!t->xs || t->x[i] != ranks) return (double)NAN;
    return LLM42__MAX(0, llm42__table_at(t, i, LLM42__MAX(rows, t->y[0])));
}

double llm42_calibration_ranks_ms(const llm42_calibration *c, llm42_schedule schedule, double ms, double rows,
                                  int ranks, int layers) {
    if (ranks == c->devices) return ms;
    rows = llm42__padded_rows(c, schedule, rows);
    double own = (double)NAN, other = (double)NAN;  // the exchanges of .devices, and those of `ranks`
    for (int plain = schedule != LLM42_SCHEDULE_INVARIANT; plain < 2 && isnan(own + other); plain++) {
        const llm42_table *exchange = plain ? &c->exchange : &c->invariant_exchange;
        own = 2e-3 * layers * llm42__exchange_us(exchange, c->devices, rows);
        other = 2e-3 * layers * llm42__exchange_us(exchange, ranks, rows);
    }
    const double divided = ms - own - c->undivided_ms;
    return LLM42__MIN(ms, c->undivided_ms) + LLM42__MAX(0, divided) * c->devices / ranks + other;
}

// A step function, because the order of sums changes at certain numbers of rows and is the same between them.
double llm42_calibration_flip_rate(const llm42_calibration *c, double fast_rows, double replay_rows) {
    const llm42_table *t = &c->flips;
    if (!t->xs) return 0;
    return t->value[llm42__step_of(t->x, t->xs, fast_rows) * t->ys + llm42__step_of(t->y, t->ys, replay_rows)];
}
// >>sim ----------------------------------------------------------------------------------------------------------
// Owns: the virtual clock, and a pass's tokens. No KV: a true token depends only on its request and position.
// Calls: calibrated.
// Invariant: only a FAST pass returns a token that is not the true one.

// What the tokens of a request depend on. Kept by the request's slot.
typedef struct llm42__sim_request {
    int64_t id;  // -1: none yet
    uint64_t key;
    double flips;  // multiplies the flip rate; the mean over requests is the desc's flip_scale
} llm42__sim_request;

typedef struct llm42__sim {
    llm42_sim_desc desc;
    const llm42_config *config;
    int max_running, max_rows, replay_rows, ranks;
    double now;                    // seconds
    llm42__sim_request request[];  // [max_running]
} llm42__sim;

// A draw from the gamma distribution with this shape and mean 1 (Marsaglia and Tsang, 2000), from hashes of the key.
static double llm42__sim_gamma(uint64_t key, double shape) {
    double boost = 1, mean = shape;
    if (shape < 1) {  // Gamma(a) = Gamma(a + 1) U^(1/a)
        boost = llm42_exp64(llm42_log64(1 - llm42_uniform(llm42__hash(key))) / shape);
        shape += 1;
    }
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (uint64_t i = 1;; i += 3) {
        double u = 1 - llm42_uniform(llm42__hash(key + i)), v = llm42_uniform(llm42__hash(key + i + 1)), sine, cosine;
        llm42_sincos(6.283185307179586 * v, &sine, &cosine);
        double x = sqrt(-2 * llm42_log64(u)) * cosine, w = 1 + c * x;
        if (w <= 0) continue;
        w = w * w * w;
        double accept = llm42_log64(1 - llm42_uniform(llm42__hash(key + i + 2)));
        if (accept < 0.5 * x * x + d - d * w + d * llm42_log64(w)) return boost * d * w / mean;
    }
}
static int32_t llm42__sim_true(uint64_t hash, int vocab) { return (int32_t)((hash >> 32) * (uint64_t)vocab >> 32); }

int32_t llm42_sim_token(uint64_t seed, int vocab, int64_t key, int position) {
    const uint64_t of_request = llm42__hash((seed ? seed : 42) ^ llm42__hash((uint64_t)key));
    return llm42__sim_true(llm42__hash(of_request ^ (uint64_t)(uint32_t)position), vocab);
}

static llm42_output llm42__sim_token(llm42__sim *sim, const llm42_pass *pass, const llm42_row *row, double rate) {
    const int64_t id = pass->seq[row->seq].request;
    llm42__sim_request *r = &sim->request[row->seq < sim->max_running ? row->seq : 0];
    if (r->id != id) {
        const uint64_t key = llm42__hash(sim->desc.seed ^ llm42__hash((uint64_t)id));
        const double gamma = llm42__sim_gamma(llm42__hash(key ^ 0x6a), sim->desc.calibration->flip_shape);
        *r = (llm42__sim_request){id, key, sim->desc.flip_scale * gamma};
    }
    uint64_t h = llm42__hash(r->key ^ (uint64_t)(uint32_t)row->position);
    const int32_t token = llm42__sim_true(h, sim->config->vocab);
    const double draw = llm42_uniform(llm42__hash(h ^ (uint64_t)(uint32_t)pass->shape << 32));
    const bool wrong = rate > 0 && draw < rate * r->flips;
    if (pass->margins) pass->margins[row - pass->row] = (float)draw;
    return (llm42_output){wrong ? (token + 1) % sim->config->vocab : token, -1.0f};
}

// Seconds that a pass takes alone. For each kind of row in it, the calibration has the time of a pass of the same size
// with rows of that kind only. The mean, weighted by rows, is the device's part, which ranks may share. The host's work
// is added. Each window reads keys and values for itself, so attention takes as long as that of as many whole windows.
static double llm42__sim_estimate(void *state, const llm42_mix *mix) {
    const llm42__sim *sim = state;
    const llm42_calibration *c = sim->desc.calibration;
    const bool slowed = mix->schedule == LLM42_SCHEDULE_INVARIANT && sim->desc.invariant_slowdown > 0;
    const llm42_schedule schedule = slowed ? LLM42_SCHEDULE_FAST : mix->schedule;
    double total = 0, ms = 0, host = mix->windows * c->host_ms[LLM42_KIND_WINDOW];
    for (int k = 0; k < LLM42_KIND_COUNT; k++) total += mix->rows[k];
    // The device pads no pass to more rows than the engine's largest pass has.
    const double padded = LLM42__MAX(total, LLM42__MIN(llm42__padded_rows(c, schedule, total), sim->max_rows));
    for (int k = 0; k < LLM42_KIND_COUNT; k++) {
        if (!mix->rows[k]) continue;
        const double part = mix->rows[k] / total, x = mix->context[k];
        const double whole = k == LLM42_KIND_WINDOW ? mix->windows / part * c->window_rows : 0;
        const llm42_table *t = llm42__cost_table(c, schedule, (llm42_kind)k);
        for (int from = LLM42_SCHEDULE_INVARIANT; !t && whole > 0 && from > LLM42_SCHEDULE_FAST; from--)
            t = llm42__cost_table(c, (llm42_schedule)from, (llm42_kind)k);
        if (k == LLM42_KIND_WINDOW && !t) t = llm42__cost_table(c, schedule, LLM42_KIND_PROMPT);
        double alone = llm42__padded_ms(t, total, padded, x);
        if (t && whole > total)
            alone = LLM42__MAX(alone, llm42__padded_ms(t, total, padded, 0) + llm42__attention_ms(t, whole, x));
        ms += part * alone;
        if (k != LLM42_KIND_WINDOW) host += c->host_ms[k];
    }
    if (total != 0) ms = llm42_calibration_ranks_ms(c, schedule, ms, total, sim->ranks, sim->config->layers);
    return 1e-3 * ((slowed ? sim->desc.invariant_slowdown : 1) * ms + host);
}
// The same of a pass. Rows that pad a FIXED pass count as rows that attend to nothing.
static double llm42__sim_cost(llm42__sim *sim, const llm42_pass *pass) {
    llm42_mix mix = {.schedule = pass->schedule};
    double keys[LLM42_KIND_COUNT] = {0};
    for (int first = 0, end; first < pass->rows; first = end) {
        const llm42_row *row = &pass->row[first];
        for (end = first + 1; end < pass->rows && pass->row[end].seq == row->seq;) end++;
        llm42_kind kind = row->flags & LLM42_ROW_SAMPLE ? LLM42_KIND_WINDOW : LLM42_KIND_PROMPT;
        if (end == first + 1 && pass->schedule != LLM42_SCHEDULE_FIXED) kind = LLM42_KIND_DECODE;
        mix.windows += kind == LLM42_KIND_WINDOW;
        mix.rows[kind] += end - first;
        keys[kind] += (end - first) * (0.5 * (row->position + pass->row[end - 1].position) + 1);
    }
    if (pass->schedule == LLM42_SCHEDULE_FIXED && !sim->desc.calibration->padding_free)
        mix.rows[mix.rows[LLM42_KIND_WINDOW] > 0 ? LLM42_KIND_WINDOW : LLM42_KIND_PROMPT] += pass->shape - pass->rows;
    for (int k = 0; k < LLM42_KIND_COUNT; k++) mix.context[k] = mix.rows[k] ? keys[k] / mix.rows[k] : 0;
    return llm42__sim_estimate(sim, &mix);
}

static llm42_result llm42__sim_run(void *state, const llm42_pass *pass, llm42_error *error) {
    llm42__sim *sim = state;
    if (pass->logits) LLM42__FAIL(UNSUPPORTED, "sim backend: it has no logits");
    if (pass->schedule < LLM42_SCHEDULE_FAST || pass->schedule > LLM42_SCHEDULE_INVARIANT)
        LLM42__FAIL(UNSUPPORTED, "sim backend: schedule %s has no pass times", llm42_schedule_name(pass->schedule));
    const bool flips = pass->schedule == LLM42_SCHEDULE_FAST && !sim->desc.no_flips;
    double rate = flips ? llm42_calibration_flip_rate(sim->desc.calibration, pass->shape, sim->replay_rows) : 0;
    if (!pass->check) sim->now += llm42__sim_cost(sim, pass);
    for (int i = 0; i < pass->rows; i++)
        if (pass->row[i].flags & LLM42_ROW_SAMPLE) pass->out[i] = llm42__sim_token(sim, pass, &pass->row[i], rate);
    return LLM42_OK;
}

static void llm42__sim_wait_until(void *state, double seconds) {
    llm42__sim *sim = state;
    if (seconds > sim->now) sim->now = seconds;
}
static double llm42__sim_now(void *state) { return ((llm42__sim *)state)->now; }

static llm42_result llm42__sim_open(void **state, const llm42_backend_desc *d, llm42_error *error) {
    *state = NULL;
    const llm42_sim_desc *given = d->backend_desc;
    if (!given) LLM42__FAIL(INVALID, "llm42_engine_desc.backend_desc: backend sim needs an llm42_sim_desc");
    if (!given->calibration) LLM42__FAIL(INVALID, "llm42_sim_desc.calibration: required: see llm42_calibration_load");
    llm42_sim_desc desc = *given;
    if (!desc.seed) desc.seed = 42;
    if (desc.flip_scale == 0) desc.flip_scale = 1;
    if (!(desc.flip_scale > 0 && desc.flip_scale <= 1e6))
        LLM42__FAIL(INVALID, "llm42_sim_desc.flip_scale: %g: must be more than 0 and at most 1e6", desc.flip_scale);
    if (!(desc.invariant_slowdown >= 0 && desc.invariant_slowdown <= 1e6))
        LLM42__FAIL(INVALID, "llm42_sim_desc.invariant_slowdown: %g: must be 0 (as calibrated), or at most 1e6",
                    desc.invariant_slowdown);
    const llm42_calibration *c = desc.calibration;
    const int ranks = LLM42__MAX(1, d->tensor_parallel), devices = c->devices;
    if (isnan(llm42_calibration_ranks_ms(c, LLM42_SCHEDULE_FAST, 1, 1, ranks, 1)))
        LLM42__FAIL(UNSUPPORTED,
                    "llm42_engine_desc.tensor_parallel: %d: calibration %s has times of %d device%s and no exchanges "
                    "of %d ranks: take %d, or add them",
                    ranks, c->name, devices, devices > 1 ? "s" : "", ranks > 1 ? ranks : devices, devices);
    const int slots = LLM42__MAX(1, d->max_running);
    llm42__sim *sim = llm42__alloc_zero(1, sizeof *sim + (size_t)slots * sizeof *sim->request);
    if (!sim) LLM42__FAIL(MEMORY, "sim backend: out of memory");
    sim->desc = desc, sim->max_running = slots;
    sim->max_rows = LLM42__MAX(d->max_rows, d->fixed_rows);
    sim->replay_rows = d->schedules >> LLM42_SCHEDULE_FIXED & 1 ? d->fixed_rows : 0;
    sim->config = &d->model->config, sim->ranks = ranks;
    for (int i = 0; i < slots; i++) sim->request[i].id = -1;
    LLM42__LOG_TO(d, "sim backend: calibration %s, %s", c->name, c->device);
    *state = sim;
    return LLM42_OK;
}

const llm42_backend *llm42_backend_sim(void) {
    static const llm42_backend backend = {.name = "sim",
                                          .open = llm42__sim_open,
                                          .close = llm42__free,
                                          .run = llm42__sim_run,
                                          .now = llm42__sim_now,
                                          .wait_until = llm42__sim_wait_until,
                                          .estimate = llm42__sim_estimate};
    return &backend;
}

// >>state --------------------------------------------------------------------------------------------------------
// Owns: the engine's structs, events, requests by id, the queue, what planners see, and judging what others return.
// Calls: nothing; the backend's clock, the user's on_event.
// Invariant: a request has a slot if and only if it runs (states PREFILL and DECODE). It is in the queue if and only if
// it waits (state WAITING), but one that was submitted inside an event enters the queue after that event.
//
// A request with P prompt tokens, C committed tokens and U candidates has P+C+U tokens, and its first `kv` positions
// have KV. The first `reproducible` of these were last written by passes of the schedule that deterministic prompts
// have. While a request decodes, kv is P+C+U-1, because the pass that reads the newest token also writes its KV.

// What is to be done with a request, for llm42__ask.
enum { LLM42__QUEUE = 1, LLM42__CANCEL = 2, LLM42__RELEASE = 4 };

typedef struct llm42__request {
    llm42_request info;       // what users and planners see
    int slot;                 // index of its page table and of its llm42_seq; -1: not running
    int pages, reproducible;  // pages held; positions with reproducible KV
    int pages_before;         // pages held before the plan under way took some
    // Recurrent layers: positions with final rows; positions that the state has taken in; and where the prefix of
    // another request may end, so that a snapshot is wanted there. restore: as in llm42_seq.
    int settled, state, branch, restore;
    int64_t planned;                     // .plans of the engine when it was last in a plan
    int32_t *tokens;                     // [P + max_new_tokens], behind it: prompt, committed, candidates, drafts
    float *logprobs;                     // [max_new_tokens]
    struct llm42__request *before;       // in the same bucket of the engine
    struct llm42__request *next, *prev;  // in the queue
    struct llm42__request *next_asked;   // in the engine's list of requests with which something is to be done
    unsigned asked;                      // LLM42__QUEUE, _CANCEL, _RELEASE: what is to be done with it
    int drafted_at;                      // output tokens it had when it was last asked for drafts; -1: not so far
    int prefix_pages;                    // pages that were found in the prefix cache or inserted there
    int64_t prefix;                      // the number of their tokens, see llm42__page
} llm42__request;

typedef struct llm42__page {
    int refs;           // requests that hold it
    int next, prev;     // on the free list; -1 ends it
    int bucket, chain;  // of the prefix cache; the next page in the same bucket, -1 ends it
    bool cached;        // in the prefix cache
    bool reproducible;  // so is the KV of this page and of all before it
    int snapshot;       // of the states at its end; -1: none
    int64_t before;     // the number of all tokens before this page; 0: none
    int64_t prefix;     // the number of all tokens up to its end: no other tokens have or had it
} llm42__page;

// A snapshot of states belongs to a page of the prefix cache, or to the pass that is under way.
typedef struct llm42__snapshot {
    int page;      // -1: none
    int refs;      // requests that have yet to begin with it, or the pass that writes it
    int64_t used;  // the later, the larger; 0 without a page
} llm42__snapshot;

typedef struct llm42__kv {
    int pages, page_size, free_count, first, last, buckets;
    llm42__page *page;          // [pages]
    int *bucket;                // [buckets]
    int32_t *tokens;            // [pages][page_size], of cached pages
    int64_t prefixes;           // numbers of tokens that were given
    llm42__snapshot *snapshot;  // [snapshots]
    int snapshots;
    int64_t uses;
} llm42__kv;

typedef struct llm42__batch {
    llm42_plan plan;
    llm42_planned pass;      // what planners learn about it
    llm42__request **owner;  // [max_running + 1], of each choice; before there is a plan: of each draft asked for
    llm42_row *row;          // [room], of the choices one after the other
    llm42_output *out;       // [room]
    float *margins;          // [room]; NULL without experiment.gate
    int room;                // the larger of M and token_budget
} llm42__batch;

enum { LLM42__SIZES = 21 };  // classes of passes, by the logarithm of their rows (llm42__size_of)
// How long the passes of one class took, of one schedule.
typedef struct llm42__time {
    double weight, rows, kv, seconds, kv_kv, kv_seconds;  // how many passes count, and means over them
} llm42__time;

// How deterministic requests run: which schedule replay passes have, and passes with rows of prompts; and where prompts
// run. PACKED: beside windows; ISOLATED: one to a pass; INVARIANT: beside all that decodes.
typedef struct llm42__protocol {
    llm42_schedule replay, prompt;
    llm42_prefill place;
} llm42__protocol;

enum { LLM42__BUCKETS = 4096 };  // a power of two

struct llm42_engine {
    llm42_engine_desc desc;
    void *state;           // the backend's
    unsigned schedules;    // those that passes may have, bits 1 << LLM42_SCHEDULE_FAST and so on
    llm42__protocol how;   // by desc.policy
    llm42__memory memory;  // all that an engine allocates, but for its requests
    llm42__kv kv;
    int M;  // W x G; rows of a FIXED replay pass
    int pages_per_slot;
    llm42__request *bucket[LLM42__BUCKETS];  // lists of all requests, by the last bits of their ids
    int64_t last_id;
    bool busy;                           // inside a function that emits events
    llm42__request *asked, *asked_last;  // what is to be done after an event, in the order in which it was asked for
    llm42__request *waiting, *waiting_last;  // the queue, sorted by (arrival, id)
    const llm42_request **running;           // [max_running], in order of admission; view.running points here
    int32_t *page_table;                     // [max_running][pages_per_slot]
    llm42_seq *seq;                          // [max_running]; .pages is NULL: no request has this slot
    llm42_view view;      // what planners see; of it only the queue, .running and .pages_free are copies
    int64_t plans;        // plans checked so far, so the number of the plan under way
    llm42__batch batch;   // the next pass
    llm42_draft *draft;   // [max_running], for the drafter to fill in
    llm42_error problem;  // what a function of the planner or the backend has written, see llm42__returned
    llm42__time times[LLM42_SCHEDULE_COUNT][2][LLM42__SIZES];  // [1]: of passes in which a sequence has several rows
    llm42_stats stats;
};

static bool llm42__verifies(llm42_mode mode) { return mode == LLM42_MODE_DVR || mode == LLM42_MODE_HYBRID; }

static llm42__protocol llm42__protocol_of(const llm42_policy *p) {
    const bool fixed = p->verifier == LLM42_VERIFIER_FIXED, ordinary = p->prefill == LLM42_PREFILL_INVARIANT;
    llm42__protocol how = {LLM42_SCHEDULE_INVARIANT, LLM42_SCHEDULE_INVARIANT, p->prefill};
    if (fixed) how.replay = LLM42_SCHEDULE_FIXED;
    if (fixed && !ordinary) how.prompt = LLM42_SCHEDULE_FIXED;
    // In mode HYBRID the way TOGETHER has ordinary passes with prompts; other ways have them in replay passes.
    if (p->mode == LLM42_MODE_HYBRID && ordinary) how.place = LLM42_PREFILL_PACKED;
    if (p->mode == LLM42_MODE_BATCH_INVARIANT) how.prompt = LLM42_SCHEDULE_INVARIANT;
    return how;
}

unsigned llm42_policy_schedules(const llm42_policy *p) {
    const llm42__protocol how = llm42__protocol_of(p);
    if (p->mode == LLM42_MODE_BATCH_INVARIANT) return 1u << LLM42_SCHEDULE_INVARIANT;
    return 1u << LLM42_SCHEDULE_FAST | (llm42__verifies(p->mode) ? 1u << how.prompt | 1u << how.replay : 0);
}

// Reads the clock. An event has the time that was read last, so all events of a pass have the same time.
static double llm42__now(llm42_engine *e) { return e->view.now = e->desc.backend->now(e->state); }

static void llm42__emit(llm42_engine *e, llm42_event *event) {
    if (!e->desc.on_event) return;
    event->time = e->view.now;
    e->desc.on_event(e->desc.event_user, event);
}
static void llm42__emit_request(llm42_engine *e, const llm42__request *r, llm42_event_type type, int n) {
    llm42__emit(
        e, &(llm42_event){.type = type, .request = r->info.id, .info = &r->info, .n = n, .finish = r->info.finish});
}

// An event about n tokens of a request, from output token `position` on.
static void llm42__emit_tokens(llm42_engine *e, const llm42__request *r, llm42_event_type type, int position, int n,
                               const float *logprobs, llm42_output replayed) {
    llm42_event event = {.type = type, .request = r->info.id, .info = &r->info, .n = n, .position = position};
    event.tokens = r->info.tokens + position, event.logprobs = logprobs, event.replayed = replayed;
    llm42__emit(e, &event);
}

static llm42__request *llm42__find(const llm42_engine *e, int64_t id) {
    llm42__request *r = e->bucket[id & (LLM42__BUCKETS - 1)];
    while (r && r->info.id != id) r = r->before;
    return r;
}

LLM42__INLINE int llm42__last_position(const llm42_request *r) {
    return r->prompt_count + r->committed + r->candidates - 1;
}

// True if the bits of a prompt depend on the pass's shape, so that its KV may not be shared.
static bool llm42__by_shape(const llm42_engine *e, const llm42_request *r) {
    return r->verified && e->how.place == LLM42_PREFILL_ISOLATED && e->how.replay == LLM42_SCHEDULE_FIXED;
}

static bool llm42__is_stop(const llm42__request *r, int32_t token) {
    for (int i = 0; i < r->info.stop_count; i++)
        if (r->info.stop[i] == token) return true;
    return false;
}

// The order of arrival.
static bool llm42__later(const llm42_request *a, const llm42_request *b) {
    return a->arrival > b->arrival || (a->arrival == b->arrival && a->id > b->id);
}

// Requests usually come in order of arrival, so the search for their place starts at the end.
static void llm42__queue_insert(llm42_engine *e, llm42__request *r) {
    assert(r->slot < 0 && r->info.state == LLM42_STATE_WAITING);
    llm42__request *after = e->waiting_last;
    while (after && llm42__later(&after->info, &r->info)) after = after->prev;
    r->prev = after;
    r->next = after ? after->next : e->waiting;
    *(r->prev ? &r->prev->next : &e->waiting) = r;
    *(r->next ? &r->next->prev : &e->waiting_last) = r;
    e->stats.waiting++;
}
static void llm42__queue_remove(llm42_engine *e, llm42__request *r) {
    *(r->prev ? &r->prev->next : &e->waiting) = r->next;
    *(r->next ? &r->next->prev : &e->waiting_last) = r->prev;
    r->next = r->prev = NULL;
    e->stats.waiting--;
}

static void llm42__forget(llm42_engine *e, llm42__request *r) {
    llm42__request **link = &e->bucket[r->info.id & (LLM42__BUCKETS - 1)];
    while (*link != r) link = &(*link)->before;
    *link = r->before;
    llm42__free(r);
}

// An error without a text, for a function of a planner or a backend to fill in. llm42__returned reads it.
static llm42_error *llm42__blank(llm42_engine *e) {
    e->problem.text[0] = 0;
    return &e->problem;
}

// Judges what a function of the planner (bad: LLM42_PLAN) or of the backend (LLM42_BACKEND) has returned. A value that
// is neither LLM42_OK nor an error becomes the error `bad`, and an error without a text gets one.
static llm42_result llm42__returned(const llm42_engine *e, llm42_result result, llm42_result bad, const char *function,
                                    llm42_error *error) {
    const char *whose = bad == LLM42_PLAN ? "planner" : "backend";
    const char *name = bad == LLM42_PLAN ? e->desc.planner->name : e->desc.backend->name;
    if (result > 0)
        return llm42_fail(error, bad, "%s %s: %s returned %d, which is neither LLM42_OK nor an error", whose, name,
                          function, (int)result);
    if (result < 0 && !e->problem.text[0])
        return llm42_fail(error, result, "%s %s: %s returned %s and no text", whose, name, function,
                          llm42_result_name(result));
    if (result < 0) return llm42_fail(error, result, "%s", e->problem.text);  // its control characters go
    return result;
}

static void llm42__view_update(llm42_engine *e) {
    llm42__now(e);
    e->view.waiting = e->waiting ? &e->waiting->info : NULL;
    e->view.waiting_count = e->stats.waiting;
    e->view.pages_free = e->kv.free_count;
}

// The error of a planner that has broken a rule. request: the id that it is about, or 0.
static llm42_result llm42__refuse(const llm42_engine *e, llm42_rule rule, int64_t request, llm42_error *error) {
#define LLM42__RULE_WORDS(name, text) {#name, text},
    static const char *const rules[][2] = {LLM42_RULES(LLM42__RULE_WORDS)};
    char about[128] = "";
    if (request) snprintf(about, sizeof about, ": request %lld", (long long)request);
    if (rule == LLM42_RULE_SCHEDULE) {
        const llm42_schedule is = e->batch.plan.schedule;
        int used = snprintf(about, sizeof about, ": plan.schedule is %s (%d): set it to", llm42_schedule_name(is), is);
        for (int s = 1, legal = 0; s < LLM42_SCHEDULE_COUNT; s++)
            if (e->schedules >> s & 1)
                used += snprintf(about + used, sizeof about - (size_t)used, "%s %s (%d)", legal++ ? " or" : "",
                                 llm42_schedule_name((llm42_schedule)s), s);
    }
    LLM42__FAIL(PLAN, "planner %s breaks rule %s (%s)%s", e->desc.planner->name, rules[rule][0] + 11, rules[rule][1],
                about);
}

// Keeps .complete and .ready_since up to date when candidates were added or dropped.
static void llm42__note_candidates(const llm42_engine *e, llm42__request *r) {
    llm42_request *i = &r->info;
    if (!i->verified || i->state != LLM42_STATE_DECODE) return;
    int count = i->committed + i->candidates;
    i->complete = i->candidates && (count == i->max_new_tokens || llm42__is_stop(r, i->tokens[count - 1]));
    if (i->ready_since < 0 && (i->must_verify || i->candidates >= e->view.window_ready || i->complete || i->drafts))
        i->ready_since = e->view.passes;
}

static void llm42__undraft(const llm42_engine *e, llm42__request *r) {
    r->info.drafts = 0;
    r->info.ready_since = -1;
    llm42__note_candidates(e, r);
}

// >>kv -----------------------------------------------------------------------------------------------------------
// Owns: the table of KV pages, which request holds which of them, and the prefix cache. The cache finds a page by its
// own tokens and by a number that stands for all tokens before it. The backend owns what is in the pages.
// Calls: state.
// Invariant: a page is on the free list if and only if no request holds it. A page on the free list can still be in the
// prefix cache and be found there, so such pages are given out last.

static bool llm42__kv_open(llm42__kv *kv, const llm42_kv_desc *d, llm42__memory *memory) {
    const int n = d->pages;
    *kv = (llm42__kv){.pages = n, .page_size = d->page_size, .free_count = n, .last = n - 1, .snapshots = d->snapshots};
    for (kv->buckets = 1; kv->buckets < n;) kv->buckets *= 2;
    kv->page = llm42__take(memory, (size_t)n, sizeof *kv->page);
    kv->bucket = llm42__take(memory, (size_t)kv->buckets, sizeof *kv->bucket);
    kv->tokens = llm42__take(memory, d->prefix_cache ? (size_t)n * (size_t)d->page_size : 1, sizeof *kv->tokens);
    kv->snapshot = llm42__take(memory, (size_t)d->snapshots, sizeof *kv->snapshot);
    if (memory->missing) return false;
    for (int i = 0; i < n; i++)
        kv->page[i] = (llm42__page){.prev = i - 1, .next = i + 1 < n ? i + 1 : -1, .snapshot = -1};
    for (int i = 0; i < d->snapshots; i++) kv->snapshot[i] = (llm42__snapshot){.page = -1};
    for (int i = 0; i < kv->buckets; i++) kv->bucket[i] = -1;
    return true;
}

static void llm42__kv_unlist(llm42__kv *kv, int p) {
    llm42__page *page = &kv->page[p];
    assert(page->refs == 0 && kv->free_count > 0);
    *(page->prev >= 0 ? &kv->page[page->prev].next : &kv->first) = page->next;
    *(page->next >= 0 ? &kv->page[page->next].prev : &kv->last) = page->prev;
    kv->free_count--;
}

// Gives snapshot s (-1: none) to page p of the prefix cache, and takes the one that the page has.
static void llm42__snapshot_give(llm42__kv *kv, int p, int s) {
    const int old = kv->page[p].snapshot;
    if (old >= 0) kv->snapshot[old].page = -1, kv->snapshot[old].used = 0;
    if (s >= 0) kv->snapshot[s] = (llm42__snapshot){.page = p, .used = ++kv->uses};
    kv->page[p].snapshot = s;
}

// Takes a snapshot for writing: a free one, or that which was not used for the longest time. -1: all are needed.
static int llm42__snapshot_take(llm42__kv *kv) {
    int best = -1;
    for (int i = 0; i < kv->snapshots; i++)
        if (!kv->snapshot[i].refs && (best < 0 || kv->snapshot[i].used < kv->snapshot[best].used)) best = i;
    if (best < 0) return -1;
    if (kv->snapshot[best].page >= 0) llm42__snapshot_give(kv, kv->snapshot[best].page, -1);
    kv->snapshot[best].refs = 1;
    return best;
}

static void llm42__prefix_evict(llm42__kv *kv, int p) {
    llm42__snapshot_give(kv, p, -1);
    int *link = &kv->bucket[kv->page[p].bucket];
    while (*link != p) link = &kv->page[*link].chain;
    *link = kv->page[p].chain;
    kv->page[p].cached = false;
}

static void llm42__kv_hold(llm42__kv *kv, int p) {
    if (kv->page[p].refs == 0) llm42__kv_unlist(kv, p);
    kv->page[p].refs++;
}

// Ends one hold of a page. With the last it goes to the free list, and to its end if the page is in the prefix cache.
static void llm42__kv_drop(llm42__kv *kv, int p) {
    llm42__page *page = &kv->page[p];
    assert(page->refs > 0);
    if (--page->refs) return;
    bool back = page->cached;
    page->prev = back ? kv->last : -1;
    page->next = back ? -1 : kv->first;
    *(page->prev >= 0 ? &kv->page[page->prev].next : &kv->first) = p;
    *(page->next >= 0 ? &kv->page[page->next].prev : &kv->last) = p;
    kv->free_count++;
}

static int32_t *llm42__page_table(const llm42_engine *e, const llm42__request *r) {
    return e->page_table + (size_t)r->slot * (size_t)e->pages_per_slot;
}

// The request needs the snapshot that it was to begin with no longer.
static void llm42__restored(llm42_engine *e, llm42__request *r) {
    if (r->restore) e->kv.snapshot[r->restore - 1].refs--;
    r->restore = 0;
}

// Drops the pages after the first `positions` positions.
static void llm42__truncate(llm42_engine *e, llm42__request *r, int positions) {
    int keep = (positions + e->desc.kv.page_size - 1) / e->desc.kv.page_size;
    const int32_t *table = llm42__page_table(e, r);
    while (r->pages > keep) llm42__kv_drop(&e->kv, table[--r->pages]);
    if (!positions) llm42__restored(e, r);
    r->info.kv = LLM42__MIN(r->info.kv, positions);
    r->reproducible = LLM42__MIN(r->reproducible, positions);
    r->prefix_pages = LLM42__MIN(r->prefix_pages, keep);
}

// Takes pages until they cover the first `positions` positions. False: too few are free; the request keeps what it got.
static bool llm42__reserve(llm42_engine *e, llm42__request *r, int positions) {
    int32_t *table = llm42__page_table(e, r);
    for (; r->pages * e->desc.kv.page_size < positions; r->pages++) {
        const int page = e->kv.first;
        if (!e->kv.free_count) return false;
        llm42__kv_hold(&e->kv, page);
        if (e->kv.page[page].cached) llm42__prefix_evict(&e->kv, page);
        table[r->pages] = page;
    }
    return true;
}

static int llm42__prefix_bucket(const llm42__kv *kv, int64_t before, const int32_t *tokens) {
    uint64_t hash = (uint64_t)before;
    for (int i = 0; i < kv->page_size; i++) hash = llm42__hash(hash ^ (uint64_t)(uint32_t)tokens[i]);
    return (int)(hash & (uint64_t)(kv->buckets - 1));
}

// Finds a page in the prefix cache by what stands before it, its tokens and its kind. -1: there is none.
static int llm42__prefix_find(const llm42__kv *kv, int64_t before, bool reproducible, const int32_t *tokens) {
    for (int p = kv->bucket[llm42__prefix_bucket(kv, before, tokens)]; p >= 0; p = kv->page[p].chain)
        if (kv->page[p].before == before && kv->page[p].reproducible == reproducible &&
            memcmp(kv->tokens + (size_t)p * (size_t)kv->page_size, tokens, (size_t)kv->page_size * sizeof *tokens) == 0)
            return p;
    return -1;
}

// Inserts page p, unless there is one of its kind with these tokens. Returns the page that is in the cache.
static int llm42__prefix_insert(llm42__kv *kv, int p, int64_t before, bool reproducible, const int32_t *tokens) {
    const int same = llm42__prefix_find(kv, before, reproducible, tokens),
              other = llm42__prefix_find(kv, before, !reproducible, tokens);
    llm42__page *page = &kv->page[p];
    if (same >= 0 || page->cached) return same >= 0 ? same : p;
    memcpy(kv->tokens + (size_t)p * (size_t)kv->page_size, tokens, (size_t)kv->page_size * sizeof *tokens);
    page->before = before;
    page->prefix = other >= 0 ? kv->page[other].prefix : ++kv->prefixes;
    page->reproducible = reproducible;
    page->cached = true;
    page->bucket = llm42__prefix_bucket(kv, before, tokens);
    page->chain = kv->bucket[page->bucket];
    kv->bucket[page->bucket] = p;
    return p;
}

static bool llm42__shares_prefix(const llm42_engine *e, const llm42__request *r) {
    return e->desc.kv.prefix_cache && !llm42__by_shape(e, &r->info);
}

// A row that a verified request decodes now gives the token that a window with this row would give.
static bool llm42__as_replayed(const llm42_engine *e, const llm42__request *r) {
    return r->reproducible == r->info.kv && e->batch.plan.schedule == LLM42_SCHEDULE_INVARIANT &&
           e->view.replay == LLM42_SCHEDULE_INVARIANT;
}

// How many positions may count as reproducible. A shared page must hold the KV that a deterministic prompt would get:
// the output tokens of a verified request may have theirs from rows of another schedule.
static int llm42__reproducible_limit(const llm42_engine *e, const llm42__request *r) {
    return r->info.verified && e->how.prompt != e->how.replay ? r->info.prompt_count : INT32_MAX;
}

// Inserts a request's pages into the prefix cache, as far as they are full of KV that no longer changes.
static void llm42__share_prefix(llm42_engine *e, llm42__request *r) {
    if (!llm42__shares_prefix(e, r)) return;
    int size = e->desc.kv.page_size, final = r->info.verified ? r->reproducible : r->info.kv;
    int32_t *table = llm42__page_table(e, r);
    for (; (r->prefix_pages + 1) * size <= final; r->prefix_pages++) {
        const int32_t *tokens = r->tokens + r->prefix_pages * size;
        bool reproducible = (r->prefix_pages + 1) * size <= r->reproducible;
        const int p = llm42__prefix_insert(&e->kv, table[r->prefix_pages], r->prefix, reproducible, tokens);
        r->prefix = e->kv.page[p].prefix;
        if (!e->desc.model->config.recurrent_layers || p == table[r->prefix_pages]) continue;
        llm42__kv_hold(&e->kv, p);  // instead of the request's own, because a page in the cache can have a snapshot
        llm42__kv_drop(&e->kv, table[r->prefix_pages]);
        table[r->prefix_pages] = p;
    }
    llm42_seq *seq = &e->seq[r->slot];
    for (; seq->saves; seq->saves--) {
        const int page = seq->save[seq->saves - 1].at / size, s = seq->save[seq->saves - 1].snapshot;
        e->kv.snapshot[s].refs = 0;
        if (page <= r->prefix_pages && e->kv.page[table[page - 1]].snapshot < 0)
            llm42__snapshot_give(&e->kv, table[page - 1], s);
    }
}

// Of the pages that were found in the prefix cache keeps those up to the last one with a snapshot.
static void llm42__match_state(llm42_engine *e, llm42__request *r) {
    const int size = e->desc.kv.page_size;
    const int32_t *table = llm42__page_table(e, r);
    int keep = r->pages;
    while (keep && e->kv.page[table[keep - 1]].snapshot < 0) keep--;
    r->branch = keep < r->pages ? r->pages * size : 0;
    llm42__truncate(e, r, keep * size);
    r->state = r->settled = keep * size;
    r->prefix = keep ? e->kv.page[table[keep - 1]].prefix : 0;
    if (!keep) return;
    r->restore = e->kv.page[table[keep - 1]].snapshot + 1;
    e->kv.snapshot[r->restore - 1].refs++;
    e->kv.snapshot[r->restore - 1].used = ++e->kv.uses;
}

// Takes the longest run of pages in the prefix cache that hold the request's first tokens, but not the last, whose row
// must run to give the next one. A verified request takes reproducible pages up to its llm42__reproducible_limit only.
static void llm42__match_prefix(llm42_engine *e, llm42__request *r) {
    int last = llm42__last_position(&r->info), size = e->desc.kv.page_size;
    int limit = LLM42__MIN(last, llm42__reproducible_limit(e, r)) / size;
    int32_t *table = llm42__page_table(e, r);
    r->prefix = r->state = r->settled = r->branch = r->restore = 0;
    if (!llm42__shares_prefix(e, r)) return;
    for (; r->pages < limit; r->pages++) {
        const int32_t *tokens = r->tokens + r->pages * size;
        int page = llm42__prefix_find(&e->kv, r->prefix, true, tokens);
        if (page < 0 && !r->info.verified) page = llm42__prefix_find(&e->kv, r->prefix, false, tokens);
        if (page < 0) break;
        llm42__kv_hold(&e->kv, page);
        table[r->pages] = page;
        r->prefix = e->kv.page[page].prefix;
        if (e->kv.page[page].reproducible && r->reproducible == r->info.kv) r->reproducible += size;
        r->info.kv += size;
    }
    if (e->desc.model->config.recurrent_layers) llm42__match_state(e, r);
    r->prefix_pages = r->pages;
}

// >>submit -------------------------------------------------------------------------------------------------------
// Owns: what users call between passes: llm42_engine_submit, _cancel, _release, and what reads requests or the engine.
// Calls: state, verify.
// Invariant: a queued request fits into the context and the KV cache, so it can run alone. Inside an event no request
// is queued, ended or freed, because the engine may be using it or its list: llm42__carry_out does it afterwards.
//
// Below is the way of one token, in the order of its calls. Each function is defined further down, in the section that
// its comment names. A candidate comes back to form_plan until its window is ready; the window then goes the same way.
// submit: checks the request and copies it. It enters the queue by llm42__ask, _carry_out and _queue_insert.
// step: one turn of the loop. admit: gives a request a slot and pages.
static llm42_result llm42__step(llm42_engine *e, double until, llm42_error *error);
static llm42_result llm42__admit_arrived(llm42_engine *e, llm42_error *error);
static bool llm42__admit(llm42_engine *e, llm42__request *r);
// plan: asks the drafter and the planner (llm42__plan_by_policies), checks its plan and writes the rows of each choice.
static llm42_result llm42__form_plan(llm42_engine *e, llm42_error *error);
static void llm42__preempt(llm42_engine *e, llm42__request *r);
static llm42_result llm42__check_plan(llm42_engine *e, llm42_error *error);
static llm42_result llm42__check_choice(llm42_engine *e, int at, llm42_error *error);
static void llm42__add_rows(llm42_engine *e, const llm42__request *r, const llm42_choice *c, llm42_row *row);
// plan: llm42__reserve_plan takes pages for the rows. step: the backend runs them.
static llm42_result llm42__run_batch(llm42_engine *e, llm42_error *error);
// verify: results go to requests. What was decoded is a candidate, or final. A window's outputs judge its candidates.
static void llm42__postprocess(llm42_engine *e);
static void llm42__take_rows(llm42_engine *e, llm42__request *r, int rows, int last);
static void llm42__verify_window(llm42_engine *e, llm42__request *r, int row, int rows);
static bool llm42__commit(llm42_engine *e, llm42__request *r, int count);
static void llm42__finish(llm42_engine *e, llm42__request *r, llm42_finish why);

// Does what has been asked for. A request stays in the list until all that was asked of it is done, because carrying
// out one call emits events, and inside these the user may ask for more.
static void llm42__carry_out(llm42_engine *e) {
    for (llm42__request *r; (r = e->asked);) {
        unsigned what = r->asked & (~r->asked + 1u);  // QUEUE before CANCEL before RELEASE
        if (what == LLM42__QUEUE) {
            e->stats.submitted++;
            llm42__queue_insert(e, r);
            llm42__now(e);
            llm42__emit_request(e, r, LLM42_EVENT_SUBMITTED, r->info.prompt_count);
        }
        if (what == LLM42__CANCEL && r->info.state != LLM42_STATE_FINISHED) {
            llm42__now(e);
            llm42__finish(e, r, LLM42_FINISH_CANCELLED);
        }
        r->asked &= ~what;
        if (r->asked) continue;
        e->asked = r->next_asked;
        if (what == LLM42__RELEASE) llm42__forget(e, r);
    }
}

// Notes what is to be done with a request. Inside an event it is done when the event is over, otherwise at once.
static void llm42__ask(llm42_engine *e, llm42__request *r, unsigned what) {
    if (!r->asked) {
        r->next_asked = NULL;
        *(e->asked ? &e->asked_last->next_asked : &e->asked) = r;
        e->asked_last = r;
    }
    r->asked |= what;
    if (e->busy) return;
    e->busy = true;
    llm42__carry_out(e);
    e->busy = false;
}

static llm42_result llm42__refuse_inside(const llm42_engine *e, const char *function, llm42_error *error) {
    if (!e->busy) return LLM42_OK;
    LLM42__FAIL(INVALID, "%s: called inside an event or planner: call it after llm42_engine_step", function);
}

llm42_result llm42_sampling_check(const llm42_sampling *s, llm42_error *error) {
    const char *const name = "llm42_request_desc.sampling";
    if (!(s->temperature == 0 || (s->temperature >= 1e-4f && s->temperature <= 1e6f)))
        LLM42__FAIL(INVALID, "%s.temperature: %g: must be 0 (greedy), or from 0.0001 to %g", name,
                    (double)s->temperature, 1e6);
    if (s->top_k < 0) LLM42__FAIL(INVALID, "%s.top_k: %d: must be 0 or more", name, s->top_k);
    for (int i = 0; i < 2; i++) {  // a subnormal number is 0 to hardware that flushes it, and 0 means all
        const float share = i ? s->min_p : s->top_p;
        if (!(share >= 0 && share <= 1) || (share > 0 && share < FLT_MIN))
            LLM42__FAIL(INVALID, "%s.%s: %g: must be 0 (all), or from %g to 1", name, i ? "min_p" : "top_p",
                        (double)share, (double)FLT_MIN);
    }
    return LLM42_OK;
}

static llm42_result llm42__check_tokens(const llm42_engine *e, const char *field, const int32_t *tokens, int count,
                                        llm42_error *error) {
    int vocab = e->desc.model->config.vocab;
    for (int i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= vocab)
            LLM42__FAIL(INVALID, "llm42_request_desc.%s[%d]: token %d is outside the vocabulary of %d", field, i,
                        tokens[i], vocab);
    return LLM42_OK;
}

static llm42_result llm42__check_request(const llm42_engine *e, const llm42_request_desc *d, int *max_new,
                                         llm42_error *error) {
    const char *const name = "llm42_request_desc";
    if (!d || !d->prompt) LLM42__FAIL(INVALID, "%s.prompt: required", name);
    if (d->prompt_count < 1) LLM42__FAIL(INVALID, "%s.prompt_count: %d: the prompt is empty", name, d->prompt_count);
    const llm42__field fields[] = {{"max_new_tokens", d->max_new_tokens, 0, INT32_MAX, false},
                                   {"sample_index", d->sample_index, 0, INT32_MAX, false}};
    LLM42__TRY(llm42__check_fields(name, fields, 2, error));
    if (d->prompt_count >= e->desc.max_context)
        LLM42__FAIL(NEVER_FITS, "%s.prompt_count: %d: the context is %d tokens and must hold the prompt and one more",
                    name, d->prompt_count, e->desc.max_context);
    *max_new = d->max_new_tokens ? d->max_new_tokens : LLM42__MIN(128, e->desc.max_context - d->prompt_count);
    if (*max_new > e->desc.max_context - d->prompt_count)
        LLM42__FAIL(NEVER_FITS, "%s.max_new_tokens: %d: with a prompt of %d it is beyond the context of %d tokens",
                    name, *max_new, d->prompt_count, e->desc.max_context);
    int64_t positions = (int64_t)d->prompt_count + *max_new - 1;  // nothing reads the KV of the last token
    if ((positions + e->desc.kv.page_size - 1) / e->desc.kv.page_size > e->desc.kv.pages)
        LLM42__FAIL(NEVER_FITS,
                    "%s: the KV of %lld tokens needs more pages than the engine's %d of %d tokens: raise "
                    "llm42_engine_desc.kv.pages or lower max_new_tokens",
                    name, (long long)positions, e->desc.kv.pages, e->desc.kv.page_size);
    LLM42__TRY(llm42__check_tokens(e, "prompt", d->prompt, d->prompt_count, error));
    if (d->stop_count < 0 || d->stop_count > LLM42_MAX_STOP || (d->stop_count && !d->stop))
        LLM42__FAIL(INVALID, "%s.stop_count: %d: must be 0 to %d, with stop set", name, d->stop_count, LLM42_MAX_STOP);
    LLM42__TRY(llm42__check_tokens(e, "stop", d->stop, d->stop_count, error));
    if (!(d->arrival >= 0 && d->arrival < 1e18))
        LLM42__FAIL(INVALID, "%s.arrival: %g: must be 0 (now) or a time on the backend's clock", name, d->arrival);
    if (d->deterministic && e->desc.policy.mode == LLM42_MODE_NONDETERMINISTIC)
        LLM42__FAIL(INVALID,
                    "%s.deterministic: the mode is NONDETERMINISTIC: open it in DVR, HYBRID or BATCH_INVARIANT", name);
    return llm42_sampling_check(&d->sampling, error);
}

static llm42__request *llm42__request_new(const llm42_engine *e, const llm42_request_desc *d, int max_new) {
    const size_t tokens = (size_t)d->prompt_count + (size_t)max_new;
    llm42__request *r = llm42__alloc_zero(1, sizeof *r + tokens * sizeof *r->tokens +
                                                 (size_t)max_new * sizeof *r->logprobs);
    if (!r) return NULL;
    r->tokens = (int32_t *)(r + 1);
    r->logprobs = (float *)(r->tokens + tokens);
    memcpy(r->tokens, d->prompt, (size_t)d->prompt_count * sizeof *r->tokens);
    r->slot = r->drafted_at = -1;
    llm42_request *info = &r->info;
    info->id = e->last_id + 1, info->key = d->key ? d->key : info->id, info->user = d->user;
    info->state = LLM42_STATE_WAITING, info->deterministic = d->deterministic;
    info->verified = d->deterministic && llm42__verifies(e->desc.policy.mode);
    info->prompt_count = d->prompt_count, info->max_new_tokens = max_new, info->sampling = d->sampling;
    info->prompt = r->tokens, info->tokens = r->tokens + d->prompt_count, info->logprobs = r->logprobs;
    info->arrival = d->arrival > 0 ? d->arrival : e->desc.backend->now(e->state);
    info->ready_since = -1, info->first_token = info->last_token = -1;
    if (!info->sampling.seed) info->sampling.seed = 42 + (uint64_t)d->sample_index;
    const llm42_config *c = &e->desc.model->config;
    info->stop_count = d->ignore_stop ? 0 : d->stop_count ? d->stop_count : c->stop_count;
    for (int i = 0; i < info->stop_count; i++) info->stop[i] = d->stop_count ? d->stop[i] : c->stop[i];
    return r;
}

llm42_result llm42_engine_submit(llm42_engine *e, const llm42_request_desc *desc, int64_t *id, llm42_error *error) {
    int max_new = 0;
    if (id) *id = 0;
    LLM42__TRY(llm42__check_request(e, desc, &max_new, error));
    llm42__request *r = llm42__request_new(e, desc, max_new);
    if (!r) LLM42__FAIL(MEMORY, "llm42_engine_submit: out of memory for %d tokens", desc->prompt_count + max_new);
    r->before = e->bucket[++e->last_id & (LLM42__BUCKETS - 1)];
    e->bucket[e->last_id & (LLM42__BUCKETS - 1)] = r;
    if (id) *id = r->info.id;
    llm42__ask(e, r, LLM42__QUEUE);
    return LLM42_OK;
}

llm42_result llm42_engine_cancel(llm42_engine *e, int64_t id, llm42_error *error) {
    llm42__request *r = llm42__find(e, id);
    if (!r) LLM42__FAIL(NOT_FOUND, "llm42_engine_cancel: no live request has id %lld", (long long)id);
    llm42__ask(e, r, LLM42__CANCEL);
    return LLM42_OK;
}

llm42_result llm42_engine_release(llm42_engine *e, int64_t id, llm42_error *error) {
    llm42__request *r = llm42__find(e, id);
    if (!r) LLM42__FAIL(NOT_FOUND, "llm42_engine_release: no live request has id %lld", (long long)id);
    if (r->info.state != LLM42_STATE_FINISHED)
        LLM42__FAIL(INVALID, "llm42_engine_release: request %lld is not finished: cancel it first", (long long)id);
    llm42__ask(e, r, LLM42__RELEASE);
    return LLM42_OK;
}

const llm42_request *llm42_engine_request(const llm42_engine *e, int64_t id) {
    const llm42__request *r = llm42__find(e, id);
    return r ? &r->info : NULL;
}
double llm42_engine_now(const llm42_engine *e) { return e->desc.backend->now(e->state); }
const llm42_engine_desc *llm42_engine_config(const llm42_engine *e) { return &e->desc; }
const char *llm42_engine_arithmetic(const llm42_engine *e) {
    return e->desc.backend->arithmetic ? e->desc.backend->arithmetic(e->state) : NULL;
}
llm42_stats llm42_engine_stats(const llm42_engine *e) {
    llm42_stats stats = e->stats;
    stats.running = e->view.running_count;
    stats.pages_free = e->kv.free_count;
    return stats;
}

// >>step ---------------------------------------------------------------------------------------------------------
// Owns: the loop, in which each turn admits, plans, runs a pass and gives out its results.
// Calls: state, kv, submit, admit, plan, verify; the backend.
// Invariant: one pass runs at a time, and nothing else happens while it runs.

static llm42_result llm42__step_until(llm42_engine *e, double until, llm42_error *error) {
    e->busy = true;
    llm42_result result = llm42__step(e, until, error);
    llm42__carry_out(e);
    e->busy = false;
    return result;
}

llm42_result llm42_engine_step(llm42_engine *e, llm42_error *error) {
    LLM42__TRY(llm42__refuse_inside(e, "llm42_engine_step", error));
    return llm42__step_until(e, (double)INFINITY, error);
}

llm42_result llm42_engine_run_until(llm42_engine *e, double seconds, llm42_error *error) {
    LLM42__TRY(llm42__refuse_inside(e, "llm42_engine_run_until", error));
    if (isnan(seconds)) LLM42__FAIL(INVALID, "llm42_engine_run_until: seconds: must not be NaN");
    llm42_result result = LLM42_OK;
    while (result == LLM42_OK && llm42__now(e) < seconds) result = llm42__step_until(e, seconds, error);
    if (result < 0) return result;
    if (result == LLM42_IDLE && seconds < (double)INFINITY) e->desc.backend->wait_until(e->state, seconds);
    return e->view.running_count || e->waiting ? LLM42_OK : LLM42_IDLE;
}

llm42_result llm42_engine_run(llm42_engine *e, llm42_error *error) {
    LLM42__TRY(llm42__refuse_inside(e, "llm42_engine_run", error));
    llm42_result result = llm42_engine_run_until(e, (double)INFINITY, error);
    return result == LLM42_IDLE ? LLM42_OK : result;
}

// One step, which ends with a pass or when the clock reaches the time `until`.
static llm42_result llm42__step(llm42_engine *e, double until, llm42_error *error) {
    do {
        LLM42__TRY(llm42__admit_arrived(e, error));
        LLM42__TRY(llm42__form_plan(e, error));
        if (e->batch.pass.rows) return llm42__run_batch(e, error);
        if (!e->waiting) return LLM42_IDLE;
        // Every waiting request is still to arrive, or all were preempted.
        e->desc.backend->wait_until(e->state, LLM42__MIN(e->waiting->info.arrival, until));
    } while (llm42__now(e) < until);
    return LLM42_OK;
}

// How far a state moves in the pass: over rows final before it and those it makes final: a prompt's, a window's first,
// a decode's if its token is final. Snapshots are taken at the end of the last page, and where prefixes part (branch).
static void llm42__move_state(llm42_engine *e, llm42__request *r, const llm42_choice *c, int first) {
    if (!e->desc.model->config.recurrent_layers) return;
    llm42_seq *seq = &e->seq[r->slot];
    const bool as_one = !r->info.verified || llm42__as_replayed(e, r);
    const int size = e->desc.kv.page_size, certain = c->kind == LLM42_KIND_PROMPT || e->desc.experiment.keep_fast_state
                                                         ? c->rows
                                                         : c->kind == LLM42_KIND_WINDOW || as_one;
    seq->state = r->state, seq->restore = r->restore;
    seq->state_to = LLM42__MAX(r->state, certain ? first + certain : r->settled);
    const int border[] = {r->branch, seq->state_to / size * size};
    for (int i = 0; i < 2 && llm42__shares_prefix(e, r); i++) {
        if (border[i] <= r->state || border[i] > seq->state_to || (i && border[0] == border[1])) continue;
        const int s = llm42__snapshot_take(&e->kv);
        if (s < 0) continue;
        seq->save[seq->saves].at = border[i], seq->save[seq->saves++].snapshot = s;
    }
}

// Runs the planned pass. If it fails, the KV of its windows is undefined: they must be verified before they decode.
static llm42_result llm42__run_batch(llm42_engine *e, llm42_error *error) {
    llm42__batch *b = &e->batch;
    llm42_pass pass = {.schedule = b->pass.schedule, .rows = b->pass.rows, .shape = b->pass.shape};
    pass.row = b->row, pass.seq = e->seq, pass.out = b->out, pass.margins = b->margins;
    for (int i = 0, row = 0; i < b->plan.count; row += b->plan.choice[i++].rows)
        llm42__move_state(e, b->owner[i], &b->plan.choice[i], b->row[row].position);
    for (int i = 0; b->margins && i < pass.rows; i++) b->margins[i] = -1;  // for backends that have none
    b->pass.begin = llm42__now(e);
    llm42_result result = e->desc.backend->run(e->state, &pass, llm42__blank(e));
    result = llm42__returned(e, result, LLM42_BACKEND, "run", error);
    for (int i = 0; i < b->plan.count; i++) {
        llm42__request *r = b->owner[i];
        if (result == LLM42_OK) {
            r->state = e->seq[r->slot].state_to;
            llm42__restored(e, r);
            continue;
        }
        if (e->desc.model->config.recurrent_layers) llm42__preempt(e, r);  // then it has no drafts or candidates
        if (r->info.drafts) llm42__undraft(e, r);
        r->info.must_verify = b->plan.choice[i].kind == LLM42_KIND_WINDOW && r->info.candidates;
        llm42__note_candidates(e, r);
    }
    if (result == LLM42_OK) llm42__postprocess(e);
    for (int i = 0; i < b->pass.rows; i++)  // snapshots that no page got
        for (llm42_seq *seq = &e->seq[b->row[i].seq]; seq->saves; seq->saves--)
            e->kv.snapshot[seq->save[seq->saves - 1].snapshot].refs = 0;
    return result;
}

// >>admit --------------------------------------------------------------------------------------------------------
// Owns: the set of running requests, and who enters and leaves it. Admission takes a request from the queue and gives
// it a slot and pages for its tokens. Preemption takes them away and puts the request back into the queue.
// Calls: state, kv, submit; the planner's admit.
// Invariant: a running request holds pages for all positions that have KV.

// Admits requests that have arrived until one has to wait: in the planner's order, or else in order of arrival.
static llm42_result llm42__admit_arrived(llm42_engine *e, llm42_error *error) {
    const llm42_planner *planner = e->desc.planner;
    for (;;) {
        llm42__request *r = e->waiting;
        if (!r || r->info.arrival > llm42__now(e)) return LLM42_OK;
        if (planner->admit) {
            llm42__view_update(e);
            int64_t id = planner->admit(planner->user, &e->view);
            if (!id && !e->view.running_count) return llm42__refuse(e, LLM42_RULE_ADMIT, e->waiting->info.id, error);
            if (!id) return LLM42_OK;
            r = llm42__find(e, id);
            if (!r || r->info.state != LLM42_STATE_WAITING || r->asked || r->info.arrival > e->view.now)
                return llm42__refuse(e, LLM42_RULE_ARRIVED, id, error);
        }
        if (!llm42__admit(e, r)) return LLM42_OK;
        llm42__carry_out(e);
    }
}

// Admits a request if a slot is free, and pages for it and to spare (see .admission_reserve). False: it has to wait.
static bool llm42__admit(llm42_engine *e, llm42__request *r) {
    if (e->view.running_count == e->desc.max_running) return false;
    const int last = llm42__last_position(&r->info);
    int64_t left = r->info.max_new_tokens - r->info.committed;  // tokens that it and running requests may still return
    for (int i = 0; i < e->view.running_count; i++) left += e->running[i]->max_new_tokens - e->running[i]->committed;
    const double reserve = ceil(e->desc.kv.admission_reserve * (double)left / e->desc.kv.page_size),
                 spare = LLM42__MAX((double)e->view.running_count, reserve);
    for (r->slot = 0; e->seq[r->slot].pages;) r->slot++;
    llm42__match_prefix(e, r);
    int wanted = last / e->desc.kv.page_size + 1 - r->pages;
    if (e->view.running_count && e->kv.free_count < wanted + spare) {
        llm42__truncate(e, r, 0);
        r->slot = -1;
        return false;
    }
    llm42__queue_remove(e, r);
    e->running[e->view.running_count++] = &r->info;
    if (!llm42__reserve(e, r, last + 1)) assert(false && "the pages are free");
    if (r->info.preemptions == 0) e->stats.prompt_tokens += r->info.prompt_count;
    r->info.state = LLM42_STATE_PREFILL;
    r->info.prefix_hits += r->info.kv, e->stats.prefix_hits += r->info.kv;
    e->seq[r->slot] = (llm42_seq){
        .request = r->info.key, .sampling = r->info.sampling, .pages = llm42__page_table(e, r)};
    llm42__emit_request(e, r, LLM42_EVENT_ADMITTED, r->info.kv);
    return true;
}

static void llm42__stop_running(llm42_engine *e, llm42__request *r) {
    assert(r->info.kv <= r->pages * e->desc.kv.page_size);
    llm42__truncate(e, r, 0);
    int i = 0;
    while (e->running[i] != &r->info) i++;
    for (e->view.running_count--; i < e->view.running_count; i++) e->running[i] = e->running[i + 1];
    e->seq[r->slot].pages = NULL;
    r->slot = -1;
    r->info.ready_since = r->drafted_at = -1;
    r->info.drafts = 0;
    r->info.must_verify = r->info.complete = false;
}

// Preempts a request. It loses its pages and candidates and keeps its committed tokens. It is prefilled again later.
static void llm42__preempt(llm42_engine *e, llm42__request *r) {
    int dropped = r->info.candidates;
    llm42__stop_running(e, r);
    r->info.candidates = 0;
    r->info.state = LLM42_STATE_WAITING;
    r->info.preemptions++, e->stats.preemptions++;
    e->stats.preempted_candidates += dropped;
    llm42__queue_insert(e, r);
    llm42__emit_request(e, r, LLM42_EVENT_PREEMPTED, dropped);
}

// >>planner ------------------------------------------------------------------------------------------------------
// Owns: llm42_choice_rows, which says what a planner may choose, the parts of a plan that planners share, and the
// built-in planner. It decides by the view alone, so equal views get equal plans, unless their times are measured.
// Calls: state, hybrid.
// Invariant: every request that runs can be planned in some pass, so the built-in planner plans something.

const llm42_request *llm42_next_waiting(const llm42_view *v, const llm42_request *r) {
    const llm42__request *waiting = llm42__find(v->engine, r->id);
    return waiting && waiting->next ? &waiting->next->info : NULL;
}

void llm42_choose(llm42_plan *plan, const llm42_request *r, llm42_kind kind, int rows) {
    if (plan->count < plan->room) plan->choice[plan->count] = (llm42_choice){r->id, kind, rows};
    plan->count++;
}

// How many rows of its prompt a request may have in a pass of this schedule. Tokens of a deterministic request that
// were committed before a preemption run in the passes that verified them.
static int llm42__prompt_rows(const llm42_view *v, const llm42_request *r, llm42_schedule schedule) {
    const llm42__protocol how = v->engine->how;
    const int all = llm42__last_position(r) + 1 - r->kv, prompt = r->prompt_count - r->kv;
    if (r->state != LLM42_STATE_PREFILL) return 0;
    if (!r->verified) return all;
    if (schedule != (prompt > 0 ? how.prompt : v->replay)) return 0;
    if (prompt > 0 && how.place == LLM42_PREFILL_ISOLATED) return LLM42__MIN(prompt, v->desc->token_budget);
    return prompt > 0 && how.prompt != v->replay ? prompt : all;
}

// A window has a row for the last committed token and a row for each candidate and draft. The last row's output is the
// bonus token. Without the bonus (which drafts always have), and when no token may follow, that row is left out.
static int llm42__window_rows(const llm42_view *v, const llm42_request *r) {
    const int after = r->candidates + r->drafts;
    if (!r->verified || r->state != LLM42_STATE_DECODE || (!after && v->window_ready)) return 0;
    bool bonus = (v->desc->experiment.bonus == LLM42_BONUS_ON || r->drafts) && !r->complete;
    return LLM42__MIN(after + (bonus ? 1 : 0), v->desc->policy.window);
}

int llm42_choice_rows(const llm42_view *v, const llm42_request *r, llm42_kind kind, llm42_schedule schedule) {
    if (kind == LLM42_KIND_PROMPT) return llm42__prompt_rows(v, r, schedule);
    if (kind == LLM42_KIND_WINDOW) return schedule == v->replay ? llm42__window_rows(v, r) : 0;
    if (r->state != LLM42_STATE_DECODE) return 0;
    const bool near = !v->desc->model->config.recurrent_layers || r->candidates < 2 * v->desc->policy.window;
    return r->verified ? !r->must_verify && !r->complete && near : 1 + r->drafts;
}

// The rule that a choice breaks by itself; -1: none. *rows: how many it has, where it asks for as many as it may have.
static int llm42__broken_rule(const llm42_engine *e, const llm42__request *r, const llm42_choice *c,
                              llm42_schedule schedule, int *rows) {
    if (!r || r->slot < 0) return LLM42_RULE_RUNNING;
    if ((unsigned)c->kind >= LLM42_KIND_COUNT) return LLM42_RULE_KIND;
    const int most = llm42_choice_rows(&e->view, &r->info, c->kind, schedule);
    if (!most && c->kind == LLM42_KIND_DECODE) return LLM42_RULE_DECODE;
    if (!most && c->kind == LLM42_KIND_PROMPT)
        return r->info.state == LLM42_STATE_PREFILL ? LLM42_RULE_PREFILL : LLM42_RULE_PROMPT;
    if (!most) return schedule == e->view.replay ? LLM42_RULE_WINDOW : LLM42_RULE_REPLAY;
    *rows = c->rows ? c->rows : most;
    if (*rows < 0 || *rows > most) return LLM42_RULE_ROWS;
    return r->info.must_verify && *rows < most ? LLM42_RULE_FAILED : -1;  // the KV of all these rows is undefined
}

// True if rows of a prompt must be alone, and are cut at the token budget only.
static bool llm42__runs_alone(const llm42_engine *e, const llm42_request *r, llm42_kind kind) {
    return kind == LLM42_KIND_PROMPT && r->kv < r->prompt_count && llm42__by_shape(e, r);
}

// True if a request should decode. One whose window is ready goes on only under WAIT, up to the deadline.
static bool llm42__decodes(const llm42_view *v, const llm42_request *r) {
    const int beyond = v->desc->policy.verify == LLM42_VERIFY_WAIT ? v->desc->policy.deadline : 0;
    return (!r->verified || (!r->drafts && r->candidates - v->window_ready < beyond)) &&
           llm42_choice_rows(v, r, LLM42_KIND_DECODE, LLM42_SCHEDULE_FAST);
}

// Rows of a prompt that may ride in ordinary passes.
static int llm42__riding_rows(const llm42_view *v, const llm42_request *r) {
    if (r->verified && v->engine->how.place != LLM42_PREFILL_INVARIANT) return 0;
    return llm42_choice_rows(v, r, LLM42_KIND_PROMPT, LLM42_SCHEDULE_INVARIANT);
}

static void llm42__plan_hybrid(const llm42_view *v, llm42_plan *plan, bool prompts);

// The order of windows under the policies: the longest ready first; under EAGER then partial ones, by admission.
static double llm42__order_by_policies(const llm42_view *v, const llm42_request *r) {
    if (r->ready_since >= 0) return (double)r->ready_since;
    return v->desc->policy.verify == LLM42_VERIFY_EAGER && r->candidates ? 1e15 : -1;
}

// Plans the next pass. Mode HYBRID takes the cheapest way; the rest is for its way VERIFY and for the other modes.
// Verification goes first when it is due. Deterministic prompts ride in ordinary passes, or else take turns with them,
// so that a long prompt does not delay decoding. Without chunked prefill all prompts go before decoding.
static llm42_result llm42__plan_by_policies(void *user, const llm42_view *v, llm42_plan *plan, llm42_error *error) {
    const llm42_policy *p = &v->desc->policy;
    const bool whole = p->chunked_prefill == LLM42_CHUNKED_OFF, beside = v->engine->how.place != LLM42_PREFILL_ISOLATED;
    int windows = 0, verified = 0;  // ready windows, and requests that can get one ready
    bool decodes = false, riding = false, replayed = false, others = false, drafts = false, overdue = false;
    for (int i = 0; i < v->running_count; i++) {
        const llm42_request *r = v->running[i];
        const bool prompt = r->state == LLM42_STATE_PREFILL, rides = prompt && llm42__riding_rows(v, r);
        windows += r->ready_since >= 0;
        verified += r->verified && r->state == LLM42_STATE_DECODE;
        decodes = decodes || (!prompt && llm42__decodes(v, r));
        riding |= rides;
        replayed |= prompt && !rides;  // a prompt needs a pass of its own kind
        others |= prompt && !r->verified;
        drafts |= r->verified && r->drafts;
        overdue |= r->ready_since >= 0 && v->passes - r->ready_since >= p->deadline;
    }
    (void)user, (void)error;
    if (p->mode == LLM42_MODE_HYBRID) llm42__plan_hybrid(v, plan, whole && (riding || replayed));
    if (plan->count) return LLM42_OK;
    const bool ordinary = decodes || riding;
    bool turn = v->last.schedule == v->replay && v->last.prompts && ordinary && !whole;  // decoding's turn
    bool prompts = replayed && !turn;
    bool verify = windows && (p->verify == LLM42_VERIFY_EAGER || windows >= LLM42__MIN(p->group, verified) || overdue ||
                              drafts || (!ordinary && !prompts));
    // W = 1, or drafts: windows are always ready, so they take turns with all that cannot ride beside them.
    const bool waits = drafts ? decodes || others : ordinary;
    if ((v->window_ready == 0 || drafts) && v->last.windows && (waits || (prompts && !beside))) verify = false;
    if (verify) llm42_plan_windows(v, plan, llm42__order_by_policies);
    if (verify ? beside : prompts) llm42_plan_prompts(v, plan);
    else if (!verify && ordinary) llm42_plan_ordinary(v, plan);
    return LLM42_OK;  // for the engine's own view never empty
}

// Whether one of the first `count` choices of a plan names this request.
static bool llm42__holds(const llm42_plan *plan, int count, int64_t request) {
    while (count > 0 && plan->choice[count - 1].request != request) count--;
    return count > 0;
}

// The most rows of a pass of this schedule. An ISOLATED prompt has the token budget.
static int llm42__most_rows(const llm42_engine *e, llm42_schedule schedule) {
    if (schedule == LLM42_SCHEDULE_FIXED) return e->M;
    return schedule == e->view.replay ? LLM42__MAX(e->M, e->desc.token_budget) : e->desc.token_budget;
}

// How many of `most` rows a plan leaves to another part of this schedule. 0: the part must add nothing, because the
// plan has another schedule, breaks a rule, or holds a prompt that runs alone.
static int llm42__rows_left(const llm42_view *v, const llm42_plan *plan, llm42_schedule schedule, int most) {
    const llm42_engine *e = v->engine;
    int left = LLM42__MIN(most, llm42__most_rows(e, schedule)), rows = 0;
    if (!(e->schedules >> schedule & 1) || plan->count < 0 || plan->count >= plan->room) return 0;
    if (plan->count && plan->schedule && plan->schedule != schedule) return 0;
    for (int i = 0; i < plan->count; i++) {
        const llm42_choice *c = &plan->choice[i];
        const llm42__request *r = llm42__find(e, c->request);
        if (llm42__broken_rule(e, r, c, schedule, &rows) >= 0 || llm42__holds(plan, i, c->request)) return 0;
        if (llm42__runs_alone(e, &r->info, c->kind)) return 0;
        left -= rows;
    }
    return LLM42__MAX(left, 0);
}

// The rank of a request's window; negative: it has none, it is in the plan, or the planner leaves it out.
static double llm42__window_order(const llm42_view *v, const llm42_plan *plan, const llm42_request *r,
                                  llm42_order_fn *order) {
    if (!llm42_choice_rows(v, r, LLM42_KIND_WINDOW, v->replay) || llm42__holds(plan, plan->count, r->id)) return -1;
    return order(v, r);
}

// Once G windows are chosen, one that comes earlier in the order replaces the chosen one that comes last.
int llm42_plan_windows(const llm42_view *v, llm42_plan *plan, llm42_order_fn *order) {
    const int group = LLM42__MIN(v->desc->policy.group, plan->room - plan->count),
              room = llm42__rows_left(v, plan, v->replay, INT32_MAX);
    llm42_choice *chosen = plan->choice + plan->count;  // in order of admission; .rows is an index into v->running
    int count = 0, last = 0, rows = 0;
    double last_order = -1;
    if (!room) return 0;
    plan->schedule = v->replay;
    for (int i = 0; i < v->running_count; i++) {
        double of = llm42__window_order(v, plan, v->running[i], order);
        if (!(of >= 0) || (count >= group && of >= last_order)) continue;
        if (count == group) memmove(chosen + last, chosen + last + 1, (size_t)(--count - last) * sizeof *chosen);
        chosen[count++].rows = i;
        last_order = -1;
        for (int k = 0; k < count && count == group; k++) {
            of = llm42__window_order(v, plan, v->running[chosen[k].rows], order);
            if (of >= last_order) last = k, last_order = of;
        }
    }
    for (int k = 0; k < count; k++) {
        const llm42_request *r = v->running[chosen[k].rows];
        const int own = llm42_choice_rows(v, r, LLM42_KIND_WINDOW, v->replay);
        if (own > room - rows) continue;
        llm42_choose(plan, r, LLM42_KIND_WINDOW, own);
        rows += own;
    }
    return rows;
}

// Deterministic prompts go first, unless they ride in ordinary passes. (Beside drafts they ride here: there may be no
// ordinary pass for a while.) With prefill ISOLATED the oldest runs alone, at its own shape. Ordinary ones fill only
// what would be padding. Only the budget, all of which HYBRID takes, allows more rows than 32 windows have.
void llm42_plan_prompts(const llm42_view *v, llm42_plan *plan) {
    const llm42_policy *p = &v->desc->policy;
    const int M = p->window * p->group, held = plan->count;
    const bool fixed = v->replay == LLM42_SCHEDULE_FIXED, isolated = v->engine->how.place == LLM42_PREFILL_ISOLATED;
    bool ride = v->engine->how.place == LLM42_PREFILL_INVARIANT;
    int most = fixed || isolated ? M : LLM42__MIN(M, LLM42__MAX(32 * p->window, v->desc->token_budget));
    if (p->mode == LLM42_MODE_HYBRID && !isolated) most = LLM42__MAX(most, v->desc->token_budget);
    int room = llm42__rows_left(v, plan, v->replay, most);
    if (!room || (isolated && held)) return;
    plan->schedule = v->replay;
    for (int i = 0; i < held; i++) ride &= fixed || !llm42__find(v->engine, plan->choice[i].request)->info.drafts;
    for (int own = 1; own >= 0 && (own || plan->count); own--)  // an empty plan has nothing to pad
        for (int i = 0; i < v->running_count && room > 0; i++) {
            const llm42_request *r = v->running[i];
            int rows = llm42_choice_rows(v, r, LLM42_KIND_PROMPT, v->replay);
            if (!isolated || r->kv >= r->prompt_count) rows = LLM42__MIN(rows, room);
            if (r->verified != (own == 1) || rows < 1 || llm42__holds(plan, held, r->id)) continue;
            if (own ? ride && !fixed : ride || !fixed) continue;
            llm42_choose(plan, r, LLM42_KIND_PROMPT, rows);
            room -= rows;
            if (isolated) return;
        }
}

// Rows of a prompt that may join a plan of ordinary work, which held so many choices before.
static int llm42__joining_rows(const llm42_view *v, const llm42_plan *plan, int held, const llm42_request *r) {
    if (llm42__holds(plan, held, r->id)) return 0;
    return r->verified && held && plan->schedule == LLM42_SCHEDULE_FAST ? 0 : llm42__riding_rows(v, r);
}

// With chunked prefill prompts are cut to fit. Without it, as many whole prompts run as fit, before decoding goes on. A
// deterministic prompt makes the pass INVARIANT, unless others had begun a FAST one.
void llm42_plan_ordinary(const llm42_view *v, llm42_plan *plan) {
    const bool whole = v->desc->policy.chunked_prefill == LLM42_CHUNKED_OFF;
    const bool invariant = v->desc->policy.mode == LLM42_MODE_BATCH_INVARIANT ||
                           (plan->count && plan->schedule == LLM42_SCHEDULE_INVARIANT);
    const llm42_schedule schedule = invariant ? LLM42_SCHEDULE_INVARIANT : LLM42_SCHEDULE_FAST;
    const int held = plan->count;
    int room = llm42__rows_left(v, plan, schedule, v->desc->token_budget), decodes = 0, prompts = 0;
    if (!room) return;
    plan->schedule = schedule;
    for (int i = 0; i < v->running_count; i++) {
        prompts += llm42__joining_rows(v, plan, held, v->running[i]) > 0;
        decodes += llm42__decodes(v, v->running[i]) && !llm42__holds(plan, held, v->running[i]->id);
    }
    for (int i = 0; i < v->running_count && room > 0 && !(whole && prompts); i++) {
        const llm42_request *r = v->running[i];
        if (!llm42__decodes(v, r) || llm42__holds(plan, held, r->id)) continue;
        const int drafts = r->verified ? 0 : LLM42__MAX(0, LLM42__MIN(r->drafts, room - decodes));
        llm42_choose(plan, r, LLM42_KIND_DECODE, 1 + drafts);
        room -= 1 + drafts, decodes--;
    }
    for (int i = 0; i < v->running_count && prompts; i++) {
        const llm42_request *r = v->running[i];
        int rows = llm42__joining_rows(v, plan, held, r);
        if (!rows) continue;
        if (room <= 0 || (whole && rows > room)) return;
        llm42_choose(plan, r, LLM42_KIND_PROMPT, LLM42__MIN(rows, room));
        room -= LLM42__MIN(rows, room);
        if (r->verified) plan->schedule = LLM42_SCHEDULE_INVARIANT;
    }
}

// Names the request that gives up its pages: the youngest, ordinary requests before deterministic ones.
static int64_t llm42__preempt_youngest(void *user, const llm42_view *v) {
    const llm42_request *victim = NULL;
    for (int i = 0; i < v->running_count; i++) {
        const llm42_request *r = v->running[i];
        if (!victim || (victim->verified == r->verified ? llm42__later(r, victim) : victim->verified)) victim = r;
    }
    (void)user;
    return victim ? victim->id : 0;
}

const llm42_planner *llm42_planner_default(void) {
    static const llm42_planner planner = {
        .name = "default", .plan = llm42__plan_by_policies, .preempt = llm42__preempt_youngest};
    return &planner;
}

// >>hybrid -------------------------------------------------------------------------------------------------------
// Owns: mode HYBRID, which is the times of passes, what each way would cost, and the plan of the cheapest one. These
// times decide which passes run, but no token of a deterministic request depends on them.
// Calls: planner; the backend's estimate.
// Invariant: a time that is not known is negative.
//
// Deterministic requests are served in one of three ways. Their times can be compared, because in each of them every
// request that decodes gets one more token (in VERIFY a candidate), and the same prompts run.
// - VERIFY, as in mode DVR: a FAST pass decodes for all, and its candidates are verified later. Deterministic prompts
//   have an INVARIANT pass of their own.
// - APART: a FAST pass for ordinary requests takes turns with an INVARIANT one for deterministic requests, whose tokens
//   are then final. Requests that have candidates decode in the FAST one until their window is ready.
// - TOGETHER: an INVARIANT pass for all requests, which also verifies what candidates there are.
typedef enum llm42__way { LLM42__VERIFY, LLM42__APART, LLM42__TOGETHER } llm42__way;

static int llm42__size_of(double rows) { return rows >= 2 ? LLM42__MIN(ilogb(rows), LLM42__SIZES - 1) : 0; }

// Takes the time of a pass that has run. The times of passes of about as many rows differ most by the KV entries that
// they read, so each size keeps what a straight line through its times needs. Later passes count for more. All lines
// have one slope, because else a schedule that has not run for a while would keep the slope of its last few passes.
static void llm42__times_add(llm42_engine *e, double seconds) {
    const llm42__batch *b = &e->batch;
    bool several = false;
    double kv = 0;
    if (!e->view.measured) return;
    for (int i = 0; i < b->plan.count; i++) several |= b->plan.choice[i].rows > 1;
    for (int i = 0; i < b->pass.rows; i++) kv += b->row[i].position + 1;
    llm42__time *t = &e->times[b->pass.schedule][several][llm42__size_of(b->pass.rows)];
    if (t->weight < 3 && seconds < 0.6 * t->seconds) t->weight = 0;  // the first one had something to set up
    t->weight = LLM42__MIN(t->weight + 1, 64);
    t->rows += (b->pass.rows - t->rows) / t->weight;
    t->kv += (kv - t->kv) / t->weight;
    t->seconds += (seconds - t->seconds) / t->weight;
    t->kv_kv += (kv * kv - t->kv_kv) / t->weight;
    t->kv_seconds += (kv * seconds - t->kv_seconds) / t->weight;
}

// Seconds for each KV entry, the slope of all lines. A slope below 0 counts as 0.
static double llm42__times_slope(const llm42_engine *e, bool several) {
    double above = 0, below = 0;
    for (int s = LLM42_SCHEDULE_FAST; s <= LLM42_SCHEDULE_INVARIANT; s++)
        for (int size = 0; size < LLM42__SIZES; size++) {
            const llm42__time *t = &e->times[s][several][size];
            double variance = t->kv_kv - t->kv * t->kv;
            if (variance <= 1e-6 * t->kv_kv) continue;
            above += t->weight * (t->kv_seconds - t->kv * t->seconds);
            below += t->weight * variance;
        }
    return above > 0 ? above / below : 0;
}

// The time of a pass of the mean number of rows of this size that read so many KV entries each.
static double llm42__time_at(const llm42__time *t, double slope, double kv_each) {
    return LLM42__MAX(0.5 * t->seconds, t->seconds + slope * (kv_each * t->rows - t->kv));
}

// Between the nearest sizes that have run. A pass smaller than all of them is taken to cost what the smallest did, and
// a larger one in proportion to its rows if sequences have several, else the same.
static double llm42__times_find(const llm42_engine *e, llm42_schedule schedule, bool several, double rows, double kv) {
    const llm42__time *of = e->times[schedule][several];
    const double slope = llm42__times_slope(e, several);
    int below = llm42__size_of(rows), above = below + 1;
    while (below >= 0 && of[below].weight <= 0) below--;
    while (above < LLM42__SIZES && of[above].weight <= 0) above++;
    if (below < 0 && above == LLM42__SIZES) return -1;
    if (below < 0) return llm42__time_at(&of[above], slope, kv / rows);
    double r0 = of[below].rows, s0 = llm42__time_at(&of[below], slope, kv / rows);
    if (above == LLM42__SIZES) return several && rows > r0 ? s0 * rows / r0 : s0;
    double r1 = of[above].rows, s1 = llm42__time_at(&of[above], slope, kv / rows);
    return s0 + (s1 - s0) * LLM42__MAX(0, rows - r0) / (r1 - r0);
}

static double llm42__view_seconds(const llm42_view *view, const llm42_mix *mix) {
    const llm42_engine *e = view->engine;
    if (e->desc.backend->estimate) return e->desc.backend->estimate(e->state, mix);
    double rows = 0, kv = 0;
    for (int k = 0; k < LLM42_KIND_COUNT; k++) rows += mix->rows[k], kv += mix->rows[k] * mix->context[k];
    if (rows == 0) return 0;
    bool several = mix->rows[LLM42_KIND_PROMPT] || mix->rows[LLM42_KIND_WINDOW];
    if (mix->schedule > LLM42_SCHEDULE_INVARIANT) return -1;
    double seconds = llm42__times_find(e, mix->schedule, several, rows, kv);
    if (seconds >= 0 || mix->schedule != LLM42_SCHEDULE_INVARIANT) return seconds;
    // An INVARIANT pass of this kind has not run yet: a FAST one takes about as long, another kind perhaps longer.
    seconds = llm42__times_find(e, LLM42_SCHEDULE_FAST, several, rows, kv);
    return seconds < 0 ? llm42__times_find(e, LLM42_SCHEDULE_INVARIANT, !several, rows, kv) : seconds;
}

// What could run now: ordinary requests, deterministic prompts, and deterministic requests past their prompts. These
// count as decoding even if they have candidates: else each change of way would at once verify short windows.
typedef struct llm42__work {
    llm42_mix ordinary, prompts, decode;
    int64_t windows, recomputed;  // of deterministic requests that run
    bool drafts;                  // some of these have drafts
} llm42__work;

static void llm42__mix_add(llm42_mix *m, llm42_kind kind, int rows, double context) {
    if (rows <= 0) return;
    m->context[kind] = (m->rows[kind] * m->context[kind] + rows * context) / (m->rows[kind] + rows);
    m->rows[kind] += rows;
}
static llm42_mix llm42__mix_join(llm42_mix a, llm42_mix b) {
    for (int k = 0; k < LLM42_KIND_COUNT; k++) llm42__mix_add(&a, (llm42_kind)k, b.rows[k], b.context[k]);
    a.windows += b.windows;
    return a;
}

static llm42__work llm42__work_of(const llm42_view *v) {
    llm42__work w = {0};
    int room = v->desc->token_budget;
    for (int i = 0; i < v->running_count; i++) {
        const llm42_request *r = v->running[i];
        int rows = LLM42__MIN(room, llm42_choice_rows(v, r, LLM42_KIND_PROMPT, LLM42_SCHEDULE_INVARIANT));
        llm42__mix_add(r->verified ? &w.prompts : &w.ordinary, LLM42_KIND_PROMPT, rows, r->kv + 0.5 * rows);
        room -= rows;
        w.windows += r->verifications;
        w.recomputed += r->recomputed;
        w.drafts |= r->verified && r->drafts;
        if (r->state != LLM42_STATE_DECODE) continue;
        llm42_mix *mix = r->verified ? &w.decode : &w.ordinary;
        const llm42_kind kind = r->drafts ? LLM42_KIND_WINDOW : LLM42_KIND_DECODE;
        llm42__mix_add(mix, kind, 1 + r->drafts, r->kv + 1 + 0.5 * r->drafts);
        mix->windows += r->drafts > 0;
    }
    return w;
}

static double llm42__seconds_of(const llm42_view *v, llm42_schedule schedule, llm42_mix mix) {
    mix.schedule = schedule;
    return v->seconds(v, &mix);
}

// See llm42_view. The replay pass has as many windows as there may be. How many tokens a window commits is learned from
// all windows that have run, and how many are decoded again from those of the requests that run, because these differ.
// The first guess counts as EARLY windows: each commits W tokens, and one candidate in WRONG is wrong and costs W.
static double llm42__verify_seconds(const llm42_view *v, double decode) {
    enum { EARLY = 16, WRONG = 256 };
    const llm42__work w = llm42__work_of(v);
    const int running = w.decode.rows[LLM42_KIND_DECODE] + w.decode.windows,
              windows = LLM42__MIN(running, v->desc->policy.group);
    const double early = EARLY * v->desc->policy.window,
                 each = (early + (double)v->window_tokens) / (double)(EARLY + v->windows),
                 again = (early * v->desc->policy.window / WRONG + (double)w.recomputed) /
                         (early + (double)w.windows * each);
    llm42_mix replay = {.windows = windows};
    int rows = (int)(windows * LLM42__MIN(each + 1, v->desc->policy.window));
    if (v->replay == LLM42_SCHEDULE_FIXED) rows = v->desc->policy.window * v->desc->policy.group;
    llm42__mix_add(&replay, LLM42_KIND_WINDOW, rows, w.decode.context[LLM42_KIND_DECODE]);
    return llm42__seconds_of(v, v->replay, replay) / (windows * each) + again * decode;
}

// The way that takes least time. A schedule whose time is not known yet is tried. Measured times grow old, so now and
// then the other way is taken instead (except for APART, which has passes of both schedules). That happens seldom if
// the two are far apart, because the candidates that the other way leaves behind must be verified.
static llm42__way llm42__cheapest_way(const llm42_view *v, llm42_plan *plan) {
    enum { TRY_EVERY = 512, SELDOM = 16 };
    const llm42__work w = llm42__work_of(v);
    const llm42_mix own = llm42__mix_join(w.prompts, w.decode);
    const int decode = w.decode.rows[LLM42_KIND_DECODE], ordinary = w.ordinary.rows[LLM42_KIND_DECODE];
    if (!decode && !w.drafts && !w.prompts.rows[LLM42_KIND_PROMPT]) return LLM42__VERIFY;  // nothing deterministic
    double fast = llm42__seconds_of(v, LLM42_SCHEDULE_FAST, llm42__mix_join(w.ordinary, w.decode)),
           together = llm42__seconds_of(v, LLM42_SCHEDULE_INVARIANT, llm42__mix_join(w.ordinary, own));
    if (fast < 0 && !w.drafts) return LLM42__VERIFY;  // drafts are for an INVARIANT pass to judge
    if (together < 0) return LLM42__TOGETHER;
    const double later = llm42__seconds_of(v, LLM42_SCHEDULE_INVARIANT, w.prompts) +
                         (decode ? decode * llm42__verify_seconds(v, fast / (decode + ordinary)) : 0);
    const double alone = llm42__seconds_of(v, LLM42_SCHEDULE_INVARIANT, own),
                 others = llm42__seconds_of(v, LLM42_SCHEDULE_FAST, w.ordinary);
    const double apart = alone < 0 || others < 0 ? -1 : alone + others, invariant = LLM42__MIN(apart, together),
                 verify = w.drafts ? (double)INFINITY : fast + later;
    const llm42__way best = verify < invariant ? LLM42__VERIFY : apart < together ? LLM42__APART : LLM42__TOGETHER;
    if (w.drafts) return best;
    plan->fast_seconds = verify, plan->invariant_seconds = invariant;
    bool close = fabs(fast + later - together) < 0.15 * together;
    bool try = v->measured && v->passes % TRY_EVERY == TRY_EVERY - 1 && best != LLM42__APART &&
               (close || v->passes / TRY_EVERY % SELDOM == SELDOM - 1);
    return !try ? best : best == LLM42__VERIFY ? LLM42__TOGETHER : LLM42__VERIFY;
}

// Whether a request belongs into a pass of this schedule. In the way APART it belongs into one of them only.
static bool llm42__belongs(const llm42_request *r, llm42__way way, llm42_schedule schedule) {
    bool invariant = r->verified && (!r->candidates || r->ready_since >= 0);
    return way == LLM42__TOGETHER || invariant == (schedule == LLM42_SCHEDULE_INVARIANT);
}

static void llm42__plan_way(const llm42_view *v, llm42_plan *plan, llm42__way way, llm42_schedule schedule,
                            bool whole) {
    int room = v->desc->token_budget;
    if (schedule == LLM42_SCHEDULE_INVARIANT) room = LLM42__MAX(room, v->desc->policy.window * v->desc->policy.group);
    plan->schedule = schedule;
    for (int i = 0; i < v->running_count && !whole; i++) {
        const llm42_request *r = v->running[i];
        bool window = schedule == LLM42_SCHEDULE_INVARIANT && r->verified &&
                      (r->candidates || r->must_verify || r->drafts);
        llm42_kind kind = window ? LLM42_KIND_WINDOW : LLM42_KIND_DECODE;
        int rows = llm42_choice_rows(v, r, kind, schedule);
        if (rows > room) rows = LLM42__MAX(rows - r->drafts, LLM42__MIN(rows, room));
        if (!rows || rows > room || !llm42__belongs(r, way, schedule)) continue;
        llm42_choose(plan, r, kind, rows);
        room -= rows;
    }
    room = LLM42__MIN(room, v->desc->token_budget);
    for (int i = 0; i < v->running_count && room > 0; i++) {
        const llm42_request *r = v->running[i];
        int rows = llm42_choice_rows(v, r, LLM42_KIND_PROMPT, schedule);
        if (!rows || !llm42__belongs(r, way, schedule)) continue;
        if (whole && rows > room) return;
        llm42_choose(plan, r, LLM42_KIND_PROMPT, LLM42__MIN(rows, room));
        room -= LLM42__MIN(rows, room);
    }
}

// Plans a pass for mode HYBRID, but leaves the plan empty in the way VERIFY. Where prompts run whole, they go first.
static void llm42__plan_hybrid(const llm42_view *v, llm42_plan *plan, bool prompts) {
    const llm42__way way = llm42__cheapest_way(v, plan);
    const bool fast = way == LLM42__APART && v->last.schedule == LLM42_SCHEDULE_INVARIANT;  // FAST's turn
    if (way == LLM42__VERIFY) return;
    llm42__plan_way(v, plan, way, fast ? LLM42_SCHEDULE_FAST : LLM42_SCHEDULE_INVARIANT, prompts);
    if (!plan->count) llm42__plan_way(v, plan, way, fast ? LLM42_SCHEDULE_INVARIANT : LLM42_SCHEDULE_FAST, prompts);
}

// >>draft --------------------------------------------------------------------------------------------------------
// Owns: drafts: for whom tokens are asked for, what the drafter has proposed, and what a pass says of it.
// Calls: state, submit; the drafter.
// Invariant: drafts stand after the newest token of a request that runs, and go when it gets a token or loses its
// slot. They end before a stop token and before the last token of the request, which are a pass's own.

static llm42__request *llm42__running(const llm42_engine *e, int i) { return llm42__find(e, e->running[i]->id); }

int llm42_draft_room(const llm42_view *v, const llm42_request *r) {
    const llm42_engine_desc *d = v->desc;
    const bool may = r->verified || d->policy.mode == LLM42_MODE_BATCH_INVARIANT || d->draft_ordinary;
    if (!may || r->state != LLM42_STATE_DECODE || r->complete || r->must_verify) return 0;
    const int left = r->max_new_tokens - r->committed - r->candidates - 1,
              most = r->verified ? d->policy.window - 1 - r->candidates : d->draft_limit;
    return LLM42__MAX(0, LLM42__MIN(LLM42__MIN(left, most), d->draft_limit));
}

// Makes drafts of what was proposed for a request, up to the first stop token. Fails if it is not what was asked for.
static llm42_result llm42__take_drafts(llm42_engine *e, llm42__request *r, int count, llm42_error *error) {
    const int vocab = e->desc.model->config.vocab, room = llm42_draft_room(&e->view, &r->info), at = r->drafted_at;
    const int32_t *token = r->info.tokens + at;
    const long long id = r->info.id;
    int n = 0;
    if (count < 0 || count > room)
        LLM42__FAIL(INVALID, "request %lld got %d drafts: at most %d were asked for", id, count, room);
    for (; n < count && !llm42__is_stop(r, token[n]); n++)
        if (token[n] < 0 || token[n] >= vocab)
            LLM42__FAIL(INVALID, "request %lld got draft %d: it is outside the vocabulary of %d", id, token[n], vocab);
    r->info.drafts = n;
    llm42__note_candidates(e, r);
    if (n) llm42__emit_tokens(e, r, LLM42_EVENT_DRAFTED, at, n, NULL, (llm42_output){0});
    return LLM42_OK;
}

// Asks the drafter, once for each token of a request, but not again if it failed or did not keep to what was asked.
static void llm42__ask_for_drafts(llm42_engine *e) {
    const llm42_drafter *d = e->desc.drafter;
    llm42_error *error = llm42__blank(e);
    int count = 0, requests = 0, deepest = 0;
    if (!d || e->stats.draft_failures) return;
    llm42__view_update(e);
    for (int i = 0; i < e->view.running_count; i++) {
        llm42__request *r = llm42__running(e, i);
        const int room = llm42_draft_room(&e->view, &r->info), output = r->info.committed + r->info.candidates;
        if (!room || r->drafted_at == output) continue;
        r->drafted_at = output;
        e->batch.owner[count] = r;
        e->draft[count++] = (llm42_draft){&r->info, room, 0, r->tokens + r->info.prompt_count + output};
    }
    llm42_result result = count ? d->draft(d->user, &e->view, e->draft, count, error) : LLM42_OK;
    for (int i = 0; i < count && result == LLM42_OK; i++) {
        result = llm42__take_drafts(e, e->batch.owner[i], e->draft[i].count, error);
        if (result == LLM42_OK && e->draft[i].count) requests++, deepest = LLM42__MAX(deepest, e->draft[i].count);
    }
    const double seconds = requests && d->seconds && !e->view.measured ? d->seconds(d->user, requests, deepest) : 0;
    if (!(seconds >= 0 && e->view.now + seconds <= DBL_MAX))
        result = llm42_fail(error, LLM42_INVALID, "seconds: %g: must be finite and not negative", seconds);
    else if (seconds > 0) e->desc.backend->wait_until(e->state, e->view.now + seconds);
    if (result != LLM42_OK) {
        e->stats.draft_failures++;
        LLM42__LOG_TO(&e->desc, "drafter %s: %s: the engine goes on without drafts", d->name,
                      error->text[0] ? error->text : "it returned an error and no text");
    }
    llm42__carry_out(e);  // what was asked for inside the events
}

// Takes what a pass says of a request's drafts: so many were right, of those that it compared. Fewer than 0 were right
// if a candidate before them was wrong: then nothing is known of them.
static void llm42__judge_drafts(llm42_engine *e, llm42__request *r, int right, int compared) {
    const int judged = right < 0 ? 0 : LLM42__MAX(compared, 0);
    right = LLM42__MAX(right, 0);
    r->info.drafts = 0;
    r->info.drafted += judged, e->stats.drafted += judged;
    r->info.accepted += right, e->stats.accepted += right;
    llm42__emit_tokens(e, r, LLM42_EVENT_ACCEPTED, r->info.committed + r->info.candidates, right, NULL,
                       (llm42_output){0});
}

// >>plan ---------------------------------------------------------------------------------------------------------
// Owns: what happens to a plan, which is checked against the rules, gets its pages, and becomes the rows of a pass.
// Calls: state, kv, submit, admit, planner, draft; the planner in use.
// Invariant: a plan that runs is the planner's own and breaks no rule. After a preemption the planner is asked again.

// Takes pages for the positions that the plan's rows write. False: not enough are free; what was taken stays.
static bool llm42__reserve_plan(llm42_engine *e) {
    const llm42__batch *b = &e->batch;
    for (int i = 0, end = 0; i < b->plan.count; i++) {
        end += b->plan.choice[i].rows;
        if (!llm42__reserve(e, b->owner[i], b->row[end - 1].position + 1)) return false;
    }
    return true;
}

// Asks the planner for the next pass until there are pages for it. e->batch has no rows if then no request runs.
static llm42_result llm42__form_plan(llm42_engine *e, llm42_error *error) {
    const llm42_planner *planner = e->desc.planner;
    llm42__batch *b = &e->batch;
    llm42__ask_for_drafts(e);
    while (e->view.running_count) {
        llm42__view_update(e);
        llm42_plan plan = {.choice = b->plan.choice, .room = b->plan.room};  // a copy, so that it cannot move the array
        llm42_result result = planner->plan(planner->user, &e->view, &plan, llm42__blank(e));
        LLM42__TRY(llm42__returned(e, result, LLM42_PLAN, "plan", error));
        if (plan.choice != b->plan.choice || plan.room != b->plan.room)
            LLM42__FAIL(PLAN, "planner %s: plan has moved .choice or changed .room: fill in .choice only",
                        planner->name);
        b->plan = plan;
        if (b->plan.count <= 0) return llm42__refuse(e, LLM42_RULE_WORK, e->view.running[0]->id, error);
        LLM42__TRY(llm42__check_plan(e, error));
        if (llm42__reserve_plan(e)) return LLM42_OK;
        bool dropped = false;  // nobody is preempted for the sake of a draft
        for (int i = 0; i < e->view.running_count && e->desc.drafter; i++) {
            dropped |= e->running[i]->drafts > 0;
            if (e->running[i]->drafts) llm42__undraft(e, llm42__running(e, i));
        }
        if (dropped) continue;
        llm42__view_update(e);
        int64_t id = (planner->preempt ? planner->preempt : llm42__preempt_youngest)(planner->user, &e->view);
        llm42__request *victim = llm42__find(e, id);
        if (!victim || victim->slot < 0) {
            for (int i = 0; i < b->plan.count; i++)  // gives back what was taken in vain
                llm42__truncate(e, b->owner[i], b->owner[i]->pages_before * e->desc.kv.page_size);
            return llm42__refuse(e, LLM42_RULE_PREEMPT, id, error);
        }
        llm42__preempt(e, victim);
        llm42__carry_out(e);
    }
    b->pass.rows = 0;
    return LLM42_OK;
}

static llm42_result llm42__check_plan(llm42_engine *e, llm42_error *error) {
    llm42__batch *b = &e->batch;
    llm42_plan *plan = &b->plan;
    if ((unsigned)plan->schedule >= LLM42_SCHEDULE_COUNT || !(e->schedules >> plan->schedule & 1))
        return llm42__refuse(e, LLM42_RULE_SCHEDULE, 0, error);
    b->pass = (llm42_planned){.schedule = plan->schedule};
    e->plans++;
    // There is room for one choice more than requests can run: if there are more, one of these breaks ONCE or RUNNING.
    for (int i = 0; i < LLM42__MIN(plan->count, plan->room); i++) LLM42__TRY(llm42__check_choice(e, i, error));
    bool isolated = false;
    for (int i = 0; i < plan->count; i++) {
        const llm42_choice *c = &plan->choice[i];
        if (!llm42__runs_alone(e, &b->owner[i]->info, c->kind)) continue;
        if (plan->count > 1 || c->rows != llm42_choice_rows(&e->view, &b->owner[i]->info, c->kind, plan->schedule))
            return llm42__refuse(e, LLM42_RULE_ISOLATED, c->request, error);
        isolated = true;
    }
    const bool fixed = plan->schedule == LLM42_SCHEDULE_FIXED;
    const int most = isolated ? e->desc.token_budget : llm42__most_rows(e, plan->schedule),
              shape = fixed && !isolated ? e->M : b->pass.rows;
    if (b->pass.rows > most) return llm42__refuse(e, LLM42_RULE_ROWS, 0, error);
    if (!plan->shape) plan->shape = shape;
    if (fixed ? plan->shape != shape : plan->shape < shape || plan->shape > most)
        return llm42__refuse(e, LLM42_RULE_SHAPE, 0, error);
    b->pass.shape = plan->shape;
    return LLM42_OK;
}

static llm42_result llm42__check_choice(llm42_engine *e, int at, llm42_error *error) {
    llm42__batch *b = &e->batch;
    llm42_choice *c = &b->plan.choice[at];
    llm42__request *r = llm42__find(e, c->request);
    if (r && r->slot >= 0 && r->planned == e->plans) return llm42__refuse(e, LLM42_RULE_ONCE, c->request, error);
    const int rule = llm42__broken_rule(e, r, c, b->plan.schedule, &c->rows);
    if (rule >= 0) return llm42__refuse(e, (llm42_rule)rule, c->request, error);
    if (c->rows > b->room - b->pass.rows) return llm42__refuse(e, LLM42_RULE_ROWS, c->request, error);
    r->planned = e->plans;
    r->pages_before = r->pages;
    b->owner[at] = r;
    llm42__add_rows(e, r, c, b->row + b->pass.rows);
    b->pass.rows += c->rows;
    b->pass.windows += c->kind == LLM42_KIND_WINDOW;
    b->pass.prompts += c->kind == LLM42_KIND_PROMPT && r->info.verified;
    return LLM42_OK;
}

// Writes the rows of a choice: a prompt's begin after its KV, a window's at the last committed token.
static void llm42__add_rows(llm42_engine *e, const llm42__request *r, const llm42_choice *c, llm42_row *row) {
    bool window = c->kind == LLM42_KIND_WINDOW;
    int last = llm42__last_position(&r->info), first = window ? last - r->info.candidates : r->info.kv, end;
    if (c->kind == LLM42_KIND_DECODE) first = last;
    uint32_t flags = c->kind == LLM42_KIND_PROMPT ? 0 : LLM42_ROW_SAMPLE;
    for (end = first; end < first + c->rows; end++) *row++ = (llm42_row){r->slot, end, r->tokens[end], flags};
    if (end > last) row[-1].flags = LLM42_ROW_SAMPLE;
    for (int t = first; window && e->desc.experiment.keep_fast_kv && t < LLM42__MIN(end, r->info.kv); t++)
        row[t - end].flags |= LLM42_ROW_KEEP_KV;
}

// >>verify -------------------------------------------------------------------------------------------------------
// Owns: what happens to a request after a pass: verification (LLM-42, section 4), commits and candidates.
// Calls: state, kv, submit, admit, hybrid, draft; the planner's postprocess.
// Invariant: every committed token of a verified request came from a replay pass, from the last row of its prompt
// (which never runs under FAST), or from a row that is as good as a replay pass's (llm42__take_rows). A margin gate
// (llm42_experiment.gate) breaks this.

static void llm42__postprocess(llm42_engine *e) {
    const llm42__batch *b = &e->batch;
    const llm42_planner *planner = e->desc.planner;
    double now = llm42__now(e);
    e->view.last = b->pass;
    e->view.passes++;
    e->stats.passes[b->pass.schedule]++;
    e->stats.rows[b->pass.schedule] += b->pass.rows;
    e->stats.busy[b->pass.schedule] += now - b->pass.begin;
    if (b->pass.schedule == LLM42_SCHEDULE_FIXED || b->pass.windows) {
        e->stats.replay_passes++;
        e->stats.replay_busy += now - b->pass.begin;
    }
    llm42__times_add(e, now - b->pass.begin);
    llm42_event event = {.type = LLM42_EVENT_PASS, .n = b->pass.rows, .schedule = b->pass.schedule};
    event.shape = b->pass.shape, event.windows = b->pass.windows, event.begin = b->pass.begin;
    event.fast_seconds = b->plan.fast_seconds, event.invariant_seconds = b->plan.invariant_seconds;
    llm42__emit(e, &event);
    for (int i = 0, row = 0; i < b->plan.count; row += b->plan.choice[i++].rows) {
        int rows = b->plan.choice[i].rows;
        if (b->owner[i]->asked & LLM42__CANCEL) continue;  // inside an event of this pass
        bool judged = b->plan.choice[i].kind == LLM42_KIND_WINDOW ||
                      (b->plan.choice[i].kind == LLM42_KIND_DECODE && rows > 1);
        if (judged) llm42__verify_window(e, b->owner[i], row, rows);
        else llm42__take_rows(e, b->owner[i], rows, row + rows - 1);
    }
    if (!planner->postprocess) return;
    llm42__view_update(e);
    planner->postprocess(planner->user, &e->view, &b->plan, now - b->pass.begin);
}

static bool llm42__no_token(const llm42_engine *e, llm42_output out) {
    return out.token < 0 || out.token >= e->desc.model->config.vocab;
}

// Ends a request whose logits are not finite. The other requests of the pass are not affected.
static void llm42__finish_with_error(llm42_engine *e, llm42__request *r) {
    if (r->asked & LLM42__CANCEL) return;  // in an event of this pass: llm42__carry_out ends it
    LLM42__LOG_TO(&e->desc,
                  "request %lld ends with an error: the logits of its token %d are not finite: the weights hold NaN or "
                  "infinity, or overflow",
                  (long long)r->info.id, r->info.prompt_count + r->info.committed);
    llm42__finish(e, r, LLM42_FINISH_ERROR);
}

// For stress tests: replaces a share of candidates, chosen by a hash, by a wrong token.
static int32_t llm42__inject(llm42_engine *e, const llm42__request *r, int32_t token) {
    if (e->desc.experiment.inject_rate <= 0) return token;
    uint64_t key = llm42__hash(e->desc.experiment.inject_seed ^ llm42__hash((uint64_t)r->info.key));
    uint64_t h = llm42__hash(key ^ (uint64_t)(r->info.committed + r->info.candidates));
    if (llm42_uniform(h) >= e->desc.experiment.inject_rate) return token;
    e->stats.injected++;
    return (token + 1) % e->desc.model->config.vocab;
}

// Takes the rows of a prompt or of decoding, which have written KV. That KV counts as reproducible if all KV before it
// does, the pass has schedule e->how.prompt, and the token that it gives is final: candidates may be dropped. The token
// of a prompt is final, because no prompt of a verified request runs under FAST. So is one that such a request decodes,
// if a window with this row would run under the same schedule on the same KV. Others that it decodes are candidates.
static void llm42__take_rows(llm42_engine *e, llm42__request *r, int rows, int last) {
    const llm42_output out = e->batch.out[last];
    bool prompt = r->info.state == LLM42_STATE_PREFILL, whole = r->reproducible == r->info.kv;
    bool final = prompt || !r->info.verified || llm42__as_replayed(e, r);
    const bool gated = !final && e->batch.margins && !r->info.candidates &&
                       e->batch.margins[last] >= e->desc.experiment.gate;
    final |= gated, e->stats.gated += gated;
    assert(!prompt || !r->info.verified || e->batch.plan.schedule != LLM42_SCHEDULE_FAST);
    if (r->info.drafts) llm42__undraft(e, r);
    r->info.kv += rows;
    if (final) r->settled = r->info.kv;
    if (whole && final && e->batch.plan.schedule == e->how.prompt)
        r->reproducible = LLM42__MIN(r->info.kv, llm42__reproducible_limit(e, r));
    llm42__share_prefix(e, r);
    if (r->info.kv <= llm42__last_position(&r->info)) return;  // there is more of the prompt
    if (prompt) {
        r->info.state = LLM42_STATE_DECODE;
        llm42__emit_request(e, r, LLM42_EVENT_PREFILLED, r->info.kv);
    }
    const int at = r->info.committed + r->info.candidates;
    const bool failed = llm42__no_token(e, out);
    if (final && failed) {
        llm42__finish_with_error(e, r);
        return;
    }
    // Without a token a candidate is token 0: only the replay pass decides whether its logits are finite.
    r->tokens[r->info.prompt_count + at] = final ? out.token : llm42__inject(e, r, failed ? 0 : out.token);
    r->logprobs[at] = out.logprob;  // that of a candidate is kept for the event of a rollback
    if (!final) {
        r->info.candidates++, e->stats.candidates++;
        llm42__emit_tokens(e, r, LLM42_EVENT_CANDIDATE, at, 1, &out.logprob, (llm42_output){0});
    }
    if (!final || !llm42__commit(e, r, 1)) llm42__note_candidates(e, r);
}

// Judges the rows of a window, or those of a request, perhaps an ordinary one, that decodes with drafts. Candidates and
// drafts that agree are committed, and then the pass's own token if a row is left. Candidates beyond the window stay.
static void llm42__verify_window(llm42_engine *e, llm42__request *r, int row, int rows) {
    const llm42__batch *b = &e->batch;
    const llm42_output *out = b->out + row;
    const int candidates = r->info.candidates, compared = LLM42__MIN(rows, candidates + r->info.drafts);
    const int first = r->info.committed, prompt = r->info.prompt_count;
    bool reproducible = r->info.verified || (r->reproducible == r->info.kv && b->plan.schedule == e->how.prompt);
    int32_t *expected = r->tokens + prompt + first;
    int agreed = 0;
    while (agreed < compared && out[agreed].token == expected[agreed]) agreed++;
    bool rollback = agreed < LLM42__MIN(compared, candidates);
    bool own = agreed < rows, failed = own && llm42__no_token(e, out[agreed]);
    int commit = agreed + (own && !failed);
    if (r->info.verified) {
        r->info.must_verify = false;
        r->info.verifications++, e->stats.verifications++;
        e->stats.compared += LLM42__MIN(LLM42__MIN(agreed, candidates) + 1, LLM42__MIN(compared, candidates));
        llm42__emit_request(e, r, LLM42_EVENT_VERIFIED, LLM42__MIN(agreed, candidates));
    }
    if (rollback) {
        const int dropped = candidates - agreed, at = first + agreed;
        r->info.rollbacks++, e->stats.rollbacks++;
        r->info.recomputed += dropped - 1, e->stats.recomputed += dropped - 1;
        llm42__emit_tokens(e, r, LLM42_EVENT_ROLLED_BACK, at, dropped, r->logprobs + at, out[agreed]);
    }
    if (r->info.drafts) llm42__judge_drafts(e, r, agreed - candidates, compared - candidates);
    else if (b->pass.windows + b->pass.prompts == b->plan.count) e->view.windows++, e->view.window_tokens += commit;
    r->info.candidates = commit > candidates || rollback ? 0 : candidates - commit;
    if (commit > agreed) expected[agreed] = out[agreed].token;
    for (int i = 0; i < commit; i++) r->logprobs[first + i] = out[i].logprob;
    r->info.ready_since = -1;
    r->info.kv = prompt + first + commit + r->info.candidates - 1;
    r->settled = prompt + first + commit - 1;
    const llm42_experiment *x = &e->desc.experiment;
    if (reproducible && !x->keep_fast_kv && !x->keep_fast_state && !(x->gate > 0))
        r->reproducible = LLM42__MIN(prompt + first + commit - 1, llm42__reproducible_limit(e, r));
    llm42__truncate(e, r, r->info.kv);
    llm42__share_prefix(e, r);  // before the commit, which may finish the request and free its pages
    if (llm42__commit(e, r, commit)) return;
    if (failed) llm42__finish_with_error(e, r);
    else llm42__note_candidates(e, r);
}

// Releases `count` tokens to the user, ending early at a stop token. True: the request is finished.
static bool llm42__commit(llm42_engine *e, llm42__request *r, int count) {
    int first = r->info.committed;
    if (!count || r->asked & LLM42__CANCEL) return false;
    llm42_finish why = LLM42_FINISH_NONE;
    for (int i = 0; i < count && why == LLM42_FINISH_NONE; i++) {
        r->info.committed++;
        if (llm42__is_stop(r, r->info.tokens[first + i])) why = LLM42_FINISH_STOP;
        else if (r->info.committed == r->info.max_new_tokens) why = LLM42_FINISH_LENGTH;
    }
    count = r->info.committed - first;
    e->stats.returned_tokens += count;
    if (r->info.deterministic) e->stats.deterministic_tokens += count;
    llm42__emit_tokens(e, r, LLM42_EVENT_COMMITTED, first, count, r->logprobs + first, (llm42_output){0});
    if (first == 0) r->info.first_token = e->view.now;
    r->info.last_token = e->view.now;
    if (why == LLM42_FINISH_NONE) return false;
    llm42__finish(e, r, why);
    return true;
}

static void llm42__finish(llm42_engine *e, llm42__request *r, llm42_finish why) {
    if (r->slot >= 0) llm42__stop_running(e, r);
    else llm42__queue_remove(e, r);
    r->info.candidates = 0;
    r->info.state = LLM42_STATE_FINISHED;
    r->info.finish = why;
    e->stats.finished++;
    e->stats.cancelled += why == LLM42_FINISH_CANCELLED;
    e->stats.failed += why == LLM42_FINISH_ERROR;
    if (e->desc.drafter && e->desc.drafter->forget) e->desc.drafter->forget(e->desc.drafter->user, &r->info);
    llm42__emit_request(e, r, LLM42_EVENT_FINISHED, r->info.committed);
    if (e->desc.auto_release && r->asked) llm42__ask(e, r, LLM42__RELEASE);
    else if (e->desc.auto_release) llm42__forget(e, r);
}

// >>open ---------------------------------------------------------------------------------------------------------
// Owns: llm42_engine_open and _close: defaults, checks of the desc, memory, and the check that rows keep their bits.
// Calls: cpu, state, kv, submit, planner, hybrid; the backend.
// Invariant: an engine that has opened has all memory that its steps need.

size_t llm42_kv_token_bytes(const llm42_config *c, llm42_dtype compute) {
    return (size_t)(c->layers - c->recurrent_layers) * 2 * (size_t)(c->kv_heads * c->head_dim) *
           (compute == LLM42_DTYPE_FP32 ? 4 : 2);
}

static void llm42__resolve(llm42_engine_desc *d) {
    const llm42_config *c = &d->model->config;
#define LLM42__DEFAULT(field, value) \
    if (!d->field) d->field = (value)
    LLM42__DEFAULT(backend, llm42_backend_cpu());
    llm42_preset_apply(d);
    LLM42__DEFAULT(numerics.compute, LLM42_DTYPE_BF16);
    LLM42__DEFAULT(numerics.leaves, 1);
    LLM42__DEFAULT(tensor_parallel, 1);
    LLM42__DEFAULT(max_context, LLM42__MIN(c->context, 8192));
    LLM42__DEFAULT(max_running, 32);
    int longest = d->policy.chunked_prefill == LLM42_CHUNKED_OFF ? d->max_context : 256;
    LLM42__DEFAULT(token_budget, LLM42__MAX(longest, d->max_running));
    LLM42__DEFAULT(kv.page_size, 16);
    if (d->kv.prefix_cache && c->recurrent_layers) LLM42__DEFAULT(kv.snapshots, d->max_running);
    LLM42__DEFAULT(policy.deadline, d->policy.window);
    LLM42__DEFAULT(planner, llm42_planner_default());
    LLM42__DEFAULT(draft_limit, 7);
    LLM42__DEFAULT(experiment.inject_seed, 42);
    if (!d->kv.pages && d->max_context > 0 && d->kv.page_size > 0 && d->max_running > 0) {
        int64_t per_slot = ((int64_t)d->max_context + d->kv.page_size - 1) / d->kv.page_size;
        int64_t gigabyte = (1 << 30) / ((int64_t)llm42_kv_token_bytes(c, d->numerics.compute) * d->kv.page_size);
        d->kv.pages = (int)LLM42__MIN(per_slot * d->max_running, LLM42__MAX(gigabyte, per_slot));
    }
}

// A table of functions that the user gives needs a name of one word, and the function that is required.
static llm42_result llm42__check_table(const char *field, const char *name, bool whole, const char *function,
                                       llm42_error *error) {
    if (!name) LLM42__FAIL(INVALID, "llm42_engine_desc.%s: its name: required", field);
    if (!whole) LLM42__FAIL(INVALID, "llm42_engine_desc.%s: its %s function: required", field, function);
    if (name[0] && !name[strcspn(name, " \t\r\n")]) return LLM42_OK;
    LLM42__FAIL(INVALID, "llm42_engine_desc.%s: its name '%s': must be one word", field, name);
}

static llm42_result llm42__validate(const llm42_engine_desc *d, llm42_error *error) {
    const llm42_config *c = &d->model->config;
    const llm42__field fields[] = {
#define LLM42__ONE(...) +1
#define LLM42__RANGE(name, field, type, none, values) {#field, (int64_t)d->field, 1, 0 values(LLM42__ONE), false},
        LLM42_POLICIES(LLM42__RANGE){"policy.window", d->policy.window, 1, 4096, false},
        {"policy.group", d->policy.group, 1, 4096, false},
        {"policy.window x policy.group", (int64_t)d->policy.window * d->policy.group, 1, 1 << 20, false},
        {"policy.deadline", d->policy.deadline, 1, INT32_MAX, false},
        {"numerics.compute", d->numerics.compute, LLM42_DTYPE_BF16, LLM42_DTYPE_FP32, false},
        {"numerics.arithmetic", d->numerics.arithmetic, LLM42_ARITHMETIC_DEFAULT, LLM42_ARITHMETIC_SM100, false},
        {"draft_limit", d->draft_limit, 1, 4096, false},
        {"max_context", d->max_context, 2, c->context, false},
        {"max_running", d->max_running, 1, 1 << 16, false},
        {"token_budget", d->token_budget, 1, 1 << 20, false},
        {"kv.page_size", d->kv.page_size, 1, 4096, true},
        {"kv.snapshots", d->kv.snapshots, 0, 1 << 20, false},
        {"kv.pages", d->kv.pages, 1, 1 << 28, false}};
    LLM42__TRY(llm42__check_fields("llm42_engine_desc", fields, sizeof fields / sizeof *fields, error));
    LLM42__TRY(llm42_ranks_check("llm42_engine_desc", c, d->tensor_parallel, d->numerics.leaves, error));
    if (d->token_budget < d->max_running)
        LLM42__FAIL(INVALID,
                    "llm42_engine_desc.token_budget: %d: must be at least max_running, %d, so that every sequence can "
                    "decode in one pass",
                    d->token_budget, d->max_running);
    if (d->policy.chunked_prefill == LLM42_CHUNKED_OFF && d->token_budget < d->max_context)
        LLM42__FAIL(INVALID,
                    "llm42_engine_desc.token_budget: %d: must be at least max_context, %d, when chunked_prefill is "
                    "OFF: prompts run whole",
                    d->token_budget, d->max_context);
    LLM42__TRY(llm42__check_table("planner", d->planner->name, d->planner->plan, "plan", error));
    if (d->drafter) LLM42__TRY(llm42__check_table("drafter", d->drafter->name, d->drafter->draft, "draft", error));
    if (d->policy.mode == LLM42_MODE_HYBRID && d->policy.verifier == LLM42_VERIFIER_FIXED)
        LLM42__FAIL(INVALID, "llm42_engine_desc.policy.verifier: FIXED: mode HYBRID needs INVARIANT, so that all its "
                             "ways give one result");
    for (int i = 0; i < 2; i++) {
        const double share = i ? d->experiment.inject_rate : d->kv.admission_reserve;
        if (!(share >= 0 && share <= 1))
            LLM42__FAIL(INVALID, "llm42_engine_desc.%s: %g: must be from 0 to 1",
                        i ? "experiment.inject_rate" : "kv.admission_reserve", share);
    }
    if (!(d->experiment.gate >= 0))
        LLM42__FAIL(INVALID, "llm42_engine_desc.experiment.gate: %g: must not be negative", d->experiment.gate);
    return LLM42_OK;
}

// Runs the first tokens of a sequence alone, and again after as many other sequences as fit into a pass. Tokens and
// log-probability bits must be the same. Uses the first pages of the empty cache.
static llm42_result llm42__self_check(llm42_engine *e, llm42_schedule schedule, llm42_error *error) {
    enum { LENGTH = 8 };
    int most = schedule == LLM42_SCHEDULE_FIXED ? e->M : e->desc.token_budget, vocab = e->desc.model->config.vocab;
    int length = LLM42__MIN(LLM42__MIN(LENGTH, most), LLM42__MIN(e->desc.kv.page_size, e->desc.max_context));
    int copies = LLM42__MIN(LLM42__MIN(e->desc.max_running, e->desc.kv.pages), most / length);
    llm42_output alone[LENGTH] = {{0, 0}};
    for (int i = 0; i < copies; i++) {
        e->page_table[(size_t)i * (size_t)e->pages_per_slot] = i;
        e->seq[i] = (llm42_seq){.pages = e->page_table + (size_t)i * (size_t)e->pages_per_slot};
    }
    for (int trial = 0; trial < 2; trial++) {
        llm42_pass pass = {
            .schedule = schedule, .row = e->batch.row, .seq = e->seq, .out = e->batch.out, .check = true};
        for (int i = trial ? 0 : copies - 1; i < copies; i++)  // the last sequence is the one looked at
            for (int t = 0; t < length; t++) {
                int token = i == copies - 1 ? (7 * t + 3) % vocab : (11 * i + 5 * t) % vocab;
                e->batch.row[pass.rows++] = (llm42_row){i, t, token, LLM42_ROW_SAMPLE};
            }
        pass.shape = schedule == LLM42_SCHEDULE_FIXED ? e->M : pass.rows;
        llm42_result result = e->desc.backend->run(e->state, &pass, llm42__blank(e));
        LLM42__TRY(llm42__returned(e, result, LLM42_BACKEND, "run", error));
        for (int t = 0; t < length; t++) {
            llm42_output out = e->batch.out[pass.rows - length + t];
            if (!trial) alone[t] = out;
            else if (out.token != alone[t].token || llm42__bits(out.logprob) != llm42__bits(alone[t].logprob))
                LLM42__FAIL(NOT_INVARIANT,
                            "backend %s: a row's result changed with its place in a pass (schedule %s, %d rows): "
                            "nothing can be promised; use mode NONDETERMINISTIC",
                            e->desc.backend->name, llm42_schedule_name(schedule), pass.shape);
        }
    }
    return LLM42_OK;
}

llm42_result llm42_engine_close(llm42_engine *e) {
    if (!e) return LLM42_OK;
    LLM42__TRY(llm42__refuse_inside(e, "llm42_engine_close", NULL));
    for (int i = 0; i < LLM42__BUCKETS; i++)
        while (e->bucket[i]) llm42__forget(e, e->bucket[i]);
    if (e->state) e->desc.backend->close(e->state);
    llm42__free_all(&e->memory);
    llm42__free(e);
    return LLM42_OK;
}

llm42_result llm42_engine_reload(llm42_engine *e, llm42_error *error) {
    LLM42__TRY(llm42__refuse_inside(e, "llm42_engine_reload", error));
    if (e->view.running_count || e->waiting)
        LLM42__FAIL(INVALID, "llm42_engine_reload: %d requests are not finished: run or cancel them first",
                    e->view.running_count + e->stats.waiting);
    for (int p = 0; p < e->kv.pages; p++)
        if (e->kv.page[p].cached) llm42__prefix_evict(&e->kv, p);
    return e->desc.backend->reload ? e->desc.backend->reload(e->state, error) : LLM42_OK;
}

static bool llm42__engine_allocate(llm42_engine *e) {
    llm42__memory *memory = &e->memory;
    const size_t running = (size_t)e->desc.max_running;
    e->pages_per_slot = (e->desc.max_context + e->desc.kv.page_size - 1) / e->desc.kv.page_size;
    e->running = llm42__take(memory, running, sizeof *e->running);
    e->page_table = llm42__take(memory, running * (size_t)e->pages_per_slot, sizeof *e->page_table);
    e->seq = llm42__take(memory, running, sizeof *e->seq);
    e->draft = llm42__take(memory, e->desc.drafter ? running : 1, sizeof *e->draft);
    e->batch.plan.choice = llm42__take(memory, running + 1, sizeof *e->batch.plan.choice);
    e->batch.plan.room = e->desc.max_running + 1;
    e->batch.room = LLM42__MAX(e->M, e->desc.token_budget);
    e->batch.owner = llm42__take(memory, running + 1, sizeof *e->batch.owner);
    e->batch.row = llm42__take(memory, (size_t)e->batch.room, sizeof *e->batch.row);
    e->batch.out = llm42__take(memory, (size_t)e->batch.room, sizeof *e->batch.out);
    if (e->desc.experiment.gate > 0)
        e->batch.margins = llm42__take(memory, (size_t)e->batch.room, sizeof *e->batch.margins);
    if (memory->missing) return false;
    return true;
}

// Fills in an engine whose desc is complete. After an error llm42_engine_close frees what it has.
static llm42_result llm42__engine_init(llm42_engine *e, llm42_error *error) {
    const llm42_engine_desc *d = &e->desc;
    const llm42_policy *p = &d->policy;
    e->how = llm42__protocol_of(p);
    e->M = p->window * p->group;
    e->schedules = llm42_policy_schedules(p);
    if (!llm42__engine_allocate(e))
        LLM42__FAIL(MEMORY, "llm42_engine_open: out of memory for max_running %d and pages %d", d->max_running,
                    d->kv.pages);
    e->view.window_ready = d->experiment.bonus == LLM42_BONUS_ON ? p->window - 1 : p->window;
    e->view.replay = e->how.replay;
    e->view.desc = &e->desc;
    e->view.running = e->running;
    e->view.engine = e;
    e->view.seconds = llm42__view_seconds;
    e->view.verify_seconds = llm42__verify_seconds;
    e->view.measured = !d->backend->estimate;
    llm42_backend_desc backend = {.model = d->model, .numerics = d->numerics, .backend_desc = d->backend_desc};
    backend.tensor_parallel = d->tensor_parallel, backend.schedules = e->schedules;
    backend.max_rows = e->batch.room, backend.fixed_rows = e->M;
    backend.max_running = d->max_running, backend.max_context = d->max_context;
    backend.pages = d->kv.pages, backend.page_size = d->kv.page_size;
    backend.behind = LLM42__MAX(2 * p->window, d->draft_limit + 1) + 1, backend.snapshots = d->kv.snapshots;
    backend.log = d->log, backend.log_user = d->log_user;
    // Before the table of pages, because the backend refuses more than the device can hold.
    llm42_result result = e->desc.backend->open(&e->state, &backend, llm42__blank(e));
    LLM42__TRY(llm42__returned(e, result, LLM42_BACKEND, "open", error));
    if (!llm42__kv_open(&e->kv, &d->kv, &e->memory))
        LLM42__FAIL(MEMORY, "llm42_engine_open: out of memory for the table of %d pages", d->kv.pages);
    for (int s = LLM42_SCHEDULE_FIXED; s <= LLM42_SCHEDULE_INVARIANT; s++)
        if (e->schedules >> s & 1) LLM42__TRY(llm42__self_check(e, (llm42_schedule)s, error));
    memset(e->seq, 0, (size_t)d->max_running * sizeof *e->seq);
    return LLM42_OK;
}

llm42_result llm42_engine_open(llm42_engine **engine, const llm42_engine_desc *desc, llm42_error *error) {
    if (!engine) LLM42__FAIL(INVALID, "llm42_engine_open: engine: must not be NULL");
    *engine = NULL;
    if (!desc || !desc->model) LLM42__FAIL(INVALID, "llm42_engine_desc.model: required");
    llm42_engine_desc d = *desc;
    llm42__resolve(&d);
    LLM42__TRY(llm42__validate(&d, error));
    // More windows than requests run only cost memory. But the result of FIXED passes depends on M.
    if (d.policy.verifier == LLM42_VERIFIER_INVARIANT)
        d.policy.group = LLM42__MIN(d.policy.group, LLM42__MAX(32, d.max_running));
    llm42_engine *e = llm42__alloc_zero(1, sizeof *e);
    if (!e) LLM42__FAIL(MEMORY, "llm42_engine_open: out of memory");
    e->desc = d;
    llm42_result result = llm42__engine_init(e, error);
    if (result == LLM42_OK) *engine = e;
    else llm42_engine_close(e);
    return result;
}
#endif  // LLM42_IMPLEMENTATION

/* MIT License

   Copyright (c) 2026 llm42 authors

   Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
   documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
   rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to
   permit persons to whom the Software is furnished to do so, subject to the following conditions:

   The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
   Software.

   THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
   WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
   COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
   OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
*/
