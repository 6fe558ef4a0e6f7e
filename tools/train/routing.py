"""Measures how the demo routes held-out text, and compares it with the papers' figures.

Tokens are taken in decode order: window by window, token by token, layer by
layer.  A window is a request; the cache is not emptied between requests.
Prints markdown for bench/results/demo-routing.md; --json writes the figures too.
"""
import argparse
import collections
import json
import pathlib

import numpy as np
import torch
import torch.nn.functional as F

import export
import model as demo
from tokens import TOPICS


@torch.no_grad()
def trace(model, windows):
    """chosen: [windows][layers][tokens][used]; gate inputs and layer outputs:
    [layers][windows * tokens][width]."""
    chosen, inputs, outputs = [], [], []
    for window in windows:
        seen = []
        model.hidden(torch.from_numpy(window[None, :-1].astype(np.int64)), seen)
        chosen.append(torch.stack([s["chosen"] for s in seen]))
        inputs.append(torch.stack([s["gate_input"] for s in seen]))
        outputs.append(torch.stack([s["output"][0] for s in seen]))
    return torch.stack(chosen), torch.cat(inputs, 1), torch.cat(outputs, 1)


def members(chosen, experts):
    """Chosen experts as 0 and 1 over all experts."""
    return torch.zeros(*chosen.shape[:-1], experts).scatter_(-1, chosen, 1.0)


