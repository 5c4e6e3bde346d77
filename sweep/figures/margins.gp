# The margin law of flips: the share of tokens that flip, predicted against counted.
height = above + 930 + below
eval start("", width, height)
set multiplot
eval sheet_text
eval area(150, 707, above + 20, above + 820)
set logscale xy
set xlabel "predicted share of tokens that flip, %"
set ylabel "counted share, %"
set xrange [0.1:1.2]
set yrange [0.034:1.2]
set xtics (0.1, 0.2, 0.5, 1)
set ytics (0.05, 0.1, 0.2, 0.5, 1)
set grid x y lc rgb pale lw 1 lt 1
unset key
set bars small
array model[6] = ["tiny42", "tiny42", "base42", "base42", "llama-3.1-8b", "llama-3.1-8b"]
array type[6] = ["bf16", "fp32", "bf16", "fp32", "bf16", "fp32"]
array colour[6] = [sky, blue, orange, red, "#7BCDB4", green]
of(i, backend) = sprintf("< awk -F '\\t' '$1 == \"%s\" && $2 == \"%s\" && $3 == \"%s\" && $8 > 0 " . \
    "{ print $4, $5, $6, $7 }' '%s'", model[i], type[i], backend, cases)
name(i) = sprintf("%s, logits in %s", model[i] eq "llama-3.1-8b" ? "8B" : model[i], type[i])
floored(v) = v < 0.0003 ? 0.0003 : v
set datafile separator whitespace
plot x with lines lw 2 dt 2 lc rgb grey, \
    for [i = 1:6] of(i, "cuda") using (100 * $1):(100 * $2):(100 * floored($3)):(100 * $4) with yerrorbars \
        pt (i % 2 ? 4 : 5) lw 2.5 lc rgb colour[i], \
    for [i = 1:4] of(i, "cpu") using (100 * $1):(100 * $2):(100 * floored($3)):(100 * $4) with yerrorbars \
        pt (i % 2 ? 6 : 7) lw 2.5 lc rgb colour[i]
eval legend(above + 20)
eval area(740, 1090, above + 20, above + 820)
set key vertical maxrows 9
plot NaN with lines lw 2 dt 2 lc rgb grey title "predicted = counted", \
    for [i = 1:6] NaN with lines lw 12 lc rgb colour[i] title name(i), \
    NaN with points pt 7 lc rgb black title "circle: a CPU", NaN with points pt 5 lc rgb black title "square: an H200"
unset multiplot
