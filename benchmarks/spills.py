#!/usr/bin/env python3
"""spills.py BINARY [LEAST]: micro-kernels that move vectors to and from the stack.

Prints those with more than LEAST (10) such instructions: their number, that of multiply-adds, and
the name. Accumulators in memory make a micro-kernel half as fast. Two causes were found. A loop
that indexes the accumulators is too long for the compiler to unroll. 512-bit code is compiled
without avx512vl, so that additions of half vectors confine whole ones to 16 of 32 registers.

Names show rows and vectors in a program compiled so, which calls products of all types:
    RUSTFLAGS="-C symbol-mangling-version=v0" cargo build --release -p tegula-cli
Needs objdump (binutils). Whole rows read values of A from the stack by design.
"""
import re
import subprocess
import sys

if not 2 <= len(sys.argv) <= 3:
    sys.exit(__doc__)
least = int(sys.argv[2]) if len(sys.argv) == 3 else 10
objdump = ["objdump", "-d", "--no-show-raw-insn", "-C", sys.argv[1]]
of_stack = re.compile(r"%[yz]mm\d+,[^,]*\(%rsp\)|\(%rsp[^)]*\),.*%[yz]mm")
multiply_add = re.compile(r"\tvp?(fmadd|dp|madd|mull)")
counts, name = {}, None
with subprocess.Popen(objdump, stdout=subprocess.PIPE, text=True) as process:
    for line in process.stdout:
        if start := re.match(r"[0-9a-f]+ <(tegula_cpu::.*)>:$", line):
            name = start[1]
            counts.setdefault(name, [0, 0])
        elif line == "\n":
            name = None
        elif name:
            counts[name][0] += bool(of_stack.search(line))
            counts[name][1] += bool(multiply_add.search(line))
if process.returncode:
    sys.exit(f"objdump failed on {sys.argv[1]}")
for name, (moves, multiplies) in sorted(counts.items(), key=lambda item: -item[1][0]):
    if moves > least and multiplies > 8:
        print(f"{moves:6} {multiplies:6}  {name}")
