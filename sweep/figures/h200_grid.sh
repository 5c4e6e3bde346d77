#!/bin/bash
# Recomputed tokens and throughput over window W and group G on one H200, measured beside simulated: the 8B shape with
# random weights, and base42. All requests deterministic, all at once, ShareGPT lengths. Needs what sweep/h200/run.sh
# leaves in sweep/results/h200 (grid-8b, grid-base42, calibrate); without it there is nothing to draw.
# shellcheck disable=SC2034  # h200.inc looks for these: any will do
needs="grid_8b grid_base42"
# shellcheck source=sweep/figures/h200.inc
source "$(dirname "$0")/h200.inc"
for model in 8b base42; do
    [ -r "$H200/grid_$model.tsv" ] || continue
    beside_simulated $model grid "${windows[@]}"
    awk -F '\t' -v OFS='\t' -v figure="$figure" '
        BEGIN {
            print "# measured on the GPU, and simulated with the calibration measured there"
            print "figure", "metric", "series", "x", "measured", "simulated"
        }
        { print figure, "recompute_pct", "G=" $2, $3, $5, $7; print figure, "output_tok_per_s", "G=" $2, $3, $4, $6 }' \
        "$work/both" >"$OUT/h200_grid_${model}_points.tsv"
    plot base="$OUT/h200_grid_$model" points="$OUT/h200_grid_${model}_points.tsv" model="$(model_name $model)" \
        device="$(device_of "$H200/grid_$model.tsv")"
done
