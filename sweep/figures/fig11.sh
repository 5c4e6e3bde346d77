#!/bin/bash
# Figure 11 and Table 5: time to the first token and end-to-end latency of ShareGPT at 12 queries a second, by mode and
# share of deterministic requests (W = 64, G = 8; 4,096 requests). The published latencies are those of passes filled
# with partial windows in order of admission, as EAGER fills them. The curves are distributions over the requests of all
# seeds. The paper states four percentiles of each, and no times between tokens.
source "$(dirname "$0")/common.sh"
load=(--workload sharegpt-served --requests 4096 --qps 12 --window 64 --group 8)
names=(nondeterministic batch_invariant "dvr 0.02" "dvr 0.05" "dvr 0.1" "dvr 0.2" "dvr 0.5" "dvr 1")
for name in "${names[@]}"; do
    mode=(--mode "${name% *}")
    [ "${name% *}" = "$name" ] || mode+=(--ratio "${name#* }")
    by_request "$name" "${load[@]}" "${mode[@]}"
done
collect

cdf=$OUT/${figure}_cdf.tsv
if [ -z "$KEEP" ]; then
    printf 'metric\tseries\tpercentile\tseconds\n' >"$work/cdf"
    for name in "${names[@]}"; do distribution "$name" ttft_s e2e_s >>"$work/cdf"; done
    mv "$work/cdf" "$cdf"
fi

# Series = mode, x = percentile; metric = ttft_s or e2e_s.
columns="ttft_p50_s ttft_p75_s ttft_p90_s ttft_p99_s e2e_p50_s e2e_p75_s e2e_p90_s e2e_p99_s"
long='{
    split("50 75 90 99", x, " ")
    for (i = 1; i <= 8; i++) print (i > 4 ? "e2e_s" : "ttft_s"), name, x[(i - 1) % 4 + 1], seed $(i + skip)
}'
# shellcheck disable=SC2086  # the list of columns is to be split
rows "$raw" mode ratio seed $columns | awk -F '\t' -v OFS='\t' -v skip=3 \
    '{ name = $1 == "dvr" ? "dvr " $2 + 0 : $1; seed = $3 FS }'"$long" | by_seed >"$work/ours"
# shellcheck disable=SC2086
rows $reference/fig11_online_qps12.tsv mode $columns | awk -F '\t' -v OFS='\t' -v skip=1 '
    { name = $1 }
    /^SGLang/ { name = /non-det/ ? "nondeterministic" : "batch_invariant" }
    /^LLM-42/ { name = "dvr " substr($1, index($1, "@") + 1) / 100 }'"$long" >"$work/published"
compare "$work/ours" "$work/published" "simulated, means over seeds $seeds"

# Table 5 as Markdown.
printed >"$work/printed"
awk -F '\t' -v seeds=$seeds '
    BEGIN {
        print "Table 5, ShareGPT, 12 queries/s, 4,096 requests, W = 64, G = 8. Ours are simulated, means over seeds"
        print seeds ". \"File\" is the result file of the authors, and \"printed\" what their paper prints in"
        print "Table 5 (time to first token) and its text (latency), from another run; it prints nothing where a cell is empty."
        columns = split("50 75 90 99", p, " ")
    }
    FILENAME == ARGV[1] { paper[$1, $2, $3] = $4; some[$1, $3] = 1; next }
    !/^#/ && $1 != "figure" {
        if (!seen[$3]++) order[++n] = $3
        ours[$2, $3, $4] = $5; file[$2, $3, $4] = $6
    }
    function table(metric, title, form, times,    i, k, name, key, value) {
        printf "\n| %s |", title
        for (k = 1; k <= columns; k++) printf " P%s, ours | file |%s", p[k], (metric, p[k]) in some ? " printed |" : ""
        printf "\n| --- |"
        for (k = 1; k <= columns; k++) printf " --- | --- |%s", (metric, p[k]) in some ? " --- |" : ""
        print ""
        for (i = 1; i <= n; i++) {
            name = order[i]
            if (sub(/^dvr /, "", name)) name = "DVR, " 100 * name "% deterministic"
            printf "| %s |", name
            for (k = 1; k <= columns; k++) {
                printf " " form " | " form " |", times * ours[metric, order[i], p[k]], times * file[metric, order[i], p[k]]
                if ((metric, p[k]) in some) {
                    key = metric SUBSEP order[i] SUBSEP p[k]
                    value = key in paper ? " " times * paper[key] : ""  # with the digits that it has there
                    printf "%s |", value
                }
            }
            print ""
        }
    }
    END {
        table("ttft_s", "time to first token, ms", "%.1f", 1000)
        table("e2e_s", "end-to-end latency, s", "%.2f", 1)
    }' "$work/printed" "$points" >"$OUT/table5.md"
published_in=$reference/fig11_online_qps12.tsv
grown='
    $4 == 99 { p99[$2, $3] = $5; p99["published", $2, $3] = $6 }
    function grown(m, n) {
        n = p99[m, "nondeterministic"]
        return p99[m, "dvr 1"] / n " " p99[m, "batch_invariant"] / n
    }
    END { print '
title=$(tell "Simulated: P99 latency grows %.1f-fold with all requests deterministic, %.1f-fold with batch-invariant kernels" \
    "$grown"'grown("e2e_s") }')
reading="curves: simulated, five seeds together; hollow marks: the authors' result file (Figure 11a, Table 5)"
notes=("ShareGPT, 12 queries/s, 4,096 requests, DVR with W = 64, G = 8, verification EAGER (oldest windows first), prompts ISOLATED"
    "the title is of the means over the seeds, as in table5.md; P99 to the first token grows\
 $(tell "%.1f and %.1f-fold (the authors': %.1f and %.1f)" "$grown"'grown("ttft_s"), grown("published" SUBSEP "ttft_s") }')")
plot cdf="$cdf" load=
