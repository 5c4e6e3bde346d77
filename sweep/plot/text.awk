# Texts of a sheet, as lines of gnuplot: the headline, how to read it, and the foot below the plots. figures/common.gp
# draws them in these sizes.

BEGIN { hard = "\001" }  # a space at which no line ends

# A string of gnuplot. In single quotes: within double ones it would run what stands between backquotes.
function string(text) {
    gsub(/\047/, "\047 . \"\047\" . \047", text)
    return "\047" text "\047"
}
# The same for a title or label, in which some characters would be markup.
function quoted(text) {
    gsub(/[\\_^{}@&~]/, "\\\\&", text)
    return string(text)
}
# A gnuplot array of texts. It has at least one, because gnuplot has no empty arrays.
function print_array(name, values, n, i) {
    printf "array %s[%d] = [", name, n ? n : 1
    for (i = 1; i <= n || i == 1; i++) printf "%s%s", (i > 1 ? ", " : ""), quoted(i <= n ? values[i] : "")
    print "]"
}

# How many letters a line may have on a sheet of so many pixels.
function letters(width, what) {
    return int((width - 40) / (what == "headline" ? 16.8 : what == "reading" ? 11.3 : 9.3))
}
# Prints the texts, and the pixels that they take above and below the plots.
function print_texts(headline, headlines, reading, readings, foot, feet) {
    print_array("headline", headline, headlines)
    print_array("reading", reading, readings)
    print_array("foot", foot, feet)
    above = 36 + 37 * headlines + 30 * readings
    below = 22 + 25 * feet
    print "above = " above "; below = " below
}

# Appends a text to the n lines, in lines of at most `most` letters and of about the same length, none of which ends
# beside a sign of equality. Returns the new n.
function wrap(text, most, lines, n, pieces, cut) {
    gsub(/ = /, hard "=" hard, text)
    for (pieces = int((length(text) + most - 1) / most); pieces > 1; pieces--) {
        for (cut = int(length(text) / pieces); cut < most && substr(text, cut, 1) != " "; cut++) ;
        while (cut > 1 && substr(text, cut, 1) != " ") cut--
        if (cut <= 1) cut = most
        lines[++n] = substr(text, 1, cut)
        sub(/ +$/, "", lines[n])
        text = substr(text, cut + 1)
        if (length(text) > (pieces - 1) * most) pieces++
    }
    if (text != "") lines[++n] = text
    for (cut = 1; cut <= n; cut++) gsub(hard, " ", lines[cut])
    return n
}
