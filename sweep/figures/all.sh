#!/bin/bash
# Runs every figure's script, with the time each took, and the accuracy report. From the environment: B (the build
# folder) and what the scripts take, see common.sh.
set -euo pipefail
cd "$(dirname "$0")/../.."
failed=0
for script in sweep/figures/*.sh; do
    case $script in */common.sh | */all.sh) continue ;; esac
    start=$SECONDS
    name=$(basename "$script" .sh)
    if bash "$script"; then
        printf '%-20s %3d s\n' "$name" $((SECONDS - start))
    else
        echo "$name: failed" >&2
        failed=1
    fi
done
[ $failed = 0 ] || exit 1
bash sweep/experiments/accuracy.sh
echo
echo "The figures are in ${OUT:-sweep/results/paper}: TSV, PNG and SVG."

