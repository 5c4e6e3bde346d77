"""The tests of examples/python/llm42.py that test_python.sh runs one by one: tests.py NAME, or --list for the names.

From the environment: B (the folder of the build), CC, STB, and a scratch folder OUT.
"""
import copy
import ctypes
import gc
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unicodedata

import numpy as np

sys.path.insert(0, "examples/python")
import llm42  # noqa: E402

B, OUT = os.environ.get("B", "build"), os.environ.get("OUT", "/tmp")
TEXTS = ["It was a dark night", "Once upon a time", "The Count", "She said that the", "I do not know", "In the morning",
         "He looked at her and", "There was nothing"]


def run(*words, status=0):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == status, f"{words}: status {done.returncode}: {done.stderr}"
    return done.stdout


def raises(kind, text, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except kind as error:
        assert text in str(error), f"'{text}' is not in '{error}'"
        return error
    raise AssertionError(f"no {kind.__name__}: {text}")


def model():
    return llm42.Model("examples/tiny42")


def bits(answers):
    return [(a.tokens.tobytes(), a.logprobs.tobytes()) for a in answers]


# Declarations

def compile_c(*words):
    stb = os.environ.get("STB", "/usr/include/stb")
    return run(os.environ.get("CC", "gcc"), "-std=c11", "-I.", "-isystem", stb, *words)


def header_text():
    """The declarations as the compiler sees them, line by line, without those of the system."""
    ours, lines = False, []
    for line in compile_c("-E", "examples/python/binding.h").splitlines():
        if re.match(r"# \d", line):
            ours = re.search(r'(llm42\w*|binding)\.h"', line) is not None
        elif ours:
            lines.append(line)
    return "\n".join(lines)


def layout_of_c(found):
    """What the compiler says about the structs and enumerators, as lines `name size` and `name.field offset size`."""
    complete = {name: s._fields_ for name, s in found.structs.items() if hasattr(s, "_fields_")}
    lines = [f'printf("{s} %zu\\n", sizeof({s}));' for s in complete]
    lines += [f'printf("{s}.{f} %zu %zu\\n", offsetof({s}, {f}), sizeof((({s} *)0)->{f}));'
              for s, fields in complete.items() for f, _ in fields]
    lines += [f'printf("{name} %lld\\n", (long long){name});' for name in found.constants]
    source, program = os.path.join(OUT, "layout.c"), os.path.join(OUT, "layout")
    with open(source, "w", encoding="utf-8") as file:
        file.write('#include "examples/python/binding.h"\nint main(void) {\n' + "\n".join(lines) + "\n}\n")
    compile_c(source, "-o", program)
    return run(program).splitlines()


def layout_of_python(found):
    complete = {name: s for name, s in found.structs.items() if hasattr(s, "_fields_")}
    lines = [f"{name} {ctypes.sizeof(s)}" for name, s in complete.items()]
    for name, s in complete.items():
        lines += [f"{name}.{f} {getattr(s, f).offset} {getattr(s, f).size}" for f, _ in s._fields_]
    return lines + [f"{name} {value}" for name, value in found.constants.items()]


def test_layouts():
    c, python = layout_of_c(llm42.C), layout_of_python(llm42.C)
    assert c == python, [pair for pair in zip(c, python) if pair[0] != pair[1]][:5]
    assert len(c) > 500, len(c)


def test_layouts_control():
    """Declarations in another order give other layouts, and an enumerator more gives other values."""
    text = header_text()
    for old, new in (("int running, waiting, pages_free;", "bool running; int waiting, pages_free;"),
                     ("LLM42_STATE_WAITING = 1,", "LLM42_STATE_WAITING = 1, LLM42_STATE_OTHER,")):
        assert old in text
        other = llm42.Declarations(text.replace(old, new))
        other.constants.pop("LLM42_STATE_OTHER", None)
        assert layout_of_c(llm42.C) != layout_of_python(other)


def test_nothing_is_missing():
    """Each struct, enumerator and function of the headers is known, by a look that is simpler than the reader's."""
    text = header_text()
    structs = set(re.findall(r"\} (llm42_\w+);", text)) | set(re.findall(r"^struct (llm42_\w+) \{", text, re.M))
    complete = {n for n, s in llm42.S.items() if hasattr(s, "_fields_")} | set(llm42.C.enums)
    assert structs == complete and len(structs) > 50, structs ^ complete
    assert set(re.findall(r"\bLLM42_+[A-Z0-9_]+\b", text)) == set(llm42.C.constants)
    for file in ("llm42.h", "examples/python/binding.h", "examples/util/llm42_transcript.h"):
        with open(file, encoding="utf-8") as opened:
            names = re.findall(r"^LLM42_API .*?[ *](llm42_\w+)\(", opened.read(), re.M)
        for name in names:
            assert name in llm42.C.functions, name
            assert hasattr(llm42.lib, name) or "cuda" in name, name


def test_version():
    with open("llm42.h", encoding="utf-8") as file:
        assert re.search(r'^#define LLM42_VERSION "(.*)"$', file.read(), re.M)[1] == llm42.__version__


# Chats

def test_chat():
    """jinja2 renders any template; where it is not installed, the error says what to install."""
    turns = [{"role": "system", "content": "It was"}, {"role": "user", "content": "late,"},
             {"role": "assistant", "content": " and", "tool_calls": None}, {"role": "user", "content": "he"}]
    try:
        import jinja2
    except ImportError:
        raises(llm42.Error, "-m pip install jinja2", model().chat, turns)
        return
    assert jinja2
    assert model().chat(turns).tolist() == model().encode("It was late, and he").tolist()
    engine = llm42.Engine(model())
    answer = engine.generate(model().chat(turns[:1]), max_new_tokens=5).text
    assert answer == engine.generate("It was", max_new_tokens=5).text
    raises(llm42.Error, "no chat_template", llm42.Model("synthetic:tiny").chat, turns)
    import llm42_chat
    raises(ValueError, "refuses these messages: no", llm42_chat.render, "{{ raise_exception('no') }}", turns)
    text = "{% generation %}{{ messages[0].content | trim }}{% endgeneration %}{{ tools | tojson }}{% break %}"
    said = llm42_chat.render("{% for m in messages %}" + text + "{% endfor %}", turns, [{"a": "é<"}])
    assert said == 'It was[{"a": "é<"}]'
    for name in ("template_guard_like", "template_always_system", "template_ends_in_a_mark"):
        folder = "../shared/cases/" + name
        if os.path.exists(folder):
            with open(folder + "/expected.json", encoding="utf-8") as file:
                want = json.load(file)
            assert llm42.Model(folder).chat([{"role": "user", "content": want["user"]}]).tolist() == want["ids"], name


# Bits

def generate(text, *options):
    return [json.loads(line) for line in run(f"{B}/generate", "--prompt", text, "--json", *options).splitlines()]


def test_bits_of_generate():
    engine = llm42.Engine(model(), preset="best")
    for text, temperature, seed in (("It was", 0, 0), (TEXTS[0], 0, 0), (TEXTS[3], 0.8, 7)):
        theirs = generate(text, "--deterministic", "-n", "60", "--preset", "best", "--temperature", str(temperature),
                          "--seed", str(seed))[0]
        ours = engine.generate(text, deterministic=True, max_new_tokens=60, temperature=temperature, seed=seed)
        assert ours.tokens.tolist() == theirs["ids"] and ours.text == theirs["text"], (ours.text, theirs["text"])
        said = ours.text if len(ours.text) <= 80 else ours.text[:79] + "…"
        assert repr(ours).startswith(f"<llm42.Request {ours.id}: ") and repr(ours).endswith(f": {said!r}>"), ours
        assert ours.logprobs.tolist() == [float(np.float32(x)) for x in theirs["logprobs"]]
        assert ours.finish == theirs["finish"]


def under_load(deterministic, **options):
    """Bits of every request of a load, and of the same requests alone."""
    asked = {"deterministic": deterministic, "max_new_tokens": 100, "ignore_stop": True}
    texts = TEXTS + [a + " and " + b for a in TEXTS for b in TEXTS[:2]]
    with llm42.Engine(model(), max_running=24, **options) as engine:
        together = bits(engine.generate(texts, **asked))
        alone = bits([engine.generate(text, **asked) for text in texts])
    return together, alone


def test_deterministic_under_load():
    for preset in ("dvr", "best", "invariant"):
        together, alone = under_load(True, preset=preset, compute="fp32")
        assert together == alone, preset


def test_deterministic_under_load_control():
    together, alone = under_load(False, preset="dvr", compute="fp32")
    assert together != alone


def test_events_are_the_answer():
    """What the events bring is what the requests hold, and a rollback names another token."""
    engine = llm42.Engine(model(), inject_rate=0.1, max_running=8)
    requests = [engine.submit(text, deterministic=True, max_new_tokens=40) for text in TEXTS]
    seen = {r.id: [] for r in requests}
    rollbacks = 0
    for event in engine:
        if event.type == "committed":
            assert event.position == len(seen[event.request.id])
            seen[event.request.id] += zip(event.tokens.tolist(), event.logprobs.tolist())
        elif event.type == "rolled_back":
            rollbacks += 1
            assert event.replayed[0] != event.tokens[0]
        else:
            assert event.type == "finished" and event.finish == event.request.finish
    assert rollbacks and rollbacks == engine.stats["rollbacks"]
    for r in requests:
        assert seen[r.id] == list(zip(r.tokens.tolist(), r.logprobs.tolist())) and r.finished
    assert [e.type for e in engine.events("all")] == []


def test_events_of_every_type():
    engine = llm42.Engine(model(), max_running=4)
    first = engine.submit("It was", deterministic=True, max_new_tokens=6)
    types = []
    for event in engine.events("all"):
        types.append(event.type)
        assert (event.request is None) == (event.type == "pass")
        if event.type == "finished" and event.request is first:  # more may be asked meanwhile
            engine.submit("Once", max_new_tokens=3)
    assert types.count("finished") == 2 and types.count("pass") == sum(engine.stats["passes"].values())
    assert {"admitted", "prefilled", "candidate", "committed", "verified"} <= set(types), set(types)


def test_cancel():
    engine = llm42.Engine(model())
    a, b = (engine.submit(text, max_new_tokens=50) for text in TEXTS[:2])
    for event in engine:
        if event.type == "committed" and event.request is a and a.committed == 5:
            engine.cancel(a)
    assert (a.finish, len(a.tokens), b.finish, len(b.tokens)) == ("cancelled", 5, "length", 50)


# Errors

def test_errors():
    m = model()
    error = raises(llm42.Error, "nowhere", llm42.Model, "nowhere")
    assert error.result == "LLM42_IO"
    for call in (lambda: llm42.audit("nowhere", m), lambda: llm42.audit("examples/h200.txt", "nowhere"),
                 lambda: llm42.sweep(calibration="nowhere")):
        assert raises(llm42.Error, "nowhere: ", call).result == "LLM42_IO"
    assert raises(llm42.Error, "mode", llm42.sweep, mode="x").result == "LLM42_INVALID"
    assert raises(llm42.Error, "path: required", llm42.Model, "").result == "LLM42_INVALID"
    raises(llm42.Error, "leaves", llm42.Engine, m, leaves=3)
    raises(ValueError, "must be one of default, dvr, best", llm42.Engine, m, preset="fast")
    raises(ValueError, "must be one of cpu, cuda, sim", llm42.Engine, m, backend="tpu")
    raises(TypeError, "no option 'windows'", llm42.Engine, m, windows=3)
    raises(TypeError, "the engine's own", llm42.Engine, m, on_event=print)
    raises(ValueError, "does not fit", llm42.Engine, m, max_running=1 << 40)
    raises(ValueError, "does not fit", llm42.Engine, m, max_running=np.int64(1 << 40))
    raises(ValueError, "does not fit", llm42.Engine, m, preset=(1 << 32) + 1)
    raises(TypeError, "float", llm42.Engine, m, preset=2.9)
    raises(TypeError, "cannot be copied", copy.copy, m)
    raises(llm42.Error, "calibration", llm42.Engine, m, backend="sim")
    if not hasattr(llm42.lib, "llm42_backend_cuda"):
        raises(llm42.Error, "make shared CUDA=1", llm42.Engine, m, backend="cuda")
    engine = llm42.Engine(m)
    raises(llm42.Error, "temperature", engine.submit, "It was", temperature=-1)
    raises(ValueError, "token ids", engine.submit, [-1])
    raises(TypeError, "token ids", engine.submit, [0.5])
    raises(llm42.Error, "prompt", engine.submit, [])
    raises(llm42.Error, "2048", engine.submit, [5000])
    raises(TypeError, "True or False", engine.submit, "It was", deterministic="no")
    raises(TypeError, "no option 'tokens'", engine.submit, "It was", tokens=3)
    for field, value in (("temperature", 1e-60), ("min_p", 1e-60), ("top_p", 1 - 1e-12)):  # 0 and 1 mean other things
        raises(ValueError, f"{field}: {value}: would be rounded", engine.submit, "It was", **{field: value})
    raises(TypeError, "stop: must be a sequence of token ids", engine.submit, "It was", stop="the")
    raises(ValueError, "token 5000: the model's vocabulary has 2048", m.decode, [0, 5000])
    raises(ValueError, "must be one of fast, fixed, invariant", m.score, "It was", schedule="count")
    other = llm42.Engine(m)
    mine, others = engine.submit("It was"), [other.submit("Once") for _ in range(9)]
    for request in (*others, mine.id, None):  # one of them has the id of `mine`
        raises(llm42.Error, "no request of this engine", engine.cancel, request)
    assert not mine.finished
    raises(llm42.Error, "temperature", engine.generate, ["It was", {"prompt": "Once", "temperature": -1}])
    raises(TypeError, "prompt: the prompts are its first argument", engine.generate, ["It was", "Once"], prompt="Zebra")
    assert len(engine.generate({"It was", "Once"}, max_new_tokens=3)) == 2
    assert engine.generate("It was", max_new_tokens=3).finish == "length"  # it goes on
    raises(ValueError, "context", m.score, [0] * 3000)
    raises(ValueError, "vocabulary", m.score, [0, 3000])
    raises(llm42.Error, "not a transcript", llm42.Transcript, "README.md")
    raises(llm42.Error, "not a transcript", llm42.audit, "README.md", m)
    raises(llm42.Error, "--windows", llm42.sweep, windows=3)
    engine.close()
    raises(llm42.Error, "closed", engine.submit, "It was")


# Ctrl-C

def test_ctrl_c():
    engine = llm42.Engine(model(), max_running=2)
    asked = [{"prompt": t, "max_new_tokens": n, "ignore_stop": True} for t in TEXTS for n in (4, 2000)]
    threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT)).start()
    begin = time.monotonic()
    answers = raises(llm42.Interrupted, "answers were finished", engine.generate, asked, deterministic=True).answers
    assert time.monotonic() - begin < 5
    ends = [a.finish for a in answers]
    assert ends[0] == "length" and len(answers[0].tokens) == 4 and "cancelled" in ends, ends
    assert all(a.finished for a in answers)
    assert not list(engine)  # no event of theirs is left for a later loop
    assert engine.generate("It was", max_new_tokens=3).committed == 3  # it goes on


