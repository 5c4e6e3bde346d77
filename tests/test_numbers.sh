#!/bin/bash
# The numbers of the pages are those of the files that they name. Each line of numbers.tsv has a page, a phrase of it in
# which {} stands for a number, the files with the data, an awk program that prints the numbers in their order, and how
# each is rounded: decimals, or g2 for two significant digits. Controls: with any one number changed in its last digit
# the phrase is not on the page.
#
# The awk programs know rows by the names of columns: c(NAME) is a field, is(NAME, VALUE, ...) compares up to four, and
# keep(V) collects values for least(), most(), median() and count().
set -u
export LC_ALL=C
source tests/check.sh
out=${B:-build}/numbers
mkdir -p "$out"
log=$out/log
read -r -d '' functions <<'AWK'
FNR == 1 { split("", at) }
/^#/ { next }
!length(at) { for (i = 1; i <= NF; i++) at[$i] = i; next }
function c(name) { return name in at ? $at[name] : "" }
function is(n1, v1, n2, v2, n3, v3, n4, v4) {
    return c(n1) == v1 && (n2 == "" || c(n2) == v2) && (n3 == "" || c(n3) == v3) && (n4 == "" || c(n4) == v4)
}
function keep(v,    i) { for (i = kept++; i && kept_value[i] > v + 0; i--) kept_value[i + 1] = kept_value[i]
    kept_value[i + 1] = v + 0 }
function count() { return kept + 0 }
function least() { return kept_value[1] }
function most() { return kept_value[kept] }
function median() { return (kept_value[int((kept + 1) / 2)] + kept_value[int(kept / 2) + 1]) / 2 }
AWK

# found FILE CHANGE: is the phrase on the page? From the environment: phrase, values, rounding. CHANGE says which number
# a control changes; 0: none. Prints the phrase that it looked for.
found() {
    awk -v change="$2" '
        function text(v, r, changed,    s, n) {
            if (r ~ /^g/) return sprintf("%." substr(r, 2) "g", changed ? 1.5 * v + 1 : v)
            s = sprintf("%." r "f", v * (1 + 1e-12) + (changed ? 10 ^ -r : 0))  # halves go up
            if (s + 0 == 0) sub(/^-/, "", s)
            for (n = match(s, /[0-9]+/) + RLENGTH - 3; n > RSTART; n -= 3) s = substr(s, 1, n - 1) "," substr(s, n)
            return s
        }
        { page = $0 }
        END {
            numbers = split(ENVIRON["values"], value, " ")
            roundings = split(ENVIRON["rounding"], r, " ")
            parts = split(ENVIRON["phrase"], part, /[{][}]/)
            if (!numbers || numbers != parts - 1) {
                print "the awk program printed " numbers + 0 " numbers for: " ENVIRON["phrase"]
                exit !(change > 0)
            }
            wanted = part[1]
            for (i = 1; i <= numbers; i++)
                wanted = wanted text(value[i], r[i < roundings ? i : roundings], i == change) part[i + 1]
            print "looked for: " wanted
            exit !index(page, wanted)
        }' "$1"
}
absent() { ! found "$@"; }

numbers=0
declare -A pages=()
while IFS=$'\t' read -r page phrase files program rounding; do
    case $page in '' | '#'*) continue ;; esac
    text=$out/${page//\//_}
    [ -n "${pages[$page]:-}" ] || tr -s '[:space:]' ' ' <"$page" >"$text"
    pages[$page]=1
    # shellcheck disable=SC2086  # files are several
    values=$(awk -F '\t' "$functions $program" $files | tr '\n' ' ')
    export phrase values rounding
    check "$page has the numbers of $files" found "$text" 0
    for ((i = 1; i <= $(wc -w <<<"$values"); i++)); do
        check "$page: number $i of \"$phrase\" may not be another" absent "$text" "$i"
        numbers=$((numbers + 1))
    done
done <tests/numbers.tsv
echo "  $numbers numbers of ${#pages[@]} pages compared with data"
echo "only $numbers numbers" >"$log"
check "at least 100 numbers are compared" test "$numbers" -ge 100
finish
