#!/bin/bash
# Draws what build/diff --out has written, as PNG and SVG: where two sides begin to differ, and how the difference
# grows. Needs gnuplot.
#
#     build/diff -a schedule=fast,rows=8 -b rows=9 --out FILE
#     bash sweep/plot_diff.sh FILE [--title TEXT] [--out BASE]
#
# It writes BASE.png and BASE.svg; default: FILE without .tsv. Above, a cell for each operator of each layer has the
# largest distance of two values in ulps; it is grey and empty where all values are equal to the bit. Below, lines show
# the share of values that differ, and the largest difference of a row. A file that was cut short is refused.
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
# place layer column ulps label share relative; column: of the operator in its layer, from 1; 0: outside the layers.
rows "$file" layer operator values differing largest_ulps relative_pct >"$work/rows"
awk -F '\t' -v OFS='\t' -v names="$work/names" '
    {
        if ($1 != last) column = 0
        last = $1
        column = $1 < 0 ? 0 : column + 1
        if ($1 == 0) printf "%s\n", $2 >names
        u = $5
        label = u < 1e3 ? sprintf("%.3g", u) : u < 1e4 ? sprintf("%.0f", u) : sprintf("%.0fk", u / 1e3)
        if (u >= 1e6) label = sprintf("%.3gM", u / 1e6)
        if ($4 == 0 || u == "inf") label = $4 ? "inf" : " "
        relative = ($4 && $6 != "inf" && $6 > 0) ? $6 : "nan"
        print NR, $1, column, ($4 ? u == "inf" ? 1e9 : u : "nan"), label, ($4 ? 100 * $4 / $3 : "nan"), relative
    }' "$work/rows" >"$work/table"
awk -F '\t' '
    $2 >= layers { layers = $2 + 1 }
    $3 > columns { columns = $3 }
    $4 != "nan" && $4 > most { most = $4 }
    $6 != "nan" && (!least || $6 < least) { least = $6 }
    $7 != "nan" && (!least || $7 < least) { least = $7 }
    END {
        printf "places = %d\nlayers = %d\ncolumns = %d\n", NR, layers, columns
        printf "most = %g\nleast = %g\n", most, least ? least : 1
    }' "$work/table" >"$work/settings"
{
    gp_set table "$work/table"
    i=0
    while read -r name; do
        i=$((i + 1))
        [ $i -gt 1 ] || echo "array operator[$(wc -l <"$work/names")]"
        printf 'operator[%d] = "%s"\n' $i "${name//_/\\n}"
    done <"$work/names"
    {
        echo "${title:-Where two ways to run the same rows begin to differ}"
        echo "a: $(line a);   b: $(line b)"
        echo "both: $(line both)"
        line first | sed 's/^/first: /; s/: a /\na /'
        ! grep -q '^# ulps_of: bf16' "$file" || awk '$4 != "nan" && $4 >= 10000 { far = 1 }
            END { if (far) print "values near 0 that change their sign are tens of thousands (k) of ulps apart" }' \
            "$work/table"
    } | fold -s -w 92 >"$work/head"
    echo "array head[$(wc -l <"$work/head")]"
    i=0
    while IFS= read -r text; do
        i=$((i + 1))
        gp_set "head[$i]" "$(gp_text "$text")"
    done <"$work/head"
    gp_set unit "$(sed -n 's/^# ulps_of: *//p' "$file")"
} >>"$work/settings"
draw "$here/plot/diff.gp" "$base" "$work/settings" 2>"$work/log" ||
    fail 1 "the pictures could not be made: $(grep -v 'warning\|^ *^* *$' "$work/log" | head -n 1)"
echo "$base.png $base.svg"
