"""Checks the page that `make web` has built, in a headless Chromium, for tests/test_web.sh.

usage: python3 check_page.py BUILD DIGEST CONTROL COUNTS
BUILD is the folder with the page (web/) and with the native programs. The digest that the page computes must equal
DIGEST and differ from CONTROL. The numbers of passed, failed and skipped checks are written to COUNTS.
"""

import json
import os
import pathlib
import re
import statistics
import struct
import subprocess
import sys
import time
import traceback

from browser import Browser, Server

BUILD, DIGEST, CONTROL, COUNTS = pathlib.Path(sys.argv[1]), *sys.argv[2:]
PROMPT, TOKENS = "The landlord dropped the candle and", 48  # what the view Start begins with
VIEWS = ["start", "serve", "why", "compare", "cost", "audit"]
SIZES = [(1280, 800), (390, 844), (320, 640)]
TINY42 = ["examples/tiny42/" + f for f in ("config.json", "model.safetensors", "tokenizer.json")]
CONTROLS = {"button", "tab", "checkbox", "switch", "slider", "combobox", "listbox", "textbox", "searchbox",
            "spinbutton", "link", "radio", "menuitem", "ComboBoxSelect", "DisclosureTriangle"}
DRAWINGS = {"image", "img", "SvgRoot", "Canvas"}
passed = failed = skipped = 0


def check(name, good, *seen):
    """Counts a check. What was seen is shown if it fails."""
    global passed, failed
    if good:
        passed += 1
    else:
        failed += 1
        print("test_web: FAILED: " + name + "".join("\n    %s" % (s,) for s in seen))


def equal(name, got, want):
    check(name, got == want, "got:      %s" % (got,), "expected: %s" % (want,))


def skip(name, why):
    global skipped
    skipped += 1
    print("  %s: skipped: %s" % (name, why))


def has(b, view):
    return b.js("document.getElementById('%s').children.length > 0" % view)


def bits(x):
    return "%08x" % struct.unpack("<I", struct.pack("<f", x))


def printed(program, *arguments):
    """What a native program prints. (build/diff ends with status 1 if something differs.)"""
    return subprocess.run([BUILD / program, *arguments], capture_output=True, text=True).stdout


def native(tokens, *options, prompt=PROMPT):
    """What build/generate answers to a prompt alone: its text, and the bits of its log-probabilities."""
    answer = json.loads(printed("generate", "-p", prompt, "-n", str(tokens), "--window", "8", "--group", "4", "--json",
                                *options))
    return {"text": answer["text"], "ids": answer["ids"], "bits": [bits(x) for x in answer["logprobs"]]}


# ---- what the page computes ----
def served(b):
    """Waits until the view Start has served, and returns what both of its panes show."""
    check("Start has served", b.wait("!!document.querySelector('#start-verdict .good, #start-verdict .bad')"),
          b.js("document.getElementById('start-verdict').textContent + document.getElementById('state').textContent"))
    return b.js("""['alone', 'among'].map((id) => {
        const text = document.getElementById(`start-${id}`);
        const tokens = [...text.querySelectorAll('span:not(.prompt):not(.struck)')];
        return {
            text: tokens.map((t) => t.textContent).join(''),
            first: tokens.findIndex((t) => t.classList.contains('first')),
            bits: [...text.closest('.pane').querySelectorAll('.bits span')].map((s) => s.textContent.trim()),
            rollbacks: text.querySelectorAll('button.x').length,
        };
    })""")


