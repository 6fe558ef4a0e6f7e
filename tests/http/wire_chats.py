"""Chats: the same conversation through each API, the progress of a prompt, what of it is cached."""
import json
from wire_client import GREEDY, events, post, refused


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
    assert response["metadata"] == {"a": "b"} and response["truncation"] == "auto", response
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


def check_prediction():
    """An answer is the same with a prediction, whose tokens are counted as far as the answer has them."""
    ask = {"messages": [{"role": "user", "content": "Write a story about an owl."}], "max_tokens": 60, "temperature": 0}

    def answer(**more):
        got = post("/v1/chat/completions", **ask, **more)
        details = got["usage"]["completion_tokens_details"]
        return (got["choices"][0]["message"]["content"], got["usage"]["completion_tokens"],
                details.get("accepted_prediction_tokens", 0), details.get("rejected_prediction_tokens", 0))

    text, n = answer()[:2]
    middle = len(text) // 2
    for content in (text, [{"type": "text", "text": text[:middle]}, {"type": "text", "text": text[middle:]}]):
        told, _, accepted, rejected = answer(prediction={"type": "content", "content": content})
        assert told == text and accepted > 0.8 * n and rejected < 0.2 * n, (told, n, accepted, rejected)
    told, _, accepted, rejected = answer(prediction={"type": "content", "content": text[:middle] + " 12345\n" + text[middle + 8:]})
    assert told == text and accepted > 0.6 * n and rejected > 0, (told, n, accepted, rejected)
    told, _, accepted, rejected = answer(prediction={"type": "content", "content": "12345 " * 20})
    assert told == text and accepted < 0.2 * n < rejected, (told, n, accepted, rejected)
    refused("/v1/chat/completions", {**ask, "prediction": 17}, 400, "prediction")


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


def check_truncation():
    """Responses' truncation: the oldest turns go, whole, until the prompt fits; the system message stays."""
    sizes = (2000, 2200, 3, 3, 3)  # words of a turn's question; the context has 4096 tokens
    turns = [m for n in sizes for m in ({"role": "user", "content": "word " * n}, {"role": "assistant", "content": "Yes."})]
    ask = {"instructions": "Be brief.", "max_output_tokens": 4, "temperature": 0}
    last = [{"role": "user", "content": "And now?"}]
    answer = refused("/v1/responses", {**ask, "input": turns + last}, 400)
    assert answer["error"]["code"] == "context_length_exceeded", answer
    long = {**ask, "max_output_tokens": 2000, "stop": ["e"]}
    counts = [post("/v1/responses/input_tokens", instructions="Be brief.", input=turns[2 * n:] + last)["input_tokens"] for n in (1, 2, 3)]
    assert counts[0] > 4096 - 2000 > counts[1], counts
    cut = post("/v1/responses", **long, input=turns + last, truncation="auto")
    assert cut["usage"]["input_tokens"] == counts[1], (cut, counts)
    short = post("/v1/responses", **ask, input=last, truncation="auto")
    assert short["usage"]["input_tokens"] < counts[2], (short, counts)
    refused("/v1/responses", {**ask, "input": "word " * 4200, "truncation": "auto"}, 400)
    long = {"messages": [{"role": "user", "content": "word " * 4200}], "options": {"num_ctx": 8192}}
    assert "num_ctx 8192 is not used" in str(refused("/api/chat", long, 400))
