#!/bin/bash
# sweep/plot.sh as it is used: what it draws from simulated and measured results, what it says about where they come
# from, and what it refuses and how. The pictures are looked at as text, in the SVG.
export LC_ALL=C
source tests/check.sh
scratch
plot="bash sweep/plot.sh"

refuses() {  # refuses STATUS TEXT ARGUMENT...: that status, one line on stderr with the text, no picture
    rm -f "$dir"/refused.*
    case " $* " in *" --out "*) ;; *) set -- "$@" --out "$dir/refused" ;; esac
    $plot "${@:3}" >"$dir/stdout" 2>"$dir/stderr"
    local status=$? lines
    lines=$(wc -l <"$dir/stderr")
    [ $status = "$1" ] && [ "$lines" = 1 ] && [ ! -s "$dir/stdout" ] && grep -qF -- "$2" "$dir/stderr" &&
        [ ! -e "$dir/refused.png" ] && [ ! -e "$dir/refused.svg" ]
    judge "plot.sh ${*:3}: exit $status, expected $1 and '$2', got:" "$dir/stderr"
}

draws() {  # draws NAME FILE ARGUMENT...: writes both pictures; `says` looks at the text of the last one
    rm -f "$dir/x.png" "$dir/x.svg"
    check "$1: is drawn" $plot "${@:2}" --out "$dir/x"
    cp "$dir/log" "$dir/log.x"
    check "$1: a PNG" [ "$(head -c 4 "$dir/x.png" | tail -c 3)" = PNG ]
    sed -n '/<text/{:a;/<\/text>/!{N;ba};s/\n//g;s/<[^>]*>//g;s/&quot;/"/g;s/&amp;/\&/g;s/^[ \t]*//;p}' "$dir/x.svg" \
        >"$dir/text"
}
says() { for line; do check "the picture says '$line'" grep -qxF -- "$line" "$dir/text"; done; }  # says LINE...
silent() { check "the picture does not say '$1'" sh -c "! grep -qF -- '$1' '$dir/text'"; }

# number FILE NAME MATCH...: mean of a column over the rows in which columns have these values, as a cell shows it.
number() {
    only "$1" "${@:3}" | awk -F '\t' -v name="$2" '
        /^#/ { next }
        !at { for (i = 1; i <= NF; i++) if ($i == name) at = i; next }
        { sum += $at; rows++ }
        END { v = sum / rows; printf (v >= 99.95 ? "%.0f" : v >= 9.995 ? "%.1f" : "%.2f"), v }'
}
only() {  # only FILE MATCH...: the file without its # grid lines, and only the rows that match
    awk -F '\t' -v want="${*:2}" '
        /^#/ { if (!/^# grid/) print; next }
        !n { n = split(want, w, " "); for (i = 1; i <= NF; i++) at[$i] = i; print; next }
        { for (i = 1; i <= n; i++) { split(w[i], p, "="); if ($at[p[1]] != p[2]) next } print }' "$1"
}

# Results to draw: 2 x 2 cells, two shares, two seeds, and both other modes.
calibration=sweep/calibration/h100-pcie-paper.tsv
"$B/sweep" --calibration $calibration --requests 60 --window 16,64 --group 2,4 --ratio 0.1,1 --seed 42,43 --quiet \
    --preset paper --mode dvr,nondeterministic,batch_invariant --out "$dir/all.tsv" >/dev/null || exit 1
only "$dir/all.tsv" mode=dvr ratio=1 seed=42 >"$dir/four.tsv"
four="$dir/four.tsv" all="$dir/all.tsv"
map=(--x window --y group --value e2e_p99_s)

