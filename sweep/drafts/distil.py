#!/usr/bin/env python3
"""Distils a small model of the llama family from a larger one with the same vocabulary, for drafts.

    python3 sweep/drafts/distil.py --teacher FOLDER --out examples/draft42

The teacher writes the text that it is distilled on: sequences sampled from it at temperature 1, at 0.8 and greedily.
The student learns the teacher's distribution at each position (the Kullback-Leibler divergence), since a draft is
accepted where both draw the same token. Needs PyTorch and a GPU. OUT gets config.json, model.safetensors (bf16),
training.json and curve.tsv: loss and acceptance on text that no step has seen, by step.

Acceptance is measured as the engine will: greedily, the share of positions where both have the same most likely token;
at temperature 0.8, where both draw the same one with the same Gumbel noise; beside it with noise of the student's own.
"""
import argparse
import json
import math
import os
import struct
import time

import torch
import torch.nn.functional as F


def load_safetensors(folder):
    tensors = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".safetensors"):
            continue
        data = open(os.path.join(folder, name), "rb").read()
        size = struct.unpack("<Q", data[:8])[0]
        for key, t in json.loads(data[8:8 + size]).items():
            if key == "__metadata__":
                continue
            begin, end = (8 + size + o for o in t["data_offsets"])
            raw = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.bfloat16)
            tensors[key] = raw.reshape(t["shape"])
    return tensors


