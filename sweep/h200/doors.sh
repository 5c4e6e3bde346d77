#!/bin/bash
# The doors of llm42 on an NVIDIA H200: Python, build/serve, and the referee in front of it. Every part has a time limit
# and is tried on a CPU in the same way (BACKEND=cpu). All parts together take at most four minutes.
#
#     bash sweep/h200/doors.sh all           every part, then a table (OUT/doors.tsv)
#     bash sweep/h200/doors.sh bits          Python's bits beside those of C and of a CPU that rounds as a Hopper GPU
#     bash sweep/h200/doors.sh referee       verdicts on three presets, and on requests that are not deterministic
#     bash sweep/h200/doors.sh throughput    tokens/s over HTTP beside build/generate's and build/bench's
#     bash sweep/h200/doors.sh overhead      what Python costs
#     bash sweep/h200/doors.sh pack FILE     a tar for a machine without libmicrohttpd, jansson and PCRE2: B and BASE42
#
# Needs numpy and build/{generate,serve,bench,libllm42_python.so}. A library that is in B/lib is used where the machine
# has none of its own. REPEATS=N (3) and TRIALS=N (12, of the referee) make runs shorter; PRESET=NAME (dvr) is that of
# the throughput, and TOKENS=N the length of its answers; MODEL=FOLDER (BASE42, else tiny42) is served. More of the
# environment: sweep/h200/common.sh.
OUT=${OUT:-sweep/results/h200/doors}
source "$(dirname "$0")/common.sh"
MODEL=${MODEL:-${BASE42:-examples/tiny42}} PRESET=${PRESET:-dvr} REPEATS=${REPEATS:-3} TRIALS=${TRIALS:-12}
PYTHON=${PYTHON:-python3} ANSWERS=32
# Of the throughput. On a GPU 256 tokens take 0.07 s, of which connecting 32 clients would be a part.
TOKENS=${TOKENS:-$([ "$BACKEND" = cpu ] && echo 256 || echo 1024)}
REFEREE_TOKENS=$([ "$BACKEND" = cpu ] && echo 64 || echo 128)
export B OUT BASE42 BACKEND MODEL PRESET REPEATS TRIALS PYTHON PYTHONDONTWRITEBYTECODE=1
LLM42_LIBRARY=$(realpath -m "$B")/libllm42_python.so
export LLM42_LIBRARY
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT

# Libraries of B/lib that the machine lacks. Others stay away from Python, which may need newer ones.
mkdir "$work/lib"
known=$(ldconfig -p || true)
for f in "$B"/lib/*; do
    [[ ! -e $f || $known == *"${f##*/} "* ]] || ln -s "$(realpath "$f")" "$work/lib"
done
export LD_LIBRARY_PATH=$work/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# say PART WHAT RESULT: a row of the table.
say() { printf '%s\t%s\t%s\n' "$@" >>"$OUT/doors.tsv"; }
# The lines that every result begins with. `all` asks the device once.
manifest() {
    local file=${MANIFEST:-$work/manifest}
    [ -s "$file" ] || {
        "$B/generate" --backend "$BACKEND" --model "$MODEL" --ids 1,2,3 --ids-out -n 1 --record "$work/record" >/dev/null
        echo "# sweep/h200/doors.sh, backend $BACKEND"
        sed -n 's/^#define LLM42_VERSION "\(.*\)"$/# llm42 \1/p' llm42.h
        echo "# cpu:$(sed -n 's/^model name[^:]*://p' /proc/cpuinfo | head -1), $(nproc --all) cores"
        sed -n '/^# cuda algorithm /d; /^# cuda /p' "$work/record"
    } >"$file"
    cat "$file"
}
# begin NAME WORDS...: the head of OUT/NAME.tsv
begin() { { manifest && echo "# ${*:2}"; } >"$OUT/$1.tsv"; }
# serve NAME OPTION...: a server; its address becomes url_NAME.
serve() {
    : >"$work/$1"
    "$B/serve" --backend "$BACKEND" --model "$MODEL" --port 0 "${@:2}" >"$work/$1" &
    until grep -q ' serves ' "$work/$1"; do kill -0 $! && sleep 0.1; done
    declare -g "url_$1=$(sed -n 's|^serve: \(.*/v1\) serves .*|\1|p' "$work/$1")"
}
# judge NAME STATUS OPTION...: the referee must end with this status
judge() {
    local status=0 verdict
    "$PYTHON" sweep/referee/referee.py --temperature 0 0.8 --trials "$TRIALS" --tokens $REFEREE_TOKENS \
        --out "$work/$1.out" "${@:3}" \
        >"$work/said" 2>"$work/err" || status=$?
    verdict=$(tail -n 1 "$work/said" | cut -c 1-150)
    [ -s "$work/said" ] || verdict=$(tail -n 1 "$work/err")
    say referee "$1" "$([ "$status" = "$2" ] || echo "STATUS $status, NOT $2: ")$verdict"
    [ -r "$work/$1.out/report.tsv" ] || return 1
    begin "referee_$1" "model $(basename "$MODEL"), preset $1 (ordinary: dvr, requests that are not deterministic)"
    cat "$work/$1.out/report.tsv" >>"$OUT/referee_$1.tsv"
    [ "$status" = "$2" ]
}

