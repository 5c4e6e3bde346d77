#!/bin/bash
# What an audit finds of a provider who cheats: the share q of windows that are wrong, by cheat, model, temperature and
# what the provider reveals. Each cheat writes a transcript, which then claims the honest model, prompts and seeds;
# build/audit computes it again with the honest model. Needs make build/generate build/audit, and numpy.
#
#     bash sweep/science/audit.sh            all of it: about half an hour in one thread, four minutes of it for tiny42
#     KEEP=1 bash sweep/science/audit.sh     only the figure, from the TSV that is there
#     NOPLOT=1, B=FOLDER, OUT=FOLDER         no figure; where programs are, where results go
#     MODELS, CHEATS, TEMPERATURES, TOKENS, REQUESTS_tiny42, REQUESTS_base42     less, or more, of it
#
# OUT gets audit_economics.tsv, audit_speed.tsv (time of serving and of an audit), audit.png and audit.svg.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/../.."
B=${B:-build} OUT=${OUT:-sweep/results/science} KEEP=${KEEP:-}
result=$OUT/audit_economics.tsv speed=$OUT/audit_speed.tsv
TOKENS=${TOKENS:-128} REQUESTS_tiny42=${REQUESTS_tiny42:-256} REQUESTS_base42=${REQUESTS_base42:-64}
bits=$(printf ' bit:%s' {first_q,middle_down,last_gate,embedding}:{sign,exponent,mantissa})
CHEATS=${CHEATS:-"honest honest_other_load int8 int4 unverified seed half_context smaller_model$bits"}
mkdir -p "$OUT"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=sweep/figures/draw.inc
source sweep/figures/draw.inc

fail() {
    echo "audit.sh: $*" >&2
    exit 1
}
python=
for p in ${PYTHON:+"$PYTHON"} python3 /usr/bin/python3; do
    "$p" -c 'import numpy' 2>/dev/null && python=$p && break
done
[ -n "$python" ] || fail "no numpy: install python3-numpy (Debian), or set PYTHON to a Python that has it"
helper() { "$python" sweep/science/audit.py "$@"; }

folder_of() { [ "$1" = base42 ] && echo ../shared/models/base42 || echo "examples/$1"; }
here() {  # here MODEL: is it there?
    [ -r "$(folder_of "$1")/config.json" ] && return
    echo "$1: skipped: no folder $(folder_of "$1")" >&2
    return 1
}

# serve FOLDER REQUESTS TO OPTION...: answers the requests and records that.
serve() {
    "$B/generate" --model "$1" --batch "$2" --out "$work/answers" --record "$3" -n "$TOKENS" --ignore-eos \
        --threads 1 --temperature "$temperature" "${@:4}" >/dev/null 2>"$work/said" || fail "$(tail -n 1 "$work/said")"
    rm -f "$work/answers"
}

# cheat NAME MODEL: the transcript of this cheat, $work/cheated.txt. False: it has none with this model.
cheat() {
    # Preset invariant gives the bits of the default preset (both controls check that) in less time.
    local folder layers tensor bit other=$work/other
    local requests=$work/requests.jsonl options=(--deterministic --preset invariant)
    folder=$(folder_of "$2")
    layers=$(sed -n 's/.*"num_hidden_layers": \([0-9]*\).*/\1/p' "$folder/config.json")
    rm -rf "$other"
    case $1 in
    honest) options=(--deterministic) ;;
    honest_other_load) options+=(--max-running 5) ;;
    int8 | int4) helper quantize "${1#int}" "$folder" "$other" && folder=$other ;;
    unverified) options=() ;;
    seed)
        [ "$temperature" != 0 ] || return 1
        helper requests "$work/prompts" 500000 >"$work/changed.jsonl" && requests=$work/changed.jsonl
        ;;
    half_context) helper cut <"$requests" >"$work/changed.jsonl" && requests=$work/changed.jsonl ;;
    smaller_model)
        [ "$2" = base42 ] || return 1  # draft42 has another vocabulary than tiny42
        folder=examples/draft42
        ;;
    bit:*)
        case $1 in
        *:first_q:*) tensor=model.layers.0.self_attn.q_proj.weight ;;
        *:middle_down:*) tensor=model.layers.$((layers / 2)).mlp.down_proj.weight ;;
        *:last_gate:*) tensor=model.layers.$((layers - 1)).mlp.gate_proj.weight ;;
        *:embedding:*) tensor=model.embed_tokens.weight ;;
        *) fail "CHEATS: $1: no such place" ;;
        esac
        case $1 in
        *:sign) bit=15 ;;
        *:exponent) bit=7 ;;  # its last bit: the weight is doubled or halved
        *:mantissa) bit=0 ;;  # its last bit
        *) fail "CHEATS: $1: no such bit" ;;
        esac
        helper flip "$tensor" $bit "$folder" "$other" && folder=$other
        ;;
    *) fail "CHEATS: $1: no such cheat" ;;
    esac
    serve "$folder" "$requests" "$work/recorded.txt" "${options[@]}"
    helper claim "$work/recorded.txt" "$work/honest.txt" "$work/cheated.txt"
}

audit() {  # audit FILE MODEL OPTION...: status 1 only says that something differs
    local status=0
    "$B/audit" "$1" --model "$(folder_of "$2")" --window 16 --threads 1 "${@:3}" >"$work/said" 2>&1 || status=$?
    [ $status -le 1 ] || fail "$(tail -n 1 "$work/said")"
}

# seconds COMMAND...: seconds of a processor, since wall time also has what others do.
seconds() {
    local TIMEFORMAT='%U %S'
    { time "$@" >/dev/null; } 2>&1 | awk '{ print $1 + $2 }'
}

