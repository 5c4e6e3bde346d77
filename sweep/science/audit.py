#!/usr/bin/env python3
"""Parts of audit.sh: models and transcripts of a provider who cheats, and counts of what an audit finds. Needs numpy.

    audit.py requests IDS SEED         lines for generate --batch from lines of token ids; SEED is that of the first
    audit.py cut                       a filter: keeps the last half of each prompt, behind its begin-of-text token
    audit.py quantize BITS FROM TO     a copy of the model FROM whose linear layers went through int8 or int4
    audit.py flip TENSOR BIT FROM TO   a copy in which one bit of the weight in the middle of a tensor is flipped
    audit.py claim CHEATED HONEST TO   the transcript CHEATED with the model, prompts and seeds of HONEST
    audit.py tally FILE LABEL...       rows of the result from a file of audit --verdicts
    audit.py curves RESULT SPEED MODEL detection by the cost of the audit, for the figure
"""
import glob
import hashlib
import json
import math
import os
import re
import shutil
import sys

import numpy as np

WINDOW = 16  # tokens in a window of the verdicts
PROMPT, ANSWERS = 65, 1000  # tokens of a prompt; answers of the traffic in the figure


def requests(path, seed):
    for i, line in enumerate(open(path)):
        print(json.dumps({"ids": [0] + [int(x) for x in re.split("[ ,]+", line.strip())], "seed": int(seed) + i}))


