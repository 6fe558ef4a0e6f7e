#!/usr/bin/env python3
"""Every thread of the real daemons tries what it may not do (try_calls.c), while the deployment serves.

    confined.py --moed MOED --try LIBRARY --model FILE [--device emu:...]

Exits with 77 where the kernel has no landlock."""
import argparse
import ctypes
import errno
import mmap
import os
import socket
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "faults"))
from deployment import Deployment, wait_until  # pylint: disable=wrong-import-position

MOST, NAME, PATH, RESULTS = 64, 24, 200, 812
BYTES = RESULTS + MOST * (NAME + 4)
SIGUSR2 = 12
libc = ctypes.CDLL(None, use_errno=True)
SYS = {"x86_64": (234, 444), "aarch64": (131, 444)}[os.uname().machine]  # tgkill, landlock_create_ruleset

EVERYWHERE = {  # what must fail, and how; None: not at all
    "read a file": errno.EACCES, "write a file": errno.EACCES, "make a file": errno.EACCES,
    "remove a file": errno.EACCES, "rename a file": (errno.EACCES, errno.EPERM), "link a file": errno.EPERM,
    "truncate a file": errno.EPERM, "make a directory": (errno.EACCES, errno.EPERM), "list the root": errno.EACCES,
    "read the passwords": errno.EACCES, "write the model": errno.EACCES, "change an owner": errno.EPERM, "change a mode": errno.EPERM,
    "change a socket's mode": errno.EPERM, "limit another": errno.EPERM,
    "mount": errno.EPERM, "inet socket": errno.EPERM, "inet6 socket": errno.EPERM, "netlink socket": errno.EPERM,
    "packet socket": errno.EPERM, "unix socket": None, "exec": errno.EPERM, "fork": errno.EPERM,
    "signal another": errno.EPERM, "trace another": errno.EPERM, "read another's memory": errno.EPERM,
    "become root": errno.EPERM, "new namespace": errno.EPERM, "dumpable": errno.EPERM, "new privileges": errno.EPERM,
    "bpf": errno.EPERM, "perf": errno.EPERM, "userfaultfd": errno.EPERM, "keyctl": errno.EPERM,
    "kernel module": errno.EPERM, "set the clock": errno.EPERM, "io_uring": errno.EPERM,
    "abstract connect": errno.EPERM, "read the model": errno.EACCES,
}
BY_PROCESS = {  # memd owns the model file and reads it with io_uring
    "memd": {"read the model": None, "io_uring": errno.EFAULT},
}


class Tries:
    def __init__(self, path, texts, other):
        with open(path, "wb") as f:
            f.write(b"\0" * BYTES)
        self.file = open(path, "r+b")
        self.map = mmap.mmap(self.file.fileno(), BYTES)
        for i, text in enumerate(texts):
            self.map[i * PATH:(i + 1) * PATH] = text.encode().ljust(PATH, b"\0")
        self.map[4 * PATH:4 * PATH + 4] = struct.pack("i", other)

    def of_thread(self, pid, tid):
        """Name to errno, as thread tid of process pid finds it. None: the thread has gone."""
        self.map[4 * PATH + 4:4 * PATH + 8] = struct.pack("I", 0)
        if libc.syscall(SYS[0], pid, tid, SIGUSR2) != 0:
            return None
        done = lambda: struct.unpack("I", self.map[4 * PATH + 4:4 * PATH + 8])[0] == tid
        if not wait_until(30, lambda: done() or not os.path.exists(f"/proc/{pid}/task/{tid}")) or not done():
            return None
        n = struct.unpack("I", self.map[4 * PATH + 8:4 * PATH + 12])[0]
        result = {}
        for i in range(n):
            at = RESULTS + i * (NAME + 4)
            name = self.map[at:at + NAME].split(b"\0")[0].decode()
            result[name] = struct.unpack("i", self.map[at + NAME:at + NAME + 4])[0]
        return result


