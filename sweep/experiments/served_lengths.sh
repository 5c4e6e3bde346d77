#!/bin/bash
# What lengths and arrivals do to the latencies of Fig. 11 and Table 5: every published load is simulated with lengths
# drawn from distributions, as in the figures, and with the lengths that the paper's requests had, by twelve draws of
# arrivals each. The lengths are not in this repository: sharegpt_lengths.tsv and arxiv_lengths.tsv have 4,096 lines with
# input_len and output_len each, from github.com/microsoft/llm-42.
#
#     bash sweep/experiments/served_lengths.sh               all loads, into OUT/served_lengths.tsv; a summary is printed
#     LENGTHS=FOLDER bash sweep/experiments/served_lengths.sh     where the two files are
#     KEEP=1 bash sweep/experiments/served_lengths.sh             the summary of what is there
#
# Environment: sweep/figures/common.sh; SEEDS: of the arrivals and, where lengths are drawn, of these.
source "$(dirname "$0")/../figures/common.sh"
LENGTHS=${LENGTHS:-../shared/traces} seeds=${SEEDS:-1,2,3,4,5,6,7,8,9,10,11,12}
declare -A served=([sharegpt]="4096 1257657" [arxiv]="4096 28930461")  # requests and prompt tokens
if [ -z "$KEEP" ]; then
    for file in sharegpt arxiv; do
        # Another file, or a part of one, would be taken for the paper's.
        tokens=$(awk '!/^#/ && $1 + 0 { n++; sum += $1 } END { print n + 0, sum + 0 }' "$LENGTHS/${file}_lengths.tsv") ||
            fail "LENGTHS: cannot read $LENGTHS/${file}_lengths.tsv"
        [ "$tokens" = "${served[$file]}" ] ||
            fail "LENGTHS: $LENGTHS/${file}_lengths.tsv has (requests, prompt tokens) $tokens, and not ${served[$file]}"
    done
    for load in "sharegpt drawn 12,14,18 sharegpt-served" "arxiv drawn 1,1.6 arxiv" \
        "sharegpt served 12,14,18 lengths:$LENGTHS/sharegpt_lengths.tsv" \
        "arxiv served 1,1.6 lengths:$LENGTHS/arxiv_lengths.tsv"; do
        read -r name lengths rates workload <<<"$load"
        first=${#parts[@]}
        set=(--workload "$workload" --requests 4096 --qps "$rates" --window 64 --group 8 --seed "$seeds")
        cells "${set[@]}" --mode nondeterministic,batch_invariant
        cells "${set[@]}" --mode dvr --ratio 0.02,0.05,0.1,0.2,0.5,1
        for part in "${parts[@]:$first}"; do
            rows "$part" qps mode ratio ttft_p50_s ttft_p99_s e2e_p50_s e2e_p99_s |
                awk -F '\t' -v OFS='\t' -v name="$name" -v lengths="$lengths" '
                    { print name, $1 + 0, $2 ($2 == "dvr" ? " " 100 * $3 : ""), lengths, $4, $5, $6, $7 }'
        done
    done >"$work/ours"
    {
        rows $reference/table5_other_rates.tsv workload qps mode ttft_p50 ttft_p99 e2e_p50 e2e_p99
        rows $reference/fig11_online_qps12.tsv mode ttft_p50_s ttft_p99_s e2e_p50_s e2e_p99_s |
            sed $'s/^/sharegpt\t12\t/'
    } | awk -F '\t' -v OFS='\t' '
        {
            mode = $3 ~ /non-det/ ? "nondeterministic" : "batch_invariant"
            if ($3 ~ /^LLM-42/) mode = "dvr " substr($3, index($3, "@") + 1) + 0
            print $1, $2 + 0, mode, $4, $5, $6, $7
        }' >"$work/published"
    {
        # The names of files may be anybody's, and so are left out.
        awk '/^# (llm42|simulated|source|device|configuration)/ {
                sub(/workload lengths:.*\//, "workload lengths:")
                if (!seen[$0]++) print
            }' "${parts[@]}"
        echo "# 4,096 requests, W = 64, G = 8, preset paper; drawn: lengths from distributions, served: those of the paper"
        echo "# ours: mean over seeds $seeds; seeds_below: how many of these are below the published value"
        printf 'workload\tqps\tmode\tquantity\tpublished\tlengths\tours\tleast\tmost\tseeds_below\tseeds\n'
        awk -F '\t' -v OFS='\t' '
            BEGIN { split("ttft_p50_s ttft_p99_s e2e_p50_s e2e_p99_s", quantity, " ") }
            NR == FNR { for (q = 1; q <= 4; q++) published[$1, $2, $3, q] = $(q + 3); next }
            {
                for (q = 1; q <= 4; q++) {
                    k = $1 OFS $2 OFS $3 OFS quantity[q] OFS published[$1, $2, $3, q] OFS $4
                    v = $(q + 4)
                    if (!n[k]++) { order[++keys] = k; least[k] = most[k] = v }
                    sum[k] += v
                    if (v < least[k]) least[k] = v
                    if (v > most[k]) most[k] = v
                    below[k] += v < published[$1, $2, $3, q]
                }
            }
            END {
                for (i = 1; i <= keys; i++) {
                    k = order[i]
                    print k, sum[k] / n[k], least[k], most[k], below[k] + 0, n[k]
                }
            }' "$work/published" "$work/ours" | sort -t $'\t' -k 1,1 -k 2,2n -k 3,3V -k 4,4 -k 6,6
    } >"$work/served"
    mv "$work/served" "$raw"
fi
[ -r "$raw" ] || fail "KEEP=1, but $raw is missing: run without KEEP"
# Errors by lengths, quantity and mode; inside: values between the least and the most of the seeds.
rows "$raw" mode quantity published lengths ours seeds_below seeds | awk -F '\t' '
    function sorted(v, n,    i, k, t) {
        for (i = 2; i <= n; i++) for (k = i; k > 1 && v[k - 1] > v[k]; k--) { t = v[k]; v[k] = v[k - 1]; v[k - 1] = t }
    }
    {
        kind = $1 ~ /^dvr (50|100)$/ ? "DVR, 50 and 100%" : $1 ~ /^dvr/ ? "DVR, 2 to 20%" : $1
        k = $2 " | " kind
        if (!seen[k]++) order[++keys] = k
        at = k SUBSEP $4
        error = 100 * ($5 / $3 - 1)
        off[at, ++n[at]] = error < 0 ? -error : error
        if (off[at, n[at]] >= size[at]) { size[at] = off[at, n[at]]; worst[at] = error }
        inside[at] += $6 > 0 && $6 < $7
    }
    function cells(at,    v, i, c) {
        c = n[at]
        for (i = 1; i <= c; i++) v[i] = off[at, i]
        sorted(v, c)
        return sprintf("%.1f | %+.1f | %d", (v[int((c + 1) / 2)] + v[int(c / 2) + 1]) / 2, worst[at], inside[at])
    }
    END {
        print "| quantity | mode | values | drawn: median error, % | worst | inside | served: median error, % | worst | inside |"
        print "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
        sorted(order, keys)
        for (i = 1; i <= keys; i++)
            print "| " order[i] " | " n[order[i], "drawn"] " | " cells(order[i] SUBSEP "drawn") " | " \
                cells(order[i] SUBSEP "served") " |"
    }'
