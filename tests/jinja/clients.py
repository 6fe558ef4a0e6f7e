#!/usr/bin/env python3
"""lib/chat with published templates: conversations as clients send them (content in parts, tool arguments as a string, the
role developer, system messages anywhere a template takes them) render with each template, and give what python3-jinja2
gives for the messages changed by hand. usage: clients.py JINJA-RENDER TEMPLATES"""
import json
import os
import pathlib
import sys

import compare
import oracle

CALL = {"place": "Zurich-mark", "days": 3}


def call(arguments, content):
    return {"role": "assistant", "content": content, "tool_calls": [
        {"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}]}


# for LFM2, whose template shows no calls
WRITTEN = {"role": "assistant", "content": '<|tool_call_start|>[get_weather(place="Zurich-mark", days=3)]<|tool_call_end|>'}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "d", "parameters": {
    "type": "object", "properties": {"place": {"type": "string", "description": "p"}}, "required": ["place"]}}}]
RESULT = {"role": "tool", "content": "sun-mark", "tool_call_id": "call00001", "name": "get_weather"}
USER = {"role": "user", "content": "question-mark"}
SYSTEM = {"role": "system", "content": "rule-mark"}
ANSWER = {"role": "assistant", "content": "answer-mark"}


def text(role, content):
    return {"role": role, "content": content}


# name: (what the client sends, candidates of what a template takes, marks that the prompt shows)
CASES = {
    "parts": ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a-mark"}, {"type": "text", "text": "b-mark"}]}]},
              [{"messages": [{"role": "user", "content": [{"type": "text", "text": "a-mark"}, {"type": "text", "text": "b-mark"}]}]},
               {"messages": [{"role": "user", "content": "a-mark\nb-mark"}]}], ["a-mark", "b-mark"]),
    "developer": ({"messages": [{"role": "developer", "content": "rule-mark"}, USER]},
                  [{"messages": [{"role": "developer", "content": "rule-mark"}, USER]},
                   {"messages": [{"role": "system", "content": "rule-mark"}, USER]},
                   {"messages": [{"role": "user", "content": "rule-mark\n\nquestion-mark"}]}], ["rule-mark", "question-mark"]),
    "system": ({"messages": [{"role": "system", "content": "rule-mark"}, USER]},
               [{"messages": [{"role": "system", "content": "rule-mark"}, USER]},
                {"messages": [{"role": "user", "content": "rule-mark\n\nquestion-mark"}]}], ["rule-mark", "question-mark"]),
    "two system messages": ({"messages": [SYSTEM, text("developer", "more-mark"), USER]},
                            [{"messages": [SYSTEM, text("system", "more-mark"), USER]},
                             {"messages": [text("system", "rule-mark\n\nmore-mark"), USER]},
                             {"messages": [text("user", "rule-mark\n\nmore-mark\n\nquestion-mark")]}],
                            ["rule-mark", "more-mark", "question-mark"]),
    "a later system message": ({"messages": [SYSTEM, USER, ANSWER, text("system", "more-mark"), text("user", "last-mark")]},
                               [{"messages": [SYSTEM, USER, ANSWER, text("system", "more-mark"), text("user", "last-mark")]},
                                {"messages": [SYSTEM, USER, ANSWER, text("user", "more-mark"), text("user", "last-mark")]},
                                {"messages": [SYSTEM, USER, ANSWER, text("user", "more-mark\n\nlast-mark")]},
                                {"messages": [text("user", "rule-mark\n\nquestion-mark"), ANSWER,
                                              text("user", "more-mark\n\nlast-mark")]}],
                               ["rule-mark", "question-mark", "more-mark", "last-mark"]),
    "text behind a result": ({"messages": [USER, call(CALL, ""), RESULT, text("user", "last-mark")], "tools": TOOLS},
                             [{"messages": [USER, a, *end], "tools": TOOLS} for a in (call(CALL, ""), call(json.dumps(CALL), ""), WRITTEN)
                              for end in ([RESULT, text("user", "last-mark")], [{**RESULT, "content": "sun-mark\n\nlast-mark"}])],
                             ["question-mark", "Zurich-mark", "sun-mark", "last-mark"]),
    "call": ({"messages": [USER, call(json.dumps(CALL), None), RESULT], "tools": TOOLS},
             [{"messages": [USER, a, RESULT], "tools": TOOLS} for a in (call(CALL, ""), call(json.dumps(CALL), ""), WRITTEN)],
             ["question-mark", "Zurich-mark", "sun-mark"]),
}


