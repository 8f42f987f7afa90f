#!/usr/bin/env python3
"""Fits the numbers of plan/hopper.rs to measurements: python3 benchmarks/cost/hopper.py; needs numpy and scipy.

A line of h200-hopper-bf16.txt.gz is m, n, k, microseconds and a kernel: the first looks of

    tegula tune --shapes SHAPES --dtype bf16 --layout nn --time 0.01 --dry-run --json FILE

at 12 shapes of the list of targets and 150 by chance from 64 to 16384, two thirds of them multiples of 8. The formula is that of plan/hopper.rs. What
counts is how the candidates near a shape's best compare.
"""
import gzip
import math
import re
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

HERE = Path(__file__).parent
WORKERS = {1: 132, 2: 66, 4: 30, 8: 15}
KERNEL = re.compile(r"hopper_bf16_(\d+)x(\d+)x64_(\d)_(\d+)_(\d)(?:_k(\d))?(?:_g\d+)?(.*)$")
# Measured, and not among the plan's: without them its choices are no worse.
LEFT_OUT = ["64x128x64_1_8_2", "64x256x64_1_5_2", "64x128x64_1_7_1_k2", "64x32x64_1_12_1_k2", "128x32x64"]
START = dict(
    start=1.6, begin=0.15, l2=2.2e5, line=0.7, sector=1.6, shared=0.3, together=0.6, store=1.8, single=2.0, exchange=0.3, exchange_area=2.4,
    exchange_many=0.5, memory=3.5e6, packing=3.4e6, packed=1.3, adding=2.6, parts=2.9e6,
)


def within(row):
    return 0.0 if row % 64 == 0 else 0.5 if row % 32 == 0 else 0.75 if row % 16 == 0 else 0.875


def measurement(line):
    m, n, k, us, name = line.split()
    m, n, k, us = int(m), int(n), int(k), float(us)
    rows, cols, consumers, _, cluster, split, rest = KERNEL.match(name).groups()
    rows, cols, cluster, split = int(rows), int(cols), int(cluster), int(split or 1)
    parts = int(re.search(r"parts_(\d+)", rest).group(1)) if "parts" in rest else 1
    swapped, packed = "swapped" in rest, (re.search(r"_p([ab]+)$", rest) or [""])[0]
    down, right, lies = (n, m, [n, k]) if swapped else (m, n, [k, n])
    tiles = math.ceil(down / (rows * cluster)) * cluster * math.ceil(right / cols)
    waves = math.ceil(tiles * parts / WORKERS[split])
    pack = [which in packed for which in "ab"]
    return dict(
        shape=(m, n, k), us=us, name=name, tile=(rows, cols, int(consumers), cluster), area=rows * cols / 32768, cluster=cluster, split=split,
        waves=waves, busy=tiles * parts / waves * split / 132, steps=max(1, math.ceil(math.ceil(k / 64) / (parts * split))),
        inside=[down / math.ceil(down / rows), right / math.ceil(right / cols)], within=[0 if p else within(row) for p, row in zip(pack, lies)],
        odd=[float(not p and row % 16 != 0) for p, row in zip(pack, lies)], single=float("_e" in rest and parts == 1), parts=parts,
        bytes=2 * (m * k + k * n + m * n), c=m * n, packs=sum(pack), packed=4 * k * (down * pack[0] + right * pack[1]),
    )


rows = [measurement(line) for line in gzip.open(HERE / "h200-hopper-bf16.txt.gz", "rt") if not any(name in line for name in LEFT_OUT)]
tiles = sorted({row["tile"] for row in rows})
data = {key: np.array([row[key] for row in rows], float) for key in rows[0] if key not in ("shape", "name", "tile")}
tile = np.array([tiles.index(row["tile"]) for row in rows])
best = {}
for row in rows:
    best[row["shape"]] = min(best.get(row["shape"], math.inf), row["us"])
weight = np.array([math.exp(-3 * (row["us"] / best[row["shape"]] - 1)) + 0.05 for row in rows])


def predicted(x):
    p, step, d = dict(zip(START, np.exp(x))), np.exp(x[len(START):])[tile], data
    split = d["split"] > 1
    spread = d["inside"] * (1 + p["line"] * d["within"] + p["sector"] * d["odd"])
    copied = (spread[:, 0] + spread[:, 1] * np.where(d["cluster"] > 1, p["shared"], 1)) * 128
    store = p["store"] * d["area"] / d["split"] * np.where(d["single"] > 0, p["single"], 1)
    exchange = split * (p["exchange"] + p["exchange_area"] * d["area"] + (d["split"] > 2) * p["exchange_many"])
    making = d["waves"] * (d["steps"] * (step + copied / p["l2"] * d["busy"]) + store + exchange + p["begin"])
    second = (d["parts"] > 1) * (p["adding"] + 8 * d["c"] * d["parts"] / p["parts"])
    packing = p["packed"] * d["packs"] + d["packed"] / p["packing"]
    together = p["together"] * (d["cluster"] > 1)
    return p["start"] + together + np.maximum(making, d["bytes"] / p["memory"]) + second + packing


first = np.log(np.concatenate([list(START.values()), [0.5 * r * c / 32768 for r, c, *_ in tiles]]))
found = least_squares(lambda x: np.log(predicted(x) / data["us"]) * np.sqrt(weight), first, loss="soft_l1", f_scale=0.05).x
for name, value in zip(START, np.exp(found)):
    print(f"{name} {value:.4g}")
for (r, c, consumers, cluster), value in zip(tiles, np.exp(found[len(START):])):
    print(f"step of {r}x{c}, {consumers} consumers, cluster of {cluster}: {value:.3f}")
times, by_shape = predicted(found), {}
for i, row in enumerate(rows):
    by_shape.setdefault(row["shape"], []).append(i)
loss = np.array([data["us"][min(shape, key=lambda i: times[i])] / min(data["us"][shape]) for shape in by_shape.values()])
print(f"choice within 3 % of the best: {(loss < 1.03).mean():.2f}, 5 %: {(loss < 1.05).mean():.2f}, 10 %: {(loss < 1.1).mean():.2f}; mean {loss.mean():.3f}")
