"""The demo model: what the GGUF architecture `qwen3moe` computes, built to train on a CPU.

RMSNorm, attention with grouped keys and values, RMSNorm on each query and key
head, rotary positions on halves (NEOX), a softmax gate over all experts whose
best four are renormalised, experts with a silu gate, tied output.

The experts are one autograd function: the rows of a batch are sorted by expert,
each expert multiplies one block of rows, and the backward pass is written out.
That is several times faster on a CPU than a loop over boolean masks.
"""
import dataclasses

import torch
import torch.nn.functional as F


@dataclasses.dataclass
class Shape:
    vocabulary: int = 4096
    width: int = 256
    layers: int = 8
    heads: int = 4
    kv_heads: int = 2
    head_width: int = 64
    experts: int = 32
    experts_used: int = 4
    expert_width: int = 96
    context: int = 512
    rope_base: float = 10000.0
    epsilon: float = 1e-6


def rms_norm(x, weight, epsilon):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * weight


def gated_forward(gate_up, weight):
    """silu(gate) * up, and the same times the routing weight of the row."""
    gate, up = gate_up.chunk(2, -1)
    hidden = F.silu(gate) * up
    return hidden * weight[:, None]


def gated_backward(gate_up, weight, d_scaled):
    gate, up = gate_up.chunk(2, -1)
    sigmoid = torch.sigmoid(gate)
    silu = gate * sigmoid
    d_weight = (d_scaled * silu * up).sum(-1)
    d_hidden = d_scaled * weight[:, None]
    d_up = d_hidden * silu
    d_gate = d_hidden * up * (sigmoid + silu * (1 - sigmoid))
    return torch.cat([d_gate, d_up], -1), d_weight


class Experts(torch.autograd.Function):
    """x: [tokens][width]; weight, chosen: [tokens][used];
    gate_up: [experts][2 * expert_width][width]; down: [experts][width][expert_width]."""

    @staticmethod
    def forward(context, x, weight, chosen, gate_up, down):
        tokens, used = chosen.shape
        flat = chosen.reshape(-1)
        order = torch.argsort(flat, stable=True)
        source = order // used
        ends = torch.bincount(flat, minlength=gate_up.shape[0]).cumsum(0).tolist()
        rows = x.index_select(0, source)
        hidden = x.new_empty(len(flat), gate_up.shape[1])
        out = x.new_empty(len(flat), x.shape[1])
        start = 0
        for expert, end in enumerate(ends):
            if end > start:
                torch.mm(rows[start:end], gate_up[expert].t(), out=hidden[start:end])
            start = end
        row_weight = weight.reshape(-1).index_select(0, order)
        scaled = gated_forward(hidden, row_weight)
        start = 0
        for expert, end in enumerate(ends):
            if end > start:
                torch.mm(scaled[start:end], down[expert].t(), out=out[start:end])
            start = end
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order))
        context.save_for_backward(rows, hidden, scaled, row_weight, source, order, place, gate_up, down)
        context.ends = ends
        return out.index_select(0, place).view(tokens, used, -1).sum(1)

    @staticmethod
    def backward(context, d_out):
        rows, hidden, scaled, row_weight, source, order, place, gate_up, down = context.saved_tensors
        d_rows_out = d_out.contiguous().index_select(0, source)
        d_scaled = torch.empty_like(scaled)
        d_down = torch.zeros_like(down)
        start = 0
        for expert, end in enumerate(context.ends):
            if end > start:
                torch.mm(d_rows_out[start:end], down[expert], out=d_scaled[start:end])
                torch.mm(d_rows_out[start:end].t(), scaled[start:end], out=d_down[expert])
            start = end
        d_hidden, d_row_weight = gated_backward(hidden, row_weight, d_scaled)
        d_rows = d_rows_out  # its values are used up
        d_gate_up = torch.zeros_like(gate_up)
        start = 0
        for expert, end in enumerate(context.ends):
            if end > start:
                torch.mm(d_hidden[start:end], gate_up[expert], out=d_rows[start:end])
                torch.mm(d_hidden[start:end].t(), rows[start:end], out=d_gate_up[expert])
            start = end
        tokens, used = d_out.shape[0], len(order) // d_out.shape[0]
        d_x = d_rows.index_select(0, place).view(tokens, used, -1).sum(1)
        d_weight = d_row_weight.index_select(0, place).view(tokens, used)
        return d_x, d_weight, None, d_gate_up, d_down


