# Products by the rows of a pass, in TFLOP/s: a panel for each of the five, and the key in the place of a sixth.
height = above + 1090 + below
eval start("", width, height)
set multiplot
eval sheet_text
set logscale x 2
set logscale y
set xrange [0.8:5200]
set xtics (1, 4, 16, 64, 256, "1k" 1024, "4k" 4096)
set yrange [1:900]
set ytics (1, 2, 5, 10, 20, 50, 100, 200, 500)
unset key
series = "cublas invariant fixed_tile"
array names[3] = ["cuBLASLt's first choice", "INVARIANT", "one fixed tile of ours"]
colour(s) = s eq "cublas" ? black : s eq "invariant" ? red : orange
mark(s) = s eq "cublas" ? 7 : s eq "invariant" ? 5 : 9
products = "qkv o gate_up down head"
shapes = "'4,096 x 6,144' '4,096 x 4,096' '4,096 x 28,672' '14,336 x 4,096' '4,096 x 128,256'"
peak(s) = real(system(sprintf("awk -F '\t' '$3 == \"published %s\" { print $6 }' '%s'", s, points)))
do for [i = 1:5] {
    column = (i - 1) % 3
    first = above + 65 + (i > 3 ? 540 : 0)
    eval area(125 + 440 * column, 475 + 440 * column, first, first + 380)
    set title word(products, i) . " (" . word(shapes, i) . ")" offset 0, -0.5 noenhanced
    if (column == 0) { set ylabel "TFLOP/s" offset 1, 0 } else { unset ylabel }
    if (i > 2) { set xlabel "rows of the pass" } else { unset xlabel }
    if (word(products, i) eq "down") {
        do for [s in "cublas batch_invariant_triton"] {
            set arrow from 0.8, peak(s) to 5200, peak(s) nohead lw 2 dt 3 lc rgb grey
            set label (s eq "cublas" ? "cuBLAS" : "Triton") . ", published" at 1, peak(s) * 1.25 font font(14) tc rgb grey
        }
    }
    plot for [s in series] match("tflop_per_s " . word(products, i), s) using 4:5 with linespoints pt mark(s) lw 4 \
        lc rgb colour(s)
    unset label
    unset arrow
}
unset title; unset border; unset tics; unset grid; unset xlabel; unset ylabel; unset logscale
set xrange [0:1]; set yrange [0:1]
set key left center samplen 2
eval area(990, 1370, above + 605, above + 985)
plot for [i = 1:3] NaN with linespoints pt mark(word(series, i)) lw 4 lc rgb colour(word(series, i)) title names[i]
unset multiplot
