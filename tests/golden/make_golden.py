#!/usr/bin/env python3
"""Makes the golden models: tiny MoE models as GGUF with the logits that transformers gives.

  make_golden.py [--out DIR] [--only NAME ...] [--check]

For each model below: weights are drawn from a seed, quantised where the model asks for it and
written as GGUF; the same weights, dequantised, go into the implementation of transformers, which
runs in float64 and gives the logits of tokens.txt and a greedy continuation. A model whose answer
hangs on a near tie (two experts or two tokens almost equal) is drawn again from the next seed, so
that a test which fails has found a fault and not a rounding. --check writes nothing and compares
the files that are there with what would be written. README.md describes the files.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from gguf import GGUFWriter  # noqa: E402
from gguf import GGMLQuantizationType as Type  # noqa: E402

import reference  # noqa: E402
import tiny_vocabulary  # noqa: E402
from architectures import ARCHITECTURES  # noqa: E402
from architectures.models import SPECS  # noqa: E402
from architectures.weights import FILE_TYPES, FLOAT_TYPES, draw_tensors, exact_values  # noqa: E402

TOKENS = Path(__file__).parent / "tokens.txt"
GREEDY_PROMPT, GREEDY_COUNT = 8, 16
REFERENCE_TOLERANCE = 1e-4  # transformers computes norms, gates and softmax in float32
MAX_SEEDS = 3000


def write_gguf(path, spec, tensors):
    arch = ARCHITECTURES[spec.arch]
    writer = GGUFWriter(path, spec.arch)
    writer.add_name(spec.name)
    writer.add_file_type(FILE_TYPES[spec.type])
    if spec.type not in FLOAT_TYPES:
        writer.add_quantization_version(2)
    arch.keys(spec, writer)
    tiny_vocabulary.add_to(writer)
    for name, (stored, kind) in arch.file_tensors(spec, tensors).items():
        writer.add_tensor(name, np.ascontiguousarray(stored), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@torch.no_grad()
def transformers_logits(model, tokens):
    return model(torch.tensor([tokens])).logits[0].numpy()


@torch.no_grad()
def transformers_greedy(model, tokens, count):
    """The continuation, token by token with the KV cache, and its smallest lead."""
    ids, lead, cache, step = [], np.inf, None, list(tokens)
    for _ in range(count):
        result = model(torch.tensor([step]), past_key_values=cache, use_cache=True)
        cache = result.past_key_values
        best = torch.topk(result.logits[0, -1], 2)
        lead = min(lead, float(best.values[0] - best.values[1]))
        ids.append(int(best.indices[0]))
        step = ids[-1:]
    return ids, lead


# ---- choosing a seed and writing ---------------------------------------------------------------


def near_tie(spec, path, tokens):
    """The reason to reject this draw, or None. Uses the small reference because it is faster."""
    model = reference.Model(path)
    if model.router_margin(tokens) < spec.router_margin:
        return "router margin"
    logits = model.logits(tokens)
    if not 1.0 < logits.std() < 3.0:
        return "logits' deviation"
    if len(set(logits.argmax(axis=1))) < len(tokens) // 2:
        return "the same answer at too many positions"
    ids, lead = model.greedy(tokens[:GREEDY_PROMPT], GREEDY_COUNT)
    if lead < spec.greedy_margin:
        return "greedy margin"
    if max(ids) >= tiny_vocabulary.first_special():
        return "greedy continuation meets a special token"
    if len(set(ids)) < GREEDY_COUNT // 2:
        return "greedy continuation repeats itself"
    if model.router_margin(tokens[:GREEDY_PROMPT] + ids) < spec.router_margin:
        return "router margin in the continuation"
    sequences = [tokens, tokens[:GREEDY_PROMPT] + ids]
    routes = [model.routes(s) for s in sequences]
    model.round_activations = True
    if any((model.routes(s) != r).any() for s, r in zip(sequences, routes)):
        return "another expert with rounded activations"
    if model.greedy(tokens[:GREEDY_PROMPT], GREEDY_COUNT)[0] != ids:
        return "another continuation with rounded activations"
    return None


def choose_seed(spec, path, tokens):
    reasons = {}
    for seed in range(spec.seed, spec.seed + MAX_SEEDS):
        tensors = draw_tensors(ARCHITECTURES[spec.arch], spec, seed)
        write_gguf(path, spec, tensors)
        reason = near_tie(spec, path, tokens)
        if reason is None:
            return seed, tensors
        reasons[reason] = reasons.get(reason, 0) + 1
    sys.exit(f"{spec.name}: no seed of {MAX_SEEDS} will do: {reasons}")


def make(spec, folder, tokens):
    """Writes NAME.gguf, .logits, .greedy into folder; returns what rounding costs (see README)."""
    path = folder / f"{spec.name}.gguf"
    seed, tensors = choose_seed(spec, path, tokens)
    model = ARCHITECTURES[spec.arch].model(spec, exact_values(tensors))
    logits = transformers_logits(model, tokens)
    ids, lead = transformers_greedy(model, tokens[:GREEDY_PROMPT], GREEDY_COUNT)

    oracle = reference.Model(path)
    own = oracle.logits(tokens)
    largest, _ = reference.distance(own, logits)
    own_ids, _ = oracle.greedy(tokens[:GREEDY_PROMPT], GREEDY_COUNT)
    if largest > REFERENCE_TOLERANCE or own_ids != ids or lead < spec.greedy_margin / 2:
        sys.exit(f"{spec.name}: reference.py and transformers differ by {largest:.3g}: {own_ids} {ids}")
    margin = oracle.router_margin(tokens)
    oracle.round_activations = True
    _, rounded = reference.distance(oracle.logits(tokens), logits)

    logits.astype("<f4").tofile(folder / f"{spec.name}.logits")
    if spec.type in FLOAT_TYPES:  # rounded activations may change a continuation, rightly
        (folder / f"{spec.name}.greedy").write_text(" ".join(map(str, ids)) + "\n")
    print(
        f"{spec.name:12} seed {seed:4}  {path.stat().st_size:7} bytes  logits' deviation"
        f" {logits.std():.2f}  router margin {margin:.3f}  greedy lead"
        f" {lead:.3f}  reference - transformers {largest:.1e}  rounding {np.median(rounded):.2e},"
        f" worst row {rounded.max():.2e}",
        flush=True,
    )
    return float(np.median(rounded)), float(rounded.max())


def write_tolerances(path, costs):
    """One line a model that is not float32: name, median and worst row; others' lines stay."""
    lines = path.read_text().splitlines() if path.exists() else []
    known = {line.split()[0]: line for line in lines}
    for name, (median, worst) in costs.items():
        known[name] = f"{name} {median:.3e} {worst:.3e}"
    ordered = [known[s.name] for s in SPECS if s.name in known and s.type != Type.F32]
    path.write_text("".join(line + "\n" for line in ordered))


