#!/usr/bin/env python3
"""A small numpy forward pass of the MoE architectures, read straight from a GGUF file.

It is the oracle to debug the C runtime with: every weight is dequantised, every sum is done in
float64, one function stands for one step of the model, and --trace prints the intermediate values
by name. Architectures: llama with experts (Mixtral), qwen2moe, qwen3moe. It takes no shortcuts
and has no cache: each call computes all positions.

Usage (needs numpy and gguf, see requirements.txt):

  reference.py MODEL.gguf                                  logits of tokens.txt beside this file,
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
                                                           matrix): what error that alone explains
"""

import argparse
import os
import signal
import sys
from pathlib import Path

# The matrices are tiny: threads of a BLAS only cost here. Set before numpy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np  # noqa: E402
from gguf import GGMLQuantizationType, GGUFReader  # noqa: E402
from gguf.quants import dequantize, quantize  # noqa: E402

ARCHITECTURES = ("llama", "qwen2moe", "qwen3moe")
K_TYPES = (GGMLQuantizationType.Q4_K, GGMLQuantizationType.Q5_K, GGMLQuantizationType.Q6_K)


class Unsupported(Exception):
    """The file asks for something that this reference does not compute."""


def rms_norm(x, weight, eps):
    """x / sqrt(mean(x^2) + eps) * weight over the last axis."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def round_to_8_bits(x, block):
    """What is left of x when each block of its values is stored as int8 with one scale.

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
    if kind == GGMLQuantizationType.F32:
        return x
    if kind == GGMLQuantizationType.F16:
        return x.astype(np.float16).astype(np.float64)
    if kind == GGMLQuantizationType.BF16:
        return dequantize(quantize(x.astype(np.float32), kind), kind).astype(np.float64)
    return round_to_8_bits(x, 256 if kind in K_TYPES else 32)


