#!/usr/bin/env python3
"""Quantises the projections and experts of a Hugging Face folder to e4m3, 8 bits, with a scale for 128 x 128 weights.

    python3 examples/python/quantize.py FOLDER NEW_FOLDER

llm42, vLLM and transformers load the new folder (quant_method fp8). A block's scale is its largest magnitude divided by
448, and at least 1e-10, in fp32; a weight is stored as the e4m3 number nearest to weight / scale. Embedding, LM head,
norms, biases and routers are copied. Tokenizers are linked to those of FOLDER. It needs numpy.
"""
import glob
import json
import os
import struct
import sys

import numpy as np

SIDE, LARGEST = 128, np.float32(448)
TYPES = {"BF16": "<u2", "F16": "<f2", "F32": "<f4"}
ALIGNMENT = {"F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1}


def fail(path, problem):
    sys.exit(f"quantize.py: {path}: {problem}")


def tensors(folder):
    """Name, type, shape and bytes of every tensor of a folder, by name."""
    found = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.safetensors"))):
        with open(path, "rb") as file:
            length = struct.unpack("<Q", file.read(8))[0]
            header, data = json.loads(file.read(length)), file.read()
        for name, tensor in header.items():
            if name != "__metadata__":
                begin, end = tensor["data_offsets"]
                found[name] = tensor["dtype"], tensor["shape"], data[begin:end]
    return sorted(found.items())


def to_fp32(name, dtype, shape, data):
    if dtype not in TYPES:
        fail(name, f"{dtype}: expected one of {', '.join(TYPES)}: is the folder quantised already?")
    words = np.frombuffer(data, TYPES[dtype]).reshape(shape)
    return (words.astype("<u4") << 16).view("<f4") if dtype == "BF16" else words.astype("<f4")


def to_e4m3(x):
    """The nearest e4m3, ties to even, as bytes. No |x| is above 448."""
    bits = x.view("<u4")
    sign, size = bits >> 24 & 0x80, bits & 0x7FFFFFFF
    normal = (size + 0x7FFFF + (size >> 20 & 1) >> 20) - (120 << 3)
    subnormal = np.rint(np.abs(x) * np.float32(512)).astype("<u4")  # in units of 2^-9
    return (sign | np.where(size < 0x3C800000, subnormal, normal)).astype("u1")  # below 2^-6


def quantise(weights):
    """A matrix as bytes, and its scales."""
    rows, columns = (-(-n // SIDE) for n in weights.shape)
    data, scales = np.empty(weights.shape, "u1"), np.empty((rows, columns), "<f4")
    for i in range(rows):
        for j in range(columns):
            block = np.s_[SIDE * i:SIDE * (i + 1), SIDE * j:SIDE * (j + 1)]
            scales[i, j] = max(np.abs(weights[block]).max() / LARGEST, np.float32(1e-10))
            data[block] = to_e4m3(weights[block] / scales[i, j])
    return data, scales


def convert(folder, new):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    if config.get("quantization_config"):
        fail(folder, "the model is quantised already")
    kept, everything = [], tensors(folder)
    if not everything:
        fail(folder, "no *.safetensors")
    for name, (dtype, shape, data) in everything:
        if len(shape) == 2 and ("_proj.weight" in name or ".experts." in name):
            data, scales = quantise(to_fp32(name, dtype, shape, data))
            kept.append((name + "_scale_inv", "F32", scales.shape, scales.tobytes()))
            dtype, data = "F8_E4M3", data.tobytes()
        elif len(shape) == 3:
            fail(name, "experts in one tensor: save the model with one tensor for each expert")
        kept.append((name, dtype, shape, data))
    if len(kept) == len(everything):
        fail(folder, "no projection (..._proj.weight)")
    config["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                                     "weight_block_size": [SIDE, SIDE]}
    os.makedirs(new, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "generation_config.json"):
        source, link = os.path.join(folder, name), os.path.join(new, name)
        if os.path.exists(source) and not os.path.lexists(link):
            os.symlink(os.path.relpath(source, new), link)
    entries, begin = {}, 0
    kept.sort(key=lambda tensor: -ALIGNMENT[tensor[1]])  # so that every tensor is aligned
    for name, dtype, shape, data in kept:
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, begin + len(data)]}
        begin += len(data)
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    with open(os.path.join(new, "model.safetensors"), "wb") as file:
        file.writelines([struct.pack("<Q", len(header)), header, *(data for *_, data in kept)])
    with open(os.path.join(new, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)
        file.write("\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        convert(sys.argv[1], sys.argv[2])
    except OSError as error:
        fail(error.filename, error.strerror)
