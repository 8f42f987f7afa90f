"""Joins runs of `tegula bench --device cpu` into one file of a type, and draws it.

    python3 benchmarks/cpu.py benchmarks/cpu-f32 one.json two.json …

Writes `cpu-f32.json`, a row for each shape and number of threads from the last file that has it, and
`cpu-f32.svg`, bars of the ratio (the fastest peer's time by ours); with three numbers of threads or
more also `cpu-f32-threads.svg`, the speed against them. `runs` in the object has the commands.
"""

import json
import math
import sys
from pathlib import Path

WIDTH, BAR, GAP, LEFT, MOST = 860, 11, 7, 150, 2.0
COLORS = ["#3465a4", "#e08030", "#4e9a06", "#75507b", "#c4a000"]
PANELS, PANEL = 5, (170, 130)


def joined(paths):
    """One object of several runs."""
    runs = [json.loads(Path(path).read_text()) for path in paths]
    if len({run["machine"].split(",")[0] for run in runs}) > 1:
        sys.exit("these runs are of different machines")
    rows = {}
    for run in runs:
        for row in run["rows"]:
            rows[tuple(row[key] for key in ("dtype", "layout", "batch", "m", "n", "k", "threads"))] = row
    whole = {"machine": runs[0]["machine"].split(",")[0]}
    # A file may be of several runs already.
    names = [run["peers"] if "peers" in run else (run["peer"] or "").split(", ") for run in runs]
    whole["peers"] = sorted({peer for some in names for peer in some if peer})
    single = [one for run in runs for one in run.get("runs", [run])]
    whole["runs"] = [{key: run[key] for key in ("version", "seed", "command")} for run in single]
    whole["rows"] = list(rows.values())
    return whole


def mean(rows):
    """The geometric mean of ratios."""
    return math.exp(sum(math.log(row["ratio"]) for row in rows) / len(rows))


def drawn(whole):
    """Bars of ratios, a group for each shape, with a line at 1."""
    rows = [row for row in whole["rows"] if row["ratio"]]
    shapes = list(dict.fromkeys((row["m"], row["n"], row["k"]) for row in rows))
    threads = sorted({row["threads"] for row in rows})
    colors = dict(zip(threads, COLORS * len(threads)))
    scale = (WIDTH - LEFT - 60) / MOST
    height = 50 + len(shapes) * (len(threads) * BAR + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    means = "; ".join(
        f"{count} thread{'s' if count > 1 else ''} {mean([row for row in rows if row['threads'] == count]):.3f}" for count in threads
    )
    dtype = rows[0]["dtype"]
    parts.append(f'<text x="8" y="16" font-size="13">{dtype}: time of the fastest peer by ours; geometric mean {means}</text>')
    for i, count in enumerate(threads):
        parts.append(f'<rect x="{8 + 90 * i}" y="24" width="9" height="9" fill="{colors[count]}"/>')
        parts.append(f'<text x="{21 + 90 * i}" y="33">{count} thread{"s" if count > 1 else ""}</text>')
    y = 44
    for shape in shapes:
        label = "×".join(map(str, shape))
        parts.append(f'<text x="{LEFT - 6}" y="{y + len(threads) * BAR / 2 + 4}" text-anchor="end">{label}</text>')
        for count in threads:
            for row in rows:
                if (row["m"], row["n"], row["k"], row["threads"]) == (*shape, count):
                    wide = min(row["ratio"], MOST) * scale
                    parts.append(f'<rect x="{LEFT}" y="{y}" width="{wide:.1f}" height="{BAR - 1}" fill="{colors[count]}"/>')
                    parts.append(f'<text x="{LEFT + wide + 4:.1f}" y="{y + 9}">{row["ratio"]:.2f} {row["peer"]}</text>')
            y += BAR
        y += GAP
    one = LEFT + scale
    parts.append(f'<line x1="{one}" y1="40" x2="{one}" y2="{height - 8}" stroke="black" stroke-dasharray="3 3"/>')
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def curves(whole):
    """Speed against the number of threads, a panel for each shape: ours, and the fastest peer dashed."""
    threads = sorted({row["threads"] for row in whole["rows"]})
    shapes = {}
    for row in whole["rows"]:
        if row["us"]:
            shapes.setdefault((row["m"], row["n"], row["k"]), []).append(row)
    wide, high = PANEL
    size = f'width="{PANELS * wide + 10}" height="{30 + -(-len(shapes) // PANELS) * high}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="10">',
        f'<rect {size} fill="white"/>',
        f'<text x="8" y="18" font-size="13">{whole["rows"][0]["dtype"]}: TFLOP/s with {", ".join(map(str, threads))} threads, the most above each panel;'
        f' <tspan fill="{COLORS[0]}">Tegula</tspan>, <tspan fill="{COLORS[1]}">the fastest peer (dashed)</tspan></text>',
    ]
    for i, (shape, rows) in enumerate(shapes.items()):
        left, top = 14 + i % PANELS * wide, 44 + i // PANELS * high
        width, height = wide - 30, high - 42
        rows.sort(key=lambda row: row["threads"])
        most = max(max(row["tflops"], row["peer_tflops"] or 0) for row in rows)
        parts.append(f'<text x="{left}" y="{top}">{"×".join(map(str, shape))}: {most:.3g}</text>')
        parts.append(f'<path d="M{left} {top + 6}v{height}h{width}" fill="none" stroke="#888"/>')
        for key, color, dash in [("tflops", COLORS[0], "none"), ("peer_tflops", COLORS[1], "4 2")]:
            points = [
                f'{left + threads.index(row["threads"]) * width / (len(threads) - 1):.1f},{top + 6 + height * (1 - row[key] / most):.1f}'
                for row in rows
                if row[key]
            ]
            if points:
                line = f'stroke="{color}" stroke-dasharray="{dash}" stroke-width="1.5"'
                parts.append(f'<polyline points="{" ".join(points)}" fill="none" {line}/>')
        for at, count in enumerate(threads):
            x = left + at * width / (len(threads) - 1)
            parts.append(f'<text x="{x:.1f}" y="{top + height + 18}" text-anchor="middle" fill="#555">{count}</text>')
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def main():
    """Joins, writes, draws, and prints the means."""
    out, *paths = sys.argv[1:]
    whole = joined(paths)
    Path(f"{out}.json").write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
    if whole["peers"]:
        Path(f"{out}.svg").write_text(drawn(whole))
    if len({row["threads"] for row in whole["rows"]}) > 2:
        Path(f"{out}-threads.svg").write_text(curves(whole))
    of_peers = [row for row in whole["rows"] if row["ratio"]]
    for count in sorted({row["threads"] for row in of_peers}):
        rows = [row for row in of_peers if row["threads"] == count]
        print(out, count, "threads:", len(rows), "rows, geometric mean", round(mean(rows), 3))


if __name__ == "__main__":
    main()
