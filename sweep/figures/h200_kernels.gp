# Batch-invariant kernels and others by the rows of a pass, in % of the speed of the kernel that is not batch-invariant:
# above a matrix product, of our run on the left and of PyTorch's on the right; below RMSNorm, and whole decode steps.
# Filled marks are our kernels; hollow ones are of others. A line's name stands beside one of its points.
height = above + 1130 + below
eval start("", width, height)
set multiplot
eval sheet_text
set xlabel "rows of the pass"
set logscale x 2
unset key
# number(metric, series, rows, column): one number of the points file. of(metric, base, series, column): a series in % of
# another one of ours.
of(m, base, series, column) = sprintf("< awk -F '\\t' '$2 == \"%s\" && $3 == \"%s\" { b[$4] = $5 } " . \
    "$2 == \"%s\" && $3 == \"%s\" { n++; x[n] = $4; y[n] = $%d } " . \
    "END { for (i = 1; i <= n; i++) print x[i] FS 100 * y[i] / b[x[i]] }' '%s'", m, base, m, series, column, points)
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
set title "matrix product down (14,336 x 4,096)" offset 0, -0.5
set ylabel "% of cuBLASLt's first choice"
set xrange [0.8:5200]
eval tics
set yrange [0:140]
set ytics 25
eval even("first choice of cuBLASLt, not batch-invariant")
eval name("INVARIANT (hollow: an algorithm of cuBLASLt)", 1, 124, red)
eval name("our one fixed tile", 4, number(m, "fixed_tile", "4", 5) + 11, orange)
upto(x) = x <= real(most) ? x : NaN
invariant_of(who) = sprintf("< awk -F '\t' '$1 == \"products\" && $2 == \"down\" && $3 == \"invariant\" && $8 %s " . \
    "/^cublasLt/' '%s'", who, kernels)
plot match(m, "invariant") using (upto($4)):5 with lines lw 4 lc rgb red, \
    for [inside = 1:0:-1] invariant_of("~") using (upto($4)):7 with points pt 4 + inside lw 3 \
        lc rgb (inside ? "#FFFFFF" : red), \
    invariant_of("!~") using (upto($4)):7 with points pt 5 lc rgb red, \
    match(m, "fixed_tile") using (upto($4)):5 with linespoints pt 9 lw 4 lc rgb orange
unset label

eval area(810, 1370, first, first + 455)
set title "the same product in PyTorch" offset 0, -0.5
unset ylabel
# One number of TFLOP/s, in % of cuBLASLt's first choice in our run.
percent(s, x) = 100 * number("tflop_per_s down", s, x, 6) / number("tflop_per_s down", "cublas", x, 5)
of_ours(s) = of("tflop_per_s down", "cublas", s, 6)
eval even("")
eval name("cuBLAS, not batch-invariant", 1, 88, black)
eval name("Triton, one fixed tile", 6, percent("peer triton_fixed_tile_128", "256") + 8, "#2A86C0")
eval name("Thinking Machines (Triton)", 40, percent("peer tml_triton", "16") - 6, purple)
eval name("TBIK (Triton)", 1, percent("peer tbik_triton", "16") - 3, green)
plot of_ours("peer cublas") using 1:2 with linespoints pt 10 lw 2.5 dt 3 lc rgb black, \
    of_ours("peer triton_fixed_tile_128") using 1:2 with linespoints pt 12 lw 2.5 dt 3 lc rgb "#2A86C0", \
    of_ours("peer tml_triton") using 1:2 with linespoints pt 6 lw 2.5 dt 3 lc rgb purple, \
    of_ours("peer tbik_triton") using 1:2 with linespoints pt 4 lw 2.5 dt 3 lc rgb green
unset label

torch = real(system("grep -c torch_rms_norm '" . points . "' || true")) > 0
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
draw = 'plot of("gb_per_s rmsnorm", "split", "one_block", 5) using 1:2 with linespoints pt 5 lw 4 lc rgb red'
if (torch) { draw = draw . ', of("gb_per_s rmsnorm", "split", "peer torch_rms_norm", 6) using 1:2 with linespoints pt 14 lw 2.5 dt 3 lc rgb purple' }
eval draw
unset label

# Passes: speed is the inverse of time.
eval area(810, 1370, second, second + 320)
set title "decode step of 8B" offset 0, -0.5
set ylabel "% without invariance" offset 0.5, 0
run = 1400
set xrange [0.8:2800]
set xtics (1, 4, 16, 64, 256)
set xtics add ("run" run)
set yrange [0:125]
set ytics 25
d = "pct_of_fast decode"
u = "published deterministic_unoptimized"
b = "published deterministic_improved_attention"
eval even("ours: FAST, which has the same products")
eval name("INVARIANT", 8, 112, red)
eval name("our one fixed tile", 3, 1e4 / number(d, "fixed_tile", "4", 5) - 12, orange)
eval name("Thinking Machines", 4, 1e4 / number(d, "peer tml_triton", "64", 5 + 1) + 12, purple)
eval name("vLLM", 800, 1e4 / number("pct_of_fast run", b, "nan", 6) + 13, black)
plot match(d, "invariant") using 4:(1e4 / $5) with linespoints pt 5 lw 4 lc rgb red, \
    match(d, "fixed_tile") using 4:(1e4 / $5) with linespoints pt 9 lw 4 lc rgb orange, \
    match(d, "peer tml_triton") using 4:(1e4 / $6) with linespoints pt 6 lw 2.5 dt 3 lc rgb purple, \
    for [s in "unoptimized improved_attention"] match("pct_of_fast run", "published deterministic_" . s) \
        using (run):(1e4 / $6) with points pt (s eq "unoptimized" ? 10 : 8) lw 2.5 lc rgb black
unset multiplot
