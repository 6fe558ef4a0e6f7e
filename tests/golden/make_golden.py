#!/usr/bin/env python3
"""Makes the golden models: tiny MoE models as GGUF with the logits that transformers gives.

  make_golden.py [--out DIR] [--only NAME ...] [--check]

For each model below: weights are drawn from a seed, quantised where the model asks for it and
written as GGUF; the same weights, dequantised, go into the implementation of transformers, which
runs in float64 and gives the logits of tokens.txt and a greedy continuation. A model whose answer
hangs on a near tie (two experts or two tokens almost equal) is drawn again from the next seed, so
that a test which fails has found a fault and not a rounding. --check writes nothing and compares
the files that are there with what would be written. README.md describes the files.
"""

import argparse
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from gguf import GGML_QUANT_SIZES, GGUFWriter, LlamaFileType  # noqa: E402
from gguf import GGMLQuantizationType as Type  # noqa: E402
from gguf.quants import dequantize, quantize  # noqa: E402

import reference  # noqa: E402
import tiny_vocabulary  # noqa: E402

TOKENS = Path(__file__).parent / "tokens.txt"
GREEDY_PROMPT, GREEDY_COUNT = 8, 16
CONTEXT = 512
ROPE_BASE = 1e6
REFERENCE_TOLERANCE = 1e-4  # transformers computes norms, gates and softmax in float32
MAX_SEEDS = 3000


@dataclass(frozen=True)
class Spec:
    """One golden model. seed: the first one tried; the one recorded here passes all checks."""

    name: str
    arch: str
    seed: int
    d_model: int
    heads: int
    kv_heads: int
    head_dim: int
    width: int  # of a routed expert
    experts: int
    experts_used: int
    layers: int = 2
    shared_width: int = 0
    tied: bool = False
    eps: float = 1e-6
    type: Type = Type.F32
    router_margin: float = 1e-2  # between the last chosen expert's logit and the next
    greedy_margin: float = 1e-2  # between the best token's logit and the second

    @property
    def explicit_head_dim(self):
        return self.head_dim * self.heads != self.d_model


def quantised(kind, seed, **changes):
    """A one-layer qwen3moe of a tensor type; wide margins, for kernels round activations."""
    small = {"d_model": 64, "width": 64, "head_dim": 32, "experts": 4}
    shape = {"heads": 4, "kv_heads": 2, "experts_used": 2, "layers": 1, "tied": True}
    margins = {"router_margin": 0.05, "greedy_margin": 0.05}
    return Spec(
        f"quant-{kind.name}", "qwen3moe", seed, type=kind, **(small | shape | margins | changes)
    )


FILE_TYPES = {
    Type.F32: LlamaFileType.ALL_F32,
    Type.F16: LlamaFileType.MOSTLY_F16,
    Type.BF16: LlamaFileType.MOSTLY_BF16,
    Type.Q8_0: LlamaFileType.MOSTLY_Q8_0,
    Type.Q4_0: LlamaFileType.MOSTLY_Q4_0,
    Type.Q4_K: LlamaFileType.MOSTLY_Q4_K_M,
    Type.Q5_K: LlamaFileType.MOSTLY_Q5_K_M,
    Type.Q6_K: LlamaFileType.MOSTLY_Q6_K,
}
K_SHAPE = {"d_model": 256, "width": 256, "head_dim": 16, "experts": 3}

SPECS = [
    # Grouped queries, an expert width that no vector register divides, explicit head size.
    Spec("mixtral", "llama", 12, 32, 4, 2, 16, width=40, experts=8, experts_used=2, eps=1e-5),
    # Biases, shared expert with its gate, no renormalised weights, one k, v head a query head.
    Spec("qwen2moe", "qwen2moe", 15, 32, 2, 2, 16, width=32, experts=8, experts_used=4, shared_width=48),
    # QK norm, heads wider than d_model together, grouped queries, tied embeddings.
    Spec("qwen3moe", "qwen3moe", 1, 32, 4, 2, 32, width=32, experts=8, experts_used=2, tied=True),
    quantised(Type.F16, 8),
    quantised(Type.BF16, 8),
    quantised(Type.Q8_0, 8),
    quantised(Type.Q4_0, 28),
    quantised(Type.Q4_K, 17, **K_SHAPE),
    quantised(Type.Q5_K, 46, **K_SHAPE),
    quantised(Type.Q6_K, 16, **K_SHAPE),
]


