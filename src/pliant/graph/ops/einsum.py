"""Sums of products by index letters: einsum. One or two operands are one operator; more are contracted pairwise from the left.

    ops.einsum("bij,bjk->bik", a, b)
    ops.einsum("...ij,...jk", a, b)          # without `->`, letters that occur once remain, in alphabetical order
    ops.einsum("ii->i", a), ops.einsum("i,j,k", x, y, z)

Dims with the same letter must be equal; the dims of `...` broadcast. 16-bit floats are summed in f32.
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtype import bool_
from ...dtype import dtype as to_dtype
from ...support.errors import ShapeError, counted
from ...support.record import dataclass
from ...sym.expr import Cast, Const, Expr, Mul
from ..annotation import ONE
from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import Array, OpCall, operator, tensor_of
from ..stage import Indices, Read, Stage
from .elementwise import project
from .reduce import accumulator

# A dim of `...` is a letter too: the digit of its position from the end.
_DOTS = "0123456789"


@dataclass(frozen=True, slots=True)
class EinsumAttrs:
    """The attributes of `einsum`: the equation, with the letters of the operands and of the result."""

    equation: str


def _split(equation: str) -> tuple[list[str], str]:
    operand_letters, _, result = equation.partition("->")
    return operand_letters.split(","), result


def _letters(d: Deduction, equation: str) -> tuple[list[str], str, dict[str, Expr]]:
    """Returns the letters of each operand (a digit for each dim of `...`), those of the result, and the extent of each letter.

    Extents of a letter must be equal, those of a digit broadcast. Raises if a term does not have as many letters as its operand has dims.
    """
    inputs, result = _split(equation)
    extents: dict[str, Expr] = {}
    resolved = []
    dots = 0
    for k, term in enumerate(inputs):
        rank = len(d.tensor(k).shape)
        named, width = len(term.replace("...", "")), rank - len(term.replace("...", ""))
        if (width < 0) or ("..." not in term and width != 0):
            raise d.error(f'einsum: "{term}" names {counted(named, "dim")}, and `{d.args[k].name}` has {rank}', arg=k)
        dots = max(dots, width)
        resolved.append(term.replace("...", _DOTS[:width][::-1]))
    for k, term in enumerate(resolved):
        for axis, letter in enumerate(term):
            n = d.tensor(k).shape[axis]
            known = extents.setdefault(letter, n)
            if letter in _DOTS:
                extents[letter] = d.broadcast((known,), (n,))[0]
            else:
                extents[letter] = d.equal(known, n, f"`{letter}` is both {{0}} and {{1}}", arg=k)
    return resolved, result.replace("...", _DOTS[:dots][::-1]), extents


def _deduce(d: Deduction, attrs: EinsumAttrs) -> tuple[Annotation, ...]:
    d.same_dtype()
    if d.tensor(0).dtype is bool_:
        raise d.error("einsum of bools", arg=0, help="cast them first: ops.cast(x, i32)")
    _, result, extents = _letters(d, attrs.equation)
    return (Tensor(d.tensor(0).dtype, tuple(extents[c] for c in result)),)


def _stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: EinsumAttrs) -> tuple[Stage, ...]:
    inputs, result = _split(attrs.equation)
    widths = [len(a.shape) - len(t.replace("...", "")) for a, t in zip(args, inputs, strict=True)]
    terms = [t.replace("...", _DOTS[:w][::-1]) for t, w in zip(inputs, widths, strict=True)]
    result = result.replace("...", _DOTS[: max(widths)][::-1])
    out, wide = outs[0], accumulator(args[0].dtype)
    summed = [c for c in dict.fromkeys("".join(terms)) if c not in result]
    sizes = dict(zip(result, out.shape, strict=True))
    for t, a in zip(terms, args, strict=True):
        for c, n in zip(t, a.shape, strict=True):
            if c in summed and (c not in sizes or sizes[c] is ONE):
                sizes[c] = n

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        at = dict(zip(result, i, strict=True)) | dict(zip(summed, r, strict=True))
        term: Expr | None = None
        for k, (t, a) in enumerate(zip(terms, args, strict=True)):
            places = tuple(project((n,), (sizes[c],), (at[c],))[0] if c in _DOTS else at[c] for c, n in zip(t, a.shape, strict=True))
            factor = read(k, *places)
            factor = factor if factor.dtype is wide else Cast(wide, factor)
            term = factor if term is None else Mul(term, factor)
        assert term is not None
        return term

    reduce = tuple(sizes[c] for c in summed)
    if not summed:
        return (Stage("out", out.dtype, out.shape, lambda i, r, read: _narrow(value(i, r, read), out)),)
    total = Stage("sum", wide, out.shape, value, reduce, "add", Const(0, wide))
    if wide is out.dtype:
        return (total,)
    return (total, Stage("out", out.dtype, out.shape, lambda i, r, read: Cast(out.dtype, read("sum", *i))))


def _narrow(e: Expr, out: Tensor) -> Expr:
    return e if e.dtype is out.dtype else Cast(out.dtype, e)


def _reference(args: Sequence[Array], attrs: EinsumAttrs) -> list[Array]:
    wide = [a.astype(accumulator(to_dtype(a.dtype)).numpy()) for a in args]
    return [np.asarray(np.einsum(attrs.equation, *wide)).astype(args[0].dtype)]


@operator(deduce=_deduce, reference=_reference, stages=_stages, attrs=EinsumAttrs, arity=(1, 2))
def einsum(op: OpCall, *xs: Any, equation: str | None = None) -> Any:
    """The sum of products that the equation describes: `ops.einsum("ij,jk->ik", a, b)`.

    More than two operands are contracted pairwise from the left, one operator each. Raises a ShapeError for an equation that does not fit
    the operands.
    """
    if equation is None and xs:
        equation, *rest = xs
        xs = tuple(rest)
    if not isinstance(equation, str) or not xs:
        raise ShapeError("einsum takes an equation and tensors", help='for example ops.einsum("ij,jk->ik", a, b)')
    values = op.operands(xs)
    inputs, result = _checked(equation, [len(tensor_of(v.annotation).shape) for v in values])
    first, term = values[0], inputs[0]
    for k in range(1, len(values)):
        last = k == len(values) - 1
        left = result if last else _needed(term, inputs[k], [*inputs[k + 1 :], result])
        first, term = op.emit(first, values[k], attrs=EinsumAttrs(f"{term},{inputs[k]}->{left}")), left
    return first if len(values) > 1 else op.emit(first, attrs=EinsumAttrs(f"{term}->{result}"))


def _needed(a: str, b: str, later: Sequence[str]) -> str:
    """Returns the letters of two operands that later operands or the result use, `...` first."""
    letters = "..." if "..." in a or "..." in b else ""
    wanted = "".join(later).replace("...", "")
    return letters + "".join(c for c in dict.fromkeys((a + b).replace("...", "")) if c in wanted)


def _checked(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Returns the letters of the operands and of the result; without `->` the result has the letters that occur once, sorted.

    Raises a ShapeError for another number of operands, and for characters other than letters and `...`.
    """
    text = equation.replace(" ", "")
    inputs, result = _split(text)
    if len(inputs) != len(ranks):
        raise ShapeError(f'einsum: "{equation}" is for {counted(len(inputs), "operand")}, {len(ranks)} given')
    for term in (*inputs, result):
        letters = term.replace("...", "", 1)
        if any(c not in string.ascii_letters for c in letters):
            raise ShapeError(f'einsum: "{term}" has something else than letters and "..."')
    if "->" in text:
        _check_result(inputs, result)
        return inputs, result
    named = "".join(inputs).replace("...", "")
    once = "".join(sorted(c for c in set(named) if named.count(c) == 1))
    return inputs, ("..." if any("..." in t for t in inputs) else "") + once


def _check_result(inputs: Sequence[str], result: str) -> None:
    letters = result.replace("...", "")
    for c in letters:
        if not any(c in t for t in inputs):
            raise ShapeError(f"einsum: `{c}` of the result is in no operand")
    if len(set(letters)) != len(letters):
        raise ShapeError(f'einsum: a letter of the result "{result}" comes up twice')
    if any("..." in t for t in inputs) and "..." not in result:
        raise ShapeError('einsum: the result leaves out the dims of "..."', help='write "..." in the result too')
