"""Raw sockets against a running moed-http: what no client library would send, and what none would show.

usage: http_wire.py PORT MOED PID   (PID: of moed-http)
Each check prints its name; the first that fails ends the program with its difference."""
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from stop_process import stop_process  # pylint: disable=wrong-import-position

PORT, MOED, PID = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])


LIMIT_S = 60  # for whatever is waited for: the machine may be busy


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


GREEDY = {"temperature": 0, "ignore_eos": True}


# ---- The APIs ----

def check_completions_are_moed_runs():
    """The same prompt through `moed run` and through HTTP, as text and as ids."""
    for prompt in ("Once upon a time", "2 + 3 = "):
        ran = json.loads(moed("run", "-n", "12", "--ignore-end", "--temp", "0", "--json", prompt))
        ids = json.loads(moed("tokenize", "--json", prompt))
        for form in (prompt, ids, [prompt], [ids]):
            got = post("/v1/completions", prompt=form, max_tokens=12, **GREEDY)
            assert got["choices"][0]["text"] == ran["text"], (form, got, ran)
            assert got["usage"]["prompt_tokens"] == len(ids) == ran["prompt_tokens"], (got, ran)
            assert got["usage"]["completion_tokens"] == 12, got
            assert got["choices"][0]["finish_reason"] == "length", got


def check_other_names():
    """Aliases stand for models, replies have the models' own names; others get what to do."""
    for name in ("demo", "sonnet", "opus", "opus:latest"):
        assert post("/v1/completions", model=name, prompt="a", max_tokens=1)["model"] == "demo", name
    assert [m["aliases"] for m in call("GET", "/v1/models")[2]["data"]] == [["sonnet", "opus"]]
    assert call("GET", "/v1/models/sonnet")[2]["id"] == "demo"
    for name in ("gpt-4o", "lost"):
        status, _, answer = call("POST", "/v1/completions", {"model": name, "prompt": "a"})
        assert status == 404 and answer["error"]["code"] == "model_not_found", (name, answer)
        assert all(option in answer["error"]["message"] for option in ("--alias", "--any-model")), answer
    for more in ({}, {"model": "sonnet"}, {"prompt": ""}):
        loaded = post("/api/generate", **more)
        assert (loaded["model"], loaded["done_reason"]) == ("demo", "load"), loaded


def check_streams_are_wholes():
    body = {"prompt": ["Once upon", "The cat"], "n": 2, "max_tokens": 9, "seed": 5, "temperature": 0.7}
    whole = post("/v1/completions", **body)
    texts, reasons = [""] * 4, [None] * 4
    got = events("/v1/completions", **body, stream_options={"include_usage": True})
    assert got[-1][1] == "[DONE]", got[-1]
    chunks = [json.loads(data) for _, data in got[:-1]]
    del chunks[-1]["usage"]["prompt_tokens_details"], whole["usage"]["prompt_tokens_details"]  # a later one finds more
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"] == whole["usage"], (chunks[-1], whole["usage"])
    for chunk in chunks[:-1]:
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["text"]
            reasons[choice["index"]] = choice["finish_reason"] or reasons[choice["index"]]
    assert texts == [c["text"] for c in whole["choices"]], (texts, whole)
    assert reasons == [c["finish_reason"] for c in whole["choices"]], (reasons, whole)
    assert len(set(texts[:2])) == 2, ("two choices of one prompt are the same", texts)
    # beside a chunk with the usage the others have none; vLLM's option gives it in each
    one = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, **GREEDY}
    for path, ask in (("/v1/completions", {"prompt": "a", "max_tokens": 4, **GREEDY}), ("/v1/chat/completions", one)):
        for options, seen in (({}, False), ({"include_usage": True}, None), ({"include_usage": True, "continuous_usage_stats": True}, True)):
            chunks = [json.loads(d) for _, d in events(path, **ask, stream_options=options)[:-1]]
            used = [c.get("usage", False) for c in chunks if c["choices"]]
            assert all(u is seen if not seen else u["prompt_tokens"] > 0 for u in used), (options, chunks)
            counts = [u["completion_tokens"] for u in used if u]
            assert counts == sorted(counts) and (not seen or counts[-1] == 4), counts


def check_progress_of_a_prompt():
    ask = {"messages": [{"role": "user", "content": "Once upon a time there was a dog. " * 300}], "max_tokens": 2, **GREEDY}
    chunks = [json.loads(d) for _, d in events("/v1/chat/completions", **ask, return_progress=True)[:-1]]
    reports = [c["prompt_progress"] for c in chunks if "prompt_progress" in c]
    total = post("/v1/chat/completions", **ask, return_progress=True)["usage"]["prompt_tokens"]
    assert {r["total"] for r in reports} == {total} and reports[-1]["processed"] == total, reports
    for field in ("processed", "time_ms"):
        values = [r[field] for r in reports]
        assert len(values) > 1 and values == sorted(values), reports
    first_text = next(i for i, c in enumerate(chunks) if c["choices"][0]["delta"].get("content"))
    assert all(i < first_text for i, c in enumerate(chunks) if "prompt_progress" in c), chunks
    assert "prompt_progress" not in str(events("/v1/chat/completions", **ask))
    again = [json.loads(d) for _, d in events("/v1/chat/completions", **ask, return_progress=True, n=2,
                                              stream_options={"include_usage": True})[:-1]]
    cached = again[-1]["usage"]["prompt_tokens_details"]["cached_tokens"]
    for index in (0, 1):
        own = [c["prompt_progress"] for c in again if "prompt_progress" in c and c["choices"][0]["index"] == index]
        assert own and all(0 < r["cache"] < r["processed"] <= r["total"] for r in own), own
        assert index or own[-1]["cache"] == cached, (own, cached)
    assert all(set(r) == {"total", "cache", "processed", "time_ms"} for r in reports), reports
    refused("/v1/completions", {"prompt": "a", "return_progress": True}, 400, "return_progress")


def check_control_tokens():
    """A client that writes the template's marks itself gets the tokens of a chat."""
    user = {"role": "user", "content": "What is 2 + 3?"}
    rendered = post("/apply-template", messages=[user])
    chat = post("/v1/chat/completions", messages=[user], max_tokens=8, temperature=0)
    for path, more in (("/v1/completions", {"max_tokens": 8}), ("/v1/completions", {"max_tokens": 8, "echo": True, "logprobs": 0}),
                       ("/completion", {"n_predict": 8})):
        got = post(path, prompt=rendered["prompt"], temperature=0, **more)
        text = got["content"] if path == "/completion" else got["choices"][0]["text"]
        assert text.endswith(chat["choices"][0]["message"]["content"]), (path, more, got)
        used = got["tokens_evaluated"] if path == "/completion" else got["usage"]["prompt_tokens"]
        assert used == rendered["count"], (path, more, got)
    assert post("/tokenize", content="<|im_end|>")["count"] == 1 < post("/tokenize", content="<|im_end|>", parse_special=False)["count"]
    plain = post("/v1/completions", prompt=rendered["prompt"], max_tokens=1, parse_special=False)
    assert plain["usage"]["prompt_tokens"] > rendered["count"], plain


