#!/bin/bash
# Draws the slides of LESSON.md, one for each step, from what its commands print:
#
#     bash examples/lesson/draw.sh [DIR]
#
# It runs in the repository's root and needs the programs that LESSON.md names. DIR is where the slides go, by default
# examples/lesson. From the environment: B (the build folder).
set -eu
export LC_ALL=C
B=${B:-build} out=${1:-examples/lesson}
mkdir -p "$out"

# ---- parts of a slide ----
begin() {  # begin TITLE DESCRIPTION: the heading, and what a screen reader says
    cat <<END
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1600 900" role="img"
 font-family="'DejaVu Sans', Verdana, Helvetica, Arial, sans-serif" font-size="34" fill="#1a1a1a">
<title>$1</title>
<desc>$2</desc>
<style>.m{font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace}.b{font-weight:bold}.c{text-anchor:middle}
.e{text-anchor:end}.red{fill:#b93a00}.blue{fill:#00569c}.green{fill:#00694d}.grey{fill:#5c5c5c}.white{fill:#fff}</style>
<rect width="1600" height="900" fill="#fff"/>
END
    text 60 95 58 b "$1"
}
text() {  # text X Y SIZE CLASSES WORDS
    local words=${5//&/&amp;}
    words=${words//</&lt;}
    echo "<text x=\"$1\" y=\"$2\" font-size=\"$3\" class=\"$4\" xml:space=\"preserve\">$words</text>"
}
box() {  # box X Y WIDTH HEIGHT FILL [STROKE]
    local line=${6:+ stroke=\"$6\" stroke-width=\"4\"}
    echo "<rect x=\"$1\" y=\"$2\" width=\"$3\" height=\"$4\" rx=\"6\" fill=\"$5\"$line/>"
}
path() { echo "<path d=\"$1\" fill=\"none\" stroke=\"$2\" stroke-width=\"${3:-4}\"/>"; }  # path D STROKE [WIDTH]
arrow() {  # arrow X1 Y X2 COLOUR: from left to right, or from right to left
    local back=$(($3 > $1 ? -16 : 16))
    path "M$1 $2H$3m$back -12l$((-back)) 12l$back 12" "$4"
}
finish() { echo '</svg>'; }

# ---- 1: drift ----
word() { sed -nE "s/^ *\"(.*)\": $1,?\$/\1/p" examples/tiny42/tokenizer.json | sed 's/Ġ/·/; s/\\"/"/'; }
drift() {
    local run token id bits id2 bits2 x=330
    run=$("$B/02_drift")
    begin "The same prompt, another answer" "One prompt of build/02_drift alone and among seven others: words and bits"
    text 60 165 36 "" "$(
        sed -n 's/^The first to differ in a token is \(.*\):$/\1/p' <<<"$run"), always the likeliest token"
    text 60 330 34 b alone
    text 60 560 34 b "among seven"
    text 60 602 34 b "others"
    while read -r token id _ bits id2 _ bits2 _; do
        local colour="#e8f1f8" look=grey
        [ "$bits" = "$bits2" ] || look="red b"
        [ "$id" = "$id2" ] || colour="#fbe3d8"
        text $((x + 110)) 245 28 "c grey" "token $token"
        box $x 275 220 85 "#e8f1f8"
        text $((x + 110)) 333 42 "m c b blue" "$(word "$id")"
        text $((x + 110)) 410 30 "m c $look" "$bits"
        box $x 505 220 85 "$colour"
        text $((x + 110)) 563 42 "m c b $([ "$id" = "$id2" ] && echo blue || echo red)" "$(word "$id2")"
        text $((x + 110)) 640 30 "m c $look" "$bits2"
        x=$((x + 245))
    done < <(grep -E '^ +(18|19|20|21|22) ' <<<"$run")
    text 60 735 32 grey "Below each word: the bits of its log-probability. Red: they differ."
    text 60 830 38 b "$(sed -n 's/^alone and together: \([0-9]*\) .*/\1/p' <<<"$run") log-probabilities differ, then $(
        grep -cE ' (([0-9]|[0-3][0-9]|4[0-7]) of 48) ' <<<"$(sed -nE 's/^.{26} *([0-9]+ of 48) .*/ \1 /p' <<<"$run")"
    ) of 8 answers get another token."
    finish
}

# ---- 2: three numbers ----
numbers() {
    local i x
    begin "Three numbers, two sums" "fp32 cannot hold 16777217, so the sum of 16777216, 1 and 1 depends on the brackets"
    path "M100 330H1500" "#1a1a1a"
    for i in 0 1 2 3 4; do
        x=$((220 + 290 * i))
        if [ $((i % 2)) = 0 ]; then
            path "M$x 300V360" "#1a1a1a" 6
            text $x 415 36 "m c b" $((16777216 + i))
        else
            path "M$x 312V348" "#8a8a8a" 3
            text $x 405 28 "m c grey" $((16777216 + i))
            text $x 440 26 "c grey" "no fp32 number"
        fi
    done
    path "M225 290C300 175 435 175 505 290m-2 -20l2 20l-20 -6" "#b93a00" 5
    text 365 190 34 "c red b" "+ 1"
    path "M480 305C430 270 310 270 245 305m6 -19l-6 19l19 -2" "#b93a00" 5
    text 530 265 30 red "and rounded back"
    text 60 570 46 "m b" "(16777216 + 1) + 1 ="
    text 720 570 46 "m b red" "16777216"
    text 60 640 46 "m b" "16777216 + (1 + 1) ="
    text 720 640 46 "m b green" "16777218"
    text 60 750 36 "" "fp32 keeps 24 bits and rounds after each addition."
    text 60 810 36 "" "To cut a sum into parts is to set brackets."
    finish
}

# ---- 3: the sum behind a token ----
behind() {
    local run halfway sum_a sum_b low high
    run=$("$B/diff" --text "The landlord dropped the candle and went out to the" -a schedule=fast,rows=16 \
        -b schedule=invariant --explain || [ $? = 1 ])
    field() { sed -nE "s/$1/\1/p" <<<"$run" | sed -n "${2:-1}p"; }
    sum_a=$(field '^  sum +(\S+) +in bf16 .*') sum_b=$(field '^  sum +(\S+) +in bf16 .*' 2)
    low=$(field '^  sum .* in bf16 (\S+)$') high=$(field '^  sum .* in bf16 (\S+)$' 2)
    halfway=$(field '^halfway +(\S+) .*')
    begin "The sum behind a flipped token" "The first sum that differs: the same 384 products in two parts and in one"
    text 60 160 34 "" "The landlord … went out to the …: $(
        field '^The sum behind it: ([0-9]+) .*') products, added in two ways"
    text 60 235 34 b "fast pass"
    box 330 195 600 60 "#fbe3d8"
    box 950 195 590 60 "#fbe3d8"
    text 630 237 34 "m c" "$(field '^  products +1 to +192 +(\S+)')"
    text 940 237 34 "m c" "+"
    text 1245 237 34 "m c" "$(field '^  products +193 to +384 +(\S+)')"
    text 60 315 34 b "sum"
    text 330 315 38 "m b red" "$sum_a"
    text 60 400 34 b "replay pass"
    box 330 360 1210 60 "#dff0ea"
    text 935 402 34 "m c" "all in one part"
    text 60 480 34 b "sum"
    text 330 480 38 "m b green" "$sum_b"
    path "M160 600H1440" "#1a1a1a"
    path "M200 570V630M1400 570V630" "#1a1a1a" 6
    path "M800 575V625" "#5c5c5c" 3
    text 200 675 34 "m c b red" "$low"
    text 1400 675 34 "m c b green" "$high"
    text 800 665 28 "c grey" "halfway $halfway"
    echo '<circle cx="800" cy="600" r="13" fill="#b93a00"/><circle cx="830" cy="600" r="13" fill="#00694d"/>'
    arrow 780 550 230 "#b93a00"
    arrow 850 550 1370 "#00694d"
    text 505 535 30 "c red" "fast: rounded to bf16"
    text 1110 535 30 "c green" "replay: rounded to bf16"
    local margins
    margins=$(grep 'another token$' <<<"$run")
    set -- $margins
    text 60 765 36 "" "$(field '^Operators before it, equal to the bit: [0-9]+ of ([0-9]+)' | cat - <(
        field '^Operators before it, equal to the bit: ([0-9]+) of .*') | paste -sd ' ' |
        awk '{print $1 - $2 - 1}') operators later"
    box 470 715 490 75 "#fbe3d8"
    text 715 765 36 "c red b" "$(word "$3" | sed 's/^·//') leads by $5"
    box 1000 715 540 75 "#dff0ea"
    text 1270 765 36 "c green b" "a tie: $(word "$4" | sed 's/^·//') (lower id)"
    text 60 850 34 grey "The sums differ by $(field '.* a difference of (\S+) becomes .*'). (The dots are drawn apart.)"
    finish
}

