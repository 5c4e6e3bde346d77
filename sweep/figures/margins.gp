# The margin law of flips: the share of tokens that flip, predicted against counted.
height = above + 880 + below
eval start("", width, height)
set multiplot
eval sheet_text
eval area(150, 1050, above + 20, above + 770)
set logscale xy
set xlabel "predicted share of tokens that flip, %"
set ylabel "counted share, %"
set xrange [0.05:2]
set yrange [0.05:2]
set xtics (0.05, 0.1, 0.2, 0.5, 1, 2)
set ytics (0.05, 0.1, 0.2, 0.5, 1, 2)
set grid x y lc rgb pale lw 1 lt 1
set key top left
set bars small
array model[4] = ["tiny42", "tiny42", "base42", "base42"]
array type[4] = ["bf16", "fp32", "bf16", "fp32"]
array colour[4] = [sky, blue, orange, red]
of(i) = sprintf("< awk -F '\\t' '$1 == \"%s\" && $4 == \"%s\" && $16 > 0 { print $12, $13, $14, $15 }' '%s'", \
    model[i], type[i], raw)
floored(v) = v < 0.0005 ? 0.0005 : v
set datafile separator whitespace
plot x with lines lw 2 dt 2 lc rgb grey title "predicted = counted", \
    for [i = 1:4] of(i) using (100 * $1):(100 * $2):(100 * floored($3)):(100 * $4) with yerrorbars \
        pt (i % 2 ? 6 : 7) lw 2.5 lc rgb colour[i] title sprintf("%s, logits in %s", model[i], type[i])
unset multiplot
