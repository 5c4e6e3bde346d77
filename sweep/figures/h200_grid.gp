# Two heat maps over W and G: recomputed tokens, throughput. Large: measured; (small), where there are any: simulated.
eval heat
set xlabel "window W (tokens of a request)"
set ylabel "group G (requests in a pass)"
set xrange [3.5:6.5]
set yrange [-0.5:4.5]
set xtics ("16" 4, "32" 5, "64" 6)
set ytics ("1" 0, "2" 1, "4" 2, "8" 3, "16" 4)
simulated = "measured on " . device
number(v, panel) = panel == 1 ? short(v) : v < 1e4 ? sprintf("%.0f", v) : sprintf("%.1f k", v / 1e3)
small(v, panel) = v == v ? "(" . number(v, panel) . ")" : ""
alone = note[1:4] eq "not "
do for [panel = 1:2] {
    m = panel == 1 ? "recompute_pct" : "output_tok_per_s"
    eval start(panel == 1 ? "_recomputed" : "_throughput", 900, 870)
    if (panel == 1) { set palette @light } else { set palette defined (0 '#F3F9FD', 1 '#56A5D6') }
    set title heading(panel == 1 ? "Recomputed tokens as % of returned ones" : "Output tokens per second", \
        model . "; " . requests . " requests at once, all deterministic" . more("EAGER, PACKED; ShareGPT" . (strlen(cut) ? cut : " lengths") . "; " . note))
    plot cells(m) using (lg($2)):(lg($1)):(0.5):(0.5):3 with boxxyerror lc palette, \
        "" using (lg($2)):(lg($1)):(number($3, panel)) with labels offset 0, (alone ? 0 : 0.45) font font(26) \
        tc rgb black, \
        "" using (lg($2)):(lg($1)):(small(stringcolumn(4) eq "nan" ? NaN : $4, panel)) with labels offset 0, -0.9 \
        font font(20) tc rgb "#333333"
    set output
}
