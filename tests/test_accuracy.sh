#!/bin/bash
# The accuracy that the README states, from fresh simulations: medians by figure, the cells of Fig. 12, that the
# committed results are those of the present code, and what the report says: roles, values counted once, spread over
# seeds, errors.
# shellcheck disable=SC2016  # the dollars are sed's
export LC_ALL=C
source tests/check.sh
scratch

points() {  # points NAME AWK-CONDITION-ON n (points), median, worst: over the points of $figure $metric (but $but)
    awk -F '\t' -v figure="$figure" -v metric="$metric" -v but="${but:-none}" '
        $1 == figure && index($2, metric " ") == 1 && $4 != "repeat" && $2 !~ but { v[++n] = $7 < 0 ? -$7 : $7 }
        END {
            for (i = 1; i <= n; i++) for (k = i + 1; k <= n; k++) if (v[k] < v[i]) { t = v[i]; v[i] = v[k]; v[k] = t }
            median = v[int((n + 1) / 2)]; worst = v[n]
            if ('"$2"') exit 0
            printf "n %d, median %g, worst %g\n", n, median, worst
            exit 1
        }' "$dir/accuracy.tsv" >"$dir/log"
    judge "$1"
}

accuracy=sweep/experiments/accuracy.sh
check "$accuracy" env NOPLOT=1 OUT="$dir" B="$B" bash -c 'bash "$0" >"$OUT/table"' $accuracy
figure=fig12 metric=p99_latency_s
points "Fig. 12a: median within 6%, no cell beyond 35%" "n == 21 && median <= 6 && worst <= 35"
metric=recompute_pct
points "Fig. 12b: median within 0.7 points, no cell beyond 4" "n == 21 && median <= 0.7 && worst <= 4"
figure=fig10 metric=total_tok_per_s
points "Fig. 10: median within 4%" "n == 112 && median <= 4"
figure=fig11 metric=ttft_s
points "Fig. 11: median of the time to first token within 5%" "n == 32 && median <= 5"
metric=e2e_s
points "Fig. 11: latencies within 10%" "n == 32 && worst <= 10"
figure=table5_rates metric=e2e_s
but="batch" points "Table 5 at other rates, latencies of the other modes: within 15%" "n == 56 && worst <= 15"
but="nondet|dvr|ArXiv" points "Table 5, ShareGPT at 14 and 18 queries/s, batch-invariant: within 8%" "n == 4 && worst <= 8"
figure=throughput_vs_batch metric=output_tok_per_s
but="dvr|invariant" points "the fitted curve: within 5%" "n == 9 && worst <= 5"

# Elementary functions of other C libraries may move a flip now and then: 1%, and not to the bit.
paste "$dir/accuracy.tsv" sweep/results/paper/accuracy.tsv | awk -F '\t' '
    /^#/ { next }
    $2 != $9 || $3 != $10 || $4 != $11 || $6 != $13 { print; bad = 1 }
    $1 == "figure" || $2 ~ /rollbacks|recompute/ { next }
    { n++; if ($5 > 1.01 * $12 || $5 < 0.99 * $12) { print; bad = 1 } }
    END { exit bad || n < 280 }' >"$dir/log"
judge "sweep/results/paper is not what the present code gives (make figures):"

check "printed values beside those of the authors' files" diff <(cut -f 1-5 "$dir/accuracy_printed.tsv") \
    <(cut -f 1-5 sweep/results/paper/accuracy_printed.tsv)
check "control: most of the 55 differ by 0.1%" awk -F '\t' '$4 + 0 && $5 != "nan" { n += ($4 - $5) ^ 2 > 1e-6 * $4 ^ 2 }
    END { exit n < 40 }' "$dir/accuracy_printed.tsv"
check "Table 5, the 56 values that are only printed: within 25%" awk -F '\t' '$5 == "nan" { n++; if (($6 / $4 - 1) ^ 2 > 0.0625) bad = 1 }
    END { exit bad || n != 56 }' "$dir/accuracy_printed.tsv"
