"""Compares the logits of the F32 file in moed with PyTorch's on held-out tokens.

Starts a deployment of its own (MOED_RUN in a fresh folder) and ends it again.
Fails when a logit differs by more than 1e-3.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch

import export

LIMIT = 1e-3


def moed_logits(moed, model, tokens, stepwise, folder):
    environment = {**os.environ, "MOED_RUN": f"{folder}/run"}
    subprocess.run([moed, "up", model], env=environment, check=True, stdout=subprocess.DEVNULL)
    try:
        out = f"{folder}/logits"
        how = ["--stepwise"] if stepwise else []
        subprocess.run([moed, "logits", *how, "--tokens", ",".join(map(str, tokens)), "-o", out],
                       env=environment, check=True, stdout=subprocess.DEVNULL)
        return np.fromfile(out, np.float32).reshape(len(tokens), -1)
    finally:
        subprocess.run([moed, "down"], env=environment, stdout=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--moed", required=True, help="the moed program")
    parser.add_argument("--work", type=pathlib.Path, required=True, help="work folder")
    parser.add_argument("--windows", type=int, default=3)
    parser.add_argument("--length", type=int, default=200)
    args = parser.parse_args()
    path = args.work / "latest-f32.gguf"
    model = export.load(path)
    held = np.load(args.work / "held.npy")
    worst = 0.0
    for row in held[:args.windows, :args.length].astype(np.int64):
        with torch.no_grad():
            want = model.logits(torch.from_numpy(row[None]))[0].numpy()
        for stepwise in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                got = moed_logits(args.moed, path, row, stepwise, folder)
            difference = float(np.abs(got - want).max())
            worst = max(worst, difference)
            print(f"{'stepwise' if stepwise else 'batch':8} {len(row)} tokens: largest difference {difference:.2e}, "
                  f"logits up to {np.abs(want).max():.1f}, first choice equal at "
                  f"{(got.argmax(-1) == want.argmax(-1)).mean() * 100:.1f} % of the tokens")
    if worst > LIMIT:
        sys.exit(f"largest difference {worst:.2e} is above {LIMIT}")


if __name__ == "__main__":
    main()
