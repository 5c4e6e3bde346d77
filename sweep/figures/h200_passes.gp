# Shares of ceilings over the rows of a pass: reading (full lines), multiplying (dashed).
eval start("", 1100, 800)
simulated = "measured on " . device
set title heading("How near passes come to the ceilings", \
    "full lines: weights and KV read, of the read ceiling; dashed: operations, of cuBLAS's" . \
    more("8B shape, bf16; context 512 where none is named, of prompts their own length"))
set xlabel "rows of the pass"
set ylabel "share of the ceiling (%)"
set logscale x 2
set xrange [0.9:2300]
set yrange [0:105]
set key bottom left
array series[3] = ["fast_decode 512", "invariant_decode 512", "fast_decode 4096"]
array shown[3] = ["decode, FAST", "decode, INVARIANT", "decode, FAST, context 4,096"]
array colour[3] = [blue, red, sky]
array products[4] = ["fast_prompt", "invariant_prompt", "fixed_prompt", "fixed_replay"]
array labels[4] = ["prompt, FAST", "prompt, INVARIANT", "prompt, FIXED", "replay pass, FIXED"]
array colours[4] = [blue, red, orange, green]
array marks[4] = [5, 5, 9, 13]
plot for [i = 1:3] match("memory_share_pct", series[i]) using 4:5 with linespoints pt 7 lw 4 lc rgb colour[i] \
    title shown[i], \
    for [i = 1:4] match("matmul_share_pct", products[i]) using 4:5 with linespoints pt marks[i] lw 3 dt (10, 6) \
    lc rgb colours[i] title labels[i]
