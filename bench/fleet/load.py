"""Conversations that begin by a Poisson process, over streams of OpenAI's API."""
from __future__ import annotations

import asyncio
import json
import random
import time
from dataclasses import dataclass, field

WORDS = ("the a small old king cat house river found lost under over bright quiet seven door key tree asked why because friend went home again little "
         "story garden morning night stone bird boat red green answer question never always").split()
SYSTEM = "You tell short stories. " + " ".join(WORDS[:20]) + "."


@dataclass
class Load:
    rate: float  # conversations a second
    turns: int
    seconds: float  # how long conversations begin
    think_s: float
    tokens: int
    words: int
    seed: int


@dataclass
class Figures:
    turns: int
    failed: int
    tokens_per_s: float
    ttft_p50: float  # these in ms
    ttft_p99: float
    tpot_p50: float
    tpot_p99: float
    cached: float  # share of later turns' prompt tokens


@dataclass
class Record:
    """What all clients have seen."""

    ttft_s: list[float] = field(default_factory=list)
    tpot_s: list[float] = field(default_factory=list)
    tokens: int = 0
    failed: int = 0
    prompt_tokens: int = 0  # of later turns
    cached_tokens: int = 0


def percentile(values: list[float], share: float) -> float:
    """The nearest rank; 0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


class Client:
    def __init__(self, port: int, load: Load, record: Record) -> None:
        self._port, self._load, self._record = port, load, record

    async def converse(self, number: int) -> None:
        chance = random.Random(f"{self._load.seed} {number}")
        # Half of the conversations share their instructions, the others have none.
        messages = [{"role": "system", "content": SYSTEM}] if number % 2 else []
        for turn in range(self._load.turns):
            text = " ".join(chance.choice(WORDS) for _ in range(self._load.words))
            messages.append({"role": "user", "content": f"{number}.{turn} {text}"})
            try:
                answer = await self._turn(messages, turn)
            except (OSError, ValueError, asyncio.IncompleteReadError):
                self._record.failed += 1
                return
            messages.append({"role": "assistant", "content": answer})
            await asyncio.sleep(chance.expovariate(1 / self._load.think_s))

    async def _turn(self, messages: list[dict[str, str]], turn: int) -> str:
        body = json.dumps({"messages": messages, "stream": True, "stream_options": {"include_usage": True}, "max_tokens": self._load.tokens,
                           "temperature": 0, "ignore_eos": True}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        started = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(head.encode() + body)
            status = await reader.readline()
            if b" 200 " not in status:
                raise ValueError(status)
            return await self._read(reader, started, turn)
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader, started: float, turn: int) -> str:
        """Events stand on lines of their own, whatever the chunks around them are."""
        text, first, last, usage = "", 0.0, 0.0, None
        while (line := await reader.readline()).strip() != b"data: [DONE]":
            if not line:
                raise ValueError("cut")
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                if choice["delta"].get("content"):
                    last = time.monotonic()
                    first = first or last
                    text += choice["delta"]["content"]
        if usage is None or not first:
            raise ValueError("no answer")
        self._note(usage, started, first, last, turn)
        return text

    def _note(self, usage: dict[str, object], started: float, first: float, last: float, turn: int) -> None:
        r, tokens = self._record, int(str(usage["completion_tokens"]))
        r.tokens += tokens
        r.ttft_s.append(first - started)
        if tokens > 1:
            r.tpot_s.append((last - first) / (tokens - 1))
        if turn:
            details = usage["prompt_tokens_details"]
            assert isinstance(details, dict)
            r.prompt_tokens += int(str(usage["prompt_tokens"]))
            r.cached_tokens += int(details["cached_tokens"])


async def _run(port: int, load: Load) -> Figures:
    record, chance = Record(), random.Random(load.seed)
    tasks: list[asyncio.Task[None]] = []
    client, started = Client(port, load, record), time.monotonic()
    due = started
    while (due := due + chance.expovariate(load.rate)) < started + load.seconds:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        tasks.append(asyncio.create_task(client.converse(len(tasks))))
    await asyncio.gather(*tasks)
    elapsed = time.monotonic() - started
    ttft, tpot = record.ttft_s, record.tpot_s
    return Figures(
        len(ttft), record.failed, record.tokens / elapsed, 1000 * percentile(ttft, 0.5), 1000 * percentile(ttft, 0.99), 1000 * percentile(tpot, 0.5),
        1000 * percentile(tpot, 0.99), record.cached_tokens / record.prompt_tokens if record.prompt_tokens else 0.0,
    )


def measure(port: int, load: Load) -> Figures:
    return asyncio.run(_run(port, load))
