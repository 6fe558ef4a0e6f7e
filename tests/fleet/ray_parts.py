"""The parts of deploy/ray that need no Ray, each against cases worked out by hand. usage: ray_parts.py SOURCE"""
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
import types
import unittest

SOURCE = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, os.path.join(SOURCE, "deploy", "ray"))
sys.dont_write_bytecode = True

from moed_ray import batch_input, conversation, failure, figures, placement, resume, scaling  # noqa: E402


def key(headers=None, **body):
    return conversation.conversation_of(headers or {}, json.dumps(body).encode())


def user(text):
    return {"role": "user", "content": text}


class Conversations(unittest.TestCase):
    def test_turns_have_one_key(self):
        first = [{"role": "system", "content": "Be brief."}, user("Hello")]
        later = [*first, {"role": "assistant", "content": "Hi"}, user("More")]
        self.assertEqual(key(messages=first, temperature=1), key(messages=later, stream=True))
        self.assertNotEqual(key(messages=first), key(messages=[first[0], user("Other")]))
        self.assertNotEqual(key(messages=first), key(messages=[user("Hello")]))

    def test_every_api(self):
        parts = [{"type": "text", "text": "Hello"}]
        keys = [
            key(messages=[user("Hello")]), key(messages=[user(parts)]), key(system="Be brief.", messages=[user("Hello")]),
            key(prompt="Hello"), key(input=[user("Hello"), {"role": "assistant", "content": "Hi"}], instructions="x"), key(prompt=[1, 2]),
        ]
        self.assertTrue(all(keys))
        self.assertEqual(len(set(keys)), len(keys))
        self.assertEqual(key(input="Hello"), key(prompt="Hello"))
        self.assertEqual(key(prompt="a" * 5000 + "b"), key(prompt="a" * 5000 + "c"))

    def test_a_header_wins(self):
        self.assertEqual(key({"x-session-id": "7"}, messages=[user("a")]), key({"x-session-id": "7"}, messages=[user("b")]))

    def test_what_is_no_conversation(self):
        for body in (b"", b"{", b"[]", b"7", b'{"content": "x"}', b"\xff", b'{"messages": [7], "prompt": null}'):
            self.assertIn(conversation.conversation_of({}, body), ("", conversation.conversation_of({}, b'{"messages": []}')))


class Placement(unittest.TestCase):
    NODES = [f"node{i}" for i in range(5)]

    def test_even_and_few_move(self):
        first = {c: placement.nodes_by_preference(str(c), self.NODES)[0] for c in range(2000)}
        counts = [list(first.values()).count(n) for n in self.NODES]
        self.assertTrue(all(320 < n < 480 for n in counts), counts)  # 400 each; 4.5 standard deviations
        for c, node in first.items():  # node4 goes: only its conversations move
            moved = placement.nodes_by_preference(str(c), self.NODES[:4])[0]
            self.assertTrue(moved == node or node == "node4")

    def test_memory(self):
        memory = placement.Memory(most=2)
        home = placement.nodes_by_preference("c", self.NODES)
        self.assertEqual(memory.ranks("c", self.NODES), [[n] for n in home])
        memory.put("c", home[3])
        self.assertEqual(memory.ranks("c", self.NODES)[0], [home[3]])
        self.assertEqual(memory.ranks("c", self.NODES, avoid=[home[3]])[0], [home[0]])
        self.assertEqual(memory.ranks("c", self.NODES, avoid=[home[3]])[-1], [home[3]])
        self.assertEqual(memory.ranks("c", home[:3])[0], [home[0]])  # home[3] is gone
        memory.put("d", "x")
        memory.put("e", "x")
        self.assertEqual(memory.ranks("c", self.NODES)[0], [home[0]])  # forgotten
        self.assertEqual(memory.ranks("", self.NODES, avoid=["node1"]), [["node0", "node2", "node3", "node4"], ["node1"]])


