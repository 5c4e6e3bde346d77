#!/bin/bash
# examples/python/llama2c.py turns a llama2.c file into a folder that tells the same story, and refuses broken files.
source tests/check.sh
scratch
out=$dir
if ! command -v python3 >/dev/null; then
    skip all "no python3"
    finish
fi
convert() { python3 examples/python/llama2c.py "$@"; }

# tiny42 as a llama2.c file, in which BOS is token 1, and this file as a folder again: the same text.
bin=$out/tiny/model.bin
check "tiny42 as a file" python3 sweep/cpu/llama2c.py examples/tiny42 "$out/tiny"
check "and its tokenizer spells ids" grep -qa '2047 ' "$out/tiny/tokenizer.bin"
check "the file as a folder" convert "$bin" "$out/folder"
"$B/generate" --prompt "" --ids-out -n 24 --dtype fp32 >"$out/ids" 2>&1
"$B/generate" --model "$out/folder" --ids 1 --ids-out -n 24 --dtype fp32 >"$out/ids.folder" 2>&1
check "the text of tiny42" cmp "$out/ids" "$out/ids.folder"

# 200 positions in all, as llama2.c counts them. The prompt, BOS included, takes five, and the last row gives a token.
stories=../shared/models/stories260K
if [ -e $stories ]; then
    check "stories260K" convert $stories/stories260K.bin "$out/stories" $stories/tok512.bin
    for kind in "" --deterministic; do
        "$B/generate" --model "$out/stories" --prompt "Once upon a time" -n 196 --dtype fp32 $kind >"$out/text" 2>"$log"
        check "the golden story $kind" cmp "$out/text" $stories/golden_greedy.txt
    done
else
    skip stories260K "no ../shared/models/stories260K"
fi

refuses() {  # refuses TEXT FILE...: it says so in one line and leaves nothing behind
    convert "${@:2}" >"$out/said" 2>&1
    check "$1: status" test $? = 1 -a ! -e "$out/none"
    check "$1: one line" test "$(wc -l <"$out/said")" = 1
    check "$1" grep "^llama2c.py: $1" "$out/said"
}
# The file of tiny42 with other bytes in front (as printf has them), cut to a size.
changed() {  # changed TEXT BYTES [SIZE]
    { printf "$2" && tail -c +$(($(printf "$2" | wc -c) + 1)) "$bin"; } | head -c "${3:--0}" >"$out/bad"
    refuses "$out/bad: $1" "$out/bad" "$out/none"
}
size=$(wc -c <"$bin")
front=$(head -c 24 "$bin" | od -An -v -to1 | tr -d '\n' | tr ' ' '\\')  # all of the header but seq_len
zero='\0\0\0\0' many='\377\377\377\177' least='\0\0\0\200'
changed 'truncated: no llama2.c header$' '' 0
changed 'truncated: no llama2.c header$' '' 27
for less in 28 29 $((size / 2)) $((size - 4)) $((size - 1)); do
    changed "the header asks for $size bytes, the file has $less\$" '' "$less"
done
changed 'the header asks for [0-9]* bytes, the file has 28$' \
    '\100\0\0\0\100\0\0\0\0\0\0\1\2\0\0\0\2\0\0\0\100\0\0\0\100\0\0\0' 28
: >"$out/empty"
refuses "$out/empty: the file is empty" "$bin" "$out/none" "$out/empty"
for value in "$zero" "$many" "$least"; do
    changed 'not a llama2.c file: dim -\?[0-9]*, hidden_dim ' "$value"
    changed 'not a llama2.c file: dim .*, seq_len ' "$front$value"
done
changed 'version 1 or later: export the model with --version 0$' '24ka\1\0\0\0'
changed 'wrong byte order: ' '\0\0\0\20\0\0\0\30\0\0\0\1\0\0\0\2\0\0\0\1\0\0\0\40\0\0\0\20'
changed 'not a llama2.c file: .*n_kv_heads 3, ' '\20\0\0\0\30\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0\40\0\0\0\20\0\0\0'
changed 'not a llama2.c file: dim 1936287828, ' 'This is a text and no model.'
refuses "$out/gone: No such file or directory" "$out/gone" "$out/none"
refuses "$out/gone: No such file or directory" "$bin" "$out/none" "$out/gone"
refuses "$bin: File exists" "$bin" "$bin"
"$B/generate" --model "$bin" >"$out/said" 2>&1
check "llm42 names the converter" grep "since 0.3.0 .*examples/python/llama2c.py" "$out/said"
finish
