"""Models on demand. usage: http_models.py PORT MOED RUN FOLDER MODEL | PORT --no-memory MODELS_PID | PORT --restarting WORKER_PID MODELS_PID |
PORT --starting | PORT --contexts MODEL N [MODEL N]... --defaults MODEL"""
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from stop_process import stop_process  # pylint: disable=wrong-import-position

PORT = int(sys.argv[1])
LONG = "A model with a name (quantised) that is longer than a deployment's"
QUESTION = {"messages": [{"role": "user", "content": "What is 2 + 3?"}], "temperature": 0}
DEADLINE_S = 120  # of anything that is waited for


def call(method, path, body=None, timeout=DEADLINE_S, key=""):
    c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=timeout)
    c.request(method, path, json.dumps(body) if body is not None else None, {"Authorization": f"Bearer {key}"} if key else {})
    reply = c.getresponse()
    data = reply.read()
    c.close()
    return reply.status, json.loads(data)


def ask(model, timeout=DEADLINE_S):
    status, body = call("POST", "/v1/chat/completions", {"model": model, **QUESTION}, timeout)
    return body["choices"][0]["message"]["content"] if status == 200 else (status, body["error"])


def wait_until(what, true):
    end = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < end, f"after {DEADLINE_S} s still not: {what}"
        time.sleep(0.1)


def check_unknown_names():
    """--any-model does not redirect what changes a deployment or watches it."""
    for path, body in (("/moed/policy", {"policy": "lru"}), ("/moed/resize", {"device_bytes": 1 << 20})):
        status, answer = call("POST", path, {"model": "demu", **body}, key="secret-of-boss")
        assert status == 404 and answer["error"]["code"] == "model_not_found", (path, answer)
    assert call("GET", "/moed/map?model=demu")[0] == 404
    assert call("GET", "/moed/map?model=stand-in")[0] == 200


def check_hung(pid):
    """moed-models hangs: the default model answers at once, by its aliases too, also while a request waits for the list."""
    stranger = []
    waits = threading.Thread(target=lambda: stranger.append(ask("never-heard-of")))
    stop_process(pid)
    try:
        waits.start()
        time.sleep(0.3)
        begun = time.monotonic()
        for model in ("stand-in", "demo", ""):
            assert ask(model, 10) == "2 + 3 = 5.", model
        assert call("GET", "/props?model=stand-in", timeout=10)[0] == call("POST", "/api/show", {"model": "demo"}, 10)[0] == 200
        assert call("GET", "/health", timeout=10)[0] == 200
        assert time.monotonic() - begun < 10
    finally:
        os.kill(pid, signal.SIGCONT)
    waits.join()
    assert stranger == ["2 + 3 = 5."], stranger


if sys.argv[2] == "--restarting":  # the supervisor is stopped
    worker, models = map(int, sys.argv[3:])
    os.kill(worker, signal.SIGKILL)
    wait_until("the worker has ended", lambda: call("GET", "/moed/map?model=demo")[0] == 503)
    stop_process(models)
    try:
        for model in ("demo", "stand-in", "router", "linked", ""):
            status, error = ask(model, 10)
            assert status == 503 and "not loaded yet" in error["message"], (model, status, error)
        assert call("GET", "/health", timeout=10)[0] == 503
    finally:
        os.kill(models, signal.SIGCONT)
    sys.exit(0)


def ids_of(path, key, field):
    return [m[field] for m in call("GET", path)[1][key]]


def context_of(model):
    return call("GET", f"/props?model={urllib.parse.quote(model)}")[1]["default_generation_settings"]["n_ctx"]


def check_defaults(name):
    """The deployment's defaults of sampling and chats hold where a request says nothing."""
    status, shown = call("GET", f"/props?model={name}")
    params = shown["default_generation_settings"]["params"]
    assert status == 200 and (params["temperature"], params["top_k"], params["presence_penalty"]) == (0, 11, -0.5), params
    assert params["chat_template_kwargs"] == {"mood": "calm"} and params["reasoning_budget"] == 77, params
    assert "mood" in shown["chat_template"], shown
    chat = {"model": name, "messages": [{"role": "user", "content": "Why?"}]}
    assert call("POST", "/apply-template", chat)[1]["prompt"] == "Q: Why? calm A:"
    assert call("POST", "/apply-template", {**chat, "chat_template_kwargs": {"mood": "wild"}})[1]["prompt"] == "Q: Why? wild A:"
    texts = {call("POST", "/v1/completions", {"model": name, "prompt": "Once", "max_tokens": 30})[1]["choices"][0]["text"] for _ in range(4)}
    assert len(texts) == 1, texts
    hot = {"model": name, "prompt": "Once", "max_tokens": 30, "temperature": 1.5, "top_k": 0, "n": 4}
    assert len({c["text"] for c in call("POST", "/v1/completions", hot)[1]["choices"]}) > 1, "a request's own temperature"


