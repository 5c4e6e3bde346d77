#!/bin/bash
# A margin gate (sweep/science/gate.sh): answers that are wrong by the share of tokens that are verified, from
# results/science/gate.tsv (a CPU) and gate_h200.tsv.
OUT=${OUT_SCIENCE:-sweep/results/science}
# shellcheck source=sweep/figures/common.sh
source "$(dirname "$0")/common.sh"
for file in "$raw" "${raw%.tsv}_h200.tsv"; do
    rows "$file" model backend fast logits policy running temperature verified_pct differing requests gate
done | awk -F '\t' '$5 == "at once" && $6 != 4 { print $1 "_" $2 "_" $3 "_" $4 "_" $7 "\t" $8 "\t" 100 * $9 / $10 "\t" $9 "\t" $11 "\t" $10 }' |
    awk -F '\t' -v OFS='\t' '{ p = $3 / 100; n = $6; z = 1.96 ^ 2; half = sqrt(z * p * (1 - p) / n + z * z / (4 * n * n))
        print $0, 100 * (p + z / (2 * n) - half) / (1 + z / n), 100 * (p + z / (2 * n) + half) / (1 + z / n) }' \
    >"$work/curves"
title=$(tell "A gate that verifies %.0f%% of the tokens leaves %.0f of 128 answers of tiny42 wrong, instead of %.0f" '
    $1 == "tiny42_cpu_default_bf16_0" && $5 == 0.3 { share = $2; left = $4 }
    $1 == "tiny42_cpu_default_bf16_0" && $5 < 1e-6 { all = $4 }
    END { print share, left, all }' "$work/curves")
reading="answers with another token than the canonical answer has, by the share of tokens that a gate lets pass"
notes=("the title: tiny42, greedy, and a gate that verifies only ties; points: gates from 4 (left) down to 1e-9"
    "bars: 95% intervals (Wilson); lines join the gates that were tried, and between them nothing was measured"
    "128 answers of 400 tokens each; hybrid42: 128 of 200; base42 and 8B: 32 of 200"
    "8B: random weights, on an H200, FAST products as cuBLASLt offers them; the others on a CPU")
source=" "
plot curves="$work/curves"