def check_llama_completion():
    """llama-server's own completion, which its clients ask for."""
    ask = {"prompt": "Once upon", "n_predict": 9, "temperature": 0, "cache_prompt": True}
    text = post("/v1/completions", prompt="Once upon", max_tokens=9, temperature=0)["choices"][0]["text"]
    whole = post("/completion", **ask)
    assert (whole["content"], whole["stop"], whole["stop_type"], whole["tokens_predicted"]) == (text, True, "limit", 9), whole
    assert whole["timings"]["predicted_n"] == 9 and whole["timings"]["prompt_n"] + whole["timings"]["cache_n"] == whole["tokens_evaluated"], whole
    parts = [json.loads(data) for _, data in events("/completion", **ask)]
    assert "".join(p["content"] for p in parts) == text and [p["stop"] for p in parts] == [False] * (len(parts) - 1) + [True], parts
    assert parts[-1]["tokens_predicted"] == 9, parts
    word = text.split()[2]
    cut = post("/completion", **{**ask, "stop": ["", *[f"@{i}@" for i in range(127)], word]})
    assert (cut["stop_type"], cut["stopping_word"], cut["content"]) == ("word", word, text[:text.index(word)]), cut
    both = post("/completion", **{**ask, "prompt": ["Once upon", "The cat"]})
    assert [b["index"] for b in both] == [0, 1] and both[0]["content"] == text, both
    twice = post("/completion", **{**ask, "n": 2})
    assert [(t["index"], t["content"]) for t in twice] == [(0, text), (1, text)], twice
    form = {"type": "json_schema", "json_schema": {"schema": {"enum": [7]}}}
    assert post("/completion", **{**ask, "response_format": form})["content"] == "7"
    refused("/completion", {"prompt": "a", "post_sampling_probs": True}, 400, "post_sampling_probs")


def check_llama_tokens():
    """llama-server's tokens and their log-probabilities, whole and streamed; the one that ends the answer is one of them."""
    ask = {"prompt": "Once upon", "n_predict": 9, **GREEDY}
    assert post("/completion", **ask)["tokens"] == [] and "completion_probabilities" not in post("/completion", **ask)
    scores = post("/v1/completions", prompt="Once upon", max_tokens=9, logprobs=2, **GREEDY)["choices"][0]["logprobs"]
    whole = post("/completion", **ask, n_probs=2, return_tokens=True)
    ids = whole["tokens"]
    assert len(ids) == 9 and post("/detokenize", tokens=ids)["content"] == whole["content"], whole
    ended = post("/completion", **ask, n_probs=2, return_tokens=True, stop_token_ids=[ids[3]])
    assert ended["stop_type"] == "eos" and ended["tokens_predicted"] == ids.index(ids[3]), ended
    for answer, n, more in ((whole, 9, {}), (ended, ids.index(ids[3]) + 1, {"stop_token_ids": [ids[3]]})):
        entries = answer["completion_probabilities"]
        assert answer["tokens"] == ids[:n] == [e["id"] for e in entries], answer
        for e, token, logprob in zip(entries, scores["tokens"], scores["token_logprobs"]):
            assert (e["token"], bytes(e["bytes"]).decode()) == (token, token) and abs(e["logprob"] - logprob) < 1e-3, (e, token, logprob)
            assert len(e["top_logprobs"]) == 2 and {k: v for k, v in e.items() if k != "top_logprobs"} == e["top_logprobs"][0], e
        parts = [json.loads(data) for _, data in events("/completion", **ask, n_probs=2, **more)]
        assert sum((p["tokens"] for p in parts), []) == answer["tokens"] and parts[-1]["tokens"] == [], parts
        assert sum((p.get("completion_probabilities", []) for p in parts), []) == entries, parts


def check_echo():
    text = "Once upon a time"
    ids = post("/tokenize", content=text)["tokens"]
    plain = post("/v1/completions", prompt=text, max_tokens=5, **GREEDY)["choices"][0]["text"]
    for prompt in (text, ids):
        got = post("/v1/completions", prompt=prompt, max_tokens=5, echo=True, **GREEDY)
        assert got["choices"][0]["text"] == text + plain, got
        only = post("/v1/completions", prompt=prompt, max_tokens=0, echo=True)
        assert only["choices"][0]["text"] == text and only["usage"]["prompt_tokens"] == len(ids), only
        assert only["usage"]["completion_tokens"] == 0, only
        chunks = [json.loads(d) for _, d in events("/v1/completions", prompt=prompt, max_tokens=5, echo=True, **GREEDY)[:-1]]
        assert "".join(c["choices"][0]["text"] for c in chunks) == text + plain, chunks


