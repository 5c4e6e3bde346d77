#!/bin/bash
# The house style, as far as a machine can tell: lines of at most 120 columns, the layout of .clang-format, no section
# tag twice in a file, sections of llm42.h that say whom they call, a README of at most 130 lines, a list of all tests.
# A script that a README calls by its path alone can be run so.
source tests/check.sh

clean() {  # clean NAME OUTPUT: passes if there is no output, else shows where it begins
    [ -z "$2" ]
    judge "$1:" /dev/stdin <<<"$2"
}

mapfile -t files < <(find . -path ./build -prune -o -path './.*' -prune -o \
    \( -name '*.[ch]' -o -name '*.cu' -o -name '*.js' \) -print)
clean "lines of more than 120 columns" "$(awk 'length > 120 {print FILENAME ":" FNR}' "${files[@]}")"
clean "blanks at the end of a line" "$(grep -nE '[[:blank:]]$' "${files[@]}")"
for file in llm42.h llm42.cu kernels.cu; do
    clean "section tags that stand twice in $file" "$(sed -nE 's|^// >>([a-z-]+) -.*|\1|p' $file | sort | uniq -d)"
done
clean "a section of llm42.h calls others than its line Calls: says" "$(awk -f tests/calls.awk llm42.h llm42.h)"
# Controls: a call that a line leaves out, one that it makes up, and a section that does not exist.
wrong=$(mktemp)
for change in 's|^\(// Calls: state, \)kv, |\1|' 's|^// Calls: state|&, sim|' 's|^// Calls: calibrated|&s|'; do
    sed "$change" llm42.h >"$wrong"
    clean "a wrong line Calls: is not found" "$(awk -f tests/calls.awk "$wrong" "$wrong" | grep -q . || echo "$change")"
done
rm "$wrong"
clean "more than 130 lines" "$([ "$(wc -l <README.md)" -le 130 ] || wc -l README.md)"
clean "more than 135 lines" "$([ "$(wc -l <tests/README.md)" -le 135 ] || wc -l tests/README.md)"
unlisted() {  # unlisted TEXT: tests that have no line in it
    local test
    for test in $(cd tests && ls test_*.sh) $(cd tests && basename -s .c test_*.c fuzz_*.c) test_cuda \
        $(cd tests/cuda && basename -s .cu -- *.cu | sed 's/^/cuda_/'); do
        grep -qF "| \`$test\` |" <<<"$1" || echo "$test"
    done
}
clean "tests that tests/README.md does not list" "$(unlisted "$(<tests/README.md)")"
# Control: exactly the test is found whose line is missing.
missing=$(unlisted "$(grep -v '`test_sim`' tests/README.md)")
clean "a test without a line is not found" "$([ "$missing" = test_sim ] || echo "found: $missing")"
mapfile -t scripts < <(find . -path ./build -prune -o -path './.*' -prune -o -name README.md -print0 |
    xargs -0 grep -ohE '(^|`)([a-z0-9_]+/)+[a-z0-9_]+\.sh' | tr -d '`' | sort -u)
clean "scripts that a README calls without bash, and that lack their run bit (chmod +x)" \
    "$(for script in "${scripts[@]}"; do [ -x "$script" ] || echo "$script"; done)"
# Another version lays some lines out in another way.
case $(clang-format --version 2>&1) in
*' version 14.'*) clean "make format changes something" "$(clang-format --dry-run "${files[@]}" 2>&1)" ;;
*) skip "clang-format" "version 14 is not here" ;;
esac
# tsc checks JavaScript as far as types follow from the code.
if command -v tsc >/dev/null; then
    clean "tsc finds faults in the page's JavaScript" "$(tsc --noEmit --allowJs --checkJs --target es2022 \
        --module es2022 --lib es2022,dom,dom.iterable examples/web/main.js examples/web/worker.js 2>&1)"
else
    skip "the page's JavaScript" "tsc is not here (package node-typescript)"
fi
finish
