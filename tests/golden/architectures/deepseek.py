"""DeepSeek-MoE (deepseek) and DeepSeek-V2, V3 with their relatives (deepseek2).

deepseek2 keeps one latent vector and one rotated key a position for all heads. Converters split the
matrix that expands the latent vector and store the key's part transposed, count one key-value head
of the cached row's size and write the heads' real sizes as key_length_mla and value_length_mla.
Files from before that have the matrix whole and the real sizes.
"""

import numpy as np
import transformers
from gguf import ExpertGatingFuncType, RopeScalingType
from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2Moe

from .base import Architecture, bias, interleave_halves, matrix, norm

LATENT_EPS = 1e-6  # of the norms of latent vectors, whatever the model's other norms have
FFN_NAMES = ("gate", "up", "down")


def further_layer_tensors(spec):
    """A layer after the trunk that predicts a further token: a part of what files have."""
    for layer in range(spec.layers, spec.layers + spec.further_layers):
        block, d = f"blk.{layer}.", spec.d_model
        yield norm(block + "attn_norm.weight", d)
        yield matrix(block + "nextn.eh_proj.weight", (d, 2 * d))
        yield norm(block + "nextn.enorm.weight", d)
        yield norm(block + "nextn.hnorm.weight", d)


class DeepseekFfn(Architecture):
    """Leading dense layers and a shared expert without a gate."""

    layer_names = (
        Architecture.layer_names
        | {f"ffn_{n}.weight": f"mlp.{n}_proj.weight" for n in FFN_NAMES}
        | {f"ffn_{n}_shexp.weight": f"mlp.shared_experts.{n}_proj.weight" for n in FFN_NAMES}
    )

    def own_keys(self, spec, writer):
        writer.add_leading_dense_block_count(spec.dense_layers)
        writer.add_expert_feed_forward_length(spec.width)
        writer.add_expert_shared_count(spec.shared_count)
        writer.add_expert_weights_scale(spec.router.scale)

    def router_keys(self, spec, writer):
        router = spec.router
        kind = ExpertGatingFuncType.SIGMOID if router.sigmoid else ExpertGatingFuncType.SOFTMAX
        if self.has_gate_key(spec):
            writer.add_expert_gating_func(kind)
        writer.add_expert_weights_norm(router.normalise)
        if router.groups:
            writer.add_expert_group_count(router.groups)
            writer.add_expert_group_used_count(router.groups_used)
        if spec.further_layers:
            writer.add_nextn_predict_layers(spec.further_layers)

    def has_gate_key(self, spec):
        return not spec.early

    def tensors(self, spec):
        yield from super().tensors(spec)
        yield from further_layer_tensors(spec)

    def ffn_config(self, spec):
        return dict(
            intermediate_size=spec.dense_width,
            moe_intermediate_size=spec.width,
            n_routed_experts=spec.experts,
            n_shared_experts=spec.shared_count,
            first_k_dense_replace=spec.dense_layers,
            routed_scaling_factor=spec.router.scale,
            norm_topk_prob=spec.router.normalise,
        )


class Deepseek(DeepseekFfn):
    """DeepSeek-MoE-16B, which transformers has not as such: Llama's attention and V2's experts."""

    def own_keys(self, spec, writer):
        super().own_keys(spec, writer)
        writer.add_rope_scaling_type(RopeScalingType.NONE)

    def file_tensors(self, spec, tensors):
        result = {}
        for name, (stored, kind) in tensors.items():
            if name.endswith(("attn_q.weight", "attn_k.weight")):
                heads = spec.heads if "attn_q" in name else spec.kv_heads
                stored = interleave_halves(stored, heads)
            result[name] = stored, kind
        return result

    def empty_model(self, spec):
        common = self.common_config(spec)
        model = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(intermediate_size=spec.dense_width, head_dim=spec.head_dim, **common)
        )
        experts = transformers.DeepseekV2Config(**common, **self.ffn_config(spec))
        for layer in model.model.layers[spec.dense_layers :]:
            layer.mlp = DeepseekV2Moe(experts)
        return model


