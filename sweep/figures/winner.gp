# Which mechanism has the lowest P99 latency: a map of share and load for each cost of INVARIANT passes.
height = above + 1525 + below
eval start("", width, height)
set multiplot
eval sheet_text
eval heat
array colour[5] = ["#6FB3DC", "#3DB489", "#EE9A63", "#F2CB62", "#BFE5D6"]
array shown[5] = ["DVR: verifies", "HYBRID, mostly verifies", "all INVARIANT", "GPUs set apart, INVARIANT", \
    "HYBRID, mostly INVARIANT passes"]
of(axis, field) = system(sprintf("awk -F '\t' '!s[$%d]++ { print $%d }' '%s'", axis, field, cells))
costs = of(1, 7); shares = of(2, 8); loads = of(3, 9)
set xrange [0.5:words(shares) + 0.5]
set yrange [0.5:words(loads) + 0.5]
set xtics ()
name(load) = load eq "offline" ? "at once" : load
do for [i = 1:words(shares)] { set xtics add (sprintf("%g", 100 * real(word(shares, i))) i) }
do for [p = 1:words(costs)] {
    left = p % 2 ? 170 : 770; top = above + (p < 3 ? 60 : 760)
    eval area(left, left + 540, top, top + 560)
    set ytics ()
    do for [i = 1:words(loads)] { set ytics add ((p % 2 ? name(word(loads, i)) : "") i) }
    set title sprintf("if INVARIANT passes cost %.0f%% more", 100 * real(word(costs, p)) - 100) offset 0, -0.6
    set xlabel "deterministic requests (%)" offset 0, 0.3
    set ylabel p % 2 ? "requests a second and GPU" : "" offset 1.6, 0
    plot for [i = 1:5] cells using ($1 == p && $4 == i ? $2 : NaN):3:(0.5):(0.5) with boxxyerror lc rgb colour[i], \
        cells using ($1 == p && $5 == 0 ? $2 : NaN):3:(0.5):(0.5) with boxxyerror \
            fs transparent pattern 4 noborder lc rgb "#66FFFFFF", \
        cells using ($1 == p ? $2 : NaN):3:6 with labels font font(16) tc rgb black, \
        gates using ($1 == p ? $2 - 0.33 : NaN):($3 - 0.28) with points pt 9 ps 1.05 * marks lc rgb black
    unset label
}
unset object 1
eval legend(above + 1412)
eval "set key horizontal maxrows 2 width -4 font '" . font(17) . "'"
set style fill solid 1
plot for [i in "1 2 5 3 4"] NaN with boxes lc rgb colour[int(i)] title shown[int(i)]
unset multiplot
