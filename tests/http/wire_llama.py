"""llama-server's own completion, which its clients ask for."""
import json
from wire_client import GREEDY, call, events, post, refused


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


def check_llama_settings_and_times():
    """What scripts read: the settings, which give the same answer again; times of chats, too; progress; what is ignored."""
    ask = {"prompt": "Once upon", "n_predict": 6, "temperature": 0.5, "top_k": 30, "ignore_eos": True}
    _, head, whole = call("POST", "/completion", {**ask, "bogus": 1, "x\r\ny: z": 2})
    assert head["x-moed-ignored"] == "bogus,x__y:_z", head
    assert "x-moed-ignored" not in call("POST", "/tokenize", {"content": "a"})[1]
    used = whole["generation_settings"]
    assert (used["temperature"], used["top_k"], used["repeat_penalty"], used["ignore_eos"]) == (0.5, 30, 1, True), used
    assert post("/completion", **ask, seed=used["seed"])["content"] == whole["content"], whole
    chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, **GREEDY}
    times = post("/v1/chat/completions", **chat)["timings"]
    assert times["predicted_n"] == 4 and times["prompt_n"] >= 1, times
    for more, seen in (({}, 1), ({"timings_per_token": True}, 2)):
        chunks = [json.loads(d) for _, d in events("/v1/chat/completions", **chat, **more)[:-1]]
        assert chunks[-1]["timings"]["predicted_n"] == 4 and sum("timings" in c for c in chunks) >= seen, chunks
    parts = [json.loads(d) for _, d in events("/completion", **ask, return_progress=True)]
    reports = [p["prompt_progress"] for p in parts if "prompt_progress" in p]
    assert reports and reports[-1]["processed"] == reports[-1]["total"] == parts[-1]["tokens_evaluated"], parts
    assert call("GET", "/lora-adapters")[2] == []
    for path in ("/embedding", "/embeddings", "/rerank", "/v1/reranking", "/slots/0?action=save", "/models/sse"):
        assert call("POST", path, {})[0] == 501, path
    assert "did you mean" not in call("POST", "/images/generations", {})[2]["error"]["message"]


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
