"""Large bodies: who parses them, which memory they share, which give way, what an answer keeps of one."""
import os
import select
import socket
import subprocess
import threading
import time
from wire_client import GREEDY, LIMIT_S, MOED, PID, call, connect, events, metric, moed, parse, post, read_all, request, wait_for


def check_large_bodies():
    """Those above 64 KiB, and schemas to loosen, are another thread's work: answers, refusals, clients that leave."""
    more, asked = {"user": "x" * 200000}, {"prompt": "Once upon", "max_tokens": 4, **GREEDY}
    short = post("/v1/completions", **asked)["choices"]
    assert post("/v1/completions", **asked, **more)["choices"] == short
    assert len(events("/v1/completions", **asked, **more)) == len(events("/v1/completions", **asked))
    schema = {"type": "json_schema", "json_schema": {"schema": {"enum": ["a"], "unknown": 1}}}
    for large in ({}, more):
        assert post("/v1/completions", prompt="Once", max_tokens=9, response_format=schema, **large)["choices"][0]["text"] == '"a"'
    assert post("/tokenize", content="a" * 100000)["count"] > 1000
    one = {"prompt": "a", "stream": False, "options": {"num_predict": 1}}
    assert post("/api/generate", **one, system="b " * 1000)["prompt_eval_count"] > 500
    for bad in ({"prompt": 5}, {}, {"messages": []}):
        assert call("POST", "/v1/completions", {**bad, **more})[0] == 400, bad


def check_slow_schemas():
    """They delay no large body, and one client waits with at most a quarter of the test's --answers, 40."""
    def begin(i):
        patterns = {f"p{j}": {"type": "string", "pattern": f"^([a-z]{{0,40}}[0-9]{{0,40}}x{i}y{j}){{0,30}}$"} for j in range(40)}
        form = {"type": "json_schema", "json_schema": {"schema": {"type": "object", "properties": patterns}}}
        s = connect()
        s.sendall(request("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 1, "response_format": form}))
        return s
    waiting = [begin(i) for i in range(8)]
    assert post("/tokenize", content="a" * 100000)["count"] > 1000
    refused_at_once = []

    def is_refused():
        waiting.append(begin(len(waiting)))  # faster than they are loosened
        ready = select.select(waiting, [], [], 0)[0]
        answers = [parse(read_all(s)) for s in ready]
        for s in ready:
            waiting.remove(s)
            s.close()
        refused_at_once.extend(a for a in answers if a[0] == 429)
        return refused_at_once
    wait_for(is_refused, 0)
    _, head, answer = refused_at_once[0]
    assert int(head["retry-after"]) > 0 and "of this key or address" in answer.decode(), answer
    for s in waiting:
        s.close()
    wait_for(lambda: metric("moed_http_answers_running") == 0)


def check_bodies_that_wait():
    """Those that wait to be parsed leave with their clients, are logged where bodies are, and give way to another client's."""
    command = [os.path.join(os.path.dirname(MOED), "moed-http"), "--run", os.environ["MOED_RUN"] + "-waiting", "--listen", "127.0.0.1:0",
               "--bodies-bytes", "11000000", "--log-bodies"]
    many = b'{"prompt": 5, "x": [' + b'"", ' * 700000 + b'""]}'  # a tenth of a second, and 2.8 MB

    def head(body):
        return b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)

    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        lines = []
        reader = threading.Thread(target=lambda: lines.extend(server.stderr))
        reader.start()
        try:
            wait_for(lambda: any("listening at http:" in line for line in lines))
            port = int(next(line for line in lines if "listening at http:" in line).rsplit(":", 1)[1])

            def begin(source, body):
                s = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S, source_address=(source, 0))
                s.sendall(head(many) + body)
                return s

            def metric_of(name):
                with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as s:
                    s.sendall(request("GET", "/metrics"))
                    return float(read_all(s).partition(f"\n{name} ".encode())[2].split()[0])

            def left():
                return metric_of("moed_http_disconnects_total")

            def parses():
                for task in os.listdir(f"/proc/{server.pid}/task"):
                    with open(f"/proc/{server.pid}/task/{task}/stat") as f:
                        if "(bodies) R" in f.read():
                            return True
                return False

            def all_leave():
                """Some may be answered before, where this program does not run in time."""
                before = left()
                busy = [begin("127.0.0.1", many) for _ in range(3)]
                wait_for(lambda: parses() or select.select(busy[:1], [], [], 0)[0], 0)
                for i in range(10):
                    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as s:
                        s.sendall(request("POST", "/v1/completions", {"prompt": f"leaver {i}", "user": "x" * 100000}))
                for s in busy:
                    s.close()
                wait_for(lambda: metric_of("moed_http_answers_running") == 0 and not parses())
                return left() - before >= 10
            wait_for(all_leave, 0)
            for i in range(10):
                wait_for(lambda: any(f"leaver {i}" in line for line in lines))
            dropped = 0
            for i in range(40):
                if dropped:
                    break
                held = begin("127.0.0.2", many[:-400000])
                full = [begin("127.0.0.1", many) for _ in range(3)]
                wait_for(lambda: parses() or select.select(full[:1], [], [], 0)[0], 0)
                time.sleep(0.02 * (i % 4))  # so that the others wait already, at one of these times
                held.sendall(many[-400000:])
                assert read_all(held).startswith(b"HTTP/1.1 400"), "the client with one body lost it"
                dropped += sum(b"this key or address" in read_all(s) for s in full)
                for s in (held, *full):
                    s.close()
            assert dropped, "no body that waited was dropped"
        finally:
            server.terminate()
            reader.join()