def start(b):
    if b.wait("!!document.querySelector('#why button')"):  # it leads to where an X is
        b.point("#tab-why")
        b.js("[...document.querySelectorAll('#why button')].find((e) => e.textContent.includes('Start')).click()")
        equal("the button of Why marks the request", b.js("document.getElementById('deterministic').checked"), True)
        b.point("#deterministic")
    ordinary, marked = native(TOKENS), native(TOKENS, "--deterministic")
    alone, among = served(b)
    equal("alone: the text of build/generate", alone["text"], ordinary["text"])
    equal("alone: the bits of build/generate", alone["bits"], ordinary["bits"][:24])
    equal("among 7 others the text differs from token 5 on", among["first"], 4)
    check("and some of its bits differ", among["bits"] != alone["bits"] and len(among["bits"]) == 24, among["bits"])
    check("the verdict says so", "token 5" in b.js("document.getElementById('start-verdict').textContent"),
          b.js("document.getElementById('start-verdict').textContent"))
    b.point("#deterministic")
    equal("what ordinary requests said is not shown as deterministic",
          b.js("document.querySelectorAll('#start-among .differs').length"), 0)
    alone, among = served(b)
    for name, pane in (("alone", alone), ("among 7 others", among)):
        equal("deterministic, %s: the text of build/generate" % name, pane["text"], marked["text"])
        equal("deterministic, %s: the bits of build/generate" % name, pane["bits"], marked["bits"][:24])
    check("deterministic: a rollback is marked by a button X", among["rollbacks"] >= 1)
    check("the verdict says: the same to the bit", b.js("!!document.querySelector('#start-verdict .good')"))
    check("control: deterministic and ordinary bits differ", marked["bits"] != ordinary["bits"])
    if has(b, "why"):
        b.point("#start-among button.x")
        why(b)
    if has(b, "serve"):  # Serve stops what Start has just begun, which begins again when it is looked at
        b.point("#tab-start")
        b.point("#deterministic")
        b.point("#tab-serve")
        b.wait("document.querySelectorAll('#serve .lane').length > 1")
        b.point("#tab-start")
        alone, among = served(b)
        equal("stopped by Serve, Start says in the end: alone", alone["text"], ordinary["text"])
        equal("stopped by Serve, Start says in the end: among others", among["first"], 4)


def why(b):
    """The view Why, opened by a click on a rollback: its sum is that of build/diff."""
    equal("an X opens Why", b.js("[...document.querySelectorAll('main > section:not([hidden])')].map((s) => s.id)"),
          ["why"])
    said = b.wait("document.querySelector('#why pre')?.textContent")
    check("Why says what build/diff says", said, b.js("document.getElementById('why').textContent"))
    if said:
        command, text = said.split("\n", 1)
        command = command.replace("--model tiny42", "--model examples/tiny42").split()
        equal("Why says what build/diff says: " + " ".join(command[1:]), text.strip().splitlines(),
              printed("diff", *command[1:]).replace("examples/tiny42", "tiny42").strip().splitlines())
        equal("Why draws the logits of both passes, both sums and where they lie",
              b.js("document.querySelectorAll('#why svg[role=img]').length"), 5)
    b.js("""document.querySelectorAll('#why input').forEach((input, i) => {
        input.value = ['16777216', '1', '1'][i];
        input.dispatchEvent(new Event('input'));
    })""")
    toy = b.js("document.getElementById('why').textContent")
    check("three numbers: both sums", "+ 1) + 1 = 16777216" in toy and "(1 + 1) = 16777218" in toy, toy)


