#!/bin/bash
# Does a faster machine make a simulated run slower? Each table of a calibration in turn is made 10% faster, and runs of
# one load are laid beside those without that, seed by seed. Single runs may take longer, because passes then begin at
# other times and hold other rows, but the mean over the seeds must not.
#
#     bash sweep/experiments/faster_table.sh                  sweep/results/paper/faster_table.tsv
#     B=FOLDER OUT=FOLDER SEEDS=60 REQUESTS=300 FACTOR=0.9    where the program is, where the result goes, what runs
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/../.."
B=${B:-build} OUT=${OUT:-sweep/results/paper} SEEDS=${SEEDS:-60} REQUESTS=${REQUESTS:-300} FACTOR=${FACTOR:-0.9}
calibration=sweep/calibration/h100-pcie-paper.tsv
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ -x "$B/sweep" ] || { echo "faster_table.sh: $B/sweep is missing: run make" >&2; exit 1; }

durations() {  # durations CALIBRATION PRESET: a line for each seed
    "$B/sweep" --calibration "$1" --preset "$2" --ratio 0.5 --qps 12 --requests "$REQUESTS" \
        --seed "$(seq -s, 1 "$SEEDS")" --quiet 2>/dev/null | awk -F '\t' '
        /^#/ { next }
        !at { for (i = 1; i <= NF; i++) if ($i == "duration_s") at = i; next }
        { print $at }'
}

{
    printf 'preset\ttable\truns\tlonger_pct\terror_pct\tlonger_runs\tworst_pct\n'
    for preset in best dvr; do
        durations "$calibration" "$preset" >"$work/before"
        for table in "fast decode" "fast prompt" "invariant decode" "invariant prompt"; do
            awk -F '\t' -v OFS='\t' -v table="$table" -v factor="$FACTOR" '
                NF == 5 && $1 " " $2 == table { $5 *= factor } { print }' "$calibration" >"$work/faster.tsv"
            durations "$work/faster.tsv" "$preset" | paste "$work/before" - | awk -F '\t' -v name="$preset	$table" '
                { x = 100 * ($2 / $1 - 1); sum += x; squares += x * x; longer += x > 0.5
                  if (NR == 1 || x > worst) worst = x }
                END { mean = sum / NR; error = sqrt((squares / NR - mean * mean) / (NR - 1))
                      printf "%s\t%d\t%.2f\t%.2f\t%d\t%.2f\n", name, NR, mean, error, longer, worst }'
        done
    done
} >"$work/result"
cp "$work/result" "$OUT/faster_table.tsv"
