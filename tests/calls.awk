# awk -f tests/calls.awk FILE FILE: what is wrong with the lines "// Calls: A, B; ..." that open the sections of a file,
# which is read twice. A section may call those of base, which come first, freely. Its line must name all others that it
# calls, in any order, and no more; what stands behind a semicolon is outside of the file. A section of base names all.
# A call is any mention of a function, of a table or of a macro that another section defines.
BEGIN {
    split("results memory numbers files names doubles", list, " ")
    for (i in list) base[list[i]]
    home["LLM42__FAIL"] = "names"  # it stands before all sections, and calls llm42_fail
}

function defines(name) {
    if (!(name in home)) home[name] = section
    else if (home[name] != section) home[name] = ""
}
# The code of a line: without strings, characters and comments.
function code(line) {
    gsub(/'([^'\\]|\\.)+'/, "0", line)
    gsub(/"([^"\\]|\\.)*"/, "0", line)
    sub(/\/\/.*/, "", line)
    return line
}
FNR == 1 { pass++; section = "" }
/^\/\/ >>[a-z]/ { section = substr($2, 3); if (pass == 1) order[++sections] = section }
/^#endif  \/\/ LLM42_IMPLEMENTATION/ { section = "" }
section == "" || section ~ /^api-/ { next }
pass == 1 && /^#undef LLM42__/ { home[$2] = "" }
/^\/\/ Calls: / { if (pass == 1) { said = substr($0, 11); line_of[section] = FNR } else next }
pass == 1 && /^\/\/ Invariant/ { said = "" }
pass == 1 && said != "" && /^\/\/ / && !/^\/\/ Calls/ { said = said " " substr($0, 4) }
pass == 1 && said != "" { claim[section] = said }
{ text = code($0) }
# A declarator at the start of a line, until its brace or semicolon.
pass == 1 && /^#define LLM42__[A-Z0-9_]+/ { split($2, part, "("); defines(part[1]) }
pass == 1 && /^[A-Za-z]/ { declarator = "" ; open = 1 }
pass == 1 && open {
    declarator = declarator " " text
    if (text ~ /[{;]/) {
        open = 0
        if (match(declarator, /llm42_[a-z0-9_]+\(/) && declarator !~ /^[^(]*(typedef|struct [a-z0-9_]+ \{)/) {
            name = substr(declarator, RSTART, RLENGTH - 1)
            if (declarator ~ /\{/) defines(name)
        } else if (match(declarator, /static const [a-z0-9_]+ llm42__[a-z0-9_]+(\[[^]]*\])? = /)) {
            name = substr(declarator, RSTART, RLENGTH)
            sub(/.* llm42__/, "llm42__", name)
            sub(/[^a-z0-9_].*/, "", name)
            defines(name)
        }
    }
}
# A prototype is no call.
pass == 2 && /^[A-Za-z]/ { skips = text !~ /\{/ && text ~ /\(/ ; if (skips) waiting = text }
pass == 2 && skips {
    if (text ~ /;[ ]*$/) { skips = 0; next }
    if (text !~ /\{/) next
    skips = 0
}
pass == 2 {
    while (match(text, /llm42_[a-z0-9_]+|LLM42__[A-Z0-9_]+/)) {
        name = substr(text, RSTART, RLENGTH)
        text = substr(text, RSTART + RLENGTH)
        if (!(name in home) || home[name] == "" || home[name] == section) continue
        if (!((section, home[name]) in calls)) calls[section, home[name]] = name
    }
}
END {
    for (i = 1; i <= sections; i++) {
        section = order[i]
        if (section ~ /^api-/) continue
        if (!(section in claim)) { print FILENAME ": section " section ": no line Calls:"; continue }
        text = claim[section]
        sub(/[.;].*/, "", text)
        split("", named)
        count = split(text, list, /, */)
        for (k = 1; k <= count; k++) named[list[k]]
        for (k = 1; k <= sections; k++) {
            other = order[k]
            free = other in base && !(section in base)
            if ((section, other) in calls && !free && !(other in named))
                print FILENAME ":" line_of[section] ": section " section " calls " other ": " calls[section, other]
            if (other in named && (free || !((section, other) in calls)))
                print FILENAME ":" line_of[section] ": section " section " does not call " other \
                    (free ? ", or it is of base" : "")
        }
        for (k in named) {
            known = k == "nothing" && count == 1
            for (j = 1; j <= sections; j++) known = known || order[j] == k
            if (!known) print FILENAME ":" line_of[section] ": section " section ": no section is named '" k "'"
        }
    }
}
