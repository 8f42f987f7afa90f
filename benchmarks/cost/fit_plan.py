#!/usr/bin/env python3
"""Fits the costs in plan/{hopper,mma,vector,warp,blocked}_costs.rs:

    python3 benchmarks/cost/fit_plan.py [--write] [FAMILY...]

Needs numpy, scipy and cargo, and some minutes. The formulas are those of the library: the example
`predict` of tegula-kernels computes the predicted times for the constants that it is given. With
--write the constants are replaced in the files. The quality of the choices is printed, also for
products held out of the fit. With a FAMILY only its constants are fitted.

The measurements, plan.txt.gz, are the times (`glances` and `finalists`) of

    tegula tune --shapes SHAPES --dtype TYPE --layout LAYOUT --candidates 96 --time 10 \\
        --dry-run --json FILE

on an H100 and an H200 with random shapes and those of `shapes/models.txt`. `fit_plan.py --add GPU
FILE.json...` adds them. 342 products of bf16 of 2026-11-30 have the best predicted candidate of
each kind as well: of each number of rows, 64 columns, cluster and split. The constants of `hopper`
were fitted to the times alone, of single products, with four times the weight on these, 0.4 on the
H100's, and 0.8 of the mean error forgiven; then all times were multiplied by 0.92, their mean
error, and `shared_read` was set by hand, between two fits to long runs at the power limit (0.09
and 0.13). Older measurements of bf16 with more than 64 rows at 250 TFLOP/s and more are left out:
clocks had not settled, and one finalist in four was up to 15 % slow. The H100 has no newer ones.
Left out are also older multicast clusters below 20 µs, which have since become faster by half a
microsecond, tiles with another epilogue now, and recipes slower than 1.6 times the best of their
family (1.35 times for older products). 198 products of bf16 and f16 were added later: the trees
know them, the costs do not. Of 40 of these, each kind of tile was timed in long runs; of the older
ones at the power limit, the 16 fastest of short runs. Some times of few rows are of `tegula
bench`. f32 and f64 are of an H200: random shapes in order nn (`--random 200`, two seeds; some f64
with split-K and packing were corrected for changes of these kernels), and 206 products in nn and
nt with 1 to 1024 rows. `blocked` has 120 constants. Those in use come from two searches with 3
times the weight on the 206 products and 5 times on `shapes.txt`, checked on a held-out third: the
first changed all constants, the second those of copies and waves of register tiles, since the
others are shared with `mma.sync`. `memory` was fitted once and is held, and so are `overlap` and
`exposed`, which were chosen by the losses of f64 with few rows and of batches.

A product with a seventh extent is a batch. f32 and f64 with up to 16 rows and their batches are of an
H200, all candidates of the family `vector`. Its constants were fitted to the times, then to the losses,
as here for `hopper`, with 8 times the weight on 21 products of the test in `skinny.rs`. Times of small
blocks that spilled registers, before these had a bound of their own, are left out. `warp` was fitted
to 54 batches of bf16 and 28 of f64 on an H200 alone, with all its candidates of two and four warps a
block: first to the times, then to the losses, with `memory` held.
"""
import gzip
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares, minimize

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
DATA = HERE / "plan.txt.gz"
MODELS = HERE.parent / "shapes/models.txt"
PLAN = ROOT / "crates/tegula-kernels/src/plan"
FAMILIES = ["hopper", "blocked", "mma", "vector", "warp"]
# Families of kernels whose names begin otherwise.
BLOCKED = {"register", "dmma16x16", "dmma16x8"}
# Bandwidths and energies that were measured by themselves, and are no constants of a fit.
FIXED = {"blocked.memory", "blocked.dmma_memory", "blocked.element_copies", "blocked.overlap", "blocked.exposed"}
# Recipes within this factor of the best of their family are kept.
KEPT = 1.6
# The ratio of times of finalists to those in short runs from which they ran at the power limit, and the
# ratio to the fastest short run up to which the order at the limit may be another.
AT_LIMIT = 1.03
CLOSE = 1.15
# The part of the mean error of a product that is forgiven: only the order of recipes of one family
# matters for them. Kernels of mma.sync and vectors are compared with each other.
FORGIVEN = {"hopper": 0.3, "mma": 0.0, "vector": 0.0, "warp": 0.0, "blocked": 0.3}
# The weight of errors that predict a slow recipe to be even slower.
SLOW = 0.4
# The spread of a choice, as a fraction of the time, and the weight of errors of the times.
SPREAD = 0.015
ERRORS = 0.2
# The weight that holds constants near their values before, for those that no measurement decides.
PRIOR = 0.5
# Products of models count as so many random ones.
MODEL_WEIGHT = 4.0
FOLDS = 3


