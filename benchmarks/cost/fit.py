#!/usr/bin/env python3
"""Fits the numbers of plan/candidates.rs to measurements: python3 benchmarks/cost/fit.py f32 benchmarks/cost/h200-f32.txt

A line of measurements is m,n,k[,batch], the kernel and how its work was split (a number of parts, or w and one of workers), and microseconds: what
`tegula bench --kernel KERNEL:SPLIT` times. Lines of kernels and splits that plans do not offer are skipped.

For each blocking, four numbers are sought: the share of the instruction rate with full multiprocessors, with one block on each, how much longer a
step takes where elements are copied one by one, and the microseconds that each wave takes besides. All shapes count the same, and of a shape those
recipes most that are near its best. The formula is that of plan/cost.rs without packing, busy memory, heat and what operations and memory
cost each other: operands were small enough for the L2 cache, and runs too short for the card to slow down.

At the end, how many choices by the formula are within 5 % of the best: with numbers fitted to all shapes, and with numbers fitted to all but the
shape that is chosen for.
"""
import re
import sys
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

MULTIPROCESSORS, RATE, MEMORY, PARTS, SHARING, LAUNCH = 132, 64.5e6 / 132, 3.5e6, 2.7e6, 1.08, (2.0, 2.0)
# A part took longer to add when f32 was measured.
PART = {"f32": 0.19, "i32": 0.19, "f64": 0.04}[sys.argv[1]]
SIZE = {"f32": 4, "i32": 4, "f64": 8}[sys.argv[1]]

PLAN = Path(__file__).parents[2] / "crates/tegula/src/plan/candidates.rs"


def planned():
    """Names of kernels in the plan."""
    for depth, numbers in re.findall(r"(?:F64K(\d+), )?of\((\[.*?\]), \[[\d., ]+\]\)", PLAN.read_text()):
        groups = [re.findall(r"\d+", group) for group in re.findall(r"\[(.*?)\]", numbers)]
        yield "_".join([f"dmma16x{depth}" if depth else "register", *("x".join(group) for group in groups[:3]), *groups[3]])


