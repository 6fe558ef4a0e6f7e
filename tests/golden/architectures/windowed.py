"""Grouped attention that differs by layer: Laguna, Step-3.5, MiMo-V2, Trinity (afmoe) and
North-Mini-Code (cohere2moe). Windows in some layers, which may have other heads and another
rotation; gates of attention's output; the experts are DeepSeek's.

spec.attention_layers: the layers without a window. spec.layer_heads: (query heads, key-value heads)
of the layers with a window, where they differ from the others'.
"""

import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType as Type
from gguf import RopeScalingType
from transformers.modeling_outputs import CausalLMOutputWithPast

import tiny_vocabulary

from .base import bias, matrix, norm
from .routed import Glm4Moe

ROPE_FACTOR = 4.0  # of Step-3.5's slow pairs


class Windowed(Glm4Moe):
    """What they share. A gate has a row for each head, or for each value (spec.gate_by_value)."""

    ffn_norm = "ffn_norm"
    has_gate = True
    layer_names = Glm4Moe.layer_names | {
        "attn_gate.weight": "self_attn.g_proj.weight",
        "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
    }

    def projection_bias(self, name, rows):
        return ()

    def is_full(self, spec, layer):
        return layer in spec.attention_layers

    def heads(self, spec, layer):
        """(query heads, key-value heads)"""
        plain = (spec.heads, spec.kv_heads)
        return plain if self.is_full(spec, layer) else spec.layer_heads or plain

    def value_dim(self, spec):
        return spec.value_dim or spec.head_dim

    def attention_tensors(self, spec, block):
        layer = int(block.split(".")[1])
        heads, kv_heads = self.heads(spec, layer)
        for name, rows in (
            ("q", heads * spec.head_dim),
            ("k", kv_heads * spec.head_dim),
            ("v", kv_heads * self.value_dim(spec)),
        ):
            yield matrix(f"{block}attn_{name}.weight", (rows, spec.d_model), 1.3)
        yield from self.qk_norm_tensors(spec, block)
        if self.has_gate:
            rows = heads * self.value_dim(spec) if spec.gate_by_value else heads
            yield matrix(block + "attn_gate.weight", (rows, spec.d_model))
        yield matrix(block + "attn_output.weight", (spec.d_model, heads * self.value_dim(spec)))

    def kinds(self, spec):
        return ["full_attention" if self.is_full(spec, i) else "sliding_attention" for i in range(spec.layers)]

    def sparse(self, spec):
        return ["dense" if i < spec.dense_layers else "sparse" for i in range(spec.layers)]

    def keys(self, spec, writer):
        super().keys(spec, writer)
        if spec.layer_heads:
            for i, key in enumerate(("head_count", "head_count_kv")):
                del writer.kv_data[0][f"{spec.arch}.attention.{key}"]
                values = [self.heads(spec, layer)[i] for layer in range(spec.layers)]
                writer.add_array(f"{spec.arch}.attention.{key}", values)
        if spec.window:
            self.window_keys(spec, writer)

    def window_keys(self, spec, writer):
        writer.add_sliding_window(spec.window)
        writer.add_sliding_window_pattern([not self.is_full(spec, i) for i in range(spec.layers)])

    def head_size_keys(self, spec, writer):
        writer.add_key_length(spec.head_dim)
        writer.add_value_length(self.value_dim(spec))

    def windowed_rope_keys(self, spec, writer):
        writer.add_float32(f"{spec.arch}.rope.freq_base_swa", spec.windowed_base)

    def config_values(self, spec):
        common = self.common_config(spec)
        return common | dict(
            head_dim=spec.head_dim,
            layer_types=self.kinds(spec),
            sliding_window=spec.window,
            intermediate_size=spec.dense_width,
            moe_intermediate_size=spec.width,
        )


