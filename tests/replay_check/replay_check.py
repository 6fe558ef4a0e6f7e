#!/usr/bin/env python3
"""Compares moed-replay with a second simulator (simulator.py): hits exactly, times to 1e-6, the bound.

usage: replay_check.py MOED_REPLAY"""
import csv
import os
import subprocess
import sys
import tempfile

try:
    import numpy  # noqa: F401
except ImportError:
    DEBIAN = "/usr/bin/python3"  # another Python may come first in PATH
    if os.path.realpath(sys.executable) != os.path.realpath(DEBIAN) and os.path.exists(DEBIAN):
        os.execv(DEBIAN, [DEBIAN, "-B", *sys.argv])
    print("skipped: numpy is missing (package python3-numpy)")
    sys.exit(77)

import simulator
import trace_file

TOLERANCE = 1e-6
BOUND_TOLERANCE = 1e-3  # moed-replay's bound takes the CPU's share in steps; it is the lower one
EXACT = ("decode_tokens", "prefill_tokens")

UNITS = {"dram": "B/s", "cpu": "B/s", "cpu-compute": "GFLOP/s", "link": "B/s", "device": "B/s",
         "device-compute": "GFLOP/s", "vram": "B", "ram": "B"}
DESKTOP = {"dram": 71.7e9, "cpu": 64.5e9, "cpu-compute": 1.35e12, "link": 12.4e9, "device": 245e9,
           "device-compute": 22e12, "link-latency": 2e-6, "cpu-call": 30e-6, "device-call": 15e-6, "attention": 50e-6,
           "plan-expert": 60e-9, "predict-call": 8e-6, "predict-gate": 15e-6, "vram": 16e9, "ram": 64e9}
MACHINES = {
    "desktop": DESKTOP,
    # The link needs more than half of the memory, so both sides slow down.
    "contended": {**DESKTOP, "dram": 60e9, "cpu": 50e9, "link": 40e9, "plan-expert": 1e-6},
    # Computing takes longer than loading, and a call longer than a load.
    "slow-device": {**DESKTOP, "device": 10e9, "device-compute": 1e12, "link": 25e9, "device-call": 200e-6},
}
TRACES = {
    "one-segment": "--layers 4 --experts 16 --topk 2 --tokens 400 --sequence 80 --prompt 20 --seed 11",
    "dense-layer": "--layers 5 --first-layer 1 --experts 24 --topk 4 --tokens 200 --sequence 50 --prompt 20 --seed 12 "
                   "--locality 0.8 --skew 0.6 --segment-bytes 300000",
    "two-segments": "--layers 3 --experts 8 --topk 2 --segments 2 --tokens 400 --sequence 200 --prompt 140 --seed 13",
    "long-prompt": "--layers 2 --experts 12 --topk 3 --tokens 1260 --sequence 630 --prompt 600 --seed 14",
}
CELLS = [("one-segment", "desktop", "15%,25%,60%,100%", "1,3"), ("one-segment", "contended", "25%", "1,4"),
         ("dense-layer", "desktop", "30%,60%", "1,2"), ("dense-layer", "slow-device", "30%", "1,3"),
         ("two-segments", "contended", "40%,70%", "1,2"), ("two-segments", "slow-device", "40%", "1"),
         ("long-prompt", "desktop", "50%", "1,2")]


def write_machine(path, name, machine):
    with open(path, "w", encoding="ascii") as f:
        print(f"name = {name}\nwhat = a machine of this test", file=f)
        for key, value in machine.items():
            unit = UNITS.get(key, "s")
            print(f"{key} = {value / 1e9 if unit == 'GFLOP/s' else value:.17g} {unit}", file=f)


def replay(program, trace, machine, vram, batch, out):
    subprocess.run([program, trace, "--machine", machine, "--vram", vram, "--batch", batch, "--policies",
                    ",".join(simulator.POLICIES), "--csv", out], check=True, stdout=subprocess.DEVNULL)
    with open(out, newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f))


def differences(row, mine):
    for key, value in mine.items():
        if key in ("hits", "segments") or value is None:
            continue
        theirs = float(row[key])
        if abs(theirs - value) > (0 if key in EXACT else TOLERANCE * abs(value)):
            yield f"{key} {theirs:.12g}, computed here {value:.12g}"
    hits = float(row["hit_rate"]) * mine["segments"]
    if round(hits) != mine["hits"]:
        yield f"hits {hits:.3f}, computed here {mine['hits']}"


def bound_differences(row, run, misses):
    mine, theirs = run.bound_s(misses) / run.decode["seconds"], float(row["bound"])
    if not (1 - BOUND_TOLERANCE) * mine <= theirs <= (1 + 1e-9) * mine:
        yield f"bound {theirs:.9g}, computed here {mine:.9g}"


def check(program, folder):
    n_rows, failures = 0, []
    for name, options in TRACES.items():
        path = os.path.join(folder, name)
        subprocess.run([program, "--synthesize", *options.split(), "-o", path], check=True)
    for name, machine in MACHINES.items():
        write_machine(os.path.join(folder, name + ".machine"), name, machine)
    for trace_name, machine, vram, batch in CELLS:
        path = os.path.join(folder, trace_name)
        trace = trace_file.read_trace(path)
        rows = replay(program, path, os.path.join(folder, machine + ".machine"), vram, batch, os.path.join(folder, "csv"))
        futures = {}
        misses = {}
        for row in rows:
            share, sequences = float(row["vram"]), int(row["batch"])
            if sequences not in futures:
                steps = list(simulator.uses_of(trace, sequences))
                futures[sequences] = steps, simulator.Future(steps)
            run = simulator.Replay(trace, MACHINES[machine], row["policy"], share, *futures[sequences])
            if (share, sequences) not in misses:
                misses[share, sequences] = run.least_misses()
            found = list(differences(row, run.run())) + list(bound_differences(row, run, misses[share, sequences]))
            failures += [f"{trace_name} on {machine}, vram {row['vram']}, batch {row['batch']}, {row['policy']}: {text}"
                         for text in found]
            n_rows += 1
    return n_rows, failures


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        n_rows, failures = check(sys.argv[1], folder)
    print("\n".join(failures[:40]))
    if not n_rows or failures:
        sys.exit(f"{len(failures)} differences in {n_rows} rows")
    print(f"{n_rows} rows agree")


main()
