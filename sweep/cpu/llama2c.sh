#!/bin/bash
# llm42 beside llama2.c on this machine's CPU: how fast each writes one greedy text, from the same weights.
#
#     bash sweep/cpu/llama2c.sh LLAMA2C MODEL...     OUT/llama2c.tsv
#
# LLAMA2C is a clone of github.com/karpathy/llama2.c, whose run.c is compiled as its `make runomp` does. MODEL is a
# llama2.c file, or a folder of Hugging Face (Llama in bf16), such as examples/tiny42. llama2c.py writes a folder as a
# llama2.c file, in fp32, for run.c, and examples/python/llama2c.py turns this file into a folder in fp32 for llm42. Both
# programs compute in fp32. Of a folder llm42 also computes in bf16, from the folder itself, which takes half of the
# memory: an ordinary request, and a deterministic one (preset best).
#
#     B=FOLDER OUT=FOLDER                where build/generate is and where the result goes; sweep/results/cpu
#     TURNS=15 TOKENS=256 THREADS="1 2"  turns of all ways, one after the other; the length of the text; threads
#
# Other programs on the machine change its speed. So the ways take turns, and the ratio to run.c is a median of ratios
# within a turn. run.c times all passes but the first, and llm42 all.
set -euo pipefail
export LC_ALL=C
B=${B:-build} OUT=${OUT:-sweep/results/cpu} CC=${CC:-gcc}
TURNS=${TURNS:-15} TOKENS=${TOKENS:-256} THREADS=${THREADS:-1 2}
fail() { echo "llama2c.sh: $*" >&2; exit 1; }
[ $# -ge 2 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
clone=$1
shift
cd "$(dirname "$0")/../.."
[ -r "$clone/run.c" ] || fail "$clone/run.c is missing: git clone https://github.com/karpathy/llama2.c"
[ -x "$B/generate" ] || fail "$B/generate is missing: run make $B/generate"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_PROC_BIND=true
flags="-Ofast -fopenmp -march=native"
# shellcheck disable=SC2086  # several flags
"$CC" $flags "$clone/run.c" -lm -o "$work/run" 2>"$work/log" || fail "$clone/run.c: $(head -n 1 "$work/log")"

# speed WAY MODEL THREADS: prints tokens/s, and leaves the ids of the text in work/ids, with blanks between them.
speed() {
    local file options=(-n "$TOKENS" --ids-out --ignore-eos --threads "$3" --stats)
    file=$work/$(basename "$2")
    if [ "$1" = run.c ]; then
        OMP_NUM_THREADS=$3 "$work/run" "$file/model.bin" -z "$file/tokenizer.bin" -t 0 -n "$TOKENS" 2>"$work/log" \
            >"$work/ids"
        sed -n 's,^achieved tok/s: ,,p' "$work/log"
        return
    fi
    case $1 in
    fp32) options+=(--model "$file" --dtype fp32 --ids 1) ;;
    bf16) options+=(--model "$2" --prompt "") ;;
    deterministic) options+=(--model "$2" --prompt "" --deterministic --preset best) ;;
    esac
    "$B/generate" "${options[@]}" 2>"$work/log" | tr , ' ' >"$work/ids"
    sed -n 's,.* new tokens in .* (\([0-9.]*\) tokens/s)$,\1,p' "$work/log"
}

for model in "$@"; do
    [ -e "$model" ] || fail "$model: no such model"
    name=$(basename "$model" .bin)
    python3 sweep/cpu/llama2c.py "$model" "$work/$(basename "$model")"
    python3 examples/python/llama2c.py "$work/$(basename "$model")/model.bin" "$work/$(basename "$model")"
    ways="run.c fp32"
    [ ! -d "$model" ] || ways+=" bf16 deterministic"
    for threads in $THREADS; do
        for ((turn = 1; turn <= TURNS; turn++)); do
            for way in $ways; do
                value=$(speed "$way" "$model" "$threads")
                [ -n "$value" ] || fail "$way of $model: no speed: $(head -n 1 "$work/log")"
                [ "$way" != run.c ] || cp "$work/ids" "$work/ids.run.c"
                same=nan
                [ "$way" != fp32 ] || same=$(paste <(xargs -n 1 <"$work/ids.run.c") <(xargs -n 1 <"$work/ids") |
                    awk '$1 != $2 { exit } { n++ } END { print n + 0 }')
                printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$name" "$threads" "$way" "$turn" "$value" "$same"
            done
        done >>"$work/turns"
        echo "$name, threads: $threads: $TURNS turns"
    done
done
{
    commit=$(git -C "$clone" rev-parse HEAD 2>/dev/null || echo "of no commit")
    echo "# $("$B/generate" --version) beside llama2.c $commit"
    echo "# cpu: $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1); $("$CC" --version | head -n 1)"
    echo "# run.c: $CC $flags; llm42: as make builds it; OMP_PROC_BIND=true"
    echo "# one greedy text of $TOKENS tokens behind BOS, in $TURNS turns; run.c does not time the first pass"
    echo "# tok_per_s: the median of the turns; ratio: the median of the ratios to run.c in the same turn"
    echo "# same_tokens: how many, from the first on, are those of run.c"
    columns="model threads program type deterministic tok_per_s slowest fastest ratio same_tokens"
    echo "${columns// /$'\t'}"
    awk -F '\t' -v OFS='\t' -v turns="$TURNS" '
        function sort(values, n, i, k, v) {
            for (i = 2; i <= n; i++)
                for (k = i; k > 1 && values[k - 1] > values[k]; k--) {
                    v = values[k]; values[k] = values[k - 1]; values[k - 1] = v
                }
        }
        function median(sorted, n) { return (sorted[int((n + 1) / 2)] + sorted[int((n + 2) / 2)]) / 2 }
        {
            key = $1 FS $2 FS $3
            if (!(key in same)) order[++keys] = key
            speed[key, $4] = $5
            same[key] = $6
        }
        END {
            for (j = 1; j <= keys; j++) {
                split(order[j], part, FS)
                for (t = 1; t <= turns; t++) {
                    v[t] = speed[order[j], t]
                    r[t] = v[t] / speed[part[1] FS part[2] FS "run.c", t]
                }
                sort(v, turns)
                sort(r, turns)
                print part[1], part[2], part[3] == "run.c" ? "llama2.c" : "llm42",
                    part[3] == "run.c" || part[3] == "fp32" ? "fp32" : "bf16",
                    part[3] == "deterministic" ? "yes" : "no", sprintf("%.1f", median(v, turns)),
                    sprintf("%.1f", v[1]), sprintf("%.1f", v[turns]), sprintf("%.3f", median(r, turns)), same[order[j]]
            }
        }' "$work/turns"
} >"$work/result"
mkdir -p "$OUT"
mv "$work/result" "$OUT/llama2c.tsv"
echo "$OUT/llama2c.tsv"
