"""The placement map of a running moed-http: once, as events, under activity and another policy.

usage: http_watch.py PORT MOED KEY ADMIN_KEY WORKER_PID   (a deployment with a device cache; keys of moed-http)
       http_watch.py PORT MOED KEY ADMIN_KEY              (one without)
Each check prints its name; the first that fails ends the program with its difference."""
import base64
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from stop_process import stop_process  # pylint: disable=wrong-import-position

PORT, MOED, KEY, ADMIN = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
WORKER = int(sys.argv[5]) if len(sys.argv) > 5 else 0
ARRAYS = ("place", "use", "chosen")


LIMIT_S = 60  # for whatever is waited for: the machine may be busy


def call(method, path, body=None, key=KEY):
    c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=LIMIT_S)
    c.request(method, path, json.dumps(body) if body is not None else None, {"Authorization": "Bearer " + key} if key else {})
    r = c.getresponse()
    data = r.read()
    c.close()
    return r.status, json.loads(data) if data[:1] in b"{[" else data.decode()


def metric(name):
    status, text = call("GET", "/metrics")
    assert status == 200, status
    return float(next(line.split()[1] for line in text.splitlines() if line.startswith(name + " ")))


def until(what, check):
    end = time.monotonic() + LIMIT_S
    while True:
        value = check()
        if value:
            return value
        assert time.monotonic() < end, what
        time.sleep(0.05)


def unpack(m):
    """The map with its arrays as lists."""
    m = dict(m)
    for name in ARRAYS:
        m[name] = list(base64.b64decode(m[name], validate=True))
        assert len(m[name]) == len(m["layers"]) * m["experts"], (name, len(m[name]))
    assert set(m["place"]) <= {0, 1, 2, 3, 4} and set(m["chosen"]) <= {0, 1}
    return m


def shown(seconds=0):
    out = subprocess.run([MOED, "map", "--json", "--seconds", str(seconds)], stdout=subprocess.PIPE, check=True).stdout
    return unpack(json.loads(out))


def check_table():
    """`moed map --experts` counts what `moed map --json` lists."""
    arguments = [MOED, "map", "--experts", "--seconds", "0"]
    m = shown()
    out = subprocess.run(arguments, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()[2:]
    experts = m["experts"]
    rows = [(str(layer), i * experts, experts) for i, layer in enumerate(m["layers"])] + [("all", 0, len(m["place"]))]
    expected = []
    for name, first, n in rows:
        places = m["place"][first:first + n]
        used = sum(use > 0 for use in m["use"][first:first + n])
        expected.append([name] + [str(places.count(place)) for place in (4, 3, 2, 1, 0)] + [str(used)])
    assert [line.split() for line in out] == expected, (out, expected)


def generate(n=24, prompt="Once upon a time"):
    subprocess.run([MOED, "run", "-n", str(n), "--ignore-end", "--temp", "0", prompt], stdout=subprocess.DEVNULL, check=True)


class Viewer(threading.Thread):
    """Reads events; rebuilds the map from `map` and `change`."""

    def __init__(self, key=KEY):
        super().__init__(daemon=True)
        self.connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=LIMIT_S)
        self.connection.request("GET", "/moed/events?model=demo", headers={"x-api-key": key})
        self.reply = self.connection.getresponse()
        assert self.reply.status == 200, self.reply.status
        assert self.reply.headers["Content-Type"] == "text/event-stream"
        self.map, self.figures, self.processes = None, None, None
        self.events, self.moved, self.fault, self.complete = [], 0, None, False
        self.start()

    def take(self, name, data):
        self.events.append(name)
        if name == "map":
            self.map = unpack(data)
        elif name == "change":
            m = dict(self.map, step=data["step"])
            for array in ARRAYS:
                m[array] = list(m[array])
            for index, *values in data["cells"]:
                before = [m[array][index] for array in ARRAYS]
                assert before != values, (index, values, "is no change")
                self.moved += before[0] != values[0]
                for array, value in zip(ARRAYS, values):
                    m[array][index] = value
            self.map = m
        elif name in ("figures", "processes"):
            setattr(self, name, data)
        elif name == "failed":
            assert data["message"], data
        else:
            raise AssertionError(name)

    def run(self):
        name = None
        try:
            for line in self.reply:
                line = line.decode().rstrip("\n")
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    self.take(name, json.loads(line[6:]))
                else:
                    assert line in ("", ":"), line
            self.complete = True
        except Exception as e:
            self.fault = e

    def same(self):
        """Whether the rebuilt map is the one that `moed map --json` prints."""
        if self.fault:
            raise self.fault
        return self.map == shown()

    def leave(self):
        self.connection.sock.shutdown(2)
        self.join(LIMIT_S)


