# Figure 6: cumulative shares of requests by span, steps; the published medians as marks at 50%.
simulated = "measured on the CPU backend with tiny42 (1 M parameters, bf16), not simulated"
eval start("", 1100, 760)
set title heading("How long outputs stay equal in a batch (Figure 6)", \
    "96 requests of " . tokens . " tokens, greedy; tokens equal to those of the request served alone" . \
    more("lines: ours; hollow marks: published for Llama-3.1-8B on an H100 SXM"))
curve(name, mode) = sprintf( \
    "< awk -F '\\t' '$1 == \"%s_span_tokens\" && $2 == \"%s\" { print $3 FS $4 }' '%s'", name, mode, cdf)
set xlabel "span of equal tokens"
set ylabel "requests with a span up to this (%)"
set xrange [-6:tokens + 6]
set yrange [0:103]
set key at graph 0.965, graph 0.44 right spacing 0.95
plot curve("second", "nondeterministic") using 1:2 with steps lw 4 lc rgb sky title "second span, not marked", \
    curve("first", "nondeterministic") using 1:2 with steps lw 4 lc rgb grey title "first span, not marked", \
    curve("first", "dvr") using 1:2 with steps lw 4 lc rgb blue title "deterministic: all equal", \
    "+" using (real(second)):(50) every ::0::0 with points pt 6 lw 3 lc rgb sky title "published median, second", \
    "+" using (real(first)):(50) every ::0::0 with points pt 6 lw 3 lc rgb black title "published median, first", \
    "+" using (real(tokens)):(100 - equal) every ::0::0 with points pt 4 lw 3 lc rgb black \
        title "published share that drifts"
