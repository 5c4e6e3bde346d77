#!/usr/bin/env python3
"""A margin gate, measured against the truth: which answers are wrong if only uncertain tokens are verified.

MarginGate (arXiv 2605.30218) verifies a token only if its margin, its logit minus the second largest, is below a
threshold, the gate. Other tokens are committed as they are, and their fast KV stays. We know the canonical answer, that
of INVARIANT passes alone, so we can count wrong ones: each run serves the same requests with another gate
(llm42_experiment.gate), and its answers are compared with the canonical ones.

    python3 sweep/science/gate.py --model DIR [--model DIR ...] --out FILE
    python3 sweep/science/gate.py --bound --model DIR --out FILE    the largest margin of a FAST token that is not the
                                                                    canonical one, on canonical texts and fast KV
"""
import argparse
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "python"))
import llm42  # noqa: E402

# How a request waits for verification, as options of the engine: at once, one token and the one behind it; when a
# window is full, so that it decodes on behind an uncertain token; or when any request's window is full ("shared"; as in
# science/winner.py).
POLICIES = {"at once": {"verify": "eager", "window": 2}, "window": {"verify": "wait", "window": 16},
            "shared": {"verify": "eager", "window": 32}}
RUN = ["model", "backend", "fast", "logits", "policy", "running", "temperature", "gate", "requests", "tokens",
       "verified_pct", "rollbacks", "differing"]
BOUND = ["model", "backend", "logits", "rows", "temperature", "seed", "tokens", "flips", "largest_margin", "below_pct",
         "margin_median"]


def prompts_of(model, args):
    random = np.random.default_rng(args.seed)
    return [[int(id) for id in random.integers(model.config["vocab"], size=random.integers(1, 33))]
            for _ in range(args.requests)]


def served(model, args, temperature, running, log, **options):
    """The answers, one list of ids each, and the engine's counts."""
    with llm42.Engine(model, max_context=args.tokens + 40, max_running=running, log=log, **args.backend_options,
                      logits_fp32=args.logits == "fp32", **options) as engine:
        answers = [engine.submit(prompt, deterministic=True, max_new_tokens=args.tokens, temperature=temperature,
                                 seed=args.seed + i, ignore_stop=True)
                   for i, prompt in enumerate(prompts_of(model, args))]
        engine.run()
        return [list(answer.tokens) for answer in answers], engine.stats


def first_differences(answers, truth):
    """Of each answer, the first token that differs; as many as there are tokens: none does."""
    return [next((i for i, (a, b) in enumerate(zip(answer, right)) if a != b), len(right))
            for answer, right in zip(answers, truth)]


def run_gates(model, name, args, out, log):
    lengths = [n for n in (25, 50, 100, 200, 400, 800) if n <= args.tokens]
    if not args.begun:
        print(*RUN, *(f"differing_{n}" for n in lengths), sep="\t", file=out)
        args.begun = True
    for temperature in args.temperature:
        truth, _ = served(model, args, temperature, 32, log, preset="invariant")
        for policy in args.policy:
            for running in args.running:
                for gate in args.gate:
                    answers, stats = served(model, args, temperature, running, log, preset="dvr", gate=gate, group=8,
                                            **POLICIES[policy])
                    tokens = sum(map(len, answers))
                    first = first_differences(answers, truth)
                    print(name, args.backend, args.fast, args.logits, policy, running, f"{temperature:g}", f"{gate:g}",
                          len(answers), tokens, f"{100 * (1 - stats['gated'] / tokens):.4g}", stats["rollbacks"],
                          sum(f < args.tokens for f in first), *(sum(f < n for f in first) for n in lengths), sep="\t",
                          file=out, flush=True)


def leads(logits, noise, temperature):
    """The token of each row, and by how much it leads the next one."""
    score = logits if temperature == 0 else logits / np.float32(temperature) + noise
    at, first = np.arange(len(score)), score.argmax(1)
    best = score[at, first]
    score = score.copy()
    score[at, first] = -np.inf
    return first, best - score.max(1)


