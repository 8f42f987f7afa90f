"""Compares `tegula mul` with numpy.matmul on arrays of 1 to 4 axes: shapes, values, and what neither accepts.

Usage: numpy_stacks.py TEGULA [SEED]

Values are small integers, so every sum is exact in every type.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np


def shape(rng, axes, inner):
    """Random extents, 1 often so that stacks broadcast; the inner axes are given."""
    stack = [int(rng.choice([1, 1, 2, 3])) for _ in range(axes - len(inner))]
    return [*stack, *inner]


def operands(rng):
    m, n, k = (int(x) for x in rng.integers(0, 5, 3))
    a_axes, b_axes = (int(x) for x in rng.integers(1, 5, 2))
    other = k + int(rng.random() < 0.1)
    a = shape(rng, a_axes, [k] if a_axes == 1 else [m, k])
    b = shape(rng, b_axes, [other] if b_axes == 1 else [other, n])
    dtype = rng.choice(["float32", "float64", "float16", "int32"])
    arrays = [rng.integers(-4, 5, extents).astype(dtype) for extents in (a, b)]
    return [np.asfortranarray(array) if rng.random() < 0.5 else array for array in arrays]


def turned(array):
    return array if array.ndim < 2 else np.swapaxes(array, -1, -2)


def compare(tegula, folder, rng):
    a, b = operands(rng)
    ta, tb = rng.random(2) < 0.3
    np.save(folder / "a.npy", turned(a) if ta else a)
    np.save(folder / "b.npy", turned(b) if tb else b)
    (folder / "c.npy").unlink(missing_ok=True)
    device = "interp" if rng.random() < 0.2 else "cpu"
    command = [tegula, "mul", "a.npy", "b.npy", "-o", "c.npy", "--verify", "--device", device]
    command += ["--ta"] * int(ta) + ["--tb"] * int(tb)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    case = (a.shape, b.shape, ta, tb, device, done.stderr)
    try:
        expected = np.matmul(a, b)
    except ValueError:
        assert done.returncode == 1 and done.stderr.count("\n") == 1, case
        return
    assert done.returncode == 0, case
    c = np.load(folder / "c.npy")
    assert c.shape == expected.shape and c.dtype == expected.dtype and np.array_equal(c, expected), case


def main():
    tegula = Path(sys.argv[1]).resolve()
    rng = np.random.default_rng(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(200):
            compare(tegula, Path(folder), rng)
    print("200 stacks agree")


main()
