// batch.h: many requests from a file, as `generate --batch IN.jsonl --out OUT.jsonl`. request_file.h says what a line
// of IN has. All lines are checked before anything runs. The requests run together in one engine. An answer is written
// as soon as it is whole, so that an interruption loses none: until the end the file has the answers in the order in
// which they came, each with a digest of its own line. OUT gets its name at the end, with the answers in the order of
// IN. After an interruption the file is OUT.unfinished, and the same command takes over what it holds and computes the
// rest. Each answer has a digest of its request and of all that it depends on. So for deterministic requests the result
// is, to the byte, that of a run that nothing has interrupted. A pipe gets the answers in the order of IN, and keeps
// nothing.
#ifndef BATCH_H
#define BATCH_H

#include "examples/lib/request_file.h"
#include "examples/util/llm42_sha256.h"

typedef struct batch_line {
    request_line *asked;
    char digest[LLM42_SHA256_TEXT];  // of the request and of all else that the answer depends on
    char *json;                      // what is written, once it is known
    size_t size;                     // of .json
} batch_line;

typedef struct batch {
    request_file in;
    const char *out;
    const char *settings;          // of the command line, that results depend on
    batch_line *line;              // an stb_ds array
    char unfinished[4200];         // OUT.unfinished
    bool piped;                    // OUT is written as it is, and in the order of IN
    int64_t kept, written, ready;  // answers taken over; those that OUT has so far; those that are finished
    int64_t tokens;                // of answers in this run
    bool failed, stopping;         // an answer taken over ended by an error; the run is being ended
    FILE *file;                    // OUT
} batch;

// Reads and checks IN.
void batch_read(batch *b);
// Submits what is lacking, and opens OUT when all of it is accepted.
void batch_begin(batch *b, llm42_engine *engine);
void batch_event(batch *b, llm42_engine *engine, const llm42_event *event);
// Runs until all is done or the program is asked to end. Progress is for a terminal.
void batch_run(batch *b, llm42_engine *engine);
// Ends the program if it was asked to.
void batch_stop_if_asked(const batch *b);
// Gives OUT its name. Until then its answers are in OUT.unfinished, so that nothing that happens here loses one.
void batch_end(batch *b);

#endif  // BATCH_H
