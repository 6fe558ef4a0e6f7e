#!/usr/bin/env python3
"""The peer's side of bench/peer: llama.cpp through the low-level interface of llama-cpp-python. See peer_protocol.py.

Each step is one llama_decode; numpy finds the largest logits, which are the next tokens. There are two contexts with
the library's defaults but for threads and sizes: one for a single stream, one for all streams.
"""

import argparse
import ctypes
import sys

import llama_cpp as llama
import numpy

import peer_protocol


class Context:
    def __init__(self, model, n_streams, n_ctx, threads):
        params = llama.llama_context_default_params()
        params.n_seq_max = n_streams
        params.n_ctx = n_ctx * n_streams
        params.n_batch = params.n_ubatch = 512
        params.n_threads = params.n_threads_batch = threads
        self.handle = llama.llama_init_from_model(model, params)
        if not self.handle:
            sys.exit("llama_side: no context")
        self.n_vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
        self.batch = llama.llama_batch_init(512, 0, 1)

    def clear(self):
        llama.llama_memory_clear(llama.llama_get_memory(self.handle), True)

    def decode(self, rows):
        """rows: (token, position, stream, logits wanted). Returns the largest logit's token of each wanted row."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for i, (token, position, stream, wanted) in enumerate(rows):
            batch.token[i] = token
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = stream
            batch.logits[i] = wanted
        code = llama.llama_decode(self.handle, batch)
        if code != 0:
            sys.exit(f"llama_side: llama_decode failed ({code})")
        return [self.largest(i) for i, row in enumerate(rows) if row[3]]

    def largest(self, row):
        logits = llama.llama_get_logits_ith(self.handle, row)
        array = numpy.ctypeslib.as_array(ctypes.cast(logits, ctypes.POINTER(ctypes.c_float)), (self.n_vocab,))
        return int(array.argmax())


def generate(context, prompts, n):
    context.clear()
    clock = peer_protocol.Clock(len(prompts))
    answers = []
    for stream, prompt in enumerate(prompts):
        for first in range(0, len(prompt), 512):
            piece = prompt[first : first + 512]
            last = first + len(piece) == len(prompt)
            rows = [(t, first + i, stream, last and i + 1 == len(piece)) for i, t in enumerate(piece)]
            largest = context.decode(rows)
        answers.append(largest)
        clock.token(stream)
    for step in range(n - 1):
        rows = [(a[-1], len(prompts[s]) + step, s, True) for s, a in enumerate(answers)]
        for stream, token in enumerate(context.decode(rows)):
            answers[stream].append(token)
            clock.token(stream)
    return clock.result(answers)


def silence(level, text, data):
    if level == 4:  # errors
        sys.stderr.write(text.decode(errors="replace"))


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--model", required=True)
    p.add_argument("--threads", type=int, required=True)
    p.add_argument("--streams", type=int, required=True)
    p.add_argument("--ctx", type=int, required=True, help="positions of a stream")
    o = p.parse_args()

    callback = llama.llama_log_callback(silence)
    llama.llama_log_set(callback, None)
    llama.llama_backend_init()
    model = llama.llama_model_load_from_file(o.model.encode(), llama.llama_model_default_params())
    if not model:
        sys.exit(f"llama_side: cannot load {o.model}")
    single = Context(model, 1, o.ctx, o.threads)
    several = Context(model, o.streams, o.ctx, o.threads)
    about = {
        "version": "llama-cpp-python " + llama.__version__,
        "system": llama.llama_print_system_info().decode(),
        "vocab": single.n_vocab,
    }
    peer_protocol.serve(about, lambda prompts, n: generate(single if len(prompts) == 1 else several, prompts, n))


if __name__ == "__main__":
    main()