def check_keys():
    for path in ("/moed/map", "/moed/events"):
        assert call("GET", path, key=None)[0] == 401, path
    status, m = call("GET", "/moed/map?model=nobody")
    assert status == 404 and m["error"]["code"] == "model_not_found", (status, m)
    for path in ("/moed/policy", "/moed/resize"):
        body = {"policy": "lru", "device_bytes": 1 << 20}
        assert call("POST", path, body, key=None)[0] == 401, path
        status, m = call("POST", path, body)
        assert status == 403 and "admin key" in m["error"]["message"], (path, status, m)
        for bad in ({}, {"policy": 3, "device_bytes": "x"}, {"policy": "", "device_bytes": -1}, [], {"model": 1}):
            assert call("POST", path, bad, key=ADMIN)[0] == 400, (path, bad)
    assert call("GET", "/v1/models", key=ADMIN)[0] == 200, "an admin key is no API key"


def check_once():
    m = unpack(call("GET", "/moed/map")[1])
    assert m == unpack(call("GET", "/moed/map?model=demo")[1]) == shown()
    check_table()
    assert m["model"] == "demo" and len(m["layers"]) == 8 and m["experts"] == 32 and m["experts_used"] == 4, m
    until("the one-shot viewer is still there", lambda: metric("moed_http_viewers") == 0)


def check_log_of_http():
    """moed-http's lines name other clients, and have their prompts with --log-bodies: only an admin sees them."""
    call("POST", "/v1/completions", {"prompt": "Once upon a time", "max_tokens": 1})
    viewers = Viewer(), Viewer(ADMIN)
    logs = []
    for viewer in viewers:
        until("no processes", lambda: viewer.processes)
        logs.append({p["name"]: p["log"] for p in viewer.processes})
        viewer.leave()
    assert logs[0]["http"] == [] and logs[0]["worker"], logs
    assert any("/v1/completions 200 ok key=alice" in line for line in logs[1]["http"]) and logs[1]["worker"], logs


def check_nobody_looks():
    until("somebody looks", lambda: metric("moed_http_viewers") == 0)

    def quiet():  # a poll may be under way
        polls = metric("moed_http_watch_polls_total")
        time.sleep(1)
        return metric("moed_http_watch_polls_total") == polls
    until("polls without viewers", quiet)


def check_activity():
    """Events follow what the model does; two viewers share one poller and see the same."""
    a = Viewer()
    b = Viewer()
    until("no figures, no processes", lambda: a.map and b.map and a.figures and b.processes)
    assert a.events[0] == b.events[0] == "map", (a.events, b.events)
    generate()
    until("the rebuilt map is not the map", a.same)
    until("the second viewer's map is not the map", b.same)
    m, used = a.map, a.map["experts_used"]
    assert m["step"] and all(sum(m["chosen"][r * 32:r * 32 + 32]) == used for r in range(8)), m["chosen"]
    assert all(u > 0 for u, c in zip(m["use"], m["chosen"]) if c), "a chosen expert is not used"
    assert sum(u > 0 for u in m["use"]) >= 8 * used
    assert metric("moed_http_viewers") == 2
    polls, begin = metric("moed_http_watch_polls_total"), time.monotonic()
    time.sleep(1.5)
    until("no polls", lambda: metric("moed_http_watch_polls_total") > polls)
    more, seconds = metric("moed_http_watch_polls_total") - polls, time.monotonic() - begin
    assert more <= 4 * seconds + 2, (more, seconds)  # two pollers would be twice that
    b.leave()
    return a


