#!/bin/bash
# Which mechanism wins? Throughput of verification (DVR) against batch-invariant kernels, by the share of requests that
# are deterministic and by how many times slower batch-invariant passes are than fast ones. ShareGPT, offline, 4,096
# requests, W = 64, G = 8. The two axes are independent: DVR never runs a batch-invariant pass, and a batch-invariant
# engine treats all requests alike.
source "$(dirname "$0")/common.sh"
load=(--workload sharegpt-served --requests 4096 --qps offline --window 64 --group 8)
cells "${load[@]}" --mode dvr --ratio 0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1
cells "${load[@]}" --mode batch_invariant --slowdown 1,1.25,1.5,1.75,2,2.25,2.5,2.75,3,0
collect

# Series = slowdown, x = ratio; slowdown 0 stands for the calibration's own batch-invariant passes. Break-even: the
# slowdown at which both are equally fast, between the two neighbours.
rows "$raw" mode ratio slowdown total_tok_per_s | awk -F '\t' -v OFS='\t' '
    $1 == "dvr" { ratio[++n] = $2 + 0; dvr[n] = $4; next }
    { slow[++m] = $3 + 0; invariant[m] = $4 }
    END {
        for (i = 1; i <= n; i++)
            for (j = 1; j <= m; j++) print "dvr_vs_invariant", slow[j], ratio[i], dvr[i] / invariant[j]
        for (i = 1; i <= n; i++)
            for (j = 1; j < m - 1; j++) if (invariant[j] >= dvr[i] && dvr[i] > invariant[j + 1])
                print "break_even_slowdown", "dvr", ratio[i], slow[j] + (slow[j + 1] - slow[j]) * \
                    (invariant[j] - dvr[i]) / (invariant[j] - invariant[j + 1])
        for (j = 1; j < m - 1; j++) if (invariant[j] >= invariant[m] && invariant[m] > invariant[j + 1])
            print "calibration_slowdown", "batch_invariant", "nan", slow[j] + (slow[j + 1] - slow[j]) * \
                (invariant[j] - invariant[m]) / (invariant[j] - invariant[j + 1])
    }' >"$work/ours"
: >"$work/published"
compare "$work/ours" "$work/published" "simulated, seed 42"
plot
