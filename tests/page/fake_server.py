"""A server with the page's files and answers of our own choice: reasoning, calls, hostile text, a placement map, keys. So the
browser test sees what no small model says on request. It counts what the page does: streams that were left, requests."""
import base64
import http.server
import json
import pathlib
import threading
import time

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

HOSTILE = """<script>window.pwned = 1</script><img src=x onerror="window.pwned = 1">

[click](javascript:window.pwned=1) and [this](https://x.example/"onclick="window.pwned=1)

![image](https://x.example/track.png)

```html
<script>window.pwned = 1</script>
```

# <svg onload=window.pwned=1>
"""

MARKDOWN = """Two ways, with **their costs**:

1. *Load* the expert, then compute it.
2. Compute it where it is.

| where | time |
|---|--:|
| device | 0.2 ms |
| host | 1.1 ms |

```c
int main(void)
{
\treturn 0;
}
```
"""


FAKE_MODEL = {"id": "fake", "max_model_len": 4096, "status": {"value": "loaded"}, "meta": {
    "architecture": "fake", "n_params": 3e10, "n_experts": 64, "n_experts_used": 6, "size": 1.7e10, "n_ctx_train": 8192}}


class State:
    """What the test looks at and sets."""

    def __init__(self):
        self.left = 0          # streams that the page closed before their end
        self.requests = []     # bodies of chat requests
        self.posts = []        # (path, body, key) of changes
        self.streams = 0       # event streams that are open
        self.api_key = None
        self.admin_key = "admin"
        self.map = True
        self.models = [FAKE_MODEL]
        self.gate = threading.Event()  # an answer to 'wait' begins when it is set
        self.failure = None    # (status, message) of every answer
        self.policy = "moed"
        self.cache_bytes = 6_000_000_000


def text_chunks(text, size=7):
    return [{"content": text[i:i + size]} for i in range(0, len(text), size)]


def call_chunks():
    yield {"content": "I look it up."}
    yield {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}]}
    for part in ('{"city": ', '"Oslo"}'):
        yield {"tool_calls": [{"index": 0, "function": {"arguments": part}}]}


def deltas(messages):
    """The answer to a conversation, by its last message."""
    last = messages[-1]
    if last["role"] == "tool":
        return text_chunks(f"The tool says: {last['content']}"), "stop"
    question = last["content"]
    if "hostile" in question:
        return text_chunks(HOSTILE), "stop"
    if "markdown" in question:
        return [{"reasoning_content": "The person wants "}, {"reasoning_content": "a table."}, *text_chunks(MARKDOWN)], "stop"
    if "weather" in question:
        return call_chunks(), "tool_calls"
    if "endless" in question:
        return ({"content": f"word{i} "} for i in range(1_000_000)), "stop"
    return text_chunks(f"You said: {question}"), "stop"


