"""Errors of primitives: they show the program with the statements underlined, the violated condition, the actual values, and a way out.

    error: cannot split loop `j` by 0: a factor is a positive whole number
      --> my_kernel.py:41
       | s.split(j, 0)
       | ^^^^^^^^^^^^^
       | for i in range(64):
       |     for j in range(100):
       |     ^^^^^^^^^^^^^^^^^^^^ extent 100

The text is rendered only when it is read, because a search may be refused thousands of times.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..loop.analysis.nest_shape import NotIsolated, isolated_loops
from ..loop.stmt import Block, For, Func, Replacer, Stmt, map_children
from ..support.errors import ScheduleError
from ..sym.expr import Var

_MARK = "mark_of_the_refused_statement"  # stands for the statement's name while its line in the printed program is looked up


class Refusal(ScheduleError):
    """Raised by a schedule primitive whose legality conditions do not hold; it shows the program and the statements in question."""

    def __init__(self, what: str, func: Func, at: Sequence[tuple[Stmt, str]], facts: Sequence[str] = (), help: str = "") -> None:
        super().__init__(what, facts=facts, help=help)
        self.func = func
        self.statements = list(at)

    def __str__(self) -> str:
        lines = [self.what]
        lines += [span.render(note) for span, note in self.places]
        lines += excerpt(self.func, self.statements)
        lines += [f"fact: {fact}" for fact in self.facts]
        if self.help:
            lines.append(f"help: {self.help}")
        return "\n".join(lines)


def refuse(what: str, func: Func, *at: tuple[Stmt, str], facts: Sequence[str] = (), help: str = "") -> Refusal:
    """Return the error that says `what` cannot be done and underlines the statements `at`, each with a note."""
    return Refusal(what, func, at, facts, help)


def excerpt(func: Func, at: Sequence[tuple[Stmt, str]]) -> list[str]:
    """Return the program's text with carets under the first lines of the statements, and the notes beside them."""
    notes: dict[int, list[str]] = {}
    for s, note in at:
        number = line_of(func, s)
        if number is not None:
            notes.setdefault(number, []).append(note)
    lines = []
    for number, line in enumerate(str(func).splitlines()):
        lines.append(f"   | {line}".rstrip())
        if number in notes:
            code = line.strip()
            lines.append(
                f"   | {' ' * (len(line) - len(line.lstrip()))}{'^' * len(code)} {', '.join(n for n in notes[number] if n)}".rstrip()
            )
    return lines


def line_of(func: Func, s: Stmt) -> int | None:
    """Return the line of the printed program on which a loop or a block begins, counted from 0; None if it is not there."""

    def marked(x: Stmt) -> Stmt:
        if x is not s:
            return map_children(x, marked)
        if isinstance(x, For):
            var = Var(_MARK, x.var.dtype)
            return x.with_(var=var, body=Replacer({x.var: var}).stmt(x.body))
        return x.with_(name=_MARK) if isinstance(x, Block) else x

    text = str(func.with_(body=marked(func.body)))
    return next((n for n, line in enumerate(text.splitlines()) if _MARK in line), None)


def check_serial(func: Func, loop: For, verb: str) -> None:
    """Raise if a loop is not serial, i.e. already parallel, vectorized or unrolled."""
    if loop.kind != "serial":
        raise refuse(f"cannot {verb} loop `{loop.var.name}`: it is {loop.kind}, not serial", func, (loop, f"{loop.kind}"))


def own_nest(func: Func, block: Block, what: str) -> dict[Var, For]:
    """Return the loop of each iterator, outermost loop first; raise unless they are serial loops from 0 around this block alone."""
    loops = isolated_loops(func, block)
    if isinstance(loops, NotIsolated):
        raise refuse(f"{what}: {loops.reason}", func, *loops.at)
    return loops