class Laguna(Windowed):
    """A softplus gate; a part of a head rotates in the layers that see everything, by YaRN there."""

    def own_keys(self, spec, writer):
        writer.add_leading_dense_block_count(spec.dense_layers)
        writer.add_expert_feed_forward_length(spec.width)
        writer.add_expert_shared_feed_forward_length(spec.shared_width)
        writer.add_expert_weights_scale(spec.router.scale)
        self.router_keys(spec, writer)
        if spec.window:
            self.windowed_rope_keys(spec, writer)
            writer.add_uint32(f"{spec.arch}.rope.dimension_count_swa", spec.head_dim)
        if spec.rope.kind == "yarn":
            writer.add_rope_scaling_type(RopeScalingType.YARN)
            writer.add_rope_scaling_factor(spec.rope.factor)
            writer.add_rope_scaling_orig_ctx_len(spec.rope.original_context)
            writer.add_rope_scaling_yarn_attn_factor(spec.rope.magnitude)

    def window_keys(self, spec, writer):
        """The pattern is the architecture's: the first of four layers has no window."""
        writer.add_sliding_window(spec.window)

    def rope_parameters(self, spec):
        part = {"partial_rotary_factor": spec.rotated / spec.head_dim}
        full = {"rope_type": "default", "rope_theta": spec.rope.base} | part
        if spec.rope.kind == "yarn":
            full |= {
                "rope_type": "yarn",
                "factor": spec.rope.factor,
                "original_max_position_embeddings": spec.rope.original_context,
                "attention_factor": spec.rope.magnitude,
            }
        windowed = {"rope_type": "default", "rope_theta": spec.windowed_base, "partial_rotary_factor": 1.0}
        return {"full_attention": full, "sliding_attention": windowed}

    def empty_model(self, spec):
        config = transformers.LagunaConfig(
            **self.config_values(spec),
            num_attention_heads_per_layer=[self.heads(spec, i)[0] for i in range(spec.layers)],
            mlp_layer_types=self.sparse(spec),
            num_experts=spec.experts,
            shared_expert_intermediate_size=spec.shared_width,
            moe_routed_scaling_factor=spec.router.scale,
            gating="per-element" if spec.gate_by_value else "per-head",
        )
        return transformers.LagunaForCausalLM(config)


class TextOnly(torch.nn.Module):
    """Step-3.7's text model with its output head: transformers has them with an image part only."""

    def __init__(self, model, spec):
        super().__init__()
        self.model = model
        self.lm_head = torch.nn.Linear(spec.d_model, tiny_vocabulary.SIZE, bias=False)

    def forward(self, tokens, past_key_values=None, use_cache=True):
        out = self.model(tokens, past_key_values=past_key_values, use_cache=use_cache)
        return CausalLMOutputWithPast(
            logits=self.lm_head(out.last_hidden_state), past_key_values=out.past_key_values
        )


class Step35(Windowed):
    """A sigmoid gate for each head; the layers that see everything rotate half of a head, slow pairs
    by the file's factors; limits by layer. transformers' norms are stored less 1."""

    limits = (0.0, 0.5, 0.0, 0.7, 0.0)
    shared_limits = (0.6, 0.0, 0.4, 0.0, 0.0)

    def own_keys(self, spec, writer):
        writer.add_leading_dense_block_count(spec.dense_layers)
        writer.add_expert_feed_forward_length(spec.width)
        writer.add_expert_shared_feed_forward_length(spec.shared_width)
        writer.add_expert_weights_scale(spec.router.scale)
        writer.add_expert_weights_norm(True)
        self.windowed_rope_keys(spec, writer)
        writer.add_array(f"{spec.arch}.swiglu_clamp_exp", list(self.limits[: spec.layers]))
        writer.add_array(f"{spec.arch}.swiglu_clamp_shexp", list(self.shared_limits[: spec.layers]))
        if spec.further_layers:
            writer.add_nextn_predict_layers(spec.further_layers)

    def llama3(self, spec):
        return {
            "rope_type": "llama3", "factor": ROPE_FACTOR, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        }

    def rope_factors(self, spec):
        """By transformers, of the half of a head that rotates; the rest of the tensor is not used."""
        rotary = self.empty_model(spec).model.rotary_emb
        half = spec.head_dim // 4
        plain = spec.rope.base ** (-np.arange(half) * 2.0 / (2 * half))
        factors = plain / rotary.full_attention_inv_freq.double().numpy()
        return np.concatenate([factors, np.full(half, 1e9)]).astype(np.float32)

    def file_tensors(self, spec, tensors):
        return tensors | {"rope_freqs.weight": (self.rope_factors(spec), Type.F32)}

    def rope_parameters(self, spec):
        full = {"rope_theta": spec.rope.base, "partial_rotary_factor": 0.5} | self.llama3(spec)
        windowed = {"rope_type": "default", "rope_theta": spec.windowed_base, "partial_rotary_factor": 1.0}
        return {"full_attention": full, "sliding_attention": windowed}

    def empty_model(self, spec):
        from transformers.models.step3p7 import modeling_step3p7 as step

        values = self.config_values(spec)
        text = transformers.Step3p7TextConfig(
            **(values | {"pad_token_id": tiny_vocabulary.SIZE - 1}),
            num_sliding_attention_heads=self.heads(spec, 1)[0],
            mlp_layer_types=self.sparse(spec),
            n_routed_experts=spec.experts,
            share_expert_dim=spec.shared_width,
            moe_router_scaling_factor=spec.router.scale,
            swiglu_limits=list(self.limits[: spec.layers]),
            swiglu_limits_shared=list(self.shared_limits[: spec.layers]),
        )
        return TextOnly(step.Step3p7TextModel(text), spec)

    def state(self, spec, exact):
        state = super().state(spec, exact)
        for name in state:
            if name.endswith("norm.weight"):
                state[name] = state[name] - 1
        return state


