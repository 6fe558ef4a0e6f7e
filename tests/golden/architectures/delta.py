"""Linear attention (gated DeltaNet) in most layers, attention with an output gate in the others:
Qwen3-Next, Qwen3.5 and 3.6.

transformers keeps the heads of q, k, v and z as its classes have them; `file_tensors` brings them
into the order of the converters. A norm's weight in transformers is the file's less 1, but for the
norm of linear attention's output.
"""

import numpy as np
import transformers
from transformers.models.qwen3_5_moe.configuration_qwen3_5_moe import Qwen3_5MoeTextConfig
from transformers.models.qwen3_5_moe.modeling_qwen3_5_moe import Qwen3_5MoeForCausalLM

from .base import bias, matrix, norm
from .deepseek import further_layer_tensors
from .grouped import Qwen2Moe, Qwen3Moe


class DeltaNet(Qwen3Moe):
    """What both have in common."""

    ffn_norm = "post_attention_norm"
    layer_names = (
        Qwen3Moe.layer_names
        | {name: theirs for name, theirs in Qwen2Moe.layer_names.items() if "shexp" in name}
        | {
            "ssm_dt.bias": "linear_attn.dt_bias",
            "ssm_norm.weight": "linear_attn.norm.weight",
            "ssm_out.weight": "linear_attn.out_proj.weight",
        }
    )
    shared_gate_tensors = Qwen2Moe.shared_gate_tensors

    def is_delta(self, spec, block):
        layer = int(block.split(".")[1])
        return (layer + 1) % spec.full_interval != 0

    # ---- tensors

    def tensors(self, spec):
        yield from super().tensors(spec)
        yield from further_layer_tensors(spec)

    def attention_tensors(self, spec, block):
        if self.is_delta(spec, block):
            yield from self.delta_tensors(spec, block)
            return
        q, kv = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
        for name, rows in (("q", 2 * q), ("k", kv), ("v", kv)):
            yield matrix(f"{block}attn_{name}.weight", (rows, spec.d_model), 1.3)
        yield from self.qk_norm_tensors(spec, block)
        yield matrix(block + "attn_output.weight", (spec.d_model, q), 2.5)

    def delta_tensors(self, spec, block):
        delta = spec.delta
        channels = 2 * delta.keys + delta.values
        yield from self.projection_tensors(spec, block)
        yield block + "ssm_conv1d.weight", (channels, delta.taps), "bias", 0.5
        yield bias(block + "ssm_dt.bias", (delta.v_heads,), 1.0)
        yield block + "ssm_a", (delta.v_heads,), "norm", 0
        yield norm(block + "ssm_norm.weight", delta.v_dim)
        yield matrix(block + "ssm_out.weight", (spec.d_model, delta.values), 2.5)

    def projection_tensors(self, spec, block):
        raise NotImplementedError

    def adjust(self, spec, values, rng):
        """Decays from slow to fast."""
        for name, array in values.items():
            if name.endswith("ssm_a"):
                array[:] = -np.exp(rng.uniform(np.log(0.02), np.log(2), array.shape))

    # ---- the file

    def own_keys(self, spec, writer):
        delta = spec.delta
        writer.add_expert_feed_forward_length(spec.width)
        writer.add_expert_shared_feed_forward_length(spec.shared_width)
        writer.add_ssm_conv_kernel(delta.taps)
        writer.add_ssm_state_size(delta.k_dim)
        writer.add_ssm_group_count(delta.k_heads)
        writer.add_ssm_time_step_rank(delta.v_heads)
        writer.add_ssm_inner_size(delta.values)
        writer.add_uint32(f"{spec.arch}.full_attention_interval", spec.full_interval)
        if spec.further_layers:
            writer.add_nextn_predict_layers(spec.further_layers)

    # ---- transformers

    def state(self, spec, exact):
        state = super().state(spec, exact)
        for layer in range(spec.layers):
            block, prefix = f"blk.{layer}.", f"model.layers.{layer}."
            gate = exact[f"{block}ffn_gate_inp_shexp.weight"]
            state[prefix + "mlp.shared_expert_gate.weight"] = gate[None]
            if self.is_delta(spec, block):
                state[prefix + "linear_attn.A_log"] = np.log(-exact[block + "ssm_a"])
                state[prefix + "linear_attn.conv1d.weight"] = exact[block + "ssm_conv1d.weight"][:, None]
        for name in state:
            if name.endswith("norm.weight") and "linear_attn" not in name:
                state[name] = state[name] - 1
        return state

    def rope_parameters(self, spec):
        return super().rope_parameters(spec) | {"partial_rotary_factor": spec.rotated / spec.head_dim}

    def delta_config(self, spec):
        delta = spec.delta
        return dict(
            head_dim=spec.head_dim,
            moe_intermediate_size=spec.width,
            shared_expert_intermediate_size=spec.shared_width,
            num_experts=spec.experts,
            linear_conv_kernel_dim=delta.taps,
            linear_key_head_dim=delta.k_dim,
            linear_value_head_dim=delta.v_dim,
            linear_num_key_heads=delta.k_heads,
            linear_num_value_heads=delta.v_heads,
            full_attention_interval=spec.full_interval,
            partial_rotary_factor=spec.rotated / spec.head_dim,
            **self.common_config(spec),
        )