def compare_folders(made, kept, specs):
    """--check: models must be the same to the byte, logits to 1e-4, continuations the same."""
    wrong = []
    for spec in specs:
        for suffix in (".gguf", ".greedy") if spec.type in FLOAT_TYPES else (".gguf",):
            name = spec.name + suffix
            if not (kept / name).exists() or (made / name).read_bytes() != (kept / name).read_bytes():
                wrong.append(name)
        rows = [np.fromfile(f / f"{spec.name}.logits", dtype="<f4") for f in (made, kept)]
        if rows[0].shape != rows[1].shape or np.abs(rows[0] - rows[1]).max() > REFERENCE_TOLERANCE:
            wrong.append(spec.name + ".logits")
    if wrong:
        sys.exit("not what this script makes: " + " ".join(wrong))
    print("all files are as this script makes them")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--only", nargs="+", choices=[s.name for s in SPECS])
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    specs = [s for s in SPECS if not args.only or s.name in args.only]
    tokens = reference.read_tokens(str(TOKENS))
    if args.check:
        with tempfile.TemporaryDirectory() as folder:
            for spec in specs:
                make(spec, Path(folder), tokens)
            compare_folders(Path(folder), args.out, specs)
        return
    costs = {spec.name: make(spec, args.out, tokens) for spec in specs}
    write_tolerances(args.out / "tolerances.txt", costs)


if __name__ == "__main__":
    main()
