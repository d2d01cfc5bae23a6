"""Common subexpression elimination for source text: shared subexpressions get names, so that every expression is a tree.

    y[i] = exp(x[i]) / (1.0 + exp(x[i]))                ->      t = exp(x[i])
                                                                y[i] = t / (1.0 + t)

    y[i] = select(i > 0, (x[i - 1] + a) * (x[i - 1] + a), 0.0)
                                                        ->      t = alloc((), f32, scope="register")
                                                                if i > 0:
                                                                    u = x[i - 1] + a
                                                                    t[()] = u * u
                                                                else:
                                                                    t[()] = 0.0
                                                                y[i] = t[()]

Equal expressions are one object (`sym/hash_consing.py`), so a shared subexpression is a node with several users in one statement.
It is computed before the statement, except where it reads memory in an arm of a select: such a load may only run if the arm is taken, so
a select whose arm needs names becomes a branch. Very deep expressions are cut into several, because C compilers and Python recurse over
them. Small index arithmetic is repeated rather than named. Blocks and reductions are lowered before, and every loop is serial.
"""

from __future__ import annotations

from collections import Counter

from ...sym.expr import And, Const, Expr, Not, Or, Select, Var
from ...sym.walk import depth
from ..buffer import Buffer, Load, has_load
from ..stmt import Alloc, Check, Func, If, Let, Replacer, Stmt, Store, View, While, exprs, is_instruction, map_children, seq

DEEP = 100  # maximal depth of an expression; Python recurses 1000 frames, clang nests 256 brackets


def name_shared(func: Func) -> Func:
    """Returns the function with a let for every subexpression that a statement uses twice, so that text computes it once."""
    return func.with_body(_visit(func.body))


def named(*roots: Expr) -> tuple[list[Stmt], list[Expr]]:
    """The statements that name the shared subexpressions of `roots`, and `roots` in terms of these names."""
    names = _Names(roots)
    return names.lines, [names.expr(e) for e in roots]


def _visit(s: Stmt) -> Stmt:
    """Returns `s` with the shared subexpressions of each statement inside of it computed once, in lets before the statement."""
    if is_instruction(s):
        return s
    if isinstance(s, While):
        return _while(s)
    s = map_children(s, _visit)
    own = _text_of(s)
    lines, values = named(*own)
    if all(a is b for a, b in zip(values, own, strict=True)):
        return s
    return seq(*lines, _Renamed(dict(zip(own, values, strict=True))).stmt(s))


def _text_of(s: Stmt) -> tuple[Expr, ...]:
    """Returns the expressions that a statement evaluates every time it runs."""
    match s:
        case Alloc():
            return ()
        case View():
            return s.start
        case Check():  # the values of its message are evaluated only if it fails
            return (s.cond,)
    return exprs(s)


def _while(s: While) -> Stmt:
    """Returns a while loop whose condition needs names: it is computed before the loop, and at the end of each iteration."""
    body = _visit(s.body)
    lines, (condition,) = named(s.cond)
    if not lines:
        return s if body is s.body else s.with_(body=body)
    goes_on = Buffer("goes_on", s.cond.dtype, (), None, "register")
    lines_at_end, (at_end,) = named(s.cond)
    loop = s.with_(cond=Load(goes_on, ()), body=seq(body, *lines_at_end, Store(goes_on, (), at_end)))
    return seq(Alloc(goes_on), *lines, Store(goes_on, (), condition), loop)


class _Renamed(Replacer):
    """Replaces whole expressions of one statement by the variables that hold their values."""

    __slots__ = ("values",)

    def __init__(self, values: dict[Expr, Expr]) -> None:
        super().__init__()
        self.values = values

    def expr(self, e: Expr) -> Expr:
        return self.values.get(e, e)


def is_lazy(e: Expr) -> bool:
    """True if an operand of `e` loads from memory and is evaluated only if the first operand allows it."""
    return isinstance(e, (Select, And, Or)) and any(map(has_load, e.args[1:]))


