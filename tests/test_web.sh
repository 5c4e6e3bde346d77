#!/bin/bash
# The page of `make web`, in a headless Chromium: its bits, digest and token ids are those of the native programs, an
# H200's answers are verified in it, nothing it does leaves the machine, and keys and screen readers can use it. The
# checks are in tests/web/check_page.py; screenshots of all views go to build/web_shots.
# From the environment: V (not empty: how long each part takes).
source tests/check.sh
scratch
export TMPDIR=$dir

missing=$(CC="$CC" STB="$STB" PCRE2="" PLOTS="" WASM=1 bash tests/setup.sh 2>&1 | sed -n 's/^Missing:\(.*\)\. Run:.*/\1/p')
command -v python3 >/dev/null || missing="$missing python3"
command -v chromium chromium-browser google-chrome >/dev/null || missing="$missing chromium"
if [ -n "$missing" ]; then
    skip "the page" "needs the packages$missing"
    finish
fi

# test_isa, which digest.wasm is, and the same with other sums.
for name in digest control; do
    flag=
    [ $name = digest ] || flag=-DLLM42_TEST_CONTROL
    check "$name is built" $CC -O1 $OMP -std=c11 -ffp-contract=off -I. -isystem "$STB" -DLLM42_IMPLEMENTED $flag \
        tests/test_isa.c "$B/llm42.o" -o "$dir/$name" -lm
done
echo "  building the page in $B/web"
check "make web" env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make --no-print-directory web B="$B" CC="$CC" STB="$STB"
digest() { "$dir/$1" | sed -n 's/.* digest //p'; }

size=$(find "$B/web" -type f -printf '%s\n' | awk '{ sum += $1 } END { print sum }')
echo "  the page has $size bytes, at most 5000000"
check "the page has less than 5,000,000 bytes" test "$size" -lt 5000000

timeout 300 python3 -B tests/web/check_page.py "$B" "$(digest digest)" "$(digest control)" "$dir/counts"
status=$?
if read -r more_passed more_failed more_skipped 2>/dev/null <"$dir/counts"; then
    passed=$((passed + more_passed)) failed=$((failed + more_failed)) skipped=$((skipped + more_skipped))
else
    check "check_page.py ended without its counts, with status $status" false
fi
finish
