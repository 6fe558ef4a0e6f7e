"""Parameters of sampling: seeds, zeros, biases, penalties, ends."""
import json
from wire_client import GREEDY, call, moed, post, refused


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
