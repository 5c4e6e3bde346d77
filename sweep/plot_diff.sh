#!/bin/bash
# Draws what build/diff --out has written, as PNG and SVG: where two sides begin to differ, and how the difference
# grows. Needs gnuplot.
#
#     build/diff -a schedule=fast,rows=8 -b rows=9 --out FILE
#     bash sweep/plot_diff.sh FILE [--title TEXT] [--out BASE]
#
# It writes BASE.png and BASE.svg; default: FILE without .tsv. Above, a cell for each operator of each layer has the
# largest difference of a row, in % of the row, which also gives its colour; it is grey and empty where all values are
# equal to the bit. Below, lines show the share of values that differ, and this difference. (The largest distance in
# ulps is in FILE only: where a value near 0 changes its sign it says nothing.) A file that was cut short is refused.
set -euo pipefail
export LC_ALL=C
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
source "$here/figures/draw.inc"

fail() {  # fail STATUS TEXT
    printf 'plot_diff: %s\n' "$2" >&2
    exit "$1"
}

file='' base='' title=''
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
        exit 0
        ;;
    --out | --title)
        [ $# -gt 1 ] && [ -n "$2" ] || fail 2 "$1: its value is missing"
        case $2 in *[[:cntrl:]]*) fail 2 "$1: its value has a tab, a line break or another control character" ;; esac
        if [ "$1" = --out ]; then base=$2; else title=$2; fi
        shift
        ;;
    -*) fail 2 "no option $1: --help lists them" ;;
    *)
        [ -z "$file" ] || fail 2 "two files, $file and $1: draw one at a time"
        file=$1
        ;;
    esac
    shift
done
[ -n "$file" ] || fail 2 "which file? bash sweep/plot_diff.sh FILE [--title TEXT] [--out BASE]"
[ -f "$file" ] && [ -r "$file" ] || fail 1 "$file: cannot read this file"
grep -q '^# llm42 .* diff$' "$file" || fail 1 "$file: not of build/diff --out"
[ "$(tail -n 1 "$file")" = "# end" ] || fail 1 "$file: the last line is not '# end': the file is cut short"
! grep -q '^# first: none' "$file" || fail 1 "$file: all values are equal to the bit: there is nothing to draw"
base=${base:-${file%.tsv}}
case $base in */*) folder=${base%/*} ;; *) folder=. ;; esac
[ -d "${folder:-/}" ] && [ -w "${folder:-/}" ] || fail 1 "$folder: files cannot be written there (--out BASE)"
command -v gnuplot >/dev/null || fail 1 "gnuplot is not installed: install gnuplot-nox, or run make deps"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
line() { sed -n "s/^# $1: *//p" "$file"; }
# place layer column relative label share; column: of the operator in its layer, from 1; 0: outside the layers. Where a
# value is not finite, the difference has no size: the label is inf.
rows "$file" layer operator values differing relative_pct >"$work/rows"
awk -F '\t' -v OFS='\t' -v names="$work/names" '
    function short(v, text) {
        text = v >= 9.95 ? sprintf("%.0f", v) : v >= 0.995 ? sprintf("%.1f", v) : v >= 0.0995 ? sprintf("%.2f", v) : \
            sprintf(v >= 0.001 ? "%.2g" : "%.0e", v)
        sub(/e-0/, "e-", text)
        return text
    }
    {
        if ($1 != last) column = 0
        last = $1
        column = $1 < 0 ? 0 : column + 1
        if ($1 == 0) printf "%s\n", $2 >names
        sized = $5 ~ /^[0-9.e+-]+$/
        label = !$4 ? " " : sized ? short($5) : "inf"
        print NR, $1, column, ($4 && sized && $5 > 0 ? $5 : "nan"), label, ($4 ? 100 * $4 / $3 : "nan")
    }' "$work/rows" >"$work/table"
awk -F '\t' '
    $2 >= layers { layers = $2 + 1 }
    $3 > columns { columns = $3 }
    $4 != "nan" && (!most || $4 > most) { most = $4 }
    $4 != "nan" && (!low || $4 < low) { low = $4 }
    $6 != "nan" && (!least || $6 < least) { least = $6 }
    END {
        printf "places = %d\nlayers = %d\ncolumns = %d\n", NR, layers, columns
        if (low && (!least || low < least)) least = low
        if (low < most / 1000) low = most / 1000  # what is smaller has the palest colour
        printf "most = %g\nlow = %g\nleast = %g\n", most ? most : 1, low ? low : 1, least ? least : 1
    }' "$work/table" >"$work/settings"
{
    gp_set table "$work/table"
    i=0
    while read -r name; do
        i=$((i + 1))
        [ $i -gt 1 ] || echo "array operator[$(wc -l <"$work/names")]"
        printf 'operator[%d] = "%s"\n' $i "${name//_/\\n}"
    done <"$work/names"
    gp_texts 1100 "${title:-Where two ways to run the same rows begin to differ}" \
        "a: $(line a);   b: $(line b)" "both: $(line both)" "$(line first | sed 's/^/first: /')"
} >>"$work/settings"
draw "$here/plot/diff.gp" "$base" "$work/settings" 2>"$work/log" ||
    fail 1 "the pictures could not be made: $(grep -v 'warning\|^ *^* *$' "$work/log" | head -n 1)"
echo "$base.png $base.svg"