def test_ctrl_c_of_a_loop():
    engine = llm42.Engine(model(), max_running=1)
    requests = [engine.submit(text, max_new_tokens=2000, ignore_stop=True) for text in TEXTS]
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    raises(KeyboardInterrupt, "", list, engine)
    assert 0 < sum(r.committed for r in requests) < 2000 * len(TEXTS)
    engine.run()
    assert all(r.committed == 2000 for r in requests)


def test_ctrl_c_at_every_line():
    """Wherever Ctrl-C cuts short how events come from C, the loop that is begun again gets each of them once."""
    engine, left, released = llm42.Engine(model(), threads=1), 0, []

    def line(frame, event, argument):
        nonlocal left
        left -= event == "line"
        if event == "line" and left == 0:
            raise KeyboardInterrupt
        return line

    def served(at):
        nonlocal left
        left, got = at, []
        requests = [engine.submit(text, max_new_tokens=3, ignore_stop=True) for text in TEXTS[:3]]
        requests[0].release()
        released.append(requests[0])
        sys.settrace(lambda frame, event, argument: line if frame.f_code is llm42.Engine._collect.__code__ else None)
        try:
            got.extend(engine)
        except KeyboardInterrupt:
            sys.settrace(None)
            got.extend(engine)
        sys.settrace(None)
        assert not engine._live
        return [(e.type, e.request.id - requests[0].id, e.position, e.n) for e in got]

    whole, at = served(0), 0
    assert sum(e[3] for e in whole if e[0] == "committed") == 9 and sum(e[0] == "finished" for e in whole) == 3
    while left <= 0:
        at += 1
        assert served(at) == whole, at
    assert at > 60 and not engine._early and all(r.finish == "length" for r in released), at


