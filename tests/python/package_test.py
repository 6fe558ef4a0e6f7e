"""usage: package_test.py TRACE FACTS ANSWER: `moed inspect --json` of the trace, and `moed run`'s greedy answer of 24 tokens."""
import asyncio
import gc
import json
import os
import signal
import sys
import threading
import unittest

import numpy as np

import moed
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from stop_process import stop_process  # pylint: disable=wrong-import-position

PROMPT = "Once upon a time"
TRACE, FACTS, ANSWER = sys.argv[1:4]
del sys.argv[1:]


def worker_pid():
    with open(os.path.join(os.environ["MOED_RUN"], "worker.pid"), encoding="utf-8") as f:
        return int(f.read().strip())


class Sessions(unittest.TestCase):
    def setUp(self):
        self.session = moed.Session()

    def tearDown(self):
        self.session.close()

    def test_the_command_gives_the_same_answer(self):
        with open(ANSWER, encoding="utf-8") as f:
            expected = f.read().rstrip("\n")
        answer = self.session.complete(PROMPT, temperature=0, max_tokens=24)
        self.assertEqual((answer.text if expected.startswith(" ") else answer.text.strip()), expected)
        self.assertEqual(len(answer.tokens), 24)
        self.assertEqual((answer.result.reason, answer.result.generated_tokens), ("length", 24))

    def test_a_stream_is_the_whole(self):
        whole = self.session.complete(PROMPT, temperature=0.9, seed=7, max_tokens=20)
        with self.session.generate(PROMPT, temperature=0.9, seed=7, max_tokens=20) as generation:
            self.assertEqual("".join(p.text for p in generation), whole.text)
        self.assertEqual(generation.result.seed, 7)

    def test_tokens_and_bytes(self):
        tokens = self.session.tokenize(PROMPT, add_special=False)
        self.assertEqual(self.session.detokenize(tokens), PROMPT.encode())
        a = self.session.complete(self.session.tokenize(PROMPT), temperature=0, max_tokens=5)
        self.assertEqual(a.tokens, self.session.complete(PROMPT, temperature=0, max_tokens=5).tokens)

    def test_logprobs(self):
        with self.session.generate(PROMPT, temperature=0, max_tokens=6, logprobs=True, top_logprobs=3) as generation:
            pieces = list(generation)
        for piece in pieces:
            for token, logprob, top in zip(piece.tokens, piece.logprobs, piece.top):
                self.assertEqual(len(top), 3)
                self.assertEqual(top[0], (token, logprob))  # greedy
        self.assertEqual(sum(len(p.logprobs) for p in pieces), 6)

    def test_structure(self):
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
        answer = self.session.complete(PROMPT, json_schema=schema, temperature=1, seed=3, max_tokens=200, stop=["\n\n\n"])
        if answer.result.reason == "end":
            self.assertIsInstance(json.loads(answer.text)["n"], int)
        self.assertIn(self.session.complete(PROMPT, choices=["yes", "no"], seed=1).text, ("yes", "no"))
        self.assertRegex(self.session.complete(PROMPT, regex="[0-9]{3}", seed=1).text, "^[0-9]{3}$")

    def test_prediction(self):
        plain = self.session.complete(PROMPT, temperature=0, max_tokens=24)
        answer = self.session.complete(PROMPT, temperature=0, max_tokens=24, prediction=plain.tokens)
        self.assertEqual(answer.tokens, plain.tokens)
        self.assertEqual((answer.result.prediction_tokens, answer.result.predicted_tokens), (24, 24))
        self.assertEqual((plain.result.prediction_tokens, plain.result.predicted_tokens), (0, 0))

    def test_stop_and_bias(self):
        full = self.session.complete(PROMPT, temperature=0, max_tokens=24).text
        word = full.split()[3]
        cut = self.session.complete(PROMPT, temperature=0, max_tokens=24, stop=["never this", word])
        self.assertEqual((cut.text, cut.result.reason, cut.result.stop_index), (full[: full.index(word)], "stop", 1))
        first = self.session.complete(PROMPT, temperature=0, max_tokens=1).tokens[0]
        self.assertNotEqual(self.session.complete(PROMPT, temperature=0, max_tokens=1, logit_bias={first: -100.0}).tokens[0], first)

    def test_wrong_options(self):
        for arguments in ({"tempreture": 1}, {"regex": "a", "choices": ["b"]}):
            with self.assertRaises(TypeError):
                self.session.generate(PROMPT, **arguments)
        for arguments in ({"logprobs": 2}, {"max_tokens": -1}, {"top_k": "a"}):  # the message names the option
            with self.assertRaisesRegex(TypeError, next(iter(arguments))):
                self.session.generate(PROMPT, **arguments)
        with self.assertRaises(moed.Error) as raised:
            self.session.complete([10**9], max_tokens=1)
        self.assertEqual((raised.exception.code, raised.exception.retry), ("usage", False))
        os.environ["XDG_RUNTIME_DIR"], run = os.path.dirname(TRACE), os.environ.pop("MOED_RUN")
        try:
            with self.assertRaisesRegex(moed.Error, "nobody.*--name nobody"):
                moed.Session("nobody")
        finally:
            os.environ["MOED_RUN"] = run

    def test_cancel_and_close(self):
        generation = self.session.generate(PROMPT, ignore_end=True)
        next(iter(generation))
        generation.cancel()
        for _ in generation:
            pass
        self.assertEqual(generation.result.reason, "cancelled")
        abandoned = self.session.generate(PROMPT, ignore_end=True)
        next(iter(abandoned))
        abandoned.close()
        with self.assertRaises(moed.Error):
            list(abandoned)
        self.assertTrue(self.session.alive)
        self.session.close()
        with self.assertRaisesRegex(moed.Error, "closed"):
            self.session.tokenize("a")

    def test_threads(self):
        expected, answers = self.session.complete(PROMPT, temperature=0, max_tokens=12).text, {}

        def ask(i):
            answers[i] = self.session.complete(PROMPT, temperature=0, max_tokens=12).text

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(list(answers.values()), [expected] * 8)

    def test_asyncio(self):
        expected = self.session.complete(PROMPT, temperature=0, max_tokens=12).text

        async def ask():
            with self.session.generate(PROMPT, temperature=0, max_tokens=12) as generation:
                return "".join([p.text async for p in generation])

        async def ask_all():
            return await asyncio.gather(*[ask() for _ in range(6)])

        self.assertEqual(asyncio.run(ask_all()), [expected] * 6)

    def test_asyncio_close_while_iterating(self):
        async def consume(generation):
            with self.assertRaisesRegex(moed.Error, "closed"):
                async for _ in generation:
                    pass

        async def close_one_and_ask_another():
            for _ in range(5):
                with self.session.generate(PROMPT, ignore_end=True, max_tokens=4000) as generation:
                    task = asyncio.create_task(consume(generation))
                    await asyncio.sleep(0.01)
                await asyncio.wait_for(task, 10)
                with self.session.generate(PROMPT, temperature=0, max_tokens=5) as another:
                    self.assertEqual(len([p async for p in another]) > 0, True)

        asyncio.run(close_one_and_ask_another())

    def test_chat(self):
        with moed.Chat(self.session) as chat:
            answer = chat.ask("What is 2 + 3?", temperature=0)
            self.assertEqual((answer.content, answer.reasoning, answer.calls, answer.result.reason), ("2 + 3 = 5.", "", (), "end"))
            self.assertEqual([m["role"] for m in chat.messages], ["user", "assistant"])
            self.assertEqual((chat.messages[1]["content"], len(chat)), (answer.content, 2))
            prompt = self.session.detokenize(chat.tokens(), special=True).decode()
            self.assertEqual(prompt.count("<|im_end|>"), 1)  # the last message is continued: its turn is open
            chat.truncate(1)
            with chat.stream(temperature=0) as reply:
                parts = list(reply)
            self.assertEqual(({p.kind for p in parts}, "".join(p.text for p in parts)), ({"content"}, answer.content))
            saved = chat.messages
        with moed.Chat(self.session, messages=saved) as other:
            self.assertEqual(other.messages, saved)
            chosen = other.ask("Say yes or no.", choices=["yes", "no"], temperature=0)
            self.assertIn(chosen.content, ("yes", "no"))
            with self.assertRaisesRegex(moed.Error, "UTF-8|role"):
                other.add("", "x")
        with self.assertRaises(ValueError):
            other.ask("closed")

    def test_chat_calls(self):
        tools = [{"type": "function", "function": {"name": "add", "strict": True, "parameters": {
            "type": "object", "properties": {"a": {"type": "integer", "maximum": 99, "minimum": 0}}, "required": ["a"],
            "additionalProperties": False}}}]
        with moed.Chat(self.session, tools=tools, tool_choice="add") as chat:
            answer = chat.ask("Add.", temperature=0, max_tokens=200)
            self.assertEqual([c.name for c in answer.calls], ["add"])
            self.assertIsInstance(answer.calls[0].arguments["a"], int)
            chat.add_result(answer.calls[0], {"sum": 5})
            roles = [m["role"] for m in chat.messages]
            self.assertEqual(roles, ["user", "assistant", "tool"])
            self.assertEqual(chat.messages[1]["tool_calls"][0]["id"], chat.messages[2]["tool_call_id"])
        with self.assertRaisesRegex(moed.Error, "no tool 'other'"):
            moed.Chat(self.session, tools=tools, tool_choice="other")

    def test_chat_asyncio(self):
        async def ask_all():
            chats = [moed.Chat(self.session) for _ in range(4)]
            answers = await asyncio.gather(*[c.ask_async("What is 2 + 3?", temperature=0) for c in chats])
            for c in chats:
                c.close()
            return {a.content for a in answers}

        self.assertEqual(asyncio.run(ask_all()), {"2 + 3 = 5."})

    def test_a_question_without_an_answer_leaves(self):
        with moed.Chat(self.session, system="S") as chat:
            def left():
                return [m["role"] for m in chat.messages]

            with self.assertRaisesRegex(TypeError, "tempreture"):
                chat.ask("Hi", tempreture=1)
            with self.assertRaises(moed.Error):
                chat.ask("Hi", gbnf="(")
            with self.assertRaises(moed.Error):
                asyncio.run(chat.ask_async("Hi", gbnf="("))
            self.assertEqual(left(), ["system"])
            with chat.stream("Hi", ignore_end=True) as reply:
                next(iter(reply))
            self.assertEqual(left(), ["system"])
            reply = chat.stream("Hi", ignore_end=True)
            next(iter(reply))
            reply.cancel()
            self.assertEqual([p for p in reply if p.kind == "call"], [])
            self.assertEqual(left(), ["system", "user", "assistant"])
            reply.close()
            chat.truncate(1)
            unread = chat.stream("One", ignore_end=True)
            chat.add("user", "Two")
            unread.close()
            self.assertEqual([m["content"] for m in chat.messages], ["S", "One", "Two"])

    def test_a_reply_that_is_left_takes_no_other_question(self):
        def left():
            return [m["content"] for m in chat.messages]

        with moed.Chat(self.session) as chat:
            reply = chat.stream("a", ignore_end=True)
            next(iter(reply))
            chat.truncate(0)
            reply = chat.stream("b", max_tokens=2)  # the old one ends behind it
            gc.collect()
            self.assertEqual(left(), ["b"])
            self.assertEqual([p for p in reply if p.kind == "call"], [])
            self.assertEqual([m["role"] for m in chat.messages], ["user", "assistant"])
        with moed.Chat(self.session) as chat:
            reply = chat.stream("a", ignore_end=True)
            next(iter(reply))
            again = chat.stream("b", ignore_end=True)  # nobody has closed the first one
            self.assertEqual(left(), ["b"])
            with self.assertRaises(moed.Error):
                list(reply)
            reply = None
            self.assertEqual(left(), ["b"])
            another = chat.stream(ignore_end=True)  # a second answer to it
            again.close()
            self.assertEqual(left(), ["b"])
            another.close()

    def test_a_silent_worker_does_not_stop_the_event_loop(self):
        with moed.Session(timeout_s=3) as session, moed.Chat(session) as chat:
            async def ask():
                with self.assertRaises(asyncio.TimeoutError):  # not moed's, of the session
                    await asyncio.wait_for(chat.ask_async("What is 2 + 3?"), 0.5)

            stop_process(worker_pid())
            try:
                asyncio.run(ask())
            finally:
                os.kill(worker_pid(), signal.SIGCONT)
            self.assertEqual(len(chat), 0)
            self.assertEqual(chat.ask("What is 2 + 3?", temperature=0).content, "2 + 3 = 5.")

    def test_a_deadline_ends_the_stream(self):
        stop_process(worker_pid())
        generation = self.session.generate(PROMPT, deadline_ms=1)
        os.kill(worker_pid(), signal.SIGKILL)
        with self.assertRaisesRegex(moed.Error, "deadline"):
            list(generation)
        self.assertEqual(len(self.session.complete(PROMPT, max_tokens=2).tokens), 2)  # the next worker is there

    def test_fork(self):
        child = os.fork()
        if child == 0:
            try:
                self.session.tokenize("a")
            except moed.Error as e:
                os._exit(7 if "forked" in str(e) else 1)
            os._exit(2)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)
        self.assertTrue(self.session.alive)

    def test_model_and_metrics(self):
        model = self.session.model
        self.assertEqual((model.experts > model.experts_used > 0, model.layers > 0, model.device), (True, True, "host"))
        self.assertIn("moed_worker_threads", moed.metrics("worker"))

    def test_nothing_leaks(self):
        def descriptors():
            gc.collect()
            return len(os.listdir("/proc/self/fd"))

        self.session.complete(PROMPT, max_tokens=1)
        before = descriptors()
        for _ in range(20):
            with moed.Session() as session:
                session.complete(PROMPT, max_tokens=1)
        self.assertEqual(descriptors(), before)