def serve(b):
    """The view Serve: the passes of a run, its rollbacks, and the first request's answer when it has ended."""
    if not has(b, "serve"):
        return
    b.point("#tab-serve")
    now = "document.getElementById('serve-now').textContent"
    ended = "[...document.querySelectorAll('#serve .lane .who')].every((w) => w.textContent.includes('done'))"
    b.wait("document.querySelectorAll('#serve .lane').length > 1")
    b.click("#serve-first")
    b.click("#serve-next")
    found = b.wait("/Pass \\d+.*rolled back/.test(%s) && %s" % (now, now), 20)
    check("Serve finds a rollback", found, b.js(now))
    names = found.split(" rolled back") if found else []
    check("the first candidate that is dropped is of a fast pass", len(names) == 3 and "exception" not in names[1], found)
    check("the second one is the exception, which is explained", names and "KV that fast passes" in names[-1], found)
    b.js("[...document.querySelectorAll('#serve-now button.x')].at(-1).click()")
    said = b.wait("/The first sum|cannot be run again/.test(document.getElementById('why').textContent) && "
                  "document.getElementById('why').textContent", 20) or ""
    check("Why explains it, too", "is INVARIANT and takes its sums as the replay does" in said, said)
    check("Why says which pass each is", re.search(r"Pass 18 \(INVARIANT, 20 rows\) drew the candidate.*"
          r"Pass 26 \(replay, 32 rows\) put another.*Pass \d+ \(fast, \d+ rows\): in.*Pass 26 \(replay, 32 rows\): in",
          said), said)
    check("three numbers of your own come last", said.find("The first sum") < said.find("Three numbers"), said)
    b.point("#tab-serve")
    equal("the keys are not listed", b.js("document.getElementById('serve-keys').hidden"), True)
    b.js("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '?', bubbles: true}))")
    check("? lists the keys", b.js("!document.getElementById('serve-keys').hidden"))
    words = b.js("document.getElementById('serve-words').textContent")
    for word in ("D1, o2", "W", "G", "INVARIANT pass", "replay pass", "preset dvr", "preset best", "preset invariant",
                 "preset paper"):
        check("Serve explains the word " + word, word in words, words)
    at = int(found.split(":")[0].split()[-1]) if found else 0
    b.click("#serve-back")
    check("one pass back", b.js(now).startswith("Pass %d:" % (at - 1)), b.js(now))
    b.click("#serve-step")
    equal("one pass on", b.js(now), found)
    b.click("#serve-play")
    live = "document.getElementById('serve-now').getAttribute('aria-live')"
    equal("a screen reader is not told of each pass while the run plays", b.js(live), "off")
    b.js("document.querySelector('#serve .words button.x').focus()")
    b.wait("%s !== %s" % (now, json.dumps(found)), 5)
    check("while it plays, a button keeps the focus", b.js("document.activeElement.matches('button.x')"),
          b.js("document.activeElement.outerHTML.slice(0, 100)"))
    b.click("#serve-play")
    equal("and of each when it does not", b.js(live), "polite")
    taken = """(e => document.body.dispatchEvent(e))(
        new KeyboardEvent('keydown', {key: 'ArrowLeft', altKey: %s, bubbles: true, cancelable: true}))"""
    check("Alt and Left stay the browser's", b.js(taken % "true"))
    check("control: Left is the page's", not b.js(taken % "false"))
    for _ in range(100):
        b.click("#serve-next")
        if b.wait(ended, 0.2):
            break
    text = b.js("[...document.querySelectorAll('#serve .lane:first-child .words span:not(.prompt):not(.struck)')]"
                ".map((s) => s.textContent).join('')")
    equal("Serve's first answer is that of build/generate", text,
          native(64, "--deterministic", prompt="The sailor was dead, and")["text"])
    counts = b.js("document.querySelector('#serve .timeline + p').textContent")
    check("the run has more than one rollback", "3 rollbacks" in counts, counts)


