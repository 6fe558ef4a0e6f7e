#!/usr/bin/env python3
"""Conditions of the machine that a deployment must survive, while it serves.

    conditions.py --moed MOED --inject LIBRARY --model FILE [--only NAME...]

  full-disk      memd's files cannot grow (RLIMIT_FSIZE), with --kv-dir: conversations are no longer saved, answers are
                 right, also after the worker's death; afterwards conversations are saved again
  read-only      no file can be opened for writing for a while (EROFS), and a process dies meanwhile: it comes back afterwards
  descriptors    no descriptor is left for a while (EMFILE): clients wait, and get their answers
  inotify        the user's inotify instances, or watches, are all in use: a deployment starts, and notices removed files
  clock          the wall clock jumps by hours and months, forwards and back, in all processes
  oom            the kernel's out-of-memory killer takes each process (needs a memory cgroup that this user may make)
Every answer is compared with one from before. A condition that this machine cannot make is skipped with a line."""
import argparse
import errno
import os
import resource
import subprocess
import sys
import time

from deployment import Deployment, Request, verdict, wait_until
from fault_loop import ALL, Control

TOKENS, HANG_S = 40, 120
PROMPTS = ["Once upon a time", " ".join(map(str, range(150))), "There was a cat", "A list of words:"]
HOUR = 3600


class Condition:
    def __init__(self, args, *options, fault=None):
        self.d = Deployment(args.moed, args.model, ["--reproducible", "--cpuexec", *options])
        os.mkdir(self.d.run_dir, 0o700)
        self.control = Control(self.d.work + "/fault")
        self.control.arm("*", "malloc", 0)
        self.control.disarm()
        if fault:
            self.control.arm("*", fault, ALL)
        plain = dict(self.d.env)
        self.d.env = dict(plain, LD_PRELOAD=args.inject, MOED_FAULT_FILE=self.d.work + "/fault")
        self.d.up()
        self.d.env = plain
        self.want = {p: self.d.call("run", "-n", str(TOKENS), "--temp", "0", "--ignore-end", p).stdout for p in PROMPTS}

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind:
            print(self.d.logs(12), file=sys.stderr)
        self.control.disarm()
        self.d.remove()

    def start(self):
        return [Request(self.d, p, TOKENS) for p in PROMPTS]

    def end(self, requests, allowed=("whole",)):
        for r in requests:
            result = verdict(r, r.end(HANG_S), self.want[r.prompt])
            assert result in allowed, f"an answer is {result}: {r.err.strip()[:300]}"

    def serves(self):
        """Until it does, all processes included."""
        def all_right():
            try:
                done = self.d.call("run", "-n", str(TOKENS), "--temp", "0", "--ignore-end", PROMPTS[0], timeout=HANG_S)
            except subprocess.TimeoutExpired:
                return False
            return done.returncode == 0 and done.stdout == self.want[PROMPTS[0]]
        assert wait_until(HANG_S, all_right), "no right answer afterwards"
        assert wait_until(60, lambda: all(self.d.alive(p) for p in ("memd", "worker", "cpuexec", "supervise"))), \
            "a process does not come back"


def full_disk(args):
    folder = "/tmp" if not os.path.isdir("/dev/shm") else "/dev/shm"
    kv_dir = os.path.join(folder, f"moed-full-{os.getpid()}")
    try:
        with Condition(args, "--kv-dir", kv_dir) as c:
            memd = c.d.pid("memd")
            before = resource.prlimit(memd, resource.RLIMIT_FSIZE)
            resource.prlimit(memd, resource.RLIMIT_FSIZE, (48 << 10, before[1]))  # some pages; its log, too
            for _ in range(2):
                c.end(c.start())
            says = lambda text: text in open(c.d.run_dir + "/memd.log", errors="replace").read()
            failed = lambda: c.d.metrics("memd")["moed_memd_kv_file_failed"]
            assert wait_until(60, lambda: says("no longer saved")), "no word of the full disk"
            assert failed() == 1, "the metric does not show the full disk"
            c.d.signal("worker", 9)
            c.end(c.start())
            resource.prlimit(memd, resource.RLIMIT_FSIZE, before)
            assert c.d.call("cache", "--clear").returncode == 0  # memd then tries at once
            c.end(c.start())
            assert wait_until(60, lambda: says("saved again") and failed() == 0), "conversations are not saved again"
            c.serves()
    finally:
        subprocess.run(["rm", "-rf", kv_dir], check=False)