def skew(sets):
    """sets: [layers][tokens][experts] -> entropy as a share of the uniform one, share
    of the accesses that the busiest quarter takes; both [layers]."""
    frequency = sets.sum(1)
    frequency = frequency / frequency.sum(-1, keepdim=True)
    experts = frequency.shape[-1]
    entropy = -(frequency * frequency.clamp_min(1e-12).log()).sum(-1) / np.log(experts)
    top = frequency.sort(-1, descending=True).values[:, :experts // 4].sum(-1)
    return entropy, top


def overlap(sets, used):
    """sets: [windows][layers][tokens][experts] -> share of a token's experts that the
    token before it used; what independent tokens of these frequencies would share."""
    found = (sets[:, :, 1:] * sets[:, :, :-1]).sum(-1).mean((0, 2)) / used
    chance = sets.mean((0, 2)).pow(2).sum(-1) / used
    return found, chance


def lru_hit_rate(chosen, slots, per_layer):
    """chosen: [windows][layers][tokens][used]; slots of the one cache, or of each layer's."""
    windows, layers, tokens, _ = chosen.shape
    caches = [collections.OrderedDict() for _ in range(layers if per_layer else 1)]
    hits = accesses = 0
    for window in chosen.transpose(1, 2).tolist():
        for token in window:
            for layer, experts in enumerate(token):
                cache = caches[layer if per_layer else 0]
                keys = [(layer, e) for e in experts]
                hits += sum(k in cache for k in keys)
                accesses += len(keys)
                for key in keys:
                    cache[key] = True
                    cache.move_to_end(key)
                while len(cache) > slots:
                    cache.popitem(last=False)
    return hits / accesses


def recall(logits, chosen):
    """Share of the chosen experts that are among the predicted ones."""
    used = chosen.shape[-1]
    predicted = members(logits.topk(used, -1).indices, logits.shape[-1])
    return (members(chosen, logits.shape[-1]) * predicted).sum(-1).mean().item() / used


@torch.no_grad()
def predictions(model, chosen, inputs, outputs):
    """Recall and cosine similarity for each layer but the first.  The first half of
    the tokens calibrates the thresholds, the second half is predicted."""
    half = inputs.shape[1] // 2
    layers, width = len(model.layers), model.shape.experts
    flat = chosen.transpose(0, 1).flatten(1, 2)
    rows = []
    for n in range(1, layers):
        layer, true = model.layers[n], flat[n, half:]
        before, here = inputs[n - 1], inputs[n]
        residual = (here[:half] - before[:half]).mean(0)
        moved = before[half:] + residual
        output = demo.rms_norm(outputs[n - 1, half:], layer.expert_norm, model.shape.epsilon)
        often = members(flat[n, :half], width).sum(0).expand(len(true), -1)
        rows.append({
            "layer": n, "frequency": recall(often, true),
            "gate": recall(F.linear(before[half:], layer.router), true),
            "residual": recall(F.linear(moved, layer.router), true),
            "output": recall(F.linear(output, layer.router), true),
            "cosine": F.cosine_similarity(before[half:], here[half:], -1).mean().item(),
            "cosine_residual": F.cosine_similarity(moved, here[half:], -1).mean().item()})
    return rows


def request_similarity(sets, topic):
    """Mean cosine similarity of the expert counts of two requests: of one topic, of two."""
    counts = sets.sum(2).flatten(1)
    counts = counts / counts.norm(dim=1, keepdim=True)
    alike = counts @ counts.T
    same = torch.from_numpy(topic[:, None] == topic[None])
    other = ~torch.eye(len(topic), dtype=torch.bool)
    return alike[same & other].mean().item(), alike[~same].mean().item()


def percent(x):
    return f"{100 * float(x):.1f} %"


def measure(model, held, topic, tokens_for_lru):
    chosen, inputs, outputs = trace(model, held)
    shape = model.shape
    sets = members(chosen, shape.experts)
    by_layer = sets.transpose(0, 1).flatten(1, 2)
    entropy, top = skew(by_layer)
    same, chance = overlap(sets, shape.experts_used)
    figures = {"tokens": chosen.shape[0] * chosen.shape[2],
               "layers": [{"layer": n, "entropy": entropy[n].item(), "top_quarter": top[n].item(),
                           "overlap": same[n].item(), "chance": chance[n].item()}
                          for n in range(shape.layers)],
               "topics": {}, "lru": {}}
    for number, name in enumerate(TOPICS):
        mine = torch.from_numpy(topic == number)
        e, t = skew(sets[mine].transpose(0, 1).flatten(1, 2))
        o, _ = overlap(sets[mine], shape.experts_used)
        part = chosen[mine][:16]
        figures["topics"][name] = {
            "entropy": e.mean().item(), "top_quarter": t.mean().item(), "overlap": o.mean().item(),
            "lru_25": lru_hit_rate(part, shape.layers * shape.experts // 4, False),
            "lru_50": lru_hit_rate(part, shape.layers * shape.experts // 2, False)}
    mixed = chosen[:max(1, tokens_for_lru // chosen.shape[2])]
    for share in (4, 2):
        figures["lru"][f"{100 // share}"] = {
            "layer": lru_hit_rate(mixed, shape.experts // share, True),
            "global": lru_hit_rate(mixed, shape.layers * shape.experts // share, False)}
    figures["next"] = predictions(model, chosen, inputs, outputs)
    figures["same_topic"], figures["other_topic"] = request_similarity(sets, topic)
    return figures


def mean(rows, key):
    return sum(r[key] for r in rows) / len(rows)


def report(figures):
    print(f"Held-out tokens: {figures['tokens']}.\n")
    print("| layer | entropy / uniform | busiest quarter takes | shared with the token before | by chance |")
    print("|---|---|---|---|---|")
    rows = figures["layers"]
    for row in [*rows, {"layer": "all", **{k: mean(rows, k) for k in ("entropy", "top_quarter", "overlap", "chance")}}]:
        print(f"| {row['layer']} | {row['entropy']:.3f} | {percent(row['top_quarter'])} | "
              f"{percent(row['overlap'])} | {percent(row['chance'])} |")
    print("\n| topic | entropy / uniform | busiest quarter takes | shared with the token before | "
          "global LRU, 25 % | global LRU, 50 % |\n|---|---|---|---|---|---|")
    for name, x in figures["topics"].items():
        print(f"| {name} | {x['entropy']:.3f} | {percent(x['top_quarter'])} | {percent(x['overlap'])} | "
              f"{percent(x['lru_25'])} | {percent(x['lru_50'])} |")
    print("\n| cached | LRU a layer | LRU over all layers |\n|---|---|---|")
    for share, x in figures["lru"].items():
        print(f"| {share} % | {percent(x['layer'])} | {percent(x['global'])} |")
    keys = ("frequency", "gate", "residual", "output")
    print("\n| predicted layer | most frequent | gate input before | + mean residual | output before, normed | "
          "cosine of gate inputs | + mean residual |\n|---|---|---|---|---|---|---|")
    rows = figures["next"]
    for row in [*rows, {"layer": "mean", **{k: mean(rows, k) for k in (*keys, "cosine", "cosine_residual")}}]:
        print(f"| {row['layer']} | " + " | ".join(percent(row[k]) for k in keys)
              + f" | {row['cosine']:.3f} | {row['cosine_residual']:.3f} |")
    print(f"\nCosine similarity of the expert counts of two requests: {figures['same_topic']:.3f} of one topic, "
          f"{figures['other_topic']:.3f} of different topics.")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", help="checkpoint.pt or a GGUF file of the demo")
    parser.add_argument("--work", type=pathlib.Path, required=True, help="work folder")
    parser.add_argument("--lru-tokens", type=int, default=60_000)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    model = export.load(args.model).eval()
    held, topic = np.load(args.work / "held.npy"), np.load(args.work / "held-topic.npy")
    figures = measure(model, held, topic, args.lru_tokens)
    report(figures)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
