# shellcheck shell=bash
# Sourced by the shell tests: what they count and how they end. All of them take B (the build folder), CC, STB (the folder
# of stb_ds.h) and OMP (how OpenMP is asked for) from the environment, and most do less where TEST_SLOW (slow) is 1.
set -u
B=${B:-build} CC=${CC:-gcc} STB=${STB:-/usr/include/stb} OMP=${OMP--fopenmp} slow=${TEST_SLOW:-0}
passed=0 failed=0 skipped=0
test_name=$(basename "$0" .sh)
log=  # a file, which the test names: what the last command of check printed
judge() {  # judge TEXT [FILE], behind a command: it has succeeded; else the text and the head of the file, or log, are shown
    if [ $? = 0 ]; then
        passed=$((passed + 1))
    else
        echo "$test_name: FAILED: $1"
        head -n 20 "${2:-$log}"
        failed=$((failed + 1))
        return 1
    fi
}
check() {  # check NAME COMMAND...: the command succeeds; else what it printed is shown
    "${@:2}" >"$log" 2>&1
    judge "$1: ${*:2}"
}
ends_with() {  # ends_with STATUS PATTERN COMMAND...: its status, and a pattern of a line that it prints (to $dir/said)
    "${@:3}" >"$dir/said" 2>&1 </dev/null
    local status=$?
    [ $status = "$1" ] && grep -qE -e "$2" "$dir/said" || { echo "status $status" && cat "$dir/said" && return 1; }
}
scratch() {  # dir: a folder for what the test writes, which goes when it ends
    dir=$(mktemp -d) || exit 1
    trap 'rm -rf "$dir"' EXIT
    log=$dir/log
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
cases() {  # cases NAME COMMAND: calls it with the texts of each line of tests/cases/NAME.tsv, which have tabs between
    local texts
    [ -s "tests/cases/$1.tsv" ] || exit 1
    while IFS=$'\t' read -r -u 3 -a texts; do "$2" "${texts[@]}"; done 3< <(grep -v '^#' "tests/cases/$1.tsv")
}
need_numpy() {  # sets python to the first that has numpy: $PYTHON, the one on PATH or Debian's; else the test ends here
    for python in ${PYTHON:+"$PYTHON"} python3 /usr/bin/python3; do
        "$python" -c 'import numpy' 2>/dev/null && return
    done
    skip "all" "no numpy: install python3-numpy (Debian), or set PYTHON to a Python that has it"
    finish
}
