# Packed or isolated prefill: heat map of the ratio of P99 times to the first token, both times in small print.
eval heat
height = above + 665 + below
eval start("", width, height)
set multiplot
eval sheet_text
eval area(110, 1050, above + 15, above + 567)
set xlabel "prompt (tokens)"
set ylabel "queries per second"
set xrange [6.5:12.5]
set yrange [-0.5:5.5]
set xtics ("128" 7, "256" 8, "512" 9, "1024" 10, "2048" 11, "4096" 12)
set ytics ("1" 0, "2" 1, "4" 2, "8" 3, "16" 4, "32" 5)
set palette defined (-2 '#E69F00', -0.001 '#FDF3DC', 0 '#FFFFFF', 0.001 '#E3EFF8', 2 '#5AA5D6')
set cbrange [-2:2]
fine(v) = v < 0.0995 ? sprintf("%.3f", v) : v < 9.995 ? sprintf("%.2f", v) : sprintf("%.0f", v)
both = "< awk -F '\\t' '$2 ~ /isolated/ { a[$3, $4] = $5 } $2 ~ /packed/ { b[$3, $4] = $5; k[++n] = $3 FS $4 } " . \
    "END { for (i = 1; i <= n; i++) { split(k[i], v, FS); " . \
    "print k[i] FS a[v[1], v[2]] FS b[v[1], v[2]] } }' '" . points . "'"
plot both using (lg($2)):(lg($1)):(0.5):(0.5):(lg(real(short($3 / $4)))) with boxxyerror lc palette, \
    "" using (lg($2)):(lg($1)):(short($3 / $4)) with labels offset 0, 0.45 font font(26) tc rgb black, \
    "" using (lg($2)):(lg($1)):(fine($3) . "/" . fine($4)) with labels offset 0, -0.9 font font(17) tc rgb "#333333", \
    marked using (lg($1) + 0.4):(lg($2) + 0.32):3 with labels font "sans-serif:Bold" . font(15) tc rgb black
unset multiplot
