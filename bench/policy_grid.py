#!/usr/bin/env python3
"""Prints the tables of bench/results/policy-grid.md from the CSV files of bench/policy_grid.sh.

usage: bench/policy_grid.py DIR

A cell is a shape, a locality, a share of the device and a number of sequences. In each, moed is compared with the best
of all other policies there, fixed half-lives included; a tie is within 2 %."""
import csv
import glob
import math
import os
import sys

TIE = 0.02
BOUNDS = {"moed/cache=belady"}  # knows the future


def read_cells(folder, column):
    cells = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.csv"))):
        name = os.path.basename(path)[: -len(".csv")]
        shape_locality, kind = name.rsplit(".", 1)
        shape, locality = shape_locality.split(".", 1)
        with open(path, newline="") as f:
            for row in csv.DictReader(f):
                cell = (shape, float(locality), round(100 * float(row["vram"])), int(row["batch"]))
                policy = kind if kind.startswith("fixed") or kind == "before" else row["policy"]
                if row[column]:
                    cells.setdefault(cell, {})[policy] = float(row[column])
    return {k: v for k, v in cells.items() if "moed" in v and len(v) > 6}


def others(values):
    return {p: v for p, v in values.items() if p not in BOUNDS and p not in ("moed", "before")}


def verdict(ratio):
    return "win" if ratio > 1 + TIE else "loss" if ratio < 1 - TIE else "tie"


def print_counts(cells):
    print("| shape | cells | wins | ties | losses | mean over the best other | worst |")
    print("|---|---|---|---|---|---|---|")
    for shape in sorted({c[0] for c in cells}) + ["all"]:
        ratios = [v["moed"] / max(others(v).values()) for c, v in cells.items() if shape in (c[0], "all")]
        n = {w: sum(verdict(r) == w for r in ratios) for w in ("win", "tie", "loss")}
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"| {shape} | {len(ratios)} | {n['win']} | {n['tie']} | {n['loss']} | {mean:.3f} | {min(ratios):.3f} |")


def print_means(cells):
    policies = sorted({p for v in cells.values() for p in v} - {"moed"})
    localities = sorted({c[1] for c in cells})
    print("| moed over | " + " | ".join(f"locality {x:g}" for x in localities) + " | least | most |")
    print("|---" * (len(localities) + 3) + "|")
    for policy in policies:
        row, every = [], []
        for locality in localities:
            ratios = [v["moed"] / v[policy] for c, v in cells.items() if c[1] == locality and policy in v]
            every += ratios
            row.append(f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.3f}" if ratios else "")
        print(f"| `{policy}` | " + " | ".join(row) + f" | {min(every):.3f} | {max(every):.3f} |")


def print_losses(cells):
    print("| shape | locality | device | sequences | moed / best other | best other |")
    print("|---|---|---|---|---|---|")
    for cell, values in sorted(cells.items()):
        best = max(others(values), key=others(values).get)
        ratio = values["moed"] / values[best]
        if verdict(ratio) == "loss":
            print(f"| {cell[0]} | {cell[1]:g} | {cell[2]} % | {cell[3]} | {ratio:.3f} | `{best}` |")


def main():
    for column, title in (("decode_tokens_per_s", "Decode"), ("prefill_tokens_per_s", "Prefill")):
        cells = read_cells(sys.argv[1], column)
        print(f"\n{title}, {len(cells)} cells\n")
        print_counts(cells)
        print()
        print_means(cells)
        print("\nLosses:\n")
        print_losses(cells)


if len(sys.argv) != 2:
    sys.exit(__doc__)
main()
