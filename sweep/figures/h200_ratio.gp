# Throughput by share of deterministic requests: measured with lines and marks, simulated with hollow marks.
eval start("", 1100, 800)
pointsize_of = format eq "png" ? 1.9 : 1
simulated = "measured on " . device
set title heading("What determinism costs", \
    "output tokens/s as % of NONDETERMINISTIC; ShareGPT lengths, W = 32, G = 8 (match: 16)" . \
    more("1,024 requests at once" . (strlen(few) && few ne "1024" ? " (8B shape, EAGER: " . few . ")" : "") . \
    "; hollow marks: simulated"))
set xlabel "deterministic requests (%)"
set ylabel "throughput (% of NONDETERMINISTIC)"
set logscale x
set xtics (2, 5, 10, 20, 50, 100)
set xrange [1.8:110]
set yrange [0:110]
set key bottom left
rows(m, mode) = int(system("grep -c '" . m . " " . mode . "' '" . points . "'"))
there = system("awk -F '\t' '/^h200/ { sub(/ .*/, \"\", $3); if (!had[$3]++) print $3 }' '" . points . "'")
shown(m) = m[1:2] eq "8b" ? "8B shape" : m
policy(m) = m eq "8b_match" ? ", WAIT, match, prefill INVARIANT" : m eq "8b_wait" ? ", WAIT" : ", EAGER"
colour(m) = m eq "8b_match" ? orange : m eq "8b_wait" ? blue : m eq "8b" ? sky : green
beside(m) = m eq "8b" ? 1.06 : m eq "base42" ? 0.94 : 1  # points at 100% would hide one another
fewer(m) = m eq "8b" && strlen(few) && few ne "1024" ? ", " . few . " requests" : ""
with_invariant = ""
do for [m in there] { if (rows("\t" . m, "batch_invariant") > 0) { with_invariant = with_invariant . " " . m } }
plot for [m in there] match("relative_pct", m . " dvr") using 4:5 with linespoints pt 7 lw 4 lc rgb colour(m) \
    title "DVR, " . shown(m) . policy(m), \
    for [m in there] match("relative_pct", m . " dvr") using 4:6 with points pt 6 lw 3 ps 1.5 * pointsize_of \
    lc rgb colour(m) notitle, \
    for [m in with_invariant] match("relative_pct", m . " batch_invariant") using ($4 * beside(m)):5 with points pt 5 \
    lc rgb colour(m) title "batch-invariant, " . shown(m) . fewer(m), \
    for [m in with_invariant] match("relative_pct", m . " batch_invariant") using ($4 * beside(m)):6 with points pt 4 lw 3 \
    ps 1.5 * pointsize_of lc rgb colour(m) notitle
