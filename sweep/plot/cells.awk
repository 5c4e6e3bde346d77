# The cells of a TSV for sweep/plot.sh: checks the file and the request, and prints a line a cell: key of the panel or
# curve (its values of `over`), x, y (empty for curves), value, standard deviation of the values of a mean (nan: of one
# value), 1 if a row of it is overloaded (2: may be), and its rank (2: the only best of its panel, 1: as good, else 0); then
# lines that begin with "!", which say what else a figure must tell. An error is one line on standard error; the status
# is 2 if other options would help, else 1.
#
# Variables: name (of the file, for messages), reference (1: not our own result), map (1: a heat map), x, y, value, over
# and mean (columns, separated by commas), where (COLUMN=VALUE, separated by tabs), spread (1: a mean must have several
# values), and best (less or more: the best value is the smallest or the largest; empty: none is marked).

function fail(status, text) {
    printf "plot: %s: %s\n", name, text >"/dev/stderr"
    failed = status
    exit status
}
function column(wanted, option) {
    if (!(wanted in at)) fail(2, option " " wanted ": no such column; there are: " columns())
    return at[wanted]
}
function columns(i, text) {
    for (i = 1; i <= fields; i++) text = text (i > 1 ? ", " : "") title[i]
    return text
}
function is_number(text) { return text ~ /^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$/ }
function is_none(text) { return text == "nan" || text == "-" }
function same(a, b) { return is_number(a) && is_number(b) ? a + 0 == b + 0 : a == b }

# How many values an axis has; one that a "# grid:" line does not name has the preset's value.
function times(axis) { return axis in list ? split(list[axis], word, ",") : 1 }
function has(values, value) { return index("," values ",", "," value ",") > 0 }
function values_of(axis, otherwise) { return axis in list ? list[axis] : otherwise }

# How many rows a "# grid:" line promises at least; collected files may hold more.
function promised(line, i, n, p, m, part, axis, preset, mode, own, verifiers, fixed, common, verified, slowed, routes, \
    aparts, sum) {
    split("", list)
    n = split(line, part, /; */)
    for (i = 1; i <= n; i++) {
        split(part[i], axis, " ")
        list[axis[1]] = axis[2]
    }
    common = times("planner") * times("chunked") * times("qps") * times("seed") * times("max-running") * times("replicas")
    # Replicas can be set apart in several ways where the router does that.
    aparts = has(values_of("router"), "deterministic_apart")
    routes = times("router") - aparts
    aparts *= times("apart")
    verified = common * times("verify") * times("bonus") * times("overlap") * times("fill") * times("window") * \
        times("group") * times("ratio") * times("match")
    # Only simulated INVARIANT passes are slowed down. Files of a GPU have one slowdown. Older ones have an axis match.
    slowed = "match" in list ? 1 : times("slowdown")
    n = times("prefill")
    fixed = n + has(values_of("prefill"), "invariant") * (slowed - 1)  # prefills with the FIXED verifier, by slowdown
    # Older files have no presets, and their verifier is FIXED where they do not name it.
    p = split(values_of("preset", "none"), preset, ",")
    for (; p > 0; p--) {
        own = preset[p] == "best" ? "hybrid" : preset[p] == "invariant" ? "batch_invariant" : "dvr"
        m = split(values_of("mode", own), mode, ",")
        verifiers = values_of("verifier", preset[p] == "none" || preset[p] == "paper" ? "fixed" : "invariant")
        for (; m > 0; m--) {
            if (mode[m] == "nondeterministic") sum += common * (routes + (aparts > 0))
            if (mode[m] == "batch_invariant") sum += common * slowed * (routes + aparts * times("ratio"))
            if (mode[m] == "hybrid") sum += verified * n * slowed * (routes + aparts)
            if (mode[m] == "dvr")
                sum += verified * (has(verifiers, "fixed") * fixed + has(verifiers, "invariant") * n * slowed) * \
                    (routes + aparts)
        }
    }
    return sum
}

