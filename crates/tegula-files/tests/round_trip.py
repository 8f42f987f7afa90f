"""Compares 200 random arrays converted by `convert` with NumPy and safetensors, bit for bit.

Usage: round_trip.py CONVERT [SEED]

A format is a line of the table FORMATS: which arrays it holds, how Python writes one and how Python reads it back.
"""

import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import safetensors.numpy

PLAIN = ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"]
HALF = ["bfloat16"]
EIGHT = ["float8_e4m3fn", "float8_e5m2"]
TAGS = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint64": "U64",
    "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name)) if name in HALF + EIGHT else np.dtype(name)


def random_array(rng, name, shape):
    """Random bits, including NaN and infinities; booleans are 0 and 1."""
    dtype = dtype_of(name)
    if name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    count = int(np.prod(shape, dtype=np.int64))
    return np.frombuffer(rng.bytes(count * dtype.itemsize), dtype).reshape(shape)


def in_some_order(rng, array):
    array = np.asarray(array, order="F" if rng.random() < 0.5 else "C")
    # bfloat16 is stored as raw bytes, which have no byte order.
    if rng.random() < 0.4 and array.dtype.name in PLAIN:
        array = array.astype(array.dtype.newbyteorder(">"))
    return array


def write_npy(path, array, rng):
    np.save(path, in_some_order(rng, array))


def write_npz(path, array, rng, save=np.savez):
    save(path, x=np.zeros(3), **{"the array": in_some_order(rng, array)})


def write_npz_compressed(path, array, rng):
    write_npz(path, array, rng, np.savez_compressed)


def write_safetensors(path, array, rng):
    # An odd number of bytes first leaves the second tensor unaligned in some files.
    first = {"a": np.zeros(int(rng.integers(1, 9)), np.uint8)} if rng.random() < 0.5 else {}
    safetensors.numpy.save_file({**first, "the array": np.asarray(array, order="C")}, path)


def write_safetensors_raw(path, array, rng):
    """Writes tensors in order of their names, without the format's library, so that one may be unaligned."""
    pad = int(rng.integers(0, 9))
    info = lambda tag, shape, start, end: f'{{"dtype":"{tag}","shape":{list(shape)},"data_offsets":[{start},{end}]}}'
    tag = TAGS[array.dtype.name]
    header = f'{{"a":{info("U8", [pad], 0, pad)},"the array":{info(tag, array.shape, pad, pad + array.nbytes)}}}'
    path.write_bytes(struct.pack("<Q", len(header)) + header.encode() + bytes(pad) + array.tobytes())


def read_npy(path):
    return np.load(path)


def read_npz(path):
    with np.load(path) as arrays:
        assert arrays.files == ["c"], arrays.files
        return arrays["c"]


def read_safetensors(path):
    """Reads the tensor's bytes by hand, since old versions of the library lack types, and by the library."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    ((name, info),) = __import__("json").loads(data[8 : 8 + length]).items()
    assert name == "c" and (8 + length) % 64 == 0
    dtype = dtype_of({tag: name for name, tag in TAGS.items()}[info["dtype"]])
    array = np.frombuffer(data[8 + length :], dtype).reshape(info["shape"])
    if array.dtype.name in PLAIN:
        assert bits(safetensors.numpy.load_file(path)["c"]) == bits(array)
    return array


# Name: types, maximum dimensions, writer, reader, extension, and the array name in a container.
FORMATS = {
    "npy": (PLAIN + HALF, 4, write_npy, read_npy, ".npy", None),
    "npz": (PLAIN + HALF, 4, write_npz, read_npz, ".npz", "the array"),
    "npz, compressed": (PLAIN + HALF, 4, write_npz_compressed, read_npz, ".npz", "the array"),
    "safetensors": (PLAIN + HALF, 4, write_safetensors, read_safetensors, ".safetensors", "the array"),
    "safetensors, raw": (PLAIN + HALF + EIGHT, 4, write_safetensors_raw, read_safetensors, ".safetensors", "the array"),
}


def bits(array):
    """Runs one case. NumPy reads bfloat16 from .npy as two raw bytes."""
    array = array.astype(array.dtype.newbyteorder("<")) if array.dtype.name in PLAIN else array
    return array.shape, array.dtype.itemsize, array.tobytes()


def fits(types, most, array):
    return array.dtype.name in types and array.ndim <= most


def one_case(convert, folder, rng, case):
    source = list(FORMATS)[case % len(FORMATS)]
    types, most, write, _, extension, name = FORMATS[source]
    shape = tuple(int(x) for x in rng.integers(0 if rng.random() < 0.1 else 1, 7, int(rng.integers(0, most + 1))))
    array = random_array(rng, str(rng.choice(types)), shape)
    given = folder / f"in{extension}"
    write(given, array, rng)
    targets = [name for name, (types, most, *_) in FORMATS.items() if fits(types, most, array)]
    target = str(rng.choice(targets))
    _, _, _, read, extension, _ = FORMATS[target]
    made = folder / f"out{extension}"
    made.unlink(missing_ok=True)
    place = str(given) if name is None else f"{given}:{name}"
    done = subprocess.run([convert, place, str(made)], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, (source, target, array.dtype, shape, done.stderr)
    found = read(made)
    assert bits(found) == bits(array), (source, target, array.dtype, shape)
    return f"{source} -> {target}: {array.dtype} {shape}"


def check_casts(convert, folder, rng):
    """Casts that NumPy and ml_dtypes support: exact ones, and those that round to nearest once."""
    # NumPy rounds u64 to bfloat16 twice, so the integers here have few digits.
    wide = rng.integers(-(2**50), 2**50, 1000) * 2 ** int(rng.integers(0, 12))
    floats = np.concatenate([rng.standard_normal(1000) * 10.0 ** rng.integers(-10, 10, 1000), [0.0, -0.0, np.inf, -np.inf]])
    every = np.arange(256, dtype=np.uint8)
    eight = [every.view(dtype_of(name)) for name in EIGHT]
    cases = [(wide, "f64"), (wide, "f32"), (floats, "f32"), (floats, "f16"), (floats, "bf16")]
    cases += [(array, target) for array in eight for target in ("f32", "f16", "f64")]
    cases += [(every.view(np.int8), "f16"), (every, "i32"), (every.astype(bool), "i8")]
    names = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i32": "int32", "i8": "int8"}
    given, made = folder / "in.safetensors", folder / "cast.safetensors"
    for array, target in cases:
        write_safetensors_raw(given, array, rng)
        done = subprocess.run([convert, f"{given}:the array", str(made), target], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found = read_safetensors(made)
        with np.errstate(over="ignore", invalid="ignore"):
            wanted = array.astype(dtype_of(names[target]))
        same = np.isnan(found.astype(np.float64)) & np.isnan(wanted.astype(np.float64))
        raw = f"u{found.dtype.itemsize}"
        assert found.dtype == wanted.dtype and (same | (found.view(raw) == wanted.view(raw))).all(), (array.dtype, target)


def main():
    convert, seed = Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        for case in range(200):
            print(one_case(convert, Path(folder), rng, case))
        check_casts(convert, Path(folder), rng)
    print("200 arrays agree, and conversions of number types do")


if __name__ == "__main__":
    main()
