#!/usr/bin/env python3
"""One layer of a Llama model as PyTorch computes it on a Hopper GPU, computed again on a CPU, and compared bit by bit.

    python3 sweep/science/layer.py FILE.npz --out sweep/results/science/layer.tsv
    python3 sweep/science/layer.py sweep/results/science/layer.tsv [--only decode]

FILE.npz is what sweep/science/layer_dump.py wrote on a GPU. Each step is computed twice: from what the GPU gave to the
step (`given`), and from the layer's input alone, through all steps (`chain`). The table that the first command writes
has digests of what the GPU returned, so that the second command compares with them without FILE.npz. Products and
attention are in layer.c, which is compiled here (CC, STB), and the rest is below. sweep/results/science/layer.md says
what came out.
"""
import argparse, ctypes, hashlib, json, os, re, subprocess, sys, tempfile
import numpy as np

HERE, sys.dont_write_bytecode = os.path.dirname(os.path.abspath(__file__)), True
sys.path.insert(0, HERE)
from layer_dump import (ATTENTION, CASES, EPS, PRODUCTS, ROWS, SHAPES, bf16, fp32, heads_of, normal, probes, rotation,
                        scaled, tokens, weights)

AMPERE, PLAIN, ASCENDING, EXACT, FUSED, WHOLE = 1, 2, 4, 8, 16, 32  # controls, all but the last of layer.c


class Attention(ctypes.Structure):
    _fields_ = [(n, ctypes.c_int) for n in "heads kv_heads d rows keys block splits control".split()] + \
               [("scale", ctypes.c_float)] + [(n, ctypes.c_void_p) for n in "visible q k v out lse".split()]


def compiled():
    with tempfile.TemporaryDirectory() as folder:
        lib = folder + "/layer.so"
        subprocess.run([*os.environ.get("CC", "gcc").split(), "-std=gnu11", "-O2", "-ffp-contract=off", "-march=native",
                        "-fopenmp", "-w", "-shared", "-fPIC", "-I" + HERE + "/../..",
                        "-I" + os.environ.get("STB", "/usr/include/stb"), HERE + "/layer.c", "-o", lib, "-lm"],
                       check=True)
        return ctypes.CDLL(lib)


C = compiled()
at = lambda a: ctypes.c_void_p(a.ctypes.data)


def mapped(which, x):
    x = np.ascontiguousarray(x, np.float32)
    y = np.empty_like(x)
    C.layer_map(ord(which), ctypes.c_int64(x.size), at(x), at(y))
    return y


def sums(x, w, k0, k1, control=0):
    x, w = np.ascontiguousarray(x), np.ascontiguousarray(w)
    (M, K), N = x.shape, len(w)
    y = np.empty((M, N), np.float32)
    C.layer_product(control, *map(ctypes.c_int64, (M, K, N, k0, k1)), at(x), at(w), at(y))
    return y


# Into how many parts cuBLAS cuts K, by rows, K and outputs, where it does: grids of its kernels say it.
PARTS = {(1, 2816, 1024): 2, (128, 2816, 1024): 2, (1, 5632, 2048): 3, (128, 14336, 4096): 2,
         **{(M, 4096, 1024): 3 for M in (1, 2, 16, 128)}, **{(M, 4096, 4096): 2 for M in (1, 2, 16)},
         **{(M, 14336, 4096): 4 for M in (1, 2, 16)}}


