#!/bin/bash
# Every tool does a small piece of its work and says what it should. `make asan` runs this with programs built under
# the sanitizers, which also find what a program does not free.
# They make everything slower, so then (TEST_SLOW=1) work is shorter, and closed descriptors are tested all at once.
export LC_ALL=C.UTF-8
source tests/check.sh
scratch
out=$dir log=$dir/check

ends() {  # ends STATUS PATTERN PROGRAM OPTION...: so it ends, and a line that it printed has the pattern
    "$B/$3" "${@:4}" >"$out/log" 2>&1 </dev/null
    local status=$?
    [ $status = "$1" ] && grep -qE -e "$2" "$out/log"
    judge "status $status, or no line with '$2': ${*:3}" "$out/log"
}

check_not() {  # check_not NAME PATTERN: no line that the last program printed has the pattern
    ! grep -m 1 -E -e "$2" "$out/log" >"$log"
    judge "$1 went on:"
}

scores() { "$B/score" "$@" 2>/dev/null; }  # without the summary

for tool in generate score diff audit rollback determinism sweep bench fit ranks; do
    ends 0 '^usage: ' $tool --help
    cp "$out/log" "$out/help"
    ends 0 "^$tool \(llm42 [0-9.]+(-dev)?\)$" $tool --version
    ends 0 '^  -h, --help ' $tool -h
    check "$tool: -h is --help" cmp "$out/log" "$out/help"
    ends 0 "^Exit status: 0: .*; 1: .*;$" $tool -h
    ends 0 "^2: the command line is wrong.*; 130: .*; 143: .*" $tool -h
    ends 2 "unknown option '--nonsense'" $tool --nonsense
    # What a program calls --model, --threads, --seed, --prompt TEXT and a text's file has the short name that people
    # type. What it reads and writes is given once.
    for long in model threads seed prompt-file file; do
        short=-${long:0:1}
        [ $long != prompt-file ] || short=-f
        ! grep -qE "^  .*--$long " "$out/help" || check "$tool: $short" grep -q "^  $short, --$long " "$out/help"
    done
    for long in $(sed -nE 's/^  (-., )?--([a-z-]+) FILE .*/\2/p; s/^  -m, --(model) .*/\1/p' "$out/help"); do
        ends 2 "^$tool: --$long is given twice: give one of 'a' and 'b'$" $tool --$long a --$long=b
    done
done
ends 0 '^  -p, --prompt TEXT ' generate -h
# Command lines that are refused, whatever was done before.
# shellcheck disable=SC2086
refused() { ends "$1" "$2" $3; }
cases tools refused
for tool in generate rollback determinism bench drafts ranks; do
    ends 0 '^  -n, --tokens N ' $tool -h
done
ends 0 '^ +13$' 01_hello
if [ $slow = 0 ]; then  # they run the engine at length, as determinism and rollback do
    ends 0 ' differ' 02_drift
    ends 0 'rollbacks' 03_verify
fi
ends 0 '^W=' 04_simulate
ends 0 '^batch_invariant ' 05_backend
ends 0 'the same under every planner$' 06_planner
ends 0 'the same bits' 07_drafts
ends 0 '^Once' generate --prompt Once -n 8
planners=$("$B/sweep" --planner nonsense 2>&1 | sed 's/.*: //; s/,//g')  # the error lists them
[ $slow = 0 ] || planners=${planners%% *}
for planner in $planners; do
    ends 0 '^[0-9]+(,[0-9]+){7}$' generate --ids 0,905 --ids-out -n 8 --deterministic --planner $planner
done
ends 0 '' generate --prompt Once -n 8 --deterministic --temperature 0.9 --seed 7 --trace "$out/trace.json"
! command -v python3 >/dev/null || check "generate --trace: valid JSON" python3 -m json.tool "$out/trace.json"
ends 0 '^3	' score --text "Once upon"
ends 0 '^[0-9]+	-?[0-9.]+$' score --ids 0,905,312 --logits
ends 0 '^marked .* identical' rollback --requests 2 --tokens 16 --delay 0 --trace "$out/trace.tsv"
few=(--tokens 24)
[ $slow = 0 ] || few=(--tokens 8 --preset dvr)
ends 0 '^every promise held' determinism --requests 2 "${few[@]}" --tsv "$out/determinism.tsv"
cp "$out/log" "$out/determinism"
# Equal outputs show nothing if those of the control are equal, too.
ends 3 '^NO VERDICT: .* never differs in prefix,$' determinism --suite prefix --requests 4 --tokens 8
ends 0 '^prefix 6, 105, 205$' determinism --suite prefix --requests 4 --tokens 16  # and 305, whose bits differ
# Beginnings of other lengths, of which only the longest has a control that differs; and arrivals over time.
ends 0 '^prefix 6, 68, 135$' determinism --suite prefix --prefix-tokens 1,63,130,257 --requests 4 --tokens 16
ends 2 '^determinism: --prefix-tokens: 1 is there twice$' determinism --suite prefix --prefix-tokens 63,1,1
ends 0 '^dvr +5 +5 ' determinism --suite spans --preset dvr --requests 8 --tokens 16 --qps 200 --alone 5
ends 3 '^NO VERDICT: .* never differs in score,$' determinism --suite score --requests 2 --tokens 8
ends 0 'decode' bench --suite decode --repeats 1 --tokens 16
# Before anything is measured or fitted, and with the reason.
for file in --out --calibrate --margins; do
    ends 1 '^bench: /dev/full: cannot write: No space left on device$' bench --suite decode --repeats 1 $file /dev/full
    check_not "bench $file" '^nondeterministic'
done
ends 1 "^bench: $out/gone/x: cannot write: No such file or directory$" bench --out "$out/gone/x"
ends 1 "^sweep: : cannot write: the name is empty$" sweep --calibration sweep/calibration/cpu-tiny42.tsv \
    --workload fixed:8x8 --requests 9 --out ""
