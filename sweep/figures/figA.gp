# Which mechanism wins: a heat map of the ratio of two throughputs, a diverging palette around 1, and the line where DVR
# and batch-invariant passes are equally fast. Some cells away
# from the line have their number, and so has that with the largest. name: the
# series of that line; ratio: the metric of the cells; own: the slowdown of the calibration's batch-invariant passes;
# range: of the colours, in log2.
height = above + 640 + below
eval start("", width, height)
set multiplot
eval sheet_text
eval heat
set xrange [5:105]
set yrange [0.875:3.125]
set xtics 10, 10, 100
set ytics 1, 0.5, 3
set format y "%.1f"
set palette defined (-1 '#E69F00', -0.001 '#FDF3DC', 0 '#FFFFFF', 0.001 '#E3EFF8', 1 '#5AA5D6')
set cbrange [-real(range):real(range)]
shade(v) = lg(floor(100 * v + 0.5) / 100.0)
set xlabel "deterministic requests (%)"
set ylabel "time of a batch-invariant / a fast pass"
ratios = "< awk -F '\\t' '$2 == \"" . ratio . "\" && $3 > 0' '" . points . "'"
some = "< awk -F '\\t' '$2 == \"break_even_slowdown\" && $3 == \"" . name . "\" { even[$4] = $5 } " . \
    "$2 != \"" . ratio . "\" || $3 == 0 { next } FNR == NR { if ($5 > most) most = $5; next } " . \
    "$5 == most || $3 * 2 == int($3 * 2) && $4 * 10 % 3 == 1 && ($3 - even[$4]) ^ 2 > 0.03' '" . points . "' '" . points . "'"
even = "< awk -F '\\t' '$2 == \"break_even_slowdown\" && $3 == \"" . name . "\"' '" . points . "'"
set label 1 (name eq "hybrid" ? "black line:\ndvr and invariant\nequally fast" : "black line:\nboth equally\nfast") \
    at 106.5, 3 left font font(15) tc rgb "#222222"
if (real(own) > 0) {
    set arrow 1 from 5, real(own) to 105.5, real(own) nohead front lw 2 dt 2 lc rgb red
    set label 2 sprintf("%.2f: this\ncalibration's\nkernels", real(own)) at 106.5, real(own) + 0.13 left font font(16) \
        tc rgb red
}
set object 1 rectangle from 5, 0.875 to 105, 3.125 front fs empty border lc rgb grey lw 1  # white cells are cells, too
eval area(130, 900, above + 15, above + 545)
# The colour is that of the number as it is shown.
plot ratios using (100 * $4):3:(5):(0.125):(shade($5)) with boxxyerror lc palette notitle, \
    even using (100 * $4):5 with lines lw 6 lc rgb "#222222" notitle, \
    some using (100 * $4):3:(sprintf("%.2f", $5)) with labels font font(22) tc rgb black notitle
unset multiplot
