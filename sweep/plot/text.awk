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

# The pixels that a text takes in font(size), by the widths of letters of DejaVu Sans. Other fonts are narrower.
function wide(text, size, w) {
    w = 95 * gsub(/[mwMW%@#+<=>^~]/, "", text) + 76 * gsub(/[A-HK-Z&]/, "", text) + 29 * gsub(/[ijlIJ\047]/, "", text)
    w += 34 * gsub(/[ \001,.:;\/\\|f-]/, "", text) + 41 * gsub(/[()tr!]/, "", text) + 57 * gsub(/[csvxykz]/, "", text)
    return (w + 65 * length(text)) * size / 77
}
function size_of(what) { return what == "headline" ? 1.13 * 21.5 : what == "reading" ? 16 : what == "foot" ? 13.5 : 20 }
# Prints the texts, and the pixels that they take above and below the plots.
function print_texts(headline, headlines, reading, readings, foot, feet) {
    print_array("headline", headline, headlines)
    print_array("reading", reading, readings)
    print_array("foot", foot, feet)
    above = 36 + 37 * headlines + 30 * readings
    below = 22 + 25 * feet
    print "above = " above "; below = " below
}

# Appends a text to the n lines, none of which is wider than `room` pixels. Returns the new n.
function broken(text, room, size, lines, n, words, word, i, line) {
    words = split(text, word, " ")
    for (i = 1; i <= words; i++) {
        if (i > 1 && wide(line " " word[i], size) <= room) { line = line " " word[i]; continue }
        if (i > 1) lines[++n] = line
        line = word[i]
    }
    if (words) lines[++n] = line
    for (i = 1; i <= n; i++) gsub(hard, " ", lines[i])
    return n
}
# The same in as few lines as fit on `room` pixels, which are of about the same width. None ends beside a sign of
# equality, and only a word that is wider than a line is cut.
function wrap(text, room, what, lines, n, size, words, word, i, most, limit) {
    size = size_of(what)
    gsub(/ = /, hard "=" hard, text)
    words = split(text, word, " ")
    text = ""
    for (i = 1; i <= words; i++) {
        for (; wide(word[i], size) > room; word[i] = substr(word[i], limit + 1)) {
            for (limit = length(word[i]); wide(substr(word[i], 1, limit), size) > room; limit--) ;
            text = text substr(word[i], 1, limit) " "
        }
        text = text word[i] " "
    }
    most = broken(text, room, size, lines, n)
    for (limit = most > n ? wide(text, size) / (most - n) : room; limit < room; limit += 8)
        if (broken(text, limit, size, lines, n) == most) return most
    return broken(text, room, size, lines, n)
}
