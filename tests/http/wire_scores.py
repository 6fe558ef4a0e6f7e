"""Log-probabilities of answers and of prompts."""
import json
from wire_client import GREEDY, call, events, post, refused, worker_metric


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


def columns(**body):
    """The columns of each choice, where each token whose text is whole stands in the text at its offset."""
    choices = post("/v1/completions", logprobs=1, **{**GREEDY, **body})["choices"]
    for c in choices:
        for token, offset in zip(c["logprobs"]["tokens"], c["logprobs"]["text_offset"]):
            assert token.startswith("bytes:") or c["text"][offset:offset + len(token)] == token, (token, offset, c)
    return [{**c["logprobs"], "text": c["text"]} for c in choices]


def check_offsets():
    """text_offset is where a token begins in the text, in characters."""
    text = "Hi \u00e9 yes, \u65e5\u672c"
    ids = post("/tokenize", content=text)["tokens"]
    for prompt in (text, ids):
        got = columns(prompt=prompt, max_tokens=4, echo=True)[0]
        inside = [o for t, o in zip(got["tokens"], got["text_offset"]) if t.startswith("bytes:")]
        assert inside[:8] == [3, 3, 10, 10, 10, 11, 11, 11], got
    # marks: shown where the prompt has them, and of the answer's none
    mark = post("/tokenize", content="<|im_end|>")["tokens"]
    got = columns(prompt="Hi<|im_end|>yes", max_tokens=0, echo=True)[0]
    assert got["text_offset"] == [0, 1, 2, 12, 13], got
    got = post("/v1/completions", prompt="Hi", max_tokens=3, logprobs=0, logit_bias={str(mark[0]): 1000}, **GREEDY)["choices"][0]
    assert got["text"] == "" and got["logprobs"]["text_offset"] == [0, 0, 0], got


def check_plain_prompts():
    """Without special tokens a prompt of text is what its ids are."""
    ids = post("/tokenize", content="Once upon", add_special=False)["tokens"]
    got = columns(prompt="Once upon", max_tokens=2, echo=True, add_special_tokens=False)[0]
    assert got == {**columns(prompt=ids, max_tokens=2, echo=True)[0]}, got
    asked = {"n_predict": 1, "return_tokens": True, **GREEDY}
    assert post("/completion", prompt="Once upon", add_special_tokens=False, **asked)["tokens_evaluated"] == len(ids)
    refused("/v1/completions", {"prompt": "a", "suffix": "b", "add_special_tokens": False}, 400, "add_special_tokens")


def check_scores_of_a_common_beginning():
    """It is computed once, and each prompt has the scores that it has alone."""
    start = "In the second year of the long war " * 40
    prompts = [start + end for end in ("nobody", "somebody else", "")] + ["Not " + start]
    before = worker_metric("moed_worker_prompt_tokens_total")
    got = columns(prompt=prompts, max_tokens=1, echo=True, n=2)
    computed, two = worker_metric("moed_worker_prompt_tokens_total") - before, sum(len(got[i]["tokens"]) for i in (0, 6))
    assert computed <= two + 2 * 300, (computed, two)
    one = columns(prompt=prompts[1], max_tokens=1, echo=True)[0]
    for same in got[2:4]:
        assert (same["text"], same["tokens"], same["text_offset"]) == (one["text"], one["tokens"], one["text_offset"]), (one, same)
        assert all(abs(a - b) < 1e-2 for a, b in zip(one["token_logprobs"][1:], same["token_logprobs"][1:])), (one, same)
    chunks = [json.loads(d)["choices"][0] for _, d in events("/v1/completions", prompt=prompts[:2], max_tokens=0, echo=True, logprobs=1)[:-1]]
    for i in range(2):
        streamed = sum((c["logprobs"]["tokens"] for c in chunks if c["index"] == i and c["logprobs"]), [])
        assert streamed == got[2 * i]["tokens"][:-1], (streamed, got[2 * i])


def check_scores_before_a_stop():
    """A chat's tokens are those of its content: none of the stop string."""
    chat = {"messages": [{"role": "user", "content": "What is 2 + 3?"}], "temperature": 0}

    def entries(**body):
        c = post("/v1/chat/completions", **{**chat, "logprobs": True, **body})["choices"][0]
        return c["message"]["content"], [e["token"] for e in c["logprobs"]["content"]]
    _, tokens = entries(max_tokens=8)
    stop = tokens[5] + tokens[6][:1]  # it is complete in the middle of a token
    assert stop not in "".join(tokens[:5])
    text, found = entries(max_tokens=8, stop=stop)
    assert (text, found) == ("".join(tokens[:5]), tokens[:5]), (text, found, tokens)
    text, found = entries(max_tokens=8, stop=tokens[4][-1:] + tokens[5])
    assert text == "".join(tokens[:5])[:-1] and found == tokens[:5 if len(tokens[4]) > 1 else 4], (text, found, tokens)
    streamed = [json.loads(d)["choices"][0] for _, d in events("/v1/chat/completions", **chat, max_tokens=8, stop=stop, logprobs=True)[:-1]]
    shown = scored = ""
    for c in streamed:  # in a stream they come with their text
        shown += c["delta"].get("content", "")
        scored += "".join(e["token"] for e in c["logprobs"]["content"]) if c["logprobs"] else ""
        assert shown.startswith(scored), (shown, scored)
    assert scored == shown == "".join(tokens[:5]), streamed
    got = post("/api/chat", messages=chat["messages"], stream=False, logprobs=True,
               options={"temperature": 0, "num_predict": 8, "stop": [stop]})
    assert [e["token"] for e in got["logprobs"]] == tokens[:5], got


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