BLOCK = 128  # queries that are multiplied with the keys before and among them at once


class CausalAttention(torch.autograd.Function):
    """query: [windows][kv_heads][share][tokens][head]; key, value: [windows][kv_heads][tokens][head].

    Plain matrix products over blocks of queries: on a CPU with large caches this
    is faster than the fused kernel, whose backward pass is slow there."""

    @staticmethod
    def forward(context, query, key, value):
        windows, kv_heads, share, tokens, head = query.shape
        key, value = (t.reshape(-1, tokens, head).contiguous() for t in (key, value))
        query = query.reshape(-1, share, tokens, head) * head ** -0.5
        future = torch.ones(min(BLOCK, tokens), min(BLOCK, tokens), dtype=torch.bool).triu(1)
        out = torch.empty_like(query)
        blocks = []
        for start in range(0, tokens, BLOCK):
            end = min(start + BLOCK, tokens)
            part = query[:, :, start:end].flatten(1, 2)
            scores = part @ key[:, :end].mT
            scores.view(-1, share, end - start, end)[..., start:].masked_fill_(
                future[:end - start, :end - start], float("-inf"))
            chance = torch.softmax(scores, -1)
            out[:, :, start:end] = (chance @ value[:, :end]).unflatten(1, (share, -1))
            blocks += [part, chance]
        context.save_for_backward(key, value, *blocks)
        context.shape = (windows, kv_heads, share, tokens, head)
        return out.view(context.shape)

    @staticmethod
    def backward(context, d_out):
        key, value, *blocks = context.saved_tensors
        windows, kv_heads, share, tokens, head = context.shape
        d_out = d_out.reshape(-1, share, tokens, head)
        d_query, d_key, d_value = torch.empty_like(d_out), torch.zeros_like(key), torch.zeros_like(value)
        for number, start in enumerate(range(0, tokens, BLOCK)):
            end = min(start + BLOCK, tokens)
            part, chance = blocks[2 * number:2 * number + 2]
            d_part = d_out[:, :, start:end].flatten(1, 2)
            d_value[:, :end].baddbmm_(chance.mT, d_part)
            d_scores = torch._softmax_backward_data(d_part @ value[:, :end].mT, chance, -1, chance.dtype)
            d_query[:, :, start:end] = (d_scores @ key[:, :end]).unflatten(1, (share, -1))
            d_key[:, :end].baddbmm_(d_scores.mT, part)
        d_query *= head ** -0.5
        small = (windows, kv_heads, tokens, head)
        return d_query.view(context.shape), d_key.view(small), d_value.view(small)


def route(logits, used):
    """Softmax over all experts, the best renormalised: weights, choice, probabilities."""
    probabilities = torch.softmax(logits, -1)
    weight, chosen = torch.topk(probabilities, used, -1)
    return weight / weight.sum(-1, keepdim=True), chosen, probabilities


def rotate(x, cosine, sine):
    """x: [windows][tokens][heads][head_width], halves turned against each other."""
    low, high = x.chunk(2, -1)
    return torch.cat([low * cosine - high * sine, high * cosine + low * sine], -1)


def heads_of(x, weight, norm, cosine, sine, epsilon, heads):
    projected = F.linear(x, weight).unflatten(-1, (heads, -1))
    return rotate(rms_norm(projected, norm, epsilon), cosine, sine)


