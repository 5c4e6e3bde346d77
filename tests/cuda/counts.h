// counts.h: what the programs of nvcc's count, and how they end. Define COUNTS_OF, the program's name, first.
#ifndef LLM42_COUNTS_H
#define LLM42_COUNTS_H
#include <stdio.h>

static int passed, failed;

static bool count_check(bool ok, const char *what, const char *about) {  // about: what else a failure says
    passed += ok, failed += !ok;
    if (!ok && failed < 40) printf(COUNTS_OF ": FAILED: %s (%s)\n", what, about);
    return ok;
}

static int end(void) {
    printf(COUNTS_OF ": %d passed, %d failed\n", passed, failed);
    return failed ? 1 : 0;
}

#endif  // LLM42_COUNTS_H
