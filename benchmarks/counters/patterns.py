"""Measures what one request of a warp costs, by active lanes and addresses (`h100-patterns.md`).

    python3 patterns.py table SEED > table.txt                    # random patterns to measure
    nvcc -O3 -std=c++17 -arch=sm_90 patterns.cu -o patterns
    python3 patterns.py measure table.txt ./patterns out SECONDS  # needs a GPU and ncu
    python3 patterns.py keep table.txt out > patterns.csv
"""

import csv
import os
import random
import subprocess
import sys
import tempfile
import time

BYTES = {"ld1": 1, "ld2": 2, "ld4": 4, "ld8": 8, "ld16": 16, "st1": 1, "st2": 2, "st4": 4, "st8": 8, "st16": 16,
         "add_u32": 4, "red_u32": 4, "min_u32": 4, "xor_b32": 4, "exch_b32": 4, "cas_b32": 4, "exch_b64": 8,
         "cas_b64": 8, "add_f32": 4, "add_u64": 8, "add_f64": 8, "min_u64": 8, "gld4": 4, "gld8": 8, "gld16": 16,
         "gst4": 4, "gst16": 16, "gadd_u32": 4, "gred_u32": 4, "gadd_f32": 4, "gred_f32": 4, "gexch_b32": 4,
         "gcas_b32": 4, "gadd_u64": 8, "gred_u64": 8, "gadd_f64": 8, "gcas_b64": 8}
LOOPS = {"add_f32", "add_u64", "add_f64"}
FULL = (1 << 32) - 1
WINDOW = 4096


def group(kind):
    """Which metrics a kind is measured with."""
    return "global" if kind[0] == "g" else {"ld": "load", "st": "store"}.get(kind[:2], "atomic")


# --- patterns


