#!/bin/bash
# The lecture demo as a viewer sees it: at least one rollback that nothing injected, and the same requests identical.
# Then its keys, its screen on terminals of several sizes and kinds, and the files for slides.
# shellcheck disable=SC2086  # several options
export LC_ALL=C.UTF-8
source tests/check.sh
rollback=${B:-build}/rollback
scratch
shows() {  # shows TEXT PATTERN...: every pattern is in the text
    for pattern in "${@:2}"; do check "a line with it" grep -E -e "$pattern" <<<"$1"; done
}
lacks() {  # lacks TEXT PATTERN...: none is
    for pattern in "${@:2}"; do check "no line with '$pattern'" test -z "$(grep -E -e "$pattern" <<<"$1")"; done
}
out=$("$rollback" --html "$dir/run.html" --svg "$dir/run.svg" </dev/null 2>&1)
shows "$out" '^rollbacks +[1-9][0-9]* in [0-9]+ windows' '^marked +([0-9]+) of \1 identical' \
    '^not marked +[1-9][0-9]* of [0-9]+ drift' \
    "^ +Log-probabilities: the fast pass ranked ' r' and ' water' equal; the replay preferred$" \
    "^ +Log-probabilities: the INVARIANT pass that drew it preferred ' door' by 0.0625, which is 1$" \
    "^  The fast passes that drew the candidates up to ' r' had 15 and 10 rows; the replay sums the same$" \
    '^pass 5 +INVARIANT schedule: 11 rows; D1 still gets a candidate$' \
    '^pass 13 +INVARIANT schedule: 18 rows; D1, D3 and D5 still get candidates$' \
    '^FAST passes +77 +668 ' '^other INVARIANT passes +5 +72 ' '^this run +94 +1070 +[0-9.]+$' \
    '^all FAST: answers may drift +82 +724 ' '^all INVARIANT: none drifts +82 +724 ' \
    '^Verification costs the 330 rows of the replay passes, and 24 rows ' \
    '^verification wins where an INVARIANT pass takes more than 1.18 times as long as a FAST one, and$' \
    '^pass 26 +REPLAY in INVARIANT schedule: 32 rows' \
    '^ +candidate  ·out  ·to  ·the  ·door   \.  ·"  I  ·am  ·not  ·going  ·to$' '^ +=     =    =     X       \.  \.   \.  ' \
    '^ +replay     ·out  ·to  ·the  ·house  \.  ·"  I  ·am$' '^ +candidate  ·the  ·r      iver  \. ' \
    '^D7 .* out to the\[- door\. "I am not going to-]\{\+ house\+}, and$'
# A FAST pass drew the first candidate that is dropped. The second one is the exception, explained where it stands.
dropped=$(sed -n '/^What happened/q; s/^ *Log-probabilities: \(the [a-zA-Z]* pass\).*/\1/p; s/^.*\(This is the exception\).*/\1/p' <<<"$out")
check "the exception comes second" [ "$(head -n 3 <<<"$dropped" | paste -sd ,)" = \
    "the fast pass,the INVARIANT pass,This is the exception" ]
pays() { [ "$(grep -n '^verification wins' <<<"$out" | cut -d: -f1)" -lt "$(grep -n '^FAST passes ' <<<"$out" | cut -d: -f1)" ]; }
check "when verification wins stands above what it cost" pays
shows "$(printf 'nq' | "$rollback" --step 2>&1)" '^ +\(Of two equal ones, .* This is the exception: the candidate$'
# The command that it prints runs the same rows again, and the last of them gives the two tokens that differ.
command=$(sed -n '/^build\/diff /,/[^\\]$/p' <<<"$out" | sed "s|^build/diff|${B:-build}/diff|")
shows "$command" 'schedule=fast,rows=15\+10 ' '[ ,]\\$'
lacks "$command" '[^ ,]\\$'  # no line ends inside of a word
shows "$(bash -c "$command" 2>&1)" '^The first difference: layer 1, down, row 1 ' '^-b adds them in 1 part, ' \
    '^ +1 +264 +354 +1445 .* another token$'