class Map:
    """A synthetic map: 16 layers of 64 experts, of which some move at each look."""
    LAYERS, EXPERTS = list(range(1, 17)), 64

    def __init__(self):
        n = len(self.LAYERS) * self.EXPERTS
        self.place = [(4, 4, 1, 1, 1, 3, 0)[(i * 7919 >> 3) % 7] for i in range(n)]
        self.use = [(i * 104729 >> 2) % 256 if (i * 31) % 3 == 0 else (i * 7) % 40 for i in range(n)]
        self.chosen = [int((i * 37 + i // 64 * 11) % 64 < 6) for i in range(n)]

    def whole(self, state):
        def pack(values):
            return base64.b64encode(bytes(values)).decode()
        return {"model": "fake", "policy": state.policy, "layers": self.LAYERS, "experts": self.EXPERTS, "experts_used": 6,
                "place": pack(self.place), "use": pack(self.use), "chosen": pack(self.chosen)}

    def change(self, step, state):
        if state.policy == "all":
            self.place = [4] * len(self.place)
        else:
            self.place[step % 64] = 2 + step % 3
        return {"step": step, "cells": [[i, self.place[i], self.use[i], self.chosen[i]] for i in range(len(self.place))]}

    @staticmethod
    def figures(state):
        return {"hit_rate": 0.87, "tokens_per_second": 31.5, "link_bytes_per_second": 9.1e9, "link_busy": 0.34,
                "prefetch_precision": 0.81, "layer_ns": 1_250_000, "layer_planned_ns": 1_190_000, "cpu_busy": 0.46,
                "device_busy": 0.62, "kv_bytes": {"host": 1.9e9, "device": None}, "requests_running": 2,
                "requests_waiting": 0, "policies": ["moed", "lru", "all"], "device_cache_bytes": state.cache_bytes,
                "device_cache_most_bytes": 6_000_000_000}

    PROCESSES = [{"name": "memd", "pid": 11, "state": "running", "rss_bytes": 6.1e9, "restarts": 0,
                  "log": ["info memd ready", "info memd <b>policy moed</b>"]},
                 {"name": "worker", "pid": 12, "state": "running", "rss_bytes": 3.1e8, "restarts": 1, "log": ["info worker ready"]},
                 {"name": "cpuexec", "pid": 13, "state": "starting", "rss_bytes": 4.0e7, "restarts": 0, "log": []}]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder, policy, state = None, "", None

    def log_message(self, *_):
        pass

    def reply(self, status, body, kind="application/json", **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        if self.policy:
            self.send_header("Content-Security-Policy", self.policy)
        self.end_headers()
        self.wfile.write(data)

    def key(self):
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    def refused(self):
        if self.state.api_key in (None, self.key()):
            return False
        self.reply(401, {"error": {"message": "a valid API key is needed"}})
        return True

    def begin_stream(self):
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()

    def event(self, data, name=None):
        text = data if isinstance(data, str) else json.dumps(data)
        self.wfile.write(((f"event: {name}\n" if name else "") + f"data: {text}\n\n").encode())
        self.wfile.flush()

    def do_GET(self):
        path = self.path.split("?")[0]
        name = "index.html" if path == "/" else path.removeprefix("/page/")
        file = self.folder / name
        if path == "/" or (path.startswith("/page/") and "/" not in name and file.is_file()):
            self.reply(200, file.read_bytes(), TYPES[file.suffix])
        elif self.refused():
            pass
        elif path == "/v1/models":
            self.reply(200, {"data": self.state.models})
        elif path == "/moed/events" and self.state.map:
            self.events()
        else:
            self.reply(404, {"error": {"message": "not here"}})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/chat/completions":
            if not self.refused():
                self.chat(body)
            return
        self.state.posts.append((self.path, body, self.key()))
        if self.key() != self.state.admin_key:
            self.reply(401, {"error": {"message": "the admin key is needed"}})
            return
        self.state.policy = body.get("policy", self.state.policy)
        self.state.cache_bytes = body.get("device_bytes", self.state.cache_bytes)
        self.reply(200, {})

    def chat(self, body):
        self.state.requests.append(body)
        model = next((m for m in self.state.models if m["id"] == body["model"]), None)
        if not model:
            return self.reply(404, {"error": {"message": f"there is no model '{body['model']}'"}})
        if self.state.failure:
            status, message = self.state.failure
            return self.reply(status, {"error": {"message": message}})
        if model["status"]["value"] == "unloaded":
            self.state.models = [{**FAKE_MODEL, "id": m["id"]} if m is model else m for m in self.state.models]
        self.answer(body)

    def answer(self, body):
        chunks, finish = deltas(body["messages"])
        tokens = 0
        try:
            self.begin_stream()
            if "wait" in (body["messages"][-1]["content"] or ""):
                for part in (1, 2):
                    self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": None}],
                                "prompt_progress": {"total": 4000, "processed": 1000 * part, "time_ms": 5000 * part}})
                self.state.gate.wait(60)
            for delta in chunks:
                self.event({"model": "fake", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
                tokens += 1
                time.sleep(0.01)
            self.event({"model": "fake", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
            self.event({"choices": [], "usage": {"prompt_tokens": 1500, "completion_tokens": tokens,
                                                 "prompt_tokens_details": {"cached_tokens": 1400}}})
            self.event("[DONE]")
        except OSError:
            self.state.left += 1

    def events(self):
        self.state.streams += 1
        source = Map()
        try:
            self.begin_stream()
            self.event(source.whole(self.state), "map")
            for step in range(100_000):
                self.event(source.change(step, self.state), "change")
                self.event(source.figures(self.state), "figures")
                self.event(source.PROCESSES, "processes")
                time.sleep(0.25)
        except OSError:
            pass
        finally:
            self.state.streams -= 1


def start(folder, policy):
    """Serves in threads. Returns (port, state)."""
    state = State()
    handler = type("H", (Handler,), {"folder": pathlib.Path(folder), "policy": policy, "state": state})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1], state