def check_chats():
    messages = [{"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "What is"}, {"type": "text", "text": "2 + 3?"}]}]
    whole = post("/v1/chat/completions", messages=messages, max_tokens=8, temperature=0)
    prompt = post("/apply-template", messages=messages)["prompt"]
    assert prompt == ("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhat is\n2 + 3?<|im_end|>\n"
                      "<|im_start|>assistant\n"), prompt
    ids = post("/tokenize", content=prompt, parse_special=True)["tokens"]
    plain = post("/v1/completions", prompt=ids, max_tokens=8, temperature=0)
    assert whole["choices"][0]["message"]["content"] == plain["choices"][0]["text"], (whole, plain)
    got = events("/v1/chat/completions", messages=messages, max_tokens=8, temperature=0)
    chunks = [json.loads(data) for _, data in got[:-1]]
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant", chunks[0]
    text = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks)
    assert text == plain["choices"][0]["text"], (text, plain)
    assert chunks[-1]["choices"][0]["delta"] == {} and chunks[-1]["choices"][0]["finish_reason"], chunks[-1]
    # the same conversation through the other APIs
    user = {"role": "user", "content": "What is\n2 + 3?"}
    message = post("/v1/messages", system="Be brief.", messages=[user], max_tokens=8, temperature=0)
    assert message["content"][0]["text"] == text, message
    counted = post("/v1/messages/count_tokens", system="Be brief.", messages=[user])
    used = message["usage"]["input_tokens"] + message["usage"]["cache_read_input_tokens"]
    assert counted["input_tokens"] == used == len(ids), (counted, message)
    named = events("/v1/messages", system="Be brief.", messages=[user], max_tokens=8, temperature=0)
    assert [name for name, _ in named if name != "content_block_delta"] == [
        "message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"], named
    parts = [json.loads(d)["delta"]["text"] for name, d in named if name == "content_block_delta"]
    assert "".join(parts) == text, parts
    response = post("/v1/responses", instructions="Be brief.", input=[user], max_output_tokens=8, temperature=0,
                    metadata={"a": "b"}, truncation="auto")
    assert response["metadata"] == {"a": "b"} and response["truncation"] == "disabled", response
    assert response["output"][0]["content"][0]["text"] == text, response
    counted = post("/v1/responses/input_tokens", instructions="Be brief.", input=[user])
    assert counted == {"object": "response.input_tokens", "input_tokens": len(ids)}, counted
    assert counted == post("/v1/chat/completions/input_tokens", messages=messages)
    assert 0 < post("/v1/responses/input_tokens", instructions="Be brief.")["input_tokens"] < len(ids)
    for member in ("completed_at", "reasoning", "user", "top_logprobs", "background", "service_tier", "presence_penalty"):
        assert member in response, member
    numbered = [json.loads(d) for _, d in events("/v1/responses", instructions="Be brief.", input=[user],
                                                 max_output_tokens=8, temperature=0)]
    assert [e["sequence_number"] for e in numbered] == list(range(len(numbered))), numbered
    assert numbered[-1]["response"]["output"] == numbered[-2:][0].get("response", {}).get("output", [numbered[-2]["item"]]), numbered[-1]
    assert "".join(e["delta"] for e in numbered if e["type"] == "response.output_text.delta") == text, numbered
    ollama = post("/api/chat", messages=messages[:1] + [user], stream=False, options={"num_predict": 8, "temperature": 0})
    assert ollama["message"]["content"] == text and ollama["done"], ollama
    assert ollama["total_duration"] >= sum(ollama[name] for name in ("load_duration", "prompt_eval_duration", "eval_duration")) > 0, ollama


def check_claude_code_is_cached():
    """Claude Code's first line differs in every request; what follows it is computed once."""
    messages, cached = [], []
    for turn in range(3):
        line = f"x-anthropic-billing-header: cc_version=2.1.36.{turn}; cc_entrypoint=cli; cch={turn}a2b{turn};"
        messages.append({"role": "user", "content": "What is 2 + 3? " * 8})
        answer = post("/v1/messages", system=[{"type": "text", "text": line}, {"type": "text", "text": "Be brief. " * 20}],
                      messages=messages, max_tokens=4, temperature=0)
        messages.append({"role": "assistant", "content": answer["content"]})
        cached.append(answer["usage"]["cache_read_input_tokens"])
    assert cached[0] < 60 <= cached[1] < cached[2], cached


def check_choices_share_a_prompt():
    """What one choice computes and the others find is not cached: the prompt was computed."""
    cold, warm = (post("/v1/completions", prompt="A cold prompt. " * 20, n=3, max_tokens=1)["usage"]["prompt_tokens_details"]["cached_tokens"]
                  for _ in range(2))
    assert cold == 0 < warm, (cold, warm)


def check_seeds():
    """Each prompt starts at `seed`, whatever its place: its answers are those of a request by itself. Without a seed, or with one
    that stands for a random one, answers differ."""
    def texts(prompt, path="/v1/completions", **more):
        got = post(path, prompt=prompt, max_tokens=16, temperature=2, min_p=0, ignore_eos=True, **more)
        return [c["text"] for c in got["choices"]] if "choices" in got else [c["content"] for c in (got if isinstance(got, list) else [got])]

    prompts = ["Once upon", "The cat", "Once upon"]
    alone = {p: texts(p, seed=7, n=2) for p in prompts}
    assert all(len(set(t)) == 2 for t in alone.values()), alone
    assert texts(prompts, seed=7, n=2) == sum((alone[p] for p in prompts), []), alone
    assert texts("Once upon", seed=8)[0] == alone["Once upon"][1], alone
    # behind the largest seed comes 0: 2^64 - 1 is libmoed's name of a random one
    assert texts("Once upon", seed=-2, n=2) == texts("Once upon", seed=-2) + texts("Once upon", seed=0)
    for path, more in (("/v1/completions", {}), ("/v1/completions", {"seed": -1}), ("/completion", {"seed": -1}),
                       ("/completion", {"seed": 4294967295}), ("/completion", {})):
        some = texts(["Once upon"] * 3, path, n=2, **more) + texts("Once upon", path, **more)
        assert len(set(some)) == 7, (path, more, some)


def check_usage_of_several():
    """A prompt counts once, whatever n is; each answer counts. So in the metrics."""
    ids = [post("/tokenize", content=text)["tokens"] for text in ("Once upon a time", "The cat")]
    counters = ("moed_http_prompt_tokens_total", "moed_http_generation_tokens_total", 'moed_http_answers_total{reason="length"}')
    before = [metric(name) for name in counters]
    usage = post("/v1/completions", prompt=ids, n=3, max_tokens=4, **GREEDY)["usage"]
    assert [metric(name) - b for name, b in zip(counters, before)] == [usage["prompt_tokens"], usage["completion_tokens"], 6], usage
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (sum(map(len, ids)), 24), usage
    last = json.loads(events("/v1/completions", prompt=ids, n=3, max_tokens=4, stream_options={"include_usage": True}, **GREEDY)[-2][1])
    assert last["usage"] == {**usage, "prompt_tokens_details": last["usage"]["prompt_tokens_details"]}, (last, usage)


def check_zeros():
    """A sampler's 0 is its smallest value, and neither its usual one nor off: of these samplers it leaves one token."""
    def text(**more):
        return post("/v1/completions", prompt="Once upon", max_tokens=8, ignore_eos=True, **{"temperature": 1.5, "seed": 3, **more})["choices"][0]["text"]

    plain = text(temperature=0)
    assert text() != plain
    for more in ({"top_p": 0}, {"top_p": 0, "samplers": "pt"}, {"mirostat": 2, "mirostat_tau": 0}, {"mirostat": 2, "mirostat_tau": 0, "mirostat_eta": 0}):
        assert text(**more) == plain, (more, text(**more), plain)
    typical = [text(typical_p=0, samplers="yt", seed=seed) for seed in range(3)]
    assert len(set(typical)) == 1, typical # the token nearest to the expected surprise
    ran = moed("run", "-n", "8", "--ignore-end", "--temp", "1.5", "--top-p", "0", "--json", "Once upon")
    assert json.loads(ran)["text"] == plain, (ran, plain)
    ran = [json.loads(moed("run", "-n", "8", "--ignore-end", "--temp", "1.5", "--mirostat", "2", "--mirostat-tau", "0", "--json", "Once upon"))["text"]]
    assert ran == [plain], (ran, plain)


def check_forms_of_prompts():
    """llama-server's: texts and ids in one prompt, an object with a text; and what stands in the place of images."""
    ids, more = (post("/tokenize", content=text)["tokens"] for text in ("Once upon", " a time"))
    special = post("/tokenize", content="", add_special=True)["tokens"]
    for form, whole in ((["Once upon", *more], special + ids + more), ([*ids, " a time"], ids + more), ([ids[0], "", *ids[1:]], ids),
                        ({"prompt_string": "Once upon", "multimodal_data": []}, special + ids)):
        want = post("/completion", prompt=whole, n_predict=6, **GREEDY)
        got = post("/completion", prompt=form, n_predict=6, **GREEDY)
        assert (got["content"], got["tokens_evaluated"]) == (want["content"], len(whole)), (form, got, want)
    several = post("/v1/completions", prompt=[["Once upon", *more], {"prompt_string": "The cat"}, ids], max_tokens=3, echo=True, **GREEDY)
    assert [c["text"].startswith(t) for c, t in zip(several["choices"], ("Once upon a time", "The cat", "Once upon"))] == [True] * 3, several
    refused("/completion", {"prompt": {"prompt_string": "a", "multimodal_data": ["aGk="]}}, 400, "prompt.multimodal_data")
    assert post("/tokenize", content=["Once upon", *more])["tokens"] == ids + more
    assert post("/tokenize", content=[*ids, " a time"])["tokens"] == ids + more


def check_pieces():
    """The bytes of each token, also of one that is a part of a character: together they are the text."""
    text = "Once \u4e16 <|im_end|>"
    tokens = post("/tokenize", content=text, with_pieces=True)
    assert [t["id"] for t in tokens["tokens"]] == post("/tokenize", content=text)["tokens"], tokens
    pieces = [t["piece"] for t in tokens["tokens"]]
    assert b"".join(p.encode() if isinstance(p, str) else bytes(p) for p in pieces) == text.encode(), pieces
    assert "<|im_end|>" in pieces and [list(p) for p in pieces if not isinstance(p, str)] == [[b] for b in "\u4e16".encode()], pieces


def check_stops():
    full = post("/v1/completions", prompt="Once upon", max_tokens=20, **GREEDY)["choices"][0]["text"]
    word = full.split()[3]
    cut = post("/v1/completions", prompt="Once upon", max_tokens=20, stop=["@@@", word], **GREEDY)["choices"][0]
    assert cut["text"] == full[:full.index(word)] and cut["finish_reason"] == "stop", (cut, full, word)


def check_logprobs():
    """An answer's log-probabilities are those of the same tokens in a prompt, in every form."""
    text = "Once upon"
    whole = post("/v1/completions", prompt=text, max_tokens=6, logprobs=2, **GREEDY)["choices"][0]
    lp = whole["logprobs"]
    assert "".join(lp["tokens"]) == whole["text"] and lp["text_offset"][0] == 0, lp
    again = post("/v1/completions", prompt=text + whole["text"], max_tokens=0, echo=True, logprobs=2)["choices"][0]["logprobs"]
    assert again["token_logprobs"][0] is None and again["top_logprobs"][0] is None, again
    n = len(again["tokens"]) - 6
    assert again["tokens"][n:] == lp["tokens"] and again["text_offset"][n] == len(text), (again, lp)
    for a, b, top in zip(again["token_logprobs"][n:], lp["token_logprobs"], lp["top_logprobs"]):
        assert abs(a - b) < 1e-3 and abs(max(top.values()) - b) < 1e-6, (a, b, top)
    # the chosen token, and one of a prompt, is among the most probable ones in any case
    rare = post("/tokenize", content=" the")["tokens"][0]
    for n in (0, 1, 2):
        forced = post("/v1/completions", prompt=text, max_tokens=2, logprobs=n, logit_bias={str(rare): 1e5}, **GREEDY)["choices"][0]["logprobs"]
        prompt = post("/v1/completions", prompt=text + " zebra", max_tokens=0, logprobs=n, echo=True)["choices"][0]["logprobs"]
        assert forced["tokens"] == [" the"] * 2, forced
        for found in (forced, prompt):
            for token, value, top in zip(found["tokens"], found["token_logprobs"], found["top_logprobs"]):
                assert (top is None) if value is None else abs(top[token] - value) < 1e-6 and n <= len(top) <= n + 1, (n, found)
    echoed = post("/v1/completions", prompt=text, max_tokens=6, echo=True, logprobs=2, **GREEDY)["choices"][0]
    assert echoed["logprobs"]["tokens"] == again["tokens"] and echoed["text"] == text + whole["text"], echoed
    for prompt in (text, post("/tokenize", content=text)["tokens"], "Once"):
        asked = {"prompt": prompt, "max_tokens": 6, "logprobs": 2, "echo": True, **GREEDY}
        columns, parts = post("/v1/completions", **asked)["choices"][0], []
        chunks = [json.loads(d)["choices"][0] for _, d in events("/v1/completions", **asked)[:-1]]
        for chunk in chunks:
            parts += list(zip(*[chunk["logprobs"][k] for k in ("tokens", "text_offset")])) if chunk["logprobs"] else []
        assert "".join(c["text"] for c in chunks) == columns["text"], (chunks, columns)
        assert parts == list(zip(*[columns["logprobs"][k] for k in ("tokens", "text_offset")])), (parts, columns)
    chat = {"messages": [{"role": "user", "content": "What is 2 + 3?"}], "max_tokens": 5, "temperature": 0}
    for path, body, entries in (
            ("/v1/chat/completions", {**chat, "logprobs": True, "top_logprobs": 3},
             lambda a: a["choices"][0]["logprobs"]["content"]),
            ("/v1/responses", {"input": chat["messages"], "max_output_tokens": 5, "temperature": 0, "top_logprobs": 3},
             lambda a: a["output"][0]["content"][0]["logprobs"]),
            ("/api/chat", {**chat, "stream": False, "options": {"temperature": 0, "num_predict": 5}, "logprobs": True,
                           "top_logprobs": 3}, lambda a: a["logprobs"])):
        got = entries(post(path, **body))
        assert len(got) == 5 and all(len(e["top_logprobs"]) == 3 and e["token"] == e["top_logprobs"][0]["token"] for e in got), got
        assert all(bytes(e["bytes"]).decode() == e["token"] for e in got), got
    streamed = [json.loads(d)["choices"][0] for _, d in events("/v1/chat/completions", **chat, logprobs=True)[:-1]]
    tokens = [e["token"] for c in streamed if c["logprobs"] for e in c["logprobs"]["content"]]
    assert "".join(tokens) == "".join(c["delta"].get("content", "") for c in streamed) and len(tokens) == 5, streamed


def check_breakers_are_free():
    """DRY deters what would go on with a repetition, but no breaker."""
    colon, word = (post("/tokenize", content=text)["tokens"][-1] for text in (":", " and"))
    ask = {"prompt": "Alice Smith the old king%s yes. Alice Smith the old king", "n_predict": 1, "temperature": 0, "return_tokens": True,
           "dry_multiplier": 100}
    for text, token, more, chosen in ((":", colon, {}, True), (":", colon, {"dry_sequence_breakers": []}, False), (" and", word, {}, False)):
        got = post("/completion", **{**ask, "prompt": ask["prompt"] % text, "logit_bias": [[token, 60]], **more})
        assert (got["tokens"] == [token]) == chosen, (text, more, got)


def check_ignored_end():
    """llama-server's ignore_eos forbids the end; vLLM's goes on behind it."""
    eos = post("/tokenize", content=call("GET", "/props")[2]["eos_token"])["tokens"][-1]
    ask = {"prompt": "Once upon", "temperature": 0, "ignore_eos": True, "logit_bias": [[eos, 1000]], "logprobs": 1}
    got = post("/completion", **{**ask, "logprobs": None}, n_predict=4, return_tokens=True)
    assert len(got["tokens"]) == 4 and eos not in got["tokens"] and got["stop_type"] == "limit", got
    got = post("/v1/completions", **ask, max_tokens=4)
    assert got["usage"]["completion_tokens"] == 4 and got["choices"][0]["logprobs"]["tokens"] == ["<|im_end|>"] * 4, got


def check_scores_with_an_answer():
    """As lm-evaluation-harness asks: the last log-probability is the generated token's, also where that ends the answer. The
    prompt is computed once."""
    prompt = post("/tokenize", content="In the first year of the long war " * 16)["tokens"]
    asked = {"prompt": prompt, "max_tokens": 1, "logprobs": 1, "echo": True, **GREEDY}
    before = worker_metric("moed_worker_prompt_tokens_total")
    post("/v1/completions", **asked)
    assert len(prompt) <= worker_metric("moed_worker_prompt_tokens_total") - before <= len(prompt) + 64
    alone = post("/v1/completions", prompt=prompt, max_tokens=0, logprobs=1, echo=True)["choices"][0]["logprobs"]
    first = post("/completion", prompt=prompt, n_predict=1, return_tokens=True, **GREEDY)["tokens"][0]
    eos = post("/tokenize", content=call("GET", "/props")[2]["eos_token"])["tokens"][-1]
    for more, last, tokens in (({}, first, 1), ({"stop_token_ids": [first]}, first, 0),
                               ({"logit_bias": {str(eos): 1000}, "ignore_eos": False}, eos, 0)):
        answer = post("/v1/completions", **{**asked, **more})
        assert answer["usage"]["completion_tokens"] == tokens and answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, answer["usage"]
        got = answer["choices"][0]["logprobs"]
        assert abs(sum(got["token_logprobs"][1:-1]) - sum(alone["token_logprobs"][1:])) < 1e-2, more
        behind = post("/v1/completions", prompt=prompt + [last], max_tokens=0, logprobs=1, echo=True)["choices"][0]["logprobs"]
        assert abs(got["token_logprobs"][-1] - behind["token_logprobs"][-1]) < 1e-2 and got["tokens"] == behind["tokens"], (more, got)
        chunks = [json.loads(d)["choices"][0]["logprobs"] for _, d in events("/v1/completions", **{**asked, **more})[:-1]]
        assert sum((c["token_logprobs"] for c in chunks if c), []) == got["token_logprobs"], more
    # The choices of a prompt have its scores by one computation of it, each of several prompts its own.
    other = post("/tokenize", content="At the end of the long war " * 40)["tokens"]
    several = {**asked, "prompt": [prompt, other], "n": 3}
    before = worker_metric("moed_worker_prompt_tokens_total")
    choices = post("/v1/completions", **several)["choices"]
    computed, once = worker_metric("moed_worker_prompt_tokens_total") - before, len(prompt) + len(other)
    assert once <= computed <= once + 6 * 64, (computed, len(prompt), len(other))
    for tokens, same in ((prompt, choices[:3]), (other, choices[3:])):
        one = post("/v1/completions", **{**asked, "prompt": tokens})["choices"][0]
        assert all((c["text"], c["logprobs"]["tokens"]) == (one["text"], one["logprobs"]["tokens"]) for c in same), (one, same)
        for c in same:
            for a, b in zip(c["logprobs"]["token_logprobs"][1:], one["logprobs"]["token_logprobs"][1:]):
                assert abs(a - b) < 1e-2, (one, c)
    only = post("/v1/completions", **{**several, "max_tokens": 0})["choices"]
    assert [c["logprobs"]["tokens"] for c in only] == [c["logprobs"]["tokens"][:-1] for c in choices], only
    # In a stream, too: also in one event that is larger than --stream-bytes.
    for more in ({"prompt": ["Once upon a time", prompt[:30]]}, {"prompt": prompt, "max_tokens": 0}):
        choices = post("/v1/completions", **{**several, **more})["choices"]
        chunks = [json.loads(d)["choices"][0] for _, d in events("/v1/completions", **{**several, **more})[:-1]]
        for c in choices:
            mine = [x for x in chunks if x["index"] == c["index"]]
            assert "".join(x["text"] for x in mine) == c["text"], (mine, c)
            assert sum((x["logprobs"]["tokens"] for x in mine if x["logprobs"]), []) == c["logprobs"]["tokens"], (mine, c)
    # Chats have the tokens of the text, as OpenAI has it; none are an empty list.
    chat = {"messages": [{"role": "user", "content": "What is 2 + 3?"}], "max_tokens": 3, "temperature": 0, "logprobs": True}
    first = post("/v1/chat/completions", **chat)["choices"][0]["logprobs"]["content"][0]["token"]
    ids = post("/tokenize", content=first)["tokens"]
    empty = post("/v1/chat/completions", **chat, logit_bias={str(ids[-1]): 1000}, stop_token_ids=ids[-1:])["choices"][0]
    assert (empty["message"]["content"], empty["finish_reason"], empty["logprobs"]["content"]) == ("", "stop", []), empty


def check_gaps_between_tokens():
    """As vLLM counts: one for each token after the first, and together the time between first and last."""
    name = "moed_http_inter_token_latency_seconds"
    count, total = metric(name + "_count"), metric(name + "_sum")
    begun = time.monotonic()
    post("/v1/completions", prompt="Once upon", max_tokens=40, **GREEDY)
    assert metric(name + "_count") - count == 39, (count, metric(name + "_count"))
    assert 0 < metric(name + "_sum") - total < time.monotonic() - begun


def check_samplers():
    """Parameters with an effect that can be seen: biases, penalties, ends."""
    def text(**more):
        return post("/v1/completions", prompt="Once upon", max_tokens=8, **{**GREEDY, **more})["choices"][0]["text"]

    plain = text()
    first = post("/tokenize", content=" a")["tokens"]
    assert len(first) == 1 and plain.startswith(" a"), (first, plain)
    assert text(logit_bias={str(first[0]): 1e5}) == " a" * 8
    assert text(logit_bias=[[" a", False]]).split()[0] != "a"
    assert len(set(text(logit_bias={str(first[0]): 50}, frequency_penalty=100).split())) > 1
    cut = post("/v1/completions", prompt="Once upon", max_tokens=8, temperature=0, stop_token_ids=first)["choices"][0]
    assert cut["text"] == "" and cut["finish_reason"] == "stop", cut
    longer = post("/v1/completions", prompt="Once upon", max_tokens=8, temperature=0, stop_token_ids=first, min_tokens=3)
    assert longer["usage"]["completion_tokens"] >= 3, longer
    assert text(samplers=["top_k", "temperature"], top_k=1, temperature=2) == plain
    for more in ({"dry_multiplier": 1}, {"xtc_probability": 0.5}, {"mirostat": 2}, {"typical_p": 0.5}, {"dynatemp_range": 0.5}):
        text(temperature=0.7, **more)
    refused("/v1/completions", {"prompt": "a", "mirostat": 1}, 400, "mirostat")
    refused("/v1/completions", {"prompt": "a", "logit_bias": {"99999999": 1}}, 400, "logit_bias")
    refused("/v1/completions", {"prompt": "a", "stop_token_ids": [99999999]}, 400, "stop_token_ids")
    refused("/v1/completions", {"prompt": "a", "min_tokens": 9, "max_tokens": 3}, 400, "min_tokens")
    refused("/v1/completions", {"prompt": "a", "samplers": ["top_k", "temperature", "top_k"]}, 400, "samplers")
    refused("/v1/completions", {"prompt": "a", "ignore_eos": True, "grammar": 'root ::= "a"'}, 400, "ignore_eos")


SUM = {"type": "object", "properties": {"sum": {"type": "integer"}, "unit": {"enum": ["a", "b"]}},
       "required": ["sum", "unit"], "additionalProperties": False}


def check_forms():
    """The demo model does not write JSON by itself: what is demanded is enforced, at any temperature."""
    messages = [{"role": "user", "content": "What is 2 + 3?"}]

    def good(text):
        value = json.loads(text)
        assert list(value) == ["sum", "unit"] and isinstance(value["sum"], int) and value["unit"] in "ab", text

    for seed in range(3):
        hot = {"temperature": 1.5, "seed": seed}
        chat = {"messages": messages, **hot, "max_tokens": 100}
        form = {"type": "json_schema", "json_schema": {"name": "sum", "strict": True, "schema": SUM}}
        good(post("/v1/chat/completions", **chat, response_format=form)["choices"][0]["message"]["content"])
        good(post("/v1/messages", **chat, output_config={"format": {"type": "json_schema", "schema": SUM}})["content"][0]["text"])
        good(post("/v1/responses", input=messages, **hot, text={"format": {"type": "json_schema", "name": "sum", "schema": SUM}})
             ["output"][0]["content"][0]["text"])
        good(post("/api/chat", messages=messages, stream=False, format=SUM, options=hot)["message"]["content"])
        good(post("/v1/completions", prompt="a", max_tokens=100, json_schema=SUM, **hot)["choices"][0]["text"])
    answer = lambda **form: post("/v1/chat/completions", messages=messages, max_tokens=20, **form)["choices"][0]["message"]["content"]
    assert answer(guided_choice=["red", "green"]) in ("red", "green")
    assert set(answer(structured_outputs={"regex": "[ab]{3}"})) <= set("ab")
    assert answer(grammar='root ::= "x" [0-9] "y"')[::2] == "xy"
    assert answer(ebnf='root ::= "x" [0-9] "y"')[::2] == "xy" and set(answer(regex="[ab]{3}")) <= set("ab")  # SGLang's
    assert post("/v1/completions", prompt="a", max_tokens=20, regex="7{5}")["choices"][0]["text"] == "77777"
    assert post("/v1/responses", input="a", regex="7{5}")["output"][-1]["content"][0]["text"] == "77777"
    refused("/v1/completions", {"prompt": "a", "ebnf": "root ::= TagDispatch((\"a\", b))"}, 400)
    for form in ({"type": "json_schema", "json_schema": {"schema": {"not": {}}, "strict": True}}, {"type": "xml"}):
        refused("/v1/chat/completions", {"messages": messages, "response_format": form}, 400)
    # not strict: what cannot be followed is left out, the rest binds
    odd = {**SUM, "properties": {**SUM["properties"], "unit": {"enum": ["a", "b"], "pattern": "^(?!x).*$"}}, "not": {"type": "null"}}
    good(post("/v1/chat/completions", messages=messages, max_tokens=100, temperature=1.5, seed=1,
              response_format={"type": "json_schema", "json_schema": {"name": "sum", "schema": odd}})["choices"][0]["message"]["content"])
    good(post("/api/chat", messages=messages, stream=False, format=odd, options={"temperature": 1.5, "seed": 1})["message"]["content"])
    # pydantic's HttpUrl and EmailStr, also where the schema is strict
    texts = {"url": {"type": "string", "format": "uri", "minLength": 1, "maxLength": 2083},
             "mail": {"type": "string", "format": "email", "maxLength": 254}}
    link = {**SUM, "properties": {**SUM["properties"], **texts}}
    for strict in (False, True):
        form = {"type": "json_schema", "json_schema": {"name": "sum", "strict": strict, "schema": link}}
        post("/v1/chat/completions", messages=messages, max_tokens=5, response_format=form)


WEATHER = {"name": "get_weather", "description": "The weather", "strict": True, "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"], "additionalProperties": False}}