# So do all commands of the page. One rollback has none: a replay wrote KV anew between the passes that it would repeat.
commands=$(sed -n 's|^<pre>\(.*\)</pre>$|\1|p' "$dir/run.html" | sed 's/<[^>]*>//g' | sed "s|^build/diff|${B:-build}/diff|")
check_commands() {  # three rollbacks, two commands: each ends in another token
    [ "$(grep -c '<h3>' "$dir/run.html")" = 3 ] && [ "$(wc -l <<<"$commands")" = 2 ] &&
        [ "$(while read -r line; do $line; done <<<"$commands" | grep -c ' another token$')" = 2 ]
}
check "the commands of the page" check_commands
shows "$(<"$dir/run.html")" 'No command of build/diff repeats this, because pass 26, a replay, came between '
# The parts of the summary add up.
adds_up() {  # adds_up NAME: the numbers behind the first one of its paragraph add up to the first one
    sed -n "/^$1 /,/^[a-z]* *[0-9]/p" <<<"$out" | sed "1!{/^[a-z]/d}" | tr '\n' ' ' | tr -cs '0-9' ' ' |
        awk '{ for (i = 2; i <= NF; i++) sum += $i; exit !(NF && sum == (NF > 1 ? $1 : 0)) }'
}
sums() { adds_up candidates && adds_up committed; }
check "the parts add up" sums
out=$("$rollback" --keep-fast-kv </dev/null 2>&1)  # a control of the protocol: verification without its overwrite of KV
shows "$out" '^rollbacks +0 in' '^marked +0 of [1-9][0-9]* identical'
out=$("$rollback" --keep-fast-kv --preset invariant </dev/null 2>&1 || echo "status $?")
shows "$out" 'keep-fast-kv: by this preset there are no FAST passes' '^status 2'
out=$("$rollback" --keep-fast-kv --requests 1 </dev/null 2>&1 || echo "status $?")
shows "$out" 'a control that shows nothing: all marked answers are equal' '^status 3'
out=$("$rollback" --requests 3 --tokens 3 --window 2 --inject 0.3 </dev/null 2>&1)
check "the parts add up, some injected" sums
shows "$out" '^candidates [0-9]+: [0-9]+ held, [0-9]+ differed'
out=$("$rollback" --requests 1 --tokens 2 </dev/null 2>&1)
shows "$out" '^rollbacks  0 in 1 window; ' '^committed  2 tokens: 1 candidate that held, 1 from '
fixed=$("$rollback" --preset paper --window 16 </dev/null 2>&1)
command=$(sed -n '/^build\/diff /,/[^\\]$/p' <<<"$fixed" | sed "s|^build/diff|${B:-build}/diff|")
out=$fixed
check "the parts add up, preset paper" sums
shows "$fixed" '^deterministic prompts +5 +52 ' 'tokens before in INVARIANT passes'
shows "$(bash -c "$command" 2>&1)" '^b +schedule=fixed rows=64$' '^ +3 +264 +781 +871 .* another token$'  # turned round
shows "$("$rollback" --help)" '--verify WHEN .*\(default: wait with preset dvr, so that windows are full; else the preset.s\)'
out=$("$rollback" --inject 0.2 --verify wait </dev/null 2>&1)
shows "$out" 'inject' '^marked +([0-9]+) of \1 identical' 'made wrong on purpose; the replay preferred'
for options in "--preset paper" "--preset paper --tokens 300" "--verifier fixed --verify eager --prefill packed"; do
    out=$("$rollback" --requests 7 $options </dev/null 2>&1)
    shows "$out" 'REPLAY in FIXED schedule: 32 rows' '^marked +([0-9]+) of \1 identical' \
        '^passes .* for deterministic prompts$' "^committed .* in place of (those|the one) that differed" '^rollbacks +[1-9]'
done
for options in "--preset best" "--preset invariant" "--prefill packed" "--verify eager"; do
    out=$("$rollback" $options </dev/null 2>&1)
    shows "$out" '^pass 1 +INVARIANT schedule|^pass 1 +REPLAY in INVARIANT schedule' \
        '^passes .* more in INVARIANT schedule$' '^marked +([0-9]+) of \1 identical'
    lacks "$out" 'FIXED' 'deterministic prompts '
    [ "$options" != "--preset invariant" ] || shows "$out" '^other INVARIANT passes +82 ' 'it had no candidates, because '
    [ "$options" != "--preset invariant" ] || lacks "$out" '^FAST passes' '^Verification costs' 'inject'
done
out=$("$rollback" --verifier fixed --prefill invariant </dev/null 2>&1)
shows "$out" 'INVARIANT schedule: [0-9]+ rows; what they give is final' '^marked +([0-9]+) of \1 identical'
out=$("$rollback" --preset paper --window 6 --requests 2 --tokens 4 --html "$dir/paper.html" </dev/null 2>&1)
shows "$(<"$dir/paper.html")" 'W 6 x G 4 = M 24, preset paper: verifier fixed, verify eager, prefill isolated' \
    'It is not <em>canonical</em>, because it depends on settings, above all on M, the 24 rows' 'decoding also stops while'
