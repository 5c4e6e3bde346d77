#!/bin/bash
# Prompts of deterministic requests: alone, at their own shape (ISOLATED, the paper's), or as rows of replay passes
# (PACKED). P99 time to the first token by prompt length and arrival rate; 64 tokens out, all deterministic, W = 64,
# G = 8, 1,024 requests.
source "$(dirname "$0")/common.sh"
for input in 128 256 512 1024 2048 4096; do
    cells --workload fixed:${input}x64 --requests 1024 --qps 1,2,4,8,16,32 --ratio 1 --window 64 --group 8 \
        --prefill isolated,packed --seed $seeds
done
collect

# Series = rate, x = prompt length.
rows "$raw" workload qps prefill ttft_p99_s | awk -F '\t' -v OFS='\t' '
    { x = $1; sub(/^fixed:/, "", x); sub(/x.*/, "", x); print "ttft_p99_" $3 "_s", $2 + 0, x, $4 }' | mean >"$work/ours"
: >"$work/published"
compare "$work/ours" "$work/published" "simulated, means over seeds $seeds"
rows "$raw" workload qps overloaded | awk -F '\t' -v OFS='\t' '
    $3 == 1 { x = $1; sub(/^fixed:/, "", x); sub(/x.*/, "", x); if (!seen[x, $2]++) print x, $2 }' >"$work/crosses"
plot crosses="$work/crosses"
