"""Mixture of experts: a router chooses a few feed-forward networks for each token, and adds their results by its weights.

The weights of the choice are the softmax of the chosen scores, as in Qwen 3 and gpt-oss. A token's result is the sum over its experts in
the order of their scores, so it does not depend on the other tokens of a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import i32, nn, ops
from ...frontends.gguf import GgufFile
from ...frontends.gguf.reader import GgufTensor
from ...graph.ops.block_quantized import PACK
from ...graph.ops.half_weights import FORMATS as HALVES
from ...support.errors import UnsupportedError
from ..routing import routing
from .parts import Product, Settings, plain


class ExpertProduct(nn.Module):
    """Linear layers of all experts: tensors [experts, rows, columns] of one format, joined by rows, and their biases if all have one.

    Raises UnsupportedError if the number of rows of a tensor is no multiple of PACK.
    """

    def __init__(self, file: GgufFile, names: list[str], shape: tuple[int, int, int]) -> None:
        self.weights = [file.tensor(f"{name}.weight", shape) for name in names]
        bias = [plain(file.tensor(f"{n}.bias", shape[:2])) for n in names if f"{n}.bias" in file.tensors]
        self.bias = np.ascontiguousarray(np.concatenate(bias, axis=1).astype(np.float32)) if len(bias) == len(names) else None
        if shape[1] % PACK:
            raise UnsupportedError(
                f"gguf: experts of {shape[1]} rows are not supported: no multiple of {PACK}",
                facts=[f"file `{file.name}`", f"tensor `{names[0]}.weight`"],
            )

    def forward(self, x: Any, starts: Any, expert: Any, source: Any = None) -> Any:
        """Returns the products of (token, expert) pairs that are sorted by expert, as the routing kernel gives them.

        Row i is `x[source[i]]`, or `x[i]` without `source`, times the weights of its expert, whose pairs are `starts[e] .. starts[e + 1]`.
        `expert` is the expert of each pair, for the biases.
        """
        format = self.weights[0].format
        parts = [ops.constant(_stored(w)) for w in self.weights]
        raw = ops.concat(parts, axis=1) if len(parts) > 1 else parts[0]
        linear = ops.block_linear_experts if format.codes is not None else ops.float_linear_experts
        y = linear(x, raw, starts, source, format=format.name)
        return y if self.bias is None else y + ops.take(ops.constant(self.bias), expert, axis=0)


def _stored(w: GgufTensor) -> np.ndarray[Any, Any]:
    """Returns the weights of experts as the operators take them: bytes of blocks, bits of halves, or f32."""
    if w.format.codes is not None:
        return w.data.reshape(*w.shape[:2], -1, w.format.size)
    return w.array().view(np.uint16) if w.format.name in HALVES else plain(w)


class Experts(nn.Module):
    """The feed-forward networks of a layer's experts, with their router; `join` computes the inner activations from gate and up.

    The number of experts, and how many a token uses, are read from the file.
    """

    def __init__(self, file: GgufFile, prefix: str, s: Settings, join: Callable[[Any, Any], Any]) -> None:
        kind = file.architecture
        self.count = file.integer(f"{kind}.expert_count", low=1, high=4096)
        self.used = file.integer(f"{kind}.expert_used_count", low=1, high=min(self.count, 64))
        ffn = file.integer(f"{kind}.expert_feed_forward_length", s.ffn, low=1, high=1 << 20)
        self.router = Product(file, f"{prefix}.ffn_gate_inp", self.count, s.width)
        names = [f"{prefix}.ffn_gate_exps", f"{prefix}.ffn_up_exps"]
        shape = (self.count, ffn, s.width)
        alike = len({file.tensor(f"{n}.weight", shape).format.name for n in names}) == 1
        self.inner = nn.ModuleList([ExpertProduct(file, part, shape) for part in ([names] if alike else [[n] for n in names])])
        self.down = ExpertProduct(file, [f"{prefix}.ffn_down_exps"], (self.count, s.width, ffn))
        self.ffn, self.join = ffn, join

    def forward(self, x: Any) -> Any:
        """Returns, for each token (row of `x`), the sum of its chosen experts' results, each times the softmax of the chosen scores."""
        tokens = x.shape[0]
        scores, chosen = ops.topk(self.router(x), self.used, axis=1)
        weights = ops.split(ops.softmax(scores, axis=1), [1] * self.used, axis=1)
        starts, token, expert, place = routing(self.count, self.used)(ops.cast(chosen, i32))
        inner = [product(x, starts, expert, token) for product in self.inner]
        gate, up = inner if len(inner) == 2 else ops.split(inner[0], [self.ffn, self.ffn], axis=1)
        y = self.down(self.join(gate, up), starts, expert)
        places = [ops.reshape(p, (tokens,)) for p in ops.split(place, [1] * self.used, axis=1)]
        total = ops.take(y, places[0], axis=0) * weights[0]
        for own, weight in zip(places[1:], weights[1:], strict=True):
            total = total + ops.take(y, own, axis=0) * weight
        return total