def check_memory_of_answers():
    """A running answer keeps nothing of its body that nobody reads any more."""
    if "ASAN_OPTIONS" in os.environ:  # its quarantine does
        return
    def resident():
        with open(f"/proc/{PID}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))
    more = {"messages": [{"role": "user", "content": "a", "reasoning_content": "y" * 800000}], "user": "x" * 800000}
    asked = {"max_tokens": 3600, "ignore_eos": True, "stream": True}
    for path, body in (("/v1/completions", {"prompt": "a", "user": "x" * 800000}), ("/v1/chat/completions", more)):
        before = resident()
        running = []
        for _ in range(20):
            running.append(connect())
            running[-1].sendall(request("POST", path, {**asked, **body}))
            assert running[-1].recv(1000).startswith(b"HTTP/1.1 200"), path
        grown = resident() - before
        for s in running:
            s.close()
        wait_for(lambda: metric("moed_http_answers_running") == 0)
        assert grown < 10000, f"{path}: 20 answers keep {grown} kB"


def check_bodies_together():
    """The bodies that are being read share the memory for them (the test's --bodies-bytes is 1 MB): the largest gives way, and small ones
    have memory of their own. One alone always fits."""
    large = {"prompt": "a", "max_tokens": 1, "x": "a" * 1500000}
    medium = {**large, "x": "a" * 500000}
    assert call("POST", "/v1/completions", large)[0] == 200
    holds = [request("POST", "/v1/completions", {**large, "x": "a" * n}) for n in (100000, 600000)]
    with connect() as small, connect() as s:
        small.sendall(holds[0][:-1])
        s.sendall(holds[1][:-1])
        def dropped():
            return "is dropped" in moed("logs", "http")
        wait_for(lambda: call("POST", "/v1/completions", medium)[0] == 200 and dropped())
        assert call("POST", "/v1/completions", {**large, "x": "a" * 20000})[0] == 200, "a small body"
        s.sendall(holds[1][-1:])
        status, headers, answer = parse(read_all(s))
        assert status == 503 and headers["retry-after"] == "1" and b"this key or address" in answer, answer
        small.sendall(holds[0][-1:])
        assert parse(read_all(small))[0] == 200, "the large bodies took a small one's memory"


def check_bodies_of_addresses():
    """At an IPv6 socket each IPv4 address is a client of its own: one that fills the memory for small bodies (125 kB) loses its own, not
    the largest of another."""
    if not socket.has_dualstack_ipv6():
        print("no IPv6 here")
        return
    command = [os.path.join(os.path.dirname(MOED), "moed-http"), "--run", os.environ["MOED_RUN"] + "-ipv6", "--listen", "[::]:0",
               "--insecure", "--bodies-bytes", "1000000"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            lines = iter(server.stderr.readline, "")
            port = next(int(line.rsplit(":", 1)[1]) for line in lines if "listening at http:" in line)
            def begin(source, n):
                s = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S, source_address=(source, 0))
                s.sendall(request("POST", "/v1/completions", {"prompt": "a" * n})[:-1])
                return s
            held = [begin("127.0.0.2", 40000), *(begin("127.0.0.1", 25000) for _ in range(4))]
            assert any("is dropped" in line for line in lines)
            answers = []
            for s in held:
                s.sendall(b"}")
                answers.append(b"this key or address" in read_all(s))
                s.close()
            assert not answers[0] and answers[1:].count(True) == 1, answers
        finally:
            server.terminate()
