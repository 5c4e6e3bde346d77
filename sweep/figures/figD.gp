# GPUs that a fleet needs: the least number that holds the bound, for two loads; with replicas of their own for
# deterministic requests; and P99 latency by number of GPUs.
height = above + 1265 + below
eval start("", width, height)
set multiplot
eval sheet_text
bound(run) = system(sprintf("awk -F '\t' '$2 == \"%s_bound_s\" { print $5 }' '%s'", run, points))
has_azure = strlen(bound("azure")) > 0
array name[5] = ["preset_best", "batch_invariant", "dvr_best", "dvr", "none"]
array shown[5] = ["preset best", "batch-invariant", "DVR, tuned (extrapolated)", "DVR, the paper's", "nothing deterministic"]
array colour[5] = [orange, red, green, blue, grey]
array mark[5] = [11, 5, 9, 7, 13]
# Of each share the least and the most of the seeds: share, least, most. What has no share goes from edge to edge.
seeds(m, s) = sprintf("< awk -F '\\t' '$1 == \"%s\" && $2 == \"%s\" { k = $3; if (!n[k]++) { o[++c] = k; a[k] = b[k] = $5 } " . \
    "if ($5 < a[k]) a[k] = $5; if ($5 > b[k]) b[k] = $5 } END { for (i = 1; i <= c; i++) if (o[i] == \"nan\") " . \
    "print 0 FS a[o[i]] FS b[o[i]] \"\\n\" 105 FS a[o[i]] FS b[o[i]]; else print 100 * o[i] FS a[o[i]] FS b[o[i]] }' '%s'", \
    m, s, by_seed)
flat(m, s) = sprintf("< awk -F '\\t' '$2 == \"%s\" && $3 == \"%s\" { print 0 FS $5; print 105 FS $5 }' '%s'", m, s, points)
unset key
left(p) = p % 2 ? 115 : 710
top(p) = above + (p < 3 ? 95 : 675)
titled(what, below) = what . "\n{/*0.8 " . below . "}"

set xlabel "deterministic requests (%)"
set ylabel "GPUs needed"
set xrange [0:105]
set xtics 0, 20, 100
do for [p = 1:3] {
    if (p != 2 || has_azure) {
        run = p == 2 ? "azure" : "sharegpt"
        eval area(left(p), left(p) + 470, top(p), top(p) + 380)
        set title titled(p == 1 ? "ShareGPT, 160 requests/s" : p == 2 ? "Azure conversations" : "ShareGPT, GPUs set apart", \
            p == 1 ? "bound " . bound(run) . " s; all GPUs serve all requests" : \
            p == 2 ? "bound " . bound(run) . " s; a trace, 20 times as fast" : \
            "deterministic requests have GPUs of their own") offset 0, -0.3
        set yrange [0:p == 2 ? 32 : 20]
        barred = p == 3 ? "4 3 2 1" : "4 3 1"
        m = run . (p == 3 ? "_apart_replicas" : "_replicas")
        plot flat(run . "_replicas", "none") using 1:2 with lines lw 3.5 lc rgb grey, \
            for [i = 2:(p == 3 ? 1 : 2)] seeds(m, name[i]) using 1:2:3 with filledcurves fs transparent solid 0.25 noborder \
                lc rgb colour[i], \
            for [i = 2:(p == 3 ? 1 : 2)] flat(m, name[i]) using 1:2 with lines lw 3.5 lc rgb colour[i], \
            for [k in barred] seeds(m, name[int(k)]) using 1:2:(0):($3 - $2) with vectors nohead lw 9 \
                lc rgb "#90" . colour[int(k)][2:7], \
            for [i = 4:1:-1] match(m, name[i]) using (100 * $4):5 with linespoints lw (p == 3 && i == 2 ? 9 : 3.5) \
                pt mark[i] lc rgb colour[i]
        unset label
    }
}

eval area(left(4), left(4) + 470, top(4), top(4) + 380)
set title titled("ShareGPT, half of it deterministic", "P99 latency of the slower kind of request") offset 0, -0.3
set xlabel "GPUs"
set ylabel "P99 latency (s)"
set xrange [7:31]
set xtics auto
set yrange [0:55]
set label 50 "bound" at 30.8, real(bound("sharegpt")) + 2 right tc rgb black font font(16)
plot real(bound("sharegpt")) with lines lw 2.5 dt 2 lc rgb black, \
    for [i = 5:1:-1] match("sharegpt_p99_s", name[i]) using 4:5 with linespoints lw 3.5 pt mark[i] lc rgb colour[i]
unset label 50
eval legend(height - below - 85)
eval "set key vertical maxrows 2 width -3 font 'sans-serif" . font(17) . "'"
plot for [i = 1:5] NaN with linespoints lw 3.5 pt mark[i] lc rgb colour[i] title shown[i]
unset multiplot
