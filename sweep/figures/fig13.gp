# Figure 13 (camera-ready): two heat maps, recomputed tokens (a) and throughput against the best shape (b).
eval heat
set xlabel "window W (tokens of a request)"
set ylabel "group G (requests in a pass)"
set xrange [3.5:10.5]
set yrange [-0.5:6.5]
set xtics ("16" 4, "32" 5, "64" 6, "128" 7, "256" 8, "512" 9, "1024" 10)
set ytics ("1" 0, "2" 1, "4" 2, "8" 3, "16" 4, "32" 5, "64" 6)
do for [panel = 1:2] {
    m = panel == 1 ? "recompute_pct" : "throughput_vs_best"
    eval start(panel == 1 ? "a" : "b", 1100, 960)
    set title heading(panel == 1 ? "Recomputed tokens, % of returned (camera-ready Figure 13)" : \
        "Throughput relative to the best (camera-ready Figure 13)", \
        "ShareGPT, 8 queries/s, 1,024 requests, all deterministic" . \
        more("large: ours, H100 PCIe, mean over five seeds; (small): published for an H100 SXM"))
    if (panel == 1) { set palette @light; set logscale cb }
    else { set palette defined (0 '#E8604A', 0.4 '#FDD49E', 1 '#FFF7EC'); unset logscale cb; set cbrange [0:1] }
    plot cells(m) using (lg($2)):(lg($1)):(0.5):(0.5):3 with boxxyerror lc palette, \
        "" using (lg($2)):(lg($1)):(short($3)) with labels offset 0, 0.45 font font(26) tc rgb black, \
        "" using (lg($2)):(lg($1)):("(" . short($4) . ")") with labels offset 0, -0.9 font font(20) tc rgb "#333333"
    set output
}
