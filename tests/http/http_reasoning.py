"""Reasoning and calls of a model whose template knows them. The demo model knows neither: a grammar makes it write both.
usage: http_reasoning.py PORT [CHECK]   (one that does not run otherwise)"""
import http.client
import json
import sys
import urllib.error
import urllib.request

PORT, ONLY = sys.argv[1], sys.argv[2:]
USER = {"role": "user", "content": "What is 2 + 3?"}
TOOLS = [{"type": "function", "function": {"name": "now", "strict": True, "parameters": {
    "type": "object", "properties": {"zone": {"enum": ["UTC", "CET"]}}, "required": ["zone"], "additionalProperties": False}}}]
THOUGHT = 'root ::= "<think>let me see</think>\\n\\nIt is 5."'


EXCHANGES = []  # of the check that runs: [path, request, what came back]


def post(path, **body):
    r = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", json.dumps(body).encode(), {"content-type": "application/json"})
    EXCHANGES.append([path, body, "nothing"])
    try:
        EXCHANGES[-1][2] = urllib.request.urlopen(r, timeout=60).read().decode()
    except urllib.error.HTTPError as e:
        EXCHANGES[-1][2] = f"status {e.code}: {e.read().decode()}"
        raise
    except http.client.IncompleteRead as e:
        EXCHANGES[-1][2] = f"only {e.partial.decode(errors='replace')}"
        raise
    return EXCHANGES[-1][2]


def ask(path, **body):
    return json.loads(post(path, **body))


def data(path, **body):
    return [json.loads(line[6:]) for line in post(path, **body, stream=True).splitlines()
            if line.startswith("data: ") and line != "data: [DONE]"]


