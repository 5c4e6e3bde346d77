# A margin gate: wrong answers by the share of tokens that are verified. A curve for each model and way to draw.
height = above + 760 + below
eval start("", width, height)
set multiplot
eval sheet_text
eval area(150, 1050, above + 20, above + 660)
set xlabel "tokens that are verified, %"
set ylabel "answers that are wrong, %"
set xrange [0:100]
set yrange [0:140]
set ytics 0, 20, 100
set grid x y lc rgb pale lw 1 lt 1
set key top right
array curve[5] = ["tiny42_cpu_default_bf16_0.8", "tiny42_cpu_default_bf16_0", "tiny42_cpu_default_fp32_0", \
    "llama-3.1-8b_cuda_offered_bf16_0", "hybrid42_cpu_default_bf16_0"]
array name[5] = ["tiny42, temperature 0.8", "tiny42, greedy", "tiny42, greedy, logits in fp32", "8B, greedy", "hybrid42, greedy"]
array colour[5] = [red, blue, sky, green, purple]
of(i) = sprintf("< awk -F '\\t' '$1 == \"%s\" { print $2 \"\\t\" $3 }' '%s' | sort -n", curve[i], curves)
plot for [i = 1:5] of(i) using 1:2 with linespoints lw 3 pt 7 lc rgb colour[i] title name[i]
unset multiplot
