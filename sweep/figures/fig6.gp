# Figure 6: cumulative shares of requests by span, steps; the published medians as marks at 50%. A line and the marks of
# its series have one colour; white inside keeps a mark apart from the line under it.
height = above + 710 + below
eval start("", width, height)
set multiplot
eval sheet_text
curve(name, preset) = sprintf( \
    "< awk -F '\\t' '$1 == \"%s_span_tokens\" && $2 == \"%s\" { print $3 FS $4 }' '%s'", name, preset, cdf)
eval area(130, 1050, above + 20, above + 490)
set xlabel "span of equal tokens"
set ylabel "requests with a span up to this (%)"
set xrange [-6:tokens + 6]
set yrange [0:103]
unset key
plot curve("second", "nondeterministic") using 1:2 with steps lw 4 lc rgb orange, \
    curve("first", "nondeterministic") using 1:2 with steps lw 4 lc rgb grey, \
    curve("first", "paper") using 1:2 with steps lw 4 lc rgb blue, \
    for [inside = 1:0:-1] "+" using (real(second)):(50) every ::0::0 with points pt 6 + inside lw 3 \
        lc rgb (inside ? "#FFFFFF" : orange), \
    for [inside = 1:0:-1] "+" using (real(first)):(50) every ::0::0 with points pt 6 + inside lw 3 \
        lc rgb (inside ? "#FFFFFF" : grey), \
    for [inside = 1:0:-1] "+" using (real(tokens)):(100 - equal) every ::0::0 with points pt 4 + inside lw 3 \
        lc rgb (inside ? "#FFFFFF" : grey)
eval legend(above + 590)
eval "set key vertical maxrows 3 width -4 font '" . font(17) . "'"
plot NaN with lines lw 4 lc rgb grey title "not marked deterministic, first span", \
    NaN with lines lw 4 lc rgb orange title "not marked deterministic, second span", \
    NaN with lines lw 4 lc rgb blue title "marked deterministic: all equal", \
    NaN with points pt 6 lw 3 lc rgb grey title "camera-ready, median, first", \
    NaN with points pt 6 lw 3 lc rgb orange title "camera-ready, median, second", \
    NaN with points pt 4 lw 3 lc rgb grey title "camera-ready, share that drifts"
unset multiplot
