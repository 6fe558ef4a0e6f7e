"""/v1/completions: answers, streams and their usage, several choices, echo, the forms of a prompt."""
import json
import time
from wire_client import GREEDY, events, metric, moed, post, refused


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


def check_choices_share_a_prompt():
    """What one choice computes and the others find is not cached: the prompt was computed."""
    cold, warm = (post("/v1/completions", prompt="A cold prompt. " * 20, n=3, max_tokens=1)["usage"]["prompt_tokens_details"]["cached_tokens"]
                  for _ in range(2))
    assert cold == 0 < warm, (cold, warm)


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


def check_gaps_between_tokens():
    """As vLLM counts: one for each token after the first, and together the time between first and last."""
    name = "moed_http_inter_token_latency_seconds"
    count, total = metric(name + "_count"), metric(name + "_sum")
    begun = time.monotonic()
    post("/v1/completions", prompt="Once upon", max_tokens=40, **GREEDY)
    assert metric(name + "_count") - count == 39, (count, metric(name + "_count"))
    assert 0 < metric(name + "_sum") - total < time.monotonic() - begun
