"""Hostile and unusual framing: lengths, hosts, folded fields, HEAD, origins of pages, late headers, libmicrohttpd's refusals."""
import json
import os
import time
from wire_client import LIMIT_S, PID, call, connect, metric, parse, raw, read_all, request, wait_for

HOST = "Host: localhost\r\n"
SMALL = '{"prompt":"a","max_tokens":1}'


def check_framing():
    def status(text):
        reply = raw(text.encode("latin-1"))
        return parse(reply)[0] if reply else None
    post_line = "POST /v1/completions HTTP/1.1\r\n"
    chunk = "1d\r\n" + SMALL + "\r\n0\r\n\r\n"
    assert status(post_line + HOST + "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk) == 200
    ambiguous = {
        "length and chunked": HOST + "Content-Length: 29\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk,
        "two lengths": HOST + "Content-Length: 29\r\nContent-Length: 5\r\n\r\n" + SMALL,
        "the same length twice": HOST + "Content-Length: 29\r\nContent-Length: 29\r\n\r\n" + SMALL,
        "a list of lengths": HOST + "Content-Length: 29, 29\r\n\r\n" + SMALL,
        "a signed length": HOST + "Content-Length: +29\r\n\r\n" + SMALL,
        "another encoding": HOST + "Transfer-Encoding: xchunked\r\n\r\n" + chunk,
        "two encodings": HOST + "Transfer-Encoding: gzip, chunked\r\n\r\n" + chunk,
        "a space before the colon": HOST + "Content-Length : 29\r\n\r\n" + SMALL,
        "no host": "Content-Length: 29\r\n\r\n" + SMALL,
        "a folded length": HOST + "Content-Length:\r\n 29\r\n\r\n" + SMALL,
        "a folded name": HOST + "Transfer-E: chunked\r\n ncoding\r\n\r\n" + chunk,
        "a folded name and a length": HOST + "Transfer-E: chunked\r\n ncoding\r\nContent-Length: 29\r\n\r\n" + chunk,
        "a folded host": "Hos: localhost\r\n\tt\r\nContent-Length: 29\r\n\r\n" + SMALL,
        "a folded value": HOST + "X: a\r\n b\r\nContent-Length: 29\r\n\r\n" + SMALL,
        "a NUL in a length": HOST + "Content-Length: 0\0 29\r\nX: a\r\n\r\n" + SMALL,
        "a NUL in the last field": HOST + "X: a\r\nContent-Length: 0\0\0\0\0 29\r\n\r\n" + SMALL,
        "a NUL in a value": HOST + "X: a\0b\r\nContent-Length: 29\r\n\r\n" + SMALL,
        "a bare CR": HOST + "X: a\rContent-Length: 5\r\nContent-Length: 29\r\n\r\n" + SMALL,
        "two hosts": HOST + HOST + "Content-Length: 29\r\n\r\n" + SMALL,
    }
    for name, rest in ambiguous.items():
        smuggled = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
        reply = raw((post_line + rest + smuggled).encode())
        assert reply.startswith(b"HTTP/1.1 400"), (name, reply[:200])
        assert reply.count(b"HTTP/1.1 ") == 1, (name, "the rest was taken for a request", reply)
        assert json.loads(parse(reply)[2])["error"]["message"], (name, reply)
    assert status("POST /v1/completions HTTP/1.1\r\n" + HOST + "Content-Length: 999999999\r\n\r\n") == 413
    assert status("GET / HTTP/1.1\r\n" + HOST + "X: " + "a" * 70000 + "\r\n\r\n") in (431, None)
    assert status("GET /livez HTTP/1.1\r\nHost: evil.example\r\n\r\n") == 403
    # blanks around values, empty ones, and lines that end with LF alone are no ambiguity
    assert status("GET /livez?a=%20 HTTP/1.1\r\nHost:\t localhost\r\nX:\r\nCookie: a=b; c=d\r\nConnection: close \r\n\r\n") == 200
    assert status("GET /livez HTTP/1.1\nHost: localhost\nX: a  \nConnection: close\n\n") == 200
    own = "GET /livez HTTP/1.1\r\nHost: localhost:1\r\nConnection: close\r\nOrigin: http://localhost:1\r\n\r\n"
    assert status(own) == 200
    # a target may have the absolute form, with the same host; a path does not end at %00
    assert status("GET http://localhost/livez HTTP/1.1\r\n" + HOST + "Connection: close\r\n\r\n") == 200
    assert status("GET http://evil.example/livez HTTP/1.1\r\n" + HOST + "\r\n") == 400
    assert status("GET /%6civez HTTP/1.1\r\n" + HOST + "Connection: close\r\n\r\n") == 200
    assert status("GET /livez%00x HTTP/1.1\r\n" + HOST + "\r\n") == 404
    for line in ("GET /livez\0x HTTP/1.1", "GET\0x /livez HTTP/1.1", "GET /livez HTTP/1.1\0x", "GET /livez?a\0b HTTP/1.1"):
        assert status(line + "\r\n" + HOST + "Connection: close\r\n\r\n") == 400, line
    assert status("GET  /livez?a=%20b HTTP/1.1\r\n" + HOST + "Connection: close\r\n\r\n") == 200


def check_head():
    """A HEAD has the headers of the GET and no body; one of a stream ends with them."""
    for path in ("/livez", "/v1/models", "/moed/map", "/moed/events", "/moed/events?model=nobody"):
        status = b"404" if "nobody" in path else b"200"
        with connect() as s:
            s.sendall(f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() + request("GET", "/livez"))
            head, _, rest = read_all(s).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %s " % status) and rest.startswith(b"HTTP/1.1 200 "), (path, head, rest)
        assert (path == "/moed/events") == (b"text/event-stream" in head), (path, head)
    wait_for(lambda: metric("moed_http_viewers") == 0)
    time.sleep(1)  # an event of a stream that is still watched would come now
    os.kill(PID, 0)


def check_origins():
    """Without keys: pages that are listed, pages of this machine and apps, and no others."""
    for origin in ("http://evil.example", "null"):
        status, head, answer = call("GET", "/livez", headers=["Origin: " + origin])
        assert status == 403 and "--cors-origins" in answer["error"]["message"], (status, answer)
        assert "access-control-allow-origin" not in head, head
    for origin in ("https://listed.example", "http://localhost:3000", "tauri://localhost", "chrome-extension://abc"):
        status, head, _ = call("GET", "/livez", headers=["Origin: " + origin])
        assert status == 200 and head["access-control-allow-origin"] == origin and head["vary"] == "Origin", (status, head)
        assert {"x-request-id", "retry-after", "x-should-retry"} < set(head["access-control-expose-headers"].split(", ")), head
        assert "access-control-allow-credentials" not in head, head
    page = ["Origin: https://listed.example", "Accept: text/html"]
    _, head, _ = call("GET", "/", headers=page)  # the reply with the most headers
    assert head["access-control-expose-headers"] and head["referrer-policy"] == "no-referrer", head
    names = ",".join(f"x-header-number-{i}" for i in range(30))
    got, head, _ = call("OPTIONS", "/v1/models", headers=["Origin: https://listed.example", "Access-Control-Request-Method: GET",
                                                          "Access-Control-Request-Headers: " + names])
    assert got == 204 and "GET" in head["access-control-allow-methods"], (got, head)
    assert head["access-control-allow-headers"] == names and head["access-control-max-age"] == "600", head


def check_refusals_of_the_library():
    """What libmicrohttpd refuses by itself has the shape of the API too, and a line in the log."""
    def openai(answer):
        return answer["error"]["message"] and answer["error"]["type"] == "invalid_request_error"

    def anthropic(answer):
        return answer["type"] == "error" and answer["error"]["message"]

    def ollama(answer):
        return isinstance(answer["error"], str)

    chunked = HOST + "Transfer-Encoding: chunked\r\n\r\n"
    for text, status, message in [
            ("GET /livez\r\n\r\n", 400, openai), ("GET /livez HTTP/1.1\r\n\r\n", 400, openai),
            ("GET /livez HTTP/1.1\r\n" + HOST + "no colon\r\n\r\n", 400, openai),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, openai),
            ("GET /livez HTTP/1.1\r\n" + HOST + "".join(f"x{i}: a\r\n" for i in range(1500)) + "\r\n", 431, openai),
            ("GET /" + "a" * 20000 + " HTTP/1.1\r\n" + HOST + "\r\n", 414, openai),
            ("POST /api/chat?a=b HTTP/1.1\r\n" + HOST + "Content-Length: +2\r\n\r\n{}", 400, ollama),
            ("POST /v1/messages HTTP/1.1\r\n" + chunked + "zz\r\n", 400, anthropic),
            ("POST /v1/messages HTTP/1.1\r\n" + chunked + "f" * 20 + "\r\n", 413, anthropic)]:
        counter = f'moed_http_requests_total{{code="{status // 100}xx"}}'
        before = metric(counter)
        got, head, body = parse(raw(text.encode()))
        assert got == status and head["content-type"] == "application/json" and head["x-request-id"], (text[:80], got, head)
        assert len(body) == int(head["content-length"]) and message(json.loads(body)), (text[:80], body)
        assert metric(counter) == before + 1, (text[:80], before)


def check_late_requests_are_closed():
    """The test's --header-timeout is 2 s: headers that drip, and nothing at all."""
    before = metric("moed_http_late_connections_total")
    with connect() as silent, connect() as slow:
        begun = time.monotonic()
        slow.settimeout(0.25)
        while time.monotonic() - begun < LIMIT_S:
            try:
                slow.sendall(b"G")
                if not slow.recv(1):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        assert 1 < time.monotonic() - begun < LIMIT_S, "dripped headers were not closed"
        assert silent.recv(10) == b""
    assert metric("moed_http_late_connections_total") >= before + 2
