#!/bin/bash
# What somebody does who changes lines of a transcript and does not want it seen: its digests become those of its lines
# again. (Who has the old digest, or a signature, sees it nevertheless: examples/AUDIT.md.)
# bash examples/lesson/seal.sh FILE
all='' head='' answer=''
while IFS= read -r line; do
    case $line in
    request:*) answer='' ;;
    digest:*) line="digest: $(printf %s "$head$answer" | sha256sum | cut -c1-64)" ;;
    file_digest:*) line="file_digest: $(printf %s "$all" | sha256sum | cut -c1-64)" ;;
    esac
    all+=$line$'\n' answer+=$line$'\n'
    case $line in result:*) head=$all ;; esac
done <"$1"
printf %s "$all" >"$1"
