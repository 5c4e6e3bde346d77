# The values that the paper prints, as lines of a points file, in its units: figure metric series x value. Two more
# columns say where the value stands, and by what it is divided.
#     awk -f sweep/figures/printed.awk sweep/reference/printed.tsv
# Of Table 5 at 16 queries/s, and of P75 and P90 at other rates than 12, the result files have nothing.
BEGIN { FS = OFS = "\t" }
/^#/ || $1 == "where" { next }
{
    mode = $5 ~ /^SGLang non|^non/ ? "nondeterministic" : $5 ~ /^SGLang|^deterministic/ ? "batch_invariant" : "dvr"
    if ($5 ~ /@/) mode = mode " " substr($5, index($5, "@") + 1) / 100
}
/^Fig[.] 5/ { print "fig5", "output_tok_per_s", mode, $2 + 0, $6, "Fig. 5, throughput", 1 }
/^Table 4/ { print "fig10", "recompute_pct", substr($2, 1, index($2, ",") - 1), 1, $6, "Table 4, recomputed tokens at 100%", 1 }
$2 ~ /^sharegpt/ {
    split($3, name, " P")  # ttft P50
    rate = substr($2, 10) + 0
    by = $4 == "ms" ? 1000 : 1
    where = (name[1] == "ttft" ? "Table 5, time to first token, " : "section 5.2, latency, ") rate " queries/s" \
        (rate != 12 && name[2] ~ /75|90/ ? ", P75 and P90" : "")
    if (rate == 12) print "fig11", name[1] "_s", mode, name[2], $6 / by, where, by
    else
        print "table5_rates", name[1] "_s", "ShareGPT " rate " " mode, name[2], $6 / by, where, by
}