class Row:
    def __init__(self, line):
        shape, kernel, microseconds = line.split()
        self.shape = tuple(([int(extent) for extent in shape.split(",")] + [1])[:4])
        self.name, split = kernel.split(":")
        self.workers, self.parts = (int(split[1:]), 1) if split[0] == "w" else (0, int(split))
        self.time = float(microseconds)
        m, n, k, batch = self.shape
        _, block, _, thread, _, _, at_once = self.name.split("_")
        (bm, bn, bk), (tm, tn), self.at_once = (map(int, block.split("x"))), map(int, thread.split("x")), int(at_once)
        self.tiles, self.steps, room = -(-m // bm) * -(-n // bn) * batch, -(-k // bk), MULTIPROCESSORS * self.at_once
        self.step, self.single = 2 * bm * bn * bk / RATE, not k % (16 // SIZE) == n % (16 // SIZE) == 0
        left = self.tiles % self.workers if self.workers else 0
        self.split = self.parts * m * n * batch if self.parts > 1 else (self.workers + left) * bm * bn if self.workers else 0
        self.bytes = ((m * k + k * n + m * n) * batch + self.split) * SIZE
        # As `splits` in plan/candidates.rs.
        if self.workers:
            uneven = self.tiles > room and self.tiles % room
            self.offered = uneven and self.steps >= 32 and ("dmma" in self.name or tm * tn <= 64)
        else:
            self.offered = self.parts == 1 or self.parts <= min(2 * room // self.tiles, self.steps // 4, 132)


class Table:
    """Rows as columns."""

    def __init__(self, rows):
        of = lambda get: np.array([float(get(row)) for row in rows])
        self.time, self.step, self.single = of(lambda row: row.time), of(lambda row: row.step), of(lambda row: row.single) > 0
        self.at_once, self.workers, self.parts = of(lambda row: row.at_once), of(lambda row: row.workers), of(lambda row: row.parts)
        self.tiles, self.all_steps, self.bytes = of(lambda row: row.tiles), of(lambda row: row.steps), of(lambda row: row.bytes)
        self.split = of(lambda row: row.split) * SIZE


def predict(numbers, t):
    full, alone, single, fixed = numbers
    step = t.step * np.where(t.single, single, 1)

    def blocks(count):
        """A step of so many blocks on each multiprocessor: squares of times lie on a line by squares of counts."""
        one, every = (step / alone) ** 2, (t.at_once * step / full) ** 2
        return np.sqrt(one + np.maximum(every - one, 0) * (count**2 - 1) / np.maximum(t.at_once**2 - 1, 1))

    waves, rest = np.divmod(t.tiles * t.parts, MULTIPROCESSORS * t.at_once)
    each, steps = np.ceil(rest / MULTIPROCESSORS), np.ceil(t.all_steps / t.parts)
    time = waves * (blocks(t.at_once) * steps + fixed) + np.where(rest > 0, blocks(np.maximum(each, 1)) * steps + fixed, 0)
    whole, left = np.divmod(t.tiles, np.maximum(t.workers, 1))
    shared = np.ceil(left * t.all_steps / np.maximum(t.workers, 1))
    share = (whole * t.all_steps + shared) * blocks(t.at_once) * SHARING + (whole + 2) * fixed
    time = np.maximum(np.where(t.workers > 0, share, time), t.bytes / MEMORY) + LAUNCH[0]
    return time + np.where(t.split > 0, LAUNCH[1] + PART * t.parts + 2 * t.split / PARTS, 0)


def fit(rows, weights):
    table, one = Table(rows), rows[0].at_once == 1
    logistic = lambda x: 1 / (1 + np.exp(-x))
    # With one block at once, full and alone are the same.
    numbers = lambda x: (logistic(x[0]), logistic(x[0]) * (1 if one else logistic(x[1])), 1 + np.exp(x[2]), np.exp(x[3]))
    usual = np.array([1.0, 2.0, -1.5, 0.5])
    loss = lambda x: np.append(weights * np.log(predict(numbers(x), table) / table.time), 0.02 * (x - usual))
    return numbers(least_squares(loss, usual, loss="soft_l1", f_scale=0.05).x)


def ratios(rows, fitted):
    """The time of what is chosen by that of the best, for each shape."""
    for shape in sorted({row.shape for row in rows}):
        of = [row for row in rows if row.shape == shape]
        predicted = [predict(fitted(row), Table([row]))[0] for row in of]
        yield of[int(np.argmin(predicted))].time / min(row.time for row in of), shape


def quality(label, found):
    slower = np.array([ratio for ratio, _ in found])
    print(f"{label}: {np.sum(slower <= 1.05)} of {len(slower)} choices within 5 % of the best, {slower.mean():.3f} on average")
    print("  the worst:", *(f"{','.join(map(str, shape))} {ratio:.2f}" for ratio, shape in sorted(found, reverse=True)[:5]))


plan = set(planned())
rows = [row for path in sys.argv[2:] for row in map(Row, open(path)) if row.offered and row.name in plan]
best, total, near = {}, {}, lambda row: 0.15 + 0.85 * np.exp((1 - row.time / best[row.shape]) / 0.3)
for row in rows:
    best[row.shape] = min(best.get(row.shape, np.inf), row.time)
for row in rows:
    total[row.shape] = total.get(row.shape, 0) + near(row)
weights = np.array([near(row) * (100 / total[row.shape]) ** 0.5 for row in rows])
names = sorted({row.name for row in rows})


def fit_all(but=None):
    chosen = {name: [i for i, row in enumerate(rows) if row.name == name and row.shape != but] for name in names}
    return {name: fit([rows[i] for i in of], weights[of]) for name, of in chosen.items()}


fitted = fit_all()
for name, numbers in fitted.items():
    table = Table([row for row in rows if row.name == name])
    error = np.mean(np.abs(np.log(predict(numbers, table) / table.time)))
    print(name, *(f"{number:.3f}" for number in numbers), f"mean error {error:.3f}")
quality("Fitted", list(ratios(rows, lambda row: fitted[row.name])))
without = {shape: fit_all(shape) for shape in best}
quality("Left out", list(ratios(rows, lambda row: without[row.shape][row.name])))
