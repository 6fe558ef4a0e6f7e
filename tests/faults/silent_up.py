#!/usr/bin/env python3
"""`moed up` cannot ask the deployment that it starts: every socket() of it fails. It gives up with an error line, and stops
what it started.

    silent_up.py --moed MOED --inject LIBRARY --model FILE"""
import argparse
import errno
import os
import struct
import subprocess
import sys

from deployment import Deployment, is_alive
from fault_loop import ALL, FUNCTIONS, Control

WATCHDOG_S = 2


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--moed", required=True)
    p.add_argument("--inject", required=True)
    p.add_argument("--model", required=True)
    args = p.parse_args()
    d = Deployment(os.path.abspath(args.moed), os.path.abspath(args.model))
    try:
        os.mkdir(d.run_dir, 0o700)
        control = Control(d.work + "/fault")
        control.arm("/moed", "socket", ALL)  # the end of its program's path
        env = dict(d.env, LD_PRELOAD=os.path.abspath(args.inject), MOED_FAULT_FILE=d.work + "/fault")
        done = subprocess.run([d.moed, "up", d.model, "--watchdog", str(WATCHDOG_S)], env=env, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=100)
        text = done.stderr.decode()
        assert control.hits() > 0, "no call was counted"
        assert done.returncode == 1, (done.returncode, text)
        assert "does not answer this command" in text, text
        left = [p for p in ("supervise", "memd", "worker") if d.alive(p)]
        assert not left, f"these run on: {left}"
    finally:
        d.remove()
    print("ok: " + text.splitlines()[-1])


if __name__ == "__main__":
    sys.exit(main())
