"""The client libraries against a running moed-http. usage: http_clients.py PORT KEY

The libraries build their types without checking them, so `checked` validates each by its own schema."""
import inspect
import sys

import anthropic
import httpx
import ollama
import openai

PORT, KEY = sys.argv[1:]
URL = f"http://127.0.0.1:{PORT}"
USER = {"role": "user", "content": "What is 2 + 3?"}


def checked(thing):
    type(thing).model_validate(thing.model_dump(mode="json", exclude_unset=True, warnings=False), strict=False)
    return thing


def openai_client(key=KEY):
    return openai.OpenAI(base_url=URL + "/v1", api_key=key, max_retries=0, timeout=60)


def check_openai_models():
    models = openai_client().models.list()
    assert [checked(m).id for m in models] == ["demo"], models
    assert openai_client().models.retrieve("demo").owned_by == "moed"


def check_openai_chat():
    c = openai_client()
    whole = checked(c.chat.completions.create(model="demo", messages=[USER], max_completion_tokens=8, temperature=0, n=2))
    assert len(whole.choices) == 2 and whole.usage.completion_tokens > 1, whole
    assert whole.choices[0].message.role == "assistant" and whole.choices[0].message.content, whole
    text, usage, reason = "", None, None
    for chunk in c.chat.completions.create(model="demo", messages=[USER], max_completion_tokens=8, temperature=0,
                                           stream=True, stream_options={"include_usage": True}):
        checked(chunk)
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reason = choice.finish_reason or reason
    assert text == whole.choices[0].message.content and reason == whole.choices[0].finish_reason, (text, whole)
    assert usage.prompt_tokens == whole.usage.prompt_tokens, (usage, whole)
    with c.chat.completions.stream(model="demo", messages=[USER], max_completion_tokens=100, temperature=0) as stream:
        stream.until_done()
        assert stream.get_final_completion().choices[0].message.content.startswith(text)


def check_keys_are_apart():
    """Nobody learns from cached_tokens what another key's user has asked; keys of one name are one user's."""
    question = {"role": "user", "content": "My number is 4711-9982-1234, which nobody else must learn of. What is it? " * 3}

    def cached(key):
        answer = openai_client(key).chat.completions.create(model="demo", messages=[question], max_completion_tokens=1)
        return answer.usage.prompt_tokens_details.cached_tokens

    assert cached(KEY) < 20 and cached(KEY) > 50
    assert cached("secret-of-other") < 20 and cached("its-second-key") > 50


def check_openai_completions():
    c = openai_client()
    whole = checked(c.completions.create(model="demo", prompt=["Once upon", "The cat"], max_tokens=6, seed=3))
    texts = ["", ""]
    for chunk in c.completions.create(model="demo", prompt=["Once upon", "The cat"], max_tokens=6, seed=3, stream=True):
        for choice in chunk.choices:  # OpenAI too sends a null finish_reason, which the type does not have
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in whole.choices], (texts, whole)


WEATHER = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"], "additionalProperties": False}


def check_openai_logprobs():
    c = openai_client()
    whole = checked(c.chat.completions.create(model="demo", messages=[USER], max_tokens=4, temperature=0, logprobs=True, top_logprobs=2))
    entries = whole.choices[0].logprobs.content
    assert "".join(e.token for e in entries) == whole.choices[0].message.content and len(entries[0].top_logprobs) == 2, whole
    text = checked(c.completions.create(model="demo", prompt="Once upon", max_tokens=4, temperature=0, logprobs=2))
    assert "".join(text.choices[0].logprobs.tokens) == text.choices[0].text, text


