#!/bin/bash
# The numbers of the pages are those of the files that they name. Each line of numbers.tsv has a page, a phrase of it in
# which {} stands for a number, the files with the data, an awk program that prints the numbers in their order, and how
# each is rounded: decimals, or g2 for two significant digits. Controls: with any one number changed in its last digit
# the phrase is not on the page.
#
# The awk programs know rows by the names of columns: c(NAME) is a field, is(NAME, VALUE, ...) compares up to four, and
# keep(V) collects values for least(), most(), median() and count(). revision is that of the kernels of the last file.
set -u
export LC_ALL=C
source tests/check.sh
out=${B:-build}/numbers
mkdir -p "$out"
log=$out/log
read -r -d '' functions <<'AWK'
FNR == 1 { split("", at) }
/^# cuda kernels: / { revision = $0; sub(/.*: /, "", revision) }
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

# The tables and numbers of the pages that have a specification (sweep/pages). Controls: each change is found.
pages() { python3 sweep/pages/pages.py --check "$@"; }
differs() {  # differs FILE CHANGE MESSAGE: where sed has made this change, a page is not that of its files
    sed -i.kept "$2" "$root/$1" && ! cmp -s "$root/$1" "$root/$1.kept" || return 1
    ! pages --root "$root" >"$out/differs" 2>&1 && cat "$out/differs" && grep -qF "$3" "$out/differs" &&
        mv "$root/$1.kept" "$root/$1"
}
if command -v python3 >/dev/null; then
    check "make pages would change nothing, and numbers in text are those of files" pages
    tail -n 1 "$log"
    root=$out/pages
    rm -rf "$root" && mkdir -p "$root/sweep/pages" "$root/d"
    printf '# date: 2026-11-29\n# cuda kernels: 9\nrows\tcase\tms\n1\tfast\t4.125\n8\tfast\t5\n8\tslow\t\n' \
        >"$root/d/a.tsv"
    cat >"$root/sweep/pages/page.txt" <<'END'
page: d/page.md
a = a.tsv
twice = a.tsv a.tsv

# A comment.
table: each
each rows: 1; 8
each what | case: quick |
    fast; none | slow*
rows: 1000 * rows
what: what
ms [2]: a.maybe('ms')
revision: head('a.tsv', 'cuda kernels')
day: head('a.tsv', 'date')

table: rows
header all | sum
row {what; 0}, {a.sum('ms'); +1} ms | {len(twice.all('ms'))}

table: of
each row of a where ms and ms > 4.5
rows: rows
ms [g2]: a('ms', case='fast', rows=rows) * 100

A pass takes {2} ms, and
another {0}.
= a('ms', rows=1)
= max(a.all('ms'))
END
    sed -i 's/{what; 0}/{1.5; 0}/' "$root/sweep/pages/page.txt"
    for name in each rows of; do printf '<!-- table: %s -->\n<!-- end -->\n' $name; done >"$root/d/page.md"
    printf '\nA pass takes 4.13\nms, and another 5.\n' >>"$root/d/page.md"
    check "tables that are not there yet" eval "! pages --root $root >$log"
    check "they are written" python3 sweep/pages/pages.py --root "$root"
    check "and then right" pages --root "$root"
    check "the page" diff "$root/d/page.md" - <<'END'
<!-- table: each -->
| rows | what | ms | revision | day |
| --- | --- | --- | --- | --- |
| 1,000 | quick | 4.13 | 9 | 2026-11-29 |
| 1,000 | none | | 9 | 2026-11-29 |
| 8,000 | quick | 5.00 | 9 | 2026-11-29 |
| 8,000 | none | | 9 | 2026-11-29 |
<!-- end -->
<!-- table: rows -->
| all | sum |
| --- | --- |
| 2, +9.1 ms | 4 |
<!-- end -->
<!-- table: of -->
| rows | ms |
| --- | --- |
| 8 | 5e+02 |
<!-- end -->

A pass takes 4.13
ms, and another 5.
END
    while IFS='|' read -r file change message; do
        check "a change is found: $change" differs "$file" "$change" "$message"
    done <<'END'
d/page.md|s/9.1 ms/9.2 ms/|d/page.md: table rows is not that of the files
d/page.md|/none/d|d/page.md: table each is not that of the files
d/page.md|s/4.13$/4.12/|d/page.md: has not: A pass takes 4.13 ms, and another 5.
d/page.md|s/4.13$/4.13 ms, and another 5. A pass takes 4.14/|d/page.md: has also: A pass takes 4.14
d/page.md|s/table: of/table: if/|d/page.md: table if stands only on the page
d/page.md|0,/ end /s///|d/page.md: the marks of tables are no pairs
d/a.tsv|s/4.125/4.25/|d/page.md: table each is not that of the files
d/a.tsv|s/slow/fast/|a.tsv has 2 rows for ms
d/a.tsv|1,2d|d/page.md: table each is not that of the files
sweep/pages/page.txt|s/rows=rows/row=rows/|a.tsv has no column row
sweep/pages/page.txt|s/ms \[2\]/ms/|4.125: say how many decimals it has
sweep/pages/page.txt|s/another {0}/another/|2 values
END
else
    skip "tables and numbers of pages" "python3 is not here"
fi
finish
