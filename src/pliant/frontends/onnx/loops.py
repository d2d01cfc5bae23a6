"""Loops of the graph language around graphs of the model: what is carried is a tensor whose annotation does not change.

    loop = Loop(site)
    h = loop.carry(h0)                         # in the body: the value of this round
    rows = loop.collect(row, count)            # a row for each round, one tensor afterwards

A loop is built body first: what it collects, and of which shape, shows only there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...dtype import i64
from ...graph.annotation import Fit, subsumes
from ...graph.node import Annotation, Scalar, Tensor, Value
from ...support.errors import ShapeError
from ...sym.expr import Expr, const
from .emit import ops

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .node_context import NodeContext

DEEPEST_LOOPS = 16


class Loop:
    """One loop that is being built; see the module."""

    def __init__(self, site: NodeContext) -> None:
        self.site, self.importer = site, site.importer
        self.builder = site.importer.builder
        self.init: list[Value] = []
        self.results: list[Value | None] = []
        self._outer: Any = None

    @contextmanager
    def body(self) -> Iterator[Value]:
        """The body is built inside; gives the number of the round."""
        start = self.builder.scalar(const(0))
        self.importer.open((), loop=True)
        try:
            number = self.carry(start)
            yield number
            self.results[0] = ops.add(number, 1)
        except BaseException:
            self.importer.close([])
            raise

    def carry(self, init: Value) -> Value:
        """A value of every round, beginning with `init`, which is from outside of the loop."""
        self.init.append(init)
        self.results.append(None)
        a = init.annotation
        annotation: Annotation = Scalar(a.dtype) if isinstance(a, Scalar) else Tensor(a.dtype, a.shape) if isinstance(a, Tensor) else a
        return self.builder.carry(self.builder.unique("carried"), annotation)

    def set(self, k: int, value: Value) -> None:
        """The next value of what was carried as number `k` (the round's number is 0)."""
        self.results[k] = value

    def outside(self, make: Callable[[], Value]) -> Value:
        """A value made before the loop, while its body is being built."""
        frame, literals = self.builder.pause(), self.importer.leave()
        try:
            return make()
        finally:
            self.builder.resume(frame)
            self.importer.enter(literals)

    def collect(self, row: Value, number: Value, count: Expr) -> int:
        """Keeps a row of every round: the number under which the whole is carried."""
        t = row.annotation
        assert isinstance(t, Tensor)
        free = self.outside(lambda: ops.full((count, *t.shape), _zero(t), t.dtype))
        whole = self.carry(free)
        at = len(self.results) - 1
        self.results[at] = ops.index_put(whole, ops.unsqueeze(row, 0), ops.reshape(number, (1,)))
        return at

    def finish(self, condition: Callable[[list[Value]], Value]) -> tuple[Value, ...]:
        """Ends the body; the loop goes on while `condition` holds of what is carried. The last values of all that was carried."""
        params = self.builder._frames[-1].params
        final = [_kept(self, p, r) for p, r in zip(params, self.results, strict=True)]
        body, _ = self.importer.close(final)
        copies = [self.builder.carried(self.builder.unique("carried"), p.annotation) for p in params]
        self.importer.open(copies, loop=True)
        cond, _ = self.importer.close([condition(copies)])
        return self.builder.while_(self.init, cond, body)


def _kept(loop: Loop, param: Value, result: Value | None) -> Value:
    """The result of a round under the annotation of what is carried, which is checked where it is not known."""
    if result is None:
        return param
    match = subsumes(param.annotation, result.annotation)
    if match.fit is Fit.HOLDS:
        return result
    if match.fit is Fit.CHECK:
        return loop.builder.match_cast(result, param.annotation)
    raise ShapeError(
        "what a loop carries changes from round to round",
        facts=[f"it starts as {param.annotation}", f"after a round it is {result.annotation}"],
    )


def _zero(t: Tensor) -> Any:
    return False if t.dtype.name == "bool" else 0.0 if t.dtype.is_float else 0


def as_tensor(value: Value) -> Value:
    """A value as a tensor: a host scalar as one of rank 0."""
    made: Value = ops.reshape(value, ()) if isinstance(value.annotation, Scalar) else value
    return made


def wide(site: NodeContext, value: Value) -> Value:
    """A number of rounds as a host scalar or a tensor of one element."""
    a = value.annotation
    made: Value = value if isinstance(a, Scalar) or not a.shape else ops.reshape(value, ())  # type: ignore[union-attr]
    return made if made.annotation.dtype is i64 else ops.cast(made, i64)  # type: ignore[union-attr]