def check_tools():
    """Forced calls are valid in every API, though the demo's template knows no tools: they are described in a message."""
    messages = [{"role": "user", "content": "Weather?"}]
    tools = [{"type": "function", "function": WEATHER}]
    named = {"type": "function", "function": {"name": "get_weather"}}
    prompt = post("/apply-template", messages=messages, tools=tools)["prompt"]
    assert '"name":"get_weather"' in prompt and prompt.startswith("<|im_start|>system\n"), prompt
    one = {"messages": messages, "max_tokens": 200, "temperature": 0}
    choice = post("/v1/chat/completions", **one, tools=tools, tool_choice=named)["choices"][0]
    call = choice["message"]["tool_calls"][0]
    assert choice["finish_reason"] == "tool_calls" and json.loads(call["function"]["arguments"])["city"] in ("Paris", "Rome"), choice
    chunks = [json.loads(d)["choices"][0] for _, d in events("/v1/chat/completions", **one, tools=tools, tool_choice=named)[:-1]]
    deltas = [c["delta"]["tool_calls"][0] for c in chunks if "tool_calls" in c["delta"]]
    assert [d["index"] for d in deltas] == [0] * len(deltas) and deltas[0]["id"] and chunks[-1]["finish_reason"] == "tool_calls", chunks
    assert "".join(d["function"].get("arguments", "") for d in deltas) == call["function"]["arguments"], (deltas, call)
    flat = [{"name": "get_weather", "input_schema": WEATHER["parameters"], "strict": True}]
    message = post("/v1/messages", **one, tools=flat, tool_choice={"type": "tool", "name": "get_weather"})
    assert message["stop_reason"] == "tool_use" and message["content"][0]["input"]["city"], message
    response = post("/v1/responses", input=messages, max_output_tokens=200, temperature=0, tools=[{"type": "function", **WEATHER}],
                    tool_choice={"type": "function", "name": "get_weather"})
    item = response["output"][0]
    assert item["type"] == "function_call" and json.loads(item["arguments"])["city"], response
    result = messages + [choice["message"], {"role": "tool", "tool_call_id": call["id"], "content": "Sunny."}]
    prompt = post("/apply-template", messages=result, tools=tools)["prompt"]
    assert "Result of get_weather:\nSunny." in prompt and '{"tool_calls":[{"name":"get_weather"' in prompt, prompt
    post("/v1/chat/completions", **{**one, "messages": result, "max_tokens": 3}, tools=tools)
    whole = post("/v1/chat/completions", **one, tools=tools)["choices"][0]  # the model decides: a call, or content
    assert bool(whole["message"].get("tool_calls")) == (whole["finish_reason"] == "tool_calls"), whole
    # of several tools only those that are allowed are called; the prompt has all
    other = {"type": "function", "function": {"name": "now"}}
    both = tools + [other]
    for mode, name in (("required", "now"), ("required", "get_weather"), ("auto", "now")):
        allowed = {"mode": mode, "tools": [{"type": "function", "function": {"name": name}}]}
        message = post("/v1/chat/completions", **one, tools=both, tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
        calls = message["choices"][0]["message"].get("tool_calls", [])
        assert {c["function"]["name"] for c in calls} <= {name} and (calls or mode == "auto"), message
    flat = [{"type": "function", **f["function"]} for f in both]
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "now"}]}
    item = post("/v1/responses", input=messages, max_output_tokens=200, temperature=0, tools=flat, tool_choice=allowed)["output"][0]
    assert item["name"] == "now", item
    for bad in ({"mode": "auto", "tools": []}, {"mode": "all", "tools": [other]}, {"mode": "auto", "tools": [{"name": "x"}]}):
        refused("/v1/chat/completions", {**one, "tools": both, "tool_choice": {"type": "allowed_tools", "allowed_tools": bad}}, 400, "tool_choice")
    refused("/v1/chat/completions", {**one, "tool_choice": "required"}, 400, "tool_choice")
    refused("/v1/chat/completions", {**one, "tools": [{"type": "web_search"}]}, 400, "tools")


