#!/bin/bash
# How near the simulator comes to the GPU: the cells of OUT/predict.tsv (run.sh predict), simulated under the same
# options with the calibration measured there. Markdown on standard output; every figure in OUT/predict_errors.tsv.
#
#     bash sweep/h200/predict.sh
#     CALIBRATION=FILE bash sweep/h200/predict.sh
source "$(dirname "$0")/common.sh"
source sweep/experiments/predict.inc
CALIBRATION=${CALIBRATION:-$(calibration_beside h200-llama-3.1-8b "$OUT/predict.tsv")}
for file in "$OUT/predict.tsv" "$CALIBRATION"; do
    [ -r "$file" ] && continue
    echo "predict.sh: $file is missing: run sweep/h200/run.sh calibrate, then predict" >&2
    exit 1
done
by_todays_rules "$OUT/predict.tsv" || {
    echo "predict.sh: $OUT/predict.tsv was measured before version 0.3.0, when other windows filled up a pass" >&2
    exit 1
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
requests=$(awk -F '\t' '!/^#/ && $1 != "backend" { print $4; exit }' "$OUT/predict.tsv")
"$B/sweep" --backend sim --calibration "$CALIBRATION" --requests "$requests" "${common_8b[@]}" "${predicted[@]}" \
    --quiet --out "$work/simulated.tsv" >/dev/null

prediction_errors "$work/simulated.tsv" "$OUT/predict.tsv" >"$work/errors"
mv "$work/errors" "$OUT/predict_errors.tsv"
prediction_summary "$OUT/predict_errors.tsv"