case ${1:-} in
all)
    rm -f "$OUT/doors.tsv"
    failed=0 begun=$SECONDS
    manifest >/dev/null
    export MANIFEST=$work/manifest
    while read -r part limit; do
        since=$SECONDS status=0
        timeout -k 5 "$limit" bash "$0" "$part" </dev/null || status=$?
        [ $status != 124 ] || say "$part" "time limit" "NOT FINISHED after $limit s"
        say "$part" "status" "$status after $((SECONDS - since)) s"
        [ $status = 0 ] || failed=1
    done < <(printf '%s\n' "bits 60" "referee 75" "throughput 70" "overhead 30")
    say all "time" "$((SECONDS - begun)) s"
    awk -F '\t' '{ printf "%-11s %-26s %s\n", $1, $2, $3 }' "$OUT/doors.tsv"
    exit $failed
    ;;
bits)
    begin bits "sweep/h200/bits.py: differ counts answers with other ids or other bits than C's on this backend"
    status=0
    for model in examples/tiny42 ${BASE42:+"$BASE42"}; do
        "$PYTHON" sweep/h200/bits.py "$model" >"$work/bits" || status=$?
        sed "$([ "$model" = examples/tiny42 ] || echo 1d)" "$work/bits" >>"$OUT/bits.tsv"
        while IFS=$'\t' read -r name preset comparison answers _ differ; do
            say bits "$name $preset $comparison" "$differ of $answers differ"
        done < <(sed 1d "$work/bits")
    done
    exit $status
    ;;
referee)
    # The control is ordinary requests by preset dvr. On an H200 its FAST passes would take the INVARIANT order nearly
    # everywhere, and no answer would differ. With --offered their products keep orders of their own, in passes of some
    # numbers of rows. (Attention has one order.) Preset dvr lets prompts ride beside decoding rows. By preset paper
    # prompts run apart, so that few clients never get a pass of many rows.
    status=0 marked=(--field deterministic=true) own=(--offered)
    [ "$BACKEND" = cuda ] || own=()
    serve dvr --preset dvr "${own[@]}"
    serve best --preset best "${own[@]}"
    serve invariant --preset invariant
    # shellcheck disable=SC2154  # serve sets url_NAME
    {
        control=(--control deterministic=false --control-url "$url_dvr")
        judge dvr 0 --url "$url_dvr" "${marked[@]}" "${control[@]}" || status=1
        judge best 0 --url "$url_best" "${marked[@]}" "${control[@]}" || status=1
        judge invariant 0 --url "$url_invariant" --control-url "$url_dvr" || status=1
        judge ordinary 1 --url "$url_dvr" --field deterministic=false || status=1
    }
    exit $status
    ;;
