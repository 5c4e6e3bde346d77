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
awk -F '\t' '
    function fail(why) { print "beside.sh: " why >"/dev/stderr"; failed = 1; exit 1 }
    FNR == 1 { files++; end = "" }
    /^#/ { next }
    $1 == "time_s" { for (i = 1; i <= NF; i++) at[$i] = i; next }
    $at["event"] != "pass" { next }
    { ms = 1e3 * ($at["time_s"] - (end == "" ? $at["begin_s"] : end)); end = $at["time_s"] }
    files == 1 { size[++passes] = $at["shape"]; took[passes] = ms; next }
    {
        if ($at["shape"] != size[++pass]) fail(FILENAME ": pass " pass " has other rows than in " ARGV[1])
        for (i = 1; i < edges && size[pass] > edge[i]; i++) { }
        count[i]++; measured[i] += took[pass]; simulated[i] += ms
    }
    BEGIN { edges = split("8 32 64 128 192 256 320 384 512 768 1024 2048", edge, " ") }
    END {
        if (failed) exit 1
        if (!passes || pass != passes) fail(ARGV[2] ": it has " pass + 0 " passes, and " ARGV[1] " has " passes + 0)
        print "rows_from\trows_to\tpasses\tmeasured_ms\tsimulated_ms\terror_pct"
        for (i = 1; i <= edges; i++)
            if (count[i]) printf "%d\t%d\t%d\t%.3f\t%.3f\t%+.1f\n", (i > 1 ? edge[i - 1] : 0) + 1, edge[i], count[i],
                measured[i] / count[i], simulated[i] / count[i], 100 * (simulated[i] / measured[i] - 1)
    }' "$1" "$2"
