# What one model says by the tensor cores of several GPUs: bars of each arithmetic, compared with sm90.
height = above + 590 + below
eval start("", width, height)
set multiplot
eval sheet_text
array colour[4] = [green, blue, grey, orange]
array told[4] = ["sm100 (B200)", "sm80 (A100)", "fp32 (a CPU's own)", "sm89 (Ada)"]
array panels[2] = ["answers with another token, %", "log-probabilities with other bits, %"]
of(hue) = sprintf("< awk -F '\\t' '$8 == %d' '%s'", hue, shares)
set xrange [1.4:7.6]
set yrange [0:116]
set xtics ("greedy" 2, "T = 0.8" 3, "greedy" 4, "T = 0.8" 5, "greedy" 6, "T = 0.8" 7) scale 0 \
    font "sans-serif" . font(13)
array model[3] = ["tiny42", "tiny42, FP8", "base42"]
set ytics 0, 25, 100 font "sans-serif" . font(14)
unset key
do for [panel = 1:2] {
    do for [m = 1:3] { set label m model[m] at 0.5 + 2 * m, -22 center font "sans-serif" . font(15) }
    eval area(panel == 1 ? 90 : 630, panel == 1 ? 550 : 1090, above + 55, above + 410)
    set title panels[panel] font "sans-serif" . font(16) offset 0, -0.5
    plot for [i = 1:4] of(i) using ($4 + 0.27 * ($5 - 2)):(column(5 + panel)):(0.25) with boxes lc rgb colour[i], \
        for [i = 1:4] of(i) using ($4 + 0.27 * ($5 - 2)):(column(5 + panel) + (i == 3 ? 9 : 5)): \
        (sprintf("%d", floor(column(5 + panel) + 0.5 + 1e-9))) with labels font "sans-serif" . font(9.5) tc rgb colour[i]
    unset label
}
eval legend(above + 500)
set key vertical maxrows 1 width -2 font "sans-serif" . font(14)
plot for [i = 1:4] NaN with boxes lc rgb colour[i] title told[i]
unset multiplot
