#!/bin/bash
# generate's ways in and out: stop strings, JSON, lines as they come, files of requests, and chat templates. A
# deterministic line of a file of requests has the bits of `generate --deterministic` run alone, and what is computed
# after an interruption makes the very file that an uninterrupted run writes.
export LC_ALL=C.UTF-8
source tests/check.sh
scratch
generate=("$B/generate" --threads 1)
says() { ends_with "$1" "$2" "${generate[@]}" "${@:3}"; }  # says STATUS PATTERN OPTION...
prints() {  # prints TEXT OPTION...: exactly that and a newline
    "${generate[@]}" "${@:2}" >"$dir/said" </dev/null && cmp "$dir/said" <(printf '%s\n' "$1") || { cat "$dir/said"; return 1; }
}
json() { command -v python3 >/dev/null || return 0; python3 -c "import json, sys
rows = [json.loads(line) for line in open('$1', encoding='utf-8')]
assert $2, rows[:3]"; }

# Stop strings. The text is "It was a very fine day, and the day was gone. I had to go to the house, ...".
all=(-n 20 --deterministic)
"${generate[@]}" "${all[@]}" --ids-out >"$dir/ids"
check "the text without" grep -qx 'It was a very fine day, and the day was gone. I had to go to the house, and' \
    <("${generate[@]}" "${all[@]}")
for kind in --deterministic --no-mmap; do  # with a window of tokens an event, and with one token
    for preset in dvr best invariant; do
        how=($kind --preset $preset -n 20)
        check "across tokens" prints 'It was a very f' "${how[@]}" --stop 'ine day, and t'
        check "the first of several" prints 'It was a very' "${how[@]}" --stop 'gone' --stop ' fine day' --stop day,
        check "the one that begins first" prints 'It was a' "${how[@]}" --stop 'very fine' --stop ' very fine'
        check "not in the prompt" prints 'It was a very fine day, and the day' "${how[@]}" --stop ' was'
        check "only its beginning" prints "$("${generate[@]}" "${how[@]}")" "${how[@]}" --stop 'and the day after'
        check "at once" prints 'It was' "${how[@]}" --stop ' '
    done
done
check "ids end with the token of the stop string" [ "$("${generate[@]}" "${all[@]}" --ids-out --stop 'day, a')" = \
    "$(cut -d , -f 1-6 "$dir/ids")" ]
check "of each sample" json <("${generate[@]}" --samples 6 --temperature 1 -n 60 --json --stop e --stop ' a') \
    "all(r['finish'] == 'stop' and 'e' not in r['text'] and ' a' not in r['text'] for r in rows) and len(rows) == 6"
check "given too often" says 2 'is given more than 16 times' $(printf -- '--stop x%.0s ' {1..17})
check "empty" says 2 '^generate: --stop: the text is empty$' --stop ""
check "a special token by its name" json <("${generate[@]}" --samples 32 --temperature 1000 -n 200 --seed 44 --ignore-eos --json \
    --stop '<|end_of_text|>') "any(r['finish'] == 'stop' for r in rows) and all((r['finish'] == 'stop') == (r['ids'][-1] == 1)
    and 1 not in r['ids'][:-1] for r in rows)"
# Only what may begin a stop string is held back: a run that is killed has printed the rest.
shown() {
    { timeout -s KILL 2 "${generate[@]}" -n 2000 --ignore-eos --stop ' fine nothing' >"$dir/shown"; } 2>/dev/null
    head -c 13 "$dir/shown" | cmp - <(printf 'It was a very')
}
check "text is printed as it comes" shown

# JSON: one object for each sample, whatever its bytes; the digits give the bits back.
check "json" json <("${generate[@]}" "${all[@]}" --samples 2 --json 2>/dev/null) \
    "[r['index'] for r in rows] == [0, 1] and rows[0]['ids'] == [$(cat "$dir/ids")] and rows[0]['finish'] == 'length' and \
     rows[0]['prompt_tokens'] == 3 and rows[0]['seed'] == 42 != rows[1]['seed'] and rows[0]['deterministic'] and \
     rows[0]['text'].startswith(' a very') and rows[0]['model'] == 'examples/tiny42' and len(rows[0]['logprobs']) == 20"
numbers() { sed -E "s/.*\"$2\": \[([^]]*)\].*/\1/; s/, /\n/g" "$1"; }
"${generate[@]}" "${all[@]}" --json >"$dir/json"
check "the digits of --logprobs" diff <(numbers "$dir/json" logprobs) \
    <("${generate[@]}" "${all[@]}" --ids-out --logprobs | tail -n +2 | cut -f 4)
