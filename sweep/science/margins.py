#!/usr/bin/env python3
"""The margin law of flips: how often a candidate fails verification, predicted without fitting anything.

A FAST pass and a replay pass give almost the same logits. The greedy token flips if the difference of their errors at
the two largest logits exceeds the margin between these logits. If errors do not depend on margins,

    P(flip) = integral of P(margin = m) P(error < -m) dm.

The texts are cut into three parts. Margins are taken from one part, by FAST passes alone, errors from another, and
flips are counted on the third. The parts take turns, and predictions and counts are means of the three. With a
temperature, logits are divided by it and Gumbel noise is added, the same on both sides, as a sampler does.

Logits are computed in fp32 and then also rounded to bf16, with the same noise. So each flip of one type of logits can
be looked up in the other: `alone` counts the flips that only this type has.

    python3 sweep/science/margins.py --model DIR [--model DIR ...] --out FILE
"""
import argparse
import concurrent.futures
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "python"))
import llm42  # noqa: E402

COLUMNS = ["model", "backend", "compute", "logits", "temperature", "fast_rows", "replay_rows", "texts", "tokens",
           "margin_median", "error_sd", "predicted", "measured", "low", "high", "flips", "alone"]


def texts_of(model, args, count, temperature, log):
    """The model's own answers to prompts of one random token, as ids."""
    random = np.random.default_rng(args.seed)
    with llm42.Engine(model, max_context=args.tokens + 8, max_running=32, log=log, **args.backend_options) as engine:
        prompts = [[int(random.integers(model.config["vocab"]))] for _ in range(count)]
        answers = engine.generate(prompts, deterministic=True, max_new_tokens=args.tokens, temperature=temperature,
                                  seed=args.seed, progress=False)
        return [np.array(list(a.prompt) + list(a.tokens), np.int32) for a in answers]


def logits_of(model, args, schedule, rows, ids):
    """fp32 logits [texts][positions, V] of passes of so many rows."""
    with llm42.Scorer(model, schedule=schedule, rows=rows, compute=args.compute, logits_fp32=True,
                      max_context=args.tokens + 8, **args.backend_options) as scorer:
        return [np.concatenate([part.copy() for _, part in scorer.logits(text)]) for text in ids]


def rounded(x):
    """To the nearest bf16, ties to even, as fp32. Of finite numbers."""
    bits = x.view(np.uint32)
    return (bits + 0x7fff + (bits >> 16 & 1) & 0xffff0000).view(np.float32)


def judged(fast, replay, noise, temperature):
    """Margins of the FAST pass, what the replay pass adds to them, and whether the token flips. Ties: the lower id."""
    if temperature > 0:
        fast, replay = fast / np.float32(temperature) + noise, replay / np.float32(temperature) + noise
    at = np.arange(len(fast))
    first = fast.argmax(1)
    others = fast.copy()
    others[at, first] = -np.inf
    second = others.argmax(1)
    margin = fast[at, first] - fast[at, second]
    return margin, replay[at, first] - replay[at, second] - margin, replay.argmax(1) != first


def judged_by_type(fast, replay, seed, temperature):
    """{type of logits: what judged gives} of one text."""
    noise = np.random.default_rng(seed).gumbel(size=fast.shape).astype(np.float32) if temperature > 0 else None
    return {"bf16": judged(rounded(fast), rounded(replay), noise, temperature),
            "fp32": judged(fast, replay, noise, temperature)}


def predicted(margin, error):
    """The mean over all pairs of P(error < -margin). A new tie goes to the lower id: the other token, half the time."""
    error = np.sort(error)
    below, up_to = np.searchsorted(error, -margin, "left"), np.searchsorted(error, -margin, "right")
    return float((below + (up_to - below) * (margin > 0) / 2).mean() / len(error))


def interval(flips, random):
    """95% of the share of flips, by texts drawn again: tokens of a text are not independent."""
    shares = []
    for _ in range(1000):
        drawn = random.integers(len(flips), size=len(flips))
        shares.append(sum(flips[i].sum() for i in drawn) / sum(len(flips[i]) for i in drawn))
    return np.percentile(shares, [2.5, 97.5])


