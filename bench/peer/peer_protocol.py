"""The protocol of both sides of bench/peer. A side reads one job a line from standard input, as JSON, and prints one
answer a line on standard output. A job: {"prompts": [[token, ...], ...], "generate": n}, one greedy answer of n tokens
for each prompt, all at once. The answer:

    prefill_s  of a single prompt, to its first token; null with several prompts
    decode_s   from the first token to the last; with several prompts from the moment when all have their first token
               until the first answer ends
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
    """about: printed first, when the model is loaded. answer(prompts, n): a job's answer."""
    emit(about)
    for line in sys.stdin:
        job = json.loads(line)
        emit(answer(job["prompts"], job["generate"]))


class Clock:
    """Arrival times of each stream's tokens."""

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
