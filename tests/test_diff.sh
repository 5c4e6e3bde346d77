#!/bin/bash
# build/diff: what it says about pairs that differ and about pairs that must not, what it writes and what it refuses.
# `make asan` runs this with a program built under the sanitizers.
export LC_ALL=C.UTF-8
source tests/check.sh
scratch

runs() {  # runs STATUS OPTION...: the exit status is that; `says` looks at what was printed
    "$B/diff" "${@:2}" >"$dir/out" 2>"$dir/err" </dev/null
    local status=$?
    check "status $status instead of $1: $(tail -n 1 "$dir/err"): ${*:2}" [ $status = "$1" ]
    check "nothing on stderr: ${*:2}" [ ! -s "$dir/err" ]
}
says() { for line; do check "it says '$line'" grep -qE -e "$line" "$dir/out"; done; }  # says PATTERN...
refuses() {  # refuses TEXT OPTION...: status 2, and one line on stderr, "diff: TEXT"
    "$B/diff" "${@:2}" >"$dir/out" 2>"$dir/err" </dev/null
    local status=$?
    cp "$dir/err" "$dir/log"
    [ $status = 2 ] && [ "$(wc -l <"$dir/err")" = 1 ] && grep -qF -e "diff: $1" "$dir/err"
    judge "status $status instead of 2, or not one line 'diff: $1': ${*:2}"
}

# Pairs that must be equal: INVARIANT results depend on the row alone, leaves decide and not ranks, and FIXED ones
# depend on M. A side that is run again is equal to itself.
equal="^Equal to the bit: all 51968 values of 39 operators, the logits included.$"
for pair in "-a schedule=invariant,rows=8 -b rows=9" "-a rows=7 -b rows=300" "-a leaves=4 -b ranks=4" "-b ranks=1" \
    "-a schedule=fast,rows=9 -b rows=9" "-a schedule=fast,rows=65 -b schedule=invariant" \
    "-a schedule=fixed,rows=9 -b rows=64" "-b arithmetic=fp32" "-a arithmetic=sm90,schedule=fast -b rows=99" \
    "--arithmetic sm100 --arithmetic sm90" "-a rows=8 --arithmetic sm86 --arithmetic sm89"; do
    runs 0 $pair
    says "$equal"
done
# The controls: the same pairs with one setting changed. All of the first differing value is known.
runs 1 -a schedule=fast,rows=8 -b schedule=fast,rows=9
says '^The first difference: layer 3, down, row 1 \(token 905 at position 1\), column 26$'
says '^  a  -0.01953125      bits bca0$' '^  b  -0.0196533203    bits bca1$' '^  They are 1 ulp of bf16 apart.$'
says '^Values of this operator that differ: 1 of 896$' '^Operators before it, equal to the bit: 36 of 39$'
says '^    3 ( +\.){8} +1$' '^After 0 of 7 rows the most likely token is another one.$'
runs 1 -a compute=fp32,schedule=fast,rows=8 -b rows=9
says '^The first difference: layer 0, q, row 0 .*column 0$' ' ulps of fp32 apart'
runs 1 -a compute=fp32 -b leaves=4
says '^The first difference: layer 0, o, '
runs 1 -a compute=fp32,schedule=fixed,rows=9 -b rows=8
runs 1 -a arithmetic=fp32 -b arithmetic=sm90
says '^The first difference: layer 0, attention, '
ids=0,678,387,282,945,260,1024,13,280,264,1024,283,264,428,13,280,264
runs 1 --ids $ids --arithmetic sm80 --arithmetic sm90
says '^The first difference: layer 1, gate, row 16 .*column 86$' '^Operators before it, equal to the bit: 17 of 39$'
# Rounding to bf16 moves a value by half an ulp at most, as long as nothing else does.
runs 1 -a compute=fp32 -b compute=bf16
says '^The first difference: layer 0, attention_norm, row 0 ' '^    0 +0\.5 ' ' 0\.[0-4][0-9]* ulps of bf16 apart'

# A changed bit is found where it is: in the operator that reads the weight.
flips() {  # flips MODEL TENSOR:INDEX:BIT PLACE
    runs 1 --model $1 --ids 3,5,9 -b flip=$2
    says "^b     bit ${2##*:} of .* is flipped.*: .* becomes "
    says "^The first difference: $3, row "
}
arch=tests/arch
for l in 0 3; do
    for o in q k v o gate down; do flips examples/tiny42 layer$l.$o:5:13 "layer $l, $o"; done
    flips examples/tiny42 layer$l.up:300:13 "layer $l, gate"
    flips examples/tiny42 layer$l.attention_norm:127:30 "layer $l, attention_norm"
    flips examples/tiny42 layer$l.ffn_norm:0:31 "layer $l, ffn_norm"