def disturbed(b):
    """The view Serve, where there is no rollback, and where another view has stopped its run."""
    if not (has(b, "serve") and has(b, "compare")):
        return
    now = "document.getElementById('serve-now').textContent"
    none = "/no further rollback/.test(%s)" % now
    select = """{
        const select = document.querySelector('#serve select');
        select.value = '%s';
        select.dispatchEvent(new Event('change'));
    }"""
    b.js(select % "invariant")
    b.click("#serve-next")
    check("Serve says that there is no rollback", b.wait(none, 20), b.js(now))
    b.js(select % "dvr" + """
        document.getElementById('tab-compare').click();
        document.getElementById('tab-serve').click();""")
    letters = "[...document.querySelectorAll('#serve .timeline g text')].map((t) => t.textContent).join('')"
    whole = "%s.includes('.......R') && %s.length > 60" % (letters, letters)
    check("Serve begins again if it was stopped", b.wait(whole, 20), b.js(letters))
    took = b.js("""(async () => {
        const {Engine} = await import('/engine.js'), engine = new Engine(), calls = [];
        await engine.call('model');
        const requests = [{text: 'The', tokens: 8, deterministic: true}];
        for (let i = 0; i < 30; i++) calls.push(engine.call('serve', {preset: 'best', window: 8, group: 4, requests}));
        engine.stop();
        const begin = performance.now();
        await Promise.all(calls);
        engine.worker.terminate();
        return performance.now() - begin;
    })()""")
    check("runs that are stopped while they wait take no time", took < 1500, took)
    b.js("location.hash = '#audit'")
    check("another # in the address shows another view", b.wait("!document.getElementById('audit').hidden", 2))
    b.js("document.getElementById('compare-run').click()")


def compare(b):
    """The view Compare: each of its four answers is that of the engine, whatever the prompt and the draws are."""
    if not has(b, "compare"):
        return
    shown = """[...document.querySelectorAll('#compare .text')].map((text) =>
        [...text.querySelectorAll('span:not(.prompt)')].map((s) => s.textContent).join(''))"""
    done = "%s.every((id) => document.querySelector(`#compare-${id} .good, #compare-${id} .bad`))" % (
        "['ordinary', 'deterministic']")
    b.point("#tab-compare")
    check("Compare has an answer", b.wait(done), b.js("document.getElementById('compare').textContent"))
    ordinary, marked = native(TOKENS)["text"], native(TOKENS, "--deterministic")["text"]
    texts = b.js(shown)
    equal("Compare: ordinary, alone", texts[0], ordinary)
    check("Compare: ordinary, among others: another text", texts[1] != ordinary and texts[1], texts)
    equal("Compare: deterministic, alone and among others", texts[2:], [marked, marked])
    b.js("""{
        const form = document.querySelector('#compare form');
        form.querySelector('input[type=text]').value = 'Two “strange” men — and a';
        form.querySelector('select').value = '0.8';
        form.querySelector('select').dispatchEvent(new Event('change'));
        form.querySelector('input[type=number]').value = 7;
    }""")
    b.click("#compare-run")
    check("Compare has an answer to another prompt", b.wait(done))
    drawn = native(TOKENS, "--deterministic", "--temperature", "0.8", "--seed", "7", prompt="Two “strange” men — and a")
    equal("Compare: another prompt, drawn tokens", b.js(shown)[2:], [drawn["text"]] * 2)


def cost(b):
    """The view What it costs, and what its simulator says: the same as build/sweep."""
    if not has(b, "cost"):
        return
    keys = {"tokens_per_s": "output_tok_per_s", "p50": "e2e_p50_s", "p99": "e2e_p99_s", "rollbacks": "rollbacks"}
    table = printed("sweep", "--calibration", "sweep/calibration/h100-pcie-paper.tsv", "--workload", "fixed:512x128",
                    "--requests", "128", "--ratio", "0.3", "--qps", "10", "--max-running", "64", "--max-context", "640",
                    "--preset", "dvr", "--window", "16", "--group", "8", "--quiet")
    head, row = [line.split("\t") for line in table.splitlines() if not line.startswith("#")]
    want = [dict(zip(head, row))[name] for name in keys.values()]

    def figures(seed):
        got = b.js("""test_engine.call('simulate', {preset: 'dvr', calibration: 'h100-pcie-paper', share: 0.3, qps: 10,
            requests: 128, running: 64, window: 16, group: 8, seed: %d})""" % seed)
        return ["%.6g" % got[key] for key in keys]

    equal("the simulator's figures are those of build/sweep", figures(42), want)
    check("control: of other arrivals they differ", figures(43) != want)
    b.point("#tab-cost")
    says = "document.getElementById('cost-verdict').textContent"
    check("What it costs has an answer", b.wait(says), b.js("document.getElementById('cost').textContent"))
    wide = "document.querySelector('#cost-map svg').viewBox.baseVal.width"
    width = b.wait("document.querySelector('#cost-map svg') && %s" % wide)
    b.point("#tab-start")
    b.wait("false", 1)  # cells are added to the map
    b.point("#tab-cost")
    equal("a map that was drawn in the background is as wide as its place", b.js(wide), width)