# ---- weights -----------------------------------------------------------------------------------


def tensor_plan(spec):
    """(GGUF name, numpy shape, kind, standard deviation) of every tensor, in file order.

    Deviations keep activations near 1, give logits a deviation of 1 to 3 and spread the gates.
    """
    d, q, kv = spec.d_model, spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    w, s, e = spec.width, spec.shared_width, spec.experts
    yield "token_embd.weight", (tiny_vocabulary.SIZE, d), "matrix", 2 / np.sqrt(d)
    yield "output_norm.weight", (d,), "norm", 0
    if not spec.tied:
        yield "output.weight", (tiny_vocabulary.SIZE, d), "matrix", 2 / np.sqrt(d)
    for layer in range(spec.layers):
        b = f"blk.{layer}."
        yield b + "attn_norm.weight", (d,), "norm", 0
        for name, rows in (("q", q), ("k", kv), ("v", kv)):
            yield f"{b}attn_{name}.weight", (rows, d), "matrix", 1.3 / np.sqrt(d)
            if spec.arch == "qwen2moe":
                yield f"{b}attn_{name}.bias", (rows,), "bias", 0.5
        if spec.arch == "qwen3moe":
            yield b + "attn_q_norm.weight", (spec.head_dim,), "norm", 0
            yield b + "attn_k_norm.weight", (spec.head_dim,), "norm", 0
        yield b + "attn_output.weight", (d, q), "matrix", 1.5 / np.sqrt(q)
        yield b + "ffn_norm.weight", (d,), "norm", 0
        yield b + "ffn_gate_inp.weight", (e, d), "router", 2 / np.sqrt(d)
        yield b + "ffn_gate_exps.weight", (e, w, d), "matrix", 1.5 / np.sqrt(d)
        yield b + "ffn_up_exps.weight", (e, w, d), "matrix", 1.5 / np.sqrt(d)
        yield b + "ffn_down_exps.weight", (e, d, w), "matrix", 1.5 / np.sqrt(w)
        if s:
            yield b + "ffn_gate_shexp.weight", (s, d), "matrix", 1.5 / np.sqrt(d)
            yield b + "ffn_up_shexp.weight", (s, d), "matrix", 1.5 / np.sqrt(d)
            yield b + "ffn_down_shexp.weight", (d, s), "matrix", 1.5 / np.sqrt(s)
            yield b + "ffn_gate_inp_shexp.weight", (d,), "router", 1.5 / np.sqrt(d)


def storage_type(spec, shape):
    """The model's type where the row length allows it, else Q8_0, as converters fall back."""
    block, _ = GGML_QUANT_SIZES[spec.type]
    return spec.type if shape[-1] % block == 0 else Type.Q8_0


