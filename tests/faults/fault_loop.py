#!/usr/bin/env python3
"""Makes the n-th malloc, mmap, open, send, ... of a process fail, for each n in turn, and checks what comes of it.

    fault_loop.py --moed MOED --inject LIBRARY --model FILE [--phases load attach request resize tier] [--most N]

  load     memd, which starts alone         attach   worker and cpuexec, which attach to a memd that runs
  request  a request, in each process       resize   a resize under a request, in memd and the worker
  tier     a request under --ram, in memd: reads of the model file, and completions of io_uring
While it starts, a process must become ready, or end with one of moed's exit codes and a line that says why. After a
failed call in a request the deployment must still answer, with the right tokens; the request itself must be right as far
as it came, and end with an error line where it is not whole. Nothing may hang, crash, or keep a descriptor.
--most: at most so many n for each process and function, spread over all of its calls. Exits with 1 after a failure."""
import argparse
import errno
import mmap
import os
import signal
import struct
import subprocess
import sys
import time

from deployment import Deployment, Request, is_alive, verdict, wait_until

FUNCTIONS = {  # inject.c has the same numbers
    "malloc": (1, errno.ENOMEM), "mmap": (2, errno.ENOMEM), "ftruncate": (3, errno.ENOSPC), "open": (4, errno.EMFILE),
    "send": (5, errno.ENOBUFS), "recv": (6, errno.ECONNRESET), "socket": (7, errno.EMFILE), "thread": (8, errno.EAGAIN),
    "read": (9, errno.EIO), "write": (10, errno.ENOSPC), "uring": (11, errno.EIO), "uring-short": (11, 0), "events": (12, errno.EMFILE),
    "watch": (13, errno.ENOSPC)}
ALL = (1 << 32) - 1  # for n: each call fails
KNOWN = ("libnng",)  # it crashes or hangs where memory or threads fail
READY_S, HANG_S = 60, 60
KNOWN_S = 1  # a hang in one of KNOWN is not waited for


class Control:
    """The file that inject.c maps."""

    def __init__(self, path):
        with open(path, "wb") as f:
            f.write(b"\0" * 56)
        self.file = open(path, "r+b")
        self.map = mmap.mmap(self.file.fileno(), 56)

    def arm(self, process, function, n, error=None):
        self.disarm()
        number, usual = FUNCTIONS[function]
        error = usual if error is None else error
        self.map[24:48] = (process if process[:1] in "*/" else "moed-" + process).encode().ljust(24, b"\0")
        self.map[4:24] = struct.pack("IIIII", number, n, 0, 0, error)
        self.map[0:4] = struct.pack("I", 1)

    def set_clock(self, offset_s):
        self.map[48:56] = struct.pack("q", offset_s)

    def disarm(self):
        self.map[0:4] = struct.pack("I", 0)

    def count(self):
        return struct.unpack("I", self.map[12:16])[0]

    def hits(self):
        return struct.unpack("I", self.map[16:20])[0]


