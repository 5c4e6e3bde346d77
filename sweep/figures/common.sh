# shellcheck shell=bash
# Sourced by the figure scripts (bash): where things are, runs of build/sweep, reshaping, plotting.
#
#     bash sweep/figures/fig12.sh                    simulate, write TSV, plot
#     KEEP=1 bash sweep/figures/fig12.sh             plot again from the TSV that is there
#     NOPLOT=1 bash sweep/figures/fig12.sh           TSV only
#     B=FOLDER OUT=FOLDER CALIBRATION=FILE           where programs are, where results go, another calibration: paths
#                                                    from the repository's root
#
# A figure X leaves in OUT: X.tsv, what build/sweep printed; X_points.tsv, ours beside the published numbers in long
# format (figure metric series x ours published); X.png and X.svg. If ours are means over seeds, X_seeds.tsv has the
# value of each seed (figure metric series x seed ours); KEEP=1 leaves that file as it is. Lists that come from a loop
# are in files, not pipes, so that a failure anywhere ends the script.
#
# A script calls `cells` for each run, `collect`, `compare` if there are published points, and `plot` or `plot_sweep`. It
# gives the picture a title that says what it shows; `tell` puts numbers of the data into it.
# Its runs have the paper's policies (preset `paper`), unless it gives others. `make figures` runs every script here.
#
# The paper's ShareGPT runs are taken to be of the 4,096 pairs that it served (workload sharegpt-served). They are
# single runs, and near saturation one draw of arrivals moves P99 by 10%: ours are means over five seeds.
set -euo pipefail
export LC_ALL=C
figure=$(basename "$0" .sh)
cd "$(dirname "$0")/../.."
B=${B:-build} OUT=${OUT:-sweep/results/paper} KEEP=${KEEP:-}
CALIBRATION=${CALIBRATION:-sweep/calibration/h100-pcie-paper.tsv}
# shellcheck disable=SC2034  # the scripts use these
reference=sweep/reference seeds=42,43,44,45,46
raw=$OUT/$figure.tsv points=$OUT/${figure}_points.tsv
mkdir -p "$OUT"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
parts=()

source sweep/figures/draw.inc

fail() {
    echo "$figure: $*" >&2
    exit 1
}

