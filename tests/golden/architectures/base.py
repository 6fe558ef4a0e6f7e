"""What the architectures have in common: the tensors of a GGUF file, its keys, transformers' names.

An architecture is a class that changes what is different. Tensors are drawn and quantised in the
layout of transformers under the names of GGUF; `file_tensors` turns that into the file's layout as
converters do. Deviations keep activations near 1, give logits a deviation of 1 to 3 and spread the
gates.
"""

import numpy as np
import torch

import tiny_vocabulary


def matrix(name, shape, gain=1.5):
    """A tensor of the model's type; the deviation of a product is gain times that of its input."""
    return name, shape, "matrix", gain / np.sqrt(shape[-1])


def norm(name, size):
    return name, (size,), "norm", 0


def bias(name, shape, deviation=0.5):
    return name, shape, "bias", deviation


def router(name, shape, gain=2.0):
    return name, shape, "router", gain / np.sqrt(shape[-1])


def interleave_halves(rows, heads):
    """q or k rows of transformers' rotation (pairs half a head apart) for adjacent pairs."""
    per_head = rows.shape[0] // heads
    return rows.reshape(heads, 2, per_head // 2, -1).swapaxes(1, 2).reshape(rows.shape)


class Architecture:
    """Grouped-query attention, routed experts in every layer: the least of an architecture."""

    ffn_norm = "ffn_norm"
    gate_name = "mlp.gate.weight"  # of the router in transformers

    # ---- tensors: (GGUF name, numpy shape, role, standard deviation), in file order

    def tensors(self, spec):
        d = spec.d_model
        yield "token_embd.weight", (tiny_vocabulary.SIZE, d), "matrix", 2 / np.sqrt(d)
        yield from self.norm_tensors("output_norm", d)
        if not spec.tied:
            yield "output.weight", (tiny_vocabulary.SIZE, d), "matrix", 2 / np.sqrt(d)
        for layer in range(spec.layers):
            block = f"blk.{layer}."
            yield from self.norm_tensors(block + "attn_norm", d)
            yield from self.attention_tensors(spec, block)
            yield from self.norm_tensors(block + self.ffn_norm, d)
            if layer < spec.dense_layers:
                yield from self.ffn_tensors(block, "", d, spec.dense_width)
            else:
                yield from self.router_tensors(spec, block)
                yield from self.expert_tensors(spec, block)
                if spec.shared_width:
                    yield from self.ffn_tensors(block, "_shexp", d, spec.shared_width)
                    yield from self.shared_gate_tensors(spec, block)

    def norm_tensors(self, name, size):
        yield norm(name + ".weight", size)

    def attention_tensors(self, spec, block):
        q, kv = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
        for name, rows in (("q", q), ("k", kv), ("v", kv)):
            yield matrix(f"{block}attn_{name}.weight", (rows, spec.d_model), 1.3)
            yield from self.projection_bias(f"{block}attn_{name}.bias", rows)
        yield from self.qk_norm_tensors(spec, block)
        yield matrix(block + "attn_output.weight", (spec.d_model, q))

    def projection_bias(self, name, rows):
        return ()

    def qk_norm_tensors(self, spec, block):
        return ()

    def router_tensors(self, spec, block):
        yield router(block + "ffn_gate_inp.weight", (spec.experts, spec.d_model))

    def expert_tensors(self, spec, block):
        e, w, d = spec.experts, spec.width, spec.d_model
        yield matrix(block + "ffn_gate_exps.weight", (e, w, d))
        yield matrix(block + "ffn_up_exps.weight", (e, w, d))
        yield matrix(block + "ffn_down_exps.weight", (e, d, w))

    def ffn_tensors(self, block, suffix, d, width):
        yield matrix(f"{block}ffn_gate{suffix}.weight", (width, d))
        yield matrix(f"{block}ffn_up{suffix}.weight", (width, d))
        yield matrix(f"{block}ffn_down{suffix}.weight", (d, width))

    def shared_gate_tensors(self, spec, block):
        return ()

    def adjust(self, spec, values, rng):
        """Changes drawn float32 values in place, by name, where independent ones would not do."""

    # ---- the file

    def keys(self, spec, writer):
        """All keys but the general ones and the vocabulary's."""
        writer.add_block_count(spec.layers + spec.further_layers)
        writer.add_context_length(spec.context)
        writer.add_embedding_length(spec.d_model)
        writer.add_feed_forward_length(spec.dense_width or spec.width)
        writer.add_head_count(spec.heads)
        writer.add_head_count_kv(spec.kv_heads)
        writer.add_layer_norm_rms_eps(spec.eps)
        writer.add_rope_freq_base(spec.rope.base)
        writer.add_rope_dimension_count(spec.rotated)
        writer.add_expert_count(spec.experts)
        writer.add_expert_used_count(spec.experts_used)
        writer.add_vocab_size(tiny_vocabulary.SIZE)
        self.head_size_keys(spec, writer)
        self.own_keys(spec, writer)

    def head_size_keys(self, spec, writer):
        if spec.explicit_head_dim:
            writer.add_key_length(spec.head_dim)
            writer.add_value_length(spec.head_dim)

    def own_keys(self, spec, writer):
        writer.add_expert_feed_forward_length(spec.width)

    def file_tensors(self, spec, tensors):
        """{name: (stored, type)} in the file's layout and order."""
        return tensors

    # ---- transformers

    layer_names = {
        "attn_norm.weight": "input_layernorm.weight",
        "attn_norm.bias": "input_layernorm.bias",
        "attn_output.weight": "self_attn.o_proj.weight",
        "attn_output.bias": "self_attn.o_proj.bias",
        "attn_q_norm.weight": "self_attn.q_norm.weight",
        "attn_k_norm.weight": "self_attn.k_norm.weight",
        "ffn_down_exps.weight": "mlp.experts.down_proj",
    } | {f"attn_{n}.{p}": f"self_attn.{n}_proj.{p}" for n in "qkv" for p in ("weight", "bias")}

    def names(self):
        """{GGUF name after "blk.N.": transformers' name after "model.layers.N."}."""
        norms = {f"{self.ffn_norm}.{p}": f"post_attention_layernorm.{p}" for p in ("weight", "bias")}
        return self.layer_names | norms | {"ffn_gate_inp.weight": self.gate_name}

    def state(self, spec, exact):
        """transformers' state dict from {GGUF name: float64 array in transformers' layout}."""
        state = {
            "model.embed_tokens.weight": exact["token_embd.weight"],
            "lm_head.weight": exact.get("output.weight", exact["token_embd.weight"]),
            "model.norm.weight": exact["output_norm.weight"],
        }
        for layer in range(spec.layers):
            block, prefix = f"blk.{layer}.", f"model.layers.{layer}."
            for ours, theirs in self.names().items():
                if block + ours in exact:
                    state[prefix + theirs] = exact[block + ours]
            if layer >= spec.dense_layers:
                state[prefix + "mlp.experts.gate_up_proj"] = self.fused_experts(exact, block)
        return state

    def fused_experts(self, exact, block):
        return np.concatenate([exact[f"{block}ffn_{n}_exps.weight"] for n in ("gate", "up")], axis=1)

    def rope_parameters(self, spec):
        return {"rope_type": "default", "rope_theta": spec.rope.base}

    def common_config(self, spec):
        return dict(
            vocab_size=tiny_vocabulary.SIZE,
            hidden_size=spec.d_model,
            num_hidden_layers=spec.layers,
            num_attention_heads=spec.heads,
            num_key_value_heads=spec.kv_heads,
            num_experts_per_tok=spec.experts_used,
            rms_norm_eps=spec.eps,
            max_position_embeddings=spec.context,
            rope_parameters=self.rope_parameters(spec),
            tie_word_embeddings=spec.tied,
            attn_implementation="eager",
            experts_implementation="eager",
            pad_token_id=None,
            bos_token_id=None,
            eos_token_id=None,
        )

    def empty_model(self, spec):
        """transformers' model of these sizes, weights not set yet."""
        raise NotImplementedError(spec.arch)

    def model(self, spec, exact):
        """transformers' model in float64."""
        model = self.empty_model(spec).double().eval()
        state = {n: torch.from_numpy(np.array(v)) for n, v in self.state(spec, exact).items()}
        model.load_state_dict(state, strict=True)
        return model
