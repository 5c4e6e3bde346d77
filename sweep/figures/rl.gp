# Equal bits in training and serving: ratios above, rewards below; a CPU on the left, an H200 on the right.
height = above + 850 + below
eval start("", width, height)
set multiplot
eval sheet_text
array device[2] = ["cpu", "h200"]
array shown[2] = ["a CPU", "one H200"]
array way[3] = ["fast", "mixed", "llm42"]
array colour[3] = [ordinary, blue, red]
array thick[3] = [5, 2.5, 4]
of(d, w) = sprintf("< awk -F '\t' '$1 == \"%s_%s\"' '%s'", device[d], way[w], curves)
set key off
set xrange [0:100]
set xtics 20
do for [d = 1:2] {
    left = d == 1 ? 130 : 650
    eval area(left, left + 420, above + 50, above + 330)
    set title shown[d] offset 0, -0.4
    set ylabel d == 1 ? "importance ratio (log)" : ""
    set yrange [0.6:1.6]
    set logscale y
    set ytics (0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.4, 1.6)
    plot for [w = 1:3] of(d, w) using 2:4 with lines lw thick[w] lc rgb colour[w], \
        for [w = 1:3] of(d, w) using 2:5 with lines lw thick[w] lc rgb colour[w]
    unset label
    eval area(left, left + 420, above + 400, above + 680)
    unset logscale y
    unset title
    set ylabel d == 1 ? "words without an e, mean" : ""
    set xlabel "step of training"
    set yrange [0.5:1]
    set ytics 0.1
    plot for [w = 1:3] of(d, w) using 2:3 with lines lw thick[w] lc rgb colour[w]
    unset xlabel
}
eval legend(above + 800)
set key horizontal center
plot for [w = 1:3] NaN with lines lw thick[w] lc rgb colour[w] title way[w]
unset multiplot