check "bytes that are no text" json <("${generate[@]}" --samples 8 --temperature 1000 -n 60 --json) \
    "len(rows) == 8 and any('\ufffd' in r['text'] for r in rows)"
check "without a tokenizer" json <("${generate[@]}" --model synthetic:tiny --ids 0,9 -n 4 --json) \
    "rows[0]['text'] is None and len(rows[0]['ids']) == 4"
cp -r examples/tiny42 "$dir/nan" && chmod -R u+w "$dir/nan"  # the last weight, of the last norm, is NaN
printf '\300\177' | dd of="$dir/nan/model.safetensors" bs=1 conv=notrunc status=none \
    seek=$(($(stat -c %s "$dir/nan/model.safetensors") - 2))
check "an answer that ends by an error" json <("${generate[@]}" --model "$dir/nan" -n 4 --json 2>/dev/null) \
    "rows[0]['finish'] == 'error' and rows[0]['ids'] == []"
check "json excludes" says 2 'exclude each other' --json --ids-out
interrupted() {  # at once there is nothing to cancel yet: on a busy machine only a later signal finds requests
    for seconds in 1 5 25; do
        timeout -s INT --preserve-status $seconds "${generate[@]}" --ids 0,905 -n 2000 --ignore-eos --samples 32 --json \
            --temperature 1 >"$dir/cut"
        [ $? = 130 ] || return 1
        [ ! -s "$dir/cut" ] || break
    done
    json "$dir/cut" "len(rows) == 32 and rows[31]['finish'] == 'cancelled'"
}
check "a run that is ended" interrupted

# Lines as they come: those of a sample are its text.
"${generate[@]}" --samples 4 --temperature 1 -n 60 --stream >"$dir/lines"
"${generate[@]}" --samples 4 --temperature 1 -n 60 --json >"$dir/json"
check "stream: samples take turns" [ "$(cut -c 1-3 "$dir/lines" | uniq | wc -l)" -gt 4 ]
check "stream: the text" json "$dir/json" "all(('It was' + r['text']).replace('\n', '') == ''.join(
    line[4:-1] for line in open('$dir/lines') if line.startswith('[%d]' % r['index'])) for r in rows)"
check "greedy samples" says 0 'greedy: all 3 samples are alike: ' --samples 3 -n 4 --deterministic
check "greedy samples" says 0 'greedy: all 3 samples are alike, but for what batches change' --samples 3 -n 4
check "others get no remark" test -z "$("${generate[@]}" --samples 3 -n 4 --temperature 1 2>&1 >/dev/null)"

# A file of requests. Deterministic lines have the bits of the request alone; of the others some have not.
requests=40 n=60 long=2000
[ "$slow" = 0 ] || requests=12 n=8 long=500
prompts=("It was the best of times" "Once upon a time" "The landlord" "I had no idea" "He went on" "Mr. Pickwick")
for ((i = 0; i < requests; i++)); do
    printf '{"prompt": "%s", "max_tokens": %d, "temperature": %s, "seed": %d, "deterministic": %s, "stop": %s, "id": "r%d"}\n' \
        "${prompts[i % 6]}" $((n + i)) $((i % 3)).5 $((i + 1)) "$([ $((i % 4)) = 3 ] && echo false || echo true)" \
        "$([ $((i % 5)) = 0 ] && echo '["\n\n", "again", " time"]' || echo null)" $i
done >"$dir/in.jsonl"
batch=("${generate[@]}" --batch "$dir/in.jsonl" --ignore-eos)
check "batch" "${batch[@]}" --out "$dir/out.jsonl"
check "in order" [ "$(sed -E 's/.*"id": "r([0-9]+)".*/\1/' "$dir/out.jsonl" | xargs)" = "$(seq 0 $((requests - 1)) | xargs)" ]
check "valid" json "$dir/out.jsonl" "all(r['index'] == i and r['finish'] in ('length', 'stop') for i, r in enumerate(rows)) \
    and any(r['finish'] == 'stop' for r in rows)"