ends 1 "^fit: $out/gone/x: cannot write: No such file or directory$" fit --out "$out/gone/x"
check_not fit batch
fit_refuses() {  # fit_refuses TEXT TABLE SED-SCRIPT: a reference table that is changed
    rm -rf "$out/reference"
    cp -r sweep/reference "$out/reference"
    sed -i "$3" "$out/reference/$2.tsv"
    # A fit takes minutes: it is ended if it begins.
    ! timeout 20 "$B/fit" --reference "$out/reference" --out "$out/fitted" >"$out/log" 2>&1 &&
        grep -qxF "fit: $out/reference/$2.tsv$1" "$out/log"
    judge "fit took a bad $2.tsv, or did not say $1" "$out/log"
}
fit_refuses ": the table has no points" fig12_recompute_pct '/^[0-9]/d'
fit_refuses ":3: column 1 is called 'window': expected group" fig12_recompute_pct 's/^group.window/window\tgroup/'
fit_refuses ":3: column 2 is called 'ms_per_token': expected pass_ms" verify_cost 's/\t[^\t]*//'
fit_refuses ":22: '1.5': must be a whole number, at most 100000" throughput_vs_batch '22s/\t[0-9]*/\t1.5/'
fit_refuses ":5: '2048': must be a whole number, at most 1023" verify_cost '5s/^[0-9]*/2048/'
fit_refuses ":4: 'Arxiv': must be ShareGPT, ArXiv or in=I out=O" table4_rollbacks '4s/.*/Arxiv\t1\t70\t1805\t2/'
# Drafts change no byte of an answer, and a text that repeats itself takes fewer passes. Control: two seeds differ.
repeats=$(sed -n '/--draft lookup --stats/{n; s/^ *--prompt "\(.*\)"$/\1/p}' examples/README.md)
drafted=("$B/generate" --deterministic --threads 1 --ignore-eos --prompt "$repeats")
passes_of() { sed -nE 's/^passes: ([0-9]+) FAST, ([0-9]+) INVARIANT, ([0-9]+) FIXED.*/\1 + \2 + \3/p' "$1"; }
same_drafted() {  # same_drafted OPTION...: whoever drafts
    local drafter
    "${drafted[@]}" --json "$@" >"$out/plain" 2>"$log" || return 1
    for drafter in lookup lookup:1 model:examples/tiny42; do
        "${drafted[@]}" --json --draft $drafter "$@" >"$out/drafted" 2>>"$log" || return 1
        cmp "$out/plain" "$out/drafted" || return 1
    done
}
tokens=120
[ $slow = 0 ] || tokens=24
for preset in dvr best invariant; do
    for temperature in 0 0.8; do
        check "drafts change no byte" same_drafted -n $tokens --preset $preset --temperature $temperature
    done
    check "nor of samples" same_drafted -n $((tokens / 3)) --preset $preset --temperature 0.8 --samples 6 --max-running 4
done
check "nor with a limit" cmp <("${drafted[@]}" -n 60 --json) <("${drafted[@]}" -n 60 --json --draft lookup --draft-limit 1)
differ() { ! cmp -s <("${drafted[@]}" -n 60 --temperature 0.8 --seed 1) <("${drafted[@]}" -n 60 --temperature 0.8); }
check "another seed does" differ
fewer() {  # fewer DRAFTER LIMIT OPTION...: than that many passes for 100 tokens, and more without drafts
    local passes
    "${drafted[@]}" -n 100 --stats --preset invariant "${@:3}" 2>"$out/stats" || return 1
    [ $(($(passes_of "$out/stats"))) -ge 100 ] && ! grep drafts "$out/stats" || { cat "$out/stats" && return 1; }
    "${drafted[@]}" -n 100 --stats --preset invariant --draft "$1" "${@:3}" 2>"$out/stats"
    cat "$out/stats"
    [ $(($(passes_of "$out/stats"))) -lt $2 ] && grep -qE '^drafts: [1-9][0-9]* judged, [1-9]' "$out/stats"
}
check "fewer passes by lookup, with the prompt of examples/README.md" fewer lookup 60
# How many fewer depends on how long passes take. But the model guesses what it would answer, so that few drafts are
# wrong: those behind a token at which its own passes differ.
itself() { fewer model:examples/tiny42 100 --temperature 0.8 && grep -qE '\((100|[89][0-9])\.[0-9]%\)' "$out/stats"; }
check "by the model itself" itself
check "which is mostly right" awk -F '[ (%]+' '/^drafts/ {n = $6 > 80} END {exit !n}' "$out/stats"
check "ordinary requests draft" bash -c '"$0" --threads 1 -n 60 --stats --draft model:examples/tiny42 2>&1 >/dev/null |
    grep -E "^drafts: [1-9][0-9]* judged, [1-9]"' "$B/generate"
check "lines as they come" cmp <("${drafted[@]}" -n 60 --stream --samples 3 --temperature 0.8 | sort) \
    <("${drafted[@]}" -n 60 --stream --samples 3 --temperature 0.8 --draft lookup | sort)
# What drafts are worth: the table, with the spread of the ratio over the repeats. No item of a list is there twice.
worth=(drafts --tokens 16 --prompt-tokens 8 --threads 1 --batch 1)
ends 0 "^every deterministic result is preset invariant's, to the bit$" "${worth[@]}" --draft model:examples/tiny42,0.5
check "the ratio is within its spread" awk '/^ +batch +way +drafts +tok.s +ratio +least +most / {named = 1}
    $1 == 1 && ++rows && ($6 > $5 || $5 > $7 || ($3 == "none" && $6 $7 != "1.0001.000")) {bad = 1; print}
    length > 120 {bad = 1; print} END {exit !named || rows != 12 || bad}' "$out/log"
ends 0 '^ +1  dvr +0.5 ' "${worth[@]}" --draft 0.5 --way dvr --repeats 1
check "one repeat has no spread" awk '$1 == 1 && ++rows && !($6 == $5 && $5 == $7) {exit 1} END {exit rows != 2}' "$out/log"
ends 2 '^drafts: --draft: 0\.50 is there twice$' "${worth[@]}" --draft 0.5,lookup,0.50
ends 2 '^drafts: --draft: lookup is there twice$' "${worth[@]}" --draft lookup,lookup
ends 2 '^drafts: --way: dvr is there twice$' "${worth[@]}" --way dvr,best,dvr
ends 2 '^drafts: --batch: 1 is there twice$' "${worth[@]}" --batch 1,2,1
ends 2 '^drafts: --draft model:synthetic:tiny: .* has a vocabulary of 512 tokens, and' "${worth[@]}" --draft model:examples/tiny42,model:synthetic:tiny
# What lies in a folder that is no model folder, and keys of config.json that nothing uses.
mkdir "$out/folder"
for what in 'model.gguf, a GGUF file' 'adapter_model.safetensors, an adapter' 'pytorch_model.bin, a pickle' \
    'consolidated.safetensors, weights in Mistral' 'model-00001-of-00002.safetensors, a part of the weights'; do
    touch "$out/folder/${what%%,*}"
    ends 1 "here: $what" score --model "$out/folder" --ids 0,1
    rm "$out/folder/${what%%,*}"
