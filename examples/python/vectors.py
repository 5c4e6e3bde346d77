"""Writes conformance vectors: what tiny42 answers, to the bit, so that another engine can be compared with it.

    make shared && python3 examples/python/vectors.py examples/tiny42/vectors.tsv

Each of 40 prompts is the beginning of a text that the model itself draws, of 2 to 80 tokens: they need no tokenizer.
Each answer is greedy, has at most 32 tokens, and is computed by INVARIANT passes of one row, once for each arithmetic.
"""
import struct
import sys

import llm42

HEAD = """\
# Conformance vectors of examples/tiny42: examples/python/conformance.py compares an engine with them.
# prompt: token ids, of which the first is BOS (0). tokens: what follows at temperature 0, which is 32 tokens, or fewer
# if the end token (1) is the last of them. logprobs: for each of these tokens the bits of the natural logarithm of its
# probability, a float of 32 bits as 8 hexadecimal digits.
# Both arithmetics have weights and activations of 16 bits (bf16). They differ in how sums round: fp32 is a CPU's own
# arithmetic, and sm90 that of an H100 or H200.
prompt	fp32_tokens	fp32_logprobs	sm90_tokens	sm90_logprobs
"""
model = llm42.Model("examples/tiny42")
with llm42.Engine(model, preset="invariant", arithmetic="fp32", max_running=1) as engine:
    drawn = engine.generate([{"prompt": "", "seed": i, "max_new_tokens": 2 * i - 1} for i in range(1, 41)],
                            temperature=0.8, ignore_stop=True)
    prompts = [[0, *request.tokens.tolist()] for request in drawn]
columns = [[" ".join(map(str, prompt)) for prompt in prompts]]
for arithmetic in ("fp32", "sm90"):
    with llm42.Engine(model, preset="invariant", arithmetic=arithmetic, max_running=1) as engine:
        answers = engine.generate(prompts, max_new_tokens=32)
        columns.append([" ".join(map(str, answer.tokens)) for answer in answers])
        columns.append([" ".join(struct.pack(">f", value).hex() for value in answer.logprobs) for answer in answers])
with open(sys.argv[1], "w", encoding="ascii") as file:
    file.write(HEAD)
    file.writelines("\t".join(row) + "\n" for row in zip(*columns))
