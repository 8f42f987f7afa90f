#!/usr/bin/env python3
"""Fits the constants of plan/hopper.rs: python3 benchmarks/cost/hopper.py [--write].

Needs numpy and scipy, and some minutes. With --write the constants and the times of a test of
plan/hopper.rs are replaced there. The quality of the choices, which is printed, also stands in its
text, and is not.

A line of the measurements is m, n, k, microseconds, and a kernel. They are the first samples
(`glances`) of

    tegula tune --shapes SHAPES --dtype bf16 --layout nn --time 0.005 --dry-run --json FILE

on an H200, of 557 shapes (gather.py adds shapes): targets, shapes that were slow before, and random
ones from 64 to 16384, two thirds of them multiples of 8. On seven large shapes every kernel ran for
0.15 s, until the GPU reached its power limit. The formula is that of plan/hopper.rs, whose test
compares the predicted times.

Candidates near the best of a shape count most, by their times relative to each other: half of the
mean error of a shape is forgiven. A fifth of the shapes is held out at a time to measure how good
choices are for shapes outside the fit.
"""
import gzip
import math
import re
import sys
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

HERE = Path(__file__).parent
FILE = "h200-hopper-bf16.txt.gz"
# SMs, and resident clusters by their blocks.
SMS, CLUSTERS = 132, {1: 132, 2: 66, 4: 30, 8: 15}
KERNEL = re.compile(
    r"hopper_bf16_(\d+)x(\d+)x64_consumers(\d)_stages(\d+)(?:_cluster(\d)x(\d))?(?:_clusterk(\d))?"
    r"(?:_raster\d+)?(?:_([rc]{3}))?(?P<element_store>_e)?(?:_splitk_(?P<splits>\d+))?"
    r"(?P<stream_k>_streamk_w\d+)?(?P<swapped>_swapped)?(?:_pack(?P<packed>[ab]+))?$"
)
# The columns whose step times are fitted, by the rows of a tile and the blocks of its multicast
# group. Times of other widths are interpolated.
KNOTS = {(64, 1): [16, 32, 64, 128, 192], (64, 2): [24, 64, 128, 192], (64, 4): [24, 64, 128, 192]}
KNOTS |= {(128, 1): [24, 64, 128, 192, 256]}
KNOTS |= {(128, group): [64, 128, 192, 256] for group in (2, 4)}
KNOTS |= {(192, group): [64, 128, 160] for group in (1, 2, 4)}
TILES = [(rows, cols, group) for (rows, group), knots in KNOTS.items() for cols in knots]
CLOCK, STEP_NORM, BOUND_NORM, FORGIVEN, SLOW, FOLDS, ORDERS = 1755, 6, 8, 0.5, 0.4, 5, 2
# These have more weight.
TARGETS = [(side,) * 3 for side in (1024, 2048, 4096, 8192)]
TARGETS += [(8192, 1024, 8192), (4096, 4096, 64), (128, 128, 65536)]
TARGETS += [(m, 4096, 4096) for m in (1, 16, 64)]
TARGETS += [(6232, 5856, 3368), (2912, 4936, 15160), (11344, 5424, 6872), (8168, 2448, 4248), (3000,) * 3]
# The parameters of the fit, and where it starts: constants of plan/hopper.rs, where a number is the
# index into an array.
START = dict(
    launch_start=1.3, tile_start=0.2, tma_row_0=1.2, tma_row_1=1.8, tma_row_2=2.6, tma_row_3=5, tma_zero_fill=4,
    l2_contention=2.2e5, prologue=2.5, multicast_start=0.5, store=1.1, element_store_0=2.5, element_store_1=2.8,
    dsmem_reduction=0.3, dsmem_reduction_area=1.8, dsmem_reduction_doubling=0.4, unhidden_memory=9e6,
    pack_0=4.2e6, pack_1=3.4e6, pack_launch=1.4, reduction_launch=2.3, partial_sums=6e6, fix_up=2, fix_up_area=2,
    fix_up_contributor=1, memory=4.2e6, power_limited_flops=7.2e8, store_subtile=0.05, k_contiguous_b=1,
    multicast_tile=0.1, multicast_both=0.1, shared_read=0.3, stream_k_step=1.03, tma_unshared=0.5,
)
# The products whose times the test of plan/hopper.rs has.
TESTED = [
    ((1024, 1024, 1024), "hopper_bf16_64x128x64_consumers1_stages8"),
    ((4096, 4096, 4096), "hopper_bf16_128x256x64_consumers2_stages4_cluster1x2_ccc_swapped"),
    ((1, 4096, 4096), "hopper_bf16_64x16x64_consumers1_stages12_clusterk2_ccc_swapped"),
    ((88, 592, 10800), "hopper_bf16_64x88x64_consumers1_stages8_ccr_e_splitk_13_swapped"),
    ((352, 5400, 1032), "hopper_bf16_192x96x64_consumers3_stages5_cluster1x4_ccc_swapped"),
    ((3520, 184, 3672), "hopper_bf16_64x128x64_consumers1_stages8_cluster2x2"),
    ((2264, 7040, 592), "hopper_bf16_128x128x64_consumers2_stages6_cluster1x2_ccc_streamk_w132_swapped"),
    ((146, 271, 1113), "hopper_bf16_64x64x64_consumers1_stages8_clusterk8_rrc_e_swapped_packab"),
    ((5529, 8598, 883), "hopper_bf16_128x128x64_consumers2_stages6_cluster1x2_e_packab"),
    ((1319, 4412, 72), "hopper_bf16_128x176x64_consumers2_stages5_rcc_e_swapped_packa"),
    ((214, 2427, 2037), "hopper_bf16_128x64x64_consumers2_stages8_clusterk4_e_packab"),
    ((72, 504, 696), "hopper_bf16_128x64x64_consumers2_stages8_clusterk4"),
]