class Layer(torch.nn.Module):
    def __init__(self, shape, generator):
        super().__init__()
        self.shape = shape
        width, head = shape.width, shape.head_width

        def matrix(*size, std):
            return torch.nn.Parameter(torch.randn(*size, generator=generator) * std)
        std = width ** -0.5
        self.attention_norm = torch.nn.Parameter(torch.ones(width))
        self.query = matrix(shape.heads * head, width, std=std)
        self.key = matrix(shape.kv_heads * head, width, std=std)
        self.value = matrix(shape.kv_heads * head, width, std=std)
        self.query_norm = torch.nn.Parameter(torch.ones(head))
        self.key_norm = torch.nn.Parameter(torch.ones(head))
        # What is added to the residual starts at nothing.
        self.output = matrix(width, shape.heads * head, std=0.0)
        self.expert_norm = torch.nn.Parameter(torch.ones(width))
        self.router = matrix(shape.experts, width, std=0.02)
        self.gate_up = matrix(shape.experts, 2 * shape.expert_width, width, std=std)
        self.down = matrix(shape.experts, width, shape.expert_width, std=0.0)

    def attend(self, x, cosine, sine):
        s = self.shape
        x = rms_norm(x, self.attention_norm, s.epsilon)
        query = heads_of(x, self.query, self.query_norm, cosine, sine, s.epsilon, s.heads)
        key = heads_of(x, self.key, self.key_norm, cosine, sine, s.epsilon, s.kv_heads)
        value = F.linear(x, self.value).unflatten(-1, (s.kv_heads, -1))
        query = query.unflatten(2, (s.kv_heads, -1)).permute(0, 2, 3, 1, 4)
        mixed = CausalAttention.apply(query, key.transpose(1, 2), value.transpose(1, 2))
        return F.linear(mixed.permute(0, 3, 1, 2, 4).flatten(2), self.output)

    def gate_input(self, x):
        return rms_norm(x, self.expert_norm, self.shape.epsilon).flatten(0, 1)

    def forward(self, x, cosine, sine, seen=None):
        """Returns the new residual, the two losses of the gate and the load of the experts.
        Where `seen` is a list, what the routing saw and chose is added to it."""
        x = x + self.attend(x, cosine, sine)
        rows = self.gate_input(x)
        logits = F.linear(rows, self.router)
        weight, chosen, probabilities = route(logits, self.shape.experts_used)
        mixed = Experts.apply(rows, weight, chosen, self.gate_up, self.down)
        out = x + mixed.view_as(x)
        if seen is not None:
            seen.append({"gate_input": rows, "chosen": chosen, "output": out})
        load = torch.bincount(chosen.reshape(-1), minlength=self.shape.experts).float()
        load = load / load.sum()
        balance = self.shape.experts * (load * probabilities.mean(0)).sum()
        z = torch.logsumexp(logits, -1).pow(2).mean()
        return out, balance, z, load


class Model(torch.nn.Module):
    def __init__(self, shape, seed=1):
        super().__init__()
        self.shape = shape
        generator = torch.Generator().manual_seed(seed)
        self.embedding = torch.nn.Parameter(
            torch.randn(shape.vocabulary, shape.width, generator=generator) * 0.02)
        self.layers = torch.nn.ModuleList(Layer(shape, generator) for _ in range(shape.layers))
        self.norm = torch.nn.Parameter(torch.ones(shape.width))
        half = shape.head_width // 2
        frequency = shape.rope_base ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = torch.arange(shape.context, dtype=torch.float64)[:, None] * frequency
        self.register_buffer("cosine", angle.cos().float()[:, None], persistent=False)
        self.register_buffer("sine", angle.sin().float()[:, None], persistent=False)

    def hidden(self, tokens, seen=None):
        """tokens: [windows][tokens] -> normed residual, balance, z and load of the layers."""
        x = F.embedding(tokens, self.embedding)
        count = tokens.shape[1]
        balances, zs, loads = [], [], []
        for layer in self.layers:
            x, balance, z, load = layer(x, self.cosine[:count], self.sine[:count], seen)
            balances.append(balance)
            zs.append(z)
            loads.append(load)
        x = rms_norm(x, self.norm, self.shape.epsilon)
        return x, torch.stack(balances), torch.stack(zs), torch.stack(loads)

    def logits(self, tokens, seen=None):
        return F.linear(self.hidden(tokens, seen)[0], self.embedding)
