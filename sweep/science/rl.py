#!/usr/bin/env python3
"""Equal bits in training and serving: tiny42 learns by GRPO to write without the letter e.

A trainer divides the probability that it gives a token by the one with which the server drew it. Right after the draw
both have the same weights, so this ratio should be 1, but it is not if the two round differently. Three ways to learn
are compared:

    fast    tokens are drawn by ordinary requests (FAST passes), and the trainer's probabilities are PyTorch's
    mixed   tokens are drawn by deterministic requests, and the trainer's probabilities are PyTorch's
    llm42   tokens are drawn by deterministic requests, and the trainer's probabilities are llm42's, with the gradient
            of PyTorch's (llm42_torch.logprobs)

The reward of an answer is the share of its words that have no e. Each step draws --samples answers to each of --prompts
beginnings at temperature 1, in one engine, and takes one step of AdamW on the clipped loss of GRPO. The trainer keeps
fp32 weights and rounds them to bf16 when it uses them. llm42 computes in bf16, and PyTorch in bf16 on a GPU but in fp32
on a CPU, where its bf16 is slow. After each step the rounded weights are written into the memory of the model, which
engine and scorer use.

    make shared && python3 sweep/science/rl.py --out sweep/results/science/rl.tsv

Six minutes on two cores; it needs PyTorch. --backend cuda runs both sides on a GPU.
"""
import argparse
import math
import os
import re
import sys
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "python"))
import llm42  # noqa: E402

try:
    import torch
    import torch.nn.functional as F
    import llm42_torch
except ImportError:
    sys.exit("rl.py: it needs PyTorch: python3 -m pip install torch")

WAYS = ("fast", "mixed", "llm42")
PLAIN = {"embed", "head", "final_norm", "attention_norm", "ffn_norm", "q", "k", "v", "o", "gate", "up", "down"}
COLUMNS = ("way", "seed", "step", "reward", "equal", "mean_abs_log_ratio", "ratio_low", "ratio_high", "kl", "clipped",
           "seconds")
BEGINNINGS = ("It was", "Once upon a time", "The Count", "She said that", "In the morning", "He looked at",
              "There was", "The old man", "My dear", "When they had", "At last", "I do not know", "The house",
              "And so", "Her mother", "On the road")


class Trainer:
    """A Llama in PyTorch, with fp32 weights by the names of Model.weights()."""

    def __init__(self, model, device):
        self.config, self.device, self.into = model.config, device, llm42_torch.weights(model)
        if not PLAIN.issuperset(name.split(".")[-1] for name in self.into) or (
                self.config["arch"], self.config["rope"]) != ("llama", 0):
            sys.exit(f"rl.py: {model.path}: is no plain Llama in bf16, which is all that the trainer computes")
        self.weights = {name: w.to(device, torch.float32, copy=True).requires_grad_() for name, w in self.into.items()}
        d, base = self.config["head_dim"], self.config["rope_theta"]
        angle = torch.arange(512.0)[:, None] * base ** (-torch.arange(0, d, 2) / d)
        self.type = torch.bfloat16 if device == "cuda" else torch.float32
        self.cos, self.sin = (torch.cat([f(angle)] * 2, 1).to(device, self.type) for f in (torch.cos, torch.sin))
        self.optimiser = None

    def logprobs(self, ids):
        """[texts, tokens - 1], in fp32: of each token behind those before it. ids: [texts, tokens], padded behind."""
        w = {name: weight.to(torch.bfloat16).to(self.type) for name, weight in self.weights.items()}
        texts, n, c = *ids.shape, self.config

        def norm(x, weight):
            y = x.float()
            return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + c["norm_eps"])).to(x.dtype) * weight

        def heads(x, count):
            return x.view(texts, n, count, -1).transpose(1, 2)

        def rotated(x):
            a, b = x.chunk(2, -1)
            return x * self.cos[:n] + torch.cat([-b, a], -1) * self.sin[:n]

        x = w["embed"][ids]
        for i in range(c["layers"]):
            def of(name, i=i):
                return w[f"layer.{i}.{name}"]
            h = norm(x, of("attention_norm"))
            q, k, v = (heads(F.linear(h, of(name)), c[count]) for name, count in
                       (("q", "heads"), ("k", "kv_heads"), ("v", "kv_heads")))
            y = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True, enable_gqa=True)
            x = x + F.linear(y.transpose(1, 2).reshape(texts, n, -1), of("o"))
            h = norm(x, of("ffn_norm"))
            x = x + F.linear(F.silu(F.linear(h, of("gate"))) * F.linear(h, of("up")), of("down"))
        logits = F.linear(norm(x, w["final_norm"]), w.get("head", w["embed"])).float()
        return logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None])[:, :, 0]

    def step(self, loss, rate):
        if self.optimiser is None:
            self.optimiser = torch.optim.AdamW(self.weights.values(), lr=rate, weight_decay=0)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        with torch.no_grad():
            for name, weight in self.weights.items():
                self.into[name].copy_(weight.to(torch.bfloat16))  # the model's memory


