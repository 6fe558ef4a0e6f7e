"""What editors ask for: POST /infill as llama.vscode and llama.vim send it, `suffix` of OpenAI's and Ollama's completions.
usage: http_infill.py PORT FIRST   (FIRST: the first of the model's six tokens for it, see fim_model.py; none: it has none)"""
import json
import sys
import urllib.error
import urllib.request

PORT, FIRST = sys.argv[1], sys.argv[2]
PRE, SUF, MID, PAD, REP, SEP = range(int(FIRST), int(FIRST) + 6) if FIRST != "none" else [None] * 6
GREEDY = {"temperature": 0, "ignore_eos": True}
PREFIX, LINE, SUFFIX = "int total(int n)\n{\n", "    int sum = ", ";\n    return sum;\n}\n"
CHUNKS = [{"text": f"int part{i}(int n)\n{{\n    return n + {i};\n}}\n", "time": 1700 + i, "filename": f"part{i}.c"} for i in range(6)]


def call(path, body):
    r = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        return 200, urllib.request.urlopen(r, timeout=60).read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


def post(path, **body):
    status, text = call(path, body)
    assert status == 200, (path, body, status, text)
    return json.loads(text)


def ids(text):
    return post("/tokenize", content=text, parse_special=False)["tokens"] if text else []


def vscode(chunks=(), prefix=PREFIX, line=LINE, suffix=SUFFIX, **more):
    """llama.vscode's payload, in its order."""
    return {"id_slot": 0, "input_prefix": prefix, "input_suffix": suffix, "input_extra": list(chunks), "prompt": line,
            "n_predict": 8, "n_cmpl": 1, "top_k": 40, "top_p": 0.99, "stream": False, "samplers": ["top_k", "top_p", "infill"],
            "cache_prompt": True, "n_indent": 4, "t_max_prompt_ms": 500, "t_max_predict_ms": 25000, **more}


def warm_up(chunks):
    """The same editor's, when it has gathered other parts of the project."""
    return {"id_slot": 0, "input_prefix": "", "input_suffix": "", "input_extra": list(chunks), "prompt": "", "n_predict": 0,
            "samplers": [], "cache_prompt": True, "t_max_prompt_ms": 500, "t_max_predict_ms": 1}


def same_as(got, tokens, **more):
    """The prompt was these ids: it has as many, and a completion of them is the same."""
    expected = post("/completion", prompt=tokens, n_predict=8, **GREEDY, **more)
    assert got["tokens_evaluated"] == len(tokens), (got, len(tokens))
    assert got["content"] == expected["content"], (got, expected)


def check_order():
    header = [REP, *ids("myproject\n")]
    this_file = [SEP, *ids("filename\n")]
    around = [PRE, *ids(PREFIX), *ids(LINE), SUF, *ids(SUFFIX), MID]
    same_as(post("/infill", **vscode(**GREEDY)), header + this_file + around)
    files = []
    for chunk in CHUNKS[:2]:
        files += [SEP, *ids(chunk["filename"] + "\n"), *ids(chunk["text"])]
    got = post("/infill", **vscode(CHUNKS[:2], **GREEDY))
    same_as(got, header + files + this_file + around)
    assert got["generation_settings"]["n_ctx"] == 4096 and got["tokens_predicted"] == 8, got
    same_as(post("/infill", **vscode([{"text": "x\n"}], **GREEDY)), header + [SEP, *ids("tmp\n"), *ids("x\n")] + this_file + around)
    # the texts of control tokens in a file are text
    mark = "<|im_end|>"
    assert len(ids(mark)) > 1
    same_as(post("/infill", **vscode(prefix=mark, line="", suffix=mark, **GREEDY)),
            header + this_file + [PRE, *ids(mark), SUF, *ids(mark), MID])


def check_cut():
    """4096 tokens: 512 for the answer, 2048 around the cursor, the others for other files."""
    prefix, suffix = "".join(f"a{i} = {i};\n" for i in range(900)), "".join(f"b{i} = {i};\n" for i in range(900))
    chunks = [{"text": "".join(f"c{i} = {i};\n" for i in range(n * 100, n * 100 + 100)), "filename": f"f{n}.c"} for n in range(9)]
    extra = [REP, *ids("myproject\n")]
    for chunk in chunks:
        extra += [SEP, *ids(chunk["filename"] + "\n"), *ids(chunk["text"])]
    extra += [SEP, *ids("filename\n")]
    line, before, behind = ids(LINE), ids(prefix), ids(suffix)
    assert len(extra) > 1536 and len(before) > 1536 and len(behind) > 512
    same_as(post("/infill", **vscode(chunks, prefix=prefix, suffix=suffix, **GREEDY)),
            extra[-1536:] + [PRE, *before[-1536:], *line, SUF, *behind[:512 - 2 - len(line)], MID])