alone() {  # alone I OPTION...: the answer to line I without those that share its passes
    local i=$1 stop=()
    [ $((i % 5)) != 0 ] || stop=(--stop $'\n\n' --stop again --stop ' time')
    "${generate[@]}" --json --prompt "${prompts[i % 6]}" -n $((n + i)) --temperature $((i % 3)).5 --seed $((i + 1)) \
        --ignore-eos ${stop[@]+"${stop[@]}"} "${@:2}" | sed 's/.*"text"/"text"/'
}
other=0
for ((i = 0; i < requests; i++)); do
    sed -n "$((i + 1))s/.*\"text\"/\"text\"/p" "$dir/out.jsonl" >"$dir/together"
    if [ $((i % 4)) = 3 ]; then
        alone $i | cmp -s - "$dir/together" || other=$((other + 1))
    else
        check "line $i is there" [ -s "$dir/together" ]
        check "line $i alone" cmp <(alone $i --deterministic) "$dir/together"
    fi
done
[ "$slow" != 0 ] || check "the control: ordinary lines differ alone" [ $other -gt 0 ]
for how in "--max-running 3 --preset best" "--max-running 1" "--preset invariant --window 5"; do
    check "other batches" "${batch[@]}" $how --out "$dir/other.jsonl"
    check "other batches, $how: the same bits" cmp <(grep '"deterministic": true' "$dir/out.jsonl" | sed 's/"request[^,]*,//') \
        <(grep '"deterministic": true' "$dir/other.jsonl" | sed 's/"request[^,]*,//')
done

# Ended at any moment, and given again: to the byte what an uninterrupted run writes.
kept() {  # OUT.unfinished of these lines of OUT
    local line
    while IFS= read -r line; do
        printf '{"digest": "%s", %s\n' "$(printf %s "$line" | sha256sum | cut -c 1-32)" "${line#?}"
    done
}
sed 's/"deterministic": false/"deterministic": true/' "$dir/in.jsonl" >"$dir/all.jsonl"
batch=("${generate[@]}" --batch "$dir/all.jsonl" --ignore-eos --max-running 4)
"${batch[@]}" --out "$dir/whole.jsonl"
part=$dir/cut.jsonl.unfinished
break_at() {  # break_at LINES SIGNAL: ends the run when so many lines are written; its status is in $status
    local pid
    "${batch[@]}" --out "$dir/cut.jsonl" >/dev/null 2>"$dir/said" &
    pid=$!
    while kill -0 $pid 2>/dev/null && [ "$(cat "$dir"/cut.jsonl.*.part 2>/dev/null | wc -l)" -lt "$1" ]; do sleep 0.01; done
    kill -s $2 $pid 2>/dev/null
    { wait $pid; } 2>/dev/null  # bash has a word to say of what is killed
    status=$?
    [ $2 != KILL ] || for left in "$dir"/cut.jsonl.*.part; do mv "$left" "$part" 2>/dev/null; done  # as after a crash of the machine
}
ended=0
rm -f "$dir"/cut.jsonl* && echo kept >"$dir/cut.jsonl"
for how in "1 TERM" "4 TERM" "7 KILL" "9 TERM"; do
    break_at $how
    [ $status = 0 ] && break
    ended=$((ended + 1))
    [ $status != 143 ] || check "marked" [ "$(tail -n 1 "$part")" = '{"unfinished": true}' ]
    check "there are answers" [ "$(grep -c '"finish"' "$part")" -ge "${how% *}" ]
    check "an older file is as it was" [ "$(cat "$dir/cut.jsonl")" = kept ]
done
check "it was ended" [ $ended -gt 1 ]
check "the same command goes on" "${batch[@]}" --out "$dir/cut.jsonl"
check "byte for byte" cmp "$dir/cut.jsonl" "$dir/whole.jsonl"
check "nothing else is left" [ "$(find "$dir" -name 'cut.jsonl*' | wc -l)" = 1 ]
# Drafts decide about no answer: the same file by any drafter, and a run that was begun without them goes on with them.
check "drafts" "${batch[@]}" --draft lookup --out "$dir/drafted.jsonl"
check "drafts: byte for byte" cmp "$dir/drafted.jsonl" "$dir/whole.jsonl"
head -n 5 "$dir/whole.jsonl" | kept >"$dir/drafted.jsonl.unfinished" && echo '{"unfinished": true}' >>"$dir/drafted.jsonl.unfinished"
check "begun without drafts" bash -c '"$@" 2>"$0"' "$dir/stats" "${batch[@]}" --stats --draft model:examples/tiny42 \
    --out "$dir/drafted.jsonl"