# Planners and drafters

class Shortest:
    """The planner of examples/README.md: requests with the fewest tokens to get first."""

    def __init__(self):
        self.passes = 0

    def plan(self, view, plan):
        ready = any(r.ready_since >= 0 for r in view.running)
        if ready:
            plan.windows(lambda r: (1e9 if r.ready_since < 0 else 0) + r.max_new_tokens - r.committed)
        if not plan.count:
            plan.ordinary()
        if not plan.count:
            plan.default()

    def admit(self, view):
        return min(view.waiting, key=lambda r: r.max_new_tokens)

    def postprocess(self, view, plan, seconds):
        self.passes += 1


def test_planner():
    asked = [{"prompt": t, "max_new_tokens": 10 * (i + 1), "deterministic": i % 2 == 0} for i, t in enumerate(TEXTS)]
    alone = [llm42.Engine(model()).generate(a) for a in asked]
    planner = Shortest()
    engine = llm42.Engine(model(), planner=planner, max_running=2)
    answers = engine.generate(list(reversed(asked)))[::-1]
    assert planner.passes == sum(engine.stats["passes"].values()) > 0
    assert [bits([a]) for a in answers[::2]] == [bits([a]) for a in alone[::2]]
    order = [a.id for a in sorted(answers, key=lambda a: a.last_token)]
    assert order == [a.id for a in answers], order  # the shortest first, although they came last


def test_planner_by_hand():
    def plan(view, plan):
        plan.schedule = "invariant"
        for r in view.running:
            kind = "prompt" if r.state == "prefill" else "decode"
            if view.rows(r, kind, "invariant"):
                plan.choose(r, kind)
    alone = llm42.Engine(model(), preset="invariant").generate(TEXTS, max_new_tokens=20)
    engine = llm42.Engine(model(), preset="invariant", planner=plan)
    assert bits(engine.generate(TEXTS, max_new_tokens=20)) == bits(alone)


def test_planner_errors():
    def wrong(view, plan):
        plan.schedule = "fast"
        plan.choose(view.running[0] if view.running else view.waiting[0], "window")

    def broken(view, plan):
        return 1 // 0
    engine = llm42.Engine(model(), planner=wrong)
    assert raises(llm42.Error, "request", engine.generate, "It was").result == "LLM42_PLAN"
    for rows in ((1 << 32) + 1, -(1 << 32)):
        engine = llm42.Engine(model(), planner=lambda view, plan, n=rows: plan.choose(
            (view.running or view.waiting)[0], "prompt", n))
        raises(ValueError, f"rows: {rows}: does not fit", engine.generate, "It was")
    engine = llm42.Engine(model(), planner=broken)
    raises(ZeroDivisionError, "", engine.generate, "It was")
    assert not list(engine)
    raises(ValueError, "planner: 'x'", llm42.Engine, model(), planner="x")


def test_planner_without_schedule():
    """The error names the field, what it is and what it may be."""
    def plan(view, plan):
        for request in view.running:
            plan.choose(request, "prompt" if request.state == "prefill" else "decode")
    for preset, legal in (("best", "fast (1) or invariant (3)"), ("invariant", "invariant (3)"),
                          ("paper", "fast (1) or fixed (2)")):
        engine = llm42.Engine(model(), preset=preset, planner=plan)
        error = raises(llm42.Error, "breaks rule SCHEDULE", engine.generate, "It was")
        assert str(error).endswith(f": plan.schedule is none (0): set it to {legal}"), error


def test_planner_fields_of_the_engine():
    """A planner that sets what is the engine's is refused, whichever part of a plan comes next, and can go on."""
    def rows(view, plan):
        plan.windows(lambda request: plan.choose(request, "decode"))

    def default(view, plan):
        plan.windows(lambda request: plan.default() or 0)
    wrongs = [rows, default]
    for field, value in (("room", 10**6), ("room", 0), ("choice", None), ("count", -5), ("count", 10**6),
                         ("count", "1")):
        def wrong(view, plan, field=field, value=value):
            setattr(plan, field, value)
        wrongs.append(wrong)
    said = []

    def plan(view, plan):
        if any(r.state == "decode" and r.candidates > 3 for r in view.running) and wrongs:
            said.append(str(raises(llm42.Error, "plan", wrongs.pop(), view, plan)))
        plan.ordinary()
        plan.windows()
        if plan.count > 1:  # the last choice may be dropped
            held, plan.count = plan.choice, plan.count - 1
            assert plan.choice == held[:-1] and held[0].request == view.running[0].id, held
        if not plan.count:
            plan.default()
    alone = llm42.Engine(model()).generate(TEXTS[:2], max_new_tokens=60, deterministic=True)
    engine = llm42.Engine(model(), planner=plan)
    assert bits(engine.generate(TEXTS[:2], max_new_tokens=60, deterministic=True)) == bits(alone)
    assert len(said) == 8 and "plan.room: it is the engine's: add choices by plan.choose" in said[-3], said
    assert "plan.count: -5: must be from 0 to 0" in said[2], said


