#!/usr/bin/env python3
"""Compares the sampler's draws with the distributions that the samplers' published definitions give.

usage: sampler_oracle.py SAMPLER_DRAW

The definitions are written here in Python and double precision from the papers and from the documentation of llama.cpp,
whose order of samplers is the usual one. Each row of logits and setting is drawn from many times. No token outside the
set may come, and Pearson's chi-square of the others must be within six deviations of its mean.
"""

import math
import random
import subprocess
import sys

DRAWS = 20000
VOCAB = 400
NAMES = ["top_k", "temperature", "top_p", "min_p", "typical_p", "top_n_sigma", "xtc_probability", "xtc_threshold",
         "dynamic_temperature", "dynamic_exponent"]
NEUTRAL = {"top_k": 0, "temperature": 1, "top_p": 1, "min_p": 0, "typical_p": 1, "top_n_sigma": 0, "xtc_probability": 0,
           "xtc_threshold": 0.1, "dynamic_temperature": 0, "dynamic_exponent": 1}


def softmax(logits):
    """Candidates are a dictionary: token -> logit."""
    top = max(logits.values())
    total = sum(math.exp(v - top) for v in logits.values())
    return {t: math.exp(v - top) / total for t, v in logits.items()}


def keep(logits, tokens):
    return {t: logits[t] for t in tokens}


def until(probabilities, order, share, strict):
    """The first tokens of `order` whose probabilities reach (strict: exceed) the share."""
    kept, total = [], 0.0
    for token in order:
        kept.append(token)
        total += probabilities[token]
        if total > share if strict else total >= share:
            break
    return kept


def top_n_sigma(logits, s):
    if not s["top_n_sigma"]:
        return logits
    mean = sum(logits.values()) / len(logits)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in logits.values()) / len(logits))
    bound = max(logits.values()) - s["top_n_sigma"] * deviation
    return keep(logits, [t for t, v in logits.items() if v >= bound])


def top_k(logits, s):
    return keep(logits, sorted(logits, key=lambda t: (-logits[t], t))[:s["top_k"] or None])


def typical(logits, s):
    if s["typical_p"] == 1:
        return logits
    p = softmax(logits)
    entropy = -sum(v * math.log(v) for v in p.values() if v > 0)
    order = sorted(p, key=lambda t: abs(-math.log(p[t]) - entropy))
    return keep(logits, until(p, order, s["typical_p"], True))


def top_p(logits, s):
    if s["top_p"] == 1:
        return logits
    p = softmax(logits)
    return keep(logits, until(p, sorted(p, key=lambda t: -p[t]), s["top_p"], False))


def min_p(logits, s):
    p = softmax(logits)
    bound = s["min_p"] * max(p.values())
    return keep(logits, [t for t in p if p[t] >= bound])


def xtc(logits, s):
    """Where it strikes."""
    p = softmax(logits)
    good = sorted((t for t in p if p[t] >= s["xtc_threshold"]), key=lambda t: -p[t])
    return keep(logits, [t for t in logits if t not in good[:-1]])


def temperature(logits, s):
    t = s["temperature"]
    if s["dynamic_temperature"] and len(logits) > 1:
        entropy = -sum(v * math.log(v) for v in softmax(logits).values() if v > 0)
        low, high = max(0, t - s["dynamic_temperature"]), t + s["dynamic_temperature"]
        t = low + (high - low) * (entropy / math.log(len(logits))) ** s["dynamic_exponent"]
    return {token: v / t for token, v in logits.items()}


SAMPLERS = {"s": top_n_sigma, "k": top_k, "y": typical, "p": top_p, "m": min_p, "t": temperature}


def distribution(logits, s, order):
    """The probabilities; XTC's two outcomes are mixed."""
    for i, letter in enumerate(order):
        if letter == "x":
            chance = s["xtc_probability"]
            rest = order[i + 1:]
            missed, struck = distribution(logits, s, rest), distribution(xtc(logits, s), s, rest)
            return {t: (1 - chance) * missed[t] + chance * struck.get(t, 0) for t in missed}
        logits = SAMPLERS[letter](logits, s)
    return softmax(logits)


def draw(program, logits, s, order):
    arguments = [program, str(DRAWS), order] + [repr(s[name]) for name in NAMES]
    text = "\n".join(repr(v) for v in logits)
    done = subprocess.run(arguments, input=text, capture_output=True, text=True, check=True)
    return [int(line) for line in done.stdout.split()]


def check(program, logits, s, order):
    want = distribution(dict(enumerate(logits)), s, order)
    counts = draw(program, logits, s, order)
    outside = [t for t, n in enumerate(counts) if n and t not in want]
    if outside:
        return f"tokens {outside[:5]} came"
    rare = sum(p for p in want.values() if p * DRAWS < 5) # counted as one
    chi_square, kinds = 0.0, 0
    groups = [(p, counts[t]) for t, p in want.items() if p * DRAWS >= 5]
    groups.append((rare, DRAWS - sum(n for _, n in groups)))
    for p, n in groups:
        if p * DRAWS >= 5:
            chi_square += (n - p * DRAWS) ** 2 / (p * DRAWS)
            kinds += 1
    free = kinds - 1
    if chi_square > free + 6 * math.sqrt(2 * max(free, 1)):
        return f"chi-square {chi_square:.1f} with {free} degrees of freedom"
    return None


CASES = [
    ({}, "t"), ({"temperature": 0.6}, "t"), ({"temperature": 1.7}, "t"),
    ({"top_k": 20}, "k"), ({"top_p": 0.8}, "p"), ({"min_p": 0.1}, "m"), ({"typical_p": 0.7}, "y"),
    ({"typical_p": 0.2}, "y"), ({"top_n_sigma": 1.5}, "s"), ({"xtc_probability": 0.4, "xtc_threshold": 0.03}, "x"),
    ({"dynamic_temperature": 0.5}, "t"), ({"dynamic_temperature": 1, "dynamic_exponent": 2}, "t"),
    ({"top_k": 40, "top_p": 0.95, "min_p": 0.05, "temperature": 0.8}, "kypmt"),
    ({"top_k": 40, "top_p": 0.95, "min_p": 0.05, "temperature": 0.8}, "tkypm"),
    ({"top_n_sigma": 2, "typical_p": 0.9, "min_p": 0.02, "xtc_probability": 0.5, "xtc_threshold": 0.05,
      "temperature": 1.2, "dynamic_temperature": 0.3}, "skypmxt"),
]


def main():
    random.seed(11)
    failed = 0
    for kind in ("wide", "peaked"):
        if kind == "wide":
            logits = [round(random.gauss(0, 1.5), 4) for _ in range(VOCAB)]
        else:
            logits = [round(-1.5 * math.log(i + 1), 4) for i in range(VOCAB)]
            random.shuffle(logits)
        for settings, order in CASES:
            wrong = check(sys.argv[1], logits, {**NEUTRAL, **settings}, order)
            if wrong:
                print(f"{kind} row, {settings}, order {order}: {wrong}", file=sys.stderr)
                failed += 1
    print(f"{2 * len(CASES)} distributions, {failed} wrong")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
