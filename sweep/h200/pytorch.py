#!/usr/bin/env python3
"""Times the passes of `build/bench --suite passes` with PyTorch, as a peer to compare with: the shape of Llama 3.1 8B,
random weights in bf16, each pass in a CUDA graph.

    python3 sweep/h200/pytorch.py --out FILE     needs PyTorch 2.6 or newer, and a GPU of 80 GB
    python3 sweep/h200/pytorch.py --eight --out FILE     the same with the layers' products in FP8
    python3 sweep/h200/pytorch.py --launches --out FILE     decode passes whose kernels Python launches one by one
    python3 sweep/h200/pytorch.py --attention --out FILE     attention alone, as `build/kernels --part attention`

q, k and v are one product, and so are gate and up; products are those of torch.nn.functional.linear. Attention is
scaled_dot_product_attention over a contiguous KV cache. Norms, rotation and gates are compiled by torch.compile, unless
--eager says otherwise. A decode pass has one new token of each sequence, a replay pass 32 new tokens behind 480 others,
and a prompt pass one sequence from its beginning. A pass ends with the id of the largest logit: of each row, or of a
prompt's last one. A time is the median of 21 launches of the graph, each between two events. Nothing here keeps an
order of sums. What PyTorch could do better: its products are cuBLAS's first choice and are not tuned, the writes to the
KV cache are kernels of their own, and which kernel computes attention is PyTorch's choice.

--eight: the products of the layers are those of torch._scaled_mm on e4m3, with a scale for each output of w and for each
row of x, which is quantised by a compiled function. The head stays in bf16. Sums are PyTorch's fast ones
(use_fast_accum), which round more often than llm42's.

--launches: what it costs that Python launches each kernel of a decode pass, with 512 tokens of context. Eager operators,
and those with norms, rotation and gates by torch.compile, are timed twice: launched by Python, and in a CUDA graph.
Both times are from the first launch to the end of the last kernel, between two events.

--attention: the causal attention of one prompt in one layer, by cuDNN and by FlashAttention, which PyTorch is told to
take. A graph has several prompts with inputs of their own, so that no cache holds what a launch reads. TFLOP/s count
the causal half: 2 x tokens^2 x head size x heads. Where a kernel does not take fewer heads of keys than of queries, it
gets a copy of keys and values for each head (`heads`: expanded).
"""
import argparse
import statistics

try:
    import torch
    import torch._dynamo
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.bias import causal_lower_right
except ImportError as error:
    raise SystemExit(f"pytorch.py: {error}: it needs PyTorch 2.6 or newer, with CUDA") from error

LAYERS, D, HEADS, KV_HEADS, DIM, HIDDEN, VOCAB = 32, 4096, 32, 8, 128, 14336, 128256


def add_norm(x, delta, weight):
    """The residual with delta added, and its norm."""
    x = x + delta
    wide = x.float()
    return x, (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * weight


def rotate(qkv, cos, sin):
    """q and k rotated by their positions, and v: [sequences, rows, heads, DIM] each."""
    q, k, v = qkv.split((HEADS, KV_HEADS, KV_HEADS), dim=2)
    def turn(x):
        low, high = x.float().chunk(2, dim=-1)
        return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1).to(x.dtype)
    return turn(q), turn(k), v


def in_eight(x):
    """The rows of x in e4m3, and their scales."""
    scale = x.abs().amax(-1, keepdim=True).float().clamp(min=1e-8) / 448
    return (x.float() / scale).to(torch.float8_e4m3fn), scale


def gate(gate_up):
    first, second = gate_up.chunk(2, dim=-1)
    return F.silu(first) * second


