#!/bin/bash
# The heat maps of Fig. 12 at other rates, simulated before anyone compares them: ShareGPT, 4,096 requests, all
# deterministic, means over five seeds. The published maps of these rates are not in this repository.
#
#     bash sweep/experiments/heatmaps.sh                     21 shapes at 6 and 11 queries/s, into OUT/heatmaps.tsv
#     PUBLISHED=FILE bash sweep/experiments/heatmaps.sh      also the errors, if a TSV has the columns qps group window
#                                                            recompute_pct p99_latency_s; KEEP=1: of what is there
#     RATES=12 OUT=FOLDER ...                                other rates
#
# Environment: sweep/figures/common.sh.
source "$(dirname "$0")/../figures/common.sh"
for shape in 1:16,32,64,128,256,512 2:16,32,64,128,256 4:16,32,64,128 8:16,32,64 16:16,32 32:16; do
    cells --workload sharegpt-served --requests 4096 --qps "${RATES:-6,11}" --ratio 1 --seed $seeds \
        --group "${shape%:*}" --window "${shape#*:}"
done
if [ -z "$KEEP" ]; then
    {
        awk '/^# (llm42|simulated|source|device|configuration)/ && !seen[$0]++' "${parts[@]}"
        echo "# means over seeds $seeds; overloaded: how many of these are, so that their latencies say little"
        printf 'qps\tgroup\twindow\trecompute_pct\tp99_latency_s\toverloaded\n'
        for part in "${parts[@]}"; do rows "$part" qps group window recompute_pct e2e_p99_s overloaded; done |
            awk -F '\t' -v OFS='\t' '
                { k = $1 OFS $2 OFS $3; if (!n[k]++) order[++keys] = k; r[k] += $4; p[k] += $5; o[k] += $6 == 1 }
                END { for (i = 1; i <= keys; i++) { k = order[i]; print k, r[k] / n[k], p[k] / n[k], o[k] } }' |
            sort -t $'\t' -k 1,1n -k 2,2n -k 3,3n
    } >"$work/heatmaps"
    mv "$work/heatmaps" "$raw"
fi
[ -n "${PUBLISHED:-}" ] || exit 0
rows "$PUBLISHED" qps group window recompute_pct p99_latency_s >"$work/published"
rows "$raw" qps group window recompute_pct p99_latency_s | awk -F '\t' '
    function size(x) { return x < 0 ? -x : x }
    function sorted(v, n,    i, k, t) {
        for (i = 2; i <= n; i++) for (k = i; k > 1 && v[k - 1] > v[k]; k--) { t = v[k]; v[k] = v[k - 1]; v[k - 1] = t }
    }
    function median(v, n) { return (v[int((n + 1) / 2)] + v[int(n / 2) + 1]) / 2 }
    NR == FNR { r[$1, $2, $3] = $4; p[$1, $2, $3] = $5; next }
    (k = $1 SUBSEP $2 SUBSEP $3) in r {
        if (!n[$1]++) rate[++rates] = $1
        points[$1, n[$1]] = size($4 - r[k]); percent[$1, n[$1]] = size(100 * ($5 / p[k] - 1))
    }
    END {
        print "| queries/s | cells | recomputed tokens, median error, points | worst | P99 latency, median error, % | worst |"
        print "| --- | --- | --- | --- | --- | --- |"
        for (q = 1; q <= rates; q++) {
            split("", a); split("", b); c = n[rate[q]]
            for (i = 1; i <= c; i++) { a[i] = points[rate[q], i]; b[i] = percent[rate[q], i] }
            sorted(a, c); sorted(b, c)
            printf "| %s | %d | %.1f | %.1f | %.1f | %.1f |\n", rate[q], c, median(a, c), a[c], median(b, c), b[c]
        }
    }' "$work/published" -