def masks(rng):
    """A mask: full, random, part of the warp, or one that breaks pairs."""
    which = rng.randrange(12)
    if which == 0:
        return FULL
    if which <= 3:
        p = rng.choice([0.1, 0.3, 0.5, 0.7, 0.9])
        return sum((rng.random() < p) << i for i in range(32)) or 1 << rng.randrange(32)
    if which == 4:
        width = rng.choice([16, 8, 4, 2])
        return ((1 << width) - 1) << width * rng.randrange(32 // width)
    if which == 5:  # Some quarters or halves.
        return sum(0xFF << 8 * q for q in range(4) if rng.random() < 0.5) or 0xFF << 8 * rng.randrange(4)
    if which == 6:  # Every other lane, or one in four.
        step = rng.choice([2, 4])
        return sum(1 << i for i in range(rng.randrange(step), 32, step))
    if which == 7:  # Full but for one lane or a pair.
        lane, distance = rng.randrange(32), rng.choice([0, 1, 2])
        return FULL & ~(1 << lane) & ~(1 << (lane ^ distance))
    if which == 8:  # Whole pairs.
        distance = rng.choice([1, 2])
        return sum((1 << i | 1 << (i ^ distance)) for i in range(32) if not i & distance and rng.random() < 0.5) or 3
    if which == 9:  # One lane of each pair.
        distance = rng.choice([1, 2])
        return sum(1 << (i ^ rng.choice([0, distance])) for i in range(32) if not i & distance)
    if which == 10:
        return (1 << rng.randint(1, 31)) - 1
    return sum(1 << i for i in rng.sample(range(32), rng.choice([1, 2, 2, 3, 4])))


def slots(rng, unit):
    """The slot of `unit` bytes of each lane: in order, by strides, or drawn from a few."""
    count, row = WINDOW // unit, 128 // unit
    base = rng.randrange(count)
    which = rng.randrange(8)
    if which == 0:
        return [(base + i) % count for i in range(32)]
    if which == 1:
        step = rng.choice([2, 3, 4, row, 2 * row, row + 1, row // 2 or 1, count - 1])
        return [(base + step * i) % count for i in range(32)]
    if which == 2:
        shuffled = rng.sample(range(32), 32)
        return [(base + s) % count for s in shuffled]
    if which == 3:
        shift = rng.choice([1, 2, 3, 4])
        return [(base + (i >> shift)) % count for i in range(32)]
    some = rng.choice([1, 2, 3, 4, 6, 8, 16, 32])
    if which <= 5:
        drawn = rng.sample(range(count), some)
    elif which == 6:  # In few columns.
        columns = rng.sample(range(row), min(row, rng.choice([1, 2, 3])))
        drawn = [c + row * rng.randrange(count // row) for c in columns for _ in range(some)]
    else:  # A row or two.
        first = row * rng.randrange(count // row)
        drawn = [(first + rng.randrange(2 * row)) % count for _ in range(some)]
    return [rng.choice(drawn) for _ in range(32)]


def paired(rng, slots, distance):
    """Both lanes of a pair want the same."""
    return [slots[i & ~distance] for i in range(32)]


def wide(rng, unit):
    """A pattern for accesses of 8 and 16 bytes."""
    one = lambda: slots(rng, unit)
    which = rng.randrange(10)
    if which <= 2:
        at = one()
    elif which <= 6:
        at = paired(rng, one(), rng.choice([1, 1, 2, 2, 3, 4, 8, 16, 5, 6, 17, 18]))
    else:  # Each half, quarter or eighth its own way.
        width = rng.choice([16, 16, 8, 4])
        choices = [rng.choice([0, 1, 1, 2, 2, 3]) for _ in range(32 // width)]
        same = one()
        parts = [paired(rng, rng.choice([one(), same]), d) for d in choices]
        at = [parts[i // width][i] for i in range(32)]
    if rng.random() < 0.2:  # One lane wants something else.
        at[rng.randrange(32)] = rng.randrange(WINDOW // unit)
    return at


def few(rng, unit):
    """A pattern for atomics: 1 to 32 lanes at one place, at two, in one bank, or anywhere."""
    row, count = 128 // unit, WINDOW // unit
    base = rng.randrange(count)
    which = rng.randrange(8)
    if which <= 1:
        return [base] * 32
    if which == 2:
        other = rng.choice([(base + 1) % count, (base + row) % count, rng.randrange(count)])
        return [rng.choice([base, other]) for _ in range(32)]
    if which == 3:
        return [(base + row * i) % count for i in range(32)]
    if which == 4:
        return [(base + i) % count for i in range(32)]
    return slots(rng, unit)


def two_lanes(rng, unit):
    """Two lanes that want the same, or different words of the same banks, or others."""
    a, b = rng.sample(range(32), 2)
    at = [rng.randrange(WINDOW // unit) for _ in range(32)]
    row = 128 // unit
    at[b] = (at[a] + rng.choice([0, 0, 1, row])) % (WINDOW // unit)
    return 1 << a | 1 << b, at


def pattern(rng, kind):
    unit = BYTES[kind]
    moves = group(kind) in ("load", "store")
    if unit >= 8 and moves and rng.random() < 0.12:
        mask, at = two_lanes(rng, unit)
    elif unit >= 8 and moves:
        mask, at = masks(rng), wide(rng, unit)
    elif not moves:
        mask, at = masks(rng), few(rng, unit)
        if rng.random() < 0.3:
            mask = sum(1 << i for i in rng.sample(range(32), rng.randint(1, 32)))
    else:
        mask, at = masks(rng), slots(rng, unit)
    # Inactive lanes have an address too: that of the pattern, or a random one.
    if rng.random() < 0.5:
        at = [a if mask >> i & 1 else rng.randrange(WINDOW // unit) for i, a in enumerate(at)]
    return "b" if rng.random() < 0.15 else "p", mask, [a * unit for a in at]


COUNTS = {"ld8": 900, "ld16": 1300, "st8": 250, "st16": 300, "ld4": 60, "st4": 60, "ld1": 50, "ld2": 60, "st1": 60,
          "st2": 60, "add_u32": 60, "red_u32": 40, "min_u32": 40, "xor_b32": 30, "exch_b32": 50, "cas_b32": 70,
          "exch_b64": 80, "cas_b64": 80, "add_f32": 60, "add_u64": 70, "add_f64": 40, "min_u64": 10, "gadd_u32": 40,
          "gred_u32": 60, "gred_f32": 30, "gexch_b32": 20, "gcas_b32": 30, "gadd_u64": 80, "gred_u64": 120, "gadd_f64": 30,
          "gcas_b64": 60}


def families(seed):
    """Rows to measure, kinds mixed, so that any prefix of the table has its share of each."""
    rng = random.Random(seed)
    rows = []
    for kind, count in COUNTS.items():
        for i in range(count):
            rows.append(((i + rng.random()) / count, kind, *pattern(rng, kind)))
    rows.sort()
    return [row[1:] for row in rows]


def write_table(rows, file):
    for kind, how, mask, at in rows:
        print(kind, how, f"{mask:08x}", *at, file=file)


def read_table(name):
    with open(name) as file:
        return [(w[0], w[1], int(w[2], 16), [int(x) for x in w[3:]]) for w in map(str.split, file)]


# --- measuring

L1, SASS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_", "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_"
REQUESTS, SECTORS = "l1tex__t_requests_pipe_lsu_mem_global_op_", "l1tex__t_sectors_pipe_lsu_mem_global_op_"
METRICS = {
    "load": [L1 + "ld"],
    "store": [L1 + "st"],
    "atomic": [L1 + "atom", L1 + "ld"],
    "global": [what + op for what in (REQUESTS, SECTORS) for op in ("ld", "st", "atom", "red")],
    "instrumented": [SASS + "ld"],
}


def profile(metrics, table, program, first, last, log):
    """Runs rows of a table under ncu. Gives each launch's numbers, in the order of the metrics."""
    names = [metric + ".sum" for metric in metrics]
    open(log, "w").close()
    options = ["--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base"]
    target = [program, table, str(first), str(last), "count"]
    subprocess.run(["ncu", *options, "--metrics", ",".join(names), "--log-file", log, *target], check=True)
    with open(log, errors="replace") as lines:
        headings, _units, *launches = csv.reader(line for line in lines if line.startswith('"'))
    columns = [headings.index(name) for name in names]
    return [[float(launch[column].replace(",", "")) for column in columns] for launch in launches]


def measure(table, program, out, seconds):
    """Measures until the time is used up. Groups of kinds take turns, so that all get their share."""
    begin, scratch = time.time(), tempfile.mkdtemp()
    os.makedirs(out, exist_ok=True)
    rows = read_table(table)
    with open(f"{out}/cycles.txt", "w") as file:
        subprocess.run([program, table, "0", str(len(rows)), "time"], stdout=file, check=True)
    indices = {name: [i for i, row in enumerate(rows) if group(row[0]) == name] for name in METRICS}
    # A slower counter, for some wide loads only.
    indices["instrumented"] = [i for i, row in enumerate(rows) if row[0] in ("ld8", "ld16")][:400]
    files, done = {}, dict.fromkeys(METRICS, 0)
    for name, index in indices.items():
        with open(f"{scratch}/{name}.txt", "w") as file:
            write_table([rows[i] for i in index], file)
        files[name] = open(f"{out}/{name}.csv", "w")
        print("row", *METRICS[name], sep=",", file=files[name])
    pace = dict.fromkeys(METRICS, 0.2)  # Seconds a row, at first a guess.
    while left := [name for name in METRICS if done[name] < len(indices[name])]:
        name = min(left, key=lambda name: done[name] / len(indices[name]))
        first, index = done[name], indices[name]
        last = min(first + (400 if first else 100), len(index))
        start = time.time()
        if start - begin + 1.2 * pace[name] * (last - first) > seconds:
            break
        launches = profile(METRICS[name], f"{scratch}/{name}.txt", program, first, last, f"{scratch}/log")
        assert len(launches) == last - first, (name, first, last, len(launches))
        for i, numbers in zip(index[first:last], launches):
            print(i, *(f"{n:g}" for n in numbers), sep=",", file=files[name])
        files[name].flush()
        done[name], pace[name] = last, (time.time() - start) / (last - first)
        print(f"{time.time() - begin:.0f} s: {name} {last} of {len(index)}", flush=True)


# --- keeping

DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
REPEATS = 16


def keep(table, out):
    """What was measured of each row of a table, one request at a time."""
    rows, measured = read_table(table), {}
    for name in METRICS:
        with open(f"{out}/{name}.csv") as file:
            names, *lines = csv.reader(file)
            for row, *numbers in lines:
                measured.setdefault(int(row), {}).update(zip(names[1:], map(float, numbers)))
    with open(f"{out}/cycles.txt") as file:
        cycles = {int(row): number for row, number in map(str.split, file)}
    for i, (kind, how, mask, at) in enumerate(rows):
        # Leaves its loop early where memory holds the result already: the cost depends on values.
        if i not in measured or kind == "min_u64":
            continue
        def request(metric):
            number = measured[i].get(metric)
            if number is None:
                return ""
            assert number % REPEATS == 0, (kind, number)
            return f"{number / REPEATS:.0f}"
        which = {"load": L1 + "ld", "store": L1 + "st", "atomic": L1 + "atom"}.get(group(kind))
        if which is None:
            op = {"ld": "ld", "st": "st", "re": "red"}.get(kind[1:3], "atom")
            assert request(REQUESTS + op) == "1"
            which = SECTORS + op
        if not request(which):
            continue
        loads = request(L1 + "ld") if kind in LOOPS else ""
        instrumented = request(SASS + "ld") if group(kind) == "load" else ""
        elements = [a // BYTES[kind] for a in at]
        offsets = "".join(DIGITS[e // 64] + DIGITS[e % 64] if mask >> lane & 1 else ".." for lane, e in enumerate(elements))
        print(kind, how, f"{mask:08x}", offsets, request(which), loads, instrumented, f"{float(cycles[i]):.1f}", sep=",")


if __name__ == "__main__":
    verb, *rest = sys.argv[1:]
    if verb == "table":
        write_table(families(int(rest[0])), sys.stdout)
    elif verb == "measure":
        measure(rest[0], rest[1], rest[2], float(rest[3]))
    elif verb == "keep":
        keep(*rest)
    else:
        sys.exit(__doc__)
