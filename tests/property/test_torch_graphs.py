"""Random graphs of ATen operators: the imported program against eager, at the sizes of the export and at others, one of them 1."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import pliant
from counts import seeds
from pliant.interp.graph import run_graph

torch = pytest.importorskip("torch", reason="torch is not installed")
F = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore")
WIDTH = 6

# Each step takes tensors [batch, n, WIDTH] of floats and returns one.
Step = Callable[..., Any]
ONE: list[Step] = [
    torch.relu, torch.tanh, torch.sigmoid, F.gelu, F.silu, torch.neg, torch.abs, torch.cos, F.mish, torch.floor,
    lambda x: x.softmax(-1), lambda x: F.layer_norm(x, (WIDTH,)), lambda x: x.transpose(0, 1).flip(1).transpose(0, 1),
    lambda x: x - x.mean(1, keepdim=True), lambda x: x.cumsum(1) / x.shape[1], lambda x: torch.cat([x[:, 1:], x[:, :1]], 1),
    lambda x: x.reshape(-1, WIDTH).reshape(x.shape), lambda x: x.masked_fill(x > 1, 0.5), lambda x: x.clamp(-1, 1),
    lambda x: x.amax(1, keepdim=True).expand_as(x), lambda x: x.unsqueeze(1).repeat(1, 2, 1, 1).sum(1), lambda x: x.roll(1, 1),
    lambda x: F.scaled_dot_product_attention(x, x, x), lambda x: x.sort(-1)[0], lambda x: torch.stack([x, x * 2], 0).mean(0),
    lambda x: x + torch.arange(x.shape[1]).view(1, -1, 1), lambda x: x.gather(1, torch.zeros_like(x, dtype=torch.int64)),
    lambda x: torch.where(x > 0, x, x * 2).to(torch.float64).to(torch.float32), lambda x: F.pad(x, (0, 0, 1, 1))[:, 1:-1],
    lambda x: x.permute(2, 0, 1).contiguous().permute(1, 2, 0), lambda x: x.split(2, -1)[1].repeat(1, 1, 3), lambda x: x / x.shape[0],
    lambda x: x.index_select(2, torch.tensor([5, 0, 1, 1, 2, 3])), lambda x: x[:, -1:].expand(-1, x.shape[1], -1) * 0.5,
    lambda x: torch.einsum("bnc,bmc->bnm", x, x).tanh() @ x / x.shape[1],
]  # fmt: skip
TWO: list[Step] = [
    torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum, torch.atan2, lambda x, y: torch.where(x > y, x, y * 0.5),
    lambda x, y: x + y.sum(0, keepdim=True) / y.shape[0], lambda x, y: torch.cat([x, y], 2).view(*x.shape[:2], 2, WIDTH).mean(2),
    lambda x, y: F.scaled_dot_product_attention(x, y, x, is_causal=True), lambda x, y: x + (y > 0), lambda x, y: torch.lerp(x, y, 0.3),
    lambda x, y: torch.addcmul(x, y, y, value=2), lambda x, y: (x @ y.transpose(1, 2)).softmax(-1) @ y,
]  # fmt: skip


class Graph(torch.nn.Module):
    """A random graph: each value is made from one or two earlier ones."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        rng = Random(seed)
        self.steps = []
        for made in range(2, 2 + rng.randrange(3, 9)):
            table, count = (ONE, 1) if rng.random() < 0.6 else (TWO, 2)
            self.steps.append((rng.choice(table), [rng.randrange(made) for _ in range(count)]))

    def forward(self, x: Any, y: Any) -> Any:
        values = [x, y]
        for step, operands in self.steps:
            values.append(step(*(values[k] for k in operands)))
        return values[-1], sum(v.mean() for v in values)


SIZES = [(2, 5), (1, 4), (3, 1)]


@pytest.mark.parametrize("seed", seeds(2, 400))
def test_random_graphs_agree_with_eager(seed: int) -> None:
    torch.manual_seed(seed)
    model = Graph(seed)
    names = {0: "batch", 1: "n"}
    example = (torch.randn(2, 5, WIDTH), torch.randn(2, 5, WIDTH))
    program = pliant.from_torch(model, example, dynamic_shapes={"x": names, "y": names})
    least = {p.name: p for p in program.entry.params}["x"].tensor.shape
    for shape in SIZES:
        if any(n < getattr(d, "min", 0) for n, d in zip(shape, least, strict=False)):
            continue  # the program says that it holds from 2 on
        args = [torch.randn(*shape, WIDTH) for _ in range(2)]
        found = run_graph(program.entry, [a.numpy() for a in args])
        wide = model(*(a.double() for a in args))
        for ours, eager, exact in zip(found, model(*args), wide, strict=True):
            scale = max(float(exact.abs().max()), 1.0)
            own = float((eager.double() - exact).abs().max())
            assert ours.shape == tuple(exact.shape)
            assert float(np.abs(ours - exact.numpy()).max()) <= max(2e-5 * scale, 4 * own), f"{shape} of {model.steps}"


def test_a_random_graph_agrees_when_it_is_compiled() -> None:
    model = Graph(7)
    args = (torch.randn(2, 5, WIDTH), torch.randn(2, 5, WIDTH))
    for ours, wanted in zip(pliant.compile(model, example=args)(*args), model(*args), strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-4)