def report(out, head, texts, random):
    """Writes a line for each type of logits. texts: what judged_by_type gives of each."""
    flipped = {kind: np.concatenate([t[kind][2] for t in texts]) for kind in texts[0]}
    for kind, other in [("bf16", "fp32"), ("fp32", "bf16")]:
        margin, error = ([np.concatenate([t[kind][i] for t in texts[k::3]]) for k in range(3)] for i in (0, 1))
        low, high = interval([t[kind][2] for t in texts], random)
        of = dict(head, logits=kind, texts=len(texts), tokens=len(flipped[kind]),
                  margin_median=f"{np.median(np.concatenate(margin)):.4g}",
                  error_sd=f"{np.concatenate(error).std():.4g}",
                  predicted=f"{np.mean([predicted(margin[k], error[k - 2]) for k in range(3)]):.4g}",
                  measured=f"{flipped[kind].mean():.4g}", low=f"{low:.4g}", high=f"{high:.4g}",
                  flips=flipped[kind].sum(), alone=(flipped[kind] & ~flipped[other]).sum())
        print(*(of[name] for name in COLUMNS), sep="\t", file=out, flush=True)


def numbers(text):
    return [int(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", required=True, help="a folder, or synthetic:NAME; one or more")
    parser.add_argument("--backend", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--algorithm-file", help="of the CUDA backend: keeps chosen algorithms from run to run")
    parser.add_argument("--compute", default="bf16", choices=["bf16", "fp32"])
    parser.add_argument("--temperature", default="0,0.8", help="a list (default 0,0.8)")
    parser.add_argument("--fast-rows", type=numbers, default=[1, 4, 16], help="rows of FAST passes (default 1,4,16)")
    parser.add_argument("--replay-rows", type=numbers, default=[32, 256], help="of FIXED passes, M (default 32,256)")
    parser.add_argument("--texts", type=numbers, default=[96],
                        help="in all three parts together; one number, or one for each model (default 96)")
    parser.add_argument("--tokens", type=int, default=255, help="of a text (default 255)")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--out", default="-", help="TSV (default: standard output)")
    args = parser.parse_args()
    if min(args.texts) < 3 or len(args.texts) not in (1, len(args.model)):
        parser.error("--texts: at least 3, one for each part; one number, or as many as there are models")
    args.backend_options = {"backend": args.backend}
    if args.algorithm_file:
        args.backend_options["algorithm_file"] = args.algorithm_file
    out = sys.stdout if args.out == "-" else open(args.out, "w")
    print(f"# margins.py, llm42 {llm42.__version__}, texts of {args.tokens} tokens, seed {args.seed}\n"
          "# predicted: from margins and errors of other texts; measured: share of tokens that flip, with 95% by "
          "texts\n"
          "# alone: of these flips, those that logits of the other type do not have, with the same noise", file=out)
    said = set()  # lines of the manifest

    def log(line):
        if line.startswith("cuda ") and line not in said:
            said.add(line)
            print("#", line, file=out)

    threads = concurrent.futures.ThreadPoolExecutor()
    begun = False
    for number, path in enumerate(args.model):
        model = llm42.Model(path, on_device=args.backend == "cuda" and path.startswith("synthetic:"))
        for temperature in map(float, args.temperature.split(",")):
            ids = texts_of(model, args, args.texts[number % len(args.texts)], temperature, log)
            if not begun:
                print(*COLUMNS, sep="\t", file=out)
            begun = True
            replays = {M: logits_of(model, args, "fixed", M, ids) for M in args.replay_rows}
            for rows in args.fast_rows:
                fast = logits_of(model, args, "fast", rows, ids)
                for M, replay in replays.items():
                    texts = list(threads.map(judged_by_type, fast, replay,
                                             [[args.seed, i] for i in range(len(fast))], [temperature] * len(fast)))
                    name = os.path.basename(path.rstrip("/"))
                    head = dict(model=name.removeprefix("synthetic:").split(",")[0], backend=args.backend,
                                compute=args.compute, temperature=f"{temperature:g}", fast_rows=rows, replay_rows=M)
                    report(out, head, texts, np.random.default_rng(args.seed))


if __name__ == "__main__":
    main()
