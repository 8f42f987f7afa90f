#!/usr/bin/env python3
"""Fits the numbers of plan/hopper.rs to measurements: python3 benchmarks/cost/hopper.py; needs numpy and scipy.

A line of h200-hopper-bf16.txt.gz is m, n, k, microseconds and a kernel: the first looks of

    tegula tune --shapes SHAPES --dtype bf16 --layout nn --time 0.01 --dry-run --json FILE

at 12 shapes of the list of targets and 150 by chance from 64 to 16384, two thirds of them multiples of 8. The formula is that of plan/hopper.rs,
whose test compares the times printed here. What counts is how the candidates near a shape's best compare: half of what they are all off by is forgiven.
How good choices are for shapes that are not fitted to is told by leaving out a fifth of them at a time.
"""
import gzip
import math
import re
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

HERE = Path(__file__).parent
WORKERS = {1: 132, 2: 66, 4: 30, 8: 15}
KERNEL = re.compile(r"hopper_bf16_(\d+)x(\d+)x64_(\d)_(\d+)_(\d)(?:_k(\d))?(?:_g\d+)?(?:_([rc]{3}))?(?:_|$)")
# Measured, and not among the plan's: without them its choices are no worse.
LEFT_OUT = ["64x128x64_1_8_2", "64x256x64_1_5_2", "64x128x64_1_7_1_k2", "64x32x64_1_12_1_k2", "128x32x64", "256x128x64_2_4_1"]
CLOCK, SHARP, FORGIVEN, FOLDS, ORDERS = 1755, 6, 0.5, 5, 4
START = dict(
    start=1.3, begin=0.2, row0=1.2, row1=1.8, row2=2.6, row3=5, outside=4, l2=2.2e5, first=2.5, together=0.5, store=1.1, single=2.5,
    single_turned=2.8, exchange=0.3, exchange_area=1.8, exchange_many=0.4, memory=9e6, packing=4.2e6, packing_turned=3.4e6, packed=1.4, adding=2.3,
    parts=6e6, parts_turned=2e6,
)
# Of these, the test of plan/hopper.rs has the times.
PRINTED = [
    ("1024 1024 1024", "64x128x64_1_8_1"), ("4096 4096 4096", "128x256x64_2_4_2"), ("1 4096 4096", "64x16x64_1_12_1_k2_ccc_swapped"),
    ("1000 1001 1003", "64x128x64_1_8_1_rrc_e_swapped_pab"), ("128 128 65536", "64x64x64_1_8_1_ccr_e_parts_33_swapped"),
    ("8032 104 776", "128x128x64_2_6_2"), ("11336 712 8048", "128x192x64_2_4_1_ccc_swapped"), ("328 240 1656", "64x64x64_1_8_1_k4"),
]


def aligned(row):
    return 0 if row % 64 == 0 else 1 if row % 32 == 0 else 2 if row % 16 == 0 else 3


def measurement(line):
    m, n, k, us, name = line.split()
    m, n, k, us = int(m), int(n), int(k), float(us)
    rows, cols, consumers, _, cluster, split, orders = KERNEL.match(name).groups()
    rows, cols, cluster, split = int(rows), int(cols), int(cluster), int(split or 1)
    parts = int(re.search(r"parts_(\d+)", name).group(1)) if "parts" in name else 1
    swapped, packed = "swapped" in name, (re.search(r"_p([ab]+)$", name) or [""])[0]
    pack, along_k = [which in packed for which in "ab"], [(orders or "rrr")[0] == "r", (orders or "rrr")[1] == "c"]
    extents, tile, lies = ((n, m), (rows, cols), (n, k)) if swapped else ((m, n), (rows, cols), (k, n))
    # Blocks of a cluster have tiles below each other.
    tiles = [math.ceil(extents[0] / (rows * cluster)) * cluster, math.ceil(extents[1] / cols)]
    inside = [extent / many for extent, many in zip(extents, tiles)]
    asked = [i if along else min(math.ceil(e / 64) * 64 / many, of) for i, along, e, many, of in zip(inside, along_k, extents, tiles, tile)]
    share = [1, 1 / cluster]
    return dict(
        shape=(m, n, k), us=us, name=name, tile=(rows, cols, int(consumers), cluster), area=rows * cols / 32768, cluster=cluster, split=split,
        jobs=tiles[0] * tiles[1] * parts, workers=WORKERS[split],
        steps=max(1, math.ceil(math.ceil(k / 64) / (parts * split))), copied=128 * np.dot(inside, share), asked=np.multiply(asked, share),
        aligned=[0 if p else aligned(row) for p, row in zip(pack, lies)], outside=np.dot(np.subtract(tile, asked), share),
        single=float("_e" in name and parts == 1), turned=float(swapped), parts=parts, bytes=2 * (m * k + k * n + m * n), c=m * n,
        packs=sum(pack), packed=4 * k * (extents[0] * pack[0] + extents[1] * pack[1]),
    )