# What it refuses.
refused() {  # refused STATUS TEXT WORDS: a case, in which FOUR, ALL and MAP stand for the above
    local words=${3//FOUR/$four}
    words=${words//ALL/$all}
    refuses "$1" "$2" ${words//MAP/${map[*]}}
}
cases plot refused
refuses 2 "--x: its value is empty" "$four" --y group --x ""
refuses 2 "add the name of the pictures" "$four" "${map[@]}" --out "$dir/"
refuses 2 "control character" "$four" "${map[@]}" --title $'a\tb'
# One cell of another origin or load, as in a file that was joined by hand.
for change in calibration=h200-base42 backend=cpu workload=arxiv qps=99; do
    awk -F '\t' -v OFS='\t' -v name="${change%%=*}" -v value="${change#*=}" '
        /^#/ { print; next }
        !seen++ { for (i = 1; i <= NF; i++) if ($i == name) at = i; print; next }
        !changed++ { $at = value }
        { print }' "$four" >"$dir/mixed.tsv"
    refuses 2 "its cells differ in ${change%%=*} (" "$dir/mixed.tsv" "${map[@]}" --mean seed --where ratio=1
done
refuses 1 "no such file" "$dir/none.tsv" "${map[@]}"
refuses 1 "not a file" "$dir" "${map[@]}"
: >"$dir/bad.tsv"
refuses 1 "bad.tsv: the file is empty" "$dir/bad.tsv" "${map[@]}"
grep '^#' "$four" >"$dir/bad.tsv"
refuses 1 "no line has names of columns" "$dir/bad.tsv" "${map[@]}"
grep -e '^#' -e '^backend' "$four" >"$dir/bad.tsv"
refuses 1 "no rows" "$dir/bad.tsv" "${map[@]}"
printf 'a\tb\n1\t2\n' >"$dir/bad.tsv"
refuses 1 "not a result of build/sweep: it has no column duration_s" "$dir/bad.tsv" "${map[@]}"
head -c -30 "$all" >"$dir/bad.tsv"
refuses 1 "the last line has no end: the file is cut short" "$dir/bad.tsv" "${map[@]}"
(head -c -30 "$all"; echo) | sed '$s/\t[^\t]*\t[^\t]*$//' >"$dir/bad.tsv"
refuses 1 "fields: the file is cut short or mixed up" "$dir/bad.tsv" "${map[@]}"
head -n -1 "$all" >"$dir/bad.tsv"
refuses 1 "it has 19 rows, but its grids have 20 cells: the file is cut short" "$dir/bad.tsv" "${map[@]}"
# Presets decide what the line of the grid does not name; FIXED and INVARIANT verifiers and mode hybrid have other rows.
promises() {  # promises ROWS OPTION...: a grid has so many rows, and a file with one less is cut short
    "$B/sweep" --calibration $calibration --requests 3 --workload fixed:8x8 --slowdown 1,2 --quiet "${@:2}" \
        --out "$dir/grid.tsv" >/dev/null
    check "${*:2}: $1 rows" [ "$(grep -c '^sim' "$dir/grid.tsv")" = "$1" ]
    head -n -1 "$dir/grid.tsv" >"$dir/bad.tsv"
    refuses 1 "it has $(($1 - 1)) rows, but its grids have $1 cells: the file is cut short" "$dir/bad.tsv" "${map[@]}"
}
promises 7 --preset dvr,best,paper,invariant
promises 4 --mode dvr,hybrid
promises 5 --preset dvr,paper --mode dvr,nondeterministic --window 16 --chunked off
promises 16 --mode dvr,hybrid --verifier fixed,invariant --prefill isolated,packed,invariant --verify eager --ratio 0.5
promises 20 --preset paper,best --qps 5,12 --mode dvr,batch_invariant --window 8,16
promises 22 --preset best,invariant --replicas 2 --router least_tokens,deterministic_apart --apart share,1 --ratio 0.3,0.6

# Presets decide many columns: one message names all that differ, --over preset is enough, but not where something else
# follows the preset; a legend or title that has no room is refused.
"$B/sweep" --calibration $calibration --requests 40 --preset dvr,best,paper,invariant --ratio 0.1,1 --seed 1,2 --quiet \
    --out "$dir/presets.tsv" >/dev/null || exit 1
by_ratio=(--x ratio --y e2e_p99_s --where seed=1)
refuses 2 "differ in preset (dvr, best, paper) and mode (dvr, hybrid) and verifier" "$dir/presets.tsv" "${by_ratio[@]}"
refuses 2 "differ in preset (dvr, best, paper) and" "$dir/presets.tsv" "${by_ratio[@]}" --over planner
refuses 2 "its cells differ in verify (eager, wait) and prefill (invariant, isolated) and chunked (on, off) and" \
    "$dir/presets.tsv" "${by_ratio[@]}" --over mode,verifier
by_columns=mode,verifier,verify,prefill,chunked,bonus,planner,window,group,workload
refuses 2 "the legend 'DVR, verifier invariant, verify eager, prefill invariant, chunked on, bonus on, \
planner default, W = 16, G = 128, workload sharegpt' takes 1055 pixels, and there are 970: fix a column of --over with --where" "$dir/presets.tsv" "${by_ratio[@]}" \
    --over $by_columns
refuses 2 "takes 982 pixels, and there are 970: fix a column of --over with --where, or give a shorter --reference-name" \
    "$four" --x window --y e2e_p99_s --over group --reference "$four" --reference-name "$(printf '%097d' 0)"
refuses 2 "the panel title '10% deterministic, DVR" "$all" "${map[@]}" --mean seed --where mode=dvr \
    --over ratio,mode,verifier,verify,prefill,chunked,bonus,workload,calibration
# where COLUMN VALUE FILE COLUMN NEW: a file with a new value of a column in the rows that have this value of another.
where() {
    awk -F '\t' -v OFS='\t' -v column="$1" -v value="$2" -v changed="$4" -v new="$5" '
        $1 == "backend" { for (i = 1; i <= NF; i++) at[$i] = i }
        !/^#/ && $1 != "backend" && $at[column] == value { $at[changed] = new }
        { print }' "$3"
}
where preset best "$dir/presets.tsv" qps 99 >"$dir/mixed.tsv"
refuses 2 "its cells differ in qps (12, 99)" "$dir/mixed.tsv" "${by_ratio[@]}" --over preset

# A fleet has more axes, and ratios in more modes.
"$B/sweep" --calibration sweep/calibration/h100-pcie-paper.tsv --requests 60 --replicas 2,3 --apart share,1 --quiet \
    --router least_tokens,deterministic_apart --mode dvr,batch_invariant,nondeterministic --ratio 0.3,0.5 --qps 24 \
    --out "$dir/fleet.tsv" >/dev/null
of_fleet=(--x replicas --y e2e_p99_s --over mode --where ratio=0.3)
head -n -1 "$dir/fleet.tsv" >"$dir/bad.tsv"
refuses 1 "it has 25 rows, but its grids have 26 cells: the file is cut short" "$dir/bad.tsv" "${of_fleet[@]}"
awk -F '\t' -v OFS='\t' '$1 == "sim" && !n++ { for (i = 20; i <= NF; i++) $i = "fast" } 1' "$four" >"$dir/bad.tsv"
refuses 1 "e2e_p99_s is 'fast', not a number" "$dir/bad.tsv" "${map[@]}"
sed '$p' "$four" >"$dir/bad.tsv"
refuses 1 "are the same cell twice" "$dir/bad.tsv" "${map[@]}"
printf 'window\tgroup\te2e_p99_s\n512\t1\t3\n' >"$dir/reference.tsv"
refuses 1 "no cell of $dir/reference.tsv is one of ours" "$four" "${map[@]}" --reference "$dir/reference.tsv"
refuses 2 "it has no column ratio, so --over ratio cannot tell" "$all" "${map[@]}" --mean seed --over ratio \
    --reference "$dir/reference.tsv"
refuses 2 "--reference-value e2e_p50_s: no such column" "$four" --x window --y group --value e2e_p50_s \
    --reference "$dir/reference.tsv"

# Without gnuplot there is no picture, and one line that says what to install.
mkdir "$dir/bin"
for tool in bash awk sed grep mktemp readlink dirname basename cat tail wc rm mkdir mv head; do
    ln -s "$(command -v $tool)" "$dir/bin/$tool"
done
plot="env PATH=$dir/bin bash sweep/plot.sh"
refuses 1 "gnuplot is not installed: install gnuplot-nox" "$four" "${map[@]}"
plot="bash sweep/plot.sh"

command -v gnuplot >/dev/null || { echo "  drawing: skipped: gnuplot is not here"; skipped=1; finish; }

draws "a fleet" "$dir/fleet.tsv" "${of_fleet[@]}" --where router=least_tokens
says "sharegpt, 60 requests, 24 queries/s, seed 42, router least_tokens"

# How fast the arrivals of a file came is said, whether it is one setting of all cells, an axis, or a line of its own.
awk 'BEGIN { print "input_len\toutput_len\tarrival_s"; for (i = 0; i < 40; i++) print 100 "\t" 20 "\t" i / 20 }' >"$dir/own.tsv"
"$B/sweep" --calibration $calibration --workload "lengths:$dir/own.tsv" --requests 40 --qps trace --trace-speed 1,1.5,2 \
    --ratio 0.1,1 --quiet --out "$dir/speeds.tsv" || exit 1
draws "arrivals 1.5 times as fast" "$dir/speeds.tsv" --x ratio --y e2e_p99_s --where trace_speed=1.5
check "the speed" [ "$(grep -o "prompts INVARIANT,\|the trace's arrivals,\|1.5 times as fast" "$dir/text" | wc -l)" = 3 ]
draws "arrivals by their speed" "$dir/speeds.tsv" --x trace_speed --y e2e_p99_s --where ratio=1
says "speed of the trace, as a multiple of its own"
draws "a line for each speed" "$dir/speeds.tsv" --x ratio --y e2e_p99_s --over trace_speed
says "as fast as they came" "2 times as fast"

# One result against another: a point for each set of settings, the mean over seeds of both results.
scatter=(--x recompute_pct --y e2e_p99_s --over group --mean seed)
draws "a result on the x axis" sweep/results/paper/fig12.tsv "${scatter[@]}"
says "mean over 5 seeds; a point for each window" "recomputed tokens (% of returned ones)" "P99 latency (s)" "G = 32" 5 10
check "its points are the means of fig12_points.tsv, in order of x" diff <(awk -f sweep/plot/cells.awk -F '\t' -v OFS='\t' \
    -v name=x -v x=recompute_pct -v y=e2e_p99_s -v value=e2e_p99_s -v over=group -v mean=seed sweep/results/paper/fig12.tsv |
    awk -F '\t' '!/^!/ { printf "G=%s %.4g %.4g\n", $1, $2, $4 }' | sort) <(awk -F '\t' '
    $2 == "p99_latency_s" { p99[$3, $4] = $5 }
    $2 == "recompute_pct" { pct[$3, $4] = $5 }
    END { for (at in p99) { split(at, w, SUBSEP); printf "%s %.4g %.4g\n", w[1], pct[at], p99[at] } }' \
    sweep/results/paper/fig12_points.tsv | sort)
awk -F '\t' -v OFS='\t' '/^#/ { print; next } !n { for (n = 1; $n != "recompute_pct"; n++) { } print; next } { $n = 0; print }' \
    "$four" >"$dir/zero.tsv"
refuses 2 "two points have recompute_pct 0 and differ in window (16, 64) and group (2, 4): fix it with --where window=16, draw a line for each \
with --over window, or take the mean with --mean window" "$dir/zero.tsv" --x recompute_pct --y e2e_p99_s
refuses 2 "differ in window (16, 64): fix it with --where window=16, draw a line for each with --over group,window, or" \
    "$dir/zero.tsv" --x recompute_pct --y e2e_p99_s --over group

# A heat map has every cell's number, the settings that all cells share, and where they come from.
draws "a heat map" "$four" "${map[@]}"
for cell in "window=16 group=2" "window=16 group=4" "window=64 group=2" "window=64 group=4"; do
    # shellcheck disable=SC2086  # two conditions
    says "$(number "$four" e2e_p99_s $cell)"
done
says "P99 latency (s), by window W and group G"
says "sharegpt, 60 requests, verification EAGER, prompts ISOLATED, all deterministic, 12 queries/s, seed 42"
says "simulated: llama-3.1-8b on NVIDIA H100 PCIe 80 GB, calibration h100-pcie-paper"
silent grey
cp "$dir/x.png" "$dir/first.png"
cp "$dir/x.svg" "$dir/first.svg"
draws "the same again" "$four" "${map[@]}"
check "the same bytes" sh -c "cmp '$dir/x.png' '$dir/first.png' && cmp '$dir/x.svg' '$dir/first.svg'"
draws "text with marks" "$four" "${map[@]}" --title 'a_b^c {d} @e ~f "g" \h' --note "it's 100% #1"
says 'a_b^c {d} @e ~f "g" \h'
says "it's 100% #1"
draws "a title of wide letters" "$four" "${map[@]}" --title "$(printf 'WW%.0s' {1..24})"
check "it has two lines" [ "$(grep -c 'font-weight="bold"' "$dir/x.svg")" = 2 ]
# gnuplot must not run what a file or an option says.
evil="\`touch $dir/run\` ' . system('touch $dir/run') . '"
sed "s|^# device: .*|# device: $evil|" "$four" >"$dir/evil.tsv"
draws "a file with commands" "$dir/evil.tsv" "${map[@]}" --title "\`touch $dir/run\`"
check "no command has run" [ ! -e "$dir/run" ]

# Panels, means, and cells that are not there.
draws "panels" "$all" "${map[@]}" --over ratio --mean seed
check "rows without W are counted" grep -q "not drawn, because window or group does not apply: 4 rows" "$dir/log.x"
says "10% deterministic" "all deterministic" "mean over 2 seeds"
says "$(number "$all" e2e_p99_s mode=dvr window=16 group=2 ratio=1)"
at_x() { sed -n "s/.*translate(\([0-9]*\).*$1.*/\1/p" | tail -n 1; }
of_text() { grep -B 1 ">$1<" "$dir/x.svg" | at_x middle; }
draws "low panels of two settings" "$all" "${map[@]}" --over ratio,seed --where group=2
check "the label of y is on the sheet" [ "$(at_x 'rotate(-90)' <"$dir/x.svg")" -ge 25 ]
check "the second setting has columns" [ "$(of_text "10% deterministic, seed 42") $(of_text "10% deterministic, seed 43")" = \
    "$(of_text "all deterministic, seed 42") $(of_text "all deterministic, seed 43")" ]
draws "the same, the other way round" "$all" "${map[@]}" --over seed,ratio --where group=2
check "the first setting has rows" [ "$(of_text "seed 42, 10% deterministic")" = "$(of_text "seed 43, 10% deterministic")" ]
grep -v "$(printf '\t64\t4\t1\t')" "$four" >"$dir/three.tsv"
draws "three cells of four" "$dir/three.tsv" "${map[@]}" --grey "not run"
says "grey: not run"
draws "one cell" "$four" "${map[@]}" --where window=16 --where group=2
says 16 2 "$(number "$four" e2e_p99_s window=16 group=2)"
sed 's/^# duration_s:/# unfinished: 4 of 8 cells have run\n&/' "$four" >"$dir/unfinished.tsv"
draws "a run that was ended early" "$dir/unfinished.tsv" "${map[@]}"
check "the picture says that it is unfinished" grep -q "unfinished: 4 of 8 cells have run" "$dir/text"

# Lines; the modes to which x does not apply are levels.
draws "lines" "$all" --x ratio --y total_tok_per_s --over mode --mean seed --where window=16 --where group=2
says DVR nondeterministic batch-invariant "share of deterministic requests" "DVR: verification EAGER, prompts ISOLATED, W = 16, G = 2"

draws "presets" "$dir/presets.tsv" "${by_ratio[@]}" --over preset --log x
cp "$dir/x.svg" "$dir/log.svg"
draws "presets" "$dir/presets.tsv" "${by_ratio[@]}" --over preset
check "shares are on a linear axis" sh -c "! cmp -s '$dir/x.svg' '$dir/log.svg'"
for name in dvr best paper invariant; do says "preset $name"; done
draws "a long legend" "$dir/presets.tsv" "${by_ratio[@]}" --over preset,verifier,verify,prefill,chunked,bonus
says "preset dvr, verifier invariant, verify eager, prefill invariant, chunked on, bonus on"

# gnuplot takes all letters of a legend for wide ones, and leaves out what it believes to be wider than the sheet.
narrow=$(printf '%0100d' 0 | tr 0 i)
draws "a legend of narrow letters" "$four" --x window --y e2e_p99_s --over group --reference "$four" --reference-name "$narrow"
says "$narrow" "G = 2" "G = 4"

# Spread: a band for lines, a number for maps, and which cells are within noise of the best.
draws "a band" "$dir/presets.tsv" --x ratio --y e2e_p99_s --over preset --mean seed --spread
says "mean over 2 seeds; bands: standard deviation"
check "a band for each preset" [ "$(grep -c 'fill-opacity' "$dir/x.svg")" = 4 ]
draws "a spread in the cells" "$all" "${map[@]}" --where ratio=1 --mean seed --spread --best less
says "mean over 2 seeds; small: standard deviation" "±$(only "$all" mode=dvr window=16 group=2 ratio=1 | awk -F '\t' '
    $1 == "backend" { for (i = 1; i <= NF; i++) at[$i] = i }
    $1 == "sim" { d = $at["e2e_p99_s"] - d }
    END { printf "%.2f", (d < 0 ? -d : d) / sqrt(2) }')"
says "framed: the best; ≈: as good, within noise (paired t test, 95%)" ≈
# Made-up values of four seeds: 10 +- 1 is the best; one cell is 0.02 worse with every seed, one is 1 worse on average.
awk -F '\t' -v OFS='\t' '
    /^# grid/ { next }
    /^#/ { print; next }
    $1 == "backend" { for (i = 1; i <= NF; i++) at[$i] = i; print; next }
    { for (s = 1; s <= 4; s++) {
        $at["seed"] = s
        k = $at["window"] + $at["group"]
        $at["e2e_p99_s"] = 10 + (s > 2 ? 1 : -1) + (k == 20 ? 0.02 : k == 66 ? (s % 2 ? -2 : 4) : k == 68 ? 50 : 0)
        print } }' "$four" >"$dir/noise.tsv"
rank_of() { awk -F '\t' -v want="$1" '$2 " " $3 == want { print $7 }' "$dir/ranks"; }
awk -F '\t' -v OFS='\t' -v name=noise -v map=1 -v x=window -v y=group -v value=e2e_p99_s -v mean=seed -v best=less \
    -f sweep/plot/cells.awk "$dir/noise.tsv" >"$dir/ranks"
check "best, worse by little but always, worse by chance, worse" [ "$(rank_of "16 2")$(rank_of "16 4")$(rank_of \
    "64 2")$(rank_of "64 4")" = 2010 ]
check "equal cells: none is the best" [ "$(awk -F '\t' -v OFS='\t' -v name=noise -v map=1 -v x=window -v y=group \
    -v value=preemptions -v best=less -f sweep/plot/cells.awk "$four" | grep -c '^[^!].*1$')" = 4 ]

# Requests at once and drafts as axes. The value none stands left of the numbers, and no line joins it to them.
"$B/sweep" --calibration $calibration --requests 64 --workload fixed:8x16 --qps offline --max-running 8,1024 \
    --draft none,0.2,0.9 --seed 1,2 --quiet --out "$dir/batches.tsv" >/dev/null 2>&1
draws "a map of batches and drafts" "$dir/batches.tsv" --x draft --y max_running --value output_tok_per_s --where seed=1
check "none comes first" [ "$(grep -xE 'none|0\.[29]' "$dir/text" | xargs)" = "none 0.2 0.9" ]
says "most requests" "at once"
# In the SVG a digit of a tic takes 14 pixels, and 20 in the PNG.
check "the label is left of numbers of four digits" [ "$(at_x 'rotate(-90)' <"$dir/x.svg")" -le \
    $(($(grep -B 1 '>1024<' "$dir/x.svg" | at_x end) - 4 * 20)) ]
draws "drafts along x" "$dir/batches.tsv" --x draft --y output_tok_per_s --over max_running --mean seed --spread
says none "at most 1024 at once"
draws "drafts along a logarithmic x" "$dir/batches.tsv" --x draft --y output_tok_per_s --over max_running,seed --log x
says none

# Overload is said and marked.
"$B/sweep" --calibration $calibration --requests 300 --workload arxiv --qps 1,9 --window 16,32 --quiet \
    --out "$dir/load.tsv" >/dev/null 2>&1
draws "overload" "$dir/load.tsv" --x qps --y window --value e2e_p99_s
check "the worst cell" grep -qx \
    'crosses: overloaded (at worst served 1.4[0-9]* of 9.03/s), latencies grow with --requests' "$dir/text"
draws "overload everywhere" "$dir/load.tsv" --x window --y e2e_p99_s --where qps=9
check "in all cells" grep -qx 'overloaded: served 1.4[0-9]* of 9.03/s, latencies grow with --requests' "$dir/text"
draws "no overload" "$dir/load.tsv" --x window --y e2e_p99_s --where qps=1
silent overload
awk -F '\t' -v OFS='\t' '$1 == "sim" { $NF = "nan" } 1' "$dir/load.tsv" >"$dir/short.tsv"
draws "too few requests" "$dir/short.tsv" --x window --y e2e_p99_s --where qps=9
says "all cells may be overloaded (too few requests to tell)" "?"

# Subtitles: planners of examples/planners.h have no --verify, and a line does not end within a setting.
"$B/sweep" --calibration $calibration --requests 30 --planner default,every --window 32,64 --qps 4,8 --quiet \
    --out "$dir/planners.tsv" >/dev/null
draws "another planner" "$dir/planners.tsv" --x qps --y e2e_p99_s --where planner=every --where window=32
silent EAGER
check "its name" grep -q 'planner every' "$dir/text"
where backend sim "$dir/planners.tsv" seed "$(printf %042d 4)" >"$dir/seed.tsv"
draws "a long subtitle" "$dir/seed.tsv" --x qps --y e2e_p99_s --where planner=default --where window=32
check "no line ends within a setting" sh -c "! grep -qE '(G|=)\$|^=' '$dir/text'"
draws "both" "$dir/planners.tsv" --x qps --y e2e_p99_s --over planner --where window=32
check "one of them is eager" grep -qF 'EAGER (planner default)' "$dir/text"

# A reference of another device, of a device that is not named, and of the same one.
{
    printf '# device: Some GPU\nwindow\tgroup\ttheirs\n'
    only "$four" | awk -F '\t' -v OFS='\t' '
        $1 == "backend" { for (i = 1; i <= NF; i++) at[$i] = i; next }
        !/^#/ { print $at["window"], $at["group"], $at["e2e_p99_s"] }'
} >"$dir/reference.tsv"
reference=(--reference "$dir/reference.tsv" --reference-value theirs --reference-name "published")
draws "a reference of another device" "$four" "${map[@]}" "${reference[@]}"
says "large: simulated; (small): published" "published for another device: Some GPU"
sed -i 1d "$dir/reference.tsv"
draws "a reference of no named device" "$four" "${map[@]}" "${reference[@]}"
says "published for a device that is not named"
draws "another sweep beside it" "$four" "${map[@]}" --reference "$four" --reference-name "the same"
says "($(number "$four" e2e_p99_s window=16 group=2))"
silent device
{ cat "$dir/reference.tsv"; printf '512\t1\t3\n'; } >"$dir/more.tsv"
draws "a reference with more cells" "$four" "${map[@]}" --reference "$dir/more.tsv" --reference-value theirs
check "they are counted" grep -q "^not drawn, because ours have no such cell: 1 of $dir/more.tsv" "$dir/log.x"
draws "both relative to their largest" "$four" "${map[@]}" "${reference[@]}" --relative
says "1.00" "(1.00)"

# What is committed: one table a file, so that every row stands under its own names.
tables() {  # tables FILE: how many lines of names it has, and rows with another number of fields
    awk -F '\t' '
        /^#/ { next }
        !n { n = NF; first = $1 }
        $1 == first { names++ }
        NF != n { odd++ }
        END { print names, odd + 0 }' "$1"
}
for name in $(grep -lE $'^backend\t.*\tduration_s\t' sweep/results/*/*.tsv); do
    check "$name: one table" [ "$(tables "$name")" = "1 0" ]
done
draws "a fleet's curve" sweep/results/paper/figD.tsv --x replicas --y nondet_e2e_p99_s --where router=least_tokens \
    --where mode=dvr --where group=8 --where ratio=0.5 --where requests=12000
draws "replicas set apart" sweep/results/paper/figD_apart.tsv --x replicas --y det_e2e_p99_s --where mode=dvr \
    --where group=8 --over apart,ratio --where ratio=0.5

draws "narrow cells" sweep/results/paper/figA.tsv --x ratio --y slowdown --value total_tok_per_s --where mode=hybrid
check "their numbers fit" [ "$(grep -B 1 ' k<' "$dir/x.svg" | sed -n 's/.*font-size="\([0-9]*\).*/\1/p' | sort -n | tail -n 1)" -le 20 ]

# What is committed: measured on a GPU, and beside the published values of another one.
draws "a measured file" sweep/results/h200/grid_8b.tsv --x window --y group --value recompute_pct
says "measured: synthetic:llama-3.1-8b,margin=6.2 on NVIDIA H200; kernels of revision 20, 2026-11-27"
grep -v '^# date: ' sweep/results/h200/grid_8b.tsv >"$dir/undated.tsv"
draws "a measured file without a date" "$dir/undated.tsv" --x window --y group --value recompute_pct
says "measured: synthetic:llama-3.1-8b,margin=6.2 on NVIDIA H200; kernels of revision 20, not dated"
draws "measured beside published" sweep/results/h200/grid_8b.tsv --x window --y group --value recompute_pct \
    --reference sweep/reference/fig12_recompute_pct.tsv --reference-name published
says "published for another device: NVIDIA H100 PCIe 80 GB"

# A picture of the paper's figures says how many of its runs are overloaded, and of how many nothing can be told.
runs() {  # runs VALUE: those with it in the column overloaded, of which requests were offered at a rate
    awk -F '\t' -v value="$1" '/^#/ { next } !n { for (n = 1; n <= NF; n++) at[$n] = n; next }
        $at["overloaded"] == value && $at["offered_per_s"] != "nan" { k++ } END { print k + 0 }' sweep/results/paper/figC.tsv
}
for says in "$(runs 1) of 360 runs are overloaded: their latencies" "$(runs nan) of 360 runs may be overloaded: too few requests"; do
    check "figC says: $says" grep -q "$says" sweep/results/paper/figC.svg
done

# The titles of the committed pictures have numbers that scripts compute; a value that is missing would show.
for name in sweep/results/*/*.svg; do
    check "$name: a title" grep -q 'font-weight="bold"' "$name"
    check "$name: no number is missing" sh -c "! grep -q '[^a-z]nan[^a-z]' '$name'"
done

# A figure of a file without rows, or with other ones than its title needs, or of another calibration, is refused.
mkdir "$dir/old"
cp sweep/results/science/{gate,margins,rl,winner}{,_h200,_measured}.tsv sweep/results/paper/fig12.tsv "$dir/old" 2>"$log"
refuses_figure() {  # refuses_figure NAME TEXT [SETTING...]: one line with the text, and the old picture stays
    echo old >"$dir/old/$1.png"
    check "$1.sh: '$2'" ends_with 1 "^$2" env OUT="$dir/old" OUT_SCIENCE="$dir/old" "${@:3}" bash sweep/figures/$1.sh
    check "$1.sh: one line, the old picture" [ "$(wc -l <"$dir/said") $(cat "$dir/old/$1.png")" = "1 old" ]
}
sed -i '/tiny42/d' "$dir/old/gate.tsv"
refuses_figure gate "gate: rows are missing: the sentence .* needs 3 numbers, and there are 0"
for name in gate margins rl winner; do
    sed -i '/^#/!d' "$dir/old/$name.tsv"
    refuses_figure $name "$dir/old/$name.tsv: no row"
done
refuses_figure fig12 "fig12: KEEP=1, but $dir/old/fig12.tsv is of calibration h100-pcie-paper, not of sweep/calib.*h200-base" \
    KEEP=1 CALIBRATION=sweep/calibration/h200-base42.tsv

# Without --out the pictures are beside the file; a failure leaves the old ones alone.
check "beside the file" $plot "$four" "${map[@]}"
check "the names" [ -s "$dir/four_e2e_p99_s.png" -a -s "$dir/four_e2e_p99_s.svg" ]
cp "$dir/four_e2e_p99_s.png" "$dir/old.png"
$plot "$four" "${map[@]}" --where window=3 2>"$dir/log"
check "the old picture stays" cmp "$dir/four_e2e_p99_s.png" "$dir/old.png"
check "--help shows every option" [ "$($plot --help | grep -c -- '^ *--')" -ge 12 ]
finish
