"""Tests of the demo's tools: python -m unittest test_train (torch, numpy, gguf, tokenizers)."""
import argparse
import datetime
import pathlib
import random
import re
import struct
import tempfile
import unittest

import numpy as np
import tokenizers
import torch
import torch.nn.functional as F
from tokenizers import models, pre_tokenizers

import evaluate
import export
import generate
import model as demo
import mtp
import optimiser
import routing
import stories
import tokens
import traces
import train


class Generated(unittest.TestCase):
    """Answers are checked with Python's own arithmetic and calendar, not the generator's."""

    def many(self, kind, count=400):
        r = random.Random(7)
        return [kind(r) for _ in range(count)]

    def test_arithmetic(self):
        signs = {"+": "plus|Add|\\+", "-": "minus|Subtract|-", "*": "times|Multiply|\\*"}
        for kind, sign in ((generate.addition, "+"), (generate.subtraction, "-"), (generate.multiplication, "*")):
            for ask, answer in self.many(kind):
                left, right = answer.rstrip(".").split(" = ")
                self.assertEqual(eval(left), int(right))
                self.assertRegex(ask, signs[sign])
                self.assertCountEqual(re.findall(r"\d+", ask), re.findall(r"\d+", left))

    def test_dates(self):
        for ask, answer in self.many(generate.next_date):
            day, month = re.search(r"(\d+) ([A-Z][a-z]+)", ask.replace("Today is", "")).groups()
            today = datetime.datetime.strptime(f"{day} {month} 2023", "%d %B %Y")
            after = today + datetime.timedelta(days=1)
            self.assertTrue(answer.endswith(f"is {after.day} {after.strftime('%B')}."), (ask, answer))

    def test_weekdays(self):
        numbers = {"two": 2, "three": 3, "four": 4, "five": 5}
        monday = datetime.date(2024, 1, 1)
        for ask, answer in self.many(generate.weekday):
            start = re.search("(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day", ask).group()
            steps = next((n for word, n in numbers.items() if f"{word} days" in ask), None)
            steps = steps or (-1 if "before" in ask or "yesterday" in ask else 1)
            first = next(monday + datetime.timedelta(d) for d in range(7)
                         if (monday + datetime.timedelta(d)).strftime("%A") == start)
            self.assertTrue(answer.endswith(f"{(first + datetime.timedelta(steps)).strftime('%A')}."), (ask, answer))

    def test_stated_facts_are_stated(self):
        for kind in (generate.stated_owner, generate.stated_person, generate.stated_place):
            for ask, answer in self.many(kind):
                said = set(re.findall(r"\w+", ask))
                self.assertLessEqual(set(re.findall(r"\w+", answer)) - {"The"}, said | {"works", "a", "an", "is"})

    def test_sorted_words(self):
        for ask, answer in self.many(generate.sorting):
            asked = re.findall(r"\w+", ask.split(":")[1])
            key = int if asked[0].isdigit() else str
            self.assertEqual(sorted(asked, key=key), re.findall(r"\w+", answer))

    def test_same_seed_same_text(self):
        for make in (generate.conversation, generate.story_document):
            first, second, other = ([make(r) for _ in range(20)]
                                    for r in (random.Random(3), random.Random(3), random.Random(4)))
            self.assertEqual(first, second)
            self.assertNotEqual(first, other)

    def test_stories_leave_no_blank(self):
        r = random.Random(5)
        for topic in stories.TOPICS:
            for _ in range(100):
                hero, text = stories.story(r, topic)
                self.assertIn(hero, text.lower())
                self.assertNotRegex(text, r"[{}]|  ")