def check_tool_schemas():
    """Arguments follow the schema of a function that is not strict, in every API. Of a schema that moed cannot follow they are any
    object, or the request is refused, if the function is strict."""
    messages = [{"role": "user", "content": "Add a task."}]
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1, "maximum": 9}, "list": {"enum": ["x", "y"]}},
              "required": ["a", "list"], "additionalProperties": False}
    odd = {"type": "object", "properties": {"a": {"not": {"type": "null"}}}}

    def good(value):
        assert sorted(value) == ["a", "list"] and value["a"] in range(1, 10) and value["list"] in "xy", value

    def function(parameters, **more):
        return [{"type": "function", "function": {"name": "f", "parameters": parameters, **more}}]

    def arguments(tools, **more):
        answer = post("/v1/chat/completions", messages=messages, tools=tools, tool_choice="required", parallel_tool_calls=False, **more)
        return json.loads(answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"])

    for seed in range(3):
        hot = {"temperature": 1.5, "seed": seed}
        good(arguments(function(schema), **hot))
        good(arguments(function(schema, strict=False), **hot))
        flat = {"name": "f", "input_schema": schema}
        message = post("/v1/messages", messages=messages, max_tokens=300, **hot, tools=[flat],
                       tool_choice={"type": "any", "disable_parallel_tool_use": True})
        good(message["content"][0]["input"])
        response = post("/v1/responses", input=messages, **hot, tool_choice="required", parallel_tool_calls=False,
                        tools=[{"type": "function", "name": "f", "parameters": schema, "strict": False}])
        good(json.loads(response["output"][0]["arguments"]))
    # what the model decides by itself: a call or an answer
    for seed in range(8):
        chat = {"messages": messages, "temperature": 1.5, "seed": seed, "max_tokens": 300, "tools": function(schema)}
        message = post("/v1/chat/completions", **chat)["choices"][0]
        for c in message["message"].get("tool_calls", []) if message["finish_reason"] == "tool_calls" else []:
            good(json.loads(c["function"]["arguments"]))
        for c in post("/api/chat", messages=messages, tools=function(schema), stream=False,
                      options={"temperature": 1.5, "seed": seed})["message"].get("tool_calls", []):
            good(c["function"]["arguments"])
    assert isinstance(arguments(function(odd), temperature=0, max_tokens=400), dict)
    body = {"messages": messages, "tools": function(odd, strict=True), "tool_choice": "required"}
    error = refused("/v1/chat/completions", body, 400)
    assert 'tool "f"' in error["error"]["message"] and "#/properties/a/not" in error["error"]["message"], error


def check_models():
    listed = call("GET", "/v1/models")[2]["data"]
    assert [m["id"] for m in listed] == ["demo"], listed
    assert call("GET", "/v1/models/demo")[2] == listed[0]
    assert call("GET", "/v1/models/nope")[0] == 404
    for model in ("demo", "default", "demo:latest", ""):
        post("/v1/completions", model=model, prompt="a", max_tokens=1)
    status, _, answer = call("POST", "/v1/completions", {"model": "gpt-9", "prompt": "a"})
    assert status == 404 and answer["error"]["code"] == "model_not_found", answer
    text = "Grüße, 世界 <|im_end|>"
    ids = post("/tokenize", content=text, parse_special=False)["tokens"]
    assert ids == json.loads(moed("tokenize", "--json", text)), ids
    assert post("/detokenize", tokens=ids)["content"] == text
    assert call("GET", "/health")[0] == call("GET", "/livez")[0] == call("GET", "/slots")[0] == 200
    props = call("GET", "/props")[2]
    assert props["eos_token"] == "<|im_end|>", props
    usual = props["default_generation_settings"]["params"]  # the file names none
    assert (usual["temperature"], usual["top_k"], usual["top_p"], usual["min_p"]) == (0.8, 0, 1, 0.05), usual
    response = post("/v1/responses", input="Hi", max_output_tokens=1)
    assert (response["temperature"], response["top_p"]) == (0.8, 1), response
    everyone = call("GET", "/metrics?process=all")[2]
    for process in ("http", "memd", "worker"):
        assert f'process="{process}"' in everyone, process
    assert everyone.count("# TYPE process_open_fds ") == 1


# ---- Errors ----

def refused(path, body, status, parameter=None):
    got, _, answer = call("POST", path, body)
    assert got == status, (path, body, got, answer)
    if parameter:
        assert answer["error"]["param"] == parameter, answer
    return answer


def check_errors():
    chat = {"messages": [{"role": "user", "content": "hi"}]}
    refused("/v1/chat/completions", {**chat, "temperature": "hot"}, 400, "temperature")
    refused("/v1/chat/completions", {**chat, "n": 0}, 400, "n")
    refused("/v1/chat/completions", {**chat, "stop": ["x"] * 129}, 400, "stop")
    refused("/v1/chat/completions", {}, 400, "messages")
    refused("/v1/chat/completions", {"messages": [{"role": "wizard", "content": "hi"}]}, 400, "messages")
    refused("/v1/chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, 400, "messages")
    refused("/v1/completions", {"prompt": [1, "a", []]}, 400, "prompt")
    refused("/v1/completions", {"prompt": [10**9], "max_tokens": 1}, 400, "prompt")
    refused("/v1/completions", {"prompt": ["a", 10**9], "max_tokens": 1}, 400, "prompt")
    refused("/v1/completions", {"prompt": ["a"] * 100, "n": 2}, 400)
    assert refused("/v1/completions", {"prompt": "a " * 5000}, 400)["error"]["code"] == "context_length_exceeded"
    many = refused("/v1/completions", {"prompt": "a", "stop_token_ids": [1] * 4000}, 400)["error"]
    assert "stop tokens" in many["message"] and many["code"] != "context_length_exceeded", many
    assert refused("/v1/messages", {"messages": [{"role": "user", "content": "a"}]}, 400)["type"] == "error"
    assert isinstance(refused("/api/chat", {"model": "nope", "messages": chat["messages"]}, 404)["error"], str)
    refused("/v1/embeddings", {"input": "a"}, 501)
    for method, path in (("GET", "/v1/files"), ("POST", "/v1/files"), ("DELETE", "/v1/files/file-1"), ("GET", "/v1/batches/b"), ("GET", "/v1/embeddings")):
        assert call(method, path)[0] == 501, (method, path)
    # a message says what it is about, also in APIs without a member for it
    assert "temperature" in refused("/v1/messages", {**chat, "max_tokens": 1, "temperature": "hot"}, 400)["error"]["message"]
    assert "temperature" in refused("/api/chat", {**chat, "options": {"temperature": "hot"}}, 400)["error"]
    assert "temperature" in refused("/v1/chat/completions", {**chat, "temperature": "hot"}, 400)["error"]["message"]
    for path in ("/v1/chat/completions", "/v1/messages"):
        answer = refused(path, {"messages": [{"role": "user"}], "max_tokens": 1}, 400)
        assert "messages[0]: content is missing" in answer["error"]["message"], answer
    counts = [post("/v1/messages/count_tokens", messages=chat["messages"], **more)["input_tokens"] for more in ({}, {"system": []})]
    assert counts[0] == counts[1], counts
    assert refused("/v1/responses/input_tokens", {"input": "a", "conversation": "c"}, 400)["error"]["param"] == "conversation"
    # what an API does not have is refused in its shape
    assert call("GET", "/v1/messages/batches")[2]["type"] == "error"
    for method, path, status in (("POST", "/api/push", 501), ("DELETE", "/api/delete", 501), ("GET", "/api/nothing", 404)):
        got, _, answer = call(method, path, {} if status == 501 else None)
        assert got == status and isinstance(answer["error"], str), (path, got, answer)
    # a slip in a client's base URL: the answer names the path that was meant, in the shape of its API
    for path, meant, shape in (("/chat/completions", "/v1/chat/completions", "openai"), ("/v1/v1/messages", "/v1/messages", "anthropic"),
                               ("//v1/responses/", "/v1/responses", "openai"), ("/v1/api/chat", "/api/chat", "ollama")):
        got, _, answer = call("POST", path, chat)
        text = answer["error"] if shape == "ollama" else answer["error"]["message"]
        assert got == 404 and f" {meant}?" in text and (answer.get("type") == "error") == (shape == "anthropic"), (path, got, answer)
    for method, path in (("GET", "/v1/responses/resp_1"), ("POST", "/v1/responses/resp_1/cancel"), ("DELETE", "/v1/responses/resp_1"),
                         ("POST", "/v1/conversations")):
        got, _, answer = call(method, path)
        assert got == 404 and "nothing is stored" in answer["error"]["message"], (path, got, answer)
    assert "--models" in call("POST", "/api/pull", {"model": "a"})[2]["error"]
    got, head, answer = call("POST", "/v1/completions", {"prompt": "a"}, ["Content-Encoding: gzip"])
    assert got == 415 and head["accept-encoding"] == "identity" and "gzip" in answer["error"]["message"], (got, head, answer)
    post("/v1/completions", prompt="a", max_tokens=1)
    # a stream that fails before its first token has a status of its own
    assert refused("/v1/completions", {"prompt": "a " * 5000, "stream": True}, 400)["error"]["message"]
    post("/v1/chat/completions", **chat, max_tokens=1, presence_penalty=0, tools=[], tool_choice="none", logprobs=False, unknown=1)
    for body in (b"", b"{", b"[]", b'{"a":1,"a":2}', b'{"prompt":"\xff"}', b"[" * 5000, b'{"prompt":"a"} x'):
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        status, _, _ = parse(raw(head.encode() + body))
        assert status == 400, (body[:40], status)
    status, head, _ = call("GET", "/v1/completions")
    assert status == 405 and head["allow"] == "POST", (status, head)
    assert call("GET", "/nothing")[0] == 404




def check_large_bodies():
    """Those above 64 KiB, and schemas to loosen, are another thread's work: answers, refusals, clients that leave."""
    more, asked = {"user": "x" * 200000}, {"prompt": "Once upon", "max_tokens": 4, **GREEDY}
    short = post("/v1/completions", **asked)["choices"]
    assert post("/v1/completions", **asked, **more)["choices"] == short
    assert len(events("/v1/completions", **asked, **more)) == len(events("/v1/completions", **asked))
    schema = {"type": "json_schema", "json_schema": {"schema": {"enum": ["a"], "unknown": 1}}}
    for large in ({}, more):
        assert post("/v1/completions", prompt="Once", max_tokens=9, response_format=schema, **large)["choices"][0]["text"] == '"a"'
    assert post("/tokenize", content="a" * 100000)["count"] > 1000
    one = {"prompt": "a", "stream": False, "options": {"num_predict": 1}}
    assert post("/api/generate", **one, system="b " * 1000)["prompt_eval_count"] > 500
    for bad in ({"prompt": 5}, {}, {"messages": []}):
        assert call("POST", "/v1/completions", {**bad, **more})[0] == 400, bad


def check_slow_schemas():
    """They delay no large body, and one client waits with at most a quarter of the test's --answers, 40."""
    def begin(i):
        patterns = {f"p{j}": {"type": "string", "pattern": f"^([a-z]{{0,40}}[0-9]{{0,40}}x{i}y{j}){{0,30}}$"} for j in range(40)}
        form = {"type": "json_schema", "json_schema": {"schema": {"type": "object", "properties": patterns}}}
        s = connect()
        s.sendall(request("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 1, "response_format": form}))
        return s
    waiting = [begin(i) for i in range(8)]
    assert post("/tokenize", content="a" * 100000)["count"] > 1000
    refused_at_once = []

    def is_refused():
        waiting.append(begin(len(waiting)))  # faster than they are loosened
        ready = select.select(waiting, [], [], 0)[0]
        answers = [parse(read_all(s)) for s in ready]
        for s in ready:
            waiting.remove(s)
            s.close()
        refused_at_once.extend(a for a in answers if a[0] == 429)
        return refused_at_once
    wait_for(is_refused, 0)
    _, head, answer = refused_at_once[0]
    assert int(head["retry-after"]) > 0 and "of this key or address" in answer.decode(), answer
    for s in waiting:
        s.close()
    wait_for(lambda: metric("moed_http_answers_running") == 0)


def check_bodies_that_wait():
    """Those that wait to be parsed leave with their clients, are logged where bodies are, and give way to another client's."""
    command = [os.path.join(os.path.dirname(MOED), "moed-http"), "--run", os.environ["MOED_RUN"] + "-waiting", "--listen", "127.0.0.1:0",
               "--bodies-bytes", "11000000", "--log-bodies"]
    many = b'{"prompt": 5, "x": [' + b'"", ' * 700000 + b'""]}'  # a tenth of a second, and 2.8 MB

    def head(body):
        return b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)

    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        lines = []
        reader = threading.Thread(target=lambda: lines.extend(server.stderr))
        reader.start()
        try:
            wait_for(lambda: any("listening at http:" in line for line in lines))
            port = int(next(line for line in lines if "listening at http:" in line).rsplit(":", 1)[1])

            def begin(source, body):
                s = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S, source_address=(source, 0))
                s.sendall(head(many) + body)
                return s

            def metric_of(name):
                with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as s:
                    s.sendall(request("GET", "/metrics"))
                    return float(read_all(s).partition(f"\n{name} ".encode())[2].split()[0])

            def left():
                return metric_of("moed_http_disconnects_total")

            def parses():
                for task in os.listdir(f"/proc/{server.pid}/task"):
                    with open(f"/proc/{server.pid}/task/{task}/stat") as f:
                        if "(bodies) R" in f.read():
                            return True
                return False

            def all_leave():
                """Some may be answered before, where this program does not run in time."""
                before = left()
                busy = [begin("127.0.0.1", many) for _ in range(3)]
                wait_for(lambda: parses() or select.select(busy[:1], [], [], 0)[0], 0)
                for i in range(10):
                    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as s:
                        s.sendall(request("POST", "/v1/completions", {"prompt": f"leaver {i}", "user": "x" * 100000}))
                for s in busy:
                    s.close()
                wait_for(lambda: metric_of("moed_http_answers_running") == 0 and not parses())
                return left() - before >= 10
            wait_for(all_leave, 0)
            for i in range(10):
                wait_for(lambda: any(f"leaver {i}" in line for line in lines))
            dropped = 0
            for i in range(40):
                if dropped:
                    break
                held = begin("127.0.0.2", many[:-400000])
                full = [begin("127.0.0.1", many) for _ in range(3)]
                wait_for(lambda: parses() or select.select(full[:1], [], [], 0)[0], 0)
                time.sleep(0.02 * (i % 4))  # so that the others wait already, at one of these times
                held.sendall(many[-400000:])
                assert read_all(held).startswith(b"HTTP/1.1 400"), "the client with one body lost it"
                dropped += sum(b"this key or address" in read_all(s) for s in full)
                for s in (held, *full):
                    s.close()
            assert dropped, "no body that waited was dropped"
        finally:
            server.terminate()
            reader.join()


def check_prompts_beyond_a_message():
    """A text that no message to the worker can carry is refused as one beyond the context, which clients know."""
    text = "word " * 1000000
    for path, body in (("/v1/completions", {"prompt": text}),
                       ("/v1/chat/completions", {"messages": [{"role": "user", "content": text}]})):
        status, _, answer = call("POST", path, body)
        assert status == 400 and answer["error"]["code"] == "context_length_exceeded", (path, status, answer)
        assert "prompt is too long: more than" in answer["error"]["message"], answer


def check_memory_of_answers():
    """A running answer keeps nothing of its body that nobody reads any more."""
    if "ASAN_OPTIONS" in os.environ:  # its quarantine does
        return
    def resident():
        with open(f"/proc/{PID}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))
    more = {"messages": [{"role": "user", "content": "a", "reasoning_content": "y" * 800000}], "user": "x" * 800000}
    asked = {"max_tokens": 3600, "ignore_eos": True, "stream": True}
    for path, body in (("/v1/completions", {"prompt": "a", "user": "x" * 800000}), ("/v1/chat/completions", more)):
        before = resident()
        running = []
        for _ in range(20):
            running.append(connect())
            running[-1].sendall(request("POST", path, {**asked, **body}))
            assert running[-1].recv(1000).startswith(b"HTTP/1.1 200"), path
        grown = resident() - before
        for s in running:
            s.close()
        wait_for(lambda: metric("moed_http_answers_running") == 0)
        assert grown < 10000, f"{path}: 20 answers keep {grown} kB"


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


# ---- Leaving ----

LONG = {"prompt": "Once upon a time", "max_tokens": 3600, "temperature": 1, "ignore_eos": True}


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


def worker_metric(name):
    return sum(float(line.split()[1]) for line in moed("metrics", "worker").splitlines() if line.startswith(name + " "))


def check_bodies_together():
    """The bodies that are being read share the memory for them (the test's --bodies-bytes is 1 MB): the largest gives way, and small ones
    have memory of their own. One alone always fits."""
    large = {"prompt": "a", "max_tokens": 1, "x": "a" * 1500000}
    medium = {**large, "x": "a" * 500000}
    assert call("POST", "/v1/completions", large)[0] == 200
    holds = [request("POST", "/v1/completions", {**large, "x": "a" * n}) for n in (100000, 600000)]
    with connect() as small, connect() as s:
        small.sendall(holds[0][:-1])
        s.sendall(holds[1][:-1])
        def dropped():
            return "is dropped" in moed("logs", "http")
        wait_for(lambda: call("POST", "/v1/completions", medium)[0] == 200 and dropped())
        assert call("POST", "/v1/completions", {**large, "x": "a" * 20000})[0] == 200, "a small body"
        s.sendall(holds[1][-1:])
        status, headers, answer = parse(read_all(s))
        assert status == 503 and headers["retry-after"] == "1" and b"this key or address" in answer, answer
        small.sendall(holds[0][-1:])
        assert parse(read_all(small))[0] == 200, "the large bodies took a small one's memory"


def check_bodies_of_addresses():
    """At an IPv6 socket each IPv4 address is a client of its own: one that fills the memory for small bodies (125 kB) loses its own, not
    the largest of another."""
    if not socket.has_dualstack_ipv6():
        print("no IPv6 here")
        return
    command = [os.path.join(os.path.dirname(MOED), "moed-http"), "--run", os.environ["MOED_RUN"] + "-ipv6", "--listen", "[::]:0",
               "--insecure", "--bodies-bytes", "1000000"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            lines = iter(server.stderr.readline, "")
            port = next(int(line.rsplit(":", 1)[1]) for line in lines if "listening at http:" in line)
            def begin(source, n):
                s = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S, source_address=(source, 0))
                s.sendall(request("POST", "/v1/completions", {"prompt": "a" * n})[:-1])
                return s
            held = [begin("127.0.0.2", 40000), *(begin("127.0.0.1", 25000) for _ in range(4))]
            assert any("is dropped" in line for line in lines)
            answers = []
            for s in held:
                s.sendall(b"}")
                answers.append(b"this key or address" in read_all(s))
                s.close()
            assert not answers[0] and answers[1:].count(True) == 1, answers
        finally:
            server.terminate()


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


# ---- Hostile framing ----

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


# ---- Deaths and disorder; the last checks ----

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


def main():
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            begun = time.monotonic()
            check()
            print(f"{name} {time.monotonic() - begun:.2f} s", flush=True)


main()
