#!/bin/bash
# Recomputed tokens and throughput over window W and group G on one H200, measured beside simulated: the 8B shape with
# random weights, and base42, which is simulated only where its calibration was measured. All requests deterministic,
# all at once, ShareGPT lengths. Needs grid_8b.tsv and, or, grid_base42.tsv (sweep/h200/run.sh grid-8b, grid-base42).
# shellcheck disable=SC2034  # h200.inc looks for these: any will do
needs="grid_8b grid_base42"
# shellcheck source=sweep/figures/h200.inc
source "$(dirname "$0")/h200.inc"
for model in 8b base42; do
    [ -r "$H200/grid_$model.tsv" ] || continue
    beside_simulated $model grid "${windows[@]}"
    points=$OUT/h200_grid_${model}_points.tsv
    awk -F '\t' -v OFS='\t' -v figure="h200_grid_$model" '
        BEGIN {
            print "# measured on the GPU, and simulated with its calibration where there is one"
            print "figure", "metric", "series", "x", "measured", "simulated"
        }
        { print figure, "recompute_pct", "G=" $2, $3, $5, $7; print figure, "output_tok_per_s", "G=" $2, $3, $4, $6 }' \
        "$work/both" >"$points"
    beside=(--note "$(model_name $model); not simulated: there is no calibration of this model")
    [ -s "$work/simulated" ] && beside=(--reference "$work/sim.tsv" --reference-name simulated
        --note "$(model_name $model); simulated with calibration $(basename "$CALIBRATION" .tsv)")
    why=()
    [ $model != base42 ] || beside+=(--note "lengths are cut at 2,048 tokens")
    # grid.sh has simulated the cells more often than once.
    worst=$(awk -F '\t' -v model=$model '
        $1 == model { d = $7 < 0 ? -$7 : $7; if (d > worst) worst = d }
        END { if (worst) printf "%.1f", worst }' "$H200/grid_errors.tsv" 2>/dev/null || true)
    [ -z "$worst" ] || why=(--note "simulated with one draw of flips; the means of 20 draws are within $worst points")
    for value in recompute_pct output_tok_per_s; do
        suffix=_throughput
        [ $value = output_tok_per_s ] || suffix=_recomputed
        title="$(model_name $model | cut -d ' ' -f 1): $(awk -F '\t' -v value=$value '
            function size(d) { return d < 0 ? -d : d }
            { off = $7 - $5; rate = $6 / $4 - 1; simulated += $6 == "nan" ? 0 : 1 }
            size(off) > points { points = size(off) }
            size(rate) > worst { worst = size(rate) }
            !least || $4 < least { least = $4; low = "W = " $3 ", G = " $2 }
            $4 > most { most = $4; high = "W = " $3 ", G = " $2 }
            !n++ || $5 < fewest { fewest = $5 }
            $5 > largest { largest = $5 }
            END {
                if (value == "recompute_pct") printf "%.1f to %.1f%% of the tokens are recomputed", fewest, largest
                else printf "%s is %.1f times as fast as %s", high, most / least, low
                if (simulated && value == "recompute_pct") printf "; the simulator is within %.1f points of that", points
                else if (simulated) printf "; the simulator is within %.0f%% in all %d cells", 100 * worst + 0.5, n
            }' "$work/both")"
        plot_sweep "_$model$suffix" "$H200/grid_$model.tsv" --x window --y group --value $value --title "$title" \
            "${beside[@]}" "${why[@]}"
        why=()
    done
done
