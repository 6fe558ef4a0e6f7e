"""Conversations in the model's chat template."""
from __future__ import annotations

import json
import weakref
from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Sequence

from ._native import ffi, lib, new
from .errors import Error, check
from .options import Options
from .session import Session
from .stream import Result, Stream, bytes_of, nothing_yet, text_of

Message = dict[str, Any]

_CHOICES = {"auto": "MOED_TOOLS_AUTO", "none": "MOED_TOOLS_NONE", "required": "MOED_TOOLS_REQUIRED"}
_KINDS = {
    lib.MOED_PART_CONTENT: "content",
    lib.MOED_PART_REASONING: "reasoning",
    lib.MOED_PART_CALL: "call",
    lib.MOED_PART_ARGUMENTS: "arguments",
    lib.MOED_PART_CALL_END: "call_end",
}


@dataclass(frozen=True)
class Part:
    """A part of an answer as it comes. kind: "content" or "reasoning" with `text`; "call" with `call`, `id`, `name`; "arguments" with
    `call` and the next `text` of their JSON; "call_end" with `call` and `complete`."""

    kind: str
    text: str = ""
    call: int | None = None
    id: str | None = None
    name: str | None = None
    complete: bool = False


@dataclass(frozen=True)
class Call:
    """A call of a tool. arguments: as the model wrote them, an object; json: their text."""

    id: str
    name: str
    json: str

    @property
    def arguments(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.json)
        return value


@dataclass(frozen=True)
class ChatAnswer:
    """A whole answer."""

    content: str
    reasoning: str
    calls: tuple[Call, ...]
    result: Result


def _part(part: Any) -> Part:
    kind = _KINDS[part.kind]
    call = part.call if part.kind >= lib.MOED_PART_CALL else None
    begins = part.kind == lib.MOED_PART_CALL
    return Part(
        kind, bytes_of(part.text, part.text_bytes), call, text_of(part.id) if begins else None, text_of(part.name) if begins else None,
        bool(part.complete),
    )


class Reply(Stream[Part]):
    """An answer as it comes, in parts. At its end it becomes the last message of the chat. Where it fails or is closed before, the
    message of the user that it answers leaves the chat, unless the chat was changed since. before: messages of the chat without that
    one."""

    def __init__(self, chat: "Chat", options: Options, before: int) -> None:
        request, error = ffi.new("struct moed_request **"), ffi.new("struct moed_error *")
        self._request = None
        check(lib.moed_chat_start(chat._handle(), options.struct, request, error), error)
        super().__init__(chat._session, request[0])
        self._chat, self._before, self._changes = chat, before, chat._changes
        self._open = True  # its question may leave the chat

    def _items(self, event: Any) -> list[Part]:
        return [_part(event.parts[i]) for i in range(event.part_count)]

    def _ended(self) -> None:
        check(lib.moed_chat_add_answer(self._chat._handle(), self._request, self._error), self._error)
        self._open = False
        self._chat._changes += 1

    def _take_back(self) -> None:
        """The question, unless the chat was changed or closed."""
        if self._open and self._chat._chat is not None and self._chat._changes == self._changes:
            self._chat.truncate(self._before)
        self._open = False

    def _next(self, timeout_ms: int) -> Part | None:
        try:
            return super()._next(timeout_ms)
        except Error as e:
            if not nothing_yet(e):
                self._take_back()
            raise

    def close(self) -> None:
        if self._request is not None:
            self._take_back()
        super().close()


def _collect(parts: Iterable[Part], result: Result) -> ChatAnswer:
    texts = {"content": "", "reasoning": ""}
    calls: dict[int, tuple[str, str, str]] = {}
    whole: list[Call] = []
    for part in parts:
        if part.kind in texts:
            texts[part.kind] += part.text
        elif part.call is not None and part.kind == "call":
            calls[part.call] = (part.id or "", part.name or "", "")
        elif part.call is not None and part.kind == "arguments":
            id_, name, text = calls[part.call]
            calls[part.call] = (id_, name, text + part.text)
        elif part.call is not None and part.complete:
            whole.append(Call(*calls[part.call]))
    return ChatAnswer(texts["content"], texts["reasoning"], tuple(whole), result)


