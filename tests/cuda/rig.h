// rig.h: what the parts of test_cuda share: options, results, models, and a backend with its KV pages, by the public
// API.
#ifndef CUDA_RIG_H
#define CUDA_RIG_H

#define TEST_SHARED  // rig.c holds the harness's state
#include "../test.h"

#include "examples/lib/compare.h"
#include "examples/util/llm42_cuda.h"

#include <stb_ds.h>

// The parts: one file each. test_cuda.c runs those that --part names.
void part_models(void);
void part_layers(void);
void part_arithmetic(void);
void part_e4m3(void);
void part_passes(void);
void part_errors(void);
void part_small(void);
void part_ranks(void);
void part_exchange(void);
void part_sglang(void);
void part_determinism(void);

enum { PASSES_LEAST_M = 57 };  // the smallest M that part passes can test

// What the user asked for. The table in test_cuda.c says what each option means.
typedef struct rig_options {
    const char *shared, *model, *record;
    int64_t record_every, requests, longest_prompt, longest_output, loads, from_load, seed, window, group, kv_gib,
        ranks, reference_ranks, devices, leaves;
    bool quick, all_presets;
} rig_options;

extern rig_options options;
extern const llm42_backend *tested;  // the backend under test
extern llm42_cuda_desc cuda_desc;    // its desc
extern llm42_error rig_error;        // of the last call that failed

bool is_cuda(void);
// As many leaves and ranks as --leaves and --tensor-parallel say, or as many as a GPU can cut the model into.
int leaves_for(const llm42_model *model);
int ranks_for(const llm42_model *model);

// Results ----------------------------------------------------------------------------------------------------------
void note_head(const char *line);                                 // prints a line, and keeps it for the head; each once
void note_line(void *user, const char *line);                     // a llm42_log_fn: the same for `cuda KEY: VALUE`
void note(const char *name, const char *quantity, double value);  // a result: a line `part case quantity value`
void write_results(FILE *tsv);                                    // all of these; NULL: only frees them

// Models -----------------------------------------------------------------------------------------------------------
// The device makes big random models itself: on the host they would take too much time and memory.
llm42_model *load_model(const char *path, bool on_device);
// The model of parts that have no list of their own: --model, else base42, else random weights of its shape.
const char *main_model(void);
void each_arch(void (*check)(const char *path));  // of the folders in tests/arch

// A backend with one page table for each sequence ------------------------------------------------------------------
typedef struct rig {
    const llm42_backend *backend;
    void *state;
    const llm42_model *model;
    llm42_backend_desc desc;
    int vocab, seqs, pages_per_seq;
    int32_t *page;   // [seqs, pages_per_seq], shuffled: a page's number says nothing about its place
    llm42_seq *seq;  // [seqs]
    uint64_t random;
} rig;

llm42_result rig_try(rig *g, const llm42_backend *backend, llm42_backend_desc desc);  // opens it
bool rig_open(rig *g, const llm42_backend *backend, llm42_backend_desc desc);  // the same; a refusal is a failure
void rig_close(rig *g);
void rig_shuffle(rig *g);  // deals the pages anew
llm42_pass rig_pass(const rig *g, llm42_schedule schedule, const llm42_row *row, int rows, llm42_output *out,
                    float *logits);
bool rig_run(rig *g, const llm42_pass *pass);
// Feeds ids[from .. from + count) of sequence s in one pass, whose rows are all sampled. out, logits: NULL or results.
bool rig_feed(rig *g, llm42_schedule schedule, int s, const int32_t *ids, int from, int count, llm42_output *out,
              float *logits);
// Feeds count ids, from position 0, in passes of at most `chunk` rows.
bool rig_prefill(rig *g, llm42_schedule schedule, int s, const int32_t *ids, int count, int chunk, float *logits);

// Numbers ----------------------------------------------------------------------------------------------------------
int32_t *random_ids(int count, int vocab, uint64_t seed);  // the caller frees them
float *new_floats(size_t count);                           // zeros; the caller frees them
uint64_t hash_bytes(uint64_t hash, const void *data, size_t size);
int top_of(const float *x, int n);     // index of the largest
double gap_of(const float *x, int n);  // the largest less the second largest
// Root mean square of got - want as a share of the standard deviation of want; infinite if any is not a number.
double logit_error(const float *got, const float *want, int n);

// Mode HYBRID follows the times of passes. This is the built-in planner with times that are made up: for a random
// number of passes FAST ones pay, and then for as many INVARIANT ones. So every mixture of both comes up.
extern const llm42_planner mixed_planner;

#endif  // CUDA_RIG_H
