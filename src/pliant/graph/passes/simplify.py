"""Algebraic simplification of the graph: a table of peephole rules, each bit-exact for every value of its dtypes.

    rule                    before                              after
    add_zero                add(x, 0), add(x, -0.0)             x               (x + 0.0 is not x if x is -0.0)
    permute_of_permute      permute(permute(x, p), q)           permute(x, p[q])
    slice_of_everything     slice(x, axis, 0, n)                x
    …

`RULES` holds them by name. A rule gets one operator, whose arguments are already rewritten, and returns the replacement of its result
or None. The run-time checks of a replaced node move to the node that replaces it; if an existing value replaces it, a node with
checks stays. No rule makes a node read a state tensor that another node read before, because the state may be consumed in between.
The property tests iterate over the table, so a new rule is tested without further code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...dtype import DType, bool_
from ...support.record import dataclass
from ...sym.expr import Const, Expr, const
from ...sym.simplify import simplify as simplify_expr
from ..annotation import ONE
from ..node import Function, Node, Op, Scalar, Tensor, Value, is_state
from ..op_table import TABLE
from ..rewrite import Rewriter


@dataclass(frozen=True, slots=True)
class Rule:
    """A rewrite rule of graph operators: the operators it applies to (empty: all that broadcast), and its function."""

    ops: tuple[str, ...]
    apply: Callable[[Rewriter, Op], Value | None]


RULES: dict[str, Rule] = {}
_BY_OP: dict[str, list[Rule]] = {}  # a cache: operator -> its rules, filled at first use


def simplify(function: Function) -> Function:
    """Returns the function after applying all rules until none matches; the same object if none did."""
    return Rewriter(function, _apply).run()


def _apply(r: Rewriter, node: Node) -> Sequence[Value] | None:
    """Returns the replacement of a node by the first rule that matches, or None; rules see operators with one tensor result only."""
    if not isinstance(node, Op) or len(node.outs) != 1 or isinstance(node.outs[0].annotation, Scalar):
        return None
    for rule in _rules_of(node.op):
        replacement = rule.apply(r, node)
        if replacement is not None and replacement.annotation == node.outs[0].annotation:
            return [replacement]
    return None


def _rules_of(op: str) -> list[Rule]:
    """Returns the rewrite rules that apply to an operator."""
    if op not in _BY_OP:
        _BY_OP[op] = [rule for rule in RULES.values() if (op in rule.ops if rule.ops else TABLE[op].broadcasts)]
    return _BY_OP[op]


def rule(*ops: str) -> Callable[[Callable[[Rewriter, Op], Value | None]], Callable[[Rewriter, Op], Value | None]]:
    """Decorator: adds a rule for the operators `ops` to the table, under the name of its function.

    No operator stands for all that broadcast.
    """

    def put(apply: Callable[[Rewriter, Op], Value | None]) -> Callable[[Rewriter, Op], Value | None]:
        RULES[apply.__name__] = Rule(ops, apply)
        return apply

    return put


def _is_all(r: Rewriter, value: Value, number: float, negative_zero: bool = False) -> bool:
    """True if the value is a literal with every element equal to `number`; a float zero must have the sign that `negative_zero` says."""
    array = r.array_of(value)
    if array is None or array.size == 0 or not bool(np.all(array == array.dtype.type(number))):
        return False
    return number != 0 or array.dtype.kind in "iub" or bool(np.all(np.signbit(array) == negative_zero))


def _alone(node: Op, value: Value) -> Value | None:
    """`value` as the replacement of `node`, or None if the node has run-time checks, which would be lost."""
    return None if node.requires else value


def _only(found: tuple[Value, ...] | None) -> Value | None:
    """Returns the only result of a new operator, or None if it could not be made."""
    return None if found is None else found[0]


# Arithmetic with literals.


@rule("add")
def add_zero(r: Rewriter, n: Op) -> Value | None:
    """x + 0 -> x for integers, x + -0.0 -> x for floats."""
    for x, zero in (n.args, n.args[::-1]):
        if _is_all(r, zero, 0, negative_zero=True):
            return _alone(n, x)
    return None


@rule("sub")
def sub_zero(r: Rewriter, n: Op) -> Value | None:
    """x - 0 -> x, also for floats (but not x - -0.0)."""
    return _alone(n, n.args[0]) if _is_all(r, n.args[1], 0) else None


@rule("mul")
def mul_one(r: Rewriter, n: Op) -> Value | None:
    """x * 1 -> x."""
    for x, one in (n.args, n.args[::-1]):
        if _is_all(r, one, 1):
            return _alone(n, x)
    return None


@rule("div", "floor_divide")
def div_one(r: Rewriter, n: Op) -> Value | None:
    """x / 1 -> x, and x // 1 -> x."""
    return _alone(n, n.args[0]) if _is_all(r, n.args[1], 1) else None