done
cp examples/tiny42/model.safetensors "$out/folder"
sed '0,/{/s//{"foo_key": 3,/' examples/tiny42/config.json >"$out/folder/config.json"
ends 0 '^score: .*config.json: not used: foo_key$' score --model "$out/folder" --ids 0,1
# Texts and files of texts. What looks like the wrong one of the two is refused, and so is a second text.
echo -n 'Once upon' >"$out/once.txt"
for name in - "$out/once.txt" "@$out/once.txt"; do
    ends 2 "^score: --text: '.*' would be taken as text: --file .* reads" score --text "$name"
    ends 2 "^generate: --prompt: '.*' would be taken as text: --prompt-file .* reads" generate --prompt "$name"
done
ends 2 '^score: --text: the text is empty$' score --text ""
# Six samples that do not fit into the KV cache together: the same answers.
six=(--ids 0,5 --ids-out -n 31 --ignore-eos --samples 6 --temperature 1 --deterministic)
"$B/generate" "${six[@]}" >"$out/six"
check "six samples" [ "$(wc -l <"$out/six")" = 6 ]
check "a small KV cache" cmp <("$B/generate" "${six[@]}" --kv-tokens 64) "$out/six"
ends 2 'exclude each other' generate --prompt A --prompt-file "$out/once.txt"
ends 2 'give one of --ids LIST' score --text A --file "$out/once.txt"
ends 1 'gone.txt: cannot open' score --file "$out/gone.txt"
scores --text 'Once upon' >"$out/text"
for how in "$out/once.txt" -; do
    diff "$out/text" <(scores --file "$how" <"$out/once.txt") >"$out/log" &&
        diff <("$B/generate" --prompt 'Once upon' -n 8) <("$B/generate" --prompt-file "$how" -n 8 <"$out/once.txt") \
            >>"$out/log"
    judge "--file, --prompt-file $how: not as the text" "$out/log"
done
ends 0 'the text begins with the begin-of-text token, so none is added$' generate --prompt '<|begin_of_text|>Once' -n 4
# The end tokens of generation_config.json count, and not those of config.json. The hash of the model stays.
cp -r examples/tiny42 "$out/ends" && chmod -R u+w "$out/ends"
ends 0 '^([0-9]+,){29}[0-9]+$' generate --model "$out/ends" --ids 0,905,312,264 --ids-out -n 30 --record "$out/ends.txt"
sixth=$(cut -d , -f 6 "$out/log")
hash=$(grep model_hash "$out/ends.txt")
echo "{\"eos_token_id\": [2047, $sixth]}" >"$out/ends/generation_config.json"
ends 0 "^([0-9]+,){1,5}$sixth\$" generate --model "$out/ends" --ids 0,905,312,264 --ids-out -n 30 --record "$out/ends.txt"
check "the same model" [ "$hash" = "$(grep model_hash "$out/ends.txt")" ]
echo '{"eos_token_id": [2047' >"$out/ends/generation_config.json"
ends 1 '^generate: .*/ends/generation_config.json: malformed JSON' generate --model "$out/ends" --ids 0,5 --ids-out
# generate --logprobs: a line for each new token. They are those of score; the texts of the lines are the text.
ask=(generate --prompt Once --ignore-eos --deterministic -n 12)
ends 0 '^sample	position	token	logprob	text$' "${ask[@]}" --logprobs
tail -n +2 "$out/log" >"$out/lines"
ids=$(scores --text Once | cut -f 2 | tail -n +2 | tr '\n' ',')$(cut -f 3 "$out/lines" | paste -s -d ,)
diff <(cut -f 2-4 "$out/lines") <(scores --ids "0,$ids" | tail -n 12) >"$out/log" &&
    diff <(echo "Once$(cut -f 5 "$out/lines" | tr -d '\n')") <("$B/${ask[0]}" "${ask[@]:1}") >>"$out/log"
judge "generate --logprobs: other log-probabilities, or another text" "$out/log"
ends 0 '^1	15	[0-9]+	-[0-9.]+	' "${ask[@]}" --samples 2 --temperature 1 --logprobs
ends 0 '^0	2	[0-9]+	-[0-9.]+$' generate --ids 0,9 --model synthetic:tiny -n 4 --logprobs
ends 0 '^0	.*	\\x[0-9A-F][0-9A-F]$' generate --prompt Once -n 40 --logprobs --temperature 1000 --seed 1
# 2,000 tokens generated under load have the log-probabilities of scoring, to the last bit (nine digits tell all floats
# apart): by presets invariant, dvr and best those of INVARIANT passes, by preset paper those of FIXED passes of its M
# rows, with the prompt run alone. As controls each is scored in another way, too.
prompt=0,905,312,264,1108,283,1767,13,298,525,15,501,313,314,1609,358,13,441,312,471,614,822,886,555,279,264,663,1443
prompt+=,769,278,441,275,512,13,378,320,298,491,349,773
by_fixed="--schedule fixed --rows 512" alone="--prompt 40"
loads=("4 300 0.8" "2 400 0") of=2000
[ $slow = 0 ] || loads=("2 24 0.8" "1 32 0") of=80
parity() {  # parity PRESET SCORE-OPTION...: how many of the tokens have other log-probabilities
    local load i samples n sampling other=0
    for load in "${loads[@]}"; do
        read -r samples n sampling <<<"$load"
        "$B/generate" --ids $prompt --ignore-eos --deterministic --ids-out --logprobs --samples $samples -n $n \
            --temperature $sampling --threads 1 --preset "$1" 2>/dev/null | tail -n +2 >"$out/lines"
        [ "$(wc -l <"$out/lines")" = $((samples * n)) ] || { echo none; return; }
        for ((i = 0; i < samples; i++)); do
            awk -F '\t' -v i=$i '$1 == i' "$out/lines" | cut -f 2-4 >"$out/sample"
            scores --ids "$prompt,$(cut -f 2 "$out/sample" | paste -s -d ,)" \
                --threads 1 "${@:2}" | tail -n $n >"$out/scored"
            other=$((other + $(diff "$out/sample" "$out/scored" | grep -c '^<')))
        done
    done
    echo $other
}
equals() {  # equals NUMBER PRESET SCORE-OPTION...: 0: all tokens agree; some: some do not
    local other=$(parity "${@:2}")
    [[ $1:$other == 0:0 || $1:$other == some:[1-9]* ]]
    judge "generated and scored: $other of $of log-probabilities differ, not $1: ${*:2}" /dev/null
}
rows=7
for preset in invariant dvr best; do
    equals 0 $preset --schedule invariant --rows $((rows += 15))
done
equals 0 paper $by_fixed $alone
if [ $slow = 0 ]; then  # in few tokens there may be none
    equals some paper $by_fixed
    equals some paper --schedule invariant
    equals some dvr $by_fixed
