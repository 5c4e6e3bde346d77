"""What Python costs: the same requests run by C and by llm42.py, in turns, on one thread.

    make shared build/generate && OMP_NUM_THREADS=1 python3 examples/python/overhead.py

64 samples of a prompt run 16 at a time, and each gets 256 tokens, greedily. `C` is llm42_engine_run, a single call that
runs everything, and keeps no event. `generate` is Engine.generate, `events` a loop over `for event in engine` that
collects every token, and build/generate a program in C that also prints the tokens. The first three ways share an
engine. Times are from the first submit to the last token. Time of the processor (cpu) is compared, because other
programs change it less than time by the clock; for build/generate it is not known. `over C` compares medians over the
rounds, and `least` and `most` are of the rounds' own ratios. All ways must give the same tokens.
"""
import argparse
import re
import statistics
import subprocess
import time

import llm42

parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
parser.add_argument("--model", default="examples/tiny42")
parser.add_argument("--backend", choices=["cpu", "cuda"], default="cpu")
parser.add_argument("--samples", type=int, default=64)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--tokens", type=int, default=256)
parser.add_argument("--repeats", type=int, default=21)
parser.add_argument("--no-program", action="store_true", help="leave build/generate out, which begins anew each time")
options = parser.parse_args()
model = llm42.Model(options.model)
prompt = model.encode("It was a dark night")
engine = llm42.Engine(model, backend=options.backend, max_running=options.batch,
                      **({"threads": 1} if options.backend == "cpu" else {}))


def program(asked):
    words = [llm42.program("generate"), "--model", model.path, "--backend", options.backend, "--ids",
             ",".join(map(str, prompt)), "--ids-out", "--stats", "--samples", str(options.samples), "--max-running",
             str(options.batch), "-n", str(options.tokens), "-t", "1", "--ignore-eos"]
    words += ["--deterministic"] * asked["deterministic"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    tokens = [list(map(int, line.split(","))) for line in done.stdout.splitlines()]
    return float(re.search(r"new tokens in ([0-9.]+) s", done.stderr)[1]), None, tokens


def in_this_process(way):
    def run(asked):
        begin, cpu_begin = time.perf_counter(), time.process_time()
        answers = way(asked)
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu_begin
        return seconds, cpu, [a if isinstance(a, list) else a.tokens.tolist() for a in answers]
    return run


def submit(asked):
    return [engine.submit(sample_index=i, **asked) for i in range(options.samples)]


def run_c(asked):
    requests, types = submit(asked), engine._events.types
    engine._events.types = 0  # its events are not kept
    llm42.lib.llm42_engine_run(engine._pointer(), None)
    engine._events.types = types
    engine._live.clear()  # they are finished, and no event has said so
    return requests


def generate(asked):
    return engine.generate([{**asked, "sample_index": i} for i in range(options.samples)], progress=False)


def events(asked):
    tokens = {request.id: [] for request in submit(asked)}
    for event in engine:
        if event.type == "committed":
            tokens[event.request.id].extend(event.tokens.tolist())
    return tokens.values()


WAYS = {"C": in_this_process(run_c), "generate": in_this_process(generate), "events": in_this_process(events),
        "build/generate": program}
if options.no_program:
    del WAYS["build/generate"]
print("requests       way                 ms   cpu ms   over C, %   least   most")
for deterministic in (False, True):
    asked = {"prompt": prompt, "max_new_tokens": options.tokens, "ignore_stop": True, "deterministic": deterministic}
    rounds = []
    for i in range(options.repeats + 1):
        rounds.append({way: run(asked) for way, run in WAYS.items()})
        if any(tokens != rounds[-1]["C"][2] for _, _, tokens in rounds[-1].values()):
            raise SystemExit("tokens differ: this compares different work")
    del rounds[0]  # it warms up
    base = statistics.median(r["C"][1] for r in rounds)
    for way in WAYS:
        line = f"{'deterministic' if deterministic else 'ordinary':13}  {way:14}  "
        line += f"{1000 * statistics.median(r[way][0] for r in rounds):7.1f}"
        if rounds[0][way][1] is not None:
            median = statistics.median(r[way][1] for r in rounds)
            over = [100 * (r[way][1] / r["C"][1] - 1) for r in rounds]
            line += f"  {1000 * median:7.1f}  {100 * (median / base - 1):10.2f}  {min(over):6.2f}  {max(over):5.2f}"
        print(line)
