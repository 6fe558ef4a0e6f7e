"""Two replicas behind a router, under load and kills.

usage: router_load.py haproxy|nginx PORT WORK SECONDS RUN0 RUN1 PORT0 PORT1

The right answers are those that a replica gives directly: at temperature 0 they depend on nothing else. A whole answer must come
whatever is killed, because none of it had been sent. A stream may be cut once it has begun, and its text is then a beginning of the
right one."""
import collections
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time

ROUTER, PORT, WORK, SECONDS = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
RUNS, PORTS = sys.argv[5:7], [int(p) for p in sys.argv[7:9]]
NAMES = {"haproxy": ["r1", "r2"], "nginx": [f"127.0.0.1:{p}" for p in PORTS]}[ROUTER]
CONVERSATIONS, TURNS, CLIENTS, TOKENS, REQUEST_S = 12, 3, 8, 40, 100
LONG = 7000  # tokens of an answer that must still run when it is looked for
VICTIMS = ["http", "worker", "http", "memd"]


class Cut(Exception):
    """The connection ended before the answer did; `text` had come."""

    def __init__(self, text):
        super().__init__(text)
        self.text = text


class Failed(Exception):
    """A reply with another status than 200."""


def read_stream(reply):
    text = ""
    try:
        for line in reply:
            if line == b"data: [DONE]\n":
                return text
            if line.startswith(b"data: "):
                event = json.loads(line[6:])
                if "error" in event:
                    raise Cut(text)
                text += "".join(c["delta"].get("content") or "" for c in event["choices"])
    except (http.client.HTTPException, OSError):
        pass
    raise Cut(text)


def ask(port, messages, stream=False, session=None, tokens=TOKENS):
    """The text of an answer, and the replica that gave it."""
    body = {"messages": messages, "temperature": 0, "max_tokens": tokens, "ignore_eos": True, "stream": stream}
    headers = {"Content-Type": "application/json", **({"X-Session-Id": session} if session else {})}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=REQUEST_S)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        reply = connection.getresponse()
        replica = reply.getheader("X-Moed-Replica", "")
        if reply.status != 200:
            raise Failed(f"status {reply.status}: {reply.read(300)!r}")
        if stream:
            return read_stream(reply), replica
        return json.loads(reply.read())["choices"][0]["message"]["content"], replica
    finally:
        connection.close()


def conversation(i):
    """The turns of conversation I, with the right answers: [(messages, answer)]."""
    messages, turns = [], []
    if i % 2:
        messages.append({"role": "system", "content": "You tell stories."})
    for turn in range(TURNS):
        messages.append({"role": "user", "content": f"Tell me story {turn} about animal {i}."})
        answer, _ = ask(PORTS[i % 2], messages)
        turns.append((list(messages), answer))
        messages.append({"role": "assistant", "content": answer})
    return turns


def session_of(i):
    """HAProxy finds half of the conversations by their bodies. nginx does not read bodies."""
    return f"conversation-{i}" if ROUTER == "nginx" or i % 3 == 0 else None


def check_leaving():
    """A client that leaves cancels its request, whether it reads a stream or waits for a whole answer."""
    def left():
        return sum(metric(p, "moed_http_disconnects_total") for p in PORTS)

    wait_for("end of other requests", lambda: not any(map(running, PORTS)))
    before = left()
    for stream in True, False:
        body = json.dumps({"messages": [{"role": "user", "content": "A long story."}], "max_tokens": LONG, "ignore_eos": True, "stream": stream})
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=REQUEST_S)
        connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        wait_for("request at a replica", lambda: any(map(running, PORTS)))
        connection.close()
        wait_for("end of the left request", lambda: not any(map(running, PORTS)))
    assert left() == before + 2, f"of two clients that left the replicas saw {left() - before}"


