# Throughput against batch, both on a logarithmic axis.
eval start("", 1100, 760)
set title heading("Output throughput by batch", \
    "all at once; SGLang's random data set, up to 1,024 tokens in and 512 out, seed 42" . \
    more("DVR: all deterministic, W = 64, G = 8; hollow marks: published"))
set xlabel "requests"
set ylabel "output tokens per second"
set logscale xy
set xtics (2, 4, 8, 16, 32, 64, 128, 256, 512)
set ytics (50, 100, 200, 500, 1000, 2000, 5000)
set xrange [1.8:570]
set yrange [40:7000]
set key top left
array mode[3] = ["nondeterministic", "dvr", "batch_invariant"]
array shown[3] = ["nondeterministic (fitted)", "DVR (predicted)", "batch-invariant (fitted)"]
array colour[3] = [ordinary, dvr, invariant]
plot for [i = 1:3] match("output_tok_per_s", mode[i]) using 4:5 with lines lw 4 lc rgb colour[i] title shown[i], \
    NaN with points pt 6 lw 3 lc rgb black title "published", \
    for [i = 1:3] match("output_tok_per_s", mode[i]) using 4:6 with points pt 6 lw 3 lc rgb colour[i] notitle
