#!/usr/bin/env python3
"""Does Python give the bits that C gives on a backend, and does a CPU that rounds as a Hopper GPU give them again?

    B=build BACKEND=cuda python3 sweep/h200/bits.py MODEL...

For each model and preset, 32 requests run together, by llm42.Engine and by build/generate. Of these 24 are
deterministic. An answer is equal if all ids and all bits of their log-probabilities are. There is a row of TSV for each
comparison, all of them with what C answered on the backend:
    python    the deterministic answers of Python
    cpu       the deterministic answers of C on the CPU, preset invariant, arithmetic sm90
    fp32      the same in the CPU's own arithmetic: a control, of which some must differ
    ordinary  the ordinary requests on the CPU, preset invariant: not promised to be equal, so reported only
The exit status is 1 if an answer of the first two differs, or none of the control.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

B, BACKEND = os.environ.get("B", "build"), os.environ.get("BACKEND", "cuda")
os.environ.setdefault("LLM42_LIBRARY", os.path.join(B, "libllm42_python.so"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/python"))
import llm42  # noqa: E402

TEXTS = ["It was the best of times", "Once upon a time", "The landlord", "I had no idea", "He went on", "Mr. Pickwick",
         "In the middle of the night", "She looked at him and"]
REQUESTS = [{"prompt": ", and ".join(TEXTS[(i + k) % 8] for k in range(1 + i % 3)), "max_tokens": 24 + 3 * i,
             "temperature": (0, 0.8, 1)[i % 3], "seed": i + 1, "deterministic": i % 4 > 0} for i in range(32)]


def bits(ids, logprobs):
    return np.asarray(ids, np.int32).tobytes(), np.asarray(logprobs, np.float32).tobytes()


def by_c(model, preset, backend, arithmetic):
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/in", "w", encoding="utf-8") as file:
            file.writelines(json.dumps(request) + "\n" for request in REQUESTS)
        subprocess.run([B + "/generate", "--model", model, "--backend", backend, "--arithmetic", arithmetic, "--preset",
                        preset, "--batch", folder + "/in", "--out", folder + "/out"], check=True)
        with open(folder + "/out", encoding="utf-8") as file:
            answers = [json.loads(line) for line in file]
    return [bits(a["ids"], a["logprobs"]) for a in answers]


def by_python(model, preset):
    asked = [{"max_new_tokens" if k == "max_tokens" else k: v for k, v in r.items()} for r in REQUESTS]
    with llm42.Engine(model, preset=preset, backend=BACKEND, arithmetic="sm90") as engine:
        return [bits(a.tokens, a.logprobs) for a in engine.generate(asked, progress=False)]


def main(models):
    good = True
    print("model\tpreset\tcomparison\tanswers\ttokens\tdiffer", flush=True)
    for path in models:
        cpu = {arithmetic: by_c(path, "invariant", "cpu", arithmetic) for arithmetic in ("sm90", "fp32")}
        for preset in ("invariant", "best", "dvr"):
            c = by_c(path, preset, BACKEND, "sm90")
            for name, others, deterministic in (("python", by_python(path, preset), True), ("cpu", cpu["sm90"], True),
                                                ("fp32", cpu["fp32"], True), ("ordinary", cpu["sm90"], False)):
                pairs = [(a, b) for a, b, r in zip(c, others, REQUESTS) if r["deterministic"] == deterministic]
                differ = sum(a != b for a, b in pairs)
                good &= {"python": differ == 0, "cpu": differ == 0, "fp32": differ > 0, "ordinary": True}[name]
                print(os.path.basename(path), preset, name, len(pairs), sum(len(a[0]) // 4 for a, _ in pairs), differ,
                      sep="\t", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
