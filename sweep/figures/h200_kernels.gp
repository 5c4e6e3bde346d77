# Batch-invariant kernels and others by the rows of a pass: a matrix product, RMSNorm, and what whole passes cost.
# Filled marks are ours; hollow ones are of others.
width = 1500; height = 1060
eval start("", width, height)
set multiplot
array head[4] = ["What batch-invariant kernels cost", \
    "Filled: one run. Hollow: kernels of others in PyTorch on an H200 (" . day . ")", \
    "Dashed: the ceilings of that run. At the right edge, published: peaks, and vLLM beside its default", source]
bold = 1
eval sheet_head
array left[3] = [115, 640, 1130]
array right[3] = [515, 1020, 1475]
array name[3] = ["product down, 14,336 x 4,096", "RMSNorm, width 4,096", "time of a decode step"]
array yname[3] = ["TFLOP/s", "GB/s", "% of FAST"]
set xlabel "rows of the pass"
set logscale x 2
unset key
edge = 65536
torch = real(system("grep -c torch_rms_norm '" . points . "' || true")) > 0
array ours[4] = ["cublas", "fast", "invariant", "fixed_tile"]
array colour[4] = [black, blue, red, orange]
array mark[4] = [11, 7, 5, 9]

# Products.
eval area(left[1], right[1], 240, 640)
set title name[1] offset 0, -0.5
set ylabel yname[1]
set xrange [0.7:150000]
set xtics (1, 16, 256, "4,096" 4096, "peak" edge)
set yrange [0:900]
set ytics 200
set arrow 1 from graph 0, first real(matmul) to graph 1, first real(matmul) nohead lw 1.5 dt 2 lc rgb grey
m = "tflop_per_s down"
plot for [i = 1:4] match(m, ours[i]) using 4:5 with linespoints pt mark[i] lw 3.5 lc rgb colour[i], \
    match(m, "peer cublas") using 4:6 with points pt 10 lw 2.5 lc rgb black, \
    match(m, "peer tml_triton") using 4:6 with points pt 6 lw 2.5 lc rgb purple, \
    match(m, "peer tbik_triton") using 4:6 with points pt 4 lw 2.5 lc rgb green, \
    match(m, "published cublas") using (edge):6 with points pt 12 lw 2.5 lc rgb black, \
    match(m, "published batch_invariant_triton") using (edge):6 with points pt 12 lw 2.5 lc rgb purple
unset arrow 1
unset label

# Norms.
eval area(left[2], right[2], 240, 640)
set title name[2] offset 0, -0.5
set ylabel yname[2] offset 2, 0
set xrange [0.7:11000]
set xtics (1, 16, 256, "4,096" 4096)
set logscale y 10
set yrange [1:8000]
set ytics (1, 10, 100, "1,000" 1000)
set arrow 1 from graph 0, first real(copy) to graph 1, first real(copy) nohead lw 1.5 dt 2 lc rgb grey
norm = "gb_per_s rmsnorm"
draw = 'plot match(norm, "split") using 4:5 with linespoints pt 11 lw 3.5 lc rgb black, ' . \
    'match(norm, "one_block") using 4:5 with linespoints pt 5 lw 3.5 lc rgb red'
if (torch) { draw = draw . ', match(norm, "peer torch_rms_norm") using 4:6 with points pt 6 lw 2.5 lc rgb purple' }
eval draw
unset arrow 1
unset logscale y

# Passes.
eval area(left[3], right[3], 240, 640)
set title name[3] offset 0, -0.5
set ylabel yname[3] offset 0, 0
run = 2048
set xrange [0.7:4096]
set xtics (1, 4, 16, 64, 256, "run" run)
set yrange [0:400]
set ytics 100
m = "pct_of_fast decode"
plot match(m, "invariant") using 4:5 with linespoints pt 5 lw 3.5 lc rgb red, \
    match(m, "fixed_tile") using 4:5 with linespoints pt 9 lw 3.5 lc rgb orange, \
    match(m, "peer tml_triton") using 4:6 with points pt 6 lw 2.5 lc rgb purple, \
    match("pct_of_fast run", "published deterministic_unoptimized") using (run):6 with points pt 12 lw 2.5 \
        lc rgb purple, \
    match("pct_of_fast run", "published deterministic_improved_attention") using (run):6 with points pt 10 lw 2.5 \
        lc rgb purple

# Keys: ours and others', below each panel.
array text1[9] = ["cuBLASLt, its own choice", "FAST", "INVARIANT", "one fixed tile (INVARIANT)", \
    "cuBLAS in PyTorch", "Thinking Machines (Triton)", "TBIK (Triton)", "LLM-42, H100: cuBLAS", \
    "LLM-42, H100: batch-invariant"]
array pt1[9] = [11, 7, 5, 9, 10, 6, 4, 12, 12]
array lc1[9] = [black, blue, red, orange, black, purple, green, black, purple]
# An entry of a key stands in the middle of its width.
keys = "set key vertical font '" . font(15) . "'"
eval legend(740)
eval area(40, 520, 740, 1045)
eval keys . " maxrows 9"
plot for [i = 1:4] NaN with linespoints pt pt1[i] lw 3.5 lc rgb lc1[i] title text1[i], \
    for [i = 5:9] NaN with points pt pt1[i] lw 2.5 lc rgb lc1[i] title text1[i]
array text2[2] = ["split by rows: not batch-invariant", "one block a row: batch-invariant"]
array pt2[2] = [11, 5]
array lc2[2] = [black, red]
eval legend(740)
eval area(560, 1040, 740, torch ? 860 : 830)
eval keys . " maxrows 3"
plot for [i = 1:2] NaN with linespoints pt pt2[i] lw 3.5 lc rgb lc2[i] title text2[i], \
    for [i = 1:torch] NaN with points pt 6 lw 2.5 lc rgb purple title "PyTorch's rms\\_norm"
array text3[5] = ["INVARIANT", "one fixed tile (INVARIANT)", "Thinking Machines in PyTorch", \
    "vLLM, deterministic at first", "vLLM, then with better attention"]
array pt3[5] = [5, 9, 6, 12, 10]
array lc3[5] = [red, orange, purple, purple, purple]
eval legend(740)
eval area(1040, 1490, 740, 915)
eval keys . " maxrows 5"
plot for [i = 1:2] NaN with linespoints pt pt3[i] lw 3.5 lc rgb lc3[i] title text3[i], \
    for [i = 3:5] NaN with points pt pt3[i] lw 2.5 lc rgb lc3[i] title text3[i]
unset multiplot