class Model:
    def __init__(self, compiled, eight):
        def weight(*shape):
            return torch.randn(shape, device="cuda", dtype=torch.bfloat16) * 0.02
        def matrix(*shape):
            return in_eight(weight(*shape)) if eight else weight(*shape)
        self.embedding, self.head = weight(VOCAB, D), weight(VOCAB, D)
        self.layers = [{"qkv": matrix((HEADS + 2 * KV_HEADS) * DIM, D), "o": matrix(D, HEADS * DIM),
                        "gate_up": matrix(2 * HIDDEN, D), "down": matrix(D, HIDDEN),
                        "norms": [torch.ones(D, device="cuda", dtype=torch.bfloat16) for _ in range(2)]}
                       for _ in range(LAYERS)]
        self.last_norm = torch.ones(D, device="cuda", dtype=torch.bfloat16)
        wrap = (lambda f: torch.compile(f, dynamic=True)) if compiled else (lambda f: f)
        self.add_norm, self.rotate, self.gate = wrap(add_norm), wrap(rotate), wrap(gate)
        self.in_eight, self.eight = wrap(in_eight), eight

    def product(self, x, w):
        if not self.eight:
            return F.linear(x, w)
        rows, scale = self.in_eight(x.reshape(-1, x.shape[-1]))
        y = torch._scaled_mm(rows, w[0].t(), scale_a=scale, scale_b=w[1].t(), out_dtype=torch.bfloat16,
                             use_fast_accum=True)
        return y.view(*x.shape[:-1], -1)

    def forward(self, tokens, cache, at, cos, sin, causal, last_only):
        """tokens [sequences, rows], of which the first stands at position `at` of its sequence; cache: for each layer k
        and v, [sequences, KV_HEADS, at + rows, DIM]. Returns ids."""
        sequences, rows = tokens.shape
        x, delta = F.embedding(tokens, self.embedding), torch.zeros((), device="cuda", dtype=torch.bfloat16)
        for layer, (k_cache, v_cache) in zip(self.layers, cache):
            x, h = self.add_norm(x, delta, layer["norms"][0])
            qkv = self.product(h, layer["qkv"]).view(sequences, rows, HEADS + 2 * KV_HEADS, DIM)
            q, k, v = self.rotate(qkv, cos, sin)
            k_cache[:, :, at:].copy_(k.transpose(1, 2))
            v_cache[:, :, at:].copy_(v.transpose(1, 2))
            mask = causal_lower_right(rows, at + rows) if causal and at else None
            attended = F.scaled_dot_product_attention(q.transpose(1, 2), k_cache, v_cache, attn_mask=mask,
                                                      is_causal=causal and not at, enable_gqa=True)
            x, h = self.add_norm(x, self.product(attended.transpose(1, 2).reshape(sequences, rows, -1), layer["o"]),
                                 layer["norms"][1])
            delta = self.product(self.gate(self.product(h, layer["gate_up"])), layer["down"])
        if last_only:
            x, delta = x[:, -1:], delta[:, -1:]
        return F.linear(self.add_norm(x, delta, self.last_norm)[1], self.head).argmax(-1)


def median_ms(launch):
    """Milliseconds of what launch() launches: the median of 21 after half a second of work."""
    def timed():
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        launch()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end)
    spent = 0.0
    while spent < 500:
        spent += timed()
    return statistics.median(timed() for _ in range(21))


