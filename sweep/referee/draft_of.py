#!/usr/bin/env python3
"""Writes a draft model for a model of Hugging Face's layout in bf16: the same model with coarser weights.

    python3 sweep/referee/draft_of.py examples/tiny42 /tmp/draft [BITS]

Of the 7 bits behind the leading one of each weight the first BITS are kept (2), and the others become 0. So the draft
model guesses what the whole model says, often but not always.
"""
import os
import shutil
import sys


def main(folder, out, bits='2'):
    with open(folder + '/model.safetensors', 'rb') as file:
        data = file.read()
    begin = 8 + int.from_bytes(data[:8], 'little')
    if data[8:begin].count(b'"dtype"') != data[8:begin].count(b'"BF16"'):
        sys.exit('draft_of: %s/model.safetensors: it has weights of another type, and only BF16 is known' % folder)
    keep = bytes(byte & (0x80 | 0x7f & ~(0x7f >> int(bits))) for byte in range(256))  # the upper bit is the exponent's
    weights = bytearray(data[begin:])
    weights[0::2] = weights[0::2].translate(keep)
    os.makedirs(out, exist_ok=True)
    with open(out + '/model.safetensors', 'wb') as file:
        file.write(data[:begin] + weights)
    for name in ('config.json', 'tokenizer.json', 'tokenizer_config.json'):
        shutil.copy(folder + '/' + name, out)


if __name__ == '__main__':
    if len(sys.argv) not in (3, 4) or sys.argv[3:] and sys.argv[3] not in '0123456':
        sys.exit('usage: draft_of.py FOLDER NEW_FOLDER [BITS, 0 to 6]')
    main(*sys.argv[1:])