class Deepseek2(DeepseekFfn):
    layer_names = DeepseekFfn.layer_names | {
        "attn_q_a.weight": "self_attn.q_a_proj.weight",
        "attn_q_a_norm.weight": "self_attn.q_a_layernorm.weight",
        "attn_q_b.weight": "self_attn.q_b_proj.weight",
        "attn_kv_a_mqa.weight": "self_attn.kv_a_proj_with_mqa.weight",
        "attn_kv_a_norm.weight": "self_attn.kv_a_layernorm.weight",
        "attn_kv_b.weight": "self_attn.kv_b_proj.weight",
        "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
    }

    def attention_tensors(self, spec, block):
        d, latent = spec.d_model, spec.latent
        q = spec.heads * (latent.plain + latent.rotated)
        if latent.q_rank:
            yield matrix(block + "attn_q_a.weight", (latent.q_rank, d))
            yield norm(block + "attn_q_a_norm.weight", latent.q_rank)
            yield matrix(block + "attn_q_b.weight", (q, latent.q_rank), 1.3)
        else:
            yield matrix(block + "attn_q.weight", (q, d), 1.3)
        yield matrix(block + "attn_kv_a_mqa.weight", (latent.kv_rank + latent.rotated, d), 1.3)
        yield norm(block + "attn_kv_a_norm.weight", latent.kv_rank)
        if latent.unsplit:
            expanded = spec.heads * (latent.plain + latent.value)
            yield matrix(block + "attn_kv_b.weight", (expanded, latent.kv_rank), 1.3)
        else:
            rank = latent.kv_rank
            keys, values = (spec.heads, rank, latent.plain), (spec.heads, latent.value, rank)
            yield block + "attn_k_b.weight", keys, "matrix", 1.3 / np.sqrt(rank)
            yield matrix(block + "attn_v_b.weight", values, 1.3)
        yield matrix(block + "attn_output.weight", (d, spec.heads * latent.value))

    def router_tensors(self, spec, block):
        yield from super().router_tensors(spec, block)
        if spec.router.bias:
            yield bias(block + "exp_probs_b.bias", (spec.experts,), 0.2)

    def adjust(self, spec, values, rng):
        """Small latent vectors where the file's eps is not theirs, so that it shows which is used."""
        for name, rows in values.items():
            if spec.eps == LATENT_EPS:
                continue
            if name.endswith("attn_kv_a_mqa.weight"):
                rows[: spec.latent.kv_rank] *= 0.05
            if name.endswith("attn_q_a.weight"):
                rows *= 0.05

    def keys(self, spec, writer):
        super().keys(spec, writer)
        if spec.rope.kind == "yarn":
            writer.add_rope_scaling_type(RopeScalingType.YARN)
            writer.add_rope_scaling_factor(spec.rope.factor)
            writer.add_rope_scaling_orig_ctx_len(spec.rope.original_context)
            writer.add_rope_scaling_yarn_log_mul(0.1 * spec.rope.mscale_all_dim)
        if spec.rope.beta_fast:
            writer.add_rope_scaling_yarn_beta_fast(spec.rope.beta_fast)
            writer.add_rope_scaling_yarn_beta_slow(1)
        self.temperature_keys(spec, writer)

    def temperature_keys(self, spec, writer):
        if spec.rope.temperature:
            writer.add_attn_temperature_scale(spec.rope.temperature)
            writer.add_attn_temperature_length(spec.rope.original_context)

    def head_size_keys(self, spec, writer):
        latent = spec.latent
        if latent.q_rank:
            writer.add_q_lora_rank(latent.q_rank)
        writer.add_kv_lora_rank(latent.kv_rank)
        if latent.unsplit:
            writer.add_key_length(latent.plain + latent.rotated)
            writer.add_value_length(latent.value)
            return
        writer.add_key_length(latent.kv_rank + latent.rotated)
        writer.add_value_length(latent.kv_rank)
        writer.add_key_length_mla(latent.plain + latent.rotated)
        writer.add_value_length_mla(latent.value)

    def own_keys(self, spec, writer):
        super().own_keys(spec, writer)
        self.router_keys(spec, writer)

    def state(self, spec, exact):
        state = super().state(spec, exact)
        for layer in range(spec.layers):
            parts = [exact.get(f"blk.{layer}.attn_{n}_b.weight") for n in "kv"]
            if parts[0] is not None:
                expanded = np.concatenate([parts[0].swapaxes(1, 2), parts[1]], axis=1)
                name = f"model.layers.{layer}.self_attn.kv_b_proj.weight"
                state[name] = expanded.reshape(-1, spec.latent.kv_rank)
        return state

    def rope_parameters(self, spec):
        rope = spec.rope
        if rope.kind == "default":
            return super().rope_parameters(spec)
        parameters = {
            "rope_type": "yarn",
            "rope_theta": rope.base,
            "factor": rope.factor,
            "mscale": rope.mscale_all_dim,
            "mscale_all_dim": rope.mscale_all_dim,
            "beta_fast": rope.beta_fast or 32,
            "beta_slow": 1,
            "original_max_position_embeddings": rope.original_context,
        }
        if spec.rope.temperature:
            head = spec.latent.plain + spec.latent.rotated
            parameters["llama_4_scaling_beta"] = spec.rope.temperature
            parameters["partial_rotary_factor"] = spec.latent.rotated / head
        return parameters

    def empty_model(self, spec):
        """V3's code where the gate is a sigmoid, V2's else: they rank groups differently."""
        latent, router = spec.latent, spec.router
        common = self.common_config(spec) | {"num_key_value_heads": spec.heads}
        sizes = dict(
            kv_lora_rank=latent.kv_rank,
            q_lora_rank=latent.q_rank or None,
            qk_nope_head_dim=latent.plain,
            qk_rope_head_dim=latent.rotated,
            v_head_dim=latent.value,
        ) | self.ffn_config(spec)
        if spec.original == "glm":
            return self.empty_glm_lite(spec, common | sizes)
        if spec.original == "mistral":
            return transformers.Mistral4ForCausalLM(transformers.Mistral4Config(**common, **sizes))
        if router.sigmoid:
            groups = {"n_group": router.groups or 1, "topk_group": router.groups_used or 1}
            config = transformers.DeepseekV3Config(**common, **sizes, **groups)
            return transformers.DeepseekV3ForCausalLM(config)
        groups = {"topk_method": "greedy"}
        if router.groups:
            groups = {
                "topk_method": "group_limited_greedy",
                "n_group": router.groups,
                "topk_group": router.groups_used,
            }
        config = transformers.DeepseekV2Config(**common, **sizes, **groups)
        return transformers.DeepseekV2ForCausalLM(config)

    def empty_glm_lite(self, spec, values):
        """GLM-4.7-Flash, a class of its own that computes as V3."""
        dense = values.pop("first_k_dense_replace")
        kinds = ["dense"] * dense + ["sparse"] * (spec.layers - dense)
        config = transformers.Glm4MoeLiteConfig(mlp_layer_types=kinds, **values)
        return transformers.Glm4MoeLiteForCausalLM(config)