# cells FLAG...: runs build/sweep; `collect` gathers what the runs print.
cells() {
    [ -z "$KEEP" ] || return 0
    [ -x "$B/sweep" ] || fail "$B/sweep is missing: run make $B/sweep"
    [ -r "$CALIBRATION" ] || fail "$CALIBRATION: cannot read this calibration"
    local part
    part=$work/$(printf %04d ${#parts[@]}).tsv
    parts+=("$part")
    "$B/sweep" --backend sim --calibration "$CALIBRATION" --preset paper --quiet "$@" --out "$part" \
        >/dev/null 2>"$part.said" || {
        cat "$part.said" >&2
        fail "this run failed: $B/sweep --backend sim --calibration $CALIBRATION --preset paper $*"
    }
}

# by_request NAME FLAG...: a run of each seed, which leaves its requests for `distribution NAME`.
by_request() {
    local seed
    for seed in ${seeds//,/ }; do cells "${@:2}" --seed "$seed" --per-request "$work/requests $1 $seed"; done
}

# distribution NAME COLUMN...: lines `column NAME percentile value`: percentiles (nearest rank) of these columns over the
# requests of all seeds, in steps of 1% and then of 0.1%.
distribution() {
    local column seed
    for column in "${@:2}"; do
        : >"$work/values"
        for seed in ${seeds//,/ }; do rows "$work/requests $1 $seed" "$column" >>"$work/values"; done
        sort -g "$work/values" | awk -v OFS='\t' -v column="$column" -v name="$1" '
            function at(p) { print column, name, p, value[int((p * NR + 99.999999) / 100)] }
            { value[NR] = $1 }
            END { for (i = 1; i < 99; i++) at(i); for (i = 990; i <= 999; i++) at(i / 10) }'
    done
}

# overload: two lines, what must be said of overloaded cells of the raw file, and of those that are too short to tell; a
# line is empty where there are none. (The runs say so too, but some figures overload engines on purpose, and so the
# pictures say it.)
overload() {
    awk -F '\t' '
        /^#/ { next }
        !n { for (n = 1; n <= NF; n++) at[$n] = n; next }
        !("overloaded" in at) { exit }
        { rows++; bad += $at["overloaded"] == 1 }
        $at["overloaded"] == "nan" && $at["offered_per_s"] != "nan" { short++ }
        END {
            print bad ? bad " of " rows " runs are overloaded: their latencies grow with --requests" : ""
            print short ? short " of " rows " runs may be overloaded: too few requests to tell" : ""
        }' "$raw"
}

# Puts the runs' TSV together in the order of the calls: header lines that differ, one line of names, the rows. They must
# have the same columns. What KEEP=1 draws again must be of the same calibration.
collect() {
    if [ -n "$KEEP" ]; then
        [ -r "$raw" ] || fail "KEEP=1, but $raw is missing: run without KEEP"
        local kept
        kept=$(sed -n 's/^# simulated: .* calibration //p' "$raw" | sort -u | xargs)
        [ -z "$kept" ] || [ "$kept" = "$(basename "$CALIBRATION" .tsv)" ] ||
            fail "KEEP=1, but $raw is of calibration $kept, not of $CALIBRATION: run without KEEP, or set CALIBRATION"
        return 0
    fi
    awk '/^#/ && !seen[$0]++' "${parts[@]}" >"$work/all"
    awk '
        /^#/ { next }
        !names { names = $0; print }
        FILENAME != file { file = FILENAME; if ($0 != names) { print file > "/dev/stderr"; exit 1 }; next }
        { print }' "${parts[@]}" >>"$work/all" || fail "this run has other columns than the first one"
    mv "$work/all" "$raw"
}

# printed: lines `metric series x value` of what the paper prints of this figure. (The other published values of its first
# version are those of the authors' result files, which are of other runs.)
printed() { awk -f sweep/figures/printed.awk $reference/printed.tsv | awk -F '\t' -v f="$figure" '$1 == f' | cut -f 2-; }

# mean: lines that differ in the last field only become one with the mean of that, in order of first appearance.
mean() {
    awk -F '\t' -v OFS='\t' '
        {
            value = $NF
            sub(/\t[^\t]*$/, "")
            if (!n[$0]++) order[++keys] = $0
            sum[$0] += value
        }
        END { for (i = 1; i <= keys; i++) print order[i], sum[order[i]] / n[order[i]] }'
}

# by_seed: lines `metric series x seed value` become `metric series x value` with the mean over seeds. The lines
# themselves go to the file X_seeds.tsv.
by_seed() { tee -a "$work/seeds" | awk -F '\t' -v OFS='\t' '{ print $1, $2, $3, $5 }' | mean; }

# compare OURS PUBLISHED WHAT: both of lines `metric series x value`; writes the points file, whose first line says what
# ours are. Every published point must have its counterpart among ours; ours may be more.
compare() {
    awk -F '\t' -v OFS='\t' -v figure="$figure" -v what="$3" '
        BEGIN {
            print "# ours: " what
            print "figure", "metric", "series", "x", "ours", "published"
        }
        FILENAME == ARGV[1] { published[$1 FS $2 FS $3] = $4; next }
        {
            key = $1 FS $2 FS $3
            print figure, $1, $2, $3, $4, key in published ? published[key] : "nan"
            delete published[key]
        }
        END {
            for (key in published) {
                gsub(FS, " ", key)
                printf "%s: no result for the published point %s\n", figure, key >"/dev/stderr"
                bad = 1
            }
            exit bad
        }' "$2" "$1" >"$work/points"
    mv "$work/points" "$points"
    [ -z "$KEEP" ] && [ -s "$work/seeds" ] || return 0
    awk -v OFS='\t' -v figure="$figure" '
        BEGIN { print "# the value of each seed, whose means are ours in " figure "_points.tsv" }
        BEGIN { print "figure", "metric", "series", "x", "seed", "ours" }
        { print figure, $0 }' "$work/seeds" >"$work/seeds_file"
    mv "$work/seeds_file" "${points%_points.tsv}_seeds.tsv"
}

# window_ms: lines with a number of rows become `rows ms`, the calibration's time of a verification pass of one window,
# at its shortest context. Between the calibration's rows we interpolate, and beyond the last one go on linearly.
window_ms() {
    rows "$CALIBRATION" schedule kind rows context_tokens ms |
        awk -F '\t' -v OFS='\t' '$1 == "fixed" && $2 == "window"' >"$work/window"
    awk -F '\t' -v OFS='\t' '
        NR == FNR {
            if (!n || $4 < least) { n = 0; least = $4 }
            if ($4 == least) { row[++n] = $3; ms[n] = $5 }
            next
        }
        {
            for (i = 1; i < n - 1 && row[i + 1] < $1; i++) ;
            print $1, ms[i] + (ms[i + 1] - ms[i]) * ($1 - row[i]) / (row[i + 1] - row[i])
        }' "$work/window" -
}

# plot [NAME=VALUE...]: draws sweep/figures/${script:-FIGURE}.gp as PNG and SVG, with these as gnuplot strings, on a sheet
# that is `width` pixels wide. title: the headline, one sentence that says what the figure shows, with numbers from its
# data. reading: how to read it. notes: conditions, in small print below. They are followed by `source`, how ours were
# made, and, if the values of the file published_in are of another device, by that device.
width=1100 title='' reading='' notes=()
plot() {
    can_plot || return 0
    local foot=("${notes[@]}")
    if [ -r "$raw" ]; then
        while IFS= read -r line; do foot+=("$line"); done < <(overload)
        [ -n "${source:-}" ] || source=$(source_of "$raw")
        [ -z "${published_in:-}" ] || foot+=("$(other_device "$raw" "$published_in" | sed 's/^/published /')")
    fi
    {
        gp_set raw "$raw"
        gp_set points "$points"
        gp_texts "$width" "$title" "$reading" "${foot[@]}" "${source:-}"
        for argument in "$@"; do gp_set "${argument%%=*}" "${argument#*=}"; done
    } >"$work/settings"
    draw "sweep/figures/${script:-$figure}.gp" "$OUT/$figure" "$work/settings"
}

# tell FORMAT PROGRAM [FILE...]: a sentence with numbers of the points file (or these files): the awk program prints
# the values that printf puts into the format. It is an error if the files lack rows of which it needs a number.
tell() {
    local file=("${@:3}") values places=${1//%%/}
    [ ${#file[@]} -gt 0 ] || file=("$points")
    # shellcheck disable=SC2207  # the values are words
    values=($(awk -F '\t' '
        function larger(a, b) { return a == "" || b + 0 > a + 0 ? b + 0 : a }
        function smaller(a, b) { return a == "" || b + 0 < a + 0 ? b + 0 : a }
        function median(v, n, i, k, t) {
            for (i = 2; i <= n; i++) for (k = i; k > 1 && v[k - 1] > v[k]; k--) { t = v[k]; v[k] = v[k - 1]; v[k - 1] = t }
            return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
        }
        '"$2" "${file[@]}")) || fail "no numbers for the sentence '$1'"
    places=${places//[^%]/}
    [ ${#values[@]} = ${#places} ] ||
        fail "rows are missing: the sentence '$1' needs ${#places} numbers, and there are ${#values[@]}"
    # shellcheck disable=SC2059  # the format is the sentence
    printf "$1" "${values[@]}"
}

# plot_sweep SUFFIX FILE OPTION...: sweep/plot.sh draws OUT/FIGURE+SUFFIX from FILE with these options.
plot_sweep() {
    can_plot || return 0
    bash sweep/plot.sh "$2" --out "$OUT/$figure$1" "${@:3}" >/dev/null
}

can_plot() {
    [ -z "${NOPLOT:-}" ] || return 1
    command -v gnuplot >/dev/null && return
    echo "$figure: gnuplot is not installed; $points is written, no plot is drawn" >&2
    return 1
}
