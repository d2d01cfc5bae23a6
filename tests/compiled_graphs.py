"""Graph functions compiled with chosen steps, and their host programs run by the loop interpreter, for comparing the two.

f = compiled(function, level=0, poison=True); y, = call(f, [x])
y, = interpret_host(host_of(function), [x])
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pliant.compilation import State, Step
from pliant.dtype import u8
from pliant.graph import node as g
from pliant.interp.loop import run_loop
from pliant.loop.buffer import Buffer
from pliant.loop.stmt import Func, Param, Replacer
from pliant.lower.host.host import HostProgram
from pliant.pipeline import STEPS, run_steps
from pliant.pipeline import without as steps_without
from pliant.program import Program
from pliant.runtime.executable import Executable
from pliant.runtime.loading import open_package
from pliant.sym.expr import const
from pliant.target import target

Array = np.ndarray[Any, Any]


def without(*names: str) -> tuple[Step, ...]:
    """The steps of the pipeline without some of them."""
    assert {s.name for s in STEPS} >= set(names)
    return steps_without(STEPS, names)


def lowered(function: g.Function, steps: Sequence[Step] = STEPS, **options: Any) -> State:
    """A function after the given steps."""
    program = Program.of(function)
    return run_steps(State(function, target("native"), program.constants, functions=program.functions, **options), steps)


def compiled(
    function: g.Function, steps: Sequence[Step] = STEPS, level: int = 0, poison: bool = False, checked: bool = False
) -> Executable:
    """A function as native code, not from the cache."""
    state = lowered(function, steps, level=level, poison=poison, checked=checked)
    assert state.package is not None
    return open_package(state.package, state.constants, state.functions)


def host_of(function: g.Function, steps: Sequence[Step] = STEPS, poison: bool = False) -> HostProgram:
    """The host program of a function, which does everything in the call: nothing is lifted out of it."""
    host = lowered(function, [s for s in steps if s.name not in ("lift_constants", "emit")], poison=poison).host
    assert host is not None
    return host


def call(f: Callable[..., Any], arguments: Sequence[Any]) -> tuple[Any, ...]:
    """The results of a call as a tuple, however many there are."""
    found = f(*arguments)
    return found if isinstance(found, tuple) else (found,)


def prepared(host: HostProgram, arguments: Sequence[Any]) -> Array:
    """The `dims` array after `prepare` has seen the arguments; the interpreter raises what a failed check says."""
    given = dict(zip(host.layout.params, arguments, strict=True))
    dims = np.zeros(host.layout.at_counts + len(host.layout.counts), np.int64)
    for p, at in host.layout.arguments():
        a = given[p]
        if isinstance(p.annotation, g.Tensor):
            dims[at : at + 2 * a.ndim] = (*a.shape, *(s // a.itemsize for s in a.strides))
        else:
            assert isinstance(p.annotation, g.Scalar)
            dims[at] = struct.unpack("<q", struct.pack("<d", a))[0] if p.annotation.dtype.is_float else int(a)
    run_loop(host.prepare, [dims])
    return dims


def interpret_host(host: HostProgram, arguments: Sequence[Any]) -> tuple[Array, ...]:
    """The results of a host program whose three functions are run by the interpreter; state arguments are updated in place."""
    dims = prepared(host, arguments)
    sized = np.zeros_like(dims)
    sized[host.layout.at_symbols : host.layout.at_outputs] = dims[host.layout.at_symbols : host.layout.at_outputs]
    run_loop(host.size, [sized])
    assert (sized[host.layout.at_outputs :] == dims[host.layout.at_outputs :]).all()
    given = dict(zip(host.layout.params, arguments, strict=True))
    tensors = {p: as_bytes(given[p]) for p, _ in host.layout.arguments() if isinstance(p.annotation, g.Tensor)}
    at, results = host.layout.at_outputs, []
    for o in host.outputs:
        shape = tuple(int(n) for n in dims[at : at + len(o.annotation.shape)])
        at += len(shape)
        size = math.prod(shape) * o.annotation.dtype.itemsize
        memory = tensors[host.layout.params[o.alias]] if o.alias is not None else np.full(size, 0xFF, np.uint8)
        results.append((memory, o.annotation.dtype.numpy(), shape))
    memories = [*tensors.values(), *(r[0] for r in results), *(as_bytes(c.array) for c in host.constants)]
    run_loop(with_ends(host.run, [m.size for m in memories]), [dims, *memories])
    for p, memory in tensors.items():
        if isinstance(p.annotation, g.Tensor) and p.annotation.state:
            given[p][...] = memory.view(given[p].dtype).reshape(given[p].shape)
    counts = dims[host.layout.at_counts :]
    found = []
    for o, (memory, dtype, shape) in zip(host.outputs, results, strict=True):
        true = [int(counts[c]) if c is not None else n for n, c in zip(shape, o.counted_by or [None] * len(shape), strict=True)]
        found.append(memory.view(dtype)[: math.prod(true)].reshape(true).copy())
    return tuple(found)


def as_bytes(array: Array) -> Array:
    """A copy of the bytes of an array."""
    return np.frombuffer(array.tobytes(), np.uint8).copy()


def with_ends(run: Func, sizes: Sequence[int]) -> Func:
    """A host program's `run` with pointers of known ends in place of bare ones, so that the interpreter finds what leaves them."""
    dims, *pointers = run.params
    new = {p.value: Buffer(p.value.name, u8, (const(n),)) for p, n in zip(pointers, sizes, strict=True) if isinstance(p.value, Buffer)}
    params = [Param(b, p.role) for p, b in zip(pointers, new.values(), strict=True)]
    return run.with_(params=(dims, *params), body=Replacer(buffers=new).stmt(run.body))
