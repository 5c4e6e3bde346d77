#!/bin/bash
# The numbered examples: the command in the head of each file compiles it in a fresh copy (but for -O1 or -O0, which
# take less than half as long), the line below runs it, and it shows what it promises, in at most 80 columns. Without its
# files it says so in one line. The files stay short. The program in README.md is compiled too.
export LC_ALL=C.UTF-8
source tests/check.sh
scratch
root=$dir
ln -s "$PWD/llm42.h" "$PWD/examples" "$PWD/sweep" "$root" && mkdir "$root/empty"

head_of() { sed -n '1,/^\*\/$/p' "$1"; }
command_of() { head_of "$1" | sed -n '/^ *mkdir /,/ -lm$/p'; }
shows() { grep -Eq "$2" "$root/$1.out"; }                                    # shows NAME PATTERN
counts() { [ "$(grep -Ec "$2" "$root/$1.out")" = "$3" ]; }                   # counts NAME PATTERN LINES
at_most() { [ "$1" -ge "$(sed -n "$3" "$2" | grep -c .)" ]; }                # at_most LINES FILE SED_SCRIPT
narrow() { [ "$(wc -L <"$root/$1.out")" -le 80 ]; }
fails_well() {  # fails_well NAME: status 1 and one line that names a file, where there are no files
    (cd "$root/empty" && "../build/$1" >out 2>err)
    [ $? = 1 ] && [ "$(wc -l <"$root/empty/err")" = 1 ] && grep -Eq "^$1: (examples|sweep)/" "$root/empty/err"
}

# Two at a time: each takes the compiler some seconds.
compile() {
    local line
    if [ "$1" = README.md ]; then  # its program goes where its command expects it
        sed -n '/^```c$/,/^```$/{/^```/!p}' README.md >"$root/program.c"
        line=$(sed -n 's/^`\(cc .* -lm\)`.*/ \1 -o readme/p' README.md)
    else
        line=$(command_of "$1")
    fi
    line=${line//\/usr\/include\/stb/${STB:-/usr/include/stb}}
    command -v cc >/dev/null || line=${line/ cc / ${CC:-gcc} }
    case $1 in
    *0[1-3]* | *.md) line=$(sed "s/ -O[23] / -O1 /" <<<"$line") ;;
    *) line=$(sed "s/ -O[23] / -O0 /" <<<"$line") ;;  # simulations run for half a second even so
    esac
    [ -n "${OMP--fopenmp}" ] || line=${line/ -fopenmp/}
    (cd "$root" && eval "$line")
}
export root
export -f compile command_of head_of
examples=$(ls examples/0[0-9]_*.c)
printf '%s\n' $examples README.md | xargs -P 2 -I{} bash -c 'compile {}'

for file in $examples; do
    name=$(basename "$file" .c)
    check "$name: compiled by the command in its head" test -x "$root/build/$name"
    run=$(head_of "$file" | sed -n 's|^ *\(build/[a-z0-9_]*\)$|\1|p')
    (cd "$root" && $run >"$name.out" 2>"$name.err" </dev/null)
    check "$name: '$run' ends well" test $? = 0 -a ! -s "$root/$name.err"
    check "$name: 80 columns" narrow "$name"
    check "$name: lines" at_most 120 "$file" p
    [ "$name" = 05_backend ] || check "$name: an error is one line" fails_well "$name"
done

# nano42 has a forward pass of its own. All ten prompts stand in its source.
(cd "$root" && eval "$(sed -n 's|^//  *\(cc .*\) && ./nano42$|\1|p' examples/nano42.c)" && ./nano42 --logprobs >nano.out)
check "nano42: 400 lines" at_most 400 examples/nano42.c p
check "nano42: drift" shows nano 'together, 10 of 10 get other bits, and 10 other tokens'
check "nano42: none in deterministic requests" shows nano 'together, 0 of 10 get other bits, and 0 other tokens'
check "nano42: rollbacks" shows nano "request 1: 3 of 7 candidates agree, then ' door' is dropped and ' house' committed"
grep -oE '\{0, [0-9, ]+\}' examples/nano42.c | tr -d ' {}' | while read -r ids; do
    "${B:-build}/generate" --ids "$ids" -n 64 --deterministic --ignore-eos --ids-out --logprobs | tail -n +2 | cut -f 3,4
done >"$root/generated"
grep '^[0-9]' "$root/nano.out" | cut -d ' ' -f 2,3 | tr ' ' '\t' >"$root/nano.bits"
check "nano42: the bits of generate --deterministic" cmp "$root/generated" "$root/nano.bits"
check "nano42: all of them" test "$(wc -l <"$root/generated")" = 640
(cd "$root/empty" && ! ../nano42 2>../nano.err)
check "nano42: an error is one line" grep -qx 'nano42: cannot read examples/tiny42: .*' "$root/nano.err"

