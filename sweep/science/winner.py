#!/usr/bin/env python3
"""When does verified speculation win? A fleet of GPUs serves a share of deterministic requests by four mechanisms.

The simulator serves each cell of the grid share x load x cost by every mechanism (build/sweep), and the mechanism with
the lowest P99 latency of all requests wins. The cost is what an INVARIANT pass takes, as a multiple of a FAST one.

    dvr         preset dvr: decode by FAST passes, verify, roll back
    hybrid      preset best: verifies, or decodes by INVARIANT passes, whichever takes less time
    invariant   preset invariant: all requests by INVARIANT passes
    apart       A GPUs serve deterministic requests alone by INVARIANT passes, the others serve the rest by FAST ones;
                of the numbers A that are tried, the one with the lowest P99 latency

All of them serve the same requests at the same times, so that they are compared seed by seed. Two files are written:
OUT_runs.tsv has the latencies of every seed, OUT.tsv the map. An interval is Student's, with 95%, of the logarithm of
the ratio of the best two.

    make build/sweep && python3 sweep/science/winner.py --out sweep/results/science/winner

About half an hour in one thread; --reuse computes the map again from OUT_runs.tsv.
"""
import argparse
import csv
import math
import os
import statistics
import subprocess
import sys
import tempfile

MECHANISMS = ("dvr", "hybrid", "invariant", "apart")
# Student's t for 95%, by degrees of freedom.
STUDENT = (math.inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
P99, DET = "e2e_p99_s", "det_e2e_p99_s"
KEYS = ("cost", "share", "load", "mechanism", "apart")
RUN = KEYS + ("seed", "p99_s", "det_p99_s", "nondet_p99_s", "verified", "overloaded")
MAP = ("cost", "share", "load", "none_s", *(m + "_s" for m in MECHANISMS), "apart_gpus", "verified", "overloaded",
       "winner", "second", "lead_pct", "lead_low", "lead_high", "sure", "det_winner")


def sweep(options, flags):
    """Runs build/sweep with these flags on the fleet of the options: the comment lines, and rows as dicts."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.tsv")
        command = [os.path.join(options.build, "sweep"), "--calibration", options.calibration, "--workload",
                   options.workload, "--requests", str(options.requests * options.gpus), "--max-running", "256",
                   "--token-budget", "2048", "--replicas", str(options.gpus), "--seed", options.seeds, "--qps",
                   ",".join(rate(options, load) for load in options.loads.split(",")), "--threads", "1", "--quiet",
                   "--out", out, *flags]
        said = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if said.returncode:
            sys.exit(f"winner.py: {' '.join(command)}: {said.stderr}")
        with open(out) as file:
            lines = file.read().splitlines()
    comments = [line for line in lines if line.startswith("#")]
    return comments, list(csv.DictReader((line for line in lines if line[0] != "#"), delimiter="\t"))


def rate(options, load):
    return load if load == "offline" else f"{float(load) * options.gpus:g}"


def splits(options, share, costs):
    """Numbers of GPUs set apart that may be best: from those that give each kind the same load a GPU where the cost is
    least to those where it is greatest, and one more on either side."""
    fair = [options.gpus * share * cost / (share * cost + 1 - share) for cost in (1, max(costs))]
    return [a for a in range(1, options.gpus) if math.floor(fair[0]) - 1 <= a <= math.ceil(fair[1]) + 1]


def simulate(options, path):
    costs = [float(cost) for cost in options.costs.split(",")]
    shared = ["--router", "least_tokens"]
    calls = [("none", ["--mode", "nondeterministic", "--chunked", "on", *shared]),
             ("invariant", ["--preset", "invariant", "--slowdown", options.costs, *shared]),
             ("", ["--preset", "dvr,best", "--slowdown", options.costs, "--ratio", options.shares, *shared])]
    for share in options.shares.split(","):
        apart = ",".join(map(str, splits(options, float(share), costs)))
        if float(share) < 1:
            calls.append(("apart", ["--preset", "invariant", "--slowdown", options.costs, "--ratio", share, "--router",
                                    "deterministic_apart", "--apart", apart]))
    back = {rate(options, load): load for load in options.loads.split(",")}
    comments, runs = [], []
    for name, flags in calls:
        said, rows = sweep(options, flags)
        comments += [line for line in said if line not in comments]
        for row in rows:
            mechanism = name or {"dvr": "dvr", "best": "hybrid"}[row["preset"]]
            det = float(row["det_tokens"])
            runs.append({"cost": row["slowdown"], "share": row["ratio"], "load": back[row["qps"]],
                         "mechanism": mechanism, "apart": row.get("apart", "nan"), "seed": row["seed"],
                         "p99_s": row[P99], "det_p99_s": row[DET], "nondet_p99_s": row["nondet_" + P99],
                         "verified": f"{min(1, float(row['candidates']) / det):.4g}" if det and mechanism != "apart"
                         else "nan", "overloaded": row["overloaded"]})
        print(f"{' '.join(flags)}: {len(rows)} runs", file=sys.stderr, flush=True)
    keep = ("# llm42 ", "# simulated:", "# source:", "# device:", "# configuration:", "# grid:")
    write(path, [line for line in comments if line.startswith(keep)] +
          ["# cost: time of an INVARIANT pass, as a multiple of a FAST one; load: requests a second and GPU",
           "# verified: candidates that were verified, as a share of the tokens of deterministic requests"], RUN, runs)


def write(path, comments, names, rows):
    with open(path + ".part", "w") as file:
        file.writelines(line + "\n" for line in comments)
        file.writelines("\t".join(line) + "\n" for line in [names] + [[row[n] for n in names] for row in rows])
    os.replace(path + ".part", path)


def read(path):
    with open(path) as file:
        lines = file.read().splitlines()
    return [line for line in lines if line[0] == "#"], list(
        csv.DictReader((line for line in lines if line[0] != "#"), delimiter="\t"))


def compare(first, second):
    """By how much `second` is higher than `first`, in %: the mean over seeds, and the ends of its 95% interval."""
    logs = [math.log(b / a) for a, b in zip(first, second)]
    mean = statistics.fmean(logs)
    half = STUDENT[len(logs) - 1] * statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.inf
    return [100 * math.expm1(x) if x < 700 else math.inf for x in (mean, mean - half, mean + half)]


def draw_map(path, out):
    comments, runs = read(path)
    found, seeds = {}, sorted({row["seed"] for row in runs})
    for row in runs:
        found.setdefault(tuple(row[k] for k in KEYS), {})[row["seed"]] = row

    def column(key, name):
        return [float(found[key][seed][name]) for seed in seeds]

    def mean(key, name="p99_s"):
        return statistics.fmean(column(key, name))

    cells = dict.fromkeys((row["cost"], row["share"], row["load"]) for row in runs if row["mechanism"] == "hybrid")
    rows = []
    for cell in cells:
        cost, share, load = cell
        key = {"invariant": (cost, "nan", load, "invariant", "nan")}
        for name in ("dvr", "hybrid"):
            key[name] = (*cell, name, "nan")
        apart = [k for k in found if k[:4] == (*cell, "apart")]
        if apart:
            key["apart"] = min(apart, key=mean)
        order = sorted(key, key=lambda m: mean(key[m]))
        first, second = order[:2]
        lead, low, high = compare(column(key[first], "p99_s"), column(key[second], "p99_s"))
        # All requests of preset invariant are deterministic, and the simulator tells no kinds apart.
        det = {m: mean(k, "p99_s" if m == "invariant" else "det_p99_s") for m, k in key.items()}
        row = {"cost": cost, "share": share, "load": load, "none_s": mean(("nan", "nan", load, "none", "nan")),
               **{m + "_s": mean(key[m]) if m in key else math.nan for m in MECHANISMS},
               "apart_gpus": key["apart"][4] if apart else "nan", "verified": mean(key["hybrid"], "verified"),
               "overloaded": str(sum(found[key[first]][seed]["overloaded"] == "1" for seed in seeds)),
               "winner": first, "second": second, "lead_pct": lead, "lead_low": low, "lead_high": high,
               "sure": str(int(low > 0)), "det_winner": min(det, key=det.get)}
        rows.append({n: v if isinstance(v, str) else f"{v:.5g}" for n, v in row.items()})
    write(out, [line for line in comments if not line.startswith("# grid:")] +
          [f"# means over {len(seeds)} seeds; NAME_s: P99 latency of all requests; none: without determinism",
           "# apart_gpus: GPUs set apart; overloaded: seeds in which the winner was; det_winner: by the P99 of",
           "#   deterministic requests alone; sure: 1 if the 95% interval of the lead does not reach 0"], MAP, rows)


def main():
    parser = argparse.ArgumentParser(description="Which mechanism serves deterministic requests best?")
    parser.add_argument("--out", required=True, help="OUT.tsv and OUT_runs.tsv are written")
    parser.add_argument("--build", default=os.environ.get("B", "build"), help="folder of the program sweep")
    parser.add_argument("--calibration", default="sweep/calibration/h200-llama-3.1-8b.tsv")
    parser.add_argument("--workload", default="sharegpt")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--requests", type=int, default=1024, help="for each GPU")
    parser.add_argument("--seeds", default="42,43,44,45,46,47,48,49,50,51")
    parser.add_argument("--costs", default="1.01,1.1,1.3,1.6")
    parser.add_argument("--shares", default="0.05,0.1,0.2,0.3,0.5,0.7,0.9,1")
    parser.add_argument("--loads", default="5,10,15,20,25,30,35,40,45,offline")
    parser.add_argument("--reuse", action="store_true", help="only the map, from OUT_runs.tsv")
    options = parser.parse_args()
    if not options.reuse:
        simulate(options, options.out + "_runs.tsv")
    draw_map(options.out + "_runs.tsv", options.out + ".tsv")


if __name__ == "__main__":
    main()