def cut():
    for line in sys.stdin:
        request = json.loads(line)
        request["ids"] = request["ids"][:1] + request["ids"][1:][len(request["ids"][1:]) // 2:]
        print(json.dumps(request))


def tensors(folder):
    """For each tensor of a model: its name, its shape and its bf16 words, which can be changed in the file."""
    for path in sorted(glob.glob(os.path.join(folder, "*.safetensors"))):
        size = int(np.fromfile(path, "<u8", 1)[0])
        header = json.loads(open(path, "rb").read(8 + size)[8:])
        for name, about in header.items():
            if name == "__metadata__":
                continue
            if about["dtype"] != "BF16":
                sys.exit(f"{path}: {name}: dtype {about['dtype']}: only BF16 is supported")
            first, last = about["data_offsets"]
            yield name, about["shape"], np.memmap(path, "<u2", "r+", 8 + size + first, ((last - first) // 2,))


def copy(source, to):
    shutil.copytree(source, to, copy_function=shutil.copyfile)
    os.chmod(to, 0o755)


def quantized(weights, bits, group):
    """Symmetric: each group of a row has the scale at which its largest magnitude is the largest integer."""
    groups = weights.reshape(-1, group)
    most = 2 ** (bits - 1) - 1
    scale = np.abs(groups).max(axis=1, keepdims=True) / np.float32(most)
    scale[scale == 0] = 1
    return (np.rint(groups / scale).clip(-most, most) * scale).astype(np.float32).reshape(-1)


def to_bf16(x):
    bits = x.view("<u4").astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def quantize(bits, source, to):
    copy(source, to)
    for name, shape, words in tensors(to):
        if re.search(r"(self_attn|mlp)\..*_proj\.weight$", name):
            group = shape[1] if int(bits) == 8 else math.gcd(64, shape[1])
            weights = (words.astype("<u4") << 16).view("<f4")
            words[:] = to_bf16(quantized(weights, int(bits), group))


def flip(tensor, bit, source, to):
    copy(source, to)
    for name, shape, words in tensors(to):
        if name == tensor:
            words[shape[0] // 2 * shape[1] + shape[1] // 2] ^= 1 << int(bit)
            return
    sys.exit(f"{source}: no tensor {tensor}")


def values(path, keys):
    """By request: the lines with these keys; at "": those of the head."""
    at, found = "", {"": {}}
    for line in open(path):
        key = line.split(":")[0]
        if key == "request":
            at = line
            found[at] = {}
        if key in keys:
            found[at][key] = line
    return found


def claim(cheated, honest, to):
    keep = values(honest, ("model", "model_hash", "prompt", "seed", "deterministic"))
    at, head, answer, whole = "", "", "", ""
    with open(to, "w") as out:
        for line in open(cheated):
            key = line.split(":")[0]
            if key == "request":
                at, answer = line, ""
            line = keep[at].get(key, line) if key not in ("requests", "file_digest") else line
            if key == "digest":
                line = f"digest: {hashlib.sha256((head + answer).encode()).hexdigest()}\n"
            if key == "file_digest":
                line = f"file_digest: {hashlib.sha256(whole.encode()).hexdigest()}\n"
            whole += line
            answer += line
            if key == "result":
                head = whole
            out.write(line)


def interval(wrong, windows):
    """95% of the share wrong / windows, by 2,000 draws of requests. Where all or none are wrong, draws say nothing;
    then requests count as one trial each."""
    n, q = len(wrong), wrong.sum() / windows.sum()
    if q in (0, 1):
        other = 1 - 0.025 ** (1 / n)
        return (0, other) if q == 0 else (1 - other, 1)
    drawn = np.random.RandomState(1).randint(0, n, (2000, n))
    return np.percentile(wrong[drawn].sum(axis=1) / windows[drawn].sum(axis=1), [2.5, 97.5])


def tally(path, *labels):
    table = np.loadtxt(path, skiprows=1, dtype=int, ndmin=2)
    for size in (WINDOW, 2 * WINDOW):
        for revealed, columns in (("tokens", [3]), ("tokens and log-probabilities", [3, 4])):
            found = {}
            for row in table:
                key = (row[0], row[1] * WINDOW // size)
                found[key] = found.get(key, False) or bool(row[columns].any())
            ids = sorted({request for request, _ in found})
            wrong = np.array([sum(found[k] for k in found if k[0] == i) for i in ids])
            windows = np.array([sum(k[0] == i for k in found) for i in ids])
            low, high = interval(wrong, windows)
            print(*labels, revealed, size, windows.sum(), wrong.sum(), f"{wrong.sum() / windows.sum():.5f}",
                  f"{low:.5f}", f"{high:.5f}", len(ids), (wrong > 0).sum(), sep="\t")


def read(path):
    lines = [line.rstrip("\n").split("\t") for line in open(path) if not line.startswith("#")]
    return [dict(zip(lines[0], line)) for line in lines[1:]]


def rows_of(share, windows):
    """Rows that an audit of an answer runs if each of its windows is drawn with this probability: all tokens up to
    the end of the last drawn window."""
    return sum(share * (1 - share) ** (windows - j) * (PROMPT + j * WINDOW - 1) for j in range(1, windows + 1))


def curves(result, speed, model):
    rate = {(r["model"], r["what"]): float(r["us_per_answer"]) for r in read(speed)}
    tokens = {r["model"]: int(r["tokens"]) for r in read(speed)}
    windows = tokens[model] // WINDOW
    serving, whole = rate[model, "unverified"], rate[model, "audit"]  # ordinary serving is the cheapest
    print("cheat", "revealed", "windows", "cost_pct", "detected", sep="\t")
    for r in read(result):
        if r["model"] != model or r["temperature"] != "0.8" or r["window"] != str(WINDOW):
            continue
        all_windows = ANSWERS * windows
        for k in sorted({round(10 ** (i / 20)) for i in range(int(20 * math.log10(all_windows)))} | {all_windows}):
            cost = 100 * rows_of(k / all_windows, windows) / rows_of(1, windows) * whole / serving
            print(r["cheat"], r["revealed"], k, f"{cost:.5g}", f"{1 - (1 - float(r['q'])) ** k:.6f}", sep="\t")


if __name__ == "__main__":
    parts = (requests, cut, quantize, flip, claim, tally, curves)
    chosen = [p for p in parts if sys.argv[1:2] == [p.__name__]]
    if not chosen:
        sys.exit(__doc__)
    chosen[0](*sys.argv[2:])
