# Verification policies: two panels over the share of deterministic requests.
height = above + 760 + below
eval start("", width, height)
set multiplot
eval sheet_text
array policy[2] = ["eager", "wait"]
array shown[2] = ["EAGER (the paper)", "WAIT for G windows"]
array colour[2] = [blue, green]
array mark[2] = [7, 9]
none(m) = sprintf("< awk -F '\\t' '$2 == \"%s\" && $3 ~ /^non/ { print 0.5 FS $5; print 6.5 FS $5 }' '%s'", m, points)
set xrange [0.5:6.5]
set xtics ("2" 1, "5" 2, "10" 3, "20" 4, "50" 5, "100" 6)
place(r) = r < 0.03 ? 1 : r < 0.07 ? 2 : r < 0.15 ? 3 : r < 0.3 ? 4 : r < 0.7 ? 5 : 6
set xlabel "deterministic requests (%)"
unset key
do for [panel = 1:2] {
    m = panel == 1 ? "total_tok_per_s" : "p99_latency_s"
    eval area(panel == 1 ? 110 : 655, panel == 1 ? 535 : 1080, above + 60, above + 525)
    set title panel == 1 ? "throughput, all at once" : "P99 latency, 12 queries/s" offset 0, -0.5
    set ylabel panel == 1 ? "thousand tokens/s, prompts included" : "seconds"
    set yrange [0:*]
    plot none(m) using 1:(panel == 1 ? $2 / 1000 : $2) with lines lw 3 dt 3 lc rgb grey, \
        for [i = 1:2] match(m, policy[i]) using (place($4)):(panel == 1 ? $5 / 1000 : $5) \
        with linespoints lw 3.5 pt mark[i] lc rgb colour[i]
    unset label
}
eval legend(above + 630)
set key vertical maxrows 2 width -3
plot for [i = 1:2] NaN with linespoints lw 3.5 pt mark[i] lc rgb colour[i] title shown[i], \
    NaN with lines lw 3 dt 3 lc rgb grey title "none deterministic"
unset multiplot
