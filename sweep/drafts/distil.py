#!/usr/bin/env python3
"""Distils a small model from a larger one of the llama family with the same vocabulary.

    python3 sweep/drafts/distil.py --teacher FOLDER --out examples/draft42                         (llama, for drafts)
    python3 sweep/drafts/distil.py --teacher FOLDER --out examples/hybrid42 --hybrid --seconds 320 (qwen3_5_text)

The teacher writes the text that it is distilled on: sequences sampled from it at temperature 1, at 0.8 and greedily.
The student learns the teacher's distribution at each position (the Kullback-Leibler divergence), since a draft is
accepted where both draw the same token. Needs PyTorch and a GPU. OUT gets config.json, model.safetensors (bf16),
training.json and curve.tsv: loss and acceptance on text that no step has seen, by step.

Three layers of four of a hybrid are recurrent (gated delta rule). Training takes in 64 positions at once, which is
first compared with the rule of one position after the other, in fp64.

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

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


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
    dtype = torch.bfloat16

    def __init__(self, config, tensors=None, device=DEVICE):
        super().__init__()
        c = self.c = config
        d, kv, f = c["hidden_size"], c["num_key_value_heads"] * c["head_dim"], c["intermediate_size"]
        q = c["num_attention_heads"] * c["head_dim"]
        shapes = {"model.embed_tokens.weight": (c["vocab_size"], d), "model.norm.weight": (d,)}
        for i in range(c["num_hidden_layers"]):
            p = f"model.layers.{i}."
            shapes |= {p + key: shape for key, shape in self.mixer_shapes(i, d, q, kv).items()}
            shapes |= {p + "input_layernorm.weight": (d,), p + "post_attention_layernorm.weight": (d,),
                       p + "mlp.gate_proj.weight": (f, d), p + "mlp.up_proj.weight": (f, d),
                       p + "mlp.down_proj.weight": (d, f)}
        self.w, last = {}, ("o_proj", "out_proj", "down_proj")
        for key, shape in shapes.items():
            if tensors:
                value = tensors[key].to(device)
            elif len(shape) == 1:
                value = self.first_vector(key, shape).to(device)
            else:
                deep = math.sqrt(2 * c["num_hidden_layers"]) if key.split(".")[-2] in last else 1
                wide = 0.02 if "embed" in key else 0.3 if "conv1d" in key else 0.04
                value = torch.randn(shape, device=device) * wide / deep
            self.w[key] = torch.nn.Parameter(value, requires_grad=tensors is None)
        for key, value in self.w.items():
            self.register_parameter(key.replace(".", "_"), value)
        half = self.half = int(c["head_dim"] * c["rope_parameters"].get("partial_rotary_factor", 1)) // 2
        theta = c["rope_parameters"]["rope_theta"] ** (-torch.arange(half, device=device) / half)
        angle = torch.arange(c["max_position_embeddings"], device=device)[:, None] * theta[None]
        self.cos, self.sin = (torch.cat([t, t], -1) for t in (angle.cos(), angle.sin()))

    def mixer_shapes(self, i, d, q, kv):
        return {"self_attn.q_proj.weight": (q, d), "self_attn.k_proj.weight": (kv, d),
                "self_attn.v_proj.weight": (kv, d), "self_attn.o_proj.weight": (d, q)}

    def first_vector(self, key, shape):
        return torch.ones(shape)

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
        x = F.embedding(ids, self.w["model.embed_tokens.weight"]).to(self.dtype)
        for i in range(self.c["num_hidden_layers"]):
            linear = lambda x, key: F.linear(x, self.w[f"model.layers.{i}.{key}.weight"].to(self.dtype))
            h = self.norm(x, f"model.layers.{i}.input_layernorm.weight")
            x = x + self.mixer(h, i, linear, cache, at)
            h = self.norm(x, f"model.layers.{i}.post_attention_layernorm.weight")
            x = x + linear(F.silu(linear(h, "mlp.gate_proj")) * linear(h, "mlp.up_proj"), "mlp.down_proj")
        return F.linear(self.norm(x, "model.norm.weight"), self.w["model.embed_tokens.weight"].to(self.dtype))

    def split(self, x, heads):
        return x.view(*x.shape[:2], heads, -1).transpose(1, 2)

    def mixer(self, h, i, linear, cache, at):
        q = self.rope(self.split(linear(h, "self_attn.q_proj"), self.c["num_attention_heads"]), at)
        k = self.rope(self.split(linear(h, "self_attn.k_proj"), self.c["num_key_value_heads"]), at)
        v = self.split(linear(h, "self_attn.v_proj"), self.c["num_key_value_heads"])
        if cache is not None:
            cache[i][0][:, :, at:at + h.shape[1]], cache[i][1][:, :, at:at + h.shape[1]] = k, v
            k, v = (t[:, :, :at + h.shape[1]] for t in cache[i])
        a = F.scaled_dot_product_attention(q, k, v, is_causal=h.shape[1] > 1, enable_gqa=True)
        return linear(a.transpose(1, 2).flatten(2), "self_attn.o_proj")


def delta_rule(q, k, v, decay, beta, chunk=64):
    """The gated delta rule over all chunks of the text at once, but for the state S, which goes from chunk to chunk.

    q, k [B, H, T, K], v [B, H, T, V], decay (logarithms) and beta [B, H, T] -> [B, H, T, V]. What position i adds to
    the state is k_i u_i^T, and u_i depends on those before it in the chunk: one triangular system for a chunk.
    """
    q, k, v, decay, beta = (t.unflatten(2, (-1, min(chunk, t.shape[2]))) for t in (q, k, v, decay, beta))
    sums, beta = decay.cumsum(-1), beta[..., None]
    since, till = sums.exp()[..., None], (sums[..., -1:] - sums).exp()[..., None]
    later = torch.ones(sums.shape[-1], sums.shape[-1], dtype=torch.bool, device=q.device).triu(1)
    between = (sums[..., :, None] - sums[..., None, :]).masked_fill(later, -math.inf).exp()
    system = (beta * (k @ k.mT) * between).tril(-1)
    solved = torch.linalg.solve_triangular(system, torch.cat([beta * v, beta * since * k], -1), upper=False,
                                           unitriangular=True)
    of_v, of_s = solved.split([v.shape[-1], k.shape[-1]], -1)
    inside, S, out = (q @ k.mT) * between, 0 * k[:, :, 0].mT @ v[:, :, 0], []
    for i in range(q.shape[2]):
        u = of_v[:, :, i] - of_s[:, :, i] @ S
        out.append(since[:, :, i] * (q[:, :, i] @ S) + inside[:, :, i] @ u)
        S = S * since[:, :, i, -1:] + (k * till)[:, :, i].mT @ u
    return torch.cat(out, 2)


def delta_rule_by_token(q, k, v, decay, beta):
    S, out = 0 * k[:, :, :1].mT @ v[:, :, :1], []
    for t in range(q.shape[2]):
        S = S * decay[:, :, t, None, None].exp()
        u = beta[:, :, t, None] * (v[:, :, t] - (k[:, :, t, None] @ S)[:, :, 0])
        S = S + k[:, :, t, :, None] * u[:, :, None]
        out.append(q[:, :, t, None] @ S)
    return torch.cat(out, 2)


def check_delta_rule():
    generator = torch.Generator().manual_seed(3)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)
    q, k, v = draw(2, 3, 256, 16), F.normalize(draw(2, 3, 256, 16), dim=-1), draw(2, 3, 256, 8)
    inputs = q, k, v, -F.softplus(draw(2, 3, 256) - 3), torch.sigmoid(draw(2, 3, 256))
    want = delta_rule_by_token(*inputs)
    far = ((delta_rule(*inputs) - want).norm() / want.norm()).item()
    print(f"in chunks of 64 and token by token, in fp64: relative difference {far:.1e}", flush=True)
    assert far < 1e-12
    assert (delta_rule(*inputs[:3], 0.9 * inputs[3], inputs[4]) - want).norm() > 1e-3 * want.norm()  # control


class Hybrid(Llama):
    """Qwen3.5's layers: three of four are recurrent, the fourth is attention with gates. Norms multiply by 1 + w."""
    rule = staticmethod(delta_rule)

    def mixer_shapes(self, i, d, q, kv):
        c, linear = self.c, "linear_attn."
        if c["layer_types"][i] == "full_attention":
            return Llama.mixer_shapes(self, i, d, q, kv) | {"self_attn.q_proj.weight": (2 * q, d)} | {
                f"self_attn.{x}_norm.weight": (c["head_dim"],) for x in "qk"}
        heads, values = c["linear_num_value_heads"], c["linear_num_value_heads"] * c["linear_value_head_dim"]
        channels = 2 * c["linear_num_key_heads"] * c["linear_key_head_dim"] + values
        return {linear + "in_proj_qkv.weight": (channels, d), linear + "in_proj_z.weight": (values, d),
                linear + "in_proj_a.weight": (heads, d), linear + "in_proj_b.weight": (heads, d),
                linear + "conv1d.weight": (channels, 1, c["linear_conv_kernel_dim"]),
                linear + "A_log": (heads,), linear + "dt_bias": (heads,),
                linear + "norm.weight": (c["linear_value_head_dim"],), linear + "out_proj.weight": (d, values)}

    def first_vector(self, key, shape):
        """States that forget a hundredth to a third of what they have at each token, by head."""
        if key.endswith("A_log"):
            return torch.zeros(shape)
        if key.endswith("dt_bias"):
            return torch.logspace(-2, math.log10(0.4), *shape).expm1().log()
        return torch.ones(shape) if key.endswith("linear_attn.norm.weight") else torch.zeros(shape)

    def norm(self, x, key):
        x32 = x.float()
        x32 = x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + self.c["rms_norm_eps"])
        return (x32 * ((not key.endswith("linear_attn.norm.weight")) + self.w[key].float())).to(x.dtype)

    def rope(self, x, at):
        n = 2 * self.half
        return torch.cat([Llama.rope(self, x[..., :n], at), x[..., n:]], -1)

    def mixer(self, h, i, linear, cache, at):
        c, p = self.c, f"model.layers.{i}."
        if c["layer_types"][i] == "full_attention":
            heads = c["num_attention_heads"]
            q, gate = self.split(linear(h, "self_attn.q_proj"), heads).chunk(2, -1)
            k, v = (self.split(linear(h, f"self_attn.{x}_proj"), c["num_key_value_heads"]) for x in "kv")
            q = self.rope(self.norm(q, p + "self_attn.q_norm.weight"), at)
            k = self.rope(self.norm(k, p + "self_attn.k_norm.weight"), at)
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True) * torch.sigmoid(gate)
            return linear(a.transpose(1, 2).flatten(2), "self_attn.o_proj")
        x, taps = linear(h, "linear_attn.in_proj_qkv"), self.w[p + "linear_attn.conv1d.weight"][:, 0].to(h.dtype)
        last = taps.shape[1] - 1
        x = F.silu(sum(F.pad(x, (0, 0, last, 0))[:, j:j + h.shape[1]] * taps[:, j] for j in range(last + 1))).float()
        keys, each = c["linear_num_key_heads"], c["linear_num_value_heads"] // c["linear_num_key_heads"]
        q, k, v = x.split([keys * c["linear_key_head_dim"]] * 2 + [each * keys * c["linear_value_head_dim"]], -1)
        q, k = (self.split(t, keys).repeat_interleave(each, 1) for t in (q, k))
        q, k = (t * torch.rsqrt(t.pow(2).sum(-1, keepdim=True) + 1e-6) for t in (q, k))
        alpha, beta = (linear(h, f"linear_attn.in_proj_{x}").float().transpose(1, 2) for x in "ab")
        decay = -self.w[p + "linear_attn.A_log"].float().exp()[:, None] * F.softplus(
            alpha + self.w[p + "linear_attn.dt_bias"].float()[:, None])
        out = self.rule(q / math.sqrt(q.shape[-1]), k, self.split(v, each * keys), decay, torch.sigmoid(beta))
        out = self.norm(out.to(h.dtype), p + "linear_attn.norm.weight")
        out = out.transpose(1, 2).flatten(2) * F.silu(linear(h, "linear_attn.in_proj_z"))
        return linear(out, "linear_attn.out_proj")


