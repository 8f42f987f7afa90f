#!/usr/bin/env python3
"""Fits the constants of plan/cost.rs and plan/candidates.rs: python3 benchmarks/cost/fit.py.

Needs numpy, scipy, and jax. Prints the constants, and how good the choices are.

A line of measurements is m,n,k[,batches], a kernel, and microseconds. h200-random-*.txt.gz are the
first samples (`glances`) of all candidates in

    tegula tune --random 220 --seed 11 --dtype f32,f64 --all --dry-run --json FILE

Lines with both split-K and packing are older than faster reduction kernels; the gain without
packing is subtracted from them. h200-shapes-*.txt are those of `tegula tune --shapes
benchmarks/shapes.txt`. h200-unseen-*.txt.gz, of seed 1, are held out of the fit. h200-f32.txt and
h200-f64.txt are kernels by name, KERNEL:SPLITS; those without a split are used.

The formula is that of plan/cost.rs, in the same order. The ratios between the recipes of a shape
count, most of all near the best; their mean counts a tenth. A second search starts at the best fit
and stays near it. It also minimizes the loss of the choices, above all for benchmarks/shapes.txt.
All products are nn, so layouts are not fitted. The stream-K fix-up was slower when it was timed.
"""
import gzip
import os
import re
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

jax.config.update("jax_enable_x64", True)
HERE = Path(__file__).parent
MULTIPROCESSORS, RATE, MEMORY, L2_BYTES = 132.0, 64.5e6 / 132, 4.0e6, 40e6
POWER_LIMITED_AFTER, PACK_PENALTY = 200.0, 0.01
# Where the search starts: constants of plan/cost.rs. COPY is here `copy` and `copy_vector` for 4-byte
# types, `copy_f64` and `copy_vector_f64`; STORE is `store` and `store_vector`; STREAM_K_STEP is one
# more than here.
START = dict(
    first_launch=1.5, pack=4.0e6, pack_launch=1.5, partial_sums=4e6, reduction_launch=1.0, unhidden=0.5,
    max_unhidden=8.0, stream_k_step=0.05, latency=0.6, last_wave=0.95, reduction_round=0.3, contributor=0.8,
    store_vector=0.1, store=0.2, copy=1.14, transposed_copy=1.14, copy_vector=1.42, copy_f64=0.57,
    copy_vector_f64=0.14,
)
# Logits of `full` and of `alone / full`, logarithms of `fixed` and of `copies`.
TILE = [1.5, 2.0, -0.5, 0.0]
KERNEL = re.compile(
    r"(register|dmma16x\d+)(?:_f32|_f64)?_(\d+)x(\d+)x(\d+)_warp(\d+)x(\d+)_thread(\d+x\d+)_stages(\d+)"
    r"(?:_slices(\d+))?(?:_blocks(\d+))?(?:_([rcs]{3}))?(?:_v(\d)(\d)(\d))?"
    r"(?:_streamk_w(\d+))?(?:_splitk_(\d+))?(?:_pack([ab]+))?$"
)


