"""The vocabulary of the golden models: byte-level BPE, 320 tokens.

Ids 0..255 are the bytes themselves, 256..316 the merges in their order, 317..319 the three
special tokens. Small enough to check by eye, complete enough for any text to be encoded.
"""

from gguf import GGUFWriter, TokenType

MERGES = """
e r|t h|th e|i n|in g|a n|an d|o u|ou t|r o|m o|mo d|e l|mod el|e x|ex p|exp er|exper t
Ġ t|Ġt h|Ġ the|Ġ a|Ġa n|Ġ and|Ġ m|Ġm o|Ġ model|Ġ expert|Ġ i|Ġi s|Ġ in|Ġ o|Ġo f|o r|o n|Ġo n
l o|lo a|loa d|c a|c h|ca ch|cach e|g a|ga t|gat e|r ou|rou t|rout e|H e|l l|He ll|Hell o
1 2|i t|t o|to k|e n|tok en|l e|Ġ token
"""
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SIZE = 320


def byte_characters():
    """The printable character that stands for each byte in byte-level BPE vocabularies.

    Printable bytes of Latin-1 stand for themselves; the others, in order, take the code points
    from 256 on (a space becomes U+0120).
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    replaced = [b for b in range(256) if b not in printable]
    codes = {b: b for b in printable} | {b: 256 + i for i, b in enumerate(replaced)}
    return [chr(codes[b]) for b in range(256)]


def build():
    """(tokens, merges), with every rule that a reader may rely on checked."""
    tokens = byte_characters()
    merges = [rule for line in MERGES.split("\n") for rule in line.split("|") if rule]
    for rule in merges:
        left, right = rule.split(" ")
        assert left in tokens and right in tokens, f"merge {rule!r} of an unknown part"
        assert left + right not in tokens, f"merge {rule!r} makes a token twice"
        tokens.append(left + right)
    tokens += SPECIAL
    assert len(tokens) == SIZE, len(tokens)
    return tokens, merges


def first_special():
    return SIZE - len(SPECIAL)


def add_to(writer: GGUFWriter):
    tokens, merges = build()
    types = [TokenType.NORMAL] * first_special() + [TokenType.CONTROL] * len(SPECIAL)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(tokens.index("<|endoftext|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_pad_token_id(tokens.index("<|endoftext|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)