def test_views_are_copies():
    """What a planner writes into what it sees changes nothing in the engine."""
    def plan(view, plan):
        view.desc.contents.policy.window = view.desc.contents.token_budget = 10**6
        view.last.schedule = view.last.rows = 77
        for request in view.running:
            request.sampling.temperature, request.sampling.seed, request.stop[0] = 9, 99, 5
        assert view.desc.contents.policy.window < 1000 and view.last.rows != 77
        plan.default()
    asked = {"max_new_tokens": 40, "deterministic": True, "temperature": 0.7, "seed": 3}
    alone, engine = llm42.Engine(model()).generate(TEXTS[0], **asked), llm42.Engine(model(), planner=plan)
    assert bits([engine.generate(TEXTS[0], **asked)]) == bits([alone])
    assert engine.config["policy"]["window"] < 1000


def test_drafter():
    options = {"deterministic": True, "max_new_tokens": 60, "ignore_stop": True}
    alone = llm42.Engine(model()).generate(TEXTS, **options)
    truth = {a.prompt.tobytes(): a.tokens.tolist() for a in alone}

    def nonsense(request, limit):
        return [(7 * int(request.text_ids.sum()) + i) % 2048 for i in range(limit)]

    def oracle(request, limit):
        at = len(request.text_ids) - request.prompt_count
        return truth[request.prompt.tobytes()][at:at + limit]
    passes = {}
    for drafter in (None, nonsense, oracle, "lookup", llm42.Model("examples/draft42")):
        engine = llm42.Engine(model(), drafter=drafter, preset="best", max_running=8)
        assert bits(engine.generate(TEXTS, **options)) == bits(alone), drafter
        passes[drafter] = sum(engine.stats["passes"].values())
        assert (engine.stats["drafted"] > 0) == (drafter is not None)
        if drafter is nonsense:
            assert engine.stats["accepted"] < engine.stats["drafted"] / 10
    assert passes[oracle] < passes[None] / 2, passes


def test_drafter_errors():
    engine = llm42.Engine(model(), drafter=lambda request, limit: {}["no"])
    raises(KeyError, "no", engine.generate, "It was", deterministic=True)
    raises(ValueError, "drafter", llm42.Engine, model(), drafter="oracle")


def test_callbacks_keep_nothing():
    """What planners and drafters were given ends with their call: it names what to do, and reads no memory."""
    kept = []

    def plan(view, plan):
        kept.append((view, plan, view.running + view.waiting))
        plan.default()

    def draft(request, limit):
        kept_drafts.append((request, request.tokens, request.tokens.tolist()))
        return []
    kept_drafts = []
    engine = llm42.Engine(model(), planner=plan, drafter=draft)
    engine.generate(TEXTS[:2], max_new_tokens=20, deterministic=True)
    engine.close()
    gc.collect()
    view, plan_kept, requests = kept[3]
    for function in (lambda: view.running, lambda: view.waiting, lambda: view.now, plan_kept.default, plan_kept.prompts,
                     lambda: view.rows(requests[0], "decode", "fast"), lambda: plan_kept.choose(requests[0], "decode"),
                     lambda: plan_kept.count, lambda: requests[0].tokens, lambda: requests[0].id,
                     lambda: kept_drafts[0][0].text_ids):
        raises(llm42.Error, "keep copies", function)
    assert all(tokens.tolist() == then for _, tokens, then in kept_drafts) and len(kept_drafts) > 2


def test_close_in_a_planner():
    for draft in (False, True):
        def close(*_):
            engine.close()
        engine = llm42.Engine(model(), **{"drafter" if draft else "planner": close})
        engine.submit(TEXTS[0], deterministic=True, max_new_tokens=20)
        raises(llm42.Error, "when the run has returned", engine.run)
        engine.close()


def test_another_thread():
    """What another thread asks while the engine runs is refused, and changes no answer."""
    alone = llm42.Engine(model()).generate("It was", max_new_tokens=200)
    said = []

    def plan(view, to):
        if not said:
            other = threading.Thread(target=lambda: raised(engine))
            other.start()
            other.join()
        to.default()

    def raised(of):
        for call in (of.close, lambda: of.submit("Once"), of.run, lambda: of.generate("Once")):
            said.append(str(raises(llm42.Error, "one thread at a time", call)))
    engine = llm42.Engine(model(), planner=plan)
    answer = engine.generate("It was", max_new_tokens=200)
    assert len(said) == 4 and bits([answer]) == bits([alone])


# Threads

def together(*functions):
    """Runs functions at once, in threads that take turns every few microseconds."""
    failed, interval = [], sys.getswitchinterval()

    def guard(function):
        try:
            function()
        except BaseException as error:
            failed.append(error)
    threads = [threading.Thread(target=guard, args=(function,)) for function in functions]
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failed, failed[0]


def test_threads_share_a_tokenizer():
    """Each gets the ids and the texts that it asked for, whether they are short or long."""
    own, texts = llm42.Tokenizer(model()), TEXTS + [text * 300 for text in TEXTS]
    right = [own.encode(text) for text in texts]

    def ask(first):
        for i in range(first, first + 1500):
            at = i % len(texts) if i % 20 == 0 else i % len(TEXTS)
            assert own.encode(texts[at]).tobytes() == right[at].tobytes(), f"ids of text {at}"
            assert own.decode(right[at]) == texts[at], f"text {at}"
    together(*(lambda first=i: ask(first) for i in range(4)))


def test_threads_share_a_model():
    """An engine for each thread, and one model with its tokenizer: deterministic answers are those of one thread."""
    shared = model()
    shared._tokenizer = llm42.Tokenizer(shared)
    asked = {"max_new_tokens": 1, "deterministic": True}
    right = {answer.prompt.tobytes(): bits([answer]) for answer in llm42.Engine(shared).generate(TEXTS, **asked)}
    prompts = {text: shared.encode(text).tobytes() for text in TEXTS}

    def ask():
        engine = llm42.Engine(shared, threads=1)
        for text in TEXTS * 30:
            for answer in engine.generate([text] * 8, **asked):
                assert bits([answer]) == right[prompts[text]], text
    together(*[ask] * 4)


