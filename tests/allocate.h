// The functions through which the library in build/llm42.o takes and frees memory. In most programs they are the C
// library's. A test program has functions of its own instead (test.h), which place, count and fail allocations.
#ifndef LLM42_ALLOCATE_H
#define LLM42_ALLOCATE_H
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>

void *test_lib_malloc(size_t size);
void *test_lib_realloc(void *old, size_t size);
void test_lib_free(void *p);

__attribute__((weak)) void *test_lib_malloc(size_t size) { return malloc(size); }
__attribute__((weak)) void *test_lib_realloc(void *old, size_t size) { return realloc(old, size); }
__attribute__((weak)) void test_lib_free(void *p) { free(p); }

#define LLM42_MALLOC(size) test_lib_malloc(size)
#define LLM42_REALLOC(pointer, size) test_lib_realloc(pointer, size)
#define LLM42_FREE(pointer) test_lib_free(pointer)

#endif  // LLM42_ALLOCATE_H
