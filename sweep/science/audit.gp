# Detection by what the audit costs: tokens alone on the left, log-probability bits too on the right. A curve per cheat.
height = above + 775 + below
eval start("", width, height)
set multiplot
eval sheet_text
# Of the changed bits, the figure has the last mantissa bit in four places: it is the hardest to find.
array cheat[10] = ["smaller_model", "seed", "half_context", "int4", "int8", "unverified", "bit:first_q:mantissa", \
    "bit:middle_down:mantissa", "bit:last_gate:mantissa", "bit:embedding:mantissa"]
array shown[10] = ["a smaller model", "another seed", "half of the prompt", "int4 weights", "int8 weights", \
    "no verification", "last bit: query, first layer", "last bit: down, middle layer", "last bit: gate, last layer", \
    "last bit: embedding"]
array colour[10] = [black, purple, sky, red, orange, blue, green, green, green, grey]
array dash[10] = [1, 2, 3, 1, 1, 1, 1, 2, 3, 1]
array thick[10] = [9, 6, 3, 4, 4, 4, 4, 4, 4, 4]  # those that lie on one another
array revealed[2] = ["tokens", "tokens and log-probabilities"]
array named[2] = ["tokens alone", "tokens and log-probability bits"]
set logscale x
set xrange [real(least):real(most)]
set yrange [0:1.02]
set ytics 0.2
unset key
curve(c, r) = sprintf("< awk -F '\t' '$1 == \"%s\" && $2 == \"%s\"' '%s'", c, r, points)
do for [panel = 1:2] {
    left = panel == 1 ? 130 : 780
    eval area(left, left + 535, above + 60, above + 505)
    set title "revealed: " . named[panel] offset 0, -0.4
    set xlabel "cost of the audit (% of serving)"
    set ylabel panel == 1 ? "probability of detection" : ""
    # Those that the first window finds hide one another: there is room for their names on the right.
    found = 0
    do for [i = 1:10 * (panel - 1)] {
        if (real(system(curve(cheat[i], revealed[2])[3:] . " | awk -F '\t' 'NR == 1 { print $5 }'")) > 0.98) {
            found = found + 1
            set label 10 + i shown[i] at graph 0.5, graph 0.84 - 0.06 * found font font(15) tc rgb colour[i]
        }
    }
    if (found) { set label 10 "found in the first window:" at graph 0.5, graph 0.84 font font(15) }
    plot for [i = 1:10] curve(cheat[i], revealed[panel]) using 4:5 with lines lw thick[i] dt dash[i] lc rgb colour[i]
    unset label
}
eval legend(above + 610)
set key vertical maxrows 4 width -3 font 'sans-serif' . font(16)
plot for [i = 1:10] NaN with lines lw thick[i] dt dash[i] lc rgb colour[i] title shown[i]
unset multiplot
