"""Annotations of parameters and results in both languages: `dim`, `Tensor[f32, n, 128]`, `Out[...]`, `InOut[...]`.

At run time an annotation is a `TensorSpec`; a scalar parameter is annotated with a bare dtype. For type checkers `Tensor`, `Out` and
`InOut` are `typing.Annotated`, the dtypes are the classes of `typing_stubs`, and a dim is an `int`.

    >>> n = dim("n", max=4096, multiple_of=8)
    >>> Tensor[f32, n, 2 * n, strides(3, 1)]
    Tensor[f32, n, 2 * n, strides(3, 1)]
"""

from __future__ import annotations

from keyword import iskeyword
from typing import TYPE_CHECKING, Literal

from ..dtype import DType
from ..dtype import dtype as to_dtype
from ..dtype import i64 as _i64
from ..support.errors import Error, counted
from ..support.record import dataclass
from ..support.source import caller_span
from .expr import DIM_MAX, Const, Dim, Expr
from .relations import declare

if TYPE_CHECKING:
    from typing import Annotated as InOut
    from typing import Annotated as Out
    from typing import Annotated as State
    from typing import Annotated as Tensor

    from .typing_stubs import *  # the dtypes
    from .typing_stubs import DimInt
else:
    from ..dtype import ALL, bf16, bool_, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64

    i2, i4, u2, u4 = ALL["i2"], ALL["i4"], ALL["u2"], ALL["u4"]
    f4e2m1, f8e4m3, f8e4m3fn, f8e5m2 = ALL["f4e2m1"], ALL["f8e4m3"], ALL["f8e4m3fn"], ALL["f8e5m2"]
    f8e4m3fnuz, f8e5m2fnuz, f8e8m0 = ALL["f8e4m3fnuz"], ALL["f8e5m2fnuz"], ALL["f8e8m0"]

Role = Literal["in", "out", "inout", "state"]
MARKERS: dict[Role, str] = {"in": "Tensor", "out": "Out", "inout": "InOut", "state": "State"}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor annotation as data: dtype, shape, strides in elements (None: row-major contiguous), role."""

    dtype: DType
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...] | None = None
    role: Role = "in"

    def __repr__(self) -> str:
        parts = [str(self.dtype), *map(str, self.shape)]
        if self.strides is not None:
            parts.append(f"strides({', '.join(map(str, self.strides))})")
        return f"{MARKERS[self.role]}[{', '.join(parts)}]"


@dataclass(frozen=True, slots=True)
class Strides:
    """The strides in a tensor annotation, written `strides(s, 1)`."""

    values: tuple[Expr, ...]


def strides(*values: Expr | int) -> Strides:
    """Strides in elements, one for each dimension: `Tensor[f32, n, m, strides(s, 1)]`."""
    return Strides(tuple(extent(v, "a stride") for v in values))


def extent(value: object, what: str = "an extent") -> Expr:
    """`value` as an extent; raises an error unless it is a non-negative integer or an i64 expression."""
    if isinstance(value, Expr) and value.dtype is _i64:
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63:
        return Const(value, _i64)
    where = caller_span()
    if isinstance(value, str):
        raise Error(
            f'{what} is a dim or an integer, not the text "{value}"', where=where, help=f'declare it first: {value} = dim("{value}")'
        )
    shown = f"{value}" if isinstance(value, int | float) else f"of type `{type(value).__name__}`"
    raise Error(f"{what} is a dim or a non-negative integer, not {shown}", where=where)


class Marker:
    """The run-time object `Tensor`, `Out`, `InOut` or `State` (linear state of graph functions): subscripting makes a TensorSpec."""

    __slots__ = ("role",)

    def __init__(self, role: Role) -> None:
        self.role = role

    def __getitem__(self, items: object) -> TensorSpec:
        try:
            return make_spec(self.role, items if isinstance(items, tuple) else (items,))
        except Error as problem:
            raise problem.at(caller_span()) from None

    def __repr__(self) -> str:
        return MARKERS[self.role]


if not TYPE_CHECKING:
    Tensor, Out, InOut, State = Marker("in"), Marker("out"), Marker("inout"), Marker("state")


def make_spec(role: Role, items: tuple[object, ...]) -> TensorSpec:
    """Returns the spec of `Tensor[items]`: a dtype, the extents, and optional strides at the end.

    Raises an error if the first item is no data type, or unless there is one stride for each extent.
    """
    first, rest = items[0], items[1:]
    if isinstance(first, Expr | int | float | Strides) or first is None:
        raise Error(f"{MARKERS[role]}[...] starts with a data type", where=caller_span(), help=f"write {MARKERS[role]}[f32, ...]")
    steps: tuple[Expr, ...] | None = None
    if rest and isinstance(rest[-1], Strides):
        steps = rest[-1].values
        rest = rest[:-1]
        if len(steps) != len(rest):
            raise Error(
                f"{counted(len(steps), 'stride')} for {counted(len(rest), 'dimension')}",
                where=caller_span(),
                help="give one stride for each dimension",
            )
    return TensorSpec(to_dtype(first), tuple(extent(e) for e in rest), steps, role)


def _integer(value: object, what: str) -> int:
    """Returns `value` if it is an integer; raises an error that names the attribute `what` otherwise."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise Error(f"`{what}` of a dim is an integer, not {value!r}", where=caller_span())


