"""Keys take turns: at the slots of the worker, and at questions such as /tokenize.
usage: http_turns.py PORT RUN MOED   (keys alice and bob; --parallel 2, --ctx 8192)"""
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

PORT, RUN, MOED = int(sys.argv[1]), sys.argv[2], sys.argv[3]
LOG = os.path.join(RUN, "http.log")
WAIT_S = 60
WAITING = 12  # of Alice's requests


def pid_of(process):
    with open(os.path.join(RUN, process + ".pid")) as f:
        return int(re.sub(r"\D", "", f.read()))


def wait_until(what, condition):
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, "not " + what
        time.sleep(0.01)


def begin(key, path, body):
    """Sends a request. The reply is read later, or never."""
    c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=WAIT_S)
    c.request("POST", path, json.dumps(body), {"Authorization": "Bearer secret-of-" + key})
    return c


def end(c):
    reply = c.getresponse()
    text = reply.read().decode()
    c.close()
    return reply.status, text


def call(key, path, body):
    return end(begin(key, path, body))


def figures():
    text = subprocess.run([MOED, "metrics", "worker"], check=True, capture_output=True, text=True).stdout
    value = lambda name: float(re.search(r"^%s (\S+)" % name, text, re.M).group(1))
    return value("moed_worker_requests_running"), value("moed_worker_requests_waiting")


def completion(key, tokens):
    return begin(key, "/v1/completions", {"prompt": "Once", "max_tokens": tokens, "ignore_eos": True})


def ended(since):
    """Key and path of each request that has ended, in order: of the log's lines behind `since`."""
    with open(LOG) as f:
        f.seek(since)
        return re.findall(r"POST (\S+) 200 ok key=(\S+)", f.read())


def fill_queue():
    """Both slots are Alice's; her requests wait, then one under a grammar, and then Bob's. None: an answer ended before."""
    held = [completion("alice", 8000) for _ in range(2)]
    wait_until("running", lambda: figures()[0] == 2)
    waiting = []

    def add(n, c):
        waiting.append(c)
        now = figures()
        while now[0] == 2 and now[1] < n:
            now = figures()
        return now == (2, n)

    full = all([add(i + 1, completion("alice", 5)) for i in range(WAITING)])
    grammar = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5, "response_format": {"type": "json_object"}}
    full = add(WAITING + 1, begin("alice", "/v1/chat/completions", grammar)) and full
    full = add(WAITING + 2, completion("bob", 5)) and full
    since = os.path.getsize(LOG)
    for c in held:
        c.close()
    for c in waiting:
        status, text = end(c)
        assert status == 200, text
    wait_until("logged", lambda: len(ended(since)) >= len(waiting))
    return ended(since) if full else None


def check_slots():
    order = None
    for _ in range(10):
        order = order or fill_queue()
    assert order, "Alice's answers ended too early, each time"
    keys = [key for _, key in order]
    assert keys.index("bob") < 3, order
    assert "/v1/chat/completions" in [path for path, _ in order[-2:]], order


call("alice", "/v1/completions", {"prompt": "Once", "max_tokens": 1})
check_slots()
