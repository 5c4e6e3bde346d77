#!/bin/bash
# Measures two NVIDIA H200: one part a call. Needs `make cuda`, and test_cuda for the part campaign.
#
#     bash sweep/h200x2/run.sh owed          what was measured longest ago: exchange, memcheck, outputs, campaign, lengths;
#                                            it begins no part after MINUTES=9
#     bash sweep/h200x2/run.sh exchange      how two GPUs add their parts of a sum, beside NCCL; needs
#                                            `make kernels NCCL=1`
#     bash sweep/h200x2/run.sh memcheck      accesses outside allocations by two ranks (tests/sanitize_cuda.sh)
#     bash sweep/h200x2/run.sh passes        pass times by one rank and by two, without leaves and with eight
#     bash sweep/h200x2/run.sh workloads     ShareGPT lengths, all at once, by one rank and by two: what leaves cost
#     bash sweep/h200x2/run.sh lengths       the same by two ranks, for prompts and outputs of fixed lengths
#     bash sweep/h200x2/run.sh beside        the passes of a run on one GPU beside the same passes, simulated
#     BASE42=FOLDER bash sweep/h200x2/run.sh outputs     different outputs of a prompt by ranks and requests at once
#     BASE42=FOLDER bash sweep/h200x2/run.sh campaign    requests under random loads, by 2 and 4 ranks and by one
#     BASE42=FOLDER bash sweep/h200x2/run.sh sample      20,000 requests on one GPU, and transcripts of one in 100
#     bash sweep/h200x2/run.sh transcripts   transcripts of small models, as in tests/transcripts
#     bash sweep/h200x2/run.sh long          transcripts of long texts: 8B, and a text as long as the context of a model
#     bash sweep/h200x2/run.sh large         the shape of Llama-3.1-70B: pass times, and requests under three loads
#     bash sweep/h200x2/run.sh hybrid        models with recurrent layers: pass times by one rank and by two, and hostile
#                                            loads by two
#
# Four ranks and eight share the two GPUs. Environment: sweep/h200/common.sh.
OUT=${OUT:-sweep/results/h200x2}
source "$(dirname "$0")/../h200/common.sh"
need_base42() { [ -n "$BASE42" ] || { echo "run.sh: set BASE42 to the folder of the model base42" >&2; exit 2; }; }
passes() {  # passes NAME MODEL FLAG...
    local name=$1 model=$2
    shift 2
    "$B/bench" --backend "$BACKEND" --model "$model" --suite passes --algorithm-file "$algorithms" \
        --out "$OUT/$name.tsv" "$@"
}

case ${1:-} in
owed)
    for part in exchange memcheck outputs campaign lengths; do
        ((SECONDS < 60 * ${MINUTES:-9})) || { echo "run.sh owed: $part and what follows it are left"; break; }
        bash "$0" "$part" && said=done || said=failed
        echo "run.sh owed: $part: $said after $SECONDS s"
    done
    ;;
exchange)
    "$B/kernels" --part exchange --model "$MODEL_8B" --out "$OUT/exchange.tsv"
    stamp exchange
    ;;
memcheck)
    TOOLS=memcheck bash tests/sanitize_cuda.sh "$B/tests/test_cuda" --part exchange --quick |
        tee "$OUT/memcheck.txt.part"
    mv "$OUT/memcheck.txt.part" "$OUT/memcheck.txt"
    ;;
passes)
    passes passes_1 "$MODEL_8B" --tensor-parallel 1 --seconds 60
    passes passes_2 "$MODEL_8B" --tensor-parallel 2 --seconds 60
    passes passes_1_leaves "$MODEL_8B" --tensor-parallel 1 --leaves 8 --seconds 60
    passes passes_2_leaves "$MODEL_8B" --tensor-parallel 2 --leaves 8 --seconds 60
    ;;
workloads)
    served() {  # served NAME MODES RANKS
        measure "$1" --model "$MODEL_8B" --requests "${REQUESTS:-1024}" --workload sharegpt --max-running 256 \
            --qps offline --preset best --mode "$2" --leaves 8 --tensor-parallel "$3"
    }
    served workloads_1 nondeterministic,batch_invariant 1
    served workloads_1_dvr hybrid,dvr 1
    served workloads_2 nondeterministic,batch_invariant 2
    ;;
lengths)
    for lengths in 256x128 256x512 1024x128 1024x512 4096x128 4096x512; do
        measure "lengths_$lengths" --model "$MODEL_8B" --requests "${REQUESTS:-64}" --workload "fixed:$lengths" \
            --max-running 64 --max-context 8192 --qps offline --preset best --tensor-parallel 2 --leaves 8 \
            --mode nondeterministic,batch_invariant
    done
    ;;
beside)
    # The same requests give the same passes, so that both traces have them in the same order.
    served=(--requests "${REQUESTS:-1024}" --workload sharegpt --max-running 256 --qps offline --preset best
        --mode nondeterministic)
    rm -f "$OUT/beside.measured" "$OUT/beside.simulated"
    measure beside --model "$MODEL_8B" "${served[@]}" --trace "$OUT/beside.measured"
    model=$([ "$BACKEND" = cuda ] && echo h200-llama-3.1-8b || echo cpu-tiny42)
    CALIBRATION=${CALIBRATION:-$(calibration_beside "$model" "$OUT/beside.tsv")}
    "$B/sweep" --backend sim --calibration "$CALIBRATION" "${served[@]}" --quiet --trace "$OUT/beside.simulated" \
        --out "$OUT/beside_simulated.tsv" >/dev/null
    {
        grep -E '^# (llm42|measured|cuda|prompts) ?' "$OUT/beside.tsv"
        echo "# simulated with $CALIBRATION"
        bash sweep/h200x2/beside.sh "$OUT/beside.measured" "$OUT/beside.simulated"
    } >"$OUT/simulated_passes.tsv.part"
    mv "$OUT/simulated_passes.tsv.part" "$OUT/simulated_passes.tsv"
    rm "$OUT/beside.measured" "$OUT/beside.simulated"
    ;;
