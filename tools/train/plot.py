"""Draws the loss curve of a training run from WORK/loss.csv."""
import argparse
import csv
import pathlib

import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt

SMOOTH = 0.05  # share of the newest step in the drawn training loss


def read(path):
    """Rows by step; where a run was taken up again, the later row of a step counts."""
    with open(path) as f:
        rows = {int(r["step"]): r for r in csv.DictReader(f)}
    return [rows[step] for step in sorted(rows)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=pathlib.Path, required=True, help="work folder")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the picture (.png)")
    args = parser.parse_args()
    rows = read(args.work / "loss.csv")
    train = [(int(r["tokens"]) / 1e6, float(r["loss"])) for r in rows if r["loss"]]
    held = [(int(r["tokens"]) / 1e6, float(r["held_loss"])) for r in rows if r["held_loss"]]
    smooth, value = [], train[0][1]
    for _, loss in train:
        value += SMOOTH * (loss - value)
        smooth.append(value)
    plt.figure(figsize=(7, 3.6), dpi=80)
    plt.plot([x for x, _ in train], [y for _, y in train], color="#c8d4e3", linewidth=0.7, label="training, a step")
    plt.plot([x for x, _ in train], smooth, color="#1f4e79", label="training, smoothed")
    plt.plot(*zip(*held), "o-", color="#c0392b", markersize=3, label="held out")
    plt.xlabel("million tokens")
    plt.ylabel("loss, nats a token")
    plt.ylim(top=min(7, max(y for _, y in train)))
    plt.grid(alpha=0.3)
    plt.legend()
    plt.tight_layout()
    plt.savefig(args.out)


if __name__ == "__main__":
    main()
