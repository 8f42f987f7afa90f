#!/usr/bin/env python3
"""Fits the numbers of plan/hopper.rs to measurements: python3 benchmarks/cost/hopper.py [--write]; needs numpy and scipy.

With --write they go there, but for what the text says of how good choices are.

A line of the measurements is m, n, k, microseconds and a kernel: the first looks of

    tegula tune --shapes SHAPES --dtype bf16 --layout nn --time 0.005 --dry-run --json FILE

on an H200 (gather.py adds others), of 557 products: targets, shapes that were slow before, and others by chance from 64 to 16384, two thirds of them multiples of 8. Seven large
ones ran for 0.15 s by each kernel, until the card was at its limit of power. The formula is that of plan/hopper.rs, whose test compares the times printed here.
What counts is how the candidates near a shape's best compare: half of what they are all off by is forgiven. How good choices are for shapes that are not fitted
to is told by leaving out a fifth of them at a time.
"""
import gzip
import math
import re
import sys
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

HERE = Path(__file__).parent
# So many clusters run at a time, by their blocks.
CLUSTERS = {1: 132, 2: 66, 4: 30, 8: 15}
FILE = "h200-hopper-bf16.txt.gz"
KERNEL = re.compile(r"hopper_bf16_(\d+)x(\d+)x64_(\d)_(\d+)_(\d)(?:x(\d))?(?:_k(\d))?(?:_g\d+)?(?:_([rc]{3}))?(?:_|$)")
# Rows of a tile, blocks that share its factors, and the columns whose times are fitted; those of others are between.
KNOTS = {(64, 1): [16, 32, 64, 128, 192], (64, 2): [24, 64, 128, 192], (64, 4): [24, 64, 128, 192], (128, 1): [24, 64, 128, 192, 256]}
KNOTS |= {(128, of): [64, 128, 192, 256] for of in (2, 4)} | {(192, of): [64, 128, 160] for of in (1, 2, 4)}
TILES = [(rows, cols, of) for (rows, of), knots in KNOTS.items() for cols in knots]
CLOCK, SHARP, SHARPEST, FORGIVEN, SLOW, FOLDS, ORDERS = 1755, 6, 8, 0.5, 0.4, 5, 2
# These weigh more.
TARGETS = [(side,) * 3 for side in (1024, 2048, 4096, 8192)] + [(8192, 1024, 8192), (4096, 4096, 64), (128, 128, 65536)]
TARGETS += [(m, 4096, 4096) for m in (1, 16, 64)]
TARGETS += [(6232, 5856, 3368), (2912, 4936, 15160), (11344, 5424, 6872), (8168, 2448, 4248), (3000,) * 3]
START = dict(
    start=1.3, begin=0.2, row0=1.2, row1=1.8, row2=2.6, row3=5, outside=4, l2=2.2e5, first=2.5, together=0.5, store=1.1, single=2.5,
    single_turned=2.8, exchange=0.3, exchange_area=1.8, exchange_many=0.4, memory=9e6, packing=4.2e6, packing_turned=3.4e6, packed=1.4, adding=2.3,
    parts=6e6, meeting=2, meeting_area=2, meeting_each=1, dram=4.2e6, power=7.2e8, pieces=0.05, turned_step=1,
    tile_together=0.1, both=0.1, reading=0.3, uneven=1.03, alone=0.5,
)
# Which numbers are which constants of plan/hopper.rs.
CONSTANTS = dict(
    TMA_ROW="row0 row1 row2 row3", TMA_UNSHARED="alone", TMA_ZERO_FILL="outside", L2_CONTENTION="l2", LAUNCH_START="start", TILE_START="begin", PROLOGUE="first", MULTICAST_START="together", MULTICAST_TILE="tile_together",
    MULTICAST_BOTH="both", STORE="store", ELEMENT_STORE="single single_turned", STORE_SUBTILE="pieces", DSMEM_REDUCTION="exchange", DSMEM_REDUCTION_AREA="exchange_area", DSMEM_REDUCTION_DOUBLING="exchange_many",
    FIX_UP="meeting", FIX_UP_AREA="meeting_area", FIX_UP_CONTRIBUTOR="meeting_each", UNHIDDEN_MEMORY="memory", MEMORY="dram", STREAM_K_STEP="uneven", POWER_LIMITED_FLOPS="power", SHARED_READ="reading", K_CONTIGUOUS_B="turned_step",
    PACK="packing packing_turned", PACK_LAUNCH="packed", REDUCTION_LAUNCH="adding", PARTIAL_SUMS="parts",
)
# Of these, the test of plan/hopper.rs has the times.
PRINTED = [
    ("1024 1024 1024", "64x128x64_1_8_1"),
    ("4096 4096 4096", "128x256x64_2_4_1x2_ccc_swapped"),
    ("1 4096 4096", "64x16x64_1_12_1_k2_ccc_swapped"),
    ("88 592 10800", "64x88x64_1_8_1_ccr_e_parts_13_swapped"),
    ("352 5400 1032", "192x96x64_3_5_1x4_ccc_swapped"),
    ("3520 184 3672", "64x128x64_1_8_2x2"),
    ("2264 7040 592", "128x128x64_2_6_1x2_ccc_balanced_w132_swapped"),
    ("146 271 1113", "64x64x64_1_8_1_k8_rrc_e_swapped_pab"),
    ("5529 8598 883", "128x128x64_2_6_1x2_e_pab"),
    ("1319 4412 72", "128x176x64_2_5_1_rcc_e_swapped_pa"),
    ("214 2427 2037", "128x64x64_2_8_1_k4_e_pab"),
    ("72 504 696", "128x64x64_2_8_1_k4"),
]