fi
score=(3 32)  # requests, and tokens of each
[ $slow = 0 ] || score=(1 16)
ends 0 "^nondeterministic +$((score[0] * score[1])) +[1-9]" determinism --suite score --requests ${score[0]} --tokens ${score[1]} \
    --tsv "$out/score.tsv"
[ "$(grep -cP '^score\t(dvr|best|paper, by FIXED|invariant)\t0\tother_bits\t0$' "$out/score.tsv")" = 4 ]
judge "scores have the same bits" "$out/score.tsv"
# The schedules take their sums in other orders, so the last digits differ. Under FAST they depend on the rows of a
# pass, under FIXED on M, which --rows sets, too. Threads change nothing.
for how in fast fixed invariant; do
    for rows in 1 32; do
        ends 0 '^3	' score --text "It was the best of times" --dtype fp32 --schedule $how --rows $rows --threads 1
        cp "$out/log" "$out/score-$how-$rows"
    done
done
ends 0 '^3	' score --text "It was the best of times" --dtype fp32 --threads 2
near() { ! paste "$out"/score-* | awk 'NR > 1 && ($3 - $9)^2 + ($3 - $15)^2 > 1e-6' | grep -q .; }
same() { cmp -s "$out/score-$1" "$out/score-$2"; }
! same fast-1 fast-32 && ! same fixed-1 fixed-32 && same invariant-1 invariant-32 && ! same fixed-32 invariant-1 &&
    ! same fast-32 fixed-32 && ! same fast-1 invariant-1 && cmp -s "$out/log" "$out/score-invariant-1" && near
judge "score --schedule: not three orders of the same sums" "$out/log"
# A text that is longer than the context, here 64, is scored in windows: log-probabilities are those of each one alone.
cp -r examples/tiny42 "$out/short" && chmod -R u+w "$out/short"
sed -i 's/"max_position_embeddings": *[0-9]*/"max_position_embeddings": 64/' "$out/short/config.json"
ids_of() { seq -s , $((5 + $1)) $((4 + $1 + $2)); }  # ids_of BEGIN COUNT: a part of a text
windows() { "$B/score" -m "$out/short" --ids "$(ids_of 0 "$1")" "${@:2}" 2>"$out/summary"; }
by_hand() {  # by_hand TOKENS STRIDE OPTION...
    local begin end scored=1
    echo 'position	token	logprob'
    for ((begin = 0; scored < $1; begin += $2, scored = end)); do
        end=$((begin + 64 < $1 ? begin + 64 : $1))
        scores -m "$out/short" --ids "$(ids_of $begin $((end - begin)))" "${@:3}" 2>/dev/null |
            awk -v OFS='\t' -v begin=$begin -v scored=$scored 'NR > 1 && begin + $1 >= scored { $1 += begin; print }'
    done
}
check "a text that fits, in windows" diff <(scores --ids "$(ids_of 0 64)" 2>/dev/null) <(windows 64 --stride 1)
cuts=("64 32" "65 32" "95 32" "96 32" "97 32" "192 32" "192 63" "100 1" "192 32 --schedule fast" "192 40 --rows 7")
[ $slow = 0 ] || cuts=("65 32" "70 1" "97 40 --rows 7")
for how in "${cuts[@]}"; do
    read -r tokens stride options <<<"$how"
    by_hand $tokens $stride $options >"$out/by_hand"
    check "windows: $how" diff "$out/by_hand" <(windows $tokens --stride $stride $options)
    check "windows: $how: summary" awk -F '\t' -v tokens=$tokens '
        function far(x, y) { return (x - y) ^ 2 > 1e-12 * y ^ 2 }
        NR == FNR { if (FNR > 1) { sum += $3; n++ } next }
        { value[$1] = $2; names = names $1 " " }
        END { exit n != tokens - 1 || names != "tokens mean_logprob perplexity " || value["tokens"] != n ||
            far(value["mean_logprob"], sum / n) || far(value["perplexity"], exp(-sum / n)) }' \
        "$out/by_hand" "$out/summary"
done
check "half the context is the default" diff <(windows 192) <(windows 192 --stride 32)
cp "$out/summary" "$out/stderr"
check "--summary prints that alone" diff "$out/stderr" <("$B/score" -m "$out/short" --ids "$(ids_of 0 192)" --summary)
check "another stride, other log-probabilities" [ "$(diff <(windows 192 --stride 32) <(windows 192 --stride 16) | grep -c '^>')" = 64 ]
ends 0 '^tokens	0$' score --ids 5
check "one token: nothing is scored" [ "$("$B/score" --ids 5 --summary)" = 'tokens	0' ]
for stride in 64 65 2000000000; do
    ends 2 "^score: --stride: $stride must be less than the model's context of 64" score -m "$out/short" --ids 5,6 --stride $stride
done
ends 2 '^score: --prompt: .* in windows nothing is a prompt$' score -m "$out/short" --ids "$(ids_of 0 65)" --prompt 3
ends 0 '^[0-9]+	-?[0-9.]+$' score -m "$out/short" --ids "$(ids_of 0 65)" --logits
# Bits for each byte of the text that is scored: BOS stands for none, and a prompt is not scored.
bits() {  # bits BYTES OPTION...
    check "bits_per_byte: ${*:2}" awk -F '\t' -v bytes="$1" 'NF == 3 && $1 + 0 { sum += $3 } $1 == "bits_per_byte" { its = $2 }
        END { x = -sum / log(2) / bytes; exit !its || (its - x) ^ 2 > 1e-12 * x ^ 2 }' <("$B/score" "${@:2}" 2>&1)
}
bits 25 --text "It was the best of times."
bits 9 --text "Ah, là!"$'\n'
bits 23 --text "It was the best of times." --prompt 2
for i in 1 2 3 4 5 6 7 8 9; do echo "It was the best of times, it was the worst of times."; done >"$out/long.txt"
bits 477 --file "$out/long.txt" -m "$out/short"
for tool in generate score audit rollback determinism sweep bench; do
    ends 2 "--threads: 99999 is outside" $tool --threads 99999
done
ends 0 '^marked .* identical' rollback --requests 2 --tokens 16 --delay 0 --threads 2
# A small stack suffices. (Sanitizers need a larger one.)
if [ -z "${TEST_SLOW:-}" ]; then
    for tool in generate score audit rollback determinism sweep bench diff fit ranks; do
        check "$tool on a stack of 128 KiB" bash -c 'ulimit -s 128; exec "$0" --help' "$B/$tool"
    done
