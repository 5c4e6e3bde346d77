#!/usr/bin/env python3
"""Runs one layer of a Llama model in PyTorch, step by step, and writes the bits of what each step returned.

    python3 sweep/science/layer_dump.py FILE.npz

The script needs a GPU. (On a CPU it runs a few of the cases, as a test of itself.) Inputs are made from seeds by numpy
(`normal`), so that sweep/science/layer.py can make them again. Each step runs twice. The file has the results of the
first time, and as JSON (`about`) the versions, the steps that had other bits the second time, and names, grids, blocks
and shared memory of the kernels that ran.
"""
import json, sys, tempfile
import numpy as np

EPS = 1e-5
#        hidden, heads, KV heads, head size, MLP, seed of the weights
SHAPES = {"h512": (512, 8, 2, 64, 1408, 1), "h1024": (1024, 8, 4, 128, 2816, 2), "h2048": (2048, 32, 8, 64, 5632, 3)}
#        shape, tokens before, rows, of which every how manyth is written
CASES = {"h512.100": ("h512", 0, 100, 1), "h512.300": ("h512", 0, 300, 6), "h512.decode": ("h512", 300, 1, 1),
         "h1024.128": ("h1024", 0, 128, 4), "h1024.200": ("h1024", 0, 200, 4), "h1024.decode": ("h1024", 200, 1, 1),
         "h2048.450": ("h2048", 0, 450, 16), "h2048.decode": ("h2048", 450, 1, 1)}
#        head size, queries, keys, heads, KV heads, causal, values are unit vectors
ATTENTION = {"one": (64, 64, 64, 4, 2, 0, 1), "one_causal": (64, 64, 64, 4, 2, 1, 0), "two": (64, 128, 256, 4, 2, 0, 0),
             "two_causal": (64, 256, 256, 4, 2, 1, 0), "uneven": (64, 77, 205, 4, 2, 0, 0),
             "split": (64, 70, 600, 4, 2, 0, 0), "split_unit": (64, 64, 300, 4, 2, 0, 1),
             "split_causal": (64, 600, 600, 4, 2, 1, 0), "one128": (128, 64, 64, 4, 2, 0, 1),
             "two128": (128, 128, 128, 4, 2, 0, 0), "two128_causal": (128, 128, 128, 4, 2, 1, 0),
             "split128": (128, 70, 400, 4, 2, 0, 0), "decode": (64, 1, 1000, 8, 2, 0, 0),
             "decode128": (128, 1, 1000, 8, 4, 0, 0), "decode_one": (64, 1, 200, 8, 8, 0, 0)}
PRODUCTS = ((512, 512), (1024, 1024), (1024, 4096), (4096, 1024), (4096, 4096), (14336, 4096))  # K, N
ROWS = (1, 2, 16, 128, 300)


def normal(seed, *shape):
    """bf16 numbers, nearly normal with variance 1, as uint16: sums of the four 16-bit parts of a word of PCG64."""
    words = np.random.PCG64(seed).random_raw(int(np.prod(shape))).astype("<u8").view("<u2").reshape(-1, 4)
    values = (words.astype(np.int64).sum(1) - 131070).astype(np.float32) * np.float32(1 / 37837)
    return bf16(values).reshape(shape)


def bf16(x):
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((u + 0x7FFF + (u >> 16 & 1)) >> 16).astype(np.uint16)


def fp32(u):
    return (u.astype(np.uint32) << 16).view(np.float32)


def scaled(u, factor):
    return bf16(fp32(u) * np.float32(factor))


def weights(shape):
    D, H, KV, d, F, seed = SHAPES[shape]
    sizes = {"q": (H * d, D), "k": (KV * d, D), "v": (KV * d, D), "o": (D, H * d), "gate": (F, D), "up": (F, D),
             "down": (D, F)}
    w = {name: scaled(normal(100 * seed + i, *s), s[1] ** -0.5) for i, (name, s) in enumerate(sizes.items())}
    w.update({name: bf16(1 + 0.25 * fp32(normal(100 * seed + 10 + i, D))) for i, name in enumerate(("norm1", "norm2"))})
    return w


