#!/bin/bash
# The lecture demo as a viewer sees it: at least one rollback that nothing injected, and the same requests identical.
set -u
passed=0 failed=0
check() {  # check TEXT PATTERN...: every pattern is in the text
    for pattern in "${@:2}"; do
        if grep -qE "$pattern" <<<"$1"; then
            passed=$((passed + 1))
        else
            echo "test_demo: FAILED: no line with '$pattern'"
            failed=$((failed + 1))
        fi
    done
}
out=$("${B:-build}/rollback" </dev/null 2>&1)
check "$out" '^rollbacks +[1-9][0-9]* in [0-9]+ windows' '^marked +([0-9]+) of \1 identical' '^not marked +[1-9][0-9]* of [0-9]+ drift'
out=$("${B:-build}/rollback" --inject 0.2 --verify wait </dev/null 2>&1)
check "$out" 'inject' '^marked +([0-9]+) of \1 identical'
out=$("${B:-build}/rollback" --prefill invariant </dev/null 2>&1)
check "$out" 'prompts among others, in an INVARIANT pass' '^marked +([0-9]+) of \1 identical'
out=$("${B:-build}/determinism" --suite single --tokens 160 </dev/null 2>&1)
check "$out" '^NONDETERMINISTIC .* [2-9] ' '^DVR +[0-9]+ +[0-9]+ +1 +1 ' 'every promise held'
out=$("${B:-build}/rollback" --planner deadline </dev/null 2>&1)
check "$out" '^marked +([0-9]+) of \1 identical'
out=$("${B:-build}/generate" --prompt "It was a dark and stormy night" --deterministic --planner every </dev/null 2>&1)
check "$out" '^It was a dark and stormy night.{100}'
echo "test_demo: $passed passed, $failed failed"
[ "$failed" = 0 ]
