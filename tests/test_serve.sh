#!/bin/bash
# build/serve over HTTP: every endpoint and field, errors, limits, clients that go away, are slow or hostile, the end by
# SIGTERM, and deterministic answers under load beside build/generate's. The parts are in serve/parts.py. Clients that
# others wrote (the package openai, lm-evaluation-harness) are tried where PYTHON has them.
# From the environment: PYTHON (default: python3).
export LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
PYTHON=${PYTHON:-python3}
source tests/check.sh
export B TEST_SLOW=$slow
scratch
if [ ! -x "$B/serve" ]; then
    skip "build/serve" "libmicrohttpd or jansson was not found (make deps installs them)"
    finish
fi
says() { ends_with "$1" "$2" timeout 20 "$B/serve" "${@:3}"; }  # says STATUS PATTERN OPTION...
check "help" says 0 '^usage: serve' --help
check "a wrong option" says 2 "unknown option '--nonsense'" --nonsense
check "a wrong port" says 2 '^serve: --port: 70000 is outside 0 to 65535$' --port 70000
check "a wrong host" says 2 '^serve: --host: no.such.host.invalid: ' --host no.such.host.invalid --port 0
check "an empty key" says 2 '^serve: --api-key: the key is empty$' --api-key ''
check "a wrong preset" says 2 "^serve: --preset: 'fast' is not one of: dvr" --preset fast
check "no model" says 1 '^serve: no/model' --model no/model
check "a name" says 2 '^serve: --name: ' --name ''
check "a format and a command" says 2 "^serve: --chat-command: spells all of a chat: leave out --chat-format$" --chat-format llama3 --chat-command x
check "no such format" says 2 "^serve: --chat-format: .x.: there are llama3, " --chat-format x
check "products of cuBLASLt without it" says 2 '^serve: --offered: only with --backend cuda$' --offered
if ! command -v "$PYTHON" >/dev/null; then
    skip "the endpoints" "python3 is not here"
    finish
fi
for part in $("$PYTHON" tests/serve/parts.py --list); do
    check "$part" timeout 600 "$PYTHON" tests/serve/parts.py "$part"
done
if command -v curl >/dev/null; then
    "$B/serve" --port 0 --threads 1 >"$dir/said" 2>&1 &
    for _ in {1..100}; do grep -q ' serves ' "$dir/said" && break || sleep 0.1; done
    url=$(sed -n 's|^serve: \(.*\)/v1 serves .*|\1|p' "$dir/said")
    ask() { curl -sS -H 'Content-Type: application/json' "$url/v1/completions" -d "$1"; }
    check "curl" grep -q '"text":" a very fine day' <(ask '{"prompt": "It was", "temperature": 0, "deterministic": true}')
    check "a second server on its port" says 1 "^serve: cannot listen on 127.0.0.1, port ${url##*:}: " --port "${url##*:}"
    kill %1
    check "it ends" wait %1
else
    skip "curl" "it is not here"
fi
for package in openai lm_eval; do
    if "$PYTHON" -c "import $package" 2>/dev/null; then
        check "$package" timeout 500 "$PYTHON" tests/serve/with_$package.py
    else
        skip "$package" "the Python package is not here"
    fi
done
finish
