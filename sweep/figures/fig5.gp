# Figure 5: bars of output throughput, one colour a mode; published points over them.
height = above + 515 + below
eval start("", width, height)
set multiplot
eval sheet_text
eval area(150, 1050, above + 20, above + 430)
set ylabel "output tokens per second"
set yrange [0:*]
set ytics highest("output_tok_per_s") > 1000 ? 500 : 200
set xrange [-0.6:3.6]
set boxwidth 0.66
unset key
set xtics scale 0
label(mode, n) = mode eq "dvr" ? "11, one is\ndeterministic" : \
    mode eq "batch_invariant" ? "11, batch-\ninvariant" : n . ", none\ndeterministic"
colour(mode) = mode eq "dvr" ? 0x8FC3E3 : mode eq "batch_invariant" ? 0xF0B48A : 0xBBBBBB
plot metric("output_tok_per_s") using 0:5:(colour(strcol(3))):xticlabel(label(strcol(3), strcol(4))) \
        with boxes lc rgb variable, \
    ends using 0:3:(0):($4 - $3) with vectors nohead lw 4 lc rgb "#666666", \
    metric("output_tok_per_s") using 0:6 with points pt 4 lw 3 lc rgb black, \
    "" using 0:(0):(sprintf("%.0f", $5)) with labels offset 0, 2.1 tc rgb black font "sans-serif:Bold" . font(26), \
    "" using 0:(0):(sprintf("(%.0f)", $6)) with labels offset 0, 0.7 tc rgb "#333333" font font(20)
unset multiplot
