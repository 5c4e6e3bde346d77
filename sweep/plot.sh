#!/bin/bash
# Draws a result of build/sweep, measured or simulated, as PNG and SVG. Needs gnuplot.
#
#     bash sweep/plot.sh FILE --x window --y group --value e2e_p99_s    a heat map: one cell for each W and G
#     bash sweep/plot.sh FILE --x ratio --y total_tok_per_s             lines: y is a result, so --value is left out
#
#     --x COLUMN --y COLUMN      the axes; x is a setting, such as window, group, ratio, qps, mode or draft; max_running
#                                is one if build/sweep was given several. For lines x may be a result, such as
#                                recompute_pct: each set of settings is then a point, joined in the order of x
#     --value COLUMN             of a heat map: the result in the cells
#     --over COLUMN[,COLUMN]     a panel of the heat map, or a line, for each value of these settings; panels of two form
#                                a matrix, in which the first setting has the rows
#     --where COLUMN=VALUE       only rows with this value, and those to which COLUMN does not apply; several times
#     --mean COLUMN              the mean over this setting, such as seed, instead of refusing several rows for a cell
#     --spread                   with --mean: the standard deviation of its values, as a band or below the number
#     --best less|more           heat map: frames the best cell of a panel (less or more is better); a cell that is equal to
#                                it or, with --mean, within noise of it has a mark, and equal ones have no frame
#     --relative                 values divided by the largest one, those of the reference by their own largest
#     --log AXES                 lines: x, y, xy or none; default: x where its values span a factor of 8 or more, but not ratio
#     --reference FILE           a TSV with the same columns, drawn beside ours: published values, or another sweep
#     --reference-value COLUMN   its result; default: the same as ours
#     --reference-name TEXT      what the figure calls it; default: the name of the file
#     --title TEXT --note TEXT   the title, and a line below the plot; --note may be given several times
#     --grey TEXT                why cells of a heat map are empty; default: "no value"
#     --out BASE                 writes BASE.png and BASE.svg; default: FILE without .tsv, then _ and the result's name
#
# Lines below the plot say which settings all cells share, and how and on which device they were made. Cells that the
# file lacks stay grey. A file that was cut short is refused, and so are several rows for one cell: the message names the
# columns that differ. The device of a reference is that of its line "# device: NAME".
set -euo pipefail
export LC_ALL=C
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
source "$here/figures/draw.inc"

fail() {  # fail STATUS TEXT
    printf 'plot: %s\n' "$2" >&2
    exit "$1"
}

declare -A option=()
declare -a where=() notes=()
file=
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
        exit 0
        ;;
    --relative | --spread) option[${1#--}]=1 ;;
    --x | --y | --value | --over | --where | --mean | --log | --reference | --reference-value | --reference-name | \
        --title | --note | --grey | --out | --best)
        [ $# -gt 1 ] || fail 2 "$1: its value is missing"
        case $2 in *[[:cntrl:]]*) fail 2 "$1: its value has a tab, a line break or another control character" ;; esac
        [ -n "$2" ] || fail 2 "$1: its value is empty"
        case $1 in
        --where)
            [[ $2 == ?*=?* ]] || fail 2 "--where $2: write COLUMN=VALUE"
            where+=("$2")
            ;;
        --note) notes+=("$2") ;;
        *)
            [ -z "${option[${1#--}]:-}" ] || fail 2 "$1 is there twice"
            option[${1#--}]=$2
            ;;
        esac
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
[ -n "$file" ] || fail 2 "which file? bash sweep/plot.sh FILE --x COLUMN --y COLUMN [--value COLUMN]; --help says more"
[ -n "${option[x]:-}" ] || fail 2 "--x is missing: the setting along the x axis, such as window"
[ -n "${option[y]:-}" ] || fail 2 "--y is missing: a setting, such as group, or a result, such as e2e_p99_s, for lines"
reference=${option[reference]:-}
[ -n "$reference" ] || [ -z "${option[reference-value]:-}${option[reference-name]:-}" ] ||
    fail 2 "--reference-value and --reference-name need --reference"
map=${option[value]:+1}
case ${option[log]:-} in
'') ;;
x | y | xy | none) [ -z "$map" ] || fail 2 "--log is for lines: a heat map has no such axes" ;;
*) fail 2 "--log ${option[log]}: there are x, y, xy and none" ;;
esac
case ${option[best]:-} in
'') ;;
less | more) [ -n "$map" ] || fail 2 "--best is for a heat map: give --value, and --y a setting" ;;
*) fail 2 "--best ${option[best]}: say whether less or more is better" ;;
esac
if [ -n "${option[spread]:-}" ]; then
    [ -n "${option[mean]:-}" ] || fail 2 "--spread needs --mean, such as --mean seed: it is the spread of these values"
    [ -z "$map" ] || [ -z "$reference" ] ||
        fail 2 "--spread and --reference both write below the numbers of a heat map: leave one out"
