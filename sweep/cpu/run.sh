#!/bin/bash
# How near the simulator comes to real runs on this machine's CPU: 28 runs of 200 requests, served by the engine on one
# thread, and the same runs simulated with a calibration of this machine.
#
#     bash sweep/cpu/run.sh              all three parts, in about fifteen minutes on a quiet machine
#     bash sweep/cpu/run.sh calibrate    OUT/cpu-tiny42.tsv: pass times and flips, by build/bench --calibrate
#     bash sweep/cpu/run.sh measure      OUT/offline_I.tsv: the runs in which all requests arrive at once, 12 times;
#                                        OUT/online_I.tsv: the others, 4 times
#     bash sweep/cpu/run.sh predict      OUT/predict_errors.tsv and OUT/predict.md: measured beside simulated
#     bash sweep/cpu/run.sh hybrid       the same of hybrid42, by mode: OUT/cpu-hybrid42.tsv, OUT/hybrid_I.tsv and
#                                        OUT/hybrid_simulated.tsv, in five minutes
#
#     B=FOLDER OUT=FOLDER                where programs are and where results go; sweep/results/cpu
#     REQUESTS=N REPEATS=N               smaller runs, N times
#     CALIBRATION=FILE                   another calibration than OUT/cpu-tiny42.tsv
#     FORCE=1                            go on although the machine was busy; the results say so
#
# Other programs, also those of other virtual machines on the same host, make measured times too long. So the best of
# the repeats counts. A run in which all requests arrive at once is checked by its repeats: the second best throughput
# must be within 15% of the best. The calibration checks its times by itself.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/../.."
source sweep/experiments/predict.inc
B=${B:-build} OUT=${OUT:-sweep/results/cpu} REQUESTS=${REQUESTS:-200} REPEATS=${REPEATS:-} FORCE=${FORCE:-}
calibration=${CALIBRATION:-$OUT/cpu-tiny42.tsv}
mkdir -p "$OUT"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "run.sh: $*" >&2; exit 1; }
for program in bench sweep; do [ -x "$B/$program" ] || fail "$B/$program is missing: run make $B/$program"; done

# What both the engine and the simulator are given: two modes without verification, and DVR by share, W and G; all at
# once, and over time at about half of what the slowest mode can serve.
runs=(--preset paper --workload uniform:64x96 --requests "$REQUESTS" --max-running 32 --kv-tokens 65536 --token-budget 2048
    --mode "nondeterministic,batch_invariant,dvr" --window 16,32 --group 4,8 --ratio 0.1,0.5,1)

calibrate() {
    "$B/bench" --model examples/tiny42 --threads 1 --repeats 5 --flip-requests 1000 ${FORCE:+--force} \
        --calibrate "$calibration"
}

measure_some() {  # measure_some NAME QPS REPEATS
    local i file
    rm -f "$OUT/$1"_*.tsv
    for ((i = 1; i <= $3; i++)); do
        file=$OUT/${1}_$i.tsv
        "$B/sweep" --backend cpu --model examples/tiny42 --threads 1 "${runs[@]}" --qps "$2" --quiet --out "$file" \
            >/dev/null
        echo "$1, $i of $3: $(grep -vc '^#\|^backend' "$file") runs in $file"
    done
}

measure() {
    measure_some online 40 "${REPEATS:-4}"
    measure_some offline offline "${REPEATS:-12}"
}

# predict_some NAME QPS: the errors of these runs, without the line of column names.
predict_some() {
    local measured=("$OUT/$1"_*.tsv)
    [ -r "${measured[0]}" ] || fail "${measured[0]} is missing: run bash sweep/cpu/run.sh measure"
    [ -r "$calibration" ] || fail "$calibration is missing: run bash sweep/cpu/run.sh calibrate, or set" \
        "CALIBRATION=FILE (for the runs of the repository: sweep/calibration/cpu-tiny42.tsv)"
    "$B/sweep" --backend sim --calibration "$calibration" "${runs[@]}" --qps "$2" --quiet --out "$work/simulated.tsv" \
        >/dev/null
    prediction_errors "$work/simulated.tsv" "${measured[@]}" >"$work/errors"
}

predict() {
    local busy
    predict_some online 40
    mv "$work/errors" "$work/online"
    predict_some offline offline
    sed 1d "$work/online" >>"$work/errors"
    busy=$(awk -F '\t' '$1 ~ / offline$/ && $2 == "output_tok_per_s" && $3 > 1.15 * $6 {
        printf "%s the two best repeats of %s differ by %.0f%%", n++ ? ";" : "", $1, 100 * ($3 / $6 - 1) }' \
        "$work/errors")
    [ -z "$busy" ] || [ -n "$FORCE" ] ||
        fail "the machine was busy:$busy: end other programs and measure again, or set FORCE=1 (results then say so)"
    {
        grep -hE '^# (measured|prompts|configuration)' "$OUT/offline_1.tsv"
        grep -hE '^# (simulated|source|forced)' "$work/simulated.tsv"
        echo "# measured: the best of the repeats; second: the second best; times in seconds"
        [ -z "$busy" ] || echo "# doubtful, written with FORCE=1: the machine was busy:$busy"
        cat "$work/errors"
    } >"$work/all"
    mv "$work/all" "$OUT/predict_errors.tsv"
    {
        sed -n 's/^# \(doubtful.*\|forced.*\)/\1\n/p' "$OUT/predict_errors.tsv"
        prediction_summary "$OUT/predict_errors.tsv"
    } | tee "$work/summary"
    mv "$work/summary" "$OUT/predict.md"
}

hybrid() {
    local i ways=(--preset dvr --workload uniform:64x96 --requests 120 --max-running 32 --kv-tokens 65536
        --token-budget 2048 --mode "nondeterministic,dvr,hybrid,batch_invariant" --ratio 0.1,0.5,1 --qps offline --quiet)
    "$B/bench" --model examples/hybrid42 --threads 1 --repeats 3 --flip-requests 300 --max-running 32 --seconds 200 \
        ${FORCE:+--force} --calibrate "$OUT/cpu-hybrid42.tsv"
    for i in 1 2 3 4 5; do
        "$B/sweep" --backend cpu --model examples/hybrid42 --threads 1 "${ways[@]}" --out "$OUT/hybrid_$i.tsv"
    done
    "$B/sweep" --backend sim --calibration "$OUT/cpu-hybrid42.tsv" "${ways[@]}" --out "$OUT/hybrid_simulated.tsv"
}

case ${1:-all} in
calibrate | measure | predict | hybrid) "$1" ;;
all) calibrate && measure && predict ;;
*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
