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
    elif [ "$t" = torch ] && ! has torch; then
        skip "$t" "it needs PyTorch"
        continue
    fi
    check "$t" timeout 300 "$python" tests/python/tests.py "$t"
done
check "lines of at most 120 columns" awk 'length > 120 { print FILENAME ":" FNR; wide = 1 } END { exit wide }' \
    examples/python/*.py tests/python/*.py
# The vectors for other engines are what the library computes. Controls: one bit that is another, and the other arithmetic.
vectors=examples/tiny42/vectors.tsv
conform() { PYTHONPATH=examples/python "$python" examples/python/conformance.py "$@"; }
finds() { conform "$1" 2 >"$OUT/said" && return 1; grep -x "$2" "$OUT/said"; }
check "the vectors are made" env PYTHONPATH=examples/python "$python" examples/python/vectors.py "$OUT/vectors.tsv"
check "the vectors are the same again" cmp $vectors "$OUT/vectors.tsv"
check "the vectors at one row and in windows" conform $vectors 1 2 $([ "$slow" = 1 ] || seq 3 16)
awk -F '\t' -v OFS='\t' 'NR == 30 { n = length($3); at = index("0123456789abcdef", substr($3, n))
    $3 = substr($3, 1, n - 1) substr("1032547698badcfe", at, 1) } 1' $vectors >"$OUT/bit.tsv"
check "another bit is found" finds "$OUT/bit.tsv" "fp32, 2 rows: of 40 answers 40 have the tokens, and 39 the bits"
awk -F '\t' -v OFS='\t' '!/^#|^prompt/ { t = $2; p = $3; $2 = $4; $3 = $5; $4 = t; $5 = p } 1' $vectors >"$OUT/other.tsv"
check "another arithmetic is found" finds "$OUT/other.tsv" "fp32, 2 rows: of 40 answers 27 have the tokens, and 0 the bits"
# What is not there is said in one line that names what to do.
check "no library" bash -c 'LLM42_LIBRARY=/nowhere.so "$0" -c "import sys; sys.path.append(\"examples/python\")
import llm42" 2>&1 | tail -n 1 | grep "no libllm42_python.so at /nowhere.so: run .make shared."' "$python"
has tokenizers || echo "  tokenizers: no package tokenizers: only the library's own was tested"
finish