def save_safetensors(path, tensors):
    header, at = {}, 0
    for key, t in tensors.items():
        size = t.numel() * 2
        header[key] = {"dtype": "BF16", "shape": list(t.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for t in tensors.values():
            f.write(t.contiguous().cpu().view(torch.int16).numpy().tobytes())


class Llama(torch.nn.Module):
    """Without biases, with tied embeddings. Parameters have the names that they have in a checkpoint."""

    def __init__(self, config, tensors=None, device="cuda"):
        super().__init__()
        c = self.c = config
        d, kv, f = c["hidden_size"], c["num_key_value_heads"] * c["head_dim"], c["intermediate_size"]
        q = c["num_attention_heads"] * c["head_dim"]
        shapes = {"model.embed_tokens.weight": (c["vocab_size"], d), "model.norm.weight": (d,)}
        for i in range(c["num_hidden_layers"]):
            p = f"model.layers.{i}."
            shapes |= {p + "input_layernorm.weight": (d,), p + "post_attention_layernorm.weight": (d,),
                       p + "self_attn.q_proj.weight": (q, d), p + "self_attn.k_proj.weight": (kv, d),
                       p + "self_attn.v_proj.weight": (kv, d), p + "self_attn.o_proj.weight": (d, q),
                       p + "mlp.gate_proj.weight": (f, d), p + "mlp.up_proj.weight": (f, d),
                       p + "mlp.down_proj.weight": (d, f)}
        self.w = {}
        for key, shape in shapes.items():
            if tensors:
                value = tensors[key].to(device)
            elif len(shape) == 1:
                value = torch.ones(shape, device=device)
            else:
                deep = math.sqrt(2 * c["num_hidden_layers"]) if "o_proj" in key or "down_proj" in key else 1
                value = torch.randn(shape, device=device) * 0.02 * (1 if "embed" in key else 2) / deep
            self.w[key] = torch.nn.Parameter(value, requires_grad=tensors is None)
        for key, value in self.w.items():
            self.register_parameter(key.replace(".", "_"), value)
        half = c["head_dim"] // 2
        theta = c["rope_parameters"]["rope_theta"] ** (-torch.arange(half, device=device) / half)
        angle = torch.arange(c["max_position_embeddings"], device=device)[:, None] * theta[None]
        self.cos, self.sin = (torch.cat([t, t], -1) for t in (angle.cos(), angle.sin()))

    def norm(self, x, key):
        x32 = x.float()
        x32 = x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + self.c["rms_norm_eps"])
        return x32.to(x.dtype) * self.w[key].to(x.dtype)

    def rope(self, x, at):
        half = x.shape[-1] // 2
        cos, sin = self.cos[at:at + x.shape[2]].to(x.dtype), self.sin[at:at + x.shape[2]].to(x.dtype)
        return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin

    def forward(self, ids, cache=None, at=0):
        """ids [B, T] -> logits [B, T, V]. cache: a list of (k, v) by layer that positions from `at` on are put in."""
        c, w = self.c, self.w
        heads, kv, hd = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        dtype = torch.bfloat16
        x = F.embedding(ids, w["model.embed_tokens.weight"]).to(dtype)
        for i in range(c["num_hidden_layers"]):
            p = f"model.layers.{i}."
            linear = lambda x, key: F.linear(x, w[p + key].to(dtype))
            h = self.norm(x, p + "input_layernorm.weight")
            split = lambda t, n: t.view(*t.shape[:2], n, hd).transpose(1, 2)
            q = self.rope(split(linear(h, "self_attn.q_proj.weight"), heads), at)
            k = self.rope(split(linear(h, "self_attn.k_proj.weight"), kv), at)
            v = split(linear(h, "self_attn.v_proj.weight"), kv)
            if cache is not None:
                cache[i][0][:, :, at:at + ids.shape[1]], cache[i][1][:, :, at:at + ids.shape[1]] = k, v
                k, v = (t[:, :, :at + ids.shape[1]] for t in cache[i])
            a = F.scaled_dot_product_attention(q, k, v, is_causal=ids.shape[1] > 1, enable_gqa=True)
            x = x + linear(a.transpose(1, 2).flatten(2), "self_attn.o_proj.weight")
            h = self.norm(x, p + "post_attention_layernorm.weight")
            x = x + linear(F.silu(linear(h, "mlp.gate_proj.weight")) * linear(h, "mlp.up_proj.weight"),
                           "mlp.down_proj.weight")
        return F.linear(self.norm(x, "model.norm.weight"), w["model.embed_tokens.weight"].to(dtype))


def gumbel(shape, generator):
    uniform = torch.rand(shape, generator=generator, device="cuda").clamp(1e-20, 1 - 1e-7)
    return -torch.log(-torch.log(uniform))


@torch.no_grad()
def sample(teacher, count, length, generator):
    """Sequences of the teacher's own: a third at temperature 1, a third at 0.8, a third greedy after 24 tokens."""
    c = teacher.c
    shape = (count, c["num_key_value_heads"], length, c["head_dim"])
    cache = [tuple(torch.empty(shape, dtype=torch.bfloat16, device="cuda") for _ in range(2))
             for _ in range(c["num_hidden_layers"])]
    ids = torch.full((count, length), c["bos_token_id"], device="cuda")
    kind = torch.arange(count, device="cuda") % 3
    for t in range(length - 1):
        logits = teacher(ids[:, t:t + 1], cache, t)[:, 0].float()
        logits[:, c["eos_token_id"]] = -math.inf  # the text goes on
        noise = gumbel(logits.shape, generator)
        temperature = torch.where(kind == 0, 1.0, 0.8)[:, None]
        drawn = (logits / temperature + noise).argmax(-1)
        greedy = (kind == 2) & (t >= 24)
        ids[:, t + 1] = torch.where(greedy, logits.argmax(-1), drawn)
    return ids


@torch.no_grad()
def acceptance(teacher, student, ids):
    """KL, and the shares of equal tokens, over [B, T]; of greedy text the greedy share, of the other the drawn ones."""
    generator = torch.Generator("cuda").manual_seed(5)
    sums, counts = [0.0] * 4, [0] * 4
    for row in ids.split(48):
        a, b = teacher(row).float()[:, 24:], student(row).float()[:, 24:]
        kl = F.kl_div(b.log_softmax(-1), a.log_softmax(-1), log_target=True, reduction="none").sum(-1)
        g, other = gumbel(a.shape, generator), gumbel(a.shape, generator)
        kinds = torch.arange(len(row), device="cuda") % 3
        values = [kl.flatten(), (a.argmax(-1) == b.argmax(-1))[kinds == 2].float().flatten(),
                  ((a / 0.8 + g).argmax(-1) == (b / 0.8 + g).argmax(-1))[kinds == 1].float().flatten(),
                  ((a / 0.8 + g).argmax(-1) == (b / 0.8 + other).argmax(-1))[kinds == 1].float().flatten()]
        for i, v in enumerate(values):
            sums[i] += v.sum().item()
            counts[i] += v.numel()
    return [s / n for s, n in zip(sums, counts)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--teacher", required=True, help="folder of the larger model (llama, bf16, tied embeddings)")
    parser.add_argument("--out", required=True, help="folder for the student")
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--ffn", type=int, default=352)
    parser.add_argument("--seconds", type=float, default=400, help="of training; at the end the learning rate is 0")
    parser.add_argument("--sequences", type=int, default=12288, help="that the teacher writes, of --length tokens")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--batch", type=int, default=96)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=42)
    o = parser.parse_args()
    torch.manual_seed(o.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    generator = torch.Generator("cuda").manual_seed(o.seed)
    config = json.load(open(os.path.join(o.teacher, "config.json")))
    teacher = Llama(config, load_safetensors(o.teacher))
    small = dict(config, hidden_size=o.dim, num_hidden_layers=o.layers, intermediate_size=o.ffn, head_dim=32,
                 num_attention_heads=o.dim // 32, num_key_value_heads=max(1, o.dim // 64))
    student = Llama(small)
    parameters = sum(p.numel() for p in student.parameters())
    begin = time.time()
    text = torch.cat([sample(teacher, 4096, o.length, generator) for _ in range(o.sequences // 4096)])
    unseen = sample(teacher, 384, o.length, generator)
    print(f"{text.numel()} tokens written in {time.time() - begin:.0f} s; the student has {parameters} parameters",
          flush=True)
    matrices = [p for p in student.parameters() if p.dim() > 1]
    vectors = [p for p in student.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.01},
                                   {"params": vectors, "weight_decay": 0.0}], lr=o.rate, betas=(0.9, 0.98), fused=True)

    @torch.compile
    def loss_of(ids):
        with torch.no_grad():
            want = teacher(ids).float().log_softmax(-1)
        got = student(ids).float().log_softmax(-1)
        return (want.exp() * (want - got)).sum(-1).mean()

    curve, begin, step, order = [], time.time(), 0, None
    while True:
        done = (time.time() - begin) / o.seconds
        if step % 500 == 0 or done >= 1:
            values = acceptance(teacher, student, unseen)
            curve.append((step, time.time() - begin, *values))
            print("step %d, %.0f s: KL %.4f, accepted greedily %.4f, same noise %.4f, own noise %.4f" % curve[-1],
                  flush=True)
        if done >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = o.rate * min(1, (step + 1) / 300) * 0.5 * (1 + math.cos(math.pi * done))
        at = step * o.batch % (len(text) - len(text) % o.batch)
        if at == 0:
            order = torch.randperm(len(text), generator=generator, device="cuda")
        ids = text[order[at:at + o.batch]]
        loss = loss_of(ids)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step % 50 == 0:
            torch.cuda.synchronize()  # the clock above is that of finished steps
    os.makedirs(o.out, exist_ok=True)
    save_safetensors(os.path.join(o.out, "model.safetensors"),
                     {k: v.detach().to(torch.bfloat16) for k, v in student.w.items()})
    json.dump(small, open(os.path.join(o.out, "config.json"), "w"), indent=2)
    kl, greedy, same, own = curve[-1][2:]
    json.dump({"teacher": os.path.basename(o.teacher), "parameters": parameters, "steps": step,
               "tokens": step * o.batch * o.length, "text_tokens": text.numel(), "kl": kl,
               "accepted_greedily": greedy, "accepted_same_noise_0.8": same, "accepted_own_noise_0.8": own, "seed": o.seed, "device": torch.cuda.get_device_name()},
              open(os.path.join(o.out, "training.json"), "w"), indent=2)
    with open(os.path.join(o.out, "curve.tsv"), "w") as f:
        f.write("step\tseconds\tkl\taccepted_greedily\taccepted_same_noise\taccepted_own_noise\n")
        for row in curve:
            f.write("%d\t%.1f\t%.5f\t%.5f\t%.5f\t%.5f\n" % row)


if __name__ == "__main__":
    main()
