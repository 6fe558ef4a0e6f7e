#!/usr/bin/env python3
"""Writes the seeds of the targets of messages, records, vocabularies and files that configure into tests/fuzz/corpus. The
repository holds them; run it again when the messages or this list change.

    make_seeds.py CORPUS"""
import os
import struct
import sys


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def number(field, value):
    return varint(field << 3) + varint(value)


def real(field, value):
    return varint(field << 3 | 5) + struct.pack("<f", value)


def data(field, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def packed(field, values):
    return data(field, b"".join(map(varint, values)))


ABI = number(1, 1)


def to_worker(field, body, request=7):
    return ABI + number(2, request) + data(field, body)


FRONTENDS = {
    "generate": to_worker(10, data(1, "Once upon") + number(4, 5) + data(6, "end") + data(6, ".") + number(7, 1)),
    "sampling": to_worker(10, packed(2, [1, 2, 3]) + data(5, real(2, 0.8) + number(5, 40) + real(6, 0.9) + number(26, 7)
                                                             + data(25, "edtskypmx") + data(20, "x")
                                                             + data(27, number(1, 3) + real(3, -1)) + real(16, 1.5))),
    "record": to_worker(10, packed(2, [1, 2, 3]) + data(8, number(1, 1) + number(2, 3) + number(3, 1)) + number(14, 1)),
    "continued": to_worker(10, packed(2, [1, 2]) + packed(43, [3, 4]) + number(44, 2) + packed(10, [5]) + number(12, 1)
                           + number(13, 4)),
    "grammar": to_worker(10, packed(2, [1]) + data(20, number(1, 3) + data(2, "[ab]+c") + data(3, "x"))),
    "schema": to_worker(10, packed(2, [1]) + data(20, number(1, 1) + data(2, '{"type":"array","items":{"enum":[1,"a"]}}'))),
    "cancel": to_worker(11, b""),
    "tokenize": to_worker(12, data(1, "a <s> b") + number(2, 1) + number(3, 1) + packed(4, [0, 2, 3, 5])),
    "detokenize": to_worker(13, packed(1, [1, 2, 3]) + number(3, 1)),
    "logits": to_worker(14, packed(1, [1, 2, 3]) + number(2, 1)),
    "model": to_worker(15, b""),
    "ack": to_worker(16, number(1, 9)),
    "logprobs": to_worker(17, packed(1, [1, 2, 3, 4]) + number(2, 2) + number(3, 3)),
}
CONTROL = {
    "health": ABI + data(10, b""),
    "policy": ABI + data(13, data(1, "moed") + data(2, "balance") + data(3, "value") + data(5, "global") + data(6, "probable")),
    "resize": ABI + data(14, data(1, "25%")),
    "attach": ABI + data(20, number(1, 3) + data(2, "worker") + number(3, 5)),
    "map": ABI + data(22, number(1, 2) + number(2, 9)),
    "experts": ABI + data(23, number(1, 5) + number(2, 1)),
    "session": ABI + data(30, data(1, "moed run") + number(2, 4711)),
    "cache": ABI + data(31, number(1, 1) + number(2, 8)),
    "unknown": ABI + data(77, b"x"),
}


def change(at, new):
    return struct.pack("<HB", at, len(new)) + new


# See the targets for the first byte; the offsets are those of headers and first records.
RECORDS = {
    "cache-index": b"\0" + change(640 + 64, struct.pack("<I", 41)) + change(640 + 128, struct.pack("<I", 7)),
    "cache-record": b"\0" + change(640 + 256, struct.pack("<IHHQ", 2, 1, 3, 9)),
    "expert-job": b"\1" + change(192 + 256, struct.pack("<QIIII", 2, 1, 5, 2, 1)),
    "expert-task": b"\1" + change(192, struct.pack("<IIIIIIII", 1, 0, 2, 0, 3, 0, 1, 0)),
}
REGIONS = {name: bytes([kind]) + change(8, struct.pack("<II", 1, 2)) + change(64, struct.pack("<Q", 1 << 40))
           for kind, name in enumerate(("residency", "tier", "pool", "store"))}
LEASE = {
    "plain": b"\0" + bytes([255, 0]) + b"\0" * 4,
    "fds": b"\2" + bytes([255, 3]) + b"\0" * 8 + bytes([5, 11]) + b"hello",
    "offer": b"\3" + bytes([255, 1]) + b"\0" * 8,
    "wrong-offer": b"\1" + bytes([255, 1]) + b"\0" * 4 + b"\1",
}


def token(text, kind=1, score=0):
    return bytes([len(text)]) + text + bytes([kind, score & 255])


def vocabulary(model, pre, flags, ids, tokens, merges, text):
    return (bytes([model, pre, flags, *ids, len(tokens)]) + b"".join(tokens) + bytes([len(merges)]) +
            b"".join(bytes([len(m)]) + m for m in merges) + text)


ALPHABET = [token(bytes([c])) for c in b"abc .\n1"]
TOKENIZER = {
    "bpe": vocabulary(0, 1, 8 | 16, (255, 255, 255), ALPHABET + [token(b"ab"), token(b"abc"), token(b"<|e|>", 3)],
                      [b"a b", b"ab c"], b"abc ab<|e|>cab a1"),
    "llama": vocabulary(1, 0, 4 | 8 | 64, (0, 1, 2), [token(b"<s>", 3), token(b"</s>", 3), token(b"<unk>", 2),
                                                     token(b"\xe2\x96\x81", 1, -1), token(b"a", 1, -2), token(b"\xe2\x96\x81a", 1, -1)],
                        [], b"a aa <s>\xff\xe4\xb8"),
    "gemma": vocabulary(2, 0, 16 | 64, (255, 255, 255), ALPHABET + [token(b"\n\n", 4), token(b"<turn|>", 4)], [b"a b"],
                        b"a\n\n\nb<turn|>"),
    "long": vocabulary(0, 0, 16, (255, 255, 255), ALPHABET + [b"\xffab\x04\x00"], [], b"a" * 40),
    "no-model": vocabulary(4, 7, 1, (9, 9, 9), ALPHABET, [b"nospace"], b"x"),
}
READER = {
    "layers": change(600, struct.pack("<I", 1024)) + change(624, struct.pack("<I", 7)),
    "tensor": change(50000, struct.pack("<QQ", 1 << 62, 3)),
}
KV_FILE = {
    "record": change(4096 + 16, struct.pack("<Q", 5)),
    "header": change(8, struct.pack("<Q", 5)),
    "foreign": b"\xff" + b"not a file of conversations",
}
CONFIG = {  # and `calibration`, a worker's
    "options": b"text = some words\ncount = 3k\nshare=0.25 # half of it\n\nyes = true\nlist = a\nlist = b\n",
    "wrong": b"cuont = 5\ncount 5\n= 5\ncount = 99999999999999999999\n",
}
HTTP_HEAD = {
    "plain": b"HTTP/1.1\nHost: localhost:8080\nContent-Length: 12\nOrigin: http://localhost:8080\n",
    "both": b"HTTP/1.1\nHost: 127.0.0.1\nContent-Length: 1\nTransfer-Encoding: chunked\n",
    "names": b"HTTP/1.1\nHost: one.example\nOrigin: https://three.example\n",
    "origins": b"HTTP/1.1\nHost: 127.0.0.1:1\nOrigin: http://a.localhost:9\n",
    "lengths": b"HTTP/1.0\nHost: [::1]:80\nContent-Length: 1, 1\nContent-Length: 2\nTransfer-Encoding: gzip, chunked\n",
    "hosts": b"HTTP/1.1\nHost: a\nHost: b\nHost : c\n",
}


def main():
    for folder, seeds in (("frontends", FRONTENDS), ("control", CONTROL), ("records", RECORDS), ("regions", REGIONS),
                          ("lease", LEASE), ("tokenizer", TOKENIZER), ("reader", READER), ("kv_file", KV_FILE),
                          ("config", CONFIG), ("http_head", HTTP_HEAD)):
        os.makedirs(os.path.join(sys.argv[1], folder), exist_ok=True)
        for name, text in seeds.items():
            with open(os.path.join(sys.argv[1], folder, name), "wb") as f:
                f.write(text)


if __name__ == "__main__":
    main()
