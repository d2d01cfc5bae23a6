"""Queries about loop nests that schedule primitives use: loops around a statement, facts at it, readers and writers of a buffer.

loops_above(func, block)            # outermost first
facts_at(func, block)               # ranges of loop variables, conditions of ifs, dims
accesses(block)                     # loads and stores over the block's iterators
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from ...support.memos import remembered
from ...support.record import dataclass
from ...sym.expr import Const, Dim, Expr, Not, Select, Var, free_vars, substitute
from ...sym.facts import Facts
from ...sym.hash_consing import memo_of
from ...sym.poly import Poly, add, poly_of, to_expr
from ...sym.simplify import simplify
from ...sym.walk import walk
from ..buffer import Buffer, Load
from ..stmt import Alloc, Block, Call, For, Func, If, IterKind, Let, Reduce, Stmt, Store, View, children, exprs, walk_stmts
from .scope_facts import base_facts as base_facts  # part of this module's interface
from .scope_facts import block_facts


@dataclass(frozen=True, slots=True)
class Access:
    """A record of one element that a block reads or writes, indexed by the block's iterators."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    write: bool
    block: Block

    def over_loops(self) -> tuple[Expr, ...]:
        """The indices over the surrounding loop variables, with the iterators replaced by their values."""
        values = {i.var: i.value for i in self.block.iters}
        return tuple(substitute(e, values) for e in self.indices)


@dataclass(frozen=True, slots=True)
class Index:
    """Lookup tables of one program: parents of statements, allocations of buffers, blocks by name."""

    parents: dict[Stmt, Stmt]  # statement -> the statement directly around it
    allocations: dict[Buffer, Alloc]
    blocks: dict[str, Block]  # by name, nested blocks included
    all_blocks: tuple[Block, ...]  # in order of execution, outer before inner
    has_views: bool
    parallel: tuple[For, ...]
    loads_in_control: bool  # True if the range of a loop, a condition, a let or a shape reads a buffer


@remembered(maxsize=16)
def index(root: Stmt) -> Index:
    """Returns the lookup tables for a program with this body (memoized)."""
    above: dict[Stmt, Stmt] = {}
    allocations: dict[Buffer, Alloc] = {}
    named: dict[str, Block] = {}
    every: list[Block] = []
    views = control = False
    threads: list[For] = []
    for s in walk_stmts(root):
        kind = type(s)
        if kind is Alloc:
            allocations[s.buffer] = s  # type: ignore[attr-defined, assignment]
            control = control or bool(loaded(*exprs(s)))
        elif kind is View:
            views = True
        else:
            if kind is Block:
                every.append(s)  # type: ignore[arg-type]
                named.setdefault(s.name, s)  # type: ignore[attr-defined, arg-type]
            elif kind is For:
                if s.kind == "parallel":  # type: ignore[attr-defined]
                    threads.append(s)  # type: ignore[arg-type]
                control = control or bool(loaded(s.start, s.stop))  # type: ignore[attr-defined]
            elif kind is If or kind is Let:
                control = control or bool(loaded(*exprs(s)))
            for child in children(s):
                above[child] = s
    return Index(above, allocations, named, tuple(every), views, tuple(threads), control)


def path_to(func: Func, s: Stmt) -> list[Stmt]:
    """The statements around `s`, outermost first, without `s`; empty for the body itself."""
    above = index(func.body).parents
    path: list[Stmt] = []
    while s is not func.body and s in above:
        s = above[s]
        path.append(s)
    return path[::-1]


def loops_above(func: Func, s: Stmt) -> list[For]:
    """The loops around `s`, outermost first; only up to the nearest enclosing block, because a block hides the loops around it."""
    loops: list[For] = []
    for x in reversed(path_to(func, s)):
        if isinstance(x, Block):
            break
        if isinstance(x, For):
            loops.append(x)
    return loops[::-1]


def block_around(func: Func, s: Stmt) -> Block | None:
    """The innermost block around `s`, or None."""
    return next((x for x in reversed(path_to(func, s)) if isinstance(x, Block)), None)