def check_openai_tools():
    c = openai_client()
    ask = {"model": "demo", "messages": [USER], "max_tokens": 200, "temperature": 0, "parallel_tool_calls": False,
           "tools": [{"type": "function", "function": {"name": "get_weather", "strict": True, "parameters": WEATHER}}],
           "tool_choice": "required"}
    whole = checked(c.chat.completions.create(**ask))
    call = whole.choices[0].message.tool_calls[0]
    assert whole.choices[0].finish_reason == "tool_calls" and "city" in call.function.arguments, whole
    with c.chat.completions.stream(**ask) as stream:
        stream.until_done()
        streamed = stream.get_final_completion().choices[0].message.tool_calls[0]
    assert streamed.function.arguments == call.function.arguments, (streamed, call)
    turn = {"role": "tool", "tool_call_id": call.id, "content": "Sunny."}
    checked(c.chat.completions.create(**{**ask, "messages": [USER, whole.choices[0].message, turn], "tool_choice": "none"}))
    tools = [{"type": "function", "name": "get_weather", "strict": True, "parameters": WEATHER}]
    with c.responses.stream(model="demo", input="Weather?", tools=tools, tool_choice="required", max_output_tokens=200,
                            temperature=0, parallel_tool_calls=False) as stream:
        kinds = [checked(event).type for event in stream]
        item = stream.get_final_response().output[0]
    assert item.type == "function_call" and "response.function_call_arguments.done" in kinds, (item, kinds)
    custom = {"model": "demo", "input": "Weather?", "tools": [{"type": "custom", "name": "apply_patch"}], "max_output_tokens": 200,
              "tool_choice": {"type": "custom", "name": "apply_patch"}, "temperature": 0}
    whole, parts = checked(c.responses.create(**custom)), [checked(event) for event in c.responses.create(**custom, stream=True)]
    done, = (p for p in parts if p.type == "response.custom_tool_call_input.done")
    assert (whole.output[0].type, whole.output[0].input) == ("custom_tool_call", done.input), (whole, done)


def check_openai_forms():
    import pydantic

    class Sum(pydantic.BaseModel):
        total: int
        correct: bool

    parsed = openai_client().chat.completions.parse(model="demo", messages=[USER], max_tokens=100, response_format=Sum)
    assert isinstance(parsed.choices[0].message.parsed, Sum), parsed


def check_anthropic_tools():
    c = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0, timeout=60)
    ask = {"model": "demo", "max_tokens": 200, "messages": [USER], "extra_body": {"temperature": 0},
           "tools": [{"name": "get_weather", "input_schema": WEATHER}], "tool_choice": {"type": "tool", "name": "get_weather"}}
    whole = checked(c.messages.create(**ask))
    assert whole.stop_reason == "tool_use" and whole.content[0].type == "tool_use", whole
    with c.messages.stream(**ask) as stream:
        final = checked(stream.get_final_message())
    assert final.content[0].input == whole.content[0].input, (final, whole)
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": whole.content[0].id, "content": "Sunny."}]}
    answer = [USER, {"role": "assistant", "content": whole.content}, result]
    checked(c.messages.create(**{**ask, "messages": answer, "tool_choice": {"type": "none"}}))


def check_ollama_forms():
    c = ollama.Client(host=URL, headers={"Authorization": f"Bearer {KEY}"})
    answer = c.chat("demo", [USER], format=WEATHER, options={"num_predict": 60})
    assert "city" in answer.message.content, answer
    assert "tools" in c.show("demo").capabilities
    tools = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}]
    assert c.chat("demo", [USER], tools=tools, options={"num_predict": 30, "temperature": 0}).done


def check_openai_responses():
    c = openai_client()
    whole = checked(c.responses.create(model="demo", input="What is 2 + 3?", max_output_tokens=16, temperature=0, store=False))
    assert whole.output_text and whole.usage.output_tokens, whole
    counted = checked(c.responses.input_tokens.count(model="demo", input="What is 2 + 3?"))
    assert counted.input_tokens == whole.usage.input_tokens, (counted, whole.usage)
    with c.responses.stream(model="demo", input="What is 2 + 3?", max_output_tokens=16, temperature=0) as stream:
        kinds = [checked(event).type for event in stream]
    assert kinds[0] == "response.created" and kinds[-1] == f"response.{whole.status}", kinds


def check_openai_errors():
    for key, expected in (("wrong", openai.AuthenticationError), (KEY, openai.NotFoundError)):
        try:
            openai_client(key).chat.completions.create(model="nope", messages=[USER])
        except expected as e:
            assert e.body["message"] and e.body["code"], e.body
        else:
            raise AssertionError(expected)
    try:
        openai_client().chat.completions.create(model="demo", messages=[USER], temperature=-1)
    except openai.BadRequestError as e:
        assert e.body["param"] == "temperature" and e.type == "invalid_request_error", e.body
    else:
        raise AssertionError("a negative temperature")


