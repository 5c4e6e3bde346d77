#!/usr/bin/env python3
"""The constants of a GPU's special functions as a table, from the source: examples/util/llm42_sfu.h, and llm42.h (2^x).

    python3 sweep/science/sfu_constants.py [ROOT] > sweep/results/science/special_functions.tsv

ROOT is the folder of the repository (default: the one where this script is).
tests/test_sfu.c compares what the source computes with a GPU. This program only reads the numbers that stand in it, and
fails where a line does not look as it did. 2^-c0_unit is the unit of c0, 2^-K_unit that of K, and results are cut to
2^-cut; nan: to 24 bits alone.
"""
import os
import re
import sys

ROOT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
# Names of functions in the source, and in PTX.
INSTRUCTIONS = {"rcp": "rcp.approx.ftz.f32", "sqrt": "sqrt.approx.ftz.f32", "rsqrt": "rsqrt.approx.ftz.f32",
                "lg2": "lg2.approx.ftz.f32", "sine": "sin, cos.approx.ftz.f32", "tanh": "tanh.approx.f32"}
COLUMNS = ("instruction", "tables", "rows", "bits", "t", "c0_unit", "K", "K_unit", "cut")


def body(path, name):
    """The source of a function, in one line."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        text = file.read()
    found = re.search(rf"LLM42__BOTH float {name}\(.*?\n}}\n", text, re.S)
    if not found:
        sys.exit(f"sfu_constants.py: {path} has no function {name}")
    return " ".join(found[0].split())


def numbers(text, pattern):
    """The integers of the one match of a pattern."""
    found = re.findall(pattern, text)
    if len(found) != 1:
        sys.exit(f"sfu_constants.py: {len(found)} matches of {pattern}")
    return [int(part or 1) for part in (found[0] if isinstance(found[0], tuple) else found)]


def of_2_to_x():
    """2^x adds c0 / 4 and r, in units of 2^-23, behind a division of the rest by 2^15. r is cut into two parts for its
    square."""
    text = body("llm42.h", "llm42__ex2")
    rows, bits, low, cut, K, more, rest = (numbers(text, pattern)[0] for pattern in (
        r"int32_t c\[3\]\[(\d+)\]", r"row = k >> (\d+)", r"high = r >> (\d+)", r"high \* high >> (\d+);",
        r"<< 13\) \+ (\d+) \+", r"c\[0\]\[row\] >> (\d+)\)", r"\(rest >> (\d+)\)"))
    return "ex2.approx.ftz.f32", 1, rows, bits, 2 * low + cut, 23 + more, K, 23 + rest, 23


def of_row(name):
    text = body("examples/util/llm42_sfu.h", "llm42__sfu_sine" if name == "sine" else "llm42_sfu_" + name)
    tables, rows = numbers(text, r"int32_t rows(?:\[(\d+)\])?\[(\d+)\]\[3\]")
    bits, t, g, K = numbers(text, r"llm42__sfu_row\(.*?, (\d+), (\d+), (\d+), (\d+)\)")
    if name in ("sine", "tanh"):  # the sum is the result
        unit, cut = numbers(text, r", -(\d+)\);")[0], "nan"
    else:
        # Where the result's last bit is, for an argument from 1 to 2 (that of rcp has exponent 127).
        last = {"rcp": r"(\d+) - \(int\)\(u >> 23", "lg2": r"float\(0, sum, -(\d+)\)", "sqrt": r"/ 2 - (\d+)\)",
                "rsqrt": r"-(\d+) - \(exponent"}
        cut = numbers(text, last[name])[0]
        cut = 127 - cut if name == "rcp" else cut
        unit = cut + numbers(text, r"\d+\) >> (\d+)")[0]
    return INSTRUCTIONS[name], tables, rows, bits, t, unit - g, K, unit, cut


def main():
    text = body("examples/util/llm42_sfu.h", "llm42_sfu_tanh")
    places = [(int(first), int(low)) for first, low in re.findall(r"\{(\d+), (\d+)\}", text.split("place[11][2]")[1])]
    rows = numbers(text, r"rows\[(\d+)\]")[0]
    counts = [after - first for (first, _), after in zip(places, [first for first, _ in places[1:]] + [rows])]
    print("# sfu_constants.py, from the source of llm42.h and examples/util/llm42_sfu.h")
    for what, values in (("rows of a power of two", counts), ("low bits that are cut", [low for _, low in places])):
        print(f"# tanh, {what}, least: {min(values)}\n# tanh, {what}, most: {max(values)}")
    print(*COLUMNS, sep="\t")
    for row in (of_2_to_x(), *map(of_row, INSTRUCTIONS)):
        print(*row, sep="\t")


if __name__ == "__main__":
    main()