check "Fig. 9c: most requests recompute nothing, and P90 grows with W" awk -F '\t' '
    $3 == 50 { n++; bad += $4 > 0 }
    $3 == 90 { bad += $4 <= last; last = $4 }
    END { exit n != 4 || bad }' "$dir/fig9_recomputed.tsv"

# Pairs of published values of one quantity and GPU that agree to the digits that both print (three at least), in other
# figures or other series: one run that the paper states twice. All lines of accuracy.tsv, or only those that are
# counted. Left out are times by token, which are those of passes, and rollbacks: they are counts, often below 100, and
# some are equal by chance. So is one pair of Table 5 at 14 and at 18 queries/s, which cannot be one run.
twice() {  # twice all|counted
    awk -F '\t' -v which="$1" '
        function decimals(x) { return index(x, ".") ? length(x) - index(x, ".") : 0 }
        function digits(x) { gsub(/[^0-9]/, "", x); sub(/^0+/, "", x); return length(x) }
        /^#/ || $1 == "figure" || $4 == "other GPU" || $2 ~ /^(rollbacks|verify_token)/ { next }
        which == "counted" && $4 == "repeat" { next }
        {
            n++
            split($2, part, " ")
            metric[n] = part[1]; value[n] = $6; point[n] = $1 " " $2; series[n] = point[n]
            sub(/ [^ ]*$/, "", series[n])
            for (i = 1; i < n; i++) {
                if (metric[i] != metric[n] || series[i] == series[n]) continue
                if (point[i] " " point[n] ~ /^table5_rates .* table5_rates /) continue
                fewer = decimals(value[i]) < decimals(value[n]) ? decimals(value[i]) : decimals(value[n])
                if (digits(value[i]) < 3 || digits(value[n]) < 3) continue
                gap = value[i] - value[n]
                if ((gap < 0 ? -gap : gap) <= 0.5000001 * 10 ^ -fewer) print point[i] " = " point[n]
            }
        }' "$dir/accuracy.tsv"
}
none() { [ -z "$("$@" | tee /dev/stderr)" ]; }
check "no published value of one run is counted twice" none twice counted
repeated() { [ "$(twice all | wc -l)" = 20 ] && [ "$(grep "	repeat	" "$dir/accuracy.tsv" | grep -vc verify_token)" = 20 ]; }
check "control: with the repeated values, the 20 that stand twice are found" repeated

