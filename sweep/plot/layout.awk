# Places the cells of plot/cells.awk on a sheet: reads ours (which=ours) and the reference's (which=reference), and
# writes the numbers to the file `table` and lines of gnuplot with sizes and texts to standard output.
#
# Texts are placed by the functions of plot/text.awk.
#
# Variables: map (1: a heat map, else lines), x, y, value, over, mean, where (settings that --where has fixed, separated
# by tabs), relative, logs (axes), title, notes (separated by tabs), grey (what empty cells are), source, beside (what
# the reference is called; "": there is none), device_note (what must be said of its device), spread (1: the standard
# deviation of a mean is drawn) and best (less or more: the best cells are marked).

BEGIN { FS = OFS = "\t" }

function is_number(text) { return text ~ /^[-+]?[0-9.]+([eE][-+]?[0-9]+)?$/ }
function short(v, size) {
    size = v < 0 ? -v : v
    return size >= 1e6 ? sprintf("%.2f M", v / 1e6) : size >= 1e4 ? sprintf("%.1f k", v / 1e3) : \
        size >= 99.95 ? sprintf("%.0f", v) : size >= 9.995 ? sprintf("%.1f", v) : \
        size >= 0.0995 ? sprintf("%.2f", v) : sprintf("%.2g", v)
}
function thousands(v, text) {
    text = v ""
    while (text ~ /[0-9][0-9][0-9][0-9]($|,)/) sub(/[0-9][0-9][0-9]($|,)/, ",&", text)
    return text
}

