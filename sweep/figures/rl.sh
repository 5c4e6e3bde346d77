#!/bin/bash
# Learning with equal bits and without (sweep/science/rl.py): importance ratios and rewards by step, from
# results/science/rl.tsv (a CPU) and rl_h200.tsv.
OUT=${OUT_SCIENCE:-sweep/results/science}
# shellcheck source=sweep/figures/common.sh
source "$(dirname "$0")/common.sh"
for device in cpu h200; do
    file=${raw%.tsv}$([ $device = cpu ] || echo _h200).tsv
    rows "$file" way step reward ratio_low ratio_high | awk -F '\t' -v OFS='\t' -v device=$device '
        { k = device "_" $1 OFS $2; if (!(k in n)) { order[++count] = k; low[k] = $4; high[k] = $5 }
          n[k]++; sum[k] += $3; if ($4 < low[k]) low[k] = $4; if ($5 > high[k]) high[k] = $5 }
        END { for (i = 1; i <= count; i++) { k = order[i]; print k, sum[k] / n[k], low[k], high[k] } }'
done >"$work/curves"  # curve, step, mean reward of the seeds, smallest and largest ratio of their tokens
title=$(tell "With PyTorch's probabilities importance ratios are %.2f to %.2f on an H200 (%.2f to %.2f on a CPU); \
with llm42 on both sides all are exactly %g" '
    { ours = $1 ~ /llm42/ ? "llm42" : substr($1, 1, index($1, "_") - 1); low[ours] = smaller(low[ours], $4); high[ours] = larger(high[ours], $5) }
    END { print low["h200"], high["h200"], low["cpu"], high["cpu"], low["llm42"] == high["llm42"] ? low["llm42"] : "nan" }' "$work/curves")
reading="above: smallest and largest ratio of a step, over the 4,608 tokens of three seeds; below: their mean reward"
notes=("fast: ordinary requests and PyTorch; mixed: deterministic requests and PyTorch; llm42: both sides by llm42"
    "on the H200 the runs of fast and mixed are equal, so that their curves are one"
    "tiny42 learns by GRPO to write words without an e; PyTorch computes in fp32 on the CPU and in bf16 on the GPU")
source=" "
plot curves="$work/curves"
