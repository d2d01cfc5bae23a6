"""Matches loops that `tensorize` marked with the instruction's implementation, to find the operands of a tensor instruction.

`tensorize` replaces a tile by the implementation of an instruction over the program's buffers, and marks its loop:

    for j in vector(4, instruction="mine.dot"):              # implementation:  for j in vector(4):
        c[i, 4 * v + j] += a[i, k] * b[v, k, j]              #                      c[j] += a[0] * b[j]

Until code generation it is a loop like any other, which every pass and the interpreter understand. A code generator that has a form of
the instruction for its target asks here where the operands begin: `c` at c[i, 4 * v], `a` at a[i, k], `b` at b[v, k, 0]. The result is None
if passes changed the loop, or if operands are not laid out as the parameters; then the loop itself is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from ..loop.buffer import Buffer, Load
from ..loop.lowering import Machine, lower_func
from ..loop.parse import parse_module
from ..loop.passes.without_fma import without_fma
from ..loop.stmt import INSTRUCTION, For, Func, Let, Reduce, Seq, Stmt, Store
from ..support.record import dataclass
from ..sym.expr import Const, Expr, Var, free_vars, substitute
from ..sym.poly import Poly, add, multiply, poly_of
from ..target import Target
from ..target.instructions import Instruction, find_instruction

Flat = Callable[[tuple[Expr, ...], tuple[Expr, ...]], Poly]  # (indices, strides) -> offset of an element


@dataclass(frozen=True, slots=True)
class Place:
    """A record of the operand for an instruction's parameter: a buffer of the program, and the element offset at which it begins."""

    parameter: Buffer
    written: bool
    buffer: Buffer
    start: Poly


def instruction_at(loop: For, target: Target) -> Instruction | None:
    """Return the instruction that a loop is marked with, or None if there is none or the target lacks it."""
    name = loop.annotations.get(INSTRUCTION)
    instruction = find_instruction(name) if isinstance(name, str) else None
    return instruction if instruction is not None and instruction.is_on(target) else None


@cache
def implementations(instruction: Instruction, expanded: bool) -> tuple[Func, ...]:
    """Return the implementations of an instruction to compare with, after the same passes as the programs that contain it.

    There are two if it calls math functions: for machines without fma, a program was rewritten before it was scheduled. `expanded` says
    whether math functions are expanded in them.
    """
    func = parse_module(instruction.implementation)["f"]
    passes = () if expanded else ("expand_math",)
    return tuple(lower_func(f, Machine(), without=passes) for f in dict.fromkeys((func, without_fma(func))))


def places_of(loop: For, instruction: Instruction, flat: Flat | None = None, expanded: bool = True) -> list[Place] | None:
    """Return the operands of a loop's instruction in the order of its parameters, or None if the loop does not match.

    `expanded` says whether math functions are expanded in the loop.
    """
    for func in implementations(instruction, expanded):
        match = _Match(func, flat or _flat)
        if match.stmt(only_loop(func.body), loop) and all(b in match.places for b in func.buffers):
            return [match.places[b] for b in func.buffers]
    return None


def is_recognized(instruction: Instruction) -> bool:
    """True if an instruction matches its own implementation; false if that has statements that the matcher does not know."""
    (func, *_) = implementations(instruction, True)
    loop = only_loop(func.body)
    return isinstance(loop, For) and places_of(loop, instruction) is not None


def _flat(indices: tuple[Expr, ...], strides: tuple[Expr, ...]) -> Poly:
    total: Poly = {}
    for i, n in zip(indices, strides, strict=True):
        total = add(total, multiply(poly_of(i), poly_of(n)))
    return total


def only_loop(s: Stmt) -> Stmt:
    """Return the only statement of a sequence; a statement that is no such sequence is returned unchanged."""
    return s.body[0] if isinstance(s, Seq) and len(s.body) == 1 else s


class _Match:
    """Compares an instruction's implementation with a loop of a program, and records which buffer each parameter stands for."""

    def __init__(self, func: Func, flat: Flat) -> None:
        self.func = func
        self.flat = flat
        self.vars: dict[Var, Expr] = {}
        self.places: dict[Buffer, Place] = {}

    def stmt(self, d: Stmt, p: Stmt) -> bool:
        """True if the program's statement `p` matches the implementation's `d`."""
        if isinstance(d, For) and isinstance(p, For):
            self.vars[d.var] = p.var
            ends = ((d.start, p.start), (d.stop, p.stop))
            return d.kind == p.kind and all(self.expr(a, b) for a, b in ends) and self.stmt(d.body, p.body)
        if isinstance(d, Seq) and isinstance(p, Seq):
            return len(d.body) == len(p.body) and all(map(self.stmt, d.body, p.body))
        if isinstance(d, Store) and isinstance(p, Store):
            return self.load(Load(d.buffer, d.indices), Load(p.buffer, p.indices)) and self.expr(d.value, p.value)
        if isinstance(d, Reduce) and isinstance(p, Reduce):
            same = d.combiner.name == p.combiner.name and not d.combiner.result
            return same and all(map(self.load, d.targets, p.targets)) and all(map(self.expr, d.values, p.values))
        if isinstance(d, Let) and isinstance(p, Let):
            self.vars[d.var] = p.var
            return self.expr(d.value, p.value)
        return False

    def expr(self, d: Expr, p: Expr) -> bool:
        """True if the program's expression `p` matches the implementation's `d`."""
        if isinstance(d, Load) and isinstance(p, Load):
            return self.load(d, p)
        if isinstance(d, Var):
            return self.vars.get(d) is p
        if isinstance(d, Const):
            return d is p
        return type(d) is type(p) and d.dtype is p.dtype and len(d.args) == len(p.args) and all(map(self.expr, d.args, p.args))

    def load(self, d: Load, p: Load) -> bool:
        """True if `p` is the element `d` of a parameter: all accesses to one parameter must agree on where its operand begins."""
        if d.buffer not in self.func.buffers or d.buffer.dtype is not p.buffer.dtype:
            return False
        within = poly_of(substitute(d.buffer.flat_index(d.indices), self.vars))
        start = add(self.flat(p.indices, p.buffer.element_strides()), within, -1)
        if any(not free_vars(atom).isdisjoint(self.own_vars()) for monomial in start for atom in monomial):
            return False
        written = self.func.role(d.buffer) != "in"
        known = self.places.setdefault(d.buffer, Place(d.buffer, written, p.buffer, start))
        return known.buffer is p.buffer and known.start == start

    def own_vars(self) -> set[Var]:
        """Return the variables of the loops that the instruction replaces; where an operand begins must not depend on them."""
        return {v for v in self.vars.values() if isinstance(v, Var)}