lacks "$(<"$dir/paper.html")" 'is <em>canonical' 'is canonical'
out=$("${B:-build}/determinism" --suite single --tokens 160 </dev/null 2>&1)
shows "$out" '^nondeterministic .* [2-9] ' 'every promise held'
for row in dvr best paper invariant together; do shows "$out" "^$row +[0-9]+ +[0-9]+ +1 +1 "; done
out=$("$rollback" --planner deadline </dev/null 2>&1)
shows "$out" '^marked +([0-9]+) of \1 identical'
out=$("${B:-build}/generate" --prompt "It was a dark and stormy night" --deterministic --planner every </dev/null 2>&1)
shows "$out" '^It was a dark and stormy night.{100}'
out=$("$rollback" --requests 2 --tokens 4 --html "$dir/none.html" --svg "$dir/none.svg" </dev/null 2>&1)
shows "$out" 'No rollback in this run' '^rollbacks  0 in'
check "no rollback, in slides" grep -q "No rollback in this run" "$dir/none.html" "$dir/none.svg"

# Keys from a pipe, with and without line ends: n goes to a rollback, b back, Enter to the next pass; the end runs on.
short="$rollback --step --requests 4 --tokens 20"
keys() { printf "$1" | $short 2>&1 | sed -n '/^The determ/q; s/^pass \([0-9]*\) .*/\1/p'; }
check_keys() {  # check_keys KEYS PASSES: the passes that the log shows, in their order
    local shown
    shown=$(keys "$1" | paste -sd ' ')
    check "keys '$1': passes $shown" grep -xE -e "$2" <<<"$shown"
}
check_keys 'q' '1'
check_keys '\n\nq' '1 2 3'
check_keys '\n\nbq\n' '1 2 3 2'
check_keys 'bb  q' '1 1 1 2 3'
check_keys 'n\nb\nq\n' '1( [0-9]+)+'
first=$(keys 'nq' | tail -n 1)
check_keys 'nbbq' "1 .*$first $((first - 1)) $((first - 2))"
check_keys 'nbbnq' "1 .*$first $((first - 1)) $((first - 2)) .*$first"
# With --step every pass shows its tokens, INVARIANT ones too.
shows "$(printf '    q' | $short 2>&1)" "^pass 4 +FAST schedule: .*: D1 \(.*\), o2 " \
    '^pass 5 +INVARIANT schedule: 11 rows; D1 still gets a candidate: D1 \(.*\), o2 [^(]*, D3 +[^(]*$'
shows "$(keys 'nnnnnnnnnnnnnnnnnnnnnnnnq')" "^$first$"
shows "$(printf 'n' | $short)" '^marked +([0-9]+) of \1 identical'
shows "$(printf 'r' | $short)" '^marked +([0-9]+) of \1 identical'
shows "$($short <&-)" '^marked +([0-9]+) of \1 identical'
shows "$(printf 'q' | $short)" '^What happened' '^marked +([0-9]+) of \1 identical'

# A terminal of script's, its keys from a pipe: what happens does not depend on when.
on_terminal() {  # on_terminal COLUMNS ROWS ENVIRONMENT KEYS OPTIONS
    script -qec "stty cols $1 rows $2; { $4; } | env $3 $rollback --step $5" /dev/null </dev/null | tr -d '\r'
}
plain() { sed 's/\x1b\[H/\n/g; s/\x1b\[[0-9;?]*[A-Za-z]//g'; }  # a screen begins on a line of its own
narrow() { [ "$(wc -L <<<"$1")" -le "$2" ]; }  # in columns
no_bytes() { ! grep -q "$2" <<<"$1"; }
escape=$(printf '\033')
if script -qec true /dev/null </dev/null >/dev/null 2>&1; then
    for columns in 40 60 80 200; do
        out=$(on_terminal $columns 24 TERM=dumb "printf '  nnbq'" "--requests 6 --tokens 16")
        check "dumb, $columns columns" narrow "$out" $columns
        check "dumb: no escapes" no_bytes "$out" "$escape"
        shows "$out" '^pass 1 ' '^pass 2 ' '^candidate ' '^ +=.* X' '^replay ' 'n next rollback' '^What happened' '\[- '
        out=$(on_terminal $columns 24 "NO_COLOR=1 TERM=xterm" "printf nnbq" "--requests 6 --tokens 16")
        check "NO_COLOR: no colours" no_bytes "$out" "$escape\\[[0-9;]*m"
        check "NO_COLOR: drawn in place" grep -q "$escape\\[H" <<<"$out"
        out=$(plain <<<"$out")
        check "NO_COLOR, $columns columns" narrow "$out" $columns
        shows "$out" 'pass 1 ' '^candidate ' '^ +=.* X' '^replay ' 'n next rollback' '^What happened' '\[- '
    done
    out=$(on_terminal 80 24 TERM=xterm-256color "printf nnbq" "--tokens 32")
    check "colours" grep -q "$escape\\[[0-9;]*m" <<<"$out"
    check "80 columns" narrow "$(plain <<<"$out")" 80
    shows "$(plain <<<"$out")" '^candidate  ·the  ·r ' 'so far'
    resize="stty cols 25 rows 5 </dev/tty"
    out=$(on_terminal 30 8 TERM=xterm "printf n; $resize; printf 'b  q'" "--window 64 --tokens 16" | plain)
    shows "$out" '^What happened'
    resize="stty cols 40 rows 24 </dev/tty"
    out=$(on_terminal 80 24 TERM=xterm "printf n; $resize; printf bq" "--requests 6 --tokens 16" | plain)
    check "a terminal that gets narrower" narrow "$(sed -n '/so far/,$p' <<<"$out")" 40
    out=$(printf q | script -qec "$rollback --step --requests 2 --tokens 8; stty -a" /dev/null | tr -d '\r' | plain)
    shows "$out" '^What happened' '[^-]icanon' '[^-]echo '