def aligned(row):
    return 0 if row % 64 == 0 else 1 if row % 32 == 0 else 2 if row % 16 == 0 else 3


def stored(sums, cols):
    """Columns of C that are stored at a time, of which a thread finishes so many sums."""
    return next(of for of in range(64, 0, -8) if cols % of == 0 and sums % (of // 2) == 0)


def measurement(line):
    m, n, k, us, name = line.split()
    m, n, k, us = int(m), int(n), int(k), float(us)
    rows, cols, consumers, _, down, across, split, orders = KERNEL.match(name).groups()
    rows, cols, down, across, split = int(rows), int(cols), int(down), int(across or 1), int(split or 1)
    cluster = down * across
    parts = int(re.search(r"parts_(\d+)", name).group(1)) if "parts" in name else 1
    swapped, packed = "swapped" in name, (re.search(r"_p([ab]+)$", name) or [""])[0]
    pack, along_k = [which in packed for which in "ab"], [(orders or "rrr")[0] == "r", (orders or "rrr")[1] == "c"]
    extents, tile, lies = ((n, m), (rows, cols), (n, k)) if swapped else ((m, n), (rows, cols), (k, n))
    tiles = [math.ceil(extents[0] / (rows * down)) * down, math.ceil(extents[1] / (cols * across)) * across]
    inside = [extent / many for extent, many in zip(extents, tiles)]
    tile = [of if along else math.ceil(of / 64) * 64 for along, of in zip(along_k, tile)]
    asked = [i if along else min(math.ceil(e / 64) * 64 / many, of) for i, along, e, many, of in zip(inside, along_k, extents, tiles, tile)]
    share = [1 / across, 1 / down]
    return dict(
        shape=(m, n, k), us=us, name=name, tile=(rows, cols, cluster), both=float(down > 1 and across > 1), area=rows * cols / 32768, sums=rows * cols / (128 * int(consumers)) / 128, cluster=cluster, split=split,
        jobs=tiles[0] * tiles[1] * parts, workers=CLUSTERS[cluster * split] * cluster, balanced=float("_balanced" in name),
        steps=max(1, math.ceil(math.ceil(k / 64) / (parts * split))), copied=128 * np.dot(inside, share), asked=np.multiply(asked, share),
        aligned=[0 if p else aligned(row) for p, row in zip(pack, lies)], outside=np.dot(np.subtract(tile, asked), share),
        single=float("_e" in name and parts == 1), turned=float(swapped), along=float(along_k[1]),
        pieces=0 if "_e" in name or parts > 1 else 64 / stored(rows * cols // (128 * int(consumers)) // split, cols) - 1,
        flops=2 * m * n * k, reads=(1 / 64 + 1 / cols) / (1 / 64 + 1 / 256) - 1, parts=parts, bytes=2 * (m * k + k * n + m * n), c=tiles[0] * rows * tiles[1] * cols,
        packs=float(any(pack)), packed=4 * k * (extents[0] * pack[0] + extents[1] * pack[1]),
    )


def neighbors(tile):
    rows, cols, of = tile
    knots = KNOTS[rows, of]
    wide = max(1, next(i for i, knot in enumerate(knots) if knot >= cols))
    at = [TILES.index((rows, knots[i], of)) for i in (wide - 1, wide)]
    return *at, (cols - knots[wide - 1]) / (knots[wide] - knots[wide - 1])


rows = [measurement(line) for line in gzip.open(HERE / FILE, "rt")]
data = {key: np.array([row[key] for row in rows], float) for key in rows[0] if key not in ("shape", "name", "tile")}
narrow, wide, between = zip(*(neighbors(row["tile"]) for row in rows))
data |= dict(narrow=np.array(narrow), wide=np.array(wide), between=np.array(between))
shapes = list(dict.fromkeys(row["shape"] for row in rows))
data["shape"] = np.array([shapes.index(row["shape"]) for row in rows])
best = np.minimum.reduceat(data["us"], np.unique(data["shape"], return_index=True)[1])[data["shape"]]
data["over"] = data["us"] / best - 1
data["weight"] = np.exp(-8 * data["over"]) + 0.1
data["counts"] = np.array([5.0 if shapes[of] in TARGETS else 1.0 for of in data["shape"]])


def predicted(x, d):
    p, steps, split, blocks = dict(zip(START, np.exp(x))), np.exp(x[len(START):]), d["split"], 132
    step = steps[d["narrow"]] * (1 - d["between"]) + steps[d["wide"]] * d["between"]
    step = step * np.where(d["along"] > 0, p["turned_step"], 1)
    rows = np.array([p["row0"], p["row1"], p["row2"], p["row3"]])[d["aligned"].astype(int)] / CLOCK
    asks, outside = (d["asked"] * rows).sum(1), d["outside"] * p["outside"] / CLOCK
    single = np.where(d["single"] > 0, np.where(d["turned"] > 0, p["single_turned"], p["single"]), 1)
    exchange = (split > 1) * (p["exchange"] + p["exchange_area"] * d["area"] + (np.log2(np.maximum(split, 2)) - 1) * p["exchange_many"])
    tile = p["begin"] + p["tile_together"] * (d["cluster"] > 1) + d["sums"] / split * (p["store"] * single + p["pieces"] * d["pieces"]) + exchange

    def wave(jobs):
        busy = jobs * split / blocks
        multiplies, copies = step + d["copied"] / p["l2"] * busy**2 + outside * busy, asks * np.where(busy <= 0.5, p["alone"], 1)
        return d["steps"] * (multiplies**SHARP + copies**SHARP) ** (1 / SHARP) + tile, p["first"] * np.minimum(step, copies)

    whole, rest = d["jobs"] // d["workers"], d["jobs"] % d["workers"]
    (full, first), (last, only) = wave(d["workers"]), wave(rest)
    more = np.maximum(0, d["workers"] / d["jobs"] - 1)
    shared = p["uneven"] * d["jobs"] / d["workers"] * (full - tile) + (whole + 1) * tile
    shared = shared + p["meeting"] + d["area"] * (p["meeting_area"] + p["meeting_each"] * more)
    making = np.where(d["balanced"] > 0, shared, whole * full + np.where(rest > 0, last, 0))
    making = (making**SHARPEST + (d["bytes"] / p["dram"]) ** SHARPEST + (d["flops"] * (1 + p["reading"] * d["reads"]) / p["power"]) ** SHARPEST) ** (1 / SHARPEST)
    making = making + np.where(whole > 0, first, only)
    second = (d["parts"] > 1) * (p["adding"] + 8 * d["c"] * d["parts"] / p["parts"])
    packing = p["packed"] * d["packs"] + d["packed"] / np.where(d["turned"] > 0, p["packing_turned"], p["packing"])
    return p["start"] + p["together"] * (d["cluster"] > 1) + p["both"] * d["both"] + making + d["bytes"] / p["memory"] + second + packing


def fitted(d):
    first, of = np.unique(d["shape"], return_index=True, return_inverse=True)[1:]
    whole = np.add.reduceat(d["weight"], first)[of]

    def off(x):
        by = np.log(predicted(x, d) / d["us"])
        by -= FORGIVEN * np.add.reduceat(by * d["weight"], first)[of] / whole
        # Who is slow may as well be predicted slower than that.
        by *= np.where((d["over"] > 0.05) & (by > 0), SLOW, 1)
        return by * np.sqrt(d["weight"] / whole * 20 * d["counts"])

    start = np.log(np.concatenate([list(START.values()), [0.06 + 0.5 * r * c / 32768 for r, c, _ in TILES]]))
    return least_squares(off, start, loss="soft_l1", f_scale=0.05, max_nfev=100).x


def losses(times, which):
    own = [np.flatnonzero(data["shape"] == shape) for shape in which]
    return np.array([data["us"][shape[np.argmin(times[shape])]] / best[shape[0]] for shape in own])


def told(what, loss):
    near = ", ".join(f"{round(100 * over - 100)} %: {(loss < over).mean():.3f}" for over in (1.03, 1.05, 1.1))
    print(f"{what}: choice within {near}; mean loss {100 * loss.mean() - 100:.2f} %")


def number(value):
    """As plan/hopper.rs has it."""
    text = f"{value:.3g}".replace("e+0", "e").replace("e-0", "e-")
    # These would look like 1/π and π.
    text = {"0.318": "0.3181", "3.14": "3.139"}.get(text, text)
    return text if "." in text or "e" in text else text + ".0"


def written(found, tested):
    """The constants and the tested times of plan/hopper.rs, replaced."""
    path = HERE.parent.parent / "crates/tegula-kernels/src/plan/hopper.rs"
    text = path.read_text()
    fit, steps = dict(zip(START, np.exp(found))), np.exp(found[len(START):])

    def put(pattern, value):
        nonlocal text
        text, count = re.subn(pattern, lambda was: was[1] + value + was[2], text, flags=re.DOTALL)
        assert count == 1, pattern

    for name, of in CONSTANTS.items():
        values = [number(fit[one]) for one in of.split()]
        put(rf"(const {name}: [^=]+= )[^;]+(;)", values[0] if len(values) == 1 else f"[{', '.join(values)}]")
    table = {}
    for (r, c, of), step in zip(TILES, steps):
        table.setdefault((r, of), []).append(f"({c}, {number(step)})")
    lines = [f"    ({r}, {of}, &[{', '.join(pairs)}]),\n" for (r, of), pairs in table.items()]
    put(r"(const STEP_TIMES: [^=]+= \[\n).*?(\];)", "".join(lines))
    put(r"(fn hopper_cost_matches_the_fit\(\) \{\n        for \(sizes, name, time\) in \[\n).*?(        \] \{)", "".join(f"            {line}\n" for line in tested))
    path.write_text(text)


tests = []
for sizes, name in PRINTED:
    *_, of = [i for i, row in enumerate(rows) if row["shape"] == tuple(map(int, sizes.split())) and row["name"] == f"hopper_bf16_{name}"]
    tests.append((sizes, name, of))
# As many digits as the plan has.
found = np.log([float(number(value)) for value in np.exp(fitted(data))])
for name, value in zip(START, np.exp(found)):
    print(f"{name} {number(value)}")
for (r, c, of), value in zip(TILES, np.exp(found[len(START):])):
    print(f"step of {r}x{c}, {of} share factors: {number(value)}")
times = predicted(found, data)
tested = [f'([{sizes.replace(" ", ", ")}], "hopper_bf16_{name}", {times[of]:.2f}),' for sizes, name, of in tests]
if "--write" in sys.argv:
    written(found, tested)
told("fitted", losses(times, range(len(shapes))))
left = []
for order in range(ORDERS):
    folds = np.random.default_rng(order).permutation(len(shapes)) % FOLDS
    for fold in range(FOLDS):
        known = folds[data["shape"]] != fold
        x = fitted({key: value[known] for key, value in data.items()})
        left.append(losses(predicted(x, data), np.flatnonzero(folds == fold)))
told("left out", np.concatenate(left))
