#!/bin/bash
# examples/LESSON.md, its answers and its page on states: every command that stands there runs, and prints the lines that stand below it.
# The slides are what examples/lesson/draw.sh draws now. The planner of the answers is compiled beside build/sweep.
export LC_ALL=C.UTF-8
source tests/check.sh
scratch
lesson=examples/LESSON.md answers=examples/lesson/ANSWERS.md
mkdir "$dir/run" && ln -s "$PWD/examples" "$PWD/sweep" "$PWD/llm42.h" "$dir/run"
ln -s "$(cd "$B" && pwd)" "$dir/run/build"

# Programs that the answers build.
between() { awk -v from="$2" -v to="$3" '$0 == from {on = 1; next} $0 == to {on = 0} on' "$1"; }
between $answers '```c' '```' >"$dir/lines"
sed "/^ *float \*k = /r $dir/lines" examples/nano42.c >"$dir/run/broken.c"
check "lines to put into nano42.c" test "$(wc -l <"$dir/lines")" = 3
check "the place for them" test "$(($(wc -l <"$dir/run/broken.c") - $(wc -l <examples/nano42.c)))" = 3
# shellcheck disable=SC2086
check "the planner compiles" ${CC:-cc} -std=c11 -O1 -ffp-contract=off -Wall -Wextra -Werror ${OMP--fopenmp} -I. \
    -isystem "$STB" -DLLM42_IMPLEMENTED -DLLM42_PLANNER="\"$PWD/examples/lesson/patient.h\"" sweep/sweep.c \
    sweep/sweep/cells.c sweep/lib/planner.c "$B/programs.a" "$B/llm42.o" -o "$dir/run/sweep_patient" -lm

# A block of commands becomes N.sh, the block of output below it N.see.
split_blocks() {  # split_blocks PAGE PREFIX
    awk -v to="$2" '/^```sh$/ {file = to sprintf("%02d", ++n) ".sh"; next}
        /^```$/ && file {close(file); file = ""; next}
        /^```$/ {file = n ? to sprintf("%02d", n) ".see" : ""; next}
        /^```c$/ {file = "/dev/null"; next}
        file {print >file}' "$1"
}
split_blocks $lesson "$dir/lesson"
split_blocks $answers "$dir/answer"
split_blocks examples/lesson/STATE.md "$dir/state"
prints() {  # prints NAME: what N.sh prints has every line of N.see
    local line missing=0
    while IFS= read -r line; do
        grep -qF -e "$line" "$dir/$1.out" || { echo "missing: $line" && missing=1; }
    done <"$dir/$1.see"
    [ $missing = 0 ]
}
for script in "$dir"/*.sh; do
    name=$(basename "$script" .sh)
    sed -i 's/^make sweep .*/:/; s/build\/sweep\( .*default,patient\)/.\/sweep_patient\1/' "$script"
    ! grep -q 'planner \$1' "$script" || sed -i 's/build\/sweep/.\/sweep_patient/' "$script"
    command -v cc >/dev/null || sed -i "s/^cc /${CC:-gcc} /" "$script"
    (cd "$dir/run" && bash "$script" >"$dir/$name.out" 2>"$log")
    check "$name: no error" test ! -s "$log"
    [ ! -e "$dir/$name.see" ] || check "$name: what it prints" prints "$name"
done
check "7 commands in the lesson" test "$(ls "$dir"/lesson*.see | wc -l)" = 7
check "5 in the answers" test "$(ls "$dir"/answer*.see | wc -l)" = 5
check "3 on states, two of which are controls" test "$(grep -l 'marked     0 of 2' "$dir"/state0[123].see | wc -l)" = 2
# A pass that is scored runs once, since a state would take in its rows twice. Its control is in what it prints.
scored() { "$B/determinism" --suite score --requests 3 -n 24 --temperature 0.8 --model examples/hybrid42; }
check "scores of a hybrid, of which FAST ones differ" eval '[ $(scored |
    grep -cE "^nondeterministic +72 +[1-9]|^every promise held") = 2 ]'

check "one rollback" test "$(grep -c 'is dropped and' "$dir/answer01.out")" = 1
sed 's/pass(rows, n, INVARIANT)/pass(rows, n, FAST)/' examples/nano42.c >"$dir/run/other.c"
(cd "$dir/run" && ${CC:-cc} -std=c11 -O2 -ffp-contract=off other.c -o other -lm && ./other >"$dir/other")
check "the other mistake: five rollbacks" test "$(grep -c 'is dropped and' "$dir/other")" = 5
check "the other mistake: nine answers drift" grep -q ' 9 of 10 get other bits' "$dir/other"

# The table of exercise 2 has what its command prints, in two lines for each row.
awk 'NF == 3 {head = $1 " " $2 " " $1 * $2; speed = sprintf("%.0f", $3)} /waits/ {print head, $1, $4, speed}' \
    "$dir"/answer02.out >"$dir/counted"
check "the table of waits" diff "$dir/counted" <(sed -nE 's/^\| ([0-9].*) \|$/\1/p' $answers | tr -d '|,' | tr -s ' ')
check "control: other groups wait" grep -q '^2 63 126 500 [1-9]' "$dir/counted"
# Step 2 has no command: the page begins with its numbers, which are added here in fp32.
check "the three numbers of the page" grep -qF '[16777216, 1, 1]' examples/web/why.js
cat >"$dir/sum.c" <<'END'
#include <stdio.h>
int main(void) {
    volatile float big = 16777216, one = 1, first = big + one, left = first + one, ones = one + one, right = big + ones;
    printf("(16777216 + 1) + 1 = %.0f, but 16777216 + (1 + 1) = %.0f.", (double)left, (double)right);
}
END
check "compiles" ${CC:-cc} "$dir/sum.c" -o "$dir/sum"
check "their sums" grep -qF "$("$dir/sum")" $lesson
check "control: other sums are not there" bash -c '! grep -qF "= 16777217" "$1"' - $lesson

check "draw.sh" env B="$B" bash examples/lesson/draw.sh "$dir/slides"
for i in {1..8}; do
    check "slide $i is as large as its window" bash -c '! grep -qE "<svg[^>]* (width|height)=" "$1"' - examples/lesson/$i.svg
    check "slide $i is current (else: bash examples/lesson/draw.sh)" cmp "$dir/slides/$i.svg" examples/lesson/$i.svg
    check "step $i has its slide" grep -qE "^## $i\. .* \([0-9]+ minutes, \[slide\]\(lesson/$i.svg\)\)$" $lesson
done
check "60 minutes" test "$(sed -nE 's/^## [1-8]\. .* \(([0-9]+) minutes,.*/\1/p' $lesson |
    awk '{n += $1} END {print n}')" = 60
check "the lesson has 200 lines" test "$(wc -l <$lesson)" -le 200
check "the slides have 60 KB" test "$(cat examples/lesson/*.svg | wc -c)" -le 60000
finish
