"""Builds `While` loops of the graph language for Loop, Scan and recurrent operators; loop-carried tensors keep their annotation.

    loop = Loop(site)
    h = loop.carry(h0)                         # in the body: the value of this iteration
    rows = loop.collect(row, number, count)    # one row per iteration; a single tensor after the loop

The body is built first, because only it tells what the loop collects and with which shapes.
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


class Loop:
    """The construction of one ONNX Loop, Scan or recurrent layer as a `While`: the body first, because it tells what the loop collects."""

    def __init__(self, site: NodeContext) -> None:
        self.site, self.importer = site, site.importer
        self.builder = site.importer.builder
        self.init: list[Value] = []
        self.results: list[Value | None] = []
        self._outer: Any = None

    @contextmanager
    def body(self) -> Iterator[Value]:
        """Context manager in which the loop's body is built; gives the iteration number.

        An error inside closes the body, and is raised again.
        """
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
        """Adds a loop-carried value that starts as `init`, a value from outside; returns its value in the body."""
        self.init.append(init)
        self.results.append(None)
        a = init.annotation
        annotation: Annotation = Scalar(a.dtype) if isinstance(a, Scalar) else Tensor(a.dtype, a.shape) if isinstance(a, Tensor) else a
        return self.builder.carry(self.builder.unique("carried"), annotation)

    def set(self, k: int, value: Value) -> None:
        """Sets the next value of the loop-carried value `k` (0 is the iteration number)."""
        self.results[k] = value

    def outside(self, make: Callable[[], Value]) -> Value:
        """Runs `make` so that it emits before the loop, though the body is being built; returns its value."""
        frame, literals = self.builder.pause(), self.importer.leave()
        try:
            return make()
        finally:
            self.builder.resume(frame)
            self.importer.enter(literals)

    def collect(self, row: Value, number: Value, count: Expr) -> int:
        """Stores `row` of every iteration into one tensor of `count` rows; returns the index of that loop-carried tensor."""
        t = row.annotation
        assert isinstance(t, Tensor)
        free = self.outside(lambda: ops.full((count, *t.shape), _zero(t), t.dtype))
        whole = self.carry(free)
        at = len(self.results) - 1
        self.results[at] = ops.index_put(whole, ops.unsqueeze(row, 0), ops.reshape(number, (1,)))
        return at

    def finish(self, condition: Callable[[list[Value]], Value]) -> tuple[Value, ...]:
        """Ends the body and emits the loop, which runs while `condition(values)` holds; returns the final values.

        The values are the loop-carried ones, the iteration number first; one that was not set stays as it is. Raises a ShapeError if the
        annotation of one changes.
        """
        params = self.builder._frames[-1].params
        final = [_kept(self, p, r) for p, r in zip(params, self.results, strict=True)]
        body, _ = self.importer.close(final)
        copies = [self.builder.carried(self.builder.unique("carried"), p.annotation) for p in params]
        self.importer.open(copies, loop=True)
        cond, _ = self.importer.close([condition(copies)])
        return self.builder.while_(self.init, cond, body)


def _kept(loop: Loop, param: Value, result: Value | None) -> Value:
    """Returns `result`, the next value of the loop-carried value `param`, with the same annotation; `param` itself if `result` is None.

    Makes a match_cast if only run time can decide whether the annotation stays. Raises a ShapeError if it changes.
    """
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
    """Returns the zero of a tensor's dtype as a Python number."""
    return False if t.dtype.name == "bool" else 0.0 if t.dtype.is_float else 0


def as_tensor(value: Value) -> Value:
    """Converts a host scalar to a rank-0 tensor; returns tensors unchanged."""
    tensor: Value = ops.reshape(value, ()) if isinstance(value.annotation, Scalar) else value
    return tensor


def wide(site: NodeContext, value: Value) -> Value:
    """Converts a trip count to an i64 host scalar or rank-0 tensor."""
    a = value.annotation
    scalar: Value = value if isinstance(a, Scalar) or not a.shape else ops.reshape(value, ())  # type: ignore[union-attr]
    return scalar if scalar.annotation.dtype is i64 else ops.cast(scalar, i64)  # type: ignore[union-attr]
