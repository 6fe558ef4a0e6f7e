"""Talk to a running moed deployment (`moed up MODEL.gguf`).

    import moed
    with moed.Session() as session:
        for piece in session.generate("Once upon a time", max_tokens=64):
            print(piece.text, end="", flush=True)

A conversation, in the model's chat template:

    with moed.Session() as session, moed.Chat(session, system="Be brief.") as chat:
        print(chat.ask("What is 2 + 3?").content)

`moed.Trace` reads routing traces without a deployment; it needs numpy.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._version import VERSION as __version__

__all__ = [
    "Answer", "Call", "Chat", "ChatAnswer", "Error", "Generation", "Model", "Part", "Piece", "Reply", "Result", "Session", "TimeoutError",
    "Trace", "metrics",
]


if TYPE_CHECKING:
    from .chat import Call, Chat, ChatAnswer, Part, Reply
    from .errors import Error, TimeoutError
    from .session import Answer, Generation, Model, Piece, Session, metrics
    from .stream import Result
    from .trace import Trace


def __getattr__(name: str) -> Any:
    # On first use: a trace needs no libmoed, and a session no numpy.
    if name == "Trace":
        from .trace import Trace

        return Trace
    if name in ("Error", "TimeoutError"):
        from . import errors

        return getattr(errors, name)
    if name in ("Call", "Chat", "ChatAnswer", "Part", "Reply"):
        from . import chat

        return getattr(chat, name)
    if name in __all__:
        from . import session

        return getattr(session, name)
    raise AttributeError(f"module 'moed' has no attribute {name!r}")
