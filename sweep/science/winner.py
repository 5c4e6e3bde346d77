#!/usr/bin/env python3
"""When does verified speculation win? A fleet of GPUs serves a share of deterministic requests by four mechanisms.

The simulator serves each cell of the grid share x load x cost by every mechanism (build/sweep), and the mechanism with
the lowest P99 latency of all requests wins. The cost is what an INVARIANT pass takes, as a multiple of a FAST one. The
first cost is that of the calibrated kernels, whose INVARIANT replay passes change as many candidates as the calibration
says. Kernels with another cost sum in orders of their own. There candidates flip as if replay passes were FIXED and
small.

    dvr         preset dvr: decode by FAST passes, verify, roll back
    hybrid      preset best: verifies, or decodes by INVARIANT passes, whichever takes less time
    invariant   preset invariant: all requests by INVARIANT passes
    apart       A GPUs serve deterministic requests alone by INVARIANT passes, the others serve the rest by FAST ones;
                of the numbers A that are tried, the one with the lowest P99 latency

Beside them, out of competition: none serves without determinism, and fixed is dvr with FIXED replay passes (W = 32,
G = 8), which have no such cost, but whose results depend on their size. gate_W verifies only tokens below a margin
gate, and those that wait behind them (science/gate.md): dvr with windows of W rows, of which the best W counts. It
promises nothing either.

All of them serve the same requests at the same times, so that they are compared seed by seed. Three files are written:
OUT_runs.tsv has the latencies of every seed, OUT.tsv the map, and OUT_measured.tsv what a GPU measured beside it. An
interval is Student's, with 95%, of the logarithm of the ratio of the best two.

    make build/sweep && python3 sweep/science/winner.py --out sweep/results/science/winner

About half an hour in one thread. --reuse computes the last two files again from OUT_runs.tsv, and --only WAY,...
simulates some of the ways again (WAYS below).
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
WAYS = ("none", "invariant", "fixed", "verified", "gate", "apart")  # of calling the simulator; verified: dvr and hybrid
P99, DET = "e2e_p99_s", "det_e2e_p99_s"
KEYS = ("cost", "share", "load", "mechanism", "apart")
RUN = KEYS + ("seed", "p99_s", "det_p99_s", "nondet_p99_s", "verified", "overloaded")
GATE = ("gate_s", "gate_window", "gate_verified", "gate_lead_pct", "gate_low", "gate_high")
MAP = ("cost", "share", "load", "none_s", "fixed_s", *GATE, *(m + "_s" for m in MECHANISMS), "apart_gpus", "verified",
       "overloaded_seeds", "winner", "second", "lead_pct", "lead_low", "lead_high", "sure", "det_winner")
# The presets that one GPU can serve, by mechanism.
PRESETS = {"dvr": "dvr", "best": "hybrid", "invariant": "invariant"}
MEASURED = ("share", "load", "seeds", *(m + "_s" for m in PRESETS.values()), "dvr_pct", "hybrid_pct", "map_dvr_pct")


def write_flipping(path, out):
    """Writes a calibration without flip rates of INVARIANT replay passes: those of the smallest FIXED ones count."""
    with open(path) as file:
        lines = file.read().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("# table: flips"))
    count = int(lines[at].split()[-1])
    rows = [line for line in lines[at + 2:at + 2 + count] if line.split("\t")[1] != "0"]
    lines[at:at + 2 + count] = [f"# table: flips {len(rows)}", lines[at + 1], *rows]
    with open(out, "w") as file:
        file.writelines(line + "\n" for line in lines)


def sweep(options, flags, flipping=False):
    """Runs build/sweep with these flags on the fleet of the options: the comment lines, and rows as dicts. flipping:
    INVARIANT replay passes change candidates."""
    with tempfile.TemporaryDirectory() as folder:
        out, calibration = os.path.join(folder, "out.tsv"), options.calibration
        if flipping:
            calibration = os.path.join(folder, os.path.basename(calibration))
            write_flipping(options.calibration, calibration)
        command = [os.path.join(options.build, "sweep"), "--calibration", calibration, "--workload",
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


def way(mechanism):
    """The simulator's call that serves a mechanism, as --only names it."""
    return "verified" if mechanism in ("dvr", "hybrid") else mechanism.split("_")[0]