check "by a model: accepted" grep -qE "^drafts: [0-9]+ judged, [1-9][0-9]+ accepted" "$dir/stats"
check "by a model: byte for byte" cmp "$dir/drafted.jsonl" "$dir/whole.jsonl"
# Cut off by a power failure, in the middle of a line; and what is kept is not computed again.
head -n 4 "$dir/whole.jsonl" | sed '2s/"text": "/&KEPT/' | kept >"$dir/four" && head -n 3 "$dir/four" >"$part"
tail -n 1 "$dir/four" | head -c 90 >>"$part"
check "cut in a line" "${batch[@]}" --out "$dir/cut.jsonl"
check "what was there is taken over" cmp <(sed '2s/"text": "KEPT/"text": "/' "$dir/cut.jsonl") "$dir/whole.jsonl"
check "as it was" grep -q KEPT "$dir/cut.jsonl"
# Answers that are whole before an earlier line's are kept, too, whatever ends the run, and the message counts them.
{ echo '{"ids": [0, 905], "max_tokens": '$long'}' && for i in 2 3 4 5 6; do echo "{\"ids\": [0, $i], \"max_tokens\": 5}"; done; } \
    >"$dir/late.jsonl"
batch=("${generate[@]}" --batch "$dir/late.jsonl" --ignore-eos --deterministic)
"${batch[@]}" --out "$dir/whole2.jsonl"
for signal in TERM KILL; do
    rm -f "$dir"/cut.jsonl*
    break_at 5 $signal
    check "$signal: five of six are kept" [ "$(grep -c '"index": [1-5]' "$part")" = 5 ]
    [ $signal = KILL ] || check "the message" grep -q \
        "^generate: interrupted; 5 of 6 answers are kept in $part; the same command goes on$" "$dir/said"
    sed -i '/"index": 3/d' "$part"  # the order is no matter, nor that one is lacking
    check "the same command goes on" bash -c '"$@" 2>"$0"' "$dir/said" "${batch[@]}" --out "$dir/cut.jsonl"
    check "with what was there" grep -q "^generate: 4 of 6 answers are in $part already$" "$dir/said"
    check "in the order of the requests" cmp "$dir/cut.jsonl" "$dir/whole2.jsonl"
    check "nothing else is left" [ "$(find "$dir" -name 'cut.jsonl*' | wc -l)" = 1 ]
done
full() (ulimit -f 1 && "${batch[@]}" --out "$dir/cut.jsonl" 2>"$dir/said")  # a disk of 1 KiB
echo kept >"$dir/cut.jsonl"
full
check "a full disk" [ $? = 1 ]
kept=$(grep -c '"finish".*}$' "$part")
check "what was written is kept" [ "$kept" -gt 0 ]
check "a full disk" grep -q "^generate: $dir/cut.jsonl: cannot write: File too large; $kept of 6 answers are kept in $part; \
the same command goes on$" "$dir/said"
check "an older file is as it was" [ "$(cat "$dir/cut.jsonl")" = kept ]
tail -n 5 "$dir/whole2.jsonl" | kept >"$part" && cp "$part" "$dir/five"
full
check "full before all that was there is taken over" [ $? = 1 ]
check "it stays" cmp "$part" "$dir/five"
check "the message" grep -q "too large; 5 of 6 answers are kept in $part; the same command goes on$" "$dir/said"
check "a larger disk" "${batch[@]}" --out "$dir/cut.jsonl"
check "in the order of the requests" cmp "$dir/cut.jsonl" "$dir/whole2.jsonl"
said=$(ulimit -f 0 && "${batch[@]}" --out "$dir/cut.jsonl" 2>&1)
check "a disk without room" [ "$? $said" = "1 generate: $dir/cut.jsonl: cannot write: File too large" ]
check "nothing else is left" [ "$(find "$dir" -name 'cut.jsonl*' | wc -l)" = 1 ]
# What a run that was killed has left is named, and what a run is writing is not.
left=$dir/cut.jsonl.$(sh -c 'echo $$').part
cp "$dir/five" "$left" && touch "$dir/cut.jsonl.$$.part" "$dir/cut.jsonl.x.part"
"${batch[@]}" --out "$dir/cut.jsonl" 2>"$dir/said"
check "left by a killed run" [ "$? $(cat "$dir/said")" = "0 generate: $left is what a run that was killed has left: to take \
over its answers, end this run, rename the file to $part and give the same command again" ]
mv "$left" "$part" && "${batch[@]}" --out "$dir/cut.jsonl" 2>"$dir/said"
check "renamed" grep -q "^generate: 5 of 6 answers are in $part already$" "$dir/said"
rm "$dir"/cut.jsonl.*.part
# Before the first answer there is nothing to keep.
head -n 1 "$dir/late.jsonl" >"$dir/first.jsonl"
batch=("${generate[@]}" --batch "$dir/first.jsonl" --ignore-eos)
rm "$dir/cut.jsonl"
check "nothing yet" bash -c 'timeout -s INT --preserve-status 0.05 "$@" 2>"$0"; [ $? = 130 ]' "$dir/said" "${batch[@]}" \
    --out "$dir/cut.jsonl"