def gumbel(shape, generator):
    uniform = torch.rand(shape, generator=generator, device=DEVICE).clamp(1e-20, 1 - 1e-7)
    return -torch.log(-torch.log(uniform))


@torch.no_grad()
def sample(teacher, count, length, generator):
    """Sequences of the teacher's own: a third at temperature 1, a third at 0.8, a third greedy after 24 tokens."""
    c = teacher.c
    shape = (count, c["num_key_value_heads"], length, c["head_dim"])
    cache = [tuple(torch.empty(shape, dtype=torch.bfloat16, device=DEVICE) for _ in range(2))
             for _ in range(c["num_hidden_layers"])]
    ids = torch.full((count, length), c["bos_token_id"], device=DEVICE)
    kind = torch.arange(count, device=DEVICE) % 3
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
    generator = torch.Generator(DEVICE).manual_seed(5)
    sums, counts = [0.0] * 4, [0] * 4
    for row in ids.split(48):
        a, b = teacher(row).float()[:, 24:], student(row).float()[:, 24:]
        kl = F.kl_div(b.log_softmax(-1), a.log_softmax(-1), log_target=True, reduction="none").sum(-1)
        g, other = gumbel(a.shape, generator), gumbel(a.shape, generator)
        kinds = torch.arange(len(row), device=DEVICE) % 3
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
    parser.add_argument("--hybrid", action="store_true", help="three layers of four are recurrent")
    parser.add_argument("--layers", type=int, help="default: 5; of a hybrid 4")
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
    generator = torch.Generator(DEVICE).manual_seed(o.seed)
    config = json.load(open(os.path.join(o.teacher, "config.json")))
    teacher = Llama(config, load_safetensors(o.teacher))
    layers = o.layers or (4 if o.hybrid else 5)
    small = dict(config, hidden_size=o.dim, num_hidden_layers=layers, intermediate_size=o.ffn, head_dim=32,
                 num_attention_heads=o.dim // 32, num_key_value_heads=max(1, o.dim // 64))
    if o.hybrid:
        check_delta_rule()
        small = {k: v for k, v in small.items() if k not in ("mlp_bias", "pretraining_tp")} | dict(
            architectures=["Qwen3_5ForCausalLM"], model_type="qwen3_5_text", rms_norm_eps=1e-6,
            layer_types=["full_attention" if i % 4 == 3 else "linear_attention" for i in range(layers)],
            rope_parameters=dict(config["rope_parameters"], partial_rotary_factor=0.25), linear_conv_kernel_dim=4,
            linear_num_key_heads=max(1, o.dim // 64), linear_num_value_heads=o.dim // 32, linear_key_head_dim=32,
            linear_value_head_dim=32)
    student = (Hybrid if o.hybrid else Llama)(small)
    parameters = sum(p.numel() for p in student.parameters())
    begin = time.time()
    each = min(4096, o.sequences)
    text = torch.cat([sample(teacher, each, o.length, generator) for _ in range(o.sequences // each)])
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

    def save():
        os.makedirs(o.out, exist_ok=True)
        save_safetensors(os.path.join(o.out, "model.safetensors"),
                         {k: v.detach().to(torch.bfloat16) for k, v in student.w.items()})
        json.dump(small, open(os.path.join(o.out, "config.json"), "w"), indent=2)
        kl, greedy, same, own = curve[-1][2:]
        json.dump({"teacher": os.path.basename(o.teacher), "parameters": parameters, "steps": step,
                   "tokens": step * o.batch * o.length, "text_tokens": text.numel(), "kl": kl,
                   "accepted_greedily": greedy, "accepted_same_noise_0.8": same, "accepted_own_noise_0.8": own,
                   "seed": o.seed, "device": torch.cuda.get_device_name() if DEVICE == "cuda" else DEVICE},
                  open(os.path.join(o.out, "training.json"), "w"), indent=2)
        with open(os.path.join(o.out, "curve.tsv"), "w") as f:
            f.write("step\tseconds\tkl\taccepted_greedily\taccepted_same_noise\taccepted_own_noise\n")
            for row in curve:
                f.write("%d\t%.1f\t%.5f\t%.5f\t%.5f\t%.5f\n" % row)

    curve, begin, step, order = [], time.time(), 0, None
    while True:
        done = (time.time() - begin) / o.seconds
        if step % 500 == 0 or done >= 1:
            values = acceptance(teacher, student, unseen)
            curve.append((step, time.time() - begin, *values))
            print("step %d, %.0f s: KL %.4f, accepted greedily %.4f, same noise %.4f, own noise %.4f" % curve[-1],
                  flush=True)
            save()
        if done >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = o.rate * min(1, (step + 1) / 300) * 0.5 * (1 + math.cos(math.pi * done))
        at = step * o.batch % (len(text) - len(text) % o.batch)
        if at == 0:
            order = torch.randperm(len(text), generator=generator, device=DEVICE)
        ids = text[order[at:at + o.batch]]
        loss = loss_of(ids)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step % 50 == 0 and DEVICE == "cuda":
            torch.cuda.synchronize()  # the clock above is that of finished steps


if __name__ == "__main__":
    main()
