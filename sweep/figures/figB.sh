#!/bin/bash
# When to verify, by share of deterministic requests: EAGER (the paper's way) or WAIT. ShareGPT, W = 64, G = 8, 4,096
# requests: throughput offline, P99 latency at 12 queries a second.
source "$(dirname "$0")/common.sh"
load=(--workload sharegpt-served --requests 4096 --window 64 --group 8 --qps offline,12 --seed $seeds)
cells "${load[@]}" --mode nondeterministic
cells "${load[@]}" --ratio 0.02,0.05,0.1,0.2,0.5,1 --verify eager,wait
collect

# Series = policy, x = ratio.
rows "$raw" mode verify ratio qps total_tok_per_s e2e_p99_s | awk -F '\t' -v OFS='\t' '
    {
        series = $1 == "dvr" ? $2 : $1
        if ($4 == "offline") print "total_tok_per_s", series, $3 + 0, $5
        else print "p99_latency_s", series, $3 + 0, $6
    }' | mean >"$work/ours"
: >"$work/published"
compare "$work/ours" "$work/published" "simulated, means over seeds $seeds"
title=$(tell "Simulated, five seeds: with all requests deterministic, EAGER has a P99 latency of %.0f s, and WAIT one of %.0f s" '
    $2 == "p99_latency_s" && $4 == 1 { p99[$3] = $5 }
    END { print p99["eager"], p99["wait"] }')
notes=("ShareGPT, 4,096 requests, W = 64, G = 8, prompts ISOLATED; means over five seeds")
plot