# ---- 5: W and G ----
# Colours from white to blue; dark cells get white digits.
window_and_group() {
    begin "W and G: which window, which group?" "Simulated tokens per second and recomputed tokens over W and G"
    "$B/04_simulate" >"$out/.simulated"
    awk '
    function cell(x, y, wide, value, share,   r, g, b) {
        r = 255 - 255 * share; g = 255 - 169 * share; b = 255 - 99 * share
        printf "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"74\" fill=\"#%02x%02x%02x\"/>\n", x, y, wide - 4, r, g, b
        printf "<text x=\"%d\" y=\"%d\" font-size=\"32\" class=\"c%s\">%s</text>\n", x + wide / 2 - 2, y + 49,
            (share > 0.55 ? " white" : ""), value
    }
    function label(x, y, class, s) {
        printf "<text x=\"%d\" y=\"%d\" font-size=\"32\" class=\"%s\">%s</text>\n", x, y, class, s
    }
    /^W=/ {
        gsub(/[^0-9.W= ]/, " ")
        w[++n] = $1
        for (i = 2; i <= NF; i++) { v[n, i] = $i; k = i > 6; if ($i > top[k]) top[k] = $i }
    }
    END {
        label(515, 175, "c b", "tokens per second"); label(1235, 175, "c b", "recomputed tokens, %")
        split("1 2 4 8 16", g, " ")
        for (i = 2; i <= 11; i++) {
            x = i < 7 ? 180 + 135 * (i - 2) : 900 + 135 * (i - 7)
            label(x + 65, 225, "c grey", "G=" g[(i - 2) % 5 + 1])
            for (j = 1; j <= n; j++) {
                if (i == 2) label(160, 294 + 78 * (j - 1), "e grey", w[j])
                cell(x, 245 + 78 * (j - 1), 135, v[j, i], v[j, i] / top[i > 6])
                if (i < 7 && v[j, i] == top[0]) at = "M" x - 2 " " 243 + 78 * (j - 1) "h135v78h-135z"
            }
        }
        printf "<path d=\"%s\" fill=\"none\" stroke=\"#b93a00\" stroke-width=\"7\"/>\n", at
    }' "$out/.simulated"
    local best
    best=$(sed -n 's/^fastest: \(W = .*\), with replay passes of M = \(.*\)$/\1, a replay pass of \2/p' \
        "$out/.simulated")
    rm "$out/.simulated"
    text 60 855 38 b "Fastest here: $best"
    finish
}

