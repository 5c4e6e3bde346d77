#!/bin/bash
# Gives a calibration the tables of exchanges that `build/kernels --part exchange` has measured: `exchange` with parts in
# bf16, as in FAST and FIXED passes, and `invariant exchange` with parts in fp32, as in INVARIANT passes. The new
# calibration goes to standard output. Tables of exchanges that the old one has are left out. The times are those of
# mail, own_rows and meeting.
#
#     bash sweep/calibration/exchange.sh EXCHANGE.tsv CALIBRATION.tsv >NEW.tsv
set -euo pipefail
export LC_ALL=C
if [ $# != 2 ]; then
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
for file in "$@"; do
    [ -r "$file" ] || { echo "exchange.sh: $file: cannot open" >&2; exit 1; }
done
new=$(mktemp)
trap 'rm -f "$new"' EXIT
# awk takes a name with = for a variable, so it gets no names.
{ cat -- "$1"; printf '\n\001\n'; cat -- "$2"; } | MEASURED=$1 CALIBRATION=$2 awk -F '\t' '
    function fail(why) { print "exchange.sh: " why >"/dev/stderr"; failed = 1; exit 1 }
    function table(name, type,    i) {
        print "# table: " name " " rows[type]
        if (!headed++) print "ranks\trows\texchange_us"
        for (i = 1; i <= rows[type]; i++) print row[type, i]
    }
    { sub(/\r$/, "") }
    $0 == "\001" {
        if (!rows["bf16"]) fail(measured ": no exchange of parts in bf16")
        second = 1
        next
    }
    BEGIN { measured = ENVIRON["MEASURED"] }
    !second && /^# cuda device: / { device = substr($0, 16) }
    !second && (/^#/ || $0 == "") { line++; next }
    !second && !named {
        for (i = 1; i <= NF; i++) at[$i] = i
        named = 1; line++
        if (!at["ranks"] || !at["rows"] || !at["type"] || !at["way"] || !at["exchange_us"] || !at["bits"])
            fail(measured ": not a result of build/kernels --part exchange")
        next
    }
    !second {
        # Engines take mail where there is any, then own_rows, then meetings.
        line++
        rank = $at["way"] == "meeting" ? 1 : $at["way"] == "own_rows" ? 2 : $at["way"] == "mail" ? 3 : 0
        type = $at["type"]
        if (!rank) next
        if ($at["bits"] != "equal") fail(measured ":" line ": the ranks had different bits")
        key = $at["ranks"] "\t" $at["rows"]
        if (!((type, key) in place)) place[type, key] = ++rows[type]
        if (rank > best[type, key]) {
            best[type, key] = rank
            row[type, place[type, key]] = key "\t" $at["exchange_us"]
        }
        next
    }
    /^# *table: / { skipped = $0 ~ /^# *table: +(invariant +)?exchange / }
    skipped && (!/^#/ || /^# *table: /) { next }
    /^# exchange: / { next }
    $0 == "# end" {
        ended = 1
        print "# exchange: measured by build/kernels --part exchange" (device ? ", " device : "")
        table("exchange", "bf16")
        if (rows["fp32"]) table("invariant exchange", "fp32")
    }
    { print }
    END { if (!failed && !ended) fail(ENVIRON["CALIBRATION"] ": no line # end") }' >"$new"
cat "$new"
