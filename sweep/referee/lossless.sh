#!/bin/bash
# Do drafts change answers? The referee's suite lossless on servers of tiny42 with a draft model, one run for each width
# of drafts, into sweep/results/referee/lossless_*.tsv. Each width has a server of its own, beside one without drafts.
#
#     make build/serve && sweep/referee/lossless.sh serve
#     LLAMA=FOLDER/llama-server sweep/referee/lossless.sh llama     # needs the Python package gguf
#     sweep/referee/lossless.sh transformers                        # needs transformers and torch
#
# From the environment: PYTHON (python3), OUT (sweep/results/referee), RUNS (which of serve, default all), ASSISTED
# (options of assisted.py), SERVE (how build/serve is called; on a GPU "build/serve --backend cuda"), CONTROL (options of
# one more server, which is the control instead of ordinary requests: an H200 answers those of tiny42 like deterministic
# ones, so take "--leaves 2" there).
set -eu
PYTHON=${PYTHON:-python3} OUT=${OUT:-sweep/results/referee} LLAMA=${LLAMA:-llama-server}
SERVE=${SERVE:-build/serve --threads 1}
work=$(mktemp -d)
servers=()
stop() {
    [ ${#servers[@]} = 0 ] || { kill "${servers[@]}"; wait "${servers[@]}" || true; } 2>/dev/null
    servers=()
}
trap 'stop; rm -rf "$work"' EXIT
start() {  # start PORT COMMAND...: a server, once it answers
    if curl -s "http://127.0.0.1:$1/" >"$work/models"; then
        echo "lossless.sh: port $1: another server answers there" && exit 1
    fi
    "${@:2}" >"$work/server.$1" 2>&1 &
    servers+=($!)
    for _ in {1..200}; do
        curl -fs "http://127.0.0.1:$1/v1/models" >"$work/models" 2>&1 && return
        sleep 0.3
    done
    tail -n 5 "$work/server.$1" && exit 1
}
summary() {  # of a report: a line for each run, suite and temperature; question is the number of questions
    awk -F '\t' -v OFS='\t' '/^#/ { print; next } !head { head = NF; print; next }
        { k = $1 OFS $2; t = k OFS $4; if (!(t in n)) order[++count] = t
          n[t]++; a[t] += $6; for (i = 10; i <= 12; i++) d[t, i] += $i
          for (i = 13; i <= 15; i++) if ($i != "" && (f[t, i] == "" || $i + 0 < f[t, i] + 0)) f[t, i] = $i
          if ($16 + 0 > m[t] + 0) m[t] = $16 }
        END { for (c = 1; c <= count; c++) { t = order[c]; split(t, p, OFS)
            print p[1], p[2], n[t], p[3], "", a[t], "", "", "", d[t, 10], d[t, 11], d[t, 12], f[t, 13], f[t, 14],
                f[t, 15], m[t] + 0 } }' "$1"
}
judge() {  # judge NAME COMMENT OPTION...: the referee's report with a manifest
    local status=0
    echo "== $1"
    rm -f "$work/report.tsv"
    "$PYTHON" sweep/referee/referee.py --prompts sweep/results/referee/lossless_prompts.txt --out "$work" "${@:3}" \
        >"$work/said" || status=$?
    tail -n 1 "$work/said"
    [ -e "$work/report.tsv" ] || return 0  # one line has said why there is no verdict
    {
        echo "# date: $(date +%F), cpu: $(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -n 1)"
        echo "# judged server: ${2//$work/DIR}"
        summary "$work/report.tsv"
    } >"$OUT/lossless_$1.tsv"
    echo "status $status"
}
serve() {  # serve NAME PRESET OPTION...: build/serve with these drafts, and without
    case " ${RUNS:-$1} " in *" $1 "*) ;; *) return ;; esac
    start 8140 $SERVE --port 8140 --preset "$2" --prefix-cache
    start 8141 $SERVE --port 8141 --preset "$2" --prefix-cache "${@:3}"
    local control=(--field deterministic=true --control deterministic=false)
    if [ -n "${CONTROL:-}" ] || [ "$2" = invariant ]; then  # which makes all requests deterministic
        start 8143 $SERVE --port 8143 --prefix-cache ${CONTROL:-} "${@:3}"
        control=(--field deterministic=true --control-url http://127.0.0.1:8143/v1)
    fi
    judge "serve_$1" "build/serve --preset $2 --prefix-cache ${*:3}" --url http://127.0.0.1:8141/v1 \
        --against http://127.0.0.1:8140/v1 --temperature 0 0.8 --tokens 48 --trials 4 "${control[@]}"
    stop
}
$PYTHON sweep/referee/draft_of.py examples/tiny42 "$work/draft"
case ${1:-} in
serve)
    for width in 1 2 4 7; do serve dvr_$width dvr --draft model:"$work/draft" --draft-limit $width; done
    serve dvr_15 dvr --draft model:"$work/draft" --draft-limit 15 --window 16
    for width in 2 7; do
        serve invariant_$width invariant --draft model:"$work/draft" --draft-limit $width
    done
    serve best_7 best --draft model:"$work/draft" --draft-limit 7
    serve lookup_7 dvr --draft lookup:1 --draft-limit 7
    serve lookup_15 dvr --draft lookup:1 --draft-limit 15 --window 16
    ;;
llama)
    for folder in examples/tiny42 "$work/draft"; do
        $PYTHON sweep/referee/to_gguf.py "$folder" "$work/$(basename "$folder").gguf"
    done
    for run in "1 1 no-cache-prompt 1" "2 1 no-cache-prompt 2" "4 1 no-cache-prompt 4" "8 1 no-cache-prompt 8" \
        "slots 4 no-cache-prompt 4" "cache 1 cache-prompt 4"; do
        read -r name slots cache width <<<"$run"
        server=("$LLAMA" -m "$work/tiny42.gguf" --alias tiny42 -t 1 -c 8192 -np "$slots" --"$cache")
        start 8140 "${server[@]}" --port 8140
        start 8141 "${server[@]}" --port 8141 -md "$work/draft.gguf" --spec-type draft-simple --spec-draft-p-min 0 \
            --spec-draft-n-max "$width"
        judge "llama_$name" "llama-server -np $slots --$cache --spec-draft-n-max $width" \
            --url http://127.0.0.1:8141/v1 --against http://127.0.0.1:8140/v1 --temperature 0 0.8 --tokens 48 --trials 4
        stop
    done
    ;;
transformers)
    start 8142 "$PYTHON" sweep/referee/assisted.py --model examples/tiny42 --draft "$work/draft" --port 8142 ${ASSISTED:-}
    judge transformers "assisted generation of transformers, widths by turns" --url http://127.0.0.1:8142/v1 \
        --against drafts=0 --width drafts=1 --width drafts=2 --width drafts=4 --width drafts=8 --tokens 32 --trials 2 \
        --clients 4
    ;;
*)
    echo "usage: lossless.sh serve, llama or transformers" >&2
    exit 2
    ;;
esac