check "nothing is kept" [ "$(find "$dir" -name 'cut.jsonl*' | wc -l)" = 0 ]
# Another IN, other options, another model or something else: refused, and nothing is touched.
head -n 3 "$dir/whole.jsonl" | kept >"$part" && cp "$part" "$dir/keep" && echo kept >"$dir/cut.jsonl"
refused=': not the answer to line [0-9]+ of .*/[a-z]+.jsonl by this model and these options: give all as they were, or '
refused+='remove the file$'
sed '2s/"seed": 2/"seed": 7/' "$dir/all.jsonl" >"$dir/changed.jsonl"
check "another line" says 2 ":2$refused" --ignore-eos --batch "$dir/changed.jsonl" --out "$dir/cut.jsonl"
check "other options" says 2 ":1$refused" --batch "$dir/all.jsonl" --out "$dir/cut.jsonl"
check "another arithmetic" says 2 ":1$refused" --ignore-eos --dtype fp32 --batch "$dir/all.jsonl" --out "$dir/cut.jsonl"
head -n 2 "$dir/all.jsonl" >"$dir/fewer.jsonl"
check "fewer lines" says 2 ':3: the answer to request 3, and .*fewer.jsonl has 2: give it as it was, or remove the file$' \
    --ignore-eos --batch "$dir/fewer.jsonl" --out "$dir/cut.jsonl"
changed=': the line was changed since it was written, by its digest: remove the line, so that its answer is computed again$'
sed '2s/"text": "/&X/' "$dir/keep" >"$part"
check "another answer" says 1 ":2$changed" --ignore-eos --batch "$dir/all.jsonl" --out "$dir/cut.jsonl"
echo "no json" >"$part"
check "something else" says 1 ":1$changed" --batch "$dir/all.jsonl" --out "$dir/cut.jsonl"
check "nothing is touched" [ "$(cat "$dir/cut.jsonl" "$part" | xargs)" = "kept no json" ]
# The model is another one although its path is the same: weights, end tokens and tokens count. As it was, it goes on.
echo '{"ids": [0, 905], "max_tokens": 8}' >"$dir/one.jsonl"
swap=(--model "$dir/swap" --batch "$dir/one.jsonl" --out "$dir/cut.jsonl")
swapped() {  # swapped STATUS PATTERN COMMAND...: the command changes the model
    rm -rf "$dir/swap" "$part" && cp -r examples/tiny42 "$dir/swap" && chmod -R u+w "$dir/swap"
    "${generate[@]}" "${swap[@]}" && kept <"$dir/cut.jsonl" >"$part" && "${@:3}" && says "$1" "$2" "${swap[@]}"
}
check "the same model" swapped 0 '1 of 1 answers are in .* already' true
check "other weights" swapped 2 ":1$refused" cp "$dir/nan/model.safetensors" "$dir/swap"
check "other end tokens" swapped 2 ":1$refused" cp <(echo '{"eos_token_id": [5]}') "$dir/swap/generation_config.json"
check "other tokens" swapped 2 ":1$refused" sed -i 's/<|end_of_text|>/<|end|>/g' "$dir/swap/tokenizer.json"
rm "$part" && echo kept >"$dir/cut.jsonl"