def part_of(M, K, N):
    parts = PARTS.get((M, K, N), 1)
    return -(-K // (64 * parts)) * 64 if parts > 1 else K


def product(M, N, x, w, control=0):
    """Of M rows and N outputs, of which x and w have some. Parts of K are added in ascending order."""
    K = x.shape[1]
    each = K if control & WHOLE else part_of(M, K, N)
    total = sums(x, w, 0, each, control)
    for k in range(each, K, each):
        total += sums(x, w, k, min(K, k + each), control)
    return bf16(total)


def splits(heads, rows, keys, d, multiprocessors):
    """Into how many parts PyTorch has FlashAttention split the keys: num_splits_heuristic of its flash_api.cpp."""
    blocks, tasks, slots = -(-keys // (256 if d <= 64 else 128)), heads * -(-rows // 64), 2 * multiprocessors
    if tasks >= np.float32(0.8) * slots:
        return 1
    fits = [n for n in range(1, min(128, slots, blocks) + 1) if n == 1 or -(-blocks // n) != -(-blocks // (n - 1))]
    filled = {n: np.float32(tasks * n) / np.float32(slots) for n in fits}
    filled = {n: f / np.ceil(f) for n, f in filled.items()}
    return next(n for n in fits if filled[n] >= 0.85 * max(filled.values()))


def attention(q, k, v, visible, rows, multiprocessors, control=0):
    """q: some of the rows, which see so many keys -> bits of the result, logarithms of sums."""
    q, k, v = map(np.ascontiguousarray, (q, k, v))
    (n, H, d), (T, KV, _) = q.shape, k.shape
    parts = splits(*((KV, H // KV) if rows == 1 and H > KV else (H, rows)), T, d, multiprocessors)
    block = (128 if d <= 64 else 64) * (2 if parts > 1 else 1)
    visible = np.ascontiguousarray(visible, np.int32)
    out, lse = np.empty((n, H * d), np.uint16), np.empty((H, n), np.float32)
    C.layer_attention(ctypes.byref(Attention(H, KV, d, n, T, block, parts, control, d ** -0.5,
                                             *map(at, (visible, q, k, v, out, lse)))))
    return out, lse


def halves(lane):
    """The sum of a power of two of threads, as a GPU's threads take it: the upper half is added to the lower one."""
    while lane.shape[-1] > 1:
        lane = lane[..., :lane.shape[-1] // 2] + lane[..., lane.shape[-1] // 2:]
    return lane


def mean_of_squares(rows, x):
    """PyTorch's mean: a warp (of one row, D / 4 threads, at most 512) takes vectors of four, which have a sum each."""
    square = fp32(x) * fp32(x)
    n, D = x.shape
    turns = square.reshape(n, -1, min(512, D // 4) if rows == 1 else 32, 4)
    total = np.zeros_like(turns[:, 0])
    for i in range(turns.shape[1]):
        total += turns[:, i]
    return halves(((total[..., 0] + total[..., 1]) + total[..., 2]) + total[..., 3]) * np.float32(1 / D)


add, times = lambda a, b: bf16(fp32(a) + fp32(b)), lambda a, b: bf16(fp32(a) * fp32(b))


def rope(x, cos, sin):
    half = x.shape[-1] // 2
    turned = np.concatenate((x[..., half:] ^ 0x8000, x[..., :half]), -1)
    return add(times(x, cos[:, None]), times(turned, sin[:, None]))


class Layer:
    """The steps. Each takes its inputs by name from `of`, and says what its result is called."""
    def __init__(self, name, multiprocessors):
        self.name, (shape, self.before, self.n, every) = name, CASES[name]
        self.D, self.H, self.KV, self.d, _, _ = SHAPES[shape]
        self.w, self.multiprocessors = weights(shape), multiprocessors
        self.rows = np.array(sorted({*range(0, self.n, every), self.n - 1}))
        self.x, self.rotation = tokens(shape, self.before, self.n), rotation(self.d, self.before, self.n)
        self.cached, self.control = None, 0

    def some(self, a):
        """The rows that are compared."""
        return a[self.rows] if len(a) == self.n else a

    def linear(self, which, x):
        return product(self.n, len(self.w[which]), x, self.w[which], self.control)

    def heads(self, x):
        return x.reshape(len(x), -1, self.d)

    def attend(self, q, k, v):
        k, v = self.heads(k), self.heads(v)
        if self.before:
            k, v = np.concatenate((self.cached[0], k)), np.concatenate((self.cached[1], v))
        return attention(self.heads(q), k, v, self.before + self.rows + 1, self.n, self.multiprocessors,
                         self.control)

    def fused(self, which, x):
        """F.rms_norm: 128 threads take vectors of four; then warps, then the four of a block, by halves."""
        n, D = x.shape
        total = np.zeros((n, 128), np.float32)
        for vector in fp32(x).reshape(n, -1, 128, 4).swapaxes(0, 1):
            for i in range(4):
                value = vector[..., i].astype(np.float64)
                total = (value * value + total).astype(np.float32)  # as good as exact: a product has 16 bits
        sum_of = halves(halves(total.reshape(n, 4, 32))[..., 0])
        inverse = mapped("r", sum_of / np.float32(D) + np.float32(EPS))
        return bf16(fp32(x) * inverse * fp32(self.w[which]))

    def run(self, given=None):
        """All steps by name: from the GPU's results, or in a chain. Steps up to k_rope then have all rows."""
        out, some = {}, self.some
        of = lambda name: (given or out)[name]
        turned = lambda x: rope(self.heads(x), *(t if len(x) == self.n else some(t) for t in self.rotation))

        def norm(which, x):
            mean, inverse = which + ".mean", which + ".rsqrt"
            out[mean] = mean_of_squares(self.n, x)
            x = some(x) if given else x
            out[inverse] = mapped("r", of(mean) + np.float32(EPS))
            out[which] = times(self.w[which], bf16(fp32(x) * of(inverse)))
            out[which + ".fused"] = self.fused(which, x)

        norm("norm1", self.x)
        for which in "kvq":
            out[which] = self.linear(which, some(of("norm1")) if which == "q" else of("norm1"))
            if which != "v":
                out[which + "_rope"] = turned(some(of(which)) if given else of(which))
        out["attention"], out["attention.lse"] = self.attend(some(of("q_rope")), of("k_rope"), of("v"))
        out["o"] = self.linear("o", some(of("attention")))
        out["residual1"] = add(some(self.x), of("o"))
        norm("norm2", of("residual1"))
        out["gate"], out["up"] = (self.linear(which, of("norm2")) for which in ("gate", "up"))
        out["silu"] = bf16(mapped("s", fp32(of("gate"))))
        out["act"] = times(of("silu"), of("up"))
        out["down"] = self.linear("down", of("act"))
        out["residual2"] = add(of("residual1"), of("down"))
        return out


STEPS = ("norm1.mean norm1.rsqrt norm1.fused norm1 q k v q_rope k_rope attention.lse attention o residual1 "
         "norm2.mean norm2.rsqrt norm2.fused norm2 gate up silu act down residual2").split()
OF_PRODUCTS = {"fp32, one term after another": PLAIN, "steps of Ampere": AMPERE, "K in one part": WHOLE}
OF_ATTENTION = {"blocks from first to last": ASCENDING, "steps of Ampere": AMPERE, "exact 2^x": EXACT,
                "score x scale - base in one rounding": FUSED}
OF_CHAINS = {"products: fp32, one term after another": PLAIN, "steps of Ampere": AMPERE, "exact 2^x": EXACT}


class Table:
    """What was compared: with the dump's arrays, or, where there is no dump, with the digests of an earlier table."""
    columns = "part case step inputs control values equal first gpu cpu kernel digest".split()

    def __init__(self, dump=None, kernels=None, known=()):
        self.dump, self.kernels, self.rows, self.compared, self.failed = dump, kernels, [], 0, 0
        # Controls that changed nothing say nothing.
        self.known = {tuple(row[:5]): (row[-1], row[5] == row[6]) for row in known if not row[4] or row[5] != row[6]}

    def kernel(self, part, case, step):
        """Of cuBLAS or FlashAttention; of the latter head size, rows and keys of a block."""
        label = part + "." + case.replace(" x ", ".") if part != "layer" else case + "." + step
        found = re.search(r"nvjet\w+|(flash_fwd\w*)<\w+<(\d+, \d+, \d+)", str(self.kernels.get(label)))
        return " ".join(filter(None, found.groups())) or found[0] if found else ""

    def compare(self, part, case, step, inputs, control, cpu, gpu):
        """cpu: an array; gpu: the dump's, by a function."""
        key, digest = (part, case, step, inputs, control), lambda a: hashlib.sha256(a.tobytes()).hexdigest()[:16]
        if self.dump is None:  # a control must have another digest
            if key in self.known:
                good = (digest(cpu) == self.known[key][0]) == self.known[key][1]
                self.compared, self.failed = self.compared + 1, self.failed + (not good)
                print(*key, "as expected" if good else "NOT AS EXPECTED", sep="\t")
            return
        gpu, word = np.ascontiguousarray(gpu()).reshape(cpu.shape), np.dtype("u%d" % cpu.itemsize)
        differ = gpu.view(word) != np.ascontiguousarray(cpu).view(word)
        where = np.unravel_index(differ.argmax(), differ.shape)
        number = lambda a: "%.9g" % (fp32(a[where][None])[0] if cpu.dtype == np.uint16 else a[where])
        first = [",".join(map(str, where)), number(gpu), number(cpu)] if differ.any() else [""] * 3
        self.compared += 1
        self.rows.append([*key, gpu.size, gpu.size - int(differ.sum()), *first,
                          self.kernel(part, case, step), digest(gpu)])
        print(*self.rows[-1], sep="\t", flush=True)


def layers(table, multiprocessors, only):
    cached = {}
    needed = {CASES[name][:2] for name in CASES if only in name}
    for name, (shape, before, n, _) in CASES.items():
        if only not in name and (shape, n) not in needed:
            continue
        layer = Layer(name, multiprocessors)
        gpu = table.dump and {step: table.dump[name + "." + step] for step in STEPS}

        def compare(step, inputs, control, cpu):
            lse = step == "attention.lse"
            there = lambda: gpu[step].reshape(layer.H, -1)[:, layer.rows] if lse else layer.some(gpu[step])
            table.compare("layer", name, step, inputs, control, cpu if lse else layer.some(cpu), there)

        for inputs in ("given", "chain") if gpu else ("chain",):
            layer.cached = cached.get((shape, before, inputs))
            out = layer.run(gpu if inputs == "given" else None)
            if not before:
                source = gpu if inputs == "given" else out
                cached[shape, n, inputs] = source["k_rope"], layer.heads(source["v"])
            for step in STEPS if only in name else ():
                compare(step, inputs, "", out[step])
        for control, layer.control in OF_CHAINS.items() if only in name else ():
            compare("residual2", "chain", control, layer.run()["residual2"])
        for control, layer.control in OF_PRODUCTS.items() if gpu and only in name else ():
            for step, x in ("q", gpu["norm1"]), ("gate", gpu["norm2"]), ("down", gpu["act"]):
                if control != "K in one part" or (layer.n, x.shape[1], len(layer.w[step])) in PARTS:
                    compare(step, "given", control, layer.linear(step, x))


def attentions(table, multiprocessors, only):
    for name, (d, n, T, H, KV, causal, _) in ATTENTION.items():
        for control, what in {"": 0, **OF_ATTENTION}.items() if only in "attention." + name else ():
            visible = np.arange(n) + 1 if causal else np.full(n, T)
            for step, cpu in zip(("", ".lse"), attention(*heads_of(name), visible, n, multiprocessors, what)):
                table.compare("attention", name, "attention" + step, "given", control, cpu,
                              lambda: table.dump["attention." + name + step])


def products(table, only):
    for K, N in PRODUCTS:
        w = None
        for M in ROWS:
            label = "product.%d.%d.%d" % (M, K, N)
            for control, what in {"": 0, **OF_PRODUCTS}.items() if only in label else ():
                w = scaled(normal(K + 7 * N, N, K), K ** -0.5)[::max(8, N // 128)] if w is None else w
                x = normal(5 * K + M, M, K)[::max(1, M // 8)]
                if what != WHOLE or (M, K, N) in PARTS:
                    table.compare("product", "%d x %d x %d" % (M, K, N), "product", "given", control,
                                  product(M, N, x, w, what), lambda: table.dump[label])


def orders(table, only):
    """Probes: the ones that a product did not add to 2^60 alone are those that it added after 2^60 - 2^60."""
    for M, K, N in [map(int, name.split(".")[1:]) for name in table.dump or () if "probe" in name]:
        each, j, k, counts = part_of(M, K, N), np.arange(N) * max(1, K // N) % K, np.arange(K), []
        for i in probes(M, K) if only in "probe" else ():
            low, high = np.minimum(i, j), np.maximum(i, j)
            first = np.where(low // each == high // each, low // each * each, 0)
            last = np.where(low // each == high // each, high // 16 * 16 + 16, np.minimum(K, (high // each + 1) * each))
            alone = (k < first[:, None]) | (k >= last[:, None])
            alone[j == i] = k != i
            counts += [alone[:, block:block + 128].sum(1) for block in range(0, K, 128)]
        if counts:
            table.compare("probe", "%d x %d x %d" % (M, K, N), "product", "given", "", np.array(counts, np.uint8),
                          lambda: table.dump["probe.%d.%d.%d" % (M, K, N)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="of layer_dump.py, or a table of this program")
    parser.add_argument("--out", help="the table")
    parser.add_argument("--only", default="", help="cases whose names have this")
    options = parser.parse_args()
    if options.file.endswith(".npz"):
        dump = dict(np.load(options.file))
        about = json.loads(bytes(dump["about"]))
        table = Table(dump, about["kernels"])
    else:
        lines = [line.rstrip("\n").split("\t") for line in open(options.file) if line[0] != "#"]
        about, table = {"multiprocessors": 132}, Table(known=lines[1:])
    layers(table, about["multiprocessors"], options.only)
    attentions(table, about["multiprocessors"], options.only)
    products(table, options.only)
    orders(table, options.only)
    if options.out:
        with open(options.out, "w") as f:
            for key in "device torch cuda multiprocessors".split():
                f.write("# %s: %s\n" % (key, about[key]))
            for line in (table.columns, *table.rows):
                f.write("\t".join(map(str, line)) + "\n")
    if not table.compared:
        sys.exit(f"layer.py: nothing was compared: {options.file} has no results of cases whose names have "
                 f"'{options.only}'")
    sys.exit(table.failed > 0)


if __name__ == "__main__":
    main()
