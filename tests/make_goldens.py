#!/usr/bin/env python3
"""Makes most of the random checkpoints of tests/arch, and the golden.json of each.

    pip install torch transformers safetensors
    python3 tests/make_goldens.py NAME ... # writes these folders again, or, without a name, all
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
# Of the families that only have to be told apart.
SMALL = dict(vocab_size=160, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, head_dim=16)
YARN = dict(rope_type="yarn", rope_theta=1e6, factor=4.0, original_max_position_embeddings=32)
FULL, SLIDING = "full_attention", "sliding_attention"
# The entries of config.json that a folder is about. The windows are shorter than the prompts below.
FOLDERS = {
    "qwen2_layer_types": dict(model_type="qwen2", use_sliding_window=True, sliding_window=16, max_window_layers=0,
                              layer_types=[FULL, SLIDING, FULL]),
    "qwen3_max_window_layers": dict(model_type="qwen3", use_sliding_window=True, sliding_window=20,
                                    max_window_layers=1),
    "ministral": dict(model_type="ministral", sliding_window=12, layer_types=[SLIDING, FULL, SLIDING]),
    "llama_bias_linear": dict(SMALL, model_type="llama", attention_bias=True, mlp_bias=True, tie_word_embeddings=False,
                              rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.0)),
    "llama_wide_heads": dict(SMALL, model_type="llama", num_attention_heads=2, num_key_value_heads=1, head_dim=256),
    "qwen2_yarn": dict(SMALL, model_type="qwen2", rope_parameters=YARN),
    "qwen3_bias": dict(SMALL, model_type="qwen3", attention_bias=True),
    "ministral3": dict(SMALL, model_type="ministral3", sliding_window=None, rope_parameters=dict(
        YARN, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1)),
    "mixtral": dict(SMALL, model_type="mixtral", hidden_size=64, num_local_experts=4, num_experts_per_tok=2,
                    sliding_window=None),
    "mixtral_stacked": dict(SMALL, model_type="mixtral", hidden_size=64, num_local_experts=4, num_experts_per_tok=2,
                            sliding_window=9),
    "phi3": dict(SMALL, model_type="phi3", sliding_window=None, pad_token_id=1,
                 head_dim=8),  # hidden_size / num_attention_heads: it knows no other
    "seed_oss": dict(SMALL, model_type="seed_oss", attention_bias=True, attention_out_bias=False),
    "smollm3": dict(SMALL, model_type="smollm3", no_rope_layers=[1, 0, 1], pad_token_id=1),
    "granite": dict(SMALL, model_type="granite", head_dim=8, embedding_multiplier=12.0, attention_multiplier=0.15,
                    residual_multiplier=0.22, logits_scaling=3.0),
}
PROMPTS = (2, 7, 23, 60)  # tokens
GREEDY = 24


def separate(name, tensor):
    """The matrices of a tensor that holds those of all experts of a layer, [experts, rows, columns]."""
    name = name.replace(".mlp.", ".block_sparse_moe.")
    for expert, both in enumerate(tensor if tensor.dim() == 3 else ()):
        parts = zip(("w1", "w3"), both.chunk(2)) if "gate_up" in name else [("w2", both)]
        for part, matrix in parts:
            yield f"{name.rsplit('.', 1)[0]}.{expert}.{part}.weight", matrix.contiguous()
    if tensor.dim() < 3:
        yield name, tensor


def write_model(folder, entries, seed):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({**SHAPE, **entries}, file, indent=2)
        file.write("\n")
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(folder))
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and entries.get("tie_word_embeddings", True):
            continue
        noise = torch.randn(tensor.shape, generator=generator)
        if "norm" in name:
            value = 1 + 0.1 * noise
        else:  # biases are small, and matrices keep the size of what passes through them
            value = 0.3 * noise if tensor.dim() == 1 else noise / tensor.shape[-1]**0.5
            # Routers are sure, and experts matter less than the rest: rounding to bf16 must not change the logits much.
            value *= 8 if name.endswith("mlp.gate.weight") else 0.25 if name.endswith("experts.down_proj") else 1
        tensors[name] = value.to(torch.bfloat16).contiguous()
    if os.path.basename(folder) == "mixtral":  # as families spelled their experts before transformers 5
        tensors = dict(part for name in tensors for part in separate(name, tensors[name]))
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
    if set(sys.argv[1:]) - set(FOLDERS):
        sys.exit(__doc__)
    for seed, (name, entries) in enumerate(FOLDERS.items()):
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        folder = os.path.join(ROOT, name)
        write_model(folder, entries, seed)
        generator = torch.Generator().manual_seed(100 + seed)
        prompts = [[0] + torch.randint(2, {**SHAPE, **entries}["vocab_size"], (n - 1,), generator=generator).tolist() for n in PROMPTS]
        with open(os.path.join(folder, "golden.json"), "w") as file:
            json.dump(golden(open_model(folder), prompts), file)
            file.write("\n")
        print(folder)


main()