roles() {  # every counted line has a role of the report, and each table of a role has as many values
    awk -F '\t' '
        FILENAME == ARGV[1] { if (!/^#/ && $1 != "figure" && $4 != "repeat") { n[$4]++; all++ } next }
        /^This report compares/ { said = $0; gsub(/[^0-9]/, "", said) }
        /^## / { role = tolower(substr($0, 4)); sub(/gpu/, "GPU", role) }
        split($0, cell, " [|] ") > 7 && $0 !~ /^[|] (quantity|---)/ { rows[role] += cell[role == "shares data" ? 3 : 2] }
        END {
            for (r in n) if (rows[r] != n[r]) { print r ": " n[r] " lines, " rows[r] " in the report"; bad = 1 }
            exit bad || said != all || !n["fitted"] || !n["shares data"] || !n["predicted"] || !n["other GPU"]
        }' "$dir/accuracy.tsv" "$dir/accuracy.md"
}
check "each value has one role, and the report has them all" roles
apart() {
    local name
    for name in "Fig. 10, throughput, W = 64" "Fig. 10, throughput, W = 32" "Table 4, recomputed tokens" \
        "Table 4, rollbacks per 100 requests" "Fig. 11, time to first token" "Fig. 11, end-to-end latency"; do
        grep -q "^| $name, all deterministic |" "$dir/accuracy.md" || { echo "no line: $name"; return 1; }
    done
}
check "values at 100% deterministic have lines of their own" apart
spread() {
    awk -F ' [|] ' '
        /^[|] Fig. (5|9b|11|12)|^[|] camera-ready Fig. 13/ {
            at = $2 ~ /^[0-9]+$/ ? 4 : 5
            n++
            if ($at !~ /^[0-9.]+(%| points)$/ || $(at + 1) !~ /^[0-9.]+(%| points)$/ || $at + 0 > $(at + 1) + 0) {
                print; bad = 1
            }
            wide += $at + 0 < $(at + 1) + 0
        }
        /^[|] (Fig. 10|Table 4)/ && NF > 7 && !/[|] one seed [|] one seed [|]/ { print; bad = 1 }
        END { exit bad || n < 10 || wide < 5 }' "$dir/accuracy.md"
}
check "the report has the lowest and the highest median of the seeds" spread

# The skill over the null model: the pages say what the report says, and it is 1 for perfect results, 0 if
# verification is free, and -1 if it costs three times as much as published.
skill() {  # skill REPORT: the rows by share: skill, from, to
    sed -nE 's/^\| [0-9]+ (to|and) [0-9]+ (.*\| ){6}([-0-9.]+) \| ([-0-9.]+) \| ([-0-9.]+) \| [0-9.]+ \|$/\3 \4 \5/p' "$1" | xargs
}
pages() {  # pages REPORT: the numbers of a report stand in README.md and in results/paper/README.md
    awk -F ' *[|] *' '
        function has(file, text) { if (!index(page[file], text)) print file ": " text; else found++ }
        FILENAME ~ /README/ { page[FILENAME] = page[FILENAME] " " $0; next }
        $2 == "50 and 100" {
            has("README.md", "| " $6 " | the mean of the other loads | " $11 " |")
            has("sweep/results/paper/README.md", "error is " $6 " points, a skill of " $8 \
                " (95% interval over the eight loads: " $9 " to " $10 ")")
        }
        END { exit found != 2 }' README.md sweep/results/paper/README.md "$1"
}
check "the pages have the skill of the report" pages "$dir/accuracy.md"
sed '/^| 50 and 100 |/s/| 0\.\([0-9]\)\([0-9]\) |/| 0.\2\1 |/' "$dir/accuracy.md" >"$dir/other.md"
control() { ! pages "$dir/other.md"; }
check "control: not another one" control
made_up() {  # made_up AWK WANTED: the skill in the report on results in which ours are $5 as the program says
    mkdir -p "$dir/made_up" && cp "$dir"/*_points.tsv "$dir"/*_seeds.tsv "$dir/made_up/"
    awk -F '\t' -v OFS='\t' 'NR == FNR { if ($4 == "nondeterministic") free[$3] = $6; next }
        $2 == "total_tok_per_s" && $6 != "published" { '"$1"' } 1' "$dir/fig10_points.tsv" "$dir/fig10_points.tsv" \
        >"$dir/made_up/fig10_points.tsv"
    OUT=$dir/made_up bash $accuracy >/dev/null || return 1
    echo "skill: $(skill "$dir/made_up/accuracy.md")"
    [ "$(skill "$dir/made_up/accuracy.md" | xargs -n 1 printf '%.2f\n' | sort -u | xargs)" = "$2" ]
}
check "skill of perfect results" made_up '$5 = $6' 1.00
check "skill where verification is free" made_up '$5 = free[$3]' 0.00
check "skill where it costs three times as much" made_up '$5 = free[$3] - 3 * (free[$3] - $6)' -1.00

# accuracy.sh on changed results, and with a changed table.
refuses() {  # refuses TEXT: it fails, says TEXT, and leaves the report alone
    mkdir -p "$dir/copy/sweep/experiments" "$dir/changed"
    cp "${script:-$accuracy}" "$dir/copy/$accuracy"
    ln -sfn "$PWD"/sweep/{figures,reference} "$dir/copy/sweep/"
    cp "$dir/accuracy.md" "$dir/changed/"
    if OUT=$dir/changed bash "$dir/copy/$accuracy" >"$dir/said" 2>&1; then echo "it did not fail"; return 1; fi
    cat "$dir/said"
    grep -qF "$1" "$dir/said" && cmp "$dir/accuracy.md" "$dir/changed/accuracy.md"
}
change() {  # change FILE SED-SCRIPT: results of which one file is changed
    rm -rf "$dir/changed"
    mkdir "$dir/changed"
    cp "$dir"/*_points.tsv "$dir"/*_seeds.tsv "$dir/changed/"
    sed -i "$2" "$dir/changed/$1"
}
change fig12_points.tsv '/recompute_pct\tG=2\t64\t/d'
check "a point that is missing is an error" refuses "Fig. 12b, recomputed tokens, all deterministic: 20 points in"
change fig12_points.tsv '/recompute_pct\tG=2\t64\t/s/\t[0-9.]*\t\([0-9.]*\)$/\tnan\t\1/'
check "a point without a value of ours is an error" refuses "fig12: no value of ours for recompute_pct G=2 64"
change fig12_points.tsv '$s/$/\nfig12\tnew_metric\tG=1\t16\t1\t2/'
check "a point without a role is an error" refuses "fig12 new_metric G=1 16 stands in no line of accuracy.sh"
change fig12_seeds.tsv '/p99_latency_s\tG=2\t64\t44\t/d'
check "a seed that lacks a point is an error" refuses "fig12_seeds.tsv lacks points of seed 44: run sweep/figures/fig12.sh"
for seed_change in '/\t44\t[0-9.]*$/d;lacks points of seed 44' '3,$d;lacks points of seed 4' \
    '1,$d;lacks points of seed 4' '/p99_latency_s/d;lacks points of seed 4' '$s/.*/&\n&/;of seed 46 twice' \
    '$s/[0-9.]*$/nan/;has no value in line 212' '$s/[0-9.]*$//;has no value in line 212' \
    '$s/[0-9.]*$/1/;has a mean of' '$s/.*/&\nfig12\trecompute_pct\tG=2\t64\t99\t0/;that the points file does not name' \
    '$s/.*/&\nfig12\tnew\tG=2\t64\t44\t1/;no point of the figure'; do
    change fig12_seeds.tsv "${seed_change%%;*}"
    check "seeds changed by $seed_change is an error" refuses "${seed_change#*;}"
done
g2w64='/p99_latency_s\tG=2\t64\t'
for point_change in "$g2w64/s/\t[0-9.]*\t\([0-9.]*\)$/\t5\t\1/;, ours is 5" \
    "$g2w64/s/\t\([0-9.]*\t[0-9.]*\)$/\t5x\1/;no value of ours for p99_latency_s G=2 64" \
    "$g2w64/s/[0-9.]*$/0/;the published value of p99_latency_s G=2 64 is" \
    "$g2w64/s/[0-9.]*$/abc/;the published value of p99_latency_s G=2 64 is" \
    "$g2w64/s/[0-9.]*$//;the published value of p99_latency_s G=2 64 is" \
    "$g2w64/s/.*/&\n&/;fig12 p99_latency_s G=2 64 stands in" "s/\t[^\t]*$//;columns, not 6"; do
    change fig12_points.tsv "${point_change%%;*}"
    check "points changed by $point_change is an error" refuses "${point_change#*;}"
done
change fig12_points.tsv ''
script=$dir/other.sh
sed 's/;Fig. 12a, P99 latency, all deterministic;shares data;/;Fig. 12a, P99 latency;guessed;/' $accuracy >"$script"
check "a role that is not in the list is an error" refuses 'the role "guessed" is none of those that accuracy.sh lists'
moved() {
    sed 's/;Fig. 12b, recomputed tokens, all deterministic;fitted;/;Fig. 12b, recomputed tokens;predicted;/' \
        $accuracy >"$dir/copy/$accuracy"
    OUT=$dir/changed bash "$dir/copy/$accuracy" | sed -n '/^## Predicted/,/^## Other/p' | grep "^| Fig. 12b, "
}
check "one word moves a group to another role" moved

finish
