"""Dead code elimination: removes unused lets, views, local buffers and the stores into them, and loops and branches left empty.

    acc_0 = alloc((), f32, scope="register")
    t = x[0] * 2.0                                   ->      y[0] = x[0]
    acc_0[()] = t
    y[0] = x[0]

LLVM removes such code itself; C compilers warn about it. Expressions have no effects. The effects are stores to non-local memory, calls,
checks and `while`; whatever none of them depends on is removed.
"""

from __future__ import annotations

from ...sym.expr import Expr, Var
from ...sym.walk import walk
from ..buffer import Buffer, Load
from ..stmt import Alloc, Call, Check, For, Func, If, Let, Reduce, Seq, Stmt, Store, View, While, children, exprs, map_children, seq


def remove_unused(func: Func) -> Func:
    """Dead code elimination: returns the function without statements that no output, check or call depends on."""
    return func.with_body(_swept(func.body, _Uses(func).live) or Seq(()))


class _Uses:
    """The set of live statements: those with an effect, those that they depend on, and the statements around these."""

    def __init__(self, func: Func) -> None:
        self.live: set[Stmt] = set()
        self.around: dict[Stmt, list[Stmt]] = {}  # unrolled copies may share a statement
        self.names: dict[Var | Buffer, list[Stmt]] = {}  # name -> the statements that bind it
        self.writes: dict[Buffer, list[Stmt]] = {}  # allocated buffer -> the stores into its memory
        self.root: dict[Buffer, Buffer] = {}  # local buffer -> the allocated buffer that owns its memory
        self.open: list[Stmt] = []  # the worklist: live statements whose dependences are not marked yet
        self._collect(func.body)
        while self.open:
            self._mark(self.open.pop())

    def _collect(self, body: Stmt) -> None:
        """Records the statements that bind names and store to local memory, and puts those with effects on the worklist."""
        stack: list[tuple[Stmt, list[Stmt]]] = [(body, [])]
        while stack:
            s, outer = stack.pop()
            if s not in self.around:
                stack.extend((x, [s]) for x in reversed(children(s)))
            self.around.setdefault(s, []).extend(outer)
            match s:
                case Let():
                    self.names.setdefault(s.var, []).append(s)
                case Alloc():
                    self.names.setdefault(s.buffer, []).append(s)
                    self.root[s.buffer] = s.buffer
                case View():
                    self.names.setdefault(s.buffer, []).append(s)
                    if s.source in self.root:
                        self.root[s.buffer] = self.root[s.source]
                case Check(kind="assume"):
                    pass  # it emits no test, so it has no effect
                case Call() | Check() | While():
                    self.open.append(s)
            for b in written(s):
                if b in self.root:
                    self.writes.setdefault(self.root[b], []).append(s)
                else:
                    self.open.append(s)

    def _mark(self, s: Stmt) -> None:
        """Marks a statement as live, and puts what it depends on onto the worklist."""
        if s in self.live:
            return
        self.live.add(s)
        self.open += self.around[s]
        for e in exprs(s):
            self._read(e)
        for b in written(s):
            self._bound(b)
        if isinstance(s, View):
            self._bound(s.source)
        for t in s.targets if isinstance(s, Reduce) else ():
            self._contents(t.buffer)
        for a in s.args if isinstance(s, Call) else ():
            if isinstance(a, Buffer):
                self._contents(a)

    def _read(self, e: Expr) -> None:
        """Marks the statements that an expression depends on as live."""
        for node in walk(e):
            if isinstance(node, Var):
                self.open += self.names.pop(node, ())
            elif isinstance(node, Load):
                self._contents(node.buffer)

    def _contents(self, b: Buffer) -> None:
        """Marks the stores into a buffer's memory as live, because the buffer is read."""
        self._bound(b)
        self.open += self.writes.pop(self.root.get(b, b), ())

    def _bound(self, b: Buffer) -> None:
        """Marks a buffer that is named: its binding and the variables in its shape are live."""
        self.open += self.names.pop(b, ())
        for e in (*b.shape, *(b.strides or ())):
            self._read(e)


def written(s: Stmt) -> list[Buffer]:
    """The buffers that a statement itself stores to."""
    return [s.buffer] if isinstance(s, Store) else [t.buffer for t in s.targets] if isinstance(s, Reduce) else []


def _swept(s: Stmt, live: set[Stmt]) -> Stmt | None:
    """Returns the statement without its dead parts; None if all of it is dead."""
    if s not in live:
        return None
    if isinstance(s, Seq):
        swept = [_swept(x, live) for x in s.body]
        return s if all(a is b for a, b in zip(swept, s.body, strict=True)) else seq(*(x for x in swept if x is not None))
    if isinstance(s, If):
        then, orelse = (None if x is None else _swept(x, live) for x in (s.then, s.orelse))
        return s if then is s.then and orelse is s.orelse else s.with_(then=then or Seq(()), orelse=orelse)
    return map_children(s, lambda x: _swept(x, live) or Seq(())) if isinstance(s, (For, While)) else s
