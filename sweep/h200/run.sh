#!/bin/bash
# Measures an NVIDIA H200: one part a call, each of at most nine minutes. All parts but `stale`, `pytorch`
# and `launches` need `make cuda`, and `sglang` and those whose name begins with `determinism` also
# `make build/tests/test_cuda CUDA=1`.
#
#     bash sweep/h200/run.sh stale              says of each part's files of which revision of the kernels they are
#     bash sweep/h200/run.sh all                every part whose files are not of today's revision, for as long as there
#                                               is time (MINUTES=9); the same command goes on with the next part;
#                                               PARTS="NAME ...": of these parts alone
#     bash sweep/h200/run.sh passes             pass times as shares of ceilings, and a pass's stages
#     bash sweep/h200/run.sh graphs             the same passes with CUDA graphs and without, and 16 requests of
#                                               1,024 tokens in and out, as SGLang's measurement of its graphs
#     bash sweep/h200/run.sh launches           what it costs PyTorch that Python launches each kernel of a decode pass
#                                               (pytorch.py --launches), beside the same in a CUDA graph
#     bash sweep/h200/run.sh mixture            the same of a mixture of experts, in the shape of Qwen3-30B-A3B
#     bash sweep/h200/run.sh eight              passes of FP8 models, dense and of experts, beside bf16; the dense ones
#                                               beside PyTorch's, too; ShareGPT lengths as in part presets
#     bash sweep/h200/run.sh energy             8B in bf16 and in FP8: tokens and energy of a workload
#     bash sweep/h200/run.sh flips              wrong candidates by the margin of their logit, in bf16 and in FP8;
#                                               BASE42=FOLDER: of base42 in FP8, too
#     bash sweep/h200/run.sh determinism-eight  hostile loads of FP8 models; FOLDER=DIR: transcripts go there
#     bash sweep/h200/run.sh hybrids            models with recurrent layers, in the shapes of Qwen3.5-9B and -35B-A3B:
#                                               passes, presets, drafts
#     bash sweep/h200/run.sh determinism-hybrid  hostile loads of four of them, all at once; FOLDER=DIR: transcripts
#     BASE42=FOLDER bash sweep/h200/run.sh drafts    what drafts are worth, by an oracle (8B) and by drafters (base42),
#                                               and whether answers keep their bits with them
#     bash sweep/h200/run.sh prompts            whole prompts of 2,048 to 32,768 tokens, and their stages
#     bash sweep/h200/run.sh attention          attention of prompts in one layer, beside cuDNN's and FlashAttention's in
#                                               turn; needs `make kernels` and PyTorch
#     bash sweep/h200/run.sh presets            ShareGPT lengths, all at once: presets best and invariant, by share
#     bash sweep/h200/run.sh group              the same by preset dvr; GROUP=32,64,256: replay passes of other sizes
#     bash sweep/h200/run.sh online             one deterministic request among eleven; time between tokens under load
#     bash sweep/h200/run.sh fig6               350 requests of 512 tokens that arrive at 6 a second, and ALONE of them
#                                               (40) served alone, too: ordinary ones, and by preset dvr
#     bash sweep/h200/run.sh tbik               TBIK's experiment at temperature 0.6: different answers and the largest
#                                               difference of the five largest probabilities, by ranks, which share
#                                               the GPU, and by requests at once
#     bash sweep/h200/run.sh calibrate          the simulator's calibration of the 8B shape; RANKS=2: on two GPUs;
#                                               LEAVES=8: with eight leaves; MODEL_8B=synthetic:llama-3.1-8b-fp8 or
#                                               synthetic:qwen3-30b-a3b-fp8: of that shape
#     BASE42=FOLDER bash sweep/h200/run.sh calibrate-base42    the same of base42
#     BASE42=FOLDER bash sweep/h200/run.sh determinism-base42    hostile loads, compared to the bit
#     bash sweep/h200/run.sh determinism-8b                      the same of 8B, determinism-mixture of a mixture
#     bash sweep/h200/run.sh sglang                              SGLang's three subtests by 8B
#     bash sweep/h200/run.sh sglang-prefix                       SGLang's prefixes of 1 to 4,097 tokens by 8B;
#                                                                PREFIXES=1,64: others
#     bash sweep/h200/run.sh sglang-cost                         256 requests of 1,024 tokens in and out, as SGLang's
#                                                                measurement of its cost, in as many calls as it takes;
#                                                                LENGTHS=4096x4096 SECONDS_MAX=240: as many tokens;
#                                                                LENGTHS=8192x8192 REQUESTS=22 PRESETS=best: half as
#                                                                many as have room at once
#     BASE42=FOLDER bash sweep/h200/run.sh scoring         log-probabilities of generation beside those of scoring
#     BASE42=FOLDER bash sweep/h200/run.sh flip-law        the law of flips (science/margins.py) of tiny42, base42
#     TEMPERATURE=0 bash sweep/h200/run.sh flip-law-8b     the same of 8B, one temperature a call (0, 0.8); both need
#                                                          `make shared CUDA=1` and numpy; TEXTS=N: fewer or more
#     BASE42=FOLDER bash sweep/h200/run.sh grid-base42     window x group; ratio-base42: shares of deterministic requests
#     bash sweep/h200/run.sh winner             points of the map of mechanisms: winner.sh
#     bash sweep/h200/run.sh grid-8b                       the same for random weights of the 8B shape
#     bash sweep/h200/run.sh grid-online                   window x group x share of 8B, where requests arrive at 12 a
#                                                          second (QPS=X; SHARES=0.1,0.5,1): two calls
#     bash sweep/h200/run.sh ratio-8b           the shares alone, of 1,024 requests unless REQUESTS says otherwise
#     bash sweep/h200/run.sh kernels            single operators: speed by rows, and which keep bits; needs `make kernels`
#     bash sweep/h200/run.sh leaves             products with leaves beside cuBLAS's without; needs `make kernels`
#     bash sweep/h200/run.sh pytorch            PyTorch's times of the same passes (pytorch.py); run `passes` before it
#     bash sweep/h200/run.sh predict            ten runs, and the simulator's errors on them (predict.sh)
#     bash sweep/h200/grid.sh                   the simulator's errors on the grids (no GPU)
#
# One part at a time: parts that share a GPU time each other's products, and choose others.
#
# What is there when the time is up stays: every file is written anew after each cell, or line by line. Environment:
# sweep/h200/common.sh, TOKENS (fig6, tbik), QPS (fig6, grid-online), BATCHES (tbik), KV_TOKENS (sglang-prefix,
# sglang-cost), REQUESTS_9B (determinism-hybrid) and FLIP_REQUESTS (flips). BACKEND=cpu tries a part without a GPU.
source "$(dirname "$0")/common.sh"
[[ ${MINUTES:-9} =~ ^[0-9]+$ ]] || { echo "run.sh: MINUTES=$MINUTES: must be a whole number" >&2; exit 2; }
# What programs of several backends take. offered: FAST products are those that serving engines have.
gpu=(--backend "$BACKEND") offered=()
[ "$BACKEND" != cuda ] || gpu+=(--algorithm-file "$algorithms") offered=(--offered)
bench() {  # bench NAME FLAG...: into OUT/NAME.tsv and, as printed, OUT/NAME.txt
    local name=$1
    shift
    "$B/bench" --backend cuda --model "$MODEL_8B" --algorithm-file "$algorithms" --out "$OUT/$name.tsv" "$@" |
        tee "$OUT/$name.txt.part"
    mv "$OUT/$name.txt.part" "$OUT/$name.txt"
    stamp "$name"
}
built() { [ -x "$B/$1" ] || { echo "run.sh: $B/$1 is missing: run make build/$1 CUDA=1" >&2; exit 2; }; }
# hostile NAME FLAG...: a part of test_cuda, into OUT/NAME.tsv. Without a GPU it writes nothing.
hostile() {
    built tests/test_cuda
    rm -f "$OUT/$1.tsv.part"  # of a call that was stopped
    "$B/tests/test_cuda" --algorithms "$algorithms" --tsv "$OUT/$1.tsv.part" "${@:2}" | tee "$OUT/$1.txt.part"
    [ -e "$OUT/$1.tsv.part" ] || { echo "run.sh: nothing was measured for $1.tsv" >&2; exit 2; }
    mv "$OUT/$1.tsv.part" "$OUT/$1.tsv"
    mv "$OUT/$1.txt.part" "$OUT/$1.txt"
    stamp "$1"
}
# law NAME FLAG...: predicted and counted flips, into OUT/NAME.tsv
law() {
    local gpu=()
    [ "$BACKEND" = cuda ] && gpu=(--algorithm-file "$algorithms")
    LLM42_LIBRARY=$(realpath -m "$B")/libllm42_python.so "${PYTHON:-python3}" sweep/science/margins.py \
        --backend "$BACKEND" "${gpu[@]}" --out "$OUT/$1.tsv" "${@:2}"
    stamp "$1"
}
# deterministic NAME FLAG...: build/determinism, into OUT/NAME.tsv. That its control never differs is no failure here.
deterministic() {
    local status=0
    "$B/determinism" "${gpu[@]}" "${@:2}" --tsv "$OUT/$1.tsv" | tee "$OUT/$1.txt.part" || status=${PIPESTATUS[0]}
    [ "$status" = 0 ] || [ "$status" = 3 ] || exit "$status"
    mv "$OUT/$1.txt.part" "$OUT/$1.txt"
    stamp "$1"
}
# pieces NAME FLAG...: a grid that may take several calls. Finished cells are kept in a folder of this revision.
pieces() {
    mkdir -p "$OUT/$1-$today.cells"
    measure "$@" --cells "$OUT/$1-$today.cells"
    [ "$(revision_of "$1")" != unfinished ] || echo "run.sh: cells of $1 are left: the same command goes on"
}
# owed NAME SECONDS: OUT/NAME.tsv is not of today's revision, and there is time to make it, which takes so long.
owed() {
    [ "$(revision_of "$1")" != "$today" ] || return 1
    ((SECONDS + $2 > 60 * ${MINUTES:-9})) || return 0
    echo "run.sh: no time is left for $1: the same command goes on"
    return 1
}
# The files of the parts that claims rest on, in the order in which they are measured again.
parts=(determinism-8b determinism-base42 determinism-mixture scoring passes graphs launches mixture prompts attention
    kernels presets group online drafts fig6 tbik sglang sglang-prefix sglang-cost ratio-8b ratio-base42 grid-online
    winner eight energy flips determinism-eight hybrids determinism-hybrid)
