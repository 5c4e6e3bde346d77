# Figure 10 of the camera-ready paper: a panel for each workload; x: shares of deterministic requests, batch-invariant.
height = above + 1185 + below
eval start("", width, height)
set multiplot
eval sheet_text
workloads = "ShareGPT|ArXiv|in=1024 out=256|in=1024 out=1024|in=4096 out=1024|in=4096 out=4096"
name(i) = system(sprintf("echo '%s' | cut -d '|' -f %d", workloads, i))
of(file, n, column, test) = sprintf("< awk -F '\\t' '$%d == \"%s\" && $%d %s /^[bd]/' '%s'", column, n, column + 1, \
    test, file)
set yrange [0:105]
set ytics 20
eval offline_tics
set xrange [0.4:8.4]
set boxwidth 0.6
unset key
set label 99 "% of the throughput of the nondeterministic mode" at screen 26.0 / width, screen 1 - (above + 500.0) / height center rotate by 90
do for [i = 1:6] {
    left = 135 + 550 * ((i - 1) % 2); top = above + 60 + 330 * ((i - 1) / 2)
    eval area(left, left + 480, top, top + 205)
    set title load_text(name(i)) offset 0, -0.6
    if (i > 4) { set xlabel "deterministic requests (%)" offset 0, -0.7 }
    plot of(points, name(i), 3, "~") using (place(strcol(4))):5 with boxes lc rgb "#F0B48A", \
        of(points, name(i), 3, "!~") using (place(strcol(4))):5 with lines lw 3.5 lc rgb blue, \
        of(points, name(i), 3, "!~") using (place(strcol(4))):6 with points pt 6 lw 2.5 lc rgb blue, \
        of(points, name(i), 3, "~") using (place(strcol(4))):6 with points pt 8 lw 2.5 lc rgb black, \
        of(deepgemm, name(i), 2, "~") using (place(strcol(3))):4 with points pt 10 lw 2.5 lc rgb black
    unset label
}
eval legend(above + 1070)
eval "set key vertical maxrows 3 width -4 font 'sans-serif" . font(17) . "'"
plot NaN with lines lw 3.5 lc rgb blue title "DVR", \
    NaN with boxes lc rgb "#F0B48A" title "batch-invariant", \
    NaN with points pt 6 lw 2.5 lc rgb blue title "published: DVR", \
    NaN with points pt 8 lw 2.5 lc rgb black title "published: batch-invariant, Triton", \
    NaN with points pt 10 lw 2.5 lc rgb black title "published: batch-invariant, DeepGEMM"
unset multiplot