done
flips examples/tiny42 final_norm:9:22 final_norm
flips examples/tiny42 embed:650:14 embed  # row 5
flips examples/tiny42 head:650:14 embed   # they are one tensor
flips $arch/qwen2 layer0.q_bias:0:30 "layer 0, q"
flips $arch/qwen2 layer1.k_bias:3:30 "layer 1, k"
flips $arch/qwen2 layer1.v_bias:3:30 "layer 1, v"
flips $arch/qwen3 layer1.q_norm:3:30 "layer 1, q"
flips $arch/qwen3 layer0.k_norm:3:30 "layer 0, k"
flips $arch/qwen3_moe layer1.router:40:14 "layer 1, down"
for t in decay:0 alpha_bias:3 head_norm:5 taps:7; do flips $arch/qwen3_5_text layer1.$t:24 "layer 1, attention"; done
# Every expert is tried until one is used.
for e in 0 1 2 3; do
    "$B/diff" --model $arch/qwen3_moe --ids 3,5,9 -b flip=layer0.expert$e.gate:9:13
done >"$dir/out"
says '^The first difference: layer 0, down, row '
runs 0 -a flip=layer0.q:5:13 -b leaves=1
says "$equal"
runs 1 -a flip=layer0.q:5:13 -b flip=
runs 0 --ids 3,5,9 -b flip=embed:0:14 --model synthetic:tiny  # a row of a token that the text has not, and no tied head
says '^Equal to the bit: all [0-9]+ values of 21 operators'

# Models, texts, prompts. The margin is that of the logits that score prints.
runs 1 -a model=synthetic:tiny,seed=3,rows=8 -b model=synthetic:tiny,seed=4 --ids 1,2,3
says '^a     model=synthetic:tiny,seed=3$' '^both .* rows=8 ' '^The first difference: embed, row 0 '
runs 0 --text "It was the best of times" -b rows=20
says "$equal"
runs 0 --ids 0,678,387,282,945,260 --prompt 5 -a rows=3 -b rows=30
says '^rows  1 is compared: the text.s token 5$'
runs 1 -b flip=layer3.down:5:9 --out "$dir/x.tsv"
margin=$("$B/score" --ids 0,905,312,264,1108,283,1767 --logits 2>/dev/null | sed '1,/^token	logit/d' | sort -t '	' -k 2,2gr |
    awk -F '\t' 'NR == 1 { id = $1; top = $2 } NR == 2 { printf "token %d, margin %.9g", id, top - $2 }')
check "margin of score's logits" grep -qxF "# last row, a: $margin" "$dir/x.tsv"

# Tokens decoded one by one, each in a pass of so many rows, as the lecture demo's passes did: the last row gives the
# candidate that was dropped, and the invariant pass the token that was committed.
land=0,678,1449,77,647,1438,970,264,277,437,304,280,719,470,279,264
mixed=fast+fast+fast+invariant
runs 1 --prompt 12 -a schedule=$mixed,rows=5+14+6+14 -b schedule=invariant,rows=4 --ids $land --explain
says '^a     schedule=fast\+fast\+fast\+invariant rows=5\+14\+6\+14$'
says '^The first difference: layer 1, v, row 1 '  # in a FAST row: what the INVARIANT one read is not canonical
says '^-a adds them in 2 parts, because its pass is fast with 14 rows:$' '^ +3 +264 +871 +781 .* another token$'
runs 1 --prompt 12 -a schedule=fast,rows=5+14+6+14 -b schedule=$mixed --ids $land
says '^The first difference: layer 0, down, row 3 '  # the control: all rows before it are equal
runs 0 --prompt 12 -a schedule=fast,rows=5+14+6+14 -b schedule=fast+fast+fast+fast --ids $land
says '^Equal to the bit: all 29696 values'
runs 0 --prompt 12 -a schedule=invariant,rows=5+14+6+14 -b rows=4 --ids $land
says '^Equal to the bit: all 29696 values'
runs 0 --prompt 12 -a schedule=fast,rows=5+5+5+5 -b rows=6+7+8+2 --ids $land  # all are cut into three parts
says '^Equal to the bit: all 29696 values'
refuses '-a: rows: 2 passes of one compared token each, but 7 tokens are compared' -a rows=3+4 -b rows=8
refuses "-a: rows: '' is not a whole number" -a rows=3+ -b rows=8
refuses '-a: rows: 0 is outside 1 to 4096' -a rows=0+1 -b rows=8
refuses '-a: schedule: 2 schedules, but rows lists 0 passes: give each pass its rows' -a schedule=fast+fixed -b rows=8
refuses "-a: schedule: 'slow' is not one of: fast, fixed, invariant" -a schedule=fast+slow -b rows=8
refuses "-a: schedule: '' is not one of: fast, fixed, invariant" -a schedule=fast+ -b rows=8

