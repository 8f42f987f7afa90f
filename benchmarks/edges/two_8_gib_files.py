"""Multiplies two .npy files of 8 GiB each and watches what memory that takes: python two_8_gib_files.py TEGULA FOLDER

Needs NumPy, 16 GiB in FOLDER (the files are sparse) and Linux. The product is compared with NumPy's of the entries that are not 0.
"""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np

M, K = 512, 2**21
ROWS = slice(None, None, 4099)


def make(path, shape, fill):
    array = np.lib.format.open_memmap(path, mode="w+", dtype="f8", shape=shape)
    array[fill] = np.random.default_rng(1).standard_normal(array[fill].shape)


def main():
    tegula, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    a, b, c = (folder / name for name in ["a8.npy", "b8.npy", "c8.npy"])
    make(a, (M, K), (slice(None, None, 37), ROWS))
    make(b, (K, M), (ROWS, slice(None, None, 5)))
    print("bytes of A and B:", a.stat().st_size, b.stat().st_size)
    begun, anonymous, resident = time.time(), 0, 0
    work = subprocess.Popen([tegula, "mul", a, b, "-o", c, "--device", "cpu"], stderr=subprocess.PIPE, text=True)
    while work.poll() is None:
        try:
            status = dict(line.split(":", 1) for line in open(f"/proc/{work.pid}/status"))
            anonymous = max(anonymous, int(status["RssAnon"].split()[0]))
            resident = max(resident, int(status["VmRSS"].split()[0]))
        except (OSError, KeyError):
            pass  # It has just ended.
        time.sleep(0.2)
    print(work.stderr.read().strip())
    print(f"{time.time() - begun:.0f} s; at most {anonymous / 1024:.1f} MiB anonymous, {resident / 1024:.0f} MiB resident")
    assert work.returncode == 0 and anonymous < 256 << 10
    wide_a, wide_b = np.load(a, mmap_mode="r"), np.load(b, mmap_mode="r")
    difference = abs(np.load(c) - wide_a[:, ROWS] @ wide_b[ROWS]).max()
    print("largest difference from NumPy:", difference)
    assert difference < 1e-11
    for path in [a, b, c]:
        path.unlink()


main()
