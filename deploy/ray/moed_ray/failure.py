"""Errors in the form of the API that was called, as moed-http writes them."""
from __future__ import annotations

import json


def dialect(path: str) -> str:
    if path.startswith("/v1/messages"):
        return "anthropic"
    return "ollama" if path.startswith("/api/") else "openai"


def error_body(path: str, message: str) -> bytes:
    kind = dialect(path)
    if kind == "anthropic":
        return json.dumps({"type": "error", "error": {"type": "overloaded_error", "message": message}}).encode()
    if kind == "ollama":
        return json.dumps({"error": message}).encode()
    return json.dumps({"error": {"message": message, "type": "unavailable_error", "param": None, "code": 503}}).encode()


def error_event(path: str, message: str) -> bytes:
    """What ends a stream that cannot be continued. The blank line before it ends an event that was cut."""
    body = error_body(path, message)
    kind = dialect(path)
    if kind == "ollama":
        return b"\n" + body + b"\n"
    return b"\n\n" + (b"event: error\n" if kind == "anthropic" else b"") + b"data: " + body + b"\n\n"
