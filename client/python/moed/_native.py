"""libmoed through cffi. The declarations come from moed.h itself, so they cannot differ from the library's."""
from __future__ import annotations

import os
import re
from typing import Any

import cffi

_HERE = os.path.dirname(os.path.abspath(__file__))
# In an installed package the header lies beside this file, in a checkout in client/include.
_HEADERS = (os.path.join(_HERE, "moed.h"), os.path.join(_HERE, "..", "..", "include", "moed.h"))


def _declarations(header: str) -> str:
    """What cffi understands of a header: everything but the preprocessor's lines."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    text = re.sub(r'#ifdef __cplusplus.*?#endif', "", text, flags=re.S)
    text = re.sub(r"^#.*(?:\\\n.*)*$", "", text, flags=re.M)
    return re.sub(r"\b(?:MOED_API|MOED_MUST_USE)\b", "", text)


def _load() -> tuple[Any, Any]:
    ffi = cffi.FFI()
    for path in _HEADERS:
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                ffi.cdef(_declarations(f.read()))
            break
    else:
        raise ImportError("moed.h is missing beside moed/_native.py: install the package again")
    name = os.environ.get("MOED_LIBRARY", "libmoed.so.1")
    try:
        lib = ffi.dlopen(name)
    except OSError as e:
        raise ImportError(f"cannot load {name}: {e}; install libmoed1, or set MOED_LIBRARY to the path of libmoed.so") from None
    return ffi, lib


def new(kind: str) -> Any:
    """A zeroed structure that begins with its size."""
    struct = ffi.new(f"struct {kind} *")
    struct.size = ffi.sizeof(f"struct {kind}")
    return struct


ffi, lib = _load()
