"""A deployment of its own in a new directory, for the drivers in this folder."""
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

PROCESSES = ("memd", "cpuexec", "worker", "http", "supervise")


class Deployment:
    def __init__(self, moed, model, options=(), module=None):
        self.moed, self.model, self.options = moed, model, list(options)
        self.work = tempfile.mkdtemp(prefix="moed-faults-")
        self.run_dir = os.path.join(self.work, "run")
        self.env = dict(os.environ, MOED_RUN=self.run_dir, XDG_CACHE_HOME=self.work + "/cache",
                        XDG_CONFIG_HOME=self.work + "/config")
        if module:
            self.env["MOED_CUDA_MODULE"] = module

    def call(self, *arguments, timeout=120):
        return subprocess.run([self.moed, *arguments], env=self.env, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=timeout)

    def up(self, *more):
        done = self.call("up", self.model, *self.options, *more, timeout=300)
        if done.returncode != 0:
            raise RuntimeError("up: " + done.stderr.decode())

    def down(self):
        self.call("down")

    def remove(self, keep=False):
        self.down()
        if not keep:
            shutil.rmtree(self.work, ignore_errors=True)

    def pid(self, process):
        """The pid in the process's lock file, 0 where there is none. It may be of a process that has died."""
        try:
            text = open(os.path.join(self.run_dir, process + ".pid")).read()
        except OSError:
            return 0
        digits = re.sub(r"\D", "", text)
        return int(digits) if digits else 0

    def alive(self, process):
        pid = self.pid(process)
        return pid if pid and is_alive(pid) else 0

    def signal(self, process, number):
        pid = self.alive(process)
        if pid:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                return 0
        return pid

    def metrics(self, process):
        done = self.call("metrics", process, timeout=30)
        values = {}
        for line in done.stdout.decode().splitlines():
            if line and line[0] != "#":
                name, _, value = line.rpartition(" ")
                values[name] = float(value)
        return values

    def logs(self, lines=15):
        text = ""
        for name in sorted(os.listdir(self.run_dir)) if os.path.isdir(self.run_dir) else ():
            if name.endswith(".log"):
                last = open(os.path.join(self.run_dir, name), errors="replace").readlines()[-lines:]
                text += "".join(f"{name}: {line}" for line in last)
        return text


def is_alive(pid):
    """Not gone, and no zombie."""
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(seconds, condition):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


class Request:
    """One `moed run` under way, whose output is read as it comes."""

    def __init__(self, deployment, prompt, tokens, options=("--temp", "0", "--ignore-end")):
        self.prompt = prompt
        self.out = b""
        self.process = subprocess.Popen(
            [deployment.moed, "run", "-n", str(tokens), *options, prompt], env=deployment.env,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        while True:
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                return
            self.out += data

    def begun(self):
        return len(self.out) > 0 or self.process.poll() is not None

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)

    def end(self, seconds):
        """Waits. Returns the exit status, None where it hangs (it is killed then)."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            self.close()
            return None
        self.close()
        return self.process.returncode

    def close(self):
        self.thread.join()
        self.err = self.process.stderr.read().decode(errors="replace")
        self.process.stdout.close()
        self.process.stderr.close()


def verdict(request, status, want):
    """What became of an answer: whole, cut (its beginning is right, and an error line says why), wrong, hung."""
    if status is None:
        return "hung"
    if status == 0:
        return "whole" if request.out == want else "wrong"
    # The last character may be incomplete.
    right = want.startswith(request.out[:-4] if len(request.out) > 4 else b"")
    if not right:
        return "wrong"
    return "cut" if request.err.strip() else "silent"
