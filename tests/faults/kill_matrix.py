#!/usr/bin/env python3
"""Kills each process, with each signal, in each phase of its work, on each device; checks every answer.

    kill_matrix.py --moed MOED --model FILE [--device host|emu|cuda|tier]... [--rounds N] [--seed N] [--module FILE]

A round is one cell of process x signal x phase; rounds go through the cells in an order that the seed gives. Two requests
run in a round, and one follows it. An answer is
  whole    all of its tokens are right
  cut      it ended with an error line, and what came was right: allowed where the supervisor, so all, was killed
  wrong, silent (no error line), hung: failures, and so is a deployment that does not answer again
Prints a table of cells and exits with 1 after a failure. After SIGINT or SIGTERM it prints that of the rounds so far."""
import argparse
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict

from deployment import Deployment, Request, is_alive, verdict, wait_until

WATCHDOG_S = 3
HANG_S = 90
VICTIMS = ("memd", "worker", "cpuexec", "http", "supervise", "client")
SIGNALS = ("KILL", "SEGV", "STOP", "CONT")  # CONT: STOP, a pause, CONT
PHASES = ("loading", "attaching", "prompt", "decode", "copying", "resizing", "idle")
DEVICES = {
    "host": ["--cpuexec"],
    "emu": ["--device", "emu:vram=30%,link=400M"],
    "cuda": ["--device", "cuda"],
    "tier": ["--ram", "60%", "--device", "emu:vram=20%,link=400M"],
}
SIZES = {"emu": ("15%", "30%"), "tier": ("10%", "20%"), "cuda": None, "host": None}


