# Which mechanism wins: heat map of a ratio, a diverging palette around 1, and the line where both are equal.
eval heat
eval start("", 1100, 900)
set title heading("Verification or batch-invariant kernels: which is faster?", \
    "throughput of DVR / of batch-invariant kernels (blue: DVR is faster)" . \
    more("ShareGPT, 4,096 requests at once, W = 64, G = 8") . \
    more("grey line: equally fast; dashed: the batch-invariant kernels of this calibration"))
set xlabel "deterministic requests (%)"
set ylabel "batch-invariant pass / fast pass (time)"
set xrange [5:105]
set yrange [0.875:3.125]
set xtics 10, 10, 100
set ytics 1, 0.5, 3
set format y "%.1f"
set palette defined (-1 '#E69F00', -0.001 '#FDF3DC', 0 '#FFFFFF', 0.001 '#E3EFF8', 1 '#5AA5D6')
set cbrange [-1:1]
set lmargin 8
ratios = "< awk -F '\\t' '$2 == \"dvr_vs_invariant\" && $3 > 0' '" . points . "'"
own = "< awk -F '\\t' '$2 == \"calibration_slowdown\" { print 5 FS $5; print 105 FS $5 }' '" . points . "'"
plot ratios using (100 * $4):3:(5):(0.125):(lg($5)) with boxxyerror lc palette notitle, \
    metric("break_even_slowdown") using (100 * $4):5 with lines lw 5 lc rgb "#80000000" notitle, \
    own using 1:2 with lines lw 3 dt 2 lc rgb red notitle, \
    ratios using (100 * $4):3:(sprintf("%.2f", $5)) with labels font font(21) tc rgb black notitle
