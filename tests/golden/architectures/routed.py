"""Grouped attention with DeepSeek's feed-forward layers: GLM-4.5, dots.llm1, Ling 2.0, ERNIE 4.5,
K-EXAONE. MiniMax-M2 has their router without the rest.

The router's scores are sigmoids (ERNIE: a softmax), the choice adds a bias, the weights are the
chosen scores divided by their sum.
"""

import numpy as np
import transformers
from gguf import ExpertGatingFuncType

from .base import Architecture, bias, norm
from .deepseek import DeepseekFfn

SELECTION_BIAS = 0.2  # deviation; the scores are between 0 and 1


class Glm4Moe(DeepseekFfn):
    """Biases of q, k and v; norms of q and k in the larger models; a part of each head rotates."""

    ffn_norm = "post_attention_norm"
    layer_names = DeepseekFfn.layer_names | {"exp_probs_b.bias": "mlp.gate.e_score_correction_bias"}

    def projection_bias(self, name, rows):
        yield bias(name, (rows,))

    def attention_tensors(self, spec, block):
        for name, shape, role, deviation in super().attention_tensors(spec, block):
            if role != "bias" or spec.qkv_bias:
                yield name, shape, role, deviation

    def qk_norm_tensors(self, spec, block):
        if spec.qk_norm:
            yield norm(block + "attn_q_norm.weight", spec.head_dim)
            yield norm(block + "attn_k_norm.weight", spec.head_dim)

    def router_tensors(self, spec, block):
        yield from super().router_tensors(spec, block)
        yield bias(block + "exp_probs_b.bias", (spec.experts,), SELECTION_BIAS)

    def own_keys(self, spec, writer):
        super().own_keys(spec, writer)
        self.router_keys(spec, writer)

    def rope_parameters(self, spec):
        part = {"partial_rotary_factor": spec.rotated / spec.head_dim}
        return super().rope_parameters(spec) | part

    def model_config(self, spec):
        return dict(
            head_dim=spec.head_dim,
            n_group=spec.router.groups or 1,
            topk_group=spec.router.groups_used or 1,
            **self.common_config(spec),
            **self.ffn_config(spec),
        )

    def empty_model(self, spec):
        config = transformers.Glm4MoeConfig(
            use_qk_norm=spec.qk_norm,
            attention_bias=spec.qkv_bias,
            num_mtp_layers=0,
            **self.model_config(spec),
        )
        return transformers.Glm4MoeForCausalLM(config)


class BailingMoe2(Glm4Moe):
    """Ling 2.0, which transformers has not: GLM-4.5's class computes the same, groups included.

    The file has q, k and v in one tensor.
    """

    ffn_norm = "ffn_norm"

    def file_tensors(self, spec, tensors):
        result = {}
        for name, (stored, kind) in tensors.items():
            if name.endswith("attn_q.weight"):
                parts = [tensors[name.replace("attn_q", f"attn_{n}")][0] for n in "qkv"]
                result[name.replace("attn_q", "attn_qkv")] = np.concatenate(parts), kind
            elif not name.endswith(("attn_k.weight", "attn_v.weight")):
                result[name] = stored, kind
        return result


class Dots1(Glm4Moe):
    ffn_norm = "ffn_norm"

    def empty_model(self, spec):
        return transformers.Dots1ForCausalLM(transformers.Dots1Config(**self.model_config(spec)))


class ExaoneMoe(Glm4Moe):
    """Three layers of four have a window, and they alone rotate."""

    ffn_norm = "ffn_norm"

    def own_keys(self, spec, writer):
        super().own_keys(spec, writer)
        writer.add_sliding_window(spec.window)
        writer.add_sliding_window_pattern([layer % 4 != 3 for layer in range(spec.layers)])

    def empty_model(self, spec):
        kinds = ["full_attention" if layer % 4 == 3 else "sliding_attention" for layer in range(spec.layers)]
        values = self.model_config(spec)
        values["num_experts"] = values.pop("n_routed_experts")
        values["num_shared_experts"] = values.pop("n_shared_experts")
        config = transformers.ExaoneMoeConfig(sliding_window=spec.window, layer_types=kinds, **values)
        return transformers.ExaoneMoeForCausalLM(config)