def audit(b):
    """The view Audit."""
    if not has(b, "audit"):
        return
    verdict = "document.getElementById('audit-verdict').textContent"
    b.point("#tab-audit")
    b.point("#audit-h200")
    check("Audit verifies an H200's answers", b.wait("%s.includes('Verified to the bit')" % verdict), b.js(verdict))
    b.wait("!document.getElementById('audit-change').disabled", 5)
    b.click("#audit-change")
    check("Audit finds a token that was changed", b.wait("%s.includes('Not verified')" % verdict), b.js(verdict))
    b.click("#audit-compute")
    digest = "document.getElementById('audit-digest').textContent"
    b.wait("/^[0-9a-f]{16}$/.test(%s)" % digest)
    equal("Audit shows the digest of the native build", b.js(digest), DIGEST.split(",")[0])


def programs(b):
    b.js("import('/engine.js').then(({Engine}) => { window.test_engine = new Engine(); })")

    def run(name, *arguments, files=(), texts={}):
        return b.js("""(async () => {
            let text = '';
            const how = {name: %s, args: %s, files: %s, texts: %s};
            const status = await test_engine.call('program', how, (part) => text += part.text);
            return [status, text];
        })()""" % tuple(map(json.dumps, (name, arguments, files, texts))))

    status, text = run("digest", files=TINY42)
    digest = next((line.split(" digest ")[1] for line in text.splitlines() if " digest " in line), text)
    equal("digest.wasm ends with status 0", status, 0)
    equal("digest.wasm prints the digest of the native build", digest, DIGEST)
    check("control: that of other sums differs", CONTROL and digest != CONTROL, CONTROL)
    print("  digest: %s in the browser, %s native, %s control" % (digest, DIGEST, CONTROL))

    model = b.js("test_engine.call('model').then(({bos}) => ({bos}))")
    for case in json.loads(pathlib.Path("examples/tiny42/tokenizer_golden.json").read_text()):
        ids = b.js("test_engine.call('encode', {text: %s})" % json.dumps(case["text"]))
        equal("ids of %r" % case["text"], ids, [model["bos"]] + case["ids"])
    for text in ("\ufeffHello", "Hello \ufeff\ufeffyou", "<|begin_of_text|>Hello", "e\u0301 \U0001f600 <b>", " \n "):
        ids = b.js("test_engine.call('encode', {text: %s})" % json.dumps(text))
        lines = [line.split() for line in printed("score", "--text", text).splitlines()]
        equal("ids of %r" % text, ids, [model["bos"]] + [int(words[1]) for words in lines if words[0].isdigit()])

    status, text = run("audit", "h200.txt", "--model", "tiny42", files=["h200.txt"])
    equal("the audit of an H200's transcript: status", status, 0)
    check("the audit says: verified to the bit", "verified to the bit: 3 of 3 requests" in text, text)
    lines = (BUILD / "web/h200.txt").read_text().split("\n")
    at = max(i for i, line in enumerate(lines) if line.startswith("tokens: "))
    ids = lines[at].split(",")
    ids[20] = str(int(ids[20]) + 1)
    lines[at] = ",".join(ids)
    changed = BUILD / "web/changed.txt"
    changed.write_text("\n".join(lines))
    subprocess.run(["bash", "examples/lesson/seal.sh", str(changed)], check=True)
    status, text = run("audit", "changed.txt", "--model", "tiny42", texts={"changed.txt": changed.read_text()})
    changed.unlink()
    equal("control: the audit of one with another token: status", status, 1)
    check("and one request of three fails", "verified to the bit: 3 of 3" not in text and "request 3" in text, text)