class MimoV2(Windowed):
    """Keys wider than values; sinks in the layers with a window, which have twice the key-value heads
    and see one position more than the file's number."""

    has_gate = False
    layer_names = Windowed.layer_names | {"attn_sinks.weight": "self_attn.sinks"}

    def qk_norm_tensors(self, spec, block):
        layer = int(block.split(".")[1])
        if not self.is_full(spec, layer):
            yield bias(block + "attn_sinks.weight", (self.heads(spec, layer)[0],), 1.0)

    def own_keys(self, spec, writer):
        writer.add_expert_feed_forward_length(spec.width)
        self.windowed_rope_keys(spec, writer)
        if not spec.early:
            writer.add_float32(f"{spec.arch}.attention.value_scale", spec.value_scale)

    def window_keys(self, spec, writer):
        writer.add_sliding_window(spec.window)
        pattern = [int(not self.is_full(spec, i)) for i in range(spec.layers)]
        writer.add_array(f"{spec.arch}.attention.sliding_window_pattern", pattern)

    def file_tensors(self, spec, tensors):
        """q, k and v share a tensor in the third layer, as in some files."""
        block, result = "blk.2.", {}
        for name, (stored, kind) in tensors.items():
            if name == block + "attn_q.weight":
                parts = [tensors[f"{block}attn_{n}.weight"][0] for n in "qkv"]
                result[block + "attn_qkv.weight"] = np.concatenate(parts), kind
            elif name not in (block + "attn_k.weight", block + "attn_v.weight"):
                result[name] = stored, kind
        return result

    def rope_parameters(self, spec):
        part = {"rope_type": "default", "partial_rotary_factor": spec.rotated / spec.head_dim}
        return {
            "full_attention": part | {"rope_theta": spec.rope.base},
            "sliding_attention": part | {"rope_theta": spec.windowed_base},
        }

    def empty_model(self, spec):
        config = transformers.MiMoV2FlashConfig(
            **(self.config_values(spec) | {"sliding_window": spec.window + 1}),
            v_head_dim=self.value_dim(spec),
            mlp_layer_types=self.sparse(spec),
            n_routed_experts=spec.experts,
            n_group=1,
            topk_group=1,
            norm_topk_prob=True,
            attention_value_scale=spec.value_scale,
        )
        return transformers.MiMoV2FlashForCausalLM(config)


