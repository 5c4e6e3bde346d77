#!/bin/bash
# Do finished texts have the log-probabilities with which they were generated? For each way of serving: requests served
# all at once, then scored by passes of many rows. A TSV of tokens, of log-probabilities with other bits, and of
# differences of probability.
#
#     bash sweep/experiments/scoring.sh                               on the CPU: sweep/results/scoring.tsv
#     BASE42=FOLDER bash sweep/experiments/scoring.sh                 the model base42, too
#     BACKEND=cuda BASE42=FOLDER bash sweep/experiments/scoring.sh    on the GPU (make cuda), random weights of the 8B
#                                                                     shape, too: sweep/results/h200/scoring.tsv
#     B=FOLDER OUT=FOLDER                                   where programs are, where the result goes
#     REQUESTS=N TOKENS=N TEMPERATURE=T SEED=S THREADS=N    requests at once (at most 256), new tokens of each, sampling
#     MODELS="FOLDER ..." ALGORITHMS=FILE                   other models; a file of matrix algorithms, on the GPU
#
# It ends with an error if log-probabilities that are promised to be equal are not. Then it writes nothing.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/../.."
B=${B:-build} BACKEND=${BACKEND:-cpu} REQUESTS=${REQUESTS:-32} TOKENS=${TOKENS:-128} TEMPERATURE=${TEMPERATURE:-1}
SEED=${SEED:-3} THREADS=${THREADS:-0}
models="examples/tiny42 ${BASE42:-}" folder=sweep/results
[ "$BACKEND" = cpu ] || models+=" synthetic:llama-3.1-8b,margin=6.2" folder=sweep/results/h200
OUT=${OUT:-$folder} MODELS=${MODELS:-$models}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ -x "$B/determinism" ] || { echo "scoring.sh: $B/determinism is missing: run make" >&2; exit 1; }

settings=(--suite score --backend "$BACKEND" --requests "$REQUESTS" --tokens "$TOKENS" --temperature "$TEMPERATURE"
    --seed "$SEED" --threads "$THREADS")
# Without --offered, fast passes may have the INVARIANT order, and nothing differs.
[ "$BACKEND" = cpu ] || settings+=(--offered ${ALGORITHMS:+--algorithm-file "$ALGORITHMS"})
for model in $MODELS; do
    name=${model%%,*} name=${name#synthetic:}
    "$B/determinism" "${settings[@]}" --model "$model" --tsv "$work/one.tsv" >&2 ||
        [ $? = 3 ]  # ordinary requests happen not to differ: the table shows it
    grep '^#' "$work/one.tsv" | sed "s|, model $model,|, model ${name##*/},|" >>"$work/header"
    awk -F '\t' -v OFS='\t' -v backend="$BACKEND" -v model="${name##*/}" '
        $1 != "score" { next }
        $4 == "tokens" { line = backend OFS model OFS $2 }
        { line = line OFS $5 }
        $4 == "largest_probability_difference" { print line }' "$work/one.tsv" >>"$work/rows"
done
{
    echo "# build/determinism ${settings[*]} --model MODEL" | sed 's/ --algorithm-file [^ ]*//'
    sed -n 's/^model name.*: /# processor: /p' /proc/cpuinfo | sort -u
    awk '!seen[$0]++' "$work/header"  # a GPU says the same of itself for each model
    printf 'backend\tmodel\tway\ttokens\tother_bits\tmean_probability_difference\tlargest_probability_difference\n'
    cat "$work/rows"
} >"$work/scoring.tsv"
mkdir -p "$OUT"
cp "$work/scoring.tsv" "$OUT/scoring.tsv"
