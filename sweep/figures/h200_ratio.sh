#!/bin/bash
# Throughput by share of deterministic requests on one H200, relative to the nondeterministic mode, measured beside
# simulated. Needs one of ratio_8b.tsv, ratio_base42.tsv (sweep/h200/run.sh ratio-8b, ratio-base42: verifier FIXED),
# presets.tsv and group.tsv (run.sh presets, group; not simulated), or more. A file without its nondeterministic run is
# left out.
# shellcheck disable=SC2034  # h200.inc looks for these: any will do
needs="ratio_8b ratio_base42 presets group"
# shellcheck source=sweep/figures/h200.inc
source "$(dirname "$0")/h200.inc"
{
    echo "# % of the throughput of nondeterministic: measured on the GPU, and simulated where it has a calibration"
    printf 'figure\tmetric\tseries\tx\tmeasured\tsimulated\n'
} >"$points"

# relative SERIES: work/both as shares of its nondeterministic run, to the points.
relative() {
    awk -F '\t' -v OFS='\t' -v figure="$figure" -v series="$1" '
        NR == FNR { if ($1 == "nondeterministic") { measured = $4; simulated = $6 }; next }
        !measured { exit }
        $1 == "nondeterministic" { next }
        { print figure, "relative_pct", series " " $1, $1 == "dvr" ? 100 * $8 : 100, 100 * $4 / measured,
              (simulated > 0 ? 100 * $6 / simulated : "nan") }' "$work/both" "$work/both" >>"$points"
}

# presets: runs by preset, from lines of file, preset, share and output tokens/s, to the points, as shares of the mean of
# the runs without deterministic requests, which do the same. Preset invariant stands at the batch-invariant mode, and of a
# preset and share the first line counts.
presets() {
    awk -F '\t' -v OFS='\t' -v figure="$figure" '
        $3 == 0 { ordinary += $4; runs++; next }
        !seen[$2, $3]++ { preset[++n] = $2; share[n] = $3; speed[n] = $4 }
        END {
            for (i = 1; runs && i <= n; i++)
                print figure, "relative_pct", preset[i] " " (preset[i] == "invariant" ? "batch_invariant" : "dvr"),
                    100 * share[i], 100 * speed[i] * runs / ordinary, "nan"
        }'
}

device= few=
for name in presets group; do
    file=$H200/$name.tsv
    [ -r "$file" ] || continue
    rows "$file" preset ratio output_tok_per_s | sort -s -k 2,2n | sed "s/^/$name\t/"
done | tee "$work/presets" | presets | sort -s -t "$(printf '\t')" -k 4n >>"$points"
for name in presets ratio_8b; do
    [ ! -r "$H200/$name.tsv" ] || device=$(device_of "$H200/$name.tsv")
done
for model in 8b base42; do
    [ -r "$H200/ratio_$model.tsv" ] || continue
    device=$(device_of "$H200/ratio_$model.tsv")
    beside_simulated $model ratio "${ratios[@]}"
    [ $model = base42 ] || few=$requests
    relative $model
done

# A run lasts until its last request ends. Where that is long after all others, one request decides the throughput.
late= why=
file=$H200/ratio_8b.tsv
if [ -r "$file" ]; then
    rows "$file" mode ratio duration_s e2e_p99_s det_e2e_p99_s passes_fast | awk -F '\t' '
        $1 == "nondeterministic" { ordinary = $6 }
        $1 == "dvr" && $5 == $3 && $3 - $4 > 0.05 * $3 { ratio = $2; seconds = $3 - $4; passes = $6 }
        END {
            if (!ratio) exit
            printf "8B, EAGER, %g%%: one request, a deterministic one, ends %.1f s after all others;\n", 100 * ratio,
                seconds
            printf "its rollbacks make the run %d fast passes longer, %d instead of %d\n", passes - ordinary, passes,
                ordinary
        }' >"$work/late"
    { read -r late && read -r why; } <"$work/late" || true
fi
title=$(tell "Measured, 8B: preset best keeps %.1f to %.1f%% of the nondeterministic throughput, preset dvr %.1f%% at 100%% deterministic" '
    $3 == "best dvr" { least = smaller(least, $5); most = larger(most, $5) }
    $3 == "dvr dvr" && $4 == 100 { dvr = $5 }
    END { print least, most, dvr }')
[ -r "$H200/presets.tsv" ] || title="What determinism costs, by share of deterministic requests"
reading="output tokens/s in % of the nondeterministic mode; filled: measured; hollow: simulated"
notes=("ShareGPT lengths, 1,024 requests at once$([ -z "$few" ] || [ "$few" = 1024 ] || echo " (8B, fixed shape: $few)")" \
    "fixed shape: all replay passes have 8 windows of 32 rows (verifier FIXED, verification EAGER, prompts PACKED)" "$late" "$why")
[ ! -r "$H200/presets.tsv" ] ||
    notes+=("presets: % of the mean of the runs without deterministic requests$(awk -F '\t' '
        $3 == 0 { if (!n++ || $4 < least) least = $4; if ($4 > most) most = $4 }
        END { if (n > 1) printf ", which differ by %.1f%%", 100 * most / least - 100 }' "$work/presets"); not simulated")
made=()
for name in $needs; do
    [ ! -r "$H200/$name.tsv" ] || made+=("$H200/$name.tsv")
done
source="measured: 8B (random weights) and $(model_name base42) on $device; $(made_of <(grep -h '^#' "${made[@]}"))"
plot
