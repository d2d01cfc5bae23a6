"""Sizes that a loop program uses only as a whole become symbols of its own.

    def f(x: f32[(height + 1) // 2, 8], …)      ->      def f(x: f32[height, 8], …)      # called with (height + 1) // 2

What is known of the size is known of the symbol; nobody can ask for more, because the variables inside stand nowhere else. Proofs about
such programs are short, and layers that differ only in where their sizes come from are one program.

    named, sizes = name_dims(func)              # sizes: what each new symbol stands for

`name_sizes` does so for the programs of a function, before anything is asked about them that has to be proven.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...dtype import i64
from ...graph import node as g
from ...loop.buffer import Buffer
from ...loop.stmt import Alloc, Func, Param, Replacer, Stmt, View, exprs, walk_stmts
from ...loop.structural import structural_hash
from ...sym.bounds import int_range, multiple
from ...sym.expr import DIM_MAX, Const, Dim, Expr, Var, free_vars, substitute, walk
from ...sym.facts import Facts
from ..callee import callee_of, func_of, map_calls


def name_sizes(function: g.Function) -> g.Function:
    """The function with symbols for the sizes in its loop programs; programs that are alike then are one."""
    nodes = map_calls(function.nodes, _Programs().call)
    return function if all(a is b for a, b in zip(nodes, function.nodes, strict=True)) else function.with_(nodes=nodes)


class _Programs:
    """The programs of a function, by structure."""

    def __init__(self) -> None:
        self.named: dict[Func, tuple[Func, tuple[Expr, ...]]] = {}  # what stands for a program, and the values of its symbols
        self.alike: dict[bytes, Func] = {}

    def call(self, n: g.CallLoop) -> g.Node:
        """The call of the program that stands for all of its like."""
        func = func_of(n.callee)
        if func.attrs.scheduled:
            return n
        if func not in self.named:
            named, sizes = name_dims(func)
            one = self.alike.setdefault(structural_hash(named), named)
            self.named[func] = one, tuple(sizes.get(v, v) for v in named.symbols)
        one, values = self.named[func]
        if one is func:
            return n
        given = dict(zip(func.symbols, n.dims, strict=True))
        return n.with_(callee=callee_of(one), dims=tuple(substitute(e, given) for e in values))


def name_dims(func: Func) -> tuple[Func, dict[Var, Expr]]:
    """`func` with a symbol for each size that it uses only as a whole, and what these stand for; itself where there is none."""
    found = _sizes(func)
    if not found:
        return func, {}
    packed = any(b.dtype.bits < 8 for b in func.buffers)  # whose rows are whole bytes
    symbols = {e: _symbol(e, packed) for e in found}
    return with_symbols(func, symbols), {v: e for e, v in symbols.items()}


def with_symbols(func: Func, symbols: Mapping[Expr, Expr]) -> Func:
    """`func` with symbols, or what is made of them, in the place of these sizes."""
    return WithSymbols(symbols).func(func)


def _sizes(func: Func) -> list[Expr]:
    """The largest such sizes, none of them part of another one."""
    symbols = set(func.symbols)
    shapes = [e for b in func.buffers for e in (*b.shape, *(b.strides or ()))]
    if not any(e.args for e in shapes):
        return []
    users = _users([*shapes, *(e for s in walk_stmts(func.body) for e in exprs(s))])
    facts = Facts()
    chosen: list[Expr] = []
    inside: set[Expr] = set()
    for e in reversed([node for shape in dict.fromkeys(shapes) for node in walk(shape)]):
        if e in inside or not e.args or not free_vars(e) or not free_vars(e) <= symbols:
            continue
        below = set(walk(e))
        if all(users[q] <= below for q in below if q is not e and not isinstance(q, Const)) and _is_dim(e, facts):
            chosen.append(e)
            inside |= below
    return list(dict.fromkeys(chosen))[::-1]


def _users(roots: list[Expr]) -> dict[Expr, set[Expr | None]]:
    """The nodes that each node is an operand of; None where it stands for itself."""
    users: dict[Expr, set[Expr | None]] = {}
    for root in dict.fromkeys(roots):
        stack = [] if root in users else [root]
        users.setdefault(root, set()).add(None)
        while stack:
            node = stack.pop()
            for a in node.args:
                if a not in users:
                    users[a] = set()
                    stack.append(a)
                users[a].add(node)
    return users


def _is_dim(e: Expr, facts: Facts) -> bool:
    lo, hi = int_range(e, facts)
    return e.dtype is i64 and lo >= 0 and hi <= DIM_MAX


def _symbol(e: Expr, packed: bool) -> Dim:
    """A dim of which is known what is known of `e`, as far as somebody has said so.

    Of sizes of dims without a contract only matters whether they may be 0: what else their formula tells would make programs differ.
    """
    facts = Facts()
    lo, hi = int_range(e, facts)
    step = max(1, multiple(e, facts))
    inside = sorted(free_vars(e), key=lambda v: v.payload[1])
    name = "_".join(v.name for v in inside)
    if packed or any(isinstance(v, Dim) and (v.min > 1 or v.max < DIM_MAX or v.multiple_of > 1) for v in inside):
        return Dim(name, lo, hi, step)
    return Dim(name, min(lo, 1))


class WithSymbols(Replacer):
    """Puts symbols in the place of expressions, in the shapes of buffers too."""

    def __init__(self, symbols: Mapping[Expr, Expr]) -> None:
        self.made: dict[Buffer, Buffer] = {}
        super().__init__({}, self.made)
        self._memo.update(symbols)

    def func(self, f: Func) -> Func:
        """The program over the symbols."""
        params = tuple(Param(self.buffer(p.value), p.role) if isinstance(p.value, Buffer) else p for p in f.params)
        for b in _own_buffers(f.body):
            self.made[b] = self.buffer(b)
        return f.with_(params=params, body=self.stmt(f.body))

    def buffer(self, b: Buffer) -> Buffer:
        """The buffer with its shape over the symbols."""
        strides = None if b.strides is None else tuple(map(self.expr, b.strides))
        self.made[b] = Buffer(b.name, b.dtype, self.shape(b), strides, b.scope)
        return self.made[b]

    def shape(self, b: Buffer) -> tuple[Expr, ...]:
        """The shape of a buffer over the symbols."""
        return tuple(map(self.expr, b.shape))


def _own_buffers(body: Stmt) -> Iterator[Buffer]:
    """What a program allocates and looks at, in order."""
    for s in walk_stmts(body):
        if isinstance(s, Alloc | View):
            yield s.buffer
