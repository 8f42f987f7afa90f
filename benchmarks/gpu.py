"""Joins runs of `tegula bench --device cuda:0` into one file, and draws it.

    python3 benchmarks/gpu.py benchmarks/h200-bf16 [one.json two.json …]

Adds the rows of the files to those of `h200-bf16.json`; the last row of a product replaces earlier
ones. Draws `h200-bf16.svg`: bars of the ratio (the peer's time by ours), a group per shape, a bar per
layout; for more than 50 shapes a point each, in increasing order. `command` and `more` in the object
are the commands that measured the rows.
"""

import json
import math
import sys
from pathlib import Path

from cpu import mean

WIDTH, BAR, GAP, LEFT, RIGHT, TOP, TALL, MANY = 860, 9, 7, 130, 60, 62, 420, 50
COLORS = ["#3465a4", "#e08030", "#4e9a06", "#75507b"]


def joined(paths):
    """One object of several runs on the same GPU."""
    runs = [json.loads(Path(path).read_text()) for path in paths]
    if len({(run["machine"], run["driver"], run["peer"]) for run in runs}) != 1:
        sys.exit("these are no runs, or of different machines, drivers or peers")
    rows = {}
    for run in runs:
        for row in run["rows"]:
            if row["ratio"]:
                rows[tuple(row[key] for key in ("dtype", "layout", "batch", "m", "n", "k", "epilogue"))] = row
    commands = [command for run in runs for command in [run["command"], *run.get("more", [])]]
    first, *more = dict.fromkeys(commands)
    return {**{key: value for key, value in runs[0].items() if key != "rows"}, "command": first, "more": more, "rows": list(rows.values())}


def text(x, y, content, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{content}</text>'


def shape(row):
    sizes = [row[key] for key in "mnk"]
    return f"{sizes[0]}³" if len(set(sizes)) == 1 else "×".join(map(str, sizes))


def legend(colors):
    """A square and a name for each color."""
    places = [(LEFT + 130 * i, name, color) for i, (name, color) in enumerate(colors.items())]
    squares = [f'<rect x="{x}" y="28" width="9" height="9" fill="{color}"/>' for x, _, color in places]
    return squares + [text(x + 13, 37, name) for x, name, _ in places]


def bars(rows):
    """A group per shape, a bar per layout, a line at 1; and the height."""
    layouts = list(dict.fromkeys(row["layout"] for row in rows))
    colors = dict(zip(layouts, COLORS))
    scale = (WIDTH - LEFT - RIGHT) / max(2, *(row["ratio"] for row in rows))
    parts, y = legend(colors), TOP
    for name in dict.fromkeys(map(shape, rows)):
        group = [row for row in rows if shape(row) == name]
        parts.append(text(LEFT - 6, y + len(group) * BAR / 2 + 4, name, 'text-anchor="end"'))
        for row in group:
            wide = row["ratio"] * scale
            parts.append(f'<rect x="{LEFT}" y="{y}" width="{wide:.1f}" height="{BAR - 1}" fill="{colors[row["layout"]]}"/>')
            parts.append(text(LEFT + wide + 4, y + 8, f'{row["ratio"]:.3f}', 'font-size="9"'))
            y += BAR
        y += GAP
    one = LEFT + scale
    return [*parts, f'<line x1="{one:.1f}" y1="{TOP - 6}" x2="{one:.1f}" y2="{y}" stroke="black" stroke-dasharray="3 3"/>'], y + 10


def points(rows):
    """A point per shape, its ratio on a logarithmic axis; and the height."""
    rows = sorted(rows, key=lambda row: row["ratio"])
    colors = {"multiples of 8": COLORS[0], "other sizes": COLORS[1]}
    low, high = math.log(min(0.5, rows[0]["ratio"])), math.log(max(2, rows[-1]["ratio"]))
    level = lambda ratio: TOP + (high - math.log(ratio)) / (high - low) * (TALL - TOP - 20)
    parts = legend(colors)
    for mark in (mark for mark in (0.5, 0.8, 1, 1.25, 2, 4, 8, 16) if low <= math.log(mark) <= high):
        y, dashes = level(mark), "" if mark == 1 else 'stroke-dasharray="2 4"'
        parts += [f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - 20}" y2="{y:.1f}" stroke="#888" {dashes}/>', text(LEFT - 34, y + 4, mark)]
    for i, row in enumerate(rows):
        x = LEFT + (i + 0.5) * (WIDTH - LEFT - 20) / len(rows)
        color = colors["other sizes" if any(row[key] % 8 for key in "mnk") else "multiples of 8"]
        label = f'{shape(row)}: {row["ratio"]:.3f}'
        parts.append(f'<circle cx="{x:.1f}" cy="{level(row["ratio"]):.1f}" r="3" fill="{color}"><title>{label}</title></circle>')
    return parts, TALL


def summary(rows):
    """A summary of ratios: count, geometric mean, 5th percentile, worst."""
    ratios = sorted(row["ratio"] for row in rows)
    fifth = ratios[max(0, math.ceil(len(ratios) / 20) - 1)]
    return f"{len(ratios)} rows, geometric mean {mean(rows):.3f}, 5th percentile {fifth:.3f}, worst {ratios[0]:.3f}"


def drawn(whole):
    rows = whole["rows"]
    parts, height = (bars if len(set(map(shape, rows))) <= MANY else points)(rows)
    title = f'{", ".join(dict.fromkeys(row["dtype"] for row in rows))}, {whole["machine"]}: time of {whole["peer"]} by ours; {summary(rows)}'
    start = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="11">'
    ground = f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
    return "\n".join([start, ground, text(8, 16, title, 'font-size="12"'), *parts, "</svg>"]) + "\n"


def main():
    """Joins, writes, draws, and prints the means."""
    out, *paths = sys.argv[1:]
    kept = Path(f"{out}.json")
    whole = joined([kept, *paths] if kept.exists() else paths)
    if paths:
        kept.write_text(json.dumps(whole, indent=2, ensure_ascii=False) + "\n")
    Path(f"{out}.svg").write_text(drawn(whole))
    print(out, summary(whole["rows"]))
    for name, which in (("multiples of 8", True), ("others", False)):
        rows = [row for row in whole["rows"] if which != any(row[key] % 8 for key in "mnk")]
        if rows:
            print(f"  {name}: {summary(rows)}")


if __name__ == "__main__":
    main()