if sys.argv[2] == "--contexts":
    for name, context in zip(sys.argv[3:-2:2], sys.argv[4:-2:2]):
        assert call("POST", "/models/load", {"model": name}) == (200, {"success": True})
        assert context_of(name) == int(context), (name, context_of(name))
    check_defaults(sys.argv[-1])
    sys.exit(0)

if sys.argv[2] == "--starting":
    for path in ("/v1/chat/completions", "/apply-template"):
        for model in ("", "stand-in", "demo"):
            status, body = call("POST", path, {"model": model, **QUESTION})
            assert status == 503 and "not loaded yet" in body["error"]["message"], (path, model, status, body)
    sys.exit(0)

if sys.argv[2] == "--no-memory":
    status, body = call("POST", "/models/unload", {"model": "alpha"})
    assert status == 200, body  # it is not loaded; no request has named it yet
    wait_until("moed-models has seen the deployment that has the file", lambda: "linked" not in ids_of("/v1/models", "data", "id"))
    for where in (("/v1/models", "data", "id"), ("/api/tags", "models", "name")):
        names = ids_of(*where)
        assert "linked" not in names and len([n for n in names if n in ("router", "demo")]) == 1, names
    assert ask("linked") == "2 + 3 = 5.", "the deployment that has its file answers"
    status, body = call("POST", "/models/unload", {"model": "linked"})
    assert status == 400 and "moed down" in body["error"]["message"], body
    check_unknown_names()
    check_hung(int(sys.argv[3]))
    status, error = ask("alpha")
    assert status == 503 and "needs" in error["message"] and "ram" in error["message"], error
    assert ask("demo") == "2 + 3 = 5.", "the deployment's own model"
    assert ask("gpt-4o") == "2 + 3 = 5.", "with --any-model it answers for unknown ones"
    sys.exit(0)

MOED, RUN, FOLDER, MODEL = sys.argv[2:6]


def listed():
    """State by id, of those in the folder."""
    return {m["id"]: m for m in json.loads(subprocess.run([MOED, "models", "--json"], stdout=subprocess.PIPE, check=True).stdout)["models"]}


def up():
    return [name for name, m in listed().items() if m["state"] in ("up", "busy")]


def tags_digests():
    return {m["name"]: m["digest"] for m in call("GET", "/api/tags")[1]["models"]}


def pid_of(process):
    """None while the process is being replaced."""
    try:
        with open(f"{RUN}/{process}.pid", encoding="ascii") as f:
            return int(f.read())
    except (OSError, ValueError):
        return None


print("the list, before anything is loaded")
status, models = call("GET", "/v1/models")
assert sorted(m["id"] for m in models["data"]) == sorted(["alpha", "beta", "misled", LONG]), models
assert all(m["status"]["value"] == "unloaded" and m["object"] == "model" and m["owned_by"] == "moed" for m in models["data"]), models
assert call("GET", "/health")[0] == 200
assert call("GET", "/v1/models/alpha")[1]["id"] == call("GET", "/v1/models/stand-in")[1]["id"] == "alpha"
assert {m["id"]: m.get("aliases") for m in models["data"]}["alpha"] == ["stand-in"], models
for name in ("alpha", "stand-in"):
    status, shown = call("POST", "/api/show", {"model": name})
    info = shown["model_info"]
    assert status == 200 and shown["capabilities"] == ["completion", "tools"], shown
    assert shown["details"]["quantization_level"] == "Q8_0", shown
    assert info["general.parameter_count"] > 0 and info[info["general.architecture"] + ".context_length"] > 0, shown
    assert not shown["template"], shown
