# Figure 11: percentiles against latency, as a distribution function with the tail stretched.
eval start("", 1100, 860)
set multiplot layout 1, 2 title heading("Latency at 12 queries/s (Figure 11, Table 5)", \
    "ShareGPT, 4,096 requests, W = 64, G = 8, partial windows in order of admission" . \
    more("lines: ours, means over five seeds; hollow marks: published, one run")) \
    margins 0.09, 0.965, 0.265, 0.775 spacing 0.075
array mode[8] = ["nondeterministic", "batch_invariant", \
    "dvr 0.02", "dvr 0.05", "dvr 0.1", "dvr 0.2", "dvr 0.5", "dvr 1"]
array shown[8] = ["nondeterministic", "batch-invariant", "DVR, 2%", "DVR, 5%", "DVR, 10%", "DVR, 20%", "DVR, 50%", \
    "DVR, 100%"]
array colour[8] = [black, red, "#9ED0E6", "#56B4E9", "#2B93D1", "#0072B2", "#00598C", "#003A66"]
tail(p) = -log10(1 - p / 100.0)
set ytics ("50" tail(50), "75" tail(75), "90" tail(90), "99" tail(99))
set yrange [tail(42):tail(99.2)]
set logscale x
set grid x y
unset key
do for [panel = 1:2] {
    m = panel == 1 ? "ttft_s" : "e2e_s"
    if (panel == 1) { set ylabel "percentile" } else { unset ylabel }
    set title panel == 1 ? "time to first token" : "end to end" offset 0, -0.5
    set xlabel "seconds"
    if (panel == 1) { set xtics (0.02, 0.05, 0.1, 0.2, 0.3); set xrange [0.018:0.3] }
    else { set xtics (2, 5, 10, 20, 50); set xrange [1.6:60] }
    plot for [i = 1:8] match(m, mode[i]) using 5:(tail($4)) with lines lw 3.5 lc rgb colour[i] notitle, \
        for [i = 1:8] match(m, mode[i]) using 6:(tail($4)) with points pt 6 lw 2.5 lc rgb colour[i] notitle
}
eval legend(0.145)
set key vertical maxrows 3 width format eq "png" ? 1 : -2
plot for [i = 1:8] NaN with lines lw 3.5 lc rgb colour[i] title shown[i], \
    NaN with points pt 6 lw 2.5 lc rgb black title "published"
unset multiplot
