# Two sides of build/diff: a cell for each operator of each layer, and lines over all operators in the order in which
# they run. Texts and the table come from plot_diff.sh. A row of the table is an operator: place, layer, column, the
# largest difference of a row in %, its label, % of values that differ; nan where all values are equal.
cell_w = 930.0 / columns
cell_h = layers <= 12 ? 44 : layers <= 24 ? 28 : 20
top = above + 50; middle = top + layers * cell_h; under = middle + 110
height = under + 480 + below
eval start("", width, height)
set multiplot
eval sheet_text

# The lines. A tick stands where a layer begins.
eval area(130, width - 40, under, under + 280)
set logscale y
set yrange [10.0 ** floor(log10(least)):200]
set xrange [0:places + 1]
set ytics ()
lowest_power = int(floor(log10(least)))
do for [e = lowest_power:2:(lowest_power < -3 ? 2 : 1)] { set ytics add (e < -2 ? sprintf("10^{%d}", e) : sprintf("%g", 10.0 ** e) 10.0 ** e) }
set label 98 "%" at screen 95.0 / width, screen 1 - (under - 22.0) / height right
every = layers <= 12 ? 1 : layers <= 24 ? 2 : 4
set xtics ()
do for [l = 0:layers - 1:every] { set xtics add (sprintf("layer %d", l) 2 + l * columns) }
if (every > 1 || layers > 6) { do for [l = 0:layers - 1:every] { set xtics add (sprintf("%d", l) 2 + l * columns) } }
set xtics add ("logits" places)
set grid x y lc rgb pale lw 1 lt 1
set xlabel (layers > 6 ? "operators in the order in which they run; numbers: layers" : \
    "operators in the order in which they run")
unset key
size = places > 100 ? 0.4 * marks : marks
plot table using 1:6 with linespoints lw 3 ps size pt 7 lc rgb blue, \
    "" using 1:4 with linespoints lw 3 ps size pt 5 lc rgb red
unset label

# The cells.
unset logscale y
unset xlabel
eval heat
eval light
set format y "%g"
set cbrange [0:1]
set xrange [0.5:columns + 0.5]
set yrange [layers - 0.5:-0.5]
set xtics ()
text = cell_h > 40 ? 20 : cell_h > 24 ? 16 : 12
eval sprintf("set ytics font '%s'", font(text))
set ytics ()
set label 98 "layer" at screen 40.0 / width, screen 1 - 0.5 * (top + middle) / height center rotate by 90
do for [i = 1:columns] { set xtics add (operator[i] i) }
do for [l = 0:layers - 1] { set ytics add (sprintf("%d", l) l) }
eval area(130, 130 + columns * cell_w, top, middle)
set title "largest difference of a row, % of the row; grey: equal to the bit" offset 0, -0.6
unset object 1
plot table using ($3 > 0 ? $3 : NaN):2:(0.5):(0.5) with boxxyerror fc rgb '#EFEFEF', \
    "" using ($3 > 0 && $6 > 0 ? $3 : NaN):2:(0.5):(0.5):($4 > 0 && most > low ? log($4 > low ? $4 / low : 1) / log(most / low) : strcol(5) eq "inf") \
        with boxxyerror lc palette, \
    "" using ($3 > 0 ? $3 : NaN):2:5 with labels font font(text) tc rgb black
unset label
eval legend(height - below - 85)
set key vertical maxrows 2
plot NaN with linespoints lw 3.5 pt 7 lc rgb blue title "values that differ, % of all values", \
    NaN with linespoints lw 3.5 pt 5 lc rgb red title "largest difference of a row, % of the row"
unset multiplot