class HyV3(Glm4Moe):
    """Hy3: the selection bias has a name without a suffix; the file does not say which layers are dense."""

    ffn_norm = "ffn_norm"
    layer_names = Glm4Moe.layer_names | {"exp_probs_b.bias": "mlp.e_score_correction_bias"}

    def own_keys(self, spec, writer):
        writer.add_expert_feed_forward_length(spec.width)
        writer.add_expert_shared_feed_forward_length(spec.shared_width)
        writer.add_expert_weights_scale(spec.router.scale)
        self.router_keys(spec, writer)

    def file_tensors(self, spec, tensors):
        return {name.replace("exp_probs_b.bias", "exp_probs_b"): stored for name, stored in tensors.items()}

    def rope_parameters(self, spec):
        return {"rope_type": "default", "rope_theta": spec.rope.base}

    def empty_model(self, spec):
        config = transformers.HYV3Config(
            head_dim=spec.head_dim,
            intermediate_size=spec.dense_width,
            moe_intermediate_size=spec.width,
            num_experts=spec.experts,
            num_shared_experts=spec.shared_count,
            router_scaling_factor=spec.router.scale,
            mlp_layer_types=["dense" if i < spec.dense_layers else "sparse" for i in range(spec.layers)],
            **self.common_config(spec),
        )
        return transformers.HYV3ForCausalLM(config)


class Ernie45Moe(DeepseekFfn):
    """A softmax with a selection bias. The file has no keys for that."""

    layer_names = DeepseekFfn.layer_names | {
        "exp_probs_b.bias": "mlp.gate.moe_statics.e_score_correction_bias"
    }

    def router_tensors(self, spec, block):
        yield from super().router_tensors(spec, block)
        yield bias(block + "exp_probs_b.bias", (spec.experts,), 0.1)

    def own_keys(self, spec, writer):
        writer.add_leading_dense_block_count(spec.dense_layers)
        writer.add_interleave_moe_layer_step(1)
        writer.add_expert_feed_forward_length(spec.width)
        writer.add_expert_shared_count(spec.shared_count)
        writer.add_expert_shared_feed_forward_length(spec.shared_width)

    def state(self, spec, exact):
        state = super().state(spec, exact)
        for name in state:
            if name.endswith("e_score_correction_bias"):
                state[name] = state[name][None]
        return state

    def empty_model(self, spec):
        common = self.common_config(spec)
        config = transformers.Ernie4_5_MoeConfig(
            intermediate_size=spec.dense_width,
            moe_intermediate_size=spec.width,
            moe_k=common.pop("num_experts_per_tok"),
            moe_num_experts=spec.experts,
            moe_num_shared_experts=spec.shared_count,
            moe_layer_start_index=spec.dense_layers,
            **common,
        )
        return transformers.Ernie4_5_MoeForCausalLM(config)


class MiniMaxM2(Architecture):
    """Norms over whole vectors of q and k, a part of each head rotates."""

    layer_names = Architecture.layer_names | {"exp_probs_b.bias": "mlp.e_score_correction_bias"}

    def qk_norm_tensors(self, spec, block):
        yield norm(block + "attn_q_norm.weight", spec.heads * spec.head_dim)
        yield norm(block + "attn_k_norm.weight", spec.kv_heads * spec.head_dim)

    def router_tensors(self, spec, block):
        yield from super().router_tensors(spec, block)
        yield bias(block + "exp_probs_b.bias", (spec.experts,), SELECTION_BIAS)

    def own_keys(self, spec, writer):
        super().own_keys(spec, writer)
        writer.add_expert_gating_func(ExpertGatingFuncType.SIGMOID)

    def rope_parameters(self, spec):
        return super().rope_parameters(spec) | {"partial_rotary_factor": spec.rotated / spec.head_dim}

    def empty_model(self, spec):
        config = transformers.MiniMaxM2Config(
            intermediate_size=spec.width,
            num_local_experts=spec.experts,
            head_dim=spec.head_dim,
            **self.common_config(spec),
        )
        return transformers.MiniMaxM2ForCausalLM(config)
