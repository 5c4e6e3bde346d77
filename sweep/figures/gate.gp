# A margin gate: wrong answers by the share of tokens that are not verified. A curve for each model and way to draw.
height = above + 915 + below
eval start("", width, height)
set multiplot
eval sheet_text
eval area(150, 1050, above + 20, above + 660)
set xlabel "tokens that are not verified, %"
set ylabel "answers that are wrong, %"
set logscale x
set xrange [0.1:100]
set xtics (0.1, 0.3, 1, 3, 10, 30, 100)
set yrange [0:100]
set grid x y lc rgb pale lw 1 lt 1
unset key
array curve[7] = ["tiny42_cpu_default_bf16_0.8", "tiny42_cpu_default_bf16_0", "tiny42_cpu_default_fp32_0", \
    "base42_cpu_default_bf16_0.8", "base42_cpu_default_bf16_0", "llama-3.1-8b_cuda_offered_bf16_0", \
    "hybrid42_cpu_default_bf16_0"]
array name[7] = ["tiny42, temperature 0.8", "tiny42, greedy", "tiny42, greedy, logits in fp32", \
    "base42, temperature 0.8", "base42, greedy", "8B, greedy", "hybrid42, greedy"]
array colour[7] = [red, blue, sky, orange, black, green, purple]
of(i) = sprintf("< awk -F '\\t' '$1 == \"%s\" && $2 < 100 { print 100 - $2 \"\\t\" $3 \"\\t\" $7 \"\\t\" $8 }' '%s' | sort -n", curve[i], curves)
set bars small
plot for [i = 1:7] of(i) using 1:2:3:4 with yerrorbars lw 1.2 pt 7 ps 0.1 lc rgb colour[i], \
    for [i = 1:7] of(i) using 1:2 with linespoints lw 3 pt 7 lc rgb colour[i]
eval legend(above + 760)
eval "set key vertical maxrows 4 font '" . font(17) . "'"
plot for [i = 1:7] NaN with linespoints lw 3 pt 7 lc rgb colour[i] title name[i]
unset multiplot