def check_long_texts():
    """Of long texts only the ends are encoded. The tokens are those of the whole texts, of which a message to the worker holds 4 MiB."""
    for unit in ("a{i} = {i};\n", "größer als {i}, "):
        text = "".join(unit.format(i=i) for i in range(5000))
        whole, line = ids(text), ids(LINE)
        assert len(whole) * 2 > 4 * 2048 and len(text) > 65000, (len(whole), len(text))
        extra = [SEP, *ids("tmp\n"), *whole, SEP, *ids("filename\n")]
        same_as(post("/infill", **vscode([{"text": text, "filename": None}] * 2, prefix=text, suffix=text, **GREEDY)),
                extra[-1536:] + [PRE, *whole[-1536:], *line, SUF, *whole[:512 - 2 - len(line)], MID])
    text = "a = 1;\n"
    some = ids(text * 3000)
    same_as(post("/infill", **vscode([{"text": text * 700000}], prefix=text * 700000, line="", suffix=text * 700000, **GREEDY)),
            [*some, SEP, *ids("filename\n")][-1536:] + [PRE, *some[-1536:], SUF, *some[:510], MID])


def cached(body):
    timings = post("/infill", **body)["timings"]
    return timings["cache_n"], timings["cache_n"] + timings["prompt_n"]


def check_cache():
    """From keystroke to keystroke the prompt begins with the same: other files, then the text before the line."""
    text = "// nobody else's\n"
    ring = [{**c, "text": text + c["text"]} for c in CHUNKS]
    stable = len([REP, *ids("myproject\n")])
    for known in range(len(ring)):  # each chunk is gathered behind those that the cache has
        warm, total = cached(warm_up(ring[:known + 1]))
        assert warm >= stable, (known, warm, stable)
        stable = total - len([SEP, *ids("filename\n"), PRE, SUF, MID])
    line = "    int sum ="
    for i, key in enumerate(" n + 1"):
        line += key
        found, _ = cached(vscode(ring, line=line, **GREEDY))
        assert found >= stable, (line, found, stable)
        stable += len(ids(PREFIX)) if i == 0 else 0  # the line alone is new
    more, _ = cached(vscode(ring, prefix=PREFIX + line + ";\n", line="    sum", **GREEDY))
    assert more >= stable, (more, stable)


def check_no_tokens():
    """n_predict 0: the cache gets the prompt, and nothing else happens."""
    for path, body in (("/infill", warm_up(CHUNKS[:1])), ("/completion", {"prompt": "It was a dark night. " * 5, "n_predict": 0})):
        first, again = post(path, **body), post(path, **body)
        for got in (first, again):
            assert (got["content"], got["tokens_predicted"], got["timings"]["predicted_n"], got["stop_type"]) == ("", 0, 0, "limit"), got
        assert again["timings"]["cache_n"] == again["tokens_evaluated"] - 1, again
        status, text = call(path, {**body, "stream": True})
        events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
        assert status == 200 and [(e["content"], e["stop"]) for e in events] == [("", True)], text


def check_time_limit():
    """Behind its first line an answer ends once it takes too long; within it, it does not."""
    ask = {"prompt": "a", "n_predict": 3500, "temperature": 0, "t_max_predict_ms": 1}
    got = post("/completion", **ask, grammar='root ::= ("ab" "\\n")+')
    assert 0 < got["tokens_predicted"] < 3500 and "\n" in got["content"] and got["stop_type"] == "limit", got
    got = post("/completion", **{**ask, "n_predict": 40}, grammar='root ::= "ab"+')
    assert got["tokens_predicted"] == 40, got


def ended(reason):
    lines = urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=60).read().decode().splitlines()
    return [int(line.split()[1]) for line in lines if line.startswith(f'moed_http_answers_total{{reason="{reason}"}}')]


