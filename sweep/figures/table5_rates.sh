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

printed >"$work/printed"
awk -F '\t' -v seeds=$seeds '
    BEGIN {
        print "Table 5 at other rates, 4,096 requests, W = 64, G = 8. Ours are simulated, means over seeds " seeds "."
        print "\"File\" is the result file of the authors, and \"printed\" what their paper prints in Table 5 (time to first"
        print "token) and its text (latency), from another run; an empty cell is not printed."
    }
    FILENAME == ARGV[1] {
        split($2, part, " ")
        load = part[1] ", " part[2] " queries/s"
        paper[$1, load, substr($2, 13), $3] = $4; some[$1, load, $3] = 1
        next
    }
    /^#/ || $1 == "figure" { next }
    {
        split($3, part, " ")
        load = part[1] ", " part[2] " queries/s"
        mode = part[3] == "dvr" ? "DVR, " 100 * part[4] "% deterministic" : part[3]
        if (!seen[load]++) loads[++n] = load
        if (!known[mode]++) modes[++k] = mode
        ours[$2, load, mode, $4] = $5; file[$2, load, mode, $4] = $6
        key[mode] = part[3] (part[3] == "dvr" ? " " part[4] : "")
    }
    function cells(metric, load, mode, p, form, times,    text) {
        text = sprintf(" " form " | " form " |", times * ours[metric, load, mode, p], times * file[metric, load, mode, p])
        if (!((metric, load, p) in some)) return text
        p = metric SUBSEP load SUBSEP key[mode] SUBSEP p
        return text (p in paper ? " " times * paper[p] : "") " |"  # with the digits that it has there
    }
    function third(metric, load, p, text) { return (metric, load, p) in some ? text : "" }
    function table(metric, title, form, times,    i, j) {
        for (i = 1; i <= n; i++) {
            printf "\n| %s, %s | P50, ours | file |%s P99, ours | file |%s\n", loads[i], title,
                third(metric, loads[i], 50, " printed |"), third(metric, loads[i], 99, " printed |")
            print "| --- | --- | --- |" third(metric, loads[i], 50, " --- |") " --- | --- |" \
                third(metric, loads[i], 99, " --- |")
            for (j = 1; j <= k; j++)
                print "| " modes[j] " |" cells(metric, loads[i], modes[j], 50, form, times) \
                    cells(metric, loads[i], modes[j], 99, form, times)
        }
    }
    function ratio(value, load, mode) {
        return value["e2e_s", load, mode, 99] / value["e2e_s", load, "batch_invariant", 99]
    }
    END {
        table("ttft_s", "time to first token, ms", "%.1f", 1000)
        table("e2e_s", "end-to-end latency, s", "%.2f", 1)
        print "\n| P99 latency, divided by that of batch-invariant passes | ours | file |\n| --- | --- | --- |"
        for (i = 1; i <= n; i++) for (j = 1; j <= k; j++) if (modes[j] ~ /^DVR, (20|50|100)%/)
            printf "| %s, %s | %.2f | %.2f |\n", loads[i], modes[j], ratio(ours, loads[i], modes[j]),
                ratio(file, loads[i], modes[j])
    }' "$work/printed" "$points" >"$OUT/table5_rates.md"
