"""Measures a trained model on the held-out text: perplexity, and answers to questions.

The output compares the perplexity with that of a unigram and a bigram model over the same
tokens, both counted on the training tokens; the bigram is interpolated
Kneser-Ney, so that it is the best of its kind.  Questions are drawn anew; where
a kind has more questions than the training text holds, only such are asked
that do not occur there.

Prints markdown; --json writes the figures too.
"""
import argparse
import json
import math
import pathlib
import random

import numpy as np
import tokenizers
import torch
import torch.nn.functional as F

import export
import generate
from tokens import TOPICS

VOCABULARY = 4096


def unigram_losses(train, held):
    counts = np.bincount(train.reshape(-1), minlength=VOCABULARY) + 1.0
    cost = -np.log(counts / counts.sum())
    return cost[held[:, 1:]]


def bigram_losses(train, held, discount=0.75):
    """Interpolated Kneser-Ney of order two."""
    pairs = train[:, :-1].astype(np.int64) * VOCABULARY + train[:, 1:]
    counts = np.bincount(pairs.reshape(-1), minlength=VOCABULARY ** 2).reshape(VOCABULARY, VOCABULARY)
    total = counts.sum(1)
    kinds = (counts > 0).sum(1)
    # After how many different tokens one occurs, rather than how often.
    follows = (counts > 0).sum(0) + 1.0
    lower = follows / follows.sum()
    before, after = held[:, :-1].astype(np.int64), held[:, 1:].astype(np.int64)
    seen = np.maximum(total[before], 1)
    share = np.where(total[before] > 0, discount * kinds[before] / seen, 1.0)
    chance = np.maximum(counts[before, after] - discount, 0) / seen + share * lower[after]
    return -np.log(chance)


