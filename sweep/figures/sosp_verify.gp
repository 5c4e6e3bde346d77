# The time of a verification pass by its rows, on four devices.
height = above + 800 + below
eval start("", width, height)
set multiplot
eval sheet_text
curve(name) = sprintf("< awk -F '\\t' '$1 == \"%s\"' '%s'", name, curves)
array series[5] = ["calibration", "published_pcie", "published_sxm", "published_70b", "h200"]
array shown[5] = ["8B, NVIDIA H100 PCIe: our calibration", "8B, NVIDIA H100 PCIe: published (arXiv)", \
    "8B, NVIDIA H100 SXM: published (camera-ready)", "70B, eight NVIDIA H100 SXM: published (camera-ready)", \
    "8B, " . h200 . ": measured by us"]
array colour[5] = [blue, blue, orange, black, green]
array mark[5] = [0, 6, 4, 8, 7]
array dash[5] = [1, 3, 3, 3, 1]
set xlabel "rows of the pass"
set ylabel "ms"
set logscale x 2
set logscale y
set xrange [14:1200]
set yrange [4:80]
set ytics (5, 10, 20, 50)
unset key
eval area(120, 1065, above + 20, above + 500)
plot for [i = 1:5] curve(series[i]) using 2:3 with linespoints pt mark[i] lw 3 lc rgb colour[i] dt dash[i]
eval legend(above + 600)
set key vertical maxrows 5
plot for [i = 1:5] NaN with linespoints pt mark[i] lw 3 lc rgb colour[i] dt dash[i] title shown[i]
unset multiplot
