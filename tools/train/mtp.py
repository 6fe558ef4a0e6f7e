"""Trains an MTP block that predicts the experts of the next token, on a trace of `moed profile`.

    moed profile MODEL --text FILES --hidden all -o TRACE
    mtp.py TRACE -o MODEL.predictors

Like the multi-token prediction blocks of DeepSeek-V3 ("nextn"), the block reads
the last layer's state for the token before and the embedding of this token.
Their hidden values give the next token; these give the experts that the next
token activates in every layer, and with --draft the token too, as a second part
of the loss.  The block has no attention: the state that it reads has seen the
context.  The file keeps what predicts experts.

lib/sched/predict/trained.h describes the file.  --add-to keeps the predictors of
a file that `moed train` wrote.  A tenth of the sequences is held out, one after
the other in the trace; the table is of those.
"""
import argparse
import math
import pathlib
import struct
import time

import numpy as np
import torch
import torch.nn.functional as F

from traces import EMBEDDINGS, HIDDEN, ROUTERS, Trace

ALIGN, GELU = 64, 1
HEADER = struct.Struct("<8s8I6Q96s3Q")  # struct trained_header
NETWORK = struct.Struct("<4IQ")  # struct trained_network
LAYER_BYTES = 64
MTP, NAME, CHECKSUM, HASH, BYTES = 17, 15, 12, 11, 10  # members of the header
MASK = (1 << 64) - 1


class Block(torch.nn.Module):
    """x: [tokens][2 width], standardised -> log-odds [tokens][layers * experts]."""

    def __init__(self, width, outputs, hidden):
        super().__init__()
        self.into = torch.nn.Linear(2 * width, hidden)
        self.first = torch.nn.Linear(hidden, hidden)
        self.second = torch.nn.Linear(hidden, hidden)
        self.gate = torch.nn.Linear(2 * width, hidden)
        self.out = torch.nn.Linear(hidden, outputs)
        self.drafted = torch.nn.Linear(hidden, width)
        self.scale = torch.nn.Parameter(torch.zeros(()))

    def hidden(self, x):
        u = F.gelu(self.into(x))
        return u + torch.sigmoid(self.gate(x)) * F.gelu(self.second(F.gelu(self.first(u))))

    def forward(self, x):
        return self.out(self.hidden(x))

    def draft(self, u, embeddings):
        """Logits of the next token: the drafted state on the embeddings, as in tied outputs."""
        state = self.drafted(u)
        state = state * torch.rsqrt(state.pow(2).mean(-1, keepdim=True) + 1e-6)
        return F.linear(state, embeddings) * self.scale.exp()


class Samples:
    """Token t of each sequence, but the first and the last one: what is known of it, and token
    t + 1.  x: [n][2 width]; chosen: [n][layers][used]; place: the next token's row in
    trace.table."""

    def __init__(self, trace, sequences):
        rows = {token: n for n, token in enumerate(sorted(trace.embeddings))}
        self.table = torch.from_numpy(np.stack([trace.embeddings[t] for t in rows]).astype(np.float32))
        now, before, chosen, following = [], [], [], []
        for s in sequences:
            if len(s.tokens) < 3 or len(s.positions) != len(s.tokens):
                continue
            now += [rows[t] for t in s.tokens[1:-1].tolist()]
            following += [rows[t] for t in s.tokens[2:].tolist()]
            before.append(s.hidden[:-2, -1].astype(np.float32))
            chosen.append(s.selected[2:].astype(np.int64))
        if not now:
            raise SystemExit("the trace has too few gate inputs: record it with --hidden all")
        self.x = torch.cat([self.table[now], torch.from_numpy(np.concatenate(before))], 1)
        self.chosen = torch.from_numpy(np.concatenate(chosen))
        self.next = torch.tensor(following)

    def __len__(self):
        return len(self.next)


def activated(chosen, experts):
    """[...][used] -> [...][experts] of 0 and 1."""
    return torch.zeros(*chosen.shape[:-1], experts).scatter_(-1, chosen, 1.0)


