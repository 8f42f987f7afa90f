"""Holds what the interpreter counts against what Nsight Compute counted, and prints a table.

    ncu --clock-control none --csv --page raw --metrics METRICS gpu_counters --launch > raw.csv    # METRICS: python3 join.py --metrics
    ncu --clock-control none --csv --page source --print-source sass --section SourceCounters gpu_counters --launch > source.csv
    gpu_counters > counts.jsonl                                   # with ptxas and nvdisasm; no GPU
    python3 join.py counts.jsonl raw.csv source.csv

A cell is one number where both agree, and `ours/theirs` where they do not.
"""

import csv
import json
import sys

LOADS, STORES = "l1tex__t_{}_pipe_lsu_mem_global_op_ld.sum", "l1tex__t_{}_pipe_lsu_mem_global_op_st.sum"
SHARED = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
FMA = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
WRITTEN = {
    "global_load_requests": LOADS.format("requests"),
    "global_load_sectors": LOADS.format("sectors"),
    "global_store_requests": STORES.format("requests"),
    "global_store_sectors": STORES.format("sectors"),
}
ASSEMBLED = {
    "shared_load_wavefronts": SHARED.format("ld"),
    "shared_store_wavefronts": SHARED.format("st"),
}
METRICS = [*WRITTEN.values(), *ASSEMBLED.values(), FMA.format("ffma"), FMA.format("dfma")]
HEADINGS = ["load requests", "load sectors", "store requests", "store sectors", "barriers", "as written",
            "shared loads", "shared stores", "conflicts", "multiply-adds"]


def quoted(file):
    """The rows of a file of ncu, which are among the lines that the program wrote."""
    with open(file, errors="replace") as lines:
        return list(csv.reader(line for line in lines if line.startswith('"')))


def launches(file):
    """What ncu measured of each launch."""
    names, _units, *rows = quoted(file)
    return [{name: int(float(row[names.index(name)].replace(",", ""))) for name in METRICS} for row in rows]


def instructions(file):
    """Of each launch, how often warps came to a barrier, and the wavefronts of loads and stores of shared memory beyond the ideal."""
    launches, names = [], None
    for row in quoted(file):
        if row[0] == "Kernel Name":
            launches.append([0, 0])
        elif row[0] == "Address":
            names = row
        else:
            number = lambda name: int(row[names.index(name)] or 0)
            operation = next(word for word in row[1].split() if not word.startswith("@")).split(".")[0]
            if operation == "BAR":
                launches[-1][0] += number("Instructions Executed")
            elif operation in ("LDS", "STS"):
                launches[-1][1] += number("L1 Wavefronts Shared") - number("L1 Wavefronts Shared Ideal")
    return launches


def main(counts, raw, source):
    with open(counts) as lines:
        ours = [json.loads(line) for line in lines]
    theirs, sources = launches(raw), instructions(source)
    assert len(ours) == len(theirs) == len(sources), (len(ours), len(theirs), len(sources))
    differ = cells = 0
    print("| kernel | m n k | " + " | ".join(HEADINGS) + " |")
    print("|---" * (2 + len(HEADINGS)) + "|")
    for one, other, (wait, excess) in zip(ours, theirs, sources):
        written, assembled = one["written"], one["assembled"]
        pairs = [(written[name], other[metric]) for name, metric in WRITTEN.items()]
        pairs.append((written["barriers"], wait))
        shared = [(assembled[name], other[metric]) for name, metric in ASSEMBLED.items()]
        conflicts = assembled["shared_load_conflicts"] + assembled["shared_store_conflicts"]
        shared.append((conflicts, excess))
        fma = other[FMA.format("ffma")] + other[FMA.format("dfma")]
        # Matrix instructions and integers have no metric of this kind.
        unmeasured = "mma" in one["kernel"] or "_i32_" in one["kernel"]
        multiply = (written["fma"], written["fma"] if unmeasured else fma)
        all_pairs = [*pairs, *shared, multiply]
        cells += len(all_pairs) - unmeasured
        differ += sum(a != b for a, b in all_pairs)
        cell = lambda pair: str(pair[0]) if pair[0] == pair[1] else f"**{pair[0]}/{pair[1]}**"
        as_written = f'{written["shared_load_wavefronts"]}, {written["shared_store_wavefronts"]}'
        row = [*map(cell, pairs), as_written, *map(cell, shared), "" if unmeasured else cell(multiply)]
        print(f'| {one["kernel"]} | {" ".join(map(str, one["shape"]))} | ' + " | ".join(row) + " |")
    print(f"\n{cells} numbers, {differ} of them differ.")


if __name__ == "__main__":
    if sys.argv[1:] == ["--metrics"]:
        print(",".join(METRICS))
    else:
        main(*sys.argv[1:])
