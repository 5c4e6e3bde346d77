# Figure 12: two heat maps, P99 latency (a) and recomputed tokens (b).
eval heat
set palette @light
set logscale cb
set xlabel "window W (tokens of a request)"
set ylabel "group G (requests in a pass)"
set xrange [3.5:9.5]
set yrange [-0.5:5.5]
set xtics ("16" 4, "32" 5, "64" 6, "128" 7, "256" 8, "512" 9)
set ytics ("1" 0, "2" 1, "4" 2, "8" 3, "16" 4, "32" 5)
do for [panel = 1:2] {
    m = panel == 1 ? "p99_latency_s" : "recompute_pct"
    eval start(panel == 1 ? "a" : "b", 1100, panel == 1 ? 870 : 900)
    set title heading(panel == 1 ? "P99 latency in seconds (Figure 12a)" : \
        "Recomputed tokens as % of returned ones (Figure 12b)", \
        "ShareGPT, 12 queries/s, 4,096 requests, all deterministic" . \
        more("large: ours, mean over five seeds; (small): published; grey: more than 512 rows") . \
        (panel == 1 ? "" : more("published 42.3 at W = 512 is below that at W = 256: no model of windows gives that")))
    plot cells(m) using (lg($2)):(lg($1)):(0.5):(0.5):3 with boxxyerror lc palette, \
        "" using (lg($2)):(lg($1)):(short($3)) with labels offset 0, 0.45 font font(26) tc rgb black, \
        "" using (lg($2)):(lg($1)):("(" . short($4) . ")") with labels offset 0, -0.9 font font(20) tc rgb "#333333"
    set output
}