def check_reasoning_is_separate():
    chat = {"messages": [USER], "temperature": 0, "max_tokens": 80, "grammar": THOUGHT}
    whole = ask("/v1/chat/completions", **chat)
    message = whole["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("let me see", "It is 5."), whole
    assert "reasoning" not in message, "clients that know both names refuse an object with both"
    assert 0 < whole["usage"]["completion_tokens_details"]["reasoning_tokens"] < whole["usage"]["completion_tokens"], whole
    deltas = [c["choices"][0]["delta"] for c in data("/v1/chat/completions", **chat)]
    assert "".join(d.get("reasoning_content", "") for d in deltas) == "let me see", deltas
    assert not any("reasoning" in d for d in deltas), deltas
    assert "".join(d.get("content", "") for d in deltas) == "It is 5.", deltas
    blocks = ask("/v1/messages", **chat)["content"]
    assert [(b["type"], b.get("thinking", b.get("text"))) for b in blocks] == [("thinking", "let me see"), ("text", "It is 5.")], blocks
    kinds = [e["delta"]["type"] for e in data("/v1/messages", **chat) if e["type"] == "content_block_delta"]
    assert kinds[0] == "thinking_delta" and "signature_delta" in kinds and kinds[-1] == "text_delta", kinds
    items = ask("/v1/responses", input=[USER], temperature=0, grammar=THOUGHT)["output"]
    assert [i["type"] for i in items] == ["reasoning", "message"] and items[0]["content"][0]["text"] == "let me see", items
    hidden = ask("/v1/chat/completions", **chat, include_reasoning=False)["choices"][0]["message"]
    assert "reasoning_content" not in hidden and hidden["content"] == "It is 5.", hidden
    raw = ask("/v1/chat/completions", **chat, reasoning_format="none")["choices"][0]["message"]["content"]
    assert raw.startswith("<think>let me see</think>"), raw


def check_reasoning_tokens():
    """Exact, however many tokens come at once, and where a stop string holds the mark back."""
    chat = {"messages": [USER], "temperature": 0, "max_tokens": 80, "grammar": THOUGHT}
    scored = ask("/v1/chat/completions", **chat, logprobs=True)
    texts = [t["token"] for t in scored["choices"][0]["logprobs"]["content"]]
    first, last = (next(i for i in range(len(texts)) if mark in "".join(texts[:i + 1])) for mark in ("<think>", "</think>"))
    for more in [{"logprobs": True}] + 8 * [{}, {"stop": "</think>\n\nIt was"}, {"thinking_budget_tokens": 80}]:
        used = ask("/v1/chat/completions", **chat, **more)["usage"]
        assert used["completion_tokens_details"]["reasoning_tokens"] == last - first + 1, (used, texts)


def check_switches():
    prompt = lambda **more: ask("/apply-template", messages=[USER], **more)["prompt"]
    assert prompt().endswith("assistant\n")
    assert prompt(enable_thinking=True).endswith("<think>\n")
    assert prompt(chat_template_kwargs={"enable_thinking": False}).endswith("</think>\n\n")
    assert prompt(reasoning_effort="none").endswith("</think>\n\n")
    opened = ask("/api/chat", messages=[USER], think=True, stream=False, options={"num_predict": 6, "temperature": 0})
    assert opened["message"]["thinking"] and not opened["message"]["content"], opened
    begun = [USER, {"role": "assistant", "content": "<think>Hm"}]
    assert ask("/v1/chat/completions", messages=begun, max_tokens=4)["choices"][0]["message"]["reasoning_content"]
    shown = ask("/apply-template", messages=[USER, {"role": "assistant", "content": "5", "reasoning_content": "Hm"}, USER])["prompt"]
    assert "<think>Hm</think>\n5" in shown, shown


def requests(metric, reason=""):
    """Those that have ended, for this reason or whatever reason."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics?process=all", timeout=60).read().decode()
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(metric + "{") and reason in line)


def worker_requests(reason=""):
    return requests("moed_worker_requests_total", reason)


def check_budget():
    """Reasoning ends at its budget, and the answer goes on behind it; the client sees one answer. The worker ends it: each
    choice is one request."""
    before = worker_requests()
    chat = {"messages": [USER], "temperature": 0, "max_tokens": 60, "enable_thinking": True}
    free = ask("/v1/chat/completions", **chat, min_tokens=60)
    assert free["usage"]["completion_tokens_details"]["reasoning_tokens"] == 60, free
    for n in (1, 2):
        bound = ask("/v1/chat/completions", **chat, thinking_budget_tokens=8, n=n, min_tokens=60)
        for choice in bound["choices"]:
            message = choice["message"]
            assert message["reasoning_content"] and message["content"] and choice["finish_reason"] == "length", bound
            assert "</think>" not in message["content"] + message["reasoning_content"], bound
        used = bound["usage"]["completion_tokens_details"]["reasoning_tokens"]
        assert 8 * n <= used < 40 * n and bound["usage"]["completion_tokens"] == 60 * n, bound
        assert bound["usage"]["prompt_tokens"] == free["usage"]["prompt_tokens"], (bound, free)
    thinking = {"type": "enabled", "budget_tokens": 8}
    parts = data("/v1/messages", messages=[USER], max_tokens=60, temperature=0, thinking=thinking, min_tokens=60)
    kinds = [p["content_block"]["type"] for p in parts if p["type"] == "content_block_start"]
    assert kinds == ["thinking", "text"] and parts[-1]["type"] == "message_stop", parts
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": TOOLS[0]["function"]["parameters"]}}
    sure = ask("/v1/chat/completions", **chat, thinking_budget_tokens=8, response_format=form)["choices"][0]
    assert json.loads(sure["message"]["content"])["zone"] and sure["message"]["reasoning_content"], sure
    shown = ask("/v1/chat/completions", **chat, thinking_budget_tokens=8, min_tokens=60, reasoning_format="none")
    assert "</think>" in shown["choices"][0]["message"]["content"][:60], shown
    assert worker_requests() == before + 7
    call = ask("/v1/chat/completions", **{**chat, "max_tokens": 200}, thinking_budget_tokens=8, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    assert call["choices"][0]["finish_reason"] == "tool_calls" and call["choices"][0]["message"]["reasoning_content"], call


def check_budget_and_grammar():
    """Where the caller's grammar does not allow the end of reasoning, another request goes on behind it, under the grammar anew."""
    before = worker_requests()
    for budget, again in ((5, True), (200, False)):
        whole = ask("/v1/chat/completions", messages=[USER], temperature=0, max_tokens=120, grammar=THOUGHT, thinking_budget_tokens=budget)
        message = whole["choices"][0]["message"]
        assert message["content"] == "It is 5.", whole
        assert message["reasoning_content"].endswith("let me see") and (message["reasoning_content"] != "let me see") == again, whole
    assert worker_requests() == before + 3


def check_budget_is_exact():
    """The tokens behind the budget are gone, in a stream too; the reasoning is the text of those before it."""
    chat = {"messages": [USER], "temperature": 0.9, "seed": 3, "enable_thinking": True, "max_tokens": 60, "ignore_eos": True,
            "thinking_budget_tokens": 7, "logprobs": True}
    end = len(ask("/tokenize", content="</think>", parse_special=True)["tokens"])
    chunks = [c["choices"][0] for c in data("/v1/chat/completions", **chat)]
    streamed = [t for c in chunks if c["logprobs"] for t in c["logprobs"]["content"]]
    whole = ask("/v1/chat/completions", **chat)["choices"][0]
    assert len(streamed) == len(whole["logprobs"]["content"]) == 60 - end, (len(streamed), len(whole["logprobs"]["content"]), end)
    for tokens, shown in ((streamed, "".join(c["delta"].get("reasoning_content", "") for c in chunks)),
                          (whole["logprobs"]["content"], whole["message"]["reasoning_content"])):
        text = bytes(b for t in tokens[:7] for b in t["bytes"]).decode(errors="ignore")
        assert text.strip() == shown.strip(), (text, shown)


def check_budget_and_stop_token():
    """A token that ends the answer for the caller does so also where it ends the reasoning at its budget."""
    before = worker_requests()
    end = ask("/tokenize", content="</think>", parse_special=True)["tokens"]
    chat = {"messages": [USER], "temperature": 0, "max_tokens": 60, "enable_thinking": True, "thinking_budget_tokens": 5}
    for n, token in enumerate(end):
        whole = ask("/v1/chat/completions", **chat, stop_token_ids=[token])
        choice = whole["choices"][0]
        assert choice["finish_reason"] == "stop" and not choice["message"]["content"], whole
        assert whole["usage"]["completion_tokens"] == 5 + n, whole
    assert worker_requests() == before + len(end)


def check_budget_near_the_limits():
    """Where max_tokens or the context (1024) has no space behind the budget, the answer ends in its reasoning."""
    chat = {"messages": [USER], "temperature": 0, "enable_thinking": True}
    bound = ask("/v1/chat/completions", **chat, min_tokens=9, max_tokens=9, thinking_budget_tokens=8, n=2)
    assert [c["finish_reason"] for c in bound["choices"]] == ["length"] * 2, bound
    assert all(c["message"]["reasoning_content"] for c in bound["choices"]), bound
    assert bound["usage"]["completion_tokens"] <= 18, bound
    prompt = bound["usage"]["prompt_tokens"]
    for left in (0, 2):
        long = {**chat, "min_tokens": 1024, "thinking_budget_tokens": 1024 - prompt - left}
        whole = ask("/v1/chat/completions", **long)
        assert whole["choices"][0]["finish_reason"] == "length" and whole["choices"][0]["message"]["reasoning_content"], whole
        assert whole["usage"]["total_tokens"] <= 1024, whole
    last = data("/v1/chat/completions", **long)[-1]
    assert last["choices"][0]["finish_reason"] == "length", last


def check_form_follows_reasoning():
    """A JSON schema binds what follows the reasoning: behind its end where the prompt opened it."""
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": TOOLS[0]["function"]["parameters"]}}
    closed = ask("/v1/chat/completions", messages=[USER], max_tokens=60, response_format=schema, enable_thinking=False)
    assert json.loads(closed["choices"][0]["message"]["content"])["zone"], closed
    end = ask("/tokenize", content="</think>")["tokens"]
    bias = {str(t): 12 for t in end}  # so that the end comes by chance
    opened = ask("/v1/chat/completions", messages=[USER], max_tokens=900, response_format=schema, enable_thinking=True,
                 logit_bias=bias, seed=1)["choices"][0]
    assert opened["finish_reason"] == "length" or json.loads(opened["message"]["content"])["zone"], opened


def check_calls_or_form():
    """With tools and a JSON schema the answer is calls or the JSON, for any seed."""
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": TOOLS[0]["function"]["parameters"]}}
    for seed in range(4):
        for more in ({"thinking_budget_tokens": 5}, {"enable_thinking": False}, {"enable_thinking": True, "thinking_budget_tokens": 5}):
            choice = ask("/v1/chat/completions", messages=[USER], max_tokens=300, tools=TOOLS, parallel_tool_calls=False, seed=seed,
                         response_format=form, temperature=1.3, **more)["choices"][0]
            if choice["finish_reason"] == "tool_calls":
                assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])["zone"], choice
            elif choice["finish_reason"] == "stop":
                assert json.loads(choice["message"]["content"])["zone"], choice