else
    skip "terminals" "script (bsdutils) is not here"
fi

# Files: whole or not at all, the same bytes each time, nothing from elsewhere.
"$rollback" --delay 1 --html "$dir/again.html" --svg "$dir/again.svg" </dev/null >/dev/null 2>&1
check "the same page again" cmp "$dir/run.html" "$dir/again.html"
check "the same picture again" cmp "$dir/run.svg" "$dir/again.svg"
shows "$(<"$dir/run.svg")" "the fast pass ranked ' r' and ' water' equal; the replay preferred ' water' by"
for file in run.html run.svg; do
    out=$(<"$dir/$file")
    [ $file = run.svg ] || shows "$out" 'is <em>canonical</em>' '<pre>.*build/diff ' 'There a rollback may turn round' \
        '<td>this run</td><td>94</td><td>1070</td>' '<dt>Is this the one right answer' 'legend' 'a step of 0.03125 below' \
        'Preset dvr itself verifies eagerly; this demo waits' '<p class="wide">The chart is wider than this screen' \
        'A replay pass verifies windows and decodes for nobody'
    shows "$out" 'replay pass \(R, X: with a rollback\)' 'I: INVARIANT pass without windows' 'verify wait \(preset:'
    shows "$out" 'water' 'class="VERDICT"' 'class="STRUCK"' 'class="rollback"' '>X<' 'preferred' 'Served alone, 5 of 5'
    lacks "$out" '<script|<link|<img|@import|url\(|href|src='
done
fails() {  # fails STATUS PATTERN OPTIONS...: one line on stderr, and no file is left
    local status=$1 pattern=$2
    "$rollback" --requests 2 --tokens 8 "${@:3}" </dev/null >/dev/null 2>"$dir/err"
    check "exit status $status: ${*:3}" [ $? = "$status" ]
    shows "$(<"$dir/err")" "$pattern"
    check "one line: ${*:3}" [ "$(wc -l <"$dir/err")" = 1 ]
}
mkdir "$dir/out"
fails 1 "--html: cannot write $dir/none/x.html: No such file" --html "$dir/none/x.html" --svg "$dir/out/x.svg"
fails 1 "--svg: cannot write $dir/none/x.svg: No such file" --html "$dir/out/x.html" --svg "$dir/none/x.svg"
fails 1 "--html: cannot write $dir/out: Is a directory" --html "$dir/out"
fails 2 "--html and --svg name the same file" --html "$dir/out/x" --svg "$dir/out/x"
fails 2 "--html and --svg name the same file" --html "$dir/out/x" --svg "$dir/out/./x"
fails 2 "--svg and --trace name the same file" --svg "$dir/out/x" --trace "$dir/out/x"
[ ! -e /dev/full ] || fails 1 "--svg: cannot write /dev/full: No space" --svg /dev/full
check "nothing is left behind" [ -z "$(ls -A "$dir/out")" ]

