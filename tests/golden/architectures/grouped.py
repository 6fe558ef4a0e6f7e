"""Grouped-query attention and a plain softmax router: Mixtral, Qwen2-MoE, Qwen3-MoE with the text
part of Qwen3-VL, OLMoE, Hunyuan-A13B."""

import torch
import transformers
from gguf import RopeScalingType
from transformers.models.qwen3_vl_moe.configuration_qwen3_vl_moe import Qwen3VLMoeTextConfig
from transformers.models.qwen3_vl_moe.modeling_qwen3_vl_moe import Qwen3VLMoeTextModel

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


class TextOnly(torch.nn.Module):
    """The text part of a model that takes images, with the head of the whole."""

    def __init__(self, text):
        super().__init__()
        self.model = text
        self.lm_head = torch.nn.Linear(text.config.hidden_size, text.config.vocab_size, bias=False)

    def forward(self, tokens, **options):
        result = self.model(tokens, **options)
        return transformers.modeling_outputs.CausalLMOutputWithPast(
            logits=self.lm_head(result.last_hidden_state), past_key_values=result.past_key_values
        )


class Qwen3VlMoe(Qwen3Moe):
    """Text has the same position on all three axes: the sections of the rotation change nothing."""

    def sections(self, spec):
        time = spec.head_dim // 2 - 2 * (spec.head_dim // 8)
        return [time, spec.head_dim // 8, spec.head_dim // 8]

    def own_keys(self, spec, writer):
        super().own_keys(spec, writer)
        writer.add_rope_dimension_sections([*self.sections(spec), 0])
        writer.add_num_deepstack_layers(3)

    def rope_parameters(self, spec):
        sections = {"mrope_section": self.sections(spec), "mrope_interleaved": True}
        return super().rope_parameters(spec) | sections

    def empty_model(self, spec):
        config = Qwen3VLMoeTextConfig(
            moe_intermediate_size=spec.width,
            num_experts=spec.experts,
            head_dim=spec.head_dim,
            **self.common_config(spec),
        )
        return TextOnly(Qwen3VLMoeTextModel(config))


class HunyuanMoe(Qwen3Moe):
    """Norms q and k after their rotation. A shared expert without a gate, as wide as the others."""

    gate_name = "mlp.gate.wg.weight"
    layer_names = Architecture.layer_names | {
        "attn_q_norm.weight": "self_attn.query_layernorm.weight",
        "attn_k_norm.weight": "self_attn.key_layernorm.weight",
    }
    layer_names |= {f"ffn_{n}_shexp.weight": f"mlp.shared_mlp.{n}_proj.weight" for n in ("gate", "up", "down")}

    def own_keys(self, spec, writer):
        super().own_keys(spec, writer)
        writer.add_expert_shared_feed_forward_length(spec.shared_width)
        writer.add_expert_shared_count(1)
        writer.add_rope_scaling_type(RopeScalingType.NONE)
        writer.add_rope_scaling_factor(1)

    def empty_model(self, spec):
        common = self.common_config(spec)
        config = transformers.HunYuanMoEV1Config(
            intermediate_size=spec.width,
            num_experts=spec.experts,
            moe_topk=common.pop("num_experts_per_tok"),
            head_dim=spec.head_dim,
            **common,
        )
        return transformers.HunYuanMoEV1ForCausalLM(config)
