# Figure 10: a panel a workload; x: ordinary, shares of deterministic requests, batch-invariant.
height = above + 1525 + below
eval start("", width, height)
set multiplot
eval sheet_text
workloads = "ShareGPT|ArXiv|in=512 out=256|in=1024 out=256|" . \
    "in=1024 out=512|in=2048 out=256|in=2048 out=512|in=4096 out=512"
name(i) = system(sprintf("echo '%s' | cut -d '|' -f %d", workloads, i))
modes(n, shape) = sprintf("< awk -F '\\t' '$2 ~ /^total/ && $3 == \"%s %s\" && $4 ~ /i/' '%s'", n, shape, points)
ratios(n, shape) = sprintf("< awk -F '\\t' '$2 ~ /^total/ && $3 == \"%s %s\" && $4 !~ /i/' '%s'", n, shape, points)
# One scale for all panels, whatever the calibration.
most = highest("total_tok_per_s")
set yrange [0:5 * ceil(most / 5000)]
set ytics most > 20000 ? 10 : 5
eval offline_tics
set boxwidth 0.6
unset key
set label 99 "thousand tokens/s, prompts included" at screen 26.0 / width, screen 1 - (above + 640.0) / height center rotate by 90
do for [i = 1:8] {
    left = 115 + 560 * ((i - 1) % 2); top = above + 60 + 320 * ((i - 1) / 2)
    eval area(left, left + 500, top, top + 195)
    set title load_text(name(i)) offset 0, -0.6
    if (i > 6) { set xlabel "deterministic requests (%)" offset 0, -0.7 }
    plot modes(name(i), "W=64 G=8") using (place(strcol(4))):($5/1000):(strcol(4)[1:1] eq "n" ? 0xBBBBBB : 0xF0B48A) \
            with boxes lc rgb variable, \
        ratios(name(i), "W=32 G=16") using (place(strcol(4))):($5/1000) with lines lw 3.5 lc rgb orange, \
        ratios(name(i), "W=64 G=8") using (place(strcol(4))):($5/1000) with lines lw 3.5 lc rgb blue, \
        ratios(name(i), "W=32 G=16") using (place(strcol(4))):($6/1000) with points pt 4 lw 2.5 lc rgb orange, \
        ratios(name(i), "W=64 G=8") using (place(strcol(4))):($6/1000) with points pt 6 lw 2.5 lc rgb blue, \
        modes(name(i), "W=64 G=8") using (place(strcol(4))):($6/1000) with points pt 8 lw 2.5 lc rgb black
    unset label
}
eval legend(above + 1365)
set key vertical maxrows 4
plot NaN with lines lw 3.5 lc rgb orange title "DVR, W = 32, G = 16", \
    NaN with lines lw 3.5 lc rgb blue title "DVR, W = 64, G = 8", \
    NaN with boxes lc rgb "#BBBBBB" title "nondeterministic", \
    NaN with boxes lc rgb "#F0B48A" title "batch-invariant", \
    NaN with points pt 4 lw 2.5 lc rgb orange title "published: DVR, W = 32, G = 16", \
    NaN with points pt 6 lw 2.5 lc rgb blue title "published: DVR, W = 64, G = 8", \
    NaN with points pt 8 lw 2.5 lc rgb black title "published: the other two modes"
unset multiplot
