#!/usr/bin/env python3
"""moed's side of bench/peer: requests to a running deployment through libmoed. See peer_protocol.py.

The worker times a single stream: it knows when the request began and when each token was ready. Several streams are
timed here, by the arrival of their tokens.
"""

import argparse
import os
import select
import sys
from pathlib import Path

import peer_protocol


class Stream:
    def __init__(self, request):
        self.request = request
        self.tokens = []
        self.result = None


class Library:
    """libmoed by client/python, which takes the structures from moed.h. It needs cffi."""

    def __init__(self, path):
        os.environ["MOED_LIBRARY"] = path
        sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "client" / "python"))
        from moed._native import ffi, lib, new

        self.ffi, self.lib, self.new = ffi, lib, new
        self.error, self.event = ffi.new("struct moed_error *"), ffi.new("const struct moed_event **")
        session, attach = ffi.new("struct moed_session **"), new("moed_attach_options")
        name = ffi.new("char[]", b"bench-peer")
        attach.client = name
        self.check(lib.moed_attach(attach, session, self.error))
        self.session = session[0]

    def version(self):
        return self.ffi.string(self.lib.moed_version()).decode()

    def check(self, code):
        if code:
            sys.exit("moed_side: " + self.ffi.string(self.error.message).decode(errors="replace"))

    def start(self, prompt, n):
        tokens, options = self.ffi.new("uint32_t[]", list(prompt)), self.new("moed_generate_options")
        options.tokens, options.token_count = tokens, len(prompt)
        options.ignore_end, options.max_tokens = True, n
        request = self.ffi.new("struct moed_request **")
        self.check(self.lib.moed_generate_start(self.session, options, request, self.error))
        return Stream(request[0])

    def read(self, stream, on_token):
        """Takes all events that have arrived."""
        while stream.result is None:
            code = self.lib.moed_request_next(stream.request, 0, self.event, self.error)
            if code == self.lib.MOED_ERROR_TIMEOUT:
                return
            self.check(code)
            event = self.event[0]
            for i in range(event.token_count if event.kind == self.lib.MOED_EVENT_TOKENS else 0):
                stream.tokens.append(event.tokens[i])
                on_token()
            if event.kind == self.lib.MOED_EVENT_DONE:
                stream.result = (event.result.prefill_ns, event.result.decode_ns)

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
            prefill_ns, decode_ns = streams[0].result
            answer.update(prefill_s=prefill_ns * 1e-9, decode_s=decode_ns * 1e-9, decoded=n - 1)
        return answer


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--library", required=True, help="libmoed.so")
    o = p.parse_args()
    library = Library(o.library)
    about = {"version": "moed " + library.version()}
    peer_protocol.serve(about, library.generate)


if __name__ == "__main__":
    main()