fi
for name in "$file" ${reference:+"$reference"}; do
    if [ ! -e "$name" ]; then fail 1 "$name: no such file"; fi
    [ -f "$name" ] || fail 1 "$name: not a file"
    [ -r "$name" ] || fail 1 "$name: cannot read it"
done
value=${option[value]:-${option[y]}}
[ "${option[x]}" != "${option[y]}" ] || fail 2 "--x and --y are both ${option[x]}"
for name in over mean; do
    case ,${option[$name]:-}, in
    *,"${option[x]}",* | *,"${option[y]}",*) fail 2 "--$name ${option[$name]}: this column is an axis" ;;
    esac
done
base=${option[out]:-${file%.tsv}_$value}
case $base in */*) folder=${base%/*} ;; *) folder=. ;; esac
folder=${folder:-/}
[ -n "${base##*/}" ] || fail 2 "--out $base: add the name of the pictures"
[ -d "$folder" ] || fail 1 "$folder: no such folder (--out BASE)"
[ -w "$folder" ] || fail 1 "$folder: files cannot be written there (--out BASE)"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
joined() { local IFS=$'\t'; echo "$*"; }
raw() { printf '%s' "${1//\\/\\\\}"; }  # awk reads escapes in the values of its variables
x=$(raw "${option[x]}") y=$(raw "${option[y]}") over=$(raw "${option[over]:-}") mean=$(raw "${option[mean]:-}")

cells() {  # cells FILE VALUE [reference=1]: its cells, into work/ours or work/theirs
    [ ! -s "$1" ] || [ "$(tail -c 1 "$1" | wc -l)" = 1 ] || fail 1 "$1: the last line has no end: the file is cut short"
    awk -F '\t' -v OFS='\t' -v name="$(raw "$1")" -v map="$map" -v x="$x" -v y="$y" -v value="$(raw "$2")" \
        -v over="$over" -v mean="$mean" -v where="$(raw "$(joined "${where[@]}")")" \
        -v spread="${option[spread]:-}" -v best="${option[best]:-}" "${@:3}" \
        -f "$here/plot/cells.awk" <"$1"
}
cells "$file" "$value" >"$work/ours"
: >"$work/theirs"
beside='' device_note=''
if [ -n "$reference" ]; then
    cells "$reference" "${option[reference-value]:-$value}" -v reference=1 -v spread= >"$work/theirs"
    beside=${option[reference-name]:-$(basename "$reference" .tsv)}
    device_note=$(other_device "$file" "$reference")
fi
fixed=()
for name in "${where[@]}"; do fixed+=("${name%%=*}"); done
awk -v table="$work/table" -v map="$map" -v x="$x" -v y="$y" -v value="$(raw "$value")" \
    -v over="$over" -v mean="$mean" -v where="$(raw "$(joined "${fixed[@]}")")" \
    -v relative="${option[relative]:-}" -v logs="${option[log]:-}" -v title="$(raw "${option[title]:-}")" \
    -v notes="$(raw "$(joined "${notes[@]}")")" -v source="$(raw "$(source_of "$file")")" \
    -v beside="$(raw "$beside")" -v device_note="$(raw "$device_note")" -v reference_name="$(raw "$reference")" \
    -v grey="$(raw "${option[grey]:-}")" -v spread="${option[spread]:-}" -v best="${option[best]:-}" \
    -f "$here/plot/text.awk" -f "$here/plot/layout.awk" which=ours "$work/ours" which=theirs "$work/theirs" >"$work/settings"
gp_set table "$work/table" >>"$work/settings"
command -v gnuplot >/dev/null || fail 1 "gnuplot is not installed: install gnuplot-nox, or run make deps"
draw "$here/plot/$([ -n "$map" ] && echo heatmap || echo lines).gp" "$base" "$work/settings" 2>"$work/log" ||
    fail 1 "the pictures could not be made: $(grep -v 'warning\|^ *^* *$' "$work/log" | head -n 1)"
awk -F '\t' -v axes="${option[x]} or ${option[y]}" '
    $1 == "!unplaced" { print "not drawn, because " axes " does not apply: " $2 ($2 == 1 ? " row" : " rows") }' "$work/ours"
sed -n 's/^# not drawn/not drawn/p' "$work/settings"
echo "$base.png $base.svg"