# The sum behind the first difference is taken again in both orders, and rounds to what the passes gave.
explained='^(-a|-b) adds them in [0-9]+ parts?, because its pass is'
runs 1 -a schedule=fast,rows=8 -b schedule=fast,rows=9 --explain
says "$explained" '^  sum  .* in bf16 -0\.01953125$' '^  sum  .* in bf16 -0\.0196533203$' '^exact +-0\.01959234111 '
says '^The sum of -a lies exactly halfway' '^  \(p \+ q\) \+ r = '
for model in synthetic:tiny tests/arch/llama tests/arch/qwen2 tests/arch/qwen3 tests/arch/mistral; do
    for rows in 1 8 64; do  # if a sum of v, o or down comes first, it is one that the pass gave
        "$B/diff" --model $model --ids 1,2,3,4,5 --prompt 4 -a schedule=fast,rows=$rows -b rows=65 --explain >"$dir/out"
        check "explain, $model, $rows rows" bash -c '! grep -q "this is not how it adds" "$0"' "$dir/out"
    done
done
runs 1 -a leaves=1,arithmetic=sm90 -b arithmetic=fp32 --explain
says '^--explain has no sum to show: both sides must be backend=cpu '
runs 1 -b flip=layer0.q:5:13 --explain
says '^--explain has no sum to show: '

# The file has a row for each operator, and names the first that differs.
check "first" grep -qE '^# first: layer 3, down, row 0, column 0: a .*, b .*, [0-9]+ ulps of bf16 apart$' "$dir/x.tsv"
check "rows" [ "$(grep -cvE '^(#|layer)' "$dir/x.tsv")" = 39 ]
check "end" [ "$(tail -n 1 "$dir/x.tsv")" = "# end" ]
check "only down differs" [ "$(awk -F '\t' '$5 > 0' "$dir/x.tsv" | grep -vc '^#')" = 4 ]  # names, down, two more
# The results in the repository are what the present program gives, but for the version in the first line.
check "figures" env OUT_DIFF="$dir" NOPLOT=1 B="$B" bash sweep/figures/diff.sh
for name in fast_8_9 leaves_1_8 one_bit fp32_sm90; do
    check "sweep/results/diff/$name.tsv is not what the present code gives (bash sweep/figures/diff.sh)" \
        diff <(tail -n +2 "sweep/results/diff/$name.tsv") <(tail -n +2 "$dir/$name.tsv")
done

# The tokens before run in INVARIANT passes, which is said, and that a server with preset paper has FIXED ones.
runs 0 --prompt 3 -a schedule=fast,rows=8 -b schedule=fixed,rows=16
says "^ +tokens 0 to 2 run before, in INVARIANT passes; FIXED ones, as preset paper has, may leave other keys and values$"
runs 0 --prompt 3 -a rows=8 -b rows=9
says "^ +tokens 0 to 2 run before, in INVARIANT passes$"

# Which operators keep the bits of a row. In fp32 each change of an order of q, k and v shows, in bf16 some of the others.
check "invariance: no promise is broken" "$B/invariance" --requests 128 --out "$dir/kept.tsv"
check "M changes the sums that are cut, and nothing else changes any" diff <(awk -F '\t' '
    /^F|^INV/ { n += $4 > 700 && $6 > 700; if ($8 != "none") print $1, $2, $3, $3 ~ /^[qkv]$/ ? $8 : "" }
    END { print n }' "$dir/kept.tsv") <(for schedule in FAST FIXED; do
    for operator in q k v; do echo "$schedule M $operator 2 9 65"; done
    for operator in attention o down; do echo "$schedule M $operator "; done
done; echo 84)

