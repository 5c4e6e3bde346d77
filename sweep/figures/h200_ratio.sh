#!/bin/bash
# Throughput by share of deterministic requests on one H200, relative to the nondeterministic mode, measured beside
# simulated. Needs sweep/results/h200/ratio_8b.tsv and, or, ratio_base42.tsv (sweep/h200/run.sh grid-8b, grid-base42).
# shellcheck disable=SC2034  # h200.inc looks for these: any will do
needs="ratio_8b ratio_base42"
# shellcheck source=sweep/figures/h200.inc
source "$(dirname "$0")/h200.inc"
{
    echo "# % of the throughput of nondeterministic: measured on the GPU, and simulated with its calibration"
    printf 'figure\tmetric\tseries\tx\tmeasured\tsimulated\n'
} >"$points"
for model in 8b base42; do
    file=$H200/ratio_$model.tsv
    [ -r "$file" ] || continue
    device=$(device_of "$file")
    beside_simulated $model ratio "${ratios[@]}"
    awk -F '\t' -v OFS='\t' -v figure="$figure" -v model=$model '
        NR == FNR { if ($1 == "nondeterministic") { measured = $4; simulated = $6 }; next }
        !measured { exit }
        { print figure, "relative_pct", model " " $1, $1 == "dvr" ? 100 * $8 : 100, 100 * $4 / measured,
              (simulated > 0 ? 100 * $6 / simulated : "nan") }' "$work/both" "$work/both" >>"$points"
done
plot device="${device:-}"