def splits(options, share, costs):
    """Numbers of GPUs set apart that may be best: from those that give each kind the same load a GPU where the cost is
    least to those where it is greatest, and one more on either side."""
    fair = [options.gpus * share * cost / (share * cost + 1 - share) for cost in (1, max(costs))]
    return [a for a in range(1, options.gpus) if math.floor(fair[0]) - 1 <= a <= math.ceil(fair[1]) + 1]


def simulate(options, path):
    costs = [float(cost) for cost in options.costs.split(",")]
    own, _, others = options.costs.partition(",")
    shared = ["--router", "least_tokens"]
    ways = [("verified", ["--preset", "dvr,best"]),
            ("gate", ["--preset", "dvr", "--gate", options.gate, "--window", options.windows, "--group", "128"])]
    calls = [("none", False, ["--mode", "nondeterministic", "--chunked", "on", *shared]),
             ("invariant", False, ["--preset", "invariant", "--slowdown", options.costs, *shared]),
             ("fixed", False, ["--preset", "dvr", "--verifier", "fixed", "--prefill", "packed", "--window", "32",
                               "--group", "8", "--ratio", options.shares, *shared]),
             *((name, some != own, ["--slowdown", some, "--ratio", options.shares, *shared, *flags])
               for name, flags in ways for some in (own, others) if some)]
    for share in options.shares.split(","):
        apart = ",".join(map(str, splits(options, float(share), costs)))
        if float(share) < 1:
            calls.append(("apart", False, ["--preset", "invariant", "--slowdown", options.costs, "--ratio", share,
                                           "--router", "deterministic_apart", "--apart", apart]))
    back = {rate(options, load): load for load in options.loads.split(",")}
    comments, runs = read(path) if options.only else ([], [])
    runs = [row for row in runs if way(row["mechanism"]) not in options.only]
    for name, flipping, flags in calls:
        if options.only and name not in options.only:
            continue
        said, rows = sweep(options, flags, flipping)
        comments += [line for line in said if line not in comments]
        for row in rows:
            mechanism = {"verified": PRESETS.get(row["preset"]), "gate": "gate_" + row["window"]}.get(name, name)
            det = float(row["det_tokens"])
            cost = "nan" if mechanism in ("none", "fixed") else row["slowdown"]
            runs.append({"cost": cost, "share": row["ratio"], "load": back[row["qps"]],
                         "mechanism": mechanism, "apart": row.get("apart", "nan"), "seed": row["seed"],
                         "p99_s": row[P99], "det_p99_s": row[DET], "nondet_p99_s": row["nondet_" + P99],
                         "verified": min(1, float(row["candidates"]) / det) if det and mechanism != "apart" else "nan",
                         "overloaded": row["overloaded"]})
        print(f"{' '.join(flags)}: {len(rows)} runs", file=sys.stderr, flush=True)
    keep = ("# llm42 ", "# simulated:", "# source:", "# device:", "# configuration:", "# grid:")
    write(path, [line for line in comments if line.startswith(keep)] +
          ["# cost: time of an INVARIANT pass, as a multiple of a FAST one; load: requests a second and GPU",
           "# verified: candidates that were verified, as a share of the tokens of deterministic requests"], RUN, runs)


def write(path, comments, names, rows):
    with open(path + ".part", "w") as file:
        file.writelines(line + "\n" for line in comments)
        file.write("\t".join(names) + "\n")
        for row in rows:
            file.write("\t".join(v if isinstance(v, str) else f"{v:.5g}" for v in map(row.get, names)) + "\n")
    os.replace(path + ".part", path)


def read(path):
    with open(path) as file:
        lines = file.read().splitlines()
    return [line for line in lines if line[0] == "#"], list(
        csv.DictReader((line for line in lines if line[0] != "#"), delimiter="\t"))