# A stop from outside leaves no file behind. The pipe stays open without a key.
mkfifo "$dir/keys"
exec 9<>"$dir/keys"
stopped() {  # stopped SIGNAL PATTERN OPTION...: sent when the screen has the pattern, and a key is waited for
    env --default-signal=HUP,TERM "$rollback" --step "${@:3}" <"$dir/keys" >"$dir/log.txt" 2>"$dir/err" &
    local pid=$! i
    for ((i = 0; i < 400; i++)); do
        grep -q "$2" "$dir/log.txt" && break
        sleep 0.05
    done
    kill -"$1" $pid
    wait $pid
}
stopped TERM 'pass 1' --html "$dir/out/x.html"
check "SIGTERM" [ $? = 143 ]
# A hang-up ends a program as Ctrl-C does. What was served so far is cancelled, and the transcript can be audited.
printf '%15s' '' | tr ' ' '\n' >&9
stopped HUP 'pass 16' --record "$dir/run.txt"
check "SIGHUP" [ $? = 129 ]
check "the transcript is kept" grep -q '^rollback: interrupted; what there is is in .*/run.txt.unfinished$' "$dir/err"
check "all eight requests are in it" [ "$(grep -c '^finish: cancelled$' "$dir/run.txt.unfinished")" = 8 ]
shows "$("${B:-build}/audit" "$dir/run.txt.unfinished" --model examples/tiny42 --skip-ordinary 2>&1)" \
    '^verified to the bit: 4 of 8 requests, .*: all that are marked deterministic; '
# When all is served the transcript is whole.
printf n >&9
stopped HUP 'The run has ended' --requests 1 --tokens 2 --record "$dir/run.txt"
check "SIGHUP at the end" [ $? = 129 ]
check "the transcript is whole" grep -q '^# end$' "$dir/run.txt"
exec 9>&-
shows "$(<"$dir/err")" '^rollback: interrupted$'
check "nothing is left behind by SIGTERM" [ -z "$(ls -A "$dir/out")" ]

# Odd text: a path and tokens with markup, control characters, halves of characters, wide and combining ones.
odd=$dir/$(printf 'a<b>&"\033[31m\342\202\342\200\256\344\270\255')
ln -s "$PWD/examples/tiny42" "$odd"
if command -v python3 >/dev/null; then
    python3 - "$dir/odd" <<'END'
import json, os, sys
os.mkdir(sys.argv[1])
for name in ('config.json', 'model.safetensors'):
    os.symlink(os.path.abspath('examples/tiny42/' + name), sys.argv[1] + '/' + name)
tokenizer = json.load(open('examples/tiny42/tokenizer.json'))
printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
spell = {b: chr(b) for b in printable}
for b in range(256): spell.setdefault(b, chr(256 + b - sum(p < b for p in printable)))
new = {b' the': '\u4e2d\u6587'.encode(), b' and': b' \x1b[31m\x07', b' was': b' \xe2\x82', b' I': '\u202e<&>'.encode(),
       b' to': b' \x7f\xc2\x9b2J', b' in': b'\t\r\n', b' be': 'e\u0301'.encode()}
vocab, merges = tokenizer['model']['vocab'], tokenizer['model']['merges']
for old, text in new.items():
    old, text = (''.join(spell[b] for b in t) for t in (old, text))
    merges = [m for m in merges if old not in m and ''.join(m) != old]
    vocab[text] = vocab.pop(old)
tokenizer['model']['merges'] = merges
json.dump(tokenizer, open(sys.argv[1] + '/tokenizer.json', 'w'))
END
    out=$("$rollback" --model "$dir/odd" --inject 0.1 --seed 3 --html "$dir/odd.html" --svg "$dir/odd.svg" </dev/null 2>&1)
    shows "$out" '^marked +([0-9]+) of \1 identical' '␛\[31m␇' '\\xE2\\x82' '中文' '␡�2J' '␉␍¶' '�<&>'
    check "odd tokens, 100 columns" narrow "$out" 100
    lacks "$(tr -d '\n' <<<"$out" | tr '\000-\010\013-\037\177' '\001')" $'\001'
    shows "$(<"$dir/odd.html")" '�&lt;&amp;&gt;'
else
    skip "odd tokens" "python3 is not here"
fi
out=$("$rollback" --model "$odd" --requests 2 --tokens 8 --html "$dir/path.html" --svg "$dir/path.svg" </dev/null 2>&1)
for file in path.html path.svg; do
    shows "$(<"$dir/$file")" 'a&lt;b&gt;&amp;&quot;␛\[31m\\xE2\\x82�中'
done
if command -v xmllint >/dev/null; then
    for file in "$dir"/*.html "$dir"/*.svg; do check "well-formed: $(basename "$file")" xmllint --noout "$file"; done
elif command -v python3 >/dev/null; then
    parse='import sys, xml.sax; xml.sax.parse(sys.argv[1], xml.sax.ContentHandler())'
    for file in "$dir"/*.html "$dir"/*.svg; do
        check "well-formed: $(basename "$file")" python3 -c "$parse" "$file"
    done
else
    skip "well-formed slides" "neither xmllint nor python3 is here"
fi
finish
