# Style shared by the figures: terminals, colours, titles. Ours: filled marks and lines; published: hollow marks.
# From draw.inc: format (png, svg), base (path of the plots without ending). From common.sh: raw, points, width, and the
# texts.
set datafile separator tab

# eval start(name, width, height) opens the plot BASE+NAME.FORMAT. font(points): a font size. An SVG takes points for
# pixels and 1.4 times that for a line, so that the same layout needs a larger number there.
font(size) = sprintf(",%g", format eq "png" ? size : 1.1 * size)
start(name, w, h) = (format eq "png" ? "set terminal pngcairo" : "set terminal svg dynamic") . \
    sprintf(" size %d,%d font 'sans-serif%s' background '#ffffff' enhanced; ", w, h, font(20)) . \
    sprintf("set output '%s%s.%s'", base, name, format)
marks = format eq "png" ? 1.9 : 1
set pointsize marks

# Okabe and Ito's palette: told apart with any colour vision. The three modes keep their colours in all figures.
blue = "#0072B2"; orange = "#E69F00"; red = "#D55E00"; green = "#009E73"; sky = "#56B4E9"; purple = "#CC79A7"
black = "#000000"; grey = "#777777"; pale = "#DDDDDD"
array hue[8] = [blue, red, green, orange, purple, sky, black, grey]
dvr = blue; invariant = red; ordinary = grey

# A sheet is laid out in pixels (width, height), from its upper left corner. Its texts are arrays that plot/text.awk
# makes: the headline, how to read it, and the foot, which are conditions in small print below the plots. above: the
# pixels that the first two take. below: those of the foot. eval sheet_text draws them. They are labels, so `unset label`
# follows the first plot. eval area(left, right, top, bottom): where the next plot is drawn.
sheet_text = "do for [i = 1:|headline|] { set label 100 + i headline[i] at screen 0.5, " . \
    "screen 1 - (4.0 + 37 * i) / height center font 'sans-serif:Bold' . font(21.5) }; " . \
    "do for [i = 1:|reading|] { set label 200 + i reading[i] at screen 0.5, " . \
    "screen 1 - (8.0 + 37 * |headline| + 30 * i) / height center font 'sans-serif' . font(16) }; " . \
    "do for [i = 1:|foot|] { set label 300 + i foot[i] at screen 0.5, " . \
    "screen (2.0 + 25 * (|foot| + 1 - i)) / height center font 'sans-serif' . font(13.5) tc rgb '#555555' }"
area(l, r, t, b) = sprintf("set lmargin at screen %g; set rmargin at screen %g; set tmargin at screen %g; ", \
    real(l) / width, real(r) / width, 1 - real(t) / height) . sprintf("set bmargin at screen %g", 1 - real(b) / height)

set border 3 lw 1.2 lc rgb "#444444"
set tics nomirror out scale 0.6
set format xy "%g"
set grid y lc rgb pale lw 1 lt 1
set key samplen 2 spacing 1.15 Left reverse
set style fill solid 1 noborder

# Lines of the points file with this metric and series: the others are dropped without cutting a curve.
match(metric, series) = sprintf("< awk -F '\\t' '$2 == \"%s\" && $3 == \"%s\"' '%s'", metric, series, points)
metric(name) = sprintf("< awk -F '\\t' '$2 == \"%s\"' '%s'", name, points)

# Workloads of the offline figures: the load "in=512 out=256" in words, and the place of a mode or of a share of
# deterministic requests on the x axis, whose tics are offline_tics.
load_text(name) = system(sprintf("echo '%s' | sed 's/in=\\([0-9]*\\) out=/\\1 tokens in, /; s/, [0-9]*$/& out/'", name))
place(x) = x eq "nondeterministic" ? 0 : x eq "batch_invariant" || x eq "det-deepgemm" ? 7.3 : \
    x eq "0.02" ? 1 : x eq "0.05" ? 2 : x eq "0.1" ? 3 : x eq "0.2" ? 4 : x eq "0.5" ? 5 : 6
offline_tics = "set xtics ('0' 0, '2' 1, '5' 2, '10' 3, '20' 4, '50' 5, '100' 6, " . \
    "\"{/*0.75 batch-}\\n{/*0.75 invariant}\" 7.3) scale 0; set xrange [-0.6:8.4]"

# The smallest and the largest value of this metric, ours and published.
edge(name, order) = real(system(sprintf("awk -F '\t' '$2 == \"%s\" { print $5; print $6 }' '%s' | grep -v nan | " . \
    "sort -g%s | head -n 1", name, points, order)))
lowest(name) = edge(name, "")
highest(name) = edge(name, "r")

# eval legend(top): the next plot is an empty strip from there down to the foot of a sheet, that only holds the key.
legend(t) = "unset title; unset border; unset tics; unset grid; unset xlabel; unset ylabel; unset label; " . \
    "unset logscale; set xrange [0:1]; set yrange [0:1]; set key center center samplen 2; " . \
    area(0.02 * width, 0.98 * width, t, height - below)

# Heat maps: a cell is a box with numbers in it.
lg(v) = log(v) / log(2)
short(v) = v >= 99.95 ? sprintf("%.0f", v) : v >= 9.995 ? sprintf("%.1f", v) : sprintf("%.2f", v)
light = "set palette defined (0 '#FFF7EC', 0.35 '#FDD49E', 0.7 '#FC8D59', 1 '#E8604A')"
heat = "unset colorbox; unset grid; unset key; set border 0; set xtics scale 0; set ytics scale 0; " . \
    "set object 1 rectangle from graph 0, graph 0 to graph 1, graph 1 behind fc rgb '#E4E4E4' fs noborder; " . \
    "set style fill solid 1 border rgb '#FFFFFF'"