def train(block, samples, experts, args):
    """Leaves the block on inputs that are not standardised; see fold."""
    mean, deviation = samples.x.mean(0), samples.x.std(0).clamp_min(1e-6)
    optimiser = torch.optim.AdamW(block.parameters(), lr=args.rate, weight_decay=0.01)
    order = torch.Generator().manual_seed(args.seed)
    per_epoch = max(1, len(samples) // args.batch)
    steps, began = args.epochs * per_epoch, time.time()
    for step in range(steps):
        if step % per_epoch == 0:
            shuffled = torch.randperm(len(samples), generator=order)
        rows = shuffled[step % per_epoch * args.batch:][:args.batch]
        for group in optimiser.param_groups:
            group["lr"] = args.rate * min(1, (step + 1) / 100) * (1 + math.cos(math.pi * step / steps)) / 2
        x = F.dropout((samples.x[rows] - mean) / deviation, 0.05)
        u = block.hidden(x)
        target = activated(samples.chosen[rows], experts).flatten(1)
        # A token's sum over a layer, so that the parts of the loss are of one size.
        loss = F.binary_cross_entropy_with_logits(block.out(u), target) * experts / samples.chosen.shape[-1]
        if args.draft:
            loss = loss + args.draft * F.cross_entropy(block.draft(u, samples.table), samples.next[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 200 == 0 or step + 1 == steps:
            print(f"step {step + 1} of {steps}, loss {loss.item():.3f}, {time.time() - began:.0f} s", flush=True)
    fold(block, mean, deviation)


@torch.no_grad()
def fold(block, mean, deviation):
    """Puts the standardisation of the inputs into the matrices that read them."""
    for part in (block.into, block.gate):
        part.weight /= deviation
        part.bias -= part.weight @ mean


@torch.no_grad()
def measure(block, samples, experts):
    """By layer the share of the activated experts among as many and twice as many predicted; the
    share of drafts that are the next token."""
    layers, used = samples.chosen.shape[1:]
    hits, drafts = torch.zeros(2, layers), 0
    for x, chosen, token in zip(samples.x.split(1024), samples.chosen.split(1024), samples.next.split(1024)):
        u = block.hidden(x)
        true = activated(chosen, experts)
        logits = block.out(u).view(-1, layers, experts)
        for row, count in zip(hits, (used, 2 * used)):
            row += (true * activated(logits.topk(min(count, experts), -1).indices, experts)).sum((0, 2))
        drafts += (block.draft(u, samples.table).argmax(-1) == token).sum().item()
    return hits / (len(samples) * used), drafts / len(samples)


# ---- The file ----

def trained_hash(bytes_):
    words = np.frombuffer(bytes_ + bytes(-len(bytes_) % 8), "<u8").tolist()
    value = 0
    for word in words:
        value = (((value ^ word) * 0x9e3779b97f4a7c15) + 1) & MASK
        value ^= value >> 32
    return value


def halves(weight):
    """bf16, rounded to even, one row an input."""
    bits = np.ascontiguousarray(weight.detach().t().numpy(), np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes()


def network_bytes(block):
    """Biases, then matrices, in the order of trained.h."""
    parts = (block.into, block.first, block.second, block.gate, block.out)
    floats = b"".join(p.bias.detach().numpy().astype("<f4").tobytes() for p in parts)
    return floats + b"".join(halves(p.weight) for p in parts)


def pad(out):
    out += bytes(-len(out) % ALIGN)
    return len(out)


def hash_routers(trace):
    """As in the header; 0 where the trace has none."""
    return trained_hash(b"".join(m.tobytes() for m in trace.routers)) if trace.has & ROUTERS else 0


def held_out_run(sequences, seed):
    """A tenth of the numbers of sequences, one after the other: a document's sequences lie side by
    side, so that at most two documents have sequences on both sides."""
    held = max(1, sequences // 10)
    first = int(np.random.default_rng(seed).integers(sequences - held + 1))
    return set(range(first, first + held))


def empty_file(trace, n_tokens):
    """A file of trained predictors with the profile of the trace, but no predictor."""
    routers = hash_routers(trace)
    counts = np.zeros((trace.n_layers, trace.experts), "<u4")
    for s in trace.sequences:
        for layer in range(trace.layers):
            counts[trace.first_layer + layer] += np.bincount(s.selected[:, layer].ravel(),
                                                             minlength=trace.experts).astype("<u4")
    out = bytearray(HEADER.size)
    layers = pad(out)
    out += bytes(LAYER_BYTES * trace.n_layers)
    activations = pad(out)
    out += counts.tobytes()
    HEADER.pack_into(out, 0, b"moedlern", 1, trace.n_layers, trace.first_layer, trace.experts, trace.used,
                     trace.width, 0, 0, n_tokens, 0, routers, 0, layers, 0, trace.model, activations, 0, 0)
    return out


def add_block(out, block):
    """Appends the block to the bytes of a file of trained predictors."""
    place = pad(out)
    body = place + (NETWORK.size + ALIGN - 1) // ALIGN * ALIGN
    inputs, hidden = block.into.in_features, block.into.out_features
    out += NETWORK.pack(inputs, hidden, inputs, GELU, body)
    pad(out)
    out += network_bytes(block)
    header = list(HEADER.unpack_from(out))
    header[MTP], header[BYTES] = place, len(out)
    header[CHECKSUM] = trained_hash(bytes(out[HEADER.size:]))
    HEADER.pack_into(out, 0, *header)
    return out


def base_file(args, trace, n_tokens):
    if not args.add_to:
        return empty_file(trace, n_tokens)
    out = bytearray(args.add_to.read_bytes())
    if len(out) < HEADER.size or out[:8] != b"moedlern" or not is_of_model(HEADER.unpack_from(out), trace):
        raise SystemExit(f"{args.add_to}: not predictors of the trace's model")
    return out


def is_of_model(header, trace):
    """As trained_fits does: the name counts where the routers of either are not known."""
    if header[2:7] != (trace.n_layers, trace.first_layer, trace.experts, trace.used, trace.width):
        return False
    routers = hash_routers(trace)
    if routers and header[HASH]:
        return header[HASH] == routers
    return header[NAME].split(b"\0")[0] == trace.model.split(b"\0")[0]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trace", type=pathlib.Path, help="of `moed profile --hidden all`")
    parser.add_argument("-o", "--out", type=pathlib.Path, required=True, help="the file to write")
    parser.add_argument("--add-to", type=pathlib.Path, help="predictors of `moed train` to keep in the file")
    parser.add_argument("--hidden", type=int, default=512, help="hidden values")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=256, help="tokens of a step")
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--draft", type=float, default=0.0, help="weight of the loss of drafting (slow)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main():
    args = parse_arguments()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    trace = Trace(args.trace)
    if not trace.has & HIDDEN or not trace.has & EMBEDDINGS:
        raise SystemExit(f"{args.trace}: record it with --hidden all, and with embeddings")
    held_out = held_out_run(len(trace.sequences), args.seed)
    parts = [Samples(trace, [s for n, s in enumerate(trace.sequences) if (n in held_out) == held])
             for held in (False, True)]
    block = Block(trace.width, trace.layers * trace.experts, args.hidden)
    train(block, parts[0], trace.experts, args)
    block.eval()
    hits, drafts = measure(block, parts[1], trace.experts)
    print(f"Of the experts that the next token activates, on {len(parts[1])} held-out tokens:\n"
          f"layer  of {trace.used}   of {2 * trace.used}")
    for layer, (few, many) in enumerate(hits.t().tolist()):
        print(f"{trace.first_layer + layer:<5}  {100 * few:4.1f}  {100 * many:4.1f} %")
    print(f"mean   {100 * hits[0].mean():4.1f}  {100 * hits[1].mean():4.1f} %")
    if args.draft:
        print(f"{100 * drafts:.1f} % of the drafts are the next token")
    out = add_block(base_file(args, trace, len(parts[0])), block)
    args.out.write_bytes(out)
    print(f"{args.out}: {len(out) / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
