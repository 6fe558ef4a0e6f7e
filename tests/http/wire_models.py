"""The names of models, and what the server says about itself."""
import json
import re
from wire_client import call, moed, post


def check_other_names():
    """Aliases stand for models, replies have the models' own names; others get what to do."""
    for name in ("demo", "sonnet", "opus", "opus:latest"):
        assert post("/v1/completions", model=name, prompt="a", max_tokens=1)["model"] == "demo", name
    assert [m["aliases"] for m in call("GET", "/v1/models")[2]["data"]] == [["sonnet", "opus"]]
    assert call("GET", "/v1/models/sonnet")[2]["id"] == "demo"
    for name in ("gpt-4o", "lost"):
        status, _, answer = call("POST", "/v1/completions", {"model": name, "prompt": "a"})
        assert status == 404 and answer["error"]["code"] == "model_not_found", (name, answer)
        assert all(option in answer["error"]["message"] for option in ("--alias", "--any-model")), answer
    for more in ({}, {"model": "sonnet"}, {"prompt": ""}):
        loaded = post("/api/generate", **more)
        assert (loaded["model"], loaded["done_reason"]) == ("demo", "load"), loaded


def check_models():
    listed = call("GET", "/v1/models")[2]["data"]
    assert [m["id"] for m in listed] == ["demo"], listed
    assert call("GET", "/v1/models/demo")[2] == listed[0]
    assert call("GET", "/v1/models/nope")[0] == 404
    for model in ("demo", "default", "demo:latest", ""):
        post("/v1/completions", model=model, prompt="a", max_tokens=1)
    status, _, answer = call("POST", "/v1/completions", {"model": "gpt-9", "prompt": "a"})
    assert status == 404 and answer["error"]["code"] == "model_not_found", answer
    text = "Grüße, 世界 <|im_end|>"
    ids = post("/tokenize", content=text, parse_special=False)["tokens"]
    assert ids == json.loads(moed("tokenize", "--json", text)), ids
    assert post("/detokenize", tokens=ids)["content"] == text
    assert call("GET", "/health")[0] == call("GET", "/livez")[0] == call("GET", "/slots")[0] == 200
    props = call("GET", "/props")[2]
    assert props["eos_token"] == "<|im_end|>", props
    info = call("GET", "/tokenizer_info")[2]  # lm-evaluation-harness reads it
    assert (info["eos_token"], info["bos_token"], info["pad_token"]) == (props["eos_token"], props["bos_token"], None), (info, props)
    assert info["chat_template"] == props["chat_template"] and info["model_max_length"] == 4096, info
    assert call("GET", "/tokenizer_info?model=nope")[0] == 404
    usual = props["default_generation_settings"]["params"]  # the file names none
    assert (usual["temperature"], usual["top_k"], usual["top_p"], usual["min_p"]) == (0.8, 0, 1, 0.05), usual
    prints = [post("/v1/completions", prompt="a", max_tokens=1), post("/v1/chat/completions", max_tokens=1, messages=[{"role": "user", "content": "a"}])]
    assert len({p["system_fingerprint"] for p in prints}) == 1 and re.fullmatch("moed-[^-]+-[0-9a-f]{8}", prints[0]["system_fingerprint"]), prints
    response = post("/v1/responses", input="Hi", max_output_tokens=1)
    assert (response["temperature"], response["top_p"]) == (0.8, 1), response
    everyone = call("GET", "/metrics?process=all")[2]
    for process in ("http", "memd", "worker"):
        assert f'process="{process}"' in everyone, process
    assert everyone.count("# TYPE process_open_fds ") == 1
