"""Estimates the peak memory of a model's activations, as a formula of its dims, by liveness analysis of the unfused graph.

peak = Peak(function)
peak.at({"n": 128})       # bytes
peak.formula({"n": 128})  # the sum of the live tensors at that peak: n * 4096 + …

A compiled program fuses operators and needs less: `f.workspace` is the formula of its memory plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...graph.node import Const, Function, Node, Op, Tensor, Value, all_uses, bodies
from ...graph.op_table import TABLE
from ...sym.exact import exact
from ...sym.expr import Expr, const, free_vars, product
from ...sym.simplify import simplify


class Peak:
    """Liveness of a graph function's tensors: which are live at each node, for the peak of memory."""

    def __init__(self, function: Function) -> None:
        self.owners: dict[Value, Value] = {}  # view -> the tensor whose memory it aliases
        self.live: list[list[Value]] = []  # for each node, the tensors that are live while it runs
        self._collect(function.nodes, function.results, [])

    def _collect(self, nodes: Sequence[Node], results: Sequence[Value], around: list[Value]) -> None:
        """Appends the live tensors of each of these nodes; `around` are those of enclosing bodies, which stay live."""
        last: dict[Value, int] = {}
        for k, n in enumerate(nodes):
            if isinstance(n, Op) and TABLE[n.op].view and n.args:
                self.owners[n.outs[0]] = self.owner(n.args[0])
            for v in (*all_uses(n), *n.outs):
                last[self.owner(v)] = k
        last.update((self.owner(v), len(nodes)) for v in results)
        now: dict[Value, None] = {}
        for k, n in enumerate(nodes):
            if not isinstance(n, Const):
                now.update((v, None) for v in n.outs if isinstance(v.annotation, Tensor) and v not in self.owners)
            self.live.append([*around, *now])
            for body in bodies(n):
                self._collect(body.nodes, body.results, [*around, *now])
            now = {v: None for v in now if last[v] > k}

    def owner(self, value: Value) -> Value:
        """Returns the tensor whose memory a value uses: itself, or the source of a view."""
        return self.owners.get(value, value)

    def at(self, dims: Mapping[str, int]) -> int | None:
        """Returns the peak of live bytes for these dims; None if a size is data-dependent."""
        sizes = self._sizes(dims)
        return None if sizes is None else max((sum(sizes[v] for v in live) for live in self.live), default=0)

    def formula(self, dims: Mapping[str, int]) -> Expr | None:
        """Returns the symbolic sum, in bytes, of the tensors that are live at the peak for these dims; None if a size is data-dependent."""
        sizes = self._sizes(dims)
        if sizes is None:
            return None
        most = max(self.live, key=lambda live: sum(sizes[v] for v in live), default=[])
        return simplify(sum((_bytes(v) for v in most), const(0)))

    def _sizes(self, dims: Mapping[str, int]) -> dict[Value, int] | None:
        """Returns the size in bytes of every live tensor for these dims; None if one is data-dependent."""
        sizes: dict[Value, int] = {}
        for v in dict.fromkeys(v for live in self.live for v in live):
            size = _bytes(v)
            if any(x.name not in dims for x in free_vars(size)):
                return None
            sizes[v] = exact(size, {x: dims[x.name] for x in free_vars(size)})
        return sizes


def _bytes(value: Value) -> Expr:
    """Returns the size of a tensor in bytes as a formula over dims."""
    t = value.tensor
    return product(t.shape) * (t.dtype.bits // 8) if t.dtype.bits >= 8 else product(t.shape) * t.dtype.bits // 8
