# Figure 9: a, pass time against tokens, and the same by token; b, distribution of rollbacks; c, of recomputed tokens; d,
# recomputed tokens by window; the legend.
height = above + 1390 + below
eval start("", width, height)
set multiplot
eval sheet_text
unset key
eval area(130, 520, above + 60, above + 345)
set title "a1  time of a verification pass" offset 0, -0.5
set xlabel "tokens in the pass"
set ylabel "ms (from the calibration)"
set logscale x 2
set xrange [12:700]
set yrange [0:*]
plot match("verify_pass_ms", "G=1") using 4:5 with lines lw 3.5 lc rgb sky, \
    "" using 4:6 with points pt 6 lw 3 lc rgb black
unset label
eval area(660, 1065, above + 60, above + 345)
set title "a2  the same, by token" offset 0, -0.5
set ylabel "ms / tokens in the pass"
set logscale y
set yrange [0.03:1]
set ytics (0.05, 0.1, 0.2, 0.5, 1)
plot match("verify_token_ms", "G=1") using 4:5 with lines lw 3.5 lc rgb sky, \
    "" using 4:6 with points pt 6 lw 3 lc rgb black
unset logscale
set mytics default
eval area(130, 520, above + 520, above + 805)
set title "b  rollbacks per verification pass"
set xlabel "rollbacks / passes of a request"
set ylabel "requests up to this (%)"
set xrange [-0.01:1.01]
set yrange [40:103]
set ytics 10
set xtics autofreq
array shades[4] = [orange, green, blue, black]
curve(w) = sprintf("< awk -F '\\t' '$1 == %d { print $2 FS $3 }' '%s'", w, cdf)
end(w) = sprintf("< awk -F '\\t' '$1 == %d' '%s'", w, ends)
plot for [i = 1:4] curve(2**(i + 4)) using 1:2 with steps lw 3.5 lc rgb shades[i], \
    for [i = 1:4] match("cdf_pct", sprintf("W=%d", 2**(i + 4))) using 4:6 with points pt 6 lw 3 lc rgb shades[i], \
    for [i = 1:4] end(2**(i + 4)) using 2:(100) with points pt 6 lw 3 lc rgb shades[i]
eval area(660, 1065, above + 520, above + 805)
set title "c  recomputed tokens, by request"
set xlabel "tokens (log of 1 + tokens)"
tokens(w) = sprintf("< awk -F '\\t' '$2 == \"W=%d\" { print $4 FS $3 }' '%s'", w, recomputed)
set xrange [0:8]
set xtics ("0" 0, "10" log(11), "100" log(101), "1000" log(1001))
plot for [i = 1:4] tokens(2**(i + 4)) using (log(1 + $1)):2 with lines lw 3.5 lc rgb shades[i]
set xtics autofreq
eval area(130, 520, above + 980, above + 1265)
set title "d  recomputed tokens, in all" offset 0, -0.5
set xlabel "window W"
set ylabel "% of returned tokens"
set xrange [-0.6:3.6]
set yrange [0:*]
set ytics 10
set boxwidth 0.6
set xtics scale 0
plot match("recompute_pct", "G=1") using 0:5:xticlabel(4) with boxes lc rgb "#8FC3E3", \
    "" using 0:6 with points pt 6 lw 3 lc rgb black
eval legend(above + 980)
eval area(600, 1090, above + 980, above + 1265)
set key vertical maxrows 6
plot for [i = 1:4] NaN with lines lw 3.5 lc rgb shades[i] title sprintf("W = %d", 2**(i + 4)), \
    NaN with lines lw 3.5 lc rgb sky title "calibration", \
    NaN with points pt 6 lw 3 lc rgb black title "published"
unset multiplot
