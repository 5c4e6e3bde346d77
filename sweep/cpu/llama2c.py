#!/usr/bin/env python3
"""Writes what llama2.c needs to run a model, into the folder OUT: model.bin (in fp32) and tokenizer.bin.

    python3 sweep/cpu/llama2c.py MODEL OUT

MODEL is a llama2.c file, or a folder of Hugging Face with a Llama model in bf16. The tokenizer spells token 17 as
"17 ", so that run.c prints ids. llama2.c begins and ends a text with token 1, so token 1 and the BOS of a folder's
model change places.
"""
import array
import glob
import json
import os
import struct
import sys


def load(folder):
    """The configuration and the tensors, as name: (shape, bytes in bf16)."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    tensors = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.safetensors"))):
        with open(path, "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
            begin = file.tell()
            for name, t in header.items():
                if name == "__metadata__":
                    continue
                if t["dtype"] != "BF16":
                    sys.exit(f"llama2c.py: {path}: {name} is {t['dtype']}: only BF16 is read")
                file.seek(begin + t["data_offsets"][0])
                tensors[name] = (t["shape"], file.read(t["data_offsets"][1] - t["data_offsets"][0]))
    theta = config.get("rope_theta", config.get("rope_parameters", {}).get("rope_theta"))
    if (config["model_type"], theta, config["rms_norm_eps"]) != ("llama", 10000, 1e-5):
        sys.exit(f"llama2c.py: {folder}: llama2.c needs model_type llama, rope_theta 10000 and rms_norm_eps 1e-5")
    return config, tensors


def fp32(bf16):
    wide = bytearray(2 * len(bf16))
    wide[2::4], wide[3::4] = bf16[0::2], bf16[1::2]
    return wide


def rows(tensor, order):
    (count, width), data = tensor
    return b"".join(data[2 * width * row:2 * width * (row + 1)] for row in order(count))


def write_model(folder, path):
    """A checkpoint of version 0. Returns the size of the vocabulary."""
    config, tensors = load(folder)
    heads, dim, layers = config["num_attention_heads"], config["hidden_size"], config["num_hidden_layers"]
    half, vocab, bos = dim // heads // 2, config["vocab_size"], config["bos_token_id"]
    tied = "lm_head.weight" not in tensors

    def swapped(count):
        order = list(range(count))
        order[1], order[bos] = bos, 1
        return order

    def interleaved(count):  # a rotation turns values 2i and 2i+1 of a head, and those of Hugging Face i and i+half
        return [row // (2 * half) * 2 * half + row % 2 * half + row % (2 * half) // 2 for row in range(count)]

    order = (("input_layernorm", None), ("self_attn.q_proj", interleaved), ("self_attn.k_proj", interleaved),
             ("self_attn.v_proj", None), ("self_attn.o_proj", None), ("post_attention_layernorm", None),
             ("mlp.gate_proj", None), ("mlp.down_proj", None), ("mlp.up_proj", None))
    with open(path, "wb") as out:
        out.write(struct.pack("<7i", dim, config["intermediate_size"], layers, heads, config["num_key_value_heads"],
                              vocab if tied else -vocab, config["max_position_embeddings"]))
        out.write(fp32(rows(tensors["model.embed_tokens.weight"], swapped)))
        for name, permuted in order:
            for layer in range(layers):
                tensor = tensors[f"model.layers.{layer}.{name}.weight"]
                out.write(fp32(rows(tensor, permuted) if permuted else tensor[1]))
        out.write(fp32(tensors["model.norm.weight"][1]))
        out.write(bytes(4 * config["max_position_embeddings"] * 2 * half))  # rotations, which run.c computes itself
        if not tied:
            out.write(fp32(rows(tensors["lm_head.weight"], swapped)))
    return vocab


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    model, out = sys.argv[1:]
    path = os.path.join(out, "model.bin")
    os.makedirs(out, exist_ok=True)
    if os.path.isdir(model):
        vocab = write_model(model, path)
    else:
        with open(model, "rb") as file:
            data = file.read()
        vocab = abs(array.array("i", data[:28])[5])
        with open(path, "wb") as file:
            file.write(data)
    with open(os.path.join(out, "tokenizer.bin"), "wb") as file:
        file.write(struct.pack("<i", len(f"{vocab} ")))
        for token in range(vocab):
            piece = f"{token} ".encode()
            file.write(struct.pack("<fi", 0, len(piece)) + piece)


main()