class Loop:
    def __init__(self, args):
        self.args = args
        self.options = ["--reproducible", "--cpuexec", "--watchdog", "10"]
        if args.device:
            self.options += ["--device", args.device]
        self.d = Deployment(args.moed, args.model, self.options)
        os.mkdir(self.d.run_dir, 0o700)
        self.control = Control(self.d.work + "/fault")
        self.plain = dict(self.d.env)
        self.faulty = dict(self.d.env, LD_PRELOAD=args.inject, MOED_FAULT_FILE=self.d.work + "/fault")
        self.bin = args.bindir or os.path.dirname(args.moed)
        self.failures, self.known, self.tried = [], [], {}

    def steps(self, total):
        """Which calls to fail: all, or --most of them, spread, the first ones densely."""
        most = self.args.most
        if total <= most:
            return list(range(1, total + 1))
        dense = most // 3
        spread = {dense + 1 + (total - dense - 1) * i // (most - dense - 1) for i in range(most - dense)}
        return sorted(set(range(1, dense + 1)) | spread)

    def fault(self, where, text, log=""):
        library = self.library(log)
        if library:
            self.known.append((where, library))
            text += f" (known: in {library})"
        else:
            self.failures.append((where, text))
        print(f"{where}: {text}\n{'' if library else log}", file=sys.stderr, flush=True)

    @staticmethod
    def library(log):
        """The library of others in which the call failed, where it is one that is known not to survive that."""
        trace = log.rpartition("this call fails:")[2].splitlines()
        calls = [l for l in trace[1:] if l.startswith("/") and "inject" not in l and "libc.so" not in l
                 and "ld-linux" not in l]
        return next((k for k in KNOWN if calls and k in calls[0]), None)

    def note(self, phase, process, function, n, total):
        self.tried[phase, process, function] = (n, total)

    # -- a process that starts --

    def command(self, process):
        common = ["--run", self.d.run_dir, "--reproducible"]
        device = ["--device", self.args.device] if self.args.device else []
        own = {"memd": ["--model", self.args.model], "worker": ["--cpuexec"], "cpuexec": []}[process]
        return [self.program(process), *common, *device, *own]

    def program(self, process):
        for folder in (self.bin, f"{self.bin}/../{process}"):
            path = os.path.join(folder, "moed-" + process)
            if os.path.exists(path):
                return path
        raise RuntimeError(f"there is no moed-{process}")

    def start(self, process, env):
        self.log_path = f"{self.d.work}/log-{process}"
        log = open(self.log_path, "wb")
        child = subprocess.Popen(self.command(process), env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()
        return child

    def log(self):
        return open(self.log_path, errors="replace").read()

    def becomes_ready(self, child):
        ready = lambda: " ready after " in self.log() or child.poll() is not None
        done = wait_until(KNOWN_S, ready) or (not self.library(self.log()) and wait_until(READY_S, ready))
        return done and child.poll() is None

    def stop(self, child):
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
        try:
            return child.wait(KNOWN_S if self.library(self.log()) else HANG_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            return None

    def try_start(self, process, function, n):
        """Starts the process with the n-th call failing; n 0: with none. Returns how many calls there were."""
        where = f"start of {process}, {function} {n}"
        self.control.arm(process, function, n)
        child = self.start(process, self.faulty)
        ready = self.becomes_ready(child)
        calls = self.control.count()
        ended = child.poll() is not None
        status = self.stop(child)
        self.control.disarm()
        text = [l for l in self.log().splitlines() if " error " in l or l.startswith("moed-")]
        if status is None:
            self.fault(where, "does not end", self.log()[-3000:])
        elif not ready and not ended:
            self.fault(where, "neither ready nor ended", self.log()[-3000:])
        elif status < 0 or status > 3:
            self.fault(where, f"ends with {status}", self.log()[-3000:])
        elif ended and (status == 0 or not text):
            self.fault(where, f"ends with {status} and no error line", self.log()[-3000:])
        return calls

    def is_left_out(self, phase, process):
        return self.args.only and f"{phase}:{process}" not in self.args.only

    def loop_start(self, phase, process):
        if self.is_left_out(phase, process):
            return
        for function in self.args.functions:
            total = self.try_start(process, function, 0)
            steps = self.steps(total)
            for n in steps:
                self.try_start(process, function, n)
            self.note(phase, process, function, len(steps), total)

    def load(self):
        self.loop_start("load", "memd")

    def attach(self):
        memd = self.start("memd", self.plain)
        if not self.becomes_ready(memd):
            raise RuntimeError("memd: " + self.log())
        try:
            for process in ("cpuexec", "worker"):
                self.loop_start("attach", process)
                fds = len(os.listdir(f"/proc/{memd.pid}/fd"))
                if fds > 64:
                    self.fault("attach", f"memd has {fds} descriptors")
        finally:
            self.stop(memd)

    # -- a deployment that serves --

    def state(self, process):
        pid = self.d.alive(process)
        try:
            return pid, len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))
        except OSError:
            return pid, 0, 0

    def try_request(self, process, function, n, resize):
        where = f"{'resize' if resize else 'request'} in {process}, {function} {n}"
        before = self.state(process)
        self.control.arm(process, function, n)
        request = Request(self.d, self.prompt, self.args.tokens)
        if resize:
            self.flip = not self.flip
            size = "15%" if self.flip else "30%"
            try:
                self.d.call("resize", "--vram", size, timeout=HANG_S)
            except subprocess.TimeoutExpired:
                self.fault(where, "moed resize hangs", self.d.logs(8))
        status = request.end(HANG_S)
        calls = self.control.count()
        self.control.disarm()
        result = verdict(request, status, self.want)
        if result not in ("whole", "cut"):
            self.fault(where, f"the answer is {result}: {request.err.strip()[:200]}", self.d.logs(8))
        if not wait_until(30, self.answers):
            self.fault(where, "no right answer afterwards", self.d.logs(8))
            self.d.down()
            self.d.up()
        now = self.state(process)
        died = now[0] != before[0]
        if died:
            text = self.d.call("logs", "supervise").stdout.decode().splitlines()
            ends = [l for l in text if f"{process} has ended" in l]
            if ends and "killed by signal" in ends[-1]:
                self.fault(where, ends[-1], self.d.logs(14))
        return calls

    def answers(self):
        try:
            done = self.d.call("run", "-n", str(self.args.tokens), "--ignore-end", "--temp", "0", self.prompt,
                               timeout=HANG_S)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0 and done.stdout == self.want

    def serve(self, phase, processes):
        self.d.env = self.plain
        self.d.up()
        self.prompt, self.flip = "Once upon a time", False
        self.want = self.d.call("run", "-n", str(self.args.tokens), "--ignore-end", "--temp", "0", self.prompt).stdout
        self.d.down()
        # inject.c reads at its start which process it is in: each has a deployment of its own.
        for process in processes:
            if self.is_left_out(phase, process):
                continue
            self.control.arm(process, "malloc", 0)
            self.d.env = self.faulty
            self.d.up()
            self.d.env = self.plain
            for function in self.args.functions:
                total = self.try_request(process, function, 0, phase == "resize")
                steps = self.steps(total)
                pid, descriptors, threads = self.state(process)
                for n in steps:
                    self.try_request(process, function, n, phase == "resize")
                kept = lambda: self.state(process)[1] <= descriptors + 3 and self.state(process)[2] <= threads + 3
                if self.state(process)[0] == pid and not wait_until(60, kept):
                    self.fault(f"{phase}, {function}", f"{process} had {descriptors} descriptors and {threads} threads, "
                               f"after {len(steps)} failed calls {self.state(process)[1:]}")
                self.note(phase, process, function, len(steps), total)
            self.d.down()

    def request(self):
        self.serve("request", ("worker", "memd", "cpuexec"))

    def resize(self):
        self.serve("resize", ("memd", "worker"))

    def tier(self):
        """Experts are read from the file while requests run: memd's reads fail."""
        options, self.d.options = self.d.options, self.d.options + ["--ram", "60%"]
        self.serve("tier", ("memd",))
        self.d.options = options


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--moed", required=True)
    p.add_argument("--inject", required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--bindir", help="of the daemons; default: beside moed, or in its build folder")
    p.add_argument("--device")
    p.add_argument("--phases", nargs="*", default=["load", "attach", "request"])
    p.add_argument("--only", nargs="*", help="PHASE:PROCESS, of the phases")
    p.add_argument("--functions", nargs="*", default=list(FUNCTIONS))
    p.add_argument("--most", type=int, default=1 << 30)
    p.add_argument("--tokens", type=int, default=30)
    args = p.parse_args()
    args.moed, args.inject, args.model = map(os.path.abspath, (args.moed, args.inject, args.model))
    loop = Loop(args)
    try:
        for phase in args.phases:
            getattr(loop, phase)()
    finally:
        loop.d.remove()
    for (phase, process, function), (n, total) in loop.tried.items():
        print(f"| {phase} | {process} | {function} | {n} of {total} |")
    print(f"{sum(n for n, _ in loop.tried.values())} failed calls, {len(loop.failures)} faults, and {len(loop.known)} in "
          f"{', '.join(sorted({k for _, k in loop.known})) or 'libraries'}")
    for phase in {phase for phase, _, _ in loop.tried}:
        if not any(n for (p, _, _), (n, _) in loop.tried.items() if p == phase):
            print(f"{phase}: no call was counted: is {args.inject} loaded?", file=sys.stderr)
            return 1
    return 1 if loop.failures else 0


if __name__ == "__main__":
    sys.exit(main())
