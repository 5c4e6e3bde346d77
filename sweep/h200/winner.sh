#!/bin/bash
# Measures points of the map of sweep/science/winner.py on one NVIDIA H200: 8B, 256 requests with the lengths of
# ShareGPT, by presets dvr, best and invariant and without determinism. Three shares of deterministic requests, three
# loads and all at once make twelve points. Needs `make cuda`.
#
#     bash sweep/h200/winner.sh                    one seed: about nine minutes
#     SEEDS=42,43,44 bash sweep/h200/winner.sh     three seeds: about nine minutes for each that is not there yet
#     MINUTES=4 bash sweep/h200/winner.sh          begins no run after four minutes (9)
#
# Each finished run is kept in OUT/winner.cells, and the same command goes on from there. Remove that folder if the
# code or the GPU changes. When all runs are there, OUT/winner_presets.tsv and OUT/winner_none.tsv are the result.
# LOADS (requests a second), SHARES and REQUESTS: other points. Environment: sweep/h200/common.sh.
source "$(dirname "$0")/common.sh"
limit=$((60 * ${MINUTES:-9}))
options=(--model "$MODEL_8B" --requests "${REQUESTS:-256}" --workload sharegpt --max-running 256 --token-budget 2048
    --qps "${LOADS:-20,30,40,offline}" --seed "${SEEDS:-42}" --cells "$OUT/winner.cells")
mkdir -p "$OUT/winner.cells"

part() {  # part NAME FLAG...: this grid, if there is time
    ((SECONDS < limit)) || { echo "winner.sh: the time is up: the same command goes on" >&2; exit 0; }
    SECONDS_MAX=$((limit - SECONDS)) measure "$1" "${options[@]}" "${@:2}"
}
part winner_none --mode nondeterministic --chunked on
part winner_presets --preset dvr,best,invariant --ratio "${SHARES:-0.1,0.5,1}"
