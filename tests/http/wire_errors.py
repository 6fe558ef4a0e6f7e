"""Refused requests: status, shape and parameter of each API's errors."""
from wire_client import call, parse, post, raw, refused


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
    at_most = refused("/v1/completions", {"prompt": [5] * 4096, "max_tokens": 1}, 400)["error"]["message"]
    assert "too long: 4096 tokens > 4095 maximum" in at_most, at_most
    at_most = refused("/v1/completions", {"prompt": [[5], [6, 7], [5] * 4096], "max_tokens": 1}, 400)["error"]["message"]
    assert at_most.startswith("prompt[2]: "), at_most
    for value in (0, 1, True):  # null and false change nothing
        refused("/v1/completions", {"prompt": "a", "prompt_logprobs": value}, 400, "prompt_logprobs")
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


def check_prompts_beyond_a_message():
    """A text that no message to the worker can carry is refused as one beyond the context, which clients know."""
    text = "word " * 1000000
    for path, body in (("/v1/completions", {"prompt": text}),
                       ("/v1/chat/completions", {"messages": [{"role": "user", "content": text}]})):
        status, _, answer = call("POST", path, body)
        assert status == 400 and answer["error"]["code"] == "context_length_exceeded", (path, status, answer)
        assert "prompt is too long: more than" in answer["error"]["message"], answer
