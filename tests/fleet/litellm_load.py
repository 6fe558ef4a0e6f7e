"""LiteLLM before two replicas: answers are those that a replica gives directly, a session stays, and a replica whose moed-http is gone is
passed by. usage: litellm_load.py PORT RUN0 RUN1 PORT0 PORT1"""
import http.client
import json
import os
import signal
import sys
import threading

PORT, RUNS, PORTS = int(sys.argv[1]), sys.argv[2:4], [int(p) for p in sys.argv[4:6]]
REQUEST_S = 200


def ask(port, key, messages, model, session=None, stream=False):
    body = {"model": model, "messages": messages, "temperature": 0, "max_tokens": 16, "stream": stream, "ignore_eos": True}
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + key, **({"x-litellm-session-id": session} if session else {})}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=REQUEST_S)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        reply = connection.getresponse()
        data = reply.read()
        assert reply.status == 200, f"status {reply.status}: {data[:400]!r}"
        replica = reply.getheader("x-litellm-model-id", "")
        if not stream:
            return json.loads(data)["choices"][0]["message"]["content"], replica
        events = [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: {")]
        assert data.rstrip().endswith(b"data: [DONE]"), data[-200:]
        return "".join(c["delta"].get("content") or "" for e in events for c in e["choices"]), replica
    finally:
        connection.close()


def through(i, session=None, stream=False):
    return ask(PORT, "sk-key-of-litellm", question(i), "moed", session, stream)


def question(i):
    return [{"role": "user", "content": f"Tell me about animal {i}."}]


def main():
    right = [ask(PORTS[i % 2], "key-of-moed", question(i), "demo")[0] for i in range(8)]
    for i, text in enumerate(right):
        for stream in (False, True):
            answer, _ = through(i, stream=stream)
            assert answer == text, (answer, text)
    for session in "abcd":
        replicas = {through(i, session)[1] for i in range(4)}
        assert len(replicas) == 1, f"session {session} was at {replicas}"
    # Both replicas work while requests overlap.
    places, threads = set(), []
    for i in range(16):
        threads.append(threading.Thread(target=lambda i=i: places.add(through(i % 8)[1])))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert places == {"r1", "r2"}, places
    # The supervisor of the second replica is stopped, so its moed-http stays away.
    with open(os.path.join(RUNS[1], "supervise.pid"), encoding="ascii") as f:
        os.kill(int(f.read()), signal.SIGSTOP)
    with open(os.path.join(RUNS[1], "http.pid"), encoding="ascii") as f:
        os.kill(int(f.read()), signal.SIGKILL)
    try:
        for i in range(12):
            answer, replica = through(i % 8)
            assert (answer, replica) == (right[i % 8], "r1"), (answer, replica)
    finally:
        with open(os.path.join(RUNS[1], "supervise.pid"), encoding="ascii") as f:
            os.kill(int(f.read()), signal.SIGCONT)
    print("answers, sessions, both replicas, one replica gone: right")


main()
