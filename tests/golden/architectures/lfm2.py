"""LFM2's MoE models: layers of gated short convolutions, a few of grouped attention between them."""

import transformers
from gguf import ExpertGatingFuncType

from .base import Architecture, bias, matrix, norm

SELECTION_BIAS = 0.2  # deviation; the scores are between 0 and 1


class Lfm2Moe(Architecture):
    """The last norm is called the embedding's. A layer without key-value heads is a convolution."""

    layer_names = {
        "attn_norm.weight": "operator_norm.weight",
        "ffn_norm.weight": "ffn_norm.weight",
        "attn_q.weight": "self_attn.q_proj.weight",
        "attn_k.weight": "self_attn.k_proj.weight",
        "attn_v.weight": "self_attn.v_proj.weight",
        "attn_output.weight": "self_attn.out_proj.weight",
        "attn_q_norm.weight": "self_attn.q_layernorm.weight",
        "attn_k_norm.weight": "self_attn.k_layernorm.weight",
        "shortconv.in_proj.weight": "conv.in_proj.weight",
        "shortconv.out_proj.weight": "conv.out_proj.weight",
        "ffn_gate.weight": "feed_forward.w1.weight",
        "ffn_up.weight": "feed_forward.w3.weight",
        "ffn_down.weight": "feed_forward.w2.weight",
        "ffn_gate_inp.weight": "feed_forward.gate.weight",
        "exp_probs_b.bias": "feed_forward.expert_bias",
        "ffn_down_exps.weight": "feed_forward.experts.down_proj",
    }

    def names(self):
        return self.layer_names

    def is_attention(self, spec, layer):
        return layer in spec.attention_layers

    def tensors(self, spec):
        for name, *rest in super().tensors(spec):
            yield name.replace("output_norm", "token_embd_norm"), *rest

    def attention_tensors(self, spec, block):
        d = spec.d_model
        if self.is_attention(spec, int(block.split(".")[1])):
            yield from super().attention_tensors(spec, block)
            return
        yield matrix(block + "shortconv.in_proj.weight", (3 * d, d), 1.3)
        yield block + "shortconv.conv.weight", (d, spec.taps), "bias", 0.7
        yield matrix(block + "shortconv.out_proj.weight", (d, d))

    def qk_norm_tensors(self, spec, block):
        yield norm(block + "attn_q_norm.weight", spec.head_dim)
        yield norm(block + "attn_k_norm.weight", spec.head_dim)

    def router_tensors(self, spec, block):
        yield from super().router_tensors(spec, block)
        yield bias(block + "exp_probs_b.bias", (spec.experts,), SELECTION_BIAS)

    def keys(self, spec, writer):
        super().keys(spec, writer)
        heads = [spec.kv_heads if self.is_attention(spec, layer) else 0 for layer in range(spec.layers)]
        del writer.kv_data[0][f"{spec.arch}.attention.head_count_kv"]
        writer.add_head_count_kv(heads)

    def own_keys(self, spec, writer):
        super().own_keys(spec, writer)
        writer.add_leading_dense_block_count(spec.dense_layers)
        writer.add_expert_gating_func(ExpertGatingFuncType.SIGMOID)
        writer.add_shortconv_l_cache(spec.taps)

    def state(self, spec, exact):
        state = {
            "model.embed_tokens.weight": exact["token_embd.weight"],
            "lm_head.weight": exact["token_embd.weight"],
            "model.embedding_norm.weight": exact["token_embd_norm.weight"],
        }
        for layer in range(spec.layers):
            block, prefix = f"blk.{layer}.", f"model.layers.{layer}."
            for ours, theirs in self.names().items():
                if block + ours in exact:
                    state[prefix + theirs] = exact[block + ours]
            if block + "shortconv.conv.weight" in exact:
                state[prefix + "conv.conv.weight"] = exact[block + "shortconv.conv.weight"][:, None]
            if layer >= spec.dense_layers:
                experts = self.fused_experts(exact, block)
                state[prefix + "feed_forward.experts.gate_up_proj"] = experts
        return state

    def empty_model(self, spec):
        common = self.common_config(spec)
        common["norm_eps"] = common.pop("rms_norm_eps")
        kinds = ["full_attention" if self.is_attention(spec, layer) else "conv" for layer in range(spec.layers)]
        config = transformers.Lfm2MoeConfig(
            intermediate_size=spec.dense_width,
            moe_intermediate_size=spec.width,
            num_experts=spec.experts,
            num_dense_layers=spec.dense_layers,
            conv_L_cache=spec.taps,
            layer_types=kinds,
            **common,
        )
        return transformers.Lfm2MoeForCausalLM(config)
