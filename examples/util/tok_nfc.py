"""Prints examples/util/tok_nfc.h with the tables that Unicode 9 has: python3 tok_nfc.py OLD >NEW, where OLD is
that header, whose text around the tables stays. The package tokenizers has Unicode 9 for this, and models have learnt
from what it made."""
import sys
import unicodedata

ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
# Marks, and one composed letter, of which Unicode 14 knows and Unicode 9 does not.
NEWER = """7fd 898-89f 8ca-8d3 9fe c3c d3b-d3c eba 1715 1abf-1ace 1df6-1dfa a82c 10d24-10d27 10eab-10eac 10f46-10f50
    10f82-10f85 11070 1133b 1145e 11839-1183a 11930-1193e 11943 119e0 11a34 11a47 11a99 11d42 11d44-11d45 11d97
    16ff0-16ff1 1e130-1e136 1e2ae 1e2ec-1e2ef"""
for first, last in ((r + "-" + r).split("-")[:2] for r in NEWER.split()):
    ALL = [c for c in ALL if not int(first, 16) <= c <= int(last, 16)]
if unicodedata.unidata_version != "14.0.0":
    sys.exit("tok_nfc.py: needs the Unicode 14 of Python 3.11: what is newer is left out by a list")
HANGUL = range(0xAC00, 0xD7A4)  # composed by arithmetic
parts = {c: [int(p, 16) for p in unicodedata.decomposition(chr(c)).split()] for c in ALL
         if c not in HANGUL and unicodedata.decomposition(chr(c)) and "<" not in unicodedata.decomposition(chr(c))}
changed = {c for c in ALL if unicodedata.normalize("NFC", chr(c)) != chr(c)}
second = {p[1] for c, p in parts.items() if len(p) == 2 and c not in changed}
second |= set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))


def ranges(points, value):
    """[first, last, value] of neighbours with one value."""
    found = []
    for c in sorted(points):
        if found and found[-1][1] == c - 1 and found[-1][2] == value(c):
            found[-1][1] = c
        else:
            found.append([c, c, value(c)])
    return found


def rows(name, comment, items):
    line = "    "
    print(f"// {comment}\nstatic const {name} = {{")
    for item in items:
        if len(line) + len(item) + 1 > 120:
            print(line)
            line = "    "
        line += f"{item},"
    print(f"{line}\n}};")


def triple(a, b, c):
    return f"{{{a:#x},{b:#x},{c}}}"


def tables():
    rows("uint32_t nfc_classes[][3]", "{first, last, combining class} of the marks that have one.",
         [triple(*r) for r in ranges([c for c in ALL if unicodedata.combining(chr(c))],
                                     lambda c: unicodedata.combining(chr(c)))])
    rows("uint32_t nfc_doubtful[][3]",
         "{first, last, x}, where x is 1: never occurs in NFC text; 0: may combine with the character before.",
         [triple(*r) for r in ranges(changed | second, lambda c: int(c in changed))])
    order, runs, values = sorted(parts), [], []
    for i, c in enumerate(order):
        if not i or order[i - 1] != c - 1:
            runs.append([c, c, i])
        runs[-1][1] = c
        values.append(parts[c] + [0] * (2 - len(parts[c])))
    rows("uint32_t nfc_runs[][3]", "{first, last, place of the first in nfc_parts} of characters that have parts.",
         [triple(*r) for r in runs])
    rows("uint32_t nfc_parts[]", "The two parts of each. The second is 0 if it is one character by another name.",
         [f"{a:#x},{b:#x}" if b else f"{a:#x},0" for a, b in values])
    pairs = sorted((parts[c], c) for c in order if c not in changed)
    rows("uint32_t nfc_composed[]", "What is composed of two parts, in the order of the parts.",
         [f"{c:#x}" for _, c in pairs])


skip = False
for line in open(sys.argv[1], encoding="utf-8"):
    if line.startswith("// clang-format on"):
        skip = False
    if not skip:
        print(line, end="")
    if line.startswith("// clang-format off"):
        tables()
        skip = True