def speed(b):
    tokens, rates = 128, []
    want = native(tokens, "--deterministic")
    for _ in range(3):
        took, got = b.js("""(async () => {
            const tokens = {ids: [], bits: []}, begin = performance.now();
            const requests = [{text: %s, tokens: %d, deterministic: true}];
            await test_engine.call('serve', {preset: 'dvr', window: 8, group: 4, requests}, ({events = []}) => {
                for (const e of events.filter((e) => e.type === 'committed'))
                    tokens.ids.push(...e.tokens), tokens.bits.push(...e.bits);
            });
            return [performance.now() - begin, tokens];
        })()""" % (json.dumps(PROMPT), tokens))
        equal("a longer answer: ids", got["ids"], want["ids"])
        equal("a longer answer: bits", got["bits"], want["bits"])
        rates.append(1000 * len(got["ids"]) / took)
    print("  speed: %.0f tokens/s of one deterministic request (median of 3; from %.0f to %.0f), the aim is 60"
          % (statistics.median(rates), min(rates), max(rates)))
    check("at least 20 tokens/s", max(rates) >= 20, rates)


# Counts what workers say to the page.
COUNT = """{
    window.test_parts = 0;
    window.Worker = class extends Worker {
        constructor(...how) {
            super(...how);
            this.addEventListener('message', () => test_parts++);
        }
    };
}"""


def clicks(b):
    """How long a click on a tab takes until the view is painted, while the page generates."""
    b.js("""{
        window.test_clicks = [];
        document.addEventListener('click', ({timeStamp, isTrusted}) => isTrusted && requestAnimationFrame(() => {
            const {port1, port2} = new MessageChannel();
            port1.onmessage = () => test_clicks.push(performance.now() - timeStamp);
            port2.postMessage(0);
        }), true);
    }""")
    times, end, generates = [], time.monotonic() + 20, False
    for k in range(40):
        if len(times) == 12 or time.monotonic() > end:
            break
        if not generates:  # 15 others, so that it takes a while
            b.js("""{
                const slider = document.querySelector('#start input[type=range]');
                slider.value = slider.value === '15' ? '14' : '15';
                for (const type of ['input', 'change']) slider.dispatchEvent(new Event(type));
            }""")
            time.sleep(0.2)
        before, parts = b.js("[test_clicks.length, test_parts]")
        b.point("#tab-" + VIEWS[k % len(VIEWS)])
        done = b.wait("test_clicks.length > %d && test_clicks" % before, 5)
        selected = b.js("document.getElementById('tab-%s').ariaSelected" % VIEWS[k % len(VIEWS)])
        check("a click selects a view", done and selected == "true", VIEWS[k % len(VIEWS)], done)
        generates = b.wait("test_parts > %d" % parts, 0.2)
        if done and generates:
            times.append(done[-1])
    check("clicks while the page generates", len(times) >= 6, times)
    if times:
        print("  clicks while it generates: %d, answered in %.0f ms (median; worst %.0f), the aim is 100"
              % (len(times), statistics.median(times), max(times)))
        check("a click is answered within 500 ms", max(times) <= 500, times)
    before = b.js("""document.addEventListener('mouseup', () => {
        for (const end = performance.now() + 700; performance.now() < end;);
    }, {once: true}), test_clicks.length""")
    b.point("#tab-start")
    done = b.wait("test_clicks.length > %d && test_clicks" % before, 5)
    check("control: a page that is busy for 700 ms is seen", done and done[-1] > 500, done)


