# Figure 10: a panel a workload; x: ordinary, shares of deterministic requests, batch-invariant.
eval start("", 1200, 1500)
set multiplot title heading("Offline throughput by share of deterministic requests (Figure 10)", \
    requests . " requests at once; along x: deterministic ones in %; lines and bars: ours; hollow: published" . \
    more("in all but ArXiv the paper saw far fewer rollbacks (Table 4) than our one rate of flips gives"))
workloads = "ShareGPT|ArXiv|in=512 out=256|in=1024 out=256|" . \
    "in=1024 out=512|in=2048 out=256|in=2048 out=512|in=4096 out=512"
name(i) = system(sprintf("echo '%s' | cut -d '|' -f %d", workloads, i))
place(x) = x eq "nondeterministic" ? 0 : x eq "batch_invariant" ? 7 : \
    x eq "0.02" ? 1 : x eq "0.05" ? 2 : x eq "0.1" ? 3 : x eq "0.2" ? 4 : x eq "0.5" ? 5 : 6
modes(n, shape) = sprintf("< awk -F '\\t' '$2 ~ /^total/ && $3 == \"%s %s\" && $4 ~ /i/' '%s'", n, shape, points)
ratios(n, shape) = sprintf("< awk -F '\\t' '$2 ~ /^total/ && $3 == \"%s %s\" && $4 !~ /i/' '%s'", n, shape, points)
set xrange [-0.6:7.6]
set yrange [0:20]
set ytics 5
set xtics ("none" 0, "2" 1, "5" 2, "10" 3, "20" 4, "50" 5, "100" 6, "inv." 7) scale 0
set boxwidth 0.6
unset key
do for [i = 1:8] {
    left = 0.085 + 0.49 * ((i - 1) % 2); top = 0.872 - 0.205 * ((i - 1) / 2)
    set lmargin at screen left
    set rmargin at screen left + 0.42
    set tmargin at screen top
    set bmargin at screen top - 0.142
    set title name(i) offset 0, -0.6
    set ylabel i % 2 ? "1000 tokens/s" : ""
    plot modes(name(i), "W=64 G=8") using (place(strcol(4))):($5/1000):(strcol(4)[1:1] eq "n" ? 0xBBBBBB : 0xF0B48A) \
            with boxes lc rgb variable, \
        ratios(name(i), "W=32 G=16") using (place(strcol(4))):($5/1000) with lines lw 3.5 lc rgb orange, \
        ratios(name(i), "W=64 G=8") using (place(strcol(4))):($5/1000) with lines lw 3.5 lc rgb blue, \
        ratios(name(i), "W=32 G=16") using (place(strcol(4))):($6/1000) with points pt 4 lw 2.5 lc rgb orange, \
        ratios(name(i), "W=64 G=8") using (place(strcol(4))):($6/1000) with points pt 6 lw 2.5 lc rgb blue, \
        modes(name(i), "W=64 G=8") using (place(strcol(4))):($6/1000) with points pt 8 lw 2.5 lc rgb black
}
eval legend(0.07)
set key vertical maxrows 2 width format eq "png" ? -5 : -6
plot NaN with linespoints pt 4 lw 3 lc rgb orange title "DVR, W = 32, G = 16", \
    NaN with linespoints pt 6 lw 3 lc rgb blue title "DVR, W = 64, G = 8", \
    NaN with boxes lc rgb "#BBBBBB" title "none: nondeterministic", \
    NaN with boxes lc rgb "#F0B48A" title "inv.: batch-invariant", \
    NaN with points pt 8 lw 2.5 lc rgb black title "published"
unset multiplot