class Row:
    """One measurement. `used`: of a kernel that is fitted."""

    def __init__(self, line, size, kind):
        shape, kernel, microseconds = line.split()
        extents = [int(extent) for extent in shape.split(",")]
        self.m, self.n, self.k, self.batches = self.shape = tuple((extents + [1])[:4])
        self.kernel, self.time, self.size, self.kind = kernel, float(microseconds), size, kind
        by_name = ":" in kernel
        found = KERNEL.match(kernel.removesuffix(":1"))
        self.used = found is not None
        if not self.used:
            return
        core, bm, bn, bk, wm, wn, thread, stages, slices, blocks, orders, *vectors = found.groups()
        *vectors, workers, splits, packed = vectors
        self.register, self.block = core == "register", (int(bm), int(bn), int(bk))
        self.stages, slices, blocks = int(stages), int(slices or 1), int(blocks or 1)
        self.workers, self.splits, packed, orders = int(workers or 0), int(splits or 0), packed or "", orders or "rrr"
        # The order that an operand has in shared memory.
        self.is_column_major = [orders[0] == "c", orders[1] == "c"]
        self.packed = ["a" in packed, "b" in packed]
        aligned = lambda extent: extent % (16 // size) == 0
        by_shape = (aligned(self.k), aligned(self.n), aligned(self.n))
        self.vectors = by_shape if by_name else tuple(flag == "1" for flag in vectors)
        # Measured while out-of-bounds copies were issued differently.
        self.used = not (by_name and self.register and not aligned(self.n))
        # The occupancy, also where a name asks for less.
        self.blocks, has_element_copies = blocks, not (self.vectors[0] and self.vectors[1])
        if self.register and thread == "8x8" and blocks in (2, 3):
            is_large = self.block in [(64, 128, 16), (32, 128, 16)] and has_element_copies
            is_split = self.block == (128, 64, 16) and not any(self.vectors[:2]) and self.splits
            self.blocks = 2 if is_large or is_split else 3
        elif core == "dmma16x8" and self.block == (64, 64, 16):
            self.blocks = 3
        # A tile for operands contiguous along m is the transposed one.
        if not self.register and any(self.is_column_major):
            bm, bn, wm, wn = bn, bm, wn, wm
        self.tile = f"{core}_{bm}x{bn}x{bk}_warp{wm}x{wn}_thread{thread}_stages{stages}_slices{slices}"


class Table:
    """Rows of one type as columns."""

    def __init__(self, rows, tiles):
        column = lambda get: np.array([float(get(row)) for row in rows])
        self.rows, self.time, self.size = rows, column(lambda row: row.time), column(lambda row: row.size)
        self.m, self.n, self.k, self.batches = (column(lambda row, i=i: row.shape[i]) for i in range(4))
        self.bm, self.bn, self.bk = (column(lambda row, i=i: row.block[i]) for i in range(3))
        self.blocks, self.steps_ahead = column(lambda row: row.blocks), column(lambda row: row.stages - 1)
        self.workers, self.splits = column(lambda row: row.workers), column(lambda row: row.splits)
        self.packed = [column(lambda row, i=i: row.packed[i]) for i in range(2)]
        self.packs = self.packed[0] + self.packed[1]
        self.tile = np.array([tiles.index(row.tile) for row in rows])
        self.work_tiles = np.ceil(self.m / self.bm) * np.ceil(self.n / self.bn) * self.batches
        self.k_steps, self.register = np.ceil(self.k / self.bk), rows[0].register
        # Copies of a step by each thread of a warp: transposed, of an element, and of 16 bytes.
        transposed = [
            column(lambda row: row.register and not row.is_column_major[0]),
            column(lambda row: row.register and row.is_column_major[1]),
        ]
        vector = [column(lambda row, i=i: row.vectors[i]) * (1 - transposed[i]) for i in range(2)]
        elements = [self.bm * self.bk / 32, self.bn * self.bk / 32]
        both = lambda fractions: sum(count * fraction for count, fraction in zip(elements, fractions))
        self.transposed, self.vector = both(transposed), both(vector) / (16 / self.size)
        self.element = sum(elements) - both(transposed) - both(vector)
        self.has_vector_store = column(lambda row: row.vectors[2] and not row.splits) > 0
        shapes = sorted({row.shape for row in rows})
        self.shape, self.shapes = np.array([shapes.index(row.shape) for row in rows]), shapes
        best = np.full(len(shapes), np.inf)
        np.minimum.at(best, self.shape, self.time)
        self.ratio = self.time / best[self.shape]
        near = 0.05 + 0.95 * np.exp((1 - self.ratio) / 0.2)
        weight = {"name": 0.5, "shapes": 3.0, "random": 1.0, "unseen": 1.0}
        self.weight = near / np.bincount(self.shape, near)[self.shape] * column(lambda row: weight[row.kind])


def predict(x, t):
    """Microseconds by the formula of plan/cost.rs."""
    p, tile = x
    full = jax.nn.sigmoid(tile[:, 0])[t.tile]
    alone = jnp.where(t.blocks > 1, full * jax.nn.sigmoid(tile[:, 1])[t.tile], full)
    fixed, copies = jnp.exp(tile[:, 2])[t.tile], jnp.exp(tile[:, 3])[t.tile]
    math_time = 2 * t.bm * t.bn * t.bk / RATE
    element, vector = ("copy", "copy_vector") if t.register else ("copy_f64", "copy_vector_f64")
    copies = copies * (p[element] * t.element + p["transposed_copy"] * t.transposed + p[vector] * t.vector) / 1e3
    store = t.bm * t.bn * jnp.where(t.has_vector_store, p["store_vector"] / (16 / t.size), p["store"]) / 1e3
    is_uncached = (t.m * t.k + t.k * t.n) * t.batches * t.size > L2_BYTES
    latency = jnp.where(is_uncached, p["latency"] / t.steps_ahead, 0)

    def step_time(blocks):
        one, every = (math_time / alone) ** 2, (t.blocks * math_time / full) ** 2
        more = (blocks**2 - 1) / jnp.maximum(t.blocks**2 - 1, 1)
        multiplying = one + jnp.maximum(every - one, 0) * more
        return jnp.maximum(jnp.sqrt(multiplying) + blocks * copies, latency)

    splits, workers = np.maximum(t.splits, 1), np.maximum(t.workers, 1)
    wave = lambda blocks: step_time(blocks) * np.ceil(t.k_steps / splits) + fixed + blocks * store
    waves, rest = np.divmod(t.work_tiles * splits, t.blocks * MULTIPROCESSORS)
    last = wave(np.maximum(np.ceil(rest / MULTIPROCESSORS), 1)) * jnp.where(waves > 0, p["last_wave"], 1)
    gemm = waves * wave(t.blocks) + jnp.where(rest > 0, last, 0)
    whole, split_tiles = np.divmod(t.work_tiles, workers)
    blocks, shared_steps = np.maximum(workers / MULTIPROCESSORS, 1), np.ceil(split_tiles * t.k_steps / workers)
    steps = (whole * t.k_steps + shared_steps) * step_time(blocks)
    stream_k = steps * (1 + p["stream_k_step"]) + (whole + 2) * (fixed + blocks * store)
    gemm = jnp.where(t.workers > 0, stream_k, gemm)
    stream_k_sums, split_k_sums = (workers + split_tiles) * t.bm * t.bn, t.splits * t.m * t.n * t.batches
    partial_sums = np.where(t.workers > 0, stream_k_sums, split_k_sums)
    memory = ((t.m * t.k + t.k * t.n + t.m * t.n) * t.batches + partial_sums) * t.size / MEMORY
    # As `ReductionSchedule` of split_k_reduction.rs.
    is_small = t.m * t.n * t.batches <= 65536
    rounds = np.where(is_small, np.ceil(t.splits / 32) + 1, np.ceil(t.splits / 8))
    rounds = np.where(t.splits <= 8, 1, rounds)
    contributors = workers / np.maximum(split_tiles, 1) + 1
    waits = jnp.where(t.workers > 0, p["contributor"] * contributors, p["reduction_round"] * (rounds - 1))
    reduction = p["reduction_launch"] + waits + 2 * partial_sums * t.size / p["partial_sums"]
    reduction = jnp.where(partial_sums > 0, reduction, 0)
    pack = lambda i, extent: t.packed[i] * (p["pack_launch"] + 2 * t.size * t.batches * t.k * extent / p["pack"])
    packing = pack(0, t.m) + pack(1, t.n)
    if not t.register:
        power_slowdown = 7.7 * (1 / t.bm + 1 / t.bn) - 0.02
        gemm = gemm + jnp.maximum(gemm - POWER_LIMITED_AFTER, 0) * power_slowdown
    gemm = gemm + p["unhidden"] * jnp.minimum(memory, p["max_unhidden"])
    return (jnp.maximum(gemm, memory) + p["first_launch"] + reduction + packing) * (1 + PACK_PENALTY * t.packs)


def parameters(z, tiles):
    """The constants and the numbers of each tile, by type."""
    constants = {name: first * jnp.exp(z[i]) for i, (name, first) in enumerate(START.items())}
    start, per_tile = len(START), {}
    for ty, names in tiles.items():
        per_tile[ty] = z[start : start + 4 * len(names)].reshape(-1, 4)
        start += 4 * len(names)
    return {ty: (constants, per_tile[ty]) for ty in tiles}


def distance(x, t):
    """The error of the predicted times."""
    error = jnp.log(predict(x, t) / t.time)
    huber = lambda e, d=0.05: jnp.where(jnp.abs(e) < d, e * e / 2, d * (jnp.abs(e) - d / 2))
    by_shape = lambda values: jax.ops.segment_sum(values, t.shape, len(t.shapes))
    mean = by_shape(t.weight * error) / by_shape(t.weight)
    return (jnp.sum(t.weight * huber(error - mean[t.shape])) + 0.1 * jnp.sum(huber(mean))) / len(t.shapes) * 200


def choice_loss(x, t):
    """How much slower than the best the choices are. Near choices count in part."""
    time = jnp.log(predict(x, t))
    chosen = jnp.exp((jax.ops.segment_min(time, t.shape, len(t.shapes))[t.shape] - time) / 0.008)
    chosen = chosen / jax.ops.segment_sum(chosen, t.shape, len(t.shapes))[t.shape]
    weight = np.array([1.0 if row.kind == "shapes" else 0.04 for row in t.rows])
    return jnp.sum(chosen * jnp.minimum(t.ratio - 1, 0.2) * weight)


def search(loss, z, iterations):
    both = jax.jit(jax.value_and_grad(loss))
    options = dict(maxiter=iterations, maxfun=3000)
    return minimize(lambda z: tuple(map(np.asarray, both(z))), z, jac=True, method="L-BFGS-B", options=options).x


def fit(tables, tiles):
    usual = np.concatenate([np.zeros(len(START)), *(TILE * len(names) for names in tiles.values())])
    total = lambda of, z: sum(of(x, tables[ty]) for ty, x in parameters(z, tiles).items())
    error = lambda z: total(distance, z) + 1e-4 * jnp.sum((z - usual) ** 2)
    first = search(error, usual, 1500)
    with_choices = lambda z: error(z) + 30 * total(choice_loss, z) + 10 * jnp.sum((z - first) ** 2)
    return parameters(search(with_choices, first, 400), tiles)


def ratios(x, t, kind):
    """The measured time of the choice divided by that of the best, for each shape."""
    predicted = np.array(predict(x, t))
    for shape in sorted({row.shape for row in t.rows if row.kind == kind}):
        candidates = [i for i, row in enumerate(t.rows) if row.shape == shape]
        yield t.ratio[min(candidates, key=lambda i: predicted[i])], shape


def read():
    for ty, size in (("f32", 4), ("f64", 8)):
        named = [Row(line, size, "name") for line in open(HERE / f"h200-{ty}.txt") if line.split()[1].endswith(":1")]
        random = [Row(line, size, "random") for line in gzip.open(HERE / f"h200-random-{ty}.txt.gz", "rt")]
        shapes = [Row(line, size, "shapes") for line in open(HERE / f"h200-shapes-{ty}.txt")]
        random, shapes = ([row for row in rows if row.used] for rows in (random, shapes))
        tiles, measured = {row.tile for row in random}, {row.shape for row in shapes}
        named = [row for row in named if row.used and row.tile in tiles and row.shape not in measured]
        yield ty, random + named + shapes


def fitted():
    rows = dict(read())
    tiles = {ty: sorted({row.tile for row in rows[ty]}) for ty in rows}
    tables = {ty: Table(rows[ty], tiles[ty]) for ty in rows}
    return tables, tiles, fit(tables, tiles)


def unseen(ty, tiles, file="unseen"):
    size, lines = {"f32": 4, "f64": 8}[ty], gzip.open(HERE / f"h200-{file}-{ty}.txt.gz", "rt")
    rows = (Row(line, size, "unseen") for line in lines)
    return [row for row in rows if row.used and row.tile in tiles[ty]]


def show(tiles, numbers):
    for name, (full, alone, fixed, copies) in zip(tiles, np.array(numbers)):
        full = 1 / (1 + np.exp(-full))
        alone = full / (1 + np.exp(-alone))
        print(f"{name}: full {full:.3f}, alone {alone:.3f}, copies {np.exp(copies):.2f}, fixed {np.exp(fixed):.2f}")


def main():
    tables, tiles, found = fitted()
    print(*(f"{name} {float(value):.4g}" for name, value in found["f32"][0].items()), sep="\n")
    for ty, (_, numbers) in found.items():
        show(tiles[ty], numbers)
    for ty, x in found.items():
        for kind in ("random", "shapes", "unseen"):
            table = Table(unseen(ty, tiles), tiles[ty]) if kind == "unseen" else tables[ty]
            chosen = list(ratios(x, table, kind))
            ratio = np.array([ratio for ratio, _ in chosen])
            near, mean = np.sum(ratio <= 1 / 0.95), ratio.mean()
            print(f"{ty} {kind}: {near} of {len(ratio)} choices within 5 % of the best, {mean:.3f} on average")
            worst = sorted(chosen, reverse=True)[:5]
            print("  the worst:", *(f"{','.join(map(str, shape))} {ratio:.2f}" for ratio, shape in worst))


if __name__ == "__main__":
    main()
