"""Muon for the matrices, AdamW for everything else.

Muon (K. Jordan and others, 2024) makes the momentum of a matrix nearly
orthogonal with five Newton-Schulz steps; all experts of a layer are one batch.
"""
import torch

STEPS = [(4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037),
         (2.8769, -3.1427, 1.2046), (2.8366, -3.0525, 1.2012)]


def orthogonal(x):
    """x: [matrices][rows][columns] with rows <= columns."""
    x = x / (x.flatten(1).norm(dim=1)[:, None, None] * 1.01 + 1e-7)
    for a, b, c in STEPS:
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x


class Muon:
    """Each parameter is [rows][columns] or [matrices][rows][columns]; `parts` says
    into how many matrices the rows of one fall (a fused gate and up: 2)."""

    def __init__(self, parameters, rate, momentum=0.95, decay=0.0):
        self.parameters = list(parameters)  # (parameter, parts)
        self.rate, self.momentum, self.decay = rate, momentum, decay
        self.state = [torch.zeros_like(p) for p, _ in self.parameters]

    @torch.no_grad()
    def step(self, scale, turns=None):
        """`turns` hands out parameters to several threads that call this at once."""
        for number in range(len(self.parameters)) if turns is None else turns:
            if number >= len(self.parameters):
                return
            (parameter, parts), velocity = self.parameters[number], self.state[number]
            velocity.lerp_(parameter.grad, 1 - self.momentum)
            update = parameter.grad.lerp(velocity, self.momentum)
            rows, columns = parameter.shape[-2] // parts, parameter.shape[-1]
            update = update.view(-1, rows, columns)
            if rows > columns:
                update = orthogonal(update.mT.contiguous()).mT
            else:
                update = orthogonal(update)
            grow = max(1.0, rows / columns) ** 0.5
            parameter.mul_(1 - scale * self.rate * self.decay)
            parameter.add_(update.reshape(parameter.shape), alpha=-scale * self.rate * grow)

    def state_dict(self):
        return {"velocity": self.state}

    def load_state_dict(self, state):
        for mine, saved in zip(self.state, state["velocity"]):
            mine.copy_(saved)


def build(model, matrix_rate, vector_rate, embedding_rate, decay):
    """Returns (Muon, AdamW with the groups embedding, and norms with routers)."""
    matrices = []
    for layer in model.layers:
        matrices += [(layer.query, layer.shape.heads), (layer.key, layer.shape.kv_heads),
                     (layer.value, 1), (layer.output, 1), (layer.gate_up, 2), (layer.down, 1)]
    taken = {id(p) for p, _ in matrices} | {id(model.embedding)}
    vectors = [p for p in model.parameters() if id(p) not in taken]
    adam = torch.optim.AdamW([{"params": [model.embedding], "lr": embedding_rate},
                              {"params": vectors, "lr": vector_rate}],
                             betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0)
    for group in adam.param_groups:
        group["full_rate"] = group["lr"]
    return Muon(matrices, matrix_rate, decay=decay), adam