def compare(first, second):
    """By how much `second` is higher than `first`, in %: the mean of seeds, and the ends of its 95% interval."""
    logs = [math.log(b / a) for a, b in zip(first, second)]
    mean = statistics.fmean(logs)
    half = STUDENT[len(logs) - 1] * statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.inf
    return [100 * math.expm1(x) if x < 700 else math.inf for x in (mean, mean - half, mean + half)]


class Runs:
    """The latencies of every seed, by cell of the map and mechanism."""

    def __init__(self, path):
        self.comments, rows = read(path)
        self.found, self.seeds = {}, sorted({row["seed"] for row in rows})
        for row in rows:
            self.found.setdefault(tuple(row[k] for k in KEYS), {})[row["seed"]] = row
        self.cells = list(dict.fromkeys(key[:3] for key in self.found if key[3] == "hybrid"))

    def column(self, key, name="p99_s"):
        return [float(self.found[key][seed][name]) for seed in self.seeds]

    def mean(self, key, name="p99_s"):
        """Geometric, as ratios are what is compared."""
        return statistics.geometric_mean(self.column(key, name))

    def keys(self, cell):
        """Where a cell's mechanisms are. Preset invariant has no shares, and a fleet with replicas apart has its best
        number of them."""
        keys = {name: (*cell, name, "nan") for name in ("dvr", "hybrid")}
        keys["invariant"] = (cell[0], "nan", cell[2], "invariant", "nan")
        apart = [key for key in self.found if key[:4] == (*cell, "apart")]
        return {**keys, "apart": min(apart, key=self.mean)} if apart else keys

    def gate(self, cell, winner):
        """A margin gate with the best windows, and by how much the winner takes longer, with its interval, in %."""
        keys = [key for key in self.found if key[:3] == cell and key[3].startswith("gate_")]
        if not keys:
            return {}
        key = min(keys, key=self.mean)
        verified = statistics.fmean(self.column(key, "verified"))
        return dict(zip(GATE, (self.mean(key), key[3].removeprefix("gate_"), verified,
                               *compare(self.column(key), self.column(winner)))))

    def best(self, keys):
        """The best two mechanisms of these, and the lead of the first with its interval, in %."""
        first, second = sorted(keys, key=lambda name: self.mean(keys[name]))[:2]
        return (first, second, *compare(self.column(keys[first]), self.column(keys[second])))


def draw_map(runs, path):
    rows = []
    for cell in runs.cells:
        keys = runs.keys(cell)
        first, second, lead, low, high = runs.best(keys)
        # All requests of preset invariant are deterministic, and the simulator tells no kinds apart.
        det = {name: runs.mean(key, "p99_s" if name == "invariant" else "det_p99_s") for name, key in keys.items()}
        rows.append({"cost": cell[0], "share": cell[1], "load": cell[2],
                     "none_s": runs.mean(("nan", "nan", cell[2], "none", "nan")),
                     "fixed_s": runs.mean(("nan", *cell[1:], "fixed", "nan")),
                     **dict.fromkeys(GATE, math.nan), **runs.gate(cell, keys[first]),
                     **{name + "_s": runs.mean(keys[name]) if name in keys else math.nan for name in MECHANISMS},
                     "apart_gpus": keys["apart"][4] if "apart" in keys else "nan",
                     "verified": statistics.fmean(runs.column(keys["hybrid"], "verified")),
                     "overloaded_seeds": sum(x == 1 for x in runs.column(keys[first], "overloaded")),
                     "winner": first, "second": second, "lead_pct": lead, "lead_low": low, "lead_high": high,
                     "sure": int(low > 0), "det_winner": min(det, key=det.get)})
    write(path, [line for line in runs.comments if not line.startswith("# grid:")] +
          [f"# geometric means of {len(runs.seeds)} seeds; NAME_s: P99 latency of all requests; none_s: no determinism",
           "# gate_s: a margin gate with the best of its windows, out of competition; gate_verified: as verified;",
           "#   gate_lead_pct: how much longer the winner takes; gate_low, gate_high: the ends of its 95% interval",
           "# apart_gpus: GPUs set apart; overloaded_seeds: of the winner; det_winner: by the P99 of",
           "#   deterministic requests alone; sure: 1 if the 95% interval of the lead does not reach 0"], MAP, rows)