@rule("div")
def div_by_power_of_two(r: Rewriter, n: Op) -> Value | None:
    """x / c -> x * (1 / c) if c is a power of two and 1 / c is normal: both round the same real number, and mul is faster."""
    divisor = r.array_of(n.args[1])
    if divisor is None or divisor.size == 0 or not bool(np.all(np.isfinite(divisor) & (divisor != 0))):
        return None
    with np.errstate(all="ignore"):
        wide = divisor.astype(np.float64)
        inverse = (1.0 / wide).astype(divisor.dtype)
    normal = bool(np.all(np.abs(inverse.astype(np.float64)) >= float(np.finfo(np.float16).tiny)))
    if not bool(np.all(np.abs(np.frexp(wide)[0]) == 0.5)) or not normal or not bool(np.all(np.isfinite(inverse))):
        return None
    return _only(r.op("mul", (n.args[0], r.constant(inverse, origin=n.origin, span=n.span)), None, n))


@rule("mul", "remainder", "sub")
def integer_zero(r: Rewriter, n: Op) -> Value | None:
    """x * 0, x % 1, x - x -> zeros, for integers."""
    t = n.outs[0].tensor
    if not t.dtype.is_int:
        return None
    a, b = n.args
    zero = _is_all(r, a, 0) or _is_all(r, b, 0) if n.op == "mul" else a is b if n.op == "sub" else _is_all(r, b, 1)
    return _filled(r, n, t) if zero else None


def _filled(r: Rewriter, n: Op, t: Tensor) -> Value | None:
    """Returns a tensor of zeros in the place of a node; None if deduction fails."""
    from ..ops.shape import FullAttrs

    return _only(r.op("full", (), FullAttrs(t.shape, Const(0, t.dtype)), n))


# Involutions, idempotent operators, equal operands.


@rule("neg", "logical_not")
def undone_twice(r: Rewriter, n: Op) -> Value | None:
    """neg(neg(x)) -> x, logical_not(logical_not(x)) -> x."""
    inner = r.op_of(n.args[0], n.op)
    return None if inner is None else _alone(n, inner.args[0])


@rule("abs", "relu", "floor", "ceil", "trunc", "round")
def done_once(r: Rewriter, n: Op) -> Value | None:
    """f(f(x)) -> f(x) for abs, relu and the functions that round to integers."""
    return _alone(n, n.args[0]) if r.op_of(n.args[0], n.op) else None


@rule("minimum", "maximum", "logical_and", "logical_or")
def same_operand(r: Rewriter, n: Op) -> Value | None:
    """f(x, x) -> x for minimum, maximum, logical_and and logical_or."""
    return _alone(n, n.args[0]) if n.args[0] is n.args[1] else None


@rule("where")
def where_known(r: Rewriter, n: Op) -> Value | None:
    """where(true, x, y) -> x, where(false, x, y) -> y, where(c, x, x) -> x."""
    cond, x, y = n.args
    if x is y or _is_all(r, cond, 1):
        return _alone(n, x)
    return _alone(n, y) if _is_all(r, cond, 0) else None


# Casts.


@rule("cast")
def cast_to_same(r: Rewriter, n: Op) -> Value | None:
    """cast(x, dtype of x) -> x."""
    return _alone(n, n.args[0]) if _dtype(n.args[0]) is n.outs[0].tensor.dtype else None


