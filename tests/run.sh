#!/bin/bash
# Runs the test programs and scripts named on the command line, one after the other, and adds up the line
# `NAME: N passed, N failed[, N skipped]` that each ends with. A program that ends otherwise counts as one failure.
# The last line is the sum; the exit status is 1 if anything failed.
set -u
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
passed=0 failed=0 skipped=0
for test in "$@"; do
    case $test in *.sh) run=(bash "$test") ;; *) read -ra run <<<"$test" ;; esac  # a program may have options
    name=$(basename "${test%% *}" .sh)
    start=$SECONDS
    "${run[@]}" 2>&1 </dev/null | tee "$log"
    status=${PIPESTATUS[0]}
    last=$(tail -n 1 "$log")
    if [[ $last =~ ^$name:\ ([0-9]+)\ passed,\ ([0-9]+)\ failed(,\ ([0-9]+)\ skipped)?$ ]]; then
        passed=$((passed + BASH_REMATCH[1]))
        failed=$((failed + BASH_REMATCH[2]))
        skipped=$((skipped + ${BASH_REMATCH[4]:-0}))
        if [ "$status" != 0 ] && [ "${BASH_REMATCH[2]}" = 0 ]; then
            echo "$name: FAILED: exit status $status"
            failed=$((failed + 1))
        fi
    else
        echo "$name: FAILED: ended without its count, exit status $status"
        failed=$((failed + 1))
    fi
    [ $((SECONDS - start)) -lt 5 ] || echo "  ($name took $((SECONDS - start)) s)"
done
skips=
[ "$skipped" = 0 ] || skips=", $skipped skipped"
echo "$passed passed, $failed failed$skips"
[ "$failed" = 0 ]