# ---- 6: what it costs ----
costs() {
    begin "Verify, or all passes INVARIANT?" \
        "Which mechanism has more throughput, over the share of deterministic requests and the cost of INVARIANT passes"
    local table
    table=$("$B/sweep" --calibration sweep/calibration/h100-pcie-paper.tsv --requests 500 --qps offline --quiet \
        --mode nondeterministic,dvr,batch_invariant --ratio 0.02,0.1,0.5,1 --slowdown 1.01,1.05,1.1,1.2,1.3,1.5 |
        cut -sf 6,15,17,21)
    text 935 170 34 "c b" "time of an INVARIANT pass (a FAST one takes 1)"
    awk -v FS='\t' '
    $1 == "nondeterministic" { all = $4 }
    $1 == "dvr" { if (!($2 in seen)) { seen[$2]; ratio[++n] = $2 } dvr[$2, $3] = $4 }
    $1 == "batch_invariant" { slow[++m] = $3; inv[$3] = $4 }
    function text(x, y, size, class, s) {
        printf "<text x=\"%d\" y=\"%d\" font-size=\"%d\" class=\"%s\">%s</text>\n", x, y, size, class, s
    }
    END {
        text(60, 235, 30, "b", "deterministic"); text(60, 272, 30, "b", "requests, %")
        for (j = 1; j <= m; j++) text(385 + 205 * (j - 1) + 28, 240, 34, "c", slow[j])
        for (i = 1; i <= n; i++) {
            y = 280 + 124 * (i - 1)
            text(230, y + 75, 38, "e b", 100 * ratio[i])
            for (j = 1; j <= m; j++) {
                x = 310 + 205 * (j - 1)
                d = dvr[ratio[i], slow[j]]; wins = inv[slow[j]] > d
                printf "<rect x=\"%d\" y=\"%d\" width=\"197\" height=\"116\" fill=\"%s\"/>\n", x, y,
                    wins ? "#f6c667" : "#00569c"
                text(x + 98, y + 50, wins ? 28 : 34, "c b" (wins ? "" : " white"), wins ? "INVARIANT" : "verify")
                text(x + 98, y + 95, 28, "c" (wins ? "" : " white"),
                    sprintf("%.0f : %.0f", 100 * d / all, 100 * inv[slow[j]] / all))
            }
        }
    }' <<<"$table"
    text 60 825 32 grey "verify : INVARIANT, in % of the throughput without determinism"
    text 60 870 32 grey "Simulated: 8B model, H100 PCIe, 500 requests of ShareGPT that are all there at the start"
    finish
}

