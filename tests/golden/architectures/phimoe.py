"""Phi-3.5-MoE: LayerNorm, biases everywhere, sparse mixer, long and short rotary factors.

transformers is the truth and llama.cpp is not: it takes RMS norms and a plain softmax. Two facts
are not in a GGUF file, so an implementation has to know them: the sparse mixer's jitter of 0.01 and
the factor on cosines and sines. The latter is 1.243163121016122 in Phi-3.5-MoE (short_mscale and
long_mscale of its configuration), while converters write sqrt(1 + ln(scale) / ln(original)) as
rope.scaling.attn_factor, which for it is 1.19: the golden file holds that other number too.
"""

import math

import numpy as np
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import tiny_vocabulary

from .base import Architecture, bias, norm, router
from .spec import CONTEXT

MSCALE = 1.243163121016122
FACTORS = {"short": 1.3, "long": 4.0}  # and about how large they are here


class Phimoe(Architecture):
    gate_name = "mlp.router.weight"

    def tensors(self, spec):
        yield from super().tensors(spec)
        yield bias("output.bias", (tiny_vocabulary.SIZE,))
        for kind in FACTORS:
            yield (
                f"rope_factors_{kind}.weight",
                (spec.head_dim // 2,),
                "factors",
                1.3 if kind == "short" else 4.0,
            )

    def norm_tensors(self, name, size):
        yield norm(name + ".weight", size)
        yield bias(name + ".bias", (size,), 0.3)

    def attention_tensors(self, spec, block):
        yield from super().attention_tensors(spec, block)
        yield bias(block + "attn_output.bias", (spec.d_model,))

    def projection_bias(self, name, rows):
        yield bias(name, (rows,))

    def router_tensors(self, spec, block):
        yield router(block + "ffn_gate_inp.weight", (spec.experts, spec.d_model), 2.5)

    def adjust(self, spec, values, rng):
        """Three experts in a row get nearly the same router row: near rivals of both choices."""
        for layer in range(spec.layers):
            rows = values[f"blk.{layer}.ffn_gate_inp.weight"]
            for rival in (1, 2):
                noise = rng.standard_normal(rows[rival::3].shape) * 0.03 * rows.std()
                rows[rival::3] = rows[: 3 * len(noise) : 3] + noise.astype(np.float32)

    def own_keys(self, spec, writer):
        original = spec.rope.original_context
        scale = CONTEXT / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(
            math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0
        )
        writer.add_sliding_window(CONTEXT)

    def rope_parameters(self, spec):
        return {
            "rope_type": "longrope",
            "rope_theta": spec.rope.base,
            "original_max_position_embeddings": spec.rope.original_context,
            "short_mscale": MSCALE,
            "long_mscale": MSCALE,
        } | {f"{kind}_factor": [1.0] * (spec.head_dim // 2) for kind in FACTORS}

    def state(self, spec, exact):
        extra = {
            "model.norm.bias": exact["output_norm.bias"],
            "lm_head.bias": exact["output.bias"],
        }
        return super().state(spec, exact) | extra

    def empty_model(self, spec):
        config = transformers.PhimoeConfig(
            intermediate_size=spec.width,
            num_local_experts=spec.experts,
            attention_bias=True,
            lm_head_bias=True,
            **self.common_config(spec),
        )
        return transformers.PhimoeForCausalLM(config)

    def model(self, spec, exact):
        model = super().model(spec, exact)
        rotary = model.model.rotary_emb
        for kind in FACTORS:
            rotary.config.rope_parameters[f"{kind}_factor"] = exact[f"rope_factors_{kind}.weight"].tolist()
        # transformers 5.23 computes the frequencies without the sequence's length and so never takes
        # the long factors, unlike the model's own code and earlier versions. Each file here
        # has one kind for all positions, which a runtime chooses by the context that it reserves.
        length = CONTEXT if CONTEXT > spec.rope.original_context else None
        rotary.rope_init_fn = lambda config: ROPE_INIT_FUNCTIONS["longrope"](config, seq_len=length)
        return model
