#!/usr/bin/env python3
"""Compare moed with ik_llama.cpp's or llama.cpp's llama-bench: the same GGUF files and threads, in turns.

    bench/peer/llama_bench.py LLAMA_BENCH MODEL... [--threads 1,2] [--rounds 5] [-- OPTION...]

A round measures a prompt of --prompt tokens and an answer of --generate tokens from the first position on: llama-bench
does, then moed-bench, each --runs times. The table has medians of the rounds, and the median of the rounds' ratios.
OPTIONs go to llama-bench: `-rtr 1` has ik_llama.cpp repack the weights at its start.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def parse_options():
    own, rest = sys.argv[1:], []
    if "--" in own:
        own, rest = own[: own.index("--")], own[own.index("--") + 1 :]
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("llama_bench", type=Path, metavar="LLAMA_BENCH")
    p.add_argument("models", type=Path, metavar="MODEL", nargs="+")
    p.add_argument("--build", type=Path, default=ROOT / "build/release", help="moed's build folder (%(default)s)")
    p.add_argument("--threads", default="1,2", help="counts of threads (%(default)s)")
    p.add_argument("--prompt", type=int, default=512, help="tokens of the prompt (%(default)s)")
    p.add_argument("--generate", type=int, default=64, help="tokens of the answer (%(default)s)")
    p.add_argument("--rounds", type=int, default=5, help="rounds of both programs in turns (%(default)s)")
    p.add_argument("--runs", type=int, default=3, help="runs within a round (%(default)s)")
    o = p.parse_args(own)
    o.threads, o.rest = [int(t) for t in o.threads.split(",")], rest
    return o


def answer(command, threads):
    done = subprocess.run(
        [str(c) for c in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, range(threads)),
    )
    if done.returncode:
        sys.exit(f"bench/peer/llama_bench.py: {command[0]} ended with {done.returncode}: {done.stderr[-500:]}")
    return json.loads(done.stdout)


def of_peer(o, model, threads):
    sizes = ["-p", o.prompt, "-n", o.generate, "-t", threads, "-r", o.runs, "-o", "json"]
    rows = answer([o.llama_bench, "-m", model, *sizes, *o.rest], threads)
    speed = {"prefill" if r["n_prompt"] else "decode": statistics.median(r["samples_ts"]) for r in rows}
    return speed["prefill"], speed["decode"]


def of_moed(o, model, threads):
    sizes = ["--prompt-tokens", f"1,{o.prompt}", "--generate", o.generate, "--parallel", 1, "--threads", threads]
    rows = answer([o.build / "bench/moed-bench", "--model", model, *sizes, "--runs", o.runs, "--json"], threads)["rows"]
    by_prompt = {r["prompt_tokens"]: r for r in rows}
    return by_prompt[o.prompt]["prefill_tokens_per_s"]["median"], by_prompt[1]["decode_tokens_per_s"]["median"]


def cell(pairs):
    ratio = statistics.median(m / p for m, p in pairs)
    least, most = min(m / p for m, p in pairs), max(m / p for m, p in pairs)
    moed, peer = (statistics.median(v) for v in zip(*pairs))
    return f"{moed:.0f} / {peer:.0f} = **{ratio:.2f}** ({least:.2f} to {most:.2f})"


def main():
    o = parse_options()
    print(f"| model | threads | prefill {o.prompt} | decode {o.generate} |\n|---|---:|---:|---:|")
    for model in o.models:
        for threads in o.threads:
            rounds = [(of_moed(o, model, threads), of_peer(o, model, threads)) for _ in range(o.rounds)]
            prefill, decode = ([(m[i], p[i]) for m, p in rounds] for i in (0, 1))
            print(f"| {model.stem} | {threads} | {cell(prefill)} | {cell(decode)} |", flush=True)


if __name__ == "__main__":
    main()