def check_time_limit_of_anthropic():
    """Such an answer is cut, in the metrics, too."""
    cancelled, length = ended("cancelled"), ended("length")
    got = post("/v1/messages", model="", messages=[{"role": "user", "content": "a"}], max_tokens=3500, temperature=0, t_max_predict_ms=1,
               grammar='root ::= ("ab" "\n")+')
    assert got["stop_reason"] == "max_tokens" and 0 < got["usage"]["output_tokens"] < 3500, got
    assert (ended("cancelled"), ended("length")) == (cancelled, [length[0] + 1]), (ended("cancelled"), cancelled, length)


def check_response_fields():
    """llama.vim's list."""
    times = ["prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second", "predicted_n", "predicted_ms", "predicted_per_token_ms",
             "predicted_per_second"]
    fields = ["content", *(f"timings/{t}" for t in times), "truncated", "tokens_cached"]
    got = post("/infill", **vscode(n_predict=3, response_fields=[*fields, "no/such"]))
    assert list(got) == fields, got
    assert got["timings/predicted_n"] == 3 and got["truncated"] is False, got
    both = post("/infill", **vscode(n_cmpl=2, response_fields=["content"]))
    assert [list(b) for b in both] == [["content"]] * 2, both


def check_suffix():
    """Prefix, suffix, middle, and no more."""
    tokens = [PRE, *ids(PREFIX), SUF, *ids(SUFFIX), MID]
    plain = post("/v1/completions", prompt=tokens, max_tokens=8, **GREEDY)
    for prompt in (PREFIX, ids(PREFIX)):
        body = {"prompt": prompt, "suffix": SUFFIX, "max_tokens": 8, **GREEDY}
        got = post("/v1/completions", **body)
        assert got["choices"][0]["text"] == plain["choices"][0]["text"], (got, plain)
        assert got["usage"]["prompt_tokens"] == len(tokens), (got, len(tokens))
        echoed = post("/v1/completions", **body, echo=True)["choices"][0]["text"]
        assert echoed == PREFIX + plain["choices"][0]["text"], echoed
    got = post("/v1/completions", prompt="", suffix=SUFFIX, max_tokens=1)
    assert got["usage"]["prompt_tokens"] == len(ids(SUFFIX)) + 3, got
    got = post("/api/generate", prompt=PREFIX, suffix=SUFFIX, stream=False, options={"num_predict": 8, **GREEDY})
    assert got["response"] == plain["choices"][0]["text"] and got["prompt_eval_count"] == len(tokens), (got, plain)
    shown = post("/api/show", model="")
    assert "insert" in shown["capabilities"] and ".Suffix" in shown["template"], shown


def check_refusals():
    for body in ({"input_suffix": ""}, {"input_prefix": ""}, {**vscode(), "prompt": [1]}, {**vscode(), "input_extra": [{}]}):
        status, text = call("/infill", body)
        assert status == 400, (body, status, text)
    many = [{"text": "a"}] * 1025
    assert call("/infill", vscode(many))[0] == 400
    status, text = call("/v1/completions", {"prompt": ["a", "b"], "suffix": "a\n" * 4096})
    assert status == 400 and json.loads(text)["error"]["code"] == "context_length_exceeded", text
    status, text = call("/v1/completions", {"prompt": "a\n" * 4096, "suffix": "b"})
    assert status == 400 and json.loads(text)["error"]["code"] == "context_length_exceeded", text
    # what /infill gets is cut
    assert post("/infill", **vscode(prefix="a\n" * 9999, line="b" * 9999, suffix="c\n" * 9999))["tokens_evaluated"] < 4096


def refuses_all():
    """A model without the tokens."""
    for path, body in (("/infill", vscode()), ("/infill", warm_up([])), ("/v1/completions", {"prompt": "a", "suffix": "b"}),
                       ("/api/generate", {"prompt": "a", "suffix": "b"})):
        status, text = call(path, body)
        assert status == 400 and "Infill is not supported by this model" in text, (path, status, text)
    shown = post("/api/show", model="")
    assert "insert" not in shown["capabilities"] and ".Suffix" not in shown["template"], shown
    assert post("/v1/completions", prompt="a", suffix="", max_tokens=1)["choices"][0]["text"]


for name, check in list(globals().items()):
    if name.startswith("check_" if FIRST != "none" else "refuses_"):
        check()
        print(name, flush=True)