def check_policy(v):
    assert v.map["policy"] == "moed" and "lru" in v.figures["policies"], (v.map["policy"], v.figures)
    status, m = call("POST", "/moed/policy", {"model": "demo", "policy": "nothing"}, key=ADMIN)
    assert status == 400 and "lru" in m["error"]["message"], (status, m)
    moved, whole = v.moved, v.events.count("map")
    status, m = call("POST", "/moed/policy", {"model": "demo", "policy": "lru"}, key=ADMIN)
    assert status == 200 and m["policy"] == "lru" and m["cache"] == "lru", (status, m)
    until("no map of the new policy", lambda: v.map["policy"] == "lru")
    assert v.events.count("map") > whole
    generate(12, "The king had three")
    until("the rebuilt map is not the map under lru", v.same)
    until("no expert moved under lru", lambda: v.moved > moved)
    assert {1, 4} <= set(v.map["place"]), set(v.map["place"])


def check_resize(v):
    before, most = v.figures["device_cache_bytes"], v.figures["device_cache_most_bytes"]
    assert 0 < before < most, v.figures
    status, m = call("POST", "/moed/resize", {"model": "demo", "device_bytes": before // 2}, key=ADMIN)
    assert status == 200 and m["device_cache_bytes"] == before, (status, m)
    until("the cache has not shrunk", lambda: 0 < v.figures["device_cache_bytes"] <= before // 2)
    until("the rebuilt map is not the map after a resize", v.same)
    status, m = call("POST", "/moed/resize", {"device_bytes": 1}, key=ADMIN)
    assert status == 400, (status, m)


def kill(v, name):
    """Kills a process; returns once the stream shows that it runs again."""
    before = next(p for p in v.processes if p["name"] == name)
    assert before["state"] == "ready" and before["rss_bytes"] > 0 and before["log"], before
    os.kill(before["pid"], signal.SIGKILL)

    def restarted():
        p = next((p for p in v.processes if p["name"] == name), before)
        return p["restarts"] == before["restarts"] + 1 and p["state"] == "ready" and p["pid"] != before["pid"]
    until("no restart is shown: " + name, restarted)


def check_death(v):
    """The worker dies, then memd: the stream goes on, and shows the restarts, the new worker's activity, the new memd's map."""
    names = [p["name"] for p in v.processes]
    assert names[0] == "memd" and {"worker", "http"} <= set(names), names
    assert next(p["pid"] for p in v.processes if p["name"] == "worker") == WORKER
    kill(v, "worker")
    until("the dead worker's activity is shown", lambda: not any(v.map["use"]))
    generate(6)
    until("the rebuilt map is not the new worker's", lambda: (any(v.map["chosen"]) or generate(6)) and v.same())
    whole = v.events.count("map")
    kill(v, "memd")
    until("no map of the new memd", lambda: v.events.count("map") > whole)
    generate(6)
    until("the rebuilt map is not the new memd's", lambda: (any(v.map["chosen"]) or generate(6)) and v.same())


def check_silence(v):
    """memd does not answer: the stream says once why there is no map, and goes on with the rest; then the whole map comes."""
    memd = next(p["pid"] for p in v.processes if p["name"] == "memd")
    stop_process(memd)
    try:
        begin = len(v.events)
        until("no reason is given", lambda: "failed" in v.events[begin:])
        at = len(v.events)
        until("the processes are no longer shown", lambda: "processes" in v.events[at:])
        assert v.events[begin:].count("failed") == 1, v.events[begin:]
    finally:
        os.kill(memd, signal.SIGCONT)
    at = len(v.events)
    until("no map of the memd that answers again", lambda: "map" in v.events[at:])


def check_figures(v):
    until("no conversation is counted", lambda: v.figures["kv_bytes"]["host"] and v.figures["requests_running"] == 0)
    f = v.figures
    assert f["hit_rate"] is None or 0 <= f["hit_rate"] <= 1
    for name in ("link_busy", "cpu_busy", "device_busy"):
        assert f[name] is None or 0 <= f[name] <= 1, (name, f)
    assert f["kv_bytes"]["device"] is None and 0 < f["device_cache_bytes"] < f["device_cache_most_bytes"], f


def check_ollama():
    """What Ollama's clients show of a loaded model: its share on the device, and the file's quantisation."""
    processes = json.loads(subprocess.run([MOED, "ps", "--json"], stdout=subprocess.PIPE, check=True).stdout)
    memory = next((p["device_memory"] for p in processes if "device_memory" in p), None)
    on_device = sum(memory[name] for name in ("dense_bytes", "expert_bytes", "kv_bytes")) if memory else 0
    model, = call("GET", "/api/ps")[1]["models"]
    assert model["size_vram"] == on_device and bool(on_device) == bool(WORKER), (model, memory)
    assert model["size"] >= model["size_vram"], model
    tag, = call("GET", "/api/tags")[1]["models"]
    assert tag["digest"] == model["digest"] and re.fullmatch("[0-9a-f]{64}", tag["digest"]), (tag, model)
    for details in (model["details"], tag["details"], call("POST", "/api/show", {"model": "demo"})[1]["details"]):
        assert details["quantization_level"] == "Q8_0", details


def check_slots():
    assert call("GET", "/props")[1]["total_slots"] == 3


def check_plain():
    """Without a device cache: experts in memory or in the file, no figures of a cache, nothing to change."""
    v = Viewer()
    until("no figures", lambda: v.map and v.figures)
    assert v.map["policy"] is None and set(v.map["place"]) == {0, 1}, (v.map["policy"], set(v.map["place"]))
    for name in ("hit_rate", "link_busy", "layer_ns", "device_busy", "policies", "device_cache_bytes"):
        assert v.figures[name] is None, (name, v.figures)
    generate(16)
    until("the rebuilt map is not the map", v.same)
    assert v.moved > 0, "no expert was read"
    for path, body in (("/moed/policy", {"policy": "lru"}), ("/moed/resize", {"device_bytes": 1 << 20})):
        status, m = call("POST", path, body, key=ADMIN)
        assert status == 400 and "no memory of its own" in m["error"]["message"], (path, status, m)
    v.leave()


def check_end():
    """A server that stops ends the stream; the client sees its end, not a broken connection."""
    v = Viewer()
    until("no map", lambda: v.map)
    subprocess.run([MOED, "down"], stdout=subprocess.DEVNULL, check=True)
    v.join(LIMIT_S)
    assert v.complete, v.fault


def checked(name, function, *arguments):
    result = function(*arguments)
    print("ok", name, flush=True)
    return result


if WORKER:
    checked("keys", check_keys)
    checked("once", check_once)
    checked("log of http", check_log_of_http)
    checked("nobody looks", check_nobody_looks)
    viewer = checked("activity", check_activity)
    checked("policy", check_policy, viewer)
    checked("resize", check_resize, viewer)
    checked("death", check_death, viewer)
    checked("silence", check_silence, viewer)
    checked("figures", check_figures, viewer)
    checked("slots", check_slots)
    viewer.leave()
    checked("nobody looks any more", check_nobody_looks)
else:
    checked("without a device cache", check_plain)
checked("Ollama's lists", check_ollama)
checked("end", check_end)