# Bad input: one line that names the key.
refuses "give -b SIDE" -a rows=8
refuses "-a: 'row=8' is not key=value with a key that is known" -a row=8 -b rows=9
refuses "-b: 'rows' is not key=value" -b rows
refuses "-b: rows is there twice" -b rows=8,leaves=2,rows=8
refuses "-b: rows: 6 are fewer than the 7 that are compared" -b rows=6
refuses "-a: rows: 4097 is outside 0 to 4096" -a rows=4097 -b leaves=1
refuses "-b: rows: 'x' is not a whole number" -b rows=x
refuses "-b: schedule: 'slow' is not one of: fast, fixed, invariant" -b schedule=slow
refuses "-b: compute: 'fp16' is not one of" -b compute=fp16
refuses "-b: backend: 'sim' is not one of" -b backend=sim
refuses "-b: leaves: 3: must be 1, 2, 4 or 8" -b leaves=3
refuses "-b: leaves: 8: must divide" -b leaves=8
refuses "-b: ranks: 8: must divide" -b ranks=8
refuses "-a: compute: FP32: arithmetic SM90 needs BF16" -a compute=fp32,arithmetic=sm90 -b rows=9
refuses "--arithmetic: give it twice: first that of side a" --arithmetic sm80
refuses "-a: arithmetic: 'sm70' is not one of: own, fp32, sm90, sm80, " --arithmetic sm70 --arithmetic sm90
refuses "-b: arithmetic: SM80: its tensor cores have no FP8" --model examples/tiny42-fp8 --arithmetic sm90 --arithmetic sm80
refuses "-a: $dir/none: no such model" -a model="$dir/none" -b leaves=1
refuses "--ids: token 2048 is outside 0 to 2047" --ids 0,2048 -b leaves=2
refuses "--ids and --text exclude each other" --ids 0 --text Once -b leaves=2
refuses "--ids: the list is empty" --ids "" -b leaves=2
refuses "--text: " --model synthetic:tiny --text Once -b leaves=2
refuses "--prompt: 7 leaves none of 7 tokens to compare" --prompt 7 -b leaves=2
refuses "-b: model: layers: 2, in -a 4: only models of one shape" -b model=synthetic:tiny
refuses "-b: model: shape:tiny has no weights" -b model=shape:tiny
refuses "-b: flip: 'layer0.q:5' is not TENSOR:INDEX:BIT" -b flip=layer0.q:5
refuses "-b: flip: index: 16384 is outside 0 to 16383" -b flip=layer0.q:16384:0
refuses "-b: flip: index: -1 is outside" -b flip=layer0.q:-1:0
refuses "-b: flip: bit: 16 is outside 0 to 15" -b flip=layer0.q:5:16
refuses "-b: flip: bit: 32 is outside 0 to 31" -b flip=final_norm:5:32
for name in layer4.q layer0.qq layer-1.q layer0.expert0.up layer0.q_norm layer0.router layerx.q Embed ""; do
    refuses "-b: flip: the model has no tensor $name" -b flip="$name:0:0"
done
refuses "$dir/none/x: cannot write" -b leaves=2 --out "$dir/none/x"
refuses "/dev/full: cannot write: No space left on device" -b leaves=2 --out /dev/full
"$B/diff" -b leaves=2 2>"$dir/err" >/dev/full
check "a full disk behind stdout" grep -q '^diff: stdout: cannot write' "$dir/err"

# The pictures, and what cannot be drawn.
plot_refuses() {  # plot_refuses TEXT ARGUMENT...: one line on stderr with the text
    bash sweep/plot_diff.sh "${@:2}" >"$dir/out" 2>"$dir/err"
    local status=$?
    check "status $status" [ $status != 0 ]
    check "plot_diff: $(head -n 1 "$dir/err")" [ "$(wc -l <"$dir/err") $(grep -cF -e "$1" "$dir/err")" = "1 1" ]
}
runs 0 -a leaves=1 -b ranks=1 --out "$dir/equal.tsv"
grep -v '^# end' "$dir/x.tsv" >"$dir/cut.tsv"
plot_refuses "which file?"
plot_refuses "cannot read this file" "$dir/none"
plot_refuses "not of build/diff" sweep/results/ranks_tiny42.tsv
plot_refuses "the file is cut short" "$dir/cut.tsv"
plot_refuses "there is nothing to draw" "$dir/equal.tsv"
plot_refuses "files cannot be written there" "$dir/x.tsv" --out "$dir/none/x"
if command -v gnuplot >/dev/null; then
    check "a picture" bash sweep/plot_diff.sh "$dir/x.tsv" --title "It's {a} title" --out "$dir/picture"
    check "a PNG" [ "$(head -c 4 "$dir/picture.png" | tail -c 3)" = PNG ]
    check "its title" grep -qF "It's {a} title" "$dir/picture.svg"
    check "its first difference" grep -qF "first: layer 3, down, row 0, column 0" "$dir/picture.svg"
else
    skip "pictures" "gnuplot is not installed"
fi
finish
