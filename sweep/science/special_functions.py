#!/usr/bin/env python3
"""Finds the table of a GPU's special function from its results (results/science/special_functions.md says how).

    build/special_functions --dump lg2 0x3f800000 FILE      a GPU's lg2 (or other) of 2^23 floats from 1 on
    python3 sweep/science/special_functions.py FILE                     for which columns t a row has a solution
    python3 sweep/science/special_functions.py FILE --columns 19 --all  the integers of all rows

Arguments are the significands, without --cut low bits. (Those of sin and cos are places in a quarter of a turn, which
the program does not know.) Results must be positive. Needs numpy and scipy.
"""
import argparse

import numpy as np
from scipy.optimize import linprog

UNIT = 46  # integers are printed in units of 2^-UNIT


def squares(r, bits, t):
    """The sum of the products of two bits of r that are worth at least 2^t, over 2^t."""
    total = np.zeros_like(r)
    for i in range(bits):
        for j in range(i + 1):
            column = i + j + (i != j)
            if column >= t:
                total += ((r >> i) & (r >> j) & 1) << column
    return total >> t


def solve(cost, left, right, **options):
    """linprog, by other methods where one gives up on its own tolerances."""
    for method in ("highs", "highs-ds", "highs-ipm"):
        found = linprog(cost, A_ub=left, b_ub=right, bounds=options.get("bounds", [(None, None)] * 3), method=method)
        if found.x is not None:
            return found.x
    raise SystemExit("linprog: no solution: " + found.message)


def row(low, high, r, q):
    """(slack, bounds of c1, bounds of c2) with low <= c0 + c1 r + c2 q < high. Slack below 0: there is no solution."""
    scale = np.array([1, r.max(), max(q.max(), 1)], float)
    terms = np.c_[np.ones(len(r)), r, q] / scale
    width, start = np.median(high - low), low[len(low) // 2]
    a, b = (low - start) / width, (high - start) / width
    chosen = set(np.linspace(0, len(r) - 1, 200).astype(int).tolist())
    for _ in range(60):  # a program of some of the results, and then of those that its solution breaks
        at = np.array(sorted(chosen))
        w = (b - a)[at, None]
        c = solve([0, 0, 0, -1], np.r_[np.c_[-terms[at], w], np.c_[terms[at], w]], np.r_[-a[at], b[at]],
                  bounds=[(None, None)] * 3 + [(None, 0.5)])
        value = terms @ c[:3]
        below, above = value - a - c[3] * (b - a), b - c[3] * (b - a) - value
        broken = [k for k in np.r_[np.argsort(below)[:30], np.argsort(above)[:30]]
                  if min(below[k], above[k]) < -1e-6 * (b - a)[k]]
        if not broken:
            break
        chosen.update(broken)
    if c[3] < -1e-7:
        return c[3], None, None
    at = np.array(sorted(chosen))
    left, right = np.r_[-terms[at], terms[at]], np.r_[-a[at], b[at]]
    bounds = [[solve(np.eye(3)[d] * sign, left, right)[d] * width / scale[d] for sign in (1, -1)] for d in (1, 2)]
    return c[3], *bounds


def roundest(low, high):
    """The integer from low to high that is a multiple of the largest power of two."""
    for power in range(60, -1, -1):
        least = -(-int(np.ceil(low)) // (1 << power)) << power
        if least <= high:
            return least
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="2^23 results, 32 bits each")
    parser.add_argument("--bits", type=int, default=17, help="of r (default 17)")
    parser.add_argument("--cut", type=int, default=0, help="low bits of the significand that do not count (default 0)")
    parser.add_argument("--columns", type=lambda text: [int(part) for part in text.split(",")],
                        default=[0, 17, 18, 19, 20], help="t; 0: the whole square (default 0,17,18,19,20)")
    parser.add_argument("--all", action="store_true", help="all rows, not only the one in the middle")
    args = parser.parse_args()
    y = np.fromfile(args.file, np.float32)[::1 << args.cut].astype(float)
    rows = len(y) >> args.bits
    r = np.arange(1 << args.bits, dtype=np.int64)
    print("t", "row", "slack", "c0", "c1", "c2", sep="\t")
    for t in args.columns:
        q = squares(r, args.bits, t)
        for i in range(rows) if args.all else [rows // 2]:
            low = y[i << args.bits:(i + 1) << args.bits]
            there = low > 0
            low = low[there]
            high = low + 2.0 ** (np.floor(np.log2(low)) - 23)
            low, high = low * 2.0 ** UNIT, high * 2.0 ** UNIT
            slack, c1, c2 = row(low, high, r[there].astype(float), q[there].astype(float))
            if c1 is None:
                print(t, i, f"{slack:.5f}", "", "", "", sep="\t", flush=True)
                continue
            c1, c2 = (roundest(low_ - 0.01, high_ + 0.01) for low_, high_ in (c1, c2))
            rest = c1 * r[there] + c2 * q[there]
            c0 = roundest(np.ceil((low - rest).max()), np.ceil((high - rest).min()) - 1)
            print(t, i, f"{slack:.5f}", c0, c1, c2, sep="\t", flush=True)


if __name__ == "__main__":
    main()
