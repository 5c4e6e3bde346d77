# Figure 11: distribution of latency over requests, with the tail stretched. load: what the names of series begin with.
height = above + 850 + below
eval start("", width, height)
set multiplot
eval sheet_text
array mode[8] = ["nondeterministic", "batch_invariant", \
    "dvr 0.02", "dvr 0.05", "dvr 0.1", "dvr 0.2", "dvr 0.5", "dvr 1"]
array shown[8] = ["nondeterministic", "batch-invariant", "DVR, 2%", "DVR, 5%", "DVR, 10%", "DVR, 20%", "DVR, 50%", \
    "DVR, all deterministic"]
array colour[8] = [ordinary, invariant, sky, green, purple, orange, blue, black]
array hollow[8] = [6, 4, 8, 10, 12, 14, 6, 4]
tail(p) = -log10(1 - p / 100.0)
set ytics ("25" tail(25), "50" tail(50), "75" tail(75), "90" tail(90), "99" tail(99), "99.9" tail(99.9))
set yrange [tail(25):tail(99.9)]
curve(metric, series) = sprintf("< awk -F '\\t' '$1 == \"%s\" && $2 == \"%s\"' '%s'", metric, load . series, cdf)
end(metric, order) = real(system(sprintf("awk -F '\t' '$1 == \"%s\" && index($2, \"%s\") == 1 && $3 >= 25 " . \
    "{ print $4 }' '%s' | sort -g%s | sed -n 1p", metric, load, cdf, order)))
set logscale x
set grid x y
unset key
do for [panel = 1:2] {
    m = panel == 1 ? "ttft_s" : "e2e_s"
    eval area(panel == 1 ? 140 : 665, panel == 1 ? 545 : 1070, above + 60, above + 570)
    if (panel == 1) { set ylabel "percentile p (logarithmic in 100 - p)" } else { unset ylabel }
    set title panel == 1 ? "time to first token" : "end to end" offset 0, -0.5
    set xlabel "seconds"
    set xrange [end(m, "") / 1.1:end(m, "r") * 1.1]
    set xtics (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)
    plot for [i = 1:8] curve(m, mode[i]) using 4:(tail($3)) with lines lw 3.5 lc rgb colour[i], \
        for [i = 1:8] match(m, load . mode[i]) using 6:(tail($4)) with points pt hollow[i] lw 2.5 lc rgb colour[i]
    unset label
}
eval legend(above + 680)
set key vertical maxrows 4
plot for [i = 1:8] NaN with linespoints pt hollow[i] lw 3 lc rgb colour[i] title shown[i]
unset multiplot