# What is wrong in a file of requests is named by file, line and key, before anything runs.
wrong() {  # wrong PATTERN LINE [OPTION...]
    printf '{"prompt": "x"}\n\n%s\n' "$2" >"$dir/wrong.jsonl"
    check "refused: $2" says 2 "^generate: .*/wrong.jsonl:3: $1" --batch "$dir/wrong.jsonl" --out "$dir/cut.jsonl" "${@:3}"
}
cases batch wrong
printf '\xef\xbb\xbf{"prompt": "x"}\n' >"$dir/marked.jsonl"
check "a byte order mark is no part of the first line" "${generate[@]}" --batch "$dir/marked.jsonl" -n 1 --out "$dir/marked_out.jsonl"
wrong 'the prompt has 2048 tokens, and the context of 2048' "{\"ids\": [$(printf '1,%.0s' {1..2047})1]}"
wrong 'stop: more than 16 strings' "{\"prompt\": \"x\", \"stop\": [$(printf '"x",%.0s' {1..16})\"x\"]}"
check "no file was touched" [ "$(cat "$dir/cut.jsonl")" = kept -a ! -e "$part" ]
echo '{"prompt": "x"}' >"$dir/one.jsonl"
check "no tokenizer" says 2 'prompt: the model has no tokenizer: give ids' --model synthetic:tiny --batch "$dir/one.jsonl" \
    --out "$dir/cut.jsonl"
check "an error in a file" says 1 '1 request ended early' --model "$dir/nan" --batch "$dir/one.jsonl" --out "$dir/nan.jsonl"
check "an error in a file" json "$dir/nan.jsonl" "rows[0]['finish'] == 'error'"
kept <"$dir/nan.jsonl" >"$dir/nan.jsonl.unfinished"
check "an error that is taken over" says 1 'answers ended by an error: their finish says so' --model "$dir/nan" \
    --batch "$dir/one.jsonl" --out "$dir/nan.jsonl"
check "no lines" says 2 'no lines' --batch <(echo) --out "$dir/cut.jsonl"
check "two of an id" says 2 ":2: id: 'a' is the id of line 1, too" --batch <(printf '{"prompt": "x", "id": "a"}\n%.0s' 1 2) \
    --out "$dir/cut.jsonl"
check "too many by -n" says 2 ':1: -n: 9999: behind a prompt' --batch "$dir/one.jsonl" --out "$dir/cut.jsonl" -n 9999
check "no file of the name -" says 2 "^generate: --out: '-' names no file: /dev/stdout is standard output$" --out - --batch -
check "without --out" says 2 '^generate: --batch: needs --out FILE' --batch "$dir/one.jsonl"
check "without --batch" says 2 '^generate: --out: needs --batch FILE' --out "$dir/cut.jsonl"
check "with a prompt" says 2 ': leave out --prompt$' --batch "$dir/one.jsonl" --out "$dir/cut.jsonl" --prompt x
# Errors name the options that were given, and no field of the library. An empty prompt is the begin-of-text token.
check "two prompts" says 2 '^generate: --prompt and --ids exclude each other: give one$' --prompt x --ids 3
check "two kinds of lines" says 2 '^generate: --json, --ids-out and --logprobs exclude each other$' --json --ids-out --logprobs
check "leaves" says 2 '^generate: --leaves: 3: must be 1, 2, 4 or 8$' --leaves 3
check "an arithmetic without its type" says 2 '^generate: --dtype: FP32: arithmetic SM90 needs BF16' --arithmetic sm90 --dtype fp32
check "ranks" says 2 '^generate: --tensor-parallel: 8: must divide the model' --tensor-parallel 8
check "a product" says 2 '^generate: --window x --group: 16777216: must be from' --window 4096 --group 4096
check "an id" says 2 '^generate: --ids: token 2048 is outside 0 to 2047$' --ids 3,2048
check "too long" says 2 '^generate: --ids: the prompt has 2048 tokens, and the context of 2048' --ids "$(seq -s , 0 2047)"
check "what needs text" says 1 '^generate: --stop: .*: a synthetic model has no tokenizer$' --model synthetic:tiny --ids 0 --stop x
check "no text" prints "$("${generate[@]}" -n 8 --ids 0 --ids-out)" -n 8 -p "" --ids-out
sed -i 's/"post_processor": {/"post_processor": null, "was": {/' "$dir/swap/tokenizer.json"
check "no text and no token" says 2 '^generate: --prompt: no tokens, since the model has no begin-of-text' -m "$dir/swap" -p ""
check "from standard input, defaults" json <(cat "$dir/one.jsonl" | "${generate[@]}" --batch - --out /dev/stdout -n 3 --seed 5 \
    --deterministic) "len(rows[0]['ids']) == 3 and rows[0]['seed'] == 5 and rows[0]['deterministic'] and rows[0]['id'] == '1'"

