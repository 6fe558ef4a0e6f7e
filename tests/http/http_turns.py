"""Keys take turns: at the slots of the worker, and at questions such as /tokenize.
usage: http_turns.py PORT RUN MOED   (keys alice and bob; --parallel 2, --ctx 8192)"""
import http.client
import json
import os
import re
import select
import signal
import subprocess
import sys
import time

PORT, RUN, MOED = int(sys.argv[1]), sys.argv[2], sys.argv[3]
LOG = os.path.join(RUN, "http.log")
WAIT_S = 60
WAITING = 6  # of Alice's requests


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


def has_reply(c):
    return bool(select.select([c.sock], [], [], 0)[0])


def try_slots():
    """Both slots are Alice's, and more of her requests wait, of more than a second each; then a short one under a grammar, and
    Bob's. The next slot is Bob's. False: it did not come to that, since an answer of hers ended before."""
    connections = []

    def add(c, running, waiting):
        connections.append(c)
        while figures() != (running, waiting):
            if has_reply(connections[0]) or has_reply(connections[-1]):
                return False
        return True

    full = all(add(completion("alice", 8000), min(i + 1, 2), max(i - 1, 0)) for i in range(2 + WAITING))
    grammar = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5, "response_format": {"type": "json_object"}}
    full = full and add(begin("alice", "/v1/chat/completions", grammar), 2, WAITING + 1)
    full = full and add(completion("bob", 5), 2, WAITING + 2)
    if full:
        held, *alices, grammar, bobs = connections
        held.close()
        status, text = end(bobs)
        assert status == 200, text
        assert sum(has_reply(c) for c in alices) < 3, "Bob waited for Alice's requests"
        assert not has_reply(grammar), "Alice's request under a grammar overtook her others"
    for c in connections:
        c.close()
    wait_until("idle", lambda: figures() == (0, 0))
    return full


def check_slots():
    assert any(try_slots() for _ in range(10)), "Alice's answers ended too early, each time"


def tokenize(key):
    return begin(key, "/tokenize", {"content": "Once upon a time" * 3000})


def stop(pid):
    """The signal alone is not enough: threads go on until they notice it."""
    def state(task):
        with open(f"/proc/{pid}/task/{task}/stat") as f:
            return f.read().rpartition(")")[2].split()[0]

    os.kill(pid, signal.SIGSTOP)
    wait_until("stopped", lambda: all(state(task) == "T" for task in os.listdir(f"/proc/{pid}/task")))


def let_http_read():
    """Each call comes after a look at all connections: what was sent before is read."""
    for _ in range(5):
        c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=WAIT_S)
        c.request("GET", "/livez")
        assert end(c)[0] == 200


def check_questions():
    """The worker is stopped. A chat that the template refuses does not wait for Alice's question; Bob's question waits for two of
    hers. Replies that are written at the same time may be logged in another order."""
    refused = {"messages": [{"role": "user", "content": "refuse"}]}
    assert call("bob", "/v1/chat/completions", refused)[0] == 400  # the template has been read
    assert end(tokenize("alice"))[0] == 200
    worker = pid_of("worker")
    stop(worker)
    try:
        since = os.path.getsize(LOG)
        questions = [tokenize("alice") for _ in range(24)]
        let_http_read()
        questions.append(tokenize("bob"))
        let_http_read()
        status, text = call("bob", "/v1/chat/completions", refused)
        assert status == 400 and "refused here" in text, text
        assert not select.select([c.sock for c in questions], [], [], 0)[0], "the chat waited for a question"
    finally:
        os.kill(worker, signal.SIGCONT)
    for c in questions:
        status, text = end(c)
        assert status == 200, text
    wait_until("logged", lambda: len(ended(since)) >= len(questions))
    assert [key for _, key in ended(since)].index("bob") < 12, ended(since)


call("alice", "/v1/completions", {"prompt": "Once", "max_tokens": 1})
check_slots()
check_questions()
