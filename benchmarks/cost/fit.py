#!/usr/bin/env python3
"""Fits the numbers of plan/cost.rs and plan/candidates.rs to measurements: python3 benchmarks/cost/fit.py; needs numpy, scipy and jax.

A line of measurements is m,n,k[,batch], a kernel and microseconds. h200-random-*.txt.gz are the first looks (`glances`) of

    tegula tune --random 220 --seed 11 --dtype f32,f64 --dry-run --json FILE

at all candidates; where sums are split and a factor is packed, they were taken before the kernels that add parts were as fast, less what those gained
without packing. h200-shapes-*.txt are those of `tegula tune --shapes benchmarks/shapes.txt`, and h200-unseen-*.txt.gz, of seed 1, are kept from the
search, to judge it. h200-f32.txt and h200-f64.txt are kernels by name, KERNEL:PARTS, of which
those that split nothing are used.

The formula is that of plan/cost.rs, in the same order. What counts of a shape is how its recipes compare, those near the best most; how long they take
counts a tenth. From the numbers that fit best, a second search walks a little way to where also what is chosen is near the best, above all for
benchmarks/shapes.txt. All products are nn, so layouts have no part in it; mending shared tiles took longer when it was timed.
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
MULTIPROCESSORS, RATE, MEMORY, CACHED, COOL, BETTER = 132.0, 64.5e6 / 132, 4.0e6, 40e6, 200.0, 0.01
# Where the search begins: microseconds, bytes a microsecond, and nanoseconds a piece.
COMMON = dict(
    launch=1.5, packing=4.0e6, packed=1.5, parts=4e6, second=1.0, beside=0.5, overlapped=8.0, sharing=0.05, latency=0.6, last_wave=0.95,
    round=0.3, share=0.8, store_wide=0.1, store=0.2, copy_word=1.14, turn_word=1.14, copy_wide=1.42, copy_double=0.57, copy_pair=0.14,
)
# Logits of full and of alone by full, logarithms of fixed and of copies.
TILE = [1.5, 2.0, -0.5, 0.0]
KERNEL = re.compile(
    r"(register|dmma16x\d+)(?:_f32|_f64)?_(\d+)x(\d+)x(\d+)_(\d+)x(\d+)_(\d+x\d+)_(\d)_(\d)_(\d)"
    r"(?:_([rcs]{3}))?(?:_v(\d)(\d)(\d))?(?:_balanced_w(\d+))?(?:_parts_(\d+))?(?:_(p[ab]+))?$"
)


class Row:
    def __init__(self, line, size, kind):
        shape, kernel, microseconds = line.split()
        self.m, self.n, self.k, self.batch = self.shape = tuple(([int(extent) for extent in shape.split(",")] + [1])[:4])
        self.kernel, self.time, self.size, self.kind = kernel, float(microseconds), size, kind
        by_name = ":" in kernel
        found = KERNEL.match(kernel.removesuffix(":1"))
        self.used = found is not None
        if not self.used:
            return
        core, bm, bn, bk, wm, wn, thread, stages, slices, blocks, orders, *vectors, workers, parts, packed = found.groups()
        self.register, self.block, self.stages = core == "register", (int(bm), int(bn), int(bk)), int(stages)
        self.workers, self.parts, packed = int(workers or 0), int(parts or 0), packed or ""
        self.packs, self.a_turned, self.b_turned = len(packed[1:]), (orders or "r")[0] == "c", (orders or "rr")[1] == "c"
        self.packed_a, self.packed_b = "a" in packed, "b" in packed
        aligned = lambda extent: extent % (16 // size) == 0
        self.vectors = (aligned(self.k), aligned(self.n), aligned(self.n)) if by_name else tuple(flag == "1" for flag in vectors)
        # Measured when copies beyond the edge went elsewhere.
        self.used = not (by_name and self.register and not aligned(self.n))
        # As many as fit, also where the name asks for two.
        self.blocks, single = int(blocks), not (self.vectors[0] and self.vectors[1])
        if self.register and thread == "8x8" and blocks in "23":
            more_registers = (self.block in [(64, 128, 16), (32, 128, 16)] and single) or (
                self.block == (128, 64, 16) and not any(self.vectors[:2]) and self.parts
            )
            self.blocks = 2 if more_registers else 3
        elif core == "dmma16x8" and self.block == (64, 64, 16):
            self.blocks = 3
        # A tile for factors that lie along m is the mirrored one.
        if not self.register and (self.a_turned or self.b_turned):
            bm, bn, wm, wn = bn, bm, wn, wm
        self.tile = f"{core}_{bm}x{bn}x{bk}_{wm}x{wn}_{thread}_{stages}_{slices}"


class Table:
    """Rows of one type as columns."""

    def __init__(self, rows, tiles):
        of = lambda get: np.array([float(get(row)) for row in rows])
        self.rows, self.time, self.size = rows, of(lambda row: row.time), of(lambda row: row.size)
        self.m, self.n, self.k, self.batch = (of(lambda row, i=i: row.shape[i]) for i in range(4))
        self.bm, self.bn, self.bk = (of(lambda row, i=i: row.block[i]) for i in range(3))
        self.blocks, self.ahead = of(lambda row: row.blocks), of(lambda row: row.stages - 1)
        self.workers, self.parts, self.packs = of(lambda row: row.workers), of(lambda row: row.parts), of(lambda row: row.packs)
        self.packed_a, self.packed_b = of(lambda row: row.packed_a), of(lambda row: row.packed_b)
        self.tile = np.array([tiles.index(row.tile) for row in rows])
        self.tiles = np.ceil(self.m / self.bm) * np.ceil(self.n / self.bn) * self.batch
        self.steps, self.register = np.ceil(self.k / self.bk), rows[0].register
        # Pieces of a step for each thread of a warp: turned, alone, and 16 bytes.
        turned = [of(lambda row: row.register and not row.a_turned), of(lambda row: row.register and row.b_turned)]
        wide = [of(lambda row: row.vectors[0]) * (1 - turned[0]), of(lambda row: row.vectors[1]) * (1 - turned[1])]
        elements = [self.bm * self.bk / 32, self.bn * self.bk / 32]
        both = lambda share: sum(count * part for count, part in zip(elements, share))
        self.turned, self.wide = both(turned), both(wide) / (16 / self.size)
        self.single = sum(elements) - both(turned) - both(wide)
        self.wide_store = of(lambda row: row.vectors[2] and not row.parts) > 0
        shapes = sorted({row.shape for row in rows})
        self.shape, self.shapes = np.array([shapes.index(row.shape) for row in rows]), shapes
        best = np.full(len(shapes), np.inf)
        np.minimum.at(best, self.shape, self.time)
        self.slower = self.time / best[self.shape]
        near = 0.05 + 0.95 * np.exp((1 - self.slower) / 0.2)
        weight = {"name": 0.5, "shapes": 3.0, "random": 1.0, "unseen": 1.0}
        self.weight = near / np.bincount(self.shape, near)[self.shape] * of(lambda row: weight[row.kind])


def predict(x, t):
    g, tile = x
    full = jax.nn.sigmoid(tile[:, 0])[t.tile]
    alone = jnp.where(t.blocks > 1, full * jax.nn.sigmoid(tile[:, 1])[t.tile], full)
    fixed, copies = jnp.exp(tile[:, 2])[t.tile], jnp.exp(tile[:, 3])[t.tile]
    step = 2 * t.bm * t.bn * t.bk / RATE
    one, wide = ("copy_word", "copy_wide") if t.register else ("copy_double", "copy_pair")
    copy = copies * (g[one] * t.single + g["turn_word"] * t.turned + g[wide] * t.wide) / 1e3
    store = t.bm * t.bn * jnp.where(t.wide_store, g["store_wide"] / (16 / t.size), g["store"]) / 1e3
    waiting = jnp.where((t.m * t.k + t.k * t.n) * t.batch * t.size > CACHED, g["latency"] / t.ahead, 0)

    def together(blocks):
        one, every = (step / alone) ** 2, (t.blocks * step / full) ** 2
        multiplying = one + jnp.maximum(every - one, 0) * (blocks**2 - 1) / jnp.maximum(t.blocks**2 - 1, 1)
        return jnp.maximum(jnp.sqrt(multiplying) + blocks * copy, waiting)

    parts, workers = np.maximum(t.parts, 1), np.maximum(t.workers, 1)
    wave = lambda each: together(each) * np.ceil(t.steps / parts) + fixed + each * store
    waves, rest = np.divmod(t.tiles * parts, t.blocks * MULTIPROCESSORS)
    last = wave(np.maximum(np.ceil(rest / MULTIPROCESSORS), 1)) * jnp.where(waves > 0, g["last_wave"], 1)
    multiply = waves * wave(t.blocks) + jnp.where(rest > 0, last, 0)
    whole, left = np.divmod(t.tiles, workers)
    each, shared = np.maximum(workers / MULTIPROCESSORS, 1), np.ceil(left * t.steps / workers)
    share = (whole * t.steps + shared) * together(each) * (1 + g["sharing"]) + (whole + 2) * (fixed + each * store)
    multiply = jnp.where(t.workers > 0, share, multiply)
    split = np.where(t.workers > 0, (workers + left) * t.bm * t.bn, t.parts * t.m * t.n * t.batch)
    memory = ((t.m * t.k + t.k * t.n + t.m * t.n) * t.batch + split) * t.size / MEMORY
    # As `ReductionSchedule` of kernels/split_k_reduction.rs.
    rounds = np.where(t.parts <= 8, 1, np.where(t.m * t.n * t.batch <= 65536, np.ceil(t.parts / 32) + 1, np.ceil(t.parts / 8)))
    waits = jnp.where(t.workers > 0, g["share"] * (workers / np.maximum(left, 1) + 1), g["round"] * (rounds - 1))
    second = jnp.where(split > 0, g["second"] + waits + 2 * split * t.size / g["parts"], 0)
    packing = lambda packed, extent: packed * (g["packed"] + 2 * t.size * t.batch * t.k * extent / g["packing"])
    packing = packing(t.packed_a, t.m) + packing(t.packed_b, t.n)
    if not t.register:
        multiply = multiply + jnp.maximum(multiply - COOL, 0) * (7.7 * (1 / t.bm + 1 / t.bn) - 0.02)
    multiply = multiply + g["beside"] * jnp.minimum(memory, g["overlapped"])
    return (jnp.maximum(multiply, memory) + g["launch"] + second + packing) * (1 + BETTER * t.packs)


def numbers(z, tiles):
    common = {name: first * jnp.exp(z[i]) for i, (name, first) in enumerate(COMMON.items())}
    start, of = len(COMMON), {}
    for ty, names in tiles.items():
        of[ty] = z[start : start + 4 * len(names)].reshape(-1, 4)
        start += 4 * len(names)
    return {ty: (common, of[ty]) for ty in tiles}


def distance(x, t):
    error = jnp.log(predict(x, t) / t.time)
    huber = lambda e, d=0.05: jnp.where(jnp.abs(e) < d, e * e / 2, d * (jnp.abs(e) - d / 2))
    by_shape = lambda values: jax.ops.segment_sum(values, t.shape, len(t.shapes))
    mean = by_shape(t.weight * error) / by_shape(t.weight)
    return (jnp.sum(t.weight * huber(error - mean[t.shape])) + 0.1 * jnp.sum(huber(mean))) / len(t.shapes) * 200


def regret(x, t):
    """How much slower the choices are, where what is almost chosen counts as well."""
    time = jnp.log(predict(x, t))
    chosen = jnp.exp((jax.ops.segment_min(time, t.shape, len(t.shapes))[t.shape] - time) / 0.008)
    chosen = chosen / jax.ops.segment_sum(chosen, t.shape, len(t.shapes))[t.shape]
    counts = np.array([1.0 if row.kind == "shapes" else 0.04 for row in t.rows])
    return jnp.sum(chosen * jnp.minimum(t.slower - 1, 0.2) * counts)


def search(loss, z, most):
    both = jax.jit(jax.value_and_grad(loss))
    return minimize(lambda z: tuple(map(np.asarray, both(z))), z, jac=True, method="L-BFGS-B", options=dict(maxiter=most, maxfun=3000)).x


def fit(tables, tiles):
    usual = np.concatenate([np.zeros(len(COMMON)), *(TILE * len(names) for names in tiles.values())])
    far = lambda z: sum(distance(x, tables[ty]) for ty, x in numbers(z, tiles).items()) + 1e-4 * jnp.sum((z - usual) ** 2)
    first = search(far, usual, 1500)
    near = lambda z: far(z) + 30 * sum(regret(x, tables[ty]) for ty, x in numbers(z, tiles).items()) + 10 * jnp.sum((z - first) ** 2)
    return numbers(search(near, first, 400), tiles)


def ratios(x, t, kind):
    """The time of what is chosen by that of the best, for each shape."""
    predicted = np.array(predict(x, t))
    for shape in sorted({row.shape for row in t.rows if row.kind == kind}):
        of = [i for i, row in enumerate(t.rows) if row.shape == shape]
        yield t.slower[min(of, key=lambda i: predicted[i])], shape


def read():
    for ty, size in (("f32", 4), ("f64", 8)):
        named = [Row(line, size, "name") for line in open(HERE / f"h200-{ty}.txt") if line.split()[1].endswith(":1")]
        random = [Row(line, size, "random") for line in gzip.open(HERE / f"h200-random-{ty}.txt.gz", "rt")]
        shapes = [Row(line, size, "shapes") for line in open(HERE / f"h200-shapes-{ty}.txt")]
        random, shapes = ([row for row in rows if row.used] for rows in (random, shapes))
        known, there = {row.tile for row in random}, {row.shape for row in shapes}
        named = [row for row in named if row.used and row.tile in known and row.shape not in there]
        yield ty, random + named + shapes


def fitted():
    rows = dict(read())
    tiles = {ty: sorted({row.tile for row in of}) for ty, of in rows.items()}
    tables = {ty: Table(of, tiles[ty]) for ty, of in rows.items()}
    return tables, tiles, fit(tables, tiles)


def unseen(ty, tiles, file="unseen"):
    rows = (Row(line, {"f32": 4, "f64": 8}[ty], "unseen") for line in gzip.open(HERE / f"h200-{file}-{ty}.txt.gz", "rt"))
    return [row for row in rows if row.used and row.tile in tiles[ty]]


def show(tiles, of):
    for name, (full, alone, fixed, copies) in zip(tiles, np.array(of)):
        full = 1 / (1 + np.exp(-full))
        print(f"{name}: full {full:.3f}, alone {full / (1 + np.exp(-alone)):.3f}, copies {np.exp(copies):.2f}, fixed {np.exp(fixed):.2f}")


def main():
    tables, tiles, found = fitted()
    print(*(f"{name} {float(value):.4g}" for name, value in found["f32"][0].items()), sep="\n")
    for ty, (_, of) in found.items():
        show(tiles[ty], of)
    for (ty, x), kind in ((of, kind) for of in found.items() for kind in ("random", "shapes", "unseen")):
        table = Table(unseen(ty, tiles), tiles[ty]) if kind == "unseen" else tables[ty]
        chosen = list(ratios(x, table, kind))
        slower = np.array([ratio for ratio, _ in chosen])
        print(f"{ty} {kind}: {np.sum(slower <= 1 / 0.95)} of {len(slower)} choices within 5 % of the best, {slower.mean():.3f} on average")
        print("  the worst:", *(f"{','.join(map(str, shape))} {ratio:.2f}" for ratio, shape in sorted(chosen, reverse=True)[:5]))


if __name__ == "__main__":
    main()