# ---- 7: nano42 ----
nano() {
    local name lines what y=235
    begin "The whole protocol on one page" "The parts of examples/nano42.c, with the four functions of the protocol"
    length() {
        awk -v name="$1" '/^static/ && index($0, " " name "(") {n = NR} n && /^}/ {print NR - n + 1; exit}' \
            examples/nano42.c
    }
    while read -r name lines; do
        [ "$name" != protocol ] || box 60 $((y - 52)) 560 74 "#00569c"
        text 85 $y 38 "b$([ "$name" != protocol ] || echo ' white')" "$name"
        text 590 $y 34 "e$([ "$name" != protocol ] && echo ' grey' || echo ' white')" "$lines lines"
        [ "$name" != protocol ] || path "M630 $((y - 15))L720 190V800z" "#00569c" 3
        y=$((y + 120))
    done < <(awk '/^\/\/ ---- / { if (name) print name, NR - begin; name = $3; begin = NR }
        END { print name, NR - begin + 1 }' examples/nano42.c)
    y=200
    while IFS=: read -r name what; do
        box 720 $((y - 50)) 820 140 "#e8f1f8"
        text 750 $((y + 5)) 38 "m b blue" "$name"
        text 1510 $((y + 5)) 30 "e grey" "$(length "$name") lines"
        text 750 $((y + 60)) 32 "" "$what"
        y=$((y + 165))
    done <<'END'
prefill:the prompt, in one INVARIANT pass if marked
decode:one FAST pass: a candidate each
verify:one INVARIANT pass: commit, or roll back
serve:decode until all windows are full, verify
END
    text 60 870 34 grey "A window is 8 rows: the last committed token and seven candidates."
    finish
}

# ---- 8: audit ----
audit() {
    local honest cheat
    honest=$("$B/audit" examples/h200.txt --model examples/tiny42)
    sed 's/^tokens: 13,280,351,312,/tokens: 13,280,351,264,/' examples/h200.txt >"$out/.cheat"
    bash examples/lesson/seal.sh "$out/.cheat"
    cheat=$("$B/audit" "$out/.cheat" --model examples/tiny42 || [ $? = 1 ])
    rm "$out/.cheat"
    begin "A CPU checks an H200, to the bit" \
        "A transcript goes from an H200 to a CPU, which verifies it, and finds one changed token"
    box 60 160 400 170 "#e8f1f8" "#00569c"
    text 260 230 40 "c b" "NVIDIA H200"
    text 260 285 30 "c grey" "answers three requests"
    arrow 470 245 585 "#1a1a1a"
    box 600 160 400 170 "#fff" "#1a1a1a"
    text 800 222 36 "c m b" "h200.txt"
    text 800 270 28 "c grey" "prompts, seeds, tokens,"
    text 800 308 28 "c grey" "bits of log-probabilities"
    arrow 1010 245 1125 "#1a1a1a"
    box 1140 160 400 170 "#dff0ea" "#00694d"
    text 1340 222 40 "c b" "your CPU"
    text 1340 270 28 "c grey" "each answer alone,"
    text 1340 308 28 "c grey" "rounds as the H200 does"
    text 60 440 40 b "As it came"
    text 60 500 38 "green b" "$(
        sed -nE 's/^verified to the bit: ([0-9]+ of [0-9]+ requests),.*/\1 verified/p' <<<"$honest"): $(
        sed -nE 's/.*; ([0-9]+ tokens) and log-prob.*/\1, all bits equal/p' <<<"$honest")"
    text 60 610 40 b "One token of request 1 changed: 312 becomes 264"
    text 60 670 38 "red b" "$(sed -nE 's/^(NOT VERIFIED: [0-9]+ of [0-9]+ requests).*/\1 are equal/p' <<<"$cheat")"
    text 60 730 34 "" "$(sed -nE 's/^request 1: differs: (.*) of the others$/Request 1: \1 differ/p' <<<"$cheat")"
    text 60 840 36 grey "Every later token has the changed one before it, so its bits change, too."
    finish
}

drift >"$out/1.svg"
numbers >"$out/2.svg"
behind >"$out/3.svg"
"$B/rollback" --requests 6 --tokens 24 --svg "$out/4.svg" >"$out/.log"
rm "$out/.log"
window_and_group >"$out/5.svg"
costs >"$out/6.svg"
nano >"$out/7.svg"
audit >"$out/8.svg"
