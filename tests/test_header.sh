#!/bin/bash
# llm42.h compiles without a warning: its declarations as C11 and C++17, its implementation and every program as C11,
# by each compiler that is here; and it can be included by two files of one program.
# From the environment: WHITE_BOX (tests that need the whole header; default: each program may).
source tests/check.sh
out=$B/header
mkdir -p "$out"
log=$out/log
strict="-Wall -Wextra -Werror -I. -isystem $STB"

echo '#include "llm42.h"
int main(void) { return llm42_result_name(LLM42_OK) == 0; }' >"$out/uses.c"
cp "$out/uses.c" "$out/uses.cc"
echo '#include "examples/util/llm42_calibration.h"
int main() { llm42_calibration_free(nullptr); }' >"$out/frees.cc"
echo '#define LLM42_IMPLEMENTATION
#include "llm42.h"' >"$out/implements.c"

cat "$out/implements.c" "$out/uses.c" >"$out/linked.c"
{
    printf '#define LLM42_%sIMPLEMENTATION\n' '' METRICS_ TRACE_ TRANSCRIPT_ CALIBRATION_ DRAFT_
    printf '#include "%s"\n' examples/util/llm42_synthetic.h examples/util/*.h
} >"$out/whole.c"

# What a user's file has without llm42.h it has with it: extensions of POSIX in gnu17, <tgmath.h>, its own stb_ds.
echo '#include "llm42.h"
#include <math.h>
#include <stdlib.h>
#include <unistd.h>
int main(void) { return usleep(1) || random() < 0 || M_PI < 3; }' >"$out/extensions.c"
echo '#define STB_DS_IMPLEMENTATION
#include "stb_ds.h"
#define LLM42_NO_STB_DS_IMPLEMENTATION
#include <tgmath.h>
#define LLM42_IMPLEMENTATION
#include "llm42.h"' >"$out/own.c"

says() { "${@:2}" 2>&1 | grep -qF -- "$1"; }  # says TEXT COMMAND...: the command prints TEXT

compilers=$CC
for other in gcc clang; do
    [ "$other" = "$CC" ] || { command -v $other >/dev/null && compilers="$compilers $other"; }
done
for cc in $compilers; do
    check "$cc: declarations as C11" "$cc" -std=c11 -Wpedantic $strict -fsyntax-only "$out/uses.c"
    check "$cc: implementation as C11" "$cc" -std=c11 -O1 -Wpedantic $strict -c "$out/implements.c" \
        -o "$out/implements.o"
    check "$cc: implementation as GNU C17" "$cc" -std=gnu17 $strict -fsyntax-only "$out/implements.c"
    for how in -DLLM42_SCALAR -march=native; do
        check "$cc: implementation, $how" "$cc" -std=c11 -Wpedantic $strict $how -fsyntax-only "$out/implements.c"
    done
    # Nor in a program that asks for more warnings, with the companions.
    for how in -DLLM42_SCALAR -march=native; do
        check "$cc: conversions and shadows, $how" "$cc" -std=c11 $strict -Wconversion -Wsign-conversion -Wshadow $how \
            -fsyntax-only "$out/whole.c"
    done
    # Flags that change bits do not compile. gcc has the third; clang has it by another name.
    for how in -ffast-math -ffinite-math-only -fsingle-precision-constant; do
        [ $how != -fsingle-precision-constant ] || "$cc" -Werror $how -xc -E - >"$log" 2>&1 </dev/null ||
            how="-Xclang -cl-single-precision-constant"
        check "$cc: $how is refused" says "llm42.h: compile without -f" "$cc" -std=c11 -I. -isystem "$STB" $how \
            -fsyntax-only "$out/implements.c"
    done
    check "$cc: two files" "$cc" -std=c11 $strict "$out/uses.c" "$out/implements.o" -o "$out/two" -lm
    check "$cc: two files run" "$out/two"
    check "$cc: another object holds the implementation" "$cc" -std=c11 -Wpedantic $strict -DLLM42_IMPLEMENTED \
        "$out/linked.c" "$out/implements.o" -o "$out/two" -lm
    check "$cc: it runs" "$out/two"
    check "$cc: extensions" "$cc" -std=gnu17 $strict "$out/extensions.c" -o "$out/two"
    check "$cc: tgmath and stb_ds" "$cc" -std=gnu17 -I. -isystem "$STB" -fsyntax-only "$out/own.c"
    # The implementation was compiled above, so programs take its declarations alone, as their objects do.
    for c in examples/*.c examples/{diff,generate,lib,rollback,serve}/*.c sweep/*.c sweep/{bench,lib,sweep}/*.c tests/*.c tests/cuda/*.c; do
        [[ $c != examples/serve* ]] || pkg-config --exists libmicrohttpd jansson 2>/dev/null || continue
        case " ${WHITE_BOX-${c%.c}} " in *" ${c%.c} "*) declarations= ;; *) declarations=-DLLM42_IMPLEMENTED ;; esac
        check "$cc: $c" "$cc" -std=c11 -Wpedantic $strict $declarations -fsyntax-only "$c"
    done
done
# Random weights are there where their companion was compiled instead of llm42.h; without it one error says so.
echo '#include "examples/util/llm42_synthetic.h"
int main(void) {
    llm42_error error = {LLM42_OK, "loaded"};
    llm42_model *model;
    llm42_model_load(&model, &(llm42_model_desc){.path = "synthetic:tiny"}, &error);
    puts(error.text);
}' >"$out/random.c"
"$CC" -std=c11 $strict "$out/random.c" "$out/implements.o" -o "$out/random" -lm >"$log" 2>&1
check "llm42.h alone: no random weights" says "synthetic:tiny: include examples/util/llm42_synthetic.h" "$out/random"
"$CC" -std=c11 $strict -DLLM42_IMPLEMENTATION "$out/random.c" -o "$out/random" -lm >"$log" 2>&1
check "with their companion" says loaded "$out/random"
linked="$B/programs.a $B/llm42.o $OMP -o $out/options -lm"
# In a program's table of options two with one name are refused: the second would never be found.
echo '#define _POSIX_C_SOURCE 200809L
#include "examples/lib/args.h"
static const char *text;
static const args_option options[] = {ARGS_TEXT("model,m DIR", &text, ""), ARGS_TEXT(NAME, &text, ""), ARGS_END};
int main(int argc, char **argv) {
    args_parse(argc, argv, "", options);
    return 0;
}' >"$out/options.c"
for name in "model X" "most,m X" "m X" "help X" "h X" "host,h X" version; do
    "$CC" -std=c11 $strict -DNAME="\"$name\"" "$out/options.c" $linked >"$log" 2>&1
    check "a table with model,m and $name" says "the program has two options called $name" "$out/options"
done
"$CC" -std=c11 $strict -DNAME='"most,o X"' "$out/options.c" $linked >"$log" 2>&1
check "a table without doubles" "$out/options" -m model -o=most
# Weights are used as they lie in the file. Here the compiler is told that it has another byte order.
check "big-endian: refused" says "llm42.h: weights are used as they lie" "$CC" -std=c11 -I. -isystem "$STB" \
    -U__BYTE_ORDER__ -D__BYTE_ORDER__=__ORDER_BIG_ENDIAN__ -fsyntax-only "$out/implements.c"
check "a companion alone" "$CC" -std=c11 -Wpedantic $strict -DLLM42_CALIBRATION_IMPLEMENTATION -xc \
    -c examples/util/llm42_calibration.h -o "$out/calibration.o"
cxx=0
for cc in g++ clang++; do
    command -v $cc >/dev/null || continue
    cxx=1
    check "$cc: declarations as C++17" "$cc" -std=c++17 -Wpedantic $strict -fsyntax-only "$out/uses.cc"
    # The companions' declarations too. What is C says so in one error.
    for h in metrics trace transcript draft sha256 calibration cuda synthetic; do
        printf '#include "llm42.h"\n#include "examples/util/llm42_%s.h"\n' $h >"$out/companion.cc"
        check "$cc: llm42_$h.h as C++17" "$cc" -std=c++17 -Wpedantic $strict -fsyntax-only "$out/companion.cc"
    done
    while read -r macro h; do
        printf '#define %s\n#include "%s"\n#include "llm42.h"\n' "$macro" "$h" >"$out/implements.cc"
        check "$cc: $h and $macro: one error, which names C11" bash -c '"$@" 2>&1 | grep "error:" >"$0"
            [ "$(wc -l <"$0")" = 1 ] && grep -q "C11.*\.c file" "$0"' "$log" \
            "$cc" -std=c++17 -I. -isystem "$STB" -fsyntax-only "$out/implements.cc"
    done <<'END'
LLM42_IMPLEMENTATION llm42.h
LLM42_IMPLEMENTATION examples/util/llm42_synthetic.h
LLM42_TRACE_IMPLEMENTATION examples/util/llm42_trace.h
LLM42_TRANSCRIPT_IMPLEMENTATION examples/util/llm42_transcript.h
LLM42_SHA256_IMPLEMENTATION examples/util/llm42_sha256.h
LLM42_CALIBRATION_IMPLEMENTATION examples/util/llm42_calibration.h
TOKENIZER examples/util/tokenizer.h
END
    check "$cc: C++ calls C" "$cc" -std=c++17 $strict "$out/uses.cc" "$out/implements.o" -o "$out/two" -lm
    check "$cc: C++ calls a companion" "$cc" -std=c++17 $strict "$out/frees.cc" "$out/calibration.o" \
        "$out/implements.o" -o "$out/two" -lm
done
[ $cxx = 1 ] || { echo "  declarations as C++17: skipped: no C++ compiler"; skipped=1; }
finish
