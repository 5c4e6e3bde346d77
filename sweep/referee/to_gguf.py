#!/usr/bin/env python3
"""Writes a Llama model of Hugging Face's layout, such as examples/tiny42, as GGUF for llama.cpp's servers.

    pip install gguf && python3 sweep/referee/to_gguf.py examples/tiny42 tiny42.gguf

The weights keep their bits (bf16), and norms become fp32. It is for models with a byte-level BPE tokenizer that splits
words as Llama 3's does, and no more.
"""
import glob
import json
import sys

import gguf
import numpy as np

NAMES = {'input_layernorm': 'attn_norm', 'post_attention_layernorm': 'ffn_norm', 'self_attn.q_proj': 'attn_q',
         'self_attn.k_proj': 'attn_k', 'self_attn.v_proj': 'attn_v', 'self_attn.o_proj': 'attn_output',
         'mlp.gate_proj': 'ffn_gate', 'mlp.up_proj': 'ffn_up', 'mlp.down_proj': 'ffn_down'}
WHOLE = {'model.embed_tokens.weight': 'token_embd.weight', 'model.norm.weight': 'output_norm.weight',
         'lm_head.weight': 'output.weight'}


def tensors(folder):
    """The names and bf16 words of a folder's safetensors files."""
    paths = sorted(glob.glob(glob.escape(folder) + '/*.safetensors'))
    if not paths:
        sys.exit('to_gguf: %s: it has no file *.safetensors' % folder)
    for path in paths:
        with open(path, 'rb') as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), 'little')))
            data = file.read()
        for name, entry in header.items():
            if name == '__metadata__':
                continue
            if entry['dtype'] != 'BF16':
                sys.exit('to_gguf: %s: %s has type %s, and only BF16 is known' % (path, name, entry['dtype']))
            begin, end = entry['data_offsets']
            yield name, np.frombuffer(data[begin:end], np.uint16).reshape(entry['shape'])


def gguf_name(name):
    if name in WHOLE:
        return WHOLE[name]
    layer, part = name.removeprefix('model.layers.').removesuffix('.weight').split('.', 1)
    return 'blk.%s.%s.weight' % (layer, NAMES[part])


def halves_to_pairs(weight, heads):
    """Hugging Face rotates the halves of a head, and GGUF neighbours."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def main(folder, out):
    with open(folder + '/config.json') as file:
        config = json.load(file)
    with open(folder + '/tokenizer.json') as file:
        tokenizer = json.load(file)
    heads, kv_heads = config['num_attention_heads'], config['num_key_value_heads']
    writer = gguf.GGUFWriter(out, 'llama')
    writer.add_name(folder.rstrip('/').split('/')[-1])
    writer.add_context_length(config['max_position_embeddings'])
    writer.add_embedding_length(config['hidden_size'])
    writer.add_block_count(config['num_hidden_layers'])
    writer.add_feed_forward_length(config['intermediate_size'])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(config['head_dim'])
    writer.add_value_length(config['head_dim'])
    writer.add_rope_dimension_count(config['head_dim'])
    writer.add_rope_freq_base(config['rope_parameters']['rope_theta'])
    writer.add_layer_norm_rms_eps(config['rms_norm_eps'])
    writer.add_vocab_size(config['vocab_size'])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)

    words = {id: word for word, id in tokenizer['model']['vocab'].items()}
    special = {t['id'] for t in tokenizer['added_tokens']}
    words.update((t['id'], t['content']) for t in tokenizer['added_tokens'])
    count = config['vocab_size']
    writer.add_tokenizer_model('gpt2')
    writer.add_tokenizer_pre('llama-bpe')
    writer.add_token_list([words.get(i, '<|unused%d|>' % i) for i in range(count)])
    writer.add_token_types([gguf.TokenType.CONTROL if i in special else gguf.TokenType.NORMAL if i in words
                            else gguf.TokenType.UNUSED for i in range(count)])
    writer.add_token_merges([m if isinstance(m, str) else ' '.join(m) for m in tokenizer['model']['merges']])
    writer.add_bos_token_id(config['bos_token_id'])
    writer.add_eos_token_id(config['eos_token_id'])
    writer.add_add_bos_token(True)

    for name, weight in tensors(folder):
        if name.endswith('q_proj.weight'):
            weight = halves_to_pairs(weight, heads)
        elif name.endswith('k_proj.weight'):
            weight = halves_to_pairs(weight, kv_heads)
        if weight.ndim == 1:
            writer.add_tensor(gguf_name(name), (weight.astype(np.uint32) << 16).view(np.float32))
        else:
            writer.add_tensor(gguf_name(name), np.ascontiguousarray(weight).view(np.uint8),
                              raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == '__main__':
    if len(sys.argv) != 3:
        sys.exit('usage: to_gguf.py FOLDER FILE')
    main(*sys.argv[1:])