def _related(name: str, kind: str, value: object) -> list[tuple[str, Expr]]:
    """The relations that one keyword of a dim states: an expression of other dims, or several in a tuple."""
    every = value if isinstance(value, tuple | list) else () if value is None else (value,)
    return [(kind, extent(e, f"`{kind}` of dim `{name}`")) for e in every]


def _dim(
    name: str, min: int = 0, max: int = DIM_MAX, multiple_of: int = 1, *, le: object = None, ge: object = None, eq: object = None
) -> Dim:
    """Declares a dynamic dimension, known only at run time: its least and greatest value, and a number that it is a multiple of.

    Raises an error if the name is no identifier, or if no value satisfies the bounds.
    `le`, `ge` and `eq` say what it is at most, at least, or exactly, in terms of dims declared before: `dim("m", le=n)`.
    """
    if not isinstance(name, str) or not name.isidentifier() or iskeyword(name):
        raise Error(f"a dim is named like a Python variable, not {name!r}", where=caller_span(), help='for example dim("n")')
    low, high, step = _integer(min, "min"), _integer(max, "max"), _integer(multiple_of, "multiple_of")
    if low < 0:
        raise Error(f"dim `{name}` cannot be negative: min is {low}", where=caller_span())
    if high > DIM_MAX:
        raise Error(f"dim `{name}` is too large: max is {high}", where=caller_span(), facts=[f"the largest dim is 2**31 - 1 = {DIM_MAX}"])
    if step < 1:
        raise Error(f"dim `{name}` cannot be a multiple of {step}", where=caller_span(), help="multiple_of is 1 or more")
    if -(-low // step) * step > high:
        shown = f"{low}..{high}" + (f" step {step}" if step > 1 else "")
        raise Error(f"dim `{name}` has no value: {shown} is empty", where=caller_span())
    declared = Dim(name, low, high, step)
    declare(declared, [*_related(name, "le", le), *_related(name, "ge", ge), *_related(name, "eq", eq)])
    return declared


if TYPE_CHECKING:
    Side = int | tuple[int, ...] | None

    def dim(
        name: str, min: int = 0, max: int = DIM_MAX, multiple_of: int = 1, *, le: Side = None, ge: Side = None, eq: Side = None
    ) -> DimInt:
        """A dynamic dimension, known only at run time: its least and greatest value, and a number that it is a multiple of.

        `le`, `ge` and `eq` say what it is at most, at least, or exactly, in terms of dims declared before: `dim("m", le=n)`.
        """
else:
    dim = _dim
    dim.__name__ = dim.__qualname__ = "dim"

__all__ = [
    "InOut", "Out", "State", "Tensor", "bf16", "bool_", "dim", "f4e2m1", "f8e4m3", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz",
    "f8e8m0", "f16", "f32", "f64", "i2", "i4", "i8", "i16", "i32", "i64", "strides", "u2", "u4", "u8", "u16", "u32", "u64",
]  # fmt: skip
