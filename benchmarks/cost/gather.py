#!/usr/bin/env python3
"""Adds the first samples of tuning to the data of hopper.py: python3 benchmarks/cost/gather.py FILE.json…

The files are of `tegula tune --dry-run --json`. A shape in them replaces the same shape of
h200-hopper-bf16.txt.gz.
"""
import gzip
import json
import sys
from pathlib import Path

DATA = Path(__file__).parent / "h200-hopper-bf16.txt.gz"

shapes = {}
for line in gzip.open(DATA, "rt"):
    shapes.setdefault(tuple(map(int, line.split()[:3])), []).append(line)
before = len(shapes)
for path in sys.argv[1:]:
    for row in json.loads(Path(path).read_text())["rows"]:
        sizes = tuple(row[key] for key in "mnk")
        samples = [sample for sample in row["glances"] or [] if sample["kernel"].startswith("hopper_bf16_")]
        if samples:
            prefix = " ".join(map(str, sizes))
            shapes[sizes] = [f"{prefix} {sample['us']:.4g} {sample['kernel']}\n" for sample in samples]
# Without a date, so that the same lines give the same file.
with open(DATA, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as compressed:
    compressed.write("".join(line for sizes in sorted(shapes) for line in shapes[sizes]).encode())
print(f"{len(shapes)} shapes, {before} before")
