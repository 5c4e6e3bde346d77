#!/bin/bash
# The tables of the pages, and the numbers in their text, are those of the files that their specifications name
# (sweep/pages): `make pages` would change nothing. Controls: each change of a page, a file or a specification is found.
# The table of a GPU's special functions is that of the source.
export LC_ALL=C
source tests/check.sh
out=${B:-build}/numbers
mkdir -p "$out"
log=$out/log
pages() { python3 sweep/pages/pages.py --check "$@"; }
# differs FILE CHANGE MESSAGE: where sed has made this change, a page is not that of its files, and a line says why
differs() {
    sed -i.kept "$2" "$root/$1" && ! cmp -s "$root/$1" "$root/$1.kept" || return 1
    pages --root "$root" >"$out/differs" 2>&1
    local status=$?
    mv "$root/$1.kept" "$root/$1"
    cat "$out/differs"
    [ $status = 1 ] && grep -qF "$3" "$out/differs" && ! grep -vF "$3" "$out/differs" | grep -qE 'Traceback|stands only'
}
if command -v python3 >/dev/null; then
    check "make pages would change nothing, and numbers in text are those of files" pages
    sum=$(tail -n 1 "$log")
    echo "  $sum"
    check "pages with tables and numbers" grep -qE '^[12][0-9] pages with [3-9][0-9] tables and [1-9][0-9]{2} num' <<<"$sum"
    table=sweep/results/science/special_functions.tsv
    constants() { python3 sweep/science/sfu_constants.py "$@" | cmp - "$table"; }
    check "the table of special functions has the constants of the source" constants
    rm -rf "$out/source" && mkdir -p "$out/source/examples/util" && cp llm42.h "$out/source"
    sed 's/13, 2023) >> 15/13, 2024) >> 15/' examples/util/llm42_sfu.h >"$out/source/examples/util/llm42_sfu.h"
    check "control: another constant is found" eval \
        'python3 sweep/science/sfu_constants.py "$out/source" | grep -P "\t2024\t" && ! constants "$out/source"'
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
row {1.5; 0}, {a.sum('ms', case='fast'); +1} ms | {len(twice.all('ms', case='fast'))}

table: of
each row of a where ms and ms > 4.5
rows: rows
ms [g2]: a('ms', case='fast', rows=rows) * 100

A pass takes {2} ms, and
another {0}.
= a('ms', rows=1)
= max(a.all('ms', case='fast'))

{0} of {0}
= sum(row['ms'] for row in a.rows if row['rows'] > 1 and row['case'] == 'fast'), 8
END
    for name in each rows of; do printf '<!-- table: %s -->\n<!-- end -->\n' $name; done >"$root/d/page.md"
    printf '\nA pass takes 4.13\nms, and another 5.\n5 of 8\n' >>"$root/d/page.md"
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
5 of 8
END
    while IFS='|' read -r file change message; do
        check "a change is found: $change" differs "$file" "$change" "$message"
    done <<'END'
d/page.md|s/9.1 ms/9.2 ms/|d/page.md: table rows is not that of the files
d/page.md|/none/d|d/page.md: table each is not that of the files
d/page.md|s/4.13$/4.12/|d/page.md: has not: A pass takes 4.13 ms, and another 5.
d/page.md|s/4.13$/4.13 ms, and another 5. A pass takes 4.14/|d/page.md: has also: A pass takes 4.14
d/page.md|s/table: of/table: if/|stands only on the page, or only
d/page.md|0,/ end /s///|d/page.md: the marks of tables are no pairs
d/a.tsv|s/4.125/4.25/|d/page.md: table each is not that of the files
d/a.tsv|s/slow\t/fast\t6/|a.tsv has 2 rows for ms
d/a.tsv|1,2d|d/page.md: table each is not that of the files
sweep/pages/page.txt|s/rows=rows/row=rows/|no column row in a.tsv
sweep/pages/page.txt|s/ms \[2\]/ms/|4.125: say how many decimals it has
sweep/pages/page.txt|s/another {0}/another/|2 values
d/a.tsv|/^#/!s/ms/msec/|sweep/pages/page.txt: d/page.md: no column ms in a.tsv: table: each
d/a.tsv|/^#/!s/rows/lines/|no column rows in a.tsv: table: of
d/a.tsv|/^#/!s/case/kind/|case of each is a column of no file
d/a.tsv|s/4.125//|a.tsv has an empty cell for ms, {'case': 'fast'}
d/a.tsv|s/4.125/-nan/|a.tsv has an empty cell for ms, {'rows': 1}
d/a.tsv|s/4.125/&\t1/|a.tsv has more cells than columns
d/a.tsv|s/fast/quick/|a.tsv has 0 rows for ms, {'case': 'fast'}
sweep/pages/page.txt|s/a.maybe(/a(/|a.tsv has 0 rows for ms, {}, {'rows': 1, 'what': 'none', 'case': 'slow*'}
sweep/pages/page.txt|s/> 1 and/> 9 and/|no values to add: {0} of {0}
sweep/pages/page.txt|s/^a = a.tsv/a = none.tsv/|sweep/pages/page.txt: d/page.md: cannot read none.tsv: No such file or directory
sweep/pages/page.txt|s/^a = a.tsv/a = 1 +/|sweep/pages/page.txt: d/page.md: SyntaxError: invalid syntax
sweep/pages/page.txt|s/^a = a.tsv/a/|sweep/pages/page.txt: d/page.md: what does this line mean: a
sweep/pages/page.txt|s/page.md/none.md/|sweep/pages/page.txt: d/none.md: cannot read d/none.md: No such file or directory
sweep/pages/page.txt|d|sweep/pages/page.txt: its first line does not name a page
d/page.md|s/^5 of/15 of/|has not: 5 of 8
d/page.md|s/^5 of/2.5 of/|has not: 5 of 8
d/page.md|s/^5 of/-5 of/|has not: 5 of 8
d/page.md|s/of 8$/&.25/|has not: 5 of 8
d/page.md|s/of 8$/&,000/|has not: 5 of 8
d/page.md|s/another 5\./&25/|has not: A pass takes 4.13 ms, and another 5.
END
    both() { pages --root "$root" "sweep/pages/$1.txt" sweep/pages/page.txt >"$out/both"; }
    check "a specification that does not exist, and then a right page" eval '! both none && diff - "$out/both"' <<'END'
sweep/pages/none.txt: cannot read sweep/pages/none.txt: No such file or directory
2 pages with 3 tables and 4 numbers in their text
END
    cp "$root/sweep/pages/page.txt" "$root/sweep/pages/copy.txt"
    check "two specifications for one page" eval '! both copy && diff - "$out/both"' <<'END'
sweep/pages/page.txt: d/page.md: sweep/pages/copy.txt is for this page, too
2 pages with 3 tables and 4 numbers in their text
END
else
    skip "tables and numbers of pages" "python3 is not here"
fi
finish