class Scaling(unittest.TestCase):
    def test_nodes(self):
        # A node computes 10, of which 8 are the aim.
        for answers, nodes, kv, suspended, wanted in (
            (0, 1, 0, 0, 1), (8, 1, 0, 0, 1), (9, 1, 0, 0, 2), (33, 2, 1.0, 0, 5), (3, 2, 0.99, 4, 3), (3, 2, 0.5, 4, 1),
        ):
            self.assertEqual(scaling.nodes_wanted(answers, 10, nodes, kv, suspended), wanted)

    def test_policy(self):
        context = types.SimpleNamespace(
            aggregated_metrics={"requests": {"a": 5, "b": 9}, "kv_used": {"a": 0.2, "b": 0.3}, "suspended": {"a": 0}}, total_queued_requests=4,
            current_num_replicas=2, capacity_adjusted_min_replicas=2, capacity_adjusted_max_replicas=6,
        )
        policy = scaling.Policy(parallel=10)
        self.assertEqual(policy(context), (3, {}))  # 18 at 8 a node
        context.aggregated_metrics["suspended"]["b"], context.aggregated_metrics["kv_used"]["b"] = 1, 1
        context.current_num_replicas = 5
        self.assertEqual(policy(context)[0], 6)
        context.capacity_adjusted_max_replicas = 4
        self.assertEqual(policy(context)[0], 4)
        context.aggregated_metrics, context.total_queued_requests = None, None
        self.assertEqual(policy(context)[0], 2)

    def test_figures(self):
        text = 'moed_worker_requests_running{process="worker"} 3\nmoed_worker_requests_waiting 2\n' \
            'moed_memd_kv_bytes{state="used",process="memd"} 30\nmoed_memd_kv_bytes{state="free",process="memd"} 10\n' \
            'moed_worker_suspended_total{process="worker"} %d\n# HELP x y\n'
        figure = figures.Figures()
        self.assertEqual(figure.read(text % 5), {"requests": 5, "kv_used": 0.75, "suspended": 0})
        self.assertEqual(figure.read(text % 7)["suspended"], 2)
        self.assertEqual(figure.read(text % 1)["suspended"], 0)  # another worker
        self.assertEqual(figures.Figures().read(""), {"requests": 0, "kv_used": 0, "suspended": 0})


def event(stream_id, text="", role=False, **more):
    delta = {"role": "assistant", "content": ""} if role else ({"content": text} if text else {})
    choice = {"index": 0, "delta": delta, "finish_reason": more.pop("finish", None)}
    return b"data: " + json.dumps({"id": stream_id, "created": 1 if stream_id == "a" else 2, "choices": [choice], **more}).encode() + b"\n\n"


def texts_of(stream):
    events = [json.loads(line[6:]) for line in stream.split(b"\n\n") if line.startswith(b"data: {")]
    return events, "".join(e["choices"][0]["delta"].get("content") or "" for e in events)


