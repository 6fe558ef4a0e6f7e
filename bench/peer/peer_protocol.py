"""What both sides of bench/peer do alike: they read a job a line from standard input, as JSON, and answer each with
a line on standard output. A job: {"prompts": [[token, ...], ...], "generate": n}, one greedy answer of n tokens for
each prompt, all at once. The answer:

    prefill_s  of the one prompt, to its first token; null with several
    decode_s   from the first token to the last one; with several from the moment at which all have their first
               token until the first of them is done
    decoded    tokens in that time, of all streams
    tokens     of each answer
"""

import json
import sys
import time


def emit(value):
    json.dump(value, sys.stdout)
    sys.stdout.write("\n")
    sys.stdout.flush()


def serve(about, answer):
    """about: said first, once the model is loaded. answer(prompts, n): a job's answer."""
    emit(about)
    for line in sys.stdin:
        job = json.loads(line)
        emit(answer(job["prompts"], job["generate"]))


class Clock:
    """When each stream's tokens came."""

    def __init__(self, n_streams):
        self.times = [[] for _ in range(n_streams)]
        self.begun = time.perf_counter()

    def token(self, stream):
        self.times[stream].append(time.perf_counter())

    def result(self, tokens):
        begin = max(times[0] for times in self.times)
        end = min(times[-1] for times in self.times)
        return {
            "prefill_s": self.times[0][0] - self.begun if len(self.times) == 1 else None,
            "decode_s": end - begin,
            "decoded": sum(begin < at <= end for times in self.times for at in times),
            "tokens": tokens,
        }
