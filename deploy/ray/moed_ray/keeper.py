"""Stops a node's deployment when nobody has used it for some time. usage: keeper.py DIRECTORY RUN MOED LINGER_S

It goes to the background. A second keeper of a directory ends at once."""
import fcntl
import os
import subprocess
import sys
import time


def lock(path: str, how: int) -> int:
    """The descriptor of a locked file; -1: someone else holds it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, how)
    except BlockingIOError:
        os.close(fd)
        return -1
    return fd


def keep(directory: str, run: str, moed: str, linger_s: float) -> None:
    users = os.path.join(directory, "users")
    while True:
        os.close(lock(users, fcntl.LOCK_EX))  # waits until there is no user
        time.sleep(linger_s)
        held = lock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if held >= 0:
            break
    # A user that comes now waits for the lock, and then starts the deployment again, with another keeper.
    subprocess.run([moed, "down"], env={**os.environ, "MOED_RUN": run}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)


def to_background() -> None:
    if os.fork():
        os._exit(0)
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)


def main() -> None:
    directory, run, moed, linger_s = sys.argv[1:]
    to_background()
    if lock(os.path.join(directory, "keeper"), fcntl.LOCK_EX | fcntl.LOCK_NB) >= 0:
        keep(directory, run, moed, float(linger_s))


if __name__ == "__main__":
    main()