def check_anthropic():
    c = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0, timeout=60)
    models = c.models.list()
    assert [checked(m).id for m in models.data] == ["demo"] and models.has_more is False, models
    assert checked(c.models.retrieve("demo")).type == "model"
    assert c.messages.create(model="demo", messages=[USER], max_tokens=1)._request_id.startswith("req-")
    ask = {"model": "demo", "max_tokens": 8, "system": "Be brief.", "messages": [USER], "extra_body": {"temperature": 0}}
    whole = checked(c.messages.create(**ask))
    assert whole.content[0].text and whole.stop_reason in ("end_turn", "max_tokens"), whole
    with c.messages.stream(**ask) as stream:
        text = "".join(stream.text_stream)
        final = checked(stream.get_final_message())
    assert text == whole.content[0].text == final.content[0].text, (text, whole, final)
    assert final.usage.output_tokens == whole.usage.output_tokens and final.stop_reason == whole.stop_reason, final
    counted = c.messages.count_tokens(model="demo", system="Be brief.", messages=[USER])
    used = lambda u: u.input_tokens + u.cache_read_input_tokens  # a later request finds more in the cache
    assert counted.input_tokens == used(whole.usage) == used(final.usage), (counted, whole, final)
    stopped = c.messages.create(**{**ask, "max_tokens": 50, "stop_sequences": [text[2:4]]})
    assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == text[2:4], stopped
    try:
        c.messages.create(**{**ask, "model": "nope"})
    except anthropic.NotFoundError as e:
        assert e.body["error"]["type"] == "not_found_error", e.body
    else:
        raise AssertionError("a model that is not there")


def check_parameters_have_rows():
    """Every parameter of a library is taken or refused by name: the server's log names those that no table has."""
    skipped = {"self", "timeout", "stream", "model", "messages", "prompt", "input", "max_tokens"}

    def nulls(function):
        names = [n for n in inspect.signature(function).parameters if n not in skipped and not n.startswith("extra_")]
        assert len(names) > 5, names
        return dict.fromkeys(names)

    def post(path, body):
        answer = httpx.post(URL + path, json=body, headers={"x-api-key": KEY}, timeout=60)
        assert answer.status_code == 200, answer.text

    o, a = openai_client(), anthropic.Anthropic(api_key=KEY)
    post("/v1/chat/completions", {**nulls(o.chat.completions.create), "messages": [USER], "max_tokens": 1})
    post("/v1/completions", {**nulls(o.completions.create), "prompt": "a", "max_tokens": 1})
    post("/v1/responses", {**nulls(o.responses.create), "input": "a", "max_output_tokens": 1})
    post("/v1/responses/input_tokens", {**nulls(o.responses.input_tokens.count), "input": "a"})
    post("/v1/messages", {**nulls(a.messages.create), "messages": [USER], "max_tokens": 1})
    post("/v1/messages/count_tokens", {**nulls(a.messages.count_tokens), "messages": [USER]})
    post("/api/chat", {**nulls(ollama.Client.chat), "messages": [USER], "stream": False,
                       "options": {**dict.fromkeys(ollama.Options.model_fields), "num_predict": 1}})
    post("/api/generate", {**nulls(ollama.Client.generate), "prompt": "a", "options": {"num_predict": 1}})


def check_ollama():
    c = ollama.Client(host=URL, headers={"Authorization": f"Bearer {KEY}"})
    assert [m.model for m in c.list().models] == ["demo"], c.list()
    assert c.show("demo").modelinfo["general.architecture"] == "qwen3moe"
    assert c.ps().models[0].context_length == 1024
    assert c.ps().models[0].digest == c.list().models[0].digest and len(c.list().models[0].digest) == 64, c.list()
    version = httpx.get(f"{URL}/api/version", headers={"x-api-key": KEY}).json()["version"]
    assert tuple(map(int, version.split("."))) >= (0, 13, 4), version  # what `codex --oss` demands, the most of the clients in http.md
    options = {"num_predict": 8, "temperature": 0}
    whole = c.chat("demo", [USER], options=options)
    assert whole.done and whole.message.content and whole.eval_count, whole
    parts = list(c.chat("demo", [USER], options=options, stream=True))
    assert "".join(p.message.content for p in parts) == whole.message.content and parts[-1].done, parts
    raw = c.generate("demo", "Once upon", raw=True, options=options)
    assert raw.response and raw.prompt_eval_count == 2, raw
    assert c.generate("demo").done_reason == "load"
    try:
        c.chat("nope", [USER])
    except ollama.ResponseError as e:
        assert e.status_code == 404 and "nope" in e.error, e
    else:
        raise AssertionError("a model that is not there")


for name, check in list(globals().items()):
    if name.startswith("check_"):
        check()
        print(name, flush=True)
