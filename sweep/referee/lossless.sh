#!/bin/bash
# Do drafts change answers? The referee's suite lossless on servers of tiny42 with a draft model, one run for each width
# of drafts, into sweep/results/referee/lossless_*.tsv. Each width has a server of its own, beside one without drafts.
#
#     make build/serve && sweep/referee/lossless.sh serve
#     LLAMA=FOLDER/llama-server sweep/referee/lossless.sh llama     # needs the Python package gguf
#     sweep/referee/lossless.sh transformers                        # needs transformers and torch
#
# From the environment: PYTHON (python3), OUT (sweep/results/referee), WIDTHS (which widths or servers, default all).
set -eu
PYTHON=${PYTHON:-python3} OUT=${OUT:-sweep/results/referee} LLAMA=${LLAMA:-llama-server}
work=$(mktemp -d)
servers=()
stop() {
    [ ${#servers[@]} = 0 ] || kill "${servers[@]}"
    servers=()
}
trap 'stop; rm -rf "$work"' EXIT
start() {  # start PORT COMMAND...: a server, once it answers
    "${@:2}" >"$work/server.$1" 2>&1 &
    servers+=($!)
    for _ in {1..200}; do
        curl -fs "http://127.0.0.1:$1/v1/models" >"$work/models" 2>&1 && return
        sleep 0.3
    done
    tail -n 5 "$work/server.$1" && exit 1
}
judge() {  # judge NAME COMMENT OPTION...: the referee's report with a manifest
    echo "== $1"
    "$PYTHON" sweep/referee/referee.py --prompts $OUT/lossless_prompts.txt --out "$work" "${@:3}" | tail -n 1
    {
        echo "# date: $(date +%F), cpu: $(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -n 1)"
        echo "# judged server: $2"
        cat "$work/report.tsv"
    } >"$OUT/lossless_$1.tsv"
}
serve() {  # serve NAME PRESET OPTION...: build/serve with these drafts, and without
    case " ${WIDTHS:-$1} " in *" $1 "*) ;; *) return ;; esac
    start 8140 build/serve --port 8140 --preset "$2" --prefix-cache --threads 1
    start 8141 build/serve --port 8141 --preset "$2" --prefix-cache --threads 1 "${@:3}"
    judge "serve_$1" "build/serve --preset $2 --prefix-cache ${*:3}" --url http://127.0.0.1:8141/v1 \
        --against http://127.0.0.1:8140/v1 --temperature 0 0.8 --tokens 48 --trials 4 \
        --field deterministic=true --control deterministic=false || [ $? = 1 ]
    stop
}
$PYTHON sweep/referee/draft_of.py examples/tiny42 "$work/draft"
case ${1:-} in
serve)
    for width in 1 2 4 7; do serve dvr_$width dvr --draft model:"$work/draft" --draft-limit $width; done
    serve dvr_15 dvr --draft model:"$work/draft" --draft-limit 15 --window 16
    serve best_7 best --draft model:"$work/draft" --draft-limit 7
    serve lookup_7 dvr --draft lookup --draft-limit 7
    ;;
llama)
    for folder in examples/tiny42 "$work/draft"; do
        $PYTHON sweep/referee/to_gguf.py "$folder" "$work/$(basename "$folder").gguf"
    done
    server=("$LLAMA" -m "$work/tiny42.gguf" --alias tiny42 -t 1 -c 4096 -np 1)
    drafts=(-md "$work/draft.gguf" --spec-type draft-simple --spec-draft-p-min 0 --spec-draft-n-max)
    for cache in no-cache-prompt cache-prompt; do
        start 8140 "${server[@]}" --$cache --port 8140
        for width in ${WIDTHS:-1 2 4 8}; do
            start 8141 "${server[@]}" --$cache --port 8141 "${drafts[@]}" "$width"
            judge "llama_${cache}_$width" "llama-server -np 1 --$cache --spec-draft-n-max $width" \
                --url http://127.0.0.1:8141/v1 --against http://127.0.0.1:8140/v1 --temperature 0 0.8 --tokens 48 \
                --trials 4 || [ $? = 1 ]
            kill "${servers[1]}"
            wait "${servers[1]}" || true
            unset 'servers[1]'
        done
        stop
    done
    ;;
transformers)
    start 8140 "$PYTHON" sweep/referee/assisted.py --model examples/tiny42 --draft "$work/draft" --port 8140
    for width in ${WIDTHS:-1 2 4 8}; do
        judge "transformers_$width" "transformers, assisted generation of $width tokens" \
            --url http://127.0.0.1:8140/v1 --against drafts=0 --width drafts="$width" --tokens 32 --trials 2 \
            --clients 4 || [ $? = 1 ]
    done
    ;;
*)
    echo "usage: lossless.sh serve, llama or transformers" >&2
    exit 2
    ;;
esac
