#!/bin/bash
# How near the simulator comes to the grids of window and group: the cells of OUT/grid_8b.tsv and OUT/grid_base42.tsv
# (run.sh grid-8b, grid-base42), simulated under the same options with the calibration of that model. No GPU.
#
#     bash sweep/h200/grid.sh                           both grids
#     CALIBRATION_8b=FILE CALIBRATION_base42=FILE bash sweep/h200/grid.sh
#
# The simulator serves requests of the same lengths. Its figures are means over seeds (SEEDS=N of them, 20), because it
# draws flips at random. A measured figure comes from a single run of few rollbacks: `chance` is its standard error, if
# rollbacks are independent and the tokens lost in one lie anywhere from none to twice the mean. Every cell is in
# OUT/grid_errors.tsv.
source "$(dirname "$0")/common.sh"
SEEDS=${SEEDS:-20}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo -e "model\tgroup\twindow\tmeasured_pct\tchance_pct\tsimulated_pct\tdifference_pct\tthroughput_error_pct" >"$work/all"
for model in 8b base42; do
    [ -r "$OUT/grid_$model.tsv" ] || continue
    by_todays_rules "$OUT/grid_$model.tsv" || {
        echo "grid.sh: $OUT/grid_$model.tsv was measured before version 0.3.0, when other windows filled up a pass" >&2
        exit 1
    }
    name=h200-llama-3.1-8b
    [ "$model" = 8b ] || name=h200-$model
    given=CALIBRATION_$model
    calibration=${!given:-$(calibration_beside "$name" "$OUT/grid_$model.tsv")}
    declare -n options=common_$model
    requests=$(awk -F '\t' '!/^#/ && $1 != "backend" { print $4; exit }' "$OUT/grid_$model.tsv")
    simulate=("$B/sweep" --backend sim --calibration "$calibration" --requests "$requests" "${options[@]}" --quiet)
    "${simulate[@]}" --window 32 --group 8 --ratio 1 --qps offline --out "$work/one.tsv" \
        --per-request "$work/requests.tsv" >/dev/null
    awk -F '\t' -v OFS='\t' '
        $1 == "request" { print "input_len", "output_len" }
        /^[0-9]/ { print $3, $4 }' "$work/requests.tsv" >"$work/lengths.tsv"
    # shellcheck disable=SC2154  # common.sh sets windows
    "${simulate[@]/#sharegpt/lengths:$work/lengths.tsv}" "${windows[@]}" \
        --seed "$(seq -s , 42 $((41 + SEEDS)))" --out "$work/$model.tsv" >/dev/null
    awk -F '\t' -v OFS='\t' -v model="$model" '
        /^#/ { next }
        $1 == "backend" { for (i = 1; i <= NF; i++) at[$i] = i; next }
        { key = $at["group"] OFS $at["window"] }
        FILENAME == ARGV[1] { n[key]++; pct[key] += $at["recompute_pct"]; rate[key] += $at["output_tok_per_s"]; next }
        key in n {
            measured = $at["recompute_pct"]; rollbacks = $at["rollbacks"]
            chance = rollbacks > 0 ? measured * sqrt(4 / 3 / rollbacks) : 0
            printf "%s\t%s\t%.2f\t%.2f\t%.2f\t%+.2f\t%+.1f\n", model, key, measured, chance, pct[key] / n[key],
                pct[key] / n[key] - measured, 100 * (rate[key] / n[key] / $at["output_tok_per_s"] - 1)
        }' "$work/$model.tsv" "$OUT/grid_$model.tsv" >>"$work/all"
done
cp "$work/all" "$OUT/grid_errors.tsv"
awk -F '\t' '
    function abs(x) { return x < 0 ? -x : x }
    NR == 1 { next }
    !($1 in cells) { order[++models] = $1 }
    {
        cells[$1]++
        recompute[$1] += abs($7); speed[$1] += abs($8)
        within[$1] += abs($7) <= 1; explained[$1] += abs($7) <= 2 * $5
        if (abs($7) > abs(worst[$1])) { worst[$1] = $7; where[$1] = "W = " $3 ", G = " $2 }
        if (abs($8) > abs(slow[$1])) slow[$1] = $8
    }
    END {
        print "| grid | cells | recomputed: mean error, points | worst | where | within 1 point | within 2 x chance |" \
            " tokens/s: mean error | worst |"
        print "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
        for (i = 1; i <= models; i++) {
            m = order[i]
            printf "| %s | %d | %.2f | %+.2f | %s | %d | %d | %.1f%% | %+.1f%% |\n", m, cells[m], recompute[m] / cells[m],
                worst[m], where[m], within[m], explained[m], speed[m] / cells[m], slow[m]
        }
    }' "$OUT/grid_errors.tsv"