files_of() {
    case $1 in
    determinism-8b) echo determinism_8b ;;
    determinism-base42) echo determinism_base42 ;;
    determinism-mixture) echo determinism_mixture ;;
    scoring) echo scoring ;;
    passes) echo passes stages ;;
    graphs) echo {passes,served}_{graphs,no_graphs} ;;
    launches) echo launches ;;
    mixture) echo passes_mixture stages_mixture ;;
    prompts | attention | kernels | presets | group) echo "$1" ;;
    online) echo one_of_eleven_presets online_presets ;;
    drafts) echo drafts drafts_ways drafts_256 drafts_base42_t{0,0.8} drafts_bits_{8b,base42} ;;
    fig6) echo fig6_8b_{nondeterministic,dvr} ;;
    tbik) echo tbik_8b ;;
    sglang) echo sglang_8b ;;
    sglang-prefix) echo sglang_prefix ;;
    sglang-cost) echo sglang_cost ;;
    ratio-8b | ratio-base42) echo "${1/-/_}" ;;
    grid-online) echo grid_online ;;
    winner) echo winner_none winner_presets ;;
    eight) echo passes_eight passes_sixteen passes_eight_mixture passes_sixteen_mixture presets_eight ;;
    energy) echo energy_eight ;;
    flips) echo flips_tiny42 flips_tiny42_fp8 flips_llama_3_1_8b flips_llama_3_1_8b_fp8 ;;
    hybrids) echo passes_hybrid passes_hybrid_mixture passes_hybrid_eight passes_hybrid_mixture_eight drafts_hybrid presets_hybrid ;;
    determinism-hybrid) echo determinism_tiny_hybrid determinism_hybrid42 determinism_qwen3_5_text determinism_qwen3_5_9b ;;
    determinism-eight) echo determinism_eight_tiny42 determinism_eight_tiny_moe determinism_eight_8b ;;
    esac
}
today=$(sed -n 's/^enum { LLM42__KERNELS = \([0-9]*\) };.*/\1/p' kernels.cu)
# revision_of FILE: of the kernels that it was measured with, or `unfinished`; nothing if there is no such file. What
# PyTorch alone measures does not depend on them: it counts as today's.
revision_of() {
    [ -r "$OUT/$1.tsv" ] || return 0
    # The date is written when all went well. A file without it, or without a whole row at its end, counts for nothing.
    if [[ $(head -n 1 "$OUT/$1.tsv") != '# date: '* || $(tail -c 1 "$OUT/$1.tsv") ||
        $(grep -vc '^#' "$OUT/$1.tsv") -lt 2 ]] || grep -q '^# unfinished' "$OUT/$1.tsv"; then echo unfinished; return; fi
    if grep -q '^# PyTorch' "$OUT/$1.tsv" && ! grep -q '^# cuda kernels' "$OUT/$1.tsv"; then echo "$today"; return; fi
    sed -n 's/^# cuda kernels: //p' "$OUT/$1.tsv" | head -n 1
}
stale() {  # stale PART: a file of it is not of today's revision
    local file
    for file in $(files_of "$1"); do [ "$(revision_of "$file")" = "$today" ] || return 0; done
    return 1
}
need_base42() { [ -n "$BASE42" ] || { echo "run.sh: set BASE42 to the folder of the model base42" >&2; exit 2; }; }