def test_threads_share_an_engine():
    """A call is either refused or right, and what is refused changes nothing of another thread's."""
    engine, asked = llm42.Engine("synthetic:tiny", threads=1), {"max_new_tokens": 6, "deterministic": True}
    right, done = engine.generate([1, 2, 3], **asked).tokens.tolist(), []
    assert repr(engine.generate([1, 2, 3], **asked)).endswith(f": '{', '.join(map(str, right))}'>"), "no tokenizer"

    def ask():
        for i in range(6000):
            try:
                answer = engine.submit([1, 2, 3], **asked)
                engine.run() if i % 2 else engine.generate([1, 2], **asked)
                if i % 2:
                    assert answer.tokens.tolist() == right, answer
                done.append(answer)
            except llm42.Error as error:
                assert "one thread at a time" in str(error), error
            assert engine.stats["finished"] >= 0 and engine.now > 0
    together(*[ask] * 3)
    engine.run()
    assert done and all(answer.tokens.tolist() == right for answer in done)


def test_released_by_another_thread():
    """Arrays are views before and copies afterwards, and never empty in between."""
    engine = llm42.Engine(model())
    for _ in range(30):
        answer = engine.generate("It was", max_new_tokens=20, ignore_stop=True)
        kept = bits([answer])

        def read(answer=answer, kept=kept):
            for _ in range(100):
                assert bits([answer]) == kept and len(answer.text_ids) == answer.prompt_count + 20
        together(read, answer.release)


# Forks

def in_child(function, seconds=60):
    """Runs it in a forked child, which ends as a program does."""
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)
        try:
            function()
        except BaseException as error:
            print(f"in the child: {error!r}", file=sys.stderr)
            os._exit(1)
        sys.exit(0)
    status = os.waitpid(child, 0)[1]
    assert status == 0, f"the child: status {status}" + (": it hung" if status == signal.SIGALRM else "")


def test_fork():
    """A child can use its parent's engine, or one of its own, and gives the same bits."""
    m, asked = model(), {"max_new_tokens": 20, "deterministic": True}
    engine = llm42.Engine(m, threads=2)
    right, scorer = bits(engine.generate(TEXTS, **asked)), llm42.Scorer(m, threads=2)
    score = scorer.score(TEXTS[0] * 9).logprobs.tobytes()

    def child():
        assert bits(engine.generate(TEXTS, **asked)) == right
        assert bits(llm42.Engine(m, threads=2).generate(TEXTS, **asked)) == right
        assert scorer.score(TEXTS[0] * 9).logprobs.tobytes() == score
        llm42.Model("synthetic:base")
    in_child(child)
    assert bits(engine.generate(TEXTS, **asked)) == right


def test_fork_after_a_synthetic_model():
    """Threads that have made weights are missing in a child, too."""
    m = llm42.Model("synthetic:base")
    in_child(lambda: llm42.Engine(m, threads=2).generate([[1, 2, 3] * 20], max_new_tokens=2))


def test_fork_leaves_files_alone():
    """A child that ends, or closes the engine, adds nothing to its parent's transcript and does not finish it."""
    path = os.path.join(OUT, "forked.txt")
    with llm42.Engine(model(), record=path) as engine:
        engine.generate(TEXTS[:3], max_new_tokens=20, deterministic=True)
        in_child(lambda: None)
        in_child(engine.close)
        in_child(lambda: llm42.Engine(model(), record=path + ".child").close())
        assert not os.path.exists(path) and len(llm42.Transcript(path + ".child")) == 0
        engine.generate(TEXTS[3:], max_new_tokens=20, deterministic=True)
    assert len(llm42.Transcript(path)) == 8 and llm42.audit(path, "examples/tiny42").verified


# Scores

def test_scorer_begins_another_text():
    """The logits of a text of several passes are not those of a mixture with another text."""
    scorer = llm42.Scorer(model(), rows=8)
    passes = scorer.logits(TEXTS[0] * 4)
    next(passes)
    scorer.score(TEXTS[1])
    raises(llm42.Error, "begun another text", next, passes)
    passes = scorer.logits(TEXTS[0] * 4)
    next(passes)
    scorer.close()
    raises(llm42.Error, "closed", next, passes)


def test_scorer_of_several_threads():
    """A score is either right or refused."""
    scorer = llm42.Scorer(model(), rows=8)
    alone = scorer.score(TEXTS[0] * 8).logprobs.tobytes()
    got = []

    def score():
        for _ in range(10):
            try:
                got.append(scorer.score(TEXTS[0] * 8).logprobs.tobytes() == alone)
            except llm42.Error as error:
                assert "another thread" in str(error), error
    together(*[score] * 4)
    assert got and all(got)


def test_scorer_closed_by_another_thread():
    """It is closed before a pass or after it."""
    for _ in range(10):
        scorer = llm42.Scorer(model(), rows=8, threads=1)
        passes, refused = scorer.logits(TEXTS[0] * 20), 0

        def read(passes=passes):
            try:
                for _ in passes:
                    pass
            except llm42.Error as error:
                assert "closed" in str(error) or "another thread" in str(error), error

        def close(scorer=scorer):
            while scorer._memory is not None:
                try:
                    scorer.close()
                except llm42.Error as error:
                    assert "another thread" in str(error), error
        together(read, close)


def test_score_of_build_score():
    m = model()
    for text, options in ((TEXTS[0] + " and the wind was cold, and she said nothing.", {}),
                          (TEXTS[2] * 20, {"compute": "fp32"}), (TEXTS[5], {"schedule": "fast", "rows": 3})):
        words = ["--dtype" if k == "compute" else "--" + k for k in options]
        words = [w for pair in zip(words, map(str, options.values())) for w in pair]
        table = run(f"{B}/score", "--text", text, *words).splitlines()[1:]
        score = m.score(text, **options)
        assert [float(np.float32(line.split("\t")[2])) for line in table] == score.logprobs[1:].tolist(), text
        assert [int(line.split("\t")[1]) for line in table] == score.ids[1:].tolist()


def test_score_of_generate():
    m = model()
    answer = llm42.Engine(m).generate(TEXTS[0], deterministic=True, max_new_tokens=50)
    ids = np.concatenate([answer.prompt, answer.tokens])
    score = m.score(ids, top=4)
    assert score.logprobs[answer.prompt_count:].tobytes() == answer.logprobs.tobytes()
    assert score.top_ids.shape == (len(ids) + 1, 4)
    assert (score.top_ids[answer.prompt_count:-1, 0] == answer.tokens).all()  # greedy
    assert (np.diff(score.top_logprobs[1:], axis=1) <= 0).all()
    assert (score.top_logprobs[answer.prompt_count:-1, 0] == answer.logprobs).all()
    assert m.score(ids[:-1]).logprobs.tobytes() == score.logprobs[:-1].tobytes()
    assert m.score(ids, schedule="fast", rows=7, compute="fp32").logprobs.tobytes() != m.score(
        ids, schedule="fast", rows=32, compute="fp32").logprobs.tobytes()  # a control


