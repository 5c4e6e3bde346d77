#!/usr/bin/env python3
"""The margin law of flips: how often a candidate fails verification, predicted without fitting anything.

A FAST pass and a replay pass give almost the same logits. The greedy token flips if the difference of their errors at
the two largest logits exceeds the margin between these logits. If errors do not depend on margins,

    P(flip) = integral of P(margin = m) P(error < -m) dm.

The texts are cut into three parts. Margins are taken from one part, by FAST passes alone, errors from another, and flips
are counted on the third; the parts take turns, and predictions and counts are means of the three. With a temperature, logits are divided by it and Gumbel noise is added, the same
on both sides, as a sampler does.

    python3 sweep/science/margins.py --model DIR [--model DIR ...] --out FILE
"""
import argparse
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "python"))
import llm42  # noqa: E402

COLUMNS = ["model", "backend", "compute", "logits", "temperature", "fast_rows", "replay_rows", "texts", "tokens",
           "margin_median", "error_sd", "predicted", "measured", "low", "high", "flips"]


def texts_of(model, args, temperature):
    """The model's own answers to prompts of one random token, as ids."""
    random = np.random.default_rng(args.seed)
    with llm42.Engine(model, backend=args.backend, max_context=args.tokens + 8, max_running=32) as engine:
        prompts = [[int(random.integers(model.config["vocab"]))] for _ in range(args.texts)]
        answers = engine.generate(prompts, deterministic=True, max_new_tokens=args.tokens, temperature=temperature,
                                  seed=args.seed, progress=False)
        return [np.array(list(a.prompt) + list(a.tokens), np.int32) for a in answers]


def logits_of(model, args, schedule, rows, ids):
    """fp32 logits [texts][positions, V] of passes of so many rows."""
    scorer = llm42.Scorer(model, backend=args.backend, schedule=schedule, rows=rows, compute=args.compute,
                          logits_fp32=True, max_context=args.tokens + 8)
    return [np.concatenate([part.copy() for _, part in scorer.logits(text)]) for text in ids]


def rounded(x):
    """To the nearest bf16, ties to even, as fp32."""
    bits = x.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000).astype(np.uint32).view(np.float32)


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", required=True, help="a folder; may be given several times")
    parser.add_argument("--backend", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--compute", default="bf16", choices=["bf16", "fp32"])
    parser.add_argument("--temperature", default="0,0.8", help="a list (default 0,0.8)")
    parser.add_argument("--fast-rows", default="1,4,16", help="rows of FAST passes (default 1,4,16)")
    parser.add_argument("--replay-rows", default="32,256", help="rows of FIXED passes, M (default 32,256)")
    parser.add_argument("--texts", type=int, default=96, help="in all three parts together (default 96)")
    parser.add_argument("--tokens", type=int, default=255, help="of a text (default 255)")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--out", default="-", help="TSV (default: standard output)")
    args = parser.parse_args()
    if args.texts < 3:
        parser.error("--texts: at least 3, one for each part")
    out = sys.stdout if args.out == "-" else open(args.out, "w")
    print(f"# margins.py, llm42 {llm42.__version__}, {args.texts} texts of {args.tokens} tokens, seed {args.seed}\n"
          "# predicted: from margins and errors of other texts; measured: share of tokens that flip, with 95% by texts",
          file=out)
    print(*COLUMNS, sep="\t", file=out)
    for path in args.model:
        model = llm42.Model(path)
        for temperature in map(float, args.temperature.split(",")):
            ids = texts_of(model, args, temperature)
            replays = {M: logits_of(model, args, "fixed", M, ids) for M in map(int, args.replay_rows.split(","))}
            for rows in map(int, args.fast_rows.split(",")):
                fast = logits_of(model, args, "fast", rows, ids)
                for M, replay in replays.items():
                    for kind in ["bf16", "fp32"]:
                        random = np.random.default_rng(args.seed)
                        of = rounded if kind == "bf16" else np.asarray
                        parts = [judged(of(f), of(r), random.gumbel(size=f.shape).astype(np.float32), temperature)
                                 for f, r in zip(fast, replay)]
                        margin = [np.concatenate([p[0] for p in parts[k::3]]) for k in range(3)]
                        error = [np.concatenate([p[1] for p in parts[k::3]]) for k in range(3)]
                        flips = [p[2] for p in parts]
                        low, high = interval(flips, random)
                        every = np.concatenate(flips)
                        print(os.path.basename(path.rstrip("/")), args.backend, args.compute, kind, f"{temperature:g}",
                              rows, M, args.texts, len(every), f"{np.median(np.concatenate(margin)):.4g}",
                              f"{np.concatenate(error).std():.4g}",
                              f"{np.mean([predicted(margin[k], error[k - 2]) for k in range(3)]):.4g}", f"{every.mean():.4g}", f"{low:.4g}", f"{high:.4g}",
                              int(every.sum()), sep="\t", file=out, flush=True)


if __name__ == "__main__":
    main()
