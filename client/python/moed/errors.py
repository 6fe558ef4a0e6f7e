"""The library's errors as exceptions."""
from __future__ import annotations

from typing import Any

from ._native import ffi, lib


class Error(Exception):
    """What libmoed reports: `code` ("not_found"), and whether the same call may succeed later (`retry`)."""

    def __init__(self, code: str, message: str, retry: bool) -> None:
        super().__init__(message)
        self.code = code
        self.retry = retry


class TimeoutError(Error):  # pylint: disable=redefined-builtin
    """Nothing came in the time that the caller gave."""


def check(code: int, error: Any) -> None:
    """Raises the error of a call that failed."""
    if code == lib.MOED_OK:
        return
    name = ffi.string(lib.moed_code_name(code)).decode()
    kind = TimeoutError if code == lib.MOED_ERROR_TIMEOUT else Error
    raise kind(name, ffi.string(error.message).decode(errors="replace"), error.retry)
