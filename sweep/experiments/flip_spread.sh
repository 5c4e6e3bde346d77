#!/bin/bash
# How unlike are the flip rates of requests? The runs of Fig. 9 (ShareGPT, 12 queries a second, all deterministic, G = 1)
# with several spreads, beside the published distribution over requests of rollbacks per verification. It was read off
# the paper's curves at 0, 0.2 and 0.4 rollbacks, for four windows: 12 points. The calibration was not fitted to them.
#
#     bash sweep/experiments/flip_spread.sh                 sweep/results/paper/flip_spread.tsv
#     B=FOLDER OUT=FOLDER SPREADS="0.1 1" SEEDS="42 43"     where the program is, where the result goes, what runs
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/../.."
B=${B:-build} OUT=${OUT:-sweep/results/paper} SPREADS=${SPREADS:-0.05 0.2 0.3 0.4 0.5 0.7 1 1.5 2 3}
SEEDS=${SEEDS:-42 43 44 45 46}
calibration=sweep/calibration/h100-pcie-paper.tsv published=sweep/reference/fig9_rollback_cdf.tsv
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ -x "$B/sweep" ] || { echo "flip_spread.sh: $B/sweep is missing: run make" >&2; exit 1; }

# of_one SPREAD: the mean distance of the 12 points in percentage points, and of recomputed tokens in percent.
of_one() {
    for window in 32 64 128 256; do
        for seed in $SEEDS; do
            "$B/sweep" --calibration "$calibration" --preset paper --workload sharegpt-served --qps 12 --ratio 1 \
                --group 1 --window "$window" --seed "$seed" --flip-spread "$1" --quiet \
                --per-request "$work/requests" --out "$work/cell" >/dev/null 2>&1
            awk -F '\t' -v OFS='\t' -v w="$window" '/^#/ { next } !named { for (i = 1; i <= NF; i++) at[$i] = i
                named = 1; next } { print w, $at["output_tokens"], $at["verifications"], $at["rollbacks"],
                $at["recomputed"] }' "$work/requests"
        done
    done | awk -F '\t' -v OFS='\t' -v spread="$1" '
        function off(x) { return x < 0 ? -x : x }
        NR == FNR { if (/^[0-9]/) { known[$1] = 1; for (k = 0; k < 3; k++) want[$1, k] = $(k + 2); paper[$1] = $6 }
            next }
        { tokens[$1] += $2; recomputed[$1] += $5 }
        $3 > 0 { n[$1]++; for (k = 0; k < 3; k++) if ($4 / $3 <= k / 5 + 1e-9) below[$1, k]++ }
        END {
            for (w in known) {
                for (k = 0; k < 3; k++) sum += off(100 * (below[w, k] / n[w] - want[w, k])) / 12
                more += off(100 * recomputed[w] / tokens[w] / paper[w] - 1) / 4
                none += 100 * below[w, 0] / n[w] / 4
            }
            printf "%s\t%.2f\t%.1f\t%.1f\n", spread, sum, none, 100 * more
        }' "$published" -
}

{
    echo "# simulated by build/sweep, calibration ${calibration##*/}, preset paper; seeds $SEEDS"
    echo "# flip_spread: standard deviation of the flip rates of requests, over their mean; the calibration has 0.344"
    echo "# cdf_error_points: mean distance from the 12 published points of Fig. 9; no_rollback_pct: requests without one"
    echo "# recompute_error_pct: mean distance of recomputed tokens from the published, over four windows"
    printf 'flip_spread\tcdf_error_points\tno_rollback_pct\trecompute_error_pct\n'
    for spread in $SPREADS; do of_one "$spread"; done
} >"$work/all"
mkdir -p "$OUT"
mv "$work/all" "$OUT/flip_spread.tsv"
cat "$OUT/flip_spread.tsv"
