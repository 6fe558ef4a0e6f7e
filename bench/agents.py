#!/usr/bin/env python3
"""Agents that take turns on one server: each sends its whole conversation again, with something new behind it.

    bench/agents.py [OPTION]... NAME=URL [NAME=URL]...

NAME=URL: a server of OpenAI's completions, such as moed-http or llama-server, for example moed=http://127.0.0.1:8080/v1. Each
server serves the same requests in the same order, one server after the other. A prompt is random token ids, of which each model
has enough. Prints tokens of prompts and answers a second, over all turns and over the turns behind the first, and the median
time of a turn behind the first. Standard library only.
"""

import argparse
import http.client
import json
import random
import statistics
import sys
import time
from urllib.parse import urlsplit


def options():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("servers", nargs="+", metavar="NAME=URL")
    p.add_argument("--agents", type=int, default=10)
    p.add_argument("--length", type=int, default=4000, help="tokens of a conversation's first prompt (%(default)s)")
    p.add_argument("--new", type=int, default=256, help="tokens that a turn adds (%(default)s)")
    p.add_argument("--answer", type=int, default=32, help="tokens of an answer (%(default)s)")
    p.add_argument("--turns", type=int, default=3)
    p.add_argument("--seed", type=int, default=1)
    return p.parse_args()


def complete(url, prompt, answer):
    """Asks for an answer of so many tokens; returns the tokens that the server counted, and the seconds."""
    at = urlsplit(url)
    body = {"prompt": prompt, "max_tokens": answer, "temperature": 0, "ignore_eos": True, "model": "default"}
    since = time.monotonic()
    connection = http.client.HTTPConnection(at.hostname, at.port, timeout=3600)
    connection.request("POST", at.path + "/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    reply = response.read()
    if response.status != 200:
        sys.exit(f"{url}: {response.status} {reply[:300]!r}")
    usage = json.loads(reply)["usage"]
    return usage["prompt_tokens"] + usage["completion_tokens"], time.monotonic() - since


def measure(url, o):
    rng = random.Random(o.seed)
    conversations = [[rng.randrange(300, 2000) for _ in range(o.length)] for _ in range(o.agents)]
    tokens, times = [], []
    for turn in range(o.turns):
        for conversation in conversations:
            if turn:
                conversation.extend(rng.randrange(300, 2000) for _ in range(o.new))
            n, seconds = complete(url, conversation, o.answer)
            tokens.append(n)
            times.append(seconds)
    later = slice(o.agents, None)
    return sum(tokens) / sum(times), sum(tokens[later]) / sum(times[later]), statistics.median(times[later])


def main():
    o = options()
    print(f"{o.agents} agents, {o.length} tokens and {o.new} more a turn, {o.answer} of answer, {o.turns} turns")
    print("| server | tokens/s, all turns | behind the first | a turn behind the first |\n|---|---:|---:|---:|")
    for server in o.servers:
        name, _, url = server.partition("=")
        all_turns, later, turn = measure(url, o)
        print(f"| {name} | {all_turns:.0f} | {later:.0f} | {turn:.2f} s |", flush=True)


if __name__ == "__main__":
    main()