case ${1:-} in
stale)
    printf 'part\tfile\trevision (today %s)\tmeasured\n' "$today"
    old=0
    for part in "${parts[@]}"; do
        for file in $(files_of "$part"); do
            revision=$(revision_of "$file")
            [ "$revision" = "$today" ] || old=$((old + 1))
            printf '%s\t%s.tsv\t%s\t%s\n' "$part" "$file" "${revision:-none}" \
                "$(sed -n 's/^# date: //p' "$OUT/$file.tsv" 2>/dev/null | head -n 1)"
        done
    done
    echo "$old of these files are not of revision $today: run.sh all measures their parts again, on an H200"
    ;;
all)
    left=0 failed=
    for part in ${PARTS:-}; do
        [ -n "$(files_of "$part")" ] || { echo "run.sh: PARTS: no part $part: there are ${parts[*]}" >&2; exit 2; }
    done
    for part in ${PARTS:-${parts[@]}}; do
        stale "$part" || continue
        if ((SECONDS >= 60 * ${MINUTES:-9})); then left=$((left + 1)); continue; fi
        MINUTES=$((${MINUTES:-9} - SECONDS / 60)) bash "$0" "$part" || failed+=" $part"
    done
    [ "$left" = 0 ] || echo "run.sh all: $left parts are left: the same command goes on"
    [ -z "$failed" ] || { echo "run.sh all: failed:$failed" >&2; exit 1; }
    ;;