# ---- how the page looks ----
def nameless(b):
    """Controls and drawings that a screen reader has no name for."""
    found = []
    for node in b.send("Accessibility.getFullAXTree")["nodes"]:
        role = node.get("role", {}).get("value")
        focusable = any(p["name"] == "focusable" and p["value"].get("value") for p in node.get("properties", []))
        if node.get("ignored") or role == "RootWebArea" or not (focusable or role in CONTROLS | DRAWINGS):
            continue
        if not node.get("name", {}).get("value", "").strip():
            html = ""
            if "backendDOMNodeId" in node:
                html = b.send("DOM.resolveNode", backendNodeId=node["backendDOMNodeId"])["object"]["objectId"]
                html = b.send("Runtime.callFunctionOn", objectId=html, returnByValue=True,
                              functionDeclaration="function() { return (this.outerHTML || '').slice(0, 160) }")
                html = html["result"].get("value")
            found.append("%s: %s" % (role, html))
    return found


def wider(b, width):
    """What is wider than a page of this width, or None. A page on a telephone zooms out, so innerWidth says nothing."""
    return b.js("""(() => {
        if (document.documentElement.scrollWidth <= %d) return null;
        const wide = [...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > %d + 1);
        return `${document.documentElement.scrollWidth}: ` + wide.slice(0, 3).map((e) => e.outerHTML.slice(0, 120));
    })()""" % (width, width))


def keyboard(b):
    selected = "[...document.querySelectorAll('[role=tab]')].filter((t) => t.ariaSelected === 'true').map((t) => t.id)"
    shown = "[...document.querySelectorAll('main > section')].filter((s) => !s.hidden).map((s) => s.id)"
    b.js("document.getElementById('tab-start').focus()")
    steps = [("ArrowRight", view) for view in VIEWS[1:] + ["start"]] + [
        ("ArrowLeft", "audit"), ("ArrowLeft", "cost"), ("Home", "start"), ("End", "audit"), ("Home", "start")]
    for key, view in steps:
        b.key(key)
        equal("%s selects %s" % (key, view), b.js("[document.activeElement.id, %s, %s]" % (selected, shown)),
              ["tab-" + view, ["tab-" + view], [view]])
    b.key("Tab")
    check("Tab leads from the tabs into the view", b.js("!!document.activeElement.closest('#start')"),
          b.js("document.activeElement.outerHTML.slice(0, 100)"))