def check_calls():
    chat = {"messages": [USER], "temperature": 0, "max_tokens": 200, "tools": TOOLS}
    prompt = ask("/apply-template", messages=[USER], tools=TOOLS)["prompt"]
    assert prompt.startswith("<|im_start|>system\nTools:\n{"), prompt
    choice = ask("/v1/chat/completions", **chat, tool_choice="required", parallel_tool_calls=False)["choices"][0]
    calls = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls" and len(calls) == 1 and choice["message"]["content"] is None, choice
    assert json.loads(calls[0]["function"]["arguments"])["zone"] in ("UTC", "CET"), calls
    named = {"tool_choice": {"type": "function", "function": {"name": "now"}}, "logprobs": True}
    whole = ask("/v1/chat/completions", **chat, **named)
    n = whole["usage"]["completion_tokens"]
    before = worker_requests("cancelled")
    for most in 6 * [n, n + 1, n + 2, 200]:  # a complete call is one, however far the worker has come
        again = ask("/v1/chat/completions", **{**chat, "max_tokens": most}, **named)
        choice = again["choices"][0]
        assert (choice["finish_reason"], again["usage"]["completion_tokens"]) == ("tool_calls", n), (again, whole)
        assert choice["logprobs"] == whole["choices"][0]["logprobs"] and len(choice["logprobs"]["content"]) == n, (again, whole)
    held = {"stop": ["}}\n</tool_callX"]}  # its first bytes end the call: they come late
    usage = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    for more in 16 * [{}, held]:
        chunks = data("/v1/chat/completions", **chat, **named, **usage, **more)
        scores = [c["logprobs"] for chunk in chunks for c in chunk["choices"]]
        streamed = [t for s in scores if s for t in s["content"]]
        assert streamed == whole["choices"][0]["logprobs"]["content"], (len(streamed), n, more)
        assert all(s is None or s["content"] for s in scores), scores
        counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
        assert counts == sorted(counts) and counts[-1] == n, (counts, n, more)
    assert worker_requests("cancelled") == before and requests("moed_http_answers_total", "cancelled") == 0
    turns = [USER, choice["message"], {"role": "tool", "tool_call_id": calls[0]["id"], "content": "12:00"}]
    prompt = ask("/apply-template", messages=turns, tools=TOOLS)["prompt"]
    assert '<tool_call>\n{"name": "now", "arguments": {"zone": ' in prompt and "<|im_start|>tool\n12:00" in prompt, prompt
    stopped = {**chat, "tool_choice": "required", "stop": ["ET", "TC"]}  # inside the arguments, whichever zone it is
    last = data("/v1/chat/completions", **stopped)[-1]["choices"][0]
    assert last["finish_reason"] == "stop", last
    cut = [e for e in data("/v1/responses", input=[USER], temperature=0, tools=[{"type": "function", **TOOLS[0]["function"]}],
                           tool_choice="required", max_output_tokens=40) if e["type"] in ("response.output_item.done", "response.incomplete")]
    assert cut[0]["item"]["status"] == "incomplete" and cut[-1]["response"]["output"][-1]["status"] == "incomplete", cut
    free = ask("/v1/chat/completions", **chat)["choices"][0]  # the model may, and does not
    assert free["message"]["content"] and "tool_calls" not in free["message"], free


