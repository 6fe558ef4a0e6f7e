"""Trains the demo model on the CPU until a time of day, or for some minutes.

Each thread has its own gradients and takes small batches from a common counter,
so that a thread which loses its core to another process delays the others by one
small batch at most; the parameters are shared.  The rates follow the clock:
a short warm-up, a plateau, and a linear way down to nothing at the end, because
on a shared machine nobody knows how many steps there will be.

Output in WORK: checkpoint.pt (every few minutes, --resume goes on from it),
loss.csv, STATUS (one line), and with --export-every the GGUF files.
"""
import argparse
import csv
import datetime
import itertools
import os
import pathlib
import subprocess
import sys
import threading
import time

# One thread each for the mathematics (the threads here are the parallelism), and
# an allocator that keeps its pages: both before torch is loaded.
SETTINGS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "MALLOC_MMAP_MAX_": "0",
            "MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": str(64 << 30),
            "MALLOC_TOP_PAD_": str(256 << 20)}
if __name__ == "__main__" and any(os.environ.get(k) != v for k, v in SETTINGS.items()):
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **SETTINGS})

import numpy as np
import tokenizers
import torch
import torch.nn.functional as F

import model as demo
import optimiser
from tokens import CONTEXT, CONTROL, TOPICS

HERE = pathlib.Path(__file__).parent


class Clock:
    """How much of the training time is over, also across a resume."""

    def __init__(self, args, spent):
        self.spent, self.start = spent, time.time()
        if args.minutes:
            self.end = self.start + 60 * args.minutes
        else:
            hour, minute = map(int, args.until.split(":"))
            now = datetime.datetime.now(datetime.timezone.utc)
            end = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
            if end < now:
                end += datetime.timedelta(days=1)
            self.end = end.timestamp()

    def elapsed(self):
        return self.spent + time.time() - self.start

    def progress(self):
        return min(1.0, self.elapsed() / (self.spent + self.end - self.start))


def rate_scale(progress, step, warmup, plateau):
    scale = min(1.0, (step + 1) / warmup)
    if progress > plateau:
        scale *= max(0.0, (1 - progress) / (1 - plateau))
    return scale


class Worker:
    """One thread's replica: the parameters of the model, gradients of its own."""

    def __init__(self, model, args):
        self.model = demo.Model(model.shape)
        for mine, shared in zip(self.model.parameters(), model.parameters()):
            mine.data = shared.data
            mine.grad = torch.zeros_like(shared)
        self.args = args

    def weights(self, tokens):
        """How much each predicted token counts: what a user says in a chat has nothing to
        learn for the answers, and is random in most places."""
        if self.args.question_weight == 1:
            return torch.ones(tokens.shape[0], tokens.shape[1] - 1)
        start, end, answers = self.args.marks
        place = torch.arange(tokens.shape[1]).expand_as(tokens)
        never = torch.full_like(place, -1)
        message = torch.where(tokens == start, place, never).cummax(1).values
        document = torch.where(tokens == end, place, never).cummax(1).values
        role = tokens.gather(1, (message + 1).clamp(0, tokens.shape[1] - 1))
        question = (message > document) & (role != answers)
        return torch.where(question[:, 1:], self.args.question_weight, 1.0)

    def run(self, batch, counter, parts):
        """Takes small batches until the counter is through; adds up gradients."""
        torch.set_num_threads(1)
        torch.set_flush_denormal(True)
        self.loss, self.load, self.balance, self.done = 0.0, 0.0, 0.0, 0
        for grad in (p.grad for p in self.model.parameters()):
            grad.zero_()
        size = len(batch) // parts
        for part in counter:
            if part >= parts:
                return
            tokens = torch.from_numpy(batch[part * size:(part + 1) * size].astype(np.int64))
            hidden, balance, z, load = self.model.hidden(tokens[:, :-1])
            logits = F.linear(hidden.flatten(0, 1), self.model.embedding)
            losses = F.cross_entropy(logits, tokens[:, 1:].flatten(), reduction="none")
            loss = losses.detach().mean()
            weight = self.weights(tokens).flatten()
            total = (losses * weight).sum() / weight.sum()
            total = total + self.args.balance * balance.sum() + self.args.z * z.sum()
            (total / parts).backward()
            self.loss += loss.item() / parts
            self.load = self.load + load / parts
            self.balance += balance.mean().item() / parts
            self.done += 1


