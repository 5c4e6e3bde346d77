#!/bin/bash
# Two traces of the same passes (build/sweep --trace), one measured and one simulated: by number of rows how many passes
# there are and what they take in the mean, from the end of the pass before. TSV on standard output. For runs whose
# requests come all at once: then there is always a next pass.
#
#     bash sweep/h200x2/beside.sh MEASURED SIMULATED
set -euo pipefail
export LC_ALL=C
if [ $# != 2 ]; then
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
passes() {  # passes FILE: rows and milliseconds of each pass
    [ -r "$1" ] || { echo "beside.sh: $1: cannot open" >&2; return 1; }
    FILE=$1 awk -F '\t' '
        function fail(why) { print "beside.sh: " ENVIRON["FILE"] ": " why >"/dev/stderr"; failed = 1; exit 1 }
        /^#/ { next }
        !named++ {
            for (i = 1; i <= NF; i++) at[$i] = i
            if (!at["time_s"] || !at["event"] || !at["shape"] || !at["begin_s"]) fail("not a trace of build/sweep")
            next
        }
        $at["event"] != "pass" { next }
        {
            ms = 1e3 * ($at["time_s"] - (count++ ? end : $at["begin_s"]))
            if (!(ms > 0) || !($at["shape"] > 0)) fail("pass " count ": it takes no time, or has no rows")
            end = $at["time_s"]
            printf "%d\t%.9g\n", $at["shape"], ms
        }
        END { if (!failed && !count) fail("it has no passes") }' <"$1"
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passes "$1" >"$work/measured"
passes "$2" >"$work/simulated"
paste "$work/measured" "$work/simulated" | SIMULATED=$2 MEASURED=$1 awk -F '\t' '
    function fail(why) { print "beside.sh: " why >"/dev/stderr"; failed = 1; exit 1 }
    $1 != $3 { fail(ENVIRON["SIMULATED"] ": pass " NR " has other rows than in " ENVIRON["MEASURED"]) }
    {
        for (i = 1; i <= edges && $1 > edge[i]; i++) { }
        count[i]++; measured[i] += $2; simulated[i] += $4
        if ($1 > most) most = $1
    }
    BEGIN { edges = split("8 32 64 128 192 256 320 384 512 768 1024 2048", edge, " ") }
    END {
        if (failed) exit 1
        print "rows_from\trows_to\tpasses\tmeasured_ms\tsimulated_ms\terror_pct"
        for (i = 1; i <= edges + 1; i++)
            if (count[i]) printf "%d\t%d\t%d\t%.3f\t%.3f\t%+.1f\n", (i > 1 ? edge[i - 1] : 0) + 1,
                (i > edges ? most : edge[i]), count[i], measured[i] / count[i], simulated[i] / count[i],
                100 * (simulated[i] / measured[i] - 1)
    }' >"$work/table"
cat "$work/table"
