# Style shared by the figures: terminals, colours, titles. Ours: filled marks and lines; published: hollow marks.
# From common.sh: format (png, svg), base (path of the plots without ending), raw, points, calibration, device.
set datafile separator tab

# eval start(name, width, height) opens the plot BASE+NAME.FORMAT. font(points): a font size. An SVG takes points for
# pixels and 1.4 times that for a line, so that the same layout needs a larger number there.
font(size) = sprintf(",%g", format eq "png" ? size : 1.1 * size)
start(name, w, h) = (format eq "png" ? "set terminal pngcairo" : "set terminal svg dynamic") . \
    sprintf(" size %d,%d font 'sans-serif%s' background '#ffffff' enhanced; ", w, h, font(20)) . \
    sprintf("set output '%s%s.%s'", base, name, format)
set pointsize format eq "png" ? 1.9 : 1

# Okabe and Ito's palette: told apart with any colour vision. The three modes keep their colours in all figures.
blue = "#0072B2"; orange = "#E69F00"; red = "#D55E00"; green = "#009E73"; sky = "#56B4E9"
black = "#000000"; grey = "#777777"; pale = "#DDDDDD"
dvr = blue; invariant = red; ordinary = grey

# A title, a line about it, further lines with more(), and the line that tells whether the figure is simulated.
simulated = "simulated with calibration " . calibration . (strlen(device) ? " (" . device . ")" : "")
more(text) = "}\n{/*0.8 " . text
heading(title, sub) = "{/:Bold " . title . more(sub) . more(simulated) . "}"

set border 3 lw 1.2 lc rgb "#444444"
set tics nomirror out scale 0.6
set format xy "%g"
set grid y lc rgb pale lw 1 lt 1
set key samplen 2 spacing 1.15 Left reverse
set style fill solid 1 noborder

# Lines of the points file with this metric and series: the others are dropped without cutting a curve.
match(metric, series) = sprintf("< awk -F '\\t' '$2 == \"%s\" && $3 == \"%s\"' '%s'", metric, series, points)
metric(name) = sprintf("< awk -F '\\t' '$2 == \"%s\"' '%s'", name, points)

# eval legend(height): the next plot is an empty strip at the foot of a multiplot that only holds the key.
legend(h) = "set lmargin at screen 0.02; set rmargin at screen 0.98; set bmargin at screen 0; unset title; " . \
    sprintf("set tmargin at screen %g; set origin 0, 0; set size 1, 1; ", h) . \
    "unset border; unset tics; unset grid; unset xlabel; unset ylabel; unset logscale; " . \
    "set xrange [0:1]; set yrange [0:1]; set key center center samplen 2"

# Heat maps over W (x) and G (y), powers of two: a cell is a box with two numbers in it, ours and the published one.
cells(name) = sprintf("< awk -F '\\t' '$2 == \"%s\" { print substr($3, 3) FS $4 FS $5 FS $6 }' '%s'", name, points)
lg(v) = log(v) / log(2)
short(v) = v >= 99.95 ? sprintf("%.0f", v) : v >= 9.995 ? sprintf("%.1f", v) : sprintf("%.2f", v)
light = "defined (0 '#FFF7EC', 0.35 '#FDD49E', 0.7 '#FC8D59', 1 '#E8604A')"
heat = "unset colorbox; unset grid; unset key; set border 0; set xtics scale 0; set ytics scale 0; " . \
    "set object 1 rectangle from graph 0, graph 0 to graph 1, graph 1 behind fc rgb '#E4E4E4' fs noborder; " . \
    "set style fill solid 1 border rgb '#FFFFFF'"