determinism-8b)
    hostile determinism_8b --part determinism --model "$MODEL_8B" --loads 4 --requests "${REQUESTS:-1000}"
    ;;
determinism-base42)
    need_base42
    hostile determinism_base42 --part determinism --model "$BASE42" --loads 8 --requests "${REQUESTS:-20000}"
    ;;
determinism-mixture)
    hostile determinism_mixture --part determinism --model "synthetic:qwen3-30b-a3b,margin=$MARGIN" --loads 2 \
        --requests "${REQUESTS:-96}"
    ;;
drafts)
    need_base42
    worth() {  # worth NAME MODEL FLAG...
        "$B/drafts" "${gpu[@]}" --model "$2" --out "$OUT/$1.tsv" "${@:3}"
        stamp "$1"
    }
    real=lookup,model:examples/draft42
    worth drafts "$MODEL_8B" --draft 0,0.3,0.7,0.9 --batch 1,4,16,64 --way best --prompt-tokens 32
    worth drafts_ways "$MODEL_8B" --draft 0.7 --batch 1,4,16,64 --way ordinary,dvr --prompt-tokens 32
    worth drafts_256 "$MODEL_8B" --draft 0,0.7 --batch 256 --way best --prompt-tokens 32 --rounds 2
    for t in 0 0.8; do
        worth drafts_base42_t$t "$BASE42" --draft $real --batch 1,8 --way ordinary,best --temperature $t --rounds 16 \
            --prompt-tokens 64 --tokens 256
    done
    worth drafts_bits_8b "$MODEL_8B" --draft lookup,0.7 --batch 5,48 --way ordinary,dvr,best --temperature 0.8 \
        --prompt-tokens 16 --tokens 32 --repeats 1 --kv-share 0.6 "${offered[@]}"
    worth drafts_bits_base42 "$BASE42" --draft $real,0.7 --batch 3,256 --way ordinary,dvr,best --temperature 0.8 \
        --prompt-tokens 16 --tokens 48 --repeats 1 --rounds 4 --kv-share 0.6
    ;;
