#!/bin/bash
# What one model says by the tensor cores of several GPUs (sweep/science/arithmetics.py), from results/diff/arithmetics.tsv
# and arithmetics_base42.tsv, which have the same columns.
OUT=${OUT_DIFF:-sweep/results/diff}
# shellcheck source=sweep/figures/common.sh
source "$(dirname "$0")/common.sh"
# model temperature arithmetic place, bar, two shares in % and colour. A bar's place is that of its model and temperature,
# and a bit farther left or right for each arithmetic. sm89 has a bar only where it has a row of its own.
for file in "${raw%.tsv}_base42.tsv" "$raw"; do
    rows "$file" model temperature arithmetic texts other_texts positions other_bits |
        awk -F '\t' -v OFS='\t' '
            BEGIN { model["tiny42"] = 1; model["tiny42-fp8"] = 2; model["base42"] = 3 }
            BEGIN { bar["sm100"] = 1; bar["sm80"] = 2; bar["fp32"] = 3 }
            $3 == "sm89" && $1 == "tiny42-fp8" { bar[$3] = 2 }
            $3 in bar {
                print $1, $2, $3, 2 * model[$1] + ($2 > 0), bar[$3], 100 * $5 / $4, 100 * $7 / $6, $3 == "sm89" ? 4 : bar[$3], $4
            }
            { delete bar["sm89"] }'
done >"$work/shares"
# Wilson's 95% interval of a share of n answers.
interval=$(tell "%.0f to %.0f" '
    $1 == "base42" && $2 == 0 && $3 == "sm80" { p = $6 / 100; n = $9; z = 1.96 ^ 2 }
    END {
        half = sqrt(z * p * (1 - p) / n + z * z / (4 * n * n))
        print 100 * (p + z / (2 * n) - half) / (1 + z / n), 100 * (p + z / (2 * n) + half) / (1 + z / n)
    }' "$work/shares")
title=$(tell "With an A100's tensor-core steps instead of an H200's, %.0f%% of tiny42's greedy answers change (on a CPU)" \
    '$1 == "tiny42" && $2 == 0 && $3 == "sm80" { print $6 }' "$work/shares")
reading="each answer of 128 tokens is compared with that of an H200's arithmetic (sm90)"
notes=("240 answers of tiny42 and of tiny42 in FP8, 20 of base42, whose 30% has a 95% interval from $interval%" "all computed on a CPU; sm90 was compared with GPUs to the bit, of sm80, sm89 and sm100 only single steps"
    "in bf16 sm89 is as sm80, and sm100 has the steps of sm90; FP8 models have only sm89, sm90 and fp32; base42 was not computed with sm100")
source=" "
plot shares="$work/shares"