shown = call("POST", "/api/show", {"model": "misled"})[1]
assert shown["capabilities"] == ["completion", "tools", "insert"] and ".Suffix" in shown["template"], shown
status, props = call("GET", "/props?model=beta")
assert status == 200 and props["model_alias"] == "beta" and props["default_generation_settings"]["n_ctx"] > 0, props
assert call("POST", "/api/show", {"model": "nothing"})[0] == 404
assert up() == []

digests = tags_digests()
assert len(set(digests.values())) == 4 and {len(d) for d in digests.values()} == {64}, digests  # two of them have the same bytes
beta, was = f"{FOLDER}/beta.gguf", os.stat(f"{FOLDER}/beta.gguf")
with open(beta, "ab") as f:  # as if another file had replaced it
    f.write(bytes(32))
os.utime(beta, (was.st_atime, was.st_mtime - 1))  # a file that has just been written is left out
replaced = tags_digests()
assert [name for name in digests if replaced[name] != digests[name]] == ["beta"], (digests, replaced)
os.truncate(beta, was.st_size)
os.utime(beta, ns=(was.st_atime_ns, was.st_mtime_ns))
assert tags_digests() == digests

print("a request loads its model")
assert ask("stand-in") == "2 + 3 = 5."
assert up() == ["alpha"] and listed()["alpha"]["own"]
assert "thinking" not in call("POST", "/api/show", {"model": "alpha"})[1]["capabilities"]
assert "chat_template" in call("GET", "/props?model=alpha")[1]
states = {m["id"]: m["status"]["value"] for m in call("GET", "/v1/models")[1]["data"]}
assert states["alpha"] == "loaded" and states["beta"] == "unloaded", states
assert [(m["name"], m["digest"]) for m in call("GET", "/api/ps")[1]["models"]] == [("alpha", digests["alpha"])]
assert call("GET", "/moed/map?model=alpha")[0] == 200
tags = call("GET", "/api/tags")[1]["models"]
assert [m["details"]["quantization_level"] for m in tags] == ["Q8_0"] * 4, tags
assert tags_digests() == digests, tags

print("another takes its place; a long name, a stream")
c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=DEADLINE_S)
c.request("POST", "/v1/chat/completions", json.dumps({"model": LONG, "stream": True, **QUESTION}))
reply = c.getresponse()
events = [json.loads(line[6:]) for line in reply.read().decode().splitlines() if line.startswith("data: {")]
assert reply.status == 200 and "".join(e["choices"][0]["delta"].get("content", "") for e in events) == "2 + 3 = 5."
assert {e["model"] for e in events} == {LONG}
assert up() == [LONG], up()
assert call("GET", f"/moed/map?model={urllib.parse.quote(LONG)}")[0] == 200
assert context_of(LONG) == 301  # its file of options
watches = [t for t in os.listdir(f"/proc/{pid_of('http')}/task") if open(f"/proc/{pid_of('http')}/task/{t}/comm", encoding="ascii").read().startswith("watch/")]
assert len(watches) == 1, "the thread that polls a deployment ends when another is watched"

print("many clients of two models: each is answered, one model is loaded at a time")
answers, most = [], []


def client(model):
    answers.append(ask(model))


threads = [threading.Thread(target=client, args=(model,)) for model in ("alpha", "beta") * 4]
for t in threads:
    t.start()
while any(t.is_alive() for t in threads):
    most.append(len(up()))
    time.sleep(0.2)
assert answers == ["2 + 3 = 5."] * 8, answers
assert max(most) <= 1, most

print("models that do not exist, or do not start")
listing = json.loads(subprocess.run([MOED, "models", "--json"], stdout=subprocess.PIPE, check=True).stdout)
assert [(f["file"], "expected at most" in f["reason"]) for f in listing["left_out"]] == [("cut.gguf", True)], listing["left_out"]
assert "expected at most" in ask("cut")[1]["message"], ask("cut")
for name in ("nothing", "cut", "../alpha", "x" * 5000):
    status, error = ask(name)
    assert status == 404 and error["code"] == "model_not_found" and FOLDER not in error["message"], (name, status, error)
status, error = ask("misled")
assert status == 503 and "banana" in error["message"], error
with open(f"{os.environ['XDG_CONFIG_HOME']}/moed/misled.conf", "w", encoding="ascii") as f:
    f.write("ctx = 304\n")  # mended: the next request tries again