class Afmoe(Windowed):
    """Norms before and after both parts, a sigmoid gate for each value, layers without a window do
    not rotate, embeddings times the root of their size."""

    gate_name = "mlp.router.gate.weight"
    layer_names = Windowed.layer_names | {
        "attn_gate.weight": "self_attn.gate_proj.weight",
        "exp_probs_b.bias": "mlp.expert_bias",
        "post_attention_norm.weight": "post_attention_layernorm.weight",
        "post_ffw_norm.weight": "post_mlp_layernorm.weight",
    }

    def names(self):
        return super().names() | {"ffn_norm.weight": "pre_mlp_layernorm.weight"}

    def attention_tensors(self, spec, block):
        yield from super().attention_tensors(spec, block)
        yield norm(block + "post_attention_norm.weight", spec.d_model)
        yield norm(block + "post_ffw_norm.weight", spec.d_model)

    def own_keys(self, spec, writer):
        writer.add_leading_dense_block_count(spec.dense_layers)
        writer.add_expert_feed_forward_length(spec.width)
        writer.add_expert_shared_count(spec.shared_count)
        writer.add_expert_weights_scale(spec.router.scale)
        writer.add_expert_weights_norm(True)

    def window_keys(self, spec, writer):
        """The pattern is the architecture's: the last of four layers has no window."""
        writer.add_sliding_window(spec.window)

    def rope_parameters(self, spec):
        return {"rope_type": "default", "rope_theta": spec.rope.base}

    def empty_model(self, spec):
        config = transformers.AfmoeConfig(
            **self.config_values(spec),
            num_dense_layers=spec.dense_layers,
            num_experts=spec.experts,
            num_shared_experts=spec.shared_count,
            route_scale=spec.router.scale,
            mup_enabled=True,
        )
        return transformers.AfmoeForCausalLM(config)


class Cohere2Moe(Windowed):
    """One norm for both parts: an RMS norm, or a LayerNorm without biases where the configuration has no epsilon
    of RMS norms (spec.layer_eps is 0); adjacent pairs, in layers with a window and dense ones; half the sum of
    the experts and the shared one; logits scaled."""

    has_gate = False
    layer_names = {
        name: theirs for name, theirs in Windowed.layer_names.items() if not name.startswith(("attn_gate", "exp_probs"))
    }

    def names(self):
        return {n: t for n, t in super().names().items() if not n.startswith("ffn_norm")}

    def tensors(self, spec):
        for tensor in super().tensors(spec):
            if "ffn_norm" not in tensor[0]:
                yield tensor

    def qk_norm_tensors(self, spec, block):
        return ()

    def router_tensors(self, spec, block):
        for tensor in super().router_tensors(spec, block):
            if "exp_probs_b" not in tensor[0]:
                yield tensor

    def own_keys(self, spec, writer):
        if not spec.layer_eps:
            del writer.kv_data[0][f"{spec.arch}.attention.layer_norm_rms_epsilon"]
        writer.add_layer_norm_eps(spec.layer_eps or spec.eps)
        writer.add_leading_dense_block_count(spec.dense_layers)
        writer.add_expert_feed_forward_length(spec.width)
        writer.add_expert_shared_count(spec.shared_count)
        writer.add_expert_shared_feed_forward_length(spec.shared_width)
        self.router_keys(spec, writer)
        writer.add_logit_scale(spec.logit_scale)

    def rope_parameters(self, spec):
        return {"rope_type": "default", "rope_theta": spec.rope.base}

    def empty_model(self, spec):
        values = self.config_values(spec)
        for name in ("rms_norm_eps", "moe_intermediate_size", "rope_parameters"):
            del values[name]
        config = transformers.Cohere2MoeConfig(
            **(values | {"intermediate_size": spec.width}),
            rope_theta=spec.rope.base,
            layer_norm_eps=spec.layer_eps or spec.eps,
            rms_norm_eps=spec.eps if spec.layer_eps else None,
            prefix_dense_intermediate_size=spec.dense_width,
            mlp_layer_types=self.sparse(spec),
            num_experts=spec.experts,
            num_shared_experts=spec.shared_count,
            expert_selection_fn="sigmoid",
            norm_topk_prob=spec.router.normalise,
            logit_scale=spec.logit_scale,
        )
        return transformers.Cohere2MoeForCausalLM(config)
