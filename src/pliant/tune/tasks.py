"""Tasks: the kernels of a program that tuning can measure by themselves, with arguments for sampled dims.

    tasks, left_out = tasks_of(program, machine, samples)      # samples: [{"n": 1}, {"n": 17}], the program's dims
    tasks[0].arguments()                                       # for each sample random arrays

Kernels are those of the step `schedule`, each once, however often the program calls them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log, prod
from typing import TYPE_CHECKING, Any

from ..graph.annotation import annotation_vars
from ..graph.node import CallLoop, walk_nodes
from ..loop.buffer import Buffer
from ..lower.callee import func_of
from ..pipeline import compile_as_far_as
from ..schedule.records import KernelKey, kernel_key
from ..support.errors import Error, UnsupportedError
from ..sym.exact import exact
from ..sym.expr import DIM_MAX, Dim, Expr, Var, free_vars

if TYPE_CHECKING:
    from ..loop.stmt import Func, Param
    from ..program import Program
    from ..target import Target

Dims = Mapping[str, int]
SAMPLES = 3  # sizes of a dim, from its contract, if the user names none
UNBOUNDED = 512  # the largest of them where the contract has no limit
MEMORY = 1 << 29  # bytes of the arguments of one call


@dataclass(slots=True)
class Task:
    """A kernel to tune: the loop program before it is scheduled, and where it is measured."""

    func: Func
    key: KernelKey
    samples: tuple[Dims, ...]  # values of the program's dims, for people
    symbols: tuple[Mapping[Var, int], ...]  # values of the kernel's symbols in each sample
    calls: int = 1
    identity: str = field(default="")  # what is measured, as a key of the database

    @property
    def name(self) -> str:
        """The name of the kernel."""
        return self.func.name

    def arguments(self) -> list[list[Any]]:
        """Returns random arguments of the kernel for each sample; raises UnsupportedError if it has none that can be made up."""
        return [[_argument(p, values) for p in self.func.params if p.role != "out"] for values in self.symbols]


def tasks_of(program: Program, machine: Target, samples: Sequence[Dims]) -> tuple[list[Task], list[str]]:
    """Returns the tasks of a program, and for each kernel that cannot be measured by itself why not."""
    function = compile_as_far_as("without_fma", program, machine).function
    dims = {v.name: v for p in function.params for v in annotation_vars(p.annotation)}
    of_program = [{dims[name]: n for name, n in sample.items() if name in dims} for sample in samples]
    tasks: dict[tuple[KernelKey, str], Task] = {}
    left_out: dict[str, None] = {}
    for n in walk_nodes(function.nodes):
        if not isinstance(n, CallLoop) or func_of(n.callee).attrs.scheduled:
            continue
        func = func_of(n.callee)
        try:
            symbols = tuple({v: _size(e, values) for v, e in zip(func.symbols, n.dims, strict=True)} for values in of_program)
            _check(func, symbols)
        except Error as error:
            left_out[f"{func.name}: {error.what}"] = None
            continue
        key = kernel_key(func, machine)
        identity = _identity(key, func, symbols)
        task = tasks.setdefault((key, identity), Task(func, key, tuple(samples), symbols, 0, identity))
        task.calls += 1
    return list(tasks.values()), list(left_out)


def samples_of(program: Program, weights: Mapping[str, Sequence[int]] | None) -> list[dict[str, int]]:
    """Returns values of the dims of a program, all dims together: those that the user names, else sizes spread evenly by logs.

    Raises an Error for an unknown dim, a size outside of its contract, or lists of different lengths.
    """
    dims = {v.name: v for p in program.entry.params for v in annotation_vars(p.annotation)}
    wanted = {name: list(values) for name, values in (weights or {}).items()}
    unknown = sorted(set(wanted) - set(dims))
    if unknown:
        raise Error(f"there is no dim `{unknown[0]}`", facts=[f"the dims are {', '.join(dims) or 'none'}"])
    for name, values in wanted.items():
        wrong = [n for n in values if type(n) is not int or not _fits(dims[name], n)]
        if wrong or not values:
            raise Error(f"dim `{name}` cannot be {wrong[0] if wrong else 'of no size'}", facts=[f"it is {_contract(dims[name])}"])
    lengths = {len(values) for values in wanted.values()} - {1}
    if len(lengths) > 1:
        raise Error("the dims have lists of different lengths", help="the sizes at one place of all lists are measured together")
    count = max(lengths, default=1 if wanted and set(wanted) == set(dims) else SAMPLES if dims else 1)
    every = {name: wanted.get(name) or _spread(v, count) for name, v in dims.items()}
    samples = [{name: values[min(k, len(values) - 1)] for name, values in every.items()} for k in range(count)]
    return [dict(s) for s in dict.fromkeys(tuple(s.items()) for s in samples)]


def _contract(v: Var) -> tuple[int, int, int]:
    return (v.min, v.max, v.multiple_of) if isinstance(v, Dim) else (0, DIM_MAX, 1)


def _fits(v: Var, n: int) -> bool:
    low, high, step = _contract(v)
    return low <= n <= high and n % step == 0


def _spread(v: Var, count: int) -> list[int]:
    """Returns so many sizes of a dim, from the smallest that is not 0 to the largest, evenly spread by their logs."""
    low, high, step = _contract(v)
    low = max(low, step)
    high = high if high < DIM_MAX else max(UNBOUNDED // step * step, low)
    logs = [log(low) + (log(high) - log(low)) * k / max(count - 1, 1) for k in range(count)]
    return [min(max(round(exp(x) / step) * step, low), high // step * step) for x in logs]


def _size(e: Expr, values: Mapping[Var, int]) -> int:
    """Returns the value of a kernel's symbol; raises UnsupportedError if the dims of the program do not say it."""
    if not free_vars(e) <= values.keys():
        raise UnsupportedError(f"`{e}` is known only while the program runs")
    return int(exact(e, values))


