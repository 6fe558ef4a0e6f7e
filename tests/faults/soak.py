#!/usr/bin/env python3
"""Mixed clients for a long time, while they join, leave and are killed, processes are killed, and memory and policy change.

    soak.py --moed MOED --model FILE [--minutes 60] [--clients 6] [--device emu:vram=30%,link=400M] [--seed 1]

Every answer must be whole and right (or, of a client that is killed, right as far as it came). Once a minute it prints each
process's descriptors, threads, own memory (RssAnon) and shared memory; at the end it compares the last of them with the
first after a warm-up, for each process as it is at rest. Exits with 1 after a wrong answer or a growth."""
import argparse
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time

from deployment import Deployment, Request, verdict, wait_until

HANG_S = 120
POLICIES = ("moed", "ondemand", "lru", "moepic", "layerwise")
KINDS = [  # prompt, tokens, options
    ("Once upon a time", 120, ("--temp", "0", "--ignore-end")),
    (" ".join(map(str, range(250))), 30, ("--temp", "0", "--ignore-end")),
    ("There was a time", 60, ("--temp", "0.9", "--seed", "5", "--ignore-end")),
    ("A list of words:", 120, ("--temp", "1", "--seed", "3", "--regex", "([a-z]{1,9} ){20,40}end")),
    ("int main(void) {", 80, ("--temp", "1.2", "--seed", "6", "--dry-multiplier", "0.5", "--ignore-end")),
]


class Soak:
    def __init__(self, args):
        self.args = args
        options = ["--device", args.device, "--reproducible", "--segment-bytes", "65536", "--ctx", "1024", "--http", "0",
                   "--parallel", "4", "--watchdog", "5", "--kv-cache", "64M"]
        self.d = Deployment(args.moed, args.model, options)
        self.ending = threading.Event()
        self.pausing = threading.Event()
        self.counts, self.wrong, self.lock = {}, [], threading.Lock()
        self.active = 0
        self.samples = []

    def count(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def client(self, number):
        rng = random.Random(self.args.seed * 1000 + number)
        while not self.ending.is_set():
            if self.pausing.is_set():
                time.sleep(0.05)
                continue
            kind = rng.randrange(len(KINDS))
            prompt, tokens, options = KINDS[kind]
            with self.lock:
                self.active += 1
            request = Request(self.d, prompt, tokens, options)
            killed = rng.random() < 0.1
            if killed:
                time.sleep(rng.uniform(0, 0.5))
                request.kill()
            status = request.end(HANG_S)
            with self.lock:
                self.active -= 1
            if killed and status == -signal.SIGKILL:
                right = self.want[kind].startswith(request.out[:-4] if len(request.out) > 4 else b"")
                self.count("client killed" if right else "wrong")
                continue
            result = verdict(request, status, self.want[kind])
            self.count(result)
            if result != "whole":
                with self.lock:
                    self.wrong.append((kind, result, request.err.strip()[:200]))
                print(f"request {kind} {result}: {request.err.strip()[:200]}", file=sys.stderr, flush=True)

    def disturb(self, rng):
        choice = rng.choice(("worker", "cpuexec", "http", "memd", "stop", "resize", "resize", "policy", "policy"))
        if choice in ("worker", "cpuexec", "http", "memd"):
            self.d.signal(choice, signal.SIGKILL)
        elif choice == "stop":
            choice = "stop of " + (victim := rng.choice(("worker", "cpuexec", "memd")))
            self.d.signal(victim, signal.SIGSTOP)
        elif choice == "resize":
            self.d.call("resize", "--vram", rng.choice(("15%", "20%", "30%")))
        else:
            self.d.call("policy", rng.choice(POLICIES))
        self.count(choice)

    def ready(self):
        return b'"ready"' in self.d.call("ps", "--json").stdout and all(
            self.d.alive(p) for p in ("memd", "worker", "cpuexec", "http"))

    def sample(self):
        """Of each process, while no request runs: descriptors, threads, own and shared memory in MiB."""
        self.pausing.set()
        rest = wait_until(HANG_S, lambda: self.active == 0) and wait_until(60, self.ready)
        time.sleep(1)
        row = {}
        for process in ("memd", "worker", "cpuexec", "http", "supervise"):
            pid = self.d.alive(process)
            if not pid or not rest:
                continue
            try:
                status = open(f"/proc/{pid}/status").read()
                kib = {k: int(v) for k, v in re.findall(r"^(RssAnon|RssShmem):\s+(\d+)", status, re.M)}
                row[process] = (pid, len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task")),
                                kib["RssAnon"] / 1024, kib["RssShmem"] / 1024)
            except OSError:
                pass
        self.pausing.clear()
        self.samples.append(row)
        text = "  ".join(f"{p} {s[1]}/{s[2]}/{s[3]:.1f}/{s[4]:.1f}" for p, s in row.items())
        print(f"{(time.monotonic() - self.begun) / 60:5.1f} min  {text}", flush=True)

    def growth(self):
        faults = []
        for process in ("memd", "worker", "cpuexec", "http", "supervise"):
            rows = [r[process] for r in self.samples if process in r]
            if len(rows) < 3:
                continue
            first, last = rows[1], rows[-1]
            if last[1] > first[1] + 6 or last[2] > first[2] + 4 or last[3] > first[3] * 1.3 + 8 or last[4] > first[4] * 1.3 + 80:
                faults.append(f"{process}: descriptors/threads/own MiB/shared MiB {first[1:]} became {last[1:]}")
        return faults

    def run(self):
        self.d.up()
        self.want = []
        for prompt, tokens, options in KINDS:
            done = self.d.call("run", "-n", str(tokens), *options, prompt)
            if done.returncode:
                raise RuntimeError(done.stderr.decode())
            self.want.append(done.stdout)
        rng = random.Random(self.args.seed)
        self.begun = time.monotonic()
        end = self.begun + self.args.minutes * 60
        clients = [threading.Thread(target=self.client, args=(i,)) for i in range(self.args.clients)]
        for c in clients:
            c.start()
        try:
            next_sample = self.begun
            while time.monotonic() < end:
                if time.monotonic() >= next_sample:
                    self.sample()
                    next_sample += min(60, self.args.minutes * 6)
                time.sleep(rng.uniform(1, self.args.pause))
                self.disturb(rng)
        finally:
            self.ending.set()
            for c in clients:
                c.join()
        self.sample()
        growth = self.growth()
        for text in growth:
            print("grown: " + text)
        print(f"{self.args.minutes:g} minutes, {self.args.clients} clients: " +
              ", ".join(f"{n} {what}" for what, n in sorted(self.counts.items())), flush=True)
        return 1 if self.wrong or growth or self.counts.get("wrong") else 0


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--moed", required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--device", default="emu:vram=30%,link=400M")
    p.add_argument("--minutes", type=float, default=60)
    p.add_argument("--clients", type=int, default=6)
    p.add_argument("--pause", type=float, default=12, help="most seconds between two disturbances")
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    soak = Soak(args)
    try:
        return soak.run()
    except BaseException:
        print(soak.d.logs(), file=sys.stderr)
        raise
    finally:
        soak.d.remove()


if __name__ == "__main__":
    sys.exit(main())
