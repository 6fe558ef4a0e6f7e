"""Copies a model file with keys that make its last six tokens those for fill-in-the-middle, in the order of NAMES. usage: fim_model.py MODEL OUT"""
import struct
import sys

NAMES = ("pre", "suf", "mid", "pad", "rep", "sep")
ALIGNMENT = 32  # of the tensors' data: the header may only grow by multiples of it
HEADER = 24     # magic, version, tensors, keys
U32, STRING = 4, 8


def text(value):
    return struct.pack("<Q", len(value)) + value


def key(name, kind, value):
    return text(name.encode()) + struct.pack("<I", kind) + value


data = open(sys.argv[1], "rb").read()
magic, tensors, keys = data[:8], *struct.unpack("<QQ", data[8:HEADER])
at = data.index(b"tokenizer.ggml.tokens") + len("tokenizer.ggml.tokens") + 8  # behind the types of array and elements
first = struct.unpack("<Q", data[at:at + 8])[0] - len(NAMES)
more = b"".join(key(f"tokenizer.ggml.fim_{name}_token_id", U32, struct.pack("<I", first + i)) for i, name in enumerate(NAMES))
more += key("general.description", STRING, text(b"." * (-len(more + key("general.description", STRING, text(b""))) % ALIGNMENT)))
open(sys.argv[2], "wb").write(magic + struct.pack("<QQ", tensors, keys + len(NAMES) + 1) + more + data[HEADER:])
print(first)