class Resuming(unittest.TestCase):
    EACH = {"include_usage": True, "continuous_usage_stats": True}
    CHAT = json.dumps({"messages": [user("Hi")], "max_tokens": 10, "stream": True, "stream_options": EACH}).encode()
    WORDS = ["One ", "tw\u00f6 ", "three ", "four"]

    def stream(self, stream_id, words):
        usage = {"prompt_tokens": 20 + 4 - len(words), "completion_tokens": len(words)}
        return b": a comment\n\n" + event(stream_id, role=True) + b"".join(event(stream_id, w) for w in words) + \
            event(stream_id, finish="stop", usage=usage) + b"data: [DONE]\n\n"

    def test_cut_anywhere(self):
        whole = self.stream("a", self.WORDS)
        for cut in range(len(whole)):
            c = resume.Continuation("/v1/chat/completions", self.CHAT)
            sent = c.passed(whole[: cut // 2]) + c.passed(whole[cut // 2 : cut])
            words = len([w for w in self.WORDS if w in c.text])
            self.assertEqual(c.text, "".join(self.WORDS[:words]))
            request = json.loads(c.body(words))
            self.assertEqual(request["max_tokens"], 10 - words)
            self.assertEqual(request["messages"], [user("Hi"), *([{"role": "assistant", "content": c.text}] if words else [])])
            c.began()
            sent += c.passed(self.stream("b", self.WORDS[words:]))
            events, text = texts_of(sent)
            self.assertEqual(text, "".join(self.WORDS))
            self.assertEqual({(e["id"], e["created"]) for e in events} - {("b", 2)} if len(events) > 1 and cut > 200 else {("a", 1)}, {("a", 1)})
            self.assertEqual(events[-1]["usage"], {"prompt_tokens": 20, "completion_tokens": 4})
            self.assertTrue(sent.endswith(b"data: [DONE]\n\n"))

    def test_ids_stay(self):
        c = resume.Continuation("/v1/chat/completions", self.CHAT)
        sent = c.passed(event("a", role=True) + event("a", "One "))
        c.body(1)
        c.began()
        events, _ = texts_of(sent + c.passed(self.stream("b", self.WORDS[1:])))
        self.assertEqual({e["id"] for e in events}, {"a"})
        self.assertEqual(sum("role" in e["choices"][0]["delta"] for e in events), 1)

    def test_twice(self):
        c = resume.Continuation("/v1/completions", json.dumps({"prompt": "Say: ", "max_tokens": 9}).encode())
        for word in "One", " two":
            c.passed(b'data: {"id":"a","choices":[{"text":"%s"}]}\n\n' % word.encode())
            c.began()
        self.assertEqual(json.loads(c.body(2)), {"prompt": "Say: One two", "max_tokens": 7})

    def test_tokens_are_those_of_the_events(self):
        """Three tokens, of which the text shows two: the rest has three less."""
        body = {"messages": [user("Hi")], "max_tokens": 10, "stream": True, "ignore_eos": True}
        part = event("a", "One ", usage={"prompt_tokens": 5, "completion_tokens": 1}) + event("a", "two", usage={"prompt_tokens": 5, "completion_tokens": 3})
        last = b'data: {"id":"b","choices":[],"usage":{"prompt_tokens":8,"completion_tokens":7}}\n\n'
        for wanted in (None, {"include_usage": True}, self.EACH):
            c = resume.Continuation("/v1/chat/completions", json.dumps({**body, **({"stream_options": wanted} if wanted else {})}).encode())
            self.assertEqual(json.loads(c.first_body), {**body, "stream_options": self.EACH})
            events, text = texts_of(c.passed(part))
            self.assertEqual(text, "One two")
            self.assertEqual([e.get("usage", "none") for e in events],
                             ["none"] * 2 if not wanted else [None] * 2 if wanted != self.EACH else [{"prompt_tokens": 5, "completion_tokens": n} for n in (1, 3)])
            self.assertTrue(c.hides_tokens(2) and not c.hides_tokens(3))
            rest = json.loads(c.body(2))
            self.assertEqual((rest["max_tokens"], rest["stream_options"]), (7, self.EACH))
            c.began()
            ends = [json.loads(e[6:]) for e in c.passed(last).split(b"\n\n") if e]
            self.assertEqual([e["usage"] for e in ends], [{"prompt_tokens": 5, "completion_tokens": 10}] if wanted else [])
        for plain in ({**body, "stream": False}, {**body, "stream_options": 3}, {**body, "n": 2}):
            self.assertEqual(json.loads(resume.Continuation("/v1/chat/completions", json.dumps(plain).encode()).first_body), plain)

    def test_errors_pass(self):
        error = b'data: {"error":{"message":"the worker is gone"}}\n\n'
        for options in ({}, {"stream_options": {"include_usage": True}}, {"stream_options": self.EACH}):
            for again in (False, True):
                c = resume.Continuation("/v1/chat/completions", json.dumps({"messages": [], "stream": True, **options}).encode())
                c.passed(event("a", "One"))
                if again:
                    c.began()
                self.assertEqual(c.passed(error), error)

    def test_all_tokens_came_before_the_cut(self):
        """Nothing is asked for: the client gets what is missing of the end."""
        body = {"messages": [user("Hi")], "max_tokens": 3, "stream": True, "stream_options": {"include_usage": True}}
        usage = {"prompt_tokens": 5, "completion_tokens": 3}
        for finished, asked in ((False, True), (True, True), (False, False), (True, False)):
            request = body if asked else {k: v for k, v in body.items() if k != "stream_options"}
            c = resume.Continuation("/v1/chat/completions", json.dumps(request).encode())
            c.passed(event("a", "One", usage={**usage, "completion_tokens": 2}))
            self.assertFalse(c.is_complete)
            c.passed(event("a", " two", usage=usage) + (event("a", finish="length", usage=usage) if finished else b""))
            self.assertTrue(c.is_complete)
            events, _ = texts_of(b"".join(e + b"\n\n" for e in c.end().split(b"\n\n") if b'"choices":[]' not in e))
            self.assertEqual([e["choices"][0]["finish_reason"] for e in events], [] if finished else ["length"])
            self.assertEqual(c.end().count(b'"usage":{"prompt_tokens":5,"completion_tokens":3}'), 1 if asked else 0)
            self.assertTrue(c.end().endswith(b"data: [DONE]\n\n"))

    def test_continued_message(self):
        body = {"messages": [user("Hi"), {"role": "assistant", "content": "One "}], "continue_final_message": True}
        c = resume.Continuation("/v1/chat/completions", json.dumps(body).encode())
        c.passed(event("a", "two"))
        self.assertEqual(json.loads(c.body(1))["messages"][1:], [{"role": "assistant", "content": "One two"}])

    def test_what_is_not_continued(self):
        for path, body in (
            ("/v1/messages", {"messages": []}), ("/v1/completions", {"prompt": [1]}), ("/v1/completions", {"prompt": "x", "n": 2}),
            ("/v1/chat/completions", {"messages": [], "tools": [{}]}), ("/v1/chat/completions", {"messages": [], "logprobs": True}),
        ):
            self.assertTrue(resume.Continuation(path, json.dumps(body).encode()).why_not, (path, body))
        c = resume.Continuation("/v1/chat/completions?x=1", self.CHAT)
        self.assertFalse(c.why_not)
        c.passed(b'data: {"choices":[{"delta":{"reasoning_content":"hm"}}]}\n\n')
        self.assertTrue(c.why_not)


class Failures(unittest.TestCase):
    def test_shapes(self):
        self.assertEqual(json.loads(failure.error_body("/v1/messages", "m"))["type"], "error")
        self.assertEqual(json.loads(failure.error_body("/api/chat", "m")), {"error": "m"})
        self.assertEqual(json.loads(failure.error_body("/v1/chat/completions", "m"))["error"]["message"], "m")
        self.assertEqual(json.loads(failure.error_event("/v1/completions", "m").split(b"data: ")[1])["error"]["code"], 503)


class Keeping(unittest.TestCase):
    def test_the_last_user_ends_it(self):
        with tempfile.TemporaryDirectory() as work:
            moed = os.path.join(work, "moed")
            with open(moed, "w", encoding="ascii") as f:
                f.write(f'#!/bin/sh\necho "$1 $MOED_RUN" >> {work}/calls\n')
            os.chmod(moed, 0o755)
            keeper = os.path.join(SOURCE, "deploy", "ray", "moed_ray", "keeper.py")
            first, second = (open(os.path.join(work, "users"), "w", encoding="ascii") for _ in range(2))
            for f in first, second:
                fcntl.flock(f, fcntl.LOCK_SH)
            for _ in range(2):  # the second keeper ends at once
                subprocess.run([sys.executable, keeper, work, "/the/run", moed, "0.1"], check=True, timeout=60)
            first.close()
            self.assertFalse(os.path.exists(f"{work}/calls"))
            second.close()
            end = time.monotonic() + 60
            while not os.path.exists(f"{work}/calls") and time.monotonic() < end:
                time.sleep(0.02)
            with open(f"{work}/calls", encoding="ascii") as f:
                self.assertEqual(f.read(), "down /the/run\n")


class Batches(unittest.TestCase):
    def test_what_is_done_is_left_out(self):
        with tempfile.TemporaryDirectory() as work:
            with open(os.path.join(work, "in.jsonl"), "w", encoding="utf-8") as f:
                f.write('{"id": "x", "prompt": "a"}\n\n{"prompt": "b"}\n{"prompt": "c", "max_tokens": 4}\n')
            rows = batch_input.read_rows(os.path.join(work, "in.jsonl"))
            self.assertEqual([r["id"] for r in rows], ["x", "2", "3"])
            with open(os.path.join(work, "part-1.jsonl"), "w", encoding="utf-8") as f:
                f.write('{"id": "2", "text": "B"}\n{"id": "x", "te')  # killed in the middle of a line
            self.assertEqual(batch_input.done_ids(work), {"2"})

    def test_refusals(self):
        with tempfile.TemporaryDirectory() as work:
            path = os.path.join(work, "in.jsonl")
            for text, said in (('{"prompt": 1}', "line 1"), ("{", "line 1"), ('{"id": 1, "prompt": "a"}\n{"id": "1", "prompt": "b"}', "line 2")):
                with open(path, "w", encoding="utf-8") as f:
                    f.write(text)
                with self.assertRaisesRegex(ValueError, said):
                    batch_input.read_rows(path)


unittest.main()