class Matrix:
    def __init__(self, args, device):
        self.args, self.device = args, device
        self.random = random.Random(args.seed)
        self.tokens = args.tokens
        self.prompts = ["Once upon a time", " ".join(str(i) for i in range(args.prompt_words))]
        options = DEVICES[device] + ["--reproducible", "--watchdog", str(WATCHDOG_S), "--ctx", "2048",
                                     "--segment-bytes", "65536"]
        if not args.no_http:
            options += ["--http", "0"]
        self.d = Deployment(args.moed, args.model, options, args.module)
        self.cells = defaultdict(Counter)
        self.recoveries = []
        self.failures = []
        self.ending = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.end)

    def end(self, *_):
        """After the round under way."""
        self.ending = True

    def references(self):
        self.d.up()
        self.want = [self.ask(p) for p in self.prompts]

    def ask(self, prompt):
        done = self.d.call("run", "-n", str(self.tokens), "--ignore-end", "--temp", "0", prompt, timeout=HANG_S)
        if done.returncode != 0:
            raise RuntimeError("reference: " + done.stderr.decode())
        return done.stdout

    def pause(self, most_ms):
        time.sleep(self.random.uniform(0, most_ms) / 1000)

    def restart(self, process):
        """Starts a restart of the process, and returns once the new one is there."""
        before = self.d.pid(process)
        call = subprocess.Popen([self.d.moed, "restart", process], env=self.d.env, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)
        wait_until(20, lambda: self.d.alive(process) not in (0, before))
        return call

    def reach(self, phase):
        """Brings the deployment into the phase; returns calls to wait for."""
        calls = []
        if phase == "loading":
            calls.append(self.restart("memd"))
        elif phase == "attaching":
            calls.append(self.restart("worker"))
        elif phase == "copying":
            self.d.call("policy", "ondemand")
        if phase in ("prompt", "decode", "copying", "resizing"):
            self.requests = [Request(self.d, p, self.tokens) for p in self.prompts]
        if phase in ("decode", "copying", "resizing"):
            wait_until(20, self.requests[0].begun)
        if phase == "resizing":
            size = self.random.choice(SIZES[self.device])
            calls.append(subprocess.Popen([self.d.moed, "resize", "--vram", size], env=self.d.env,
                                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        self.pause({"decode": 400, "copying": 400, "idle": 1}.get(phase, 150))
        return calls

    def strike(self, victim, name):
        """Returns a process that is stopped and that nobody else kills, else 0."""
        number = signal.SIGSTOP if name == "CONT" else getattr(signal, "SIG" + name)
        if victim == "client":
            if not self.requests:
                return 0
            self.requests[0].kill(number)
            pid = self.requests[0].process.pid
        else:
            pid = self.d.signal(victim, number)
        if name == "CONT" and pid:
            self.pause(1500)
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
            return 0
        if name == "STOP" and victim in ("client", "supervise"):
            return pid
        return 0

    def recover(self, victim, name):
        """Until the deployment answers; seconds, or None."""
        begun = time.monotonic()
        if victim == "supervise" and name in ("KILL", "SEGV"):
            if not wait_until(30, lambda: not any(self.d.alive(p) for p in ("memd", "cpuexec", "worker", "http"))):
                return None
            self.d.up()
        end = begun + HANG_S
        while time.monotonic() < end:
            for process in ("memd", "cpuexec", "worker", "http"):  # not the growing delay after many deaths
                if not self.d.alive(process) and self.d.alive("memd"):
                    subprocess.run([self.d.moed, "restart", process], env=self.d.env, stdin=subprocess.DEVNULL,
                                   capture_output=True, timeout=HANG_S)
            try:
                done = self.d.call("run", "-n", str(self.tokens), "--ignore-end", "--temp", "0", self.prompts[0],
                                   timeout=HANG_S)
            except subprocess.TimeoutExpired:
                return None
            if done.returncode == 0:
                self.after = "whole" if done.stdout == self.want[0] else "wrong"
                return time.monotonic() - begun
            time.sleep(0.2)
        return None

    def round(self, victim, name, phase):
        self.requests = []
        fault = []
        calls = self.reach(phase)
        stopped = self.strike(victim, name)
        if phase in ("loading", "attaching", "idle") and not (victim == "supervise" and name in ("KILL", "SEGV")):
            self.requests = [Request(self.d, p, self.tokens) for p in self.prompts]
        if stopped:  # nobody watches the client and the supervisor
            time.sleep(1.5)
            try:
                os.kill(stopped, signal.SIGCONT)
            except ProcessLookupError:
                pass
        killed_client = victim == "client" and name in ("KILL", "SEGV") and self.requests
        results = []
        for i, request in enumerate(self.requests):
            status = request.end(HANG_S)
            if killed_client and i == 0 and status in (-signal.SIGKILL, -signal.SIGSEGV):
                continue  # its answer must only be right as far as it came
            result = verdict(request, status, self.want[self.prompts.index(request.prompt)])
            results.append(result)
            all_ended = victim == "supervise" and name in ("KILL", "SEGV")
            # A request that starts while there is no worker yet may be refused; one that has begun may not.
            if result not in ("whole", "cut") or (result == "cut" and not all_ended):
                fault.append(f"request {i} {result}: {request.err.strip()[:160]}")
        for call in calls:
            try:
                call.wait(HANG_S)
            except subprocess.TimeoutExpired:
                call.kill()
                call.wait()
                fault.append("a command hangs")
        self.after = None
        try:
            seconds = self.recover(victim, name)
        except (subprocess.TimeoutExpired, RuntimeError):
            seconds = None
        if seconds is None:
            fault.append("does not answer again")
        else:
            self.recoveries.append(seconds)
            if self.after != "whole":
                fault.append("wrong answer afterwards")
        if phase == "copying":
            self.d.call("policy", "moed")
        return results, fault

    def cells_here(self):
        for cell in itertools.product(VICTIMS, SIGNALS, PHASES):
            victim, _, phase = cell
            if phase == "resizing" and not SIZES[self.device]:
                continue
            if phase == "copying" and self.device == "host":
                continue
            if victim == "http" and self.args.no_http:
                continue
            if victim == "client" and phase in ("loading", "attaching", "idle"):
                continue
            if victim in ("worker", "cpuexec") and phase == "loading":
                continue  # they do not run then
            if self.args.victims and victim not in self.args.victims:
                continue
            if self.args.signals and cell[1] not in self.args.signals:
                continue
            if self.args.phases and phase not in self.args.phases:
                continue
            yield cell

    def run(self, rounds, deadline):
        self.references()
        cells = list(self.cells_here())
        done = 0
        while done < rounds:
            self.random.shuffle(cells)
            for cell in cells[:rounds - done]:
                if self.ending or time.monotonic() >= deadline:
                    return done
                results, fault = self.round(*cell)
                done += 1
                count = self.cells[cell]
                count["rounds"] += 1
                count.update(results)
                if fault:
                    count["failed"] += 1
                    self.failures.append((cell, fault))
                    print(f"{self.device} {' '.join(cell)}: {'; '.join(fault)}", file=sys.stderr, flush=True)
                    print(self.d.logs(6), file=sys.stderr, flush=True)
                    if "does not answer again" in fault:
                        self.d.down()
                        self.d.up()
        return done

    def table(self):
        lines = [f"| {self.device} | " + " | ".join(PHASES) + " |", "|---" * (len(PHASES) + 1) + "|"]
        for victim, name in itertools.product(VICTIMS, SIGNALS):
            row = []
            for phase in PHASES:
                c = self.cells.get((victim, name, phase))
                row.append("" if not c else f"{c['rounds']}: {c['whole']}+{c['cut']}" +
                           (f" **{c['failed']} failed**" if c["failed"] else ""))
            if any(row):
                lines.append(f"| {victim} {'STOP+CONT' if name == 'CONT' else name} | " + " | ".join(row) + " |")
        return "\n".join(lines)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--moed", required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--module", help="the CUDA module, for device cuda")
    p.add_argument("--device", action="append", choices=DEVICES)
    p.add_argument("--rounds", type=int, default=100, help="on each device")
    p.add_argument("--seconds", type=float, default=1e9, help="at most, on each device")
    p.add_argument("--tokens", type=int, default=200)
    p.add_argument("--prompt-words", type=int, default=300)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--no-http", action="store_true")
    p.add_argument("--victims", nargs="*")
    p.add_argument("--signals", nargs="*")
    p.add_argument("--phases", nargs="*")
    args = p.parse_args()
    failed = 0
    for device in args.device or ["host"]:
        m = Matrix(args, device)
        try:
            done = m.run(args.rounds, time.monotonic() + args.seconds)
        except BaseException:
            print(m.d.logs(), file=sys.stderr)
            raise
        finally:
            m.d.remove()
        total = sum(m.cells.values(), Counter())
        recovery = sorted(m.recoveries)
        print(m.table())
        print(f"\n{device}: {done} rounds, seed {args.seed}: {total['whole']} answers whole, {total['cut']} cut, "
              f"{total['failed']} rounds failed; an answer again after {recovery[len(recovery) // 2]:.1f} s (median), "
              f"{recovery[-1]:.1f} s (most)\n" if recovery else f"{device}: no rounds", flush=True)
        failed += len(m.failures)
        if m.ending:
            break
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
