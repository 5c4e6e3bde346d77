#!/usr/bin/env python3
"""What one model says in the arithmetics of several GPUs, computed on a CPU.

The model answers prompts of one random token in each arithmetic. Answers are compared with those of sm90: whether a
token differs, and the first one. Then the answers of sm90 are given to the model in each arithmetic (teacher-forced),
and the log-probability of each token is compared to the bit. sm90 was compared with GPUs, of the others only the steps.

    python3 sweep/science/arithmetics.py --model DIR [--model DIR ...] --texts N[,N...] --out FILE

A model in FP8 has other arithmetics than one in bf16. As a control, sm90 is computed a second time in other batches.
"""
import argparse
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "python"))
import llm42  # noqa: E402

BF16, FP8 = ["sm90", "sm90 again", "sm100", "sm80", "sm89", "fp32"], ["sm90", "sm90 again", "sm89", "fp32"]
COLUMNS = ["model", "temperature", "arithmetic", "texts", "tokens", "other_texts", "first_median", "positions",
           "other_bits", "distance_mean"]


def answers_of(model, arithmetic, prompts, args, temperature):
    """Tokens [texts, tokens]. A second time other requests share each pass."""
    running = 7 if "again" in arithmetic else 32
    with llm42.Engine(model, arithmetic=arithmetic.split()[0], preset="invariant", max_running=running,
                      max_context=args.tokens + 8) as engine:
        answers = engine.generate(prompts, deterministic=True, max_new_tokens=args.tokens, temperature=temperature,
                                  seed=args.seed, ignore_stop=True, progress=False)
        return np.array([answer.tokens for answer in answers])


def logprobs_of(model, arithmetic, texts):
    """Of each token but the first, [texts, tokens]."""
    rows = 24 if "again" in arithmetic else 64
    with llm42.Scorer(model, arithmetic=arithmetic.split()[0], rows=rows, max_context=texts.shape[1]) as scorer:
        return np.array([scorer.score(list(text)).logprobs[1:] for text in texts], np.float32)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", required=True, help="a folder; one or more")
    parser.add_argument("--texts", default="240", help="a number for all models, or one for each (default 240)")
    parser.add_argument("--arithmetics", help="a list, sm90 first (default: all that the model has, and the control)")
    parser.add_argument("--tokens", type=int, default=128, help="of an answer (default 128)")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--out", default="-", help="TSV (default: standard output)")
    args = parser.parse_args()
    named = args.arithmetics and args.arithmetics.split(",")
    if named and named[0] != "sm90":
        parser.error("--arithmetics: sm90 must be the first: the others are compared with it")
    counts = [int(count) for count in args.texts.split(",")]
    if len(counts) not in (1, len(args.model)):
        parser.error("--texts: one number, or as many as there are models")
    out = sys.stdout if args.out == "-" else open(args.out, "w", encoding="utf-8")
    print(f"# arithmetics.py, llm42 {llm42.__version__}, answers of {args.tokens} tokens, seed {args.seed}, preset "
          "invariant, on a CPU\n# other_texts, first_median: answers with another token than in sm90, and the first "
          "such token, counted from 0\n# other_bits: positions of the answers of sm90, given to the model, where the "
          "log-probability has other bits\n# distance_mean: of these log-probabilities", file=out)
    print(*COLUMNS, sep="\t", file=out)
    for path, count in zip(args.model, counts * len(args.model)):
        model = llm42.Model(path)
        random = np.random.default_rng(args.seed)
        prompts = [[int(random.integers(model.config["vocab"]))] for _ in range(count)]
        for temperature in (0.0, 0.8):
            for arithmetic in named or (FP8 if model.config["scaling"] else BF16):
                tokens = answers_of(model, arithmetic, prompts, args, temperature)
                if arithmetic == "sm90":
                    base, texts = tokens, np.concatenate([np.array(prompts), tokens], 1)
                logprobs = logprobs_of(model, arithmetic, texts)
                if arithmetic == "sm90":
                    given = logprobs
                differ = (tokens != base).any(1)
                first = np.median((tokens != base).argmax(1)[differ]) if differ.any() else "nan"
                bits = logprobs.view(np.uint32) != given.view(np.uint32)
                distance = np.abs(logprobs.astype(np.float64) - given)[bits].mean() if bits.any() else 0
                print(os.path.basename(path.rstrip("/")), f"{temperature:g}", arithmetic, count, args.tokens,
                      differ.sum(), first, bits.size, bits.sum(), f"{distance:.3g}", sep="\t", file=out, flush=True)


if __name__ == "__main__":
    main()
