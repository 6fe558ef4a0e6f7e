"""Stops a process, for tests. kill(2) returns while its threads still run: on a loaded machine they go on for some tenths of a second."""
import os
import signal
import time

LIMIT_S = 60


def _runs(pid):
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/stat", encoding="utf-8", errors="replace") as f:
                if f.read().rpartition(")")[2].split()[0] not in "TtZX":
                    return True
    except OSError:  # the process, or a thread, has ended
        return os.path.exists(f"/proc/{pid}")
    return False


def stop_process(pid):
    """Returns once all of its threads are stopped."""
    os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + LIMIT_S
    while _runs(pid):
        assert time.monotonic() < end, f"process {pid} does not stop"
        time.sleep(0.01)
