# Figure 9: a, pass time against tokens; b-d, distribution of rollbacks; recomputed tokens by window.
eval start("", 1100, 1100)
set multiplot title heading("What verification costs, and how often it rolls back (Figure 9)", \
    "a: from the calibration; the rest: ShareGPT, 12 queries/s, all deterministic, G = 1," . \
    more("20,480 requests of five seeds; " . flips . "% of candidates flip; hollow: published"))
set size 0.5, 0.44
set origin 0, 0.44
set title "a  verification pass" offset 0, -0.5
set xlabel "tokens in the pass"
set ylabel "ms"
set logscale x 2
set xrange [12:700]
set yrange [0:*]
set ytics 5
set key top left
set lmargin 8
plot match("verify_pass_ms", "G=1") using 4:5 with linespoints pt 7 lw 3.5 lc rgb blue title "calibration", \
    "" using 4:6 with points pt 6 lw 3 lc rgb black title "published"
unset logscale x
set origin 0.5, 0.44
set title "recomputed tokens"
set xlabel "window W"
set ylabel "% of returned tokens"
set xrange [-0.6:3.6]
set yrange [0:*]
set ytics 10
set boxwidth 0.6
set xtics scale 0
plot match("recompute_pct", "G=1") using 0:5:xticlabel(4) with boxes lc rgb "#8FC3E3" title "simulated", \
    "" using 0:6 with points pt 6 lw 3 lc rgb black title "published"
set size 1, 0.44
set origin 0, 0
set title "b-d  rollbacks per verification pass, over requests"
set xlabel "rollbacks / verification passes of a request"
set ylabel "requests up to this (%)"
set xrange [-0.01:1.01]
set yrange [0:103]
set ytics 20
set xtics auto scale 0.6
set key bottom right maxrows 3 width 1
array shades[4] = [orange, green, blue, black]
curve(w) = sprintf("< awk -F '\\t' '$1 == %d { print $2 FS $3 }' '%s'", w, cdf)
plot for [i = 1:4] curve(2**(i + 4)) using 1:2 with steps lw 3.5 lc rgb shades[i] title sprintf("W = %d", 2**(i + 4)), \
    NaN with points pt 6 lw 3 lc rgb black title "published (read off)", \
    for [i = 1:4] match("cdf_pct", sprintf("W=%d", 2**(i + 4))) using 4:6 with points pt 6 lw 3 lc rgb shades[i] notitle
unset multiplot