def test_score_as_drawn():
    """With a temperature and filters a token has the probability with which it is drawn."""
    m, ids = model(), model().encode(TEXTS[0])
    raw, vocab = m.score(ids), m.config["vocab"]
    assert m.score(ids, temperature=1, seed=3).logprobs.tobytes() == raw.logprobs.tobytes()
    kept = m.score(ids, top=vocab, temperature=0.8, top_k=5)
    assert (np.isfinite(kept.top_logprobs[1:]) == (np.arange(vocab) < 5)).all()
    assert abs(np.exp(kept.top_logprobs[1:].astype(float)).sum(1) - 1).max() < 1e-6
    warm = m.score(ids, top=vocab, temperature=2).top_logprobs[1:]
    cold = m.score(ids, top=vocab).top_logprobs[1:].astype(float) / 2
    assert abs(warm - cold + np.log(np.exp(cold).sum(1, keepdims=True))).max() < 1e-5
    raises(TypeError, "no option 'heat': there are temperature", llm42.Scorer(m).score, ids, heat=1)
    raises(llm42.Error, "temperature", m.score, ids, temperature=-1)
    with llm42.Scorer(m, arithmetic="sm90") as scorer:
        assert scorer.score(ids, top_k=vocab, top_p=1).logprobs.tobytes() == scorer.score(ids).logprobs.tobytes()
    raises(llm42.Error, "is closed", scorer.reload)


def test_weights():
    """What is written to a model's weights its engines and scorers have after a reload: the answers of new ones. With
    BACKEND=cuda the test is one of a GPU's memory."""
    backend = os.environ.get("BACKEND", "cpu")
    m = llm42.Model("examples/tiny42", no_mmap=True)
    weights = m.weights()
    assert len(weights) == 38 and weights["layer.3.down"].shape == (128, 384) and "head" not in weights
    raises(ValueError, "read-only", model().weights()["embed"].fill, 0)
    raises(llm42.Error, "not in this process", llm42.Model("shape:tiny").weights)
    for folder in ("tiny42-fp8", "hybrid42"):
        found = llm42.Model("examples/" + folder).weights()
        assert ("layer.0.q.scale" in found) == (folder == "tiny42-fp8") != ("layer.0.taps" in found), list(found)
    with llm42.Engine(m, "best", backend, prefix_cache=True) as engine, llm42.Scorer(m, backend) as scorer:
        options = {"prompt": TEXTS[3] * 5, "deterministic": True, "max_new_tokens": 20}
        before = engine.generate(dict(options))
        ids = np.concatenate([before.prompt, before.tokens])
        scores, passes = scorer.score(ids).logprobs.tobytes(), scorer.logits(np.tile(ids, 5))
        next(passes)
        waiting = engine.submit(**options)
        raises(llm42.Error, "1 requests are not finished", engine.reload)
        engine.cancel(waiting)
        weights["layer.1.up"][:, :40] ^= 0x8000
        engine.reload()
        scorer.reload()
        raises(llm42.Error, "another text", next, passes)
        after, new = engine.generate(dict(options)), llm42.Engine(m, "best", backend).generate(dict(options))
        assert bits([after]) == bits([new]) != bits([before])
        assert scorer.score(ids).logprobs.tobytes() == m.score(ids, backend=backend).logprobs.tobytes() != scores
    with llm42.Engine(m, record=f"{OUT}/reload.txt") as engine:
        raises(llm42.Error, "the transcript names", engine.reload)
    view = weights["embed"]
    del m, weights, engine, scorer
    gc.collect()
    assert view.any()  # it keeps the memory


