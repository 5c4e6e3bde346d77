# Lines over x: sizes, texts and the table come from plot/layout.awk. A row of the table is a point: line, "curve",
# "level" (a value that does not depend on x) or "edge" (of a band alone), x, our number, the reference's, the edges of
# the band of --spread, and our number again if it is overloaded, and if it may be.
eval start("", width, height)
set multiplot
eval sheet_text
array mark[8] = [7, 5, 9, 11, 13, 7, 5, 9]
mark_of(k) = strlen(beside) ? 0 : mark[k]  # beside hollow marks ours are lines alone
points_of(k) = sprintf("< awk -F '\\t' '$1 == %d && $2 == \"curve\"' '%s'", k, table)
level_of(k) = sprintf("< awk -F '\\t' '$1 == %d && $2 == \"level\"' '%s'", k, table)
set label 99 y_label at screen 28.0 / width, screen 0.5 * (height - top + bottom) / height center rotate by 90
eval area(left, width - 50, top, height - bottom)
set xlabel x_label
span = last_x > first_x ? last_x - first_x : 1
if (strstrt(logs, "x")) {
    set logscale x
    set xrange [first_x / 1.1:last_x * 1.1]
} else { set xrange [first_x - 0.03 * span:last_x + 0.03 * span] }
if (strstrt(logs, "y")) {
    set logscale y
    set yrange [low / 1.3:high * 1.3]
    eval "set ytics (" . y_tics . ")"
} else { if (low >= 0) { set yrange [0:*] } }
if (strlen(x_tics)) { eval "set xtics (" . x_tics . ")" }
unset key
band_of(k) = sprintf("< awk -F '\\t' '$1 == %d' '%s'", k, table)
plot for [k = 1:(spread ? panels : 0)] band_of(k) using 3:6:7 with filledcurves fs transparent solid 0.2 noborder \
        lc rgb hue[k], \
    for [k = 1:panels] level_of(k) using 3:4 with lines lw 3.5 dt 3 lc rgb hue[k], \
    for [k = 1:panels] points_of(k) using 3:4 with linespoints lw 3.5 pt mark_of(k) lc rgb hue[k], \
    for [k = 1:panels] points_of(k) using 3:5 with points pt 6 lw 3 lc rgb hue[k], \
    for [k = 1:panels] points_of(k) using 3:8 with points pt 2 ps 1.5 * marks lw 3 lc rgb black, \
    for [k = 1:(doubtful > 0)] table using (strcol(2) eq "curve" ? $3 : NaN):9:("?") with labels offset 0, 0.8 \
        tc rgb black
if (keys) {
    eval legend(height - bottom + 105)
    eval sprintf("set key vertical maxrows %d width %d font '%s'", key_rows, key_width, font(key_size))
    has(k, kind) = int(system(sprintf("awk -F '\\t' '$1 == %d && $2 == \"%s\"' '%s' | wc -l", k, kind, table)))
    dash_of(k) = has(k, "curve") ? 1 : 3
    key_of(k) = has(k, "curve") ? mark_of(k) : 0
    plot for [k = 1:(panels > 1 || strlen(name[1]) ? panels : 0)] NaN with linespoints lw 3.5 dt dash_of(k) \
            pt key_of(k) lc rgb hue[k] title name[k], \
        for [k = 1:(strlen(beside) > 0)] NaN with points pt 6 lw 3 lc rgb black title beside
}
unset multiplot