def check_sticky(conversations):
    """All turns of a conversation go to one replica, and both replicas have some."""
    places = []
    for i, turns in enumerate(conversations):
        found = set()
        for messages, right in turns:
            answer, replica = ask(PORT, messages, session=session_of(i))
            assert answer == right, (answer, right)
            found.add(replica)
        assert len(found) == 1 and found <= set(NAMES), f"conversation {i} was at {found}"
        places.append(found.pop())
    assert set(places) == set(NAMES), f"all conversations went to {set(places)}"
    print(f"{len(places)} conversations stayed:", dict(collections.Counter(places)))


class Load:
    """Clients that ask until `stop`."""

    def __init__(self, conversations):
        self.conversations, self.ended, self.faults = conversations, collections.Counter(), []
        self.stopping, self.lock, self.asked = threading.Event(), threading.Lock(), [0] * CLIENTS
        self.threads = [threading.Thread(target=self._client, args=(k,)) for k in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def _client(self, k):
        chance = random.Random(k)
        while not self.stopping.is_set():
            i, stream = chance.randrange(CONVERSATIONS), chance.random() < 0.5
            messages, right = chance.choice(self.conversations[i])
            kind, fault = "stream" if stream else "whole", None
            try:
                answer, replica = ask(PORT, messages, stream, session_of(i))
                fault = None if answer == right else f"{kind}: {answer!r}, not {right!r}"
                kind += " at " + replica.rsplit(", ", 1)[-1]  # nginx lists those that it tried
            except Cut as e:
                fault = None if e.text and right.startswith(e.text) else f"{kind} cut with {e.text!r} of {right!r}"
                kind = "cut"
            except (Failed, OSError, http.client.HTTPException) as e:
                fault = f"{kind}: {e!r}"
            with self.lock:
                self.ended[kind] += 1
                self.asked[k] += 1
                if fault:
                    self.faults.append(fault)

    def wait_for_all(self):
        """Until what runs now has ended: then no request meets more kills than the router tries again."""
        before = list(self.asked)
        wait_for("answer to each client", lambda: all(now > then for now, then in zip(self.asked, before)), REQUEST_S)

    def stop(self):
        """Ends the clients, and fails if an answer was wrong or missing."""
        self.stopping.set()
        for thread in self.threads:
            thread.join()
        assert not self.faults, f"{len(self.faults)} of {sum(self.ended.values())}: " + "\n".join(self.faults[:5])


def wait_for(what, condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"no {what} after {seconds} s"
        time.sleep(0.05)


def healthy(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def pid_of(run, process):
    try:
        with open(os.path.join(run, f"{process}.pid"), encoding="ascii") as f:
            return int(f.read())
    except (OSError, ValueError):
        return 0  # being restarted


def kill(victim, process):
    """Kills a process of a replica, and waits until the replica has what that ended and answers again."""
    run, ending = RUNS[victim], [process] + (["worker"] if process == "memd" else [])
    before = {p: pid_of(run, p) for p in ending}
    os.kill(before[process], signal.SIGKILL)
    wait_for("successor", lambda: all(pid_of(run, p) not in (0, before[p]) for p in ending))
    wait_for("answer of the killed replica", lambda: healthy(PORTS[victim]))


def session_at(replica, messages):
    """A conversation that the router sends to this replica."""
    places = {}
    for k in range(100):
        places[f"probe-{replica}-{k}"] = ask(PORT, messages, session=f"probe-{replica}-{k}")[1]
        if places[f"probe-{replica}-{k}"] == replica:
            return f"probe-{replica}-{k}"
    raise AssertionError(f"100 conversations went to {set(places.values())}")


def kill_in_turn(load, question, end):
    """One replica at a time: the other one is killed when the router uses the first again. Returns the number of kills."""
    probes, kills = [session_at(name, question) for name in NAMES] if ROUTER == "nginx" else [], 0

    def used_again(victim):
        if ROUTER == "nginx":  # its hash leads a conversation back
            return ask(PORT, question, session=probes[victim])[1] == NAMES[victim]
        return any(line.startswith(f"moed,{NAMES[victim]},") and ",UP," in line for line in haproxy("show stat").splitlines())

    while time.monotonic() < end or kills < 2 * len(VICTIMS):
        victim = kills % 2
        kill(victim, VICTIMS[kills // 2 % len(VICTIMS)])
        kills += 1
        wait_for("return to the router", lambda: used_again(victim))
        load.wait_for_all()
    return kills


def check_kills(conversations):
    load = Load(conversations)
    try:
        kills = kill_in_turn(load, conversations[0][0][0], time.monotonic() + SECONDS)
    finally:
        load.stop()
    assert any(kind.startswith("whole") for kind in load.ended), load.ended
    print(f"{kills} kills:", dict(load.ended))


def haproxy(command):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(os.path.join(WORK, "moed-haproxy.sock"))
        s.sendall(command.encode() + b"\n")
        return s.makefile().read()


def nginx_workers():
    """Those that accept connections."""
    with open(os.path.join(WORK, "moed-nginx.pid"), encoding="ascii") as f:
        master = f.read().strip()
    processes = subprocess.run(["ps", "--ppid", master, "-o", "pid=,args="], capture_output=True, text=True, check=False).stdout
    return {line.split()[0] for line in processes.splitlines() if line.endswith("worker process")}


def drain(on):
    """Takes the first replica out, or puts it back."""
    if ROUTER == "haproxy":
        haproxy(f"set server moed/r1 state {'maint' if on else 'ready'}")
        return
    path = os.path.join(WORK, "nginx.conf")
    with open(path, encoding="utf-8") as f:
        text = f.read()
    line = f"server 127.0.0.1:{PORTS[0]} max_fails"
    assert (line in text) == on, text
    with open(path, "w", encoding="utf-8") as f:
        f.write(text.replace(line, line.replace(" max", " down max")) if on else text.replace(" down max", " max"))
    before = nginx_workers()
    subprocess.run(["nginx", "-c", path, "-s", "reload"], check=True)
    wait_for("new workers of nginx", lambda: nginx_workers() and not nginx_workers() & before)


def check_drain(conversations):
    """What runs at a drained replica goes on, and nothing new comes to it."""
    long, ended = conversations[0][0][0], {}
    right, _ = ask(PORTS[1], long, tokens=LONG)
    session = session_at(NAMES[0], long)
    stream = threading.Thread(target=lambda: ended.update(answer=ask(PORT, long, True, session, LONG)))
    stream.start()
    wait_for("stream", lambda: running(PORTS[0]))
    drain(True)
    for i, turns in enumerate(conversations):
        answer, replica = ask(PORT, turns[0][0], session=session_of(i))
        assert (answer, replica) == (turns[0][1], NAMES[1]), f"{replica} answered while {NAMES[0]} was drained"
    stream.join()
    assert ended["answer"] == (right, NAMES[0]), f"the stream ended with {ended}"
    drain(False)
    wait_for("return of the drained replica", lambda: ask(PORT, long, session=session)[1] == NAMES[0])
    print("a drained replica finished its stream and got nothing new")


def running(port):
    return metric(port, "moed_http_answers_running") > 0


def metric(port, name):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(name + " "))


def check_streaming():
    """Tokens are passed on as they come. A router that waits for more passes on many at once, in every try; a busy machine in some."""
    body = json.dumps({"messages": [{"role": "user", "content": "A long story."}], "max_tokens": 300, "ignore_eos": True, "stream": True})
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    least = 1000
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", PORT), REQUEST_S) as s:
            s.sendall((head + body).encode())
            while not (events := s.recv(1 << 20).count(b"data: {")):
                pass
            least = min(least, events)
        if least <= 3:
            print(f"the first part of a stream has {least} events")
            return
    raise AssertionError(f"a stream of 300 tokens begins with {least} events at once")


def main():
    conversations = [conversation(i) for i in range(CONVERSATIONS)]
    check_streaming()
    check_leaving()
    check_sticky(conversations)
    check_drain(conversations)
    check_kills(conversations)


main()
