"""Compiled kernels by content: what one program's kernel was scheduled and compiled to serves equal kernels of other programs.

    store = KernelStore(options)
    found = store.find(func, text, machine)                     # None, or the facts of the scheduled kernel and its code
    store.put(func, text, machine, facts, code)                 # once the program around it is compiled

The key is the whole kernel before it is scheduled, in canonical form, with the target, the compiler's version and the options. Names of
float tensors are not in it: they differ between nets, and code does not depend on them. Names of dims, loops and integer tensors are, and
the order in which variables were made, because the terms of formulas are sorted by these. So a kernel from the cache has the bytes
that a compilation would give. Kernels whose reasons speak of parameters are not kept. Weights play no part: they are arguments.

The code cache compares the whole key, checks a sum over the payload, and bounds the size; a payload that does not fit is a miss.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from ..codegen.kernel_code import KernelCode
from ..dtype import ALL, DType, i64
from ..loop.stmt import Block, Func, walk_stmts
from ..loop.structural import names_of
from ..runtime import code_cache
from ..runtime.interface import Choice
from ..support.compiler_version import compiler_version
from ..support.record import dataclass
from ..support.settings import Settings
from ..sym import expr as E
from ..sym.expr import Const, Expr, Var
from ..sym.walk import walk

_MOST = 100_000  # nodes of formulas in an entry
_LENGTH = struct.Struct("<Q")  # bytes of the description, which stands before the object
_HEADS: dict[str, Any] = {c.__name__: c for c in (E.Add, E.Sub, E.Mul, E.FloorDiv, E.FloorMod, E.Min, E.Max)}
_QUOTED = re.compile(r"`([^`]*)`")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Scratch:
    """A parameter that scheduling added to a kernel: memory that the host program gives."""

    name: str
    dtype: DType
    shape: tuple[Expr, ...]  # over the dims and scalars of the kernel


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """What a program needs to know of a scheduled kernel to call it and to describe it."""

    scratch: tuple[Scratch, ...]
    why: str  # the reason of the schedule rule
    choices: tuple[Choice, ...]


class KernelStore:
    """The place of kernels in the code cache, for one compilation; `options` is what schedules depend on besides kernel and target."""

    def __init__(self, options: str) -> None:
        self.options = options

    def find(self, func: Func, text: str, machine: str) -> tuple[KernelFacts, KernelCode] | None:
        """Returns the facts and the code of a kernel; None if they are not there, or damaged.

        `text` is the canonical text of `func`, `machine` the one of the target and the assembly.
        """
        data = code_cache.get(self._key(func, text, machine))
        try:
            return None if data is None else _read(data, (*func.symbols, *func.scalars))
        except (ValueError, KeyError, TypeError, IndexError, struct.error, RecursionError):
            return None

    def put(self, func: Func, text: str, machine: str, facts: KernelFacts, code: KernelCode) -> None:
        """Keeps a kernel, unless what is said of it contains names of its parameters."""
        data = _written(facts, code, (*func.symbols, *func.scalars))
        if data is not None and not _speaks_of_parameters(func, facts):
            code_cache.put(self._key(func, text, machine), data)

    def _key(self, func: Func, text: str, machine: str) -> bytes:
        variables, tensors = names_of(func)
        ages = {uid: n for n, uid in enumerate(sorted(v.payload[1] for v in variables))}
        names = [(v.name, ages[v.payload[1]]) for v in variables], [b.name for b in tensors if not b.dtype.is_float]
        return "\n".join(["kernel", compiler_version(), machine, self.options, func.name, repr(names), text]).encode()


def kernel_store(options: str, settings: Settings) -> KernelStore | None:
    """Returns the cache of kernels; None if settings ask to show or verify kernels, because those in the cache have no body."""
    return None if settings.show or settings.verify else KernelStore(options)


def _speaks_of_parameters(func: Func, facts: KernelFacts) -> bool:
    """Returns True if a text has between backquotes the name of a tensor parameter that is not the name of a block as well."""
    texts = [facts.why, *(text for c in facts.choices for text in (c.value, c.domain, c.why))]
    blocks = {s.name for s in walk_stmts(func.body) if isinstance(s, Block)}
    quoted = {word for text in texts for part in _QUOTED.findall(text) for word in _WORD.findall(part)}
    return not quoted.isdisjoint({b.name for b in func.buffers} - blocks)


def _written(facts: KernelFacts, code: KernelCode, variables: Sequence[Var]) -> bytes | None:
    """Returns an entry of the cache; None if a size is a formula that entries cannot contain."""
    nodes = _nodes((e for s in facts.scratch for e in s.shape), variables)
    if nodes is None:
        return None
    place = {e: n for n, e in enumerate(nodes)}
    described = {
        "formulas": [_node(e, place, variables) for e in nodes],
        "scratch": [[s.name, s.dtype.name, [place[e] for e in s.shape]] for s in facts.scratch],
        "why": facts.why,
        "choices": facts.choices,
        "code": [code.symbol, code.signature, code.parallel, code.functions, code.declarations],
    }
    head = json.dumps(described).encode()
    return _LENGTH.pack(len(head)) + head + code.object


def _nodes(roots: Iterable[Expr], variables: Sequence[Var]) -> list[Expr] | None:
    """Returns all nodes of formulas, operands first; None if one is of a kind that entries do not have."""
    nodes = dict.fromkeys(n for root in roots for n in walk(root))
    ordered: dict[Expr, None] = {}
    for n in nodes:
        if not (type(n).__name__ in _HEADS or isinstance(n, Const) or n in variables) or n.dtype is not i64:
            return None
    pending = list(nodes)
    while pending:
        n = pending[-1]
        missing = [a for a in n.args if a not in ordered]
        if missing:
            pending += missing
        else:
            ordered.setdefault(pending.pop())
    return list(ordered) if len(ordered) <= _MOST else None


def _node(e: Expr, place: dict[Expr, int], variables: Sequence[Var]) -> list[Any]:
    if isinstance(e, Const):
        return ["=", e.value]
    if isinstance(e, Var):
        return ["?", variables.index(e)]
    return [type(e).__name__, *(place[a] for a in e.args)]


def _read(data: bytes, variables: Sequence[Var]) -> tuple[KernelFacts, KernelCode]:
    """Returns the contents of an entry; raises ValueError or what Python raises if it is damaged."""
    (length,) = _LENGTH.unpack_from(data)
    head = json.loads(data[_LENGTH.size : _LENGTH.size + length])
    formulas: list[Expr] = []
    for kind, *operands in head["formulas"]:
        places = [_number(n) for n in operands] if kind != "=" else operands
        if kind == "=":
            formulas.append(Const(operands[0] if type(operands[0]) is int else _refuse(), i64))
        elif kind == "?":
            formulas.append(variables[places[0]])
        else:
            left, right = (formulas[n] for n in places)
            formulas.append(_HEADS[kind](left, right))
    scratch = tuple(Scratch(_text(name), ALL[dtype], tuple(formulas[_number(n)] for n in at)) for name, dtype, at in head["scratch"])
    choices = tuple(
        Choice(_text(name), _text(value), _text(domain), _text(why), reorders is True)
        for name, value, domain, why, reorders in head["choices"]
    )
    symbol, signature, parallel, functions, declarations = head["code"]
    pairs = tuple((_text(name), _text(line)) for name, line in declarations)
    code = KernelCode(_text(symbol), _text(signature), parallel is True, tuple(map(_text, functions)), pairs, data[_LENGTH.size + length :])
    if not code.object and not code.functions:
        _refuse()
    return KernelFacts(scratch, _text(head["why"]), choices), code


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _refuse()


def _number(value: Any) -> int:
    return value if type(value) is int and value >= 0 else _refuse()


def _refuse() -> Any:
    raise ValueError("this is no entry of the kernel cache")
