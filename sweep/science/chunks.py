#!/usr/bin/env python3
"""How often a prompt by chunks and a prompt token by token end in another token: FAST and INVARIANT prompts on a CPU.

    make shared && python3 sweep/science/chunks.py > sweep/results/cpu/chunks.tsv     # seven minutes on two cores

FAST passes of the CPU take prompts into recurrent layers by chunks of 64 tokens, and INVARIANT ones token by token. A
model writes texts, and each text is a prompt for an engine of either kind, alone, which says one token. tiny42, which
has no recurrent layers, shows what else differs between such passes.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/python"))
import llm42  # noqa: E402

LENGTHS, TEXTS = (64, 256, 512), 200


def texts(model):
    with llm42.Engine(model, preset="invariant", max_running=16, max_context=640) as engine:
        asked = [dict(prompt="The", seed=seed) for seed in range(1, TEXTS + 1)]
        answers = engine.generate(asked, max_new_tokens=max(LENGTHS), temperature=1.0, ignore_stop=True)
        return [list(answer.tokens) for answer in answers]


def said(model, prompts, dtype, fast, temperature):
    options = dict(mode="nondeterministic") if fast else dict(preset="invariant")
    with llm42.Engine(model, compute=dtype, max_running=1, token_budget=1024, max_context=640, **options) as engine:
        answers = engine.generate(prompts, max_new_tokens=1, temperature=temperature, ignore_stop=True,
                                  deterministic=not fast, seed=7)
        return [(answer.tokens[0], answer.logprobs[0]) for answer in answers]


print("# prompts that end in another token, or other bits of its log-probability, by FAST than by INVARIANT passes\n"
      "# difference: mean distance of the log-probabilities where the token is the same\n"
      "model\tcompute\tprompt_tokens\ttemperature\tprompts\tother_bits\tother_token\tdifference")
for path in ("examples/hybrid42", "examples/tiny42"):
    model = llm42.Model(path)
    written = texts(model)
    for dtype in ("fp32", "bf16"):
        for length in LENGTHS:
            for temperature in (0.0, 0.8):
                prompts = [text[:length] for text in written]
                pairs = list(zip(*(said(model, prompts, dtype, fast, temperature) for fast in (True, False))))
                same = [abs(float(a[1]) - float(b[1])) for a, b in pairs if a[0] == b[0]]
                print(path.rsplit("/", 1)[-1], dtype, length, temperature, len(pairs), sum(a != b for a, b in pairs),
                      sum(a[0] != b[0] for a, b in pairs), f"{sum(same) / max(1, len(same)):.3g}", sep="\t", flush=True)