outputs)
    need_base42
    for model in "$BASE42" "$MODEL_8B"; do
        name=$([ "$model" = "$BASE42" ] && echo base42 || echo 8b)
        "$B/ranks" --backend "$BACKEND" --model "$model" --devices 2 --requests "${REQUESTS:-32}" \
            --algorithm-file "$algorithms" --out "$OUT/ranks_$name.tsv"
        stamp "ranks_$name"
    done
    ;;
campaign)
    need_base42
    for ranks in 2 4 1; do
        "$B/tests/test_cuda" --backend "$BACKEND" --part determinism --model "$BASE42" \
            --requests "${REQUESTS:-2000}" --longest-prompt "${LONGEST:-1024}" --longest-output "${LONGEST:-512}" \
            --loads 4 --all-presets --leaves 8 --tensor-parallel "$ranks" --devices $((ranks > 1 ? 2 : 0)) \
            --algorithms "$algorithms" --tsv "$OUT/determinism_$ranks.tsv"
        stamp "determinism_$ranks"
    done
    ;;
sample)
    need_base42
    mkdir -p "$OUT/transcripts/base42"
    "$B/tests/test_cuda" --backend "$BACKEND" --part determinism --model "$BASE42" --requests "${REQUESTS:-20000}" \
        --longest-prompt 512 --longest-output 256 --loads 8 --from 2 --leaves 8 --algorithms "$algorithms" \
        --record "$OUT/transcripts/base42" --record-every 100 --tsv "$OUT/determinism_20000.tsv"
    ;;
transcripts)
    record() {  # record NAME MODEL FLAG...
        mkdir -p "$OUT/transcripts/$1"
        "$B/tests/test_cuda" --backend "$BACKEND" --part determinism --model "$2" --requests 256 --loads 2 \
            --all-presets --longest-prompt 96 --longest-output 48 --leaves 2 --no-check \
            --record "$OUT/transcripts/$1" --record-every 16 "${@:3}"
    }
    for name in tiny42 llama llama3 mistral qwen2 qwen3 qwen3_moe; do
        record $name "$([ $name = tiny42 ] && echo examples || echo tests/arch)/$name" || failed+=" $name"
    done
    record tiny42_ranks examples/tiny42 --tensor-parallel 2 --devices 2
    [ -z "${failed:-}" ] || echo "failed:$failed (where ordinary requests happen not to differ, a control fails)" >&2
    ;;
long)
    mkdir -p "$OUT/transcripts"
    arithmetic=()
    [ "$BACKEND" = cuda ] || arithmetic=(--arithmetic sm90)
    answers() {  # answers NAME MODEL PROMPT OUTPUT SAMPLES FLAG...: prompts of so many tokens, drawn by a formula
        local ids
        ids=$(awk -v n="$3" 'BEGIN { for (; i < n; i++) printf "%s%d", i ? "," : "", (i * i * 7 + 31 * i + 3) % 500 }')
        "$B/generate" --backend "$BACKEND" --model "$2" --ids "$ids" -n "$4" --samples "$5" --temperature 0.8 --seed 5 \
            --ids-out --ignore-eos --deterministic --preset best "${arithmetic[@]}" "${@:6}" \
            --record "$OUT/transcripts/$1.txt" >/dev/null
        echo "$1: $5 answers of $3 + $4 tokens in $OUT/transcripts/$1.txt"
    }
    answers 8b "$MODEL_8B" 256 64 4 --leaves 8
    answers 8b_ranks "$MODEL_8B" 256 64 4 --leaves 8 --tensor-parallel 2
    answers whole_context "${MODEL_CONTEXT:-synthetic:base}" 3696 400 2 --leaves 8
    ;;
large)
    large=${MODEL_70B:-synthetic:llama-3.1-70b}
    passes passes_70b "$large" --tensor-parallel 2 --leaves 8 --quick --kv-gb 20 --max-context 8192 --seconds 60
    "$B/tests/test_cuda" --backend "$BACKEND" --part determinism --model "$large" --requests "${REQUESTS:-48}" \
        --loads 4 --from 2 --leaves 8 --tensor-parallel 2 --reference-ranks 2 --kv-gib 20 --no-check \
        --longest-prompt 128 --longest-output 32 \
        --algorithms "$algorithms" --tsv "$OUT/determinism_70b.tsv"
    ;;
hybrid)
    model=${MODEL_9B:-synthetic:qwen3.5-9b,margin=$MARGIN}
    for ranks in 1 2; do
        passes passes_hybrid_$ranks "$model" --tensor-parallel $ranks --leaves 8 --quick --max-running 64 --kv-gb 8
    done
    loads() {  # loads NAME MODEL FLAG...
        "$B/tests/test_cuda" --backend "$BACKEND" --part determinism --model "$2" --tensor-parallel 2 --devices 2 \
            --algorithms "$algorithms" --tsv "$OUT/determinism_$1.tsv" "${@:3}"
    }
    loads tiny_hybrid synthetic:tiny-hybrid --leaves 2 --loads 4 --requests "${REQUESTS:-800}"
    loads qwen3_5_9b "$model" --leaves 8 --loads 3 --requests 96 --longest-prompt 200 --longest-output 64 --kv-gib 4
    ;;
*)
    sed -n '2,/^OUT=/s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