fi
# Four ranks with four leaves give the bits of one rank. Two ranks with one leaf each give others.
for how in "1 4" "4 4" "2 1"; do
    read -r ranks leaves <<<"$how"
    ends 0 '^0	' generate --prompt "It was the best of times" -n 60 --deterministic --preset best --logprobs --ids-out \
        --tensor-parallel "$ranks" --leaves "$leaves"
    cp "$out/log" "$out/ranks-$ranks-$leaves"
done
cmp -s "$out/ranks-1-4" "$out/ranks-4-4" && ! cmp -s "$out/ranks-2-1" "$out/ranks-4-4"
judge "generate --tensor-parallel --leaves: not the bits that are promised" "$out/log"
ends 0 '^every promise held$' ranks --requests 2 --tokens 8 --prompt-tokens 8 --batch 1,2 --out "$out/ranks.tsv"
# Bits are the same from every instruction set, so files of results do not name it.
check "no instruction set in results" bash -c '! grep -lE "avx|scalar" "$@"' - "$out/determinism.tsv" "$out/ranks.tsv"
for bits in 'unique_bits\t1' 'scored_other_bits\t0'; do
    [ "$(grep -cP "^(invariant|dvr|best), leaves\t4\t$bits\$" "$out/ranks.tsv")" = 3 ]
    judge "three presets have $bits" "$out/ranks.tsv"
done
# Nine shares of 1/9 add up to more than 1: prompts are counted in whole numbers.
ends 0 '^every promise held$' ranks --requests 9 --tokens 4 --prompt-tokens 8 --batch 4 --tensor-parallel 1,2
ends 0 ' 4 prompts, 2 new tokens, ranks 1,2,4, batches 2,' ranks --requests 4 --tokens 2 --prompt-tokens 8 --batch 2
ends 3 '^NO VERDICT: without leaves' ranks --requests 1 --tokens 2 --prompt-tokens 8 --batch 1 --tensor-parallel 1
ends 2 '--leaves: 8: must divide the model.s 4 heads' ranks --leaves 8
check_not 'a run with leaves that cannot be' '^nondeterministic'
# A result file is replaced when the new one is whole: a run that fails leaves the old one, and nothing beside it.
mkdir "$out/kept" && echo kept >"$out/kept/file.tsv"
ends 2 'no room for prompts' determinism --tsv "$out/kept/file.tsv" --tokens 100000
ends 1 'gone/x: cannot write' determinism --tsv "$out/gone/x"
ends 1 'kept: cannot write' determinism --tsv "$out/kept"
[ "$(cat "$out/kept/file.tsv")" = kept ] && [ "$(ls "$out/kept")" = file.tsv ]
judge "determinism --tsv: a run that failed has changed" "$out/kept/file.tsv"
ends 0 '^every promise held$' determinism --suite single --requests 2 --tokens 8 --tsv "$out/kept/file.tsv"
check "the new file" grep '^single	dvr	' "$out/kept/file.tsv"
# Of each preset, and the unique outputs of those that must have one result.
[ $slow != 0 ] || ends 0 '^together +[0-9]+ +[0-9]+ +1 +1 ' determinism --suite mixed --requests 2 --tokens 8
ends 0 '^every promise held, but no control' determinism --suite mixed --preset best --requests 2 --tokens 8 --tsv "$out/kept/file.tsv"
check_not determinism '^(dvr|paper|nondeterministic|together) '
check "the new file" grep '^mixed	best	' "$out/kept/file.tsv"
for preset in dvr best paper invariant; do
    ends 0 '^Once' generate --prompt Once -n 8 --deterministic --preset $preset
    ends 0 '^marked .* identical' rollback --requests 2 --tokens 8 --preset $preset
done
[ "$(grep -c '^preset ' "$out/determinism")" = 5 ] && [ "$(wc -L <"$out/determinism")" -le 80 ]
judge "determinism: its tables do not fit 80 columns" "$out/determinism"
# Numbers that a float holds as another setting, a decimal comma, a number that is out of range.
for option in temperature top-p min-p; do
    ends 2 "^generate: --$option: 1e-50 .* 0" generate --$option 1e-50
    ends 2 "^generate: --$option: 1e-400 .* 0" generate --$option 1e-400
    ends 2 "^generate: --$option: '0,5' is not a number" generate --$option 0,5
    ends 2 "^generate: --$option: 'nan' is not a number" generate --$option nan
done
ends 0 '^Once' generate --prompt Once -n 2 --temperature 0.7 --top-p 0.9999 --min-p 1e-30

# No calibration is written without --force where the program gets less than 90% of its processors, as by many threads.
half=(bench --model synthetic:tiny --calibrate "$out/half.tsv" --quick --repeats 1 --threads $((2 * $(nproc)))
      --flip-requests 2 --input-tokens 2 --output-tokens 2)
ends 1 "^bench: --calibrate: this program got [0-9]+% of the processor's time: end other programs" "${half[@]}"
ends 1 'half.tsv: cannot open' sweep --calibration "$out/half.tsv"
ends 0 "^wrote $out/half.tsv" "${half[@]}" --force
ends 0 "^# source: .*; doubtful, written with --force: this program got [0-9]+% of the processor's time" \
    sweep --calibration "$out/half.tsv" --requests 1 --workload fixed:2x2
# The prompts of few requests are in the first pass, which is not timed. Then the host's work for prompts is 0.
tokens_few="16 32"
[ $slow = 0 ] || tokens_few=24
for tokens in $tokens_few; do
    ends 0 "^wrote $out/few.tsv" bench --model synthetic:tiny --calibrate "$out/few.tsv" --quick --repeats 1 \
        --threads 1 --flip-requests 2 --output-tokens $tokens --force
    check "$tokens tokens" grep -qx '# host_prompt_ms: 0' "$out/few.tsv"
done
# Flips end with --seconds, too: then a run counts only the requests that it begins with. The file says so.
compared() {
    awk '/^# flips:/ { seen = 1 } seen && /^#   [0-9]/ { for (i = 5; i <= NF; i += 3) n += $i } END { print n + 0 }' "$1"
}
soon=(bench --model synthetic:tiny --quick --repeats 1 --threads 1 --flip-requests 24 --input-tokens 2 --output-tokens 8
      --force)
if [ $slow = 0 ]; then
    ends 0 "^wrote $out/all.tsv" "${soon[@]}" --calibrate "$out/all.tsv"
    ends 0 "^wrote $out/soon.tsv" "${soon[@]}" --calibrate "$out/soon.tsv" --seconds 0.01
    some=$(compared "$out/soon.tsv") all=$(compared "$out/all.tsv")
    [ $((3 * some)) -lt $((2 * all)) ] && [ "$some" -gt 0 ] &&
        grep -q '^# flips: 24 requests or as many as the time allowed' "$out/soon.tsv"
    judge "flips by --seconds: $some of $all candidates" "$out/soon.tsv"
