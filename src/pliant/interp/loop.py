"""The interpreter of loop programs on numpy arrays: the executable semantics of `loop/stmt.py`.

`run_loop` writes into the arrays in place. It is the oracle that native code is compared with, bit for bit, so it follows the semantics
word for word: undefined memory reads as poison, and an access outside of a buffer is an error that names it. `order="shuffled"` runs
iterations that may run in any order in a random one, which exposes programs that are not as parallel as they claim.

    >>> c = np.empty((2, 2), np.float32); run_loop(matmul, [a, b, c])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from ..dtype import i64
from ..loop.buffer import Buffer
from ..loop.stmt import Call, Func, walk_stmts
from ..support.errors import Error, ShapeError, counted
from ..support.record import dataclass
from ..support.source import Span
from ..sym.expr import Dim, Expr, Var, free_vars
from ..sym.semantics import evaluate, value_of
from .memory import Ints, Memory, contiguous, from_array
from .source import Writer
from .values import SYMBOL_BITS

Argument = Any  # a numpy array for a buffer, a number for a scalar


def run_loop(
    func: Func,
    arguments: Sequence[Argument],
    dims: Sequence[int] | None = None,
    *,
    order: Literal["serial", "shuffled"] = "serial",
    seed: int = 0,
    checked: bool = True,
    lanes: bool = True,
) -> None:
    """Runs a loop program on arrays, in place: one argument for each parameter, `dims` for its symbols (else deduced from the shapes).

    `lanes` runs independent iterations at once where that gives the same bits; `lanes=False` runs them one at a time. `order="shuffled"`
    runs independent iterations in a random order. Without `checked`, single accesses are not checked to be in bounds. Raises ShapeError for
    arguments that do not fit.
    """
    if len(arguments) != len(func.params):
        raise ShapeError(f"`{func.name}` takes {counted(len(func.params), 'argument')}, {len(arguments)} given", where=func.span)
    bound = [
        from_array(p.value.name, p.value.dtype, _array(p.value, a)) if isinstance(p.value, Buffer) else a
        for p, a in zip(func.params, arguments, strict=True)
    ]
    program = compiled(func, checked, order == "shuffled", lanes)
    scalars = {p.value: value_of(a, p.value.dtype) for p, a in zip(func.params, bound, strict=True) if isinstance(p.value, Var)}
    if dims is None:
        dims = deduce_dims(func, bound, scalars)
    with np.errstate(all="ignore"):
        program(np.random.default_rng(seed), tuple(bound), tuple(int(d) for d in dims), None)


def _array(buffer: Buffer, argument: Argument) -> np.ndarray[Any, Any]:
    """Returns the argument if it is a numpy array; raises an error otherwise."""
    if not isinstance(argument, np.ndarray):
        raise ShapeError(f"`{buffer.name}` must be a numpy array, not {type(argument).__name__}")
    return argument


@dataclass(frozen=True, slots=True)
class Program:
    """A loop program translated to Python; checks the arguments of each call."""

    func: Func
    run: Callable[..., None]

    def __call__(self, rng: np.random.Generator, arguments: tuple[Any, ...], dims: Ints, where: Span | None) -> None:
        """Runs the program on memories and scalars; raises ShapeError if they do not fit. Errors of arguments point at `where`."""
        try:
            values = self._symbols(dims)
            values |= {p.value: a for p, a in zip(self.func.params, arguments, strict=True) if isinstance(p.value, Var)}
            fitted = tuple(
                _fit(p.value, a, values) if isinstance(p.value, Buffer) else a for p, a in zip(self.func.params, arguments, strict=True)
            )
        except Error as error:
            raise error.at(where or self.func.span) from None
        self.run(rng, fitted, dims)

    def _symbols(self, dims: Ints) -> dict[Var, Any]:
        """Returns the values of the symbols by variable; raises an error if they violate the contract."""
        symbols = self.func.symbols
        if len(symbols) != len(dims):
            names = ", ".join(v.name for v in symbols)
            raise ShapeError(f"`{self.func.name}` has {counted(len(symbols), 'symbol')} ({names}), {counted(len(dims), 'value')} given")
        for v, d in zip(symbols, dims, strict=True):
            if isinstance(v, Dim) and (not v.min <= d <= v.max or d % v.multiple_of):
                raise ShapeError(f"dim `{v.name}` is {d}, which is outside of its contract", facts=[f"contract: {v.contract}"])
            if abs(d) >> SYMBOL_BITS:
                raise ShapeError(f"dim `{v.name}` is {d}, which is too large")
        return dict(zip(symbols, dims, strict=True))


def _fit(buffer: Buffer, memory: Memory, values: dict[Var, Any]) -> Memory:
    """Returns the memory of an argument as its parameter.

    Raises an error if shape, dtype or strides are not those that the parameter declares.
    """
    shape = tuple(int(evaluate(e, values)) for e in buffer.shape)
    if memory.shape != shape:
        declared = ", ".join(map(str, buffer.shape))
        raise ShapeError(
            f"`{buffer.name}` has shape {list(memory.shape)} where [{declared}] is expected", facts=[f"[{declared}] is {list(shape)} here"]
        )
    if memory.dtype is not buffer.dtype:
        raise ShapeError(f"`{buffer.name}` is of dtype {memory.dtype} where {buffer.dtype} is expected")
    strides = contiguous(shape) if buffer.strides is None else tuple(int(evaluate(e, values)) for e in buffer.strides)
    if any(a != b for a, b, n in zip(memory.strides, strides, shape, strict=True) if n > 1) and 0 not in shape:
        raise ShapeError(
            f"`{buffer.name}` has strides {list(memory.strides)} where {list(strides)} are expected",
            help="" if buffer.strides is not None else "pass a contiguous array, or declare the buffer with strides",
        )
    return Memory(buffer.name, buffer.dtype, shape, strides, memory.raw, memory.bit, memory.keep)


@lru_cache(maxsize=512)
def compiled(func: Func, checked: bool, shuffled: bool, lanes: bool) -> Program:
    """Returns a loop program translated to Python (memoized).

    `checked` adds checks of accesses, `shuffled` runs iterations in random order where order must not matter, `lanes` runs independent ones
    at once, as arrays.
    """
    callees = {s.func: compiled(s.func, checked, shuffled, lanes) for s in walk_stmts(func.body) if isinstance(s, Call)}
    code, names = Writer(func, checked, shuffled, lanes, callees).program()
    exec(code, names)  # safe: Writer generates the text from the IR, and no user code gets into it
    return Program(func, names["run"])


def deduce_dims(func: Func, arguments: Sequence[Memory | Argument], scalars: dict[Var, Any]) -> Ints:
    """The values of a program's symbols, solved from the shapes and strides of its arguments; raises ShapeError if one cannot be found."""
    known: dict[Var, Any] = dict(scalars)
    pairs: list[tuple[Expr, int]] = []
    for p, m in zip(func.params, arguments, strict=True):
        if isinstance(p.value, Buffer):
            if len(m.shape) != p.value.ndim:
                shown = f"{counted(len(m.shape), 'dim')} where [{', '.join(map(str, p.value.shape))}] is expected"
                raise ShapeError(f"`{p.value.name}` has {shown}", where=func.span)
            pairs += zip(p.value.shape, m.shape, strict=True)
            if p.value.strides is not None:
                pairs += zip(p.value.strides, m.strides, strict=True)
    for e, n in pairs:
        if isinstance(e, Var):
            known.setdefault(e, n)
    progress = True
    while progress:
        progress = False
        for e, n in pairs:
            unknown = [v for v in free_vars(e) if v not in known]
            solved = _solve(e, unknown[0], n, known) if len(unknown) == 1 else None
            if solved is not None:
                known[unknown[0]] = solved
                progress = True
    for v in func.symbols:
        if v not in known:
            raise ShapeError(f"dim `{v.name}` of `{func.name}` cannot be found from the arguments", where=func.span, help="pass `dims`")
    return tuple(int(known[v]) for v in func.symbols)


def _solve(e: Expr, v: Var, n: int, known: dict[Var, Any]) -> int | None:
    """The value of `v` for which `e` equals `n`, if `e` is affine in it; else None."""

    def at(x: int) -> int:
        return int(evaluate(e, known | {v: x}))

    base, step = at(0), at(1) - at(0)
    if step == 0 or v.dtype is not i64:
        return None
    value = (n - base) // step
    return value if at(value) == n else None
