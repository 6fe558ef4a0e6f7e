"""A deployment with two workers: silent processes, a worker that has failed, memd that has. usage: http_outage.py PORT RUN ALERTS MODEL
MODEL is removed."""
import concurrent.futures
import contextlib
import json
import os
import re
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from stop_process import stop_process  # pylint: disable=wrong-import-position

PORT, RUN, ALERTS, MODEL = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
LIMIT_S = 60  # of anything that is waited for
BEHIND = ("memd", "cpuexec", "worker", "worker-2")


def call(path, body=None):
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", json.dumps(body).encode() if body is not None else None)
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


def page():
    """The samples: (name, labels) to value."""
    status, text = call("/metrics?process=all")
    assert status == 200, (status, text)
    samples = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels, value = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line).groups()
            samples[name, frozenset(re.findall(r'(\w+)="([^"]*)"', labels or ""))] = float(value)
    return samples


def value(samples, name, **labels):
    return samples.get((name, frozenset(labels.items())))


# ---- The alerts' conditions, by the part of Prometheus' language that these use ----

def condition(alert):
    with open(ALERTS, encoding="utf-8") as f:
        return re.search(rf"alert: {alert}\n\s+expr: (.*)", f.read())[1]


def compare(expression, samples):
    """The label sets for which NAME == NUMBER holds."""
    name, number = re.fullmatch(r"(\w+) == (\d+)", expression).groups()
    return [dict(labels) for (n, labels), v in samples.items() if n == name and v == float(number)]


def firing(alert, samples):
    left, *more = re.split(r" and on \(([^)]*)\) ", condition(alert))
    found = compare(left, samples)
    if more:
        on = more[0].split(", ")
        found = [f for f in found if any(all(f.get(k) == g.get(k) for k in on) for g in compare(more[1], samples))]
    return found


# ---- The processes ----

def pid_of(process):
    with contextlib.suppress(OSError, ValueError):
        with open(f"{RUN}/{process}.pid", encoding="ascii") as f:
            return int(f.read())
    return 0


def supervise(command):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(f"{RUN}/supervise.sock")
        s.sendall(command + b"\n")
        answer = b""
        while not answer.endswith(b"ok\n"):
            answer += s.recv(65536)
    return answer.decode()


def state_of(process):
    """As the supervisor reports it; "deployment": of the deployment; None: it has no such process."""
    for line in supervise(b"status").splitlines():
        kind, *fields = line.split("\t")
        values = dict(f.split("=", 1) for f in fields)
        if (kind, process) == ("deployment", "deployment") or (kind == "process" and values["name"] == process):
            return values["state"]
    return None


def is_given_up(worker):
    """Kills it before it is ready, five times in a row. False: it was ready meanwhile."""
    end, at = time.monotonic() + 10, 0
    while time.monotonic() < end:
        pid, at = pid_of(worker), at + 1
        with contextlib.suppress(OSError):
            if pid and os.readlink(f"/proc/{pid}/exe").endswith("/moed-worker"):
                os.kill(pid, signal.SIGKILL)
        if at % 100 == 0 and state_of(worker) == "failed":
            return True
    return False


def make_fail(worker):
    """The supervisor gives up a worker that is new."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        supervise(b"workers 1")
        while state_of(worker):
            time.sleep(0.05)
        supervise(b"workers 2")
        if is_given_up(worker):
            return
    raise AssertionError(f"{worker} does not fail: {state_of(worker)}")


def check_all_run():
    samples = page()
    for process in BEHIND:
        assert value(samples, "moed_process_up", deployment=NAME, process=process) == 1, process
        assert value(samples, "process_max_fds", deployment=NAME, process=process) > 0, process
        assert value(samples, "moed_process_restarts_total", deployment=NAME, process=process) == 0, process
    assert value(samples, "moed_deployment_up", deployment=NAME) == 1
    for alert in ("MoedDeploymentFailed", "MoedDeploymentDown", "MoedProcessDown"):
        assert not firing(alert, samples), alert
    assert call(f"/metrics?process=all&deployment={NAME}")[0] == call("/metrics?process=http")[0] == 200
    for query in ("process=worker", "process=all&deployment=other", "deployment=other"):
        assert call(f"/metrics?{query}")[0] == 400, query


def check_silent():
    """The page lacks processes that do not answer, and does not wait for one after the other (30 s each, once)."""
    pids = [pid_of(p) for p in BEHIND]
    for pid in pids:
        stop_process(pid)
    try:
        samples = page()
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    for process in BEHIND:
        assert value(samples, "process_open_fds", deployment=NAME, process=process) is None, process
    assert value(samples, "process_open_fds", deployment=NAME, process="http") > 0
    assert value(samples, "moed_deployment_up", deployment=NAME) == 1  # the supervisor has not noticed


def refused_answers():
    return value(page(), "moed_http_refused_answers_total", deployment=NAME, process="http")


def check_overload():
    """What the worker refuses because its queue is full counts as refused, not as failed."""
    refused = 0
    for _ in range(20):
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda n: call("/v1/completions", {"prompt": "a " * 100 + str(n), "max_tokens": 200, "ignore_eos": True}), range(16)))
        assert {status for status, _ in answers} <= {200, 503}, answers
        refused += sum("run or wait already" in text for _, text in answers)
        if refused:
            break
    assert refused and refused_answers() == refused, (refused, refused_answers())
    assert failed_answers() == 0


def failed_answers():
    return value(page(), "moed_http_failed_answers_total", deployment=NAME, process="http")


def check_degraded():
    make_fail("worker-2")
    samples = page()
    assert state_of("deployment") == "degraded"
    assert call("/v1/completions", {"prompt": "a", "max_tokens": 1})[0] == 200
    assert not firing("MoedDeploymentFailed", samples) and not firing("MoedDeploymentDown", samples)
    assert [a["process"] for a in firing("MoedProcessDown", samples)] == ["worker-2"], samples
    assert value(samples, "moed_process_restarts_total", deployment=NAME, process="worker-2") >= 4
    assert failed_answers() == 0
    for wrong in ({}, {"prompt": "a", "temperature": "hot"}, {"prompt": "a " * 5000}, {"prompt": "a " * 5000, "stream": True}):
        assert call("/v1/completions", wrong)[0] == 400, wrong
    assert call("/v1/completions", {"prompt": "a", "model": "unknown"})[0] == 404
    assert failed_answers() == 0  # the client's mistakes are none of the server's


def check_failed():
    os.unlink(MODEL)
    os.kill(pid_of("memd"), signal.SIGKILL)
    end = time.monotonic() + LIMIT_S
    while state_of("deployment") != "failed":
        assert time.monotonic() < end, supervise(b"status")
        time.sleep(0.05)
    samples = page()
    for alert in ("MoedDeploymentFailed", "MoedDeploymentDown"):
        assert [a["deployment"] for a in firing(alert, samples)] == [NAME], alert
    assert value(samples, "moed_process_up", deployment=NAME, process="memd") == 0
    assert call("/health")[0] == 503
    assert call("/v1/completions", {"prompt": "a", "max_tokens": 1})[0] == 503
    assert failed_answers() == 1


NAME = "default"
check_all_run()
check_overload()
check_silent()
check_degraded()
check_failed()