@rule("cast")
def cast_of_widening(r: Rewriter, n: Op) -> Value | None:
    """cast(cast(x, wide), d) -> cast(x, d) if the first cast is lossless and keeps the kind (int or float)."""
    inner = r.op_of(n.args[0], "cast")
    if inner is None or not isinstance(inner.args[0].annotation, Tensor) or is_state(inner.args[0]):
        return None
    return _only(r.op("cast", inner.args, n.attrs, n)) if _widens(_dtype(inner.args[0]), _dtype(n.args[0])) else None


def _dtype(value: Value) -> DType:
    assert isinstance(value.annotation, Tensor | Scalar)
    return value.annotation.dtype


def _widens(narrow: DType, wide: DType) -> bool:
    """True if a cast from `narrow` to `wide` is lossless and keeps the kind, so that a further cast gives the same result."""
    if narrow is bool_:
        return wide is not bool_
    if narrow.is_int and wide.is_int:
        return wide.min <= narrow.min and narrow.max <= wide.max
    return narrow.is_float and wide.is_float and narrow.bits < wide.bits


# Views and movement.


@rule("reshape")
def reshape_to_same(r: Rewriter, n: Op) -> Value | None:
    """reshape(x, shape of x) -> x; `_apply` drops the answer if the shapes differ."""
    return _alone(n, n.args[0])


@rule("reshape")
def reshape_of_reshape(r: Rewriter, n: Op) -> Value | None:
    """reshape(reshape(x, s), t) -> reshape(x, t), unless x is state."""
    inner = r.op_of(n.args[0], "reshape")
    if inner is None or not isinstance(inner.args[0].annotation, Tensor) or is_state(inner.args[0]):
        return None
    return _only(r.op("reshape", inner.args, n.attrs, n, inner.requires))