def rotation(d, first, rows):
    angle = np.arange(first, first + rows)[:, None] * 10000.0 ** (-np.arange(d // 2) * 2 / d)
    return [bf16(np.tile(f(angle), (1, 2)).astype(np.float32)) for f in (np.cos, np.sin)]


def tokens(shape, first, rows):
    return normal(1000 * SHAPES[shape][5] + first, rows, SHAPES[shape][0])


def heads_of(name):
    """Of a case of attention: q, k, v."""
    d, n, T, H, KV, _, unit = ATTENTION[name]
    seed = 7000 + 10 * list(ATTENTION).index(name)
    q, k, v = scaled(normal(seed, n, H, d), 2), normal(seed + 1, T, KV, d), normal(seed + 2, T, KV, d)
    return q, k, bf16(np.eye(d)[np.arange(T) % d])[:, None].repeat(KV, 1) if unit else v


def probes(M, K):
    """Where one of the two large numbers of a probe is (below)."""
    return (0, 1, 2, 8, K // 2 + 1, K - 1) if M == 1 else (0, K - 1)


def main(path):
    import torch, torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
    gpu = torch.cuda.is_available()
    device, out, kernels, unequal, cache = "cuda" if gpu else "cpu", {}, {}, [], {}
    here = lambda u: torch.from_numpy(u.view(np.int16)).view(torch.bfloat16).to(device)

    def bits(t):
        t = t.detach().contiguous().cpu()
        return t.view(torch.int16).numpy().view(np.uint16) if t.dtype == torch.bfloat16 else t.numpy()

    def profile(label, f):
        if not gpu:
            return
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as p:
            f(), torch.cuda.synchronize()
        with tempfile.NamedTemporaryFile(suffix=".json") as trace:
            p.export_chrome_trace(trace.name)
            events = [e for e in json.load(open(trace.name))["traceEvents"] if e.get("cat") == "kernel"]
        kernels[label] = [[e["name"], *(e["args"].get(what) for what in ("grid", "block", "shared memory"))]
                          for e in sorted(events, key=lambda e: e["ts"])]

    def run(label, f):
        y = f()
        if not torch.equal(y.view(torch.uint8), f().view(torch.uint8)):
            unequal.append(label)
        profile(label, f)
        return y

    def attention(label, q, k, v, causal):
        """q [n, H, d], k and v [T, KV, d] -> [n, H d]; the logarithms of sums are kept."""
        q, k, v = (t.transpose(0, 1)[None] for t in (q, k, v))
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION if gpu else SDPBackend.MATH):
            o = run(label, lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True))
        if gpu:
            other, lse = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False)[:2]
            out[label + ".lse"] = bits(lse[0])
            if not torch.equal(o, other):
                unequal.append(label + " (aten)")
        return o[0].transpose(0, 1).reshape(q.shape[2], -1)

    def layer(name, shape, before, n, every):
        D, H, KV, d, _, _ = SHAPES[shape]
        w = {k: here(v) for k, v in weights(shape).items()}
        cos, sin = (here(u)[:, None] for u in rotation(d, before, n))
        at = sorted({*range(0, n, every), n - 1})

        def keep(step, f, whole=False):
            y = run(name + "." + step, f)
            out[name + "." + step] = bits(y if whole else y[at])
            return y

        def norm(which, x):
            variance = keep(which + ".mean", lambda: x.float().pow(2).mean(-1, keepdim=True))
            inverse = keep(which + ".rsqrt", lambda: torch.rsqrt(variance + EPS))
            keep(which + ".fused", lambda: F.rms_norm(x, (D,), w[which], EPS))
            return keep(which, lambda: w[which] * (x.float() * inverse).to(torch.bfloat16))

        def rope(x):
            x = x.view(n, -1, d)
            return x * cos + torch.cat((-x[..., d // 2:], x[..., :d // 2]), -1) * sin

        x = here(tokens(shape, before, n))
        y = norm("norm1", x)
        q, k, v = (keep(p, lambda: F.linear(y, w[p]), p == "v") for p in "qkv")
        q, k, v = keep("q_rope", lambda: rope(q), every < 16), keep("k_rope", lambda: rope(k), True), v.view(n, KV, d)
        if before:
            k, v = torch.cat((cache[shape, before][0], k)), torch.cat((cache[shape, before][1], v))
        else:
            cache[shape, n] = k, v
        y = attention(name + ".attention", q, k, v, before == 0)
        out[name + ".attention"] = bits(y if every < 16 else y[at])
        y = keep("o", lambda: F.linear(y, w["o"]))
        h = keep("residual1", lambda: x + y)
        z = norm("norm2", h)
        gate, up = keep("gate", lambda: F.linear(z, w["gate"])), keep("up", lambda: F.linear(z, w["up"]))
        silu = keep("silu", lambda: F.silu(gate))
        act = keep("act", lambda: silu * up)
        down = keep("down", lambda: F.linear(act, w["down"]))
        keep("residual2", lambda: h + down)

    def probe(M, K, N):
        """Terms are 1 in a block of 128 and 0 elsewhere, but 2^60 at i and -2^60 at j. A result counts the ones that
        were not added to 2^60 alone. Output n has j = n K / N, or n where N is K or more."""
        x, counts = torch.ones(M, K, dtype=torch.bfloat16, device=device), []
        n = torch.arange(N, device=device)
        j = n * max(1, K // N) % K
        for i in probes(M, K):
            for block in range(0, K, 128):
                w = torch.zeros(N, K, dtype=torch.bfloat16, device=device)
                w[:, block:block + 128] = 1
                w[:, i] = 2.0 ** 60
                w[n, j] = -2.0 ** 60
                w[j == i, i] = 0
                counts.append(F.linear(x, w)[M // 2])
        label = "probe.%d.%d.%d" % (M, K, N)
        out[label] = torch.stack(counts).float().cpu().numpy().astype(np.uint8)
        profile(label, lambda: F.linear(x, w))

    for name, case in CASES.items() if gpu else list(CASES.items())[:3]:
        layer(name, *case)
    for name in ATTENTION if gpu else ("one", "uneven", "decode"):
        label = "attention." + name
        out[label] = bits(attention(label, *map(here, heads_of(name)), bool(ATTENTION[name][5])))
    for K, N in PRODUCTS if gpu else PRODUCTS[:1]:
        w = here(scaled(normal(K + 7 * N, N, K), K ** -0.5))
        for M in ROWS:
            x, label = here(normal(5 * K + M, M, K)), "product.%d.%d.%d" % (M, K, N)
            out[label] = bits(run(label, lambda: F.linear(x, w))[::max(1, M // 8), ::max(8, N // 128)])
    shapes = {(n, *s) for shape, _, n, _ in CASES.values() for D, H, KV, d, f, _ in [SHAPES[shape]]
              for s in ((D, H * d), (D, KV * d), (H * d, D), (D, f), (f, D))}
    for M, K, N in sorted(shapes) if gpu else [(1, 512, 128)]:
        probe(M, K, N)
    about = {"torch": torch.__version__, "cuda": torch.version.cuda, "unequal": unequal, "kernels": kernels,
             "device": torch.cuda.get_device_name() if gpu else "CPU",
             "multiprocessors": torch.cuda.get_device_properties(0).multi_processor_count if gpu else 0}
    np.savez_compressed(path, about=np.frombuffer(json.dumps(about).encode(), np.uint8), **out)
    print({k: v for k, v in about.items() if k != "kernels"}, len(out), "arrays")


if __name__ == "__main__":
    main(sys.argv[1])
