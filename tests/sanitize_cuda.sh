#!/bin/bash
# A test program under compute-sanitizer. memcheck finds accesses outside allocations, in every kernel. synccheck finds
# barriers that not all threads reach, and racecheck finds hazards in shared memory, both in our kernels only. The status
# is 0 only if the tests ran and passed under all three, and none found anything.
#
#     bash tests/sanitize_cuda.sh build/tests/test_cuda --part small
#
# Slow: some fifty times the program alone. TOOLS=memcheck in the environment runs that one only, and initcheck can be
# named there. On an H200 synccheck never ends in a kernel of cuBLASLt's, and racecheck ends with an internal error of its
# own, even with no kernel instrumented: so both run without these kernels. Choosing matrix algorithms would be most of the
# work, so a run without the sanitizer does it first. NVCCFLAGS="-O3 -lineinfo" gives a backend whose lines are named.
set -u
PATH=$PATH:/usr/local/cuda/bin
if ! command -v compute-sanitizer >/dev/null; then
    echo "no compute-sanitizer: it comes with the CUDA Toolkit (cuda-sanitizer): install it or put it on PATH" >&2
    exit 1
fi
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
log=$work/log
status=0

# clean TOOL PROGRAM...: looks in the output for the tests' count and for the tool's summary.
clean() {
    local tool=$1 start=$SECONDS options=(--error-exitcode 3) verdict=clean
    shift
    # Libraries probe the driver with calls that may fail; our own calls are checked where they are made.
    options+=(--report-api-errors no)
    set -- "$@" --no-check --algorithms "$work/algorithms"
    [ "$tool" = memcheck ] || set -- "$@" --no-cublas --algorithms "$work/own"
    "$@" </dev/null >"$log" 2>&1 || cat "$log"
    echo "== $tool: $*"
    compute-sanitizer --tool "$tool" "${options[@]}" "$@" </dev/null 2>&1 | tee "$log"
    local code=${PIPESTATUS[0]}
    if [ "$code" != 0 ] || ! grep -qE 'SUMMARY: 0 (errors|hazards)' "$log"; then
        verdict="FAILED: exit status $code"
    elif grep -q 'no CUDA device' "$log" || ! grep -qE '^[^= ]+: [1-9][0-9]* passed, 0 failed' "$log"; then
        verdict="FAILED: the tests did not run, or did not pass"
    fi
    [ "$verdict" = clean ] || status=1
    echo "sanitize_cuda: $tool: $verdict ($((SECONDS - start)) s)"
}

for tool in ${TOOLS:-memcheck synccheck racecheck}; do clean "$tool" "$@"; done
exit $status