def _is_cheap(e: Expr) -> bool:
    """True if repeating the expression is better than naming it: a constant, a variable, or integer arithmetic of depth 2 without loads."""
    return isinstance(e, (Const, Var)) or (e.dtype.is_int and depth(e) <= 2 and not has_load(e))


class _Names:
    """Names the shared subexpressions of one statement: collects the lets that compute each once."""

    def __init__(self, roots: tuple[Expr, ...]) -> None:
        self.lines: list[Stmt] = []
        self.memo: dict[Expr, Expr] = {}
        self.uses: Counter[Expr] = Counter()
        stack = list(roots)
        while stack:
            e = stack.pop()
            self.uses[e] += 1
            if self.uses[e] == 1:
                stack.extend(e.args)

    def expr(self, e: Expr) -> Expr:
        """`e` in terms of names; cuts it if it is too deep, and names it if it is shared."""
        if depth(e) > DEEP and e not in self.memo:
            for node in self.certain(e):
                if depth(node) % (DEEP // 2) == 0 and node is not e:
                    self.settle(node)
        if e not in self.memo:
            if self.uses[e] > 1 and not _is_cheap(e):
                self.settle(e)
            else:
                self.memo[e] = self.rebuilt(e)
        return self.memo[e]

    def settle(self, e: Expr) -> None:
        """Makes a let for `e`, unless it is a constant or a variable, so that later uses take the variable."""
        if e not in self.memo:
            value = self.rebuilt(e)
            if not isinstance(value, (Const, Var)) and not (isinstance(value, Load) and not value.indices):
                name = Var("t", e.dtype)
                self.lines.append(Let(name, value))
                value = name
            self.memo[e] = value

    def rebuilt(self, e: Expr) -> Expr:
        """Returns the expression with its operands in terms of names; a select, `and` or `or` whose arms need names becomes an `if`."""
        if not is_lazy(e):
            return e.with_args(tuple(map(self.expr, e.args))) if e.args else e
        first = self.expr(e.args[0])
        if isinstance(e, Select):  # what both arms evaluate is always evaluated: name it before
            both = set(self.certain(e.args[1])).intersection(self.certain(e.args[2]))
            for node in self.certain(e.args[1]):
                if node in both and self.uses[node] > 1:
                    self.expr(node)
        arms = [self.arm(a) for a in e.args[1:]]
        if any(lines for _, lines in arms):
            return self.branch(e, first, arms)
        return e.with_args((first, *(value for value, _ in arms)))

    def arm(self, e: Expr) -> tuple[Expr, list[Stmt]]:
        """Returns an operand that may not be evaluated, in terms of names, and the statements that compute these."""
        lines, memo, self.lines, self.memo = self.lines, self.memo, [], dict(self.memo)
        value, own = self.expr(e), self.lines
        self.lines, self.memo = lines, memo
        return value, own

    def branch(self, e: Expr, first: Expr, arms: list[tuple[Expr, list[Stmt]]]) -> Expr:
        """Returns a variable for a select, `and` or `or`, which becomes an `if` that stores into it."""
        chosen = Buffer("t", e.dtype, (), None, "register")
        self.lines.append(Alloc(chosen))
        branches = [seq(*lines, Store(chosen, (), value)) for value, lines in arms]
        if isinstance(e, Select):
            self.lines.append(If(first, branches[0], branches[1]))
        else:
            self.lines.append(Store(chosen, (), first))
            taken = Load(chosen, ())
            self.lines.append(If(taken if isinstance(e, And) else Not(taken), branches[0]))
        return Load(chosen, ())

    def certain(self, e: Expr) -> list[Expr]:
        """The nodes that are evaluated whenever `e` is, operands before users, without constants and variables.

        Of a select, `and` or `or`, only the first operand counts if another one loads from memory (`is_lazy`), else all do.
        """
        order: list[Expr] = []
        seen: set[Expr] = set()
        stack = [(e, False)]
        while stack:
            node, done = stack.pop()
            if done:
                order.append(node)
            elif node not in seen and not isinstance(node, (Const, Var)):
                seen.add(node)
                stack.append((node, True))
                stack.extend((a, False) for a in node.args[: 1 if is_lazy(node) else None])
        return order
