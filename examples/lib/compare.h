// compare.h: finds where two computations begin to differ. A film is the list of the outputs of all operators of a
// pass, in the order in which they ran. The pass's probe (a function that gets each operator's output) records it. Two
// films of the same rows are compared value by value: by their bits, by their distance in ulps, and by the size of
// their difference. build/diff uses this file, and so do the tests of the CUDA backend.
//
//     film a = {0}, b = {0};
//     pass.probe = film_take, pass.probe_user = &a;       // then run the pass, and the other one with &b
//     comparison c;
//     int first = film_first_difference(&a, &b, LLM42_DTYPE_BF16, &c);  // -1: equal to the bit
//     film_free(&a), film_free(&b);
//
// An ulp (unit in the last place) is the distance of a number to the next one of its type.
#ifndef COMPARE_H
#define COMPARE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "llm42.h"
#include "stb_ds.h"
// Numbers ----------------------------------------------------------------------------------------------------------
uint32_t float_bits(float x);
// By bit pattern: no compiler option can make a NaN pass.
bool finite_bits(float x);
// How many ulps of `type` (bf16 or fp32) lie between two numbers. +0 and -0 count as one number: they are 0 ulps apart.
// If only one of the two is a bf16 number, the distance in ulps of bf16 may be a fraction. It is infinite if one is NaN
// or infinite and the other one has other bits.
double compare_ulps(float a, float b, llm42_dtype type);
// The root mean square of got - want, divided by that of want. If all of want is 0, it is not divided. Infinite if a
// number is not finite.
double compare_row(const float *got, const float *want, int n);
// "1 ulp of bf16"
const char *ulps_text(double ulps, llm42_dtype type, char text[48]);

// Films ------------------------------------------------------------------------------------------------------------
typedef struct shot {  // one operator's output
    int layer, rows, width;
    char name[24];
    float *values;  // [rows, width]
} shot;

typedef struct film {
    shot *shots;  // in the order in which the operators ran; an stb_ds array
    int rows;     // only the first rows of a pass are kept; 0: all
    bool failed;  // out of memory: shots are missing
} film;

// A llm42_probe_fn; user is the film.
void film_take(void *user, int layer, const char *name, int rows, int width, const float *values);
void film_free(film *f);
bool same_shape(const shot *a, const shot *b);

// How two outputs of one operator differ.
typedef struct comparison {
    int64_t values, differing;  // by their bits
    int row, column;            // of the first value that differs, row by row; -1: none
    double ulps;                // the largest distance of two values
    double relative;            // the largest difference of a row: compare_row with a as the row that is wanted
} comparison;

comparison compare_shots(const shot *a, const shot *b, llm42_dtype type);
// The place in a film of the first operator of which a value differs, or which the other film has not, or not in this
// place; *c says how it differs (no value does, if it is missing). -1: the films are equal to the bit.
int film_first_difference(const film *a, const film *b, llm42_dtype type, comparison *c);
// The first difference in words, for messages.
const char *film_first_text(const film *a, const film *b, llm42_dtype type, char text[240]);

#endif  // COMPARE_H