def looks(b, there):
    shots = BUILD / "web_shots"
    shots.mkdir(exist_ok=True)
    for width, height in SIZES:
        for dark in (False, True):
            b.size(width, height, dark)
            ground = b.js("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
            equal("%d: dark" % width, sum(ground) < 384, dark)
            for view in there:
                name = "%s-%d-%s" % (view, width, "dark" if dark else "light")
                b.click("#tab-" + view)
                b.js("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
                wide = wider(b, width)
                check(name + ": no scrolling sideways", wide is None, wide)
                b.screenshot(shots / (name + ".png"))
                if not dark:
                    check(name + ": every control and drawing has a name", not (found := nameless(b)), *found)
        b.js("document.body.insertAdjacentHTML('beforeend', "
             "'<p id=wide style=\"width: 2000px\">.</p><button id=bare></button><svg id=drawn role=img></svg>')")
        check("control: a page that is too wide is seen", wider(b, width))
        found = nameless(b)
        for what in ("bare", "drawn"):
            check("control: what has no name is seen", any(what in f for f in found), *found)
        b.js("for (const id of ['wide', 'bare', 'drawn']) document.getElementById(id).remove()")
    b.size(*SIZES[0])


def views(b):
    there = [v for v in VIEWS if has(b, v)]
    for view in VIEWS:
        if view in there:
            check(view + ": has a heading", b.js("!!document.querySelector('#%s h2')" % view))
        else:
            skip("view " + view, "it is empty")
    keyboard(b)
    looks(b, there)


# ---- what the page asks for ----
def network(b):
    def outside():
        return [a for a in b.addresses if not a.startswith((b.server.url, "data:", "blob:" + b.server.url))]

    equal("the page asks no other server", outside(), [])
    equal("no errors in the console", b.errors, [])
    # All that reached the server was seen, what workers fetch too.
    unseen = set(b.server.asked) - {"/" + a[len(b.server.url):] for a in b.addresses}
    equal("requests that were not seen", sorted(unseen), [])
    check("a request of a worker is among them", any(a.endswith("web.wasm") for a in b.addresses), b.addresses)
    check("the page has workers", len(b.workers) >= 3, b.workers)
    # Controls: the page and a worker ask elsewhere, which the page's policy refuses. Errors of both are seen.
    ask = "fetch('http://%s.example.invalid/').then(() => 'answered', (e) => String(e))"
    for who, session in (("page", None), ("worker", b.workers[-1])):
        b.js(ask % who, session)
        b.js("setTimeout(() => { throw new Error('thrown by the %s') }); console.error('said by the %s')" % (who, who),
             session)
        b.wait("false", 0.3)  # its events come
        refused = any("violates" in e and who in e for e in b.errors)
        check("control: a %s that asks elsewhere is refused" % who, refused, b.errors)
        for what in ("thrown", "said"):
            check("control: an error of a %s is seen" % who, any("%s by the %s" % (what, who) in e for e in b.errors),
                  b.errors)


def broken(b):
    """Each part of the page that does not arrive gives one clear error, whatever is pressed then."""
    state = "document.querySelector('#state.error')?.textContent"
    for kind, path, want in (("missing", "/tiny42/config.json", "tiny42/config.json: the server answered 404"),
                             ("cut", "/web.wasm", "web.wasm: the server did not answer"),
                             ("missing", "/wasi.js", "worker.js or wasi.js did not load"),
                             ("missing", "/audit.js", "A part of the page did not load")):
        server = Server(str(BUILD / "web"), **{kind: path})
        b.errors.clear()
        b.open(server.url + "#serve")
        check("%s %s: %s" % (path, kind, want), want in (b.wait(state, 20) or ""), b.js(state))
        for button in ("#serve-play", "#serve-next", "#serve-back", "#tab-compare", "#tab-start"):
            b.js("document.querySelector('%s')?.click()" % button)
        b.js("document.querySelector('#serve select')?.dispatchEvent(new Event('change'))")
        b.wait("false", 0.3)
        check("%s %s: still the same error" % (path, kind), want in (b.js(state) or ""), b.js(state))
        equal("%s %s: no exception" % (path, kind), [e for e in b.errors if "TypeError" in e], [])
    b.open((BUILD / "web/index.html").resolve().as_uri())
    b.wait("false", 0.5)
    check("opened as a file, the page says how to open it", b.wait("%s.includes('http.server')" % state, 5), b.js(state))


def main():
    global failed
    b = Browser(*SIZES[0])
    b.server = Server(str(BUILD / "web"), {"/examples/": os.getcwd() + "/examples"})
    try:
        b.send("Page.addScriptToEvaluateOnNewDocument", source=COUNT)
        b.open(b.server.url)
        for part in (start, serve, disturbed, compare, programs, speed, cost, audit, clicks, views, network, broken):
            begin = time.monotonic()
            try:
                part(b)
            except (RuntimeError, KeyError, TypeError, ValueError, OSError):
                failed += 1
                print("test_web: FAILED: %s:\n%s" % (part.__name__, traceback.format_exc()))
            if os.environ.get("V"):
                print("  %s took %.1f s" % (part.__name__, time.monotonic() - begin))
    except (TimeoutError, EOFError) as error:  # without a browser the rest makes no sense
        failed += 1
        print("test_web: FAILED: %s" % error)
    finally:
        b.close()
    pathlib.Path(COUNTS).write_text("%d %d %d\n" % (passed, failed, skipped))


main()
