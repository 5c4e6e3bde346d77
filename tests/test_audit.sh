#!/bin/bash
# build/audit with transcripts that H200s wrote under load: tests/transcripts, a folder for each model. The CPU computes
# every token and every bit again, and finds what was changed. (test_tools.sh tests audit's options and errors.)
export LC_ALL=C.UTF-8
source tests/check.sh
scratch

audit() {  # audit STATUS PATTERN FILE OPTION...: the status, and a line that says so
    local model=(--model from-file)
    case " ${*:3} " in *" --model "*) model=() ;; esac
    "$B/audit" "${model[@]}" "${@:3}" --threads 2 >"$dir/out" 2>&1 </dev/null
    local status=$?
    check "status $status instead of $1: $(tail -n 1 "$dir/out"): ${*:3}" [ $status = "$1" ]
    check "it says '$2': ${*:3}" grep -qE -e "$2" "$dir/out"
}

presets=
for file in tests/transcripts/*/*.txt; do
    requests=$(sed -n 's/^requests: //p' "$file")
    check "sm90, canonical: $file" grep -qzP '\narithmetic: sm90\n(.*\n)*result: canonical\n' "$file"
    check "from an H200: $file" grep -q '^# cuda device: NVIDIA H200' "$file"
    if [ "$(sed -n '1s/.* //p' "$file")" = 3 ]; then
        audit 0 "^verified to the bit: $requests of $requests requests?, .*: all of the file; " "$file"
    else  # of 0.2.0, whose sums had another order
        audit 2 "$requests of its $requests requests have the draws or the sums \(sm90\) of llm42 0.2.0: " "$file"
    fi
    presets+=" $(sed -n 's/^preset: //p' "$file")"
done
# All transcripts together have these presets and kinds of load.
for preset in dvr best invariant; do check "preset $preset" grep -q " $preset " <<<"$presets "; done
for what in 'few pages' 'prefix cache' 'made wrong' 'spread arrivals|ways at random'; do
    check "under load: $what" grep -qrE "^# (best|dvr) [0-9]: .*($what)" tests/transcripts
done
check "from two GPUs" grep -qr '^# cuda ranks: 2 on 2 devices' tests/transcripts
audit 0 '^verified to the bit: 3 of 3 requests, .*: all of the file; ' examples/h200.txt
check "drawn tokens" grep -q '^temperature: [^0]' examples/h200.txt
check "the most likely tokens" grep -qr '^temperature: 00000000' tests/transcripts

# Ranks, and the number of rows in a pass, change no bit.
audit 0 '^verified to the bit: ' tests/transcripts/tiny42_ranks/best_1.txt --skip-ordinary --tensor-parallel 2
audit 0 '^verified to the bit: ' tests/transcripts/qwen3_moe/best_1.txt --skip-ordinary --tensor-parallel 2 --rows 3

# Text that nobody gets is neither a verified answer nor one that differs.
if [ -c /dev/full ]; then
    "$B/audit" examples/h200.txt --model from-file --threads 2 >/dev/full 2>"$dir/out"
    status=$?
    check "status 2 at a full disk, not $status" [ $status = 2 ]
    check "a full disk" grep -q '^audit: stdout: cannot write' "$dir/out"
fi

# The controls: each change is found and named, in answers that are drawn and in sums of leaves.
run=$dir/run.txt
"$B/generate" --model examples/tiny42 --ids 0,9,12 --ids-out -n 40 --deterministic --samples 4 --temperature 0.9 \
    --arithmetic sm90 --leaves 2 --ignore-eos --record "$run" >"$dir/out" 2>&1
audit 0 '^verified to the bit: 4 of 4 requests' "$run"
# All that the bits depend on stands in the line of the model: two files with other answers have other lines.
for key in arithmetic compute logits_fp32 router_fp32 leaves; do
    check "the audit names $key" grep -q "^  model .*, $key $(sed -n "s/^$key: //p" "$run")\(,\|$\)" "$dir/out"
done
request=$(sed -n 's/^request: //p;T;q' "$run")
first="1,/^logprobs/"
# --against: an answer that was cut passes an audit alone, if what was asked for was cut, too.
seeds=$(sed -n 's/^seed: //p' "$run")
asked() { for seed in $(head -n 3 <<<"$seeds") "$1"; do
    echo "{\"ids\": [0, 9, 12], \"max_tokens\": 40, \"temperature\": 0.9, \"seed\": $seed, \"ignore_eos\": true}"
done >"$dir/asked"; }
asked "$(tail -n 1 <<<"$seeds")"
audit 0 '; 4 of 4 requests of .*/asked answered as asked$' "$run" --against "$dir/asked"
cut() {  # cut PATTERN SED-SCRIPT: such a transcript is verified alone, and not against what was asked
    sed -E "$first { s/^(tokens: ([0-9]+,){4}[0-9]+).*/\1/; s/^(logprobs: ([0-9a-f]+,){4}[0-9a-f]+).*/\1/; $2 }" "$run" \
        >"$dir/cut.txt"
    seal "$dir/cut.txt"
    audit 0 '^verified to the bit: 4 of 4 requests' "$dir/cut.txt"
    audit 1 "/asked:1: request $request $1" "$dir/cut.txt" --against "$dir/asked"
    check "it is not what was asked: $2" grep -q '^NOT VERIFIED: 4 of 4 .*; 1 of 4 requests of .*/asked is not answered as' \
        "$dir/out"
}
cut 'has max_new_tokens 5, and 40 were asked for$' 's/^max_new_tokens: .*/max_new_tokens: 5/'
cut 'was cancelled after 5 of 40 tokens$' 's/^finish: .*/finish: cancelled/'
fifth=$(sed -nE 's/^tokens: ([0-9]+,){4}([0-9]+).*/\2/p;T;q' "$run")
cut "ends at the stop tokens $fifth, and was asked to end at none$" "s/^finish: .*/finish: stop/; s/^stop:.*/stop: $fifth/"
asked 99
audit 1 '/asked:4: request [0-9]+ has seed [0-9]+, and 99 was asked for$' "$run" --against "$dir/asked"
asked "$(tail -n 1 <<<"$seeds")"
echo '{"prompt": "Another one", "deterministic": true}' >>"$dir/asked"
audit 1 '/asked:5: no answer to this prompt is left in the transcript$' "$run" --against "$dir/asked"
head -n 1 "$dir/asked" | sed 's/{/{"max_tokens": 3,/' >"$dir/twice"
audit 2 '/twice:1: max_tokens: the key is there twice$' "$run" --against "$dir/twice"
# A stop string ends an answer: the transcript says `cancelled`, and its text says why.
printf '%s\n' '{"prompt": "It was a", "max_tokens": 60, "stop": " the"}' '{"prompt": "The king"}' >"$dir/asked"
"$B/generate" --model examples/tiny42 --batch "$dir/asked" --out "$dir/answers" --deterministic --record "$dir/stops.txt" \
    >"$dir/out" 2>&1
