# Throughput by share of deterministic requests: measured with lines and marks, simulated with hollow marks. The
# batch-invariant mode, in which all requests are deterministic, stands at the right. Below is the top of the upper plot.
height = above + 1085 + below
eval start("", width, height)
set multiplot
eval sheet_text
set logscale x
at_invariant = 185.0
set xrange [1.8:250]
unset key
rows(m, mode) = int(system("grep -c '" . m . " " . mode . "' '" . points . "'"))
there = system("awk -F '\t' '/^h200/ { sub(/ .*/, \"\", $3); if (!had[$3]++) print $3 }' '" . points . "'")
# A preset's name is that of its series. Presets have no simulated marks.
preset(m) = m eq "best" || m eq "dvr" || m eq "invariant"
named(m) = preset(m) ? "8B, preset " . m : (m eq "8b" ? "8B" : m) . ", fixed shape"
colour(m) = m eq "best" ? orange : m eq "dvr" ? blue : m eq "invariant" ? red : m eq "8b" ? purple : green
mark(m) = m eq "best" ? 9 : m eq "dvr" ? 7 : m eq "invariant" ? 11 : m eq "8b" ? 13 : 5
beside(m) = at_invariant * (m eq "8b" ? 1.07 : m eq "base42" ? 0.93 : 1)  # three that would hide one another
with_share = ""
with_invariant = ""
do for [m in there] {
    if (rows("\t" . m, "dvr") > 0) { with_share = with_share . " " . m }
    if (rows("\t" . m, "batch_invariant") > 0) { with_invariant = with_invariant . " " . m }
}
set label 1 "% of the nondeterministic mode" at screen 26.0 / width, screen 1 - (above + 230.0) / height center rotate by 90
do for [panel = 1:2] {
    if (panel == 1) {
        eval area(125, 1060, above + 20, above + 440)
        set yrange [40:102]
        set ytics 10
        set xtics (2, 5, 10, 20, 50, 100, "{/*0.75 batch-}\n{/*0.75 invariant}" at_invariant)
    } else {
        eval area(125, 1060, above + 565, above + 835)
        set title "the top of it: 95 to 102%" offset 0, -0.5
        set yrange [95:102]
        set ytics 1
        set xlabel "deterministic requests (%)"
    }
    plot for [m in with_share] match("relative_pct", m . " dvr") using 4:5 with linespoints pt mark(m) lw 4 \
        lc rgb colour(m), \
        for [m in with_share] match("relative_pct", m . " dvr") using 4:6 with points pt mark(m) - 1 lw 3 ps 1.5 * marks \
        lc rgb colour(m), \
        for [m in with_invariant] match("relative_pct", m . " batch_invariant") using (beside(m)):5 with points \
        pt mark(m) lc rgb colour(m), \
        for [m in with_invariant] match("relative_pct", m . " batch_invariant") using (beside(m)):6 with points \
        pt mark(m) - 1 lw 3 ps 1.5 * marks lc rgb colour(m)
    unset label
}
eval legend(above + 960)
eval "set key vertical maxrows 3 font 'sans-serif" . font(17) . "'"
plot for [m in there] NaN with linespoints pt mark(m) lw (m eq "invariant" ? 0 : 4) lc rgb colour(m) title named(m), \
    NaN with points pt 6 lw 3 ps 1.5 * marks lc rgb black title "hollow: simulated"
unset multiplot
