# GPUs that a fleet needs: P99 latency by number of GPUs; the least number that holds the bound, for two loads; and with
# replicas of their own for deterministic requests.
width = 1200; height = 1540
eval start("", width, height)
set multiplot
bound(run) = system(sprintf("awk -F '\t' '$2 == \"%s_bound_s\" { print $5 }' '%s'", run, points))
has_azure = strlen(bound("azure")) > 0
array head[7] = ["How many GPUs does a fleet need to hold a bound on P99 latency?", \
    "each replica is one GPU; the router takes the one with the fewest tokens at work (least\\_tokens)", \
    "bound: three times the P99 end-to-end latency of ordinary requests on an idle GPU;", \
    "it must hold for deterministic requests and for the others, each kind by itself", \
    "the paper's policies: EAGER, oldest, ISOLATED; W = 64, G = 8", \
    "the best of Figure A: WAIT, PACKED, chunked prompts, bonus token; W = 64, G = 16", \
    source]
bold = 1
eval sheet_head
array name[4] = ["dvr", "dvr_best", "batch_invariant", "none"]
array shown[4] = ["DVR, the paper's policies", "DVR, the best of Figure A", "batch-invariant", "nothing deterministic"]
array colour[4] = [blue, green, red, grey]
array mark[4] = [7, 9, 5, 13]
# What has no share is drawn from edge to edge.
flat(m, s) = sprintf("< awk -F '\\t' '$2 == \"%s\" && $3 == \"%s\" { print 0 FS $5; print 105 FS $5 }' '%s'", \
    m, s, points)
unset key
left(p) = p % 2 ? 115 : 710
top(p) = p < 3 ? 355 : 935

eval area(left(1), left(1) + 470, top(1), top(1) + 380)
titled(what, below) = what . "\n{/*0.8 " . below . "}"
set title titled("ShareGPT, half of it deterministic", "160 requests/s; the P99 latency of the slower kind") \
    offset 0, -0.3
set xlabel "GPUs"
set ylabel "P99 latency (s)"
set xrange [7:31]
set yrange [0:55]
set label 50 "bound" at 30.8, real(bound("sharegpt")) + 2 right tc rgb black font font(16)
plot real(bound("sharegpt")) with lines lw 2.5 dt 2 lc rgb black, \
    for [i = 1:4] match("sharegpt_p99_s", name[i]) using 4:5 with linespoints lw 3.5 pt mark[i] lc rgb colour[i]
unset label 50

set xlabel "deterministic requests (%)"
set ylabel "GPUs needed"
set xrange [0:105]
set xtics 0, 20, 100
do for [p = 2:4] {
    if (p != 3 || has_azure) {
        run = p == 3 ? "azure" : "sharegpt"
        eval area(left(p), left(p) + 470, top(p), top(p) + 380)
        set title titled(p == 2 ? "ShareGPT" : p == 3 ? "Azure conversations" : "ShareGPT: shared or set apart", \
            (p == 3 ? "the trace's arrivals, 20 times as fast" : p == 2 ? "160 requests/s (Poisson)" : \
            "dotted: replicas of their own") . "; bound " . bound(run) . " s") offset 0, -0.3
        set yrange [0:p == 3 ? 30 : 20]
        m = run . "_replicas"
        plot flat(m, "none") using 1:2 with lines lw 3.5 lc rgb grey, \
            flat(m, "batch_invariant") using 1:2 with lines lw 3.5 lc rgb red, \
            for [i = 1:2] match(m, name[i]) using (100 * $4):5 with linespoints lw 3.5 pt mark[i] lc rgb colour[i], \
            for [i = 1:(p == 4 ? 3 : 0)] match("sharegpt_apart_replicas", name[i]) using (100 * $4):5 \
                with linespoints lw 3.5 dt 3 pt mark[i] - 1 ps 2 * marks lc rgb colour[i]
    }
}
eval legend(1430)
eval "set key vertical maxrows 2 width -4 font '" . font(17) . "'"
plot for [i = 1:4] NaN with linespoints lw 3.5 pt mark[i] lc rgb colour[i] title shown[i], \
    NaN with linespoints lw 3.5 dt 3 pt 6 ps 2 * marks lc rgb black title "on replicas of their own"
unset multiplot