class Chat:
    """A conversation with the model of a session. One thread at a time uses it.

    tools: a list in OpenAI's form. tool_choice: "auto", "none", "required", or the name of a function that the answer must call.
    thinking: whether a model that can reasons; None: as reasoning_effort has it ("none": no; "minimal" or None: the template's default;
    any other: yes). variables: more variables of the template."""

    def __init__(
        self, session: Session, *, system: str | None = None, messages: Sequence[Message] = (), tools: Sequence[Mapping[str, Any]] = (),
        tool_choice: str = "auto", one_call: bool = False, whole_calls: bool = False, thinking: bool | None = None,
        reasoning_effort: str | None = None, variables: Mapping[str, Any] | None = None, chat_template: str | None = None,
    ) -> None:
        self._chat: Any = None
        self._changes = 0  # of its messages
        self._reply: weakref.ref[Reply] | None = None  # the last one
        self._session, self._error = session, ffi.new("struct moed_error *")
        kept: list[Any] = []

        def text(value: str | None) -> Any:
            if value is None:
                return ffi.NULL
            kept.append(ffi.new("char[]", value.encode()))
            return kept[-1]

        options = new("moed_chat_options")
        options.chat_template, options.reasoning_effort = text(chat_template), text(reasoning_effort)
        options.tools = text(json.dumps(list(tools))) if tools else ffi.NULL
        options.variables = text(json.dumps(dict(variables))) if variables else ffi.NULL
        options.tool_choice = getattr(lib, _CHOICES.get(tool_choice, "MOED_TOOLS_NAMED"))
        options.tool_name = text(tool_choice) if tool_choice not in _CHOICES else ffi.NULL
        options.one_call, options.whole_calls = one_call, whole_calls
        options.thinking = lib.MOED_THINKING_DEFAULT if thinking is None else lib.MOED_THINKING_ON if thinking else lib.MOED_THINKING_OFF
        out = ffi.new("struct moed_chat **")
        check(lib.moed_chat_new(session._handle(), options, out, self._error), self._error)
        self._chat = out[0]
        if system is not None:
            self.add("system", system)
        self.extend(messages)

    def _handle(self) -> Any:
        if self._chat is None:
            raise ValueError("the chat is closed")
        return self._chat

    def add(self, role: str, text: str) -> None:
        """Adds a message of "system", "user" or "assistant". A last message of the assistant is continued by the answer."""
        data = text.encode()
        self._changes += 1
        check(lib.moed_chat_add(self._handle(), role.encode(), data, len(data), self._error), self._error)

    def add_result(self, call: Call | str, result: Any) -> None:
        """Adds what a tool returned for a call, or for the id of one: a text, or what becomes JSON."""
        data = (result if isinstance(result, str) else json.dumps(result)).encode()
        id_ = (call.id if isinstance(call, Call) else call).encode()
        self._changes += 1
        check(lib.moed_chat_add_result(self._handle(), id_, data, len(data), self._error), self._error)

    def extend(self, messages: Sequence[Message]) -> None:
        """Adds messages in OpenAI's form."""
        if messages:
            data = json.dumps(list(messages)).encode()
            self._changes += 1
            check(lib.moed_chat_add_json(self._handle(), data, len(data), self._error), self._error)

    @property
    def messages(self) -> list[Message]:
        """A copy of the conversation in OpenAI's form."""
        text, n = ffi.new("char **"), ffi.new("size_t *")
        check(lib.moed_chat_json(self._handle(), text, n, self._error), self._error)
        try:
            value: list[Message] = json.loads(bytes(ffi.buffer(text[0], n[0])))
            return value
        finally:
            lib.moed_free(text[0])

    def __len__(self) -> int:
        return int(lib.moed_chat_count(self._handle()))

    def truncate(self, count: int) -> None:
        """Drops all messages but the first `count`."""
        self._changes += 1
        lib.moed_chat_truncate(self._handle(), count)

    def tokens(self) -> list[int]:
        """The prompt that an answer would get now."""
        ids, n = ffi.new("uint32_t **"), ffi.new("size_t *")
        check(lib.moed_chat_tokens(self._handle(), ids, n, self._error), self._error)
        try:
            return list(ids[0][0 : n[0]])
        finally:
            lib.moed_free(ids[0])

    def stream(self, text: str | None = None, **options: Any) -> Reply:
        """Starts an answer to the conversation, after a message of the user if there is a text. Options as Session.generate; a
        grammar binds the content, behind reasoning. If no answer comes, the message leaves the conversation. A text ends an answer
        that still runs, as its `close` does."""
        last = self._reply() if self._reply is not None else None
        if text is not None and last is not None and last._open:
            last.close()
        self._changes += 1
        before = len(self)
        if text is not None:
            self.add("user", text)
        try:
            reply = Reply(self, Options(None, options), before)
            self._reply = weakref.ref(reply)
            return reply
        except BaseException:
            self.truncate(before)
            raise

    def ask(self, text: str | None = None, **options: Any) -> ChatAnswer:
        """The whole answer. Arguments as `stream`."""
        with self.stream(text, **options) as reply:
            parts = list(reply)
            assert reply.result is not None
            return _collect(parts, reply.result)

    async def ask_async(self, text: str | None = None, **options: Any) -> ChatAnswer:
        """The same in an event loop."""
        with self.stream(text, **options) as reply:
            parts = [part async for part in reply]
            assert reply.result is not None
            return _collect(parts, reply.result)

    def close(self) -> None:
        if self._chat is not None:
            lib.moed_chat_free(self._chat)
        self._chat = None

    def __enter__(self) -> "Chat":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_chat", None) is not None:
            self.close()
