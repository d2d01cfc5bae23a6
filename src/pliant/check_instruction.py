"""Checks of a user-declared tensor instruction: it is well formed, and its description, implementation and LLVM form agree.

The interpreter runs the description and the implementation on random numbers and on edge cases of their types; every element must be equal,
bit for bit. (All NaNs count as equal: NaN payloads are not part of the semantics.) LLVM must be able to select code for the LLVM form. If
this machine has the instruction, that code runs on the same numbers.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import numpy as np

from .codegen.instruction_sites import is_recognized, only_loop
from .codegen.llvm_form import bits_of, call_of, lines_of, operands_in
from .codegen.llvm_instruction import size_of
from .codegen.llvm_types import memory_type
from .codegen.try_emit import problem_of
from .dtype import DType
from .interp.loop import run_loop
from .loop.attributes import SCHEDULED
from .loop.buffer import Buffer, Load
from .loop.stmt import INSTRUCTION, For, Func, Reduce, Store
from .runtime import code_cache
from .schedule.primitives.tensorize import inner_tile
from .support.compiler_version import compiler_version
from .support.errors import Error
from .sym.expr import Const, Expr, Var
from .sym.walk import walk
from .target import aarch64, wasm, x86
from .target import target as find_target
from .target.instructions import Instruction

FEATURES = {"x86_64": x86.FEATURES, "aarch64": aarch64.FEATURES, "wasm32": wasm.FEATURES}
SEEDS = 4  # sets of operands on which programs are compared: edge cases only, two mixed sets, random numbers only
Array = np.ndarray[Any, Any]


def check_where(record: Instruction) -> None:
    """Raises Error if a declared instruction names an unknown architecture or feature."""
    if record.arch not in FEATURES:
        raise Error(f"instruction `{record.name}`: there is no architecture `{record.arch}`", help=f"there are {', '.join(FEATURES)}")
    known = FEATURES[record.arch]
    bad = next((f for f in record.needs if f not in known), None)
    if bad is not None:
        near = get_close_matches(bad, known, n=3) or sorted(known)
        raise Error(f"instruction `{record.name}`: {record.arch} has no feature `{bad}`", help=f"did you mean {', '.join(near)}?")


def check_arguments(name: str, description: Func, implementation: Func) -> None:
    """Raises Error unless both programs take the same operands, of constant shapes, and write exactly one of them."""
    shown = [_signature(f) for f in (description, implementation)]
    if shown[0] != shown[1]:
        facts = [f"the description takes {shown[0]}", f"the implementation takes {shown[1]}"]
        raise Error(f"instruction `{name}`: its description and its implementation take different operands", facts=facts)
    if description.scalars or description.symbols:
        raise Error(f"instruction `{name}`: its operands are tensors of constant shapes", facts=[f"it takes {shown[0]}"])
    small = next((b for b in description.buffers if b.dtype.bits < 8 or b.strides is not None), None)
    if small is not None:
        raise Error(f"instruction `{name}`: operand `{small.name}` is not rows of whole bytes", facts=[f"it takes {shown[0]}"])
    written = [b.name for b in description.buffers if description.role(b) != "in"]
    if len(written) != 1:
        raise Error(f"instruction `{name}`: it writes one operand, not {len(written)}", facts=[f"it takes {shown[0]}"])
    if not isinstance(only_loop(implementation.body), For):
        raise Error(
            f"instruction `{name}`: its implementation is not one loop", help="for j in vector(16): c[j] = a[j]", where=implementation.span
        )


def _signature(func: Func) -> str:
    return ", ".join(f"{p.value.name}: {p.role} {p.value!r}" for p in func.params)


def check_description(name: str, func: Func) -> None:
    """Raises Error unless `tensorize` can match the description: constant loops around one block, each operand accessed at one place."""
    tile = inner_tile(func.body)
    if tile is None or not tile.loops:
        raise Error(
            f"instruction `{name}`: its description is not loops around one block",
            where=func.span,
            help="the block has no init and no predicate: a `with block('c', 'SR', j, k):` in a `for j, k in grid(16, 4):`",
        )
    if any(not isinstance(x.stop, Const) or not isinstance(x.start, Const) or x.start.value for x in tile.loops):
        raise Error(f"instruction `{name}`: a loop of its description does not run from 0 to a constant", where=func.span)
    if isinstance(tile.stmt, Reduce) and len(tile.stmt.targets) != 1:
        raise Error(f"instruction `{name}`: its description reduces several values at once", where=func.span)
    places: dict[Buffer, tuple[Expr, ...]] = {}
    for e in _loads(tile.stmt):
        plain = [i for i in e.indices if isinstance(i, Var)]
        if len(set(plain)) != len(plain) or any(not isinstance(i, (Var, Const)) for i in e.indices):
            raise Error(f"instruction `{name}`: `{e}` is not indexed by loops or constants, each loop once", where=func.span)
        if places.setdefault(e.buffer, e.indices) != e.indices:
            raise Error(f"instruction `{name}`: its description uses `{e.buffer.name}` at several places", where=func.span)
        _check_covers(name, func, e, {x.var: x for x in tile.loops})
    unused = next((b.name for b in func.buffers if b not in places), None)
    if unused is not None:
        raise Error(f"instruction `{name}`: its description does not use `{unused}`", where=func.span)


def _check_covers(name: str, func: Func, e: Load, loops: dict[Var, For]) -> None:
    """Raises Error unless the description touches all elements of an operand: a matched tile has no others."""
    for i, extent in zip(e.indices, e.buffer.shape, strict=True):
        stop = loops[i].stop if isinstance(i, Var) and i in loops else Const(1, extent.dtype)
        if stop is not extent:
            raise Error(
                f"instruction `{name}`: `{e}` does not go through all of `{e.buffer.name}`",
                where=func.span,
                facts=[f"index {i} takes {stop} of {extent} values"],
                help="operands have the shapes of what the description touches",
            )


def _loads(s: Store | Reduce) -> list[Load]:
    written = [Load(s.buffer, s.indices)] if isinstance(s, Store) else list(s.targets)
    values = (s.value,) if isinstance(s, Store) else s.values
    return [*written, *(e for v in values for e in walk(v) if isinstance(e, Load))]


# Comparison of programs.


def check_same(name: str, description: Func, implementation: Func) -> None:
    """Raises Error unless implementation and description compute the same bits, in the interpreter, on `SEEDS` sets of operands."""
    for seed in range(SEEDS):
        operands = operands_for(description, seed)
        expected, got = ([a.copy() for a in operands] for _ in range(2))
        run_loop(description, expected)
        run_loop(implementation, got)
        _compare(name, "the implementation", description, operands, expected, got)


def run_on_machine(record: Instruction, implementation: Func) -> None:
    """Raises Error unless the compiled LLVM form computes the same bits as the implementation in the interpreter, on this machine."""
    from .api import compile

    native = compile(marked(record, implementation), threads=1)
    for seed in range(SEEDS):
        operands = operands_for(implementation, seed)
        expected, got = ([a.copy() for a in operands] for _ in range(2))
        run_loop(implementation, expected)
        at = next(n for n, b in enumerate(implementation.buffers) if implementation.role(b) != "in")
        if implementation.role(implementation.buffers[at]) == "out":
            got[at] = native(*(a for n, a in enumerate(got) if n != at))
        else:
            native(*got)
        _compare(record.name, "the LLVM form", implementation, operands, expected, got)


def operands_for(func: Func, seed: int) -> list[Array]:
    """Returns operands for a program: seed 0 has only edge cases, seeds 1 and 2 have some among random numbers, later seeds none."""
    rng = np.random.default_rng([15, seed])
    return [_numbers(b.dtype, tuple(int(str(e)) for e in b.shape), rng, 1.0 if seed == 0 else 0.25 * (seed < 3)) for b in func.buffers]


def _numbers(dtype: DType, shape: tuple[int, ...], rng: np.random.Generator, edges: float) -> Array:
    """Returns random numbers of a type, of which a fraction `edges` are edge cases (zeros, infinities, NaN, limits)."""
    if dtype.is_float:
        common = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0]
        rare = [np.inf, -np.inf, np.nan, 1e-40, -1e-45, 3e38, 65504.0, 1 + 2.0**-7]
        with np.errstate(over="ignore"):
            drawn = rng.choice(np.array([*common, *rare] if rng.random() < 0.5 else common), shape)
            return np.where(rng.random(shape) < edges, drawn, rng.standard_normal(shape)).astype(dtype.numpy())
    low, high = (0, 1) if dtype.kind == "b" else (dtype.min, dtype.max)
    values = np.array([n for n in (low, high, low + 1, high - 1, 0, 1) if low <= n <= high] + ([-1] if low < 0 else []), object)
    random = rng.integers(low, high, shape, dtype=np.dtype(dtype.long_name) if dtype.kind != "b" else np.int8, endpoint=True)
    chosen = rng.random(shape) < edges
    return np.where(chosen, rng.choice(values, shape).astype(random.dtype), random).astype(dtype.numpy())


def _compare(name: str, who: str, func: Func, operands: list[Array], expected: list[Array], got: list[Array]) -> None:
    """Raises Error at the first element whose bits differ (any NaN equals any other), with the operands that show it."""
    for b, want, actual in zip(func.buffers, expected, got, strict=True):
        bits = f"u{want.itemsize}"
        same = want.view(bits) == actual.view(bits)
        if b.dtype.is_float:
            same |= np.isnan(want.astype(np.float64)) & np.isnan(actual.astype(np.float64))
        if same.all():
            continue
        at = tuple(int(n) for n in np.argwhere(~same)[0])
        shown = f"{b.name}[{', '.join(map(str, at))}]"
        inputs = [f"`{x.name}` = {np.array2string(a, threshold=16)}" for x, a in zip(func.buffers, operands, strict=True)]
        raise Error(
            f"instruction `{name}`: {who} does not compute what it should",
            where=func.span,
            facts=[f"{shown} is {actual[at]!r}, not {want[at]!r}", *inputs],
        )


# LLVM and C forms.


def check_form(record: Instruction, func: Func) -> None:
    """Raises Error if a form names an unknown operand, or an operand or result of the LLVM form has the wrong size."""
    known = [b.name for b in func.buffers]
    for form in (record.llvm, record.c):
        for name, _ in operands_in(form):
            if name not in known:
                help_ = f"operands are {', '.join(known)}"
                raise Error(f"instruction `{record.name}`: its form uses `{{{name}}}`, which is no operand", facts=[form], help=help_)
    if not record.llvm and not record.c:
        return
    if not is_recognized(record):
        raise Error(
            f"instruction `{record.name}`: code generators would not recognize its implementation",
            help="it is loops around stores and lets, which use every operand: for j in vector(16): c[j] += a[j]",
        )
    if not record.llvm:
        return
    lines = lines_of(record.llvm)
    of = {b.name: b for b in func.buffers}
    for line in lines:
        for name, type_name in operands_in(line.text):
            _check_type(record.name, of[name], type_name, line.text)
    call = call_of(lines[-1].text)
    out = next(b for b in func.buffers if func.role(b) != "in")
    if call is not None and bits_of(call.result) != _bits(out):
        facts = [f"`{out.name}` has {_bits(out)} bits, {call.result} has {bits_of(call.result)}"]
        raise Error(f"instruction `{record.name}`: its LLVM form does not result in `{out.name}`", facts=facts)


def _check_type(name: str, b: Buffer, type_name: str, line: str) -> None:
    """Raises Error if the LLVM type of an operand is not a whole number of copies of it."""
    bits = bits_of(type_name) if type_name else _bits(b)
    if not bits or bits % _bits(b):
        whole = memory_type(b.dtype, size_of(b))
        facts = [f"`{b.name}` is {whole}, {_bits(b)} bits", line]
        raise Error(f"instruction `{name}`: operand `{b.name}` is no {type_name}, and no part of one", facts=facts)


def _bits(b: Buffer) -> int:
    return size_of(b) * 8 * b.dtype.itemsize


def check_with_llvm(record: Instruction, implementation: Func) -> None:
    """Raises Error unless LLVM parses the form and selects machine code for it; remembers success in the code cache."""
    from .codegen.llvm import generate

    base = {"x86_64": "llvm:x86-64", "aarch64": "llvm:generic", "wasm32": "wasm"}[record.arch]
    machine = find_target("+".join([base, *record.needs]))
    text = generate([marked(record, implementation)], machine).text
    what = f"instruction `{record.name}`: LLVM does not take its form"
    key = "\n".join([compiler_version(), repr(machine), text]).encode()
    if code_cache.get(key) is None:
        problem = problem_of(text, machine)
        if problem:
            help_ = "is the intrinsic spelled as in this LLVM, and are the features those that it needs?"
            raise Error(what, facts=[*lines_with(record.llvm), problem], help=help_)
        code_cache.put(key, b"selected")


def lines_with(form: str) -> list[str]:
    """Returns the lines of an instruction's LLVM form, as facts of an error."""
    return [line.text for line in lines_of(form)]


def marked(record: Instruction, implementation: Func) -> Func:
    """Returns the implementation as a program whose loop is marked to be compiled as the instruction."""
    loop = only_loop(implementation.body)
    assert isinstance(loop, For)
    body = loop.with_(annotations={**loop.annotations, INSTRUCTION: record.name})
    return implementation.with_(name="f", body=body, attrs=SCHEDULED)
