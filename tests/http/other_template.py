"""Copies the demo model with a chat template that shows tools and reasoning. usage: other_template.py MODEL OUT [--think-token]

--think-token: <think> is one token, number 0, in place of <|endoftext|>."""
import struct
import sys

TEMPLATE = """{%- if tools %}<|im_start|>system
Tools:
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}A call: <tool_call>
{"name": NAME, "arguments": {...}}
</tool_call><|im_end|>
{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}
{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>
{% endif %}{{ message.content }}{% for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined %}{% if enable_thinking %}<think>
{% else %}<think>

</think>

{% endif %}{% endif %}{% endif %}"""
ALIGNMENT = 32  # of the tensors' data: the header may only grow by multiples of it

data = open(sys.argv[1], "rb").read()
shorter = 0
if "--think-token" in sys.argv:
    first, mark, user_defined = b"<|endoftext|>", b"<think>", 4
    at = data.index(b"tokenizer.ggml.token_type") + len("tokenizer.ggml.token_type") + 16
    data = data[:at] + struct.pack("<i", user_defined) + data[at + 4:]
    at = data.index(b"tokenizer.ggml.tokens") + len("tokenizer.ggml.tokens") + 16
    assert data[at + 8:at + 8 + len(first)] == first
    data = data[:at] + struct.pack("<Q", len(mark)) + mark + data[at + 8 + len(first):]
    shorter = len(first) - len(mark)
at = data.index(b"tokenizer.chat_template") + len("tokenizer.chat_template") + 4
old = struct.unpack("<Q", data[at:at + 8])[0]
new = TEMPLATE.encode()
new += b"{#" + b" " * ((old + shorter - len(new) - 4) % ALIGNMENT) + b"#}"
open(sys.argv[2], "wb").write(data[:at] + struct.pack("<Q", len(new)) + new + data[at + 8 + old:])
