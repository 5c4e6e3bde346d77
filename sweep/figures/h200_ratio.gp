# Throughput by share of deterministic requests: measured with lines and marks, simulated with hollow marks. The
# batch-invariant mode, in which all requests are deterministic, stands at the right.
width = 1100; height = 1050
eval start("", width, height)
set multiplot
array head[6] = ["What determinism costs", \
    "output tokens/s, % of the nondeterministic mode; FIXED: W = 32, G = 8", \
    "ShareGPT lengths, 1,024 requests at once" . (strlen(few) && few ne "1024" ? " (8B, EAGER: " . few . ")" : "") . \
    "; filled: measured; hollow: simulated", source, late, why]
bold = 1
eval sheet_head
eval area(130, 1050, strlen(late) ? 255 : 195, 720)
set xlabel "deterministic requests (%)"
set ylabel "throughput (% of nondeterministic)"
set logscale x
at_invariant = 190.0
set xtics (2, 5, 10, 20, 50, 100, "batch-\ninvariant" at_invariant)
set xrange [1.8:230]
set yrange [0:105]
set ytics 20
unset key
rows(m, mode) = int(system("grep -c '" . m . " " . mode . "' '" . points . "'"))
there = system("awk -F '\t' '/^h200/ { sub(/ .*/, \"\", $3); if (!had[$3]++) print $3 }' '" . points . "'")
# A preset's name is that of its series. Presets have no simulated marks.
preset(m) = m eq "best" || m eq "dvr" || m eq "invariant"
named(m) = preset(m) ? "8B, preset " . m . " (not simulated)" : (m eq "8b" ? "8B" : m) . ", FIXED, EAGER, PACKED"
colour(m) = m eq "best" ? orange : m eq "dvr" ? blue : m eq "invariant" ? "#444444" : m eq "8b" ? purple : green
mark(m) = m eq "best" ? 9 : m eq "dvr" ? 7 : m eq "invariant" ? 11 : m eq "8b" ? 13 : 5
beside(m) = at_invariant * (m eq "8b" ? 1.07 : m eq "base42" ? 0.93 : 1)  # three that would hide one another
with_share = ""
with_invariant = ""
do for [m in there] {
    if (rows("\t" . m, "dvr") > 0) { with_share = with_share . " " . m }
    if (rows("\t" . m, "batch_invariant") > 0) { with_invariant = with_invariant . " " . m }
}
plot for [m in with_share] match("relative_pct", m . " dvr") using 4:5 with linespoints pt mark(m) lw 4 \
    lc rgb colour(m), \
    for [m in with_share] match("relative_pct", m . " dvr") using 4:6 with points pt mark(m) - 1 lw 3 ps 1.5 * marks \
    lc rgb colour(m), \
    for [m in with_invariant] match("relative_pct", m . " batch_invariant") using (beside(m)):5 with points pt mark(m) \
    lc rgb colour(m), \
    for [m in with_invariant] match("relative_pct", m . " batch_invariant") using (beside(m)):6 with points \
    pt mark(m) - 1 lw 3 ps 1.5 * marks lc rgb colour(m)
eval legend(845)
set key vertical maxrows 5
plot for [m in there] NaN with linespoints pt mark(m) lw 4 lc rgb colour(m) title named(m)
unset multiplot
