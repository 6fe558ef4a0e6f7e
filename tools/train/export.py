"""Writes a checkpoint as GGUF files: one in F32, one in Q8_0.

In the Q8_0 file the matrices are Q8_0; the norms and the gates of the experts,
which decide the routing, stay F32.  The files carry the tokenizer and the chat
template.  read_weights() reads an F32 or Q8_0 file back.
"""
import argparse
import json
import pathlib

import gguf
import numpy as np
import torch

import model as demo

NAME = "moed demo"
LICENSE = "apache-2.0"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
DOCUMENT_END, MESSAGE_END = "<|endoftext|>", "<|im_end|>"
# Attribute of a layer -> tensor of the file; `gate_up` is split in two.
LAYER_TENSORS = {
    "attention_norm": "attn_norm", "query": "attn_q", "key": "attn_k", "value": "attn_v",
    "query_norm": "attn_q_norm", "key_norm": "attn_k_norm", "output": "attn_output",
    "expert_norm": "ffn_norm", "router": "ffn_gate_inp", "down": "ffn_down_exps"}


def tensors(model):
    """Yields (name, array) in the file's order."""
    yield "token_embd.weight", model.embedding
    yield "output_norm.weight", model.norm
    for number, layer in enumerate(model.layers):
        for attribute, name in LAYER_TENSORS.items():
            yield f"blk.{number}.{name}.weight", getattr(layer, attribute)
        gate, up = layer.gate_up.chunk(2, 1)
        yield f"blk.{number}.ffn_gate_exps.weight", gate
        yield f"blk.{number}.ffn_up_exps.weight", up


def stays_float(name, array):
    return array.ndim == 1 or "ffn_gate_inp" in name


def write_keys(writer, shape, file_type):
    writer.add_name(NAME)
    writer.add_license(LICENSE)
    writer.add_file_type(file_type)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.expert_width)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_width)
    writer.add_value_length(shape.head_width)
    writer.add_layer_norm_rms_eps(shape.epsilon)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_rope_dimension_count(shape.head_width)
    writer.add_expert_count(shape.experts)
    writer.add_expert_used_count(shape.experts_used)
    writer.add_expert_feed_forward_length(shape.expert_width)
    writer.add_vocab_size(shape.vocabulary)


def write_tokenizer(writer, path, size):
    saved = json.loads(path.read_text())
    numbers = saved["model"]["vocab"]
    words = [None] * size
    for word, number in numbers.items():
        words[number] = word
    control = {t["content"] for t in saved["added_tokens"]}
    merges = [m if isinstance(m, str) else " ".join(m) for m in saved["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(words)
    writer.add_token_types([int(gguf.TokenType.CONTROL if w in control else gguf.TokenType.NORMAL)
                            for w in words])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(numbers[DOCUMENT_END])
    writer.add_eos_token_id(numbers[MESSAGE_END])
    writer.add_pad_token_id(numbers[DOCUMENT_END])
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def write(model, tokenizer, path, quantised):
    partial = path.with_suffix(".part")
    writer = gguf.GGUFWriter(partial, "qwen3moe")
    file_type = gguf.LlamaFileType.MOSTLY_Q8_0 if quantised else gguf.LlamaFileType.ALL_F32
    write_keys(writer, model.shape, file_type)
    write_tokenizer(writer, tokenizer, model.shape.vocabulary)
    for name, tensor in tensors(model):
        array = np.ascontiguousarray(tensor.detach().numpy(), dtype=np.float32)
        if quantised and not stays_float(name, array):
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quantize(array, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.replace(path)
    return path.stat().st_size


def read_weights(path, model):
    """Fills `model` from a file that write() made."""
    found = {t.name: gguf.dequantize(t.data, t.tensor_type) for t in gguf.GGUFReader(path).tensors}
    with torch.no_grad():
        for name, tensor in tensors(model):
            tensor.copy_(torch.from_numpy(np.array(found[name])).view_as(tensor))
    return model


def load(path):
    """The model of a checkpoint or of a GGUF file with the demo's shape."""
    path = pathlib.Path(path)
    if path.suffix == ".gguf":
        return read_weights(path, demo.Model(demo.Shape()))
    saved = torch.load(path, weights_only=False)
    model = demo.Model(demo.Shape(**saved["shape"]))
    model.load_state_dict(saved["model"])
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=pathlib.Path, required=True, help="work folder")
    parser.add_argument("--out", type=pathlib.Path, help="the Q8_0 file (default: WORK/latest.gguf)")
    args = parser.parse_args()
    model = load(args.work / "checkpoint.pt")
    tokenizer = args.work / "tokenizer.json"
    out = args.out or args.work / "latest.gguf"
    print(out, write(model, tokenizer, out, True), "bytes")
    full = args.work / "latest-f32.gguf"
    print(full, write(model, tokenizer, full, False), "bytes")


if __name__ == "__main__":
    main()
