"""The steps of reference.py that need no model: norms, rounding, rotary frequencies, routing.

All in float64. Each function is one definition from an architecture's paper or original code, so
that a reader can compare it with what the runtime does.
"""

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize, quantize

K_TYPES = (Type.Q2_K, Type.Q3_K, Type.Q4_K, Type.Q5_K, Type.Q6_K, Type.IQ4_XS)
SPARSE_MIXER_EPS = 0.01  # Phi-3.5-MoE's router_jitter_noise; GGUF has no key for it
PHI_MSCALE = 1.243163121016122  # its short_mscale and long_mscale, unlike rope.scaling.attn_factor
LATENT_EPS = 1e-6  # of DeepSeek-V2's norms of compressed vectors, whatever the file's eps is
OAI_ALPHA, OAI_LIMIT = 1.702, 7.0  # gpt-oss' swiglu_alpha, swiglu_limit; GGUF has no keys for them


# ---- norms and activations ---------------------------------------------------------------------


def rms_norm(x, weight, eps):
    """x / sqrt(mean(x^2) + eps) * weight over the last axis."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def layer_norm(x, weight, bias, eps):
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last axis."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return rms_norm(centred, weight, eps) + bias


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def swiglu(gate, up):
    return silu(gate) * up


def swiglu_clamped(gate, up):
    """gpt-oss: both halves clamped, a steeper sigmoid, one added to the linear half."""
    gate, up = np.minimum(gate, OAI_LIMIT), np.clip(up, -OAI_LIMIT, OAI_LIMIT)
    return gate * sigmoid(OAI_ALPHA * gate) * (up + 1)


def gelu_gated(gate, up):
    """GELU of the gate in its tanh form (arXiv 1606.08415, section 2)."""
    return 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3))) * up


def relu_squared(gate, up):
    """No gate (arXiv 2109.08668, section 3)."""
    return np.maximum(up, 0) ** 2


def softplus(x):
    return np.where(x > 20, x, np.log1p(np.exp(np.minimum(x, 20))))


def l2_norm(x):
    return x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + 1e-6)


# ---- linear attention --------------------------------------------------------------------------


def causal_convolution(x, taps):
    """x: [n][channels], taps: [channels][count], the last for the same position."""
    count = taps.shape[1]
    padded = np.concatenate([np.zeros((count - 1, x.shape[1])), x])
    return sum(padded[i : i + len(x)] * taps[:, i] for i in range(count))


def gated_delta_rule(q, k, v, decay, beta):
    """Gated DeltaNet (arXiv 2412.06464), position by position: the state forgets, learns the
    difference between v and what it holds for k, and answers q.

    q, k: [n][heads][k_dim], v: [n][heads][v_dim], decay, beta: [n][heads]. -> [n][heads][v_dim]
    """
    state = np.zeros((v.shape[1], k.shape[2], v.shape[2]))
    out = np.empty_like(v)
    for t in range(len(v)):
        state *= decay[t][:, None, None]
        held = np.einsum("hkv,hk->hv", state, k[t])
        state += np.einsum("hk,hv->hkv", k[t], beta[t][:, None] * (v[t] - held))
        out[t] = np.einsum("hkv,hk->hv", state, q[t])
    return out


def selective_scan(u, b, c, decay):
    """Mamba2 (arXiv 2405.21060), position by position: the state forgets, adds b times u, answers c.

    u: [n][heads][dims], b, c: [n][heads][states], decay: [n][heads]. -> [n][heads][dims]
    """
    state = np.zeros((u.shape[1], b.shape[2], u.shape[2]))
    out = np.empty_like(u)
    for t in range(len(u)):
        state = decay[t][:, None, None] * state + b[t][:, :, None] * u[t][:, None, :]
        out[t] = np.einsum("hsd,hs->hd", state, c[t])
    return out


# ---- what CPU kernels round --------------------------------------------------------------------


def round_to_8_bits(x, block):
    """x after rounding each block of its values to int8 with one scale.

    Blocks of 32 have a float16 scale (Q8_0), blocks of 256 a float32 one (Q8_K).
    """
    x = x.astype(np.float32).astype(np.float64)
    blocks = x.reshape(-1, block)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / 127.0
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    quants = np.rint(blocks * inverse)
    stored = scale.astype(np.float16 if block == 32 else np.float32).astype(np.float64)
    return (quants * stored).reshape(x.shape)


def round_like_kernel(x, kind):
    """x as a CPU kernel sees it that multiplies it with a matrix of this type."""
    if kind == Type.F32:
        return x
    if kind == Type.F16:
        return x.astype(np.float16).astype(np.float64)
    if kind == Type.BF16:
        return dequantize(quantize(x.astype(np.float32), kind), kind).astype(np.float64)
    return round_to_8_bits(x, 256 if kind in K_TYPES else 32)


# ---- rotary embeddings -------------------------------------------------------------------------


def rope_frequencies(dims, base):
    """The angle that a pair turns with each position: base^(-2i/dims)."""
    return base ** (-np.arange(dims // 2) * 2.0 / dims)


def yarn_frequencies(dims, base, factor, original_context, beta_fast=32, beta_slow=1):
    """YaRN (arXiv 2309.00071): fast pairs as they were, slow ones divided by the factor.

    Between the pairs that turn beta_fast and beta_slow times within the original context the two
    are mixed by a ramp, whose ends are rounded outwards to whole pairs.
    """

    def pair_turning(times):
        return dims * np.log(original_context / (times * 2 * np.pi)) / (2 * np.log(base))

    low = max(np.floor(pair_turning(beta_fast)), 0)
    high = min(np.ceil(pair_turning(beta_slow)), dims - 1)
    ramp = np.clip((np.arange(dims // 2) - low) / max(high - low, 0.001), 0, 1)
    plain = rope_frequencies(dims, base)
    return plain / factor * ramp + plain * (1 - ramp)


def rotate(x, frequencies, magnitude, adjacent):
    """x: [n][heads][dims] turned by its position, the index on the first axis.

    Only the first 2 * len(frequencies) values of a head turn. Pairs are (2i, 2i + 1) where
    adjacent, else (i, i + half).
    """
    half = len(frequencies)
    angle = np.arange(len(x))[:, None, None] * frequencies
    cos, sin = magnitude * np.cos(angle), magnitude * np.sin(angle)
    if adjacent:
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    else:
        first, second = slice(0, half), slice(half, 2 * half)
    out = x.copy()
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., first] * sin + x[..., second] * cos
    return out


# ---- routing -----------------------------------------------------------------------------------
#
# Each returns (chosen: [n][used], weights: [n][used], margin: [n]). The margin is the distance of
# the router's logits (or scores) from another choice: see make_golden.py.


def best(scores, count):
    """The indices of the COUNT largest in each row, and the lead of the last on the next."""
    order = np.argsort(-scores, axis=1, kind="stable")
    ordered = np.take_along_axis(scores, order, axis=1)
    with np.errstate(invalid="ignore"):
        lead = ordered[:, count - 1] - ordered[:, count] if count < scores.shape[1] else np.inf
    return order[:, :count], lead


def route_softmax(logits, used, renormalise):
    """The probabilities of all experts; the largest are the weights."""
    chosen, margin = best(logits, used)
    weights = np.take_along_axis(softmax(logits), chosen, axis=1)
    return chosen, weights / weights.sum(axis=1, keepdims=True) if renormalise else weights, margin


def route_chosen_softmax(logits, used):
    """gpt-oss: a softmax over the logits of the chosen experts only."""
    chosen, margin = best(logits, used)
    return chosen, softmax(np.take_along_axis(logits, chosen, axis=1)), margin


def route_groups(scores, bias, used, groups, groups_used, group_best):
    """DeepSeek-V2, V3: the best experts of the best groups, by score plus selection bias.

    A group is worth the sum of its GROUP_BEST largest values. The weights are the scores without
    the bias.
    """
    n, experts = scores.shape
    choice, margin = scores + bias, np.full(n, np.inf)
    if groups > 1:
        grouped = choice.reshape(n, groups, -1)
        worth = np.sort(grouped, axis=2)[:, :, -group_best:].sum(axis=2)
        kept, margin = best(worth, groups_used)
        allowed = np.zeros((n, groups), dtype=bool)
        np.put_along_axis(allowed, kept, True, axis=1)
        choice = np.where(np.repeat(allowed, experts // groups, axis=1), choice, -np.inf)
    chosen, lead = best(choice, used)
    return chosen, np.take_along_axis(scores, chosen, axis=1), np.minimum(margin, lead)


def sparse_mixer_gate(logits, candidates):
    """One step of Phi-3.5-MoE's sparse mixer (arXiv 2409.12136) as it infers.

    candidates: logits, with -inf where an expert is already taken. Returns the best candidate,
    its probability among those candidates within 2 * eps of it, relative to the larger of its own
    magnitude and the best's value, and how near the decision was.
    """
    top = candidates.max(axis=1, keepdims=True)
    chosen = candidates.argmax(axis=1)[:, None]
    distance = (top - logits) / np.maximum(np.abs(logits), top)
    near = np.where(distance > 2 * SPARSE_MIXER_EPS, -np.inf, candidates)
    weight = np.take_along_axis(softmax(near), chosen, axis=1)
    free = np.isfinite(candidates)
    lead = best(candidates, 1)[1]
    edge = np.where(free, np.abs(distance - 2 * SPARSE_MIXER_EPS), np.inf).min(axis=1)
    return chosen, weight, np.minimum(lead, edge)


def route_sparse_mixer(logits):
    """Two experts, each weighted against its near rivals: the weights' sum is 1 to 2."""
    first, first_weight, first_margin = sparse_mixer_gate(logits, logits)
    rest = logits.copy()
    np.put_along_axis(rest, first, -np.inf, axis=1)
    second, second_weight, second_margin = sparse_mixer_gate(logits, rest)
    chosen = np.concatenate([first, second], axis=1)
    weights = np.concatenate([first_weight, second_weight], axis=1)
    return chosen, weights, np.minimum(first_margin, second_margin)
