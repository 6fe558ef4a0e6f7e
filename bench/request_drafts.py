#!/usr/bin/env python3
"""Drafts that a request brings along: a prediction of its answer, and a grammar that forces tokens. Deployments with --speculate off,
auto and 7 answer the same requests in turns and must give the same tokens. For each kind of request and each deployment: the most
tokens a second of all rounds (other work on the machine only takes time), its share of `off`, and the median of the steps.
  MOED_LIBRARY=libmoed.so PYTHONPATH=client/python bench/request_drafts.py MOED MODEL [ROUNDS [TOKENS [DEVICE]]]"""
import os
import re
import statistics
import subprocess
import sys
import tempfile

import moed

SETTINGS = ("off", "auto", "7")
KEYS = ("customer_identification_number", "shipping_address_street_name", "shipping_address_postal_code", "preferred_contact_method")
SCHEMA = {"type": "object", "properties": {key: {"enum": [f"{key[0]}{i}" for i in range(9)]} for key in KEYS},
          "required": list(KEYS), "additionalProperties": False}
SENTENCE = 'root ::= "The quick brown fox jumps over the lazy dog and the owl hunts at night."'


class Deployment:
    def __init__(self, program, model, device, setting, folder):
        self.program, self.run = program, os.path.join(folder, setting)
        self.command("up", model, "--device", device, "--ctx", "2048", "--speculate", setting)
        os.environ["MOED_RUN"] = self.run
        self.session = moed.Session()

    def command(self, *words):
        return subprocess.run([self.program, *words], env={**os.environ, "MOED_RUN": self.run}, check=True, capture_output=True, text=True).stdout

    def steps(self):
        return int(re.search(r"^moed_worker_decode_steps_total\S* (\d+)", self.command("metrics"), re.M)[1])

    def answer(self, options):
        before = self.steps()
        answer = self.session.complete("Once upon a time", **options)
        return answer.tokens, (len(answer.tokens) - 1) / answer.result.decode_s, self.steps() - before


def main():
    program, model = sys.argv[1:3]
    rounds, tokens = (int(word) for word in (sys.argv[3:5] + ["9", "300"][len(sys.argv[3:5]):]))
    device = sys.argv[5] if len(sys.argv) > 5 else "host"
    with tempfile.TemporaryDirectory() as folder:
        deployments = {s: Deployment(program, model, device, s, folder) for s in SETTINGS}
        try:
            free = {"max_tokens": tokens, "ignore_end": True, "temperature": 1, "seed": 1}
            text = list(deployments["off"].answer(free)[0])
            third = tokens // 3
            kinds = {
                "no prediction": free,
                "the answer": {**free, "prediction": text},
                "the answer, 10 tokens in the middle changed": {**free, "prediction": text[:third] + list(range(300, 310)) + text[third + 10:]},
                "another text": {**free, "prediction": text[::-1]},
                "a schema of long keys": {"temperature": 0, "json_schema": SCHEMA},
                "a fixed sentence": {"temperature": 0, "gbnf": SENTENCE},
            }
            rates, steps, expected = {}, {}, {}
            for _ in range(rounds):
                for kind, options in kinds.items():
                    for setting, deployment in deployments.items():
                        got, rate, n = deployment.answer(options)
                        if expected.setdefault(kind, got) != got:
                            sys.exit(f"--speculate {setting}: other tokens than --speculate off, {kind}")
                        rates.setdefault((kind, setting), []).append(rate)
                        steps.setdefault((kind, setting), []).append(n)
        finally:
            for deployment in deployments.values():
                deployment.command("down")
    print("| request | tokens | --speculate | tokens/s | of off | steps |")
    print("|---|---:|---|---:|---:|---:|")
    for kind in kinds:
        for setting in SETTINGS:
            rate, off = (max(rates[kind, s]) for s in (setting, "off"))
            print(f"| {kind} | {len(expected[kind])} | {setting} | {rate:.1f} | {rate / off:.2f} | {statistics.median(steps[kind, setting]):.0f} |")


if __name__ == "__main__":
    main()
