#!/bin/bash
# Where two ways to run the same rows begin to differ (build/diff), computed on the CPU: a FAST pass of 8 rows and one
# of 9, sums in one leaf and in 8, one bit of one weight, and the sums of a CPU and of an H200. They go to OUT_DIFF,
# sweep/results/diff by default.
OUT=${OUT_DIFF:-sweep/results/diff}
source "$(dirname "$0")/common.sh"
# 32 tokens that tiny42 wrote itself.
text=0,678,387,282,945,260,1024,13,280,264,1024,283,264,428,13,280,264,1024,283,264,428,13,449,341,463,378,275,512
text+=,283,364,13,280

pair() {  # pair NAME WHAT OPTION...: what changes the logits
    local status=0
    if [ -z "$KEEP" ]; then
        "$B/diff" --ids $text "${@:3}" --out "$OUT/$1.tsv" >/dev/null || status=$?
        [ $status = 1 ] || fail "$B/diff ${*:3}: exit status $status instead of 1: they differ"
    fi
    can_plot || return 0
    bash sweep/plot_diff.sh "$OUT/$1.tsv" --title "$(tell "$2 %.0f%% of the logits, by at most %.2f%% of a row" \
        '$2 == "logits" { print 100 * $5 / $4, $7 }' "$OUT/$1.tsv")" >/dev/null
}

points=$OUT/NAME.tsv
pair fast_8_9 "tiny42 on a CPU: a ninth row in a FAST pass changes" --prompt 24 -a schedule=fast,rows=8 -b rows=9
pair leaves_1_8 "Random weights on a CPU: sums in 8 leaves instead of one change" --model synthetic:base -a leaves=1 -b leaves=8
pair one_bit "tiny42 on a CPU: the last bit of one weight changes" -b flip=layer0.down:777:0
pair fp32_sm90 "tiny42, on a CPU: computing and rounding as an H200 does, and not in fp32, changes" -a arithmetic=fp32 -b arithmetic=sm90
