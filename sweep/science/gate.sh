#!/bin/bash
# A margin gate: how many answers it leaves wrong, what it verifies, and what it saves (gate.py, build/sweep).
#
#     bash sweep/science/gate.sh answers      OUT/gate.tsv: tiny42 and hybrid42 on a CPU, by gate, load, policy and
#                                             logits; an hour in one thread. BASE42=FOLDER: base42, too
#     bash sweep/science/gate.sh bound        OUT/gate_bound.tsv: margins of tokens that flip, of 537,000 tokens at each
#                                             of two temperatures; half an hour
#     bash sweep/science/gate.sh h200         OUT/gate_h200.tsv: tiny42 and the 8B shape on an H200, in four minutes
#     bash sweep/science/gate.sh simulated    OUT/gate_simulated.tsv: throughput beside dvr, best and invariant
#     bash sweep/science/gate.sh figure       OUT/gate.png and .svg, from the files that are there
#     B=FOLDER OUT=FOLDER                     where programs are and where results go; sweep/results/science
#
# All but the last two need `make shared` (h200: with CUDA=1) and numpy.
set -euo pipefail
export LC_ALL=C OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
cd "$(dirname "$0")/../.."
B=${B:-build} OUT=${OUT:-sweep/results/science} PYTHON=${PYTHON:-python3}
mkdir -p "$OUT"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LLM42_LIBRARY=${LLM42_LIBRARY:-$(realpath -m "$B")/libllm42_python.so}
# gate FLAG...: a part of a file, into $work, in the order in which they are called
gate() { "$PYTHON" sweep/science/gate.py "$@" --out "$work/part$((++part))"; }
# joined NAME: the parts as OUT/NAME.tsv. Answers of one part may be shorter than those of another.
joined() {
    {
        echo "# date: $(date +%F)"
        grep -h '^#' "$work"/part* | grep -v 'pass rows' | awk '!seen[$0]++'
        awk -F '\t' -v OFS='\t' '/^#/ { next } !n { n = NF; print; next } $1 == "model" { next }
            { while (NF < n) $(NF + 1) = "nan"; print }' "$work"/part*
    } >"$OUT/$1.tsv"
}
part=0 gates=1e-9,0.1,0.3,1,2,4,1e9 few=1e-9,0.3,1,4,1e9 large=synthetic:llama-3.1-8b,margin=6.2
case ${1:-} in
answers)
    gate --model examples/tiny42 --gate $gates --running 32,4 --policy 'at once'
    gate --model examples/tiny42 --gate $gates --running 32 --policy window
    gate --model examples/tiny42 --gate 1e-9,0.1,0.3 --running 32 --policy shared
    gate --model examples/tiny42 --gate $gates --running 32 --policy 'at once' --logits fp32
    [ -z "${BASE42:-}" ] ||
        gate --model "$BASE42" --gate $few --running 16 --policy 'at once' --requests 32 --tokens 200
    gate --model examples/hybrid42 --gate $few --running 32 --policy 'at once' --temperature 0 --tokens 200
    joined gate
    ;;
bound)
    for seed in 1 2 3; do gate --bound --model examples/tiny42 --requests 430 --rows 4 --seed $seed; done
    joined gate_bound
    ;;
h200)
    of=(--backend cuda --algorithm-file "$work/algorithms" --policy 'at once' --temperature 0)
    gate "${of[@]}" --model examples/tiny42 --offered --running 32 --gate $few
    for offered in '' --offered; do
        gate "${of[@]}" --model $large --requests 32 --tokens 200 --running 16 --gate $few $offered
    done
    joined gate_h200
    ;;
simulated)
    simulate() {  # simulate NAME FLAG...
        "$B/sweep" --backend sim --requests 1024 --qps offline --ratio 1 --slowdown 0 --quiet --out "$work/run" \
            "${@:2}" >/dev/null
        grep '^# \(simulated\|source\)' "$work/run" >>"$work/head"
        awk -F '\t' -v OFS='\t' -v name="$1" '/^#/ { next } !n { for (i = n = 1; i <= NF; i++) at[$i] = i; next }
            { print $at["calibration"], name, $at["window"], $at["output_tok_per_s"], $at["e2e_p99_s"],
                    100 * $at["candidates"] / $at["returned_tokens"] }' "$work/run" \
            >>"$work/rows"
    }
    for calibration in h200-llama-3.1-8b h100-pcie-paper; do
        with=(--calibration "sweep/calibration/$calibration.tsv")
        simulate none "${with[@]}" --mode nondeterministic
        for preset in best invariant dvr; do simulate $preset "${with[@]}" --preset $preset; done
        for share in 0.15 0.3 0.5 0.7; do
            simulate "gate $share" "${with[@]}" --preset dvr --gate $share --window 2,8,16,32 --group 128
        done
    done
    {
        awk '!seen[$0]++' "$work/head"
        echo "# all requests are deterministic; gate X: this share of the tokens is below a margin gate"
        echo "# candidates_pct: tokens that are verified, below the gate or behind such a token in its window"
        printf 'calibration\tway\twindow\toutput_tok_per_s\te2e_p99_s\tcandidates_pct\n'
        cat "$work/rows"
    } >"$OUT/gate_simulated.tsv"
    ;;
figure) OUT_SCIENCE=$OUT bash sweep/figures/gate.sh ;;
*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
