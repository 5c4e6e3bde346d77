#!/bin/bash
# How near the simulator comes to the GPU: the cells of OUT/predict.tsv (run.sh predict), simulated under the same
# options with the calibration measured there. Markdown on standard output; every figure in OUT/predict_errors.tsv.
#
#     bash sweep/h200/predict.sh
#     CALIBRATION=FILE bash sweep/h200/predict.sh
source "$(dirname "$0")/common.sh"
CALIBRATION=${CALIBRATION:-$OUT/h200-llama-3.1-8b.tsv}
[ -r "$CALIBRATION" ] || CALIBRATION=sweep/calibration/h200-llama-3.1-8b.tsv
for file in "$OUT/predict.tsv" "$CALIBRATION"; do
    [ -r "$file" ] && continue
    echo "predict.sh: $file is missing: run sweep/h200/run.sh calibrate, then predict" >&2
    exit 1
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
requests=$(awk -F '\t' '!/^#/ && $1 != "backend" { print $4; exit }' "$OUT/predict.tsv")
"$B/sweep" --backend sim --calibration "$CALIBRATION" --requests "$requests" "${common_8b[@]}" "${predicted[@]}" \
    --quiet --out "$work/simulated.tsv" >/dev/null

# A line a run and quantity: what, measured, simulated, error in %.
awk -F '\t' -v OFS='\t' '
    BEGIN {
        n = split("output_tok_per_s e2e_p50_s e2e_p99_s ttft_p50_s ttft_p99_s itl_p50_s itl_p99_s", name, " ")
        print "run", "quantity", "measured", "simulated", "error_pct"
    }
    /^#/ { next }
    $1 == "backend" { for (i = 1; i <= NF; i++) at[$i] = i; next }
    {
        run = $at["mode"] ($at["mode"] == "dvr" ? " " 100 * $at["ratio"] "%" : "") " " $at["qps"]
        for (i = 1; i <= n; i++)
            if (FILENAME == ARGV[1]) simulated[run, i] = $at[name[i]]
            else if ((run, i) in simulated && $at[name[i]] > 0)
                print run, name[i], $at[name[i]], simulated[run, i],
                    sprintf("%.4g", 100 * (simulated[run, i] / $at[name[i]] - 1))
    }' "$work/simulated.tsv" "$OUT/predict.tsv" >"$OUT/predict_errors.tsv"

awk -F '\t' '
    function abs(x) { return x < 0 ? -x : x }
    $1 == "run" { next }
    {
        if (!($2 in count)) order[++kinds] = $2
        k = ++count[$2]
        for (; k > 1 && sorted[$2, k - 1] > abs($5); k--) sorted[$2, k] = sorted[$2, k - 1]
        sorted[$2, k] = abs($5)
        if (!($2 in worst) || abs($5) > abs(worst[$2])) { worst[$2] = $5; where[$2] = $1 }
        if (!($1 in runs)) { runs[$1] = 1; run[++total] = $1 }
        error[$1, $2] = sprintf("%+.1f%%", $5)
    }
    END {
        print "| run | throughput | latency P50 | latency P99 |\n| --- | --- | --- | --- |"
        for (i = 1; i <= total; i++)
            print "| " run[i] " | " error[run[i], "output_tok_per_s"] " | " error[run[i], "e2e_p50_s"] " | " \
                error[run[i], "e2e_p99_s"] " |"
        print "\n| quantity | runs | median error | worst | where |\n| --- | --- | --- | --- | --- |"
        for (i = 1; i <= kinds; i++) {
            q = order[i]; n = count[q]
            printf "| %s | %d | %.1f%% | %+.1f%% | %s |\n", q, n,
                (sorted[q, int((n + 1) / 2)] + sorted[q, int(n / 2) + 1]) / 2, worst[q], where[q]
        }
    }' "$OUT/predict_errors.tsv"