check "one is cancelled" test "$(grep -c '^finish: cancelled' "$dir/stops.txt")" = 1
audit 0 '; 2 of 2 requests of .*/asked answered as asked$' "$dir/stops.txt" --against "$dir/asked"
sed -i 's/" the"/"XYZ"/' "$dir/asked"
audit 1 '/asked:1: .* was cancelled after .*, and none of the stop strings is in its text$' "$dir/stops.txt" \
    --against "$dir/asked"
sed -n 2p "$dir/asked" >"$dir/mine"
audit 0 '; 1 of 1 request of .*/mine answered as asked; 1 answer to none of them$' "$dir/stops.txt" --against "$dir/mine"
changed() {  # changed PATTERN SED-SCRIPT OPTION...: such a transcript is not verified
    sed -E "$2" "$run" >"$dir/changed.txt"
    check "something is changed by $2" eval "! cmp -s '$run' '$dir/changed.txt'"
    seal "$dir/changed.txt"
    audit 1 "$1" "$dir/changed.txt" "${@:3}"
    check "it is not verified: $2" grep -qE \
        '^NOT VERIFIED: [0-9]+ of [0-9]+ requests are equal to the bit, [0-9]+ differs?; compared: [0-9]+ of ' "$dir/out"
}
changed '^  first token: 2 of [0-9]+: recorded 7 ' "$first s/^(tokens: [0-9]+,)[0-9]+/\\17/"
digit=$(sed -nE 's/^logprobs: .{25}(.).*/\1/p;T;q' "$run")
changed '^  first log-probability: 3 of [0-9]+, ' "$first s/^(logprobs: .{25})./\\1$(printf %x $((0x$digit ^ 1)))/"
changed "^request $request: differs: [1-9][0-9]* of [0-9]+ tokens" "$first s/^temperature: .*/temperature: 3f800000/"
changed "^request $request: differs: [1-9][0-9]* of [0-9]+ tokens" "$first s/^seed: .*/seed: 49/"
# --verdicts: the counts of windows add up to those of the answers, and only drawn windows have a line.
counts() { sed -nE 's/^request ([0-9]+): differs: ([0-9]+) of ([0-9]+) tokens?, ([0-9]+) .*/\1 \3 \2 \4/p' "$dir/out"; }
sums() { awk 'NR > 1 { n[$1] += $3; t[$1] += $4; l[$1] += $5; if (!had[$1]++) id[++ids] = $1 }
    END { for (i = 1; i <= ids; i++) { k = id[i]; if (t[k] + l[k]) print k, n[k], t[k], l[k] } }' "$dir/verdicts"; }
changed "^request $request: differs: " "$first s/^seed: .*/seed: 49/" --verdicts "$dir/verdicts" --window 8
check "verdicts: windows add up to $(counts)" test -n "$(counts)" -a "$(counts)" = "$(sums)"
check "verdicts: of all windows" grep -q "compared: $(($(wc -l <"$dir/verdicts") - 1)) of .* windows of 8 tokens: all" "$dir/out"
sums_before=$(sums)
audit 0 '^verified to the bit: ' "$run" --verdicts "$dir/verdicts" --window 8
check "verdicts: none of a file that is right" test -n "$sums_before" -a -z "$(sums)"
audit 0 ' 3 of [0-9]+ windows of 8 tokens' "$run" --verdicts "$dir/verdicts" --window 8 --windows 3
check "verdicts: three of three windows" test "$(wc -l <"$dir/verdicts")" = 4
changed '^request [0-9]+: differs: ' "$first s/^leaves: .*/leaves: 1/"
changed "^request $request: differs: " 's/^arithmetic: sm90/arithmetic: fp32/'
# The last bit of one weight in the middle of the file is flipped. Then the model has another hash, and audit
# refuses it. With that hash in the transcript, the bits of the answers differ.
cp -r examples/tiny42 "$dir/other" && chmod -R u+w "$dir/other"
weights=$dir/other/model.safetensors
at=$(($(stat -c %s "$weights") / 4 * 2))
byte=$(od -An -tu1 -j $at -N 1 "$weights")
printf "\\x$(printf %02x $((byte ^ 1)))" | dd of="$weights" bs=1 conv=notrunc status=none seek=$at
audit 2 'another model, or changed since$' "$run" --model "$dir/other"
other=$(sed -E 's/.* has ([0-9a-f]{64}): .*/\1/' "$dir/out")
changed '^request [0-9]+: differs: ' "s/^model_hash: .*/model_hash: $other/" --model "$dir/other"

# A copy of the model in which most of a matrix is changed, and which has the same weak hash.
check "forge is built" "$CC" -std=c11 -O1 -Wall -Wextra -Werror -I. -isystem "$STB" tests/forge.c "$B/llm42.o" $OMP -lm \
    -o "$dir/forge"
cp -r examples/tiny42 "$dir/forged" && chmod -R u+w "$dir/forged"
check "5,811 pairs are changed" "$dir/forge" examples/tiny42/model.safetensors "$dir/forged/model.safetensors"
"$B/generate" --model "$dir/forged" --ids 0,9,12 --ids-out -n 40 --deterministic --samples 3 --record "$dir/new.txt" \
    >"$dir/out" 2>&1
sha256() { sed -n 's/^  model .*, SHA-256 \([0-9a-f]*\), .*/\1/p' "$dir/out"; }
audit 0 '^verified to the bit: 3 of 3 requests' "$dir/new.txt"
check "the model is named" grep -qF "  model $dir/forged, SHA-256 " "$dir/out"
check "the file chose it" grep -q '^  from-file: the maker of the file chose the model' "$dir/out"
check "its hash is the file's" test "$(sha256)" = "$(sed -n 's/^model_hash: //p' "$dir/new.txt")"
forged=$(sha256)
audit 2 ': another model, or changed since$' "$dir/new.txt" --model examples/tiny42
# The same answers in a file of format 1, which the true model's hash fits: only the comparison of bits refuses them.
weak=$(sed -n "s/^model_hash: //p" tests/transcripts/tiny42_ranks/format_1.txt)
sed -E "1s/3$/1/; /^(file_)?digest: /d; s/^model_hash: .*/model_hash: $weak/" "$dir/new.txt" >"$dir/old.txt"
audit 1 '^NOT VERIFIED: 0 of 3 requests' "$dir/old.txt" --model examples/tiny42
true=$(sha256)
audit 0 '^  format 1: the file has no digest and a weak hash of the model' "$dir/old.txt"
check "SHA-256 tells the two apart" test -n "$true" -a "$true" != "$forged" -a "$(sha256)" = "$forged"
finish