@torch.no_grad()
def model_losses(model, held, rows=4):
    out = []
    for start in range(0, len(held), rows):
        tokens = torch.from_numpy(held[start:start + rows].astype(np.int64))
        logits = model.logits(tokens[:, :-1])
        out.append(F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none").numpy())
    return np.concatenate(out)


@torch.no_grad()
def text_losses(model, ids, size):
    """Windows side by side; every token but a window's first, as `moed perplexity` does."""
    out = []
    for start in range(0, len(ids) - 1, size):
        row = torch.tensor([ids[start:start + size]])
        if row.shape[1] > 1:
            logits = model.logits(row[:, :-1])[0]
            out.append(F.cross_entropy(logits, row[0, 1:], reduction="none").numpy())
    return np.concatenate(out)


def perplexity(losses):
    return math.exp(losses.mean(dtype=np.float64))


@torch.no_grad()
def greedy(model, tokenizer, prompts, limit):
    """Continues each prompt until its end token; rows are padded behind their end,
    which a causal model does not see."""
    ends = {tokenizer.token_to_id(t) for t in (export.DOCUMENT_END, export.MESSAGE_END)}
    rows = [tokenizer.encode(p).ids for p in prompts]
    starts = [len(r) for r in rows]
    open_rows = set(range(len(rows)))
    for _ in range(limit):
        if not open_rows:
            break
        picked = sorted(open_rows)
        longest = max(len(rows[i]) for i in picked)
        if longest > model.shape.context:
            break
        batch = torch.zeros(len(picked), longest, dtype=torch.long)
        for place, i in enumerate(picked):
            batch[place, :len(rows[i])] = torch.tensor(rows[i])
        hidden = model.hidden(batch)[0]
        last = hidden[torch.arange(len(picked)), torch.tensor([len(rows[i]) - 1 for i in picked])]
        for i, token in zip(picked, F.linear(last, model.embedding).argmax(-1).tolist()):
            rows[i].append(token)
            if token in ends:
                open_rows.discard(i)
    return [tokenizer.decode([t for t in r[s:] if t not in ends])
            for r, s in zip(rows, starts)]


def new_questions(kind, count, known, r):
    """Questions of a kind that training did not see, as far as there are any."""
    found, tries = {}, 0
    while len(found) < count and tries < 40 * count:
        tries += 1
        ask, answer = kind(r)
        if ask not in known:
            found[ask] = answer
    fresh = len(found) == count
    while not fresh and len(found) < count and tries < 80 * count:
        tries += 1
        ask, answer = kind(r)
        found[ask] = answer
    return list(found.items()), fresh


def answers(model, tokenizer, work, count, seed):
    known = set()
    with open(work / "corpus/chat.jsonl") as f:
        for line in f:
            turns = json.loads(line)["text"].split("<|im_start|>user\n")[1:]
            known.update(t.split("<|im_end|>")[0] for t in turns)
    r = random.Random(seed)
    out = {}
    for kind, _ in generate.QUESTIONS:
        if kind in (generate.story_request, generate.small_talk):
            continue
        asked, fresh = new_questions(kind, count, known, r)
        prompts = [generate.turn("user", ask) + "<|im_start|>assistant\n" for ask, _ in asked]
        got = greedy(model, tokenizer, prompts, 40)
        right = [g.strip() == want for g, (_, want) in zip(got, asked)]
        wrong = [(ask, g.strip(), want) for g, (ask, want), ok in zip(got, asked, right) if not ok]
        out[kind.__name__] = {"asked": len(asked), "right": sum(right), "new": fresh, "wrong": wrong[:3]}
    return out


SAMPLES = ["The cat", "Once upon a time there was a little bear", "In the beginning God",
           "The fork() function", "def __init__(self", "The sqlite3_open() interface",
           "To install a package on a Debian system, you", "NAME\n       git-",
           generate.turn("user", "Tell me a story about a clever crow.") + "<|im_start|>assistant\n",
           generate.turn("user", "Describe the kitchen.") + "<|im_start|>assistant\n"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", help="checkpoint.pt or a GGUF file of the demo")
    parser.add_argument("--work", type=pathlib.Path, required=True, help="work folder")
    parser.add_argument("--text", type=pathlib.Path, help="measure only the perplexity of this file")
    parser.add_argument("--questions", type=int, default=50, help="of each kind")
    parser.add_argument("--samples", action="store_true", help="print greedy continuations too")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    model = export.load(args.model).eval()
    tokenizer = tokenizers.Tokenizer.from_file(str(args.work / "tokenizer.json"))
    if args.text:
        ids = tokenizer.encode(args.text.read_text()).ids
        losses = text_losses(model, ids, model.shape.context)
        print(f"{args.text}: perplexity {perplexity(losses):.5f} over {len(losses)} of {len(ids)} tokens")
        return
    train, held = (np.load(args.work / f"{part}.npy") for part in ("train", "held"))
    topic = np.load(args.work / "held-topic.npy")
    losses = {"model": model_losses(model, held), "bigram": bigram_losses(train, held),
              "unigram": unigram_losses(train, held)}
    figures = {"perplexity": {}}
    print("| topic | held-out tokens | model | bigram | unigram |\n|---|---|---|---|---|")
    for number, name in [(None, "all"), *enumerate(TOPICS)]:
        mask = np.ones(len(held), bool) if number is None else topic == number
        row = {k: perplexity(v[mask]) for k, v in losses.items()}
        figures["perplexity"][name] = row
        print(f"| {name} | {mask.sum() * 512} | {row['model']:.2f} | {row['bigram']:.1f} | {row['unigram']:.0f} |")
    figures["loss"] = float(losses["model"].mean(dtype=np.float64))
    print(f"\nloss {figures['loss']:.4f} nats a token\n")
    if args.questions:
        figures["answers"] = answers(model, tokenizer, args.work, args.questions, args.seed)
        print("| kind | right | unseen questions |\n|---|---|---|")
        for name, x in figures["answers"].items():
            print(f"| {name.replace('_', ' ')} | {x['right']} of {x['asked']} | {'yes' if x['new'] else 'no'} |")
        for name, x in figures["answers"].items():
            for ask, got, want in x["wrong"][:1]:
                print(f"\n{name}: {ask!r}\n  said {got!r}\n  want {want!r}")
    if args.samples:
        figures["samples"] = list(zip(SAMPLES, greedy(model, tokenizer, SAMPLES, 80)))
        for prompt, text in figures["samples"]:
            print(f"\n--- {prompt!r}\n{text}")
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
