# What drafts are worth: four batches, six curves each.
height = above + 1105 + below
eval start("", width, height)
set multiplot
eval sheet_text
array batch[4] = [1, 4, 16, 64]
array way[3] = ["ordinary", "dvr", "best"]
array shown[3] = ["ordinary", "DVR", "best"]
array colour[3] = [grey, blue, red]
array mark[3] = [4, 6, 8]
array thick[3] = [9, 3.5, 3.5]  # the ordinary line lies under that of best
set xrange [-0.02:1.02]
unset key
do for [panel = 1:4] {
    left = panel % 2 == 1 ? 150 : 715; top = above + (panel < 3 ? 60 : 520)
    eval area(left, left + 430, top, top + 350)
    set title sprintf("%d request%s at once", batch[panel], panel > 1 ? "s" : "") offset 0, -0.5
    set xlabel panel > 2 ? "probability that a draft is right" : ""
    set ylabel panel % 2 == 1 ? "tokens/s of a request" : ""
    set logscale y
    set yrange [100:2000]
    set ytics (100, 200, 400, 800, 1600)
    plot for [i = 1:3] match("tok_per_s_none", sprintf("%d %s", batch[panel], way[i])) \
        using 4:($5 / batch[panel]) with lines lw 3 dt 2 lc rgb colour[i], \
        for [i = 1:3] match("tok_per_s", sprintf("%d %s", batch[panel], way[i])) \
        using 4:($5 / batch[panel]) with lines lw thick[i] lc rgb colour[i], \
        for [i = 1:3] match("tok_per_s", sprintf("%d %s", batch[panel], way[i])) \
        using 4:($6 / batch[panel]) with points pt mark[i] lw 3 lc rgb colour[i]
    unset label
}
eval legend(above + 975)
set key vertical maxrows 3 width -1
plot for [i = 1:3] NaN with lines lw thick[i] lc rgb colour[i] title shown[i], \
    NaN with lines lw 3 dt 2 lc rgb black title "without drafts", \
    NaN with points pt 4 lw 3 lc rgb grey title "measured: ordinary", \
    NaN with points pt 6 lw 3 lc rgb blue title "measured: DVR", \
    NaN with points pt 8 lw 3 lc rgb red title "measured: best"
unset multiplot
