"""Talk to a running moed deployment (`moed up MODEL.gguf`).

    import moed
    with moed.Session() as session:
        for piece in session.generate("Once upon a time", max_tokens=64):
            print(piece.text, end="", flush=True)

`moed.Trace` reads routing traces without a deployment; it needs numpy.
"""
from __future__ import annotations

from typing import Any

from ._version import VERSION as __version__

__all__ = ["Answer", "Error", "Generation", "Model", "Piece", "Result", "Session", "TimeoutError", "Trace", "metrics"]


def __getattr__(name: str) -> Any:
    # On first use: a trace needs no libmoed, and a session no numpy.
    if name == "Trace":
        from .trace import Trace

        return Trace
    if name in ("Error", "TimeoutError"):
        from . import errors

        return getattr(errors, name)
    if name in __all__:
        from . import session

        return getattr(session, name)
    raise AttributeError(f"module 'moed' has no attribute {name!r}")
