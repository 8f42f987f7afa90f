"""Compares `tegula mul` with NumPy: 40 random products, and products with NaN and infinities.

Usage: numpy_agree.py TEGULA [SEED]

i32 must agree exactly, modulo 2**32. For floats, r = max |C - exact| / (u (|alpha| |A||B| + |beta| |C0|)) must be at most
k + 4: one rounding for each of the k terms, two for alpha and beta, two to spare. `exact` is computed in long double. For f16
the sum has the precision of f32, and only the result is rounded to f16.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11}
DTYPES = ["float32", "float64", "int32", "float16"]


def save(path, array, rng):
    """Stores an array in C or Fortran order, in either byte order."""
    array = np.asfortranarray(array) if rng.random() < 0.5 else np.ascontiguousarray(array)
    if rng.random() < 0.25:
        array = array.astype(array.dtype.newbyteorder(">"))
    np.save(path, array)


def random_array(rng, shape, dtype):
    if dtype == "int32":
        return rng.integers(-(2**31), 2**31, shape, dtype=np.int64).astype(np.int32)
    return rng.standard_normal(shape).astype(dtype)


def multiply(tegula, folder, rng, a, b, ta, tb, alpha, beta, c0):
    """The product that tegula writes."""
    save(folder / "a.npy", a, rng)
    save(folder / "b.npy", b, rng)
    command = [tegula, "mul", "a.npy", "b.npy", "-o", "c.npy", "--device", "cpu", "--alpha", str(alpha)]
    command += ["--ta"] * ta + ["--tb"] * tb
    if c0 is not None:
        save(folder / "c0.npy", c0, rng)
        command += ["--beta", str(beta), "--c", "c0.npy"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, (command, done.stderr)
    return np.load(folder / "c.npy")


def check_int(c, a, b, alpha, beta, c0):
    wide = lambda x: np.asarray(x, dtype=np.int64).astype(np.uint32)
    exact = wide(alpha) * (wide(a) @ wide(b)) + wide(beta) * wide(c0)
    assert c.dtype == np.int32 and np.array_equal(c.view(np.uint32), exact)
    return 0.0


def check_float(c, a, b, alpha, beta, c0):
    a, b, c0 = (x.astype(np.longdouble) for x in (a, b, c0))
    unit = UNIT[c.dtype.name]
    exact = alpha * (a @ b) + beta * c0
    size = abs(alpha) * (abs(a) @ abs(b)) + abs(beta) * abs(c0)
    error = abs(c.astype(np.longdouble) - exact)
    # A result below the normal numbers is rounded to a fixed step, not to a fraction of itself.
    error = np.maximum(error - np.finfo(c.dtype).smallest_subnormal, 0)
    r = np.where(error == 0, 0, error / np.where(size == 0, np.finfo(np.longdouble).tiny, unit * size))
    r = float(r.max(initial=0.0))
    bound = a.shape[1] + 4
    assert r <= bound, f"r = {r}, the bound is {bound}"
    return r


def one_case(tegula, folder, rng, dtype):
    m, n, k = (int(2 * rng.integers(0, 48) + 1) for _ in range(3))
    ta, tb, with_c0 = (bool(rng.integers(2)) for _ in range(3))
    a, b = random_array(rng, (m, k), dtype), random_array(rng, (k, n), dtype)
    whole = dtype == "int32"
    factor = lambda: int(rng.integers(-5, 6)) if whole else float(rng.integers(-16, 17)) / 8
    alpha, beta = factor(), factor() if with_c0 else 0
    c0 = random_array(rng, (m, n), dtype) if with_c0 else None
    c = multiply(tegula, folder, rng, a.T if ta else a, b.T if tb else b, ta, tb, alpha, beta, c0)
    assert c.shape == (m, n) and c.dtype == dtype, (c.shape, c.dtype)
    check = check_int if whole else check_float
    r = check(c, a, b, alpha, beta, np.zeros((m, n), dtype) if c0 is None else c0)
    return f"{dtype:8} {m}x{k} . {k}x{n} ta={ta:d} tb={tb:d} alpha={alpha} beta={beta} r={r:.3f}"


def check_specials(tegula, folder, rng, dtype):
    """NaN and infinities come out where NumPy has them, and nowhere else. beta = 0 does not read C0."""
    a, b = random_array(rng, (13, 17), dtype), random_array(rng, (17, 11), dtype)
    a[2, 3], a[5, 6], a[7, 8], b[9, 4] = np.nan, np.inf, -np.inf, np.inf
    c = multiply(tegula, folder, rng, a, b, False, False, 1.0, 0.0, np.full((13, 11), np.nan, dtype))
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ b.astype(np.float64)
    for test in (np.isnan, np.isposinf, np.isneginf):
        assert np.array_equal(test(c), test(expected)), (dtype, test.__name__)
    assert np.isnan(c[2]).all() and np.isfinite(c).any()


def main():
    tegula, seed = Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        for case in range(40):
            print(one_case(tegula, Path(folder), rng, DTYPES[case % len(DTYPES)]))
        for dtype in UNIT:
            check_specials(tegula, Path(folder), rng, dtype)
    print("40 products agree with NumPy, and NaN and infinities do")


if __name__ == "__main__":
    main()
