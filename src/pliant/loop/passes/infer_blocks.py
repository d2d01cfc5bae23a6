"""Recognizes blocks in plain loop nests, so that programs written without blocks are fused and scheduled too.

    for i in range(n):                  for i in range(n):
        t = x[i] * 2.0            ->        with block("y", "S", i) as vi:
        y[i] = t * t                            y[vi] = x[vi] * 2.0 * (x[vi] * 2.0)

A store becomes a block if its instances are provably independent: its indices are the surrounding loop variables, each once, and cover
the whole buffer; the loops are serial, with bounds that do not depend on each other; and it reads its own buffer only at the index that
it writes. In a reduction, the loops that are no index are R. Lets just before it are substituted. Anything else stays as it is:
conditions, checks, loops of other kinds, data-dependent indices, parts of a buffer.
"""

from __future__ import annotations

from ...support.names import unused_name
from ...sym.expr import Const, Expr, Var, free_vars
from ...sym.walk import walk
from ..buffer import Load
from ..stmt import NAMED_COMBINERS, Block, For, Func, Iter, IterKind, Let, Reduce, Replacer, Seq, Stmt, Store, exprs, walk_stmts


def infer_blocks(func: Func) -> Func:
    """The program with blocks for its plain loop nests; the same object if there are none, or if it was scheduled by hand."""
    if func.attrs.scheduled:
        return func
    inference = _Inference({s.name for s in walk_stmts(func.body) if isinstance(s, Block)})
    return func.with_body(inference.visit(func.body, ()))


class _Inference:
    """Turns stores and reductions in plain loop nests into blocks; `names` are the block names in use."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit(self, s: Stmt, loops: tuple[For, ...]) -> Stmt:
        """Returns the statement with blocks inferred in it, inside of the serial `loops`."""
        match s:
            case For(kind="serial"):
                body = self.visit(s.body, (*loops, s))
                return s if body is s.body else s.with_(body=body)
            case Seq():
                return self.sequence(s, loops)
            case Store() | Reduce():
                return self.block(s, loops) or s
        return s

    def sequence(self, s: Seq, loops: tuple[For, ...]) -> Stmt:
        """Returns a sequence with blocks inferred; lets followed by one store are substituted into that store."""
        *lets, last = s.body or (s,)
        if loops and lets and all(isinstance(x, Let) for x in lets) and isinstance(last, Store | Reduce):
            put_in: dict[Var, Expr] = {}
            for x in lets:
                assert isinstance(x, Let)
                put_in[x.var] = Replacer(vars=put_in).expr(x.value)
            return self.block(Replacer(vars=put_in).stmt(last), loops) or s
        if any(isinstance(x, Let) for x in s.body) and loops:
            return s  # later statements use the let, and a block must not depend on it
        body = tuple(self.visit(x, loops) for x in s.body)
        return s if all(a is b for a, b in zip(body, s.body, strict=True)) else s.with_(body=body)

    def block(self, s: Stmt, loops: tuple[For, ...]) -> Stmt | None:
        """Returns a block around the store or reduction, or None if that is not provably legal."""
        target = Load(s.buffer, s.indices) if isinstance(s, Store) else s.targets[0] if isinstance(s, Reduce) else None
        if target is None or not loops or (isinstance(s, Reduce) and s.combiner is not NAMED_COMBINERS.get(s.combiner.name)):
            return None
        variables: list[Expr] = [x.var for x in loops]
        indices = [e for e in target.indices if not free_vars(e).isdisjoint(variables)]
        fixed = [e for e in target.indices if e not in indices]
        if len(set(indices)) != len(indices) or any(e not in variables for e in indices):
            return None
        if any(_loads(e) or not free_vars(e).isdisjoint(variables) for x in loops for e in (x.start, x.stop)):
            return None
        if fixed or any(not _covers(loops[variables.index(e)], size) for e, size in zip(indices, target.buffer.shape, strict=True)):
            return None
        reduced = [v for v in variables if v not in indices]
        own = [x for e in exprs(s) for x in _loads(e) if x.buffer is target.buffer]
        if (reduced or own) and isinstance(s, Store) and (reduced or any(x is not target for x in own)):
            return None
        if isinstance(s, Reduce) and own:
            return None
        kinds: list[IterKind] = ["R" if v in reduced else "S" for v in variables]
        iters = tuple(Iter(Var(f"v{x.var.name}", x.var.dtype), k, x.var) for x, k in zip(loops, kinds, strict=True))
        inside = Replacer(vars={i.value: i.var for i in iters if isinstance(i.value, Var)}).stmt(s)
        return Block(unused_name(target.buffer.name, self.names), iters, inside, span=s.span)


def _covers(loop: For, size: Expr) -> bool:
    """True if a loop runs over a whole dim of extent `size`, from 0."""
    return isinstance(loop.start, Const) and loop.start.value == 0 and loop.stop is size


def _loads(e: Expr) -> list[Load]:
    return [x for x in walk(e) if isinstance(x, Load)]
