"""deploy/ray on a real cluster of three node processes on this machine: a head, and two nodes that serve.

usage: ray_cluster.py SOURCE MOED MODEL WORK    (with the Python that has ray[serve] and ray[data])

The right answers are those of a deployment without Ray, given by `moed run` beside it: the caller passes none, this program asks one
node before anything dies. At temperature 0 an answer depends on nothing else."""
import collections
import glob
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time

from ray.cluster_utils import Cluster

SOURCE, MOED, MODEL, WORK = sys.argv[1:5]
RAY = os.path.join(SOURCE, "deploy", "ray")
NODES, CONVERSATIONS, TURNS, TOKENS, WAIT_S = 2, 8, 2, 24, 400


def wait_for(what, condition, seconds=WAIT_S):
    end = time.monotonic() + seconds
    while not (got := condition()):
        assert time.monotonic() < end, f"no {what} after {seconds} s"
        time.sleep(0.1)
    return got


class Broken(Exception):
    """A stream that ended with an error event, or without its end."""


class Served:
    """The application, and questions to it."""

    def __init__(self, cluster, *options):
        self.port = free_port()
        command = [sys.executable, os.path.join(RAY, "moed_serve.py"), "--model", MODEL, "--moed", MOED, "--frontends", "2", "--resource", "moed",
                   "--port", str(self.port), "--linger", "1", "--directory", os.path.join(WORK, "nodes"), *options, "--", "--ctx", "512"]
        self.process = subprocess.Popen(command, env={**os.environ, "RAY_ADDRESS": cluster.address}, stdout=subprocess.PIPE,
                                        stderr=open(os.path.join(WORK, "serve.log"), "wb"), text=True)
        line = self.process.stdout.readline()
        assert line.startswith("serving "), f"moed_serve.py says {line!r}: " + open(os.path.join(WORK, "serve.log"), encoding="utf-8").read()[-3000:]

    def request(self, body, path="/v1/chat/completions"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        return connection, connection.getresponse()

    def ask(self, messages, stream=False, tokens=TOKENS):
        """The answer's text, its node, and the times at which parts of it came."""
        body = {"messages": messages, "temperature": 0, "max_tokens": tokens, "ignore_eos": True, "stream": stream}
        connection, reply = self.request(body)
        try:
            if reply.status != 200:
                raise Broken(f"status {reply.status}: {reply.read(500)!r}")
            node = reply.getheader("x-moed-node")
            if not stream:
                return json.loads(reply.read())["choices"][0]["message"]["content"], node, []
            text, times = read_stream(reply)
            return text, node, times
        finally:
            connection.close()

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(WAIT_S)


def read_stream(reply):
    text, times = "", []
    for line in reply:
        if line == b"data: [DONE]\n":
            return text, times
        if line.startswith(b"data: "):
            event = json.loads(line[6:])
            if "error" in event:
                raise Broken(event["error"]["message"])
            times.append(time.monotonic())
            text += "".join(c["delta"].get("content") or "" for c in event["choices"])
    raise Broken("a stream without its end")


def free_port():
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def processes(pattern):
    """Pids of processes whose command line has the pattern, and this test's folder."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as f:
                line = f.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if pattern in line and WORK in line and "ray_cluster.py" not in line:
            found.append(int(path.split("/")[2]))
    return found


def conversations(served):
    """Each with its turns and their right answers."""
    made = []
    for i in range(CONVERSATIONS):
        messages, turns, nodes = [{"role": "user", "content": f"Tell me about animal {i}."}], [], set()
        for turn in range(TURNS):
            answer, node, _ = served.ask(messages)
            turns.append((list(messages), answer))
            nodes.add(node)
            messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": f"And {turn}?"}]
        assert len(nodes) == 1, f"conversation {i} was at {nodes}"
        made.append((turns, nodes.pop()))
    return made


def check_streaming(served):
    """On a loaded machine an event has several tokens, and a whole answer may come at once: an answer of several shows it."""
    for _ in range(10):
        text, _, times = served.ask([{"role": "user", "content": "A long story."}], stream=True, tokens=200)
        if text and len(times) > 5 and times[-1] - times[0] > 0.02:
            return
    raise AssertionError(f"{len(times)} events in {times[-1] - times[0]:.3f} s: not streamed")


def check_left_clients(served):
    """A client that leaves cancels its request: its node has nothing left to do."""
    connection, reply = served.request({"messages": [{"role": "user", "content": "Long"}], "max_tokens": 450, "ignore_eos": True, "stream": True})
    reply.readline()
    connection.close()
    reply.close()

    def idle():
        return all("moed_worker_requests_running 0" in metrics(run) for run in glob.glob(os.path.join(WORK, "nodes", "*", "default")))

    wait_for("idle worker after a client left", idle)


def metrics(run):
    return subprocess.run([MOED, "metrics", "worker"], env={**os.environ, "MOED_RUN": run}, capture_output=True, text=True, check=False).stdout


def check_growth(served):
    """Load makes the application take the second node."""
    stop, nodes = threading.Event(), collections.Counter()

    def client(k):
        turn = 0
        while not stop.is_set():
            turn += 1
            nodes[served.ask([{"role": "user", "content": f"{k} {turn}"}], tokens=100)[1]] += 1

    threads = [threading.Thread(target=client, args=(k,)) for k in range(12)]
    for thread in threads:
        thread.start()
    try:
        wait_for("second node", lambda: len(nodes) == NODES)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    print("two nodes by load:", list(nodes.values()))


def check_one_deployment_a_node():
    assert len(processes("moed-memd")) == NODES, processes("moed-memd")
    wait_for("two frontends a node", lambda: len(processes("moed-http")) == 2 * NODES)


def check_killed_frontend(served, made):
    """A moed-http and a whole replica are killed: Serve replaces them, and the model stays loaded."""
    before = processes("moed-memd"), processes("moed-http")
    os.kill(before[1][0], signal.SIGKILL)
    for turns, _ in made:
        answer, _, _ = served.ask(turns[0][0])
        assert answer == turns[0][1], (answer, turns[0][1])
    wait_for("another frontend", lambda: len(set(processes("moed-http")) - set(before[1])) >= 1 and len(processes("moed-http")) == 2 * NODES)
    assert processes("moed-memd") == before[0], "memd was replaced"


def check_dead_node(cluster, nodes, served, made):
    """A node dies under load. Whole answers are right; streams are right, or end with an error."""
    ended, faults, stop = collections.Counter(), [], threading.Event()

    def client(k):
        turn = k
        while not stop.is_set():
            turn += 1
            (messages, right) = made[turn % CONVERSATIONS][0][turn % TURNS]
            stream = turn % 2 == 1
            try:
                answer, _, _ = served.ask(messages, stream)
                ended["stream" if stream else "whole"] += 1
                if answer != right:
                    faults.append(f"{answer!r}, not {right!r}")
            except Broken as e:
                ended["error"] += 1
                if not stream:
                    faults.append(str(e))
            except (OSError, http.client.HTTPException) as e:
                faults.append(repr(e))

    threads = [threading.Thread(target=client, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    wait_for("answers before the death", lambda: sum(ended.values()) > 12)
    victim = made[0][1]
    cluster.remove_node(next(n for n in nodes if n.node_id == victim), allow_graceful=False)
    for pid in processes(f"/{victim[:12]}/"):  # what a machine takes with it
        os.kill(pid, signal.SIGKILL)
    at_death = sum(ended.values())
    wait_for("answers after the death", lambda: sum(ended.values()) > at_death + 40)
    stop.set()
    for thread in threads:
        thread.join()
    assert not faults, f"{len(faults)} faults: " + "\n".join(faults[:4])
    for turns, _ in made:
        _, node, _ = served.ask(turns[-1][0])
        assert node != victim
    print("a node died:", dict(ended))


def check_batch(cluster):
    path, out = os.path.join(WORK, "prompts.jsonl"), os.path.join(WORK, "answers")
    with open(path, "w", encoding="utf-8") as f:
        for i in range(24):
            f.write(json.dumps({"prompt": f"Number {i}"} if i % 2 else {"messages": [{"role": "user", "content": f"Number {i}"}]}) + "\n")
        f.write('{"prompt": "x", "temperature": -1}\n')
    command = [sys.executable, os.path.join(RAY, "moed_batch.py"), "--model", MODEL, "--moed", MOED, "--input", path, "--output", out,
               "--batch", "4", "--resource", "batch", "--directory", os.path.join(WORK, "nodes"),
               "--parameters", '{"max_tokens": 8, "temperature": 0, "ignore_eos": true}', "--", "--ctx", "512"]
    environment = {**os.environ, "RAY_ADDRESS": cluster.address}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as first:  # killed when the first answers are there
        wait_for("first answers", lambda: answers_in(out) or first.poll() is not None)
        first.kill()
    before = answers_in(out)
    assert before, "no answer before the kill"
    again = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert again.returncode == 1 and f"25 prompts, {len(before)} have answers" in again.stderr, again.stderr[-2000:]
    rows = answers_in(out)
    assert {r["id"] for r in rows} == {str(i) for i in range(1, 26)} and len(rows) == 25, sorted(r["id"] for r in rows)
    assert [r["id"] for r in rows if "error" in r] == ["25"] and all(r["text"] for r in rows if r["id"] != "25")
    print(f"batch: {len(before)} answers before the kill, the others after it")


def answers_in(folder):
    rows = []
    for path in glob.glob(os.path.join(folder, "*.jsonl")):
        with open(path, encoding="utf-8") as f:
            rows += [json.loads(line) for line in f if line.endswith("\n")]
    return rows


def patiently(start):
    """Ray gives a process 30 s, fixed: a loaded machine needs more."""
    for attempt in range(5):
        try:
            return start()
        except Exception as e:  # Ray raises just this
            if attempt == 4 or "timed out" not in str(e):
                raise
            print("Ray starts slowly:", str(e).split(".")[0], flush=True)
    raise AssertionError


def main():
    head = {"num_cpus": 1, "resources": {"batch": 1}, "include_dashboard": False}
    cluster = patiently(lambda: Cluster(initialize_head=True, head_node_args=head))
    served = None
    try:
        nodes = [patiently(lambda: cluster.add_node(num_cpus=1, resources={"moed": 1})) for _ in range(NODES)]
        served = Served(cluster, "--nodes", f"1:{NODES}", "--parallel", "4")
        check_streaming(served)
        check_left_clients(served)
        check_growth(served)
        made = conversations(served)
        assert len({node for _, node in made}) == NODES, f"all conversations went to {made[0][1][:8]}"
        check_one_deployment_a_node()
        check_killed_frontend(served, made)
        check_dead_node(cluster, nodes, served, made)
        check_batch(cluster)
        served.stop()
        served = None
        wait_for("end of all processes of moed", lambda: not processes("moed-memd") and not processes("moed-http"))
    finally:
        if served:
            served.process.kill()
        cluster.shutdown()
        for pid in processes("moed-"):
            os.kill(pid, signal.SIGKILL)
    print("ok")


main()
