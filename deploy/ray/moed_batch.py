#!/usr/bin/env python3
"""Answers a file of prompts on a Ray cluster. docs/ray.md describes it.

    python3 moed_batch.py --model /models/model.gguf --input prompts.jsonl --output answers/ --nodes 4

INPUT has a JSON object a line: `prompt` or `messages`, perhaps `id`, and parameters of the HTTP API. OUTPUT gets part-*.jsonl. The same
command again answers what has no answer yet. What follows `--` are options of `moed up`."""
from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from moed_ray.batch_input import done_ids, read_rows  # noqa: E402
from moed_ray.settings import Settings  # noqa: E402


def arguments(argv: list[str]) -> argparse.Namespace:
    own, up = (argv[: argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv, [])
    p = argparse.ArgumentParser(description="Answer a file of prompts on a Ray cluster.", epilog="-- OPTIONS: of `moed up`")
    p.add_argument("--model", required=True, help="the GGUF file, on every node at this path; or demo")
    p.add_argument("--input", required=True, help="prompts, a JSON object a line")
    p.add_argument("--output", required=True, metavar="DIR", help="the folder of the answers; what it has is not computed again")
    p.add_argument("--parameters", type=json.loads, default={}, metavar="JSON", help='for all rows, as {"max_tokens": 200}')
    p.add_argument("--nodes", type=int, default=1, help="nodes that compute [%(default)s]")
    p.add_argument("--parallel", type=int, default=8, help="requests that a node computes at once [%(default)s]")
    p.add_argument("--batch", type=int, default=0, metavar="ROWS", help="rows that come back together [4 times --parallel]")
    p.add_argument("--moed", default="moed", help="the program moed, on every node [%(default)s]")
    p.add_argument("--num-cpus", type=float, default=1, help="CPUs of Ray that a node's actor takes [%(default)s]")
    p.add_argument("--resource", default="", help="Ray's resource that nodes must have one of, as NAME")
    p.add_argument("--directory", default="", help="where the nodes' runtime directories are [/tmp/moed-ray-UID]")
    a = p.parse_args(own)
    a.up = up
    return a


def answer(a: argparse.Namespace, rows: list[dict[str, Any]], out: Any) -> tuple[int, int]:
    """Writes the answers as they come. Returns how many there are, and how many failed."""
    import ray  # late: it takes a second, and wrong arguments need none
    import ray.data

    from moed_ray.batch import Answers

    ray.init(runtime_env={"working_dir": HERE, "excludes": ["*.md"]}, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    size = a.batch or 4 * a.parallel
    settings = Settings(a.model, a.moed, a.up, parallel=a.parallel, directory=a.directory)
    data = ray.data.from_items([{"row": json.dumps(row)} for row in rows], override_num_blocks=max(1, -(-len(rows) // size)))
    resources: dict[str, Any] = {"resources": {a.resource: 1}} if a.resource else {}
    answers = data.map_batches(
        Answers, batch_size=size, concurrency=a.nodes, num_cpus=a.num_cpus, fn_constructor_args=(settings, a.parameters),
        scheduling_strategy="SPREAD", max_restarts=-1, max_task_retries=-1, **resources,
    )
    done = failed = 0
    for row in answers.iter_rows():
        out.write(row["row"] + "\n")
        out.flush()
        done += 1
        failed += "error" in json.loads(row["row"])
        print(f"\r{done} of {len(rows)} answered, {failed} failed", end="", file=sys.stderr)
    print(file=sys.stderr)
    return done, failed


def main() -> int:
    a = arguments(sys.argv[1:])
    try:
        rows = read_rows(a.input)
        os.makedirs(a.output, exist_ok=True)
    except (OSError, ValueError) as e:
        print(f"moed_batch: {e}", file=sys.stderr)
        return 2
    done = done_ids(a.output)
    left = [row for row in rows if row["id"] not in done]
    print(f"{len(rows)} prompts, {len(rows) - len(left)} have answers", file=sys.stderr)
    if not left:
        return 0
    path = os.path.join(a.output, f"part-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.jsonl")
    with open(path, "w", encoding="utf-8") as out:
        _, failed = answer(a, left, out)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
