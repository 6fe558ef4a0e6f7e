#!/usr/bin/env python3
"""A small numpy forward pass of the MoE architectures, read straight from a GGUF file.

It is the oracle to debug the C runtime with: every weight is dequantised, every sum is done in
float64, one function stands for one step of the model, and --trace prints the intermediate values
by name. Architectures: see TRAITS. It takes no shortcuts and has no cache: each call computes all
positions.

Usage (needs numpy and gguf, see requirements.txt):

  reference.py MODEL.gguf                                  logits of tokens.txt in this folder,
                                                           one summary line a position
  reference.py MODEL.gguf --tokens 72,101,108              logits of these ids (or of a file of ids)
  reference.py MODEL.gguf -o OUT.logits                    raw little-endian float32, one row a token
  reference.py MODEL.gguf --compare FILE.logits            how far FILE is from these logits
                                                           (exit code 1 past --tolerance)
  reference.py MODEL.gguf --greedy 16                      continue the tokens greedily
  reference.py MODEL.gguf --trace [POSITION]               each intermediate vector of one position
                                                           (default: the last): rms, first values
  reference.py MODEL.gguf --trace 0 --values 64            more values a vector
  reference.py MODEL.gguf --round-activations              round the input of each matrix first, as
                                                           CPU kernels do (8 bits for a quantised
                                                           matrix): the error that this explains
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# The matrices are tiny: threads of a BLAS only cost here. Set before numpy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np  # noqa: E402
from gguf import GGMLQuantizationType, GGUFReader  # noqa: E402
from gguf.quants import dequantize  # noqa: E402

from reference_parts import (  # noqa: E402
    LATENT_EPS,
    PHI_MSCALE,
    layer_norm,
    rms_norm,
    rope_frequencies,
    rotate,
    gated_delta_rule,
    gelu_gated,
    causal_convolution,
    l2_norm,
    relu_squared,
    selective_scan,
    softplus,
    silu,
    round_like_kernel,
    route_chosen_softmax,
    route_groups,
    route_softmax,
    route_sparse_mixer,
    sigmoid,
    softmax,
    swiglu,
    swiglu_clamped,
    yarn_frequencies,
)


class Unsupported(Exception):
    """The file asks for something that this reference does not compute."""


@dataclass(frozen=True)
class Traits:
    """How an architecture differs from the others, where its file does not say."""

    adjacent_pairs: bool = False  # the rotation takes (2i, 2i + 1), else (i, i + half)
    renormalise: bool = False  # the chosen experts' probabilities are divided by their sum
    router: str = "softmax"
    layer_norm: bool = False  # LayerNorm with bias instead of RMS norm
    long_magnitude: float = 1.0  # of cosines and sines where there are long and short factors
    mla: bool = False  # keys and values from one compressed vector (DeepSeek-V2)
    window_every: int = 0  # of so many layers all but the last have the sliding window
    windowed_rotate_only: bool = False  # layers without a window do not rotate
    norm_after_rotation: bool = False  # of the heads of q and k
    ffn_norm: str = "ffn_norm"
    output_norm: str = "output_norm"
    activation: Callable = swiglu
    delta: bool = False  # linear attention in all layers but every full_attention_interval-th
    delta_grouped: bool = False  # the value heads of one key head are together
    gemma: bool = False  # Gemma 4's layers: see gemma_layer
    window_after_first: bool = False  # of window_every layers all but the first have the window
    window_beyond: int = 0  # positions that the window sees in addition to the file's number
    windowed_rope: bool = False  # layers with a window have a rotation of their own
    half_rope: bool = False  # layers without a window rotate half as much, by rope_freqs
    dense_rotate: bool = False  # of windowed_rotate_only: leading dense layers rotate, too
    output_gate: Callable | None = None  # of attn_gate, for each head or value
    post_norms: bool = False  # of what attention and the feed-forward part add
    embedding_scale: bool = False  # by the root of d_model
    parallel: bool = False  # both parts take the layer's one norm
    shared_average: bool = False
    block_parts: bool = False  # each block of the file is Mamba2, attention or experts, with one norm


TRAITS = {
    "llama": Traits(adjacent_pairs=True, renormalise=True),
    "qwen2moe": Traits(),
    "qwen3moe": Traits(renormalise=True),
    "olmoe": Traits(),
    "deepseek": Traits(adjacent_pairs=True),
    "deepseek2": Traits(adjacent_pairs=True, router="groups", mla=True),
    "mistral4": Traits(adjacent_pairs=True, router="groups", mla=True),
    "glm-dsa": Traits(adjacent_pairs=True, router="groups", mla=True),
    "deepseek32": Traits(adjacent_pairs=True, router="groups", mla=True),
    "phimoe": Traits(router="sparse mixer", layer_norm=True, long_magnitude=PHI_MSCALE),
    "glm4moe": Traits(router="groups", ffn_norm="post_attention_norm"),
    "minimax-m2": Traits(router="groups", renormalise=True),
    "dots1": Traits(router="groups"),
    "qwen3vlmoe": Traits(renormalise=True),
    "bailingmoe2": Traits(router="groups"),
    "ernie4_5-moe": Traits(adjacent_pairs=True, router="groups", renormalise=True),
    "hunyuan-moe": Traits(renormalise=True, norm_after_rotation=True),
    "hy_v3": Traits(router="groups"),
    "exaone-moe": Traits(router="groups", window_every=4, windowed_rotate_only=True),
    "qwen35moe": Traits(renormalise=True, ffn_norm="post_attention_norm", delta=True),
    "qwen3next": Traits(renormalise=True, ffn_norm="post_attention_norm", delta=True, delta_grouped=True),
    "lfm2moe": Traits(router="groups", renormalise=True, output_norm="token_embd_norm"),
    "nemotron_h_moe": Traits(
        router="groups", renormalise=True, windowed_rotate_only=True, activation=relu_squared, block_parts=True
    ),
    "gemma4": Traits(renormalise=True, activation=gelu_gated, gemma=True),
    "laguna": Traits(
        router="groups", window_every=4, window_after_first=True, windowed_rope=True, output_gate=softplus
    ),
    "step35": Traits(
        router="groups", windowed_rope=True, half_rope=True, output_gate=sigmoid, renormalise=True
    ),
    "mimo2": Traits(router="groups", renormalise=True, windowed_rope=True, window_beyond=1),
    "afmoe": Traits(
        router="groups", window_every=4, windowed_rotate_only=True, output_gate=sigmoid,
        post_norms=True, embedding_scale=True,
    ),
    "cohere2moe": Traits(
        adjacent_pairs=True, router="groups", windowed_rotate_only=True, dense_rotate=True,
        parallel=True, shared_average=True,
    ),
    "gpt-oss": Traits(
        router="chosen softmax",
        window_every=2,
        ffn_norm="post_attention_norm",
        activation=swiglu_clamped,
    ),
}


# A sigmoid where their files have no expert_gating_func.
SIGMOID_UNSAID = ("step35", "mimo2", "afmoe", "nemotron_h_moe")


class Model:
    """The hyper-parameters and dequantised float64 weights of one GGUF file."""

    def __init__(self, path):
        reader = GGUFReader(path)
        self.fields = {name: field.contents() for name, field in reader.fields.items()}
        self.types = {t.name: t.tensor_type for t in reader.tensors}
        self.weights = {t.name: dequantize(t.data, t.tensor_type).astype(np.float64) for t in reader.tensors}
        for t in reader.tensors:
            factors = self.weights.get(t.name.removesuffix(".weight") + ".scale")
            if t.tensor_type == GGMLQuantizationType.NVFP4 and factors is not None:
                weight = self.weights[t.name]
                weight *= factors.reshape(-1, 1, 1) if weight.ndim == 3 else factors
        self.arch = self.fields["general.architecture"]
        if self.arch not in TRAITS:
            raise Unsupported(f"{path}: architecture {self.arch!r}, known: {', '.join(TRAITS)}")
        self.traits = TRAITS[self.arch]

        self.layers = self.key("block_count") - self.key("nextn_predict_layers", 0)
        self.d_model = self.key("embedding_length")
        self.layer_heads = self.by_layer("attention.head_count")
        self.heads = max(self.layer_heads)
        self.layer_kv_heads = self.by_layer("attention.head_count_kv", self.layer_heads)
        self.kv_heads = max(self.layer_kv_heads)  # 0: a layer without attention
        self.head_dim = self.key("attention.key_length", self.d_model // self.heads)
        self.value_dim = self.key("attention.value_length", self.head_dim)
        by_mean = self.arch == "cohere2moe" and f"{self.arch}.attention.layer_norm_rms_epsilon" not in self.fields
        self.centred_norm = by_mean  # LayerNorm without biases
        self.eps = self.key(f"attention.layer_norm_{'' if by_mean else 'rms_'}epsilon")
        self.experts_used = self.key("expert_used_count")
        self.expert_scale = self.key("expert_weights_scale", 0.0) or 1.0
        self.frequencies, self.magnitude = self.rope(path)
        self.windowed_layers = self.key("attention.sliding_window_pattern", [])

        self.round_activations = False
        self.observe = lambda name, value: None  # called with each named intermediate

    def key(self, name, default=None):
        value = self.fields.get(f"{self.arch}.{name}", default)
        if value is None:
            raise Unsupported(f"key {self.arch}.{name} is missing")
        return value

    def by_layer(self, name, default=None):
        value = self.key(name, default)
        return value if isinstance(value, list) else [value] * self.layers

    def rope(self, path):
        """(frequency of each pair, factor on cos and sin) by the file's kind of scaling."""
        dims = self.key("rope.dimension_count", self.head_dim)
        base = self.key("rope.freq_base", 10000.0)
        if self.traits.half_rope:
            plain = rope_frequencies(dims // 2, base)
            return plain / self.weights["rope_freqs.weight"][: len(plain)], 1.0
        context = self.key("context_length")
        original = self.key("rope.scaling.original_context_length", context)
        if "rope_factors_long.weight" in self.weights:
            # The factors for long contexts serve all positions of a model that may have them.
            name = "rope_factors_long.weight" if context > original else "rope_factors_short.weight"
            plain = rope_frequencies(dims, base)
            return plain / self.weights[name], self.traits.long_magnitude
        kind = self.key("rope.scaling.type", "none")
        if kind == "none" and self.traits.gemma:
            return rope_frequencies(dims, base) / self.weights["rope_freqs.weight"], 1.0
        if kind == "none":
            return rope_frequencies(dims, base), 1.0
        if kind != "yarn" or "rope_freqs.weight" in self.weights:
            raise Unsupported(f"{path}: rotary embeddings scaled by {kind!r}")
        factor = self.key("rope.scaling.factor")
        # DeepSeek-V2 has the same mscale for cos and sin as for the scores, which cancel out.
        grown = self.key("rope.scaling.yarn_attn_factor", 1 + 0.1 * np.log(factor))
        magnitude = 1.0 if self.traits.mla else grown
        turns = self.key("rope.scaling.yarn_beta_fast", 32), self.key("rope.scaling.yarn_beta_slow", 1)
        return yarn_frequencies(dims, base, factor, original, *turns), magnitude

    def norm(self, x, name, eps=None):
        weight = self.weights[name + ".weight"]
        eps = eps or self.eps
        if self.centred_norm:
            return layer_norm(x, weight, 0.0, eps)
        if self.traits.layer_norm:
            return layer_norm(x, weight, self.weights[name + ".bias"], eps)
        return rms_norm(x, weight, eps)

    def seen_by(self, name, x):
        """x as the product with the matrix NAME.weight takes it."""
        return round_like_kernel(x, self.types[name + ".weight"]) if self.round_activations else x

    def linear(self, x, name, expert=None):
        """x: [n][in] -> [n][out] by the matrix NAME.weight ([out][in]), plus NAME.bias if any."""
        weight = self.weights[name + ".weight"]
        weight = weight if expert is None else weight[expert]
        y = self.seen_by(name, x) @ weight.T
        bias = self.weights.get(name + ".bias")
        if bias is None:
            return y
        return y + (bias if expert is None else bias[expert])

    def rotated(self, x, layer=0):
        if self.traits.windowed_rope and self.windowed(layer):
            dims = self.key("rope.dimension_count_swa", self.key("rope.dimension_count", self.head_dim))
            return rotate(x, rope_frequencies(dims, self.key("rope.freq_base_swa")), 1.0, False)
        return rotate(x, self.frequencies, self.magnitude, self.traits.adjacent_pairs)

    def windowed(self, layer):
        if self.windowed_layers:
            return bool(self.windowed_layers[layer])
        every = self.traits.window_every
        full = 0 if self.traits.window_after_first else every - 1
        return every > 0 and self.key("attention.sliding_window", 0) > 0 and layer % every != full

    def rotates(self, layer):
        dense = self.traits.dense_rotate and f"blk.{layer}.ffn_gate_inp.weight" not in self.weights
        return self.windowed(layer) or dense or not self.traits.windowed_rotate_only

    def placed_heads(self, x, layer, name, heads):
        """q or k of all heads, normalised as a whole or by head where the file has that norm, and
        rotated."""
        weight = self.weights.get(name + "_norm.weight")
        if weight is not None and weight.size != self.head_dim:
            x = rms_norm(x, weight, self.eps)
        x = x.reshape(len(x), heads, self.head_dim)
        by_head = weight is not None and weight.size == self.head_dim
        if by_head and not self.traits.norm_after_rotation:
            x = rms_norm(x, weight, self.eps)
        if self.rotates(layer):
            x = self.rotated(x, layer)
        if by_head and self.traits.norm_after_rotation:
            x = rms_norm(x, weight, self.eps)
        return x

    def projections(self, x, layer):
        """q, k, v of all heads, which have a matrix each or share one in this order."""
        block = f"blk.{layer}."
        if block + "attn_qkv.weight" not in self.weights:
            return [self.linear(x, block + f"attn_{n}") for n in "qkv"]
        q, kv = self.layer_heads[layer] * self.head_dim, self.layer_kv_heads[layer] * self.head_dim
        return np.split(self.linear(x, block + "attn_qkv"), [q, q + kv], axis=1)

    def hidden(self, n, layer):
        """[n][n] which position (row) may not see which (column)."""
        hidden = np.triu(np.ones((n, n), dtype=bool), 1)
        if self.windowed(layer):
            window = self.key("attention.sliding_window") + self.traits.window_beyond
            hidden |= np.tril(np.ones((n, n), dtype=bool), -window)
        return hidden

    def attend(self, q, k, v, scale, layer):
        """Causal attention, each [n][heads][dims], neighbouring query heads sharing one k, v."""
        n, hidden = len(q), self.hidden(len(q), layer)
        context = np.empty((n, q.shape[1], v.shape[2]))
        sinks = self.weights.get(f"blk.{layer}.attn_sinks.weight")
        for head in range(q.shape[1]):
            shared = head // (q.shape[1] // k.shape[1])
            scores = q[:, head] @ k[:, shared].T * scale
            scores[hidden] = -np.inf
            if sinks is not None:  # a logit that takes its share and gives no value
                scores = np.concatenate([scores, np.full((n, 1), sinks[head])], axis=1)
            context[:, head] = softmax(scores)[:, :n] @ v[:, shared]
        return context

    def attention_output(self, context, layer):
        self.observe(f"blk.{layer}.attn_context", context)
        return self.linear(context.reshape(len(context), -1), f"blk.{layer}.attn_output")

    def attention(self, x, layer):
        """Grouped-query attention over all positions. x: [n][d_model], already normalised."""
        block = f"blk.{layer}."
        heads, kv_heads = self.layer_heads[layer], self.layer_kv_heads[layer]
        q, k, v = self.projections(x, layer)
        gate = None
        if self.traits.delta:  # each head's query and its gate
            q, gate = np.split(q.reshape(len(x), self.heads, -1), 2, axis=2)
            q = q.reshape(len(x), -1)
        q = self.placed_heads(q, layer, block + "attn_q", heads)
        k = self.placed_heads(k, layer, block + "attn_k", kv_heads)
        v = v.reshape(len(x), kv_heads, -1)
        self.observe(block + "q", q)
        self.observe(block + "k", k)
        self.observe(block + "v", v)
        context = self.attend(q, k, v, 1 / np.sqrt(self.head_dim), layer)
        if gate is not None:
            context = context * sigmoid(gate)
        if self.traits.output_gate and block + "attn_gate.weight" in self.weights:
            gate = self.traits.output_gate(self.linear(x, block + "attn_gate"))
            context = context * gate.reshape(len(x), heads, -1)
        context = context * self.key("attention.value_scale", 0.707 if self.arch == "mimo2" else 1.0)
        return self.attention_output(context, layer)

    def delta_projections(self, x, block, k_heads, sizes):
        """q, k and v together, z, beta and alpha, each [n][...], of linear attention."""
        n = len(x)
        if block + "ssm_in.weight" in self.weights:
            by_key = self.linear(x, block + "ssm_in").reshape(n, k_heads, -1)
            q, k, v, z = (p.reshape(n, -1) for p in np.split(by_key, np.cumsum(sizes)[:-1], axis=2))
            qkv = np.concatenate([q, k, v], axis=1)
        else:
            qkv, z = self.linear(x, block + "attn_qkv"), self.linear(x, block + "attn_gate")
        if block + "ssm_ba.weight" in self.weights:
            both = self.linear(x, block + "ssm_ba").reshape(n, k_heads, 2, -1)
            return qkv, z, both[:, :, 0].reshape(n, -1), both[:, :, 1].reshape(n, -1)
        beta = x @ self.weights[block + "ssm_beta.weight"].T
        return qkv, z, beta, x @ self.weights[block + "ssm_alpha.weight"].T

    def delta_attention(self, x, layer):
        """Gated DeltaNet over all positions. x: [n][d_model], already normalised."""
        block, n = f"blk.{layer}.", len(x)
        k_heads, v_heads = self.key("ssm.group_count"), self.key("ssm.time_step_rank")
        k_dim, v_dim = self.key("ssm.state_size"), self.key("ssm.inner_size") // v_heads
        group = v_heads // k_heads
        sizes = [k_dim, k_dim, group * v_dim, group * v_dim]
        qkv, z, beta, alpha = self.delta_projections(x, block, k_heads, sizes)
        mixed = silu(causal_convolution(qkv, self.weights[block + "ssm_conv1d.weight"]))
        self.observe(block + "delta_mixed", mixed)
        keys = k_heads * k_dim
        q, k, v = (part.reshape(n, heads, -1) for part, heads in
                   zip(np.split(mixed, [keys, 2 * keys], axis=1), (k_heads, k_heads, v_heads)))
        serving = np.arange(v_heads) // group if self.traits.delta_grouped else np.arange(v_heads) % k_heads
        decay = np.exp(self.weights[block + "ssm_a"] * softplus(alpha + self.weights[block + "ssm_dt.bias"]))
        q, k = l2_norm(q) / np.sqrt(k_dim), l2_norm(k)
        out = gated_delta_rule(q[:, serving], k[:, serving], v, decay, sigmoid(beta))
        out = rms_norm(out, self.weights[block + "ssm_norm.weight"], self.eps) * silu(z.reshape(out.shape))
        self.observe(block + "delta_out", out)
        return self.linear(out.reshape(n, -1), block + "ssm_out")

    def mamba2(self, x, layer):
        """Mamba2 over all positions. x: [n][d_model], already normalised."""
        block, n = f"blk.{layer}.", len(x)
        groups, heads = self.key("ssm.group_count"), self.key("ssm.time_step_rank")
        values, states = self.key("ssm.inner_size"), groups * self.key("ssm.state_size")
        z, mixed, step = np.split(self.linear(x, block + "ssm_in"), [values, 2 * values + 2 * states], axis=1)
        mixed = causal_convolution(mixed, self.weights[block + "ssm_conv1d.weight"])
        mixed = silu(mixed + self.weights[block + "ssm_conv1d.bias"])
        u, b, c = np.split(mixed, [values, values + states], axis=1)
        b, c = (np.repeat(part.reshape(n, groups, -1), heads // groups, axis=1) for part in (b, c))
        u, step = u.reshape(n, heads, -1), softplus(step + self.weights[block + "ssm_dt.bias"])
        decay = np.exp(self.weights[block + "ssm_a"][:, 0] * step)
        out = selective_scan(step[:, :, None] * u, b, c, decay) + self.weights[block + "ssm_d"] * u
        self.observe(block + "mamba2_out", out)
        out = (out.reshape(n, -1) * silu(z)).reshape(n, groups, -1)
        out = rms_norm(out, self.weights[block + "ssm_norm.weight"], self.eps)
        return self.linear(out.reshape(n, -1), block + "ssm_out")

    def short_convolution(self, x, layer):
        """LFM2's gated convolution over the last positions. x: [n][d_model], already normalised."""
        block = f"blk.{layer}.shortconv."
        before, after, values = np.split(self.linear(x, block + "in_proj"), 3, axis=1)
        mixed = after * causal_convolution(before * values, self.weights[block + "conv.weight"])
        self.observe(block + "mixed", mixed)
        return self.linear(mixed, block + "out_proj")

    def latent_query(self, x, block, head):
        """q of all heads, [n][heads][head], by way of a compressed vector where there is one."""
        if block + "attn_q_a.weight" in self.weights:
            x = self.norm(self.linear(x, block + "attn_q_a"), block + "attn_q_a_norm", LATENT_EPS)
            return self.linear(x, block + "attn_q_b").reshape(len(x), self.heads, head)
        return self.linear(x, block + "attn_q").reshape(len(x), self.heads, head)

    def temperature(self, n):
        """[n][1][1] the factor of q at each position (Mistral-Large-3)."""
        scale = self.key("attention.temperature_scale", 0.1 if self.arch == "mistral4" else 0.0)
        length = self.key("attention.temperature_length", self.key("rope.scaling.original_context_length", 1))
        return 1 + scale * np.log(1 + np.arange(n) // length)[:, None, None]

    def by_head(self, x, name):
        """[n][heads][in] -> [n][heads][out] by NAME.weight, [heads][out][in]."""
        return np.einsum("nhi,hoi->nho", self.seen_by(name, x), self.weights[name + ".weight"])

    def latent_attention(self, x, layer):
        """DeepSeek-V2's attention: one latent vector and one rotated key a position.

        Where the file has the expanding matrix in two parts, q is brought to the latent vectors
        and what they give to the heads' values; else all keys and values are expanded.
        """
        block, rotated = f"blk.{layer}.", 2 * len(self.frequencies)
        head = self.key("attention.key_length_mla", self.head_dim)
        q = self.latent_query(x, block, head)
        q = q * self.temperature(len(x))
        q, q_rotated = q[..., :-rotated], self.rotated(q[..., -rotated:])
        compressed = self.linear(x, block + "attn_kv_a_mqa")[:, None]
        latent = self.norm(compressed[..., :-rotated], block + "attn_kv_a_norm", LATENT_EPS)
        k_rotated = self.rotated(compressed[..., -rotated:])
        self.observe(block + "latent", latent)

        split = block + "attn_k_b.weight" in self.weights
        if split:
            q, k, v = self.by_head(q, block + "attn_k_b"), latent, latent
        else:
            both = self.linear(latent, block + "attn_kv_b").reshape(len(x), self.heads, -1)
            k, v = both[..., : q.shape[2]], both[..., q.shape[2] :]
            k_rotated = np.repeat(k_rotated, self.heads, axis=1)
        q, k = np.concatenate([q, q_rotated], axis=2), np.concatenate([k, k_rotated], axis=2)
        self.observe(block + "q", q)
        self.observe(block + "k", k)

        # yarn_log_multiplier is a tenth of the original's mscale_all_dim.
        growth = self.key("rope.scaling.yarn_log_multiplier", 0.0)
        mscale = 1 + growth * np.log(self.key("rope.scaling.factor", 1.0))
        context = self.attend(q, k, v, mscale * mscale / np.sqrt(head), layer)
        if split:
            context = self.by_head(context, block + "attn_v_b")
        return self.attention_output(context, layer)

    def feed_forward(self, x, block, suffix, expert=None):
        """down(activation(gate(x), up(x))) of a routed expert, the shared one or a dense layer."""
        fused = f"{block}ffn_gate_up{suffix}"
        ungated = f"{block}ffn_gate{suffix}.weight" not in self.weights and fused + ".weight" not in self.weights
        if fused + ".weight" in self.weights:
            gate, up = np.split(self.linear(x, fused, expert), 2, axis=1)
        else:
            gate = None if ungated else self.linear(x, f"{block}ffn_gate{suffix}", expert)
            up = self.linear(x, f"{block}ffn_up{suffix}", expert)
        if not ungated:
            self.observe(f"{block}gate{suffix}", gate)
        limits = self.key("swiglu_clamp_exp" if suffix == "_exps" else "swiglu_clamp_shexp", [])
        limit = limits[int(block.split(".")[1])] if limits else 0
        if limit:
            hidden = np.minimum(silu(gate), limit) * np.clip(up, -limit, limit)
        else:
            hidden = self.traits.activation(gate, up)
        return self.linear(hidden, f"{block}ffn_down{suffix}", expert)

    def route(self, logits, block):
        """(chosen, weights, margin) for the router's logits [n][experts]."""
        used = self.experts_used
        if self.traits.router == "sparse mixer":
            return route_sparse_mixer(logits)
        if self.traits.router == "chosen softmax":
            return route_chosen_softmax(logits, used)
        if self.traits.router == "softmax":
            return route_softmax(logits, used, self.traits.renormalise)
        bias = self.weights.get(block + "exp_probs_b.bias", self.weights.get(block + "exp_probs_b"))
        unsaid = self.arch in SIGMOID_UNSAID or (self.traits.mla and bias is not None)
        by_sigmoid = self.key("expert_gating_func", 2 if unsaid else 1) == 2
        scores = sigmoid(logits) if by_sigmoid else softmax(logits)
        bias = np.zeros(scores.shape[1]) if bias is None else bias
        groups, groups_used = self.key("expert_group_count", 0), self.key("expert_group_used_count", 0)
        group_best = 2 if by_sigmoid else 1  # V3 ranks groups by their two best, V2 by the best
        chosen, weights, margin = route_groups(scores, bias, used, groups, groups_used, group_best)
        if self.key("expert_weights_norm", self.traits.renormalise):
            weights = weights / weights.sum(axis=1, keepdims=True)
        return chosen, weights, margin

    def experts(self, x, layer):
        """The routed experts' weighted sum, plus the shared expert where there is one."""
        block = f"blk.{layer}."
        router = self.linear(x, block + "ffn_gate_inp")
        self.observe(block + "router_logits", router)
        chosen, weights, margin = self.route(router, block)
        weights = weights * self.expert_scale
        self.observe(block + "experts_chosen", chosen)
        self.observe(block + "expert_weights", weights)
        self.observe(block + "router_margin", margin)

        out = np.zeros_like(x)
        for expert in np.unique(chosen):
            position, rank = np.nonzero(chosen == expert)
            result = self.feed_forward(x[position], block, "_exps", expert)
            out[position] += result * weights[position, rank, None]
        self.observe(block + "routed_out", out)
        if block + "ffn_up_shexp.weight" in self.weights:
            shared = self.feed_forward(x, block, "_shexp")
            if block + "ffn_gate_inp_shexp.weight" in self.weights:
                gate = x @ self.weights[block + "ffn_gate_inp_shexp.weight"].reshape(-1)
                shared = shared * sigmoid(gate)[:, None]
            self.observe(block + "shared_out", shared)
            out = out + shared
            if self.traits.shared_average:
                out = out / 2
        return out

    def gemma_heads(self, x, layer):
        """q, k, v of all heads, placed. Values have a norm without weights; where there is no matrix
        for them they are the keys before their norm and rotation."""
        block, windowed = f"blk.{layer}.", self.windowed(layer)
        head = self.key("attention.key_length_swa") if windowed else self.head_dim
        q, k = (self.linear(x, block + n).reshape(len(x), -1, head) for n in ("attn_q", "attn_k"))
        own = block + "attn_v.weight" in self.weights
        v = self.linear(x, block + "attn_v").reshape(k.shape) if own else k
        frequencies = self.frequencies
        if windowed:
            frequencies = rope_frequencies(self.key("rope.dimension_count_swa"), self.key("rope.freq_base_swa"))
        q, k = (rotate(self.norm(y, block + n), frequencies, 1.0, False)
                for y, n in ((q, "attn_q_norm"), (k, "attn_k_norm")))
        return q, k, rms_norm(v, 1.0, self.eps)

    def gemma_experts(self, x, layer):
        """The routed experts' weighted sum; x: before any norm of the feed-forward part."""
        block = f"blk.{layer}."
        seen = rms_norm(x, self.weights[block + "ffn_gate_inp.scale"], self.eps) / np.sqrt(self.d_model)
        router = self.linear(seen, block + "ffn_gate_inp")
        chosen, weights, margin = self.route(router, block)
        weights = weights * self.weights[block + "ffn_down_exps.scale"][chosen]
        self.observe(block + "router_logits", router)
        self.observe(block + "experts_chosen", chosen)
        self.observe(block + "expert_weights", weights)
        self.observe(block + "router_margin", margin)
        normalised = self.norm(x, block + "pre_ffw_norm_2")
        out = np.zeros_like(x)
        for expert in np.unique(chosen):
            position, rank = np.nonzero(chosen == expert)
            both = self.linear(normalised[position], block + "ffn_gate_up_exps", expert)
            hidden = self.traits.activation(*np.split(both, 2, axis=1))
            out[position] += self.linear(hidden, block + "ffn_down_exps", expert) * weights[position, rank, None]
        self.observe(block + "routed_out", out)
        return out

    def gemma_layer(self, x, layer):
        """Gemma 4: a norm after each part, and a dense feed-forward part beside the experts."""
        block = f"blk.{layer}."
        q, k, v = self.gemma_heads(self.norm(x, block + "attn_norm"), layer)
        attended = self.attention_output(self.attend(q, k, v, 1.0, layer), layer)
        x = x + self.norm(attended, block + "post_attention_norm")
        self.observe(block + "after_attention", x)
        dense = self.feed_forward(self.norm(x, block + "ffn_norm"), block, "")
        dense = self.norm(dense, block + "post_ffw_norm_1")
        routed = self.norm(self.gemma_experts(x, layer), block + "post_ffw_norm_2")
        x = x + self.norm(dense + routed, block + "post_ffw_norm")
        x = x * self.weights[block + "layer_output_scale.weight"]
        self.observe(block + "after_experts", x)
        return x

    def block_part(self, x, layer):
        """Nemotron-H: one part, with a norm of its own."""
        block = f"blk.{layer}."
        part = self.attention if self.layer_kv_heads[layer] else self.mamba2
        if block + "ffn_gate_inp.weight" in self.weights:
            part = self.experts
        x = x + part(self.norm(x, block + "attn_norm"), layer)
        self.observe(block + "after", x)
        return x

    def layer(self, x, layer):
        if self.traits.gemma:
            return self.gemma_layer(x, layer)
        if self.traits.block_parts:
            return self.block_part(x, layer)
        block = f"blk.{layer}."
        normalised = self.norm(x, block + "attn_norm")
        self.observe(block + "attn_norm", normalised)
        attention = self.latent_attention if self.traits.mla else self.attention
        if self.traits.delta and (layer + 1) % self.key("full_attention_interval", 4) != 0:
            attention = self.delta_attention
        if block + "shortconv.conv.weight" in self.weights:
            attention = self.short_convolution
        added = attention(normalised, layer)
        x = x + (self.norm(added, block + "post_attention_norm") if self.traits.post_norms else added)
        self.observe(block + "after_attention", x)
        if not self.traits.parallel:
            normalised = self.norm(x, block + self.traits.ffn_norm)
        self.observe(block + "ffn_norm", normalised)
        routed = block + "ffn_gate_inp.weight" in self.weights
        added = self.experts(normalised, layer) if routed else self.feed_forward(normalised, block, "")
        x = x + (self.norm(added, block + "post_ffw_norm") if self.traits.post_norms else added)
        self.observe(block + ("after_experts" if routed else "after_dense"), x)
        return x

    def logits(self, tokens):
        """[n] token ids -> [n][vocabulary] float64."""
        x = self.weights["token_embd.weight"][np.asarray(tokens)]
        if self.traits.gemma or self.traits.embedding_scale:
            x = x * np.sqrt(self.d_model)
        self.observe("embedding", x)
        for layer in range(self.layers):
            x = self.layer(x, layer)
        x = self.norm(x, self.traits.output_norm)
        self.observe("output_norm", x)
        tied = "output.weight" not in self.weights
        out = self.linear(x, "token_embd" if tied else "output")
        out = out * self.key("logit_scale", 1.0)
        cap = self.key("final_logit_softcapping", 0.0)
        if cap:
            out = cap * np.tanh(out / cap)
        self.observe("logits", out)
        return out

    def greedy(self, tokens, count):
        """The COUNT most likely ids after TOKENS, and the smallest lead of a winner on the second."""
        tokens, lead = list(tokens), np.inf
        for _ in range(count):
            row = self.logits(tokens)[-1]
            second, first = np.argsort(row)[-2:]
            lead = min(lead, row[first] - row[second])
            tokens.append(int(first))
        return tokens[len(tokens) - count :], lead

    def watch(self, tokens, suffix):
        """The intermediates whose name ends in suffix, in the order of the layers."""
        values = []

        def note(name, value):
            if name.endswith(suffix):
                values.append(value)

        self.observe, before = note, self.observe
        self.logits(tokens)
        self.observe = before
        return values

    def router_margin(self, tokens):
        """How near any routing decision is to another: see reference_parts.py."""
        return min(float(np.min(m)) for m in self.watch(tokens, "router_margin"))

    def routes(self, tokens):
        """The experts chosen for each position in each layer, each choice in ascending order."""
        return np.stack([np.sort(c, axis=1) for c in self.watch(tokens, "experts_chosen")])


def distance(rows, exact):
    """(largest absolute difference, [|difference| / |exact| in L2 of each row])."""
    difference = rows - exact
    relative = np.linalg.norm(difference, axis=1) / np.linalg.norm(exact, axis=1)
    return float(np.abs(difference).max()), relative


def read_tokens(text):
    """Ids from a file's text or from the argument itself, separated by blanks or commas."""
    path = Path(text)
    text = path.read_text() if path.exists() else text
    return [int(word) for word in text.replace(",", " ").split()]


def trace_printer(position, count):
    def show(name, value):
        vector = np.asarray(value[position]).reshape(-1)
        shape = "x".join(str(n) for n in np.shape(value[position]))
        head = " ".join(f"{v:.6g}" for v in vector[:count])
        print(f"{name:24} [{shape}] rms {np.sqrt(np.mean(vector * vector)):.6g}: {head}")

    return show


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--tokens", default=str(Path(__file__).parent / "tokens.txt"))
    parser.add_argument("-o", "--output")
    parser.add_argument("--compare")
    parser.add_argument("--tolerance", type=float, default=1e-3, help="of --compare, absolute")
    parser.add_argument("--greedy", type=int, metavar="N")
    parser.add_argument("--trace", type=int, nargs="?", const=-1, metavar="POSITION")
    parser.add_argument("--values", type=int, default=6)
    parser.add_argument("--round-activations", action="store_true")
    args = parser.parse_args()

    try:
        model = Model(args.model)
    except (Unsupported, ValueError, OSError) as error:
        sys.exit(f"reference.py: {error}")
    model.round_activations = args.round_activations
    tokens = read_tokens(args.tokens)
    if args.greedy is not None:
        print(" ".join(str(t) for t in model.greedy(tokens, args.greedy)[0]))
        return 0
    if args.trace is not None:
        model.observe = trace_printer(args.trace, args.values)
    logits = model.logits(tokens)
    if args.output:
        logits.astype("<f4").tofile(args.output)
    if args.compare:
        other = np.fromfile(args.compare, dtype="<f4").astype(np.float64)
        if other.size != logits.size:
            sys.exit(f"{args.compare}: {other.size} values, expected {logits.size}")
        largest, relative = distance(other.reshape(logits.shape), logits)
        print(
            f"{args.compare}: largest difference {largest:.3g}, relative L2 of a row: median"
            f" {np.median(relative):.3g}, worst {relative.max():.3g}"
        )
        return 0 if largest <= args.tolerance else 1
    if not args.output and args.trace is None:
        for position, (token, row) in enumerate(zip(tokens, logits)):
            best = np.argsort(-row)[:4]
            ranking = " ".join(f"{b}:{row[b]:.4f}" for b in best)
            print(f"{position:4} token {token:6} std {row.std():.3f} best {ranking}")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader that stops early is no error
    sys.exit(main())
