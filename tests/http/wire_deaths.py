"""Deaths and disorder: clients that break off, a worker that dies. The last checks: they disturb the others."""
import os
import random
import signal
import socket
import sys
import threading
import time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from stop_process import stop_process  # pylint: disable=wrong-import-position
from wire_client import LONG, call, connect, metric, read_all, request, unchunk, wait_for


def check_disorder():
    """Clients that send parts of requests, several at once, and leave at any time: nothing is left behind."""
    end, user = time.monotonic() + 4, {"role": "user", "content": "hi"}
    requests = [("POST", "/v1/completions", {"prompt": ["Once", [3, 4]], "n": 2, "max_tokens": 20}),
                ("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 60, "stream": True, "echo": True}),
                ("POST", "/v1/completions", {"prompt": "a " * 3000, "stream": True}),
                ("POST", "/v1/chat/completions", {"messages": [user], "max_tokens": 40, "stream": True}),
                ("POST", "/v1/messages", {"messages": [user], "max_tokens": 40, "stream": True}),
                ("POST", "/v1/responses", {"input": "hi", "max_output_tokens": 40, "stream": True}),
                ("POST", "/api/chat", {"messages": [user], "options": {"num_predict": 20}}),
                ("POST", "/apply-template", {"messages": [user]}), ("GET", "/metrics?process=all", None),
                ("GET", "/v1/models", None), ("GET", "/props", None), ("GET", "/slots", None)]

    def client(seed):
        choose = random.Random(seed)
        while time.monotonic() < end:
            try:
                with connect() as s:
                    for _ in range(choose.choice([1, 1, 3])):
                        data = request(*choose.choice(requests)).replace(b"Connection: close\r\n", b"")
                        s.sendall(data[:choose.randrange(len(data))] if choose.random() < 0.2 else data)
                        s.settimeout(choose.random() * 0.1)
                        while choose.random() < 0.7 and s.recv(5000):
                            pass
                        if choose.random() < 0.1:
                            s.shutdown(socket.SHUT_WR)
            except OSError:
                pass

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    wait_for(lambda: metric("moed_http_connections") <= 1 and metric("moed_http_answers_running") == 0)
    assert metric("moed_http_streams") == 0, metric("moed_http_streams")


def check_broken_streams():
    """The worker dies in the middle of streams: the next one continues each to its end."""
    long = {"temperature": 1, "stream": True}
    user = {"role": "user", "content": "Tell me a story."}
    asked = {"/v1/completions": {**LONG, "max_tokens": 900, "stream": True, "n": 1},
             "/v1/messages": {"messages": [user], "max_tokens": 900, "stop_sequences": ["@"], **long},
             "/v1/responses": {"input": [user], "max_output_tokens": 900, **long},
             "/api/generate": {"prompt": "Once", "raw": True, "options": {"num_predict": 900}}}
    ends = {"/v1/completions": b"data: [DONE]", "/v1/messages": b"event: message_stop\n",
            "/v1/responses": b"event: response.completed\n", "/api/generate": b'"done":true'}
    worker = int(open(os.environ["MOED_RUN"] + "/worker.pid").read())
    sockets = {}
    for path, body in asked.items():
        sockets[path] = connect()
        sockets[path].sendall(request("POST", path, body))
    heads = {path: s.recv(4096) for path, s in sockets.items()}
    os.kill(worker, signal.SIGKILL)
    for path, s in sockets.items():
        reply = heads[path] + read_all(s)
        assert reply.startswith(b"HTTP/1.1 200"), (path, reply[:300])
        assert ends[path] in unchunk(reply.partition(b"\r\n\r\n")[2]), (path, reply[-500:])
    wait_for(lambda: call("GET", "/health")[0] == 200)


def check_restarting_model():
    """While the worker restarts its model gets 503, by any of its names; others still get 404."""
    pids = {name: int(open(f"{os.environ['MOED_RUN']}/{name}.pid").read()) for name in ("supervise", "worker")}
    stop_process(pids["supervise"])
    try:
        os.kill(pids["worker"], signal.SIGKILL)
        wait_for(lambda: call("GET", "/health")[0] == 503)
        for name in ("demo", "default", "demo:latest", "sonnet", ""):
            status, headers, answer = call("POST", "/v1/completions", {"model": name, "prompt": "a"})
            assert status == 503 and headers["retry-after"] == "2", (name, status, headers, answer)
        assert call("GET", "/v1/models/demo")[0] == 503
        for name in ("gpt-9", "lost"):
            assert call("POST", "/v1/completions", {"model": name, "prompt": "a"})[0] == 404, name
    finally:
        os.kill(pids["supervise"], signal.SIGCONT)
    wait_for(lambda: call("GET", "/health")[0] == 200)