# A column's name in plain words, with its unit.
function words(c, who, text, percentile) {
    if (c == "window") return "window W (tokens of a request)"
    if (c == "group") return "group G (requests in a pass)"
    if (c == "ratio") return "share of deterministic requests"
    if (c == "qps") return "queries per second"
    if (c == "trace_speed") return "speed of the trace, as a multiple of its own"
    if (c == "max_running") return "most requests at once"
    if (c == "draft") return "probability that a draft is right"
    if (c == "slowdown") return "time of an INVARIANT pass / of a FAST pass"
    if (c == "total_tok_per_s") return "tokens per second, prompts included"
    if (c == "output_tok_per_s") return "output tokens per second"
    if (c == "recompute_pct") return "recomputed tokens (% of returned ones)"
    if (c == "replay_busy_pct") return "time in replay passes (% of all passes)"
    if (c == "running_mean") return "running requests, mean"
    if (sub(/^det_/, "", c)) who = ", deterministic requests"
    if (sub(/^nondet_/, "", c)) who = ", ordinary requests"
    if (c ~ /^(ttft|e2e|itl)_p[0-9]+_s$/) {
        percentile = c
        gsub(/^[a-z0-9]*_p|_s$/, "", percentile)
        text = c ~ /^ttft/ ? "time to first token" : c ~ /^itl/ ? "time between tokens" : "latency"
        return "P" percentile " " text who " (s)"
    }
    if (sub(/_pct$/, "", c)) who = who " (%)"
    if (sub(/_s$/, "", c)) who = who " (s)"
    gsub(/_/, " ", c)
    return c who
}
function brief(c, text) {
    text = words(c)
    sub(/ \(.*/, "", text)
    return text
}
function is_of_dvr(c) { return c == "window" || c == "group" || c == "ratio" }
function capital(text) { return toupper(substr(text, 1, 1)) substr(text, 2) }

# Planners of your own decide for themselves when windows are verified.
function is_of_default_planner(c) { return c == "verify" || c == "fill" }

# A setting that all cells share, for the subtitle; "" if it says nothing.
function phrase(c, v) {
    if (c == "workload") return v
    if (c == "requests") return thousands(v) " requests"
    if (c == "qps") return v == "offline" ? "all at once" : v == "trace" ? "the trace's arrivals" : v " queries/s"
    if (c == "trace_speed") return v == "nan" ? "" : v == 1 ? "as fast as they came" : v " times as fast"
    if (c == "ratio") return v == 1 ? "all deterministic" : 100 * v "% deterministic"
    if (c == "mode") return v == "dvr" ? "DVR" : v == "batch_invariant" ? "batch-invariant" : v
    if (c == "max_running") return "at most " v " at once"
    if (c == "window") return "W = " v
    if (c == "group") return "G = " v
    if (c == "seed") return "seed " v
    if (c == "verify") return "verification " toupper(v)
    if (c == "prefill") return "prompts " toupper(v)
    if (c == "replicas") return v " replica" (v == 1 ? "" : "s")
    if (c == "router" || c == "apart" || (c == "planner" && v != "default")) return c " " v
    return c in fixed ? c " " v : ""
}

# The name of a panel or curve: the values of the columns of `over` that apply to it. Only DVR has all columns.
function name_of(key, i, n, column, v, text, part) {
    n = split(over, column, ",")
    split(key, v, SUBSEP)
    for (i = 1; i <= n; i++) {
        part = v[i] == "nan" || v[i] == "-" ? "" : \
            column[i] == "window" || column[i] == "group" || column[i] == "mode" || column[i] == "ratio" || \
            column[i] == "requests" || column[i] == "qps" || column[i] == "trace_speed" || column[i] == "max_running" || column[i] == "replicas" ? phrase(column[i], v[i]) : column[i] " " v[i]
        if (part != "") text = text (text == "" ? "" : ", ") part
    }
    return text == "" && over != "" ? "without DVR" : text
}

# The texts of the sheet: its headline, how to read it, and below the plots all conditions.
function build_texts(room, i, n, c, kind, list, text, part, ofdvr, headline, reading, foot, headlines, readings, feet) {
    headlines = wrap(title != "" ? title : capital(words(value)) (relative ? ", relative to the largest" : "") ", by " \
        (map ? brief(x) " and " brief(y) : brief(x)), room, "headline", headline, 0)
    kind = source
    sub(/:.*/, "", kind)
    part = mean == "" ? "" : "mean over " means (mean == "seed" ? " seeds" : " values of " mean)
    text = beside == "" ? part : (map ? "large: " : "lines: ") kind (part == "" ? "" : ", " part) "; " \
        (map ? "(small): " : "hollow marks: ") beside
    if (spread) text = text (map ? "; small: " : "; bands: ") "standard deviation"
    if (map && title != "")
        text = capital(words(value)) (relative ? ", relative to the largest" : "") (text == "" ? "" : "; ") text
    if (kinds != "") text = text (text == "" ? "" : "; ") "a point for each " kinds
    if (map && holes) text = text (text == "" ? "" : "; ") "grey: " (grey == "" ? "no value" : grey)
    readings = wrap(text, room, "reading", reading, 0)
    if (best != "")
        readings = wrap((framed ? "framed: the best" : "") (framed && near ? "; " : "") (!near ? "" : means + 0 > 1 ? \
            "\342\211\210: as good, within noise (paired t test, 95%)" : "\342\211\210: equally good"), room, "reading",
            reading, readings)
    text = ""
    for (i = 1; i <= settings; i++) {
        c = setting[i]
        part = phrase(c, shared[c])
        if (part == "" || (c == "mode" && is_of_dvr(x))) continue
        if (is_of_default_planner(c) && "planner" in shared && shared["planner"] != "default") continue
        if (is_of_default_planner(c) && index("," over "," x "," y ",", ",planner,")) part = part " (planner default)"
        gsub(/ /, hard, part)
        if (!partly[c]) text = text (text == "" ? "" : ", ") part
        else ofdvr = ofdvr (ofdvr == "" ? "" : ", ") part
    }
    feet = wrap(text, room, "foot", foot, 0)
    if (ofdvr != "") feet = wrap("DVR: " ofdvr, room, "foot", foot, feet)
    if (overload != "")
        feet = wrap((overload_all ? "overloaded: served " overload : "crosses: overloaded (at worst served " overload ")") \
            ", latencies grow with --requests", room, "foot", foot, feet)
    if (doubtful)
        feet = wrap((doubtful == cells ? "all cells" : "question marks:") " may be overloaded (too few requests to tell)",
            room, "foot", foot, feet)
    if (device_note != "") feet = wrap(beside " " device_note, room, "foot", foot, feet)
    n = split(notes, list, "\t")
    for (i = 1; i <= n; i++) feet = wrap(list[i], room, "foot", foot, feet)
    feet = wrap(source (unfinished == "" ? "" : "; " unfinished), room, "foot", foot, feet)
    print_texts(headline, headlines, reading, readings, foot, feet)
}

# The different values of an axis in order: none (as of drafts), numbers ascending, then words as they came.
function order_of(v) { return v == "none" ? 1 : is_number(v) ? 2 : 3 }
function sorted(values, n, i, k, v, a, b) {
    for (i = 2; i <= n; i++)
        for (k = i; k > 1; k--) {
            a = order_of(values[k - 1])
            b = order_of(values[k])
            if (a < b || (a == b && (a != 2 || values[k - 1] + 0 <= values[k] + 0))) break
            v = values[k]; values[k] = values[k - 1]; values[k - 1] = v
        }
}
$1 ~ /^!/ {
    if (which != "ours") next
    c = substr($1, 2)
    if (c == "unfinished") unfinished = $2
    else if (c == "mean") means = $2
    else if (c == "scatter") {
        scatter = 1
        kinds = $2
    }
    else if (c == "overloaded") {
        overload = $2
        overload_all = $3
    }
    else if (c != "unplaced") {
        setting[++settings] = c
        shared[c] = $2
        partly[c] = $3
    }
    next
}
which == "ours" {
    if (!($1 in panel)) { panel[$1] = ++panels; panel_key[panels] = $1 }
    if (!($2 in seen_x)) { seen_x[$2]; xs[++columns] = $2 }
    if (map && !($3 in seen_y)) { seen_y[$3]; ys[++rows] = $3 }
    cell[++cells] = $1 FS $2 FS $3
    ours[cell[cells]] = $4
    deviation[cell[cells]] = $5
    state[cell[cells]] = $6
    doubtful += $6 == 2
    rank[cell[cells]] = $7
    framed += $7 == 2
    near += $7 == 1
    if ($4 != "nan") {
        if (!drawn++ || $4 < low) low = $4
        if (drawn == 1 || $4 > high) high = $4
    }
    next
}
{
    key = $1 FS $2 FS $3
    if (!(key in ours)) { strangers++; next }
    matched++
    theirs[key] = $4
    if ($4 != "nan") {
        if (!theirs_drawn++ || $4 > their_high) their_high = $4
        if (theirs_drawn == 1 || $4 < their_low) their_low = $4
    }
}

END {
    if (beside != "" && !matched) {
        print "plot: no cell of " reference_name " is one of ours" >"/dev/stderr"
        exit 1
    }
    for (n = split(where, list, "\t"); n; n--) fixed[list[n]]
    if (strangers) print "# not drawn, because ours have no such cell: " strangers " of " reference_name
    if (relative && (low <= 0 || (theirs_drawn && their_low <= 0))) {
        print "plot: --relative needs values above 0" >"/dev/stderr"
        exit 2
    }
    if (relative) {
        for (i = 1; i <= cells; i++) {
            if (ours[cell[i]] != "nan") ours[cell[i]] /= high
            if (deviation[cell[i]] != "nan") deviation[cell[i]] /= high
            if (cell[i] in theirs && theirs[cell[i]] != "nan") theirs[cell[i]] /= their_high
        }
        low /= high
        high = 1
        if (theirs_drawn) {
            their_low /= their_high
            their_high = 1
        }
    }
    if (map) draw_map()
    else draw_lines()
}

# The size of letters, at most 20, in which every name of a panel or line fits into so many pixels. It is an error if
# that is less than `least`.
function font_size(room, what, least, i, longest, size) {
    longest = map ? "" : beside
    for (i in names) if (wide(names[i], 20) > wide(longest, 20)) longest = names[i]
    size = int(longest == "" ? 20 : 20 * room / wide(longest, 20))
    if (size >= least) return size > 20 ? 20 : size
    printf "plot: the %s \047%s\047 takes %d pixels, and there are %d: fix a column of --over with --where%s\n", what, longest,
        wide(longest, least), room, longest == beside ? ", or give a shorter --reference-name" : "" >"/dev/stderr"
    exit 2
}

# A text along a y axis of so many pixels, as a gnuplot string, in label_lines lines.
function upright(text, room, i, lines, joined) {
    label_lines = wrap(text, room > 240 ? room : 240, "label", lines, 0)
    for (i = 1; i <= label_lines; i++) joined = joined (i > 1 ? " . \"\\n\" . " : "") quoted(lines[i])
    return joined
}

# Gives each panel of a map its place. Those of one setting stand in its order. Those of two form a matrix, in which the
# first one has rows, unless most places of it would be empty. Returns how many places there are.
function place_panels(i, n, v, first, firsts, second, seconds, seen, at, places) {
    places = panels
    across = panels == 1 ? 1 : panels == 2 || panels == 4 || columns > 6 ? 2 : 3
    n = split(over, v, ",")
    for (i = 1; i <= panels; i++) {
        split(panel_key[i] SUBSEP, v, SUBSEP)
        if (!seen[1, v[1]]++) first[++firsts] = v[1]
        if (!seen[2, v[2]]++) second[++seconds] = v[2]
    }
    if (n == 1 || (n == 2 && 2 * panels > firsts * seconds)) {
        places = firsts * seconds
        if (n == 2) across = seconds
        sorted(first, firsts)
        sorted(second, seconds)
        for (i = 1; i <= firsts; i++) at[1, first[i]] = (i - 1) * seconds
        for (i = 1; i <= seconds; i++) at[2, second[i]] = i
        for (i = 1; i <= panels; i++) {
            split(panel_key[i] SUBSEP, v, SUBSEP)
            panel[panel_key[i]] = at[1, v[1]] + at[2, v[2]]
        }
    }
    for (i = 1; i <= panels; i++) names[panel[panel_key[i]]] = name_of(panel_key[i])
    return places
}

function draw_map(i, places, tics, widest, at, text, v, cell_w, cell_h, left, top, gap_w, gap_h, map_w, map_h) {
    sorted(xs, columns)
    sorted(ys, rows)
    for (i = 1; i <= columns; i++) x_at[xs[i]] = i
    for (i = 1; i <= rows; i++) {
        y_at[ys[i]] = i
        if (wide(ys[i], 20) > tics) tics = wide(ys[i], 20)
    }
    if (panels > 12) {
        print "plot: " panels " panels are too many: fix a column of --over with --where" >"/dev/stderr"
        exit 2
    }
    holes = cells < columns * rows * panels || drawn < cells
    places = place_panels()
    cell_w = panels == 1 ? 940 / columns : 1400 / (across * columns)
    cell_w = cell_w > 300 ? 300 : cell_w < 62 ? 62 : int(cell_w)
    cell_h = beside != "" || spread || drawn == 1 ? 97 : 72
    if (cell_w < 110) cell_h = int(cell_h * 0.8)
    gap_h = panels > 1 ? 105 : 0
    i = int((places + across - 1) / across)
    map_h = i * rows * cell_h + (i - 1) * gap_h
    # The label of the y axis, in as many lines as it needs, stands left of the numbers of its tics.
    print "y_label = " upright(words(y), map_h + 60)
    left = 75 + tics + 33 * (label_lines - 1)
    print "label_gap = " int(left - 28)
    gap_w = across > 1 ? int(50 + tics) : 0
    map_w = across * columns * cell_w + (across - 1) * gap_w
    width = int(map_w + left + 50)
    if (width < 1100) {
        left += int((1100 - width) / 2)
        width = 1100
    }
    build_texts(width - 40)
    top = above + (panels > 1 ? 45 : 10)
    printf "columns = %d; rows = %d; panels = %d; across = %d; cell_w = %d; cell_h = %d\n", columns, rows, places, across,
        cell_w, cell_h
    printf "left = %d; top = %d; gap_w = %d; gap_h = %d; map_w = %d; map_h = %d; width = %d; height = %d\n", left, top,
        gap_w, gap_h, map_w, map_h, width, top + map_h + 95 + below
    print_array("x_name", xs, columns)
    print_array("y_name", ys, rows)
    print "x_label = " quoted(words(x))
    for (i = 1; i <= cells; i++) if (wide(short(ours[cell[i]]), 26) > widest) widest = wide(short(ours[cell[i]]), 26)
    v = widest > cell_w - 20 ? (cell_w - 20) / widest : 1
    print "large = " 26 * v "; small = " 20 * v
    print "title_size = " font_size(panels > 1 ? columns * cell_w + (across > 1 ? gap_w : 50) - 10 : width, "panel title", 11)
    print "beside = " (beside != "" || spread) "; more_is_better = " (value ~ /tok_per_s/ || relative)
    print_array("name", names, places)
    for (i = 1; i <= cells; i++) {
        split(cell[i], at, FS)
        v = ours[cell[i]]
        if (v == "nan") continue
        text = cell[i] in theirs ? theirs[cell[i]] == "nan" ? "" : "(" short(theirs[cell[i]]) ")" : ""
        if (spread && deviation[cell[i]] != "nan") text = "\302\261" short(deviation[cell[i]])
        print panel[at[1]], x_at[at[2]], y_at[at[3]], shade(v), short(v), text, state[cell[i]], rank[cell[i]] >table
    }
    if (drawn == 1) print 0, 0, 0, 0, "", "", 0, 0 >table  # gnuplot 5.4 crashes where the only row of a file has no label
}
function shade(v) {
    if (high == low) return 0.3
    if (low > 0 && high / low >= 5) return log(v / low) / log(high / low)
    return (v - low) / (high - low)
}

# 1, 2 and 5 times the powers of ten in this range, as tics.
function decades(from, to, e, i, v, text) {
    for (e = -12; e <= 12; e++)
        for (i = 1; i <= 5; i += i == 1 ? 1 : 3) {
            v = i * 10 ^ e
            if (v >= from && v <= to) text = text (text == "" ? "" : ", ") sprintf("%.6g", v)
        }
    return text
}

# An edge of the band about a mean (sign -1: the lower one). A logarithmic axis has no place for one that is not above 0.
function edge(at, sign, v) {
    v = deviation[at] == "nan" || ours[at] == "nan" ? ours[at] : ours[at] + sign * deviation[at]
    return logs ~ /y/ && v <= 0 && ours[at] > 0 ? ours[at] / 10 : v
}

# What the table says of a cell of lines that is overloaded, and of one that may be: the number, or nan.
function marked(at) { return (state[at] == 1 ? ours[at] : "nan") OFS (state[at] == 2 ? ours[at] : "nan") }

# Where the band of the value none begins and ends (side -1 and 1).
function none_at(side) { return logs ~ /x/ ? none_x * step ^ (side / 8) : none_x + side * step / 8 }

function draw_lines(i, k, at, n, first_x, last_x, longest, letters, spare, keys, top, bottom, text, list) {
    n = 0
    for (i = 1; i <= columns; i++) if (is_number(xs[i])) {
        if (!n++ || xs[i] + 0 < first_x) first_x = xs[i] + 0
        if (n == 1 || xs[i] + 0 > last_x) last_x = xs[i] + 0
        list[n] = xs[i]
    }
    if (theirs_drawn) {
        if (their_low < low) low = their_low
        if (their_high > high) high = their_high
    }
    for (i = 1; spread && i <= cells; i++) if (deviation[cell[i]] != "nan") {
        if (edge(cell[i], 1) > high) high = edge(cell[i], 1)
        if (edge(cell[i], -1) < low) low = edge(cell[i], -1)
    }
    if (!n) {
        print "plot: " x " does not apply to any row: there is nothing to draw lines over" >"/dev/stderr"
        exit 2
    }
    if (panels > 8) {
        print "plot: " panels " lines cannot be told apart (8 can): fix a column of --over with --where" >"/dev/stderr"
        exit 2
    }
    if (logs == "" && x != "ratio" && first_x > 0 && last_x / first_x >= 8) logs = "x"
    if ((logs ~ /x/ && first_x <= 0) || (logs ~ /y/ && low <= 0)) {
        print "plot: --log " logs ": a logarithmic axis takes only values above 0" >"/dev/stderr"
        exit 2
    }
    sorted(list, n)
    # The value none has a place of its own, left of the numbers and as far from them as they are from each other.
    if ("none" in seen_x) {
        step = logs ~ /x/ ? (n > 1 ? (last_x / first_x) ^ (1 / (n - 1)) : 2) : n > 1 ? (last_x - first_x) / (n - 1) : 1
        none_x = logs ~ /x/ ? first_x / step : first_x - step
        first_x = none_x
    }
    width = 1100
    for (i = 1; i <= panels; i++) names[i] = name_of(panel_key[i])
    key_size = font_size(width - 130, "legend", 12)
    for (i in names) if (wide(names[i], key_size) > longest) longest = wide(names[i], key_size)
    if (wide(beside, key_size) > longest) longest = wide(beside, key_size)
    keys = (panels > 1 || panel_key[1] != "" ? panels : 0) + (beside != "")
    across = int(width / (longest + 130))
    if (across < 1) across = 1
    if (across > keys) across = keys
    # gnuplot plans a column of the key for its longest name, all of whose letters it takes for wide ones, and cuts the
    # first column off where that is too much: we take as many letters away.
    for (i in names) if (length(names[i]) > letters) letters = length(names[i])
    if (length(beside) > letters) letters = length(beside)
    spare = keys ? width / across / (0.86 * key_size) - letters - 5 : 0
    build_texts(width - 40)
    top = above + 20
    bottom = 105 + (keys ? 20 + 42 * int((keys + across - 1) / across) : 0) + below
    printf "width = %d; height = %d; top = %d; bottom = %d; keys = %d; key_rows = %d\n", width, top + 460 + bottom, top,
        bottom, keys, keys ? int((keys + across - 1) / across) : 0
    printf "key_width = %d; key_size = %g; spread = %d; doubtful = %d; ", spare < 0 ? spare - 1 : 0, key_size, spread, doubtful
    printf "panels = %d; logs = \"%s\"; first_x = %g; last_x = %g; low = %g; high = %g\n", panels, logs, first_x,
        last_x, low, high
    print "beside = " quoted(beside)
    print "y_tics = \"" (logs ~ /y/ ? decades(low / 1.3, high * 1.3) : "") "\""
    # The three modes have the same colours in all figures.
    for (k = 1; over == "mode" && k <= panels; k++) {
        text = panel_key[k]
        print "hue[" k "] = " (text == "dvr" ? "dvr" : text == "batch_invariant" ? "invariant" : "ordinary")
    }
    print "x_label = " quoted(words(x)) "; y_label = " upright(relative ? "relative to the largest" : words(value), 520)
    print "left = " 132 + 33 * label_lines
    # A tic at each value of x that is far enough from the last one for its number.
    text = "none" in seen_x ? "\047none\047 " none_x : ""
    k = text == "" ? -1 : 0
    for (i = 1; i <= n; i++) {
        at = (918 - 33 * label_lines) * (logs ~ /x/ ? log(list[i] / first_x) / log(last_x / first_x) : (list[i] - first_x) / (last_x - first_x))
        if (k >= 0 && at - k < wide(list[i], 20) + 15) continue
        k = at
        text = text (text == "" ? "" : ", ") list[i]
    }
    if (scatter) text = logs ~ /x/ ? decades(first_x / 1.1, last_x * 1.1) : ""  # results are no round numbers
    print "x_tics = \"" text "\""
    print_array("name", names, panels)
    # A curve's points in order of x. Rows to which x does not apply are a level across the figure.
    for (k = 1; k <= panels; k++) {
        at = panel_key[k] FS "none" FS
        if (at in ours) {  # a point that no line joins to the others, with a band as wide as itself
            for (i = -1; i <= 1; i++)
                print k, i ? "edge" : "curve", none_at(i), ours[at], at in theirs ? theirs[at] : "nan", edge(at, -1), \
                    edge(at, 1), marked(at) >table
            print k, "curve", none_x, "nan", "nan", "nan", "nan", "nan", "nan" >table
        }
        for (i = 1; i <= n; i++) {
            at = panel_key[k] FS list[i] FS
            if (at in ours)
                print k, "curve", list[i], ours[at], at in theirs ? theirs[at] : "nan", edge(at, -1), edge(at, 1), \
                    marked(at) >table
        }
        for (i = 1; i <= columns; i++) {
            at = panel_key[k] FS xs[i] FS
            if (is_number(xs[i]) || xs[i] == "none" || !(at in ours)) continue
            text = edge(at, -1) OFS edge(at, 1) OFS marked(at)
            print k, "level", first_x, ours[at], "nan", text >table
            print k, "level", last_x, ours[at], "nan", text >table
        }
    }
}