# measure MODEL: microseconds of an answer, served and audited, each the median of three runs less the time of one
# request of one token, which is nearly all for loading and hashing the model.
measure() {
    local folder i one=$work/one.txt
    folder=$(folder_of "$1")
    echo '{"ids": [0], "max_tokens": 1}' >"$work/one.jsonl"
    for i in 1 2 3; do
        serve "$folder" "$work/one.jsonl" "$one" --deterministic
        echo serving "$(seconds serve "$folder" "$work/requests.jsonl" "$work/time.txt" --deterministic)" \
            "$(seconds serve "$folder" "$work/one.jsonl" "$work/time.txt" --deterministic)"
        echo unverified "$(seconds serve "$folder" "$work/requests.jsonl" "$work/time.txt")" \
            "$(seconds serve "$folder" "$work/one.jsonl" "$work/time.txt")"
        echo audit "$(seconds audit "$work/honest.txt" "$1")" "$(seconds audit "$one" "$1")"
    done | awk -v OFS='\t' -v n="$(wc -l <"$work/requests.jsonl")" -v model="$1" -v tokens="$TOKENS" '
        { v[$1, ++runs[$1]] = ($2 - $3) / n * 1e6 }
        function median(w) {
            return v[w, 1] + v[w, 2] + v[w, 3] - least(w, 1) - least(w, -1)
        }
        function least(w, sign,    i, m) {
            for (i = 1; i <= 3; i++) if (i == 1 || sign * v[w, i] < sign * m) m = v[w, i]
            return m
        }
        function put(w,    us) {
            us = median(w)
            print model, w, tokens, sprintf("%.0f", us), sprintf("%.0f", tokens * 1e6 / us)
        }
        END { put("serving"); put("unverified"); put("audit") }'
}

if [ -z "$KEEP" ]; then
    for program in generate audit; do [ -x "$B/$program" ] || fail "$B/$program is missing: run make $B/$program"; done
    made="# made by sweep/science/audit.sh on a CPU, one thread: $(sed -n 's/^model name.*: //p;T;q' /proc/cpuinfo)"
    {
        echo "$made"
        echo "# prompts of 65 tokens, answers of $TOKENS; q: share of wrong windows; q_low, q_high: 95%, by requests"
        columns="cheat model temperature revealed window windows wrong q q_low q_high requests wrong_requests"
        tr ' ' '\t' <<<"$columns"
    } >"$work/result"
    {
        echo "$made"
        echo "# seconds of the processor; tokens: of an answer; a prompt has 65; serving: deterministic, by preset dvr;"
        echo "# unverified: ordinary serving; audit: of all windows"
        printf 'model\twhat\ttokens\tus_per_answer\ttokens_per_s\n'
    } >"$work/speed"
    for model in ${MODELS:-tiny42 base42}; do
        here "$model" || continue
        count=REQUESTS_$model
        # The model writes the prompts, so that they are text of its kind.
        "$B/generate" --model "$(folder_of "$model")" --ids 0 --samples "${!count}" -n 64 --temperature 1 --seed 7 \
            --ignore-eos --ids-out --threads 1 >"$work/prompts"
        helper requests "$work/prompts" 1000 >"$work/requests.jsonl"
        for temperature in ${TEMPERATURES:-0 0.8}; do
            serve "$(folder_of "$model")" "$work/requests.jsonl" "$work/honest.txt" --deterministic
            for name in $CHEATS; do
                cheat "$name" "$model" || continue
                audit "$work/cheated.txt" "$model" --verdicts "$work/verdicts"
                helper tally "$work/verdicts" "$name" "$model" "$temperature" >>"$work/result"
            done
        done
        measure "$model" >>"$work/speed"
    done
    mv "$work/result" "$result" && mv "$work/speed" "$speed"
fi
[ -z "${NOPLOT:-}" ] || exit 0
command -v gnuplot >/dev/null || fail "no gnuplot: $result is written, no figure is drawn"
model=$(awk -F '\t' '$1 == "base42" || $1 == "tiny42" { m = $1 } END { print m }' "$speed")
helper curves "$result" "$speed" "$model" >"$work/points"
# Windows that find every cheat with 99%.
read -r most worst < <(rows "$result" cheat model temperature revealed window q q_low | awk -F '\t' -v model="$model" '
    function windows(q, k) { k = q < 1 ? log(0.01) / log(1 - q) : 1; return int(k) + (k > int(k)) }
    $1 !~ /^honest/ && $2 == model && $3 == 0.8 && $4 ~ /log-prob/ && $5 == 16 && (!q || $6 < q) { q = $6; low = $7 }
    END { print windows(q), windows(low) }')
share=$(awk -F '\t' -v windows="$most" 'NR == 2 { printf "%.1f", windows * $4 / $3 }' "$work/points")
{
    gp_set points "$work/points"
    gp_texts 1340 \
        "With log-probability bits, about $most windows catch any of these cheats with 99% probability: \
$share% of what 1,000 answers cost" \
        "each curve is a cheat; what the provider reveals decides what is found; \
at the low end of the 95% interval it takes $worst windows" \
        "$model, temperature 0.8, windows of 16 tokens drawn at random from 1,000 answers of 128 tokens, \
all of which cheat" \
        "$(sed -n '1s/^# made by \S* /measured /p' "$result")"
    gp_set least "$(awk -F '\t' 'NR == 2 { print $4 / 1.5 }' "$work/points")"
    gp_set most "$(awk -F '\t' 'NR > 1 && $4 > m { m = $4 } END { print 1.1 * m }' "$work/points")"
} >"$work/settings"
draw sweep/science/audit.gp "$OUT/audit" "$work/settings"
