"""Streams that go on at another node. Of OpenAI's streams of one plain text, the rest is asked for: the prompt with the text so far
behind it. The model sees the same tokens as before, except where the text's end would be cut into tokens otherwise; a greedy answer
is therefore the same in practice, and a sampled one goes on with other draws.

How many tokens the text had is in the usage of each event, which the node is asked for; what the client has not asked for is taken out
again. The text does not show ends of turns that `ignore_eos` passes over: an answer with one is not continued."""
from __future__ import annotations

import json
from typing import Any

DEFAULT_NONE: tuple[Any, ...] = (None, False, 0, [], {}, "")
# Parameters that bind the whole answer, or say something of each of its tokens.
WHOLE_ANSWER = (
    "tools", "response_format", "json_schema", "grammar", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
    "structured_outputs", "logprobs", "top_logprobs", "echo", "min_tokens", "thinking_budget_tokens", "thinking_token_budget",
)
LIMITS = ("max_tokens", "max_completion_tokens")
PATHS = ("/v1/completions", "/v1/chat/completions")


class Continuation:
    """Follows a stream, and makes the request for what is missing of it."""

    def __init__(self, path: str, body: bytes) -> None:
        self.text, self.why_not = "", ""
        self._path = path.split("?")[0]
        self._rest = b""  # of an event that is not complete
        self._first: dict[str, Any] = {}  # the first event: its id and time are those of the whole stream
        self._again = False
        self._counted = 0  # tokens of the text, in a continuation
        self._generated = 0  # tokens so far, as the events say
        self._usage: dict[str, Any] = {}  # as the client is to see it
        self._finished = self._usage_sent = False  # what the client has of the end
        self._usage_wanted = self._usage_in_events = False  # by the client
        self._asks_usage = False
        self._request = self._understood(body)
        self._first_body = self._with_usage(body)

    def _understood(self, body: bytes) -> dict[str, Any]:
        try:
            request = json.loads(body)
        except ValueError:
            request = {}
        if self._path not in PATHS or not isinstance(request, dict):
            self.why_not = "streams of this API are not continued"
            return {}
        bound = [name for name in WHOLE_ANSWER if request.get(name) not in DEFAULT_NONE]
        if bound:
            self.why_not = f"answers with {bound[0]} are not continued"
        elif request.get("n") not in (None, 1):
            self.why_not = "several choices are not continued"
        elif self._path == PATHS[0] and not isinstance(request.get("prompt"), str):
            self.why_not = "prompts of token ids are not continued"
        return request

    def _with_usage(self, body: bytes) -> bytes:
        options = self._request.get("stream_options")
        if self.why_not or not self._request.get("stream") or not isinstance(options, (dict, type(None))):
            return body
        options = options or {}
        self._usage_wanted = bool(options.get("include_usage"))
        self._usage_in_events = self._usage_wanted and bool(options.get("continuous_usage_stats"))
        self._asks_usage = True
        self._request["stream_options"] = {**options, "include_usage": True, "continuous_usage_stats": True}
        return json.dumps(self._request).encode()

    @property
    def first_body(self) -> bytes:
        """The request as the first node gets it."""
        return self._first_body

    def passed(self, part: bytes) -> bytes:
        """What of a part of the stream goes to the client: whole events."""
        self._rest += part
        end = self._rest.rfind(b"\n\n") + 2
        if end < 2:
            return b""
        events, self._rest = self._rest[:end], self._rest[end:]
        return b"".join(self._event(event) for event in events.split(b"\n\n")[:-1])

    def _event(self, event: bytes) -> bytes:
        if not event.startswith(b"data: {"):
            return event + b"\n\n"
        data = json.loads(event[6:])
        if "error" in data:
            return event + b"\n\n"
        if self._again and self._is_only_role(data):
            return b""
        self._follow(data)
        if not self._again and not self._asks_usage:
            return event + b"\n\n"
        data.update({k: self._first[k] for k in ("id", "created") if k in self._first})
        self._mend_usage(data.get("usage"))
        self._usage = data.get("usage") or self._usage
        if self._asks_usage and not self._keep_usage(data):
            return b""
        return b"data: " + json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"

    def _keep_usage(self, data: dict[str, Any]) -> bool:
        """Takes out the usage that the client has not asked for. False: nothing is left of the event."""
        is_last = data.get("choices") == []
        if not self._usage_wanted:
            data.pop("usage", None)
            return not is_last
        self._usage_sent = self._usage_sent or is_last
        if not is_last and not self._usage_in_events:
            data["usage"] = None
        return True

    @staticmethod
    def _is_only_role(data: dict[str, Any]) -> bool:
        choices = data.get("choices") or [{}]
        delta = choices[0].get("delta")
        return isinstance(delta, dict) and "role" in delta and not delta.get("content") and not choices[0].get("finish_reason")

    def _follow(self, data: dict[str, Any]) -> None:
        self._first = self._first or data
        for choice in data.get("choices") or []:
            delta = choice.get("delta") or {}
            if any(delta.get(name) for name in ("reasoning_content", "reasoning", "tool_calls")):
                self.why_not = self.why_not or "answers with reasoning or calls are not continued"
            self.text += choice.get("text") or delta.get("content") or ""
            self._finished = self._finished or bool(choice.get("finish_reason"))
        usage = data.get("usage")
        if isinstance(usage, dict):
            self._generated = self._counted + usage.get("completion_tokens", 0)

    def _mend_usage(self, usage: Any) -> None:
        if isinstance(usage, dict) and "completion_tokens" in usage:
            usage["prompt_tokens"] -= self._counted
            usage["completion_tokens"] += self._counted

    @staticmethod
    def count_body(text: str) -> bytes:
        return json.dumps({"content": text}).encode()

    @staticmethod
    def count_in(reply: bytes) -> int:
        return len(json.loads(reply)["tokens"])

    def hides_tokens(self, tokens: int) -> bool:
        """Whether the text, which is cut into TOKENS tokens, does not show all that were generated."""
        return bool(self._request.get("ignore_eos")) and self._generated > tokens

    @property
    def is_complete(self) -> bool:
        """Whether nothing but the end of the stream is missing."""
        limits = [self._request[name] for name in LIMITS if isinstance(self._request.get(name), int)]
        return self._finished or (bool(limits) and self._generated >= min(limits))

    def end(self) -> bytes:
        """What is missing of a stream that is complete."""
        head = {k: self._first[k] for k in ("id", "object", "created", "model") if k in self._first}
        events: list[dict[str, Any]] = []
        if not self._finished:
            content: dict[str, Any] = {"text": ""} if self._path == PATHS[0] else {"delta": {}}
            events.append({**head, "choices": [{"index": 0, **content, "finish_reason": "length"}]})
        if self._usage_wanted and self._usage and not self._usage_sent:
            events.append({**head, "choices": [], "usage": self._usage})
        return b"".join(b"data: " + json.dumps(e, separators=(",", ":")).encode() + b"\n\n" for e in events) + b"data: [DONE]\n\n"

    def body(self, tokens: int) -> bytes:
        """The request for the rest, after a text that is cut into TOKENS tokens."""
        tokens = self._generated or tokens
        self._counted = tokens
        request = dict(self._request)
        for limit in LIMITS:
            if isinstance(request.get(limit), int):
                request[limit] = max(1, request[limit] - tokens)
        if not self.text:
            pass  # nothing but a role was sent: ask for all of it
        elif self._path == PATHS[0]:
            request["prompt"] += self.text
        else:
            request["messages"] = self._messages(request.get("messages") or [])
            request.update(continue_final_message=True, add_generation_prompt=False)
        return json.dumps(request).encode()

    def _messages(self, messages: list[Any]) -> list[Any]:
        last = messages[-1] if messages else None
        if isinstance(last, dict) and last.get("role") == "assistant" and isinstance(last.get("content"), str):
            return [*messages[:-1], {**last, "content": last["content"] + self.text}]  # it was being continued already
        return [*messages, {"role": "assistant", "content": self.text}]

    def began(self) -> None:
        """The other node streams."""
        self._again, self._rest = True, b""