def test_torch():
    """Log-probabilities with llm42's bits and PyTorch's gradient, and a trainer whose ratios are 1 with them alone."""
    import llm42_torch
    import torch
    m = llm42.Model("examples/tiny42", no_mmap=True)
    tensors, arrays, scorer = llm42_torch.weights(m), m.weights(), llm42.Scorer(m)
    for name, array in arrays.items():
        assert tensors[name].data_ptr() == array.ctypes.data and tensors[name].shape == array.shape
    tensors["embed"][3, 5] = 1.5
    assert arrays["embed"][3, 5] == 0x3fc0
    ids, own = m.encode(TEXTS[0]), torch.full((3,), -1.0, requires_grad=True)
    exact = llm42_torch.logprobs(scorer, ids, own, temperature=0.5)
    (exact * torch.tensor([1.0, 2.0, 4.0])).sum().backward()
    assert exact.tolist() == scorer.score(ids, temperature=0.5).logprobs[-3:].tolist()
    assert own.grad.tolist() == [1, 2, 4]
    raises(ValueError, "must be float32 [n]", llm42_torch.logprobs, scorer, ids, own.double())
    assert llm42_torch.logprobs(scorer, TEXTS[0], own, temperature=0.5).tolist() == exact.tolist()  # a text
    raises(ValueError, "no_mmap=True", llm42_torch.weights, model())
    with open("examples/python/README.md", encoding="utf-8") as file:
        piece = re.search(r"^import llm42, llm42_torch\n.*?(?=^```$)", file.read(), re.M | re.S)[0]
    exec(piece, {"ids": ids, "own": own})  # pylint: disable=exec-used
    out = f"{OUT}/rl.tsv"
    short = (sys.executable, "sweep/science/rl.py", "--steps", "2", "--prompts", "2", "--samples", "4", "--tokens", "6",
             "--seeds", "1", "--out", out)
    run(*short)
    for wrong, said in ("ways=fats", "'fats'"), ("samples=1", "at least 2"), ("model=examples/hybrid42", "no plain"):
        done = subprocess.run([*short, "--" + wrong], stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode and said in done.stderr.splitlines()[-1], done.stderr
    with open(out, encoding="utf-8") as file:
        rows = [line.split("\t") for line in file if not line.startswith("#")][1:]
    assert [(r[0], r[4], r[6], r[7]) for r in rows if r[0] == "llm42"] == [("llm42", "1", "1", "1")] * 2, rows
    assert all(float(r[4]) < 0.5 and r[6] != r[7] for r in rows if r[0] != "llm42"), rows  # the control


def test_other_library():
    """LLM42_LIBRARY that names something else: one line says so."""
    other = os.path.join(OUT, "other.so")
    subprocess.run([os.environ.get("CC", "gcc"), "-shared", "-x", "c", "/dev/null", "-o", other], check=True)
    for path, why in ((other, "no llm42_py_version"), ("README.md", "cannot be loaded"), (OUT, "cannot be loaded")):
        code = "import sys; sys.path.append('examples/python')\nimport llm42"
        said = subprocess.run([sys.executable, "-c", code], env={**os.environ, "LLM42_LIBRARY": path},
                              stderr=subprocess.PIPE, text=True, check=False).stderr.splitlines()[-1]
        assert re.match(f"ImportError: llm42: .*{re.escape(os.path.basename(path))}: {why}.*LLM42_LIBRARY", said), said


# Transcripts

def test_transcript():
    path = os.path.join(OUT, "python.txt")
    with llm42.Engine(model(), record=path, preset="best") as engine:
        answers = engine.generate(TEXTS, deterministic=True, max_new_tokens=30, temperature=0.7)
        assert not os.path.exists(path)  # it has its name when it is whole
    assert "verified to the bit: 8 of 8" in run(f"{B}/audit", path, "--model", "examples/tiny42")
    done = llm42.audit(path, "examples/tiny42")
    assert done.verified and "8 of 8" in done.text
    transcript = llm42.Transcript(path)
    assert transcript.result == "canonical" and transcript.preset == "best" and len(transcript) == 8
    by_id = {a.request: a for a in transcript}
    for a in answers:
        b = by_id[a.id]
        assert (b.tokens == a.tokens).all() and b.logprobs.tobytes() == a.logprobs.tobytes()
        assert (b.prompt == a.prompt).all() and b.finish == a.finish and b.stop == [1] and len(b.digest) == 64


def test_two_transcripts_of_one_name():
    """A second engine that would write into the file of the first one is refused, and spoils nothing."""
    path = os.path.join(OUT, "one.txt")
    with llm42.Engine(model(), record=path) as engine:
        raises(llm42.Error, "one.txt: cannot write: ", llm42.Engine, model(), record=path)
        engine.generate(TEXTS[:2], max_new_tokens=30, deterministic=True)
    assert llm42.audit(path, "examples/tiny42").verified
    with llm42.Engine(model(), record=path) as engine:  # later the name is free again
        engine.generate(TEXTS[2], max_new_tokens=3)
    assert len(llm42.Transcript(path)) == 1


def sealed(text):
    """What somebody does who changes lines and does not want it seen: the digests are those of the lines again."""
    done = head = answer = ""
    for line in text.splitlines(keepends=True):
        if line.startswith("request:"):
            answer = ""
        of = {"digest": head + answer, "file_digest": done}.get(line.split(":")[0])
        line = line if of is None else f"{line.split(':')[0]}: {hashlib.sha256(of.encode()).hexdigest()}\n"
        done, answer = done + line, answer + line
        head = done if line.startswith("result:") else head
    return done


def test_transcript_control():
    """A token that was changed is found: by the digests, and by the audit if the digests were changed, too."""
    path = os.path.join(OUT, "changed.txt")
    with llm42.Engine(model(), record=path) as engine:
        engine.generate(TEXTS[:2], max_new_tokens=30, deterministic=True)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert sealed(text) == text
    text = re.sub(r"^tokens: \d+,", "tokens: 5,", text, count=1, flags=re.M)
    for write, wrong in ((lambda t: t, True), (sealed, False)):
        with open(path, "w", encoding="utf-8") as file:
            file.write(write(text))
        if wrong:
            raises(llm42.Error, "digest", llm42.Transcript, path)
            raises(llm42.Error, "digest", llm42.audit, path, "examples/tiny42")
    done = llm42.audit(path, "examples/tiny42")
    assert len(llm42.Transcript(path)) == 2 and not done.verified and "NOT VERIFIED: 1 of 2" in done.text, done


def test_names_like_options():
    """A file whose name begins with - is a file, and what would print something else is no audit and no sweep."""
    for name in ("--version", "--help", "-", "--model"):
        raises(llm42.Error, f"./{name}: ", llm42.audit, name, "examples/tiny42")
    raises(llm42.Error, "./-x: ", llm42.audit, "examples/h200.txt", "-x")
    raises(llm42.Error, "./--help: ", llm42.sweep, calibration="--help")
    for option in ("version", "help"):
        raises(TypeError, f"{option}: the program would print this", llm42.audit, "examples/h200.txt", model(),
               **{option: True})
        raises(TypeError, f"{option}: the program would print this", llm42.sweep, **{option: True})
    raises(llm42.Error, "something else than a result", llm42.sweep, list=True,
           calibration="sweep/calibration/h100-pcie-paper.tsv")
    os.makedirs(os.path.join(OUT, "names"), exist_ok=True)
    at = os.getcwd()
    try:
        os.chdir(os.path.join(OUT, "names"))
        with llm42.Engine(llm42.Model(os.path.join(at, "examples/tiny42")), record="-run.txt") as engine:
            engine.generate(TEXTS[0], deterministic=True, max_new_tokens=5)
        assert llm42.audit("-run.txt", os.path.join(at, "examples/tiny42")).verified
    finally:
        os.chdir(at)


def test_names_that_are_none():
    """C would end a name at its NUL, and so open or write another file. An empty one is refused at once."""
    folder, file, m = "examples/tiny42\0b", "examples/h200.txt\0b", model()
    other = os.path.join(OUT, "other")
    for call in (lambda: llm42.Model(folder), lambda: llm42.Model("examples/tiny42", tokenizer=folder),
                 lambda: llm42.Engine(m, record=other + "\0b"), lambda: llm42.Transcript(file),
                 lambda: llm42.audit(file, m), lambda: llm42.audit("examples/h200.txt", folder),
                 lambda: llm42.sweep(calibration=file), lambda: llm42.Engine(m, backend="sim", calibration=file)):
        raises(ValueError, "embedded null byte", call)
    raises(ValueError, "algorithm_file: ", llm42._set, llm42.S["llm42_cuda_desc"](), "algorithm_file", file, [])
    assert not os.path.exists(other)
    for field, call in (("record", lambda: llm42.Engine("nowhere", record="")),
                        ("transcript", lambda: llm42.audit("", m)),
                        ("model", lambda: llm42.audit("examples/h200.txt", "")),
                        ("transcript", lambda: llm42.Transcript("")),
                        ("calibration", lambda: llm42.sweep(calibration="")),
                        ("calibration", lambda: llm42.Engine(m, backend="sim", calibration=""))):
        raises(ValueError, f"{field}: '': must be the name of a file", call)


def test_transcript_of_h200():
    transcript = llm42.Transcript("examples/h200.txt")
    assert transcript.arithmetic == "sm90"
    assert llm42.audit("examples/h200.txt", model()).verified
    with llm42.Engine(model(), preset="best", arithmetic="sm90") as engine:
        for a in transcript:
            again = engine.generate(a.prompt, deterministic=True, max_new_tokens=a.max_new_tokens,
                                    sampling=a.sampling)
            assert again.tokens.tolist() == a.tokens.tolist() and again.logprobs.tobytes() == a.logprobs.tobytes()


# Memory

def test_views_and_copies():
    engine = llm42.Engine(model())
    request = engine.submit("It was", max_new_tokens=30, deterministic=True, ignore_stop=True)
    engine.run()
    a, b = request.tokens, request.tokens
    assert a.__array_interface__["data"] == b.__array_interface__["data"]  # views of one memory
    raises(ValueError, "read-only", a.__setitem__, 0, 1)
    kept, logprobs = a.tolist(), request.logprobs
    request.release()
    c = request.tokens
    assert (request.text_ids[request.prompt_count:] == c).all()
    assert c.__array_interface__["data"] != a.__array_interface__["data"]  # a copy
    raises(ValueError, "read-only", c.__setitem__, 0, 1)
    engine.generate(TEXTS, max_new_tokens=40)  # memory that were free would be used again
    assert a.tolist() == b.tolist() == c.tolist() == kept
    engine.close()
    gc.collect()
    assert a.tolist() == kept and len(logprobs) == 30 and request.committed == 30 and request.finish == "length"


def test_released_when_nobody_holds_it():
    engine = llm42.Engine(model())
    answer = engine.generate("It was", max_new_tokens=5)
    pointer, number = engine._pointer(), answer.id
    assert llm42.lib.llm42_engine_request(pointer, number)
    view = answer.tokens
    del answer
    gc.collect()
    engine.run()
    assert llm42.lib.llm42_engine_request(pointer, number)  # the view holds it
    del view
    gc.collect()
    engine.run()
    assert not llm42.lib.llm42_engine_request(pointer, number)


def test_released_before_its_end():
    """The memory goes back when the request has ended, and the copy says how it ended."""
    engine = llm42.Engine(model(), max_running=1)
    for finish in ("length", "cancelled"):
        first, second = requests = [engine.submit(text, max_new_tokens=5, ignore_stop=True) for text in TEXTS[:2]]
        for request in requests:
            request.release()
        engine.submit("It was", max_new_tokens=1)  # releases what it can
        if finish == "cancelled":
            engine.cancel(first)
        engine.run()
        engine.run()
        assert [(r.finish, r.state) for r in requests] == [(finish, "finished"), ("length", "finished")]
        for r in requests:
            assert not llm42.lib.llm42_engine_request(engine._pointer(), r.id)
    assert not engine._live and not engine._early


def test_the_engine_lives_as_long_as_views():
    answer = llm42.Engine(model()).generate("It was", max_new_tokens=5)
    view, kept = answer.tokens, answer.tokens.tolist()
    del answer
    gc.collect()
    assert view.tolist() == kept


# Texts, simulator, sweep

def test_tokenizers():
    with open("examples/tiny42/tokenizer_golden.json", encoding="utf-8") as file:
        golden = json.load(file)
    golden = golden if isinstance(golden, list) else golden.get("cases", golden.get("texts", []))
    m, own, hf = model(), llm42.Tokenizer(model()), llm42._hf_tokenizer("examples/tiny42/tokenizer.json")
    assert golden
    for case in golden:
        ids = own.encode(case["text"])
        assert ids[0] == m.config["bos"] and ids[1:].tolist() == [i for i in case["ids"] if i != m.config["bos"]]
        assert own.decode(ids) == case["text"]
        if hf:
            assert hf.encode(case["text"]).tolist() == ids.tolist() and hf.decode(ids) == case["text"]


def changed_tokenizer(**fields):
    """tiny42's tokenizer.json with other fields, behind a byte-order mark."""
    path = os.path.join(OUT, "_".join(fields) + ".json")
    with open("examples/tiny42/tokenizer.json", encoding="utf-8") as old, open(path, "w", encoding="utf-8-sig") as new:
        json.dump({**json.load(old), **fields}, new)
    return path


def test_nfc():
    """Ids of texts that are not NFC are those of what unicodedata makes of them, for all characters of Unicode 3.2."""
    old, random = unicodedata.ucd_3_2_0, __import__("random").Random(42)
    known = [chr(c) for c in range(1, 0x30000) if not 0xD800 <= c < 0xE000 and old.category(chr(c)) not in ("Cn", "Co")]
    marks, split = [c for c in known if old.combining(c)], [c for c in known if unicodedata.normalize("NFD", c) != c]
    own, plain = llm42.Tokenizer(model(), changed_tokenizer(normalizer={"type": "NFC"})), llm42.Tokenizer(model())
    for i in range(5000):
        pool = "ao " if i % 2 else "\u1100\u1112\u1161\u1175\u11a8\u11c2\uac00\ud7a3"
        text = "".join(random.choice(random.choice([marks, split, pool, known])) for _ in range(1 + i % 12))
        assert own.encode(text).tolist() == plain.encode(unicodedata.normalize("NFC", text)).tolist(), ascii(text)


def test_answers_follow_their_prompts():
    """As sentencepiece's tokenizers have it, the space in front is left out of a text, but not of an answer."""
    m, spaced = model(), llm42.Model("examples/tiny42", tokenizer=changed_tokenizer(decoder={
        "type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u0120"}, "content": " "},
                                         {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}))
    ids = m.encode(" was")[1:]
    assert (spaced.decode(ids), spaced.decode(ids, after=[0])) == ("was", "was")
    assert spaced.decode(ids, after=m.encode("It")) == " was" == m.decode(ids)
    with llm42.Engine(spaced) as engine:
        assert engine.generate("It was", max_new_tokens=3, temperature=0).text.startswith(" a")