fi
# Ranks share the one CPU. (On GPUs the calibration is of as many devices as ranks are on.) The file names the leaves,
# at least as many as ranks, and the arithmetic. It has all tables of pass times, the one that may be missing too.
ends 0 "^wrote $out/ranks.tsv" bench --model synthetic:tiny --tensor-parallel 2 --leaves 1 --calibrate "$out/ranks.tsv" \
    --quick --repeats 1 --threads 1 --flip-requests 2 --input-tokens 2 --output-tokens 2 --force --arithmetic sm90
keys='# devices: 1|# leaves: 2|# measured with: .*, arithmetic sm90, .*'
tables='# table: (fast (decode|prompt)|fixed (window|prompt)|invariant (decode|prompt|window)) [0-9]+'
[ "$(grep -cxE "$keys|$tables" "$out/ranks.tsv")" = 10 ]
judge "ranks on the CPU" "$out/ranks.tsv"
ends 2 '^bench: --calibrate, --margins: give one of them' bench --calibrate "$out/one.tsv" --margins "$out/two.tsv"
ends 2 "^bench: --prompts: 'some' is not one of" bench --margins "$out/one.tsv" --prompts some
# Weights of NaN: every program says that requests ended early.
cp -r examples/tiny42 "$out/nan" && chmod -R u+w "$out/nan"
printf '\300\177' | dd of="$out/nan/model.safetensors" bs=1 conv=notrunc status=none \
    seek=$(($(stat -c %s "$out/nan/model.safetensors") - 2))
why='ended early: the logits are not finite'
ends 1 "^generate: 1 request $why" generate --model "$out/nan" --prompt Once -n 4
ends 1 "^generate: 1 request $why" generate --model "$out/nan" --ids 0,9 --ids-out --deterministic --record "$out/nan.txt"
ends 0 '^verified to the bit: 1 of 1 request, 1 of 1 window of' audit "$out/nan.txt" --model from-file --threads 1
ends 1 "^score: .*/nan: position 0: the logits are not finite" score --model "$out/nan" --text Once
ends 1 "^determinism: [0-9]+ requests $why" determinism --model "$out/nan" --suite single --requests 2 --tokens 8
ends 1 "^sweep: 4 requests $why" sweep --backend cpu --model "$out/nan" --requests 4 --workload fixed:8x8 \
    --window 8 --group 2 --ratio 1
ends 0 '^Once' generate --no-mmap --prompt Once -n 2

# Transcripts. Answers under load are computed again, alone and by passes of another number of rows: every bit is there.
run=$out/run.txt
record_ids=$prompt
record() { ends 0 '^[0-9]' generate --ids $record_ids --ids-out --deterministic --threads 1 --record "$run" "$@"; }
audit() {  # audit STATUS PATTERN FILE OPTION...: by the file's own model, unless an option says which
    local model=(--model from-file)
    case " ${*:3} " in *" --model "*) model=() ;; esac
    ends "$1" "$2" audit "${model[@]}" "${@:3}" --threads 1
}
for preset in dvr best invariant; do
    record --preset $preset --samples 2 -n 24
    audit 0 '^verified to the bit: 2 of 2 requests, 4 of 4 windows of 16 tokens: all of the file; 48 ' "$run" --rows 7
    record --preset $preset --samples 4 -n 24 --ignore-eos --temperature 0.9 --top-k 300 --top-p 0.95
    audit 0 '^verified to the bit: 4 of 4 requests, 8 of 8 windows of 16 tokens: all of the file; 96 ' "$run"
done
for drafter in lookup model:examples/tiny42; do
    record --preset best --samples 2 -n 60 --ignore-eos --temperature 0.8 --draft $drafter
    audit 0 '^verified to the bit: 2 of 2 requests, 8 of 8 windows of 16 tokens: all of the file; 120 ' "$run"
done
record --tensor-parallel 2 --dtype fp32 --samples 2 -n 20
audit 0 '^verified to the bit: 2 of 2 ' "$run" --tensor-parallel 2
audit 2 '--tensor-parallel: 4 ranks: the transcript has 2 leaves' "$run" --tensor-parallel 4
record --arithmetic sm90 --samples 2 -n 20
audit 0 '^verified to the bit: 2 of 2 ' "$run"
sed 's/^arithmetic: sm90/arithmetic: fp32/' "$run" >"$out/changed.txt"
seal "$out/changed.txt"
audit 1 '^NOT VERIFIED: 0 of 2 requests are equal to the bit, ' "$out/changed.txt"
record --arithmetic sm86 --samples 4 -n 60 --ignore-eos
grep -qx 'arithmetic: sm80' "$run"
judge "sm86 must be recorded as sm80"
audit 0 '^verified to the bit: 4 of 4 ' "$run"
sed 's/^arithmetic: sm80/arithmetic: sm90/' "$run" >"$out/changed.txt"
seal "$out/changed.txt"
audit 1 '^NOT VERIFIED: [0-3] of 4 requests' "$out/changed.txt"
record_ids=0,9 record --model synthetic:tiny,seed=3 -n 20
audit 0 '^verified to the bit: 1 of 1 ' "$run"
audit 2 'synthetic:tiny has [0-9a-f]{64}: another model, or changed since$' "$run" --model synthetic:tiny
record --preset paper -n 8
audit 2 'preset paper: its result depends on M \(verifier fixed\): only canonical ones' "$run"
# With ordinary requests beside them, of which nothing is promised.
ends 0 '^marked .* identical' rollback --requests 2 --tokens 16 --delay 0 --threads 1 --record "$run"
audit 1 '^request 2: cannot be audited: it was not marked deterministic$' "$run"
audit 0 '^verified to the bit: 1 of 2 requests, .*: all that are marked deterministic; 16 tokens .*; 1 not marked deterministic$' "$run" --skip-ordinary
says() { check "a line with '$1'" grep -E -e "$1" "$out/log"; }  # says PATTERN: a line that the last program printed
changed() {  # changed STATUS PATTERN SED-SCRIPT OPTION...: a transcript in which something was changed
    sed -E "$3" "$run" >"$out/changed.txt"
    if cmp -s "$run" "$out/changed.txt"; then false; judge "nothing is changed by $3" "$out/changed.txt"; fi
    seal "$out/changed.txt"
    audit "$1" "$2" "$out/changed.txt" "${@:4}"
}
changed 2 'none of its 2 requests is deterministic' 's/deterministic: yes/deterministic: no/' --skip-ordinary
# Controls: each change is found and named. The second token of the second request; one bit of its third
# log-probability; what tokens are drawn by; the prompt; the end of the answer.
record --samples 3 -n 24 --ignore-eos --temperature 0.8
second='/^request: 2$/,/^request: 3$/'
changed 1 '^  first token: 2 of 24: recorded 7 .*, computed [0-9]+ .*; margin -?[0-9.]+, before the noise of the draw$' \
    "$second s/^(tokens: [0-9]+,)[0-9]+/\\17/"
