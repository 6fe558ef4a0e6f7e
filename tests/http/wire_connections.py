"""Many clients, and clients that leave, do not read or are idle: one harms no other."""
import json
import os
import socket
import time
from wire_client import GREEDY, LIMIT_S, LONG, PID, PORT, call, connect, events, metric, moed, post, request, wait_for, worker_metric


def check_too_many():
    """The test's --answers is 40: one more is told to come again, and what runs goes on."""
    waiting = [connect() for _ in range(40)]
    for s in waiting:
        s.sendall(request("POST", "/v1/completions", LONG))
    wait_for(lambda: metric("moed_http_answers_running") == 40)
    status, head, answer = call("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1})
    assert status == 429 and int(head["retry-after"]) > 0 and answer["error"]["type"] == "rate_limit_error", (status, head)
    made = worker_metric("moed_worker_generated_tokens_total")
    for s in waiting:
        s.close()
    wait_for(lambda: metric("moed_http_answers_running") == 0)
    post("/v1/completions", prompt="a", max_tokens=1)
    made = worker_metric("moed_worker_generated_tokens_total") - made
    assert made < 10 * LONG["max_tokens"], f"{made} tokens were generated for clients that had left"


def check_leaving_cancels():
    for stream in (True, False):
        with connect() as s:
            s.sendall(request("POST", "/v1/completions", {**LONG, "n": 4, "stream": stream}))
            if stream:
                s.recv(1000)
            wait_for(lambda: metric("moed_http_answers_running") == 1)
            wait_for(lambda: sum(slot["is_processing"] for slot in call("GET", "/slots")[2]) == 4)
            before = worker_metric('moed_worker_requests_total{reason="cancelled"}')
            cancelled, left = metric('moed_http_answers_total{reason="cancelled"}'), metric("moed_http_disconnects_total")
            tokens = metric("moed_http_generation_tokens_total")
        wait_for(lambda: metric("moed_http_answers_running") == 0)
        wait_for(lambda: worker_metric("moed_worker_requests_running") == 0)
        assert worker_metric('moed_worker_requests_total{reason="cancelled"}') == before + 4, "answers without a reader came to their end"
        assert metric('moed_http_answers_total{reason="cancelled"}') == cancelled + 4 and metric("moed_http_disconnects_total") == left + 1
        assert not stream or metric("moed_http_generation_tokens_total") > tokens, "the tokens of those who left are not counted"
    with open(os.environ["MOED_RUN"] + "/http.log") as log:
        lines = [json.loads(line) for line in log if '"outcome":"left"' in line]
    # the worker counts a text's tokens: of an answer that is not done they are not known, nor those that the cache had
    assert "tokens_out" in lines[-1] and "tokens_in" not in lines[-1] and "tokens_cached" not in lines[-1], lines[-1]


def check_slow_reader_harms_itself():
    """A client that does not read is given up (the test's --stream-bytes is small); others go on. Log-probabilities: without them the
    answers take few bytes on a busy machine, where an event has many tokens."""
    before, left = metric("moed_http_slow_readers_total"), metric("moed_http_disconnects_total")
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect(("127.0.0.1", PORT))
    s.sendall(request("POST", "/v1/completions", {**LONG, "n": 3, "stream": True, "logprobs": 5}))
    begun = time.monotonic()
    while metric("moed_http_slow_readers_total") == before:
        assert time.monotonic() - begun < LIMIT_S, "it was not given up"
        post("/v1/completions", prompt="a", max_tokens=2)
    assert metric("moed_http_disconnects_total") == left, "it counts as a client that left"
    s.close()
    wait_for(lambda: metric("moed_http_answers_running") == 0)


def check_large_chunks_are_no_slow_reader():
    """A chunk above --stream-bytes, the log-probabilities of a prompt, reaches a client that reads."""
    got = events("/v1/completions", prompt="Once upon a time " * 100, echo=True, logprobs=5, max_tokens=9, ignore_eos=True)
    assert got[-1][1] == "[DONE]" and max(len(str(data)) for _, data in got) > 4 * 12000, got[-1]


def check_idle_streams_are_cheap():
    """Connections whose request has not come cost memory, but no CPU; neither do they stop others."""
    def cpu():
        fields = open(f"/proc/{PID}/stat").read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])
    idle = [connect() for _ in range(200)]
    before = cpu()
    time.sleep(1)
    used = cpu() - before
    assert used <= 10, f"{used} ticks of 100 for 200 idle connections"
    assert call("GET", "/livez")[0] == 200
    for s in idle:
        s.close()


def check_grammars_and_questions_have_sessions():
    """The worker compiles a grammar and tokenizes a text on the thread of its session, so others do not wait for it."""
    def sessions():
        return [line for line in moed("metrics", "worker").splitlines() if line.startswith("moed_worker_frontends ")]
    plain = post("/v1/completions", prompt="Once", max_tokens=4, **GREEDY)
    post("/v1/completions", prompt="Once", max_tokens=4, temperature=0, guided_regex="[a-z ]+")
    post("/tokenize", content="Once")
    assert sessions() == ["moed_worker_frontends 3"], sessions()
    assert post("/v1/completions", prompt="Once", max_tokens=4, **GREEDY)["choices"] == plain["choices"]
    assert sessions() == ["moed_worker_frontends 3"], sessions()
