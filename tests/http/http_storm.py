"""64 clients while processes of the deployment are killed: every request ends, right or with a clear error, and moed-http leaks nothing.

usage: http_storm.py PORT RUN SECONDS   (RUN: the deployment's runtime directory)
The right answers are those before the first kill: an answer's tokens never depend on what dies. First the processes behind moed-http
are killed, and what it holds is compared with what it held before; then moed-http itself."""
import collections
import http.client
import json
import os
import random
import re
import signal
import sys
import threading
import time

PORT, RUN, SECONDS = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
CLIENTS = 64
REQUEST_S = 120  # one that takes longer has not ended
RESUMER = "moed/resume"  # libmoed starts this thread at the first death of a worker, and keeps it
RSS_SLACK = 16 << 20  # what malloc keeps after more streams at once than before

PROMPTS = [f"Once upon a time there was {who}" for who in ("a cat", "a king", "a small house", "nobody", "2 + 3", "an old tree")]


def body_of(kind, i, stream):
    sampling = {"temperature": 0.8, "seed": 7 + i, "ignore_eos": True} if i % 2 else {"temperature": 0, "ignore_eos": True}
    if i == len(PROMPTS) - 1:  # by moed-http's second session
        sampling = {"temperature": 0, "guided_regex": "[a-z ]{20,40}"}
    shared = {**sampling, "stream": stream, "max_tokens": 12 + 4 * i}
    if kind == "/v1/completions":
        return {**shared, "prompt": PROMPTS[i]}
    return {**shared, "messages": [{"role": "user", "content": PROMPTS[i]}]}


class Cut(Exception):
    """The connection ended before the reply did."""


class Refused(Exception):
    """An error with a status or as an event of a stream."""


def text_of(kind, answer, stream):
    if kind == "/v1/messages":
        return "".join(block["text"] for block in answer["content"]) if not stream else answer.get("delta", {}).get("text", "")
    if not answer["choices"]:
        return ""
    choice = answer["choices"][0]
    return choice["text"] if kind == "/v1/completions" else choice["delta" if stream else "message"].get("content") or ""


def error_of(body):
    """The text of an error in its API's shape. Anything else is no clear error."""
    error = body["error"]
    message = error if isinstance(error, str) else error["message"]
    assert message and "\n" not in message, body
    return message


def read_stream(kind, reply):
    text, ended = "", False
    for line in reply:
        if not line.startswith(b"data: "):
            continue
        if line == b"data: [DONE]\n":
            ended = True
            continue
        event = json.loads(line[6:])
        if "error" in event:
            raise Refused(error_of(event))
        ended = ended or event.get("type") == "message_stop"
        text += text_of(kind, event, True)
    if not ended:
        raise Cut("a stream without its end")
    return text


def ask(kind, i, stream):
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=REQUEST_S)
    try:
        connection.request("POST", kind, json.dumps(body_of(kind, i, stream)), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        if reply.status != 200:
            message = error_of(json.loads(reply.read()))
            assert reply.status in (429, 503, 504), (reply.status, message)
            assert reply.status == 504 or reply.getheader("Retry-After"), (reply.status, message)
            raise Refused(f"{reply.status}: {message}")
        return read_stream(kind, reply) if stream else text_of(kind, json.loads(reply.read()), False)
    except TimeoutError as e:
        raise AssertionError(f"{kind} did not end in {REQUEST_S} s") from e
    except (ConnectionError, http.client.IncompleteRead, http.client.BadStatusLine) as e:
        raise Cut(repr(e)) from e
    finally:
        connection.close()


KINDS = ("/v1/completions", "/v1/chat/completions", "/v1/messages")


class Storm:
    def __init__(self, right):
        self.right, self.stop = right, threading.Event()
        self.counts, self.wrong, self.messages = collections.Counter(), [], collections.Counter()
        self.lock = threading.Lock()
        self.frontend_down = []  # [from, to] each; to: infinity while it is down
        self.threads = [threading.Thread(target=self.client, args=(n,), daemon=True) for n in range(CLIENTS)]

    def frontend_was_down(self, begin, end):
        return any(f <= end and begin <= t for f, t in self.frontend_down)

    def one(self, chance):
        kind, i, stream = chance.choice(KINDS), chance.randrange(len(PROMPTS)), chance.random() < 0.7
        begin = time.monotonic()
        try:
            text = ask(kind, i, stream)
            assert text == self.right[kind, i], f"{kind} {i}: '{text}' instead of '{self.right[kind, i]}'"
            return "right"
        except Refused as e:
            self.messages[str(e)] += 1
            time.sleep(0.2)
            return "refused"
        except Cut as e:
            time.sleep(0.2)
            if not self.frontend_was_down(begin, time.monotonic()):
                raise AssertionError(f"{kind} {i} was cut, but moed-http was not killed: {e}") from e
            return "cut"

    def client(self, number):
        chance = random.Random(number)
        while not self.stop.is_set():
            try:
                outcome = self.one(chance)
            except Exception as e:  # any other end is a fault
                self.wrong.append(repr(e))
                self.stop.set()
                return
            with self.lock:
                self.counts[outcome] += 1

    def begin(self):
        for t in self.threads:
            t.start()

    def end(self):
        """All requests end: none is left behind."""
        self.stop.set()
        for t in self.threads:
            t.join(REQUEST_S + 10)
        assert not any(t.is_alive() for t in self.threads), "requests that never end"
        assert not self.wrong, self.wrong[0]


def pid_of(process):
    try:
        with open(f"{RUN}/{process}.pid", encoding="ascii") as f:
            return int(f.read().strip() or 0)
    except (OSError, ValueError):
        return 0


def is_healthy():
    try:
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=10)
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def wait_for(what, seconds, text):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, text
        time.sleep(0.1)


