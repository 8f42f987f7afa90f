"""Holds the costs that `tegula check` counts for `examples/cuda` against what Nsight Compute counted.

    python3 examples.py run TEGULA DIRECTORY    # on the GPU; NVRTC as for `check`; writes DIRECTORY/measured.json
    python3 examples.py table DIRECTORY         # prints the table

Every launch of `launches.json` without a mistake runs with `--compare cuda:0`, under `ncu`.
A cell is one number where both agree, and `ours/theirs` where they do not.
"""

import csv
import io
import json
import pathlib
import subprocess
import sys

from join import ASSEMBLED, WRITTEN

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "cuda"
METRICS = {**WRITTEN, **ASSEMBLED}
HEADINGS = ["load requests", "load sectors", "store requests", "store sectors", "shared loads", "shared stores",
            "barriers", "conflicts", "differs from the GPU"]
# What the source page of a report says of one instruction.
EXECUTED, WAVEFRONTS, IDEAL = "Instructions Executed", "L1 Wavefronts Shared", "L1 Wavefronts Shared Ideal"


def right_launches():
    launches = json.loads((EXAMPLES / "launches.json").read_text())
    return [launch for launch in launches if not launch["findings"] and not launch["file"].startswith("bugs/")]


def command(tegula, launch):
    dimensions = lambda name: ",".join(map(str, launch[name]))
    words = [tegula, "check", str(EXAMPLES / launch["file"]), "--kernel", launch["kernel"], "--json",
             "--grid", dimensions("grid"), "--block", dimensions("block"), "--shared", str(launch["shared"])]
    for argument in launch["args"]:
        words += ["--arg", argument]
    return [*words, "--compare", "cuda:0"]


def page(report, name, *options):
    """A page of a report of ncu, as rows of which the first has the names."""
    text = subprocess.run(["ncu", "--import", report, "--csv", "--page", name, *options], check=True,
                          capture_output=True, text=True).stdout
    return list(csv.reader(io.StringIO(text)))


def measure(words, report):
    """What ncu counts of the kernel that a command runs: the metrics, and each access of shared memory or barrier."""
    metrics = ",".join(METRICS.values())
    subprocess.run(["ncu", "--clock-control", "none", "--metrics", metrics, "--section", "SourceCounters", "-f",
                    "-o", report, *words], check=True, capture_output=True, text=True)
    names, _units, *rows = page(f"{report}.ncu-rep", "raw")
    measured = {name: sum(int(float(row[names.index(metric)].replace(",", ""))) for row in rows)
                for name, metric in METRICS.items()}
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


def run(tegula, directory):
    directory = pathlib.Path(directory)
    results = []
    for launch in right_launches():
        words = command(tegula, launch)
        ours = subprocess.run(words, capture_output=True, text=True)
        result = {"launch": launch, "exit": ours.returncode, "errors": ours.stderr}
        try:
            result["ours"] = json.loads(ours.stdout)
            result["theirs"] = measure(words, "/tmp/example")
        except (ValueError, subprocess.CalledProcessError) as error:
            result["failed"] = f"{error}\n{getattr(error, 'stderr', '')}\n{getattr(error, 'stdout', '')}"
        for text in ("lines", "output", "improvements"):
            result.get("ours", {}).pop(text, None)
        results.append(result)
        print(launch["file"], launch["kernel"], result.get("failed", "measured"), flush=True)
        (directory / "measured.json").write_text(json.dumps(results))


def table(directory):
    results = json.loads((pathlib.Path(directory) / "measured.json").read_text())
    cells = differ = 0
    print("| kernel | grid | block | " + " | ".join(HEADINGS) + " |")
    print("|---" * (3 + len(HEADINGS)) + "|")
    for result in results:
        launch, counters, theirs = result["launch"], result["ours"]["counters"], result["theirs"]
        instructions = theirs["instructions"]
        pairs = [(counters[name], theirs[name]) for name in METRICS]
        pairs.append((counters["barriers"], sum(i["executed"] for i in instructions if i["operation"] == "BAR")))
        excess = sum(i["wavefronts"] - i["ideal"] for i in instructions if i["operation"] in ("LDS", "STS", "ATOMS"))
        pairs.append((counters["shared_bank_conflicts"], excess))
        cells += len(pairs)
        differ += sum(ours != other for ours, other in pairs)
        texts = [str(ours) if ours == other else f"**{ours}/{other}**" for ours, other in pairs]
        compared = result["ours"]["compared"] or {}
        texts.append(" ".join(f"{name} {value}" for name, value in compared.items()) if compared else "")
        sizes = ["×".join(map(str, launch[name])) for name in ("grid", "block")]
        print("| " + " | ".join([f"`{launch['kernel']}`", *sizes, *texts]) + " |")
    print(f"\n{cells} numbers, {differ} of them differ.")


if __name__ == "__main__":
    {"run": run, "table": table}[sys.argv[1]](*sys.argv[2:])
