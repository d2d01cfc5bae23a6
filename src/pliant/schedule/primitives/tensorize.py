"""tensorize: replaces a tile of a computation by the tensor instruction that computes the same.

An instruction (`target/instructions.py`, or one that a user declared with `pliant.instruction`) has a description, which is compared with
the tile, and an implementation, which replaces it. Both are loop programs over the same parameters. A parameter stands for the elements of
one buffer that the tile touches; these must be in memory as the parameter's shape says.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple

from ...loop.analysis.nests import block_names, constant_extent, facts_at, fed_by, loop_facts
from ...loop.analysis.scope_facts import block_facts
from ...loop.buffer import Buffer, Load
from ...loop.parse import parse_module
from ...loop.passes.simplify_indices import Simplifier
from ...loop.stmt import INSTRUCTION, Block, For, Func, Reduce, Replacer, Seq, Stmt, Store, walk_stmts
from ...sym.expr import TRUE, Add, Const, Expr, Mul, Var, free_vars, substitute
from ...sym.facts import Facts
from ...sym.simplify import simplify
from ...target.instructions import Instruction, find_instruction, instruction_names
from ..cursor import Copier, Edit, Forward, compose
from ..dependence import linear
from ..errors import refuse
from ..invariants import legal
from .blockize import blockize


class Tile(NamedTuple):
    """A loop nest of constant extents around one store or reduction: what one execution of an instruction computes."""

    loops: tuple[For, ...]
    kinds: tuple[str, ...]  # for each loop, the kinds of iterators that it feeds
    stmt: Store | Reduce


def tile_of_instruction(name: str) -> Tile:
    """Return the loop nest that describes what the instruction of that name computes."""
    instruction = find_instruction(name)
    assert instruction is not None
    return tile_of(instruction)


@cache
def tile_of(instruction: Instruction) -> Tile:
    """Parse the description of an instruction; return the loop nest that says what it computes."""
    tile = inner_tile(parse_module(instruction.description)["f"].body)
    assert tile is not None
    return tile


@cache
def _implementation(instruction: Instruction) -> Func:
    """Return the program that replaces a tile; its loop is annotated if code generators have their own form of the instruction."""
    func = parse_module(instruction.implementation)["f"]
    if not instruction.llvm and not instruction.c:
        return func
    loop = func.body.body[0] if isinstance(func.body, Seq) else func.body
    assert isinstance(loop, For)
    return func.with_(body=loop.with_(annotations={**loop.annotations, INSTRUCTION: instruction.name}))


def inner_tile(s: Stmt) -> Tile | None:
    """Return the loops around the only block of a statement, and what the block computes.

    None if there is anything else, or if the block has an init or a predicate.
    """
    loops: list[For] = []
    while isinstance(s, For) or (isinstance(s, Seq) and len(s.body) == 1):
        if isinstance(s, For):
            loops.append(s)
        s = s.body if isinstance(s, For) else s.body[0]
    if not isinstance(s, Block) or s.init is not None or s.predicate is not TRUE:
        return None
    bound = Replacer({i.var: i.value for i in s.iters}).stmt(s.body)
    if not isinstance(bound, (Store, Reduce)):
        return None
    return Tile(tuple(loops), tuple("".join(sorted(fed_by(s, x))) for x in loops), bound)


@legal
def tensorize(func: Func, at: For | Block, instruction: str) -> tuple[Func, Forward]:
    """Replace a loop with everything inside it (or a block that blockize made of one) by a tensor instruction.

    The inner loops must have the extents and the order of the instruction's description, compute the same, and access memory with the
    strides that the description has. Raises a ScheduleError if these conditions do not hold.

        for i, j_0, k in grid(n, 4, 8):
            for j_1 in range(4):
                with block("c", "SSR", i, j_0 * 4 + j_1, k) as (vi, vj, vk):
                    with init():
                        c[vi, vj] = 0.0
                    c[vi, vj] = fma(a[vi, vk], b[vk, vj], c[vi, vj])

    -> `s.tensorize(j_1, "fma.f32x4")`

        for i, j_0, k in grid(n, 4, 8):
            with block("c_o", "SSR", i, j_0, k) as (vi_o, vj_o, vk_o):
                annotate(instruction="fma.f32x4")
                with init():
                    for j_1 in range(4):
                        with block("c_init", "SS", vi_o, vj_o * 4 + j_1) as (vi, vj):
                            c[vi, vj] = 0.0
                for j in vector(4):
                    c[vi_o, vj_o * 4 + j] = fma(a[vi_o, vk_o], b[vk_o, vj_o * 4 + j], c[vi_o, vj_o * 4 + j])
    """
    if isinstance(at, For):
        blockized, first = blockize(func, at)
        outer = first.made[0]
        assert isinstance(outer, Block)
        try:
            result, second = _replaced(blockized, outer, instruction)
        except _NoMatch as problem:
            raise problem.refusal(func, at, instruction) from None
        return result, replace(compose(first, second), made=second.made)
    try:
        return _replaced(func, at, instruction)
    except _NoMatch as problem:
        raise problem.refusal(func, at, instruction) from None


class _NoMatch(Exception):
    """Raised if a loop nest does not compute what an instruction does; the message is the reason."""

    def __init__(self, reason: str, help: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.help = help

    def refusal(self, func: Func, at: For | Block, name: str) -> Exception:
        """Return the error for users: the reason, the statement, and the description of the instruction."""
        shown = f"loop `{at.var.name}`" if isinstance(at, For) else f"block `{at.name}`"
        instruction = find_instruction(name)
        facts = []
        if instruction is not None:
            facts = ["it does: " + "; ".join(x.strip() for x in instruction.description.partition("-> None:\n")[2].splitlines())]
        return refuse(f"cannot replace {shown} by `{name}`: {self.reason}", func, (at, "here"), facts=facts, help=self.help)


def _replaced(func: Func, outer: Block, name: str) -> tuple[Func, Forward]:
    """Replace the body of a block by the implementation of an instruction; return the program and the Forward.

    Raises `_NoMatch` if the block computes something else, or there is no such instruction.
    """
    instruction = find_instruction(name)
    if instruction is None:
        raise _NoMatch("there is no such instruction", help=f"instructions are {', '.join(instruction_names())}")
    tile = inner_tile(outer.body)
    if tile is None or not tile.loops:
        raise _NoMatch("it is not loops around one block without init and predicate", help="decompose_reduction takes the init out")
    wanted = tile_of(instruction)
    extents, needed = ([constant_extent(func, x) for x in tile.loops], [_number(x) for x in wanted.loops])
    if extents != needed or tile.kinds != wanted.kinds:
        shown = ", ".join(f"{k} {e}" for e, k in zip(extents, tile.kinds, strict=True))
        expected = ", ".join(f"{k} {e}" for e, k in zip(needed, wanted.kinds, strict=True))
        raise _NoMatch(f"its loops are {shown}, the instruction's are {expected}", help="split and reorder the loops so that they agree")
    around = facts_at(func, outer)
    facts = block_facts(outer, around)
    for x in tile.loops:
        facts = loop_facts(facts, x)
    match = Match({d.var: p.var for d, p in zip(wanted.loops, tile.loops, strict=True)}, facts)
    problem = match.statement(wanted.stmt, tile.stmt)
    if problem:
        raise _NoMatch(problem)
    implementation = _implementation(instruction)
    body = Copier(block_names(func), "").copy(implementation.body)
    edit = Edit(func)
    params = {p.name: p for p in implementation.buffers}
    of = {params[d.buffer.name]: (d, p) for d, p in match.places.values()}
    new: Stmt = outer.with_(
        body=_Placed(of, match.vars).stmt(body), annotations={**outer.annotations, "instruction": name}, reads=None, writes=None
    )
    new = Simplifier(None).stmt(new, around)
    gone = [s for s in walk_stmts(outer.body) if isinstance(s, (For, Block))]
    edit.kill(gone, f"it became the instruction `{name}`")
    edit.replace(outer, new)
    edit.move(outer, new)
    return edit.done(made=(new,))


def _number(loop: For) -> int | None:
    return int(loop.stop.value) if isinstance(loop.stop, Const) else None


@dataclass
class Match:
    """Compares an instruction's description with a loop nest, and records which access of the program each access of it stands for."""

    vars: dict[Var, Var]  # description's loop variable -> tile's loop variable
    facts: Facts
    places: dict[Buffer, tuple[Load, Load]] = field(default_factory=dict)
    contiguous: bool = True  # True if accesses must have the strides of the description

    def statement(self, d: Stmt, p: Stmt) -> str:
        """Return why a statement differs from the description's; "" if it matches."""
        if isinstance(d, Reduce) and isinstance(p, Reduce):
            if d.combiner.name != p.combiner.name or len(d.values) != len(p.values) or len(p.targets) != 1:
                return f"it combines by {p.combiner.name}, the instruction by {d.combiner.name}"
            pairs = [(d.targets[0], p.targets[0]), *zip(d.values, p.values, strict=True)]
            return next((r for a, b in pairs if (r := self.expr(a, b))), "")
        if isinstance(d, Store) and isinstance(p, Store):
            return self.expr(Load(d.buffer, d.indices), Load(p.buffer, p.indices)) or self.expr(d.value, p.value)
        return "it is another kind of statement"

    def expr(self, d: Expr, p: Expr) -> str:
        """Return why an expression differs from the description's; "" if it matches. Sums and products match in either order."""
        if isinstance(d, Load) and isinstance(p, Load):
            return self.load(d, p)
        if type(d) is not type(p) or d.dtype is not p.dtype or len(d.args) != len(p.args) or (d.payload != p.payload and not d.args):
            return f"it computes {p}, the instruction {d}"
        if isinstance(d, Const):
            return "" if d is p else f"it computes {p}, the instruction {d}"
        first = ""
        for args in (p.args, p.args[::-1]) if isinstance(d, (Add, Mul)) else (p.args,):
            before = dict(self.places)
            problem = next((r for a, b in zip(d.args, args, strict=True) if (r := self.expr(a, b))), "")
            if not problem:
                return ""
            first = first or problem
            self.places = before
        return first

    def load(self, d: Load, p: Load) -> str:
        """Return why an access differs from the description's in dtype, loops or strides; record it and return "" if it matches."""
        if d.buffer.dtype is not p.buffer.dtype:
            return f"`{p.buffer.name}` holds {p.buffer.dtype}, the instruction takes {d.buffer.dtype}"
        if d.buffer in self.places and self.places[d.buffer][1] is not p:
            return f"`{p.buffer.name}` is used at several places"
        flat = simplify(p.buffer.flat_index(p.indices), self.facts)
        steps = simplify(d.buffer.flat_index(d.indices))
        for dv, pv in self.vars.items():
            step, wanted = linear(flat, pv), linear(steps, dv)
            if step is None or wanted is None or bool(step[0]) != bool(wanted[0]):
                return f"`{p.buffer.name}` is not indexed by the loops that the instruction's operand is"
            if self.contiguous and step[0] != wanted[0]:
                want = wanted[0].get((), 0)
                return f"neighbors of `{p.buffer.name}` in loop `{pv.name}` do not lie {want} apart in memory, as the instruction wants"
        self.places[d.buffer] = (d, p)
        return ""


class _Placed(Replacer):
    """Rewrites an instruction's implementation to access the buffers of the program in place of its parameters."""

    __slots__ = ("of", "vars_of")

    def __init__(self, of: dict[Buffer, tuple[Load, Load]], vars_of: dict[Var, Var]) -> None:
        super().__init__(loads=self.place)
        self.of = of
        self.vars_of = vars_of

    def place(self, e: Load) -> Load:
        """Return the element of the program that an element of a parameter stands for."""
        if e.buffer not in self.of:
            return e
        d, p = self.of[e.buffer]
        values: dict[Var, Expr] = {self.vars_of[v]: at for v, at in zip(d.indices, e.indices, strict=True) if isinstance(v, Var)}
        fixed = {v for v, at in values.items() if isinstance(at, Const)}
        moved = [(i, substitute(i, values)) for i in p.indices]
        return Load(p.buffer, tuple(simplify(new) if free_vars(i) & fixed else new for i, new in moved))

    def target(self, e: Load) -> Load:
        """Return the element of the program's buffer that a store of the implementation writes."""
        return self.place(e)