class Qwen35Moe(DeltaNet):
    """The file has value heads in the order in which key heads repeat as a whole (0, 1, 0, 1, ...);
    transformers has those of one key head together."""

    layer_names = DeltaNet.layer_names | {
        "attn_qkv.weight": "linear_attn.in_proj_qkv.weight",
        "attn_gate.weight": "linear_attn.in_proj_z.weight",
        "ssm_alpha.weight": "linear_attn.in_proj_a.weight",
        "ssm_beta.weight": "linear_attn.in_proj_b.weight",
    }

    def projection_tensors(self, spec, block):
        delta, d = spec.delta, spec.d_model
        yield matrix(block + "attn_qkv.weight", (2 * delta.keys + delta.values, d))
        yield matrix(block + "attn_gate.weight", (delta.values, d))
        yield matrix(block + "ssm_alpha.weight", (delta.v_heads, d), 1.0)
        yield matrix(block + "ssm_beta.weight", (delta.v_heads, d), 1.0)

    def own_keys(self, spec, writer):
        super().own_keys(spec, writer)
        pairs = spec.rotated // 2
        writer.add_rope_dimension_sections([pairs - 2 * (pairs // 3), pairs // 3, pairs // 3, 0])

    def file_tensors(self, spec, tensors):
        return {name: (self.repeat_order(spec, name, stored), kind) for name, (stored, kind) in tensors.items()}

    def repeat_order(self, spec, name, stored):
        delta, part = spec.delta, name.split(".", 2)[-1]

        def rows(array, width):
            by_key = array.reshape(delta.k_heads, -1, width, *array.shape[1:])
            return by_key.swapaxes(0, 1).reshape(array.shape)

        if part in ("attn_qkv.weight", "ssm_conv1d.weight"):
            keys = 2 * delta.keys
            return np.concatenate([stored[:keys], rows(stored[keys:], delta.v_dim)])
        if part == "attn_gate.weight":
            return rows(stored, delta.v_dim)
        if part in ("ssm_alpha.weight", "ssm_beta.weight", "ssm_a", "ssm_dt.bias"):
            return rows(stored, 1)
        if part == "ssm_out.weight":
            return rows(stored.T, delta.v_dim).T
        return stored

    def rope_parameters(self, spec):
        pairs = spec.rotated // 2
        sections = [pairs - 2 * (pairs // 3), pairs // 3, pairs // 3]
        return super().rope_parameters(spec) | {"mrope_section": sections, "mrope_interleaved": True}

    def empty_model(self, spec):
        return Qwen3_5MoeForCausalLM(Qwen3_5MoeTextConfig(**self.delta_config(spec)))


class Qwen3Next(DeltaNet):
    """Files made since January 2026 have transformers' in_proj_qkvz in two tensors, older ones
    (spec.delta.early) as it is: of each key head q, k, its value heads' v, then their z."""

    layer_names = DeltaNet.layer_names | {
        "ssm_in.weight": "linear_attn.in_proj_qkvz.weight",
        "ssm_ba.weight": "linear_attn.in_proj_ba.weight",
    }

    def projection_tensors(self, spec, block):
        delta, d = spec.delta, spec.d_model
        yield matrix(block + "ssm_in.weight", (2 * delta.keys + 2 * delta.values, d))
        yield matrix(block + "ssm_ba.weight", (2 * delta.v_heads, d), 1.0)

    def file_tensors(self, spec, tensors):
        result = {}
        for name, (stored, kind) in tensors.items():
            if not name.endswith("ssm_in.weight") or spec.delta.early:
                result[name] = stored, kind
                continue
            delta = spec.delta
            by_key = stored.reshape(delta.k_heads, -1, stored.shape[1])
            values = delta.values // delta.k_heads
            cuts = [delta.k_dim, 2 * delta.k_dim, 2 * delta.k_dim + values]
            q, k, v, z = (part.reshape(-1, stored.shape[1]) for part in np.split(by_key, cuts, axis=1))
            result[name.replace("ssm_in", "attn_qkv")] = np.concatenate([q, k, v]), kind
            result[name.replace("ssm_in", "attn_gate")] = z, kind
        return result

    def empty_model(self, spec):
        config = transformers.Qwen3NextConfig(
            norm_topk_prob=True, decoder_sparse_step=1, intermediate_size=spec.width, **self.delta_config(spec)
        )
        return transformers.Qwen3NextForCausalLM(config)
