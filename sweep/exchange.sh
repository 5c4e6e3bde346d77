#!/bin/bash
# Gives a calibration the table of exchanges that `build/kernels --part exchange` has measured. The new calibration goes
# to standard output. A table that the old one has is left out. The times are those of mail and meeting.
#
#     bash sweep/exchange.sh EXCHANGE.tsv CALIBRATION.tsv >NEW.tsv
#     TYPE=fp32 bash sweep/exchange.sh ...         parts in fp32, as in INVARIANT passes; bf16: as in FAST passes
set -euo pipefail
export LC_ALL=C
TYPE=${TYPE:-bf16}
if [ $# != 2 ]; then
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
for file in "$@"; do
    [ -r "$file" ] || { echo "exchange.sh: $file: cannot open" >&2; exit 1; }
done
awk -F '\t' -v type="$TYPE" -v measured="$1" -v calibration="$2" '
    function fail(why) { print "exchange.sh: " why >"/dev/stderr"; failed = 1; exit 1 }
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
        if ($at["type"] != type || !rank) next
        if ($at["bits"] != "equal") fail(measured ":" FNR ": the ranks had different bits")
        key = $at["ranks"] "\t" $at["rows"]
        if (!(key in place)) place[key] = ++rows
        if (rank > best[key]) { best[key] = rank; row[place[key]] = key "\t" $at["exchange_us"] }
        next
    }
    FNR == 1 && !rows { fail(measured ": no exchange of parts in " type) }
    /^# table: / || $0 == "# end" { skipped = $0 ~ /^# table: exchange / }
    skipped || /^# exchange: / { next }
    $0 == "# end" {
        ended = 1
        print "# exchange: measured by build/kernels --part exchange, parts in " type (device ? ", " device : "")
        print "# table: exchange " rows "\nranks\trows\texchange_us"
        for (i = 1; i <= rows; i++) print row[i]
    }
    { print }
    END { if (!failed && !ended) fail(calibration ": no line # end") }' "$1" "$2"
