# Batch-invariant kernels and others by the rows of a pass, in % of the speed of the kernel that is not batch-invariant:
# above a matrix product, ours on the left and those of others on the right; below RMSNorm, and whole decode steps.
# Filled marks are ours; hollow ones are of others. A line's name stands beside one of its points.
height = above + 1130 + below
eval start("", width, height)
set multiplot
eval sheet_text
set xlabel "rows of the pass"
set logscale x 2
unset key
# number(metric, series, rows, column): one number of the points file. RMSNorm is in % of the kernel that splits rows.
number(m, s, x, c) = real(system(sprintf("awk -F '\t' 'BEGIN { v = -99 } $2 == \"%s\" && $3 == \"%s\" && $4 == \"%s\" " . \
    "{ v = $%d } END { print v }' '%s'", m, s, x, c, points)))
name(text, x, y, colour) = sprintf("set label '%s' at %g, %g left front font '%s' tc rgb '%s'; ", text, x, y, font(16), colour)
even(text) = 'set arrow 1 from graph 0, first 100 to graph 1, first 100 nohead lw 2 dt 2 lc rgb black; ' . \
    name(text, 0.95, 93, black)
tics = 'set xtics (1, 4, 16, 64, 256, "1k" 1024, "4k" 4096)'
first = above + 65
second = above + 685

m = "pct_of_cublas down"
eval area(130, 690, first, first + 455)
set title "matrix product down (14,336 x 4,096): ours" offset 0, -0.5
set ylabel "% of cuBLASLt's speed"
set xrange [0.8:5200]
eval tics
set yrange [0:125]
set ytics 25
eval even("cuBLASLt, not batch-invariant")
eval name("INVARIANT", 40, number(m, "invariant", "64", 5) + 6, red)
eval name("FAST", 620, number(m, "fast", "512", 5) + 5, blue)
eval name("ours, one fixed tile", 4, number(m, "fixed_tile", "4", 5) + 11, orange)
upto(x) = x <= real(most) ? x : NaN
plot match(m, "fast") using (upto($4)):5 with linespoints pt 7 lw 4 lc rgb blue, \
    match(m, "invariant") using (upto($4)):5 with linespoints pt 5 lw 4 lc rgb red, \
    match(m, "fixed_tile") using (upto($4)):5 with linespoints pt 9 lw 4 lc rgb orange
unset label

eval area(810, 1370, first, first + 455)
set title "the same product: kernels of others" offset 0, -0.5
unset ylabel
set xrange [0.8:40000]
set xtics (1, 16, 256, "4k" 4096, "peak" 20000)
eval even("cuBLAS of the same run")
eval name("Triton, one fixed tile", 6, number(m, "peer triton_fixed_tile_128", "256", 6) + 16, "#2A86C0")
eval name("Thinking Machines (Triton)", 40, number(m, "peer tml_triton", "16", 6) - 6, purple)
eval name("TBIK (Triton)", 1, number(m, "peer tbik_triton", "16", 6) - 3, green)
eval name("LLM-42", 9000, number(m, "published batch_invariant_triton", "nan", 6) + 7, black)
plot match(m, "peer triton_fixed_tile_128") using 4:6 with linespoints pt 12 lw 2.5 dt 3 lc rgb "#2A86C0", \
    match(m, "peer tml_triton") using 4:6 with linespoints pt 6 lw 2.5 dt 3 lc rgb purple, \
    match(m, "peer tbik_triton") using 4:6 with linespoints pt 4 lw 2.5 dt 3 lc rgb green, \
    match(m, "published batch_invariant_triton") using (20000):6 with points pt 8 lw 2.5 lc rgb black
unset label

torch = real(system("grep -c torch_rms_norm '" . points . "' || true")) > 0
of(series, column) = sprintf("< awk -F '\\t' '$2 == \"gb_per_s rmsnorm\" && $3 == \"split\" { b[$4] = $5 } " . \
    "$2 == \"gb_per_s rmsnorm\" && $3 == \"%s\" { n++; x[n] = $4; y[n] = $%d } " . \
    "END { for (i = 1; i <= n; i++) print x[i] FS 100 * y[i] / b[x[i]] }' '%s'", series, column, points)
eval area(130, 690, second, second + 320)
set title "RMSNorm, width 4,096" offset 0, -0.5
set ylabel "% of the split's speed"
set xrange [0.8:10400]
eval tics
set yrange [0:275]
set ytics 50
eval even("")
eval name("one block a row", 1, 185, red)
eval name("rows split, not batch-invariant", 1, 80, black)
if (torch) { eval name("PyTorch", 1200, 45, purple) }
draw = 'plot of("one_block", 5) using 1:2 with linespoints pt 5 lw 4 lc rgb red'
if (torch) { draw = draw . ', of("peer torch_rms_norm", 6) using 1:2 with linespoints pt 14 lw 2.5 dt 3 lc rgb purple' }
eval draw
unset label

# Passes: speed is the inverse of time.
eval area(810, 1370, second, second + 320)
set title "decode step of 8B" offset 0, -0.5
set ylabel "% of FAST's speed" offset 0.5, 0
run = 1400
set xrange [0.8:2800]
set xtics (1, 4, 16, 64, 256)
set xtics add ("run" run)
set yrange [0:125]
set ytics 25
d = "pct_of_fast decode"
u = "published deterministic_unoptimized"
b = "published deterministic_improved_attention"
eval even("FAST, not batch-invariant")
eval name("INVARIANT", 8, 112, red)
eval name("ours, one fixed tile", 3, 1e4 / number(d, "fixed_tile", "4", 5) - 12, orange)
eval name("Thinking Machines", 4, 1e4 / number(d, "peer tml_triton", "64", 5 + 1) + 12, purple)
eval name("vLLM", 800, 1e4 / number("pct_of_fast run", b, "nan", 6) + 13, black)
plot match(d, "invariant") using 4:(1e4 / $5) with linespoints pt 5 lw 4 lc rgb red, \
    match(d, "fixed_tile") using 4:(1e4 / $5) with linespoints pt 9 lw 4 lc rgb orange, \
    match(d, "peer tml_triton") using 4:(1e4 / $6) with linespoints pt 6 lw 2.5 dt 3 lc rgb purple, \
    for [s in "unoptimized improved_attention"] match("pct_of_fast run", "published deterministic_" . s) \
        using (run):(1e4 / $6) with points pt (s eq "unoptimized" ? 10 : 8) lw 2.5 lc rgb black
unset multiplot