function start(i, n, list, pair) {
    fields = NF
    for (i = 1; i <= NF; i++) {
        title[i] = $i
        at[$i] = i
    }
    if (!reference && !("duration_s" in at)) fail(1, "not a result of build/sweep: it has no column duration_s")
    settings = "duration_s" in at ? at["duration_s"] - 1 : fields
    at_x = column(x, "--x")
    at_value = column(value, reference ? "--reference-value" : map ? "--value" : "--y")
    if (map) at_y = column(y, "--y")
    overs = split(over, list, ",")
    for (i = 1; i <= overs; i++) {
        if (reference && !(list[i] in at))
            fail(2, "it has no column " list[i] ", so --over " list[i] \
                " cannot tell where its values belong: use --where")
        at_over[i] = column(list[i], "--over")
        if (at_over[i] in is_over) fail(2, "--over " over ": a column is there twice")
        is_over[at_over[i]]
    }
    n = split(mean, list, ",")
    for (i = 1; i <= n; i++) if (!reference || list[i] in at) averaged[column(list[i], "--mean")]
    n = split(where, list, "\t")
    for (i = 1; i <= n; i++) {
        split(list[i], pair, "=")
        if (reference && !(pair[1] in at)) continue
        wheres++
        at_where[wheres] = column(pair[1], "--where")
        wanted[wheres] = substr(list[i], length(pair[1]) + 2)
    }
    if (reference || !("duration_s" in at)) return
    if (map && at_y > settings) fail(2, "--y " y " is a result: leave --value out for lines, or give --y a setting")
    if (map && at_x > settings) fail(2, "--x " x " is a result: only lines take one there, so leave --value out")
    scatter = at_x > settings
    if (at_value <= settings)
        fail(2, (map ? "--value " value " is a setting: give it a result" : \
            "--y " y " is a setting: give --value a result") ", such as e2e_p99_s")
    for (i = 1; i <= overs; i++)
        if (at_over[i] > settings) fail(2, "--over " title[at_over[i]] " is a result, not a setting")
}

# Two rows of one cell: which settings tell them apart.
function note_difference(key, i, v) {
    for (i = 1; i <= settings; i++) {
        if (i == at_value || i in averaged) continue
        v = first[key, i]
        if (same(v, $i)) continue
        if (!(i in other)) {
            other[i] = v
            one_of[i] = v
            other_key[i] = key
        }
        if (!((i, $i) in seen_value) && !same($i, one_of[i])) {
            seen_value[i, $i]
            other[i] = other[i] ", " $i
        }
    }
}

# Where a cell stands whose x is a result: line and mean of x; "" if it has no value. A line has no two points with one x.
function place_point(cell, i, part) {
    split(cell, part, "\t")
    if (!(part[2] in is_point)) return
    point[cell] = none[cell] ? "" : part[1] "\t" sum_x[cell] / n[cell] "\t"
    if (none[cell] || !(point[cell] in first_of)) { first_of[point[cell]] = cell; return }
    if (twins == "") twins = "two points have " x " " sum_x[cell] / n[cell] " and"
    for (i = 1; i <= settings; i++) $i = first[cell, i]
    note_difference(first_of[point[cell]])
}

# True if a setting has one value for each value of an axis (1: panel or line, 2: x, 3: y), as the workload of figures by
# batch. Where a row comes from follows no axis.
function follows(i, axis, k, v, part, of) {
    if (title[i] == "backend" || title[i] == "calibration") return 0
    for (k = 1; k <= cells; k++) {
        v = first[order[k], i]
        split(order[k], part, "\t")
        if (is_none(v)) continue
        if (part[axis] in of && !same(of[part[axis]], v)) return 0
        of[part[axis]] = v
    }
    return 1
}

# True if each panel or line has one value of a setting that the preset of the line decides, or one preset.
function follows_preset(i) {
    if (title[i] == "preset") return follows(i, 1)
    return "preset" in at && at["preset"] in is_over && follows(i, 1) && \
        has("mode,verifier,verify,prefill,chunked,bonus,fill,window,group", title[i])
}