def random_k_blocks(rng, shape, kind, deviation):
    """Blocks of a K type with every byte random, but for the scales that set the magnitude.

    Any bytes are valid packed scales and quants, so all of their bits are exercised. Layouts
    (from the format's definition): Q4_K, Q5_K start with float16 d and dmin; Q6_K ends with d.
    """
    values, size = GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (int(np.prod(shape)) // values, size), dtype=np.uint8)
    spread = rng.uniform(0.5, 1.5, (len(blocks), 1))

    def put_scales(unit):
        d = (unit * spread).astype("<f2").view(np.uint8)
        if kind == Type.Q6_K:
            blocks[:, -2:] = d
            return
        middle = 7.5 if kind == Type.Q4_K else 15.5  # a minimum of this many d centres the values
        blocks[:, 0:2] = d
        blocks[:, 2:4] = (unit * middle * spread).astype("<f2").view(np.uint8)

    put_scales(1.0)
    put_scales(deviation / dequantize(blocks, kind).std())
    return blocks.reshape(*shape[:-1], -1)


def draw_tensors(spec, seed):
    """{name: (stored array, type)}: what the file holds, in the row order of transformers."""
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, shape, role, deviation in tensor_plan(spec):
        if role == "norm":
            tensors[name] = rng.uniform(0.6, 1.4, shape).astype(np.float32), Type.F32
        elif role in ("bias", "router"):
            tensors[name] = (deviation * rng.standard_normal(shape)).astype(np.float32), Type.F32
        else:
            kind = storage_type(spec, shape)
            if kind in (Type.Q4_K, Type.Q5_K, Type.Q6_K):
                tensors[name] = random_k_blocks(rng, shape, kind, deviation), kind
            else:
                values = (deviation * rng.standard_normal(shape)).astype(np.float32)
                tensors[name] = quantize(values, kind), kind
    return tensors


# ---- the GGUF file -----------------------------------------------------------------------------


def interleave_halves(rows, heads):
    """q or k rows of transformers' rotation (pairs half a head apart) for adjacent pairs."""
    per_head = rows.shape[0] // heads
    return rows.reshape(heads, 2, per_head // 2, -1).swapaxes(1, 2).reshape(rows.shape)


def write_gguf(path, spec, tensors):
    writer = GGUFWriter(path, spec.arch)
    writer.add_name(spec.name)
    writer.add_file_type(FILE_TYPES[spec.type])
    if spec.type not in (Type.F32, Type.F16, Type.BF16):
        writer.add_quantization_version(2)
    writer.add_block_count(spec.layers)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(spec.d_model)
    writer.add_feed_forward_length(spec.width)
    writer.add_head_count(spec.heads)
    writer.add_head_count_kv(spec.kv_heads)
    writer.add_layer_norm_rms_eps(spec.eps)
    writer.add_rope_freq_base(ROPE_BASE)
    writer.add_rope_dimension_count(spec.head_dim)
    writer.add_expert_count(spec.experts)
    writer.add_expert_used_count(spec.experts_used)
    writer.add_vocab_size(tiny_vocabulary.SIZE)
    if spec.explicit_head_dim:
        writer.add_key_length(spec.head_dim)
        writer.add_value_length(spec.head_dim)
    if spec.arch != "llama":
        writer.add_expert_feed_forward_length(spec.width)
    if spec.shared_width:
        writer.add_expert_shared_feed_forward_length(spec.shared_width)
    tiny_vocabulary.add_to(writer)
    for name, (stored, kind) in tensors.items():
        if spec.arch == "llama" and name.endswith(("attn_q.weight", "attn_k.weight")):
            heads = spec.heads if "attn_q" in name else spec.kv_heads
            stored = interleave_halves(stored, heads)
        writer.add_tensor(name, np.ascontiguousarray(stored), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# ---- transformers ------------------------------------------------------------------------------

LAYER_NAMES = {
    "attn_norm.weight": "input_layernorm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "ffn_gate_inp.weight": "mlp.gate.weight",
    "ffn_down_exps.weight": "mlp.experts.down_proj",
    "ffn_gate_shexp.weight": "mlp.shared_expert.gate_proj.weight",
    "ffn_up_shexp.weight": "mlp.shared_expert.up_proj.weight",
    "ffn_down_shexp.weight": "mlp.shared_expert.down_proj.weight",
    "ffn_gate_inp_shexp.weight": "mlp.shared_expert_gate.weight",
} | {f"attn_{n}.{part}": f"self_attn.{n}_proj.{part}" for n in "qkv" for part in ("weight", "bias")}


def state_dict(spec, tensors):
    """The dequantised weights in float64 under transformers' names."""
    exact = {n: dequantize(a, kind).astype(np.float64) for n, (a, kind) in tensors.items()}
    embedding = exact["token_embd.weight"]
    state = {
        "model.embed_tokens.weight": embedding,
        "lm_head.weight": exact.get("output.weight", embedding),
        "model.norm.weight": exact["output_norm.weight"],
    }
    for layer in range(spec.layers):
        block, prefix = f"blk.{layer}.", f"model.layers.{layer}."
        for ours, theirs in LAYER_NAMES.items():
            if block + ours in exact:
                state[prefix + theirs] = exact[block + ours]
        gate_up = [exact[f"{block}ffn_{n}_exps.weight"] for n in ("gate", "up")]
        state[prefix + "mlp.experts.gate_up_proj"] = np.concatenate(gate_up, axis=1)
        shared_gate = prefix + "mlp.shared_expert_gate.weight"
        if shared_gate in state:
            state[shared_gate] = state[shared_gate][None]
    return {name: torch.from_numpy(value) for name, value in state.items()}


def build_transformers(spec, tensors):
    common = dict(
        vocab_size=tiny_vocabulary.SIZE,
        hidden_size=spec.d_model,
        num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads,
        num_key_value_heads=spec.kv_heads,
        num_experts_per_tok=spec.experts_used,
        rms_norm_eps=spec.eps,
        max_position_embeddings=CONTEXT,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_BASE},
        tie_word_embeddings=spec.tied,
        attn_implementation="eager",
        experts_implementation="eager",
        bos_token_id=None,
        eos_token_id=None,
    )
    if spec.arch == "llama":
        config = transformers.MixtralConfig(
            intermediate_size=spec.width,
            num_local_experts=spec.experts,
            head_dim=spec.head_dim,
            **common,
        )
        model = transformers.MixtralForCausalLM(config)
    elif spec.arch == "qwen2moe":
        config = transformers.Qwen2MoeConfig(
            moe_intermediate_size=spec.width,
            shared_expert_intermediate_size=spec.shared_width,
            num_experts=spec.experts,
            norm_topk_prob=False,
            qkv_bias=True,
            **common,
        )
        model = transformers.Qwen2MoeForCausalLM(config)
    else:
        config = transformers.Qwen3MoeConfig(
            moe_intermediate_size=spec.width,
            num_experts=spec.experts,
            head_dim=spec.head_dim,
            norm_topk_prob=True,
            **common,
        )
        model = transformers.Qwen3MoeForCausalLM(config)
    model = model.double().eval()
    model.load_state_dict(state_dict(spec, tensors), strict=True)
    return model


@torch.no_grad()
def transformers_logits(model, tokens):
    return model(torch.tensor([tokens])).logits[0].numpy()


@torch.no_grad()
def transformers_greedy(model, tokens, count):
    """The continuation, token by token with the KV cache, and its smallest lead."""
    ids, lead, cache, step = [], np.inf, None, list(tokens)
    for _ in range(count):
        result = model(torch.tensor([step]), past_key_values=cache, use_cache=True)
        cache = result.past_key_values
        best = torch.topk(result.logits[0, -1], 2)
        lead = min(lead, float(best.values[0] - best.values[1]))
        ids.append(int(best.indices[0]))
        step = ids[-1:]
    return ids, lead


# ---- choosing a seed and writing ---------------------------------------------------------------


def near_tie(spec, path, tokens):
    """Why this draw will not do, or None. Asks the small reference: it is the quick one."""
    model = reference.Model(path)
    if model.router_margin(tokens) < spec.router_margin:
        return "router margin"
    logits = model.logits(tokens)
    if not 1.0 < logits.std() < 3.0:
        return "logits' deviation"
    if len(set(logits.argmax(axis=1))) < len(tokens) // 2:
        return "the same answer at too many positions"
    ids, lead = model.greedy(tokens[:GREEDY_PROMPT], GREEDY_COUNT)
    if lead < spec.greedy_margin:
        return "greedy margin"
    if max(ids) >= tiny_vocabulary.first_special():
        return "greedy continuation meets a special token"
    if len(set(ids)) < GREEDY_COUNT // 2:
        return "greedy continuation repeats itself"
    if model.router_margin(tokens[:GREEDY_PROMPT] + ids) < spec.router_margin:
        return "router margin in the continuation"
    sequences = [tokens, tokens[:GREEDY_PROMPT] + ids]
    routes = [model.routes(s) for s in sequences]
    model.round_activations = True
    if any((model.routes(s) != r).any() for s, r in zip(sequences, routes)):
        return "another expert with rounded activations"
    if model.greedy(tokens[:GREEDY_PROMPT], GREEDY_COUNT)[0] != ids:
        return "another continuation with rounded activations"
    return None


def choose_seed(spec, path, tokens):
    reasons = {}
    for seed in range(spec.seed, spec.seed + MAX_SEEDS):
        tensors = draw_tensors(spec, seed)
        write_gguf(path, spec, tensors)
        reason = near_tie(spec, path, tokens)
        if reason is None:
            return seed, tensors
        reasons[reason] = reasons.get(reason, 0) + 1
    sys.exit(f"{spec.name}: no seed of {MAX_SEEDS} will do: {reasons}")


def make(spec, folder, tokens):
    """Writes NAME.gguf, .logits, .greedy into folder; returns what rounding costs (see README)."""
    path = folder / f"{spec.name}.gguf"
    seed, tensors = choose_seed(spec, path, tokens)
    model = build_transformers(spec, tensors)
    logits = transformers_logits(model, tokens)
    ids, lead = transformers_greedy(model, tokens[:GREEDY_PROMPT], GREEDY_COUNT)

    oracle = reference.Model(path)
    own = oracle.logits(tokens)
    largest, _ = reference.distance(own, logits)
    own_ids, _ = oracle.greedy(tokens[:GREEDY_PROMPT], GREEDY_COUNT)
    if largest > REFERENCE_TOLERANCE or own_ids != ids or lead < spec.greedy_margin / 2:
        sys.exit(f"{spec.name}: reference.py and transformers differ by {largest:.3g}: {own_ids} {ids}")
    margin = oracle.router_margin(tokens)
    oracle.round_activations = True
    _, rounded = reference.distance(oracle.logits(tokens), logits)

    logits.astype("<f4").tofile(folder / f"{spec.name}.logits")
    if spec.type in FLOAT_TYPES:  # rounded activations may change a continuation, rightly
        (folder / f"{spec.name}.greedy").write_text(" ".join(map(str, ids)) + "\n")
    print(
        f"{spec.name:12} seed {seed:4}  {path.stat().st_size:7} bytes  logits' deviation"
        f" {logits.std():.2f}  router margin {margin:.3f}  greedy lead"
        f" {lead:.3f}  reference - transformers {largest:.1e}  rounding {np.median(rounded):.2e},"
        f" worst row {rounded.max():.2e}",
        flush=True,
    )
    return float(np.median(rounded)), float(rounded.max())


FLOAT_TYPES = (Type.F32, Type.F16, Type.BF16)


def write_tolerances(path, costs):
    """One line a model that is not float32: name, median and worst row; others' lines stay."""
    lines = path.read_text().splitlines() if path.exists() else []
    known = {line.split()[0]: line for line in lines}
    for name, (median, worst) in costs.items():
        known[name] = f"{name} {median:.3e} {worst:.3e}"
    ordered = [known[s.name] for s in SPECS if s.name in known and s.type != Type.F32]
    path.write_text("".join(line + "\n" for line in ordered))


def compare_folders(made, kept, specs):
    """--check: models must be the same to the byte, logits to 1e-4, continuations the same."""
    wrong = []
    for spec in specs:
        for suffix in (".gguf", ".greedy") if spec.type in FLOAT_TYPES else (".gguf",):
            name = spec.name + suffix
            if not (kept / name).exists() or (made / name).read_bytes() != (kept / name).read_bytes():
                wrong.append(name)
        rows = [np.fromfile(f / f"{spec.name}.logits", dtype="<f4") for f in (made, kept)]
        if rows[0].shape != rows[1].shape or np.abs(rows[0] - rows[1]).max() > REFERENCE_TOLERANCE:
            wrong.append(spec.name + ".logits")
    if wrong:
        sys.exit("not what this script makes: " + " ".join(wrong))
    print("all files are as this script makes them")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--only", nargs="+", choices=[s.name for s in SPECS])
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    specs = [s for s in SPECS if not args.only or s.name in args.only]
    tokens = reference.read_tokens(str(TOKENS))
    if args.check:
        with tempfile.TemporaryDirectory() as folder:
            for spec in specs:
                make(spec, Path(folder), tokens)
            compare_folders(Path(folder), args.out, specs)
        return
    costs = {spec.name: make(spec, args.out, tokens) for spec in specs}
    write_tolerances(args.out / "tolerances.txt", costs)


if __name__ == "__main__":
    main()
