#!/bin/bash
# How near the simulation comes to the published numbers: every published point against ours.
#
#     bash sweep/accuracy.sh          Markdown on standard output and in sweep/results/paper/accuracy.md; all points in
#                                     accuracy.tsv beside it
#
# It reads what the figure scripts leave (OUT/*_points.tsv) and runs the scripts whose results are missing; B, OUT and
# CALIBRATION mean what they mean to these scripts. Errors are relative, in %; of quantities that are percentages themselves (names that end in
# _pct) they are differences in points, ours less the published. The column `role` is
# explained below the table.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
OUT=${OUT:-sweep/results/paper}
table=$OUT/accuracy.tsv summary=$OUT/accuracy.md

# What is compared, in the order of the table: figure, pattern of its points (metric series x), name, role, and how
# many points are published.
groups=(
    "fig9|^verify_pass_ms |Fig. 9a, verification pass|fitted|6"
    "throughput_vs_batch|^[^ ]* (non|batch)|throughput by batch, without verification|fitted|18"
    "throughput_vs_batch|^[^ ]* dvr |throughput by batch, DVR|predicted|9"
    "fig9|^cdf_pct |Fig. 9b-d, requests by rollbacks|fitted|12"
    "fig9|^recompute_pct |Fig. 9b-d, recomputed tokens|fitted|4"
    "fig5|^output_tok_per_s |Fig. 5, one of eleven|predicted|4"
    "fig10|^total_tok_per_s .*[ct]$|Fig. 10, throughput without verification|predicted|32"
    "fig10|^total_tok_per_s .*[0-9]$|Fig. 10, throughput, DVR|predicted|96"
    "fig10|^recompute_pct ArXiv|Table 4, recomputed tokens, ArXiv|predicted|6"
    "fig10|^recompute_pct (Sh|in)|Table 4, recomputed tokens, others|predicted|42"
    "fig10|^rollbacks_pct ArXiv|Table 4, rollbacks per 100, ArXiv|predicted|6"
    "fig10|^rollbacks_pct (Sh|in)|Table 4, rollbacks per 100, others|predicted|42"
    "fig11|^ttft_s |Fig. 11, time to first token|predicted|32"
    "fig11|^e2e_s |Fig. 11, end-to-end latency|predicted|32"
    "fig12|^p99_latency_s |Fig. 12a, P99 latency|predicted|21"
    "fig12|^recompute_pct |Fig. 12b, recomputed tokens|predicted|21"
    "fig13|^recompute_pct |camera-ready Fig. 13, recomputed tokens|other GPU|28"
    "fig13|^throughput_vs_best |camera-ready Fig. 13, throughput to best|other GPU|28"
)

files=()
for group in "${groups[@]}"; do
    file=$OUT/${group%%|*}_points.tsv
    [[ " ${files[*]} " == *" $file "* ]] && continue
    [ -r "$file" ] || bash "sweep/figures/${group%%|*}.sh" >&2
    [ -r "$file" ] || { echo "accuracy: $file is missing, and its script did not write it" >&2; exit 1; }
    files+=("$file")
done

# A line a point; a published point without a finite value of ours is an error.
awk -F '\t' -v OFS='\t' '
    BEGIN {
        print "# error_pct: relative; of a metric that ends in _pct the difference in points"
        print "figure", "point", "ours", "published", "error_pct"
    }
    /^#/ || $1 == "figure" || $6 == "nan" { next }
    {
        point = $2 " " $3 " " $4
        if ($5 !~ /^-?[0-9]/) {
            printf "accuracy: %s: no value of ours for %s\n", $1, point >"/dev/stderr"
            exit 1
        }
        print $1, point, $5, $6, sprintf("%.4g", $2 ~ /_pct$/ ? $5 - $6 : 100 * ($5 / $6 - 1))
    }' "${files[@]}" >"$table.new"
mv "$table.new" "$table"

printf '%s\n' "${groups[@]}" | awk -v table="$table" '
    function abs(x) { return x < 0 ? -x : x }
    BEGIN {
        FS = "\t"
        while ((getline <table) > 0) {
            if (/^#/ || $1 == "figure") continue
            figure[++all] = $1; point[all] = $2; error[all] = $5
        }
        FS = "|"
        print "| quantity | role | points | median error | nine of ten within | largest error | where |"
        print "| --- | --- | --- | --- | --- | --- | --- |"
    }
    # The pattern itself may hold the separator: name, role and number are the last three fields.
    {
        pattern = substr($0, length($1) + 2)
        pattern = substr(pattern, 1, length(pattern) - length($(NF - 2)) - length($(NF - 1)) - length($NF) - 3)
        count = worst = 0
        for (i = 1; i <= all; i++) {
            if (figure[i] != $1 || point[i] !~ pattern) continue
            used[i] = 1
            if (!worst || abs(error[i]) > abs(error[worst])) worst = i
            for (j = ++count; j > 1 && sorted[j - 1] > abs(error[i]); j--) sorted[j] = sorted[j - 1]
            sorted[j] = abs(error[i])
        }
        if (count != $NF) {
            printf "accuracy: %s: %d points in %s, but %d are published: run sweep/figures/%s.sh\n", $(NF - 2), count,
                table, $NF, $1 >"/dev/stderr"
            exit failed = 1
        }
        unit = point[worst] ~ /^[^ ]*_pct / ? " points" : "%"
        where = point[worst]
        sub(/^[^ ]* /, "", where)
        sub(/ [^ ]*$/, ": &", where)
        sub(/:  /, ": ", where)
        printf "| %s | %s | %d | %.1f%s | %.1f%s | %+.1f%s | %s |\n", $(NF - 2), $(NF - 1), count,
            (sorted[int((count + 1) / 2)] + sorted[int(count / 2) + 1]) / 2, unit,
            sorted[int((9 * count + 9) / 10)], unit, error[worst], unit, where
    }
    END {
        for (i = 1; i <= all && !failed; i++) if (!(i in used)) {
            printf "accuracy: %s %s stands in no line of the table\n", figure[i], point[i] >"/dev/stderr"
            exit 1
        }
    }' >"$summary.new"
cat >>"$summary.new" <<'EOF'

All of ours are simulated; nothing ran on a GPU. An error compares ours with the published value. It is relative, or in
points if the quantity is itself a share. "Where" names the series and the x value of the point, as in `accuracy.tsv`.

| role | meaning |
| --- | --- |
| fitted | the calibration was fitted to these points: the error says how well a table of pass times describes them |
| predicted | no number was fitted to them, but the order of partial windows was chosen because it fits Figs. 11 and 12 |
| other GPU | predicted, and published for an H100 SXM |

Where requests arrive at random (Figs. 9, 11, 12, 13) ours are means over five seeds, in Fig. 5 over sixteen. The
published values are single runs. `sweep/reference/README.md` has the reasons for the largest errors.
EOF
mv "$summary.new" "$summary"
cat "$summary"