def blocks(s: Stmt) -> list[Block]:
    """Returns the blocks in `s` that are not inside of other blocks, in order of execution."""
    return list(_blocks(s))


@remembered(maxsize=4096)
def _blocks(s: Stmt) -> tuple[Block, ...]:
    """Returns the blocks in `s` that are not inside of other blocks, as a tuple (memoized)."""
    if isinstance(s, Block):
        return (s,)
    return tuple(b for child in children(s) for b in _blocks(child))


def loops_in(s: Stmt) -> list[For]:
    """The loops of `s` that are not inside of blocks, outer before inner."""
    if isinstance(s, Block):
        return []
    return [x for child in children(s) for x in loops_in(child)] if not isinstance(s, For) else [s, *loops_in(s.body)]


def facts_at(func: Func, s: Stmt) -> Facts:
    """Returns the facts that hold at `s`: dims, the ranges of surrounding loops, and the conditions around it."""
    facts = base_facts(func)
    path = [*path_to(func, s), s]
    for outer, inner in itertools.pairwise(path):
        if isinstance(outer, For):
            facts = loop_facts(facts, outer)
        elif isinstance(outer, If):
            facts = facts.with_condition(outer.cond if inner is outer.then else Not(outer.cond))
        elif isinstance(outer, Block):
            facts = block_facts(outer, facts)
    return facts


def loop_facts(facts: Facts, loop: For) -> Facts:
    """The facts and the range of a loop's variable; an end with a select is left out, because case splits cost more than they prove."""
    return facts.with_range(loop.var, loop.start, None if has_cases(loop.stop) else loop.stop - 1)


def has_cases(e: Expr) -> bool:
    """True if an expression contains a select (memoized)."""
    memo = memo_of(e)
    answer = memo.get("has_cases")
    if answer is None:
        answer = memo["has_cases"] = isinstance(e, Select) or any(has_cases(a) for a in e.args)
    return bool(answer)


def constant_extent(func: Func, loop: For) -> int | None:
    """Returns the number of iterations of a loop if it is a constant under the facts that hold there, else None."""
    e = simplify(loop.extent, facts_at(func, loop))
    return max(0, int(e.value)) if isinstance(e, Const) else None


def at_most_once(func: Func, loop: For) -> bool:
    """True if a loop provably has at most one iteration."""
    extent = constant_extent(func, loop)
    return extent is not None and extent <= 1


def bound_value(value: Expr, facts: Facts) -> Expr:
    """The simplified value of an iterator, in which variables of loops of at most one iteration stay visible.

        for i_0, i_1 in grid(8, 1): i_0 * 1 + i_1     is i_0 + i_1, not i_0

    The value shows which loops feed the iterator. A loop that feeds no reduction iterator is around the init of its block: if it never
    runs, the init must not run either.
    """
    ranges = {v: facts.range_of(v) for v in free_vars(value) if not isinstance(v, Dim)}
    empty: dict[Var, Expr] = {v: Var(v.name) for v, (low, high) in ranges.items() if low > high}
    if empty:  # anything can be proved inside of a loop that never runs, so an unconstrained variable takes its place
        back: dict[Var, Expr] = {free: v for v, free in empty.items() if isinstance(free, Var)}
        return substitute(bound_value(substitute(value, empty), facts), back)
    units = {v: low for v, (low, high) in ranges.items() if low == high}
    if not units:
        return simplify(value, facts)
    terms: Poly = poly_of(simplify(value, facts))
    for m, c in poly_of(value).items():
        unit = [v for v in m if v in units]
        if len(unit) == 1:
            rest, at = tuple(a for a in m if a is not unit[0]), units[unit[0]]
            terms = add(add(terms, {m: c}), {rest: c * at} if at else {}, -1)
    return to_expr(terms, value.dtype)


def predicate_over_loops(block: Block) -> Expr:
    """Returns a block's predicate with its iterators replaced by the expressions of loop variables that they are bound to."""
    return substitute(block.predicate, {i.var: i.value for i in block.iters})