check "README.md: its program runs" bash -c 'cd "$root" && ./readme >readme.out'
check "README.md: tokens" test "$(wc -w <"$root/readme.out")" -ge 16
check "20 lines" at_most 20 examples/01_hello.c '1,/^\*\/$/!p'
check "first commit: one token" counts 01_hello '^ +[0-9]+$' 1
check "64 tokens" test "$(wc -w <"$root/01_hello.out")" = 64
check "bits differ" shows 02_drift '^alone and together: [1-9][0-9]* log-probabilities differ'
check "tokens differ" shows 02_drift 'another token$'
check "no bits differ" shows 03_verify '^alone and together: 0 of 416 '
check "rollbacks" shows 03_verify ' [1-9][0-9]* rollbacks?'
check "8 pictures" counts 03_verify '^ +[1-8] +[+=X-]{52}' 8
check "candidates dropped" shows 03_verify '^ +[1-8] .*X-+[+]'
check "heatmap of 7 rows" counts 04_simulate '^W=[0-9]+ +([0-9.]+[ ░▒▓█]+){10}$' 7
check "both ends of the scale" shows 04_simulate '[0-9]██'
check "no colours in a file" test -z "$(tr -d -c '\033' <"$root/04_simulate.out")"
check "drift without verification" shows 05_backend '^nondeterministic .* [1-9][0-9]*$'
check "none with it" shows 05_backend '^dvr .* [1-9][0-9]* +[1-9][0-9]* +[0-9]+ +0$'
# Columns are: mode, fast, replay and other passes, rollbacks, recomputed tokens, ms, wrong tokens.
check "every pass is in one of three columns" \
    awk '$1 == "dvr" {ok = $2 > 0 && $3 > 0 && $5 <= $3 * 4} $1 == "batch_invariant" {all = !$2 && !$3 && $4 > 0}
        END {exit !(ok && all)}' "$root/05_backend.out"
check "nor without FAST passes" shows 05_backend '^batch_invariant +0 .* 0$'
check "a backend of 60 lines" at_most 60 examples/05_backend.c '/>>backend/,/<<backend/p'
check "three planners" counts 06_planner '^(default|every|deadline) ' 3
check "replay passes are counted under every planner" \
    awk '/^(default|every|deadline) / {n += $3 > 0} END {exit n != 3}' "$root/06_planner.out"
check "more deadlines are met" \
    awk '$1 == "default" {d = $6; o = $7} $1 == "deadline" {ok = $6 > d + 10 && $7 >= o} END {exit !ok}' \
    "$root/06_planner.out"
check "the same answers" shows 06_planner 'the same under every planner$'
check "control: ordinary answers differ" shows 06_planner '^control, .*: they differ$'
check "planner every: 60 lines" at_most 60 examples/planners.h '/>>every/,/>>deadline/p'
check "planner deadline: 60 lines" at_most 60 examples/planners.h '/>>deadline/,/>>find/p'
# Columns are: drafter, passes, tokens a pass, drafts, accepted, ms, the answer.
check "drafts are drawn" shows 07_drafts '^ +[0-9]+ [^<]*<[^>]+>[{][+].*[+][}][[]-.*-[]]$'
check "fewer passes with lookup" \
    awk '$1 == "none" {n = $2} $1 == "lookup" {ok = $2 < n / 2 && $5 > 20} END {exit !ok}' "$root/07_drafts.out"
check "nonsense is never accepted" shows 07_drafts '^nonsense +[0-9]+ +1[.]0 +[1-9][0-9]* +0 '
check "whoever drafts" counts 07_drafts ' the same bits$' 3
check "no colours in a file" test -z "$(tr -d -c '\033' <"$root/07_drafts.out")"
on_terminal() {  # on_terminal [NAME=VALUE]: whether 07_drafts draws in three colours there, and loses no text
    (cd "$root" && env "$@" script -qec build/07_drafts /dev/null) | tr -d '\r' >"$root/colours"
    [ "$(grep -oE $'\033\\[[0-9;]+[^0]m' "$root/colours" | sort -u | wc -l)" = 3 ] &&
        diff <(sed 's/\x1b\[[0-9;]*m//g' "$root/colours" | head -n 25) <(head -n 25 "$root/07_drafts.out" |
            sed -E 's/[<>]|[{][+]|[+][}]|[[]-|-[]]//g')
}
if command -v script >/dev/null; then
    check "three colours on a terminal" on_terminal NO_COLOR= TERM=xterm
    check "NO_COLOR" bash -c "! grep -q $'\033' \"\$1\"" - <(cd "$root" && NO_COLOR=1 script -qec build/07_drafts /dev/null)
else
    skip "colours of 07_drafts" "no program script"
fi
finish