def run_bound(model, name, args, out, log):
    """Canonical texts, taken in again by FAST passes of so many rows: where their token is another one, the margin."""
    if not args.begun:
        print(*BOUND, sep="\t", file=out)
        args.begun = True
    for temperature in args.temperature:
        answers, _ = served(model, args, temperature, 32, log, preset="invariant")
        texts = [np.array(p + a, np.int32) for p, a in zip(prompts_of(model, args), answers)]
        for rows in args.rows:
            margins, wrong = [], []
            scorers = [llm42.Scorer(model, schedule=schedule, rows=rows, logits_fp32=args.logits == "fp32",
                                    max_context=args.tokens + 40, **args.backend_options)
                       for schedule in ("fast", "invariant")]
            for i, text in enumerate(texts):
                fast, right = (np.concatenate([part.copy() for _, part in s.logits(text)]) for s in scorers)
                noise = np.random.default_rng([args.seed, i]).gumbel(size=fast.shape).astype(np.float32)
                token, margin = leads(fast, noise, temperature)
                wrong.append(margin[token != leads(right, noise, temperature)[0]])
                margins.append(margin)
            for s in scorers:
                s.close()
            margins, wrong = np.concatenate(margins), np.concatenate(wrong)
            largest = wrong.max() if len(wrong) else 0
            print(name, args.backend, args.logits, rows, f"{temperature:g}", args.seed, len(margins), len(wrong),
                  f"{largest:.4g}", f"{100 * (margins <= largest).mean():.4g}", f"{np.median(margins):.4g}", sep="\t",
                  file=out, flush=True)


def main():
    def numbers(kind):
        return lambda text: [kind(part) for part in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", required=True, help="a folder, or synthetic:NAME; one or more")
    parser.add_argument("--bound", action="store_true", help="no requests: margins of tokens that flip")
    parser.add_argument("--backend", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--logits", default="bf16", choices=["bf16", "fp32"], help="what logits are rounded to")
    parser.add_argument("--algorithm-file", help="of the CUDA backend: keeps chosen algorithms from run to run")
    parser.add_argument("--offered", action="store_true", help="CUDA: FAST products as cuBLASLt offers them")
    parser.add_argument("--gate", type=numbers(float), default=[1e-9, 0.03, 0.1, 0.3, 0.5, 1, 2, 4, 1e9],
                        help="thresholds (default 1e-9,0.03,0.1,0.3,0.5,1,2,4,1e9)")
    parser.add_argument("--temperature", type=numbers(float), default=[0, 0.8], help="a list (default 0,0.8)")
    parser.add_argument("--running", type=numbers(int), default=[4, 32], help="requests at once (default 4,32)")
    parser.add_argument("--policy", type=numbers(str), default=list(POLICIES),
                        help="at once,window,shared: some of these")
    parser.add_argument("--rows", type=numbers(int), default=[1, 4, 16], help="--bound: of passes (default 1,4,16)")
    parser.add_argument("--requests", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=400, help="of an answer (default 400)")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--out", default="-", help="TSV (default: standard output)")
    args = parser.parse_args()
    for policy in args.policy:
        if policy not in POLICIES:
            parser.error(f"--policy: {policy}: there are {', '.join(POLICIES)}")
    args.begun, args.backend_options = False, {"backend": args.backend}
    if args.algorithm_file:
        args.backend_options["algorithm_file"] = args.algorithm_file
    args.fast = "offered" if args.offered else "default"
    if args.offered:
        args.backend_options["fast"] = "offered"
    out = sys.stdout if args.out == "-" else open(args.out, "w")
    print(f"# gate.py, llm42 {llm42.__version__}; answers of {args.tokens} tokens, seed {args.seed}", file=out)
    said = set()  # lines of the manifest

    def log(line):
        if line.startswith("cuda ") and line not in said and "algorithm" not in line and "opened" not in line:
            said.add(line)
            print("#", line, file=out)

    for path in args.model:
        model = llm42.Model(path, on_device=args.backend == "cuda" and path.startswith("synthetic:"))
        name = os.path.basename(path.rstrip("/")).removeprefix("synthetic:").split(",")[0]
        (run_bound if args.bound else run_gates)(model, name, args, out, log)


if __name__ == "__main__":
    main()
