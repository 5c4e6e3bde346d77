#!/bin/bash
# Gives a calibration the tables of exchanges that `build/kernels --part exchange` has measured: `exchange` with parts in
# bf16, as in FAST and FIXED passes, and `invariant exchange` with parts in fp32, as in INVARIANT passes. The new
# calibration goes to standard output. Tables of exchanges that the old one has are left out. The times are those of
# mail, own_rows and meeting.
#
#     bash sweep/exchange.sh EXCHANGE.tsv CALIBRATION.tsv >NEW.tsv
set -euo pipefail
export LC_ALL=C
if [ $# != 2 ]; then
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
for file in "$@"; do
    [ -r "$file" ] || { echo "exchange.sh: $file: cannot open" >&2; exit 1; }
done
awk -F '\t' -v measured="$1" -v calibration="$2" '
    function fail(why) { print "exchange.sh: " why >"/dev/stderr"; failed = 1; exit 1 }
    function table(name, type,    i) {
        print "# table: " name " " rows[type]
        if (!headed++) print "ranks\trows\texchange_us"
        for (i = 1; i <= rows[type]; i++) print row[type, i]
    }
    FILENAME == measured && /^# cuda device: / { device = substr($0, 16) }
    FILENAME == measured && /^#/ { next }
    FILENAME == measured && !named {
        for (i = 1; i <= NF; i++) at[$i] = i
        named = 1
        if (!at["ranks"] || !at["rows"] || !at["type"] || !at["way"] || !at["exchange_us"] || !at["bits"])
            fail(measured ": not a result of build/kernels --part exchange")
        next
    }
    FILENAME == measured {
        # Engines take mail where there is any, then own_rows, then meetings.
        rank = index("meeting own_rows mail", $at["way"])
        type = $at["type"]
        if (!rank) next
        if ($at["bits"] != "equal") fail(measured ":" FNR ": the ranks had different bits")
        key = $at["ranks"] "\t" $at["rows"]
        if (!((type, key) in place)) place[type, key] = ++rows[type]
        if (rank > best[type, key]) {
            best[type, key] = rank
            row[type, place[type, key]] = key "\t" $at["exchange_us"]
        }
        next
    }
    FNR == 1 && !rows["bf16"] { fail(measured ": no exchange of parts in bf16") }
    /^# table: / || $0 == "# end" { skipped = $0 ~ /^# table: (invariant )?exchange / }
    skipped || /^# exchange: / { next }
    $0 == "# end" {
        ended = 1
        print "# exchange: measured by build/kernels --part exchange" (device ? ", " device : "")
        table("exchange", "bf16")
        if (rows["fp32"]) table("invariant exchange", "fp32")
    }
    { print }
    END { if (!failed && !ended) fail(calibration ": no line # end") }' "$1" "$2"
