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
    { x = $1; sub(/^fixed:/, "", x); sub(/x.*/, "", x); key = x FS $2; bad[key] += $3 == 1; short[key] += $3 == "nan" }
    END { for (key in bad) if (bad[key] || short[key]) print key, (bad[key] ? "x" : "?") }' >"$work/marks"
# Overloaded cells do not count: their times grow with the number of requests.
title=$(tell "Simulated: where no run is overloaded, the first token takes ISOLATED %.2f to %.2f times as long as PACKED" '
    NF == 3 { bad[$2 + 0, $1] = 1; next }
    $2 == "ttft_p99_isolated_s" { alone[$3, $4] = $5 }
    $2 == "ttft_p99_packed_s" { packed[$3, $4] = $5; x[++n] = $3 SUBSEP $4 }
    END {
        for (i = 1; i <= n; i++) {
            r = alone[x[i]] / packed[x[i]]
            if (x[i] in bad) continue
            most = larger(most, r); least = smaller(least, r)
        }
        print least, most
    }' "$work/marks" "$points")
reading="P99 time to first token, ISOLATED / PACKED, and both in s; blue: PACKED is faster"
notes=("x: overloaded; ?: may be; all deterministic, 64 tokens out, 1,024 requests, W = 64, G = 8, verification EAGER; means of five seeds")
plot marked="$work/marks"
