"""Compares .mtx and .csv files of tegula-files with SciPy and NumPy on random matrices, bit for bit.

Usage: text_round_trip.py CONVERT COUNT [FOLDER]

CONVERT copies a matrix between .mtx, .csv and .npy. Of FOLDER, if given, every .mtx file is read by both as well.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse

DTYPES = ["float64", "int32", "float32", "int64", "float16", "uint8"]


def random_array(rng, shape, dtype):
    """Random bits: all exponents, both zeros, infinities, and one NaN."""
    info = np.iinfo({"f2": "i2", "f4": "i4", "f8": "i8"}.get(np.dtype(dtype).str[1:], dtype))
    array = rng.integers(info.min, info.max, shape, info.dtype, endpoint=True).view(dtype)
    if np.issubdtype(array.dtype, np.floating):
        array = np.where(np.isnan(array), rng.standard_normal(shape).astype(dtype), array)
        for special in [0.0, -0.0, np.inf, -np.inf, np.nan, np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal]:
            array[rng.random(shape) < 0.03] = special
    return array


def check_same(found, expected, what):
    """Checks that arrays agree in shape, type and bits; all NaN are equal."""
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype), (what, found, expected)
    unlike = (found != expected) | (np.signbit(found) != np.signbit(expected))
    unlike &= ~(np.isnan(found) & np.isnan(expected))
    assert not unlike.any(), (what, np.argwhere(unlike)[0], found[unlike][0], expected[unlike][0])


def unsigned_zeros(array):
    """Drops signs of zeros, as SciPy does when it reads an .mtx file."""
    return array + array.dtype.type(0)


def dense(matrix):
    """Converts a matrix read by SciPy to the type that Tegula reads."""
    matrix = np.asarray(matrix.toarray() if scipy.sparse.issparse(matrix) else matrix)
    if not np.issubdtype(matrix.dtype, np.integer):
        return matrix.astype(np.float64)
    narrow = matrix.astype(np.int32)
    return narrow if np.array_equal(narrow, matrix) else matrix.astype(np.int64)


class Case:
    def __init__(self, convert, folder, rng, number):
        self.convert, self.folder, self.rng = convert, folder, rng
        self.dtype = DTYPES[number % len(DTYPES)]
        self.shape = tuple(int(x) for x in rng.integers(1, 24, 2))

    def run(self, source, target):
        done = subprocess.run([self.convert, source, target], cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == 0, (source, done.stderr)

    def theirs_to_npy(self, name):
        self.run(name, "read.npy")
        return np.load(self.folder / "read.npy")

    def write(self):
        """Written by Tegula, read by SciPy and NumPy in the array's own type."""
        array = random_array(self.rng, self.shape, self.dtype)
        np.save(self.folder / "a.npy", array)
        self.run("a.npy", "a.mtx")
        self.run("a.npy", "a.csv")
        wide = np.int64 if array.dtype.kind in "iu" else np.float64
        found = scipy.io.mmread(self.folder / "a.mtx")
        assert found.dtype == wide
        check_same(found.astype(self.dtype), unsigned_zeros(array), "a.mtx")
        found = np.loadtxt(self.folder / "a.csv", dtype=wide, delimiter=",", ndmin=2)
        check_same(found.astype(self.dtype), array, "a.csv")

    def read_csv(self):
        """Written by NumPy, read by Tegula."""
        array = random_array(self.rng, self.shape, self.dtype)
        separator, header = self.rng.choice([",", ";", "\t"]), self.rng.choice(["", "a header"])
        form = "%d" if array.dtype.kind in "iu" else "%.17g"
        np.savetxt(self.folder / "b.csv", array, form, str(separator), header=str(header))
        check_same(self.theirs_to_npy("b.csv"), array.astype(np.float64), "b.csv")

    def read_array(self):
        """Written by SciPy as an array of each symmetry, read by Tegula."""
        size = self.shape[0]
        square = random_array(self.rng, (size, size), "float64" if self.dtype[0] == "f" else "int32")
        square[square == np.iinfo(np.int32).min] = 0
        lower = np.tril(square, -1)
        matrices = {
            "general": random_array(self.rng, self.shape, square.dtype),
            "symmetric": lower + np.tril(square).T,
            "skew-symmetric": lower - lower.T,
        }
        for symmetry, matrix in matrices.items():
            scipy.io.mmwrite(self.folder / "c.mtx", matrix, symmetry=symmetry)
            assert f"array {'integer' if matrix.dtype.kind == 'i' else 'real'} {symmetry}" in self.first_line("c.mtx")
            self.compare("c.mtx")

    def read_coordinates(self):
        """Written by SciPy as coordinates of each symmetry, some twice, read by Tegula."""
        rng, size, entries = self.rng, self.shape[0], int(self.rng.integers(0, 60))
        values = random_array(rng, entries, self.dtype).astype("float64" if self.dtype[0] == "f" else "int64") // 64
        rows, cols = rng.integers(0, size, entries), rng.integers(0, size, entries)
        for symmetry in ["general", "symmetric", "skew-symmetric"]:
            keep = {"general": rows >= 0, "symmetric": rows >= cols, "skew-symmetric": rows > cols}[symmetry]
            lower = scipy.sparse.coo_array((values[keep], (rows[keep], cols[keep])), (size, size))
            self.write_coordinates(lower, symmetry)
            self.compare("d.mtx")
        scipy.io.mmwrite(self.folder / "d.mtx", scipy.sparse.coo_array(lower), field="pattern", symmetry="general")
        self.compare("d.mtx")

    def write_coordinates(self, lower, symmetry):
        """Writes one triangle, then sets the symmetry: SciPy itself would write duplicates of both triangles."""
        scipy.io.mmwrite(self.folder / "d.mtx", lower, symmetry="general")
        text = (self.folder / "d.mtx").read_text().replace("general", symmetry, 1)
        (self.folder / "d.mtx").write_text(text)

    def first_line(self, name):
        return (self.folder / name).read_text().split("\n", 1)[0]

    def compare(self, name):
        expected = dense(scipy.io.mmread(self.folder / name))
        check_same(unsigned_zeros(self.theirs_to_npy(name)), expected, self.first_line(name))


def compare_real(case, folder):
    """Compares every .mtx file of a folder: both agree on it, or both reject it."""
    files = sorted(Path(folder).rglob("*.mtx"))
    assert files, f"no .mtx file in {folder}"
    for path in files:
        try:
            expected = dense(scipy.io.mmread(path))
        except ValueError as why:
            done = subprocess.run([case.convert, path, case.folder / "r.npy"], capture_output=True, text=True)
            assert done.returncode == 1, (path, why)
            print(f"{path.name}: rejected by both ({done.stderr.strip()}; SciPy: {why})")
            continue
        found = case.theirs_to_npy(path)
        check_same(unsigned_zeros(found), expected, path)
        print(f"{path.name}: {found.shape[0]}x{found.shape[1]} {found.dtype} agrees")


def main():
    convert, count = Path(sys.argv[1]).resolve(), int(sys.argv[2])
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
        for number in range(count):
            case = Case(convert, Path(folder), rng, number)
            case.write()
            case.read_csv()
            case.read_array()
            case.read_coordinates()
        if len(sys.argv) > 3:
            compare_real(case, sys.argv[3])
    print(f"{count} matrices agree with SciPy and NumPy")


if __name__ == "__main__":
    main()
