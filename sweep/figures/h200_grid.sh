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
    # Between 128 and 512 rows the order of the verifier's sums changes, but the calibration has one flip rate.
    [ $model != 8b ] || why=(--note
        "simulated with one flip rate, measured at W x G = 256; from 512 on fewer tokens flip,"
        --note "because replay passes of that size sum in the same order as decoding")
    for value in recompute_pct output_tok_per_s; do
        suffix=_throughput title="Output tokens per second"
        [ $value = output_tok_per_s ] || suffix=_recomputed title="Recomputed tokens as % of returned ones"
        plot_sweep "_$model$suffix" "$H200/grid_$model.tsv" --x window --y group --value $value --title "$title" \
            "${beside[@]}" "${why[@]}"
        why=()
    done
done
