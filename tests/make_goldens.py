#!/usr/bin/env python3
"""Makes the random checkpoints of tests/arch that have sliding windows by layer, and the golden.json of each.

    pip install torch transformers safetensors
    python3 tests/make_goldens.py          # writes them again
    python3 tests/make_goldens.py --check  # only compares every golden.json of tests/arch with what transformers gives

A golden.json holds logits and greedy tokens of HF transformers: fp32 arithmetic on the stored weights, on the CPU.
"""
import json
import os
import sys

import torch
import transformers
from safetensors.torch import save_file

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "arch")
SHAPE = dict(vocab_size=320, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, head_dim=16, max_position_embeddings=512, rms_norm_eps=1e-5, bos_token_id=0,
             eos_token_id=1, hidden_act="silu", dtype="bfloat16", tie_word_embeddings=True, rope_theta=10000.0)
FULL, SLIDING = "full_attention", "sliding_attention"
# The entries of config.json that a folder is about. The windows are shorter than the prompts below.
FOLDERS = {
    "qwen2_layer_types": dict(model_type="qwen2", use_sliding_window=True, sliding_window=16, max_window_layers=0,
                              layer_types=[FULL, SLIDING, FULL]),
    "qwen3_max_window_layers": dict(model_type="qwen3", use_sliding_window=True, sliding_window=20,
                                    max_window_layers=1),
    "ministral": dict(model_type="ministral", sliding_window=12, layer_types=[SLIDING, FULL, SLIDING]),
}
PROMPTS = (2, 7, 23, 60)  # tokens
GREEDY = 24


def write_model(folder, entries, seed):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({**SHAPE, **entries}, file, indent=2)
        file.write("\n")
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(folder))
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight":  # tied
            continue
        noise = torch.randn(tensor.shape, generator=generator)
        if "norm" in name:
            value = 1 + 0.1 * noise
        else:  # biases are small, and matrices keep the size of what passes through them
            value = 0.3 * noise if tensor.dim() == 1 else noise / tensor.shape[1]**0.5
        tensors[name] = value.to(torch.bfloat16).contiguous()
    save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})


def open_model(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                             attn_implementation="eager").eval()


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0]


def golden(model, prompts):
    out = []
    for ids in prompts:
        logits, text = logits_of(model, ids), list(ids)
        for _ in range(GREEDY):  # the whole text again for each token: slow, and as plain as can be
            text.append(int(logits_of(model, text)[-1].argmax()))
        row = lambda at: [round(float(x), 6) for x in logits[at]]
        out.append({"ids": list(ids), "logits_last": row(-1), "logits_mid": row(len(ids) // 2),
                    "greedy": text[len(ids):]})
    return {"source": f"transformers {transformers.__version__}, torch {torch.__version__}, fp32 arithmetic on the "
                      "stored weights, CPU", "prompts": out}


def check(folder):
    with open(os.path.join(folder, "golden.json")) as file:
        want = json.load(file)
    now = golden(open_model(folder), [p["ids"] for p in want["prompts"]])
    worst, tokens = 0.0, 0
    for a, b in zip(want["prompts"], now["prompts"]):
        for key in ("logits_last", "logits_mid"):
            worst = max(worst, max(abs(x - y) for x, y in zip(a[key], b[key])))
        tokens += sum(x != y for x, y in zip(a["greedy"], b["greedy"]))
    name = os.path.basename(folder)
    print(f"{name:<24} largest difference of a logit {worst:.6f}, greedy tokens that differ {tokens}")
    return worst < 1e-3 and tokens == 0


def main():
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if all([check(os.path.join(ROOT, name)) for name in sorted(os.listdir(ROOT))]) else 1)
    if sys.argv[1:]:
        sys.exit(__doc__)
    for seed, (name, entries) in enumerate(FOLDERS.items()):
        folder = os.path.join(ROOT, name)
        write_model(folder, entries, seed)
        generator = torch.Generator().manual_seed(100 + seed)
        prompts = [[0] + torch.randint(2, SHAPE["vocab_size"], (n - 1,), generator=generator).tolist() for n in PROMPTS]
        with open(os.path.join(folder, "golden.json"), "w") as file:
            json.dump(golden(open_model(folder), prompts), file)
            file.write("\n")
        print(folder)


main()