def time_graph(run):
    """Milliseconds of a CUDA graph of what run() launches."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = run()  # what it returns is not overwritten while it is there
    ms = median_ms(graph.replay)
    del kept
    return ms


def measure(model, sequences, rows, at, prompt, timer=time_graph):
    """Milliseconds of a pass, or what another timer gives."""
    tokens = torch.randint(VOCAB, (sequences, rows), device="cuda")
    cache = [[torch.randn((sequences, KV_HEADS, at + rows, DIM), device="cuda", dtype=torch.bfloat16) for _ in range(2)]
             for _ in range(LAYERS)]
    angle = torch.arange(at, at + rows, device="cuda")[:, None] * 500000.0 ** (
        -torch.arange(0, DIM, 2, device="cuda") / DIM)
    cos, sin = angle.cos()[None, :, None, :], angle.sin()[None, :, None, :]
    return timer(lambda: model.forward(tokens, cache, at, cos, sin, rows > 1, prompt))


PASSES = [("decode", rows, 1, context - 1) for context, all_rows in ((512, (1, 8, 16, 64, 256)), (4096, (1, 8, 64)))
          for rows in all_rows]
PASSES += [("replay", rows // 32, 32, 480) for rows in (128, 256, 512, 1024)]
PASSES += [("prompt", 1, rows, 0) for rows in (512, 2048)]


def passes(eager, eight):
    """The lines of the table of passes."""
    yield "pass\trows\tcontext_tokens\tms"
    model = Model(not eager, eight)
    for name, sequences, rows, at in PASSES:
        ms = measure(model, sequences, rows, at, name == "prompt")
        yield f"{name}\t{sequences * rows}\t{at + rows}\t{ms:.4f}"
        torch.cuda.empty_cache()


def launches():
    """The lines of the table of launches."""
    yield "operators\trows\tcontext_tokens\tlaunched_ms\tgraph_ms\tratio"
    for compiled in (False, True):
        model = Model(compiled, False)
        for rows in (1, 8, 16, 64, 256):
            graph, launched = (measure(model, rows, 1, 511, False, timer) for timer in (time_graph, median_ms))
            name = "compiled" if compiled else "eager"
            yield f"{name}\t{rows}\t512\t{launched:.4f}\t{graph:.4f}\t{launched / graph:.3f}"
        del model
        torch.cuda.empty_cache()


def measure_attention(backend, rows):
    """Microseconds of a prompt's attention, and "grouped" or "expanded"."""
    prompts = max(1, min(16, 32768 // rows))
    def values(heads):
        return torch.randn((1, heads, rows, DIM), device="cuda", dtype=torch.bfloat16)
    inputs = [(values(HEADS), values(KV_HEADS), values(KV_HEADS)) for _ in range(prompts)]
    def run(some):
        with sdpa_kernel(backend):
            return [F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape != k.shape)
                    for q, k, v in some]
    heads = "grouped"
    try:
        run(inputs[:1])
    except RuntimeError:
        heads = "expanded"
        inputs = [(q, *(x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))) for q, k, v in inputs]
    return 1000 * time_graph(lambda: run(inputs)) / prompts, heads


def attention():
    """The lines of the table of attention. A kernel that PyTorch does not have here gets a comment."""
    yield "kernel\trows\theads\tus\ttflop_per_s"
    for rows in (512, 2048, 8192, 32768):
        for name, backend in (("cudnn", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION)):
            try:
                us, heads = measure_attention(backend, rows)
                yield f"{name}\t{rows}\t{heads}\t{us:.2f}\t{2e-6 * rows * rows * DIM * HEADS / us:.1f}"
            except RuntimeError as error:
                yield f"# {name}, {rows} rows: {str(error).splitlines()[0]}"
            torch.cuda.empty_cache()


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--out", help="the table goes there too")
    args.add_argument("--eager", action="store_true", help="nothing is compiled by torch.compile")
    args.add_argument("--eight", action="store_true", help="products of the layers in FP8")
    args.add_argument("--launches", action="store_true", help="decode passes launched by Python, and in CUDA graphs")
    args.add_argument("--attention", action="store_true", help="attention of prompts alone, by cuDNN and FlashAttention")
    args = args.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("pytorch.py: no CUDA device: it needs a GPU that PyTorch can use")
    torch.manual_seed(42)
    torch._dynamo.config.recompile_limit = 64  # beyond it nothing more would be compiled
    how = f"cuDNN {torch.backends.cudnn.version()}" if args.attention else "decode passes" if args.launches else \
        ("eager operators" if args.eager else "norms, rotation and gates by torch.compile") + \
        (", products by torch._scaled_mm on e4m3" if args.eight else "")
    lines = [f"# PyTorch {torch.__version__}, CUDA {torch.version.cuda}, {how}",
             f"# cuda device: {torch.cuda.get_device_name()}"]
    print("\n".join(lines), flush=True)
    with torch.inference_mode():
        table = attention() if args.attention else launches() if args.launches else passes(args.eager, args.eight)
        for line in table:
            lines.append(line)
            print(line, flush=True)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
