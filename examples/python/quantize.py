#!/usr/bin/env python3
"""Quantises the projections and experts of a Hugging Face folder to e4m3, 8 bits, with a scale for 128 x 128 weights.

    python3 examples/python/quantize.py FOLDER NEW_FOLDER

llm42, vLLM and transformers load the new folder (quant_method fp8). A block's scale is its largest magnitude divided by
448, and at least 1e-10, in fp32; a weight is stored as the e4m3 number nearest to weight / scale. Embedding, LM head,
norms, biases, routers and, of recurrent layers, the convolution and what gives beta and alpha are copied. Tokenizers
and their side files are linked to those of FOLDER. It needs numpy.
"""
import glob
import json
import math
import operator
import os
import struct
import sys

import numpy as np

SIDE, LARGEST = 128, np.float32(448)
TYPES = {"BF16": "<u2", "F16": "<f2", "F32": "<f4"}
ALIGNMENT = {"F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1}
QUANTISED = ("_proj.weight", ".experts.", ".linear_attn.in_proj_qkv", ".linear_attn.in_proj_z.")
LINKED = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json", "added_tokens.json",
          "vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json", "generation_config.json")


def fail(path, problem):
    sys.exit(f"quantize.py: {path}: {problem}")


def read_json(path, text):
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        fail(path, f"no JSON, or broken: {error}")
    return value if isinstance(value, dict) else fail(path, "expected a JSON object")


def tensors(folder):
    """Name, type, shape and bytes of every tensor of a folder, by name."""
    found = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.safetensors"))):
        with open(path, "rb") as file:
            start = file.read(8)
            length = int.from_bytes(start, "little")
            if len(start) < 8 or length > os.path.getsize(path) - 8:
                fail(path, "truncated, or no safetensors file (a git-lfs pointer?): fetch it again")
            header, data = read_json(path, file.read(length)), file.read()
        header.pop("__metadata__", None)
        for name, tensor in header.items():
            try:
                dtype, shape = str(tensor["dtype"]), [operator.index(n) for n in tensor["shape"]]
                begin, end = [operator.index(n) for n in tensor["data_offsets"]]
            except (KeyError, TypeError, ValueError):
                fail(path, f"{name}: expected dtype, shape and data_offsets")
            size = ALIGNMENT[dtype] * math.prod(shape) if dtype in ALIGNMENT else end - begin
            if not 0 <= begin <= end <= len(data) or size != end - begin or min(shape, default=0) < 0:
                fail(path, f"{name}: the file is truncated, or shape and data_offsets disagree: fetch it again")
            found[name] = dtype, shape, data[begin:end]
    return sorted(found.items())


def to_fp32(name, dtype, shape, data):
    words = np.frombuffer(data, TYPES[dtype]).reshape(shape)
    values = (words.astype("<u4") << 16).view("<f4") if dtype == "BF16" else words.astype("<f4")
    return values if np.isfinite(values).all() else fail(name, "a weight is NaN or infinite")


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


def write(path, parts):
    """A file that is there when it is complete. It takes the place of a link."""
    with open(path + ".part", "wb") as file:
        file.writelines(parts)
    os.replace(path + ".part", path)


def convert(folder, new):
    if os.path.realpath(folder) == os.path.realpath(new):
        fail(new, "is FOLDER itself: the new folder must be another")
    path = os.path.join(folder, "config.json")
    with open(path, "rb") as file:
        config = read_json(path, file.read())
    if config.get("quantization_config"):
        fail(folder, "the model is quantised already")
    kept, everything = [], tensors(folder)
    if not everything:
        fail(folder, "no *.safetensors")
    for name, (dtype, shape, data) in everything:
        weights = to_fp32(name, dtype, shape, data) if dtype in TYPES else None
        if len(shape) == 2 and any(part in name for part in QUANTISED):
            if weights is None:
                fail(name, f"{dtype}: expected one of {', '.join(TYPES)}: is the folder quantised already?")
            data, scales = quantise(weights)
            kept.append((name + "_scale_inv", "F32", scales.shape, scales.tobytes()))
            dtype, data = "F8_E4M3", data.tobytes()
        elif len(shape) == 3 and ".conv1d." not in name:
            fail(name, "experts in one tensor: save the model with one tensor for each expert")
        kept.append((name, dtype, shape, data))
    if len(kept) == len(everything):
        fail(folder, "no projection (..._proj.weight)")
    config["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                                     "weight_block_size": [SIDE, SIDE]}
    os.makedirs(new, exist_ok=True)
    for name in LINKED:
        source, link = os.path.join(folder, name), os.path.join(new, name)
        if os.path.exists(source) and not os.path.lexists(link):
            os.symlink(os.path.relpath(os.path.realpath(folder), os.path.realpath(new)) + "/" + name, link)
    entries, begin = {}, 0
    kept.sort(key=lambda tensor: -ALIGNMENT.get(tensor[1], 0))  # so that every tensor is aligned
    for name, dtype, shape, data in kept:
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, begin + len(data)]}
        begin += len(data)
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    write(os.path.join(new, "model.safetensors"),
          [struct.pack("<Q", len(header)), header, *(data for *_, data in kept)])
    write(os.path.join(new, "config.json"), [json.dumps(config, indent=2).encode(), b"\n"])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        convert(sys.argv[1], sys.argv[2])
    except OSError as error:
        fail(error.filename or sys.argv[2], error.strerror)