def blocks_signal(pid, tid):
    try:
        status = open(f"/proc/{pid}/task/{tid}/status", encoding="utf-8").read()
    except OSError:
        return True
    return bool(int(status.split("SigBlk:")[1].split()[0], 16) >> (SIGUSR2 - 1) & 1)


def check(process, thread, found, landlock):
    expected = {**EVERYWHERE, **BY_PROCESS.get(process, {})}
    faults = [f"{name} was not tried" for name in expected if name not in found]
    for name, error in found.items():
        if name in ("abstract connect", "signal another") and landlock < 6:
            continue
        wanted = expected.get(name)
        if error not in (wanted if isinstance(wanted, tuple) else (wanted or 0,)):
            faults.append(f"{name}: {errno.errorcode.get(error, error)}")
    return [f"{process}, thread {thread}: {fault}" for fault in faults]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--moed", required=True)
    p.add_argument("--try", dest="library", required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--device", default="emu:vram=30%,link=400M")
    args = p.parse_args()
    landlock = libc.syscall(SYS[1], None, ctypes.c_size_t(0), 1)
    if landlock < 1:
        print("skipped: this kernel has no landlock", file=sys.stderr)
        return 77
    model = os.path.abspath(args.model)
    elsewhere = tempfile.mkdtemp(prefix="moed-confined-")
    secret, fresh = elsewhere + "/secret", elsewhere + "/fresh"
    with open(secret, "w", encoding="ascii") as f:
        f.write("a key")
    with open(elsewhere + "/http.conf", "w", encoding="ascii") as f:
        f.write("models = true\n")  # its thread, without moed-models
    other = subprocess.Popen(["sleep", "1000"])
    abstract = f"moed-test-{os.getpid()}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind("\0" + abstract)
    d = Deployment(os.path.abspath(args.moed), model,
                   ["--device", args.device, "--cpuexec", "--http", "0", "--ram", "80%", "--http-config", elsewhere + "/http.conf"])
    faults, threads = [], 0
    try:
        tries = Tries(d.work + "/tries", (secret, fresh, model, abstract), other.pid)
        d.env.update(LD_PRELOAD=os.path.abspath(args.library), MOED_TRY_FILE=d.work + "/tries")
        d.up()
        del d.env["LD_PRELOAD"]
        want = d.call("run", "-n", "20", "--temp", "0", "--ignore-end", "Once").stdout
        for process in ("memd", "worker", "cpuexec", "http"):
            pid = d.pid(process)
            for tid in map(int, os.listdir(f"/proc/{pid}/task")):
                name = open(f"/proc/{pid}/task/{tid}/comm", encoding="utf-8").read().strip()
                if blocks_signal(pid, tid):
                    continue
                found = tries.of_thread(pid, tid)
                if found is None:
                    faults.append(f"{process}, thread {name}: no answer")
                    continue
                threads += 1
                faults += check(process, name, found, landlock)
            if d.pid(process) != pid or not d.alive(process):
                faults.append(f"{process} has died")
        if d.call("run", "-n", "20", "--temp", "0", "--ignore-end", "Once").stdout != want:
            faults.append("another answer afterwards")
        if open(secret, encoding="ascii").read() != "a key" or os.path.exists(fresh):
            faults.append("a file was changed")
        if "their files are not restricted" in d.logs(1000):  # threads that block signals try nothing
            faults.append("threads ran before the files were restricted")
    finally:
        logs = d.logs()
        d.remove()
        other.kill()
        other.wait()
        subprocess.run(["rm", "-rf", elsewhere], check=False)
    for fault in faults[:40]:
        print(fault, file=sys.stderr)
    if faults:
        print(logs, file=sys.stderr)
        return 1
    print(f"ok: {threads} threads, {len(EVERYWHERE)} tries each")
    return 0


if __name__ == "__main__":
    sys.exit(main())