# The quantile of Student's t distribution beyond which 2.5% lie, for n values.
function student(n, t) {
    split("12.71 4.30 3.18 2.78 2.57 2.45 2.36 2.31 2.26 2.23 2.20 2.18 2.16 2.14 2.13", t, " ")
    return n - 1 in t ? t[n - 1] : 2.12
}
# True if the means of two cells differ by no more than chance explains: a paired t test over the values of the mean, of
# which both cells have the same (the same seeds, which draw the same requests).
function within_noise(a, b, i, d, n, total, squares, variance) {
    if (mean == "") return 0
    for (i = 1; i <= draws; i++) {
        if (!((a, draw[i]) in drawn_value) || !((b, draw[i]) in drawn_value)) continue
        d = drawn_value[a, draw[i]] - drawn_value[b, draw[i]]
        n++
        total += d
        squares += d * d
    }
    if (n < 2) return 0
    variance = (squares - total * total / n) / (n - 1)
    return total * total / n <= student(n) ^ 2 * (variance > 0 ? variance : 0)
}
function deviation(cell, i, d, total) {
    if (n[cell] < 2) return "nan"
    for (i = 1; i <= draws; i++) if ((cell, draw[i]) in drawn_value) {
        d = drawn_value[cell, draw[i]] - sum[cell] / n[cell]
        total += d * d
    }
    return sqrt(total / (n[cell] - 1))
}
# The best cell of each panel.
function find_best(i, v, panel) {
    for (i = 1; i <= cells; i++) {
        if (none[order[i]]) continue
        v = sum[order[i]] / n[order[i]]
        panel = order[i]
        sub(/\t.*/, "", panel)
        if (!(panel in best_of) || (best == "more" ? v > best_value[panel] : v < best_value[panel])) {
            best_of[panel] = order[i]
            best_value[panel] = v
            tied[panel] = 0
        } else if (v == best_value[panel]) {
            tied[panel] = 1
        }
    }
}
function rank_of(cell, panel) {
    panel = cell
    sub(/\t.*/, "", panel)
    if (best == "" || none[cell]) return 0
    if (cell == best_of[panel] && !tied[panel]) return 2
    return sum[cell] / n[cell] == best_value[panel] || within_noise(cell, best_of[panel])
}