def kill(process, storm):
    """Kills the process and waits until there is another one and the model answers."""
    wait_for(lambda: pid_of(process), 60, f"there is no {process}")
    before = pid_of(process)
    down = [time.monotonic(), float("inf")]
    if process == "http":
        storm.frontend_down.append(down)
    os.kill(before, signal.SIGKILL)
    wait_for(lambda: pid_of(process) not in (0, before), 60, f"{process} was not started again")
    wait_for(is_healthy, 60, f"the model does not answer after the death of {process}")
    down[1] = time.monotonic()


def held(pid):
    """What the process holds: descriptors, threads by name, resident bytes."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as f:
        resident = int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    names = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/comm", encoding="ascii") as f:
            names.append(f.read().strip())
    return len(targets(pid)), sorted(names), resident


def targets(pid):
    """What the descriptors of the process are."""
    found = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(f"{fd} {os.readlink(f'/proc/{pid}/fd/{fd}')}")
        except OSError:  # closed meanwhile
            pass
    return sorted(found)


def run(right, victims, seconds):
    storm, chance = Storm(right), random.Random(int(seconds))
    storm.begin()
    end, n = time.monotonic() + seconds, 0
    while (time.monotonic() < end or 0 < n < len(victims)) and not storm.stop.is_set():
        time.sleep(chance.uniform(0.3, 1.2))
        if victims:
            kill(victims[n % len(victims)], storm)
            n += 1
    wait_for(lambda: storm.stop.is_set() or storm.counts["right"] >= CLIENTS, REQUEST_S, f"hardly any right answer: {storm.counts}")
    storm.end()
    print(f"{', '.join(victims) or 'nothing'} killed {n} times: {dict(storm.counts)}", *storm.messages.most_common(3), sep="\n  ")
    return storm


right = {(kind, i): ask(kind, i, False) for kind in KINDS for i in range(len(PROMPTS))}
pid = pid_of("http")
calm = run(right, [], SECONDS / 6)
assert set(calm.counts) == {"right"}, calm.counts


def at_rest():
    was = held(pid)[:2]
    time.sleep(1)
    return held(pid)[:2] == was


wait_for(at_rest, 60, "moed-http does not come to rest")
before, before_fds = held(pid), targets(pid)
assert "channel" in before[1] and any(t.startswith("ask/") for t in before[1]), before[1]
run(right, ["worker", "cpuexec", "memd"], SECONDS / 2)
assert pid_of("http") == pid, "moed-http was restarted too"
try:
    wait_for(lambda: held(pid)[0] <= before[0] and [t for t in held(pid)[1] if t != RESUMER] == before[1], 60, "leaks")
finally:
    after = held(pid)
    if after[0] > before[0]:
        print("new descriptors:", *sorted(set(targets(pid)) - set(before_fds)), sep="\n  ")
    print(f"moed-http: descriptors {before[0]} -> {after[0]}, threads {before[1]} -> {after[1]}, resident {before[2]} -> {after[2]}")
with open(f"/proc/{pid}/maps", encoding="ascii") as f:
    sanitized = re.search("lib[at]san", f.read())  # which keep what is freed
assert sanitized or after[2] <= before[2] + RSS_SLACK, f"resident memory of moed-http: {before[2]} bytes before, {after[2]} after"
run(right, ["http"], SECONDS / 3)
assert ask("/v1/completions", 0, False) == right["/v1/completions", 0]