fig6)
    for preset in nondeterministic dvr; do
        owed fig6_8b_$preset 200 || continue
        deterministic fig6_8b_$preset --model "$MODEL_8B" --suite spans --preset $preset --requests "${REQUESTS:-350}" \
            --tokens "${TOKENS:-512}" --qps "${QPS:-6}" --alone "${ALONE:-40}" --kv-tokens 131072 "${offered[@]}"
    done
    ;;
tbik)
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    "$B/ranks" "${gpu[@]}" --model "$MODEL_8B" --devices 1 --temperature 0.6 --requests "${REQUESTS:-32}" \
        --tokens "${TOKENS:-96}" --tensor-parallel 1,2 --batch "${BATCHES:-8,32}" --out "$work/one.tsv" ||
        [ $? = 3 ]  # then no output differs without leaves either
    mv "$work/one.tsv" "$OUT/tbik_8b.tsv"
    stamp tbik_8b
    ;;
sglang) hostile sglang_8b --part sglang --model "$MODEL_8B" ;;
sglang-prefix)
    deterministic sglang_prefix --model "$MODEL_8B" --suite prefix --prefix-tokens "${PREFIXES:-1,511,2048,4097}" \
        --requests "${REQUESTS:-50}" --tokens 64 --kv-tokens "${KV_TOKENS:-262144}" "${offered[@]}"
    ;;
sglang-cost)
    # At share 0 both presets serve ordinary requests alone, as mode NONDETERMINISTIC does: twice, for the spread.
    pieces "sglang_cost${LENGTHS:+_$LENGTHS}" --model "$MODEL_8B" --workload "fixed:${LENGTHS:-1024x1024}" \
        --requests "${REQUESTS:-256}" --max-running 256 --kv-tokens "${KV_TOKENS:-786432}" --token-budget 2048 \
        --qps offline --preset "${PRESETS:-best,invariant,dvr}" --ratio 0,1 --seed "${SEEDS:-42}"
    ;;
scoring)
    REQUESTS=${REQUESTS:-16} BACKEND=$BACKEND B=$B OUT=$OUT BASE42=$BASE42 ALGORITHMS=$algorithms \
        bash sweep/experiments/scoring.sh
    stamp scoring
    ;;
winner) bash sweep/h200/winner.sh ;;
passes)
    bench passes --suite passes --seconds 300
    bench stages --suite stages --seconds 120
    ;;
graphs)
    for name in graphs no_graphs; do
        flags=()
        [ $name = graphs ] || flags=(--no-graphs)
        bench passes_$name --suite passes --quick "${flags[@]}"
        bench served_$name --suite workloads --preset invariant --workload fixed:1024x1024 --requests 16 \
            --max-running 16 "${flags[@]}"
    done
    ;;
mixture)
    MODEL_8B=synthetic:qwen3-30b-a3b,margin=$MARGIN
    bench passes_mixture --suite passes --seconds 300
    bench stages_mixture --suite stages --seconds 120
    ;;
