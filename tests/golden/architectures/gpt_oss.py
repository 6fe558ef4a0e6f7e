"""gpt-oss: attention sinks, a sliding window in every other layer, YaRN, biases, clamped SwiGLU.

Its converter takes apart the gate and up rows, which alternate in the original, and calls the norm
before the experts post_attention_norm. Nothing in the file tells that windows are in the even
layers, the clamp's 7 and 1.702, or that the published models set truncate=False for
YaRN: see README.md.
"""

import numpy as np
import transformers
from gguf import RopeScalingType

from .base import Architecture, bias, matrix


class GptOss(Architecture):
    ffn_norm = "post_attention_norm"
    gate_name = "mlp.router.weight"
    layer_names = Architecture.layer_names | {
        "attn_sinks.weight": "self_attn.sinks",
        "ffn_gate_inp.bias": "mlp.router.bias",
        "ffn_down_exps.bias": "mlp.experts.down_proj_bias",
    }

    def attention_tensors(self, spec, block):
        yield from super().attention_tensors(spec, block)
        yield bias(block + "attn_output.bias", (spec.d_model,))
        yield bias(block + "attn_sinks.weight", (spec.heads,), 2.0)

    def projection_bias(self, name, rows):
        yield bias(name, (rows,))

    def router_tensors(self, spec, block):
        yield from super().router_tensors(spec, block)
        yield bias(block + "ffn_gate_inp.bias", (spec.experts,))

    def expert_tensors(self, spec, block):
        """Gate and up are wide enough to meet their clamp at 7 at every tenth value."""
        e, w, d = spec.experts, spec.width, spec.d_model
        for name, shape, gain in (("gate", (e, w, d), 4), ("up", (e, w, d), 4), ("down", (e, d, w), 0.15)):
            yield matrix(f"{block}ffn_{name}_exps.weight", shape, gain)
            yield bias(f"{block}ffn_{name}_exps.bias", shape[:2])

    def own_keys(self, spec, writer):
        writer.add_expert_feed_forward_length(spec.width)
        writer.add_sliding_window(spec.window)
        writer.add_rope_scaling_type(RopeScalingType.YARN)
        writer.add_rope_scaling_factor(spec.rope.factor)
        writer.add_rope_scaling_orig_ctx_len(spec.rope.original_context)

    def state(self, spec, exact):
        state = super().state(spec, exact)
        for layer in range(spec.layers):
            experts = f"model.layers.{layer}.mlp.experts."
            gate, up = (f"blk.{layer}.ffn_{n}_exps." for n in ("gate", "up"))
            weights = np.stack([exact[gate + "weight"], exact[up + "weight"]], axis=2)
            biases = np.stack([exact[gate + "bias"], exact[up + "bias"]], axis=2)
            flat = weights.reshape(spec.experts, 2 * spec.width, spec.d_model)
            state[experts + "gate_up_proj"] = flat.swapaxes(1, 2)
            state[experts + "gate_up_proj_bias"] = biases.reshape(spec.experts, -1)
            state[experts + "down_proj"] = state[experts + "down_proj"].swapaxes(1, 2)
        return state

    def rope_parameters(self, spec):
        return {
            "rope_type": "yarn",
            "rope_theta": spec.rope.base,
            "factor": spec.rope.factor,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": True,
            "original_max_position_embeddings": spec.rope.original_context,
        }

    def empty_model(self, spec):
        config = transformers.GptOssConfig(
            intermediate_size=spec.width,
            num_local_experts=spec.experts,
            head_dim=spec.head_dim,
            sliding_window=spec.window,
            **self.common_config(spec),
        )
        return transformers.GptOssForCausalLM(config)
