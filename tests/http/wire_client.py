"""A client by raw sockets, for the checks of http_wire.py, whose arguments it reads."""
import json
import socket
import subprocess
import sys
import time

PORT, MOED, PID = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
LIMIT_S = 60  # for whatever is waited for: the machine may be busy
GREEDY = {"temperature": 0, "ignore_eos": True}
LONG = {"prompt": "Once upon a time", "max_tokens": 3600, "temperature": 1, "ignore_eos": True}


def connect(timeout=LIMIT_S):
    s = socket.create_connection(("127.0.0.1", PORT), timeout=timeout)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def read_all(s):
    data = b""
    try:
        while block := s.recv(65536):
            data += block
    except (ConnectionResetError, BrokenPipeError):
        pass
    return data


def raw(request, timeout=LIMIT_S):
    """The whole reply to bytes, to the end of the connection."""
    with connect(timeout) as s:
        s.sendall(request)
        return read_all(s)


def unchunk(body):
    out = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        n = int(size, 16)
        if n == 0:
            return out
        out, body = out + body[:n], body[n + 2:]
    raise AssertionError("a chunked body without its end")


def parse(reply):
    head, _, body = reply.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = {k.lower(): v.strip() for k, v in (line.split(":", 1) for line in lines[1:])}
    if headers.get("transfer-encoding") == "chunked":
        body = unchunk(body)
    return int(lines[0].split()[1]), headers, body


def request(method, path, body=None, headers=()):
    data = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Length: {len(data)}"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + data


def call(method, path, body=None, headers=()):
    status, head, data = parse(raw(request(method, path, body, headers)))
    kind = head.get("content-type", "")
    return status, head, json.loads(data) if kind == "application/json" else data.decode()


def post(path, **body):
    status, _, answer = call("POST", path, body)
    assert status == 200, (path, body, status, answer)
    return answer


def refused(path, body, status, parameter=None):
    got, _, answer = call("POST", path, body)
    assert got == status, (path, body, got, answer)
    if parameter:
        assert answer["error"]["param"] == parameter, answer
    return answer


def events(path, **body):
    """A stream's events: (name, data) each."""
    status, head, text = call("POST", path, {**body, "stream": True})
    assert status == 200 and head["content-type"] == "text/event-stream", (status, head, text)
    assert text.endswith("\n\n"), text[-100:]
    found = []
    for block in text[:-2].split("\n\n"):
        name, data = None, None
        for line in block.split("\n"):
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                data = line[6:]
            else:
                assert line.startswith(":"), line
        if data is not None:
            found.append((name, data))
    return found


def metric(name):
    for line in call("GET", "/metrics")[2].splitlines():
        if line.startswith(name + " "):
            return float(line.split()[1])
    raise AssertionError(f"no metric {name}")


def wait_for(what, pause_s=0.05):
    end = time.monotonic() + LIMIT_S
    while not what():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(pause_s)


def moed(*arguments):
    return subprocess.run([MOED, *arguments], check=True, capture_output=True, text=True).stdout


def worker_metric(name):
    return sum(float(line.split()[1]) for line in moed("metrics", "worker").splitlines() if line.startswith(name + " "))