class Predictor:
    """The example `predict`, for the lines of a file."""

    def __init__(self, lines):
        self.file = tempfile.NamedTemporaryFile("w", suffix=".txt")
        self.file.write("".join(lines))
        self.file.flush()
        command = ["cargo", "run", "--release", "--quiet", "-p", "tegula-kernels", "--example", "predict", "--", self.file.name]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        constants = [field.split("=") for field in self.process.stdout.readline().split()]
        self.names = [name for name, _ in constants]
        self.start = np.array([float(value) for _, value in constants])

    def times(self, values):
        """Predicted microseconds of all lines; NaN for a recipe that is no candidate."""
        self.process.stdin.write(" ".join(f"{value:.9g}" for value in values) + "\n")
        self.process.stdin.flush()
        return np.array(self.process.stdout.readline().split(), float)


def family_of(kernel):
    """The family of a kernel."""
    start = kernel.split("_")[0]
    return "blocked" if start in BLOCKED else start


def add(gpu, paths):
    """Adds the measurements of files of `tegula tune --json` and `tegula bench --json`."""
    lines = gzip.open(DATA, "rt").readlines()
    for path in paths:
        for row in json.loads(Path(path).read_text())["rows"]:
            product = " ".join(str(row[key]) for key in ("dtype", "layout", "m", "n", "k"))
            product += f" {row['batch']}" if row["batch"] > 1 else ""
            samples = row["glances"] or [] if "glances" in row else [row]
            samples = {sample["kernel"]: sample["us"] for sample in samples if sample["us"]}
            # Finalists ran at the power limit, if they reach it, and the others in short runs. Those that
            # were not much slower in short runs might be faster at the limit, and are left out.
            finalists = {sample["kernel"]: sample["us"] for sample in row.get("finalists") or []}
            if finalists:
                slower = np.median([us / samples[kernel] for kernel, us in finalists.items() if kernel in samples])
                least = CLOSE * min(samples.values()) if slower > AT_LIMIT else 0
                samples = {kernel: us * slower for kernel, us in samples.items() if us > least} | finalists
            samples = [(us, kernel) for kernel, us in samples.items()]
            best = {}
            for us, name in samples:
                family = family_of(name)
                best[family] = min(best.get(family, us), us)
            lines += [
                f"{gpu} {product} {us:.4g} {name}\n"
                for us, name in samples
                if us <= KEPT * best[family_of(name)]
            ]
    # Without a date, so that the same lines give the same file.
    with open(DATA, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as compressed:
        compressed.write("".join(lines).encode())


class Measurements:
    """The lines of the data, with their products by number."""

    def __init__(self, lines):
        fields = [line.split() for line in lines]
        products = [tuple(field[:-2]) for field in fields]
        numbers = {product: i for i, product in enumerate(dict.fromkeys(products))}
        self.products = list(numbers)
        self.product = np.array([numbers[product] for product in products])
        self.us = np.array([float(field[-2]) for field in fields])
        self.family = np.array([family_of(field[-1]) for field in fields])
        best = np.full(len(numbers), np.inf)
        np.minimum.at(best, self.product, self.us)
        self.loss = self.us / best[self.product] - 1
        models = {tuple(line.split()[:3]) for line in MODELS.read_text().splitlines()}
        self.weight = np.array([MODEL_WEIGHT if product[3:] in models else 1.0 for product in self.products])

    def losses(self, times, chosen=None):
        """The loss of the recipe with the least predicted time, for each product."""
        losses = []
        for product in range(len(self.products)) if chosen is None else chosen:
            own = np.flatnonzero((self.product == product) & np.isfinite(times))
            if len(own):
                losses.append(self.loss[own[np.argmin(times[own])]])
        return np.array(losses)


def constants_of(predictor, family):
    """The numbers of the constants of a family that are fitted."""
    named = enumerate(predictor.names)
    return [i for i, name in named if name.split(".")[0] == family and name not in FIXED]


def fitted(predictor, data, family, values, used):
    """The values with the constants of a family fitted to the lines in `used`."""
    free = constants_of(predictor, family)
    lines = used & (data.family == family) & np.isfinite(predictor.times(values))
    product, us, loss = data.product[lines], data.us[lines], data.loss[lines]
    weight = np.exp(-8 * loss) + 0.1
    total = np.bincount(product, weight, len(data.products))

    def residuals(x):
        trial = values.copy()
        trial[free] = np.exp(x)
        error = np.log(predictor.times(trial)[lines] / us)
        error = np.where(np.isfinite(error), error, 5.0)
        mean = np.bincount(product, error * weight, len(data.products)) / np.maximum(total, 1e-9)
        error -= FORGIVEN[family] * mean[product]
        error *= np.where((loss > 0.05) & (error > 0), SLOW, 1)
        return np.append(error * np.sqrt(weight / total[product] * 20), PRIOR * (x - start))

    start = np.log(np.maximum(values[free], 1e-4))
    found = values.copy()
    found[free] = np.exp(least_squares(residuals, start, loss="soft_l1", f_scale=0.05, diff_step=1e-3, max_nfev=40).x)
    return found


def refined(predictor, data, family, values, used):
    """The values of a family, changed to choose faster recipes of all families.

    Times need not be right to choose well. This minimizes the mean loss of the choice, where the choice is spread
    over recipes of about equal predicted times (SPREAD) so that it has a derivative. The errors of the times keep
    the weight ERRORS, so that families stay comparable.
    """
    free = constants_of(predictor, family)
    lines = used & np.isfinite(predictor.times(values))
    product, us = data.product[lines], data.us[lines]
    count = len(data.products)
    best = np.full(count, np.inf)
    np.minimum.at(best, product, us)
    loss = np.minimum(us / best[product] - 1, KEPT - 1)
    weight = np.exp(-8 * loss) + 0.1
    total = np.bincount(product, weight, count)
    present = total > 0

    def objective(x):
        trial = values.copy()
        trial[free] = np.exp(x)
        times = np.log(predictor.times(trial)[lines])
        least = np.full(count, np.inf)
        np.minimum.at(least, product, times)
        share = np.exp(-np.minimum((times - least[product]) / SPREAD, 60))
        choice = np.bincount(product, share * loss, count)[present] / np.bincount(product, share, count)[present]
        errors = np.bincount(product, weight * np.minimum((times - np.log(us)) ** 2, 0.25), count)[present]
        losses = choice + ERRORS * errors / total[present]
        return np.average(losses, weights=data.weight[present]) + 0.02 * ((x - start) ** 2).mean()

    start = np.log(np.maximum(values[free], 1e-4))
    found = values.copy()
    options = {"maxiter": 60, "maxfun": 75 * (len(free) + 1), "eps": 2e-3}
    found[free] = np.exp(minimize(objective, start, method="L-BFGS-B", options=options).x)
    return found


def fit(predictor, data, used):
    """The constants of the selected families, fitted to the lines in `used`, one family after the other.

    The search begins at the constants in the files, which may know products held out.
    """
    values = predictor.start
    for family in selected:
        values = fitted(predictor, data, family, values, used)
    for family in [family for family in ("hopper", "blocked") if family in selected]:
        values = refined(predictor, data, family, values, used)
    return values


def summary(name, losses):
    within = ", ".join(f"{round(100 * limit)} %: {(losses < limit).mean():.2f}" for limit in (0.03, 0.05, 0.15))
    print(f"{name}: {len(losses)} products, choice within {within}; mean loss {100 * losses.mean():.1f} %")


def number(value):
    """A number as the files have it."""
    text = f"{max(value, 0.02):.3g}".replace("e+0", "e").replace("e-0", "e-")
    # Clippy takes these for 1/π and π.
    text = {"0.318": "0.3181", "3.14": "3.139"}.get(text, text)
    return text if "." in text or "e" in text else text + ".0"


def write(names, values):
    """Replaces the constants in the files."""
    constants = {}
    for name, value in zip(names, values):
        family, field = name.split(".")
        constants.setdefault((family, re.sub(r"(_\d+)+$", "", field)), []).append(number(value))
    for (family, field), numbers in constants.items():
        path = PLAN / f"{family}_costs.rs"
        pattern = rf"(\n        {field}: [^=]+=)(.*?)(?=\n        ///|\n    \}})"

        def replaced(old):
            rest = iter(numbers)
            text = old[1] + re.sub(r"[\d.]+(?:e-?\d+)?", lambda _: next(rest), old[2])
            assert next(rest, None) is None, f"{field} has fewer numbers in {path}"
            return text

        text, count = re.subn(pattern, replaced, path.read_text(), flags=re.DOTALL)
        assert count == 1, f"{field}: {count} matches in {path}; 1 expected"
        path.write_text(text)
    subprocess.run(["cargo", "fmt", "-p", "tegula-kernels"], cwd=ROOT, check=True)


if sys.argv[1:2] == ["--add"]:
    add(sys.argv[2], sys.argv[3:])
    sys.exit()
unknown = set(sys.argv[1:]) - {"--write", *FAMILIES}
if unknown:
    sys.exit(f"unknown arguments: {', '.join(unknown)}; the families are {', '.join(FAMILIES)}")
selected = [family for family in FAMILIES if family in sys.argv] or FAMILIES
lines = gzip.open(DATA, "rt").readlines()
predictor, data = Predictor(lines), Measurements(lines)
everything = np.full(len(lines), True)
summary("before", data.losses(predictor.times(predictor.start)))
found = fit(predictor, data, everything)
summary("fitted", data.losses(predictor.times(found)))
if "--write" in sys.argv:
    write(predictor.names, found)
held_out = []
folds = np.random.default_rng(0).permutation(len(data.products)) % FOLDS
for fold in range(FOLDS):
    values = fit(predictor, data, folds[data.product] != fold)
    held_out.append(data.losses(predictor.times(values), np.flatnonzero(folds == fold)))
summary("held out", np.concatenate(held_out))