class Mistral4(Deepseek2):
    """Mistral-Small-4: gate and up of an expert in one tensor; the file says neither the kind of gate
    nor how q grows with the position."""

    def has_gate_key(self, spec):
        return False

    def temperature_keys(self, spec, writer):
        """None."""

    def file_tensors(self, spec, tensors):
        result = {}
        for name, (stored, kind) in tensors.items():
            if name.endswith("ffn_gate_exps.weight"):
                up = tensors[name.replace("ffn_gate_exps", "ffn_up_exps")][0]
                result[name.replace("ffn_gate", "ffn_gate_up")] = np.concatenate([stored, up], axis=1), kind
            elif not name.endswith("ffn_up_exps.weight"):
                result[name] = stored, kind
        return result


class Indexed(Deepseek2):
    """DeepSeek-V3.2 and GLM-5: an indexer chooses the positions that a layer attends to. Here it may
    choose as many as there are, so that its weights change nothing."""

    HEADS, TOP_K = 2, 512

    layer_names = Deepseek2.layer_names | {
        "indexer.attn_q_b.weight": "self_attn.indexer.wq_b.weight",
        "indexer.attn_k.weight": "self_attn.indexer.wk.weight",
        "indexer.k_norm.weight": "self_attn.indexer.k_norm.weight",
        "indexer.k_norm.bias": "self_attn.indexer.k_norm.bias",
        "indexer.proj.weight": "self_attn.indexer.weights_proj.weight",
    }

    def indexer_width(self, spec):
        return spec.latent.rotated + 8

    def attention_tensors(self, spec, block):
        yield from super().attention_tensors(spec, block)
        d, width = spec.d_model, self.indexer_width(spec)
        yield matrix(block + "indexer.attn_q_b.weight", (self.HEADS * width, spec.latent.q_rank))
        yield matrix(block + "indexer.attn_k.weight", (width, d))
        yield norm(block + "indexer.k_norm.weight", width)
        yield bias(block + "indexer.k_norm.bias", (width,))
        yield matrix(block + "indexer.proj.weight", (self.HEADS, d))

    def own_keys(self, spec, writer):
        super().own_keys(spec, writer)
        writer.add_indexer_head_count(self.HEADS)
        writer.add_indexer_key_length(self.indexer_width(spec))
        writer.add_indexer_top_k(self.TOP_K)

    def empty_model(self, spec):
        latent = spec.latent
        values = self.common_config(spec) | self.ffn_config(spec) | {"num_key_value_heads": spec.heads}
        values |= dict(
            kv_lora_rank=latent.kv_rank,
            q_lora_rank=latent.q_rank,
            qk_nope_head_dim=latent.plain,
            qk_rope_head_dim=latent.rotated,
            v_head_dim=latent.value,
            n_group=spec.router.groups or 1,
            topk_group=spec.router.groups_used or 1,
            index_topk=self.TOP_K,
            index_head_dim=self.indexer_width(spec),
            index_n_heads=self.HEADS,
        )
        if spec.arch == "glm-dsa":
            return transformers.GlmMoeDsaForCausalLM(transformers.GlmMoeDsaConfig(**values))
        return transformers.DeepseekV32ForCausalLM(transformers.DeepseekV32Config(**values))
