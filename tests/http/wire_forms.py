"""Demanded forms and calls of tools: what a schema, a grammar or a choice demands is enforced in every API."""
import json
from wire_client import events, post, refused

SUM = {"type": "object", "properties": {"sum": {"type": "integer"}, "unit": {"enum": ["a", "b"]}},
       "required": ["sum", "unit"], "additionalProperties": False}
WEATHER = {"name": "get_weather", "description": "The weather", "strict": True, "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"], "additionalProperties": False}}


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
