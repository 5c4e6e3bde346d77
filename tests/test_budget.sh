#!/bin/bash
# Lines are a budget: the header, each of its sections, its functions and its companions have a limit, so that a reader
# can finish them. Whoever adds lines finds as many that can go.
source tests/check.sh
out=${B:-build}/budget
mkdir -p "$out"
log=$out/log

# within WHAT LINES LIMIT
within() {
    echo "$1: $2 lines, at most $3" >"$log"
    check "$1" test "$2" -le "$3"
}

within llm42.h "$(wc -l <llm42.h)" 7500
within llm42.cu "$(wc -l <llm42.cu)" 3700
within kernels.cu "$(wc -l <kernels.cu)" 4500
within "tests/, without their data" "$(find tests -name '*.[ch]' -o -name '*.c[cu]' -o -name '*.py' -o -name '*.sh' \
    -o -name '*.awk' -o -name '*.mk' -o -path 'tests/cases/*' | xargs cat | wc -l)" 33000
within "llm42.h, its documentation" "$(($(grep -n '^#ifndef LLM42_H$' llm42.h | cut -d: -f1) - 1))" 200
first=$(grep -n '^#ifndef LLM42_H$' llm42.h | cut -d: -f1) last=$(grep -n '^#endif  // LLM42_H$' llm42.h | cut -d: -f1)
within "llm42.h, its API" "$((last - first + 1))" 1000
while read -r section lines; do
    limit=400
    [ "$section" = cpu ] && limit=1000
    within "llm42.h, section $section" "$lines" $limit
done < <(awk 'function put() { if (name) print name, NR - begin } /^\/\/ >>[a-z]/ { put(); name = substr($2, 3); begin = NR }
    /^#endif  \/\/ LLM42_IMPLEMENTATION$/ { put(); name = "" }' llm42.h)
while read -r release lines; do
    within "CHANGELOG.md, $release" "$lines" 120
done < <(awk 'function put() { if (name) print name, NR - begin } /^## / { put(); name = $2; begin = NR }
    END { NR++; put() }' CHANGELOG.md)
for page in sweep/results/*/*.md sweep/results/README.md; do within "$page" "$(wc -l <"$page")" 350; done
within llm42_calibration.h "$(wc -l <examples/util/llm42_calibration.h)" 360
within llm42_draft.h "$(wc -l <examples/util/llm42_draft.h)" 790
within llm42_transcript.h "$(wc -l <examples/util/llm42_transcript.h)" 545
within llm42_sm90.h "$(wc -l <examples/util/llm42_sm90.h)" 650
within llm42_sha256.h "$(wc -l <examples/util/llm42_sha256.h)" 365
within llm42_trace.h "$(wc -l <examples/util/llm42_trace.h)" 220
within llm42_synthetic.h "$(wc -l <examples/util/llm42_synthetic.h)" 200
within llm42_metrics.h "$(wc -l <examples/util/llm42_metrics.h)" 120
within tokenizer.h "$(wc -l <examples/util/tokenizer.h)" 1330
within tok_json.h "$(wc -l <examples/util/tok_json.h)" 310
within tok_nfc.h "$(wc -l <examples/util/tok_nfc.h)" 550

# A function begins in the first column, where its signature may go on in the next lines, and ends with a brace there.
# Programs list their options in main or parse. Those of a struct begin and end four columns further right.
exempt='(main|parse)'
long_functions() {
    awk -v exempt="[ *]$exempt\\\\(" 'function ends() { if (FNR - begin + 1 > 60 && name !~ exempt)
            print FILENAME ":" begin ": " FNR - begin + 1 " lines: " name; begin = open = 0 }
        FNR == 1 { inside = 0 } FNR == 1 || !open && /^$/ { begin = open = 0 }
        !open && !inside && /(^|> )struct [^()]*\{$/ { inside = 1; begin = 0; next }
        inside && /^}/ { inside = begin = open = 0; next }
        !open && (inside ? /^    [a-zA-Z_]/ : /^[a-zA-Z_]/) { begin = FNR; name = $0
            counts = !/^ *(typedef|union|enum|extern)/ && !/ = / }
        begin && !open && FNR > begin { name = name $0 }
        begin && / \{$/ { open = 1 }
        open && (inside ? /^    }/ : /^}/) { if (counts) ends(); begin = open = 0 }' "$@"
}
long=$(long_functions llm42.h llm42.cu kernels.cu examples/*.[ch] examples/*/*.[ch] sweep/*.[ch] sweep/*/*.[ch])
echo "$long" >"$log"
check "functions of at most 60 lines" test -z "$long"
wide=$(awk 'length > 120 { print FILENAME ":" FNR }' $(git ls-files '*.c' '*.h' '*.cu' 2>/dev/null || ls ./*.h ./*.cu))
echo "$wide" >"$log"
check "lines of at most 120 columns" test -z "$wide"
# Controls: a function of 61 lines is found, one of 60 is not.
for lines in 60 61; do
    { echo 'static int f(void) {'; yes '    g();' | head -n $((lines - 2)); echo '}'; } >"$out/f$lines.c"
    { printf '%s\n' 'template <int N>' '__global__ void' '    f(int i) {'; yes '    g();' | head -n $((lines - 3))
        echo '}'; } >"$out/f$lines.cu"
    { printf '%s\n' 'template <int N> struct s {' '    int a, b;'; for f in e f; do
        echo "    void $f() const {"; yes '        g();' | head -n $((lines - 2)); echo '    }'; done; echo '};'
    } >"$out/f$lines.h"
done
echo "one of 60 and 61 lines" >"$log"
for suffix in c cu h; do
    check "a function of 61 lines is found, .$suffix" test -n "$(long_functions "$out/f61.$suffix")"
    check "one of 60 is not, .$suffix" test -z "$(long_functions "$out/f60.$suffix")"
done
finish