def read_only(args):
    for process in ("worker", "memd", "cpuexec"):
        with Condition(args) as c:
            c.control.arm("*", "open", ALL, errno.EROFS)
            requests = c.start()
            c.d.signal(process, 9)
            time.sleep(1.5)  # it is started a few times
            c.control.disarm()
            c.end(requests, ("whole", "cut"))
            c.d.call("restart", process, timeout=HANG_S)
            c.serves()


def descriptors(args):
    with Condition(args) as c:
        for process in ("worker", "memd", "supervise"):
            c.control.arm(process, "socket", ALL)
            requests = c.start()
            time.sleep(1)
            c.control.disarm()
            c.end(requests)
        c.serves()


def inotify(args):
    for fault, limit in (("events", "max_user_instances"), ("watch", "max_user_watches")):
        with Condition(args, fault=fault) as c:
            assert c.control.hits() > 0, "no call was counted"
            log = open(c.d.run_dir + "/supervise.log", errors="replace").read()
            assert limit in log, "no word of the limit"
            worker = c.d.pid("worker")
            for file in ("worker.ctl", "supervise.sock", "notify.sock"):
                os.unlink(os.path.join(c.d.run_dir, file))
            assert wait_until(60, lambda: c.d.pid("worker") != worker), "nobody notices that a socket is missing"
            c.serves()


def clock(args):
    kv_dir = os.path.join("/tmp", f"moed-clock-{os.getpid()}")
    try:
        with Condition(args, "--kv-dir", kv_dir, "--device", "emu:vram=30%,link=400M") as c:
            for jump in (3 * HOUR, -5 * HOUR, 400 * 24 * HOUR, -400 * 24 * HOUR, 0)[:args.jumps]:
                requests = c.start()
                wait_until(20, requests[0].begun)
                c.control.set_clock(jump)
                c.end(requests)
                c.end(c.start())
                c.d.signal(("worker", "memd", "cpuexec")[jump % 3], 9)
                c.end(c.start())
                assert c.d.call("ps", timeout=30).returncode == 0
                assert c.d.call("resize", "--vram", "20%", timeout=HANG_S).returncode == 0
            c.serves()
            began = time.monotonic()
            c.d.down()
            assert time.monotonic() - began < 40, "it stops slowly"
    finally:
        subprocess.run(["rm", "-rf", kv_dir], check=False)


def make_group():
    """A memory cgroup without memory: its folder, or None."""
    second = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
    folder = f"/sys/fs/cgroup/{'' if second else 'memory/'}moed-oom-{os.getpid()}"
    try:
        os.mkdir(folder)
        with open(folder + ("/memory.max" if second else "/memory.limit_in_bytes"), "w") as f:
            f.write("4096")
        return folder
    except OSError:
        subprocess.run(["rmdir", folder], check=False, stderr=subprocess.DEVNULL)
        return None


def oom(args):
    folder = make_group()
    if not folder:
        print("oom: skipped, no memory cgroup can be made here")
        return
    try:
        with Condition(args) as c:
            for process in ("memd", "worker", "cpuexec"):
                pid = c.d.pid(process)
                with open(folder + "/cgroup.procs", "w") as f:
                    f.write(str(pid))
                requests = c.start()
                killed = wait_until(30, lambda: c.d.pid(process) != pid or not c.d.alive(process))
                c.end(requests)
                print(f"oom: {process} was {'killed' if killed else 'not killed: it needed no page'}")
                if not killed:
                    c.d.signal(process, 9)
                c.serves()
    finally:
        wait_until(10, lambda: subprocess.run(["rmdir", folder], check=False, stderr=subprocess.DEVNULL).returncode == 0)


CONDITIONS = {"full-disk": full_disk, "read-only": read_only, "descriptors": descriptors, "inotify": inotify, "clock": clock, "oom": oom}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--moed", required=True)
    p.add_argument("--inject", required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--jumps", type=int, default=5, help="of the clock")
    p.add_argument("--only", nargs="*", default=list(CONDITIONS), choices=list(CONDITIONS))
    args = p.parse_args()
    args.moed, args.inject, args.model = map(os.path.abspath, (args.moed, args.inject, args.model))
    failed = 0
    for name in args.only:
        try:
            CONDITIONS[name](args)
            print(f"{name}: survived", flush=True)
        except (AssertionError, RuntimeError, subprocess.TimeoutExpired) as e:
            print(f"FAILED: {name}: {e}", file=sys.stderr, flush=True)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
