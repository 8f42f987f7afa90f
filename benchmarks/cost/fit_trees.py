#!/usr/bin/env python3
"""Fits the correction of the predicted times of pipelines, plan/hopper_trees.rs:

    python3 benchmarks/cost/fit_trees.py [--write]

Needs numpy, scikit-learn and cargo, and a minute; the costs in plan/hopper_costs.rs first
(fit_plan.py). Prints the loss of the choice among measured recipes on products held out, without
and with the trees; with --write the file is replaced. The trees are gradient boosting of the
logarithm of the measured by the predicted time, mostly without the mean of a product, for products
at the power limit and for the others. Products of the lists that benchmarks report are never
fitted: they are the last that are held out. So are those of check.txt.gz, which no fit may know:
104 products with up to 64 candidates each, and 118 with the choices of two plans. (Two choices
differ mostly by less than 5 %.) They are measured as those of plan.txt.gz (see fit_plan.py), on an
H200.
"""
import gzip
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
DATA, CHECK = HERE / "plan.txt.gz", HERE / "check.txt.gz"
LISTS = [HERE.parent / name for name in (
    "shapes.txt", "hopper-shapes.txt", "hopper-random.txt", "shapes/models.txt", "shapes/batches.txt"
)]
TREES = ROOT / "crates/tegula-kernels/src/plan/hopper_trees.rs"
# The features that are the blocks of a multicast cluster along m and n, and the predicted time.
CLUSTER, TIME = [2, 3], 17
# The part of the mean error of a product that is forgiven, as only the order of recipes matters.
FORGIVEN = 0.85
# The H100 has fewer kinds of measurements.
WEIGHTS = {"h100": 0.25, "h200": 1.0}
FOLDS = 4
PARAMETERS = {"max_iter": 48, "learning_rate": 0.2, "max_depth": 5, "max_leaf_nodes": 32, "min_samples_leaf": 40,
              "l2_regularization": 3.0, "early_stopping": False, "max_bins": 64}


def features(lines):
    """The constants and features of hopper_correction.rs; NaN for a recipe that is no candidate."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("".join(lines))
        file.flush()
        command = ["cargo", "run", "--release", "--quiet", "-p", "tegula-kernels", "--example", "predict", "--"]
        command += [file.name, "--features"]
        output = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    first, *rest = output.stdout.splitlines()
    constants = {name: float(value) for name, value in (field.split("=") for field in first.split())}
    rows = [np.array(line.split(), float) for line in rest]
    count = max(map(len, rows))
    return constants, np.array([row if len(row) > 1 else np.full(count, np.nan) for row in rows])


def flops(product):
    """The operations of a product."""
    m, n, k, batches = (*map(int, product[3:]), 1)[:4]
    return 2 * m * n * k * batches


def summary(name, losses):
    within = ", ".join(f"{round(100 * limit)} %: {(losses < limit).mean():.2f}" for limit in (0.05, 0.15))
    print(f"{name}: {len(losses)} products, choice within {within}; mean loss {100 * losses.mean():.1f} %")


class Measurements:
    """The recipes of pipelines in a file, by product."""

    def __init__(self, path):
        lines = [line for line in gzip.open(path, "rt") if line.split()[-1].startswith("hopper_")]
        self.constants, all_features = features(lines)
        times = all_features[:, TIME]
        used = np.isfinite(times)
        fields = [line.split() for line, use in zip(lines, used) if use]
        self.times = times[used]
        numbers = {product: i for i, product in enumerate(dict.fromkeys(tuple(field[:-2]) for field in fields))}
        self.products = list(numbers)
        self.product = np.array([numbers[tuple(field[:-2])] for field in fields])
        us = np.array([float(field[-2]) for field in fields])
        count = len(numbers)
        best, least = np.full(count, np.inf), np.full(count, np.inf)
        np.minimum.at(best, self.product, us)
        np.minimum.at(least, self.product, self.times)
        self.loss = us / best[self.product] - 1
        self.near = self.times <= self.constants["near"] * least[self.product]
        weights = np.exp(-8 * self.loss) + 0.05
        error = np.log(us / self.times)
        total = np.bincount(self.product, weights, count)
        mean = np.bincount(self.product, weights * error, count) / total
        self.error = error - FORGIVEN * mean[self.product]
        self.weights = weights * np.array([WEIGHTS[field[0]] for field in fields])
        self.features = all_features[used]
        self.sustained = np.array([flops(product) for product in self.products]) > self.constants["sustained"] * least

    def losses(self, correction):
        """The loss of the choice for each product."""
        clusters = np.where(self.features[:, CLUSTER].prod(axis=1) > 1, np.log(self.constants["clusters"]), 0)
        limit = self.constants["limit"]
        times = np.log(self.times) + np.where(self.near, np.clip(correction, -limit, limit) + clusters, 0)
        order = np.lexsort((times, self.product))
        return self.loss[order[np.unique(self.product[order], return_index=True)[1]]]

    def is_listed(self):
        """Whether each product is in a list."""
        listed = {tuple(line.split()[:3]) for path in LISTS for line in path.read_text().splitlines()}
        return np.array([product[3:6] in listed for product in self.products])

    def fitted(self, used):
        """The trees of products below the power limit and of those at it, fitted to some products."""

        def trees(used):
            used = used[self.product]
            model = HistGradientBoostingRegressor(**PARAMETERS)
            return model.fit(self.features[used], self.error[used], sample_weight=self.weights[used])

        return trees(used & ~self.sustained), trees(used & self.sustained)

    def correction(self, models):
        """The logarithm of the correction of each recipe."""
        short, sustained = (model.predict(self.features) for model in models)
        return np.where(self.sustained[self.product], sustained, short)


def number(value):
    """A number in Rust, without more digits than a single-precision number has."""
    text = f"{value:.6g}"
    return text if "." in text or "e" in text else text + ".0"


def trees(name, text, model):
    """The trees of a model in Rust, each node before its children."""
    nodes, roots = [], []

    def add(tree, i):
        node = tree[i]
        if node["is_leaf"]:
            nodes.append(f"(255, {number(node['value'])}, 0)")
            return
        at = len(nodes)
        nodes.append("")
        add(tree, node["left"])
        nodes[at] = f"({node['feature_idx']}, {number(node['num_threshold'])}, {len(nodes)})"
        add(tree, node["right"])

    for [predictor] in model._predictors:
        roots.append(str(len(nodes)))
        add(predictor.nodes, 0)

    def wrapped(items):
        lines, line = [], "       "
        for item in items:
            if len(line) + len(item) + 2 > 118:
                lines.append(line)
                line = "       "
            line += f" {item},"
        return "\n".join([*lines, line])

    mean = number(float(model._baseline_prediction.ravel()[0]))
    return (
        f"\n/// {text}\n#[rustfmt::skip]\npub(super) static {name}: Trees = Trees {{\n    mean: {mean},\n"
        f"    roots: &[\n{wrapped(roots)}\n    ],\n    nodes: &[\n{wrapped(nodes)}\n    ],\n}};\n"
    )


TYPES = """/// The feature, the threshold and the next node if the feature exceeds it, otherwise the node
/// that follows; or 255 and the value of a leaf.
type Node = (u8, f32, u16);

