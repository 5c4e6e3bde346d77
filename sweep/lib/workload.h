// workload.h: a spec text becomes a stream of requests: prompt length, output length, arrival, prompt tokens.
//
//     #include "llm42.h"
//     #include "sweep/lib/workload.h"     // needs jsmn.h and stb_ds.h, as llm42.h's implementation does
//
//     workload w;
//     workload_request r;
//     if (workload_open(&w, "sharegpt", "12", 42, &error)) args_fail(2, "%s", error.text);
//     for (int i = 0; i < n; i++) {
//         workload_next(&w, &r);                          // r.input_tokens, r.output_tokens, r.arrival_s
//         workload_prompt(&w, &r, vocab, tokens);         // tokens[r.input_tokens]
//     }
//     workload_close(&w);
//
// Specs:    sharegpt, sharegpt-served, arxiv
//                             lengths drawn from fitted distributions, see >>fit
//           fixed:IxO         I input and O output tokens each
//           uniform:IxO       1 to I and 1 to O tokens, equally likely
//           sglang:IxOxN      such lengths as SGLang's benchmark draws them for N requests and the seed (its random
//                             data set)
//           lengths:FILE      TSV with columns input_len and output_len, and perhaps arrival_s
//           azure:FILE        CSV with columns TIMESTAMP, ContextTokens, GeneratedTokens (Azure LLM inference traces)
//           mooncake:FILE     JSONL with timestamp (ms), input_length, output_length and hash_ids, one for each 512
//                             tokens
// Arrivals: a number          so many requests a second, a Poisson process that starts with request 0 at 0 s
//           offline           all at 0 s
//           trace             the file's own (azure, mooncake, and lengths with the column arrival_s), counted from its
//                             first request; workload_speed makes them come faster or slower
//
// A stream has no end: after a file's last request its first comes again. Under `trace` each round is later by the time
// from the trace's first request to its last. Files may hold # comments, blank lines and further columns. A length of 0
// tokens, which traces can hold, counts as 1, and .empty says how many lines have one.
//
// What depends on what: drawn lengths, gaps of Poisson arrivals and prompt tokens are hashes of (seed, index), so a
// million requests take no memory; files are held whole. Gaps are the same for every workload, and the rate divides
// them. An arrival is the sum of all gaps so far, so requests can only be read in order. Which requests are marked
// deterministic depends on (index, ratio). No elementary function of the C library is used: the stream is the same on
// every machine, to the bit.
#ifndef SWEEP_WORKLOAD_H
#define SWEEP_WORKLOAD_H

#include "sweep/lib/common.h"
#include "stb_ds.h"
#ifndef JSMN_H  // the implementation of llm42.h includes it in the same way
#define JSMN_STATIC
#define JSMN_STRICT
#define JSMN_PARENT_LINKS
#include "jsmn.h"
#endif

enum { WORKLOAD_KNOTS = 18, WORKLOAD_CELLS = 8, WORKLOAD_BLOCK = 512, WORKLOAD_LONGEST = 10000000 };

typedef struct workload_request {
    int64_t index;                    // counted from 0
    int input_tokens, output_tokens;  // at least 1 each
    double arrival_s;                 // never less than that of the request before
    // mooncake: an id for each 512 tokens of the prompt, the last for what remains; else none. Prompts that begin with
    // the same ids begin with the same tokens, within one cycle: a trace that is run through again brings prompts of
    // its own, or repeating it would add sharing that it does not have.
    const int64_t *block;
    int block_count;
    int64_t cycle;  // how often the file had been run through before
} workload_request;

typedef struct workload__line {  // of a file; fixed:IxO and uniform:IxO are files of one line
    int input, output, block_count;
    int64_t first_block;
    double arrival_s;
} workload__line;

typedef enum workload_arrivals { WORKLOAD_POISSON, WORKLOAD_OFFLINE, WORKLOAD_TRACE } workload_arrivals;

typedef struct workload {  // to be treated as read-only
    workload_arrivals arrivals;
    double qps;       // WORKLOAD_POISSON: requests a second
    double speed;     // WORKLOAD_TRACE: workload_speed; 0: the trace's own times
    int max_context;  // workload_clip; 0: no limit
    int64_t next;     // index of the request to come
    double clock_s;   // arrival of the request given last
    uint64_t length_key, gap_key, token_key;
    const uint8_t (*joint)[WORKLOAD_CELLS];  // not NULL: lengths come from the fit
    double log_in[WORKLOAD_KNOTS], log_out[WORKLOAD_KNOTS];
    bool uniform;             // lengths are drawn from 1 to those of the only line
    workload__line *line;     // else from a file (stb_ds arrays)
    int drawn_in, drawn_out;  // sglang: the most that any seed draws; else 0
    int64_t *block;
    bool timed;     // the lines have arrivals
    int64_t empty;  // lines of the file in which 0 tokens were read as 1
} workload;

// The file that a spec names, or NULL.
const char *workload_path(const char *spec);
void workload_close(workload *w);
// Errors: INVALID for what the caller wrote; IO, FORMAT and UNSUPPORTED for a file, named with the line. The workload
// is then closed.
llm42_result workload_open(workload *w, const char *spec, const char *qps, uint64_t seed, llm42_error *error);
// Makes every request fit a context of so many tokens, input and output together: the prompt loses its end, and the
// output is cut only where that would leave no prompt. To be called before the first request is taken.
llm42_result workload_clip(workload *w, int max_context, llm42_error *error);
// Makes a trace's own arrivals come `speed` times as fast: their times are divided by it. Other arrivals stay as they
// are. To be called before the first request is taken.
llm42_result workload_speed(workload *w, double speed, llm42_error *error);
// The most tokens, input and output together, that a request of the stream can have.
int workload_max_tokens(const workload *w);
void workload_next(workload *w, workload_request *r);
// Back to request 0.
void workload_rewind(workload *w);
// Fills tokens[r->input_tokens] with ids from 0 to vocab - 1.
void workload_prompt(const workload *w, const workload_request *r, int vocab, int32_t *tokens);
// Whether request `index` is marked deterministic: of the first N exactly ratio x N are, rounded, for every N. The
// marks stand at even distances, whatever the seed: unrelated to lengths that are drawn, and to a file's unless these
// follow a regular pattern too.
bool workload_is_deterministic(int64_t index, double ratio);

#endif  // SWEEP_WORKLOAD_H