def fed_by(block: Block, loop: For) -> set[IterKind]:
    """Returns the kinds (S, R, O) of those iterators of a block whose values use the loop's variable."""
    return {i.kind for i in block.iters if loop.var in free_vars(i.value)}


def repeats(func: Func, block: Block, loop: For) -> bool:
    """True if the iterations of a loop around a block only repeat the same instances."""
    return not fed_by(block, loop) and constant_extent(func, loop) not in (0, 1)


def accesses(block: Block) -> tuple[Access, ...]:
    """The accesses of a block and its init, over its iterators and the loops inside of it."""
    direct = tuple(_accesses(block))
    inner = {i.var: i.value for s in walk_stmts(block) if isinstance(s, Block) and s is not block for i in s.iters}
    return direct if not inner else tuple(Access(a.buffer, _settled(a.indices, inner), a.write, block) for a in direct)


def _settled(indices: tuple[Expr, ...], values: dict[Var, Expr]) -> tuple[Expr, ...]:
    """Returns indices with the iterators of nested blocks replaced by their values, at all depths."""
    while any(not free_vars(e).isdisjoint(values) for e in indices):
        indices = tuple(substitute(e, values) for e in indices)
    return indices


def bound_inside(block: Block) -> set[Var]:
    """Returns the variables of the loops and lets inside of a block."""
    return {s.var for s in walk_stmts(block) if isinstance(s, (For, Let))}


def _accesses(block: Block) -> Iterator[Access]:
    """Yields the element accesses of a block and of the blocks nested in it, with indices as they are written."""
    for s in walk_stmts(block):
        match s:
            case Store():
                yield Access(s.buffer, s.indices, True, block)
            case Reduce():
                for t in s.targets:
                    yield Access(t.buffer, t.indices, True, block)
                    yield Access(t.buffer, t.indices, False, block)
            case Call():
                for a in s.args:
                    if isinstance(a, Buffer):  # a callee may access any element
                        yield Access(a, (), True, block)
        for e in exprs(s) if s is not block else (block.predicate,):
            for node in walk(e):
                if isinstance(node, Load):
                    yield Access(node.buffer, node.indices, False, block)


@remembered(maxsize=16)
def _users(root: Stmt) -> tuple[dict[Buffer, list[Block]], dict[Buffer, list[Block]]]:
    """Returns for each buffer the blocks that read it, and the blocks that write it, in order of execution.

    The read of its own target that a reduction implies does not count. A call reads and writes each buffer that is passed to it.
    """
    reading: dict[Buffer, dict[Block, None]] = {}
    writing: dict[Buffer, dict[Block, None]] = {}
    for b in blocks(root):
        for a in _outside_reads(b):
            reading.setdefault(a.buffer, {}).setdefault(b)
        for a in accesses(b):
            if a.write:
                writing.setdefault(a.buffer, {}).setdefault(b)
    return {k: list(v) for k, v in reading.items()}, {k: list(v) for k, v in writing.items()}


def readers(func: Func, buffer: Buffer) -> list[Block]:
    """The blocks that read a buffer, in order; a reduction that reads its own accumulator does not count."""
    return _users(func.body)[0].get(buffer, [])


def writers(func: Func, buffer: Buffer) -> list[Block]:
    """Returns the blocks that write a buffer, in order of execution."""
    return _users(func.body)[1].get(buffer, [])


def _outside_reads(block: Block) -> Iterator[Access]:
    """Yields the reads of a block, without the read of its own target that a reduction implies."""
    for s in walk_stmts(block):
        for e in exprs(s) if s is not block else (block.predicate,):
            for node in walk(e):
                if isinstance(node, Load):
                    yield Access(node.buffer, node.indices, False, block)
        if isinstance(s, Call):
            for a in s.args:
                if isinstance(a, Buffer):
                    yield Access(a, (), False, block)


@dataclass(frozen=True, slots=True)
class Bare:
    """The buffers that statements outside of blocks use (`reads`, which includes all they write), and those that they write (`writes`).

    A viewed buffer counts as written, because views alias it.
    """

    reads: frozenset[Buffer]
    writes: frozenset[Buffer]


