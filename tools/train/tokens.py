"""Trains the tokenizer on the corpus and writes the corpus as tokens.

The tokenizer is a byte-level BPE whose pre-tokenizer is Qwen2's, so a GGUF
reader takes it as `gpt2` with `pre=qwen2`.  Documents are cut into windows of
CONTEXT + 1 tokens.  A window of long text takes up where the one before it
ended; a window of chat or stories starts with a document, and what a window
cuts off is dropped, so that the model sees beginnings where a prompt will have
them.  One per cent of each topic's documents is held out.

Output in WORK: tokenizer.json; train.npy and held.npy, uint16 [window][513];
train-topic.npy and held-topic.npy, uint8 [window]; topics.json; held/TOPIC.txt.
"""
import argparse
import json
import pathlib
import random

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

TOPICS = ["manual", "debian", "bible", "python", "pydoc", "sqlite", "perl", "lexicon",
          "chat", "stories"]
SHORT = {"chat", "stories"}  # documents much shorter than a window
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
QWEN2 = (r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+"
         r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CONTEXT = 512
HELD = 0.01


def load(work, topic):
    with open(work / "corpus" / f"{topic}.jsonl") as f:
        return [json.loads(line)["text"] for line in f]


def split(texts, topic, seed):
    """Held-out documents: every topic's own, at least enough for two windows."""
    order = list(range(len(texts)))
    random.Random(f"{seed} held {topic}").shuffle(order)
    goal = max(HELD * sum(map(len, texts)), 8000)
    held, size = [], 0
    while size < goal:
        held.append(order.pop())
        size += len(texts[held[-1]])
    return [texts[i] for i in sorted(order)], [texts[i] for i in sorted(held)]


def train_tokenizer(texts, size):
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(tokenizers.Regex(QWEN2), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, show_progress=False, special_tokens=CONTROL,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def windows(documents, short, end):
    """Cuts encoded documents into windows of CONTEXT + 1 tokens."""
    size, out = CONTEXT + 1, []
    if not short:
        # Neighbours share one token, so that every token is predicted once.
        flat = np.concatenate([np.array(d + [end], np.uint16) for d in documents])
        for start in range(0, len(flat) - size + 1, CONTEXT):
            out.append(flat[start:start + size])
        return out
    row = []
    for document in documents:
        row += document + [end]
        if len(row) >= size:
            out.append(np.array(row[:size], np.uint16))
            row = []
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=pathlib.Path, required=True, help="work folder")
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    texts = {t: split(load(args.work, t), t, args.seed) for t in TOPICS}
    # Control tokens are not text: the trainer must not merge their characters.
    sample = (part for t in TOPICS for text in texts[t][0][::2 if t in SHORT else 1]
              for part in text.replace("<|im_end|>", "<|im_start|>").split("<|im_start|>"))
    tokenizer = train_tokenizer(sample, args.vocabulary)
    tokenizer.save(str(args.work / "tokenizer.json"))
    end = tokenizer.token_to_id(CONTROL[0])
    (args.work / "held").mkdir(exist_ok=True)
    figures = {}
    rows = {"train": [], "held": []}
    for number, topic in enumerate(TOPICS):
        for part, documents in zip(rows, texts[topic]):
            encoded = [e.ids for e in tokenizer.encode_batch(documents)]
            random.Random(f"{args.seed} order {topic}").shuffle(encoded)
            rows[part] += [(w, number) for w in windows(encoded, topic in SHORT, end)]
            figures.setdefault(topic, {})[part] = {
                "documents": len(documents), "characters": sum(map(len, documents)),
                "tokens": sum(map(len, encoded)) + len(encoded)}
        (args.work / "held" / f"{topic}.txt").write_text("".join(texts[topic][1]))
    for part, found in rows.items():
        random.Random(f"{args.seed} windows").shuffle(found)
        np.save(args.work / f"{part}.npy", np.stack([w for w, _ in found]))
        np.save(args.work / f"{part}-topic.npy", np.array([n for _, n in found], np.uint8))
    for topic in TOPICS:
        number = TOPICS.index(topic)
        for part, found in rows.items():
            figures[topic][part]["windows"] = sum(n == number for _, n in found)
    (args.work / "topics.json").write_text(json.dumps(figures, indent=1))
    for topic, parts in figures.items():
        print(f"{topic:8}", *(f"{part}: {x['characters']:9} characters {x['tokens']:8} tokens "
                              f"{x['windows']:6} windows" for part, x in parts.items()))
    print("windows", {part: len(found) for part, found in rows.items()})


if __name__ == "__main__":
    main()