prompts) bench prompts --suite prompts --seconds 180 ;;
eight)
    bench passes_sixteen --suite passes --seconds 60
    MODEL_8B=synthetic:llama-3.1-8b-fp8,margin=$MARGIN
    bench passes_eight --suite passes --seconds 60
    "${PYTHON:-python3}" sweep/h200/pytorch.py --eight --out "$OUT/pytorch_eight.tsv"
    stamp pytorch_eight
    measure presets_eight --model "$MODEL_8B" --requests "${REQUESTS:-1024}" --workload sharegpt --max-running 256 \
        --kv-tokens 262144 --token-budget 2048 --qps offline --preset best --ratio 0,1
    MODEL_8B=synthetic:qwen3-30b-a3b,margin=$MARGIN
    bench passes_sixteen_mixture --suite passes --quick
    MODEL_8B=synthetic:qwen3-30b-a3b-fp8,margin=$MARGIN
    bench passes_eight_mixture --suite passes --quick
    ;;
energy)
    command -v nvidia-smi >/dev/null || { echo "run.sh: energy needs nvidia-smi and a GPU" >&2; exit 2; }
    work=$(mktemp -d) meter=
    trap 'kill $meter 2>/dev/null || true; rm -rf "$work"' EXIT
    # Power is read while a workload runs, and counts for as long as requests are served, which is until the end.
    {
        echo "# power_w: mean of nvidia-smi's readings (power.draw.instant), 0.1 s apart, while requests are served"
        printf 'model\ttokens_per_s\tduration_s\tpower_w\treadings\n'
    } >"$work/energy"
    for bits in '' -fp8; do
        model=synthetic:llama-3.1-8b$bits,margin=$MARGIN
        nvidia-smi -i "${CUDA_VISIBLE_DEVICES:-0}" --query-gpu=power.draw.instant --format=csv,noheader,nounits \
            -lms 100 >"$work/power" &
        meter=$!
        measure energy_run --model "$model" --requests "${REQUESTS:-384}" --workload sharegpt --max-running 256 \
            --kv-tokens 262144 --token-budget 2048 --qps offline --preset best --ratio 1
        kill "$meter"
        wait "$meter" || true
        meter=
        grep '^# cuda \(device\|kernels\)' "$OUT/energy_run.tsv" >"$work/manifest"
        sed '/^#/d' "$OUT/energy_run.tsv" | awk -F '\t' -v OFS='\t' -v model="$model" -v power="$work/power" '
            NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
            { while ((getline watts <power) > 0) all[n++] = watts
              first = n - int(10 * $at["duration_s"])
              for (i = first < 0 ? 0 : first; i < n; i++) { sum += all[i]; count++ }
              print model, $at["total_tok_per_s"], $at["duration_s"], sum / count, count }' >>"$work/energy"
    done
    sed "1r $work/manifest" "$work/energy" >"$OUT/energy_eight.tsv"
    rm "$OUT/energy_run.tsv"
    stamp energy_eight
    ;;
flips)
    for model in examples/tiny42 examples/tiny42-fp8 "$MODEL_8B" "synthetic:llama-3.1-8b-fp8,margin=$MARGIN" ${BASE42:+"$BASE42"}; do
        name=flips_$(sed 's/.*[:/]//; s/,.*//; s/[^a-z0-9]/_/g' <<<"$model") prompts=own
        [[ $model == synthetic:* ]] && prompts=random
        "$B/bench" --backend cuda --model "$model" --algorithm-file "$algorithms" --margins "$OUT/$name.tsv" \
            --max-context 2048 --prompts $prompts --flip-requests "${FLIP_REQUESTS:-128}"
        stamp "$name"
    done
    ;;
determinism-eight)
    for model in examples/tiny42-fp8 synthetic:tiny-moe-fp8 "synthetic:llama-3.1-8b-fp8,margin=$MARGIN" ${BASE42:+"$BASE42"}; do
        name=determinism_eight_$(sed 's/.*[:/]//; s/,.*//; s/-fp8//; s/[^a-z0-9]/_/g' <<<"$model")
        [ -z "${FOLDER:-}" ] || mkdir -p "$FOLDER/$name"
        hostile "$name" --part determinism --model "$model" --loads 8 --requests "${REQUESTS:-2000}" \
            ${FOLDER:+--record "$FOLDER/$name" --record-every 100}
    done
    ;;
