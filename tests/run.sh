#!/bin/bash
# Runs the test programs and scripts named on the command line, JOBS at a time, and adds up the line
# `NAME: N passed, N failed[, N skipped]` that each ends with. A program that ends otherwise counts as one failure.
# What a test printed is shown when it has ended. The last line is the sum; the exit status is 1 if anything failed.
# From the environment: JOBS (default 1).
set -u
# Several tests run at once, so threads that wait for each other leave their cores to others. This changes no result.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
jobs=${JOBS:-1}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0 skipped=0

# start N TEST: its output goes to N.log, its status, seconds and seconds of CPU time to N.end.
start() (
    local run begin=$SECONDS
    case $2 in *.sh) run=(bash "$2") ;; *) read -ra run <<<"$2" ;; esac  # a program may have options
    "${run[@]}" >"$dir/$1.log" 2>&1 </dev/null
    echo "$? $((SECONDS - begin))" >"$dir/$1.part"
    times >"$dir/$1.times"
    awk -F '[ms ]+' 'NR == 2 { printf "%.0f\n", 60 * ($1 + $3) + $2 + $4 }' "$dir/$1.times" >>"$dir/$1.part"
    mv "$dir/$1.part" "$dir/$1.end"
)

# report N TEST: shows a test that has ended and counts it.
report() {
    local name status took cpu last
    name=$(basename "${2%% *}" .sh)
    read -rd '' status took cpu <"$dir/$1.end"
    cat "$dir/$1.log"
    last=$(tail -n 1 "$dir/$1.log")
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
    [ "$took" -lt 5 ] || echo "  ($name took $took s, $cpu s of CPU time)"
}

# The longest go first, so that none is left to run alone at the end.
tests=()
for long in test_cuda_build test_web test_tools test_serve test_determinism test_isa test_accuracy test_corners \
    test_header test_referee test_batch test_install test_examples test_demo test_ranks test_sweep test_draft \
    test_python test_lesson fuzz_engine; do
    for test in "$@"; do [[ $(basename "${test%% *}" .sh) = "$long" ]] && tests+=("$test"); done
done
for test in "$@"; do
    [[ " ${tests[*]-} " == *" $test "* ]] || tests+=("$test")
done

# Some wait more than they compute: these run one after the other beside the rest.
beside=() rest=()
for ((i = 0; i < ${#tests[@]}; i++)); do
    case $jobs:$(basename "${tests[i]%% *}" .sh) in
    1:*) rest+=("$i") ;;
    *:test_slurm | *:test_files) beside+=("$i") ;;
    *) rest+=("$i") ;;
    esac
done
lane=
if [ ${#beside[@]} -gt 0 ]; then
    for i in "${beside[@]}"; do start "$i" "${tests[i]}"; done &
    lane=$!
fi

shown=() next=0
while [ ${#shown[@]} -lt ${#tests[@]} ]; do
    while [ $next -lt ${#rest[@]} ] && [ "$(jobs -rp | grep -vcx "$lane")" -lt "$jobs" ]; do
        start "${rest[next]}" "${tests[rest[next]]}" &
        next=$((next + 1))
    done
    wait -n
    for ((i = 0; i < ${#tests[@]}; i++)); do
        [ -e "$dir/$i.end" ] && [[ " ${shown[*]-} " != *" $i "* ]] || continue
        report $i "${tests[i]}"
        shown+=("$i")
    done
done
skips=
[ "$skipped" = 0 ] || skips=", $skipped skipped"
echo "$passed passed, $failed failed$skips"
[ "$failed" = 0 ]