def in_threads(jobs):
    failed = []

    def guard(job):
        try:
            job()
        except BaseException as error:  # handed to the caller below
            failed.append(error)
    threads = [threading.Thread(target=guard, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


class Counter:
    """0, 1, 2, ... for several threads."""

    def __init__(self):
        self.numbers, self.lock = itertools.count(), threading.Lock()

    def __iter__(self):
        return self

    def __next__(self):
        with self.lock:
            return next(self.numbers)


class Batches:
    """Windows of the topics in the proportion of the corpus times their shares.

    Every stretch has the topics in proportion, so that batches of a few windows
    differ less.  Each topic goes through its windows in an order of its own and
    starts anew, in a new order, only when all were used: also across a resume
    with other shares, because the state counts what each topic has given."""

    def __init__(self, data, topics, shares, size, seed):
        self.data, self.size, self.seed = data, size, seed
        self.windows = [np.flatnonzero(topics == t) for t in range(len(shares))]
        weight = np.array([len(w) * share for w, share in zip(self.windows, shares)], float)
        self.weight = weight / weight.sum()
        self.orders = {}
        self.state = {"taken": [0] * len(shares), "due": [0.0] * len(shares)}

    def window_of(self, topic):
        """The next window of a topic."""
        turn, place = divmod(self.state["taken"][topic], len(self.windows[topic]))
        self.state["taken"][topic] += 1
        if self.orders.get(topic, (None,))[0] != turn:
            random = np.random.default_rng([self.seed, turn, topic])
            self.orders[topic] = (turn, random.permutation(self.windows[topic]))
        return self.orders[topic][1][place]

    def next(self):
        """Gives each window to the topic that is owed most."""
        picked = []
        for _ in range(self.size):
            due = np.array(self.state["due"]) + self.weight
            topic = int(due.argmax())
            due[topic] -= 1
            self.state["due"] = due.tolist()
            picked.append(self.window_of(topic))
        return self.data[np.sort(picked)]


@torch.no_grad()
def held_loss(workers, held, windows):
    """Mean loss over evenly spread held-out windows."""
    picked = held[np.linspace(0, len(held) - 1, windows).astype(int)]
    counter, losses = Counter(), []

    def job(worker):
        torch.set_num_threads(1)
        with torch.no_grad():
            for i in counter:
                if 2 * i >= len(picked):
                    return
                tokens = torch.from_numpy(picked[2 * i:2 * i + 2].astype(np.int64))
                logits = worker.model.logits(tokens[:, :-1]).flatten(0, 1)
                losses.append(F.cross_entropy(logits, tokens[:, 1:].flatten()).item())
    in_threads([lambda w=w: job(w) for w in workers])
    return sum(losses) / len(losses)


def save(path, model, optimisers, step, seen, batches, clock, args):
    partial = path.with_suffix(".part")
    torch.save({"model": model.state_dict(), "shape": vars(model.shape), "step": step, "windows": seen,
                "batches": batches.state,
                "spent": clock.elapsed(), "args": vars(args),
                "optimisers": [o.state_dict() for o in optimisers]}, partial)
    partial.replace(path)


def start_weights(model, path):
    """From a checkpoint, or from a GGUF that export.py wrote."""
    if path.suffix == ".gguf":
        import export
        export.read_weights(path, model)
    else:
        model.load_state_dict(torch.load(path, weights_only=False)["model"])


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=pathlib.Path, required=True, help="work folder")
    when = parser.add_mutually_exclusive_group(required=True)
    when.add_argument("--until", help="time of day to end at, HH:MM in UTC")
    when.add_argument("--minutes", type=float, help="how long to train")
    parser.add_argument("--resume", action="store_true", help="go on from WORK/checkpoint.pt")
    parser.add_argument("--init-from", type=pathlib.Path, help="weights to start from (.pt or .gguf)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--windows", type=int, default=12, help="windows of 512 tokens a step")
    parser.add_argument("--small", type=int, default=3, help="windows of a small batch")
    parser.add_argument("--chat-share", type=float, default=1.6, help="how much more chat than the corpus has")
    parser.add_argument("--stories-share", type=float, default=1.3, help="the same for stories")
    parser.add_argument("--question-weight", type=float, default=1.0, help="of the users' words in chats")
    parser.add_argument("--matrix-rate", type=float, default=0.01, help="of Muon")
    parser.add_argument("--vector-rate", type=float, default=0.002, help="of AdamW for norms and gates")
    parser.add_argument("--embedding-rate", type=float, default=0.002)
    parser.add_argument("--decay", type=float, default=0.01)
    parser.add_argument("--balance", type=float, default=0.01, help="of the load of the experts, each layer")
    parser.add_argument("--z", type=float, default=1e-4, help="of the size of the gate's logits")
    parser.add_argument("--warmup", type=int, default=40, help="steps")
    parser.add_argument("--plateau", type=float, default=0.4, help="share of the time at full rate")
    parser.add_argument("--save-every", type=float, default=5, help="minutes between checkpoints")
    parser.add_argument("--export-every", type=float, default=0, help="minutes between GGUF files, 0: none")
    return parser.parse_args()


def main():
    args = parse_arguments()
    torch.manual_seed(args.seed)
    torch.set_flush_denormal(True)
    data, held = (np.load(args.work / f"{part}.npy", mmap_mode="r") for part in ("train", "held"))
    topics = np.load(args.work / "train-topic.npy")
    tokenizer = tokenizers.Tokenizer.from_file(str(args.work / "tokenizer.json"))
    # What begins a message, what ends a document, and the first token of an answer's message.
    args.marks = (tokenizer.token_to_id(CONTROL[1]), tokenizer.token_to_id(CONTROL[0]),
                  tokenizer.encode("assistant\n").ids[0])
    model = demo.Model(demo.Shape(), args.seed)
    optimisers = optimiser.build(model, args.matrix_rate, args.vector_rate, args.embedding_rate, args.decay)
    shares = [{"chat": args.chat_share, "stories": args.stories_share}.get(topic, 1.0) for topic in TOPICS]
    batches = Batches(data, topics, shares, args.windows, args.seed)
    step, seen, spent = 0, 0, 0.0
    checkpoint = args.work / "checkpoint.pt"
    if args.init_from:
        start_weights(model, args.init_from)
    if args.resume:
        saved = torch.load(checkpoint, weights_only=False)
        model.load_state_dict(saved["model"])
        for mine, state in zip(optimisers, saved["optimisers"]):
            mine.load_state_dict(state)
        for group, rate in zip(optimisers[1].param_groups, (args.embedding_rate, args.vector_rate)):
            group["full_rate"] = rate  # the arguments' rates, not the saved ones
        step, seen, spent, batches.state = (saved[k] for k in ("step", "windows", "spent", "batches"))
    train(args, model, optimisers, batches, held, step, seen, Clock(args, spent), checkpoint)


def make_step(workers, parameters, optimisers, batch, parts, scale):
    """Gradients of the batch in all threads, then one step of both optimisers."""
    muon, adam = optimisers
    counter = Counter()
    in_threads([lambda w=w: w.run(batch, counter, parts) for w in workers])
    for parameter, grads in zip(parameters, zip(*([p.grad for p in w.model.parameters()] for w in workers))):
        for other in grads[1:]:
            grads[0].add_(other)
        parameter.grad = grads[0]
    for group in adam.param_groups:
        group["lr"] = group["full_rate"] * scale
    adam.step()
    counter = Counter()
    in_threads([lambda: muon.step(scale, counter) for _ in workers])


COLUMNS = ["step", "tokens", "seconds", "loss", "held_loss", "rate_scale", "largest_load", "balance"]


def train(args, model, optimisers, batches, held, step, seen, clock, checkpoint):
    workers = [Worker(model, args) for _ in range(args.threads)]
    parameters = list(model.parameters())
    log = open(args.work / "loss.csv", "a" if args.resume else "w", newline="")
    table = csv.writer(log)
    if not args.resume:
        table.writerow(COLUMNS)
    saved_at = exported_at = time.time()
    smooth, recent = None, []
    while clock.progress() < 1:
        began = time.time()
        scale = rate_scale(clock.progress(), step, args.warmup, args.plateau)
        make_step(workers, parameters, optimisers, batches.next(), args.windows // args.small, scale)
        step, seen = step + 1, seen + args.windows
        loss, load = sum(w.loss for w in workers), sum(w.load for w in workers)
        smooth = loss if smooth is None else smooth + 0.05 * (loss - smooth)
        recent = (recent + [time.time() - began])[-50:]
        report(args, clock, step, loss, smooth, args.windows * CONTEXT * len(recent) / sum(recent), scale, load)
        checked = held_loss(workers, held, 64) if step % 100 == 0 or step == 10 else ""
        table.writerow([step, seen * CONTEXT, round(clock.elapsed(), 1), round(loss, 4), checked,
                        round(scale, 4), round(load.max().item() * model.shape.experts, 3),
                        round(sum(w.balance for w in workers), 4)])
        export = args.export_every and time.time() - exported_at > 60 * args.export_every
        if export or time.time() - saved_at > 60 * args.save_every:
            save(checkpoint, model, optimisers, step, seen, batches, clock, args)
            log.flush()
            saved_at = time.time()
        if export:
            subprocess.Popen([sys.executable, HERE / "export.py", "--work", args.work])
            exported_at = time.time()
    save(checkpoint, model, optimisers, step, seen, batches, clock, args)
    table.writerow([step, seen * CONTEXT, round(clock.elapsed(), 1), "", held_loss(workers, held, len(held)),
                    0, "", ""])
    log.close()


def report(args, clock, step, loss, smooth, speed, scale, load):
    layers, experts = load.shape
    # A dead expert gets less than a tenth of its share.
    dead = int((load * experts < 0.1).sum())
    end = datetime.datetime.fromtimestamp(clock.end, datetime.timezone.utc).strftime("%H:%M UTC")
    line = (f"step {step}  loss {loss:.3f} (smooth {smooth:.3f})  {speed:.0f} tokens/s  "
            f"{100 * clock.progress():.1f} %  rate {scale:.2f}  largest load {load.max() * experts:.1f}  "
            f"dead experts {dead} of {layers * experts}  ends {end}")
    (args.work / "STATUS").write_text(line + "\n")
    if step <= 20 or step % 10 == 0:
        print(line, flush=True)


if __name__ == "__main__":
    main()