hybrids)
    MODEL_8B=synthetic:qwen3.5-9b,margin=$MARGIN
    bench passes_hybrid --suite passes --seconds 35 --max-running 64 --kv-gb 16
    MODEL_8B=synthetic:qwen3.5-35b-a3b,margin=$MARGIN
    bench passes_hybrid_mixture --suite passes --quick --max-running 64 --kv-gb 8
    MODEL_8B=synthetic:qwen3.5-9b-fp8,margin=$MARGIN
    bench passes_hybrid_eight --suite passes --quick --seconds 30 --max-running 64 --kv-gb 8
    MODEL_8B=synthetic:qwen3.5-35b-a3b-fp8,margin=$MARGIN
    bench passes_hybrid_mixture_eight --suite passes --quick --seconds 15 --max-running 64 --kv-gb 8
    MODEL_8B=synthetic:qwen3.5-9b,margin=$MARGIN
    "$B/drafts" --backend cuda --model "$MODEL_8B" --algorithm-file "$algorithms" --draft 0.7 --batch 1,4,16 \
        --way ordinary,best --repeats 1 --rounds 2 --out "$OUT/drafts_hybrid.tsv"
    stamp drafts_hybrid
    measure presets_hybrid --model "$MODEL_8B" --requests "${REQUESTS:-96}" --workload sharegpt --max-running 64 \
        --kv-tokens 131072 --token-budget 2048 --qps offline --preset best,dvr,invariant --ratio 0,1
    ;;
determinism-hybrid)  # no time counts here, so all run at once
    for model in synthetic:tiny-hybrid examples/hybrid42 tests/arch/qwen3_5_text; do
        name=${model##*[:/]}
        [ -z "${FOLDER:-}" ] || mkdir -p "$FOLDER/$name"
        hostile "determinism_${name/-/_}" --part determinism --model "$model" --loads 12 \
            --requests "${REQUESTS:-3000}" ${FOLDER:+--record "$FOLDER/$name" --record-every 100} &
    done
    [ -z "${FOLDER:-}" ] || mkdir -p "$FOLDER/9b"
    hostile determinism_qwen3_5_9b --part determinism --model "synthetic:qwen3.5-9b,margin=$MARGIN" --loads 4 \
        --requests "${REQUESTS_9B:-128}" --longest-prompt 200 --longest-output 64 --kv-gib 4 \
        ${FOLDER:+--record "$FOLDER/9b" --record-every 10} &
    failed=0
    for job in $(jobs -p); do wait "$job" || failed=1; done
    [ $failed = 0 ] || exit 1
    ;;
attention)
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    for run in 1 2; do  # twice, for the spread
        "$B/kernels" --part attention --model "$MODEL_8B" --out "$work/llm42_$run"
        "${PYTHON:-python3}" sweep/h200/pytorch.py --attention --out "$work/pytorch_$run"
    done
    {
        grep -h '^# \(llm42\|cuda\|model\|PyTorch\|cudnn\|flash\)' "$work"/{llm42,pytorch}_* | awk '!seen[$0]++'
        echo "# attention of one layer and one causal prompt of so many rows; us: median of launches; kernel: llm42's,"
        echo "#   or cuDNN's or FlashAttention's in PyTorch; tflop_per_s: 2 x rows^2 x head size x heads, the causal half;"
        echo "#   heads: expanded, where keys and values were copied for each head of queries"
        printf 'run\tkernel\trows\theads\tus\ttflop_per_s\n'
        for run in 1 2; do
            awk -F '\t' -v OFS='\t' -v run=$run '
                $1 == "attention" { print run, "llm42", $4, "grouped", $8, $9 }
                $1 == "cudnn" || $1 == "flash" { print run, $0 }' "$work"/{llm42,pytorch}_$run
        done
    } >"$work/attention"
    cp "$work/attention" "$OUT/attention.tsv"
    stamp attention
    sed '/^#/d' "$OUT/attention.tsv"
    ;;
presets | group)
    load=(--model "$MODEL_8B" --requests "${REQUESTS:-1024}" --workload sharegpt --max-running 256 --kv-tokens 262144
        --token-budget 2048 --qps offline)
    if [ "$1" = presets ]; then measure presets "${load[@]}" --preset best,invariant --ratio 0,0.1,0.5,1
    else measure group "${load[@]}" --preset dvr --group "${GROUP:-128}" --ratio 0,0.1,0.5,1; fi
    ;;