def test_simulator():
    m = llm42.Model("shape:llama-3.1-8b")
    options = {"backend": "sim", "calibration": "sweep/calibration/h100-pcie-paper.tsv"}
    answers, times = [], []
    for flips in (False, True):
        with llm42.Engine(m, no_flips=flips, **options) as engine:
            requests = engine.generate([list(range(10))] * 16, deterministic=True, max_new_tokens=400)
            answers.append([r.tokens.tolist() for r in requests])
            times.append(engine.stats["rollbacks"])
            assert 0.1 < engine.now < 100
    assert answers[0] == answers[1] and times[0] > 0 and times[1] == 0, times


def test_sweep():
    table = llm42.sweep(calibration="sweep/calibration/h100-pcie-paper.tsv", requests=16, window=[16, 32], group=[1, 2])
    rows = table if isinstance(table, list) else table.to_dict("records")
    assert [(r["window"], r["group"]) for r in rows] == [(16, 1), (16, 2), (32, 1), (32, 2)]
    assert all(r["e2e_p99_s"] > 0 for r in rows)
    assert table.attrs["grid"] == "preset dvr; window 16,32; group 1,2; ratio 1; qps 12; slowdown 0; seed 42"
    for part in ("requests 16; ", "calibration h100-pcie-paper"):
        assert part in table.attrs["configuration"], table.attrs
    assert table.attrs["device"] == "NVIDIA H100 PCIe 80 GB" and "duration_s" not in table.attrs
    with tempfile.TemporaryDirectory() as folder:
        kept = os.path.join(folder, "kept.tsv")
        llm42.sweep(calibration="sweep/calibration/h100-pcie-paper.tsv", requests=16, out=kept)
        with open(kept, encoding="utf-8") as file:
            assert file.read().count("\nsim\t") == 1


def test_readme():
    """The pieces of Python in the README run, one after the other."""
    with open("examples/python/README.md", encoding="utf-8") as file:
        blocks = [b for b in re.findall(r"^```python\n(.*?)^```$", file.read(), re.M | re.S) if "torch" not in b]
    names = {}
    for block in blocks:
        exec(block, names)  # pylint: disable=exec-used
    assert len(blocks) == 2 and names["engine"].generate(TEXTS, max_new_tokens=4, deterministic=True)


def test_notebook():
    """Executes the tour: no cell fails, and what cells print is what is committed."""
    import nbclient
    import nbformat
    path = "examples/python/tour.ipynb"
    tour = nbformat.read(path, 4)
    before = printed(tour)
    nbclient.NotebookClient(tour, timeout=300, kernel_name="python3",
                            resources={"metadata": {"path": "examples/python"}}).execute()
    assert printed(tour) == before, [p for p in zip(printed(tour), before) if p[0] != p[1]][:1]


def printed(notebook):
    """What each cell prints, without its pictures. It comes in as many pieces as chance has it."""
    return ["".join(o["text"] for o in cell.get("outputs", []) if "text" in o) for cell in notebook.cells]


if __name__ == "__main__":
    tests = {name[5:]: value for name, value in list(globals().items()) if name.startswith("test_")}
    if sys.argv[1:] == ["--list"]:
        print("\n".join(tests))
    else:
        for chosen in sys.argv[1:]:
            tests[chosen]()
