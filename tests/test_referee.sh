#!/bin/bash
# The referee of sweep/referee: its options and errors, servers that have one fault each (referee/fake.py), and
# build/serve, which passes with deterministic requests and does not without.
# From the environment: PYTHON (default: python3).
export LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
PYTHON=${PYTHON:-python3}
source tests/check.sh
scratch
server="" other=""
trap 'kill $server $other 2>/dev/null; rm -rf "$dir"' EXIT
if ! command -v "$PYTHON" >/dev/null; then
    skip "the referee" "python3 is not here"
    finish
fi
says() { ends_with "$1" "$2" timeout 180 "$PYTHON" sweep/referee/referee.py "${@:3}"; }  # says STATUS PATTERN OPTION...
shows() { grep -qE -e "$1" "$dir/said" || { cat "$dir/said" && return 1; }; }  # of the last one
start() {  # start COMMAND...: a server, whose first line of output has its URL; sets url
    [ -z "$server" ] || { kill "$server"; wait "$server" 2>/dev/null; }
    rm -f "$dir/server"
    "$@" >"$dir/server" 2>"$dir/server.err" &
    server=$!
    url=
    for _ in {1..100}; do
        url=$(grep -soE -m 1 'http://[^ ]*/v1' "$dir/server") && return || sleep 0.1
    done
    cat "$dir/server.err"
}
fake() { start "$PYTHON" tests/referee/fake.py "$@"; }
quick=(--trials 4 --tokens 12 --clients 6)
control=(--field deterministic=true --control deterministic=false)

check "help" says 0 '^Exit status: 0 no answer differed' --help
check "no URL" says 2 'arguments are required: --url$'
check "a wrong URL" says 2 "--url: 'nonsense' is no URL such as http" --url nonsense
check "a wrong field" says 2 "'top_k' is not NAME=JSON" --url http://127.0.0.1:9 --field top_k
check "a field without quotes" says 2 "'a=yes' is not NAME=JSON, .* a text needs quotes, as in user='\"me\"'" \
    --url http://127.0.0.1:9 --field a=yes
check "a wrong suite" says 2 "invalid choice: 'all' \(choose from 'alone'" --url http://127.0.0.1:9 --suite all
check "a wrong number" says 2 "'0' is not a whole number from 1 to 256" --url http://127.0.0.1:9 --trials 0
check "no file of prompts" says 2 'No such file or directory: .*/none' --url http://127.0.0.1:9 --prompts "$dir/none"
check "a server that is away" says 3 'does not answer .*: is the server up' --url http://127.0.0.1:9/v1

fake none
check "no control" says 3 '^NO VERDICT: no difference in [0-9]+ answers, but without a control' \
    --url "$url" "${quick[@]}"
check "a control that never differs" says 3 '^TOO WEAK: no answer of the control differed either' --url "$url" \
    "${quick[@]}" "${control[@]}"
check "a wrong model" says 3 "no model 'other': it lists fake" --url "$url" --model other
fake control
check "a control that differs" says 0 '^DETERMINISTIC: .* in text or tokens or logprobs; of .* of the control, ' \
    --url "$url" "${quick[@]}" "${control[@]}" --temperature 0 0.8
check "its position" shows '^random .* 7$'
fake token 20
check "one other token" says 1 '^DIFFERS: 1 of [0-9]+ answers have other texts' \
    --url "$url" "${quick[@]}" --out "$dir/out"
check "its suite and position" shows '^single +10 +1 +1 +0  5$'
check "no other suite" [ "$(grep -cE '^[a-z]+ +[0-9]+ +0 +0 +0  -$' "$dir/said")" = 7 ]
check "the table" awk -F '\t' '!/^#/ {n++; bad += NF != 16; found += $2 == "single" && $10 == 1 && $14 == 5}
    END {exit !(n > 20 && !bad && found == 1)}' "$dir/out/report.tsv"
check "the page" grep -q '^<p class="verdict s1">DIFFERS: ' "$dir/out/report.html"
check "the page needs nothing else" [ "$(grep -cE '<(script|link|img|iframe)|url\(' "$dir/out/report.html")" = 0 ]
fake logprob 20
check "one other bit" says 1 '^DIFFERS: 1 of [0-9]+ answers have other bits of log-probabilities' \
    --url "$url" "${quick[@]}"
check "its position" shows 'in suite single, from log-probability 3 on'
fake logprob 20
check "a bit that nobody promised" says 3 '^NO VERDICT: no difference' --url "$url" "${quick[@]}" --level tokens
fake constant
check "answers that say nothing" says 3 '^TOO WEAK: all questions have the same answer' --url "$url" "${quick[@]}"
fake plain
check "texts alone" says 3 'offers no log-probabilities' --url "$url" "${quick[@]}"
check "what is left out" shows 'refuses the field return_token_ids, so it was left out'
fake strict
check "a field that is refused" says 3 'refuses deterministic=true of --field or --control: status 400: .*field' \
    --url "$url" "${control[@]}"
