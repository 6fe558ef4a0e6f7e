#!/usr/bin/env python3
"""moed's side of bench/peer: requests to a running deployment through libmoed. See peer_protocol.py.

The worker times a single stream: it knows when the request began and when each token was ready. Several streams are
timed here, by the arrival of their tokens.
"""

import argparse
import ctypes
import select
import sys

import peer_protocol

EVENT_TOKENS, EVENT_DONE = 1, 3
ERROR_TIMEOUT = 10


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("retry", ctypes.c_bool), ("message", ctypes.c_char * 512)]


class Attach(ctypes.Structure):
    _fields_ = [("deployment", ctypes.c_char_p), ("client", ctypes.c_char_p), ("timeout_ms", ctypes.c_int)]


class Sampling(ctypes.Structure):
    _fields_ = [
        ("temperature", ctypes.c_float),
        ("top_k", ctypes.c_uint32),
        ("top_p", ctypes.c_float),
        ("min_p", ctypes.c_float),
        ("repetition_penalty", ctypes.c_float),
        ("repetition_window", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
    ]


class Generate(ctypes.Structure):
    _fields_ = [
        ("prompt", ctypes.c_char_p),
        ("prompt_bytes", ctypes.c_size_t),
        ("tokens", ctypes.POINTER(ctypes.c_uint32)),
        ("token_count", ctypes.c_size_t),
        ("parse_special", ctypes.c_bool),
        ("ignore_end", ctypes.c_bool),
        ("max_tokens", ctypes.c_uint32),
        ("sampling", Sampling),
        ("stop", ctypes.c_void_p),
        ("stop_count", ctypes.c_size_t),
        ("record", ctypes.c_void_p),
    ]


class Result(ctypes.Structure):
    _fields_ = [
        ("reason", ctypes.c_int),
        ("prompt_tokens", ctypes.c_uint32),
        ("generated_tokens", ctypes.c_uint32),
        ("queue_ns", ctypes.c_uint64),
        ("prefill_ns", ctypes.c_uint64),
        ("decode_ns", ctypes.c_uint64),
    ]


class Event(ctypes.Structure):
    """The head of struct moed_event; the library also fills the rest."""

    _fields_ = [
        ("kind", ctypes.c_int),
        ("tokens", ctypes.POINTER(ctypes.c_uint32)),
        ("token_count", ctypes.c_size_t),
        ("text", ctypes.c_void_p),
        ("text_bytes", ctypes.c_size_t),
        ("row", ctypes.c_uint32),
        ("logits", ctypes.c_void_p),
        ("logit_count", ctypes.c_size_t),
        ("result", Result),
        ("rest", ctypes.c_uint64 * 64),
    ]


class Stream:
    def __init__(self, request):
        self.request = request
        self.tokens = []
        self.result = None


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.moed_version.restype = ctypes.c_char_p
        self.error = Error()
        self.session = ctypes.c_void_p()
        attach = Attach(client=b"bench-peer")
        self.check(self.lib.moed_attach(ctypes.byref(attach), ctypes.byref(self.session), ctypes.byref(self.error)))

    def check(self, code):
        if code:
            sys.exit("moed_side: " + self.error.message.decode(errors="replace"))

    def start(self, prompt, n):
        tokens = (ctypes.c_uint32 * len(prompt))(*prompt)
        options = Generate(tokens=tokens, token_count=len(prompt), ignore_end=True, max_tokens=n)
        request = ctypes.c_void_p()
        code = self.lib.moed_generate_start(
            self.session, ctypes.byref(options), ctypes.byref(request), ctypes.byref(self.error)
        )
        self.check(code)
        return Stream(request)

    def read(self, stream, on_token):
        """Takes all events that have arrived."""
        event = Event()
        while stream.result is None:
            code = self.lib.moed_request_next(stream.request, 0, ctypes.byref(event), ctypes.byref(self.error))
            if code == ERROR_TIMEOUT:
                return
            self.check(code)
            for i in range(event.token_count if event.kind == EVENT_TOKENS else 0):
                stream.tokens.append(event.tokens[i])
                on_token()
            if event.kind == EVENT_DONE:
                stream.result = Result.from_buffer_copy(event.result)

    def generate(self, prompts, n):
        clock = peer_protocol.Clock(len(prompts))
        streams = [self.start(prompt, n) for prompt in prompts]
        poll, by_fd = select.poll(), {}
        for i, stream in enumerate(streams):
            fd = self.lib.moed_request_fd(stream.request)
            by_fd[fd] = i
            poll.register(fd, select.POLLIN)
        while by_fd:
            for fd, _ in poll.poll():
                i = by_fd[fd]
                self.read(streams[i], lambda i=i: clock.token(i))
                if streams[i].result is not None:
                    poll.unregister(fd)
                    del by_fd[fd]
        for stream in streams:
            self.lib.moed_request_free(stream.request)
            if len(stream.tokens) != n:
                sys.exit("moed_side: an answer ended early")
        answer = clock.result([stream.tokens for stream in streams])
        if len(streams) == 1:
            result = streams[0].result
            answer.update(prefill_s=result.prefill_ns * 1e-9, decode_s=result.decode_ns * 1e-9, decoded=n - 1)
        return answer


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--library", required=True, help="libmoed.so")
    o = p.parse_args()
    library = Library(o.library)
    about = {"version": "moed " + library.lib.moed_version().decode()}
    peer_protocol.serve(about, library.generate)


if __name__ == "__main__":
    main()