lines = list(gzip.open(HERE / "h200-hopper-bf16.txt.gz", "rt"))
rows = [measurement(line) for line in lines if not any(name in line.replace("_g16", "") for name in LEFT_OUT)]
tiles = sorted({row["tile"] for row in rows})
data = {key: np.array([row[key] for row in rows], float) for key in rows[0] if key not in ("shape", "name", "tile")}
data["tile"] = np.array([tiles.index(row["tile"]) for row in rows])
shapes = list(dict.fromkeys(row["shape"] for row in rows))
data["shape"] = np.array([shapes.index(row["shape"]) for row in rows])
best = np.minimum.reduceat(data["us"], np.unique(data["shape"], return_index=True)[1])[data["shape"]]
data["weight"] = np.exp(-3 * (data["us"] / best - 1)) + 0.05


def predicted(x, d):
    p, step, split, blocks = dict(zip(START, np.exp(x))), np.exp(x[len(START):])[d["tile"]], d["split"], 132
    rows = np.array([p["row0"], p["row1"], p["row2"], p["row3"]])[d["aligned"].astype(int)] / CLOCK
    asks, outside = (d["asked"] * rows).sum(1), d["outside"] * p["outside"] / CLOCK
    single = np.where(d["single"] > 0, np.where(d["turned"] > 0, p["single_turned"], p["single"]), 1)
    exchange = (split > 1) * (p["exchange"] + p["exchange_area"] * d["area"] + (split > 2) * p["exchange_many"])
    tile = p["begin"] + p["store"] * d["area"] / split * single + exchange

    def wave(jobs):
        busy = jobs * split / blocks
        multiplies, copies = step + d["copied"] / p["l2"] * busy**2 + outside * busy, asks * np.where(busy <= 0.5, 0.5, 1)
        return d["steps"] * (multiplies**SHARP + copies**SHARP) ** (1 / SHARP) + tile, p["first"] * np.minimum(step, copies)

    whole, rest = d["jobs"] // d["workers"], d["jobs"] % d["workers"]
    (full, first), (last, only) = wave(d["workers"]), wave(rest)
    making = whole * full + np.where(rest > 0, last, 0) + np.where(whole > 0, first, only)
    second = (d["parts"] > 1) * (p["adding"] + 8 * d["c"] * d["parts"] / np.where(d["turned"] > 0, p["parts_turned"], p["parts"]))
    packing = p["packed"] * d["packs"] + d["packed"] / np.where(d["turned"] > 0, p["packing_turned"], p["packing"])
    return p["start"] + p["together"] * (d["cluster"] > 1) + making + d["bytes"] / p["memory"] + second + packing


def fitted(d):
    first, of = np.unique(d["shape"], return_index=True, return_inverse=True)[1:]
    whole = np.add.reduceat(d["weight"], first)[of]

    def off(x):
        by = np.log(predicted(x, d) / d["us"])
        return (by - FORGIVEN * np.add.reduceat(by * d["weight"], first)[of] / whole) * np.sqrt(d["weight"] / whole * 20)

    start = np.log(np.concatenate([list(START.values()), [0.06 + 0.5 * r * c / 32768 for r, c, *_ in tiles]]))
    return least_squares(off, start, loss="soft_l1", f_scale=0.05, max_nfev=100).x


def losses(times, which):
    own = [np.flatnonzero(data["shape"] == shape) for shape in which]
    return np.array([data["us"][shape[np.argmin(times[shape])]] / best[shape[0]] for shape in own])


def told(what, loss):
    near = ", ".join(f"{round(100 * over - 100)} %: {(loss < over).mean():.3f}" for over in (1.03, 1.05, 1.1))
    print(f"{what}: choice within {near}; mean loss {100 * loss.mean() - 100:.2f} %")


# As many digits as the plan has.
found = np.log([float(f"{value:.3g}") for value in np.exp(fitted(data))])
for name, value in zip(START, np.exp(found)):
    print(f"{name} {value:.3g}")
for (r, c, consumers, cluster), value in zip(tiles, np.exp(found[len(START):])):
    print(f"step of {r}x{c}, {consumers} consumers, cluster of {cluster}: {value:.3f}")
times = predicted(found, data)
for sizes, name in PRINTED:
    [of] = [i for i, row in enumerate(rows) if row["shape"] == tuple(map(int, sizes.split())) and row["name"] == f"hopper_bf16_{name}"]
    print(f'([{sizes.replace(" ", ", ")}], "hopper_bf16_{name}", {times[of]:.2f}),')
told("fitted", losses(times, range(len(shapes))))
left = []
for order in range(ORDERS):
    folds = np.random.default_rng(order).permutation(len(shapes)) % FOLDS
    for fold in range(FOLDS):
        known = folds[data["shape"]] != fold
        x = fitted({key: value[known] for key, value in data.items()})
        left.append(losses(predicted(x, data), np.flatnonzero(folds == fold)))
told("left out", np.concatenate(left))