def bare_uses(func: Func) -> Bare:
    """The buffers that statements outside of blocks use, and those that have views anywhere."""
    reads: set[Buffer] = set()
    writes: set[Buffer] = set()
    stack = [func.body]
    while stack:
        s = stack.pop()
        reads.update(node.buffer for e in exprs(s) for node in walk(e) if isinstance(node, Load))
        match s:
            case Block():
                continue
            case Store():
                writes.add(s.buffer)
            case Reduce():
                writes.update(t.buffer for t in s.targets)
                reads.update(t.buffer for t in s.targets)
            case View():
                writes.update((s.buffer, s.source))
            case Call():
                writes.update(a for a in s.args if isinstance(a, Buffer))
        stack.extend(children(s))
    for s in walk_stmts(func.body):
        if isinstance(s, View):  # inside of blocks too
            writes.update((s.buffer, s.source))
    return Bare(frozenset(reads | writes), frozenset(writes))


def unseen_use(func: Func, around: Stmt, buffer: Buffer, *, reads: bool = True) -> str:
    """Returns why the blocks of `around` do not show all uses of a buffer (without `reads`: all writes), or "" if they do."""
    views = [s for s in walk_stmts(func.body) if isinstance(s, View)] if index(func.body).has_views else []
    if any(buffer in (s.buffer, s.source) for s in views):
        return f"`{buffer.name}` has another name: the program makes views of it"
    if _bare_use(around, buffer, reads):
        return f"a statement outside of blocks {'uses' if reads else 'writes'} `{buffer.name}`"
    return ""


def _bare_use(s: Stmt, buffer: Buffer, reads: bool) -> bool:
    """True if a statement outside of blocks uses the buffer; without `reads`, if one writes it or passes it to a call."""
    if isinstance(s, Block):
        return False
    if reads and any(isinstance(node, Load) and node.buffer is buffer for e in exprs(s) for node in walk(e)):
        return True
    match s:
        case Store() if s.buffer is buffer:
            return True
        case Reduce() if any(t.buffer is buffer for t in s.targets):
            return True
        case Call() if buffer in s.args:
            return True
    return any(_bare_use(child, buffer, reads) for child in children(s))


def control_loads(s: Stmt) -> set[Buffer]:
    """Returns the buffers that ranges of loops, conditions, lets and shapes in `s` read, outside of blocks."""
    if isinstance(s, Block):
        return set()
    own = loaded(*exprs(s)) if isinstance(s, (For, If, Let, Alloc)) else set()
    return own.union(*map(control_loads, children(s)))


def loaded(*parts: Expr) -> set[Buffer]:
    """Returns the buffers that the expressions load from."""
    return {node.buffer for e in parts for node in walk(e) if isinstance(node, Load)}


def allocation(func: Func, buffer: Buffer) -> Alloc | None:
    """The statement that allocates a buffer, or None for a parameter."""
    return index(func.body).allocations.get(buffer)


def visible(func: Func, buffer: Buffer, at: Stmt) -> bool:
    """True if a buffer is in scope at `at`."""
    alloc = allocation(func, buffer)
    if alloc is None:
        return True
    around = path_to(func, alloc)
    return not around or around[-1] in path_to(func, at)


def block_names(func: Func) -> set[str]:
    """Returns the names of all blocks of a program."""
    return set(index(func.body).blocks)


def find_block(func: Func, name: str) -> Block:
    """Return the block of that name, which must exist."""
    return index(func.body).blocks[name]


def has_block(func: Func, name: str) -> bool:
    """True if there is a block of that name."""
    return name in index(func.body).blocks


def plain_iters(indices: tuple[Expr, ...], block: Block) -> list[Var] | None:
    """The iterators that the indices are, if each index is a different iterator of the block; else None."""
    own = {i.var for i in block.iters}
    iters = [e for e in indices if isinstance(e, Var) and e in own]
    return iters if len(iters) == len(indices) == len(set(iters)) else None