class Windows(unittest.TestCase):
    def test_long_text_is_predicted_once(self):
        text = list(range(3, 2000))
        found = tokens.windows([text], False, 0)
        targets = np.concatenate([w[1:] for w in found])
        self.assertEqual(targets.tolist(), text[1:1 + len(targets)])
        self.assertGreaterEqual(len(targets), len(text) - 512)

    def test_short_documents_start_windows(self):
        documents = [[n] * 100 for n in range(3, 40)]
        for window in tokens.windows(documents, True, 0):
            self.assertEqual(len(window), 513)
            self.assertTrue((window[:100] == window[0]).all() and window[100] == 0)

    def batches(self, shares):
        topics = np.array([0] * 600 + [1] * 200 + [2] * 200)
        return topics, train.Batches(np.arange(1000), topics, shares, 8, 1)

    def test_every_stretch_has_the_topics_in_proportion(self):
        topics, batches = self.batches([1, 2, 1])
        for _ in range(20):
            part = np.bincount(topics[np.concatenate([batches.next() for _ in range(6)])], minlength=3)
            self.assertTrue(abs(part - [24, 16, 8]).max() <= 2, part)

    def test_no_window_comes_again_before_all_have_come(self):
        _, batches = self.batches([1, 1, 1])
        first = np.concatenate([batches.next() for _ in range(125)])
        second = np.concatenate([batches.next() for _ in range(125)])
        self.assertEqual(sorted(first), list(range(1000)))
        self.assertEqual(sorted(second), list(range(1000)))
        self.assertFalse((first[:600] == second[:600]).all())

    def test_other_shares_after_a_resume_repeat_nothing(self):
        topics, batches = self.batches([1, 1, 1])
        before = np.concatenate([batches.next() for _ in range(60)])
        _, resumed = self.batches([1, 4, 1])
        resumed.state = batches.state
        after = np.concatenate([resumed.next() for _ in range(15)])
        self.assertFalse(set(before) & set(after))

    def test_rate(self):
        self.assertLess(train.rate_scale(0.0, 0, 40, 0.4), 0.1)
        self.assertEqual(train.rate_scale(0.3, 100, 40, 0.4), 1.0)
        self.assertAlmostEqual(train.rate_scale(0.7, 100, 40, 0.4), 0.5)
        self.assertEqual(train.rate_scale(1.0, 100, 40, 0.4), 0.0)


class Mathematics(unittest.TestCase):
    def close(self, got, want):
        for a, b in zip(got, want):
            self.assertLess((a - b).abs().max().item(), 1e-4)

    def test_attention(self):
        torch.manual_seed(0)
        q = torch.randn(2, 2, 2, 300, 64, requires_grad=True)
        k, v = (torch.randn(2, 2, 300, 64, requires_grad=True) for _ in range(2))
        want = F.scaled_dot_product_attention(
            q.flatten(1, 2), k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), is_causal=True).view_as(q)
        got = demo.CausalAttention.apply(q, k, v)
        pull = torch.randn_like(q)
        self.close([got, *torch.autograd.grad((got * pull).sum(), (q, k, v))],
                   [want, *torch.autograd.grad((want * pull).sum(), (q, k, v))])

    def test_experts(self):
        torch.manual_seed(0)
        x = torch.randn(50, 32, requires_grad=True)
        logits = torch.randn(50, 8, requires_grad=True)
        gate_up = (torch.randn(8, 32, 32) * 0.2).requires_grad_()
        down = (torch.randn(8, 32, 16) * 0.2).requires_grad_()
        weight, chosen, _ = demo.route(logits, 3)
        got = demo.Experts.apply(x, weight, chosen, gate_up, down)
        want = 0
        for e in range(8):
            gate, up = (x @ gate_up[e].T).chunk(2, -1)
            want = want + (F.silu(gate) * up) @ down[e].T * (weight * (chosen == e)).sum(-1, keepdim=True)
        pull = torch.randn(50, 32)
        all_of = (x, logits, gate_up, down)
        self.close([got, *torch.autograd.grad((got * pull).sum(), all_of, retain_graph=True)],
                   [want, *torch.autograd.grad((want * pull).sum(), all_of)])

    def test_orthogonal(self):
        got = optimiser.orthogonal(torch.randn(3, 20, 50))
        singular = torch.linalg.svdvals(got)
        self.assertTrue(((singular > 0.6) & (singular < 1.4)).all(), singular)

    def test_model_is_causal(self):
        model = demo.Model(demo.Shape(layers=2), 1)
        with torch.no_grad():
            for layer in model.layers:
                layer.output.normal_(std=0.05)
                layer.down.normal_(std=0.05)
            row = torch.randint(0, 4096, (1, 200))
            changed = row.clone()
            changed[0, 150] += 1
            a, b = model.logits(row), model.logits(changed)
        self.assertTrue(torch.equal(a[0, :150], b[0, :150]) or (a[0, :150] - b[0, :150]).abs().max() < 1e-5)
        self.assertGreater((a[0, 150:] - b[0, 150:]).abs().max(), 1e-3)


