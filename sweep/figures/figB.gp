# Verification policies: two panels over the share of deterministic requests.
eval start("", 1100, 860)
set multiplot layout 1, 2 title heading("When to verify: policies compared", \
    "ShareGPT, 4,096 requests, W = 64, G = 8; left: all at once, right: 12 queries/s; five seeds" . \
    more("oldest, largest: partial windows that fill a pass; overlap: replay beside decoding")) \
    margins 0.1, 0.98, 0.265, 0.775 spacing 0.11
array policy[5] = ["eager oldest", "eager largest", "wait", "eager oldest overlap", "eager largest overlap"]
array shown[5] = ["EAGER, oldest (the paper's)", "EAGER, largest (ours)", "WAIT for G windows", \
    "EAGER, oldest, overlap", "EAGER, largest, overlap"]
array colour[5] = [blue, red, green, sky, orange]
array mark[5] = [7, 5, 9, 6, 4]
array dash[5] = [1, 1, 1, 2, 2]
none(m) = sprintf("< awk -F '\\t' '$2 == \"%s\" && $3 ~ /^non/ { print 0.5 FS $5; print 6.5 FS $5 }' '%s'", m, points)
set xrange [0.5:6.5]
set xtics ("2" 1, "5" 2, "10" 3, "20" 4, "50" 5, "100" 6)
place(r) = r < 0.03 ? 1 : r < 0.07 ? 2 : r < 0.15 ? 3 : r < 0.3 ? 4 : r < 0.7 ? 5 : 6
set xlabel "deterministic requests (%)"
unset key
do for [panel = 1:2] {
    m = panel == 1 ? "total_tok_per_s" : "p99_latency_s"
    set title panel == 1 ? "throughput, offline" : "P99 latency, 12 queries/s" offset 0, -0.5
    set ylabel panel == 1 ? "1000 tokens/s" : "seconds"
    if (panel == 1) { set yrange [8:18]; set ytics 2 } else { set yrange [10:45]; set ytics 5 }
    plot none(m) using 1:(panel == 1 ? $2 / 1000 : $2) with lines lw 3 dt 3 lc rgb grey notitle, \
        for [i = 1:5] match(m, policy[i]) using (place($4)):(panel == 1 ? $5 / 1000 : $5) \
        with linespoints lw 3.5 pt mark[i] dt dash[i] lc rgb colour[i] notitle
}
eval legend(0.14)
set key vertical maxrows 3 width format eq "png" ? 1 : -6
plot for [i = 1:5] NaN with linespoints lw 3.5 pt mark[i] dt dash[i] lc rgb colour[i] title shown[i], \
    NaN with lines lw 3 dt 3 lc rgb grey title "none deterministic"
unset multiplot
