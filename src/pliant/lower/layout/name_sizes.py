"""Replaces compound size expressions in loop programs by fresh symbols, so that equal kernels with different size formulas are shared.

    def f(x: f32[(height + 1) // 2, 8], …)      ->      def f(x: f32[height, 8], …)      # called with (height + 1) // 2

An expression is replaced only if the program uses its variables nowhere else, so nothing can be lost: the symbol gets the range and the
divisibility of the expression. Proofs about such programs are shorter, and layers that differ only in size formulas become one kernel.

    named, sizes = name_dims(func)              # sizes: the expression behind each new symbol

`name_sizes` does this for all programs of a function, before any analysis that needs proofs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...dtype import i64
from ...graph import node as g
from ...loop.buffer import Buffer
from ...loop.stmt import Alloc, Func, Param, Replacer, Stmt, View, exprs, walk_stmts
from ...loop.structural import structural_hash
from ...sym.bounds import int_range, multiple
from ...sym.expr import DIM_MAX, Const, Dim, Expr, Var, free_vars, substitute
from ...sym.facts import Facts
from ...sym.walk import walk
from ..callee import callee_of, func_of, map_calls


def name_sizes(function: g.Function) -> g.Function:
    """Returns the function with symbols for the compound sizes in its loop programs; structurally equal programs become one object.

    Programs with a schedule of their own are left alone. The same object is returned if nothing changes.
    """
    nodes = map_calls(function.nodes, _Programs().call)
    return function if all(a is b for a, b in zip(nodes, function.nodes, strict=True)) else function.with_(nodes=nodes)


class _Programs:
    """The loop programs of a function with named sizes, shared by structural hash."""

    def __init__(self) -> None:
        self.named: dict[Func, tuple[Func, tuple[Expr, ...]]] = {}  # program -> (its replacement, the values of that one's symbols)
        self.alike: dict[bytes, Func] = {}

    def call(self, n: g.CallLoop) -> g.Node:
        """Returns the call with its loop program replaced by the shared, renamed one."""
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
        dims = dict(zip(func.symbols, n.dims, strict=True))
        return n.with_(callee=callee_of(one), dims=tuple(substitute(e, dims) for e in values))


def name_dims(func: Func) -> tuple[Func, dict[Var, Expr]]:
    """Returns `func` with a symbol for each replaceable size expression, and the expression behind each symbol."""
    sizes = _sizes(func)
    if not sizes:
        return func, {}
    packed = any(b.dtype.bits < 8 for b in func.buffers)  # rows of sub-byte elements must stay provably whole bytes
    symbols = {e: _symbol(e, packed) for e in sizes}
    return with_symbols(func, symbols), {v: e for e, v in symbols.items()}


def with_symbols(func: Func, symbols: Mapping[Expr, Expr]) -> Func:
    """Returns `func` with the keys of `symbols` replaced by their values, in expressions and buffer shapes."""
    return WithSymbols(symbols).func(func)


def _sizes(func: Func) -> list[Expr]:
    """Returns the largest replaceable size expressions of a program; none of them is part of another one."""
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
    """Maps each expression node to its parents; None as a parent marks a root."""
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
    """Returns a new dim with the range and divisibility of the expression `e`.

    If no dim in `e` has a contract, and it is not `packed`, only the fact whether it may be 0 is kept: more would make otherwise equal
    programs differ.
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
    """A Replacer of whole expressions by symbols in a loop program, also in the shapes of its buffers."""

    def __init__(self, symbols: Mapping[Expr, Expr]) -> None:
        self.made: dict[Buffer, Buffer] = {}
        super().__init__({}, self.made)
        self._memo.update(symbols)

    def func(self, f: Func) -> Func:
        """Returns the loop program with the expressions replaced by symbols."""
        params = tuple(Param(self.buffer(p.value), p.role) if isinstance(p.value, Buffer) else p for p in f.params)
        for b in _own_buffers(f.body):
            self.made[b] = self.buffer(b)
        return f.with_(params=params, body=self.stmt(f.body))

    def buffer(self, b: Buffer) -> Buffer:
        """Returns a new buffer whose shape and strides have the expressions replaced by symbols."""
        strides = None if b.strides is None else tuple(map(self.expr, b.strides))
        self.made[b] = Buffer(b.name, b.dtype, self.shape(b), strides, b.scope)
        return self.made[b]

    def shape(self, b: Buffer) -> tuple[Expr, ...]:
        """Returns the shape of a buffer with the expressions replaced by symbols."""
        return tuple(map(self.expr, b.shape))


def _own_buffers(body: Stmt) -> Iterator[Buffer]:
    """Yields the buffers that a program allocates or defines as views, in order."""
    for s in walk_stmts(body):
        if isinstance(s, Alloc | View):
            yield s.buffer