fake status 500
check "a server that fails" says 3 'refuses the request: status 500: the fake is ill' --url "$url"
fake later 500
check "a server that fails later" says 3 '^NO VERDICT: 6 requests failed, .*: status 500: the fake is ill' \
    --url "$url" \
    "${quick[@]}"
fake slow
check "the limit" says 3 '^NO VERDICT: the time was up after [0-9]+ answers' --url "$url" --limit 2
fake key
check "no key" says 3 'wants another --api-key: status 401: who are you' --url "$url"
check "a key" says 3 '^NO VERDICT: no difference' --url "$url" --api-key secret --suite alone
fake logprob 20
check "chats" says 1 '^DIFFERS: 1 of [0-9]+ answers have other bits' --url "$url" "${quick[@]}" --api chat
check "tokens that are spelled" shows 'no token ids: tokens are compared by how they are spelled'
fake garbage
check "garbage" says 3 'the answer is no JSON object: garbage' --url "$url"

for fault in deep long list; do
    fake $fault
    check "later answers that cannot be read: $fault" says 3 '^NO VERDICT: [67] requests failed, the first one so: ' \
        --url "$url" "${quick[@]}" "${control[@]}"
    check "no traceback: $fault" bash -c '! grep -q Traceback "$1"' - "$dir/said"
done
fake fewer
check "log-probabilities that are missing later" says 1 '^DIFFERS: .* have other bits of log-probabilities' \
    --url "$url" "${quick[@]}" "${control[@]}"
fake drip
check "a server that drips" says 3 'no answer within 1 s|took more than 1 s|the time was up' --url "$url" "${quick[@]}" --timeout 1 --limit 5
fake seeds
check "seeds of its own" says 0 '^DETERMINISTIC: ' --url "$url" "${quick[@]}" "${control[@]}" --temperature 0.8

# A server that speculates, compared with itself when it does not.
lossless=("${quick[@]}" "${control[@]}" --against drafts=0 --width drafts=2 --width drafts=3)
check "no reference" says 2 '--suite drafts: it needs --against: the URL' --url "$url" --suite lossless
check "a wrong reference" says 2 "'none' is not NAME=JSON" --url "$url" --against none
fake lossless
check "drafts that change nothing" says 0 '^LOSSLESS: .* none differs in text or tokens or logprobs from .*; of ' \
    --url "$url" "${lossless[@]}" --temperature 0 0.8
check "a load that finds nothing" says 3 '^TOO WEAK: no answer of the control' --url "$url" "${lossless[@]}" \
    --control deterministic=true
check "a reference that speculates" says 3 'NO VERDICT: .* without speculation, .* judged [0-9]+ drafts' \
    --url "$url" "${lossless[@]}" --against drafts=1
check "no control of drafts" says 3 '^NO VERDICT: .* without a control' --url "$url" "${quick[@]}" --against drafts=0
finds_in() {  # finds_in FAULT LEVEL SUITES: the fault is found at this level, in these suites alone
    fake "$1"
    check "drafts: $1" says 1 "^DIFFERS: .* have other $2 than without speculation; .* same load changes 0 of" \
        --url "$url" "${lossless[@]}" --out "$dir/out"
    check "where: $1" [ "$(awk -F '\t' '$1 == "main" && $10 + $11 + $12 { print $2 }' "$dir/out/report.tsv" |
        uniq | paste -sd ,)" = "$3" ]
}
finds_in leak texts drafts,ends,behind,crowd
finds_in eos texts drafts,ends,behind,crowd
finds_in stop texts ends,crowd
finds_in width texts drafts,ends,behind,crowd
finds_in probabilities 'bits of log-probabilities' drafts,ends,behind,crowd
finds_in behind texts drafts,ends,behind,crowd
for weak in "idle of 0 drafts 0 were" "right of ([0-9]*) drafts \\2 were" "uncounted the server does not say"; do
    fake "${weak%% *}"
    check "drafts that show nothing: $weak" says 3 "^(TOO WEAK|NO VERDICT): .*${weak#* }" --url "$url" "${lossless[@]}"
done

if [ -x "$B/serve" ]; then
    start "$B/serve" --port 0 --threads 1
    asked=(--url "$url" --temperature 0 0.8 --trials 6 --tokens 60)
    check "build/serve" says 0 '^DETERMINISTIC: ' "${asked[@]}" "${control[@]}"
    check "unmarked requests of build/serve" says 1 '^DIFFERS: ' "${asked[@]}" --field deterministic=false
    other=$server server=
    asked=(--against "$url" --trials 4 --tokens 40 --suite ends crowd)
    start "$B/serve" --port 0 --threads 1 --prefix-cache --draft lookup:1
    check "drafts of build/serve" says 0 '^LOSSLESS: ' --url "$url" "${asked[@]}" "${control[@]}"
else
    skip "build/serve" "libmicrohttpd or jansson was not found (make deps installs them)"
fi
finish
