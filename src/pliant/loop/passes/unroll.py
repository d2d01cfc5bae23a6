"""Unrolls loops of kind `unroll` completely: one copy of the body for each iteration, with a constant for the loop variable.

    for i in unroll(2):                              acc[0] = 0.0
        acc[i] = 0.0                                 acc[1] = 0.0
    for k in range(n):                    ->         for k in range(n):
        for i in unroll(2):                              acc[0] += x[0, k]
            acc[i] += x[i, k]                            acc[1] += x[1, k]

Afterwards every index of a register buffer is a constant (or the lanes of a vector loop), so a renderer can keep each element in a
register. Indices and conditions are constant-folded during substitution. Memory that the body allocates is allocated once, before the
copies: its contents are undefined at the start of each iteration, so the copies may share it. Lets and views of the body get a new name
in each copy. Loops that stand for a tensor instruction are left alone: renderers match them against the instruction.
"""

from __future__ import annotations

from ...dtype import i64
from ...support.errors import UnsupportedError
from ...sym.expr import FALSE, TRUE, And, Binary, Const, Expr, Or, Select, Var, binary, free_vars, substitute
from ...sym.poly import poly_of
from ..buffer import Buffer
from ..stmt import Alloc, For, Func, If, Let, Replacer, Seq, Stmt, View, While, exprs, is_instruction, seq

MAX_UNROLLED = 4096  # copies of one statement; more would be megabytes of code and minutes in LLVM


def unroll(func: Func) -> Func:
    """Returns the function with every loop of kind `unroll` replaced by copies of its body."""
    return func.with_body(_Unroller().stmt(func.body))