def _check(func: Func, symbols: Sequence[Mapping[Var, int]]) -> None:
    """Raises UnsupportedError if a kernel cannot be measured with arguments that are made up."""
    for p in func.params:
        b = p.value
        if p.role == "inout":
            raise UnsupportedError(f"it changes `{b.name}` in place")
        if isinstance(b, Buffer) and b.strides is not None:
            raise UnsupportedError(f"`{b.name}` has strides of its own")
        if isinstance(b, Buffer) and b.dtype.bits < 8:
            raise UnsupportedError(f"elements of `{b.name}` are smaller than a byte")
    for values in symbols:
        known = [b for p in func.params if isinstance(b := p.value, Buffer) and all(free_vars(e) <= values.keys() for e in b.shape)]
        sizes = [prod(int(exact(e, values)) for e in b.shape) * b.dtype.itemsize for b in known]
        if sum(sizes) > MEMORY:
            raise UnsupportedError(f"its arguments take {sum(sizes) >> 20} MiB at {shown(values)}", help="name smaller sizes in `weights`")


def shown(values: Mapping[Any, int]) -> str:
    """Returns sizes of dims as text."""
    return ", ".join(f"{getattr(v, 'name', v)}={n}" for v, n in values.items())


def _argument(p: Param, values: Mapping[Var, int]) -> Any:
    """Returns a random array of a parameter, or a number; indices are 0, which is an index of anything."""
    import numpy as np

    if not isinstance(p.value, Buffer):
        return 0.5 if p.value.dtype.is_float else 1
    dtype, shape = p.value.dtype, [int(exact(e, values)) for e in p.value.shape]
    random = np.random.default_rng(0)
    if dtype.is_float:
        return (random.random(shape, np.float32) - 0.5).astype(dtype.array_dtype())
    return (random.integers(0, 2, shape) if dtype.bits == 8 else np.zeros(shape)).astype(dtype.array_dtype())


def _identity(key: KernelKey, func: Func, symbols: Sequence[Mapping[Var, int]]) -> str:
    """Returns a key for the measurements of a kernel: its content, its sizes, and the dims where it is measured."""
    from ..loop.structural import structural_hash

    at = [[values.get(v) for v in func.symbols] for values in symbols]
    return hashlib.sha256(repr((key, structural_hash(func), at)).encode()).hexdigest()