@rule("reshape")
def reshape_of_slice(r: Rewriter, n: Op) -> Value | None:
    """reshape(slice(x, last, s, t), (…, h, d)) -> slice(reshape(x, (…, H, d)), axis of h, s / d, t / d): the reshape becomes a view."""
    inner = r.op_of(n.args[0], "slice")
    if inner is None or inner.requires or n.requires or is_state(inner.args[0]):
        return None
    old, new, a = inner.args[0].tensor.shape, n.outs[0].tensor.shape, inner.attrs
    numbers = [e.value for e in (a.start, a.stop, old[-1], new[-1]) if isinstance(e, Const)] if len(new) == len(old) + 1 else []
    if a.axis != len(old) - 1 or a.step != 1 or len(numbers) < 4 or new[:-2] != old[:-1]:
        return None
    start, stop, extent, size = numbers
    if size < 1 or start % size or stop % size or extent % size:
        return None
    whole = r.make("reshape", inner.args, type(n.attrs)((*old[:-1], const(extent // size), new[-1])), n)
    return None if whole is None else _only(r.op("slice", whole, type(a)(a.axis, const(start // size), const(stop // size)), n))


@rule("permute")
def permute_nothing(r: Rewriter, n: Op) -> Value | None:
    """permute(x, [0, 1, …]) -> x."""
    return _alone(n, n.args[0]) if n.attrs.axes == tuple(range(len(n.attrs.axes))) else None


@rule("permute")
def permute_of_permute(r: Rewriter, n: Op) -> Value | None:
    """permute(permute(x, p), q) -> permute(x, p[q])."""
    inner = r.op_of(n.args[0], "permute")
    if inner is None or is_state(inner.args[0]):
        return None
    return _only(r.op("permute", inner.args, type(n.attrs)(tuple(inner.attrs.axes[a] for a in n.attrs.axes)), n))


@rule("permute")
def permute_of_ones(r: Rewriter, n: Op) -> Value | None:
    """permute(x, p) -> reshape(x) if only dims of extent 1 change places: a reshape is a view."""
    from ..ops.shape import ShapeAttrs

    shape = n.args[0].tensor.shape
    order = [a for a in n.attrs.axes if shape[a] is not ONE]
    if order != sorted(order):
        return None
    return _only(r.op("reshape", n.args, ShapeAttrs(n.outs[0].tensor.shape), n))


@rule("slice")
def slice_of_everything(r: Rewriter, n: Op) -> Value | None:
    """slice(x, axis, 0, n) -> x."""
    a = n.attrs
    everything = a.step == 1 and _is_zero(a.start) and a.stop is n.args[0].tensor.shape[a.axis]
    return _alone(n, n.args[0]) if everything else None


@rule("slice")
def slice_of_slice(r: Rewriter, n: Op) -> Value | None:
    """slice(slice(x, a, s, t), a, u, v) -> slice(x, a, s + u, s + v)."""
    inner = r.op_of(n.args[0], "slice")
    if inner is None or inner.attrs.step != 1 or n.attrs.step < 1 or inner.attrs.axis != n.attrs.axis or is_state(inner.args[0]):
        return None
    start, stop = (simplify_expr(inner.attrs.start + e) for e in (n.attrs.start, n.attrs.stop))
    return _only(r.op("slice", inner.args, type(n.attrs)(n.attrs.axis, start, stop, n.attrs.step), n, inner.requires))


@rule("slice")
def slice_of_concat(r: Rewriter, n: Op) -> Value | None:
    """slice(concat([a, b], k), k, 0, extent of a) -> a, and so on for each part."""
    joined = r.op_of(n.args[0], "concat")
    if joined is None or joined.requires or joined.attrs.axis != n.attrs.axis or n.attrs.step != 1:
        return None
    at: Expr = const(0)
    for part in joined.args:
        end = simplify_expr(at + part.tensor.shape[n.attrs.axis])
        if n.attrs.start is at and n.attrs.stop is end and not is_state(part):
            return _alone(n, part)
        at = end
    return None


@rule("concat")
def concat_of_one(r: Rewriter, n: Op) -> Value | None:
    """concat([x]) -> x."""
    return _alone(n, n.args[0]) if len(n.args) == 1 else None


@rule("concat")
def concat_of_concat(r: Rewriter, n: Op) -> Value | None:
    """concat([concat([a, b], k), c], k) -> concat([a, b, c], k)."""
    inner = [r.op_of(a, "concat") for a in n.args]
    joined = [i is not None and i.attrs == n.attrs and not any(map(is_state, i.args)) for i in inner]
    if not any(joined):
        return None
    args = [p for a, i, flat in zip(n.args, inner, joined, strict=True) for p in (i.args if flat and i is not None else (a,))]
    checks = [c for i, flat in zip(inner, joined, strict=True) if flat and i is not None for c in i.requires]
    return _only(r.op("concat", args, n.attrs, n, checks))


# Explicit broadcasts are removed: the operator broadcasts its operands by itself.


@rule()
def operand_is_broadcast_already(r: Rewriter, n: Op) -> Value | None:
    """add(expand(x, s), y), add(reshape(x, (1, …)), y) -> add(x, y); add(full(s, v), y) -> add(v, y); if the result shape is the same."""
    for k, a in enumerate(n.args):
        smaller = _before_broadcast(r, a)
        if smaller is None:
            continue
        node, source = smaller
        replacement = _only(r.op(n.op, (*n.args[:k], source, *n.args[k + 1 :]), n.attrs, n, node.requires))
        if replacement is not None:
            return replacement
    return None


def _before_broadcast(r: Rewriter, value: Value) -> tuple[Op, Value] | None:
    """If `value` is an explicit broadcast (expand, reshape to leading 1s, full), returns the node and its operand; else None.

    The operand of `full` is a new literal of rank 0.
    """
    node = r.op_of(value, "expand", "reshape", "full")
    if node is None:
        return None
    if node.op == "full":
        number = node.attrs.value
        if not isinstance(number, Const) or not value.tensor.shape:
            return None
        return node, r.constant(np.array(number.value, number.dtype.numpy()), origin=node.origin, span=node.span)
    source = node.args[0]
    if not isinstance(source.annotation, Tensor) or is_state(source):
        return None
    if node.op == "expand":
        return node, source
    extra = len(value.tensor.shape) - len(source.tensor.shape)
    leading = extra > 0 and value.tensor.shape == (ONE,) * extra + source.tensor.shape
    return (node, source) if leading else None


def _is_zero(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 0
