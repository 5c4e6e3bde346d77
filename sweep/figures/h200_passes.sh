#!/bin/bash
# Pass times of the 8B shape on one H200 as shares of the ceilings measured in the same run: decode of the read ceiling
# (weights and KV), replay passes and prompts of cuBLAS's. Needs passes.tsv (sweep/h200/run.sh passes).
# shellcheck disable=SC2034  # h200.inc looks for these: any will do
needs="passes"
# shellcheck source=sweep/figures/h200.inc
source "$(dirname "$0")/h200.inc"
rows "$H200/passes.tsv" suite case rows context_tokens ms memory_share_pct matmul_share_pct >"$work/rows"
awk -F '\t' -v OFS='\t' -v figure="$figure" '
    BEGIN {
        print "# measured on the GPU"
        print "figure", "metric", "series", "x", "measured"
    }
    $1 != "passes" { next }
    { series = $2 ($2 ~ /decode/ ? " " $4 : "") }
    { behind = before; before = $2 }
    behind == "fixed_prompt" && $2 == "invariant_prompt" { next }  # those in turn with FAST ones are shown
    { print figure, "ms", series, $3, $5; print figure, "memory_share_pct", series, $3, $6 }
    { print figure, "matmul_share_pct", series, $3, $7 }' "$work/rows" >"$points"
title=$(tell "Decode passes read memory at %.0f to %.0f%% of the fastest read, replay passes multiply at %.0f to %.0f%% of cuBLAS's best" '
    $2 == "memory_share_pct" && $3 ~ /decode/ { least = smaller(least, $5); most = larger(most, $5) }
    $2 == "matmul_share_pct" && $3 == "fixed_replay" { low = smaller(low, $5); high = larger(high, $5) }
    END { print least, most, low, high }')
notes=("100% on the left: weights and KV entries are read at the speed of a kernel that only reads"
    "100% on the right: as many operations per second as cuBLAS reaches with large matrices")
source="measured: $(model_name 8b), bf16, on $(device_of "$H200/passes.tsv"); $(made_of "$H200/passes.tsv")"
plot
