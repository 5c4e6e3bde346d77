# Table 5 at other rates than Figure 11a's, and Figures 11b to d: latencies of ShareGPT at 14, 16 and 18 queries a second
# and of ArXiv at 1 and 1.6, by mode and share of deterministic requests (W = 64, G = 8; 4,096 requests). No number of the
# calibration is fitted to them. The files of the authors have P50 and P99, but not at 16 queries/s; the paper prints
# P50, P75 and P90 of the time to the first token of ShareGPT. The last table is the P99 latency of DVR divided by that
# of batch-invariant passes.
source "$(dirname "$0")/common.sh"
columns="ttft_p50_s ttft_p75_s ttft_p90_s ttft_p99_s e2e_p50_s e2e_p99_s"
shares=(0.02 0.05 0.1 0.2 0.5 1)
names=(nondeterministic batch_invariant "${shares[@]/#/dvr }")
set=(--requests 4096 --window 64 --group 8)
for rate in 14 16 18; do
    for name in "${names[@]}"; do
        mode=(--mode "${name% *}")
        [ "${name% *}" = "$name" ] || mode+=(--ratio "${name#* }")
        by_request "ShareGPT $rate $name" --workload sharegpt-served --qps $rate "${set[@]}" "${mode[@]}"
    done
done
set+=(--workload arxiv --qps 1,1.6 --seed $seeds)
cells "${set[@]}" --mode nondeterministic,batch_invariant
cells "${set[@]}" --mode dvr --ratio "$(IFS=, && echo "${shares[*]}")"
collect
cdf=$OUT/${figure}_cdf.tsv
if [ -z "$KEEP" ]; then
    printf 'metric\tseries\tpercentile\tseconds\n' >"$work/cdf"
    for rate in 14 16 18; do
        for name in "${names[@]}"; do distribution "ShareGPT $rate $name" ttft_s e2e_s >>"$work/cdf"; done
    done
    mv "$work/cdf" "$cdf"
fi

# Series = workload, rate and mode; x = percentile.
long='{
    n = split(at, x, " ")
    for (i = 1; i <= n; i++) print (i > n - 2 ? "e2e_s" : "ttft_s"), name, x[i], seed $(i + skip)
}'
# shellcheck disable=SC2086  # the list of columns is to be split
rows "$raw" workload qps mode ratio seed $columns | awk -F '\t' -v OFS='\t' -v skip=5 -v at="50 75 90 99 50 99" '
    {
        name = ($1 == "arxiv" ? "ArXiv " : "ShareGPT ") $2 + 0 " " $3 ($3 == "dvr" ? " " $4 + 0 : "")
        seed = $5 FS
    }'"$long" | by_seed >"$work/ours"
rows $reference/table5_other_rates.tsv workload qps mode ttft_p50 ttft_p99 e2e_p50 e2e_p99 |
    awk -F '\t' -v OFS='\t' -v skip=3 -v at="50 99 50 99" '
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
        split("50 75 90 99", percentile, " ")
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
        if ($6 != "nan") filed[$2, load, $4] = 1
        key[mode] = part[3] (part[3] == "dvr" ? " " part[4] : "")
    }
    function has(of, metric, load, p) { return (metric, load, p) in of }
    # The cells of one percentile in a row of a table, or in its header: ours, that of the file, and the printed one.
    function cells(metric, load, mode, p, form, times, head,    text, name) {
        if (p ~ /75|90/ && !has(some, metric, load, p)) return ""  # nothing to compare with
        form = " " form " |"
        text = head ? " P" p ", ours |" : sprintf(form, times * ours[metric, load, mode, p])
        if (has(filed, metric, load, p))
            text = text (head ? " file |" : sprintf(form, times * file[metric, load, mode, p]))
        if (!has(some, metric, load, p)) return text
        name = metric SUBSEP load SUBSEP key[mode] SUBSEP p
        # A printed value has the digits that it has there.
        return text (head ? " printed |" : name in paper ? " " times * paper[name] " |" : " |")
    }
    function line(metric, load, mode, form, times, head,    text, i) {
        for (i = 1; i <= 4; i++) text = text cells(metric, load, mode, percentile[i], form, times, head)
        return text
    }
    function table(metric, title, form, times,    i, j, text) {
        for (i = 1; i <= n; i++) {
            text = line(metric, loads[i], "", form, times, 1)
            print "\n| " loads[i] ", " title " |" text
            gsub(/[^|]+/, " --- ", text)
            print "| --- |" text
            for (j = 1; j <= k; j++) print "| " modes[j] " |" line(metric, loads[i], modes[j], form, times)
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
            printf "| %s, %s | %.2f | %s|\n", loads[i], modes[j], ratio(ours, loads[i], modes[j]),
                has(filed, "e2e_s", loads[i], 99) ? sprintf("%.2f ", ratio(file, loads[i], modes[j])) : ""
    }' "$work/printed" "$points" >"$OUT/table5_rates.md"

# Figures 11b to d, a picture for each rate: the marks of P50 to P90 of the time to the first token are as printed, the
# others of the file. What the foot says is of the runs at this rate alone.
all=$raw marks=$work/marks
awk -F '\t' -v OFS='\t' '
    FILENAME == ARGV[1] { printed[$1, $2, $3] = $4; next }
    $2 == "ttft_s" && ($2, $3, $4) in printed { $6 = printed[$2, $3, $4] }
    { print }' "$work/printed" "$points" >"$marks"
for figure in "fig11b 14" "fig11c 16" "fig11d 18"; do
    rate=${figure#* } figure=${figure% *} raw=$work/raw script=fig11
    awk -F '\t' -v rate="$rate" '/^#/ { print; next } !n { for (; n < NF; n++) at[$(n + 1)] = n + 1; print; next }
        $at["workload"] ~ /^sharegpt/ && $at["qps"] + 0 == rate' "$all" >"$raw"
    grown='
        index($3, "ShareGPT '"$rate"' ") == 1 { name = $3; sub(/^ShareGPT [0-9]+ /, "", name)
            ours[$2, name, $4] = $5; paper[$2, name, $4] = $6 }
        function grown(of, m, p, n) {
            n = of[m, "nondeterministic", p]
            return of[m, "dvr 1", p] / n " " of[m, "batch_invariant", p] / n
        }
        END { print '
    title=$(tell "Simulated, $rate queries/s: P99 latency grows %.1f-fold with all requests deterministic, %.1f-fold with \
batch-invariant kernels" "$grown"'grown(ours, "e2e_s", 99) }' "$marks")
    reading="curves: simulated, five seeds together; hollow marks: printed (P50 to P90 of the time to first token)"
    [ "$rate" = 16 ] && reading+="; other values of this rate are not at hand" || reading+=" and the authors' result file"
    notes=("ShareGPT, $rate queries/s, 4,096 requests, DVR with W = 64, G = 8, verification EAGER (oldest windows first), prompts ISOLATED"
        "no number of the calibration was fitted to these runs, but the form of its batch-invariant passes was chosen after them"
        "the title is of the means over the seeds, as in table5_rates.md; the median time to the first token grows\
 $(tell "%.1f and %.1f-fold (printed: %.1f and %.1f)" "$grown"'grown(ours, "ttft_s", 50), grown(paper, "ttft_s", 50) }' "$marks")")
    published_in=$reference/table5_other_rates.tsv
    plot cdf="$cdf" points="$marks" load="ShareGPT $rate "
done