class Files(unittest.TestCase):
    def test_written_weights_are_read_back(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            tokenizer = tokenizers.Tokenizer(models.BPE())
            alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
            words = {w: n for n, w in enumerate(tokens.CONTROL + alphabet)}
            words.update({f"x{n}": n for n in range(len(words), 4096)})
            tokenizer.model = models.BPE(vocab=words, merges=[])
            tokenizer.add_special_tokens(tokens.CONTROL)
            tokenizer.save(str(folder / "tokenizer.json"))
            model = demo.Model(demo.Shape(), 3)
            for layer in model.layers:
                torch.nn.init.normal_(layer.down, std=0.1)
            for quantised, limit in ((False, 0.0), (True, 5e-3)):
                size = export.write(model, folder / "tokenizer.json", folder / "m.gguf", quantised)
                back = export.load(folder / "m.gguf")
                for a, b in zip(model.parameters(), back.parameters()):
                    self.assertLessEqual((a - b).abs().max().item(), limit)
            self.assertLess(size, 25_000_000)


class Measures(unittest.TestCase):
    def test_lru(self):
        # One layer, two slots: 1 2 miss; 2 1 hit; 3 evicts 2, the least recent; 1 hit, 2 miss.
        chosen = torch.tensor([[1], [2], [2], [1], [3], [1], [2]])[None, None]
        self.assertAlmostEqual(routing.lru_hit_rate(chosen, 2, True), 3 / 7)

    def test_overlap_and_skew(self):
        uniform = torch.arange(32).view(8, 4).repeat(4, 1)[None, None]
        sets = routing.members(uniform, 32)
        entropy, top = routing.skew(sets[0])
        self.assertAlmostEqual(entropy.item(), 1.0, places=5)
        self.assertAlmostEqual(top.item(), 0.25, places=5)
        found, chance = routing.overlap(sets, 4)
        self.assertEqual(found.item(), 0.0)
        self.assertAlmostEqual(chance.item(), 0.125, places=5)

    def test_recall(self):
        logits = torch.tensor([[5., 4., 3., 2., 1., 0.]])
        self.assertEqual(routing.recall(logits, torch.tensor([[0, 5]])), 0.5)

    def test_bigram_is_a_distribution(self):
        rows = np.random.default_rng(1).integers(0, 50, (40, 513)).astype(np.uint16)
        every = np.stack([np.full(4096, 7), np.arange(4096)], 1).astype(np.uint16)
        self.assertAlmostEqual(np.exp(-evaluate.bigram_losses(rows, every)).sum(), 1.0, places=6)


class NextTokensExperts(unittest.TestCase):
    """mtp.py on a trace whose experts follow from the next token: layer 1 chooses (next + 1) % 4."""
    LAYERS, FIRST, EXPERTS, USED, WIDTH, TOKENS = 3, 1, 4, 2, 8, 6

    def write(self, path):
        """Token n + 1 follows token n, so this token says all of the next one."""
        layers = self.LAYERS - self.FIRST
        shape = struct.pack("<6IQ4If I96s", self.LAYERS, self.FIRST, self.EXPERTS, self.USED, self.WIDTH, 14,
                            0, 0, 0, 0, 1, 1.0, 0, b"made up")
        parts = struct.pack("<QII", 64, 1, 0) * layers
        r = np.random.default_rng(1)
        routers = r.normal(size=(layers, self.EXPERTS, self.WIDTH)).astype("<f4")
        self.table = r.normal(size=(self.TOKENS, self.WIDTH)).astype("<f2")
        ids = np.arange(self.TOKENS, dtype="<u4")
        chunks = [(1, shape), (2, parts), (3, routers.tobytes()),
                  (4, struct.pack("<I", self.TOKENS) + ids.tobytes() + self.table.tobytes())]
        self.hidden, self.selected = [], []
        for n in range(20):
            row = (np.arange(30) + n) % self.TOKENS
            hidden = r.normal(size=(30, layers, self.WIDTH)).astype("<f2")
            selected = np.stack([np.stack([(row + layer) % 4, (row + layer + 1) % 4], -1)
                                 for layer in range(layers)], 1).astype("<u1")
            chunks.append((5, struct.pack("<4I", 30, 5, 30, 0) + row.astype("<u4").tobytes()
                           + np.arange(30, dtype="<u4").tobytes() + hidden.tobytes() + selected.tobytes()))
            self.hidden.append(hidden)
            self.selected.append(selected)
        chunks.append((6, struct.pack("<3Q", 20, 600, self.TOKENS)))
        with open(path, "wb") as f:
            f.write(b"moedtrac" + struct.pack("<I", 1) + bytes(52))
            for kind, payload in chunks:
                f.write(struct.pack("<IIQ", kind, 0, len(payload)) + payload + bytes(-(16 + len(payload)) % 64))

    def read_network(self, data):
        """From the bytes of the file, by the offsets that trained.h gives."""
        place, = struct.unpack_from("<Q", data, 192)
        inputs, hidden, gated, activation, at = struct.unpack_from("<4IQ", data, place)
        self.assertEqual((inputs, gated, activation), (2 * self.WIDTH, 2 * self.WIDTH, 1))
        outputs = (self.LAYERS - self.FIRST) * self.EXPERTS
        biases, matrices = [], []
        for width in (hidden, hidden, hidden, hidden, outputs):
            biases.append(torch.from_numpy(np.frombuffer(data, "<f4", width, at).copy()))
            at += 4 * width
        for rows, width in ((inputs, hidden), (hidden, hidden), (hidden, hidden), (inputs, hidden), (hidden, outputs)):
            halves = np.frombuffer(data, "<u2", rows * width, at).astype(np.uint32) << 16
            matrices.append(torch.from_numpy(halves.view(np.float32).reshape(rows, width)))
            at += 2 * rows * width
        self.assertEqual(at, len(data))

        def run(x):
            into, first, second, gate, out = (lambda x, w=w, b=b: x @ w + b for w, b in zip(matrices, biases))
            u = F.gelu(into(x))
            u = u + torch.sigmoid(gate(x)) * F.gelu(second(F.gelu(first(u))))
            return out(u)
        return run

    def test_trace_is_read(self):
        with tempfile.TemporaryDirectory() as folder:
            self.write(pathlib.Path(folder) / "t")
            trace = traces.Trace(pathlib.Path(folder) / "t")
            self.assertEqual((trace.layers, trace.experts, trace.used, trace.width), (2, 4, 2, 8))
            self.assertEqual(trace.model.rstrip(bytes(1)), b"made up")
            for n, s in enumerate(trace.sequences):
                self.assertTrue((s.hidden == self.hidden[n]).all() and (s.selected == self.selected[n]).all())
            samples = mtp.Samples(trace, trace.sequences[3:4])
            # Token 5 of the sequence: its embedding, the last layer's input for token 4, the experts of token 6.
            self.assertTrue((samples.x[4, :8].numpy() == self.table[(5 + 3) % 6].astype(np.float32)).all())
            self.assertTrue((samples.x[4, 8:].numpy() == self.hidden[3][4, 1].astype(np.float32)).all())
            self.assertTrue((samples.chosen[4].numpy() == self.selected[3][6]).all())

    def test_block_learns_and_is_written(self):
        with tempfile.TemporaryDirectory() as folder:
            self.write(pathlib.Path(folder) / "t")
            trace = traces.Trace(pathlib.Path(folder) / "t")
            torch.manual_seed(1)
            samples, held = mtp.Samples(trace, trace.sequences[:16]), mtp.Samples(trace, trace.sequences[16:])
            block = mtp.Block(trace.width, 8, 32)
            args = argparse.Namespace(rate=5e-3, epochs=12, batch=32, draft=0.1, seed=1)
            mtp.train(block, samples, trace.experts, args)
            hits, drafts = mtp.measure(block, held, trace.experts)
            self.assertGreater(hits[0].min(), 0.95)
            self.assertGreater(drafts, 0.95)
            data = bytes(mtp.add_block(mtp.empty_file(trace, len(samples)), block))
            self.assertEqual(struct.unpack_from("<Q", data, 48)[0], len(data))
            counts = np.frombuffer(data, "<u4", 12, struct.unpack_from("<Q", data, 184)[0]).reshape(3, 4)
            self.assertEqual(counts.sum(1).tolist(), [0, 1200, 1200])
            with torch.no_grad():
                difference = self.read_network(data)(held.x) - block(held.x)
            self.assertLess(difference.abs().max(), 0.2)  # of bf16

    def test_run_that_is_held_out(self):
        for seed in range(20):
            held = sorted(mtp.held_out_run(40, seed))
            self.assertEqual(held, list(range(held[0], held[0] + 4)))
            self.assertTrue(0 <= held[0] <= 36)
        self.assertGreater(len({min(mtp.held_out_run(40, seed)) for seed in range(20)}), 1)
        self.assertEqual(mtp.held_out_run(1, 1), {0})

    def test_adds_only_to_predictors_of_the_model(self):
        with tempfile.TemporaryDirectory() as folder:
            trace_path, file = pathlib.Path(folder) / "t", pathlib.Path(folder) / "f"
            self.write(trace_path)
            trace = traces.Trace(trace_path)
            args = argparse.Namespace(add_to=file)
            data = mtp.empty_file(trace, 1)

            def takes(routers, name):
                changed = bytearray(data)
                struct.pack_into("<Q", changed, 56, routers)
                struct.pack_into("96s", changed, 88, name)
                file.write_bytes(changed)
                try:
                    return bytes(mtp.base_file(args, trace, 1)) == bytes(changed)
                except SystemExit:
                    return False
            routers, = struct.unpack_from("<Q", data, 56)
            self.assertTrue(takes(routers, b"made up") and takes(routers, b"another name") and takes(0, b"made up"))
            self.assertFalse(takes(routers + 1, b"made up") or takes(0, b"another name"))
            file.write_bytes(b"moedlern")
            self.assertRaises(SystemExit, mtp.base_file, args, trace, 1)

    def test_hash(self):
        # One word, worked out: (1 * 0x9e3779b97f4a7c15 + 1), its upper half on the lower one.
        self.assertEqual(mtp.trained_hash(bytes([1])), 0x9e3779b97f4a7c16 ^ 0x9e3779b9)


if __name__ == "__main__":
    unittest.main()
