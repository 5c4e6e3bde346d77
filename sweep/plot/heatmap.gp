# A heat map, or several side by side: sizes, texts and the table come from plot/layout.awk. A row of the table is a
# cell: panel, column, row, shade from 0 to 1, our number, the small text below it (the reference's number or the
# deviation), 1 if it is overloaded (2: it may be), and its rank (2: the best, 1: as good).
eval start("", width, height)
set multiplot
eval sheet_text
eval heat
if (more_is_better) { set palette defined (0 '#F3F9FD', 1 '#56A5D6') } else { eval light }
set cbrange [0:1]
set xrange [0.5:columns + 0.5]
set yrange [0.5:rows + 0.5]
set xtics ()
set ytics ()
do for [i = 1:columns] { set xtics add (x_name[i] i) }
do for [i = 1:rows] { set ytics add (y_name[i] i) }
# One label for each axis, however many panels there are.
set label 98 x_label at screen real(left + map_w / 2) / width, screen 1 - (top + map_h + 73.0) / height center
set label 99 y_label at screen real(left - label_gap) / width, screen 1 - real(top + map_h / 2) / height center rotate by 90
do for [p = 1:panels] {
    if (panels > 1 && name[p] eq "") { continue }
    c = (p - 1) % across; r = (p - 1) / across
    x0 = left + c * (columns * cell_w + gap_w); y0 = top + r * (rows * cell_h + gap_h)
    eval area(x0, x0 + columns * cell_w, y0, y0 + rows * cell_h)
    set title name[p] offset 0, -0.6 font font(title_size)
    plot table using ($1 == p ? $2 : NaN):3:(0.5):(0.5):4 with boxxyerror lc palette, \
        "" using ($1 == p && $8 == 2 ? $2 : NaN):3:(0.47):(0.46) with boxxyerror lc rgb black lw 4 \
            fs empty border rgb black, \
        "" using ($1 == p && $8 == 1 ? $2 - 0.4 : NaN):($3 + 0.32):("\342\211\210") with labels font font(0.7 * large) tc rgb black, \
        "" using ($1 == p ? $2 : NaN):3:5 with labels offset 0, (beside ? 0.45 : 0) font font(large) tc rgb black, \
        "" using ($1 == p ? $2 : NaN):3:6 with labels offset 0, -0.9 font font(small) tc rgb "#333333", \
        "" using ($1 == p && $7 == 1 ? $2 + 0.38 : NaN):($3 + 0.3) with points pt 2 ps 0.7 * marks lw 2.5 lc rgb black, \
        "" using ($1 == p && $7 == 2 ? $2 + 0.38 : NaN):($3 + 0.3):("?") with labels font font(0.62 * large) tc rgb black
    unset label
}
unset multiplot
