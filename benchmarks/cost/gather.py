#!/usr/bin/env python3
"""Adds first looks of tuning to what hopper.py fits to: python3 benchmarks/cost/gather.py FILE.json…

The files are of `tegula tune --dry-run --json`. A product that they have replaces the same one of h200-hopper-bf16.txt.gz.
"""
import gzip
import json
import sys
from pathlib import Path

KEPT = Path(__file__).parent / "h200-hopper-bf16.txt.gz"

products = {}
for line in gzip.open(KEPT, "rt"):
    products.setdefault(tuple(map(int, line.split()[:3])), []).append(line)
before = len(products)
for path in sys.argv[1:]:
    for row in json.loads(Path(path).read_text())["rows"]:
        sizes = tuple(row[key] for key in "mnk")
        looks = [look for look in row["glances"] or [] if look["kernel"].startswith("hopper_bf16_")]
        if looks:
            products[sizes] = [f"{' '.join(map(str, sizes))} {look['us']:.4g} {look['kernel']}\n" for look in looks]
# Without a date, so that the same lines are the same file.
with open(KEPT, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as kept:
    kept.write("".join(line for sizes in sorted(products) for line in products[sizes]).encode())
print(f"{len(products)} products, {before} before")
