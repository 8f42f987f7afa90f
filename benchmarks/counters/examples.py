"""Compares the costs that `tegula check` counts for `examples/cuda` with those of Nsight Compute.

    python3 examples.py run TEGULA DIRECTORY [FILE ...]    # on the GPU; NVRTC as for `check`; adds to DIRECTORY/measured.json
    python3 examples.py table DIRECTORY                    # prints the table

Every launch of `launches.json` without an expected finding runs with `--compare cuda:0`, under `ncu`.
Atomic operations count as stores. A cell is one number where both agree, and `ours/theirs` where they do not.
"""

import csv
import io
import json
import pathlib
import subprocess
import sys
import tempfile

from join import ASSEMBLED, STORES, WRITTEN

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "cuda"
# The metrics that add up to each counter; those of atomic operations on shared memory come with the instructions.
METRICS = {name: [metric] for name, metric in {**WRITTEN, **ASSEMBLED}.items()}
for name in ("requests", "sectors"):
    METRICS[f"global_store_{name}"] += [STORES.format(name).replace("_st", "_" + of) for of in ("red", "atom")]
HEADINGS = ["load requests", "load sectors", "store requests", "store sectors", "shared loads", "shared stores",
            "barriers", "conflicts", "results"]
# What the source page of a report says of one instruction.
EXECUTED, WAVEFRONTS, IDEAL = "Instructions Executed", "L1 Wavefronts Shared", "L1 Wavefronts Shared Ideal"


def right_launches():
    launches = json.loads((EXAMPLES / "launches.json").read_text())
    return [launch for launch in launches if not launch["findings"] and not launch["file"].startswith("bugs/")]


def command(tegula, launch):
    dimensions = lambda name: ",".join(map(str, launch[name]))
    words = [tegula, "check", str(EXAMPLES / launch["file"]), "--kernel", launch["kernel"],
             "--grid", dimensions("grid"), "--block", dimensions("block"), "--shared", str(launch["shared"])]
    for argument in launch["args"]:
        words += ["--arg", argument]
    return words


def page(report, name, *options):
    """A page of a report of ncu, as rows of which the first has the names."""
    text = subprocess.run(["ncu", "--import", report, "--csv", "--page", name, *options], check=True,
                          capture_output=True, text=True).stdout
    return list(csv.reader(io.StringIO(text)))


def measure(words, report):
    """What ncu counts of the kernel that a command runs: the metrics, and each access of shared memory or barrier."""
    metrics = ",".join(sum(METRICS.values(), []))
    subprocess.run(["ncu", "--clock-control", "none", "--metrics", metrics, "--section", "SourceCounters", "-f",
                    "-o", report, *words], check=True, capture_output=True, text=True)
    names, _units, *rows = page(f"{report}.ncu-rep", "raw")
    measured = {name: sum(int(float(row[names.index(metric)].replace(",", ""))) for row in rows for metric in metrics)
                for name, metrics in METRICS.items()}
    instructions, names = [], None
    for row in page(f"{report}.ncu-rep", "source", "--print-source", "sass"):
        if "Source" in row and EXECUTED in row:
            names = row
        elif names and len(row) == len(names):
            value = lambda name: int(row[names.index(name)] or 0)
            text = row[names.index("Source")]
            operation = next(word for word in text.split() if not word.startswith("@")).split(".")[0]
            if operation in ("BAR", "LDS", "STS", "ATOMS", "LDSM", "LDGSTS"):
                instructions.append({"text": text, "operation": operation, "executed": value(EXECUTED),
                                     "wavefronts": value(WAVEFRONTS), "ideal": value(IDEAL)})
    return {**measured, "instructions": instructions}


def run(tegula, directory, *files):
    file = pathlib.Path(directory) / "measured.json"
    results = json.loads(file.read_text()) if file.exists() else []
    report = str(pathlib.Path(tempfile.mkdtemp()) / "example")
    for launch in right_launches():
        if files and launch["file"] not in files:
            continue
        words = command(tegula, launch)
        ours = json.loads(subprocess.run([*words, "--json"], check=True, capture_output=True, text=True).stdout)
        counters = {name: ours["counters"][name] for name in (*METRICS, "barriers", "shared_bank_conflicts")}
        # Without --json: on a GPU, what a kernel prints would come between.
        words += ["--compare", "cuda:0"]
        compared = subprocess.run(words, capture_output=True, text=True)
        result = {"launch": launch, "counters": counters, "exit": compared.returncode,
                  "errors": compared.stderr, "gpu": measure(words, report)}
        results = [other for other in results if other["launch"] != launch] + [result]
        print(launch["file"], launch["kernel"], compared.returncode, flush=True)
        file.write_text(json.dumps(results, indent=1) + "\n")


def table(directory):
    results = json.loads((pathlib.Path(directory) / "measured.json").read_text())
    cells = differ = 0
    print("| kernel | grid | block | " + " | ".join(HEADINGS) + " |")
    print("|---" * (3 + len(HEADINGS)) + "|")
    for result in results:
        launch, counters, gpu = result["launch"], result["counters"], result["gpu"]
        instructions = gpu["instructions"]
        gpu["shared_store_wavefronts"] += sum(i["wavefronts"] for i in instructions if i["operation"] == "ATOMS")
        pairs = [(counters[name], gpu[name]) for name in METRICS]
        pairs.append((counters["barriers"], sum(i["executed"] for i in instructions if i["operation"] == "BAR")))
        excess = sum(i["wavefronts"] - i["ideal"] for i in instructions if i["operation"] in ("LDS", "STS", "ATOMS"))
        pairs.append((counters["shared_bank_conflicts"], excess))
        cells += len(pairs)
        differ += sum(ours != other for ours, other in pairs)
        texts = [str(ours) if ours == other else f"**{ours}/{other}**" for ours, other in pairs]
        texts.append("equal" if result["exit"] == 0 else "**differ**")
        sizes = ["×".join(map(str, launch[name])) for name in ("grid", "block")]
        print("| " + " | ".join([f"`{launch['kernel']}`", *sizes, *texts]) + " |")
    print(f"\n{cells} numbers, {differ} of them differ.")


if __name__ == "__main__":
    {"run": run, "table": table}[sys.argv[1]](*sys.argv[2:])
