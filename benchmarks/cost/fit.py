#!/usr/bin/env python3
"""Fits the numbers of plan/candidates.rs to measurements: python3 benchmarks/cost/fit.py f32 benchmarks/cost/h200-f32.txt

A line of measurements is m,n,k[,batch], the kernel and in how many parts, and microseconds: what `tegula bench --kernel KERNEL:PARTS` times.
For each blocking, three numbers are sought that make the mean of |log(predicted / measured)| least: the share of the instruction rate with full
multiprocessors, with one block on each, and the microseconds that each wave takes besides. The formula is that of plan/cost.rs.
"""
import collections
import math
import sys

from scipy.optimize import minimize

MULTIPROCESSORS, RATE, MEMORY, PARTS, LAUNCH, SINGLE = 132, 64.5e6 / 132, 4.0e6, 2.0e6, (2.0, 4.0), 1.15
SIZE = {"f32": 4, "i32": 4, "f64": 8}[sys.argv[1]]


def read(path):
    for line in open(path):
        shape, kernel, microseconds = line.split()
        shape = [int(extent) for extent in shape.split(",")]
        name, parts = kernel.split(":")
        yield tuple(shape + [1] * (4 - len(shape))), name, int(parts), float(microseconds)


def predict(numbers, shape, name, parts):
    full, alone, fixed = numbers
    m, n, k, batch = shape
    _, block, *_, at_once = name.split("_")
    (bm, bn, bk), at_once = map(int, block.split("x")), int(at_once)
    unit = 16 // SIZE
    step = 2 * bm * bn * bk / RATE * (1 if k % unit == n % unit == 0 else SINGLE)
    steps = math.ceil(math.ceil(k / bk) / parts)
    waves, rest = divmod(math.ceil(m / bm) * math.ceil(n / bn) * batch * parts, MULTIPROCESSORS * at_once)
    time = waves * (at_once * step / full * steps + fixed)
    if rest:
        time += max(math.ceil(rest / MULTIPROCESSORS) * step / full, step / alone) * steps + fixed
    split = m * n * parts * batch * SIZE if parts > 1 else 0
    time = max(time, ((m * k + k * n + m * n) * batch * SIZE + split) / MEMORY) + LAUNCH[0]
    return time + (LAUNCH[1] + 2 * split / PARTS if parts > 1 else 0)


def fit(rows):
    share = lambda x: 0.5 + 0.5 * math.tanh(x / 2)
    numbers = lambda x: (max(share(x[0]), 1e-6), max(share(x[1]), 1e-6), math.exp(min(x[2], 5)))
    loss = lambda x: sum(min(abs(math.log(predict(numbers(x), *row[:3]) / row[3])), 1) for row in rows)
    starts = ([1, 0, 0], [0.5, -0.5, 1])
    best = min((minimize(loss, start, method="Nelder-Mead") for start in starts), key=lambda found: found.fun)
    return numbers(best.x), best.fun / len(rows)


rows = [row for path in sys.argv[2:] for row in read(path)]
fitted = {name: fit([row for row in rows if row[1] == name]) for name in sorted({row[1] for row in rows})}
for name, (numbers, error) in fitted.items():
    print(name, *(f"{number:.3f}" for number in numbers), f"mean error {error:.3f}")
shapes = collections.defaultdict(list)
for row in rows:
    shapes[row[0]].append(row)
slower = [min(of, key=lambda row: predict(fitted[row[1]][0], *row[:3]))[3] / min(row[3] for row in of) for of in shapes.values()]
print(f"{sum(ratio <= 1.05 for ratio in slower)} of {len(slower)} choices within 5 % of the best")