says '^NOT VERIFIED: 2 of 3 requests are equal to the bit, 1 differs; compared: .* log-probabilities$'
digit=$(sed -nE "$second s/^logprobs: .{25}(.).*/\1/p" "$run")
bit="$second s/^(logprobs: .{25})./\1$(printf %x $((0x$digit ^ 1)))/"
changed 1 '^request 2: differs: 0 of 24 tokens, 1 log-probability of the others$' "$bit"
says '^  first log-probability: 3 of 24, of token [0-9]+: recorded .* \(bits .{8}\), computed .* \(bits .{8}\)$'
changed 1 '^request 2: differs: [1-9][0-9]* of 24 tokens' "$second s/^temperature: .*/temperature: 3f800000/"
changed 1 '^request 2: differs: [1-9][0-9]* of 24 tokens' "$second s/^seed: .*/seed: 7/"
changed 1 '^request 2: differs: [1-9][0-9]* of 24 tokens' "$second s/^top_k: .*/top_k: 2/"
changed 1 '^request 2: differs: ' "$second s/^prompt: 0,/prompt: 1,/"
changed 1 '^request 2: differs: it has fewer tokens than were asked for' \
    "$second s/^(tokens|logprobs)(.*),[0-9a-f]+/\\1\\2/"
token=$(sed -nE "$second s/^tokens: [0-9]+,([0-9]+).*/\1/p" "$run")
changed 1 '^request 2: differs: it goes on behind a stop token' "$second s/^stop:.*/stop: 9,$token/"
changed 1 '^request 2: differs: it ends without the stop token' "$second s/^finish: .*/finish: stop/"
# How an answer ends. Two tokens of it, of which the second ends it.
short="$second s/^(tokens|logprobs): ([^,]*,[^,]*).*/\\1: \\2/; $second s/^stop:.*/stop: $token/; $second s/^finish: .*/finish"
changed 0 '^request 2: verified to the bit: 2 tokens' "$short: stop/"
changed 1 '^request 2: differs: it has more tokens than were asked for' "$short: stop/; $second s/^(max.*: ).*/\\11/"
changed 1 '^request 2: differs: it has all tokens .*, and names another reason' "$second s/^finish: .*/finish: cancelled/"
short="$second s/^(tokens|logprobs): ([^,]*,[^,]*).*/\\1: \\2/; $second s/^finish: .*/finish"
changed 0 '^verified to the bit: 3 of 3 .*; 1 cancelled: where these end is not verified$' "$short: cancelled/"
says '^request 2: verified to the bit: 2 tokens and log-probabilities, up to where it was cancelled$'
changed 1 '^request 2: differs: it ends with an error, and the model gives a token there$' "$short: error/"
changed 1 '^request 1: differs: it is there twice, also in line 13$' 's/^request: 2/request: 1/'
says '^NOT VERIFIED: 2 of 3 requests'
changed 1 '^request 1: differs: it has token 2048, which is outside the vocabulary of 2048$' 's/^tokens: [0-9]+/tokens: 2048/'
changed 1 '^request 2: differs: it has more tokens than the model.s context of 2048$' \
    "$second s/^(prompt: .*)/\\1$(printf ',1%.0s' {1..2048})/"
says '^request 3: verified to the bit'
# An answer that goes on behind logits that are not finite; the other is read.
cp "$run" "$out/keep.txt"
ends 1 "^generate: 2 requests $why" generate --model "$out/nan" --ids 0,9 --ids-out --deterministic --samples 2 --record "$run"
changed 1 '^request 1: differs: it has a token, number 1 of 1, behind logits that are not finite$' \
    '/^request: 1$/,/^request: 2$/ {s/^finish: .*/finish: length/; s/^max_new.*/max_new_tokens: 1/; s/^tokens:.*/tokens: 9/; s/^logprobs:.*/logprobs: 00000000/}'
says '^request 2: verified to the bit: 0 tokens'
says '^NOT VERIFIED: 1 of 2 requests'
mv "$out/keep.txt" "$run"
# Cancelled before its first token: there is nothing to compare, and it is not counted.
changed 0 '^verified to the bit: 2 of 3 .*; 1 without a token: nothing to compare$' \
    "$second s/^(tokens|logprobs):.*/\\1:/; $second s/^finish: .*/finish: cancelled/"
says '^request 2: nothing to compare: it was cancelled before its first token$'
# A change is found by the digests, unless they are made anew. Then a request that is left out is found by nobody who has
# only the file: its digest is what to compare.
sed "$second s/^seed: .*/seed: 7/" "$run" >"$out/changed.txt"
audit 2 "changed.txt:41: digest: '[0-9a-f]{40}': must be the digest of the lines before it: some were changed$" "$out/changed.txt"
sed 's/^# What was asked.*/# x/' "$run" >"$out/changed.txt"
audit 2 ': must be the digest of the lines before it: some were changed$' "$out/changed.txt"
sed "/^request: 3$/,/^digest/d; s/^requests: 3/requests: 2/" "$run" >"$out/changed.txt"
audit 2 ': file_digest: .*: must be the digest of the lines before it' "$out/changed.txt"
sed "/^request: 3$/,/^digest/d" "$run" >"$out/changed.txt"
audit 2 ': requests: 3: the file has 2$' "$out/changed.txt"
digest=$(sed -n 's/^file_digest: //p' "$run")
audit 0 "^  digest of the file $digest: compare it with a published or signed one" "$run"
changed 0 '^verified to the bit: 2 of 2 requests' "/^request: 3$/,/^digest/d; s/^requests: 3/requests: 2/"
check_not "another digest" "$digest"
check "sha256sum gives the digest of the file" test "$digest" = "$(head -n -2 "$run" | sha256sum | cut -c1-64)"
# The model is the auditor's. What a file names is not built before it is known to fit.
ends 2 "^audit: give --model DIR, your own copy of the model, or --model from-file, the model that $run names$" audit "$run"
audit 0 '^  model examples/tiny42, SHA-256 [0-9a-f]{64}, arithmetic fp32, compute bf16, logits_fp32 no, router_fp32 no, leaves 1$' "$run" --model examples/tiny42
check_not "the auditor's own model" 'from-file'
changed 2 'changed.txt: its model synthetic:llama-3.1-70b has 141 GB of weights, and from-file loads at most 4: give --model DIR$' \
    's/^model: .*/model: synthetic:llama-3.1-70b/'
