# Shares of ceilings over the rows of a pass, a panel for each ceiling: reading memory (decode), and multiplying
# matrices (prompts and replay passes).
height = above + 705 + below
eval start("", width, height)
set multiplot
eval sheet_text
array first[2] = [1, 4]
array last[2] = [3, 6]
array series[6] = ["invariant_decode 512", "invariant_decode 4096", "invariant_decode 32768", \
    "fast_prompt", "fixed_prompt", "fixed_replay"]
array shown[6] = ["decode, context 512", "decode, context 4,096", "decode, context 32,768", \
    "prompt, FAST", "prompt, FIXED", "replay pass, FIXED"]
array colour[6] = [red, sky, purple, black, orange, green]
array mark[6] = [5, 9, 13, 11, 9, 7]
set xlabel "rows of the pass"
set logscale x 2
set yrange [0:100]
set ytics 20
unset key
do for [panel = 1:2] {
    m = panel == 1 ? "memory_share_pct" : "matmul_share_pct"
    eval area(panel == 1 ? 130 : 675, panel == 1 ? 535 : 1080, above + 60, above + 450)
    set title panel == 1 ? "decoding, INVARIANT" : "prompts and replay passes" offset 0, -0.5
    set ylabel panel == 1 ? "% of the read ceiling" : "% of the cuBLAS ceiling"
    if (panel == 1) { set xrange [0.8:320]; set xtics (1, 4, 16, 64, 256) }
    else { set xrange [105:2500]; set xtics (128, 256, 512, 1024, 2048) }
    plot for [i = first[panel]:last[panel]] match(m, series[i]) using 4:5 with linespoints pt mark[i] lw 3.5 \
        lc rgb colour[i]
    unset label
}
do for [panel = 1:2] {
    eval legend(above + 555)
    eval area(panel == 1 ? 60 : 640, panel == 1 ? 560 : 1060, above + 555, above + 695)
    set key vertical maxrows 3
    plot for [i = first[panel]:last[panel]] NaN with linespoints pt mark[i] lw 3.5 lc rgb colour[i] title shown[i]
}
unset multiplot