def reward(text):
    words = re.findall("[a-z]+", text.lower())
    return sum("e" not in word for word in words) / len(words) if words else 0.0


def ask(options, engine, way, seed, step):
    """The answers to this step's beginnings, --samples of each behind one another."""
    first = step * options.prompts
    asked = [{"prompt": BEGINNINGS[(first + p) % len(BEGINNINGS)],
              "seed": 1 + s + 1000 * (p + 1000 * (step + 1000 * seed))}
             for p in range(options.prompts) for s in range(options.samples)]
    return engine.generate(asked, deterministic=way != "fast", max_new_tokens=options.tokens, ignore_stop=True,
                           temperature=1, progress=False)


def learn(options, way, seed):
    """Yields a row of COLUMNS for each step."""
    model = llm42.Model(options.model, no_mmap=True)
    device = "cuda" if options.backend == "cuda" else "cpu"
    engine = llm42.Engine(model, preset="best", backend=options.backend, max_running=options.prompts * options.samples,
                          max_context=512)
    scorer = llm42.Scorer(model, backend=options.backend, max_context=512, rows=64)
    trainer = Trainer(model, device)
    for step in range(options.steps):
        begun = time.monotonic()
        answers = ask(options, engine, way, seed, step)
        texts = [np.concatenate([a.prompt, a.tokens]) for a in answers]
        ids = np.zeros((len(texts), max(map(len, texts))), np.int64)
        for i, text in enumerate(texts):
            ids[i, :len(text)] = text
        all_own = trainer.logprobs(torch.from_numpy(ids).to(device))
        own = [row[len(a.prompt) - 1:len(text) - 1] for row, a, text in zip(all_own, answers, texts)]
        if way == "llm42":
            own = [llm42_torch.logprobs(scorer, text, row) for text, row in zip(texts, own)]
        new, drawn = torch.stack(own), torch.from_numpy(np.stack([a.logprobs for a in answers])).to(device)
        rewards = torch.tensor([reward(a.text) for a in answers], device=device).view(options.prompts, options.samples)
        advantage = (rewards - rewards.mean(1, True)) / (rewards.std(1, keepdim=True) + 1e-4)
        log_ratio = new - drawn
        ratio, advantage = log_ratio.exp(), advantage.view(-1, 1)
        clipped = ratio.clamp(1 - options.clip, 1 + options.clip)
        trainer.step(-torch.minimum(ratio * advantage, clipped * advantage).mean(), options.rate)
        engine.reload(), scorer.reload()
        with torch.no_grad():
            yield {"way": way, "seed": seed, "step": step, "reward": rewards.mean().item(),
                   "equal": (new.view(torch.int32) == drawn.view(torch.int32)).double().mean().item(),
                   "mean_abs_log_ratio": log_ratio.abs().double().mean().item(), "ratio_low": ratio.min().item(),
                   "ratio_high": ratio.max().item(), "kl": (ratio.double() - 1 - log_ratio.double()).mean().item(),
                   "clipped": (ratio != clipped).double().mean().item(), "seconds": time.monotonic() - begun}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--out", default="rl.tsv")
    parser.add_argument("--model", default="examples/tiny42")
    parser.add_argument("--backend", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--ways", default=",".join(WAYS))
    for name, default in (("steps", 100), ("seeds", 3), ("prompts", 8), ("samples", 8), ("tokens", 24)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--rate", type=float, default=1e-4, help="of AdamW")
    parser.add_argument("--clip", type=float, default=0.2)
    options = parser.parse_args()
    ways = options.ways.split(",")
    for way in ways:
        if way not in WAYS:
            parser.error(f"--ways: '{way}': must be of {','.join(WAYS)}")
    for name, least in (("steps", 1), ("seeds", 1), ("prompts", 1), ("samples", 2), ("tokens", 1)):
        if getattr(options, name) < least:
            parser.error(f"--{name}: must be at least {least}")
    if not os.access(os.path.dirname(options.out) or ".", os.W_OK):
        parser.error(f"--out: {options.out}: cannot be written")
    rows = []
    for seed in range(1, options.seeds + 1):
        for way in ways:
            begun = time.monotonic()
            rows += learn(options, way, seed)
            last = rows[-1]
            equal = 100 * sum(row["equal"] for row in rows[-options.steps:]) / options.steps
            print(f"{way}, seed {seed}: {equal:.1f}% equal bits, "
                  f"reward {rows[-options.steps]['reward']:.3f} -> {last['reward']:.3f}, "
                  f"{time.monotonic() - begun:.0f} s", flush=True)
    device = torch.cuda.get_device_name() if options.backend == "cuda" else "cpu"
    with open(options.out, "w") as file:
        file.write(f"# tool: rl.py {' '.join(sys.argv[1:])}\n# device: {device}\n# torch: {torch.__version__}\n")
        file.write("\t".join(COLUMNS) + "\n")
        for row in rows:
            file.write("\t".join(f"{row[c]:.6g}" if isinstance(row[c], float) else str(row[c]) for c in COLUMNS) + "\n")


if __name__ == "__main__":
    main()
