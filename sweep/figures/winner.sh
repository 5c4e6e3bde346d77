#!/bin/bash
# The map of mechanisms (sweep/science/winner.py): which one wins, by the share of deterministic requests, the load and
# the cost of INVARIANT passes, and where a margin gate is faster, from results/science/winner.tsv.
OUT=${OUT_SCIENCE:-sweep/results/science}
# shellcheck source=sweep/figures/common.sh
source "$(dirname "$0")/common.sh"
# Places on the axes are those of the values in order of appearance. Colour 5 is HYBRID that verifies less than half of
# the tokens of deterministic requests.
rows "$raw" cost share load winner sure lead_pct verified | awk -F '\t' -v OFS='\t' '
    BEGIN { n = split("dvr hybrid invariant apart", name, " "); for (i = 1; i <= n; i++) colour[name[i]] = i }
    function place(axis, value) { if (!((axis, value) in at)) at[axis, value] = ++many[axis]; return at[axis, value] }
    { print place("cost", $1), place("share", $2), place("load", $3),
            $4 == "hybrid" && $7 < 0.5 ? 5 : colour[$4], $5, $6 < 0.5 ? "0" : sprintf("%.0f", $6), $1, $2, $3 }
    ' >"$work/cells"
# Cells in which a margin gate is faster than the winner, as far as the seeds tell.
rows "$raw" cost share load gate_low | awk -F '\t' -v OFS='\t' '
    NR == FNR { panel[$7] = $1; column[$8] = $2; row[$9] = $3; next }
    $4 != "nan" && $4 > 0 { print panel[$1], column[$2], row[$3] }' "$work/cells" - >"$work/gates"
width=1340
title=$(rows "$raw" cost winner verified sure | awk -F '\t' '
    function list(part, i, text) {
        for (i = 1; i <= n; i++) text = text (i == 1 ? "" : i < n ? ", " : " and ") part[i]
        return text
    }
    !($1 in at) { at[$1] = ++n; cost[n] = sprintf("%.0f", 100 * $1 - 100); won[n] = 0 }
    { all[at[$1]]++; if ($2 == "dvr" || ($2 == "hybrid" && $3 >= 0.5)) { won[at[$1]]++; sum++; sure += $4 } }
    END {
        printf "Simulated: verification (blue, dark green) has the lowest latency in %d of %d cells, in %d surely: in %s of " \
            "%d where INVARIANT passes cost %s%%", sum, NR, sure, list(won), all[1], list(cost)
    }')
reading="colour: the mechanism with the lowest P99 latency; number: how much longer that of the second best is, %"
notes=("hatched: the 95% interval of this lead over five seeds reaches 0"
    "$(tell "triangles (%d): a margin gate is faster over its whole 95%% interval, but leaves answers wrong" \
        'END { print NR }' "$work/gates")"
    "a fleet of 8 GPUs; P99 latency of all requests, ShareGPT; without determinism$(tell \
        " it is %.1f s for 1,024 requests a GPU, all at once" '$1 == "offline" { print $2; exit }' \
        <(rows "$raw" load none_s))")
plot cells="$work/cells" gates="$work/gates"