def two_calls(*results):
    """Two calls in one message and their results, as (number, text)."""
    calls = [{"id": f"call0000{n}", "type": "function", "function": {"name": "get_weather", "arguments": json.dumps({"place": f"place-{n}"})}}
             for n in (1, 2)]
    return {"messages": [USER, {"role": "assistant", "content": "", "tool_calls": calls},
                         *({**RESULT, "tool_call_id": f"call0000{n}", "content": content} for n, content in results)], "tools": TOOLS}


# name: conversations with the same prompt
SAME = {
    "order of results": (two_calls((1, "sun-mark"), (2, "rain-mark")), two_calls((2, "rain-mark"), (1, "sun-mark"))),
    "missing result": (two_calls((1, "(no result)"), (2, "rain-mark")), two_calls((2, "rain-mark"))),
}
# with marks of reasoning, which they show by another condition: in the last message; with a variable set; in the text of
# an answer
NO_REASONING = {"Apriel-1.6-15b-Thinker-fixed", "deepseek-ai-DeepSeek-V3.2", "deepseek-ai-DeepSeek-V4", "LFM2.5-Instruct",
                "Qwen-QwQ-32B", "unsloth-Apriel-1.5", "GigaChat3-10B-A1.8B"}
NOTED = {"messages": [USER, {**call(json.dumps(CALL), "note-mark"), "reasoning_content": "thought-mark"}, RESULT], "tools": TOOLS}


def question(template, conversation):
    return {"template": template, "request": {**conversation, "add_generation_prompt": True},
            "trusted": {"bos_token": "<s>", "eos_token": "</s>"}, "now": 0}


def good(text, marks):
    """It shows everything, and no arguments as Python's repr or as JSON inside a string of JSON."""
    return all(m in text for m in marks) and '{\\"place' not in text and "'Zurich-mark'" not in text


def own_ids(conversation):
    """With the ids that Kimi-K2's template writes for calls."""
    return json.loads(json.dumps(conversation).replace("call00001", "functions.get_weather:0"))


def judge(template, name, got):
    sent, candidates, marks = CASES[name]
    candidates = candidates + [own_ids(c) for c in candidates if "tools" in c]
    rendered = [oracle.render(question(template, c)).get("text", "") for c in candidates]
    best = [t for t in rendered if good(t, marks)]
    if name == "parts":  # the template's own way, if it has one, but not as JSON or Python's repr
        best = [t for t in best if '"text"' not in t and "'text'" not in t][:1]
    if got.get("text") in (best or rendered):
        return "as by hand" if best else "the template cannot"
    ignored = [t for t, c in zip(rendered, candidates) if t == oracle.render(question(template, {**c, "tools": None})).get("text")]
    if ignored and "does not show tools" in got.get("error", ""):
        return "refused: it ignores tools"
    if not best and "error" in got:
        return "the template cannot"
    return None


def ask_chat(program, paths, conversations):
    """(path, replies to the conversations) of each template."""
    n = len(conversations)
    replies = compare.ask(program, [{**question(path.read_text(), c), "chat": True} for path in paths for c in conversations])
    return [(path, replies[i * n:(i + 1) * n]) for i, path in enumerate(paths)]


def count_different(program, paths):
    wrong = 0
    for name, pair in SAME.items():
        for path, (one, other) in ask_chat(program, paths, pair):
            if one.get("text") != other.get("text"):
                wrong += 1
                print(f"{path.name}, {name}: {str(one)[-300:]}\n  {str(other)[-300:]}")
    return wrong


def count_lost(program, paths):
    """Text or reasoning beside a call that the prompt does not show."""
    wrong = 0
    for path, (got,) in ask_chat(program, paths, [NOTED]):
        text = got.get("text", "")
        reasons = "think" in path.read_text() and path.stem not in NO_REASONING
        marks = ["note-mark"] + ["thought-mark"] * reasons
        if "text" in got and not all(m in text for m in marks):
            wrong += 1
            print(f"{path.name}, text and reasoning beside a call: {text[-400:]}")
    return wrong


def main(program, folder):
    paths = sorted(pathlib.Path(folder).glob("*.jinja"))
    if not paths:
        print(f"skipped: no templates in {folder}", file=sys.stderr)
        sys.exit(77)
    os.environ["TZ"] = "UTC"
    jobs = [(path, name) for path in paths for name in CASES]
    questions = [{**question(path.read_text(), CASES[name][0]), "chat": True} for path, name in jobs]
    counts = {}
    wrong = 0
    for (path, name), got in zip(jobs, compare.ask(program, questions)):
        verdict = judge(path.read_text(), name, got)
        counts[verdict] = counts.get(verdict, 0) + 1
        if not verdict:
            wrong += 1
            print(f"{path.name}, {name}: {str(got)[:900]}")
    print(f"{len(jobs)} conversations: {counts}")
    wrong += count_different(program, paths) + count_lost(program, paths)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