class Traces(unittest.TestCase):
    def test_against_inspect(self):
        trace = moed.Trace(TRACE)
        with open(FACTS, encoding="utf-8") as f:
            facts = json.load(f)
        self.assertEqual(len(trace), facts["sequences"])
        self.assertEqual(sum(len(s.tokens) for s in trace), facts["tokens"])
        self.assertEqual(sum(len(s.hidden_at) for s in trace), facts["hidden_tokens"])

    def test_choices_are_the_most_probable(self):
        trace = moed.Trace(TRACE)
        for s in trace:
            chosen = np.take_along_axis(s.gate, s.selected.astype(np.int64), axis=2)
            # q falls as the probability rises; a rounding step may turn two around
            self.assertTrue((chosen.max(axis=2) <= np.sort(s.gate, axis=2)[:, :, trace.n_used - 1] + 1).mean() > 0.99)
            total = trace.probabilities(s.gate).sum(axis=2)
            self.assertTrue(np.all(np.abs(total - 1) < 0.1))
        ids, rows = trace.embeddings()
        self.assertEqual((len(set(ids.tolist())), rows.shape), (len(ids), (len(ids), trace.d_model)))

    def test_damage(self):
        with open(TRACE, "rb") as f:
            data = f.read()
        path = TRACE + ".damaged"
        for damaged in (b"", b"x" * 100, data[:-1], data[: len(data) // 2], data + bytes(64), b"moedtrac" + b"\2" + data[9:]):
            with open(path, "wb") as f:
                f.write(damaged)
            with self.assertRaises(ValueError):
                for s in moed.Trace(path):
                    s.tokens.sum()


unittest.main()
