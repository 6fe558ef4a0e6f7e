"""Which conversation a request belongs to. Its turns have one beginning: the instructions and the first message of the user. So this
needs neither a cookie nor a header of the client, and finds the replica whose KV cache has that beginning."""
from __future__ import annotations

import hashlib
import json
from typing import Any, Mapping

HEAD_BYTES = 2048  # of a text completion: what a prompt begins with


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return json.dumps(content, sort_keys=True) if content is not None else ""


def _head_of_messages(messages: list[Any]) -> str:
    """The messages up to the first one of the user."""
    head = []
    for message in messages:
        if not isinstance(message, dict):
            break
        head.append(f"{message.get('role')}:{_text(message.get('content'))}")
        if message.get("role") == "user":
            break
    return "\n".join(head)


def conversation_of(headers: Mapping[str, str], body: bytes) -> str:
    """A key of the conversation; "" where the request has none. HEADERS: names in lower case."""
    session = headers.get("x-session-id")
    if session:
        return "session:" + session
    try:
        request = json.loads(body) if body else None
    except ValueError:
        return ""  # moed-http refuses it
    if not isinstance(request, dict):
        return ""
    head = [_text(request.get("model")), _text(request.get("system") or request.get("instructions"))]
    messages, given = request.get("messages"), request.get("input", request.get("prompt"))
    if isinstance(messages, list):
        head.append(_head_of_messages(messages))
    elif isinstance(given, list) and given and isinstance(given[0], dict):
        head.append(_head_of_messages(given))
    elif given is not None:
        head.append(_text(given)[:HEAD_BYTES])
    else:
        return ""
    return hashlib.sha256("\n".join(head).encode(errors="surrogatepass")).hexdigest()
