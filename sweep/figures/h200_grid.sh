#!/bin/bash
# Recomputed tokens over window W and group G on one H200, measured beside simulated: the 8B shape with random weights.
# All requests deterministic, all at once, ShareGPT lengths. Needs grid_8b.tsv (sweep/h200/run.sh grid-8b).
# shellcheck disable=SC2034  # h200.inc looks for it
needs="grid_8b"
# shellcheck source=sweep/figures/h200.inc
source "$(dirname "$0")/h200.inc"
beside_simulated 8b grid "${windows[@]}"
awk -F '\t' -v OFS='\t' '
    BEGIN {
        print "# measured on the GPU, and simulated with its calibration where there is one"
        print "figure", "metric", "series", "x", "measured", "simulated"
    }
    { print "h200_grid_8b", "recompute_pct", "G=" $2, $3, $5, $7 }' "$work/both" >"$OUT/h200_grid_8b_points.tsv"
beside=(--note "$(model_name 8b); not simulated: there is no calibration of this model")
[ -s "$work/simulated" ] && beside=(--reference "$work/sim.tsv" --reference-name simulated
    --note "$(model_name 8b); simulated with calibration $(basename "$CALIBRATION" .tsv)")
# grid.sh has simulated the cells more often than once.
worst=$(awk -F '\t' '
    $1 == "8b" { d = $7 < 0 ? -$7 : $7; if (d > worst) worst = d }
    END { if (worst) printf "%.1f", worst }' "$H200/grid_errors.tsv" 2>/dev/null || true)
[ -z "$worst" ] || beside+=(--note "simulated with one draw of flips; the means of 20 draws are within $worst points")
title="8B: $(awk -F '\t' '
    { off = $7 - $5; off = off < 0 ? -off : off; simulated += $6 != "nan" }
    off > points { points = off }
    !n++ || $5 < fewest { fewest = $5 }
    $5 > largest { largest = $5 }
    END {
        printf "%.1f to %.1f%% of the tokens are recomputed", fewest, largest
        if (simulated) printf "; the simulator is within %.1f points of that", points
    }' "$work/both")"
plot_sweep _8b_recomputed "$H200/grid_8b.tsv" --x window --y group --value recompute_pct --title "$title" "${beside[@]}"
