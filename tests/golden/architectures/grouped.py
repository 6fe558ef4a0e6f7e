"""Mixtral, Qwen2-MoE, Qwen3-MoE and OLMoE: grouped-query attention, a plain softmax router."""

import transformers

from .base import Architecture, bias, interleave_halves, norm, router


class Mixtral(Architecture):
    """GGUF calls it llama; its converter reorders q and k for a rotation of adjacent pairs."""

    def own_keys(self, spec, writer):
        pass

    def file_tensors(self, spec, tensors):
        result = {}
        for name, (stored, kind) in tensors.items():
            if name.endswith(("attn_q.weight", "attn_k.weight")):
                heads = spec.heads if "attn_q" in name else spec.kv_heads
                stored = interleave_halves(stored, heads)
            result[name] = stored, kind
        return result

    def empty_model(self, spec):
        config = transformers.MixtralConfig(
            intermediate_size=spec.width,
            num_local_experts=spec.experts,
            head_dim=spec.head_dim,
            **self.common_config(spec),
        )
        return transformers.MixtralForCausalLM(config)


class Qwen2Moe(Architecture):
    layer_names = Architecture.layer_names | {
        f"ffn_{n}_shexp.weight": f"mlp.shared_expert.{n}_proj.weight" for n in ("gate", "up", "down")
    }

    def projection_bias(self, name, rows):
        yield bias(name, (rows,))

    def shared_gate_tensors(self, spec, block):
        yield router(block + "ffn_gate_inp_shexp.weight", (spec.d_model,), 1.5)

    def own_keys(self, spec, writer):
        writer.add_expert_feed_forward_length(spec.width)
        writer.add_expert_shared_feed_forward_length(spec.shared_width)

    def state(self, spec, exact):
        state = super().state(spec, exact)
        for layer in range(spec.layers):
            gate = exact[f"blk.{layer}.ffn_gate_inp_shexp.weight"]
            state[f"model.layers.{layer}.mlp.shared_expert_gate.weight"] = gate[None]
        return state

    def empty_model(self, spec):
        config = transformers.Qwen2MoeConfig(
            moe_intermediate_size=spec.width,
            shared_expert_intermediate_size=spec.shared_width,
            num_experts=spec.experts,
            norm_topk_prob=False,
            qkv_bias=True,
            **self.common_config(spec),
        )
        return transformers.Qwen2MoeForCausalLM(config)


class Qwen3Moe(Architecture):
    def qk_norm_tensors(self, spec, block):
        yield norm(block + "attn_q_norm.weight", spec.head_dim)
        yield norm(block + "attn_k_norm.weight", spec.head_dim)

    def empty_model(self, spec):
        config = transformers.Qwen3MoeConfig(
            moe_intermediate_size=spec.width,
            num_experts=spec.experts,
            head_dim=spec.head_dim,
            norm_topk_prob=True,
            **self.common_config(spec),
        )
        return transformers.Qwen3MoeForCausalLM(config)


class Olmoe(Architecture):
    """The norms of q and k take the whole vector; weights are not renormalised."""

    def qk_norm_tensors(self, spec, block):
        yield norm(block + "attn_q_norm.weight", spec.heads * spec.head_dim)
        yield norm(block + "attn_k_norm.weight", spec.kv_heads * spec.head_dim)

    def own_keys(self, spec, writer):
        pass

    def empty_model(self, spec):
        config = transformers.OlmoeConfig(
            intermediate_size=spec.width,
            num_experts=spec.experts,
            norm_topk_prob=False,
            **self.common_config(spec),
        )
        return transformers.OlmoeForCausalLM(config)