/// Regression trees.
pub(super) struct Trees {
    /// The value before that of the trees.
    pub mean: f64,
    /// The first node of each tree.
    pub roots: &'static [u16],
    /// The nodes, each before its children.
    pub nodes: &'static [Node],
}
"""


def write(models):
    """Replaces the file of the trees."""
    TREES.write_text(
        "//! The trees of `hopper_correction`, by `benchmarks/cost/fit_trees.py`.\n\n" + TYPES
        + trees("SHORT", "The trees of products below the power limit.", models[0])
        + trees("SUSTAINED", "The trees of products at the power limit, by long runs.", models[1])
    )


data, check = Measurements(DATA), Measurements(CHECK)
assert not set(data.products) & set(check.products), "no fit may know the products of the check"
none = np.zeros(len(data.times))
listed = data.is_listed()
folds = np.random.default_rng(0).permutation(len(data.products)) % FOLDS
held_out = none.copy()
for fold in range(FOLDS):
    used = (folds != fold) & ~listed
    held_out = np.where(used[data.product], held_out, data.correction(data.fitted(used)))
models = data.fitted(~listed)
fitted = data.correction(models)
for place, products in [("below the limit", ~data.sustained), ("at the limit", data.sustained)]:
    for name, correction in [("without trees", none), ("held out", held_out), ("fitted", fitted)]:
        summary(f"{place}, {name}", data.losses(correction)[products & ~listed])
    for name, correction in [("without trees", none), ("with trees", fitted)]:
        summary(f"{place}, lists, {name}", data.losses(correction)[products & listed])
has_two = np.bincount(check.product) <= 2
groups = [("below the limit", ~check.sustained & ~has_two), ("at the limit", check.sustained & ~has_two), ("two choices", has_two)]
for place, products in groups:
    for name, correction in [("without trees", np.zeros(len(check.times))), ("with trees", check.correction(models))]:
        summary(f"check, {place}, {name}", check.losses(correction)[products])
if "--write" in sys.argv:
    write(models)