class Model:
    """The hyper-parameters and dequantised float64 weights of one GGUF file."""

    def __init__(self, path):
        reader = GGUFReader(path)
        self.fields = {name: field.contents() for name, field in reader.fields.items()}
        self.types = {t.name: t.tensor_type for t in reader.tensors}
        self.weights = {
            t.name: dequantize(t.data, t.tensor_type).astype(np.float64) for t in reader.tensors
        }
        self.arch = self.fields["general.architecture"]
        if self.arch not in ARCHITECTURES:
            raise Unsupported(f"{path}: architecture {self.arch!r}, known: {', '.join(ARCHITECTURES)}")
        if self.key("rope.scaling.type", "none") != "none" or "rope_freqs.weight" in self.weights:
            raise Unsupported(f"{path}: scaled rotary embeddings")

        self.layers = self.key("block_count")
        self.d_model = self.key("embedding_length")
        self.heads = self.key("attention.head_count")
        self.kv_heads = self.key("attention.head_count_kv", self.heads)
        self.head_dim = self.key("attention.key_length", self.d_model // self.heads)
        self.eps = self.key("attention.layer_norm_rms_epsilon")
        self.rope_dim = self.key("rope.dimension_count", self.head_dim)
        self.rope_base = self.key("rope.freq_base", 10000.0)
        self.experts_used = self.key("expert_used_count")
        self.expert_scale = self.key("expert_weights_scale", 0.0) or 1.0
        # Mixtral and Qwen3-MoE divide the chosen experts' weights by their sum, Qwen2-MoE does not.
        self.normalise_experts = self.arch != "qwen2moe"
        # The llama converter reorders the rows of q and k so that a pair stands side by side.
        self.rope_pairs_adjacent = self.arch == "llama"

        self.round_activations = False
        self.observe = lambda name, value: None  # called with each named intermediate

    def key(self, name, default=None):
        value = self.fields.get(f"{self.arch}.{name}", default)
        if value is None:
            raise Unsupported(f"key {self.arch}.{name} is missing")
        return value

    def linear(self, x, name, expert=None):
        """x: [n][in] -> [n][out] by the matrix NAME.weight ([out][in]), plus NAME.bias if any."""
        weight = self.weights[name + ".weight"]
        weight = weight if expert is None else weight[expert]
        if self.round_activations:
            x = round_like_kernel(x, self.types[name + ".weight"])
        y = x @ weight.T
        bias = self.weights.get(name + ".bias")
        return y if bias is None else y + bias

    def rotate(self, x):
        """Rotary embedding of x: [n][heads][head_dim], position = index on the first axis."""
        half = self.rope_dim // 2
        frequency = self.rope_base ** (-np.arange(half) * 2.0 / self.rope_dim)
        angle = np.arange(len(x))[:, None, None] * frequency
        cos, sin = np.cos(angle), np.sin(angle)
        if self.rope_pairs_adjacent:
            first, second = slice(0, self.rope_dim, 2), slice(1, self.rope_dim, 2)
        else:
            first, second = slice(0, half), slice(half, self.rope_dim)
        out = x.copy()
        out[..., first] = x[..., first] * cos - x[..., second] * sin
        out[..., second] = x[..., first] * sin + x[..., second] * cos
        return out

    def attention(self, x, layer):
        """Causal grouped-query attention over all positions. x: [n][d_model], already normalised."""
        n, block = len(x), f"blk.{layer}."
        q = self.linear(x, block + "attn_q").reshape(n, self.heads, self.head_dim)
        k = self.linear(x, block + "attn_k").reshape(n, self.kv_heads, self.head_dim)
        v = self.linear(x, block + "attn_v").reshape(n, self.kv_heads, -1)
        if block + "attn_q_norm.weight" in self.weights:
            q = rms_norm(q, self.weights[block + "attn_q_norm.weight"], self.eps)
            k = rms_norm(k, self.weights[block + "attn_k_norm.weight"], self.eps)
        q, k = self.rotate(q), self.rotate(k)
        self.observe(block + "q", q)
        self.observe(block + "k", k)
        self.observe(block + "v", v)

        future = np.triu(np.ones((n, n), dtype=bool), 1)
        context = np.empty((n, self.heads, v.shape[2]))
        for head in range(self.heads):
            shared = head // (self.heads // self.kv_heads)  # neighbouring query heads share one k, v
            scores = q[:, head] @ k[:, shared].T / np.sqrt(self.head_dim)
            scores[future] = -np.inf
            context[:, head] = softmax(scores) @ v[:, shared]
        self.observe(block + "attn_context", context)
        return self.linear(context.reshape(n, -1), block + "attn_output")

    def feed_forward(self, x, block, suffix, expert=None):
        """down(silu(gate(x)) * up(x)) of one routed expert or of the shared one."""
        gate = self.linear(x, f"{block}ffn_gate_{suffix}", expert)
        up = self.linear(x, f"{block}ffn_up_{suffix}", expert)
        return self.linear(silu(gate) * up, f"{block}ffn_down_{suffix}", expert)

    def experts(self, x, layer):
        """The routed experts' weighted sum, plus the shared expert where there is one."""
        block = f"blk.{layer}."
        router = self.linear(x, block + "ffn_gate_inp")
        self.observe(block + "router_logits", router)
        probabilities = softmax(router)
        chosen = np.argsort(-router, axis=1, kind="stable")[:, : self.experts_used]
        weights = np.take_along_axis(probabilities, chosen, axis=1)
        if self.normalise_experts:
            weights = weights / weights.sum(axis=1, keepdims=True)
        weights = weights * self.expert_scale
        self.observe(block + "experts_chosen", chosen)
        self.observe(block + "expert_weights", weights)

        out = np.zeros_like(x)
        for expert in np.unique(chosen):
            position, rank = np.nonzero(chosen == expert)
            result = self.feed_forward(x[position], block, "exps", expert)
            out[position] += result * weights[position, rank, None]
        self.observe(block + "routed_out", out)
        if block + "ffn_gate_inp_shexp.weight" in self.weights:
            gate = sigmoid(x @ self.weights[block + "ffn_gate_inp_shexp.weight"].reshape(-1))
            shared = self.feed_forward(x, block, "shexp") * gate[:, None]
            self.observe(block + "shared_out", shared)
            out = out + shared
        return out

    def logits(self, tokens):
        """[n] token ids -> [n][vocabulary] float64."""
        x = self.weights["token_embd.weight"][np.asarray(tokens)]
        self.observe("embedding", x)
        for layer in range(self.layers):
            block = f"blk.{layer}."
            normalised = rms_norm(x, self.weights[block + "attn_norm.weight"], self.eps)
            self.observe(block + "attn_norm", normalised)
            x = x + self.attention(normalised, layer)
            self.observe(block + "after_attention", x)
            normalised = rms_norm(x, self.weights[block + "ffn_norm.weight"], self.eps)
            self.observe(block + "ffn_norm", normalised)
            x = x + self.experts(normalised, layer)
            self.observe(block + "after_experts", x)
        x = rms_norm(x, self.weights["output_norm.weight"], self.eps)
        self.observe("output_norm", x)
        tied = "output.weight" not in self.weights
        out = self.linear(x, "token_embd" if tied else "output")
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

    def router_margin(self, tokens):
        """The smallest lead of a chosen expert's router logit on the first that is not chosen."""
        margins = []

        def note(name, value):
            if name.endswith("router_logits"):
                ordered = -np.sort(-value, axis=1)
                margins.append(ordered[:, self.experts_used - 1] - ordered[:, self.experts_used])

        self.watched(tokens, note)
        return min(float(m.min()) for m in margins)

    def routes(self, tokens):
        """The experts chosen for each position in each layer, each choice in ascending order."""
        chosen = []

        def note(name, value):
            if name.endswith("experts_chosen"):
                chosen.append(np.sort(value, axis=1))

        self.watched(tokens, note)
        return np.stack(chosen)

    def watched(self, tokens, observer):
        self.observe, before = observer, self.observe
        self.logits(tokens)
        self.observe = before


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