/^#/ {
    if (sub(/^# grid: */, "")) least += promised($0)
    if (/^# unfinished: /) unfinished = substr($0, 3)
    next
}
{ sub(/\r$/, "") }
!fields { start(); next }
{
    if (NF != fields) fail(1, "line " FNR " has " NF " of " fields " fields: the file is cut short or mixed up")
    rows++
    # Rows to which a setting does not apply, such as those without verification to W, are kept.
    for (i = 1; i <= wheres; i++) {
        if (is_none($at_where[i]) && !is_none(wanted[i])) continue
        if (!same($at_where[i], wanted[i])) {
            if (!((i, $at_where[i]) in known)) {
                known[i, $at_where[i]]
                values[i] = values[i] (values[i] == "" ? "" : ", ") $at_where[i]
            }
            next
        }
        matched[i]++
    }
    kept++
    key = ""
    for (i = 1; i <= overs; i++) key = key (i > 1 ? SUBSEP : "") $at_over[i]
    if (map && (is_none($at_x) || is_none($at_y))) { unplaced++; next }
    if (!map && !is_none($at_x) && !is_number($at_x) && $at_x != "none")
        fail(2, "line " FNR ": " x " is '" $at_x "': the x axis of lines takes numbers; use --where or --over " x)
    if (!is_none($at_value) && (!is_number($at_value) || $at_value > 1e300 || $at_value < -1e300))
        fail(1, "line " FNR ": " value " is '" $at_value "', not a number")
    place = is_number($at_x) ? $at_x + 0 : $at_x
    # A result has no place of its own: a point is the mean of the rows whose other settings are the same.
    if (scatter && is_number($at_x)) {
        place = ""
        for (i = 1; i <= settings; i++) if (!(i in averaged)) place = place SUBSEP $i
        is_point[place] = 1
    }
    cell = key "\t" place "\t" (map ? (is_number($at_y) ? $at_y + 0 : $at_y) : "")
    if (!(cell in n)) {
        order[++cells] = cell
        for (i = 1; i <= settings; i++) first[cell, i] = $i
    } else {
        note_difference(cell)
    }
    whole = cell
    for (i = 1; i <= settings; i++) if (i != at_value) whole = whole FS $i
    if (whole in line) fail(1, "lines " line[whole] " and " FNR " are the same cell twice: keep one of them")
    line[whole] = FNR
    n[cell]++
    if (is_none($at_value)) { none[cell]++; next }
    sum[cell] += $at_value
    sum_x[cell] += $at_x
    key = ""
    for (i in averaged) key = key FS $i
    if (!(key in seen_draw)) { seen_draw[key]; draw[++draws] = key }
    drawn_value[cell, key] = $at_value
    if (reference || !("overloaded" in at)) next
    if (is_none($at["overloaded"]) && !is_none($at["offered_per_s"])) doubtful[cell]
    if ($at["overloaded"] != 1) next
    if (!overload || $at["served_per_s"] / $at["offered_per_s"] < served / offered) {
        served = $at["served_per_s"]
        offered = $at["offered_per_s"]
    }
    if (!overloaded[cell]++) overload++
}

END {
    if (failed) exit failed
    if (!NR) fail(1, "the file is empty")
    if (!fields) fail(1, "no line has names of columns: not a result of build/sweep, or cut short")
    if (!rows) fail(1, "it has names of columns, but no rows")
    if (!unfinished && rows < least)
        fail(1, "it has " rows " rows, but its grids have " least " cells: the file is cut short")
    for (i = 1; i <= wheres; i++) if (!matched[i])
        fail(2, "--where " title[at_where[i]] "=" wanted[i] ": no row has it; there are: " values[i])
    for (i = 1; scatter && i <= cells; i++) place_point(order[i])
    for (i = 1; i <= settings; i++) if (i in other) {
        if (!hint) hint = i
        differ = differ (differ == "" ? "" : " and ") title[i] " (" other[i] ")"
    }
    if (differ != "") {
        split(other_key[hint], part, "\t")
        add_over = (over == "" ? "" : over ",") title[hint]
        add_mean = (mean == "" ? "" : mean ",") title[hint]
        if (twins == "") twins = "two rows for " x "=" part[2] (map ? " " y "=" part[3] : "")
        fail(2, twins " differ in " differ ": fix it with --where " title[hint] "=" one_of[hint] ", draw a " \
            (map ? "panel" : "line") " for each with --over " add_over ", or take the mean with --mean " add_mean)
    }
    for (i = 1; i <= cells; i++) {
        cell = order[i]
        if (none[cell] && none[cell] < n[cell]) fail(1, value " is nan in some of the rows of one mean: use --where")
        if (least_n == "" || n[cell] < least_n) least_n = n[cell]
        if (n[cell] > most_n) most_n = n[cell]
        if (!none[cell]) drawn++
    }
    if (spread && most_n < 2)
        fail(2, "--spread: each mean is of one row: give build/sweep several values of --" mean)
    if (best != "") find_best()
    for (i = 1; i <= cells; i++) {
        cell = order[i]
        shown = cell in point ? point[cell] : cell
        if (shown == "") continue
        print shown, none[cell] ? "nan" : sum[cell] / n[cell], none[cell] ? "nan" : deviation(cell), \
            cell in overloaded ? 1 : cell in doubtful ? 2 : 0, rank_of(cell)
    }
    if (!drawn) fail(2, kept ? "no row has a value of " value " and a place on the axes: it does not apply there" : \
        "no row has all that --where asks for")
    if (unfinished != "") print "!unfinished\t" unfinished
    if (mean != "") print "!mean\t" (least_n == most_n ? most_n : least_n " to " most_n)
    if (unplaced) print "!unplaced\t" unplaced
    if (overload) print "!overloaded\t" sprintf("%.3g of %.3g/s", served, offered) "\t" (overload == cells)
    # Settings that all cells share are for the subtitle, those that do not apply to some modes too. One that is on no
    # axis must not differ between cells: the figure would compare two things.
    free[at_x]
    if (map) free[at_y]
    for (i = 1; i <= overs; i++) free[at_over[i]]
    for (i = 1; i <= settings; i++) {
        shared = ""
        partly = 0
        for (k = 1; k <= cells; k++) {
            v = first[order[k], i]
            if (is_none(v)) partly = 1
            else if (shared == "") shared = v
            else if (!same(v, shared)) break
        }
        if (k <= cells && !reference && !(i in free) && !(i in averaged) && i != at_value && !follows(i, 2) && \
            !(map && follows(i, 3)) && !follows_preset(i)) {
            if (!mixed++) hint = i
            if (mixed == 1) one = shared
            differ = differ (differ == "" ? "" : " and ") title[i] " (" shared ", " v ")"
        }
        # Points of a scatter are settings of all kinds: the figure says which.
        if (k <= cells && scatter && !(i in free) && !(i in averaged)) kinds = kinds (kinds == "" ? "" : ", ") title[i]
        if (k > cells && shared != "" && !(i in averaged)) print "!" title[i], shared, partly
    }
    if (scatter) print "!scatter", kinds
    if (mixed)
        fail(2, "its cells differ in " differ ": keep one with --where " title[hint] "=" one ", or draw a " \
            (map ? "panel" : "line") " for each with --over " (over == "" ? "" : over ",") title[hint])
}
