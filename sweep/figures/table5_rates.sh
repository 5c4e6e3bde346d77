#!/bin/bash
# Table 5 at other rates than Figure 11's: latencies of ShareGPT at 14 and 18 queries a second and of ArXiv at 1 and 1.6,
# by mode and share of deterministic requests (W = 64, G = 8; 4,096 requests). No number of the calibration is fitted to
# them. It leaves tables and no picture. The last one is the P99 latency of DVR divided by that of batch-invariant passes.
source "$(dirname "$0")/common.sh"
columns="ttft_p50_s ttft_p99_s e2e_p50_s e2e_p99_s"
for load in "sharegpt-served 14,18" "arxiv 1,1.6"; do
    set=(--workload "${load% *}" --qps "${load#* }" --requests 4096 --window 64 --group 8 --seed $seeds)
    cells "${set[@]}" --mode nondeterministic,batch_invariant
    cells "${set[@]}" --mode dvr --ratio 0.02,0.05,0.1,0.2,0.5,1
done
collect

# Series = workload, rate and mode; x = percentile.
long='{
    split("50 99 50 99", x, " ")
    for (i = 1; i <= 4; i++) print (i > 2 ? "e2e_s" : "ttft_s"), name, x[i], seed $(i + skip)
}'
# shellcheck disable=SC2086  # the list of columns is to be split
rows "$raw" workload qps mode ratio seed $columns | awk -F '\t' -v OFS='\t' -v skip=5 '
    {
        name = ($1 == "arxiv" ? "ArXiv " : "ShareGPT ") $2 + 0 " " $3 ($3 == "dvr" ? " " $4 + 0 : "")
        seed = $5 FS
    }'"$long" | by_seed >"$work/ours"
rows $reference/table5_other_rates.tsv workload qps mode ttft_p50 ttft_p99 e2e_p50 e2e_p99 |
    awk -F '\t' -v OFS='\t' -v skip=3 '
        { name = ($1 == "arxiv" ? "ArXiv " : "ShareGPT ") $2 + 0 " " }
        $3 ~ /^SGLang/ { name = name ($3 ~ /non-det/ ? "nondeterministic" : "batch_invariant") }
        $3 ~ /^LLM-42/ { name = name "dvr " substr($3, index($3, "@") + 1) / 100 }'"$long" >"$work/published"
compare "$work/ours" "$work/published" "simulated, means over seeds $seeds"

awk -F '\t' -v seeds=$seeds '
    BEGIN {
        print "Table 5 at other rates, 4,096 requests, W = 64, G = 8; ours are simulated, means over seeds " seeds "."
    }
    /^#/ || $1 == "figure" { next }
    {
        split($3, part, " ")
        load = part[1] ", " part[2] " queries/s"
        mode = part[3] == "dvr" ? "DVR, " 100 * part[4] "% deterministic" : part[3]
        if (!seen[load]++) loads[++n] = load
        if (!known[mode]++) modes[++k] = mode
        ours[$2, load, mode, $4] = $5; published[$2, load, mode, $4] = $6
    }
    function table(metric, title, form, i, j) {
        for (i = 1; i <= n; i++) {
            printf "\n| %s, %s, s | P50, ours | published | P99, ours | published |\n", loads[i], title
            print "| --- | --- | --- | --- | --- |"
            for (j = 1; j <= k; j++)
                printf "| %s | " form " | " form " | " form " | " form " |\n", modes[j],
                    ours[metric, loads[i], modes[j], 50], published[metric, loads[i], modes[j], 50],
                    ours[metric, loads[i], modes[j], 99], published[metric, loads[i], modes[j], 99]
        }
    }
    function ratio(value, load, mode) {
        return value["e2e_s", load, mode, 99] / value["e2e_s", load, "batch_invariant", 99]
    }
    END {
        table("ttft_s", "time to first token", "%.3f")
        table("e2e_s", "end-to-end latency", "%.1f")
        print "\n| P99 latency, divided by that of batch-invariant passes | ours | published |\n| --- | --- | --- |"
        for (i = 1; i <= n; i++) for (j = 1; j <= k; j++) if (modes[j] ~ /^DVR, (20|50|100)%/)
            printf "| %s, %s | %.2f | %.2f |\n", loads[i], modes[j], ratio(ours, loads[i], modes[j]),
                ratio(published, loads[i], modes[j])
    }' "$points" >"$OUT/table5_rates.md"
