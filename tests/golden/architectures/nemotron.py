"""Nemotron-H's MoE models: each block is Mamba2, attention without rotation or routed experts.

Experts are two matrices with a squared ReLU between them. `spec.pattern` has a letter for each
block, as NVIDIA's configurations write it: M, * and E.
"""

import numpy as np
import transformers

import tiny_vocabulary

from .base import Architecture, bias, matrix, norm

SELECTION_BIAS = 0.2  # deviation; the scores are between 0 and 1
KINDS = {"M": "linear_attention", "*": "full_attention", "E": "moe"}


class NemotronH(Architecture):
    block_names = {
        "attn_norm.weight": "norm.weight",
        "ssm_in.weight": "mixer.in_proj.weight",
        "ssm_conv1d.bias": "mixer.conv1d.bias",
        "ssm_dt.bias": "mixer.dt_bias",
        "ssm_out.weight": "mixer.out_proj.weight",
        "attn_q.weight": "mixer.q_proj.weight",
        "attn_k.weight": "mixer.k_proj.weight",
        "attn_v.weight": "mixer.v_proj.weight",
        "attn_output.weight": "mixer.o_proj.weight",
        "ffn_gate_inp.weight": "mixer.gate.weight",
        "exp_probs_b.bias": "mixer.gate.e_score_correction_bias",
        "ffn_up_exps.weight": "mixer.experts.up_proj",
        "ffn_down_exps.weight": "mixer.experts.down_proj",
        "ffn_up_shexp.weight": "mixer.shared_experts.up_proj.weight",
        "ffn_down_shexp.weight": "mixer.shared_experts.down_proj.weight",
    }

    # ---- tensors

    def tensors(self, spec):
        d = spec.d_model
        yield "token_embd.weight", (tiny_vocabulary.SIZE, d), "matrix", 2 / np.sqrt(d)
        yield norm("output_norm.weight", d)
        yield "output.weight", (tiny_vocabulary.SIZE, d), "matrix", 2 / np.sqrt(d)
        parts = {"M": self.mamba_tensors, "*": self.attention_tensors, "E": self.moe_tensors}
        for layer, kind in enumerate(spec.pattern):
            block = f"blk.{layer}."
            yield norm(block + "attn_norm.weight", d)
            yield from parts[kind](spec, block)
        for layer in range(spec.layers, spec.layers + spec.further_layers):
            yield norm(f"blk.{layer}.attn_norm.weight", d)
            yield matrix(f"blk.{layer}.nextn.eh_proj.weight", (d, 2 * d))

    def mamba_tensors(self, spec, block):
        mamba = spec.delta
        channels = mamba.values + 2 * mamba.keys
        yield matrix(block + "ssm_in.weight", (mamba.values + channels + mamba.v_heads, spec.d_model))
        yield block + "ssm_conv1d.weight", (channels, mamba.taps), "bias", 0.5
        yield bias(block + "ssm_conv1d.bias", (channels,))
        yield bias(block + "ssm_dt.bias", (mamba.v_heads,), 1.0)
        yield block + "ssm_a", (mamba.v_heads, 1), "norm", 0
        yield block + "ssm_d", (mamba.v_heads, 1), "norm", 0
        yield block + "ssm_norm.weight", (mamba.k_heads, mamba.values // mamba.k_heads), "norm", 0
        yield matrix(block + "ssm_out.weight", (spec.d_model, mamba.values))

    def moe_tensors(self, spec, block):
        e, w, d = spec.experts, spec.width, spec.d_model
        yield from self.router_tensors(spec, block)
        yield bias(block + "exp_probs_b.bias", (e,), SELECTION_BIAS)
        yield matrix(block + "ffn_up_exps.weight", (e, w, d))
        yield matrix(block + "ffn_down_exps.weight", (e, d, w))
        yield matrix(block + "ffn_up_shexp.weight", (spec.shared_width, d))
        yield matrix(block + "ffn_down_shexp.weight", (d, spec.shared_width))

    def adjust(self, spec, values, rng):
        """Decays from slow to fast."""
        for name, array in values.items():
            if name.endswith("ssm_a"):
                array[:] = -np.exp(rng.uniform(np.log(0.02), np.log(2), array.shape))

    # ---- the file

    def keys(self, spec, writer):
        super().keys(spec, writer)
        further = [0] * spec.further_layers  # the converter has the block's own numbers here
        for key in ("attention.head_count_kv", "feed_forward_length"):
            del writer.kv_data[0][f"{spec.arch}.{key}"]
        writer.add_head_count_kv([spec.kv_heads if kind == "*" else 0 for kind in spec.pattern] + further)
        writer.add_feed_forward_length([spec.width if kind == "E" else 0 for kind in spec.pattern] + further)

    def own_keys(self, spec, writer):
        super().own_keys(spec, writer)
        mamba, router = spec.delta, spec.router
        writer.add_layer_norm_eps(spec.eps)
        writer.add_rope_scaling_finetuned(False)
        writer.add_ssm_conv_kernel(mamba.taps)
        writer.add_ssm_state_size(mamba.k_dim)
        writer.add_ssm_group_count(mamba.k_heads)
        writer.add_ssm_inner_size(mamba.values)
        writer.add_ssm_time_step_rank(mamba.v_heads)
        writer.add_expert_shared_feed_forward_length(spec.shared_width)
        writer.add_expert_shared_count(spec.shared_count)
        writer.add_expert_weights_norm(router.normalise)
        writer.add_expert_weights_scale(router.scale)
        writer.add_expert_group_count(router.groups)
        writer.add_expert_group_used_count(router.groups_used)
        if spec.further_layers:
            writer.add_nextn_predict_layers(spec.further_layers)

    # ---- transformers

    def state(self, spec, exact):
        state = {
            "model.embeddings.weight": exact["token_embd.weight"],
            "lm_head.weight": exact["output.weight"],
            "model.norm_f.weight": exact["output_norm.weight"],
        }
        for layer, kind in enumerate(spec.pattern):
            block, prefix = f"blk.{layer}.", f"model.layers.{layer}."
            for ours, theirs in self.block_names.items():
                if block + ours in exact:
                    state[prefix + theirs] = exact[block + ours]
            if kind == "M":
                state[prefix + "mixer.A_log"] = np.log(-exact[block + "ssm_a"][:, 0])
                state[prefix + "mixer.D"] = exact[block + "ssm_d"][:, 0]
                state[prefix + "mixer.norm.weight"] = exact[block + "ssm_norm.weight"].reshape(-1)
                state[prefix + "mixer.conv1d.weight"] = exact[block + "ssm_conv1d.weight"][:, None]
        return state

    def empty_model(self, spec):
        """The step of a position has no least value here: transformers applies its time_step_min to
        prompts only."""
        mamba, common = spec.delta, self.common_config(spec)
        for name in ("num_hidden_layers", "rope_parameters"):
            del common[name]
        common["layer_norm_epsilon"] = common.pop("rms_norm_eps")
        config = transformers.NemotronHConfig(
            layers_block_type=[KINDS[kind] for kind in spec.pattern],
            head_dim=spec.head_dim,
            ssm_state_size=mamba.k_dim,
            n_groups=mamba.k_heads,
            mamba_num_heads=mamba.v_heads,
            mamba_head_dim=mamba.v_dim,
            conv_kernel=mamba.taps,
            chunk_size=8,
            time_step_min=1e-30,
            n_routed_experts=spec.experts,
            moe_intermediate_size=spec.width,
            moe_shared_expert_intermediate_size=spec.shared_width,
            routed_scaling_factor=spec.router.scale,
            norm_topk_prob=spec.router.normalise,
            n_group=spec.router.groups,
            topk_group=spec.router.groups_used,
            **common,
        )
        return transformers.NemotronHForCausalLM(config)