def check_custom_tools():
    """A tool whose input is a text, as Codex's apply_patch: the client gets the text, and sends it back."""
    asked = {"input": [USER], "temperature": 1.2, "max_output_tokens": 400, "tools": [{"type": "custom", "name": "apply_patch", "description": "Edits files."}],
             "tool_choice": {"type": "custom", "name": "apply_patch"}}
    for seed in range(6):
        whole = ask("/v1/responses", **asked, seed=seed)
        parts = data("/v1/responses", **asked, seed=seed)
        item, added = whole["output"][-1], parts[2]["item"]
        assert parts[2]["type"] == "response.output_item.added" and (added["type"], added["input"]) == ("custom_tool_call", ""), parts
        deltas = [p["delta"] for p in parts if p["type"] == "response.custom_tool_call_input.delta"]
        done, = (p["input"] for p in parts if p["type"] == "response.custom_tool_call_input.done")
        last, = (p["item"] for p in parts if p["type"] == "response.output_item.done")
        assert "".join(deltas) == done == last["input"] and "" not in deltas, parts
        assert last["id"] == added["id"] and last["id"].startswith("ctc_") and last["name"] == "apply_patch", parts
        assert last["status"] == whole["status"] == parts[-1]["response"]["status"], (last, whole)  # completed or incomplete
        if whole["status"] == "completed":
            assert (item["type"], item["input"], item["name"]) == ("custom_tool_call", done, "apply_patch") and "arguments" not in item, (whole, done)
            history = [USER, item, {"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "Done."}, USER]
            ask("/v1/responses", **{**asked, "input": history, "tool_choice": "none", "max_output_tokens": 3})
    function = {"type": "function", "name": "now", "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]}}
    together = False
    for seed in range(8):  # calls of both kinds in one answer
        parts = data("/v1/responses", **{**asked, "tools": [*asked["tools"], function], "tool_choice": "required", "seed": seed})
        items = parts[-1]["response"]["output"]
        for i, item in enumerate(items):
            own = [p for p in parts if p.get("output_index") == i]
            whole = item.get("input", item.get("arguments"))
            if whole is not None:
                assert "".join(p["delta"] for p in own if p["type"].endswith(".delta")) == whole, own
                assert {p["item_id"] for p in own if "item_id" in p} == {item["id"]} and ("input" in item) == (item["name"] == "apply_patch"), own
        together |= {"function_call", "custom_tool_call"} <= {item["type"] for item in items}
    assert together


def short_name():
    """--reasoning-field reasoning."""
    chat = {"messages": [USER], "temperature": 0, "max_tokens": 80, "grammar": THOUGHT}
    message = ask("/v1/chat/completions", **chat)["choices"][0]["message"]
    assert message["reasoning"] == "let me see" and "reasoning_content" not in message, message
    deltas = [c["choices"][0]["delta"] for c in data("/v1/chat/completions", **chat)]
    assert "".join(d.get("reasoning", "") for d in deltas) == "let me see", deltas


def reopen():
    """Behind its budget the reasoning stays closed, even where the model wants nothing but to think: <think> is token 0."""
    chat = {"messages": [USER], "temperature": 0, "max_tokens": 40, "min_tokens": 40, "enable_thinking": True}
    eager = {"logit_bias": {"0": 100}}
    assert ask("/tokenize", content="<think>", parse_special=True)["tokens"] == [0]
    closed = ask("/v1/chat/completions", **{**chat, "enable_thinking": False}, **eager)["choices"][0]["message"]
    assert not closed["content"], ("this model does not reopen its reasoning", closed)
    bound = ask("/v1/chat/completions", **chat, **eager, thinking_budget_tokens=5)
    message, used = bound["choices"][0]["message"], bound["usage"]
    assert message["content"] and used["completion_tokens_details"]["reasoning_tokens"] < 30, bound


for name, check in list(globals().items()):
    if name in ONLY or (not ONLY and name.startswith("check_")):
        EXCHANGES.clear()
        try:
            check()
        except Exception:
            for path, body, received in EXCHANGES[-4:]:
                print(f"{name}: {path} {json.dumps(body)}\n  received: {received}", file=sys.stderr)
            raise
        print(name, flush=True)