# Chat templates, by a folder with the tokenizer of tiny42. The ids are those of the turns written out; a begin-of-text
# token is there where the template has one.
cp -r examples/tiny42 "$dir/chat" && chmod -R u+w "$dir/chat"
# The tokens of the turns take the places of the last five.
names=('<|start_header_id|>' '<|end_header_id|>' '<|eot_id|>' '<|im_start|>' '<|im_end|>')
{
    head -n -23 examples/tiny42/tokenizer.json | sed '$s/,$//'
    printf '    ]\n  }\n}\n'
} >"$dir/chat/tokenizer.json"
for i in 0 1 2 3 4; do
    sed -i -E "s/^( +)\".*\": $((2043 + i))(,?)$/\1\"${names[i]}\": $((2043 + i))\2/
        s/\"added_tokens\": \[/&\n    {\"id\": $((2043 + i)), \"content\": \"${names[i]}\", \"special\": true},/" \
        "$dir/chat/tokenizer.json"
done
echo '{"eos_token": "<|end_of_text|>"}' >"$dir/chat/tokenizer_config.json"
turns() {  # turns NAME FORMAT BOS EXPECTED OPTION...: of the user's words " hi "
    local chat=(--model "$dir/chat" --chat --chat-format "$2" "${@:5}")
    "${generate[@]}" "${chat[@]}" -n 1 --prompt ' hi ' --record "$dir/chat.txt" >"$dir/said" 2>&1
    "${generate[@]}" --model "$dir/chat" -n 1 --prompt "$(printf "$4.")" --record "$dir/plain.txt" >>"$dir/said" 2>&1
    local want=$(sed -n 's/^prompt: //p' "$dir/plain.txt") dot=$("$B/score" --text . | tail -n 1 | cut -f 2)
    want=${want%,"$dot"}
    [ "$3" = bos ] || want=${want#0,}
    check "chat, $1" [ "$(sed -n 's/^prompt: //p' "$dir/chat.txt")" = "$want" ]
}
h='<|start_header_id|>' e='<|end_header_id|>' m='<|im_start|>'
turns "Llama 3" llama3 bos "${h}user$e\n\nhi<|eot_id|>${h}assistant$e\n\n"
turns "Llama 3, system" llama3 bos \
    "${h}system$e\n\nBe nice.<|eot_id|>${h}user$e\n\nhi<|eot_id|>${h}assistant$e\n\n" --system ' Be nice. '
dated="${h}system$e\n\nCutting Knowledge Date: December 2023\nToday Date: "
turns "Llama 3.1" llama3.1 bos "${dated}26 Jul 2024\n\n<|eot_id|>${h}user$e\n\nhi<|eot_id|>${h}assistant$e\n\n"
turns "a date" llama3.2 bos "${dated}1 May 2031\n\n<|eot_id|>${h}user$e\n\nhi<|eot_id|>${h}assistant$e\n\n" --chat-date '1 May 2031'
turns "today" llama3.2 bos "$dated$(LC_ALL=C date '+%d %b %Y')\n\n<|eot_id|>${h}user$e\n\nhi<|eot_id|>${h}assistant$e\n\n" --chat-date today
turns "ChatML" chatml none "${m}user\n hi <|im_end|>\n${m}assistant\n"
turns "ChatML, system" chatml none "${m}system\nBe nice.<|im_end|>\n${m}user\n hi <|im_end|>\n${m}assistant\n" --system 'Be nice.'
turns "Qwen2" qwen2 none "${m}system\nYou are a helpful assistant.<|im_end|>\n${m}user\n hi <|im_end|>\n${m}assistant\n"
turns "one that thinks" qwen3-thinking none "${m}user\n hi <|im_end|>\n${m}assistant\n<think>\n"
turns "Llama 2" llama2 bos "[INST] hi [/INST]"
turns "Llama 2, system" llama2 bos "[INST] <<SYS>>\nBe nice.\n<</SYS>>\n\n hi [/INST]" --system 'Be nice.'
turns "Mistral 0.2" mistral-0.2 bos "[INST]  hi  [/INST]"
turns "Mistral, a system" mistral-7b-instruct-v0.2 bos " [INST] Be nice.\n\n hi  [/INST]" --system 'Be nice.'
refuses() { printf '{"chat_template": %s}' "$2" >"$dir/chat/tokenizer_config.json"; says 1 "$1" --model "$dir/chat" --chat -n 4 "${@:3}"; }
check "Mistral without a system" says 1 '^generate: --system: .* has no system.s turn$' --model "$dir/chat" --chat \
    --chat-format mistral-0.2 --system x
check "an unknown template" refuses 'template is not known here; .* by --chat-format, give --ids, .* leave out --chat' '"{{ messages }}"'
check "known turns and more" refuses 'has the markers <.im_start.> <.im_end.> of known formats, but' \
    '"{{ x }}<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n>>>"'
check "no such format" says 2 "^generate: --chat-format: 'llama': there are llama3, llama3.1, " --chat --chat-format llama
check "chat, text alone" [ "$("${generate[@]}" --chat --system 'It was' --prompt 'a very' -n 12 --ids-out)" = \
    "$("${generate[@]}" --prompt 'It was a very' -n 12 --ids-out)" ]
mkdir "$dir/none" && cp examples/tiny42/{config.json,tokenizer.json,model.safetensors} "$dir/none"
check "no template" says 1 'no chat_template in tokenizer_config.json .*: name the format by --chat-format, .* leave out --chat' \
    --model "$dir/none" --chat
mkdir "$dir/bare" && cp "$dir/chat/"{config.json,tokenizer.json,model.safetensors} "$dir/bare"
check "no template, its markers" says 1 'chat_template.jinja; its tokenizer has the marker <.start_header_id.>: name the' \
    --model "$dir/bare" --chat
check "no template, special tokens" says 0 '' --model "$dir/none" --chat --chat-format text -n 4
for name in '<|eot_id|>' '<|im_end|>'; do
    family=llama3
    [ $name = '<|eot_id|>' ] || family=chatml
    mv "$dir/chat/tokenizer.json" "$dir/tokenizer.json" && sed "s/$name/<|other|>/" "$dir/tokenizer.json" >"$dir/chat/tokenizer.json"
    check "a tokenizer without $name" says 1 "^generate: --chat: $dir/chat: the tokenizer lacks the token ${name//|/\\|} of the" \
        --model "$dir/chat" --chat --chat-format $family -n 4
    mv "$dir/tokenizer.json" "$dir/chat/tokenizer.json"
done
check "a damaged file" refuses 'tokenizer_config.json: malformed JSON' '"x'
echo '{"chat_template": "x"}' >"$dir/chat/tokenizer_config.json"
text=$(sed -nE 's/.*"chat_template": "(.*)".*/\1/p' examples/tiny42/tokenizer_config.json)
printf '%s\n' "$text" >"$dir/chat/chat_template.jinja"
check "chat_template.jinja" says 0 '' --model "$dir/chat" --chat -n 4
check "--chat-format alone" says 2 '^generate: --chat-format: needs --chat$' --chat-format llama3
check "--system alone" says 2 'needs --chat' --system x
check "--chat with ids" says 2 'needs a text' --chat --ids 0,9
# The token that ends a turn ends an answer, even if the model's files do not list it.
echo '{"eos_token_id": [5]}' >"$dir/chat/generation_config.json"
chatml=(--chat --chat-format chatml)
check "the end of a turn" says 0 '' --model "$dir/chat" "${chatml[@]}" -n 4 --record "$dir/chat.txt"
check "the end of a turn" grep -qx 'stop: 5,2047' "$dir/chat.txt"
check "not without --chat" says 0 '' --model "$dir/chat" -n 4 --record "$dir/chat.txt"
check "not without --chat" grep -qx 'stop: 5' "$dir/chat.txt"
# The user's words are not escaped: a special token that they spell is that token, after which a forged turn may begin.
check "a forged turn" says 0 '' --model "$dir/chat" "${chatml[@]}" --prompt 'x<|im_end|>' -n 1 --record "$dir/chat.txt"
check "it has one end more" [ "$(sed -n 's/^prompt: //p' "$dir/chat.txt" | tr , '\n' | grep -cx 2047)" = 2 ]
# In a file of requests the prompts are turns, too. Several templates: the default one counts.
rm "$dir/chat/chat_template.jinja"
printf '{"chat_template": [{"name": "tool", "template": "x"}, {"name": "default", "template": "%s"}]}' "$text" \
    >"$dir/chat/tokenizer_config.json"
check "several templates" says 0 '' --model "$dir/chat" --chat -n 4
check "batch with chat" json <("${generate[@]}" --model "$dir/chat" "${chatml[@]}" --batch "$dir/one.jsonl" --out /dev/stdout) \
    "rows[0]['prompt_tokens'] > 6"
finish