def measured(folder):
    """What a GPU measured: seconds by point (share, load), mechanism and seed. Preset invariant is at each share."""
    path, points, everywhere = os.path.join(folder, "winner_presets.tsv"), {}, {}
    for row in read(path)[1] if os.path.exists(path) else ():
        share, load, preset, seed, seconds = (row[k] for k in ("ratio", "qps", "preset", "seed", P99))
        if preset == "invariant":
            everywhere.setdefault(load, {})[seed] = float(seconds)
        elif preset in PRESETS:
            points.setdefault((share, load), {}).setdefault(PRESETS[preset], {})[seed] = float(seconds)
    for point, its in points.items():
        its["invariant"] = everywhere.get(point[1], {})
    return {point: its for point, its in points.items() if all(its.get(name) for name in PRESETS.values())}


def compare_measured(runs, folder, path):
    """The measured points that the map has, at the least cost, which is about that of our own kernels on the GPU."""
    cost, rows = min((cell[0] for cell in runs.cells), key=float), []
    for (share, load), its in measured(folder).items():
        if (cost, share, load) not in runs.cells:
            continue
        keys = {name: key for name, key in runs.keys((cost, share, load)).items() if name in its}
        means = {name: statistics.geometric_mean(its[name].values()) for name in its}
        behind = {name: 100 * (means[name] / means["invariant"] - 1) for name in means}
        rows.append({"share": share, "load": load, "seeds": min(len(values) for values in its.values()),
                     **{name + "_s": mean for name, mean in means.items()}, "dvr_pct": behind["dvr"],
                     "hybrid_pct": behind["hybrid"],
                     "map_dvr_pct": 100 * (runs.mean(keys["dvr"]) / runs.mean(keys["invariant"]) - 1)})
    write(path, ["# one H200 beside the map: the mechanisms that one GPU can serve; NAME_s: P99 latency, mean of seeds",
                 "# dvr_pct, hybrid_pct: how much longer their latency is than that of invariant; map_: in the map"],
          MEASURED, rows)


def main():
    parser = argparse.ArgumentParser(description="Which mechanism serves deterministic requests best?")
    parser.add_argument("--out", required=True, help="OUT.tsv, OUT_runs.tsv and OUT_measured.tsv are written")
    parser.add_argument("--build", default=os.environ.get("B", "build"), help="folder of the program sweep")
    parser.add_argument("--calibration", default="sweep/calibration/h200-llama-3.1-8b.tsv")
    parser.add_argument("--workload", default="sharegpt")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--requests", type=int, default=1024, help="for each GPU")
    parser.add_argument("--seeds", default="42,43,44,45,46")
    parser.add_argument("--costs", default="1.01,1.1,1.3,1.6")
    parser.add_argument("--shares", default="0.05,0.1,0.2,0.3,0.5,0.7,0.9,1")
    parser.add_argument("--loads", default="5,10,15,20,25,30,35,40,45,offline")
    parser.add_argument("--gate", default="0.15", help="share of tokens below the margin gate (default 0.15)")
    parser.add_argument("--windows", default="8,32", help="of the gate; the best one counts (default 8,32)")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[],
                        help="simulate these ways, and keep the others of OUT_runs.tsv")
    parser.add_argument("--reuse", action="store_true", help="simulate nothing, read OUT_runs.tsv")
    parser.add_argument("--measured", default="sweep/results/h200", help="folder of the measured files")
    options = parser.parse_args()
    for name in options.only:
        if name not in WAYS:
            parser.error(f"--only: {name}: there are {', '.join(WAYS)}")
    if not options.reuse:
        simulate(options, options.out + "_runs.tsv")
    runs = Runs(options.out + "_runs.tsv")
    draw_map(runs, options.out + ".tsv")
    compare_measured(runs, options.measured, options.out + "_measured.tsv")


if __name__ == "__main__":
    main()
