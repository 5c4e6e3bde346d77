#!/bin/bash
# examples/python/llm42.py by the tests of tests/python/tests.py, each in a process of its own. It needs numpy.
source tests/check.sh
OUT=$B/python
rm -rf "$OUT"
mkdir -p "$OUT"
log=$OUT/log
export B OUT CC STB
LLM42_LIBRARY=$(realpath -m "$B")/libllm42_python.so
export LLM42_LIBRARY PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}

need_numpy
has() { "$python" -c "import $1" 2>/dev/null; }
tests=$("$python" tests/python/tests.py --list 2>&1) || { echo "$tests" && tests=list; }
for t in $tests; do
    if [ "$t" = notebook ] && ! has nbclient,ipykernel,matplotlib; then
        skip "$t" "it needs the Python packages nbclient, ipykernel and matplotlib"
        continue
    fi
    check "$t" timeout 300 "$python" tests/python/tests.py "$t"
done
check "lines of at most 120 columns" awk 'length > 120 { print FILENAME ":" FNR; wide = 1 } END { exit wide }' \
    examples/python/*.py tests/python/*.py
# What is not there is said in one line that names what to do.
check "no library" bash -c 'LLM42_LIBRARY=/nowhere.so "$0" -c "import sys; sys.path.append(\"examples/python\")
import llm42" 2>&1 | tail -n 1 | grep "no libllm42_python.so at /nowhere.so: run .make shared."' "$python"
has tokenizers || echo "  tokenizers: no package tokenizers: only the library's own was tested"
finish
