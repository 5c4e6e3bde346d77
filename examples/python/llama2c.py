#!/usr/bin/env python3
"""Converts a checkpoint of llama2.c (version 0) to a Hugging Face folder, which llm42 loads.

    python3 examples/python/llama2c.py stories15M.bin FOLDER [tokenizer.bin]

The folder gets config.json, model.safetensors (in fp32) and, if it is given, the tokenizer. In llama2.c a rotation
turns the values 2i and 2i + 1 of a head, in Hugging Face the values i and i + half, so the rows of q and k change
places.
"""
import json
import math
import os
import struct
import sys

FIELDS = ("dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "seq_len")


def fail(path, problem):
    sys.exit(f"llama2c.py: {path}: {problem}")


def read_header(path, data):
    """The seven sizes that a file begins with. A negative vocab_size says that the LM head is not the embedding."""
    def makes_sense(sizes):
        return all(0 < (abs(n) if name == "vocab_size" else n) <= 1 << 24 for name, n in zip(FIELDS, sizes))

    if len(data) < 28:
        fail(path, "truncated: no llama2.c header")
    sizes = struct.unpack_from("<7i", data)
    if data[:4] == b"24ka":
        fail(path, "version 1 or later: export the model with --version 0")
    if not makes_sense(sizes) and makes_sense(struct.unpack_from(">7i", data)):
        fail(path, "wrong byte order: the header is big-endian, and must be little-endian")
    dim, _, _, heads, kv_heads, _, _ = sizes
    if not makes_sense(sizes) or dim % heads or heads % kv_heads or dim // heads % 2:
        fail(path, "not a llama2.c file: " + ", ".join(f"{name} {n}" for name, n in zip(FIELDS, sizes)))
    return sizes


def tensors_of(dim, ffn, layers, heads, kv_heads, vocab, context):
    """The tensors of a file in order, as (name, shape)."""
    kv = dim // heads * kv_heads
    layer = {"input_layernorm": (dim,), "self_attn.q_proj": (dim, dim), "self_attn.k_proj": (kv, dim),
             "self_attn.v_proj": (kv, dim), "self_attn.o_proj": (dim, dim), "post_attention_layernorm": (dim,),
             "mlp.gate_proj": (ffn, dim), "mlp.down_proj": (dim, ffn), "mlp.up_proj": (ffn, dim)}
    tensors = [("model.embed_tokens", (abs(vocab), dim))]
    tensors += [(f"model.layers.{i}.{name}", shape) for name, shape in layer.items() for i in range(layers)]
    tensors += [("model.norm", (dim,)), ("", (context, dim // heads))]  # "": rotations, which llm42 computes itself
    return tensors + [("lm_head", (abs(vocab), dim))] * (vocab < 0)


def halves(rows, width, head):
    """Puts the rows 0, 2, 4 ... of each head before its rows 1, 3, 5 ..."""
    order = [first + row for first in range(0, len(rows) // width, head)
             for row in [*range(0, head, 2), *range(1, head, 2)]]
    return b"".join(rows[width * row:width * (row + 1)] for row in order)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(folder, name, *pieces):
    with open(os.path.join(folder, name), "wb") as file:
        file.writelines(pieces)


def convert(path, folder, tokenizer):
    data, vocabulary = read(path), read(tokenizer) if tokenizer else None
    if tokenizer and not vocabulary:
        fail(tokenizer, "the file is empty")
    dim, ffn, layers, heads, kv_heads, vocab, context = sizes = read_header(path, data)
    # Asked before there is a list of all tensors, which could be long.
    none, one = (sum(math.prod(shape) for _, shape in tensors_of(*sizes[:2], n, *sizes[3:])) for n in (0, 1))
    asked = 28 + 4 * (none + layers * (one - none))
    if asked != len(data):
        fail(path, f"the header asks for {asked} bytes, the file has {len(data)}")
    header, pieces, begin, at = {}, [], 0, 28
    for name, shape in tensors_of(*sizes):
        piece = data[at:at + 4 * math.prod(shape)]
        at += 4 * math.prod(shape)
        if name.endswith(("q_proj", "k_proj")):
            piece = halves(piece, 4 * dim, dim // heads)
        if name:
            header[name + ".weight"] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, begin + len(piece)]}
            pieces.append(piece)
            begin += len(piece)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the weights are aligned and used in place
    config = {"model_type": "llama", "vocab_size": abs(vocab), "hidden_size": dim, "intermediate_size": ffn,
              "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
              "max_position_embeddings": context, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
              "tie_word_embeddings": vocab > 0, "bos_token_id": 1, "eos_token_id": 1}  # a text ends where one begins
    os.makedirs(folder, exist_ok=True)
    write(folder, "model.safetensors", struct.pack("<Q", len(text)), text, *pieces)
    if vocabulary:
        write(folder, "tokenizer.bin", vocabulary)
    write(folder, "config.json", json.dumps(config, indent=2).encode())  # last, because without it no folder loads


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    try:
        convert(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) == 4 else None)
    except OSError as error:
        fail(error.filename, error.strerror)
