// against.h: the answers of a transcript beside what their client asked for (audit --against). An audit alone takes the
// prompt, the sampling, the token limit and the stop tokens from the file, whose maker chose them. So an answer that
// was cut is whole to it, if the limit in the file was cut, too.
#ifndef AGAINST_H
#define AGAINST_H

#include "examples/lib/request_file.h"
#include "examples/util/llm42_transcript.h"

// Finds an answer to each request, and prints a line for each request that has none or that is answered in another way
// than was asked. Returns their number. Answers to nobody's request are counted in *more.
int against_compare(const request_file *f, const llm42_transcript *t, int *more);

#endif  // AGAINST_H
