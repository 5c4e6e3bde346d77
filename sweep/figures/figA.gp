# Which mechanism wins: heat maps of a ratio for two policies of DVR, and one of what HYBRID gains over both mechanisms;
# a diverging palette around 1, and the line where both mechanisms are equally fast.
width = 1100; height = 2280
eval start("", width, height)
set multiplot
array head[6] = ["Verification or batch-invariant kernels: which is faster?", \
    "throughput of DVR / of batch-invariant kernels (blue: DVR is faster, orange: slower)", \
    "last: of preset best / of the better of presets dvr and invariant (stronger colours)", \
    "ShareGPT, 4,096 requests at once; in the lower two, prompts are cut into chunks", \
    "grey line: equally fast; dashed: the batch-invariant kernels of this calibration", \
    source]
bold = 1
eval sheet_head
eval heat
set xrange [5:105]
set yrange [0.875:3.125]
set xtics 10, 10, 100
set ytics 1, 0.5, 3
set format y "%.1f"
set palette defined (-1 '#E69F00', -0.001 '#FDF3DC', 0 '#FFFFFF', 0.001 '#E3EFF8', 1 '#5AA5D6')
set cbrange [-1:1]
set label 99 "time of a batch-invariant pass / of a fast pass" at screen 26.0 / width, screen 0.46 center rotate by 90
shade(v) = lg(floor(100 * v + 0.5) / 100.0)
array names[3] = ["dvr", "dvr_best", "hybrid"]
array titles[3] = ["DVR, the paper's policy: EAGER, oldest, ISOLATED; W = 64, G = 8", \
    "DVR, the best tried: WAIT, PACKED, chunked, bonus; W = 64, G = 16", \
    "Preset best (HYBRID) / the better of presets dvr and invariant"]
do for [panel = 1:3] {
    m = names[panel]
    eval area(140, 1050, 650 * panel - 344, 650 * panel + 206)
    set title titles[panel] offset 0, -0.6
    if (panel == 3) { set xlabel "deterministic requests (%)"; set cbrange [-0.25:0.25] }
    ratios = "< awk -F '\\t' '$2 == \"" . m . (panel == 3 ? "_vs_better" : "_vs_invariant") . \
        "\" && $3 > 0' '" . points . "'"
    even = "< awk -F '\\t' '$2 == \"break_even_slowdown\" && $3 == \"" . m . "\"' '" . points . "'"
    own = "< awk -F '\\t' '$2 == \"calibration_slowdown\" && $3 == \"batch_invariant" . \
        (panel == 1 ? "" : "_chunked") . "\" { print 5 FS $5; print 105 FS $5 }' '" . points . "'"
    # The colour is that of the number as it is shown. A second, small box of it keeps the lines away from the digits.
    plot ratios using (100 * $4):3:(5):(0.125):(shade($5)) with boxxyerror lc palette notitle, \
        even using (100 * $4):5 with lines lw 5 lc rgb "#80000000" notitle, \
        own using 1:2 with lines lw 3 dt 2 lc rgb red notitle, \
        ratios using (100 * $4):3:(2.8):(0.05):(shade($5)) with boxxyerror fs solid 1 noborder lc palette notitle, \
        ratios using (100 * $4):3:(sprintf("%.2f", $5)) with labels font font(20) tc rgb black notitle
    unset label
}
unset multiplot
