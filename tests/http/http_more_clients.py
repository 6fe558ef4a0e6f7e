"""LiteLLM, LangChain, Instructor, Pydantic AI and llm against a running moed-http. usage: http_more_clients.py PORT DIR

Each library reads the answers into its own types, which are strict about form, not about what the demo model says."""
import asyncio
import json
import os
import subprocess
import sys
import typing

PORT, DIR = sys.argv[1:]
URL = f"http://127.0.0.1:{PORT}/v1"
KEY = "any"
os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", LLM_USER_PATH=DIR, OPENAI_API_KEY=KEY, LANGSMITH_TRACING="false")
QUESTION = "What is 2 + 3?"

import pydantic  # behind the environment, which some libraries read when they are imported


class Sum(pydantic.BaseModel, extra="forbid"):  # the demo model would add members without end
    total: typing.Literal[4, 5, 6]  # a number could go on until max_tokens
    correct: bool


def check_litellm():
    import litellm
    ask = {"model": "openai/demo", "api_base": URL, "api_key": KEY, "max_tokens": 8, "temperature": 0,
           "messages": [{"role": "user", "content": QUESTION}]}
    whole = litellm.completion(**ask)
    text = whole.choices[0].message.content
    chunks = list(litellm.completion(**ask, stream=True))
    assert text and "".join(c.choices[0].delta.content or "" for c in chunks) == text, (text, chunks)
    assert whole.usage.completion_tokens and whole.usage.prompt_tokens, whole
    tool = {"type": "function", "function": {"name": "now", "strict": True, "parameters": {
        "type": "object", "properties": {"zone": {"enum": ["UTC"]}}, "required": ["zone"], "additionalProperties": False}}}
    call = litellm.completion(**{**ask, "max_tokens": 200}, tools=[tool], tool_choice="required", parallel_tool_calls=False)
    assert json.loads(call.choices[0].message.tool_calls[0].function.arguments) == {"zone": "UTC"}, call
    try:
        litellm.completion(**{**ask, "messages": [{"role": "user", "content": "a " * 3000}]})
    except litellm.ContextWindowExceededError:
        pass
    else:
        raise AssertionError("a prompt beyond the context")


def check_langchain():
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    model = ChatOpenAI(model="demo", base_url=URL, api_key=KEY, temperature=0, max_tokens=100, max_retries=0)
    whole = model.invoke(QUESTION)
    assert whole.content and whole.usage_metadata["output_tokens"], whole
    assert "".join(c.content for c in model.stream(QUESTION)) == whole.content
    call = model.bind_tools([add], tool_choice="add", strict=True).invoke(QUESTION).tool_calls
    assert call[0]["name"] == "add" and set(call[0]["args"]) == {"a", "b"}, call
    assert isinstance(model.with_structured_output(Sum, method="json_schema").invoke(QUESTION), Sum)


def check_instructor():
    import instructor
    import openai
    client = openai.OpenAI(base_url=URL, api_key=KEY, max_retries=0)
    client = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA)  # its tools are not strict: any arguments may come
    got = client.chat.completions.create(model="demo", max_tokens=200, max_retries=0, response_model=Sum,
                                         messages=[{"role": "user", "content": QUESTION}])
    assert isinstance(got, Sum), got


def check_pydantic_ai():
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    model = OpenAIChatModel("demo", provider=OpenAIProvider(base_url=URL, api_key=KEY))
    settings = {"max_tokens": 100, "temperature": 0}
    whole = Agent(model, model_settings=settings).run_sync(QUESTION)
    assert whole.output and whole.usage, whole
    assert isinstance(Agent(model, output_type=NativeOutput(Sum), model_settings=settings).run_sync(QUESTION).output, Sum)

    async def stream():
        async with Agent(model, model_settings=settings).run_stream(QUESTION) as result:
            return [part async for part in result.stream_text(delta=True)]
    assert "".join(asyncio.run(stream())) == whole.output


def check_llm():
    with open(f"{DIR}/extra-openai-models.yaml", "w", encoding="ascii") as f:
        f.write(f"- model_id: moed\n  model_name: demo\n  api_base: {URL}\n  supports_schema: true\n")
    run = lambda *arguments: subprocess.run([os.path.join(os.path.dirname(sys.executable), "llm"), "-m", "moed", "-o", "temperature", "0",
                                             "-o", "max_tokens", "60", *arguments], check=True, capture_output=True, text=True).stdout
    streamed, whole = run(QUESTION), run("--no-stream", QUESTION)
    assert whole.strip() and streamed == whole, (streamed, whole)
    assert set(json.loads(run("--schema", json.dumps(Sum.model_json_schema()), QUESTION))) == {"total", "correct"}


for name, check in list(globals().items()):
    if name.startswith("check_"):
        check()
        print(name, flush=True)
