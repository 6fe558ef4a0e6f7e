"""Gemma 4's MoE model: layers with a window have other heads and another rotation than the layers
that see everything, and a dense feed-forward part stands beside the experts."""

import numpy as np
import transformers
from gguf import GGMLQuantizationType as Type

import tiny_vocabulary

from .base import Architecture, matrix, norm

UNTURNED = 1e30  # divides the frequencies of the pairs that do not turn
TURNED_SHARE = 0.25


class Gemma4(Architecture):
    """spec.global_heads: of the layers without a window, key-value heads and the heads' size."""

    layer_names = {
        "attn_norm.weight": "input_layernorm.weight",
        "attn_q.weight": "self_attn.q_proj.weight",
        "attn_k.weight": "self_attn.k_proj.weight",
        "attn_v.weight": "self_attn.v_proj.weight",
        "attn_output.weight": "self_attn.o_proj.weight",
        "attn_q_norm.weight": "self_attn.q_norm.weight",
        "attn_k_norm.weight": "self_attn.k_norm.weight",
        "post_attention_norm.weight": "post_attention_layernorm.weight",
        "ffn_norm.weight": "pre_feedforward_layernorm.weight",
        "ffn_gate.weight": "mlp.gate_proj.weight",
        "ffn_up.weight": "mlp.up_proj.weight",
        "ffn_down.weight": "mlp.down_proj.weight",
        "post_ffw_norm_1.weight": "post_feedforward_layernorm_1.weight",
        "pre_ffw_norm_2.weight": "pre_feedforward_layernorm_2.weight",
        "post_ffw_norm_2.weight": "post_feedforward_layernorm_2.weight",
        "post_ffw_norm.weight": "post_feedforward_layernorm.weight",
        "ffn_gate_inp.weight": "router.proj.weight",
        "ffn_gate_inp.scale": "router.scale",
        "ffn_gate_up_exps.weight": "experts.gate_up_proj",
        "ffn_down_exps.weight": "experts.down_proj",
        "ffn_down_exps.scale": "router.per_expert_scale",
        "layer_output_scale.weight": "layer_scalar",
    }

    def names(self):
        return self.layer_names

    def is_global(self, spec, layer):
        return layer in spec.attention_layers

    def heads(self, spec, layer):
        """(key-value heads, their size)"""
        return spec.global_heads if self.is_global(spec, layer) else (spec.kv_heads, spec.head_dim)

    def tensors(self, spec):
        d = spec.d_model
        yield "token_embd.weight", (tiny_vocabulary.SIZE, d), "matrix", 2 / np.sqrt(d)
        yield norm("output_norm.weight", d)
        for layer in range(spec.layers):
            yield from self.layer_tensors(spec, layer, f"blk.{layer}.")

    def layer_tensors(self, spec, layer, block):
        d, experts, width = spec.d_model, spec.experts, spec.width
        kv_heads, head = self.heads(spec, layer)
        yield norm(block + "attn_norm.weight", d)
        yield matrix(block + "attn_q.weight", (spec.heads * head, d), 1.3)
        yield matrix(block + "attn_k.weight", (kv_heads * head, d), 1.3)
        if not self.is_global(spec, layer):
            yield matrix(block + "attn_v.weight", (kv_heads * head, d), 1.3)
        yield norm(block + "attn_q_norm.weight", head)
        yield norm(block + "attn_k_norm.weight", head)
        yield matrix(block + "attn_output.weight", (d, spec.heads * head))
        yield norm(block + "post_attention_norm.weight", d)
        yield norm(block + "ffn_norm.weight", d)
        yield from self.ffn_tensors(block, "", d, spec.dense_width)
        for name in ("post_ffw_norm_1", "pre_ffw_norm_2", "post_ffw_norm_2", "post_ffw_norm"):
            yield norm(f"{block}{name}.weight", d)
        # the router's input is divided by the root of d
        yield block + "ffn_gate_inp.weight", (experts, d), "router", 2.0
        yield norm(block + "ffn_gate_inp.scale", d)
        yield matrix(block + "ffn_gate_up_exps.weight", (experts, 2 * width, d))
        yield matrix(block + "ffn_down_exps.weight", (experts, d, width))
        yield norm(block + "ffn_down_exps.scale", experts)
        yield norm(block + "layer_output_scale.weight", 1)

    def keys(self, spec, writer):
        super().keys(spec, writer)
        arch, kv_heads = spec.arch, [self.heads(spec, i)[0] for i in range(spec.layers)]
        for key in ("attention.head_count_kv", "rope.dimension_count"):
            del writer.kv_data[0][f"{arch}.{key}"]
        writer.add_head_count_kv(kv_heads)
        writer.add_key_length(spec.global_heads[1])
        writer.add_value_length(spec.global_heads[1])
        writer.add_rope_dimension_count(spec.global_heads[1])
        writer.add_uint32(f"{arch}.attention.key_length_swa", spec.head_dim)
        writer.add_uint32(f"{arch}.attention.value_length_swa", spec.head_dim)
        writer.add_uint32(f"{arch}.rope.dimension_count_swa", spec.head_dim)
        writer.add_float32(f"{arch}.rope.freq_base_swa", spec.windowed_base)
        writer.add_sliding_window(spec.window)
        writer.add_sliding_window_pattern([not self.is_global(spec, i) for i in range(spec.layers)])
        writer.add_float32(f"{arch}.final_logit_softcapping", spec.logit_cap)
        writer.add_uint32(f"{arch}.embedding_length_per_layer_input", 0)
        writer.add_uint32(f"{arch}.attention.shared_kv_layers", 0)

    def head_size_keys(self, spec, writer):
        """Set by keys."""

    def file_tensors(self, spec, tensors):
        pairs = spec.global_heads[1] // 2
        factors = np.full(pairs, UNTURNED, dtype=np.float32)
        factors[: int(pairs * TURNED_SHARE)] = 1
        return tensors | {"rope_freqs.weight": (factors, Type.F32)}

    def state(self, spec, exact):
        state = {
            "model.embed_tokens.weight": exact["token_embd.weight"],
            "lm_head.weight": exact["token_embd.weight"],
            "model.norm.weight": exact["output_norm.weight"],
        }
        for layer in range(spec.layers):
            for ours, theirs in self.names().items():
                if f"blk.{layer}.{ours}" in exact:
                    state[f"model.layers.{layer}.{theirs}"] = exact[f"blk.{layer}.{ours}"]
        return state

    def rope_parameters(self, spec):
        return {
            "sliding_attention": {"rope_type": "default", "rope_theta": spec.windowed_base},
            "full_attention": {
                "rope_type": "proportional",
                "partial_rotary_factor": TURNED_SHARE,
                "rope_theta": spec.rope.base,
            },
        }

    def empty_model(self, spec):
        common = self.common_config(spec)
        del common["num_experts_per_tok"]
        kinds = ["full_attention" if self.is_global(spec, i) else "sliding_attention" for i in range(spec.layers)]
        config = transformers.Gemma4TextConfig(
            intermediate_size=spec.dense_width,
            moe_intermediate_size=spec.width,
            num_experts=spec.experts,
            top_k_experts=spec.experts_used,
            enable_moe_block=True,
            head_dim=spec.head_dim,
            global_head_dim=spec.global_heads[1],
            num_global_key_value_heads=spec.global_heads[0],
            attention_k_eq_v=True,
            layer_types=kinds,
            sliding_window=spec.window,
            final_logit_softcapping=spec.logit_cap,
            hidden_size_per_layer_input=0,
            **common,
        )
        return transformers.Gemma4ForCausalLM(config)
