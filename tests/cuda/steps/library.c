// The library for cuda_steps, with its step in the arithmetic sm90, which no other file can call.
#define LLM42_IMPLEMENTATION
#include "examples/util/llm42_sm90.h"

float steps_sm90(float sum, const float *a, const float *b), steps_e4m3(float sum, const float *a, const float *b);

float steps_sm90(float sum, const float *a, const float *b) {
    return llm42__core_step(llm42__hopper_bf16, sum, a, b, 1);
}
float steps_e4m3(float sum, const float *a, const float *b) {
    return llm42__core_step(llm42__hopper_e4m3, sum, a, b, 1);
}
