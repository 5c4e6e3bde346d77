# shellcheck shell=bash
# Sourced by the shell tests: what they count and how they end.
passed=0 failed=0 skipped=0
test_name=$(basename "$0" .sh)
log=  # a file, which the test names: what the last command of check printed
check() {  # check NAME COMMAND...: the command succeeds; else what it printed is shown
    if "${@:2}" >"$log" 2>&1; then
        passed=$((passed + 1))
    else
        echo "$test_name: FAILED: $1: ${*:2}"
        head -n 20 "$log"
        failed=$((failed + 1))
    fi
}
seal() { bash examples/lesson/seal.sh "$1"; }  # seal TRANSCRIPT: its digests are those of its lines
skip() { echo "  $1: skipped: $2"; skipped=$((skipped + 1)); }  # skip NAME WHY
finish() {  # prints the line that `make test` adds up, and ends the test
    local skips=
    [ "$skipped" = 0 ] || skips=", $skipped skipped"
    echo "$test_name: $passed passed, $failed failed$skips"
    [ "$failed" = 0 ]
    exit
}
need_numpy() {  # sets python to the first that has numpy: $PYTHON, the one on PATH or Debian's; else the test ends here
    for python in ${PYTHON:+"$PYTHON"} python3 /usr/bin/python3; do
        "$python" -c 'import numpy' 2>/dev/null && return
    done
    skip "all" "no numpy: install python3-numpy (Debian), or set PYTHON to a Python that has it"
    finish
}