assert call("POST", "/models/load", {"model": "misled"}) == (200, {"success": True}) and context_of("misled") == 304
assert call("POST", "/models/unload", {"model": "misled"}) == (200, {"success": True})
status, body = call("POST", "/v1/chat/completions", QUESTION)
assert status == 400 and body["error"]["param"] == "model", body
status, error = ask("no-one")
assert status == 400 and "'no-one' stands for the default model, and there is none" in error["message"], error

print("moed-models dies: what it had loaded goes on, and is still unloaded later")
assert ask("alpha") == "2 + 3 = 5."
before = pid_of("models")
os.kill(before, signal.SIGKILL)
assert ask("alpha") == "2 + 3 = 5."
wait_until("moed-models is back", lambda: pid_of("models") not in (None, before))
wait_until("it answers", lambda: subprocess.run([MOED, "models"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0)
assert listed()["alpha"]["own"] and up() == ["alpha"], listed()

print("moed-http dies: the next one knows the models")
before = pid_of("http")
os.kill(before, signal.SIGKILL)


def answers_again():
    try:
        return pid_of("http") not in (None, before) and call("GET", "/health", timeout=5)[0] == 200
    except (OSError, http.client.HTTPException):
        return False


wait_until("moed-http answers", answers_again)
assert ask("beta") == "2 + 3 = 5."

print("kept for ever, unloaded by request, and after its time")
status, body = call("POST", "/api/generate", {"model": "beta", "keep_alive": -1})
assert status == 200 and body["done_reason"] == "load" and listed()["beta"]["expires_s"] is None
status, body = call("POST", "/api/generate", {"model": "beta", "keep_alive": 0})
assert status == 200 and body["done_reason"] == "unload", body
assert up() == []
assert call("POST", "/models/load", {"model": "alpha"}) == (200, {"success": True})
assert call("POST", "/models/unload", {"model": "alpha"}) == (200, {"success": True})
assert up() == []
assert call("POST", "/api/chat", {"model": "alpha", "messages": [], "keep_alive": "1m30s"})[0] == 200
assert 60 < listed()["alpha"]["expires_s"] <= 90, listed()
for wrong in ("soon", "5 parsecs", [], "1e99h"):
    assert call("POST", "/api/generate", {"model": "alpha", "keep_alive": wrong})[0] == 400, wrong
assert call("POST", "/api/chat", {"model": "alpha", "messages": [], "keep_alive": "1s"})[0] == 200
wait_until("alpha is unloaded", lambda: up() == [])

status, body = call("POST", "/api/generate", {"model": "alpha", "prompt": "Once", "stream": False, "options": {"num_predict": 4}})
again = [call("POST", "/api/generate", {"model": "alpha", "prompt": "Once", "stream": False, "options": {"num_predict": 4}})[1] for _ in range(10)]
assert body["total_duration"] > body["load_duration"] > 50e6 > min(a["load_duration"] for a in again), (body, again)

print("a busy model is not unloaded")
c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=DEADLINE_S)
c.request("POST", "/v1/completions", json.dumps({"model": "alpha", "prompt": "Once", "max_tokens": 3000, "ignore_eos": True, "stream": True}))
reply = c.getresponse()
read = []
reader = threading.Thread(target=lambda: read.append(reply.read()))
reader.start()
wait_until("alpha is busy, or done", lambda: listed()["alpha"]["state"] == "busy" or read)
if listed()["alpha"]["state"] == "busy":
    status, body = call("POST", "/models/unload", {"model": "alpha"})
    assert status in (200, 409), body  # it may have ended meanwhile
reader.join()
assert read[0].rstrip().endswith(b"[DONE]")
c.close()

print("a file that comes, and one that goes")
shutil.copyfile(MODEL, f"{FOLDER}/gamma.gguf")
os.utime(f"{FOLDER}/gamma.gguf", (time.time() - 60,) * 2)
os.unlink(f"{FOLDER}/beta.gguf")
ids = [m["id"] for m in call("GET", "/v1/models")[1]["data"]]
assert "gamma" in ids and "beta" not in ids, ids
assert ask("gamma") == "2 + 3 = 5."
assert ask("beta")[0] == 404
metrics = subprocess.run([MOED, "metrics", "models", "--name", "router"], stdout=subprocess.PIPE, check=True, text=True).stdout
assert "moed_models_available 4" in metrics and "moed_models_up 1" in metrics, metrics