audit 2 'synthetic:llama-3.1-70b has [0-9a-f]{64}: another model' "$run" --model synthetic:llama-3.1-70b
# A share of the windows: a changed log-probability is found if its window is drawn. The seed decides.
audit 0 '^verified to the bit: parts of 1 of 3 .*, 1 of 6 windows of 12 tokens, drawn by seed [0-9]+ of the system; 12 ' "$run" --windows 1 --window 12
seed_of() { sed -n 's/.*, drawn by seed \([0-9]*\) of the system.*/\1/p' "$out/log"; }
one=$(seed_of)
audit 0 '^verified to the bit: parts of 1 of 3 ' "$run" --windows 1 --window 12
check "another seed each time" test -n "$one" -a "$one" != "$(seed_of)"
ends 2 "^audit: --seed: 'x' is not a whole number" audit "$run" --model from-file --seed x
audit 0 ', 2 of 6 windows of 12 tokens, drawn by seed 8; 24 ' "$run" --share 0.3 --window 12 --seed 8
drawn=
for seed in 1 2 3 4 5 6; do
    sed -E 's/^logprobs: .{8}/logprobs: 00000000/' "$run" >"$out/changed.txt"
    seal "$out/changed.txt"
    "$B/audit" "$out/changed.txt" --model from-file --windows 1 --window 12 --seed $seed --threads 1 >"$out/log" 2>&1
    drawn+=$?
done
check "audit --windows 1: status $drawn" grep -vE '[^01]|^(0+|1+)$' <<<"$drawn"
# One bit of one weight: another model. If the hash is changed, too, the bits say it.
cp -r examples/tiny42 "$out/other" && chmod -R u+w "$out/other"
at=$(($(stat -c %s "$out/other/model.safetensors") - 2))
byte=$(od -An -tu1 -j $at -N 1 "$out/other/model.safetensors")
printf "\\x$(printf %x $((byte ^ 64)))" | dd of="$out/other/model.safetensors" bs=1 conv=notrunc status=none seek=$at
audit 2 "has the hash [0-9a-f]{64}, and $out/other has [0-9a-f]{64}: another model, or changed since$" "$run" \
    --model "$out/other"
other=$(sed -E 's/.* has ([0-9a-f]{64}): .*/\1/' "$out/log")
changed 1 '^NOT VERIFIED: 0 of 3 requests' "s/^model_hash: .*/model_hash: $other/" --model "$out/other"
# What cannot be compared is one line, and status 2.
changed 2 'changed.txt:1: format 4: this version of llm42 reads formats 1 to 3$' '1s/format 3/format 4/'
changed 2 '3 of its 3 requests have the draws or the sums \(sm90\) of llm42 0.2.0: audit them with that version$' \
    '1s/format 3/format 2/'
changed 2 'changed.txt: the file is cut short' '$d'
changed 2 "changed.txt:13: 'request 1': must be 'requests: ...'$" 's/^request: 1$/request 1/'
changed 2 "changed.txt:24: tokens: 'x7': must be a token id$" '24s/^tokens: [0-9]+/tokens: x7/'
changed 2 'its arithmetic is sm70, and that of --backend cpu here is fp32' 's/^arithmetic: .*/arithmetic: sm70/'
changed 2 'its arithmetic is not known' 's/^arithmetic: .*/arithmetic: not known/'
changed 2 'leaves: 8: the model cannot be cut into these' 's/^leaves: .*/leaves: 8/'
changed 2 'gone: no such model folder' 's|^model: .*|model: gone|'
ends 2 "unexpected argument 'more'" audit "$run" more
audit 2 'nowhere.txt: cannot open' "$out/nowhere.txt"
ends 1 "^generate: $out/gone/x: cannot write" generate --ids 0,9 -n 2 --deterministic --record "$out/gone/x"

# With descriptors 0 to 2 closed no result file gets one, and the terminal's text with it. Text that nobody gets fails.
descriptors="0 1 2 012"
[ $slow = 0 ] || descriptors=012
table() { awk -F '\t' '/^#/ {next} !n {n = NF} NF != n {bad = 1} END {exit bad || n < 2}' "$1"; }
closed() {  # closed PROGRAM OPTION...: what it writes to $out/closed.tsv, whatever is closed, is one table
    local bad= which status
    for which in $descriptors; do
        rm -f "$out/closed.tsv"
        case $which in
        0) "$B/$1" "${@:2}" <&- >"$out/log" 2>&1 ;;
        1) "$B/$1" "${@:2}" </dev/null >&- 2>"$out/log" ;;
        2) "$B/$1" "${@:2}" </dev/null >"$out/log" 2>&- ;;
        012) "$B/$1" "${@:2}" <&- >&- 2>&- ;;
        esac
        status=$?
        case $which in *1*) [ $status = 1 ] ;; *) [ $status = 0 ] ;; esac || bad="$bad, $which: status $status"
        [ $which != 1 ] || grep -qx "$1: stdout: cannot write: .*" "$out/log" || bad="$bad, no message"
        table "$out/closed.tsv" || bad="$bad, $which: something else in the table"
    done
    [ -z "$bad" ]
    judge "with closed descriptors$bad: $*" "$out/log"
}
for which in 0 2; do
    if [ $which = 0 ]; then "$B/audit" "$run" --model from-file <&- >"$out/log" 2>&1; else "$B/audit" "$run" --model from-file >"$out/log" 2>&-; fi
    says '^verified to the bit'
done
trace=(--trace "$out/closed.tsv")
few=(--calibration sweep/calibration/h100-pcie-paper.tsv --requests 20)
closed generate --prompt Once -n 8 --stats "${trace[@]}"
closed rollback --requests 2 --tokens 16 --delay 0 --step "${trace[@]}"
closed sweep "${few[@]}" "${trace[@]}"
closed sweep "${few[@]}" --out "$out/closed.tsv"
closed determinism --suite single --requests 2 --tokens 8 --tsv "$out/closed.tsv"
closed bench --suite decode --tokens 8 --repeats 1 --out "$out/closed.tsv"
for tool in generate score diff audit rollback determinism sweep bench fit ranks; do
    expected=1
    case $tool in diff | audit) expected=2 ;; esac  # 1 would say that something differs
    "$B/$tool" --help >&- 2>"$out/log"
    [ $? = $expected ] && grep -q "^$tool: stdout: cannot write" "$out/log"
    judge "$tool --help without standard output" "$out/log"
done
finish
