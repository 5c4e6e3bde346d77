#!/bin/bash
# When to verify, and with what, by share of deterministic requests: EAGER with passes filled by partial windows in
# order of admission (this fits the paper), EAGER filled by those with the most candidates (ours), and WAIT. ShareGPT,
# W = 64, G = 8, 4,096 requests: throughput offline, P99 latency at 12 queries a second.
source "$(dirname "$0")/common.sh"
load=(--workload sharegpt-served --requests 4096 --window 64 --group 8 --qps offline,12 --seed $seeds)
cells "${load[@]}" --mode nondeterministic
cells "${load[@]}" --ratio 0.02,0.05,0.1,0.2,0.5,1 --verify eager --fill oldest,largest
cells "${load[@]}" --ratio 0.02,0.05,0.1,0.2,0.5,1 --verify wait
collect

# Series = policy, x = ratio.
rows "$raw" mode verify fill ratio qps total_tok_per_s e2e_p99_s | awk -F '\t' -v OFS='\t' '
    {
        series = $1 == "dvr" ? $2 ($2 == "eager" ? " " $3 : "") : $1
        if ($5 == "offline") print "total_tok_per_s", series, $4 + 0, $6
        else print "p99_latency_s", series, $4 + 0, $7
    }' | mean >"$work/ours"
: >"$work/published"
compare "$work/ours" "$work/published" "simulated, means over seeds $seeds"
title=$(tell "With all requests deterministic, P99 latency is %.0f s if the oldest windows fill a pass, %.0f s if the largest do" '
    $2 == "p99_latency_s" && $4 == 1 { p99[$3] = $5 }
    END { print p99["eager oldest"], p99["eager largest"] }')
notes=("ShareGPT, 4,096 requests, W = 64, G = 8, ISOLATED; means over five seeds; simulated"
    "oldest, largest: which partial windows fill a pass")
plot