throughput)
    export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
    begin throughput "tests/serve/throughput.py: model $(basename "$MODEL"), preset $PRESET, $ANSWERS answers of" \
        "$TOKENS tokens at once; medians of $REPEATS runs; bench: build/bench --suite workloads, same engine, one run"
    # As in throughput.py: requests draw at temperature 1, and the engine is that of the preset for ordinary ones, too.
    # Each program would choose its own matrix algorithms by timing them, and passes would differ from program to program
    # by up to a quarter. So all of them take one choice.
    algorithms=()
    [ "$BACKEND" = cpu ] || algorithms=(--algorithm-file "$work/algorithms")
    load=(--input-tokens 3 --output-tokens "$TOKENS" --repeats "$REPEATS")
    [ "$BACKEND" = cpu ] ||
        load=(--workload "fixed:3x$TOKENS" --max-running "$ANSWERS" --token-budget 256 --seconds 25)
    "$B/bench" --backend "$BACKEND" --model "$MODEL" --suite workloads --requests $ANSWERS --preset "$PRESET" \
        --temperature 1 "${load[@]}" "${algorithms[@]}" --out "$work/bench.tsv" >/dev/null
    bench() {  # bench RATIO: its row, of so many deterministic requests
        awk -F '\t' -v OFS='\t' -v "case=$PRESET" -v "ratio=$1" '
            /^#/ { next }
            $1 == "suite" { for (i = 1; i <= NF; i++) at[$i] = i; next }
            $at["case"] ~ case "$" && $at["deterministic_ratio"] == ratio {
                print "bench", $at["tokens_per_s"], "", "", "", 1e3 * $at["ms"], "", "", "", ""
            }' "$work/bench.tsv"
    }
    for requests in ordinary deterministic; do
        flag=() ratio=0
        [ $requests = ordinary ] || flag=(--deterministic) ratio=1
        [[ $MODEL != synthetic:* ]] || flag+=(--ids)  # it has no tokenizer
        "$PYTHON" tests/serve/throughput.py --build "$B" --backend "$BACKEND" --model "$MODEL" --preset "$PRESET" \
            --answers $ANSWERS --tokens $TOKENS --repeats "$REPEATS" "${flag[@]}" "${algorithms[@]}" >"$work/rates"
        bench $ratio >>"$work/rates"
        sed "1s/^/requests\t/; 2,\$s/^/$requests\t/" "$work/rates" | sed "$([ $requests = ordinary ] || echo 1d)" \
            >>"$OUT/throughput.tsv"
        of_bench=$(awk -F '\t' '$1 == "bench" { print $2 }' "$work/rates")
        while IFS=$'\t' read -r how rate pass outside; do
            share=$(awk -v "a=$rate" -v "b=$of_bench" 'BEGIN { printf "%.3f", a / b }')
            say throughput "$requests $how" \
                "$rate tokens/s, $share of bench; $pass us a pass${outside:+, $outside us outside of it}"
        done < <(awk -F '\t' -v OFS='\t' 'NR > 1 { print $1, $2, $6, $7 }' "$work/rates")
    done
    ;;
overhead)
    export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
    rounds=$((2 * REPEATS + 1))
    begin overhead "examples/python/overhead.py: tiny42, 64 answers of 128 tokens, medians of $rounds rounds"
    "$PYTHON" examples/python/overhead.py --backend "$BACKEND" --tokens 128 --repeats $rounds --no-program |
        sed -E 's/ {2,}/\t/g' >>"$OUT/overhead.tsv"
    while IFS=$'\t' read -r requests way ms _ over _; do
        say overhead "$requests $way" "$ms ms, $over% over C by time of the processor"
    done < <(sed '/^#/d; /^requests\t/d' "$OUT/overhead.tsv")
    ;;
pack)
    [ -n "${2:-}" ] || { echo "doors.sh: pack: name the file" >&2; exit 2; }
    rm -rf "${B:?}/lib" "$B/base42"
    mkdir "$B/lib"
    # Not those that come with the C library, every gcc, and the CUDA Toolkit.
    ldd "$B/serve" | awk '
        $3 ~ /^\// && $1 !~ /^lib(c|m|dl|rt|pthread|gcc_s|gomp|stdc\+\+|cublasLt|cudart)\.so/ { print $3 }' |
        xargs -I {} cp -L {} "$B/lib"
    [ -z "$BASE42" ] || cp -r "$BASE42" "$B/base42"
    strip "$B"/{generate,serve,bench,libllm42_python.so}
    # Weights of two bytes are most of it, for which lp=1 and lc=0 are.
    (cd "$B" && tar c --owner=0 --group=0 generate serve bench libllm42_python.so lib ${BASE42:+base42}) |
        xz --lzma2=preset=6,dict=64MiB,lc=0,lp=1,pb=1 >"$2"
    ls -l "$2"
    ;;
*)
    sed -n '2,/^OUT/s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