class _Unroller(Replacer):
    """Copies statements, with constants for the variables of the loops that are being unrolled around them."""

    vars: dict[Var, Expr]
    buffers: dict[Buffer, Buffer]

    def __init__(self) -> None:
        super().__init__({}, {})
        self.copies = 1  # of the current statement
        self.lets: dict[Var, Expr] = {}  # integer lets, in terms of loop variables
        # Names bound in the current sequence and those around it; a further copy must rename them.
        self.flat: set[Var | Buffer] = set()
        self.verbatim = False  # inside of a tensor instruction

    # Expressions.

    def _leaf(self, e: Expr) -> Expr | None:
        """Substitutes and folds one node: variables, i64 arithmetic, and decided conditions.

        Returns None to leave other nodes to the caller.
        """
        if isinstance(e, Var):
            return self.vars.get(e, e)
        if not self.buffers and free_vars(e).isdisjoint(self.vars):
            return e
        if isinstance(e, Binary) and e.args[0].dtype is i64:
            return binary(type(e), self.expr(e.args[0]), self.expr(e.args[1]))
        return self.decided(e) if isinstance(e, (Select, And, Or)) else Replacer._leaf(self, e)

    def decided(self, e: Expr) -> Expr | None:
        """The taken side of a select, `and` or `or` that is decided in this copy; the other side may index out of bounds.

        None if it is not decided, or another expression.
        """
        first = self.expr(e.args[0])
        if first is not TRUE and first is not FALSE:
            return None
        if isinstance(e, Select):
            return self.expr(e.args[1] if first is TRUE else e.args[2])
        return self.expr(e.args[1]) if isinstance(e, And) is (first is TRUE) else first

    def number(self, e: Expr) -> int | None:
        """Returns the value of a loop bound if it is a constant in the current copy, else None."""
        p = poly_of(substitute(self.expr(e), self.lets))
        return p.get((), 0) if not any(p) else None

    # Statements.

    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case For() if s.kind == "unroll" and not self.verbatim:
                return self.written_out(s)
            case Seq():
                body = tuple(self.stmt(x) for x in s.body)
                return s if all(a is b for a, b in zip(body, s.body, strict=True)) else seq(*body)
            case If():
                return self.choice(s)
            case For() | While():
                return self.loop(s)
            case Let():
                return self.let(s)
            case Alloc():
                return self.alloc(s)
            case View():
                return self.view(s)
        return Replacer.stmt(self, s) if self.concerned(s) else s

    def concerned(self, s: Stmt) -> bool:
        """True if a statement may contain something to replace: a variable of an unrolled loop, or any buffer."""
        return bool(self.buffers) or any(not free_vars(e).isdisjoint(self.vars) for e in exprs(s))

    def scoped(self, s: Stmt) -> Stmt:
        """Returns a rewritten statement that is a scope of its own: buffers of earlier copies are not reused beyond it."""
        outside, self.flat = self.flat, set(self.flat)
        changed = self.stmt(s)
        self.flat = outside
        return changed

    def choice(self, s: If) -> Stmt:
        """Returns a rewritten `if`; only the taken side if the condition is a constant in the current copy."""
        condition = self.expr(s.cond)
        if condition is TRUE or condition is FALSE:
            chosen = s.then if condition is TRUE else s.orelse
            return Seq(()) if chosen is None else self.stmt(chosen)
        then = self.scoped(s.then)
        orelse = None if s.orelse is None else self.scoped(s.orelse)
        same = condition is s.cond and then is s.then and orelse is s.orelse
        return s if same else s.with_(cond=condition, then=then, orelse=orelse)

    def loop(self, s: For | While) -> Stmt:
        """Returns a loop that is not unrolled, with its body and bounds rewritten."""
        outside = self.verbatim
        self.verbatim = outside or is_instruction(s)
        body = self.scoped(s.body)
        self.verbatim = outside
        s = s if body is s.body else s.with_(body=body)
        if not self.concerned(s):
            return s
        if isinstance(s, While):
            return s.with_(cond=self.expr(s.cond))
        grain = s.annotations.get("grain")
        notes = {**s.annotations, "grain": self.expr(grain)} if isinstance(grain, Expr) else s.annotations
        return s.with_(start=self.expr(s.start), stop=self.expr(s.stop), annotations=notes)

    # Bindings.

    def let(self, s: Let) -> Stmt:
        """Returns a rewritten let; one whose value becomes a constant in this copy is substituted instead."""
        value, var = self.expr(s.value), s.var
        if isinstance(value, Const) and value is not s.value:
            self.vars[var] = value
            return Seq(())
        if var in self.flat:
            var = self.vars[s.var] = Var(s.var.name, s.var.dtype)
        self.flat.add(s.var)
        if var.dtype is i64:
            self.lets[var] = substitute(value, self.lets)
        return s if value is s.value and var is s.var else s.with_(var=var, value=value)

    def alloc(self, s: Alloc) -> Stmt:
        """Returns a rewritten allocation; nothing if an earlier copy of the body has allocated the buffer."""
        if s.buffer in self.flat and not self.concerned(s):  # allocated by an earlier copy
            return Seq(())
        buffer = self.named(s.buffer)
        return s if buffer is s.buffer else s.with_(buffer=buffer)

    def view(self, s: View) -> Stmt:
        """Returns a view statement rewritten to the buffers of the current copy."""
        start, source = tuple(map(self.expr, s.start)), self.buffers.get(s.source, s.source)
        return s.with_(buffer=self.named(s.buffer), source=source, start=start)

    def named(self, b: Buffer) -> Buffer:
        """The buffer of this copy; the same object if it is the first copy and no constant is substituted into its shape."""
        sizes = (*b.shape, *(b.strides or ()))
        if b in self.flat or any(not free_vars(e).isdisjoint(self.vars) for e in sizes):
            strides = None if b.strides is None else tuple(map(self.expr, b.strides))
            self.buffers[b] = Buffer(b.name, b.dtype, tuple(map(self.expr, b.shape)), strides, b.scope)
        self.flat.add(b)
        return self.buffers.get(b, b)

    # Copies.

    def written_out(self, s: For) -> Stmt:
        """Returns the copies of a loop's body in order.

        Raises UnsupportedError if the extent is not constant, or if there would be more than MAX_UNROLLED copies of a statement.
        """
        start, stop = self.number(s.start), self.number(s.stop)
        if start is None or stop is None:
            raise UnsupportedError(
                f"loop `{s.var.name}` cannot be unrolled: its extent `{s.extent}` is no constant",
                where=s.span,
                help="split it by a constant and unroll the inner loop",
            )
        extent = max(0, stop - start)
        if self.copies * extent > MAX_UNROLLED:
            raise UnsupportedError(
                f"unrolling loop `{s.var.name}` gives {self.copies * extent} copies of its body, more than {MAX_UNROLLED}",
                where=s.span,
                help="split it and unroll only the inner loop",
            )
        copies, memo, self.copies = self.copies, self._memo, self.copies * max(1, extent)
        bodies = []
        for n in range(start, start + extent):
            self._memo = {}
            self.vars[s.var] = Const(n, i64)
            bodies.append(self.stmt(s.body))
        self.vars.pop(s.var, None)
        self.copies, self._memo = copies, memo
        return seq(*bodies)