online)
    bench one_of_eleven_presets --suite one-of-eleven --seconds 100
    bench online_presets --suite online --seconds 200
    ;;
calibrate)
    # Lengths, prompts and policies are those of the grids below.
    model=${MODEL_8B#synthetic:}
    name=h200-${model%%,*}
    [ "$RANKS" = 1 ] || name=h200x$RANKS-${model%%,*}
    [ "${LEAVES:-1}" = 1 ] || name+="-leaves$LEAVES"
    "$B/bench" --backend cuda --model "$MODEL_8B" --algorithm-file "$algorithms" --calibrate "$OUT/$name.tsv" \
        --tensor-parallel "$RANKS" --leaves "${LEAVES:-1}" --prompts random --flip-requests "${REQUESTS:-160}" \
        --seconds 200
    ;;
calibrate-base42)
    need_base42
    "$B/bench" --backend cuda --model "$BASE42" --calibrate "$OUT/h200-base42.tsv" --max-context 2048 \
        --flip-requests "${REQUESTS:-1024}" --seconds 300
    # The simulator needs the shape only, which `base` has too: the model itself is not in the repository.
    sed -i 's|^# model: .*|# model: base|' "$OUT/h200-base42.tsv"
    ;;
flip-law)
    need_base42
    law flip_law --model examples/tiny42 --model "$BASE42" --texts "${TEXTS:-720,120}"
    ;;
flip-law-8b)
    law "flip_law_8b_t${TEMPERATURE:=0}" --model "$MODEL_8B" --texts "${TEXTS:-24}" --temperature "$TEMPERATURE"
    ;;
grid-base42)
    need_base42
    measure grid_base42 --model "$BASE42" --prompts own --requests "${REQUESTS:-1024}" "${common_base42[@]}" \
        "${windows[@]}"
    ;;
ratio-base42)
    need_base42
    measure ratio_base42 --model "$BASE42" --prompts own --requests "${REQUESTS:-1024}" "${common_base42[@]}" \
        "${ratios[@]}"
    ;;
grid-8b)
    SECONDS_MAX=300 measure grid_8b --model "$MODEL_8B" --requests "${REQUESTS:-256}" "${common_8b[@]}" "${windows[@]}"
    ;;
ratio-8b) measure ratio_8b --model "$MODEL_8B" --requests "${REQUESTS:-1024}" "${common_8b[@]}" "${ratios[@]}" ;;
grid-online)
    SECONDS_MAX=$((60 * ${MINUTES:-9} - 45)) pieces grid_online --model "$MODEL_8B" --requests "${REQUESTS:-256}" \
        "${common_8b[@]}" --mode dvr,nondeterministic --window 16,32,64 --group 1,4,16 \
        --ratio "${SHARES:-0.1,1}" --qps "${QPS:-12}"
    ;;
kernels)
    "$B/kernels" --model "$MODEL_8B" --algorithm-file "$algorithms" --out "$OUT/kernels.tsv" | tee "$OUT/kernels.txt.part"
    mv "$OUT/kernels.txt.part" "$OUT/kernels.txt"
    stamp kernels
    ;;
leaves)
    "$B/kernels" --part leaves --model "$MODEL_8B" --most-rows 2048 --algorithm-file "$algorithms" \
        --out "$OUT/kernels_leaves.tsv"
    stamp kernels_leaves
    ;;
pytorch)
    "${PYTHON:-python3}" sweep/h200/pytorch.py --out "$OUT/pytorch.tsv"
    stamp pytorch
    ;;
launches)
    "${PYTHON:-python3}" sweep/h200/pytorch.py --launches --out "$OUT/launches.tsv"
    stamp launches
    ;;
predict)
    measure predict --model "$MODEL_8B" --requests "${REQUESTS:-256}" "${common_8b[@]}" "${predicted[@]}"
    bash sweep/h200/predict.sh
    ;;
*)
    sed -n '2,/^source/s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
