# shellcheck shell=bash
# Sourced by the scripts here: what is run on the GPU, and as what the simulator is told of it.
#
#     B=FOLDER OUT=FOLDER      where programs are and where results go; sweep/results/h200
#     BASE42=FOLDER            the model base42 (a 28.6 M-parameter llama), for the parts that serve it
#     MARGIN=X                 of the synthetic 8B weights: larger, fewer flips; at 6.2 about 0.5% of candidates
#     RANKS=N                  GPUs that share the model, for the parts that say so; 1
#     REQUESTS=N SECONDS_MAX=N smaller runs; no measurement is begun after so many seconds of a program's run
set -euo pipefail
export LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
B=${B:-build} OUT=${OUT:-sweep/results/h200} BASE42=${BASE42:-} MARGIN=${MARGIN:-6.2} SECONDS_MAX=${SECONDS_MAX:-420}
RANKS=${RANKS:-1}
BACKEND=${BACKEND:-cuda}  # cpu: to try the scripts without a GPU
MODEL_8B=${MODEL_8B:-synthetic:llama-3.1-8b,margin=$MARGIN}
# shellcheck disable=SC2034  # the scripts use these
algorithms=$OUT/algorithms
mkdir -p "$OUT"

# The FIXED verifier with every other policy of ours, but for the window, which the grids set.
policy=(--preset paper --prefill packed --chunked on --bonus on)
# What both the GPU and the simulator are given. The KV pool holds 64 GiB of the 8B model's.
# shellcheck disable=SC2034
common_8b=("${policy[@]}" --workload sharegpt --max-running 256 --kv-tokens 524288 --token-budget 2048)
# shellcheck disable=SC2034
common_base42=("${policy[@]}" --workload sharegpt --max-running 256 --kv-tokens 524288 --token-budget 2048
    --max-context 2048)
# shellcheck disable=SC2034,SC2054  # the commas are sweep's
windows=(--window 16,32,64 --group 1,2,4,8,16 --ratio 1 --qps offline)
# shellcheck disable=SC2034
ratios=(--mode "dvr,nondeterministic,batch_invariant" --ratio "0.02,0.05,0.1,0.2,0.5,1" --window 32 --group 8
    --qps offline)
# Ten runs: three modes, all at once and over time.
# shellcheck disable=SC2034
predicted=(--mode "dvr,nondeterministic,batch_invariant" --ratio "0.1,0.5,1" --window 32 --group 8 --qps "offline,8")

# by_todays_rules FILE: whether the simulator still fills replay passes as they were filled when FILE was measured. Before
# version 0.3.0 the windows of most candidates filled up a pass of EAGER, and since then those of the oldest requests do.
by_todays_rules() { ! grep -q '^# grid:.*; fill largest' "$1" 2>/dev/null; }

# calibration_beside NAME FILE: the one that was measured with FILE, in its folder, where an older one has the revision
# of its kernels in its name; else the newest, in sweep/calibration.
calibration_beside() {
    local beside kernels file
    beside=$(dirname "$2")/$1
    kernels=$(sed -n 's/^# cuda kernels: //p' "$2" 2>/dev/null | head -n 1)
    for file in "$beside.tsv" "$beside-kernels$kernels.tsv"; do
        [ ! -r "$file" ] || { echo "$file"; return; }
    done
    echo "sweep/calibration/$1.tsv"
}
# stamp NAME...: the date of a measurement, as the first line of OUT/NAME.tsv
stamp() {
    local name
    for name in "$@"; do sed -i "1i # date: $(date +%F)" "$OUT/$name.tsv"; done
}
# measure NAME FLAG...: one grid on the GPU, into OUT/NAME.tsv, written anew after every cell.
measure() {
    local name=$1
    shift
    local gpu=()
    [ "$BACKEND" = cuda ] && gpu=(--algorithm-file "$algorithms")
    "$B/sweep" --backend "$BACKEND" "${gpu[@]}" "$@" --seconds "$SECONDS_MAX" --quiet --out "$OUT/$name.tsv" >/dev/null
    stamp "$name"
    echo "$name: $(grep -vc '^#\|^backend' "$OUT/$name.tsv") cells in $OUT/$name.tsv"
}