def alignment(row):
    """The index of a row's length into the constant TMA_ROW."""
    return 0 if row % 64 == 0 else 1 if row % 32 == 0 else 2 if row % 16 == 0 else 3


def subtile_cols(accumulators, cols):
    """Columns of an epilogue subtile, of which a thread stores a part of its accumulators."""
    return next(of for of in range(64, 0, -8) if cols % of == 0 and accumulators % (of // 2) == 0)


def measurement(line):
    """The terms of the cost model for one line."""
    m, n, k, us, name = line.split()
    m, n, k, us = int(m), int(n), int(k), float(us)
    found = KERNEL.match(name)
    assert found, f"{name}: not a kernel name"
    rows, cols, consumers, _, cluster_m, cluster_n, cluster_k, orders = found.groups()[:8]
    rows, cols, consumers, cluster_k = int(rows), int(cols), int(consumers), int(cluster_k or 1)
    cluster_m, cluster_n, orders = int(cluster_m or 1), int(cluster_n or 1), orders or "rrr"
    element_store, stream_k, swapped = (bool(found[flag]) for flag in ("element_store", "stream_k", "swapped"))
    group, splits = cluster_m * cluster_n, int(found["splits"] or 1)
    packed = [operand in (found["packed"] or "") for operand in "ab"]
    along_k = [orders[0] == "r", orders[1] == "c"]
    extents, tile, lengths = ((n, m), (rows, cols), (n, k)) if swapped else ((m, n), (rows, cols), (k, n))
    tiles_m = math.ceil(extents[0] / (rows * cluster_m)) * cluster_m
    tiles_n = math.ceil(extents[1] / (cols * cluster_n)) * cluster_n
    in_bounds = [extent / count for extent, count in zip(extents, (tiles_m, tiles_n))]
    # An operand contiguous along m or n is copied in whole rows of 128 bytes.
    line_of = [1 if along else 64 for along in along_k]
    tile = [math.ceil(extent / unit) * unit for extent, unit in zip(tile, line_of)]
    requested = [
        inside if along else min(math.ceil(extent / 64) * 64 / count, rows_of_tile)
        for inside, along, extent, count, rows_of_tile in zip(in_bounds, along_k, extents, (tiles_m, tiles_n), tile)
    ]
    share = [1 / cluster_n, 1 / cluster_m]
    per_thread = rows * cols // (128 * consumers)
    one_store = element_store or splits > 1
    return dict(
        shape=(m, n, k), us=us, name=name, tile=(rows, cols, group),
        area=rows * cols / 32768, accumulators=rows * cols / (128 * consumers) / 128, cluster_k=cluster_k,
        is_multicast=float(group > 1), multicast_both=float(cluster_m > 1 and cluster_n > 1),
        work_tiles=tiles_m * tiles_n * splits, concurrent_tiles=CLUSTERS[group * cluster_k] * group,
        k_steps=max(1, math.ceil(math.ceil(k / 64) / (splits * cluster_k))), stream_k=float(stream_k),
        bytes_copied=128 * np.dot(in_bounds, share), requested=np.multiply(requested, share),
        zero_fill=np.dot(np.subtract(tile, requested), share),
        alignment=[0 if is_packed else alignment(row) for is_packed, row in zip(packed, lengths)],
        element_store=float(element_store and splits == 1), swapped=float(swapped), k_contiguous_b=float(along_k[1]),
        subtiles=0 if one_store else 64 / subtile_cols(per_thread // cluster_k, cols) - 1,
        flops=2 * m * n * k, shared_read=(1 / 64 + 1 / cols) / (1 / 64 + 1 / 256) - 1,
        splits=splits, bytes=2 * (m * k + k * n + m * n), padded_c=tiles_m * rows * tiles_n * cols,
        packs=float(any(packed)), packed_bytes=4 * k * (extents[0] * packed[0] + extents[1] * packed[1]),
    )


def knots_of(tile):
    """The indexes of the fitted tiles beside a tile, and its position between them."""
    rows, cols, group = tile
    knots = KNOTS[rows, group]
    wide = max(1, next(i for i, knot in enumerate(knots) if knot >= cols))
    indexes = [TILES.index((rows, knots[i], group)) for i in (wide - 1, wide)]
    return *indexes, (cols - knots[wide - 1]) / (knots[wide] - knots[wide - 1])


rows = [measurement(line) for line in gzip.open(HERE / FILE, "rt")]
data = {key: np.array([row[key] for row in rows], float) for key in rows[0] if key not in ("shape", "name", "tile")}
narrow, wide, between = zip(*(knots_of(row["tile"]) for row in rows))
data |= dict(narrow=np.array(narrow), wide=np.array(wide), between=np.array(between))
shapes = list(dict.fromkeys(row["shape"] for row in rows))
data["shape"] = np.array([shapes.index(row["shape"]) for row in rows])
best = np.minimum.reduceat(data["us"], np.unique(data["shape"], return_index=True)[1])[data["shape"]]
data["loss"] = data["us"] / best - 1
data["weight"] = np.exp(-8 * data["loss"]) + 0.1
data["shape_weight"] = np.array([5.0 if shapes[shape] in TARGETS else 1.0 for shape in data["shape"]])


def predicted(x, d):
    """Microseconds by the formula of plan/hopper.rs."""
    p, step_times = dict(zip(START, np.exp(x))), np.exp(x[len(START):])
    wgmma_time = step_times[d["narrow"]] * (1 - d["between"]) + step_times[d["wide"]] * d["between"]
    wgmma_time = wgmma_time * np.where(d["k_contiguous_b"] > 0, p["k_contiguous_b"], 1)
    tma_row = np.array([p[f"tma_row_{i}"] for i in range(4)])[d["alignment"].astype(int)] / CLOCK
    tma_time, zero_fill = (d["requested"] * tma_row).sum(1), d["zero_fill"] * p["tma_zero_fill"] / CLOCK
    is_element, is_swapped, cluster_k = d["element_store"] > 0, d["swapped"] > 0, d["cluster_k"]
    element_store = np.where(is_element, np.where(is_swapped, p["element_store_1"], p["element_store_0"]), 1)
    doublings = np.log2(np.maximum(cluster_k, 2)) - 1
    dsmem_reduction = p["dsmem_reduction"] + p["dsmem_reduction_area"] * d["area"]
    dsmem_reduction = (cluster_k > 1) * (dsmem_reduction + doublings * p["dsmem_reduction_doubling"])
    store = p["store"] * element_store + p["store_subtile"] * d["subtiles"]
    tile_time = p["tile_start"] + p["multicast_tile"] * d["is_multicast"]
    tile_time = tile_time + d["accumulators"] / cluster_k * store + dsmem_reduction

    def wave(tiles):
        busy = tiles * cluster_k / SMS
        wgmma = wgmma_time + d["bytes_copied"] / p["l2_contention"] * busy**2 + zero_fill * busy
        tma = tma_time * np.where(busy <= 0.5, p["tma_unshared"], 1)
        step_time = (wgmma**STEP_NORM + tma**STEP_NORM) ** (1 / STEP_NORM)
        return d["k_steps"] * step_time + tile_time, p["prologue"] * np.minimum(wgmma_time, tma)

    waves, rest = d["work_tiles"] // d["concurrent_tiles"], d["work_tiles"] % d["concurrent_tiles"]
    (full, full_prologue), (last, last_prologue) = wave(d["concurrent_tiles"]), wave(rest)
    contributors = np.maximum(0, d["concurrent_tiles"] / d["work_tiles"] - 1)
    stream_k = p["stream_k_step"] * d["work_tiles"] / d["concurrent_tiles"] * (full - tile_time)
    stream_k = stream_k + (waves + 1) * tile_time
    stream_k = stream_k + p["fix_up"] + d["area"] * (p["fix_up_area"] + p["fix_up_contributor"] * contributors)
    compute = np.where(d["stream_k"] > 0, stream_k, waves * full + np.where(rest > 0, last, 0))
    power = d["flops"] * (1 + p["shared_read"] * d["shared_read"]) / p["power_limited_flops"]
    bounds = compute**BOUND_NORM + (d["bytes"] / p["memory"]) ** BOUND_NORM + power**BOUND_NORM
    time = bounds ** (1 / BOUND_NORM) + np.where(waves > 0, full_prologue, last_prologue)
    partial_sums = 8 * d["padded_c"] * d["splits"] / p["partial_sums"]
    reduction = (d["splits"] > 1) * (p["reduction_launch"] + partial_sums)
    packing = p["pack_launch"] * d["packs"] + d["packed_bytes"] / np.where(is_swapped, p["pack_1"], p["pack_0"])
    start = p["launch_start"] + p["multicast_start"] * d["is_multicast"] + p["multicast_both"] * d["multicast_both"]
    return start + time + d["bytes"] / p["unhidden_memory"] + reduction + packing


def fitted(d):
    """The logarithms of the parameters that fit best."""
    first, shape = np.unique(d["shape"], return_index=True, return_inverse=True)[1:]
    total = np.add.reduceat(d["weight"], first)[shape]

    def residuals(x):
        error = np.log(predicted(x, d) / d["us"])
        error -= FORGIVEN * np.add.reduceat(error * d["weight"], first)[shape] / total
        # A slow candidate may be predicted even slower.
        error *= np.where((d["loss"] > 0.05) & (error > 0), SLOW, 1)
        return error * np.sqrt(d["weight"] / total * 20 * d["shape_weight"])

    start = np.log(np.concatenate([list(START.values()), [0.06 + 0.5 * r * c / 32768 for r, c, _ in TILES]]))
    return least_squares(residuals, start, loss="soft_l1", f_scale=0.05, max_nfev=100).x


def ratios(times, which):
    """The measured time of the choice divided by that of the best, for each shape."""
    own = [np.flatnonzero(data["shape"] == shape) for shape in which]
    return np.array([data["us"][shape[np.argmin(times[shape])]] / best[shape[0]] for shape in own])


def summary(name, ratio):
    within = ", ".join(f"{round(100 * limit - 100)} %: {(ratio < limit).mean():.3f}" for limit in (1.03, 1.05, 1.1))
    print(f"{name}: choice within {within}; mean loss {100 * ratio.mean() - 100:.2f} %")


def number(value):
    """A number as plan/hopper.rs has it."""
    text = f"{value:.3g}".replace("e+0", "e").replace("e-0", "e-")
    # Clippy takes these for 1/π and π.
    text = {"0.318": "0.3181", "3.14": "3.139"}.get(text, text)
    return text if "." in text or "e" in text else text + ".0"


def write(found, tested):
    """Replaces the constants and the tested times of plan/hopper.rs."""
    path = HERE.parent.parent / "crates/tegula-kernels/src/plan/hopper.rs"
    text = path.read_text()

    def put(pattern, value):
        nonlocal text
        text, count = re.subn(pattern, lambda old: old[1] + value + old[2], text, flags=re.DOTALL)
        assert count == 1, f"{pattern}: {count} matches in {path}; 1 expected"

    constants = {}
    for name, value in zip(START, np.exp(found)):
        constants.setdefault(re.sub(r"_\d$", "", name).upper(), []).append(number(value))
    for name, values in constants.items():
        put(rf"(const {name}: [^=]+= )[^;]+(;)", values[0] if len(values) == 1 else f"[{', '.join(values)}]")
    table = {}
    for (r, c, group), step_time in zip(TILES, np.exp(found[len(START):])):
        table.setdefault((r, group), []).append(f"({c}, {number(step_time)})")
    lines = [f"    ({r}, {group}, &[{', '.join(pairs)}]),\n" for (r, group), pairs in table.items()]
    put(r"(const STEP_TIMES: [^=]+= \[\n).*?(\];)", "".join(lines))
    test = r"(fn hopper_cost_matches_the_fit\(\) \{\n        for \(sizes, name, time\) in \[\n).*?(        \] \{)"
    put(test, "".join(f"            {line}\n" for line in tested))
    path.write_text(text)


index = {(row["shape"], row["name"]): i for i, row in enumerate(rows)}
tests = [(sizes, name, index[sizes, name]) for sizes, name in TESTED]
# As many digits as the plan has.
found = np.log([float(number(value)) for value in np.exp(fitted(data))])
for name, value in zip(START, np.exp(found)):
    print(f"{name} {number(value)}")
for (r, c, group), value in zip(TILES, np.exp(found[len(START):])):
    print(f"step time of {r}x{c}, multicast group of {group}: {number(value)}")
times = predicted(found, data)
tested = [f'({list(sizes)}, "{name}", {times[i]:.2f}),' for sizes, name, i in tests]
if "--write" in sys.argv:
    write(found, tested)
summary("fitted", ratios(times, range(len(shapes))))
held_out = []
for order in range(ORDERS):
    folds = np.random.default_rng(order).permutation(len(shapes)) % FOLDS
    for fold in range(FOLDS):
        known = folds[data["shape"]] != fold
        x = fitted({key: value[known] for key, value in data.items()})
        held_out.append(ratios(predicted(x, data), np.flatnonzero(folds == fold)))
summary("held out", np.concatenate(held_out))
